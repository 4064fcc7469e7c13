/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the digest depends on every event and on nothing else, the kept events are the last ones,
 * and a log file gives back what was written or is refused. Method: logs of many lengths, each bit of
 * an event turned, each prefix and each changed byte of a file read.
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
#include <time.h>
#include <unistd.h>

#include "sim_log.h"
#include "sim_prng.h"

static char path[] = "ist_log_XXXXXX"; /* in the build folder */

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

/* Event i of a made-up run. */
static ist_sim_event event_of(uint64_t i)
{
    return (ist_sim_event){.at_ps = i * 1000003,
                           .kind = (uint32_t)(i % 17) + 1,
                           .rank = (int32_t)(i % 5) - 1,
                           .peer = (int32_t)(i % 7) - 1,
                           .detail = (uint32_t)(i * 0x9e3779b1u),
                           .value = i * UINT64_C(0x9e3779b97f4a7c15)};
}

static void append(sim_log *log, const ist_sim_event *event)
{
    sim_log_event(log, event->at_ps, event->kind, event->rank, event->peer, event->detail,
                  event->value);
}

static void fill(sim_log *log, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const ist_sim_event event = event_of(i);
        append(log, &event);
    }
}

static uint64_t digest_of(uint64_t count, uint64_t capacity, bool keep)
{
    sim_log log;
    memset(&log, 0xa5, sizeof log);
    assert_int_equal(sim_log_init(&log, capacity, keep), IST_OK);
    fill(&log, count);
    const uint64_t digest = sim_log_digest(&log);
    assert_int_equal(sim_log_count(&log), count);
    sim_log_fini(&log);
    return digest;
}

static void test_digest(void **state)
{
    (void)state;
    assert_int_equal(digest_of(0, 0, false), 0);
    /* Fixed for ever: other compilers, other machines, other days. */
    assert_true(digest_of(1, 0, false) == UINT64_C(0xd857e8e886a6bee2));
    assert_true(digest_of(1000, 0, false) == UINT64_C(0x94acbb70be7c2760));
    static const uint64_t counts[] = {1, 2, 127, 128, 129, 255, 256, 257, 5000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const uint64_t digest = digest_of(counts[i], 0, false);
        assert_true(digest == digest_of(counts[i], 0, true));
        assert_true(digest == digest_of(counts[i], 1, true));
        assert_true(digest == digest_of(counts[i], 1000, true));
        for (size_t k = 0; k < i; k++) {
            assert_true(digest != digest_of(counts[k], 0, false));
        }
    }
}

/* Asking for the digest changes nothing. */
static void test_digest_midway(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, false), IST_OK);
    for (uint64_t i = 0; i < 400; i++) {
        const ist_sim_event event = event_of(i);
        append(&log, &event);
        assert_true(sim_log_digest(&log) == digest_of(i + 1, 0, false));
    }
    sim_log_fini(&log);
}

/* Turns one bit of event `changed` of `count`. */
static uint64_t digest_with_bit(uint64_t count, uint64_t changed, uint32_t bit)
{
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, false), IST_OK);
    for (uint64_t i = 0; i < count; i++) {
        ist_sim_event event = event_of(i);
        if (i == changed) {
            ((unsigned char *)&event)[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        }
        append(&log, &event);
    }
    const uint64_t digest = sim_log_digest(&log);
    sim_log_fini(&log);
    return digest;
}

static void test_digest_covers_all(void **state)
{
    (void)state;
    const uint64_t digest = digest_of(300, 0, false);
    for (uint32_t bit = 0; bit < 256; bit++) {
        assert_true(digest_with_bit(300, 5, bit) != digest);
        assert_true(digest_with_bit(300, 299, bit) != digest);
    }
}

static void check_kept(const sim_log *log, uint64_t first, uint64_t count)
{
    assert_int_equal(sim_log_first(log), first);
    assert_int_equal(sim_log_count(log), count);
    for (uint64_t i = first; i < count; i++) {
        const ist_sim_event event = event_of(i);
        assert_memory_equal(sim_log_at(log, i), &event, sizeof event);
    }
}

static void test_ring(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, false), IST_OK);
    fill(&log, 300);
    assert_int_equal(sim_log_first(&log), 300);
    sim_log_fini(&log);

    for (uint64_t count = 0; count < 1300; count += count < 520 ? 1 : 97) {
        assert_int_equal(sim_log_init(&log, 200, true), IST_OK);
        assert_int_equal(log.capacity, 256);
        fill(&log, count);
        check_kept(&log, count > 256 ? count - 256 : 0, count);
        sim_log_fini(&log);
    }
    assert_int_equal(sim_log_init(&log, UINT64_MAX, true), IST_ERR_RANGE);
    sim_log_fini(&log);
}

static void test_names(void **state)
{
    (void)state;
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    const uint32_t dispatch = sim_log_name(&log, "ep_dispatch");
    const uint32_t combine = sim_log_name(&log, "ep_combine");
    assert_int_not_equal(dispatch, combine);
    assert_int_equal(sim_log_name(&log, "ep_dispatch"), dispatch);
    assert_int_equal(log.name_count, 2);
    assert_string_equal(sim_log_name_of(&log, dispatch), "ep_dispatch");
    assert_null(sim_log_name_of(&log, dispatch + 1));
    sim_log_fini(&log);

    assert_int_equal(sim_log_init(&log, 0, false), IST_OK);
    assert_int_equal(sim_log_name(&log, "ep_dispatch"), dispatch);
    assert_null(sim_log_name_of(&log, dispatch));
    sim_log_fini(&log);
}

/* ------------------------------------------------------------------------------ files */

