/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch: every rank's tokens to the ranks of their experts.
 *
 * Send half:
 *   1 stage    plain rows into the window, where the team pulls them; stamped rows for the network
 *   2 meet     all blocks have staged
 *   3 send     destination d is served by block d % blocks: slot counts, descriptors (weights), the
 *              head; on the network also the rows; then the ready flag with the tag
 * Receive half:
 *   4 decide   block 0 waits for the ready flags, checks the metadata, and publishes whose rows
 *              count: one answer for all blocks, before anything is consumed
 *   5 place    every block computes the slots of its share of the rows: running sums of the counts
 *              over the sources in rank order, plus the ordinal that the sender gave the entry
 *   6 take     each row is read once, from its sender's window or this rank's inbox, and written to
 *              all its places
 * Last block:
 *   7 look     for notices; then answer: slot bases to every source, "I have read yours"; counters
 *              for the caller
 *   8 await    the answers of all destinations; the bases go into the handle for the combine
 *   9 conclude the record, the group's state
 *
 * Orderings.
 *   1-3  Rows are staged before the meeting's acq_rel, metadata is written before a coop sync; the
 *        flag is a release at system scope after both, or a strong signal after all puts to the
 *        peer. A stamp is zeroed before a row is staged and set after it, so that a put which is
 *        read late never carries half a row under a valid stamp.
 *   4    The flags are acquired by block 0 and `decided` is released after it: all blocks see what
 *        the sources released. Network puts may have been lost while their signal came, so every
 *        stamp is compared with the tag before the verdict, and again after its row was copied.
 *        They may also arrive once more at any time: heads, counts and descriptors are taken from
 *        the inbox once, by block 0, and checked and used as they were taken.
 *   6-7  Copies are done in all blocks before the last one leaves (acq_rel on `left`), so an answer
 *        means that nothing of that source is read any more.
 *   7-9  A destination that does not answer is dropped and gets a notice, fenced before this rank
 *        goes on to change its rows. The other side of it: this rank looks for notices after its
 *        last read, behind an acquire fence; without one, all that it read was still in place.
 */
#include "ep_wire.h"

#define IST_EP_ROWS 32u /* rows placed between two syncs */

/** Scratch: where rows come from and go to. void *to[IST_EP_ROWS][K], i32 idx[IST_EP_ROWS][K]. */
typedef struct ist_ep_rows {
    const void *from[IST_EP_ROWS];
    uint32_t count[IST_EP_ROWS];
    uint32_t bad[IST_EP_ROWS];
} ist_ep_rows;

/** The metadata of some sources and the sums over all before them. */
typedef struct ist_ep_cursor {
    uint8_t *records; /**< metadata of the chunk; counts turn into slot bases */
    uint32_t *run;    /**< [local] slots taken by lower ranks */
    uint32_t *rows;   /**< [R + 1] rows of lower ranks */
    uint32_t chunk;   /**< sources at a time */
    uint32_t local;   /**< experts of this rank; 0 in RANK_MAJOR, where slots are row ordinals */
} ist_ep_cursor;

/* ---- send ------------------------------------------------------------------------------------- */

/** Phase 1 for the network: this block's tokens, stamped. Collective. */
IST_DEVICE_FN void ist_ep_stage_puts(ist_coop *coop, const ist_ep_op_view *op, uint32_t begin,
                                     uint32_t end)
{
    const ist_ep_op_args *args = op->args;
    uint64_t first = op->base + args->at.stage_put;
    uint64_t step = args->at.message_bytes;
    IST_EACH_LANE (coop, i, end - begin) {
        ist_ep_stamp_write(coop, op, first + (begin + i) * step, 0, 0);
    }
    ist_coop_sync(coop);
    for (uint32_t token = begin; token < end; ++token) {
        ist_row_copy(coop, ist_ep_at(coop, op, first + token * step + sizeof(ist_ep_stamp)),
                     args->rows + token * args->row_bytes, args->row_bytes);
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, end - begin) {
        ist_ep_stamp_write(coop, op, first + (begin + i) * step, op->tag, begin + i);
    }
}

/** Phase 1. Collective. */
IST_DEVICE_FN void ist_ep_stage(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_ep_op_args *args = op->args;
    uint32_t begin = (uint32_t)((uint64_t)args->token_count * op->block / op->blocks);
    uint32_t end = (uint32_t)((uint64_t)args->token_count * (op->block + 1u) / op->blocks);
    if (begin == end) {
        return;
    }
    if (args->rows_window == 0 && op->dev->lsa_size > 1u) {
        ist_row_copy(coop, ist_ep_at(coop, op, op->base + args->at.stage + begin * args->row_bytes),
                     args->rows + begin * args->row_bytes, (end - begin) * args->row_bytes);
    }
    if (op->dev->lsa_size < op->dev->rank_count) {
        ist_ep_stage_puts(coop, op, begin, end);
    }
}

/** Weights of this block's rows into the handle, ordered as the descriptors. Collective. */
IST_DEVICE_FN void ist_ep_order_weights(ist_coop *coop, const ist_ep_dispatch_args *args,
                                        const ist_ep_op_view *op, uint32_t peer)
{
    const ist_ep_op_args *common = op->args;
    const uint32_t *offsets =
        (const uint32_t *)(const void *)(common->handle + common->in.send_offset);
    uint32_t first = offsets[peer];
    uint32_t topk = common->topk;
    uint32_t *ordered =
        (uint32_t *)(void *)(common->handle + common->in.weights) + (uint64_t)first * topk;
    const uint32_t *given = (const uint32_t *)(const void *)args->weights;
    IST_EACH_LANE (coop, i, (offsets[peer + 1u] - first) * topk) {
        uint64_t row = first + i / topk;
        const uint32_t *desc = (const uint32_t *)(const void *)(common->handle + common->in.descs +
                                                                row * common->in.desc_bytes);
        ordered[i] = ist_load_u32(coop, given + (uint64_t)desc[0] * topk + i % topk, IST_RELAXED,
                                  IST_SCOPE_DEVICE);
    }
}

