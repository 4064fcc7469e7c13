/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a compiled fault plan strikes exactly where the plan says. Method: single cases with the
 * answer written out, then random plans and random traffic against a model that walks the whole
 * plan at every question.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <isthmus/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_fault.h"
#include "sim_prng.h"

static uint64_t first_seed = 0;

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

static ist_fault_plan *plan_of(const char *json)
{
    ist_fault_plan *plan = NULL;
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    assert_int_equal(ist_fault_plan_parse(plan, json), IST_OK);
    return plan;
}

static sim_faults *compile(const char *json, uint32_t rank_count)
{
    ist_fault_plan *plan = plan_of(json);
    sim_faults *faults = NULL;
    assert_int_equal(sim_faults_open(plan, rank_count, &faults), IST_OK);
    /* The compiled plan has its own copy. */
    ist_fault_plan_close(plan);
    return faults;
}

static void test_empty(void **state)
{
    (void)state;
    uint64_t hits = 0;
    sim_faults *faults = (sim_faults *)(uintptr_t)1;
    ist_fault_plan *plan = plan_of("{\"faults\":[]}");
    assert_int_equal(ist_call_fault_arm("host_alloc", 1, 1, IST_ERR_MEMORY), IST_OK);
    assert_int_equal(sim_faults_open(NULL, 4, &faults), IST_OK);
    assert_null(faults);
    assert_int_equal(sim_faults_open(plan, 4, &faults), IST_OK);
    assert_null(faults);
    assert_int_equal(ist_call_fault_disarm(&hits), 0);
    ist_fault_plan_close(plan);

    const ist_fault *fault = NULL;
    uint32_t cursor = 0;
    assert_false(sim_faults_any(faults));
    assert_false(sim_faults_timed(faults, 0, &fault));
    assert_true(sim_fault_next_op(faults, 3) == UINT64_MAX);
    assert_null(sim_fault_on_op(faults, 3, 1));
    assert_false(sim_faults_have_points(faults));
    assert_null(sim_fault_on_point(faults, 3, "here", &cursor));
    assert_false(sim_faults_have_transfers(faults));
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 0, 1, 0));
    assert_false(sim_fault_on_alloc(faults, 0));
    assert_false(sim_fault_on_register(faults, 0));
    sim_faults_close(faults);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *object;
        int64_t observed;
    } rows[] = {
        {"{\"faults\":[{\"kind\":\"drop\"},{\"kind\":\"kill\",\"rank\":4,\"at_op\":1}]}",
         "faults[1].rank", 4},
        {"{\"faults\":[{\"kind\":\"drop\",\"rank\":0,\"peer\":9}]}", "faults[0].peer", 9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ist_fault_plan *plan = plan_of(rows[i].json);
        sim_faults *faults = (sim_faults *)(uintptr_t)1;
        assert_int_equal(sim_faults_open(plan, 4, &faults), IST_ERR_RANGE);
        assert_true(faults == (sim_faults *)(uintptr_t)1);
        ist_error error = {.size = sizeof error};
        assert_int_equal(ist_error_last(&error), IST_OK);
        assert_string_equal(error.object, rows[i].object);
        assert_int_equal(error.observed, rows[i].observed);
        assert_int_equal(error.expected, 4);
        assert_int_equal(sim_faults_open(plan, 10, &faults), IST_OK);
        assert_int_equal(ist_call_fault_arm("host_alloc", 1, 0, IST_ERR_MEMORY), IST_OK);
        sim_faults *second = NULL;
        assert_int_equal(sim_faults_open(plan, 10, &second), IST_ERR_MEMORY);
        (void)ist_call_fault_disarm(NULL);
        sim_faults_close(faults);
        ist_fault_plan_close(plan);
    }
    uint64_t foreign[8] = {0};
    sim_faults *faults = NULL;
    assert_int_equal(sim_faults_open((ist_fault_plan *)(void *)foreign, 4, &faults),
                     IST_ERR_OBJECT);
}

static void test_timed(void **state)
{
    (void)state;
    sim_faults *faults = compile("{\"faults\":["
                                 "{\"kind\":\"resume\",\"rank\":1,\"at_ns\":30},"
                                 "{\"kind\":\"drop\",\"rank\":1,\"at_ns\":1},"
                                 "{\"kind\":\"kill\",\"rank\":0,\"at_ns\":20},"
                                 "{\"kind\":\"link_down\",\"rank\":0,\"at_op\":2},"
                                 "{\"kind\":\"stall\",\"rank\":1,\"at_ns\":20},"
                                 "{\"kind\":\"link_slow\",\"rank\":1,\"at_ns\":5}]}",
                                 2);
    static const ist_fault_kind kinds[] = {IST_FAULT_LINK_SLOW, IST_FAULT_KILL, IST_FAULT_STALL,
                                           IST_FAULT_RESUME};
    const ist_fault *fault = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(sim_faults_timed(faults, i, &fault));
        assert_int_equal(fault->kind, kinds[i]);
    }
    assert_false(sim_faults_timed(faults, 4, &fault));
    sim_faults_close(faults);
}

