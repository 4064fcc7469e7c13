/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep_conclude.h
 * The end of an operation, by the last block to leave it: answers, were all rows still in place, the
 * answers of the others, the record, the group's state.
 *
 * The path of an operation that went well is short on purpose: everybody waits for it. The flags that
 * say "I have read yours", which is so whatever comes out next; while they travel, an acquire fence
 * after the last read and a look for notices; the flags of the others; the record, whose words need
 * nothing from the host's memory and are in no order. All else lies apart.
 */
#ifndef IST_EP_CONCLUDE_H
#define IST_EP_CONCLUDE_H

#include "ep_decide.h"

/** Whether this is the last block to leave: it sees all that the others wrote. Collective. */
IST_DEVICE_FN int ist_ep_is_last(ist_coop *coop, const ist_ep_op_view *op)
{
    if (op->blocks == 1u) {
        ist_coop_sync(coop);
        return 1;
    }
    uint64_t before = ist_coop_fetch_add(coop, &op->state->left, 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
    return before + 1u == op->before->left_base + op->blocks;
}

/** Raises the flag of the answers at all that were read whole and are active. The marks were last read
 *  before a sync. Collective. */
IST_DEVICE_FN void ist_ep_raise_answers(ist_coop *coop, const ist_ep_op_view *op,
                                        const uint64_t *whole)
{
    uint8_t *marks = ist_wire_marks_of(coop, op->room);
    IST_EACH_LANE (coop, peer, op->ranks) {
        marks[peer] = (uint8_t)(ist_ep_is_in(whole, peer) && ist_ep_was_active(coop, op, peer));
    }
    ist_ep_raise(coop, op, IST_EP_ACK, 0, 1, op->ranks, marks);
}

/** The same, decided together: of few ranks of one team, `whole` in a word. Lane-parallel. */
IST_DEVICE_FN void ist_ep_raise_here(ist_coop *coop, const ist_ep_op_view *op, uint64_t whole)
{
    ist_wire_channel channel = ist_ep_flag_of(op, IST_EP_ACK);
    IST_EACH_LANE (coop, peer, op->ranks) {
        if ((whole & op->active) >> peer & 1u) {
            ist_ep_raise_at(coop, op, channel, peer);
        }
    }
}

/** Who of the verdict lies in the team, into `used`. What the network brought lies here, and whoever
 *  leaves puts nothing on top. A sync must follow. Collective. */
IST_DEVICE_RARE_FN void ist_ep_mark_used(ist_coop *coop, ist_ep_op_view op, uint64_t *used)
{
    const uint64_t *verdict = ist_ep_verdict_of(coop, op.room);
    uint8_t *marks = ist_wire_marks_of(coop, op.room);
    IST_EACH_LANE (coop, peer, op.ranks) {
        marks[peer] = ist_ep_is_in(verdict, peer) && ist_dev_is_lsa(op.dev, peer);
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, w, ist_ep_word_count(op.ranks)) {
        used[w] = ist_ep_word_from(marks, w, op.ranks);
    }
}

/** The books of an operation that block 0 has decided apart. @return as ist_ep_close_books().
 *  Collective. */
IST_DEVICE_RARE_FN uint32_t ist_ep_close_apart(ist_coop *coop, ist_ep_op_view op, uint8_t *results)
{
    const uint64_t *verdict = ist_ep_verdict_of(coop, op.room);
    uint64_t *whole = ist_ep_whole_of(coop, op.room);
    uint64_t *broken = (uint64_t *)(void *)ist_ep_at(&op, op.args->at.broken);
    ist_wire wire = ist_ep_wire_of(&op);
    ist_ep_mark_used(coop, op, whole);
    uint32_t outcome = ist_wire_noticed(coop, &wire, whole) ? (uint32_t)IST_WIRE_EVICTED : 0u;
    IST_EACH_LANE (coop, w, ist_ep_word_count(op.ranks)) {
        uint64_t word = ist_load_u64(coop, broken + w, IST_RELAXED, IST_SCOPE_DEVICE);
        whole[w] = verdict[w] & ~word;
        if (word != 0) {
            ist_store_u64(coop, broken + w, 0, IST_RELAXED, IST_SCOPE_DEVICE);
        }
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, op.ranks) {
        int broke = ist_ep_is_in(verdict, peer) && !ist_ep_is_in(whole, peer);
        results[peer] = broke ? (uint8_t)IST_EP_RESULT_BROKEN : (uint8_t)IST_WAIT_DONE;
    }
    return outcome | ist_ep_reject(coop, &op, results);
}

/** Drops whoever was found wrong by all blocks, or broke under the copy. Collective. */
IST_DEVICE_RARE_FN void ist_ep_reject_here(ist_coop *coop, ist_ep_op_view op, uint64_t broken,
                                           uint8_t *results)
{
    uint64_t *words = (uint64_t *)(void *)ist_ep_at(&op, op.args->at.broken);
    IST_EACH_LANE (coop, peer, op.ranks) {
        if ((broken >> peer & 1u) != 0 && results[peer] == IST_WAIT_DONE) {
            results[peer] = IST_EP_RESULT_BROKEN;
        }
    }
    if (broken != 0 && ist_coop_elect(coop)) {
        ist_store_u64(coop, words, 0, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_ep_reject_marked(coop, op, results);
}

/** Decided apart: the books, then the answers. @return as ist_ep_close_books(). Collective. */
IST_DEVICE_RARE_FN uint32_t ist_ep_end_apart(ist_coop *coop, ist_ep_op_view op, uint8_t *results)
{
    uint32_t outcome = ist_ep_close_apart(coop, op, results);
    ist_ep_raise_answers(coop, &op, ist_ep_whole_of(coop, op.room));
    return outcome;
}

/**
 * When nothing more is read from peers: answers them; who has contributed whole, and whether the
 * team's rows were still in place while they were read. Drops who broke, and where blocks decided
 * together, those whose metadata each of them has found wrong. @return what this adds to the outcome.
 * Collective.
 */
IST_DEVICE_FN uint32_t ist_ep_close_books(ist_coop *coop, const ist_ep_op_view *op,
                                          const ist_ep_decision *decision, uint8_t *results)
{
    uint32_t outcome = 0;
    if (!decision->here) {
        IST_RARELY(coop, outcome = ist_ep_end_apart(coop, *op, results));
        return outcome;
    }
    ist_wire wire = ist_ep_wire_of(op);
    uint64_t *verdict = ist_ep_verdict_of(coop, op->room);
    uint64_t broken = ist_load_u64(coop, (uint64_t *)(void *)ist_ep_at(op, op->args->at.broken),
                                   IST_RELAXED, IST_SCOPE_DEVICE);
    uint64_t good = 0;
    int wrong = 0;
    IST_ROLLED
    for (uint32_t peer = 0; peer < op->ranks; ++peer) {
        good |= (uint64_t)(results[peer] == IST_WAIT_DONE) << peer;
        wrong |= results[peer] >= IST_EP_RESULT_BROKEN;
        outcome |= results[peer] == IST_EP_RESULT_SHAPE ? IST_EP_MIXED : 0u;
    }
    ist_ep_raise_here(coop, op, good & ~broken);
    if (ist_coop_elect(coop)) {
        verdict[0] = good;
        ist_ep_whole_of(coop, op->room)[0] = good & ~broken;
    }
    if (ist_wire_noticed(coop, &wire, verdict)) {
        outcome |= IST_WIRE_EVICTED;
    }
    /* Also for ranks that only a proposal contained which was not decided: the word must be zero. */
    if (wrong || broken != 0) {
        IST_RARELY(coop, ist_ep_reject_here(coop, *op, broken, results));
    }
    return outcome;
}

/** Tells ranks that were sent to and did not answer that they are given up. Collective. */
IST_DEVICE_RARE_FN void ist_ep_notify_silent(ist_coop *coop, ist_ep_op_view op,
                                             const uint8_t *results)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op.room);
    uint8_t *marks = ist_wire_marks(head, op.room);
    ist_wire_channel ready = ist_ep_flag_of(&op, IST_EP_READY);
    ist_wire wire = ist_ep_wire_of(&op);
    ist_coop_sync(coop); /* some lane may still read `lost` on the way here */
    if (ist_coop_elect(coop)) {
        head->lost = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, op.ranks) {
        marks[peer] = 0;
        if (results[peer] != IST_WAIT_DONE) {
            uint64_t sent = ist_load_u64(coop, ist_wire_word(coop, op.dev, ready.sent, peer),
                                         IST_RELAXED, IST_SCOPE_DEVICE);
            marks[peer] = sent == op.tag;
            if (marks[peer]) {
                head->lost = 1;
            }
        }
    }
    ist_coop_sync(coop);
    if (head->lost) {
        ist_wire_notify(coop, &wire, marks);
    }
}

/** Whether some rank's result is not DONE. Collective. */
IST_DEVICE_FN int ist_ep_someone_missing(ist_coop *coop, const ist_ep_op_view *op,
                                         const uint8_t *results)
{
    if (op->few || op->ranks <= IST_EP_DECIDED_RANKS_MAX) {
        int missing = 0;
        IST_ROLLED
        for (uint32_t peer = 0; peer < op->ranks; ++peer) {
            missing |= results[peer] != IST_WAIT_DONE;
        }
        return missing;
    }
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op->room);
    if (ist_coop_elect(coop)) { /* last read before the syncs of the wait, or of the glance */
        head->lost = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, op->ranks) {
        if (results[peer] != IST_WAIT_DONE) {
            head->lost = 1;
        }
    }
    ist_coop_sync(coop);
    return head->lost != 0;
}

