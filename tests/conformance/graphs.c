/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: captured work runs when launched, any number of times, in the captured order, and what
 * goes wrong in a capture leaves the stream usable. Method: lists that kernels append to, chains
 * whose result shows the order, and gates that hold a replay.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <string.h>

#define GATE_AT 65536u
#define RESULT_AT 65544u
#define WORDS_AT 4096u

static const ist_test_setup setup = {.out_bytes = 131072, .no_dev = 1};

static uint64_t *word_at(const ist_test_rank *test, size_t at)
{
    return (uint64_t *)(void *)(test->out + at);
}

static ist_status append(ist_test_rank *test, ist_stream *stream, uint64_t value)
{
    tk_append_args args = {.list = word_at(test, 0), .value = value};
    EXPECT_OK(test->world, ist_launch(stream, &ist_kernel_tk_append, 1, &args, sizeof(args)));
    return IST_OK;
}

static ist_status affine(ist_test_rank *test, ist_stream *stream, uint32_t to, uint32_t from,
                         uint64_t factor, uint64_t addend)
{
    tk_affine_args args = {.to = word_at(test, WORDS_AT + 8 * to),
                           .from = word_at(test, WORDS_AT + 8 * from),
                           .factor = factor,
                           .addend = addend};
    EXPECT_OK(test->world, ist_launch(stream, &ist_kernel_tk_affine, 1, &args, sizeof(args)));
    return IST_OK;
}

static ist_status read_word(ist_test_rank *test, size_t at, uint64_t *value)
{
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, value, test->out + at, 8));
    return IST_OK;
}

static ist_status expect_list(ist_test_rank *test, const uint64_t *expected, uint32_t count)
{
    uint64_t list[256] = {0};
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, list, test->out, sizeof(list)));
    EXPECT_EQUAL(test->world, list[0], count);
    for (uint32_t i = 0; i < count; ++i) {
        EXPECT_EQUAL(test->world, list[1 + i], expected[i]);
    }
    EXPECT_OK(test->world, ist_fill(test->stream, test->out, 0, sizeof(list)));
    return IST_OK;
}

/* ---- capture and replay ---------------------------------------------------------------------- */

static ist_status replay_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_graph *graph = NULL;
    uint64_t host = 1000, value = 0;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_graph_begin(test.stream));
    IST_TEST_PASS_ON(append(&test, test.stream, 7));
    EXPECT_OK(world, ist_copy_to_device(test.stream, word_at(&test, WORDS_AT), &host, 8));
    IST_TEST_PASS_ON(affine(&test, test.stream, 1, 0, 3, 1));
    EXPECT_OK(world, ist_copy(test.stream, word_at(&test, WORDS_AT + 16),
                              word_at(&test, WORDS_AT + 8), 8));
    EXPECT_OK(world, ist_fill(test.stream, word_at(&test, WORDS_AT + 8), 0xff, 8));
    IST_TEST_PASS_ON(append(&test, test.stream, 8));
    EXPECT_OK(world, ist_graph_end(test.stream, &graph));
    host = 5; /* the bytes are the graph's */
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    IST_TEST_PASS_ON(expect_list(&test, NULL, 0)); /* nothing ran yet */

    uint64_t expected[100];
    for (uint32_t i = 0; i < 50; ++i) {
        EXPECT_OK(world, ist_graph_launch(graph, test.stream));
        expected[2 * i] = 7;
        expected[2 * i + 1] = 8;
    }
    EXPECT_OK(world, ist_graph_close(graph)); /* launches already enqueued still run */
    IST_TEST_PASS_ON(expect_list(&test, expected, 100));
    IST_TEST_PASS_ON(read_word(&test, WORDS_AT + 16, &value));
    EXPECT_EQUAL(world, value, 3001);
    IST_TEST_PASS_ON(read_word(&test, WORDS_AT + 8, &value));
    EXPECT_EQUAL(world, value, UINT64_MAX);
    return ist_test_rank_close(&test, false);
}

