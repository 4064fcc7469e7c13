/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch, combine and complete: all checks, then one launch.
 */
#include "ist_ep_internal.h"

#include <inttypes.h>

#define DISPATCH "ep.dispatch"
#define COMBINE "ep.combine"
#define COMPLETE "ep.complete"

/* Sizes of the structs in their first release. */
#define DISPATCH_IN_BYTES_FIRST 24u
#define DISPATCH_OUT_BYTES_FIRST 32u
#define COMBINE_IN_BYTES_FIRST 16u
#define COMBINE_OUT_BYTES_FIRST 32u
#define LAYOUT_INFO_BYTES_FIRST 24u
#define OP_DESC_BYTES_FIRST 32u

/* ---- tensors --------------------------------------------------------------------------------- */

static ist_status check_dtype(const ist_comm *comm, const ist_tensor *tensor, ist_dtype required,
                              const char *argument, const char *operation)
{
    bool element =
        tensor->dtype == IST_BF16 || tensor->dtype == IST_F16 || tensor->dtype == IST_F32;
    if (required == IST_DTYPE_UNSET ? element : tensor->dtype == required) {
        return IST_OK;
    }
    return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, argument, operation,
                          (uint64_t)required, (uint64_t)tensor->dtype,
                          "%s.dtype is %s, %s is required", argument, ist_dtype_text(tensor->dtype),
                          required == IST_DTYPE_UNSET ? "bf16, f16 or f32"
                                                      : ist_dtype_text(required));
}

ist_status ist_ep_check_tensor(ist_comm *comm, const ist_tensor *tensor,
                               const ist_ep_shape_rule *rule, const char *argument,
                               const char *operation, ist_tensor_place *place)
{
    const ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_tensor_check(comm, tensor, argument, operation, place));
    IST_RETURN_IF_ERROR(check_dtype(comm, tensor, rule->dtype, argument, operation));
    if (tensor->dim_count != rule->dim_count) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, argument, operation, rule->dim_count,
                              tensor->dim_count, "%s has %u dimensions, %u are required", argument,
                              tensor->dim_count, rule->dim_count);
    }
    for (uint32_t i = 0; i < rule->dim_count; ++i) {
        if (rule->dims[i] != IST_EP_ANY && tensor->dims[i] != rule->dims[i]) {
            return ist_fail_value(world, IST_ERR_ARGUMENT, argument, operation, rule->dims[i],
                                  tensor->dims[i],
                                  "%s.dims[%u] is %" PRIu64 ", %" PRIu64 " is required", argument,
                                  i, tensor->dims[i], rule->dims[i]);
        }
    }
    return IST_OK;
}

ist_status ist_ep_check_absent(const ist_comm *comm, const void *tensor, const char *argument,
                               const char *layout, const char *operation)
{
    if (tensor == NULL) {
        return IST_OK;
    }
    return ist_fail(comm->object.world, IST_ERR_ARGUMENT, argument, operation,
                    "%s is set, %s has none", argument, layout);
}

/* The element row of the operands: [.., H] within what the group was opened for. */
static ist_status check_row(const ist_ep_group *group, const ist_tensor *tokens, uint32_t dim,
                            const char *argument, const char *operation, uint64_t *row_bytes)
{
    const ist_world *world = group->object.world;
    uint64_t most = group->geometry.row_bytes_max;
    uint64_t unit = ist_dtype_bytes(tokens->dtype);
    if (tokens->dims[dim] == 0 || tokens->dims[dim] > most / unit) {
        return ist_fail_value(world, IST_ERR_RANGE, argument, operation, most / unit,
                              tokens->dims[dim],
                              "%s.dims[%u] is %" PRIu64 " elements, 1 to %" PRIu64
                              " are required (token_bytes_max %" PRIu64 ")",
                              argument, dim, tokens->dims[dim], most / unit, most);
    }
    *row_bytes = tokens->dims[dim] * unit;
    return IST_OK;
}

/* With zero copy ON, what peers pull must lie in a window. */
static ist_status check_pulled(const ist_ep_group *group, const ist_tensor_place *place,
                               const char *argument, const char *operation)
{
    if (group->zero_copy != IST_EP_ZERO_COPY_ON || place->window_index != 0 || place->bytes == 0 ||
        group->geometry.lsa_size == 1) {
        return IST_OK;
    }
    return ist_fail(group->object.world, IST_ERR_ARGUMENT, argument, operation,
                    "%s is plain memory, the group was opened with zero_copy ON", argument);
}

