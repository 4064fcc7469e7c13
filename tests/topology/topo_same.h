/* SPDX-License-Identifier: Apache-2.0 */
/* What topology tests share: graphs from texts, and whether two graphs have the same paths.
 */
#ifndef TOPO_SAME_H
#define TOPO_SAME_H

#include "topo_json.h"
#include "topo_load.h"
#include "topo_nccl.h"

#include <isthmus/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *last_error(void)
{
    static ist_error error;
    memset(&error, 0, sizeof(error));
    error.size = sizeof(error);
    return ist_error_last(&error) == IST_OK ? error.message : "?";
}

static inline topo_graph *loaded(const char *source)
{
    topo_graph *graph = NULL;
    if (topo_load(source, NULL, &graph) != IST_OK) {
        fail_msg("%s: %s", source, last_error());
    }
    return graph;
}

static inline topo_graph *loaded_bytes(const char *bytes, const char *name)
{
    topo_graph *graph = NULL;
    if (topo_load_bytes(bytes, strlen(bytes), name, NULL, &graph) != IST_OK) {
        fail_msg("%s: %s\n%s", name, last_error(), bytes);
    }
    return graph;
}

/* A fixture of this folder. */
static inline topo_graph *fixture(const char *name)
{
    char path[512];
    const char *source = getenv("IST_SOURCE_DIR");
    (void)snprintf(path, sizeof(path), "%s/tests/topology/fixtures/%s",
                   source != NULL ? source : ".", name);
    return loaded(path);
}

/* Every path type between GPUs, and between GPUs and NICs; LSA size; NIC of each GPU. */
static inline void assert_same_paths(const topo_graph *a, const topo_graph *b, const char *what)
{
    uint32_t gpus = topo_gpu_count(a);
    uint32_t nics = topo_nic_count(a);
    if (gpus != topo_gpu_count(b) || nics != topo_nic_count(b)) {
        fail_msg("%s: %u GPUs and %u NICs became %u and %u", what, gpus, nics, topo_gpu_count(b),
                 topo_nic_count(b));
    }
    for (uint32_t i = 0; i < gpus; i++) {
        for (uint32_t j = 0; j < gpus + nics; j++) {
            uint32_t to_a = j < gpus ? topo_gpu(a, j) : topo_nic(a, j - gpus);
            uint32_t to_b = j < gpus ? topo_gpu(b, j) : topo_nic(b, j - gpus);
            topo_path_type before = topo_path_type_of(a, topo_gpu(a, i), to_a);
            topo_path_type after = topo_path_type_of(b, topo_gpu(b, i), to_b);
            if (before != after) {
                fail_msg("%s: GPU %u to %s %u was %s, became %s", what, i, j < gpus ? "GPU" : "NIC",
                         j < gpus ? j : j - gpus, topo_path_text(before), topo_path_text(after));
            }
        }
        uint32_t nic_a = topo_gpu_nic(a, topo_gpu(a, i));
        uint32_t nic_b = topo_gpu_nic(b, topo_gpu(b, i));
        assert_int_equal(nic_a == TOPO_NONE, nic_b == TOPO_NONE);
        if (nic_a != TOPO_NONE) {
            assert_int_equal(topo_node_at(a, nic_a)->index, topo_node_at(b, nic_b)->index);
        }
    }
    if (gpus > 0) {
        assert_int_equal(topo_lsa_size(a, NULL, gpus, 0, TOPO_PATH_NVL),
                         topo_lsa_size(b, NULL, gpus, 0, TOPO_PATH_NVL));
    }
}

/* Through JSON and back, text for text; through NCCL XML and back, path for path; and both at
 * once. */
static inline void assert_round_trips(const topo_graph *graph, const char *what)
{
    topo_text json = {0};
    topo_text again_json = {0};
    topo_text xml = {0};
    topo_text again_xml = {0};
    topo_json_write(graph, &json);
    topo_nccl_write(graph, &xml);
    topo_graph *from_json = loaded_bytes(json.bytes, what);
    topo_json_write(from_json, &again_json);
    assert_string_equal(json.bytes, again_json.bytes);
    assert_same_paths(graph, from_json, what);
    topo_graph *from_xml = loaded_bytes(xml.bytes, what);
    assert_same_paths(graph, from_xml, what);
    topo_nccl_write(from_xml, &again_xml);
    topo_graph *from_again = loaded_bytes(again_xml.bytes, what);
    assert_same_paths(graph, from_again, what);
    topo_graph_close(from_json);
    topo_graph_close(from_xml);
    topo_graph_close(from_again);
    topo_text_free(&json);
    topo_text_free(&again_json);
    topo_text_free(&xml);
    topo_text_free(&again_xml);
}

#endif
