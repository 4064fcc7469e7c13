/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL topology XML into a graph: first the tree of machines, processors and PCI, then the links
 * between GPUs, which name their far ends by bus id.
 */
#include "topo_nccl.h"
#include "topo_build.h"
#include "topo_nccl_links.h"
#include "topo_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.nccl"
#define INVENTED_BUS UINT64_C(0xffffff) /* domain ffff, bus ff */

/* Searches run over these, so they are few. */
#define PLACES_MAX 16384u
#define BRIDGES_MAX 1024u

typedef struct reader {
    const topo_document *document;
    topo_graph *graph;
    uint32_t machine; /* of the element being read */
    topo_far_links fars;
    uint64_t *rates; /* by node, of NICs */
    uint32_t rate_room;
    uint32_t bridges[BRIDGES_MAX + 1]; /* node by number, of the <cpu> being read; 0: none yet */
    uint32_t places[PLACES_MAX];       /* machines, packages and NUMA nodes */
    uint32_t place_count;
} reader;

static ist_status refuse(const reader *self, const topo_element *element, const char *what,
                         const char *value)
{
    char quoted[TOPO_QUOTE_BYTES];
    return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, element->line,
                         "<%s>: %s%s%s", element->name, what, value != NULL ? ", not " : "",
                         value != NULL ? topo_quote(value, quoted) : "");
}

/* ----------------------------------------------------------------------------------- attributes */

/* A number in [0, most]: decimal, or hexadecimal after 0x. `value` is untouched without the
 * attribute. */
static ist_status number_read(const reader *self, const topo_element *element, const char *key,
                              uint64_t most, uint64_t *value)
{
    const char *text = topo_xml_attr(element, key);
    if (text == NULL || *text == '\0') {
        return IST_OK;
    }
    char *end = NULL;
    bool digit = *text >= '0' && *text <= '9';
    uint64_t number = digit ? strtoull(text, &end, 0) : 0;
    if (digit && text[0] == '0' && text[1] >= '0' && text[1] <= '9') {
        number = strtoull(text, &end, 10); /* a leading zero is no octal here */
    }
    if (!digit || *end != '\0' || number > most) {
        char what[96];
        (void)snprintf(what, sizeof(what), "%s has to be a number from 0 to %" PRIu64, key, most);
        return refuse(self, element, what, text);
    }
    *value = number;
    return IST_OK;
}

/* A hexadecimal number, with 0x before it or without. */
static ist_status hex_number_read(const reader *self, const topo_element *element, const char *key,
                                  uint64_t most, uint64_t *value)
{
    const char *text = topo_xml_attr(element, key);
    if (text == NULL || *text == '\0') {
        return IST_OK;
    }
    const char *digits = strncmp(text, "0x", 2) == 0 ? text + 2 : text;
    char *end = NULL;
    uint64_t number = strtoull(digits, &end, 16);
    bool digit = strchr("0123456789abcdefABCDEF", digits[0]) != NULL && digits[0] != '\0';
    if (!digit || *end != '\0' || number > most) {
        char what[96];
        (void)snprintf(what, sizeof(what), "%s has to be hexadecimal, at most 0x%" PRIx64, key,
                       most);
        return refuse(self, element, what, text);
    }
    *value = number;
    return IST_OK;
}

static ist_status attrs_keep(reader *self, uint32_t node, const topo_element *element,
                             const char *prefix, const char *const *skipped)
{
    for (const char *const *at = element->attrs; *at != NULL; at += 2) {
        bool skip = false;
        for (size_t i = 0; skipped[i] != NULL && !skip; i++) {
            skip = strcmp(at[0], skipped[i]) == 0;
        }
        char key[64];
        int length = snprintf(key, sizeof(key), "%s%s", prefix, at[0]);
        if (!skip && length > 0 && (size_t)length < sizeof(key)) {
            IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, key, at[1]));
        }
    }
    return IST_OK;
}

/* Numbers that fields of a PCI element hold. */
typedef struct pci_facts {
    uint64_t class_id, vendor, device, width, bus, bridge;
    uint32_t generation;
    const char *bad_speed; /* a link_speed that says nothing, to be written again */
} pci_facts;

