/* SPDX-License-Identifier: Apache-2.0 */
/* Making and reading a graph: growing arrays, kept texts, attributes. What the seal works out is in
 * topo_seal.c.
 */
#include "topo_graph_internal.h"
#include "topo_error.h"

#include <string.h>

#define OPERATION "topology.build"
#define TEXT_BYTES_MAX 65536u
#define ATTRS_MAX (8u * TOPO_NODES_MAX)
#define MISSING_MAX 256u

/* ------------------------------------------------------------------------------------ memory */

/* Makes room for one more element of `bytes` bytes. */
static ist_status grow(void **array, uint32_t count, uint32_t *room, size_t bytes, const char *what)
{
    if (count < *room) {
        return IST_OK;
    }
    uint32_t wanted = *room == 0 ? 64 : *room * 2;
    void *larger = ist_alloc(wanted, bytes);
    if (larger == NULL) {
        return topo_error_memory(OPERATION, what);
    }
    if (count > 0) {
        memcpy(larger, *array, count * bytes);
    }
    ist_free(*array);
    *array = larger;
    *room = wanted;
    return IST_OK;
}

static ist_status refuse_count(const char *what, uint32_t limit)
{
    return topo_error_at(IST_ERR_RANGE, OPERATION, "topology", 0, "more than %u %s", limit, what);
}

ist_status topo_text_keep(topo_graph *graph, const char *text, const char **kept)
{
    size_t bytes = strlen(text) + 1;
    if (bytes > TEXT_BYTES_MAX) {
        return refuse_count("bytes in one text", TEXT_BYTES_MAX - 1);
    }
    const char *place = topo_arena_copy(&graph->texts, text, bytes - 1);
    if (place == NULL) {
        return topo_error_memory(OPERATION, "texts");
    }
    *kept = place;
    return IST_OK;
}

ist_status topo_graph_open(topo_graph **graph)
{
    topo_graph *made = ist_alloc(1, sizeof(*made));
    if (made == NULL) {
        return topo_error_memory(OPERATION, "a topology");
    }
    made->source = "";
    *graph = made;
    return IST_OK;
}

void topo_graph_close(topo_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    topo_arena_free(&graph->texts);
    ist_free(graph->nodes);
    ist_free(graph->links);
    ist_free(graph->attrs);
    ist_free(graph->missing);
    ist_free(graph->adjacent_first);
    ist_free(graph->adjacent);
    ist_free(graph->by_kind);
    ist_free(graph->machine_nics);
    ist_free(graph->machine_first);
    ist_free(graph->machine_numas);
    ist_free(graph->nics_in);
    ist_free(graph->gpu_nic);
    ist_free(graph);
}

/* ------------------------------------------------------------------------------------ making */

ist_status topo_node_add(topo_graph *graph, topo_kind kind, uint32_t parent, const char *name,
                         uint32_t *id)
{
    if (graph->node_count >= TOPO_NODES_MAX) {
        return refuse_count("nodes", TOPO_NODES_MAX);
    }
    void *nodes = graph->nodes;
    IST_RETURN_IF_ERROR(
        grow(&nodes, graph->node_count, &graph->node_room, sizeof(topo_node), "nodes"));
    graph->nodes = nodes;
    const char *kept = "";
    if (name != NULL && *name != '\0') {
        IST_RETURN_IF_ERROR(topo_text_keep(graph, name, &kept));
    }
    graph->nodes[graph->node_count] = (topo_node){.kind = kind,
                                                  .parent = parent,
                                                  .uplink = TOPO_NONE,
                                                  .machine = TOPO_NONE,
                                                  .index = TOPO_NONE,
                                                  .domain = TOPO_NONE,
                                                  .attrs = TOPO_NONE,
                                                  .bus = TOPO_BUS_NONE,
                                                  .number = TOPO_BUS_NONE,
                                                  .name = kept};
    *id = graph->node_count++;
    return IST_OK;
}

