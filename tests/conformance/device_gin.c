/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: puts carry their bytes, weak signals cover their own put, strong ones all earlier puts of
 * the same context and peer, counters and flushes tell when sources are free. Method: rings of puts
 * of many sizes; only what the contract promises in any order is looked at.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS 100000000u
#define AREA 262144u /* bytes of the window's halves: sources, targets */

static const ist_test_setup setup = {
    .window_bytes = 2 * AREA, .context_count = 3, .signal_count = 5, .counter_count = 2};

/* Without a network there is nothing to test; the simulator always has one. */
static ist_status open_network(ist_world *world, ist_test_rank *test, bool *there)
{
    ist_comm *comm = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT_OK(world, ist_comm_close(comm));
    *there = info.gin_supported != 0;
    EXPECT(world, *there || (!ist_test_on_simulator() && info.gin_reason != NULL));
    return *there ? ist_test_rank_open(world, &setup, test) : IST_OK;
}

static uint8_t source_byte(uint32_t rank, uint64_t at, uint32_t round)
{
    return (uint8_t)(rank * 31u + at * 7u + at / 251u + round * 13u + 1u);
}

typedef struct ring {
    ist_test_rank test;
    uint8_t *host; /* AREA bytes */
    uint32_t next, previous;
    uint32_t round;
    uint64_t raised[3][5]; /* what the own signals have counted so far */
} ring;

static ist_status fill_sources(ring *at)
{
    ist_test_rank *test = &at->test;
    for (uint32_t i = 0; i < AREA; ++i) {
        at->host[i] = source_byte(test->rank, i, at->round);
    }
    EXPECT_OK(test->world, ist_copy_to_device(test->stream, test->memory, at->host, AREA));
    EXPECT_OK(test->world, ist_fill(test->stream, test->memory + AREA, 0, AREA));
    EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
    return IST_OK;
}

static ist_status check_targets(ring *at, uint64_t src_offset, uint64_t dst_offset, uint64_t bytes)
{
    ist_test_rank *test = &at->test;
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, at->host, test->memory + AREA, AREA));
    for (uint64_t i = 0; i < AREA; ++i) {
        bool inside = i >= dst_offset - AREA && i < dst_offset - AREA + bytes;
        uint64_t from = src_offset + i - (dst_offset - AREA);
        uint8_t expected = inside ? source_byte(at->previous, from, at->round) : 0;
        if (at->host[i] != expected) {
            EXPECT_EQUAL(test->world, i, UINT64_MAX); /* names the first wrong byte */
        }
    }
    return IST_OK;
}

/* Runs tk_gin on all ranks towards the next one; signals of `each` a put and `last` in the end. */
static ist_status put_round(ring *at, tk_gin_args args, uint64_t raises)
{
    ist_test_rank *test = &at->test;
    uint64_t out[4] = {0};
    ++at->round;
    IST_TEST_PASS_ON(fill_sources(at));
    at->raised[args.context][args.signal] += raises;
    args.dev = test->dev;
    args.out = (uint64_t *)(void *)test->out;
    args.window = test->window_index;
    args.peer = at->next;
    args.wait_ns = WAIT_NS;
    args.least = at->raised[args.context][args.signal];
    args.what |= TK_GIN_WAIT | TK_GIN_FLUSH;
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_gin, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_test_results(test, out, sizeof(out)));
    EXPECT_EQUAL(test->world, out[0], IST_WAIT_DONE + 1);
    EXPECT_EQUAL(test->world, out[2], IST_WAIT_DONE + 1);
    EXPECT_EQUAL(test->world, out[3], args.least);
    IST_TEST_PASS_ON(check_targets(at, args.src_offset, args.dst_offset, args.count * args.bytes));
    EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
    return IST_OK;
}

static ist_status ring_open(ist_world *world, ring *at, bool *there)
{
    IST_TEST_PASS_ON(open_network(world, &at->test, there));
    if (*there) {
        at->next = (at->test.rank + 1) % at->test.rank_count;
        at->previous = (at->test.rank + at->test.rank_count - 1) % at->test.rank_count;
        at->host = malloc(AREA);
        EXPECT(world, at->host != NULL);
    }
    return IST_OK;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const uint64_t sizes[] = {0, 1, 7, 8, 15, 16, 64, 100, 1000, 4096, 14337};

static ist_status each_put(ring *at)
{
    static const uint32_t actions[] = {IST_GIN_SIGNAL_INC, IST_GIN_WEAK_SIGNAL_INC,
                                       IST_GIN_SIGNAL_ADD, IST_GIN_WEAK_SIGNAL_ADD};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (uint32_t k = 0; k < 4; ++k) {
            tk_gin_args args = {.what = TK_GIN_PUT,
                                .bytes = sizes[i],
                                .count = 1 + i % 9,
                                .src_offset = i * 3,
                                .dst_offset = AREA + i * 5,
                                .value = 1000 + i,
                                .put_action = actions[k],
                                .context = i % 3,
                                .signal = k};
            uint64_t step = k < 2 ? 1 : args.value;
            IST_TEST_PASS_ON(put_round(at, args, step * args.count));
        }
    }
    return IST_OK;
}

/* Silent puts, then one strong signal: it covers them all. */
static ist_status one_signal(ring *at)
{
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        tk_gin_args args = {.what = TK_GIN_PUT | TK_GIN_SIGNAL,
                            .bytes = sizes[i],
                            .count = 16,
                            .dst_offset = AREA,
                            .put_action = IST_GIN_NONE,
                            .signal_action = IST_GIN_SIGNAL_INC,
                            .context = i % 3,
                            .signal = 4};
        IST_TEST_PASS_ON(put_round(at, args, 1));
    }
    return IST_OK;
}

