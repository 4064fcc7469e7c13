/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the estimate share: classes of equal ranks, their links, operations under way.
 *
 * A block is the larger of node and domain. Blocks that an edit or a pair of ranks singles out are
 * special: each of their GPUs is a class of its own. All other blocks are alike; their ranks are
 * one class, or one for each place in the domain when there are special blocks.
 */
#ifndef COST_INTERNAL_H
#define COST_INTERNAL_H

#include "cost_model.h"

#define COST_SPECIAL_MAX 256u
#define COST_NO_LINK UINT32_MAX

__extension__ typedef unsigned __int128 cost_wide;

/* One rank of a special block, or equal ranks of the others. */
typedef struct cost_class {
    uint64_t count;
    uint64_t rank;        /* special: which */
    uint64_t nic_sharers; /* ranks of this class on one NIC */
    uint64_t place;       /* in the domain; for regular classes when they are split */
    uint32_t link[COST_FABRIC];
    bool special;
} cost_class;

typedef struct cost_link {
    cost_resource resource;
    uint64_t count; /* equal links it stands for */
    uint64_t node;
    uint32_t index;
    bool special;
    bool gone; /* an edit took it away */
} cost_link;

/* An operation under way. */
typedef struct cost_running {
    uint32_t phase, phase_count; /* phase 0 is the overhead */
    uint64_t waiting;            /* flows of the phase that have not arrived */
    cost_phase phases[COST_PHASES_MAX];
} cost_running;

typedef struct cost_state {
    const cost_machine *machine;
    const cost_edit *edits;
    const cost_op *ops;
    cost_result *result;
    cost_class *classes;
    cost_link *links;
    uint64_t *rates;
    flow_engine *engine;
    uint64_t block, ranks, regular;     /* ranks: of a block, of all, of regular blocks */
    uint64_t special[COST_SPECIAL_MAX]; /* numbers of blocks */
    uint32_t edit_count, op_count, special_count, class_count, link_count, fabric;
    uint32_t first_special; /* class */
    bool expand;
    cost_running *run; /* [op_count] */
    uint64_t *load;    /* of a link, by the operation that is being emitted */
} cost_state;

/* Adds up what an operation's phases put on links, or begins their flows. */
typedef struct cost_emitter {
    cost_state *at;
    const cost_op *op;
    uint32_t op_index;
    cost_op_result *result; /* NULL: flows are begun; else loads are added up */
    uint64_t latency_ps;
    uint64_t lsa_cap, net_cap; /* of one flow */
    ist_status status;
} cost_emitter;

ist_error cost_details(const char *object, uint64_t observed);
ist_status cost_refuse_memory(uint64_t count);

/* The rate of a link before edits: the best that any of the operations gets out of it. Slower
 * operations cap their flows. */
uint64_t cost_link_rate(const cost_state *at, cost_resource resource);

/* What an operation gets out of a link at most. */
uint64_t cost_op_rate(const cost_op *op, cost_resource resource);

/* Classes and links for the machine, the edits and the operations; opens the engine. */
ist_status cost_classes_make(cost_state *at);

uint64_t cost_group_ranks(const cost_state *at, const cost_op *op);

/* How many ranks of class `b` a rank of class `a` reaches by load and store; has in its group,
 * itself not counted; has at the same place of other domains. */
uint64_t cost_lsa_peers(const cost_state *at, const cost_op *op, const cost_class *a,
                        const cost_class *b);
uint64_t cost_all_peers(const cost_state *at, const cost_op *op, const cost_class *a,
                        const cost_class *b);
uint64_t cost_rail_peers(const cost_state *at, const cost_op *op, const cost_class *a,
                         const cost_class *b);

/* The flows of a phase. */
void cost_emit_phase(cost_emitter *to, const cost_phase *phase);

/* Steps, messages and rows of a phase. */
uint64_t cost_phase_latency(const cost_op *op, const cost_phase *phase);

/* Fills what is told about operations and links, after the run. */
void cost_describe(cost_state *at);

#endif
