/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of an explored run: a plan of one kind drawn from a number, and what a plan explains: who may
 * die, who may be missed, whether opening may fail. What is not explained is a failure.
 */
#ifndef EXPLORE_FAULTS_H
#define EXPLORE_FAULTS_H

#include <isthmus/unstable/sim.h>
#include <stdbool.h>
#include <stdint.h>

/* Deadline of every wait in a scenario, of the virtual clock. */
#define EXPLORE_DEADLINE_NS UINT64_C(1000000)

/* X(name, text, needs the network, sentence) */
#define EXPLORE_FAULT_LIST(X)                                                                      \
    X(NONE, "none", 0, "nothing goes wrong")                                                       \
    X(KILL, "kill", 0, "a rank dies, at any operation or named point")                             \
    X(STALL, "stall", 0, "a rank stops, for less or for longer than a deadline")                   \
    X(SLOW, "slow", 0, "a rank's device is 2 to 16 times slower")                                  \
    X(DELAY, "delay", 0, "puts, signals or flags come late")                                       \
    X(DROP, "drop", 1, "puts or signals are lost")                                                 \
    X(DUPLICATE, "duplicate", 1, "puts or signals come twice")                                     \
    X(REORDER, "reorder", 1, "puts or signals come after the next one")                            \
    X(ERROR, "error", 1, "puts or signals fail, the sender is told")                               \
    X(LINK_DOWN, "link_down", 0, "links between two ranks go down and up again")                   \
    X(LINK_SLOW, "link_slow", 0, "links between two ranks lose bandwidth")                         \
    X(ALLOC, "alloc", 0, "a device allocation fails")                                              \
    X(REGISTER, "register", 0, "a window registration fails")                                      \
    X(MIXED, "mixed", 0, "several of these within a budget that leaves survivors")

typedef enum explore_fault {
#define X(name, text, network, sentence) EXPLORE_##name,
    EXPLORE_FAULT_LIST(X)
#undef X
        EXPLORE_FAULT_COUNT
} explore_fault;

const char *explore_fault_name(explore_fault kind);
const char *explore_fault_sentence(explore_fault kind);
/* Kinds that can strike anything: all, or without network peers those of ranks and links. */
uint32_t explore_faults_useful(bool network);

/* Where faults are drawn: operations [setup_ops, horizon_ops) of a rank are the protocol's. */
typedef struct explore_ground {
    uint32_t rank_count;
    uint32_t pass_count; /* how often a point is passed, about */
    bool network;
    uint64_t setup_ops, horizon_ops;
    const char *const *points; /* names of points, NULL at the end */
} explore_ground;

/* Appends one fault, or for some kinds two, that follow from `seed`. */
ist_status explore_faults_draw(ist_fault_plan *plan, explore_fault kind, uint64_t seed,
                               const explore_ground *ground);

/* What a plan explains, as bits of ranks. */
typedef struct explore_blame {
    uint64_t killed;  /* may die */
    uint64_t blamed;  /* may be missed by others, or learn that they are out */
    uint64_t cut;     /* may miss anybody: what comes to them was struck */
    bool setup;       /* opening may fail */
    bool transfers;   /* errors of transfers may be told */
    bool allocations; /* device memory may be short */
} explore_blame;

explore_blame explore_blame_of(const ist_fault_plan *plan, uint32_t rank_count);

#endif
