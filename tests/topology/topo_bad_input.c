/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is malformed, hostile or absurd is refused with its line and a reason; nothing
 * crashes, and no file is believed to be large before it has been read.
 * Method: small wrong texts with the words that the error must have; large ones made on the spot;
 * every prefix of the fixtures; and every allocation failing in turn.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "topo_explain.h"
#include "topo_same.h"
#include "topo_show.h"

#include <isthmus/unstable/sim.h>

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

static ist_status load(const char *bytes, size_t count)
{
    topo_graph *graph = NULL;
    ist_status status = topo_load_bytes(bytes, count, "file", NULL, &graph);
    if (status == IST_OK) {
        topo_graph_close(graph);
    } else {
        assert_null(graph);
    }
    return status;
}

static void refused(const char *text, const char *said)
{
    ist_status status = load(text, strlen(text));
    if (status == IST_OK) {
        fail_msg("accepted: %.300s", text);
    }
    if (strstr(last_error(), said) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" of %.300s", last_error(), said, text);
    }
}

#define CPU(inside) "<system version=\"1\">\n<cpu numaid=\"0\">\n" inside "\n</cpu>\n</system>"
#define GPU_AT(bus, rank)                                                                          \
    "<pci busid=\"" bus "\" class=\"0x030200\"><gpu dev=\"" rank "\" rank=\"" rank "\"/></pci>"

static void test_nccl(void **state)
{
    (void)state;
    refused("", "nothing in it");
    refused(" \n\t", "nothing in it");
    refused("<system", "file:1: not XML");
    refused("<system>\n<cpu>\n</system>", "file:3: not XML");
    refused("<system version=\"1\"/>", "file:1: <system>: has no <cpu>");
    refused("<system version=\"9\"><cpu/></system>", "version has to be a number from 0 to 2");
    refused("<nothing/>", "<nothing> is no topology");
    refused("\n\n<other/>", "file:3:");
    refused(CPU("<pci busid=\"zz\"/>"), "file:3: <pci>: busid");
    refused(CPU("<pci busid=\"0000:01:00.0\" class=\"-3\"/>"), "file:3: <pci>: class");
    refused(CPU("<pci busid=\"0000:01:00.0\" link_width=\"-16\"/>"), "link_width has to be");
    refused(CPU("<pci busid=\"0000:01:00.0\" link_speed=\"-8 GT/s\"/>"), "cannot be negative");
    refused(CPU("<nic><net name=\"a\" speed=\"-100\"/></nic>"), "file:3: <net>: speed");
    refused(CPU("<nic><net name=\"a\" speed=\"1e9\"/></nic>"), "not 1e9");
    refused(CPU("<nic><net name=\"a\" dev=\"99999999999999999999\"/></nic>"), "dev has to be");
    refused(CPU(GPU_AT("0000:01:00.0", "0") GPU_AT("0000:01:00.0", "1")), "given twice");
    refused(CPU(GPU_AT("0000:01:00.0", "0") GPU_AT("0000:02:00.0", "0")), "rank 0 is given to two");
    refused("<system>\n<cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>",
            "file:3: <cpu>: this numaid");
    refused(CPU("<pci busid=\"0000:01:00.0\"><gpu dev=\"0\">\n<nvlink count=\"2\"/></gpu></pci>"),
            "file:4: <nvlink>: has no target");
    refused(CPU("<pci busid=\"0000:01:00.0\"><gpu dev=\"0\"><nvlink target=\"?\"/></gpu></pci>"),
            "target has to be a bus id");
    refused(CPU("<pci busid=\"0000:01:00.0\"><gpu dev=\"0\"><nvlink target=\"0000:02:00.0\" "
                "count=\"-1\"/></gpu></pci>"),
            "count has to be a number");
    refused("<graphs version=\"1\"/>", "no channel names a GPU");
    refused("<graphs><graph><channel><gpu dev=\"x\"/></channel></graph></graphs>", "dev has to be");
}

static void test_hwloc(void **state)
{
    (void)state;
    refused("<topology/>", "no object of type Machine");
    refused(
        "<topology><object type=\"Machine\">\n<object type=\"Bridge\" bridge_type=\"0-1\">"
        "<object type=\"PCIDev\" pci_busid=\"1\" pci_type=\"0302 [10de:20b0]\"/></object></object>"
        "</topology>",
        "file:2: <object>: pci_busid");
    refused("<topology><object type=\"Machine\"><object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" "
            "pci_type=\"0302 [10de:20b0]\" pci_link_speed=\"-1.0\"/></object></topology>",
            "pci_link_speed has to be GB/s, not negative");
    refused("<topology><object type=\"Machine\"><object type=\"NUMANode\" os_index=\"0\"/>\n"
            "<object type=\"NUMANode\" os_index=\"0\"/></object></topology>",
            "file:2: <object>: a NUMA node with this os_index");
    refused("<topology><object type=\"Machine\"><object type=\"PCIDev\" gp_index=\"5\" "
            "pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:20b0]\"/></object>\n<distances2 "
            "nbobjs=\"1000000\" name=\"NVLinkBandwidth\"/></topology>",
            "file:2: <distances2>: nbobjs");
}