/** What goes to one destination. */
typedef struct ist_ep_parcel {
    const uint8_t *counts;
    const uint8_t *descs;
    const uint8_t *weights;
    uint64_t counts_bytes;
    uint64_t descs_bytes;
    uint64_t weights_bytes; /**< 0 in EXPERT_MAJOR */
    uint32_t rows;
    uint32_t first; /**< row in the order of all destinations */
} ist_ep_parcel;

IST_DEVICE_FN ist_ep_parcel ist_ep_parcel_for(const ist_ep_op_view *op, uint32_t peer)
{
    const ist_ep_op_args *args = op->args;
    const uint32_t *offsets = (const uint32_t *)(const void *)(args->handle + args->in.send_offset);
    uint32_t experts = args->geometry.expert_count;
    uint32_t ranks = args->geometry.rank_count;
    int by_expert = args->layout == IST_EP_EXPERT_MAJOR;
    uint32_t local = ist_ep_expert_local_count(experts, ranks, peer);
    ist_ep_parcel parcel;
    parcel.first = offsets[peer];
    parcel.rows = offsets[peer + 1u] - parcel.first;
    parcel.counts = args->handle + args->in.expert_entries +
                    4u * (uint64_t)ist_ep_expert_first(experts, ranks, peer);
    parcel.counts_bytes = by_expert ? 4u * (uint64_t)local : 0;
    parcel.descs = args->handle + args->in.descs + parcel.first * args->in.desc_bytes;
    parcel.descs_bytes = parcel.rows * args->in.desc_bytes;
    parcel.weights = args->handle + args->in.weights + 4u * (uint64_t)parcel.first * args->topk;
    parcel.weights_bytes = by_expert ? 0 : 4u * (uint64_t)parcel.rows * args->topk;
    return parcel;
}

/** Phase 3 for a team member. Collective. */
IST_DEVICE_FN void ist_ep_send_lsa(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer,
                                   const ist_ep_head *head)
{
    const ist_ep_layout_map *at = &op->args->at;
    ist_ep_parcel parcel = ist_ep_parcel_for(op, peer);
    uint64_t meta = ist_ep_mine(op, at->meta, at->meta_bytes);
    uint64_t descs = ist_ep_mine(op, at->descs, at->descs_bytes) + sizeof(ist_ep_stamp);
    uint64_t weights = ist_ep_mine(op, at->weights, at->weights_bytes) + sizeof(ist_ep_stamp);
    ist_row_copy(coop, ist_window_peer(coop, op->dev, 0, meta, peer), head, sizeof(*head));
    if (parcel.counts_bytes != 0) {
        ist_row_copy(coop, ist_window_peer(coop, op->dev, 0, meta + sizeof(*head), peer),
                     parcel.counts, parcel.counts_bytes);
    }
    if (parcel.rows != 0) {
        ist_row_copy(coop, ist_window_peer(coop, op->dev, 0, descs, peer), parcel.descs,
                     parcel.descs_bytes);
    }
    if (parcel.rows != 0 && parcel.weights_bytes != 0) {
        ist_row_copy(coop, ist_window_peer(coop, op->dev, 0, weights, peer), parcel.weights,
                     parcel.weights_bytes);
    }
}

/** One stamped array into the outbox and on its way. Collective. */
IST_DEVICE_FN void ist_ep_send_part(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer,
                                    uint64_t out, uint64_t to, const void *part, uint64_t bytes)
{
    ist_row_copy(coop, ist_ep_at(coop, op, out + sizeof(ist_ep_stamp)), part, bytes);
    if (ist_coop_elect(coop)) {
        ist_ep_stamp_write(coop, op, out, op->tag, 0);
    }
    ist_ep_put(coop, op, peer, to, out, sizeof(ist_ep_stamp) + bytes);
}

/** Phase 3 for a network peer. Collective. */
IST_DEVICE_FN void ist_ep_send_gin(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer,
                                   const ist_ep_head *head)
{
    const ist_ep_layout_map *at = &op->args->at;
    ist_ep_parcel parcel = ist_ep_parcel_for(op, peer);
    uint64_t meta = ist_ep_gin_part(op, at->out_meta, at->meta_bytes, peer);
    uint64_t there = op->base + at->inbox +
                     (uint64_t)ist_ep_gin_index(&op->args->geometry, peer, op->dev->rank) *
                         op->args->geometry.tokens_max * at->message_bytes;
    ist_row_copy(coop, ist_ep_at(coop, op, meta), head, sizeof(*head));
    if (parcel.counts_bytes != 0) {
        ist_row_copy(coop, ist_ep_at(coop, op, meta + sizeof(*head)), parcel.counts,
                     parcel.counts_bytes);
    }
    ist_ep_put(coop, op, peer, ist_ep_mine(op, at->meta, at->meta_bytes), meta,
               sizeof(*head) + parcel.counts_bytes);
    if (parcel.rows != 0) {
        ist_ep_send_part(coop, op, peer, ist_ep_gin_part(op, at->out_descs, at->descs_bytes, peer),
                         ist_ep_mine(op, at->descs, at->descs_bytes), parcel.descs,
                         parcel.descs_bytes);
    }
    if (parcel.rows != 0 && parcel.weights_bytes != 0) {
        ist_ep_send_part(
            coop, op, peer, ist_ep_gin_part(op, at->out_weights, at->weights_bytes, peer),
            ist_ep_mine(op, at->weights, at->weights_bytes), parcel.weights, parcel.weights_bytes);
    }
    for (uint32_t row = 0; row < parcel.rows; ++row) {
        const uint32_t *desc =
            (const uint32_t *)(const void *)(parcel.descs + row * op->args->in.desc_bytes);
        ist_ep_put(coop, op, peer, there + row * at->message_bytes,
                   op->base + at->stage_put + desc[0] * at->message_bytes,
                   sizeof(ist_ep_stamp) + op->args->row_bytes);
    }
}

