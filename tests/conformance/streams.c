/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: work on one stream runs in order, streams are ordered by events alone, waiting is bounded.
 * Method: kernels that wait for a gate which another stream opens, and kernels that append to a
 * list, so that every order shows.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <string.h>

#define LIST_AT 0u
#define GATE_AT 65536u
#define RESULT_AT 65544u
#define WAIT_NS 100000000u /* of a gate; nobody waits so long in a good run */

static const ist_test_setup setup = {.out_bytes = 131072, .no_dev = 1};

static uint64_t *word_at(const ist_test_rank *test, size_t at)
{
    return (uint64_t *)(void *)(test->out + at);
}

static ist_status append(ist_test_rank *test, ist_stream *stream, uint64_t value)
{
    tk_append_args args = {.list = word_at(test, LIST_AT), .value = value};
    EXPECT_OK(test->world, ist_launch(stream, &ist_kernel_tk_append, 1, &args, sizeof(args)));
    return IST_OK;
}

static ist_status gate(ist_test_rank *test, ist_stream *stream, uint64_t least, uint64_t wait_ns)
{
    tk_gate_args args = {.word = word_at(test, GATE_AT),
                         .least = least,
                         .wait_ns = wait_ns,
                         .result = word_at(test, RESULT_AT)};
    EXPECT_OK(test->world, ist_launch(stream, &ist_kernel_tk_gate, 1, &args, sizeof(args)));
    return IST_OK;
}

static ist_status open_gate(ist_test_rank *test, ist_stream *stream, uint64_t value)
{
    EXPECT_OK(test->world, ist_copy_to_device(stream, word_at(test, GATE_AT), &value, 8));
    return IST_OK;
}

static ist_status check_list(ist_test_rank *test, const uint64_t *expected, uint32_t count)
{
    uint64_t list[64] = {0};
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, list, test->out, sizeof(list)));
    EXPECT_EQUAL(test->world, list[0], count);
    for (uint32_t i = 0; i < count; ++i) {
        EXPECT_EQUAL(test->world, list[1 + i], expected[i]);
    }
    EXPECT_OK(test->world, ist_fill(test->stream, test->out, 0, sizeof(list)));
    EXPECT_OK(test->world, ist_stream_sync(test->stream, 0));
    return IST_OK;
}

/* ---- one stream ------------------------------------------------------------------------------ */

static ist_status order_main(ist_world *world, void *arg)
{
    uint64_t expected[40], host = 0;
    ist_test_rank test;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (uint32_t i = 0; i < 40; ++i) {
        IST_TEST_PASS_ON(append(&test, test.stream, expected[i] = 100 + i * 3));
    }
    IST_TEST_PASS_ON(check_list(&test, expected, 40));
    /* Copies, fills and kernels together: each sees what the one before wrote. */
    tk_affine_args twice = {
        .to = word_at(&test, 8192), .from = word_at(&test, 4096), .factor = 2, .addend = 1};
    for (uint64_t i = 1; i <= 20; ++i) {
        host = i * 1000;
        EXPECT_OK(world, ist_copy_to_device(test.stream, word_at(&test, 4096), &host, 8));
        host = 0; /* captured by the call */
        EXPECT_OK(world, ist_launch(test.stream, &ist_kernel_tk_affine, 1, &twice, sizeof(twice)));
        EXPECT_OK(world,
                  ist_copy(test.stream, word_at(&test, 12288 + 8 * i), word_at(&test, 8192), 8));
        EXPECT_OK(world, ist_fill(test.stream, word_at(&test, 8192), 0xff, 8));
    }
    uint64_t results[21];
    EXPECT_OK(world,
              ist_copy_to_host(test.stream, results, word_at(&test, 12288), sizeof(results)));
    for (uint64_t i = 1; i <= 20; ++i) {
        EXPECT_EQUAL(world, results[i], i * 2000 + 1);
    }
    return ist_test_rank_close(&test, false);
}

static void one_stream_runs_in_order(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, order_main, NULL), IST_OK);
}

