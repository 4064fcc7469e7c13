/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what hwloc sees of this machine and writes it as one line. The topology lives only inside
 * the call.
 */
#include "topo_host.h"
#include "topo_live.h"

#include <isthmus/backend.h>
#include <hwloc.h>
#include <inttypes.h>
#include <stdio.h>

#define PCI_BASE_DISPLAY 0x03u /* base class of VGA, 3D and other display controllers */
#define LINE_CAPACITY 192

/* hwloc answers -1 when a type lives on several levels; a line for people then shows none. */
static unsigned count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? (unsigned)count : 0;
}

static unsigned gpu_count(hwloc_topology_t topology)
{
    unsigned count = 0;
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_pcidev(topology, device)) != NULL) {
        count += (device->attr->pcidev.class_id >> 8) == PCI_BASE_DISPLAY;
    }
    return count;
}

static const char *plural(unsigned count)
{
    return count == 1 ? "" : "s";
}

static void line_write(hwloc_topology_t topology, char line[LINE_CAPACITY])
{
    unsigned packages = count_of(topology, HWLOC_OBJ_PACKAGE);
    unsigned cores = count_of(topology, HWLOC_OBJ_CORE);
    unsigned pus = count_of(topology, HWLOC_OBJ_PU);
    unsigned nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    unsigned gpus = gpu_count(topology);
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    const char *version = hwloc_obj_get_info_by_name(root, "hwlocVersion");
    uint64_t memory = root->total_memory;
    char gpu_text[24] = "";
    if (gpus > 0) {
        (void)snprintf(gpu_text, sizeof(gpu_text), "%u GPU%s, ", gpus, plural(gpus));
    }
    (void)snprintf(line, LINE_CAPACITY,
                   "%u package%s, %u core%s, %u PU%s, %u NUMA node%s, %" PRIu64 " GiB, %shwloc %s",
                   packages, plural(packages), cores, plural(cores), pus, plural(pus), nodes,
                   plural(nodes), memory >> 30, gpu_text, version != NULL ? version : "unknown");
}

static ist_status refuse(const char *step, char line[LINE_CAPACITY])
{
    ist_error details = {.size = sizeof(details),
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .object = "hwloc",
                         .operation = "host.describe"};
    (void)snprintf(line, LINE_CAPACITY, "unknown: %s failed", step);
    return ist_raise(IST_ERR_SYSTEM, &details, "%s failed", step);
}

static ist_status topology_read(hwloc_topology_t topology, char line[LINE_CAPACITY])
{
    topo_hwloc_quiet(topology);
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0) {
        return refuse("hwloc_topology_set_io_types_filter", line);
    }
    if (hwloc_topology_load(topology) != 0) {
        return refuse("hwloc_topology_load", line);
    }
    line_write(topology, line);
    return IST_OK;
}

ist_status ist_host_describe(char *text, size_t capacity)
{
    char line[LINE_CAPACITY];
    hwloc_topology_t topology = NULL;
    ist_status status = IST_OK;
    if (hwloc_topology_init(&topology) != 0) {
        status = refuse("hwloc_topology_init", line);
    } else {
        status = topology_read(topology, line);
        hwloc_topology_destroy(topology);
    }
    (void)snprintf(text, capacity, "%s", line);
    return status;
}
