/* SPDX-License-Identifier: Apache-2.0 */
/* The seal: numbers the nodes, makes the neighbour lists, and lets the other files find domains and
 * affinities. After it the graph does not change.
 */
#include "topo_graph_internal.h"
#include "topo_error.h"

#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.seal"

static ist_status array_make(uint32_t **array, size_t count, const char *what)
{
    *array = ist_alloc(count > 0 ? count : 1, sizeof(uint32_t));
    return *array != NULL ? IST_OK : topo_error_memory(OPERATION, what);
}

/* A parent comes before its children (checked), so one pass is enough. */
static void machines_set(topo_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        topo_node *node = &graph->nodes[i];
        if (node->kind == TOPO_MACHINE) {
            node->machine = i;
        } else {
            node->machine =
                node->parent == TOPO_NONE ? TOPO_NONE : graph->nodes[node->parent].machine;
        }
    }
}

/* ------------------------------------------------------------------------------------ numbering */

typedef struct gpu_order {
    uint64_t rank;
    uint32_t machine;
    uint64_t number;
    uint32_t node;
} gpu_order;

static int gpu_compare(const void *left, const void *right)
{
    const gpu_order *a = left;
    const gpu_order *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->machine != b->machine) {
        return a->machine < b->machine ? -1 : 1;
    }
    if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    return a->node < b->node ? -1 : a->node > b->node;
}

static uint64_t attr_number(const topo_graph *graph, uint32_t node, const char *key)
{
    const char *text = topo_attr_get(graph, node, key);
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return UINT64_MAX;
    }
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 10);
    return *end == '\0' ? value : UINT64_MAX;
}

/* Ranks order GPUs only if every GPU has its own; else machines, then device numbers do. */
static void gpus_sort(const topo_graph *graph, uint32_t *gpus, uint32_t count, gpu_order *orders)
{
    bool ranked = true;
    for (uint32_t i = 0; i < count; i++) {
        const topo_node *node = &graph->nodes[gpus[i]];
        orders[i] =
            (gpu_order){attr_number(graph, gpus[i], "rank"), node->machine, node->number, gpus[i]};
        ranked = ranked && orders[i].rank != UINT64_MAX;
    }
    qsort(orders, count, sizeof(*orders), gpu_compare);
    for (uint32_t i = 1; i < count && ranked; i++) {
        ranked = orders[i].rank != orders[i - 1].rank;
    }
    for (uint32_t i = 0; i < count && !ranked; i++) {
        orders[i].rank = 0;
    }
    if (!ranked) {
        qsort(orders, count, sizeof(*orders), gpu_compare);
    }
    for (uint32_t i = 0; i < count; i++) {
        gpus[i] = orders[i].node;
    }
}

