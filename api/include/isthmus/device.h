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
 */
#ifndef IST_DEVICE_H
#define IST_DEVICE_H

#include <isthmus/team.h>
#include <isthmus/types.h>

/* ---- types shared by host and device --------------------------------------------------------- */

/** Memory order of one access. */
typedef enum ist_order {
    IST_RELAXED = 0,
    IST_ACQUIRE = 1,
    IST_RELEASE = 2,
    IST_ACQ_REL = 3
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

#define IST_DEV_ERRORS_MAX 16u

/** Why device code gave a peer up. Plain numbers; the front turns them into an ist_error. */
typedef struct ist_dev_error {
    int32_t status;     /**< ist_status */
    uint32_t peer;      /**< rank in the communicator */
    uint32_t operation; /**< ist_dev_operation */
    uint32_t reserved;
    uint64_t sequence;  /**< tag of the operation */
    uint64_t expected;
    uint64_t observed;
    uint64_t waited_ns;
} ist_dev_error;

/** Operations as they appear in records; values are permanent. */
typedef enum ist_dev_operation {
    IST_DEV_OP_NONE = 0,
    IST_DEV_OP_BARRIER = 1,
    IST_DEV_OP_AGREE = 2,
    IST_DEV_OP_CLEAN = 3,
    IST_DEV_OP_EP_DISPATCH = 4,
    IST_DEV_OP_EP_COMBINE = 5,
    IST_DEV_OP_EP_CLEAN = 6,
    IST_DEV_OP_USER = 64
} ist_dev_operation;

#define IST_DEV_MASK_WORDS 1024u /* 65536 ranks */

/**
 * The mask of a communicator, in host-visible device memory, written by device code and by the
 * host, read by both through memory. Bits beyond rank_count are zero.
 */
typedef struct ist_dev_mask {
    uint64_t generation;   /**< starts at 1 */
    uint32_t rank_count;
    uint32_t fault_tolerant; /**< 0: a lost peer fails the operation, bits are never cleared */
    uint64_t abort_word;   /**< not 0: every wait ends with IST_WAIT_ABORTED */
    uint64_t error_count;  /**< errors since the last clear */
    uint64_t evicted;      /**< not 0: some peer told this rank that it masked it (its rank + 1) */
    int64_t failed_status; /**< not 0: ist_status that made the communicator unusable */
    ist_dev_error errors[IST_DEV_ERRORS_MAX];
    uint64_t words[];      /**< (rank_count + 63) / 64 words, 1 = active */
} ist_dev_mask;

/** Bytes of an ist_dev_mask for a number of ranks. */
#define IST_DEV_MASK_BYTES(rank_count)                                                             \
    (sizeof(ist_dev_mask) + (((size_t)(rank_count) + 63u) / 64u) * sizeof(uint64_t))

/** One window as device code sees it. */
typedef struct ist_dev_window {
    uint64_t bytes;    /**< on this rank; 0: not open */
    void *local;       /**< this rank's copy */
    void *const *lsa;  /**< [lsa_size] addresses of the team members' copies */
    void *backend;     /**< private */
} ist_dev_window;

/** The device side of a communicator. Kernels get a pointer in their arguments. */
typedef struct ist_dev_comm {
    uint32_t rank;
    uint32_t rank_count;
    uint32_t lsa_rank;      /**< index in the load/store team */
    uint32_t lsa_size;      /**< members; the team is ranks rank - lsa_rank + [0, lsa_size) */
    uint32_t context_count; /**< GIN contexts */
    uint32_t signal_count;  /**< signals of each context */
    uint32_t counter_count; /**< counters of each context */
    uint32_t lsa_barrier_count;
    uint32_t window_count;  /**< entries of `windows` */
    uint32_t reserved;
    const ist_dev_window *windows; /**< [window_count]; entry 0 is the resource window */
    ist_dev_mask *mask;            /**< NULL: no mask, all ranks active */
    void *backend;                 /**< private */
} ist_dev_comm;

/** What a put or signal does at the target once its data is there. */
typedef enum ist_gin_action_kind {
    IST_GIN_NONE = 0,
    IST_GIN_SIGNAL_INC = 1,      /**< strong: covers all earlier puts of this (context, peer) */
    IST_GIN_SIGNAL_ADD = 2,      /**< strong */
    IST_GIN_WEAK_SIGNAL_INC = 3, /**< weak: covers the put that it travels with */
    IST_GIN_WEAK_SIGNAL_ADD = 4
} ist_gin_action_kind;

/** Completion action at the target. */
typedef struct ist_gin_action {
    ist_gin_action_kind kind;
    uint32_t signal; /**< id in the context */
    uint64_t value;  /**< for ADD */
} ist_gin_action;

#define IST_GIN_NO_COUNTER UINT32_MAX

/** Most places that ist_row_copy_many() writes to. */
#define IST_ROW_TARGETS_MAX 32u

/**
 * A wait for one word or signal from each peer. Peer p of the load/store team writes words[p];
 * other peers raise signal (signal_first + p) of context p % context_count. Done when the value
 * equals `expected` exactly. Peers whose bit in the mask is 0 are not waited for.
 */
typedef struct ist_peer_wait {
    const uint64_t *words;  /**< [rank_count] in this rank's window, 8-byte aligned */
    uint64_t expected;      /**< a tag, never 0 */
    uint64_t deadline_ns;   /**< point in ist_clock_ns() time */
    uint32_t signal_first;
    uint32_t skip_self;     /**< 1: the own entry is done at once */
} ist_peer_wait;

struct ist_coop;
typedef struct ist_coop ist_coop;

/** A kernel as the host names it. Made by IST_KERNEL(). */
typedef struct ist_kernel {
    const char *name;   /**< unique; the CUDA symbol is "ist_kernel_<name>" */
    uint32_t args_bytes;/**< sizeof its argument struct */
    uint32_t reserved;
    void (*body)(ist_coop *coop, const void *args); /**< C body, NULL in CUDA objects */
    const char *source; /**< file, for reports */
} ist_kernel;

#if !defined(__CUDACC__)
IST_BEGIN_DECLS
/** Makes a kernel known by name; IST_KERNEL() calls it. @threads before main @since 0.1 */
IST_API void ist_kernel_register(const ist_kernel *kernel);
/** Finds a registered kernel. @return NULL when there is none of that name @since 0.1 */
IST_API const ist_kernel *ist_kernel_find(const char *name);

/**
 * Device code of kernels for a GPU backend: a fat binary that nvcc made of the texts which define
 * them. The build makes one of these, and its registration, for each text (isthmusKernels.cmake).
 */
typedef struct ist_kernel_image {
    const void *data; /**< 8-byte aligned; stays where it is */
    uint64_t bytes;
    const char *needs;  /**< NULL, or the device interface it was built for, e.g. "nccl-2.28" */
    const char *source; /**< file, for reports */
} ist_kernel_image;

/** Makes an image known; constructors call it. @threads before worlds run @since 0.1 */
IST_API void ist_kernel_image_register(const ist_kernel_image *image);
/** For backends: images in order of registration. @return NULL past the last @since 0.1 */
IST_API const ist_kernel_image *ist_kernel_image_at(uint32_t index);
/**
 * Enqueues a kernel.
 *
 * @param block_count  1 … sm_count of ist_comm_query(); all blocks are resident at once
 * @param args         copied by the call; device addresses inside must be this rank's
 * @return IST_OK; IST_ERR_SIZE when args_bytes is not the kernel's; IST_ERR_RANGE
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_launch(ist_stream *stream, const ist_kernel *kernel, uint32_t block_count,
                              const void *args, size_t args_bytes);
/**
 * Opens a device communicator for user kernels: signals, counters, barriers, a zeroed symmetric
 * buffer (window 0). Collective; BLOCKS, bounded.
 *
 * @param dev  out: pass it to kernels; valid until closed or the communicator is closed
 * @return IST_OK; IST_ERR_UNSUPPORTED with the reason; IST_ERR_MEMORY; IST_ERR_MISMATCH
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_dev_comm_open(ist_comm *comm, uint64_t resource_bytes,
                                                  uint32_t context_count, uint32_t signal_count,
                                                  uint32_t counter_count,
                                                  uint32_t lsa_barrier_count,
                                                  const ist_dev_comm **dev);
/** Closes it; local. NULL allowed. @since 0.1 */
IST_API ist_status ist_dev_comm_close(ist_comm *comm, const ist_dev_comm *dev);
IST_END_DECLS
#endif

/* ---- kernels --------------------------------------------------------------------------------- */

#if defined(__CUDACC__)
#include <isthmus/detail/cuda_device.cuh>
#else

/**
 * Defines a kernel: IST_KERNEL(name, args_type) { … uses `coop` and `args` … }
 * Functions that kernels share are marked IST_DEVICE_FN.
 */
#define IST_DEVICE_FN static inline
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

/** Runs the statement that follows for i = 0 … n-1, spread over the lanes of the coop. */
#define IST_EACH_LANE(coop, i, n)                                                                  \
    (void)(coop);                                                                                  \
    for (uint32_t i = 0, i##_end_ = (uint32_t)(n); i < i##_end_; ++i)

IST_BEGIN_DECLS

/* Coops. */

/** This block's number, 0 … block_count-1. Lane. */
IST_API uint32_t ist_coop_block(const ist_coop *coop);
/** Blocks of this launch. Lane. */
IST_API uint32_t ist_coop_block_count(const ist_coop *coop);
/** True in exactly one lane of the block (always the same). Lane. Orders nothing. */
IST_API int ist_coop_elect(const ist_coop *coop);
/** All lanes of the block meet; their memory accesses before are visible to each other after. */
IST_API void ist_coop_sync(ist_coop *coop);
/**
 * Block-private memory, 16-byte aligned, contents undefined; freed at the end of the kernel.
 * Collective. `slot` 0 … 7 names it: asking again for a slot returns the same memory if `bytes`
 * is not larger. At most 64 KiB in all slots are portable.
 */
IST_API void *ist_coop_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes);
/**
 * One lane adds `value` to *word and all lanes get the value before. Collective; syncs the coop
 * before (so that a release covers all lanes) and after (so that an acquire does).
 */
IST_API uint64_t ist_coop_fetch_add(ist_coop *coop, uint64_t *word, uint64_t value,
                                    ist_order order, ist_scope scope);
/**
 * Waits until *word >= least, unsigned. Collective; acquire at `scope`, then syncs the coop. For
 * blocks of one launch that wait for each other. @return DONE, TIMEOUT or ABORTED
 */
IST_API ist_wait_result ist_coop_wait_word(ist_coop *coop, const ist_dev_comm *dev,
                                           const uint64_t *word, uint64_t least,
                                           uint64_t deadline_ns, ist_scope scope);
/** In-place exclusive prefix sum of scratch memory. Collective; syncs. @return the total */
IST_API uint32_t ist_coop_scan(ist_coop *coop, uint32_t *values, uint32_t count);
/**
 * For each i < count with 0 <= keys[i] < key_count: ordinals[i] = number of j < i with the same
 * key; totals[key] = how many have it. Other i: ordinals[i] = UINT32_MAX. keys, ordinals and
 * totals are device memory of this rank that no other block touches. Collective; syncs.
 */
IST_API void ist_coop_rank_by_key(ist_coop *coop, const int32_t *keys, uint32_t count,
                                  uint32_t *ordinals, uint32_t *totals, uint32_t key_count);

/* Memory: one lane, one word, naturally aligned, any address this rank may access. */

IST_API uint32_t ist_load_u32(ist_coop *coop, const uint32_t *word, ist_order order,
                              ist_scope scope);
IST_API uint64_t ist_load_u64(ist_coop *coop, const uint64_t *word, ist_order order,
                              ist_scope scope);
IST_API void ist_store_u32(ist_coop *coop, uint32_t *word, uint32_t value, ist_order order,
                           ist_scope scope);
IST_API void ist_store_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                           ist_scope scope);
/** Adds and returns the value before. */
IST_API uint64_t ist_fetch_add_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                                   ist_scope scope);
/** Clears bits (and) and returns the value before. */
IST_API uint64_t ist_fetch_and_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                                   ist_scope scope);
/** Compare and swap; returns the value before. */
IST_API uint64_t ist_compare_swap_u64(ist_coop *coop, uint64_t *word, uint64_t expected,
                                      uint64_t desired, ist_order order, ist_scope scope);
