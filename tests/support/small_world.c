/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small world of the benchmarks: opened, run, checked and closed by each rank. Unit weights of one
 * half make the combine of a dispatch the identity.
 */
#include "small_world.h"

#include <string.h>

#define RANKS SMALL_WORLD_RANKS
#define TOKENS 8u
#define HIDDEN 64u
#define EXPERTS 8u
#define TOPK 2u
#define LOCAL (EXPERTS / RANKS)

#define TRY(expression)                                                                            \
    do {                                                                                           \
        ist_status try_status = (expression);                                                      \
        if (try_status < 0) {                                                                      \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

static ist_tensor tensor(void *data, ist_dtype dtype, uint32_t dims, uint64_t d0, uint64_t d1,
                         uint64_t d2)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dims,
                        .dims = {d0, d1, d2},
                        .data = data};
}

/* Device memory of one rank, carved from one allocation. */
typedef struct buffers {
    uint8_t *base;
    void *tokens, *idx, *weights, *received, *counters, *combined;
} buffers;

static ist_status open_buffers(ist_world *world, buffers *b)
{
    const size_t row = HIDDEN * 2u;
    const size_t received = (size_t)LOCAL * RANKS * TOKENS * row;
    void *base = NULL;
    TRY(ist_mem_alloc(world, received + 16384, IST_MEM_SYMMETRIC, &base));
    b->base = base;
    b->tokens = b->base;
    b->combined = b->base + 4096;
    b->idx = b->base + 8192;
    b->weights = b->base + 9216;
    b->counters = b->base + 10240;
    b->received = b->base + 16384;
    return IST_OK;
}

static ist_status step(ist_ep_handle *handle, buffers *b, ist_stream *stream)
{
    ist_tensor tokens = tensor(b->tokens, IST_BF16, 2, TOKENS, HIDDEN, 0);
    ist_tensor received = tensor(b->received, IST_BF16, 3, LOCAL, RANKS * TOKENS, HIDDEN);
    ist_tensor counters = tensor(b->counters, IST_I32, 1, LOCAL, 0, 0);
    ist_tensor combined = tensor(b->combined, IST_BF16, 2, TOKENS, HIDDEN, 0);
    ist_tensor weights = tensor(b->weights, IST_F32, 2, TOKENS, TOPK, 0);
    ist_ep_dispatch_in in = {.size = sizeof(in), .tokens = &tokens};
    ist_ep_dispatch_out out = {.size = sizeof(out), .tokens = &received};
    ist_ep_layout_info info = {.size = sizeof(info), .expert_counters = &counters};
    ist_ep_combine_in back = {.size = sizeof(back), .tokens = &received};
    ist_ep_combine_out result = {
        .size = sizeof(result), .tokens = &combined, .topk_weights = &weights};
    TRY(ist_ep_dispatch(handle, &in, &out, &info, NULL, stream));
    TRY(ist_ep_combine(handle, &back, &result, NULL, stream));
    return ist_stream_sync(stream, 0);
}

static ist_status fill_and_run(ist_world *world, ist_ep_group *group, ist_stream *stream,
                               buffers *b, uint32_t rounds)
{
    uint16_t rows[TOKENS * HIDDEN], back[TOKENS * HIDDEN];
    int32_t idx[TOKENS * TOPK];
    float weights[TOKENS * TOPK];
    uint32_t rank = ist_world_rank(world);
    for (uint32_t i = 0; i < TOKENS * HIDDEN; ++i) {
        rows[i] = (uint16_t)(0x3f80u + (i * 7u + rank) % 256u);
    }
    for (uint32_t i = 0; i < TOKENS; ++i) {
        idx[2 * i] = (int32_t)((i + rank) % EXPERTS);
        idx[2 * i + 1] = (int32_t)((i + rank + 3) % EXPERTS);
        weights[2 * i] = weights[2 * i + 1] = 0.5f;
    }
    TRY(ist_copy_to_device(stream, b->tokens, rows, sizeof(rows)));
    TRY(ist_copy_to_device(stream, b->idx, idx, sizeof(idx)));
    TRY(ist_copy_to_device(stream, b->weights, weights, sizeof(weights)));
    ist_tensor topk = tensor(b->idx, IST_I32, 2, TOKENS, TOPK, 0);
    ist_ep_handle *handle = NULL;
    TRY(ist_ep_handle_open(group, IST_EP_EXPERT_MAJOR, &topk, stream, &handle));
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < rounds && status == IST_OK; ++i) {
        status = step(handle, b, stream);
    }
    if (status == IST_OK) {
        status = ist_copy_to_host(stream, back, b->combined, sizeof(back));
    }
    if (status == IST_OK && memcmp(rows, back, sizeof(rows)) != 0) {
        status = IST_ERR_INTERNAL;
    }
    ist_status closed = ist_ep_handle_close(handle);
    return status == IST_OK ? closed : status;
}

ist_status small_world_rank(ist_world *world, void *rounds)
{
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    ist_ep_group *group = NULL;
    buffers b = {0};
    TRY(ist_comm_open(world, &(ist_comm_desc){.size = sizeof(ist_comm_desc), .fault_tolerant = 1},
                      &comm));
    TRY(ist_stream_open(world, &stream));
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = EXPERTS,
                              .tokens_per_rank_max = TOKENS,
                              .topk_max = TOPK,
                              .token_bytes_max = HIDDEN * 2u};
    TRY(ist_ep_group_open(comm, &desc, &group));
    TRY(open_buffers(world, &b));
    TRY(fill_and_run(world, group, stream, &b, rounds != NULL ? *(const uint32_t *)rounds : 1u));
    TRY(ist_mem_free(world, b.base));
    TRY(ist_ep_group_close(group));
    TRY(ist_stream_close(stream));
    return ist_comm_close(comm);
}
