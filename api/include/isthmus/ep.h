/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep.h
 * Expert parallelism: dispatch tokens to the ranks of their experts, combine the results back.
 *
 * Notation: R ranks, E experts, K top-k, N tokens this rank dispatches (N <= M), M =
 * tokens_per_rank_max, H elements of a token row, L experts of this rank. Experts are placed in
 * contiguous blocks, the first E % R ranks holding one more (see ist_ep_expert_owner()).
 *
 * Rows are ordered by (source rank, token, k) in every layout. All ranks issue the operations of a
 * group (dispatch, combine, complete) in the same order, on streams that order them.
 *
 * Behaviour follows NVIDIA's nccl_ep where it is observable and sound: shapes, counters, masked
 * entries, numerics. Differences: row order is fixed; top-k ids are copied at update, so the
 * caller's tensor may be reused as soon as the stream has passed the update; bad ids are errors.
 *
 * Functions here also return IST_ERR_ABORTED when the group's communicator was aborted, except the
 * queries, ist_ep_record() and the closes.
 *
 * @threads the rank's own
 * @since 0.1
 */
#ifndef IST_EP_H
#define IST_EP_H

#include <isthmus/mask.h>
#include <isthmus/types.h>

IST_BEGIN_DECLS

/** Most experts of a token. */
#define IST_EP_TOPK_MAX 32u

/** How rows travel. */
typedef enum ist_ep_algorithm {
    IST_EP_LOW_LATENCY = 0 /**< each row straight from its rank to each rank that needs it */
} ist_ep_algorithm;

/** Layouts of what dispatch delivers. UNSET is always refused. */
typedef enum ist_ep_layout {
    IST_EP_LAYOUT_UNSET = 0, /**< no layout */
    IST_EP_EXPERT_MAJOR = 1, /**< [L, R*M, H]: a row for each (token, k) of a local expert */
    IST_EP_RANK_MAJOR = 2    /**< [R, M, H]: one row for each token that needs this rank */
} ist_ep_layout;

/** Whether operands that peers pull must be windows: the tokens of dispatch and of combine. */
typedef enum ist_ep_zero_copy {
    IST_EP_ZERO_COPY_AUTO = 0, /**< windows are used where given, plain memory is staged */
    IST_EP_ZERO_COPY_OFF = 1,  /**< as AUTO */
    IST_EP_ZERO_COPY_ON = 2    /**< pulled operands must be windows; no staging is allocated */
} ist_ep_zero_copy;

/** How expert ids are reported in RANK_MAJOR. */
typedef enum ist_ep_id_kind {
    IST_EP_ID_AUTO = 0,  /**< LOCAL */
    IST_EP_ID_LOCAL = 1, /**< number of the expert on its rank */
    IST_EP_ID_GLOBAL = 2 /**< 0 … E-1 */
} ist_ep_id_kind;

/**
 * How combine adds up the rows of a token in EXPERT_MAJOR; see ist_ep_combine(). RANK_MAJOR, where
 * a token has one row from each rank as it is, has one way only. REDUCED needs all ranks in one
 * load/store team, and 2 * R * M more token rows of device memory for each of staged_count_max.
 */
typedef enum ist_ep_combine_order {
    IST_EP_COMBINE_STRICT = 0, /**< all rows travel; their home adds them in the order of k */
    IST_EP_COMBINE_REDUCED = 1 /**< each rank adds up its own rows, and one row a rank travels */
} ist_ep_combine_order;

/** When routing is checked. */
typedef enum ist_ep_check {
    IST_EP_CHECK_AUTO = 0, /**< SYNC, but ASYNC while the stream is capturing */
    IST_EP_CHECK_SYNC = 1, /**< update blocks and returns the error, naming token, k and value */
    IST_EP_CHECK_ASYNC = 2 /**< bad entries count as -1; the handle's records carry the error */
} ist_ep_check;

/** Device memory hooks; both or neither. Called on the thread of the API call. */
typedef struct ist_ep_alloc {
    /** Gives device memory of this rank, 4096-aligned, at least `bytes` long; IST_OK or a failure. */
    ist_status (*alloc)(void **mem, size_t bytes, void *context);
    /** Takes back what `alloc` gave. */
    ist_status (*free)(void *mem, void *context);
    void *context; /**< passed to both */
} ist_ep_alloc;

