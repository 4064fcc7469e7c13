/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file device.h
 * The portable device header: all that a kernel may include.
 *
 * A kernel is one text, compiled by the C compiler for the simulator and by nvcc for GPUs. It is
 * written for a cooperative group (coop), here a whole block, not for a thread:
 *
 *   - work over elements and lanes goes through IST_EACH_LANE() or a primitive;
 *   - functions named ist_coop_* and all functions documented "collective" are called by every
 *     lane with the same arguments; "lane" functions may be called by one lane alone;
 *   - device memory that another block or rank may touch is read and written through these calls
 *     only, never through a plain pointer: each call is a possible scheduling point of the
 *     simulator and the place where its memory model looks;
 *   - block-private memory from ist_coop_scratch() is ordinary memory.
 *
 * In the simulator one coop is one fiber and runs all lanes in turn. On CUDA these calls are
 * inlined device functions. Waits are bounded and return what happened.
 *
 * Ordering vocabulary: a release makes the caller's earlier accesses visible before it; an acquire
 * makes later accesses see what the release that it read from covered. Scope says between whom.
 * Source: the CUDA C++ memory model, which is that of C++ with scopes; LSA, GIN and their orders
 * follow the device API of NCCL.
 *
 * What a kernel may not do (a NULL address, an index that does not exist) is reported, not trapped,
 * by the simulator: the call does nothing and gives 0, NULL or IST_WAIT_ERROR, and the rank's streams
 * fail with IST_ERR_DEVICE. On GPUs indices have the same answers, and a bad address is a fault of
 * the device.
 *
 * @threads device code: inside a kernel, by the lanes that each comment names
 * @since 0.1
 */
#ifndef IST_DEVICE_H
#define IST_DEVICE_H

#include <isthmus/team.h>
#include <isthmus/types.h>

/* ---- types shared by host and device --------------------------------------------------------- */

/** Memory order of one access. */
typedef enum ist_order {
    IST_RELAXED = 0, /**< orders nothing */
    IST_ACQUIRE = 1, /**< later accesses come after it */
    IST_RELEASE = 2, /**< earlier accesses come before it */
    IST_ACQ_REL = 3  /**< both */
} ist_order;

/** Who must observe the order. */
typedef enum ist_scope {
    IST_SCOPE_BLOCK = 0,  /**< lanes of one block */
    IST_SCOPE_DEVICE = 1, /**< blocks of one rank */
    IST_SCOPE_SYSTEM = 2  /**< other ranks, NICs and the host */
} ist_scope;

/** How a wait ended for one peer. */
typedef enum ist_wait_result {
    IST_WAIT_DONE = 0,    /**< the expected value was seen */
    IST_WAIT_TIMEOUT = 1, /**< the deadline passed */
    IST_WAIT_MASKED = 2,  /**< the peer is not, or no longer, in the mask */
    IST_WAIT_ABORTED = 3, /**< the communicator was aborted */
    IST_WAIT_ERROR = 4    /**< the network reported an error for this peer */
} ist_wait_result;

/** Errors that a mask keeps; later ones are counted only. */
#define IST_DEV_ERRORS_MAX 16u

/** Why device code gave a peer up. Plain numbers; the front turns them into an ist_error. */
typedef struct ist_dev_error {
    int32_t status;     /**< ist_status */
    uint32_t peer;      /**< rank in the communicator */
    uint32_t operation; /**< ist_dev_operation */
    uint32_t reserved;  /**< zero; private while a record is being written */
    uint64_t sequence;  /**< tag of the operation */
    uint64_t expected;  /**< value that was waited for */
    uint64_t observed;  /**< value that was there */
    uint64_t waited_ns; /**< how long was waited */
} ist_dev_error;

/** Operations as they appear in records; values are permanent. */
typedef enum ist_dev_operation {
    IST_DEV_OP_NONE = 0,        /**< none in particular: a peer's notice */
    IST_DEV_OP_BARRIER = 1,     /**< ist_comm_barrier() */
    IST_DEV_OP_AGREE = 2,       /**< ist_comm_agree() */
    IST_DEV_OP_CLEAN = 3,       /**< ist_comm_clean() */
    IST_DEV_OP_EP_DISPATCH = 4, /**< ist_ep_dispatch() */
    IST_DEV_OP_EP_COMBINE = 5,  /**< ist_ep_combine() */
    IST_DEV_OP_EP_CLEAN = 6,    /**< ist_ep_clean() */
    IST_DEV_OP_USER = 64        /**< from here on: kernels of programs */
} ist_dev_operation;

