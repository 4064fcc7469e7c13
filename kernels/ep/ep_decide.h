/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep_decide.h
 * Who takes part in an operation: one answer for all blocks of the launch, before any of them
 * consumes.
 *
 * Together. In a team of few ranks every block waits for the ready flags itself. The first that has
 * all of them sets the decision word by compare-swap, which orders nothing: whoever proposed the
 * same has acquired the same flags, and whoever did not waits for those it lacks when it adopts the
 * word. Nothing is handed from block to block, so the wait ends one hop after the last flag; and
 * what the swap found is looked at only before rows are touched, so that nothing waits for it: until
 * then a block goes by its own proposal, which is what it finds but for a fault in that very moment,
 * and writes nothing that other blocks read.
 *
 * Apart. Where flags are missing after a slice of the deadline, and always with network peers or many
 * ranks, block 0 decides alone: it claims the word, so that nobody decides together any more, waits,
 * gives peers up, checks what came, writes the verdict, and releases the word. Peers are given up
 * only after the claim: whoever is told that it is out may change its rows, and no block may then be
 * reading them.
 *
 * The word: 0 when a launch begins, as its last block leaves it; then IST_EP_DECIDED_TOGETHER and a bit
 * for each rank that takes part, or IST_EP_DECIDED_CLAIMED, and IST_EP_DECIDED_APART once the verdict
 * is there.
 */
#ifndef IST_EP_DECIDE_H
#define IST_EP_DECIDE_H

#include "ep_wire.h"

/** Results that say why a rank that came is not used. */
#define IST_EP_RESULT_BROKEN 16u /* its metadata or rows did not all come */
#define IST_EP_RESULT_SHAPE 17u  /* it runs another operation */
#define IST_EP_RESULT_LEFT 18u   /* it was given up by others, and its rows may change */

/** What a block knows once it has decided, or adopted a decision. */
typedef struct ist_ep_decision {
    uint64_t word;    /**< of the state; 0: the wait was aborted */
    uint64_t found;   /**< the elected lane's: what it found in place of the last word */
    uint32_t outcome; /**< ist_wire_outcome */
    uint32_t here;    /**< 1: decided together; the metadata of all sources lies in scratch */
    uint32_t pending; /**< 1: `found` is still to be looked at */
    uint32_t reserved;
} ist_ep_decision;

/* ---- waiting ---------------------------------------------------------------------------------- */

IST_DEVICE_FN ist_wire_want ist_ep_want(const ist_ep_op_view *op, ist_ep_flag flag)
{
    ist_wire_want want;
    want.channel = ist_ep_flag_of(op, flag);
    want.tag = op->tag;
    want.position = 0;
    want.deadline_ns = op->args->deadline_ns;
    want.operation =
        op->args->operation == IST_EP_OP_DISPATCH ? IST_DEV_OP_EP_DISPATCH : IST_DEV_OP_EP_COMBINE;
    want.reserved = 0;
    return want;
}

/** One slice of a wait for a flag of all active ranks. @return how many are missing. Collective. */
IST_DEVICE_FN uint32_t ist_ep_await_slice(ist_coop *coop, const ist_ep_op_view *op,
                                          ist_ep_flag flag, uint64_t start, uint8_t *results)
{
    ist_wire wire = ist_ep_wire_of(op);
    ist_wire_want want = ist_ep_want(op, flag);
    return ist_wire_wait_slice(coop, &wire, &want, 1, start, results);
}

/** The rest of a wait that began at `start`. @return ist_wire_outcome. Collective. */
IST_DEVICE_RARE_FN uint32_t ist_ep_await_on(ist_coop *coop, ist_ep_op_view op, ist_ep_flag flag,
                                            uint64_t start, uint8_t *results)
{
    ist_wire_want want = ist_ep_want(&op, flag);
    want.position =
        (uint32_t)flag + ist_load_u64(coop, &op.state->position, IST_RELAXED, IST_SCOPE_DEVICE);
    return ist_wire_wait_on(coop, ist_ep_wire_of(&op), want, start, results);
}

/** Waits for a flag of all active ranks. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_await_peers(ist_coop *coop, const ist_ep_op_view *op,
                                          ist_ep_flag flag, uint8_t *results)
{
    uint64_t start = ist_clock_ns(coop);
    uint32_t outcome = IST_WIRE_DONE;
    if (ist_ep_await_slice(coop, op, flag, start, results) != 0) {
        IST_RARELY(coop, outcome = ist_ep_await_on(coop, *op, flag, start, results));
    }
    return outcome;
}

/* ---- together --------------------------------------------------------------------------------- */

