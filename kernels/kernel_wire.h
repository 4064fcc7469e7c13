/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file kernel_wire.h
 * What protocols between ranks share: raising a peer's flag, waiting for many peers at once,
 * giving peers up, telling them, and learning that peers have given this rank up.
 *
 * Silence, not slowness. A rank that waits for a dead peer is late for the living, and a plain
 * deadline would make them give it up too. So a waiter cuts its deadline into slices. After a slice
 * that did not end the wait it sends a beat to all active peers: its position in the order of waits
 * that all ranks of the communicator go through. A peer is given up after a whole deadline without a
 * beat that counts, and a beat counts only while its position lies before the waiter's own: whoever
 * waits at the same place or later has already sent what is missing, and that is lost. Chains of
 * patience therefore fall strictly in position and end at a silent peer. Where streams let ranks pass
 * waits in another order, a bound on the whole wait ends it. No beat is sent while waits end in time.
 * Of itself a rank is patient up to that bound: another of its blocks may be held by a peer. It never
 * drops itself from its mask, as the others decide who of them is out; what it then lacks of itself, it
 * says in its record.
 *
 * Notices. A rank that gives a peer up tells it so with its mask generation, before anything that
 * the peer may still be reading can be overwritten. A rank that finds a notice of its own
 * generation is out: it ends every operation as evicted until it is re-admitted. Two exceptions, so
 * that one fault costs one rank: of two ranks that gave each other up, the lower stays; and a rank
 * that is out itself gives nobody up, it only says that it leaves. Whoever has already used what the
 * leaver or the higher one sent cannot tell what it was, and is out all the same.
 *
 * Beats and notices of all protocols of a communicator meet in one place, the window of its service.
 */
#ifndef IST_KERNEL_WIRE_H
#define IST_KERNEL_WIRE_H

#include <isthmus/device.h>

#include "kernel_layout.h"

/** Tags carry the mask generation above this many bits of an operation number. */
#define IST_WIRE_EPOCH_BITS 40u
#define IST_WIRE_EPOCH_MASK ((UINT64_C(1) << IST_WIRE_EPOCH_BITS) - 1u)
#define IST_WIRE_SLICES 4u
#define IST_WIRE_SLICES_MAX (16u * IST_WIRE_SLICES)
/* A beat: number of the waiting kernel, its wait, a count that makes beats differ. */
#define IST_WIRE_STEP_BITS 16u
#define IST_WIRE_BEAT_BITS 12u
/* A notice: generation, whether the sender leaves. */
#define IST_WIRE_LEAVES (UINT64_C(1) << 32)

/** Scratch slots taken here; kernels use the others. */
#define IST_WIRE_SCRATCH 0u
#define IST_WIRE_SCRATCH_COPY 1u
#define IST_WIRE_SCRATCH_FIRST_FREE 2u

/** What is copied as few words has at most as many bytes. */
#define IST_WIRE_WORDS_BYTES 8192u

/** Notices are looked at in pieces of this many ranks. */
#define IST_WIRE_PIECE 512u

/** Where a protocol keeps its common words, each u64 [R] by peer. */
typedef struct ist_wire {
    const ist_dev_comm *dev;
    const ist_dev_comm *service; /**< of the communicator */
    uint64_t notices;            /**< in window 0 of `service`; so are the others */
    uint64_t beats;
    uint64_t seen;
    uint64_t launches; /**< one word: kernels that waited, equal on all ranks */
    uint8_t *own;      /**< this rank's window 0 of `dev` */
    uint8_t *common;   /**< and of `service` */
    uint32_t ranks;    /**< of the communicator: known here, so that nobody loads them again */
    uint32_t rank;
    uint32_t room; /**< ranks that scratch has room for */
    uint32_t reserved;
} ist_wire;

/** A lane of flags: words for the team, signals for the others, and what was raised last. */
typedef struct ist_wire_channel {
    uint64_t words; /**< u64 [R] by sender */
    uint64_t sent;  /**< u64 [R] by receiver, only this rank touches it */
    uint32_t signal_first;
    uint32_t reserved;
} ist_wire_channel;

/** A wait for all active peers. */
typedef struct ist_wire_want {
    ist_wire_channel channel;
    uint64_t tag;
    uint64_t position;    /**< in the order of waits of all ranks */
    uint64_t deadline_ns; /**< length */
    uint32_t operation;   /**< ist_dev_operation */
    uint32_t reserved;
} ist_wire_want;