/** Most words of a mask: 65536 ranks. */
#define IST_DEV_MASK_WORDS 1024u

/**
 * The mask of a communicator, in host-visible device memory, written by device code and by the
 * host, read by both through memory. Bits beyond rank_count are zero.
 */
typedef struct ist_dev_mask {
    uint64_t generation;     /**< starts at 1 */
    uint32_t rank_count;     /**< ranks of the communicator */
    uint32_t fault_tolerant; /**< 0: a lost peer fails the operation, bits are never cleared */
    uint64_t abort_word;     /**< not 0: every wait ends with IST_WAIT_ABORTED */
    uint64_t error_count;    /**< errors since the last clear */
    uint64_t evicted;      /**< not 0: some peer told this rank that it masked it (its rank + 1) */
    int64_t failed_status; /**< not 0: ist_status that made the communicator unusable */
    uint64_t *alarm;       /**< host-visible, not 0 once an error was recorded; NULL: none */
    ist_dev_error errors[IST_DEV_ERRORS_MAX]; /**< the first min(error_count, 16), oldest first */
    uint64_t words[];                         /**< (rank_count + 63) / 64 words, 1 = active */
} ist_dev_mask;

/** Bytes of an ist_dev_mask for a number of ranks. */
#define IST_DEV_MASK_BYTES(rank_count)                                                             \
    (sizeof(ist_dev_mask) + (((size_t)(rank_count) + 63u) / 64u) * sizeof(uint64_t))

/** One window as device code sees it. */
typedef struct ist_dev_window {
    uint64_t bytes;   /**< on this rank; 0: not open */
    void *local;      /**< this rank's copy */
    void *const *lsa; /**< [lsa_size] addresses of the team members' copies */
    void *backend;    /**< private */
} ist_dev_window;

/** The device side of a communicator. Kernels get a pointer in their arguments. */
typedef struct ist_dev_comm {
    uint32_t rank;              /**< this rank's number in the communicator */
    uint32_t rank_count;        /**< ranks of the communicator */
    uint32_t lsa_rank;          /**< index in the load/store team */
    uint32_t lsa_size;          /**< members; the team is ranks rank - lsa_rank + [0, lsa_size) */
    uint32_t context_count;     /**< GIN contexts */
    uint32_t signal_count;      /**< signals of each context */
    uint32_t counter_count;     /**< counters of each context */
    uint32_t lsa_barrier_count; /**< LSA barriers */
    uint32_t window_count;      /**< entries of `windows` */
    uint32_t reserved;          /**< zero */
    const ist_dev_window *windows; /**< [window_count]; entry 0 is the resource window */
    ist_dev_mask *mask;            /**< NULL: no mask, all ranks active */
    void *backend;                 /**< private */
} ist_dev_comm;

/** What a put or signal does at the target once its data is there. */
typedef enum ist_gin_action_kind {
    IST_GIN_NONE = 0,            /**< nothing */
    IST_GIN_SIGNAL_INC = 1,      /**< adds 1; strong: covers all earlier puts of (context, peer) */
    IST_GIN_SIGNAL_ADD = 2,      /**< adds a value; strong */
    IST_GIN_WEAK_SIGNAL_INC = 3, /**< adds 1; weak: covers the put that it travels with */
    IST_GIN_WEAK_SIGNAL_ADD = 4  /**< adds a value; weak */
} ist_gin_action_kind;

/** Completion action at the target. */
typedef struct ist_gin_action {
    ist_gin_action_kind kind; /**< what to do */
    uint32_t signal;          /**< number in the context; not used with NONE */
    uint64_t value;           /**< for ADD */
} ist_gin_action;

/** A put that no counter counts. */
#define IST_GIN_NO_COUNTER UINT32_MAX

/** Most places that ist_row_copy_many() writes to. */
#define IST_ROW_TARGETS_MAX 32u

/** A batch of rows of equal length, each to several places. The arrays are in scratch. */
typedef struct ist_row_batch {
    const void *const
        *src;         /**< [row_count] rows, in device memory; not read where places[i] is 0 */
    void *const *dst; /**< [row_count][stride] places, in device memory; NULL: skipped */
    const uint32_t *places; /**< [row_count] places of each row, at most IST_ROW_TARGETS_MAX */
    uint32_t stride;        /**< entries of `dst` from row to row */
    uint32_t row_count;     /**< rows */
    uint64_t bytes;         /**< of a row */
} ist_row_batch;

