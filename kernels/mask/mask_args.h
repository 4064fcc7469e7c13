/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mask_args.h
 * Arguments and memory of the kernels in this folder: barrier, agreement, clean, mask read.
 *
 * How the host uses them. One device communicator a communicator ("mask dev comm"), opened with
 *   resource_bytes = ist_mask_layout_of(R).bytes          (symmetric, zeroed)
 *   signal_count   = ist_mask_signal_count(R)             if some peer is outside the team, else 0
 *   context_count  = 1                                    if some peer is outside the team, else 0
 *   counter_count  = 0, lsa_barrier_count = 0, mask = the communicator's ist_dev_mask
 * All kernels here are launched with ONE block, in an order that is equal on all ranks. At most
 * IST_MASK_RANKS_MAX ranks.
 *
 * barrier: launch mask_barrier. Lost peers are dropped from the mask (or the communicator fails).
 *
 * agree:   launch mask_agree with a result in host-visible memory and a new `sequence`; wait for
 *          the stream; the answer is the result whose `sequence` equals the one given. A kernel
 *          that did not write it was killed or aborted.
 *
 * clean:   (1) launch mask_clean_begin, wait for the stream; (2) host exchange among ALL ranks,
 *          bounded by the deadline, of {mask generation}; ranks that did not come are not
 *          participants; (3) launch mask_clean with the participants' words and
 *          generation = 1 + the largest generation exchanged; wait for the stream; read the result.
 *          (1) lies before the exchange so that nobody's step 3 can meet another's reset.
 */
#ifndef IST_MASK_ARGS_H
#define IST_MASK_ARGS_H

#include <isthmus/device.h>

#include "../kernel_layout.h"

#define IST_MASK_RANKS_MAX 16384u

/**
 * Patience of the host's exchange in a clean, in deadlines: a rank may come one or two deadlines
 * after another when a peer died during the last operation, and the host sees no beats.
 */
#define IST_MASK_PATIENCE 4u

/** Tags of agreements: kind, generation, round + 1. */
#define IST_MASK_GENERATION_SHIFT 20u
#define IST_MASK_CLEAN_INSTANCE (UINT64_C(1) << 63)

/** How an agreement ended; in host-visible memory, to be read when the kernel has ended. */
typedef struct ist_mask_result {
    uint64_t sequence;   /**< as given in the arguments */
    int32_t status;      /**< IST_OK, IST_INCOMPLETE (clean: some rank is out), IST_ERR_EVICTED,
                              IST_ERR_ABORTED */
    uint32_t rounds;     /**< rounds of the flooding */
    uint64_t generation; /**< of the mask now in force */
} ist_mask_result;

/** mask_barrier */
typedef struct ist_mask_barrier_args {
    const ist_dev_comm *dev;
    uint64_t deadline_ns; /**< length of the wait */
} ist_mask_barrier_args;

/** mask_agree */
typedef struct ist_mask_agree_args {
    const ist_dev_comm *dev;
    uint64_t deadline_ns;    /**< length of the wait of one round */
    ist_mask_result *result; /**< host-visible */
    uint64_t sequence;       /**< not 0, differs from the one before */
} ist_mask_agree_args;

/** mask_clean_begin */
typedef struct ist_mask_clean_begin_args {
    const ist_dev_comm *dev;
} ist_mask_clean_begin_args;

/** mask_clean */
typedef struct ist_mask_clean_args {
    const ist_dev_comm *dev;
    uint64_t deadline_ns;         /**< length of each wait */
    const uint64_t *participants; /**< device memory, IST_MASK_WORDS(R) words, own bit 1 */
    uint64_t generation;          /**< the new one, equal on all participants */
    ist_mask_result *result;      /**< host-visible */
    uint64_t sequence;            /**< not 0, differs from the one before */
} ist_mask_clean_args;

