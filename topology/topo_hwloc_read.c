/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc XML into a graph: sockets and memory first, then I/O; then topo_hwloc_links.c.
 *
 * PCI bridges come in pairs: a switch is an upstream port and its downstream ports. So, below a
 * host bridge, bridges are by turns a root port, an upstream port (the switch), a downstream port,
 * an upstream port … Ports are transparent; a root port with several devices below is a switch of
 * its own.
 */
#include "topo_hwloc.h"
#include "topo_bits.h"
#include "topo_build.h"
#include "topo_error.h"
#include "topo_hwloc_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.hwloc"

ist_status topo_hwloc_refuse(const topo_hwloc_reader *self, const topo_element *element,
                             const char *what)
{
    return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, element->line, "<%s>: %s",
                         element->name, what);
}

/* ------------------------------------------------------------------------------------ elements */

static bool is_type(const topo_element *element, const char *type)
{
    const char *found = topo_xml_attr(element, "type");
    return strcmp(element->name, "object") == 0 && found != NULL && strcmp(found, type) == 0;
}

static bool is_io(const topo_element *element)
{
    return is_type(element, "Bridge") || is_type(element, "PCIDev") || is_type(element, "OSDev");
}

static const char *info_of(const topo_element *element, const char *name)
{
    for (const topo_element *at = topo_xml_child(element, "info"); at != NULL;
         at = topo_xml_next(at, "info")) {
        const char *found = topo_xml_attr(at, "name");
        if (found != NULL && strcmp(found, name) == 0) {
            return topo_xml_attr(at, "value");
        }
    }
    return NULL;
}

ist_status topo_hwloc_number(const topo_hwloc_reader *self, const topo_element *element,
                             const char *key, uint64_t *value)
{
    const char *text = topo_xml_attr(element, key);
    char *end = NULL;
    if (text == NULL) {
        return IST_OK;
    }
    if (strcmp(text, "-1") == 0 || strcmp(text, "4294967295") == 0) {
        *value = TOPO_BUS_NONE; /* hwloc's "unknown" */
        return IST_OK;
    }
    if (text[0] < '0' || text[0] > '9' || (*value = strtoull(text, &end, 10), *end != '\0')) {
        char what[64];
        (void)snprintf(what, sizeof(what), "%s has to be a number", key);
        return topo_hwloc_refuse(self, element, what);
    }
    return IST_OK;
}

