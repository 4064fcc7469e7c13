/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an incomplete or wrong backend is refused, an optional operation becomes a stub, and a
 * named backend is that one or an error.
 * Method: register spoilt copies of the fake; run worlds with every way of choosing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_backend.h"
#include "ist_internal.h"
#include "test_log.h"

#include <stdlib.h>

static test_log seen;

static int set_up(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    ist_log_sink_set(test_log_line, &seen, IST_LOG_WARN);
    fake_backend();
    fake_reset();
    unsetenv("IST_BACKEND");
    setenv("IST_LAUNCH", "none", 1);
    return 0;
}

static ist_error last_error(void)
{
    ist_error error = {.size = sizeof(error)};
    assert_int_equal(ist_error_last(&error), IST_OK);
    return error;
}

static ist_status name_of_backend(ist_world *world, void *arg)
{
    snprintf(arg, 16, "%s", ist_world_backend_name(world));
    return IST_OK;
}

static ist_status run_on(const char *backend, char name[16])
{
    ist_world_desc desc = {.size = sizeof(desc), .backend = backend, .rank_count = 1};
    return ist_world_run(&desc, name_of_backend, name, NULL);
}

static void spoilt_backends_are_refused(void **state)
{
    (void)state;
    ist_backend spoilt = *fake_backend();
    ist_backend_ops ops = *spoilt.ops;
    spoilt.name = "spoilt";
    spoilt.ops = &ops;

    spoilt.abi = IST_BACKEND_ABI + 1;
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ABI);
    spoilt.abi = IST_BACKEND_ABI;
    spoilt.size = 8;
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ABI);
    spoilt.size = sizeof(spoilt);
    spoilt.probe = NULL;
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ABI);
    spoilt.probe = fake_backend()->probe;
    ops.abi = 77;
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ABI);
    assert_int_equal(last_error().observed, 77);
    ops.abi = IST_BACKEND_ABI;
    ops.comm_exchange = NULL;
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ABI);
    assert_string_equal(last_error().object, "comm_exchange");
    ops = *fake_backend()->ops;
    spoilt.name = "";
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ARGUMENT);
    spoilt.name = "fake";
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ARGUMENT);
    spoilt.name = "sim";
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_ARGUMENT);
    spoilt.ops = NULL;
    assert_int_equal(ist_backend_register(&spoilt), IST_ERR_NULL);
    assert_int_equal(ist_backend_register(NULL), IST_ERR_NULL);
}

