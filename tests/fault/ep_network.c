/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever the network does to one transfer or one link, no wrong byte is presented as
 * complete, nobody hangs, and a clean brings everybody back; what a sound network may do (delays
 * below the deadline, another order) changes nothing at all. Method: strike the nth put or signal
 * of every rank, for every n, in every way; take links down at every time of a step.
 * `--every N` takes every Nth.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t every = 16;

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 6,
                               .topk = 2,
                               .tokens_max = 3,
                               .hidden = 8,
                               .dtype = IST_F16,
                               .masked_permille = 50};

typedef struct strike {
    ist_fault_kind kind;
    uint64_t duration_ns;
    bool legal; /* everything must be perfect all the same */
} strike;

static const strike strikes[] = {
    {IST_FAULT_DELAY, EP_DRILL_DEADLINE_NS / 8, true},
    {IST_FAULT_DELAY, EP_DRILL_DEADLINE_NS * 3ull / 2, false},
    {IST_FAULT_DELAY, EP_DRILL_DEADLINE_NS * 30ull, false},
    {IST_FAULT_DROP, 0, false},
    {IST_FAULT_DUPLICATE, 0, false},
    {IST_FAULT_DUPLICATE, EP_DRILL_DEADLINE_NS / 50, false},
    {IST_FAULT_DUPLICATE, EP_DRILL_DEADLINE_NS * 10ull, false},
    {IST_FAULT_REORDER, 0, true},
    {IST_FAULT_ERROR, 0, false},
};

/* One transfer struck costs one of its two ranks; another one only if it was reading from the first
   when that left. It never takes everybody along. (A port that is down may: its rank hears nobody.) */
static bool costs_little(ep_drill_run *run)
{
    for (uint32_t i = 0; i < EP_DRILL_STEPS_MAX; ++i) {
        uint32_t out = 0;
        for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
            out += run->ranks[rank].step[i].evicted;
        }
        if (out > 2) {
            snprintf(run->why, sizeof(run->why), "one fault put %u ranks out in step %u", out, i);
            return false;
        }
    }
    return true;
}

static bool survives(const ep_drill *drill, const ist_fault *fault, bool legal,
                     uint64_t healthy_digest, bool *hit)
{
    ep_drill_run run;
    ist_fault_plan *plan = ep_drill_plan(fault);
    if (plan == NULL) {
        printf("# the plan was refused\n");
        return false;
    }
    ep_drill_run_once(drill, plan, &run);
    *hit = run.result.digest != healthy_digest;
    bool good = ep_drill_is_safe(&run, 0);
    if (good && ep_drill_setup_failed(&run, 0)) {
        good = !legal && ep_drill_setup_is_clean(&run, 0);
    } else {
        bool transfer = fault->trigger == IST_FAULT_NTH;
        good = good && (!transfer || costs_little(&run)) &&
               (legal ? ep_drill_is_perfect(&run) : ep_drill_is_recovered(&run));
    }
    if (!good) {
        ep_drill_tell(&run, plan);
    }
    ist_fault_plan_close(plan);
    return good;
}

