/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's program of `isthmus probe`: opens a window with room for two copies of the largest size,
 * runs the list of measurements, checks what was copied, and sends its numbers to rank 0.
 */
#include "cli_gather.h"
#include "cli_probe.h"
#include "cli_stats.h"

#include <isthmus/backend.h>
#include <stdlib.h>
#include <string.h>

#define FLAG_BYTES 4096u
#define PS_PER_NS 1000u
#define LAUNCH_SAMPLES 50u
#define LAUNCH_RUN 200u
#define GRAPH_KERNELS 50u
#define DEADLINE_NS UINT64_C(10000000000)
#define SLICE_BYTES 4096u
#define COPY_ROUNDS_MAX 16u

/* What a rank sends: values, then points, in the order of the list. */
typedef struct probe_numbers {
    uint64_t wrong;
    uint64_t sm_count;
    uint64_t values[PROBE_VALUE_COUNT];
    uint64_t points[PROBE_POINTS_MAX];
} probe_numbers;

_Static_assert(sizeof(probe_numbers) % 16 == 0, "numbers travel in units of 16 bytes");

typedef struct probe_rank {
    const probe_options *options;
    probe_result *list; /* what is measured, the same on every rank */
    probe_numbers *numbers;
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    ist_event *begin;
    ist_event *end;
    char *memory; /* of the window: from, to, flag */
    ist_window *window;
    uint64_t *times; /* device */
    const ist_dev_comm *dev;
    const ist_dev_comm *put_dev;
    cli_gather gather;
    ist_comm_info info;
    ist_comm *put_comm; /* NULL: comm's own puts */
    ist_window *put_window;
    const char *gin_reason;
    uint32_t put_peer; /* of rank 0, by puts */
    uint64_t flags;    /* rounds of ping-pong so far */
    uint64_t signals;  /* the same, by puts */
} probe_rank;

/* ------------------------------------------------------------------------------------ open */

static uint64_t room(const probe_rank *p)
{
    return p->options->bytes_last;
}

/* With --puts, a communicator whose teams are single ranks: puts are all that it has. */
static ist_status open_put_comm(probe_rank *p, ist_comm **comm, ist_comm_info *info)
{
    ist_comm_desc desc = {.size = sizeof desc, .deadline_ns = DEADLINE_NS, .lsa_size_max = 1};
    *comm = p->comm;
    *info = p->info;
    if (!p->options->puts || p->info.lsa_size < 2) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_comm_open(p->world, &desc, &p->put_comm));
    *comm = p->put_comm;
    return ist_comm_query(p->put_comm, info);
}

static ist_status open_put(probe_rank *p)
{
    ist_comm *comm;
    ist_comm_info info;
    IST_RETURN_IF_ERROR(open_put_comm(p, &comm, &info));
    p->gin_reason = info.gin_reason;
    if (!info.gin_supported || info.rank_count < 2) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_window_open(comm, p->memory, 2 * room(p) + FLAG_BYTES, &p->put_window));
    p->put_peer = info.lsa_size < info.rank_count ? info.lsa_size : 1;
    return ist_dev_comm_open(comm, 0, 1, 1, 0, 0, &p->put_dev);
}

static ist_status open_rank(probe_rank *p)
{
    ist_comm_desc desc = {.size = sizeof desc, .deadline_ns = DEADLINE_NS};
    void *memory = NULL;
    uint64_t bytes = 2 * room(p) + FLAG_BYTES;
    IST_RETURN_IF_ERROR(ist_stream_open(p->world, &p->stream));
    IST_RETURN_IF_ERROR(ist_event_open(p->world, &p->begin));
    IST_RETURN_IF_ERROR(ist_event_open(p->world, &p->end));
    IST_RETURN_IF_ERROR(ist_comm_open(p->world, &desc, &p->comm));
    p->info.size = sizeof p->info;
    IST_RETURN_IF_ERROR(ist_comm_query(p->comm, &p->info));
    IST_RETURN_IF_ERROR(ist_mem_alloc(p->world, bytes, IST_MEM_SYMMETRIC, &memory));
    p->memory = memory;
    IST_RETURN_IF_ERROR(ist_fill(p->stream, memory, 0, bytes));
    IST_RETURN_IF_ERROR(ist_stream_sync(p->stream, 0));
    IST_RETURN_IF_ERROR(ist_window_open(p->comm, memory, bytes, &p->window));
    IST_RETURN_IF_ERROR(ist_mem_alloc(p->world, (p->info.sm_count + 2) * 2 * sizeof(uint64_t),
                                      IST_MEM_PLAIN, &memory));
    p->times = memory;
    IST_RETURN_IF_ERROR(ist_dev_comm_open(
        p->comm, 0, 0, 0, 0, p->info.sm_count < 4096 ? p->info.sm_count : 4096, &p->dev));
    IST_RETURN_IF_ERROR(open_put(p));
    return cli_gather_open(p->world, p->comm, p->stream, sizeof(probe_numbers), &p->gather);
}

