/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers: nothing but the seed decides, the bound of PCT, names, replay of choices, replay files,
 * and shrinking. Method: the same schedule twice gives the same digest of events and of choices; the
 * choices of a random schedule, replayed, give it again, also through a file; a failing program of
 * many ranks, operations and faults shrinks to its core.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHOICES 20000u

/* A chain of ranks: each waits for the one before, reads its row, passes one on; `rounds` times. In the
   broken one, the flag of a round is not released. */
typedef struct chain {
    uint32_t ranks, rounds, rows;
    int broken;
} chain;

typedef struct chain_args {
    const ist_dev_comm *dev;
    uint32_t rounds, rows;
    uint32_t relaxed_round; /* from 1; 0: none */
    uint32_t reserved;
} chain_args;

#define FLAG 0u
#define ROWS 1024u
#define ROW 64u

IST_KERNEL(chain_pass, chain_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t next = (dev->rank + 1u) % dev->rank_count;
    uint64_t deadline_ns = ist_clock_ns(coop) + 1000000u;
    uint64_t *mine = ist_window_local(coop, dev, 0, FLAG);
    uint64_t *there = ist_window_peer(coop, dev, 0, FLAG, next);
    uint8_t *copy = ist_coop_scratch(coop, 0, ROW);
    for (uint32_t round = 1; round <= args->rounds; ++round) {
        if (dev->rank != 0 || round > 1) {
            uint64_t tag = dev->rank == 0 ? round - 1u : round;
            (void)ist_coop_wait_word(coop, dev, mine, tag, deadline_ns, IST_SCOPE_SYSTEM);
            for (uint32_t i = 0; i < args->rows; ++i) {
                ist_row_copy(coop, copy, ist_window_local(coop, dev, 0, ROWS + i * ROW), ROW);
            }
        }
        for (uint32_t i = 0; i < args->rows; ++i) {
            ist_row_fill(coop, ist_window_peer(coop, dev, 0, ROWS + i * ROW, next), (uint8_t)round,
                         ROW);
        }
        ist_coop_sync(coop);
        ist_store_u64(coop, there, round,
                      round == args->relaxed_round && dev->rank == 1 ? IST_RELAXED : IST_RELEASE,
                      IST_SCOPE_SYSTEM);
    }
}

static ist_status chain_main(ist_world *world, void *arg)
{
    const chain *which = arg;
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    const ist_dev_comm *dev = NULL;
    const ist_dev_comm *meeting = NULL;
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 4096, 0, 0, 0, 0, &dev));
    chain_args args = {.dev = dev,
                       .rounds = which->rounds,
                       .rows = which->rows,
                       .relaxed_round = which->broken ? (which->rounds + 1u) / 2u : 0};
    IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_chain_pass, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 0, 0, 0, 0, 0, &meeting));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, meeting));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, dev));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    return ist_comm_close(comm);
}

static ist_status run(const chain *which, const ist_explore_desc *explore, uint64_t seed,
                      ist_explore_report *report)
{
    chain copy = *which;
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = which->ranks, .seed = seed};
    return ist_explore_run(&desc, chain_main, &copy, explore, report);
}

static const chain sound = {4, 3, 2, 0};

/* ---- seeds ----------------------------------------------------------------------------------- */

static void nothing_but_the_seed_decides(void **state)
{
    (void)state;
    const char *const names[] = {"random", "pct:1", "pct:3", "pct:10"};
    for (uint32_t i = 0; i < 4; ++i) {
        ist_explore_desc explore = {.size = sizeof(explore)};
        assert_int_equal(ist_scheduler_parse(names[i], &explore), IST_OK);
        uint64_t last = 0;
        uint32_t changes = 0;
        for (uint64_t seed = 0; seed < 20; ++seed) {
            ist_explore_report one = {.size = sizeof(one)};
            ist_explore_report other = {.size = sizeof(other)};
            assert_int_equal(run(&sound, &explore, seed, &one), IST_OK);
            chain between = {3, 1, 1, 0}; /* another world in between leaves no trace */
            (void)run(&between, &explore, seed + 7, &other);
            other = (ist_explore_report){.size = sizeof(other)};
            assert_int_equal(run(&sound, &explore, seed, &other), IST_OK);
            assert_int_equal(one.digest, other.digest);
            assert_int_equal(one.choices_digest, other.choices_digest);
            assert_int_equal(one.steps, other.steps);
            assert_int_equal(one.wait_shape, other.wait_shape);
            changes += seed > 0 && one.choices_digest != last;
            last = one.choices_digest;
        }
        assert_true(changes > 10);
    }
}

