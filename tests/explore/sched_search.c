/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exhaustive scheduler: is the reduction right, and does it cover the small protocols completely?
 * Method: tiny programs with and without reduction must have the same outcomes, and as many distinct
 * executions as can be counted by hand; four protocols are searched to the end, once as they are
 * (nothing is found), with outcomes foretold for some that are broken, and with each order, scope,
 * sync, wait, strong signal and tag weakened by turns (something is always found).
 */
#include "litmus.h"

#define RACE IST_FINDING_RACE
#define DEADLOCK IST_FINDING_DEADLOCK

/* ---- against brute force --------------------------------------------------------------------- */

typedef struct tiny {
    litmus_case which;
    uint64_t executions; /* counted by hand */
} tiny;

static const tiny tiny_programs[] = {
    /* Two writes to different words: one order is enough. */
    {{"two words", 2, {"0.0: W0.a=1", "1.0: W0.b=1"}, "-", 0}, 1},
    /* Two updates of one word: two orders. */
    {{"one word", 2, {"0.0: A0.a+1", "1.0: A0.a+1"}, "01 10", 0}, 2},
    /* 2 * 2 orders, less the one that is a cycle. */
    {{"SB, updates", 2, {"0.0: A1.a+1; A0.b+0", "1.0: A0.b+1; A1.a+0"}, "0001 0100 0101", 0}, 3},
    /* Read before the write: 0; after: 1, or 0 as long as it is not ordered. */
    {{"one word, read", 2, {"0.0: W0.a=1", "1.0: R0.a"}, "0 1", 0}, 3},
    {{"MP", 2, {"0.0: W1.a=1; W1.b=1@rs", "1.0: R1.b@as; R1.a"}, "00 01 11", 0}, 6},
    {{"put and signal", 2, {"0.0: V0>1.a=5:s0", "1.0: T0.0>1; R1.a"}, "5", 0}, 2},
};

/* Six orders of the updates of each word, less the nine pairs that are cycles. */
static const tiny iriw = {
    {"IRIW, four ranks",
     4,
     {"0.0: A0.a+1", "1.0: A1.b+1", "2.0: A0.a+0; A1.b+0", "3.0: A1.b+0; A0.a+0"},
     "000000 000001 000010 000011 000100 000101 000110 000111 001000 001001 "
     "001011 001100 001101 001110 001111",
     0},
    27};

static uint64_t executions_of(const litmus_case *which, uint32_t brute_force, uint32_t *failures)
{
    litmus_search_result result;
    *failures += litmus_search_into(which, LITMUS_SEARCH_RUNS, brute_force, &result);
    return result.executions;
}

static void reduction_loses_nothing(void **state)
{
    (void)state;
    uint32_t failures = 0;
    for (uint32_t i = 0; i < sizeof(tiny_programs) / sizeof(tiny_programs[0]); ++i) {
        const tiny *program = &tiny_programs[i];
        uint64_t reduced = executions_of(&program->which, 0, &failures);
        uint64_t all = executions_of(&program->which, 1, &failures);
        assert_int_equal(failures, 0);
        assert_int_equal(reduced, program->executions);
        assert_true(all >= reduced);
    }
    assert_int_equal(executions_of(&iriw.which, 0, &failures), iriw.executions);
}

/* ---- four protocols -------------------------------------------------------------------------- */