/* Shape of what dispatch delivers and combine takes. */
static ist_ep_shape_rule received_rule(const ist_ep_handle *handle, uint64_t elements,
                                       ist_dtype dtype)
{
    const ist_ep_geometry *geometry = &handle->group->geometry;
    ist_ep_shape_rule rule = {3, {0, 0, elements}, dtype};
    if (handle->layout == IST_EP_EXPERT_MAJOR) {
        rule.dims[0] = ist_ep_local_of(handle->group, handle->group->comm->rank);
        rule.dims[1] = (uint64_t)geometry->rank_count * geometry->tokens_max;
    } else {
        rule.dims[0] = geometry->rank_count;
        rule.dims[1] = geometry->tokens_max;
    }
    return rule;
}

/* ---- what every operation checks --------------------------------------------------------------- */

static ist_status check_ready(ist_ep_handle *handle, const ist_stream *stream,
                              const char *operation)
{
    ist_ep_group *group = handle->group;
    const ist_world *world = group->object.world;
    IST_RETURN_IF_ERROR(ist_check_comm(group->comm, "handle", operation));
    IST_RETURN_IF_ERROR(ist_check_comm_stream(group->comm, stream, operation));
    IST_RETURN_IF_ERROR(ist_check_comm_usable(group->comm, operation));
    if (!handle->routed) {
        return ist_fail(world, IST_ERR_USAGE, "handle", operation,
                        "the handle has no routing, an update is required first");
    }
    if (handle->pending.set) {
        return ist_fail(world, IST_ERR_USAGE, "handle", operation,
                        "a send_only operation of the handle is still to be completed");
    }
    if (group->pending_count >= group->geometry.slot_count) {
        return ist_fail_value(world, IST_ERR_USAGE, "handle", operation, group->geometry.slot_count,
                              group->pending_count + 1u,
                              "%u operations of the group are in flight, staged_count_max is %u",
                              group->pending_count, group->geometry.slot_count);
    }
    return IST_OK;
}

static ist_status read_op_desc(const ist_ep_handle *handle, const ist_ep_op_desc *desc,
                               const char *operation, ist_ep_op_desc *checked)
{
    const ist_world *world = handle->object.world;
    *checked = (ist_ep_op_desc){0};
    if (desc == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_desc_read(world, desc, OP_DESC_BYTES_FIRST, checked, sizeof(*checked),
                                      "desc", operation));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, checked->reserved, sizeof(checked->reserved),
                                           "desc.reserved", operation));
    if (checked->send_only > 1) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "desc.send_only", operation, 1,
                              checked->send_only, "desc.send_only is %u, 0 or 1 is required",
                              checked->send_only);
    }
    return ist_check_deadline(world, checked->deadline_ns, "desc.deadline_ns", operation);
}

static void fill_op(ist_ep_handle *handle, ist_ep_op op, const ist_ep_op_desc *desc,
                    const ist_tensor *tokens, const ist_tensor_place *place, uint64_t row_bytes,
                    ist_ep_op_args *args)
{
    const ist_ep_group *group = handle->group;
    uint32_t ranks = group->geometry.rank_count;
    args->dev = group->dev;
    args->service = group->comm->service;
    args->geometry = group->geometry;
    args->at = group->at;
    args->in = handle->in;
    args->handle = handle->mem;
    args->record =
        (ist_ep_record_head *)(void *)(handle->report + ist_ep_record_offset(ranks, (uint32_t)op));
    args->deadline_ns = desc->deadline_ns != 0 ? desc->deadline_ns : group->deadline_ns;
    args->row_bytes = row_bytes;
    args->rows = place->address;
    args->rows_offset = place->offset;
    args->rows_window = place->window_index;
    args->halves = IST_EP_SEND | (desc->send_only ? 0u : (uint32_t)IST_EP_RECEIVE);
    args->operation = (uint32_t)op;
    args->layout = (uint32_t)handle->layout;
    args->topk = handle->topk;
    args->topk_inverse = (uint32_t)(((UINT64_C(1) << 32) + handle->topk - 1u) / handle->topk);
    args->dtype = (uint32_t)tokens->dtype;
    args->token_count = handle->token_count;
}

