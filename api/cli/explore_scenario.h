/* SPDX-License-Identifier: Apache-2.0 */
/* A scenario: a small program of one protocol, with an oracle that knows every byte and invariants that
 * hold whatever the schedule and the faults were. `isthmus explore` runs it thousands of times; a
 * program that wants scenarios of its own adds them to the list (explore_scenario_add).
 */
#ifndef EXPLORE_SCENARIO_H
#define EXPLORE_SCENARIO_H

#include "explore_faults.h"

#include <isthmus/isthmus.h>
#include <isthmus/unstable/explore.h>

#define EXPLORE_RANKS_MAX 8u

/* How ranks reach each other. */
typedef enum explore_net {
    EXPLORE_LSA,   /* one node: load and store */
    EXPLORE_GIN,   /* a node a rank: network */
    EXPLORE_HYBRID /* two nodes */
} explore_net;

/* What a shrinker may lower. */
#define EXPLORE_NUMBER_LIST(X)                                                                     \
    X(ranks, 2)                                                                                    \
    X(tokens, 1)                                                                                   \
    X(hidden, 4)                                                                                   \
    X(experts, 1)                                                                                  \
    X(topk, 1)                                                                                     \
    X(steps, 1)

typedef struct explore_numbers {
#define X(name, least) uint32_t name;
    EXPLORE_NUMBER_LIST(X)
#undef X
} explore_numbers;

/* What one rank saw. */
typedef struct explore_seen {
    ist_status open;     /* of opening; IST_OK when all was open */
    bool ended;          /* came to its end alive */
    bool evicted;        /* learned that it is out */
    bool met;            /* `mask` and `generation` are those of meeting number `meeting` */
    bool met_loosely;    /* the mask was looked at some waits after the meeting */
    uint32_t meeting;    /* agreements and cleans */
    uint64_t lost;       /* bits of ranks that it has missed, in records and masks */
    uint64_t excused;    /* of them: not in the mask of a clean to which this rank came too late */
    uint64_t mask;       /* bits of active ranks */
    uint64_t generation; /* of the mask */
    uint64_t end_ns;     /* when its program ended */
    char why[224];       /* the first thing that was wrong, or empty */
    char lost_by[32];    /* what missed the first of `lost` that the plan does not name */
    char out_by[32];     /* what said that this rank is out */
} explore_seen;

typedef struct explore_scenario explore_scenario;

/* One run. */
typedef struct explore_run {
    const explore_scenario *scenario;
    explore_numbers numbers;
    uint64_t seed;
    explore_blame blame; /* of the plan, and what prepare() adds to it */
    bool healthy;        /* the plan explains nothing */
    void *data;          /* of prepare() */
    explore_seen seen[EXPLORE_RANKS_MAX];
} explore_run;

struct explore_scenario {
    const char *name, *about;
    explore_net net;
    explore_numbers numbers; /* unless told */
    uint32_t flags;          /* the family's own */
    uint32_t detectors_off;  /* IST_DETECTOR() bits */
    ist_rank_fn rank_main;   /* its argument is an explore_run */
    const char *const *points;
    /* Before and after the world; NULL: nothing. May add to the blame. False: out of memory. */
    bool (*prepare)(explore_run *run);
    void (*discard)(explore_run *run);
};

/* explore_list.c: the shipped ones, then those that were added. NULL behind the last. */
const explore_scenario *explore_scenario_at(uint32_t index);
const explore_scenario *explore_scenario_find(const char *name);
/* Appends one; at most 8. */
void explore_scenario_add(const explore_scenario *scenario);

#define EXPLORE_MASK_SCENARIOS 12u
#define EXPLORE_EP_SCENARIOS 34u
extern const explore_scenario explore_mask_scenarios[EXPLORE_MASK_SCENARIOS];
extern const explore_scenario explore_ep_scenarios[EXPLORE_EP_SCENARIOS];

#endif
