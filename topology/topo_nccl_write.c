/* SPDX-License-Identifier: Apache-2.0 */
/* A graph as NCCL topology XML. Nodes without a bus id get one of a domain that no machine has, so
 * that links can name them.
 */
#include "topo_nccl.h"
#include "topo_error.h"
#include "topo_pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPERATION "topology.nccl"
#define GLOBAL_DOMAIN UINT64_C(0xfffffff)

typedef struct writer {
    const topo_graph *graph;
    topo_text *text;
    uint32_t *child; /* [nodes] first child; TOPO_NONE */
    uint32_t *next;  /* [nodes] next child of the same parent */
    bool alike;      /* machines share names */
    bool meshed;     /* NVSwitches are linked to each other, which the format cannot say */
} writer;

static const topo_node *node_of(const writer *self, uint32_t node)
{
    return topo_node_at(self->graph, node);
}

static void indent(writer *self, uint32_t depth)
{
    topo_text_add(self->text, "%*s", (int)(2 * depth), "");
}

static void attr_put(writer *self, const char *key, const char *value)
{
    topo_text_add(self->text, " %s=\"", key);
    topo_text_add_xml(self->text, value);
    topo_text_add(self->text, "\"");
}

/* ------------------------------------------------------------------------------------ names */

/* Its own bus id, or one made from its place in the graph. A switch of several machines gets the
 * domain that stands for what NCCL cannot see. */
static void bus_text(const writer *self, uint32_t node, char text[TOPO_BUS_TEXT])
{
    const topo_node *found = node_of(self, node);
    uint64_t bus = found->bus;
    if (bus == TOPO_BUS_NONE && found->kind == TOPO_NVSWITCH && found->machine == TOPO_NONE) {
        bus = GLOBAL_DOMAIN << 24 | (0xffff - (found->index & 0xffff)) << 8;
    } else if (bus == TOPO_BUS_NONE) {
        bus = TOPO_NCCL_VIRTUAL << 24 | (node & 0xffff) << 8 | (node >> 16 & 0xf);
    }
    topo_bus_print(bus, text);
}

/* Attributes that belong to the PCI function, not to the GPU or port on it. */
static bool is_pci_attr(const char *key)
{
    return strncmp(key, "pci.", 4) == 0 || strncmp(key, "subsystem_", 10) == 0;
}

static void attrs_put(writer *self, uint32_t node, bool pci)
{
    for (uint32_t i = node_of(self, node)->attrs; i != TOPO_NONE;
         i = topo_attr_at(self->graph, i)->next) {
        const topo_attr *attr = topo_attr_at(self->graph, i);
        if (strcmp(attr->key, "link_speed") != 0 && is_pci_attr(attr->key) == pci) {
            attr_put(self, strncmp(attr->key, "pci.", 4) == 0 ? attr->key + 4 : attr->key,
                     attr->value);
        }
    }
}

/* ------------------------------------------------------------------------------------ PCI */

static void speed_put(writer *self, uint32_t node)
{
    const topo_link *link = topo_link_at(self->graph, node_of(self, node)->uplink);
    const char *stated = topo_attr_get(self->graph, node, "link_speed");
    uint32_t generation = 0;
    uint32_t width = link->count;
    for (uint32_t i = 1; i <= 7 && width > 0 && generation == 0; i++) {
        generation = topo_pci_nominal(i, width) == link->nominal_bytes_per_s ? i : 0;
    }
    if (generation == 0 && link->nominal_bytes_per_s > 0) {
        topo_pci_guess(link->nominal_bytes_per_s, &generation, &width);
    }
    const char *speed = topo_pci_speed(generation);
    attr_put(self, "link_speed", generation == 0 && stated != NULL ? stated : speed);
    topo_text_add(self->text, " link_width=\"%" PRIu32 "\"", width);
}

static void pci_open(writer *self, uint32_t node, uint32_t bridge, uint32_t depth)
{
    char bus[TOPO_BUS_TEXT];
    const topo_node *found = node_of(self, node);
    uint32_t class_id = found->class_id;
    if (class_id == 0) {
        class_id = found->kind == TOPO_PCI_SWITCH ? TOPO_PCI_BRIDGE << 8
                   : found->kind == TOPO_GPU      ? 0x030200u
                   : found->kind == TOPO_NIC      ? 0x020000u
                                                  : 0;
    }
    bus_text(self, node, bus);
    indent(self, depth);
    topo_text_add(self->text, "<pci busid=\"%s\"", bus);
    if (class_id != 0) {
        topo_text_add(self->text, " class=\"0x%06" PRIx32 "\"", class_id);
    }
    if (found->vendor != 0 || found->device != 0) {
        topo_text_add(self->text, " vendor=\"0x%04x\" device=\"0x%04x\"", found->vendor,
                      found->device);
    }
    attrs_put(self, node, true);
    speed_put(self, node);
    if (bridge != 0) {
        topo_text_add(self->text, " ist_bridge=\"%" PRIu32 "\"", bridge);
    }
}

