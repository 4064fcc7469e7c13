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
 *   4 decide   who takes part: the ranks that answered this rank's dispatch and are ready now; one
 *              answer for all blocks, see ep_decide.h. What the handle says of a block's first
 *              tokens is looked up before the wait
 *   5 sum      each block takes its share of the tokens, or of parts of their rows where there are
 *              more blocks than tokens: the rows of a token in the order of k, one fused chain in
 *              f32, one rounding
 * Last block:
 *   6 answer   "I have read yours": the flag, to each rank that took part
 *   7 await    looks for notices; the answers of all homes; concludes
 *
 * Orderings: those of the dispatch. Rows are summed where they lie: in the expert rank's window or
 * staging, or in this rank's inbox. Stamps of the inbox are compared before the verdict and again
 * after the sum; a token whose rows broke in between is summed again without them.
 */
#include "ep_conclude.h"

#define IST_EP_TOKENS 16u   /* tokens summed between two syncs */
#define IST_EP_PUT_ROWS 16u /* received rows whose entries are put between two syncs */

/* With fewer tokens than blocks, blocks share a token: each sums a part of its row. */
#define IST_EP_PART_BITS_MAX 3u
#define IST_EP_PART_BYTES_MIN 1024u

/** Tables of the handle; constant during this kernel. */
typedef struct ist_ep_plan {
    const int32_t *idx;
    const int32_t *owner;
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
    plan.owner = (const int32_t *)(const void *)(handle + args->in.owner);
    plan.key = (const int32_t *)(const void *)(handle + args->in.key);
    plan.ordinal = (const uint32_t *)(const void *)(handle + args->in.ordinal);
    plan.row = (const uint32_t *)(const void *)(handle + args->in.row);
    plan.within = (const uint32_t *)(const void *)(handle + args->in.expert_within);
    plan.received = (const uint32_t *)(const void *)(handle + args->in.received);
    plan.received_from = (const uint64_t *)(const void *)(handle + args->in.received_from);
    plan.acked = (const uint64_t *)(const void *)(handle + args->in.acked);
    return plan;
}

/** What this rank received from a source: slot bases follow at (head + 1). */
IST_DEVICE_FN const ist_ep_head *ist_ep_given(const ist_ep_op_args *args, uint32_t source)
{
    return (const ist_ep_head *)(const void *)(args->handle + args->in.received_meta +
                                               source * args->at.meta_bytes);
}

/** What a rank of experts said of this home's rows, where block 0 has decided apart. */
IST_DEVICE_FN const ist_ep_head *ist_ep_owed_meta(const ist_ep_op_args *args, uint32_t peer)
{
    return (const ist_ep_head *)(const void *)(args->handle + args->in.owed_meta +
                                               peer * args->at.meta_bytes);
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
    run.packed = head->start;
    run.count = ends[expert] - bases[expert];
    IST_ROLLED
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
    run.packed = ist_ep_given(args, home)->start;
    run.count = plan->received[home + 1u] - plan->received[home];
    return run;
}