/**
 * How a group is opened. Zero means default (AUTO). Every field but `alloc` must be equal on all
 * ranks, and is compared whatever the communicator checks.
 */
typedef struct ist_ep_group_desc {
    uint32_t size;                /**< sizeof(ist_ep_group_desc) */
    ist_ep_algorithm algorithm;   /**< LOW_LATENCY */
    uint32_t expert_count;        /**< E, required, 1 … 65535 */
    uint32_t tokens_per_rank_max; /**< M, required, <= 65535 */
    uint32_t topk_max;            /**< largest K of any handle; 0: min(E, 8); <= IST_EP_TOPK_MAX */
    uint32_t context_count;       /**< GIN contexts, <= 64; 0: 4. Not used without GIN peers */
    uint64_t token_bytes_max;     /**< required: largest token row, H * element size in bytes,
                                       <= 16 MiB */
    uint64_t buffer_bytes;        /**< 0: as needed; else the most device memory to take, in bytes;
                                       an error tells how much is needed */
    uint32_t block_count_max;   /**< device blocks an operation may use; 0: all; <= the device's */
    uint32_t staged_count_max;  /**< operations that may be in flight at once; 0: 1; <= 8 */
    ist_ep_zero_copy zero_copy; /**< AUTO */
    ist_ep_check check;         /**< AUTO */
    uint64_t deadline_ns;       /**< of every wait, in ns, >= 1000; 0: the communicator's */
    ist_ep_alloc alloc;         /**< for handle memory; zeros: the library's */
    uint32_t enable_mask;       /**< 1: requires a fault-tolerant communicator; 0: as it is */
    ist_ep_combine_order combine_order; /**< STRICT */
    uint32_t reserved[2];               /**< zero */
} ist_ep_group_desc;

/** Resolved settings and sizes. Filled up to the caller's `size`. */
typedef struct ist_ep_group_info {
    uint32_t size;                /**< in: sizeof(ist_ep_group_info), at least 8 */
    uint32_t expert_count;        /**< E */
    uint32_t expert_first;        /**< first expert of this rank */
    uint32_t expert_local_count;  /**< L of this rank */
    uint32_t tokens_per_rank_max; /**< M */
    uint32_t topk_max;            /**< largest K of a handle, resolved */
    uint32_t block_count;         /**< device blocks of each operation */
    uint32_t staged_count_max;    /**< resolved */
    uint64_t deadline_ns;         /**< of every wait, in ns, resolved */
    uint64_t device_bytes;  /**< device memory the group holds on this rank, without handles */
    uint32_t rank_count;    /**< R */
    uint32_t context_count; /**< GIN contexts, resolved; 0 without GIN peers */
    ist_ep_combine_order combine_order; /**< of EXPERT_MAJOR */
    uint32_t reserved;                  /**< zero */
} ist_ep_group_info;

/** Counters written by dispatch, in device memory; all may be plain memory. */
typedef struct ist_ep_layout_info {
    uint32_t size;               /**< sizeof(ist_ep_layout_info) */
    ist_ep_id_kind id_kind;      /**< RANK_MAJOR: what topk_idx holds */
    ist_tensor *expert_counters; /**< EXPERT_MAJOR, required: i32 [L], rows per expert */
    ist_tensor *rank_counters;   /**< RANK_MAJOR, optional: i32 [R], rows per source rank */
} ist_ep_layout_info;

/** What a rank gives to dispatch. Must stay as it is until the operation has run. */
typedef struct ist_ep_dispatch_in {
    uint32_t size;            /**< sizeof(ist_ep_dispatch_in) */
    uint32_t reserved;        /**< zero */
    ist_tensor *tokens;       /**< [N, H], BF16, F16 or F32 */
    ist_tensor *topk_weights; /**< RANK_MAJOR: f32 [N, K], required; EXPERT_MAJOR: NULL */
} ist_ep_dispatch_in;

