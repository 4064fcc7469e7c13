/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: captured operations deliver what the contents of their tensors ask for at each replay, with
 * routing that changes too when the update is captured. Method: one graph of an operation replayed
 * with new tokens, and one graph of update, dispatch, and combine replayed with new everything;
 * every replay is compared with the oracle.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define REPLAYS 20u

typedef struct scene {
    ep_shape shape;
    const char *cluster;
    uint32_t windows;
    uint32_t staged;
    ep_case made[REPLAYS];
} scene;

/* Experts that do nothing: combine's input is then a copy that a graph can make. */
static void same_expert(const void *context, uint32_t expert, void *row)
{
    (void)context;
    (void)expert;
    (void)row;
}

static void same_rank(const void *context, uint32_t rank, const int32_t *ids, const float *weights,
                      void *row)
{
    (void)context;
    (void)rank;
    (void)ids;
    (void)weights;
    (void)row;
}

static ist_status open_scene(ist_world *world, const scene *s, ep_rig *rig, ep_lane *lane)
{
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    ep_lane_setup how = {.windows = s->windows, .id_type = IST_I64};
    setup.staged_count_max = 2;
    EXPECT_OK(world, ep_rig_open(world, &setup, rig));
    EXPECT_OK(world, ep_lane_open(rig, &s->made[0], &how, lane));
    return IST_OK;
}

static ist_status close_scene(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    EXPECT_OK(world, ist_comm_barrier(rig->comm, rig->stream));
    EXPECT_OK(world, ist_stream_sync(rig->stream, 0));
    EXPECT_OK(world, ep_lane_close(lane));
    EXPECT_OK(world, ep_rig_close(rig));
    return IST_OK;
}

/* ---- one operation a graph ------------------------------------------------------------------- */

static ist_status capture_op(ep_lane *lane, ist_ep_op op, uint32_t staged, ist_graph **graph)
{
    ist_world *world = lane->rig->world;
    ist_stream *stream = lane->rig->stream;
    EXPECT_OK(world, ist_graph_begin(stream));
    if (op == IST_EP_OP_DISPATCH) {
        EXPECT_OK(world, ep_lane_dispatch(lane, stream, staged));
    } else {
        EXPECT_OK(world, ep_lane_combine(lane, stream, staged));
    }
    EXPECT_OK(world, ist_ep_complete(lane->handle, stream));
    EXPECT_OK(world, ist_graph_end(stream, graph));
    return IST_OK;
}

static ist_status replay_ops(const scene *s, ep_lane *lane, ist_graph *dispatch, ist_graph *combine)
{
    ist_world *world = lane->rig->world;
    ist_stream *stream = lane->rig->stream;
    for (uint32_t i = 0; i < REPLAYS; ++i) {
        EXPECT_OK(world, ep_lane_load(lane, &s->made[i]));
        EXPECT_OK(world, ist_graph_launch(dispatch, stream));
        EXPECT_DISPATCHED(lane);
        EXPECT_OK(world, ep_lane_work(lane));
        EXPECT_OK(world, ist_graph_launch(combine, stream));
        EXPECT_COMBINED(lane);
    }
    return IST_OK;
}

static ist_status ops_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ist_graph *dispatch = NULL;
    ist_graph *combine = NULL;
    IST_TEST_PASS_ON(open_scene(world, s, &rig, &lane));
    EXPECT_OK(world, ep_lane_load(&lane, &s->made[0]));
    EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
    IST_TEST_PASS_ON(capture_op(&lane, IST_EP_OP_DISPATCH, s->staged, &dispatch));
    IST_TEST_PASS_ON(capture_op(&lane, IST_EP_OP_COMBINE, s->staged, &combine));
    IST_TEST_PASS_ON(replay_ops(s, &lane, dispatch, combine));
    EXPECT_OK(world, ist_graph_close(dispatch));
    EXPECT_OK(world, ist_graph_close(combine));
    return close_scene(&rig, &lane);
}