static void every_required_operation_is_demanded(void **state)
{
    (void)state;
    ist_backend_ops completed;
#define X(op, params, args, need)                                                                  \
    {                                                                                              \
        ist_backend_ops ops = *fake_backend()->ops;                                                \
        ops.op = NULL;                                                                             \
        ist_status expected = (need) == IST_REQUIRED ? IST_ERR_ABI : IST_OK;                       \
        assert_int_equal(ist_backend_ops_complete(&ops, &completed), expected);                    \
        if ((need) == IST_REQUIRED) {                                                              \
            assert_string_equal(last_error().object, #op);                                         \
        } else {                                                                                   \
            assert_non_null(completed.op);                                                         \
        }                                                                                          \
    }
    IST_BACKEND_OPS(X)
#undef X
}

static void stubs_answer_unsupported(void **state)
{
    (void)state;
    ist_backend_ops ops = *fake_backend()->ops;
    ist_backend_ops completed;
    uint32_t index = 7;
    ops.window_open = NULL;
    ops.graph_begin = NULL;
    assert_int_equal(ist_backend_ops_complete(&ops, &completed), IST_OK);
    assert_int_equal(completed.window_open(NULL, 1, NULL, 1, &index), IST_ERR_UNSUPPORTED);
    assert_string_equal(last_error().object, "window_open");
    assert_int_equal(completed.graph_begin(NULL, 1), IST_ERR_UNSUPPORTED);
    assert_int_equal(index, 7);
    assert_ptr_equal(completed.launch, ops.launch);
}

/* A table compiled when the list was shorter. */
static void an_older_table_is_completed(void **state)
{
    (void)state;
    ist_backend_ops ops = *fake_backend()->ops;
    ist_backend_ops completed;
    ops.size = offsetof(ist_backend_ops, launch);
    assert_int_equal(ist_backend_ops_complete(&ops, &completed), IST_ERR_ABI);
    assert_string_equal(last_error().object, "launch");
    ops.size = 4;
    assert_int_equal(ist_backend_ops_complete(&ops, &completed), IST_ERR_ABI);
}

static void the_list_is_told(void **state)
{
    (void)state;
    const char *name = NULL;
    const char *reason = "untouched";
    assert_int_equal(ist_backend_query(0, &name, &reason), IST_OK);
    assert_string_equal(name, "cuda");
    assert_int_equal(ist_backend_query(1, &name, &reason), IST_OK);
    assert_string_equal(name, "sim");
    assert_int_equal(ist_backend_query(2, &name, &reason), IST_OK);
    assert_string_equal(name, "fake");
    assert_null(reason);
    fake.probe_reason = "it is a Sunday";
    assert_int_equal(ist_backend_query(2, &name, &reason), IST_OK);
    assert_string_equal(reason, "it is a Sunday");
    assert_int_equal(ist_backend_query(3, &name, &reason), IST_ERR_RANGE);
    assert_int_equal(ist_backend_query(0, NULL, &reason), IST_ERR_NULL);
    assert_int_equal(ist_backend_query(0, &name, NULL), IST_ERR_NULL);
}

static void a_named_backend_is_that_one(void **state)
{
    (void)state;
    char name[16] = "";
    assert_int_equal(run_on("fake", name), IST_OK);
    assert_string_equal(name, "fake");
    setenv("IST_BACKEND", "fake", 1);
    assert_int_equal(run_on(NULL, name), IST_OK);
    assert_string_equal(name, "fake");
    /* The descriptor is nearer than the environment. */
    setenv("IST_BACKEND", "nonsense", 1);
    assert_int_equal(run_on("fake", name), IST_OK);
}

static void an_explicit_choice_never_falls_through(void **state)
{
    (void)state;
    char name[16] = "none";
    assert_int_equal(run_on("nonsense", name), IST_ERR_BACKEND);
    assert_non_null(strstr(last_error().message, "\"nonsense\""));
    assert_non_null(strstr(last_error().message, "cuda, sim, fake"));
    assert_int_equal(run_on("", name), IST_ERR_BACKEND);
    fake.probe_reason = "it is a Sunday";
    assert_int_equal(run_on("fake", name), IST_ERR_BACKEND);
    assert_non_null(strstr(last_error().message, "it is a Sunday"));
    setenv("IST_BACKEND", "nonsense", 1);
    assert_int_equal(run_on(NULL, name), IST_ERR_BACKEND);
    assert_string_equal(last_error().object, "IST_BACKEND");
    assert_string_equal(name, "none");
}

static void without_a_name_the_simulator_is_not_taken(void **state)
{
    (void)state;
    char name[16] = "none";
    const char *first = NULL;
    const char *reason = NULL;
    assert_int_equal(ist_backend_query(0, &first, &reason), IST_OK);
    if (reason == NULL) {
        skip(); /* a machine with GPUs takes those */
    }
    assert_int_equal(run_on(NULL, name), IST_OK);
    assert_string_equal(name, "fake");
    fake.probe_reason = "it is a Sunday";
    strcpy(name, "none");
    assert_int_equal(run_on(NULL, name), IST_ERR_BACKEND);
    assert_non_null(strstr(last_error().message, "IST_BACKEND=sim"));
    assert_string_equal(name, "none");
}

static bool one_feature(uint32_t index, ist_feature *feature)
{
    feature->name = "wings";
    feature->reason = "it is a fish";
    return index == 0;
}

/* The index of a backend with that feature, registered anew. */
static uint32_t register_winged(ist_backend *backend, const char *name, size_t size)
{
    const char *there = NULL;
    const char *reason = NULL;
    uint32_t index = 0;
    *backend = *fake_backend();
    backend->name = name;
    backend->size = (uint32_t)size;
    backend->feature = one_feature;
    assert_int_equal(ist_backend_register(backend), IST_OK);
    while (ist_backend_query(index + 1, &there, &reason) == IST_OK) {
        ++index;
    }
    return index;
}

static void features_are_told_with_reasons(void **state)
{
    (void)state;
    static ist_backend winged, older;
    uint32_t last = register_winged(&winged, "winged", sizeof(winged));
    ist_feature feature = {.size = sizeof(feature)};
    assert_int_equal(ist_backend_feature(last, 0, &feature), IST_OK);
    assert_int_equal(feature.size, sizeof(feature));
    assert_string_equal(feature.name, "wings");
    assert_null(feature.value);
    assert_string_equal(feature.reason, "it is a fish");
    assert_int_equal(ist_backend_feature(last, 1, &feature), IST_ERR_RANGE);
    assert_int_equal(ist_backend_feature(last + 1, 0, &feature), IST_ERR_RANGE);
    assert_int_equal(ist_backend_feature(2, 0, &feature), IST_ERR_RANGE); /* has none */
    assert_int_equal(ist_backend_feature(last, 0, NULL), IST_ERR_NULL);
    feature.reserved = 1;
    assert_int_equal(ist_backend_feature(last, 0, &feature), IST_ERR_RESERVED);
    feature = (ist_feature){.size = 4};
    assert_int_equal(ist_backend_feature(last, 0, &feature), IST_ERR_SIZE);
    /* A backend from before features were known is taken, and has none. */
    last = register_winged(&older, "older", offsetof(ist_backend, feature));
    feature = (ist_feature){.size = sizeof(feature)};
    assert_int_equal(ist_backend_feature(last, 0, &feature), IST_ERR_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(spoilt_backends_are_refused, set_up),
        cmocka_unit_test_setup(every_required_operation_is_demanded, set_up),
        cmocka_unit_test_setup(stubs_answer_unsupported, set_up),
        cmocka_unit_test_setup(an_older_table_is_completed, set_up),
        cmocka_unit_test_setup(the_list_is_told, set_up),
        cmocka_unit_test_setup(a_named_backend_is_that_one, set_up),
        cmocka_unit_test_setup(an_explicit_choice_never_falls_through, set_up),
        cmocka_unit_test_setup(without_a_name_the_simulator_is_not_taken, set_up),
        cmocka_unit_test_setup(features_are_told_with_reasons, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