static void test_xml(void **state)
{
    (void)state;
    refused(
        "<!DOCTYPE a [\n<!ENTITY a \"aaaaaaaaaa\">\n<!ENTITY b \"&a;&a;&a;&a;\">]><system>&b;</system>",
        "file:2: entity declarations are not read");
    refused("<!DOCTYPE a [<!ENTITY % p SYSTEM \"file:///etc/passwd\"> %p;]><system/>",
            "entity declarations are not read");
    refused("<system>&undefined;</system>", "not XML");
    refused("<?xml version=\"1.0\" encoding=\"martian\"?><system/>", "not XML");
    refused("<system>\xff\xfe</system>", "not XML");
}

static void test_json(void **state)
{
    (void)state;
    refused("{", "file:1: column 1: not JSON");
    refused("{\n\"format\": \"isthmus-topology\",\n}", "file:3:");
    refused("{\"format\": 3}", "format: has to be a text");
    refused("{\"format\": \"other\"}", "has to be isthmus-topology or isthmus-profile");
    refused("{\"format\": \"isthmus-topology\", \"version\": 2}", "only version 1");
    refused("{\"format\": \"isthmus-topology\", \"version\": 1}", "nothing in it");
#define NODES(list) "{\"format\":\"isthmus-topology\",\"version\":1,\"nodes\":[" list "]}"
    refused(NODES("{\"kind\":\"gpu\",\"kind\":\"nic\"}"), "not JSON");
    refused(NODES("7"), "nodes[0].: has to be an object");
    refused(NODES("{\"kind\":\"moon\"}"), "nodes[0].kind: unknown word moon");
    refused(NODES("{}"), "nodes[0].kind: is missing");
    refused(NODES("{\"kind\":\"machine\"},{\"kind\":\"gpu\",\"parent\":-1}"), "nodes[1].parent");
    refused(NODES("{\"kind\":\"machine\"},{\"kind\":\"gpu\",\"parent\":1}"), "a cycle");
    refused(
        NODES(
            "{\"kind\":\"machine\"},{\"kind\":\"gpu\",\"parent\":2},{\"kind\":\"gpu\",\"parent\":1}"),
        "a cycle");
    refused(NODES("{\"kind\":\"gpu\"}"), "cannot be where it is");
    refused(NODES("{\"kind\":\"machine\"},{\"kind\":\"machine\",\"parent\":0}"),
            "cannot be where it is");
#define LINKS(list)                                                                                \
    "{\"format\":\"isthmus-topology\",\"version\":1,\"nodes\":[{\"kind\":\"machine\"},"            \
    "{\"kind\":\"gpu\",\"parent\":0},{\"kind\":\"gpu\",\"parent\":0}],\"links\":[" list "]}"
    refused(LINKS("{\"kind\":\"nvlink\",\"a\":1,\"b\":9}"), "an end does not exist");
    refused(LINKS("{\"kind\":\"nvlink\",\"a\":1,\"b\":1}"), "both ends are the same node");
    refused(LINKS("{\"kind\":\"net\",\"a\":1,\"b\":2}"), "cannot have these ends");
    refused(LINKS("{\"kind\":\"nvlink\",\"a\":1,\"b\":2},{\"kind\":\"nvlink\",\"a\":2,\"b\":1}"),
            "given twice");
    refused(LINKS("{\"kind\":\"nvlink\",\"a\":1,\"b\":2,\"bytes_per_s\":-5}"),
            "links[0].bytes_per_s");
    refused(LINKS("{\"kind\":\"nvlink\",\"a\":1,\"b\":2,\"bytes_per_s\":1e9}"),
            "links[0].bytes_per_s");
    refused(
        LINKS("{\"kind\":\"nvlink\",\"a\":1,\"b\":2,\"bytes_per_s\":2,\"nominal_bytes_per_s\":1}"),
        "more than its nominal rate");
    refused(
        "{\"format\":\"isthmus-profile\",\"version\":1,\"machine\":{\"ranks\":4,\"lsa_size\":3}}",
        "lsa_size has to divide ranks");
    refused("{\"format\":\"isthmus-profile\",\"version\":1,\"values\":{\"nvlink_bytes_per_s\":"
            "{\"value\":0}}}",
            "nvlink_bytes_per_s: is too small");
}

