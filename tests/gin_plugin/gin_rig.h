/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GIN transport driven as NCCL drives it: loaded from its file, a table of functions, ranks that
 * take turns in one thread or run in threads of their own.
 */
#ifndef GIN_RIG_H
#define GIN_RIG_H

#include "gin_interface.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include <cmocka.h>

enum { RIG_RANKS_MAX = 8, RIG_SIGNALS = 64 };

/* What a rank has. */
typedef struct rig_rank {
    void *context;
    void *listening;
    void *comm;
    void *channels; /* RMA v14: the context of operations */
    char handle[GIN_HANDLE_BYTES];
    uint8_t *memory; /* of the window */
    size_t bytes;
    void *window;
    uint64_t *signals; /* [RIG_SIGNALS] */
    void *signal_window;
    uint32_t rank, rank_count;
} rig_rank;

extern const gin_v11 *rig_gin;
extern const gin_rma_v14 *rig_rma;
extern const gin_net_v11 *rig_net;
/* Memory is registered as that of a GPU: needs the driver, or one that stands in. */
extern bool rig_device;
/* Warnings since the last look, and the last one's text. */
extern unsigned rig_warnings;
extern char rig_warning[512];

/* Loads the library named by IST_GIN_PLUGIN; `--device` registers device memory. */
void rig_init(int argc, char **argv);

/* One rank; for ranks in processes. handles of all ranks between the two. */
void rig_listen(rig_rank *rank, uint32_t number, uint32_t rank_count, uint64_t comm_id);
gin_result rig_connect(rig_rank *rank, void **handles);
void rig_register(rig_rank *rank, size_t window_bytes);
void rig_close(rig_rank *rank);

/* All ranks in this thread. */
void rig_open_all(rig_rank *ranks, uint32_t rank_count, size_t window_bytes);
void rig_close_all(rig_rank *ranks, uint32_t rank_count);
/* Rounds of all ranks until none has anything left to do, as far as that can be seen from here. */
void rig_rounds(rig_rank *ranks, uint32_t rank_count, uint32_t rounds);

void *rig_put(rig_rank *from, uint32_t to, uint64_t src, uint64_t dst, size_t bytes);
void *rig_put_signal(rig_rank *from, uint32_t to, uint64_t src, uint64_t dst, size_t bytes,
                     uint32_t signal, uint64_t value);
bool rig_done(rig_rank *rank, void *request);
/* Rounds of all until the request is done; fails the test after very many. */
void rig_wait(rig_rank *ranks, uint32_t rank_count, rig_rank *owner, void *request);
bool rig_failed(const rig_rank *rank);
uint64_t rig_signal(const rig_rank *rank, uint32_t signal);

#endif
