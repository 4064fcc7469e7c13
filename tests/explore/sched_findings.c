/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The detectors, one by one: a program that does what each is there for is found with a report that
 * names both sides, and the same program without the fault is clean. Method: pairs of programs under
 * the random scheduler; the report's numbers and words are compared.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 8192u

/* What a program does wrong; 0: nothing. */
typedef enum fault_kind {
    SOUND,
    UNWRITTEN,
    OUTSIDE,
    CLOSED,
    FOREIGN,
    RACING,
    WAITING,
    POLLING,
    DISAGREEING,
    LEAKING,
    FAILING
} fault_kind;

typedef struct program {
    fault_kind fault;
    void *memory[2]; /* of both ranks, as a program that passes pointers around would */
} program;

typedef struct touch_args {
    const ist_dev_comm *dev;
    const void *from; /* a row that is read */
    void *to;         /* a row that is written */
    uint64_t *flag;   /* raised when done */
    const uint64_t *wait_for;
    uint32_t polls; /* 1: polls instead of waiting */
    uint32_t reserved;
} touch_args;

IST_KERNEL(touch_rows, touch_args)
{
    uint64_t deadline_ns = ist_clock_ns(coop) + 1000000u;
    uint64_t *copy = ist_coop_scratch(coop, 0, 64);
    ist_point(coop, "touch.begin");
    if (args->wait_for != NULL && args->polls == 0) {
        (void)ist_coop_wait_word(coop, args->dev, args->wait_for, 7, deadline_ns, IST_SCOPE_SYSTEM);
    }
    while (args->polls != 0 &&
           ist_load_u64(coop, args->wait_for, IST_ACQUIRE, IST_SCOPE_SYSTEM) != 7) {
    }
    if (args->from != NULL) {
        ist_row_copy(coop, copy, args->from, 64);
    }
    if (args->to != NULL) {
        ist_row_fill(coop, args->to, 5, 64);
    }
    ist_coop_sync(coop);
    if (args->flag != NULL) {
        ist_store_u64(coop, args->flag, 7, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

/* All ranks are here. */
static ist_status meet(ist_comm *comm)
{
    const ist_dev_comm *dev = NULL;
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 0, 0, 0, 0, 0, &dev));
    return ist_dev_comm_close(comm, dev);
}

/* Rank 1 reads what rank 0 may reach; rank 0 writes to rank 1. */
static ist_status touch(const program *which, ist_world *world, ist_comm *comm, ist_stream *stream,
                        const ist_dev_comm *dev)
{
    uint32_t rank = ist_world_rank(world);
    uint8_t *peer = which->memory[1 - rank];
    uint64_t *words = dev->windows[0].local;
    uint64_t *words_there = dev->windows[0].lsa[1 - rank];
    touch_args args = {.dev = dev};
    if (which->fault == CLOSED) {
        IST_TEST_PASS_ON(meet(comm)); /* the peer has closed its window before this */
    }
    if (rank == 0) {
        args.to = peer + (which->fault == OUTSIDE ? BYTES / 2 : 0);
        args.flag = which->fault == WAITING || which->fault == POLLING ? NULL : words_there;
    } else {
        /* Rank 0 writes the first 64 bytes. */
        args.from = (uint8_t *)which->memory[1] + (which->fault == UNWRITTEN ? 64 : 0);
        args.wait_for = which->fault == RACING ? NULL : words;
        args.polls = which->fault == POLLING;
    }
    IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_touch_rows, 1, &args, sizeof(args)));
    return ist_stream_sync(stream, 0);
}

static ist_status program_main(ist_world *world, void *arg)
{
    program *which = arg;
    fault_kind fault = which->fault;
    uint32_t rank = ist_world_rank(world);
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    ist_window *window = NULL;
    const ist_dev_comm *dev = NULL;
    void *memory = NULL;
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_mem_alloc(world, BYTES, IST_MEM_SYMMETRIC, &memory));
    which->memory[rank] = memory;
    if (fault != UNWRITTEN) {
        IST_TEST_PASS_ON(ist_fill(stream, memory, 1, BYTES));
        IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    }
    if (fault == DISAGREEING && rank == 1) {
        IST_TEST_PASS_ON(ist_dev_comm_open(comm, 4096, 0, 0, 0, 0, &dev));
    }
    if (fault != FOREIGN) {
        IST_TEST_PASS_ON(
            ist_window_open(comm, memory, fault == OUTSIDE ? BYTES / 2 : BYTES, &window));
    }
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 4096, 0, 0, 0, 1, &dev));
    if (fault == CLOSED && rank == 1) {
        IST_TEST_PASS_ON(ist_window_close(window));
        window = NULL;
    }
    IST_TEST_PASS_ON(touch(which, world, comm, stream, dev));
    IST_TEST_PASS_ON(meet(comm));
    if (window != NULL) {
        IST_TEST_PASS_ON(ist_window_close(window));
    }
    if (fault != LEAKING || rank == 0) {
        IST_TEST_PASS_ON(ist_mem_free(world, memory));
    }
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, dev));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    IST_TEST_PASS_ON(ist_comm_close(comm));
    return fault == FAILING && rank == 1 ? IST_ERR_REMOTE : IST_OK;
}