static void a_graph_replays_what_was_captured(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, replay_main, NULL), IST_OK);
}

/* Barriers inside a graph: peers replay together. */
static ist_status barrier_main(ist_world *world, void *arg)
{
    static const ist_test_setup with_window = {.window_bytes = 4096, .out_bytes = 131072};
    ist_test_rank test;
    ist_graph *graph = NULL;
    uint64_t expected[60];
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &with_window, &test));
    EXPECT_OK(world, ist_graph_begin(test.stream));
    IST_TEST_PASS_ON(append(&test, test.stream, 1));
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    IST_TEST_PASS_ON(append(&test, test.stream, 2));
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    EXPECT_OK(world, ist_graph_end(test.stream, &graph));
    for (uint32_t i = 0; i < 30; ++i) {
        EXPECT_OK(world, ist_graph_launch(graph, test.stream));
        expected[2 * i] = 1;
        expected[2 * i + 1] = 2;
    }
    IST_TEST_PASS_ON(expect_list(&test, expected, 60));
    EXPECT_OK(world, ist_comm_status(test.comm));
    EXPECT_OK(world, ist_graph_close(graph));
    return ist_test_rank_close(&test, false);
}

static void barriers_are_captured(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), "2x2", barrier_main, NULL), IST_OK);
}

/* ---- fork and join --------------------------------------------------------------------------- */

typedef struct forked {
    ist_stream *side[2];
    ist_event *fork, *join[2];
    ist_graph *graph;
} forked;

static ist_status open_forked(ist_test_rank *test, forked *f)
{
    ist_world *world = test->world;
    memset(f, 0, sizeof(*f));
    EXPECT_OK(world, ist_event_open(world, &f->fork));
    for (int i = 0; i < 2; ++i) {
        EXPECT_OK(world, ist_stream_open(world, &f->side[i]));
        EXPECT_OK(world, ist_event_open(world, &f->join[i]));
    }
    return IST_OK;
}

static ist_status close_forked(ist_test_rank *test, forked *f)
{
    ist_world *world = test->world;
    EXPECT_OK(world, ist_event_close(f->fork));
    for (int i = 0; i < 2; ++i) {
        EXPECT_OK(world, ist_stream_close(f->side[i]));
        EXPECT_OK(world, ist_event_close(f->join[i]));
    }
    EXPECT_OK(world, ist_graph_close(f->graph));
    return IST_OK;
}

/* words: 1 = 10 w0 + 1, 2 = 10 w0 + 2 (sides), 3 = w1 * 1, then w0 = 1 + w1 + … by chain. */
static ist_status capture_forked(ist_test_rank *test, forked *f)
{
    ist_world *world = test->world;
    EXPECT_OK(world, ist_graph_begin(test->stream));
    IST_TEST_PASS_ON(affine(test, test->stream, 0, 0, 3, 1));
    EXPECT_OK(world, ist_event_record(f->fork, test->stream));
    for (uint32_t i = 0; i < 2; ++i) {
        EXPECT_OK(world, ist_event_wait(f->fork, f->side[i]));
        IST_TEST_PASS_ON(affine(test, f->side[i], 1 + i, 0, 10, 1 + i));
        EXPECT_OK(world, ist_event_record(f->join[i], f->side[i]));
        EXPECT_OK(world, ist_event_wait(f->join[i], test->stream));
    }
    IST_TEST_PASS_ON(affine(test, test->stream, 3, 1, 1, 5));
    IST_TEST_PASS_ON(affine(test, test->stream, 0, 2, 1, 7));
    EXPECT_OK(world, ist_graph_end(test->stream, &f->graph));
    return IST_OK;
}