/** Where dispatch puts what this rank's experts get. Rows that nobody sends to stay as they are. */
typedef struct ist_ep_dispatch_out {
    uint32_t size;      /**< sizeof(ist_ep_dispatch_out) */
    uint32_t reserved;  /**< zero */
    ist_tensor *tokens; /**< type of in.tokens; EXPERT_MAJOR [L, R*M, H], RANK_MAJOR [R, M, H] */
    ist_tensor *topk_weights; /**< RANK_MAJOR: f32 [R, M, K]; EXPERT_MAJOR: NULL */
    ist_tensor *topk_idx;     /**< RANK_MAJOR: i32 [R, M, K], -1 where not here; else NULL */
} ist_ep_dispatch_out;

/** What a rank's experts give back, in the places where dispatch put their input. */
typedef struct ist_ep_combine_in {
    uint32_t size;      /**< sizeof(ist_ep_combine_in) */
    uint32_t reserved;  /**< zero */
    ist_tensor *tokens; /**< BF16, F16 or F32; EXPERT_MAJOR [L, R*M, H], RANK_MAJOR [R, M, H] */
} ist_ep_combine_in;

/** Where combine puts this rank's tokens. */
typedef struct ist_ep_combine_out {
    uint32_t size;            /**< sizeof(ist_ep_combine_out) */
    uint32_t reserved;        /**< zero */
    ist_tensor *tokens;       /**< [>= N, H], same type as the input; a token without any
                                   contribution becomes zeros; rows >= N stay */
    ist_tensor *topk_weights; /**< EXPERT_MAJOR: f32 [N, K], read; RANK_MAJOR: NULL */
    ist_tensor *lost_counts;  /**< optional: i32 [N], contributions each token lacks */
} ist_ep_combine_out;

/** Options of dispatch, combine and complete. NULL is all zeros. */
typedef struct ist_ep_op_desc {
    uint32_t size;        /**< sizeof(ist_ep_op_desc) */
    uint32_t send_only;   /**< 1: enqueue the send half; ist_ep_complete() does the rest */
    uint64_t deadline_ns; /**< of every wait of this operation, in ns, >= 1000; 0: the group's */
    uint32_t reserved[4]; /**< zero */
} ist_ep_op_desc;

/** Which operation of a handle a record is about. */
typedef enum ist_ep_op {
    IST_EP_OP_DISPATCH = 0, /**< the last dispatch */
    IST_EP_OP_COMBINE = 1   /**< the last combine */
} ist_ep_op;

/**
 * Opens a group. Collective over the communicator; BLOCKS, each of its meetings bounded by the
 * communicator's deadline; opens on all ranks or on none.
 *
 * @param group  out: close it with ist_ep_group_close(), after its handles
 * @return IST_OK. On the rank that is wrong: argument errors; IST_ERR_ARGUMENT, IST_ERR_RANGE naming
 *         the field; IST_ERR_UNSUPPORTED when peers are neither in the load/store team nor on GIN,
 *         combine_order is REDUCED and some peer is not in the load/store team, or the communicator
 *         has more than 2048 ranks; IST_ERR_MEMORY. On its peers, and where
 *         descriptors differ: IST_ERR_MISMATCH naming field or status, ranks and values.
 *         IST_ERR_TIMEOUT naming a rank that did not come; what made the communicator unusable
 */
IST_API IST_MUST_USE ist_status ist_ep_group_open(ist_comm *comm, const ist_ep_group_desc *desc,
                                                  ist_ep_group **group);

/**
 * Closes the group and frees its memory. Local; waits for nothing: streams that use the group have
 * been synchronised. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT; IST_ERR_USAGE while handles are open (nothing is freed); what the
 *         backend reports (the group is closed all the same)
 */
IST_API ist_status ist_ep_group_close(ist_ep_group *group);

/**
 * Settings and sizes as they were resolved. Local.
 *
 * @param info  out: filled up to info->size
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE when info->size is below 8 or above 65536
 */
IST_API ist_status ist_ep_group_query(ist_ep_group *group, ist_ep_group_info *info);

/**
 * Device memory that a group would take on this rank, handles left out, without opening it. Local.
 *
 * @param bytes  out: equal on all ranks
 * @return IST_OK; what ist_ep_group_open() returns on a rank that is wrong
 */
