/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of expert-parallel dispatch and combine on any backend: 256 experts, top-8, hidden 7168, BF16,
 * operands in registered windows; expert-major with both orders of the combine. Each case is checked
 * first: with unit experts and weights of 1/8 every token must come back unchanged, but for the
 * rounding by rank of the reduced order, which is computed. Prints the mean per dispatch+combine pair of a run of pairs
 * enqueued back to back, by events on the stream, and the same inside a replayed graph.
 *
 * bench_ep [pairs]      ranks: all GPUs of this host, or one a process under mpirun
 */
#include "ep_oracle.h"

#include <isthmus/isthmus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPERTS 256u
#define TOPK 8u
#define HIDDEN 7168u
#define TOKENS_MAX 128u

static uint32_t pair_count = 200;

#define TRY(expression)                                                                            \
    do {                                                                                           \
        ist_status try_status = (expression);                                                      \
        if (try_status < 0) {                                                                      \
            ist_error try_error = {.size = sizeof(try_error)};                                     \
            (void)ist_error_last(&try_error);                                                      \
            (void)fprintf(stderr, "%s: %s: %s\n", #expression, ist_status_name(try_status),        \
                          try_error.message);                                                      \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

typedef struct rig {
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    ist_ep_group *group;
    ist_ep_handle *handle;
    ist_event *begin, *end;
    ist_graph *graph;
    uint8_t *memory;
    ist_window *window;
    uint64_t at_tokens, at_combined, at_idx, at_weights, at_counters, at_received;
    uint32_t rank, rank_count, tokens, local;
    ist_ep_layout layout;
    ist_ep_combine_order order;
} rig;

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 4095u) & ~(uint64_t)4095u;
}

static ist_tensor windowed(const rig *r, uint64_t offset, ist_dtype dtype, uint32_t dims,
                           uint64_t d0, uint64_t d1, uint64_t d2)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dims,
                        .dims = {d0, d1, d2},
                        .window = r->window,
                        .window_offset = offset};
}

static ist_tensor plain(const rig *r, uint64_t offset, ist_dtype dtype, uint32_t dims, uint64_t d0,
                        uint64_t d1, uint64_t d2)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dims,
                        .dims = {d0, d1, d2},
                        .data = r->memory + offset};
}

static ist_status open_memory(rig *r)
{
    uint64_t rows = round_up((uint64_t)TOKENS_MAX * HIDDEN * 2u);
    uint64_t received = round_up((uint64_t)r->local * r->rank_count * TOKENS_MAX * HIDDEN * 2u);
    uint64_t small = round_up((uint64_t)TOKENS_MAX * TOPK * r->rank_count * 8u);
    r->at_tokens = 0;
    r->at_combined = rows;
    r->at_idx = 2 * rows;
    r->at_weights = r->at_idx + small;
    r->at_counters = r->at_weights + small;
    r->at_received = r->at_counters + small;
    void *memory = NULL;
    TRY(ist_mem_alloc(r->world, r->at_received + received + 2 * small, IST_MEM_SYMMETRIC, &memory));
    r->memory = memory;
    return ist_window_open(r->comm, memory, r->at_received + received + 2 * small, &r->window);
}

static void make_routing(const rig *r, int32_t *idx)
{
    uint64_t state = 88172645463325252ull + r->rank;
    for (uint32_t t = 0; t < r->tokens; ++t) {
        for (uint32_t k = 0; k < TOPK; ++k) {
            int fresh;
            do {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                idx[t * TOPK + k] = (int32_t)(state % EXPERTS);
                fresh = 1;
                for (uint32_t j = 0; j < k; ++j) {
                    fresh &= idx[t * TOPK + j] != idx[t * TOPK + k];
                }
            } while (!fresh);
        }
    }
}

static ist_status upload(rig *r, uint16_t *rows)
{
    static _Thread_local int32_t idx[TOKENS_MAX * TOPK];
    static _Thread_local float weights[TOKENS_MAX * TOPK];
    make_routing(r, idx);
    for (uint64_t i = 0; i < (uint64_t)r->tokens * HIDDEN; ++i) {
        rows[i] = (uint16_t)(0x3f80u + (i * 131u + r->rank * 17u) % 128u);
    }
    for (uint32_t i = 0; i < r->tokens * TOPK; ++i) {
        weights[i] = 1.0f / (float)TOPK;
    }
    TRY(ist_copy_to_device(r->stream, r->memory + r->at_tokens, rows,
                           (size_t)r->tokens * HIDDEN * 2u));
    TRY(ist_copy_to_device(r->stream, r->memory + r->at_idx, idx,
                           (size_t)r->tokens * TOPK * sizeof(int32_t)));
    return ist_copy_to_device(r->stream, r->memory + r->at_weights, weights,
                              (size_t)r->tokens * TOPK * sizeof(float));
}

