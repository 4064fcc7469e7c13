/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a trace is JSON that viewers accept, with nothing left open, whatever the log has lost.
 * Method: made-up runs with overlapping slices, put losses and duplicates, a small ring, odd names;
 * the file is parsed by the JSON library and its rules are checked line by line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <isthmus/backend.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_prng.h"
#include "sim_trace.h"

static char path[] = "ist_trace_XXXXXX"; /* in the build folder */
static uint64_t first_seed = 0;

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

static int open_path(void **state)
{
    (void)state;
    const int descriptor = mkstemp(path);
    return descriptor < 0 || close(descriptor) != 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static json_t *write_and_parse(const sim_log *log, uint32_t rank_count)
{
    json_error_t error;
    assert_int_equal(sim_trace_write(log, rank_count, path), IST_OK);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    return root;
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    assert_non_null(text);
    return text;
}

static int64_t number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static double time_of(const json_t *event)
{
    const json_t *value = json_object_get(event, "ts");
    assert_true(json_is_real(value));
    return json_real_value(value);
}

enum { TRACKS_MAX = 2048 };

typedef struct tally {
    size_t begins, ends, flow_starts, flow_ends, slices, instants, processes;
    struct {
        int64_t pid, tid;
        int depth;
        double at;
    } tracks[TRACKS_MAX];
    size_t track_count;
} tally;

/* Slices of a track do not overlap: begin and end take turns, in the order of time. */
static void check_slice(tally *seen, const json_t *event, bool begin)
{
    const int64_t pid = number_of(event, "pid");
    const int64_t tid = number_of(event, "tid");
    size_t i = 0;
    while (i < seen->track_count && (seen->tracks[i].pid != pid || seen->tracks[i].tid != tid)) {
        i++;
    }
    if (i == seen->track_count) {
        assert_true(seen->track_count < TRACKS_MAX);
        seen->tracks[i].pid = pid;
        seen->tracks[i].tid = tid;
        seen->track_count++;
    }
    assert_int_equal(seen->tracks[i].depth, begin ? 0 : 1);
    assert_true(time_of(event) >= seen->tracks[i].at);
    seen->tracks[i].depth = begin ? 1 : 0;
    seen->tracks[i].at = time_of(event);
    *(begin ? &seen->begins : &seen->ends) += 1;
}

static void check_event(tally *seen, const json_t *event)
{
    const char *phase = text_of(event, "ph");
    assert_true(number_of(event, "pid") >= 1);
    if (strcmp(phase, "M") == 0) {
        seen->processes += strcmp(text_of(event, "name"), "process_name") == 0 ? 1 : 0;
        return;
    }
    assert_true(time_of(event) >= 0);
    if (strcmp(phase, "B") == 0 || strcmp(phase, "E") == 0) {
        check_slice(seen, event, phase[0] == 'B');
    } else if (strcmp(phase, "s") == 0) {
        seen->flow_starts++;
        assert_int_equal(number_of(event, "id"), seen->flow_starts);
    } else if (strcmp(phase, "f") == 0) {
        seen->flow_ends++;
        assert_int_equal(number_of(event, "id"), seen->flow_starts);
    } else if (strcmp(phase, "X") == 0) {
        seen->slices++;
    } else {
        assert_string_equal(phase, "i");
        seen->instants++;
    }
}

static tally check_trace(const sim_log *log, uint32_t rank_count)
{
    tally seen = {0};
    json_t *root = write_and_parse(log, rank_count);
    size_t index;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), index, event)
    {
        check_event(&seen, event);
    }
    json_decref(root);
    assert_int_equal(seen.begins, seen.ends);
    assert_int_equal(seen.flow_starts, seen.flow_ends);
    for (size_t i = 0; i < seen.track_count; i++) {
        assert_int_equal(seen.tracks[i].depth, 0);
    }
    return seen;
}

static void test_empty(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    const tally seen = check_trace(&log, 3);
    assert_int_equal(seen.processes, 3);
    sim_log_fini(&log);
}