/* A barrier of three ranks out of words: tell both, wait for both. */
static const litmus_case barrier_programs[] = {
    {"barrier of words, 3 ranks",
     3,
     {"0.0: B1.a=1; Y; W1.b=1@rs; W2.b=1@rs; E0.c>1@s; E0.d>1@s; C0.a",
      "1.0: B2.a=1; Y; W0.c=1@rs; W2.c=1@rs; E1.b>1@s; E1.d>1@s; C1.a",
      "2.0: B0.a=1; Y; W0.d=1@rs; W1.d=1@rs; E2.b>1@s; E2.c>1@s; C2.a"},
     "111",
     0},
    {"barrier, one store relaxed",
     3,
     {"0.0: B1.a=1; Y; W1.b=1; W2.b=1@rs; E0.c>1@s; E0.d>1@s; C0.a",
      "1.0: B2.a=1; Y; W0.c=1@rs; W2.c=1@rs; E1.b>1@s; E1.d>1@s; C1.a",
      "2.0: B0.a=1; Y; W0.d=1@rs; W1.d=1@rs; E2.b>1@s; E2.c>1@s; C2.a"},
     "111",
     RACE},
    {"barrier, one sync left out",
     3,
     {"0.0: B1.a=1; Y; W1.b=1@rs; W2.b=1@rs; E0.c>1@s; E0.d>1@s; C0.a",
      "1.0: B2.a=1; W0.c=1@rs; W2.c=1@rs; E1.b>1@s; E1.d>1@s; C1.a",
      "2.0: B0.a=1; Y; W0.d=1@rs; W1.d=1@rs; E2.b>1@s; E2.c>1@s; C2.a"},
     "111",
     RACE},
    {"barrier, one wait left out",
     3,
     {"0.0: B1.a=1; Y; W1.b=1@rs; W2.b=1@rs; E0.c>1@s; C0.a",
      "1.0: B2.a=1; Y; W0.c=1@rs; W2.c=1@rs; E1.b>1@s; E1.d>1@s; C1.a",
      "2.0: B0.a=1; Y; W0.d=1@rs; W1.d=1@rs; E2.b>1@s; E2.c>1@s; C2.a"},
     "011 111",
     RACE},
    {"barrier, one store left out",
     3,
     {"0.0: B1.a=1; Y; W1.b=1@rs; W2.b=1@rs; E0.c>1@s; E0.d>1@s; C0.a",
      "1.0: B2.a=1; Y; W2.c=1@rs; E1.b>1@s; E1.d>1@s; C1.a",
      "2.0: B0.a=1; Y; W0.d=1@rs; W1.d=1@rs; E2.b>1@s; E2.c>1@s; C2.a"},
     "111",
     DEADLOCK},
};

/* Flags with tags, two operations each way; the answer of an operation frees its slot. */
#define FLAGS_BOTH_WAYS (&flag_programs[1])
static const litmus_case flag_programs[] = {
    {"flags, 2 ranks x 2 operations",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "12",
     0},
    {"flags both ways, 2 ranks x 2 operations",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.b>1@s; C0.a; Y; W1.c=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; "
      "E0.b>2@s; C0.a",
      "1.0: B0.a=1; Y; W0.b=1@rs; E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.c>1@s; B0.a=2; Y; W0.b=2@rs; "
      "E1.b>2@s; C1.a"},
     "1212",
     0},
    {"flags, first release left out",
     2,
     {"0.0: B1.a=1; Y; W1.b=1; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "12",
     RACE},
    {"flags, second release left out",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "12",
     RACE},
    {"flags, answer not released",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "12",
     IST_FINDING_REUSED},
    {"flags, answer before the sync",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "12",
     IST_FINDING_REUSED},
    {"flags, answer not waited for",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; B1.a=2; Y; W1.b=2@rs; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "22",
     RACE},
    {"flags, no tag: the first flag is taken for the second",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; E0.c>2@s",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>1@s; C1.a; Y; W0.c=2@rs"},
     "11 12",
     RACE},
    {"flags, answer of the wrong tag",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>2@s; B1.a=2; Y; W1.b=2@rs",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "11 12",
     DEADLOCK},
};

/* Puts and signals on two contexts. */
static const litmus_case put_programs[] = {
    {"put and signal, 2 ranks x 2 contexts",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; P1>1.c<b:s0; T0.0>1; C0.a",
      "1.0: B1.b=2; P0>0.a<b:s0; T0.0>1; T1.0>1; C1.a; C1.c"},
     "211",
     0},
    {"put and signal, a wait left out",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; P1>1.c<b:s0; T0.0>1; C0.a",
      "1.0: B1.b=2; P0>0.a<b:s0; T0.0>1; C1.a; C1.c"},
     "210 211",
     RACE},
    {"put and signal, the signal on one context",
     2,
     {"0.0: B0.b=1; P0>1.a<b; P1>1.c<b:s0; T0.0>1; C0.a",
      "1.0: B1.b=2; P0>0.a<b:s0; T1.0>1; C1.a; C1.c"},
     "201 211",
     RACE},
    {"put and signal, an earlier put and a weak signal",
     2,
     {"0.0: B0.b=1; P0>1.a<b; P0>1.c<b:w0; T0.0>1; C0.a",
      "1.0: B1.b=2; P0>0.a<b:s0; T0.0>1; C1.a; C1.c"},
     "201 211",
     RACE},
};

/* A rank is masked, both clean (drain, reset, meet), and it takes part again. Generation 1 is what was
   before: its late flag must not be taken for one of generation 2. */
