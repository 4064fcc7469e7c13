/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL, opened at run time and only needed for peers outside the load/store team (GIN). Everything
 * here may be missing; then there is a reason.
 */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include <isthmus/backend.h>
#include <stdbool.h>

struct cuda_comm;
typedef struct cuda_nccl cuda_nccl;                 /* of one communicator */
typedef struct cuda_nccl_devcomm cuda_nccl_devcomm; /* of one device communicator */

/* Why NCCL, or its device interface, cannot be used by any communicator; NULL: it can. */
const char *cuda_nccl_reason(void);
/* The library itself and why it cannot be used at all, whatever for; NULL: none, and it can. */
void *cuda_nccl_library(void);
const char *cuda_nccl_host_reason(void);
/* NCCL_VERSION_CODE of the library that was found, 0: none. */
int cuda_nccl_version(void);
/* The device interface of the loaded library that this build has code for; NULL: none. */
const char *cuda_nccl_device_abi(void);

/*
 * Opens NCCL on a communicator and finds out whether it has GIN. Collective over the meeting. A
 * negative status only when the ranks could not meet; without GIN comm->nccl stays NULL and
 * comm->gin_reason says why.
 */
ist_status cuda_nccl_open(struct cuda_comm *comm);
/* Does not wait for peers. */
void cuda_nccl_close(struct cuda_comm *comm);

/* Collective, all ranks in the same order. */
ist_status cuda_nccl_window_open(struct cuda_comm *comm, void *local, uint64_t bytes,
                                 void **window);
void cuda_nccl_window_close(struct cuda_comm *comm, void *window);
/* Of signals and counters: over all contexts together. */
typedef struct cuda_nccl_counts {
    uint32_t contexts, signals, counters;
} cuda_nccl_counts;

/* An error of the network is written into peer_errors, which has an entry for each rank. */
ist_status cuda_nccl_devcomm_open(struct cuda_comm *comm, const cuda_nccl_counts *counts,
                                  uint64_t *peer_errors, cuda_nccl_devcomm **devcomm);
void cuda_nccl_devcomm_close(struct cuda_comm *comm, cuda_nccl_devcomm *devcomm);
/* What device code gets a copy of. */
const void *cuda_nccl_devcomm_bytes(const cuda_nccl_devcomm *devcomm, size_t *bytes);

#endif
