/* SPDX-License-Identifier: Apache-2.0 */
/* NVLinks, XGMI links and PCIe links beside the tree: far ends resolved by bus id, what both ends say
 * compared, switches made.
 */
#include "topo_nccl_links.h"
#include "topo_build.h"
#include "topo_error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.nccl"
#define GLOBAL_DOMAIN UINT64_C(0xfffffff)
#define SWITCHES_MAX 256u /* searches run over them */

typedef struct linker {
    const topo_far_links *links;
    const char *name;
    topo_graph *graph;
    uint32_t switches[SWITCHES_MAX];
    uint32_t switch_count;
} linker;

ist_status topo_far_add(topo_far_links *links, const topo_far_link *link)
{
    if (links->count == links->room) {
        uint32_t room = links->room == 0 ? 64 : links->room * 2;
        topo_far_link *larger = ist_alloc(room, sizeof(*larger));
        if (larger == NULL) {
            return topo_error_memory(OPERATION, "NVLinks");
        }
        if (links->count > 0) {
            memcpy(larger, links->items, links->count * sizeof(*larger));
        }
        ist_free(links->items);
        links->items = larger;
        links->room = room;
    }
    links->items[links->count++] = *link;
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ NVLinks */

static uint32_t gpu_number(const topo_graph *graph, uint32_t gpu, const char *key)
{
    const char *text = topo_attr_get(graph, gpu, key);
    if (text == NULL) {
        return 0;
    }
    text += strcspn(text, "0123456789");
    return (uint32_t)strtoul(text, NULL, 10);
}

static void link_rates(const linker *self, const topo_far_link *far, uint64_t *nominal,
                       uint64_t *effective)
{
    if (far->xgmi) {
        topo_xgmi_rate(gpu_number(self->graph, far->gpu, "gcn"), nominal, effective);
    } else {
        topo_nvlink_rate(gpu_number(self->graph, far->gpu, "sm"), nominal, effective);
    }
}

/* What a far link adds: a new link, or, seen from its other end, a confirmation. */
typedef struct pair_entry {
    uint64_t key; /* low node << 32 | high node */
    uint32_t from;
    uint32_t count;
    uint64_t line;
    uint64_t nominal, effective; /* of one link */
    bool xgmi;
    bool pci;
} pair_entry;

static int pair_compare(const void *left, const void *right)
{
    const pair_entry *a = left;
    const pair_entry *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    if (a->pci != b->pci) {
        return a->pci ? 1 : -1;
    }
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    return a->line < b->line ? -1 : a->line > b->line;
}

bool topo_far_is_global(uint64_t bus)
{
    return bus >> 24 == GLOBAL_DOMAIN;
}

/* The switch of a bus id: one for all machines of the file when NCCL could not see it, else its
 * own. */
static ist_status switch_enter(linker *self, const topo_far_link *far, uint64_t bus, uint32_t *node)
{
    bool global = topo_far_is_global(bus);
    uint32_t machine = global ? TOPO_NONE : topo_build_machine(self->graph, far->gpu);
    for (uint32_t i = 0; i < self->switch_count; i++) {
        const topo_node *found = topo_node_at(self->graph, self->switches[i]);
        if (found->parent == machine && found->bus == bus) {
            *node = self->switches[i];
            return IST_OK;
        }
    }
    if (self->switch_count == SWITCHES_MAX) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->name, far->line,
                             "more than %u NVSwitches", SWITCHES_MAX);
    }
    const char *name = global ? "nvswitch" : "";
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_NVSWITCH, machine, name, node));
    topo_node_edit(self->graph, *node)->bus = bus;
    self->switches[self->switch_count++] = *node;
    return IST_OK;
}

/* The node a far link leads to; TOPO_NONE with a note when there is none. */
static ist_status far_resolve(linker *self, const topo_far_link *far, const topo_bus_index *index,
                              uint32_t *node)
{
    uint64_t bus = 0;
    char quoted[TOPO_QUOTE_BYTES];
    *node = TOPO_NONE;
    if (!topo_bus_parse(far->target, &bus)) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->name, far->line,
                             "target has to be a bus id, not %s", topo_quote(far->target, quoted));
    }
    if (far->pci) {
        uint32_t peer = topo_bus_find(index, topo_build_machine(self->graph, far->gpu), bus);
        bool fits = peer != TOPO_NONE && peer != far->gpu &&
                    topo_node_at(self->graph, peer)->kind == TOPO_PCI_SWITCH &&
                    topo_node_at(self->graph, peer)->parent != far->gpu &&
                    topo_node_at(self->graph, far->gpu)->parent != peer &&
                    topo_node_at(self->graph, far->gpu)->kind == TOPO_PCI_SWITCH;
        *node = fits ? peer : TOPO_NONE;
        return fits ? IST_OK
                    : topo_missing_add(self->graph, "PCIe links between switches",
                                       "one leads to what is no other switch, left out");
    }
    if (far->tclass == TOPO_PCI_POWER_CPU) {
        *node = topo_build_processor(self->graph, far->gpu);
        return IST_OK;
    }
    uint32_t found = topo_bus_find(index, topo_build_machine(self->graph, far->gpu), bus);
    if (found == far->gpu) {
        return topo_missing_add(self->graph, "NVLinks", "one leads from a GPU to itself, left out");
    }
    if (found != TOPO_NONE && topo_node_at(self->graph, found)->kind == TOPO_GPU) {
        *node = found;
        return IST_OK;
    }
    bool to_switch = far->tclass >> 8 == TOPO_PCI_NVSWITCH || topo_far_is_global(bus);
    if (to_switch && found == TOPO_NONE) {
        return switch_enter(self, far, bus, node);
    }
    if (to_switch) {
        /* The switch's own PCI function is in the file; it becomes the switch. */
        topo_node_edit(self->graph, found)->kind = TOPO_NVSWITCH;
        *node = found;
        return IST_OK;
    }
    return topo_missing_add(self->graph, "NVLinks",
                            "one leads to a device that is not in the file, left out");
}