/** Phase 1 for the team: this block's parts of the runs. Collective. */
IST_DEVICE_FN void ist_ep_pack(ist_coop *coop, const ist_ep_op_view *op, const ist_ep_plan *plan)
{
    const ist_ep_op_args *args = op->args;
    const ist_dev_comm *dev = op->dev;
    int by_expert = args->layout == IST_EP_EXPERT_MAJOR;
    uint32_t local = by_expert
                         ? ist_ep_expert_local_count(args->geometry.expert_count,
                                                     ist_dev_rank_count(dev), ist_dev_rank(dev))
                         : 1u;
    uint32_t runs = dev->lsa_size * local;
    uint32_t parts = runs < op->blocks && runs != 0 ? op->blocks / runs : 1u;
    IST_ROLLED
    for (uint32_t i = op->block; i < runs * parts; i += op->blocks) {
        uint32_t home = ist_dev_rank(dev) - dev->lsa_rank + i / parts / local;
        if (home == ist_dev_rank(dev) || !ist_ep_is_in(plan->received_from, home)) {
            continue;
        }
        ist_ep_run run = by_expert ? ist_ep_run_by_expert(args, home, i / parts % local)
                                   : ist_ep_run_by_rank(args, plan, home);
        uint64_t begin = (uint64_t)run.count * (i % parts) / parts;
        uint64_t end = (uint64_t)run.count * (i % parts + 1u) / parts;
        if (begin < end) {
            uint64_t to = op->base + args->at.stage_packed + (run.packed + begin) * args->row_bytes;
            ist_row_copy(coop, ist_ep_at(op, to), args->rows + (run.from + begin) * args->row_bytes,
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
    IST_ROLLED
    for (uint32_t lower = 0; lower < k; ++lower) {
        if (desc[1u + lower] != IST_EP_ELSEWHERE) {
            return NULL;
        }
    }
    uint64_t place = (uint64_t)owed->home * args->geometry.tokens_max + row;
    return args->rows + place * args->row_bytes;
}

/** Finds and numbers the entries of a batch; ends with the sync of the scan. @return how many.
 *  Collective. */
IST_DEVICE_FN uint32_t ist_ep_find_owed(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_owed *owed)
{
    const ist_ep_op_args *args = op->args;
    uint32_t local = ist_ep_count_of(&args->geometry, op->rank);
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
    return ist_coop_scan(coop, owed->numbers, owed->count * args->topk);
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
    IST_ROLLED
    for (uint32_t i = 0; i < owed->count * args->topk; ++i) {
        if (owed->entries[i].from != NULL) {
            uint64_t to = owed->message + owed->numbers[i] * step + sizeof(ist_ep_stamp);
            ist_row_copy(coop, ist_ep_at(op, to), owed->entries[i].from, args->row_bytes);
        }
    }
    ist_coop_sync(coop);
    ist_ep_stamp_owed(coop, op, owed, op->tag);
    IST_ROLLED
    for (uint32_t i = 0; i < owed->count * args->topk; ++i) {
        if (owed->entries[i].from != NULL) {
            ist_ep_put(coop, op, owed->home,
                       op->base + args->at.inbox_packed + owed->entries[i].place * step,
                       owed->message + owed->numbers[i] * step,
                       sizeof(ist_ep_stamp) + args->row_bytes);
        }
    }
}

/** Scratch of the sum, which is more than entries need: asked for once, as a larger slot later would lie
 *  beside the first. */
IST_DEVICE_FN uint32_t ist_ep_sums_bytes(uint32_t topk)
{
    return IST_EP_TOKENS * topk * 41u + IST_EP_TOKENS * 8u + 16u;
}

/** Phase 1 for one network peer. Collective. */
IST_DEVICE_FN void ist_ep_pay(ist_coop *coop, const ist_ep_op_view *op, const ist_ep_plan *plan,
                              uint32_t home)
{
    const ist_ep_op_args *args = op->args;
    uint32_t rows = plan->received[home + 1u] - plan->received[home];
    uint32_t entries = IST_EP_PUT_ROWS * args->topk;
    uint64_t peer = ist_ep_gin_index(&args->geometry, op->rank, home);
    ist_ep_owed owed;
    owed.home = home;
    owed.descs = args->handle + args->in.received_descs +
                 peer * args->geometry.tokens_max * args->in.desc_bytes;
    owed.bases = (const uint32_t *)(ist_ep_given(args, home) + 1);
    owed.entries = (ist_ep_entries *)ist_coop_scratch(coop, IST_EP_SCRATCH_ROWS,
                                                      ist_ep_sums_bytes(args->topk));
    owed.numbers = (uint32_t *)(owed.entries + entries);
    owed.message = op->base + args->at.stage_put_packed +
                   ist_ep_given(args, home)->start * args->at.message_bytes;
    for (owed.first = 0; owed.first < rows; owed.first += IST_EP_PUT_ROWS) {
        owed.count = rows - owed.first < IST_EP_PUT_ROWS ? rows - owed.first : IST_EP_PUT_ROWS;
        uint32_t found = ist_ep_find_owed(coop, op, &owed);
        ist_ep_put_owed(coop, op, &owed);
        owed.message += found * args->at.message_bytes;
        ist_coop_sync(coop); /* the next batch lies in the same scratch */
    }
}

/** Phase 1. Collective. */
IST_DEVICE_FN void ist_ep_combine_stage(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_plan *plan)
{
    const ist_dev_comm *dev = op->dev;
    uint32_t count = 0;
    if (!op->few && op->args->rows_window == 0 && op->args->geometry.lsa_size > 1u) {
        ist_ep_pack(coop, op, plan);
    }
    if (!op->network) {
        return;
    }
    uint8_t *marks = ist_wire_marks_of(coop, op->room);
    IST_ROLLED
    for (uint32_t first = op->block; first < op->ranks; first += count * op->blocks) {
        count = ist_ep_served(op, first);
        ist_coop_sync(coop);
        IST_EACH_LANE (coop, i, count) {
            marks[i] = ist_ep_sends_to(coop, op, first + i * op->blocks);
        }
        ist_coop_sync(coop);
        IST_ROLLED
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t home = first + i * op->blocks;
            if (marks[i] && !ist_dev_is_lsa(dev, home) && ist_ep_is_in(plan->received_from, home)) {
                ist_ep_pay(coop, op, plan, home);
            }
        }
    }
}

/** What one home is told: where its rows lie, and in which slots. Lane. */
IST_DEVICE_FN void ist_ep_fill_owed(ist_coop *coop, const ist_ep_op_view *op, uint32_t home,
                                    ist_ep_parcel *parcel)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_head *given = ist_ep_given(args, home);
    uint64_t there = ist_ep_mine(op, args->at.meta, args->at.meta_bytes);
    ist_row_part *part = parcel->parts;
    ist_ep_fill_head(op, args->at.stage_packed, 0, &parcel->head);
    parcel->head.start = given->start;
    part[0].src = &parcel->head;
    part[0].dst = ist_ep_in_team(op, home) ? ist_ep_at_peer(coop, op, there, home) : NULL;
    part[0].bytes = sizeof(ist_ep_head);
    part[1].src = given + 1;
    part[1].dst = (uint8_t *)part[0].dst + sizeof(ist_ep_head);
    part[1].bytes = op->layout == IST_EP_EXPERT_MAJOR ? args->at.meta_bytes - part[0].bytes : 0;
}

/** Phase 3 for a network peer. Collective. */
IST_DEVICE_FN void ist_ep_send_owed(ist_coop *coop, const ist_ep_op_view *op, uint32_t home,
                                    const ist_ep_parcel *parcel)
{
    const ist_ep_layout_map *at = &op->args->at;
    const ist_row_part *part = parcel->parts;
    uint64_t out = ist_ep_gin_part(op, at->out_meta, at->meta_bytes, home);
    ist_row_copy(coop, ist_ep_at(op, out), part[0].src, part[0].bytes);
    if (part[1].bytes != 0) {
        ist_row_copy(coop, ist_ep_at(op, out + part[0].bytes), part[1].src, part[1].bytes);
    }
    ist_ep_put(coop, op, home, ist_ep_mine(op, at->meta, at->meta_bytes), out,
               part[0].bytes + part[1].bytes);
}

/** Phase 3. Collective. */
IST_DEVICE_FN void ist_ep_combine_send_all(ist_coop *coop, const ist_ep_op_view *op)
{
    uint8_t *marks = ist_wire_marks_of(coop, op->room);
    ist_ep_parcel *parcels = ist_ep_parcels_of(coop);
    uint32_t count = 0;
    IST_ROLLED
    for (uint32_t first = op->block; first < op->ranks; first += count * op->blocks) {
        if (!op->few && count != 0) {
            ist_coop_sync(coop); /* lanes still look at the marks and heads of the last turn */
        }
        count = ist_ep_served(op, first);
        IST_EACH_LANE (coop, i, count) {
            uint32_t home = first + i * op->blocks;
            marks[i] = ist_ep_sends_to(coop, op, home);
            ist_ep_fill_owed(coop, op, home, &parcels[i]);
        }
        ist_coop_sync(coop);
        IST_ROLLED
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t home = first + i * op->blocks;
            if (marks[i] && ist_ep_in_team(op, home)) {
                ist_row_copy_list(coop, parcels[i].parts, 2);
            } else if (marks[i] && op->network) {
                ist_ep_send_owed(coop, op, home, &parcels[i]);
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

/** Rank that owes a row for an entry, at least R when the entry has none of its own. Lane. */
IST_DEVICE_FN uint32_t ist_ep_debtor(const ist_ep_op_view *op, const ist_ep_plan *plan,
                                     uint64_t entry)
{
    return (uint32_t)(op->layout == IST_EP_EXPERT_MAJOR ? plan->owner : plan->key)[entry];
}

/** Whether the stamp of an entry in the inbox is right. Lane. */
IST_DEVICE_FN int ist_ep_entry_came(ist_coop *coop, const ist_ep_op_view *op, uint64_t entry)
{
    uint32_t topk = op->args->topk;
    return ist_ep_stamp_is(coop, op, ist_ep_inbox_entry(op, entry),
                           (entry / topk) << 32 | entry % topk);
}

/** Stamps of what network peers owe. Lane-parallel. */
IST_DEVICE_FN void ist_ep_check_entries(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_plan *plan, uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    IST_EACH_LANE (coop, entry, args->token_count * args->topk) {
        uint32_t peer = ist_ep_debtor(op, plan, entry);
        if (peer < op->ranks && !ist_dev_is_lsa(op->dev, peer) && results[peer] == IST_WAIT_DONE &&
            !ist_ep_entry_came(coop, op, entry)) {
            results[peer] = IST_EP_RESULT_BROKEN;
        }
    }
}

/** Phase 4, block 0 by itself: heads, which are kept as they are checked, and stamps. What follows,
 *  ist_ep_reject(), syncs before it reads the results. Collective. */
IST_DEVICE_FN void ist_ep_check_experts(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_plan *plan, uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    uint64_t shape = ist_ep_shape(args);
    ist_row_copy(coop, args->handle + args->in.owed_meta, ist_ep_at(op, op->base + args->at.meta),
                 op->ranks * args->at.meta_bytes);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, op->ranks) {
        const ist_ep_head *there = ist_ep_owed_meta(args, peer);
        ist_ep_head head;
        head.tag = ist_load_u64(coop, &there->tag, IST_RELAXED, IST_SCOPE_DEVICE);
        head.shape = ist_load_u64(coop, &there->shape, IST_RELAXED, IST_SCOPE_DEVICE);
        head.rows = 0;
        if (results[peer] == IST_WAIT_DONE) {
            results[peer] = ist_ep_judge_head(op, &head, shape);
        }
        if (results[peer] == IST_WAIT_DONE && !ist_ep_is_in(plan->acked, peer)) {
            results[peer] = IST_WAIT_MASKED;
        }
    }
    ist_coop_sync(coop);
    if (op->network) {
        ist_ep_check_entries(coop, op, plan, results);
    }
}

/** Phase 4, block 0 by itself. Collective. */
IST_DEVICE_RARE_FN void ist_ep_combine_decide_apart(ist_coop *coop, ist_ep_op_view op,
                                                    ist_ep_late late)
{
    uint8_t *results = ist_ep_results(coop, op.room);
    ist_ep_plan plan = ist_ep_plan_of(op.args);
    uint32_t outcome = ist_ep_begin_receive(coop, &op, &late, results);
    if ((outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0) {
        ist_ep_check_experts(coop, &op, &plan, results);
        outcome |= ist_ep_reject(coop, &op, results);
    }
    ist_ep_publish(coop, &op, results, outcome);
}

/** Phase 4. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_combine_decide(ist_coop *coop, const ist_ep_op_view *op)
{
    ist_ep_late late;
    ist_ep_decision decision;
    if (!ist_ep_try_together(coop, op, &late, &decision)) {
        if (late.alone) {
            IST_RARELY(coop, ist_ep_combine_decide_apart(coop, *op, late));
        }
        IST_RARELY(coop, decision = ist_ep_adopt(coop, *op, late.alone));
    }
    return decision;
}

/* ---- sum -------------------------------------------------------------------------------------- */

/** Where the rows of each expert rank lie; scratch. */
typedef struct ist_ep_sources {
    const uint8_t **rows; /**< [R], NULL: on the network, or not there */
    uint32_t *start; /**< [R], of the rows for this rank in its staging; else IST_EP_UNPACKED */
    uint32_t here;   /**< 1: the slot bases of all lie in scratch; 0: in the handle */
} ist_ep_sources;

#define IST_EP_UNPACKED UINT32_MAX /* more than 2048 ranks with 65535 tokens of 32 entries send */

IST_DEVICE_FN ist_ep_sources ist_ep_sources_of(ist_coop *coop, uint32_t room, uint32_t here)
{
    ist_ep_sources sources;
    sources.rows = (const uint8_t **)ist_coop_scratch(coop, IST_EP_SCRATCH_SUMS, room * 12u);
    sources.start = (uint32_t *)(void *)(sources.rows + room);
    sources.here = here;
    return sources;
}

/** Rows that lie at the offset which an expert rank has announced, at most. */
IST_DEVICE_FN uint64_t ist_ep_rows_at(const ist_ep_op_view *op, uint32_t peer, int packed)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_geometry *geometry = &args->geometry;
    if (packed) {
        return ist_ep_received_max(geometry);
    }
    return op->layout == IST_EP_RANK_MAJOR ? (uint64_t)geometry->rank_count * geometry->tokens_max
                                           : ist_ep_count_of(geometry, peer) * ist_ep_slots(args);
}

/** Where the rows of an expert rank of the team begin, as its head says, or NULL. Lane. */
IST_DEVICE_FN const uint8_t *ist_ep_source_rows(ist_coop *coop, const ist_ep_op_view *op,
                                                const ist_ep_head *head, uint32_t peer)
{
    const ist_ep_op_args *args = op->args;
    uint64_t bytes = ist_ep_rows_at(op, peer, head->window == 0) * args->row_bytes;
    if (peer == op->rank) {
        return args->rows;
    }
    if (bytes == 0 || !ist_ep_in_team(op, peer)) {
        return NULL;
    }
    const uint8_t *alike = ist_ep_rows_alike(op, head, peer);
    if (alike != NULL) {
        return alike;
    }
    const void *end = ist_window_peer(coop, op->dev, head->window, head->offset + bytes - 1u, peer);
    return end == NULL ? NULL : (const uint8_t *)end + 1 - bytes;
}

/** Notes where the rows of an expert rank lie. Lane. */
IST_DEVICE_FN void ist_ep_note_source(ist_coop *coop, const ist_ep_op_view *op,
                                      const ist_ep_sources *sources, const ist_ep_head *head,
                                      uint32_t peer)
{
    int packed = head->window == 0 && peer != op->rank;
    sources->rows[peer] = ist_ep_source_rows(coop, op, head, peer);
    sources->start[peer] = packed ? (uint32_t)head->start : IST_EP_UNPACKED;
}

/** Decided together: judges the heads in scratch, and finds where the rows begin of those that
 *  answered the dispatch; the others are MASKED. Collective. */
IST_DEVICE_FN void ist_ep_combine_survey(ist_coop *coop, const ist_ep_op_view *op,
                                         const ist_ep_plan *plan, const ist_ep_sources *sources)
{
    uint8_t *results = ist_ep_results(coop, op->room);
    uint64_t shape = ist_ep_shape(op->args);
    IST_EACH_LANE (coop, peer, op->ranks) {
        const ist_ep_head *head = ist_ep_head_here(coop, op, peer);
        if (results[peer] == IST_WAIT_DONE) {
            results[peer] = ist_ep_judge_head(op, head, shape);
        }
        if (results[peer] == IST_WAIT_DONE && !ist_ep_is_in(plan->acked, peer)) {
            results[peer] = IST_WAIT_MASKED;
        }
        ist_ep_note_source(coop, op, sources, head, peer);
    }
    ist_coop_sync(coop);
}

/** Decided apart: the same from the heads that block 0 has kept and the verdict. Collective. */
IST_DEVICE_RARE_FN void ist_ep_combine_survey_apart(ist_coop *coop, ist_ep_op_view op,
                                                    ist_ep_sources sources)
{
    const uint64_t *verdict = ist_ep_verdict_of(coop, op.room);
    uint8_t *results = ist_ep_results(coop, op.room);
    IST_EACH_LANE (coop, peer, op.ranks) {
        const ist_ep_head *there = ist_ep_owed_meta(op.args, peer);
        ist_ep_head head;
        int in = ist_ep_is_in(verdict, peer);
        head.offset = ist_load_u64(coop, &there->offset, IST_RELAXED, IST_SCOPE_DEVICE);
        head.start = ist_load_u64(coop, &there->start, IST_RELAXED, IST_SCOPE_DEVICE);
        head.window = ist_load_u32(coop, &there->window, IST_RELAXED, IST_SCOPE_DEVICE);
        results[peer] = in ? (uint8_t)IST_WAIT_DONE : (uint8_t)IST_WAIT_MASKED;
        if (in) {
            ist_ep_note_source(coop, &op, &sources, &head, peer);
        }
    }
    ist_coop_sync(coop);
}

/** An entry as the handle knows it. */
typedef struct ist_ep_owed_entry {
    uint32_t peer;   /**< who owes the row, at least R: nobody */
    uint32_t expert; /**< of the peer; RANK_MAJOR: 0 */
    uint32_t nth;    /**< of the rows for this expert, RANK_MAJOR: for this rank */
    uint32_t packed; /**< of all rows for this rank */
} ist_ep_owed_entry;

/** Lane. */
IST_DEVICE_FN ist_ep_owed_entry ist_ep_owed_entry_of(const ist_ep_op_view *op,
                                                     const ist_ep_plan *plan, uint64_t entry)
{
    const ist_ep_op_args *args = op->args;
    ist_ep_owed_entry owed = {ist_ep_debtor(op, plan, entry), 0, 0, 0};
    if (owed.peer < op->ranks && op->layout == IST_EP_RANK_MAJOR) {
        owed.nth = plan->row[entry];
        owed.packed = owed.nth;
    } else if (owed.peer < op->ranks) {
        uint32_t expert = (uint32_t)plan->idx[entry];
        owed.nth = plan->ordinal[entry];
        owed.expert = expert - ist_ep_first_of(&args->geometry, owed.peer);
        owed.packed = plan->within[expert] + owed.nth;
    }
    return owed;
}

/** Slot base of one of the peer's experts. Lane. */
IST_DEVICE_FN uint32_t ist_ep_base_of(ist_coop *coop, const ist_ep_op_view *op,
                                      const ist_ep_sources *sources, const ist_ep_owed_entry *owed)
{
    if (sources->here) {
        return ((const uint32_t *)(ist_ep_head_here(coop, op, owed->peer) + 1))[owed->expert];
    }
    const uint32_t *bases = (const uint32_t *)(ist_ep_owed_meta(op->args, owed->peer) + 1);
    return ist_load_u32(coop, bases + owed->expert, IST_RELAXED, IST_SCOPE_DEVICE);
}

/** Row of the peer's tensor or staging; UINT64_MAX: none. Lane. */
IST_DEVICE_FN uint64_t ist_ep_row_of(ist_coop *coop, const ist_ep_op_view *op,
                                     const ist_ep_sources *sources, const ist_ep_owed_entry *owed)
{
    const ist_ep_op_args *args = op->args;
    uint32_t start = sources->start[owed->peer];
    if (start != IST_EP_UNPACKED) {
        return (uint64_t)start + owed->packed;
    }
    if (op->layout == IST_EP_RANK_MAJOR) {
        return (uint64_t)op->rank * args->geometry.tokens_max + owed->nth;
    }
    uint64_t slot = (uint64_t)ist_ep_base_of(coop, op, sources, owed) + owed->nth;
    return slot < ist_ep_slots(args) ? owed->expert * ist_ep_slots(args) + slot : UINT64_MAX;
}

/** Scratch of the sum: by token and k as they are owed, then those that are there, in order. */
typedef struct ist_ep_sums {
    ist_ep_owed_entry *owed; /**< [IST_EP_TOKENS][K] */
    const void **found;      /**< [IST_EP_TOKENS][K], NULL: no row */
    const void **row;        /**< [IST_EP_TOKENS][K], those that are there */
    float *given;            /**< [IST_EP_TOKENS][K] weights */
    float *weight;           /**< [IST_EP_TOKENS][K], of `row` */
    uint32_t *count;         /**< [IST_EP_TOKENS] */
    uint32_t *lacking;       /**< [IST_EP_TOKENS] */
    uint32_t *again;         /**< not 0: something broke */
    uint8_t *bad;            /**< [IST_EP_TOKENS][K], broke while it was summed */
    uint32_t first;          /**< token */
    uint32_t stride;         /**< from token to token: the blocks take turns */
    uint32_t tokens;
    uint32_t part;       /**< of a row, that this block sums */
    uint64_t part_at;    /**< where it begins in a row */
    uint64_t part_bytes; /**< 0: this block sums nothing */
} ist_ep_sums;

/** Token t of a batch. */
IST_DEVICE_FN uint32_t ist_ep_token_of(const ist_ep_sums *sums, uint32_t t)
{
    return sums->first + t * sums->stride;
}

/** Entry of the batch's i-th. */
IST_DEVICE_FN uint64_t ist_ep_entry_of(const ist_ep_op_args *args, const ist_ep_sums *sums,
                                       uint32_t i)
{
    uint32_t t = ist_ep_over_topk(args, i);
    return (uint64_t)ist_ep_token_of(sums, t) * args->topk + (i - t * args->topk);
}

IST_DEVICE_FN ist_ep_sums ist_ep_sums_open(ist_coop *coop, const ist_ep_op_view *op)
{
    uint32_t topk = op->few ? IST_EP_FEW_TOPK : op->args->topk; /* that there is room for */
    uint32_t entries = IST_EP_TOKENS * topk;
    uint8_t *memory =
        (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_ROWS, ist_ep_sums_bytes(topk));
    ist_ep_sums sums;
    sums.owed = (ist_ep_owed_entry *)(void *)memory;
    sums.found = (const void **)(void *)(sums.owed + entries);
    sums.row = sums.found + entries;
    sums.given = (float *)(void *)(sums.row + entries);
    sums.weight = sums.given + entries;
    sums.count = (uint32_t *)(void *)(sums.weight + entries);
    sums.lacking = sums.count + IST_EP_TOKENS;
    sums.again = sums.lacking + IST_EP_TOKENS;
    sums.bad = (uint8_t *)(sums.again + 4);
    return sums;
}

/** In how many parts, as a power of two, the blocks share each row. Rows of the network are not shared:
 *  what breaks under a sum must be left out of all of the row. */
IST_DEVICE_FN uint32_t ist_ep_part_bits(const ist_ep_op_view *op)
{
    uint32_t tokens = op->args->token_count;
    uint32_t bits = 0;
    while (!op->network && bits < IST_EP_PART_BITS_MAX && tokens << (bits + 1u) <= op->blocks &&
           op->args->row_bytes >> (bits + 1u) >= IST_EP_PART_BYTES_MIN) {
        ++bits;
    }
    return bits;
}

/** The tokens of this block from `first` on that are summed together. */
IST_DEVICE_FN void ist_ep_sums_begin(const ist_ep_op_args *args, ist_ep_sums *sums, uint32_t first)
{
    sums->first = first;
    sums->tokens = 0;
    for (uint32_t token = first;
         sums->part_bytes != 0 && sums->tokens < IST_EP_TOKENS && token < args->token_count;
         token += sums->stride) {
        ++sums->tokens;
    }
}

/** This block's share of the tokens, or of parts of their rows, and the first of them. */
IST_DEVICE_FN void ist_ep_sums_share(const ist_ep_op_view *op, ist_ep_sums *sums)
{
    uint32_t bits = ist_ep_part_bits(op);
    uint64_t whole = op->args->row_bytes;
    uint64_t step = (whole >> bits) & ~(uint64_t)15u;
    uint32_t last = (1u << bits) - 1u;
    sums->stride = op->blocks >> bits;
    sums->part = op->block & last;
    sums->part_at = sums->part * step;
    sums->part_bytes = sums->part == last ? whole - sums->part_at : step;
    if (op->block >> bits >= sums->stride) {
        sums->part_bytes = 0;
    }
    ist_ep_sums_begin(op->args, sums, op->block >> bits);
}

/** Looks up what the handle and the caller say of some tokens: who owes, where it would lie, weights.
 *  Needs nothing of the peers; find and a sync must follow. Collective. */
IST_DEVICE_FN void ist_ep_look_up(ist_coop *coop, const ist_ep_combine_args *args,
                                  const ist_ep_op_view *op, const ist_ep_plan *plan,
                                  const ist_ep_sums *sums)
{
    const ist_ep_op_args *common = &args->op;
    IST_ROLLED
    for (uint32_t t = 0; args->weights != NULL && t < sums->tokens; ++t) {
        ist_row_copy(coop, sums->given + t * common->topk,
                     args->weights + (uint64_t)ist_ep_token_of(sums, t) * common->topk,
                     4u * (uint64_t)common->topk);
    }
    IST_EACH_LANE (coop, i, sums->tokens * common->topk) {
        sums->owed[i] = ist_ep_owed_entry_of(op, plan, ist_ep_entry_of(common, sums, i));
        sums->bad[i] = 0;
    }
}

/** Address of the i-th row of the batch, NULL where it does not exist. Lane. */
IST_DEVICE_FN const void *ist_ep_row_found(ist_coop *coop, const ist_ep_op_view *op,
                                           const ist_ep_sources *sources, const ist_ep_sums *sums,
                                           uint32_t i)
{
    uint32_t peer = sums->owed[i].peer;
    if (op->network && !ist_dev_is_lsa(op->dev, peer)) {
        uint64_t entry = ist_ep_entry_of(op->args, sums, i);
        return ist_ep_at(op, ist_ep_inbox_entry(op, entry) + sizeof(ist_ep_stamp));
    }
    const uint8_t *rows = sources->rows[peer];
    uint64_t row = ist_ep_row_of(coop, op, sources, &sums->owed[i]);
    uint64_t at = row * op->args->row_bytes + sums->part_at;
    return rows == NULL || row == UINT64_MAX ? NULL : rows + at;
}

/** Finds the rows of the tokens that were looked up. Collective. */
IST_DEVICE_FN void ist_ep_find_rows(ist_coop *coop, const ist_ep_op_view *op,
                                    const ist_ep_sources *sources, const ist_ep_sums *sums)
{
    const uint8_t *results = ist_ep_results(coop, op->room);
    IST_EACH_LANE (coop, i, sums->tokens * op->args->topk) {
        uint32_t peer = sums->owed[i].peer;
        const void *row = NULL;
        if (peer < op->ranks && results[peer] == IST_WAIT_DONE && !sums->bad[i]) {
            row = ist_ep_row_found(coop, op, sources, sums, i);
            if (row == NULL) {
                ist_ep_break(coop, op, peer);
            }
        }
        sums->found[i] = row;
    }
    ist_coop_sync(coop);
}

/** Closes the gaps, in the order of k; a sync must follow. Lane-parallel. */
IST_DEVICE_FN void ist_ep_compact(ist_coop *coop, const ist_ep_op_view *op, const ist_ep_sums *sums,
                                  int weighted)
{
    uint32_t topk = op->args->topk;
    IST_EACH_LANE (coop, i, sums->tokens * topk) {
        uint32_t t = ist_ep_over_topk(op->args, i);
        uint32_t start = t * topk;
        uint32_t before = 0;
        uint32_t owed = 0;
        IST_ROLLED
        for (uint32_t j = start; j < i; ++j) {
            before += sums->found[j] != NULL;
            owed += sums->owed[j].peer < op->ranks;
        }
        uint32_t here = sums->found[i] != NULL;
        if (here) {
            sums->row[start + before] = sums->found[i];
        }
        if (here && weighted) {
            sums->weight[start + before] = sums->given[i];
        }
        if (i + 1u == start + topk) {
            sums->count[t] = before + here;
            sums->lacking[t] = owed + (sums->owed[i].peer < op->ranks) - before - here;
        }
    }
}

/** Looks at the stamps again. @return not 0: something broke under the sum. Collective. */
IST_DEVICE_FN uint32_t ist_ep_sums_broke(ist_coop *coop, const ist_ep_op_view *op,
                                         const ist_ep_sums *sums)
{
    const uint8_t *results = ist_ep_results(coop, op->room);
    if (!op->network) {
        return 0;
    }
    if (ist_coop_elect(coop)) {
        *sums->again = 0;
    }
    ist_coop_sync(coop); /* all lanes have read the rows */
    IST_EACH_LANE (coop, i, sums->tokens * op->args->topk) {
        uint64_t entry = ist_ep_entry_of(op->args, sums, i);
        uint32_t peer = sums->owed[i].peer;
        if (peer < op->ranks && !ist_dev_is_lsa(op->dev, peer) && !sums->bad[i] &&
            results[peer] == IST_WAIT_DONE && !ist_ep_entry_came(coop, op, entry)) {
            ist_ep_break(coop, op, peer);
            sums->bad[i] = 1;
            *sums->again = 1;
        }
    }
    ist_coop_sync(coop);
    return *sums->again;
}

/** Sums tokens that were looked up; once more without what broke. @return 0: the launch has decided
 *  otherwise, and nothing was done. Collective. */
IST_DEVICE_FN int ist_ep_sum_tokens(ist_coop *coop, const ist_ep_combine_args *args,
                                    const ist_ep_op_view *op, const ist_ep_sources *sources,
                                    const ist_ep_sums *sums, ist_ep_decision *decision)
{
    const ist_ep_op_args *common = &args->op;
    uint32_t topk = common->topk;
    uint64_t elements = sums->part_bytes / (common->dtype == IST_F32 ? 4u : 2u);
    do {
        ist_ep_find_rows(coop, op, sources, sums);
        ist_ep_compact(coop, op, sums, args->weights != NULL);
        ist_ep_note_found(coop, op, decision);
        ist_coop_sync(coop);
        if (!ist_ep_is_confirmed(coop, op, decision)) {
            return 0;
        }
        IST_ROLLED
        for (uint32_t t = 0; t < sums->tokens; ++t) {
            uint64_t to = ist_ep_token_of(sums, t) * common->row_bytes + sums->part_at;
            ist_row_reduce(coop, args->out + to, (const void *const *)(sums->row + t * topk),
                           args->weights != NULL ? sums->weight + t * topk : NULL, sums->count[t],
                           elements, (ist_dtype)common->dtype);
        }
    } while (ist_ep_sums_broke(coop, op, sums));
    int counts = args->lost_counts != NULL && sums->part == 0;
    IST_EACH_LANE (coop, t, counts ? sums->tokens : 0u) {
        ist_store_u32(coop, (uint32_t *)&args->lost_counts[ist_ep_token_of(sums, t)],
                      sums->lacking[t], IST_RELAXED, IST_SCOPE_DEVICE);
    }
    return 1;
}

/** Phase 5: this block's share of the tokens, the first of which were looked up. @return as
 *  ist_ep_sum_tokens(). Collective. */
IST_DEVICE_FN int ist_ep_sum_share(ist_coop *coop, const ist_ep_combine_args *args,
                                   const ist_ep_op_view *op, const ist_ep_plan *plan,
                                   ist_ep_sums sums, ist_ep_decision *decision)
{
    ist_ep_sources sources = ist_ep_sources_of(coop, op->room, decision->here);
    if (decision->here) {
        ist_ep_combine_survey(coop, op, plan, &sources);
    } else {
        IST_RARELY(coop, ist_ep_combine_survey_apart(coop, *op, sources));
    }
    while (sums.tokens != 0) {
        if (!ist_ep_sum_tokens(coop, args, op, &sources, &sums, decision)) {
            return 0;
        }
        ist_ep_sums_begin(&args->op, &sums, sums.first + sums.tokens * sums.stride);
        if (sums.tokens != 0) { /* what it overwrites was last read before a sync of the sum */
            ist_ep_look_up(coop, args, op, plan, &sums);
        }
    }
    return ist_ep_confirm(coop, op, decision);
}

/** Phase 5. Collective. */
IST_DEVICE_FN void ist_ep_sum(ist_coop *coop, const ist_ep_combine_args *args,
                              const ist_ep_op_view *op, const ist_ep_plan *plan,
                              const ist_ep_sums *sums, ist_ep_decision *decision)
{
    while ((decision->outcome & IST_WIRE_ABORTED) == 0 &&
           !ist_ep_sum_share(coop, args, op, plan, *sums, decision)) {
        IST_RARELY(coop, *decision = ist_ep_adopt(coop, *op, 0));
    }
}

/** Phase 7. Collective. */
IST_DEVICE_FN void ist_ep_combine_conclude(ist_coop *coop, const ist_ep_op_view *op,
                                           const ist_ep_decision *decision, uint32_t outcome)
{
    uint8_t *results = ist_ep_results(coop, op->room);
    if ((outcome & (IST_WIRE_ABORTED | IST_EP_FOREIGN)) == 0) {
        outcome |= ist_ep_close_books(coop, op, decision, results);
        ist_point(coop, "ep.combine.answered");
        outcome = ist_ep_finish(coop, op, outcome, results);
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

/** Phases 4 and 5. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_combine_receive(ist_coop *coop,
                                                     const ist_ep_combine_args *args,
                                                     const ist_ep_op_view *op,
                                                     const ist_ep_plan *plan)
{
    ist_ep_sums sums = ist_ep_sums_open(coop, op);
    ist_ep_sums_share(op, &sums);
    ist_ep_look_up(coop, args, op, plan, &sums); /* while the flags are on their way */
    ist_ep_decision decision = ist_ep_combine_decide(coop, op);
    if (op->block == 0) {
        ist_point(coop, "ep.combine.decided");
    }
    if ((decision.outcome & IST_WIRE_ABORTED) == 0) {
        ist_ep_sum(coop, args, op, plan, &sums, &decision);
        ist_point(coop, "ep.combine.summed");
    }
    return decision;
}

/** All phases. `text` is a constant. Collective. */
IST_DEVICE_FN void ist_ep_combine_run(ist_coop *coop, const ist_ep_combine_args *args,
                                      ist_ep_text text)
{
    ist_ep_op_view op;
    ist_ep_decision decision = {0, 0, 0, 0, 0, 0};
    ist_ep_enter(coop, &args->op, text, &op);
    ist_ep_plan plan = ist_ep_plan_of(&args->op);
    uint32_t outcome = op.valid ? IST_WIRE_DONE : IST_EP_FOREIGN;
    if (outcome == IST_WIRE_DONE && (op.halves & IST_EP_SEND)) {
        outcome = ist_ep_combine_send(coop, &op, &plan);
    }
    ist_ep_announce(coop, &op);
    ist_ep_find_alike(coop, &op);
    if (outcome == IST_WIRE_DONE && (op.halves & IST_EP_RECEIVE)) {
        decision = ist_ep_combine_receive(coop, args, &op, &plan);
        outcome = decision.outcome;
    }
    if (ist_ep_is_last(coop, &op)) {
        if (op.halves & IST_EP_RECEIVE) {
            ist_ep_combine_conclude(coop, &op, &decision, outcome);
        }
        ist_ep_advance(coop, &op, outcome);
    }
}

IST_KERNEL(ep_combine, ist_ep_combine_args)
{
    ist_ep_combine_run(coop, args, IST_EP_TEXT_ANY);
}

IST_KERNEL(ep_combine_by_expert, ist_ep_combine_args)
{
    ist_ep_combine_run(coop, args, IST_EP_TEXT_BY_EXPERT);
}

IST_KERNEL(ep_combine_by_rank, ist_ep_combine_args)
{
    ist_ep_combine_run(coop, args, IST_EP_TEXT_BY_RANK);
}
