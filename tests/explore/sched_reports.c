/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reports say about failures that hide their cause: who polls what, which program had failed
 * before the others waited for it, a put whose memory was freed under way; and that a case keeps which
 * detectors were off. Method: small programs under pct:3, which delays puts most, words of reports.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 4096u
#define SEEDS 40u

typedef enum report_fault { FREED_UNDER_WAY, LEFT_EARLY, LOADS, LOOKS } report_fault;

typedef struct report_args {
    const ist_dev_comm *dev;
    uint32_t window;
    uint32_t fault; /* report_fault */
} report_args;

IST_KERNEL(report_fail, report_args)
{
    const ist_dev_comm *dev = args->dev;
    const ist_gin_action nothing = {IST_GIN_NONE, 0, 0};
    const uint64_t *word = ist_window_local(coop, dev, 0, 64);
    ist_point(coop, "report.begin");
    if (args->fault == FREED_UNDER_WAY && dev->rank == 0) {
        ist_gin_put(coop, dev, 0, 1, args->window, 0, 0, 64, 64, nothing, IST_GIN_NO_COUNTER);
    }
    while (args->fault == LOADS && dev->rank == 1 &&
           ist_load_u64(coop, word, IST_ACQUIRE, IST_SCOPE_SYSTEM) != 7) {
    }
    while (args->fault == LOOKS && dev->rank == 1 &&
           ist_coop_wait_word(coop, dev, word, 7, ist_clock_ns(coop) + 1000, IST_SCOPE_SYSTEM) !=
               IST_WAIT_DONE) {
    }
}

/* Nobody goes on before the kernels of all have ended. */
static ist_status run_kernel(ist_world *world, ist_comm *comm, uint32_t window,
                             const ist_dev_comm *dev, report_fault fault)
{
    const ist_dev_comm *meeting = NULL;
    ist_stream *stream = NULL;
    report_args args = {dev, window, fault};
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_report_fail, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 0, 0, 0, 0, 0, &meeting));
    return ist_dev_comm_close(comm, meeting);
}

static ist_status report_main(ist_world *world, void *arg)
{
    report_fault fault = *(const report_fault *)arg;
    ist_comm *comm = NULL;
    ist_window *window = NULL;
    const ist_dev_comm *dev = NULL;
    void *memory = NULL;
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &comm));
    if (fault == LEFT_EARLY && ist_world_rank(world) == 1) {
        return IST_ERR_REMOTE;
    }
    IST_TEST_PASS_ON(ist_mem_alloc(world, BYTES, IST_MEM_SYMMETRIC, &memory));
    IST_TEST_PASS_ON(ist_window_open(comm, memory, BYTES, &window));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 4096, 1, 1, 0, 0, &dev));
    IST_TEST_PASS_ON(run_kernel(world, comm, ist_window_index(window), dev, fault));
    IST_TEST_PASS_ON(ist_window_close(window));
    IST_TEST_PASS_ON(ist_mem_free(world, memory));
    IST_TEST_PASS_ON(ist_world_sleep(world, 1000)); /* time passes when nothing is under way */
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, dev));
    return ist_comm_close(comm);
}

/* The first finding of some seeds. A wait that is given up and begun again is a deadlock, too, while
   nothing else goes on. */
static ist_status explore(report_fault fault, ist_explore_report *report)
{
    ist_explore_desc desc = {.size = sizeof(desc),
                             .scheduler = IST_SCHEDULER_PCT,
                             .detectors_off =
                                 fault == LOOKS ? IST_DETECTOR(IST_FINDING_DEADLOCK) : 0};
    ist_sim_desc sim = {.size = sizeof(sim), .op_count_max = 4000};
    ist_world_desc world = {.size = sizeof(world), .rank_count = 2, .sim = &sim};
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < SEEDS && status == IST_OK; ++i) {
        world.seed = ist_test_seed() + i;
        *report = (ist_explore_report){.size = sizeof(*report)};
        status = ist_explore_run(&world, report_main, &fault, &desc, report);
    }
    return status;
}

