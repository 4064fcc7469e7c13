/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator that is closed while puts of its kernels are on their way. Goal: what was put arrives,
 * nothing lands in memory that is gone, and closing never takes longer than a deadline. Method: kernels
 * that end without waiting for their puts, under many schedules; links that are dead, ranks that die.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3u
#define BYTES 24u
#define DEADLINE_NS 1000000ull

typedef struct closing {
    uint32_t waits;              /* 1: the others wait for what rank 0 puts */
    uint64_t closed_ns[RANKS];   /* how long it took */
    ist_wait_result came[RANKS]; /* with `waits` */
    uint8_t bytes[RANKS][BYTES];
} closing;

typedef struct closing_args {
    const ist_dev_comm *dev;
    ist_wait_result *came;
    uint8_t *bytes;
    uint32_t waits;
    uint32_t reserved;
} closing_args;

/* Rank 0 puts a row and a signal at everybody, and ends. */
IST_KERNEL(close_behind, closing_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_gin_action raise = {.kind = IST_GIN_SIGNAL_ADD, .signal = 0, .value = 1};
    if (dev->rank == 0) {
        ist_row_fill(coop, ist_window_local(coop, dev, 0, 0), 7, BYTES);
        ist_coop_sync(coop);
        for (uint32_t peer = 1; peer < dev->rank_count; ++peer) {
            ist_point(coop, "closing.put");
            ist_gin_put(coop, dev, 0, peer, 0, 64, 0, 0, BYTES, raise, IST_GIN_NO_COUNTER);
        }
    } else if (args->waits) {
        *args->came =
            ist_gin_signal_wait(coop, dev, 0, 0, 1, ist_clock_ns(coop) + 50 * DEADLINE_NS);
        if (*args->came == IST_WAIT_DONE) {
            uint8_t *row = ist_coop_scratch(coop, 0, BYTES);
            ist_row_copy(coop, row, ist_window_local(coop, dev, 0, 64), BYTES);
            memcpy(args->bytes, row, BYTES);
        }
    }
}

static ist_status closing_main(ist_world *world, void *arg)
{
    closing *seen = arg;
    uint32_t rank = ist_world_rank(world);
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1, .deadline_ns = DEADLINE_NS};
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    const ist_dev_comm *dev = NULL;
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm));
    EXPECT_OK(world, ist_stream_open(world, &stream));
    EXPECT_OK(world, ist_dev_comm_open(comm, 128, 1, 1, 0, 0, &dev));
    closing_args args = {
        .dev = dev, .came = &seen->came[rank], .bytes = seen->bytes[rank], .waits = seen->waits};
    EXPECT_OK(world, ist_launch(stream, &ist_kernel_close_behind, 1, &args, sizeof(args)));
    EXPECT_OK(world, ist_stream_sync(stream, 0));
    uint64_t began_ns = ist_world_clock_ns(world);
    EXPECT_OK(world, ist_dev_comm_close(comm, dev));
    seen->closed_ns[rank] = ist_world_clock_ns(world) - began_ns;
    EXPECT_OK(world, ist_stream_close(stream));
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void explore_seeds(closing *seen, const char *scheduler, uint64_t seeds)
{
    ist_explore_desc explore = {.size = sizeof(explore)};
    assert_int_equal(ist_scheduler_parse(scheduler, &explore), IST_OK);
    explore.steps = 150;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        ist_world_desc desc = ist_test_desc(RANKS, "3x1");
        ist_explore_report report = {.size = sizeof(report)};
        desc.seed = ist_test_seed() + seed;
        assert_int_equal(ist_explore_run(&desc, closing_main, seen, &explore, &report), IST_OK);
        if (report.finding_count != 0) {
            fail_msg("seed %llu: %s", (unsigned long long)desc.seed, report.finding.text);
        }
        for (uint32_t rank = 1; seen->waits && rank < RANKS; ++rank) {
            assert_int_equal(seen->came[rank], IST_WAIT_DONE);
            assert_int_equal(seen->bytes[rank][BYTES - 1u], 7);
            memset(seen->bytes[rank], 0, BYTES);
        }
    }
}

static void nothing_lands_when_all_have_closed(void **state)
{
    (void)state;
    closing seen = {.waits = 0};
    explore_seeds(&seen, "random", 300);
    explore_seeds(&seen, "pct:3", 300);
}

static void what_was_put_arrives(void **state)
{
    (void)state;
    closing seen = {.waits = 1};
    explore_seeds(&seen, "random", 300);
    explore_seeds(&seen, "pct:3", 300);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void run_fault(ist_fault fault, closing *seen)
{
    ist_fault_plan *plan = NULL;
    fault.size = sizeof(fault);
    fault.trigger = fault.kind == IST_FAULT_DELAY ? IST_FAULT_AT_OP : IST_FAULT_AT_POINT;
    (void)strcpy(fault.point, fault.kind == IST_FAULT_DELAY ? "" : "closing.put");
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    assert_int_equal(ist_fault_plan_add(plan, &fault), IST_OK);
    ist_world_desc desc = ist_test_desc(RANKS, "3x1");
    desc.faults = plan;
    assert_int_equal(ist_test_run_desc(&desc, closing_main, seen, NULL), IST_OK);
    ist_fault_plan_close(plan);
}

static void a_dead_link_costs_one_deadline(void **state)
{
    (void)state;
    closing seen = {.waits = 0};
    run_fault((ist_fault){.kind = IST_FAULT_LINK_DOWN, .rank = 0, .peer = IST_FAULT_ANY}, &seen);
    assert_in_range(seen.closed_ns[0], DEADLINE_NS - 100000u, DEADLINE_NS + 100000u);
    assert_in_range(seen.closed_ns[1], 0, 100000u);
}

/* It comes up again in time: rank 0 was right to wait. */
static void a_late_link_loses_nothing(void **state)
{
    (void)state;
    closing seen = {.waits = 1};
    run_fault((ist_fault){.kind = IST_FAULT_LINK_DOWN,
                          .rank = 0,
                          .peer = IST_FAULT_ANY,
                          .duration_ns = DEADLINE_NS / 2},
              &seen);
    assert_in_range(seen.closed_ns[0], DEADLINE_NS / 4, DEADLINE_NS);
    assert_int_equal(seen.came[1], IST_WAIT_DONE);
    assert_int_equal(seen.came[2], IST_WAIT_DONE);
}

/* What comes twice, or late, does not come after the queue it was put on was closed. */
static void what_is_delayed_too_long_is_lost(void **state)
{
    (void)state;
    closing seen = {.waits = 1};
    run_fault((ist_fault){.kind = IST_FAULT_DELAY,
                          .rank = 0,
                          .peer = IST_FAULT_ANY,
                          .count = 1,
                          .duration_ns = 20 * DEADLINE_NS},
              &seen);
    assert_in_range(seen.closed_ns[0], DEADLINE_NS - 100000u, DEADLINE_NS + 100000u);
    assert_int_equal(seen.came[1] == IST_WAIT_DONE, 0);
    assert_int_equal(seen.came[2], IST_WAIT_DONE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_lands_when_all_have_closed),
        cmocka_unit_test(what_was_put_arrives),
        cmocka_unit_test(a_dead_link_costs_one_deadline),
        cmocka_unit_test(a_late_link_loses_nothing),
        cmocka_unit_test(what_is_delayed_too_long_is_lost),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
