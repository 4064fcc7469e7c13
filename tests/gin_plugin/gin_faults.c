/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a fault plan strikes the operations that it names and no others, in every run alike; what it
 * does to them is what it says; peers that are gone or take nothing are errors, not hangs. Method: many
 * numbered puts to places of their own, compared with the list of those that must be missing.
 */
#include "gin_fault.h"
#include "gin_rig.h"

#include <stdlib.h>
#include <string.h>

enum { PUTS = 40, BYTES = 256 };

/* ---- plans as text --------------------------------------------------------------------------- */

static void plans_are_read(void **unused)
{
    char problem[128];
    gin_plan plan;
    (void)unused;
    assert_true(gin_plan_read(NULL, &plan, problem, sizeof(problem)));
    assert_int_equal(plan.count, 0);
    assert_true(gin_plan_read(" drop:rank=0, peer=any,op=0x10 ; # a comment\n"
                              "delay:rounds=7,every=3,count=all\n\nerror",
                              &plan, problem, sizeof(problem)));
    assert_int_equal(plan.count, 3);
    assert_int_equal(plan.rules[0].kind, GIN_FAULT_DROP);
    assert_int_equal(plan.rules[0].rank, 0);
    assert_true(plan.rules[0].peer == UINT64_MAX);
    assert_int_equal(plan.rules[0].op, 16);
    assert_int_equal(plan.rules[0].count, 1);
    assert_int_equal(plan.rules[1].rounds, 7);
    assert_int_equal(plan.rules[1].op, 0);
    assert_true(plan.rules[1].count == UINT64_MAX);
    assert_true(plan.rules[2].count == UINT64_MAX);
}

static void wrong_plans_are_refused_with_a_place(void **unused)
{
    static const char *const wrong[] = {
        "lose",        "drop:",         "drop:op",       "drop:op=",   "drop:op=x", "drop op=1",
        "drop:size=1", "delay:every=0", "drop:one_in=0", "drop:op=1,", ":"};
    gin_plan plan;
    (void)unused;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        char problem[128] = "";
        assert_false(gin_plan_read(wrong[i], &plan, problem, sizeof(problem)));
        assert_non_null(strstr(problem, "fault plan, byte "));
    }
}

static uint32_t count_strikes(const char *text, uint64_t rank)
{
    char problem[128];
    gin_plan plan;
    uint32_t count = 0;
    assert_true(gin_plan_read(text, &plan, problem, sizeof(problem)));
    for (uint64_t number = 0; number < 10000; ++number) {
        gin_op_name name = {.rank = rank, .peer = 1, .context = 2, .number = number};
        count += gin_plan_decide(&plan, &name).drop_data;
    }
    return count;
}

static void rules_choose_operations(void **unused)
{
    (void)unused;
    assert_int_equal(count_strikes("drop:op=3", 0), 1);
    assert_int_equal(count_strikes("drop:op=3,count=5", 0), 5);
    assert_int_equal(count_strikes("drop:op=3,count=5,every=4", 0), 5);
    assert_int_equal(count_strikes("drop:every=4", 0), 2500);
    assert_int_equal(count_strikes("drop:rank=1", 0), 0);
    assert_int_equal(count_strikes("drop:context=2,peer=1,rank=0", 0), 10000);
    uint32_t drawn = count_strikes("drop:one_in=10,seed=4", 0);
    assert_in_range(drawn, 850, 1150);
    assert_int_equal(count_strikes("drop:one_in=10,seed=4", 0), drawn);
    assert_int_not_equal(count_strikes("drop:one_in=10,seed=5", 0), drawn);
}

/* ---- what faults do -------------------------------------------------------------------------- */

static void plan_set(const char *text)
{
    assert_int_equal(setenv("ISTHMUS_GIN_FAULTS", text, 1), 0);
}

