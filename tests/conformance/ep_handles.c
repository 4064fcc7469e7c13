/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: handles and groups may be many, different, interleaved, re-routed and in the caller's
 * memory; sizes that can be asked are those that are taken. Method: lanes of other layouts and K
 * side by side, compared with the oracle; guard bytes; counting allocators.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const char *const clusters[] = {NULL, "2x2", "4x1"};

static ep_shape usual = {.rank_count = 4, /* less where there are fewer devices */
                         .expert_count = 10,
                         .topk = 4,
                         .tokens_max = 9,
                         .hidden = 72,
                         .dtype = IST_BF16,
                         .masked_permille = 100};

/* Runs it where that makes a difference. */
static void run_on(const char *cluster, ist_rank_fn rank_main, void *arg)
{
    if (ist_test_has_cluster(cluster)) {
        assert_int_equal(ist_test_run(usual.rank_count, cluster, rank_main, arg), IST_OK);
    }
}

static ist_status step(ep_lane *lane, const ep_case *made)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_load(lane, made));
    EXPECT_OK(world, ep_lane_route(lane, lane->rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, lane->rig->stream, 0));
    EXPECT_DISPATCHED(lane);
    EXPECT_OK(world, ep_lane_work(lane));
    EXPECT_OK(world, ep_lane_combine(lane, lane->rig->stream, 0));
    EXPECT_COMBINED(lane);
    return IST_OK;
}

static ist_status meet(ep_rig *rig)
{
    EXPECT_OK(rig->world, ist_comm_barrier(rig->comm, rig->stream));
    EXPECT_OK(rig->world, ist_stream_sync(rig->stream, 0));
    return IST_OK;
}

/* ---- many handles ---------------------------------------------------------------------------- */

#define LANES 6u

/* Layouts, K, types and row lengths change from lane to lane. */
static ep_shape lane_shape(uint32_t lane)
{
    static const ist_dtype types[] = {IST_BF16, IST_F32, IST_F16};
    ep_shape shape = usual;
    shape.layout = lane % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
    shape.topk = 1 + lane % usual.topk;
    shape.dtype = types[lane % 3];
    shape.hidden = 8 + 12 * lane;
    shape.seed = ist_test_seed() * 1000 + lane;
    shape.uneven = lane / 3;
    return shape;
}

static ist_status begin_lane(ep_lane *lane)
{
    ist_world *world = lane->rig->world;
    EXPECT_OK(world, ep_lane_load(lane, lane->made));
    EXPECT_OK(world, ep_lane_route(lane, lane->rig->stream));
    EXPECT_OK(world, ep_lane_dispatch(lane, lane->rig->stream, 0));
    return IST_OK;
}

/* All dispatches, then all combines, none waited for in between. */
static ist_status interleave(ep_rig *rig, ep_lane *lanes)
{
    ist_world *world = rig->world;
    for (uint32_t i = 0; i < LANES; ++i) {
        IST_TEST_PASS_ON(begin_lane(&lanes[i]));
    }
    for (uint32_t i = 0; i < LANES; ++i) {
        EXPECT_DISPATCHED(&lanes[i]);
        EXPECT_OK(world, ep_lane_work(&lanes[i]));
    }
    for (uint32_t i = 0; i < LANES; ++i) {
        EXPECT_OK(world, ep_lane_combine(&lanes[LANES - 1u - i], rig->stream, 0));
    }
    for (uint32_t i = 0; i < LANES; ++i) {
        EXPECT_COMBINED(&lanes[i]);
    }
    return IST_OK;
}

