/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a fault plan holds only faults that make sense, and its text, its numbers and its seed say
 * the same. Method: tables of good and bad faults and texts; 1000 random plans per budget, each
 * counted against its budget and printed, parsed, printed again; every allocation made to fail once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <isthmus/backend.h>
#include <isthmus/unstable/sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_prng.h"

static uint64_t first_seed = 0;

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

static ist_fault_plan *open_plan(void)
{
    ist_fault_plan *plan = NULL;
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    return plan;
}

/* Text of a plan; the caller frees it. */
static char *print_plan(const ist_fault_plan *plan)
{
    size_t needed = 0;
    assert_int_equal(ist_fault_plan_print(plan, NULL, 0, &needed), IST_OK);
    char *text = malloc(needed);
    assert_non_null(text);
    assert_int_equal(ist_fault_plan_print(plan, text, needed, NULL), IST_OK);
    assert_int_equal(strlen(text) + 1, needed);
    return text;
}

static ist_error last_error(void)
{
    ist_error error = {.size = sizeof error};
    assert_int_equal(ist_error_last(&error), IST_OK);
    return error;
}

static void test_object(void **state)
{
    (void)state;
    assert_int_equal(ist_fault_plan_open(NULL), IST_ERR_NULL);
    ist_fault_plan *plan = open_plan();
    assert_int_equal(ist_fault_plan_count(plan), 0);
    assert_int_equal(ist_fault_plan_count(NULL), 0);
    ist_fault fault = {.size = sizeof fault};
    assert_int_equal(ist_fault_plan_get(plan, 0, &fault), IST_ERR_RANGE);
    assert_int_equal(ist_fault_plan_get(NULL, 0, &fault), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_add(NULL, &fault), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_add(plan, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_parse(plan, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_load(plan, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_random(plan, 1, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_print(plan, NULL, 0, NULL), IST_ERR_NULL);
    uint64_t foreign[8] = {0};
    ist_fault_plan *no_plan = (ist_fault_plan *)(void *)foreign;
    assert_int_equal(ist_fault_plan_add(no_plan, &fault), IST_ERR_OBJECT);
    assert_int_equal(ist_fault_plan_count(no_plan), 0);
    ist_fault_plan_close(no_plan);
    ist_fault_plan_close(plan);
    ist_fault_plan_close(NULL);
}

static void test_sizes(void **state)
{
    (void)state;
    ist_fault_plan *plan = open_plan();
    struct {
        ist_fault fault;
        uint64_t more;
    } newer = {.fault = {.size = sizeof newer, .kind = IST_FAULT_KILL, .rank = 3, .at_ns = 9}};
    assert_int_equal(ist_fault_plan_add(plan, &newer.fault), IST_OK);
    newer.more = 1;
    assert_int_equal(ist_fault_plan_add(plan, &newer.fault), IST_ERR_RESERVED);
    newer.fault.size = sizeof(ist_fault) - 1;
    assert_int_equal(ist_fault_plan_add(plan, &newer.fault), IST_ERR_SIZE);
    assert_int_equal(ist_fault_plan_count(plan), 1);

    newer.more = 77;
    newer.fault.size = sizeof newer;
    assert_int_equal(ist_fault_plan_get(plan, 0, &newer.fault), IST_OK);
    assert_int_equal(newer.more, 77);
    assert_int_equal(newer.fault.size, sizeof newer);
    ist_fault older;
    memset(&older, 0x5a, sizeof older);
    older.size = offsetof(ist_fault, peer);
    assert_int_equal(ist_fault_plan_get(plan, 0, &older), IST_OK);
    assert_int_equal(older.rank, 3);
    assert_int_equal(older.peer, 0x5a5a5a5a);
    older.size = 7;
    assert_int_equal(ist_fault_plan_get(plan, 0, &older), IST_ERR_SIZE);
    ist_fault_plan_close(plan);
}

static void test_defaults(void **state)
{
    (void)state;
    ist_fault_plan *plan = open_plan();
    const ist_fault faults[] = {
        {.size = sizeof(ist_fault), .kind = IST_FAULT_DROP, .trigger = IST_FAULT_NTH},
        {.size = sizeof(ist_fault), .kind = IST_FAULT_SLOW, .trigger = IST_FAULT_AT_OP},
        {.size = sizeof(ist_fault), .kind = IST_FAULT_ALLOC, .trigger = IST_FAULT_NTH},
    };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ist_fault_plan_add(plan, &faults[i]), IST_OK);
    }
    ist_fault fault = {.size = sizeof fault};
    assert_int_equal(ist_fault_plan_get(plan, 0, &fault), IST_OK);
    assert_int_equal(fault.classes, IST_FAULT_PUTS | IST_FAULT_SIGNALS);
    assert_int_equal(fault.at_op, 1);
    assert_int_equal(fault.count, 1);
    assert_int_equal(fault.peer, 0);
    assert_int_equal(ist_fault_plan_get(plan, 1, &fault), IST_OK);
    assert_int_equal(fault.ratio, 10);
    assert_int_equal(fault.peer, IST_FAULT_ANY);
    char *text = print_plan(plan);
    assert_string_equal(text, "{\"faults\":["
                              "{\"kind\":\"drop\",\"rank\":0,\"peer\":0,\"nth\":1},"
                              "{\"kind\":\"slow\",\"rank\":0,\"at_op\":1},"
                              "{\"kind\":\"alloc\",\"rank\":0,\"nth\":1}]}");
    free(text);
    ist_fault_plan_close(plan);
}

/* Each row is one wrong field; the rest is as it should be. */
static void test_bad_faults(void **state)
{
    (void)state;
    static const struct {
        const char *object;
        ist_fault fault;
    } rows[] = {
        {"fault.kind", {.kind = (ist_fault_kind)0}},
        {"fault.kind", {.kind = (ist_fault_kind)14}},
        {"fault.kind", {.kind = (ist_fault_kind)-1}},
        {"fault.rank", {.kind = IST_FAULT_KILL, .rank = -2}},
        {"fault.rank", {.kind = IST_FAULT_KILL, .rank = IST_FAULT_ANY}},
        {"fault.rank", {.kind = IST_FAULT_LINK_DOWN, .rank = IST_FAULT_ANY, .peer = 1}},
        {"fault.peer", {.kind = IST_FAULT_DROP, .trigger = IST_FAULT_NTH, .peer = -7}},
        {"fault.peer", {.kind = IST_FAULT_LINK_DOWN, .rank = 2, .peer = 2}},
        {"fault.trigger", {.kind = IST_FAULT_KILL, .trigger = IST_FAULT_NTH}},
        {"fault.trigger", {.kind = IST_FAULT_KILL, .trigger = (ist_fault_trigger)4}},
        {"fault.trigger", {.kind = IST_FAULT_ALLOC, .trigger = IST_FAULT_AT_TIME}},
        {"fault.trigger", {.kind = IST_FAULT_RESUME, .trigger = IST_FAULT_AT_OP}},
        {"fault.at_ns", {.kind = IST_FAULT_KILL, .at_ns = UINT64_C(9000000000000001)}},
        {"fault.at_ns", {.kind = IST_FAULT_KILL, .trigger = IST_FAULT_AT_OP, .at_ns = 5}},
        {"fault.at_op", {.kind = IST_FAULT_KILL, .at_op = 5}},
        {"fault.at_op", {.kind = IST_FAULT_KILL, .trigger = IST_FAULT_AT_OP, .at_op = UINT64_MAX}},
        {"fault.point", {.kind = IST_FAULT_KILL, .trigger = IST_FAULT_AT_POINT}},
        {"fault.point", {.kind = IST_FAULT_KILL, .point = "sent"}},
        {"fault.point", {.kind = IST_FAULT_KILL, .trigger = IST_FAULT_AT_POINT, .point = "a\n"}},
        {"fault.classes", {.kind = IST_FAULT_KILL, .classes = 1}},
        {"fault.classes",
         {.kind = IST_FAULT_DROP, .trigger = IST_FAULT_NTH, .classes = IST_FAULT_STORES}},
        {"fault.classes",
         {.kind = IST_FAULT_DELAY, .trigger = IST_FAULT_NTH, .classes = 8, .duration_ns = 1}},
        {"fault.duration_ns", {.kind = IST_FAULT_DELAY, .trigger = IST_FAULT_NTH}},
        {"fault.duration_ns", {.kind = IST_FAULT_KILL, .duration_ns = 1}},
        {"fault.duration_ns", {.kind = IST_FAULT_STALL, .duration_ns = UINT64_MAX}},
        {"fault.ratio", {.kind = IST_FAULT_KILL, .ratio = 1}},
        {"fault.ratio", {.kind = IST_FAULT_SLOW, .ratio = 1000001}},
        {"fault.count", {.kind = IST_FAULT_KILL, .count = 1}},
        {"fault.count", {.kind = IST_FAULT_DROP, .trigger = IST_FAULT_NTH, .count = UINT64_MAX}},
    };
    ist_fault_plan *plan = open_plan();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ist_fault fault = rows[i].fault;
        fault.size = sizeof fault;
        assert_int_equal(ist_fault_plan_add(plan, &fault), IST_ERR_ARGUMENT);
        assert_string_equal(last_error().object, rows[i].object);
    }
    ist_fault fault = {.size = sizeof fault, .kind = IST_FAULT_KILL, .trigger = IST_FAULT_AT_POINT};
    memset(fault.point, 'x', sizeof fault.point);
    assert_int_equal(ist_fault_plan_add(plan, &fault), IST_ERR_ARGUMENT);
    assert_string_equal(last_error().object, "fault.point");
    assert_int_equal(ist_fault_plan_count(plan), 0);
    ist_fault_plan_close(plan);
}

static const char all_kinds[] =
    "{\"faults\":["
    "{\"kind\":\"kill\",\"rank\":3,\"at_op\":120},"
    "{\"kind\":\"kill\",\"rank\":2,\"at_point\":\"dispatch \\\"sent\\\" \\\\\",\"nth\":4},"
    "{\"kind\":\"stall\",\"rank\":0,\"at_ns\":0},"
    "{\"kind\":\"stall\",\"at_op\":7,\"duration_ns\":5000},"
    "{\"kind\":\"slow\",\"rank\":1,\"at_ns\":10,\"ratio\":3},"
    "{\"kind\":\"delay\",\"rank\":1,\"peer\":2,\"classes\":[\"puts\",\"stores\"],\"nth\":9,"
    "\"duration_ns\":8,\"count\":2},"
    "{\"kind\":\"drop\",\"classes\":[\"signals\"],\"nth\":1},"
    "{\"kind\":\"duplicate\",\"rank\":1,\"at_ns\":77,\"duration_ns\":3},"
    "{\"kind\":\"reorder\",\"peer\":0,\"at_op\":3},"
    "{\"kind\":\"error\",\"rank\":1,\"nth\":2,\"count\":9223372036854775807},"
    "{\"kind\":\"link_down\",\"rank\":0,\"peer\":5,\"at_ns\":9000000000000000},"
    "{\"kind\":\"link_slow\",\"rank\":0,\"at_op\":2,\"duration_ns\":4,\"ratio\":1000000},"
    "{\"kind\":\"alloc\",\"rank\":4,\"nth\":2,\"count\":3},"
    "{\"kind\":\"register\",\"nth\":1},"
    "{\"kind\":\"resume\",\"rank\":0,\"at_ns\":500}]}";

static void test_text(void **state)
{
    (void)state;
    ist_fault_plan *plan = open_plan();
    assert_int_equal(ist_fault_plan_parse(plan, all_kinds), IST_OK);
    assert_int_equal(ist_fault_plan_count(plan), 15);
    char *text = print_plan(plan);
    assert_string_equal(text, all_kinds);
    free(text);
    ist_fault fault = {.size = sizeof fault};
    assert_int_equal(ist_fault_plan_get(plan, 1, &fault), IST_OK);
    assert_string_equal(fault.point, "dispatch \"sent\" \\");
    assert_int_equal(fault.at_op, 4);
    assert_int_equal(ist_fault_plan_get(plan, 5, &fault), IST_OK);
    assert_int_equal(fault.classes, IST_FAULT_PUTS | IST_FAULT_STORES);

    assert_int_equal(ist_fault_plan_parse(plan, "{\"faults\":[]}"), IST_OK);
    assert_int_equal(ist_fault_plan_parse(plan, " {\n\"faults\" : [ {\"kind\":\"drop\"} ] } "),
                     IST_OK);
    assert_int_equal(ist_fault_plan_count(plan), 16);
    ist_fault_plan_close(plan);
}

static void test_print_capacity(void **state)
{
    (void)state;
    ist_fault_plan *plan = open_plan();
    assert_int_equal(ist_fault_plan_parse(plan, "{\"faults\":[{\"kind\":\"drop\"}]}"), IST_OK);
    static const char expected[] = "{\"faults\":[{\"kind\":\"drop\",\"nth\":1}]}";
    char text[sizeof expected + 8];
    memset(text, '#', sizeof text);
    size_t needed = 0;
    assert_int_equal(ist_fault_plan_print(plan, text, sizeof expected - 1, &needed), IST_ERR_SIZE);
    assert_int_equal(needed, sizeof expected);
    assert_int_equal(text[0], '#');
    assert_int_equal(ist_fault_plan_print(plan, text, sizeof expected, &needed), IST_OK);
    assert_string_equal(text, expected);
    assert_int_equal(text[sizeof expected], '#');
    ist_fault_plan_close(plan);
}

#define ONE(fault) "{\"faults\":[{\"kind\":\"drop\"}," fault "]}"

/* What the message must say: where, what was seen, what was expected. */
static const struct {
    const char *json;
    const char *said[3];
} bad_texts[] = {
    {"", {"line 1", "column 0", ""}},
    {"{\"faults\":[\n  {\"kind\":}]}", {"line 2", "column 11", ""}},
    {"{\"faults\":[]} x", {"line 1", "end of file", ""}},
    {"{\"faults\":[],\"faults\":[]}", {"line 1", "uplicate", ""}},
    {"[]", {"at the top", "", ""}},
    {"{}", {"\"faults\" is missing", "", ""}},
    {"{\"faults\":{}}", {"\"faults\"", "no array", ""}},
    {"{\"faults\":[],\"seed\":1}", {"\"seed\"", "unknown key", ""}},
    {ONE("7"), {"faults[1]", "no object", ""}},
    {ONE("{}"), {"faults[1]", "\"kind\" is missing", ""}},
    {ONE("{\"kind\":\"explode\",\"at_op\":1}"), {"faults[1]", "\"explode\"", "one of kill stall"}},
    {ONE("{\"kind\":5,\"at_op\":1}"), {"faults[1]", "\"kind\" is 5", ""}},
    {ONE("{\"kind\":\"kill\",\"rank\":1}"), {"faults[1]", "missing", "trigger"}},
    {ONE("{\"kind\":\"stall\",\"rank\":1}"), {"faults[1]", "missing", "trigger"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":1,\"at_ns\":2}"),
     {"faults[1]", "\"at_op\" is 1", "another trigger"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":1,\"at_point\":\"x\"}"),
     {"faults[1]", "\"at_point\"", "another trigger"}},
    {ONE("{\"kind\":\"drop\",\"rank\":1,\"at_op\":1,\"nth\":2}"),
     {"faults[1]", "\"nth\" is 2", "another trigger"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"nth\":2}"), {"faults[1]", "\"nth\" is 2", "trigger"}},
    {ONE("{\"kind\":\"kill\",\"rank\":\"1\",\"at_op\":2}"),
     {"faults[1]", "\"rank\" is \"1\"", "a rank"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1.0,\"at_op\":2}"),
     {"faults[1]", "\"rank\" is 1.0", "a rank"}},
    {ONE("{\"kind\":\"kill\",\"rank\":2147483648,\"at_op\":2}"),
     {"faults[1]", "is 2147483648", "a rank"}},
    {ONE("{\"kind\":\"kill\",\"rank\":-2,\"at_op\":2}"), {"faults[1]", "is -2", "a rank"}},
    {ONE("{\"kind\":\"kill\",\"at_ns\":2}"), {"faults[1]", "\"rank\" is missing", "a time"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":0}"), {"faults[1]", "is 0", "from 1"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":true}"), {"faults[1]", "is true", "integer"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_ns\":-1}"), {"faults[1]", "is -1", "from 0"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_ns\":9000000000000001}"),
     {"faults[1]", "is 9000000000000001", "at most 9e15"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_ns\":9223372036854775808}"),
     {"line 1", "too big", ""}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":1,\"peer\":2}"),
     {"faults[1]", "\"peer\" is 2", "absent"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":1,\"ratio\":10}"),
     {"faults[1]", "\"ratio\" is 10", "absent"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_op\":1,\"when\":3}"),
     {"faults[1]", "\"when\" is 3", "no such key"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_point\":\"\"}"), {"faults[1]", "is \"\"", "string"}},
    {ONE("{\"kind\":\"kill\",\"rank\":1,\"at_point\":7}"), {"faults[1]", "is 7", "string"}},
    {ONE("{\"kind\":\"kill\",\"at_point\":\"0123456789012345678901234567890123456789abcdefgh\"}"),
     {"faults[1]", "at_point", "47 bytes"}},
    {ONE("{\"kind\":\"kill\",\"at_point\":\"\\u00e9\"}"), {"faults[1]", "at_point", "ASCII"}},
    {ONE("{\"kind\":\"drop\",\"classes\":\"puts\"}"), {"faults[1]", "is \"puts\"", "array"}},
    {ONE("{\"kind\":\"drop\",\"classes\":[]}"), {"faults[1]", "is []", "array"}},
    {ONE("{\"kind\":\"drop\",\"classes\":[\"puts\",\"gets\"]}"),
     {"faults[1]", "[\"puts\",\"gets\"]", "array"}},
    {ONE("{\"kind\":\"drop\",\"classes\":[\"stores\"]}"),
     {"faults[1]", "\"classes\" is [\"stores\"]", "delays only"}},
    {ONE("{\"kind\":\"delay\",\"nth\":2}"), {"faults[1]", "\"duration_ns\" is missing", "1"}},
    {ONE("{\"kind\":\"slow\",\"rank\":1,\"at_ns\":2,\"ratio\":0}"),
     {"faults[1]", "is 0", "from 1"}},
};