static ist_status query_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_stream *other = NULL;
    uint64_t result = 0;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_stream_open(world, &other));
    EXPECT_STATUS(world, ist_stream_query(test.stream), IST_OK);
    IST_TEST_PASS_ON(gate(&test, test.stream, 1, WAIT_NS));
    EXPECT_STATUS(world, ist_stream_query(test.stream), IST_IN_PROGRESS);
    EXPECT_STATUS(world, ist_stream_sync(test.stream, 1000000), IST_ERR_TIMEOUT);
    EXPECT_STATUS(world, ist_stream_query(test.stream), IST_IN_PROGRESS);
    EXPECT_REFUSED(world, ist_stream_sync(test.stream, 999), IST_ERR_RANGE, "deadline_ns");
    IST_TEST_PASS_ON(open_gate(&test, other, 1));
    EXPECT_OK(world, ist_stream_sync(other, 0));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    EXPECT_STATUS(world, ist_stream_query(test.stream), IST_OK);
    EXPECT_OK(world, ist_mem_peek(world, word_at(&test, RESULT_AT), &result, 8));
    EXPECT_EQUAL(world, result, IST_WAIT_DONE + 1);
    /* Nobody opens: the wait ends by itself, and so does the close that waits for it. */
    IST_TEST_PASS_ON(gate(&test, other, 2, 500000));
    EXPECT_OK(world, ist_stream_close(other));
    EXPECT_OK(world, ist_mem_peek(world, word_at(&test, RESULT_AT), &result, 8));
    EXPECT_EQUAL(world, result, IST_WAIT_TIMEOUT + 1);
    return ist_test_rank_close(&test, false);
}

static void a_busy_stream_says_so_and_waiting_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, query_main, NULL), IST_OK);
}

/* ---- events ---------------------------------------------------------------------------------- */

static ist_status cross_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_stream *stream[3] = {0};
    ist_event *event[3] = {0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (int i = 0; i < 3; ++i) {
        EXPECT_OK(world, ist_stream_open(world, &stream[i]));
        EXPECT_OK(world, ist_event_open(world, &event[i]));
        EXPECT_STATUS(world, ist_event_query(event[i]), IST_OK);
        EXPECT_OK(world, ist_event_sync(event[i], 0));
    }
    /* 1 waits for 0, 2 waits for 1; enqueued in the wrong order as far as possible. */
    for (uint64_t round = 1; round <= 5; ++round) {
        uint64_t expected[3] = {10 * round, 10 * round + 1, 10 * round + 2};
        IST_TEST_PASS_ON(gate(&test, stream[0], round, WAIT_NS));
        IST_TEST_PASS_ON(append(&test, stream[0], expected[0]));
        EXPECT_OK(world, ist_event_record(event[0], stream[0]));
        EXPECT_OK(world, ist_event_wait(event[0], stream[1]));
        IST_TEST_PASS_ON(append(&test, stream[1], expected[1]));
        EXPECT_OK(world, ist_event_record(event[1], stream[1]));
        EXPECT_OK(world, ist_event_wait(event[1], stream[2]));
        IST_TEST_PASS_ON(append(&test, stream[2], expected[2]));
        EXPECT_OK(world, ist_event_record(event[2], stream[2]));
        EXPECT_STATUS(world, ist_event_query(event[2]), IST_IN_PROGRESS);
        EXPECT_STATUS(world, ist_event_sync(event[2], 100000), IST_ERR_TIMEOUT);
        IST_TEST_PASS_ON(open_gate(&test, test.stream, round));
        EXPECT_OK(world, ist_event_sync(event[2], 0));
        EXPECT_STATUS(world, ist_event_query(event[2]), IST_OK);
        IST_TEST_PASS_ON(check_list(&test, expected, 3));
    }
    for (int i = 0; i < 3; ++i) {
        EXPECT_OK(world, ist_event_close(event[i]));
        EXPECT_OK(world, ist_stream_close(stream[i]));
    }
    return ist_test_rank_close(&test, false);
}

static void events_order_streams(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, cross_main, NULL), IST_OK);
}

