/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench coll` for native collectives: what its parts share.
 */
#ifndef CLI_NATIVE_H
#define CLI_NATIVE_H

#include "cli_bench.h"

/* X(ID, name): what can be timed. */
#define NATIVE_CALL_LIST(X)                                                                        \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(BROADCAST, "broadcast")                                                                      \
    X(REDUCE, "reduce")                                                                            \
    X(ALL_TO_ALL, "all_to_all")                                                                    \
    X(SEND_RECV, "send_recv")                                                                      \
    X(COPY, "copy")

typedef enum native_call {
#define X(id, name) NATIVE_##id,
    NATIVE_CALL_LIST(X)
#undef X
        NATIVE_CALL_COUNT
} native_call;

#define NATIVE_CELLS_MAX 256u

typedef struct native_options {
    bool wanted; /* some option of these was given */
    bool calls[NATIVE_CALL_COUNT];
    uint64_t bytes_first, bytes_last, bytes_step; /* step 0: by factor */
    uint64_t factor;
    ist_dtype dtype;
    ist_reduction reduction;
    uint32_t root;
    bool in_place;
    bool estimate;
    bool csv;
    const char *profile; /* file, or NULL */
} native_options;

/* A call at a size, on one rank. */
typedef struct native_cell {
    uint64_t bytes; /* as nccl-tests counts: the larger of send and receive buffer */
    uint32_t call;
    uint32_t reserved;
    uint64_t wrong;        /* elements */
    uint64_t estimate_ps;  /* the cost model's, 0: none */
    uint64_t reference_ps; /* the library's, 0: none */
    bench_times times;
} native_cell;

/* Takes its own options out of argv; what is left is for bench_options_read(). An exit status. */
int native_options_take(int *argc, char **argv, native_options *options);
const char *native_dtype_name(ist_dtype dtype);
const char *native_reduction_name(ist_reduction reduction);
const char *native_call_name(uint32_t call);
/* The cells that are asked for, in order; at most NATIVE_CELLS_MAX. */
uint32_t native_cells(const native_options *options, uint32_t rank_count, native_cell *cells);

/* Elements as numbers: exact small whole numbers in, anything out. */
void native_put(uint8_t *at, uint64_t index, ist_dtype dtype, uint32_t value);
double native_get(const uint8_t *at, uint64_t index, ist_dtype dtype);

int native_command(const bench_options *bench, const native_options *options);

#endif