ist_status topo_link_add(topo_graph *graph, const topo_link *link, uint32_t *id)
{
    if (graph->link_count >= TOPO_LINKS_MAX) {
        return refuse_count("links", TOPO_LINKS_MAX);
    }
    void *links = graph->links;
    IST_RETURN_IF_ERROR(
        grow(&links, graph->link_count, &graph->link_room, sizeof(topo_link), "links"));
    graph->links = links;
    uint32_t made = graph->link_count;
    graph->links[made] = *link;
    if (link->a < graph->node_count && graph->nodes[link->a].parent == link->b &&
        graph->nodes[link->a].uplink == TOPO_NONE) {
        graph->nodes[link->a].uplink = made;
    }
    graph->link_count++;
    if (id != NULL) {
        *id = made;
    }
    return IST_OK;
}

static topo_attr *attr_find(const topo_graph *graph, uint32_t node, const char *key)
{
    for (uint32_t i = graph->nodes[node].attrs; i != TOPO_NONE; i = graph->attrs[i].next) {
        if (strcmp(graph->attrs[i].key, key) == 0) {
            return &graph->attrs[i];
        }
    }
    return NULL;
}

/* Attributes keep the order in which they came. */
static void attr_append(topo_graph *graph, uint32_t node, uint32_t attr)
{
    uint32_t *place = &graph->nodes[node].attrs;
    while (*place != TOPO_NONE) {
        place = &graph->attrs[*place].next;
    }
    *place = attr;
}

ist_status topo_attr_set(topo_graph *graph, uint32_t node, const char *key, const char *value)
{
    topo_attr *found = attr_find(graph, node, key);
    if (found != NULL) {
        return topo_text_keep(graph, value, &found->value);
    }
    if (graph->attr_count >= ATTRS_MAX) {
        return refuse_count("attributes", ATTRS_MAX);
    }
    void *attrs = graph->attrs;
    IST_RETURN_IF_ERROR(
        grow(&attrs, graph->attr_count, &graph->attr_room, sizeof(topo_attr), "attributes"));
    graph->attrs = attrs;
    topo_attr *made = &graph->attrs[graph->attr_count];
    made->next = TOPO_NONE;
    IST_RETURN_IF_ERROR(topo_text_keep(graph, key, &made->key));
    IST_RETURN_IF_ERROR(topo_text_keep(graph, value, &made->value));
    attr_append(graph, node, graph->attr_count++);
    return IST_OK;
}

ist_status topo_missing_add(topo_graph *graph, const char *what, const char *why)
{
    for (uint32_t i = 0; i < graph->missing_count; i++) {
        if (strcmp(graph->missing[i].what, what) == 0 && strcmp(graph->missing[i].why, why) == 0) {
            return IST_OK;
        }
    }
    if (graph->missing_count >= MISSING_MAX) {
        return IST_OK; /* who has read this many lines has understood */
    }
    void *missing = graph->missing;
    IST_RETURN_IF_ERROR(grow(&missing, graph->missing_count, &graph->missing_room,
                             sizeof(topo_missing), "the list of what is missing"));
    graph->missing = missing;
    topo_missing *made = &graph->missing[graph->missing_count];
    IST_RETURN_IF_ERROR(topo_text_keep(graph, what, &made->what));
    IST_RETURN_IF_ERROR(topo_text_keep(graph, why, &made->why));
    graph->missing_count++;
    return IST_OK;
}

void topo_missing_drop(topo_graph *graph, const char *what)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < graph->missing_count; i++) {
        if (strcmp(graph->missing[i].what, what) != 0) {
            graph->missing[kept++] = graph->missing[i];
        }
    }
    graph->missing_count = kept;
}

ist_status topo_source_set(topo_graph *graph, const char *source)
{
    return topo_text_keep(graph, source, &graph->source);
}

topo_node *topo_node_edit(topo_graph *graph, uint32_t node)
{
    return node < graph->node_count ? &graph->nodes[node] : NULL;
}

topo_link *topo_link_edit(topo_graph *graph, uint32_t link)
{
    return link < graph->link_count ? &graph->links[link] : NULL;
}

/* ------------------------------------------------------------------------------------ reading */

