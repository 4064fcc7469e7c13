/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep_wire.h
 * What dispatch and combine share: entering a kernel (tag, slot), meeting the other blocks, raising
 * flags, one decision for all blocks about who takes part, and the conclusion by the last block.
 *
 * Orderings that both rely on.
 *   - Blocks of a launch meet through counters in the group's state: each adds with acq_rel, the
 *     waiter acquires. Their bases are constant while a kernel runs; the last block to leave, which
 *     has synchronised with all others, moves them.
 *   - Block 0 alone waits for peers and decides. It publishes the verdict before it releases
 *     `decided`; the others acquire it. What a block consumes is therefore what all consume.
 *   - The state is touched by one kernel at a time: operations of a group are ordered by streams.
 */
#ifndef IST_EP_WIRE_H
#define IST_EP_WIRE_H

#include "../mask/mask_service.h"
#include "ep_args.h"

/** Outcome of an operation on memory that is not the handle's; beside ist_wire_outcome. */
#define IST_EP_FOREIGN 8u

/* Scratch slots after the wire's. */
#define IST_EP_SCRATCH_RESULTS 2u /* u8 [R] */
#define IST_EP_SCRATCH_VERDICT 3u /* ist_ep_state_head, u64 [W] verdict, u64 [W] intact */
#define IST_EP_SCRATCH_RECORDS 4u /* metadata, IST_EP_CHUNK_BYTES */
#define IST_EP_SCRATCH_DESCS 5u
#define IST_EP_SCRATCH_ROWS 6u
#define IST_EP_SCRATCH_SUMS 7u /* u32 [L] running slots, u32 [R + 1] rows */

#define IST_EP_HEADS 64u /* destinations served between two syncs */

/** One operation as a block sees it. */
typedef struct ist_ep_op_view {
    const ist_ep_op_args *args;
    const ist_dev_comm *dev;
    ist_ep_state *state;
    ist_wire wire;
    ist_ep_state_head before; /**< the state when the kernel began */
    uint64_t tag;
    uint64_t generation;
    uint64_t base; /**< of the slot in the window */
    uint32_t slot;
    uint32_t block;
    uint32_t blocks;
    uint32_t rows_wait; /**< 1: blocks meet after staging */
} ist_ep_op_view;

/** Mixes the words that say what a handle is for. */
IST_DEVICE_FN uint64_t ist_ep_handle_checksum(const ist_ep_handle_head *head)
{
    uint64_t words[6];
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    words[0] = head->magic;
    words[1] = (uint64_t)head->version << 32 | head->layout;
    words[2] = (uint64_t)head->rank_count << 32 | head->expert_count;
    words[3] = (uint64_t)head->tokens_max << 32 | head->topk;
    words[4] = (uint64_t)head->rank << 32 | head->token_count;
    words[5] = head->updates;
    for (uint32_t i = 0; i < 6; ++i) {
        sum = (sum ^ words[i]) * UINT64_C(0x100000001b3);
        sum ^= sum >> 29;
    }
    return sum;
}

/** Address in this rank's window. Lane. */
IST_DEVICE_FN uint8_t *ist_ep_at(ist_coop *coop, const ist_ep_op_view *op, uint64_t offset)
{
    return (uint8_t *)ist_window_local(coop, op->dev, 0, offset);
}

IST_DEVICE_FN ist_ep_handle_head *ist_ep_handle_of(const ist_ep_op_args *args)
{
    return (ist_ep_handle_head *)(void *)args->handle;
}

/** Whether handle memory is what the call took it for. Lane. */
IST_DEVICE_FN int ist_ep_handle_valid(const ist_ep_op_args *args)
{
    const ist_ep_handle_head *head = ist_ep_handle_of(args);
    return head->magic == IST_EP_HANDLE_MAGIC && head->version == IST_EP_HANDLE_VERSION &&
           head->layout == args->layout && head->topk == args->topk &&
           head->token_count == args->token_count && head->checksum == ist_ep_handle_checksum(head);
}

