/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the reduced combine delivers the bits that ep.h says, whatever the shape, type, operands,
 * number of blocks, halves and graphs, and is refused where it cannot be. Method: the oracle sums by
 * rank with plain loops; whole outputs, poison included, are compared with it.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define STEPS 3u

typedef struct scene {
    ep_shape shape;
    uint32_t block_count_max;
    ep_lane_setup lane;
    ist_ep_zero_copy zero_copy;
    ep_case made[STEPS];
} scene;

static const ep_shape usual = {.rank_count = 4,
                               .expert_count = 8,
                               .topk = 4,
                               .tokens_max = 8,
                               .hidden = 64,
                               .dtype = IST_BF16,
                               .layout = IST_EP_EXPERT_MAJOR,
                               .order = IST_EP_COMBINE_REDUCED,
                               .masked_permille = 100};

static ist_status open_scene(ist_world *world, const scene *s, uint32_t slots, ep_rig *rig)
{
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    setup.block_count_max = s->block_count_max;
    setup.staged_count_max = slots;
    setup.zero_copy = s->zero_copy;
    EXPECT_OK(world, ep_rig_open(world, &setup, rig));
    return IST_OK;
}

static ist_status close_scene(ep_rig *rig, ep_lane *lane, ep_lane *other)
{
    ist_world *world = rig->world;
    EXPECT_OK(world, ist_comm_barrier(rig->comm, rig->stream));
    EXPECT_OK(world, ist_stream_sync(rig->stream, 0));
    EXPECT_OK(world, ep_lane_close(lane));
    if (other != NULL) {
        EXPECT_OK(world, ep_lane_close(other));
    }
    EXPECT_OK(world, ep_rig_close(rig));
    return IST_OK;
}

static ist_status dispatch(ep_lane *lane, const ep_case *made)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_load(lane, made));
    EXPECT_OK(world, ep_lane_route(lane, lane->rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, lane->rig->stream, lane->setup.staged & 1u));
    EXPECT_OK(world, ist_ep_complete(lane->handle, lane->rig->stream));
    EXPECT_DISPATCHED(lane);
    EXPECT_OK(world, ep_lane_work(lane));
    return IST_OK;
}

static ist_status combine(ep_lane *lane)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_combine(lane, lane->rig->stream, lane->setup.staged >> 1));
    EXPECT_OK(world, ist_ep_complete(lane->handle, lane->rig->stream));
    EXPECT_COMBINED(lane);
    return IST_OK;
}

static ist_status scene_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    IST_TEST_PASS_ON(open_scene(world, s, 1, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[0], &s->lane, &lane));
    for (uint32_t i = 0; i < STEPS; ++i) {
        IST_TEST_PASS_ON(dispatch(&lane, &s->made[i]));
        IST_TEST_PASS_ON(combine(&lane));
        IST_TEST_PASS_ON(combine(&lane)); /* nothing is used up */
    }
    return close_scene(&rig, &lane, NULL);
}

static void tell(const scene *s)
{
    printf("# R %u E %u K %u M %u H %llu dtype %d layout %d windows %u staged %u blocks %u\n",
           s->shape.rank_count, s->shape.expert_count, s->shape.topk, s->shape.tokens_max,
           (unsigned long long)s->shape.hidden, (int)s->shape.dtype, (int)s->shape.layout,
           s->lane.windows, s->lane.staged, s->block_count_max);
}

