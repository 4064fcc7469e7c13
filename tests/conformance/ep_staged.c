/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: operations in two halves deliver the same bytes, also with several in flight and completed
 * in another order than begun; too many are refused. Method: lanes whose halves interleave, outputs
 * compared with the oracle.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>

#define LANES_MAX 4u
#define ROUNDS 3u

typedef struct scene {
    ep_shape shape; /* of all lanes; each its own K and contents */
    const char *cluster;
    uint32_t lane_count;
    uint32_t slot_count;
    uint32_t windows;
    uint32_t reversed; /* 1: completed in the opposite order */
    ep_case made[LANES_MAX][ROUNDS];
} scene;

static ep_shape lane_shape(const scene *s, uint32_t lane, uint32_t round)
{
    ep_shape shape = s->shape;
    shape.topk = 1 + lane % s->shape.topk;
    shape.seed = ist_test_seed() * 1000 + lane * ROUNDS + round;
    return shape;
}

static bool init_scene(scene *s)
{
    for (uint32_t i = 0; i < s->lane_count * ROUNDS; ++i) {
        ep_shape shape = lane_shape(s, i / ROUNDS, i % ROUNDS);
        if (!ep_case_init(&s->made[i / ROUNDS][i % ROUNDS], &shape)) {
            return false;
        }
    }
    return true;
}

static void fini_scene(scene *s)
{
    for (uint32_t i = 0; i < s->lane_count * ROUNDS; ++i) {
        ep_case_fini(&s->made[i / ROUNDS][i % ROUNDS]);
    }
}

/* The lane that is completed as the nth. */
static uint32_t nth_lane(const scene *s, uint32_t i)
{
    return s->reversed ? s->lane_count - 1u - i : i;
}

static ist_status play_round(ep_rig *rig, const scene *s, ep_lane *lanes, uint32_t round)
{
    ist_world *world = rig->world;
    for (uint32_t i = 0; i < s->lane_count; ++i) {
        EXPECT_OK(world, ep_lane_load(&lanes[i], &s->made[i][round]));
        EXPECT_OK(world, ep_lane_route(&lanes[i], rig->stream));
        EXPECT_OK(world, ep_lane_dispatch(&lanes[i], rig->stream, 1));
        EXPECT_OK(world, ep_lane_read_record(&lanes[i], IST_EP_OP_DISPATCH));
        EXPECT_EQUAL(world, lanes[i].record[IST_EP_OP_DISPATCH].status, IST_IN_PROGRESS);
    }
    for (uint32_t i = 0; i < s->lane_count; ++i) {
        ep_lane *lane = &lanes[nth_lane(s, i)];
        EXPECT_OK(world, ist_ep_complete(lane->handle, rig->stream));
        EXPECT_DISPATCHED(lane);
        EXPECT_OK(world, ep_lane_work(lane));
    }
    for (uint32_t i = 0; i < s->lane_count; ++i) {
        EXPECT_OK(world, ep_lane_combine(&lanes[i], rig->stream, 1));
    }
    for (uint32_t i = 0; i < s->lane_count; ++i) {
        ep_lane *lane = &lanes[nth_lane(s, i)];
        EXPECT_OK(world, ist_ep_complete(lane->handle, rig->stream));
        EXPECT_OK(world, ist_ep_complete(lane->handle, rig->stream)); /* nothing pending */
        EXPECT_COMBINED(lane);
    }
    return IST_OK;
}

