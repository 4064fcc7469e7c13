/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc XML into a graph: sockets and memory first, then I/O, then NVLink and XGMI from distances and
 * infos.
 *
 * PCI bridges come in pairs: a switch is an upstream port and its downstream ports. So, below a host
 * bridge, bridges are by turns a root port, an upstream port (the switch), a downstream port, an
 * upstream port … Ports are transparent; a root port with several devices below is a switch of its own.
 */
#include "topo_hwloc.h"
#include "topo_bits.h"
#include "topo_build.h"
#include "topo_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.hwloc"
#define NUMAS_MAX 1024u
#define PACKAGES_MAX 4096u
#define MATRIX_MAX 512u /* objects of a distance matrix */

typedef struct numa_entry {
    uint64_t os_index;
    uint32_t node;
} numa_entry;

/* An object that a distance matrix may name. */
typedef struct named {
    uint64_t gp_index;
    uint32_t node;
} named;

typedef struct reader {
    const topo_document *document;
    topo_graph *graph;
    uint32_t machine;
    uint32_t numa_count, package_count;
    numa_entry numas[NUMAS_MAX];
    uint32_t packages[PACKAGES_MAX]; /* nodes, in the order of the file */
    uint32_t package_next;           /* while I/O is read */
    named *names;
    uint32_t name_count, name_room;
    bool io_seen;
} reader;

static ist_status refuse(const reader *self, const topo_element *element, const char *what)
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

static ist_status number_read(const reader *self, const topo_element *element, const char *key,
                              uint64_t *value)
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
        return refuse(self, element, what);
    }
    return IST_OK;
}

