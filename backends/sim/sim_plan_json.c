/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault plans as JSON: parse, load, print. The text is {"faults":[{…}, …]}; keys of a fault are in
 * the table below. Printing gives stable text: fixed key order, defaults left out.
 */
#include "sim_plan.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)64 << 20)

static ist_error plan_details(const char *operation)
{
    ist_error details = {.size = sizeof details, .rank = IST_RANK_NONE, .peer = IST_RANK_NONE};
    (void)snprintf(details.operation, sizeof details.operation, "%s", operation);
    (void)snprintf(details.object, sizeof details.object, "plan");
    return details;
}

/* ------------------------------------------------------------------------------ one fault */

typedef enum key_form { KEY_KIND, KEY_RANK, KEY_CLASSES, KEY_POINT, KEY_NUMBER } key_form;

/* In the order in which they are numbered in `seen`. */
enum {
    SEEN_KIND,
    SEEN_RANK,
    SEEN_PEER,
    SEEN_CLASSES,
    SEEN_AT_NS,
    SEEN_AT_OP,
    SEEN_AT_POINT,
    SEEN_NTH,
    SEEN_DURATION,
    SEEN_RATIO,
    SEEN_COUNT
};

/* `low` is the least number allowed; upper limits belong to sim_fault_check(). */
typedef struct fault_key {
    const char *name;
    key_form form;
    size_t offset;
    int64_t low;
} fault_key;

static const fault_key fault_keys[] = {
    [SEEN_KIND] = {"kind", KEY_KIND, 0, 0},
    [SEEN_RANK] = {"rank", KEY_RANK, offsetof(ist_fault, rank), IST_FAULT_ANY},
    [SEEN_PEER] = {"peer", KEY_RANK, offsetof(ist_fault, peer), IST_FAULT_ANY},
    [SEEN_CLASSES] = {"classes", KEY_CLASSES, 0, 0},
    [SEEN_AT_NS] = {"at_ns", KEY_NUMBER, offsetof(ist_fault, at_ns), 0},
    [SEEN_AT_OP] = {"at_op", KEY_NUMBER, offsetof(ist_fault, at_op), 1},
    [SEEN_AT_POINT] = {"at_point", KEY_POINT, 0, 0},
    [SEEN_NTH] = {"nth", KEY_NUMBER, offsetof(ist_fault, at_op), 1},
    [SEEN_DURATION] = {"duration_ns", KEY_NUMBER, offsetof(ist_fault, duration_ns), 0},
    [SEEN_RATIO] = {"ratio", KEY_NUMBER, offsetof(ist_fault, ratio), 1},
    [SEEN_COUNT] = {"count", KEY_NUMBER, offsetof(ist_fault, count), 1},
};

enum { KEY_COUNT = sizeof fault_keys / sizeof fault_keys[0] };

static const char *const class_names[] = {"puts", "signals", "stores"};
enum { CLASS_COUNT = sizeof class_names / sizeof class_names[0] };

/* A fault being read. */
typedef struct fault_reader {
    uint32_t index; /* in the text */
    uint32_t seen;  /* 1 << SEEN_… */
    ist_fault fault;
} fault_reader;

/* Names fault, key, what stands there and what should. `value` NULL: the key is missing. */
static ist_status raise_key(const fault_reader *reader, const char *key, const json_t *value,
                            const char *expected)
{
    ist_error details = plan_details("fault_plan.parse");
    (void)snprintf(details.object, sizeof details.object, "faults[%u].%s", reader->index, key);
    if (json_is_integer(value)) {
        details.observed = (uint64_t)json_integer_value(value);
    }
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *observed = value == NULL ? "missing" : text == NULL ? "of a wrong value" : text;
    const ist_status status =
        ist_raise(IST_ERR_PARSE, &details, "faults[%u]: key \"%.40s\" is %.60s, expected %s",
                  reader->index, key, observed, expected);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    if (text != NULL) {
        release(text);
    }
    return status;
}

