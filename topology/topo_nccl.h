/* SPDX-License-Identifier: Apache-2.0 */
/* Topology XML of NCCL and its relatives: read into a graph, and written from one.
 */
#ifndef TOPO_NCCL_H
#define TOPO_NCCL_H

#include "topo_graph.h"
#include "topo_text.h"
#include "topo_xml.h"

/* PCI domain of bus ids that the writer makes up for nodes that have none; the reader drops
 * them. */
#define TOPO_NCCL_VIRTUAL UINT64_C(0xffffffe)

/* Reads <system>, or a fragment that begins with <cpu> or <pci>. A file with several <group>s, of
 * which a machine is one, needs `group`, part of a group's name; NULL: the first, and it is said
 * so. The graph is not sealed. */
ist_status topo_nccl_read(const topo_document *document, const char *group, topo_graph *graph);

/* Reads <graphs>: rings and trees that NCCL found. They say who is whose neighbour and over what
 * kind of path, nothing more. */
ist_status topo_nccl_graphs_read(const topo_document *document, topo_graph *graph);

/* Writes a sealed graph. What the format has no word for goes into attributes that begin with ist_,
 * which its other readers skip. Network switches are left out. */
void topo_nccl_write(const topo_graph *graph, topo_text *text);

#endif