/** mask_read */
typedef struct ist_mask_read_args {
    const ist_dev_comm *dev;
    int32_t *out; /**< [R], 1 = active */
} ist_mask_read_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_mask_barrier;
extern const ist_kernel ist_kernel_mask_agree;
extern const ist_kernel ist_kernel_mask_clean_begin;
extern const ist_kernel ist_kernel_mask_clean;
extern const ist_kernel ist_kernel_mask_read;
#endif

/* ---- window 0 of the mask dev comm ----------------------------------------------------------- */

/**
 * Channels of flags, each [R] by sender. A flood uses two in turn; agreements of neighbouring
 * generations and cleans have their own pair, so that a rank which has decided can begin the next
 * one while a slower rank still reads the decision.
 */
typedef enum ist_mask_channel {
    IST_MASK_BARRIER = 0, /**< 2 */
    IST_MASK_FLOOD = 2,   /**< 3 pairs */
    IST_MASK_DRAIN = 8,
    IST_MASK_CHANNELS = 9
} ist_mask_channel;

#define IST_MASK_FLOODS 6u /* channels, inboxes and outboxes of floods */

/** First words of the window; only this rank touches them. */
typedef struct ist_mask_state {
    uint64_t barrier_epoch; /**< barriers since the last clean */
    uint64_t launches;      /**< kernels that waited, of all protocols of the communicator; equal on
                                 all ranks; a clean gives it a new beginning */
} ist_mask_state;

/** One message of the flooding. View words follow. */
typedef struct ist_mask_message {
    uint64_t tag;     /**< of instance and round; equals the flag that announces it */
    uint64_t decided; /**< 1: the view is the decision */
} ist_mask_message;

/** Offsets in bytes. */
typedef struct ist_mask_layout {
    uint64_t state;         /**< ist_mask_state */
    uint64_t words;         /**< u64 [IST_MASK_CHANNELS][R], written by the team */
    uint64_t sent;          /**< u64 [IST_MASK_CHANNELS][R], value this rank raised signals to */
    uint64_t notices;       /**< u64 [R], written by any peer: "I masked you" */
    uint64_t beats;         /**< u64 [R], written by any peer: "I am waiting too" */
    uint64_t seen;          /**< u64 [R], beats as last looked at */
    uint64_t inbox;         /**< messages [IST_MASK_FLOODS][R] */
    uint64_t outbox;        /**< messages [IST_MASK_FLOODS], sources of puts */
    uint64_t message_bytes; /**< distance between messages */
    uint64_t bytes;         /**< of everything */
} ist_mask_layout;

/** Layout for a number of ranks. */
IST_LAYOUT_FN ist_mask_layout ist_mask_layout_of(uint32_t rank_count)
{
    ist_mask_layout at;
    uint64_t ranks = rank_count;
    uint64_t end = 0;
    at.message_bytes =
        ist_layout_round(sizeof(ist_mask_message) + (ranks + 63u) / 64u * 8u, IST_LAYOUT_LINE);
    at.state = ist_layout_take(&end, sizeof(ist_mask_state));
    at.words = ist_layout_take(&end, IST_MASK_CHANNELS * ranks * 8u);
    at.sent = ist_layout_take(&end, IST_MASK_CHANNELS * ranks * 8u);
    at.notices = ist_layout_take(&end, ranks * 8u);
    at.beats = ist_layout_take(&end, ranks * 8u);
    at.seen = ist_layout_take(&end, ranks * 8u);
    at.inbox = ist_layout_take(&end, IST_MASK_FLOODS * ranks * at.message_bytes);
    at.outbox = ist_layout_take(&end, IST_MASK_FLOODS * at.message_bytes);
    at.bytes = ist_layout_round(end, IST_LAYOUT_LINE);
    return at;
}

/** Signals of each context where some peer is outside the load/store team. */
IST_LAYOUT_FN uint32_t ist_mask_signal_count(uint32_t rank_count)
{
    return IST_MASK_CHANNELS * rank_count;
}

#endif
