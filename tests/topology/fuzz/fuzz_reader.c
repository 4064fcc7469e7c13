/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no bytes whatever make a reader crash, hang or hold on to memory; and what a reader accepts
 * is a graph that every writer can write, and that means the same when it is read again.
 * Method: libFuzzer. FUZZ_READER keeps a target to the inputs of one reader; one execution in
 * FUZZ_WRITERS, chosen by the bytes, goes through the writers too.
 */
#include "topo_check.h"
#include "topo_cluster.h"
#include "topo_json.h"
#include "topo_load.h"
#include "topo_nccl.h"
#include "topo_show.h"
#include "topo_synthetic.h"

#include <hwloc.h>
#include <isthmus/backend.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define READER_NCCL 1
#define READER_HWLOC 2
#define READER_GRAPHS 3
#define READER_JSON 4
#define READER_LINE 5
#define READER_SYNTHETIC 6

#ifndef FUZZ_READER
#define FUZZ_READER 0 /* any */
#endif
#define LINE_BYTES 512u
#define LINE_NODES 64u /* of a graph that every execution builds; larger ones, one in FUZZ_LARGE */
#define FUZZ_LARGE 64u

#ifndef FUZZ_WRITERS
#define FUZZ_WRITERS 8u
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool has(const uint8_t *data, size_t size, const char *text)
{
    return memmem(data, size, text, strlen(text)) != NULL;
}

/* Whether the bytes belong to the target. */
static bool is_mine(const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", data[at]) != NULL && data[at] != 0) {
        at++;
    }
    bool xml = at < size && data[at] == '<';
    bool json = at < size && data[at] == '{';
    switch (FUZZ_READER) {
    case READER_NCCL: return xml && (has(data, size, "<system") || has(data, size, "<pci"));
    case READER_HWLOC: return xml && has(data, size, "<topology");
    case READER_GRAPHS: return xml && has(data, size, "<graphs");
    case READER_JSON: return json;
    case READER_LINE:
    case READER_SYNTHETIC: return !xml && !json && size < LINE_BYTES;
    default: return true;
    }
}

static uint32_t sum_of(const uint8_t *data, size_t size)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < size; i++) {
        sum = (sum ^ data[i]) * 16777619u;
    }
    return sum >> 8;
}

static void must(bool held)
{
    if (!held) {
        abort();
    }
}

/* Small graphs go through every writer; each has to be readable again and to mean the same. */
static void write_all(const topo_graph *graph)
{
    topo_text xml = {0};
    topo_text json = {0};
    topo_text other = {0};
    topo_graph *again = NULL;
    topo_json_write(graph, &json);
    must(topo_load_bytes(json.bytes, json.length, "again", NULL, &again) == IST_OK);
    must(topo_diff(graph, again, &other) == 0);
    topo_graph_close(again);
    topo_nccl_write(graph, &xml);
    if (topo_gpu_count(graph) > 0 &&
        topo_load_bytes(xml.bytes, xml.length, "again", NULL, &again) == IST_OK) {
        topo_graph_close(again);
    }
    topo_show_text(graph, &other);
    topo_show_svg(graph, NULL, "fuzz", &other);
    topo_show_heat(graph, &other);
    topo_text_free(&xml);
    topo_text_free(&json);
    topo_text_free(&other);
}

/* What a line says survives being printed. Whether its graph is to be built now. */
static bool line_again(const uint8_t *data, size_t size)
{
    char line[LINE_BYTES];
    char text[4 * LINE_BYTES];
    ist_cluster cluster;
    ist_cluster again;
    memcpy(line, data, size);
    line[size] = '\0';
    if (topo_is_synthetic(line)) {
        return false;
    }
    if (ist_cluster_parse(line, &cluster) != IST_OK) {
        return true;
    }
    must(ist_cluster_print(&cluster, text, sizeof(text), NULL) == IST_OK);
    must(ist_cluster_parse(text, &again) == IST_OK);
    must(memcmp(&cluster, &again, sizeof(cluster)) == 0);
    return cluster.gpus_per_node + cluster.nics_per_node + cluster.socket_count <= LINE_NODES ||
           sum_of(data, size) % FUZZ_LARGE == 0;
}

static bool synthetic_is(const uint8_t *data, size_t size)
{
    char line[LINE_BYTES];
    memcpy(line, data, size);
    line[size] = '\0';
    return topo_is_synthetic(line);
}

/* hwloc looks for its components when the first topology is made, and forgets them with the last:
 * one that stays makes all others cheap. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static hwloc_topology_t kept;
    (void)argc;
    (void)argv;
    must(FUZZ_READER != READER_SYNTHETIC || hwloc_topology_init(&kept) == 0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    topo_graph *graph = NULL;
    topo_load_options options = {.machine_max = 4};
    if (!is_mine(data, size)) {
        return -1;
    }
    if (FUZZ_READER == READER_SYNTHETIC && !synthetic_is(data, size)) {
        return -1;
    }
    if (FUZZ_READER == READER_LINE && !line_again(data, size)) {
        return 0;
    }
    if (topo_load_bytes((const char *)data, size, "fuzz", &options, &graph) != IST_OK) {
        return 0;
    }
    must(topo_check(graph) == IST_OK);
    if (topo_node_count(graph) <= 64 && sum_of(data, size) % FUZZ_WRITERS == 0) {
        write_all(graph);
    }
    topo_graph_close(graph);
    return 0;
}
