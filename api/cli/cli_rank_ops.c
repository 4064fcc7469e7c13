/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueues a step's operations: routing and dispatch, then combine; as one call each, as two halves,
 * or as graphs that are captured at the first step and replayed at the others.
 */
#include "cli_rank.h"

#include <isthmus/backend.h>

static ist_tensor tensor2(ist_dtype dtype, uint64_t rows, uint64_t columns, char *data)
{
    ist_tensor tensor = {.size = sizeof tensor,
                         .dtype = dtype,
                         .dim_count = 2,
                         .dims = {rows, columns},
                         .data = data};
    return tensor;
}

static ist_tensor tensor3(ist_dtype dtype, uint64_t blocks, uint64_t rows, uint64_t columns,
                          char *data)
{
    ist_tensor tensor = {.size = sizeof tensor,
                         .dtype = dtype,
                         .dim_count = 3,
                         .dims = {blocks, rows, columns},
                         .data = data};
    return tensor;
}

static ist_tensor vector(uint64_t count, char *data)
{
    ist_tensor tensor = {
        .size = sizeof tensor, .dtype = IST_I32, .dim_count = 1, .dims = {count}, .data = data};
    return tensor;
}

static void bind_window(ist_tensor *tensor, ist_window *window)
{
    if (window != NULL) {
        tensor->data = NULL;
        tensor->window = window;
    }
}

ist_status cli_rank_route(cli_rank *rank)
{
    ist_tensor topk = tensor2(IST_I32, rank->token_count, rank->options->topk, rank->memory.topk);
    return ist_ep_handle_update(rank->handle, &topk, rank->stream);
}

ist_status cli_rank_dispatch(cli_rank *rank)
{
    const cli_options *o = rank->options;
    const cli_memory *m = &rank->memory;
    bool em = rank->expert_major;
    ist_tensor tokens = tensor2(o->dtype, rank->token_count, o->hidden, m->tokens);
    ist_tensor weights = tensor2(IST_F32, rank->token_count, o->topk, m->weights);
    ist_tensor received =
        tensor3(o->dtype, rank->block_count, rank->block_rows, o->hidden, m->received);
    ist_tensor got_weights =
        tensor3(IST_F32, rank->block_count, rank->block_rows, o->topk, m->received_weights);
    ist_tensor got_ids =
        tensor3(IST_I32, rank->block_count, rank->block_rows, o->topk, m->received_ids);
    ist_tensor counters = vector(rank->block_count, m->counters);
    bind_window(&tokens, rank->window_in);
    ist_ep_dispatch_in in = {sizeof in, 0, &tokens, em ? NULL : &weights};
    ist_ep_dispatch_out out = {sizeof out, 0, &received, em ? NULL : &got_weights,
                               em ? NULL : &got_ids};
    ist_ep_layout_info info = {sizeof info, IST_EP_ID_LOCAL, em ? &counters : NULL,
                               em ? NULL : &counters};
    ist_ep_op_desc desc = {.size = sizeof desc, .send_only = o->staged};
    IST_RETURN_IF_ERROR(ist_ep_dispatch(rank->handle, &in, &out, &info, &desc, rank->stream));
    return o->staged ? ist_ep_complete(rank->handle, rank->stream) : IST_OK;
}

ist_status cli_rank_combine(cli_rank *rank)
{
    const cli_options *o = rank->options;
    const cli_memory *m = &rank->memory;
    ist_tensor worked =
        tensor3(o->dtype, rank->block_count, rank->block_rows, o->hidden, m->worked);
    ist_tensor combined = tensor2(o->dtype, (uint64_t)o->tokens + 1, o->hidden, m->combined);
    ist_tensor weights = tensor2(IST_F32, rank->token_count, o->topk, m->weights);
    ist_tensor lost = vector(rank->token_count, m->lost_counts);
    bind_window(&worked, rank->window_out);
    ist_ep_combine_in in = {sizeof in, 0, &worked};
    ist_ep_combine_out out = {sizeof out, 0, &combined, rank->expert_major ? &weights : NULL,
                              &lost};
    ist_ep_op_desc desc = {.size = sizeof desc, .send_only = o->staged};
    IST_RETURN_IF_ERROR(ist_ep_combine(rank->handle, &in, &out, &desc, rank->stream));
    return o->staged ? ist_ep_complete(rank->handle, rank->stream) : IST_OK;
}

static ist_status route_and_dispatch(cli_rank *rank)
{
    IST_RETURN_IF_ERROR(cli_rank_route(rank));
    return cli_rank_dispatch(rank);
}

/* Captures `enqueue` the first time, then launches what was captured. */
static ist_status replay(cli_rank *rank, cli_enqueue enqueue, ist_graph **graph)
{
    if (*graph == NULL) {
        IST_RETURN_IF_ERROR(ist_graph_begin(rank->stream));
        ist_status status = enqueue(rank);
        ist_status ended = ist_graph_end(rank->stream, graph);
        IST_RETURN_IF_ERROR(status);
        IST_RETURN_IF_ERROR(ended);
    }
    return ist_graph_launch(*graph, rank->stream);
}

ist_status cli_rank_enqueue_dispatch(cli_rank *rank)
{
    return rank->options->graph ? replay(rank, route_and_dispatch, &rank->dispatch_graph)
                                : route_and_dispatch(rank);
}

ist_status cli_rank_enqueue_combine(cli_rank *rank)
{
    return rank->options->graph ? replay(rank, cli_rank_combine, &rank->combine_graph)
                                : cli_rank_combine(rank);
}
