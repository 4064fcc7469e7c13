/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: expert parallelism among more ranks than a block serves at a time, than decide together, and
 * than one chunk of metadata holds. Method: 40 and more ranks of one team, of teams, and of a network,
 * few tokens, one block and two; every byte against the oracle; once with a rank that is masked.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 2u

typedef struct crowd {
    ep_shape shape;
    uint32_t blocks;
    uint32_t leaves; /* 1: the last rank is masked before the second step */
    ep_case made[STEPS];
} crowd;

/* Real communicators take their time to open. */
static uint64_t deadline_ns(void)
{
    return ist_test_on_simulator() ? 1000000u : 1000000000u;
}

static ist_status expect_step(ep_rig *rig, const ep_step *step, bool whole)
{
    uint64_t lost = whole ? 0 : UINT64_C(1) << ((rig->rank_count - 1u) % 64u);
    for (uint32_t op = 0; op < 2; ++op) {
        EXPECT_EQUAL(rig->world, step->ran[op], 1);
        EXPECT_EQUAL(rig->world, step->record[op].status, whole ? IST_OK : IST_INCOMPLETE);
        EXPECT_EQUAL(rig->world, step->lost[op][(rig->rank_count - 1u) / 64u], lost);
        EXPECT_EQUAL(rig->world, step->finding[op].wrong, 0);
    }
    return IST_OK;
}

static ist_status crowd_main(ist_world *world, void *arg)
{
    const crowd *c = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&c->shape);
    ep_lane_setup how = {.windows = 0};
    setup.fault_tolerant = 1;
    setup.deadline_ns = deadline_ns();
    setup.block_count_max = c->blocks;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &c->made[0], &how, &lane));
    bool out = c->leaves && rig.rank + 1u == rig.rank_count;
    uint64_t words[EP_RIG_WORDS];
    memset(words, 0xff, sizeof(words));
    for (uint32_t rank = rig.rank_count - 1u; rank < 64u * EP_RIG_WORDS; ++rank) {
        words[rank / 64u] &= ~(UINT64_C(1) << rank % 64u);
    }
    for (uint32_t i = 0; i < STEPS && !(out && i > 0); ++i) {
        ep_step step;
        memset(&step, 0, sizeof(step));
        if (c->leaves && i > 0) {
            EXPECT_OK(world, ist_comm_mask_update(rig.comm, words, rig.stream));
        }
        EXPECT_OK(world, ep_lane_step(&lane, &c->made[i], &step));
        IST_TEST_PASS_ON(expect_step(&rig, &step, !c->leaves || i == 0));
    }
    EXPECT_OK(world, ist_world_sleep(world, c->leaves ? 4u * deadline_ns() : 0));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void run_crowd(uint32_t wanted, const char *cluster, uint32_t tokens, uint32_t experts,
                      uint32_t flags)
{
    crowd *c = calloc(1, sizeof(*c));
    uint32_t ranks = ist_test_ranks(wanted);
    assert_non_null(c);
    c->shape = (ep_shape){.rank_count = ranks,
                          .expert_count = experts,
                          .topk = 2,
                          .tokens_max = tokens,
                          .hidden = 8,
                          .dtype = IST_BF16,
                          .masked_permille = 50,
                          .layout = flags & 1u ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR,
                          .order = flags & 8u ? IST_EP_COMBINE_REDUCED : IST_EP_COMBINE_STRICT};
    c->blocks = flags & 2u ? 2u : 1u;
    c->leaves = flags & 4u ? 1u : 0u;
    for (uint32_t i = 0; i < STEPS; ++i) {
        c->shape.seed = ist_test_seed() * 100u + i;
        assert_true(ep_case_init(&c->made[i], &c->shape));
    }
    if (ist_test_has_cluster(cluster)) {
        assert_int_equal(ist_test_run(ranks, cluster, crowd_main, c), IST_OK);
    }
    for (uint32_t i = 0; i < STEPS; ++i) {
        ep_case_fini(&c->made[i]);
    }
    free(c);
}

static void one_team(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags < 8; ++flags) {
        run_crowd(40, "1x40", 2, 40, flags);
    }
}

static void one_team_that_sums_first(void **state)
{
    (void)state;
    for (uint32_t flags = 8; flags < 16; ++flags) {
        run_crowd(40, "1x40", 2, 40, flags);
    }
}

static void teams(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags < 8; flags += 3) {
        run_crowd(40, "8x5", 2, 40, flags);
    }
}

static void network(void **state)
{
    (void)state;
    run_crowd(36, "36x1", 2, 36, 0);
    run_crowd(36, "36x1", 2, 36, 5);
}

/* A block serves a team in two turns, and the network after it. */
static void large_teams(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags < 2; ++flags) {
        run_crowd(66, "2x33", 1, 66, flags);
    }
}

/* Few ranks, so many experts that a chunk of metadata does not hold all of them. */
static void many_experts(void **state)
{
    (void)state;
    run_crowd(12, "1x12", 3, 4000, 0);
    run_crowd(12, "1x12", 3, 4000, 2);
    run_crowd(12, "3x4", 3, 4000, 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_team),    cmocka_unit_test(one_team_that_sums_first),
        cmocka_unit_test(teams),       cmocka_unit_test(network),
        cmocka_unit_test(large_teams), cmocka_unit_test(many_experts),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep many ranks", tests, NULL, NULL);
}
