/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: staged operations that a clean ends leave nothing behind in which ranks differ. Method: in each
 * turn another rank leaves out the half that the others have begun; all clean, and a step is perfect;
 * more turns than there are slots.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 4u

typedef struct scene {
    ep_shape shape;
    const char *cluster;
    ep_case made[2u * TURNS];
} scene;

static ist_status turn(ist_world *world, const scene *s, ep_rig *rig, ep_lane *lane, uint32_t i)
{
    ep_step step;
    memset(&step, 0, sizeof(step));
    if (rig->rank != i % rig->rank_count) {
        EXPECT_OK(world, ep_lane_load(lane, &s->made[2u * i]));
        EXPECT_OK(world, ep_lane_route(lane, rig->stream));
        EXPECT_OK(world, ep_lane_dispatch(lane, rig->stream, 1));
    }
    EXPECT_OK(world, ist_ep_clean(rig->group, rig->stream));
    EXPECT_OK(world, ep_lane_step(lane, &s->made[2u * i + 1u], &step));
    EXPECT(world, ep_step_is_perfect(&step));
    return IST_OK;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    ep_lane_setup how = {.windows = 0};
    setup.fault_tolerant = 1;
    setup.staged_count_max = 2;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[0], &how, &lane));
    for (uint32_t i = 0; i < TURNS; ++i) {
        IST_TEST_PASS_ON(turn(world, s, &rig, &lane, i));
    }
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void a_clean_makes_ranks_equal(void **state)
{
    static const char *const clusters[] = {"1x4", "2x2", "4x1"};
    (void)state;
    for (uint32_t n = 0; n < 6; ++n) {
        scene *s = calloc(1, sizeof(*s));
        assert_non_null(s);
        s->cluster = clusters[n / 2u];
        s->shape = (ep_shape){.rank_count = ist_test_ranks(4),
                              .expert_count = 6,
                              .topk = 2,
                              .tokens_max = 4,
                              .hidden = 16,
                              .dtype = IST_BF16,
                              .layout = n % 2u ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR};
        for (uint32_t i = 0; i < 2u * TURNS; ++i) {
            s->shape.seed = ist_test_seed() * 100u + i;
            assert_true(ep_case_init(&s->made[i], &s->shape));
        }
        if (ist_test_has_cluster(s->cluster)) {
            assert_int_equal(ist_test_run(s->shape.rank_count, s->cluster, rank_main, s), IST_OK);
        }
        for (uint32_t i = 0; i < 2u * TURNS; ++i) {
            ep_case_fini(&s->made[i]);
        }
        free(s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_clean_makes_ranks_equal)};
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep clean slots", tests, NULL, NULL);
}