/** Phase 3. Collective. */
IST_DEVICE_FN void ist_ep_send_all(ist_coop *coop, const ist_ep_dispatch_args *args,
                                   const ist_ep_op_view *op)
{
    uint8_t *marks = ist_wire_marks(ist_wire_scratch_of(coop, op->dev), op->dev);
    uint32_t count = 0;
    for (uint32_t first = op->block; first < op->dev->rank_count; first += count * op->blocks) {
        count = ist_ep_served(op, first);
        ist_ep_mark_active(coop, op, first, count, marks);
        const ist_ep_head *heads = ist_ep_fill_heads(coop, op, first, count, args->op.at.stage);
        for (uint32_t i = 0; args->weights != NULL && i < count; ++i) {
            ist_ep_order_weights(coop, args, op, first + i * op->blocks);
        }
        ist_coop_sync(coop);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t peer = first + i * op->blocks;
            if (marks[i] && ist_dev_is_lsa(op->dev, peer)) {
                ist_ep_send_lsa(coop, op, peer, &heads[i]);
            } else if (marks[i]) {
                ist_ep_send_gin(coop, op, peer, &heads[i]);
            }
        }
        ist_point(coop, "ep.dispatch.written");
        ist_ep_raise(coop, op, IST_EP_READY, first, op->blocks, count, marks);
    }
}

/* ---- receive: decide -------------------------------------------------------------------------- */

/** Metadata of `count` sources into scratch or this block's work memory. Collective. */
IST_DEVICE_FN void ist_ep_fetch(ist_coop *coop, const ist_ep_op_view *op,
                                const ist_ep_cursor *cursor, const uint8_t *from, uint32_t first,
                                uint32_t count)
{
    uint64_t bytes = op->args->at.meta_bytes;
    ist_coop_sync(coop);
    ist_row_copy(coop, cursor->records, from + first * bytes, count * bytes);
    ist_coop_sync(coop);
}

/** What block 0 has kept of the metadata of all sources, by source. */
IST_DEVICE_FN uint8_t *ist_ep_kept_meta(const ist_ep_op_view *op)
{
    return op->args->handle + op->args->in.received_meta;
}

/** What block 0 has kept of the descriptors of a network source, by row. */
IST_DEVICE_FN uint8_t *ist_ep_kept_descs(const ist_ep_op_view *op, uint32_t source)
{
    const ist_ep_op_args *args = op->args;
    uint64_t peer = ist_ep_gin_index(&args->geometry, op->dev->rank, source);
    return args->handle + args->in.received_descs +
           peer * args->geometry.tokens_max * args->in.desc_bytes;
}

IST_DEVICE_FN ist_ep_head *ist_ep_record_of(const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                            uint32_t i)
{
    return (ist_ep_head *)(void *)(cursor->records + i * op->args->at.meta_bytes);
}

/** Memory for walking over the sources. Collective. */
IST_DEVICE_FN ist_ep_cursor ist_ep_cursor_open(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_geometry *geometry = &args->geometry;
    uint32_t bytes = 4u * (IST_EP_LOCAL_SCRATCH + geometry->rank_count + 1u);
    uint32_t *sums = (uint32_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_SUMS, bytes);
    ist_ep_cursor cursor;
    cursor.local =
        args->layout == IST_EP_EXPERT_MAJOR
            ? ist_ep_expert_local_count(geometry->expert_count, geometry->rank_count, op->dev->rank)
            : 0;
    cursor.rows = sums + IST_EP_LOCAL_SCRATCH;
    cursor.run = sums;
    cursor.records = (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
    cursor.chunk = IST_EP_CHUNK_BYTES / (uint32_t)args->at.meta_bytes;
    if (args->at.work_bytes != 0) {
        cursor.records = ist_ep_at(coop, op, args->at.work + op->block * args->at.work_bytes);
        cursor.run = (uint32_t *)(void *)(cursor.records + args->at.meta_bytes);
        cursor.chunk = 1;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, expert, cursor.local) {
        cursor.run[expert] = 0;
    }
    ist_coop_sync(coop);
    return cursor;
}

IST_DEVICE_FN uint32_t ist_ep_chunk_count(const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                          uint32_t first)
{
    uint32_t left = op->dev->rank_count - first;
    return left < cursor->chunk ? left : cursor->chunk;
}

/** Offset of a network source's row in this rank's inbox. */
IST_DEVICE_FN uint64_t ist_ep_inbox(const ist_ep_op_view *op, uint32_t source, uint32_t row)
{
    const ist_ep_op_args *args = op->args;
    uint64_t peer = ist_ep_gin_index(&args->geometry, op->dev->rank, source);
    return op->base + args->at.inbox +
           (peer * args->geometry.tokens_max + row) * args->at.message_bytes;
}

/** Marks network sources of which something did not come. Collective. */
IST_DEVICE_FN void ist_ep_check_stamps(ist_coop *coop, const ist_ep_op_view *op, uint32_t source,
                                       uint32_t rows, uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    uint64_t descs = op->base + args->at.descs + source * args->at.descs_bytes;
    uint64_t weights = op->base + args->at.weights + source * args->at.weights_bytes;
    uint8_t *kept = ist_ep_kept_descs(op, source);
    ist_row_copy(coop, kept, ist_ep_at(coop, op, descs + sizeof(ist_ep_stamp)),
                 rows * args->in.desc_bytes);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, row, rows) {
        const uint32_t *desc = (const uint32_t *)(const void *)(kept + row * args->in.desc_bytes);
        uint32_t token = ist_load_u32(coop, desc, IST_RELAXED, IST_SCOPE_DEVICE);
        if (!ist_ep_stamp_is(coop, op, ist_ep_inbox(op, source, row), token)) {
            results[source] = IST_EP_RESULT_BROKEN;
        }
    }
    if (rows != 0 && ist_coop_elect(coop)) {
        int whole = ist_ep_stamp_is(coop, op, descs, 0) &&
                    (args->layout == IST_EP_EXPERT_MAJOR || ist_ep_stamp_is(coop, op, weights, 0));
        if (!whole) {
            results[source] = IST_EP_RESULT_BROKEN;
        }
    }
}