/** How a wait ended; or-ed. */
typedef enum ist_wire_outcome {
    IST_WIRE_DONE = 0,
    IST_WIRE_LOST = 1,    /**< this wait gave peers up */
    IST_WIRE_EVICTED = 2, /**< peers have given this rank up; nobody was dropped for it */
    IST_WIRE_ABORTED = 4,
    IST_WIRE_MORE = 256 /**< within a wait: it goes on */
} ist_wire_outcome;

/** Scratch of a wait; u8 silent[R] and u8 marks[R] follow. */
typedef struct ist_wire_scratch {
    uint64_t now;
    uint32_t waiting;
    uint32_t aborted;
    uint32_t lost;
    uint32_t noticed;
    uint32_t reserved[2];
} ist_wire_scratch;

/** Copies whole words between aligned addresses, few a lane. Collective. */
IST_DEVICE_FN void ist_wire_copy_words(ist_coop *coop, void *dst, const void *src, uint64_t bytes)
{
    IST_ASSUME((((uint64_t)dst | (uint64_t)src | bytes) & 7u) == 0);
    IST_ASSUME(bytes <= IST_WIRE_WORDS_BYTES);
    ist_row_copy(coop, dst, src, bytes);
}

/** The scratch head, with room for so many ranks; contents undefined at first. Collective. */
IST_DEVICE_FN ist_wire_scratch *ist_wire_scratch_of(ist_coop *coop, uint32_t room)
{
    uint32_t bytes = (uint32_t)sizeof(ist_wire_scratch) + 2u * room;
    return (ist_wire_scratch *)ist_coop_scratch(coop, IST_WIRE_SCRATCH, bytes);
}

/** Slices of silence, one byte a rank. */
IST_DEVICE_FN uint8_t *ist_wire_silent(ist_wire_scratch *head)
{
    return (uint8_t *)(head + 1);
}

/** A set of ranks, one byte each. */
IST_DEVICE_FN uint8_t *ist_wire_marks(ist_wire_scratch *head, uint32_t room)
{
    return (uint8_t *)(head + 1) + room;
}

/** The same, for whoever needs nothing else of the scratch. Collective. */
IST_DEVICE_FN uint8_t *ist_wire_marks_of(ist_coop *coop, uint32_t room)
{
    return ist_wire_marks(ist_wire_scratch_of(coop, room), room);
}

/** Generation of the mask now. Lane. */
IST_DEVICE_FN uint64_t ist_wire_generation(ist_coop *coop, const ist_dev_comm *dev)
{
    return ist_dev_mask_of(dev) == NULL ? 1u
                                        : ist_load_u64(coop, &ist_dev_mask_of(dev)->generation,
                                                       IST_RELAXED, IST_SCOPE_SYSTEM);
}

/** Whether a lost peer is masked instead of failing the communicator. Lane. */
IST_DEVICE_FN int ist_wire_tolerant(const ist_dev_comm *dev)
{
    return ist_dev_mask_of(dev) != NULL && ist_dev_mask_of(dev)->fault_tolerant != 0;
}

/** Whether this rank knows that it was given up. Lane. */
IST_DEVICE_FN int ist_wire_evicted(ist_coop *coop, const ist_dev_comm *dev)
{
    return ist_dev_mask_of(dev) != NULL &&
           ist_load_u64(coop, &ist_dev_mask_of(dev)->evicted, IST_RELAXED, IST_SCOPE_SYSTEM) != 0;
}

/** Word w of the mask; all ones without a mask. Lane. */
IST_DEVICE_FN uint64_t ist_wire_active_word(ist_coop *coop, const ist_dev_comm *dev, uint32_t w)
{
    return ist_dev_mask_of(dev) == NULL
               ? UINT64_MAX
               : ist_load_u64(coop, &ist_dev_mask_of(dev)->words[w], IST_RELAXED, IST_SCOPE_SYSTEM);
}

/** Word `peer` of an array in this rank's window 0. Lane. */
IST_DEVICE_FN uint64_t *ist_wire_word(ist_coop *coop, const ist_dev_comm *dev, uint64_t array,
                                      uint32_t peer)
{
    return (uint64_t *)ist_window_local(coop, dev, 0, array + 8u * (uint64_t)peer);
}