static void test_lines(void **state)
{
    static const char numbered[] = "[numa(memory=1GB)] core:2 pu:1(indexes=pa1,)";
    (void)state;
    refused("8x(h200:8", "the parenthesis stays open");
    refused("8x(h200:8))", "not understood");
    refused("8(h200:8)", "a count and x before the parenthesis");
    refused("8x(h999:8)", "position 4, h999:8: not understood");
    refused("8x(h200:8 nic:8x400Q)", "position 11");
    refused("8x(h200:8 h200:8)", "given twice");
    refused("8x(h200:8) rails rails", "given twice");
    refused("8x(h200:8) fat-tree:0:1:2", "cannot be read");
    refused("2x8 nvswitch", "not understood");
    refused("1000000x(h200:8)", "more than a graph may have");
    refused("1x4000", "pairs of a GPU and a NIC");
    refused("pack:100000 core:100000 pu:100000", "asks for more than");
    /* Counts that hwloc would read otherwise, levels of one object each, what it aborts on. */
    refused("pack:0x021379 pu:2", "position 6: expected a decimal count");
    refused("pack:+4000 pu:+4000", "position 6");
    refused("pack:-1 pu:1", "position 6");
    refused("pack: 100000 pu:1", "position 6");
    refused("pack:5000 pu:1", "asks for more than 4096");
    refused("core:2048 l3:1 l2:1 l1:1 pu:1", "of all levels");
    refused("[numa(memory=1GB)]0x81145pu:1", "position 19: expected a blank");
    refused("core:2 pu:1(indexes=1 moon=3)", "position 23: expected size=");
    refused("core:2  pu:1", "position 8: expected the type");
    assert_int_equal(load(numbered, sizeof(numbered) - 1), IST_OK);
    refused("pack:2 moon:3 pu:1", "synthetic");
    refused("[numa]", "synthetic");
    refused("\x7f"
            "ELF\x02\x01",
            "position 1");
}

/* ------------------------------------------------------------------------------------ large */

typedef struct growing {
    char *bytes;
    size_t length, room;
} growing;

static void put(growing *text, const char *piece)
{
    size_t more = strlen(piece);
    if (text->length + more + 1 > text->room) {
        text->room = (text->length + more + 1) * 2;
        text->bytes = realloc(text->bytes, text->room);
        assert_non_null(text->bytes);
    }
    memcpy(text->bytes + text->length, piece, more + 1);
    text->length += more;
}

static void refused_large(growing *text, const char *said)
{
    ist_status status = load(text->bytes, text->length);
    assert_true(status == IST_ERR_PARSE || status == IST_ERR_RANGE);
    if (strstr(last_error(), said) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", last_error(), said);
    }
    free(text->bytes);
    *text = (growing){0};
}

static void test_absurd(void **state)
{
    (void)state;
    growing text = {0};
    char piece[160];
    /* A million devices. */
    put(&text, "<system version=\"1\"><cpu numaid=\"0\">\n");
    for (uint32_t i = 0; i < 1000000; i++) {
        (void)snprintf(piece, sizeof(piece), "<pci busid=\"%x:%02x:%02x.0\"/>\n", i >> 16,
                       i >> 8 & 255, i & 255);
        put(&text, piece);
    }
    put(&text, "</cpu></system>");
    refused_large(&text, "more than");
    /* Depth. */
    for (uint32_t i = 0; i < 100000; i++) {
        put(&text, "<pci>");
    }
    refused_large(&text, "nested");
    put(&text, "<system><cpu>");
    for (uint32_t i = 0; i < 60; i++) {
        put(&text, "<pci>");
    }
    for (uint32_t i = 0; i < 60; i++) {
        put(&text, "</pci>");
    }
    put(&text, "</cpu></system>");
    refused_large(&text, "nested too deeply");
    /* Attributes. */
    put(&text, "<system ");
    for (uint32_t i = 0; i < 1000; i++) {
        (void)snprintf(piece, sizeof(piece), "a%u=\"1\" ", i);
        put(&text, piece);
    }
    put(&text, "/>");
    refused_large(&text, "more than 64 attributes");
    /* Processors. */
    put(&text, "<system>");
    for (uint32_t i = 0; i < 20000; i++) {
        (void)snprintf(piece, sizeof(piece), "<cpu numaid=\"%u\" host_hash=\"%u\"/>", i, i);
        put(&text, piece);
    }
    put(&text, "</system>");
    refused_large(&text, "more than 16384");
    /* Many GPUs and NICs in one machine, which every question would look through. */
    put(&text, "<system><cpu numaid=\"0\">");
    for (uint32_t i = 0; i < 3000; i++) {
        (void)snprintf(
            piece, sizeof(piece),
            "<pci busid=\"1:%02x:%02x.0\" class=\"0x030200\"/><pci busid=\"2:%02x:%02x.0\" "
            "class=\"0x020000\"/>",
            i >> 8, i & 255, i >> 8, i & 255);
        put(&text, piece);
    }
    put(&text, "</cpu></system>");
    refused_large(&text, "pairs of a GPU and a NIC");
    /* JSON nested and long. */
    for (uint32_t i = 0; i < 100000; i++) {
        put(&text, "{\"a\":");
    }
    refused_large(&text, "not JSON");
    put(&text, "{\"a\":[1");
    for (uint32_t i = 0; i < 8000000 / 64 + 1; i++) {
        put(&text, ",1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"
                   ",1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1");
    }
    refused_large(&text, "more than 8000000 values");
}