/** Phase 4: compares what came with what must have come; rows by source. Collective. */
IST_DEVICE_FN void ist_ep_check_sources(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_cursor *cursor, uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    uint32_t count = 0;
    for (uint32_t first = 0; first < op->dev->rank_count; first += count) {
        count = ist_ep_chunk_count(op, cursor, first);
        ist_ep_fetch(coop, op, cursor, ist_ep_at(coop, op, op->base + args->at.meta), first, count);
        ist_row_copy(coop, ist_ep_kept_meta(op) + first * args->at.meta_bytes, cursor->records,
                     count * args->at.meta_bytes);
        IST_EACH_LANE (coop, i, count) {
            const ist_ep_head *head = ist_ep_record_of(op, cursor, i);
            uint32_t source = first + i;
            if (results[source] == IST_WAIT_DONE) {
                int here = head->tag == op->tag && head->rows <= args->geometry.tokens_max;
                int same = head->shape == ist_ep_shape(args);
                results[source] =
                    !here ? IST_EP_RESULT_BROKEN : (same ? IST_WAIT_DONE : IST_EP_RESULT_SHAPE);
            }
            cursor->rows[source] = results[source] == IST_WAIT_DONE ? head->rows : 0;
        }
    }
    ist_coop_sync(coop);
    for (uint32_t peer = 0; op->dev->lsa_size < op->dev->rank_count && peer < op->dev->rank_count;
         ++peer) {
        if (!ist_dev_is_lsa(op->dev, peer) && cursor->rows[peer] != 0) {
            ist_ep_check_stamps(coop, op, peer, cursor->rows[peer], results);
        }
    }
    ist_coop_sync(coop);
}

/** Rows of lower ranks, by source, into the handle. Collective. */
IST_DEVICE_FN void ist_ep_sum_rows(ist_coop *coop, const ist_ep_op_view *op,
                                   const ist_ep_cursor *cursor, const uint8_t *results, int none)
{
    uint32_t ranks = op->dev->rank_count;
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, peer, ranks) {
        if (none || results[peer] != IST_WAIT_DONE) {
            cursor->rows[peer] = 0;
        }
    }
    ist_coop_sync(coop);
    uint32_t total = ist_coop_scan(coop, cursor->rows, ranks);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        cursor->rows[ranks] = total;
    }
    ist_coop_sync(coop);
    ist_row_copy(coop, op->args->handle + op->args->in.received, cursor->rows, 4u * (ranks + 1u));
}

/** Phase 4, block 0. Collective. */
IST_DEVICE_FN void ist_ep_decide(ist_coop *coop, const ist_ep_op_view *op)
{
    uint8_t *results = ist_ep_results(coop, op->dev);
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, op);
    uint32_t outcome = ist_ep_begin_receive(coop, op, results);
    int none = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) != 0;
    if (!none) {
        ist_ep_check_sources(coop, op, &cursor, results);
        ist_ep_reject(coop, op, results);
    }
    ist_ep_sum_rows(coop, op, &cursor, results, none);
    ist_ep_publish(coop, op, results, outcome);
}

/* ---- receive: place and take ------------------------------------------------------------------ */

/** Phase 5: the chunk's counts become slot bases, and the sums move on. Collective. */
IST_DEVICE_FN void ist_ep_bases(ist_coop *coop, const ist_ep_op_view *op,
                                const ist_ep_cursor *cursor, uint32_t first, uint32_t count)
{
    const uint64_t *verdict = ist_ep_verdict_of(coop, op->dev);
    ist_ep_fetch(coop, op, cursor, ist_ep_kept_meta(op), first, count);
    IST_EACH_LANE (coop, expert, cursor->local) {
        uint32_t run = cursor->run[expert];
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t *counts = (uint32_t *)(ist_ep_record_of(op, cursor, i) + 1);
            uint32_t entries = ist_ep_is_in(verdict, first + i) ? counts[expert] : 0;
            counts[expert] = run;
            run += entries;
        }
        cursor->run[expert] = run;
    }
    ist_coop_sync(coop);
}