/* The number that the record gets. Replays come in any order, so they leave it as it is. */
static uint64_t issue_number(const ist_ep_handle *handle, const ist_stream *stream)
{
    return ist_stream_capturing(stream) ? 0 : handle->issue_count + 1u;
}

/* Books an operation that has been enqueued. */
static void note_issued(ist_ep_handle *handle, ist_ep_op op, const ist_stream *stream,
                        bool send_only)
{
    ++handle->issue_count;
    if (!ist_stream_capturing(stream)) {
        handle->issued[op] = handle->issue_count;
    }
    handle->pending.set = send_only;
    handle->pending.op = op;
    handle->group->pending_count += send_only;
}

static ist_status launch(ist_ep_handle *handle, const ist_stream *stream, const ist_kernel *kernel,
                         const void *args, size_t args_bytes)
{
    ist_world *world = handle->object.world;
    return world->ops.launch(world->self, stream->object.number, kernel,
                             handle->group->geometry.block_count, args, args_bytes);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

/* Whether the team pulls the rows from a copy. */
static int stages(const ist_ep_op_args *args)
{
    return args->rows_window == 0 && args->geometry.lsa_size > 1u;
}

static ist_status launch_dispatch(ist_ep_handle *handle, const ist_stream *stream,
                                  const ist_ep_dispatch_args *args)
{
    static const ist_kernel *const texts[] = {
        [IST_EP_TEXT_ANY] = &ist_kernel_ep_dispatch,
        [IST_EP_TEXT_BY_EXPERT] = &ist_kernel_ep_dispatch_by_expert,
        [IST_EP_TEXT_BY_RANK] = &ist_kernel_ep_dispatch_by_rank,
    };
    return launch(handle, stream, texts[ist_ep_text_for(&args->op, stages(&args->op))], args,
                  sizeof(*args));
}

typedef struct dispatch_call {
    ist_ep_dispatch_in in;
    ist_ep_dispatch_out out;
    ist_ep_layout_info info;
    ist_ep_op_desc desc;
} dispatch_call;

static ist_status read_dispatch(const ist_ep_handle *handle, const ist_ep_dispatch_in *in,
                                const ist_ep_dispatch_out *out, const ist_ep_layout_info *info,
                                const ist_ep_op_desc *desc, dispatch_call *call)
{
    const ist_world *world = handle->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, in, "in", DISPATCH));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, out, "out", DISPATCH));
    IST_RETURN_IF_ERROR(ist_desc_read(world, in, DISPATCH_IN_BYTES_FIRST, &call->in,
                                      sizeof(call->in), "in", DISPATCH));
    IST_RETURN_IF_ERROR(ist_desc_read(world, out, DISPATCH_OUT_BYTES_FIRST, &call->out,
                                      sizeof(call->out), "out", DISPATCH));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, &call->in.reserved, sizeof(call->in.reserved),
                                           "in.reserved", DISPATCH));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, &call->out.reserved, sizeof(call->out.reserved),
                                           "out.reserved", DISPATCH));
    call->info = (ist_ep_layout_info){0};
    if (info != NULL) {
        IST_RETURN_IF_ERROR(ist_desc_read(world, info, LAYOUT_INFO_BYTES_FIRST, &call->info,
                                          sizeof(call->info), "info", DISPATCH));
    }
    if ((uint32_t)call->info.id_kind > IST_EP_ID_GLOBAL) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "info.id_kind", DISPATCH, IST_EP_ID_GLOBAL,
                              (uint64_t)call->info.id_kind,
                              "info.id_kind is %d, AUTO, LOCAL or GLOBAL is required",
                              (int)call->info.id_kind);
    }
    return read_op_desc(handle, desc, DISPATCH, &call->desc);
}

