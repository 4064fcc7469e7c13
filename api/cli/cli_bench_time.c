/* SPDX-License-Identifier: Apache-2.0 */
/* Takes times of the operations of an open rank. All ranks do the same, so that operations meet.
 *
 * Three loops an operation, each after a warm-up: one at a time, waited for by the host; back to back
 * with an event between; back to back without. With --graph an operation is a launch of a graph that
 * was captured of it. The clocks are the world's and the stream's, virtual in a simulator.
 */
#include "cli_bench.h"

#include <isthmus/backend.h>
#include <stdlib.h>

/* An operation, and the graph that stands for it. */
typedef struct bench_timed {
    cli_rank *rank;
    cli_enqueue enqueue;
    ist_graph *graph;
    ist_event **events; /* [iterations + 1] */
    uint64_t *samples;  /* [iterations] */
    const bench_options *options;
} bench_timed;

static ist_status pair(cli_rank *rank)
{
    IST_RETURN_IF_ERROR(cli_rank_dispatch(rank));
    return cli_rank_combine(rank);
}

static const cli_enqueue enqueues[BENCH_OP_COUNT] = {
    [BENCH_ROUTE] = cli_rank_route,
    [BENCH_DISPATCH] = cli_rank_dispatch,
    [BENCH_COMBINE] = cli_rank_combine,
    [BENCH_PAIR] = pair,
};

static ist_status enqueue(const bench_timed *timed)
{
    return timed->graph != NULL ? ist_graph_launch(timed->graph, timed->rank->stream)
                                : timed->enqueue(timed->rank);
}

static ist_status capture(bench_timed *timed)
{
    IST_RETURN_IF_ERROR(ist_graph_begin(timed->rank->stream));
    ist_status status = timed->enqueue(timed->rank);
    ist_status ended = ist_graph_end(timed->rank->stream, &timed->graph);
    return status != IST_OK ? status : ended;
}

/* Ranks begin a loop together, with nothing in flight. */
static ist_status warm_up(const bench_timed *timed)
{
    for (uint32_t i = 0; i < timed->options->warmup; ++i) {
        IST_RETURN_IF_ERROR(enqueue(timed));
    }
    IST_RETURN_IF_ERROR(ist_comm_barrier(timed->rank->comm, timed->rank->stream));
    return ist_stream_sync(timed->rank->stream, 0);
}

static ist_status time_host(const bench_timed *timed, cli_stats *stats)
{
    cli_rank *rank = timed->rank;
    uint32_t count = timed->options->iterations;
    IST_RETURN_IF_ERROR(warm_up(timed));
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t begin = ist_world_clock_ns(rank->world);
        IST_RETURN_IF_ERROR(enqueue(timed));
        IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
        timed->samples[i] = ist_world_clock_ns(rank->world) - begin;
    }
    cli_stats_make(timed->samples, count, stats);
    return IST_OK;
}

static ist_status time_stream(const bench_timed *timed, cli_stats *stats)
{
    cli_rank *rank = timed->rank;
    uint32_t count = timed->options->iterations;
    IST_RETURN_IF_ERROR(warm_up(timed));
    IST_RETURN_IF_ERROR(ist_event_record(timed->events[0], rank->stream));
    for (uint32_t i = 0; i < count; ++i) {
        IST_RETURN_IF_ERROR(enqueue(timed));
        IST_RETURN_IF_ERROR(ist_event_record(timed->events[i + 1], rank->stream));
    }
    IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
    for (uint32_t i = 0; i < count; ++i) {
        IST_RETURN_IF_ERROR(
            ist_event_elapsed(timed->events[i], timed->events[i + 1], &timed->samples[i]));
    }
    cli_stats_make(timed->samples, count, stats);
    return IST_OK;
}

