/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep_wire.h
 * What dispatch and combine share on the way out: entering a kernel (tag, slot), meeting the other
 * blocks, heads, flags, puts and stamps. What follows is in ep_decide.h and ep_conclude.h.
 *
 * Orderings that both rely on.
 *   - Blocks of a launch meet through words in the group's state: each adds with release, and whoever
 *     reads what others wrote has acquired, by a wait or by the addition itself; a block that sends
 *     nothing reads no staging and goes on without. Their bases are constant while a kernel runs; the
 *     last block to leave, which has synchronised with all others, moves them.
 *   - The state is touched by one kernel at a time: operations of a group are ordered by streams.
 */
#ifndef IST_EP_WIRE_H
#define IST_EP_WIRE_H

#include "../mask/mask_service.h"
#include "ep_args.h"

/* Outcomes of an operation beside ist_wire_outcome. */
#define IST_EP_FOREIGN 8u /* on memory that is not the handle's */
#define IST_EP_MIXED 16u  /* some rank runs another operation */

/* Scratch slots after the wire's. */
#define IST_EP_SCRATCH_RESULTS 2u /* u8 [R] */
#define IST_EP_SCRATCH_VERDICT 3u /* ist_ep_state_head, u64 [W] verdict, u64 [W] whole */
#define IST_EP_SCRATCH_RECORDS 4u /* metadata, IST_EP_CHUNK_BYTES */
#define IST_EP_SCRATCH_DESCS 5u
#define IST_EP_SCRATCH_ROWS 6u
#define IST_EP_SCRATCH_SUMS 7u /* u32 [L] running slots, u32 [R + 1] rows */

#define IST_EP_PARCELS 32u     /* destinations served between two syncs */
#define IST_EP_PARCEL_PARTS 4u /* head, counts, descriptors, weights */

/** One operation as a block sees it. */
typedef struct ist_ep_op_view {
    const ist_ep_op_args *args;
    const ist_dev_comm *dev;
    uint8_t *window; /**< this rank's window 0 */
    ist_ep_state *state;
    const ist_ep_state_head *before; /**< scratch: the state when the kernel began */
    uint64_t tag;
    uint64_t generation;
    uint64_t base; /**< of the slot in the window */
    uint32_t slot;
    uint32_t rank;
    uint32_t ranks;
    uint32_t block;
    uint32_t blocks;
    uint32_t network; /**< 1: some ranks are outside the team */
    uint32_t stages;  /**< 1: this launch stages rows */
    uint32_t valid;   /**< 1: the handle's memory is what the call took it for */
    uint32_t out;     /**< 1: others have given this rank up when the kernel began */
    uint8_t *common;  /**< window 0 of the communicator's service */
    uint8_t **peers;  /**< scratch [ranks], few: window 0 of each rank */
    uint8_t **alike;  /**< scratch [ranks], few: see ist_ep_rows_alike() */
    ist_dev_mask *mask;
    int32_t routed; /**< of the handle: ist_status of its routing */
    uint32_t reserved;
    uint32_t few;    /**< a constant of the text: 1 in the shorter ones, see ist_ep_text */
    uint32_t layout; /**< ist_ep_layout, and */
    uint32_t halves; /**< ist_ep_half: constants of the shorter texts */
    uint32_t room;   /**< ranks that scratch has room for */
    uint64_t active; /**< word 0 of the mask when the kernel began: of at most 64 ranks, all; lanes
                           and blocks may have seen different ones */
} ist_ep_op_view;

/** Mixes the words that say what a handle is for: products, so that none waits for another. */
IST_DEVICE_FN uint64_t ist_ep_handle_checksum(const ist_ep_handle_head *head)
{
    uint64_t sum = head->magic * UINT64_C(0x9e3779b97f4a7c15);
    sum += ((uint64_t)head->version << 32 | head->layout) * UINT64_C(0xc2b2ae3d27d4eb4f);
    sum += ((uint64_t)head->rank_count << 32 | head->expert_count) * UINT64_C(0x165667b19e3779f9);
    sum += ((uint64_t)head->tokens_max << 32 | head->topk) * UINT64_C(0xd6e8feb86659fd93);
    sum += ((uint64_t)head->rank << 32 | head->token_count) * UINT64_C(0xa0761d6478bd642f);
    sum += head->updates * UINT64_C(0xe7037ed1a0b428db);
    return sum ^ sum >> 32;
}

/** Address in this rank's window. Lane. */
IST_DEVICE_FN uint8_t *ist_ep_at(const ist_ep_op_view *op, uint64_t offset)
{
    return op->window + offset;
}

