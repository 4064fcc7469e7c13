/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mask.h
 * Rank masks: who takes part. A communicator opened with `fault_tolerant` owns one mask that host
 * and device read through the same memory, also inside a replayed graph.
 *
 * A wait that times out on a peer clears that peer's bit, records why, raises the host-visible
 * flag and goes on. Such changes are local; ist_comm_agree() makes survivors converge on one mask
 * and a new generation; ist_comm_clean() re-admits ranks that were late.
 */
#ifndef IST_MASK_H
#define IST_MASK_H

#include <isthmus/types.h>

IST_BEGIN_DECLS

/** 64 ranks a word, rank r is bit r % 64 of word r / 64; 1 = active. */
typedef struct ist_mask {
    uint32_t size;       /**< in: sizeof(ist_mask) */
    uint32_t rank_count; /**< out: ranks of the communicator */
    uint64_t generation; /**< out: starts at 1, grows with every agree and clean */
    uint64_t *words;     /**< in: caller's array of word_count words; out: filled, rest zero */
    uint32_t word_count; /**< in: at least IST_MASK_WORDS(rank_count) */
    uint32_t reserved;   /**< zero */
} ist_mask;

/** Words that hold the bits of `rank_count` ranks. */
#define IST_MASK_WORDS(rank_count) (((rank_count) + 63u) / 64u)

/**
 * Whether a rank is active in an array of mask words.
 *
 * @param words  [IST_MASK_WORDS(rank + 1)] at least
 * @return 1 or 0
 * @threads any; pure
 * @since 0.1
 */
static inline int ist_mask_test(const uint64_t *words, uint32_t rank)
{
    return (int)((words[rank / 64u] >> (rank % 64u)) & 1u);
}

/**
 * How an operation that can lose ranks ended. Filled up to the caller's `size`.
 * Outputs of an operation with `complete` = 0 lack the contributions of the lost ranks; weights
 * are not renormalised.
 */
typedef struct ist_completion {
    uint32_t size;        /**< in: sizeof(ist_completion), at least 8 */
    ist_status status;    /**< IST_OK, IST_INCOMPLETE, IST_IN_PROGRESS, or why it failed */
    uint64_t sequence;    /**< tag of the operation: generation and number in its group; 0: none
                               has ended since it was issued */
    uint64_t generation;  /**< mask generation it ran under */
    uint32_t complete;    /**< 1: every rank of the communicator contributed */
    uint32_t lost_count;  /**< ranks without contribution, masked earlier or lost now */
    uint64_t *lost_words; /**< in: caller's array or NULL; out: 1 = lost */
    uint32_t word_count;  /**< in: words in lost_words */
    uint32_t reserved;    /**< zero */
} ist_completion;

/**
 * Reads this rank's mask now: a snapshot, no stream, no wait. Also of an aborted communicator. A
 * change that device code makes meanwhile is in it or not, bit by bit.
 *
 * @param mask  in and out, see ist_mask
 * @return IST_OK; argument errors; IST_ERR_SIZE also for too few words; IST_ERR_USAGE when the
 *         communicator is not fault tolerant
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_mask_query(ist_comm *comm, ist_mask *mask);

/**
 * Enqueues a copy of the mask, as one int32 a rank (1 = active), to device memory. The mask is read
 * when the work runs. Capturable.
 *
 * @param out  device memory of 4 * rank_count bytes, 4-byte aligned
 * @return IST_OK when it is enqueued; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE when the
 *         communicator is not fault tolerant; IST_ERR_ARGUMENT when `out` is not memory of this rank;
 *         IST_ERR_ALIGNMENT; IST_ERR_UNSUPPORTED as ist_comm_barrier(); IST_ERR_MEMORY;
 *         IST_ERR_ABORTED
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_mask_read(ist_comm *comm, int32_t *out, ist_stream *stream);

/**
 * Enqueues a change of this rank's mask. Local: peers are not told, and the generation stays.
 * Capturable.
 *
 * @param words  host array of IST_MASK_WORDS(rank_count), captured by the call; this rank's bit is 1,
 *               bits beyond rank_count are 0
 * @return IST_OK when it is enqueued; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE when the
 *         communicator is not fault tolerant; IST_ERR_ARGUMENT (bits of `words`); IST_ERR_MEMORY;
 *         IST_ERR_ABORTED
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_mask_update(ist_comm *comm, const uint64_t *words, ist_stream *stream);

/**
 * Survivors agree on one mask: the ranks that all of them still hold active. All survivors call it
 * at the same point of their program. BLOCKS: behind the stream's earlier work, then a few deadlines
 * of the communicator for each rank that dies meanwhile. Not capturable.
 *
 * Method: flooding consensus with early stopping in a synchronous model; deciders repeat their
 * decision before they leave, so that a crash in the last round cannot split the survivors
 * (Lynch, Distributed Algorithms, 1996, ch. 6).
 *
 * @return IST_OK: the same mask and generation on every rank that returned IST_OK;
 *         IST_ERR_EVICTED when the others decided without this rank; IST_ERR_NULL; IST_ERR_OBJECT;
 *         IST_ERR_USAGE when the communicator is not fault tolerant or the stream is capturing;
 *         IST_ERR_UNSUPPORTED as ist_comm_barrier(); IST_ERR_TIMEOUT when the stream's earlier work
 *         does not end; IST_ERR_MEMORY; IST_ERR_DEVICE; IST_ERR_ABORTED
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_agree(ist_comm *comm, ist_stream *stream);

/**
 * Re-admits ranks that were masked but live: all ranks that are to take part, the late ones
 * included, call it at the same point. Those that come within four deadlines form the new mask, with
 * a new generation; slots, tags and signals are reset on both sides. BLOCKS: behind the stream's
 * earlier work, then as ist_comm_agree(). Traffic from before is recognised and discarded. Not
 * capturable.
 *
 * Method: an all-gather finds who is there; a strong signal behind all earlier traffic of each pair
 * drains it; then the participants flood as in ist_comm_agree().
 *
 * @return IST_OK: every rank of the communicator is active; IST_INCOMPLETE when some rank did not
 *         come or was lost meanwhile (it is masked); IST_ERR_EVICTED when the others went on without
 *         this rank; IST_ERR_MISMATCH when it met peers in another call; the others as
 *         ist_comm_agree()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_clean(ist_comm *comm, ist_stream *stream);

/**
 * Asynchronous errors recorded by device code (a peer timed out, an error completion), oldest
 * first, without stopping anything. Reads memory, never blocks. Also of an aborted communicator,
 * and of one that is not fault tolerant.
 *
 * @param index  0 … kept - 1, where min(count, 16) are kept; not used when `error` is NULL
 * @param count  out: errors since the last clear
 * @param error  out, may be NULL to ask for the count only; filled up to error->size
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE when error->size is below 8 or above
 *         65536; IST_ERR_RANGE when there is no error `index`
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_error_get(ist_comm *comm, uint32_t index, uint32_t *count,
                                      ist_error *error);

/**
 * Forgets recorded asynchronous errors. The mask, and a failure that made the communicator
 * unusable, stay.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_error_clear(ist_comm *comm);

IST_END_DECLS

#endif