static ist_status pci_facts_read(const reader *self, const topo_element *element, pci_facts *facts)
{
    *facts = (pci_facts){.bus = TOPO_BUS_NONE};
    IST_RETURN_IF_ERROR(hex_number_read(self, element, "class", 0xffffff, &facts->class_id));
    IST_RETURN_IF_ERROR(hex_number_read(self, element, "vendor", 0xffff, &facts->vendor));
    IST_RETURN_IF_ERROR(hex_number_read(self, element, "device", 0xffff, &facts->device));
    IST_RETURN_IF_ERROR(number_read(self, element, "link_width", 255, &facts->width));
    facts->width = facts->width <= 32 ? facts->width : 0; /* 63 and 255: the system does not know */
    IST_RETURN_IF_ERROR(number_read(self, element, "ist_bridge", BRIDGES_MAX, &facts->bridge));
    const char *bus = topo_xml_attr(element, "busid");
    if (bus != NULL && !topo_bus_parse(bus, &facts->bus)) {
        return refuse(self, element, "busid has to be domain:bus:device.function", bus);
    }
    const char *speed = topo_xml_attr(element, "link_speed");
    if (speed != NULL && *speed == '-') {
        return refuse(self, element, "link_speed cannot be negative", speed);
    }
    facts->generation = speed != NULL ? topo_pci_generation(speed) : 0;
    facts->bad_speed = speed != NULL && facts->generation == 0 ? speed : NULL;
    return IST_OK;
}

static ist_status pci_facts_apply(reader *self, const topo_element *element, const pci_facts *facts,
                                  uint32_t node)
{
    static const char *const known[] = {"busid",
                                        "class",
                                        "vendor",
                                        "device",
                                        "link_speed",
                                        "link_width",
                                        "ist_bridge",

                                        "ist_domain",
                                        "subsystem_vendor",
                                        "subsystem_device",
                                        NULL};
    static const char *const sub[] = {"subsystem_vendor", "subsystem_device"};
    topo_node *made = topo_node_edit(self->graph, node);
    made->class_id = (uint32_t)facts->class_id;
    made->vendor = (uint16_t)facts->vendor;
    made->device = (uint16_t)facts->device;
    made->bus = facts->bus;
    for (size_t i = 0; i < sizeof(sub) / sizeof(sub[0]); i++) {
        const char *value = topo_xml_attr(element, sub[i]);
        if (value != NULL) {
            IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, sub[i], value));
        }
    }
    if (facts->bad_speed != NULL) {
        IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, "link_speed", facts->bad_speed));
    }
    if (facts->generation == 0 || facts->width == 0) {
        IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "rates of PCIe links",
                                             "not stated for all; third generation and 16 lanes "
                                             "are assumed there"));
    }
    IST_RETURN_IF_ERROR(attrs_keep(self, node, element, "pci.", known));
    return topo_build_pci(self->graph, node, facts->generation, (uint32_t)facts->width);
}

/* ------------------------------------------------------------------------------------ GPUs */

static ist_status gpu_link_read(reader *self, const topo_element *element, uint32_t gpu)
{
    uint64_t count = 1;
    uint64_t tclass = 0;
    const char *target = topo_xml_attr(element, "target");
    if (target == NULL) {
        return refuse(self, element, "has no target", NULL);
    }
    IST_RETURN_IF_ERROR(number_read(self, element, "count", 1024, &count));
    IST_RETURN_IF_ERROR(number_read(self, element, "tclass", 0xffffff, &tclass));
    topo_far_link far = {.gpu = gpu,
                         .count = (uint32_t)count,
                         .tclass = (uint32_t)tclass,
                         .xgmi = strcmp(element->name, "xgmi") == 0,
                         .target = target,
                         .line = element->line};
    return topo_far_add(&self->fars, &far);
}

static ist_status c2c_read(reader *self, const topo_element *element, uint32_t gpu)
{
    uint64_t megabytes = 0;
    uint64_t count = 1;
    IST_RETURN_IF_ERROR(number_read(self, element, "bw", 1000000000, &megabytes));
    IST_RETURN_IF_ERROR(number_read(self, element, "count", 1024, &count));
    uint64_t rate = megabytes * count * 1000000;
    if (rate > TOPO_RATE_MAX) {
        return refuse(self, element, "more than 1 PB/s", NULL);
    }
    return topo_build_link(self->graph, TOPO_LINK_C2C, gpu, topo_build_processor(self->graph, gpu),
                           (uint32_t)count, rate, rate, TOPO_VENDOR);
}