/** Orders this lane's accesses before against those after, as a fence of that order and scope. */
IST_API void ist_fence(ist_coop *coop, ist_order order, ist_scope scope);

/* Rows: collective; dst and src 16-byte aligned for full speed, any alignment allowed. They order
   nothing by themselves: a coop sync and a release, or a barrier, must follow. */

/** Copies a row. Source or destination may be a load/store peer's memory. */
IST_API void ist_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes);
/** Reads a row once and writes it to `count` places (count <= IST_ROW_TARGETS_MAX). */
IST_API void ist_row_copy_many(ist_coop *coop, void *const *dst, uint32_t count, const void *src,
                               uint64_t bytes);
/** Fills with one byte value. */
IST_API void ist_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes);
/**
 * dst[i] = round(acc_i), acc_i = fma(src[s][i], weight[s], acc_i) in f32 for s = 0 … count-1 from
 * +0; weight NULL: acc_i = src[s][i] + acc_i. One rounding to nearest even at the end (none for
 * f32). count 0 gives +0. `src` and `weight` are scratch or args memory. dtype F16, BF16, F32.
 */
IST_API void ist_row_reduce(ist_coop *coop, void *dst, const void *const *src, const float *weight,
                            uint32_t count, uint64_t elements, ist_dtype dtype);