static ist_status dispatch(rig *r)
{
    uint64_t slots = (uint64_t)r->rank_count * TOKENS_MAX;
    int expert = r->layout == IST_EP_EXPERT_MAJOR;
    ist_tensor tokens = windowed(r, r->at_tokens, IST_BF16, 2, r->tokens, HIDDEN, 0);
    ist_tensor weights = plain(r, r->at_weights, IST_F32, 2, r->tokens, TOPK, 0);
    ist_tensor received =
        expert ? windowed(r, r->at_received, IST_BF16, 3, r->local, slots, HIDDEN)
               : windowed(r, r->at_received, IST_BF16, 3, r->rank_count, TOKENS_MAX, HIDDEN);
    ist_tensor counters = plain(r, r->at_counters, IST_I32, 1, r->local, 0, 0);
    uint64_t meta = r->at_counters + 4096;
    ist_tensor out_weights = plain(r, meta, IST_F32, 3, r->rank_count, TOKENS_MAX, TOPK);
    ist_tensor out_idx =
        plain(r, meta + slots * TOPK * 4u, IST_I32, 3, r->rank_count, TOKENS_MAX, TOPK);
    ist_ep_dispatch_in in = {
        .size = sizeof(in), .tokens = &tokens, .topk_weights = expert ? NULL : &weights};
    ist_ep_dispatch_out out = {.size = sizeof(out),
                               .tokens = &received,
                               .topk_weights = expert ? NULL : &out_weights,
                               .topk_idx = expert ? NULL : &out_idx};
    ist_ep_layout_info info = {.size = sizeof(info), .expert_counters = expert ? &counters : NULL};
    return ist_ep_dispatch(r->handle, &in, &out, &info, NULL, r->stream);
}

static ist_status combine(rig *r)
{
    uint64_t slots = (uint64_t)r->rank_count * TOKENS_MAX;
    int expert = r->layout == IST_EP_EXPERT_MAJOR;
    ist_tensor received =
        expert ? windowed(r, r->at_received, IST_BF16, 3, r->local, slots, HIDDEN)
               : windowed(r, r->at_received, IST_BF16, 3, r->rank_count, TOKENS_MAX, HIDDEN);
    ist_tensor combined = windowed(r, r->at_combined, IST_BF16, 2, r->tokens, HIDDEN, 0);
    ist_tensor weights = plain(r, r->at_weights, IST_F32, 2, r->tokens, TOPK, 0);
    ist_ep_combine_in in = {.size = sizeof(in), .tokens = &received};
    ist_ep_combine_out out = {
        .size = sizeof(out), .tokens = &combined, .topk_weights = expert ? &weights : NULL};
    return ist_ep_combine(r->handle, &in, &out, NULL, r->stream);
}

static ist_status pair(rig *r)
{
    TRY(dispatch(r));
    return combine(r);
}

/* What comes back for an element: from each rank, in the order of its first k, an eighth for each of
   its entries, exactly; in the reduced order rounded by rank. */
static uint16_t expected(const rig *r, const int32_t *idx, uint16_t element)
{
    float value = ep_oracle_widen_bf16(element), sum = 0;
    if (r->order == IST_EP_COMBINE_STRICT) {
        return element;
    }
    for (uint32_t k = 0; k < TOPK; ++k) {
        uint32_t owner = (uint32_t)idx[k] / r->local, entries = 0, before = 0;
        for (uint32_t j = 0; j < TOPK; ++j) {
            entries += (uint32_t)idx[j] / r->local == owner;
            before += j < k && (uint32_t)idx[j] / r->local == owner;
        }
        if (before == 0) {
            sum += ep_oracle_widen_bf16(ep_oracle_round_bf16(value * (float)entries / (float)TOPK));
        }
    }
    return ep_oracle_round_bf16(sum);
}

static int came_back(const rig *r, const uint16_t *rows, const uint16_t *back)
{
    static _Thread_local int32_t idx[TOKENS_MAX * TOPK];
    make_routing(r, idx);
    for (uint64_t i = 0; i < (uint64_t)r->tokens * HIDDEN; ++i) {
        if (back[i] != expected(r, idx + i / HIDDEN * TOPK, rows[i])) {
            return 0;
        }
    }
    return 1;
}

/* EXPERT_MAJOR: eight eighths of a row are the row. */
static ist_status check(rig *r, uint16_t *rows, uint16_t *back)
{
    TRY(pair(r));
    TRY(ist_copy_to_host(r->stream, back, r->memory + r->at_combined,
                         (size_t)r->tokens * HIDDEN * 2u));
    if (r->layout == IST_EP_EXPERT_MAJOR && !came_back(r, rows, back)) {
        (void)fprintf(stderr, "rank %u: a token came back changed\n", r->rank);
        return IST_ERR_INTERNAL;
    }
    ist_completion record = {.size = sizeof(record)};
    TRY(ist_ep_record(r->handle, IST_EP_OP_COMBINE, &record));
    return record.complete ? IST_OK : IST_ERR_INTERNAL;
}

typedef ist_status (*timed_fn)(rig *r);

