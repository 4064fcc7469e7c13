/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine: the experts' outputs back to the ranks of their tokens, summed there.
 *
 * Send half (as the rank of experts):
 *   1 stage    plain rows owed to the team into the window, packed by home; rows owed to network
 *              peers stamped and put to their place in the home's inbox
 *   2 meet     all blocks have staged
 *   3 send     home h is served by block h % blocks: the head (where the rows lie), the ready flag
 * Receive half (as the home of tokens):
 *   4 decide   block 0 waits for the ready flags, checks heads and stamps, and publishes who takes
 *              part: the ranks that answered this rank's dispatch and are ready now
 *   5 sum      each block takes its share of the tokens: the rows of a token in the order of k, one
 *              fused chain in f32, one rounding
 * Last block:
 *   6 look     for notices; then answer "I have read yours" to all that took part
 *   7 await    the answers of all homes, conclude
 *
 * Orderings: those of the dispatch. Rows are summed where they lie: in the expert rank's window or
 * staging, or in this rank's inbox. Stamps of the inbox are compared before the verdict and again
 * after the sum; a token whose rows broke in between is summed again without them.
 */
#include "ep_wire.h"

#define IST_EP_TOKENS 32u   /* tokens summed between two syncs */
#define IST_EP_PUT_ROWS 16u /* received rows whose entries are put between two syncs */

/** Tables of the handle; constant during this kernel. */
typedef struct ist_ep_plan {
    const int32_t *idx;
    const int32_t *key;
    const uint32_t *ordinal;
    const uint32_t *row;
    const uint32_t *within;
    const uint32_t *received;
    const uint64_t *received_from;
    const uint64_t *acked;
} ist_ep_plan;

IST_DEVICE_FN ist_ep_plan ist_ep_plan_of(const ist_ep_op_args *args)
{
    const uint8_t *handle = args->handle;
    ist_ep_plan plan;
    plan.idx = (const int32_t *)(const void *)(handle + args->in.idx);
    plan.key = (const int32_t *)(const void *)(handle + args->in.key);
    plan.ordinal = (const uint32_t *)(const void *)(handle + args->in.ordinal);
    plan.row = (const uint32_t *)(const void *)(handle + args->in.row);
    plan.within = (const uint32_t *)(const void *)(handle + args->in.expert_within);
    plan.received = (const uint32_t *)(const void *)(handle + args->in.received);
    plan.received_from = (const uint64_t *)(const void *)(handle + args->in.received_from);
    plan.acked = (const uint64_t *)(const void *)(handle + args->in.acked);
    return plan;
}

/** What this rank answered to a source: slot bases follow at (head + 1). */
IST_DEVICE_FN const ist_ep_head *ist_ep_given(const ist_ep_op_args *args, uint32_t source)
{
    return (const ist_ep_head *)(const void *)(args->handle + args->in.received_meta +
                                               source * args->at.meta_bytes);
}

/** What a rank answered to this one. */
IST_DEVICE_FN const ist_ep_ack *ist_ep_answer_of(const ist_ep_op_args *args, uint32_t peer)
{
    return (const ist_ep_ack *)(const void *)(args->handle + args->in.acks +
                                              peer * args->at.ack_bytes);
}

/** Rows of one expert in the expert-major shape. */
IST_DEVICE_FN uint64_t ist_ep_slots(const ist_ep_op_args *args)
{
    return (uint64_t)args->geometry.rank_count * args->geometry.tokens_max;
}

/* ---- send ------------------------------------------------------------------------------------- */

/** A run of rows for one home that lie one after another. */
typedef struct ist_ep_run {
    uint64_t from;   /**< row of the tensor */
    uint64_t packed; /**< row of the staging */
    uint32_t count;
} ist_ep_run;

