/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: flags that come around the end of the first slice of a wait, where some blocks of a launch
 * have them all and others give the decision to block 0, lose nobody and change no byte. Method: one
 * rank comes late by times around that end, in steps of a fraction of a hop; whole operations and
 * halves, one block to four. `--every N`: steps as long as N.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>

#define DEADLINE_NS 1000000u
#define SLICE_NS (DEADLINE_NS / 4u) /* of the kernels: IST_WIRE_SLICES */
#define AROUND_NS 8000u
#define STEP_NS 16u

static uint32_t every = 25;

typedef struct scene {
    ep_shape shape;
    uint32_t blocks;
    uint32_t staged;
    uint64_t late_ns;
    ep_case made;
} scene;

/* The operation begins on this rank: late on the last. */
static ist_status come(const ep_rig *rig, const scene *s)
{
    bool late = rig->rank + 1u == rig->rank_count;
    return late ? ist_world_sleep(rig->world, s->late_ns) : IST_OK;
}

static ist_status play(ep_rig *rig, const scene *s, ep_lane *lane)
{
    ist_world *world = rig->world;
    EXPECT_OK(world, ep_lane_load(lane, &s->made));
    EXPECT_OK(world, ep_lane_route(lane, rig->stream));
    EXPECT_OK(world, ist_comm_barrier(rig->comm, rig->stream));
    EXPECT_OK(world, ist_stream_sync(rig->stream, 0));
    EXPECT_OK(world, come(rig, s));
    EXPECT_OK(world, ep_lane_dispatch(lane, rig->stream, s->staged));
    EXPECT_OK(world, ist_ep_complete(lane->handle, rig->stream));
    EXPECT_DISPATCHED(lane);
    EXPECT_OK(world, ep_lane_work(lane));
    EXPECT_OK(world, ist_comm_barrier(rig->comm, rig->stream));
    EXPECT_OK(world, ist_stream_sync(rig->stream, 0));
    EXPECT_OK(world, come(rig, s));
    EXPECT_OK(world, ep_lane_combine(lane, rig->stream, s->staged));
    EXPECT_OK(world, ist_ep_complete(lane->handle, rig->stream));
    EXPECT_COMBINED(lane);
    return IST_OK;
}

static ist_status scene_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&s->shape);
    setup.fault_tolerant = 1;
    setup.deadline_ns = DEADLINE_NS;
    setup.block_count_max = s->blocks;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made, NULL, &lane));
    IST_TEST_PASS_ON(play(&rig, s, &lane));
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void run_scene(uint32_t i, uint64_t late_ns)
{
    scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->shape = (ep_shape){.seed = ist_test_seed() * 1000 + i,
                          .rank_count = 4,
                          .expert_count = 6,
                          .topk = 2,
                          .tokens_max = 7,
                          .hidden = 2400, /* rows for several blocks */
                          .dtype = IST_BF16,
                          .layout = i / 4 % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR};
    s->blocks = 1 + i % 4;
    s->staged = i / 8 % 2;
    s->shape.order = i / 16 % 2 == 0 ? IST_EP_COMBINE_STRICT : IST_EP_COMBINE_REDUCED;
    s->late_ns = late_ns;
    assert_true(ep_case_init(&s->made, &s->shape));
    assert_int_equal(ist_test_run(s->shape.rank_count, NULL, scene_main, s), IST_OK);
    ep_case_fini(&s->made);
    free(s);
}

static void flags_come_as_the_slice_ends(void **state)
{
    uint32_t i = 0;
    (void)state;
    for (uint64_t t = SLICE_NS - AROUND_NS; t < SLICE_NS + AROUND_NS; t += STEP_NS * every) {
        for (uint32_t blocks = 0; blocks < 4; ++blocks) {
            run_scene(i++, t);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_come_as_the_slice_ends),
    };
    ist_test_init(argc, argv);
    every = ist_test_option(argc, argv, "--every", every);
    return cmocka_run_group_tests_name("ep late flag", tests, NULL, NULL);
}