/** Word of this rank in the same array of a team member. Lane. */
IST_DEVICE_FN uint64_t *ist_wire_word_at(ist_coop *coop, const ist_dev_comm *dev, uint64_t array,
                                         uint32_t peer)
{
    return (uint64_t *)ist_window_peer(coop, dev, 0, array + 8u * (uint64_t)ist_dev_rank(dev),
                                       peer);
}

/** Word `peer` of an array in a window that is known. Lane. */
IST_DEVICE_FN uint64_t *ist_wire_at(uint8_t *window, uint64_t array, uint32_t peer)
{
    return (uint64_t *)(void *)(window + array) + peer;
}

/** One clock value for all lanes. Collective. */
IST_DEVICE_FN uint64_t ist_wire_now(ist_coop *coop, ist_wire_scratch *head)
{
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        head->now = ist_clock_ns(coop);
    }
    ist_coop_sync(coop);
    return head->now;
}

/** Numbers a kernel that waits: the position of its first wait. Collective. */
IST_DEVICE_FN uint64_t ist_wire_enter(ist_coop *coop, const ist_wire *wire)
{
    uint64_t *launches = (uint64_t *)ist_window_local(coop, wire->service, 0, wire->launches);
    uint64_t before = ist_coop_fetch_add(coop, launches, 1, IST_RELAXED, IST_SCOPE_DEVICE);
    return (before + 1u) << IST_WIRE_STEP_BITS;
}

/** Which ranks are active, one byte each, in scratch: one answer for all lanes. Collective. */
IST_DEVICE_FN void ist_wire_active(ist_coop *coop, const ist_dev_comm *dev, uint8_t *active)
{
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, ist_dev_rank_count(dev)) {
        active[peer] = (uint8_t)ist_mask_active(coop, dev, peer);
    }
    ist_coop_sync(coop);
}

/** The GIN context of traffic that a rank sends. */
IST_DEVICE_FN uint32_t ist_wire_context(const ist_dev_comm *dev)
{
    return ist_dev_rank(dev) % dev->context_count;
}

/** The action that makes this rank's signal at a peer equal `tag`. */
IST_DEVICE_FN ist_gin_action ist_wire_action(const ist_dev_comm *dev, ist_wire_channel channel,
                                             uint64_t tag, uint64_t before)
{
    ist_gin_action action;
    action.kind = IST_GIN_SIGNAL_ADD;
    action.signal = channel.signal_first + ist_dev_rank(dev);
    action.value = tag - before;
    return action;
}

/** Raises the flag of one team member: release of what the coop synced before. Lane. */
IST_DEVICE_FN void ist_wire_raise_lsa(ist_coop *coop, const ist_dev_comm *dev,
                                      ist_wire_channel channel, uint64_t tag, uint32_t peer)
{
    ist_store_u64(coop, ist_wire_word_at(coop, dev, channel.words, peer), tag, IST_RELEASE,
                  IST_SCOPE_SYSTEM);
}

/** The value that this rank's signal at a peer has, and sets what it will have. Collective. */
IST_DEVICE_FN uint64_t ist_wire_account(ist_coop *coop, const ist_dev_comm *dev,
                                        ist_wire_channel channel, uint64_t tag, uint32_t peer)
{
    uint64_t *sent = ist_wire_word(coop, dev, channel.sent, peer);
    uint64_t before = ist_load_u64(coop, sent, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, sent, tag, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    return before;
}

/** Raises the signal of one network peer; covers all earlier puts to it. Collective. */
IST_DEVICE_FN void ist_wire_raise_gin(ist_coop *coop, const ist_dev_comm *dev,
                                      ist_wire_channel channel, uint64_t tag, uint32_t peer)
{
    uint64_t before = ist_wire_account(coop, dev, channel, tag, peer);
    ist_gin_signal(coop, dev, ist_wire_context(dev), peer,
                   ist_wire_action(dev, channel, tag, before));
}

/** Raises the flags of all ranks marked in `active` (scratch). Collective. */
IST_DEVICE_FN void ist_wire_raise_all(ist_coop *coop, const ist_dev_comm *dev,
                                      ist_wire_channel channel, uint64_t tag, const uint8_t *active)
{
    uint32_t first = ist_dev_rank(dev) - dev->lsa_rank;
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, dev->lsa_size) {
        if (active[first + i]) {
            ist_wire_raise_lsa(coop, dev, channel, tag, first + i);
        }
    }
    IST_ROLLED
    for (uint32_t peer = 0;
         dev->lsa_size < ist_dev_rank_count(dev) && peer < ist_dev_rank_count(dev); ++peer) {
        if (active[peer] && !ist_dev_is_lsa(dev, peer)) {
            ist_wire_raise_gin(coop, dev, channel, tag, peer);
        }
    }
}

