/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: dispatch and combine deliver every byte that they must, and no other. Method: shapes,
 * types, layouts, operands and teams, all combined or at their edges; whole outputs, poison
 * included, are compared with the oracle.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdio.h>

typedef struct scene {
    ep_shape shape;
    const char *cluster;
    uint32_t lsa_size_max;
    uint32_t block_count_max;
    ep_lane_setup lane;
    uint32_t steps; /* 0: 1; each with another routing */
} scene;

#define SCENE_STEPS 4u

typedef struct play {
    const scene *scene;
    ep_case made[SCENE_STEPS];
} play;

static ist_status play_step(ep_rig *rig, ep_lane *lane, const ep_case *made)
{
    ist_world *world = rig->world;
    EXPECT_OK(world, ep_lane_load(lane, made));
    EXPECT_OK(world, ep_lane_route(lane, rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, rig->stream, 0));
    EXPECT_DISPATCHED(lane);
    EXPECT_OK(world, ep_lane_work(lane));
    EXPECT_OK(world, ep_lane_combine(lane, rig->stream, 0));
    EXPECT_COMBINED(lane);
    return IST_OK;
}

/* A team that is cut needs a network; the simulator always has one. */
static ist_status reaches_all(ist_world *world, uint32_t lsa_size_max, bool *there)
{
    ist_comm *comm = NULL;
    ist_comm_desc desc = {.size = sizeof(desc), .lsa_size_max = lsa_size_max};
    ist_comm_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm));
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT_OK(world, ist_comm_close(comm));
    *there = info.gin_supported != 0 || info.lsa_size == info.rank_count;
    EXPECT(world, *there || !ist_test_on_simulator());
    return IST_OK;
}

static ist_status play_main(ist_world *world, void *arg)
{
    const play *played = arg;
    const scene *s = played->scene;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    bool there = true;
    if (s->lsa_size_max != 0) {
        IST_TEST_PASS_ON(reaches_all(world, s->lsa_size_max, &there));
    }
    if (!there) {
        return IST_OK;
    }
    setup.lsa_size_max = s->lsa_size_max;
    setup.block_count_max = s->block_count_max;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &played->made[0], &s->lane, &lane));
    for (uint32_t i = 0; i < (s->steps == 0 ? 1 : s->steps); ++i) {
        IST_TEST_PASS_ON(play_step(&rig, &lane, &played->made[i]));
    }
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static ist_status run_cases(const scene *s, play *played)
{
    played->scene = s;
    return ist_test_run(s->shape.rank_count, s->cluster, play_main, played);
}

static void run_scene(const scene *asked)
{
    play played = {0};
    scene fitting = *asked;
    const scene *s = &fitting;
    if (!ist_test_has_cluster(s->cluster)) {
        return;
    }
    fitting.shape.rank_count = ist_test_ranks(asked->shape.rank_count);
    ep_shape shape = s->shape;
    for (uint32_t i = 0; i < SCENE_STEPS; ++i) {
        shape.seed = ist_test_seed() * 1000 + s->shape.seed + i;
        assert_true(ep_case_init(&played.made[i], &shape));
    }
    ist_status status = run_cases(s, &played);
    for (uint32_t i = 0; i < SCENE_STEPS; ++i) {
        ep_case_fini(&played.made[i]);
    }
    if (status != IST_OK) {
        printf("# %s%s R %u E %u K %u M %u H %llu dtype %d windows %u lsa_size_max %u\n",
               s->shape.layout == IST_EP_EXPERT_MAJOR ? "EXPERT_MAJOR " : "RANK_MAJOR ",
               s->cluster != NULL ? s->cluster : "", s->shape.rank_count, s->shape.expert_count,
               s->shape.topk, s->shape.tokens_max, (unsigned long long)s->shape.hidden,
               (int)s->shape.dtype, s->lane.windows, s->lsa_size_max);
    }
    assert_int_equal(status, IST_OK);
}

/* In both layouts. */
static void run_both(scene s)
{
    s.shape.layout = IST_EP_EXPERT_MAJOR;
    run_scene(&s);
    s.shape.layout = IST_EP_RANK_MAJOR;
    run_scene(&s);
}

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 8,
                               .topk = 3,
                               .tokens_max = 8,
                               .hidden = 64,
                               .dtype = IST_BF16,
                               .masked_permille = 100};

/* ---- types, operands, teams ------------------------------------------------------------------ */

static void every_type_operand_and_team(void **state)
{
    static const ist_dtype types[] = {IST_BF16, IST_F16, IST_F32};
    static const char *const clusters[] = {NULL, "2x2", "4x1"};
    (void)state;
    for (uint32_t i = 0; i < 3 * 3 * 4 * 2; ++i) {
        scene s = {.shape = usual, .cluster = clusters[i / 3 % 3], .steps = 2};
        s.shape.dtype = types[i % 3];
        s.shape.seed = i;
        s.lane.windows = i / 9 % 4;
        s.lane.window_offset = i % 2 * 256;
        s.lane.id_type = i / 36 == 0 ? IST_I32 : IST_I64;
        run_both(s);
    }
}

static void larger_teams(void **state)
{
    static const char *const clusters[] = {"2x4", "4x2", "1x8", "2x4,nvlink=2", "1x8,nvlink=0"};
    (void)state;
    for (uint32_t i = 0; i < 5; ++i) {
        scene s = {.shape = usual, .cluster = clusters[i], .steps = 3};
        s.shape.rank_count = 8;
        s.shape.expert_count = 16;
        s.shape.topk = 4;
        s.shape.uneven = i % 2;
        s.lane.windows = i % 4;
        run_both(s);
    }
}

