/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's way to the meeting: through a mutex when all ranks live in one process, through a socket
 * to the server when they are processes. Calls block, bounded by their deadline.
 */
#ifndef CUDA_ENDPOINT_H
#define CUDA_ENDPOINT_H

#include "cuda_meet.h"

typedef struct cuda_endpoint {
    /* Blocks until the call is answered; always leaves a status in it. */
    void (*call)(struct cuda_endpoint *endpoint, cuda_call *call);
    void (*release)(struct cuda_endpoint *endpoint, cuda_call *call);
    /* From any thread: ends the member's calls, waiting and to come, with IST_ERR_ABORTED. */
    void (*abort)(struct cuda_endpoint *endpoint, uint64_t comm, uint32_t member);
    void (*leave)(struct cuda_endpoint *endpoint, uint64_t comm, uint32_t member);
    void (*close)(struct cuda_endpoint *endpoint);
} cuda_endpoint;

typedef struct cuda_local cuda_local; /* the meeting of threads */

ist_status cuda_local_open(uint32_t rank_count, cuda_local **local);
cuda_endpoint *cuda_local_endpoint(cuda_local *local);
/* The rank's program has ended: nobody waits for it any more. */
void cuda_local_rank_gone(cuda_local *local, uint32_t rank);
void cuda_local_close(cuda_local *local);

/* In rank 0's process, before it uses the GPU: starts the server. */
ist_status cuda_server_start(const ist_backend_process *process);
/* Connects this process's rank to the server. */
ist_status cuda_client_open(const ist_backend_process *process, cuda_endpoint **endpoint);

#endif