/** Address of a row at its source, NULL where it does not exist. Lane. */
IST_DEVICE_FN const void *ist_ep_row_from(ist_coop *coop, const ist_ep_op_view *op,
                                          const ist_ep_head *head, uint32_t source, uint32_t row,
                                          uint32_t token)
{
    const ist_ep_op_args *args = op->args;
    uint64_t bytes = (uint64_t)token * args->row_bytes;
    if (source == op->dev->rank) {
        return args->rows + bytes;
    }
    if (!ist_dev_is_lsa(op->dev, source)) {
        return ist_ep_at(coop, op, ist_ep_inbox(op, source, row) + sizeof(ist_ep_stamp));
    }
    return token < args->geometry.tokens_max
               ? ist_window_peer(coop, op->dev, head->window, head->offset + bytes, source)
               : NULL;
}

/** What the lanes of ist_ep_place() work on. */
typedef struct ist_ep_batch {
    const ist_ep_head *head; /**< of the source; slot bases follow */
    uint8_t *descs;          /**< scratch */
    ist_ep_rows *rows;       /**< scratch */
    uint32_t source;
    uint32_t first; /**< row of the source */
    uint32_t count;
} ist_ep_batch;

IST_DEVICE_FN void **ist_ep_targets(const ist_ep_batch *batch, uint32_t topk, uint32_t i)
{
    return (void **)(batch->rows + 1) + (uint64_t)i * topk;
}

/** Ids of the batch's rows, in scratch behind the targets. */
IST_DEVICE_FN int32_t *ist_ep_batch_idx(const ist_ep_batch *batch, uint32_t topk)
{
    return (int32_t *)(void *)ist_ep_targets(batch, topk, IST_EP_ROWS);
}

/** EXPERT_MAJOR: places of one row. @return how many. Lane. */
IST_DEVICE_FN uint32_t ist_ep_place_by_expert(const ist_ep_dispatch_args *args,
                                              const ist_ep_batch *batch, const uint32_t *desc,
                                              uint32_t local, void **to)
{
    const ist_ep_op_args *op = &args->op;
    const uint32_t *bases = (const uint32_t *)(batch->head + 1);
    uint64_t slots = (uint64_t)op->geometry.rank_count * op->geometry.tokens_max;
    uint32_t count = 0;
    for (uint32_t k = 0; k < op->topk; ++k) {
        uint32_t expert = desc[1u + k] >> 16;
        uint32_t ordinal = desc[1u + k] & 0xffffu;
        if (desc[1u + k] != IST_EP_ELSEWHERE && expert < local && bases[expert] + ordinal < slots) {
            uint64_t row = expert * slots + bases[expert] + ordinal;
            to[count++] = args->out + row * op->row_bytes;
        }
    }
    return count;
}

/** RANK_MAJOR: the place of one row and its ids. @return 1. Lane. */
IST_DEVICE_FN uint32_t ist_ep_place_by_rank(const ist_ep_dispatch_args *args,
                                            const ist_ep_op_view *op, const ist_ep_batch *batch,
                                            const uint32_t *desc, uint32_t i, void **to)
{
    const ist_ep_op_args *common = &args->op;
    int32_t *idx = ist_ep_batch_idx(batch, common->topk) + (uint64_t)i * common->topk;
    uint64_t row = (uint64_t)batch->source * common->geometry.tokens_max + batch->first + i;
    uint32_t shift = args->id_kind == IST_EP_ID_GLOBAL
                         ? ist_ep_expert_first(common->geometry.expert_count,
                                               common->geometry.rank_count, op->dev->rank)
                         : 0;
    for (uint32_t k = 0; k < common->topk; ++k) {
        idx[k] = desc[1u + k] == IST_EP_ELSEWHERE ? -1 : (int32_t)((desc[1u + k] >> 16) + shift);
    }
    to[0] = args->out + row * common->row_bytes;
    return 1;
}

/** Computes sources and places of a batch. Collective. */
IST_DEVICE_FN void ist_ep_place(ist_coop *coop, const ist_ep_dispatch_args *args,
                                const ist_ep_op_view *op, const ist_ep_batch *batch, uint32_t local)
{
    uint32_t topk = args->op.topk;
    IST_EACH_LANE (coop, i, batch->count) {
        const uint32_t *desc =
            (const uint32_t *)(const void *)(batch->descs + i * args->op.in.desc_bytes);
        void **to = ist_ep_targets(batch, topk, i);
        const void *from =
            ist_ep_row_from(coop, op, batch->head, batch->source, batch->first + i, desc[0]);
        uint32_t count = args->op.layout == IST_EP_EXPERT_MAJOR
                             ? ist_ep_place_by_expert(args, batch, desc, local, to)
                             : ist_ep_place_by_rank(args, op, batch, desc, i, to);
        batch->rows->from[i] = from;
        batch->rows->count[i] = count;
        batch->rows->bad[i] = from == NULL;
        if (from == NULL) {
            ist_ep_break(coop, op, batch->source);
        }
    }
    ist_coop_sync(coop);
}