/** Who has answered, of an operation that waits for nobody. Collective. */
IST_DEVICE_RARE_FN void ist_ep_glance(ist_coop *coop, ist_ep_op_view op, uint8_t *results)
{
    ist_wire_channel ack = ist_ep_flag_of(&op, IST_EP_ACK);
    IST_EACH_LANE (coop, peer, op.ranks) {
        int answered = ist_wire_flag(coop, op.dev, ack, peer) == op.tag;
        results[peer] = answered ? IST_WAIT_DONE : IST_WAIT_MASKED;
    }
    ist_coop_sync(coop);
}

/**
 * Waits until all active ranks have answered "I have read yours". After it the inputs and the slot
 * may be reused: who has not answered knows that it is out before anything it may still read
 * changes. @return ist_wire_outcome. Collective.
 */
IST_DEVICE_FN uint32_t ist_ep_await_answers(ist_coop *coop, const ist_ep_op_view *op,
                                            uint32_t outcome, uint8_t *results)
{
    if ((outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0 &&
        ((outcome & IST_WIRE_LOST) == 0 || ist_wire_tolerant(op->dev))) {
        outcome |= ist_ep_await_peers(coop, op, IST_EP_ACK, results);
    } else { /* who has answered needs no notice: a rank that is out takes no others with it */
        IST_RARELY(coop, ist_ep_glance(coop, *op, results));
    }
    if ((outcome & IST_WIRE_ABORTED) == 0 && ist_ep_someone_missing(coop, op, results)) {
        IST_RARELY(coop, ist_ep_notify_silent(coop, *op, results));
    }
    return outcome;
}

/** An operation that did not go well looks for notices once more. @return ist_wire_outcome. */
IST_DEVICE_RARE_FN uint32_t ist_ep_look_again(ist_coop *coop, ist_ep_op_view op)
{
    ist_wire wire = ist_ep_wire_of(&op);
    return ist_wire_noticed(coop, &wire, NULL) ? (uint32_t)IST_WIRE_EVICTED
                                               : (uint32_t)IST_WIRE_DONE;
}

/** Waits for the answers, after this rank's own are out. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_finish(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome,
                                     uint8_t *results)
{
    outcome = ist_ep_await_answers(coop, op, outcome, results);
    if (outcome != IST_WIRE_DONE) { /* else everybody has answered: nobody gave this rank up */
        IST_RARELY(coop, outcome |= ist_ep_look_again(coop, *op));
    }
    return outcome;
}

