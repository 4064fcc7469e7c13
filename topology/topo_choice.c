/* SPDX-License-Identifier: Apache-2.0 */
/* The choice: same load/store team, else GIN, else the hosts. Each "no" keeps its reason for
 * whoever asks why.
 */
#include "topo_choice.h"

#include <string.h>

#define VENDOR_MELLANOX 0x15b3
#define VENDOR_AMAZON 0x1d0f

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool attr_is(const topo_graph *graph, uint32_t node, const char *key, const char *value)
{
    const char *found = topo_attr_get(graph, node, key);
    return found != NULL && strcmp(found, value) == 0;
}

/* ------------------------------------------------------------------------------------ NICs */

/* A description that names no adapter (a cluster line) speaks of RDMA NICs. */
static bool is_described_only(const topo_graph *graph, uint32_t nic)
{
    const topo_node *node = topo_node_at(graph, nic);
    return node->vendor == 0 && node->class_id == 0 && node->attrs == TOPO_NONE &&
           begins(node->name, "nic");
}

static bool is_rdma(const topo_graph *graph, uint32_t nic)
{
    static const char *const names[] = {"mlx", "rdma",  "roce", "ib",   "bnxt_re",
                                        "efa", "irdma", "hfi1", "shca", "erdma"};
    const topo_node *node = topo_node_at(graph, nic);
    const char *guid = topo_attr_get(graph, nic, "guid");
    if (topo_attr_get(graph, nic, "rdma") != NULL ||
        (guid != NULL && strcmp(guid, "0x0") != 0 && strcmp(guid, "0") != 0 && *guid != '\0')) {
        return true;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (begins(node->name, names[i])) {
            return true;
        }
    }
    bool efa = node->vendor == VENDOR_AMAZON && (node->device & 0xff00) == 0xef00;
    return efa || node->class_id >> 8 == 0x0207 ||
           (node->vendor == VENDOR_MELLANOX && node->name[0] == '\0');
}

topo_gin topo_nic_gin(const topo_graph *graph, uint32_t nic, const char **reason)
{
    const topo_node *node = topo_node_at(graph, nic);
    *reason = NULL;
    if (attr_is(graph, nic, "gin", "0")) {
        *reason = "the NIC's driver offers no GIN";
    } else if (!is_described_only(graph, nic) && !is_rdma(graph, nic)) {
        *reason = "the NIC is no RDMA NIC";
    } else if (attr_is(graph, nic, "gdr", "0")) {
        *reason = "the NIC cannot read GPU memory (no GPU Direct RDMA)";
    } else if (attr_is(graph, nic, "state", "down")) {
        *reason = "the NIC's link is down";
    }
    if (*reason != NULL) {
        return TOPO_GIN_NONE;
    }
    bool mlx5 = node->vendor == VENDOR_MELLANOX || begins(node->name, "mlx5") ||
                is_described_only(graph, nic);
    return mlx5 ? TOPO_GIN_GDAKI : TOPO_GIN_PROXY;
}

topo_gin topo_gpu_gin(const topo_graph *graph, uint32_t gpu, const char **reason)
{
    uint32_t nic = topo_gpu_nic(graph, gpu);
    if (nic == TOPO_NONE) {
        *reason = "the machine has no NIC that is up";
        return TOPO_GIN_NONE;
    }
    if (attr_is(graph, gpu, "gdr", "0")) {
        *reason = "the GPU does not offer GPU Direct RDMA";
        return TOPO_GIN_NONE;
    }
    if (topo_attr_get(graph, gpu, "mlopart") != NULL) {
        *reason = "the GPU is a part of one (MLOPart), which GIN does not support";
        return TOPO_GIN_NONE;
    }
    return topo_nic_gin(graph, nic, reason);
}

/* ------------------------------------------------------------------------------------ ranks */

uint32_t topo_policy_ranks(const topo_graph *graph, const topo_policy *policy)
{
    return policy->rank_count > 0 ? policy->rank_count : topo_gpu_count(graph);
}

uint32_t topo_policy_gpu(const topo_graph *graph, const topo_policy *policy, uint32_t rank)
{
    return topo_gpu(graph, policy->ranks != NULL ? policy->ranks[rank] : rank);
}

static bool is_asked(const topo_policy *policy)
{
    return policy->able != NULL && policy->able->maps != NULL;
}

