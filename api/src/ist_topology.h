/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of topologies share.
 */
#ifndef IST_TOPOLOGY_H
#define IST_TOPOLOGY_H

#include "ist_internal.h"

#include "cost_graph.h"
#include "topo_comm.h"

#include <isthmus/unstable/topology.h>

struct ist_topology {
    topo_graph *graph;
};

ist_topology_comparison ist_topology_tell(const topo_formed *found, const topo_report *report);

/* One line at level warn. */
void ist_topology_warn(const topo_graph *graph, const topo_formed *found,
                       const topo_report *report);

#endif
