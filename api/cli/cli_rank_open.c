/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank opens for the run, and how all of it is closed: communicator, group, handle, windows,
 * device and host memory. Everything that is open is known from the rank's fields.
 */
#include "cli_rank.h"

#include <isthmus/backend.h>
#include <stdlib.h>

/* Memory to allocate: where its address goes, bytes, and for whom it is. */
typedef struct room {
    char **where;
    uint64_t bytes;
    bool windowed;
} room;

ist_status cli_rank_open_memory(cli_rank *rank)
{
    const cli_options *o = rank->options;
    cli_memory *m = &rank->memory;
    uint64_t rows = (uint64_t)rank->block_count * rank->block_rows;
    uint64_t entries = rank->expert_major ? 0 : rows * o->topk;
    const room rooms[] = {
        {&m->tokens, (uint64_t)o->tokens * rank->row_bytes, true},
        {&m->weights, (uint64_t)o->tokens * o->topk * sizeof(float), false},
        {&m->topk, (uint64_t)o->tokens * o->topk * sizeof(int32_t), false},
        {&m->received, rows * rank->row_bytes, false},
        {&m->received_weights, entries * sizeof(float), false},
        {&m->received_ids, entries * sizeof(int32_t), false},
        {&m->counters, rank->block_count * sizeof(int32_t), false},
        {&m->worked, rows * rank->row_bytes, true},
        {&m->combined, ((uint64_t)o->tokens + 1) * rank->row_bytes, false},
        {&m->lost_counts, o->tokens * sizeof(int32_t), false},
    };
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; ++i) {
        void *memory;
        uint64_t bytes =
            rooms[i].bytes < IST_WINDOW_ALIGNMENT ? IST_WINDOW_ALIGNMENT : rooms[i].bytes;
        uint32_t flags = o->windows && rooms[i].windowed ? IST_MEM_SYMMETRIC : IST_MEM_PLAIN;
        IST_RETURN_IF_ERROR(ist_mem_alloc(rank->world, bytes, flags, &memory));
        *rooms[i].where = memory;
    }
    return IST_OK;
}

ist_status cli_rank_open_windows(cli_rank *rank)
{
    uint64_t rows = (uint64_t)rank->block_count * rank->block_rows;
    uint64_t in = (uint64_t)rank->options->tokens * rank->row_bytes;
    uint64_t out = rows * rank->row_bytes;
    if (!rank->options->windows) {
        return IST_OK;
    }
    in = in < IST_WINDOW_ALIGNMENT ? IST_WINDOW_ALIGNMENT : in;
    out = out < IST_WINDOW_ALIGNMENT ? IST_WINDOW_ALIGNMENT : out;
    IST_RETURN_IF_ERROR(ist_window_open(rank->comm, rank->memory.tokens, in, &rank->window_in));
    return ist_window_open(rank->comm, rank->memory.worked, out, &rank->window_out);
}

static ist_status allocate_host(cli_rank *rank)
{
    const cli_options *o = rank->options;
    cli_scratch *s = &rank->scratch;
    size_t entries = (size_t)o->tokens * o->topk;
    size_t numbers = (size_t)o->tokens + rank->block_count + 1;
    s->chunk = malloc(rank->chunk_rows * rank->row_bytes);
    s->row = calloc(1, rank->row_bytes);
    s->other = calloc(1, rank->row_bytes);
    s->sums = calloc(o->hidden, sizeof *s->sums);
    s->ids = calloc(entries, sizeof *s->ids);
    s->weights = calloc(entries, sizeof *s->weights);
    s->numbers = calloc(numbers, sizeof *s->numbers);
    s->mask = calloc(4 * (size_t)rank->word_count, sizeof *s->mask);
    if (s->chunk == NULL || s->row == NULL || s->other == NULL || s->sums == NULL ||
        s->ids == NULL || s->weights == NULL || s->numbers == NULL || s->mask == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for rank %u", rank->rank);
    }
    s->start = s->mask + rank->word_count;
    s->lost = s->start + rank->word_count;
    s->excluded = s->lost + rank->word_count;
    return IST_OK;
}