static void test_ops(void **state)
{
    (void)state;
    sim_faults *faults = compile("{\"faults\":["
                                 "{\"kind\":\"kill\",\"rank\":1,\"at_op\":7},"
                                 "{\"kind\":\"slow\",\"at_op\":5},"
                                 "{\"kind\":\"stall\",\"rank\":1,\"at_op\":5},"
                                 "{\"kind\":\"stall\",\"rank\":1,\"at_op\":2}]}",
                                 3);
    assert_int_equal(sim_fault_next_op(faults, 0), 5);
    assert_int_equal(sim_fault_next_op(faults, 1), 2);
    assert_null(sim_fault_on_op(faults, 1, 1));
    const ist_fault *fault = sim_fault_on_op(faults, 1, 2);
    assert_int_equal(fault->kind, IST_FAULT_STALL);
    assert_null(sim_fault_on_op(faults, 1, 2));
    assert_int_equal(sim_fault_next_op(faults, 1), 5);
    /* Two at once: in the order of the plan; the one of any rank says now whom it struck. */
    fault = sim_fault_on_op(faults, 1, 5);
    assert_int_equal(fault->kind, IST_FAULT_SLOW);
    assert_int_equal(fault->rank, 1);
    fault = sim_fault_on_op(faults, 1, 5);
    assert_int_equal(fault->kind, IST_FAULT_STALL);
    assert_null(sim_fault_on_op(faults, 1, 5));
    assert_int_equal(sim_fault_next_op(faults, 1), 7);
    /* Rank 0 comes too late for it. */
    assert_null(sim_fault_on_op(faults, 0, 5));
    assert_true(sim_fault_next_op(faults, 0) == UINT64_MAX);
    fault = sim_fault_on_op(faults, 1, 7);
    assert_int_equal(fault->kind, IST_FAULT_KILL);
    assert_true(sim_fault_next_op(faults, 1) == UINT64_MAX);
    sim_faults_close(faults);
}

static void test_points(void **state)
{
    (void)state;
    sim_faults *faults = compile("{\"faults\":["
                                 "{\"kind\":\"kill\",\"rank\":1,\"at_point\":\"sent\",\"nth\":2},"
                                 "{\"kind\":\"slow\",\"at_point\":\"sent\",\"nth\":2},"
                                 "{\"kind\":\"drop\",\"at_point\":\"sent\"},"
                                 "{\"kind\":\"stall\",\"rank\":0,\"at_point\":\"got\"}]}",
                                 2);
    assert_true(sim_faults_have_points(faults));
    uint32_t cursor = 0;
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 0, 1, 0));
    assert_null(sim_fault_on_point(faults, 0, "sent", &cursor));
    /* The drop is armed, for the rank that passed. */
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 1, 0, 0));
    assert_int_equal(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 0, 1, 0)->kind, IST_FAULT_DROP);
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 0, 1, 0));
    cursor = 0;
    assert_null(sim_fault_on_point(faults, 1, "sent", &cursor));
    cursor = 0;
    assert_int_equal(sim_fault_on_point(faults, 1, "sent", &cursor)->kind, IST_FAULT_KILL);
    assert_int_equal(sim_fault_on_point(faults, 1, "sent", &cursor)->kind, IST_FAULT_SLOW);
    assert_null(sim_fault_on_point(faults, 1, "sent", &cursor));
    cursor = 0;
    assert_null(sim_fault_on_point(faults, 0, "sent", &cursor));
    cursor = 0;
    assert_int_equal(sim_fault_on_point(faults, 0, "got", &cursor)->kind, IST_FAULT_STALL);
    sim_faults_close(faults);
}

static void test_transfers(void **state)
{
    (void)state;
    sim_faults *faults = compile(
        "{\"faults\":["
        "{\"kind\":\"delay\",\"rank\":0,\"peer\":1,\"nth\":3,\"count\":2,\"duration_ns\":5},"
        "{\"kind\":\"drop\",\"rank\":0,\"classes\":[\"signals\"],\"nth\":2},"
        "{\"kind\":\"error\",\"at_ns\":7,\"peer\":2},"
        "{\"kind\":\"delay\",\"classes\":[\"stores\"],\"duration_ns\":1}]}",
        3);
    /* Puts 0 -> 1: the third and fourth. */
    for (int nth = 1; nth <= 6; nth++) {
        const ist_fault *fault = sim_fault_on_transfer(faults, IST_FAULT_PUTS, 0, 1, 0);
        assert_int_equal(fault != NULL, nth == 3 || nth == 4);
    }
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_SIGNALS, 0, 2, 0));
    assert_int_equal(sim_fault_on_transfer(faults, IST_FAULT_SIGNALS, 0, 0, 0)->kind,
                     IST_FAULT_DROP);
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 1, 2, 6999));
    assert_int_equal(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 1, 2, 7000)->kind,
                     IST_FAULT_ERROR);
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_PUTS, 1, 2, 7001));
    assert_int_equal(sim_fault_on_transfer(faults, IST_FAULT_STORES, 2, 2, 0)->kind,
                     IST_FAULT_DELAY);
    assert_null(sim_fault_on_transfer(faults, IST_FAULT_STORES, 2, 2, 0));
    sim_faults_close(faults);
}

