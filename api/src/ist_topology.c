/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Topologies as programs see them: checks of arguments around what topology/ does.
 */
#include "ist_topology.h"
#include "topo_check.h"
#include "topo_choice.h"
#include "topo_explain.h"
#include "topo_json.h"
#include "topo_load.h"
#include "topo_nccl.h"
#include "topo_show.h"

#include <inttypes.h>
#include <string.h>

_Static_assert((int)IST_PATH_LOC == (int)TOPO_PATH_LOC && (int)IST_PATH_NVB == (int)TOPO_PATH_NVB &&
                   (int)IST_PATH_PIX == (int)TOPO_PATH_PIX &&
                   (int)IST_PATH_SYS == (int)TOPO_PATH_SYS &&
                   (int)IST_PATH_NONE == (int)TOPO_PATH_NONE &&
                   (int)IST_PATH_NONE == (int)TOPO_PATH_TYPES - 1,
               "public and internal kinds of path are numbered alike");
_Static_assert((int)IST_WAY_LSA == (int)TOPO_WAY_LSA && (int)IST_WAY_NONE == (int)TOPO_WAY_NONE &&
                   (int)IST_GIN_KIND_GDAKI == (int)TOPO_GIN_GDAKI,
               "public and internal ways are numbered alike");

/* ------------------------------------------------------------------------------------ opening */

static ist_status desc_take(const ist_topology_desc *desc, const char *operation,
                            topo_load_options *options)
{
    ist_topology_desc copy = {0};
    if (desc != NULL) {
        IST_RETURN_IF_ERROR(
            ist_desc_read(NULL, desc, sizeof(*desc), &copy, sizeof(copy), "desc", operation));
        IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &copy.reserved, sizeof(copy.reserved),
                                               "desc.reserved", operation));
    }
    *options = (topo_load_options){.group = copy.group, .machine_max = copy.machine_max};
    return IST_OK;
}

static ist_status wrap(topo_graph *graph, ist_topology **topology)
{
    ist_topology *made = ist_alloc(1, sizeof(*made));
    if (made == NULL) {
        topo_graph_close(graph);
        return ist_fail(NULL, IST_ERR_MEMORY, "topology", "topology.open", "no memory for it");
    }
    made->graph = graph;
    *topology = made;
    return IST_OK;
}

ist_status ist_topology_open(const char *source, const ist_topology_desc *desc,
                             ist_topology **topology)
{
    topo_load_options options;
    topo_graph *graph = NULL;
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, source, "source", "topology.open"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", "topology.open"));
    IST_RETURN_IF_ERROR(desc_take(desc, "topology.open", &options));
    IST_RETURN_IF_ERROR(topo_load(source, &options, &graph));
    return wrap(graph, topology);
}

ist_status ist_topology_parse(const void *bytes, size_t count, const char *name,
                              const ist_topology_desc *desc, ist_topology **topology)
{
    topo_load_options options;
    topo_graph *graph = NULL;
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, bytes, "bytes", "topology.parse"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", "topology.parse"));
    IST_RETURN_IF_ERROR(desc_take(desc, "topology.parse", &options));
    IST_RETURN_IF_ERROR(
        topo_load_bytes(bytes, count, name != NULL ? name : "memory", &options, &graph));
    return wrap(graph, topology);
}

void ist_topology_close(ist_topology *topology)
{
    if (topology != NULL) {
        topo_graph_close(topology->graph);
        ist_free(topology);
    }
}

/* ------------------------------------------------------------------------------------ asking */

ist_status ist_topology_check(const ist_topology *topology)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", "topology.check"));
    return topo_check(topology->graph);
}