/** What both sides of an operation must have equal, in one word. */
IST_DEVICE_FN uint64_t ist_ep_shape(const ist_ep_op_args *args)
{
    return args->row_bytes << 20 | (uint64_t)args->dtype << 12 | (uint64_t)args->topk << 4 |
           (uint64_t)args->layout << 1 | args->operation;
}

IST_DEVICE_FN ist_wire_channel ist_ep_channel(const ist_ep_geometry *geometry,
                                              const ist_ep_layout_map *at, uint32_t channel)
{
    ist_wire_channel of;
    of.words = at->words + 8u * (uint64_t)channel * geometry->rank_count;
    of.sent = at->sent + 8u * (uint64_t)channel * geometry->rank_count;
    of.signal_first = channel * geometry->rank_count;
    of.reserved = 0;
    return of;
}

IST_DEVICE_FN ist_wire_channel ist_ep_flag_of(const ist_ep_op_view *op, ist_ep_flag flag)
{
    return ist_ep_channel(&op->args->geometry, &op->args->at,
                          op->slot * (uint32_t)IST_EP_FLAGS + (uint32_t)flag);
}

IST_DEVICE_FN uint8_t *ist_ep_results(ist_coop *coop, const ist_dev_comm *dev)
{
    return (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_RESULTS, dev->rank_count);
}

/** Scratch of the state, then of the verdict. */
IST_DEVICE_FN ist_ep_state_head *ist_ep_scratch_head(ist_coop *coop, const ist_dev_comm *dev)
{
    uint32_t bytes = (uint32_t)sizeof(ist_ep_state_head) + 16u * ist_ep_word_count(dev->rank_count);
    return (ist_ep_state_head *)ist_coop_scratch(coop, IST_EP_SCRATCH_VERDICT, bytes);
}

IST_DEVICE_FN uint64_t *ist_ep_verdict_of(ist_coop *coop, const ist_dev_comm *dev)
{
    return (uint64_t *)(ist_ep_scratch_head(coop, dev) + 1);
}

/** The verdict less the ranks whose rows broke while they were copied; the last block's. */
IST_DEVICE_FN uint64_t *ist_ep_intact_of(ist_coop *coop, const ist_dev_comm *dev)
{
    return ist_ep_verdict_of(coop, dev) + ist_ep_word_count(dev->rank_count);
}

IST_DEVICE_FN int ist_ep_is_in(const uint64_t *words, uint32_t rank)
{
    return (int)((words[rank / 64u] >> (rank % 64u)) & 1u);
}

/** Lowest slot that is not in flight; the host has made sure that there is one. */
IST_DEVICE_FN uint32_t ist_ep_free_slot(uint64_t busy, uint32_t slots)
{
    uint32_t slot = 0;
    while (slot + 1u < slots && ((busy >> slot) & 1u)) {
        ++slot;
    }
    return slot;
}

/** Tag and slot of this launch: a new operation's, or those of the handle's staged one. Lane. */
IST_DEVICE_FN void ist_ep_number(ist_coop *coop, ist_ep_op_view *op)
{
    const ist_ep_handle_head *head = ist_ep_handle_of(op->args);
    if (op->args->halves & IST_EP_SEND) {
        op->generation = ist_wire_generation(coop, op->dev);
        op->tag =
            op->generation << IST_WIRE_EPOCH_BITS | ((op->before.epoch + 1u) & IST_WIRE_EPOCH_MASK);
        op->slot = ist_ep_free_slot(op->before.busy, op->args->geometry.slot_count);
    } else {
        op->generation = head->pending_generation;
        op->tag = head->pending_tag;
        op->slot = (uint32_t)head->pending_slot % op->args->geometry.slot_count;
    }
    op->base = op->args->at.slots + op->slot * op->args->at.slot_bytes;
}

