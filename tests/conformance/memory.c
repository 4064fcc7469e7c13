/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: device memory is aligned, bounded, checked, and returned. Method: allocations of odd sizes
 * with a picture of what is live, wrong frees, peeks and copies at the edges, memory in windows.
 */
#include "ist_test.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 64

typedef struct picture {
    uint8_t *mem[SLOTS];
    size_t bytes[SLOTS];
    uint8_t mark[SLOTS];
} picture;

static ist_status check_marks(ist_test_rank *test, const picture *live, uint32_t slot)
{
    uint8_t first = 0, last = 0;
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, &first, live->mem[slot], 1));
    EXPECT_OK(test->world,
              ist_copy_to_host(test->stream, &last, live->mem[slot] + live->bytes[slot] - 1, 1));
    EXPECT_EQUAL(test->world, first, live->mark[slot]);
    EXPECT_EQUAL(test->world, last, live->mark[slot]);
    return IST_OK;
}

static ist_status place(ist_test_rank *test, picture *live, uint32_t slot, uint64_t *random)
{
    void *mem = NULL;
    size_t bytes = 1 + ist_test_random_below(random, 1u << (4 + ist_test_random_below(random, 14)));
    EXPECT_OK(test->world,
              ist_mem_alloc(test->world, bytes, ist_test_random_below(random, 4), &mem));
    EXPECT_EQUAL(test->world, (uintptr_t)mem % IST_WINDOW_ALIGNMENT, 0);
    for (uint32_t i = 0; i < SLOTS; ++i) {
        uint8_t *other = live->mem[i];
        EXPECT(test->world, other == NULL || other + live->bytes[i] <= (uint8_t *)mem ||
                                (uint8_t *)mem + bytes <= other);
    }
    live->mem[slot] = mem;
    live->bytes[slot] = bytes;
    live->mark[slot] = (uint8_t)ist_test_random(random);
    EXPECT_OK(test->world, ist_fill(test->stream, mem, live->mark[slot], bytes));
    return IST_OK;
}

static ist_status churn_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.no_dev = 1};
    picture *live = calloc(1, sizeof(*live));
    uint64_t random = ist_test_seed() + ist_world_rank(world);
    ist_test_rank test;
    ist_status status = IST_OK;
    (void)arg;
    EXPECT(world, live != NULL);
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (uint32_t i = 0; i < 600 && status == IST_OK; ++i) {
        uint32_t slot = ist_test_random_below(&random, SLOTS);
        if (live->mem[slot] == NULL) {
            status = place(&test, live, slot, &random);
        } else {
            status = check_marks(&test, live, slot);
            status = status == IST_OK ? ist_mem_free(world, live->mem[slot]) : status;
            live->mem[slot] = NULL;
        }
    }
    for (uint32_t i = 0; i < SLOTS && status == IST_OK; ++i) {
        status = live->mem[i] != NULL ? check_marks(&test, live, i) : IST_OK;
        status = status == IST_OK ? ist_mem_free(world, live->mem[i]) : status;
    }
    free(live);
    EXPECT_OK(world, status);
    return ist_test_rank_close(&test, false);
}

static void allocations_are_aligned_apart_and_keep_their_bytes(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, churn_main, NULL), IST_OK);
}

static ist_status refusals_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.no_dev = 1};
    ist_test_rank test;
    void *mem = NULL, *untouched = &test;
    uint8_t host[16] = {0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_REFUSED(world, ist_mem_alloc(world, 0, 0, &untouched), IST_ERR_ARGUMENT, "bytes");
    EXPECT_REFUSED(world, ist_mem_alloc(world, 16, 64, &untouched), IST_ERR_ARGUMENT, "flags");
    EXPECT_REFUSED(world, ist_mem_alloc(world, 16, 0, NULL), IST_ERR_NULL, "mem");
    EXPECT_STATUS(world, ist_mem_alloc(world, (size_t)1 << 60, 0, &untouched), IST_ERR_MEMORY);
    EXPECT_STATUS(world, ist_mem_alloc(world, SIZE_MAX, 0, &untouched), IST_ERR_MEMORY);
    EXPECT_STATUS(world, ist_mem_alloc(world, SIZE_MAX - 5000, 0, &untouched), IST_ERR_MEMORY);
    EXPECT(world, untouched == (void *)&test);

    EXPECT_OK(world, ist_mem_alloc(world, 100, IST_MEM_PLAIN, &mem));
    EXPECT_REFUSED(world, ist_mem_peek(world, mem, host, 4), IST_ERR_ARGUMENT, "mem");
    EXPECT_REFUSED(world, ist_mem_free(world, (uint8_t *)mem + 1), IST_ERR_ARGUMENT, "mem");
    EXPECT_REFUSED(world, ist_mem_free(world, host), IST_ERR_ARGUMENT, "mem");
    EXPECT_REFUSED(world, ist_fill(test.stream, mem, 0, 101), IST_ERR_ARGUMENT, "dst");
    EXPECT_REFUSED(world, ist_fill(test.stream, (uint8_t *)mem - 1, 0, 2), IST_ERR_ARGUMENT, "dst");
    EXPECT_REFUSED(world, ist_copy_to_device(test.stream, host, host, 4), IST_ERR_ARGUMENT, "dst");
    EXPECT_REFUSED(world, ist_copy_to_device(test.stream, mem, host, SIZE_MAX), IST_ERR_ARGUMENT,
                   "dst");
    EXPECT_REFUSED(world, ist_copy_to_host(test.stream, host, (uint8_t *)mem + 90, 16),
                   IST_ERR_ARGUMENT, "src");
    EXPECT_REFUSED(world, ist_copy(test.stream, mem, (uint8_t *)mem + 8, 16), IST_ERR_ARGUMENT,
                   "dst");
    EXPECT_REFUSED(world, ist_copy(test.stream, test.out, host, 16), IST_ERR_ARGUMENT, "src");
    EXPECT_OK(world, ist_copy(test.stream, mem, (uint8_t *)mem + 16, 16));
    EXPECT_OK(world, ist_fill(test.stream, mem, 7, 100));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    EXPECT_OK(world, ist_mem_free(world, mem));
    EXPECT_REFUSED(world, ist_mem_free(world, mem), IST_ERR_ARGUMENT, "mem");
    EXPECT_REFUSED(world, ist_fill(test.stream, mem, 7, 1), IST_ERR_ARGUMENT, "dst");
    EXPECT_OK(world, ist_mem_free(world, NULL));
    return ist_test_rank_close(&test, false);
}