/** The communicator's common words. */
IST_DEVICE_FN ist_wire ist_ep_wire_of(const ist_ep_op_view *op)
{
    ist_wire wire =
        ist_mask_wire_of(op->dev, op->args->service, op->window, op->common, op->ranks, op->rank);
    wire.room = op->room;
    return wire;
}

IST_DEVICE_FN ist_ep_handle_head *ist_ep_handle_of(const ist_ep_op_args *args)
{
    return (ist_ep_handle_head *)(void *)args->handle;
}

/** n / K for n below 65536. */
IST_DEVICE_FN uint32_t ist_ep_over_topk(const ist_ep_op_args *args, uint32_t n)
{
    return args->topk == 1u ? n : (uint32_t)((uint64_t)n * args->topk_inverse >> 32);
}

/** Whether handle memory is what the call took it for. Lane. */
IST_DEVICE_FN int ist_ep_handle_valid(const ist_ep_op_args *args)
{
    const ist_ep_handle_head *head = ist_ep_handle_of(args);
    /* All fields are loaded at once: no comparison decides whether the next one is made. */
    uint64_t wrong = head->magic ^ IST_EP_HANDLE_MAGIC;
    wrong |= head->version ^ IST_EP_HANDLE_VERSION;
    wrong |= head->layout ^ args->layout;
    wrong |= head->topk ^ args->topk;
    wrong |= head->token_count ^ args->token_count;
    wrong |= head->checksum ^ ist_ep_handle_checksum(head);
    return wrong == 0;
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

IST_DEVICE_FN uint8_t *ist_ep_results(ist_coop *coop, uint32_t ranks)
{
    return (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_RESULTS, ranks);
}

/** Scratch of the state, then of the verdict, then of the windows of few peers. */
IST_DEVICE_FN ist_ep_state_head *ist_ep_scratch_head(ist_coop *coop, uint32_t ranks)
{
    uint32_t bytes = (uint32_t)sizeof(ist_ep_state_head) + 16u * ist_ep_word_count(ranks) +
                     2u * (uint32_t)sizeof(void *) * IST_EP_FEW_RANKS;
    return (ist_ep_state_head *)ist_coop_scratch(coop, IST_EP_SCRATCH_VERDICT, bytes);
}

/** Who takes part, as all blocks of the launch know it. */
IST_DEVICE_FN uint64_t *ist_ep_verdict_of(ist_coop *coop, uint32_t ranks)
{
    return (uint64_t *)(ist_ep_scratch_head(coop, ranks) + 1);
}

/** The verdict less the ranks whose rows broke while they were copied; the last block's. */
IST_DEVICE_FN uint64_t *ist_ep_whole_of(ist_coop *coop, uint32_t ranks)
{
    return ist_ep_verdict_of(coop, ranks) + ist_ep_word_count(ranks);
}

/** Window 0 of each rank, in the texts for few. */
IST_DEVICE_FN uint8_t **ist_ep_peers_of(ist_coop *coop, uint32_t room)
{
    return (uint8_t **)(ist_ep_verdict_of(coop, room) + 2u * ist_ep_word_count(room));
}

/** Address in the window 0 of a team member. Lane. */
IST_DEVICE_FN uint8_t *ist_ep_at_peer(ist_coop *coop, const ist_ep_op_view *op, uint64_t offset,
                                      uint32_t peer)
{
    return op->few ? op->peers[peer] + offset
                   : (uint8_t *)ist_window_peer(coop, op->dev, 0, offset, peer);
}

/** Whether a rank shares memory with this one. Lane. */
IST_DEVICE_FN int ist_ep_in_team(const ist_ep_op_view *op, uint32_t peer)
{
    return op->few || !op->network || ist_dev_is_lsa(op->dev, peer);
}

IST_DEVICE_FN int ist_ep_is_in(const uint64_t *words, uint32_t rank)
{
    return (int)((words[rank / 64u] >> (rank % 64u)) & 1u);
}

/** Word w of a set of ranks, from a byte a rank. Lane. */
IST_DEVICE_FN uint64_t ist_ep_word_from(const uint8_t *marks, uint32_t w, uint32_t ranks)
{
    uint32_t count = ranks - w * 64u < 64u ? ranks - w * 64u : 64u;
    uint64_t word = 0;
    IST_ROLLED
    for (uint32_t i = 0; i < count; ++i) {
        word |= (uint64_t)(marks[w * 64u + i] != 0) << i;
    }
    return word;
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
IST_DEVICE_FN void ist_ep_number(ist_ep_op_view *op)
{
    const ist_ep_handle_head *head = ist_ep_handle_of(op->args);
    if (op->halves & IST_EP_SEND) {
        op->tag = op->generation << IST_WIRE_EPOCH_BITS |
                  ((op->before->epoch + 1u) & IST_WIRE_EPOCH_MASK);
        op->slot = ist_ep_free_slot(op->before->busy, op->args->geometry.slot_count);
    } else {
        op->generation = head->pending_generation;
        op->tag = head->pending_tag;
        op->slot = (uint32_t)head->pending_slot % op->args->geometry.slot_count;
    }
    op->base = op->args->at.slots + op->slot * op->args->at.slot_bytes;
}

/** Whether this launch has rows to stage: plain ones for the team, any for the network. */
IST_DEVICE_FN uint32_t ist_ep_stages(const ist_ep_op_view *op)
{
    if (op->few) {
        return 0;
    }
    int for_team = op->args->rows_window == 0 && op->args->geometry.lsa_size > 1u;
    return (op->halves & IST_EP_SEND) && (for_team || op->network);
}

/**
 * Block 0: numbers the kernel among those that wait, and notes what begins. Nothing depends on it but
 * beats, which come much later, so it is done when the flags are out. Collective.
 */
IST_DEVICE_FN void ist_ep_announce(ist_coop *coop, const ist_ep_op_view *op)
{
    ist_wire wire = ist_ep_wire_of(op);
    uint64_t *launches = ist_wire_at(wire.common, wire.launches, 0);
    IST_EACH_LANE_BACK (coop, once, op->block == 0 ? 1u : 0u) {
        if (op->halves & IST_EP_SEND) {
            ist_store_u64(coop, &op->args->record->started, op->tag, IST_RELAXED, IST_SCOPE_SYSTEM);
        }
        if (op->halves & IST_EP_RECEIVE) {
            uint64_t before = ist_fetch_add_u64(coop, launches, 1, IST_RELAXED, IST_SCOPE_DEVICE);
            ist_store_u64(coop, &op->state->position, (before + 1u) << IST_WIRE_STEP_BITS,
                          IST_RELAXED, IST_SCOPE_DEVICE);
        }
    }
}

/** Rows that lie at the input's offset of every rank, at most; 0: not in a window. */
IST_DEVICE_FN uint64_t ist_ep_rows_max(const ist_ep_op_args *args, uint32_t layout)
{
    uint64_t tokens = args->geometry.tokens_max;
    uint64_t slots = args->geometry.rank_count * tokens;
    if (args->rows_window == 0) {
        return 0;
    }
    return args->operation == IST_EP_OP_DISPATCH ? tokens
           : layout == IST_EP_RANK_MAJOR         ? slots
                                                 : ist_ep_local_max(&args->geometry) * slots;
}

/**
 * Where the rows of a rank begin whose head says what this rank's would: window and offset are the
 * same, as they are in a program that treats all ranks alike. NULL: nothing is known, look it up. Lane.
 */
IST_DEVICE_FN const uint8_t *ist_ep_rows_alike(const ist_ep_op_view *op, const ist_ep_head *head,
                                               uint32_t peer)
{
    const ist_ep_op_args *args = op->args;
    if (!op->few || head->window != args->rows_window || head->offset != args->rows_offset ||
        op->alike[peer] == NULL) {
        return NULL;
    }
    return op->alike[peer] + 1 - ist_ep_rows_max(args, op->layout) * args->row_bytes;
}

/** Looks up what ist_ep_rows_alike() tells, while the flags travel: the tables of windows are three
 *  loads one after the other. A sync must follow. Lane-parallel. */
IST_DEVICE_FN void ist_ep_find_alike(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_ep_op_args *args = op->args;
    uint64_t bytes = ist_ep_rows_max(args, op->layout) * args->row_bytes;
    IST_EACH_LANE_BACK (coop, peer, op->few ? op->ranks : 0u) {
        op->alike[peer] = bytes == 0
                              ? NULL
                              : (uint8_t *)ist_window_peer(coop, op->dev, args->rows_window,
                                                           args->rows_offset + bytes - 1u, peer);
    }
}

/** Begins a kernel. What it loads first, everything waits for: no load here waits for more than one
 *  other. Collective. */
IST_DEVICE_FN void ist_ep_enter(ist_coop *coop, const ist_ep_op_args *args, ist_ep_text text,
                                ist_ep_op_view *op)
{
    op->few = text != IST_EP_TEXT_ANY;
    op->ranks = args->geometry.rank_count;
    op->blocks = ist_coop_block_count(coop);
    op->room = op->few ? IST_EP_FEW_RANKS : op->ranks;
    op->layout = text == IST_EP_TEXT_BY_EXPERT ? (uint32_t)IST_EP_EXPERT_MAJOR
                 : text == IST_EP_TEXT_BY_RANK ? (uint32_t)IST_EP_RANK_MAJOR
                                               : args->layout;
    op->halves = op->few ? IST_EP_SEND | (uint32_t)IST_EP_RECEIVE : args->halves;
    if (op->few) {
        IST_ASSUME(op->ranks != 0 && op->ranks <= IST_EP_FEW_RANKS && op->ranks <= op->blocks);
        IST_ASSUME(args->row_bytes % 16u == 0);
        IST_ASSUME(args->topk <= IST_EP_FEW_TOPK);
    }
    ist_ep_state_head *before = ist_ep_scratch_head(coop, op->room);
    uint64_t *out = ist_ep_verdict_of(coop, op->room); /* not needed yet */
    op->args = args;
    op->valid = (uint32_t)ist_ep_handle_valid(args);
    op->routed = ist_ep_handle_of(args)->route_status;
    op->mask = ist_dev_mask_of(args->dev);
    op->reserved = 0;
    op->dev = args->dev;
    op->rank = ist_dev_rank(args->dev);
    op->network = op->few ? 0u : (uint32_t)ist_dev_has_network(args->dev);
    op->block = ist_coop_block(coop);
    op->window = (uint8_t *)ist_window_local(coop, args->dev, 0, 0);
    op->common = (uint8_t *)ist_window_local(coop, args->service, 0, 0);
    op->peers = ist_ep_peers_of(coop, op->room);
    op->alike = op->peers + IST_EP_FEW_RANKS;
    if (op->few) {
        IST_EACH_LANE (coop, peer, op->ranks) {
            op->peers[peer] = (uint8_t *)ist_window_peer(coop, args->dev, 0, 0, peer);
        }
    }
    op->state = (ist_ep_state *)(void *)ist_ep_at(op, args->at.state);
    op->before = before;
    op->stages = ist_ep_stages(op);
    op->active = ist_wire_active_word(coop, op->dev, 0);
    op->generation = ist_wire_generation(coop, op->dev);
    uint64_t evicted = 0;
    if (ist_coop_elect(coop)) { /* kernels of other streams may note it now: one answer */
        evicted = (uint64_t)ist_wire_evicted(coop, op->dev);
    }
    ist_wire_copy_words(coop, before, op->state, sizeof(*before));
    if (ist_coop_elect(coop)) {
        *out = evicted;
    }
    ist_coop_sync(coop);
    op->out = *out != 0;
    ist_ep_number(op);
}

/**
 * Waits for a word that is sure to come: a deadline that passes (the whole rank was stopped) is no
 * reason to give up. @return IST_WAIT_DONE or IST_WAIT_ABORTED. Collective.
 */
IST_DEVICE_FN ist_wait_result ist_ep_await_word(ist_coop *coop, const ist_ep_op_view *op,
                                                const uint64_t *word, uint64_t least,
                                                ist_scope scope)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op->room);
    ist_wait_result result;
    do {
        uint64_t deadline = ist_wire_now(coop, head) + op->args->deadline_ns;
        result = ist_coop_wait_word(coop, op->dev, word, least, deadline, scope);
    } while (result != IST_WAIT_DONE && result != IST_WAIT_ABORTED);
    return result;
}