static ist_status many_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    ep_lane lanes[LANES];
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    setup.row_bytes_max = 512;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    for (uint32_t i = 0; i < LANES; ++i) {
        ep_lane_setup how = {.windows = i % 4,
                             .own_memory = i % 2,
                             .id_type = i % 3 == 0 ? IST_I32 : IST_I64,
                             .window_offset = 16 * i};
        EXPECT_OK(world, ep_lane_open(&rig, &made[i], &how, &lanes[i]));
    }
    for (uint32_t round = 0; round < 3; ++round) {
        IST_TEST_PASS_ON(interleave(&rig, lanes));
    }
    IST_TEST_PASS_ON(meet(&rig));
    for (uint32_t i = 0; i < LANES; ++i) {
        EXPECT_OK(world, ep_lane_close(&lanes[i]));
    }
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void handles_of_other_shapes_interleave(void **state)
{
    ep_case made[LANES];
    (void)state;
    for (uint32_t i = 0; i < LANES; ++i) {
        ep_shape shape = lane_shape(i);
        assert_true(ep_case_init(&made[i], &shape));
    }
    for (uint32_t i = 0; i < 3; ++i) {
        run_on(clusters[i], many_main, made);
    }
    for (uint32_t i = 0; i < LANES; ++i) {
        ep_case_fini(&made[i]);
    }
}

/* ---- two groups ------------------------------------------------------------------------------ */

static ist_status groups_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig, other;
    ep_lane lane, second;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    ist_ep_group_desc desc = ep_rig_group_desc(&setup);
    setup.row_bytes_max = 512;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    other = rig;
    desc.token_bytes_max = 512;
    desc.tokens_per_rank_max = usual.tokens_max;
    EXPECT_OK(world, ist_ep_group_open(rig.comm, &desc, &other.group));
    EXPECT_OK(world, ep_lane_open(&rig, &made[0], NULL, &lane));
    EXPECT_OK(world, ep_lane_open(&other, &made[1], NULL, &second));
    for (uint32_t i = 0; i < 2; ++i) {
        IST_TEST_PASS_ON(step(&lane, &made[0]));
        IST_TEST_PASS_ON(step(&second, &made[1]));
    }
    IST_TEST_PASS_ON(meet(&rig));
    EXPECT_STATUS(world, ist_ep_group_close(other.group), IST_ERR_USAGE);
    EXPECT_OK(world, ep_lane_close(&second));
    EXPECT_OK(world, ist_ep_group_close(other.group));
    IST_TEST_PASS_ON(step(&lane, &made[0]));
    EXPECT_STATUS(world, ist_comm_close(rig.comm), IST_ERR_USAGE);
    IST_TEST_PASS_ON(meet(&rig));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void groups_share_a_communicator(void **state)
{
    ep_case made[2];
    (void)state;
    for (uint32_t i = 0; i < 2; ++i) {
        ep_shape shape = lane_shape(i);
        assert_true(ep_case_init(&made[i], &shape));
    }
    for (uint32_t i = 0; i < 3; ++i) {
        run_on(clusters[i], groups_main, made);
    }
    ep_case_fini(&made[0]);
    ep_case_fini(&made[1]);
}

/* ---- routing again --------------------------------------------------------------------------- */

#define ROUTES 8u

static ist_status routes_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    ep_lane_setup how = {.own_memory = 1, .windows = 1};
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, &made[0], &how, &lane));
    for (uint32_t i = 0; i < ROUTES; ++i) {
        IST_TEST_PASS_ON(step(&lane, &made[i]));
    }
    /* A routing serves any number of dispatches, a dispatch any number of combines. */
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_OK(world, ep_lane_dispatch(&lane, rig.stream, 0));
        EXPECT_DISPATCHED(&lane);
        EXPECT_OK(world, ep_lane_combine(&lane, rig.stream, 0));
        EXPECT_OK(world, ep_lane_combine(&lane, rig.stream, 0));
        EXPECT_COMBINED(&lane);
    }
    IST_TEST_PASS_ON(meet(&rig));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