static const char *const fixtures[] = {
    "nccl_two_sockets.xml", "nccl_faults.xml",   "nccl_nics.xml",   "nccl_groups.xml",
    "nccl_graphs.xml",      "hwloc2_nvlink.xml", "hwloc1_epyc.xml", "rails.json",
    "hidden_tree.json",     "profile.json",      "cluster.txt"};

static char *fixture_bytes(const char *name, size_t *count)
{
    char path[512];
    const char *source = getenv("IST_SOURCE_DIR");
    (void)snprintf(path, sizeof(path), "%s/tests/topology/fixtures/%s",
                   source != NULL ? source : ".", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(65536);
    assert_non_null(bytes);
    *count = fread(bytes, 1, 65536, file);
    assert_true(*count > 0 && *count < 65536);
    (void)fclose(file);
    return bytes;
}

/* A file that ends early is refused wherever it ends; a line may be whole before its end. */
static void test_truncated(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fixtures) / sizeof(fixtures[0]); i++) {
        size_t count = 0;
        char *bytes = fixture_bytes(fixtures[i], &count);
        bool line = strstr(fixtures[i], ".txt") != NULL;
        size_t last = count;
        while (last > 0 && strchr(" \n", bytes[last - 1]) != NULL) {
            last--;
        }
        for (size_t length = 0; length < last; length += 1 + length / 40) {
            ist_status status = load(bytes, length);
            if (status == IST_OK && !line) {
                fail_msg("%s: its first %zu bytes were accepted", fixtures[i], length);
            }
        }
        free(bytes);
    }
}

/* Binary junk, and files with bytes turned: an error or a graph, nothing else. */
static void test_junk(void **unused)
{
    (void)unused;
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof(fixtures) / sizeof(fixtures[0]); i++) {
        size_t count = 0;
        char *bytes = fixture_bytes(fixtures[i], &count);
        for (int round = 0; round < 200; round++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            size_t at = (size_t)(state >> 33) % count;
            char before = bytes[at];
            bytes[at] = (char)(state >> 20);
            (void)load(bytes, count);
            bytes[at] = before;
        }
        free(bytes);
    }
    char junk[512];
    for (int round = 0; round < 500; round++) {
        for (size_t i = 0; i < sizeof(junk); i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            junk[i] = (char)(state >> 56);
        }
        junk[0] = round % 3 == 0 ? '<' : round % 3 == 1 ? '{' : junk[0];
        assert_int_not_equal(load(junk, sizeof(junk)), IST_OK);
    }
}

/* ------------------------------------------------------------------------------------ memory */

/* Everything that is done with a graph, with memory that may end. */
static ist_status whole_life(const char *bytes, size_t count)
{
    topo_graph *graph = NULL;
    topo_policy policy = {0};
    ist_status status = topo_load_bytes(bytes, count, "file", NULL, &graph);
    if (status != IST_OK) {
        return status;
    }
    topo_text text = {0};
    topo_json_write(graph, &text);
    topo_nccl_write(graph, &text);
    topo_show_text(graph, &text);
    topo_show_svg(graph, NULL, "picture", &text);
    topo_show_heat(graph, &text);
    topo_explain_comm(graph, &policy, &text);
    (void)topo_diff(graph, graph, &text);
    status = topo_text_status(&text, "test");
    topo_text_free(&text);
    topo_graph_close(graph);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fixtures) / sizeof(fixtures[0]); i++) {
        size_t count = 0;
        char *bytes = fixture_bytes(fixtures[i], &count);
        uint64_t hit = 1;
        for (uint64_t nth = 1; hit > 0; nth++) {
            assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
            ist_status status = whole_life(bytes, count);
            (void)ist_call_fault_disarm(&hit);
            if (hit == 0) {
                assert_int_equal(status, IST_OK);
            } else if (status != IST_ERR_MEMORY && status != IST_OK) {
                fail_msg("%s, allocation %llu: %s", fixtures[i], (unsigned long long)nth,
                         last_error());
            }
        }
        free(bytes);
    }
}

int main(void)
{
    ist_log_sink_set(quiet, NULL, IST_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl),      cmocka_unit_test(test_hwloc),
        cmocka_unit_test(test_xml),       cmocka_unit_test(test_json),
        cmocka_unit_test(test_lines),     cmocka_unit_test(test_absurd),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_junk),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
