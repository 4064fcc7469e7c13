/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every kind of fault that a plan can hold does what it says, every survivor gets an answer in
 * bounded virtual time, and the same plan gives the same run. Method: a program of barriers and
 * agreements with a rank killed before each of its operations; single faults with known effect;
 * random plans, each run twice.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define RANKS 4u
#define DEADLINE_NS 1000000ull
#define BOUND_NS 20000000000ull /* virtual; no wait of these programs lasts so long */

/* What the ranks of the program saw. */
typedef struct report {
    ist_status opened[RANKS], agreed[RANKS], cleaned[RANKS];
    uint64_t word[RANKS], generation[RANKS];
    uint32_t masked[RANKS]; /* bits of ranks lost before the agreement */
    int32_t why[RANKS];     /* status of the first recorded loss */
    uint64_t barrier_ns[RANKS];
    bool readmit;
} report;

static ist_status read_mask(ist_comm *comm, uint64_t *word, uint64_t *generation)
{
    ist_mask mask = {.size = sizeof(mask), .words = word, .word_count = 1};
    ist_status status = ist_comm_mask_query(comm, &mask);
    *generation = mask.generation;
    return status;
}

static ist_status barriers(ist_test_rank *test, report *seen)
{
    ist_world *world = test->world;
    ist_error error = {.size = sizeof(error)};
    uint32_t count = 0;
    uint64_t word = 0, generation = 0;
    uint64_t began_ns = ist_world_clock_ns(world);
    for (int i = 0; i < 3; ++i) {
        EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
        EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    }
    seen->barrier_ns[test->rank] = ist_world_clock_ns(world) - began_ns;
    EXPECT_OK(world, read_mask(test->comm, &word, &generation));
    seen->masked[test->rank] = (uint32_t)(((1u << RANKS) - 1u) & ~word);
    EXPECT_OK(world, ist_comm_error_get(test->comm, 0, &count, NULL));
    if (count > 0) {
        EXPECT_OK(world, ist_comm_error_get(test->comm, 0, &count, &error));
        seen->why[test->rank] = error.status;
    }
    return IST_OK;
}

static ist_status agree(ist_test_rank *test, report *seen)
{
    uint32_t rank = test->rank;
    seen->agreed[rank] = ist_comm_agree(test->comm, test->stream);
    EXPECT_OK(test->world, read_mask(test->comm, &seen->word[rank], &seen->generation[rank]));
    if (seen->agreed[rank] == IST_OK) {
        EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
        EXPECT_OK(test->world, ist_stream_sync(test->stream, 0));
    }
    return IST_OK;
}

static ist_status readmit(ist_test_rank *test, report *seen)
{
    ist_world *world = test->world;
    uint64_t now_ns = ist_world_clock_ns(world), at_ns = 500000000;
    EXPECT_OK(world, ist_world_sleep(world, at_ns > now_ns ? at_ns - now_ns : 0));
    seen->cleaned[test->rank] = ist_comm_clean(test->comm, test->stream);
    EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_OK(world, read_mask(test->comm, &seen->word[test->rank], &seen->generation[test->rank]));
    return IST_OK;
}

/* A rank may die while the objects are opened; then the others are told so, and end. */
static ist_status open_quietly(ist_world *world, ist_test_rank *test)
{
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1, .deadline_ns = DEADLINE_NS};
    memset(test, 0, sizeof(*test));
    test->world = world;
    test->rank = ist_world_rank(world);
    IST_TEST_PASS_ON(ist_stream_open(world, &test->stream));
    return ist_comm_open(world, &desc, &test->comm);
}

static ist_status program(ist_world *world, void *arg)
{
    report *seen = arg;
    ist_test_rank test;
    uint32_t rank = ist_world_rank(world);
    seen->opened[rank] = IST_ERR_KILLED;
    seen->agreed[rank] = IST_ERR_KILLED;
    seen->opened[rank] = open_quietly(world, &test);
    if (seen->opened[rank] == IST_OK) {
        IST_TEST_PASS_ON(barriers(&test, seen));
        IST_TEST_PASS_ON(agree(&test, seen));
        if (seen->readmit) {
            IST_TEST_PASS_ON(readmit(&test, seen));
        }
    }
    EXPECT_OK(world, ist_stream_close(test.stream));
    EXPECT_OK(world, ist_comm_close(test.comm));
    return IST_OK;
}