/** EXPERT_MAJOR: rows of one home at one local expert. */
IST_DEVICE_FN ist_ep_run ist_ep_run_by_expert(const ist_ep_op_args *args, uint32_t home,
                                              uint32_t expert)
{
    const ist_ep_head *head = ist_ep_given(args, home);
    const uint32_t *bases = (const uint32_t *)(head + 1);
    const uint32_t *ends = (const uint32_t *)(ist_ep_given(args, home + 1u) + 1);
    ist_ep_run run;
    run.from = expert * ist_ep_slots(args) + bases[expert];
    run.packed = head->ack_start;
    run.count = ends[expert] - bases[expert];
    for (uint32_t lower = 0; run.count != 0 && lower < expert; ++lower) {
        run.packed += ends[lower] - bases[lower];
    }
    return run;
}

/** RANK_MAJOR: rows of one home. */
IST_DEVICE_FN ist_ep_run ist_ep_run_by_rank(const ist_ep_op_args *args, const ist_ep_plan *plan,
                                            uint32_t home)
{
    ist_ep_run run;
    run.from = (uint64_t)home * args->geometry.tokens_max;
    run.packed = ist_ep_given(args, home)->ack_start;
    run.count = plan->received[home + 1u] - plan->received[home];
    return run;
}

/** Phase 1 for the team: this block's parts of the runs. Collective. */
IST_DEVICE_FN void ist_ep_pack(ist_coop *coop, const ist_ep_op_view *op, const ist_ep_plan *plan)
{
    const ist_ep_op_args *args = op->args;
    const ist_dev_comm *dev = op->dev;
    int by_expert = args->layout == IST_EP_EXPERT_MAJOR;
    uint32_t local = by_expert ? ist_ep_expert_local_count(args->geometry.expert_count,
                                                           dev->rank_count, dev->rank)
                               : 1u;
    uint32_t runs = dev->lsa_size * local;
    uint32_t parts = runs < op->blocks && runs != 0 ? op->blocks / runs : 1u;
    for (uint32_t i = op->block; i < runs * parts; i += op->blocks) {
        uint32_t home = dev->rank - dev->lsa_rank + i / parts / local;
        if (home == dev->rank || !ist_ep_is_in(plan->received_from, home)) {
            continue;
        }
        ist_ep_run run = by_expert ? ist_ep_run_by_expert(args, home, i / parts % local)
                                   : ist_ep_run_by_rank(args, plan, home);
        uint64_t begin = (uint64_t)run.count * (i % parts) / parts;
        uint64_t end = (uint64_t)run.count * (i % parts + 1u) / parts;
        if (begin < end) {
            uint64_t to = op->base + args->at.stage_packed + (run.packed + begin) * args->row_bytes;
            ist_row_copy(coop, ist_ep_at(coop, op, to),
                         args->rows + (run.from + begin) * args->row_bytes,
                         (end - begin) * args->row_bytes);
        }
    }
}

/** Scratch: the entries of some received rows of one network peer. */
typedef struct ist_ep_entries {
    const uint8_t *from; /**< NULL: no entry of this rank */
    uint64_t place;      /**< token * K + k at the home */
} ist_ep_entries;

/** What one home gets, and how far it is. */
typedef struct ist_ep_owed {
    const uint8_t *descs;
    const uint32_t *bases;
    ist_ep_entries *entries; /**< scratch [IST_EP_PUT_ROWS][K] */
    uint32_t *numbers;       /**< scratch [IST_EP_PUT_ROWS][K]: number among the entries */
    uint64_t message;        /**< offset of the first message */
    uint32_t home;
    uint32_t first; /**< row */
    uint32_t count; /**< rows */
} ist_ep_owed;

/** Row of this rank's tensor for entry k of a received row, NULL if it is not here. Lane. */
IST_DEVICE_FN const uint8_t *ist_ep_owed_row(const ist_ep_op_args *args, const ist_ep_owed *owed,
                                             uint32_t row, uint32_t k, uint32_t local)
{
    const uint32_t *desc =
        (const uint32_t *)(const void *)(owed->descs + row * args->in.desc_bytes);
    uint32_t expert = desc[1u + k] >> 16;
    if (desc[1u + k] == IST_EP_ELSEWHERE || expert >= local) {
        return NULL;
    }
    if (args->layout == IST_EP_EXPERT_MAJOR) {
        uint64_t slot = owed->bases[expert] + (desc[1u + k] & 0xffffu);
        return slot < ist_ep_slots(args)
                   ? args->rows + (expert * ist_ep_slots(args) + slot) * args->row_bytes
                   : NULL;
    }
    for (uint32_t lower = 0; lower < k; ++lower) {
        if (desc[1u + lower] != IST_EP_ELSEWHERE) {
            return NULL;
        }
    }
    uint64_t place = (uint64_t)owed->home * args->geometry.tokens_max + row;
    return args->rows + place * args->row_bytes;
}