static ist_status gpu_read(reader *self, const topo_element *element, uint32_t node)
{
    static const char *const known[] = {"dev", "ist_busid", NULL};
    const char *bus = topo_xml_attr(element, "ist_busid");
    uint64_t dev = TOPO_BUS_NONE;
    uint64_t rank = 0;
    IST_RETURN_IF_ERROR(number_read(self, element, "dev", 0x7fffffff, &dev));
    const char *rank_text = topo_xml_attr(element, "rank");
    if (rank_text != NULL && strcmp(rank_text, "-1") != 0) {
        IST_RETURN_IF_ERROR(number_read(self, element, "rank", 0x7fffffff, &rank));
    }
    topo_node_edit(self->graph, node)->number = dev;
    if (bus != NULL && !topo_bus_parse(bus, &topo_node_edit(self->graph, node)->bus)) {
        return refuse(self, element, "ist_busid has to be a bus id", bus);
    }
    IST_RETURN_IF_ERROR(attrs_keep(self, node, element, "", known));
    bool c2c = false;
    for (const topo_element *child = element->child; child != NULL; child = child->next) {
        if (strcmp(child->name, "nvlink") == 0 || strcmp(child->name, "xgmi") == 0) {
            IST_RETURN_IF_ERROR(gpu_link_read(self, child, node));
        } else if (strcmp(child->name, "c2c") == 0) {
            if (c2c) {
                IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "chip-to-chip links",
                                                     "a GPU has several; the first was taken"));
                continue;
            }
            c2c = true;
            IST_RETURN_IF_ERROR(c2c_read(self, child, node));
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ NICs */

static ist_status rate_keep(reader *self, uint32_t node, uint64_t rate)
{
    if (node >= self->rate_room) {
        uint32_t room = 256;
        while (room <= node) {
            room *= 2;
        }
        uint64_t *larger = ist_alloc(room, sizeof(*larger));
        if (larger == NULL) {
            return topo_error_memory(OPERATION, "rates of NICs");
        }
        if (self->rate_room > 0) {
            memcpy(larger, self->rates, self->rate_room * sizeof(*larger));
        }
        ist_free(self->rates);
        self->rates = larger;
        self->rate_room = room;
    }
    self->rates[node] = rate;
    return IST_OK;
}

static ist_status net_read(reader *self, const topo_element *element, uint32_t node)
{
    static const char *const known[] = {"name", "dev", "speed", "rail", "ist_rate", NULL};
    uint64_t dev = TOPO_BUS_NONE;
    uint64_t megabits = 0;
    uint64_t rail = TOPO_NONE;
    uint64_t rate = 0;
    IST_RETURN_IF_ERROR(number_read(self, element, "dev", 0x7fffffff, &dev));
    IST_RETURN_IF_ERROR(number_read(self, element, "speed", 1000000000, &megabits));
    IST_RETURN_IF_ERROR(number_read(self, element, "ist_rate", TOPO_RATE_MAX, &rate));
    const char *rail_text = topo_xml_attr(element, "rail");
    if (rail_text != NULL && strcmp(rail_text, "-1") != 0) {
        IST_RETURN_IF_ERROR(number_read(self, element, "rail", 65535, &rail));
    }
    topo_node_edit(self->graph, node)->number = dev;
    topo_node_edit(self->graph, node)->domain = (uint32_t)rail;
    IST_RETURN_IF_ERROR(attrs_keep(self, node, element, "", known));
    return rate_keep(self, node, rate > 0 ? rate : megabits * 125000);
}

/* A NIC node for each <net> below `nic`, or one for a <nic> that only has a name. */
static ist_status nic_ports_read(reader *self, const topo_element *nic, uint32_t parent)
{
    uint32_t made = 0;
    uint32_t node = 0;
    for (const topo_element *net = topo_xml_child(nic, "net"); net != NULL;
         net = topo_xml_next(net, "net")) {
        IST_RETURN_IF_ERROR(
            topo_build_part(self->graph, TOPO_NIC, parent, topo_xml_attr(net, "name"), &node));
        IST_RETURN_IF_ERROR(net_read(self, net, node));
        made++;
    }
    const char *id = topo_xml_attr(nic, "id");
    if (made > 0 || id == NULL) {
        return IST_OK;
    }
    uint64_t megabits = 0;
    IST_RETURN_IF_ERROR(number_read(self, nic, "speed", 1000000000, &megabits));
    IST_RETURN_IF_ERROR(topo_build_part(self->graph, TOPO_NIC, parent, id, &node));
    return rate_keep(self, node, megabits * 125000);
}

/* ------------------------------------------------------------------------------------ PCI */

/* What the children of a <pci> are. */
typedef struct pci_children {
    uint32_t pcis, gpus, nets, slots, parts;
    const topo_element *gpu;
    const topo_element *net;
} pci_children;

static pci_children children_count(const topo_element *element)
{
    pci_children count = {0};
    for (const topo_element *child = element->child; child != NULL; child = child->next) {
        if (strcmp(child->name, "pci") == 0) {
            count.pcis++;
        } else if (strcmp(child->name, "gpu") == 0) {
            count.gpus++;
            count.gpu = child;
            count.parts += topo_xml_attr(child, "mlopart") != NULL;
        } else if (strcmp(child->name, "slot") == 0) {
            count.slots++;
        } else if (strcmp(child->name, "nic") == 0) {
            count.nets += topo_xml_attr(child, "id") != NULL && child->child == NULL;
            for (const topo_element *net = topo_xml_child(child, "net"); net != NULL;
                 net = topo_xml_next(net, "net")) {
                count.nets++;
                count.net = net;
            }
        }
    }
    return count;
}

static topo_kind pci_kind(const pci_facts *facts, const pci_children *count)
{
    bool parts_of_one = count->parts == count->gpus && count->nets == 0 && count->slots == 0;
    uint32_t devices = count->gpus + count->nets + count->slots;
    topo_kind use =
        topo_pci_use((uint32_t)facts->class_id, (uint16_t)facts->vendor, (uint16_t)facts->device);
    if (count->pcis > 0 || (use == TOPO_PCI_SWITCH && devices == 0) ||
        (count->gpus > 0 && devices > 1 && !parts_of_one) || count->slots > 0) {
        return TOPO_PCI_SWITCH;
    }
    if (devices > 1) {
        return TOPO_PCI_DEVICE;
    }
    if (count->gpus == 1) {
        return TOPO_GPU;
    }
    if (count->nets == 1) {
        return count->net != NULL ? TOPO_NIC : TOPO_PCI_DEVICE;
    }
    return use == TOPO_NVSWITCH ? TOPO_PCI_DEVICE : use;
}

static ist_status slot_read(reader *self, const topo_element *element, uint32_t parent)
{
    char name[48];
    uint32_t node = 0;
    char quoted[TOPO_QUOTE_BYTES];
    const char *id = topo_xml_attr(element, "id");
    (void)snprintf(name, sizeof(name), "slot %.40s", id != NULL ? topo_quote(id, quoted) : "?");
    IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "what sits in the slots",
                                         "the file numbers slots and leaves open which are GPUs"));
    return topo_build_part(self->graph, TOPO_PCI_DEVICE, parent, name, &node);
}

