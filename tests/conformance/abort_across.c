/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a communicator can be aborted from outside while its owner's program blocks on it. Method:
 * rank 0 waits for peers that never come, in a kernel and in a collective call; the program of
 * rank 1 aborts for it, and rank 0 must be free long before its deadline.
 */
#include "ist_test.h"

#include <cmocka.h>

#define DEADLINE_NS UINT64_C(2000000000)
#define SLEEP_NS UINT64_C(1000000)

typedef struct shared {
    ist_comm *owned; /* rank 0's */
    bool collective; /* it blocks in a call, not for a stream */
} shared;

static ist_status wait_for_nobody(ist_world *world, const shared *all, ist_stream *stream)
{
    ist_comm *split = NULL;
    uint64_t began = ist_world_clock_ns(world);
    if (all->collective) {
        EXPECT_STATUS(world, ist_comm_split(all->owned, 0, 0, &split), IST_ERR_ABORTED);
    } else {
        EXPECT_OK(world, ist_comm_barrier(all->owned, stream));
        EXPECT_OK(world, ist_stream_sync(stream, 0));
    }
    EXPECT(world, ist_world_clock_ns(world) - began < DEADLINE_NS / 2);
    EXPECT_STATUS(world, ist_comm_status(all->owned), IST_ERR_ABORTED);
    return IST_OK;
}

static ist_status across_main(ist_world *world, void *arg)
{
    shared *all = arg;
    uint32_t rank = ist_world_rank(world);
    ist_comm *comm = NULL, *meeting = NULL;
    ist_stream *stream = NULL;
    ist_comm_desc desc = {.size = sizeof(desc), .deadline_ns = DEADLINE_NS};
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm));
    EXPECT_OK(world, ist_comm_open(world, &desc, &meeting));
    EXPECT_OK(world, ist_stream_open(world, &stream));
    if (rank == 0) {
        all->owned = comm;
    }
    EXPECT_OK(world, ist_comm_barrier(meeting, stream));
    EXPECT_OK(world, ist_stream_sync(stream, 0));
    if (rank == 0) {
        IST_TEST_PASS_ON(wait_for_nobody(world, all, stream));
    } else if (rank == 1) {
        EXPECT_OK(world, ist_world_sleep(world, SLEEP_NS));
        EXPECT_OK(world, ist_comm_abort(all->owned));
    }
    EXPECT_OK(world, ist_comm_barrier(meeting, stream));
    EXPECT_OK(world, ist_stream_sync(stream, 0));
    EXPECT_OK(world, ist_stream_close(stream));
    EXPECT_OK(world, ist_comm_close(meeting));
    return ist_comm_close(comm);
}

static void abort_frees_a_waiting_stream(void **state)
{
    shared all = {0};
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, across_main, &all), IST_OK);
}

static void abort_frees_a_collective_call(void **state)
{
    shared all = {.collective = true};
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, across_main, &all), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_frees_a_waiting_stream),
        cmocka_unit_test(abort_frees_a_collective_call),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
