/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleanup-barrier. Initialisation failed on one rank, which went away; the others, on their way through
 * theirs, waited for it in a barrier of all. Public: openucx/ucc issue 1041.
 *
 * Here: initialisation fails on a rank that is drawn from the seed, or on none. Broken: who has failed
 * closes and leaves, the others enqueue the barrier. Fixed: all tell each other how it went first; if
 * one has failed nobody waits for anybody. Oracle: every rank ends, ready or not, and all alike.
 */
#include "museum.h"

#define RANKS 3u

static bool initialise(const museum_rig *rig)
{
    return museum_draw(rig->run, 0, RANKS + 1u) != rig->rank;
}

/* Whether all are ready: those that are not have split off. */
static ist_status agree(const museum_rig *rig, bool ready, bool *all_ready)
{
    ist_comm *alike = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    IST_TEST_PASS_ON(ist_comm_split(rig->meeting, ready ? 1 : 0, 0, &alike));
    IST_TEST_PASS_ON(ist_comm_query(alike, &info));
    *all_ready = ready && info.rank_count == RANKS;
    return ist_comm_close(alike);
}

static ist_status barrier_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    bool ready = initialise(&rig);
    if (!rig.run->broken) {
        IST_TEST_PASS_ON(agree(&rig, ready, &ready));
        if (ready != (museum_draw(rig.run, 0, RANKS + 1u) == RANKS)) {
            museum_wrong(&rig, "is %sready, others are not alike", ready ? "" : "not ");
        }
    }
    if (ready) {
        IST_TEST_PASS_ON(ist_comm_barrier(rig.comm, rig.stream));
        IST_TEST_PASS_ON(ist_stream_sync(rig.stream, 0));
    }
    return museum_leave(&rig);
}

const museum_piece museum_cleanup_barrier = {
    .name = "cleanup-barrier",
    .address = "openucx/ucc issue 1041",
    .rank_count = RANKS,
    .answers = {{MUSEUM_KIND(DEADLOCK), {"mask_barrier", "waits for words or signals of peers"}}},
    .rank_main = barrier_main,
};
