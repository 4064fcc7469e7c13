/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mask_flood.h
 * Flooding consensus on a set of ranks with early stopping (Lynch, Distributed Algorithms, 1996,
 * ch. 6). The view is the mask itself.
 *
 * Phases of a round:
 *   1 send    {tag of instance and round, view} to everybody in the view, then the flag
 *   2 wait    for the messages of this round from everybody in the view; the silent leave it
 *   3 merge   view = intersection of all views received; a received decision replaces it
 *   4 decide  when nobody left in this round and all views were equal
 * A decider sends its decision as its message of the next round before it stops, so that whoever
 * did not decide in the same round takes it over; only a crash of all deciders undoes a decision,
 * and then no survivor has it. Without a decision at least one rank leaves in every round, so there
 * are at most rank_count + 1 rounds.
 *
 * Orderings. A message is written before its flag is released, or put before its signal is raised,
 * and is read after the flag was acquired. Rounds use two inboxes in turn: who sends for round r + 2 has the
 * receiver's message of round r + 1, which the receiver sent after it had read round r. A rank
 * outside the view gets a notice and no message, so a slow reader's inbox is left alone. The next
 * agreement uses another pair of inboxes, and the one after it begins after all took part in it.
 */
#ifndef IST_MASK_FLOOD_H
#define IST_MASK_FLOOD_H

#include "mask_wire.h"

/** One agreement. */
typedef struct ist_mask_flood {
    const ist_dev_comm *dev;
    ist_mask_layout at;
    uint64_t instance;    /**< tags are instance | round; low 20 bits zero */
    uint64_t position;    /**< of the first round's wait */
    uint64_t deadline_ns; /**< of a round's wait */
    uint32_t operation;   /**< ist_dev_operation */
    uint32_t pair;        /**< of channels and boxes, 0 … 2 */
    uint32_t rounds;      /**< out */
    uint32_t reserved;
} ist_mask_flood;

/** Scratch of a flood; u64 sent[W], u64 view[W] follow. */
typedef struct ist_mask_view {
    uint32_t differs;  /**< some view received differs from the one sent */
    uint32_t excluded; /**< rank + 1 of a peer whose view lacks this rank */
    uint32_t decided;  /**< a decision was received */
    uint32_t stale;    /**< rank + 1 of a peer whose message did not come with its signal */
} ist_mask_view;

IST_DEVICE_FN uint32_t ist_mask_word_count(const ist_dev_comm *dev)
{
    return (dev->rank_count + 63u) / 64u;
}

IST_DEVICE_FN ist_mask_view *ist_mask_view_of(ist_coop *coop, const ist_dev_comm *dev)
{
    uint32_t bytes = (uint32_t)sizeof(ist_mask_view) + 16u * ist_mask_word_count(dev);
    return (ist_mask_view *)ist_coop_scratch(coop, IST_MASK_SCRATCH_VIEW, bytes);
}

IST_DEVICE_FN uint64_t *ist_mask_view_sent(ist_mask_view *view)
{
    return (uint64_t *)(view + 1);
}

IST_DEVICE_FN uint64_t *ist_mask_view_now(ist_mask_view *view, const ist_dev_comm *dev)
{
    return (uint64_t *)(view + 1) + ist_mask_word_count(dev);
}

IST_DEVICE_FN uint64_t ist_mask_message_bytes(const ist_dev_comm *dev)
{
    return sizeof(ist_mask_message) + 8u * (uint64_t)ist_mask_word_count(dev);
}

/** Which of the channels and boxes a round uses. */
IST_DEVICE_FN uint32_t ist_mask_box(const ist_mask_flood *flood, uint32_t round)
{
    return 2u * flood->pair + (round & 1u);
}

IST_DEVICE_FN uint64_t ist_mask_inbox(const ist_mask_flood *flood, uint32_t round, uint32_t sender)
{
    uint64_t index = (uint64_t)ist_mask_box(flood, round) * flood->dev->rank_count + sender;
    return flood->at.inbox + index * flood->at.message_bytes;
}

/** Writes this round's message into the outbox and marks the receivers. Collective. */
IST_DEVICE_FN uint64_t ist_mask_compose(ist_coop *coop, const ist_mask_flood *flood, uint32_t round,
                                        uint64_t decided, uint8_t *active)
{
    const ist_dev_comm *dev = flood->dev;
    ist_mask_view *view = ist_mask_view_of(coop, dev);
    uint64_t *sent = ist_mask_view_sent(view);
    uint64_t outbox = flood->at.outbox + ist_mask_box(flood, round) * flood->at.message_bytes;
    ist_mask_message *message = (ist_mask_message *)ist_coop_scratch(
        coop, IST_MASK_SCRATCH_MESSAGE, (uint32_t)ist_mask_message_bytes(dev));
    uint64_t *words = (uint64_t *)(message + 1);
    IST_EACH_LANE (coop, i, ist_mask_word_count(dev)) {
        sent[i] = ist_load_u64(coop, &dev->mask->words[i], IST_RELAXED, IST_SCOPE_SYSTEM);
        words[i] = sent[i];
    }
    if (ist_coop_elect(coop)) {
        message->tag = flood->instance | (round + 1u);
        message->decided = decided;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        active[peer] = (uint8_t)((sent[peer / 64u] >> (peer % 64u)) & 1u);
    }
    ist_row_copy(coop, ist_window_local(coop, dev, 0, outbox), message,
                 ist_mask_message_bytes(dev));
    ist_coop_sync(coop);
    return outbox;
}

