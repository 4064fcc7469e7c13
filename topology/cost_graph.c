/* SPDX-License-Identifier: Apache-2.0 */
/* From descriptions to the model's machine.
 */
#include "cost_graph.h"

#include "topo_load.h"

#include <inttypes.h>
#include <isthmus/backend.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ lines */

static uint64_t fabric_permille(const ist_cluster *cluster)
{
    const bool one_leaf = cluster->rails != 0 && cluster->leaf_nodes == 0;
    const bool thin = cluster->tree_down > cluster->tree_up && !one_leaf;
    return thin ? cluster->tree_up * COST_PERMILLE / cluster->tree_down : COST_PERMILLE;
}

void cost_of_cluster(const ist_cluster *cluster, cost_machine *machine, cost_profile *links)
{
    *machine = (cost_machine){.node_count = cluster->node_count,
                              .gpus_per_node = cluster->gpus_per_node,
                              .domain = cluster->nvlink_domain > 1 ? cluster->nvlink_domain : 1,
                              .nics_per_node = cluster->nics_per_node,
                              .fabric_permille = fabric_permille(cluster),
                              .memory_bytes = cluster->memory_bytes};
    *links = (cost_profile){.op_count = 0};
#define X(field, key) links->field = cluster->field;
    COST_LINK_VALUES(X)
#undef X
}

void cost_to_cluster(const cost_profile *profile, ist_cluster *cluster)
{
#define X(field, key) cluster->field = profile->field > 0 ? profile->field : cluster->field;
    COST_LINK_VALUES(X)
#undef X
}

/* ------------------------------------------------------------------------------------ graphs */

static ist_status refuse(const char *what, uint64_t expected, uint64_t observed)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .expected = expected,
                         .observed = observed,
                         .object = "cluster",
                         .operation = "cost.graph"};
    return ist_raise(IST_ERR_UNSUPPORTED, &details,
                     "machines differ in their %s: %" PRIu64 " and %" PRIu64
                     "; the estimate wants them alike",
                     what, expected, observed);
}

static uint64_t divisor_below(uint64_t value, uint64_t most)
{
    uint64_t divisor = most < value ? most : value;
    while (divisor > 1 && value % divisor != 0) {
        --divisor;
    }
    return divisor;
}

/* GPUs of the machine that GPU `first` is in; ranks are machine by machine. */
static uint64_t gpus_beside(const topo_graph *graph, uint32_t first)
{
    const uint32_t machine = topo_node_at(graph, topo_gpu(graph, first))->machine;
    uint64_t count = 0;
    for (uint32_t i = first; i < topo_gpu_count(graph); ++i) {
        if (topo_node_at(graph, topo_gpu(graph, i))->machine != machine) {
            break;
        }
        ++count;
    }
    return count;
}

/* Different NICs that `count` GPUs from `first` on use. */
static uint64_t nics_used(const topo_graph *graph, uint32_t first, uint64_t count)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t nic = topo_gpu_nic(graph, topo_gpu(graph, first + i));
        bool seen = nic == TOPO_NONE;
        for (uint32_t j = 0; j < i && !seen; ++j) {
            seen = topo_gpu_nic(graph, topo_gpu(graph, first + j)) == nic;
        }
        used += !seen;
    }
    return used;
}

static ist_status check_alike(const topo_graph *graph, const cost_machine *machine, uint64_t nics)
{
    const uint64_t count = machine->gpus_per_node;
    for (uint64_t node = 1; node < machine->node_count; ++node) {
        const uint32_t first = (uint32_t)(node * count);
        const uint64_t gpus = gpus_beside(graph, first);
        if (gpus != count) {
            return refuse("GPUs", count, gpus);
        }
        const uint64_t here = nics_used(graph, first, count);
        if (here != nics) {
            return refuse("NICs that GPUs use", nics, here);
        }
    }
    return IST_OK;
}