static void test_allocations(void **state)
{
    (void)state;
    sim_faults *faults =
        compile("{\"faults\":[{\"kind\":\"alloc\",\"rank\":0,\"nth\":2,\"count\":2},"
                "{\"kind\":\"alloc\",\"nth\":3},{\"kind\":\"register\",\"rank\":1,\"nth\":1}]}",
                2);
    static const bool expected[2][4] = {{false, true, true, false}, {false, false, true, false}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sim_fault_on_alloc(faults, 1), expected[1][i]);
        /* The fault of any rank has struck rank 1 by now. */
        assert_int_equal(sim_fault_on_alloc(faults, 0), expected[0][i]);
    }
    assert_false(sim_fault_on_register(faults, 0));
    assert_true(sim_fault_on_register(faults, 1));
    assert_false(sim_fault_on_register(faults, 1));
    sim_faults_close(faults);
}

/* ------------------------------------------------------------------------------ the model */

enum { RANKS = 5, FAULTS_MAX = 40, STEPS = 400 };

/* Plain words for what the plan says, one walk over all faults at each question. */
typedef struct fault_model {
    ist_fault faults[FAULTS_MAX];
    uint32_t count;
    bool struck[FAULTS_MAX], armed[FAULTS_MAX];
    int32_t victim[FAULTS_MAX];
    uint64_t matches[FAULTS_MAX];
    uint64_t passes[FAULTS_MAX][RANKS];
} fault_model;

static bool model_is_transfer(const ist_fault *fault)
{
    return fault->kind == IST_FAULT_DELAY || fault->kind == IST_FAULT_DROP ||
           fault->kind == IST_FAULT_DUPLICATE || fault->kind == IST_FAULT_REORDER ||
           fault->kind == IST_FAULT_ERROR;
}

static bool model_concerns(const fault_model *model, uint32_t i, uint32_t rank)
{
    return model->victim[i] == IST_FAULT_ANY || model->victim[i] == (int32_t)rank;
}

/* Fault i meets rank: true if the engine has to apply it. */
static bool model_meet(fault_model *model, uint32_t i, uint32_t rank)
{
    if (model->struck[i] || model->armed[i]) {
        return false;
    }
    model->victim[i] = (int32_t)rank;
    if (model_is_transfer(&model->faults[i])) {
        model->armed[i] = true;
        return false;
    }
    model->struck[i] = true;
    return true;
}

static void check_op(fault_model *model, sim_faults *faults, uint32_t rank, uint64_t op)
{
    for (uint32_t i = 0; i < model->count; i++) {
        const ist_fault *fault = &model->faults[i];
        if (fault->trigger == IST_FAULT_AT_OP && fault->at_op == op &&
            model_concerns(model, i, rank) && model_meet(model, i, rank)) {
            assert_true(sim_fault_next_op(faults, rank) <= op);
            assert_ptr_equal(sim_fault_on_op(faults, rank, op), &faults->faults[i]);
        }
    }
    assert_null(sim_fault_on_op(faults, rank, op));
    assert_true(sim_fault_next_op(faults, rank) > op);
}

static void check_point(fault_model *model, sim_faults *faults, uint32_t rank, const char *point)
{
    uint32_t cursor = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        const ist_fault *fault = &model->faults[i];
        const bool concerns = fault->rank == IST_FAULT_ANY || fault->rank == (int32_t)rank;
        if (fault->trigger == IST_FAULT_AT_POINT && concerns && strcmp(fault->point, point) == 0 &&
            ++model->passes[i][rank] == fault->at_op && model_meet(model, i, rank)) {
            assert_ptr_equal(sim_fault_on_point(faults, rank, point, &cursor), &faults->faults[i]);
        }
    }
    assert_null(sim_fault_on_point(faults, rank, point, &cursor));
}