/** Network rows and weights once more: whose stamp changed under the copy is bad. Collective. */
IST_DEVICE_FN void ist_ep_recheck(ist_coop *coop, const ist_ep_dispatch_args *args,
                                  const ist_ep_op_view *op, const ist_ep_batch *batch)
{
    uint64_t weights = op->base + args->op.at.weights + batch->source * args->op.at.weights_bytes;
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, batch->count) {
        const uint32_t *desc =
            (const uint32_t *)(const void *)(batch->descs + i * args->op.in.desc_bytes);
        uint64_t message = ist_ep_inbox(op, batch->source, batch->first + i);
        batch->rows->bad[i] =
            !ist_ep_stamp_is(coop, op, message, desc[0]) ||
            (args->op.layout == IST_EP_RANK_MAJOR && !ist_ep_stamp_is(coop, op, weights, 0));
        if (batch->rows->bad[i]) {
            ist_ep_break(coop, op, batch->source);
        }
    }
    ist_coop_sync(coop);
}

/** Rows that are not there are zeros, and so are their weights. Collective. */
IST_DEVICE_FN void ist_ep_zero_bad(ist_coop *coop, const ist_ep_dispatch_args *args,
                                   const ist_ep_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; ++i) {
        void *const *to = ist_ep_targets(batch, args->op.topk, i);
        for (uint32_t n = 0; batch->rows->bad[i] && n < batch->rows->count[i]; ++n) {
            ist_row_fill(coop, to[n], 0, args->op.row_bytes);
        }
        if (batch->rows->bad[i] && args->op.layout == IST_EP_RANK_MAJOR) {
            uint64_t row =
                (uint64_t)batch->source * args->op.geometry.tokens_max + batch->first + i;
            ist_row_fill(coop, args->out_weights + row * args->op.topk, 0,
                         4u * (uint64_t)args->op.topk);
        }
    }
}

/** RANK_MAJOR: ids and weights of the batch for the caller. Collective. */
IST_DEVICE_FN void ist_ep_deliver_entries(ist_coop *coop, const ist_ep_dispatch_args *args,
                                          const ist_ep_op_view *op, const ist_ep_batch *batch)
{
    const ist_ep_op_args *common = &args->op;
    uint64_t bytes = 4u * (uint64_t)common->topk;
    uint64_t row = (uint64_t)batch->source * common->geometry.tokens_max + batch->first;
    uint64_t weights = op->base + common->at.weights + batch->source * common->at.weights_bytes +
                       sizeof(ist_ep_stamp) + batch->first * bytes;
    ist_row_copy(coop, args->out_idx + row * common->topk, ist_ep_batch_idx(batch, common->topk),
                 batch->count * bytes);
    ist_row_copy(coop, args->out_weights + row * common->topk, ist_ep_at(coop, op, weights),
                 batch->count * bytes);
}

/** Phase 6 for some rows of a source. Collective. */
IST_DEVICE_FN void ist_ep_take_batch(ist_coop *coop, const ist_ep_dispatch_args *args,
                                     const ist_ep_op_view *op, const ist_ep_batch *batch,
                                     uint32_t local)
{
    const ist_ep_op_args *common = &args->op;
    uint64_t descs =
        op->base + common->at.descs + batch->source * common->at.descs_bytes + sizeof(ist_ep_stamp);
    int on_network = !ist_dev_is_lsa(op->dev, batch->source);
    const uint8_t *from = on_network ? ist_ep_kept_descs(op, batch->source)
                                     : (const uint8_t *)ist_ep_at(coop, op, descs);
    ist_coop_sync(coop);
    ist_row_copy(coop, batch->descs, from + batch->first * common->in.desc_bytes,
                 batch->count * common->in.desc_bytes);
    ist_coop_sync(coop);
    ist_ep_place(coop, args, op, batch, local);
    for (uint32_t i = 0; i < batch->count; ++i) {
        if (!batch->rows->bad[i] && batch->rows->count[i] != 0) {
            ist_row_copy_many(coop, ist_ep_targets(batch, common->topk, i), batch->rows->count[i],
                              batch->rows->from[i], common->row_bytes);
        }
    }
    if (common->layout == IST_EP_RANK_MAJOR) {
        ist_ep_deliver_entries(coop, args, op, batch);
    }
    if (on_network) {
        ist_ep_recheck(coop, args, op, batch);
    }
    ist_ep_zero_bad(coop, args, batch);
}

/** Phase 6 for the rows [begin, end) of a source. Collective. */
IST_DEVICE_FN void ist_ep_take_source(ist_coop *coop, const ist_ep_dispatch_args *args,
                                      const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                      const ist_ep_head *head, uint32_t source, uint32_t begin,
                                      uint32_t end)
{
    ist_ep_batch batch;
    uint32_t rows_bytes = (uint32_t)sizeof(ist_ep_rows) + IST_EP_ROWS * args->op.topk * 12u;
    batch.head = head;
    batch.source = source;
    batch.rows = (ist_ep_rows *)ist_coop_scratch(coop, IST_EP_SCRATCH_ROWS, rows_bytes);
    batch.descs = (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_DESCS,
                                              IST_EP_ROWS * (uint32_t)args->op.in.desc_bytes);
    for (batch.first = begin; batch.first < end; batch.first += IST_EP_ROWS) {
        batch.count = end - batch.first < IST_EP_ROWS ? end - batch.first : IST_EP_ROWS;
        ist_ep_take_batch(coop, args, op, &batch, cursor->local);
    }
}

/** RANK_MAJOR: -1 into the ids of all slots that stay unwritten. Collective. */
IST_DEVICE_FN void ist_ep_clear_ids(ist_coop *coop, const ist_ep_dispatch_args *args,
                                    const ist_ep_op_view *op, const uint32_t *rows)
{
    uint64_t tokens = args->op.geometry.tokens_max;
    for (uint32_t source = op->block; source < op->dev->rank_count; source += op->blocks) {
        uint64_t used = rows[source + 1u] - rows[source];
        if (used < tokens) {
            ist_row_fill(coop, args->out_idx + (source * tokens + used) * args->op.topk, 0xff,
                         (tokens - used) * args->op.topk * 4u);
        }
    }
}