static ist_status read_kind(fault_reader *reader, const json_t *value)
{
    if (json_is_string(value) &&
        sim_fault_kind_named(json_string_value(value), &reader->fault.kind)) {
        return IST_OK;
    }
#define X(name, number, json) " " json
    return raise_key(reader, "kind", value, "one of" IST_FAULT_LIST(X));
#undef X
}

static ist_status read_rank(fault_reader *reader, const fault_key *key, const json_t *value)
{
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < key->low || number > INT32_MAX) {
        return raise_key(reader, key->name, value, "a rank, or -1 for any");
    }
    const int32_t rank = (int32_t)number;
    memcpy((char *)&reader->fault + key->offset, &rank, sizeof rank);
    return IST_OK;
}

static ist_status read_number(fault_reader *reader, const fault_key *key, const json_t *value)
{
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < key->low) {
        return raise_key(reader, key->name, value,
                         key->low == 0 ? "an integer from 0" : "an integer from 1");
    }
    const uint64_t positive = (uint64_t)number;
    memcpy((char *)&reader->fault + key->offset, &positive, sizeof positive);
    return IST_OK;
}

static ist_status read_point(fault_reader *reader, const json_t *value)
{
    const size_t bytes = json_string_length(value); /* 0 when it is no string */
    if (bytes == 0 || bytes >= sizeof reader->fault.point) {
        return raise_key(reader, "at_point", value, "a string of 1 to 47 bytes");
    }
    memcpy(reader->fault.point, json_string_value(value), bytes);
    return IST_OK;
}

