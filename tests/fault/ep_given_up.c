/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that was given up says so at once, in the record of the operation in which it learns it,
 * and whoever gives up, or leaves, tells exactly those that may still read what it then changes. Method:
 * plans that bring ranks into a state in which one step of a protocol is the only one that can know;
 * what each rank's records and mask must say is written down. Two scenes hand it over from rank to rank:
 * flags that are late, so that a rank waits in the last operation and is waited for in the next.
 */
#include "ep_drill.h"

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#define DEADLINE EP_DRILL_DEADLINE_NS
#define FAULTS_MAX 3u
#define SKEW_NS 1000u /* of ranks that leave a clean */

static const ep_shape usual = {.rank_count = 3,
                               .expert_count = 6,
                               .topk = 3,
                               .tokens_max = 4,
                               .hidden = 8,
                               .dtype = IST_BF16,
                               .layout = IST_EP_EXPERT_MAJOR};

static ist_fault stall_at(int32_t rank, const char *point, uint64_t pass, uint64_t duration_ns)
{
    ist_fault fault = ist_test_fault_at(IST_FAULT_STALL, rank, point, pass);
    fault.duration_ns = duration_ns;
    return fault;
}

/* The first transfers from `rank` to `peer` after the point. */
static ist_fault strike_at(ist_fault_kind kind, int32_t rank, int32_t peer, const char *point,
                           uint32_t classes, uint64_t duration_ns)
{
    ist_fault fault = ist_test_fault_at(kind, rank, point, 0);
    fault.peer = peer;
    fault.classes = classes;
    fault.duration_ns = duration_ns;
    return fault;
}

static void run(ep_drill *drill, const ist_fault *faults, uint32_t count, ep_drill_run *ran)
{
    ist_fault_plan *plan = NULL;
    drill->shape.seed = ist_test_seed();
    assert_true(ep_drill_init(drill));
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    for (uint32_t i = 0; i < count; ++i) {
        assert_int_equal(ist_fault_plan_add(plan, &faults[i]), IST_OK);
    }
    ep_drill_run_once(drill, plan, ran);
    if (!ep_drill_is_safe(ran, 0)) {
        ep_drill_tell(ran, plan);
        fail();
    }
    ist_fault_plan_close(plan);
    ep_drill_fini(drill);
}

static void expect_record(const ep_drill_run *ran, uint32_t rank, uint32_t number, ist_ep_op op,
                          ist_status status, uint64_t lost)
{
    const ep_step *step = &ran->ranks[rank].step[number];
    if (!step->ran[op] || step->record[op].status != status ||
        (status >= 0 && step->lost[op][0] != lost)) {
        fail_msg("rank %u, step %u, operation %d: ran %u, status %s, lost 0x%" PRIx64
                 "; expected %s, 0x%" PRIx64,
                 rank, number, (int)op, step->ran[op], ist_status_name(step->record[op].status),
                 step->lost[op][0], ist_status_name(status), lost);
    }
}

/* ---- slow, then told --------------------------------------------------------------------------- */

/* All that it waits for is there; only a look for notices tells it that the others have gone on. */
static void who_reads_too_late_says_so(void **state)
{
    static const struct {
        const char *cluster;
        const char *point;
        ist_ep_op op;
        ist_ep_combine_order order;
    } scenes[] = {
        {"3x1", "ep.dispatch.taken", IST_EP_OP_DISPATCH, IST_EP_COMBINE_STRICT},
        {"3x1", "ep.combine.summed", IST_EP_OP_COMBINE, IST_EP_COMBINE_STRICT},
        {"1x3", "ep.dispatch.taken", IST_EP_OP_DISPATCH, IST_EP_COMBINE_STRICT},
        {"1x3", "ep.combine.summed", IST_EP_OP_COMBINE, IST_EP_COMBINE_STRICT},
        {"1x3", "ep.reduced.ready", IST_EP_OP_COMBINE, IST_EP_COMBINE_REDUCED},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof(scenes) / sizeof(*scenes); ++i) {
        ep_drill drill = {.shape = usual, .cluster = scenes[i].cluster, .steps = 1, .clean = 1};
        ep_drill_run ran;
        ist_fault stall = stall_at(1, scenes[i].point, 1, 3ull * DEADLINE);
        drill.shape.order = scenes[i].order;
        run(&drill, &stall, 1, &ran);
        expect_record(&ran, 1, 0, scenes[i].op, IST_ERR_EVICTED, 0);
    }
}