/* ---- running with a plan --------------------------------------------------------------------- */

static ist_fault fault_of(ist_fault_kind kind, ist_fault_trigger trigger, int32_t rank)
{
    ist_fault fault = {.size = sizeof(fault),
                       .kind = kind,
                       .trigger = trigger,
                       .rank = rank,
                       .peer = IST_FAULT_ANY};
    return fault;
}

/* Runs twice: the same status, result and digest. */
static ist_status run_plan(const char *cluster, ist_fault_plan *plan, ist_rank_fn rank_main,
                           void *arg, size_t arg_bytes, ist_world_result *result)
{
    ist_world_desc desc = ist_test_desc(RANKS, cluster);
    ist_world_result again = {.size = sizeof(again)};
    unsigned char start[1024];
    assert_true(arg_bytes <= sizeof(start));
    desc.faults = plan;
    desc.deadline_ns = 50000000;
    memcpy(start, arg, arg_bytes);
    (void)ist_test_run_desc(&desc, rank_main, arg, &again);
    memcpy(arg, start, arg_bytes);
    *result = (ist_world_result){.size = sizeof(*result)};
    ist_status status = ist_test_run_desc(&desc, rank_main, arg, result);
    assert_int_equal(result->digest, again.digest);
    assert_int_equal(result->event_count, again.event_count);
    assert_int_equal(result->virtual_ns, again.virtual_ns);
    assert_int_equal(result->lost_count, again.lost_count);
    assert_true(result->virtual_ns < BOUND_NS);
    return status;
}

static ist_status run_faults(const char *cluster, const ist_fault *faults, uint32_t count,
                             ist_rank_fn rank_main, void *arg, size_t arg_bytes,
                             ist_world_result *result)
{
    ist_fault_plan *plan = NULL;
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    for (uint32_t i = 0; i < count; ++i) {
        ist_status added = ist_fault_plan_add(plan, &faults[i]);
        if (added != IST_OK) {
            ist_error error = {.size = sizeof(error)};
            ist_error_last(&error);
            fail_msg("fault %u: %s", i, error.message);
        }
    }
    ist_status status = run_plan(cluster, plan, rank_main, arg, arg_bytes, result);
    ist_fault_plan_close(plan);
    return status;
}

/* ---- a death at every operation -------------------------------------------------------------- */

static void check_survivors(const report *seen, uint32_t dead)
{
    uint32_t first = dead == 0 ? 1 : 0;
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        if (rank == dead) {
            continue;
        }
        assert_int_equal(seen->opened[rank] < 0, seen->opened[first] < 0);
        if (seen->opened[rank] < 0) {
            assert_true(seen->opened[rank] == IST_ERR_TIMEOUT ||
                        seen->opened[rank] == IST_ERR_MISMATCH);
            continue;
        }
        assert_int_equal(seen->agreed[rank], IST_OK);
        assert_int_equal(seen->word[rank], seen->word[first]);
        assert_int_equal(seen->generation[rank], seen->generation[first]);
        assert_int_equal(seen->masked[rank] & ~(1u << dead), 0);
    }
}