/* Windows: addresses; lane. Out of range gives NULL (and a diagnostic in the simulator). */

IST_API void *ist_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                               uint64_t offset);
/** Address in the copy of a load/store peer, by rank in the communicator; NULL outside the team. */
IST_API void *ist_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                              uint64_t offset, uint32_t peer);
/** Whether a rank of the communicator is in the load/store team of this rank. Lane. */
IST_DEVICE_FN int ist_dev_is_lsa(const ist_dev_comm *dev, uint32_t peer)
{
    uint32_t first = dev->rank - dev->lsa_rank;
    return peer >= first && peer < first + dev->lsa_size;
}

/* Waits and masks. */

/** Nanoseconds since the world began, on this rank's clock. Lane. */
IST_API uint64_t ist_clock_ns(ist_coop *coop);
/**
 * Waits for one word or signal from each peer. Collective; results[p] (scratch, one byte a rank)
 * is an ist_wait_result; acquire at system scope for those that are DONE, then syncs the coop.
 * A peer that is masked while it is waited for ends as MASKED. Changes nothing else.
 * @return number of ranks whose result is TIMEOUT or ERROR or ABORTED
 */
IST_API uint32_t ist_wait_peers(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *wait,
                                uint8_t *results);
/** Whether a rank is active in the mask, read through memory now. Lane. NULL mask: yes. */
IST_API int ist_mask_active(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);
/**
 * Gives a peer up: clears its bit (if fault tolerant; else marks the communicator failed), records
 * `error` if this call cleared it, raises the host-visible count, all with release at system
 * scope. One lane. @return 1 when this call cleared the bit, 0 when it was clear before
 */