/* A link between switches beside the tree. */
static ist_status pci_link_read(reader *self, const topo_element *element, uint32_t node)
{
    topo_far_link far = {.gpu = node,
                         .pci = true,
                         .target = topo_xml_attr(element, "target"),
                         .line = element->line};
    if (far.target == NULL) {
        return refuse(self, element, "has no target", NULL);
    }
    return topo_far_add(&self->fars, &far);
}

static ist_status pci_read(reader *self, const topo_element *element, uint32_t parent,
                           uint32_t depth);

/* Children of a node that stands for several devices. */
static ist_status pci_children_read(reader *self, const topo_element *element, uint32_t node,
                                    uint32_t depth)
{
    for (const topo_element *child = element->child; child != NULL; child = child->next) {
        if (strcmp(child->name, "pci") == 0) {
            IST_RETURN_IF_ERROR(pci_read(self, child, node, depth + 1));
        } else if (strcmp(child->name, "gpu") == 0) {
            uint32_t gpu = 0;
            IST_RETURN_IF_ERROR(topo_build_part(self->graph, TOPO_GPU, node, "", &gpu));
            IST_RETURN_IF_ERROR(gpu_read(self, child, gpu));
        } else if (strcmp(child->name, "nic") == 0) {
            IST_RETURN_IF_ERROR(nic_ports_read(self, child, node));
        } else if (strcmp(child->name, "slot") == 0) {
            IST_RETURN_IF_ERROR(slot_read(self, child, node));
        } else if (strcmp(child->name, "pcilink") == 0) {
            IST_RETURN_IF_ERROR(pci_link_read(self, child, node));
        }
    }
    return IST_OK;
}