/** Waits for other blocks of this launch: all are resident and end their own waits. @return as
 *  ist_ep_await_word(). Collective. */
IST_DEVICE_FN ist_wait_result ist_ep_await_block(ist_coop *coop, const ist_ep_op_view *op,
                                                 const uint64_t *word, uint64_t least)
{
    return ist_ep_await_word(coop, op, word, least, IST_SCOPE_DEVICE);
}

/** All blocks have staged: what they wrote is visible to those that send. Collective. */
IST_DEVICE_FN ist_wait_result ist_ep_meet_staged(ist_coop *coop, const ist_ep_op_view *op)
{
    if (!op->stages || op->blocks == 1u) {
        ist_coop_sync(coop);
        return IST_WAIT_DONE;
    }
    ist_coop_fetch_add(coop, &op->state->staged, 1, IST_RELEASE, IST_SCOPE_DEVICE);
    if (op->block >= op->ranks) { /* nobody to send to */
        return IST_WAIT_DONE;
    }
    return ist_ep_await_block(coop, op, &op->state->staged, op->before->staged_base + op->blocks);
}

/** Whether a rank was active when the kernel began, or is, of many. Lane. */
IST_DEVICE_FN int ist_ep_was_active(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer)
{
    return op->few || op->ranks <= 64u ? (int)(op->active >> peer & 1u)
                                       : ist_mask_active(coop, op->dev, peer);
}

