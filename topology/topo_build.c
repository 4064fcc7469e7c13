/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that all readers share.
 */
#include "topo_build.h"
#include "topo_error.h"
#include "topo_text.h"

#include <stdio.h>
#include <stdlib.h>

#define OPERATION "topology.build"
#define NET_DEFAULT UINT64_C(1250000000) /* 10 Gb/s, as NCCL assumes */

ist_status topo_build_link(topo_graph *graph, topo_link_kind kind, uint32_t a, uint32_t b,
                           uint32_t count, uint64_t nominal, uint64_t effective, topo_origin origin)
{
    topo_link link = {.a = a,
                      .b = b,
                      .kind = kind,
                      .health = TOPO_HEALTHY,
                      .count = count,
                      .rate_origin = origin,
                      .latency_origin = TOPO_DEFAULT,
                      .bytes_per_s = effective,
                      .nominal_bytes_per_s = nominal,
                      .latency_ps = topo_latency(kind)};
    return topo_link_add(graph, &link, NULL);
}

ist_status topo_build_part(topo_graph *graph, topo_kind kind, uint32_t parent, const char *name,
                           uint32_t *id)
{
    IST_RETURN_IF_ERROR(topo_node_add(graph, kind, parent, name, id));
    return topo_build_link(graph, TOPO_LINK_LOCAL, *id, parent, 0, 0, 0, TOPO_DEFAULT);
}

ist_status topo_build_socket(topo_graph *graph, topo_kind kind, uint32_t parent, const char *name,
                             uint64_t rate, uint32_t *id)
{
    IST_RETURN_IF_ERROR(topo_node_add(graph, kind, parent, name, id));
    return topo_build_link(graph, TOPO_LINK_SMP, *id, parent, 0, rate, rate, TOPO_DEFAULT);
}

ist_status topo_build_pci(topo_graph *graph, uint32_t node, uint32_t generation, uint32_t width)
{
    bool known = generation > 0 && width > 0;
    uint32_t assumed_generation = generation > 0 ? generation : 3;
    uint32_t assumed_width = width > 0 ? width : 16;
    return topo_build_link(graph, TOPO_LINK_PCI, node, topo_node_edit(graph, node)->parent, width,
                           known ? topo_pci_nominal(generation, width) : 0,
                           topo_pci_effective(assumed_generation, assumed_width),
                           known ? TOPO_VENDOR : TOPO_DEFAULT);
}

ist_status topo_build_net(topo_graph *graph, uint32_t nic, uint32_t net_switch,
                          uint64_t bytes_per_s)
{
    uint64_t rate = bytes_per_s > 0 ? bytes_per_s : NET_DEFAULT;
    return topo_build_link(graph, TOPO_LINK_NET, nic, net_switch, 1,
                           bytes_per_s > 0 ? bytes_per_s : 0, rate,
                           bytes_per_s > 0 ? TOPO_VENDOR : TOPO_DEFAULT);
}

/* Marks the NICs that have a network link already. */
static void linked_mark(topo_graph *graph, uint8_t *linked)
{
    for (uint32_t i = 0; i < topo_link_count(graph); i++) {
        const topo_link *link = topo_link_at(graph, i);
        if (link->kind == TOPO_LINK_NET) {
            linked[link->a] = 1;
            linked[link->b] = 1;
        }
    }
}

static ist_status network_join(topo_graph *graph, const uint64_t *rates, const uint8_t *linked,
                               uint32_t count)
{
    uint32_t network = TOPO_NONE;
    for (uint32_t i = 0; i < count; i++) {
        if (topo_node_at(graph, i)->kind != TOPO_NIC || linked[i] != 0) {
            continue;
        }
        if (network == TOPO_NONE) {
            IST_RETURN_IF_ERROR(
                topo_node_add(graph, TOPO_NET_SWITCH, TOPO_NONE, "network", &network));
            IST_RETURN_IF_ERROR(topo_missing_add(
                graph, "network switches",
                "the source ends at the NICs; one switch that never blocks stands for the "
                "network"));
        }
        IST_RETURN_IF_ERROR(topo_build_net(graph, i, network, rates[i]));
        if (rates[i] == 0) {
            IST_RETURN_IF_ERROR(topo_missing_add(graph, "rates of NICs",
                                                 "not stated for all; 10 Gb/s is assumed there"));
        }
    }
    return IST_OK;
}

ist_status topo_build_network(topo_graph *graph, const uint64_t *rates)
{
    uint32_t count = topo_node_count(graph);
    uint8_t *linked = ist_alloc(count > 0 ? count : 1, 1);
    if (linked == NULL) {
        return topo_error_memory(OPERATION, "the network");
    }
    linked_mark(graph, linked);
    ist_status status = network_join(graph, rates, linked, count);
    ist_free(linked);
    return status;
}