static const litmus_case clean_programs[] = {
    {"mask, clean, re-admit, 2 ranks",
     2,
     {"0.0: G0>1:s1; T0.1>1; W0.b=0; Y; W1.d=2@rs; E0.d>2@s; B1.a=2; Y; W1.b=2@rs",
      "1.0: V0>0.b=1; G0>0:s1; T0.1>1; W1.b=0; Y; W0.d=2@rs; E1.d>2@s; E1.b>2@s; C1.a"},
     "2",
     0},
    {"clean without draining: the late flag hits the reset slot",
     2,
     {"0.0: W0.b=0; Y; W1.d=2@rs; E0.d>2@s; R0.b", "1.0: V0>0.b=1; Y; W0.d=2@rs; E1.d>2@s"},
     "0 1",
     0},
    {"clean with draining: it never does",
     2,
     {"0.0: T0.1>1; W0.b=0; Y; W1.d=2@rs; E0.d>2@s; R0.b",
      "1.0: V0>0.b=1; G0>0:s1; Y; W0.d=2@rs; E1.d>2@s"},
     "0",
     0},
    {"clean, drained by a weak signal",
     2,
     {"0.0: T0.1>1; W0.b=0; Y; W1.d=2@rs; E0.d>2@s; R0.b",
      "1.0: V0>0.b=1; G0>0:w1; Y; W0.d=2@rs; E1.d>2@s"},
     "0 1",
     0},
    {"clean without the second meeting: the reset wipes the new flag",
     2,
     {"0.0: T0.1>1; W1.b=2@rs", "1.0: G0>0:s1; W1.b=0; Y; E1.b>2@s"},
     "-",
     DEADLOCK},
    {"no generation in the tag: the old flag is taken for the new one",
     2,
     {"0.0: W1.d=1@rs; E0.d>1@s; B1.a=2; Y; W1.b=1@rs",
      "1.0: V0>1.b=1; W0.d=1@rs; E1.d>1@s; E1.b>1@s; C1.a"},
     "0 2",
     RACE},
};

/* ---- every part of them ---------------------------------------------------------------------- */

/* The protocols again, with something to protect behind each step, and without what would cover for a
   part that is missing. Flags both ways are so already: FLAGS_BOTH_WAYS. */
static const litmus_case whole_protocols[] = {
    {"barrier of words, rows of all to all",
     3,
     {"0.0: B1.a=1; B2.a=1; Y; W1.b=1@rs; W2.b=1@rs; E0.c>1@s; E0.d>1@s; C0.e; C0.f",
      "1.0: B0.e=1; B2.e=1; Y; W0.c=1@rs; W2.c=1@rs; E1.b>1@s; E1.d>1@s; C1.a; C1.f",
      "2.0: B0.f=1; B1.f=1; Y; W0.d=1@rs; W1.d=1@rs; E2.b>1@s; E2.c>1@s; C2.a; C2.e"},
     "111111",
     0},
    {"flags, 2 ranks x 2 operations, the slot is used again",
     2,
     {"0.0: B1.a=1; Y; W1.b=1@rs; E0.c>1@s; B1.a=2; Y; W1.b=2@rs; E0.c>2@s; B1.a=3",
      "1.0: E1.b>1@s; C1.a; Y; W0.c=1@rs; E1.b>2@s; C1.a; Y; W0.c=2@rs"},
     "12",
     0},
    {"puts, then signals, 2 ranks x 2 contexts",
     2,
     {"0.0: B0.b=1; P0>1.a<b; G0>1:s0; P1>1.c<b; G1>1:s0; T0.0>1; C0.a",
      "1.0: B1.b=2; P0>0.a<b; G0>0:s0; T0.0>1; T1.0>1; C1.a; C1.c"},
     "211",
     0},
    /* Flags are told apart by their generation alone; both ranks drain, reset, meet, write and read. */
    {"mask, clean, re-admit, by tags",
     2,
     {"0.0: W1.d=1; V0>1.b=1; G0>1:s1; T0.1>1; B0.a=0; Y; W1.d=2@rs; E0.d>2@s; B1.a=2; Y; "
      "W1.b=2@rs; E0.b>2@s; C0.a",
      "1.0: W0.d=1; V0>0.b=1; G0>0:s1; T0.1>1; B1.a=0; Y; W0.d=2@rs; E1.d>2@s; B0.a=2; Y; "
      "W0.b=2@rs; E1.b>2@s; C1.a"},
     "22",
     0},
};

/* What a step of a protocol is weakened to. */
typedef struct weakening {
    const char *what;
    char step;        /* letter of the step, 0: any */
    const char *part; /* of the step, "": the whole */
    const char *instead;
} weakening;

static const weakening weakenings[] = {
    {"sync left out", 'Y', "", NULL},
    {"wait left out", 'E', "", NULL},
    {"wait of too small a scope", 'E', "@s", "@d"},
    {"tag of the operation before", 'E', ">2", ">1"},
    {"wait left out", 'T', "", NULL},
    {"relaxed", 0, "@rs", ""},
    {"release at too small a scope", 0, "@rs", "@rd"},
    {"weak signal", 0, ":s", ":w"},
};