/** Phases 5 and 6: this block's share of all rows. Collective. */
IST_DEVICE_FN void ist_ep_take(ist_coop *coop, const ist_ep_dispatch_args *args,
                               const ist_ep_op_view *op)
{
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, op);
    uint32_t ranks = op->dev->rank_count;
    ist_row_copy(coop, cursor.rows, args->op.handle + args->op.in.received, 4u * (ranks + 1u));
    ist_coop_sync(coop);
    uint32_t total = cursor.rows[ranks];
    uint32_t begin = (uint32_t)((uint64_t)total * op->block / op->blocks);
    uint32_t end = (uint32_t)((uint64_t)total * (op->block + 1u) / op->blocks);
    uint32_t count = 0;
    for (uint32_t first = 0; first < ranks && cursor.rows[first] < end; first += count) {
        count = ist_ep_chunk_count(op, &cursor, first);
        ist_ep_bases(coop, op, &cursor, first, count);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t low = cursor.rows[first + i];
            uint32_t high = cursor.rows[first + i + 1u];
            uint32_t from = begin > low ? begin : low;
            uint32_t to = end < high ? end : high;
            if (from < to) {
                ist_ep_take_source(coop, args, op, &cursor, ist_ep_record_of(op, &cursor, i),
                                   first + i, from - low, to - low);
            }
        }
    }
    if (args->op.layout == IST_EP_RANK_MAJOR) {
        ist_ep_clear_ids(coop, args, op, cursor.rows);
    }
}

/* ---- last block ------------------------------------------------------------------------------- */

/** Phase 7: the answers of a chunk, made of its records in place. Collective. */
IST_DEVICE_FN void ist_ep_answer_chunk(ist_coop *coop, const ist_ep_op_view *op,
                                       const ist_ep_cursor *cursor, uint32_t first, uint32_t count,
                                       uint8_t *marks)
{
    const ist_ep_layout_map *at = &op->args->at;
    const uint64_t *intact = ist_ep_intact_of(coop, op->dev);
    uint64_t bytes = sizeof(ist_ep_ack) + 4u * (uint64_t)cursor->local;
    uint64_t there = ist_ep_mine(op, at->acks, at->ack_bytes);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, count) {
        ist_ep_head *head = ist_ep_record_of(op, cursor, i);
        const uint32_t *bases = (const uint32_t *)(head + 1);
        uint32_t entries = 0;
        for (uint32_t expert = 0; expert < cursor->local; ++expert) {
            entries += bases[expert];
        }
        head->ack_tag = op->tag;
        head->ack_start = cursor->local != 0 ? entries : cursor->rows[first + i];
        marks[i] =
            (uint8_t)(ist_ep_is_in(intact, first + i) && ist_mask_active(coop, op->dev, first + i));
    }
    ist_coop_sync(coop);
    for (uint32_t i = 0; i < count; ++i) {
        const void *answer = &ist_ep_record_of(op, cursor, i)->ack_tag;
        if (!marks[i]) {
            continue;
        }
        if (ist_dev_is_lsa(op->dev, first + i)) {
            ist_row_copy(coop, ist_window_peer(coop, op->dev, 0, there, first + i), answer, bytes);
        } else {
            uint64_t out = ist_ep_gin_part(op, at->out_acks, at->ack_bytes, first + i);
            ist_row_copy(coop, ist_ep_at(coop, op, out), answer, bytes);
            ist_ep_put(coop, op, first + i, there, out, bytes);
        }
    }
    ist_ep_raise(coop, op, IST_EP_ACK, first, 1, count, marks);
}

/** Phase 7: counters for the caller. Collective. */
IST_DEVICE_FN void ist_ep_count(ist_coop *coop, const ist_ep_dispatch_args *args,
                                const ist_ep_op_view *op, const ist_ep_cursor *cursor)
{
    ist_coop_sync(coop);
    if (args->counters != NULL && cursor->local != 0) {
        ist_row_copy(coop, args->counters, cursor->run, 4u * (uint64_t)cursor->local);
    } else if (args->counters != NULL && args->op.layout == IST_EP_RANK_MAJOR) {
        IST_EACH_LANE (coop, source, op->dev->rank_count) {
            uint32_t rows = cursor->rows[source + 1u] - cursor->rows[source];
            ist_store_u32(coop, (uint32_t *)&args->counters[source], rows, IST_RELAXED,
                          IST_SCOPE_DEVICE);
        }
    }
}

/** The record behind the last source: where the rows of one more rank would begin. Collective. */
IST_DEVICE_FN void ist_ep_keep_totals(ist_coop *coop, const ist_ep_op_view *op,
                                      const ist_ep_cursor *cursor)
{
    const ist_ep_op_args *args = op->args;
    uint8_t *record = args->handle + args->in.received_meta +
                      op->dev->rank_count * args->at.meta_bytes + sizeof(ist_ep_head);
    ist_coop_sync(coop);
    if (cursor->local != 0) {
        ist_row_copy(coop, record, cursor->run, 4u * (uint64_t)cursor->local);
    }
}