static void close_rank(probe_rank *p)
{
    cli_gather_close(&p->gather);
    if (p->put_dev != NULL) {
        ist_dev_comm_close(p->put_comm != NULL ? p->put_comm : p->comm, p->put_dev);
    }
    if (p->dev != NULL) {
        ist_dev_comm_close(p->comm, p->dev);
    }
    ist_window_close(p->put_window);
    ist_comm_close(p->put_comm);
    ist_window_close(p->window);
    ist_comm_close(p->comm);
    ist_mem_free(p->world, p->times);
    ist_mem_free(p->world, p->memory);
    ist_event_close(p->begin);
    ist_event_close(p->end);
    ist_stream_close(p->stream);
}

/* ------------------------------------------------------------------------------------ kernels */

static probe_args arguments(const probe_rank *p)
{
    return (probe_args){.dev = p->dev,
                        .times = p->times,
                        .from = 0,
                        .to = room(p),
                        .flag = 2 * room(p),
                        .deadline_ns = DEADLINE_NS,
                        .window = ist_window_index(p->window),
                        .rounds = p->options->rounds,
                        .warmup = p->options->rounds / 4};
}

static ist_status launch(const probe_rank *p, const ist_kernel *kernel, uint32_t blocks,
                         const probe_args *args)
{
    IST_RETURN_IF_ERROR(ist_launch(p->stream, kernel, blocks, args, sizeof *args));
    return ist_stream_sync(p->stream, 0);
}

/* Nanoseconds from the first block's begin to the last one's end. */
static ist_status read_span(const probe_rank *p, uint32_t blocks, uint64_t *span_ns)
{
    uint64_t *times = calloc(blocks, 2 * sizeof *times);
    if (times == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the times of %u blocks", blocks);
    }
    ist_status status = ist_copy_to_host(p->stream, times, p->times, blocks * 2 * sizeof *times);
    uint64_t begin = UINT64_MAX;
    uint64_t end = 0;
    for (uint32_t b = 0; status == IST_OK && b < blocks; ++b) {
        begin = times[2 * b] < begin ? times[2 * b] : begin;
        end = times[2 * b + 1] > end ? times[2 * b + 1] : end;
    }
    free(times);
    IST_RETURN_IF_ERROR(status);
    if (end == PROBE_MARK_FAILED || end < begin) {
        return ist_raise(IST_ERR_TIMEOUT, NULL, "rank %u: a peer did not answer in the probe",
                         p->info.rank);
    }
    *span_ns = end - begin;
    return IST_OK;
}

static ist_status meet(const probe_rank *p)
{
    IST_RETURN_IF_ERROR(ist_comm_barrier(p->comm, p->stream));
    return ist_stream_sync(p->stream, 0);
}

/* ------------------------------------------------------------------------------------ launches */

