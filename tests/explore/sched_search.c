/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exhaustive scheduler: is the reduction right, and does it cover the small protocols completely?
 * Method: tiny programs with and without reduction must have the same outcomes, and as many distinct
 * executions as can be counted by hand; four protocols are searched to the end, once as they are
 * (nothing is found) and once with each fence, order, wait and tag taken away (something is found).
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
        cmocka_unit_test(clean_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