static void test_bad_texts(void **state)
{
    (void)state;
    ist_fault_plan *plan = open_plan();
    assert_int_equal(ist_fault_plan_parse(plan, all_kinds), IST_OK);
    for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
        assert_int_equal(ist_fault_plan_parse(plan, bad_texts[i].json), IST_ERR_PARSE);
        const ist_error error = last_error();
        for (int k = 0; k < 3; k++) {
            if (strstr(error.message, bad_texts[i].said[k]) == NULL) {
                fail_msg("%s: \"%s\" does not say \"%s\"", bad_texts[i].json, error.message,
                         bad_texts[i].said[k]);
            }
        }
        char *text = print_plan(plan);
        assert_string_equal(text, all_kinds);
        free(text);
    }
    ist_fault_plan_close(plan);
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void test_load(void **state)
{
    (void)state;
    char path[] = "ist_plan_XXXXXX"; /* in the build folder */
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    ist_fault_plan *plan = open_plan();

    /* Longer than the first buffer. */
    char *text = malloc(20000 + sizeof all_kinds);
    assert_non_null(text);
    memset(text, ' ', 20000);
    memcpy(text + 20000, all_kinds, sizeof all_kinds);
    write_file(path, text, 20000 + sizeof all_kinds - 1);
    assert_int_equal(ist_fault_plan_load(plan, path), IST_OK);
    assert_int_equal(ist_fault_plan_count(plan), 15);
    free(text);

    write_file(path, "{\"faults\":\0[]}", 14);
    assert_int_equal(ist_fault_plan_load(plan, path), IST_ERR_PARSE);
    assert_non_null(strstr(last_error().message, path));
    write_file(path, "", 0);
    assert_int_equal(ist_fault_plan_load(plan, path), IST_ERR_PARSE);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ist_fault_plan_load(plan, path), IST_ERR_IO);
    assert_non_null(strstr(last_error().message, path));
    assert_int_equal(ist_fault_plan_load(plan, "/"), IST_ERR_IO);
    assert_int_equal(ist_fault_plan_count(plan), 15);
    ist_fault_plan_close(plan);
}