/** Whether blocks may decide together. Equal in all blocks. */
IST_DEVICE_FN int ist_ep_may_decide_together(const ist_ep_op_view *op)
{
    return op->few || (!op->network && op->ranks <= IST_EP_DECIDED_RANKS_MAX &&
                       op->ranks * op->args->at.meta_bytes <= IST_EP_CHUNK_BYTES &&
                       op->args->at.work_bytes == 0);
}

/** Sets the word, unless another block has. @return what was there: 0 if it did. Lane. */
IST_DEVICE_FN uint64_t ist_ep_set_decision(ist_coop *coop, const ist_ep_op_view *op, uint64_t word)
{
    return ist_compare_swap_u64(coop, &op->state->decided, 0, word, IST_RELAXED, IST_SCOPE_DEVICE);
}

/** What the flags of a slice amount to: a word, or 0 when not all can be used. Lane. */
IST_DEVICE_FN uint64_t ist_ep_proposal(const ist_ep_op_view *op, const uint64_t *notices,
                                       const uint8_t *results)
{
    uint64_t word = IST_EP_DECIDED_TOGETHER;
    int fine = 1;
    IST_ROLLED
    for (uint32_t peer = 0; peer < op->ranks; ++peer) {
        int left = (notices[peer] & IST_WIRE_LEAVES) != 0 &&
                   notices[peer] >> IST_WIRE_EPOCH_BITS == op->generation;
        word |= (uint64_t)(results[peer] == IST_WAIT_DONE) << peer;
        fine = fine && !(left && results[peer] == IST_WAIT_DONE);
    }
    return fine ? word : 0;
}

/** The metadata of all sources, as their flags have released it, into scratch. Collective. */
IST_DEVICE_FN void ist_ep_fetch_all(ist_coop *coop, const ist_ep_op_view *op)
{
    void *records = ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
    ist_wire_copy_words(coop, records, ist_ep_at(op, op->base + op->args->at.meta),
                        op->ranks * op->args->at.meta_bytes);
}

/**
 * Waits a slice for the flags of all active ranks and proposes what they amount to: the word of
 * `decision`, and what the elected lane found. @return 0: there is no proposal, and `results` are those
 * of the slice. Collective.
 */
IST_DEVICE_FN int ist_ep_decide_together(ist_coop *coop, const ist_ep_op_view *op, uint64_t start,
                                         uint8_t *results, ist_ep_decision *decision)
{
    ist_wire wire = ist_ep_wire_of(op);
    uint64_t *notices =
        (uint64_t *)ist_coop_scratch(coop, IST_WIRE_SCRATCH_COPY, IST_WIRE_PIECE * 8u);
    /* Opened here for whoever adopts: what a rare function opens first is gone after it. */
    (void)ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
    ist_wire_copy_words(coop, notices, ist_wire_at(wire.common, wire.notices, 0), op->ranks * 8u);
    if (ist_ep_await_slice(coop, op, IST_EP_READY, start, results) != 0 || op->out) {
        return 0;
    }
    ist_ep_fetch_all(coop, op);
    uint64_t mine = ist_ep_proposal(op, notices, results);
    if (mine != 0 && op->blocks > 1u && ist_coop_elect(coop)) {
        decision->found = ist_ep_set_decision(coop, op, mine);
    }
    decision->word = mine;
    ist_coop_sync(coop);
    return mine != 0;
}

/* ---- apart: block 0 ---------------------------------------------------------------------------- */

/** How far the wait for the flags is when blocks have not decided together. */
typedef struct ist_ep_late {
    uint64_t start;  /**< of the wait */
    uint32_t waited; /**< 1: the first slice has passed, its results are there */
    uint32_t alone;  /**< 1: this block decides */
} ist_ep_late;

/**
 * Begins the receive half; nobody counts yet. @return ist_wire_outcome of the wait for the ready
 * flags; `results` are nobody's where this rank is out. Begins with a sync; at its end each lane has
 * written the results of its own ranks. Collective.
 */