static void run(const scene *asked, ist_rank_fn rank_main)
{
    scene s = *asked;
    char cluster[32];
    s.shape.rank_count = ist_test_ranks(asked->shape.rank_count);
    if (s.block_count_max > 1 && s.shape.hidden == usual.hidden) {
        s.shape.hidden = 2048; /* a block is started for 16 KiB of rows */
    }
    for (uint32_t i = 0; i < STEPS; ++i) {
        ep_shape shape = s.shape;
        shape.seed = ist_test_seed() * 1000 + asked->shape.seed + i;
        assert_true(ep_case_init(&s.made[i], &shape));
    }
    snprintf(cluster, sizeof(cluster), "1x%u,sms=8", s.shape.rank_count);
    ist_status status =
        ist_test_run(s.shape.rank_count, ist_test_on_simulator() ? cluster : NULL, rank_main, &s);
    for (uint32_t i = 0; i < STEPS; ++i) {
        ep_case_fini(&s.made[i]);
    }
    if (status != IST_OK) {
        tell(&s);
    }
    assert_int_equal(status, IST_OK);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void every_type_operand_and_block_count(void **state)
{
    static const ist_dtype types[] = {IST_BF16, IST_F16, IST_F32};
    static const uint32_t blocks[] = {1, 2, 3, 8};
    (void)state;
    for (uint32_t i = 0; i < 3 * 4 * 4; ++i) {
        scene s = {.shape = usual, .block_count_max = blocks[i / 12]};
        s.shape.dtype = types[i % 3];
        s.shape.seed = i;
        s.lane.windows = i / 3 % 4;
        s.lane.window_offset = i % 2 * 256;
        run(&s, scene_main);
    }
}

static void edges_of_shapes(void **state)
{
    static const struct {
        uint32_t ranks, experts, topk, tokens, hidden, masked, uneven;
    } edges[] = {
        {1, 4, 3, 8, 64, 0, 0},     {2, 2, 1, 1, 8, 0, 0},      {4, 3, 2, 5, 64, 100, 0},
        {4, 1, 1, 4, 16, 0, 0},     {3, 7, 7, 6, 1, 50, 1},     {5, 9, 4, 3, 13, 300, 1},
        {4, 64, 32, 40, 40, 50, 0}, {8, 16, 8, 20, 1500, 0, 1}, {4, 8, 4, 8, 3001, 1000, 0},
        {2, 8, 8, 70, 124, 0, 0},   {6, 12, 5, 33, 40, 900, 1},
    };
    (void)state;
    for (uint32_t i = 0; i < 4 * sizeof(edges) / sizeof(*edges); ++i) {
        uint32_t e = i / 4;
        scene s = {.shape = usual, .block_count_max = 1 + i % 4};
        s.shape.rank_count = edges[e].ranks;
        s.shape.expert_count = edges[e].experts;
        s.shape.topk = edges[e].topk;
        s.shape.tokens_max = edges[e].tokens;
        s.shape.hidden = edges[e].hidden;
        s.shape.masked_permille = edges[e].masked;
        s.shape.uneven = edges[e].uneven;
        s.shape.dtype = i % 2 == 0 ? IST_BF16 : IST_F32;
        s.shape.seed = i;
        s.lane.no_lost_counts = i % 2;
        run(&s, scene_main);
    }
}

/* Nobody pulls the experts' rows, so they may be plain where all that is pulled must be windows. */
static void plain_outputs_with_zero_copy(void **state)
{
    scene s = {.shape = usual, .zero_copy = IST_EP_ZERO_COPY_ON, .lane = {.windows = 1}};
    (void)state;
    run(&s, scene_main);
}

static void rank_major_in_such_a_group(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; ++i) {
        scene s = {.shape = usual, .lane = {.windows = i}};
        s.shape.layout = IST_EP_RANK_MAJOR;
        run(&s, scene_main);
    }
}

/* ---- halves, handles, graphs ------------------------------------------------------------------- */

static void in_two_halves(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < 4; ++i) {
        scene s = {.shape = usual, .block_count_max = i, .lane = {.staged = i}};
        run(&s, scene_main);
    }
}

/* Two handles: dispatch, dispatch, combine, combine; then both combines at once, ended in reverse. */
static ist_status crossing_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane a, b;
    IST_TEST_PASS_ON(open_scene(world, s, 2, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[0], &s->lane, &a));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[1], &s->lane, &b));
    IST_TEST_PASS_ON(dispatch(&a, &s->made[0]));
    IST_TEST_PASS_ON(dispatch(&b, &s->made[1]));
    IST_TEST_PASS_ON(combine(&a));
    IST_TEST_PASS_ON(combine(&b));
    EXPECT_OK(world, ep_lane_combine(&a, rig.stream, 1));
    EXPECT_OK(world, ep_lane_combine(&b, rig.stream, 1));
    EXPECT_OK(world, ist_ep_complete(b.handle, rig.stream));
    EXPECT_COMBINED(&b);
    EXPECT_OK(world, ist_ep_complete(a.handle, rig.stream));
    EXPECT_COMBINED(&a);
    return close_scene(&rig, &a, &b);
}

static void handles_that_cross(void **state)
{
    (void)state;
    for (uint32_t blocks = 1; blocks < 4; ++blocks) {
        scene s = {.shape = usual, .block_count_max = blocks};
        run(&s, crossing_main);
    }
}

static ist_status replay_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ist_graph *graph = NULL;
    IST_TEST_PASS_ON(open_scene(world, s, 1, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[0], &s->lane, &lane));
    IST_TEST_PASS_ON(dispatch(&lane, &s->made[0]));
    EXPECT_OK(world, ist_graph_begin(rig.stream));
    EXPECT_OK(world, ep_lane_combine(&lane, rig.stream, s->lane.staged));
    EXPECT_OK(world, ist_ep_complete(lane.handle, rig.stream));
    EXPECT_OK(world, ist_graph_end(rig.stream, &graph));
    for (uint32_t i = 0; i < 20; ++i) {
        EXPECT_OK(world, ist_fill(rig.stream, lane.combined, 0xa5,
                                  (lane.tokens_max + 1u) * lane.row_bytes));
        EXPECT_OK(world, ist_graph_launch(graph, rig.stream));
        EXPECT_COMBINED(&lane);
    }
    EXPECT_OK(world, ist_graph_close(graph));
    return close_scene(&rig, &lane, NULL);
}

