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
 *   4 decide   whose rows count: one answer for all blocks, before anything is consumed; see
 *              ep_decide.h. Block 0 alone, where it decides apart, keeps a copy of the metadata
 *   5 place    every block computes the slots of its share of the rows: running sums of the counts
 *              over the sources in rank order, plus the ordinal that the sender gave the entry
 *   6 take     each row is read once, from its sender's window or this rank's inbox, and written to
 *              all its places. The slot bases of each source go into the handle for the combine: by
 *              one block each if blocks have decided together, by the last block otherwise
 * Last block:
 *   7 answer   "I have read yours": the flag, to each source
 *   8 await    looks for notices; the answers of all destinations
 *   9 conclude the record, the group's state
 *
 * Orderings.
 *   1-3  Rows are staged before the meeting's release, metadata is written before a coop sync; the
 *        flag is a release at system scope after both, or a strong signal after all puts to the
 *        peer. A stamp is zeroed before a row is staged and set after it, so that a put which is
 *        read late never carries half a row under a valid stamp.
 *   4    All blocks see what the sources released: deciding together each acquires the flags of all
 *        that count, also when it adopts; apart, block 0 has acquired them and releases its decision,
 *        which the others acquire. Network puts may have been lost while
 *        their signal came, so every stamp is compared with the tag before the verdict, and again
 *        after its row was copied. They may also arrive once more at any time: heads, counts and
 *        descriptors are taken from the inbox once, by block 0, and checked and used as they were
 *        taken. The team's metadata stays as it is until it is answered.
 *   6-7  Copies are done in all blocks before the last one leaves (acq_rel on `left`), so the flag of
 *        an answer means that nothing of that source is read any more.
 *   8-9  A destination that does not answer is dropped and gets a notice, fenced before this rank
 *        goes on to change its rows. The other side of it: this rank looks for notices after its
 *        last read, behind an acquire fence; without one, all that it read was still in place.
 */
#include "ep_conclude.h"

#define IST_EP_ROWS 32u /* rows placed between two syncs */