/** A batch of weighted sums of rows of equal length. The arrays are in scratch. */
typedef struct ist_row_sums {
    void *const *dst;       /**< [row_count] places, in device memory; NULL: no such sum */
    const void *const *src; /**< [row_count][stride] rows, in device memory; NULL: left out */
    const float *weight;    /**< [row_count][stride], or NULL: plain sums */
    uint64_t elements;      /**< of a row */
    uint32_t stride;        /**< sources of a sum, at most IST_ROW_TARGETS_MAX */
    uint32_t row_count;     /**< sums */
    ist_dtype dtype;        /**< of rows and results: IST_F16, IST_BF16 or IST_F32 */
    uint32_t reserved;      /**< zero */
} ist_row_sums;

/** A part of a list of copies. */
typedef struct ist_row_part {
    void *dst;       /**< place */
    const void *src; /**< must not overlap any place of the list */
    uint64_t bytes;  /**< 0: nothing is copied */
} ist_row_part;

/**
 * A wait for one word or signal from each peer. Peer p of the load/store team writes words[p];
 * other peers raise signal (signal_first + p) of context p % context_count. Done when the value
 * equals `expected` exactly. Peers whose bit in the mask is 0 are not waited for.
 */
typedef struct ist_peer_wait {
    const uint64_t *words; /**< [rank_count] in this rank's window, 8-byte aligned */
    uint64_t expected;     /**< a tag, never 0 */
    uint64_t deadline_ns;  /**< point in ist_clock_ns() time */
    uint32_t signal_first; /**< signal of rank 0; not used without ranks outside the team */
    uint32_t skip_self;    /**< 1: the own entry is done at once */
} ist_peer_wait;

struct ist_coop;
/** The lanes that run a kernel's text together: one block. Private to the backend. */
typedef struct ist_coop ist_coop;

/** A kernel as the host names it. Made by IST_KERNEL(). */
typedef struct ist_kernel {
    const char *name;    /**< unique; the CUDA symbol is "ist_kernel_<name>" */
    uint32_t args_bytes; /**< sizeof its argument struct */
    uint32_t reserved;   /**< zero */
    void (*body)(ist_coop *coop, const void *args); /**< C body, NULL in CUDA objects */
    const char *source;                             /**< file, for reports */
} ist_kernel;

#if !defined(__CUDACC__)
IST_BEGIN_DECLS

/**
 * Makes a kernel known by name; IST_KERNEL() calls it. A name that another kernel has, or a 513th
 * kernel, is refused in the log. NULL, or a kernel without a name, is ignored.
 *
 * @param kernel  stays where it is until the process ends
 * @threads constructors, before main
 * @since 0.1
 */
IST_API void ist_kernel_register(const ist_kernel *kernel);

/**
 * Finds a registered kernel.
 *
 * @return NULL when there is none of that name, or `name` is NULL
 * @threads any
 * @since 0.1
 */
IST_API const ist_kernel *ist_kernel_find(const char *name);

/**
 * Device code of kernels for a GPU backend: a fat binary that nvcc made of the texts which define
 * them. The build makes one of these, and its registration, for each text (isthmusKernels.cmake).
 */
typedef struct ist_kernel_image {
    const void *data;   /**< 8-byte aligned; stays where it is */
    uint64_t bytes;     /**< of `data` */
    const char *needs;  /**< NULL, or the device interface it was built for, e.g. "nccl-2.28" */
    const char *source; /**< file, for reports */
} ist_kernel_image;

/**
 * Makes an image known; constructors call it. A 65th is refused in the log. NULL, or an image without
 * data, is ignored.
 *
 * @param image  stays where it is until the process ends
 * @threads constructors, or any while no world runs
 * @since 0.1
 */
IST_API void ist_kernel_image_register(const ist_kernel_image *image);

/**
 * Images in order of registration, for backends.
 *
 * @param index  0, 1, …
 * @return NULL past the last
 * @threads any
 * @since 0.1
 */
IST_API const ist_kernel_image *ist_kernel_image_at(uint32_t index);