static void expect(report_fault fault, ist_finding_kind kind, const char *const *words)
{
    ist_explore_report report;
    assert_int_not_equal(explore(fault, &report), IST_OK);
    const ist_finding *finding = &report.finding;
    for (uint32_t i = 0; words[i] != NULL; ++i) {
        if (finding->kind != kind || strstr(finding->text, words[i]) == NULL) {
            print_error("\"%s\" is not in the report of a %s:\n%s", words[i],
                        ist_finding_name(kind), finding->text);
            fail();
        }
    }
}

static void a_put_to_freed_memory_is_found(void **state)
{
    (void)state;
    expect(FREED_UNDER_WAY, IST_FINDING_OUTSIDE,
           (const char *const[]){"a put of 64 bytes from rank 0 to rank 1, context 0",
                                 "was freed while it was on its way", NULL});
}

static void an_early_error_comes_before_the_deadlock(void **state)
{
    (void)state;
    expect(LEFT_EARLY, IST_FINDING_DEADLOCK,
           (const char *const[]){"before that: the program of rank 1 ended with IST_ERR_REMOTE",
                                 "rank 0, program waits for", NULL});
}

static void a_livelock_says_who_polls_what(void **state)
{
    (void)state;
    expect(LOADS, IST_FINDING_LIVELOCK,
           (const char *const[]){"rank 1, kernel report_fail, block 0, after report.begin reads 8 "
                                 "bytes at offset 0x",
                                 "of rank 1's memory (sees 0x0)", "times since step", NULL});
    expect(LOOKS, IST_FINDING_LIVELOCK,
           (const char *const[]){"rank 1, kernel report_fail, block 0, after report.begin looks at "
                                 "a word (expects 0x7, sees 0x0)",
                                 "times since", NULL});
    ist_explore_report report;
    (void)explore(LOOKS, &report);
    assert_int_equal(report.finding.first.rank, 1);
    assert_int_equal(report.finding.first.block, 0);
    assert_int_equal(report.finding.expected, 7);
    assert_int_equal(report.finding.seen, 0);
}

/* The seed fails unless the detector is off, by the case or by who runs it. */
static void a_case_keeps_its_detectors(void **state)
{
    (void)state;
    report_fault fault = FREED_UNDER_WAY;
    const uint32_t off = IST_DETECTOR(IST_FINDING_OUTSIDE);
    ist_explore_report report = {.size = sizeof(report)};
    ist_world_desc world = {.size = sizeof(world), .rank_count = 2, .seed = ist_test_seed()};
    ist_case *which = NULL;
    assert_int_equal(ist_case_open(&which), IST_OK);
    which->scheduler = IST_SCHEDULER_PCT;
    for (which->seed = ist_test_seed();
         ist_case_world(which, &world, report_main, &fault, &report) == IST_OK; ++which->seed) {
        assert_true(which->seed < ist_test_seed() + SEEDS);
    }
    ist_explore_desc desc = {.size = sizeof(desc), .detectors_off = off};
    ist_sim_desc sim = {.size = sizeof(sim), .explore = &desc};
    world.sim = &sim;
    assert_int_equal(ist_case_world(which, &world, report_main, &fault, &report), IST_OK);
    world.sim = NULL;
    which->detectors_off = off;
    char text[4096];
    ist_case *read = NULL;
    assert_int_equal(ist_case_print(which, text, sizeof(text), NULL), IST_OK);
    assert_int_equal(ist_case_parse(text, &read), IST_OK);
    assert_int_equal(read->detectors_off, off);
    assert_int_equal(ist_case_world(read, &world, report_main, &fault, &report), IST_OK);
    ist_case_close(read);
    ist_case_close(which);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_to_freed_memory_is_found),
        cmocka_unit_test(an_early_error_comes_before_the_deadlock),
        cmocka_unit_test(a_livelock_says_who_polls_what),
        cmocka_unit_test(a_case_keeps_its_detectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
