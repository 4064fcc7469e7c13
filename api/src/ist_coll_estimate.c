/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend's own library asked how long an operation would take, beside the cost model's answer.
 */
#include "ist_internal.h"

#include <inttypes.h>
#include <isthmus/unstable/whatif.h>

#define OPERATION "op.reference"

static ist_status refuse_kind(const ist_comm *comm, const ist_op_desc *op)
{
    return ist_fail_value(comm->object.world, IST_ERR_UNSUPPORTED, "op.kind", OPERATION, 0,
                          (uint64_t)op->kind,
                          "op.kind is %d: libraries estimate all-reduce, all-gather, "
                          "reduce-scatter and broadcast",
                          (int)op->kind);
}

/* Bytes of IST_OP_LIST as elements of ist_coll_kind; F32, or U8 where it does not divide. */
static ist_status translate(const ist_comm *comm, const ist_op_desc *op, ist_backend_coll *call)
{
    uint64_t share = op->bytes;
    if ((uint32_t)op->kind > IST_OP_COPY) {
        return refuse_kind(comm, op);
    }
    switch (op->kind) {
    case IST_OP_ALL_REDUCE: call->kind = IST_COLL_ALL_REDUCE; break;
    case IST_OP_BROADCAST: call->kind = IST_COLL_BROADCAST; break;
    case IST_OP_ALL_GATHER:
    case IST_OP_REDUCE_SCATTER:
        call->kind = op->kind == IST_OP_ALL_GATHER ? IST_COLL_ALL_GATHER : IST_COLL_REDUCE_SCATTER;
        share = op->bytes / comm->rank_count;
        break;
    case IST_OP_ALL_TO_ALL:
    case IST_OP_SEND_RECV:
    case IST_OP_P2P:
    case IST_OP_PUT:
    case IST_OP_SIGNAL:
    case IST_OP_BARRIER:
    case IST_OP_EP_DISPATCH:
    case IST_OP_EP_COMBINE:
    case IST_OP_COPY: return refuse_kind(comm, op);
    }
    call->dtype = share % sizeof(float) == 0 ? IST_F32 : IST_U8;
    call->count = share / ist_dtype_bytes(call->dtype);
    call->comm = comm->object.number;
    return IST_OK;
}

ist_status ist_op_reference(ist_comm *comm, const ist_op_desc *op, uint64_t *time_ps)
{
    ist_op_desc checked = {0};
    ist_backend_coll call = {0};
    ist_backend_coll_info info = {0};
    uint64_t answer = 0;
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", OPERATION));
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, op, "op", OPERATION));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, time_ps, "time_ps", OPERATION));
    IST_RETURN_IF_ERROR(
        ist_desc_read(world, op, sizeof(ist_op_desc), &checked, sizeof(checked), "op", OPERATION));
    IST_RETURN_IF_ERROR(translate(comm, &checked, &call));
    if (!world->has_coll) {
        return ist_fail(world, IST_ERR_UNSUPPORTED, "comm", OPERATION,
                        "the backend does not offer native collectives");
    }
    IST_RETURN_IF_ERROR(world->ops.coll_info(world->self, &info));
    if (info.reason != NULL || info.estimate_reason != NULL) {
        return ist_fail(world, IST_ERR_UNSUPPORTED, "comm", OPERATION, "there is no estimate: %s",
                        info.reason != NULL ? info.reason : info.estimate_reason);
    }
    IST_RETURN_IF_ERROR(world->ops.coll_estimate(world->self, &call, &answer));
    *time_ps = answer;
    return IST_OK;
}
