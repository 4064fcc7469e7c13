/* SPDX-License-Identifier: Apache-2.0 */
/* The live machine: hwloc's own XML through the reader that files go through, then what the
 * system's files and NVML know beyond it.
 */
#include "topo_live.h"
#include "topo_build.h"
#include "topo_error.h"
#include "topo_hwloc.h"
#include "topo_nvml.h"

#include <hwloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPERATION "topology.live"
#define PATH_BYTES 256

/* ------------------------------------------------------------------------------------ hwloc */

/* The system's own files answer all that is asked here. The other components would start GPU
 * drivers, and the one for PCI uses a library that does not free its memory. A component that this
 * hwloc does not have needs no leaving out, so the answer does not matter. */
void topo_hwloc_quiet(struct hwloc_topology *topology)
{
    static const char *const names[] = {"pci", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            names[i]);
    }
}

static ist_status refuse(const char *step)
{
    return topo_error_at(IST_ERR_SYSTEM, OPERATION, "hwloc", 0, "%s failed", step);
}

static ist_status xml_take(hwloc_topology_t topology, topo_graph *graph)
{
    char *xml = NULL;
    int length = 0;
    topo_document document;
    if (hwloc_topology_export_xmlbuffer(topology, &xml, &length, 0) != 0) {
        return refuse("hwloc_topology_export_xmlbuffer");
    }
    /* The length counts the NUL. */
    size_t count = length > 0 ? strnlen(xml, (size_t)length) : 0;
    ist_status status = topo_xml_parse(xml, count, "hwloc", &document);
    if (status == IST_OK) {
        status = topo_hwloc_read(&document, graph);
        topo_xml_free(&document);
    }
    hwloc_free_xmlbuffer(topology, xml);
    return status;
}

static ist_status topology_take(hwloc_topology_t topology, const char *synthetic, topo_graph *graph)
{
    topo_hwloc_quiet(topology);
    if (synthetic != NULL && hwloc_topology_set_synthetic(topology, synthetic) != 0) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, "synthetic", 0,
                             "hwloc does not understand the string");
    }
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0) {
        return refuse("hwloc_topology_set_io_types_filter");
    }
    if (hwloc_topology_load(topology) != 0) {
        return refuse("hwloc_topology_load");
    }
    return xml_take(topology, graph);
}

ist_status topo_hwloc_take(const char *synthetic, topo_graph *graph)
{
    hwloc_topology_t topology = NULL;
    if (hwloc_topology_init(&topology) != 0) {
        return refuse("hwloc_topology_init");
    }
    ist_status status = topology_take(topology, synthetic, graph);
    hwloc_topology_destroy(topology);
    return status;
}

/* ------------------------------------------------------------------------------------ files */

/* First line of a small file; false when it cannot be read. */
static bool line_of(char line[64], const char *format, const char *a, const char *b)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof(path), format, a, b);
    FILE *file = length > 0 && length < PATH_BYTES ? fopen(path, "r") : NULL;
    if (file == NULL) {
        return false;
    }
    bool read = fgets(line, 64, file) != NULL;
    (void)fclose(file);
    line[read ? strcspn(line, "\n") : 0] = '\0';
    return read;
}

static void pci_state(const char *bus, const char *which, uint32_t *generation, uint32_t *width)
{
    char line[64];
    char name[32];
    *generation = 0;
    *width = 0;
    (void)snprintf(name, sizeof(name), "%s_link_speed", which);
    if (line_of(line, "/sys/bus/pci/devices/%s/%s", bus, name)) {
        *generation = topo_pci_generation(line);
    }
    (void)snprintf(name, sizeof(name), "%s_link_width", which);
    if (line_of(line, "/sys/bus/pci/devices/%s/%s", bus, name)) {
        *width = (uint32_t)strtoul(line, NULL, 10);
    }
    *width = *width <= 32 ? *width : 0; /* 255: not known */
}