static ist_status measure_run(probe_rank *p)
{
    probe_args args = arguments(p);
    uint64_t elapsed_ns = 0;
    IST_RETURN_IF_ERROR(ist_event_record(p->begin, p->stream));
    uint64_t begin = ist_world_clock_ns(p->world);
    for (uint32_t i = 0; i < LAUNCH_RUN; ++i) {
        IST_RETURN_IF_ERROR(
            ist_launch(p->stream, &ist_kernel_cli_probe_empty, 1, &args, sizeof args));
    }
    uint64_t end = ist_world_clock_ns(p->world);
    IST_RETURN_IF_ERROR(ist_event_record(p->end, p->stream));
    IST_RETURN_IF_ERROR(ist_stream_sync(p->stream, 0));
    IST_RETURN_IF_ERROR(ist_event_elapsed(p->begin, p->end, &elapsed_ns));
    p->numbers->values[PROBE_LAUNCH_HOST] = (end - begin) * PS_PER_NS / LAUNCH_RUN;
    p->numbers->values[PROBE_LAUNCH_STREAM] = elapsed_ns * PS_PER_NS / LAUNCH_RUN;
    begin = ist_world_clock_ns(p->world);
    for (uint32_t i = 0; i < LAUNCH_RUN; ++i) {
        IST_RETURN_IF_ERROR(ist_event_record(p->begin, p->stream));
    }
    end = ist_world_clock_ns(p->world);
    p->numbers->values[PROBE_HOST_CALL] = (end - begin) * PS_PER_NS / LAUNCH_RUN;
    return ist_stream_sync(p->stream, 0);
}

/* Median host time of an empty kernel alone, until it is seen to have run, less the host's call. */
static ist_status measure_launch(probe_rank *p)
{
    uint64_t samples[LAUNCH_SAMPLES];
    probe_args args = arguments(p);
    cli_stats stats;
    for (uint32_t i = 0; i < LAUNCH_SAMPLES; ++i) {
        uint64_t begin = ist_world_clock_ns(p->world);
        IST_RETURN_IF_ERROR(
            ist_launch(p->stream, &ist_kernel_cli_probe_empty, 1, &args, sizeof args));
        IST_RETURN_IF_ERROR(ist_stream_sync(p->stream, 0));
        samples[i] = ist_world_clock_ns(p->world) - begin;
    }
    cli_stats_make(samples, LAUNCH_SAMPLES, &stats);
    uint64_t alone_ps = (uint64_t)stats.median * PS_PER_NS;
    uint64_t call_ps = p->numbers->values[PROBE_LAUNCH_HOST];
    p->numbers->values[PROBE_LAUNCH] = alone_ps > call_ps ? alone_ps - call_ps : 0;
    return IST_OK;
}

static ist_status time_graph(probe_rank *p, ist_graph *graph)
{
    uint64_t elapsed_ns = 0;
    IST_RETURN_IF_ERROR(ist_graph_launch(graph, p->stream));
    IST_RETURN_IF_ERROR(ist_event_record(p->begin, p->stream));
    IST_RETURN_IF_ERROR(ist_graph_launch(graph, p->stream));
    IST_RETURN_IF_ERROR(ist_graph_launch(graph, p->stream));
    IST_RETURN_IF_ERROR(ist_event_record(p->end, p->stream));
    IST_RETURN_IF_ERROR(ist_stream_sync(p->stream, 0));
    IST_RETURN_IF_ERROR(ist_event_elapsed(p->begin, p->end, &elapsed_ns));
    p->numbers->values[PROBE_LAUNCH_GRAPH] = elapsed_ns * PS_PER_NS / (2 * GRAPH_KERNELS);
    return IST_OK;
}

static ist_status measure_graph(probe_rank *p)
{
    probe_args args = arguments(p);
    ist_graph *graph = NULL;
    ist_status status = IST_OK;
    IST_RETURN_IF_ERROR(ist_graph_begin(p->stream));
    for (uint32_t i = 0; i < GRAPH_KERNELS && status == IST_OK; ++i) {
        status = ist_launch(p->stream, &ist_kernel_cli_probe_empty, 1, &args, sizeof args);
    }
    ist_status ended = ist_graph_end(p->stream, &graph);
    IST_RETURN_IF_ERROR(status);
    IST_RETURN_IF_ERROR(ended);
    status = time_graph(p, graph);
    ist_graph_close(graph);
    return status;
}