/* Full, fewer, none, full again …; each rank its own number. */
static void handles_are_routed_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3 * 2; ++i) {
        ep_case made[ROUTES];
        for (uint32_t j = 0; j < ROUTES; ++j) {
            ep_shape shape = usual;
            shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
            shape.uneven = j % 2;
            shape.masked_permille = j % 4 == 2 ? 1000 : 100;
            shape.seed = ist_test_seed() * 1000 + i * ROUTES + j;
            assert_true(ep_case_init(&made[j], &shape));
        }
        run_on(clusters[i / 2], routes_main, made);
        for (uint32_t j = 0; j < ROUTES; ++j) {
            ep_case_fini(&made[j]);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define GUARD_BYTES 4096u

static ist_status guarded_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    uint8_t guard[GUARD_BYTES];
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    ep_lane_setup how = {.own_memory = 1};
    void *memory = NULL;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, made, &how, &lane));
    EXPECT_EQUAL(world, lane.handle_bytes % 4096u, 0);
    /* Again in memory with a guard behind it. */
    EXPECT_OK(world, ist_ep_handle_close(lane.handle));
    EXPECT_OK(world, ist_mem_alloc(world, lane.handle_bytes + GUARD_BYTES, IST_MEM_PLAIN, &memory));
    EXPECT_OK(world, ist_fill(rig.stream, memory, 0x5a, lane.handle_bytes + GUARD_BYTES));
    EXPECT_OK(world, ist_ep_handle_init(rig.group, made->oracle.layout, made->oracle.topk, memory,
                                        lane.handle_bytes, &lane.handle));
    for (uint32_t i = 0; i < 3; ++i) {
        IST_TEST_PASS_ON(step(&lane, made));
    }
    EXPECT_OK(world, ist_copy_to_host(rig.stream, guard, (uint8_t *)memory + lane.handle_bytes,
                                      sizeof(guard)));
    for (uint32_t i = 0; i < GUARD_BYTES; ++i) {
        EXPECT_EQUAL(world, guard[i], 0x5a);
    }
    IST_TEST_PASS_ON(meet(&rig));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ist_mem_free(world, memory)); /* not the library's */
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void nothing_is_written_behind_handle_memory(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3 * 2; ++i) {
        ep_case made;
        ep_shape shape = usual;
        shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        shape.masked_permille = 0;
        shape.seed = ist_test_seed() + i;
        assert_true(ep_case_init(&made, &shape));
        run_on(clusters[i / 2], guarded_main, &made);
        ep_case_fini(&made);
    }
}

typedef struct counting {
    ist_world *world;
    uint32_t taken, given;
    uint64_t bytes;
} counting;

static ist_status count_alloc(void **mem, size_t bytes, void *context)
{
    counting *c = context;
    ++c->taken;
    c->bytes += bytes;
    return ist_mem_alloc(c->world, bytes, IST_MEM_PLAIN, mem);
}

static ist_status count_free(void *mem, void *context)
{
    counting *c = context;
    ++c->given;
    return ist_mem_free(c->world, mem);
}

static ist_status hooks_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    counting count = {.world = world};
    ep_rig rig;
    ep_lane lane;
    uint64_t bytes = 0;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    setup.alloc = (ist_ep_alloc){count_alloc, count_free, &count};
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, made, NULL, &lane));
    EXPECT_OK(world,
              ist_ep_handle_bytes(rig.group, made->oracle.layout, made->oracle.topk, &bytes));
    EXPECT_EQUAL(world, count.taken, 1);
    EXPECT_EQUAL(world, count.bytes, bytes);
    IST_TEST_PASS_ON(step(&lane, made));
    IST_TEST_PASS_ON(meet(&rig));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_EQUAL(world, count.given, 1);
    EXPECT_OK(world, ep_rig_close(&rig));
    EXPECT_EQUAL(world, count.taken, count.given);
    return IST_OK;
}

static void hooks_give_the_memory(void **state)
{
    ep_case made;
    ep_shape shape = usual;
    (void)state;
    shape.layout = IST_EP_RANK_MAJOR;
    assert_true(ep_case_init(&made, &shape));
    run_on(NULL, hooks_main, &made);
    ep_case_fini(&made);
}