static uint32_t class_named(const char *name)
{
    for (uint32_t i = 0; name != NULL && i < CLASS_COUNT; i++) {
        if (strcmp(class_names[i], name) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

static ist_status read_classes(fault_reader *reader, const json_t *value)
{
    const char *expected = "a non-empty array of \"puts\", \"signals\", \"stores\"";
    for (size_t i = 0; i < json_array_size(value); i++) {
        const uint32_t class_bit = class_named(json_string_value(json_array_get(value, i)));
        if (class_bit == 0) {
            return raise_key(reader, "classes", value, expected);
        }
        reader->fault.classes |= class_bit;
    }
    return reader->fault.classes != 0 ? IST_OK : raise_key(reader, "classes", value, expected);
}

static ist_status read_key(fault_reader *reader, const char *name, const json_t *value)
{
    uint32_t number = 0;
    while (number < KEY_COUNT && strcmp(fault_keys[number].name, name) != 0) {
        number++;
    }
    if (number == KEY_COUNT) {
        return raise_key(reader, name, value,
                         "no such key: kind, rank, peer, classes, at_ns, at_op, at_point, nth, "
                         "duration_ns, ratio, count");
    }
    const fault_key *key = &fault_keys[number];
    reader->seen |= 1u << number;
    switch (key->form) {
    case KEY_KIND: return read_kind(reader, value);
    case KEY_RANK: return read_rank(reader, key, value);
    case KEY_CLASSES: return read_classes(reader, value);
    case KEY_POINT: return read_point(reader, value);
    case KEY_NUMBER: return read_number(reader, key, value);
    }
    return raise_key(reader, name, value, "a known form");
}

/* nth alone is a trigger; beside at_point it says which pass. */
static ist_status read_trigger(fault_reader *reader, const json_t *object)
{
    const uint32_t at_ns = (reader->seen >> SEEN_AT_NS) & 1u;
    const uint32_t at_op = (reader->seen >> SEEN_AT_OP) & 1u;
    const uint32_t at_point = (reader->seen >> SEEN_AT_POINT) & 1u;
    const uint32_t nth = (reader->seen >> SEEN_NTH) & 1u & (at_point ^ 1u);
    const uint32_t triggers = sim_fault_traits_of(reader->fault.kind)->triggers;
    if (at_ns + at_op + at_point + nth > 1) {
        const char *second = nth ? "nth" : at_point ? "at_point" : "at_op";
        return raise_key(reader, second, json_object_get(object, second),
                         "absent, as there is another trigger");
    }
    if (at_ns + at_op + at_point + nth == 0 && (triggers & (1u << IST_FAULT_NTH)) == 0) {
        return raise_key(reader, "at_op", NULL, "a trigger: at_ns, at_op, or at_point and nth");
    }
    reader->fault.trigger = at_ns      ? IST_FAULT_AT_TIME
                            : at_op    ? IST_FAULT_AT_OP
                            : at_point ? IST_FAULT_AT_POINT
                                       : IST_FAULT_NTH;
    return IST_OK;
}

/* The key that fills a field of ist_fault. */
static const char *key_of_field(const char *field, ist_fault_trigger trigger)
{
    const bool counted = trigger == IST_FAULT_NTH || trigger == IST_FAULT_AT_POINT;
    if (strcmp(field, "trigger") == 0) {
        return trigger == IST_FAULT_AT_TIME    ? "at_ns"
               : trigger == IST_FAULT_AT_OP    ? "at_op"
               : trigger == IST_FAULT_AT_POINT ? "at_point"
                                               : "nth";
    }
    if (strcmp(field, "at_op") == 0 && counted) {
        return "nth";
    }
    return strcmp(field, "point") == 0 ? "at_point" : field;
}

/* Keys that the kind does not take are refused even where their value is the default. */
static ist_status read_surplus(const fault_reader *reader, const json_t *object)
{
    const uint32_t fields = sim_fault_traits_of(reader->fault.kind)->fields;
    static const struct {
        uint32_t seen, field;
    } owned[] = {{SEEN_PEER, SIM_FIELD_PEER},
                 {SEEN_CLASSES, SIM_FIELD_CLASSES},
                 {SEEN_DURATION, SIM_FIELD_DURATION},
                 {SEEN_RATIO, SIM_FIELD_RATIO},
                 {SEEN_COUNT, SIM_FIELD_COUNT}};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        if ((reader->seen & (1u << owned[i].seen)) != 0 && (fields & owned[i].field) == 0) {
            const char *key = fault_keys[owned[i].seen].name;
            return raise_key(reader, key, json_object_get(object, key),
                             "absent for this kind of fault");
        }
    }
    return IST_OK;
}

static ist_status read_fault(fault_reader *reader, json_t *object)
{
    reader->fault =
        (ist_fault){.size = sizeof reader->fault, .rank = IST_FAULT_ANY, .peer = IST_FAULT_ANY};
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        IST_RETURN_IF_ERROR(read_key(reader, name, value));
    }
    if ((reader->seen & (1u << SEEN_KIND)) == 0) {
        return raise_key(reader, "kind", NULL, "a kind of fault");
    }
    IST_RETURN_IF_ERROR(read_trigger(reader, object));
    IST_RETURN_IF_ERROR(read_surplus(reader, object));
    sim_fault_flaw flaw;
    if (!sim_fault_check(&reader->fault, &flaw)) {
        const char *key = key_of_field(flaw.field, reader->fault.trigger);
        return raise_key(reader, key, json_object_get(object, key), flaw.rule);
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------ the text */

static ist_status raise_shape(const char *message)
{
    const ist_error details = plan_details("fault_plan.parse");
    return ist_raise(IST_ERR_PARSE, &details, "fault plan: %s", message);
}

static ist_status read_faults(ist_fault_plan *plan, json_t *faults)
{
    size_t index;
    json_t *object;
    json_array_foreach(faults, index, object)
    {
        fault_reader reader = {.index = (uint32_t)index};
        if (!json_is_object(object)) {
            char message[64];
            (void)snprintf(message, sizeof message, "faults[%u] is no object in braces",
                           reader.index);
            return raise_shape(message);
        }
        IST_RETURN_IF_ERROR(read_fault(&reader, object));
        IST_RETURN_IF_ERROR(sim_plan_append(plan, &reader.fault));
    }
    return IST_OK;
}

static ist_status read_root(ist_fault_plan *plan, json_t *root)
{
    if (!json_is_object(root)) {
        return raise_shape("expected an object {\"faults\":[…]} at the top");
    }
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "faults") != 0) {
            char message[96];
            (void)snprintf(message, sizeof message,
                           "unknown key \"%.40s\" at the top, expected \"faults\"", name);
            return raise_shape(message);
        }
    }
    json_t *faults = json_object_get(root, "faults");
    if (!json_is_array(faults)) {
        return raise_shape("key \"faults\" is missing or no array");
    }
    const uint32_t count = plan->count;
    const ist_status status = read_faults(plan, faults);
    if (status != IST_OK) {
        plan->count = count;
    }
    return status;
}