IST_API ist_status ist_ep_group_bytes(ist_comm *comm, const ist_ep_group_desc *desc,
                                      uint64_t *bytes);

/**
 * Where an expert is. Local.
 *
 * @param expert  0 … E-1
 * @param rank    out: rank in the communicator
 * @param local   out: the expert's number among those of that rank
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_RANGE
 */
IST_API ist_status ist_ep_expert_owner(ist_ep_group *group, uint32_t expert, uint32_t *rank,
                                       uint32_t *local);

/**
 * Bytes of handle memory for ist_ep_handle_init(). Local.
 *
 * @param topk   K, 1 … the group's topk_max
 * @param bytes  out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT (layout UNSET or unknown);
 *         IST_ERR_RANGE (topk)
 */
IST_API ist_status ist_ep_handle_bytes(ist_ep_group *group, ist_ep_layout layout, uint32_t topk,
                                       uint64_t *bytes);

/**
 * Makes a handle without routing. Local.
 *
 * @param topk       K, 1 … the group's topk_max
 * @param mem        caller's device memory, 4096-aligned, kept until the handle is closed; NULL: the
 *                   library allocates
 * @param mem_bytes  of `mem`, at least ist_ep_handle_bytes(); not used when `mem` is NULL
 * @param handle     out: close it with ist_ep_handle_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT (layout UNSET or unknown; `mem` not
 *         memory of this rank); IST_ERR_RANGE (topk); IST_ERR_SIZE (mem_bytes); IST_ERR_ALIGNMENT
 *         (mem); IST_ERR_MEMORY; what the group's allocation hook returned
 */
IST_API IST_MUST_USE ist_status ist_ep_handle_init(ist_ep_group *group, ist_ep_layout layout,
                                                   uint32_t topk, void *mem, uint64_t mem_bytes,
                                                   ist_ep_handle **handle);

/**
 * Sets the routing: enqueues a copy of the ids and the plan of the sends. May be called again with
 * another N. Local. With check SYNC (the default outside a capture) it BLOCKS until the stream has
 * done so, bounded as ist_stream_sync(stream, 0). Capturable with AUTO and ASYNC.
 *
 * @param topk_idx  i32 or i64 [N, K], N <= M; -1: not sent; else 0 … E-1, no expert twice in a token
 * @return IST_OK; argument errors; IST_ERR_ARGUMENT, IST_ERR_RANGE, IST_ERR_ALIGNMENT (the tensor);
 *         IST_ERR_USAGE while a send_only operation of the handle is pending, or with SYNC while the
 *         stream is capturing. When it waits also IST_ERR_RANGE (an id) and IST_ERR_ARGUMENT (an
 *         expert twice) naming token, k and id, and what ist_stream_sync() returns: the handle then
 *         has no routing
 */
IST_API ist_status ist_ep_handle_update(ist_ep_handle *handle, const ist_tensor *topk_idx,
                                        ist_stream *stream);

/**
 * ist_ep_handle_init() with the library's memory, then ist_ep_handle_update().
 *
 * @param topk_idx  as for the update; its last dimension is K
 * @param handle    out: written only when both succeed
 * @return as these two
 */
IST_API IST_MUST_USE ist_status ist_ep_handle_open(ist_ep_group *group, ist_ep_layout layout,
                                                   const ist_tensor *topk_idx, ist_stream *stream,
                                                   ist_ep_handle **handle);

/**
 * Frees the handle; its memory only if the library owns it. Waits for nothing: streams that use the
 * handle have been synchronised. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT; what the backend or the group's free hook reports (the handle is
 *         closed all the same)
 */
IST_API ist_status ist_ep_handle_close(ist_ep_handle *handle);

/**
 * Enqueues the dispatch of this rank's tokens to the ranks of their experts. Never blocks the host.
 * Capturable.
 *
 * All argument errors are found before anything is enqueued. Losing ranks is not an error of the
 * call: see ist_ep_record().
 *
 * @param info  counters; required for EXPERT_MAJOR, may be NULL for RANK_MAJOR
 * @param desc  NULL: all zeros
 * @return IST_OK when it is enqueued; argument errors; IST_ERR_ARGUMENT (type, dimensions, a tensor
 *         that the layout lacks, plain memory with zero_copy ON); IST_ERR_RANGE (H, a place outside
 *         its window, deadline); IST_ERR_ALIGNMENT; IST_ERR_USAGE (no routing, an operation of the
 *         handle pending, staged_count_max operations of the group in flight); IST_ERR_MEMORY; what
 *         made the communicator unusable
 */
