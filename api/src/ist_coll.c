/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collective calls: arguments are checked here, then the call goes to the backend or into the
 * group under way. The good path is short: it is what the layer costs over the library below.
 */
#include "ist_internal.h"

#include <inttypes.h>

#define BYTES_MAX (UINT64_C(1) << 46)

static const char *const texts[] = {
    [IST_COLL_ALL_REDUCE] = "all_reduce",
    [IST_COLL_BROADCAST] = "broadcast",
    [IST_COLL_REDUCE] = "reduce",
    [IST_COLL_ALL_GATHER] = "all_gather",
    [IST_COLL_REDUCE_SCATTER] = "reduce_scatter",
    [IST_COLL_ALL_TO_ALL] = "all_to_all",
    [IST_COLL_SEND] = "send",
    [IST_COLL_RECV] = "recv",
};

const char *ist_coll_text(ist_coll_kind kind)
{
    return (uint32_t)kind < sizeof(texts) / sizeof(texts[0]) ? texts[kind] : "collective";
}

/* ---- the buffers ----------------------------------------------------------------------------- */

/* Which buffers a call of this rank uses, in bytes; `share`: of one rank's part. */
typedef struct extent {
    uint64_t send, recv;
    uint64_t share;
} extent;

static inline extent extent_of(const ist_comm *comm, const ist_backend_coll *op, uint64_t share)
{
    const uint64_t all = share * comm->rank_count;
    const bool root = op->peer == comm->rank;
    switch (op->kind) {
    case IST_COLL_ALL_REDUCE: return (extent){share, share, share};
    case IST_COLL_BROADCAST: return (extent){root ? share : 0, share, share};
    case IST_COLL_REDUCE: return (extent){share, root ? share : 0, share};
    case IST_COLL_ALL_GATHER: return (extent){share, all, share};
    case IST_COLL_REDUCE_SCATTER: return (extent){all, share, share};
    case IST_COLL_ALL_TO_ALL: return (extent){all, all, share};
    case IST_COLL_SEND: return (extent){share, 0, share};
    case IST_COLL_RECV: return (extent){0, share, share};
    }
    return (extent){0, 0, 0};
}

/* The one place of the smaller buffer in the larger where they may be the same memory. */
static inline bool in_place(const ist_comm *comm, const ist_backend_coll *op, const extent *at)
{
    const uintptr_t send = (uintptr_t)op->send;
    const uintptr_t recv = (uintptr_t)op->recv;
    const uint64_t before = comm->rank * at->share;
    switch (op->kind) {
    case IST_COLL_ALL_REDUCE:
    case IST_COLL_BROADCAST:
    case IST_COLL_REDUCE: return send == recv;
    case IST_COLL_ALL_GATHER: return send == recv + before;
    case IST_COLL_REDUCE_SCATTER: return recv == send + before;
    case IST_COLL_ALL_TO_ALL:
    case IST_COLL_SEND:
    case IST_COLL_RECV: break;
    }
    return false;
}

static IST_COLD ist_status refuse_overlap(const ist_comm *comm, const ist_backend_coll *op,
                                          const extent *at)
{
    const uintptr_t send = (uintptr_t)op->send;
    const uintptr_t recv = (uintptr_t)op->recv;
    const bool behind = recv >= send;
    return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, "recv", ist_coll_text(op->kind),
                          at->send, behind ? recv - send : send - recv,
                          "recv (%" PRIu64 " bytes) begins %" PRIu64 " bytes %s send (%" PRIu64
                          " bytes): they overlap, and not as %s in place does",
                          at->recv, (uint64_t)(behind ? recv - send : send - recv),
                          behind ? "behind" : "before", at->send, ist_coll_text(op->kind));
}

static inline ist_status check_overlap(const ist_comm *comm, const ist_backend_coll *op,
                                       const extent *at)
{
    const uintptr_t send = (uintptr_t)op->send;
    const uintptr_t recv = (uintptr_t)op->recv;
    bool apart = at->send == 0 || at->recv == 0 || send + at->send <= recv ||
                 recv + at->recv <= send || in_place(comm, op, at);
    return IST_LIKELY(apart) ? IST_OK : refuse_overlap(comm, op, at);
}