IST_API int ist_mask_drop(ist_coop *coop, const ist_dev_comm *dev, const ist_dev_error *error);
/** Whether the communicator was aborted. Lane. */
IST_API int ist_aborted(ist_coop *coop, const ist_dev_comm *dev);

/* LSA barrier: collective over one block of each member, same index; masked peers are skipped. */

/** Arrives: release of earlier accesses at system scope. */
IST_API void ist_lsa_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev, uint32_t index);
/** Waits for the others' arrival: acquire at system scope. The barrier stays usable after a
 *  timeout. results, if not NULL, is [lsa_size] by index in the team.
 *  @return DONE; TIMEOUT (some peer); ABORTED; ERROR (no such barrier) */
IST_API ist_wait_result ist_lsa_barrier_wait(ist_coop *coop, const ist_dev_comm *dev,
                                             uint32_t index, uint64_t deadline_ns,
                                             uint8_t *results);
/** arrive, then wait. */
IST_API ist_wait_result ist_lsa_barrier_sync(ist_coop *coop, const ist_dev_comm *dev,
                                             uint32_t index, uint64_t deadline_ns,
                                             uint8_t *results);

/* GIN: GPU-initiated network. Collective unless said. Contract: puts of one (context, peer) are
   unordered; a weak signal covers its own put, a strong one all earlier puts of that (context,
   peer); nothing is ordered across contexts or peers. A peer is a rank of the communicator. The
   caller's writes are released to the NIC by the call (it syncs the coop first). */