static uint32_t strike_rank(const ep_drill *drill, const strike *how, uint32_t rank,
                            uint32_t classes, uint64_t healthy_digest, uint32_t *failures)
{
    uint32_t cases = 0;
    bool hit = true;
    for (uint64_t nth = 1 + (rank + ist_test_seed()) % every; hit; nth += every) {
        ist_fault fault = {.size = sizeof(fault),
                           .kind = how->kind,
                           .trigger = IST_FAULT_NTH,
                           .rank = (int32_t)rank,
                           .peer = IST_FAULT_ANY,
                           .classes = classes,
                           .at_op = nth,
                           .duration_ns = how->duration_ns};
        *failures += survives(drill, &fault, how->legal, healthy_digest, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    return cases;
}

static uint32_t strike_everywhere(ep_drill *drill, const strike *how)
{
    ep_drill_run healthy;
    uint32_t cases = 0, failures = 0;
    assert_true(ep_drill_init(drill));
    ep_drill_run_once(drill, NULL, &healthy);
    assert_true(ep_drill_is_perfect(&healthy));
    for (uint32_t rank = 0; rank < drill->shape.rank_count; ++rank) {
        cases += strike_rank(drill, how, rank, IST_FAULT_PUTS, healthy.result.digest, &failures);
        cases += strike_rank(drill, how, rank, IST_FAULT_SIGNALS, healthy.result.digest, &failures);
    }
    ep_drill_fini(drill);
    printf("# %s, %s, kind %d of %" PRIu64 " ns: %u strikes, %u failed\n", drill->cluster,
           drill->shape.layout == IST_EP_EXPERT_MAJOR ? "EXPERT_MAJOR" : "RANK_MAJOR",
           (int)how->kind, how->duration_ns, cases, failures);
    return failures;
}

static void any_transfer_is_struck(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 2 * 2; ++i) {
        for (size_t j = 0; j < sizeof(strikes) / sizeof(*strikes); ++j) {
            ep_drill drill = {.shape = usual,
                              .cluster = i / 2 == 0 ? "2x2" : "4x1",
                              .lane = {.windows = (uint32_t)(i + j) % 4,
                                       .dispatch_only = (uint32_t)j % 2,
                                       .stubborn = i % 2},
                              .block_count_max = 1 + (uint32_t)j % 2,
                              .steps = 2,
                              .clean = 2};
            drill.shape.seed = ist_test_seed();
            drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
            failures += strike_everywhere(&drill, &strikes[j]);
        }
    }
    assert_int_equal(failures, 0);
}

/* ---- late copies ----------------------------------------------------------------------------- */

/* A put arrives a second time in the middle of the next operation that uses its place. */
static uint32_t copy_late(const ep_drill *drill, const ep_drill_run *healthy, ist_ep_op op,
                          uint64_t nth, uint32_t *failures)
{
    const ep_step *steps = healthy->ranks[0].step;
    uint64_t period = steps[1].ended_ns[op] - steps[0].ended_ns[op];
    uint32_t cases = 0;
    for (uint64_t after = period / 2; after < period + 4000; after += 25u * every) {
        bool hit = false;
        ist_fault fault = {.size = sizeof(fault),
                           .kind = IST_FAULT_DUPLICATE,
                           .trigger = IST_FAULT_NTH,
                           .rank = (int32_t)(nth % 4u),
                           .peer = IST_FAULT_ANY,
                           .classes = IST_FAULT_PUTS,
                           .at_op = nth,
                           .duration_ns = after};
        *failures += survives(drill, &fault, false, healthy->result.digest, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    return cases;
}

static void a_late_copy_lands_at_any_time(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 2 * 2 * 2; ++i) {
        ep_drill_run healthy;
        ep_drill drill = {.shape = usual,
                          .cluster = i / 2 % 2 == 0 ? "2x2" : "4x1",
                          .lane = {.dispatch_only = i / 4},
                          .block_count_max = 3,
                          .steps = 2,
                          .clean = 1};
        ist_ep_op op = i / 4 == 0 ? IST_EP_OP_COMBINE : IST_EP_OP_DISPATCH;
        drill.shape.seed = ist_test_seed();
        drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        assert_true(ep_drill_init(&drill));
        ep_drill_run_once(&drill, NULL, &healthy);
        assert_true(ep_drill_is_perfect(&healthy));
        for (uint64_t n = 0; n < 12; ++n) {
            uint64_t nth = 2u + n + (op == IST_EP_OP_COMBINE ? 10u : 0u);
            cases += copy_late(&drill, &healthy, op, nth, &failures);
        }
        ep_drill_fini(&drill);
    }
    printf("# late copies: %u, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

/* ---- links ----------------------------------------------------------------------------------- */

typedef struct outage {
    ist_fault_kind kind;
    uint64_t ns;
    bool legal;
} outage;

static const outage outages[] = {
    {IST_FAULT_LINK_DOWN, EP_DRILL_DEADLINE_NS / 8, true},
    {IST_FAULT_LINK_DOWN, EP_DRILL_DEADLINE_NS * 3ull / 2, false},
    {IST_FAULT_LINK_DOWN, EP_DRILL_DEADLINE_NS * 5ull / 2, false},
    {IST_FAULT_LINK_DOWN, EP_DRILL_DEADLINE_NS * 20ull, false},
    {IST_FAULT_LINK_SLOW, EP_DRILL_DEADLINE_NS * 20ull, true},
};

/* A load or store that a link holds back for so long is a fault of the device, which is lost. */
#define DEVICE_PATIENCE_NS (EP_DRILL_DEADLINE_NS * 3ull)

/* Struck at every time of the first step. */
static uint32_t cut_link(const ep_drill *drill, const outage *how, int32_t rank, int32_t peer,
                         const ep_drill_run *healthy, uint32_t *failures)
{
    uint32_t cases = 0;
    uint64_t end = healthy->ranks[0].step[0].ended_ns[IST_EP_OP_COMBINE];
    uint64_t begin = end - 20000u;
    for (uint64_t at = begin; at < end; at += 100u * every) {
        bool hit = false;
        ist_fault fault = {.size = sizeof(fault),
                           .kind = how->kind,
                           .trigger = IST_FAULT_AT_TIME,
                           .rank = rank,
                           .peer = peer,
                           .at_ns = at,
                           .duration_ns = how->ns};
        *failures += survives(drill, &fault, how->legal, healthy->result.digest, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    return cases;
}

static uint32_t cut_links(ep_drill *drill, const outage *how, uint32_t *failures)
{
    ep_drill_run healthy;
    uint32_t cases = 0;
    assert_true(ep_drill_init(drill));
    ep_drill_run_once(drill, NULL, &healthy);
    assert_true(ep_drill_is_perfect(&healthy));
    cases += cut_link(drill, how, 1, 2, &healthy, failures);
    if (how->kind == IST_FAULT_LINK_SLOW || how->ns < DEVICE_PATIENCE_NS) {
        cases += cut_link(drill, how, 1, IST_FAULT_ANY, &healthy, failures);
    }
    ep_drill_fini(drill);
    return cases;
}

static void any_link_goes_down_and_up(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 2 * 2; ++i) {
        for (size_t j = 0; j < sizeof(outages) / sizeof(*outages); ++j) {
            ep_drill drill = {.shape = usual,
                              .cluster = i / 2 == 0 ? "2x2" : "4x1",
                              .lane = {.windows = (uint32_t)(i + j) % 4},
                              .block_count_max = 2,
                              .clean = 2};
            drill.shape.seed = ist_test_seed();
            drill.shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
            cases += cut_links(&drill, &outages[j], &failures);
        }
    }
    printf("# links: %u outages, %u failed\n", cases, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_transfer_is_struck),
        cmocka_unit_test(a_late_copy_lands_at_any_time),
        cmocka_unit_test(any_link_goes_down_and_up),
    };
    ist_test_init(argc, argv);
    every = ist_test_option(argc, argv, "--every", every);
    every = every == 0 ? 1 : every;
    return cmocka_run_group_tests_name("ep network", tests, NULL, NULL);
}