/** Phase 7. Collective. */
IST_DEVICE_FN void ist_ep_answer(ist_coop *coop, const ist_ep_dispatch_args *args,
                                 const ist_ep_op_view *op)
{
    const ist_ep_op_args *common = &args->op;
    uint32_t ranks = op->dev->rank_count;
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, op);
    uint8_t *marks = ist_wire_marks(ist_wire_scratch_of(coop, op->dev), op->dev);
    uint32_t count = 0;
    ist_row_copy(coop, cursor.rows, common->handle + common->in.received, 4u * (ranks + 1u));
    ist_coop_sync(coop);
    for (uint32_t first = 0; first < ranks; first += count) {
        count = ist_ep_chunk_count(op, &cursor, first);
        ist_ep_bases(coop, op, &cursor, first, count);
        ist_ep_answer_chunk(coop, op, &cursor, first, count, marks);
        ist_coop_sync(coop);
        ist_row_copy(coop, ist_ep_kept_meta(op) + first * common->at.meta_bytes, cursor.records,
                     count * common->at.meta_bytes);
    }
    ist_ep_keep_totals(coop, op, &cursor);
    ist_ep_count(coop, args, op, &cursor);
}

/** Phase 8: what the combine needs of this dispatch. Collective. */
IST_DEVICE_FN void ist_ep_keep(ist_coop *coop, const ist_ep_op_view *op, const uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    const uint64_t *intact = ist_ep_intact_of(coop, op->dev);
    uint64_t *acked = (uint64_t *)(void *)(args->handle + args->in.acked);
    uint64_t *from = (uint64_t *)(void *)(args->handle + args->in.received_from);
    uint8_t *acks = args->handle + args->in.acks;
    ist_coop_sync(coop);
    ist_row_copy(coop, acks, ist_ep_at(coop, op, op->base + args->at.acks),
                 op->dev->rank_count * args->at.ack_bytes);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, w, ist_ep_word_count(op->dev->rank_count)) {
        uint64_t word = 0;
        for (uint32_t i = 0; i < 64u && w * 64u + i < op->dev->rank_count; ++i) {
            uint32_t peer = w * 64u + i;
            const ist_ep_ack *ack =
                (const ist_ep_ack *)(const void *)(acks + peer * args->at.ack_bytes);
            word |= (uint64_t)(results[peer] == IST_WAIT_DONE && ack->tag == op->tag) << i;
        }
        acked[w] = word;
        from[w] = intact[w];
    }
    if (ist_coop_elect(coop)) {
        ist_ep_handle_of(args)->dispatch_tag = op->tag;
    }
    ist_coop_sync(coop);
}

/** Phases 7 to 9. Collective. */
IST_DEVICE_FN void ist_ep_dispatch_conclude(ist_coop *coop, const ist_ep_dispatch_args *args,
                                            const ist_ep_op_view *op, uint32_t outcome)
{
    uint8_t *results = ist_ep_results(coop, op->dev);
    if ((outcome & (IST_WIRE_ABORTED | IST_EP_FOREIGN)) == 0) {
        outcome |= ist_ep_look(coop, op);
        ist_ep_settle(coop, op, results);
        ist_ep_answer(coop, args, op);
        ist_point(coop, "ep.dispatch.answered");
        outcome = ist_ep_await_answers(coop, op, outcome, results);
        ist_ep_keep(coop, op, results);
        if (outcome != IST_WIRE_DONE) { /* else everybody has answered: nobody gave this rank up */
            outcome |= ist_wire_noticed(coop, &op->wire, NULL) ? IST_WIRE_EVICTED : 0u;
        }
        ist_point(coop, "ep.dispatch.read");
    }
    ist_ep_write_record(coop, op, outcome);
}

/** Phases 1 to 3. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_dispatch_send(ist_coop *coop, const ist_ep_dispatch_args *args,
                                            const ist_ep_op_view *op)
{
    ist_point(coop, "ep.dispatch.begin");
    ist_ep_stage(coop, op);
    if (ist_ep_meet_staged(coop, op) != IST_WAIT_DONE) {
        return IST_WIRE_ABORTED;
    }
    ist_point(coop, "ep.dispatch.staged");
    ist_ep_send_all(coop, args, op);
    ist_point(coop, "ep.dispatch.sent");
    return IST_WIRE_DONE;
}

/** Phases 4 to 6. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_dispatch_receive(ist_coop *coop, const ist_ep_dispatch_args *args,
                                               const ist_ep_op_view *op)
{
    if (op->block == 0) {
        ist_ep_decide(coop, op);
        ist_point(coop, "ep.dispatch.decided");
    }
    uint32_t outcome = ist_ep_learn(coop, op);
    if ((outcome & IST_WIRE_ABORTED) == 0) {
        ist_ep_take(coop, args, op);
        ist_point(coop, "ep.dispatch.taken");
    }
    return outcome;
}

IST_KERNEL(ep_dispatch, ist_ep_dispatch_args)
{
    ist_ep_op_view op;
    ist_ep_enter(coop, &args->op, &op);
    uint32_t outcome = ist_ep_handle_valid(&args->op) ? IST_WIRE_DONE : IST_EP_FOREIGN;
    if (outcome == IST_WIRE_DONE && (args->op.halves & IST_EP_SEND)) {
        outcome = ist_ep_dispatch_send(coop, args, &op);
    }
    if (outcome == IST_WIRE_DONE && (args->op.halves & IST_EP_RECEIVE)) {
        outcome = ist_ep_dispatch_receive(coop, args, &op);
    }
    if (ist_ep_is_last(coop, &op)) {
        if (args->op.halves & IST_EP_RECEIVE) {
            ist_ep_dispatch_conclude(coop, args, &op, outcome);
        }
        ist_ep_advance(coop, &op, outcome);
    }
}