static void pct_tells_its_bound(void **state)
{
    (void)state;
    ist_explore_desc explore = {
        .size = sizeof(explore), .scheduler = IST_SCHEDULER_PCT, .depth = 3, .steps = 200};
    ist_explore_report report = {.size = sizeof(report)};
    assert_int_equal(run(&sound, &explore, 1, &report), IST_OK);
    assert_true(report.agents >= 8); /* four programs, four blocks */
    assert_int_equal(report.pct_bound_inverse, (uint64_t)report.agents * 200u * 200u);
    print_message(
        "pct:3 meets a failure of depth 3 with probability at least 1 / %llu (%u agents)\n",
        (unsigned long long)report.pct_bound_inverse, report.agents);
    explore.depth = 30;
    explore.steps = 1000000;
    assert_int_equal(run(&sound, &explore, 1, &report), IST_OK);
    assert_int_equal(report.pct_bound_inverse, UINT64_MAX);
}

static void names_of_schedulers(void **state)
{
    (void)state;
    ist_explore_desc explore = {.size = sizeof(explore)};
    assert_int_equal(ist_scheduler_parse("pct", &explore), IST_OK);
    assert_int_equal(explore.scheduler, IST_SCHEDULER_PCT);
    assert_int_equal(ist_scheduler_parse("pct:7", &explore), IST_OK);
    assert_int_equal(explore.depth, 7);
    assert_int_equal(ist_scheduler_parse("fair", &explore), IST_OK);
    assert_int_equal(explore.scheduler, IST_SCHEDULER_FAIR);
    const char *const wrong[] = {"", "pct:", "pct:0", "pct:65", "pct:3x", "Random", "pctx"};
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_int_equal(ist_scheduler_parse(wrong[i], &explore), IST_ERR_PARSE);
    }
    assert_int_equal(ist_scheduler_parse(NULL, &explore), IST_ERR_NULL);
    assert_string_equal(ist_finding_name(IST_FINDING_REUSED), "reused");
    assert_string_equal(ist_finding_name((ist_finding_kind)99), "?");
}

/* ---- replay ---------------------------------------------------------------------------------- */

static void choices_repeat_a_schedule(void **state)
{
    (void)state;
    ist_choice *choices = calloc(CHOICES, sizeof(*choices));
    assert_non_null(choices);
    for (uint64_t seed = 0; seed < 20; ++seed) {
        ist_explore_desc explore = {.size = sizeof(explore),
                                    .scheduler =
                                        seed % 2 == 0 ? IST_SCHEDULER_RANDOM : IST_SCHEDULER_PCT};
        ist_explore_report first = {
            .size = sizeof(first), .choices = choices, .choice_capacity = CHOICES};
        assert_int_equal(run(&sound, &explore, seed, &first), IST_OK);
        assert_true(first.choice_count > 0 && first.choice_count < CHOICES);
        ist_explore_desc replay = {.size = sizeof(replay),
                                   .scheduler = IST_SCHEDULER_REPLAY,
                                   .choices = choices,
                                   .choice_count = first.choice_count};
        ist_explore_report again = {.size = sizeof(again)};
        assert_int_equal(run(&sound, &replay, seed + 100, &again), IST_OK);
        assert_int_equal(again.digest, first.digest);
        assert_int_equal(again.choices_digest, first.choices_digest);
    }
    free(choices);
}

/* ---- shrinking ------------------------------------------------------------------------------- */

static ist_status chain_case(const ist_case *which, void *context, ist_explore_report *report)
{
    (void)context;
    chain program = {(uint32_t)which->params[0], (uint32_t)which->params[1],
                     (uint32_t)which->params[2], 1};
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = program.ranks};
    return ist_case_world(which, &desc, chain_main, &program, report);
}

static void add_number(ist_case *which, const char *name, uint64_t value, uint64_t least)
{
    uint32_t at = which->param_count++;
    (void)snprintf(which->names[at], sizeof(which->names[at]), "%s", name);
    which->params[at] = value;
    which->least[at] = least;
}

