/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of all ranks together, whatever the schedule and the faults were: who was not killed
 * came to its end, in bounded time; nobody is missed whom the plan does not explain; ranks that met
 * hold one mask. A rank that lives and is put out takes along who has already used what it sent
 * (kernels/kernel_wire.h): then more may be missed than the plan names.
 */
#include "explore_actor.h"

#include <inttypes.h>
#include <stdio.h>

#define BROKEN(...)                                                                                \
    do {                                                                                           \
        (void)snprintf(why, why_bytes, __VA_ARGS__);                                               \
        return false;                                                                              \
    } while (0)

static bool came_to_its_end(const explore_run *run, uint32_t rank, char *why, size_t why_bytes)
{
    const explore_seen *seen = &run->seen[rank];
    if (!seen->ended && !explore_has(run->blame.killed, rank)) {
        BROKEN("rank %u did not come to its end, and no fault kills it", rank);
    }
    if (seen->why[0] != '\0') {
        BROKEN("%s", seen->why);
    }
    if (seen->ended && seen->end_ns > EXPLORE_END_NS) {
        BROKEN("rank %u ended at %" PRIu64 " ns: some wait was not bounded", rank, seen->end_ns);
    }
    return true;
}

static uint64_t may_be_missed(const explore_run *run)
{
    uint64_t blamed = explore_blamed(run);
    for (uint32_t rank = 0; rank < run->numbers.ranks; ++rank) {
        if (explore_has(blamed, rank) && run->seen[rank].evicted) {
            return (UINT64_C(1) << run->numbers.ranks) - 1u;
        }
    }
    return blamed;
}

static bool misses_with_reason(const explore_run *run, uint32_t rank, char *why, size_t why_bytes)
{
    const explore_seen *seen = &run->seen[rank];
    uint64_t allowed = may_be_missed(run);
    bool any = explore_has(run->blame.cut, rank) || !seen->ended;
    uint64_t strange = any ? 0 : seen->lost & ~allowed;
    if (strange != 0) {
        BROKEN("rank %u: %s misses ranks 0x%" PRIx64 ", the plan explains 0x%" PRIx64, rank,
               seen->lost_by, strange, allowed);
    }
    if (seen->evicted && seen->ended && !explore_has(allowed, rank)) {
        BROKEN("rank %u: %s says that it is out, the plan explains 0x%" PRIx64, rank, seen->out_by,
               allowed);
    }
    return true;
}

/* Without a path between them two halves may each go on, and a rank that comes too late to a meeting is
   alone; else who met holds what the others hold. */
static bool hold_one_mask(const explore_run *run, uint32_t one, uint32_t other, char *why,
                          size_t why_bytes)
{
    const explore_seen *a = &run->seen[one];
    const explore_seen *b = &run->seen[other];
    bool apart = !explore_has(a->mask, other) && !explore_has(b->mask, one);
    if (!a->met || !b->met || a->meeting != b->meeting || run->blame.cut != 0 || apart) {
        return true;
    }
    uint64_t later = a->met_loosely || b->met_loosely ? run->blame.blamed : 0;
    if (((a->mask ^ b->mask) & ~later) != 0 || a->generation != b->generation) {
        BROKEN("ranks %u and %u met, and hold masks 0x%" PRIx64 " and 0x%" PRIx64
               ", generations %" PRIu64 " and %" PRIu64,
               one, other, a->mask, b->mask, a->generation, b->generation);
    }
    return true;
}

bool explore_judge(explore_run *run, char *why, size_t why_bytes)
{
    for (uint32_t rank = 0; rank < run->numbers.ranks; ++rank) {
        if (!came_to_its_end(run, rank, why, why_bytes) ||
            !misses_with_reason(run, rank, why, why_bytes)) {
            return false;
        }
        for (uint32_t other = 0; other < rank; ++other) {
            if (!hold_one_mask(run, rank, other, why, why_bytes)) {
                return false;
            }
        }
    }
    return true;
}