/* `where` begins the sentence: a path, or "fault plan". */
static ist_status parse_bytes(ist_fault_plan *plan, const char *text, size_t bytes,
                              const char *where)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        ist_error details = plan_details("fault_plan.parse");
        if (json_error_code(&error) == json_error_out_of_memory) {
            return ist_raise(IST_ERR_MEMORY, &details, "no memory to parse %.80s", where);
        }
        details.observed = error.line > 0 ? (uint64_t)error.line : 0;
        return ist_raise(IST_ERR_PARSE, &details, "%.80s: line %d, column %d: %.120s", where,
                         error.line, error.column, error.text);
    }
    const ist_status status = read_root(plan, root);
    json_decref(root);
    return status;
}

ist_status ist_fault_plan_parse(ist_fault_plan *plan, const char *json)
{
    IST_RETURN_IF_ERROR(sim_plan_usable(plan, "fault_plan.parse"));
    if (json == NULL) {
        return sim_plan_null("fault_plan.parse", "json");
    }
    return parse_bytes(plan, json, strlen(json), "fault plan");
}

/* ------------------------------------------------------------------------------ files */

typedef struct file_text {
    char *bytes;
    size_t used;
    size_t capacity;
} file_text;

static ist_status raise_io(const char *path, int reason)
{
    ist_error details = plan_details("fault_plan.load");
    details.observed = (uint64_t)reason;
    return ist_raise(IST_ERR_IO, &details, "cannot read %.120s: %s", path, strerror(reason));
}

static ist_status text_grow(file_text *text, const char *path)
{
    const ist_error details = plan_details("fault_plan.load");
    if (text->capacity >= FILE_BYTES_MAX) {
        return ist_raise(IST_ERR_PARSE, &details, "%.120s has more than %zu bytes", path,
                         FILE_BYTES_MAX);
    }
    const size_t capacity = text->capacity == 0 ? 4096 : text->capacity * 2;
    char *bytes = ist_alloc(capacity, 1);
    if (bytes == NULL) {
        return ist_raise(IST_ERR_MEMORY, &details, "no memory to read %.120s (%zu bytes)", path,
                         capacity);
    }
    if (text->used != 0) {
        memcpy(bytes, text->bytes, text->used);
    }
    ist_free(text->bytes);
    text->bytes = bytes;
    text->capacity = capacity;
    return IST_OK;
}

static ist_status text_fill(file_text *text, FILE *file, const char *path)
{
    for (;;) {
        if (text->used == text->capacity) {
            IST_RETURN_IF_ERROR(text_grow(text, path));
        }
        errno = 0;
        const size_t got = fread(text->bytes + text->used, 1, text->capacity - text->used, file);
        if (got == 0) {
            return ferror(file) ? raise_io(path, errno) : IST_OK;
        }
        text->used += got;
    }
}

ist_status ist_fault_plan_load(ist_fault_plan *plan, const char *path)
{
    IST_RETURN_IF_ERROR(sim_plan_usable(plan, "fault_plan.load"));
    if (path == NULL) {
        return sim_plan_null("fault_plan.load", "path");
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return raise_io(path, errno);
    }
    file_text text = {0};
    ist_status status = text_fill(&text, file, path);
    (void)fclose(file);
    if (status == IST_OK) {
        status = parse_bytes(plan, text.bytes, text.used, path);
    }
    ist_free(text.bytes);
    return status;
}

/* ------------------------------------------------------------------------------ printing */

/* Counts always; writes while text is not NULL. */
typedef struct plan_writer {
    char *text;
    size_t capacity;
    size_t used;
} plan_writer;

__attribute__((format(printf, 2, 3))) static void put(plan_writer *writer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *to = writer->text == NULL ? NULL : writer->text + writer->used;
    const int bytes =
        vsnprintf(to, to == NULL ? 0 : writer->capacity - writer->used, format, arguments);
    va_end(arguments);
    writer->used += bytes > 0 ? (size_t)bytes : 0;
}