IST_DEVICE_FN uint32_t ist_ep_begin_receive(ist_coop *coop, const ist_ep_op_view *op,
                                            const ist_ep_late *late, uint8_t *results)
{
    ist_wire wire = ist_ep_wire_of(op);
    /* Notices that nobody has noted yet are found by the wait, if it lasts, and after the last read:
       looking for them here would cost every operation a chain of loads. */
    if (ist_wire_out(coop, &wire)) {
        return IST_WIRE_EVICTED;
    }
    uint32_t outcome = IST_WIRE_DONE;
    if (late->waited || ist_ep_await_slice(coop, op, IST_EP_READY, late->start, results) != 0) {
        outcome = ist_ep_await_on(coop, *op, IST_EP_READY, late->start, results);
    }
    IST_EACH_LANE (coop, peer, op->ranks) {
        if (results[peer] == IST_WAIT_DONE && ist_wire_left(coop, &wire, peer)) {
            results[peer] = IST_EP_RESULT_LEFT;
        }
    }
    return outcome;
}

/** Why a rank that came is dropped. */
IST_DEVICE_FN int32_t ist_ep_reason(uint8_t result)
{
    return result == IST_EP_RESULT_SHAPE  ? IST_ERR_MISMATCH
           : result == IST_EP_RESULT_LEFT ? IST_ERR_RANK_LOST
                                          : IST_ERR_REMOTE;
}

/** Drops the ranks that are not used though they came, and tells them. A lane needs the results of its
 *  own ranks; the marks were last read before a sync. Ends with a sync. Collective. */
IST_DEVICE_RARE_FN void ist_ep_reject_marked(ist_coop *coop, ist_ep_op_view op,
                                             const uint8_t *results)
{
    const ist_ep_layout_map *at = &op.args->at;
    ist_wire wire = ist_ep_wire_of(&op);
    uint8_t *marks = ist_wire_marks_of(coop, op.room);
    IST_EACH_LANE (coop, peer, op.ranks) {
        int shape = results[peer] == IST_EP_RESULT_SHAPE;
        marks[peer] = results[peer] >= IST_EP_RESULT_BROKEN;
        if (marks[peer]) {
            const uint64_t *words = (const uint64_t *)(const void *)ist_ep_at(
                &op, op.base + at->meta + peer * at->meta_bytes);
            uint64_t seen = ist_load_u64(coop, words + shape, IST_RELAXED, IST_SCOPE_SYSTEM);
            ist_wire_drop(coop, op.dev, ist_ep_reason(results[peer]), peer,
                          op.args->operation == IST_EP_OP_DISPATCH ? IST_DEV_OP_EP_DISPATCH
                                                                   : IST_DEV_OP_EP_COMBINE,
                          shape ? ist_ep_shape(op.args) : op.tag, seen, 0);
        }
    }
    ist_wire_notify(coop, &wire, marks);
}

/** As ist_ep_reject_marked(), if there are any. Looks at `results` behind a sync; ends with one. @return
 *  IST_EP_MIXED or 0. Collective. */
IST_DEVICE_FN uint32_t ist_ep_reject(ist_coop *coop, const ist_ep_op_view *op,
                                     const uint8_t *results)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op->room);
    if (ist_coop_elect(coop)) { /* last read before the syncs of a wait, or of a look for notices */
        head->lost = 0;
        head->waiting = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, op->ranks) {
        if (results[peer] >= IST_EP_RESULT_BROKEN) {
            head->lost = 1;
        }
        if (results[peer] == IST_EP_RESULT_SHAPE) {
            head->waiting = 1;
        }
    }
    ist_coop_sync(coop);
    uint32_t mixed = head->waiting != 0 ? IST_EP_MIXED : 0u;
    if (head->lost) {
        IST_RARELY(coop, ist_ep_reject_marked(coop, *op, results));
    }
    return mixed;
}

/** Makes known who takes part. A lane needs the results of its own ranks; all that the block wrote before
 *  is released. Collective. */
IST_DEVICE_FN void ist_ep_publish(ist_coop *coop, const ist_ep_op_view *op, uint8_t *results,
                                  uint32_t outcome)
{
    uint64_t *verdict = (uint64_t *)(void *)ist_ep_at(op, op->args->at.verdict);
    int none = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) != 0;
    IST_EACH_LANE (coop, peer, op->ranks) {
        results[peer] = !none && results[peer] == IST_WAIT_DONE; /* as marks */
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, w, ist_ep_word_count(op->ranks)) {
        ist_store_u64(coop, verdict + w, ist_ep_word_from(results, w, op->ranks), IST_RELAXED,
                      IST_SCOPE_DEVICE);
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &op->state->outcome, outcome, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    if (op->blocks > 1u && ist_coop_elect(coop)) {
        ist_store_u64(coop, &op->state->decided, IST_EP_DECIDED_APART, IST_RELEASE,
                      IST_SCOPE_DEVICE);
    }
}