static ist_status name_keep(topo_hwloc_reader *self, const topo_element *element, uint32_t node)
{
    uint64_t gp_index = TOPO_BUS_NONE;
    IST_RETURN_IF_ERROR(topo_hwloc_number(self, element, "gp_index", &gp_index));
    if (gp_index == TOPO_BUS_NONE) {
        return IST_OK;
    }
    if (self->name_count == self->name_room) {
        uint32_t room = self->name_room == 0 ? 256 : self->name_room * 2;
        topo_hwloc_named *larger = ist_alloc(room, sizeof(*larger));
        if (larger == NULL) {
            return topo_error_memory(OPERATION, "names");
        }
        if (self->name_count > 0) {
            memcpy(larger, self->names, self->name_count * sizeof(*larger));
        }
        ist_free(self->names);
        self->names = larger;
        self->name_room = room;
    }
    self->names[self->name_count++] = (topo_hwloc_named){gp_index, node};
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ sockets */

static uint64_t socket_rate(const topo_element *machine)
{
    const topo_element *holder = machine;
    const char *vendor = info_of(machine, "CPUVendor");
    const char *model = info_of(holder, "CPUModelNumber");
    const char *arch = info_of(machine, "Architecture");
    for (const topo_element *at = machine->child; at != NULL && vendor == NULL; at = at->next) {
        if (strcmp(at->name, "object") == 0) {
            vendor = info_of(at, "CPUVendor");
            model = vendor != NULL ? info_of(at, "CPUModelNumber") : model;
        }
    }
    return topo_smp_rate(arch, vendor, 6, model != NULL ? (uint32_t)strtoul(model, NULL, 10) : 0);
}

/* Memory of a GPU shows as a NUMA node without processors; it is no place where PCI hangs. */
static bool has_processors(const topo_element *numa)
{
    const char *cpuset = topo_xml_attr(numa, "cpuset");
    return cpuset == NULL || !topo_bits_none(cpuset);
}

static ist_status package_make(topo_hwloc_reader *self, const topo_element *element,
                               uint32_t parent, uint64_t rate, uint32_t *node)
{
    if (self->package_count == TOPO_HWLOC_PACKAGES) {
        return topo_hwloc_refuse(self, element, "more than 4096 packages");
    }
    IST_RETURN_IF_ERROR(topo_build_socket(self->graph, TOPO_PACKAGE, parent, "", rate, node));
    IST_RETURN_IF_ERROR(
        topo_hwloc_number(self, element, "os_index", &topo_node_edit(self->graph, *node)->number));
    self->packages[self->package_count++] = *node;
    return name_keep(self, element, *node);
}

static ist_status numa_make(topo_hwloc_reader *self, const topo_element *element, uint32_t parent,
                            uint64_t rate, uint32_t *node)
{
    if (self->numa_count == TOPO_HWLOC_NUMAS) {
        return topo_hwloc_refuse(self, element, "more than 1024 NUMA nodes");
    }
    IST_RETURN_IF_ERROR(topo_build_socket(self->graph, TOPO_NUMA, parent, "", rate, node));
    topo_node *made = topo_node_edit(self->graph, *node);
    IST_RETURN_IF_ERROR(topo_hwloc_number(self, element, "os_index", &made->number));
    for (uint32_t i = 0; i < self->numa_count; i++) {
        if (self->numas[i].os_index == made->number && made->number != TOPO_BUS_NONE) {
            return topo_hwloc_refuse(self, element,
                                     "a NUMA node with this os_index is there already");
        }
    }
    self->numas[self->numa_count++] = (topo_hwloc_numa){made->number, *node};
    const char *cpuset = topo_xml_attr(element, "cpuset");
    return cpuset != NULL ? topo_attr_set(self->graph, *node, "affinity", cpuset) : IST_OK;
}

/* Packages and NUMA nodes, in the order of the file. In version 1 one contains the other, whichever
 * is larger; later, NUMA nodes hang beside what they are local to. */
static ist_status sockets_read(topo_hwloc_reader *self, const topo_element *element,
                               uint32_t parent, uint64_t rate)
{
    uint32_t inner = parent;
    bool package = is_type(element, "Package") || is_type(element, "Socket");
    topo_kind above = topo_node_edit(self->graph, parent)->kind;
    if (package && above == TOPO_MACHINE) {
        IST_RETURN_IF_ERROR(package_make(self, element, parent, rate, &inner));
    } else if (is_type(element, "NUMANode") && above != TOPO_NUMA && has_processors(element)) {
        IST_RETURN_IF_ERROR(numa_make(self, element, parent, rate, &inner));
    } else if (is_type(element, "PU") || is_type(element, "Core")) {
        return IST_OK;
    }
    for (const topo_element *at = element->child; at != NULL; at = at->next) {
        if (strcmp(at->name, "object") == 0 && !is_io(at)) {
            IST_RETURN_IF_ERROR(sockets_read(self, at, inner, rate));
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ PCI */

/* What the file says of one PCI object. */
typedef struct pci_facts {
    uint64_t bus;
    uint32_t class_id;
    uint16_t vendor, device;
    uint64_t nominal; /* 0: not known */
} pci_facts;

/* Gigabytes a second with decimals, without a float. */
static bool rate_parse(const char *text, uint64_t *rate)
{
    uint64_t whole = 0;
    uint64_t part = 0;
    uint64_t unit = UINT64_C(1000000000);
    const char *at = text;
    if (*at < '0' || *at > '9') {
        return false;
    }
    for (; *at >= '0' && *at <= '9' && whole < 1000000; at++) {
        whole = whole * 10 + (uint64_t)(*at - '0');
    }
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9'; at++) {
            unit /= 10;
            part += unit * (uint64_t)(*at - '0');
        }
    }
    if (*at != '\0' || whole >= 1000000) {
        return false;
    }
    *rate = whole * UINT64_C(1000000000) + part;
    return true;
}

static ist_status pci_facts_read(const topo_hwloc_reader *self, const topo_element *element,
                                 pci_facts *facts)
{
    unsigned class_id = 0;
    unsigned vendor = 0;
    unsigned device = 0;
    const char *bus = topo_xml_attr(element, "pci_busid");
    const char *type = topo_xml_attr(element, "pci_type");
    const char *speed = topo_xml_attr(element, "pci_link_speed");
    *facts = (pci_facts){.bus = TOPO_BUS_NONE};
    if (bus != NULL && !topo_bus_parse(bus, &facts->bus)) {
        return topo_hwloc_refuse(self, element, "pci_busid has to be domain:bus:device.function");
    }
    if (type != NULL) {
        if (sscanf(type, "%4x [%4x:%4x]", &class_id, &vendor, &device) < 1) {
            return topo_hwloc_refuse(self, element, "pci_type has to be class [vendor:device] …");
        }
        facts->class_id = class_id << 8;
        facts->vendor = (uint16_t)vendor;
        facts->device = (uint16_t)device;
    }
    if (speed != NULL && !rate_parse(speed, &facts->nominal)) {
        return topo_hwloc_refuse(self, element, "pci_link_speed has to be GB/s, not negative");
    }
    return IST_OK;
}

static topo_kind use_of(const topo_element *element)
{
    const char *type = topo_xml_attr(element, "pci_type");
    unsigned class_id = 0;
    unsigned vendor = 0;
    unsigned device = 0;
    if (type == NULL || sscanf(type, "%4x [%4x:%4x]", &class_id, &vendor, &device) < 1) {
        return TOPO_PCI_DEVICE;
    }
    return topo_pci_use(class_id << 8, (uint16_t)vendor, (uint16_t)device);
}

/* GPUs and NICs; all else on PCI says nothing about communication. */
static bool is_kept(const topo_element *element)
{
    topo_kind use = is_type(element, "PCIDev") ? use_of(element) : TOPO_PCI_DEVICE;
    return use == TOPO_GPU || use == TOPO_NIC || use == TOPO_NVSWITCH;
}

/* Kept devices at or below an element; stops counting at two. */
static uint32_t kept_below(const topo_element *element)
{
    if (is_kept(element)) {
        return 1;
    }
    uint32_t count = 0;
    for (const topo_element *at = element->child; at != NULL && count < 2; at = at->next) {
        if (strcmp(at->name, "object") == 0) {
            count += kept_below(at);
        }
    }
    return count;
}

static uint32_t kept_children(const topo_element *element)
{
    uint32_t count = 0;
    for (const topo_element *at = element->child; at != NULL; at = at->next) {
        count += is_io(at) && kept_below(at) > 0;
    }
    return count;
}

/* Both ends of a link state a rate; a lower one is a link at rest. */
static ist_status pci_link_make(topo_hwloc_reader *self, uint32_t node, uint64_t near, uint64_t far)
{
    uint64_t most = near > far ? near : far;
    uint64_t least = near < far ? near : far;
    topo_link link = {.a = node,
                      .b = topo_node_edit(self->graph, node)->parent,
                      .kind = TOPO_LINK_PCI,
                      .latency_ps = topo_latency(TOPO_LINK_PCI),
                      .latency_origin = TOPO_DEFAULT};
    if (most == 0) {
        link.bytes_per_s = topo_pci_effective(3, 16);
        link.rate_origin = TOPO_DEFAULT;
        IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "rates of PCIe links",
                                             "not stated for all; third generation and 16 lanes "
                                             "are assumed there"));
    } else {
        uint32_t generation = 0;
        topo_pci_guess(most, &generation, &link.count);
        link.nominal_bytes_per_s = most;
        link.bytes_per_s = most / 1000 * 762; /* as NCCL counts: 12 of 15.75 GB/s */
        link.rate_origin = TOPO_VENDOR;
    }
    if (least > 0 && least < most / 2) {
        link.now_bytes_per_s = least;
        IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "true rate of a PCIe link",
                                             "its ends state different rates: one was at rest; the "
                                             "higher was taken"));
    }
    return topo_link_add(self->graph, &link, NULL);
}

