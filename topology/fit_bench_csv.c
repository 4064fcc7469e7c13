/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a bench's CSV as points for the fit.
 */
#include "fit_bench.h"

#include "cost_graph.h"

#include <isthmus/backend.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is(const char *text, const char *other)
{
    return strcmp(text, other) == 0;
}

/* "all_reduce" is the model's "allreduce". False: it has no such operation. */
static bool kind_named(const char *text, cost_kind *kind)
{
    char plain[32];
    size_t length = 0;
    for (; *text != '\0' && length + 1 < sizeof plain; ++text) {
        if (*text != '_') {
            plain[length++] = *text;
        }
    }
    plain[length] = '\0';
    for (uint32_t i = 0; i < COST_KIND_COUNT; ++i) {
        if (is(plain, cost_kind_names[i])) {
            *kind = (cost_kind)i;
            return true;
        }
    }
    return false;
}

static const char *flag(const fit_reader *from, fit_column column, const char *name)
{
    return fit_number(from, column) > 0 ? name : "";
}

static void set_collective(const fit_reader *from, fit_point *point)
{
    const char *call = fit_cell(from, FIT_COLUMN_call);
    const double bytes = fit_number(from, FIT_COLUMN_bytes);
    if (!kind_named(call, &point->op.kind)) {
        point->skipped = "the model has no such operation";
    } else if (bytes < 0 || bytes > 1e15) {
        point->skipped = "the size is not stated";
    }
    const bool rings = point->op.kind == COST_ALL_REDUCE || point->op.kind == COST_ALL_GATHER ||
                       point->op.kind == COST_REDUCE_SCATTER || point->op.kind == COST_BROADCAST;
    point->op.algorithm = rings ? COST_RING : COST_DIRECT;
    point->op.bytes = bytes < 1 || bytes > 1e15 ? 1 : (uint64_t)bytes;
    point->op.dst = 1;
    point->size = log2((double)point->op.bytes);
    (void)snprintf(point->id, sizeof point->id, "bench/%.20s-%.12s-%.10s%s%s/%llu", call,
                   fit_cell(from, FIT_COLUMN_type), fit_cell(from, FIT_COLUMN_redop),
                   flag(from, FIT_COLUMN_in_place, "-inplace"),
                   flag(from, FIT_COLUMN_graph, "-graph"), (unsigned long long)point->op.bytes);
}

static bool within(double value, double most)
{
    return value >= 1 && value <= most;
}

/* A row a token and rank; combine of experts' rows: one a token and expert. */
static void set_expert(const fit_reader *from, fit_point *point)
{
    const char *op = fit_cell(from, FIT_COLUMN_op);
    const char *layout = fit_cell(from, FIT_COLUMN_layout);
    const char *dtype = fit_cell(from, FIT_COLUMN_dtype);
    const double tokens = fit_number(from, FIT_COLUMN_tokens);
    const double hidden = fit_number(from, FIT_COLUMN_hidden);
    const double topk = fit_number(from, FIT_COLUMN_top_k);
    const double experts = fit_number(from, FIT_COLUMN_experts);
    if (!is(op, "dispatch") && !is(op, "combine")) {
        point->skipped = "the model has no such operation";
        return;
    }
    if (!within(tokens, 1e9) || !within(hidden, 1e7) || !within(topk, 1024) ||
        !within(experts, 1e6)) {
        point->skipped = "its sizes are not stated, or beyond any machine";
        return;
    }
    const bool combine = is(op, "combine");
    const bool experts_rows = is(layout, "em") || is(layout, "expert-major");
    point->op.kind = combine ? COST_EP_COMBINE : COST_EP_DISPATCH;
    point->op.algorithm = COST_LL;
    point->op.tokens = (uint64_t)tokens;
    point->op.row_bytes = (uint64_t)hidden * (is(dtype, "fp32") ? 4 : 2);
    point->op.topk = (uint64_t)topk;
    point->op.experts = (uint64_t)experts;
    point->op.routing = combine && experts_rows ? COST_ROUTING_EVERY : COST_ROUTING_RANDOM;
    point->size = log2((double)point->op.tokens * (double)point->op.row_bytes);
    (void)snprintf(point->id, sizeof point->id, "bench/ep-%.10s-%.14s-%.6s-h%u%s%s%s/t%u", op,
                   layout, dtype, (unsigned)hidden, flag(from, FIT_COLUMN_windows, "-windows"),
                   flag(from, FIT_COLUMN_graph, "-graph"), flag(from, FIT_COLUMN_staged, "-staged"),
                   (unsigned)tokens);
}

/* Half a unit of the last printed digit. */
static double tolerance_of(const char *text, double value)
{
    const char *point = strchr(text, '.');
    return (point == NULL ? 1 : pow(10, -(double)strlen(point + 1))) / 2 / value;
}

ist_status fit_bench_line(const fit_reader *from, fit_point *point)
{
    const double ranks = fit_number(from, FIT_COLUMN_ranks);
    const double run_us = fit_number(from, FIT_COLUMN_run_us);
    cost_profile links;
    if (!within(ranks, 65536)) {
        return fit_line_refuse(from, "ranks", fit_cell(from, FIT_COLUMN_ranks));
    }
    if (!(run_us > 0)) {
        return fit_line_refuse(from, "run_us", fit_cell(from, FIT_COLUMN_run_us));
    }
    memset(point, 0, sizeof *point);
    IST_RETURN_IF_ERROR(cost_of_source(NULL, &point->machine, &links));
    point->machine.node_count = 1;
    point->machine.gpus_per_node = (uint64_t)ranks;
    point->machine.domain = (uint64_t)ranks;
    point->machine.nics_per_node = 1;
    point->hardware = "";
    point->time_us = run_us;
    point->tolerance = tolerance_of(fit_cell(from, FIT_COLUMN_run_us), run_us);
    point->ranks = log2(ranks);
    (void)snprintf(point->id, sizeof point->id, "bench/other/%u", from->line);
    if (from->place[FIT_COLUMN_call] >= 0) {
        set_collective(from, point);
    } else {
        set_expert(from, point);
    }
    if (fit_number(from, FIT_COLUMN_wrong) > 0) {
        point->skipped = "its result was wrong";
    }
    (void)cost_profile_apply(NULL, &links, &point->machine, &point->op);
    return IST_OK;
}