/* One link from the entries of a pair, which both ends, one end or, twice, one end stated. */
static ist_status pair_link(linker *self, const pair_entry *entries, uint32_t count)
{
    uint32_t low = (uint32_t)(entries[0].key >> 32);
    uint32_t high = (uint32_t)entries[0].key;
    if (entries[0].pci) {
        return topo_build_link(self->graph, TOPO_LINK_PCI, low, high, 0, 0, 0, TOPO_DEFAULT);
    }
    uint32_t sums[2] = {0, 0};
    bool seen[2] = {false, false};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t side = entries[i].from == high;
        sums[side] += entries[i].count;
        seen[side] = true;
    }
    bool gpus = topo_node_at(self->graph, low)->kind == TOPO_GPU &&
                topo_node_at(self->graph, high)->kind == TOPO_GPU;
    uint32_t known =
        seen[0] && seen[1] ? (sums[0] < sums[1] ? sums[0] : sums[1]) : sums[0] + sums[1];
    topo_link link = {.a = low,
                      .b = high,
                      .kind = entries[0].xgmi ? TOPO_LINK_XGMI : TOPO_LINK_NVLINK,
                      .count = known,
                      .rate_origin = TOPO_VENDOR,
                      .latency_origin = TOPO_DEFAULT,
                      .bytes_per_s = entries[0].effective * known,
                      .nominal_bytes_per_s = entries[0].nominal * known,
                      .latency_ps = topo_latency(TOPO_LINK_NVLINK)};
    bool uneven = gpus && (seen[0] != seen[1] || sums[0] != sums[1]);
    link.health = known == 0 ? TOPO_DOWN : uneven ? TOPO_DEGRADED : TOPO_HEALTHY;
    if (known == 0 || uneven) {
        IST_RETURN_IF_ERROR(
            topo_missing_add(self->graph, "NVLinks",
                             known == 0 ? "one has count 0: taken to be down"
                                        : "the two ends of one state different counts; the "
                                          "smaller, or the only one, was taken"));
    }
    return topo_link_add(self->graph, &link, NULL);
}

static ist_status pairs_link(linker *self, pair_entry *entries, uint32_t count)
{
    qsort(entries, count, sizeof(*entries), pair_compare);
    for (uint32_t i = 0; i < count;) {
        uint32_t next = i + 1;
        while (next < count && entries[next].key == entries[i].key) {
            next++;
        }
        IST_RETURN_IF_ERROR(pair_link(self, entries + i, next - i));
        i = next;
    }
    return IST_OK;
}

static ist_status fars_link(linker *self, const topo_bus_index *index, pair_entry *entries)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->links->count; i++) {
        const topo_far_link *far = &self->links->items[i];
        uint32_t to = TOPO_NONE;
        IST_RETURN_IF_ERROR(far_resolve(self, far, index, &to));
        if (to == TOPO_NONE) {
            continue;
        }
        pair_entry *entry = &entries[count++];
        uint64_t low = far->gpu < to ? far->gpu : to;
        uint64_t high = far->gpu < to ? to : far->gpu;
        *entry = (pair_entry){.key = low << 32 | high,
                              .from = far->gpu,
                              .count = far->count,
                              .line = far->line,
                              .xgmi = far->xgmi,
                              .pci = far->pci};
        link_rates(self, far, &entry->nominal, &entry->effective);
    }
    return pairs_link(self, entries, count);
}

static ist_status all_make(linker *self)
{
    topo_bus_index index = {0};
    if (self->links->count == 0) {
        return topo_missing_add(
            self->graph, "NVLink",
            "the file has no <nvlink> or <xgmi>; hosts that have it add it when "
            "they run");
    }
    pair_entry *entries = ist_alloc(self->links->count, sizeof(*entries));
    ist_status status = entries != NULL ? topo_bus_index_make(self->graph, &index)
                                        : topo_error_memory(OPERATION, "NVLinks");
    if (status == IST_OK) {
        status = fars_link(self, &index, entries);
    }
    topo_bus_index_free(&index);
    ist_free(entries);
    return status;
}

ist_status topo_far_links_make(const topo_far_links *links, const char *name, topo_graph *graph)
{
    linker self = {.links = links, .name = name, .graph = graph};
    return all_make(&self);
}
