/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL for collectives: its functions, communicators, and calls in its terms.
 *
 * Calls of a blocking communicator cost least, but opening one cannot be ended when a peer dies
 * meanwhile. So a non-blocking one is opened first, whose steps are bounded, and the blocking one is
 * split off it.
 */
#include "cuda_coll.h"

#ifndef CUDA_HAVE_NCCL
#define CUDA_HAVE_NCCL 0
#endif

#if !CUDA_HAVE_NCCL

const char *cuda_coll_reason(void)
{
    return "this build has no code for NCCL (its headers were not found)";
}

#else

#include "cuda_coll_nccl.h"
#include "cuda_nccl_config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

cuda_coll_functions cuda_coll_nc;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];

/* ---- the library ----------------------------------------------------------------------------- */

static void find_once(void)
{
    const char *reason = cuda_nccl_host_reason();
    void *library = cuda_nccl_library();
    const char *missing = NULL;
    void *found = NULL;
    if (reason != NULL) {
        snprintf(failure, sizeof(failure), "%.255s", reason);
        return;
    }
#define X(function)                                                                                \
    found = dlsym(library, #function);                                                             \
    missing = found == NULL && missing == NULL ? #function : missing;                              \
    memcpy(&cuda_coll_nc.function, &found, sizeof(found));
    CUDA_COLL_NEEDED(X)
#undef X
#define X(function)                                                                                \
    found = dlsym(library, #function);                                                             \
    memcpy(&cuda_coll_nc.function, &found, sizeof(found));
    CUDA_COLL_WISHED(X)
#undef X
    if (missing != NULL) {
        int version = cuda_nccl_version();
        snprintf(failure, sizeof(failure), "NCCL %d.%d.%d lacks the function %s", version / 10000,
                 version / 100 % 100, version % 100, missing);
    }
}

const char *cuda_coll_reason(void)
{
    (void)pthread_once(&once, find_once);
    return failure[0] != '\0' ? failure : NULL;
}

ist_status cuda_coll_raise(const cuda_comm *comm, ncclResult_t result, const char *call)
{
    const char *last = cuda_coll_nc.ncclGetLastError(NULL);
    ist_error details = {.rank = (int32_t)comm->owner->index,
                         .peer = IST_RANK_NONE,
                         .object = "nccl",
                         .observed = (uint64_t)result};
    snprintf(details.operation, sizeof(details.operation), "%s", call);
    if (result == ncclInProgress) {
        return ist_raise(IST_ERR_TIMEOUT, &details, "%s did not finish in time", call);
    }
    return ist_raise(IST_ERR_REMOTE, &details, "%s failed: %s%s%s", call,
                     cuda_coll_nc.ncclGetErrorString(result),
                     last != NULL && last[0] != '\0' ? ": " : "", last != NULL ? last : "");
}

/* ---- opening --------------------------------------------------------------------------------- */

#define POLL_NS UINT64_C(50000)

/* What each rank brings; the first one's id counts. */
typedef struct invitation {
    int64_t ready;
    ncclUniqueId id;
    char why[200]; /* not */
} invitation;

static ncclResult_t settle(ncclComm_t comm, ncclResult_t result, uint64_t until_ns)
{
    while (result == ncclSuccess || result == ncclInProgress) {
        ncclResult_t state = ncclSuccess;
        if (cuda_coll_nc.ncclCommGetAsyncError(comm, &state) != ncclSuccess) {
            return ncclInternalError;
        }
        if (state != ncclInProgress || cuda_now_ns() >= until_ns) {
            return state;
        }
        result = state;
        cuda_pause_ns(POLL_NS);
    }
    return result;
}

static void invite(const cuda_comm *comm, invitation *own)
{
    const char *reason = cuda_coll_reason();
    ncclResult_t result = ncclSuccess;
    memset(own, 0, sizeof(*own));
    if (reason == NULL && comm->rank == 0) {
        result = cuda_coll_nc.ncclGetUniqueId(&own->id);
    }
    own->ready = reason == NULL && result == ncclSuccess;
    snprintf(own->why, sizeof(own->why), "%.199s",
             reason != NULL          ? reason
             : result != ncclSuccess ? cuda_coll_nc.ncclGetErrorString(result)
                                     : "");
}

static ist_status meet(cuda_comm *comm, ncclUniqueId *id)
{
    cuda_call call;
    invitation own;
    ist_status status = IST_OK;
    invite(comm, &own);
    IST_RETURN_IF_ERROR(cuda_comm_gather(comm, &own, sizeof(own), -1, &call));
    const invitation *all = (const invitation *)(const void *)call.round->data;
    for (uint32_t peer = 0; peer < comm->rank_count && status == IST_OK; ++peer) {
        if (all[peer].ready == 0) {
            ist_error details = {.rank = (int32_t)comm->owner->index,
                                 .peer = (int32_t)peer,
                                 .object = "nccl",
                                 .operation = "coll.open"};
            status = ist_raise(IST_ERR_UNSUPPORTED, &details, "rank %u cannot use NCCL: %.199s",
                               peer, all[peer].why);
        }
    }
    *id = all[0].id;
    cuda_comm_release(comm, &call);
    return status;
}

static ist_status connect_own(const cuda_comm *comm, const ncclUniqueId *id, uint64_t until_ns,
                              cuda_coll_link *link)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    cuda_nccl_config_fit(&config, cuda_nccl_version());
    config.blocking = 0;
    ncclResult_t result = cuda_coll_nc.ncclCommInitRankConfig(&link->parent, (int)comm->rank_count,
                                                              *id, (int)comm->rank, &config);
    result = settle(link->parent, result, until_ns);
    if (result != ncclSuccess) {
        return cuda_coll_raise(comm, result, "ncclCommInitRankConfig");
    }
    config.blocking = 1;
    result = cuda_coll_nc.ncclCommSplit(link->parent, 0, (int)comm->rank, &link->comm, &config);
    result = settle(link->parent, result, until_ns);
    if (result == ncclSuccess && link->comm != NULL) {
        result = settle(link->comm, result, until_ns);
    }
    if (result != ncclSuccess || link->comm == NULL) {
        return cuda_coll_raise(comm, result != ncclSuccess ? result : ncclInternalError,
                               "ncclCommSplit");
    }
    return IST_OK;
}

/* One that failed makes all fail, and nobody leaves before all are done. */
static ist_status agree(cuda_comm *comm, ist_status own)
{
    cuda_call call;
    int64_t word = own;
    ist_error why = {.size = sizeof(why)};
    int32_t failed = IST_RANK_NONE;
    (void)ist_error_last(&why); /* raised by `own`, if that failed */
    ist_status status = cuda_comm_gather(comm, &word, sizeof(word), -1, &call);
    int64_t theirs = IST_OK;
    for (uint32_t peer = 0; status == IST_OK && peer < comm->rank_count && failed < 0; ++peer) {
        theirs = ((const int64_t *)(const void *)call.round->data)[peer];
        failed = theirs != IST_OK ? (int32_t)peer : failed;
    }
    if (status == IST_OK) {
        cuda_comm_release(comm, &call);
    }
    if (own != IST_OK) {
        ist_error_adopt(&why);
        return own;
    }
    if (status == IST_OK && failed >= 0) {
        ist_error details = {.rank = (int32_t)comm->owner->index,
                             .peer = failed,
                             .object = "nccl",
                             .operation = "coll.open",
                             .observed = (uint64_t)theirs};
        return ist_raise(IST_ERR_MISMATCH, &details, "rank %d could not open NCCL: %s", (int)failed,
                         ist_status_name((ist_status)theirs));
    }
    return status;
}

ist_status cuda_coll_connect(cuda_comm *comm, uint64_t deadline_ns, cuda_coll_link *link)
{
    ncclUniqueId id;
    uint64_t usual_ns = comm->deadline_ns;
    *link = (cuda_coll_link){NULL, NULL};
    comm->deadline_ns = deadline_ns;
    ist_status status = meet(comm, &id);
    if (status == IST_OK) {
        uint64_t until_ns = cuda_after_ns(cuda_now_ns(), deadline_ns);
        status = agree(comm, connect_own(comm, &id, until_ns, link));
    }
    comm->deadline_ns = usual_ns;
    if (status != IST_OK && link->comm != NULL) {
        (void)cuda_coll_nc.ncclCommAbort(link->comm);
        link->comm = NULL;
    }
    if (link->parent != NULL) {
        (void)cuda_coll_nc.ncclCommAbort(link->parent);
        link->parent = NULL;
    }
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const ncclDataType_t types[] = {
    [IST_U8] = ncclUint8,    [IST_I8] = ncclInt8,           [IST_I32] = ncclInt32,
    [IST_U32] = ncclUint32,  [IST_I64] = ncclInt64,         [IST_U64] = ncclUint64,
    [IST_F16] = ncclFloat16, [IST_BF16] = ncclBfloat16,     [IST_F32] = ncclFloat32,
    [IST_F64] = ncclFloat64, [IST_F8E4M3] = ncclFloat8e4m3, [IST_F8E5M2] = ncclFloat8e5m2,
};

static const ncclRedOp_t reductions[] = {
    [IST_REDUCE_SUM] = ncclSum, [IST_REDUCE_PROD] = ncclProd, [IST_REDUCE_MAX] = ncclMax,
    [IST_REDUCE_MIN] = ncclMin, [IST_REDUCE_AVG] = ncclAvg,
};

/* Of releases that have no call of their own for it. */
static ncclResult_t all_to_all(ncclComm_t comm, uint32_t rank_count, CUstream stream,
                               const ist_backend_coll *op)
{
    const size_t share = op->count * ist_dtype_bytes(op->dtype);
    ncclResult_t result = cuda_coll_nc.ncclGroupStart();
    for (uint32_t peer = 0; result == ncclSuccess && peer < rank_count; ++peer) {
        result = cuda_coll_nc.ncclSend((const uint8_t *)op->send + peer * share, op->count,
                                       types[op->dtype], (int)peer, comm, stream);
        if (result == ncclSuccess) {
            result = cuda_coll_nc.ncclRecv((uint8_t *)op->recv + peer * share, op->count,
                                           types[op->dtype], (int)peer, comm, stream);
        }
    }
    ncclResult_t ended = cuda_coll_nc.ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

static ncclResult_t issue(ncclComm_t comm, uint32_t rank_count, CUstream stream,
                          const ist_backend_coll *op, ncclRedOp_t reduction)
{
    const ncclDataType_t type = types[op->dtype];
    const int peer = (int)op->peer;
    switch (op->kind) {
    case IST_COLL_ALL_REDUCE:
        return cuda_coll_nc.ncclAllReduce(op->send, op->recv, op->count, type, reduction, comm,
                                          stream);
    case IST_COLL_BROADCAST:
        return cuda_coll_nc.ncclBroadcast(op->send, op->recv, op->count, type, peer, comm, stream);
    case IST_COLL_REDUCE:
        return cuda_coll_nc.ncclReduce(op->send, op->recv, op->count, type, reduction, peer, comm,
                                       stream);
    case IST_COLL_ALL_GATHER:
        return cuda_coll_nc.ncclAllGather(op->send, op->recv, op->count, type, comm, stream);
    case IST_COLL_REDUCE_SCATTER:
        return cuda_coll_nc.ncclReduceScatter(op->send, op->recv, op->count, type, reduction, comm,
                                              stream);
    case IST_COLL_ALL_TO_ALL:
        return cuda_coll_nc.ncclAlltoAll != NULL
                   ? cuda_coll_nc.ncclAlltoAll(op->send, op->recv, op->count, type, comm, stream)
                   : all_to_all(comm, rank_count, stream, op);
    case IST_COLL_SEND: return cuda_coll_nc.ncclSend(op->send, op->count, type, peer, comm, stream);
    case IST_COLL_RECV: return cuda_coll_nc.ncclRecv(op->recv, op->count, type, peer, comm, stream);
    }
    return ncclInvalidArgument;
}

/* The library reads the factor at once, and keeps a reduction as long as its calls need it. */
static ncclResult_t issue_scaled(ncclComm_t comm, uint32_t rank_count, CUstream stream,
                                 const ist_backend_coll *op)
{
    ncclRedOp_t made = ncclSum;
    uint64_t scale = op->scale;
    ncclResult_t result = cuda_coll_nc.ncclRedOpCreatePreMulSum(&made, &scale, types[op->dtype],
                                                                ncclScalarHostImmediate, comm);
    if (result != ncclSuccess) {
        return result;
    }
    result = issue(comm, rank_count, stream, op, made);
    ncclResult_t destroyed = cuda_coll_nc.ncclRedOpDestroy(made, comm);
    return result != ncclSuccess ? result : destroyed;
}

ncclResult_t cuda_coll_issue(ncclComm_t comm, uint32_t rank_count, CUstream stream,
                             const ist_backend_coll *op)
{
    return op->reduction != IST_REDUCE_PREMUL
               ? issue(comm, rank_count, stream, op, reductions[op->reduction])
               : issue_scaled(comm, rank_count, stream, op);
}

#endif
