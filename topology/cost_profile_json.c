/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as JSON, both ways. Keys that are not known are passed over; a version that is not known
 * is refused.
 */
#include "cost_profile.h"

#include <isthmus/backend.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static ist_status refuse(const char *place, const char *expected)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .operation = "profile.parse"};
    (void)snprintf(details.object, sizeof details.object, "%s", place);
    return ist_raise(IST_ERR_PARSE, &details, "profile: %s is wrong or missing, expected %s", place,
                     expected);
}

static ist_status refuse_memory(void)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .object = "profile",
                         .operation = "profile.parse"};
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for a profile");
}

static bool read_count(const json_t *value, uint64_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *number = (uint64_t)json_integer_value(value);
    return true;
}

static void copy_text(char *to, size_t bytes, const json_t *value)
{
    (void)snprintf(to, bytes, "%s", json_is_string(value) ? json_string_value(value) : "");
}

/* ------------------------------------------------------------------------------------ reading */

static ist_status read_value(const json_t *values, const char *key, cost_profile *profile,
                             uint64_t *number)
{
    const json_t *value = json_object_get(values, key);
    if (value == NULL) {
        return IST_OK;
    }
    if (!read_count(json_object_get(value, "value"), number)) {
        return refuse(key, "an object with an integer \"value\"");
    }
    if (profile->origin[0] == '\0') {
        copy_text(profile->origin, sizeof profile->origin, json_object_get(value, "origin"));
    }
    return IST_OK;
}

static ist_status read_range(const json_t *entry, const char *key, uint64_t *low, uint64_t *high)
{
    const json_t *range = json_object_get(entry, key);
    const bool good = json_array_size(range) == 2 && read_count(json_array_get(range, 0), low) &&
                      read_count(json_array_get(range, 1), high) && *low <= *high;
    return good ? IST_OK : refuse(key, "two integers, ascending");
}

static bool named(const json_t *value, const char *const *names, uint32_t count, uint32_t *found)
{
    for (uint32_t i = 0; json_is_string(value) && i < count; ++i) {
        if (strcmp(json_string_value(value), names[i]) == 0) {
            *found = i;
            return true;
        }
    }
    return false;
}

static ist_status read_constants(const json_t *entry, cost_knobs *knobs)
{
    const json_t *constants = json_object_get(entry, "constants");
    for (uint32_t i = 0; i < COST_KNOB_COUNT; ++i) {
        uint64_t value = 0;
        const bool rate = strstr(cost_knob_names[i], "bytes_per_s") != NULL;
        if (!read_count(json_object_get(constants, cost_knob_names[i]), &value) ||
            value > UINT64_C(1000000000000000) || (rate && value == 0)) {
            return refuse(cost_knob_names[i], "an integer up to 10^15, rates above 0");
        }
        knobs->value[i] = value;
    }
    return IST_OK;
}

static ist_status read_curve(const json_t *entry, cost_profile_op *op)
{
    const json_t *curve = json_object_get(entry, "curve");
    if (json_array_size(curve) > COST_CURVE_MAX) {
        return refuse("curve", "at most 64 points");
    }
    for (size_t i = 0; i < json_array_size(curve); ++i) {
        const json_t *at = json_array_get(curve, i);
        cost_curve_point *point = &op->curve[i];
        if (!read_count(json_object_get(at, "bytes"), &point->bytes) || point->bytes == 0 ||
            !read_count(json_object_get(at, "permille"), &point->permille) ||
            point->permille == 0 || point->permille > 1000000 ||
            (i > 0 && point->bytes <= op->curve[i - 1].bytes)) {
            return refuse("curve", "ascending bytes, permille 1 to 1000000");
        }
        ++op->curve_count;
    }
    return IST_OK;
}