/* The host bridge that a converted file remembers: devices with one number share one. */
static ist_status bridge_enter(reader *self, const pci_facts *facts, uint32_t *parent)
{
    if (facts->bridge == 0) {
        return IST_OK;
    }
    char name[32];
    (void)snprintf(name, sizeof(name), "%" PRIu64, facts->bridge);
    if (self->bridges[facts->bridge] != 0) {
        *parent = self->bridges[facts->bridge];
        return IST_OK;
    }
    uint32_t made = 0;
    IST_RETURN_IF_ERROR(topo_build_part(self->graph, TOPO_HOST_BRIDGE, *parent, name, &made));
    topo_node_edit(self->graph, made)->number = facts->bridge;
    self->bridges[facts->bridge] = made;
    *parent = made;
    return IST_OK;
}

static ist_status pci_read(reader *self, const topo_element *element, uint32_t parent,
                           uint32_t depth)
{
    pci_facts facts;
    if (depth > TOPO_DEPTH_MAX) {
        return refuse(self, element, "nested too deeply", NULL);
    }
    IST_RETURN_IF_ERROR(pci_facts_read(self, element, &facts));
    IST_RETURN_IF_ERROR(bridge_enter(self, &facts, &parent));
    pci_children count = children_count(element);
    topo_kind kind = pci_kind(&facts, &count);
    uint32_t node = 0;
    const char *name =
        kind == TOPO_NIC && count.net != NULL ? topo_xml_attr(count.net, "name") : "";
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, kind, parent, name, &node));
    IST_RETURN_IF_ERROR(pci_facts_apply(self, element, &facts, node));
    if (kind == TOPO_PCI_SWITCH && facts.bus >> 16 == INVENTED_BUS) {
        IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "the real PCIe tree",
                                             "bridges with bus ids ffff:ff:xx are made up, as for "
                                             "virtual machines that hide theirs"));
    }
    if (kind == TOPO_GPU && count.gpu != NULL) {
        return gpu_read(self, count.gpu, node);
    }
    if (kind == TOPO_NIC) {
        return count.net != NULL ? net_read(self, count.net, node) : rate_keep(self, node, 0);
    }
    return pci_children_read(self, element, node, depth);
}

/* ----------------------------------------------------------------------------------- the system */

/* Remembers a machine, package or NUMA node. */
static ist_status place_keep(reader *self, const topo_element *element, uint32_t node)
{
    if (self->place_count == PLACES_MAX) {
        return refuse(self, element, "more than 16384 machines, packages and NUMA nodes", NULL);
    }
    self->places[self->place_count++] = node;
    return IST_OK;
}

/* A remembered node of a kind and number below `parent`; TOPO_NONE. Machines have no parent and are
 * told apart by name. */
static uint32_t place_find(const reader *self, topo_kind kind, uint32_t parent, uint64_t number,
                           const char *name)
{
    for (uint32_t i = 0; i < self->place_count; i++) {
        const topo_node *node = topo_node_at(self->graph, self->places[i]);
        if (node->kind == kind && node->parent == parent && node->number == number &&
            strcmp(node->name, name) == 0) {
            return self->places[i];
        }
    }
    return TOPO_NONE;
}

/* The machine of a host hash; files of one machine have none. */
static ist_status machine_enter(reader *self, const topo_element *element)
{
    const char *hash = topo_xml_attr(element, "host_hash");
    const char *name = hash != NULL ? hash : "";
    self->machine = place_find(self, TOPO_MACHINE, TOPO_NONE, TOPO_BUS_NONE, name);
    if (self->machine != TOPO_NONE) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_MACHINE, TOPO_NONE, name, &self->machine));
    return place_keep(self, element, self->machine);
}

static uint64_t socket_rate(const topo_element *element)
{
    const char *family = topo_xml_attr(element, "familyid");
    const char *model = topo_xml_attr(element, "modelid");
    return topo_smp_rate(topo_xml_attr(element, "arch"), topo_xml_attr(element, "vendor"),
                         family != NULL ? (uint32_t)strtoul(family, NULL, 0) : 0,
                         model != NULL ? (uint32_t)strtoul(model, NULL, 0) : 0);
}