static ist_status pci_node_make(topo_hwloc_reader *self, const topo_element *element,
                                topo_kind kind, uint32_t parent, uint64_t port_rate, uint32_t *node)
{
    pci_facts facts;
    IST_RETURN_IF_ERROR(pci_facts_read(self, element, &facts));
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, kind, parent, "", node));
    topo_node *made = topo_node_edit(self->graph, *node);
    made->bus = facts.bus;
    made->class_id = facts.class_id;
    made->vendor = facts.vendor;
    made->device = facts.device;
    IST_RETURN_IF_ERROR(name_keep(self, element, *node));
    return pci_link_make(self, *node, facts.nominal, port_rate);
}

/* ----------------------------------------------------------------------------------- OS devices */

static ist_status text_of(topo_hwloc_reader *self, uint32_t node, const char *text)
{
    return topo_text_keep(self->graph, text, &topo_node_edit(self->graph, node)->name);
}

static ist_status info_copy(topo_hwloc_reader *self, const topo_element *element, const char *info,
                            uint32_t node, const char *key)
{
    const char *value = info_of(element, info);
    return value != NULL ? topo_attr_set(self->graph, node, key, value) : IST_OK;
}

static ist_status gpu_os_read(topo_hwloc_reader *self, const topo_element *element, uint32_t node)
{
    static const char *const numbered[] = {"cuda", "nvml", "rsmi", "ze"};
    const char *name = topo_xml_attr(element, "name");
    topo_node *gpu = topo_node_edit(self->graph, node);
    for (size_t i = 0; name != NULL && i < sizeof(numbered) / sizeof(numbered[0]); i++) {
        size_t length = strlen(numbered[i]);
        if (strncmp(name, numbered[i], length) == 0 && name[length] >= '0' && name[length] <= '9' &&
            (gpu->number == TOPO_BUS_NONE || i == 0)) {
            gpu->number = strtoull(name + length, NULL, 10);
        }
    }
    const char *model = info_of(element, "GPUModel");
    if (model != NULL && gpu->name[0] == '\0') {
        IST_RETURN_IF_ERROR(text_of(self, node, model));
    }
    IST_RETURN_IF_ERROR(info_copy(self, element, "NVIDIAUUID", node, "uuid"));
    IST_RETURN_IF_ERROR(info_copy(self, element, "XGMIHiveID", node, "xgmi_hive"));
    IST_RETURN_IF_ERROR(info_copy(self, element, "XGMIPeers", node, "xgmi_peers"));
    if (name != NULL && strncmp(name, "rsmi", 4) == 0) {
        IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, "rsmi", name));
    }
    return name_keep(self, element, node);
}

