/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that dies anywhere in the reduced combine is missed, named, and gone on without; no
 * output that is presented as complete has a wrong byte, nobody waits for ever. Method: the drill of
 * the strict combine; every rank is killed at every named point, and at every operation of the device;
 * a second one dies while the first is missed. `--every N` takes every Nth operation.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <stdio.h>

static uint32_t every = 1;

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 6,
                               .topk = 3,
                               .tokens_max = 3,
                               .hidden = 8,
                               .dtype = IST_F32,
                               .layout = IST_EP_EXPERT_MAJOR,
                               .order = IST_EP_COMBINE_REDUCED,
                               .masked_permille = 50};

static const char *const points[] = {
    "ep.reduced.begin",   "ep.reduced.written", "ep.reduced.sent",
    "ep.reduced.ready",   "ep.reduced.pushed",  "ep.reduced.reported",
    "ep.reduced.decided", "ep.reduced.summed",  "ep.reduced.ended",
};

static ep_drill drill_of(uint32_t blocks, uint32_t staged)
{
    ep_drill drill = {.shape = usual,
                      .cluster = "1x4",
                      .lane = {.staged = staged, .windows = blocks % 4},
                      .block_count_max = blocks};
    /* A block is started for 16 KiB of rows. */
    drill.shape.hidden = blocks == 1 ? 8 : 2048;
    drill.shape.seed = ist_test_seed();
    return drill;
}

static ist_fault kill_of(uint32_t rank, uint64_t nth, const char *point)
{
    ist_fault fault =
        ist_test_fault_at(IST_FAULT_KILL, (int32_t)rank, point != NULL ? point : "", nth);
    fault.trigger = point != NULL ? IST_FAULT_AT_POINT : IST_FAULT_AT_OP;
    return fault;
}

/* Kills a rank at its nth, nth + step, … operation, or pass of the point, until that is not reached. */
static uint32_t kill_rank(const ep_drill *drill, uint32_t rank, const char *point, uint32_t step,
                          uint32_t *failures)
{
    uint32_t cases = 0;
    bool hit = true;
    for (uint64_t nth = 1 + (point == NULL ? rank % step : 0); hit; nth += step) {
        ist_fault fault = kill_of(rank, nth, point);
        *failures += ep_drill_survives(drill, &fault, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    return cases;
}

static void a_rank_dies_at_any_point(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 4; ++i) {
        ep_drill drill = drill_of(1 + i, i % 2 * 2);
        assert_true(ep_drill_init(&drill));
        for (size_t j = 0; j < sizeof(points) / sizeof(*points); ++j) {
            for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
                uint32_t hits = kill_rank(&drill, rank, points[j], 1, &failures);
                if (hits == 0) {
                    printf("# %s was never passed\n", points[j]);
                    ++failures;
                }
                cases += hits;
            }
        }
        ep_drill_fini(&drill);
    }
    printf("# %u kills at points, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

static void a_rank_dies_at_any_operation(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 3; ++i) {
        ep_drill drill = drill_of(1 + i, i);
        assert_true(ep_drill_init(&drill));
        for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
            cases += kill_rank(&drill, rank, NULL, every, &failures);
        }
        ep_drill_fini(&drill);
    }
    printf("# %u kills at operations, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

/* ---- who is missing -------------------------------------------------------------------------------- */

/* An operation in which all went well does not ask who is missing, and why. */
static void nobody_is_missing(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t blocks = 1; blocks < 4; ++blocks) {
        ep_drill drill = drill_of(blocks, 0);
        assert_true(ep_drill_init(&drill));
        for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
            bool hit = true;
            ist_fault fault = kill_of(rank, 1, "ep.reduced.missing");
            failures += ep_drill_survives(&drill, &fault, &hit) && !hit ? 0 : 1;
        }
        ep_drill_fini(&drill);
    }
    assert_int_equal(failures, 0);
}

/* A rank dies while it finds out who is missing, as another one does. */
static void a_rank_dies_over_another(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t blocks = 1; blocks < 4; ++blocks) {
        ep_drill drill = drill_of(blocks, blocks % 2 * 2);
        assert_true(ep_drill_init(&drill));
        for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
            uint32_t other = (rank + blocks) % drill.shape.rank_count;
            ist_fault first = kill_of(other, 1, "ep.reduced.begin");
            ist_fault second = kill_of(rank, 1, "ep.reduced.missing");
            ist_fault_plan *plan = ep_drill_plan(&first);
            ep_drill_run run;
            assert_non_null(plan);
            assert_int_equal(ist_fault_plan_add(plan, &second), IST_OK);
            ep_drill_run_once(&drill, plan, &run);
            if (run.result.lost_count != 2 ||
                !ep_drill_is_survived(&run, UINT64_C(1) << rank | UINT64_C(1) << other)) {
                ep_drill_tell(&run, plan);
                ++failures;
            }
            ist_fault_plan_close(plan);
        }
        ep_drill_fini(&drill);
    }
    assert_int_equal(failures, 0);
}

/* ---- without a mask ------------------------------------------------------------------------------ */

static bool fails_cleanly(ep_drill_run *run, uint32_t victim)
{
    if (!ep_drill_is_safe(run, UINT64_C(1) << victim)) {
        return false;
    }
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        const ep_step *step = &run->ranks[rank].step[0];
        for (uint32_t op = 0; op < 2; ++op) {
            ist_status status = step->record[op].status;
            if (step->ran[op] && status != IST_OK && status != IST_ERR_TIMEOUT) {
                snprintf(run->why, sizeof(run->why), "rank %u: record %u has status %s", rank, op,
                         ist_status_name(status));
                return false;
            }
        }
    }
    return true;
}

static void a_rank_dies_where_nobody_has_a_mask(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 2; ++i) {
        ep_drill drill = drill_of(1 + i, 0);
        drill.no_mask = 1;
        assert_true(ep_drill_init(&drill));
        for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
            bool hit = true;
            for (uint64_t op = 1 + rank % every; hit; op += every) {
                ep_drill_run run;
                ist_fault fault = kill_of(rank, op, NULL);
                ist_fault_plan *plan = ep_drill_plan(&fault);
                ep_drill_run_once(&drill, plan, &run);
                hit = run.result.lost_count != 0;
                if (!fails_cleanly(&run, rank)) {
                    ep_drill_tell(&run, plan);
                    ++failures;
                }
                cases += hit;
                ist_fault_plan_close(plan);
            }
        }
        ep_drill_fini(&drill);
    }
    printf("# without a mask: %u kills, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_dies_at_any_point),
        cmocka_unit_test(a_rank_dies_at_any_operation),
        cmocka_unit_test(nobody_is_missing),
        cmocka_unit_test(a_rank_dies_over_another),
        cmocka_unit_test(a_rank_dies_where_nobody_has_a_mask),
    };
    ist_test_init(argc, argv);
    every = ist_test_option(argc, argv, "--every", every);
    every = every == 0 ? 1 : every;
    return cmocka_run_group_tests_name("ep reduced kill", tests, NULL, NULL);
}