/**
 * Enqueues a kernel. Never blocks the host. Capturable.
 *
 * @param block_count  1 … sm_count of ist_comm_query(); all blocks are resident at once
 * @param args         [args_bytes], copied by the call; device addresses inside must be this rank's
 * @param args_bytes   exactly kernel->args_bytes
 * @return IST_OK when it is enqueued; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE (args_bytes);
 *         IST_ERR_RANGE (block_count); IST_ERR_MEMORY; on GPUs IST_ERR_UNSUPPORTED when
 *         there is no device code of the kernel for them
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_launch(ist_stream *stream, const ist_kernel *kernel, uint32_t block_count,
                              const void *args, size_t args_bytes);

/**
 * Opens a device communicator for user kernels: signals, counters, barriers, a zeroed symmetric
 * buffer (window 0). Collective over the communicator; BLOCKS, each of its meetings bounded by the
 * communicator's deadline; opens on all ranks or on none.
 *
 * @param resource_bytes     of window 0 on each rank, <= 2^46; 0: none
 * @param context_count      GIN contexts, <= 64; 0: no GIN
 * @param signal_count       signals of each context, <= 2^24; 0 without contexts
 * @param counter_count      counters of each context, <= 2^24; 0 without contexts
 * @param lsa_barrier_count  LSA barriers, <= 4096
 * @param dev                out: pass it to kernels; valid until it or the communicator is closed
 * @return IST_OK. On the rank that is wrong: IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_RANGE naming the
 *         argument; IST_ERR_UNSUPPORTED with the reason; IST_ERR_MEMORY. On its peers, and where
 *         arguments differ and any rank checks peers: IST_ERR_MISMATCH. IST_ERR_TIMEOUT naming a
 *         rank that did not come; IST_ERR_ABORTED; what made the communicator unusable
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_dev_comm_open(ist_comm *comm, uint64_t resource_bytes,
                                                  uint32_t context_count, uint32_t signal_count,
                                                  uint32_t counter_count,
                                                  uint32_t lsa_barrier_count,
                                                  const ist_dev_comm **dev);

/**
 * Closes a device communicator. Local; streams that use it have been synchronised. BLOCKS until what
 * this rank's kernels have put on the network has arrived at peers that are not masked, at most for
 * the communicator's deadline; what has not arrived by then is lost. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_NULL (comm); IST_ERR_OBJECT, also when `dev` is none of `comm`'s
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_dev_comm_close(ist_comm *comm, const ist_dev_comm *dev);

IST_END_DECLS
#endif

/* ---- kernels --------------------------------------------------------------------------------- */

#if defined(__CUDACC__)
#include <isthmus/detail/cuda_device.cuh>
#else

/** Marks a function that kernels share. */
#define IST_DEVICE_FN static inline

/**
 * Marks a long function that kernels run rarely: on GPUs it lies apart, so that the text which runs
 * always stays short. It takes structs by value, and is called through IST_RARELY().
 */
#define IST_DEVICE_RARE_FN static inline

/** Runs a statement that calls a rare function: IST_RARELY(coop, x = rare(coop, …)). */
#define IST_RARELY(coop, statement)                                                                \
    do {                                                                                           \
        statement;                                                                                 \
    } while (0)

/**
 * Defines a kernel: IST_KERNEL(name, args_type) { … uses `coop` and `args` … } makes the object
 * `ist_kernel_<name>` for ist_launch(), and registers it. `args_type` is a plain struct.
 */