static ist_status fork_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    forked f;
    uint64_t words[4] = {1, 0, 0, 0}, model[4] = {1, 0, 0, 0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    IST_TEST_PASS_ON(open_forked(&test, &f));
    EXPECT_OK(world, ist_copy_to_device(test.stream, word_at(&test, WORDS_AT), words, 32));
    IST_TEST_PASS_ON(capture_forked(&test, &f));
    /* The side streams are free again, and not part of the graph. */
    IST_TEST_PASS_ON(append(&test, f.side[0], 5));
    EXPECT_OK(world, ist_stream_sync(f.side[0], 0));
    for (uint32_t i = 0; i < 9; ++i) {
        ist_stream *stream = i % 3 == 2 ? f.side[1] : test.stream;
        EXPECT_OK(world, ist_graph_launch(f.graph, stream));
        model[0] = model[0] * 3 + 1;
        model[1] = model[0] * 10 + 1;
        model[2] = model[0] * 10 + 2;
        model[3] = model[1] + 5;
        model[0] = model[2] + 7;
        if (i % 3 != 0) {
            EXPECT_OK(world, ist_stream_sync(stream, 0));
        }
    }
    EXPECT_OK(world, ist_stream_sync(f.side[1], 0));
    EXPECT_OK(world, ist_copy_to_host(test.stream, words, word_at(&test, WORDS_AT), 32));
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQUAL(world, words[i], model[i]);
    }
    IST_TEST_PASS_ON(expect_list(&test, (const uint64_t[]){5}, 1));
    /* Events of a capture that is over order nothing any more. */
    EXPECT_OK(world, ist_graph_close(f.graph));
    f.graph = NULL;
    EXPECT_OK(world, ist_event_wait(f.fork, f.side[0]));
    EXPECT_OK(world, ist_event_record(f.fork, f.side[0]));
    EXPECT_OK(world, ist_event_wait(f.fork, test.stream));
    EXPECT_OK(world, ist_event_sync(f.fork, 0));
    IST_TEST_PASS_ON(close_forked(&test, &f));
    return ist_test_rank_close(&test, false);
}

static void streams_fork_and_join_inside_a_capture(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, fork_main, NULL), IST_OK);
}

/* Two launches of one graph on two streams run one after the other, in the order of the calls. */
static ist_status two_streams_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    forked f;
    uint64_t words[4] = {1, 0, 0, 0}, open = 1;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    IST_TEST_PASS_ON(open_forked(&test, &f));
    EXPECT_OK(world, ist_copy_to_device(test.stream, word_at(&test, WORDS_AT), words, 32));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    IST_TEST_PASS_ON(capture_forked(&test, &f));
    tk_gate_args gate = {.word = word_at(&test, GATE_AT),
                         .least = 1,
                         .wait_ns = 100000000,
                         .result = word_at(&test, RESULT_AT)};
    EXPECT_OK(world, ist_launch(test.stream, &ist_kernel_tk_gate, 1, &gate, sizeof(gate)));
    EXPECT_OK(world, ist_graph_launch(f.graph, test.stream));
    EXPECT_OK(world, ist_graph_launch(f.graph, f.side[0]));
    EXPECT_STATUS(world, ist_stream_sync(f.side[0], 1000000), IST_ERR_TIMEOUT);
    EXPECT_OK(world, ist_copy_to_device(f.side[1], word_at(&test, GATE_AT), &open, 8));
    EXPECT_OK(world, ist_stream_sync(f.side[0], 0));
    EXPECT_OK(world, ist_copy_to_host(test.stream, words, word_at(&test, WORDS_AT), 32));
    EXPECT_EQUAL(world, words[0], (((1 * 3 + 1) * 10 + 2 + 7) * 3 + 1) * 10 + 2 + 7);
    IST_TEST_PASS_ON(close_forked(&test, &f));
    return ist_test_rank_close(&test, false);
}

