/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a window opens on all ranks or on none, has one number everywhere, and its arithmetic is
 * exact. Method: one rank's call is wrong in each possible way while its peers' are right; offsets
 * against plain pointer arithmetic.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <string.h>

#define RANKS 4u

/* What ranks tell each other through the program's own memory. */
typedef struct shared {
    uint32_t index[RANKS][64];
} shared;

static const ist_test_setup setup = {.no_dev = 1};

/* ---- all or none ----------------------------------------------------------------------------- */

typedef struct wrong_call {
    ist_status status; /* on the rank that is wrong; its peers get IST_ERR_MISMATCH */
    const char *object;
    int how;
} wrong_call;

static const wrong_call wrong_calls[] = {
    {IST_ERR_ALIGNMENT, "mem", 0}, {IST_ERR_NULL, "mem", 1},     {IST_ERR_ARGUMENT, "bytes", 2},
    {IST_ERR_ARGUMENT, "mem", 3},  {IST_ERR_ARGUMENT, "mem", 4}, {IST_ERR_NULL, "window", 5},
    {IST_ERR_ARGUMENT, "mem", 6},
};

static ist_status call_wrongly(ist_test_rank *test, uint8_t *mem, int how, ist_window **window)
{
    switch (how) {
    case 0: return ist_window_open(test->comm, mem + 64, 4096, window);
    case 1: return ist_window_open(test->comm, NULL, 4096, window);
    case 2: return ist_window_open(test->comm, mem, 0, window);
    case 3: return ist_window_open(test->comm, mem, 8193, window);
    case 4: return ist_window_open(test->comm, test->out, 4096, window); /* not symmetric */
    case 5: return ist_window_open(test->comm, mem, 4096, NULL);
    default: return ist_window_open(test->comm, mem + 8192, 4096, window);
    }
}

static ist_status all_or_none_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    void *mem = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &mem));
    for (uint32_t i = 0; i < sizeof(wrong_calls) / sizeof(wrong_calls[0]); ++i) {
        ist_window *untouched = (ist_window *)(void *)&test, *window = untouched;
        if (test.rank == i % test.rank_count) {
            EXPECT_REFUSED(world, call_wrongly(&test, mem, wrong_calls[i].how, &window),
                           wrong_calls[i].status, wrong_calls[i].object);
        } else {
            ist_error error = {.size = sizeof(error)};
            EXPECT_STATUS(world, ist_window_open(test.comm, mem, 8192, &window), IST_ERR_MISMATCH);
            EXPECT_OK(world, ist_error_last(&error));
            EXPECT_EQUAL(world, error.peer, i % test.rank_count);
        }
        EXPECT(world, window == untouched);
        EXPECT_OK(world, ist_window_open(test.comm, mem, 8192, &window));
        EXPECT(world, window != untouched && window != NULL);
        EXPECT_OK(world, ist_window_close(window));
    }
    EXPECT_OK(world, ist_mem_free(world, mem));
    return ist_test_rank_close(&test, false);
}

static void a_window_opens_everywhere_or_nowhere(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, all_or_none_main, NULL), IST_OK);
}

/* ---- places ---------------------------------------------------------------------------------- */

static ist_status check_places(ist_world *world, ist_window *window, uint8_t *mem, uint64_t bytes)
{
    uint64_t random = ist_test_seed();
    for (uint32_t i = 0; i < 200; ++i) {
        uint64_t at = ist_test_random(&random) % (bytes + 3), offset = 77;
        uint64_t length = ist_test_random(&random) % (bytes + 3);
        void *address = NULL;
        ist_status status = ist_window_address(window, at, length, &address);
        if (at > bytes || length > bytes - at) {
            EXPECT_STATUS(world, status, IST_ERR_RANGE);
            EXPECT(world, address == NULL);
            continue;
        }
        EXPECT_OK(world, status);
        EXPECT(world, address == (void *)(mem + at));
        if (at < bytes) {
            EXPECT_OK(world, ist_window_offset(window, address, &offset));
            EXPECT_EQUAL(world, offset, at);
        }
    }
    uint64_t untouched = 77;
    void *nowhere = NULL;
    EXPECT_STATUS(world, ist_window_offset(window, mem + bytes + 1, &untouched), IST_ERR_RANGE);
    EXPECT_STATUS(world, ist_window_offset(window, mem - 1, &untouched), IST_ERR_RANGE);
    EXPECT_STATUS(world, ist_window_address(window, UINT64_MAX, 1, &nowhere), IST_ERR_RANGE);
    EXPECT_STATUS(world, ist_window_address(window, 1, UINT64_MAX, &nowhere), IST_ERR_RANGE);
    EXPECT_OK(world, ist_window_address(window, 0, bytes, &nowhere));
    EXPECT_EQUAL(world, untouched, 77);
    return IST_OK;
}

static ist_status places_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_window *window = NULL;
    void *mem = NULL, *nowhere = NULL;
    uint64_t offset = 0;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    uint64_t bytes = 5000 + 4096u * test.rank; /* may differ between ranks */
    EXPECT_OK(world, ist_mem_alloc(world, 32768, IST_MEM_SYMMETRIC, &mem));
    uint8_t *start = (uint8_t *)mem + 4096;
    EXPECT_OK(world, ist_window_open(test.comm, start, bytes, &window));
    EXPECT_EQUAL(world, ist_window_bytes(window), bytes);
    IST_TEST_PASS_ON(check_places(world, window, start, bytes));
    EXPECT_REFUSED(world, ist_window_address(window, 0, 0, NULL), IST_ERR_NULL, "address");
    EXPECT_REFUSED(world, ist_window_offset(window, start, NULL), IST_ERR_NULL, "offset");
    EXPECT_REFUSED(world, ist_comm_close(test.comm), IST_ERR_USAGE, "comm");
    EXPECT_OK(world, ist_window_close(window));
    EXPECT_EQUAL(world, ist_window_bytes(window), 0);
    EXPECT_REFUSED(world, ist_window_address(window, 0, 0, &nowhere), IST_ERR_OBJECT, "window");
    EXPECT_REFUSED(world, ist_window_offset(window, start, &offset), IST_ERR_OBJECT, "window");
    EXPECT_REFUSED(world, ist_window_close(window), IST_ERR_OBJECT, "window");
    EXPECT_OK(world, ist_window_close(NULL));
    EXPECT_OK(world, ist_mem_free(world, mem));
    return ist_test_rank_close(&test, false);
}