/* ---- all of it in one graph ------------------------------------------------------------------ */

static ist_status capture_all(const scene *s, ep_lane *lane, ist_graph **graph)
{
    ist_world *world = lane->rig->world;
    ist_stream *stream = lane->rig->stream;
    uint64_t bytes = lane->block_count * lane->block_rows * lane->row_bytes;
    EXPECT_OK(world, ist_graph_begin(stream));
    EXPECT_OK(world, ep_lane_route(lane, stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, stream, s->staged));
    EXPECT_OK(world, ist_ep_complete(lane->handle, stream));
    if (bytes != 0) {
        EXPECT_OK(world, ist_copy(stream, lane->worked, lane->received, bytes));
    }
    EXPECT_OK(world, ep_lane_combine(lane, stream, s->staged));
    EXPECT_OK(world, ist_ep_complete(lane->handle, stream));
    EXPECT_OK(world, ist_graph_end(stream, graph));
    return IST_OK;
}

static ist_status all_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ist_graph *graph = NULL;
    IST_TEST_PASS_ON(open_scene(world, s, &rig, &lane));
    EXPECT_OK(world, ep_lane_load(&lane, &s->made[0]));
    IST_TEST_PASS_ON(capture_all(s, &lane, &graph));
    for (uint32_t i = 0; i < REPLAYS; ++i) {
        EXPECT_OK(world, ep_lane_load(&lane, &s->made[i]));
        EXPECT_OK(world, ist_graph_launch(graph, rig.stream));
        EXPECT_DISPATCHED(&lane);
        EXPECT_COMBINED(&lane);
    }
    /* Replays behind each other, with nobody in between. */
    for (uint32_t i = 0; i < REPLAYS; ++i) {
        EXPECT_OK(world, ist_graph_launch(graph, rig.stream));
    }
    EXPECT_DISPATCHED(&lane);
    EXPECT_COMBINED(&lane);
    EXPECT_OK(world, ist_graph_close(graph));
    return close_scene(&rig, &lane);
}

/* ---- scenes ---------------------------------------------------------------------------------- */

static void run_scene(scene *s, ist_rank_fn program, bool new_routing)
{
    if (!ist_test_has_cluster(s->cluster)) {
        return;
    }
    for (uint32_t i = 0; i < REPLAYS; ++i) {
        ep_shape shape = s->shape;
        shape.seed = ist_test_seed() * 1000 + (new_routing ? i : 0);
        assert_true(ep_case_init_step(&s->made[i], &shape, i));
        if (new_routing) {
            s->made[i].oracle.expert = same_expert;
            s->made[i].oracle.rank = same_rank;
        }
    }
    ist_status status = ist_test_run(s->shape.rank_count, s->cluster, program, s);
    for (uint32_t i = 0; i < REPLAYS; ++i) {
        ep_case_fini(&s->made[i]);
    }
    assert_int_equal(status, IST_OK);
}

static void run_all(ist_rank_fn program, bool new_routing)
{
    static const char *const clusters[] = {NULL, "2x2", "4x1"};
    for (uint32_t i = 0; i < 3 * 2 * 2; ++i) {
        scene *s = calloc(1, sizeof(*s));
        assert_non_null(s);
        s->shape = (ep_shape){.rank_count = ist_test_ranks(4),
                              .expert_count = 9,
                              .topk = 3,
                              .tokens_max = 7,
                              .hidden = 40,
                              .dtype = IST_BF16,
                              .layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR,
                              .masked_permille = 150};
        s->cluster = clusters[i / 4];
        s->windows = i % 4;
        s->staged = i / 2 % 2;
        run_scene(s, program, new_routing);
        free(s);
    }
}

static void replays_carry_new_tokens(void **state)
{
    (void)state;
    run_all(ops_main, false);
}

static void replays_carry_new_routing(void **state)
{
    (void)state;
    run_all(all_main, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_carry_new_tokens),
        cmocka_unit_test(replays_carry_new_routing),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep graphs", tests, NULL, NULL);
}