/* ---- the record -------------------------------------------------------------------------------- */

/** Status of the operation. Lane. */
IST_DEVICE_FN int32_t ist_ep_status(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome,
                                    uint32_t lost)
{
    int aborted = op->mask != NULL &&
                  ist_load_u64(coop, &op->mask->abort_word, IST_RELAXED, IST_SCOPE_SYSTEM) != 0;
    if ((outcome & IST_WIRE_ABORTED) != 0 || aborted) {
        return IST_ERR_ABORTED;
    }
    if (outcome & IST_WIRE_EVICTED) {
        return ist_wire_tolerant(op->dev) ? IST_ERR_EVICTED : IST_ERR_TIMEOUT;
    }
    if (outcome & IST_EP_FOREIGN) {
        return IST_ERR_OBJECT;
    }
    if (outcome & IST_EP_MIXED) {
        return IST_ERR_MISMATCH;
    }
    if ((lost != 0 || (outcome & IST_WIRE_LOST)) && !ist_wire_tolerant(op->dev)) {
        return IST_ERR_TIMEOUT;
    }
    if (lost != 0) {
        return IST_INCOMPLETE;
    }
    return op->routed;
}

/** Tag under which the record says that the operation began. Lane. */
IST_DEVICE_FN uint64_t ist_ep_begun(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome)
{
    return (outcome & IST_EP_FOREIGN) != 0
               ? ist_load_u64(coop, &op->args->record->started, IST_RELAXED, IST_SCOPE_SYSTEM)
               : op->tag;
}