ist_status ist_topology_query(const ist_topology *topology, ist_topology_info *info)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", "topology.query"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, info, "info", "topology.query"));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, info, "info", "topology.query"));
    const topo_graph *graph = topology->graph;
    topo_policy policy = {0};
    ist_topology_info full = {.machine_count = topo_kind_count(graph, TOPO_MACHINE),
                              .gpu_count = topo_gpu_count(graph),
                              .nic_count = topo_nic_count(graph),
                              .domain_count = topo_domain_count(graph),
                              .rail_count = topo_rail_count(graph),
                              .lsa_size =
                                  topo_gpu_count(graph) > 0 ? topo_policy_lsa(graph, &policy) : 0,
                              .missing_count = topo_missing_count(graph),
                              .node_count = topo_node_count(graph),
                              .link_count = topo_link_count(graph),
                              .source = topo_source(graph)};
    ist_out_write(info, &full, sizeof(full));
    return IST_OK;
}

ist_status ist_topology_missing(const ist_topology *topology, uint32_t index, const char **what,
                                const char **why)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", "topology.missing"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, what, "what", "topology.missing"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, why, "why", "topology.missing"));
    uint32_t count = topo_missing_count(topology->graph);
    if (index >= count) {
        return ist_fail_value(NULL, IST_ERR_RANGE, "index", "topology.missing", count, index,
                              "index is %" PRIu32 ", there are %" PRIu32 " entries", index, count);
    }
    const topo_missing *found = topo_missing_at(topology->graph, index);
    *what = found->what;
    *why = found->why;
    return IST_OK;
}

static ist_status check_rank(uint64_t rank, uint64_t count, const char *argument,
                             const char *operation)
{
    if (rank < count) {
        return IST_OK;
    }
    return ist_fail_value(NULL, IST_ERR_RANGE, argument, operation, count, rank,
                          "%s is %" PRIu64 ", the topology has %" PRIu64 "%s", argument, rank,
                          count,
                          count == 0 ? " (no GPU was found: name a file or a cluster line)" : "");
}

static ist_status able_take(const ist_topology_able *able, const char *operation, topo_able *taken)
{
    ist_topology_able copy = {0};
    IST_RETURN_IF_ERROR(
        ist_desc_read(NULL, able, sizeof(*able), &copy, sizeof(copy), "policy.able", operation));
    IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &copy.reserved, sizeof(copy.reserved),
                                           "policy.able.reserved", operation));
    *taken = (topo_able){.maps = copy.maps,
                         .gin = (topo_gin)copy.gin,
                         .gin_reason = copy.gin_reason != NULL ? copy.gin_reason : "",
                         .gin_known = copy.gin_known != 0};
    return IST_OK;
}

/* Checks every rank's GPU, so that nothing below has to. */
ist_status ist_topology_policy_take(const topo_graph *graph, const ist_topology_policy *policy,
                                    const char *operation, topo_policy *taken, topo_able *able)
{
    ist_topology_policy copy = {0};
    if (policy != NULL) {
        IST_RETURN_IF_ERROR(
            ist_desc_read(NULL, policy, sizeof(*policy), &copy, sizeof(copy), "policy", operation));
        IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &copy.reserved, sizeof(copy.reserved),
                                               "policy.reserved", operation));
    }
    uint32_t gpus = topo_gpu_count(graph);
    if (copy.ranks == NULL) {
        IST_RETURN_IF_ERROR(
            check_rank(copy.rank_count, (uint64_t)gpus + 1, "policy.rank_count", operation));
    }
    for (uint32_t i = 0; copy.ranks != NULL && i < copy.rank_count; i++) {
        IST_RETURN_IF_ERROR(check_rank(copy.ranks[i], gpus, "policy.ranks", operation));
    }
    IST_RETURN_IF_ERROR(
        check_rank((uint64_t)copy.peer_access, TOPO_PATH_TYPES, "policy.peer_access", operation));
    *taken = (topo_policy){.ranks = copy.rank_count > 0 ? copy.ranks : NULL,
                           .rank_count = copy.rank_count,
                           .lsa_max = copy.lsa_size_max,
                           .pcie_max = (topo_path_type)copy.peer_access,
                           .gin_off = copy.gin_off != 0};
    if (copy.able != NULL) {
        IST_RETURN_IF_ERROR(able_take(copy.able, operation, able));
        taken->able = able;
    }
    return IST_OK;
}

