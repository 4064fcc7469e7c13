/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that stops and goes on later never presents a wrong byte as complete, learns that the
 * others went on without it, and is re-admitted by a clean. Method: stalls of several lengths at
 * every operation index of a rank; then all meet, clean, and do a step. `--every N` takes every Nth
 * index, `--rank R` another rank, `--rank 4` all.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t every = 7;
static uint32_t only_rank = 1;

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 6,
                               .topk = 2,
                               .tokens_max = 3,
                               .hidden = 8,
                               .dtype = IST_BF16,
                               .masked_permille = 50};

static const char *const clusters[] = {"1x4", "2x2", "4x1"};

/* A rank that others lost in the first step knows it at its end: no record of its says that all
   went well in the operation after the one in which it was lost. */
static bool learned(ep_drill_run *run, uint32_t slow)
{
    const ep_step *own = &run->ranks[slow].step[0];
    bool knows = own->evicted || own->status != IST_OK || own->record[0].status != IST_OK ||
                 own->record[1].status != IST_OK;
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        const ep_step *step = &run->ranks[rank].step[0];
        bool lost = ((step->lost[0][0] | step->lost[1][0]) >> slow & 1u) != 0;
        if (rank != slow && lost && !step->evicted && !knows) {
            snprintf(run->why, sizeof(run->why), "rank %u lost rank %u, which does not know it",
                     rank, slow);
            return false;
        }
    }
    return true;
}

typedef struct stall {
    uint64_t ns;
    bool harmless; /* shorter than the deadline: nobody may be lost */
} stall;

static bool survives(const ep_drill *drill, const ist_fault *fault, bool harmless,
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
        good = !harmless && ep_drill_setup_is_clean(&run, 0);
    } else {
        good = good && learned(&run, (uint32_t)fault->rank) && ep_drill_is_recovered(&run) &&
               (!harmless || ep_drill_is_perfect(&run));
    }
    if (!good) {
        ep_drill_tell(&run, plan);
    }
    ist_fault_plan_close(plan);
    return good;
}

static uint32_t stall_one(const ep_drill *drill, uint32_t rank, const stall *length,
                          uint32_t *failures)
{
    ep_drill_run healthy;
    uint32_t cases = 0;
    bool hit = true;
    ep_drill_run_once(drill, NULL, &healthy);
    for (uint64_t op = 1 + ist_test_seed() % every; hit; op += every) {
        ist_fault fault = {.size = sizeof(fault),
                           .kind = IST_FAULT_STALL,
                           .trigger = IST_FAULT_AT_OP,
                           .rank = (int32_t)rank,
                           .peer = IST_FAULT_ANY,
                           .duration_ns = length->ns,
                           .at_op = op};
        *failures += survives(drill, &fault, length->harmless, healthy.result.digest, &hit) ? 0 : 1;
        cases += hit ? 1 : 0;
    }
    return cases;
}

static uint32_t stall_everywhere(ep_drill *drill, const stall *length)
{
    uint32_t cases = 0, failures = 0;
    assert_true(ep_drill_init(drill));
    for (uint32_t rank = 0; rank < drill->shape.rank_count; ++rank) {
        if (rank == only_rank || only_rank >= drill->shape.rank_count) {
            cases += stall_one(drill, rank, length, &failures);
        }
    }
    ep_drill_fini(drill);
    printf("# %s, %s, %" PRIu64 " ns: %u stalls, %u failed\n", drill->cluster,
           drill->shape.layout == IST_EP_EXPERT_MAJOR ? "EXPERT_MAJOR" : "RANK_MAJOR", length->ns,
           cases, failures);
    return failures;
}

static void a_rank_stops_at_any_operation(void **state)
{
    static const stall lengths[] = {
        {EP_DRILL_DEADLINE_NS / 8, true},
        {EP_DRILL_DEADLINE_NS * 11 / 10, false},
        {EP_DRILL_DEADLINE_NS * 9 / 4, false},
        {EP_DRILL_DEADLINE_NS * 20ull, false},
    };
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 3 * 2 * 4; ++i) {
        ep_drill drill = {.shape = usual,
                          .cluster = clusters[i / 8],
                          .lane = {.windows = i / 2 % 4, .stubborn = i / 4 % 2},
                          .block_count_max = 1 + i % 2,
                          .steps = 3, /* the others go on and change what it may still read */
                          .clean = 2};
        drill.shape.seed = ist_test_seed();
        drill.shape.layout = i / 4 % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        failures += stall_everywhere(&drill, &lengths[i % 4]);
    }
    assert_int_equal(failures, 0);
}

static void a_rank_stops_in_a_reduced_combine(void **state)
{
    static const stall lengths[] = {
        {EP_DRILL_DEADLINE_NS / 8, true},
        {EP_DRILL_DEADLINE_NS * 11 / 10, false},
        {EP_DRILL_DEADLINE_NS * 9 / 4, false},
        {EP_DRILL_DEADLINE_NS * 20ull, false},
    };
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 4 * 3; ++i) {
        ep_drill drill = {.shape = usual,
                          .cluster = "1x4",
                          .lane = {.windows = i % 4, .stubborn = i / 4 % 2},
                          .block_count_max = 1 + i / 4,
                          .steps = 3,
                          .clean = 2};
        drill.shape.seed = ist_test_seed();
        drill.shape.layout = IST_EP_EXPERT_MAJOR;
        drill.shape.order = IST_EP_COMBINE_REDUCED;
        drill.shape.hidden = i < 4 ? usual.hidden : 4096; /* a block for 16 KiB of rows */
        failures += stall_everywhere(&drill, &lengths[i % 4]);
    }
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_stops_at_any_operation),
        cmocka_unit_test(a_rank_stops_in_a_reduced_combine),
    };
    ist_test_init(argc, argv);
    every = ist_test_option(argc, argv, "--every", every);
    only_rank = ist_test_option(argc, argv, "--rank", only_rank);
    every = every == 0 ? 1 : every;
    return cmocka_run_group_tests_name("ep stall", tests, NULL, NULL);
}