static ist_status measure_words(probe_rank *p)
{
    probe_args args = arguments(p);
    uint64_t times[3];
    args.rounds = 1000;
    args.word = p->times + 4;
    for (uint32_t i = 0; i < 2; ++i) {
        IST_RETURN_IF_ERROR(ist_fill(p->stream, p->times, 0, 5 * sizeof *p->times));
        IST_RETURN_IF_ERROR(launch(p, &ist_kernel_cli_probe_words, 1, &args));
    }
    IST_RETURN_IF_ERROR(ist_copy_to_host(p->stream, times, p->times, sizeof times));
    p->numbers->values[PROBE_SYNC] = times[0] * PS_PER_NS / args.rounds;
    p->numbers->values[PROBE_ATOMIC] = times[1] * PS_PER_NS / args.rounds;
    p->numbers->values[PROBE_LOAD] = times[2] * PS_PER_NS / args.rounds;
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ links */

/* Between the first two members of rank 0's team; others look on. */
static ist_status measure_flags(probe_rank *p)
{
    probe_args args = arguments(p);
    uint64_t span_ns = 0;
    if (p->info.lsa_size < 2 || p->info.rank >= 2) {
        return IST_OK;
    }
    args.peer = 1 - p->info.rank;
    args.first = p->info.rank == 0;
    args.base = p->flags;
    p->flags += args.rounds + args.warmup;
    IST_RETURN_IF_ERROR(launch(p, &ist_kernel_cli_probe_flags, 1, &args));
    IST_RETURN_IF_ERROR(read_span(p, 1, &span_ns));
    p->numbers->values[PROBE_NVLINK_LATENCY] = span_ns * PS_PER_NS / (2 * args.rounds);
    return IST_OK;
}

/* Bytes of the first, the middle and the last piece that differ from `expected`. */
static ist_status count_wrong(probe_rank *p, uint64_t bytes, uint8_t expected)
{
    uint8_t piece[SLICE_BYTES];
    uint64_t length = bytes < SLICE_BYTES ? bytes : SLICE_BYTES;
    const uint64_t places[] = {0, (bytes - length) / 2, bytes - length};
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
        IST_RETURN_IF_ERROR(
            ist_copy_to_host(p->stream, piece, p->memory + room(p) + places[i], length));
        for (uint64_t b = 0; b < length; ++b) {
            p->numbers->wrong += piece[b] != expected;
        }
    }
    return IST_OK;
}

static probe_way way_of(probe_curve curve)
{
    return curve == PROBE_LSA_STORE  ? PROBE_WAY_STORE
           : curve == PROBE_LSA_LOAD ? PROBE_WAY_LOAD
                                     : PROBE_WAY_LOCAL;
}

/* As many rounds as there is room for, each in a place of its own. */
static uint32_t copy_rounds(const probe_rank *p, uint64_t bytes)
{
    uint64_t rounds = room(p) / bytes;
    return (uint32_t)(rounds > COPY_ROUNDS_MAX ? COPY_ROUNDS_MAX : rounds);
}

static ist_status measure_copy(probe_rank *p, const probe_point *point, uint64_t *time_ps)
{
    probe_args args = arguments(p);
    uint32_t first = p->info.rank - p->info.lsa_rank;
    uint32_t next = first + (p->info.lsa_rank + 1) % p->info.lsa_size;
    uint32_t last = first + (p->info.lsa_rank + p->info.lsa_size - 1) % p->info.lsa_size;
    uint64_t span_ns = 0;
    args.way = way_of(point->curve);
    args.peer = next;
    args.bytes = point->bytes;
    args.rounds = copy_rounds(p, point->bytes);
    uint64_t used = args.rounds * args.bytes;
    IST_RETURN_IF_ERROR(ist_fill(p->stream, p->memory, (uint8_t)(p->info.rank + 1), used));
    IST_RETURN_IF_ERROR(ist_fill(p->stream, p->memory + room(p), 0, used));
    IST_RETURN_IF_ERROR(meet(p));
    IST_RETURN_IF_ERROR(launch(p, &ist_kernel_cli_probe_copy, point->blocks, &args));
    IST_RETURN_IF_ERROR(launch(p, &ist_kernel_cli_probe_copy, point->blocks, &args));
    IST_RETURN_IF_ERROR(meet(p));
    IST_RETURN_IF_ERROR(read_span(p, point->blocks, &span_ns));
    uint32_t source = args.way == PROBE_WAY_STORE  ? last
                      : args.way == PROBE_WAY_LOAD ? next
                                                   : p->info.rank;
    IST_RETURN_IF_ERROR(count_wrong(p, point->bytes * args.rounds, (uint8_t)(source + 1)));
    *time_ps = span_ns * PS_PER_NS / args.rounds;
    return IST_OK;
}