static ist_status nic_os_read(topo_hwloc_reader *self, const topo_element *element, uint32_t node)
{
    const char *name = topo_xml_attr(element, "name");
    bool rdma =
        info_of(element, "NodeGUID") != NULL ||
        (name != NULL && (strncmp(name, "mlx", 3) == 0 || strncmp(name, "rdma", 4) == 0 ||
                          strncmp(name, "hfi1_", 5) == 0 || strncmp(name, "roce", 4) == 0 ||
                          strncmp(name, "bnxt_re", 7) == 0 || strncmp(name, "qib", 3) == 0));
    if (name != NULL && (rdma || topo_node_edit(self->graph, node)->name[0] == '\0')) {
        IST_RETURN_IF_ERROR(text_of(self, node, name));
    }
    if (name != NULL) {
        IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, rdma ? "rdma" : "netdev", name));
    }
    const char *state = info_of(element, "Port1State");
    if (state != NULL && strcmp(state, "1") == 0) {
        IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, "state", "down"));
    }
    return info_copy(self, element, "NodeGUID", node, "guid");
}

static ist_status os_devices_read(topo_hwloc_reader *self, const topo_element *element,
                                  uint32_t node)
{
    topo_kind kind = topo_node_edit(self->graph, node)->kind;
    for (const topo_element *at = element->child; at != NULL; at = at->next) {
        if (is_type(at, "OSDev") && kind == TOPO_GPU) {
            IST_RETURN_IF_ERROR(gpu_os_read(self, at, node));
        } else if (is_type(at, "OSDev") && kind == TOPO_NIC) {
            IST_RETURN_IF_ERROR(nic_os_read(self, at, node));
        } else if (is_type(at, "OSDev")) {
            IST_RETURN_IF_ERROR(name_keep(self, at, node));
        }
    }
    const char *device = info_of(element, "PCIDevice");
    if (device != NULL && topo_node_edit(self->graph, node)->name[0] == '\0') {
        return text_of(self, node, device);
    }
    return IST_OK;
}