/* ------------------------------------------------------------------------------ random plans */

static const ist_fault_budget budgets[] = {
    {.size = sizeof(ist_fault_budget),
     .rank_count = 4,
     .kill_count_max = 1,
     .stall_count_max = 2,
     .transfer_count_max = 6,
     .link_count_max = 3,
     .horizon_ops = 200,
     .stall_ns_max = 50000},
    {.size = sizeof(ist_fault_budget),
     .rank_count = 64,
     .kill_count_max = 31,
     .stall_count_max = 40,
     .transfer_count_max = 100,
     .link_count_max = 100,
     .horizon_ops = 100000,
     .stall_ns_max = 1000000,
     .legal_only = 1},
    {.size = sizeof(ist_fault_budget),
     .rank_count = 2,
     .kill_count_max = 1,
     .stall_count_max = 9,
     .transfer_count_max = 2,
     .link_count_max = 1,
     .horizon_ops = 1,
     .stall_ns_max = 1},
    {.size = sizeof(ist_fault_budget),
     .rank_count = 1,
     .stall_count_max = 1,
     .transfer_count_max = 5,
     .link_count_max = 5},
    {.size = sizeof(ist_fault_budget), .rank_count = 8, .legal_only = 1, .transfer_count_max = 10},
};

typedef struct tally {
    uint32_t by_kind[14];
    uint32_t kills_of[64], stalls_of[64];
} tally;

