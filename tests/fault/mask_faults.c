/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank was told, and what it was not, decides about it, and nothing that an earlier call
 * has left. A flag that is lost costs its sender a deadline, not the bound of a wait; who leaves a view
 * hears it from each rank that lets it go; a clean takes nothing from the one before. Method: one fault
 * each, on ranks that share memory and on ranks that do not.
 */
#include "ist_test.h"

#include <cmocka.h>

#define RANKS 3u
#define DEADLINE_NS 1000000u
#define APART_NS (100ull * DEADLINE_NS)

static const char *const clusters[] = {"1x3", "3x1"};
#define CLUSTERS 2u

typedef struct scene {
    ist_status status[RANKS];
    uint64_t word[RANKS];
    uint64_t took_ns[RANKS];
    ist_error first[RANKS]; /* of the recorded errors */
} scene;

static ist_status open_masked(ist_world *world, ist_test_rank *test)
{
    const ist_test_setup setup = {.fault_tolerant = 1, .no_dev = 1, .deadline_ns = DEADLINE_NS};
    return ist_test_rank_open(world, &setup, test);
}

/* Notes mask and first error. */
static ist_status look(ist_test_rank *test, scene *at)
{
    ist_mask mask = {.size = sizeof(mask), .words = &at->word[test->rank], .word_count = 1};
    ist_error *error = &at->first[test->rank];
    uint32_t count = 0;
    EXPECT_OK(test->world, ist_comm_mask_query(test->comm, &mask));
    EXPECT_OK(test->world, ist_comm_error_get(test->comm, 0, &count, NULL));
    *error = (ist_error){.size = sizeof(*error)};
    if (count > 0) {
        EXPECT_OK(test->world, ist_comm_error_get(test->comm, 0, &count, error));
    }
    return IST_OK;
}

/* Runs with one fault; what a rank expects holds. */
static ist_status run(const char *cluster, const ist_fault *fault, ist_rank_fn rank_main, scene *at)
{
    ist_world_desc desc = ist_test_desc(RANKS, cluster);
    ist_world_result result = {.size = sizeof(result)};
    ist_fault_plan *plan = NULL;
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    assert_int_equal(ist_fault_plan_add(plan, fault), IST_OK);
    desc.faults = plan;
    ist_status status = ist_test_run_desc(&desc, rank_main, at, &result);
    ist_fault_plan_close(plan);
    return status;
}

/* ---- a flag that is lost ----------------------------------------------------------------------- */

/* Whoever lost nothing waits for rank 1 in the next barrier already, and says so. */
static ist_status lost_flag_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    IST_TEST_PASS_ON(open_masked(world, &test));
    uint64_t began_ns = ist_world_clock_ns(world);
    for (uint32_t i = 0; i < 2; ++i) {
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
        EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    }
    at->took_ns[test.rank] = ist_world_clock_ns(world) - began_ns;
    IST_TEST_PASS_ON(look(&test, at));
    EXPECT_OK(world, ist_world_sleep(world, APART_NS));
    return ist_test_rank_close(&test, true);
}

static void who_waits_further_on_has_sent_all(void **state)
{
    ist_fault fault = ist_test_fault_at(IST_FAULT_DROP, 0, "mask.barrier.begin", 2);
    scene at = {0};
    (void)state;
    fault.peer = 1;
    fault.classes = IST_FAULT_SIGNALS;
    assert_int_equal(run("3x1", &fault, lost_flag_main, &at), IST_OK);
    assert_int_equal(at.first[1].status, IST_ERR_TIMEOUT);
    assert_int_equal(at.first[1].peer, 0);
    assert_true(at.first[1].waited_ns < 2u * DEADLINE_NS);
    assert_int_equal(at.word[1], 6);
    assert_int_equal(at.word[2] & 6u, 6);
    assert_true(at.took_ns[1] < 4u * DEADLINE_NS);
    assert_true(at.took_ns[2] < 4u * DEADLINE_NS);
}