/** Zeroes the signals of `channels` channels that network peers raise here: their accounts begin anew.
 *  Words of the team stay, as a flag of an older generation matches nothing. Lane-parallel. */
IST_DEVICE_FN void ist_wire_reset_signals(ist_coop *coop, const ist_dev_comm *dev,
                                          uint32_t signal_first, uint32_t channels)
{
    if (dev->context_count == 0) {
        return;
    }
    IST_EACH_LANE (coop, i, channels * ist_dev_rank_count(dev)) {
        uint32_t peer = i % ist_dev_rank_count(dev);
        if (!ist_dev_is_lsa(dev, peer)) {
            ist_gin_signal_reset(coop, dev, peer % dev->context_count, signal_first + i);
        }
    }
}

/** Sends `value` to this rank's word of an array at every rank marked in `to`. The word stands for itself
 *  and orders nothing. Collective. */
IST_DEVICE_FN void ist_wire_tell(ist_coop *coop, const ist_dev_comm *dev, uint64_t array,
                                 uint64_t value, const uint8_t *to)
{
    ist_gin_action none;
    none.kind = IST_GIN_NONE;
    none.signal = 0;
    none.value = 0;
    ist_coop_sync(coop);
    IST_ROLLED
    for (uint32_t peer = 0; peer < ist_dev_rank_count(dev); ++peer) {
        if (!to[peer] || peer == ist_dev_rank(dev)) {
            continue;
        }
        if (!ist_dev_is_lsa(dev, peer)) {
            ist_gin_put_value(coop, dev, ist_wire_context(dev), peer, 0,
                              array + 8u * (uint64_t)ist_dev_rank(dev), value, none);
        } else if (ist_coop_elect(coop)) {
            ist_store_u64(coop, ist_wire_word_at(coop, dev, array, peer), value, IST_RELAXED,
                          IST_SCOPE_SYSTEM);
        }
    }
}

/**
 * Tells the ranks marked in `to` that this rank has given them up, or that it leaves, when it is out.
 * The fence puts the notices before every later write of this rank, so that a peer which reads something newer than it should
 * finds the notice when it looks after an acquire fence. Collective.
 */
IST_DEVICE_FN void ist_wire_notify(ist_coop *coop, const ist_wire *wire, const uint8_t *to)
{
    uint64_t generation = ist_wire_generation(coop, wire->dev);
    uint64_t value = generation << IST_WIRE_EPOCH_BITS;
    value |= ist_wire_evicted(coop, wire->dev) ? IST_WIRE_LEAVES : 0u;
    ist_wire_tell(coop, wire->service, wire->notices, value, to);
    ist_fence(coop, IST_ACQ_REL, IST_SCOPE_SYSTEM);
    ist_coop_sync(coop);
}

/** Drops one peer from the mask, or fails the communicator, with the reason; a mask keeps its own rank.
 *  Lane. */
IST_DEVICE_FN void ist_wire_drop(ist_coop *coop, const ist_dev_comm *dev, int32_t status,
                                 uint32_t peer, uint32_t operation, uint64_t expected,
                                 uint64_t observed, uint64_t waited_ns)
{
    ist_dev_error error;
    error.status = status;
    error.peer = peer;
    error.operation = operation;
    error.reserved = 0;
    error.sequence = expected;
    error.expected = expected;
    error.observed = observed;
    error.waited_ns = waited_ns;
    if (ist_dev_mask_of(dev) != NULL && (peer != ist_dev_rank(dev) || !ist_wire_tolerant(dev))) {
        ist_mask_drop(coop, dev, &error);
    }
}

/** Whether a peer has said that it leaves this generation. Lane. */
IST_DEVICE_FN int ist_wire_left(ist_coop *coop, const ist_wire *wire, uint32_t peer)
{
    uint64_t notice = ist_load_u64(coop, ist_wire_word(coop, wire->service, wire->notices, peer),
                                   IST_RELAXED, IST_SCOPE_SYSTEM);
    return (notice & IST_WIRE_LEAVES) != 0 &&
           notice >> IST_WIRE_EPOCH_BITS == ist_wire_generation(coop, wire->dev);
}

