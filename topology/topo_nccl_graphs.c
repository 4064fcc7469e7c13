/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs that NCCL found, as far as they tell of the machine: which GPUs and NICs there are,
 * who is next to whom in a ring or tree over NVLink, and how bad the worst path between GPUs is.
 */
#include "topo_nccl.h"
#include "topo_build.h"
#include "topo_error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.graphs"
#define DEVICES_MAX 1024u

typedef struct reader {
    const topo_document *document;
    topo_graph *graph;
    uint32_t machine;
    uint32_t count; /* GPUs */
    uint64_t devs[DEVICES_MAX];
    uint32_t nodes[DEVICES_MAX];
    uint32_t net_count;
    uint64_t nets[DEVICES_MAX];
    uint64_t *joined; /* [DEVICES_MAX * DEVICES_MAX / 64] NVLink neighbours, a bit each */
    topo_path_type worst;
} reader;

static ist_status refuse(const reader *self, const topo_element *element, const char *what)
{
    return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, element->line, "<%s>: %s",
                         element->name, what);
}

static ist_status dev_read(const reader *self, const topo_element *element, uint64_t *dev)
{
    const char *text = topo_xml_attr(element, "dev");
    char *end = NULL;
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return refuse(self, element, "dev has to be a number");
    }
    *dev = strtoull(text, &end, 0);
    if (*end != '\0' || *dev > 0x7fffffff) {
        return refuse(self, element, "dev has to be a number below 2^31");
    }
    return IST_OK;
}

static uint32_t place_of(const uint64_t *list, uint32_t count, uint64_t value)
{
    uint32_t i = 0;
    while (i < count && list[i] != value) {
        i++;
    }
    return i;
}

static void join(reader *self, uint32_t a, uint32_t b)
{
    uint32_t bit = a * DEVICES_MAX + b;
    self->joined[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static bool are_joined(const reader *self, uint32_t a, uint32_t b)
{
    uint32_t bit = a * DEVICES_MAX + b;
    return (self->joined[bit / 64] >> (bit % 64) & 1u) != 0;
}

/* ------------------------------------------------------------------------------------ reading */

static void type_read(reader *self, const char *text)
{
    topo_path_type type = TOPO_PATH_NVL;
    while (type < TOPO_PATH_NET && strcmp(topo_path_text(type), text) != 0) {
        type++;
    }
    if (type < TOPO_PATH_NET && type > self->worst) {
        self->worst = type;
    }
}

/* The GPUs of a channel in their order; two that follow each other over NVLink are neighbours. */
static ist_status channel_read(reader *self, const topo_element *channel, bool nvlink)
{
    uint32_t before = DEVICES_MAX;
    for (const topo_element *at = channel->child; at != NULL; at = at->next) {
        uint64_t dev = 0;
        bool gpu = strcmp(at->name, "gpu") == 0;
        if (!gpu && strcmp(at->name, "net") != 0) {
            continue;
        }
        IST_RETURN_IF_ERROR(dev_read(self, at, &dev));
        uint64_t *list = gpu ? self->devs : self->nets;
        uint32_t *count = gpu ? &self->count : &self->net_count;
        uint32_t place = place_of(list, *count, dev);
        if (place == DEVICES_MAX) {
            return refuse(self, at, "more than 1024 devices");
        }
        list[place] = dev;
        *count = place == *count ? place + 1 : *count;
        if (gpu && nvlink && before < DEVICES_MAX && before != place) {
            join(self, before, place);
            join(self, place, before);
        }
        before = gpu ? place : before;
    }
    return IST_OK;
}

static ist_status graph_read(reader *self, const topo_element *graph)
{
    const char *type = topo_xml_attr(graph, "typeintra");
    const char *pattern = topo_xml_attr(graph, "pattern");
    bool nvlink = type != NULL && strcmp(type, "NVL") == 0;
    bool channels = topo_xml_child(graph, "channel") != NULL;
    if (type != NULL && channels) {
        type_read(self, type);
    }
    /* Ring (4) and balanced trees: neighbours in the list are neighbours in fact. */
    bool ring = pattern != NULL && strcmp(pattern, "4") == 0;
    for (const topo_element *at = topo_xml_child(graph, "channel"); at != NULL;
         at = topo_xml_next(at, "channel")) {
        IST_RETURN_IF_ERROR(channel_read(self, at, nvlink && ring));
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ making */

/* Where a GPU has to sit so that two of them are as far apart as the worst path says. */
static ist_status parent_make(reader *self, uint32_t *shared, uint32_t *parent)
{
    uint64_t rate = topo_smp_rate(NULL, NULL, 0, 0);
    bool apart = self->worst == TOPO_PATH_SYS;
    if (apart || *shared == TOPO_NONE) {
        IST_RETURN_IF_ERROR(
            topo_build_socket(self->graph, TOPO_NUMA, self->machine, "", rate, shared));
    }
    *parent = *shared;
    if (self->worst == TOPO_PATH_NODE) {
        return topo_build_part(self->graph, TOPO_HOST_BRIDGE, *shared, "", parent);
    }
    return IST_OK;
}

static ist_status gpus_make(reader *self)
{
    uint32_t shared = TOPO_NONE;
    uint32_t bridge = TOPO_NONE;
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t parent = 0;
        IST_RETURN_IF_ERROR(parent_make(self, &shared, &parent));
        bool switched = self->worst == TOPO_PATH_PIX || self->worst == TOPO_PATH_PXB;
        if (switched && bridge == TOPO_NONE) {
            IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_PCI_SWITCH, parent, "", &bridge));
            IST_RETURN_IF_ERROR(topo_build_pci(self->graph, bridge, 0, 0));
        }
        uint32_t above = switched ? bridge : parent;
        if (self->worst == TOPO_PATH_PXB) {
            IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_PCI_SWITCH, bridge, "", &above));
            IST_RETURN_IF_ERROR(topo_build_pci(self->graph, above, 0, 0));
        }
        IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_GPU, above, "", &self->nodes[i]));
        topo_node_edit(self->graph, self->nodes[i])->number = self->devs[i];
        IST_RETURN_IF_ERROR(topo_build_pci(self->graph, self->nodes[i], 0, 0));
    }
    return IST_OK;
}