static void rates_of_nvlink(const topo_graph *graph, cost_machine *machine, cost_profile *links)
{
    topo_path path;
    if (machine->domain < 2) {
        return;
    }
    const uint32_t gpu = topo_gpu(graph, 0);
    topo_path_find(graph, gpu, topo_gpu(graph, 1), &path);
    if (path.bytes_per_s == 0) {
        return;
    }
    links->nvlink_bytes_per_s = path.bytes_per_s;
    links->nvlink_latency_ps = path.latency_ps > 0 ? path.latency_ps : links->nvlink_latency_ps;
    /* Linked one to one: a GPU's rate is that of all its links, a pair has one of them. */
    if (path.hop_count == 1 && machine->domain > 2) {
        machine->mesh_links = machine->domain - 1;
        links->nvlink_bytes_per_s *= machine->mesh_links;
    }
}

static void rates_of_nic(const topo_graph *graph, cost_profile *links)
{
    const uint32_t gpu = topo_gpu(graph, 0);
    const uint32_t nic = topo_gpu_nic(graph, gpu);
    if (nic == TOPO_NONE) {
        return;
    }
    uint64_t rate = 0;
    uint64_t latency = 0;
    for (uint32_t i = 0; i < topo_degree(graph, nic); ++i) {
        const topo_link *link = topo_link_at(graph, topo_link_of(graph, nic, i));
        if (link->kind == TOPO_LINK_NET && link->health != TOPO_DOWN) {
            rate += link->bytes_per_s;
            latency = link->latency_ps;
        }
    }
    topo_path path;
    topo_path_find(graph, gpu, nic, &path);
    if (path.bytes_per_s > 0 && path.bytes_per_s < rate) {
        rate = path.bytes_per_s;
    }
    links->nic_bytes_per_s = rate > 0 ? rate : links->nic_bytes_per_s;
    links->nic_latency_ps = latency > 0 ? 2 * latency + 2 * path.latency_ps : links->nic_latency_ps;
}

ist_status cost_of_graph(const topo_graph *graph, cost_machine *machine, cost_profile *links)
{
    ist_cluster usual;
    ist_status status = ist_cluster_parse(NULL, &usual);
    if (status != IST_OK) {
        return status;
    }
    const uint64_t ranks = topo_gpu_count(graph);
    if (ranks == 0) {
        ist_error details = {.size = sizeof details,
                             .rank = IST_RANK_NONE,
                             .peer = IST_RANK_NONE,
                             .object = "cluster",
                             .operation = "cost.graph"};
        return ist_raise(IST_ERR_UNSUPPORTED, &details, "there is no GPU in %s",
                         topo_source(graph));
    }
    cost_machine made;
    cost_profile rates;
    cost_of_cluster(&usual, &made, &rates);
    made.gpus_per_node = gpus_beside(graph, 0);
    made.node_count = ranks / made.gpus_per_node;
    const uint64_t nics = nics_used(graph, 0, made.gpus_per_node);
    made.nics_per_node = nics == 0 ? 0 : divisor_below(made.gpus_per_node, nics);
    made.domain = topo_lsa_size(graph, NULL, (uint32_t)ranks, 0, TOPO_PATH_NVL);
    made.domain = made.domain <= made.gpus_per_node
                      ? divisor_below(made.gpus_per_node, made.domain)
                      : made.domain / made.gpus_per_node * made.gpus_per_node;
    if (made.node_count * made.gpus_per_node != ranks) {
        return refuse("GPUs", made.gpus_per_node, ranks % made.gpus_per_node);
    }
    status = check_alike(graph, &made, nics);
    if (status != IST_OK) {
        return status;
    }
    rates_of_nvlink(graph, &made, &rates);
    rates_of_nic(graph, &rates);
    *machine = made;
    *links = rates;
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ both */

ist_status cost_of_source(const char *source, cost_machine *machine, cost_profile *links)
{
    /* A line has neither the slash nor the dot-suffix of a path. */
    const bool loaded =
        source != NULL && (strcmp(source, "live") == 0 || strstr(source, ".xml") != NULL ||
                           strstr(source, ".json") != NULL);
    if (!loaded) {
        ist_cluster cluster;
        const ist_status status = ist_cluster_parse(source, &cluster);
        if (status == IST_OK) {
            cost_of_cluster(&cluster, machine, links);
        }
        return status;
    }
    topo_graph *graph = NULL;
    ist_status status = topo_load(source, NULL, &graph);
    if (status == IST_OK) {
        status = cost_of_graph(graph, machine, links);
        topo_graph_close(graph);
    }
    return status;
}
