/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collectives of a communicator: opening, what they are, how they fared; reductions of the
 * program; groups of calls.
 */
#include "ist_internal.h"

#include <string.h>

#define OPEN "coll.open"

/* ---- opening and asking ---------------------------------------------------------------------- */

/* A backend without the slots has them not: that is a reason, no error. */
static void read_info(ist_world *world, ist_backend_coll_info *info)
{
    *info = (ist_backend_coll_info){.library = world->backend_name};
    if (!world->has_coll) {
        info->reason = "the backend does not offer native collectives";
    } else if (world->ops.coll_info(world->self, info) < 0) {
        info->reason = "the backend could not be asked for native collectives";
    }
}

static ist_status prepare(ist_comm *comm, ist_coll_state **state)
{
    ist_world *world = comm->object.world;
    ist_backend_coll_info info;
    const ist_backend_caps *caps = NULL;
    IST_RETURN_IF_ERROR(ist_world_caps(world, &caps)); /* how calls may look for alarms */
    IST_RETURN_IF_ERROR(ist_coll_check_mask(comm, OPEN));
    read_info(world, &info);
    if (info.reason != NULL) {
        return ist_fail(world, IST_ERR_UNSUPPORTED, "comm", OPEN,
                        "there are no native collectives here: %s", info.reason);
    }
    *state = ist_alloc(1, sizeof(**state));
    return *state != NULL ? IST_OK : ist_fail_memory(world, "native collectives", OPEN);
}

static ist_status open_on_all(ist_comm *comm)
{
    ist_world *world = comm->object.world;
    ist_status local = world->ops.coll_open(world->self, comm->object.number, comm->deadline_ns);
    ist_status status = ist_comm_exchange_status(comm, local, OPEN);
    if (status < 0 && local == IST_OK) {
        ist_error why;
        ist_error_save(&why);
        (void)world->ops.coll_close(world->self, comm->object.number);
        ist_error_restore(&why);
    }
    return status;
}

ist_status ist_coll_open(ist_comm *comm)
{
    ist_coll_state *state = NULL;
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", OPEN));
    if (comm->coll != NULL) {
        return IST_OK;
    }
    ist_status local = prepare(comm, &state);
    ist_status status = ist_comm_exchange_status(comm, local, OPEN);
    if (status == IST_OK) {
        status = open_on_all(comm);
    }
    if (status < 0) {
        ist_free(state);
        return status;
    }
    comm->coll = state;
    return IST_OK;
}

ist_status ist_coll_query(ist_comm *comm, ist_coll_info *info)
{
    ist_backend_coll_info known;
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "coll.query"));
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, info, "info", "coll.query"));
    IST_RETURN_IF_ERROR(ist_out_check(world, info, "info", "coll.query"));
    read_info(world, &known);
    ist_coll_info full = {.opened = comm->coll != NULL,
                          .library_version = known.library_version,
                          .all_to_all_native = known.all_to_all_native,
                          .library = known.library,
                          .reason = known.reason,
                          .estimate_reason =
                              known.reason != NULL ? known.reason : known.estimate_reason};
    ist_out_write(info, &full, sizeof(full));
    return IST_OK;
}

ist_status ist_coll_status(ist_comm *comm)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "coll.status"));
    ist_world *world = comm->object.world;
    if (comm->coll == NULL) {
        return ist_fail(world, IST_ERR_USAGE, "comm", "coll.status",
                        "comm has no native collectives: ist_coll_open() opens them");
    }
    ist_error why = {.size = sizeof(why)};
    ist_status status = world->ops.coll_status(world->self, comm->object.number, &why);
    if (status < 0 && why.status != IST_OK) {
        ist_error_adopt(&why);
    }
    return status;
}

/* ---- reductions ------------------------------------------------------------------------------ */

static ist_status check_reductions(ist_comm *comm, const char *operation)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", operation));
    if (comm->coll != NULL) {
        return IST_OK;
    }
    return ist_fail(comm->object.world, IST_ERR_USAGE, "comm", operation,
                    "comm has no native collectives: ist_coll_open() opens them, on all ranks");
}

static ist_status find_free(const ist_comm *comm, uint32_t *index)
{
    const ist_coll_state *state = comm->coll;
    uint32_t at = 0;
    while (at < state->scale_count && state->scales[at].dtype != IST_DTYPE_UNSET) {
        ++at;
    }
    if (at == IST_REDUCTIONS_MAX) {
        return ist_fail_value(comm->object.world, IST_ERR_RANGE, "reduction", "reduction.open",
                              IST_REDUCTIONS_MAX, at, "comm has %u open reductions, the most", at);
    }
    *index = at;
    return IST_OK;
}