/** Finds and numbers the entries of a batch. @return how many. Collective. */
IST_DEVICE_FN uint32_t ist_ep_find_owed(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_owed *owed)
{
    const ist_ep_op_args *args = op->args;
    uint32_t local =
        ist_ep_expert_local_count(args->geometry.expert_count, op->dev->rank_count, op->dev->rank);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, owed->count * args->topk) {
        uint32_t row = owed->first + i / args->topk;
        uint32_t k = i % args->topk;
        const uint32_t *desc =
            (const uint32_t *)(const void *)(owed->descs + row * args->in.desc_bytes);
        owed->entries[i].from = ist_ep_owed_row(args, owed, row, k, local);
        owed->entries[i].place = (uint64_t)desc[0] * args->topk + k;
        owed->numbers[i] = owed->entries[i].from != NULL;
    }
    ist_coop_sync(coop);
    uint32_t total = ist_coop_scan(coop, owed->numbers, owed->count * args->topk);
    ist_coop_sync(coop);
    return total;
}

/** Stamps of a batch: zero, or what the home expects. Lane-parallel. */
IST_DEVICE_FN void ist_ep_stamp_owed(ist_coop *coop, const ist_ep_op_view *op,
                                     const ist_ep_owed *owed, uint64_t tag)
{
    uint32_t topk = op->args->topk;
    IST_EACH_LANE (coop, i, owed->count * topk) {
        if (owed->entries[i].from != NULL) {
            uint64_t place = owed->entries[i].place;
            ist_ep_stamp_write(coop, op,
                               owed->message + owed->numbers[i] * op->args->at.message_bytes, tag,
                               (place / topk) << 32 | place % topk);
        }
    }
    ist_coop_sync(coop);
}

/** Stages and puts one batch. Collective. */
IST_DEVICE_FN void ist_ep_put_owed(ist_coop *coop, const ist_ep_op_view *op,
                                   const ist_ep_owed *owed)
{
    const ist_ep_op_args *args = op->args;
    uint64_t step = args->at.message_bytes;
    ist_ep_stamp_owed(coop, op, owed, 0);
    for (uint32_t i = 0; i < owed->count * args->topk; ++i) {
        if (owed->entries[i].from != NULL) {
            uint64_t to = owed->message + owed->numbers[i] * step + sizeof(ist_ep_stamp);
            ist_row_copy(coop, ist_ep_at(coop, op, to), owed->entries[i].from, args->row_bytes);
        }
    }
    ist_coop_sync(coop);
    ist_ep_stamp_owed(coop, op, owed, op->tag);
    for (uint32_t i = 0; i < owed->count * args->topk; ++i) {
        if (owed->entries[i].from != NULL) {
            ist_ep_put(coop, op, owed->home,
                       op->base + args->at.inbox_packed + owed->entries[i].place * step,
                       owed->message + owed->numbers[i] * step,
                       sizeof(ist_ep_stamp) + args->row_bytes);
        }
    }
}

