/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ragged-deregister. An allocator freed its segments when their work had ended, which is at another step
 * on every rank; freeing deregisters, and deregistering was collective: ranks met in different calls.
 * Public: pytorch/pytorch PR 192279.
 *
 * Here: two ranks open a window for a new segment in each step, fill it, and free the segments that an
 * event says are done. Broken: freeing meets the peers. Fixed: it closes the window locally. Oracle: the
 * programs agree on their collective calls.
 */
#include "museum.h"

#define STEPS 3u
#define SEGMENT 4096u

typedef struct segment {
    void *memory; /* NULL: freed */
    ist_window *window;
    ist_event *done;
} segment;

static ist_status segment_open(const museum_rig *rig, segment *made)
{
    IST_TEST_PASS_ON(ist_mem_alloc(rig->world, SEGMENT, IST_MEM_SYMMETRIC, &made->memory));
    IST_TEST_PASS_ON(ist_window_open(rig->comm, made->memory, SEGMENT, &made->window));
    IST_TEST_PASS_ON(ist_event_open(rig->world, &made->done));
    IST_TEST_PASS_ON(ist_fill(rig->stream, made->memory, 1, SEGMENT));
    return ist_event_record(made->done, rig->stream);
}

static ist_status segment_free(const museum_rig *rig, segment *old)
{
    if (rig->run->broken) { /* all are here, so nobody uses the window any more */
        const ist_dev_comm *dev = NULL;
        IST_TEST_PASS_ON(ist_dev_comm_open(rig->comm, 0, 0, 0, 0, 0, &dev));
        IST_TEST_PASS_ON(ist_dev_comm_close(rig->comm, dev));
    }
    IST_TEST_PASS_ON(ist_window_close(old->window));
    IST_TEST_PASS_ON(ist_mem_free(rig->world, old->memory));
    old->memory = NULL;
    return ist_event_close(old->done);
}

static ist_status free_what_is_done(const museum_rig *rig, segment *segments, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (segments[i].memory != NULL && ist_event_query(segments[i].done) == IST_OK) {
            IST_TEST_PASS_ON(segment_free(rig, &segments[i]));
        }
    }
    return IST_OK;
}

static ist_status ragged_main(ist_world *world, void *run)
{
    museum_rig rig;
    segment segments[STEPS];
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    for (uint32_t i = 0; i < STEPS; ++i) {
        IST_TEST_PASS_ON(segment_open(&rig, &segments[i]));
        IST_TEST_PASS_ON(free_what_is_done(&rig, segments, i + 1u));
    }
    IST_TEST_PASS_ON(ist_stream_sync(rig.stream, 0));
    IST_TEST_PASS_ON(free_what_is_done(&rig, segments, STEPS));
    return museum_close(&rig);
}

const museum_piece museum_ragged_deregister = {
    .name = "ragged-deregister",
    .address = "pytorch/pytorch PR 192279",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(DISAGREE), {"collective call", "rank 0 ", "rank 1 "}}},
    .rank_main = ragged_main,
};