/** Whether this rank sends to a destination: it is active, and this rank is not out. Lane. */
IST_DEVICE_FN uint8_t ist_ep_sends_to(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer)
{
    return (uint8_t)(!op->out && ist_ep_was_active(coop, op, peer));
}

/** How many of the destinations of this block lie at or after `first`, at most IST_EP_PARCELS. */
IST_DEVICE_FN uint32_t ist_ep_served(const ist_ep_op_view *op, uint32_t first)
{
    if (op->few) { /* as many blocks as ranks */
        return 1u;
    }
    uint32_t left = (op->ranks - first + op->blocks - 1u) / op->blocks;
    return left < IST_EP_PARCELS ? left : IST_EP_PARCELS;
}

/** What goes to one destination; in scratch. */
typedef struct ist_ep_parcel {
    ist_ep_head head;
    ist_row_part parts[IST_EP_PARCEL_PARTS]; /**< without `dst` for the network */
    uint32_t first;                          /**< row in the order of all destinations (dispatch) */
    uint32_t reserved[3];
} ist_ep_parcel;

IST_DEVICE_FN ist_ep_parcel *ist_ep_parcels_of(ist_coop *coop)
{
    return (ist_ep_parcel *)ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
}

/** The head for one destination; `rows` go to it. Lane. */
IST_DEVICE_FN void ist_ep_fill_head(const ist_ep_op_view *op, uint64_t stage, uint32_t rows,
                                    ist_ep_head *head)
{
    const ist_ep_op_args *args = op->args;
    head->tag = op->tag;
    head->shape = ist_ep_shape(args);
    head->offset = args->rows_window == 0 ? op->base + stage : args->rows_offset;
    head->window = args->rows_window;
    head->rows = rows;
    head->tokens = args->operation == IST_EP_OP_DISPATCH ? args->token_count : 0;
    head->entries = 0;
    head->reserved[0] = 0;
    head->reserved[1] = 0;
    head->start = 0;
    head->reserved2 = 0;
}