static IST_COLD ist_status refuse_alignment(const ist_comm *comm, const ist_backend_coll *op,
                                            const void *buffer, const char *argument, uint64_t unit)
{
    const uint64_t beyond = (uintptr_t)buffer % unit;
    return ist_fail_value(
        comm->object.world, IST_ERR_ALIGNMENT, argument, ist_coll_text(op->kind), unit, beyond,
        "%s lies %" PRIu64 " bytes behind a multiple of its element, %" PRIu64 " bytes", argument,
        beyond, unit);
}

static IST_COLD ist_status check_anew(ist_world *world, const ist_backend_coll *op,
                                      const void *buffer, uint64_t bytes, const char *argument)
{
    IST_RETURN_IF_ERROR(
        ist_memory_check(world, buffer, bytes, 0, argument, ist_coll_text(op->kind)));
    const uint32_t next = world->checked_next++ % 4u;
    world->checked[next].mem = buffer;
    world->checked[next].bytes = bytes;
    return IST_OK;
}

static inline ist_status check_buffer(ist_comm *comm, const ist_backend_coll *op,
                                      const void *buffer, uint64_t bytes, uint64_t unit,
                                      const char *argument)
{
    if (bytes == 0) {
        return IST_OK;
    }
    if (!IST_LIKELY(((uintptr_t)buffer & (unit - 1u)) == 0)) {
        return refuse_alignment(comm, op, buffer, argument, unit);
    }
    ist_world *world = comm->object.world;
    for (uint32_t i = 0; i < sizeof(world->checked) / sizeof(world->checked[0]); ++i) {
        if (world->checked[i].mem == buffer && bytes <= world->checked[i].bytes) {
            return IST_OK;
        }
    }
    return check_anew(world, op, buffer, bytes, argument);
}

static IST_COLD ist_status refuse_dtype(const ist_comm *comm, const ist_backend_coll *op)
{
    return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, "dtype", ist_coll_text(op->kind),
                          IST_F8E5M2, (uint64_t)op->dtype, "dtype is %d, no element type",
                          (int)op->dtype);
}

static IST_COLD ist_status refuse_count(const ist_comm *comm, const ist_backend_coll *op,
                                        uint64_t most)
{
    return ist_fail_value(comm->object.world, IST_ERR_RANGE, "count", ist_coll_text(op->kind), most,
                          op->count, "count is %" PRIu64 ", %" PRIu64 " is the most here",
                          op->count, most);
}

static inline ist_status check_buffers(ist_comm *comm, const ist_backend_coll *op)
{
    static const uint8_t units[] = {
        [IST_U8] = 1,   [IST_I32] = 4, [IST_I64] = 8,    [IST_F16] = 2,
        [IST_BF16] = 2, [IST_F32] = 4, [IST_I8] = 1,     [IST_U32] = 4,
        [IST_U64] = 8,  [IST_F64] = 8, [IST_F8E4M3] = 1, [IST_F8E5M2] = 1};
    const uint64_t unit = (uint32_t)op->dtype < sizeof(units) ? units[op->dtype] : 0;
    if (!IST_LIKELY(unit != 0)) {
        return refuse_dtype(comm, op);
    }
    const uint64_t whole = unit * comm->rank_count;
    if (!IST_LIKELY(op->count <= BYTES_MAX / IST_RANK_COUNT_MAX / 8u) &&
        op->count > BYTES_MAX / whole) {
        return refuse_count(comm, op, BYTES_MAX / whole);
    }
    const extent at = extent_of(comm, op, op->count * unit);
    IST_RETURN_IF_ERROR(check_buffer(comm, op, op->send, at.send, unit, "send"));
    IST_RETURN_IF_ERROR(check_buffer(comm, op, op->recv, at.recv, unit, "recv"));
    return check_overlap(comm, op, &at);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static IST_COLD ist_status refuse_reduction(const ist_comm *comm, const ist_backend_coll *op)
{
    return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, "reduction",
                          ist_coll_text(op->kind), IST_REDUCE_AVG, (uint64_t)op->reduction,
                          "reduction is %d: none of the list, and no open one for %s",
                          (int)op->reduction, ist_dtype_text(op->dtype));
}

static inline ist_status resolve_reduction(const ist_comm *comm, ist_backend_coll *op)
{
    if (IST_LIKELY((uint32_t)op->reduction <= IST_REDUCE_AVG)) {
        return IST_OK;
    }
    const ist_coll_state *state = comm->coll;
    const uint32_t index = (uint32_t)op->reduction - IST_REDUCE_PREMUL;
    if (index >= state->scale_count || state->scales[index].dtype != op->dtype ||
        op->dtype == IST_DTYPE_UNSET) {
        return refuse_reduction(comm, op);
    }
    op->scale = state->scales[index].bits;
    op->reduction = IST_REDUCE_PREMUL;
    return IST_OK;
}