/** Phase 1 for one network peer. Collective. */
IST_DEVICE_FN void ist_ep_pay(ist_coop *coop, const ist_ep_op_view *op, const ist_ep_plan *plan,
                              uint32_t home)
{
    const ist_ep_op_args *args = op->args;
    uint32_t rows = plan->received[home + 1u] - plan->received[home];
    uint32_t entries = IST_EP_PUT_ROWS * args->topk;
    uint64_t peer = ist_ep_gin_index(&args->geometry, op->dev->rank, home);
    ist_ep_owed owed;
    owed.home = home;
    owed.descs = args->handle + args->in.received_descs +
                 peer * args->geometry.tokens_max * args->in.desc_bytes;
    owed.bases = (const uint32_t *)(ist_ep_given(args, home) + 1);
    owed.entries = (ist_ep_entries *)ist_coop_scratch(
        coop, IST_EP_SCRATCH_ROWS, entries * (uint32_t)(sizeof(ist_ep_entries) + 4u));
    owed.numbers = (uint32_t *)(owed.entries + entries);
    owed.message = op->base + args->at.stage_put_packed +
                   ist_ep_given(args, home)->ack_start * args->at.message_bytes;
    for (owed.first = 0; owed.first < rows; owed.first += IST_EP_PUT_ROWS) {
        owed.count = rows - owed.first < IST_EP_PUT_ROWS ? rows - owed.first : IST_EP_PUT_ROWS;
        uint32_t found = ist_ep_find_owed(coop, op, &owed);
        ist_ep_put_owed(coop, op, &owed);
        owed.message += found * args->at.message_bytes;
        ist_coop_sync(coop);
    }
}

/** Phase 1. Collective. */
IST_DEVICE_FN void ist_ep_combine_stage(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_plan *plan)
{
    const ist_dev_comm *dev = op->dev;
    uint8_t *marks = ist_wire_marks(ist_wire_scratch_of(coop, dev), dev);
    uint32_t count = 0;
    if (op->args->rows_window == 0 && dev->lsa_size > 1u) {
        ist_ep_pack(coop, op, plan);
    }
    if (dev->lsa_size == dev->rank_count) {
        return;
    }
    for (uint32_t first = op->block; first < dev->rank_count; first += count * op->blocks) {
        count = ist_ep_served(op, first);
        ist_ep_mark_active(coop, op, first, count, marks);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t home = first + i * op->blocks;
            if (marks[i] && !ist_dev_is_lsa(dev, home) && ist_ep_is_in(plan->received_from, home)) {
                ist_ep_pay(coop, op, plan, home);
            }
        }
    }
}

/** Phase 3. Collective. */
IST_DEVICE_FN void ist_ep_combine_send_all(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_ep_layout_map *at = &op->args->at;
    const ist_dev_comm *dev = op->dev;
    uint8_t *marks = ist_wire_marks(ist_wire_scratch_of(coop, dev), dev);
    uint64_t there = ist_ep_mine(op, at->meta, at->meta_bytes);
    uint32_t count = 0;
    for (uint32_t first = op->block; first < dev->rank_count; first += count * op->blocks) {
        count = ist_ep_served(op, first);
        ist_ep_mark_active(coop, op, first, count, marks);
        const ist_ep_head *heads = ist_ep_fill_heads(coop, op, first, count, at->stage_packed);
        ist_coop_sync(coop);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t home = first + i * op->blocks;
            if (marks[i] && ist_dev_is_lsa(dev, home)) {
                ist_row_copy(coop, ist_window_peer(coop, dev, 0, there, home), &heads[i],
                             sizeof(ist_ep_head));
            } else if (marks[i]) {
                uint64_t out = ist_ep_gin_part(op, at->out_meta, at->meta_bytes, home);
                ist_row_copy(coop, ist_ep_at(coop, op, out), &heads[i], sizeof(ist_ep_head));
                ist_ep_put(coop, op, home, there, out, sizeof(ist_ep_head));
            }
        }
        ist_point(coop, "ep.combine.written");
        ist_ep_raise(coop, op, IST_EP_READY, first, op->blocks, count, marks);
    }
}

/* ---- receive ---------------------------------------------------------------------------------- */

/** Where entry (token, k) of the network lies in this rank's inbox. */
IST_DEVICE_FN uint64_t ist_ep_inbox_entry(const ist_ep_op_view *op, uint64_t entry)
{
    return op->base + op->args->at.inbox_packed + entry * op->args->at.message_bytes;
}

