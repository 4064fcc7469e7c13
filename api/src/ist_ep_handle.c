/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles: memory for the routing of one batch, and the routing itself. Local; only the check of
 * the ids waits for the stream.
 */
#include "ist_ep_internal.h"

#include <inttypes.h>

#define INIT "ep.handle_init"
#define UPDATE "ep.handle_update"

static ist_status close_handle(void *object)
{
    return ist_ep_handle_close(object);
}

/* ---- init ------------------------------------------------------------------------------------ */

static ist_status check_layout(const ist_ep_group *group, ist_ep_layout layout,
                               const char *operation)
{
    if (layout == IST_EP_EXPERT_MAJOR || layout == IST_EP_RANK_MAJOR) {
        return IST_OK;
    }
    return ist_fail_value(group->object.world, IST_ERR_ARGUMENT, "layout", operation,
                          IST_EP_EXPERT_MAJOR, (uint64_t)layout,
                          "layout is %d, EXPERT_MAJOR (1) or RANK_MAJOR (2) is required",
                          (int)layout);
}

static ist_status check_topk(const ist_ep_group *group, uint64_t topk, const char *operation)
{
    uint32_t most = group->geometry.topk_max;
    if (topk >= 1 && topk <= most) {
        return IST_OK;
    }
    return ist_fail_value(group->object.world, IST_ERR_RANGE, "topk", operation, most, topk,
                          "topk is %" PRIu64 ", 1 to %u is required", topk, most);
}

ist_status ist_ep_handle_bytes(ist_ep_group *group, ist_ep_layout layout, uint32_t topk,
                               uint64_t *bytes)
{
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, "ep.handle_bytes"));
    IST_RETURN_IF_ERROR(ist_check_pointer(group->object.world, bytes, "bytes", "ep.handle_bytes"));
    IST_RETURN_IF_ERROR(check_layout(group, layout, "ep.handle_bytes"));
    IST_RETURN_IF_ERROR(check_topk(group, topk, "ep.handle_bytes"));
    *bytes = ist_ep_handle_map_of(&group->geometry, &group->at, topk).bytes;
    return IST_OK;
}

static ist_status check_mem(ist_ep_group *group, const void *mem, uint64_t mem_bytes,
                            uint64_t needed)
{
    ist_world *world = group->object.world;
    if (mem == NULL) {
        return IST_OK;
    }
    if (mem_bytes < needed) {
        return ist_fail_value(world, IST_ERR_SIZE, "mem_bytes", INIT, needed, mem_bytes,
                              "mem_bytes is %" PRIu64 ", %" PRIu64 " is required", mem_bytes,
                              needed);
    }
    uint64_t beyond = (uintptr_t)mem % IST_WINDOW_ALIGNMENT;
    if (beyond != 0) {
        return ist_fail_value(world, IST_ERR_ALIGNMENT, "mem", INIT, IST_WINDOW_ALIGNMENT, beyond,
                              "mem lies %" PRIu64 " bytes behind a multiple of %u", beyond,
                              IST_WINDOW_ALIGNMENT);
    }
    return ist_memory_check(world, mem, mem_bytes, 0, "mem", INIT);
}

static ist_status take_mem(ist_ep_group *group, uint64_t bytes, void **mem)
{
    ist_world *world = group->object.world;
    if (group->alloc.alloc == NULL) {
        return world->ops.mem_alloc(world->self, bytes, IST_MEM_PLAIN, mem);
    }
    ist_status status = group->alloc.alloc(mem, bytes, group->alloc.context);
    if (status < 0 || *mem == NULL) {
        return ist_fail(world, status < 0 ? status : IST_ERR_MEMORY, "desc.alloc", INIT,
                        "the allocation hook gave no memory for %" PRIu64 " bytes", bytes);
    }
    return IST_OK;
}

static ist_status give_mem(ist_ep_group *group, void *mem)
{
    ist_world *world = group->object.world;
    return group->alloc.free != NULL ? group->alloc.free(mem, group->alloc.context)
                                     : world->ops.mem_free(world->self, mem);
}

/* Host-visible, so that records can be read while streams run; zeros mean "never issued". */
static ist_status open_report(ist_ep_group *group, uint8_t **report)
{
    ist_world *world = group->object.world;
    size_t bytes = ist_ep_report_bytes(group->geometry.rank_count);
    void *zeros = ist_alloc(1, bytes);
    void *memory = NULL;
    if (zeros == NULL) {
        return ist_fail_memory(world, "a report", INIT);
    }
    ist_status status = world->ops.mem_alloc(world->self, bytes, IST_MEM_HOST_VISIBLE, &memory);
    if (status == IST_OK) {
        status = world->ops.mem_poke(world->self, memory, zeros, bytes);
    }
    ist_free(zeros);
    if (status < 0) {
        if (memory != NULL) {
            ist_error why;
            ist_error_save(&why);
            world->ops.mem_free(world->self, memory);
            ist_error_restore(&why);
        }
        return status;
    }
    *report = memory;
    return IST_OK;
}

