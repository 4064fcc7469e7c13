/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: under any mixture of faults that a budget allows, first safety (nothing wrong is presented as
 * complete, all ends in bounded time), then liveness (all that live meet, clean, and a whole step is
 * exact). Method: plans drawn from seeds, on several clusters and shapes. `--cases N`, `--first N`.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pair of ranks may use up one struck transfer a round, and a fault strikes up to eight. */
#define ROUNDS 8u
#define ROUNDS_MORE 40u

static uint32_t case_count = 300;
static uint32_t case_first;

static const char *const clusters[] = {"1x4", "2x2", "4x1", "2x2,sms=1", "1x4,nvlink=2,sms=3"};

static void draw_drill(ep_drill *drill, uint64_t *state)
{
    static const ist_dtype types[] = {IST_BF16, IST_F16, IST_F32};
    drill->shape = (ep_shape){.seed = ist_test_random(state) >> 8,
                              .rank_count = 4,
                              .expert_count = 3 + ist_test_random_below(state, 8),
                              .topk = 1 + ist_test_random_below(state, 3),
                              .tokens_max = 1 + ist_test_random_below(state, 5),
                              .hidden = 4u * (1 + ist_test_random_below(state, 6)),
                              .dtype = types[ist_test_random_below(state, 3)],
                              .layout = ist_test_random_below(state, 2) == 0 ? IST_EP_EXPERT_MAJOR
                                                                             : IST_EP_RANK_MAJOR,
                              .masked_permille = 100,
                              .uneven = ist_test_random_below(state, 2)};
    drill->cluster = clusters[ist_test_random_below(state, 5)];
    if (drill->cluster == clusters[0] && drill->shape.seed % 2 == 0) {
        drill->shape.order = IST_EP_COMBINE_REDUCED;
    }
    drill->lane.windows = ist_test_random_below(state, 4);
    drill->lane.staged = ist_test_random_below(state, 4);
    drill->lane.stubborn = ist_test_random_below(state, 2);
    drill->lane.dispatch_only = ist_test_random_below(state, 4) == 0;
    /* Small rows make one block: some cases have rows for several. */
    drill->shape.hidden *= ist_test_random_below(state, 8) == 0 ? 512u : 1u;
    drill->steps = 1 + ist_test_random_below(state, 2);
    drill->clean = ROUNDS;
    drill->links = ist_test_random_below(state, 2) == 0 ? IST_LINKS_IN_ORDER : IST_LINKS_MAX_MIN;
}

static ist_fault_budget draw_budget(uint64_t *state)
{
    ist_fault_budget budget = {.size = sizeof(budget),
                               .rank_count = 4,
                               .kill_count_max = ist_test_random_below(state, 3),
                               .stall_count_max = ist_test_random_below(state, 2),
                               .transfer_count_max = ist_test_random_below(state, 6),
                               .link_count_max = ist_test_random_below(state, 3),
                               .horizon_ops = 40u + ist_test_random_below(state, 300),
                               .stall_ns_max = EP_DRILL_DEADLINE_NS / 4u *
                                               (1 + ist_test_random_below(state, 12)),
                               .legal_only = ist_test_random_below(state, 4) == 0};
    /* A rank makes about 15 transfers of a class in a round: all are struck well before the last. */
    if (budget.transfer_count_max != 0) {
        budget.horizon_ops = 10u + ist_test_random_below(state, 50);
    }
    return budget;
}

/* Ranks that the plan may kill. */
static uint64_t killed_by(const ist_fault_plan *plan)
{
    uint64_t killed = 0;
    for (uint32_t i = 0; i < ist_fault_plan_count(plan); ++i) {
        ist_fault fault = {.size = sizeof(fault)};
        if (ist_fault_plan_get(plan, i, &fault) == IST_OK && fault.kind == IST_FAULT_KILL) {
            killed |= fault.rank == IST_FAULT_ANY ? UINT64_MAX : UINT64_C(1) << fault.rank;
        }
    }
    return killed;
}

static bool judge(ep_drill_run *run, uint64_t killed)
{
    if (!ep_drill_is_safe(run, killed)) {
        return false;
    }
    if (ep_drill_setup_failed(run, killed)) {
        return ep_drill_setup_is_clean(run, killed);
    }
    return ep_drill_is_live(run, killed);
}

static bool run_plan(ep_drill *drill, const ist_fault_plan *plan, uint32_t number)
{
    ep_drill_run run;
    uint64_t killed = killed_by(plan);
    ep_drill_run_once(drill, plan, &run);
    uint64_t digest = run.result.digest;
    bool good = judge(&run, killed);
    if (!good && ep_drill_is_safe(&run, killed)) { /* not all strikes are used up: go on longer */
        drill->clean = ROUNDS_MORE;
        ep_drill_run_once(drill, plan, &run);
        good = judge(&run, killed);
        digest = run.result.digest;
    }
    if (!good) {
        ep_drill_tell(&run, plan);
        printf("# repeat with --seed %" PRIu64 " --first %u --cases 1\n", ist_test_seed(), number);
        return false;
    }
    ep_drill_run_once(drill, plan, &run);
    if (run.result.digest != digest) {
        printf("# case %u: digests %016" PRIx64 " and %016" PRIx64 "\n", number, digest,
               run.result.digest);
        return false;
    }
    return true;
}

static bool run_case(uint32_t number)
{
    uint64_t state = ist_test_seed() * 7000003u + number;
    ep_drill drill = {0};
    ist_fault_plan *plan = NULL;
    draw_drill(&drill, &state);
    ist_fault_budget budget = draw_budget(&state);
    if (!ep_drill_init(&drill)) {
        return false;
    }
    bool good = ist_fault_plan_open(&plan) == IST_OK &&
                ist_fault_plan_random(plan, ist_test_random(&state), &budget) == IST_OK &&
                run_plan(&drill, plan, number);
    ist_fault_plan_close(plan);
    ep_drill_fini(&drill);
    return good;
}

static void any_mixture_of_faults(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < case_count; ++i) {
        failures += run_case(case_first + i) ? 0 : 1;
    }
    printf("# %u plans, %u failed\n", case_count, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mixture_of_faults),
    };
    ist_test_init(argc, argv);
    case_count = ist_test_option(argc, argv, "--cases", case_count);
    case_first = ist_test_option(argc, argv, "--first", case_first);
    return cmocka_run_group_tests_name("ep random faults", tests, NULL, NULL);
}