#define IST_KERNEL(name_, args_type)                                                               \
    static void ist_kernel_body_##name_(ist_coop *coop, const args_type *args);                    \
    static void ist_kernel_entry_##name_(ist_coop *coop, const void *args_)                        \
    {                                                                                              \
        ist_kernel_body_##name_(coop, (const args_type *)args_);                                   \
    }                                                                                              \
    extern const ist_kernel ist_kernel_##name_;                                                    \
    const ist_kernel ist_kernel_##name_ = {#name_, (uint32_t)sizeof(args_type), 0,                 \
                                           ist_kernel_entry_##name_, __FILE__};                    \
    __attribute__((constructor)) static void ist_kernel_ctor_##name_(void)                         \
    {                                                                                              \
        ist_kernel_register(&ist_kernel_##name_);                                                  \
    }                                                                                              \
    static void ist_kernel_body_##name_(ist_coop *coop, const args_type *args)

/** Before a loop of few turns: a hint that unrolling it would cost more than it saves. */
#define IST_ROLLED

/** Says that a condition holds, which the caller has made sure of: text for the other case is left
 *  out on GPUs. Nothing is evaluated. */
#define IST_ASSUME(condition) ((void)0)

/** Runs the statement that follows for i = 0 … n-1, spread over the lanes of the coop. */
#define IST_EACH_LANE(coop, i, n)                                                                  \
    (void)(coop);                                                                                  \
    for (uint32_t i = 0, i##_end_ = (uint32_t)(n); i < i##_end_; ++i)

/** The same from the last lane downwards: what lies next to work of the first lanes, and need not wait
 *  for it. */
#define IST_EACH_LANE_BACK(coop, i, n) IST_EACH_LANE (coop, i, n)

IST_BEGIN_DECLS

/* Coops. */

/**
 * This block's number in the launch. Lane.
 * @return 0 … block_count - 1
 */
IST_API uint32_t ist_coop_block(const ist_coop *coop);

/**
 * Blocks of this launch. Lane.
 * @return at least 1
 */
IST_API uint32_t ist_coop_block_count(const ist_coop *coop);

/**
 * Chooses one lane of the block, always the same. Lane. Orders nothing.
 * @return 1 in exactly that lane, else 0
 */
IST_API int ist_coop_elect(const ist_coop *coop);

/**
 * All lanes of the block meet; their memory accesses before are visible to each other after. Rows
 * that the block has copied are there. Collective.
 */
IST_API void ist_coop_sync(ist_coop *coop);

/**
 * Block-private memory, 16-byte aligned, contents undefined; freed at the end of the kernel.
 * Collective. At most 64 KiB in all slots are portable.
 *
 * @param slot   0 … 7 names it: asking again for a slot returns the same memory if `bytes` is not
 *               larger, else other memory
 * @param bytes  wanted
 * @return the memory; NULL on GPUs when the slot does not exist or there is no room. In the simulator
 *         a slot that does not exist is reported and gives 16 bytes, and a block without host memory
 *         ends
 */
IST_API void *ist_coop_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes);

/**
 * One lane adds `value` to *word. Collective; syncs the coop before (so that a release covers all
 * lanes) and after (so that an acquire does).
 * @return in all lanes, the value before
 */
IST_API uint64_t ist_coop_fetch_add(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                                    ist_scope scope);

/**
 * Waits until *word >= least, unsigned. Collective; acquire at `scope`, then syncs the coop. For
 * blocks of one launch that wait for each other.
 *
 * @param dev          whose abort ends the wait; NULL: none
 * @param deadline_ns  point in ist_clock_ns() time
 * @return IST_WAIT_DONE, IST_WAIT_TIMEOUT or IST_WAIT_ABORTED
 */
IST_API ist_wait_result ist_coop_wait_word(ist_coop *coop, const ist_dev_comm *dev,
                                           const uint64_t *word, uint64_t least,
                                           uint64_t deadline_ns, ist_scope scope);

/**
 * Waits until the upper half of each of some words equals `tag`: words that carry 32 bits of data each,
 * so that no flag follows them. Collective; acquire at `scope`, then syncs the coop.
 *
 * @param dev          whose abort ends the wait; NULL: none
 * @param words        [count] addresses in scratch; NULL: not waited for
 * @param data         out: [count] in scratch, lower halves; of NULL they stay, after TIMEOUT or ABORTED
 *                     they are undefined
 * @param deadline_ns  point in ist_clock_ns() time
 * @return IST_WAIT_DONE, IST_WAIT_TIMEOUT or IST_WAIT_ABORTED
 */
IST_API ist_wait_result ist_coop_wait_tagged(ist_coop *coop, const ist_dev_comm *dev,
                                             const uint64_t *const *words, uint32_t *data,
                                             uint32_t count, uint32_t tag, uint64_t deadline_ns,
                                             ist_scope scope);

/**
 * In-place exclusive prefix sum. Collective; syncs.
 *
 * @param values  [count] in scratch
 * @return in all lanes, the sum of all values, modulo 2^32
 */
IST_API uint32_t ist_coop_scan(ist_coop *coop, uint32_t *values, uint32_t count);

/**
 * Ranks items by key, stably. For each i < count with 0 <= keys[i] < key_count: ordinals[i] = number
 * of j < i with the same key; totals[key] = how many have it. Other i: ordinals[i] = UINT32_MAX.
 * Collective; syncs.
 *
 * @param keys      [count]
 * @param ordinals  out: [count]
 * @param totals    out: [key_count]; all three are device memory of this rank that no other block
 *                  touches
 */
IST_API void ist_coop_rank_by_key(ist_coop *coop, const int32_t *keys, uint32_t count,
                                  uint32_t *ordinals, uint32_t *totals, uint32_t key_count);

/* Memory: one lane, one word, naturally aligned, any address that this rank may access: its own
   device memory, or a load/store peer's in a window. */

/**
 * Loads a word. Lane.
 * @param order  IST_RELAXED or IST_ACQUIRE
 * @return its value
 */
IST_API uint32_t ist_load_u32(ist_coop *coop, const uint32_t *word, ist_order order,
                              ist_scope scope);

/**
 * Loads a word. Lane.
 * @param order  IST_RELAXED or IST_ACQUIRE
 * @return its value
 */
IST_API uint64_t ist_load_u64(ist_coop *coop, const uint64_t *word, ist_order order,
                              ist_scope scope);

/**
 * Stores a word. Lane.
 * @param order  IST_RELAXED or IST_RELEASE
 */
IST_API void ist_store_u32(ist_coop *coop, uint32_t *word, uint32_t value, ist_order order,
                           ist_scope scope);

/**
 * Stores a word. Lane.
 * @param order  IST_RELAXED or IST_RELEASE
 */
IST_API void ist_store_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                           ist_scope scope);