/* Returns whether the rank got so far. */
static bool die_at(const char *cluster, uint32_t dead, uint64_t op)
{
    ist_fault fault = fault_of(IST_FAULT_KILL, IST_FAULT_AT_OP, (int32_t)dead);
    ist_world_result result;
    report seen = {0};
    fault.at_op = op;
    assert_int_equal(run_faults(cluster, &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    assert_true(result.lost_count <= 1);
    check_survivors(&seen, result.lost_count != 0 ? dead : RANKS);
    return result.lost_count != 0;
}

static void a_rank_dies_at_every_operation(void **state)
{
    static const char *const clusters[] = {"1x4", "2x2", "4x1"};
    (void)state;
    for (uint32_t i = 0; i < 3 * RANKS; ++i) {
        uint64_t op = 1;
        while (op < 5000 && die_at(clusters[i / RANKS], i % RANKS, op)) {
            ++op;
        }
        assert_true(op > 60 && op < 5000); /* the program is as long as it should be */
    }
}

/* ---- stall, resume, slow --------------------------------------------------------------------- */

static void expect_nobody_lost(const report *seen)
{
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        assert_int_equal(seen->opened[rank], IST_OK);
        assert_int_equal(seen->masked[rank], 0);
        assert_int_equal(seen->agreed[rank], IST_OK);
    }
}

static void expect_one_lost(const report *seen, uint32_t lost, ist_status why)
{
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        assert_int_equal(seen->opened[rank], IST_OK);
        if (rank != lost) {
            assert_int_equal(seen->masked[rank], 1u << lost);
            assert_int_equal(seen->agreed[rank], IST_OK);
            assert_true(why == IST_OK || seen->why[rank] == why);
        }
    }
}

static void a_short_stall_is_waited_for_and_a_long_one_is_not(void **state)
{
    static const char *const clusters[] = {"1x4", "2x2", "4x1"};
    (void)state;
    for (uint32_t c = 0; c < 3; ++c) {
        ist_fault fault = fault_of(IST_FAULT_STALL, IST_FAULT_AT_POINT, 2);
        ist_world_result result;
        report seen = {0};
        (void)snprintf(fault.point, sizeof(fault.point), "mask.barrier.begin");
        fault.at_op = 2;
        fault.duration_ns = DEADLINE_NS / 2;
        assert_int_equal(run_faults(clusters[c], &fault, 1, program, &seen, sizeof(seen), &result),
                         IST_OK);
        assert_int_equal(result.lost_count, 0);
        expect_nobody_lost(&seen);
        assert_true(seen.barrier_ns[0] >= DEADLINE_NS / 2);
        /* Too long: masked, evicted, and re-admitted by a clean. */
        fault.duration_ns = 100 * DEADLINE_NS;
        seen = (report){.readmit = true};
        assert_int_equal(run_faults(clusters[c], &fault, 1, program, &seen, sizeof(seen), &result),
                         IST_OK);
        expect_one_lost(&seen, 2, IST_ERR_TIMEOUT);
        assert_int_equal(seen.agreed[2], IST_ERR_EVICTED);
        for (uint32_t rank = 0; rank < RANKS; ++rank) {
            assert_int_equal(seen.cleaned[rank], IST_OK);
            assert_int_equal(seen.word[rank], (1u << RANKS) - 1u);
            assert_int_equal(seen.generation[rank], seen.generation[0]);
        }
        /* The same stall, ended early by a resume. */
        ist_fault both[2] = {fault, fault_of(IST_FAULT_RESUME, IST_FAULT_AT_TIME, 2)};
        both[1].at_ns = 700000;
        seen = (report){0};
        assert_int_equal(run_faults(clusters[c], both, 2, program, &seen, sizeof(seen), &result),
                         IST_OK);
        expect_nobody_lost(&seen);
    }
}