/* Writes `text` with its step at `at` of `bytes` weakened. @return whether there is something to weaken */
static bool weaken(const char *text, const char *at, size_t bytes, const weakening *how, char *out,
                   size_t out_bytes)
{
    const char *part = how->part[0] == '\0' ? at : strstr(at, how->part);
    size_t part_bytes = how->part[0] == '\0' ? bytes : strlen(how->part);
    if ((how->step != 0 && *at != how->step) || part == NULL || part + part_bytes > at + bytes) {
        return false;
    }
    (void)snprintf(out, out_bytes, "%.*s%s%s", (int)(part - text), text,
                   how->instead != NULL ? how->instead : "", part + part_bytes);
    return true;
}

/* @return 1 when no schedule shows that something is missing */
static uint32_t goes_unnoticed(const litmus_case *which, const char *what, const char *step,
                               size_t bytes)
{
    litmus_search_result result;
    litmus_seen *seen = calloc(1, sizeof(*seen));
    assert_non_null(seen);
    seen->which = which;
    litmus_explore(seen, LITMUS_SEARCH_RUNS, 0, &result);
    bool noticed = seen->text[0] != '\0';
    for (uint32_t i = 0; i < seen->outcome_count; ++i) {
        noticed = noticed || !litmus_listed(which->allowed, seen->outcomes[i]);
    }
    free(seen);
    if (!noticed) {
        print_error("%s: %.*s, %s: nothing is found\n", which->name, (int)bytes, step, what);
    }
    return noticed ? 0 : 1;
}

/* Each step of each thread, by turns. @return how many weakened programs pass */
static uint32_t weaken_each(const litmus_case *which, uint32_t *count)
{
    uint32_t unnoticed = 0;
    char text[512];
    for (uint32_t thread = 0; thread < LITMUS_THREADS && which->threads[thread] != NULL; ++thread) {
        const char *whole = which->threads[thread];
        for (const char *at = strchr(whole, ' '); at != NULL; at = strchr(at, ' ')) {
            size_t bytes = strcspn(++at, ";");
            for (uint32_t i = 0; i < sizeof(weakenings) / sizeof(weakenings[0]); ++i) {
                litmus_case weaker = *which;
                if (weaken(whole, at, bytes, &weakenings[i], text, sizeof(text))) {
                    weaker.threads[thread] = text;
                    unnoticed += goes_unnoticed(&weaker, weakenings[i].what, at, bytes);
                    ++*count;
                }
            }
        }
    }
    return unnoticed;
}

static void every_part_is_needed(void **state)
{
    (void)state;
    uint32_t count = 0;
    uint32_t unnoticed =
        weaken_each(FLAGS_BOTH_WAYS, &count); /* flags_are_complete() searches it */
    for (uint32_t i = 0; i < LITMUS_COUNT(whole_protocols); ++i) {
        assert_int_equal(litmus_search(&whole_protocols[i], LITMUS_SEARCH_RUNS, 0), 0);
        unnoticed += weaken_each(&whole_protocols[i], &count);
    }
    print_message("%u programs with a part weakened, %u unnoticed\n", count, unnoticed);
    assert_int_equal(unnoticed, 0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static uint32_t search_all(const litmus_case *cases, uint32_t count)
{
    uint32_t failures = 0;
    for (uint32_t i = 0; i < count; ++i) {
        failures += litmus_search(&cases[i], LITMUS_SEARCH_RUNS, 0);
    }
    return failures;
}

static void barrier_is_complete(void **state)
{
    (void)state;
    assert_int_equal(search_all(barrier_programs, LITMUS_COUNT(barrier_programs)), 0);
}

static void flags_are_complete(void **state)
{
    (void)state;
    assert_int_equal(search_all(flag_programs, LITMUS_COUNT(flag_programs)), 0);
}

static void puts_are_complete(void **state)
{
    (void)state;
    assert_int_equal(search_all(put_programs, LITMUS_COUNT(put_programs)), 0);
}

static void clean_is_complete(void **state)
{
    (void)state;
    assert_int_equal(search_all(clean_programs, LITMUS_COUNT(clean_programs)), 0);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduction_loses_nothing), cmocka_unit_test(barrier_is_complete),
        cmocka_unit_test(flags_are_complete),      cmocka_unit_test(puts_are_complete),
        cmocka_unit_test(clean_is_complete),       cmocka_unit_test(every_part_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