static void put_number(plan_writer *writer, const char *key, uint64_t value, uint64_t omitted)
{
    if (value != omitted) {
        put(writer, ",\"%s\":%llu", key, (unsigned long long)value);
    }
}

static void put_classes(plan_writer *writer, uint32_t classes)
{
    const char *comma = "";
    put(writer, ",\"classes\":[");
    for (uint32_t i = 0; i < CLASS_COUNT; i++) {
        if ((classes & (1u << i)) != 0) {
            put(writer, "%s\"%s\"", comma, class_names[i]);
            comma = ",";
        }
    }
    put(writer, "]");
}

static void put_point(plan_writer *writer, const char *point)
{
    put(writer, ",\"at_point\":\"");
    for (; *point != '\0'; point++) {
        put(writer, *point == '"' || *point == '\\' ? "\\%c" : "%c", *point);
    }
    put(writer, "\"");
}

static void put_trigger(plan_writer *writer, const ist_fault *fault)
{
    switch (fault->trigger) {
    case IST_FAULT_AT_TIME: put_number(writer, "at_ns", fault->at_ns, UINT64_MAX); break;
    case IST_FAULT_AT_OP: put_number(writer, "at_op", fault->at_op, 0); break;
    case IST_FAULT_AT_POINT:
        put_point(writer, fault->point);
        put_number(writer, "nth", fault->at_op, 1);
        break;
    case IST_FAULT_NTH: put_number(writer, "nth", fault->at_op, 0); break;
    }
}

/* The fault is canonical, so a field that its kind lacks has the omitted value. */
static void put_fault(plan_writer *writer, const ist_fault *fault)
{
    const uint32_t fields = sim_fault_traits_of(fault->kind)->fields;
    put(writer, "{\"kind\":\"%s\"", sim_fault_kind_name(fault->kind));
    if (fault->rank != IST_FAULT_ANY) {
        put(writer, ",\"rank\":%d", (int)fault->rank);
    }
    if (fault->peer != IST_FAULT_ANY) {
        put(writer, ",\"peer\":%d", (int)fault->peer);
    }
    if (fault->classes != 0 && fault->classes != (IST_FAULT_PUTS | IST_FAULT_SIGNALS)) {
        put_classes(writer, fault->classes);
    }
    put_trigger(writer, fault);
    put_number(writer, "duration_ns", fault->duration_ns, 0);
    put_number(writer, "ratio", fault->ratio,
               (fields & SIM_FIELD_RATIO) != 0 ? SIM_FAULT_RATIO_DEFAULT : 0);
    put_number(writer, "count", fault->count, (fields & SIM_FIELD_COUNT) != 0 ? 1 : 0);
    put(writer, "}");
}

static void put_plan(plan_writer *writer, const ist_fault_plan *plan)
{
    put(writer, "{\"faults\":[");
    for (uint32_t i = 0; i < plan->count; i++) {
        put(writer, "%s", i == 0 ? "" : ",");
        put_fault(writer, &plan->faults[i]);
    }
    put(writer, "]}");
}

ist_status ist_fault_plan_print(const ist_fault_plan *plan, char *text, size_t capacity,
                                size_t *needed)
{
    IST_RETURN_IF_ERROR(sim_plan_usable(plan, "fault_plan.print"));
    const bool asking = text == NULL && capacity == 0 && needed != NULL;
    if (text == NULL && !asking) {
        return sim_plan_null("fault_plan.print", "text");
    }
    plan_writer writer = {0};
    put_plan(&writer, plan);
    const size_t bytes = writer.used + 1;
    if (needed != NULL) {
        *needed = bytes;
    }
    if (asking) {
        return IST_OK;
    }
    if (capacity < bytes) {
        ist_error details = plan_details("fault_plan.print");
        details.observed = capacity;
        details.expected = bytes;
        return ist_raise(IST_ERR_SIZE, &details, "capacity is %zu, the plan needs %zu bytes",
                         capacity, bytes);
    }
    writer = (plan_writer){.text = text, .capacity = capacity};
    put_plan(&writer, plan);
    return IST_OK;
}
