/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench coll` with native collectives: each call at each size is checked, then timed. Data are
 * zeros and ones, exact in every type; the first and the last elements of a large buffer are checked.
 */
#include "cli_native.h"
#include "cli.h"
#include "cli_bench.h"
#include "cli_text.h"
#include "cli_world.h"

#include <inttypes.h>
#include <isthmus/backend.h>
#include <isthmus/unstable/whatif.h>
#include <isthmus/version.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "bench coll"
#define TILE_BYTES ((size_t)1 << 20)
#define CHECK_BYTES ((size_t)1 << 21)
#define POISON 0xa5u

typedef struct native_report {
    uint64_t cell_count;
    uint64_t lsa_size;
    native_cell cells[NATIVE_CELLS_MAX];
} native_report;

_Static_assert(sizeof(native_report) % 16 == 0, "reports travel in units of 16 bytes");

typedef struct native_job {
    const bench_options *bench;
    const native_options *options;
    bench_case one;
    native_report *reports;
    ist_profile *profile;
    bool virtual_clock;
    char library[32];
    char reason[200]; /* why there is no reference */
} native_job;

/* A rank, and the call that is being timed. */
typedef struct native_rank {
    cli_rank rank; /* first: timed operations get a cli_rank */
    native_job *job;
    ist_comm *comm;
    uint8_t *send, *recv;
    uint8_t *tile, *host;
    const native_cell *cell;
    native_report report;
} native_rank;

/* ------------------------------------------------------------------------------------ calls */

static bool has_shares(uint32_t call)
{
    return call == NATIVE_ALL_GATHER || call == NATIVE_REDUCE_SCATTER || call == NATIVE_ALL_TO_ALL;
}

/* Elements as the call counts them. */
static uint64_t count_of(const native_rank *n)
{
    const uint64_t all = n->cell->bytes / ist_dtype_bytes(n->job->options->dtype);
    return has_shares(n->cell->call) ? all / n->rank.rank_count : all;
}

static void places(const native_rank *n, uint8_t **send, uint8_t **recv)
{
    const uint64_t before = n->rank.rank * count_of(n) * ist_dtype_bytes(n->job->options->dtype);
    const bool apart = n->cell->call == NATIVE_ALL_TO_ALL || n->cell->call == NATIVE_SEND_RECV ||
                       n->cell->call == NATIVE_COPY || !n->job->options->in_place;
    *send = n->send;
    *recv = n->recv;
    if (!apart) {
        *recv = n->cell->call == NATIVE_REDUCE_SCATTER ? n->send + before : n->send;
        *send = n->cell->call == NATIVE_ALL_GATHER ? n->send + before : n->send;
    }
}

static ist_status shift(native_rank *n, const uint8_t *send, uint8_t *recv, uint64_t count)
{
    const uint32_t ranks = n->rank.rank_count, rank = n->rank.rank;
    const ist_dtype dtype = n->job->options->dtype;
    IST_RETURN_IF_ERROR(ist_coll_group_begin(n->rank.world));
    ist_status sent = ist_send(n->comm, n->rank.stream, send, count, dtype, (rank + 1) % ranks);
    ist_status received =
        ist_recv(n->comm, n->rank.stream, recv, count, dtype, (rank + ranks - 1) % ranks);
    ist_status ended = ist_coll_group_end(n->rank.world);
    return sent != IST_OK ? sent : received != IST_OK ? received : ended;
}

static ist_status enqueue(cli_rank *rank)
{
    native_rank *n = (native_rank *)(void *)rank;
    const native_options *o = n->job->options;
    const uint64_t count = count_of(n);
    uint8_t *send = NULL, *recv = NULL;
    places(n, &send, &recv);
    switch ((native_call)n->cell->call) {
    case NATIVE_ALL_REDUCE:
        return ist_all_reduce(n->comm, rank->stream, send, recv, count, o->dtype, o->reduction);
    case NATIVE_ALL_GATHER:
        return ist_all_gather(n->comm, rank->stream, send, recv, count, o->dtype);
    case NATIVE_REDUCE_SCATTER:
        return ist_reduce_scatter(n->comm, rank->stream, send, recv, count, o->dtype, o->reduction);
    case NATIVE_BROADCAST:
        return ist_broadcast(n->comm, rank->stream, send, recv, count, o->dtype, o->root);
    case NATIVE_REDUCE:
        return ist_reduce(n->comm, rank->stream, send, recv, count, o->dtype, o->reduction,
                          o->root);
    case NATIVE_ALL_TO_ALL:
        return ist_all_to_all(n->comm, rank->stream, send, recv, count, o->dtype);
    case NATIVE_SEND_RECV: return shift(n, send, recv, count);
    case NATIVE_COPY: return ist_copy(rank->stream, recv, send, n->cell->bytes);
    case NATIVE_CALL_COUNT: break;
    }
    return IST_ERR_ARGUMENT;
}

/* ------------------------------------------------------------------------------------ checks */

/* 0 or 1, by rank and place in the tile. */
static uint32_t value_of(const native_rank *n, uint32_t rank, uint64_t element)
{
    const uint64_t at = element % (TILE_BYTES / ist_dtype_bytes(n->job->options->dtype));
    return (uint32_t)((at * 5u + rank * 3u + (at >> 7)) % 7u < 3u);
}

static double combined(const native_rank *n, uint64_t element)
{
    const ist_reduction reduction = n->job->options->reduction;
    double sum = 0, product = 1, largest = 0, smallest = 1;
    for (uint32_t rank = 0; rank < n->rank.rank_count; ++rank) {
        const double value = value_of(n, rank, element);
        sum += value;
        product *= value;
        largest = fmax(largest, value);
        smallest = fmin(smallest, value);
    }
    const bool whole = n->job->options->dtype == IST_U8 || n->job->options->dtype == IST_I8 ||
                       n->job->options->dtype == IST_I32 || n->job->options->dtype == IST_U32 ||
                       n->job->options->dtype == IST_I64 || n->job->options->dtype == IST_U64;
    const double average = sum / n->rank.rank_count;
    return reduction == IST_REDUCE_SUM    ? sum
           : reduction == IST_REDUCE_PROD ? product
           : reduction == IST_REDUCE_MAX  ? largest
           : reduction == IST_REDUCE_MIN  ? smallest
           : whole                        ? floor(average)
                                          : average;
}

/* What element `at` of this rank's output is. */
static double expected_of(const native_rank *n, uint64_t at)
{
    const uint64_t count = count_of(n);
    const uint32_t rank = n->rank.rank, ranks = n->rank.rank_count;
    switch ((native_call)n->cell->call) {
    case NATIVE_ALL_REDUCE:
    case NATIVE_REDUCE: return combined(n, at);
    case NATIVE_ALL_GATHER: return value_of(n, (uint32_t)(at / count), at % count);
    case NATIVE_REDUCE_SCATTER: return combined(n, rank * count + at);
    case NATIVE_BROADCAST: return value_of(n, n->job->options->root, at);
    case NATIVE_ALL_TO_ALL: return value_of(n, (uint32_t)(at / count), rank * count + at % count);
    case NATIVE_SEND_RECV: return value_of(n, (rank + ranks - 1) % ranks, at);
    case NATIVE_COPY: return value_of(n, rank, at);
    case NATIVE_CALL_COUNT: break;
    }
    return -1;
}

static ist_status fill_tiles(native_rank *n, uint8_t *send, uint64_t bytes)
{
    ist_stream *stream = n->rank.stream;
    const uint64_t first = bytes < TILE_BYTES ? bytes : TILE_BYTES;
    IST_RETURN_IF_ERROR(ist_copy_to_device(stream, send, n->tile, first));
    for (uint64_t at = first; at < bytes; at += TILE_BYTES) {
        const uint64_t left = bytes - at < TILE_BYTES ? bytes - at : TILE_BYTES;
        IST_RETURN_IF_ERROR(ist_copy(stream, send + at, send, left));
    }
    return IST_OK;
}

/* Sums of many ranks are not exact in small types. */
static double tolerance(const native_rank *n)
{
    switch (ist_dtype_bytes(n->job->options->dtype)) {
    case 1: return n->job->options->dtype == IST_U8 || n->job->options->dtype == IST_I8 ? 0 : 0.26;
    case 2: return 0.02;
    default: return 1e-6;
    }
}

static ist_status compare(native_rank *n, const uint8_t *recv, uint64_t from, uint64_t bytes,
                          uint64_t *wrong)
{
    const uint64_t unit = ist_dtype_bytes(n->job->options->dtype);
    IST_RETURN_IF_ERROR(ist_copy_to_host(n->rank.stream, n->host, recv + from, bytes));
    for (uint64_t i = 0; i < bytes / unit; ++i) {
        const double expected = expected_of(n, from / unit + i);
        const double found = native_get(n->host, i, n->job->options->dtype);
        *wrong += !(fabs(found - expected) <= tolerance(n) * fmax(1, fabs(expected)));
    }
    return IST_OK;
}

static ist_status check(native_rank *n, native_cell *cell)
{
    const uint64_t unit = ist_dtype_bytes(n->job->options->dtype);
    uint8_t *send = NULL, *recv = NULL;
    n->cell = cell;
    places(n, &send, &recv);
    const uint64_t share = count_of(n) * unit;
    const uint64_t all = share * n->rank.rank_count;
    const bool out_all = cell->call == NATIVE_ALL_GATHER || cell->call == NATIVE_ALL_TO_ALL;
    const bool in_all = cell->call == NATIVE_REDUCE_SCATTER || cell->call == NATIVE_ALL_TO_ALL;
    const uint64_t out = out_all ? all : share;
    const uint64_t part = out < CHECK_BYTES ? out : CHECK_BYTES;
    IST_RETURN_IF_ERROR(ist_fill(n->rank.stream, n->recv, POISON, cell->bytes));
    IST_RETURN_IF_ERROR(fill_tiles(n, send, in_all ? all : share));
    IST_RETURN_IF_ERROR(enqueue(&n->rank));
    if (cell->call == NATIVE_REDUCE && n->rank.rank != n->job->options->root) {
        return ist_stream_sync(n->rank.stream, 0);
    }
    IST_RETURN_IF_ERROR(compare(n, recv, 0, part, &cell->wrong));
    const uint64_t last = (out - part) / unit * unit;
    return last > 0 ? compare(n, recv, last, out - last, &cell->wrong) : IST_OK;
}

/* ------------------------------------------------------------------------------------ estimates */

static bool op_of(const native_rank *n, const native_cell *cell, ist_op_desc *op)
{
    static const struct {
        native_call call;
        ist_op_kind kind;
    } kinds[] = {{NATIVE_ALL_REDUCE, IST_OP_ALL_REDUCE},
                 {NATIVE_ALL_GATHER, IST_OP_ALL_GATHER},
                 {NATIVE_REDUCE_SCATTER, IST_OP_REDUCE_SCATTER},
                 {NATIVE_BROADCAST, IST_OP_BROADCAST},
                 {NATIVE_ALL_TO_ALL, IST_OP_ALL_TO_ALL},
                 {NATIVE_SEND_RECV, IST_OP_SEND_RECV},
                 {NATIVE_COPY, IST_OP_COPY}};
    (void)n;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        if ((uint32_t)kinds[i].call == cell->call) {
            *op = (ist_op_desc){.size = sizeof *op, .kind = kinds[i].kind, .bytes = cell->bytes};
            return true;
        }
    }
    return false;
}

static ist_status estimate(native_rank *n, native_cell *cell)
{
    ist_op_desc op;
    ist_group *group = NULL;
    ist_estimate answer = {.size = sizeof answer};
    const ist_group_desc desc = {.size = sizeof desc, .comm = n->comm, .profile = n->job->profile};
    if (!op_of(n, cell, &op)) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_group_begin(&desc, &group));
    ist_status status = ist_group_add(group, &op);
    if (status == IST_OK) {
        status = ist_group_end(group, IST_GROUP_SIMULATE, &answer);
    } else {
        ist_group_drop(group);
    }
    cell->estimate_ps = status == IST_OK ? answer.total_ps : 0;
    if (status == IST_OK) {
        status = ist_op_reference(n->comm, &op, &cell->reference_ps);
    }
    if (status == IST_ERR_UNSUPPORTED && n->rank.rank == 0 && n->job->reason[0] == '\0') {
        snprintf(n->job->reason, sizeof n->job->reason, "%.199s", cli_error_text(status));
    }
    return status == IST_ERR_UNSUPPORTED ? IST_OK : status;
}

/* ------------------------------------------------------------------------------------ the rank */

static ist_status open_buffers(native_rank *n, uint64_t bytes)
{
    void *memory = NULL;
    const ist_dtype dtype = n->job->options->dtype;
    IST_RETURN_IF_ERROR(ist_mem_alloc(n->rank.world, bytes, IST_MEM_PLAIN, &memory));
    n->send = memory;
    IST_RETURN_IF_ERROR(ist_mem_alloc(n->rank.world, bytes, IST_MEM_PLAIN, &memory));
    n->recv = memory;
    n->tile = malloc(TILE_BYTES);
    n->host = malloc(CHECK_BYTES);
    if (n->tile == NULL || n->host == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for rank %u", n->rank.rank);
    }
    for (uint64_t i = 0; i < TILE_BYTES / ist_dtype_bytes(dtype); ++i) {
        native_put(n->tile, i, dtype, value_of(n, n->rank.rank, i));
    }
    return IST_OK;
}

static ist_status open_rank(native_rank *n)
{
    ist_comm_info info = {.size = sizeof info};
    ist_coll_info coll = {.size = sizeof coll};
    const ist_comm_desc desc = {.size = sizeof desc, .deadline_ns = n->rank.options->deadline_ns};
    uint64_t largest = 0;
    IST_RETURN_IF_ERROR(cli_rank_open_comm(&n->rank));
    IST_RETURN_IF_ERROR(ist_comm_open(n->rank.world, &desc, &n->comm));
    IST_RETURN_IF_ERROR(ist_coll_open(n->comm));
    IST_RETURN_IF_ERROR(ist_comm_query(n->comm, &info));
    IST_RETURN_IF_ERROR(ist_coll_query(n->comm, &coll));
    IST_RETURN_IF_ERROR(cli_gather_open(n->rank.world, n->rank.comm, n->rank.stream,
                                        sizeof n->report, &n->rank.gather));
    n->report.lsa_size = info.lsa_size;
    n->report.cell_count = native_cells(n->job->options, n->rank.rank_count, n->report.cells);
    for (uint64_t i = 0; i < n->report.cell_count; ++i) {
        largest = n->report.cells[i].bytes > largest ? n->report.cells[i].bytes : largest;
    }
    if (n->rank.rank == 0) {
        const uint32_t v = coll.library_version;
        snprintf(n->job->library, sizeof n->job->library, v != 0 ? "%.10s %u.%u.%u" : "%.16s",
                 coll.library, v / 10000u, v / 100u % 100u, v % 100u);
    }
    return open_buffers(n, largest);
}

static ist_status measure(native_rank *n, native_cell *cell)
{
    for (uint32_t i = 0; i < n->job->bench->checks; ++i) {
        IST_RETURN_IF_ERROR(check(n, cell));
    }
    IST_RETURN_IF_ERROR(
        bench_time_op(&n->rank, n->job->bench, enqueue, n->job->bench->graph, &cell->times));
    IST_RETURN_IF_ERROR(ist_coll_status(n->comm));
    return n->job->options->estimate ? estimate(n, cell) : IST_OK;
}

static ist_status run_rank(native_rank *n)
{
    cli_rank *rank = &n->rank;
    native_job *job = n->job;
    IST_RETURN_IF_ERROR(open_rank(n));
    for (uint64_t i = 0; i < n->report.cell_count; ++i) {
        IST_RETURN_IF_ERROR(measure(n, &n->report.cells[i]));
    }
    if (rank->rank == 0) {
        job->reports = calloc(rank->rank_count, sizeof *job->reports);
        if (job->reports == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u reports", rank->rank_count);
        }
    }
    IST_RETURN_IF_ERROR(cli_gather_run(&rank->gather, 0, &n->report, job->reports));
    IST_RETURN_IF_ERROR(ist_comm_barrier(rank->comm, rank->stream));
    return ist_stream_sync(rank->stream, 0);
}

static void close_rank(native_rank *n)
{
    (void)ist_stream_sync(n->rank.stream, 0);
    (void)ist_comm_close(n->comm);
    (void)ist_mem_free(n->rank.world, n->send);
    (void)ist_mem_free(n->rank.world, n->recv);
    free(n->tile);
    free(n->host);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    native_rank *n = calloc(1, sizeof *n);
    if (n == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a rank");
    }
    n->job = arg;
    ist_status status = cli_rank_sign_in(&n->job->one.run, world, &n->rank);
    if (status == IST_OK) {
        status = run_rank(n);
        if (status < 0) {
            cli_rank_note_failure(n->rank.report, status);
        }
        close_rank(n);
        cli_rank_close(&n->rank);
    }
    free(n);
    return status;
}

/* ------------------------------------------------------------------------------------ answers */

/* GB/s: bytes over the time of a run; what crosses each link at best, as nccl-tests counts. */
static double algorithm_rate(const native_cell *cell)
{
    return cell->times.run > 0 ? (double)cell->bytes / cell->times.run : 0;
}

static double bus_factor(const native_cell *cell, uint32_t ranks)
{
    const double n = ranks;
    switch ((native_call)cell->call) {
    case NATIVE_ALL_REDUCE: return 2 * (n - 1) / n;
    case NATIVE_ALL_GATHER:
    case NATIVE_REDUCE_SCATTER:
    case NATIVE_ALL_TO_ALL: return (n - 1) / n;
    case NATIVE_COPY: return 2; /* each byte is read and written */
    case NATIVE_BROADCAST:
    case NATIVE_REDUCE:
    case NATIVE_SEND_RECV:
    case NATIVE_CALL_COUNT: break;
    }
    return 1;
}

static uint64_t count_of_cell(const native_job *job, const native_cell *cell)
{
    const uint64_t all = cell->bytes / ist_dtype_bytes(job->options->dtype);
    return has_shares(cell->call) ? all / job->one.run.rank_count : all;
}

static void print_text(const native_job *job, const native_cell *cells, uint64_t count)
{
    const uint32_t ranks = job->one.run.rank_count;
    printf(
        "isthmus %s  bench coll  backend %s, %s, %u ranks in load/store teams of %" PRIu64
        "\n%u iterations after %u%s; times in us, %s clock; GB/s over `run`, 1 GB = 10^9 bytes\n\n",
        ist_version_string(), job->one.run.backend, job->library, ranks, job->reports[0].lsa_size,
        job->bench->iterations, job->bench->warmup, job->bench->graph ? ", graph launches" : "",
        job->virtual_clock ? "virtual" : "real");
    printf("call                 bytes        count      type redop |     host   stream      run  "
           "call ns |  algbw   busbw | wrong%s\n",
           job->options->estimate ? " |    model  library" : "");
    for (uint64_t i = 0; i < count; ++i) {
        const native_cell *cell = &cells[i];
        printf("%-14s %11" PRIu64 " %12" PRIu64 " %9s %5s | %8.2f %8.2f %8.2f %8.0f | %6.2f  %6.2f"
               " | %5" PRIu64,
               native_call_name(cell->call), cell->bytes, count_of_cell(job, cell),
               native_dtype_name(job->options->dtype),
               native_reduction_name(job->options->reduction), cell->times.host.median / 1000,
               cell->times.stream.median / 1000, cell->times.run / 1000, cell->times.call,
               algorithm_rate(cell), algorithm_rate(cell) * bus_factor(cell, ranks), cell->wrong);
        if (job->options->estimate) {
            printf(" | %8.2f ", (double)cell->estimate_ps / 1e6);
            printf(cell->reference_ps > 0 ? "%8.2f" : "       -", (double)cell->reference_ps / 1e6);
        }
        printf("\n");
    }
    if (job->reason[0] != '\0') {
        printf("\nlibrary: %s\n", job->reason);
    }
}

static void print_csv(const native_job *job, const native_cell *cells, uint64_t count)
{
    printf("call,backend,library,ranks,bytes,count,type,redop,in_place,graph,host_us,host_min_us,"
           "stream_us,stream_min_us,run_us,call_ns,algbw_gb_s,busbw_gb_s,wrong,model_us,"
           "library_us\n");
    for (uint64_t i = 0; i < count; ++i) {
        const native_cell *cell = &cells[i];
        const bench_times *t = &cell->times;
        printf("%s,%s,%s,%u,%" PRIu64 ",%" PRIu64 ",%s,%s,%d,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%.0f,"
               "%.3f,%.3f,%" PRIu64 ",",
               native_call_name(cell->call), job->one.run.backend, job->library,
               job->one.run.rank_count, cell->bytes, count_of_cell(job, cell),
               native_dtype_name(job->options->dtype),
               native_reduction_name(job->options->reduction), job->options->in_place,
               job->bench->graph, t->host.median / 1000, t->host.min / 1000,
               t->stream.median / 1000, t->stream.min / 1000, t->run / 1000, t->call,
               algorithm_rate(cell),
               algorithm_rate(cell) * bus_factor(cell, job->one.run.rank_count), cell->wrong);
        printf(cell->estimate_ps > 0 ? "%.3f," : ",", (double)cell->estimate_ps / 1e6);
        printf(cell->reference_ps > 0 ? "%.3f\n" : "\n", (double)cell->reference_ps / 1e6);
    }
}

static json_t *cell_json(const native_job *job, const native_cell *cell)
{
    const bench_times *t = &cell->times;
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "call",
        native_call_name(cell->call), "bytes", (json_int_t)cell->bytes, "count",
        (json_int_t)count_of_cell(job, cell), "type", native_dtype_name(job->options->dtype),
        "redop", native_reduction_name(job->options->reduction), "host_us", t->host.median / 1000,
        "stream_us", t->stream.median / 1000, "run_us", t->run / 1000, "call_ns", t->call,
        "algbw_gb_s", algorithm_rate(cell), "busbw_gb_s",
        algorithm_rate(cell) * bus_factor(cell, job->one.run.rank_count), "wrong",
        (json_int_t)cell->wrong);
    if (object != NULL && cell->estimate_ps > 0) {
        json_object_set_new(object, "model_us", json_real((double)cell->estimate_ps / 1e6));
    }
    if (object != NULL && cell->reference_ps > 0) {
        json_object_set_new(object, "library_us", json_real((double)cell->reference_ps / 1e6));
    }
    return object;
}

static int print_json(const native_job *job, const native_cell *cells, uint64_t count)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; ++i) {
        json_array_append_new(list, cell_json(job, &cells[i]));
    }
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "isthmus", ist_version_string(), "command",
                  COMMAND, "backend", job->one.run.backend, "library", job->library, "clock",
                  job->virtual_clock ? "virtual" : "real", "ranks",
                  (json_int_t)job->one.run.rank_count, "calls", list);
    if (object != NULL && job->reason[0] != '\0') {
        json_object_set_new(object, "library_reason", json_string(job->reason));
    }
    return bench_put_json(COMMAND, object, NULL);
}

static int conclude(const native_job *job)
{
    const uint64_t count = job->reports[0].cell_count;
    const uint32_t ranks = job->one.run.rank_count;
    uint64_t wrong = 0;
    native_cell *cells = calloc(NATIVE_CELLS_MAX, sizeof *cells);
    if (cells == NULL) {
        return cli_failed(COMMAND, "out of memory");
    }
    for (uint64_t i = 0; i < count; ++i) {
        cells[i] = job->reports[0].cells[i];
        cells[i].wrong = 0;
        for (uint32_t r = 0; r < ranks; ++r) {
            cells[i].wrong += job->reports[r].cells[i].wrong;
        }
        wrong += cells[i].wrong;
        bench_times_merge(&job->reports[0].cells[i].times, sizeof *job->reports, ranks,
                          job->bench->average, &cells[i].times);
    }
    int status = CLI_OK;
    if (job->bench->json) {
        status = print_json(job, cells, count);
    } else if (job->options->csv) {
        print_csv(job, cells, count);
    } else {
        print_text(job, cells, count);
    }
    free(cells);
    if (wrong != 0) {
        return cli_failed(COMMAND, "%" PRIu64 " elements were wrong", wrong);
    }
    return status == CLI_OK ? cli_put(COMMAND, "") : status;
}

static int read_profile(native_job *job)
{
    char *bytes = NULL;
    size_t count = 0;
    const char *reason = NULL;
    if (job->options->profile == NULL) {
        return CLI_OK;
    }
    if (!cli_read_file(job->options->profile, (size_t)64 << 20, &bytes, &count, &reason)) {
        return cli_usage(COMMAND, "--profile: %s: %s", job->options->profile, reason);
    }
    ist_status status = ist_profile_parse(bytes, count, &job->profile);
    free(bytes);
    return status == IST_OK ? CLI_OK : cli_usage(COMMAND, "--profile: %s", cli_error_text(status));
}

int native_command(const bench_options *bench, const native_options *options)
{
    ist_world_result result;
    native_job job = {.bench = bench, .options = options};
    int exit_status = read_profile(&job);
    if (exit_status == CLI_OK) {
        exit_status = bench_case_init(bench, bench->layouts[0], bench->tokens_first, &job.one);
    }
    if (exit_status == CLI_OK) {
        ist_status status = cli_world_run(&job.one.options, rank_main, &job, &result);
        job.virtual_clock = result.virtual_ns != 0;
        exit_status = job.one.run.rank_count == 0 && status < 0
                          ? cli_world_refused(COMMAND, &job.one.options, status)
                      : status != IST_OK    ? bench_say_failure(COMMAND, &job.one, 1, &result)
                      : job.reports != NULL ? conclude(&job)
                                            : CLI_OK;
    }
    bench_case_fini(&job.one);
    ist_profile_close(job.profile);
    free(job.reports);
    return exit_status;
}