ist_status ist_topology_choose(const ist_topology *topology, const ist_topology_policy *policy,
                               uint32_t rank_a, uint32_t rank_b, ist_topology_pair *pair)
{
    static const char operation[] = "topology.choose";
    topo_policy taken;
    topo_able able;
    topo_choice choice;
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", operation));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, pair, "pair", operation));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, pair, "pair", operation));
    IST_RETURN_IF_ERROR(
        ist_topology_policy_take(topology->graph, policy, operation, &taken, &able));
    uint32_t count = topo_policy_ranks(topology->graph, &taken);
    IST_RETURN_IF_ERROR(check_rank(rank_a, count, "rank_a", operation));
    IST_RETURN_IF_ERROR(check_rank(rank_b, count, "rank_b", operation));
    topo_choose(topology->graph, &taken, rank_a, rank_b, &choice);
    ist_topology_pair full = {.path = (ist_path)choice.path.type,
                              .way = (ist_way)choice.way,
                              .gin = (ist_gin_kind)choice.gin,
                              .nvlink_count = choice.path.link_count_nv,
                              .hop_count = choice.path.hop_count,
                              .bytes_per_s = choice.path.bytes_per_s,
                              .latency_ps = choice.path.latency_ps,
                              .reason = choice.reason,
                              .missing = choice.missing,
                              .override = choice.override};
    ist_out_write(pair, &full, sizeof(full));
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ texts */

/* Hands a text to the caller, and frees it. */
static ist_status text_give(topo_text *made, const char *operation, char *text, size_t capacity,
                            size_t *needed)
{
    ist_status status = topo_text_status(made, operation);
    size_t bytes = made->length + 1;
    if (status == IST_OK && needed != NULL) {
        *needed = bytes;
    }
    if (status == IST_OK && text != NULL && capacity < bytes) {
        status = ist_fail_value(NULL, IST_ERR_SIZE, "capacity", operation, bytes, capacity,
                                "capacity is %zu bytes, the text needs %zu", capacity, bytes);
    }
    if (status == IST_OK && text != NULL) {
        memcpy(text, made->bytes != NULL ? made->bytes : "", bytes);
    }
    topo_text_free(made);
    return status;
}

/* A NULL text only asks how long it would be. */
static ist_status check_text(const char *text, size_t capacity, const size_t *needed,
                             const char *operation)
{
    bool asking = text == NULL && capacity == 0 && needed != NULL;
    return asking ? IST_OK : ist_check_pointer(NULL, text, "text", operation);
}

static ist_status explain_desc_take(const topo_graph *graph, const ist_explain_desc *desc,
                                    const char *operation, ist_explain_desc *copy,
                                    topo_policy *policy, topo_able *able)
{
    *copy = (ist_explain_desc){.rank_a = IST_RANK_NONE, .rank_b = IST_RANK_NONE};
    if (desc != NULL) {
        IST_RETURN_IF_ERROR(
            ist_desc_read(NULL, desc, sizeof(*desc), copy, sizeof(*copy), "desc", operation));
        IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &copy->reserved, sizeof(copy->reserved),
                                               "desc.reserved", operation));
    }
    IST_RETURN_IF_ERROR(ist_topology_policy_take(graph, copy->policy, operation, policy, able));
    uint32_t count = topo_policy_ranks(graph, policy);
    if (copy->rank_a != IST_RANK_NONE || copy->rank_b != IST_RANK_NONE) {
        IST_RETURN_IF_ERROR(check_rank((uint32_t)copy->rank_a, count, "desc.rank_a", operation));
        IST_RETURN_IF_ERROR(check_rank((uint32_t)copy->rank_b, count, "desc.rank_b", operation));
    }
    return IST_OK;
}