/* Both ways: load/store needs the one as much as the other. */
static bool maps_mutual(const topo_graph *graph, const topo_policy *policy, uint32_t a, uint32_t b)
{
    size_t words = TOPO_ABLE_WORDS(topo_policy_ranks(graph, policy));
    const uint64_t *maps = policy->able->maps;
    return (maps[a * words + b / 64u] >> (b % 64u) & maps[b * words + a / 64u] >> (a % 64u) & 1u) !=
           0;
}

static bool is_allowed(const topo_policy *policy, topo_path_type type)
{
    return policy->pcie_max > TOPO_PATH_NVL && type <= policy->pcie_max;
}

/* Whether two ranks may be in one team where the machine has said what maps what. */
static bool loads(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                  uint32_t rank_b)
{
    uint32_t a = topo_policy_gpu(graph, policy, rank_a);
    uint32_t b = topo_policy_gpu(graph, policy, rank_b);
    return maps_mutual(graph, policy, rank_a, rank_b) &&
           (topo_same_domain(graph, a, b) || is_allowed(policy, topo_path_type_of(graph, a, b)));
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool loads_all(const topo_graph *graph, const topo_policy *policy, uint32_t first,
                      uint32_t rank)
{
    for (uint32_t i = first; i < rank; i++) {
        if (!loads(graph, policy, i, rank)) {
            return false;
        }
    }
    return true;
}

/* As topo_lsa_size(), for what the machine has answered. */
static uint32_t lsa_asked(const topo_graph *graph, const topo_policy *policy)
{
    uint32_t size = policy->lsa_max;
    uint32_t count = topo_policy_ranks(graph, policy);
    uint32_t first = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (!loads_all(graph, policy, first, i)) {
            size = common_divisor(size, i - first);
            first = i;
        }
    }
    return common_divisor(size, count - first);
}

uint32_t topo_policy_lsa(const topo_graph *graph, const topo_policy *policy)
{
    uint32_t size = is_asked(policy)
                        ? lsa_asked(graph, policy)
                        : topo_lsa_size(graph, policy->ranks, topo_policy_ranks(graph, policy),
                                        policy->lsa_max, policy->pcie_max);
    return size > 0 ? size : 1;
}

/* ----------------------------------------------------------------------------------- load/store */

/* The driver says no: the machine's when it was asked, else the one that a live graph knows of. */
static bool is_refused(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                       uint32_t rank_b)
{
    if (is_asked(policy)) {
        return !maps_mutual(graph, policy, rank_a, rank_b);
    }
    return topo_peer_access(graph, topo_policy_gpu(graph, policy, rank_a),
                            topo_policy_gpu(graph, policy, rank_b)) == TOPO_PEER_REFUSED;
}

static const char *not_joined(const topo_graph *graph, const topo_policy *policy, uint32_t a,
                              uint32_t b, topo_path_type type)
{
    if (topo_node_at(graph, a)->machine != topo_node_at(graph, b)->machine) {
        return "they are in two machines that NVLink does not join";
    }
    if (type == TOPO_PATH_NVB) {
        return "NVLink joins them only through another GPU, which load/store cannot cross";
    }
    return is_asked(policy) || topo_peer_access(graph, a, b) == TOPO_PEER_ALLOWED
               ? "NVLink does not join them; the driver allows peer access over PCIe, which is not "
                 "asked for"
               : "NVLink does not join them";
}

/* Why two ranks do not load and store; NULL: they do. */
static const char *lsa_refusal(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                               uint32_t rank_b, topo_choice *choice)
{
    uint32_t a = topo_policy_gpu(graph, policy, rank_a);
    uint32_t b = topo_policy_gpu(graph, policy, rank_b);
    choice->lsa_size = policy->lsa_size != 0 ? policy->lsa_size : topo_policy_lsa(graph, policy);
    bool together = rank_a / choice->lsa_size == rank_b / choice->lsa_size;
    topo_path_find(graph, a, b, &choice->path);
    if (rank_a != rank_b && is_refused(graph, policy, rank_a, rank_b)) {
        return "the driver does not allow one to read and write the other's memory";
    }
    bool joined = topo_same_domain(graph, a, b);
    if (!joined && !is_allowed(policy, choice->path.type)) {
        return not_joined(graph, policy, a, b, choice->path.type);
    }
    choice->reason = joined             ? "both are in one NVLink domain and one team"
                     : is_asked(policy) ? "the driver maps memory over PCIe, which IST_PEER_ACCESS "
                                          "allows"
                                        : "peer access over PCIe is asked for";
    return together
               ? NULL
               : "load/store would reach, but they are in two teams: teams are equal blocks of "
                 "consecutive ranks, as large as the greatest common divisor of all runs of "
                 "ranks that reach each other, and at most the limit";
}