/** Raises this rank's flag at a team member: release of what the coop synced before. Lane. */
IST_DEVICE_FN void ist_ep_raise_at(ist_coop *coop, const ist_ep_op_view *op,
                                   ist_wire_channel channel, uint32_t peer)
{
    uint64_t offset = channel.words + 8u * (uint64_t)op->rank;
    ist_store_u64(coop, (uint64_t *)(void *)ist_ep_at_peer(coop, op, offset, peer), op->tag,
                  IST_RELEASE, IST_SCOPE_SYSTEM);
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
        if (marks[i] && ist_ep_in_team(op, peer)) {
            ist_ep_raise_at(coop, op, channel, peer);
            ist_store_u64(coop, ist_wire_at(op->window, channel.sent, peer), op->tag, IST_RELAXED,
                          IST_SCOPE_DEVICE);
        }
    }
    IST_ROLLED
    for (uint32_t i = 0; op->network && i < count; ++i) {
        uint32_t peer = first + i * stride;
        if (marks[i] && !ist_dev_is_lsa(op->dev, peer)) {
            ist_wire_raise_gin(coop, op->dev, channel, op->tag, peer);
        }
    }
}

/** Offset of what this rank writes into an array by rank at a peer. */
IST_DEVICE_FN uint64_t ist_ep_mine(const ist_ep_op_view *op, uint64_t array, uint64_t bytes)
{
    return op->base + array + op->rank * bytes;
}

/** Offset of a network peer's part of an array [G]. */
IST_DEVICE_FN uint64_t ist_ep_gin_part(const ist_ep_op_view *op, uint64_t array, uint64_t bytes,
                                       uint32_t peer)
{
    return op->base + array + ist_ep_gin_index(&op->args->geometry, op->rank, peer) * bytes;
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
    uint64_t *stamp = (uint64_t *)(void *)ist_ep_at(op, offset);
    ist_store_u64(coop, stamp, tag, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, stamp + 1, key, IST_RELAXED, IST_SCOPE_DEVICE);
}

/** Whether a stamp in this window is the one expected. Lane. */
IST_DEVICE_FN int ist_ep_stamp_is(ist_coop *coop, const ist_ep_op_view *op, uint64_t offset,
                                  uint64_t key)
{
    const uint64_t *stamp = (const uint64_t *)(const void *)ist_ep_at(op, offset);
    return ist_load_u64(coop, stamp, IST_RELAXED, IST_SCOPE_SYSTEM) == op->tag &&
           ist_load_u64(coop, stamp + 1, IST_RELAXED, IST_SCOPE_SYSTEM) == key;
}

#endif