static ist_status nodes_number(topo_graph *graph)
{
    IST_RETURN_IF_ERROR(array_make(&graph->by_kind, graph->node_count, "the lists of nodes"));
    uint32_t place[TOPO_KINDS + 1] = {0};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        place[graph->nodes[i].kind + 1]++;
    }
    for (uint32_t kind = 0; kind < TOPO_KINDS; kind++) {
        place[kind + 1] += place[kind];
    }
    memcpy(graph->kind_first, place, sizeof(place));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        graph->by_kind[place[graph->nodes[i].kind]++] = i;
    }
    uint32_t gpus = topo_gpu_count(graph);
    gpu_order *orders = ist_alloc(gpus > 0 ? gpus : 1, sizeof(*orders));
    if (orders == NULL) {
        return topo_error_memory(OPERATION, "the order of GPUs");
    }
    gpus_sort(graph, graph->by_kind + graph->kind_first[TOPO_GPU], gpus, orders);
    ist_free(orders);
    for (uint32_t kind = 0; kind < TOPO_KINDS; kind++) {
        for (uint32_t i = graph->kind_first[kind]; i < graph->kind_first[kind + 1]; i++) {
            graph->nodes[graph->by_kind[i]].index = i - graph->kind_first[kind];
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ lists */

static ist_status adjacency_make(topo_graph *graph)
{
    uint32_t *place = NULL;
    IST_RETURN_IF_ERROR(
        array_make(&graph->adjacent_first, (size_t)graph->node_count + 1, "neighbour lists"));
    IST_RETURN_IF_ERROR(
        array_make(&graph->adjacent, 2 * (size_t)graph->link_count, "neighbour lists"));
    for (uint32_t i = 0; i < graph->link_count; i++) {
        graph->adjacent_first[graph->links[i].a + 1]++;
        graph->adjacent_first[graph->links[i].b + 1]++;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        graph->adjacent_first[i + 1] += graph->adjacent_first[i];
    }
    IST_RETURN_IF_ERROR(array_make(&place, graph->node_count, "neighbour lists"));
    memcpy(place, graph->adjacent_first, graph->node_count * sizeof(*place));
    for (uint32_t i = 0; i < graph->link_count; i++) {
        graph->adjacent[place[graph->links[i].a]++] = i;
        graph->adjacent[place[graph->links[i].b]++] = i;
    }
    ist_free(place);
    return IST_OK;
}

static ist_status machine_nics_make(topo_graph *graph)
{
    uint32_t machines = topo_kind_count(graph, TOPO_MACHINE);
    uint32_t nics = topo_nic_count(graph);
    uint32_t *place = NULL;
    IST_RETURN_IF_ERROR(array_make(&graph->machine_nics, nics, "the lists of NICs"));
    IST_RETURN_IF_ERROR(
        array_make(&graph->machine_first, (size_t)machines + 1, "the lists of NICs"));
    for (uint32_t i = 0; i < nics; i++) {
        const topo_node *nic = &graph->nodes[topo_nic(graph, i)];
        if (nic->machine != TOPO_NONE) {
            graph->machine_first[graph->nodes[nic->machine].index + 1]++;
        }
    }
    for (uint32_t i = 0; i < machines; i++) {
        graph->machine_first[i + 1] += graph->machine_first[i];
    }
    IST_RETURN_IF_ERROR(array_make(&place, machines, "the lists of NICs"));
    memcpy(place, graph->machine_first, machines * sizeof(*place));
    for (uint32_t i = 0; i < nics; i++) {
        uint32_t nic = topo_nic(graph, i);
        uint32_t machine = graph->nodes[nic].machine;
        if (machine != TOPO_NONE) {
            graph->machine_nics[place[graph->nodes[machine].index]++] = nic;
        }
    }
    ist_free(place);
    return IST_OK;
}

static ist_status machine_numas_make(topo_graph *graph)
{
    uint32_t machines = topo_kind_count(graph, TOPO_MACHINE);
    IST_RETURN_IF_ERROR(array_make(&graph->machine_numas, machines, "the counts of NUMA nodes"));
    for (uint32_t i = 0; i < topo_kind_count(graph, TOPO_NUMA); i++) {
        uint32_t machine = graph->nodes[topo_kind_at(graph, TOPO_NUMA, i)].machine;
        graph->machine_numas[graph->nodes[machine].index]++;
    }
    return IST_OK;
}

static void special_links_count(topo_graph *graph)
{
    for (uint32_t i = 0; i < graph->link_count; i++) {
        const topo_link *link = &graph->links[i];
        const topo_node *a = &graph->nodes[link->a];
        const topo_node *b = &graph->nodes[link->b];
        graph->peer_links += link->kind == TOPO_LINK_PCI && a->uplink != i && b->uplink != i;
        graph->switch_links +=
            link->kind == TOPO_LINK_NVLINK && a->kind == TOPO_NVSWITCH && b->kind == TOPO_NVSWITCH;
    }
}

uint32_t topo_machine_nics(const topo_graph *graph, uint32_t machine, uint32_t *first)
{
    *first = graph->machine_first[machine];
    return graph->machine_first[machine + 1] - *first;
}

ist_status topo_graph_seal(topo_graph *graph)
{
    IST_RETURN_IF_ERROR(topo_check_structure(graph));
    machines_set(graph);
    IST_RETURN_IF_ERROR(nodes_number(graph));
    IST_RETURN_IF_ERROR(adjacency_make(graph));
    IST_RETURN_IF_ERROR(machine_nics_make(graph));
    IST_RETURN_IF_ERROR(machine_numas_make(graph));
    special_links_count(graph);
    IST_RETURN_IF_ERROR(topo_check_size(graph));
    IST_RETURN_IF_ERROR(topo_domains_find(graph));
    IST_RETURN_IF_ERROR(topo_affinity_find(graph));
    graph->sealed = true;
    return IST_OK;
}