static void check_fault(const ist_fault *fault, const ist_fault_budget *budget, tally *seen)
{
    const uint64_t horizon = budget->horizon_ops == 0 ? 1000 : budget->horizon_ops;
    const uint64_t stall = budget->stall_ns_max == 0 ? 10000 : budget->stall_ns_max;
    seen->by_kind[fault->kind]++;
    assert_in_range(fault->rank, 0, budget->rank_count - 1);
    assert_true(fault->peer == IST_FAULT_ANY || (uint32_t)fault->peer < budget->rank_count);
    assert_true(fault->peer != fault->rank);
    assert_true(fault->at_op <= horizon);
    assert_true(fault->duration_ns <= stall);
    if (fault->kind == IST_FAULT_KILL) {
        seen->kills_of[fault->rank]++;
    } else if (fault->kind == IST_FAULT_STALL || fault->kind == IST_FAULT_SLOW) {
        seen->stalls_of[fault->rank]++;
    } else if (fault->kind == IST_FAULT_LINK_DOWN) {
        assert_true(fault->duration_ns > 0);
    }
}

/* A stall for ever is followed by its resume. */
static void check_resumes(const ist_fault_plan *plan, const ist_fault_budget *budget)
{
    for (uint32_t i = 0; i < ist_fault_plan_count(plan); i++) {
        ist_fault stall = {.size = sizeof stall};
        ist_fault resume = {.size = sizeof resume};
        assert_int_equal(ist_fault_plan_get(plan, i, &stall), IST_OK);
        if (stall.kind == IST_FAULT_STALL && stall.duration_ns == 0) {
            assert_int_equal(ist_fault_plan_get(plan, i + 1, &resume), IST_OK);
            assert_int_equal(resume.kind, IST_FAULT_RESUME);
            assert_int_equal(resume.rank, stall.rank);
            assert_true(resume.at_ns > stall.at_ns);
            assert_true(resume.at_ns - stall.at_ns <=
                        (budget->stall_ns_max == 0 ? 10000 : budget->stall_ns_max));
        }
    }
}