static void check_round_trip(uint64_t count, uint64_t capacity)
{
    sim_log log;
    sim_log back;
    assert_int_equal(sim_log_init(&log, capacity, true), IST_OK);
    fill(&log, count);
    const uint32_t name = sim_log_name(&log, "ep_dispatch");
    assert_int_equal(sim_log_write(&log, path), IST_OK);
    memset(&back, 0xa5, sizeof back);
    assert_int_equal(sim_log_read(&back, path), IST_OK);
    check_kept(&back, sim_log_first(&log), count);
    assert_true(sim_log_digest(&back) == sim_log_digest(&log));
    assert_string_equal(sim_log_name_of(&back, name), "ep_dispatch");
    sim_log_fini(&back);
    sim_log_fini(&log);
}

static void test_file(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 127, 128, 129, 1000, 70000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_round_trip(counts[i], 0);
        check_round_trip(counts[i], 128);
    }
}

static size_t load_file(unsigned char *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, capacity, file);
    assert_int_equal(fclose(file), 0);
    return count;
}

static ist_status read_altered(const unsigned char *bytes, size_t count)
{
    sim_log log;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    const ist_status status = sim_log_read(&log, path);
    if (status == IST_OK) {
        sim_log_fini(&log);
    }
    return status;
}

static void test_bad_files(void **state)
{
    (void)state;
    unsigned char bytes[1024];
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    fill(&log, 20);
    (void)sim_log_name(&log, "ep_dispatch");
    assert_int_equal(sim_log_write(&log, path), IST_OK);
    sim_log_fini(&log);
    const size_t count = load_file(bytes, sizeof bytes);
    assert_int_equal(count, 56 + 20 * 32 + 8 + 11);
    assert_memory_equal(bytes, "ISTLOG1", 8);
    for (size_t prefix = 0; prefix < count; prefix++) {
        assert_int_equal(read_altered(bytes, prefix), IST_ERR_PARSE);
    }
    bytes[count] = 0;
    assert_int_equal(read_altered(bytes, count + 1), IST_ERR_PARSE);
    for (size_t i = 0; i < count; i++) {
        /* The number of all events, their digest, padding and names cannot be checked. */
        const bool free_byte = (i >= 20 && i < 24) || (i >= 32 && i < 48) ||
                               (i >= 56 + 20 * 32 && (i < 56 + 20 * 32 + 4 || i >= count - 11));
        bytes[i] ^= 0x40;
        const ist_status status = read_altered(bytes, count);
        bytes[i] ^= 0x40;
        assert_true(status == IST_ERR_PARSE || (free_byte && status == IST_OK));
    }
}

static void test_io(void **state)
{
    (void)state;
    sim_log log;
    ist_error error = {.size = sizeof error};
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    fill(&log, 2000);
    assert_int_equal(sim_log_write(&log, "/nonexistent/log"), IST_ERR_IO);
    assert_int_equal(ist_error_last(&error), IST_OK);
    assert_non_null(strstr(error.message, "/nonexistent/log"));
    assert_non_null(strstr(error.message, "No such file"));
    assert_int_equal(sim_log_write(&log, "/dev/full"), IST_ERR_IO);
    sim_log_fini(&log);
    assert_int_equal(sim_log_read(&log, "/nonexistent/log"), IST_ERR_IO);
    assert_int_equal(sim_log_read(&log, "/"), IST_ERR_IO);
}

static ist_status make_and_read(void)
{
    sim_log log;
    sim_log back;
    ist_status status = sim_log_init(&log, 0, true);
    if (status == IST_OK) {
        fill(&log, 200);
        (void)sim_log_name(&log, "a");
        (void)sim_log_name(&log, "b");
        status = sim_log_write(&log, path);
    }
    if (status == IST_OK) {
        status = sim_log_read(&back, path);
        if (status == IST_OK) {
            sim_log_fini(&back);
        }
    }
    sim_log_fini(&log);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    uint64_t hits = 1;
    uint64_t nth = 0;
    while (hits != 0) {
        nth++;
        assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
        const ist_status status = make_and_read();
        (void)ist_call_fault_disarm(&hits);
        /* A name that cannot be remembered is no failure of the run. */
        assert_true(status == IST_OK || (hits != 0 && status == IST_ERR_MEMORY));
    }
    assert_int_equal(nth, 7);
}

/* Prints what an event and a world cost; bounds are loose, the figure is for people. */
static void test_cost(void **state)
{
    (void)state;
    enum { EVENTS = 4000000, WORLDS = 100000 };
    sim_log log;
    assert_int_equal(sim_log_init(&log, 0, true), IST_OK);
    const clock_t begin = clock();
    for (uint64_t i = 0; i < EVENTS; i++) {
        sim_log_event(&log, i, 7, 1, 2, 3, i);
    }
    const clock_t middle = clock();
    sim_log_fini(&log);
    for (uint64_t i = 0; i < WORLDS; i++) {
        assert_int_equal(sim_log_init(&log, 0, false), IST_OK);
        sim_log_event(&log, i, 7, 1, 2, 3, i);
        assert_true(sim_log_digest(&log) != 0);
        sim_log_fini(&log);
    }
    const clock_t end = clock();
    const double ns = 1e9 / CLOCKS_PER_SEC;
    print_message("an event %.1f ns, a log of one event %.1f ns\n",
                  (double)(middle - begin) * ns / EVENTS, (double)(end - middle) * ns / WORLDS);
    assert_true((double)(middle - begin) * ns / EVENTS < 1000);
}

int main(void)
{
    ist_log_sink_set(quiet, NULL, IST_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_digest_midway),
        cmocka_unit_test(test_digest_covers_all),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_io),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, open_path, remove_path);
}