static ist_status time_it(rig *r, timed_fn what, double *us)
{
    uint64_t elapsed_ns = 0;
    for (uint32_t i = 0; i < 20; ++i) {
        TRY(what(r));
    }
    TRY(ist_comm_barrier(r->comm, r->stream));
    TRY(ist_event_record(r->begin, r->stream));
    for (uint32_t i = 0; i < pair_count; ++i) {
        TRY(what(r));
    }
    TRY(ist_event_record(r->end, r->stream));
    TRY(ist_stream_sync(r->stream, 0));
    TRY(ist_event_elapsed(r->begin, r->end, &elapsed_ns));
    *us = (double)elapsed_ns / 1000.0 / pair_count;
    return IST_OK;
}

static ist_status replay(rig *r)
{
    return ist_graph_launch(r->graph, r->stream);
}

static ist_status time_replay(rig *r, double *us)
{
    TRY(ist_graph_begin(r->stream));
    TRY(pair(r));
    TRY(ist_graph_end(r->stream, &r->graph));
    TRY(time_it(r, replay, us));
    return ist_graph_close(r->graph);
}

static ist_status bench_case(rig *r)
{
    double pair_us = 0, dispatch_us = 0, replay_us = 0;
    uint16_t *rows = calloc((size_t)TOKENS_MAX * HIDDEN, 2u);
    uint16_t *back = calloc((size_t)TOKENS_MAX * HIDDEN, 2u);
    ist_tensor idx = plain(r, r->at_idx, IST_I32, 2, r->tokens, TOPK, 0);
    ist_ep_group_info info = {.size = sizeof(info)};
    TRY(upload(r, rows));
    TRY(ist_ep_handle_open(r->group, r->layout, &idx, r->stream, &r->handle));
    TRY(check(r, rows, back));
    TRY(time_it(r, pair, &pair_us));
    TRY(time_it(r, dispatch, &dispatch_us));
    TRY(time_replay(r, &replay_us));
    TRY(check(r, rows, back));
    TRY(ist_ep_group_query(r->group, &info));
    if (r->rank == 0) {
        (void)printf("%-12s %4u tokens: pair %7.2f us, in a graph %7.2f, dispatch alone %7.2f; "
                     "library memory %.2f MB, %u blocks\n",
                     r->layout == IST_EP_RANK_MAJOR       ? "rank-major"
                     : r->order == IST_EP_COMBINE_REDUCED ? "reduced"
                                                          : "expert-major",
                     r->tokens, pair_us, replay_us, dispatch_us, (double)info.device_bytes * 1e-6,
                     info.block_count);
        (void)fflush(stdout);
    }
    free(rows);
    free(back);
    return ist_ep_handle_close(r->handle);
}

static ist_status bench_group(rig *r, ist_ep_combine_order order, ist_ep_layout layout)
{
    static const uint32_t token_counts[] = {128, 32, 1};
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = EXPERTS,
                              .tokens_per_rank_max = TOKENS_MAX,
                              .topk_max = TOPK,
                              .token_bytes_max = HIDDEN * 2u,
                              .zero_copy = IST_EP_ZERO_COPY_ON,
                              .combine_order = order};
    TRY(ist_ep_group_open(r->comm, &desc, &r->group));
    r->order = order;
    r->layout = layout;
    for (uint32_t i = 0; i < sizeof(token_counts) / sizeof(token_counts[0]); ++i) {
        r->tokens = token_counts[i];
        TRY(bench_case(r));
    }
    return ist_ep_group_close(r->group);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    rig r = {
        .world = world, .rank = ist_world_rank(world), .rank_count = ist_world_rank_count(world)};
    (void)arg;
    r.local = EXPERTS / r.rank_count;
    ist_comm_desc comm = {.size = sizeof(comm), .fault_tolerant = 1, .deadline_ns = 5000000000u};
    TRY(ist_comm_open(world, &comm, &r.comm));
    TRY(ist_stream_open(world, &r.stream));
    TRY(ist_event_open(world, &r.begin));
    TRY(ist_event_open(world, &r.end));
    TRY(open_memory(&r));
    TRY(bench_group(&r, IST_EP_COMBINE_STRICT, IST_EP_EXPERT_MAJOR));
    TRY(bench_group(&r, IST_EP_COMBINE_REDUCED, IST_EP_EXPERT_MAJOR));
    TRY(bench_group(&r, IST_EP_COMBINE_STRICT, IST_EP_RANK_MAJOR));
    TRY(ist_window_close(r.window));
    TRY(ist_mem_free(world, r.memory));
    TRY(ist_event_close(r.begin));
    TRY(ist_event_close(r.end));
    TRY(ist_stream_close(r.stream));
    return ist_comm_close(r.comm);
}

int main(int argc, char **argv)
{
    ist_world_desc desc = {.size = sizeof(desc)};
    if (argc > 1) {
        pair_count = (uint32_t)strtoul(argv[1], NULL, 10);
    }
    return ist_world_run(&desc, rank_main, NULL, NULL) == IST_OK ? 0 : 1;
}
