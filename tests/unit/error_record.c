/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: statuses are what the list says, and an error is decided once: one record, one log line.
 * Method: raise, read back through every size of the caller's struct, count the lines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ist_internal.h"
#include "test_log.h"

static test_log seen;

static int set_up(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    ist_log_sink_set(test_log_line, &seen, IST_LOG_WARN);
    return 0;
}

static void names_and_sentences(void **state)
{
    (void)state;
#define X(name, value, sentence)                                                                   \
    assert_string_equal(ist_status_name((ist_status)(value)), #name);                              \
    assert_string_equal(ist_status_sentence(name), sentence);
    IST_STATUS_LIST(X)
#undef X
    assert_string_equal(ist_status_name((ist_status)-999), "IST_ERR_?");
    assert_non_null(ist_status_sentence((ist_status)-999));
}

static void raise_fills_and_logs_once(void **state)
{
    (void)state;
    ist_error details = ist_details(NULL, "desc.rank", "comm.open");
    details.peer = 3;
    details.expected = 8;
    details.observed = 9;
    assert_int_equal(ist_raise(IST_ERR_RANGE, &details, "rank is %d", 9), IST_ERR_RANGE);
    ist_error last = {.size = sizeof(last)};
    ist_error again = {.size = sizeof(again)};
    assert_int_equal(ist_error_last(&last), IST_OK);
    assert_int_equal(last.status, IST_ERR_RANGE);
    assert_int_equal(last.peer, 3);
    assert_int_equal(last.rank, IST_RANK_NONE);
    assert_int_equal(last.observed, 9);
    assert_string_equal(last.object, "desc.rank");
    assert_string_equal(last.operation, "comm.open");
    assert_string_equal(last.message, "rank is 9");
    assert_int_equal(ist_error_last(&again), IST_OK);
    assert_memory_equal(&last, &again, sizeof(last));
    assert_int_equal(seen.count, 1);
    assert_true(test_log_has(&seen, "comm.open: rank is 9 [IST_ERR_RANGE]"));
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[600];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ist_raise(IST_ERR_PARSE, NULL, "%s", text);
    ist_error last = {.size = sizeof(last)};
    assert_int_equal(ist_error_last(&last), IST_OK);
    assert_int_equal(strlen(last.message), sizeof(last.message) - 1);
}

static void filled_up_to_the_callers_size(void **state)
{
    (void)state;
    union {
        ist_error error;
        uint8_t bytes[sizeof(ist_error) + 64];
    } out;
    ist_raise(IST_ERR_IO, NULL, "file");
    for (uint32_t size = 0; size <= sizeof(out); ++size) {
        memset(&out, 0xee, sizeof(out));
        out.error.size = size;
        ist_status status = ist_error_last(&out.error);
        assert_int_equal(status, size < 8 ? IST_ERR_SIZE : IST_OK);
        assert_int_equal(out.error.size, size);
        for (uint32_t i = size < 8 ? 8 : size; i < sizeof(out); ++i) {
            assert_int_equal(out.bytes[i], 0xee);
        }
        if (size < 8) {
            ist_raise(IST_ERR_IO, NULL, "file");
        }
    }
    assert_int_equal(ist_error_last(NULL), IST_ERR_NULL);
}

static void bound_slots_are_separate(void **state)
{
    (void)state;
    static ist_error slot;
    ist_error last = {.size = sizeof(last)};
    ist_raise(IST_ERR_IO, NULL, "the thread's own");
    ist_error *former = ist_error_bind(&slot);
    /* A fresh slot is zeroed memory, and says nothing, not even rank 0. */
    assert_int_equal(ist_error_last(&last), IST_OK);
    assert_int_equal(last.status, IST_OK);
    assert_int_equal(last.rank, IST_RANK_NONE);
    ist_raise(IST_ERR_PARSE, NULL, "the slot's");
    assert_ptr_equal(ist_error_bind(former), &slot);
    assert_int_equal(slot.status, IST_ERR_PARSE);
    assert_int_equal(ist_error_last(&last), IST_OK);
    assert_int_equal(last.status, IST_ERR_IO);
}

static void levels_are_kept(void **state)
{
    (void)state;
    ist_log(IST_LOG_INFO, "too much");
    ist_log(IST_LOG_WARN, "just %s", "right");
    ist_log(IST_LOG_NONE, "never");
    ist_log((ist_log_level)77, "never");
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.lines[0], "just right");
}

static void element_sizes(void **state)
{
    (void)state;
    assert_int_equal(ist_dtype_bytes(IST_BF16), 2);
    assert_int_equal(ist_dtype_bytes(IST_I64), 8);
    assert_int_equal(ist_dtype_bytes(IST_DTYPE_UNSET), 0);
    assert_int_equal(ist_dtype_bytes((ist_dtype)99), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names_and_sentences, set_up),
        cmocka_unit_test_setup(raise_fills_and_logs_once, set_up),
        cmocka_unit_test_setup(long_texts_are_cut, set_up),
        cmocka_unit_test_setup(filled_up_to_the_callers_size, set_up),
        cmocka_unit_test_setup(bound_slots_are_separate, set_up),
        cmocka_unit_test_setup(levels_are_kept, set_up),
        cmocka_unit_test_setup(element_sizes, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