static ist_status check_by_expert(ist_ep_handle *handle, const dispatch_call *call,
                                  ist_ep_dispatch_args *args)
{
    ist_comm *comm = handle->group->comm;
    ist_tensor_place counters;
    ist_ep_shape_rule rule = {1, {ist_ep_local_of(handle->group, comm->rank)}, IST_I32};
    IST_RETURN_IF_ERROR(ist_ep_check_absent(comm, call->in.topk_weights, "in.topk_weights",
                                            "EXPERT_MAJOR", DISPATCH));
    IST_RETURN_IF_ERROR(ist_ep_check_absent(comm, call->out.topk_weights, "out.topk_weights",
                                            "EXPERT_MAJOR", DISPATCH));
    IST_RETURN_IF_ERROR(
        ist_ep_check_absent(comm, call->out.topk_idx, "out.topk_idx", "EXPERT_MAJOR", DISPATCH));
    IST_RETURN_IF_ERROR(ist_ep_check_absent(comm, call->info.rank_counters, "info.rank_counters",
                                            "EXPERT_MAJOR", DISPATCH));
    IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->info.expert_counters, &rule,
                                            "info.expert_counters", DISPATCH, &counters));
    args->counters = counters.address;
    return IST_OK;
}

static ist_status check_by_rank(ist_ep_handle *handle, const dispatch_call *call,
                                ist_ep_dispatch_args *args)
{
    ist_comm *comm = handle->group->comm;
    const ist_ep_geometry *geometry = &handle->group->geometry;
    ist_tensor_place weights, out_weights, out_idx, counters = {0};
    ist_ep_shape_rule sent = {2, {handle->token_count, handle->topk}, IST_F32};
    ist_ep_shape_rule received = {
        3, {geometry->rank_count, geometry->tokens_max, handle->topk}, IST_F32};
    ist_ep_shape_rule ranks = {1, {geometry->rank_count}, IST_I32};
    IST_RETURN_IF_ERROR(ist_ep_check_absent(comm, call->info.expert_counters,
                                            "info.expert_counters", "RANK_MAJOR", DISPATCH));
    IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->in.topk_weights, &sent, "in.topk_weights",
                                            DISPATCH, &weights));
    IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->out.topk_weights, &received,
                                            "out.topk_weights", DISPATCH, &out_weights));
    received.dtype = IST_I32;
    IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->out.topk_idx, &received, "out.topk_idx",
                                            DISPATCH, &out_idx));
    if (call->info.rank_counters != NULL) {
        IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->info.rank_counters, &ranks,
                                                "info.rank_counters", DISPATCH, &counters));
    }
    args->weights = weights.address;
    args->out_weights = out_weights.address;
    args->out_idx = out_idx.address;
    args->counters = counters.address;
    args->id_kind = call->info.id_kind == IST_EP_ID_GLOBAL ? IST_EP_ID_GLOBAL : IST_EP_ID_LOCAL;
    return IST_OK;
}

static ist_status check_dispatch(ist_ep_handle *handle, const dispatch_call *call,
                                 ist_ep_dispatch_args *args)
{
    ist_comm *comm = handle->group->comm;
    ist_tensor_place tokens, out;
    uint64_t row_bytes = 0;
    ist_ep_shape_rule sent = {2, {handle->token_count, IST_EP_ANY}, IST_DTYPE_UNSET};
    IST_RETURN_IF_ERROR(
        ist_ep_check_tensor(comm, call->in.tokens, &sent, "in.tokens", DISPATCH, &tokens));
    IST_RETURN_IF_ERROR(
        check_row(handle->group, call->in.tokens, 1, "in.tokens", DISPATCH, &row_bytes));
    IST_RETURN_IF_ERROR(check_pulled(handle->group, &tokens, "in.tokens", DISPATCH));
    ist_ep_shape_rule received =
        received_rule(handle, call->in.tokens->dims[1], call->in.tokens->dtype);
    IST_RETURN_IF_ERROR(
        ist_ep_check_tensor(comm, call->out.tokens, &received, "out.tokens", DISPATCH, &out));
    IST_RETURN_IF_ERROR(handle->layout == IST_EP_EXPERT_MAJOR ? check_by_expert(handle, call, args)
                                                              : check_by_rank(handle, call, args));
    args->out = out.address;
    fill_op(handle, IST_EP_OP_DISPATCH, &call->desc, call->in.tokens, &tokens, row_bytes,
            &args->op);
    return IST_OK;
}

