/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what happens between two steps of a kernel that follow each other at once is noticed all the same.
 * Method: a fault plan holds a rank at a named point of the kernel. A put of the last step arrives a
 * second time while its home stands between the decision and its look at what was read since; a rank stands
 * in a clean, after all have met, until the others have finished it.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <stdio.h>

#define DEADLINE_NS EP_DRILL_DEADLINE_NS

static ist_fault held(const char *point, uint64_t nth, int32_t rank, uint64_t ns)
{
    ist_fault fault = ist_test_fault_at(IST_FAULT_STALL, rank, point, nth);
    fault.duration_ns = ns;
    return fault;
}

/* ---- late copies ------------------------------------------------------------------------------- */

#define HELD_NS (DEADLINE_NS / 8u)
#define PUTS 16u /* more than a rank sends to another in a step */

/* @return 1: it was noticed, 0: nothing came of it, -1: it did harm. */
static int copy_comes(const ep_drill *drill, const ep_drill_run *healthy, ist_ep_op op,
                      uint64_t nth)
{
    const ep_step *steps = healthy->ranks[0].step;
    uint64_t period = steps[1].ended_ns[op] - steps[0].ended_ns[op];
    ist_fault again = {.size = sizeof(again),
                       .kind = IST_FAULT_DUPLICATE,
                       .trigger = IST_FAULT_NTH,
                       .rank = 1,
                       .peer = 0,
                       .classes = IST_FAULT_PUTS,
                       .at_op = nth,
                       .duration_ns = period + HELD_NS / 2u};
    ist_fault home =
        held(op == IST_EP_OP_COMBINE ? "ep.combine.decided" : "ep.dispatch.decided", 2, 0, HELD_NS);
    ep_drill_run run;
    ist_fault_plan *plan = ep_drill_plan(&again);
    assert_non_null(plan);
    assert_int_equal(ist_fault_plan_add(plan, &home), IST_OK);
    ep_drill_run_once(drill, plan, &run);
    bool good = ep_drill_is_safe(&run, 0) && ep_drill_is_recovered(&run);
    int noticed = !ep_step_is_perfect(&run.ranks[0].step[1]);
    if (!good) {
        ep_drill_tell(&run, plan);
    }
    ist_fault_plan_close(plan);
    return good ? noticed : -1;
}

static void a_copy_comes_under_the_read(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * 2; ++i) {
        ep_drill_run healthy;
        ep_drill drill = {.shape = {.rank_count = 2,
                                    .expert_count = 4,
                                    .topk = 2,
                                    .tokens_max = 4,
                                    .hidden = 64,
                                    .dtype = IST_BF16,
                                    .seed = ist_test_seed(),
                                    .layout = i % 2 ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR},
                          .cluster = "2x1",
                          .block_count_max = 1,
                          .steps = 2,
                          .clean = 1};
        uint32_t noticed = 0;
        assert_true(ep_drill_init(&drill));
        ep_drill_run_once(&drill, NULL, &healthy);
        assert_true(ep_drill_is_perfect(&healthy));
        for (uint64_t nth = 1; nth <= PUTS; ++nth) {
            int answer =
                copy_comes(&drill, &healthy, i / 2 ? IST_EP_OP_DISPATCH : IST_EP_OP_COMBINE, nth);
            assert_int_not_equal(answer, -1);
            noticed += (uint32_t)answer;
        }
        ep_drill_fini(&drill);
        printf("# %u of %u copies fell into what was read\n", noticed, PUTS);
        assert_int_not_equal(noticed, 0);
    }
}

/* ---- cleans ------------------------------------------------------------------------------------ */

typedef struct scene {
    ep_shape shape;
    const char *cluster;
    ep_case made;
} scene;

/* The last rank stands where it has not raised its second flag, and finds all of the others'. */
static ist_status clean_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    setup.fault_tolerant = 1;
    setup.deadline_ns = DEADLINE_NS;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made, NULL, &lane));
    bool stands = rig.rank + 1u == rig.rank_count;
    EXPECT_STATUS(world, ist_ep_clean(rig.group, rig.stream),
                  stands ? IST_ERR_EVICTED : IST_INCOMPLETE);
    EXPECT_OK(world, ist_world_sleep(world, stands ? 0 : 100u * DEADLINE_NS));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void who_stands_in_a_clean_is_told(void **state)
{
    static const char *const clusters[] = {"1x4", "2x2", "4x1"};
    (void)state;
    for (uint32_t i = 0; i < 3; ++i) {
        scene s = {.cluster = clusters[i],
                   .shape = {.seed = ist_test_seed(),
                             .rank_count = 4,
                             .expert_count = 6,
                             .topk = 2,
                             .tokens_max = 4,
                             .hidden = 16,
                             .dtype = IST_BF16,
                             .layout = IST_EP_EXPERT_MAJOR}};
        ist_world_desc desc = ist_test_desc(4, s.cluster);
        ist_fault stands = held("ep.clean.drained", 1, 3, 20u * DEADLINE_NS);
        ist_fault_plan *plan = ep_drill_plan(&stands);
        assert_non_null(plan);
        desc.faults = plan;
        assert_true(ep_case_init(&s.made, &s.shape));
        assert_int_equal(ist_test_run_desc(&desc, clean_main, &s, NULL), IST_OK);
        ep_case_fini(&s.made);
        ist_fault_plan_close(plan);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_comes_under_the_read),
        cmocka_unit_test(who_stands_in_a_clean_is_told),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep points", tests, NULL, NULL);
}