/** Whether a notice puts this rank out; `used`: what the peer sent was used. Lane. */
IST_DEVICE_FN int ist_wire_evicts(ist_coop *coop, const ist_dev_comm *dev, uint64_t notice,
                                  uint64_t generation, uint32_t peer, int used)
{
    if (notice >> IST_WIRE_EPOCH_BITS != generation) {
        return notice >> IST_WIRE_EPOCH_BITS > generation;
    }
    return used || ((notice & IST_WIRE_LEAVES) == 0 &&
                    (peer < ist_dev_rank(dev) || ist_mask_active(coop, dev, peer)));
}

/** Notes in the mask that this rank was given up. Lane. */
IST_DEVICE_FN void ist_wire_note_eviction(ist_coop *coop, const ist_dev_comm *dev, uint32_t noticed)
{
    if (ist_wire_tolerant(dev)) {
        /* Stands for itself: hosts read it when the kernel has ended. */
        ist_store_u64(coop, &ist_dev_mask_of(dev)->evicted, noticed, IST_RELAXED, IST_SCOPE_SYSTEM);
    } else { /* the peer's communicator has failed, and so has this one */
        ist_wire_drop(coop, dev, IST_ERR_TIMEOUT, noticed - 1u, IST_DEV_OP_NONE, 0, 0, 0);
    }
}

/** As ist_wire_note_eviction(), apart; all lanes know it after that. Collective. */
IST_DEVICE_RARE_FN void ist_wire_leave(ist_coop *coop, const ist_dev_comm *dev, uint32_t noticed)
{
    if (ist_coop_elect(coop)) {
        ist_wire_note_eviction(coop, dev, noticed);
    }
    ist_coop_sync(coop);
}

/**
 * Whether some peer has given this rank up in the mask's generation, or in a later one, which the
 * peers then entered without it; notes it in the mask. `used` are the ranks, as words of a mask,
 * from whose memory the caller has read, NULL: none. What was read may be newer than it should be
 * only if this says so. Collective; syncs before it reads `used`.
 */
IST_DEVICE_FN int ist_wire_noticed(ist_coop *coop, const ist_wire *wire, const uint64_t *used)
{
    const ist_dev_comm *dev = wire->dev;
    ist_wire_scratch *head = ist_wire_scratch_of(coop, wire->room);
    uint64_t *words =
        (uint64_t *)ist_coop_scratch(coop, IST_WIRE_SCRATCH_COPY, IST_WIRE_PIECE * 8u);
    ist_fence(coop, IST_ACQUIRE, IST_SCOPE_SYSTEM);
    uint64_t generation = ist_wire_generation(coop, dev);
    int evicted = ist_wire_evicted(coop, dev);
    IST_ROLLED
    for (uint32_t first = 0; first < wire->ranks; first += IST_WIRE_PIECE) {
        uint32_t left = wire->ranks - first;
        uint32_t count = left < IST_WIRE_PIECE ? left : IST_WIRE_PIECE;
        /* As a row: it is read as it is now, behind all rows that were read before. A load might return an
           older word, as no read of a row orders it. */
        ist_wire_copy_words(coop, words, ist_wire_at(wire->common, wire->notices, first),
                            count * 8u);
        if (first == 0 && ist_coop_elect(coop)) {
            head->noticed = (uint32_t)evicted;
        }
        ist_coop_sync(coop);
        IST_EACH_LANE (coop, i, count) {
            uint32_t peer = first + i;
            int known = used != NULL && ((used[peer / 64u] >> (peer % 64u)) & 1u) != 0;
            if (ist_wire_evicts(coop, dev, words[i], generation, peer, known)) {
                head->noticed = peer + 1u;
            }
        }
        ist_coop_sync(coop);
    }
    uint32_t noticed = head->noticed;
    if (noticed != 0) {
        IST_RARELY(coop, ist_wire_leave(coop, dev, noticed));
    }
    return noticed != 0;
}

/** Whether this rank has noted that it is out: one answer for all lanes, no look at new notices. A
 *  sync lies between what is before and what is after; another must lie between two looks. Collective. */
IST_DEVICE_FN int ist_wire_out(ist_coop *coop, const ist_wire *wire)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, wire->room);
    if (ist_coop_elect(coop)) {
        head->noticed = (uint32_t)ist_wire_evicted(coop, wire->dev);
    }
    ist_coop_sync(coop);
    return head->noticed != 0;
}

