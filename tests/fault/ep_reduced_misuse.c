/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a reduced combine that cannot be right says so on every rank, in bounded time, and presents no
 * wrong byte. Method: one rank combines another dispatch than the others; one rank's handle memory is
 * overwritten; records and outputs are looked at on all.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <string.h>

#define DEADLINE_NS 1000000u
#define RANKS 4u

typedef struct scene {
    uint32_t blocks;
    ep_case made[2];
} scene;

static ist_status open_all(ist_world *world, const scene *s, ep_rig *rig, ep_lane *lanes)
{
    ep_rig_setup setup = {.expert_count = s->made[0].oracle.expert_count,
                          .tokens_max = s->made[0].oracle.tokens_max,
                          .topk_max = s->made[0].oracle.topk,
                          .row_bytes_max = s->made[0].oracle.hidden * 4u,
                          .order = IST_EP_COMBINE_REDUCED,
                          .fault_tolerant = 1,
                          .deadline_ns = DEADLINE_NS,
                          .block_count_max = s->blocks};
    ep_lane_setup how = {.own_memory = 1};
    EXPECT_OK(world, ep_rig_open(world, &setup, rig));
    for (uint32_t i = 0; i < 2; ++i) {
        EXPECT_OK(world, ep_lane_open(rig, &s->made[i], &how, &lanes[i]));
        EXPECT_OK(world, ep_lane_load(&lanes[i], &s->made[i]));
        EXPECT_OK(world, ep_lane_route(&lanes[i], rig->stream));
        EXPECT_OK(world, ep_lane_dispatch(&lanes[i], rig->stream, 0));
        EXPECT_DISPATCHED(&lanes[i]);
        EXPECT_OK(world, ep_lane_work(&lanes[i]));
    }
    return IST_OK;
}

static ist_status close_all(ep_rig *rig, ep_lane *lanes)
{
    ist_world *world = rig->world;
    EXPECT(world, ist_world_clock_ns(world) < 100ull * DEADLINE_NS);
    EXPECT_OK(world, ist_world_sleep(world, 100ull * DEADLINE_NS));
    EXPECT_OK(world, ep_lane_close(&lanes[0]));
    EXPECT_OK(world, ep_lane_close(&lanes[1]));
    EXPECT_OK(world, ep_rig_close(rig));
    return IST_OK;
}

static ist_status combine(ep_lane *lane)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_combine(lane, lane->rig->stream, 0));
    EXPECT_OK(world, ist_stream_sync(lane->rig->stream, 0));
    EXPECT_OK(world, ep_lane_read_record(lane, IST_EP_OP_COMBINE));
    return IST_OK;
}

/* Rank 1 combines the first dispatch, the others the second. */
static ist_status other_dispatch_main(ist_world *world, void *arg)
{
    ep_rig rig;
    ep_lane lanes[2];
    ep_lane_finding finding = {0};
    IST_TEST_PASS_ON(open_all(world, arg, &rig, lanes));
    ep_lane *lane = &lanes[rig.rank == 1 ? 0 : 1];
    IST_TEST_PASS_ON(combine(lane));
    const ist_completion *record = &lane->record[IST_EP_OP_COMBINE];
    EXPECT_EQUAL(world, record->complete, 0);
    EXPECT(world, record->status == IST_ERR_MISMATCH || record->status == IST_ERR_EVICTED);
    if (record->status == IST_ERR_MISMATCH && rig.rank != 1) {
        EXPECT_EQUAL(world, lane->lost[IST_EP_OP_COMBINE][0], 2);
        EXPECT_OK(world, ep_lane_check_combine(lane, &finding));
        EXPECT_EQUAL(world, finding.wrong, 0);
    }
    return close_all(&rig, lanes);
}

/* Rank 1's handle is not what its calls take it for. */
static ist_status overwritten_main(ist_world *world, void *arg)
{
    ep_rig rig;
    ep_lane lanes[2];
    ep_lane_finding finding = {0};
    IST_TEST_PASS_ON(open_all(world, arg, &rig, lanes));
    if (rig.rank == 1) {
        EXPECT_OK(world, ist_fill(rig.stream, lanes[1].handle_memory, 0x5a, 64));
    }
    IST_TEST_PASS_ON(combine(&lanes[1]));
    const ist_completion *record = &lanes[1].record[IST_EP_OP_COMBINE];
    EXPECT_EQUAL(world, record->complete, 0);
    EXPECT_EQUAL(world, record->status, rig.rank == 1 ? IST_ERR_OBJECT : IST_INCOMPLETE);
    if (rig.rank != 1) {
        EXPECT_EQUAL(world, lanes[1].lost[IST_EP_OP_COMBINE][0], 2);
        EXPECT_OK(world, ep_lane_check_combine(&lanes[1], &finding));
        EXPECT_EQUAL(world, finding.wrong, 0);
    }
    return close_all(&rig, lanes);
}

static void run(ist_rank_fn rank_main)
{
    for (uint32_t blocks = 1; blocks < 4; ++blocks) {
        scene s = {.blocks = blocks};
        ep_shape shape = {.rank_count = RANKS,
                          .expert_count = 6,
                          .topk = 3,
                          .tokens_max = 4,
                          .hidden = blocks == 1 ? 8 : 2048, /* a block for 16 KiB of rows */
                          .dtype = IST_F32,
                          .layout = IST_EP_EXPERT_MAJOR,
                          .order = IST_EP_COMBINE_REDUCED};
        for (uint32_t i = 0; i < 2; ++i) {
            shape.seed = ist_test_seed() * 2u + i;
            assert_true(ep_case_init(&s.made[i], &shape));
        }
        assert_int_equal(ist_test_run(RANKS, "1x4", rank_main, &s), IST_OK);
        ep_case_fini(&s.made[0]);
        ep_case_fini(&s.made[1]);
    }
}

static void a_rank_combines_another_dispatch(void **state)
{
    (void)state;
    run(other_dispatch_main);
}

static void a_handle_is_overwritten(void **state)
{
    (void)state;
    run(overwritten_main);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_combines_another_dispatch),
        cmocka_unit_test(a_handle_is_overwritten),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep reduced misuse", tests, NULL, NULL);
}