/** Rank that owes a row for an entry, or R when the entry has none of its own. Lane. */
IST_DEVICE_FN uint32_t ist_ep_debtor(const ist_ep_op_args *args, const ist_ep_plan *plan,
                                     uint64_t entry)
{
    int32_t expert = plan->idx[entry];
    int counts = args->layout == IST_EP_EXPERT_MAJOR ? expert >= 0 : plan->key[entry] >= 0;
    return counts ? ist_ep_expert_rank(args->geometry.expert_count, args->geometry.rank_count,
                                       (uint32_t)expert)
                  : args->geometry.rank_count;
}

/** Whether the stamp of an entry in the inbox is right. Lane. */
IST_DEVICE_FN int ist_ep_entry_came(ist_coop *coop, const ist_ep_op_view *op, uint64_t entry)
{
    uint32_t topk = op->args->topk;
    return ist_ep_stamp_is(coop, op, ist_ep_inbox_entry(op, entry),
                           (entry / topk) << 32 | entry % topk);
}

/** Phase 4: heads and stamps. Collective. */
IST_DEVICE_FN void ist_ep_check_experts(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_plan *plan, uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    const ist_dev_comm *dev = op->dev;
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        uint64_t offset = op->base + args->at.meta + peer * args->at.meta_bytes;
        const uint64_t *head = (const uint64_t *)(const void *)ist_ep_at(coop, op, offset);
        if (results[peer] == IST_WAIT_DONE) {
            int here = ist_load_u64(coop, head, IST_RELAXED, IST_SCOPE_SYSTEM) == op->tag;
            int same =
                ist_load_u64(coop, head + 1, IST_RELAXED, IST_SCOPE_SYSTEM) == ist_ep_shape(args);
            results[peer] = !here                             ? IST_EP_RESULT_BROKEN
                            : !same                           ? IST_EP_RESULT_SHAPE
                            : ist_ep_is_in(plan->acked, peer) ? IST_WAIT_DONE
                                                              : IST_WAIT_MASKED;
        }
    }
    ist_coop_sync(coop);
    if (dev->lsa_size < dev->rank_count) {
        IST_EACH_LANE (coop, entry, args->token_count * args->topk) {
            uint32_t peer = ist_ep_debtor(args, plan, entry);
            if (peer < dev->rank_count && !ist_dev_is_lsa(dev, peer) &&
                results[peer] == IST_WAIT_DONE && !ist_ep_entry_came(coop, op, entry)) {
                results[peer] = IST_EP_RESULT_BROKEN;
            }
        }
    }
    ist_coop_sync(coop);
}

/** Phase 4, block 0. Collective. */
IST_DEVICE_FN void ist_ep_combine_decide(ist_coop *coop, const ist_ep_op_view *op,
                                         const ist_ep_plan *plan)
{
    uint8_t *results = ist_ep_results(coop, op->dev);
    uint32_t outcome = ist_ep_begin_receive(coop, op, results);
    if ((outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0) {
        ist_ep_check_experts(coop, op, plan, results);
        ist_ep_reject(coop, op, results);
    }
    ist_ep_publish(coop, op, results, outcome);
}

/** Row of an expert rank's tensor or staging that answers an entry. Lane. */
IST_DEVICE_FN uint64_t ist_ep_remote_row(const ist_ep_op_view *op, const ist_ep_plan *plan,
                                         uint64_t entry, uint32_t peer, int packed)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_ack *ack = ist_ep_answer_of(args, peer);
    if (args->layout == IST_EP_RANK_MAJOR) {
        uint64_t row = plan->row[entry];
        return packed ? ack->start + row
                      : (uint64_t)op->dev->rank * args->geometry.tokens_max + row;
    }
    uint32_t expert = (uint32_t)plan->idx[entry];
    uint32_t local =
        expert - ist_ep_expert_first(args->geometry.expert_count, args->geometry.rank_count, peer);
    const uint32_t *bases = (const uint32_t *)(ack + 1);
    return packed ? ack->start + plan->within[expert] + plan->ordinal[entry]
                  : local * ist_ep_slots(args) + bases[local] + plan->ordinal[entry];
}

