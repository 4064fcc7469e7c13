/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exit-before-shrink. Ranks that were excluded left at once; the survivors shrank the communicator with
 * a call that all its members have to make, and hung there or when they destroyed it. Public:
 * NVIDIA/nccl issue 2397, pytorch/pytorch PR 180611.
 *
 * Here: rank 2 of three is excluded, the others split off without it. Broken: it leaves at once. Fixed:
 * it takes part in the split, as one that gets no communicator, and leaves then. Oracle: the survivors
 * have a communicator of two, and everybody ends.
 */
#include "museum.h"

#define EXCLUDED 2u

static ist_status shrink(museum_rig *rig)
{
    ist_comm *small = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    IST_TEST_PASS_ON(ist_comm_split(rig->comm, rig->rank == EXCLUDED ? -1 : 0, 0, &small));
    if (rig->rank == EXCLUDED) {
        return IST_OK;
    }
    IST_TEST_PASS_ON(ist_comm_query(small, &info));
    if (info.rank_count != EXCLUDED) {
        museum_wrong(rig, "%u ranks are left", info.rank_count);
    }
    return ist_comm_close(small);
}

static ist_status shrink_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    if (rig.rank != EXCLUDED || !rig.run->broken) {
        IST_TEST_PASS_ON(shrink(&rig));
    }
    return museum_leave(&rig);
}

const museum_piece museum_exit_before_shrink = {
    .name = "exit-before-shrink",
    .address = "NVIDIA/nccl issue 2397, pytorch/pytorch PR 180611",
    .rank_count = EXCLUDED + 1u,
    .answers = {{MUSEUM_KIND(DEADLOCK), {"program waits for a collective call of: rank 2"}}},
    .rank_main = shrink_main,
    .always = 1,
};