/* ---- a rank that leaves ------------------------------------------------------------------------- */

/*
 * Rank 0's answer to rank 1 is late: rank 1 waits in the first dispatch, its beats keep rank 0 patient
 * in the second. Rank 2 stops there until rank 0 has given it up, then finds all flags, and that it is
 * out. Rank 1, which stops when its own flags are out, has not answered it: so it must tell rank 1.
 */
static void leave(uint32_t blocks, ep_drill_run *ran)
{
    ep_drill drill = {.shape = usual,
                      .cluster = "1x3",
                      .lane = {.dispatch_only = 1},
                      .block_count_max = blocks,
                      .steps = 2,
                      .clean = 1};
    ist_fault faults[FAULTS_MAX] = {
        strike_at(IST_FAULT_DELAY, 0, 1, "ep.dispatch.taken", IST_FAULT_STORES, 9 * DEADLINE / 10),
        stall_at(2, "ep.dispatch.begin", blocks + 1u, 23 * DEADLINE / 20),
        stall_at(1, "ep.dispatch.sent", 2u * blocks, DEADLINE / 2),
    };
    drill.shape.hidden =
        blocks == 1 ? usual.hidden : 4096; /* a block is started for 16 KiB of rows */
    faults[0].at_op = blocks;
    run(&drill, faults, 3, ran);
    for (uint32_t rank = 0; rank < 3; ++rank) {
        expect_record(ran, rank, 0, IST_EP_OP_DISPATCH, IST_OK, 0);
    }
    expect_record(ran, 0, 1, IST_EP_OP_DISPATCH, IST_INCOMPLETE, 4);
    expect_record(ran, 2, 1, IST_EP_OP_DISPATCH, IST_ERR_EVICTED, 0);
    for (uint32_t rank = 0; rank < 3; ++rank) { /* after the clean */
        expect_record(ran, rank, 2, IST_EP_OP_DISPATCH, IST_OK, 0);
    }
}

/* Rank 1 decides with that before it: it goes on without rank 2. */
static void who_leaves_tells_those_that_may_still_read(void **state)
{
    ep_drill_run ran;
    (void)state;
    leave(1, &ran);
    expect_record(&ran, 1, 1, IST_EP_OP_DISPATCH, IST_INCOMPLETE, 4);
}

/* A notice from before the clean is none: blocks decide together again, and no operation waits longer
   than among ranks that were never apart, but for what they come later to it. */
static void who_is_back_costs_no_more(void **state)
{
    ep_drill healthy = {.shape = usual,
                        .cluster = "1x3",
                        .lane = {.dispatch_only = 1},
                        .block_count_max = 1,
                        .steps = 2,
                        .clean = 1};
    ep_drill_run ran;
    uint64_t took_ns[2];
    (void)state;
    leave(1, &ran);
    took_ns[0] = ran.ranks[1].step[2].ended_ns[0] - ran.ranks[1].met_ns;
    run(&healthy, NULL, 0, &ran);
    took_ns[1] = ran.ranks[1].step[2].ended_ns[0] - ran.ranks[1].met_ns;
    assert_in_range(took_ns[0], took_ns[1], took_ns[1] + SKEW_NS);
}

/* One block of rank 1 has looked for notices before it stopped, and decides with rank 2 as soon as it
   goes on; the other, the first, has not sent all by then, sees that rank 2 leaves, and comes too late
   to decide that alone: what the launch goes by contains rank 2, so it cannot tell what it has read. */