static void check_plan(const ist_fault_plan *plan, const ist_fault_budget *budget)
{
    tally seen = {0};
    for (uint32_t i = 0; i < ist_fault_plan_count(plan); i++) {
        ist_fault fault = {.size = sizeof fault};
        assert_int_equal(ist_fault_plan_get(plan, i, &fault), IST_OK);
        check_fault(&fault, budget, &seen);
    }
    for (uint32_t rank = 0; rank < budget->rank_count; rank++) {
        assert_true(seen.kills_of[rank] + seen.stalls_of[rank] <= 1);
    }
    const uint32_t *kinds = seen.by_kind;
    const uint32_t illegal =
        kinds[IST_FAULT_DROP] + kinds[IST_FAULT_DUPLICATE] + kinds[IST_FAULT_ERROR];
    assert_true(kinds[IST_FAULT_KILL] <= budget->kill_count_max);
    assert_true(kinds[IST_FAULT_STALL] + kinds[IST_FAULT_SLOW] <= budget->stall_count_max);
    assert_true(kinds[IST_FAULT_DELAY] + kinds[IST_FAULT_REORDER] + illegal <=
                budget->transfer_count_max);
    assert_true(kinds[IST_FAULT_LINK_DOWN] + kinds[IST_FAULT_LINK_SLOW] <= budget->link_count_max);
    assert_true(budget->legal_only == 0 || illegal == 0);
    assert_int_equal(kinds[IST_FAULT_ALLOC] + kinds[IST_FAULT_REGISTER], 0);
    check_resumes(plan, budget);
}