static ist_status open_memory(ist_ep_handle *opening, void *mem)
{
    ist_ep_group *group = opening->group;
    void *taken = mem;
    opening->mem_owned = mem == NULL;
    if (mem == NULL) {
        IST_RETURN_IF_ERROR(take_mem(group, opening->in.bytes, &taken));
    }
    opening->mem = taken;
    ist_status status = open_report(group, &opening->report);
    if (status < 0 && opening->mem_owned) {
        ist_error why;
        ist_error_save(&why);
        give_mem(group, taken);
        ist_error_restore(&why);
    }
    return status;
}

/* The checks of init; `operation` is not always init. */
static ist_status check_init(ist_ep_group *group, ist_ep_layout layout, uint64_t topk,
                             const void *handle, const char *operation)
{
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, operation));
    IST_RETURN_IF_ERROR(ist_check_comm(group->comm, "group", operation));
    IST_RETURN_IF_ERROR(ist_check_pointer(group->object.world, handle, "handle", operation));
    IST_RETURN_IF_ERROR(check_layout(group, layout, operation));
    return check_topk(group, topk, operation);
}

ist_status ist_ep_handle_init(ist_ep_group *group, ist_ep_layout layout, uint32_t topk, void *mem,
                              uint64_t mem_bytes, ist_ep_handle **handle)
{
    IST_RETURN_IF_ERROR(check_init(group, layout, topk, handle, INIT));
    ist_ep_handle_map in = ist_ep_handle_map_of(&group->geometry, &group->at, topk);
    IST_RETURN_IF_ERROR(check_mem(group, mem, mem_bytes, in.bytes));
    ist_ep_handle *opening = ist_alloc(1, sizeof(*opening));
    if (opening == NULL) {
        return ist_fail_memory(group->object.world, "a handle", INIT);
    }
    opening->group = group;
    opening->layout = layout;
    opening->topk = topk;
    opening->in = in;
    ist_status status = open_memory(opening, mem);
    if (status < 0) {
        ist_free(opening);
        return status;
    }
    ist_object_open(opening, IST_KIND_EP_HANDLE, group->object.world, 0, close_handle);
    opening->next = group->handles;
    group->handles = opening;
    *handle = opening;
    return IST_OK;
}

/* ---- update ---------------------------------------------------------------------------------- */

static ist_status check_ids(ist_ep_handle *handle, const ist_tensor *topk_idx,
                            ist_tensor_place *place)
{
    ist_ep_group *group = handle->group;
    const ist_world *world = group->object.world;
    IST_RETURN_IF_ERROR(ist_tensor_check(group->comm, topk_idx, "topk_idx", UPDATE, place));
    if (topk_idx->dtype != IST_I32 && topk_idx->dtype != IST_I64) {
        return ist_fail_value(
            world, IST_ERR_ARGUMENT, "topk_idx", UPDATE, IST_I32, (uint64_t)topk_idx->dtype,
            "topk_idx.dtype is %s, i32 or i64 is required", ist_dtype_text(topk_idx->dtype));
    }
    if (topk_idx->dim_count != 2 || topk_idx->dims[1] != handle->topk) {
        return ist_fail_value(
            world, IST_ERR_ARGUMENT, "topk_idx", UPDATE, handle->topk,
            topk_idx->dims[topk_idx->dim_count - 1u],
            "topk_idx has %u dimensions, the last of %" PRIu64 "; [N, %u] is required",
            topk_idx->dim_count, topk_idx->dims[topk_idx->dim_count - 1u], handle->topk);
    }
    uint32_t most = group->geometry.tokens_max;
    if (topk_idx->dims[0] > most) {
        return ist_fail_value(world, IST_ERR_RANGE, "topk_idx", UPDATE, most, topk_idx->dims[0],
                              "topk_idx has %" PRIu64 " tokens, at most %u are possible",
                              topk_idx->dims[0], most);
    }
    return IST_OK;
}

static ist_status check_update(ist_ep_handle *handle, const ist_stream *stream)
{
    ist_ep_group *group = handle->group;
    IST_RETURN_IF_ERROR(ist_check_comm(group->comm, "handle", UPDATE));
    IST_RETURN_IF_ERROR(ist_check_comm_stream(group->comm, stream, UPDATE));
    if (handle->pending.set) {
        return ist_fail(group->object.world, IST_ERR_USAGE, "handle", UPDATE,
                        "an operation of the handle is still to be completed");
    }
    return group->check == IST_EP_CHECK_SYNC ? ist_check_not_capturing(stream, UPDATE) : IST_OK;
}

static ist_status judge_route(const ist_ep_handle *handle, const ist_ep_route_report *report)
{
    ist_error details = ist_details(handle->object.world, "topk_idx", UPDATE);
    details.expected = handle->group->geometry.expert_count;
    details.observed = (uint64_t)report->id;
    if (report->status == IST_ERR_ARGUMENT) {
        return ist_raise(IST_ERR_ARGUMENT, &details,
                         "topk_idx of token %u, k %u is %" PRId64
                         ", which the token already has at a lower k",
                         report->token, report->k, report->id);
    }
    return ist_raise((ist_status)report->status, &details,
                     "topk_idx of token %u, k %u is %" PRId64 ", -1 to %u is required",
                     report->token, report->k, report->id,
                     handle->group->geometry.expert_count - 1u);
}