uint32_t topo_build_machine(topo_graph *graph, uint32_t node)
{
    while (topo_node_at(graph, node)->parent != TOPO_NONE) {
        node = topo_node_at(graph, node)->parent;
    }
    return node;
}

uint32_t topo_build_processor(topo_graph *graph, uint32_t node)
{
    topo_kind kind = topo_node_edit(graph, node)->kind;
    while (kind != TOPO_NUMA && kind != TOPO_PACKAGE && kind != TOPO_MACHINE) {
        node = topo_node_edit(graph, node)->parent;
        kind = topo_node_edit(graph, node)->kind;
    }
    return node;
}

/* ------------------------------------------------------------------------------------ bus ids */

static int entry_compare(const void *left, const void *right)
{
    const topo_bus_entry *a = left;
    const topo_bus_entry *b = right;
    if (a->root != b->root) {
        return a->root < b->root ? -1 : 1;
    }
    if (a->bus != b->bus) {
        return a->bus < b->bus ? -1 : 1;
    }
    return a->node < b->node ? -1 : a->node > b->node;
}

ist_status topo_bus_index_make(topo_graph *graph, topo_bus_index *index)
{
    uint32_t count = topo_node_count(graph);
    topo_bus_entry *entries = ist_alloc(count > 0 ? count : 1, sizeof(*entries));
    if (entries == NULL) {
        return topo_error_memory(OPERATION, "the index of bus ids");
    }
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (topo_node_at(graph, i)->bus != TOPO_BUS_NONE) {
            entries[used++] =
                (topo_bus_entry){topo_build_machine(graph, i), i, topo_node_at(graph, i)->bus};
        }
    }
    qsort(entries, used, sizeof(*entries), entry_compare);
    *index = (topo_bus_index){entries, used};
    return IST_OK;
}

void topo_bus_index_free(topo_bus_index *index)
{
    ist_free(index->entries);
    *index = (topo_bus_index){0};
}

uint32_t topo_bus_find(const topo_bus_index *index, uint32_t machine, uint64_t bus)
{
    uint32_t low = 0;
    uint32_t high = index->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const topo_bus_entry *entry = &index->entries[middle];
        if (entry->root < machine || (entry->root == machine && entry->bus < bus)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found =
        low < index->count && index->entries[low].root == machine && index->entries[low].bus == bus;
    return found ? index->entries[low].node : TOPO_NONE;
}

/* ----------------------------------------------------------------------------------- slow links */

static ist_status notice_one(topo_graph *graph, uint32_t node, uint64_t above, uint64_t below)
{
    topo_text why = {0};
    char bus[TOPO_BUS_TEXT];
    topo_bus_print(topo_node_at(graph, node)->bus, bus);
    topo_text_add(&why, "%s states ", bus);
    topo_text_add_rate(&why, above);
    topo_text_add(&why, " above a device with ");
    topo_text_add_rate(&why, below);
    topo_text_add(&why, ": a link at rest trains down, a virtual port says anything");
    ist_status status = topo_text_status(&why, OPERATION);
    if (status == IST_OK) {
        status = topo_missing_add(graph, "true rate of a PCIe link", why.bytes);
    }
    topo_text_free(&why);
    return status;
}

/* Children come after their parents, so going backwards sees the fastest below each switch
 * first. */
ist_status topo_build_notice_slow(topo_graph *graph)
{
    uint32_t count = topo_node_count(graph);
    uint64_t *below = ist_alloc(count > 0 ? count : 1, sizeof(*below));
    ist_status status = below != NULL ? IST_OK : topo_error_memory(OPERATION, "PCIe rates");
    for (uint32_t i = count; i-- > 0 && status == IST_OK;) {
        const topo_node *node = topo_node_at(graph, i);
        topo_link *up = node->uplink != TOPO_NONE ? topo_link_edit(graph, node->uplink) : NULL;
        if (up == NULL || up->kind != TOPO_LINK_PCI) {
            continue;
        }
        uint64_t own = up->nominal_bytes_per_s;
        if (node->kind == TOPO_PCI_SWITCH && own > 0 && below[i] > 2 * own) {
            up->health = TOPO_DEGRADED;
            status = notice_one(graph, i, own, below[i]);
        }
        uint64_t most = own > below[i] ? own : below[i];
        uint64_t *above = &below[node->parent];
        *above = most > *above ? most : *above;
    }
    ist_free(below);
    return status;
}
