/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what the machine has. Allowed processors only, so that a container tells its own share.
 */
#include "cli_host.h"

#include <hwloc.h>
#include <stdio.h>

static int count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count < 0 ? 0 : count;
}

static void describe(hwloc_topology_t topology, char *text, size_t capacity)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    int packages = count_of(topology, HWLOC_OBJ_PACKAGE);
    int nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    snprintf(text, capacity, "%d package%s, %d cores, %d threads, %d NUMA node%s, %llu GiB",
             packages, packages == 1 ? "" : "s", count_of(topology, HWLOC_OBJ_CORE),
             count_of(topology, HWLOC_OBJ_PU), nodes, nodes == 1 ? "" : "s",
             (unsigned long long)(root->total_memory >> 30));
}

void cli_host_describe(char *text, size_t capacity)
{
    hwloc_topology_t topology;
    text[0] = '\0';
    if (hwloc_topology_init(&topology) != 0) {
        return;
    }
    if (hwloc_topology_load(topology) == 0) {
        describe(topology, text, capacity);
    }
    hwloc_topology_destroy(topology);
}