static void wrong_calls_are_refused_and_harm_nothing(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, refusals_main, NULL), IST_OK);
}

static ist_status peek_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.out_bytes = 10000, .no_dev = 1};
    ist_test_rank test;
    uint8_t host[64];
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (uint32_t i = 0; i < sizeof(host); ++i) {
        host[i] = (uint8_t)(i + 1);
    }
    EXPECT_OK(world, ist_copy_to_device(test.stream, test.out + 9936, host, 64));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    memset(host, 0, sizeof(host));
    EXPECT_OK(world, ist_mem_peek(world, test.out + 9936, host, 64));
    EXPECT_EQUAL(world, host[0], 1);
    EXPECT_EQUAL(world, host[63], 64);
    EXPECT_REFUSED(world, ist_mem_peek(world, test.out + 9937, host, 64), IST_ERR_ARGUMENT, "mem");
    EXPECT_REFUSED(world, ist_mem_peek(world, test.out, NULL, 64), IST_ERR_NULL, "host");
    EXPECT_OK(world, ist_mem_peek(world, test.out, NULL, 0));
    return ist_test_rank_close(&test, false);
}

static void host_visible_memory_can_be_peeked(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, peek_main, NULL), IST_OK);
}

/* Takes ever smaller pieces until nothing is left, gives all back, and takes the largest again. */
static ist_status exhaust_main(ist_world *world, void *arg)
{
    enum { PIECES = 4096 };
    void **piece = calloc(PIECES, sizeof(*piece));
    size_t bytes = (size_t)1 << 50, largest = 0;
    uint32_t count = 0;
    (void)arg;
    EXPECT(world, piece != NULL);
    while (bytes >= (size_t)1 << 28 && count < PIECES) {
        ist_status status = ist_mem_alloc(world, bytes, 0, &piece[count]);
        if (status == IST_OK) {
            largest = largest == 0 ? bytes : largest;
            ++count;
        } else {
            EXPECT_STATUS(world, status, IST_ERR_MEMORY);
            bytes /= 2;
        }
    }
    EXPECT(world, count > 0 && count < PIECES);
    for (uint32_t i = 0; i < count; ++i) {
        EXPECT_OK(world, ist_mem_free(world, piece[i]));
    }
    EXPECT_OK(world, ist_mem_alloc(world, largest, 0, &piece[0]));
    EXPECT_OK(world, ist_mem_free(world, piece[0]));
    free(piece);
    return IST_OK;
}

static void memory_that_is_out_comes_back(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, exhaust_main, NULL), IST_OK);
}

static ist_status window_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.window_bytes = 16384, .no_dev = 1};
    ist_test_rank test;
    ist_window *inner = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_REFUSED(world, ist_mem_free(world, test.memory), IST_ERR_USAGE, "mem");
    EXPECT_OK(world, ist_window_open(test.comm, test.memory + 8192, 4096, &inner));
    EXPECT_OK(world, ist_window_close(test.window));
    test.window = NULL;
    EXPECT_REFUSED(world, ist_mem_free(world, test.memory), IST_ERR_USAGE, "mem");
    EXPECT_OK(world, ist_window_close(inner));
    return ist_test_rank_close(&test, false);
}

static void memory_in_a_window_stays(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, window_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_apart_and_keep_their_bytes),
        cmocka_unit_test(wrong_calls_are_refused_and_harm_nothing),
        cmocka_unit_test(host_visible_memory_can_be_peeked),
        cmocka_unit_test(memory_that_is_out_comes_back),
        cmocka_unit_test(memory_in_a_window_stays),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
