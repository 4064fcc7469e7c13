/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of scenarios share: a rank's usual objects, calls whose failures are either
 * explained by the fault plan or told as wrong, meetings, and the invariants over all ranks.
 */
#ifndef EXPLORE_ACTOR_H
#define EXPLORE_ACTOR_H

#include "explore_scenario.h"

/* Ranks that went separate ways meet at multiples of this. */
#define EXPLORE_MEET_NS (80u * EXPLORE_DEADLINE_NS)
/* No run takes longer, whatever its faults. */
#define EXPLORE_END_NS (8u * EXPLORE_MEET_NS)

typedef struct explore_actor {
    explore_run *run;
    explore_seen *seen;
    ist_world *world;
    uint32_t rank, rank_count;
    ist_comm *comm; /* the one with the mask; of the scenario */
    ist_stream *stream;
} explore_actor;

#define EXPLORE_TRY(expression)                                                                    \
    do {                                                                                           \
        ist_status explore_status_ = (expression);                                                 \
        if (explore_status_ != IST_OK) {                                                           \
            return explore_status_;                                                                \
        }                                                                                          \
    } while (0)

/* First call of a rank's program: forgets what an earlier run of it has seen. */
void explore_begin(ist_world *world, void *run, explore_actor *actor);
/* Last call. `status`: how the program went. Returns what the program returns. */
ist_status explore_end(explore_actor *actor, ist_status status);

/* The oracle's words; the first count. */
void explore_wrong(explore_actor *actor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Passes a status on; one that nothing explains is wrong. */
ist_status explore_call(explore_actor *actor, ist_status status, const char *what);
/* What opening returned: the plan may explain it. */
ist_status explore_opened(explore_actor *actor, ist_status status);

static inline bool explore_has(uint64_t set, uint32_t rank)
{
    return (set >> rank & 1u) != 0;
}
static inline uint64_t explore_all(const explore_actor *actor)
{
    return (UINT64_C(1) << actor->rank_count) - 1u;
}

/* Ranks that may be missed: the plan's, and those that could not open and have left. */
uint64_t explore_blamed(const explore_run *run);
/* Whether others may have given this rank up. */
bool explore_may_be_out(const explore_actor *actor);
/* Notes that ranks were missed, or that this rank is out: explore_judge() says whether that may be. */
void explore_missed(explore_actor *actor, uint64_t lost, const char *what);
void explore_evicted(explore_actor *actor, const char *what);
/* Forgets both: a rank was masked by hand, and whoever that took along is back. */
void explore_forget_missed(explore_actor *actor);
/* This rank's mask now; what it lacks counts as missed. */
ist_status explore_look(explore_actor *actor, uint64_t *mask, uint64_t *generation);
/* Asynchronous errors: each names a peer and a status that the plan explains. */
ist_status explore_errors(explore_actor *actor);
/* An agreement or clean has returned `status`: who is in the mask, and whether that may be. */
ist_status explore_met(explore_actor *actor, ist_status status, const char *what);
/* Sleeps until a moment of the virtual clock. */
ist_status explore_sleep_until(explore_actor *actor, uint64_t at_ns);

/* explore_judge.c: invariants over all ranks, after the world. False: `why` says what is broken. */
bool explore_judge(explore_run *run, char *why, size_t why_bytes);

#endif