/* --------------------------------------------------------------------------------- the I/O tree */

typedef enum port_role { ROOT_PORT, UPSTREAM, DOWNSTREAM } port_role;

static ist_status io_read(topo_hwloc_reader *self, const topo_element *element, uint32_t parent,
                          port_role role, uint64_t port_rate);

static ist_status io_children_read(topo_hwloc_reader *self, const topo_element *element,
                                   uint32_t parent, port_role role, uint64_t port_rate)
{
    for (const topo_element *at = element->child; at != NULL; at = at->next) {
        if (is_io(at)) {
            IST_RETURN_IF_ERROR(io_read(self, at, parent, role, port_rate));
        }
    }
    return IST_OK;
}

static ist_status bridge_read(topo_hwloc_reader *self, const topo_element *element, uint32_t parent,
                              port_role role, uint64_t port_rate)
{
    pci_facts facts;
    uint32_t node = 0;
    IST_RETURN_IF_ERROR(pci_facts_read(self, element, &facts));
    bool branches = role == ROOT_PORT && kept_children(element) > 1;
    if (role == UPSTREAM || branches) {
        IST_RETURN_IF_ERROR(
            pci_node_make(self, element, TOPO_PCI_SWITCH, parent, port_rate, &node));
        return io_children_read(self, element, node, branches ? UPSTREAM : DOWNSTREAM, 0);
    }
    return io_children_read(self, element, parent, UPSTREAM, facts.nominal);
}

static ist_status host_bridge_read(topo_hwloc_reader *self, const topo_element *element,
                                   uint32_t parent)
{
    uint32_t node = 0;
    const char *range = topo_xml_attr(element, "bridge_pci");
    IST_RETURN_IF_ERROR(
        topo_build_part(self->graph, TOPO_HOST_BRIDGE, parent, range != NULL ? range : "", &node));
    return io_children_read(self, element, node, ROOT_PORT, 0);
}

static ist_status io_read(topo_hwloc_reader *self, const topo_element *element, uint32_t parent,
                          port_role role, uint64_t port_rate)
{
    if (kept_below(element) == 0) {
        return IST_OK;
    }
    const char *type = topo_xml_attr(element, "bridge_type");
    if (is_type(element, "Bridge") && type != NULL && strncmp(type, "0-", 2) == 0) {
        return host_bridge_read(self, element, parent);
    }
    if (is_type(element, "Bridge")) {
        return bridge_read(self, element, parent, role, port_rate);
    }
    if (!is_kept(element)) {
        return io_children_read(self, element, parent, role, port_rate);
    }
    uint32_t node = 0;
    topo_kind use = use_of(element);
    IST_RETURN_IF_ERROR(pci_node_make(self, element, use, parent, port_rate, &node));
    return os_devices_read(self, element, node);
}

