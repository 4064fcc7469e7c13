/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a graph, or the machine of a profile, from JSON. Jansson reads the text; here every value
 * is looked at once, and what is wrong is named by its list, place and key.
 */
#include "topo_json.h"
#include "topo_cluster_graph.h"
#include "topo_error.h"
#include "topo_pci.h"

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OPERATION "topology.json"
#define VALUES_MAX                                                                                 \
    8000000u /* commas and colons: what the parser makes of a text is bounded by them */

typedef struct reader {
    const char *name;
    topo_graph *graph;
    const char *list; /* "nodes" or "links" */
    size_t place;
} reader;

static ist_status refuse(const reader *self, const char *key, const char *what)
{
    if (self->list == NULL) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->name, 0, "%s: %s", key, what);
    }
    return topo_error_at(IST_ERR_PARSE, OPERATION, self->name, 0, "%s[%zu].%s: %s", self->list,
                         self->place, key, what);
}

/* ------------------------------------------------------------------------------------ values */

/* A whole number from 0 to `most`; `value` stays when the key is not there. */
static ist_status number_get(const reader *self, const json_t *object, const char *key,
                             uint64_t most, uint64_t *value)
{
    const json_t *found = json_object_get(object, key);
    if (found == NULL) {
        return IST_OK;
    }
    json_int_t number = json_integer_value(found);
    if (!json_is_integer(found) || number < 0 || (uint64_t)number > most) {
        char what[64];
        (void)snprintf(what, sizeof(what), "has to be a number from 0 to %" PRIu64, most);
        return refuse(self, key, what);
    }
    *value = (uint64_t)number;
    return IST_OK;
}

static ist_status text_get(const reader *self, const json_t *object, const char *key,
                           const char **value)
{
    const json_t *found = json_object_get(object, key);
    if (found == NULL) {
        return IST_OK;
    }
    if (!json_is_string(found) || strlen(json_string_value(found)) != json_string_length(found)) {
        return refuse(self, key, "has to be a text");
    }
    *value = json_string_value(found);
    return IST_OK;
}

/* One of `count` words, as its place among them; `value` stays when the key is not there. */
static ist_status word_get(const reader *self, const json_t *object, const char *key,
                           const char *(*name)(uint32_t), uint32_t count, uint32_t *value)
{
    const char *text = NULL;
    IST_RETURN_IF_ERROR(text_get(self, object, key, &text));
    if (text == NULL) {
        return IST_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(name(i), text) == 0) {
            *value = i;
            return IST_OK;
        }
    }
    char what[96];
    char quoted[TOPO_QUOTE_BYTES];
    (void)snprintf(what, sizeof(what), "unknown word %s", topo_quote(text, quoted));
    return refuse(self, key, what);
}

static const char *kind_name(uint32_t i)
{
    return topo_kind_text((topo_kind)i);
}

static const char *link_name(uint32_t i)
{
    return topo_link_text((topo_link_kind)i);
}

static const char *origin_name(uint32_t i)
{
    return topo_origin_text((topo_origin)i);
}

static const char *health_name(uint32_t i)
{
    return topo_health_text((topo_health)i);
}

/* ------------------------------------------------------------------------------------ nodes */

static ist_status attrs_get(const reader *self, const json_t *object, uint32_t node)
{
    json_t *attrs = json_object_get(object, "attrs");
    const char *key = NULL;
    json_t *value = NULL;
    if (attrs == NULL) {
        return IST_OK;
    }
    if (!json_is_object(attrs) || json_object_size(attrs) > 256) {
        return refuse(self, "attrs", "has to be an object of at most 256 texts");
    }
    json_object_foreach(attrs, key, value)
    {
        const char *text = NULL;
        IST_RETURN_IF_ERROR(text_get(self, attrs, key, &text));
        IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, key, text));
    }
    return IST_OK;
}