/** Block 0 takes the decision to itself. @return the word that is there now. Collective. */
IST_DEVICE_RARE_FN uint64_t ist_ep_claim(ist_coop *coop, ist_ep_op_view op)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op.room);
    if (ist_coop_elect(coop)) { /* `now` was last read before the sync that a wait ends with */
        uint64_t before =
            op.blocks > 1u ? ist_ep_set_decision(coop, &op, IST_EP_DECIDED_CLAIMED) : 0;
        head->now = before == 0 ? IST_EP_DECIDED_CLAIMED : before;
    }
    ist_coop_sync(coop);
    return head->now; /* written next behind a sync, of a wait */
}

/* ---- every block -------------------------------------------------------------------------------- */

/** Decides together where that can be: sets all of `decision` if so. @return whether it did; else
 *  `late` says how far the wait is, and who decides. Collective. */
IST_DEVICE_FN int ist_ep_try_together(ist_coop *coop, const ist_ep_op_view *op, ist_ep_late *late,
                                      ist_ep_decision *decision)
{
    uint8_t *results = ist_ep_results(coop, op->room);
    int together = ist_ep_may_decide_together(op);
    decision->word = 0;
    decision->found = 0;
    decision->outcome = IST_WIRE_DONE;
    decision->here = 1;
    decision->pending = op->blocks > 1u;
    decision->reserved = 0;
    late->start = ist_clock_ns(coop); /* of a lane: what it is used for may differ by nanoseconds */
    late->waited = (uint32_t)together;
    late->alone = op->block == 0;
    if (together && ist_ep_decide_together(coop, op, late->start, results, decision)) {
        return 1;
    }
    if (together && op->block == 0) {
        IST_RARELY(coop, late->alone = ist_ep_claim(coop, *op) == IST_EP_DECIDED_CLAIMED);
    }
    return 0;
}

/** Waits for a decision that this block did not take part in, behind a sync. @return 0: aborted.
 *  Collective. */