static void test_slices(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    const uint32_t kernel = sim_log_name(&log, "odd \"name\"\\ \x01 \xe9");
    sim_log_event(&log, 10, IST_SIM_KERNEL_BEGIN, 0, -1, kernel, 1);
    sim_log_event(&log, 20, IST_SIM_KERNEL_BEGIN, 0, -1, 77, 2);
    sim_log_event(&log, 30, IST_SIM_WAIT, 0, 1, 0, UINT64_MAX);
    sim_log_event(&log, 30, IST_SIM_WAIT, 0, 1, 0, 5);
    sim_log_event(&log, 31, IST_SIM_WAIT, 1, -1, 0, 5);
    sim_log_event(&log, 40, IST_SIM_KERNEL_END, 0, -1, kernel, 1);
    sim_log_event(&log, 1000041, IST_SIM_WAIT_END, 0, 1, 0, 1000011);
    sim_log_event(&log, 1000042, IST_SIM_KERNEL_END, 0, -1, 77, 2);
    sim_log_event(&log, 1000043, IST_SIM_FAULT, 1, -1, IST_FAULT_KILL, 0);
    /* Its wait was cut off by its death; this end has no begin. */
    sim_log_event(&log, 1000050, IST_SIM_WAIT_END, 1, -1, 1, 1000019);
    sim_log_event(&log, 1000060, IST_SIM_EXCHANGE, -1, -1, 0, 0);
    const tally seen = check_trace(&log, 2);
    assert_int_equal(seen.begins, 5);
    assert_int_equal(seen.instants, 2);
    assert_int_equal(seen.processes, 3);
    assert_int_equal(seen.track_count, 5);

    json_t *root = write_and_parse(&log, 2);
    const json_t *events = json_object_get(root, "traceEvents");
    bool named = false;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *name = json_string_value(json_object_get(event, "name"));
        if (strcmp(text_of(event, "ph"), "B") == 0 && strstr(name, "odd") != NULL) {
            assert_string_equal(name, "odd \"name\"\\ \x01 \xc3\xa9");
            assert_true(time_of(event) == 0.00001);
            named = true;
        }
    }
    assert_true(named);
    json_decref(root);
    sim_log_fini(&log);
}

static void test_flows(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    sim_log_event(&log, 1, IST_SIM_PUT, 0, 1, 3, 100);
    sim_log_event(&log, 2, IST_SIM_PUT, 0, 1, 3, 200); /* dropped */
    sim_log_event(&log, 3, IST_SIM_PUT, 0, 1, 3, 100);
    sim_log_event(&log, 4, IST_SIM_PUT_DONE, 1, 0, 3, 100);
    sim_log_event(&log, 5, IST_SIM_PUT_DONE, 1, 0, 4, 100); /* another context */
    sim_log_event(&log, 6, IST_SIM_PUT_DONE, 1, 0, 3, 100);
    sim_log_event(&log, 7, IST_SIM_PUT_DONE, 1, 0, 3, 100); /* duplicate */
    sim_log_event(&log, 8, IST_SIM_PUT, 0, 1, 3, 300);
    sim_log_event(&log, 9, IST_SIM_PUT_DONE, 1, 0, 3, 300);
    const tally seen = check_trace(&log, 2);
    assert_int_equal(seen.slices, 9);
    assert_int_equal(seen.flow_starts, 3);
    sim_log_fini(&log);
}

/* Anything a damaged or newer log may hold: numbers out of every range. */
static void draw_run(sim_log *log, uint64_t seed)
{
    static const char *const names[] = {"a", "b\"", "c\\"};
    sim_prng prng;
    sim_prng_seed(&prng, seed);
    uint64_t at_ps = 0;
    for (int i = 0; i < 1500; i++) {
        const uint32_t kind = (uint32_t)sim_prng_below(&prng, 20);
        const bool wild = sim_prng_chance(&prng, 1, 50);
        const uint32_t name = sim_log_name(log, names[sim_prng_below(&prng, 3)]);
        at_ps += sim_prng_below(&prng, 5) * 1000;
        sim_log_event(log, at_ps, kind, wild ? INT32_MAX : (int32_t)sim_prng_below(&prng, 4) - 1,
                      (int32_t)sim_prng_below(&prng, 4) - 1,
                      wild                           ? UINT32_MAX
                      : sim_prng_chance(&prng, 1, 2) ? name
                                                     : kind % 3,
                      wild ? sim_prng_next(&prng) : sim_prng_below(&prng, 5) * 1000);
    }
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + 40; seed++) {
        sim_log log;
        assert_int_equal(sim_log_init(&log, seed % 2 == 0 ? 0 : 512, true), IST_OK);
        draw_run(&log, seed);
        const tally seen = check_trace(&log, 3);
        assert_int_equal(seen.processes, 4);
        assert_true(seen.begins > 10);
        sim_log_fini(&log);
    }
}

static void test_failures(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    draw_run(&log, 1);
    assert_int_equal(sim_trace_write(&log, 3, "/nonexistent/trace"), IST_ERR_IO);
    assert_int_equal(sim_trace_write(&log, 3, "/dev/full"), IST_ERR_IO);
    uint64_t hits = 1;
    uint64_t nth = 0;
    while (hits != 0) {
        nth++;
        assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
        const ist_status status = sim_trace_write(&log, 3, path);
        (void)ist_call_fault_disarm(&hits);
        assert_int_equal(status, hits != 0 ? IST_ERR_MEMORY : IST_OK);
    }
    assert_true(nth > 4);
    sim_log_fini(&log);
}

int main(int argument_count, char **arguments)
{
    first_seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 0;
    print_message("seeds %llu and on\n", (unsigned long long)first_seed);
    ist_log_sink_set(quiet, NULL, IST_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),    cmocka_unit_test(test_slices),
        cmocka_unit_test(test_flows),    cmocka_unit_test(test_random),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, open_path, remove_path);
}