/* Waits for the routing and reads what it found. */
static ist_status await_route(ist_ep_handle *handle, const ist_stream *stream)
{
    ist_world *world = handle->object.world;
    ist_ep_route_report report;
    IST_RETURN_IF_ERROR(
        world->ops.stream_sync(world->self, stream->object.number, ist_host_deadline(world)));
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, handle->report, &report, sizeof(report)));
    if (report.update != handle->update_count) {
        return ist_fail_value(world, IST_ERR_DEVICE, "handle", UPDATE, handle->update_count,
                              report.update, "the routing ended without a result");
    }
    return report.status == IST_OK ? IST_OK : judge_route(handle, &report);
}

static ist_status launch_route(ist_ep_handle *handle, const ist_tensor *topk_idx,
                               const ist_tensor_place *place, const ist_stream *stream)
{
    ist_ep_group *group = handle->group;
    ist_world *world = group->object.world;
    ist_ep_route_args args = {0};
    args.dev = group->dev;
    args.geometry = group->geometry;
    args.in = handle->in;
    args.handle = handle->mem;
    args.report = (ist_ep_route_report *)(void *)handle->report;
    args.update = ++handle->update_count;
    args.topk_idx = place->address;
    args.topk_dtype = (uint32_t)topk_idx->dtype;
    args.token_count = (uint32_t)topk_idx->dims[0];
    args.topk = handle->topk;
    args.layout = (uint32_t)handle->layout;
    return world->ops.launch(world->self, stream->object.number, &ist_kernel_ep_route, 1, &args,
                             sizeof(args));
}

ist_status ist_ep_handle_update(ist_ep_handle *handle, const ist_tensor *topk_idx,
                                ist_stream *stream)
{
    ist_tensor_place place;
    IST_RETURN_IF_ERROR(ist_check_ep_handle(handle, UPDATE));
    IST_RETURN_IF_ERROR(check_update(handle, stream));
    IST_RETURN_IF_ERROR(check_ids(handle, topk_idx, &place));
    handle->routed = false;
    handle->dispatched = false;
    IST_RETURN_IF_ERROR(launch_route(handle, topk_idx, &place, stream));
    if (handle->group->check != IST_EP_CHECK_ASYNC && !ist_stream_capturing(stream)) {
        IST_RETURN_IF_ERROR(await_route(handle, stream));
    }
    handle->token_count = (uint32_t)topk_idx->dims[0];
    handle->routed = true;
    return IST_OK;
}

/* ---- open and close --------------------------------------------------------------------------- */

ist_status ist_ep_handle_open(ist_ep_group *group, ist_ep_layout layout, const ist_tensor *topk_idx,
                              ist_stream *stream, ist_ep_handle **handle)
{
    const char *operation = "ep.handle_open";
    ist_tensor_place place;
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, operation));
    IST_RETURN_IF_ERROR(ist_tensor_check(group->comm, topk_idx, "topk_idx", operation, &place));
    if (topk_idx->dim_count != 2) {
        return ist_fail_value(group->object.world, IST_ERR_ARGUMENT, "topk_idx", operation, 2,
                              topk_idx->dim_count, "topk_idx has %u dimensions, [N, K] is required",
                              topk_idx->dim_count);
    }
    IST_RETURN_IF_ERROR(check_init(group, layout, topk_idx->dims[1], handle, operation));
    ist_ep_handle *opened = NULL;
    IST_RETURN_IF_ERROR(
        ist_ep_handle_init(group, layout, (uint32_t)topk_idx->dims[1], NULL, 0, &opened));
    ist_status status = ist_ep_handle_update(opened, topk_idx, stream);
    if (status < 0) {
        ist_error why;
        ist_error_save(&why);
        ist_ep_handle_close(opened);
        ist_error_restore(&why);
        return status;
    }
    *handle = opened;
    return IST_OK;
}

static void unlink_handle(ist_ep_handle *handle)
{
    ist_ep_handle **link = &handle->group->handles;
    while (*link != handle) {
        link = &(*link)->next;
    }
    *link = handle->next;
}

ist_status ist_ep_handle_close(ist_ep_handle *handle)
{
    if (handle == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_ep_handle(handle, "ep.handle_close"));
    ist_world *world = handle->object.world;
    ist_ep_group *group = handle->group;
    ist_status status = world->ops.mem_free(world->self, handle->report);
    if (handle->mem_owned) {
        ist_status freed = give_mem(group, handle->mem);
        status = status < 0 ? status : freed;
    }
    if (handle->pending.set) {
        --group->pending_count;
    }
    unlink_handle(handle);
    ist_object_close(handle);
    return status;
}