static void places_are_exact(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, places_main, NULL), IST_OK);
}

/* ---- sizes that differ ----------------------------------------------------------------------- */

/* On the rank with the largest window, whose own addresses are there for every offset. */
static ist_status check_reach(ist_test_rank *test, uint32_t window)
{
    uint64_t out[RANKS + 1] = {0};
    uint32_t first = test->rank - test->info.lsa_rank;
    for (uint32_t pages = 0; pages < test->rank_count; ++pages) {
        tk_address_args args = {.dev = test->dev,
                                .out = (uint64_t *)(void *)test->out,
                                .offset = 4096u * pages + 5u,
                                .window = window};
        IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_address, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(test, out, sizeof(out)));
        for (uint32_t peer = 0; peer < test->rank_count; ++peer) {
            EXPECT_EQUAL(test->world, out[peer], peer >= first && peer >= pages);
        }
    }
    return IST_OK;
}

static ist_status sizes_main(ist_world *world, void *arg)
{
    static const ist_test_setup with_dev = {.window_bytes = 4096};
    ist_test_rank test;
    ist_window *window = NULL;
    void *mem = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &with_dev, &test));
    EXPECT_OK(world, ist_mem_alloc(world, 4096 * RANKS, IST_MEM_SYMMETRIC, &mem));
    EXPECT_OK(world, ist_window_open(test.comm, mem, 4096u * (test.rank + 1), &window));
    if (test.rank + 1 == test.rank_count) {
        IST_TEST_PASS_ON(check_reach(&test, ist_window_index(window)));
    }
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    EXPECT_OK(world, ist_window_close(window));
    EXPECT_OK(world, ist_mem_free(world, mem));
    return ist_test_rank_close(&test, false);
}

static void addresses_end_where_the_peers_window_ends(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, sizes_main, NULL), IST_OK);
    if (ist_test_has_cluster("2x2")) {
        assert_int_equal(ist_test_run(ist_test_ranks(RANKS), "2x2", sizes_main, NULL), IST_OK);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

static ist_status numbers_main(ist_world *world, void *arg)
{
    static const ist_test_setup with_dev = {.window_bytes = 4096};
    shared *all = arg;
    ist_test_rank test;
    ist_window *window[64] = {0};
    void *mem = NULL;
    uint64_t out[RANKS] = {0};
    IST_TEST_PASS_ON(ist_test_rank_open(world, &with_dev, &test));
    EXPECT_OK(world, ist_mem_alloc(world, 64 * 4096, IST_MEM_SYMMETRIC, &mem));
    for (uint32_t i = 0; i < 64; ++i) {
        EXPECT_OK(world, ist_window_open(test.comm, (uint8_t *)mem + 4096 * i, 4096, &window[i]));
        all->index[test.rank][i] = ist_window_index(window[i]);
        EXPECT(world, all->index[test.rank][i] != 0);
    }
    /* The device communicator was there before; it knows the windows all the same. */
    for (uint32_t i = 0; i < 64; i += 21) {
        tk_address_args args = {.dev = test.dev,
                                .out = (uint64_t *)(void *)test.out,
                                .offset = 4095,
                                .window = ist_window_index(window[i])};
        IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_address, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
        EXPECT_EQUAL(world, out[test.rank], 1);
    }
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    for (uint32_t i = 0; i < 64; ++i) {
        EXPECT_OK(world, ist_window_close(window[(i * 37) % 64]));
    }
    EXPECT_OK(world, ist_mem_free(world, mem));
    return ist_test_rank_close(&test, false);
}

static void numbers_are_equal_on_all_ranks_and_distinct(void **state)
{
    static shared all;
    (void)state;
    uint32_t ranks = ist_test_ranks(RANKS);
    assert_int_equal(ist_test_run(ranks, "2x2", numbers_main, &all), IST_OK);
    for (uint32_t i = 0; i < 64; ++i) {
        for (uint32_t rank = 1; rank < ranks; ++rank) {
            assert_int_equal(all.index[rank][i], all.index[0][i]);
        }
        for (uint32_t j = 0; j < i; ++j) {
            assert_int_not_equal(all.index[0][i], all.index[0][j]);
        }
    }
}

static ist_status again_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    void *mem = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_mem_alloc(world, 4096, IST_MEM_SYMMETRIC, &mem));
    for (uint32_t i = 0; i < 1000; ++i) {
        ist_window *window = NULL;
        EXPECT_OK(world, ist_window_open(test.comm, mem, 4096, &window));
        EXPECT_OK(world, ist_window_close(window));
    }
    EXPECT_OK(world, ist_mem_free(world, mem));
    return ist_test_rank_close(&test, false);
}

static void registering_again_and_again_works(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, again_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_opens_everywhere_or_nowhere),
        cmocka_unit_test(places_are_exact),
        cmocka_unit_test(addresses_end_where_the_peers_window_ends),
        cmocka_unit_test(numbers_are_equal_on_all_ranks_and_distinct),
        cmocka_unit_test(registering_again_and_again_works),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
