/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: layers pass every call on unchanged, fail exactly the call that is armed, and are absent
 * when nobody asks for them.
 * Method: programs over the fake, whose own counters say what arrived below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "front_fixture.h"
#include "ist_internal.h"

static ist_status three_sleeps(ist_world *world, void *arg)
{
    ist_status *statuses = arg;
    for (int i = 0; i < 3; ++i) {
        statuses[i] = ist_world_sleep(world, 5);
    }
    return ist_world_clock_ns(world) > 15 ? IST_ERR_INTERNAL : IST_OK;
}

static void run_sleeps(ist_status statuses[3])
{
    assert_int_equal(front_run(1, three_sleeps, statuses), IST_OK);
}

static void the_nth_call_fails_once(void **state)
{
    (void)state;
    ist_status statuses[3];
    uint64_t hits = 0;
    assert_int_equal(ist_call_fault_arm("sleep", 2, 0, IST_ERR_SYSTEM), IST_OK);
    run_sleeps(statuses);
    assert_int_equal(statuses[0], IST_OK);
    assert_int_equal(statuses[1], IST_ERR_SYSTEM);
    assert_int_equal(statuses[2], IST_OK);
    assert_int_equal(fake.calls[FAKE_sleep], 2);
    assert_int_equal(ist_call_fault_disarm(&hits), 3);
    assert_int_equal(hits, 1);
}

static void or_all_from_the_nth_on(void **state)
{
    (void)state;
    ist_status statuses[3];
    uint64_t hits = 0;
    assert_int_equal(ist_call_fault_arm("sleep", 2, 1, IST_ERR_TIMEOUT), IST_OK);
    run_sleeps(statuses);
    assert_int_equal(statuses[0], IST_OK);
    assert_int_equal(statuses[1], IST_ERR_TIMEOUT);
    assert_int_equal(statuses[2], IST_ERR_TIMEOUT);
    ist_call_fault_disarm(&hits);
    assert_int_equal(hits, 2);
    run_sleeps(statuses);
    assert_int_equal(statuses[1], IST_OK);
}

static void any_call_counts_without_a_name(void **state)
{
    (void)state;
    ist_status statuses[3];
    uint64_t seen = 0;
    assert_int_equal(ist_call_fault_arm(NULL, 1000, 0, IST_ERR_SYSTEM), IST_OK);
    run_sleeps(statuses);
    seen = ist_call_fault_disarm(NULL);
    /* three sleeps, the clock, and the host allocations of a world */
    assert_true(seen > 4);
    assert_int_equal(ist_call_fault_arm(NULL, 1, 0, IST_ERR_SYSTEM), IST_OK);
    assert_int_equal(front_run(1, three_sleeps, statuses), IST_ERR_MEMORY);
    ist_call_fault_disarm(NULL);
}

static void every_name_of_the_list_is_known(void **state)
{
    (void)state;
#define X(op, params, args, need)                                                                  \
    assert_int_equal(ist_call_fault_arm(#op, 1, 0, IST_ERR_SYSTEM), IST_OK);
    IST_BACKEND_OPS(X)
#undef X
    assert_int_equal(ist_call_fault_arm("host_alloc", 1, 0, IST_ERR_MEMORY), IST_OK);
    assert_null(ist_alloc(1, 8));
    void *memory = ist_alloc(1, 8);
    assert_non_null(memory);
    ist_free(memory);
    assert_int_equal(ist_call_fault_arm("sleeep", 1, 0, IST_ERR_SYSTEM), IST_ERR_ARGUMENT);
    assert_int_equal(ist_call_fault_arm("sleep", 1, 0, IST_OK), IST_ERR_ARGUMENT);
    assert_int_equal(ist_call_fault_arm("sleep", 0, 0, IST_OK), IST_OK);
    ist_call_fault_disarm(NULL);
}

static ist_status open_and_close_a_stream(ist_world *world, void *arg)
{
    ist_stream *stream = NULL;
    IST_RETURN_IF_ERROR(ist_stream_open(world, &stream));
    *(ist_status *)arg = ist_stream_close(stream);
    return ist_stream_close(stream) == IST_ERR_OBJECT ? IST_OK : IST_ERR_INTERNAL;
}

static void what_frees_is_done_all_the_same(void **state)
{
    (void)state;
    ist_status closed = IST_OK;
    assert_int_equal(ist_call_fault_arm("stream_close", 1, 0, IST_ERR_SYSTEM), IST_OK);
    assert_int_equal(front_run(1, open_and_close_a_stream, &closed), IST_OK);
    ist_call_fault_disarm(NULL);
    assert_int_equal(closed, IST_ERR_SYSTEM);
    assert_int_equal(fake.calls[FAKE_stream_close], 1);
    assert_int_equal(fake_live(), 0);
}

static ist_status count_layers(ist_world *world, void *arg)
{
    *(void **)arg = world->layers;
    return IST_OK;
}

static void layers_are_absent_unless_asked_for(void **state)
{
    (void)state;
    void *layers = &layers;
    assert_int_equal(front_run(1, count_layers, &layers), IST_OK);
    assert_null(layers);
    setenv("IST_CALL_FAULTS", "1", 1);
    assert_int_equal(front_run(1, count_layers, &layers), IST_OK);
    unsetenv("IST_CALL_FAULTS");
    assert_non_null(layers);
}

static void the_trace_has_a_line_for_each_call(void **state)
{
    (void)state;
    ist_status statuses[3];
    ist_log_sink_set(test_log_line, &front_log, IST_LOG_TRACE);
    assert_int_equal(ist_call_fault_arm("sleep", 2, 0, IST_ERR_SYSTEM), IST_OK);
    run_sleeps(statuses);
    ist_call_fault_disarm(NULL);
    assert_true(test_log_has(&front_log, "rank 0: sleep IST_OK"));
    /* The trace lies above the faults, so it shows them. */
    assert_true(test_log_has(&front_log, "rank 0: sleep IST_ERR_SYSTEM"));
    assert_true(test_log_has(&front_log, "rank 0: clock IST_OK"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_nth_call_fails_once, front_set_up),
        cmocka_unit_test_setup(or_all_from_the_nth_on, front_set_up),
        cmocka_unit_test_setup(any_call_counts_without_a_name, front_set_up),
        cmocka_unit_test_setup(every_name_of_the_list_is_known, front_set_up),
        cmocka_unit_test_setup(what_frees_is_done_all_the_same, front_set_up),
        cmocka_unit_test_setup(layers_are_absent_unless_asked_for, front_set_up),
        cmocka_unit_test_setup(the_trace_has_a_line_for_each_call, front_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
