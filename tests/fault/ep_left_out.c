/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who was masked before the first operation costs the others nothing but its rows, though
 * nothing it ever sent lies in their memory; an operation that a clean has ended says so; and who is told
 * to go in an operation tells the others, who then do not wait for it.
 * Method: all but the last rank mask it by hand, then do steps; all ranks begin operations in
 * halves, clean, read their records, and do a step.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS 1000000u
#define STEPS 3u

typedef struct scene {
    ep_shape shape;
    uint32_t blocks;
    uint32_t windows;
    ist_ep_zero_copy zero_copy;
    ep_case made[STEPS];
} scene;

static ist_status open_all(ist_world *world, const scene *s, ep_rig *rig, ep_lane *lane)
{
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    ep_lane_setup how = {.windows = s->windows};
    setup.fault_tolerant = 1;
    setup.deadline_ns = DEADLINE_NS;
    setup.block_count_max = s->blocks;
    setup.zero_copy = s->zero_copy;
    EXPECT_OK(world, ep_rig_open(world, &setup, rig));
    EXPECT_OK(world, ep_lane_open(rig, &s->made[0], &how, lane));
    return IST_OK;
}

static ist_status close_all(ist_world *world, ep_rig *rig, ep_lane *lane)
{
    EXPECT_OK(world, ep_lane_close(lane));
    EXPECT_OK(world, ep_rig_close(rig));
    return IST_OK;
}

/* ---- masked from the start --------------------------------------------------------------------- */

static ist_status expect_only_last_lost(ep_rig *rig, const ep_step *step)
{
    uint64_t last = UINT64_C(1) << (rig->rank_count - 1u);
    for (uint32_t op = 0; op < 2; ++op) {
        EXPECT_EQUAL(rig->world, step->ran[op], 1);
        EXPECT_EQUAL(rig->world, step->record[op].status, IST_INCOMPLETE);
        EXPECT_EQUAL(rig->world, step->lost[op][0], last);
        EXPECT_EQUAL(rig->world, step->finding[op].wrong, 0);
    }
    return IST_OK;
}

static ist_status masked_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    IST_TEST_PASS_ON(open_all(world, s, &rig, &lane));
    uint64_t others = (UINT64_C(1) << (rig.rank_count - 1u)) - 1u;
    for (uint32_t i = 0; rig.rank + 1u != rig.rank_count && i < STEPS; ++i) {
        ep_step step;
        memset(&step, 0, sizeof(step));
        EXPECT_OK(world, ist_comm_mask_update(rig.comm, &others, rig.stream));
        EXPECT_OK(world, ep_lane_step(&lane, &s->made[i], &step));
        IST_TEST_PASS_ON(expect_only_last_lost(&rig, &step));
    }
    EXPECT_OK(world, ist_world_sleep(world, 100ull * DEADLINE_NS));
    return close_all(world, &rig, &lane);
}

/* ---- ended by a clean -------------------------------------------------------------------------- */

static ist_status ended_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ep_step step;
    memset(&step, 0, sizeof(step));
    IST_TEST_PASS_ON(open_all(world, s, &rig, &lane));
    EXPECT_OK(world, ep_lane_step(&lane, &s->made[0], &step));
    EXPECT(world, ep_step_is_perfect(&step));
    EXPECT_OK(world, ep_lane_load(&lane, &s->made[1]));
    EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
    EXPECT_OK(world, ep_lane_dispatch(&lane, rig.stream, 1));
    EXPECT_OK(world, ist_ep_clean(rig.group, rig.stream));
    EXPECT_OK(world, ep_lane_read_record(&lane, IST_EP_OP_DISPATCH));
    EXPECT_EQUAL(world, lane.record[IST_EP_OP_DISPATCH].status, IST_ERR_RANK_LOST);
    memset(&step, 0, sizeof(step));
    EXPECT_OK(world, ep_lane_step(&lane, &s->made[2], &step));
    EXPECT(world, ep_step_is_perfect(&step));
    return close_all(world, &rig, &lane);
}

/* ---- told that it leaves ------------------------------------------------------------------------ */