/** Scratch: where rows come from and go to. void *to[IST_EP_ROWS][K], i32 idx[IST_EP_ROWS][K]. */
typedef struct ist_ep_rows {
    const void *from[IST_EP_ROWS];
    uint32_t places[IST_EP_ROWS]; /**< K, 0: the row is not there */
    uint32_t bad[IST_EP_ROWS];
    uint32_t source[IST_EP_ROWS]; /**< decided together: rank, */
    uint32_t row[IST_EP_ROWS];    /**< and row of it */
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
        ist_row_copy(coop, ist_ep_at(op, first + token * step + sizeof(ist_ep_stamp)),
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
    if (!op->stages) {
        return;
    }
    uint32_t begin = (uint32_t)((uint64_t)args->token_count * op->block / op->blocks);
    uint32_t end = (uint32_t)((uint64_t)args->token_count * (op->block + 1u) / op->blocks);
    if (begin == end) {
        return;
    }
    if (args->rows_window == 0 && args->geometry.lsa_size > 1u) {
        ist_row_copy(coop, ist_ep_at(op, op->base + args->at.stage + begin * args->row_bytes),
                     args->rows + begin * args->row_bytes, (end - begin) * args->row_bytes);
    }
    if (op->network) {
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

/** Entries for the experts of a rank. Lane. */
IST_DEVICE_FN uint32_t ist_ep_entries_for(const ist_ep_op_args *args, uint32_t peer)
{
    const uint32_t *within =
        (const uint32_t *)(const void *)(args->handle + args->in.expert_within);
    const uint32_t *entries =
        (const uint32_t *)(const void *)(args->handle + args->in.expert_entries);
    uint32_t count = ist_ep_count_of(&args->geometry, peer);
    uint32_t last = ist_ep_first_of(&args->geometry, peer) + count - 1u;
    return count != 0 ? within[last] + entries[last] : 0;
}

/** What goes to one destination. Lane. */
IST_DEVICE_FN void ist_ep_fill_parcel(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer,
                                      ist_ep_parcel *parcel)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_layout_map *at = &args->at;
    const uint32_t *offsets = (const uint32_t *)(const void *)(args->handle + args->in.send_offset);
    int by_expert = op->layout == IST_EP_EXPERT_MAJOR;
    uint32_t first = offsets[peer];
    uint32_t rows = offsets[peer + 1u] - first;
    uint8_t *there = ist_ep_in_team(op, peer) ? ist_ep_at_peer(coop, op, op->base, peer) : NULL;
    uint64_t mine = op->rank;
    ist_row_part *part = parcel->parts;
    parcel->first = first;
    ist_ep_fill_head(op, at->stage, rows, &parcel->head);
    parcel->head.entries = by_expert ? ist_ep_entries_for(args, peer) : 0;
    part[0].src = &parcel->head;
    part[0].bytes = sizeof(ist_ep_head);
    part[1].src = args->handle + args->in.expert_entries +
                  4u * (uint64_t)ist_ep_first_of(&args->geometry, peer);
    part[1].bytes = by_expert ? 4u * (uint64_t)ist_ep_count_of(&args->geometry, peer) : 0;
    part[2].src = args->handle + args->in.descs + first * args->in.desc_bytes;
    part[2].bytes = rows * args->in.desc_bytes;
    part[3].src = args->handle + args->in.weights + 4u * (uint64_t)first * args->topk;
    part[3].bytes = by_expert ? 0 : 4u * (uint64_t)rows * args->topk;
    part[0].dst = there + at->meta + mine * at->meta_bytes;
    part[1].dst = there + at->meta + mine * at->meta_bytes + sizeof(ist_ep_head);
    part[2].dst = there + at->descs + mine * at->descs_bytes + sizeof(ist_ep_stamp);
    part[3].dst = there + at->weights + mine * at->weights_bytes + sizeof(ist_ep_stamp);
}

/** One stamped array into the outbox and on its way. Collective. */
IST_DEVICE_FN void ist_ep_send_part(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer,
                                    uint64_t out, uint64_t to, const void *part, uint64_t bytes)
{
    ist_row_copy(coop, ist_ep_at(op, out + sizeof(ist_ep_stamp)), part, bytes);
    if (ist_coop_elect(coop)) {
        ist_ep_stamp_write(coop, op, out, op->tag, 0);
    }
    ist_ep_put(coop, op, peer, to, out, sizeof(ist_ep_stamp) + bytes);
}

/** Phase 3 for a network peer. Collective. */
IST_DEVICE_FN void ist_ep_send_gin(ist_coop *coop, const ist_ep_op_view *op, uint32_t peer,
                                   const ist_ep_parcel *parcel)
{
    const ist_ep_layout_map *at = &op->args->at;
    const ist_row_part *part = parcel->parts;
    uint64_t meta = ist_ep_gin_part(op, at->out_meta, at->meta_bytes, peer);
    uint64_t there = op->base + at->inbox +
                     (uint64_t)ist_ep_gin_index(&op->args->geometry, peer, op->rank) *
                         op->args->geometry.tokens_max * at->message_bytes;
    ist_row_copy(coop, ist_ep_at(op, meta), part[0].src, part[0].bytes);
    if (part[1].bytes != 0) {
        ist_row_copy(coop, ist_ep_at(op, meta + sizeof(ist_ep_head)), part[1].src, part[1].bytes);
    }
    ist_ep_put(coop, op, peer, ist_ep_mine(op, at->meta, at->meta_bytes), meta,
               sizeof(ist_ep_head) + part[1].bytes);
    if (parcel->head.rows != 0) {
        ist_ep_send_part(coop, op, peer, ist_ep_gin_part(op, at->out_descs, at->descs_bytes, peer),
                         ist_ep_mine(op, at->descs, at->descs_bytes), part[2].src, part[2].bytes);
    }
    if (parcel->head.rows != 0 && part[3].bytes != 0) {
        ist_ep_send_part(
            coop, op, peer, ist_ep_gin_part(op, at->out_weights, at->weights_bytes, peer),
            ist_ep_mine(op, at->weights, at->weights_bytes), part[3].src, part[3].bytes);
    }
    for (uint32_t row = 0; row < parcel->head.rows; ++row) {
        const uint32_t *desc = (const uint32_t *)(const void *)((const uint8_t *)part[2].src +
                                                                row * op->args->in.desc_bytes);
        ist_ep_put(coop, op, peer, there + row * at->message_bytes,
                   op->base + at->stage_put + desc[0] * at->message_bytes,
                   sizeof(ist_ep_stamp) + op->args->row_bytes);
    }
}

/** Phase 3. Collective. */
IST_DEVICE_FN void ist_ep_send_all(ist_coop *coop, const ist_ep_dispatch_args *args,
                                   const ist_ep_op_view *op)
{
    uint8_t *marks = ist_wire_marks_of(coop, op->room);
    ist_ep_parcel *parcels = ist_ep_parcels_of(coop);
    uint32_t count = 0;
    IST_ROLLED
    for (uint32_t first = op->block; first < op->ranks; first += count * op->blocks) {
        if (!op->few && count != 0) {
            ist_coop_sync(coop); /* lanes still look at the marks and parcels of the last turn */
        }
        count = ist_ep_served(op, first);
        IST_EACH_LANE (coop, i, count) {
            uint32_t peer = first + i * op->blocks;
            marks[i] = ist_ep_sends_to(coop, op, peer);
            ist_ep_fill_parcel(coop, op, peer, &parcels[i]);
        }
        IST_ROLLED
        for (uint32_t i = 0; op->layout == IST_EP_RANK_MAJOR && args->weights != NULL && i < count;
             ++i) {
            ist_ep_order_weights(coop, args, op, first + i * op->blocks);
        }
        ist_coop_sync(coop);
        IST_ROLLED
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t peer = first + i * op->blocks;
            if (marks[i] && ist_ep_in_team(op, peer)) {
                ist_row_copy_list(coop, parcels[i].parts, IST_EP_PARCEL_PARTS);
            } else if (marks[i] && op->network) {
                ist_ep_send_gin(coop, op, peer, &parcels[i]);
            }
        }
        ist_point(coop, "ep.dispatch.written");
        ist_ep_raise(coop, op, IST_EP_READY, first, op->blocks, count, marks);
    }
}

/* ---- receive: decide -------------------------------------------------------------------------- */

/** Metadata of `count` sources into scratch or this block's work memory: begins with a sync, as lanes may
 *  still read what lies there, and ends with one. Collective. */
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
    uint64_t peer = ist_ep_gin_index(&args->geometry, op->rank, source);
    return args->handle + args->in.received_descs +
           peer * args->geometry.tokens_max * args->in.desc_bytes;
}

IST_DEVICE_FN ist_ep_head *ist_ep_record_of(const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                            uint32_t i)
{
    return (ist_ep_head *)(void *)(cursor->records + i * op->args->at.meta_bytes);
}

/** Memory for walking over the sources. `here`: all their records are in scratch, and nothing is
 *  summed chunk by chunk. Collective. */
IST_DEVICE_FN ist_ep_cursor ist_ep_cursor_open(ist_coop *coop, const ist_ep_op_view *op,
                                               uint32_t here)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_geometry *geometry = &args->geometry;
    uint32_t bytes = 4u * (IST_EP_LOCAL_SCRATCH + op->room + 1u);
    uint32_t *sums = (uint32_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_SUMS, bytes);
    ist_ep_cursor cursor;
    cursor.local = op->layout == IST_EP_EXPERT_MAJOR ? ist_ep_count_of(geometry, op->rank) : 0;
    cursor.rows = sums + IST_EP_LOCAL_SCRATCH;
    cursor.run = sums;
    cursor.records = (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_RECORDS, IST_EP_CHUNK_BYTES);
    cursor.chunk = here ? op->ranks : IST_EP_CHUNK_BYTES / (uint32_t)args->at.meta_bytes;
    if (!op->few && args->at.work_bytes != 0) {
        cursor.records = ist_ep_at(op, args->at.work + op->block * args->at.work_bytes);
        cursor.run = (uint32_t *)(void *)(cursor.records + args->at.meta_bytes);
        cursor.chunk = 1;
    }
    IST_EACH_LANE (coop, expert, here ? 0u : cursor.local) { /* and only this lane adds to it */
        cursor.run[expert] = 0;
    }
    return cursor;
}

IST_DEVICE_FN uint32_t ist_ep_chunk_count(const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                          uint32_t first)
{
    uint32_t left = op->ranks - first;
    return left < cursor->chunk ? left : cursor->chunk;
}