/* ------------------------------------------------------------------------------------ the rest */

/* Why two ranks do not use GIN; NULL: they do, and the kind is set. */
static const char *gin_refusal(const topo_graph *graph, const topo_policy *policy, uint32_t a,
                               uint32_t b, topo_choice *choice)
{
    const char *reason = NULL;
    if (policy->gin_off) {
        return "GIN is switched off";
    }
    if (policy->able != NULL && policy->able->gin_known) {
        if (policy->able->gin != TOPO_GIN_NONE) {
            (void)topo_path_network(graph, a, b, &choice->path);
        }
        choice->gin = policy->able->gin;
        return policy->able->gin != TOPO_GIN_NONE ? NULL : policy->able->gin_reason;
    }
    topo_gin kind_a = topo_gpu_gin(graph, a, &reason);
    if (reason != NULL) {
        return reason;
    }
    topo_gin kind_b = topo_gpu_gin(graph, b, &reason);
    if (reason != NULL) {
        return reason;
    }
    if (!topo_path_network(graph, a, b, &choice->path)) {
        return "their NICs are not connected";
    }
    /* All ranks need one kind; the proxy works on any RDMA NIC. */
    choice->gin = kind_a == kind_b ? kind_a : TOPO_GIN_PROXY;
    return NULL;
}

static const char *const lsa_override =
    "lsa_size_max of the communicator makes teams smaller (1: none); IST_PEER_ACCESS=NVL keeps "
    "load/store on NVLink; NCCL_LSA_TEAM_SIZE makes NCCL's own teams smaller";
static const char *const gin_override =
    "NCCL_GIN_TYPE (2 proxy, 3 GDAKI) chooses the kind, NCCL_GIN_ENABLE=0 switches it off; on one "
    "machine peer access over PCIe may be asked for (--peer-access, IST_PEER_ACCESS)";
static const char *const host_override =
    "peer access over PCIe may be asked for (--peer-access, IST_PEER_ACCESS) where the driver "
    "allows it";

static void host_choose(const topo_graph *graph, uint32_t a, uint32_t b, topo_choice *choice)
{
    topo_path_find(graph, a, b, &choice->path);
    bool near = topo_node_at(graph, a)->machine == topo_node_at(graph, b)->machine;
    choice->way = near || choice->path.type != TOPO_PATH_NONE ? TOPO_WAY_HOST : TOPO_WAY_NONE;
    choice->override = host_override;
    if (choice->way == TOPO_WAY_NONE) {
        choice->reason = "no path between them is known";
    }
}

void topo_choose(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                 uint32_t rank_b, topo_choice *choice)
{
    uint32_t a = topo_policy_gpu(graph, policy, rank_a);
    uint32_t b = topo_policy_gpu(graph, policy, rank_b);
    *choice = (topo_choice){.reason = "", .override = lsa_override};
    const char *lsa = lsa_refusal(graph, policy, rank_a, rank_b, choice);
    if (rank_a == rank_b) {
        choice->way = TOPO_WAY_SELF;
        choice->reason = "a rank and itself";
        return;
    }
    if (lsa == NULL) {
        choice->way = TOPO_WAY_LSA;
        return;
    }
    choice->missing = lsa;
    choice->reason = "not in one load/store team, and RDMA NICs connect them";
    const char *gin = gin_refusal(graph, policy, a, b, choice);
    if (gin == NULL) {
        choice->way = TOPO_WAY_GIN;
        choice->override = gin_override;
        return;
    }
    choice->reason = gin;
    host_choose(graph, a, b, choice);
}

const char *topo_way_text(topo_way way)
{
#define X(name, text) text,
    static const char *const texts[] = {TOPO_WAY_LIST(X)};
#undef X
    return way < TOPO_WAYS ? texts[way] : "?";
}

const char *topo_gin_text(topo_gin gin)
{
    switch (gin) {
    case TOPO_GIN_NONE: return "none";
    case TOPO_GIN_PROXY: return "proxy: a host thread posts";
    case TOPO_GIN_GDAKI: return "GDAKI: the GPU posts to the NIC itself";
    }
    return "?";
}