/* ---------------------------------------------------------------------------------- GPUs, ports */

static void gpu_link_put(writer *self, uint32_t gpu, uint32_t id, uint32_t depth)
{
    const topo_link *link = topo_link_at(self->graph, id);
    uint32_t far = topo_other(self->graph, id, gpu);
    uint32_t count = link->health == TOPO_DOWN ? 0 : link->count;
    if (link->kind == TOPO_LINK_C2C) {
        uint32_t parts = link->count > 0 ? link->count : 1;
        indent(self, depth);
        topo_text_add(self->text, "<c2c bw=\"%" PRIu64 "\" count=\"%" PRIu32 "\"/>\n",
                      link->bytes_per_s / parts / 1000000, parts);
        return;
    }
    if (link->kind != TOPO_LINK_NVLINK && link->kind != TOPO_LINK_XGMI) {
        return;
    }
    char bus[TOPO_BUS_TEXT];
    topo_kind kind = node_of(self, far)->kind;
    if (self->meshed && kind == TOPO_NVSWITCH) {
        return;
    }
    bus_text(self, far, bus);
    indent(self, depth);
    topo_text_add(self->text, "<%s target=\"%s\" count=\"%" PRIu32 "\" tclass=\"%s\"/>\n",
                  link->kind == TOPO_LINK_XGMI ? "xgmi" : "nvlink", bus, count,
                  kind == TOPO_GPU        ? "0x030200"
                  : kind == TOPO_NVSWITCH ? "0x068000"
                                          : "0x068001");
}

/* All links of a GPU to switches that are linked to each other, as links to one of them. */
static void mesh_put(writer *self, uint32_t gpu, uint32_t depth)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < topo_degree(self->graph, gpu); i++) {
        uint32_t id = topo_link_of(self->graph, gpu, i);
        const topo_link *link = topo_link_at(self->graph, id);
        bool up = node_of(self, topo_other(self->graph, id, gpu))->kind == TOPO_NVSWITCH &&
                  link->health != TOPO_DOWN;
        count += up ? link->count : 0;
    }
    for (uint32_t i = 0; i < topo_kind_count(self->graph, TOPO_NVSWITCH) && count > 0; i++) {
        uint32_t node = topo_kind_at(self->graph, TOPO_NVSWITCH, i);
        if (node_of(self, node)->domain == node_of(self, gpu)->domain) {
            char bus[TOPO_BUS_TEXT];
            bus_text(self, node, bus);
            indent(self, depth);
            topo_text_add(self->text,
                          "<nvlink target=\"%s\" count=\"%" PRIu32 "\" tclass=\"0x068000\"/>\n",
                          bus, count);
            return;
        }
    }
}

static void gpu_put(writer *self, uint32_t gpu, uint32_t depth)
{
    const topo_node *found = node_of(self, gpu);
    indent(self, depth);
    topo_text_add(self->text, "<gpu");
    if (found->number != TOPO_BUS_NONE) {
        topo_text_add(self->text, " dev=\"%" PRIu64 "\"", found->number);
    }
    attrs_put(self, gpu, false);
    if (found->uplink == TOPO_NONE) {
        char bus[TOPO_BUS_TEXT];
        bus_text(self, gpu, bus);
        attr_put(self, "ist_busid", bus);
    }
    size_t before = self->text->length;
    topo_text_add(self->text, ">\n");
    for (uint32_t i = 0; i < topo_degree(self->graph, gpu); i++) {
        gpu_link_put(self, gpu, topo_link_of(self->graph, gpu, i), depth + 1);
    }
    if (self->meshed) {
        mesh_put(self, gpu, depth + 1);
    }
    if (!self->text->failed && self->text->length == before + 2) {
        self->text->length = before;
        topo_text_add(self->text, "/>\n");
        return;
    }
    indent(self, depth);
    topo_text_add(self->text, "</gpu>\n");
}