/**
 * Adds `value` to a word, modulo 2^64. Lane.
 * @return the value before
 */
IST_API uint64_t ist_fetch_add_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                                   ist_scope scope);

/**
 * Clears the bits of a word that are 0 in `value`. Lane.
 * @return the value before
 */
IST_API uint64_t ist_fetch_and_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                                   ist_scope scope);

/**
 * Replaces the value of a word by `desired` if it is `expected`. Lane.
 * @return the value before: `expected` exactly when it was replaced
 */
IST_API uint64_t ist_compare_swap_u64(ist_coop *coop, uint64_t *word, uint64_t expected,
                                      uint64_t desired, ist_order order, ist_scope scope);

/** Orders this lane's accesses before against those after, as a fence of that order and scope. */
IST_API void ist_fence(ist_coop *coop, ist_order order, ist_scope scope);

/* Rows: collective; dst and src 16-byte aligned for full speed, any alignment allowed. They order
   nothing by themselves: a coop sync and a release, or a barrier, must follow. */

/**
 * Copies a row. Source or destination may be a load/store peer's memory. Collective.
 * @param bytes  of the row; the two must not overlap
 */
IST_API void ist_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes);

/**
 * Reads a row once and writes it to several places. Collective.
 *
 * @param dst    [count] places, in scratch or argument memory; none overlaps the source
 * @param count  at most IST_ROW_TARGETS_MAX; 0: nothing is done
 * @param bytes  of the row
 */
IST_API void ist_row_copy_many(ist_coop *coop, void *const *dst, uint32_t count, const void *src,
                               uint64_t bytes);

/**
 * As ist_row_copy_many() for each row of a batch, all in flight together. No place overlaps any row
 * or other place. Collective.
 * @param batch  its struct is in the lane's own memory
 */
IST_API void ist_row_copy_batch(ist_coop *coop, const ist_row_batch *batch);

/**
 * As ist_row_copy() for each part of a list, all in flight together. No part overlaps another.
 * Collective.
 * @param parts  [count] in scratch
 */
IST_API void ist_row_copy_list(ist_coop *coop, const ist_row_part *parts, uint32_t count);

/** Fills `bytes` bytes with one value. Collective. */
IST_API void ist_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes);

/**
 * Weighted sum of rows: dst[i] = round(acc_i), acc_i = fma(src[s][i], weight[s], acc_i) in f32 for
 * s = 0 … count-1 from +0; weight NULL: acc_i = src[s][i] + acc_i. One rounding to nearest even at
 * the end (none for f32; IEEE 754-2008). Collective.
 *
 * @param dst       [elements]
 * @param src       [count] rows of [elements]; the array is in scratch or argument memory
 * @param weight    [count] in scratch or argument memory, or NULL
 * @param count     0 gives +0
 * @param dtype     of rows and result: IST_F16, IST_BF16 or IST_F32
 */
IST_API void ist_row_reduce(ist_coop *coop, void *dst, const void *const *src, const float *weight,
                            uint32_t count, uint64_t elements, ist_dtype dtype);

/**
 * As ist_row_reduce() for each sum of a batch, over its sources that are not NULL, in their order. A
 * place may be a load/store peer's memory; none overlaps a row or another place. Collective.
 * @param batch  its struct is in the lane's own memory
 */
IST_API void ist_row_reduce_batch(ist_coop *coop, const ist_row_sums *batch);

/* Windows: addresses; lane. */

/**
 * Address of a place in this rank's copy of a window. Lane.
 *
 * @param window  ist_window_index(), or 0 for the resource window
 * @param offset  bytes, below the window's size
 * @return the address; NULL outside, which the simulator also reports as IST_ERR_DEVICE
 */
IST_API void *ist_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                               uint64_t offset);

/**
 * Address of a place in the copy of a load/store peer. Lane.
 *
 * @param offset  bytes, below the window's size on the peer
 * @param peer    rank in the communicator, may be this one
 * @return the address; NULL outside the team, or outside the window as the peer has opened it
 */
IST_API void *ist_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                              uint64_t offset, uint32_t peer);

