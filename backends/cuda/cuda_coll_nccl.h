/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of NCCL that collectives use, opened at run time. Its host interface is the same over
 * the releases that are served, but for what may be missing.
 */
#ifndef CUDA_COLL_NCCL_H
#define CUDA_COLL_NCCL_H

#include "cuda_nccl.h"

#include <nccl.h>

#define CUDA_COLL_NEEDED(X)                                                                        \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommSplit)                                                                               \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllReduce)                                                                               \
    X(ncclBroadcast)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclSend)                                                                                    \
    X(ncclRecv)                                                                                    \
    X(ncclRedOpCreatePreMulSum)                                                                    \
    X(ncclRedOpDestroy)

#define CUDA_COLL_WISHED(X)                                                                        \
    X(ncclAlltoAll)                                                                                \
    X(ncclCommRevoke)                                                                              \
    X(ncclGroupSimulateEnd)

typedef struct cuda_coll_functions {
#define X(function) __typeof__(&function) function;
    CUDA_COLL_NEEDED(X)
    CUDA_COLL_WISHED(X)
#undef X
} cuda_coll_functions;

extern cuda_coll_functions cuda_coll_nc;

/* A communicator for collectives in the making, or made. */
typedef struct cuda_coll_link {
    ncclComm_t parent, comm;
} cuda_coll_link;

/* Opens a blocking communicator in bounded steps. Collective; equal on all ranks. */
ist_status cuda_coll_connect(cuda_comm *comm, uint64_t deadline_ns, cuda_coll_link *link);
/* Hands a call to NCCL; `stream` takes it. */
ncclResult_t cuda_coll_issue(ncclComm_t comm, uint32_t rank_count, CUstream stream,
                             const ist_backend_coll *op);
ist_status cuda_coll_raise(const cuda_comm *comm, ncclResult_t result, const char *call);

#endif