static ist_status measure_barrier(probe_rank *p, const probe_point *point, uint64_t *time_ps)
{
    probe_args args = arguments(p);
    uint64_t span_ns = 0;
    IST_RETURN_IF_ERROR(meet(p));
    IST_RETURN_IF_ERROR(launch(p, &ist_kernel_cli_probe_barrier, point->blocks, &args));
    IST_RETURN_IF_ERROR(read_span(p, point->blocks, &span_ns));
    *time_ps = span_ns * PS_PER_NS / args.rounds;
    return IST_OK;
}

/* Large puts need no many rounds to be timed well. */
static uint32_t put_rounds(const probe_rank *p, uint64_t bytes)
{
    uint64_t rounds = room(p) / bytes + 2;
    return (uint32_t)(rounds < p->options->rounds ? rounds : p->options->rounds);
}

/* Between rank 0 and one that it does not reach by load and store, if there is one. */
static ist_status measure_put(probe_rank *p, uint64_t bytes, uint64_t *time_ps)
{
    probe_args args = arguments(p);
    uint64_t span_ns = 0;
    if (p->info.rank != 0 && p->info.rank != p->put_peer) {
        return IST_OK;
    }
    args.dev = p->put_dev;
    args.window = ist_window_index(p->put_window);
    args.peer = p->info.rank == 0 ? p->put_peer : 0;
    args.first = p->info.rank == 0;
    args.base = p->signals;
    args.bytes = bytes;
    args.rounds = put_rounds(p, bytes);
    args.warmup = args.rounds / 4;
    p->signals += args.rounds + args.warmup;
    IST_RETURN_IF_ERROR(launch(p, &ist_kernel_cli_probe_put, 1, &args));
    IST_RETURN_IF_ERROR(read_span(p, 1, &span_ns));
    *time_ps = span_ns * PS_PER_NS / (2 * args.rounds);
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ the list */

static void add_point(probe_result *list, probe_curve curve, uint64_t bytes, uint32_t blocks)
{
    if (list->point_count < PROBE_POINTS_MAX) {
        list->points[list->point_count++] = (probe_point){curve, blocks, bytes, 0};
    }
}

static void add_sizes(const probe_rank *p, probe_result *list, probe_curve curve, uint32_t blocks)
{
    const probe_options *o = p->options;
    for (uint64_t bytes = o->bytes_first; bytes <= o->bytes_last; bytes *= o->bytes_factor) {
        add_point(list, curve, bytes, blocks);
    }
}

/* Numbers of blocks that fit the device, ascending, none twice. */
static uint32_t block_counts(const probe_rank *p, uint32_t counts[PROBE_BLOCKS_MAX])
{
    static const uint32_t preset[] = {1, 8, 32, UINT32_MAX};
    const probe_options *o = p->options;
    const uint32_t *wanted = o->block_count_count != 0 ? o->block_counts : preset;
    uint32_t wanted_count = o->block_count_count != 0 ? o->block_count_count : 4;
    uint32_t count = 0;
    for (uint32_t i = 0; i < wanted_count; ++i) {
        uint32_t blocks = wanted[i] < p->info.sm_count ? wanted[i] : p->info.sm_count;
        if (count == 0 || counts[count - 1] < blocks) {
            counts[count++] = blocks;
        }
    }
    return count;
}

static void make_list(const probe_rank *p, probe_result *list)
{
    uint32_t counts[PROBE_BLOCKS_MAX];
    uint32_t count = block_counts(p, counts);
    for (uint32_t i = 0; i < count; ++i) {
        if (p->info.lsa_size > 1) {
            add_sizes(p, list, PROBE_LSA_STORE, counts[i]);
            add_sizes(p, list, PROBE_LSA_LOAD, counts[i]);
            add_point(list, PROBE_LSA_BARRIER, 0, counts[i]);
        }
        add_sizes(p, list, PROBE_LOCAL_COPY, counts[i]);
    }
    if (p->put_dev != NULL) {
        add_sizes(p, list, PROBE_GIN_PUT, 1);
    }
    for (int value = 0; value < PROBE_VALUE_COUNT; ++value) {
        list->known[value] = true;
    }
    list->known[PROBE_NVLINK_LATENCY] = p->info.lsa_size > 1;
    list->known[PROBE_NIC_LATENCY] = p->put_dev != NULL;
}

static ist_status measure_point(probe_rank *p, const probe_point *point, uint64_t *time_ps)
{
    if (point->curve == PROBE_LSA_BARRIER) {
        return measure_barrier(p, point, time_ps);
    }
    return point->curve == PROBE_GIN_PUT ? measure_put(p, point->bytes, time_ps)
                                         : measure_copy(p, point, time_ps);
}

static ist_status measure_all(probe_rank *p)
{
    IST_RETURN_IF_ERROR(measure_run(p));
    IST_RETURN_IF_ERROR(measure_launch(p));
    IST_RETURN_IF_ERROR(measure_graph(p));
    IST_RETURN_IF_ERROR(measure_words(p));
    IST_RETURN_IF_ERROR(meet(p));
    IST_RETURN_IF_ERROR(measure_flags(p));
    IST_RETURN_IF_ERROR(meet(p));
    if (p->put_dev != NULL) {
        IST_RETURN_IF_ERROR(measure_put(p, 8, &p->numbers->values[PROBE_NIC_LATENCY]));
    }
    for (uint32_t i = 0; i < p->list->point_count; ++i) {
        IST_RETURN_IF_ERROR(measure_point(p, &p->list->points[i], &p->numbers->points[i]));
        IST_RETURN_IF_ERROR(meet(p));
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ together */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The slowest rank's number is the machine's. */
static void reduce(const probe_rank *p, const probe_numbers *all, probe_result *result)
{
    *result = *p->list;
    for (uint32_t r = 0; r < p->info.rank_count; ++r) {
        result->wrong += all[r].wrong;
        for (int v = 0; v < PROBE_VALUE_COUNT; ++v) {
            result->values[v] = larger(result->values[v], all[r].values[v]);
        }
        for (uint32_t i = 0; i < result->point_count; ++i) {
            result->points[i].time_ps = larger(result->points[i].time_ps, all[r].points[i]);
        }
    }
    result->rank_count = p->info.rank_count;
    result->lsa_size = p->info.lsa_size;
    result->sm_count = p->info.sm_count;
    strncpy(result->backend, ist_world_backend_name(p->world), sizeof result->backend - 1);
    if (p->gin_reason != NULL) {
        strncpy(result->gin_reason, p->gin_reason, sizeof result->gin_reason - 1);
    }
    result->done = true;
}

static ist_status gather(probe_rank *p, probe_result *result)
{
    probe_numbers *all = calloc(p->info.rank_count, sizeof *all);
    if (all == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the numbers of %u ranks",
                         p->info.rank_count);
    }
    ist_status status = cli_gather_run(&p->gather, 0, p->numbers, all);
    if (status == IST_OK && p->info.rank == 0) {
        reduce(p, all, result);
    }
    free(all);
    return status == IST_OK ? meet(p) : status;
}

static ist_status run(probe_rank *p, probe_result *result)
{
    IST_RETURN_IF_ERROR(open_rank(p));
    make_list(p, p->list);
    IST_RETURN_IF_ERROR(measure_all(p));
    return gather(p, result);
}

ist_status probe_rank_main(ist_world *world, void *arg)
{
    probe_job *job = arg;
    probe_rank p = {.options = job->options, .world = world};
    ist_status status = IST_OK;
    p.list = calloc(1, sizeof *p.list);
    p.numbers = calloc(1, sizeof *p.numbers);
    if (p.list == NULL || p.numbers == NULL) {
        status = ist_raise(IST_ERR_MEMORY, NULL, "no memory for the probe's list");
    }
    if (status == IST_OK) {
        status = run(&p, &job->result);
    }
    if (status < 0 && !job->failed) {
        ist_error error = {.size = sizeof error};
        job->failed = true;
        job->failed_rank = (int32_t)ist_world_rank(world);
        (void)ist_error_last(&error);
        memcpy(job->message, error.message,
               sizeof error.message < sizeof job->message ? sizeof error.message
                                                          : sizeof job->message);
        job->message[sizeof job->message - 1] = '\0';
    }
    close_rank(&p);
    free(p.list);
    free(p.numbers);
    return status;
}