/* What does not change while a kernel runs. On GPUs these are read once, whatever is acquired in between;
   a plain load of the field is made again after every acquire. */

/** This rank's number in the communicator. Lane. */
IST_DEVICE_FN uint32_t ist_dev_rank(const ist_dev_comm *dev)
{
    return dev->rank;
}

/** Ranks of the communicator. Lane. */
IST_DEVICE_FN uint32_t ist_dev_rank_count(const ist_dev_comm *dev)
{
    return dev->rank_count;
}

/** Where the communicator's mask lies, NULL: it has none. Lane. */
IST_DEVICE_FN ist_dev_mask *ist_dev_mask_of(const ist_dev_comm *dev)
{
    return dev->mask;
}

/**
 * Whether a rank of the communicator is in the load/store team of this rank. Lane.
 * @return 1 or 0
 */
IST_DEVICE_FN int ist_dev_is_lsa(const ist_dev_comm *dev, uint32_t peer)
{
    uint32_t first = dev->rank - dev->lsa_rank;
    return peer >= first && peer < first + dev->lsa_size;
}

/**
 * Whether some ranks of the communicator are outside the load/store team. Lane. Text for the network
 * behind it is left out where there can be none: in GPU code that was built without it.
 * @return 1 or 0
 */
IST_DEVICE_FN int ist_dev_has_network(const ist_dev_comm *dev)
{
    return dev->lsa_size < dev->rank_count;
}

/* Waits and masks. */

/**
 * This rank's device clock, for deadlines. Lane. In the simulator it is that of
 * ist_world_clock_ns(); on GPUs it has an origin of its own.
 * @return nanoseconds
 */
IST_API uint64_t ist_clock_ns(ist_coop *coop);

/**
 * Waits for one word or signal from each peer. Collective; acquire at system scope for those that
 * are DONE, then syncs the coop. A peer that is masked while it is waited for ends as MASKED.
 * Changes nothing else.
 *
 * @param results  out: [rank_count] in scratch, an ist_wait_result a rank
 * @return in all lanes, the number of ranks whose result is TIMEOUT, ERROR or ABORTED
 */
IST_API uint32_t ist_wait_peers(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *wait,
                                uint8_t *results);

/**
 * Whether a rank is active in the mask, read through memory now. Lane.
 * @return 1 or 0; 1 without a mask
 */
IST_API int ist_mask_active(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);

/**
 * Gives a peer up: clears its bit (if fault tolerant; else marks the communicator failed), records
 * `error` if this call did so, raises the host-visible count, all with release at system scope. One
 * lane.
 *
 * @param error  `peer` names whom
 * @return 1 when this call gave the peer up; 0 when it was masked, the communicator had failed
 *         before, or there is no mask
 */
IST_API int ist_mask_drop(ist_coop *coop, const ist_dev_comm *dev, const ist_dev_error *error);

/**
 * Whether the communicator was aborted. Lane.
 * @return 1 or 0; 0 without a mask
 */
IST_API int ist_aborted(ist_coop *coop, const ist_dev_comm *dev);

/* LSA barrier: collective over one block of each member, same index; masked peers are skipped. The
   mask's generation must not change between arrive and wait. */

/**
 * Arrives: syncs the coop, then releases earlier accesses at system scope. Collective.
 * @param index  below the device communicator's lsa_barrier_count
 */
IST_API void ist_lsa_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev, uint32_t index);

/**
 * Waits for the others' arrival: acquire at system scope. Collective. The barrier stays usable after
 * a timeout.
 *
 * @param deadline_ns  point in ist_clock_ns() time
 * @param results      out: NULL, or [lsa_size] by index in the team, an ist_wait_result each
 * @return IST_WAIT_DONE; IST_WAIT_TIMEOUT (some peer); IST_WAIT_ABORTED; IST_WAIT_ERROR (no such
 *         barrier)
 */
IST_API ist_wait_result ist_lsa_barrier_wait(ist_coop *coop, const ist_dev_comm *dev,
                                             uint32_t index, uint64_t deadline_ns,
                                             uint8_t *results);

/**
 * Arrives, then waits. Collective.
 * @return as ist_lsa_barrier_wait()
 */
IST_API ist_wait_result ist_lsa_barrier_sync(ist_coop *coop, const ist_dev_comm *dev,
                                             uint32_t index, uint64_t deadline_ns,
                                             uint8_t *results);

/* GIN: GPU-initiated network. Collective unless said. Contract: puts of one (context, peer) are
   unordered; a weak signal covers its own put, a strong one all earlier puts of that (context,
   peer); nothing is ordered across contexts or peers. A peer is a rank of the communicator. The
   caller's writes are released to the NIC by the call (it syncs the coop first). */