/* One more than there are slots is refused, and nothing is lost by it. */
static ist_status play_too_many(ep_rig *rig, const scene *s, ep_lane *lanes)
{
    ist_world *world = rig->world;
    uint32_t count = s->slot_count;
    for (uint32_t i = 0; i < count; ++i) {
        EXPECT_OK(world, ep_lane_load(&lanes[i], &s->made[i][0]));
        EXPECT_OK(world, ep_lane_route(&lanes[i], rig->stream));
        EXPECT_OK(world, ep_lane_dispatch(&lanes[i], rig->stream, 1));
    }
    ep_lane *more = &lanes[count < s->lane_count ? count : 0];
    if (more != &lanes[0]) {
        EXPECT_OK(world, ep_lane_load(more, &s->made[count][0]));
        EXPECT_OK(world, ep_lane_route(more, rig->stream));
    }
    EXPECT_STATUS(world, ep_lane_dispatch(more, rig->stream, 1), IST_ERR_USAGE);
    EXPECT_STATUS(world, ep_lane_dispatch(more, rig->stream, 0), IST_ERR_USAGE);
    EXPECT_STATUS(world, ep_lane_route(&lanes[0], rig->stream), IST_ERR_USAGE);
    EXPECT_STATUS(world, ep_lane_combine(&lanes[0], rig->stream, 0), IST_ERR_USAGE);
    for (uint32_t i = 0; i < count; ++i) {
        EXPECT_OK(world, ist_ep_complete(lanes[i].handle, rig->stream));
        EXPECT_DISPATCHED(&lanes[i]);
    }
    return IST_OK;
}

/* With a free slot, whole operations of other handles run between the halves of one. */
static ist_status play_between(ep_rig *rig, const scene *s, ep_lane *lanes)
{
    ist_world *world = rig->world;
    if (s->slot_count < 2 || s->lane_count < 2) {
        return IST_OK;
    }
    EXPECT_OK(world, ep_lane_load(&lanes[0], &s->made[0][1]));
    EXPECT_OK(world, ep_lane_route(&lanes[0], rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(&lanes[0], rig->stream, 1));
    EXPECT_OK(world, ep_lane_load(&lanes[1], &s->made[1][1]));
    EXPECT_OK(world, ep_lane_route(&lanes[1], rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(&lanes[1], rig->stream, 0));
    EXPECT_DISPATCHED(&lanes[1]);
    EXPECT_OK(world, ep_lane_work(&lanes[1]));
    EXPECT_OK(world, ep_lane_combine(&lanes[1], rig->stream, 0));
    EXPECT_COMBINED(&lanes[1]);
    EXPECT_OK(world, ist_ep_complete(lanes[0].handle, rig->stream));
    EXPECT_DISPATCHED(&lanes[0]);
    return IST_OK;
}

static ist_status play_all(ep_rig *rig, const scene *s, ep_lane *lanes)
{
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        IST_TEST_PASS_ON(play_round(rig, s, lanes, round));
    }
    IST_TEST_PASS_ON(play_too_many(rig, s, lanes));
    IST_TEST_PASS_ON(play_between(rig, s, lanes));
    return play_round(rig, s, lanes, 0);
}

static ist_status scene_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lanes[LANES_MAX];
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    ep_lane_setup lane = {.windows = s->windows};
    setup.staged_count_max = s->slot_count;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    for (uint32_t i = 0; i < s->lane_count; ++i) {
        EXPECT_OK(world, ep_lane_open(&rig, &s->made[i][0], &lane, &lanes[i]));
    }
    IST_TEST_PASS_ON(play_all(&rig, s, lanes));
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    for (uint32_t i = 0; i < s->lane_count; ++i) {
        EXPECT_OK(world, ep_lane_close(&lanes[i]));
    }
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void halves_deliver_the_same(void **state)
{
    static const char *const clusters[] = {NULL, "2x2", "4x1"};
    (void)state;
    for (uint32_t i = 0; i < 3 * 2 * 4; ++i) {
        if (!ist_test_has_cluster(clusters[i / 8])) {
            continue;
        }
        scene *s = calloc(1, sizeof(*s));
        assert_non_null(s);
        s->shape = (ep_shape){.rank_count = ist_test_ranks(4),
                              .expert_count = 7,
                              .topk = 4,
                              .tokens_max = 6,
                              .hidden = 48,
                              .dtype = IST_BF16,
                              .layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR,
                              .masked_permille = 100,
                              .uneven = i / 4 % 2};
        s->cluster = clusters[i / 8];
        s->slot_count = 1 + i / 2 % 4;
        s->lane_count = s->slot_count;
        s->windows = i % 4;
        s->reversed = i / 2 % 2;
        assert_true(init_scene(s));
        assert_int_equal(ist_test_run(s->shape.rank_count, s->cluster, scene_main, s), IST_OK);
        fini_scene(s);
        free(s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_deliver_the_same),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep staged", tests, NULL, NULL);
}