static ist_status name_keep(reader *self, const topo_element *element, uint32_t node)
{
    uint64_t gp_index = TOPO_BUS_NONE;
    IST_RETURN_IF_ERROR(number_read(self, element, "gp_index", &gp_index));
    if (gp_index == TOPO_BUS_NONE) {
        return IST_OK;
    }
    if (self->name_count == self->name_room) {
        uint32_t room = self->name_room == 0 ? 256 : self->name_room * 2;
        named *larger = ist_alloc(room, sizeof(*larger));
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
    self->names[self->name_count++] = (named){gp_index, node};
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

static ist_status package_make(reader *self, const topo_element *element, uint32_t parent,
                               uint64_t rate, uint32_t *node)
{
    if (self->package_count == PACKAGES_MAX) {
        return refuse(self, element, "more than 4096 packages");
    }
    IST_RETURN_IF_ERROR(topo_build_socket(self->graph, TOPO_PACKAGE, parent, "", rate, node));
    IST_RETURN_IF_ERROR(
        number_read(self, element, "os_index", &topo_node_edit(self->graph, *node)->number));
    self->packages[self->package_count++] = *node;
    return name_keep(self, element, *node);
}

static ist_status numa_make(reader *self, const topo_element *element, uint32_t parent,
                            uint64_t rate, uint32_t *node)
{
    if (self->numa_count == NUMAS_MAX) {
        return refuse(self, element, "more than 1024 NUMA nodes");
    }
    IST_RETURN_IF_ERROR(topo_build_socket(self->graph, TOPO_NUMA, parent, "", rate, node));
    topo_node *made = topo_node_edit(self->graph, *node);
    IST_RETURN_IF_ERROR(number_read(self, element, "os_index", &made->number));
    for (uint32_t i = 0; i < self->numa_count; i++) {
        if (self->numas[i].os_index == made->number && made->number != TOPO_BUS_NONE) {
            return refuse(self, element, "a NUMA node with this os_index is there already");
        }
    }
    self->numas[self->numa_count++] = (numa_entry){made->number, *node};
    const char *cpuset = topo_xml_attr(element, "cpuset");
    return cpuset != NULL ? topo_attr_set(self->graph, *node, "affinity", cpuset) : IST_OK;
}

/* Packages and NUMA nodes, in the order of the file. In version 1 one contains the other, whichever is
 * larger; later, NUMA nodes hang beside what they are local to. */
static ist_status sockets_read(reader *self, const topo_element *element, uint32_t parent,
                               uint64_t rate)
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

static ist_status pci_facts_read(const reader *self, const topo_element *element, pci_facts *facts)
{
    unsigned class_id = 0;
    unsigned vendor = 0;
    unsigned device = 0;
    const char *bus = topo_xml_attr(element, "pci_busid");
    const char *type = topo_xml_attr(element, "pci_type");
    const char *speed = topo_xml_attr(element, "pci_link_speed");
    *facts = (pci_facts){.bus = TOPO_BUS_NONE};
    if (bus != NULL && !topo_bus_parse(bus, &facts->bus)) {
        return refuse(self, element, "pci_busid has to be domain:bus:device.function");
    }
    if (type != NULL) {
        if (sscanf(type, "%4x [%4x:%4x]", &class_id, &vendor, &device) < 1) {
            return refuse(self, element, "pci_type has to be class [vendor:device] …");
        }
        facts->class_id = class_id << 8;
        facts->vendor = (uint16_t)vendor;
        facts->device = (uint16_t)device;
    }
    if (speed != NULL && !rate_parse(speed, &facts->nominal)) {
        return refuse(self, element, "pci_link_speed has to be GB/s, not negative");
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
static ist_status pci_link_make(reader *self, uint32_t node, uint64_t near, uint64_t far)
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

static ist_status pci_node_make(reader *self, const topo_element *element, topo_kind kind,
                                uint32_t parent, uint64_t port_rate, uint32_t *node)
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

/* ------------------------------------------------------------------------------------ OS devices */

static ist_status text_of(reader *self, uint32_t node, const char *text)
{
    return topo_text_keep(self->graph, text, &topo_node_edit(self->graph, node)->name);
}

static ist_status info_copy(reader *self, const topo_element *element, const char *info,
                            uint32_t node, const char *key)
{
    const char *value = info_of(element, info);
    return value != NULL ? topo_attr_set(self->graph, node, key, value) : IST_OK;
}

static ist_status gpu_os_read(reader *self, const topo_element *element, uint32_t node)
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

static ist_status nic_os_read(reader *self, const topo_element *element, uint32_t node)
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

static ist_status os_devices_read(reader *self, const topo_element *element, uint32_t node)
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

/* ------------------------------------------------------------------------------------ the I/O tree */

typedef enum port_role { ROOT_PORT, UPSTREAM, DOWNSTREAM } port_role;

static ist_status io_read(reader *self, const topo_element *element, uint32_t parent,
                          port_role role, uint64_t port_rate);

static ist_status io_children_read(reader *self, const topo_element *element, uint32_t parent,
                                   port_role role, uint64_t port_rate)
{
    for (const topo_element *at = element->child; at != NULL; at = at->next) {
        if (is_io(at)) {
            IST_RETURN_IF_ERROR(io_read(self, at, parent, role, port_rate));
        }
    }
    return IST_OK;
}

static ist_status bridge_read(reader *self, const topo_element *element, uint32_t parent,
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

static ist_status host_bridge_read(reader *self, const topo_element *element, uint32_t parent)
{
    uint32_t node = 0;
    const char *range = topo_xml_attr(element, "bridge_pci");
    IST_RETURN_IF_ERROR(
        topo_build_part(self->graph, TOPO_HOST_BRIDGE, parent, range != NULL ? range : "", &node));
    return io_children_read(self, element, node, ROOT_PORT, 0);
}

static ist_status io_read(reader *self, const topo_element *element, uint32_t parent,
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
static ist_status place_of(reader *self, const topo_element *element, uint32_t around,
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
static ist_status places_read(reader *self, const topo_element *element, uint32_t around)
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

/* ------------------------------------------------------------------------------------ matrices */

static int named_compare(const void *left, const void *right)
{
    const named *a = left;
    const named *b = right;
    return a->gp_index < b->gp_index ? -1 : a->gp_index > b->gp_index;
}

static uint32_t named_find(const reader *self, uint64_t gp_index)
{
    named key = {gp_index, 0};
    const named *found = self->name_count == 0 ? NULL
                                               : bsearch(&key, self->names, self->name_count,
                                                         sizeof(key), named_compare);
    return found != NULL ? found->node : TOPO_NONE;
}

typedef struct matrix {
    uint32_t count;
    uint32_t nodes[MATRIX_MAX]; /* TOPO_NONE: an object that the graph does not have */
    uint64_t values[MATRIX_MAX * MATRIX_MAX];
} matrix;

/* Reads numbers from the texts of all children of a name, "OSDev:332" as 332. */
static ist_status numbers_read(const reader *self, const topo_element *element, const char *child,
                               uint64_t *numbers, uint32_t count)
{
    uint32_t read = 0;
    for (const topo_element *at = topo_xml_child(element, child); at != NULL;
         at = topo_xml_next(at, child)) {
        const char *text = at->text;
        text += strspn(text, " \t\r\n");
        for (; *text != '\0'; text += strspn(text, " \t\r\n")) {
            size_t kind = strcspn(text, "0123456789");
            char *end = NULL;
            uint64_t number = strtoull(text + kind, &end, 10);
            if (end == text + kind || read == count) {
                return refuse(self, at, "not as many numbers as the matrix has places");
            }
            numbers[read++] = number;
            text = end;
        }
    }
    return read == count ? IST_OK : refuse(self, element, "fewer numbers than nbobjs asks for");
}

/* Rate of one NVLink of a pair: version 1 and 5 differ from those between. */
static void link_version(reader *self, uint32_t gpu, uint64_t megabytes, uint64_t *each,
                         uint64_t *effective)
{
    uint64_t nominal = 0;
    uint16_t device = topo_node_edit(self->graph, gpu)->device;
    bool first = megabytes % 20000 == 0 && (megabytes % 25000 != 0 || device < 0x1d00);
    bool fifth = device >= 0x2900 && megabytes % 50000 == 0;
    topo_nvlink_rate(first ? 60 : fifth ? 100 : device >= 0x2200 ? 90 : 80, &nominal, effective);
    *each = nominal;
}

static ist_status matrix_link(reader *self, uint32_t a, uint32_t b, uint64_t megabytes, bool xgmi)
{
    uint64_t each = 0;
    uint64_t effective = 0;
    uint32_t gpu = topo_node_edit(self->graph, a)->kind == TOPO_GPU ? a : b;
    bool switches = topo_node_edit(self->graph, a)->kind == TOPO_NVSWITCH &&
                    topo_node_edit(self->graph, b)->kind == TOPO_NVSWITCH;
    if ((topo_node_edit(self->graph, gpu)->kind != TOPO_GPU && !switches) || a == b) {
        return IST_OK;
    }
    if (megabytes > TOPO_RATE_MAX / 1000000) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, 0,
                             "a distance of %" PRIu64 " MB/s", megabytes);
    }
    if (switches) {
        topo_nvlink_rate(80, &each, &effective);
    } else if (xgmi) {
        topo_xgmi_rate(0, &each, &effective);
    } else {
        link_version(self, gpu, megabytes, &each, &effective);
    }
    uint64_t count = megabytes * 1000000 / each;
    count = count == 0 ? 1 : count;
    if (count > 1024) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, 0,
                             "a distance of %" PRIu64 " MB/s between two GPUs", megabytes);
    }
    uint64_t nominal = megabytes * 1000000;
    uint64_t rate = effective * count < nominal ? effective * count : nominal;
    return topo_build_link(self->graph, xgmi ? TOPO_LINK_XGMI : TOPO_LINK_NVLINK, a, b,
                           (uint32_t)count, nominal, rate, TOPO_VENDOR);
}

/* The processor's end is its only NUMA node, if the package has one. */
static uint32_t processor_end(reader *self, uint32_t node)
{
    uint32_t found = node;
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->numa_count; i++) {
        if (topo_node_edit(self->graph, self->numas[i].node)->parent == node) {
            found = self->numas[i].node;
            count++;
        }
    }
    return count == 1 ? found : node;
}

static ist_status matrix_apply(reader *self, const matrix *made, bool xgmi)
{
    for (uint32_t i = 0; i < made->count; i++) {
        for (uint32_t j = i + 1; j < made->count; j++) {
            uint64_t there = made->values[i * made->count + j];
            uint64_t back = made->values[j * made->count + i];
            uint64_t least = there < back ? there : back;
            if (least == 0 || made->nodes[i] == TOPO_NONE || made->nodes[j] == TOPO_NONE) {
                continue;
            }
            IST_RETURN_IF_ERROR(matrix_link(self, made->nodes[i], made->nodes[j], least, xgmi));
        }
    }
    return IST_OK;
}

static ist_status matrix_read(reader *self, const topo_element *element, matrix *made, bool xgmi)
{
    uint64_t count = 0;
    uint64_t indexes[MATRIX_MAX];
    IST_RETURN_IF_ERROR(number_read(self, element, "nbobjs", &count));
    if (count < 1 || count > MATRIX_MAX) {
        return refuse(self, element, "nbobjs has to be from 1 to 512");
    }
    made->count = (uint32_t)count;
    IST_RETURN_IF_ERROR(numbers_read(self, element, "indexes", indexes, made->count));
    IST_RETURN_IF_ERROR(
        numbers_read(self, element, "u64values", made->values, made->count * made->count));
    for (uint32_t i = 0; i < made->count; i++) {
        uint32_t node = named_find(self, indexes[i]);
        bool package = node != TOPO_NONE && topo_node_edit(self->graph, node)->kind == TOPO_PACKAGE;
        made->nodes[i] = package ? processor_end(self, node) : node;
        for (uint32_t j = 0; j < i; j++) {
            if (made->nodes[j] == made->nodes[i] && node != TOPO_NONE) {
                return refuse(self, element, "the matrix has an object twice");
            }
        }
    }
    return matrix_apply(self, made, xgmi);
}

static ist_status matrix_take(reader *self, const topo_element *element, bool xgmi)
{
    matrix *made = ist_alloc(1, sizeof(*made));
    if (made == NULL) {
        return topo_error_memory(OPERATION, "a distance matrix");
    }
    ist_status status = matrix_read(self, element, made, xgmi);
    ist_free(made);
    return status;
}

/* The first matrix of each kind; later ones are transformations of it. */
static ist_status matrices_read(reader *self)
{
    bool seen[2] = {false, false};
    if (self->name_count > 0) {
        qsort(self->names, self->name_count, sizeof(*self->names), named_compare);
    }
    for (const topo_element *at = self->document->root->child; at != NULL; at = at->next) {
        const char *name = topo_xml_attr(at, "name");
        bool matrix_element = strncmp(at->name, "distances2", 10) == 0 && name != NULL;
        bool nvlink = matrix_element && strncmp(name, "NVLinkBandwidth", 15) == 0;
        bool xgmi = matrix_element && strncmp(name, "XGMIBandwidth", 13) == 0;
        if ((nvlink || xgmi) && !seen[xgmi]) {
            seen[xgmi] = true;
            IST_RETURN_IF_ERROR(matrix_take(self, at, xgmi));
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ XGMI */

static bool lists_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == list || at[-1] == ' ' || at[-1] == ',';
        bool ends = at[length] == '\0' || at[length] == ' ' || at[length] == ',';
        if (begins && ends) {
            return true;
        }
    }
    return false;
}

/* Files without the matrix may name the peers of each GPU. */
static ist_status peers_link(reader *self, const uint32_t *gpus, uint32_t count)
{
    uint64_t nominal = 0;
    uint64_t effective = 0;
    topo_xgmi_rate(0, &nominal, &effective);
    for (uint32_t i = 0; i < count; i++) {
        const char *peers = topo_attr_get(self->graph, gpus[i], "xgmi_peers");
        for (uint32_t j = 0; j < count && peers != NULL; j++) {
            const char *name = topo_attr_get(self->graph, gpus[j], "rsmi");
            const char *back = topo_attr_get(self->graph, gpus[j], "xgmi_peers");
            bool both = j > i || back == NULL;
            if (j != i && name != NULL && both && lists_word(peers, name)) {
                IST_RETURN_IF_ERROR(topo_build_link(self->graph, TOPO_LINK_XGMI, gpus[i], gpus[j],
                                                    1, nominal, effective, TOPO_DEFAULT));
            }
        }
    }
    return IST_OK;
}

static ist_status gpu_links_read(reader *self)
{
    uint32_t before = topo_link_count(self->graph);
    uint32_t gpus[MATRIX_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < topo_node_count(self->graph) && count < MATRIX_MAX; i++) {
        if (topo_node_at(self->graph, i)->kind == TOPO_GPU) {
            gpus[count++] = i;
        }
    }
    IST_RETURN_IF_ERROR(matrices_read(self));
    if (topo_link_count(self->graph) == before) {
        IST_RETURN_IF_ERROR(peers_link(self, gpus, count));
    }
    if (count > 1 && topo_link_count(self->graph) == before) {
        return topo_missing_add(
            self->graph, "NVLink",
            "the file has no NVLink or XGMI matrix; hwloc leaves it out when it "
            "cannot see the switches or is too old for the GPUs");
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ the whole */

static ist_status all_read(reader *self)
{
    const topo_element *machine = topo_xml_child(self->document->root, "object");
    if (machine == NULL || !(is_type(machine, "Machine") || is_type(machine, "System"))) {
        return refuse(self, self->document->root, "has no object of type Machine");
    }
    const char *host = info_of(machine, "HostName");
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_MACHINE, TOPO_NONE,
                                      host != NULL ? host : "", &self->machine));
    uint64_t rate = socket_rate(machine);
    for (const topo_element *at = machine->child; at != NULL; at = at->next) {
        if (strcmp(at->name, "object") == 0 && !is_io(at)) {
            IST_RETURN_IF_ERROR(sockets_read(self, at, self->machine, rate));
        }
    }
    IST_RETURN_IF_ERROR(places_read(self, machine, self->machine));
    if (!self->io_seen) {
        IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "GPUs and NICs",
                                             "the file was exported without I/O objects: they are "
                                             "unseen, not absent"));
        return IST_OK;
    }
    return gpu_links_read(self);
}

ist_status topo_hwloc_read(const topo_document *document, topo_graph *graph)
{
    reader *self = ist_alloc(1, sizeof(*self));
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
