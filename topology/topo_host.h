/* SPDX-License-Identifier: Apache-2.0 */
/* One line about the machine this process runs on, read by hwloc: packages, cores, PUs, NUMA nodes,
 * memory, GPUs. For people, never for decisions: the simulator does not look at its host.
 */
#ifndef TOPO_HOST_H
#define TOPO_HOST_H

#include <isthmus/status.h>
#include <stddef.h>

/* Writes e.g. "2 packages, 64 cores, 128 PUs, 2 NUMA nodes, 256 GiB, 8 GPUs, hwloc 2.9.0", ending
 * in a NUL, cut to `capacity` (at least 1). When hwloc fails the text says so and the status is
 * IST_ERR_SYSTEM. */
ist_status ist_host_describe(char *text, size_t capacity);

#endif