/** Puts bytes into the peer's window; src belongs to the transport until local completion. */
IST_API void ist_gin_put(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                         uint32_t dst_window, uint64_t dst_offset, uint32_t src_window,
                         uint64_t src_offset, uint64_t bytes, ist_gin_action remote,
                         uint32_t local_counter);
/** Puts a word, captured by the call. */
IST_API void ist_gin_put_value(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                               uint32_t peer, uint32_t dst_window, uint64_t dst_offset,
                               uint64_t value, ist_gin_action remote);
/** Raises a signal without data. */
IST_API void ist_gin_signal(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                            uint32_t peer, ist_gin_action remote);
/** Value of a local signal; lane. ACQUIRE: the data it covers is visible after. */
IST_API uint64_t ist_gin_signal_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                     uint32_t signal, ist_order order);
/** Sets a local signal to zero; lane. Must not race with the peer's raising it. */
IST_API void ist_gin_signal_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                  uint32_t signal);
/** Waits until the signal is at least `least` (rolling compare over 64 bits); acquire. */
IST_API ist_wait_result ist_gin_signal_wait(ist_coop *coop, const ist_dev_comm *dev,
                                            uint32_t context, uint32_t signal, uint64_t least,
                                            uint64_t deadline_ns);
/** Counters count local completions (source reusable) of puts that name them; lane. */
IST_API uint64_t ist_gin_counter_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                      uint32_t counter);
IST_API void ist_gin_counter_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                   uint32_t counter);
IST_API ist_wait_result ist_gin_counter_wait(ist_coop *coop, const ist_dev_comm *dev,
                                             uint32_t context, uint32_t counter, uint64_t least,
                                             uint64_t deadline_ns);
/**
 * Waits until the sources of all earlier puts of this block on this context are reusable. Says
 * nothing about the targets. @return DONE, TIMEOUT, ABORTED, ERROR
 */
IST_API ist_wait_result ist_gin_flush(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                      uint64_t deadline_ns);
/** Whether the network has reported an error for a peer since the last clear; lane. */
IST_API int ist_gin_peer_error(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);
/** Forgets the peer's errors and zeroes nothing else; lane. Used when a peer is re-admitted. */
IST_API void ist_gin_peer_clear(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);

/** Names a place in a kernel, where a fault plan may strike. Free on GPUs. Lane 0's is counted. */
IST_API void ist_point(ist_coop *coop, const char *name);

IST_END_DECLS

#endif /* __CUDACC__ */

#endif