ist_status ist_topology_explain(const ist_topology *topology, const ist_explain_desc *desc,
                                char *text, size_t capacity, size_t *needed)
{
    static const char operation[] = "topology.explain";
    ist_explain_desc copy;
    topo_policy policy;
    topo_able able;
    topo_text made = {0};
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", operation));
    IST_RETURN_IF_ERROR(check_text(text, capacity, needed, operation));
    IST_RETURN_IF_ERROR(explain_desc_take(topology->graph, desc, operation, &copy, &policy, &able));
    if (copy.rank_a != IST_RANK_NONE) {
        topo_explain_pair(topology->graph, &policy, (uint32_t)copy.rank_a, (uint32_t)copy.rank_b,
                          &made);
    } else if (copy.operation == NULL) {
        topo_explain_comm(topology->graph, &policy, &made);
    } else if (!topo_explain_operation(topology->graph, &policy, copy.operation, &made)) {
        ist_status status = ist_fail(NULL, IST_ERR_ARGUMENT, "desc.operation", operation,
                                     "operation '%.40s' is not known, one of %s is required",
                                     copy.operation, made.bytes != NULL ? made.bytes : "");
        topo_text_free(&made);
        return status;
    }
    return text_give(&made, operation, text, capacity, needed);
}

static ist_status svg_write(const topo_graph *graph, const char *operation, topo_text *made)
{
    topo_policy policy = {0};
    topo_text scratch = {0};
    if (operation == NULL) {
        topo_show_svg(graph, NULL, topo_source(graph), made);
        return IST_OK;
    }
    bool known = topo_explain_operation(graph, &policy, operation, &scratch);
    topo_text_free(&scratch);
    if (!known) {
        return ist_fail(NULL, IST_ERR_ARGUMENT, "operation", "topology.print",
                        "operation '%.40s' is not known", operation);
    }
    uint32_t *loads = ist_alloc((size_t)topo_link_count(graph) + 1, sizeof(*loads));
    if (loads == NULL) {
        return ist_fail(NULL, IST_ERR_MEMORY, "loads", "topology.print", "no memory for %" PRIu32,
                        topo_link_count(graph));
    }
    ist_status status = topo_operation_loads(graph, &policy, operation, loads);
    if (status == IST_OK) {
        topo_show_svg(graph, loads, operation, made);
    }
    ist_free(loads);
    return status;
}

static ist_status form_write(const topo_graph *graph, ist_topology_format format,
                             const char *operation, topo_text *made)
{
    switch (format) {
    case IST_TOPOLOGY_TEXT: topo_show_text(graph, made); return IST_OK;
    case IST_TOPOLOGY_MATRIX: topo_show_matrix(graph, made); return IST_OK;
    case IST_TOPOLOGY_JSON: topo_json_write(graph, made); return IST_OK;
    case IST_TOPOLOGY_NCCL: topo_nccl_write(graph, made); return IST_OK;
    case IST_TOPOLOGY_SVG: return svg_write(graph, operation, made);
    case IST_TOPOLOGY_HEAT: topo_show_heat(graph, made); return IST_OK;
    }
    return ist_fail_value(NULL, IST_ERR_ARGUMENT, "format", "topology.print", IST_TOPOLOGY_HEAT,
                          (uint64_t)format, "format is %d, which is none", (int)format);
}

ist_status ist_topology_print(const ist_topology *topology, ist_topology_format format,
                              const char *operation, char *text, size_t capacity, size_t *needed)
{
    topo_text made = {0};
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", "topology.print"));
    IST_RETURN_IF_ERROR(check_text(text, capacity, needed, "topology.print"));
    if (operation != NULL && format != IST_TOPOLOGY_SVG) {
        return ist_fail(NULL, IST_ERR_ARGUMENT, "operation", "topology.print",
                        "operation is only for the format SVG");
    }
    ist_status status = form_write(topology->graph, format, operation, &made);
    if (status != IST_OK) {
        topo_text_free(&made);
        return status;
    }
    return text_give(&made, "topology.print", text, capacity, needed);
}