/** Value that a peer's flag has now, for reports. Lane. */
IST_DEVICE_FN uint64_t ist_wire_flag(ist_coop *coop, const ist_dev_comm *dev,
                                     ist_wire_channel channel, uint32_t peer)
{
    if (ist_dev_is_lsa(dev, peer)) {
        return ist_load_u64(coop, ist_wire_word(coop, dev, channel.words, peer), IST_RELAXED,
                            IST_SCOPE_SYSTEM);
    }
    return ist_gin_signal_read(coop, dev, peer % dev->context_count, channel.signal_first + peer,
                               IST_RELAXED);
}

/** Whether a beat that counts has come from a peer since the last look. Lane. */
IST_DEVICE_FN int ist_wire_beat_moved(ist_coop *coop, const ist_wire *wire, uint64_t position,
                                      uint32_t peer, uint32_t slice)
{
    uint64_t beat = ist_load_u64(coop, ist_wire_word(coop, wire->service, wire->beats, peer),
                                 IST_RELAXED, IST_SCOPE_SYSTEM);
    uint64_t *seen = ist_wire_word(coop, wire->service, wire->seen, peer);
    uint64_t before = ist_load_u64(coop, seen, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, seen, beat, IST_RELAXED, IST_SCOPE_DEVICE);
    return slice > 1 && beat != before && beat >> IST_WIRE_BEAT_BITS < position;
}

/** Counts the silence of those that a slice did not bring. Collective. */
IST_DEVICE_FN void ist_wire_count_silence(ist_coop *coop, const ist_wire *wire,
                                          const ist_wire_want *want, const uint8_t *results,
                                          uint32_t slice)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, wire->room);
    uint8_t *silent = ist_wire_silent(head);
    if (ist_coop_elect(coop)) {
        head->waiting = 0;
        head->aborted = 0;
        head->lost = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, wire->ranks) {
        uint8_t result = results[peer];
        uint32_t before = slice == 1 ? 0 : silent[peer];
        if (result == IST_WAIT_ERROR ||
            (result == IST_WAIT_TIMEOUT &&
             (slice >= IST_WIRE_SLICES_MAX || ist_wire_left(coop, wire, peer)))) {
            silent[peer] = IST_WIRE_SLICES;
        } else if (result == IST_WAIT_TIMEOUT) {
            int moved =
                peer == wire->rank || ist_wire_beat_moved(coop, wire, want->position, peer, slice);
            silent[peer] = moved ? 0 : (uint8_t)(before + 1u);
        } else {
            silent[peer] = 0;
        }
        if (result == IST_WAIT_ABORTED) {
            head->aborted = 1;
        } else if (silent[peer] >= IST_WIRE_SLICES) {
            head->lost = 1;
        } else if (result == IST_WAIT_TIMEOUT) {
            head->waiting = 1;
        }
    }
    ist_coop_sync(coop);
}

/** Gives up the peers that were silent for a whole deadline, and tells them. Collective. */
IST_DEVICE_FN void ist_wire_give_up(ist_coop *coop, const ist_wire *wire, const ist_wire_want *want,
                                    const uint8_t *results, uint64_t waited_ns)
{
    const ist_dev_comm *dev = wire->dev;
    ist_wire_scratch *head = ist_wire_scratch_of(coop, wire->room);
    uint8_t *silent = ist_wire_silent(head);
    uint8_t *marks = ist_wire_marks(head, wire->room);
    IST_EACH_LANE (coop, peer, wire->ranks) {
        marks[peer] = silent[peer] >= IST_WIRE_SLICES;
    }
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        IST_ROLLED
        for (uint32_t peer = 0; peer < wire->ranks; ++peer) {
            if (marks[peer]) {
                int32_t why = results[peer] == IST_WAIT_ERROR   ? IST_ERR_REMOTE
                              : ist_wire_left(coop, wire, peer) ? IST_ERR_RANK_LOST
                                                                : IST_ERR_TIMEOUT;
                uint64_t flag = ist_wire_flag(coop, dev, want->channel, peer);
                ist_wire_drop(coop, dev, why, peer, want->operation, want->tag, flag, waited_ns);
            }
        }
    }
    ist_wire_notify(coop, wire, marks);
}