static ist_status node_get(const reader *self, const json_t *object)
{
    uint32_t kind = TOPO_KINDS;
    uint64_t parent = TOPO_NONE;
    uint64_t class_id = 0;
    uint64_t vendor = 0;
    uint64_t device = 0;
    uint64_t number = TOPO_BUS_NONE;
    uint64_t rail = TOPO_NONE;
    const char *name = "";
    const char *bus = NULL;
    uint32_t node = 0;
    IST_RETURN_IF_ERROR(word_get(self, object, "kind", kind_name, TOPO_KINDS, &kind));
    if (kind == TOPO_KINDS) {
        return refuse(self, "kind", "is missing");
    }
    IST_RETURN_IF_ERROR(number_get(self, object, "parent", TOPO_NODES_MAX, &parent));
    IST_RETURN_IF_ERROR(number_get(self, object, "class", 0xffffff, &class_id));
    IST_RETURN_IF_ERROR(number_get(self, object, "vendor", 0xffff, &vendor));
    IST_RETURN_IF_ERROR(number_get(self, object, "device", 0xffff, &device));
    IST_RETURN_IF_ERROR(number_get(self, object, "number", INT64_MAX, &number));
    IST_RETURN_IF_ERROR(number_get(self, object, "rail", 65535, &rail));
    IST_RETURN_IF_ERROR(text_get(self, object, "name", &name));
    IST_RETURN_IF_ERROR(text_get(self, object, "bus", &bus));
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, (topo_kind)kind, (uint32_t)parent, name, &node));
    topo_node *made = topo_node_edit(self->graph, node);
    made->class_id = (uint32_t)class_id;
    made->vendor = (uint16_t)vendor;
    made->device = (uint16_t)device;
    made->number = number;
    made->domain = (uint32_t)rail;
    if (bus != NULL && !topo_bus_parse(bus, &made->bus)) {
        return refuse(self, "bus", "has to be domain:bus:device.function");
    }
    return attrs_get(self, object, node);
}

/* ------------------------------------------------------------------------------------ links */

static ist_status link_get(const reader *self, const json_t *object)
{
    topo_link link = {0};
    uint32_t kind = TOPO_LINK_KINDS;
    uint32_t health = TOPO_HEALTHY;
    uint32_t rate_origin = TOPO_DEFAULT;
    uint32_t latency_origin = TOPO_DEFAULT;
    uint64_t a = TOPO_NONE;
    uint64_t b = TOPO_NONE;
    uint64_t count = 0;
    IST_RETURN_IF_ERROR(word_get(self, object, "kind", link_name, TOPO_LINK_KINDS, &kind));
    IST_RETURN_IF_ERROR(word_get(self, object, "health", health_name, TOPO_HEALTHS, &health));
    IST_RETURN_IF_ERROR(
        word_get(self, object, "rate_origin", origin_name, TOPO_ORIGINS, &rate_origin));
    IST_RETURN_IF_ERROR(
        word_get(self, object, "latency_origin", origin_name, TOPO_ORIGINS, &latency_origin));
    IST_RETURN_IF_ERROR(number_get(self, object, "a", TOPO_NODES_MAX, &a));
    IST_RETURN_IF_ERROR(number_get(self, object, "b", TOPO_NODES_MAX, &b));
    IST_RETURN_IF_ERROR(number_get(self, object, "count", 65536, &count));
    IST_RETURN_IF_ERROR(number_get(self, object, "bytes_per_s", TOPO_RATE_MAX, &link.bytes_per_s));
    IST_RETURN_IF_ERROR(
        number_get(self, object, "nominal_bytes_per_s", TOPO_RATE_MAX, &link.nominal_bytes_per_s));
    IST_RETURN_IF_ERROR(
        number_get(self, object, "now_bytes_per_s", TOPO_RATE_MAX, &link.now_bytes_per_s));
    IST_RETURN_IF_ERROR(number_get(self, object, "latency_ps", TOPO_TIME_MAX, &link.latency_ps));
    if (kind == TOPO_LINK_KINDS || a == TOPO_NONE || b == TOPO_NONE) {
        return refuse(self, "kind", "kind, a and b are needed");
    }
    link.a = (uint32_t)a;
    link.b = (uint32_t)b;
    link.kind = (topo_link_kind)kind;
    link.health = (topo_health)health;
    link.rate_origin = (topo_origin)rate_origin;
    link.latency_origin = (topo_origin)latency_origin;
    link.count = (uint32_t)count;
    return topo_link_add(self->graph, &link, NULL);
}

static ist_status missing_get(const reader *self, const json_t *object)
{
    const char *what = "";
    const char *why = "";
    IST_RETURN_IF_ERROR(text_get(self, object, "what", &what));
    IST_RETURN_IF_ERROR(text_get(self, object, "why", &why));
    return topo_missing_add(self->graph, what, why);
}

static ist_status list_get(reader *self, const json_t *root, const char *key,
                           ist_status (*get)(const reader *, const json_t *))
{
    const json_t *list = json_object_get(root, key);
    self->list = NULL;
    if (list == NULL) {
        return IST_OK;
    }
    if (!json_is_array(list)) {
        return refuse(self, key, "has to be a list");
    }
    self->list = key;
    for (self->place = 0; self->place < json_array_size(list); self->place++) {
        const json_t *object = json_array_get(list, self->place);
        if (!json_is_object(object)) {
            return refuse(self, "", "has to be an object");
        }
        IST_RETURN_IF_ERROR(get(self, object));
    }
    self->list = NULL;
    return IST_OK;
}