IST_API ist_status ist_ep_dispatch(ist_ep_handle *handle, const ist_ep_dispatch_in *in,
                                   const ist_ep_dispatch_out *out, const ist_ep_layout_info *info,
                                   const ist_ep_op_desc *desc, ist_stream *stream);

/**
 * Enqueues the combine of expert outputs back to the tokens' ranks. Never blocks the host.
 * Capturable.
 *
 * Numerics: EXPERT_MAJOR acc = fma(row_k, weight_k, acc) in f32 for k = 0 … K-1 from +0, skipping
 * -1 and lost ranks; RANK_MAJOR plain f32 sum over distinct ranks in order of their first k; one
 * rounding to nearest even at the end (IEEE 754-2008).
 *
 * EXPERT_MAJOR with combine order REDUCED: the chain of each rank runs over its own k alone and is
 * rounded once to the type of the rows: p_r. The token is the plain f32 sum of the p_r over the
 * ranks, in order of their first k, from +0, rounded once. Equal on all backends, for any number of
 * blocks; equal to STRICT, but for the sign of a zero, where all experts of a token are on one rank.
 * With u = 2^-8 (BF16), 2^-11 (F16) or 2^-24 (F32), and as long as nothing overflows or underflows,
 * the token is within u |s| + (1 + u) u sum |p_r| + (K + R) 2^-23 sum |row_k weight_k| of the exact
 * sum s. An F16 rank sum above 65504 is infinite, where STRICT may cancel it. `in` may be plain
 * memory at no cost: only its rank reads it.
 *
 * @param desc  NULL: all zeros
 * @return as ist_ep_dispatch(); IST_ERR_ARGUMENT also when out.tokens has fewer than N rows;
 *         IST_ERR_USAGE also without a dispatch since the last update or clean
 */
IST_API ist_status ist_ep_combine(ist_ep_handle *handle, const ist_ep_combine_in *in,
                                  const ist_ep_combine_out *out, const ist_ep_op_desc *desc,
                                  ist_stream *stream);

/**
 * Enqueues the second half of this handle's pending send_only operation. Never blocks the host.
 * Capturable.
 *
 * @return IST_OK, also when nothing is pending; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_MEMORY
 */
IST_API ist_status ist_ep_complete(ist_ep_handle *handle, ist_stream *stream);

/**
 * How the handle's last dispatch or combine ended. Reads memory, never blocks.
 *
 * record->status is IST_OK: complete; IST_INCOMPLETE: some ranks are lost; IST_IN_PROGRESS: not
 * ended, or never issued (sequence 0); IST_ERR_EVICTED: the peers masked this rank; IST_ERR_TIMEOUT:
 * a peer is lost and there is no mask; IST_ERR_ABORTED; IST_ERR_MISMATCH: a peer ran another
 * operation or shape; IST_ERR_RANK_LOST: it was pending when the group was cleaned; IST_ERR_OBJECT:
 * the handle's memory was overwritten; without a check that waits, IST_ERR_RANGE or IST_ERR_ARGUMENT:
 * what was wrong with the ids.
 *
 * @param record  in and out, see ist_completion
 * @return IST_OK with record->status as above; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT (op);
 *         IST_ERR_SIZE when record->size is below 8 or above 65536, or lost_words is too short
 */
IST_API ist_status ist_ep_record(ist_ep_handle *handle, ist_ep_op op, ist_completion *record);

/**
 * ist_comm_clean() for a group: also realigns the group's operation numbers and slots. All ranks
 * to take part call it at the same point, with no operation of the group in flight. BLOCKS. Not
 * capturable. Pending send_only operations are dropped (their records say IST_ERR_RANK_LOST); a
 * combine needs a new dispatch.
 *
 * @return as ist_comm_clean()
 */
IST_API ist_status ist_ep_clean(ist_ep_group *group, ist_stream *stream);

IST_END_DECLS

#endif