/** Tells everybody still active that this rank lives and where it waits. A wait must follow, which syncs.
 *  Collective. */
IST_DEVICE_FN void ist_wire_beat(ist_coop *coop, const ist_wire *wire, uint64_t position,
                                 uint32_t slice)
{
    uint8_t *marks = ist_wire_marks_of(coop, wire->room);
    uint64_t count = slice & ((UINT32_C(1) << IST_WIRE_BEAT_BITS) - 1u);
    ist_wire_active(coop, wire->dev, marks);
    ist_wire_tell(coop, wire->service, wire->beats, position << IST_WIRE_BEAT_BITS | count, marks);
}

/** Deals with a slice that did not end the wait. @return ist_wire_outcome, or-ed. Collective. */
IST_DEVICE_FN uint32_t ist_wire_judge(ist_coop *coop, const ist_wire *wire,
                                      const ist_wire_want *want, const uint8_t *results,
                                      uint32_t slice, uint64_t start)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, wire->room);
    uint64_t waited = ist_wire_now(coop, head) - start;
    ist_wire_count_silence(coop, wire, want, results, slice);
    if (head->aborted) {
        return IST_WIRE_ABORTED;
    }
    uint32_t lost = head->lost;
    uint32_t waiting = head->waiting;
    if (ist_wire_noticed(coop, wire, NULL)) {
        return IST_WIRE_EVICTED;
    }
    if (lost) {
        ist_wire_give_up(coop, wire, want, results, waited);
        if (!ist_wire_tolerant(wire->dev)) {
            return IST_WIRE_LOST;
        }
    }
    if (waiting) {
        ist_wire_beat(coop, wire, want->position, slice);
    }
    return (lost ? (uint32_t)IST_WIRE_LOST : 0u) | (waiting ? (uint32_t)IST_WIRE_MORE : 0u);
}

/** Waits until a slice of the deadline has passed. @return how many peers are missing. Collective. */
IST_DEVICE_FN uint32_t ist_wire_wait_slice(ist_coop *coop, const ist_wire *wire,
                                           const ist_wire_want *want, uint32_t slice,
                                           uint64_t start, uint8_t *results)
{
    ist_peer_wait wait;
    uint64_t length =
        slice == IST_WIRE_SLICES ? want->deadline_ns : want->deadline_ns / IST_WIRE_SLICES * slice;
    wait.words = ist_wire_at(wire->own, want->channel.words, 0);
    wait.expected = want->tag;
    wait.deadline_ns = start + length;
    wait.signal_first = want->channel.signal_first;
    wait.skip_self = 0;
    return ist_wait_peers(coop, wire->dev, &wait, results);
}

/** The rest of a wait whose first slice left peers missing. No sync is needed at its end: a wait that
 *  brings all ends with one, so does whoever gives up or leaves. @return ist_wire_outcome. Collective. */
IST_DEVICE_RARE_FN uint32_t ist_wire_wait_on(ist_coop *coop, ist_wire wire, ist_wire_want want,
                                             uint64_t start, uint8_t *results)
{
    uint32_t outcome = IST_WIRE_MORE;
    IST_ROLLED
    for (uint32_t slice = 1; outcome & IST_WIRE_MORE; ++slice) {
        outcome &= ~(uint32_t)IST_WIRE_MORE;
        if (slice == 1 || ist_wire_wait_slice(coop, &wire, &want, slice, start, results) != 0) {
            outcome |= ist_wire_judge(coop, &wire, &want, results, slice, start);
        }
    }
    return outcome;
}

/**
 * Waits until every active peer has raised its flag of the channel to the tag, and gives up those
 * that are silent for the deadline. results[p] (scratch) is IST_WAIT_DONE for those that came;
 * acquire at system scope for them. Collective. @return ist_wire_outcome, or-ed
 */
IST_DEVICE_FN uint32_t ist_wire_wait(ist_coop *coop, const ist_wire *wire,
                                     const ist_wire_want *want, uint8_t *results)
{
    uint64_t start = ist_wire_now(coop, ist_wire_scratch_of(coop, wire->room));
    uint32_t outcome = IST_WIRE_DONE;
    if (ist_wire_wait_slice(coop, wire, want, 1, start, results) != 0) {
        IST_RARELY(coop, outcome = ist_wire_wait_on(coop, *wire, *want, start, results));
    }
    return outcome;
}

#endif