/* Put i fills place i of rank 1 with i + 1 and raises signal i. */
static void put_all(rig_rank *ranks)
{
    for (uint32_t i = 0; i < PUTS; ++i) {
        memset(ranks[0].memory, (int)i + 1, BYTES);
        void *request =
            rig_put_signal(&ranks[0], 1, 0, (uint64_t)(i + 1) * BYTES, BYTES, i, i + 2u);
        rig_wait(ranks, 2, &ranks[0], request);
    }
    rig_rounds(ranks, 2, 2000);
}

static bool has_data(const rig_rank *rank, uint32_t put)
{
    const uint8_t *place = rank->memory + (size_t)(put + 1) * BYTES;
    return place[0] == put + 1 && place[BYTES - 1] == put + 1;
}

static void check_put(const rig_rank *rank, uint32_t put, bool data, uint64_t signal)
{
    assert_int_equal(has_data(rank, put), data);
    assert_int_equal(rig_signal(rank, put), signal);
}

static void struck_operations_are_those_named(void **unused)
{
    static const struct {
        const char *plan;
        bool data;
        uint32_t times; /* that the signal is added */
    } cases[] = {{"drop:rank=0,peer=1,op=5,count=3", false, 0},
                 {"drop-data:rank=0,peer=1,op=5,count=3", false, 1},
                 {"drop-signal:rank=0,peer=1,op=5,count=3", true, 0},
                 {"double-signal:rank=0,peer=1,op=5,count=3", true, 2}};
    (void)unused;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); ++k) {
        rig_rank ranks[2];
        plan_set(cases[k].plan);
        rig_open_all(ranks, 2, (size_t)(PUTS + 1) * BYTES);
        put_all(ranks);
        for (uint32_t i = 0; i < PUTS; ++i) {
            bool struck = i >= 5 && i < 8;
            check_put(&ranks[1], i, !struck || cases[k].data,
                      (struck ? cases[k].times : 1u) * (i + 2u));
        }
        assert_false(rig_failed(&ranks[0]));
        rig_close_all(ranks, 2);
    }
}

static void errors_are_reported_as_often_as_asked(void **unused)
{
    rig_rank ranks[2];
    (void)unused;
    plan_set("error:rank=0,op=7,queries=2");
    rig_open_all(ranks, 2, (size_t)(PUTS + 1) * BYTES);
    assert_false(rig_failed(&ranks[0]));
    put_all(ranks);
    check_put(&ranks[1], 7, false, 0);
    check_put(&ranks[1], 8, true, 10);
    assert_true(rig_failed(&ranks[0]));
    assert_true(rig_failed(&ranks[0]));
    assert_false(rig_failed(&ranks[0]));
    assert_false(rig_failed(&ranks[1]));
    rig_close_all(ranks, 2);
    plan_set("error:rank=0,op=7");
    rig_open_all(ranks, 2, (size_t)(PUTS + 1) * BYTES);
    put_all(ranks);
    for (uint32_t i = 0; i < 100; ++i) {
        assert_true(rig_failed(&ranks[0]));
    }
    rig_close_all(ranks, 2);
}

/* The target leaves it alone for so many of its rounds, and what is behind it with it. */
static void delays_hold_what_is_behind(void **unused)
{
    enum { ROUNDS = 500 };
    rig_rank ranks[2];
    void *requests[4];
    (void)unused;
    plan_set("delay:rank=0,op=2,rounds=500");
    rig_open_all(ranks, 2, (size_t)(PUTS + 1) * BYTES);
    for (uint32_t i = 0; i < 4; ++i) {
        memset(ranks[0].memory + (size_t)i * BYTES, (int)i + 1, BYTES);
        requests[i] = rig_put_signal(&ranks[0], 1, (uint64_t)i * BYTES, (uint64_t)(i + 1) * BYTES,
                                     i == 3 ? 0 : BYTES, i, 1);
    }
    for (uint32_t i = 0; i < 4; ++i) {
        rig_wait(ranks, 1, &ranks[0], requests[i]);
    }
    uint32_t rounds = 0;
    while (rig_signal(&ranks[1], 2) == 0) {
        assert_int_equal(rig_signal(&ranks[1], 3), 0);
        rig_rounds(ranks, 2, 1);
        assert_in_range(++rounds, 1, 2 * ROUNDS);
    }
    assert_in_range(rounds, ROUNDS, 2 * ROUNDS);
    assert_int_equal(rig_signal(&ranks[1], 1), 1);
    rig_rounds(ranks, 2, 20);
    assert_int_equal(rig_signal(&ranks[1], 3), 1);
    rig_close_all(ranks, 2);
}