static ist_status read_op(const json_t *entry, cost_profile_op *op)
{
    uint32_t kind = 0;
    uint32_t algorithm = 0;
    if (!named(json_object_get(entry, "kind"), cost_kind_names, COST_KIND_COUNT, &kind)) {
        return refuse("operations.kind", "the name of an operation");
    }
    if (!named(json_object_get(entry, "algorithm"), cost_algorithm_names, COST_ALGORITHM_COUNT,
               &algorithm)) {
        return refuse("operations.algorithm", "the name of an algorithm");
    }
    op->kind = (cost_kind)kind;
    op->algorithm = (cost_algorithm)algorithm;
    copy_text(op->name, sizeof op->name, json_object_get(entry, "name"));
    copy_text(op->origin, sizeof op->origin, json_object_get(entry, "origin"));
    (void)read_count(json_object_get(entry, "residual_permille"), &op->residual_permille);
    (void)read_count(json_object_get(entry, "blocks"), &op->blocks);
    ist_status status = read_range(entry, "bytes", &op->bytes_low, &op->bytes_high);
    if (status == IST_OK) {
        status = read_range(entry, "ranks", &op->ranks_low, &op->ranks_high);
    }
    if (status == IST_OK) {
        status = read_constants(entry, &op->knobs);
    }
    return status == IST_OK ? read_curve(entry, op) : status;
}

static ist_status read_ops(const json_t *list, cost_profile *profile)
{
    const size_t count = json_array_size(list);
    if (count == 0) {
        return IST_OK;
    }
    if (count > COST_PROFILE_OPS_MAX) {
        return refuse("operations", "at most 4096 entries");
    }
    profile->op = ist_alloc(count, sizeof *profile->op);
    if (profile->op == NULL) {
        return refuse_memory();
    }
    for (size_t i = 0; i < count; ++i) {
        const ist_status status = read_op(json_array_get(list, i), &profile->op[i]);
        if (status != IST_OK) {
            return status;
        }
        ++profile->op_count;
    }
    return IST_OK;
}

/* Of each number of blocks the largest transfer. */
static ist_status read_geometry(const json_t *curve, cost_profile *profile)
{
    const json_t *points = json_object_get(curve, "points");
    uint64_t largest[COST_GEOMETRY_MAX] = {0};
    for (size_t i = 0; i < json_array_size(points); ++i) {
        const json_t *point = json_array_get(points, i);
        uint64_t bytes = 0;
        cost_geometry found = {0, 0};
        if (!read_count(json_object_get(point, "bytes"), &bytes) ||
            !read_count(json_object_get(point, "blocks"), &found.blocks) ||
            !read_count(json_object_get(point, "rate"), &found.bytes_per_s) || found.blocks == 0 ||
            found.blocks > 65536 || found.bytes_per_s == 0 ||
            found.bytes_per_s > UINT64_C(1000000000000000)) {
            return refuse("curves.lsa_store", "points with bytes, blocks and rate");
        }
        uint32_t at = 0;
        while (at < profile->geometry_count && profile->geometry[at].blocks < found.blocks) {
            ++at;
        }
        const bool known =
            at < profile->geometry_count && profile->geometry[at].blocks == found.blocks;
        if (!known && profile->geometry_count == COST_GEOMETRY_MAX) {
            continue;
        }
        if (!known) {
            const uint32_t behind = profile->geometry_count++ - at;
            memmove(&profile->geometry[at + 1], &profile->geometry[at], behind * sizeof found);
            memmove(&largest[at + 1], &largest[at], behind * sizeof *largest);
            largest[at] = 0;
        }
        if (!known || bytes > largest[at]) {
            profile->geometry[at] = found;
            largest[at] = bytes;
        }
    }
    return IST_OK;
}

static ist_status read_all(const json_t *root, cost_profile *profile)
{
    const json_t *format = json_object_get(root, "format");
    if (!json_is_string(format) || strcmp(json_string_value(format), "isthmus-profile") != 0) {
        return refuse("format", "\"isthmus-profile\"");
    }
    if (json_integer_value(json_object_get(root, "version")) != 1) {
        return refuse("version", "1");
    }
    copy_text(profile->name, sizeof profile->name, json_object_get(root, "name"));
    const json_t *values = json_object_get(root, "values");
    ist_status status = IST_OK;
#define X(field, key)                                                                              \
    if (status == IST_OK) {                                                                        \
        status = read_value(values, key, profile, &profile->field);                                \
    }
    COST_LINK_VALUES(X)
#undef X
    if (status == IST_OK) {
        status =
            read_geometry(json_object_get(json_object_get(root, "curves"), "lsa_store"), profile);
    }
    return status == IST_OK ? read_ops(json_object_get(root, "operations"), profile) : status;
}