/* One host whose team is cut, so that the network is used where load and store would do. */
static void teams_cut_by_the_communicator(void **state)
{
    (void)state;
    for (uint32_t most = 1; most <= 3; ++most) {
        scene s = {.shape = usual, .lsa_size_max = most, .steps = 2};
        s.lane.windows = most;
        run_both(s);
    }
}

static void one_rank(void **state)
{
    scene s = {.shape = usual};
    (void)state;
    s.shape.rank_count = 1;
    s.shape.expert_count = 4;
    run_both(s);
    s.lane.windows = 3;
    run_both(s);
}

/* ---- edges of shapes ------------------------------------------------------------------------- */

static void experts_that_do_not_divide(void **state)
{
    static const uint32_t experts[] = {5, 7, 9, 3, 2, 1};
    (void)state;
    for (uint32_t i = 0; i < 6; ++i) {
        for (uint32_t j = 0; j < 3; ++j) {
            scene s = {.shape = usual, .cluster = j == 0 ? NULL : j == 1 ? "2x2" : "4x1"};
            s.shape.expert_count = experts[i]; /* fewer than ranks: some have none */
            s.shape.topk = experts[i] < 3 ? experts[i] : 3;
            s.shape.seed = i;
            s.lane.windows = i % 4;
            run_both(s);
        }
    }
}

static void smallest_and_largest_k(void **state)
{
    static const char *const clusters[] = {NULL, "2x2", "4x1"};
    (void)state;
    for (uint32_t i = 0; i < 3; ++i) {
        scene s = {.shape = usual, .cluster = clusters[i]};
        s.shape.topk = 1;
        run_both(s);
        s.shape.topk = IST_EP_TOPK_MAX;
        s.shape.expert_count = 40;
        s.shape.tokens_max = 5;
        run_both(s);
        s.shape.expert_count = IST_EP_TOPK_MAX; /* every expert of every token */
        s.shape.masked_permille = 0;
        run_both(s);
    }
}

static void odd_rows(void **state)
{
    static const uint64_t hidden[] = {1, 3, 17, 513};
    static const ist_dtype types[] = {IST_BF16, IST_F32, IST_F16};
    (void)state;
    for (uint32_t i = 0; i < 4 * 2; ++i) {
        scene s = {.shape = usual, .cluster = i % 2 == 0 ? NULL : "2x2"};
        s.shape.hidden = hidden[i / 2];
        s.shape.dtype = types[i % 3];
        s.shape.tokens_max = 7;
        s.lane.windows = i % 4;
        run_both(s);
    }
}

static void uneven_and_no_tokens(void **state)
{
    static const char *const clusters[] = {NULL, "2x2", "4x1"};
    (void)state;
    for (uint32_t i = 0; i < 6; ++i) {
        scene s = {.shape = usual, .cluster = clusters[i % 3], .steps = 4};
        s.shape.uneven = 1; /* the last rank has none */
        s.shape.seed = 10 * i;
        s.lane.windows = i % 4;
        run_both(s);
        s.shape.tokens_max = 1;
        run_both(s);
    }
}

static void nothing_is_sent_for_masked_entries(void **state)
{
    static const uint32_t masked[] = {1000, 900, 500, 0};
    (void)state;
    for (uint32_t i = 0; i < 4 * 2; ++i) {
        scene s = {.shape = usual, .cluster = i % 2 == 0 ? NULL : "2x2"};
        s.shape.masked_permille = masked[i / 2]; /* 1000: all tokens are all -1 */
        run_both(s);
    }
}

static void global_and_local_ids(void **state)
{
    static const ist_ep_id_kind kinds[] = {IST_EP_ID_AUTO, IST_EP_ID_LOCAL, IST_EP_ID_GLOBAL};
    (void)state;
    for (uint32_t i = 0; i < 3 * 2; ++i) {
        scene s = {.shape = usual, .cluster = i % 2 == 0 ? NULL : "2x2"};
        s.shape.layout = IST_EP_RANK_MAJOR;
        s.shape.id_kind = kinds[i / 2];
        s.shape.expert_count = 10;
        s.lane.no_rank_counters = i % 2;
        s.lane.no_lost_counts = i % 2;
        run_scene(&s);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void every_block_count(void **state)
{
    (void)state;
    for (uint32_t blocks = 1; blocks <= 4; ++blocks) {
        for (uint32_t j = 0; j < 3; ++j) {
            scene s = {.shape = usual,
                       .cluster = j == 0   ? NULL
                                  : j == 1 ? "2x2"
                                           : "4x1",
                       .block_count_max = blocks,
                       .steps = 2};
            s.shape.hidden = 4096;
            s.lane.windows = blocks % 4;
            run_both(s);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_operand_and_team),
        cmocka_unit_test(larger_teams),
        cmocka_unit_test(teams_cut_by_the_communicator),
        cmocka_unit_test(one_rank),
        cmocka_unit_test(experts_that_do_not_divide),
        cmocka_unit_test(smallest_and_largest_k),
        cmocka_unit_test(odd_rows),
        cmocka_unit_test(uneven_and_no_tokens),
        cmocka_unit_test(nothing_is_sent_for_masked_entries),
        cmocka_unit_test(global_and_local_ids),
        cmocka_unit_test(every_block_count),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep exact", tests, NULL, NULL);
}
