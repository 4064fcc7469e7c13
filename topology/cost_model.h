/* SPDX-License-Identifier: Apache-2.0 */
/* What operations cost on a described machine: the model behind what-if, and behind the fit.
 *
 * A machine is nodes of GPUs with NICs; NVLink domains cut or span nodes. An operation is a few
 * phases one after the other; a phase is a set of flows that run together, and a latency on top.
 * The event engine shares the links among all flows that are under way, of all operations. Ranks
 * that the machine, the edits and the operations cannot tell apart are one class, computed once.
 *
 * Integers only: bytes, bytes per second, picoseconds. Nothing here has side effects.
 */
#ifndef COST_MODEL_H
#define COST_MODEL_H

#include "flow_engine.h"

#include <isthmus/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COST_PHASES_MAX 3u
#define COST_EDITS_MAX 32u
#define COST_OPS_MAX 64u
#define COST_PERMILLE 1000u

/* ------------------------------------------------------------------------------------ profile */

/* X(field, default, meaning). One set of constants holds for an operation and algorithm. */
#define COST_KNOBS(X)                                                                              \
    X(overhead_ps, 4500000, "once an operation: launch, entry and exit")                           \
    X(lsa_step_ps, 1100000, "one dependent step inside an NVLink domain")                          \
    X(net_step_ps, 6000000, "one dependent step through the network")                              \
    X(message_ps, 20000, "one message of a rank to the network; one flag for a peer near by")      \
    X(row_ps, 2000, "one row that a rank takes in, on its memory")                                 \
    X(lsa_bytes_per_s, 366000000000, "a GPU to its NVLink domain, each direction")                 \
    X(net_bytes_per_s, 48000000000, "a NIC, each direction")                                       \
    X(local_bytes_per_s, 4200000000000, "memory of a GPU, read and written together")

typedef enum cost_knob {
#define X(field, preset, meaning) COST_##field,
    COST_KNOBS(X)
#undef X
        COST_KNOB_COUNT
} cost_knob;

typedef struct cost_knobs {
    uint64_t value[COST_KNOB_COUNT];
} cost_knobs;

extern const char *const cost_knob_names[COST_KNOB_COUNT];
extern const char *const cost_knob_meanings[COST_KNOB_COUNT];
cost_knobs cost_knobs_default(void);

/* ------------------------------------------------------------------------------------ machine */

typedef struct cost_machine {
    uint64_t node_count;
    uint64_t gpus_per_node;
    uint64_t domain;          /* GPUs of an NVLink domain: divides a node or is whole nodes; >= 1 */
    uint64_t nics_per_node;   /* divides the GPUs of a node; 0: no network */
    uint64_t fabric_permille; /* of what the NICs could carry together; 1000: full */
    uint64_t memory_bytes;    /* of a GPU */
    /* Full mesh inside a domain: a pair has 1/mesh_links of the GPU's rate. 0: through a switch. */
    uint64_t mesh_links;
} cost_machine;

uint64_t cost_rank_count(const cost_machine *machine);

typedef enum cost_resource {
    COST_LSA_OUT = 0, /* of a GPU */
    COST_LSA_IN,      /* of a GPU */
    COST_LOCAL,       /* memory of a GPU */
    COST_NIC_OUT,     /* of a NIC */
    COST_NIC_IN,      /* of a NIC */
    COST_FABRIC,      /* everything between the NICs */
    COST_RESOURCE_COUNT
} cost_resource;

extern const char *const cost_resource_names[COST_RESOURCE_COUNT];

/* A link of one place made slower; num 0 takes it away. */
typedef struct cost_edit {
    cost_resource resource; /* an _OUT stands for both directions */
    bool everywhere;
    uint64_t node;
    uint32_t index; /* of the GPU or NIC on its node */
    uint32_t num, den;
} cost_edit;

/* ---------------------------------------------------------------------------------- operations */

/* X(name, value, text) */
#define COST_KINDS(X)                                                                              \
    X(COST_ALL_REDUCE, 0, "allreduce")                                                             \
    X(COST_ALL_GATHER, 1, "allgather")                                                             \
    X(COST_REDUCE_SCATTER, 2, "reducescatter")                                                     \
    X(COST_ALL_TO_ALL, 3, "alltoall")                                                              \
    X(COST_BROADCAST, 4, "broadcast")                                                              \
    X(COST_SEND_RECV, 5, "sendrecv") /* a ring shift: every rank to the next */                    \
    X(COST_P2P, 6, "p2p")                                                                          \
    X(COST_PUT, 7, "put")                                                                          \
    X(COST_SIGNAL, 8, "signal")                                                                    \
    X(COST_BARRIER, 9, "barrier")                                                                  \
    X(COST_EP_DISPATCH, 10, "ep_dispatch")                                                         \
    X(COST_EP_COMBINE, 11, "ep_combine")                                                           \
    X(COST_COPY, 12, "copy") /* inside each GPU */

typedef enum cost_kind {
#define X(name, value, text) name = value,
    COST_KINDS(X)
#undef X
        COST_KIND_COUNT
} cost_kind;

/* X(name, value, text) */
#define COST_ALGORITHMS(X)                                                                         \
    X(COST_AUTO, 0, "auto")                                                                        \
    X(COST_RING, 1, "ring")                                                                        \
    X(COST_TREE, 2, "tree")                                                                        \
    X(COST_DIRECT, 3, "direct")                                                                    \
    X(COST_ONE_SHOT, 4, "oneshot")                                                                 \
    X(COST_TWO_SHOT, 5, "twoshot")                                                                 \
    X(COST_MULTICAST, 6, "multicast")                                                              \
    X(COST_LL, 7, "ll")                                                                            \
    X(COST_HT, 8, "ht")

