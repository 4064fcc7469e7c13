/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a cluster line says what it means, a wrong one is refused with its position, key and value.
 * Method: fixed lines, and random ones from a seed (first argument) that have to round-trip or be
 * refused; LSA team sizes against a count that tries every size.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "topo_cluster.h"
#include "topo_host.h"

#include <inttypes.h>
#include <isthmus/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* SplitMix64. */
static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static ist_cluster parsed(const char *text)
{
    ist_cluster cluster;
    assert_int_equal(ist_cluster_parse(text, &cluster), IST_OK);
    return cluster;
}

/* ------------------------------------------------------------------------------------ reading */

static void test_defaults(void **state)
{
    (void)state;
    ist_cluster c = parsed(NULL);
    assert_int_equal(c.node_count, 1);
    assert_int_equal(c.gpus_per_node, 8);
    assert_int_equal(c.nvlink_domain, 8);
    assert_int_equal(c.nics_per_node, 8);
    assert_int_equal(c.sm_count, 4);
    assert_int_equal(c.nvlink_bytes_per_s, 366000000000);
    assert_int_equal(c.nvlink_latency_ps, 730000);
    assert_int_equal(c.nic_bytes_per_s, 50000000000);
    assert_int_equal(c.nic_latency_ps, 2500000);
    assert_int_equal(c.hbm_bytes_per_s, 4200000000000);
    assert_int_equal(c.memory_bytes, 141000000000);
    assert_int_equal(c.launch_ps, 2500000);
    assert_int_equal(c.host_call_ps, 200000);
    assert_int_equal(c.sync_ps, 30000);
    assert_int_equal(c.atomic_ps, 500000);
    assert_int_equal(c.load_ps, 5000);
    assert_int_equal(c.exchange_ps, 50000000);
}

static void test_line(void **state)
{
    (void)state;
    ist_cluster c =
        parsed("nodes=2,gpus=4,nvlink=2,nvlink_rate=26.5GB/s,nvlink_latency=700ns,nics=2,"
               "nic_rate=400Gb/s,nic_latency=2.5us,sms=16,memory=80GiB");
    assert_int_equal(c.node_count, 2);
    assert_int_equal(c.gpus_per_node, 4);
    assert_int_equal(c.nvlink_domain, 2);
    assert_int_equal(c.nvlink_bytes_per_s, 26500000000);
    assert_int_equal(c.nvlink_latency_ps, 700000);
    assert_int_equal(c.nics_per_node, 2);
    assert_int_equal(c.nic_bytes_per_s, 50000000000);
    assert_int_equal(c.nic_latency_ps, 2500000);
    assert_int_equal(c.sm_count, 16);
    assert_int_equal(c.memory_bytes, UINT64_C(80) << 30);
}

static void test_shorthand(void **state)
{
    (void)state;
    ist_cluster c = parsed(" 2x4 \t sms=1 , nics=0\n");
    assert_int_equal(c.node_count, 2);
    assert_int_equal(c.gpus_per_node, 4);
    assert_int_equal(c.nvlink_domain, 4);
    assert_int_equal(c.nics_per_node, 0);
    assert_int_equal(c.sm_count, 1);
    assert_int_equal(ist_cluster_rank_count(&c), 8);
    assert_int_equal(ist_cluster_node(&c, 3), 0);
    assert_int_equal(ist_cluster_node(&c, 4), 1);
}

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } rates[] = {{"nic_rate=1TB/s", 1000000000000},
                 {"nic_rate=1GB/s", 1000000000},
                 {"nic_rate=1MB/s", 1000000},
                 {"nic_rate=1kB/s", 1000},
                 {"nic_rate=1B/s", 1},
                 {"nic_rate=1Tb/s", 125000000000},
                 {"nic_rate=1Gb/s", 125000000},
                 {"nic_rate=1Mb/s", 125000},
                 {"nic_rate=1kb/s", 125},
                 {"nic_rate=8b/s", 1},
                 {"nic_rate=0.001kB/s", 1},
                 {"nic_rate=00012.500kB/s", 12500}};
    static const struct {
        const char *text;
        uint64_t value;
    } times[] = {{"load=1s", 1000000000000},
                 {"load=1ms", 1000000000},
                 {"load=1us", 1000000},
                 {"load=1ns", 1000},
                 {"load=1500ps", 1500},
                 {"load=0.001ns", 1},
                 {"load=0ps", 0},
                 {"load=2.5us", 2500000}};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        assert_int_equal(parsed(rates[i].text).nic_bytes_per_s, rates[i].value);
    }
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        assert_int_equal(parsed(times[i].text).load_ps, times[i].value);
    }
}

