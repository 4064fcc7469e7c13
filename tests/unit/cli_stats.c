/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: mean, least, median and 99th percentile of the command's times are what their definitions say.
 * Method: small lists worked out by hand, and random ones against counting.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cli_stats.h"

static uint64_t state = 7;

static uint64_t next(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}

static void test_by_hand(void **unused)
{
    (void)unused;
    uint64_t one[] = {5};
    uint64_t four[] = {40, 10, 30, 20};
    cli_stats stats;
    cli_stats_make(one, 1, &stats);
    assert_true(stats.mean == 5 && stats.min == 5 && stats.median == 5 && stats.p99 == 5);
    cli_stats_make(four, 4, &stats);
    assert_true(stats.mean == 25 && stats.min == 10 && stats.median == 25 && stats.p99 == 40);
    cli_stats_make(four, 3, &stats);
    assert_true(stats.median == 20 && stats.p99 == 30);
    cli_stats_make(NULL, 0, &stats);
    assert_true(stats.mean == 0 && stats.min == 0 && stats.median == 0 && stats.p99 == 0);
}

/* Of 1 … 200 in any order, 198 is the smallest that 99 % do not exceed. */
static void test_percentile(void **unused)
{
    (void)unused;
    uint64_t samples[200];
    cli_stats stats;
    for (uint64_t i = 0; i < 200; ++i) {
        samples[i] = (i * 77) % 200 + 1;
    }
    cli_stats_make(samples, 200, &stats);
    assert_true(stats.p99 == 198 && stats.min == 1 && stats.median == 100.5);
}

static void test_random(void **unused)
{
    (void)unused;
    for (uint32_t count = 1; count < 300; ++count) {
        uint64_t samples[300];
        cli_stats stats;
        uint32_t within = 0;
        uint32_t below = 0;
        for (uint32_t i = 0; i < count; ++i) {
            samples[i] = next() % 50;
        }
        cli_stats_make(samples, count, &stats);
        for (uint32_t i = 0; i < count; ++i) {
            within += (double)samples[i] <= stats.p99;
            below += (double)samples[i] < stats.p99;
        }
        assert_true(within * 100 >= count * 99);
        assert_true(below * 100 < count * 99);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_percentile),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
