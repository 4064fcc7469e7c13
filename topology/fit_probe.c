/* SPDX-License-Identifier: Apache-2.0 */
/* Curves of a probe as points for the fit.
 */
#include "fit_probe.h"

#include <inttypes.h>
#include <isthmus/backend.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct curve_kind {
    const char *name;
    cost_kind kind;
    bool network; /* between two nodes; else inside a domain */
} curve_kind;

static const curve_kind curve_kinds[] = {{"lsa_store", COST_SEND_RECV, false},
                                         {"lsa_load", COST_SEND_RECV, false},
                                         {"local_copy", COST_COPY, false},
                                         {"lsa_barrier", COST_BARRIER, false},
                                         {"gin_put", COST_PUT, true}};
#define CURVE_KINDS (sizeof curve_kinds / sizeof *curve_kinds)

bool fit_is_profile(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t')) {
        ++at;
    }
    return at < bytes && text[at] == '{';
}

static ist_status refuse(ist_status status, const char *place, const char *expected)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .operation = "fit.probe"};
    (void)snprintf(details.object, sizeof details.object, "%s", place);
    return ist_raise(status, &details, "probe: %s, expected %s", place, expected);
}

static cost_machine machine_of(const curve_kind *kind, uint64_t team)
{
    return (cost_machine){.node_count = kind->network ? 2 : 1,
                          .gpus_per_node = kind->network ? 1 : team,
                          .domain = kind->network ? 1 : team,
                          .nics_per_node = 1};
}

static ist_status read_point(const json_t *from, const curve_kind *kind, uint64_t team,
                             fit_point *point)
{
    const json_int_t bytes = json_integer_value(json_object_get(from, "bytes"));
    const json_int_t blocks = json_integer_value(json_object_get(from, "blocks"));
    const json_int_t time_ps = json_integer_value(json_object_get(from, "time_ps"));
    if (bytes < 0 || bytes > (json_int_t)1 << 50 || blocks < 0 || blocks > 65536 || time_ps <= 0) {
        return refuse(IST_ERR_PARSE, kind->name, "bytes, blocks and time_ps as integers");
    }
    *point = (fit_point){.machine = machine_of(kind, team)};
    (void)snprintf(point->id, sizeof point->id, "probe/%s-b%" PRIu64 "/%" PRIu64, kind->name,
                   (uint64_t)blocks, (uint64_t)bytes);
    point->op = (cost_op){.kind = kind->kind,
                          .algorithm = COST_DIRECT,
                          .bytes = (uint64_t)bytes,
                          .blocks = (uint32_t)blocks,
                          .dst = 1,
                          .knobs = cost_knobs_default()};
    point->time_us = (double)time_ps / 1e6;
    point->size = log2(bytes > 0 ? (double)bytes : 1);
    point->ranks = log2((double)cost_rank_count(&point->machine));
    point->nodes = kind->network;
    return IST_OK;
}

static uint32_t count_points(const json_t *curves)
{
    size_t count = 0;
    for (size_t i = 0; i < CURVE_KINDS; ++i) {
        count += json_array_size(
            json_object_get(json_object_get(curves, curve_kinds[i].name), "points"));
    }
    return count < FIT_POINTS_MAX ? (uint32_t)count : FIT_POINTS_MAX;
}

static ist_status read_curves(const json_t *root, fit_table *table)
{
    const json_t *curves = json_object_get(root, "curves");
    const json_int_t team =
        json_integer_value(json_object_get(json_object_get(root, "machine"), "lsa_size"));
    const uint32_t most = count_points(curves);
    if (most == 0 || team < 1 || team > 4096) {
        return refuse(IST_ERR_PARSE, "curves", "curves with points, and machine.lsa_size");
    }
    table->point = ist_alloc(most + 1u, sizeof *table->point);
    table->series_first = ist_alloc(most + 1u, sizeof *table->series_first);
    table->series_points = ist_alloc(most + 1u, sizeof *table->series_points);
    if (table->point == NULL || table->series_first == NULL || table->series_points == NULL) {
        return refuse(IST_ERR_MEMORY, "curves", "more memory");
    }
    for (size_t i = 0; i < CURVE_KINDS; ++i) {
        const json_t *points =
            json_object_get(json_object_get(curves, curve_kinds[i].name), "points");
        for (size_t j = 0; j < json_array_size(points) && table->count < most; ++j) {
            const ist_status status = read_point(json_array_get(points, j), &curve_kinds[i],
                                                 (uint64_t)team, &table->point[table->count]);
            if (status != IST_OK) {
                return status;
            }
            ++table->count;
        }
    }
    fit_table_number(table);
    return IST_OK;
}

ist_status fit_probe_read(const char *text, size_t bytes, fit_table *table)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return refuse(IST_ERR_PARSE, "the text", "JSON");
    }
    fit_table made = {.count = 0};
    const ist_status status = read_curves(root, &made);
    json_decref(root);
    if (status != IST_OK) {
        fit_table_free(&made);
        return status;
    }
    *table = made;
    return IST_OK;
}
