/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The museum: does exploring find protocols that failed in public, and nothing in what they should have
 * been? Method: a piece's broken variant is run from the seed on, with random priorities and random
 * choices by turns and no hint, until something is found: it must be the failure, and the same again
 * when its choices are replayed, and when they are shrunk and read from a file. Its fixed variant is run
 * for a number of schedules, and searched exhaustively for as many.
 *
 *   test_museum [PIECE] [--seed N] [--schedules N]
 */
#include "museum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define FIND_MAX 20000u /* schedules until the broken variant must be found */
#define FIXED 2000u     /* schedules of the fixed variant, unless told */
#define SHRINK_MAX 2000u
#define CHOICES_MAX 16384u
#define STEPS_MAX 50000u
#define PCT_STEPS 300u
#define DEADLINE_NS UINT64_C(1000000000000) /* longer than anybody is late */

static const museum_piece *const pieces[] = {
#define X(piece) &piece,
    MUSEUM_PIECES(X)
#undef X
};

static const char *wanted; /* piece; NULL: all */
static uint32_t schedule_count;

typedef struct schedule {
    const museum_piece *piece;
    museum_run run;
    ist_explore_desc explore;
    const ist_fault_plan *faults; /* instead of the piece's, if `has_faults` */
    bool has_faults;
    ist_explore_report report;
} schedule;

/* ---- one schedule ---------------------------------------------------------------------------- */

/* The seed alone says which scheduler, so that a report's seed repeats it. */
static void schedule_of(schedule *made, const museum_piece *piece, uint64_t seed, uint32_t broken)
{
    *made = (schedule){.piece = piece};
    made->run = (museum_run){.seed = seed, .broken = broken};
    made->explore = (ist_explore_desc){.size = sizeof(made->explore), .steps = PCT_STEPS};
    made->explore.detectors_off = piece->detectors_off;
    made->explore.scheduler = seed % 3u == 0 ? IST_SCHEDULER_RANDOM : IST_SCHEDULER_PCT;
    made->explore.depth = seed % 3u == 0 ? 0u : 1u + (uint32_t)(seed % 3u);
}

/* What a schedule runs in; open until schedule_end(). */
typedef struct schedule_world {
    ist_fault_plan *plan; /* the piece's own, or NULL */
    ist_sim_desc sim;
    ist_world_desc desc;
} schedule_world;

static void schedule_begin(const schedule *one, schedule_world *world)
{
    const museum_piece *piece = one->piece;
    *world = (schedule_world){.plan = NULL};
    if (piece->faults != NULL && !one->has_faults) {
        assert_int_equal(ist_fault_plan_open(&world->plan), IST_OK);
        assert_int_equal(piece->faults(&one->run, world->plan), IST_OK);
    }
    uint64_t step_max = piece->step_count_max > 0 ? piece->step_count_max : STEPS_MAX;
    world->sim = (ist_sim_desc){.size = sizeof(world->sim), .op_count_max = step_max};
    world->desc = (ist_world_desc){.size = sizeof(world->desc),
                                   .backend = "sim",
                                   .cluster = piece->cluster,
                                   .rank_count = piece->rank_count,
                                   .seed = one->run.seed,
                                   .deadline_ns = DEADLINE_NS,
                                   .faults = one->has_faults ? one->faults : world->plan,
                                   .sim = &world->sim};
}

static void schedule_end(schedule_world *world)
{
    ist_fault_plan_close(world->plan);
}

