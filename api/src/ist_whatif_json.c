/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers as JSON: keys in a fixed order, integers only.
 */
#include "ist_group.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define PRINT "estimate.print"

static const char *const link_names[IST_LINK_KINDS + 1] = {
#define X(name, value, text) [value] = text,
    IST_LINK_LIST(X)
#undef X
        [IST_LINK_KINDS] = "fixed",
};

static const char *name_of(uint32_t kind)
{
    return kind <= IST_LINK_KINDS ? link_names[kind] : "?";
}

/* JSON has signed numbers. */
static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *bytes_of(const uint64_t bytes[IST_LINK_KINDS])
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < IST_LINK_KINDS; ++i) {
        (void)json_object_set_new(object, link_names[i], number(bytes[i]));
    }
    return object;
}

static json_t *op_of(const ist_estimate_op *op)
{
    return json_pack(
        "{s:s, s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:s, s:s, s:b, s:o, s:o}", "kind",
        (uint32_t)op->kind < COST_KIND_COUNT ? cost_kind_names[op->kind] : "?", "algorithm",
        (uint32_t)op->algorithm < COST_ALGORITHM_COUNT ? cost_algorithm_names[op->algorithm] : "?",
        "stream", (int)op->stream, "path", op->path, "start_ps", number(op->start_ps), "end_ps",
        number(op->end_ps), "fixed_ps", number(op->fixed_ps), "transfer_ps",
        number(op->transfer_ps), "bottleneck", name_of(op->bottleneck), "confidence",
        (uint32_t)op->confidence < 3 ? cost_confidence_names[op->confidence] : "?", "critical",
        op->critical != 0, "buffer_bytes", number(op->buffer_bytes), "bytes", bytes_of(op->bytes));
}

static json_t *links_of(const ist_estimate *estimate)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < IST_LINK_KINDS; ++i) {
        const ist_estimate_link *link = &estimate->link[i];
        (void)json_object_set_new(object, link_names[i],
                                  json_pack("{s:o, s:o, s:o, s:o}", "bytes", number(link->bytes),
                                            "links", number(link->link_count), "idle",
                                            number(link->idle_count), "busiest_permille",
                                            number(link->busiest_permille)));
    }
    return object;
}

static json_t *path_of(const ist_estimate *estimate, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; ++i) {
        const ist_estimate_op *op = &estimate->ops[i];
        if (op->critical != 0) {
            (void)json_array_append_new(list, json_pack("{s:i, s:o, s:s}", "op", (int)i, "ps",
                                                        number(op->end_ps - op->start_ps), "bound",
                                                        name_of(op->bottleneck)));
        }
    }
    return list;
}

static json_t *estimate_of(const ist_estimate *estimate)
{
    uint32_t count = estimate->ops == NULL ? 0 : estimate->op_count;
    count = count < estimate->op_capacity ? count : estimate->op_capacity;
    json_t *ops = json_array();
    for (uint32_t i = 0; i < count; ++i) {
        (void)json_array_append_new(ops, op_of(&estimate->ops[i]));
    }
    return json_pack(
        "{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:o, s:i, s:o, s:o, s:o}",
        "format", "isthmus-estimate", "version", (int)estimate->version, "total_ps",
        number(estimate->total_ps), "serial_ps", number(estimate->serial_ps), "ranks",
        number(estimate->rank_count), "nodes", number(estimate->node_count), "memory_bytes",
        number(estimate->memory_bytes), "memory_limit_bytes", number(estimate->memory_limit_bytes),
        "bottleneck", name_of(estimate->bottleneck), "busiest", estimate->busiest, "idle",
        estimate->idle, "confidence",
        (uint32_t)estimate->confidence < 3 ? cost_confidence_names[estimate->confidence] : "?",
        "events", number(estimate->event_count), "classes", (int)estimate->class_count, "links",
        links_of(estimate), "operations", ops, "critical_path", path_of(estimate, count));
}

ist_status ist_text_out(const char *made, const char *operation, char *text, size_t capacity,
                        size_t *needed)
{
    const size_t bytes = strlen(made) + 1;
    if (needed != NULL) {
        *needed = bytes;
    }
    if (text == NULL && capacity == 0 && needed != NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, text, "text", operation));
    if (capacity < bytes) {
        return ist_fail_value(NULL, IST_ERR_SIZE, "capacity", operation, bytes, capacity,
                              "capacity is %zu, the text has %zu bytes", capacity, bytes);
    }
    memcpy(text, made, bytes);
    return IST_OK;
}

ist_status ist_estimate_print(const ist_estimate *estimate, char *text, size_t capacity,
                              size_t *needed)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, estimate, "estimate", PRINT));
    ist_estimate known;
    IST_RETURN_IF_ERROR(ist_desc_read(NULL, estimate, 8, &known, sizeof(known), "estimate", PRINT));
    json_t *root = estimate_of(&known);
    char *dumped = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (dumped == NULL) {
        return ist_fail(NULL, IST_ERR_MEMORY, "text", PRINT, "no memory for the text");
    }
    const ist_status status = ist_text_out(dumped, PRINT, text, capacity, needed);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(dumped);
    return status;
}