ist_status ist_topology_diff(const ist_topology *first, const ist_topology *second,
                             uint32_t *difference_count, char *text, size_t capacity,
                             size_t *needed)
{
    topo_text made = {0};
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, first, "first", "topology.diff"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, second, "second", "topology.diff"));
    IST_RETURN_IF_ERROR(check_text(text, capacity, needed, "topology.diff"));
    uint32_t count = topo_diff(first->graph, second->graph, &made);
    IST_RETURN_IF_ERROR(text_give(&made, "topology.diff", text, capacity, needed));
    if (difference_count != NULL) {
        *difference_count = count;
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ clusters */

ist_status ist_topology_cluster(const ist_topology *topology, const ist_topology_policy *policy,
                                char *text, size_t capacity, size_t *needed)
{
    static const char operation[] = "topology.cluster";
    topo_policy taken;
    topo_able able;
    cost_machine machine;
    cost_profile links;
    ist_cluster cluster;
    topo_text made = {0};
    char line[1024];
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", operation));
    IST_RETURN_IF_ERROR(check_text(text, capacity, needed, operation));
    IST_RETURN_IF_ERROR(
        ist_topology_policy_take(topology->graph, policy, operation, &taken, &able));
    IST_RETURN_IF_ERROR(cost_of_graph(topology->graph, &machine, &links));
    taken.ranks = NULL;
    taken.rank_count = 0;
    IST_RETURN_IF_ERROR(ist_cluster_parse(NULL, &cluster));
    cost_to_cluster(&links, &cluster);
    cluster.node_count = machine.node_count;
    cluster.gpus_per_node = machine.gpus_per_node;
    /* NICs of a line serve GIN; those that cannot are left out, and hosts are not simulated. */
    const topo_formed choice = topo_comm_predict(topology->graph, &taken);
    cluster.nics_per_node = choice.gin == TOPO_GIN_NONE ? 0 : machine.nics_per_node;
    cluster.nvlink_domain = choice.lsa_size;
    IST_RETURN_IF_ERROR(ist_cluster_print(&cluster, line, sizeof(line), NULL));
    topo_text_add(&made, "%s", line);
    return text_give(&made, operation, text, capacity, needed);
}

/* ------------------------------------------------------------------------------------ comparing */

ist_status ist_topology_compare(const ist_topology *topology, const ist_topology_policy *policy,
                                ist_comm *comm, ist_topology_comparison *comparison)
{
    static const char operation[] = "topology.compare";
    topo_policy taken;
    topo_able able;
    ist_comm_info info = {.size = sizeof(info)};
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", operation));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, comparison, "comparison", operation));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, comparison, "comparison", operation));
    IST_RETURN_IF_ERROR(
        ist_topology_policy_take(topology->graph, policy, operation, &taken, &able));
    IST_RETURN_IF_ERROR(ist_comm_query(comm, &info));
    uint32_t gpus = topo_gpu_count(topology->graph);
    if (taken.rank_count == 0) {
        IST_RETURN_IF_ERROR(
            check_rank(info.rank_count, (uint64_t)gpus + 1, "comm's rank_count", operation));
        taken.rank_count = info.rank_count;
    } else if (taken.rank_count != info.rank_count) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "policy.rank_count", operation,
                              info.rank_count, taken.rank_count,
                              "policy has %" PRIu32 " ranks, the communicator %" PRIu32,
                              taken.rank_count, info.rank_count);
    }
    const topo_formed found = {.rank_count = info.rank_count,
                               .lsa_size = info.lsa_size,
                               .gin = info.gin_supported != 0 ? TOPO_GIN_PROXY : TOPO_GIN_NONE,
                               .gin_reason = info.gin_reason};
    topo_report report;
    topo_comm_compare(topology->graph, &taken, &found, false, &report);
    ist_topology_comparison full = ist_topology_tell(&found, &report);
    if (full.difference_count > 0) {
        ist_topology_warn(topology->graph, &found, &report);
    }
    ist_out_write(comparison, &full, sizeof(full));
    return IST_OK;
}

const char *ist_path_name(ist_path path)
{
    return topo_path_text((topo_path_type)path);
}