static IST_COLD ist_status refuse_peer(const ist_comm *comm, const ist_backend_coll *op)
{
    const char *name = op->kind == IST_COLL_SEND || op->kind == IST_COLL_RECV ? "peer" : "root";
    if (op->peer == comm->rank) {
        return ist_fail(comm->object.world, IST_ERR_USAGE, name, ist_coll_text(op->kind),
                        "%s is this rank, %u, outside a group: nobody could take the other side",
                        name, op->peer);
    }
    return ist_fail_value(comm->object.world, IST_ERR_RANGE, name, ist_coll_text(op->kind),
                          comm->rank_count, op->peer, "%s is %u, below %u is required", name,
                          op->peer, comm->rank_count);
}

static inline ist_status check_peer(const ist_comm *comm, const ist_backend_coll *op)
{
    const bool alone =
        op->kind >= IST_COLL_SEND && op->peer == comm->rank && comm->object.world->coll_depth == 0;
    return IST_LIKELY(op->peer < comm->rank_count && !alone) ? IST_OK : refuse_peer(comm, op);
}

static IST_COLD ist_status refuse_closed(const ist_comm *comm, const ist_backend_coll *op)
{
    return ist_fail(comm->object.world, IST_ERR_USAGE, "comm", ist_coll_text(op->kind),
                    "comm has no native collectives: ist_coll_open() opens them, on all ranks");
}

static IST_COLD ist_status check_words(ist_comm *comm, const char *operation)
{
    ist_world *world = comm->object.world;
    uint64_t words[IST_DEV_MASK_WORDS];
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, comm->mask->words, words,
                                            IST_MASK_WORDS(comm->rank_count) * sizeof(words[0])));
    for (uint32_t rank = 0; rank < comm->rank_count; ++rank) {
        if (!IST_LIKELY(ist_mask_test(words, rank))) {
            ist_error details = ist_details(world, "comm", operation);
            details.peer = (int32_t)rank;
            return ist_raise(IST_ERR_RANK_LOST, &details,
                             "rank %u is masked, and native collectives need every rank: split, "
                             "and open them on the new communicator",
                             rank);
        }
    }
    return IST_OK;
}

/* The mask lies near the device and costs microseconds to read: only when it may have changed. */
ist_status ist_coll_check_mask(ist_comm *comm, const char *operation)
{
    ist_world *world = comm->object.world;
    uint64_t alarm = 0;
    if (IST_LIKELY(world->peeks_by_loads)) {
        alarm = __atomic_load_n(comm->alarm, __ATOMIC_ACQUIRE);
    } else {
        IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, comm->alarm, &alarm, sizeof(alarm)));
    }
    if (IST_LIKELY(alarm == 0 && !comm->mask_touched)) {
        return IST_OK;
    }
    return comm->fault_tolerant != 0 ? check_words(comm, operation)
                                     : ist_check_comm_usable(comm, operation);
}

ist_status ist_coll_meet(ist_comm *comm, ist_status local, const ist_backend_coll *op)
{
    const ist_field fields[] = {
        {"the kind of the collective", (uint64_t)op->kind},
        {"count", op->count},
        {"dtype", (uint64_t)op->dtype},
        {"reduction", (uint64_t)op->reduction},
        {"root", op->peer},
    };
    return ist_comm_meet(comm, local, fields, sizeof(fields) / sizeof(fields[0]),
                         ist_coll_text(op->kind));
}

static inline ist_status check(ist_comm *comm, ist_backend_coll *op)
{
    if (!IST_LIKELY(comm->coll != NULL)) {
        return refuse_closed(comm, op);
    }
    IST_RETURN_IF_ERROR(check_peer(comm, op));
    IST_RETURN_IF_ERROR(resolve_reduction(comm, op));
    IST_RETURN_IF_ERROR(check_buffers(comm, op));
    return ist_coll_check_mask(comm, ist_coll_text(op->kind));
}

