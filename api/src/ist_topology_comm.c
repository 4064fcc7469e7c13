/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators beside the topology: told when they open, and on request.
 */
#include "ist_topology.h"
#include "topo_load.h"

#include <stdlib.h>
#include <string.h>

#define ANNOUNCE "topology.announce"

ist_topology_comparison ist_topology_tell(const topo_formed *found, const topo_report *report)
{
    return (ist_topology_comparison){.difference_count = report->difference_count,
                                     .lsa_size_predicted = report->predicted.lsa_size,
                                     .lsa_size_found = found->lsa_size,
                                     .gin_predicted = report->predicted.gin != TOPO_GIN_NONE,
                                     .gin_found = found->gin != TOPO_GIN_NONE,
                                     .gin_reason = found->gin_reason,
                                     .gin_reason_predicted = report->predicted.gin_reason};
}

void ist_topology_warn(const topo_graph *graph, const topo_formed *found, const topo_report *report)
{
    topo_text text = {0};
    topo_comm_say(graph, found, report, &text);
    ist_log(IST_LOG_WARN, "communicator and topology differ: %s",
            text.bytes != NULL && !text.failed ? text.bytes : "no memory to say how");
    topo_text_free(&text);
}

static ist_status formed_take(const ist_topology_formed *formed, ist_topology_formed *taken)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, formed, "formed", ANNOUNCE));
    IST_RETURN_IF_ERROR(
        ist_desc_read(NULL, formed, sizeof(*formed), taken, sizeof(*taken), "formed", ANNOUNCE));
    if (taken->rank_count == 0 || taken->lsa_size == 0 ||
        taken->rank_count % taken->lsa_size != 0) {
        return ist_fail_value(
            NULL, IST_ERR_ARGUMENT, "formed.lsa_size", ANNOUNCE, taken->rank_count, taken->lsa_size,
            "teams of %u do not divide %u ranks", taken->lsa_size, taken->rank_count);
    }
    if ((uint32_t)taken->peer_access >= TOPO_PATH_TYPES) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "formed.peer_access", ANNOUNCE,
                              TOPO_PATH_TYPES - 1, (uint64_t)taken->peer_access,
                              "formed.peer_access is %d", (int)taken->peer_access);
    }
    return IST_OK;
}

static uint32_t gpu_named(const topo_graph *graph, const char *uuid)
{
    for (uint32_t i = 0; i < topo_gpu_count(graph); i++) {
        const char *known = topo_attr_get(graph, topo_gpu(graph, i), "uuid");
        if (known != NULL && strcmp(known, uuid) == 0) {
            return i;
        }
    }
    return TOPO_NONE;
}

ist_status ist_topology_gpus(const ist_topology *topology, const char *const *uuids, uint32_t count,
                             uint32_t *gpus)
{
    static const char operation[] = "topology.gpus";
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", operation));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, uuids, "uuids", operation));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, gpus, "gpus", operation));
    for (uint32_t i = 0; i < count; i++) {
        gpus[i] = gpu_named(topology->graph, uuids[i]);
    }
    return IST_OK;
}

/* GPUs of the ranks; false: one of them is not in the topology, which is said. */
static bool gpus_find(const topo_graph *graph, const ist_topology_formed *formed, uint32_t *gpus)
{
    for (uint32_t i = 0; i < formed->rank_count; i++) {
        gpus[i] = formed->uuids != NULL  ? gpu_named(graph, formed->uuids[i])
                  : formed->gpus != NULL ? formed->gpus[i]
                                         : i;
        if (gpus[i] >= topo_gpu_count(graph)) {
            ist_log(IST_LOG_WARN,
                    "communicator not compared with the topology: %s has %u GPUs, rank %u is on %s",
                    topo_source(graph), topo_gpu_count(graph), i,
                    formed->uuids != NULL ? formed->uuids[i] : "another one");
            return false;
        }
    }
    return true;
}

static void compare(const topo_graph *graph, const ist_topology_formed *formed, uint32_t *gpus,
                    ist_topology_comparison *full)
{
    const topo_formed found = {.rank_count = formed->rank_count,
                               .lsa_size = formed->lsa_size,
                               .gin = (topo_gin)formed->gin,
                               .gin_reason = formed->gin_reason};
    const topo_policy policy = {.ranks = gpus,
                                .rank_count = formed->rank_count,
                                .lsa_max = formed->lsa_size_max,
                                .pcie_max = (topo_path_type)formed->peer_access};
    topo_report report;
    topo_comm_compare(graph, &policy, &found, formed->part != 0, &report);
    *full = ist_topology_tell(&found, &report);
    if (full->difference_count > 0) {
        ist_topology_warn(graph, &found, &report);
    }
}

/* A topology that cannot be read must not keep a communicator from opening. */
static void compare_with(const char *source, const ist_topology_formed *formed,
                         ist_topology_comparison *full)
{
    ist_error saved = {.size = sizeof(saved)};
    topo_graph *graph = NULL;
    ist_error_save(&saved);
    uint32_t *gpus = ist_alloc(formed->rank_count, sizeof(*gpus));
    ist_status status = gpus == NULL ? IST_ERR_MEMORY : topo_load(source, NULL, &graph);
    if (status != IST_OK) {
        ist_log(IST_LOG_WARN, "communicator not compared with the topology: %.64s: %s", source,
                ist_status_sentence(status));
    } else if (gpus_find(graph, formed, gpus)) {
        compare(graph, formed, gpus, full);
    }
    topo_graph_close(graph);
    ist_free(gpus);
    ist_error_restore(&saved);
}

ist_status ist_topology_announce(const char *usual, const ist_topology_formed *formed,
                                 ist_topology_comparison *comparison)
{
    ist_topology_formed taken;
    ist_topology_comparison full = {0};
    IST_RETURN_IF_ERROR(formed_take(formed, &taken));
    if (comparison != NULL) {
        IST_RETURN_IF_ERROR(ist_out_check(NULL, comparison, "comparison", ANNOUNCE));
    }
    const char *named = getenv("IST_TOPOLOGY");
    const char *source = named != NULL && named[0] != '\0' ? named : usual;
    if (source != NULL && strcmp(source, "off") != 0) {
        compare_with(source, &taken, &full);
    }
    if (comparison != NULL) {
        ist_out_write(comparison, &full, sizeof(full));
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ deciding */

#define DECIDE "topology.decide"
ist_status ist_topology_decide(const ist_topology *topology, const ist_topology_policy *policy,
                               uint32_t warn, ist_topology_decision *decision)
{
    topo_policy taken;
    topo_able able;
    topo_report report;
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, topology, "topology", DECIDE));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, policy, "policy", DECIDE));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, decision, "decision", DECIDE));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, decision, "decision", DECIDE));
    const topo_graph *graph = topology->graph;
    IST_RETURN_IF_ERROR(ist_topology_policy_take(graph, policy, DECIDE, &taken, &able));
    const topo_formed found = topo_comm_predict(graph, &taken);
    topo_policy alone = taken;
    alone.able = NULL;
    topo_comm_compare(graph, &alone, &found, false, &report);
    if (warn != 0 && report.difference_count > 0) {
        ist_topology_warn(graph, &found, &report);
    }
    const ist_topology_decision full = {.lsa_size = found.lsa_size,
                                        .gin = (ist_gin_kind)found.gin,
                                        .difference_count = report.difference_count,
                                        .gin_reason = found.gin_reason};
    ist_out_write(decision, &full, sizeof(full));
    return IST_OK;
}