/* Where the I/O below an object hangs: its only NUMA node, else its package or the machine. */
static ist_status place_of(topo_hwloc_reader *self, const topo_element *element, uint32_t around,
                           uint32_t *place)
{
    const char *nodeset = topo_xml_attr(element, "nodeset");
    uint32_t local = 0;
    topo_bits set;
    topo_bits_read(nodeset != NULL ? nodeset : "", &set);
    *place = around;
    for (uint32_t i = 0; i < self->numa_count; i++) {
        bool in = self->numa_count == 1 || topo_bits_has(&set, self->numas[i].os_index);
        if (in) {
            *place = self->numas[i].node;
            local++;
        }
    }
    if (local > 1) {
        *place = around;
        return topo_missing_add(self->graph, "locality of PCI",
                                "a host bridge hangs above several NUMA nodes");
    }
    return IST_OK;
}

/* Walks the objects in the order of sockets_read() and reads the I/O of each. */
static ist_status places_read(topo_hwloc_reader *self, const topo_element *element, uint32_t around)
{
    uint32_t inner = around;
    bool package = is_type(element, "Package") || is_type(element, "Socket");
    topo_kind above = topo_node_edit(self->graph, around)->kind;
    if (package && above == TOPO_MACHINE && self->package_next < self->package_count) {
        inner = self->packages[self->package_next++];
    } else if (is_type(element, "NUMANode") && above != TOPO_NUMA && has_processors(element)) {
        IST_RETURN_IF_ERROR(place_of(self, element, around, &inner));
    } else if (is_type(element, "PU") || is_type(element, "Core")) {
        return IST_OK;
    }
    uint32_t place = TOPO_NONE;
    for (const topo_element *at = element->child; at != NULL; at = at->next) {
        if (is_io(at)) {
            self->io_seen = true;
            if (kept_below(at) > 0 && place == TOPO_NONE) {
                IST_RETURN_IF_ERROR(place_of(self, element, inner, &place));
            }
            IST_RETURN_IF_ERROR(io_read(self, at, place, ROOT_PORT, 0));
        } else if (strcmp(at->name, "object") == 0) {
            IST_RETURN_IF_ERROR(places_read(self, at, inner));
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ the whole */

static ist_status machine_read(topo_hwloc_reader *self, const topo_element *machine)
{
    const char *host = info_of(machine, "HostName");
    self->numa_count = 0;
    self->package_count = 0;
    self->package_next = 0;
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_MACHINE, TOPO_NONE,
                                      host != NULL ? host : "", &self->machine));
    uint64_t rate = socket_rate(machine);
    for (const topo_element *at = machine->child; at != NULL; at = at->next) {
        if (strcmp(at->name, "object") == 0 && !is_io(at)) {
            IST_RETURN_IF_ERROR(sockets_read(self, at, self->machine, rate));
        }
    }
    return places_read(self, machine, self->machine);
}

/* A file of one machine; or, from the first version, of a system that holds several. */
static ist_status machines_read(topo_hwloc_reader *self, const topo_element *root)
{
    bool several = false;
    for (const topo_element *at = root->child; at != NULL; at = at->next) {
        if (is_type(root, "System") && is_type(at, "Machine")) {
            several = true;
            IST_RETURN_IF_ERROR(machine_read(self, at));
        }
    }
    return several ? IST_OK : machine_read(self, root);
}

static ist_status all_read(topo_hwloc_reader *self)
{
    const topo_element *root = topo_xml_child(self->document->root, "object");
    if (root == NULL || !(is_type(root, "Machine") || is_type(root, "System"))) {
        return topo_hwloc_refuse(self, self->document->root, "has no object of type Machine");
    }
    IST_RETURN_IF_ERROR(machines_read(self, root));
    if (!self->io_seen) {
        return topo_missing_add(self->graph, "GPUs and NICs",
                                "the file was exported without I/O objects: they are unseen, not "
                                "absent");
    }
    return topo_hwloc_links_read(self);
}

ist_status topo_hwloc_read(const topo_document *document, topo_graph *graph)
{
    topo_hwloc_reader *self = ist_alloc(1, sizeof(*self));
    if (self == NULL) {
        return topo_error_memory(OPERATION, "the reader");
    }
    self->document = document;
    self->graph = graph;
    ist_status status = all_read(self);
    ist_free(self->names);
    ist_free(self);
    return status;
}