/** The record's words but for the lost ranks, in any order. Lane. */
IST_DEVICE_FN void ist_ep_write_head(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome,
                                     uint32_t lost, uint64_t mix)
{
    ist_ep_record_head *record = op->args->record;
    ist_ep_record_head head;
    head.status = ist_ep_status(coop, op, outcome, lost);
    head.complete = lost == 0 && (head.status == IST_OK || head.status == op->routed);
    head.done = ist_ep_begun(coop, op, outcome);
    head.sequence = op->tag;
    head.generation = op->generation;
    head.lost_count = lost;
    if (op->args->issue != 0) {
        ist_store_u64(coop, &record->issue, op->args->issue, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    ist_store_u64(coop, &record->sequence, head.sequence, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &record->generation, head.generation, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u32(coop, (uint32_t *)&record->status, (uint32_t)head.status, IST_RELAXED,
                  IST_SCOPE_SYSTEM);
    ist_store_u32(coop, &record->complete, head.complete, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u32(coop, &record->lost_count, lost, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &record->check, ist_ep_record_check(&head, mix), IST_RELAXED,
                  IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &record->done, head.done, IST_RELAXED, IST_SCOPE_SYSTEM);
}

/** Writes the record. Of an operation that is out of hand nothing counts. Collective. */
IST_DEVICE_FN void ist_ep_write_record(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome)
{
    uint64_t *words = (uint64_t *)(op->args->record + 1);
    const uint64_t *whole = ist_ep_whole_of(coop, op->room);
    int none = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED | IST_EP_FOREIGN)) != 0;
    if (!ist_coop_elect(coop)) {
        return;
    }
    uint32_t lost = 0;
    uint64_t mix = 0;
    IST_ROLLED
    for (uint32_t w = 0; w < ist_ep_word_count(op->ranks); ++w) {
        uint32_t left = op->ranks - w * 64u;
        uint64_t all = left >= 64u ? UINT64_MAX : (UINT64_C(1) << left) - 1u;
        uint64_t missing = all & ~(none ? 0 : whole[w]);
        IST_ROLLED
        for (uint64_t rest = missing; rest != 0; rest &= rest - 1u) {
            ++lost;
        }
        mix += ist_ep_record_mix(missing, w);
        ist_store_u64(coop, words + w, missing, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    ist_ep_write_head(coop, op, outcome, lost, mix);
}

/** Moves the group's state on and keeps what a staged operation needs. Collective. */
IST_DEVICE_FN void ist_ep_advance(ist_coop *coop, const ist_ep_op_view *op, uint32_t outcome)
{
    ist_ep_state_head *head = &op->state->head;
    ist_ep_handle_head *handle = ist_ep_handle_of(op->args);
    uint32_t sends = (op->halves & IST_EP_SEND) ? 1u : 0u;
    uint32_t receives = (op->halves & IST_EP_RECEIVE) ? 1u : 0u;
    uint64_t bit = UINT64_C(1) << op->slot;
    uint64_t busy = receives ? op->before->busy & ~bit : op->before->busy | bit;
    uint64_t met = op->blocks > 1u ? op->blocks : 0u;
    int staged = op->stages && (outcome & IST_EP_FOREIGN) == 0;
    if (!ist_coop_elect(coop)) {
        return;
    }
    ist_store_u64(coop, &head->epoch, op->before->epoch + sends, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, &head->busy, busy, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, &head->staged_base, op->before->staged_base + (staged ? met : 0u),
                  IST_RELAXED, IST_SCOPE_DEVICE);
    if (op->blocks > 1u && receives) {
        ist_store_u64(coop, &op->state->decided, 0, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_store_u64(coop, &head->left_base, op->before->left_base + met, IST_RELAXED,
                  IST_SCOPE_DEVICE);
    handle->pending_tag = receives ? 0 : op->tag;
    handle->pending_generation = op->generation;
    handle->pending_slot = op->slot;
}

#endif