/* A wait is for the record that was the last when it was enqueued, whatever happens to the event. */
static ist_status record_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_stream *first = NULL, *second = NULL;
    ist_event *event = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_stream_open(world, &first));
    EXPECT_OK(world, ist_stream_open(world, &second));
    EXPECT_OK(world, ist_event_open(world, &event));
    EXPECT_OK(world, ist_event_wait(event, second)); /* not recorded: no wait */
    EXPECT_OK(world, ist_event_record(event, first));
    EXPECT_OK(world, ist_event_wait(event, second));
    IST_TEST_PASS_ON(gate(&test, first, 1, WAIT_NS));
    EXPECT_OK(world, ist_event_record(event, first));
    EXPECT_OK(world, ist_stream_sync(second, 0)); /* waited for the first record alone */
    EXPECT_OK(world, ist_event_wait(event, second));
    IST_TEST_PASS_ON(append(&test, second, 5));
    EXPECT_STATUS(world, ist_stream_sync(second, 100000), IST_ERR_TIMEOUT);
    EXPECT_OK(world, ist_event_close(event)); /* the wait stays */
    EXPECT_STATUS(world, ist_stream_query(second), IST_IN_PROGRESS);
    IST_TEST_PASS_ON(open_gate(&test, test.stream, 1));
    EXPECT_OK(world, ist_stream_sync(second, 0));
    EXPECT_OK(world, ist_stream_close(first));
    EXPECT_OK(world, ist_stream_close(second));
    IST_TEST_PASS_ON(check_list(&test, (const uint64_t[]){5}, 1));
    return ist_test_rank_close(&test, false);
}

static void a_wait_is_for_the_last_record(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, record_main, NULL), IST_OK);
}

static ist_status elapsed_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_event *start = NULL, *middle = NULL, *end = NULL;
    uint64_t whole = 0, part = 0, untouched = 42;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_event_open(world, &start));
    EXPECT_OK(world, ist_event_open(world, &middle));
    EXPECT_OK(world, ist_event_open(world, &end));
    EXPECT_STATUS(world, ist_event_elapsed(start, end, &untouched), IST_ERR_USAGE);
    EXPECT_OK(world, ist_event_record(start, test.stream));
    IST_TEST_PASS_ON(gate(&test, test.stream, 9, 200000));
    EXPECT_OK(world, ist_event_record(middle, test.stream));
    IST_TEST_PASS_ON(gate(&test, test.stream, 9, 300000));
    EXPECT_OK(world, ist_event_record(end, test.stream));
    EXPECT_STATUS(world, ist_event_elapsed(start, end, &untouched), IST_ERR_USAGE);
    EXPECT_EQUAL(world, untouched, 42);
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    EXPECT_OK(world, ist_event_elapsed(start, end, &whole));
    EXPECT_OK(world, ist_event_elapsed(start, middle, &part));
    EXPECT(world, part >= 200000 && whole >= part + 300000 && whole < 1000000000);
    EXPECT_REFUSED(world, ist_event_elapsed(start, end, NULL), IST_ERR_NULL, "elapsed_ns");
    EXPECT_OK(world, ist_event_close(start));
    EXPECT_OK(world, ist_event_close(middle));
    EXPECT_OK(world, ist_event_close(end));
    EXPECT_OK(world, ist_event_close(NULL));
    EXPECT_OK(world, ist_stream_close(NULL));
    return ist_test_rank_close(&test, false);
}

static void elapsed_time_is_between_reached_events(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, elapsed_main, NULL), IST_OK);
}

/* ---- time of the host ------------------------------------------------------------------------ */

static ist_status clock_main(ist_world *world, void *arg)
{
    (void)arg;
    uint64_t began = ist_world_clock_ns(world);
    EXPECT_OK(world, ist_world_sleep(world, 3000000));
    uint64_t ended = ist_world_clock_ns(world);
    EXPECT(world, ended >= began + 3000000);
    EXPECT_OK(world, ist_world_sleep(world, 0));
    EXPECT(world, ist_world_clock_ns(world) >= ended);
    return IST_OK;
}

static void sleeping_passes_time(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(3), NULL, clock_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stream_runs_in_order),
        cmocka_unit_test(a_busy_stream_says_so_and_waiting_is_bounded),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(a_wait_is_for_the_last_record),
        cmocka_unit_test(elapsed_time_is_between_reached_events),
        cmocka_unit_test(sleeping_passes_time),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
