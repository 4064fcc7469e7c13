/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of a graph. The seal asks for them before anything else looks at the graph, so
 * that everything after it may rely on them.
 */
#include "topo_check.h"
#include "topo_error.h"
#include "topo_graph_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.check"

__extension__ typedef unsigned __int128 wide;

static ist_status refuse_node(const topo_graph *graph, uint32_t node, const char *what)
{
    char quoted[TOPO_QUOTE_BYTES];
    const topo_node *found = &graph->nodes[node];
    return topo_error_at(IST_ERR_PARSE, OPERATION, "topology", 0, "node %" PRIu32 " (%s %s): %s",
                         node, topo_kind_text(found->kind), topo_quote(found->name, quoted), what);
}

static ist_status refuse_link(const topo_graph *graph, uint32_t link, const char *what)
{
    const topo_link *found = &graph->links[link];
    return topo_error_at(IST_ERR_PARSE, OPERATION, "topology", 0,
                         "link %" PRIu32 " (%s, %" PRIu32 " to %" PRIu32 "): %s", link,
                         topo_link_text(found->kind), found->a, found->b, what);
}

/* ------------------------------------------------------------------------------------ nodes */

#define BIT(kind) (1u << (kind))
#define BIT_ROOT (1u << TOPO_KINDS)
#define PLACES                                                                                     \
    (BIT(TOPO_MACHINE) | BIT(TOPO_PACKAGE) | BIT(TOPO_NUMA) | BIT(TOPO_HOST_BRIDGE) |              \
     BIT(TOPO_PCI_SWITCH) | BIT(TOPO_PCI_DEVICE))

/* What a node of each kind may hang below. */
static const uint32_t parents_allowed[TOPO_KINDS] = {
    [TOPO_MACHINE] = BIT_ROOT,
    [TOPO_PACKAGE] = BIT(TOPO_MACHINE),
    [TOPO_NUMA] = BIT(TOPO_MACHINE) | BIT(TOPO_PACKAGE),
    [TOPO_HOST_BRIDGE] = BIT(TOPO_MACHINE) | BIT(TOPO_PACKAGE) | BIT(TOPO_NUMA),
    [TOPO_PCI_SWITCH] = PLACES & ~BIT(TOPO_PCI_DEVICE),
    [TOPO_PCI_DEVICE] = PLACES & ~BIT(TOPO_PCI_DEVICE),
    [TOPO_GPU] = PLACES,
    [TOPO_NIC] = PLACES,
    [TOPO_NVSWITCH] = PLACES | BIT_ROOT,
    [TOPO_NET_SWITCH] = BIT_ROOT | BIT(TOPO_NET_SWITCH),
    [TOPO_RAIL] = BIT_ROOT | BIT(TOPO_NET_SWITCH),
};