/* The group is one of the rank's, which either argument may tell. */
static IST_COLD ist_status refuse_comm(const ist_comm *comm, const ist_stream *stream,
                                       ist_status status)
{
    const ist_object *known = ist_object_is(comm, IST_KIND_COMM)       ? &comm->object
                              : ist_object_is(stream, IST_KIND_STREAM) ? &stream->object
                                                                       : NULL;
    if (known != NULL && known->world->owner == ist_error_bound) {
        ist_coll_group_refuse(known->world, status);
    }
    return status;
}

static inline ist_status call(ist_comm *comm, ist_stream *stream, ist_backend_coll *op)
{
    const char *operation = ist_coll_text(op->kind);
    ist_status status = ist_check_comm(comm, "comm", operation);
    if (!IST_LIKELY(status == IST_OK)) {
        return refuse_comm(comm, stream, status);
    }
    ist_world *world = comm->object.world;
    status = ist_check_comm_stream(comm, stream, operation);
    if (IST_LIKELY(status == IST_OK)) {
        op->comm = comm->object.number;
        op->stream = stream->object.number;
        status = check(comm, op);
    }
    if (!IST_LIKELY(comm->check != IST_CHECK_PEERS) && op->kind < IST_COLL_SEND &&
        comm->coll != NULL) {
        status = ist_coll_meet(comm, status, op);
    }
    if (IST_LIKELY(status == IST_OK && world->coll_depth == 0)) {
        return world->ops.coll_enqueue(world->self, op, 1);
    }
    if (status == IST_OK) {
        status = ist_coll_group_add(world, op);
    }
    if (status < 0) {
        ist_coll_group_refuse(world, status);
    }
    return status;
}

/* ---- entry points ---------------------------------------------------------------------------- */

ist_status ist_all_reduce(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                          uint64_t count, ist_dtype dtype, ist_reduction reduction)
{
    ist_backend_coll op = {.kind = IST_COLL_ALL_REDUCE,
                           .dtype = dtype,
                           .reduction = reduction,
                           .send = send,
                           .recv = recv,
                           .count = count};
    return call(comm, stream, &op);
}

ist_status ist_broadcast(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                         uint64_t count, ist_dtype dtype, uint32_t root)
{
    ist_backend_coll op = {.kind = IST_COLL_BROADCAST,
                           .dtype = dtype,
                           .peer = root,
                           .send = send,
                           .recv = recv,
                           .count = count};
    return call(comm, stream, &op);
}

ist_status ist_reduce(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                      uint64_t count, ist_dtype dtype, ist_reduction reduction, uint32_t root)
{
    ist_backend_coll op = {.kind = IST_COLL_REDUCE,
                           .dtype = dtype,
                           .reduction = reduction,
                           .peer = root,
                           .send = send,
                           .recv = recv,
                           .count = count};
    return call(comm, stream, &op);
}

ist_status ist_all_gather(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                          uint64_t count, ist_dtype dtype)
{
    ist_backend_coll op = {
        .kind = IST_COLL_ALL_GATHER, .dtype = dtype, .send = send, .recv = recv, .count = count};
    return call(comm, stream, &op);
}

ist_status ist_reduce_scatter(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                              uint64_t count, ist_dtype dtype, ist_reduction reduction)
{
    ist_backend_coll op = {.kind = IST_COLL_REDUCE_SCATTER,
                           .dtype = dtype,
                           .reduction = reduction,
                           .send = send,
                           .recv = recv,
                           .count = count};
    return call(comm, stream, &op);
}

ist_status ist_all_to_all(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                          uint64_t count, ist_dtype dtype)
{
    ist_backend_coll op = {
        .kind = IST_COLL_ALL_TO_ALL, .dtype = dtype, .send = send, .recv = recv, .count = count};
    return call(comm, stream, &op);
}

ist_status ist_send(ist_comm *comm, ist_stream *stream, const void *send, uint64_t count,
                    ist_dtype dtype, uint32_t peer)
{
    ist_backend_coll op = {
        .kind = IST_COLL_SEND, .dtype = dtype, .peer = peer, .send = send, .count = count};
    return call(comm, stream, &op);
}

ist_status ist_recv(ist_comm *comm, ist_stream *stream, void *recv, uint64_t count, ist_dtype dtype,
                    uint32_t peer)
{
    ist_backend_coll op = {
        .kind = IST_COLL_RECV, .dtype = dtype, .peer = peer, .recv = recv, .count = count};
    return call(comm, stream, &op);
}
