/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the reduced combine is right under any order of its steps and any value that the memory model
 * allows. Method: schedules by chance and by priorities, over ranks, blocks, slots and halves; every
 * output byte is compared with the oracle, and the detectors find nothing. `--runs N` schedules
 * of each kind and scene.
 */
#include "ep_rig.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>

#include <cmocka.h>

#define STEPS 2u

static uint32_t runs = 60;

typedef struct scene {
    const char *name;
    const char *cluster;
    uint32_t ranks, blocks;
    uint32_t staged; /* of combine */
    uint32_t steps;
    ep_case made[STEPS];
} scene;

static ist_status step(ep_lane *lane, const ep_case *made, uint32_t staged)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_load(lane, made));
    EXPECT_OK(world, ep_lane_route(lane, lane->rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, lane->rig->stream, 0));
    EXPECT_DISPATCHED(lane);
    EXPECT_OK(world, ep_lane_work(lane));
    EXPECT_OK(world, ep_lane_combine(lane, lane->rig->stream, staged));
    EXPECT_OK(world, ist_ep_complete(lane->handle, lane->rig->stream));
    EXPECT_COMBINED(lane);
    EXPECT_OK(world, ep_lane_combine(lane, lane->rig->stream, 0));
    EXPECT_COMBINED(lane);
    return IST_OK;
}

static ist_status scene_main(ist_world *world, void *arg)
{
    const scene *s = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = {.expert_count = s->ranks + 1u,
                          .tokens_max = s->made[0].oracle.tokens_max,
                          .topk_max = s->made[0].oracle.topk,
                          .row_bytes_max = s->made[0].oracle.hidden * 4u,
                          .order = IST_EP_COMBINE_REDUCED,
                          .fault_tolerant = 1,
                          .block_count_max = s->blocks};
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &s->made[0], NULL, &lane));
    for (uint32_t i = 0; i < s->steps; ++i) {
        IST_TEST_PASS_ON(step(&lane, &s->made[i], s->staged));
    }
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static bool init_scene(scene *s)
{
    ep_shape shape = {.rank_count = s->ranks,
                      .expert_count = s->ranks + 1u,
                      .topk = 2,
                      .tokens_max = s->blocks,
                      .hidden = s->blocks == 1 ? 4 : 2048,
                      .dtype = IST_F32,
                      .layout = IST_EP_EXPERT_MAJOR,
                      .order = IST_EP_COMBINE_REDUCED,
                      .masked_permille = 50};
    for (uint32_t i = 0; i < STEPS; ++i) {
        shape.seed = ist_test_seed() * STEPS + i;
        if (!ep_case_init(&s->made[i], &shape)) {
            return false;
        }
    }
    return true;
}

/* One schedule. @return whether it was clean. */
static bool explore(scene *s, ist_scheduler scheduler, uint32_t depth, uint64_t seed)
{
    ist_world_desc desc = {
        .size = sizeof(desc), .rank_count = s->ranks, .cluster = s->cluster, .seed = seed};
    ist_explore_desc how = {.size = sizeof(how), .scheduler = scheduler, .depth = depth};
    ist_explore_report report = {.size = sizeof(report)};
    ist_status status = ist_explore_run(&desc, scene_main, s, &how, &report);
    if (status != IST_OK || report.finding_count != 0) {
        printf("# %s, seed %llu: %s\n%s\n", s->name, (unsigned long long)seed,
               ist_status_name(status), report.finding.text);
        return false;
    }
    return true;
}

static void no_schedule_breaks_it(void **state)
{
    scene scenes[] = {
        {.name = "2 ranks, a block", .cluster = "1x2", .ranks = 2, .blocks = 1, .steps = 2},
        {.name = "3 ranks, a block", .cluster = "1x3", .ranks = 3, .blocks = 1, .steps = 2},
        {.name = "2 ranks, 2 blocks", .cluster = "1x2", .ranks = 2, .blocks = 2, .steps = 2},
        {.name = "2 ranks, 3 blocks", .cluster = "1x2", .ranks = 2, .blocks = 3, .steps = 1},
        {.name = "2 ranks, 2 blocks, halves",
         .cluster = "1x2",
         .ranks = 2,
         .blocks = 2,
         .staged = 1,
         .steps = 2},
        {.name = "1 rank, 2 blocks", .cluster = "1x1", .ranks = 1, .blocks = 2, .steps = 2},
    };
    uint32_t failures = 0, schedules = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); ++i) {
        assert_true(init_scene(&scenes[i]));
        for (uint32_t run = 0; run < runs && failures < 3; ++run) {
            uint64_t seed = ist_test_seed() * 1000003u + run;
            failures += !explore(&scenes[i], IST_SCHEDULER_RANDOM, 0, seed);
            failures += !explore(&scenes[i], IST_SCHEDULER_PCT, 1 + run % 5, seed);
            schedules += 2;
        }
        for (uint32_t j = 0; j < STEPS; ++j) {
            ep_case_fini(&scenes[i].made[j]);
        }
    }
    printf("# %u schedules, %u failed\n", schedules, failures);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_schedule_breaks_it),
    };
    ist_test_init(argc, argv);
    runs = ist_test_option(argc, argv, "--runs", runs);
    return cmocka_run_group_tests_name("sched reduced", tests, NULL, NULL);
}