static ist_status node_check(const topo_graph *graph, uint32_t node, uint8_t *depths)
{
    const topo_node *found = &graph->nodes[node];
    if (found->kind >= TOPO_KINDS) {
        return refuse_node(graph, node, "unknown kind");
    }
    if (found->parent != TOPO_NONE && found->parent >= node) {
        return refuse_node(graph, node, "its parent does not come before it (a cycle)");
    }
    uint32_t bit = found->parent == TOPO_NONE ? BIT_ROOT : BIT(graph->nodes[found->parent].kind);
    if ((parents_allowed[found->kind] & bit) == 0) {
        return refuse_node(graph, node, "a node of this kind cannot be where it is");
    }
    depths[node] = found->parent == TOPO_NONE ? 1 : (uint8_t)(depths[found->parent] + 1);
    if (depths[node] > TOPO_DEPTH_MAX) {
        return refuse_node(graph, node, "nested too deeply");
    }
    if (found->class_id > 0xffffff) {
        return refuse_node(graph, node, "the PCI class has more than 24 bits");
    }
    bool up = found->uplink != TOPO_NONE;
    if (up && (found->uplink >= graph->link_count || found->parent == TOPO_NONE)) {
        return refuse_node(graph, node, "its uplink leads nowhere");
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ links */

#define GPU_SIDE                                                                                   \
    (BIT(TOPO_GPU) | BIT(TOPO_NVSWITCH) | BIT(TOPO_NUMA) | BIT(TOPO_PACKAGE) | BIT(TOPO_MACHINE))
#define NETWORK (BIT(TOPO_NET_SWITCH) | BIT(TOPO_RAIL))
#define ANYWHERE (BIT_ROOT - 1)

static const uint32_t ends_allowed[TOPO_LINK_KINDS] = {
    [TOPO_LINK_LOCAL] = ANYWHERE & ~NETWORK,
    [TOPO_LINK_NVLINK] = GPU_SIDE,
    [TOPO_LINK_XGMI] = GPU_SIDE,
    [TOPO_LINK_C2C] = GPU_SIDE,
    [TOPO_LINK_PCI] = ANYWHERE & ~NETWORK,
    [TOPO_LINK_SMP] = BIT(TOPO_MACHINE) | BIT(TOPO_PACKAGE) | BIT(TOPO_NUMA),
    [TOPO_LINK_NET] = NETWORK | BIT(TOPO_NIC),
};

static ist_status link_check(const topo_graph *graph, uint32_t link)
{
    const topo_link *found = &graph->links[link];
    if (found->kind >= TOPO_LINK_KINDS || found->health >= TOPO_HEALTHS ||
        found->rate_origin >= TOPO_ORIGINS || found->latency_origin >= TOPO_ORIGINS) {
        return refuse_link(graph, link, "unknown kind, health or origin");
    }
    if (found->a >= graph->node_count || found->b >= graph->node_count) {
        return refuse_link(graph, link, "an end does not exist");
    }
    if (found->a == found->b) {
        return refuse_link(graph, link, "both ends are the same node");
    }
    uint32_t ends = BIT(graph->nodes[found->a].kind) | BIT(graph->nodes[found->b].kind);
    if ((ends & ~ends_allowed[found->kind]) != 0) {
        return refuse_link(graph, link, "a link of this kind cannot have these ends");
    }
    if (found->bytes_per_s > TOPO_RATE_MAX || found->nominal_bytes_per_s > TOPO_RATE_MAX ||
        found->now_bytes_per_s > TOPO_RATE_MAX) {
        return refuse_link(graph, link, "a rate above 1 PB/s");
    }
    if (found->nominal_bytes_per_s > 0 && found->bytes_per_s > found->nominal_bytes_per_s) {
        return refuse_link(graph, link, "carries more than its nominal rate");
    }
    if (found->latency_ps > TOPO_TIME_MAX) {
        return refuse_link(graph, link, "a latency above 1000 s");
    }
    if (found->count > 65536) {
        return refuse_link(graph, link, "more than 65536 links or lanes");
    }
    return IST_OK;
}

static ist_status uplink_check(const topo_graph *graph, uint32_t node)
{
    const topo_node *found = &graph->nodes[node];
    if (found->uplink == TOPO_NONE) {
        return IST_OK;
    }
    const topo_link *link = &graph->links[found->uplink];
    bool fits = (link->a == node && link->b == found->parent) ||
                (link->b == node && link->a == found->parent);
    return fits ? IST_OK : refuse_node(graph, node, "its uplink does not lead to its parent");
}

/* ------------------------------------------------------------------------------------ unique */

typedef struct keyed {
    uint64_t high, low;
    uint32_t place;
} keyed;

static int keyed_compare(const void *left, const void *right)
{
    const keyed *a = left;
    const keyed *b = right;
    wide key_a = (wide)a->high << 64 | a->low;
    wide key_b = (wide)b->high << 64 | b->low;
    if (key_a != key_b) {
        return key_a < key_b ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

/* The second of two equal keys, or TOPO_NONE. Sorts. */
static uint32_t duplicate_of(keyed *keys, uint32_t count)
{
    qsort(keys, count, sizeof(*keys), keyed_compare);
    for (uint32_t i = 1; i < count; i++) {
        if (keys[i].high == keys[i - 1].high && keys[i].low == keys[i - 1].low) {
            return keys[i].place;
        }
    }
    return TOPO_NONE;
}

/* Parents come first, so the machine of every node is known when its children ask. */
static uint32_t root_of(const topo_graph *graph, uint32_t node)
{
    while (graph->nodes[node].parent != TOPO_NONE) {
        node = graph->nodes[node].parent;
    }
    return node;
}

static ist_status buses_unique(const topo_graph *graph, keyed *keys)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].bus != TOPO_BUS_NONE) {
            keys[count++] = (keyed){root_of(graph, i), graph->nodes[i].bus, i};
        }
    }
    uint32_t twice = duplicate_of(keys, count);
    return twice == TOPO_NONE ? IST_OK : refuse_node(graph, twice, "its PCI bus id is given twice");
}