static ist_status schedule_run(schedule *one)
{
    schedule_world world;
    schedule_begin(one, &world);
    ist_status status =
        ist_explore_run(&world.desc, one->piece->rank_main, &one->run, &one->explore, &one->report);
    schedule_end(&world);
    return status;
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool has_words(const schedule *one, const museum_answer *answer)
{
    for (uint32_t i = 0; i < 3u && answer->words[i] != NULL; ++i) {
        if (strstr(one->report.finding.text, answer->words[i]) == NULL &&
            strstr(one->run.why, answer->words[i]) == NULL) {
            return false;
        }
    }
    return true;
}

static bool is_the_failure(const schedule *one)
{
    for (uint32_t i = 0; i < 3u; ++i) {
        const museum_answer *answer = &one->piece->answers[i];
        if ((answer->kinds >> one->report.finding.kind & 1u) != 0 && has_words(one, answer)) {
            return true;
        }
    }
    return false;
}

static void tell(const schedule *one, const char *what)
{
    print_error("%s, seed %llu: %s\n%s%s%s", one->piece->name, (unsigned long long)one->run.seed,
                what, one->report.finding.text, one->run.why, one->run.why[0] != '\0' ? "\n" : "");
}

static double seconds_since(clock_t begin)
{
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* The same failure, event for event, from its choices. */
static void expect_replay(const schedule *found)
{
    ist_choice *again = calloc(CHOICES_MAX, sizeof(*again));
    schedule *replay = malloc(sizeof(*replay));
    assert_non_null(again);
    assert_non_null(replay);
    *replay = *found;
    replay->explore.scheduler = IST_SCHEDULER_REPLAY;
    replay->explore.choices = found->report.choices;
    replay->explore.choice_count = found->report.choice_count;
    replay->report = (ist_explore_report){
        .size = sizeof(replay->report), .choices = again, .choice_capacity = CHOICES_MAX};
    (void)schedule_run(replay);
    const ist_finding *a = &found->report.finding, *b = &replay->report.finding;
    if (a->kind != b->kind || found->report.digest != replay->report.digest ||
        memcmp(&a->first, &b->first, sizeof(a->first)) != 0 ||
        memcmp(&a->second, &b->second, sizeof(a->second)) != 0 ||
        strcmp(found->run.why, replay->run.why) != 0) {
        tell(replay, "the replay differs");
        fail();
    }
    free(again);
    free(replay);
}

static ist_status run_case(const ist_case *which, void *context, ist_explore_report *report)
{
    schedule one;
    schedule_of(&one, context, which->seed, 1);
    one.explore.scheduler = which->scheduler;
    one.explore.depth = which->depth;
    one.explore.steps = which->steps;
    one.explore.choices = which->choices;
    one.explore.choice_count = which->choice_count;
    one.faults = which->faults;
    one.has_faults = true;
    one.report = *report;
    ist_status status = schedule_run(&one);
    *report = one.report;
    return status;
}

/* The failure that was found, as a case of its choices. */
static ist_case *case_of(const schedule *found)
{
    ist_case *made = NULL;
    assert_int_equal(ist_case_open(&made), IST_OK);
    (void)snprintf(made->scenario, sizeof(made->scenario), "%s", found->piece->name);
    made->seed = found->run.seed;
    made->scheduler = found->explore.scheduler;
    made->depth = found->explore.depth;
    made->steps = found->explore.steps;
    made->kind = found->report.finding.kind;
    made->status = found->report.finding.status;
    if (found->piece->faults != NULL) {
        assert_int_equal(ist_fault_plan_open(&made->faults), IST_OK);
        assert_int_equal(found->piece->faults(&found->run, made->faults), IST_OK);
    }
    return made;
}

/* What was shrunk goes through its text, and fails in the same way. */
static void expect_file(const ist_case *which, const museum_piece *piece)
{
    size_t needed = 0;
    ist_case *read = NULL;
    ist_explore_report report = {.size = sizeof(report)};
    (void)ist_case_print(which, NULL, 0, &needed);
    char *text = malloc(needed);
    assert_non_null(text);
    assert_int_equal(ist_case_print(which, text, needed, NULL), IST_OK);
    assert_int_equal(ist_case_parse(text, &read), IST_OK);
    (void)run_case(read, (void *)(uintptr_t)piece, &report);
    assert_int_equal(report.finding.kind, which->kind);
    assert_true(report.digest == which->digest);
    ist_case_close(read);
    free(text);
}

static void shrink(const schedule *found)
{
    ist_case *which = case_of(found);
    ist_shrink_result result = {.size = sizeof(result)};
    assert_int_equal(
        ist_case_shrink(which, run_case, (void *)(uintptr_t)found->piece, SHRINK_MAX, &result),
        IST_OK);
    print_message("%-18s shrunk from %u choices to %u, %llu device operations, %llu runs\n",
                  found->piece->name, result.choices_before, result.choices_after,
                  (unsigned long long)result.ops_after, (unsigned long long)result.runs);
    expect_file(which, found->piece);
    ist_case_close(which);
}

static void find_the_broken(const museum_piece *piece)
{
    char line[96];
    clock_t begin = clock();
    schedule *one = malloc(sizeof(*one));
    ist_choice *choices = calloc(CHOICES_MAX, sizeof(*choices));
    assert_non_null(one);
    assert_non_null(choices);
    (void)snprintf(line, sizeof(line), "test_museum %s", piece->name);
    uint32_t runs = 0;
    do {
        schedule_of(one, piece, ist_test_seed() + runs++, 1);
        one->explore.replay = line;
        one->report = (ist_explore_report){
            .size = sizeof(one->report), .choices = choices, .choice_capacity = CHOICES_MAX};
        (void)schedule_run(one);
    } while (one->report.finding.kind == IST_FINDING_NONE && runs < FIND_MAX);
    print_message("%-18s found in schedule %u, %.3f s: %s, %u choices\n", piece->name, runs,
                  seconds_since(begin), ist_finding_name(one->report.finding.kind),
                  one->report.choice_count);
    if (!is_the_failure(one)) {
        tell(one, "this is not the failure of the piece");
        fail();
    }
    assert_true(one->report.choice_count <= CHOICES_MAX);
    expect_replay(one);
    shrink(one);
    if (getenv("IST_TEST_LOG") != NULL) {
        print_message("%s%s\n", one->report.finding.text, one->run.why);
    }
    free(choices);
    free(one);
}

static void nothing_in_the_fixed(const museum_piece *piece)
{
    clock_t begin = clock();
    schedule *one = malloc(sizeof(*one));
    assert_non_null(one);
    for (uint32_t i = 0; i < schedule_count; ++i) {
        schedule_of(one, piece, ist_test_seed() + i, 0);
        one->report = (ist_explore_report){.size = sizeof(one->report)};
        (void)schedule_run(one);
        if (one->report.finding.kind != IST_FINDING_NONE) {
            tell(one, "something is found in the fixed variant");
            fail();
        }
    }
    print_message("%-18s fixed: %u schedules, %.3f s, clean\n", piece->name, schedule_count,
                  seconds_since(begin));
    free(one);
}

/* Every schedule, as far as that number goes: programs in one order, kernels and network in all. */
static void search(schedule *one, const museum_piece *piece, uint32_t broken,
                   ist_explore_all_result *result)
{
    schedule_world world;
    schedule_of(one, piece, ist_test_seed(), broken);
    schedule_begin(one, &world);
    ist_explore_all_desc all = {
        .size = sizeof(all), .run_count_max = schedule_count, .explore = one->explore};
    *result = (ist_explore_all_result){.size = sizeof(*result)};
    (void)ist_explore_all(&world.desc, piece->rank_main, &one->run, &all, result);
    schedule_end(&world);
    one->report = result->first;
}

static void search_the_broken(const museum_piece *piece)
{
    schedule one;
    ist_explore_all_result result;
    search(&one, piece, 1, &result);
    if (result.finding_count == 0 || !is_the_failure(&one)) {
        tell(&one, "a search does not find it, though every schedule shows it");
        fail();
    }
}

static void search_the_fixed(const museum_piece *piece)
{
    schedule one;
    ist_explore_all_result result;
    search(&one, piece, 0, &result);
    if (result.executions == 0 || result.finding_count > 0) {
        tell(&one, "a search finds something in the fixed variant");
        fail();
    }
    print_message("%-18s fixed: %llu executions in %llu runs%s\n", piece->name,
                  (unsigned long long)result.executions, (unsigned long long)result.runs,
                  result.complete ? ", all there are" : "");
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void the_museum(void **state)
{
    (void)state;
    uint32_t visited = 0;
    for (uint32_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); ++i) {
        if (wanted == NULL || strcmp(wanted, pieces[i]->name) == 0) {
            find_the_broken(pieces[i]);
            nothing_in_the_fixed(pieces[i]);
            search_the_fixed(pieces[i]);
            if (pieces[i]->always) {
                search_the_broken(pieces[i]);
            }
            ++visited;
        }
    }
    assert_true(visited > 0);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    wanted = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
    schedule_count = ist_test_option(argc, argv, "--schedules", FIXED);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_museum)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