static ist_status numa_unique(const reader *self, const topo_element *element, uint64_t id)
{
    for (uint32_t i = 0; i < self->place_count && id != TOPO_BUS_NONE; i++) {
        const topo_node *node = topo_node_at(self->graph, self->places[i]);
        if (node->kind == TOPO_NUMA && node->number == id &&
            topo_build_machine(self->graph, self->places[i]) == self->machine) {
            return refuse(self, element, "this numaid is given twice for one machine", NULL);
        }
    }
    return IST_OK;
}

/* The package that a converted file remembers. */
static ist_status package_enter(reader *self, const topo_element *element, uint64_t rate,
                                uint32_t *parent)
{
    uint64_t number = 0;
    *parent = self->machine;
    IST_RETURN_IF_ERROR(number_read(self, element, "ist_package", 65536, &number));
    if (number == 0) {
        return IST_OK;
    }
    uint32_t found = place_find(self, TOPO_PACKAGE, self->machine, number - 1, "");
    if (found != TOPO_NONE) {
        *parent = found;
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(
        topo_build_socket(self->graph, TOPO_PACKAGE, self->machine, "", rate, parent));
    topo_node_edit(self->graph, *parent)->number = number - 1;
    return place_keep(self, element, *parent);
}

static ist_status cpu_read(reader *self, const topo_element *element)
{
    static const char *const known[] = {"numaid", "host_hash", "ist_package", "ist_place", NULL};
    uint64_t id = TOPO_BUS_NONE;
    uint32_t node = 0;
    uint32_t parent = 0;
    uint64_t rate = socket_rate(element);
    const char *numa = topo_xml_attr(element, "numaid");
    memset(self->bridges, 0, sizeof(self->bridges));
    IST_RETURN_IF_ERROR(machine_enter(self, element));
    if (numa != NULL && strcmp(numa, "-1") != 0) {
        IST_RETURN_IF_ERROR(number_read(self, element, "numaid", 65535, &id));
    }
    if (id == TOPO_BUS_NONE) {
        IST_RETURN_IF_ERROR(
            topo_missing_add(self->graph, "NUMA nodes", "the file does not number its processors"));
    }
    IST_RETURN_IF_ERROR(numa_unique(self, element, id));
    IST_RETURN_IF_ERROR(package_enter(self, element, rate, &parent));
    const char *place = topo_xml_attr(element, "ist_place");
    node = parent; /* "package" or "machine": no NUMA node is known for what follows */
    if (place == NULL) {
        IST_RETURN_IF_ERROR(topo_build_socket(self->graph, TOPO_NUMA, parent, "", rate, &node));
        topo_node_edit(self->graph, node)->number = id;
        IST_RETURN_IF_ERROR(place_keep(self, element, node));
    }
    IST_RETURN_IF_ERROR(attrs_keep(self, node, element, "", known));
    return pci_children_read(self, element, node, 1);
}

static const topo_element *group_choose(reader *self, const topo_element *system, const char *group,
                                        ist_status *status)
{
    uint32_t count = 0;
    const topo_element *chosen = NULL;
    for (const topo_element *at = topo_xml_child(system, "group"); at != NULL;
         at = topo_xml_next(at, "group")) {
        const char *name = topo_xml_attr(at, "name");
        bool fits = group == NULL || (name != NULL && strstr(name, group) != NULL);
        chosen = chosen == NULL && fits ? at : chosen;
        count++;
    }
    if (count > 0 && chosen == NULL) {
        *status = refuse(self, system, "no group has this in its name", group);
    } else if (count > 1 && group == NULL) {
        char why[160];
        char quoted[TOPO_QUOTE_BYTES];
        const char *name = topo_xml_attr(chosen, "name");
        (void)snprintf(why, sizeof(why), "the file has %" PRIu32 " groups; the first was read: %s",
                       count, topo_quote(name != NULL ? name : "", quoted));
        *status = topo_missing_add(self->graph, "which group this machine is", why);
    }
    return chosen;
}

/* <gpu> directly below <system>: a map from GPUs to NICs, without a machine. */
static ist_status map_read(reader *self, const topo_element *system)
{
    for (const topo_element *at = topo_xml_child(system, "gpu"); at != NULL;
         at = topo_xml_next(at, "gpu")) {
        uint32_t node = 0;
        IST_RETURN_IF_ERROR(machine_enter(self, at));
        IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_GPU, self->machine, "", &node));
        IST_RETURN_IF_ERROR(gpu_read(self, at, node));
        IST_RETURN_IF_ERROR(topo_missing_add(
            self->graph, "where GPUs and NICs sit",
            "the file lists GPUs without PCI; a net attribute names the NIC each is to use"));
    }
    return IST_OK;
}

