/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a graph as JSON. Keys that have nothing to say are left out.
 */
#include "topo_json.h"
#include "topo_pci.h"

#include <inttypes.h>

static void attrs_put(const topo_graph *graph, uint32_t first, topo_text *text)
{
    if (first == TOPO_NONE) {
        return;
    }
    topo_text_add(text, ", \"attrs\": {");
    for (uint32_t i = first; i != TOPO_NONE; i = topo_attr_at(graph, i)->next) {
        topo_text_add(text, i == first ? "" : ", ");
        topo_text_add_json(text, topo_attr_at(graph, i)->key);
        topo_text_add(text, ": ");
        topo_text_add_json(text, topo_attr_at(graph, i)->value);
    }
    topo_text_add(text, "}");
}

static void node_put(const topo_graph *graph, uint32_t id, topo_text *text)
{
    const topo_node *node = topo_node_at(graph, id);
    topo_text_add(text, "    {\"kind\": \"%s\"", topo_kind_text(node->kind));
    if (node->parent != TOPO_NONE) {
        topo_text_add(text, ", \"parent\": %" PRIu32, node->parent);
    }
    if (node->name[0] != '\0') {
        topo_text_add(text, ", \"name\": ");
        topo_text_add_json(text, node->name);
    }
    if (node->number != TOPO_BUS_NONE) {
        topo_text_add(text, ", \"number\": %" PRIu64, node->number);
    }
    if (node->bus != TOPO_BUS_NONE) {
        char bus[TOPO_BUS_TEXT];
        topo_bus_print(node->bus, bus);
        topo_text_add(text, ", \"bus\": \"%s\"", bus);
    }
    if (node->class_id != 0) {
        topo_text_add(text, ", \"class\": %" PRIu32, node->class_id);
    }
    if (node->vendor != 0 || node->device != 0) {
        topo_text_add(text, ", \"vendor\": %u, \"device\": %u", node->vendor, node->device);
    }
    if ((node->kind == TOPO_NIC || node->kind == TOPO_RAIL) && node->domain != TOPO_NONE) {
        topo_text_add(text, ", \"rail\": %" PRIu32, node->domain);
    }
    attrs_put(graph, node->attrs, text);
    topo_text_add(text, "}");
}

static void rate_put(topo_text *text, const char *key, uint64_t value)
{
    if (value != 0) {
        topo_text_add(text, ", \"%s\": %" PRIu64, key, value);
    }
}

static void link_put(const topo_graph *graph, uint32_t id, topo_text *text)
{
    const topo_link *link = topo_link_at(graph, id);
    topo_text_add(text, "    {\"kind\": \"%s\", \"a\": %" PRIu32 ", \"b\": %" PRIu32,
                  topo_link_text(link->kind), link->a, link->b);
    if (link->health != TOPO_HEALTHY) {
        topo_text_add(text, ", \"health\": \"%s\"", topo_health_text(link->health));
    }
    rate_put(text, "count", link->count);
    rate_put(text, "bytes_per_s", link->bytes_per_s);
    rate_put(text, "nominal_bytes_per_s", link->nominal_bytes_per_s);
    rate_put(text, "now_bytes_per_s", link->now_bytes_per_s);
    rate_put(text, "latency_ps", link->latency_ps);
    if (link->bytes_per_s != 0) {
        topo_text_add(text, ", \"rate_origin\": \"%s\"", topo_origin_text(link->rate_origin));
    }
    if (link->latency_ps != 0) {
        topo_text_add(text, ", \"latency_origin\": \"%s\"", topo_origin_text(link->latency_origin));
    }
    topo_text_add(text, "}");
}

static void missing_put(const topo_graph *graph, uint32_t index, topo_text *text)
{
    const topo_missing *missing = topo_missing_at(graph, index);
    topo_text_add(text, "    {\"what\": ");
    topo_text_add_json(text, missing->what);
    topo_text_add(text, ", \"why\": ");
    topo_text_add_json(text, missing->why);
    topo_text_add(text, "}");
}

static void list_put(const topo_graph *graph, const char *key, uint32_t count,
                     void (*put)(const topo_graph *, uint32_t, topo_text *), topo_text *text)
{
    topo_text_add(text, "  \"%s\": [", key);
    for (uint32_t i = 0; i < count && !text->failed; i++) {
        topo_text_add(text, i == 0 ? "\n" : ",\n");
        put(graph, i, text);
    }
    topo_text_add(text, count == 0 ? "]" : "\n  ]");
}

void topo_json_write(const topo_graph *graph, topo_text *text)
{
    topo_text_add(text,
                  "{\n  \"format\": \"isthmus-topology\",\n  \"version\": 1,\n  \"source\": ");
    topo_text_add_json(text, topo_source(graph));
    topo_text_add(text, ",\n");
    list_put(graph, "nodes", topo_node_count(graph), node_put, text);
    topo_text_add(text, ",\n");
    list_put(graph, "links", topo_link_count(graph), link_put, text);
    topo_text_add(text, ",\n");
    list_put(graph, "missing", topo_missing_count(graph), missing_put, text);
    topo_text_add(text, "\n}\n");
}
