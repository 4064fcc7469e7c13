/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever dies, wherever: survivors finish in bounded time, records are true, no wrong byte is
 * presented as complete, survivors agree and go on exactly. Method: kill every rank at every
 * operation index until the kill is no longer hit; and at every named point of the kernels.
 * `--every N` takes every Nth index; `--wide 1` runs larger worlds and operands in windows too.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t every = 1;
static uint32_t wide;

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 6,
                               .topk = 2,
                               .tokens_max = 3,
                               .hidden = 8,
                               .dtype = IST_F32,
                               .masked_permille = 50};

static const char *const clusters[] = {"1x4", "2x2", "4x1"};

/* Kills one rank at its operations first, first + every, … */
static uint32_t kill_one(const ep_drill *drill, uint32_t rank, uint32_t first, uint32_t *failures)
{
    uint32_t cases = 0;
    bool hit = true;
    for (uint64_t op = first; hit; op += every) {
        ist_fault fault = {.size = sizeof(fault),
                           .kind = IST_FAULT_KILL,
                           .trigger = IST_FAULT_AT_OP,
                           .rank = (int32_t)rank,
                           .peer = IST_FAULT_ANY,
                           .at_op = op};
        *failures += ep_drill_survives(drill, &fault, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    return cases;
}

static uint32_t kill_everywhere(const ep_drill *given)
{
    ep_drill drill = *given;
    uint32_t cases = 0, failures = 0;
    drill.shape.seed = ist_test_seed();
    assert_true(ep_drill_init(&drill));
    for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
        cases += kill_one(&drill, rank, 1 + (rank + (uint32_t)ist_test_seed()) % every, &failures);
    }
    ep_drill_fini(&drill);
    printf("# %s, %s, windows %u, %u blocks at most: %u kills, %u failed\n", drill.cluster,
           drill.shape.layout == IST_EP_EXPERT_MAJOR ? "EXPERT_MAJOR" : "RANK_MAJOR",
           drill.lane.windows, drill.block_count_max, cases, failures);
    return failures;
}

static void a_rank_dies_at_any_operation(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 3 * 2; ++i) {
        ep_drill drill = {.shape = usual,
                          .cluster = clusters[i / 2],
                          .lane = {.staged = i / 2},
                          .block_count_max = 1 + (i / 2 + i) % 2};
        drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        failures += kill_everywhere(&drill);
    }
    assert_int_equal(failures, 0);
}

static void a_rank_dies_in_a_larger_world(void **state)
{
    static const char *const large[] = {"2x4", "8x1", "4x2", "1x8"};
    uint32_t failures = 0;
    (void)state;
    if (wide == 0) {
        skip();
    }
    for (uint32_t i = 0; i < 4 * 2 * 4; ++i) {
        ep_drill drill = {.shape = usual,
                          .cluster = large[i / 8],
                          .lane = {.windows = i / 2 % 4, .staged = i % 4, .id_type = IST_I64},
                          .block_count_max = 3};
        drill.shape.rank_count = 8;
        drill.shape.expert_count = 11;
        drill.shape.topk = 4;
        drill.shape.uneven = i / 4 % 2;
        drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        failures += kill_everywhere(&drill);
    }
    assert_int_equal(failures, 0);
}

/* ---- without a mask -------------------------------------------------------------------------- */

/* Nobody is masked: the operation fails with the rank that is missing, and so does the
   communicator; what had ended before stays right. */
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

static uint32_t kill_without_mask(const ep_drill *drill, uint32_t rank, uint32_t *failures)
{
    uint32_t cases = 0;
    bool hit = true;
    for (uint64_t op = 1; hit; op += every) {
        ep_drill_run run;
        ist_fault fault = {.size = sizeof(fault),
                           .kind = IST_FAULT_KILL,
                           .trigger = IST_FAULT_AT_OP,
                           .rank = (int32_t)rank,
                           .peer = IST_FAULT_ANY,
                           .at_op = op};
        ist_fault_plan *plan = ep_drill_plan(&fault);
        ep_drill_run_once(drill, plan, &run);
        hit = run.result.lost_count != 0;
        if (!fails_cleanly(&run, rank)) {
            ep_drill_tell(&run, plan);
            ++*failures;
        }
        cases += hit ? 1 : 0;
        ist_fault_plan_close(plan);
    }
    return cases;
}

static void a_rank_dies_where_nobody_has_a_mask(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 3 * 2; ++i) {
        ep_drill drill = {
            .shape = usual, .cluster = clusters[i / 2], .block_count_max = 2, .no_mask = 1};
        drill.shape.seed = ist_test_seed();
        drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        assert_true(ep_drill_init(&drill));
        for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
            cases += kill_without_mask(&drill, rank, &failures);
        }
        ep_drill_fini(&drill);
    }
    printf("# without a mask: %u kills, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

/* ---- points ---------------------------------------------------------------------------------- */

static const char *const points[] = {
    "ep.dispatch.begin",   "ep.dispatch.staged", "ep.dispatch.written",  "ep.dispatch.sent",
    "ep.dispatch.decided", "ep.dispatch.taken",  "ep.dispatch.answered", "ep.dispatch.read",
    "ep.combine.begin",    "ep.combine.staged",  "ep.combine.written",   "ep.combine.sent",
    "ep.combine.decided",  "ep.combine.summed",  "ep.combine.answered",  "ep.combine.read",
    "mask.agree.begin",    "mask.flood.sent",    "mask.flood.decided",
};

/* Kills a rank whenever it passes the point. A point that is never passed is a wrong name. */
static uint32_t kill_at_point(const ep_drill *drill, const char *point, uint32_t rank,
                              uint32_t *failures)
{
    uint32_t cases = 0;
    bool hit = true;
    for (uint64_t nth = 1; hit; ++nth) {
        ist_fault fault = ist_test_fault_at(IST_FAULT_KILL, (int32_t)rank, point, nth);
        *failures += ep_drill_survives(drill, &fault, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    if (cases == 0) {
        printf("# %s was never passed\n", point);
        ++*failures;
    }
    return cases;
}

static void a_rank_dies_at_any_point(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 3 * 2; ++i) {
        ep_drill drill = {.shape = usual, .cluster = clusters[i / 2], .block_count_max = 2};
        drill.shape.seed = ist_test_seed();
        drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        assert_true(ep_drill_init(&drill));
        for (size_t j = 0; j < sizeof(points) / sizeof(*points); ++j) {
            for (uint32_t rank = 0; rank < drill.shape.rank_count; ++rank) {
                cases += kill_at_point(&drill, points[j], rank, &failures);
            }
        }
        ep_drill_fini(&drill);
    }
    printf("# %u kills at points, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_dies_at_any_operation),
        cmocka_unit_test(a_rank_dies_in_a_larger_world),
        cmocka_unit_test(a_rank_dies_where_nobody_has_a_mask),
        cmocka_unit_test(a_rank_dies_at_any_point),
    };
    ist_test_init(argc, argv);
    every = ist_test_option(argc, argv, "--every", every);
    wide = ist_test_option(argc, argv, "--wide", wide);
    every = every == 0 ? 1 : every;
    return cmocka_run_group_tests_name("ep kill", tests, NULL, NULL);
}