static ist_status system_read(reader *self, const topo_element *root, const char *group)
{
    if (strcmp(root->name, "cpu") == 0) {
        return cpu_read(self, root);
    }
    if (strcmp(root->name, "pci") == 0) {
        uint32_t numa = 0;
        IST_RETURN_IF_ERROR(machine_enter(self, root));
        IST_RETURN_IF_ERROR(topo_build_socket(self->graph, TOPO_NUMA, self->machine, "",
                                              topo_smp_rate(NULL, NULL, 0, 0), &numa));
        IST_RETURN_IF_ERROR(
            topo_missing_add(self->graph, "the machine", "the file is a fragment, one <pci>"));
        return pci_read(self, root, numa, 1);
    }
    uint64_t version = 1;
    IST_RETURN_IF_ERROR(number_read(self, root, "version", 2, &version));
    ist_status status = IST_OK;
    const topo_element *chosen = group_choose(self, root, group, &status);
    IST_RETURN_IF_ERROR(status);
    const topo_element *holder = chosen != NULL ? chosen : root;
    for (const topo_element *at = holder->child; at != NULL; at = at->next) {
        if (strcmp(at->name, "cpu") == 0) {
            IST_RETURN_IF_ERROR(cpu_read(self, at));
        }
    }
    IST_RETURN_IF_ERROR(map_read(self, holder));
    if (topo_node_count(self->graph) == 0) {
        return refuse(self, root, "has no <cpu> and no <gpu>", NULL);
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ the whole */

typedef struct rank_entry {
    uint64_t rank;
    uint32_t node;
} rank_entry;

static int rank_compare(const void *left, const void *right)
{
    const rank_entry *a = left;
    const rank_entry *b = right;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static ist_status ranks_unique(const reader *self)
{
    uint32_t count = topo_node_count(self->graph);
    rank_entry *entries = ist_alloc(count > 0 ? count : 1, sizeof(*entries));
    if (entries == NULL) {
        return topo_error_memory(OPERATION, "ranks");
    }
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const char *rank = topo_node_at(self->graph, i)->kind == TOPO_GPU
                               ? topo_attr_get(self->graph, i, "rank")
                               : NULL;
        if (rank != NULL && strcmp(rank, "-1") != 0) {
            entries[used++] = (rank_entry){strtoull(rank, NULL, 0), i};
        }
    }
    qsort(entries, used, sizeof(*entries), rank_compare);
    ist_status status = IST_OK;
    for (uint32_t i = 1; i < used && status == IST_OK; i++) {
        if (entries[i].rank == entries[i - 1].rank) {
            status = topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, 0,
                                   "rank %" PRIu64 " is given to two GPUs", entries[i].rank);
        }
    }
    ist_free(entries);
    return status;
}

/* Bus ids that a writer made up have done their work once links are resolved. */
static void virtuals_clear(reader *self)
{
    for (uint32_t i = 0; i < topo_node_count(self->graph); i++) {
        topo_node *node = topo_node_edit(self->graph, i);
        bool invented = topo_far_is_global(node->bus) || node->bus >> 24 == TOPO_NCCL_VIRTUAL;
        node->bus = invented ? TOPO_BUS_NONE : node->bus;
    }
}

static ist_status all_read(reader *self, const char *group)
{
    IST_RETURN_IF_ERROR(system_read(self, self->document->root, group));
    IST_RETURN_IF_ERROR(ranks_unique(self));
    IST_RETURN_IF_ERROR(topo_far_links_make(&self->fars, self->document->name, self->graph));
    virtuals_clear(self);
    uint32_t count = topo_node_count(self->graph);
    if (count > 0) {
        IST_RETURN_IF_ERROR(
            rate_keep(self, count - 1, self->rate_room >= count ? self->rates[count - 1] : 0));
    }
    IST_RETURN_IF_ERROR(topo_build_network(self->graph, self->rates));
    return topo_build_notice_slow(self->graph);
}

ist_status topo_nccl_read(const topo_document *document, const char *group, topo_graph *graph)
{
    reader *self = ist_alloc(1, sizeof(*self));
    if (self == NULL) {
        return topo_error_memory(OPERATION, "the reader");
    }
    self->document = document;
    self->graph = graph;
    ist_status status = all_read(self, group);
    ist_free(self->fars.items);
    ist_free(self->rates);
    ist_free(self);
    return status;
}