/** Address of the row of an entry, NULL where it does not exist. Lane. */
IST_DEVICE_FN const void *ist_ep_entry_row(ist_coop *coop, const ist_ep_op_view *op,
                                           const ist_ep_plan *plan, uint64_t entry, uint32_t peer)
{
    const ist_ep_op_args *args = op->args;
    if (peer == op->dev->rank) {
        return args->rows + ist_ep_remote_row(op, plan, entry, peer, 0) * args->row_bytes;
    }
    if (!ist_dev_is_lsa(op->dev, peer)) {
        return ist_ep_at(coop, op, ist_ep_inbox_entry(op, entry) + sizeof(ist_ep_stamp));
    }
    const ist_ep_head *head = (const ist_ep_head *)(const void *)ist_ep_at(
        coop, op, op->base + args->at.meta + peer * args->at.meta_bytes);
    uint64_t offset = ist_load_u64(coop, &head->offset, IST_RELAXED, IST_SCOPE_SYSTEM);
    uint32_t window = ist_load_u32(coop, &head->window, IST_RELAXED, IST_SCOPE_SYSTEM);
    uint64_t row = ist_ep_remote_row(op, plan, entry, peer, window == 0);
    return ist_window_peer(coop, op->dev, window, offset + row * args->row_bytes, peer);
}

/** Scratch of the sum: by token and k, then compacted. */
typedef struct ist_ep_sums {
    const void **row;  /**< [IST_EP_TOKENS][K], NULL: no row */
    float *weight;     /**< [IST_EP_TOKENS][K] */
    uint8_t *bad;      /**< [IST_EP_TOKENS][K], broke while it was summed */
    uint32_t *count;   /**< [IST_EP_TOKENS] */
    uint32_t *lacking; /**< [IST_EP_TOKENS] */
    uint32_t *again;   /**< not 0: something broke */
    uint32_t first;    /**< token */
    uint32_t tokens;
} ist_ep_sums;

IST_DEVICE_FN ist_ep_sums ist_ep_sums_open(ist_coop *coop, const ist_ep_op_args *args)
{
    uint32_t entries = IST_EP_TOKENS * args->topk;
    uint8_t *memory = (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_ROWS,
                                                  entries * 13u + IST_EP_TOKENS * 8u + 16u);
    ist_ep_sums sums;
    sums.row = (const void **)(void *)memory;
    sums.weight = (float *)(void *)(memory + entries * 8u);
    sums.count = (uint32_t *)(void *)(memory + entries * 12u);
    sums.lacking = sums.count + IST_EP_TOKENS;
    sums.again = sums.lacking + IST_EP_TOKENS;
    sums.bad = (uint8_t *)(sums.again + 4);
    sums.first = 0;
    sums.tokens = 0;
    return sums;
}

/** Finds the rows of the tokens. Collective. */
IST_DEVICE_FN void ist_ep_find_rows(ist_coop *coop, const ist_ep_op_view *op,
                                    const ist_ep_plan *plan, const ist_ep_sums *sums)
{
    const ist_ep_op_args *args = op->args;
    const uint64_t *verdict = ist_ep_verdict_of(coop, op->dev);
    IST_EACH_LANE (coop, i, sums->tokens * args->topk) {
        uint64_t entry = (uint64_t)sums->first * args->topk + i;
        uint32_t peer = ist_ep_debtor(args, plan, entry);
        const void *row = NULL;
        if (peer < op->dev->rank_count && ist_ep_is_in(verdict, peer) && !sums->bad[i]) {
            row = ist_ep_entry_row(coop, op, plan, entry, peer);
            if (row == NULL) {
                ist_ep_break(coop, op, peer);
            }
        }
        sums->row[i] = row;
    }
    ist_coop_sync(coop);
}