/**
 * Puts bytes into the peer's copy of a window. Collective. The source belongs to the transport until
 * local completion.
 *
 * @param context        below context_count
 * @param peer           rank in the communicator
 * @param dst_offset     bytes from the start of the peer's copy of `dst_window`
 * @param src_offset     bytes from the start of this rank's copy of `src_window`
 * @param bytes          to put; 0: only the action and the counter
 * @param remote         done at the target once the bytes are there
 * @param local_counter  raised by 1 at local completion, not after an error; or IST_GIN_NO_COUNTER
 */
IST_API void ist_gin_put(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                         uint32_t dst_window, uint64_t dst_offset, uint32_t src_window,
                         uint64_t src_offset, uint64_t bytes, ist_gin_action remote,
                         uint32_t local_counter);

/**
 * Puts 8 bytes, captured by the call. Collective.
 *
 * @param dst_offset  bytes from the start of the peer's copy of `dst_window`
 * @param remote      done at the target once the bytes are there
 */
IST_API void ist_gin_put_value(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                               uint32_t peer, uint32_t dst_window, uint64_t dst_offset,
                               uint64_t value, ist_gin_action remote);

/** Raises a signal at the peer without data, in the order that `remote` says. Collective. */
IST_API void ist_gin_signal(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                            uint32_t peer, ist_gin_action remote);

/**
 * Value of a local signal. Lane.
 *
 * @param order  IST_ACQUIRE: the data that it covers is visible after; IST_RELAXED: it may not be
 * @return the sum of what was added since it was zero
 */
IST_API uint64_t ist_gin_signal_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                     uint32_t signal, ist_order order);

/** Sets a local signal to zero. Lane. Must not race with a peer's raising it. */
IST_API void ist_gin_signal_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                  uint32_t signal);

/**
 * Waits until a local signal is at least `least`: at most 2^63 - 1 ahead of it, modulo 2^64.
 * Collective; acquire at system scope, then syncs the coop.
 *
 * @param deadline_ns  point in ist_clock_ns() time
 * @return IST_WAIT_DONE; IST_WAIT_TIMEOUT; IST_WAIT_ABORTED; IST_WAIT_ERROR (no such signal)
 */
IST_API ist_wait_result ist_gin_signal_wait(ist_coop *coop, const ist_dev_comm *dev,
                                            uint32_t context, uint32_t signal, uint64_t least,
                                            uint64_t deadline_ns);

/**
 * Value of a counter, which counts local completions (source reusable) of puts that name it. Lane.
 * @return completions since it was zero
 */
IST_API uint64_t ist_gin_counter_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                      uint32_t counter);

/** Sets a counter to zero. Lane. Must not race with a completion. */
IST_API void ist_gin_counter_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                   uint32_t counter);

/**
 * Waits until a counter is at least `least`, compared as in ist_gin_signal_wait(). Collective; syncs
 * the coop.
 *
 * @param deadline_ns  point in ist_clock_ns() time
 * @return IST_WAIT_DONE; IST_WAIT_TIMEOUT; IST_WAIT_ABORTED; IST_WAIT_ERROR (no such counter)
 */
IST_API ist_wait_result ist_gin_counter_wait(ist_coop *coop, const ist_dev_comm *dev,
                                             uint32_t context, uint32_t counter, uint64_t least,
                                             uint64_t deadline_ns);

/**
 * Waits until the sources of all earlier puts of this block on this context are reusable. Says
 * nothing about the targets. Collective; syncs the coop.
 *
 * @param deadline_ns  point in ist_clock_ns() time
 * @return IST_WAIT_DONE; IST_WAIT_TIMEOUT; IST_WAIT_ABORTED; IST_WAIT_ERROR (a put completed with an
 *         error, or no such context)
 */
IST_API ist_wait_result ist_gin_flush(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                      uint64_t deadline_ns);

/**
 * Whether the network has reported an error for a peer since the last clear. Lane.
 * @return not 0 when it has
 */
IST_API int ist_gin_peer_error(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);

/** Forgets a peer's errors; signals and counters stay. Lane. For re-admitting a peer. */
IST_API void ist_gin_peer_clear(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);

/**
 * Names a place in a kernel, where a fault plan may strike. Costs nothing on GPUs. Collective: the
 * simulator counts one pass a block.
 * @param name  printable ASCII, at most 47 characters
 */
IST_API void ist_point(ist_coop *coop, const char *name);

IST_END_DECLS

#endif /* __CUDACC__ */

#endif