ist_status ist_ep_dispatch(ist_ep_handle *handle, const ist_ep_dispatch_in *in,
                           const ist_ep_dispatch_out *out, const ist_ep_layout_info *info,
                           const ist_ep_op_desc *desc, ist_stream *stream)
{
    dispatch_call call;
    IST_RETURN_IF_ERROR(ist_check_ep_handle(handle, DISPATCH));
    IST_RETURN_IF_ERROR(check_ready(handle, stream, DISPATCH));
    IST_RETURN_IF_ERROR(read_dispatch(handle, in, out, info, desc, &call));
    ist_ep_dispatch_args args = {0};
    IST_RETURN_IF_ERROR(check_dispatch(handle, &call, &args));
    args.op.issue = issue_number(handle, stream);
    IST_RETURN_IF_ERROR(launch_dispatch(handle, stream, &args));
    note_issued(handle, IST_EP_OP_DISPATCH, stream, call.desc.send_only != 0);
    handle->pending.args.dispatch = args;
    handle->dispatched = true;
    return IST_OK;
}

/* ---- combine --------------------------------------------------------------------------------- */

typedef struct combine_call {
    ist_ep_combine_in in;
    ist_ep_combine_out out;
    ist_ep_op_desc desc;
} combine_call;

static ist_status read_combine(const ist_ep_handle *handle, const ist_ep_combine_in *in,
                               const ist_ep_combine_out *out, const ist_ep_op_desc *desc,
                               combine_call *call)
{
    const ist_world *world = handle->object.world;
    if (!handle->dispatched) {
        return ist_fail(world, IST_ERR_USAGE, "handle", COMBINE,
                        "nothing was dispatched since the last update");
    }
    IST_RETURN_IF_ERROR(ist_check_pointer(world, in, "in", COMBINE));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, out, "out", COMBINE));
    IST_RETURN_IF_ERROR(ist_desc_read(world, in, COMBINE_IN_BYTES_FIRST, &call->in,
                                      sizeof(call->in), "in", COMBINE));
    IST_RETURN_IF_ERROR(ist_desc_read(world, out, COMBINE_OUT_BYTES_FIRST, &call->out,
                                      sizeof(call->out), "out", COMBINE));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, &call->in.reserved, sizeof(call->in.reserved),
                                           "in.reserved", COMBINE));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, &call->out.reserved, sizeof(call->out.reserved),
                                           "out.reserved", COMBINE));
    return read_op_desc(handle, desc, COMBINE, &call->desc);
}

static ist_status check_combine_extras(ist_ep_handle *handle, const combine_call *call,
                                       ist_ep_combine_args *args)
{
    ist_comm *comm = handle->group->comm;
    ist_tensor_place weights = {0}, lost = {0};
    ist_ep_shape_rule weight_rule = {2, {handle->token_count, handle->topk}, IST_F32};
    ist_ep_shape_rule lost_rule = {1, {handle->token_count}, IST_I32};
    if (handle->layout == IST_EP_EXPERT_MAJOR) {
        IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->out.topk_weights, &weight_rule,
                                                "out.topk_weights", COMBINE, &weights));
    } else {
        IST_RETURN_IF_ERROR(ist_ep_check_absent(comm, call->out.topk_weights, "out.topk_weights",
                                                "RANK_MAJOR", COMBINE));
    }
    if (call->out.lost_counts != NULL) {
        IST_RETURN_IF_ERROR(ist_ep_check_tensor(comm, call->out.lost_counts, &lost_rule,
                                                "out.lost_counts", COMBINE, &lost));
    }
    args->weights = weights.address;
    args->lost_counts = lost.address;
    return IST_OK;
}

static ist_status check_room(const ist_ep_handle *handle, const ist_tensor *tokens)
{
    if (tokens->dims[0] >= handle->token_count) {
        return IST_OK;
    }
    return ist_fail_value(handle->object.world, IST_ERR_ARGUMENT, "out.tokens", COMBINE,
                          handle->token_count, tokens->dims[0],
                          "out.tokens.dims[0] is %" PRIu64 ", at least %u is required",
                          tokens->dims[0], handle->token_count);
}

/* Whether each rank sums its own rows, so that nobody pulls any. */
static bool is_reduced(const ist_ep_handle *handle)
{
    return handle->layout == IST_EP_EXPERT_MAJOR && handle->group->geometry.reduced != 0;
}

