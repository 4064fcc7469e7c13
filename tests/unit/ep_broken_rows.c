/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank whose descriptors name rows that it does not have is dropped by the receiver, the record
 * says so, and when it has been re-admitted nothing of that is left. Method: a descriptor in the handle
 * of one rank is overwritten after its routing, as a program that writes astray does; one block, or
 * several; a clean; a step.
 */
#include "ep/ep_layout.h"
#include "ep_rig.h"

#include <cmocka.h>
#include <string.h>

#define DEADLINE_NS 1000000u
#define CLEAN_NS (40ull * DEADLINE_NS)
#define SPOILER 1u /* rank */

static const ep_shape usual = {.rank_count = 3,
                               .expert_count = 6,
                               .topk = 3,
                               .tokens_max = 4,
                               .hidden = 4096, /* rows for several blocks */
                               .dtype = IST_BF16,
                               .layout = IST_EP_EXPERT_MAJOR};

typedef struct scene {
    uint32_t blocks;
    ep_case made[2];
} scene;

/* The first descriptor for rank 0 names a token beyond the last. */
static ist_status spoil(ep_lane *lane)
{
    ist_ep_geometry geometry;
    ist_ep_layout_map at;
    uint32_t token = usual.tokens_max;
    memset(&geometry, 0, sizeof(geometry));
    memset(&at, 0, sizeof(at));
    geometry.rank_count = usual.rank_count;
    geometry.lsa_size = usual.rank_count;
    geometry.expert_count = usual.expert_count;
    geometry.tokens_max = usual.tokens_max;
    uint64_t descs = ist_ep_handle_map_of(&geometry, &at, usual.topk).descs;
    return ist_copy_to_device(lane->rig->stream, (uint8_t *)lane->handle_memory + descs, &token,
                              sizeof(token));
}

static ist_status broken_step(ep_rig *rig, ep_lane *lane, const ep_case *made)
{
    ist_world *world = rig->world;
    const ist_completion *record = &lane->record[IST_EP_OP_DISPATCH];
    EXPECT_OK(world, ep_lane_load(lane, made));
    EXPECT_OK(world, ep_lane_route(lane, rig->stream));
    if (rig->rank == SPOILER) {
        EXPECT_OK(world, spoil(lane));
    }
    EXPECT_OK(world, ep_lane_dispatch(lane, rig->stream, 0));
    EXPECT_OK(world, ist_stream_sync(rig->stream, 0));
    EXPECT_OK(world, ep_lane_read_record(lane, IST_EP_OP_DISPATCH));
    if (rig->rank == 0) {
        EXPECT_EQUAL(world, record->status, IST_INCOMPLETE);
        EXPECT_EQUAL(world, lane->lost[IST_EP_OP_DISPATCH][0], UINT64_C(1) << SPOILER);
    }
    EXPECT(world, rig->rank != SPOILER || record->status == IST_ERR_EVICTED);
    return IST_OK;
}

static ist_status scene_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ep_step step;
    ep_lane_setup how = {.own_memory = 1};
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    setup.fault_tolerant = 1;
    setup.deadline_ns = DEADLINE_NS;
    setup.block_count_max = s->blocks;
    memset(&step, 0, sizeof(step));
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[0], &how, &lane));
    IST_TEST_PASS_ON(broken_step(&rig, &lane, &s->made[0]));
    EXPECT_OK(world, ist_world_sleep(world, CLEAN_NS - ist_world_clock_ns(world)));
    EXPECT_OK(world, ist_ep_clean(rig.group, rig.stream));
    EXPECT_OK(world, ep_lane_step(&lane, &s->made[1], &step));
    EXPECT(world, ep_step_is_perfect(&step));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void nothing_is_left_of_rows_that_were_not_there(void **state)
{
    (void)state;
    for (uint32_t blocks = 1; blocks < 4; ++blocks) {
        scene s = {.blocks = blocks};
        for (uint32_t i = 0; i < 2; ++i) {
            ep_shape shape = usual;
            shape.seed = ist_test_seed() * 10 + i;
            assert_true(ep_case_init(&s.made[i], &shape));
        }
        assert_int_equal(ist_test_run(usual.rank_count, NULL, scene_main, &s), IST_OK);
        ep_case_fini(&s.made[0]);
        ep_case_fini(&s.made[1]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_of_rows_that_were_not_there),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep broken rows", tests, NULL, NULL);
}