/** Closes the gaps, in the order of k. Lane-parallel over tokens. */
IST_DEVICE_FN void ist_ep_compact(ist_coop *coop, const ist_ep_combine_args *args,
                                  const ist_ep_plan *plan, const ist_ep_sums *sums)
{
    uint32_t topk = args->op.topk;
    IST_EACH_LANE (coop, t, sums->tokens) {
        uint32_t count = 0;
        uint32_t owed = 0;
        for (uint32_t k = 0; k < topk; ++k) {
            uint64_t entry = (uint64_t)(sums->first + t) * topk + k;
            owed += ist_ep_debtor(&args->op, plan, entry) < args->op.geometry.rank_count;
            if (sums->row[t * topk + k] != NULL) {
                sums->row[t * topk + count] = sums->row[t * topk + k];
                sums->weight[t * topk + count] = sums->weight[t * topk + k];
                ++count;
            }
        }
        sums->count[t] = count;
        sums->lacking[t] = owed - count;
    }
    ist_coop_sync(coop);
}

/** Looks at the stamps again. @return not 0: something broke under the sum. Collective. */
IST_DEVICE_FN uint32_t ist_ep_sums_broke(ist_coop *coop, const ist_ep_op_view *op,
                                         const ist_ep_plan *plan, const ist_ep_sums *sums)
{
    const ist_ep_op_args *args = op->args;
    const uint64_t *verdict = ist_ep_verdict_of(coop, op->dev);
    if (op->dev->lsa_size == op->dev->rank_count) {
        return 0;
    }
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        *sums->again = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, sums->tokens * args->topk) {
        uint64_t entry = (uint64_t)sums->first * args->topk + i;
        uint32_t peer = ist_ep_debtor(args, plan, entry);
        if (peer < op->dev->rank_count && !ist_dev_is_lsa(op->dev, peer) && !sums->bad[i] &&
            ist_ep_is_in(verdict, peer) && !ist_ep_entry_came(coop, op, entry)) {
            ist_ep_break(coop, op, peer);
            sums->bad[i] = 1;
            *sums->again = 1;
        }
    }
    ist_coop_sync(coop);
    return *sums->again;
}

/** Sums some tokens; once more without what broke. Collective. */
IST_DEVICE_FN void ist_ep_sum_tokens(ist_coop *coop, const ist_ep_combine_args *args,
                                     const ist_ep_op_view *op, const ist_ep_plan *plan,
                                     const ist_ep_sums *sums)
{
    const ist_ep_op_args *common = &args->op;
    uint32_t topk = common->topk;
    uint64_t elements = common->row_bytes / (common->dtype == IST_F32 ? 4u : 2u);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, sums->tokens * topk) {
        sums->bad[i] = 0;
    }
    do {
        ist_coop_sync(coop);
        if (args->weights != NULL) {
            ist_row_copy(coop, sums->weight, args->weights + (uint64_t)sums->first * topk,
                         4u * (uint64_t)sums->tokens * topk);
        }
        ist_coop_sync(coop);
        ist_ep_find_rows(coop, op, plan, sums);
        ist_ep_compact(coop, args, plan, sums);
        for (uint32_t t = 0; t < sums->tokens; ++t) {
            ist_row_reduce(coop, args->out + (sums->first + t) * common->row_bytes,
                           (const void *const *)(sums->row + t * topk),
                           args->weights != NULL ? sums->weight + t * topk : NULL, sums->count[t],
                           elements, (ist_dtype)common->dtype);
        }
    } while (ist_ep_sums_broke(coop, op, plan, sums));
    if (args->lost_counts != NULL) {
        ist_row_copy(coop, args->lost_counts + sums->first, sums->lacking,
                     4u * (uint64_t)sums->tokens);
    }
}

/** Phase 5: this block's share of the tokens. Collective. */
IST_DEVICE_FN void ist_ep_sum(ist_coop *coop, const ist_ep_combine_args *args,
                              const ist_ep_op_view *op, const ist_ep_plan *plan)
{
    uint64_t tokens = args->op.token_count;
    uint32_t end = (uint32_t)(tokens * (op->block + 1u) / op->blocks);
    ist_ep_sums sums = ist_ep_sums_open(coop, &args->op);
    for (sums.first = (uint32_t)(tokens * op->block / op->blocks); sums.first < end;
         sums.first += IST_EP_TOKENS) {
        sums.tokens = end - sums.first < IST_EP_TOKENS ? end - sums.first : IST_EP_TOKENS;
        ist_ep_sum_tokens(coop, args, op, plan, &sums);
    }
}