static void link_state_set(topo_link *link, uint32_t generation, uint32_t width,
                           uint32_t generation_now, uint32_t width_now)
{
    if (generation > 0 && width > 0) {
        link->count = width;
        link->nominal_bytes_per_s = topo_pci_nominal(generation, width);
        link->bytes_per_s = topo_pci_effective(generation, width);
        link->rate_origin = TOPO_VENDOR;
        uint64_t now = topo_pci_nominal(generation_now, width_now);
        link->now_bytes_per_s = now > 0 && now < link->nominal_bytes_per_s ? now : 0;
        /* Lanes do not come back by themselves, as speed does. */
        link->health = width_now > 0 && width_now < width ? TOPO_DEGRADED : TOPO_HEALTHY;
    }
}

/* A link can do what both of its ends can: the device and the port above it. */
static ist_status pci_link_refine(topo_graph *graph, uint32_t node)
{
    char bus[TOPO_BUS_TEXT];
    char above[TOPO_BUS_TEXT + 4];
    uint32_t own[4];
    uint32_t port[2];
    topo_bus_print(topo_node_at(graph, node)->bus, bus);
    (void)snprintf(above, sizeof(above), "%s/..", bus);
    pci_state(bus, "max", &own[0], &own[1]);
    pci_state(bus, "current", &own[2], &own[3]);
    pci_state(above, "max", &port[0], &port[1]);
    uint32_t generation = port[0] > 0 && port[0] < own[0] ? port[0] : own[0];
    uint32_t width = port[1] > 0 && port[1] < own[1] ? port[1] : own[1];
    topo_link *link = topo_link_edit(graph, topo_node_at(graph, node)->uplink);
    link_state_set(link, generation, width, own[2], own[3]);
    if (link->now_bytes_per_s > 0) {
        return topo_missing_add(graph, "present rate of PCIe links",
                                "some links are trained down now, which they do at rest; the most "
                                "that they can do was taken");
    }
    return IST_OK;
}

static ist_status nic_refine(topo_graph *graph, uint32_t node, uint64_t *rate)
{
    char line[64];
    const char *rdma = topo_attr_get(graph, node, "rdma");
    const char *netdev = topo_attr_get(graph, node, "netdev");
    if (rdma != NULL && line_of(line, "/sys/class/infiniband/%s/ports/1/%s", rdma, "rate")) {
        /* "400 Gb/sec (4X NDR)", "2.5 Gb/sec" */
        char *end = NULL;
        uint64_t tenths = strtoull(line, &end, 10) * 10;
        tenths += *end == '.' && end[1] >= '0' && end[1] <= '9' ? (uint64_t)(end[1] - '0') : 0;
        *rate = tenths <= 1000000 ? tenths * 12500000 : 0;
        if (line_of(line, "/sys/class/infiniband/%s/ports/1/%s", rdma, "state") &&
            strncmp(line, "4", 1) != 0) {
            IST_RETURN_IF_ERROR(topo_attr_set(graph, node, "state", "down"));
        }
        if (line_of(line, "/sys/module/%s/%s", "nvidia_peermem", "refcnt") ||
            line_of(line, "/sys/module/%s/%s", "nvidia_peermem", "initstate")) {
            IST_RETURN_IF_ERROR(topo_attr_set(graph, node, "gdr", "1"));
        }
    } else if (netdev != NULL && line_of(line, "/sys/class/net/%s/%s", netdev, "speed")) {
        long megabits = strtol(line, NULL, 10);
        *rate = megabits > 0 && megabits <= 10000000 ? (uint64_t)megabits * 125000 : 0;
    }
    if (rdma == NULL && netdev != NULL &&
        line_of(line, "/sys/class/net/%s/%s", netdev, "operstate") && strcmp(line, "down") == 0) {
        return topo_attr_set(graph, node, "state", "down");
    }
    return IST_OK;
}