static void check_seed(uint64_t seed, const ist_fault_budget *budget, uint32_t *fault_count)
{
    ist_fault_plan *plan = open_plan();
    ist_fault_plan *again = open_plan();
    assert_int_equal(ist_fault_plan_random(plan, seed, budget), IST_OK);
    check_plan(plan, budget);
    char *text = print_plan(plan);
    assert_int_equal(ist_fault_plan_parse(again, text), IST_OK);
    char *second = print_plan(again);
    assert_string_equal(text, second);
    ist_fault_plan_close(again);
    again = open_plan();
    assert_int_equal(ist_fault_plan_random(again, seed, budget), IST_OK);
    char *third = print_plan(again);
    assert_string_equal(text, third);
    *fault_count += ist_fault_plan_count(plan);
    free(text);
    free(second);
    free(third);
    ist_fault_plan_close(plan);
    ist_fault_plan_close(again);
}

static void test_random(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        uint32_t fault_count = 0;
        for (uint64_t seed = first_seed; seed < first_seed + 1000; seed++) {
            check_seed(seed, &budgets[i], &fault_count);
        }
        assert_true(fault_count > 100);
    }
}

/* The clog pattern occurs: links go down at once and come up in another order. */
static void test_random_clog(void **state)
{
    (void)state;
    uint32_t clogs = 0;
    for (uint64_t seed = first_seed; seed < first_seed + 200; seed++) {
        ist_fault_plan *plan = open_plan();
        assert_int_equal(ist_fault_plan_random(plan, seed, &budgets[0]), IST_OK);
        ist_fault before = {.size = sizeof before};
        for (uint32_t i = 0; i < ist_fault_plan_count(plan); i++) {
            ist_fault fault = {.size = sizeof fault};
            assert_int_equal(ist_fault_plan_get(plan, i, &fault), IST_OK);
            clogs += fault.kind == IST_FAULT_LINK_DOWN && before.kind == IST_FAULT_LINK_DOWN &&
                             fault.at_ns == before.at_ns && fault.duration_ns < before.duration_ns
                         ? 1u
                         : 0u;
            before = fault;
        }
        ist_fault_plan_close(plan);
    }
    assert_true(clogs > 10);
}