static ist_status graph_get(reader *self, const json_t *root)
{
    const char *source = NULL;
    IST_RETURN_IF_ERROR(text_get(self, root, "source", &source));
    if (source != NULL) {
        IST_RETURN_IF_ERROR(topo_source_set(self->graph, source));
    }
    IST_RETURN_IF_ERROR(list_get(self, root, "nodes", node_get));
    IST_RETURN_IF_ERROR(list_get(self, root, "links", link_get));
    return list_get(self, root, "missing", missing_get);
}

/* ------------------------------------------------------------------------------------ profile */

typedef struct field_row {
    const char *key;
    size_t offset;
    uint64_t low, high;
} field_row;

static const field_row cluster_fields[] = {
#define X(field, key, unit, preset, low, high) {#field, offsetof(ist_cluster, field), low, high},
    IST_CLUSTER_FIELDS(X)
#undef X
};

/* Values of a profile that are fields of a cluster, by name. */
static ist_status profile_values(const reader *self, const json_t *values, ist_cluster *cluster)
{
    for (size_t i = 0; i < sizeof(cluster_fields) / sizeof(cluster_fields[0]); i++) {
        const field_row *row = &cluster_fields[i];
        const json_t *entry = json_object_get(values, row->key);
        uint64_t value = row->low;
        if (entry == NULL) {
            continue;
        }
        IST_RETURN_IF_ERROR(number_get(self, entry, "value", row->high, &value));
        if (value < row->low) {
            return refuse(self, row->key, "is too small");
        }
        memcpy((char *)cluster + row->offset, &value, sizeof(value));
    }
    return IST_OK;
}

static ist_status profile_get(reader *self, const json_t *root)
{
    const json_t *machine = json_object_get(root, "machine");
    uint64_t ranks = 1;
    uint64_t lsa = 1;
    ist_cluster cluster;
    IST_RETURN_IF_ERROR(number_get(self, machine, "ranks", 65536, &ranks));
    IST_RETURN_IF_ERROR(number_get(self, machine, "lsa_size", 65536, &lsa));
    if (ranks == 0 || lsa == 0 || ranks % lsa != 0) {
        return refuse(self, "machine", "lsa_size has to divide ranks");
    }
    IST_RETURN_IF_ERROR(ist_cluster_parse(NULL, &cluster));
    const json_t *values = json_object_get(root, "values");
    IST_RETURN_IF_ERROR(profile_values(self, values, &cluster));
    bool network = json_object_get(values, "nic_bytes_per_s") != NULL;
    cluster.node_count = 1;
    cluster.gpus_per_node = ranks;
    cluster.nvlink_domain = lsa > 1 ? lsa : 0;
    cluster.nics_per_node = network ? ranks : 0;
    IST_RETURN_IF_ERROR(topo_cluster_build(&cluster, 0, TOPO_MEASURED, self->graph));
    return topo_missing_add(self->graph, "the machine",
                            "a profile has numbers and team sizes; sockets and PCIe are made up");
}

/* ------------------------------------------------------------------------------------ the whole */

static ist_status root_get(reader *self, const json_t *root)
{
    const char *format = "";
    uint64_t version = 0;
    if (!json_is_object(root)) {
        return refuse(self, "the file", "has to be an object");
    }
    IST_RETURN_IF_ERROR(text_get(self, root, "format", &format));
    IST_RETURN_IF_ERROR(number_get(self, root, "version", 1000, &version));
    bool graph = strcmp(format, "isthmus-topology") == 0;
    bool profile = strcmp(format, "isthmus-profile") == 0;
    if (!graph && !profile) {
        return refuse(self, "format", "has to be isthmus-topology or isthmus-profile");
    }
    if (version != 1) {
        return refuse(self, "version", "only version 1 is known");
    }
    return graph ? graph_get(self, root) : profile_get(self, root);
}

static bool is_affordable(const char *bytes, size_t count)
{
    uint32_t values = 0;
    for (size_t i = 0; i < count && values < VALUES_MAX; i++) {
        values += bytes[i] == ',' || bytes[i] == ':';
    }
    return values < VALUES_MAX;
}

ist_status topo_json_read(const char *bytes, size_t count, const char *name, topo_graph *graph)
{
    reader self = {.name = name, .graph = graph};
    json_error_t error;
    if (!is_affordable(bytes, count)) {
        return refuse(&self, "the file", "has more than 8000000 values");
    }
    json_t *root = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, name, (uint64_t)error.line,
                             "column %d: not JSON: %s", error.column, error.text);
    }
    ist_status status = root_get(&self, root);
    json_decref(root);
    return status;
}