static void launches_of_one_graph_run_in_turn(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, two_streams_main, NULL), IST_OK);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* After a capture that failed, everything works as if it had not been. */
static ist_status check_usable(ist_test_rank *test, ist_stream *other)
{
    ist_world *world = test->world;
    ist_graph *graph = NULL;
    IST_TEST_PASS_ON(append(test, test->stream, 1));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    IST_TEST_PASS_ON(append(test, other, 2));
    EXPECT_OK(world, ist_stream_sync(other, 0));
    EXPECT_OK(world, ist_graph_begin(test->stream));
    IST_TEST_PASS_ON(append(test, test->stream, 3));
    EXPECT_OK(world, ist_graph_end(test->stream, &graph));
    EXPECT_OK(world, ist_graph_launch(graph, test->stream));
    IST_TEST_PASS_ON(expect_list(test, (const uint64_t[]){1, 2, 3}, 3));
    EXPECT_OK(world, ist_graph_close(graph));
    return IST_OK;
}

static ist_status unjoined(ist_test_rank *test, forked *f, int how)
{
    ist_world *world = test->world;
    ist_graph *untouched = (ist_graph *)(void *)test;
    EXPECT_OK(world, ist_graph_begin(test->stream));
    IST_TEST_PASS_ON(append(test, test->stream, 9));
    EXPECT_OK(world, ist_event_record(f->fork, test->stream));
    EXPECT_OK(world, ist_event_wait(f->fork, f->side[0]));
    IST_TEST_PASS_ON(append(test, f->side[0], 9));
    if (how >= 1) { /* recorded, but the origin does not wait */
        EXPECT_OK(world, ist_event_record(f->join[0], f->side[0]));
    }
    if (how == 2) { /* joined, then more work */
        EXPECT_OK(world, ist_event_wait(f->join[0], test->stream));
        IST_TEST_PASS_ON(append(test, f->side[0], 9));
    }
    if (how == 3) { /* joined to a side stream that is not joined itself */
        EXPECT_OK(world, ist_event_wait(f->join[0], f->side[1]));
    }
    EXPECT_STATUS(world, ist_graph_end(test->stream, &untouched), IST_ERR_USAGE);
    EXPECT(world, untouched == (ist_graph *)(void *)test);
    IST_TEST_PASS_ON(expect_list(test, NULL, 0));
    IST_TEST_PASS_ON(check_usable(test, f->side[0]));
    return check_usable(test, f->side[1]);
}

static ist_status unjoined_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    forked f;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    IST_TEST_PASS_ON(open_forked(&test, &f));
    for (int how = 0; how < 4; ++how) {
        IST_TEST_PASS_ON(unjoined(&test, &f, how));
    }
    IST_TEST_PASS_ON(close_forked(&test, &f));
    return ist_test_rank_close(&test, false);
}

static void a_stream_that_is_not_joined_back_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, unjoined_main, NULL), IST_OK);
}