static ist_status links_unique(const topo_graph *graph, keyed *keys)
{
    for (uint32_t i = 0; i < graph->link_count; i++) {
        const topo_link *link = &graph->links[i];
        uint64_t low = link->a < link->b ? link->a : link->b;
        uint64_t high = link->a < link->b ? link->b : link->a;
        keys[i] = (keyed){link->kind, high << 32 | low, i};
    }
    uint32_t twice = duplicate_of(keys, graph->link_count);
    return twice == TOPO_NONE ? IST_OK : refuse_link(graph, twice, "given twice");
}

static ist_status all_check(const topo_graph *graph, uint8_t *depths, keyed *keys)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        IST_RETURN_IF_ERROR(node_check(graph, i, depths));
    }
    for (uint32_t i = 0; i < graph->link_count; i++) {
        IST_RETURN_IF_ERROR(link_check(graph, i));
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        IST_RETURN_IF_ERROR(uplink_check(graph, i));
    }
    IST_RETURN_IF_ERROR(buses_unique(graph, keys));
    return links_unique(graph, keys);
}

ist_status topo_check_structure(const topo_graph *graph)
{
    if (graph->node_count == 0) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, "topology", 0, "there is nothing in it");
    }
    uint32_t most = graph->node_count > graph->link_count ? graph->node_count : graph->link_count;
    uint8_t *depths = ist_alloc(graph->node_count, 1);
    keyed *keys = ist_alloc(most, sizeof(*keys));
    ist_status status = depths == NULL || keys == NULL ? topo_error_memory(OPERATION, "the check")
                                                       : all_check(graph, depths, keys);
    ist_free(keys);
    ist_free(depths);
    return status;
}

#define GPU_LINKS_MAX 64u
#define SWITCH_LINKS_MAX 256u
#define MESHED_LINKS_MAX 24u        /* of a GPU, where NVSwitches are linked to each other */
#define PAIRS_MAX UINT64_C(1048576) /* of a GPU and a NIC in one machine, over all machines */

/* Links of a GPU or NIC are looked through for every question, and every GPU looks at all NICs of
 * its machine: what no machine has, but a file may say. */
ist_status topo_check_size(const topo_graph *graph)
{
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const topo_node *node = &graph->nodes[i];
        bool device = node->kind == TOPO_GPU || node->kind == TOPO_NIC;
        uint32_t most = graph->switch_links > 0 ? MESHED_LINKS_MAX : GPU_LINKS_MAX;
        if (device && topo_degree(graph, i) > most) {
            return refuse_node(graph, i, "more links than a device has");
        }
        bool meshed = (node->kind == TOPO_PCI_SWITCH && graph->peer_links > 0) ||
                      (node->kind == TOPO_NVSWITCH && graph->switch_links > 0);
        if (meshed && topo_degree(graph, i) > SWITCH_LINKS_MAX) {
            return refuse_node(graph, i, "more than 256 links, some of them to other switches");
        }
        if (node->kind == TOPO_GPU && node->machine != TOPO_NONE) {
            uint32_t first = 0;
            pairs += topo_machine_nics(graph, graph->nodes[node->machine].index, &first);
        }
    }
    if (pairs > PAIRS_MAX) {
        return topo_error_at(IST_ERR_RANGE, OPERATION, "topology", 0,
                             "%" PRIu64 " pairs of a GPU and a NIC in one machine, at most %" PRIu64
                             " are read",
                             pairs, PAIRS_MAX);
    }
    return IST_OK;
}

ist_status topo_check(const topo_graph *graph)
{
    IST_RETURN_IF_ERROR(topo_check_structure(graph));
    uint32_t gpus = topo_gpu_count(graph);
    uint32_t near = graph->switch_links > 0 ? 1 : 16;
    /* Members of a domain reach each other; of a large one, those that are near by number. */
    for (uint32_t i = 1; i < gpus; i++) {
        uint32_t low = i > near ? i - near : 0;
        for (uint32_t j = low; j < i; j++) {
            uint32_t a = topo_gpu(graph, i);
            uint32_t b = topo_gpu(graph, j);
            bool linked = topo_path_type_of(graph, a, b) == TOPO_PATH_NVL;
            if (topo_same_domain(graph, a, b) && !linked) {
                return refuse_node(graph, a, "in an NVLink domain that it does not reach");
            }
        }
    }
    return IST_OK;
}