/* Rank 0 lets the last rank go while that waits in a dispatch, so that it leaves. The others come later,
   to an agreement: they do not wait for it. */
static ist_status leaver_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    IST_TEST_PASS_ON(open_all(world, s, &rig, &lane));
    uint32_t last = rig.rank_count - 1u, count = 0;
    uint64_t others = (UINT64_C(1) << last) - 1u;
    if (rig.rank == last) {
        EXPECT_OK(world, ep_lane_load(&lane, &s->made[0]));
        EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
        EXPECT_OK(world, ep_lane_dispatch(&lane, rig.stream, 0));
        EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
        EXPECT_OK(world, ep_lane_read_record(&lane, IST_EP_OP_DISPATCH));
        EXPECT_EQUAL(world, lane.record[IST_EP_OP_DISPATCH].status, IST_ERR_EVICTED);
    } else if (rig.rank == 0) {
        EXPECT_OK(world, ist_comm_mask_update(rig.comm, &others, rig.stream));
    } else {
        EXPECT_OK(world, ist_world_sleep(world, DEADLINE_NS / 2u));
    }
    if (rig.rank != last) {
        EXPECT_OK(world, ist_comm_agree(rig.comm, rig.stream));
        EXPECT_OK(world, ist_comm_error_get(rig.comm, 0, &count, NULL));
        EXPECT_EQUAL(world, count, rig.rank != 0);
    }
    if (count != 0) {
        ist_error error = {.size = sizeof(error)};
        EXPECT_OK(world, ist_comm_error_get(rig.comm, 0, &count, &error));
        EXPECT_EQUAL(world, error.status, IST_ERR_RANK_LOST);
        EXPECT_EQUAL(world, error.peer, last);
        /* Other schedules than the fair one deliver the notice when they like. */
        EXPECT(world, getenv("IST_SIM_SCHEDULER") != NULL || error.waited_ns < DEADLINE_NS / 2u);
    }
    EXPECT_OK(world, ist_world_sleep(world, 100ull * DEADLINE_NS));
    return close_all(world, &rig, &lane);
}

/* ---- scenes ------------------------------------------------------------------------------------ */

static void run_scenes(ist_status (*body)(ist_world *world, void *arg))
{
    for (uint32_t i = 0; i < 2 * 3 * 3; ++i) {
        scene *s = calloc(1, sizeof(*s));
        assert_non_null(s);
        s->shape = (ep_shape){.rank_count = 4,
                              .expert_count = 6,
                              .topk = 2,
                              .tokens_max = 5,
                              .hidden = 2400, /* rows for several blocks */
                              .dtype = IST_BF16,
                              .layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR};
        s->blocks = 1 + i / 2 % 3;
        s->windows = i / 6 == 1 ? 3 : 0;
        s->zero_copy = i / 6 == 1 ? IST_EP_ZERO_COPY_ON : IST_EP_ZERO_COPY_AUTO;
        s->shape.order = i / 6 == 2 ? IST_EP_COMBINE_REDUCED : IST_EP_COMBINE_STRICT;
        for (uint32_t step = 0; step < STEPS; ++step) {
            s->shape.seed = ist_test_seed() * 100 + i * STEPS + step;
            assert_true(ep_case_init(&s->made[step], &s->shape));
        }
        assert_int_equal(ist_test_run(s->shape.rank_count, NULL, body, s), IST_OK);
        for (uint32_t step = 0; step < STEPS; ++step) {
            ep_case_fini(&s->made[step]);
        }
        free(s);
    }
}

static void who_was_never_there_is_only_missing(void **state)
{
    (void)state;
    run_scenes(masked_main);
}

static void what_a_clean_ends_says_so(void **state)
{
    (void)state;
    run_scenes(ended_main);
}

static void who_says_that_it_leaves_is_not_waited_for(void **state)
{
    (void)state;
    run_scenes(leaver_main);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_never_there_is_only_missing),
        cmocka_unit_test(what_a_clean_ends_says_so),
        cmocka_unit_test(who_says_that_it_leaves_is_not_waited_for),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep left out", tests, NULL, NULL);
}
