/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: dispatch and combine are exact for any shape, routing, type, operand, team, block count and
 * link model, and a run is a function of its seed. Method: cases drawn from the seed, every output
 * byte compared with the oracle, each world run twice for one digest. `--cases N`; `--first N`
 * begins at case N, which with `--cases 1` repeats one.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 2u

static uint32_t case_count = 200;
static uint32_t case_first;

typedef struct draw {
    ep_shape shape;
    char cluster[64];
    ep_rig_setup rig;
    ep_lane_setup lane;
    uint32_t staged;   /* 1: dispatch, 2: combine; or-ed */
    uint32_t one_team; /* 1: for the reduced combine */
    ist_link_model links;
    ep_case made[STEPS];
} draw;

static uint32_t between(uint64_t *state, uint32_t low, uint32_t high)
{
    return low + ist_test_random_below(state, high - low + 1u);
}

/* Nodes times GPUs, and domains that divide a node. */
static void draw_cluster(draw *d, uint64_t *state)
{
    static const struct {
        const char *text;
        uint32_t ranks;
    } shapes[] = {
        {"1x1", 1}, {"1x2", 2},          {"2x1", 2},          {"1x3", 3}, {"3x1", 3},  {"1x4", 4},
        {"2x2", 4}, {"4x1", 4},          {"1x4,nvlink=2", 4}, {"1x5", 5}, {"5x1", 5},  {"1x6", 6},
        {"2x3", 6}, {"3x2", 6},          {"1x7", 7},          {"7x1", 7}, {"1x8", 8},  {"2x4", 8},
        {"4x2", 8}, {"2x4,nvlink=2", 8}, {"8x1", 8},          {"3x3", 9}, {"2x6", 12},
    };
    uint32_t i = ist_test_random_below(state, sizeof(shapes) / sizeof(*shapes));
    snprintf(d->cluster, sizeof(d->cluster), "%s,sms=%u", shapes[i].text, between(state, 1, 8));
    d->shape.rank_count = shapes[i].ranks;
}

/* One team, whose ranks sum their own rows, with rows that are long enough for several blocks. */
static void draw_team(draw *d, uint64_t *state)
{
    d->one_team = 1;
    d->shape.rank_count = between(state, 1, 8);
    snprintf(d->cluster, sizeof(d->cluster), "1x%u,sms=%u", d->shape.rank_count,
             between(state, 1, 8));
    d->shape.order = IST_EP_COMBINE_REDUCED;
    d->shape.layout =
        ist_test_random_below(state, 8) == 0 ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR;
    if (ist_test_random_below(state, 3) == 0) {
        d->shape.hidden = between(state, 1000, 5000);
    }
}

static void draw_shape(draw *d, uint64_t *state)
{
    static const ist_dtype types[] = {IST_BF16, IST_F16, IST_F32};
    static const uint32_t masked[] = {0, 50, 300, 900, 1000};
    ep_shape *shape = &d->shape;
    shape->seed = ist_test_random(state);
    shape->expert_count = between(state, 1, 30);
    shape->topk = between(state, 1, shape->expert_count < 12 ? shape->expert_count : 12);
    shape->tokens_max = between(state, 1, 20);
    shape->hidden =
        ist_test_random_below(state, 4) == 0 ? between(state, 1, 1500) : 8u * between(state, 1, 20);
    shape->dtype = types[ist_test_random_below(state, 3)];
    shape->layout = ist_test_random_below(state, 2) == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
    shape->id_kind = (ist_ep_id_kind)ist_test_random_below(state, 3);
    shape->masked_permille = masked[ist_test_random_below(state, 5)];
    shape->uneven = ist_test_random_below(state, 2);
}

static void draw_how(draw *d, uint64_t *state)
{
    d->rig = ep_rig_setup_for(&d->shape);
    d->rig.tokens_max = d->shape.tokens_max;
    d->rig.topk_max = d->shape.topk + ist_test_random_below(state, 3);
    d->rig.row_bytes_max += 16u * ist_test_random_below(state, 3);
    d->rig.staged_count_max = between(state, 1, 3);
    d->rig.context_count = ist_test_random_below(state, 4);
    d->rig.fault_tolerant = ist_test_random_below(state, 2);
    d->rig.lsa_size_max =
        ist_test_random_below(state, 3) == 0 ? between(state, 1, d->shape.rank_count) : 0;
    d->lane.windows = ist_test_random_below(state, 4);
    d->lane.window_offset = 2u * ist_test_random_below(state, 100);
    d->lane.own_memory = ist_test_random_below(state, 2);
    d->lane.id_type = ist_test_random_below(state, 2) == 0 ? IST_I32 : IST_I64;
    d->lane.no_lost_counts = ist_test_random_below(state, 2);
    d->lane.no_rank_counters = ist_test_random_below(state, 2);
    if (d->lane.windows == 3 && ist_test_random_below(state, 2) == 0) {
        d->rig.zero_copy = IST_EP_ZERO_COPY_ON;
    }
    if (d->shape.dtype == IST_F32) {
        d->lane.window_offset *= 2u;
    }
    if (d->one_team) {
        d->rig.lsa_size_max = 0;
        d->rig.order = d->shape.order;
    }
    d->staged = ist_test_random_below(state, 4);
    d->links = ist_test_random_below(state, 2) == 0 ? IST_LINKS_IN_ORDER : IST_LINKS_MAX_MIN;
}