static void replayed(void **state)
{
    (void)state;
    for (uint32_t staged = 0; staged < 2; ++staged) {
        scene s = {.shape = usual, .block_count_max = 4, .lane = {.staged = staged}};
        run(&s, replay_main);
    }
}

/* ---- numbers ------------------------------------------------------------------------------------ */

/* Rounding by rank is told apart from one rounding: 1 + 2^-8 rounds to 1 on each of two ranks. */
static ist_status rounding_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_oracle strict = s->made[0].oracle;
    uint64_t differ = 0;
    uint8_t scratch[2 * 128], one[128], other[128];
    float sums[2 * 64];
    strict.order = IST_EP_COMBINE_STRICT;
    for (uint32_t token = 0; token < s->made[0].token_counts[0]; ++token) {
        ep_oracle_combine(&strict, 0, token, NULL, scratch, sums, one);
        ep_oracle_combine(&s->made[0].oracle, 0, token, NULL, scratch, sums, other);
        differ += memcmp(one, other, sizeof(one)) != 0;
    }
    EXPECT(world, differ != 0);
    return IST_OK;
}

static void the_orders_differ(void **state)
{
    scene s = {.shape = usual};
    (void)state;
    run(&s, rounding_main);
}

/* ---- opening ------------------------------------------------------------------------------------ */

static ist_status refusals_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_ep_group *group = NULL;
    uint64_t strict = 0, reduced = 0;
    uint32_t ranks = ist_world_rank_count(world);
    ist_ep_group_desc desc = {
        .size = sizeof(desc), .expert_count = 8, .tokens_per_rank_max = 16, .token_bytes_max = 256};
    (void)arg;
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_OK(world, ist_ep_group_bytes(comm, &desc, &strict));
    desc.combine_order = IST_EP_COMBINE_REDUCED;
    EXPECT_OK(world, ist_ep_group_bytes(comm, &desc, &reduced));
    EXPECT(world, reduced >= strict + ranks * 2u * 16u * 256u &&
                      reduced < strict + ranks * (2u * 16u * 256u + 16u * 16u * 8u) + 256);
    desc.combine_order = (ist_ep_combine_order)2;
    EXPECT_REFUSED(world, ist_ep_group_open(comm, &desc, &group), IST_ERR_ARGUMENT,
                   "desc.combine_order");
    desc.combine_order = (ist_ep_combine_order)(ist_world_rank(world) == 0);
    EXPECT_STATUS(world, ist_ep_group_open(comm, &desc, &group), IST_ERR_MISMATCH);
    desc.combine_order = IST_EP_COMBINE_REDUCED;
    EXPECT_OK(world, ist_ep_group_open(comm, &desc, &group));
    ist_ep_group_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_ep_group_query(group, &info));
    EXPECT_EQUAL(world, info.combine_order, IST_EP_COMBINE_REDUCED);
    EXPECT_EQUAL(world, info.device_bytes, reduced);
    EXPECT_OK(world, ist_ep_group_close(group));
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static ist_status cut_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_ep_group *group = NULL;
    ist_comm_desc cut = {.size = sizeof(cut), .lsa_size_max = 1};
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = 8,
                              .tokens_per_rank_max = 16,
                              .token_bytes_max = 256,
                              .combine_order = IST_EP_COMBINE_REDUCED};
    (void)arg;
    EXPECT_OK(world, ist_comm_open(world, &cut, &comm));
    EXPECT_REFUSED(world, ist_ep_group_open(comm, &desc, &group), IST_ERR_UNSUPPORTED,
                   "desc.combine_order");
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static void opened_or_refused(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, refusals_main, NULL), IST_OK);
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, cut_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_operand_and_block_count),
        cmocka_unit_test(edges_of_shapes),
        cmocka_unit_test(plain_outputs_with_zero_copy),
        cmocka_unit_test(rank_major_in_such_a_group),
        cmocka_unit_test(in_two_halves),
        cmocka_unit_test(handles_that_cross),
        cmocka_unit_test(replayed),
        cmocka_unit_test(the_orders_differ),
        cmocka_unit_test(opened_or_refused),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep reduced", tests, NULL, NULL);
}