/* ------------------------------------------------------------------------------------ refusing */

static void refused(const char *text, const char *const *said, size_t said_count)
{
    ist_cluster cluster;
    ist_cluster before;
    memset(&cluster, 0x5a, sizeof(cluster));
    before = cluster;
    assert_int_equal(ist_cluster_parse(text, &cluster), IST_ERR_PARSE);
    assert_memory_equal(&cluster, &before, sizeof(cluster));
    ist_error error = {.size = sizeof(error)};
    assert_int_equal(ist_error_last(&error), IST_OK);
    assert_int_equal(error.status, IST_ERR_PARSE);
    for (size_t i = 0; i < said_count && said[i] != NULL; i++) {
        if (strstr(error.message, said[i]) == NULL) {
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", text, error.message, said[i]);
        }
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *said[4];
    } cases[] = {
        {"", {"position 1", "nothing there"}},
        {"  ", {"position 3"}},
        {",2x8", {"position 1"}},
        {"2x8,,sms=1", {"position 5", "nothing there"}},
        {"2x8,speed=3", {"position 5", "speed=3", "unknown key", "nvlink_rate"}},
        {"sms", {"position 1", "sms", "key=value"}},
        {"sms=1,2x8", {"position 7", "2x8", "not understood"}},
        {"2x", {"cannot be read"}},
        {"2x8x4", {"8x4", "cannot be read"}},
        {"2x8 nodes=2", {"position 5", "nodes=2", "given twice"}},
        {"sms=1,sms=1", {"position 7", "given twice"}},
        {"sms=", {"sms=", "cannot be read"}},
        {"sms=-1", {"sms=-1", "cannot be read"}},
        {"sms=1.0", {"sms=1.0", "whole number"}},
        {"sms=0", {"sms=0", "out of range", "1 to 65536"}},
        {"nodes=0", {"nodes=0", "out of range"}},
        {"nodes=18446744073709551616", {"cannot be read"}},
        {"nodes=2147483648", {"out of range"}},
        {"nodes=65536,gpus=32768", {"nodes=65536", "too many GPUs"}},
        {"nic_rate=50", {"nic_rate=50", "cannot be read", "400Gb/s"}},
        {"nic_rate=50gb/s", {"nic_rate=50gb/s", "cannot be read"}},
        {"nic_rate=50GB", {"nic_rate=50GB", "cannot be read"}},
        {"nic_rate=0GB/s", {"nic_rate=0GB/s", "out of range", "B/s"}},
        {"nic_rate=1b/s", {"cannot be read", "whole bytes"}},
        {"nic_rate=1.2345B/s", {"cannot be read"}},
        {"nic_rate=.5GB/s", {"cannot be read"}},
        {"nic_rate=5.GB/s", {"cannot be read"}},
        {"nic_rate=1001TB/s", {"out of range"}},
        {"nic_rate=18446744073709551615TB/s", {"cannot be read"}},
        {"load=0.5ps", {"cannot be read", "picoseconds"}},
        {"load=1 ns", {"load=1", "cannot be read"}},
        {"load=1001s", {"out of range", "ps"}},
        {"load=5", {"load=5", "cannot be read"}},
        {"memory=1.5B", {"cannot be read"}},
        {"gpus=8,nics=3", {"nics=3", "evenly"}},
        {"gpus=2,nics=4", {"nics=4", "evenly"}},
        {"gpus=8,nvlink=3", {"nvlink=3", "NVLink"}},
        {"gpus=8,nvlink=12", {"nvlink=12", "NVLink"}},
        {"2x8,a\x01\x7f\n", {"position 5", "a??"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refused(cases[i].text, cases[i].said, 4);
    }
}

/* ------------------------------------------------------------------------------------ printing */

static void round_trip(const ist_cluster *cluster)
{
    char text[2048];
    size_t needed = 0;
    assert_int_equal(ist_cluster_print(cluster, NULL, 0, &needed), IST_OK);
    assert_true(needed <= sizeof(text));
    memset(text, '#', sizeof(text));
    assert_int_equal(ist_cluster_print(cluster, text, needed - 1, NULL), IST_ERR_SIZE);
    assert_int_equal(text[0], '#');
    assert_int_equal(ist_cluster_print(cluster, text, needed, NULL), IST_OK);
    assert_int_equal(strlen(text) + 1, needed);
    ist_cluster again = parsed(text);
    assert_memory_equal(&again, cluster, sizeof(again));
}

static void test_print(void **state)
{
    (void)state;
    char text[2048];
    ist_cluster c = parsed("2x8,nic_rate=400Gb/s,nic_latency=2.5us,load=0ps");
    assert_int_equal(ist_cluster_print(&c, text, sizeof(text), NULL), IST_OK);
    assert_string_equal(text, "nodes=2,gpus=8,nvlink=8,nvlink_rate=366GB/s,nvlink_latency=730ns,"
                              "nics=8,nic_rate=50GB/s,nic_latency=2500ns,hbm_rate=4200GB/s,"
                              "memory=141GB,sms=4,launch=2500ns,host_call=200ns,sync=30ns,"
                              "atomic=500ns,load=0ps,exchange=50us");
    round_trip(&c);
}

static uint64_t draw_size(uint64_t *state, uint64_t low, uint64_t high)
{
    uint64_t shift = draw(state, 50);
    uint64_t value = low + draw(state, (UINT64_C(1) << shift) + 1);
    return value < high ? value : high;
}

static ist_cluster random_cluster(uint64_t *state)
{
    ist_cluster c;
#define X(field, key, unit, preset, low, high) c.field = draw_size(state, low, high);
    IST_CLUSTER_FIELDS(X)
#undef X
    c.gpu_model = draw(state, 16);
    c.nics_per_node = draw(state, 9);
    c.gpus_per_node = (c.nics_per_node > 0 ? c.nics_per_node : 1) * (1 + draw(state, 4));
    c.nvlink_domain = draw(state, 3) == 0 ? draw(state, 2) : c.gpus_per_node * (1 + draw(state, 9));
    c.node_count = 1 + draw(state, 100000);
    return c;
}

static void test_round_trip_random(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    for (int i = 0; i < 20000; i++) {
        ist_cluster cluster = random_cluster(&state);
        round_trip(&cluster);
    }
}

/* Pieces of the grammar and bytes from outside it, in any order. */
static size_t random_text(uint64_t *state, char text[1024])
{
    static const char *const pieces[] = {
        "2x8",      "1x1",  "nodes", "gpus", "nvlink", "nvlink_rate",
        "nic_rate", "nics", "load",  "sms",  "memory", "=",
        "=",        "=",    ",",     ",",    " ",      "1",
        "0",        "8",    "16",    "2.5",  ".",      "450",
        "us",       "ns",   "ps",    "s",    "GB/s",   "Gb/s",
        "GB",       "GiB",  "B",     "/s",   "x",      "18446744073709551615",
        "-",        "\t"};
    size_t length = 0;
    for (uint64_t left = draw(state, 14); left > 0; left--) {
        const char *piece = pieces[draw(state, sizeof(pieces) / sizeof(pieces[0]))];
        char byte[2] = {(char)(1 + draw(state, 255)), '\0'};
        piece = draw(state, 12) == 0 ? byte : piece;
        size_t piece_length = strlen(piece);
        memcpy(text + length, piece, piece_length);
        length += piece_length;
    }
    text[length] = '\0';
    return length;
}

/* A valid line with a byte changed, dropped or doubled. */
static size_t mutated_text(uint64_t *state, char text[1024])
{
    ist_cluster cluster = random_cluster(state);
    size_t length = 0;
    assert_int_equal(ist_cluster_print(&cluster, text, 1023, &length), IST_OK);
    size_t at = draw(state, --length);
    switch (draw(state, 4)) {
    case 0: text[at] = (char)(1 + draw(state, 255)); return length;
    case 1: memmove(text + at, text + at + 1, length - at); return length - 1;
    case 2: memmove(text + at + 1, text + at, length - at + 1); return length + 1;
    default: text[at] = '\0'; return at;
    }
}

/* The text lies at the end of its own allocation, so that tools see a read past its NUL. */
static void test_fuzz(void **unused)
{
    (void)unused;
    uint64_t state = seed + 1;
    uint32_t read_count = 0;
    for (int i = 0; i < 60000; i++) {
        char text[1024];
        size_t length = i % 2 == 0 ? random_text(&state, text) : mutated_text(&state, text);
        char *exact = malloc(length + 1);
        assert_non_null(exact);
        memcpy(exact, text, length + 1);
        ist_cluster cluster;
        memset(&cluster, 0x5a, sizeof(cluster));
        ist_status status = ist_cluster_parse(exact, &cluster);
        if (status == IST_OK) {
            read_count++;
            round_trip(&cluster);
        } else {
            refused(exact, NULL, 0);
        }
        free(exact);
    }
    assert_true(read_count > 1000);
}

/* ------------------------------------------------------------------------------------ who is where */

static void test_for_ranks(void **state)
{
    (void)state;
    ist_cluster c;
    for (uint32_t ranks = 1; ranks <= 40; ranks++) {
        assert_int_equal(ist_cluster_for_ranks(ranks, &c), IST_OK);
        assert_true(ist_cluster_rank_count(&c) >= ranks);
        assert_true(ist_cluster_rank_count(&c) < ranks + 8);
        assert_int_equal(c.node_count, ranks <= 8 ? 1 : (ranks + 7) / 8);
        round_trip(&c);
    }
    assert_int_equal(ist_cluster_for_ranks(0, &c), IST_ERR_RANGE);
    assert_int_equal(ist_cluster_for_ranks(UINT32_MAX, &c), IST_ERR_RANGE);
}

static void test_domains(void **state)
{
    (void)state;
    ist_cluster half = parsed("2x8,nvlink=4");
    assert_true(ist_cluster_same_domain(&half, 4, 7));
    assert_false(ist_cluster_same_domain(&half, 3, 4));
    ist_cluster rack = parsed("18x4,nvlink=72");
    assert_true(ist_cluster_same_domain(&rack, 0, 71));
    ist_cluster alone = parsed("2x8,nvlink=0");
    assert_true(ist_cluster_same_domain(&alone, 3, 3));
    assert_false(ist_cluster_same_domain(&alone, 3, 4));
}

static void test_lsa_size_cases(void **state)
{
    (void)state;
    ist_cluster c = parsed("2x8");
    static const uint32_t uneven[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    static const uint32_t interleaved[] = {0, 8, 1, 9};
    assert_int_equal(ist_cluster_lsa_size(&c, NULL, 16, 0), 8);
    assert_int_equal(ist_cluster_lsa_size(&c, NULL, 16, 4), 4);
    assert_int_equal(ist_cluster_lsa_size(&c, NULL, 16, 3), 1);
    assert_int_equal(ist_cluster_lsa_size(&c, NULL, 2, 1), 1);
    assert_int_equal(ist_cluster_lsa_size(&c, uneven, 14, 0), 2);
    assert_int_equal(ist_cluster_lsa_size(&c, interleaved, 4, 0), 1);
    ist_cluster alone = parsed("2x8,nvlink=0");
    assert_int_equal(ist_cluster_lsa_size(&alone, NULL, 16, 0), 1);
}

/* The largest size that divides the limit and cuts the ranks only into teams whose runs it divides. */
static uint32_t lsa_size_slow(const ist_cluster *c, const uint32_t *ranks, uint32_t count,
                              uint32_t limit)
{
    for (uint32_t size = count; size > 1; size--) {
        bool fits = limit % size == 0;
        uint32_t run = 0;
        for (uint32_t i = 0; i < count && fits; i++) {
            run++;
            bool last = i + 1 == count || !ist_cluster_same_domain(c, ranks[i], ranks[i + 1]);
            fits = !last || run % size == 0;
            run = last ? 0 : run;
        }
        if (fits) {
            return size;
        }
    }
    return 1;
}

static void test_lsa_size_random(void **unused)
{
    (void)unused;
    uint64_t state = seed + 2;
    for (int i = 0; i < 5000; i++) {
        ist_cluster c = parsed(draw(&state, 2) == 0 ? "6x4" : "6x4,nvlink=8");
        uint32_t ranks[24];
        uint32_t count = 0;
        uint32_t chunk = 1u << draw(&state, 3);
        for (uint32_t rank = 0; rank < 24; rank += chunk) {
            for (uint32_t k = 0; k < chunk && draw(&state, 4) != 0; k++) {
                ranks[count++] = rank + k;
            }
        }
        uint32_t limit = (uint32_t)draw(&state, 9);
        if (count > 0) {
            assert_int_equal(ist_cluster_lsa_size(&c, ranks, count, limit),
                             lsa_size_slow(&c, ranks, count, limit));
        }
    }
}

static void test_host(void **state)
{
    (void)state;
    char text[192];
    char cut[8];
    assert_int_equal(ist_host_describe(text, sizeof(text)), IST_OK);
    assert_non_null(strstr(text, " PU"));
    assert_non_null(strstr(text, "hwloc "));
    assert_int_equal(ist_host_describe(cut, sizeof(cut)), IST_OK);
    assert_memory_equal(cut, text, sizeof(cut) - 1);
    assert_int_equal(cut[sizeof(cut) - 1], '\0');
}

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    printf("seed=%" PRIu64 "\n", seed);
    ist_log_sink_set(quiet, NULL, IST_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_shorthand),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_round_trip_random),
        cmocka_unit_test(test_fuzz),
        cmocka_unit_test(test_for_ranks),
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_lsa_size_cases),
        cmocka_unit_test(test_lsa_size_random),
        cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