static ist_status end_half(ep_lane *lane, uint32_t staged)
{
    return staged != 0 ? ist_ep_complete(lane->handle, lane->rig->stream) : IST_OK;
}

static ist_status play(ep_lane *lane, const draw *d, uint32_t step)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_load(lane, &d->made[step]));
    EXPECT_OK(world, ep_lane_route(lane, lane->rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, lane->rig->stream, d->staged & 1u));
    EXPECT_OK(world, end_half(lane, d->staged & 1u));
    EXPECT_DISPATCHED(lane);
    EXPECT_OK(world, ep_lane_work(lane));
    EXPECT_OK(world, ep_lane_combine(lane, lane->rig->stream, d->staged >> 1));
    EXPECT_OK(world, end_half(lane, d->staged >> 1));
    EXPECT_COMBINED(lane);
    return IST_OK;
}

static ist_status draw_main(ist_world *world, void *arg)
{
    const draw *d = arg;
    ep_rig rig;
    ep_lane lane;
    EXPECT_OK(world, ep_rig_open(world, &d->rig, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &d->made[0], &d->lane, &lane));
    for (uint32_t i = 0; i < STEPS; ++i) {
        IST_TEST_PASS_ON(play(&lane, d, i));
    }
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static ist_status run_once(draw *d, uint64_t seed, uint64_t *digest)
{
    ist_sim_desc sim = {.size = sizeof(sim), .links = d->links, .log_capacity = 1024};
    ist_world_desc desc = ist_test_desc(d->shape.rank_count, d->cluster);
    ist_world_result result = {.size = sizeof(result)};
    desc.seed = seed;
    desc.sim = ist_test_on_simulator() ? &sim : NULL;
    ist_status status = ist_test_run_desc(&desc, draw_main, d, &result);
    *digest = result.digest;
    return status;
}

static void tell(const draw *d, uint32_t number)
{
    printf("# case %u: %s lsa_size_max %u, layout %d, dtype %d, E %u K %u of %u, M %u H %" PRIu64
           ", windows %u + %u, staged %u\n",
           number, d->cluster, d->rig.lsa_size_max, (int)d->shape.layout, (int)d->shape.dtype,
           d->shape.expert_count, d->shape.topk, d->rig.topk_max, d->shape.tokens_max,
           d->shape.hidden, d->lane.windows, d->lane.window_offset, d->staged);
}

static bool run_case(uint32_t number, bool reduced)
{
    uint64_t state = ist_test_seed() * 1000003u + number;
    uint64_t first = 0, second = 0;
    draw *d = calloc(1, sizeof(*d));
    bool good = d != NULL;
    if (!good) {
        return false;
    }
    draw_cluster(d, &state);
    draw_shape(d, &state);
    if (reduced) {
        draw_team(d, &state);
    }
    draw_how(d, &state);
    for (uint32_t i = 0; i < STEPS; ++i) {
        ep_shape shape = d->shape;
        shape.seed += i;
        good = good && ep_case_init(&d->made[i], &shape);
    }
    good = good && run_once(d, number, &first) == IST_OK &&
           run_once(d, number, &second) == IST_OK && first == second;
    if (!good) {
        tell(d, number);
        printf("# digests %016" PRIx64 " and %016" PRIx64 "; repeat with --seed %" PRIu64
               " --first %u --cases 1\n",
               first, second, ist_test_seed(), number);
    }
    for (uint32_t i = 0; i < STEPS; ++i) {
        ep_case_fini(&d->made[i]);
    }
    free(d);
    return good;
}

static void any_exchange_is_exact(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < case_count; ++i) {
        failures += run_case(case_first + i, false) ? 0 : 1;
    }
    printf("# %u cases, %u failed\n", case_count, failures);
    assert_int_equal(failures, 0);
}

static void any_reduced_exchange_is_exact(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < case_count; ++i) {
        failures += run_case(case_first + i, true) ? 0 : 1;
    }
    printf("# %u reduced cases, %u failed\n", case_count, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_exchange_is_exact),
        cmocka_unit_test(any_reduced_exchange_is_exact),
    };
    ist_test_init(argc, argv);
    case_count = ist_test_option(argc, argv, "--cases", case_count);
    case_first = ist_test_option(argc, argv, "--first", case_first);
    return cmocka_run_group_tests_name("ep random", tests, NULL, NULL);
}