static void who_claims_too_late_goes_by_what_was_decided(void **state)
{
    ep_drill_run ran;
    (void)state;
    leave(2, &ran);
    expect_record(&ran, 1, 1, IST_EP_OP_DISPATCH, IST_ERR_EVICTED, 0);
}

/* ---- a rank whose rows did not come ------------------------------------------------------------- */

/* Rank 0 drops rank 1 when it decides, and tells it then: not when rank 2, which is slow, lets the operation
   end. */
static void who_is_dropped_is_told_at_once(void **state)
{
    ep_drill drill = {.shape = usual, .cluster = "3x1", .steps = 1, .clean = 1};
    ep_drill_run ran;
    ist_fault faults[FAULTS_MAX] = {
        strike_at(IST_FAULT_DROP, 1, 0, "ep.dispatch.begin", IST_FAULT_PUTS, 0),
        stall_at(2, "ep.dispatch.decided", 1, 3 * DEADLINE / 4),
    };
    (void)state;
    run(&drill, faults, 2, &ran);
    expect_record(&ran, 0, 0, IST_EP_OP_DISPATCH, IST_INCOMPLETE, 2);
    expect_record(&ran, 1, 0, IST_EP_OP_DISPATCH, IST_ERR_EVICTED, 0);
    expect_record(&ran, 2, 0, IST_EP_OP_DISPATCH, IST_OK, 0);
    assert_true(ran.ranks[1].step[0].ended_ns[0] < ran.ranks[0].step[0].ended_ns[0]);
}

/* ---- a rank that was masked by hand before ------------------------------------------------------ */

/* Rank 0 has masked rank 2 and sends it nothing: so rank 2 may lose rank 0 alone, and learns no more. */
static ist_status masked_before_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    ep_lane lane;
    ep_step step;
    ep_lane_setup how = {.dispatch_only = 1};
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    uint64_t without_last = 3;
    uint64_t lost[3] = {4, 0, 1};
    setup.fault_tolerant = 1;
    setup.deadline_ns = DEADLINE;
    memset(&step, 0, sizeof(step));
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, made, &how, &lane));
    if (rig.rank == 0) {
        EXPECT_OK(world, ist_comm_mask_update(rig.comm, &without_last, rig.stream));
    }
    EXPECT_OK(world, ep_lane_step(&lane, made, &step));
    EXPECT_EQUAL(world, step.record[0].status, lost[rig.rank] == 0 ? IST_OK : IST_INCOMPLETE);
    EXPECT_EQUAL(world, step.lost[0][0], lost[rig.rank]);
    EXPECT_EQUAL(world, step.finding[0].wrong, 0);
    EXPECT_OK(world, ist_world_sleep(world, 20ull * DEADLINE));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void who_was_not_sent_to_is_not_told(void **state)
{
    ep_case made;
    ep_shape shape = usual;
    (void)state;
    shape.seed = ist_test_seed();
    assert_true(ep_case_init(&made, &shape));
    assert_int_equal(ist_test_run(3, NULL, masked_before_main, &made), IST_OK);
    ep_case_fini(&made);
}

/* `--handed 0` leaves out the scenes that hand a state over: where steps of lanes are counted, a rank that
   stops at a point has done more, or less. */
int main(int argc, char **argv)
{
    const struct CMUnitTest handed[] = {
        cmocka_unit_test(who_leaves_tells_those_that_may_still_read),
        cmocka_unit_test(who_is_back_costs_no_more),
        cmocka_unit_test(who_claims_too_late_goes_by_what_was_decided),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_reads_too_late_says_so),
        cmocka_unit_test(who_is_dropped_is_told_at_once),
        cmocka_unit_test(who_was_not_sent_to_is_not_told),
    };
    ist_test_init(argc, argv);
    int failed = cmocka_run_group_tests_name("ep given up", tests, NULL, NULL);
    if (ist_test_option(argc, argv, "--handed", 1) != 0) {
        failed += cmocka_run_group_tests_name("ep given up, handed over", handed, NULL, NULL);
    }
    return failed;
}
