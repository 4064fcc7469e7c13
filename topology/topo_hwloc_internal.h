/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the hwloc reader share: objects, and the links between GPUs.
 */
#ifndef TOPO_HWLOC_INTERNAL_H
#define TOPO_HWLOC_INTERNAL_H

#include "topo_hwloc.h"

#define TOPO_HWLOC_NUMAS 1024u
#define TOPO_HWLOC_PACKAGES 4096u

typedef struct topo_hwloc_numa {
    uint64_t os_index;
    uint32_t node;
} topo_hwloc_numa;

/* An object that a distance matrix may name. */
typedef struct topo_hwloc_named {
    uint64_t gp_index;
    uint32_t node;
} topo_hwloc_named;

typedef struct topo_hwloc_reader {
    const topo_document *document;
    topo_graph *graph;
    uint32_t machine;
    uint32_t numa_count, package_count;
    topo_hwloc_numa numas[TOPO_HWLOC_NUMAS];
    uint32_t packages[TOPO_HWLOC_PACKAGES]; /* nodes, in the order of the file */
    uint32_t package_next;                  /* while I/O is read */
    topo_hwloc_named *names;
    uint32_t name_count, name_room;
    bool io_seen;
} topo_hwloc_reader;

/* Records IST_ERR_PARSE for an element. */
ist_status topo_hwloc_refuse(const topo_hwloc_reader *self, const topo_element *element,
                             const char *what);

/* Reads a decimal attribute; TOPO_BUS_NONE for hwloc's "unknown". `value` stays without the attribute. */
ist_status topo_hwloc_number(const topo_hwloc_reader *self, const topo_element *element,
                             const char *key, uint64_t *value);

/* NVLink and XGMI from matrices and infos, when all objects are there. */
ist_status topo_hwloc_links_read(topo_hwloc_reader *self);

#endif
