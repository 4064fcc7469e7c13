/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of a bench as points for the fit.
 */
#include "fit_bench.h"

#include "cost_graph.h"

#include <isthmus/backend.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static ist_status refuse(ist_status status, const char *place, const char *expected)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .operation = "fit.bench"};
    (void)snprintf(details.object, sizeof details.object, "%s", place);
    return ist_raise(status, &details, "bench: %s, expected %s", place, expected);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

bool fit_is_bench(const char *text, size_t bytes)
{
    json_t *root = json_loadb(text, bytes, 0, NULL);
    const bool bench = strncmp(text_of(root, "command"), "bench", 5) == 0;
    json_decref(root);
    return bench;
}

/* The bench's cluster; without one all its ranks share NVLink. */
static ist_status read_machine(const json_t *root, cost_machine *machine, cost_profile *links)
{
    const char *named = text_of(root, "cluster");
    const char *line = strcmp(named, "default") == 0 ? "" : named; /* GPUs: what the host has */
    const json_int_t ranks = json_integer_value(json_object_get(root, "ranks"));
    ist_status status = cost_of_source(line[0] == '\0' ? NULL : line, machine, links);
    if (status != IST_OK || ranks < 1 || ranks > 65536) {
        return status != IST_OK ? status : refuse(IST_ERR_PARSE, "ranks", "1 to 65536");
    }
    if (line[0] == '\0' || cost_rank_count(machine) != (uint64_t)ranks) {
        machine->node_count = 1;
        machine->gpus_per_node = (uint64_t)ranks;
        machine->domain = (uint64_t)ranks;
        machine->nics_per_node = 1;
    }
    return IST_OK;
}

/* A row a token and rank; combine of experts' rows: one a token and expert. */
static void set_op(const json_t *from, const char *op, fit_point *point)
{
    const bool combine = strcmp(op, "combine") == 0;
    const uint64_t element = strcmp(text_of(from, "dtype"), "fp32") == 0 ? 4 : 2;
    const bool experts = strcmp(text_of(from, "layout"), "expert-major") == 0;
    point->op.kind = combine ? COST_EP_COMBINE : COST_EP_DISPATCH;
    point->op.algorithm = COST_LL;
    point->op.tokens = (uint64_t)json_integer_value(json_object_get(from, "tokens"));
    point->op.row_bytes = (uint64_t)json_integer_value(json_object_get(from, "hidden")) * element;
    point->op.topk = (uint64_t)json_integer_value(json_object_get(from, "top_k"));
    point->op.experts = (uint64_t)json_integer_value(json_object_get(from, "experts"));
    point->op.routing = combine && experts ? COST_ROUTING_EVERY : COST_ROUTING_RANDOM;
}

static bool sane(const fit_point *point)
{
    const cost_op *op = &point->op;
    return op->tokens > 0 && op->tokens < 1u << 30 && op->row_bytes > 0 &&
           op->row_bytes < 1u << 28 && op->topk > 0 && op->topk <= 1024 && op->experts > 0 &&
           op->experts <= 1000000;
}

static ist_status read_time(const json_t *from, const json_t *time, const cost_machine *machine,
                            const cost_profile *links, fit_point *point)
{
    const char *op = text_of(time, "op");
    const json_t *run = json_object_get(time, "run_us");
    *point = (fit_point){.machine = *machine, .hardware = ""};
    set_op(from, op, point);
    point->time_us = json_number_value(run);
    if (!sane(point) || !(point->time_us > 0)) {
        return refuse(IST_ERR_PARSE, "cases", "tokens, hidden, top_k, experts and run_us above 0");
    }
    (void)snprintf(point->id, sizeof point->id, "bench/ep-%.10s-%.14s-%.6s%s%s%s/t%u", op,
                   text_of(from, "layout"), text_of(from, "dtype"),
                   json_is_true(json_object_get(from, "windows")) ? "-windows" : "",
                   json_is_true(json_object_get(from, "graph")) ? "-graph" : "",
                   json_is_true(json_object_get(from, "staged")) ? "-staged" : "",
                   (unsigned)point->op.tokens);
    (void)cost_profile_apply(NULL, links, machine, &point->op);
    if (strcmp(op, "dispatch") != 0 && strcmp(op, "combine") != 0) {
        point->skipped = "the model has no such operation";
    }
    point->size = log2((double)(point->op.tokens * point->op.row_bytes));
    point->ranks = log2((double)cost_rank_count(machine));
    point->nodes = log2((double)machine->node_count);
    return IST_OK;
}

static ist_status read_cases(const json_t *root, fit_table *table)
{
    const json_t *cases = json_object_get(root, "cases");
    size_t most = 0;
    for (size_t i = 0; i < json_array_size(cases); ++i) {
        most += json_array_size(json_object_get(json_array_get(cases, i), "times"));
    }
    if (most == 0 || most > FIT_POINTS_MAX) {
        return refuse(IST_ERR_PARSE, "cases", "cases with times");
    }
    table->point = ist_alloc(most + 1u, sizeof *table->point);
    table->series_first = ist_alloc(most + 1u, sizeof *table->series_first);
    table->series_points = ist_alloc(most + 1u, sizeof *table->series_points);
    if (table->point == NULL || table->series_first == NULL || table->series_points == NULL) {
        return refuse(IST_ERR_MEMORY, "cases", "more memory");
    }
    cost_machine machine;
    cost_profile links;
    ist_status status = read_machine(root, &machine, &links);
    for (size_t i = 0; i < json_array_size(cases) && status == IST_OK; ++i) {
        const json_t *from = json_array_get(cases, i);
        const json_t *times = json_object_get(from, "times");
        for (size_t j = 0; j < json_array_size(times) && status == IST_OK; ++j) {
            status = read_time(from, json_array_get(times, j), &machine, &links,
                               &table->point[table->count]);
            table->count += status == IST_OK;
        }
    }
    if (status == IST_OK) {
        fit_table_number(table);
    }
    return status;
}

ist_status fit_bench_read(const char *text, size_t bytes, fit_table *table)
{
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (root == NULL) {
        return refuse(IST_ERR_PARSE, "the text", "JSON");
    }
    fit_table made = {.count = 0};
    const ist_status status = read_cases(root, &made);
    json_decref(root);
    if (status != IST_OK) {
        fit_table_free(&made);
        return status;
    }
    *table = made;
    return IST_OK;
}