static ist_status links_make(reader *self)
{
    uint64_t nominal = 0;
    uint64_t effective = 0;
    topo_nvlink_rate(0, &nominal, &effective);
    for (uint32_t i = 0; i < self->count; i++) {
        for (uint32_t j = i + 1; j < self->count; j++) {
            if (are_joined(self, i, j)) {
                IST_RETURN_IF_ERROR(topo_build_link(self->graph, TOPO_LINK_NVLINK, self->nodes[i],
                                                    self->nodes[j], 1, 0, effective, TOPO_DEFAULT));
            }
        }
    }
    return IST_OK;
}

static ist_status nics_make(reader *self)
{
    uint32_t parent = topo_node_edit(self->graph, self->nodes[0])->parent;
    for (uint32_t i = 0; i < self->net_count; i++) {
        uint32_t node = 0;
        IST_RETURN_IF_ERROR(topo_build_part(self->graph, TOPO_NIC, parent, "", &node));
        topo_node_edit(self->graph, node)->number = self->nets[i];
    }
    return IST_OK;
}

static ist_status all_make(reader *self)
{
    for (const topo_element *at = topo_xml_child(self->document->root, "graph"); at != NULL;
         at = topo_xml_next(at, "graph")) {
        IST_RETURN_IF_ERROR(graph_read(self, at));
    }
    if (self->count == 0) {
        return refuse(self, self->document->root, "no channel names a GPU");
    }
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_MACHINE, TOPO_NONE, "", &self->machine));
    IST_RETURN_IF_ERROR(gpus_make(self));
    IST_RETURN_IF_ERROR(links_make(self));
    IST_RETURN_IF_ERROR(nics_make(self));
    IST_RETURN_IF_ERROR(topo_missing_add(self->graph, "the machine",
                                         "the file has search results: neighbours in rings and the "
                                         "worst path type, no tree and no counts"));
    uint64_t *rates = ist_alloc(topo_node_count(self->graph), sizeof(*rates));
    if (rates == NULL) {
        return topo_error_memory(OPERATION, "rates of NICs");
    }
    ist_status status = topo_build_network(self->graph, rates);
    ist_free(rates);
    return status;
}

ist_status topo_nccl_graphs_read(const topo_document *document, topo_graph *graph)
{
    reader *self = ist_alloc(1, sizeof(*self));
    uint64_t *joined = ist_alloc(DEVICES_MAX * DEVICES_MAX / 64, sizeof(*joined));
    ist_status status = IST_OK;
    if (self == NULL || joined == NULL) {
        status = topo_error_memory(OPERATION, "the reader");
    } else {
        self->document = document;
        self->graph = graph;
        self->joined = joined;
        self->worst = TOPO_PATH_PHB;
        status = all_make(self);
    }
    ist_free(joined);
    ist_free(self);
    return status;
}
