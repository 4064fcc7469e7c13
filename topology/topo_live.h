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

/* What hwloc makes of this machine, or of a synthetic string that it can be trusted with. */
ist_status topo_hwloc_take(const char *synthetic, topo_graph *graph);

#endif