static void net_put(writer *self, uint32_t nic, uint32_t depth)
{
    const topo_node *found = node_of(self, nic);
    indent(self, depth);
    topo_text_add(self->text, "<nic>\n");
    indent(self, depth + 1);
    topo_text_add(self->text, "<net");
    attr_put(self, "name", found->name);
    if (found->number != TOPO_BUS_NONE) {
        topo_text_add(self->text, " dev=\"%" PRIu64 "\"", found->number);
    }
    for (uint32_t i = 0; i < topo_degree(self->graph, nic); i++) {
        const topo_link *link = topo_link_at(self->graph, topo_link_of(self->graph, nic, i));
        if (link->kind == TOPO_LINK_NET && link->rate_origin != TOPO_DEFAULT) {
            topo_text_add(self->text, " speed=\"%" PRIu64 "\"", link->bytes_per_s / 125000);
            if (link->bytes_per_s % 125000 != 0) {
                topo_text_add(self->text, " ist_rate=\"%" PRIu64 "\"", link->bytes_per_s);
            }
            break;
        }
    }
    if (found->domain != TOPO_NONE) {
        topo_text_add(self->text, " rail=\"%" PRIu32 "\"", found->domain);
    }
    attrs_put(self, nic, false);
    topo_text_add(self->text, "/>\n");
    indent(self, depth);
    topo_text_add(self->text, "</nic>\n");
}

/* ------------------------------------------------------------------------------------ the tree */

static bool has_pci_link(const writer *self, uint32_t node)
{
    uint32_t up = node_of(self, node)->uplink;
    return up != TOPO_NONE && topo_link_at(self->graph, up)->kind == TOPO_LINK_PCI;
}

static void device_put(writer *self, uint32_t node, uint32_t bridge, uint32_t depth);

static void children_put(writer *self, uint32_t node, uint32_t bridge, uint32_t depth)
{
    for (uint32_t i = self->child[node]; i != TOPO_NONE; i = self->next[i]) {
        device_put(self, i, bridge, depth);
    }
}

/* Links of a switch beside the tree, from its end with the lower number. */
static void peers_put(writer *self, uint32_t node, uint32_t depth)
{
    for (uint32_t i = 0; i < topo_degree(self->graph, node); i++) {
        uint32_t id = topo_link_of(self->graph, node, i);
        uint32_t far = topo_other(self->graph, id, node);
        if (topo_link_at(self->graph, id)->kind == TOPO_LINK_PCI && far > node &&
            node_of(self, far)->uplink != id && node_of(self, far)->kind == TOPO_PCI_SWITCH) {
            char bus[TOPO_BUS_TEXT];
            bus_text(self, far, bus);
            indent(self, depth);
            topo_text_add(self->text, "<pcilink target=\"%s\"/>\n", bus);
        }
    }
}

/* What a PCI function carries. A NIC that nothing is known about but its function needs no port. */
static void function_put(writer *self, uint32_t node, uint32_t depth)
{
    const topo_node *found = node_of(self, node);
    if (found->kind == TOPO_GPU) {
        gpu_put(self, node, depth);
    } else if (found->kind == TOPO_NIC) {
        net_put(self, node, depth);
    } else {
        peers_put(self, node, depth);
        children_put(self, node, 0, depth);
    }
}

static void device_put(writer *self, uint32_t node, uint32_t bridge, uint32_t depth)
{
    topo_kind kind = node_of(self, node)->kind;
    if (kind == TOPO_NUMA || kind == TOPO_PACKAGE || kind == TOPO_HOST_BRIDGE ||
        kind == TOPO_NVSWITCH || node_of(self, node)->uplink == TOPO_NONE) {
        return;
    }
    if (has_pci_link(self, node)) {
        pci_open(self, node, bridge, depth);
        topo_text_add(self->text, ">\n");
        function_put(self, node, depth + 1);
        indent(self, depth);
        topo_text_add(self->text, "</pci>\n");
    } else if (kind == TOPO_GPU || kind == TOPO_NIC) {
        function_put(self, node, depth);
    } else {
        indent(self, depth);
        const char *name = node_of(self, node)->name;
        topo_text_add(self->text, "<slot");
        attr_put(self, "id", strncmp(name, "slot ", 5) == 0 ? name + 5 : name);
        topo_text_add(self->text, "/>\n");
    }
}

/* Number of a package in its machine, from 1; 0: not in one. */
static uint32_t package_number(const writer *self, uint32_t place)
{
    const topo_node *found = node_of(self, place);
    uint32_t package = found->kind == TOPO_PACKAGE ? place : found->parent;
    if (package == TOPO_NONE || node_of(self, package)->kind != TOPO_PACKAGE) {
        return 0;
    }
    uint32_t number = 0;
    uint32_t machine = node_of(self, package)->parent;
    for (uint32_t i = self->child[machine]; i != TOPO_NONE && i <= package; i = self->next[i]) {
        number += node_of(self, i)->kind == TOPO_PACKAGE;
    }
    return number;
}

