/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tables of timings. What a source counts as its bytes is decided here, once.
 */
#include "fit_point.h"

#include "fit_bench.h"
#include "fit_csv.h"

#include <isthmus/backend.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_status refuse_memory(uint32_t count)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = count,
                         .object = "points",
                         .operation = "fit.points"};
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for %u points", count);
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ------------------------------------------------------------------------------------ names */

void fit_series_name(const fit_point *point, char *text, size_t bytes)
{
    (void)snprintf(text, bytes, "%s", point->id);
    char *slash = strrchr(text, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

/* A part of a name that says how large the world is: ep16, n4, N2xG8, 4gpu. */
static bool world_part(const char *part, size_t length)
{
    size_t at = 0;
    if (length > 2 && part[0] == 'e' && part[1] == 'p') {
        at = 2;
    } else if (length > 1 && (part[0] == 'n' || part[0] == 'N')) {
        at = 1;
    }
    size_t digits = 0;
    while (at + digits < length && part[at + digits] >= '0' && part[at + digits] <= '9') {
        ++digits;
    }
    if (digits == 0) {
        return false;
    }
    const char *rest = part + at + digits;
    const size_t left = length - at - digits;
    return (left == 0 && at > 0) || (left == 3 && memcmp(rest, "gpu", 3) == 0) ||
           (left > 2 && at == 1 && memcmp(rest, "xG", 2) == 0);
}

void fit_family_name(const fit_point *point, char *text, size_t bytes)
{
    char series[FIT_ID_BYTES];
    fit_series_name(point, series, sizeof series);
    size_t length = 0;
    for (const char *part = series; *part != '\0';) {
        const size_t span = strcspn(part, "-/");
        const size_t with = span + (part[span] != '\0');
        if (!world_part(part, span) && length + with < bytes) {
            memcpy(text + length, part, with);
            length += with;
        }
        part += with;
    }
    while (length > 0 && (text[length - 1] == '-' || text[length - 1] == '/')) {
        --length;
    }
    text[length] = '\0';
}

/* ------------------------------------------------------------------------------------ machines */

/* Rates of a GPU, from vendors' sheets unless a source says otherwise; where the fit starts. */
typedef struct hardware {
    const char *name;
    double lsa, net, local; /* GB/s: a GPU to its domain, a NIC, memory */
    uint64_t mesh_links;
    bool multicast; /* the switch reduces */
} hardware;

static const hardware hardware_list[] = {
    {"H800", 160, 50, 3350, 0, true},
    {"H200", 450, 50, 4800, 0, true},
    {"H100", 450, 50, 3350, 0, true},
    {"SM90", 450, 50, 3350, 0, true},
    {"A100", 300, 25, 2000, 0, false},
    {"B300", 900, 100, 8000, 0, true},
    {"2 NICs per rank", 900, 96, 8000, 0, true},
    {"GB200", 900, 50, 8000, 0, true},
    {"B200", 900, 50, 8000, 0, true},
    {"MI355X", 537, 50, 8000, 7, false},
    {"MI350X", 537, 50, 8000, 7, false},
    {"MI300X", 448, 50, 5300, 7, false},
    {"MI308X", 448, 50, 5300, 7, false},
    {"L4", 20, 20, 300, 0, false},
};

static const hardware *hardware_of(const char *text)
{
    static const hardware other = {"", 400, 50, 3350, 0, false};
    for (size_t i = 0; i < sizeof hardware_list / sizeof *hardware_list; ++i) {
        if (has(text, hardware_list[i].name)) {
            return &hardware_list[i];
        }
    }
    return &other;
}

static void set_machine(fit_point *point, const fit_reader *from)
{
    const hardware *found = hardware_of(fit_cell(from, FIT_COLUMN_hardware));
    const double ranks = fit_number(from, FIT_COLUMN_n_gpus);
    double gpus = fit_number(from, FIT_COLUMN_gpus_per_node);
    double domain = fit_number(from, FIT_COLUMN_lsa_domain_size);
    const double nodes = fit_number(from, FIT_COLUMN_n_nodes);
    if (ranks < 1 || ranks > 1e7) {
        point->skipped = "the number of GPUs is not stated";
        return;
    }
    if (gpus < 1) {
        gpus = nodes >= 1 ? ranks / nodes : 1;
    }
    const uint64_t count = (uint64_t)ranks;
    uint64_t a_node = (uint64_t)gpus;
    a_node = a_node > count || a_node == 0 ? count : a_node;
    while (count % a_node != 0) {
        --a_node;
    }
    uint64_t team = domain < 1 ? 1 : (uint64_t)domain;
    team = team > count ? count : team;
    while (team > 1 && (count % team != 0 || (team % a_node != 0 && a_node % team != 0))) {
        --team;
    }
    point->machine = (cost_machine){.node_count = count / a_node,
                                    .gpus_per_node = a_node,
                                    .domain = team,
                                    .nics_per_node = a_node,
                                    .mesh_links = found->mesh_links};
    /* What kernels that scatter rows and what copies of whole buffers get out of a link. */
    const bool rows = has(fit_cell(from, FIT_COLUMN_op), "_dispatch") ||
                      has(fit_cell(from, FIT_COLUMN_op), "_combine");
    cost_knobs knobs = cost_knobs_default();
    knobs.value[COST_overhead_ps] = rows ? 15000000 : 6000000;
    knobs.value[COST_message_ps] = point->machine.domain == count ? 300000 : 20000;
    knobs.value[COST_lsa_bytes_per_s] = (uint64_t)(found->lsa * (rows ? 0.63e9 : 0.8e9));
    knobs.value[COST_net_bytes_per_s] = (uint64_t)(found->net * (rows ? 0.85e9 : 0.96e9));
    knobs.value[COST_local_bytes_per_s] = (uint64_t)(found->local * 0.85e9);
    point->op.knobs = knobs;
    point->hardware = found->name;
    point->ranks = log2(ranks);
    point->nodes = log2((double)point->machine.node_count);
}

/* ---------------------------------------------------------------------------------- operations */

static double element_bytes(const char *dtype)
{
    if (has(dtype, "fp4")) {
        return 0.5625; /* with its scales */
    }
    if (has(dtype, "fp8")) {
        return 1.03125; /* with a float for 128 elements */
    }
    return has(dtype, "32") ? 4 : has(dtype, "64") ? 8 : 2;
}

static void set_expert_op(fit_point *point, const fit_reader *from, const char *op)
{
    const char *mode = fit_cell(from, FIT_COLUMN_algo_or_mode);
    const char *system = fit_cell(from, FIT_COLUMN_system);
    const double tokens = fit_number(from, FIT_COLUMN_tokens_per_rank);
    const double hidden = fit_number(from, FIT_COLUMN_hidden);
    const double topk = fit_number(from, FIT_COLUMN_topk);
    const double experts = fit_number(from, FIT_COLUMN_experts);
    const bool combine = has(op, "combine");
    const char *dtype =
        fit_cell(from, combine ? FIT_COLUMN_dtype_combine : FIT_COLUMN_dtype_dispatch);
    if (combine && has(mode, "fp8_direct_cast") && has(mode, "zero_copy=False")) {
        dtype = "fp8"; /* cast on the way into the staging buffer */
    }
    if (tokens < 1) {
        point->skipped = "the number of tokens is not stated";
        return;
    }
    if (tokens > 1e9 || hidden > 1e7 || topk > 1024 || experts > 1e6) {
        point->skipped = "its sizes are beyond any machine";
        return;
    }
    cost_op *to = &point->op;
    to->kind = combine ? COST_EP_COMBINE : COST_EP_DISPATCH;
    /* pplx has one way for all sizes; DeepEP's large one draws experts from four nodes. */
    to->algorithm = has(op, "ll_") || has(point->id, "pplx") ? COST_LL : COST_HT;
    to->node_limit = to->algorithm == COST_HT && !has(point->id, "mori") ? 4 : 0;
    to->tokens = (uint64_t)tokens;
    to->topk = topk < 1 ? 8 : (uint64_t)topk;
    to->experts = experts < 1 ? 256 : (uint64_t)experts;
    to->row_bytes = (uint64_t)((hidden < 1 ? 7168 : hidden) * element_bytes(dtype));
    if (has(mode, "perfect")) {
        to->routing = COST_ROUTING_SPREAD;
    } else if (to->algorithm == COST_LL && !has(system, "MORI") && !has(point->id, "mori") &&
               !has(point->id, "pplx") && !has(point->id, "deepepv2")) {
        to->routing = COST_ROUTING_EVERY;
    }
    point->size = log2(tokens * (double)to->row_bytes);
}

typedef struct op_name {
    const char *name;
    cost_kind kind;
} op_name;

static const op_name op_names[] = {
    {"allreduce", COST_ALL_REDUCE},
    {"allgather", COST_ALL_GATHER},
    {"reducescatter", COST_REDUCE_SCATTER},
    {"alltoall", COST_ALL_TO_ALL},
    {"sendrecv", COST_SEND_RECV},
    {"put", COST_PUT},
    {"signal", COST_SIGNAL},
    {"rdma_write", COST_PUT},
    {"rdma_read", COST_PUT},
    {"barrier", COST_BARRIER},
    {"broadcast", COST_BROADCAST},
    {"copy", COST_COPY},
};

static cost_algorithm algorithm_named(const fit_point *point, const char *mode)
{
    const cost_kind kind = point->op.kind;
    if (kind == COST_ALL_REDUCE) {
        return has(mode, "oneshot") || has(mode, "1shot")   ? COST_ONE_SHOT
               : has(mode, "2shot") || has(mode, "twoshot") ? COST_TWO_SHOT
               : has(mode, "mc") || has(mode, "NVLS")       ? COST_MULTICAST
                                                            : COST_RING;
    }
    if (kind == COST_ALL_GATHER || kind == COST_REDUCE_SCATTER) {
        return has(mode, "srd") || has(mode, "doubling") || has(mode, "tree") ? COST_TREE
                                                                              : COST_RING;
    }
    return COST_DIRECT;
}

static void set_other_op(fit_point *point, const fit_reader *from, const char *op)
{
    point->skipped = "the model has no such operation";
    for (size_t i = 0; i < sizeof op_names / sizeof *op_names; ++i) {
        if (strcmp(op, op_names[i].name) == 0) {
            point->op.kind = op_names[i].kind;
            point->skipped = NULL;
        }
    }
    double bytes = fit_number(from, FIT_COLUMN_bytes);
    if (point->skipped != NULL) {
        return;
    }
    if (bytes < 0 && point->op.kind != COST_SIGNAL && point->op.kind != COST_BARRIER) {
        point->skipped = "the size is not stated";
        return;
    }
    const char *mode = fit_cell(from, FIT_COLUMN_algo_or_mode);
    if (point->op.kind == COST_ALL_TO_ALL && has(point->id, "nccl-custom")) {
        bytes *= fit_number(from, FIT_COLUMN_n_gpus); /* stated for one pair */
    }
    const char *batch = strstr(mode, "batch=");
    if (batch != NULL && point->op.kind == COST_PUT) {
        const double count = strtod(batch + 6, NULL);
        bytes *= count >= 1 && count < 1e6 ? count : 1;
    }
    if (bytes > 1e15) {
        point->skipped = "its sizes are beyond any machine";
        return;
    }
    bytes = bytes < 1 ? 1 : bytes;
    point->op.bytes = (uint64_t)bytes;
    point->op.algorithm = algorithm_named(point, mode);
    const hardware *found = hardware_of(fit_cell(from, FIT_COLUMN_hardware));
    if (point->op.kind == COST_ALL_REDUCE && point->op.algorithm == COST_RING && found->multicast &&
        point->machine.domain == cost_rank_count(&point->machine) && !has(mode, "ring") &&
        point->machine.domain > 1) {
        point->op.algorithm = COST_MULTICAST;
    }
    point->best_of_two =
        point->op.kind == COST_ALL_REDUCE && point->op.algorithm == COST_RING && !has(mode, "ring");
    if (point->op.kind == COST_PUT || point->op.kind == COST_SIGNAL) {
        point->op.dst = cost_rank_count(&point->machine) / 2;
        point->op.dst = point->op.dst == 0 ? 1 : point->op.dst;
        if (cost_rank_count(&point->machine) < 2) {
            point->skipped = "a transfer needs two ranks";
        }
    }
    point->size = log2(bytes);
}

/* ------------------------------------------------------------------------------------ values */

static double reach(const fit_point *point, uint64_t groups)
{
    return (double)cost_reach_millionths(groups, point->op.experts, point->op.topk) / 1e6;
}

/* Bytes behind the GB/s of an expert-parallel row; 0: the source does not say. */
static double counted_bytes(const fit_point *point, const char *rule)
{
    const cost_op *op = &point->op;
    const double rows = (double)op->tokens * (double)op->row_bytes;
    const uint64_t ranks = cost_rank_count(&point->machine);
    const uint64_t nodes = point->machine.node_count < 4 ? point->machine.node_count : 4;
    if (has(rule, "per-selection")) {
        return rows * (double)op->topk;
    }
    if (has(rule, "NVLink (") || has(rule, "xGMI") || has(rule, "xgmi")) {
        return rows * reach(point, ranks);
    }
    return has(rule, "RDMA") || has(rule, "rdma") ? rows * reach(point, nodes) : 0;
}

static double busbw_factor(const fit_point *point)
{
    const double n = (double)cost_rank_count(&point->machine);
    switch (point->op.kind) {
    case COST_ALL_REDUCE: return 2 * (n - 1) / n;
    case COST_ALL_GATHER:
    case COST_REDUCE_SCATTER:
    case COST_ALL_TO_ALL: return (n - 1) / n;
    case COST_BROADCAST:
    case COST_SEND_RECV:
    case COST_P2P:
    case COST_PUT:
    case COST_SIGNAL:
    case COST_BARRIER:
    case COST_EP_DISPATCH:
    case COST_EP_COMBINE:
    case COST_COPY:
    case COST_KIND_COUNT: break;
    }
    return 1;
}

static ist_status set_value(fit_point *point, const fit_reader *from)
{
    const double value = fit_number(from, FIT_COLUMN_value);
    const char *metric = fit_cell(from, FIT_COLUMN_metric);
    const char *rule = fit_cell(from, FIT_COLUMN_bw_convention);
    if (value <= 0) {
        return fit_line_refuse(from, "value", fit_cell(from, FIT_COLUMN_value));
    }
    if (strcmp(metric, "time_us") == 0) {
        point->time_us = value;
    } else if (strcmp(metric, "bw_GBs") == 0) {
        const bool expert = point->op.kind == COST_EP_DISPATCH || point->op.kind == COST_EP_COMBINE;
        const double bytes = expert ? counted_bytes(point, rule) : (double)point->op.bytes;
        const double factor = !expert && has(rule, "busbw") ? busbw_factor(point) : 1;
        point->time_us = bytes * factor / value / 1e3;
    } else {
        return fit_line_refuse(from, "metric", metric);
    }
    /* Half a unit of the last printed digit. */
    const char *point_at = strchr(fit_cell(from, FIT_COLUMN_value), '.');
    const double unit = point_at == NULL ? 1 : pow(10, -(double)strlen(point_at + 1));
    point->tolerance = unit / 2 / value;
    if (!(point->time_us > 0)) {
        point->skipped = "the source does not say what its bandwidth counts";
    }
    return IST_OK;
}

static const char *flag_of(const char *notes)
{
    static const char *const flags[] = {"suspect", "stale", "config-incomplete",
                                        "convention-unstated"};
    for (size_t i = 0; strncmp(notes, "FLAG:", 5) == 0 && i < sizeof flags / sizeof *flags; ++i) {
        if (strncmp(notes + 5, flags[i], strlen(flags[i])) == 0) {
            return flags[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ table */

static ist_status read_point(fit_reader *from, fit_point *point)
{
    memset(point, 0, sizeof *point);
    (void)snprintf(point->id, sizeof point->id, "%.*s", (int)sizeof point->id - 1,
                   fit_cell(from, FIT_COLUMN_id));
    if (point->id[0] == '\0') {
        return fit_line_refuse(from, "id", "");
    }
    set_machine(point, from);
    const char *op = fit_cell(from, FIT_COLUMN_op);
    if (point->skipped == NULL) {
        if (has(op, "_dispatch") || has(op, "_combine")) {
            set_expert_op(point, from, op);
        } else {
            set_other_op(point, from, op);
        }
    }
    const char *flag = flag_of(fit_cell(from, FIT_COLUMN_notes));
    point->skipped = point->skipped == NULL ? flag : point->skipped;
    return point->skipped == NULL ? set_value(point, from) : IST_OK;
}

/* FNV-1a; so that names are compared only where they are likely to be equal. */
static uint64_t digest(const char *name)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; ++name) {
        value = (value ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    }
    return value;
}

typedef void (*name_fn)(const fit_point *point, char *text, size_t bytes);

static bool same_name(const fit_point *a, const fit_point *b, name_fn name)
{
    char first[FIT_ID_BYTES];
    char second[FIT_ID_BYTES];
    name(a, first, sizeof first);
    name(b, second, sizeof second);
    return strcmp(first, second) == 0;
}

static bool same_kin(const fit_point *a, const fit_point *b)
{
    const size_t source = strcspn(a->id, "/");
    return a->op.kind == b->op.kind && a->op.algorithm == b->op.algorithm &&
           strncmp(b->id, a->id, source + 1) == 0;
}

/* Numbers a point by the series before it; true: it is of a series of its own. */
static bool number_point(fit_table *table, fit_point *point)
{
    char name[FIT_ID_BYTES];
    bool family = false;
    bool kin = false;
    fit_series_name(point, name, sizeof name);
    point->series_digest = digest(name);
    fit_family_name(point, name, sizeof name);
    point->family_digest = digest(name);
    for (uint32_t s = 0; s < table->series_count; ++s) {
        const fit_point *other = &table->point[table->series_first[s]];
        if (other->series_digest == point->series_digest &&
            same_name(other, point, fit_series_name)) {
            point->series = s;
        }
        if (!family && other->family_digest == point->family_digest &&
            same_name(other, point, fit_family_name)) {
            point->family = other->family;
            family = true;
        }
        if (same_kin(point, other)) {
            point->kin = other->kin;
            kin = true;
            point->branch = other->hardware == point->hardware ? other->branch : point->branch;
        }
    }
    table->family_count += !family;
    table->kin_count += !kin;
    table->branch_count += point->branch == table->branch_count;
    return point->series == table->series_count;
}

/* Equal names get equal numbers, by first appearance. */
void fit_table_number(fit_table *table)
{
    table->series_count = 0;
    table->family_count = 0;
    table->kin_count = 0;
    table->branch_count = 0;
    for (uint32_t i = 0; i < table->count; ++i) {
        fit_point *point = &table->point[i];
        point->series = table->series_count;
        point->family = table->family_count;
        point->kin = table->kin_count;
        point->branch = table->branch_count;
        if (number_point(table, point)) {
            table->series_first[table->series_count++] = i;
        }
        ++table->series_points[point->series];
    }
}

ist_status fit_table_read(const char *text, size_t bytes, fit_table *table)
{
    fit_table made = {0};
    uint32_t lines = 1;
    for (size_t i = 0; i < bytes; ++i) {
        lines += (text[i] == '\n' || text[i] == '\r') && lines < FIT_POINTS_MAX;
    }
    fit_reader *from = ist_alloc(1, sizeof *from);
    made.point = ist_alloc(lines, sizeof *made.point);
    made.series_first = ist_alloc(lines, sizeof *made.series_first);
    made.series_points = ist_alloc(lines, sizeof *made.series_points);
    ist_status status = IST_OK;
    if (from == NULL || made.point == NULL || made.series_first == NULL ||
        made.series_points == NULL) {
        status = refuse_memory(lines);
    } else {
        *from = (fit_reader){.at = text, .end = text + bytes, .line = 1};
        status = fit_header_read(from);
    }
    while (status == IST_OK && fit_line_read(from)) {
        if (made.count == lines) {
            status =
                fit_line_refuse(from, "more lines than can be fitted; this one", from->cell[0]);
            break;
        }
        status = fit_header_is_bench(from) ? fit_bench_line(from, &made.point[made.count])
                                           : read_point(from, &made.point[made.count]);
        made.count += status == IST_OK;
    }
    ist_free(from);
    if (status != IST_OK) {
        fit_table_free(&made);
        return status;
    }
    fit_table_number(&made);
    *table = made;
    return IST_OK;
}

ist_status fit_table_append(fit_table *table, fit_table *added)
{
    fit_table more = *added;
    *added = (fit_table){0};
    const uint32_t count = table->count + more.count;
    fit_table joined = {.count = count};
    joined.point = ist_alloc(count + 1u, sizeof *joined.point);
    joined.series_first = ist_alloc(count + 1u, sizeof *joined.series_first);
    joined.series_points = ist_alloc(count + 1u, sizeof *joined.series_points);
    if (joined.point == NULL || joined.series_first == NULL || joined.series_points == NULL) {
        fit_table_free(&joined);
        fit_table_free(&more);
        return refuse_memory(count);
    }
    memcpy(joined.point, table->point, table->count * sizeof *joined.point);
    memcpy(joined.point + table->count, more.point, more.count * sizeof *joined.point);
    fit_table_number(&joined);
    fit_table_free(&more);
    fit_table_free(table);
    *table = joined;
    return IST_OK;
}

void fit_table_free(fit_table *table)
{
    ist_free(table->point);
    ist_free(table->series_first);
    ist_free(table->series_points);
    *table = (fit_table){0};
}