/* The first finding of some seeds. */
static ist_status explore(fault_kind fault, ist_explore_report *report)
{
    ist_explore_desc desc = {
        .size = sizeof(desc), .scheduler = IST_SCHEDULER_RANDOM, .replay = "test_sched_findings"};
    ist_sim_desc sim = {.size = sizeof(sim), .op_count_max = 20000};
    ist_world_desc world = {.size = sizeof(world), .rank_count = 2, .sim = &sim};
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < 40 && status == IST_OK; ++i) {
        program which = {.fault = fault};
        world.seed = ist_test_seed() + i;
        *report = (ist_explore_report){.size = sizeof(*report)};
        status = ist_explore_run(&world, program_main, &which, &desc, report);
    }
    return status;
}

static void expect_text(const ist_finding *finding, const char *wanted)
{
    if (strstr(finding->text, wanted) == NULL) {
        print_error("\"%s\" is not in the report:\n%s", wanted, finding->text);
        fail();
    }
}

static void expect_finding(fault_kind fault, ist_finding_kind kind, ist_status status,
                           const char *const *words)
{
    ist_explore_report report;
    assert_int_equal(explore(fault, &report), status);
    if (report.finding.kind != kind) {
        print_error("%s instead of %s:\n%s", ist_finding_name(report.finding.kind),
                    ist_finding_name(kind), report.finding.text);
    }
    assert_int_equal(report.finding.kind, kind);
    for (uint32_t i = 0; words[i] != NULL; ++i) {
        expect_text(&report.finding, words[i]);
    }
    expect_text(&report.finding, "test_sched_findings --scheduler random --seed ");
}

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void a_sound_program_is_clean(void **state)
{
    (void)state;
    ist_explore_report report;
    ist_status status = explore(SOUND, &report);
    if (status != IST_OK) {
        print_error("%s", report.finding.text);
    }
    assert_int_equal(status, IST_OK);
    assert_int_equal(report.finding.kind, IST_FINDING_NONE);
}

static void a_race_names_both_accesses(void **state)
{
    (void)state;
    ist_explore_report report;
    assert_int_equal(explore(RACING, &report), IST_ERR_DEVICE);
    const ist_finding *finding = &report.finding;
    assert_true(finding->kind == IST_FINDING_RACE || finding->kind == IST_FINDING_REUSED);
    assert_int_equal(finding->first.owner, 1);
    assert_int_equal(finding->second.owner, 1);
    assert_int_equal(finding->first.bytes, 64);
    assert_int_equal(finding->first.offset, finding->second.offset);
    assert_int_not_equal(finding->first.rank, finding->second.rank);
    assert_int_not_equal(finding->first.write, finding->second.write);
    assert_string_equal(finding->first.kernel, "touch_rows");
    assert_string_equal(finding->second.phase, "touch.begin");
    expect_text(finding, "missing: release at system scope");
}

static void memory_that_nobody_wrote(void **state)
{
    (void)state;
    expect_finding(UNWRITTEN, IST_FINDING_UNWRITTEN, IST_ERR_DEVICE,
                   WORDS("nobody has written it", "read of", "by rank 1, kernel touch_rows"));
}

static void deadlock_shows_the_graph(void **state)
{
    (void)state;
    expect_finding(WAITING, IST_FINDING_DEADLOCK, IST_ERR_DEADLOCK,
                   WORDS("rank 1, kernel touch_rows, block 0, after touch.begin waits for a word",
                         "(expects 0x7, sees 0x0)", "rank 0, program waits for a collective call",
                         "rank 1, program waits for a stream"));
}

static void polling_without_end(void **state)
{
    (void)state;
    expect_finding(POLLING, IST_FINDING_LIVELOCK, IST_ERR_DEADLOCK, WORDS("the limit of steps"));
}

static void outside_of_windows(void **state)
{
    (void)state;
    expect_finding(OUTSIDE, IST_FINDING_OUTSIDE, IST_ERR_DEVICE,
                   WORDS("outside the windows", "write of 64 bytes", "of rank 1's memory"));
    expect_finding(CLOSED, IST_FINDING_OUTSIDE, IST_ERR_DEVICE, WORDS("the window was closed"));
    expect_finding(FOREIGN, IST_FINDING_FOREIGN, IST_ERR_DEVICE,
                   WORDS("never in a window", "by rank 0, kernel touch_rows"));
}

static void programs_that_disagree(void **state)
{
    (void)state;
    expect_finding(DISAGREEING, IST_FINDING_DISAGREE, IST_ERR_MISMATCH,
                   WORDS("collective call", "rank 1", "rank 0"));
}

static void what_is_left_behind(void **state)
{
    (void)state;
    expect_finding(LEAKING, IST_FINDING_LEAK, IST_ERR_DEVICE,
                   WORDS("rank 1 leaves 1 allocations of 8192 bytes"));
    expect_finding(FAILING, IST_FINDING_STATUS, IST_ERR_REMOTE, WORDS("IST_ERR_REMOTE"));
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_program_is_clean), cmocka_unit_test(a_race_names_both_accesses),
        cmocka_unit_test(memory_that_nobody_wrote), cmocka_unit_test(deadlock_shows_the_graph),
        cmocka_unit_test(polling_without_end),      cmocka_unit_test(outside_of_windows),
        cmocka_unit_test(programs_that_disagree),   cmocka_unit_test(what_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