static ist_status time_run(const bench_timed *timed, bench_times *times)
{
    cli_rank *rank = timed->rank;
    uint32_t count = timed->options->iterations;
    uint64_t elapsed_ns = 0;
    IST_RETURN_IF_ERROR(warm_up(timed));
    IST_RETURN_IF_ERROR(ist_event_record(timed->events[0], rank->stream));
    uint64_t begin = ist_world_clock_ns(rank->world);
    for (uint32_t i = 0; i < count; ++i) {
        IST_RETURN_IF_ERROR(enqueue(timed));
    }
    uint64_t enqueued = ist_world_clock_ns(rank->world);
    IST_RETURN_IF_ERROR(ist_event_record(timed->events[1], rank->stream));
    IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
    IST_RETURN_IF_ERROR(ist_event_elapsed(timed->events[0], timed->events[1], &elapsed_ns));
    times->run = (double)elapsed_ns / count;
    times->call = (double)(enqueued - begin) / count;
    return IST_OK;
}

static ist_status time_enqueue(bench_timed *timed, cli_enqueue enqueue_op, bool graph,
                               bench_times *times)
{
    timed->enqueue = enqueue_op;
    timed->graph = NULL;
    if (graph) {
        IST_RETURN_IF_ERROR(capture(timed));
    }
    ist_status status = time_host(timed, &times->host);
    if (status == IST_OK) {
        status = time_stream(timed, &times->stream);
    }
    if (status == IST_OK) {
        status = time_run(timed, times);
    }
    ist_graph_close(timed->graph);
    return status;
}

static ist_status time_all(bench_timed *timed, void *context)
{
    bench_report *report = context;
    for (int op = 0; op < BENCH_OP_COUNT; ++op) {
        /* The routing is checked by the host, which a graph cannot do: it is timed as a call. */
        bool graph = timed->options->graph && op != BENCH_ROUTE;
        if (timed->options->timed[op]) {
            IST_RETURN_IF_ERROR(time_enqueue(timed, enqueues[op], graph, &report->times[op]));
        }
        /* A combine needs a dispatch since the last routing. */
        if (op == BENCH_ROUTE && timed->options->timed[op]) {
            IST_RETURN_IF_ERROR(cli_rank_dispatch(timed->rank));
        }
    }
    return IST_OK;
}

static ist_status open_events(const bench_timed *timed)
{
    for (uint32_t i = 0; i <= timed->options->iterations; ++i) {
        IST_RETURN_IF_ERROR(ist_event_open(timed->rank->world, &timed->events[i]));
    }
    return IST_OK;
}

/* Opens what the loops need, runs `body`, closes. */
static ist_status with_events(bench_timed *timed, ist_status (*body)(bench_timed *, void *),
                              void *context)
{
    size_t count = (size_t)timed->options->iterations + 1;
    timed->events = calloc(count, sizeof(ist_event *));
    timed->samples = calloc(count, sizeof *timed->samples);
    ist_status status = IST_OK;
    if (timed->events == NULL || timed->samples == NULL) {
        status = ist_raise(IST_ERR_MEMORY, NULL, "no memory for %zu samples", count);
    }
    if (status == IST_OK) {
        status = open_events(timed);
    }
    if (status == IST_OK) {
        status = body(timed, context);
    }
    for (size_t i = 0; timed->events != NULL && i < count; ++i) {
        ist_event_close(timed->events[i]);
    }
    free(timed->events);
    free(timed->samples);
    return status;
}

ist_status bench_time(cli_rank *rank, const bench_options *options, bench_report *report)
{
    bench_timed timed = {.rank = rank, .options = options};
    return with_events(&timed, time_all, report);
}

typedef struct one_op {
    cli_enqueue enqueue;
    bool graph;
    bench_times *times;
} one_op;

static ist_status time_one(bench_timed *timed, void *context)
{
    const one_op *one = context;
    return time_enqueue(timed, one->enqueue, one->graph, one->times);
}

ist_status bench_time_op(cli_rank *rank, const bench_options *options, cli_enqueue enqueue_op,
                         bool graph, bench_times *times)
{
    bench_timed timed = {.rank = rank, .options = options};
    one_op one = {enqueue_op, graph, times};
    return with_events(&timed, time_one, &one);
}