ist_status ist_reduction_open(ist_comm *comm, ist_dtype dtype, const void *scalar,
                              ist_reduction *reduction)
{
    uint32_t index = 0;
    IST_RETURN_IF_ERROR(check_reductions(comm, "reduction.open"));
    const ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, scalar, "scalar", "reduction.open"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, reduction, "reduction", "reduction.open"));
    if (ist_dtype_bytes(dtype) == 0) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "dtype", "reduction.open", IST_F8E5M2,
                              (uint64_t)dtype, "dtype is %d, no element type", (int)dtype);
    }
    IST_RETURN_IF_ERROR(find_free(comm, &index));
    ist_coll_scale *scale = &comm->coll->scales[index];
    scale->dtype = dtype;
    scale->bits = 0;
    memcpy(&scale->bits, scalar, ist_dtype_bytes(dtype));
    if (index == comm->coll->scale_count) {
        ++comm->coll->scale_count;
    }
    *reduction = (ist_reduction)((uint32_t)IST_REDUCE_PREMUL + index);
    return IST_OK;
}

ist_status ist_reduction_close(ist_comm *comm, ist_reduction reduction)
{
    IST_RETURN_IF_ERROR(check_reductions(comm, "reduction.close"));
    const uint32_t index = (uint32_t)reduction - IST_REDUCE_PREMUL;
    if (index >= comm->coll->scale_count || comm->coll->scales[index].dtype == IST_DTYPE_UNSET) {
        return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, "reduction", "reduction.close",
                              0, (uint64_t)reduction, "reduction is %d, which is not open",
                              (int)reduction);
    }
    comm->coll->scales[index].dtype = IST_DTYPE_UNSET;
    return IST_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

ist_status ist_coll_group_add(ist_world *world, const ist_backend_coll *op)
{
    if (world->coll_count == world->coll_room) {
        uint32_t room = world->coll_room == 0 ? 16u : world->coll_room * 2u;
        ist_backend_coll *grown = ist_alloc(room, sizeof(*grown));
        if (grown == NULL) {
            return ist_fail_memory(world, "a group of collective calls", ist_coll_text(op->kind));
        }
        if (world->coll_count > 0) {
            memcpy(grown, world->coll_ops, world->coll_count * sizeof(*grown));
        }
        ist_free(world->coll_ops);
        world->coll_ops = grown;
        world->coll_room = room;
    }
    world->coll_ops[world->coll_count++] = *op;
    return IST_OK;
}

void ist_coll_group_forget(ist_world *world, uint64_t comm, uint64_t stream)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < world->coll_count; ++i) {
        const ist_backend_coll *op = &world->coll_ops[i];
        if (op->comm != comm && op->stream != stream) {
            world->coll_ops[kept++] = *op;
        }
    }
    if (kept != world->coll_count) {
        ist_error mine; /* closing it is no error */
        ist_error_save(&mine);
        ist_coll_group_refuse(
            world, ist_fail_value(world, IST_ERR_OBJECT, comm != 0 ? "comm" : "stream",
                                  "coll.group_end", 0, world->coll_count - kept,
                                  "%s was closed with %u of its calls in a group under way",
                                  comm != 0 ? "comm" : "stream", world->coll_count - kept));
        ist_error_restore(&mine);
    }
    world->coll_count = kept;
}

void ist_coll_group_refuse(ist_world *world, ist_status status)
{
    if (world->coll_depth != 0 && world->coll_refused == IST_OK) {
        world->coll_refused = status;
        ist_error_save(&world->coll_why);
    }
}

void ist_coll_group_free(ist_world *world)
{
    ist_free(world->coll_ops);
    world->coll_ops = NULL;
    world->coll_count = world->coll_room = 0;
}

ist_status ist_coll_group_begin(ist_world *world)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "coll.group_begin"));
    ++world->coll_depth;
    return IST_OK;
}

static ist_status finish_group(ist_world *world)
{
    ist_status refused = world->coll_refused;
    uint32_t count = world->coll_count;
    world->coll_refused = IST_OK;
    world->coll_count = 0;
    if (refused != IST_OK) {
        ist_error_restore(&world->coll_why);
        return refused;
    }
    return count > 0 ? world->ops.coll_enqueue(world->self, world->coll_ops, count) : IST_OK;
}

ist_status ist_coll_group_end(ist_world *world)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "coll.group_end"));
    if (world->coll_depth == 0) {
        return ist_fail(world, IST_ERR_USAGE, "world", "coll.group_end", "no group was begun");
    }
    return --world->coll_depth == 0 ? finish_group(world) : IST_OK;
}
