/* SPDX-License-Identifier: Apache-2.0 */
/* What readers do again and again: a node with its link to its parent, links of usual kinds, one
 * network that joins NICs of which nothing else is known, and lookups by bus id.
 */
#ifndef TOPO_BUILD_H
#define TOPO_BUILD_H

#include "topo_graph.h"
#include "topo_pci.h"

/* A node with a link of no cost to its parent. */
ist_status topo_build_part(topo_graph *graph, topo_kind kind, uint32_t parent, const char *name,
                           uint32_t *id);

/* A NUMA node or package, linked to its parent at the rate of the processor. */
ist_status topo_build_socket(topo_graph *graph, topo_kind kind, uint32_t parent, const char *name,
                             uint64_t rate, uint32_t *id);

/* The PCI link of a node to its parent; generation or width 0: assumed third generation or 16
 * lanes, and said so by the origin. */
ist_status topo_build_pci(topo_graph *graph, uint32_t node, uint32_t generation, uint32_t width);

/* A link of nominal and effective rate, latency by kind. */
ist_status topo_build_link(topo_graph *graph, topo_link_kind kind, uint32_t a, uint32_t b,
                           uint32_t count, uint64_t nominal, uint64_t effective,
                           topo_origin origin);

/* Link of a NIC to a switch. `bytes_per_s` 0: assumed 10 Gb/s. */
ist_status topo_build_net(topo_graph *graph, uint32_t nic, uint32_t net_switch,
                          uint64_t bytes_per_s);

/* Adds "network" when there is a NIC without a network link, and links those to it. `rates` are
 * bytes per second by node, 0 where not known. Says that switches are missing. */
ist_status topo_build_network(topo_graph *graph, const uint64_t *rates);

/* Nodes by machine and bus id. */
typedef struct topo_bus_entry {
    uint32_t root; /* the machine's node */
    uint32_t node;
    uint64_t bus;
} topo_bus_entry;

typedef struct topo_bus_index {
    topo_bus_entry *entries;
    uint32_t count;
} topo_bus_index;

ist_status topo_bus_index_make(topo_graph *graph, topo_bus_index *index);
void topo_bus_index_free(topo_bus_index *index);

/* The node with a bus id in a machine; TOPO_NONE. */
uint32_t topo_bus_find(const topo_bus_index *index, uint32_t machine, uint64_t bus);

/* Walks up to the machine of a node before the seal. */
uint32_t topo_build_machine(topo_graph *graph, uint32_t node);

/* The nearest NUMA node, package or machine above: the processor's end of a chip-to-chip link. */
uint32_t topo_build_processor(topo_graph *graph, uint32_t node);

/* What is said of links that state less than their ends can do; marks them degraded. A link below
 * which something faster hangs is likely to have trained down. */
ist_status topo_build_notice_slow(topo_graph *graph);

#endif