static void measure(cli_rank *rank)
{
    const cli_options *o = rank->options;
    ep_oracle place = {.rank_count = rank->rank_count, .expert_count = o->experts};
    rank->expert_major = o->layout == IST_EP_EXPERT_MAJOR;
    rank->word_count = IST_MASK_WORDS(rank->rank_count);
    rank->row_bytes = (size_t)o->hidden * ist_dtype_bytes(o->dtype);
    rank->token_count = cli_options_tokens(o, rank->rank, rank->rank_count);
    if (rank->expert_major) {
        rank->block_count = ep_oracle_local_count(&place, rank->rank);
        rank->block_rows = (uint64_t)rank->rank_count * o->tokens;
    } else {
        rank->block_count = rank->rank_count;
        rank->block_rows = o->tokens;
    }
    uint64_t rows = (uint64_t)rank->block_count * rank->block_rows;
    rank->poison_all = rows * rank->row_bytes <= CLI_POISON_BYTES_MAX;
    rank->chunk_rows = (uint32_t)(CLI_CHUNK_BYTES / rank->row_bytes) + 1;
    if (rank->chunk_rows > rank->block_rows + 1) {
        rank->chunk_rows = (uint32_t)rank->block_rows + 1;
    }
}

ist_status cli_rank_open_group(cli_rank *rank)
{
    const cli_options *o = rank->options;
    ist_ep_group_desc desc = {
        .size = sizeof desc,
        .expert_count = o->experts,
        .tokens_per_rank_max = o->tokens,
        .topk_max = o->topk,
        .token_bytes_max = rank->row_bytes,
        .block_count_max = o->blocks,
        .zero_copy = o->windows ? IST_EP_ZERO_COPY_ON : IST_EP_ZERO_COPY_AUTO,
        .enable_mask = 1,
    };
    return ist_ep_group_open(rank->comm, &desc, &rank->group);
}

ist_status cli_rank_open_handle(cli_rank *rank)
{
    return ist_ep_handle_init(rank->group, rank->options->layout, rank->options->topk, NULL, 0,
                              &rank->handle);
}

ist_status cli_rank_open_comm(cli_rank *rank)
{
    ist_comm_desc desc = {
        .size = sizeof desc, .fault_tolerant = 1, .deadline_ns = rank->options->deadline_ns};
    measure(rank);
    rank->dispatch = cli_rank_enqueue_dispatch;
    rank->combine = cli_rank_enqueue_combine;
    IST_RETURN_IF_ERROR(allocate_host(rank));
    IST_RETURN_IF_ERROR(ist_stream_open(rank->world, &rank->stream));
    return ist_comm_open(rank->world, &desc, &rank->comm);
}

ist_status cli_rank_open(cli_rank *rank)
{
    IST_RETURN_IF_ERROR(cli_rank_open_comm(rank));
    IST_RETURN_IF_ERROR(cli_rank_open_memory(rank));
    IST_RETURN_IF_ERROR(cli_rank_open_windows(rank));
    IST_RETURN_IF_ERROR(cli_rank_open_group(rank));
    return cli_rank_open_handle(rank);
}

static void free_host(cli_scratch *scratch)
{
    free(scratch->chunk);
    free(scratch->row);
    free(scratch->other);
    free(scratch->sums);
    free(scratch->ids);
    free(scratch->weights);
    free(scratch->numbers);
    free(scratch->mask);
}

void cli_rank_close(cli_rank *rank)
{
    const cli_memory *m = &rank->memory;
    char *const rooms[] = {m->tokens,           m->weights,      m->topk,     m->received,
                           m->received_weights, m->received_ids, m->counters, m->worked,
                           m->combined,         m->lost_counts};
    free_host(&rank->scratch);
    cli_gather_close(&rank->gather);
    ist_graph_close(rank->dispatch_graph);
    ist_graph_close(rank->combine_graph);
    ist_ep_handle_close(rank->handle);
    ist_ep_group_close(rank->group);
    ist_window_close(rank->window_in);
    ist_window_close(rank->window_out);
    ist_comm_close(rank->comm);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; ++i) {
        ist_mem_free(rank->world, rooms[i]);
    }
    ist_stream_close(rank->stream);
}