static ist_status refused_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    forked f;
    uint64_t host = 3;
    ist_graph *graph = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    IST_TEST_PASS_ON(open_forked(&test, &f));
    EXPECT_REFUSED(world, ist_graph_end(test.stream, &graph), IST_ERR_USAGE, "stream");
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_REFUSED(world, ist_graph_begin(test.stream), IST_ERR_USAGE, "stream");
    EXPECT_REFUSED(world, ist_graph_begin(f.side[0]), IST_ERR_USAGE, "stream");
    EXPECT_REFUSED(world, ist_graph_end(f.side[0], &graph), IST_ERR_USAGE, "stream");
    EXPECT_REFUSED(world, ist_copy_to_host(test.stream, &host, test.out, 8), IST_ERR_USAGE,
                   "stream");
    EXPECT_REFUSED(world, ist_stream_sync(test.stream, 0), IST_ERR_USAGE, "stream");
    EXPECT_REFUSED(world, ist_copy_to_device(test.stream, &host, &host, 8), IST_ERR_ARGUMENT,
                   "dst");
    /* Other streams work meanwhile, and a refused call does not spoil the capture. */
    IST_TEST_PASS_ON(append(&test, f.side[0], 4));
    EXPECT_OK(world, ist_stream_sync(f.side[0], 0));
    IST_TEST_PASS_ON(append(&test, test.stream, 5));
    EXPECT_OK(world, ist_event_record(f.fork, test.stream));
    EXPECT_REFUSED(world, ist_event_sync(f.fork, 0), IST_ERR_USAGE, "event");
    EXPECT_OK(world, ist_graph_end(test.stream, &graph));
    EXPECT_OK(world, ist_graph_launch(graph, test.stream));
    IST_TEST_PASS_ON(expect_list(&test, (const uint64_t[]){4, 5}, 2));
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_REFUSED(world, ist_graph_launch(graph, test.stream), IST_ERR_USAGE, "stream");
    EXPECT_OK(world, ist_graph_end(test.stream, &f.graph));
    EXPECT_OK(world, ist_graph_close(f.graph));
    f.graph = NULL;
    EXPECT_OK(world, ist_graph_close(graph));
    EXPECT_REFUSED(world, ist_graph_launch(graph, test.stream), IST_ERR_OBJECT, "graph");
    EXPECT_REFUSED(world, ist_graph_end(test.stream, NULL), IST_ERR_USAGE, "stream");
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_REFUSED(world, ist_graph_end(test.stream, NULL), IST_ERR_NULL, "graph");
    IST_TEST_PASS_ON(check_usable(&test, f.side[0]));
    /* A stream of a capture is closed: the capture is gone, nothing hangs. */
    EXPECT_OK(world, ist_graph_begin(f.side[0]));
    EXPECT_OK(world, ist_event_record(f.fork, f.side[0]));
    EXPECT_OK(world, ist_event_wait(f.fork, f.side[1]));
    IST_TEST_PASS_ON(append(&test, f.side[1], 9));
    EXPECT_OK(world, ist_stream_close(f.side[0]));
    f.side[0] = NULL;
    IST_TEST_PASS_ON(check_usable(&test, f.side[1]));
    IST_TEST_PASS_ON(close_forked(&test, &f));
    return ist_test_rank_close(&test, false);
}

static void refused_calls_do_not_spoil_a_capture(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, refused_main, NULL), IST_OK);
}

/* A wait in a capture for work outside of it cannot be captured. */
static ist_status outside_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    forked f;
    ist_graph *graph = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    IST_TEST_PASS_ON(open_forked(&test, &f));
    EXPECT_OK(world, ist_event_record(f.fork, f.side[0]));
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_STATUS(world, ist_event_wait(f.fork, test.stream), IST_ERR_USAGE);
    IST_TEST_PASS_ON(ist_test_true(world, ist_graph_end(test.stream, &graph) < 0,
                                   "a broken capture cannot end well", __FILE__, __LINE__));
    EXPECT(world, graph == NULL);
    IST_TEST_PASS_ON(check_usable(&test, f.side[0]));
    /* An empty graph is a graph. */
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_OK(world, ist_graph_end(test.stream, &f.graph));
    EXPECT_OK(world, ist_graph_launch(f.graph, test.stream));
    EXPECT_OK(world, ist_graph_launch(f.graph, f.side[0]));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    IST_TEST_PASS_ON(close_forked(&test, &f));
    return ist_test_rank_close(&test, false);
}

static void a_capture_cannot_wait_for_work_outside(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, outside_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_replays_what_was_captured),
        cmocka_unit_test(barriers_are_captured),
        cmocka_unit_test(streams_fork_and_join_inside_a_capture),
        cmocka_unit_test(launches_of_one_graph_run_in_turn),
        cmocka_unit_test(a_stream_that_is_not_joined_back_is_an_error),
        cmocka_unit_test(refused_calls_do_not_spoil_a_capture),
        cmocka_unit_test(a_capture_cannot_wait_for_work_outside),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