IST_DEVICE_RARE_FN uint64_t ist_ep_await_decision(ist_coop *coop, ist_ep_op_view op)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op.room);
    const uint64_t *decided = &op.state->decided;
    if (ist_ep_await_block(coop, &op, decided, IST_EP_DECIDED_TOGETHER) != IST_WAIT_DONE) {
        return 0;
    }
    if (ist_coop_elect(coop)) {
        head->now = ist_load_u64(coop, decided, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    uint64_t word = head->now;           /* written next behind the sync that a wait begins with */
    if (word & IST_EP_DECIDED_CLAIMED) { /* the load may have found more than the wait acquired */
        word = ist_ep_await_block(coop, &op, decided, IST_EP_DECIDED_APART) == IST_WAIT_DONE
                   ? IST_EP_DECIDED_APART
                   : 0;
    }
    return word;
}

/**
 * Acquires the ready flags of all that a decision contains which other blocks took together: they
 * have seen them, so they come here too. @return IST_WAIT_DONE or IST_WAIT_ABORTED. Collective.
 */
IST_DEVICE_RARE_FN ist_wait_result ist_ep_catch_up(ist_coop *coop, ist_ep_op_view op, uint64_t word)
{
    ist_wire_channel ready = ist_ep_flag_of(&op, IST_EP_READY);
    ist_wait_result result = IST_WAIT_DONE;
    IST_ROLLED
    for (uint32_t peer = 0; result == IST_WAIT_DONE && peer < op.ranks; ++peer) {
        if (word >> peer & 1u) {
            const uint64_t *flag = ist_wire_word(coop, op.dev, ready.words, peer);
            result = ist_ep_await_word(coop, &op, flag, op.tag, IST_SCOPE_SYSTEM);
        }
    }
    return result;
}

/** A decision that was taken over, but for the outcome of one that lies apart; 0: aborted. */
IST_DEVICE_FN ist_ep_decision ist_ep_decision_of(uint64_t word)
{
    ist_ep_decision decision;
    decision.word = word;
    decision.found = 0;
    decision.outcome = word == 0 ? (uint32_t)IST_WIRE_ABORTED : (uint32_t)IST_WIRE_DONE;
    decision.here = (word & IST_EP_DECIDED_TOGETHER) != 0;
    decision.pending = 0;
    decision.reserved = 0;
    return decision;
}

/** Takes over the decision of others, once there is one, behind a sync; of this block if it has decided
 *  alone, behind that of ist_ep_publish(). Collective. */
IST_DEVICE_RARE_FN ist_ep_decision ist_ep_adopt(ist_coop *coop, ist_ep_op_view op, uint32_t alone)
{
    uint64_t *verdict = ist_ep_verdict_of(coop, op.room);
    ist_ep_decision decision;
    uint64_t word = alone ? IST_EP_DECIDED_APART : ist_ep_await_decision(coop, op);
    if ((word & IST_EP_DECIDED_TOGETHER) != 0 && ist_ep_catch_up(coop, op, word) != IST_WAIT_DONE) {
        word = 0;
    }
    decision = ist_ep_decision_of(word);
    if (decision.here) {
        uint8_t *results = ist_ep_results(coop, op.room);
        ist_ep_fetch_all(coop, &op);
        IST_EACH_LANE (coop, peer, op.ranks) {
            results[peer] = (word >> peer & 1u) ? (uint8_t)IST_WAIT_DONE : (uint8_t)IST_WAIT_MASKED;
        }
    } else if (word != 0) {
        ist_row_copy(coop, verdict, ist_ep_at(&op, op.args->at.verdict),
                     8u * (uint64_t)ist_ep_word_count(op.ranks));
        decision.outcome =
            (uint32_t)ist_load_u64(coop, &op.state->outcome, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    return decision;
}

/** Notes what the swap has found, where all lanes see it after the next sync. Lane-parallel. */
IST_DEVICE_FN void ist_ep_note_found(ist_coop *coop, const ist_ep_op_view *op,
                                     const ist_ep_decision *decision)
{
    if (decision->pending && ist_coop_elect(coop)) {
        ist_wire_scratch_of(coop, op->room)->now =
            decision->found == 0 ? decision->word : decision->found;
    }
}

/** After that sync: whether the launch has decided what this block goes by. Lane-parallel. */
IST_DEVICE_FN int ist_ep_is_confirmed(ist_coop *coop, const ist_ep_op_view *op,
                                      ist_ep_decision *decision)
{
    int pending = (int)decision->pending;
    decision->pending = 0;
    return !pending || ist_wire_scratch_of(coop, op->room)->now == decision->word;
}

/** Both, for a block that has had no sync in between, but one since it has waited. Collective. */
IST_DEVICE_FN int ist_ep_confirm(ist_coop *coop, const ist_ep_op_view *op,
                                 ist_ep_decision *decision)
{
    if (!decision->pending) {
        return 1;
    }
    ist_ep_note_found(coop, op, decision);
    ist_coop_sync(coop);
    return ist_ep_is_confirmed(coop, op, decision);
}

/** Head of a source's metadata, fetched into scratch. */
IST_DEVICE_FN ist_ep_head *ist_ep_head_here(ist_coop *coop, const ist_ep_op_view *op,
                                            uint32_t source)
{
    uint8_t *records =
        (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
    return (ist_ep_head *)(void *)(records + source * op->args->at.meta_bytes);
}

/**
 * What the metadata of a source that takes part amounts to, decided together: compares what came
 * with what must have come. Every block finds the same, as the team's metadata stays as it is; whoever
 * is wrong is left out by all and dropped by the last. Lane.
 */
IST_DEVICE_FN uint8_t ist_ep_judge_head(const ist_ep_op_view *op, const ist_ep_head *head,
                                        uint64_t shape)
{
    int whole = head->tag == op->tag && head->rows <= op->args->geometry.tokens_max;
    return !whole                 ? (uint8_t)IST_EP_RESULT_BROKEN
           : head->shape != shape ? (uint8_t)IST_EP_RESULT_SHAPE
                                  : (uint8_t)IST_WAIT_DONE;
}

/** Notes that a rank's rows broke while they were copied: it has not contributed. Lane. */
IST_DEVICE_FN void ist_ep_break(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer)
{
    uint64_t *word = (uint64_t *)(void *)ist_ep_at(op, op->args->at.broken) + peer / 64u;
    uint64_t bit = UINT64_C(1) << (peer % 64u);
    uint64_t seen = ist_load_u64(coop, word, IST_RELAXED, IST_SCOPE_DEVICE);
    uint64_t before = ~seen;
    while ((seen & bit) == 0 && before != seen) {
        before = seen;
        seen =
            ist_compare_swap_u64(coop, word, before, before | bit, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

#endif
