/* SPDX-License-Identifier: Apache-2.0 */
/* From anything that describes a machine to a sealed, checked graph.
 */
#ifndef TOPO_LOAD_H
#define TOPO_LOAD_H

#include "topo_graph.h"

typedef struct topo_load_options {
    const char *group;    /* NCCL files with several groups: part of the name of the one to read */
    uint64_t machine_max; /* cluster lines: machines to write out; 0: all */
} topo_load_options;

/* `source`: "live" for this machine; the path of a file (NCCL or hwloc XML, JSON, or a text file
 * with a line); a cluster line; a synthetic string of hwloc. What is a path is tried as a path
 * first. IST_ERR_PARSE naming line and reason; IST_ERR_IO; IST_ERR_RANGE for what is too large. */
ist_status topo_load(const char *source, const topo_load_options *options, topo_graph **graph);

/* The same from bytes in memory; `name` stands for the file in messages. */
ist_status topo_load_bytes(const char *bytes, size_t count, const char *name,
                           const topo_load_options *options, topo_graph **graph);

#endif
