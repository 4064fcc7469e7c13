/* SPDX-License-Identifier: Apache-2.0 */
/* This machine, in layers: hwloc for sockets, memory and PCI; the system's files for rates of NICs
 * and what links can do at most; NVML, opened at run time, for NVLink, peer access and fabrics. A
 * layer that is not there is named as missing.
 */
#ifndef TOPO_LIVE_H
#define TOPO_LIVE_H

#include "topo_graph.h"

struct hwloc_topology;

/* Leaves out components of hwloc that start drivers. Before the topology is loaded. */
void topo_hwloc_quiet(struct hwloc_topology *topology);

/* Reads this machine. Not sealed. */
ist_status topo_live_read(topo_graph *graph);

/* Reads a synthetic string of hwloc, as "pack:2 numa:2 core:8 pu:2". Not sealed. */
ist_status topo_synthetic_read(const char *text, topo_graph *graph);

/* Whether a text looks like a synthetic string rather than a cluster line. */
bool topo_is_synthetic(const char *text);

#endif