ist_status cost_profile_parse(const char *text, size_t bytes, cost_profile *profile)
{
    json_error_t error;
    cost_profile made = {.op_count = 0};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        ist_error details = {.size = sizeof details,
                             .rank = IST_RANK_NONE,
                             .peer = IST_RANK_NONE,
                             .observed = (uint64_t)(error.line > 0 ? error.line : 0),
                             .object = "profile",
                             .operation = "profile.parse"};
        return ist_raise(IST_ERR_PARSE, &details, "profile: line %d, column %d: %.120s", error.line,
                         error.column, error.text);
    }
    const ist_status status = read_all(root, &made);
    json_decref(root);
    if (status != IST_OK) {
        cost_profile_free(&made);
        return status;
    }
    *profile = made;
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ writing */

static const char *unit_of(const char *key)
{
    return strstr(key, "_per_s") != NULL ? "bytes/s" : strstr(key, "_ps") != NULL ? "ps" : "count";
}

static json_t *values_of(const cost_profile *profile)
{
    json_t *values = json_object();
#define X(field, key)                                                                              \
    if (profile->field > 0) {                                                                      \
        (void)json_object_set_new(values, key,                                                     \
                                  json_pack("{s:I, s:s, s:s}", "value",                            \
                                            (json_int_t)profile->field, "unit", unit_of(key),      \
                                            "origin", profile->origin));                           \
    }
    COST_LINK_VALUES(X)
#undef X
    return values;
}

static json_t *op_of(const cost_profile_op *op)
{
    json_t *constants = json_object();
    for (uint32_t i = 0; i < COST_KNOB_COUNT; ++i) {
        (void)json_object_set_new(constants, cost_knob_names[i],
                                  json_integer((json_int_t)op->knobs.value[i]));
    }
    json_t *curve = json_array();
    for (uint32_t i = 0; i < op->curve_count; ++i) {
        (void)json_array_append_new(curve,
                                    json_pack("{s:I, s:I}", "bytes", (json_int_t)op->curve[i].bytes,
                                              "permille", (json_int_t)op->curve[i].permille));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:[I,I], s:[I,I], s:o, s:o}", "name", op->name,
                     "kind", cost_kind_names[op->kind], "algorithm",
                     cost_algorithm_names[op->algorithm], "origin", op->origin, "residual_permille",
                     (json_int_t)op->residual_permille, "blocks", (json_int_t)op->blocks, "bytes",
                     (json_int_t)op->bytes_low, (json_int_t)op->bytes_high, "ranks",
                     (json_int_t)op->ranks_low, (json_int_t)op->ranks_high, "constants", constants,
                     "curve", curve);
}

ist_status cost_profile_print(const cost_profile *profile, char **text)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < profile->op_count; ++i) {
        (void)json_array_append_new(list, op_of(&profile->op[i]));
    }
    json_t *root = json_pack("{s:s, s:i, s:s, s:{s:{s:s, s:s}}, s:o, s:o}", "format",
                             "isthmus-profile", "version", 1, "name", profile->name, "origins",
                             "fit", "kind", "published measurement", "what",
                             "fitted by isthmus fit; residuals beside each operation", "values",
                             values_of(profile), "operations", list);
    char *dumped = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    const size_t bytes = dumped == NULL ? 0 : strlen(dumped) + 2;
    char *copy = dumped == NULL ? NULL : ist_alloc(bytes, 1);
    if (copy != NULL) {
        (void)snprintf(copy, bytes, "%s\n", dumped);
    }
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    if (dumped != NULL) {
        release(dumped);
    }
    if (copy == NULL) {
        return refuse_memory();
    }
    *text = copy;
    return IST_OK;
}
