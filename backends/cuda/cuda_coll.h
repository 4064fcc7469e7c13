/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collectives through NCCL's host interface, on a communicator of NCCL's own that GIN does not
 * use. Calls block nowhere; a thread watches them and aborts those that do not end.
 */
#ifndef CUDA_COLL_H
#define CUDA_COLL_H

#include "cuda_comm.h"

typedef struct cuda_coll cuda_coll;

/* Why there are no native collectives; NULL: there are. */
const char *cuda_coll_reason(void);

ist_status cuda_coll_info(void *self, ist_backend_coll_info *info);
ist_status cuda_coll_open(void *self, uint64_t number, uint64_t deadline_ns);
ist_status cuda_coll_close(void *self, uint64_t number);
ist_status cuda_coll_enqueue(void *self, const ist_backend_coll *ops, uint32_t count);
ist_status cuda_coll_status(void *self, uint64_t number, ist_error *why);
ist_status cuda_coll_estimate(void *self, const ist_backend_coll *op, uint64_t *time_ps);

/* Ends whatever runs on the communicator; from any thread. */
void cuda_coll_abort(cuda_comm *comm);
/* Closes what is open; does not wait for peers. */
void cuda_coll_drop(cuda_comm *comm);

/* A stream is about to close. */
void cuda_coll_forget_stream(cuda_rank *rank, const cuda_stream *stream);
/* A graph is launched that has collectives of these; IST_ERR_USAGE when one of them is closed. */
ist_status cuda_coll_graph_launched(const cuda_graph *graph, cuda_stream *stream);

#endif