uint32_t topo_node_count(const topo_graph *graph)
{
    return graph->node_count;
}

uint32_t topo_link_count(const topo_graph *graph)
{
    return graph->link_count;
}

const topo_node *topo_node_at(const topo_graph *graph, uint32_t node)
{
    return &graph->nodes[node];
}

const topo_link *topo_link_at(const topo_graph *graph, uint32_t link)
{
    return &graph->links[link];
}

uint32_t topo_missing_count(const topo_graph *graph)
{
    return graph->missing_count;
}

const topo_missing *topo_missing_at(const topo_graph *graph, uint32_t index)
{
    return &graph->missing[index];
}

const char *topo_source(const topo_graph *graph)
{
    return graph->source;
}

const char *topo_attr_get(const topo_graph *graph, uint32_t node, const char *key)
{
    const topo_attr *found = attr_find(graph, node, key);
    return found != NULL ? found->value : NULL;
}

const topo_attr *topo_attr_at(const topo_graph *graph, uint32_t attr)
{
    return &graph->attrs[attr];
}

uint32_t topo_kind_count(const topo_graph *graph, topo_kind kind)
{
    return graph->kind_first[kind + 1] - graph->kind_first[kind];
}

uint32_t topo_kind_at(const topo_graph *graph, topo_kind kind, uint32_t index)
{
    if (index >= topo_kind_count(graph, kind)) {
        return TOPO_NONE;
    }
    return graph->by_kind[graph->kind_first[kind] + index];
}

uint32_t topo_gpu_count(const topo_graph *graph)
{
    return topo_kind_count(graph, TOPO_GPU);
}

uint32_t topo_gpu(const topo_graph *graph, uint32_t rank)
{
    return topo_kind_at(graph, TOPO_GPU, rank);
}

uint32_t topo_nic_count(const topo_graph *graph)
{
    return topo_kind_count(graph, TOPO_NIC);
}

uint32_t topo_nic(const topo_graph *graph, uint32_t index)
{
    return topo_kind_at(graph, TOPO_NIC, index);
}

uint32_t topo_degree(const topo_graph *graph, uint32_t node)
{
    return graph->adjacent_first[node + 1] - graph->adjacent_first[node];
}

uint32_t topo_link_of(const topo_graph *graph, uint32_t node, uint32_t i)
{
    return graph->adjacent[graph->adjacent_first[node] + i];
}

uint32_t topo_other(const topo_graph *graph, uint32_t link, uint32_t node)
{
    return graph->links[link].a == node ? graph->links[link].b : graph->links[link].a;
}

/* ------------------------------------------------------------------------------------ names */

#define X(name, text) text,
static const char *const kind_texts[] = {TOPO_KIND_LIST(X)};
static const char *const link_texts[] = {TOPO_LINK_LIST(X)};
static const char *const origin_texts[] = {TOPO_ORIGIN_LIST(X)};
static const char *const health_texts[] = {TOPO_HEALTH_LIST(X)};
#undef X
#define X(name, text, meaning) text,
static const char *const path_texts[] = {TOPO_PATH_LIST(X)};
#undef X
#define X(name, text, meaning) meaning,
static const char *const path_meanings[] = {TOPO_PATH_LIST(X)};
#undef X

const char *topo_kind_text(topo_kind kind)
{
    return kind < TOPO_KINDS ? kind_texts[kind] : "?";
}

const char *topo_link_text(topo_link_kind kind)
{
    return kind < TOPO_LINK_KINDS ? link_texts[kind] : "?";
}

const char *topo_origin_text(topo_origin origin)
{
    return origin < TOPO_ORIGINS ? origin_texts[origin] : "?";
}

const char *topo_health_text(topo_health health)
{
    return health < TOPO_HEALTHS ? health_texts[health] : "?";
}

const char *topo_path_text(topo_path_type type)
{
    return type < TOPO_PATH_TYPES ? path_texts[type] : "?";
}

const char *topo_path_meaning(topo_path_type type)
{
    return type < TOPO_PATH_TYPES ? path_meanings[type] : "?";
}
