/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of NCCL's device interface differs between releases, behind plain C. Its headers are C++ and
 * belong to one release, so cuda_nccl_abi.cpp is compiled once for each that the build has headers of.
 */
#ifndef CUDA_NCCL_ABI_H
#define CUDA_NCCL_ABI_H

#include <nccl.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef ncclResult_t (*cuda_nccl_create_fn)(ncclComm_t comm, const void *requirements,
                                            void *devcomm);

typedef struct cuda_nccl_abi {
    const char *name; /* as images carry it: "nccl-2.28" */
    size_t bytes;     /* of an ncclDevComm */
    /* Calls ncclDevCommCreate, given as `create`, for GIN with these counts. */
    ncclResult_t (*create)(cuda_nccl_create_fn create, ncclComm_t comm, unsigned context_count,
                           unsigned signal_count, unsigned counter_count, void *devcomm);
    /* What an ncclDevComm says: members of a load/store team, kind of GIN (0: none). */
    void (*read)(const void *devcomm, unsigned *lsa_size, unsigned *gin_kind);
} cuda_nccl_abi;

#ifdef __cplusplus
}
#endif

#endif