static void a_stall_for_ever_counts_as_lost(void **state)
{
    ist_fault fault = fault_of(IST_FAULT_STALL, IST_FAULT_AT_POINT, 1);
    ist_world_result result;
    report seen = {0};
    (void)state;
    (void)snprintf(fault.point, sizeof(fault.point), "mask.barrier.raised");
    assert_int_equal(run_faults("2x2", &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    assert_int_equal(result.lost_count, 1);
    check_survivors(&seen, 1);
}

static void a_slow_rank_is_waited_for(void **state)
{
    ist_fault fault = fault_of(IST_FAULT_SLOW, IST_FAULT_AT_OP, 3);
    ist_world_result healthy, result;
    report seen = {0};
    (void)state;
    assert_int_equal(run_faults("2x2", NULL, 0, program, &seen, sizeof(seen), &healthy), IST_OK);
    expect_nobody_lost(&seen);
    seen = (report){0};
    fault.ratio = 20;
    assert_int_equal(run_faults("2x2", &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    expect_nobody_lost(&seen);
    assert_true(result.virtual_ns > healthy.virtual_ns);
}

/* ---- links and flags ------------------------------------------------------------------------- */

static void links_go_down_and_come_back(void **state)
{
    static const char *const clusters[] = {"4x1", "2x2"};
    (void)state;
    for (uint32_t c = 0; c < 2; ++c) {
        ist_fault fault = fault_of(IST_FAULT_LINK_DOWN, IST_FAULT_AT_POINT, 1);
        ist_world_result result;
        report seen = {0};
        (void)snprintf(fault.point, sizeof(fault.point), "mask.barrier.begin");
        fault.at_op = 2;
        fault.duration_ns = DEADLINE_NS / 2;
        assert_int_equal(run_faults(clusters[c], &fault, 1, program, &seen, sizeof(seen), &result),
                         IST_OK);
        expect_nobody_lost(&seen);
        assert_true(seen.barrier_ns[1] >= DEADLINE_NS / 2);
        fault.duration_ns = 0; /* for ever: each side gives the other up, all end */
        seen = (report){0};
        assert_int_equal(run_faults(clusters[c], &fault, 1, program, &seen, sizeof(seen), &result),
                         IST_OK);
        assert_int_equal(result.lost_count, 0);
        assert_true((seen.masked[3] & 2u) != 0);
        fault.kind = IST_FAULT_LINK_SLOW;
        fault.duration_ns = DEADLINE_NS;
        fault.ratio = 50;
        seen = (report){0};
        assert_int_equal(run_faults(clusters[c], &fault, 1, program, &seen, sizeof(seen), &result),
                         IST_OK);
        expect_nobody_lost(&seen);
    }
}

static void flags_may_be_late(void **state)
{
    ist_fault fault = fault_of(IST_FAULT_DELAY, IST_FAULT_AT_POINT, 1);
    ist_world_result result;
    report seen = {0};
    (void)state;
    fault.classes = IST_FAULT_STORES | IST_FAULT_SIGNALS;
    fault.at_op = 2;
    fault.count = 3;
    (void)snprintf(fault.point, sizeof(fault.point), "mask.barrier.begin");
    fault.duration_ns = DEADLINE_NS / 2;
    assert_int_equal(run_faults("1x4", &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    expect_nobody_lost(&seen);
    assert_true(seen.barrier_ns[0] >= DEADLINE_NS / 2);
    seen = (report){0};
    assert_int_equal(run_faults("4x1", &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    expect_nobody_lost(&seen);
    assert_true(seen.barrier_ns[0] >= DEADLINE_NS / 2);
    fault.duration_ns = 50 * DEADLINE_NS;
    seen = (report){0};
    assert_int_equal(run_faults("1x4", &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    expect_one_lost(&seen, 1, IST_ERR_TIMEOUT);
    /* At a time: the unit of at_ns is the same for flags as for all else. */
    fault = fault_of(IST_FAULT_DELAY, IST_FAULT_AT_TIME, 1);
    fault.classes = IST_FAULT_STORES;
    fault.at_ns = 1;
    fault.duration_ns = DEADLINE_NS / 2;
    seen = (report){0};
    assert_int_equal(run_faults("1x4", &fault, 1, program, &seen, sizeof(seen), &result), IST_OK);
    expect_nobody_lost(&seen);
    assert_true(seen.barrier_ns[0] >= DEADLINE_NS / 4);
}

/* ---- puts ------------------------------------------------------------------------------------ */

#define AREA 65536u
#define PUTS 6u
#define PUT_BYTES 512u

/* Rank 0 puts to rank 1, then raises a strong signal; what rank 1 finds. */
typedef struct delivery {
    uint64_t flush, signal_wait, value; /* results + 1 on rank 0, rank 1 */
    uint32_t missing;                   /* puts whose bytes are not there */
    uint64_t wait_ns;

} delivery;

static ist_status deliver(ist_test_rank *test, delivery *seen)
{
    uint64_t out[4] = {0};
    tk_gin_args args = {.dev = test->dev,
                        .out = (uint64_t *)(void *)test->out,
                        .window = test->window_index,
                        .bytes = PUT_BYTES,
                        .count = PUTS,
                        .dst_offset = AREA,
                        .wait_ns = seen->wait_ns,
                        .least = 1,
                        .peer = 1,
                        .put_action = IST_GIN_NONE,
                        .signal_action = IST_GIN_SIGNAL_INC};
    args.what = test->rank == 0 ? TK_GIN_PUT | TK_GIN_SIGNAL | TK_GIN_FLUSH : TK_GIN_WAIT;
    if (test->rank > 1) {
        return IST_OK;
    }
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_gin, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_test_results(test, out, sizeof(out)));
    if (test->rank == 0) {
        seen->flush = out[0];
        return IST_OK;
    }
    seen->signal_wait = out[2];
    seen->value = out[3];
    uint8_t bytes[PUTS * PUT_BYTES];
    EXPECT_OK(test->world,
              ist_copy_to_host(test->stream, bytes, test->memory + AREA, sizeof(bytes)));
    seen->missing = 0;
    for (uint32_t i = 0; i < PUTS; ++i) {
        seen->missing += bytes[i * PUT_BYTES] != 0x77 || bytes[(i + 1) * PUT_BYTES - 1] != 0x77;
    }
    return IST_OK;
}

static ist_status delivery_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {
        .window_bytes = 2 * AREA, .context_count = 1, .signal_count = 1, .counter_count = 1};
    ist_test_rank test;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_fill(test.stream, test.memory, 0x77, AREA));
    IST_TEST_PASS_ON(deliver(&test, arg));
    EXPECT_OK(world, ist_world_sleep(world, 100000000));
    return ist_test_rank_close(&test, true);
}

/* The opening of the objects makes transfers too; faults begin when the puts may. */
static delivery deliver_with(ist_fault_kind kind, uint32_t classes, uint64_t duration_ns,
                             uint64_t count)
{
    delivery seen = {.wait_ns = 2000000};
    ist_fault fault = fault_of(kind, IST_FAULT_NTH, 0);
    ist_world_result result;
    fault.peer = 1;
    fault.classes = classes;
    fault.duration_ns = duration_ns;
    fault.count = count;
    fault.at_op = 1;
    if (classes == IST_FAULT_SIGNALS) { /* the barrier that ends the opening raises one before */
        fault.at_op = 2;
    }
    assert_int_equal(run_faults("4x1", kind != 0 ? &fault : NULL, kind != 0, delivery_main, &seen,
                                sizeof(seen), &result),
                     IST_OK);
    return seen;
}

static void puts_are_delayed_dropped_repeated_and_failed(void **state)
{
    (void)state;
    delivery seen = deliver_with((ist_fault_kind)0, 0, 0, 0);
    assert_int_equal(seen.flush, IST_WAIT_DONE + 1);
    assert_int_equal(seen.signal_wait, IST_WAIT_DONE + 1);
    assert_int_equal(seen.missing, 0);
    /* What a sound network may do changes nothing that the contract promises. */
    seen = deliver_with(IST_FAULT_DELAY, IST_FAULT_PUTS, 500000, 3);
    assert_int_equal(seen.signal_wait, IST_WAIT_DONE + 1);
    assert_int_equal(seen.missing, 0);
    seen = deliver_with(IST_FAULT_REORDER, IST_FAULT_PUTS, 0, PUTS);
    assert_int_equal(seen.signal_wait, IST_WAIT_DONE + 1);
    assert_int_equal(seen.missing, 0);
    /* A signal that is delayed too long or dropped is not seen; nobody is told. */
    seen = deliver_with(IST_FAULT_DELAY, IST_FAULT_SIGNALS, 50000000, 1);
    assert_int_equal(seen.signal_wait, IST_WAIT_TIMEOUT + 1);
    seen = deliver_with(IST_FAULT_DROP, IST_FAULT_SIGNALS, 0, 1);
    assert_int_equal(seen.signal_wait, IST_WAIT_TIMEOUT + 1);
    assert_int_equal(seen.flush, IST_WAIT_DONE + 1);
    seen = deliver_with(IST_FAULT_DROP, IST_FAULT_PUTS, 0, 2);
    assert_int_equal(seen.missing, 2);
    assert_int_equal(seen.flush, IST_WAIT_DONE + 1);
    /* Repeated data is the same data. */
    seen = deliver_with(IST_FAULT_DUPLICATE, IST_FAULT_PUTS, 1000, PUTS);
    assert_int_equal(seen.missing, 0);
    assert_int_equal(seen.value, 1);
    /* An error completion is told to the sender. */
    seen = deliver_with(IST_FAULT_ERROR, IST_FAULT_PUTS, 0, 1);
    assert_int_equal(seen.flush, IST_WAIT_ERROR + 1);
    assert_int_equal(seen.signal_wait, IST_WAIT_TIMEOUT + 1);
}

/* ---- memory and registration ----------------------------------------------------------------- */

static ist_status memory_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.no_dev = 1};
    ist_test_rank test;
    ist_window *window = NULL;
    void *mem = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (int i = 0; i < 6; ++i) {
        ist_status status = ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &mem);
        if (status == IST_ERR_MEMORY) {
            EXPECT_EQUAL(world, test.rank, 1);
            EXPECT_OK(world, ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &mem));
        }
        ist_status opened = ist_window_open(test.comm, mem, 8192, &window);
        if (i == 2) {
            EXPECT_EQUAL(world, opened, test.rank == 2 ? IST_ERR_MEMORY : IST_ERR_MISMATCH);
        } else {
            EXPECT_OK(world, opened);
            EXPECT_OK(world, ist_window_close(window));
        }
        EXPECT_OK(world, ist_mem_free(world, mem));
    }
    return ist_test_rank_close(&test, false);
}

static void allocations_and_registrations_fail_as_planned(void **state)
{
    ist_fault faults[2] = {fault_of(IST_FAULT_ALLOC, IST_FAULT_NTH, 1),
                           fault_of(IST_FAULT_REGISTER, IST_FAULT_NTH, 2)};
    ist_world_result result;
    int unused = 0;
    (void)state;
    faults[0].at_op = 6;
    faults[1].at_op = 3;
    assert_int_equal(run_faults("1x4", faults, 2, memory_main, &unused, sizeof(unused), &result),
                     IST_OK);
}

/* ---- random plans ---------------------------------------------------------------------------- */

static void check_random(uint64_t seed, const char *cluster, uint32_t legal_only)
{
    ist_fault_plan *plan = NULL;
    ist_world_result result;
    report seen = {0};
    ist_fault_budget budget = {.size = sizeof(budget),
                               .rank_count = RANKS,
                               .kill_count_max = 1,
                               .stall_count_max = 1,
                               .transfer_count_max = 4,
                               .link_count_max = 1,
                               .horizon_ops = 150,
                               .stall_ns_max = 3 * DEADLINE_NS,
                               .legal_only = legal_only};
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    assert_int_equal(ist_fault_plan_random(plan, seed, &budget), IST_OK);
    ist_status status = run_plan(cluster, plan, program, &seen, sizeof(seen), &result);
    if (status != IST_OK) {
        char text[2048] = "";
        (void)ist_fault_plan_print(plan, text, sizeof(text), NULL);
        fail_msg("seed %llu on %s ends with %s: %s", (unsigned long long)seed, cluster,
                 ist_status_name(status), text);
    }
    assert_true(result.lost_count <= 1);
    ist_fault_plan_close(plan);
}

static void random_plans_end_and_repeat(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 150; ++i) {
        uint64_t seed = ist_test_seed() * 1000 + i;
        check_random(seed, i % 3 == 0 ? "1x4" : i % 3 == 1 ? "2x2" : "4x1", i % 2);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_dies_at_every_operation),
        cmocka_unit_test(a_short_stall_is_waited_for_and_a_long_one_is_not),
        cmocka_unit_test(a_stall_for_ever_counts_as_lost),
        cmocka_unit_test(a_slow_rank_is_waited_for),
        cmocka_unit_test(links_go_down_and_come_back),
        cmocka_unit_test(flags_may_be_late),
        cmocka_unit_test(puts_are_delayed_dropped_repeated_and_failed),
        cmocka_unit_test(allocations_and_registrations_fail_as_planned),
        cmocka_unit_test(random_plans_end_and_repeat),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