/* Six ranks, eight rounds, faults that have nothing to do with it, and a random schedule. */
static ist_case *failing_case(void)
{
    ist_case *which = NULL;
    assert_int_equal(ist_case_open(&which), IST_OK);
    (void)snprintf(which->scenario, sizeof(which->scenario), "chain");
    add_number(which, "ranks", 6, 2);
    add_number(which, "rounds", 8, 1);
    add_number(which, "rows", 4, 1);
    assert_int_equal(ist_fault_plan_open(&which->faults), IST_OK);
    for (uint32_t i = 0; i < 4; ++i) {
        ist_fault fault = {.size = sizeof(fault),
                           .kind = IST_FAULT_DELAY,
                           .trigger = IST_FAULT_NTH,
                           .rank = (int32_t)i,
                           .peer = IST_FAULT_ANY,
                           .classes = IST_FAULT_STORES,
                           .at_op = 1 + i,
                           .duration_ns = 100};
        assert_int_equal(ist_fault_plan_add(which->faults, &fault), IST_OK);
    }
    which->kind = IST_FINDING_RACE;
    for (which->seed = ist_test_seed(); which->seed < ist_test_seed() + 100; ++which->seed) {
        ist_explore_report report = {.size = sizeof(report)};
        (void)chain_case(which, NULL, &report);
        if (report.finding.kind == IST_FINDING_RACE) {
            which->status = report.finding.status;
            return which;
        }
    }
    fail_msg("no seed shows the race");
    return which;
}

static void a_failing_case_shrinks_to_its_core(void **state)
{
    (void)state;
    ist_case *which = failing_case();
    ist_shrink_result result = {.size = sizeof(result)};
    assert_int_equal(ist_case_shrink(which, chain_case, NULL, 0, &result), IST_OK);
    print_message("%u ranks, %u rounds, %u rows, %u faults, %u of %u choices, %llu of %llu device "
                  "operations, in %llu runs\n",
                  (unsigned)which->params[0], (unsigned)which->params[1],
                  (unsigned)which->params[2], result.faults_after, result.choices_after,
                  result.choices_before, (unsigned long long)result.ops_after,
                  (unsigned long long)result.ops_before, (unsigned long long)result.runs);
    assert_true(which->params[0] <= 4);
    assert_int_equal(which->params[1], 1);
    assert_int_equal(which->params[2], 1);
    assert_int_equal(result.faults_after, 0);
    assert_true(result.ops_after <= 20);
    assert_true(result.choices_after <= 6);

    /* The file is whole: what is read back fails in the same way, byte for byte. */
    size_t bytes = 0;
    assert_int_equal(ist_case_print(which, NULL, 0, &bytes), IST_OK);
    char *text = calloc(1, bytes);
    char *again = calloc(1, bytes);
    assert_true(text != NULL && again != NULL);
    assert_int_equal(ist_case_print(which, text, bytes, NULL), IST_OK);
    ist_case *read = NULL;
    assert_int_equal(ist_case_parse(text, &read), IST_OK);
    assert_int_equal(ist_case_print(read, again, bytes, NULL), IST_OK);
    assert_string_equal(text, again);
    for (uint32_t i = 0; i < 3; ++i) {
        ist_explore_report report = {.size = sizeof(report)};
        assert_int_equal(chain_case(read, NULL, &report), IST_ERR_DEVICE);
        assert_int_equal(report.finding.kind, read->kind);
        assert_int_equal(report.digest, read->digest);
        assert_int_equal(report.device_op_count, read->device_op_count);
    }
    free(text);
    free(again);
    ist_case_close(read);
    ist_case_close(which);
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    ist_case *read = NULL;
    const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"isthmus_case\":2}",
        "{\"isthmus_case\":1,\"scenario\":\"x\",\"scheduler\":\"who\"}",
        "{\"isthmus_case\":1,\"scenario\":\"x\",\"scheduler\":\"replay\",\"seed\":\"xyz\"}",
        "{\"isthmus_case\":1,\"scenario\":\"x\",\"scheduler\":\"replay\",\"seed\":\"1\",\"params\":"
        "{\"a\":[1]},\"choices\":[]}",
        "{\"isthmus_case\":1,\"scenario\":\"x\",\"scheduler\":\"replay\",\"seed\":\"1\",\"params\":{},"
        "\"choices\":[[1,-1]]}"};
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_int_equal(ist_case_parse(wrong[i], &read), IST_ERR_PARSE);
    }
    assert_int_equal(ist_case_parse(NULL, &read), IST_ERR_NULL);
    assert_null(read);
    /* A case that does not fail cannot shrink. */
    ist_case *which = failing_case();
    which->kind = IST_FINDING_LEAK;
    assert_int_equal(ist_case_shrink(which, chain_case, NULL, 0, NULL), IST_ERR_ARGUMENT);
    ist_case_close(which);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_the_seed_decides),
        cmocka_unit_test(pct_tells_its_bound),
        cmocka_unit_test(names_of_schedulers),
        cmocka_unit_test(choices_repeat_a_schedule),
        cmocka_unit_test(a_failing_case_shrinks_to_its_core),
        cmocka_unit_test(wrong_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
