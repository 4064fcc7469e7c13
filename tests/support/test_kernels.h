/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that tests launch, and their arguments. One text for C and nvcc, as all kernels; results
 * go to plain memory of the rank ("out").
 */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include <isthmus/device.h>

/* ---- order on streams ------------------------------------------------------------------------ */

/* Waits until *word >= least or `wait_ns` have passed; *result = ist_wait_result + 1. */
typedef struct tk_gate_args {
    const ist_dev_comm *dev; /* may be NULL */
    const uint64_t *word;
    uint64_t least;
    uint64_t wait_ns;
    uint64_t *result;
} tk_gate_args;

/* Appends `value` to a list: list[0] is the length. */
typedef struct tk_append_args {
    uint64_t *list;
    uint64_t value;
} tk_append_args;

/* *to = *from * factor + addend: chains show an order that no other order gives. */
typedef struct tk_affine_args {
    uint64_t *to;
    const uint64_t *from;
    uint64_t factor, addend;
} tk_affine_args;

/* ---- coops ----------------------------------------------------------------------------------- */

/* Every block writes its number, and block_count, to out[2 * block]. All blocks then meet
   `rounds` times over a word, checking each other's numbers. */
typedef struct tk_blocks_args {
    uint64_t *out;    /* [2 * blocks], then errors, elected */
    uint64_t *meet;   /* zeroed word */
    uint64_t *values; /* [blocks] */
    uint32_t rounds;
    uint32_t reserved;
} tk_blocks_args;

typedef struct tk_scan_args {
    const uint32_t *in;
    uint32_t *out; /* [count], then the total */
    uint32_t count;
    uint32_t reserved;
} tk_scan_args;

typedef struct tk_rank_by_key_args {
    const int32_t *keys;
    uint32_t *ordinals, *totals;
    uint32_t count, key_count;
} tk_rank_by_key_args;

typedef struct tk_scratch_args {
    uint64_t *out; /* [0] wrong words, [1] misaligned slots, [2] moved slots */
    uint32_t bytes_a_slot;
    uint32_t reserved;
} tk_scratch_args;

/* out[i]: what each atomic returned and left. */
typedef struct tk_atomics_args {
    uint64_t *words; /* 4 words, zeroed */
    uint64_t *out;   /* 8 words */
} tk_atomics_args;

/* All blocks add to one word `times` times. */
typedef struct tk_count_args {
    uint64_t *word;
    uint32_t times;
    uint32_t reserved;
} tk_count_args;

/* ---- rows ------------------------------------------------------------------------------------ */

#define TK_SOURCES_MAX 16u

typedef struct tk_row_args {
    void *dst;
    const void *src;
    uint64_t bytes;
    uint32_t fill; /* 1: fill with `value` */
    uint32_t value;
} tk_row_args;

typedef struct tk_row_many_args {
    void *dst[IST_ROW_TARGETS_MAX];
    const void *src;
    uint64_t bytes;
    uint32_t count;
    uint32_t reserved;
} tk_row_many_args;

typedef struct tk_row_reduce_args {
    void *dst;
    const void *src[TK_SOURCES_MAX];
    float weight[TK_SOURCES_MAX];
    uint64_t elements;
    uint32_t count;
    uint32_t weighted;
    uint32_t dtype;
    uint32_t
        batch; /* 1: as one of a batch, with a hole before each source and a sum without place */
} tk_row_reduce_args;

/* Block b writes `count` tagged words of (round << 8 | b) and waits for those of the next block. */
typedef struct tk_tagged_args {
    uint64_t *words; /* [blocks][count], zeroed */
    uint64_t *out;   /* [0] wrong data, [1] waits that did not end as they must, [2] of the test */
    uint32_t count;
    uint32_t rounds;
} tk_tagged_args;

/* ---- load/store peers ------------------------------------------------------------------------ */

/*
 * Each rank writes `words` words to each load/store peer's window, then a released flag; waits for
 * all flags, sums what it got. Layout of a window: u64 flags[rank_count], u64 data[rank_count][words].
 */
typedef struct tk_lsa_args {
    const ist_dev_comm *dev;
    uint64_t *out; /* [0] failed waits, [1] sum, [2] peers not reachable */
    uint64_t tag;
    uint64_t wait_ns;
    uint32_t window;
    uint32_t words;
} tk_lsa_args;