typedef enum cost_algorithm {
#define X(name, value, text) name = value,
    COST_ALGORITHMS(X)
#undef X
        COST_ALGORITHM_COUNT
} cost_algorithm;

extern const char *const cost_kind_names[COST_KIND_COUNT];
extern const char *const cost_algorithm_names[COST_ALGORITHM_COUNT];

typedef enum cost_routing {
    COST_ROUTING_RANDOM = 0, /* experts drawn alike; a token goes once to a rank that has several */
    COST_ROUTING_SPREAD = 1, /* a token's experts are all on different ranks */
    COST_ROUTING_EVERY = 2   /* every (token, expert) pair travels, also two to one rank */
} cost_routing;

/* bytes: all-reduce, broadcast, p2p, put, copy: of one rank's buffer; all-gather: of the whole
 * output; reduce-scatter, all-to-all: of one rank's whole input. EP: not used. */
typedef struct cost_op {
    cost_kind kind;
    cost_algorithm algorithm;
    uint32_t stream;     /* operations of one stream run one after the other */
    uint64_t group_size; /* consecutive ranks that do it together, in every group alike; 0: all */
    uint64_t bytes;
    uint64_t src, dst;  /* P2P, PUT, SIGNAL */
    uint64_t tokens;    /* EP: of a rank */
    uint64_t row_bytes; /* EP: of a token as it travels */
    uint64_t topk, experts;
    cost_routing routing;
    uint32_t blocks;     /* device blocks that move the data; 0: as many as there are */
    uint64_t node_limit; /* EP: most islands that a token's experts are drawn from; 0: no limit */
    cost_knobs knobs;
} cost_op;

/* The ways flows of a phase go. Bytes are of one flow. */
typedef enum cost_pattern {
    COST_TO_ALL = 0, /* every rank to every other of its group */
    COST_TO_NEXT,    /* every rank to the next of its domain, and to the next domain */
    COST_TO_RAIL,    /* LSA as TO_ALL; network to the same place in every other domain */
    COST_TO_SWITCH,  /* out to the switch: lsa_bytes; in from it: net_bytes */
    COST_TO_PEER     /* src to dst */
} cost_pattern;

typedef struct cost_phase {
    const char *name;
    cost_pattern pattern;
    uint64_t lsa_bytes, net_bytes;
    uint64_t local_bytes; /* memory traffic of each rank, besides what the flows read and write */
    uint64_t lsa_steps, net_steps; /* dependent steps */
    uint64_t messages, rows;       /* of a rank */
    uint64_t peers;                /* of its domain, that a rank tells that all is there */
} cost_phase;

/* What AUTO stands for here, by op->knobs. */
cost_algorithm cost_algorithm_choose(const cost_machine *machine, const cost_op *op);

/* What it is chosen from: how many. */
#define COST_CANDIDATES_MAX 2u
uint32_t cost_candidates(const cost_machine *machine, const cost_op *op,
                         cost_algorithm algorithms[COST_CANDIDATES_MAX]);

/* An all-reduce that has a machine of equal nodes to itself, in a closed form; UINT64_MAX: it cannot
 * be done so. */
uint64_t cost_alone_ps(const cost_machine *machine, const cost_op *op, cost_algorithm algorithm);

/* Fills phases, returns how many; 0: this algorithm cannot do it there, and why. */
uint32_t cost_op_phases(const cost_machine *machine, const cost_op *op,
                        cost_phase phases[COST_PHASES_MAX], const char **reason);

/* Distinct groups out of `groups` that a token reaches, in millionths; experts drawn alike. */
uint64_t cost_reach_millionths(uint64_t groups, uint64_t experts, uint64_t topk);

/* ------------------------------------------------------------------------------------ estimate */

typedef struct cost_op_result {
    cost_algorithm algorithm; /* AUTO resolved */
    uint64_t start_ps, end_ps;
    uint64_t fixed_ps;                        /* overhead, steps and messages */
    uint64_t transfer_ps;                     /* its busiest link, alone */
    uint64_t bytes[COST_RESOURCE_COUNT];      /* through all links of the kind */
    uint64_t busiest_ps[COST_RESOURCE_COUNT]; /* of the busiest link of the kind, alone */
    uint64_t buffer_bytes;                    /* of a rank, in and out */
    uint32_t bottleneck;                      /* cost_resource; COST_RESOURCE_COUNT: fixed costs */
    char path[48];
} cost_op_result;

typedef struct cost_result {
    uint64_t total_ps;
    uint64_t serial_ps; /* the operations one after the other, each as it ran here */
    uint64_t bytes[COST_RESOURCE_COUNT];
    uint64_t link_count[COST_RESOURCE_COUNT];
    uint64_t idle_count[COST_RESOURCE_COUNT]; /* links that carried nothing */
    uint64_t
        busiest_permille[COST_RESOURCE_COUNT]; /* bytes of the busiest link over what it could */
    char busiest[48];                          /* its name, over all kinds */
    char idle[128];                            /* names of idle links, as far as they fit */
    uint32_t bottleneck; /* cost_resource of the busiest; COST_RESOURCE_COUNT: nothing moves */
    uint64_t event_count;
    uint32_t class_count;
    uint32_t op_count;
    uint32_t last_op; /* the one that ends last */
    cost_op_result op[COST_OPS_MAX];
} cost_result;

/* expand: no collapse, every rank its own class. IST_ERR_UNSUPPORTED, IST_ERR_RANGE,
 * IST_ERR_MEMORY. */
ist_status cost_estimate(const cost_machine *machine, const cost_edit *edits, uint32_t edit_count,
                         const cost_op *ops, uint32_t op_count, bool expand, cost_result *result);

#endif