/** Offset of a network source's row in this rank's inbox. */
IST_DEVICE_FN uint64_t ist_ep_inbox(const ist_ep_op_view *op, uint32_t source, uint32_t row)
{
    const ist_ep_op_args *args = op->args;
    uint64_t peer = ist_ep_gin_index(&args->geometry, op->rank, source);
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
    ist_row_copy(coop, kept, ist_ep_at(op, descs + sizeof(ist_ep_stamp)),
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

/** Phase 4: compares what came with what must have come; rows by source. What follows,
 *  ist_ep_reject(), syncs before it reads the results. Collective. */
IST_DEVICE_FN void ist_ep_check_sources(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_cursor *cursor, uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    uint32_t count = 0;
    IST_ROLLED
    for (uint32_t first = 0; first < op->ranks; first += count) {
        count = ist_ep_chunk_count(op, cursor, first);
        ist_ep_fetch(coop, op, cursor, ist_ep_at(op, op->base + args->at.meta), first, count);
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
    IST_ROLLED
    for (uint32_t peer = 0; op->network && peer < op->ranks; ++peer) {
        if (!ist_dev_is_lsa(op->dev, peer) && cursor->rows[peer] != 0) {
            ist_ep_check_stamps(coop, op, peer, cursor->rows[peer], results);
        }
    }
}

/** Rows of lower ranks, by source, into the handle; behind a sync after the results were written.
 *  Collective. */
IST_DEVICE_FN void ist_ep_sum_rows(ist_coop *coop, const ist_ep_op_view *op,
                                   const ist_ep_cursor *cursor, const uint8_t *results, int none)
{
    uint32_t ranks = op->ranks;
    IST_EACH_LANE (coop, peer, ranks) {
        if (none || results[peer] != IST_WAIT_DONE) {
            cursor->rows[peer] = 0;
        }
    }
    ist_coop_sync(coop);
    uint32_t total = ist_coop_scan(coop, cursor->rows, ranks);
    if (ist_coop_elect(coop)) {
        cursor->rows[ranks] = total;
    }
    ist_coop_sync(coop);
    ist_row_copy(coop, op->args->handle + op->args->in.received, cursor->rows, 4u * (ranks + 1u));
}

/** Phase 4, block 0 by itself. Collective. */
IST_DEVICE_RARE_FN void ist_ep_decide_apart(ist_coop *coop, ist_ep_op_view op, ist_ep_late late)
{
    uint8_t *results = ist_ep_results(coop, op.room);
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, &op, 0);
    uint32_t outcome = ist_ep_begin_receive(coop, &op, &late, results);
    int none = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) != 0;
    if (!none) {
        ist_ep_check_sources(coop, &op, &cursor, results);
        outcome |= ist_ep_reject(coop, &op, results);
    }
    ist_ep_sum_rows(coop, &op, &cursor, results, none);
    ist_ep_publish(coop, &op, results, outcome);
}

/** Phase 4. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_decide(ist_coop *coop, const ist_ep_op_view *op)
{
    ist_ep_late late;
    ist_ep_decision decision;
    if (!ist_ep_try_together(coop, op, &late, &decision)) {
        if (late.alone) {
            IST_RARELY(coop, ist_ep_decide_apart(coop, *op, late));
        }
        IST_RARELY(coop, decision = ist_ep_adopt(coop, *op, late.alone));
    }
    return decision;
}

/* ---- receive: place and take ------------------------------------------------------------------ */

/** Phase 5: the chunk's counts become slot bases, and the sums move on. Collective. */
IST_DEVICE_FN void ist_ep_bases(ist_coop *coop, const ist_ep_op_view *op,
                                const ist_ep_cursor *cursor, uint32_t first, uint32_t count)
{
    const uint64_t *verdict = ist_ep_verdict_of(coop, op->room);
    ist_ep_fetch(coop, op, cursor, ist_ep_kept_meta(op), first, count);
    IST_EACH_LANE (coop, expert, cursor->local) {
        uint32_t run = cursor->run[expert];
        IST_ROLLED
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

/** What the lanes of ist_ep_place() work on. */
typedef struct ist_ep_batch {
    const ist_ep_head *head; /**< of the source; slot bases follow */
    const uint8_t *from;     /**< its rows by token, NULL: the inbox */
    uint8_t *descs;          /**< scratch */
    ist_ep_rows *rows;       /**< scratch */
    uint32_t source;
    uint32_t first; /**< row of the source */
    uint32_t count;
} ist_ep_batch;

/**
 * Where the rows of a source begin, by token; NULL where they do not all exist. Rows of network
 * sources lie in the inbox instead. Lane.
 */
IST_DEVICE_FN const uint8_t *ist_ep_rows_of(ist_coop *coop, const ist_ep_op_view *op,
                                            const ist_ep_head *head, uint32_t source)
{
    uint64_t bytes = (uint64_t)head->tokens * op->args->row_bytes;
    if (source == op->rank) {
        return op->args->rows;
    }
    if (!ist_ep_in_team(op, source) || bytes == 0) {
        return NULL;
    }
    const uint8_t *alike =
        head->tokens <= op->args->geometry.tokens_max ? ist_ep_rows_alike(op, head, source) : NULL;
    if (alike != NULL) {
        return alike;
    }
    const void *end =
        ist_window_peer(coop, op->dev, head->window, head->offset + bytes - 1u, source);
    return end == NULL ? NULL : (const uint8_t *)end + 1 - bytes;
}

/** Address of a row at its source, NULL where it does not exist. Lane. */
IST_DEVICE_FN const void *ist_ep_row_from(const ist_ep_op_view *op, const ist_ep_batch *batch,
                                          uint32_t row, uint32_t token)
{
    if (batch->from != NULL) {
        return token < batch->head->tokens ? batch->from + (uint64_t)token * op->args->row_bytes
                                           : NULL;
    }
    return op->network && !ist_dev_is_lsa(op->dev, batch->source)
               ? ist_ep_at(op, ist_ep_inbox(op, batch->source, row) + sizeof(ist_ep_stamp))
               : NULL;
}

IST_DEVICE_FN void **ist_ep_targets(const ist_ep_batch *batch, uint32_t topk, uint32_t i)
{
    return (void **)(batch->rows + 1) + (uint64_t)i * topk;
}

/** Ids of the batch's rows, in scratch behind the targets. */
IST_DEVICE_FN int32_t *ist_ep_batch_idx(const ist_ep_batch *batch, uint32_t topk)
{
    return (int32_t *)(void *)ist_ep_targets(batch, topk, IST_EP_ROWS);
}

/** EXPERT_MAJOR: place of entry k of a row, NULL: none here. Lane. */
IST_DEVICE_FN void *ist_ep_place_by_expert(const ist_ep_dispatch_args *args,
                                           const ist_ep_head *head, uint32_t entry, uint32_t local)
{
    const ist_ep_op_args *op = &args->op;
    const uint32_t *bases = (const uint32_t *)(head + 1);
    uint64_t slots = (uint64_t)op->geometry.rank_count * op->geometry.tokens_max;
    uint32_t expert = entry >> 16;
    if (entry == IST_EP_ELSEWHERE || expert >= local) {
        return NULL;
    }
    uint64_t slot = (uint64_t)bases[expert] + (entry & 0xffffu);
    return slot < slots ? args->out + (expert * slots + slot) * op->row_bytes : NULL;
}

/** RANK_MAJOR: place of a row, for its first entry; notes its id. Lane. */
IST_DEVICE_FN void *ist_ep_place_by_rank(const ist_ep_dispatch_args *args, const ist_ep_op_view *op,
                                         const ist_ep_batch *batch, uint32_t entry, uint32_t i,
                                         uint32_t k)
{
    const ist_ep_op_args *common = &args->op;
    uint64_t row = (uint64_t)batch->source * common->geometry.tokens_max + batch->first + i;
    uint32_t shift =
        args->id_kind == IST_EP_ID_GLOBAL ? ist_ep_first_of(&common->geometry, op->rank) : 0;
    ist_ep_batch_idx(batch, common->topk)[i * common->topk + k] =
        entry == IST_EP_ELSEWHERE ? -1 : (int32_t)((entry >> 16) + shift);
    return k == 0 ? args->out + row * common->row_bytes : NULL;
}

/** Computes sources and places of a batch, a lane an entry; a sync must follow. Lane-parallel. */
IST_DEVICE_FN void ist_ep_place(ist_coop *coop, const ist_ep_dispatch_args *args,
                                const ist_ep_op_view *op, const ist_ep_batch *batch, uint32_t local)
{
    uint32_t topk = args->op.topk;
    void **to = ist_ep_targets(batch, topk, 0);
    IST_EACH_LANE (coop, n, batch->count * topk) {
        uint32_t i = ist_ep_over_topk(&args->op, n);
        uint32_t k = n - i * topk;
        const uint32_t *desc =
            (const uint32_t *)(const void *)(batch->descs + i * args->op.in.desc_bytes);
        to[n] = args->op.layout == IST_EP_EXPERT_MAJOR
                    ? ist_ep_place_by_expert(args, batch->head, desc[1u + k], local)
                    : ist_ep_place_by_rank(args, op, batch, desc[1u + k], i, k);
        if (k == 0) {
            const void *from = ist_ep_row_from(op, batch, batch->first + i, desc[0]);
            batch->rows->from[i] = from;
            batch->rows->places[i] = from == NULL ? 0 : topk;
            batch->rows->bad[i] = from == NULL;
            if (from == NULL) {
                ist_ep_break(coop, op, batch->source);
            }
        }
    }
}

/** Network rows and weights once more, behind a sync after they were copied: whose stamp changed under
 *  the copy is bad. Collective. */
IST_DEVICE_FN void ist_ep_recheck(ist_coop *coop, const ist_ep_dispatch_args *args,
                                  const ist_ep_op_view *op, const ist_ep_batch *batch)
{
    uint64_t weights = op->base + args->op.at.weights + batch->source * args->op.at.weights_bytes;
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
                                   ist_ep_batch batch)
{
    IST_ROLLED
    for (uint32_t i = 0; i < batch.count; ++i) {
        void *const *to = ist_ep_targets(&batch, args->op.topk, i);
        IST_ROLLED
        for (uint32_t n = 0; batch.rows->bad[i] && n < args->op.topk; ++n) {
            if (to[n] != NULL) {
                ist_row_fill(coop, to[n], 0, args->op.row_bytes);
            }
        }
        if (batch.rows->bad[i] && args->op.layout == IST_EP_RANK_MAJOR) {
            uint64_t row = (uint64_t)batch.source * args->op.geometry.tokens_max + batch.first + i;
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
    ist_row_copy(coop, args->out_weights + row * common->topk, ist_ep_at(op, weights),
                 batch->count * bytes);
}

/** Rows of a batch to their places. Collective. */
IST_DEVICE_FN void ist_ep_move(ist_coop *coop, const ist_ep_op_args *args, ist_ep_rows *rows,
                               uint32_t count)
{
    ist_row_batch batch;
    batch.src = rows->from;
    batch.dst = (void *const *)(rows + 1);
    batch.places = rows->places;
    batch.stride = args->topk;
    batch.row_count = count;
    batch.bytes = args->row_bytes;
    ist_row_copy_batch(coop, &batch);
}

/** Phase 6, decided apart, for some rows of a source. Collective. */
IST_DEVICE_FN void ist_ep_take_batch(ist_coop *coop, const ist_ep_dispatch_args *args,
                                     const ist_ep_op_view *op, const ist_ep_batch *batch,
                                     uint32_t local)
{
    const ist_ep_op_args *common = &args->op;
    uint64_t descs =
        op->base + common->at.descs + batch->source * common->at.descs_bytes + sizeof(ist_ep_stamp);
    int on_network = op->network && !ist_dev_is_lsa(op->dev, batch->source);
    const uint8_t *from =
        on_network ? ist_ep_kept_descs(op, batch->source) : (const uint8_t *)ist_ep_at(op, descs);
    ist_row_copy(coop, batch->descs, from + batch->first * common->in.desc_bytes,
                 batch->count * common->in.desc_bytes);
    ist_coop_sync(coop);
    ist_ep_place(coop, args, op, batch, local);
    ist_coop_sync(coop);
    ist_ep_move(coop, common, batch->rows, batch->count);
    if (common->layout == IST_EP_RANK_MAJOR) {
        ist_ep_deliver_entries(coop, args, op, batch);
    }
    /* All was read before stamps are compared, and is there before zeros are. */
    ist_coop_sync(coop);
    if (on_network) {
        ist_ep_recheck(coop, args, op, batch);
    }
    ist_ep_zero_bad(coop, args, *batch);
}

/** Phase 6, decided apart, for the rows [begin, end) of a source. Collective. */
IST_DEVICE_FN void ist_ep_take_source(ist_coop *coop, const ist_ep_dispatch_args *args,
                                      const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                      const ist_ep_head *head, uint32_t source, uint32_t begin,
                                      uint32_t end)
{
    ist_ep_batch batch;
    uint32_t rows_bytes = (uint32_t)sizeof(ist_ep_rows) + IST_EP_ROWS * args->op.topk * 12u;
    batch.head = head;
    batch.from = ist_ep_rows_of(coop, op, head, source);
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
    IST_ROLLED
    for (uint32_t source = op->block; source < op->ranks; source += op->blocks) {
        uint64_t used = rows[source + 1u] - rows[source];
        if (used < tokens) {
            ist_row_fill(coop, args->out_idx + (source * tokens + used) * args->op.topk, 0xff,
                         (tokens - used) * args->op.topk * 4u);
        }
    }
}

/* ---- records of what was received --------------------------------------------------------------- */

/** Decided together: which block keeps the record of a source. From the last on: the first have one row
 *  more, and have sent. */
IST_DEVICE_FN uint32_t ist_ep_keeping_block(const ist_ep_op_view *op, uint32_t source)
{
    return op->blocks - 1u - (op->few ? source : source % op->blocks);
}

/** Decided together: which block keeps what concerns all sources: the one before those. */
IST_DEVICE_FN uint32_t ist_ep_totals_block(const ist_ep_op_view *op)
{
    return op->blocks > op->ranks ? op->blocks - 1u - op->ranks : 0;
}

/** Decided together: keeps this block's share of the records, with their slot bases, for the combine.
 *  Collective. */
IST_DEVICE_FN void ist_ep_keep_records(ist_coop *coop, const ist_ep_op_view *op,
                                       const ist_ep_cursor *cursor, const uint8_t *results)
{
    uint64_t bytes = op->args->at.meta_bytes;
    IST_EACH_LANE (coop, source, op->ranks) {
        if (ist_ep_keeping_block(op, source) == op->block) {
            uint64_t entries = 0;
            IST_ROLLED
            for (uint32_t lower = 0; lower < source; ++lower) {
                entries += results[lower] == IST_WAIT_DONE
                               ? ist_ep_record_of(op, cursor, lower)->entries
                               : 0u;
            }
            ist_ep_record_of(op, cursor, source)->start =
                cursor->local != 0 ? entries : cursor->rows[source];
        }
    }
    ist_coop_sync(coop);
    IST_ROLLED
    for (uint32_t source = 0; source < op->ranks; ++source) {
        if (ist_ep_keeping_block(op, source) == op->block) {
            ist_wire_copy_words(coop, ist_ep_kept_meta(op) + source * bytes,
                                ist_ep_record_of(op, cursor, source), bytes);
        }
    }
}

/** Counters for the caller. Collective. */
IST_DEVICE_FN void ist_ep_count(ist_coop *coop, const ist_ep_dispatch_args *args,
                                const ist_ep_op_view *op, const ist_ep_cursor *cursor)
{
    if (args->counters != NULL && cursor->local != 0) {
        ist_row_copy(coop, args->counters, cursor->run, 4u * (uint64_t)cursor->local);
    } else if (args->counters != NULL && op->layout == IST_EP_RANK_MAJOR) {
        IST_EACH_LANE (coop, source, op->ranks) {
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
    uint8_t *record = args->handle + args->in.received_meta + op->ranks * args->at.meta_bytes +
                      sizeof(ist_ep_head);
    if (cursor->local != 0) {
        ist_row_copy(coop, record, cursor->run, 4u * (uint64_t)cursor->local);
    }
}

/** Rows of lower ranks, by source, for the combine. Lane-parallel. */
IST_DEVICE_FN void ist_ep_keep_rows(ist_coop *coop, const ist_ep_op_view *op,
                                    const ist_ep_cursor *cursor)
{
    uint32_t *received = (uint32_t *)(void *)(op->args->handle + op->args->in.received);
    IST_EACH_LANE (coop, source, op->ranks + 1u) {
        received[source] = cursor->rows[source];
    }
}

/** This block's rows of sources first … first + count - 1, whose records the cursor holds: a stretch
 *  of the rows of all. Collective. */
IST_DEVICE_FN void ist_ep_take_share(ist_coop *coop, const ist_ep_dispatch_args *args,
                                     const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                     uint32_t first, uint32_t count)
{
    uint64_t total = cursor->rows[op->ranks];
    uint32_t begin = (uint32_t)(total * op->block / op->blocks);
    uint32_t end = (uint32_t)(total * (op->block + 1u) / op->blocks);
    IST_ROLLED
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t low = cursor->rows[first + i];
        uint32_t high = cursor->rows[first + i + 1u];
        uint32_t from = begin > low ? begin : low;
        uint32_t to = end < high ? end : high;
        if (from < to) {
            ist_ep_take_source(coop, args, op, cursor, ist_ep_record_of(op, cursor, i), first + i,
                               from - low, to - low);
        }
    }
}

/** Phases 5 and 6 after block 0 has decided apart. Collective. */
IST_DEVICE_RARE_FN void ist_ep_take_apart(ist_coop *coop, const ist_ep_dispatch_args *args,
                                          ist_ep_op_view op)
{
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, &op, 0);
    uint32_t count = 0;
    ist_row_copy(coop, cursor.rows, args->op.handle + args->op.in.received, 4u * (op.ranks + 1u));
    ist_coop_sync(coop);
    uint32_t end = (uint32_t)((uint64_t)cursor.rows[op.ranks] * (op.block + 1u) / op.blocks);
    IST_ROLLED
    for (uint32_t first = 0; first < op.ranks && cursor.rows[first] < end; first += count) {
        count = ist_ep_chunk_count(&op, &cursor, first);
        ist_ep_bases(coop, &op, &cursor, first, count);
        ist_ep_take_share(coop, args, &op, &cursor, first, count);
    }
    if (args->op.layout == IST_EP_RANK_MAJOR) {
        ist_ep_clear_ids(coop, args, &op, cursor.rows);
    }
}

/** Decided together: what a block works on, in scratch. */
typedef struct ist_ep_desk {
    const uint8_t **from; /**< [R] where the rows of a source begin, by token */
    ist_row_part *parts;  /**< [2 * IST_EP_ROWS] */
    uint8_t *descs;       /**< [IST_EP_ROWS] descriptors */
    ist_ep_rows *rows;    /**< then void *[IST_EP_ROWS][K], i32 [IST_EP_ROWS][K] */
} ist_ep_desk;

IST_DEVICE_FN ist_ep_desk ist_ep_desk_of(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_ep_op_args *args = op->args;
    uint32_t topk = op->few ? IST_EP_FEW_TOPK : args->topk; /* that there is room for */
    uint32_t rows_bytes = (uint32_t)sizeof(ist_ep_rows) + IST_EP_ROWS * topk * 12u;
    uint32_t parts_bytes = 2u * IST_EP_ROWS * (uint32_t)sizeof(ist_row_part);
    uint32_t from_bytes = IST_EP_DECIDED_RANKS_MAX * (uint32_t)sizeof(void *);
    uint8_t *memory = (uint8_t *)ist_coop_scratch(coop, IST_EP_SCRATCH_DESCS,
                                                  IST_EP_ROWS * (uint32_t)ist_ep_desc_bytes(topk) +
                                                      parts_bytes + from_bytes);
    ist_ep_desk desk;
    desk.from = (const uint8_t **)(void *)memory;
    desk.parts = (ist_row_part *)(void *)(memory + from_bytes);
    desk.descs = memory + from_bytes + parts_bytes;
    desk.rows = (ist_ep_rows *)ist_coop_scratch(coop, IST_EP_SCRATCH_ROWS, rows_bytes);
    return desk;
}

/** Judges the heads in scratch, into `results`; finds where the rows of those that are right begin.
 *  Lane-parallel. */
IST_DEVICE_FN void ist_ep_judge_here(ist_coop *coop, const ist_ep_op_view *op,
                                     const ist_ep_cursor *cursor, const ist_ep_desk *desk,
                                     uint8_t *results)
{
    uint64_t shape = ist_ep_shape(op->args);
    IST_EACH_LANE (coop, source, op->ranks) {
        const ist_ep_head *head = ist_ep_record_of(op, cursor, source);
        const uint8_t *from = NULL;
        if (results[source] == IST_WAIT_DONE) {
            uint8_t result = ist_ep_judge_head(op, head, shape);
            results[source] = result;
            from = result == IST_WAIT_DONE ? ist_ep_rows_of(coop, op, head, source) : NULL;
        }
        desk->from[source] = from;
    }
}

/** Phase 5, decided together: the heads, then rows and entries summed over the sources in rank order;
 *  counts turn into slot bases. Collective. */
IST_DEVICE_FN void ist_ep_survey(ist_coop *coop, const ist_ep_op_view *op,
                                 const ist_ep_cursor *cursor, const ist_ep_desk *desk,
                                 uint8_t *results)
{
    ist_ep_judge_here(coop, op, cursor, desk, results);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, expert, cursor->local) {
        uint32_t run = 0;
        IST_ROLLED
        for (uint32_t source = 0; source < op->ranks; ++source) {
            uint32_t *counts = (uint32_t *)(ist_ep_record_of(op, cursor, source) + 1);
            uint32_t entries = results[source] == IST_WAIT_DONE ? counts[expert] : 0;
            counts[expert] = run;
            run += entries;
        }
        cursor->run[expert] = run;
    }
    IST_EACH_LANE (coop, source, op->ranks + 1u) {
        uint32_t sum = 0;
        IST_ROLLED
        for (uint32_t lower = 0; lower < source; ++lower) {
            sum += results[lower] == IST_WAIT_DONE ? ist_ep_record_of(op, cursor, lower)->rows : 0u;
        }
        cursor->rows[source] = sum;
    }
    ist_coop_sync(coop);
}

/** Finds rows first, first + blocks, … of all sources together, and their descriptors. Lane-parallel. */
IST_DEVICE_FN void ist_ep_pick(ist_coop *coop, const ist_ep_op_view *op,
                               const ist_ep_cursor *cursor, const ist_ep_desk *desk, uint32_t first,
                               uint32_t count)
{
    const ist_ep_op_args *args = op->args;
    uint64_t bytes = args->in.desc_bytes;
    const uint8_t *descs = ist_ep_at(op, op->base + args->at.descs + sizeof(ist_ep_stamp));
    IST_EACH_LANE (coop, i, count) {
        uint32_t row = first + i * op->blocks;
        uint32_t source = 0;
        IST_ROLLED
        while (cursor->rows[source + 1u] <= row) {
            ++source;
        }
        row -= cursor->rows[source];
        desk->rows->source[i] = source;
        desk->rows->row[i] = row;
        desk->parts[i].dst = desk->descs + i * bytes;
        desk->parts[i].src = descs + source * args->at.descs_bytes + row * bytes;
        desk->parts[i].bytes = bytes;
    }
}

/** RANK_MAJOR: place of a row, and what of the batch goes to its ids and weights. Lane. */
IST_DEVICE_FN void *ist_ep_settle_row(const ist_ep_dispatch_args *args, const ist_ep_op_view *op,
                                      const ist_ep_desk *desk, uint32_t i)
{
    const ist_ep_op_args *common = &args->op;
    uint64_t bytes = 4u * (uint64_t)common->topk;
    uint32_t source = desk->rows->source[i];
    uint64_t row = (uint64_t)source * common->geometry.tokens_max + desk->rows->row[i];
    void **to = (void **)(desk->rows + 1);
    int32_t *idx = (int32_t *)(void *)(to + IST_EP_ROWS * common->topk);
    ist_row_part *part = &desk->parts[2u * i];
    part[0].dst = args->out_idx + row * common->topk;
    part[0].src = idx + i * common->topk;
    part[0].bytes = bytes;
    part[1].dst = args->out_weights + row * common->topk;
    part[1].src = ist_ep_at(op, op->base + common->at.weights + source * common->at.weights_bytes +
                                    sizeof(ist_ep_stamp) + desk->rows->row[i] * bytes);
    part[1].bytes = bytes;
    return args->out + row * common->row_bytes;
}

/** Computes origins and places of picked rows, a lane an entry; a sync must follow. Lane-parallel. */
IST_DEVICE_FN void ist_ep_place_picked(ist_coop *coop, const ist_ep_dispatch_args *args,
                                       const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                       const ist_ep_desk *desk, uint32_t count)
{
    const ist_ep_op_args *common = &args->op;
    uint32_t topk = common->topk;
    void **to = (void **)(desk->rows + 1);
    int32_t *idx = (int32_t *)(void *)(to + IST_EP_ROWS * topk);
    uint32_t shift =
        args->id_kind == IST_EP_ID_GLOBAL ? ist_ep_first_of(&common->geometry, op->rank) : 0;
    IST_EACH_LANE (coop, n, count * topk) {
        uint32_t i = ist_ep_over_topk(common, n);
        uint32_t k = n - i * topk;
        uint32_t source = desk->rows->source[i];
        const uint32_t *desc =
            (const uint32_t *)(const void *)(desk->descs + i * common->in.desc_bytes);
        const ist_ep_head *head = ist_ep_record_of(op, cursor, source);
        uint32_t entry = desc[1u + k];
        if (op->layout == IST_EP_EXPERT_MAJOR) {
            to[n] = ist_ep_place_by_expert(args, head, entry, cursor->local);
        } else {
            idx[n] = entry == IST_EP_ELSEWHERE ? -1 : (int32_t)((entry >> 16) + shift);
            to[n] = k == 0 ? ist_ep_settle_row(args, op, desk, i) : NULL;
        }
        if (k == 0) {
            const uint8_t *from = desk->from[source];
            int here = from != NULL && desc[0] < head->tokens;
            desk->rows->from[i] = here ? from + (uint64_t)desc[0] * common->row_bytes : NULL;
            desk->rows->places[i] = here ? topk : 0;
            desk->rows->bad[i] = !here;
            if (!here) {
                desk->parts[2u * i + 1u].bytes = 0; /* of its weights zeros alone are written */
                ist_ep_break(coop, op, source);
            }
        }
    }
}

/** Picked rows that are not there are zeros, and so are their weights; nobody else writes to these places.
 *  Collective. */
IST_DEVICE_RARE_FN void ist_ep_zero_picked(ist_coop *coop, const ist_ep_dispatch_args *args,
                                           ist_ep_desk desk, uint32_t count)
{
    uint32_t topk = args->op.topk;
    void *const *to = (void *const *)(desk.rows + 1);
    IST_ROLLED
    for (uint32_t n = 0; n < count * topk; ++n) {
        if (desk.rows->bad[n / topk] && to[n] != NULL) {
            ist_row_fill(coop, to[n], 0, args->op.row_bytes);
        }
    }
    IST_ROLLED
    for (uint32_t i = 0; args->op.layout == IST_EP_RANK_MAJOR && i < count; ++i) {
        if (desk.rows->bad[i]) {
            ist_row_fill(coop, desk.parts[2u * i + 1u].dst, 0, 4u * (uint64_t)topk);
        }
    }
}

/** Phase 6, decided together, for some rows. @return 0: the launch has decided otherwise, and nothing
 *  was done. Collective. */
IST_DEVICE_FN int ist_ep_take_picked(ist_coop *coop, const ist_ep_dispatch_args *args,
                                     const ist_ep_op_view *op, const ist_ep_cursor *cursor,
                                     const ist_ep_desk *desk, uint32_t first, uint32_t count,
                                     ist_ep_decision *decision)
{
    int bad = 0;
    ist_ep_pick(coop, op, cursor, desk, first, count);
    ist_coop_sync(coop);
    ist_row_copy_list(coop, desk->parts, count);
    ist_coop_sync(coop);
    ist_ep_place_picked(coop, args, op, cursor, desk, count);
    ist_ep_note_found(coop, op, decision);
    ist_coop_sync(coop);
    if (!ist_ep_is_confirmed(coop, op, decision)) {
        return 0;
    }
    ist_ep_move(coop, &args->op, desk->rows, count);
    if (op->layout == IST_EP_RANK_MAJOR) {
        ist_row_copy_list(coop, desk->parts, 2u * count);
    }
    IST_ROLLED
    for (uint32_t i = 0; i < count; ++i) {
        bad |= (int)desk->rows->bad[i];
    }
    if (bad) {
        IST_RARELY(coop, ist_ep_zero_picked(coop, args, *desk, count));
    }
    return 1;
}

/**
 * Phases 5 and 6, decided together: this block's share of all rows, and of the records.
 * @return 0: the launch has decided otherwise, and nothing was done. Collective.
 */
IST_DEVICE_FN int ist_ep_take_here(ist_coop *coop, const ist_ep_dispatch_args *args,
                                   const ist_ep_op_view *op, ist_ep_decision *decision)
{
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, op, 1);
    ist_ep_desk desk = ist_ep_desk_of(coop, op);
    uint8_t *results = ist_ep_results(coop, op->room);
    int keeps = op->blocks - 1u - op->block < op->ranks;
    int totals = op->block == ist_ep_totals_block(op);
    ist_ep_survey(coop, op, &cursor, &desk, results);
    uint32_t total = cursor.rows[op->ranks];
    for (uint32_t row = op->block; row < total;) {
        uint32_t first = row;
        uint32_t count = 0;
        for (; count < IST_EP_ROWS && row < total; row += op->blocks) {
            ++count;
        }
        if (first != op->block) {
            ist_coop_sync(coop);
        }
        if (!ist_ep_take_picked(coop, args, op, &cursor, &desk, first, count, decision)) {
            return 0;
        }
    }
    if (!ist_ep_confirm(coop, op, decision)) {
        return 0;
    }
    if (keeps) { /* not before: where block 0 has decided apart, what it keeps lies there */
        ist_ep_keep_records(coop, op, &cursor, results);
    }
    if (totals) {
        ist_ep_keep_rows(coop, op, &cursor);
        ist_ep_keep_totals(coop, op, &cursor);
        ist_ep_count(coop, args, op, &cursor);
    }
    if (op->layout == IST_EP_RANK_MAJOR) {
        ist_ep_clear_ids(coop, args, op, cursor.rows);
    }
    return 1;
}

/** Phases 5 and 6. Collective. */
IST_DEVICE_FN void ist_ep_take(ist_coop *coop, const ist_ep_dispatch_args *args,
                               const ist_ep_op_view *op, ist_ep_decision *decision)
{
    while (decision->here && !ist_ep_take_here(coop, args, op, decision)) {
        IST_RARELY(coop, *decision = ist_ep_adopt(coop, *op, 0));
    }
    if (!decision->here && (decision->outcome & IST_WIRE_ABORTED) == 0) {
        IST_RARELY(coop, ist_ep_take_apart(coop, args, *op));
    }
}

/* ---- block 0 ----------------------------------------------------------------------------------- */

/** Where block 0 has decided apart: all records for the combine, and counters. Collective. */
IST_DEVICE_RARE_FN void ist_ep_keep_late(ist_coop *coop, const ist_ep_dispatch_args *args,
                                         ist_ep_op_view op)
{
    const ist_ep_op_args *common = &args->op;
    uint64_t bytes = common->at.meta_bytes;
    ist_ep_cursor cursor = ist_ep_cursor_open(coop, &op, 0);
    uint32_t count = 0;
    ist_row_copy(coop, cursor.rows, common->handle + common->in.received, 4u * (op.ranks + 1u));
    IST_ROLLED
    for (uint32_t first = 0; first < op.ranks; first += count) {
        count = ist_ep_chunk_count(&op, &cursor, first);
        ist_ep_bases(coop, &op, &cursor, first, count);
        IST_EACH_LANE (coop, i, count) {
            ist_ep_head *head = ist_ep_record_of(&op, &cursor, i);
            const uint32_t *bases = (const uint32_t *)(head + 1);
            uint64_t entries = 0;
            for (uint32_t expert = 0; expert < cursor.local; ++expert) {
                entries += bases[expert];
            }
            head->start = cursor.local != 0 ? entries : cursor.rows[first + i];
        }
        ist_coop_sync(coop);
        ist_row_copy(coop, ist_ep_kept_meta(&op) + first * bytes, cursor.records, count * bytes);
    }
    ist_ep_keep_totals(coop, &op, &cursor);
    ist_ep_count(coop, args, &op, &cursor);
}

/** Phase 8: what the combine needs of this dispatch. Collective. */
IST_DEVICE_FN void ist_ep_keep(ist_coop *coop, const ist_ep_op_view *op, const uint8_t *results)
{
    const ist_ep_op_args *args = op->args;
    const uint64_t *whole = ist_ep_whole_of(coop, op->room);
    /* Not over `results`: a slower lane may still read there who is missing. */
    uint8_t *marks = ist_wire_marks_of(coop, op->room);
    uint64_t *acked = (uint64_t *)(void *)(args->handle + args->in.acked);
    uint64_t *from = (uint64_t *)(void *)(args->handle + args->in.received_from);
    IST_EACH_LANE (coop, peer, op->ranks) {
        marks[peer] = results[peer] == IST_WAIT_DONE;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, w, ist_ep_word_count(op->ranks)) {
        acked[w] = ist_ep_word_from(marks, w, op->ranks);
        from[w] = whole[w];
    }
    if (ist_coop_elect(coop)) {
        ist_ep_handle_of(args)->dispatch_tag = op->tag;
    }
}

/** Phases 8 and 9. Collective. */
IST_DEVICE_FN void ist_ep_dispatch_conclude(ist_coop *coop, const ist_ep_dispatch_args *args,
                                            const ist_ep_op_view *op,
                                            const ist_ep_decision *decision, uint32_t outcome)
{
    uint8_t *results = ist_ep_results(coop, op->room);
    if ((outcome & (IST_WIRE_ABORTED | IST_EP_FOREIGN)) == 0) {
        outcome |= ist_ep_close_books(coop, op, decision, results);
        if (!decision->here) {
            IST_RARELY(coop, ist_ep_keep_late(coop, args, *op));
        }
        ist_point(coop, "ep.dispatch.answered");
        outcome = ist_ep_finish(coop, op, outcome, results);
        ist_ep_keep(coop, op, results);
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

/** Phases 4 to 6. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_dispatch_receive(ist_coop *coop,
                                                      const ist_ep_dispatch_args *args,
                                                      const ist_ep_op_view *op)
{
    ist_ep_decision decision = ist_ep_decide(coop, op);
    if (op->block == 0) {
        ist_point(coop, "ep.dispatch.decided");
    }
    if ((decision.outcome & IST_WIRE_ABORTED) == 0) {
        ist_ep_take(coop, args, op, &decision);
        ist_point(coop, "ep.dispatch.taken");
    }
    return decision;
}

/** All phases. `text` is a constant. Collective. */
IST_DEVICE_FN void ist_ep_dispatch_run(ist_coop *coop, const ist_ep_dispatch_args *args,
                                       ist_ep_text text)
{
    ist_ep_op_view op;
    ist_ep_decision decision = {0, 0, 0, 0, 0, 0};
    ist_ep_enter(coop, &args->op, text, &op);
    uint32_t outcome = op.valid ? IST_WIRE_DONE : IST_EP_FOREIGN;
    if (outcome == IST_WIRE_DONE && (op.halves & IST_EP_SEND)) {
        outcome = ist_ep_dispatch_send(coop, args, &op);
    }
    ist_ep_announce(coop, &op);
    ist_ep_find_alike(coop, &op);
    if (outcome == IST_WIRE_DONE && (op.halves & IST_EP_RECEIVE)) {
        decision = ist_ep_dispatch_receive(coop, args, &op);
        outcome = decision.outcome;
    }
    if (ist_ep_is_last(coop, &op)) {
        if (op.halves & IST_EP_RECEIVE) {
            ist_ep_dispatch_conclude(coop, args, &op, &decision, outcome);
        }
        ist_ep_advance(coop, &op, outcome);
    }
}

IST_KERNEL(ep_dispatch, ist_ep_dispatch_args)
{
    ist_ep_dispatch_run(coop, args, IST_EP_TEXT_ANY);
}

IST_KERNEL(ep_dispatch_by_expert, ist_ep_dispatch_args)
{
    ist_ep_dispatch_run(coop, args, IST_EP_TEXT_BY_EXPERT);
}

IST_KERNEL(ep_dispatch_by_rank, ist_ep_dispatch_args)
{
    ist_ep_dispatch_run(coop, args, IST_EP_TEXT_BY_RANK);
}