static void test_bad_budgets(void **state)
{
    (void)state;
    static const struct {
        const char *object;
        ist_status status;
        ist_fault_budget budget;
    } rows[] = {
        {"budget.size", IST_ERR_SIZE, {.size = 8, .rank_count = 2}},
        {"budget.rank_count", IST_ERR_ARGUMENT, {.size = sizeof(ist_fault_budget)}},
        {"budget.kill_count_max",
         IST_ERR_ARGUMENT,
         {.size = sizeof(ist_fault_budget), .rank_count = 2, .kill_count_max = 2}},
        {"budget.legal_only",
         IST_ERR_ARGUMENT,
         {.size = sizeof(ist_fault_budget), .rank_count = 2, .legal_only = 2}},
        {"budget.horizon_ops",
         IST_ERR_ARGUMENT,
         {.size = sizeof(ist_fault_budget), .rank_count = 2, .horizon_ops = UINT64_MAX}},
        {"budget.stall_ns_max",
         IST_ERR_ARGUMENT,
         {.size = sizeof(ist_fault_budget), .rank_count = 2, .stall_ns_max = UINT64_MAX}},
        {"budget.reserved",
         IST_ERR_RESERVED,
         {.size = sizeof(ist_fault_budget), .rank_count = 2, .reserved = 1}},
    };
    ist_fault_plan *plan = open_plan();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ist_fault_plan_random(plan, 1, &rows[i].budget), rows[i].status);
        assert_string_equal(last_error().object, rows[i].object);
    }
    assert_int_equal(ist_fault_plan_count(plan), 0);
    ist_fault_plan_close(plan);
}

