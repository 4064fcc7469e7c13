/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators and topologies: the choice for all ranks at once, and where it is another one.
 */
#include "topo_comm.h"

topo_formed topo_cluster_choose(const ist_cluster *cluster, const uint32_t *world_ranks,
                                uint32_t rank_count, uint32_t lsa_max)
{
    /* NICs that a line describes are taken for the best kind, as topo_nic_gin() does. */
    bool nics = cluster->nics_per_node > 0;
    return (topo_formed){
        .rank_count = rank_count,
        .lsa_size = ist_cluster_lsa_size(cluster, world_ranks, rank_count, lsa_max),
        .gin = nics ? TOPO_GIN_GDAKI : TOPO_GIN_NONE,
        .gin_reason = nics ? NULL : "the cluster description has no NICs (nics=0)"};
}

topo_formed topo_comm_predict(const topo_graph *graph, const topo_policy *policy)
{
    topo_formed made = {.rank_count = topo_policy_ranks(graph, policy),
                        .lsa_size = topo_policy_lsa(graph, policy),
                        .gin = TOPO_GIN_GDAKI,
                        .gin_reason = policy->gin_off ? "GIN is switched off" : NULL};
    bool known = policy->able != NULL && policy->able->gin_known && !policy->gin_off;
    if (known) {
        made.gin = policy->able->gin;
        made.gin_reason = made.gin == TOPO_GIN_NONE ? policy->able->gin_reason : NULL;
        return made;
    }
    for (uint32_t i = 0; i < made.rank_count && made.gin_reason == NULL; i++) {
        topo_gin kind = topo_gpu_gin(graph, topo_policy_gpu(graph, policy, i), &made.gin_reason);
        /* All ranks need one kind; the proxy works on any RDMA NIC. */
        made.gin = kind == TOPO_GIN_GDAKI ? made.gin : TOPO_GIN_PROXY;
    }
    made.gin = made.gin_reason == NULL ? made.gin : TOPO_GIN_NONE;
    return made;
}

static topo_way way_formed(const topo_formed *found, uint32_t peer)
{
    if (peer < found->lsa_size) {
        return TOPO_WAY_LSA;
    }
    return found->gin != TOPO_GIN_NONE ? TOPO_WAY_GIN : TOPO_WAY_HOST;
}

static bool is_other(topo_way found, topo_way predicted)
{
    bool none = predicted == TOPO_WAY_NONE && found == TOPO_WAY_HOST;
    return found != predicted && !none;
}

static void peer_find(const topo_graph *graph, const topo_policy *policy, const topo_formed *found,
                      topo_report *report)
{
    topo_policy asked = *policy;
    asked.lsa_size = report->predicted.lsa_size;
    report->peer = TOPO_NONE;
    for (uint32_t peer = 1; peer < found->rank_count && report->peer == TOPO_NONE; peer++) {
        topo_choose(graph, &asked, 0, peer, &report->choice);
        report->peer = is_other(way_formed(found, peer), report->choice.way) ? peer : TOPO_NONE;
    }
}

void topo_comm_compare(const topo_graph *graph, const topo_policy *policy, const topo_formed *found,
                       bool part, topo_report *report)
{
    *report = (topo_report){.predicted = topo_comm_predict(graph, policy), .peer = TOPO_NONE};
    bool several = found->lsa_size < found->rank_count;
    bool team = part ? report->predicted.lsa_size % found->lsa_size != 0
                     : report->predicted.lsa_size != found->lsa_size;
    /* Where one team holds everybody, nobody looks for a network. */
    bool gin = several && (report->predicted.gin == TOPO_GIN_NONE) != (found->gin == TOPO_GIN_NONE);
    report->difference_count = (uint32_t)team + (uint32_t)gin;
    if (team || gin) {
        peer_find(graph, policy, found, report);
    }
}

void topo_comm_say(const topo_graph *graph, const topo_formed *found, const topo_report *report,
                   topo_text *text)
{
    topo_text_add(text, "%u ranks in load/store teams of %u, GIN %s", found->rank_count,
                  found->lsa_size, found->gin != TOPO_GIN_NONE ? "yes" : "no");
    if (found->gin_reason != NULL) {
        topo_text_add(text, " (%s)", found->gin_reason);
    }
    topo_text_add(text, "; by %s: teams of %u, GIN %s", topo_source(graph),
                  report->predicted.lsa_size,
                  report->predicted.gin != TOPO_GIN_NONE ? "yes" : "no");
    if (report->predicted.gin_reason != NULL) {
        topo_text_add(text, " (%s)", report->predicted.gin_reason);
    }
    if (report->peer != TOPO_NONE) {
        topo_text_add(text, "; ranks 0 and %u use %s, predicted %s: %s", report->peer,
                      topo_way_text(way_formed(found, report->peer)),
                      topo_way_text(report->choice.way), report->choice.reason);
    }
}
