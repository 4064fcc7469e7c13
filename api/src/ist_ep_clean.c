/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clean of a group: the communicator's clean between the two kernels that realign the group's
 * numbers, slots and flags.
 */
#include "ist_ep_internal.h"

#define CLEAN "ep.clean"
/* Two waits of a rank for a rank, each with patience for one that waits itself. */
#define CLEAN_WAITS 16u

static ist_status check_clean(ist_ep_group *group, const ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, CLEAN));
    IST_RETURN_IF_ERROR(ist_check_comm(group->comm, "group", CLEAN));
    if (group->comm->fault_tolerant == 0) {
        return ist_fail(group->object.world, IST_ERR_USAGE, "group", CLEAN,
                        "the group's communicator is not fault tolerant, so it has no mask");
    }
    IST_RETURN_IF_ERROR(ist_check_comm_stream(group->comm, stream, CLEAN));
    return ist_check_not_capturing(stream, CLEAN);
}

static ist_status run(const ist_ep_group *group, const ist_stream *stream, const ist_kernel *kernel)
{
    ist_world *world = group->object.world;
    ist_ep_clean_args args = {0};
    args.dev = group->dev;
    args.service = group->comm->service;
    args.geometry = group->geometry;
    args.at = group->at;
    args.deadline_ns = group->deadline_ns;
    uint64_t bound = 0;
    if (__builtin_mul_overflow(group->deadline_ns, CLEAN_WAITS, &bound) ||
        __builtin_add_overflow(bound, world->deadline_ns, &bound)) {
        bound = UINT64_MAX;
    }
    IST_RETURN_IF_ERROR(
        world->ops.launch(world->self, stream->object.number, kernel, 1, &args, sizeof(args)));
    return world->ops.stream_sync(world->self, stream->object.number, bound);
}

/* The record of a staged operation that will never be completed. */
static ist_status drop_pending(ist_ep_handle *handle)
{
    ist_world *world = handle->object.world;
    uint32_t ranks = handle->group->geometry.rank_count;
    uint8_t *at = handle->report + ist_ep_record_offset(ranks, (uint32_t)handle->pending.op);
    uint32_t words = IST_MASK_WORDS(ranks);
    uint64_t lost[IST_EP_RANKS_MAX / 64u];
    uint64_t mix = 0;
    ist_ep_record_head head;
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, at, &head, sizeof(head)));
    IST_RETURN_IF_ERROR(
        world->ops.mem_peek(world->self, at + sizeof(head), lost, words * sizeof(lost[0])));
    for (uint32_t w = 0; w < words; ++w) {
        mix += ist_ep_record_mix(lost[w], w);
    }
    head.done = head.started;
    head.issue = handle->issue_count;
    head.status = IST_ERR_RANK_LOST;
    head.complete = 0;
    head.check = ist_ep_record_check(&head, mix);
    handle->pending.set = false;
    --handle->group->pending_count;
    return world->ops.mem_poke(world->self, at, &head, sizeof(head));
}

static ist_status drop_all_pending(ist_ep_group *group)
{
    for (ist_ep_handle *handle = group->handles; handle != NULL; handle = handle->next) {
        if (handle->pending.set) {
            IST_RETURN_IF_ERROR(drop_pending(handle));
        }
        handle->dispatched = false;
    }
    return IST_OK;
}

/* What the realignment itself may have changed. */
static ist_status judge_mask(const ist_ep_group *group)
{
    ist_world *world = group->object.world;
    const ist_dev_mask *mask = group->comm->mask;
    ist_dev_mask head;
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, mask, &head, sizeof(head)));
    if (head.evicted != 0) {
        return ist_fail_value(world, IST_ERR_EVICTED, "group", CLEAN, 0, head.evicted - 1u,
                              "the peers went on without this rank");
    }
    for (uint32_t i = 0; i < IST_MASK_WORDS(group->comm->rank_count); ++i) {
        uint32_t left = group->comm->rank_count - 64u * i;
        uint64_t all = left >= 64u ? UINT64_MAX : (UINT64_C(1) << left) - 1u;
        uint64_t word = 0;
        IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, &mask->words[i], &word, sizeof(word)));
        if (word != all) {
            return IST_INCOMPLETE;
        }
    }
    return IST_OK;
}

ist_status ist_ep_clean(ist_ep_group *group, ist_stream *stream)
{
    uint64_t payload[4] = {0};
    IST_RETURN_IF_ERROR(check_clean(group, stream));
    IST_RETURN_IF_ERROR(run(group, stream, &ist_kernel_ep_clean_begin));
    IST_RETURN_IF_ERROR(ist_comm_clean_with(group->comm, stream, payload, CLEAN));
    IST_RETURN_IF_ERROR(drop_all_pending(group));
    IST_RETURN_IF_ERROR(run(group, stream, &ist_kernel_ep_clean));
    return judge_mask(group);
}