/** Phase 1. Collective. */
IST_DEVICE_FN void ist_mask_send(ist_coop *coop, const ist_mask_flood *flood, uint32_t round,
                                 uint64_t decided)
{
    const ist_dev_comm *dev = flood->dev;
    uint64_t tag = flood->instance | (round + 1u);
    uint64_t bytes = ist_mask_message_bytes(dev);
    uint8_t *active = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    uint64_t outbox = ist_mask_compose(coop, flood, round, decided, active);
    uint64_t inbox = ist_mask_inbox(flood, round, dev->rank);
    ist_wire_channel channel =
        ist_mask_channel_of(dev, &flood->at, IST_MASK_FLOOD + ist_mask_box(flood, round));
    const void *message = ist_window_local(coop, dev, 0, outbox);
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        if (!active[peer]) {
            continue;
        }
        if (ist_dev_is_lsa(dev, peer)) {
            ist_row_copy(coop, ist_window_peer(coop, dev, 0, inbox, peer), message, bytes);
        } else {
            ist_gin_action none;
            none.kind = IST_GIN_NONE;
            none.signal = 0;
            none.value = 0;
            ist_gin_put(coop, dev, ist_wire_context(dev), peer, 0, inbox, 0, outbox, bytes, none,
                        IST_GIN_NO_COUNTER);
        }
    }
    ist_wire_raise_all(coop, dev, channel, tag, active);
}

/** Takes one message into the view; a sync lies before and must follow. Collective. */
IST_DEVICE_FN void ist_mask_merge_one(ist_coop *coop, const ist_mask_flood *flood, uint32_t round,
                                      uint32_t peer)
{
    const ist_dev_comm *dev = flood->dev;
    uint64_t bytes = ist_mask_message_bytes(dev);
    ist_mask_view *view = ist_mask_view_of(coop, dev);
    uint64_t *sent = ist_mask_view_sent(view);
    uint64_t *now = ist_mask_view_now(view, dev);
    ist_mask_message *message =
        (ist_mask_message *)ist_coop_scratch(coop, IST_MASK_SCRATCH_MESSAGE, (uint32_t)bytes);
    const uint64_t *words = (const uint64_t *)(message + 1);
    ist_row_copy(coop, message, ist_window_local(coop, dev, 0, ist_mask_inbox(flood, round, peer)),
                 bytes);
    ist_coop_sync(coop);
    if (message->tag != (flood->instance | (round + 1u))) {
        if (ist_coop_elect(coop)) {
            view->stale = peer + 1u;
            view->differs = 1;
            now[peer / 64u] &= ~(UINT64_C(1) << (peer % 64u));
        }
        return;
    }
    if (ist_coop_elect(coop)) {
        uint64_t own = words[dev->rank / 64u] >> (dev->rank % 64u);
        view->excluded = (own & 1u) ? view->excluded : peer + 1u;
        view->decided = message->decided != 0 ? 1u : view->decided;
    }
    IST_EACH_LANE (coop, i, ist_mask_word_count(dev)) {
        if (words[i] != sent[i]) {
            view->differs = 1;
        }
        now[i] = message->decided != 0 ? words[i] : (now[i] & words[i]);
    }
}

/** Phase 3 over all that came; stops at the first decision. Ends with a sync. Collective. */
IST_DEVICE_FN void ist_mask_merge(ist_coop *coop, const ist_mask_flood *flood, uint32_t round,
                                  const uint8_t *results)
{
    const ist_dev_comm *dev = flood->dev;
    ist_mask_view *view = ist_mask_view_of(coop, dev);
    uint64_t *sent = ist_mask_view_sent(view);
    uint64_t *now = ist_mask_view_now(view, dev);
    if (ist_coop_elect(coop)) {
        view->differs = 0;
        view->excluded = 0;
        view->decided = 0;
        view->stale = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, ist_mask_word_count(dev)) {
        now[i] = ist_load_u64(coop, &dev->mask->words[i], IST_RELAXED, IST_SCOPE_SYSTEM);
        if (now[i] != sent[i]) {
            view->differs = 1;
        }
    }
    ist_coop_sync(coop);
    for (uint32_t peer = 0; peer < dev->rank_count && !view->decided; ++peer) {
        if (results[peer] == IST_WAIT_DONE && peer != dev->rank) {
            ist_mask_merge_one(coop, flood, round, peer);
            ist_coop_sync(coop);
        }
    }
}