/* ---- sizes and places ------------------------------------------------------------------------ */

static ist_status check_owners(ist_ep_group *group, const ep_case *made, ist_world *world)
{
    for (uint32_t expert = 0; expert < made->oracle.expert_count; ++expert) {
        uint32_t rank = UINT32_MAX, local = UINT32_MAX;
        EXPECT_OK(world, ist_ep_expert_owner(group, expert, &rank, &local));
        EXPECT_EQUAL(world, rank, ep_oracle_owner(&made->oracle, expert));
        EXPECT_EQUAL(world, local, expert - ep_oracle_expert_first(&made->oracle, rank));
    }
    return IST_OK;
}

static ist_status sizes_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    uint64_t bytes = 0;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    ist_ep_group_desc desc = ep_rig_group_desc(&setup);
    ist_ep_group_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ist_ep_group_bytes(rig.comm, &desc, &bytes));
    EXPECT_OK(world, ist_ep_group_query(rig.group, &info));
    EXPECT_EQUAL(world, info.device_bytes, bytes);
    EXPECT_EQUAL(world, info.expert_count, usual.expert_count);
    EXPECT_EQUAL(world, info.expert_first, ep_oracle_expert_first(&made->oracle, rig.rank));
    EXPECT_EQUAL(world, info.expert_local_count, ep_oracle_local_count(&made->oracle, rig.rank));
    EXPECT_EQUAL(world, info.tokens_per_rank_max, usual.tokens_max);
    EXPECT_EQUAL(world, info.topk_max, usual.topk);
    EXPECT_EQUAL(world, info.staged_count_max, 1);
    EXPECT_EQUAL(world, info.rank_count, usual.rank_count);
    EXPECT_EQUAL(world, info.deadline_ns, ist_test_deadline_ns());
    EXPECT(world, info.block_count >= 1);
    IST_TEST_PASS_ON(check_owners(rig.group, made, world));
    IST_TEST_PASS_ON(meet(&rig));
    /* As much as is needed is enough; a byte less is not, and the error tells. */
    EXPECT_OK(world, ist_ep_group_close(rig.group));
    rig.group = NULL;
    desc.buffer_bytes = bytes;
    EXPECT_OK(world, ist_ep_group_open(rig.comm, &desc, &rig.group));
    EXPECT_OK(world, ist_ep_group_close(rig.group));
    rig.group = NULL;
    desc.buffer_bytes = bytes - 1;
    EXPECT_REFUSED(world, ist_ep_group_open(rig.comm, &desc, &rig.group), IST_ERR_RANGE,
                   "desc.buffer_bytes");
    ist_error error = {.size = sizeof(error)};
    EXPECT_OK(world, ist_error_last(&error));
    EXPECT_EQUAL(world, error.expected, bytes);
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void sizes_asked_are_sizes_taken(void **state)
{
    ep_case made;
    ep_shape shape = usual;
    (void)state;
    shape.layout = IST_EP_EXPERT_MAJOR;
    assert_true(ep_case_init(&made, &shape));
    for (uint32_t i = 0; i < 3; ++i) {
        run_on(clusters[i], sizes_main, &made);
    }
    ep_case_fini(&made);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_of_other_shapes_interleave),
        cmocka_unit_test(groups_share_a_communicator),
        cmocka_unit_test(handles_are_routed_again),
        cmocka_unit_test(nothing_is_written_behind_handle_memory),
        cmocka_unit_test(hooks_give_the_memory),
        cmocka_unit_test(sizes_asked_are_sizes_taken),
    };
    ist_test_init(argc, argv);
    usual.rank_count = ist_test_ranks(usual.rank_count);
    return cmocka_run_group_tests_name("ep handles", tests, NULL, NULL);
}
