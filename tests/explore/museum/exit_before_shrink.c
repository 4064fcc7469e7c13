/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exit-before-shrink. Ranks that were excluded left at once; the survivors shrank the communicator with
 * a call that all its members have to make, and hung there or when they destroyed it. Public:
 * NVIDIA/nccl issue 2397, pytorch/pytorch PR 180611.
 *
 * Here: rank 2 of three is excluded and exits; the others split it off. Broken: they call the split as
 * if all were there. Fixed: they mask rank 2 first, and nobody is waited for. Oracle: the survivors
 * have a communicator of two.
 */
#include "museum.h"

#define EXCLUDED 2u

static ist_status mask_the_excluded(ist_world *world, ist_comm *comm)
{
    uint64_t survivors = (UINT64_C(1) << EXCLUDED) - 1u;
    ist_stream *stream = NULL;
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_comm_mask_update(comm, &survivors, stream));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    return ist_stream_close(stream);
}

static ist_status shrink(museum_rig *rig)
{
    ist_comm *small = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    if (!rig->run->broken) {
        IST_TEST_PASS_ON(mask_the_excluded(rig->world, rig->comm));
    }
    IST_TEST_PASS_ON(ist_comm_split(rig->comm, 0, 0, &small));
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
    if (rig.rank != EXCLUDED) {
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
};