/** Makes the mask the view, and tells those that leave it. The words are each lane's own, here and in
 *  the message that follows. Collective. */
IST_DEVICE_FN void ist_mask_apply(ist_coop *coop, const ist_mask_flood *flood)
{
    const ist_dev_comm *dev = flood->dev;
    ist_wire wire = ist_mask_wire(coop, dev);
    uint8_t *marks = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    const uint64_t *now = ist_mask_view_now(ist_mask_view_of(coop, dev), dev);
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        int stays = (int)((now[peer / 64u] >> (peer % 64u)) & 1u);
        marks[peer] = (uint8_t)(!stays && ist_mask_active(coop, dev, peer));
        if (marks[peer]) {
            ist_wire_drop(coop, dev, IST_ERR_RANK_LOST, peer, flood->operation, flood->instance, 0,
                          0);
        }
    }
    ist_wire_notify(coop, &wire, marks);
    IST_EACH_LANE (coop, i, ist_mask_word_count(dev)) {
        ist_store_u64(coop, &dev->mask->words[i], now[i], IST_RELAXED, IST_SCOPE_SYSTEM);
    }
}

/** Notes that the peers have gone on without this rank. Collective. */
IST_DEVICE_FN int32_t ist_mask_excluded(ist_coop *coop, const ist_dev_comm *dev, uint32_t by)
{
    if (by != 0 && ist_coop_elect(coop)) {
        ist_store_u64(coop, &dev->mask->evicted, by, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    return IST_ERR_EVICTED;
}

/** Phase 2. @return IST_OK, IST_ERR_EVICTED, IST_ERR_ABORTED. Collective. */
IST_DEVICE_FN int32_t ist_mask_receive(ist_coop *coop, const ist_mask_flood *flood, uint32_t round,
                                       uint8_t *results)
{
    const ist_dev_comm *dev = flood->dev;
    ist_wire wire = ist_mask_wire(coop, dev);
    ist_wire_want want;
    want.channel =
        ist_mask_channel_of(dev, &flood->at, IST_MASK_FLOOD + ist_mask_box(flood, round));
    want.tag = flood->instance | (round + 1u);
    want.position = flood->position + round;
    want.deadline_ns = flood->deadline_ns;
    want.operation = flood->operation;
    want.reserved = 0;
    uint32_t outcome = ist_wire_wait(coop, &wire, &want, results);
    if (outcome & IST_WIRE_ABORTED) {
        return IST_ERR_ABORTED;
    }
    /* Who was stopped finds all messages at once, and that the senders have given up on it. */
    return ist_wire_noticed(coop, &wire, NULL) ? IST_ERR_EVICTED : IST_OK;
}

/**
 * Tells the ranks outside the mask that the others go on without them: one that the program itself
 * took out of all masks hears it from nobody else, and would agree with itself. Collective.
 */
IST_DEVICE_FN void ist_mask_tell_outsiders(ist_coop *coop, const ist_mask_flood *flood)
{
    const ist_dev_comm *dev = flood->dev;
    ist_wire wire = ist_mask_wire(coop, dev);
    uint8_t *marks = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    uint32_t outside = 0;
    ist_wire_active(coop, dev, marks);
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        outside += marks[peer] == 0;
    }
    ist_coop_sync(coop);
    if (outside == 0) {
        return;
    }
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        marks[peer] = (uint8_t)!marks[peer];
    }
    ist_wire_notify(coop, &wire, marks);
}

/**
 * Agrees on the mask. On IST_OK it is equal on all ranks that return IST_OK; the generation is the
 * caller's to set. @return IST_OK, IST_ERR_EVICTED, IST_ERR_ABORTED. Collective.
 */
IST_DEVICE_FN int32_t ist_mask_agree_on(ist_coop *coop, ist_mask_flood *flood)
{
    const ist_dev_comm *dev = flood->dev;
    uint8_t *results = ist_mask_results(coop, dev);
    ist_mask_view *view = ist_mask_view_of(coop, dev);
    ist_mask_tell_outsiders(coop, flood);
    for (uint32_t round = 0; round <= dev->rank_count + 1u; ++round) {
        flood->rounds = round + 1u;
        ist_mask_send(coop, flood, round, 0);
        ist_point(coop, "mask.flood.sent");
        int32_t status = ist_mask_receive(coop, flood, round, results);
        if (status != IST_OK) {
            return status;
        }
        ist_mask_merge(coop, flood, round, results);
        uint32_t excluded = view->excluded;
        uint32_t decided = view->decided || !view->differs;
        if (excluded) {
            return ist_mask_excluded(coop, dev, excluded);
        }
        ist_mask_apply(coop, flood);
        if (decided) {
            ist_mask_send(coop, flood, round + 1u, 1);
            ist_point(coop, "mask.flood.decided");
            return IST_OK;
        }
    }
    return ist_mask_excluded(coop, dev, dev->rank + 1u);
}

#endif