/** Begins a kernel. Collective. */
IST_DEVICE_FN void ist_ep_enter(ist_coop *coop, const ist_ep_op_args *args, ist_ep_op_view *op)
{
    ist_ep_state_head *before = ist_ep_scratch_head(coop, args->dev);
    op->args = args;
    op->dev = args->dev;
    op->wire = ist_mask_wire_of(args->dev, args->service);
    op->block = ist_coop_block(coop);
    op->blocks = ist_coop_block_count(coop);
    op->state = (ist_ep_state *)(void *)ist_ep_at(coop, op, args->at.state);
    ist_row_copy(coop, before, op->state, sizeof(*before));
    ist_coop_sync(coop);
    op->before = *before;
    op->rows_wait = op->blocks > 1u && (args->halves & IST_EP_SEND);
    ist_ep_number(coop, op);
    if ((args->halves & IST_EP_SEND) && op->block == 0 && ist_coop_elect(coop)) {
        uint64_t begun = ist_load_u64(coop, &args->record->started, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &args->record->started, begun + 1u, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

/**
 * Waits for another block of this launch. All blocks are resident and end their own waits, so this
 * one ends too; a deadline that passes (the whole rank was stopped) is no reason to give up. @return
 * IST_WAIT_DONE or IST_WAIT_ABORTED. Collective.
 */
IST_DEVICE_FN ist_wait_result ist_ep_await_block(ist_coop *coop, const ist_ep_op_view *op,
                                                 const uint64_t *word, uint64_t least)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op->dev);
    ist_wait_result result;
    do {
        uint64_t deadline = ist_wire_now(coop, head) + op->args->deadline_ns;
        result = ist_coop_wait_word(coop, op->dev, word, least, deadline, IST_SCOPE_DEVICE);
    } while (result != IST_WAIT_DONE && result != IST_WAIT_ABORTED);
    return result;
}

/** All blocks have staged: what they wrote is visible to each of them. Collective. */
IST_DEVICE_FN ist_wait_result ist_ep_meet_staged(ist_coop *coop, const ist_ep_op_view *op)
{
    if (!op->rows_wait) {
        ist_coop_sync(coop);
        return IST_WAIT_DONE;
    }
    ist_coop_fetch_add(coop, &op->state->staged, 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
    return ist_ep_await_block(coop, op, &op->state->staged, op->before.staged_base + op->blocks);
}

/** Destinations first + i * blocks, i < count, that are active: 1 in marks[i]. A rank that is out
 *  sends nothing. Collective. */
IST_DEVICE_FN void ist_ep_mark_active(ist_coop *coop, const ist_ep_op_view *op, uint32_t first,
                                      uint32_t count, uint8_t *marks)
{
    ist_coop_sync(coop);
    int out = ist_wire_evicted(coop, op->dev);
    IST_EACH_LANE (coop, i, count) {
        marks[i] = (uint8_t)(!out && ist_mask_active(coop, op->dev, first + i * op->blocks));
    }
    ist_coop_sync(coop);
}

/** How many of the destinations of this block lie at or after `first`, at most IST_EP_HEADS. */
IST_DEVICE_FN uint32_t ist_ep_served(const ist_ep_op_view *op, uint32_t first)
{
    uint32_t left = (op->dev->rank_count - first + op->blocks - 1u) / op->blocks;
    return left < IST_EP_HEADS ? left : IST_EP_HEADS;
}

/** Heads for `count` destinations of this block. Collective. */
IST_DEVICE_FN ist_ep_head *ist_ep_fill_heads(ist_coop *coop, const ist_ep_op_view *op,
                                             uint32_t first, uint32_t count, uint64_t stage)
{
    const ist_ep_op_args *args = op->args;
    const uint32_t *rows = (const uint32_t *)(const void *)(args->handle + args->in.send_count);
    ist_ep_head *heads =
        (ist_ep_head *)ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
    IST_EACH_LANE (coop, i, count) {
        heads[i].tag = op->tag;
        heads[i].shape = ist_ep_shape(args);
        heads[i].offset = args->rows_window == 0 ? op->base + stage : args->rows_offset;
        heads[i].window = args->rows_window;
        heads[i].rows = args->operation == IST_EP_OP_DISPATCH ? rows[first + i * op->blocks] : 0;
        heads[i].reserved[0] = 0;
        heads[i].reserved[1] = 0;
        heads[i].ack_tag = 0;
        heads[i].ack_start = 0;
    }
    return heads;
}

/** Raises this rank's flag at the marked destinations: their data is released. Collective. */
IST_DEVICE_FN void ist_ep_raise(ist_coop *coop, const ist_ep_op_view *op, ist_ep_flag flag,
                                uint32_t first, uint32_t stride, uint32_t count,
                                const uint8_t *marks)
{
    ist_wire_channel channel = ist_ep_flag_of(op, flag);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, count) {
        uint32_t peer = first + i * stride;
        if (marks[i] && ist_dev_is_lsa(op->dev, peer)) {
            ist_wire_raise_lsa(coop, op->dev, channel, op->tag, peer);
            ist_store_u64(coop, ist_wire_word(coop, op->dev, channel.sent, peer), op->tag,
                          IST_RELAXED, IST_SCOPE_DEVICE);
        }
    }
    for (uint32_t i = 0; op->dev->lsa_size < op->dev->rank_count && i < count; ++i) {
        uint32_t peer = first + i * stride;
        if (marks[i] && !ist_dev_is_lsa(op->dev, peer)) {
            ist_wire_raise_gin(coop, op->dev, channel, op->tag, peer);
        }
    }
}

/** Offset of what this rank writes into an array by rank at a peer. */
IST_DEVICE_FN uint64_t ist_ep_mine(const ist_ep_op_view *op, uint64_t array, uint64_t bytes)
{
    return op->base + array + op->dev->rank * bytes;
}

/** Offset of a network peer's part of an array [G]. */
IST_DEVICE_FN uint64_t ist_ep_gin_part(const ist_ep_op_view *op, uint64_t array, uint64_t bytes,
                                       uint32_t peer)
{
    return op->base + array + ist_ep_gin_index(&op->args->geometry, op->dev->rank, peer) * bytes;
}

/** Puts bytes of this window into a network peer's. Collective. */
IST_DEVICE_FN void ist_ep_put(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer, uint64_t to,
                              uint64_t from, uint64_t bytes)
{
    ist_gin_action none;
    none.kind = IST_GIN_NONE;
    none.signal = 0;
    none.value = 0;
    ist_gin_put(coop, op->dev, ist_wire_context(op->dev), peer, 0, to, 0, from, bytes, none,
                IST_GIN_NO_COUNTER);
}

/** Writes a stamp. Lane. */
IST_DEVICE_FN void ist_ep_stamp_write(ist_coop *coop, const ist_ep_op_view *op, uint64_t offset,
                                      uint64_t tag, uint64_t key)
{
    uint64_t *stamp = (uint64_t *)(void *)ist_ep_at(coop, op, offset);
    ist_store_u64(coop, stamp, tag, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, stamp + 1, key, IST_RELAXED, IST_SCOPE_DEVICE);
}

/** Whether a stamp in this window is the one expected. Lane. */
IST_DEVICE_FN int ist_ep_stamp_is(ist_coop *coop, const ist_ep_op_view *op, uint64_t offset,
                                  uint64_t key)
{
    const uint64_t *stamp = (const uint64_t *)(const void *)ist_ep_at(coop, op, offset);
    return ist_load_u64(coop, stamp, IST_RELAXED, IST_SCOPE_SYSTEM) == op->tag &&
           ist_load_u64(coop, stamp + 1, IST_RELAXED, IST_SCOPE_SYSTEM) == key;
}

/* ---- deciding --------------------------------------------------------------------------------- */

/** Waits for a flag of all active ranks. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_await_peers(ist_coop *coop, const ist_ep_op_view *op,
                                          ist_ep_flag flag, uint8_t *results)
{
    ist_wire_want want;
    want.channel = ist_ep_flag_of(op, flag);
    want.tag = op->tag;
    want.position =
        (uint32_t)flag + ist_load_u64(coop, &op->state->position, IST_RELAXED, IST_SCOPE_DEVICE);
    want.deadline_ns = op->args->deadline_ns;
    want.operation =
        op->args->operation == IST_EP_OP_DISPATCH ? IST_DEV_OP_EP_DISPATCH : IST_DEV_OP_EP_COMBINE;
    want.reserved = 0;
    return ist_wire_wait(coop, &op->wire, &want, results);
}

/** Results that say why a rank that came is not used. */
#define IST_EP_RESULT_BROKEN 16u /* its metadata or rows did not all come */
#define IST_EP_RESULT_SHAPE 17u  /* it runs another operation */
#define IST_EP_RESULT_LEFT 18u   /* it was given up by others, and its rows may change */

/**
 * Block 0: begins the receive half; nobody counts yet. @return ist_wire_outcome of the wait for the
 * ready flags. Collective.
 */
IST_DEVICE_FN uint32_t ist_ep_begin_receive(ist_coop *coop, const ist_ep_op_view *op,
                                            uint8_t *results)
{
    uint64_t position = ist_wire_enter(coop, &op->wire);
    IST_EACH_LANE (coop, peer, op->dev->rank_count) {
        results[peer] = IST_WAIT_MASKED;
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &op->state->position, position, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    /* Notices that nobody has noted yet are found by the wait, if it lasts, and after the last read:
       looking for them here would cost every operation a chain of loads. */
    if (ist_wire_out(coop, &op->wire)) {
        return IST_WIRE_EVICTED;
    }
    uint32_t outcome = ist_ep_await_peers(coop, op, IST_EP_READY, results);
    IST_EACH_LANE (coop, peer, op->dev->rank_count) {
        if (results[peer] == IST_WAIT_DONE && ist_wire_left(coop, &op->wire, peer)) {
            results[peer] = IST_EP_RESULT_LEFT;
        }
    }
    ist_coop_sync(coop);
    return outcome;
}

/** Drops the ranks whose metadata is broken or of another shape, and tells them. Collective. */
IST_DEVICE_FN void ist_ep_reject(ist_coop *coop, const ist_ep_op_view *op, const uint8_t *results)
{
    const ist_dev_comm *dev = op->dev;
    ist_wire_scratch *head = ist_wire_scratch_of(coop, dev);
    uint8_t *marks = ist_wire_marks(head, dev);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        head->lost = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        marks[peer] = results[peer] >= IST_EP_RESULT_BROKEN;
        if (marks[peer]) {
            int shape = results[peer] == IST_EP_RESULT_SHAPE;
            int32_t why = shape                                 ? IST_ERR_MISMATCH
                          : results[peer] == IST_EP_RESULT_LEFT ? IST_ERR_RANK_LOST
                                                                : IST_ERR_REMOTE;
            uint64_t offset = op->base + op->args->at.meta + peer * op->args->at.meta_bytes;
            const uint64_t *words = (const uint64_t *)(const void *)ist_ep_at(coop, op, offset);
            uint64_t seen = ist_load_u64(coop, words + shape, IST_RELAXED, IST_SCOPE_SYSTEM);
            head->lost = 1;
            ist_wire_drop(coop, dev, why, peer,
                          op->args->operation == IST_EP_OP_DISPATCH ? IST_DEV_OP_EP_DISPATCH
                                                                    : IST_DEV_OP_EP_COMBINE,
                          shape ? ist_ep_shape(op->args) : op->tag, seen, 0);
        }
    }
    ist_coop_sync(coop);
    if (head->lost) {
        ist_wire_notify(coop, &op->wire, marks);
    }
}

/** Block 0: makes known who takes part. Collective. */
IST_DEVICE_FN void ist_ep_publish(ist_coop *coop, const ist_ep_op_view *op, const uint8_t *results,
                                  uint32_t outcome)
{
    const ist_dev_comm *dev = op->dev;
    const ist_ep_layout_map *at = &op->args->at;
    uint64_t *verdict = (uint64_t *)(void *)ist_ep_at(coop, op, at->verdict);
    uint64_t *intact = (uint64_t *)(void *)ist_ep_at(coop, op, at->intact);
    int none = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) != 0;
    IST_EACH_LANE (coop, w, ist_ep_word_count(dev->rank_count)) {
        uint64_t word = 0;
        for (uint32_t i = 0; !none && i < 64u && w * 64u + i < dev->rank_count; ++i) {
            word |= (uint64_t)(results[w * 64u + i] == IST_WAIT_DONE) << i;
        }
        ist_store_u64(coop, verdict + w, word, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, intact + w, word, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    if (ist_coop_elect(coop)) {
        uint64_t trouble = 0;
        for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
            trouble =
                results[peer] == IST_EP_RESULT_SHAPE ? (uint64_t)(-IST_ERR_MISMATCH) : trouble;
        }
        ist_store_u64(coop, &op->state->outcome, outcome, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, &op->state->trouble, trouble, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    if (op->blocks > 1u && ist_coop_elect(coop)) {
        ist_store_u64(coop, &op->state->decided, op->before.decided_base + 1u, IST_RELEASE,
                      IST_SCOPE_DEVICE);
    }
}

/** Every block: the decision. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_learn(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_dev_comm *dev = op->dev;
    uint64_t *verdict = ist_ep_verdict_of(coop, dev);
    if (op->block != 0 && ist_ep_await_block(coop, op, &op->state->decided,
                                             op->before.decided_base + 1u) != IST_WAIT_DONE) {
        return IST_WIRE_ABORTED;
    }
    ist_coop_sync(coop);
    ist_row_copy(coop, verdict, ist_ep_at(coop, op, op->args->at.verdict),
                 8u * (uint64_t)ist_ep_word_count(dev->rank_count));
    uint64_t outcome = ist_load_u64(coop, &op->state->outcome, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_coop_sync(coop);
    return (uint32_t)outcome;
}

/** Notes that a rank's rows broke while they were copied: it has not contributed. Lane. */
IST_DEVICE_FN void ist_ep_break(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer)
{
    uint64_t *intact = (uint64_t *)(void *)ist_ep_at(coop, op, op->args->at.intact);
    ist_fetch_and_u64(coop, intact + peer / 64u, ~(UINT64_C(1) << (peer % 64u)), IST_RELAXED,
                      IST_SCOPE_DEVICE);
}

/* ---- concluding ------------------------------------------------------------------------------- */

/** Whether this is the last block to leave: it sees all that the others wrote. Collective. */
IST_DEVICE_FN int ist_ep_is_last(ist_coop *coop, const ist_ep_op_view *op)
{
    if (op->blocks == 1u) {
        ist_coop_sync(coop);
        return 1;
    }
    uint64_t before = ist_coop_fetch_add(coop, &op->state->left, 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
    return before + 1u == op->before.left_base + op->blocks;
}

/**
 * Last block, when nothing more is read from peers: whether the team's rows were still in place. What
 * the network brought lies here, and whoever leaves puts nothing on top. @return ist_wire_outcome.
 * Collective.
 */
IST_DEVICE_FN uint32_t ist_ep_look(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_dev_comm *dev = op->dev;
    const uint64_t *verdict = ist_ep_verdict_of(coop, dev);
    uint64_t *used = ist_ep_intact_of(coop, dev);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, w, ist_ep_word_count(dev->rank_count)) {
        used[w] = 0;
        for (uint32_t i = 0; i < 64u && w * 64u + i < dev->rank_count; ++i) {
            int here = ist_ep_is_in(verdict, w * 64u + i) && ist_dev_is_lsa(dev, w * 64u + i);
            used[w] |= (uint64_t)here << i;
        }
    }
    ist_coop_sync(coop);
    return ist_wire_noticed(coop, &op->wire, used) ? (uint32_t)IST_WIRE_EVICTED
                                                   : (uint32_t)IST_WIRE_DONE;
}

/** Last block: who is intact; drops ranks that broke while rows were copied. Collective. */
IST_DEVICE_FN void ist_ep_settle(ist_coop *coop, const ist_ep_op_view *op, uint8_t *results)
{
    const ist_dev_comm *dev = op->dev;
    const uint64_t *verdict = ist_ep_verdict_of(coop, dev);
    uint64_t *intact = ist_ep_intact_of(coop, dev);
    ist_coop_sync(coop);
    ist_row_copy(coop, intact, ist_ep_at(coop, op, op->args->at.intact),
                 8u * (uint64_t)ist_ep_word_count(dev->rank_count));
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        int broken = ist_ep_is_in(verdict, peer) && !ist_ep_is_in(intact, peer);
        results[peer] = broken ? IST_EP_RESULT_BROKEN : IST_WAIT_DONE;
    }
    ist_ep_reject(coop, op, results);
}

/** Last block: tells ranks that were sent to and did not answer that they are given up. */
IST_DEVICE_FN void ist_ep_notify_silent(ist_coop *coop, const ist_ep_op_view *op,
                                        const uint8_t *results)
{
    const ist_dev_comm *dev = op->dev;
    ist_wire_scratch *head = ist_wire_scratch_of(coop, dev);
    uint8_t *marks = ist_wire_marks(head, dev);
    ist_wire_channel ready = ist_ep_flag_of(op, IST_EP_READY);
    if (ist_coop_elect(coop)) {
        head->lost = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        marks[peer] = 0;
        if (results[peer] != IST_WAIT_DONE) {
            uint64_t sent = ist_load_u64(coop, ist_wire_word(coop, dev, ready.sent, peer),
                                         IST_RELAXED, IST_SCOPE_DEVICE);
            marks[peer] = sent == op->tag;
            if (marks[peer]) {
                head->lost = 1;
            }
        }
    }
    ist_coop_sync(coop);
    if (head->lost) {
        ist_wire_notify(coop, &op->wire, marks);
    }
}

/**
 * Last block: waits until all active ranks have answered "I have read yours". After it the inputs
 * and the slot may be reused: who has not answered knows that it is out before anything it may
 * still read changes. @return ist_wire_outcome. Collective.
 */
IST_DEVICE_FN uint32_t ist_ep_await_answers(ist_coop *coop, const ist_ep_op_view *op,
                                            uint32_t outcome, uint8_t *results)
{
    int tolerant = ist_wire_tolerant(op->dev);
    ist_coop_sync(coop);
    if ((outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0 &&
        (tolerant || (outcome & IST_WIRE_LOST) == 0)) {
        outcome |= ist_ep_await_peers(coop, op, IST_EP_ACK, results);
    } else {
        /* Who has answered needs no notice: a rank that is out must not take the others with it. */
        ist_wire_channel ack = ist_ep_flag_of(op, IST_EP_ACK);
        IST_EACH_LANE (coop, peer, op->dev->rank_count) {
            int answered = ist_wire_flag(coop, op->dev, ack, peer) == op->tag;
            results[peer] = answered ? IST_WAIT_DONE : IST_WAIT_MASKED;
        }
        ist_coop_sync(coop);
    }
    if ((outcome & IST_WIRE_ABORTED) == 0) {
        ist_ep_notify_silent(coop, op, results);
    }
    return outcome;
}

/** Status of the operation. Lane. */
IST_DEVICE_FN int32_t ist_ep_status(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome,
                                    uint32_t lost)
{
    const ist_ep_handle_head *head = ist_ep_handle_of(op->args);
    uint64_t trouble = ist_load_u64(coop, &op->state->trouble, IST_RELAXED, IST_SCOPE_DEVICE);
    if ((outcome & IST_WIRE_ABORTED) != 0 || ist_aborted(coop, op->dev)) {
        return IST_ERR_ABORTED;
    }
    if (outcome & IST_WIRE_EVICTED) {
        return ist_wire_tolerant(op->dev) ? IST_ERR_EVICTED : IST_ERR_TIMEOUT;
    }
    if (outcome & IST_EP_FOREIGN) {
        return IST_ERR_OBJECT;
    }
    if (trouble != 0) {
        return -(int32_t)trouble;
    }
    if (!ist_wire_tolerant(op->dev) && (lost != 0 || (outcome & IST_WIRE_LOST))) {
        return IST_ERR_TIMEOUT;
    }
    if (lost != 0) {
        return IST_INCOMPLETE;
    }
    return head->route_status;
}

/** Last block: writes the record. Of an operation that is out of hand nothing counts. Collective. */
IST_DEVICE_FN void ist_ep_write_record(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome)
{
    ist_ep_record_head *record = op->args->record;
    uint64_t *words = (uint64_t *)(record + 1);
    uint64_t *contributed = ist_ep_intact_of(coop, op->dev);
    uint32_t ranks = op->dev->rank_count;
    int none = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED | IST_EP_FOREIGN)) != 0;
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, w, ist_ep_word_count(ranks)) {
        uint64_t all = ranks - w * 64u >= 64u ? UINT64_MAX : (UINT64_C(1) << (ranks % 64u)) - 1u;
        contributed[w] = none ? 0 : contributed[w];
        ist_store_u64(coop, words + w, all & ~contributed[w], IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        uint32_t lost = 0;
        for (uint32_t peer = 0; peer < ranks; ++peer) {
            lost += !ist_ep_is_in(contributed, peer);
        }
        int32_t status = ist_ep_status(coop, op, outcome, lost);
        int32_t routed = ist_ep_handle_of(op->args)->route_status;
        int whole = lost == 0 && (status == IST_OK || status == routed);
        uint64_t begun = ist_load_u64(coop, &record->started, IST_RELAXED, IST_SCOPE_SYSTEM);
        uint64_t issue = ist_load_u64(coop, &record->issue, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &record->issue, issue > op->args->issue ? issue : op->args->issue,
                      IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &record->sequence, op->tag, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &record->generation, op->generation, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u32(coop, (uint32_t *)&record->status, (uint32_t)status, IST_RELAXED,
                      IST_SCOPE_SYSTEM);
        ist_store_u32(coop, &record->complete, (uint32_t)whole, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u32(coop, &record->lost_count, lost, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &record->done, begun, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

/** Last block: moves the group's state on and keeps what a staged operation needs. Collective. */
IST_DEVICE_FN void ist_ep_advance(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome)
{
    ist_ep_state_head *head = &op->state->head;
    ist_ep_handle_head *handle = ist_ep_handle_of(op->args);
    uint32_t sends = (op->args->halves & IST_EP_SEND) ? 1u : 0u;
    uint32_t receives = (op->args->halves & IST_EP_RECEIVE) ? 1u : 0u;
    uint64_t bit = UINT64_C(1) << op->slot;
    uint64_t busy = receives ? op->before.busy & ~bit : op->before.busy | bit;
    uint64_t met = op->blocks > 1u ? op->blocks : 0u;
    int ran = (outcome & IST_EP_FOREIGN) == 0;
    ist_coop_sync(coop);
    if (!ist_coop_elect(coop)) {
        return;
    }
    ist_store_u64(coop, &head->epoch, op->before.epoch + sends, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, &head->busy, busy, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, &head->staged_base, op->before.staged_base + (ran && sends ? met : 0u),
                  IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, &head->decided_base,
                  op->before.decided_base + (ran && receives && met != 0 ? 1u : 0u), IST_RELAXED,
                  IST_SCOPE_DEVICE);
    ist_store_u64(coop, &head->left_base, op->before.left_base + met, IST_RELAXED,
                  IST_SCOPE_DEVICE);
    handle->pending_tag = receives ? 0 : op->tag;
    handle->pending_generation = op->generation;
    handle->pending_slot = op->slot;
}

#endif