static void check_transfer(fault_model *model, sim_faults *faults, ist_fault_class class_bit,
                           uint32_t src, uint32_t dst, uint64_t now_ps)
{
    const ist_fault *expected = NULL;
    for (uint32_t i = 0; i < model->count; i++) {
        const ist_fault *fault = &model->faults[i];
        const bool active = fault->trigger == IST_FAULT_NTH || model->armed[i] ||
                            (fault->trigger == IST_FAULT_AT_TIME && now_ps / 1000 >= fault->at_ns);
        if (!model_is_transfer(fault) || !active || !model_concerns(model, i, src) ||
            (fault->peer != IST_FAULT_ANY && fault->peer != (int32_t)dst) ||
            (fault->classes & (uint32_t)class_bit) == 0) {
            continue;
        }
        const uint64_t nth = ++model->matches[i];
        const uint64_t first = fault->trigger == IST_FAULT_NTH ? fault->at_op : 1;
        if (nth >= first && nth < first + fault->count && expected == NULL) {
            expected = &faults->faults[i];
        }
    }
    assert_ptr_equal(sim_fault_on_transfer(faults, class_bit, src, dst, now_ps), expected);
}

static ist_fault draw_fault(sim_prng *prng)
{
    static const ist_fault_kind kinds[] = {IST_FAULT_KILL, IST_FAULT_STALL, IST_FAULT_DELAY,
                                           IST_FAULT_DROP, IST_FAULT_ERROR, IST_FAULT_LINK_SLOW};
    static const char *const points[] = {"a", "b"};
    ist_fault fault = {.size = sizeof fault, .kind = kinds[sim_prng_below(prng, 6)]};
    const bool transfer = model_is_transfer(&fault);
    fault.trigger = (ist_fault_trigger)sim_prng_between(prng, transfer ? 0 : 1, transfer ? 3 : 2);
    fault.rank = (int32_t)sim_prng_below(prng, RANKS + 1) - 1;
    fault.peer = (int32_t)sim_prng_below(prng, RANKS + 1) - 1;
    if (fault.kind == IST_FAULT_LINK_SLOW && fault.peer == fault.rank) {
        fault.peer = IST_FAULT_ANY;
    }
    if (fault.trigger == IST_FAULT_AT_TIME) {
        fault.at_ns = sim_prng_below(prng, STEPS);
    } else {
        fault.at_op = sim_prng_between(prng, 1, 30);
    }
    if (fault.trigger == IST_FAULT_AT_POINT) {
        (void)snprintf(fault.point, sizeof fault.point, "%s", points[sim_prng_below(prng, 2)]);
    }
    if (transfer) {
        fault.classes = (uint32_t)sim_prng_between(prng, 1, fault.kind == IST_FAULT_DELAY ? 7 : 3);
        fault.count = sim_prng_between(prng, 1, 6);
        fault.duration_ns = fault.kind == IST_FAULT_DELAY ? 9 : 0;
    }
    return fault;
}

static sim_faults *draw_faults(sim_prng *prng, fault_model *model)
{
    ist_fault_plan *plan = NULL;
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    model->count = (uint32_t)sim_prng_between(prng, 1, FAULTS_MAX);
    for (uint32_t i = 0; i < model->count; i++) {
        const ist_fault fault = draw_fault(prng);
        assert_int_equal(ist_fault_plan_add(plan, &fault), IST_OK);
        model->faults[i].size = sizeof fault;
        assert_int_equal(ist_fault_plan_get(plan, i, &model->faults[i]), IST_OK);
        model->victim[i] = fault.rank;
    }
    sim_faults *faults = NULL;
    assert_int_equal(sim_faults_open(plan, RANKS, &faults), IST_OK);
    ist_fault_plan_close(plan);
    return faults;
}

static void check_world(uint64_t seed)
{
    static fault_model model;
    uint64_t ops[RANKS] = {0};
    sim_prng prng;
    sim_prng_seed(&prng, seed);
    memset(&model, 0, sizeof model);
    sim_faults *faults = draw_faults(&prng, &model);
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint32_t rank = (uint32_t)sim_prng_below(&prng, RANKS);
        switch (sim_prng_below(&prng, 3)) {
        case 0: check_op(&model, faults, rank, ++ops[rank]); break;
        case 1: check_point(&model, faults, rank, step % 2 == 0 ? "a" : "b"); break;
        default:
            check_transfer(&model, faults, (ist_fault_class)(1u << sim_prng_below(&prng, 3)), rank,
                           (uint32_t)sim_prng_below(&prng, RANKS), step * 1000 + 999);
            break;
        }
    }
    sim_faults_close(faults);
}

static void test_model(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + 1000; seed++) {
        check_world(seed);
    }
}

int main(int argument_count, char **arguments)
{
    first_seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 0;
    print_message("seeds %llu and on\n", (unsigned long long)first_seed);
    ist_log_sink_set(quiet, NULL, IST_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_timed),       cmocka_unit_test(test_ops),
        cmocka_unit_test(test_points),      cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_allocations), cmocka_unit_test(test_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