static void wrong_plans_do_not_connect(void **unused)
{
    rig_rank rank;
    void *handles[1];
    (void)unused;
    plan_set("drop:op=");
    rig_warnings = 0;
    rig_listen(&rank, 0, 1, 5);
    handles[0] = rank.handle;
    assert_int_equal(rig_connect(&rank, handles), GIN_INVALID_ARGUMENT);
    assert_int_equal(rig_warnings, 1);
    assert_non_null(strstr(rig_warning, "fault plan"));
    assert_int_equal(rig_gin->finalize(rank.context), GIN_OK);
    plan_set("");
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Nothing waits for a peer that takes nothing: what does not fit is lost, and the error known. */
static void a_peer_that_takes_nothing_is_an_error(void **unused)
{
    enum { PIECE = 100000, COUNT = 40 };
    rig_rank ranks[2];
    (void)unused;
    assert_int_equal(setenv("ISTHMUS_GIN_STALL_MS", "1", 1), 0);
    rig_open_all(ranks, 2, 2 * (size_t)PIECE);
    for (uint32_t i = 0; i < COUNT; ++i) {
        void *request = rig_put_signal(&ranks[0], 1, 0, PIECE, PIECE, 0, 1);
        rig_wait(ranks, 1, &ranks[0], request); /* rank 1 makes no progress */
    }
    assert_true(rig_failed(&ranks[0]));
    rig_rounds(ranks, 2, 2000);
    assert_in_range(rig_signal(&ranks[1], 0), 1, COUNT - 1);
    /* It takes again: what is new arrives. */
    uint64_t before = rig_signal(&ranks[1], 0);
    void *request = rig_put_signal(&ranks[0], 1, 0, PIECE, PIECE, 0, 1);
    rig_wait(ranks, 2, &ranks[0], request);
    rig_rounds(ranks, 2, 2000);
    assert_int_equal(rig_signal(&ranks[1], 0), before + 1);
    rig_close_all(ranks, 2);
    assert_int_equal(unsetenv("ISTHMUS_GIN_STALL_MS"), 0);
}

static void operations_to_a_closed_peer_complete(void **unused)
{
    enum { PIECE = 100000, COUNT = 40 };
    rig_rank ranks[2];
    (void)unused;
    rig_open_all(ranks, 2, 2 * (size_t)PIECE);
    rig_close(&ranks[1]);
    for (uint32_t i = 0; i < COUNT; ++i) {
        void *request = rig_put(&ranks[0], 1, 0, PIECE, PIECE);
        rig_wait(ranks, 1, &ranks[0], request);
    }
    assert_true(rig_failed(&ranks[0]));
    rig_close(&ranks[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_read),
        cmocka_unit_test(wrong_plans_are_refused_with_a_place),
        cmocka_unit_test(rules_choose_operations),
        cmocka_unit_test(struck_operations_are_those_named),
        cmocka_unit_test(errors_are_reported_as_often_as_asked),
        cmocka_unit_test(delays_hold_what_is_behind),
        cmocka_unit_test(wrong_plans_do_not_connect),
        cmocka_unit_test(a_peer_that_takes_nothing_is_an_error),
        cmocka_unit_test(operations_to_a_closed_peer_complete),
    };
    rig_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
