/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc's XML of any version (1.x, 2.x, 3.x) into a graph.
 */
#ifndef TOPO_HWLOC_H
#define TOPO_HWLOC_H

#include "topo_graph.h"
#include "topo_xml.h"

/* Reads <topology>. The graph is not sealed; NICs are not joined to a network yet
 * (topo_build_network()), so that a live machine can add their rates. */
ist_status topo_hwloc_read(const topo_document *document, topo_graph *graph);

#endif