static void cpu_open(writer *self, uint32_t place)
{
    const topo_node *found = node_of(self, place);
    const topo_node *machine = node_of(self, found->machine);
    uint32_t package = package_number(self, place);
    topo_text_add(self->text, "  <cpu");
    if (self->alike) {
        char hash[64];
        (void)snprintf(hash, sizeof(hash), "%.40s.%" PRIu32, machine->name, machine->index);
        attr_put(self, "host_hash", hash);
    } else if (machine->name[0] != '\0') {
        attr_put(self, "host_hash", machine->name);
    }
    if (found->kind == TOPO_NUMA && found->number != TOPO_BUS_NONE) {
        topo_text_add(self->text, " numaid=\"%" PRIu64 "\"", found->number);
    } else {
        topo_text_add(self->text, " numaid=\"-1\"");
    }
    attrs_put(self, place, false);
    if (package != 0) {
        topo_text_add(self->text, " ist_package=\"%" PRIu32 "\"", package);
    }
    if (found->kind != TOPO_NUMA) {
        topo_text_add(self->text, " ist_place=\"%s\"", topo_kind_text(found->kind));
    }
    topo_text_add(self->text, ">\n");
}

static bool carries_devices(const writer *self, uint32_t place)
{
    for (uint32_t i = self->child[place]; i != TOPO_NONE; i = self->next[i]) {
        topo_kind kind = node_of(self, i)->kind;
        if (kind != TOPO_NUMA && kind != TOPO_PACKAGE && kind != TOPO_NVSWITCH &&
            node_of(self, i)->uplink != TOPO_NONE) {
            return true;
        }
    }
    return false;
}

/* A NUMA node, or a package or machine with devices of which no NUMA node is known. */
static void cpu_put(writer *self, uint32_t place)
{
    if (node_of(self, place)->kind != TOPO_NUMA && !carries_devices(self, place)) {
        return;
    }
    uint32_t bridges = 0;
    cpu_open(self, place);
    children_put(self, place, 0, 2);
    for (uint32_t i = self->child[place]; i != TOPO_NONE; i = self->next[i]) {
        if (node_of(self, i)->kind == TOPO_HOST_BRIDGE) {
            children_put(self, i, ++bridges, 2);
        }
    }
    topo_text_add(self->text, "  </cpu>\n");
}

#define NAMES_MAX 2048u /* of more machines, names are not compared but numbered */

/* Whether two machines have one name, by which a reader would take them for one. */
static bool machines_alike(const topo_graph *graph)
{
    uint32_t count = topo_kind_count(graph, TOPO_MACHINE);
    bool alike = count > NAMES_MAX;
    for (uint32_t i = 0; i < count && !alike; i++) {
        const char *name = topo_node_at(graph, topo_kind_at(graph, TOPO_MACHINE, i))->name;
        for (uint32_t j = 0; j < i && !alike; j++) {
            uint32_t other = topo_kind_at(graph, TOPO_MACHINE, j);
            alike = strcmp(name, topo_node_at(graph, other)->name) == 0;
        }
    }
    return alike;
}

static void system_put(writer *self)
{
    uint32_t count = topo_node_count(self->graph);
    topo_text_add(self->text, "<system version=\"1\">\n");
    for (uint32_t i = 0; i < count && !self->text->failed; i++) {
        const topo_node *node = node_of(self, i);
        if (node->kind == TOPO_MACHINE || node->kind == TOPO_PACKAGE || node->kind == TOPO_NUMA) {
            cpu_put(self, i);
        } else if (node->kind == TOPO_GPU && node->uplink == TOPO_NONE) {
            gpu_put(self, i, 1);
        }
    }
    topo_text_add(self->text, "</system>\n");
}

/* Children in ascending order: prepended from the last node to the first. */
static void children_list(writer *self)
{
    for (uint32_t i = topo_node_count(self->graph); i-- > 0;) {
        uint32_t parent = node_of(self, i)->parent;
        self->child[i] = self->child[i] == 0 ? TOPO_NONE : self->child[i] - 1;
        if (parent != TOPO_NONE) {
            self->next[i] = self->child[parent] == 0 ? TOPO_NONE : self->child[parent] - 1;
            self->child[parent] = i + 1; /* counted from 1 until the parent itself is passed */
        }
    }
}

void topo_nccl_write(const topo_graph *graph, topo_text *text)
{
    uint32_t count = topo_node_count(graph);
    writer self = {.graph = graph,
                   .text = text,
                   .alike = machines_alike(graph),
                   .child = ist_alloc(count, sizeof(uint32_t)),
                   .next = ist_alloc(count, sizeof(uint32_t))};
    for (uint32_t i = 0; i < topo_link_count(graph) && !self.meshed; i++) {
        const topo_link *link = topo_link_at(graph, i);
        self.meshed = topo_node_at(graph, link->a)->kind == TOPO_NVSWITCH &&
                      topo_node_at(graph, link->b)->kind == TOPO_NVSWITCH;
    }
    if (self.child == NULL || self.next == NULL) {
        text->failed = true;
    } else {
        children_list(&self);
        system_put(&self);
    }
    ist_free(self.child);
    ist_free(self.next);
}