/* ------------------------------------------------------------------------------ memory */

static ist_status fill_plan(const char *path)
{
    ist_fault_plan *plan = NULL;
    IST_RETURN_IF_ERROR(ist_fault_plan_open(&plan));
    ist_status status = ist_fault_plan_random(plan, 5, &budgets[1]);
    uint32_t count = ist_fault_plan_count(plan);
    assert_true(status == IST_OK || count == 0);
    for (int i = 0; i < 4 && status == IST_OK; i++) {
        count = ist_fault_plan_count(plan);
        status =
            i % 2 == 0 ? ist_fault_plan_parse(plan, all_kinds) : ist_fault_plan_load(plan, path);
    }
    assert_true(status == IST_OK || ist_fault_plan_count(plan) == count);
    ist_fault_plan_close(plan);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    char path[] = "ist_plan_XXXXXX"; /* in the build folder */
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    write_file(path, all_kinds, sizeof all_kinds - 1);
    uint64_t hits = 1;
    uint64_t nth = 0;
    while (hits != 0) {
        nth++;
        assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
        const ist_status status = fill_plan(path);
        (void)ist_call_fault_disarm(&hits);
        assert_int_equal(status, hits != 0 ? IST_ERR_MEMORY : IST_OK);
    }
    assert_true(nth > 5);
    assert_int_equal(unlink(path), 0);
}

/* ------------------------------------------------------------------------------ chance */

static void test_prng(void **state)
{
    (void)state;
    /* Values of xoshiro256** behind splitmix64 of 1; they must never change. */
    sim_prng prng;
    sim_prng_seed(&prng, 1);
    assert_true(prng.s[0] == UINT64_C(0x910a2dec89025cc1));
    assert_true(prng.s[1] == UINT64_C(0xbeeb8da1658eec67));
    assert_true(sim_prng_next(&prng) == UINT64_C(0xb3f2af6d0fc710c5));

    uint32_t counts[3] = {0};
    for (int i = 0; i < 30000; i++) {
        counts[sim_prng_below(&prng, 3)]++;
    }
    for (int i = 0; i < 3; i++) {
        assert_in_range(counts[i], 9600, 10400);
    }
    /* Modulo bias would favour the lower third here. */
    uint32_t low = 0;
    const uint64_t wide = UINT64_C(0xc000000000000000);
    for (int i = 0; i < 30000; i++) {
        low += sim_prng_below(&prng, wide) < wide / 3 ? 1u : 0u;
    }
    assert_in_range(low, 9600, 10400);
    assert_int_equal(sim_prng_below(&prng, 0), 0);
    assert_int_equal(sim_prng_below(&prng, 1), 0);
    assert_int_equal(sim_prng_between(&prng, 7, 7), 7);
    (void)sim_prng_between(&prng, 0, UINT64_MAX);
    assert_true(sim_prng_chance(&prng, 1, 1));
    assert_false(sim_prng_chance(&prng, 0, 9));
}

int main(int argument_count, char **arguments)
{
    first_seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 0;
    print_message("seeds %llu and on\n", (unsigned long long)first_seed);
    ist_log_sink_set(quiet, NULL, IST_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_defaults),    cmocka_unit_test(test_bad_faults),
        cmocka_unit_test(test_text),        cmocka_unit_test(test_print_capacity),
        cmocka_unit_test(test_bad_texts),   cmocka_unit_test(test_load),
        cmocka_unit_test(test_random),      cmocka_unit_test(test_random_clog),
        cmocka_unit_test(test_bad_budgets), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_prng),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
