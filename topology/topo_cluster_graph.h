/* SPDX-License-Identifier: Apache-2.0 */
/* A one-line cluster written out as a graph: every machine, GPU, NIC and switch.
 */
#ifndef TOPO_CLUSTER_GRAPH_H
#define TOPO_CLUSTER_GRAPH_H

#include "topo_cluster.h"
#include "topo_graph.h"

/* Builds the first `machine_max` machines (0: all) and the network for them. `origin` is that of
 * numbers that differ from the defaults: TOPO_VENDOR for what somebody wrote, TOPO_MEASURED for a
 * profile. Not sealed. IST_ERR_RANGE when the graph would pass its limits. */
ist_status topo_cluster_build(const ist_cluster *cluster, uint64_t machine_max, topo_origin origin,
                              topo_graph *graph);

#endif