static ist_status check_combine(ist_ep_handle *handle, const combine_call *call,
                                ist_ep_combine_args *args)
{
    ist_comm *comm = handle->group->comm;
    ist_tensor_place tokens, out;
    uint64_t row_bytes = 0;
    ist_ep_shape_rule received = received_rule(handle, IST_EP_ANY, IST_DTYPE_UNSET);
    IST_RETURN_IF_ERROR(
        ist_ep_check_tensor(comm, call->in.tokens, &received, "in.tokens", COMBINE, &tokens));
    IST_RETURN_IF_ERROR(
        check_row(handle->group, call->in.tokens, 2, "in.tokens", COMBINE, &row_bytes));
    if (!is_reduced(handle)) {
        IST_RETURN_IF_ERROR(check_pulled(handle->group, &tokens, "in.tokens", COMBINE));
    }
    ist_ep_shape_rule home = {2, {IST_EP_ANY, call->in.tokens->dims[2]}, call->in.tokens->dtype};
    IST_RETURN_IF_ERROR(
        ist_ep_check_tensor(comm, call->out.tokens, &home, "out.tokens", COMBINE, &out));
    IST_RETURN_IF_ERROR(check_room(handle, call->out.tokens));
    IST_RETURN_IF_ERROR(check_combine_extras(handle, call, args));
    args->out = out.address;
    fill_op(handle, IST_EP_OP_COMBINE, &call->desc, call->in.tokens, &tokens, row_bytes, &args->op);
    return IST_OK;
}

static ist_status launch_combine(ist_ep_handle *handle, const ist_stream *stream,
                                 const ist_ep_combine_args *args)
{
    static const ist_kernel *const texts[] = {
        [IST_EP_TEXT_ANY] = &ist_kernel_ep_combine,
        [IST_EP_TEXT_BY_EXPERT] = &ist_kernel_ep_combine_by_expert,
        [IST_EP_TEXT_BY_RANK] = &ist_kernel_ep_combine_by_rank,
    };
    static const ist_kernel *const reduced[] = {
        [IST_EP_TEXT_ANY] = &ist_kernel_ep_combine_reduced,
        [IST_EP_TEXT_BY_EXPERT] = &ist_kernel_ep_combine_reduced_by_expert,
        [IST_EP_TEXT_BY_RANK] = &ist_kernel_ep_combine_reduced,
    };
    const ist_kernel *kernel = is_reduced(handle)
                                   ? reduced[ist_ep_text_for(&args->op, 0)]
                                   : texts[ist_ep_text_for(&args->op, stages(&args->op))];
    return launch(handle, stream, kernel, args, sizeof(*args));
}

ist_status ist_ep_combine(ist_ep_handle *handle, const ist_ep_combine_in *in,
                          const ist_ep_combine_out *out, const ist_ep_op_desc *desc,
                          ist_stream *stream)
{
    combine_call call;
    IST_RETURN_IF_ERROR(ist_check_ep_handle(handle, COMBINE));
    IST_RETURN_IF_ERROR(check_ready(handle, stream, COMBINE));
    IST_RETURN_IF_ERROR(read_combine(handle, in, out, desc, &call));
    ist_ep_combine_args args = {0};
    IST_RETURN_IF_ERROR(check_combine(handle, &call, &args));
    args.op.issue = issue_number(handle, stream);
    IST_RETURN_IF_ERROR(launch_combine(handle, stream, &args));
    note_issued(handle, IST_EP_OP_COMBINE, stream, call.desc.send_only != 0);
    handle->pending.args.combine = args;
    return IST_OK;
}

/* ---- complete -------------------------------------------------------------------------------- */

ist_status ist_ep_complete(ist_ep_handle *handle, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_ep_handle(handle, COMPLETE));
    ist_ep_group *group = handle->group;
    IST_RETURN_IF_ERROR(ist_check_comm(group->comm, "handle", COMPLETE));
    IST_RETURN_IF_ERROR(ist_check_comm_stream(group->comm, stream, COMPLETE));
    ist_ep_pending *pending = &handle->pending;
    if (!pending->set) {
        return IST_OK;
    }
    if (pending->op == IST_EP_OP_DISPATCH) {
        pending->args.dispatch.op.halves = IST_EP_RECEIVE;
        IST_RETURN_IF_ERROR(launch_dispatch(handle, stream, &pending->args.dispatch));
    } else {
        pending->args.combine.op.halves = IST_EP_RECEIVE;
        IST_RETURN_IF_ERROR(launch_combine(handle, stream, &pending->args.combine));
    }
    pending->set = false;
    --group->pending_count;
    return IST_OK;
}