/* `rounds` LSA barriers with a peer write between; out: [0] wrong values, [1] failed barriers. */
typedef struct tk_lsa_barrier_args {
    const ist_dev_comm *dev;
    uint64_t *out;
    uint64_t wait_ns;
    uint32_t window;
    uint32_t rounds;
    uint32_t barrier;
    uint32_t reserved;
    uint64_t first_wait_ns; /* of the first barrier alone */
} tk_lsa_barrier_args;

/* Addresses of the window, local and at peers: out[peer] = 1 when not NULL; out[R] local. */
typedef struct tk_address_args {
    const ist_dev_comm *dev;
    uint64_t *out;
    uint64_t offset;
    uint32_t window;
    uint32_t reserved;
} tk_address_args;

/* ---- the network ----------------------------------------------------------------------------- */

/* What tk_gin does, in this order when set: */
#define TK_GIN_PUT 1u    /* `count` puts of `bytes` at src_offset to dst_offset, both advancing */
#define TK_GIN_VALUE 2u  /* a word to dst_offset + count * bytes */
#define TK_GIN_SIGNAL 4u /* a signal without data */
#define TK_GIN_FLUSH 8u
#define TK_GIN_COUNTER 16u /* waits until `counter` has counted `count` puts */
#define TK_GIN_WAIT 32u    /* waits for `signal` >= least */

typedef struct tk_gin_args {
    const ist_dev_comm *dev;
    uint64_t *out; /* [0] flush, [1] counter, [2] signal: ist_wait_result + 1; [3] signal value */
    uint64_t src_offset, dst_offset, bytes;
    uint64_t value; /* of put_value and of ADD signals */
    uint64_t least;
    uint64_t wait_ns;
    uint32_t what;
    uint32_t window;
    uint32_t peer, context, signal, counter;
    uint32_t count;
    uint32_t put_action;    /* ist_gin_action_kind of each put and of the put_value */
    uint32_t signal_action; /* of the signal */
    uint32_t reserved;
} tk_gin_args;

/* Reads and resets: out = {signal before, after reset, counter before, after reset}. */
typedef struct tk_gin_reset_args {
    const ist_dev_comm *dev;
    uint64_t *out;
    uint32_t context, signal, counter;
    uint32_t reserved;
} tk_gin_reset_args;

/* ---- waits and masks ------------------------------------------------------------------------- */

/*
 * Each rank raises a flag or signal at every peer (`silent`: at none), then waits for all.
 * out: [0] returned count, [1] waited ns, [2 + peer] result + 1.
 */
typedef struct tk_peers_args {
    const ist_dev_comm *dev;
    uint64_t *out;
    uint64_t tag;
    uint64_t wait_ns;
    uint32_t window;
    uint32_t silent;
    uint32_t skip_self;
    uint32_t drop; /* 1: drop those that timed out; their count to out[2 + R] */
    uint64_t step; /* what signals are raised by: tag minus the tag before */
} tk_peers_args;

/* Waits that nobody ends, and a flush of nothing: out = result + 1 of word, signal, counter, flush. */
typedef struct tk_timeouts_args {
    const ist_dev_comm *dev;
    uint64_t *out;
    const uint64_t *word;
    uint64_t wait_ns;
    uint32_t network; /* 1: signals and counters exist */
    uint32_t reserved;
} tk_timeouts_args;

/* out = active bit of each rank, then ist_aborted. */
typedef struct tk_mask_args {
    const ist_dev_comm *dev;
    uint64_t *out;
} tk_mask_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_tk_gate;
extern const ist_kernel ist_kernel_tk_append;
extern const ist_kernel ist_kernel_tk_affine;
extern const ist_kernel ist_kernel_tk_blocks;
extern const ist_kernel ist_kernel_tk_scan;
extern const ist_kernel ist_kernel_tk_rank_by_key;
extern const ist_kernel ist_kernel_tk_scratch;
extern const ist_kernel ist_kernel_tk_atomics;
extern const ist_kernel ist_kernel_tk_count;
extern const ist_kernel ist_kernel_tk_row;
extern const ist_kernel ist_kernel_tk_row_many;
extern const ist_kernel ist_kernel_tk_row_reduce;
extern const ist_kernel ist_kernel_tk_tagged;
extern const ist_kernel ist_kernel_tk_lsa;
extern const ist_kernel ist_kernel_tk_lsa_barrier;
extern const ist_kernel ist_kernel_tk_address;
extern const ist_kernel ist_kernel_tk_gin;
extern const ist_kernel ist_kernel_tk_gin_reset;
extern const ist_kernel ist_kernel_tk_peers;
extern const ist_kernel ist_kernel_tk_timeouts;
extern const ist_kernel ist_kernel_tk_mask;
#endif

#endif
