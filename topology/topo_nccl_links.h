/* SPDX-License-Identifier: Apache-2.0 */
/* Links of NCCL files that name their far ends by bus id: collected while the tree is read, and made
 * when all bus ids are known.
 */
#ifndef TOPO_NCCL_LINKS_H
#define TOPO_NCCL_LINKS_H

#include "topo_graph.h"

/* An <nvlink>, <xgmi> or <pcilink>. The texts belong to the document. */
typedef struct topo_far_link {
    uint32_t gpu; /* or, with pci, a switch */
    uint32_t count;
    uint32_t tclass;
    bool xgmi;
    bool pci;
    const char *target;
    uint64_t line;
} topo_far_link;

typedef struct topo_far_links {
    topo_far_link *items; /* ist_free() it */
    uint32_t count, room;
} topo_far_links;

ist_status topo_far_add(topo_far_links *links, const topo_far_link *link);

/* Makes the links, and NVSwitches where the files only name them. `name` is that of the file. */
ist_status topo_far_links_make(const topo_far_links *links, const char *name, topo_graph *graph);

/* Whether a bus id is one of those that NCCL gives to switches it cannot see. */
bool topo_far_is_global(uint64_t bus);

#endif
