/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that make and seal a graph share.
 */
#ifndef TOPO_GRAPH_INTERNAL_H
#define TOPO_GRAPH_INTERNAL_H

#include "topo_arena.h"
#include "topo_graph.h"

struct topo_graph {
    topo_node *nodes;
    topo_link *links;
    topo_attr *attrs;
    topo_missing *missing;
    uint32_t node_count, node_room;
    uint32_t link_count, link_room;
    uint32_t attr_count, attr_room;
    uint32_t missing_count, missing_room;
    topo_arena texts;
    const char *source;
    bool sealed;

    /* Made by the seal. */
    uint32_t *adjacent_first; /* [node_count + 1] into adjacent */
    uint32_t *adjacent;       /* [2 * link_count] links, ascending by link */
    uint32_t kind_first[TOPO_KINDS + 1];
    uint32_t *by_kind;       /* [node_count] nodes, by kind and index */
    uint32_t *machine_nics;  /* [nics] nodes, by machine */
    uint32_t *machine_first; /* [machines + 1] into machine_nics */
    uint32_t *machine_numas; /* [machines] NUMA nodes of each */
    uint32_t *nics_in;       /* [nodes] NICs below each */
    uint32_t *gpu_nic;       /* [gpus] node of the NIC it should use, or TOPO_NONE */
    uint32_t peer_links;     /* PCI links beside the tree */
    uint32_t switch_links;   /* NVLinks between NVSwitches */
    uint32_t domain_count;
    uint32_t rail_count;
};

/* Steps of the seal, in this order. */
ist_status topo_check_structure(const topo_graph *graph); /* before the lists exist */
ist_status topo_check_size(const topo_graph *graph);      /* what would make questions slow */
ist_status topo_domains_find(topo_graph *graph);
ist_status topo_affinity_find(topo_graph *graph);

/* Type of the best path that stays in a machine or NVLink domain; NONE when there is none. Needs no
 * affinities, which are found with it. */
topo_path_type topo_path_near_type(const topo_graph *graph, uint32_t from, uint32_t to);

/* NICs of a machine (its index): [first, first + count) of graph->machine_nics. */
uint32_t topo_machine_nics(const topo_graph *graph, uint32_t machine, uint32_t *first);

#endif