/** Phases 6 and 7. Collective. */
IST_DEVICE_FN void ist_ep_combine_conclude(ist_coop *coop, const ist_ep_op_view *op,
                                           uint32_t outcome)
{
    const ist_dev_comm *dev = op->dev;
    uint8_t *results = ist_ep_results(coop, dev);
    if ((outcome & (IST_WIRE_ABORTED | IST_EP_FOREIGN)) == 0) {
        outcome |= ist_ep_look(coop, op);
        ist_ep_settle(coop, op, results);
        uint8_t *marks = ist_wire_marks(ist_wire_scratch_of(coop, dev), dev);
        const uint64_t *intact = ist_ep_intact_of(coop, dev);
        ist_wire_active(coop, dev, marks);
        IST_EACH_LANE (coop, peer, dev->rank_count) {
            marks[peer] = (uint8_t)(marks[peer] && ist_ep_is_in(intact, peer));
        }
        ist_ep_raise(coop, op, IST_EP_ACK, 0, 1, dev->rank_count, marks);
        ist_point(coop, "ep.combine.answered");
        outcome = ist_ep_await_answers(coop, op, outcome, results);
        if (outcome != IST_WIRE_DONE) { /* else everybody has answered: nobody gave this rank up */
            outcome |= ist_wire_noticed(coop, &op->wire, NULL) ? IST_WIRE_EVICTED : 0u;
        }
        ist_point(coop, "ep.combine.read");
    }
    ist_ep_write_record(coop, op, outcome);
}

/** Phases 1 to 3. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_combine_send(ist_coop *coop, const ist_ep_op_view *op,
                                           const ist_ep_plan *plan)
{
    ist_point(coop, "ep.combine.begin");
    ist_ep_combine_stage(coop, op, plan);
    if (ist_ep_meet_staged(coop, op) != IST_WAIT_DONE) {
        return IST_WIRE_ABORTED;
    }
    ist_point(coop, "ep.combine.staged");
    ist_ep_combine_send_all(coop, op);
    ist_point(coop, "ep.combine.sent");
    return IST_WIRE_DONE;
}

/** Phases 4 and 5. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_combine_receive(ist_coop *coop, const ist_ep_combine_args *args,
                                              const ist_ep_op_view *op, const ist_ep_plan *plan)
{
    if (op->block == 0) {
        ist_ep_combine_decide(coop, op, plan);
        ist_point(coop, "ep.combine.decided");
    }
    uint32_t outcome = ist_ep_learn(coop, op);
    if ((outcome & IST_WIRE_ABORTED) == 0) {
        ist_ep_sum(coop, args, op, plan);
        ist_point(coop, "ep.combine.summed");
    }
    return outcome;
}

IST_KERNEL(ep_combine, ist_ep_combine_args)
{
    ist_ep_op_view op;
    ist_ep_enter(coop, &args->op, &op);
    ist_ep_plan plan = ist_ep_plan_of(&args->op);
    uint32_t outcome = ist_ep_handle_valid(&args->op) ? IST_WIRE_DONE : IST_EP_FOREIGN;
    if (outcome == IST_WIRE_DONE && (args->op.halves & IST_EP_SEND)) {
        outcome = ist_ep_combine_send(coop, &op, &plan);
    }
    if (outcome == IST_WIRE_DONE && (args->op.halves & IST_EP_RECEIVE)) {
        outcome = ist_ep_combine_receive(coop, args, &op, &plan);
    }
    if (ist_ep_is_last(coop, &op)) {
        if (args->op.halves & IST_EP_RECEIVE) {
            ist_ep_combine_conclude(coop, &op, outcome);
        }
        ist_ep_advance(coop, &op, outcome);
    }
}
