/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whichever call below the front fails, in whichever rank, every rank gets an answer in bounded
 * time, nothing wrong is presented as complete, and nothing is left open. Method: the fault loop over
 * every backend operation and host allocation: one program that opens, steps, agrees, cleans and
 * closes; fail call 1, 2, 3 … until none is hit, once and from there on. `--every N` takes every Nth.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <inttypes.h>
#include <isthmus/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t every = 2;
static unsigned leaks;

static void watch_log(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)context;
    if (strstr(line, " left ") != NULL) {
        ++leaks;
        printf("# %s\n", line);
    }
}

static const char *const ops[] = {
#define X(op, params, args, need) #op,
    IST_BACKEND_OPS(X)
#undef X
        "host_alloc",
};

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 6,
                               .topk = 2,
                               .tokens_max = 3,
                               .hidden = 8,
                               .dtype = IST_F32,
                               .masked_permille = 50};

/* A world that could not start has told so; else its ranks are judged. */
static bool judge(ep_drill_run *run)
{
    if (run->status < 0 && run->status != IST_ERR_DEADLOCK) {
        return true;
    }
    return ep_drill_is_safe(run, 0);
}

static bool survives(const ep_drill *drill, const char *op, uint64_t nth, int persistent,
                     uint64_t *hits)
{
    ep_drill_run run;
    leaks = 0;
    if (ist_call_fault_arm(op, nth, persistent, IST_ERR_SYSTEM) != IST_OK) {
        printf("# %s cannot be armed\n", op);
        return false;
    }
    ep_drill_run_once(drill, NULL, &run);
    ist_call_fault_disarm(hits);
    bool good = judge(&run);
    if (good && leaks != 0) {
        snprintf(run.why, sizeof(run.why), "%u lines about what was left open", leaks);
        good = false;
    }
    if (good && *hits == 0) {
        good = ep_drill_is_perfect(&run);
    }
    if (!good) {
        printf("# %s call %" PRIu64 "%s fails:\n", op, nth, persistent ? " and later" : "");
        ep_drill_tell(&run, NULL);
    }
    return good;
}

static uint32_t loop_over(const ep_drill *drill, int persistent, uint32_t *failures)
{
    uint32_t cases = 0;
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); ++i) {
        uint64_t hits = 1;
        for (uint64_t nth = 1; hits != 0; nth += every) {
            *failures += survives(drill, ops[i], nth, persistent, &hits) ? 0 : 1;
            cases += hits != 0 ? 1 : 0;
        }
    }
    return cases;
}

static void any_call_fails(void **state)
{
    uint32_t cases = 0, failures = 0;
    (void)state;
    for (uint32_t i = 0; i < 2 * 2 * 2; ++i) {
        ep_drill drill = {.shape = usual,
                          .cluster = i % 2 == 0 ? "2x2" : "1x4",
                          .lane = {.windows = i % 4},
                          .clean = i / 2 % 2};
        drill.shape.layout = i / 4 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        drill.shape.seed = ist_test_seed();
        assert_true(ep_drill_init(&drill));
        cases += loop_over(&drill, 0, &failures);
        cases += loop_over(&drill, 1, &failures);
        ep_drill_fini(&drill);
    }
    printf("# %u calls failed, %u of them badly\n", cases, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_fails),
    };
    ist_test_init(argc, argv);
    ist_log_sink_set(watch_log, NULL, IST_LOG_WARN);
    every = ist_test_option(argc, argv, "--every", every);
    every = every == 0 ? 1 : every;
    return cmocka_run_group_tests_name("ep fault loop", tests, NULL, NULL);
}