static ist_status files_refine(topo_graph *graph, uint64_t *rates)
{
    for (uint32_t i = 0; i < topo_node_count(graph); i++) {
        const topo_node *node = topo_node_at(graph, i);
        if (node->bus != TOPO_BUS_NONE && node->uplink != TOPO_NONE &&
            topo_link_at(graph, node->uplink)->kind == TOPO_LINK_PCI) {
            IST_RETURN_IF_ERROR(pci_link_refine(graph, i));
        }
        if (node->kind == TOPO_NIC) {
            IST_RETURN_IF_ERROR(nic_refine(graph, i, &rates[i]));
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ NVML */

/* The node of a GPU by bus id; a GPU that hwloc does not show gets one without a place. */
static ist_status gpu_place(topo_graph *graph, const topo_nvml_gpu *gpu, uint32_t number,
                            uint32_t *node)
{
    *node = TOPO_NONE;
    for (uint32_t i = 0; i < topo_node_count(graph); i++) {
        if (topo_node_at(graph, i)->bus == gpu->bus && gpu->bus != TOPO_BUS_NONE) {
            *node = i;
        }
    }
    if (*node == TOPO_NONE) {
        IST_RETURN_IF_ERROR(topo_node_add(graph, TOPO_GPU, 0, gpu->name, node));
        topo_node_edit(graph, *node)->bus = gpu->bus;
        IST_RETURN_IF_ERROR(topo_missing_add(
            graph, "where a GPU sits", "NVML has a GPU that the PCIe tree of the system hides"));
    }
    topo_node *found = topo_node_edit(graph, *node);
    found->kind = TOPO_GPU;
    found->number = number;
    return gpu->name[0] != '\0' ? topo_text_keep(graph, gpu->name, &found->name) : IST_OK;
}

static ist_status gpu_describe(topo_graph *graph, const topo_nvml_gpu *gpu, uint32_t node)
{
    char text[16];
    topo_node *found = topo_node_edit(graph, node);
    if (found->uplink != TOPO_NONE) {
        link_state_set(topo_link_edit(graph, found->uplink), gpu->generation_max, gpu->width_max,
                       gpu->generation_now, gpu->width_now);
    }
    (void)snprintf(text, sizeof(text), "%" PRIu32, gpu->sm);
    IST_RETURN_IF_ERROR(gpu->sm > 0 ? topo_attr_set(graph, node, "sm", text) : IST_OK);
    IST_RETURN_IF_ERROR(topo_attr_set(graph, node, "uuid", gpu->uuid));
    if (gpu->fabric) {
        (void)snprintf(text, sizeof(text), "%" PRIu32, gpu->clique);
        IST_RETURN_IF_ERROR(topo_attr_set(graph, node, "fabric_cluster", gpu->cluster));
        return topo_attr_set(graph, node, "fabric_clique", text);
    }
    return IST_OK;
}

static ist_status gpu_link_add(topo_graph *graph, const topo_nvml_gpu *gpu, uint32_t a, uint32_t b,
                               uint32_t count)
{
    uint64_t nominal = 0;
    uint64_t effective = 0;
    topo_nvlink_rate(gpu->sm, &nominal, &effective);
    bool short_of_links = gpu->link_up < gpu->link_total;
    topo_link link = {.a = a,
                      .b = b,
                      .kind = TOPO_LINK_NVLINK,
                      .health = short_of_links ? TOPO_DEGRADED : TOPO_HEALTHY,
                      .count = count,
                      .bytes_per_s = effective * count,
                      .nominal_bytes_per_s = nominal * count,
                      .latency_ps = topo_latency(TOPO_LINK_NVLINK),
                      .rate_origin = TOPO_VENDOR,
                      .latency_origin = TOPO_DEFAULT};
    return topo_link_add(graph, &link, NULL);
}

/* One logical switch for a machine: what each GPU has towards it is what a pair of them can use. */
static ist_status switch_links(topo_graph *graph, const topo_nvml *found, const uint32_t *nodes)
{
    uint32_t node = TOPO_NONE;
    for (uint32_t i = 0; i < found->count; i++) {
        const topo_nvml_gpu *gpu = &found->gpus[i];
        if (gpu->to_switch == 0) {
            continue;
        }
        if (node == TOPO_NONE) {
            IST_RETURN_IF_ERROR(topo_node_add(graph, TOPO_NVSWITCH, 0, "nvswitch", &node));
        }
        IST_RETURN_IF_ERROR(gpu_link_add(graph, gpu, nodes[i], node, gpu->to_switch));
    }
    return IST_OK;
}

static ist_status pair_links(topo_graph *graph, const topo_nvml *found, const uint32_t *nodes)
{
    for (uint32_t i = 0; i < found->count; i++) {
        for (uint32_t j = i + 1; j < found->count; j++) {
            uint32_t there = found->gpus[i].to_gpu[j];
            uint32_t back = found->gpus[j].to_gpu[i];
            uint32_t count = there < back ? there : back;
            if (count > 0) {
                IST_RETURN_IF_ERROR(
                    gpu_link_add(graph, &found->gpus[i], nodes[i], nodes[j], count));
            }
        }
    }
    return IST_OK;
}

/* Which GPUs may read and write each other's memory, as "1 2 3". */
static ist_status peers_describe(topo_graph *graph, const topo_nvml *found, const uint32_t *nodes)
{
    for (uint32_t i = 0; i < found->count; i++) {
        char list[TOPO_NVML_GPUS * 4] = "";
        size_t used = 0;
        for (uint32_t j = 0; j < found->count; j++) {
            if (found->gpus[i].peers[j]) {
                int length = snprintf(list + used, sizeof(list) - used, "%s%" PRIu32,
                                      used > 0 ? " " : "", j);
                used += length > 0 ? (size_t)length : 0;
            }
        }
        IST_RETURN_IF_ERROR(topo_attr_set(graph, nodes[i], "p2p", list));
    }
    return IST_OK;
}

static ist_status nvml_apply(topo_graph *graph, const topo_nvml *found)
{
    uint32_t nodes[TOPO_NVML_GPUS];
    topo_missing_drop(graph, "NVLink");
    for (uint32_t i = 0; i < found->count; i++) {
        IST_RETURN_IF_ERROR(gpu_place(graph, &found->gpus[i], i, &nodes[i]));
        IST_RETURN_IF_ERROR(gpu_describe(graph, &found->gpus[i], nodes[i]));
        if (found->gpus[i].link_total > found->gpus[i].link_up) {
            IST_RETURN_IF_ERROR(
                topo_missing_add(graph, "NVLinks", "some links of a GPU are not active"));
        }
    }
    IST_RETURN_IF_ERROR(switch_links(graph, found, nodes));
    IST_RETURN_IF_ERROR(pair_links(graph, found, nodes));
    return peers_describe(graph, found, nodes);
}

static ist_status nvml_layer(topo_graph *graph)
{
    topo_nvml *found = ist_alloc(1, sizeof(*found));
    if (found == NULL) {
        return topo_error_memory(OPERATION, "what NVML says");
    }
    const char *reason = topo_nvml_read(found);
    ist_status status = reason == NULL
                            ? nvml_apply(graph, found)
                            : topo_missing_add(graph, "NVLink, peer access, fabrics", reason);
    ist_free(found);
    return status;
}

/* ------------------------------------------------------------------------------------ the whole */

static bool is_virtual_machine(void)
{
    bool found = false;
    char line[4096];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor") != NULL;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

ist_status topo_live_read(topo_graph *graph)
{
    IST_RETURN_IF_ERROR(topo_hwloc_take(NULL, graph));
    IST_RETURN_IF_ERROR(nvml_layer(graph));
    if (is_virtual_machine()) {
        IST_RETURN_IF_ERROR(topo_missing_add(
            graph, "the real PCIe tree", "this is a virtual machine, whose tree may be made up"));
    }
    uint64_t *rates = ist_alloc(topo_node_count(graph), sizeof(*rates));
    ist_status status =
        rates != NULL ? files_refine(graph, rates) : topo_error_memory(OPERATION, "rates of NICs");
    if (status == IST_OK) {
        status = topo_build_network(graph, rates);
    }
    ist_free(rates);
    return status;
}