static ist_status puts_main(ist_world *world, void *arg)
{
    ring at = {.round = 0};
    bool there = false;
    (void)arg;
    IST_TEST_PASS_ON(ring_open(world, &at, &there));
    ist_status status = there ? each_put(&at) : IST_OK;
    status = status == IST_OK && there ? one_signal(&at) : status;
    free(at.host);
    IST_TEST_PASS_ON(status);
    return there ? ist_test_rank_close(&at.test, false) : IST_OK;
}

static void puts_arrive_before_the_signals_that_cover_them(void **state)
{
    static const char *const clusters[] = {"4x1", "2x2", "1x4"};
    (void)state;
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); ++i) {
        assert_int_equal(ist_test_run(ist_test_ranks(4), clusters[i], puts_main, NULL), IST_OK);
    }
    assert_int_equal(ist_test_run(1, NULL, puts_main, NULL), IST_OK); /* to itself */
}

static ist_status counters(ist_test_rank *test, tk_gin_args *args, uint64_t *out)
{
    args->dev = test->dev;
    args->out = (uint64_t *)(void *)test->out;
    args->window = test->window_index;
    args->peer = (test->rank + 1) % test->rank_count;
    args->wait_ns = WAIT_NS;
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_gin, 1, args, sizeof(*args)));
    return ist_test_results(test, out, 4 * sizeof(*out));
}

/* Counters count puts that name them; values, signals and counters are apart in each context. */
static ist_status counters_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    uint64_t out[4] = {0}, word = 0;
    bool there = false;
    (void)arg;
    IST_TEST_PASS_ON(open_network(world, &test, &there));
    if (!there) {
        return IST_OK;
    }
    tk_gin_args args = {.what = TK_GIN_PUT | TK_GIN_COUNTER | TK_GIN_VALUE | TK_GIN_WAIT,
                        .bytes = 100,
                        .count = 6,
                        .dst_offset = AREA + 8,
                        .value = 0xfeedfacecafe,
                        .put_action = IST_GIN_WEAK_SIGNAL_INC,
                        .context = 1,
                        .signal = 2,
                        .counter = 1,
                        .least = 7};
    IST_TEST_PASS_ON(counters(&test, &args, out));
    EXPECT_EQUAL(world, out[1], IST_WAIT_DONE + 1);
    EXPECT_EQUAL(world, out[2], IST_WAIT_DONE + 1);
    EXPECT_EQUAL(world, out[3], 7);
    EXPECT_OK(world, ist_copy_to_host(test.stream, &word, test.memory + AREA + 8 + 600, 8));
    EXPECT_EQUAL(world, word, 0xfeedfacecafe);
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    tk_gin_reset_args reset = {.dev = test.dev, .out = (uint64_t *)(void *)test.out};
    for (reset.context = 0; reset.context < 3; ++reset.context) {
        for (reset.signal = 0; reset.signal < 5; ++reset.signal) {
            reset.counter = reset.signal % 2;
            IST_TEST_PASS_ON(
                ist_test_launch(&test, &ist_kernel_tk_gin_reset, 1, &reset, sizeof(reset)));
            IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
            EXPECT_EQUAL(world, out[0], reset.context == 1 && reset.signal == 2 ? 7 : 0);
            EXPECT_EQUAL(world, out[1], 0);
            EXPECT_EQUAL(world, out[2], reset.context == 1 && reset.signal == 1 ? 6 : 0);
            EXPECT_EQUAL(world, out[3], 0);
        }
    }
    return ist_test_rank_close(&test, false);
}

static void counters_count_and_contexts_are_apart(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), "4x1", counters_main, NULL), IST_OK);
    assert_int_equal(ist_test_run(ist_test_ranks(2), "1x2", counters_main, NULL), IST_OK);
}

/* Several blocks and several rounds at once: nothing gets lost. */
static ist_status storm_main(ist_world *world, void *arg)
{
    enum { PUTS = 16 };
    ist_test_rank test;
    uint64_t out[4] = {0};
    bool there = false;
    (void)arg;
    IST_TEST_PASS_ON(open_network(world, &test, &there));
    if (!there) {
        return IST_OK;
    }
    uint32_t blocks = test.info.sm_count < 8 ? test.info.sm_count : 8;
    tk_gin_args args = {.dev = test.dev,
                        .out = (uint64_t *)(void *)test.out,
                        .what = TK_GIN_PUT | TK_GIN_SIGNAL | TK_GIN_FLUSH | TK_GIN_WAIT,
                        .bytes = 64,
                        .count = PUTS,
                        .dst_offset = AREA,
                        .value = 5,
                        .put_action = IST_GIN_SIGNAL_INC,
                        .signal_action = IST_GIN_SIGNAL_ADD,
                        .window = test.window_index,
                        .wait_ns = WAIT_NS};
    for (uint32_t round = 1; round <= 4; ++round) {
        args.peer = (test.rank + round) % test.rank_count;
        args.least = (uint64_t)round * blocks * (PUTS + 5);
        EXPECT_OK(world, ist_launch(test.stream, &ist_kernel_tk_gin, blocks, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
        EXPECT_EQUAL(world, out[0], IST_WAIT_DONE + 1);
        EXPECT_EQUAL(world, out[2], IST_WAIT_DONE + 1);
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    }
    return ist_test_rank_close(&test, false);
}

static void many_blocks_share_a_context(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(3), "3x1", storm_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_arrive_before_the_signals_that_cover_them),
        cmocka_unit_test(counters_count_and_contexts_are_apart),
        cmocka_unit_test(many_blocks_share_a_context),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