/* ---- who leaves a view ------------------------------------------------------------------------- */

/* Rank 0 lets rank 2 go, which cannot hear it from there. */
static ist_status unheard_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    uint64_t without = 3;
    IST_TEST_PASS_ON(open_masked(world, &test));
    if (test.rank == 0) {
        EXPECT_OK(world, ist_comm_mask_update(test.comm, &without, test.stream));
    }
    at->status[test.rank] = ist_comm_agree(test.comm, test.stream);
    IST_TEST_PASS_ON(look(&test, at));
    EXPECT_OK(world, ist_world_sleep(world, APART_NS));
    return ist_test_rank_close(&test, true);
}

static void who_leaves_hears_it_from_all(void **state)
{
    ist_fault fault = ist_test_fault_at(IST_FAULT_DROP, 0, "mask.agree.begin", 1);
    scene at = {0};
    (void)state;
    fault.peer = 2;
    fault.classes = IST_FAULT_PUTS;
    fault.count = 1000;
    assert_int_equal(run("3x1", &fault, unheard_main, &at), IST_OK);
    assert_int_equal(at.status[0], IST_OK);
    assert_int_equal(at.status[1], IST_OK);
    assert_int_equal(at.status[2], IST_ERR_EVICTED);
    assert_int_equal(at.word[0], 3);
    assert_int_equal(at.word[1], 3);
}

/* ---- one clean after another ------------------------------------------------------------------- */

static ist_status cleans_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    IST_TEST_PASS_ON(open_masked(world, &test));
    for (uint32_t i = 0; i < 2; ++i) {
        at->status[test.rank] = ist_comm_clean(test.comm, test.stream);
    }
    IST_TEST_PASS_ON(look(&test, at));
    EXPECT_OK(world, ist_world_sleep(world, APART_NS));
    return ist_test_rank_close(&test, true);
}

static void a_clean_takes_nothing_from_the_last(void **state)
{
    static const char *const points[] = {"mask.clean.begin", "mask.clean.reset"};
    (void)state;
    for (uint32_t i = 0; i < CLUSTERS * 2u; ++i) {
        ist_fault fault = ist_test_fault_at(IST_FAULT_KILL, 2, points[i / CLUSTERS], 2);
        scene at = {0};
        (void)run(clusters[i % CLUSTERS], &fault, cleans_main, &at);
        for (uint32_t rank = 0; rank < 2; ++rank) {
            assert_int_equal(at.status[rank], IST_INCOMPLETE);
            assert_int_equal(at.word[rank], 3);
        }
    }
}

/* Nobody leaves a barrier before the last has come to it, whatever barriers were before the clean. */
static ist_status barriers_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    IST_TEST_PASS_ON(open_masked(world, &test));
    for (uint32_t i = 0; i < 4; ++i) {
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    }
    EXPECT_OK(world, ist_comm_clean(test.comm, test.stream));
    for (uint32_t i = 0; i < 6; ++i) {
        uint64_t began_ns = ist_world_clock_ns(world);
        if (test.rank == 0) {
            EXPECT_OK(world, ist_world_sleep(world, DEADLINE_NS / 8u));
        }
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
        EXPECT_OK(world, ist_stream_sync(test.stream, 0));
        EXPECT(world, ist_world_clock_ns(world) - began_ns >= DEADLINE_NS / 16u);
    }
    IST_TEST_PASS_ON(look(&test, at));
    EXPECT_EQUAL(world, at->word[test.rank], 7);
    return ist_test_rank_close(&test, false);
}

static void barriers_after_a_clean_wait(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < CLUSTERS; ++c) {
        scene at = {0};
        assert_int_equal(ist_test_run(RANKS, clusters[c], barriers_main, &at), IST_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_further_on_has_sent_all),
        cmocka_unit_test(who_leaves_hears_it_from_all),
        cmocka_unit_test(a_clean_takes_nothing_from_the_last),
        cmocka_unit_test(barriers_after_a_clean_wait),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("mask faults", tests, NULL, NULL);
}
