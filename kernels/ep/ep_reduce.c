/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine, reduced: each rank of experts sums its own rows of a token, and sends one row a token.
 * EXPERT_MAJOR, in groups that were opened for it; all ranks are in one load/store team.
 *
 * Send half (as the home of tokens):
 *   1 ask      all blocks: for each row and k, where the row lies and its weight, in words that carry
 *              the operation's number
 *   2 tell     expert rank e is served by block e % blocks: its report word is opened, then it gets the
 *              head, the descriptors of the dispatch, the weights as they are, the ready flag
 * Receive half (3 to 6 as the rank of experts):
 *   3 push     each block takes its share of the rows owed: when the words about them are there, it sums
 *              each from this rank's tensor in the order of k, one fused chain in f32, rounds
 *              once, and stores it in the home's inbox. Words that do not come in a slice of the
 *              deadline, and more rows than a few, are left to 5
 *   4 own      rows of this rank's own tokens go the same way, behind them, while they travel
 *   5 await    the ready flags of all homes; each block by itself. Where some are missing, or a head
 *              is wrong, block 0 settles it: waits on, gives up, drops, says so. Then what 3 has
 *              left, by the descriptors
 *   6 report   each block adds its share to the report word at each home
 *   7 decide   as the home: whose rows count: the ranks whose report word is whole; one answer for all
 *              blocks, by the rules of ep_decide.h, but before outputs are presented, not before they
 *              are written: they can be written again
 *   8 sum      each block takes its share of the tokens: the sums of the ranks in the order of their
 *              first k, plain f32, rounded once
 * Last block:
 *   9 conclude the record, the group's state
 *
 * The report word. Before the ready flag the home sets it to the tag less IST_EP_SHARES; the blocks of
 * an expert rank add IST_EP_SHARES together. So it equals the tag when all blocks have reported,
 * whatever their number, and can be waited for as a flag.
 *
 * The words of 1 carry the lower half of the operation's number, and are zeroed by a clean, where numbers
 * begin again: one that was left matches only after 2^32 operations in which its row was never used.
 *
 * Turns. The words of 1 release nothing, so that nothing waits for a fence. The inbox is therefore
 * there twice, and used in turn: whoever writes to a half in 3 has acquired the ready flag of the turn
 * before, and that was raised when the home had long read the half.
 *
 * Orderings.
 *   2    The report word and the home's metadata are written before a coop sync; the flag is a release
 *        at system scope after it. Nobody adds to the word before it has acquired the flag.
 *   3-6  Rows are stored before a coop sync, each addition is a release at system scope after it, and
 *        the additions to a word are one release sequence: who finds it equal to the tag, by an
 *        acquire, sees the rows of all blocks. This rank's own rows go the same way.
 *   7    The decision orders nothing: each block, also one that adopts, acquires the whole report words
 *        of all that count by itself, but for a decision apart, which block 0 releases.
 *   End  Nobody reads this rank's input but itself. Peers read its metadata, and wait for its words and
 *        flag, until they report; a rank that never reports is dropped, gets nothing any more, and
 *        what it writes late lands in its own part of the inbox, which nobody reads before a clean.
 *        So no answer is needed, and nothing that was read can have been newer than it should:
 *        notices need no fence.
 */
#include "ep_conclude.h"

#define IST_EP_SHARES (UINT64_C(1) << 20) /* more than blocks of any launch */
#define IST_EP_SUM_ROWS 16u               /* rows summed between two syncs */
#define IST_EP_ASKED_ROWS 8u              /* rows of a block that are asked for by words */

/** Place of this block among those that share rows and tokens: the first blocks also send, so they come
 *  last. */
IST_DEVICE_FN uint32_t ist_ep_place_of(const ist_ep_op_view *op)
{
    return op->blocks - 1u - op->block;
}

/** Scratch of a block, but for what is by rank. */
typedef struct ist_ep_sum_rows {
    const void *src[IST_EP_SUM_ROWS * IST_EP_TOPK_MAX]; /**< [K] a row, NULL: none */
    void *dst[IST_EP_SUM_ROWS];                         /**< NULL: not owed */
    ist_row_part parts[IST_EP_SUM_ROWS];                /**< descriptors */
    uint32_t weight[IST_EP_SUM_ROWS * IST_EP_TOPK_MAX]; /**< bits of f32 */
    uint32_t rank[IST_EP_SUM_ROWS * IST_EP_TOPK_MAX];   /**< of an entry's expert */
    uint32_t home[IST_EP_SUM_ROWS];
    uint32_t reserved[IST_EP_SUM_ROWS];
} ist_ep_sum_rows;

/** A block's rows that are asked for by words. */
typedef struct ist_ep_first {
    uint32_t other;  /**< the first row owed to another rank */
    uint32_t others; /**< how many of them */
    uint32_t own;    /**< how many of its own, from row `block` on */
    uint32_t reserved;
} ist_ep_first;

/** The words that a block waits for, each entry's two; scratch. */
typedef struct ist_ep_sum_words {
    const uint64_t *from[2u * IST_EP_ASKED_ROWS * IST_EP_TOPK_MAX]; /**< NULL: not asked */
    uint32_t data[2u * IST_EP_ASKED_ROWS * IST_EP_TOPK_MAX];
} ist_ep_sum_words;

/** What a block knows of each rank; scratch. */
typedef struct ist_ep_sum_peer {
    uint32_t start;  /**< rows received from lower ranks */
    uint32_t sent;   /**< rows sent to lower ranks */
    uint8_t refused; /**< 1: never had its rows, or its descriptors name rows that do not exist */
    uint8_t acked;   /**< 1: it has answered the dispatch */
    uint8_t noticed; /**< 1: it has given this rank up */
    uint8_t reserved;
} ist_ep_sum_peer;

/** Both, and u8 [R]: how the wait for each home ended, or why it is not served. */
typedef struct ist_ep_sum_desk {
    ist_ep_sum_rows *rows;   /**< that are owed */
    ist_ep_sum_rows *tokens; /**< that are summed at home */
    ist_ep_sum_words *words;
    ist_ep_sum_peer *peers; /**< [R + 1] */
    uint64_t inbox;         /**< offset of the half that is used */
} ist_ep_sum_desk;

IST_DEVICE_FN uint8_t *ist_ep_desk_descs(const ist_ep_sum_desk *desk)
{
    return (uint8_t *)(desk->words + 1);
}

IST_DEVICE_FN uint8_t *ist_ep_desk_homes(const ist_ep_op_view *op, const ist_ep_sum_desk *desk)
{
    return (uint8_t *)(desk->peers + op->room + 1u);
}

/** This block's scratch. Collective. */
IST_DEVICE_FN ist_ep_sum_desk ist_ep_sum_desk_of(ist_coop *coop, const ist_ep_op_view *op)
{
    const ist_ep_layout_map *at = &op->args->at;
    uint32_t topk = op->few ? IST_EP_FEW_TOPK : op->args->topk; /* that there is room for */
    uint32_t descs = IST_EP_SUM_ROWS * (uint32_t)ist_ep_desc_bytes(topk);
    uint32_t peers = (op->room + 1u) * (uint32_t)sizeof(ist_ep_sum_peer) + op->room;
    uint64_t turns = ist_load_u64(coop, &op->state->turns, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_ep_sum_desk desk;
    desk.rows = (ist_ep_sum_rows *)ist_coop_scratch(coop, IST_EP_SCRATCH_ROWS,
                                                    2u * (uint32_t)sizeof(ist_ep_sum_rows) +
                                                        (uint32_t)sizeof(ist_ep_sum_words) + descs);
    desk.tokens = desk.rows + 1;
    desk.words = (ist_ep_sum_words *)(void *)(desk.tokens + 1);
    desk.peers = (ist_ep_sum_peer *)ist_coop_scratch(coop, IST_EP_SCRATCH_SUMS, peers);
    desk.inbox = op->base + at->partial;
    desk.inbox += turns >> op->slot & 1u ? op->ranks * at->partial_bytes : 0;
    return desk;
}

/** What the dispatch has left about each rank; a sync must follow. Lane-parallel. */
IST_DEVICE_FN void ist_ep_sum_desk_fill(ist_coop *coop, const ist_ep_op_view *op,
                                        const ist_ep_sum_desk *desk)
{
    const ist_ep_op_args *args = op->args;
    const uint32_t *received = (const uint32_t *)(const void *)(args->handle + args->in.received);
    const uint64_t *from = (const uint64_t *)(const void *)(args->handle + args->in.received_from);
    const uint64_t *acked = (const uint64_t *)(const void *)(args->handle + args->in.acked);
    const uint32_t *sent = (const uint32_t *)(const void *)(args->handle + args->in.send_offset);
    IST_EACH_LANE (coop, peer, op->ranks + 1u) {
        ist_ep_sum_peer *known = &desk->peers[peer];
        known->start = received[peer];
        known->sent = sent[peer];
        if (peer < op->ranks) {
            known->refused = (uint8_t)!ist_ep_is_in(from, peer);
            known->acked = (uint8_t)ist_ep_is_in(acked, peer);
        }
    }
}

/* ---- send ------------------------------------------------------------------------------------- */

/** Where a peer reads what this rank asks of it for row `row` and k; two words. Lane. */
IST_DEVICE_FN uint64_t *ist_ep_asked_at(ist_coop *coop, const ist_ep_op_view *op, uint32_t home,
                                        uint32_t peer, uint32_t row, uint32_t k)
{
    const ist_ep_layout_map *at = &op->args->at;
    uint64_t offset = op->base + at->asked + home * at->asked_bytes;
    offset += 16u * ((uint64_t)row * op->args->topk + k);
    return (uint64_t *)(void *)(ist_ep_at_peer(coop, op, 0, peer) + offset);
}

/** The number of the operation that the words carry. */
IST_DEVICE_FN uint64_t ist_ep_asked_tag(const ist_ep_op_view *op)
{
    return op->tag << 32;
}

/** Phase 1 for rows first, first + blocks, …; `count` of them. Lane-parallel. */
IST_DEVICE_FN void ist_ep_ask_rows(ist_coop *coop, const ist_ep_combine_args *args,
                                   const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                   uint32_t first, uint32_t count)
{
    const ist_ep_op_args *common = op->args;
    uint32_t topk = common->topk;
    const uint32_t *weights = (const uint32_t *)(const void *)args->weights;
    IST_EACH_LANE (coop, n, count * topk) {
        uint32_t i = ist_ep_over_topk(common, n);
        uint32_t k = n - i * topk;
        uint32_t row = first + i * op->blocks;
        const uint32_t *desc = (const uint32_t *)(const void *)(common->handle + common->in.descs +
                                                                row * common->in.desc_bytes);
        uint32_t entry = desc[1u + k];
        uint32_t weight = ist_load_u32(coop, weights + (uint64_t)desc[0] * topk + k, IST_RELAXED,
                                       IST_SCOPE_DEVICE);
        uint32_t peer = 0;
        IST_ROLLED
        while (desk->peers[peer + 1u].sent <= row) {
            ++peer;
        }
        if (peer != op->rank && ist_ep_was_active(coop, op, peer)) {
            uint64_t *there =
                ist_ep_asked_at(coop, op, op->rank, peer, row - desk->peers[peer].sent, k);
            ist_store_u64(coop, there, ist_ep_asked_tag(op) | entry, IST_RELAXED, IST_SCOPE_SYSTEM);
            ist_store_u64(coop, there + 1, ist_ep_asked_tag(op) | weight, IST_RELAXED,
                          IST_SCOPE_SYSTEM);
        }
    }
}

/** Phase 1: this block's share of the rows. Lane-parallel. */
IST_DEVICE_FN void ist_ep_ask(ist_coop *coop, const ist_ep_combine_args *args,
                              const ist_ep_op_view *op, const ist_ep_sum_desk *desk)
{
    uint32_t rows = desk->peers[op->ranks].sent;
    IST_ROLLED
    for (uint32_t first = ist_ep_place_of(op); !op->out && first < rows;) {
        uint32_t count = 0;
        uint32_t next = first;
        for (; count < IST_EP_SUM_ROWS && next < rows; next += op->blocks) {
            ++count;
        }
        ist_ep_ask_rows(coop, args, op, desk, first, count);
        first = next;
    }
}

/** What goes to one expert rank. The head names the dispatch whose rows are asked for. Lane. */
IST_DEVICE_FN void ist_ep_fill_request(ist_coop *coop, const ist_ep_op_view *op,
                                       const float *weights, uint32_t peer, ist_ep_parcel *parcel)
{
    const ist_ep_op_args *args = op->args;
    const ist_ep_layout_map *at = &args->at;
    const uint32_t *offsets = (const uint32_t *)(const void *)(args->handle + args->in.send_offset);
    uint32_t rows = offsets[peer + 1u] - offsets[peer];
    uint8_t *there = ist_ep_at_peer(coop, op, op->base, peer);
    ist_row_part *part = parcel->parts;
    ist_ep_fill_head(op, 0, rows, &parcel->head);
    parcel->head.window = 0;
    parcel->head.offset = ist_ep_handle_of(args)->dispatch_tag;
    parcel->first = offsets[peer];
    part[0].dst = there + at->meta + op->rank * at->meta_bytes;
    part[0].src = &parcel->head;
    part[0].bytes = sizeof(ist_ep_head);
    part[1].dst = there + at->descs + op->rank * at->descs_bytes + sizeof(ist_ep_stamp);
    part[1].src = args->handle + args->in.descs + offsets[peer] * args->in.desc_bytes;
    part[1].bytes = rows * args->in.desc_bytes;
    part[2].dst = there + at->weights + op->rank * at->weights_bytes + sizeof(ist_ep_stamp);
    part[2].src = weights;
    part[2].bytes = rows != 0 ? 4u * (uint64_t)args->token_count * args->topk : 0;
}

/** Phase 2. Between turns ist_ep_raise() syncs, behind the copies; after that each lane looks at its own
 *  mark alone, as there is no network. Collective. */
IST_DEVICE_FN void ist_ep_request_all(ist_coop *coop, const ist_ep_combine_args *args,
                                      const ist_ep_op_view *op, const ist_ep_sum_desk *desk)
{
    uint8_t *marks = ist_wire_marks_of(coop, op->room);
    ist_ep_parcel *parcels = (ist_ep_parcel *)(void *)desk->rows; /* nothing lies there yet */
    ist_wire_channel report = ist_ep_flag_of(op, IST_EP_ACK);
    uint32_t count = 0;
    IST_ROLLED
    for (uint32_t first = op->block; first < op->ranks; first += count * op->blocks) {
        count = ist_ep_served(op, first);
        IST_EACH_LANE (coop, i, count) {
            uint32_t peer = first + i * op->blocks;
            marks[i] = ist_ep_sends_to(coop, op, peer);
            ist_ep_fill_request(coop, op, args->weights, peer, &parcels[i]);
            ist_store_u64(coop, ist_wire_at(op->window, report.words, peer),
                          op->tag - IST_EP_SHARES, IST_RELAXED, IST_SCOPE_SYSTEM);
        }
        ist_coop_sync(coop);
        IST_ROLLED
        for (uint32_t i = 0; i < count; ++i) {
            if (marks[i]) {
                ist_row_copy_list(coop, parcels[i].parts, 3);
            }
        }
        ist_point(coop, "ep.reduced.written");
        ist_ep_raise(coop, op, IST_EP_READY, first, op->blocks, count, marks);
    }
}

/* ---- as a rank of experts ----------------------------------------------------------------------- */

/** Row `index` of all rows owed, this rank's own first: home and row of it. Lane. */
IST_DEVICE_FN uint32_t ist_ep_owed_by(const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                      uint32_t index, uint32_t *home)
{
    uint32_t own = desk->peers[op->rank + 1u].start - desk->peers[op->rank].start;
    uint32_t source = op->rank;
    if (index < own) {
        *home = source;
        return index;
    }
    index -= own;
    IST_ROLLED
    for (source = 0; source + 1u < op->ranks; ++source) {
        uint32_t rows =
            source == op->rank ? 0 : desk->peers[source + 1u].start - desk->peers[source].start;
        if (index < rows) {
            break;
        }
        index -= rows;
    }
    *home = source;
    return index;
}

/** Address of a row of this rank in a home's inbox. Lane. */
IST_DEVICE_FN void *ist_ep_inbox_at(ist_coop *coop, const ist_ep_op_view *op,
                                    const ist_ep_sum_desk *desk, uint32_t home, uint32_t row)
{
    uint64_t mine = desk->inbox + op->rank * op->args->at.partial_bytes;
    return ist_ep_at_peer(coop, op, mine, home) + (uint64_t)row * op->args->row_bytes;
}

/** Finds places and descriptors of rows index, index + blocks, … Lane-parallel. */
IST_DEVICE_FN void ist_ep_pick_owed(ist_coop *coop, const ist_ep_op_view *op,
                                    const ist_ep_sum_desk *desk, uint32_t first, uint32_t count)
{
    const ist_ep_op_args *args = op->args;
    const uint32_t *offsets = (const uint32_t *)(const void *)(args->handle + args->in.send_offset);
    uint64_t bytes = args->in.desc_bytes;
    const uint8_t *told = ist_ep_at(op, op->base + args->at.descs + sizeof(ist_ep_stamp));
    IST_EACH_LANE (coop, i, count) {
        uint32_t home = 0;
        uint32_t row = ist_ep_owed_by(op, desk, first + i * op->blocks, &home);
        int own = home == op->rank;
        int served = !desk->peers[home].refused &&
                     (own || ist_ep_desk_homes(op, desk)[home] == IST_WAIT_DONE);
        const uint8_t *descs = own ? args->handle + args->in.descs + offsets[home] * bytes
                                   : told + home * args->at.descs_bytes;
        desk->rows->home[i] = home;
        desk->rows->dst[i] = served ? ist_ep_inbox_at(coop, op, desk, home, row) : NULL;
        desk->rows->parts[i].dst = ist_ep_desk_descs(desk) + i * bytes;
        desk->rows->parts[i].src = descs + row * bytes;
        desk->rows->parts[i].bytes = served ? bytes : 0;
    }
}

/** Row of this rank's tensor for an entry of a home's descriptor; NULL: it does not exist. Lane. */
IST_DEVICE_FN const void *ist_ep_entry_of_home(const ist_ep_op_args *args, uint32_t home,
                                               uint32_t entry, uint32_t local)
{
    const uint32_t *bases =
        (const uint32_t *)(const void *)(args->handle + args->in.received_meta +
                                         home * args->at.meta_bytes + sizeof(ist_ep_head));
    uint64_t slots = (uint64_t)args->geometry.rank_count * args->geometry.tokens_max;
    uint32_t expert = entry >> 16;
    if (expert >= local) {
        return NULL;
    }
    uint64_t slot = (uint64_t)bases[expert] + (entry & 0xffffu);
    return slot < slots ? args->rows + (expert * slots + slot) * args->row_bytes : NULL;
}

/** Sources and weights of picked rows, a lane an entry. Lane-parallel. */
IST_DEVICE_FN void ist_ep_weigh_owed(ist_coop *coop, const ist_ep_combine_args *args,
                                     const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                     uint32_t count)
{
    const ist_ep_op_args *common = op->args;
    uint32_t topk = common->topk;
    uint32_t local = ist_ep_count_of(&common->geometry, op->rank);
    const uint8_t *told = ist_ep_at(op, op->base + common->at.weights + sizeof(ist_ep_stamp));
    IST_EACH_LANE (coop, n, count * topk) {
        uint32_t i = ist_ep_over_topk(common, n);
        uint32_t k = n - i * topk;
        const uint32_t *desc =
            (const uint32_t *)(const void *)(ist_ep_desk_descs(desk) + i * common->in.desc_bytes);
        const void *from = NULL;
        if (desk->rows->dst[i] != NULL && desc[1u + k] != IST_EP_ELSEWHERE) {
            uint32_t home = desk->rows->home[i];
            const uint32_t *weights =
                home == op->rank
                    ? (const uint32_t *)(const void *)args->weights
                    : (const uint32_t *)(const void *)(told + home * common->at.weights_bytes);
            from = ist_ep_entry_of_home(common, home, desc[1u + k], local);
            if (from == NULL || desc[0] >= common->geometry.tokens_max) {
                desk->peers[home].refused = 1;
                from = NULL;
            } else {
                desk->rows->weight[n] = ist_load_u32(coop, weights + (uint64_t)desc[0] * topk + k,
                                                     IST_RELAXED, IST_SCOPE_DEVICE);
            }
        }
        desk->rows->src[n] = from;
    }
}

/** Sums `rows` rows that the desk names. Collective. */
IST_DEVICE_FN void ist_ep_sum_batch(ist_coop *coop, const ist_ep_op_args *args,
                                    const ist_ep_sum_rows *desk, uint32_t rows, int weighted)
{
    ist_row_sums batch;
    batch.dst = desk->dst;
    batch.src = desk->src;
    batch.weight = weighted ? (const float *)(const void *)desk->weight : NULL;
    batch.elements = args->dtype == IST_F32 ? args->row_bytes / 4u : args->row_bytes / 2u;
    batch.stride = args->topk;
    batch.row_count = rows;
    batch.dtype = (ist_dtype)args->dtype;
    batch.reserved = 0;
    ist_row_reduce_batch(coop, &batch);
}

/** What this rank asks of itself for a row of its own: as the words of others say it. Lane. */
IST_DEVICE_FN void ist_ep_ask_itself(ist_coop *coop, const ist_ep_combine_args *args,
                                     const ist_ep_op_view *op, uint32_t row, uint32_t k,
                                     uint32_t *data)
{
    const ist_ep_op_args *common = op->args;
    const uint32_t *offsets =
        (const uint32_t *)(const void *)(common->handle + common->in.send_offset);
    const uint32_t *desc =
        (const uint32_t *)(const void *)(common->handle + common->in.descs +
                                         (offsets[op->rank] + row) * common->in.desc_bytes);
    const uint32_t *weights = (const uint32_t *)(const void *)args->weights;
    data[0] = desc[1u + k];
    data[1] = ist_load_u32(coop, weights + (uint64_t)desc[0] * common->topk + k, IST_RELAXED,
                           IST_SCOPE_DEVICE);
}

/** Number `i` of a block's first rows: those owed to others, then its own. */
IST_DEVICE_FN uint32_t ist_ep_nth_owed(const ist_ep_op_view *op, const ist_ep_first *first,
                                       uint32_t i)
{
    return i < first->others ? first->other + i * op->blocks
                             : ist_ep_place_of(op) + (i - first->others) * op->blocks;
}

/** Places of a block's first rows, and the words about them. Lane-parallel. */
IST_DEVICE_FN void ist_ep_find_asked(ist_coop *coop, const ist_ep_combine_args *args,
                                     const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                     const ist_ep_first *first)
{
    uint32_t topk = op->args->topk;
    IST_EACH_LANE (coop, n, (first->others + first->own) * topk) {
        uint32_t i = ist_ep_over_topk(op->args, n);
        uint32_t k = n - i * topk;
        uint32_t home = 0;
        uint32_t row = ist_ep_owed_by(op, desk, ist_ep_nth_owed(op, first, i), &home);
        int own = home == op->rank;
        int served = !desk->peers[home].refused && (own || ist_ep_was_active(coop, op, home));
        const uint64_t *word = NULL;
        if (own) {
            ist_ep_ask_itself(coop, args, op, row, k, &desk->words->data[2u * n]);
        } else if (served) {
            word = ist_ep_asked_at(coop, op, home, op->rank, row, k);
        }
        desk->words->from[2u * n] = word;
        desk->words->from[2u * n + 1u] = word != NULL ? word + 1 : NULL;
        if (k == 0) {
            desk->rows->home[i] = home;
            desk->rows->dst[i] = served ? ist_ep_inbox_at(coop, op, desk, home, row) : NULL;
        }
    }
}

/** Sources and weights of these rows, as the words say. Lane-parallel. */
IST_DEVICE_FN void ist_ep_weigh_asked(ist_coop *coop, const ist_ep_op_view *op,
                                      const ist_ep_sum_desk *desk, uint32_t count)
{
    uint32_t topk = op->args->topk;
    uint32_t local = ist_ep_count_of(&op->args->geometry, op->rank);
    IST_EACH_LANE (coop, n, count * topk) {
        uint32_t i = ist_ep_over_topk(op->args, n);
        uint32_t entry = desk->words->data[2u * n];
        const void *from = NULL;
        if (desk->rows->dst[i] != NULL && entry != IST_EP_ELSEWHERE) {
            from = ist_ep_entry_of_home(op->args, desk->rows->home[i], entry, local);
            desk->rows->weight[n] = desk->words->data[2u * n + 1u];
            if (from == NULL) {
                desk->peers[desk->rows->home[i]].refused = 1;
            }
        }
        desk->rows->src[n] = from;
    }
}

/** Phase 3: a block's first rows, by the words about them. @return whether they are done; 0: the words
 *  did not come. Collective. */
IST_DEVICE_FN int ist_ep_push_asked(ist_coop *coop, const ist_ep_combine_args *args,
                                    const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                    const ist_ep_first *first)
{
    uint32_t count = first->others + first->own;
    if (count == 0 || op->out) {
        return 0;
    }
    ist_ep_find_asked(coop, args, op, desk, first);
    uint64_t start = ist_clock_ns(coop);
    ist_coop_sync(coop); /* lanes wait for words that others have found */
    if (ist_coop_wait_tagged(coop, op->dev, desk->words->from, desk->words->data,
                             2u * count * op->args->topk, (uint32_t)op->tag,
                             start + op->args->deadline_ns / IST_WIRE_SLICES,
                             IST_SCOPE_SYSTEM) != IST_WAIT_DONE) {
        return 0;
    }
    ist_ep_weigh_asked(coop, op, desk, count);
    ist_coop_sync(coop);
    ist_ep_sum_batch(coop, op->args, desk->rows, count, 1);
    ist_coop_sync(coop); /* the desk is free again */
    return 1;
}

/** How many of a block's rows first, first + blocks, … below `end` are asked for by words. */
IST_DEVICE_FN uint32_t ist_ep_asked_count(const ist_ep_op_view *op, uint32_t first, uint32_t end)
{
    uint32_t count = 0;
    IST_ROLLED
    for (; count < IST_EP_ASKED_ROWS / 2u && first < end; first += op->blocks) {
        ++count;
    }
    return count;
}

/** Phases 4 and 5: this block's rows of [first, end) of all that are owed. Collective. */
IST_DEVICE_FN void ist_ep_pay_owed(ist_coop *coop, const ist_ep_combine_args *args,
                                   const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                   uint32_t first, uint32_t end)
{
    uint32_t count = 0;
    IST_ROLLED
    for (; first < end; first += count * op->blocks) {
        count = 1;
        while (count < IST_EP_SUM_ROWS && first + count * op->blocks < end) {
            ++count;
        }
        ist_ep_pick_owed(coop, op, desk, first, count);
        ist_coop_sync(coop);
        ist_row_copy_list(coop, desk->rows->parts, count);
        ist_coop_sync(coop);
        ist_ep_weigh_owed(coop, args, op, desk, count);
        ist_coop_sync(coop);
        ist_ep_sum_batch(coop, op->args, desk->rows, count, 1);
        ist_coop_sync(coop); /* the desk is free again, and the rows are there */
    }
}

/** The first row at or after `least` that is this block's. */
IST_DEVICE_FN uint32_t ist_ep_first_owed(const ist_ep_op_view *op, uint32_t least)
{
    uint32_t first = ist_ep_place_of(op);
    IST_ROLLED
    while (first < least) {
        first += op->blocks;
    }
    return first;
}

/* ---- the homes ---------------------------------------------------------------------------------- */

/** Compares what the homes have sent with what they must have; a sync must follow. That it is of this
 *  operation, the flag has said: a home writes nothing else before it has this rank's report, unless it
 *  has given this rank up, or waits for nobody any more, as its communicator has failed without fault
 *  tolerance; then nothing that is enqueued still counts. Lane-parallel. */
IST_DEVICE_FN void ist_ep_judge_homes(ist_coop *coop, const ist_ep_op_view *op,
                                      const ist_ep_sum_desk *desk)
{
    uint64_t shape = ist_ep_shape(op->args);
    uint64_t dispatch = ist_ep_handle_of(op->args)->dispatch_tag;
    IST_EACH_LANE (coop, home, op->ranks) {
        const ist_ep_head *head = (const ist_ep_head *)(const void *)ist_ep_at(
            op, op->base + op->args->at.meta + home * op->args->at.meta_bytes);
        if (ist_ep_desk_homes(op, desk)[home] == IST_WAIT_DONE) {
            uint64_t of = ist_load_u64(coop, &head->shape, IST_RELAXED, IST_SCOPE_SYSTEM);
            uint64_t asked = ist_load_u64(coop, &head->offset, IST_RELAXED, IST_SCOPE_SYSTEM);
            uint32_t rows = ist_load_u32(coop, &head->rows, IST_RELAXED, IST_SCOPE_SYSTEM);
            int whole = desk->peers[home].refused ||
                        rows == desk->peers[home + 1u].start - desk->peers[home].start;
            ist_ep_desk_homes(op, desk)[home] = of != shape || asked != dispatch
                                                    ? (uint8_t)IST_EP_RESULT_SHAPE
                                                : whole ? (uint8_t)IST_WAIT_DONE
                                                        : (uint8_t)IST_EP_RESULT_BROKEN;
        }
    }
}

/** Whether some home is neither served nor masked. Lane. */
IST_DEVICE_FN int ist_ep_homes_differ(const ist_ep_op_view *op, const uint8_t *homes)
{
    int differ = 0;
    IST_ROLLED
    for (uint32_t home = 0; home < op->ranks; ++home) {
        differ |= homes[home] != IST_WAIT_DONE && homes[home] != IST_WAIT_MASKED;
    }
    return differ;
}

/** Block 0: waits on, gives up, drops who does not fit, and says so, in a word that orders nothing: the
 *  others acquire the flags of those they serve by themselves. @return ist_wire_outcome. Collective. */
IST_DEVICE_RARE_FN uint32_t ist_ep_settle(ist_coop *coop, ist_ep_op_view op, ist_ep_sum_desk desk,
                                          ist_ep_late late)
{
    uint32_t outcome = ist_ep_begin_receive(coop, &op, &late, ist_ep_desk_homes(&op, &desk));
    if ((outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0) {
        ist_ep_judge_homes(coop, &op, &desk);
        outcome |=
            ist_ep_reject(coop, &op, ist_ep_desk_homes(&op, &desk)); /* it ends with a sync */
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &op.state->settled, op.tag << IST_EP_SETTLED_BITS | outcome,
                      IST_RELAXED, IST_SCOPE_DEVICE);
    }
    return outcome;
}

/** What block 0 has settled in this launch. @return ist_wire_outcome, or IST_WIRE_MORE: nothing yet.
 *  A sync must follow before anybody writes `now`. Collective. */
IST_DEVICE_FN uint32_t ist_ep_settled(ist_coop *coop, const ist_ep_op_view *op)
{
    ist_wire_scratch *head = ist_wire_scratch_of(coop, op->room);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        head->now = ist_load_u64(coop, &op->state->settled, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    uint64_t word = head->now;
    return word >> IST_EP_SETTLED_BITS == op->tag << IST_EP_SETTLED_BITS >> IST_EP_SETTLED_BITS
               ? (uint32_t)word & ((1u << IST_EP_SETTLED_BITS) - 1u)
               : (uint32_t)IST_WIRE_MORE;
}

/** Another block: waits until all homes are ready or masked, or block 0 has settled the matter, whose
 *  waits are bounded. It may have found all ready long ago: without fault tolerance a home that failed
 *  goes on, and its flag with it, so this wait has an end of its own. @return ist_wire_outcome.
 *  Collective. */
IST_DEVICE_RARE_FN uint32_t ist_ep_await_settled(ist_coop *coop, ist_ep_op_view op,
                                                 ist_ep_sum_desk desk)
{
    uint32_t outcome = IST_WIRE_MORE;
    IST_ROLLED
    for (uint32_t slice = 1; outcome == IST_WIRE_MORE; ++slice) {
        uint64_t start = ist_wire_now(coop, ist_wire_scratch_of(coop, op.room));
        outcome = ist_ep_settled(coop, &op);
        uint32_t missing =
            ist_ep_await_slice(coop, &op, IST_EP_READY, start, ist_ep_desk_homes(&op, &desk));
        ist_ep_judge_homes(coop, &op, &desk);
        ist_coop_sync(coop);
        int aborted = 0;
        IST_ROLLED
        for (uint32_t home = 0; missing != 0 && home < op.ranks; ++home) {
            aborted |= ist_ep_desk_homes(&op, &desk)[home] == IST_WAIT_ABORTED;
        }
        if (aborted) {
            outcome = IST_WIRE_ABORTED;
        } else if (outcome == IST_WIRE_MORE &&
                   !ist_ep_homes_differ(&op, ist_ep_desk_homes(&op, &desk))) {
            outcome = IST_WIRE_DONE;
        } else if (outcome == IST_WIRE_MORE && slice == 2u * IST_WIRE_SLICES_MAX) {
            outcome = IST_WIRE_LOST;
        }
    }
    return outcome;
}

/** Phase 5. @return ist_wire_outcome; IST_WIRE_DONE: all homes that are active are served.
 *  Collective. */
IST_DEVICE_FN uint32_t ist_ep_await_homes(ist_coop *coop, const ist_ep_op_view *op,
                                          const ist_ep_sum_desk *desk)
{
    ist_ep_late late;
    uint32_t outcome = IST_WIRE_DONE;
    late.start = ist_clock_ns(coop);
    late.waited =
        ist_ep_await_slice(coop, op, IST_EP_READY, late.start, ist_ep_desk_homes(op, desk)) != 0;
    late.alone = op->block == 0;
    ist_ep_judge_homes(coop, op, desk);
    ist_coop_sync(coop);
    int differ = ist_ep_homes_differ(op, ist_ep_desk_homes(op, desk));
    if (late.alone && (differ || op->out)) {
        IST_RARELY(coop, outcome = ist_ep_settle(coop, *op, *desk, late));
    } else if (differ) {
        IST_RARELY(coop, outcome = ist_ep_await_settled(coop, *op, *desk));
    }
    return outcome;
}

/** Phase 6. The rows are there after a sync. Lane-parallel. */
IST_DEVICE_FN void ist_ep_report(ist_coop *coop, const ist_ep_op_view *op,
                                 const ist_ep_sum_desk *desk)
{
    ist_wire_channel report = ist_ep_flag_of(op, IST_EP_ACK);
    const uint64_t *from =
        (const uint64_t *)(const void *)(op->args->handle + op->args->in.received_from);
    uint64_t share = op->block == 0 ? IST_EP_SHARES - (op->blocks - 1u) : 1u;
    IST_EACH_LANE (coop, home, op->ranks) {
        /* Refused is also whose rows this rank has never had: it knows, and gets its report. */
        if (ist_ep_desk_homes(op, desk)[home] == IST_WAIT_DONE &&
            (!desk->peers[home].refused || !ist_ep_is_in(from, home))) {
            uint64_t mine = report.words + 8u * (uint64_t)op->rank;
            (void)ist_fetch_add_u64(coop, (uint64_t *)(void *)ist_ep_at_peer(coop, op, mine, home),
                                    share, IST_RELEASE, IST_SCOPE_SYSTEM);
        }
    }
}

/* ---- as the home -------------------------------------------------------------------------------- */

/** Phase 7, block 0 by itself. Collective. */
IST_DEVICE_RARE_FN void ist_ep_reports_decide_apart(ist_coop *coop, ist_ep_op_view op,
                                                    ist_ep_late late, uint32_t outcome)
{
    uint8_t *results = ist_ep_results(coop, op.room);
    uint32_t failed = outcome & (IST_WIRE_LOST | IST_EP_MIXED);
    int counts = (outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0;
    if (counts && failed != 0 &&
        !ist_wire_tolerant(op.dev)) { /* a slice more, and for nobody's sake */
        (void)ist_ep_await_slice(coop, &op, IST_EP_ACK, late.start, results);
    } else if (counts && late.waited) {
        outcome |= ist_ep_await_on(coop, op, IST_EP_ACK, late.start, results);
    } else if (counts) {
        outcome |= ist_ep_await_peers(coop, &op, IST_EP_ACK, results);
    }
    ist_ep_publish(coop, &op, results, outcome);
}

/** Acquires the reports of all that a decision contains which other blocks took together: they have
 *  seen them, so they come here too. @return IST_WAIT_DONE or IST_WAIT_ABORTED. Collective. */
IST_DEVICE_RARE_FN ist_wait_result ist_ep_reports_catch_up(ist_coop *coop, ist_ep_op_view op,
                                                           uint64_t word)
{
    ist_wire_channel report = ist_ep_flag_of(&op, IST_EP_ACK);
    ist_wait_result result = IST_WAIT_DONE;
    IST_ROLLED
    for (uint32_t peer = 0; result == IST_WAIT_DONE && peer < op.ranks; ++peer) {
        if (word >> peer & 1u) { /* whole is also the largest that it becomes */
            const uint64_t *at = ist_wire_word(coop, op.dev, report.words, peer);
            result = ist_ep_await_word(coop, &op, at, op.tag, IST_SCOPE_SYSTEM);
        }
    }
    return result;
}

/** Takes over the launch's decision. Unlike ist_ep_adopt(), without a look at what peers have sent:
 *  this block has reported, so they may be further. Collective. */
IST_DEVICE_RARE_FN ist_ep_decision ist_ep_reports_adopt(ist_coop *coop, ist_ep_op_view op,
                                                        uint32_t alone)
{
    const uint64_t *verdict = (const uint64_t *)(const void *)ist_ep_at(&op, op.args->at.verdict);
    uint8_t *results = ist_ep_results(coop, op.room);
    ist_ep_decision decision;
    uint64_t word = alone ? IST_EP_DECIDED_APART : ist_ep_await_decision(coop, op);
    if ((word & IST_EP_DECIDED_TOGETHER) != 0 &&
        ist_ep_reports_catch_up(coop, op, word) != IST_WAIT_DONE) {
        word = 0;
    }
    decision = ist_ep_decision_of(word); /* behind a sync: of the waits, or of ist_ep_publish() */
    IST_EACH_LANE (coop, peer, op.ranks) {
        uint64_t in = decision.here ? word >> peer
                                    : ist_load_u64(coop, verdict + peer / 64u, IST_RELAXED,
                                                   IST_SCOPE_DEVICE) >>
                                          (peer % 64u);
        results[peer] = in & 1u ? (uint8_t)IST_WAIT_DONE : (uint8_t)IST_WAIT_MASKED;
    }
    if (word != 0 && !decision.here) {
        decision.outcome =
            (uint32_t)ist_load_u64(coop, &op.state->outcome, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    return decision;
}

/** Phase 7. `outcome` is that of phase 5. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_reports_decide(ist_coop *coop, const ist_ep_op_view *op,
                                                    uint32_t outcome)
{
    uint8_t *results = ist_ep_results(coop, op->room);
    int may = ist_ep_may_decide_together(op);
    ist_ep_late late;
    ist_ep_decision decision;
    decision.word = 0;
    decision.found = 0;
    decision.outcome = IST_WIRE_DONE;
    decision.here = 1;
    decision.pending = op->blocks > 1u;
    decision.reserved = 0;
    late.start = ist_clock_ns(coop);
    late.waited = 0;
    late.alone = op->block == 0;
    if (may && outcome == IST_WIRE_DONE) {
        late.waited = ist_ep_await_slice(coop, op, IST_EP_ACK, late.start, results) != 0;
    }
    if (may && outcome == IST_WIRE_DONE && !late.waited) {
        decision.word = IST_EP_DECIDED_TOGETHER;
        IST_ROLLED
        for (uint32_t peer = 0; peer < op->ranks; ++peer) {
            decision.word |= (uint64_t)(results[peer] == IST_WAIT_DONE) << peer;
        }
        if (op->blocks > 1u && ist_coop_elect(coop)) {
            decision.found = ist_ep_set_decision(coop, op, decision.word);
        }
        return decision;
    }
    if (may && late.alone) {
        IST_RARELY(coop, late.alone = ist_ep_claim(coop, *op) == IST_EP_DECIDED_CLAIMED);
    }
    if (late.alone) {
        IST_RARELY(coop, ist_ep_reports_decide_apart(coop, *op, late, outcome));
    }
    IST_RARELY(coop, decision = ist_ep_reports_adopt(coop, *op, late.alone));
    return decision;
}

/** Tokens first, first + blocks, …: where the sums of their ranks lie, and whose they are.
 *  Lane-parallel. */
IST_DEVICE_FN void ist_ep_find_sums(ist_coop *coop, const ist_ep_combine_args *args,
                                    const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                    uint32_t first, uint32_t count)
{
    const ist_ep_op_args *common = op->args;
    uint32_t topk = common->topk;
    const uint8_t *handle = common->handle;
    const int32_t *key = (const int32_t *)(const void *)(handle + common->in.key);
    const int32_t *owner = (const int32_t *)(const void *)(handle + common->in.owner);
    const uint32_t *row = (const uint32_t *)(const void *)(handle + common->in.row);
    const uint8_t *sums = ist_ep_at(op, desk->inbox);
    IST_EACH_LANE (coop, n, count * topk) {
        uint32_t i = ist_ep_over_topk(common, n);
        uint64_t entry = (uint64_t)(first + i * op->blocks) * topk + (n - i * topk);
        uint32_t rank = (uint32_t)key[entry];
        desk->tokens->src[n] = rank < op->ranks ? sums + rank * common->at.partial_bytes +
                                                      row[entry] * common->row_bytes
                                                : NULL;
        desk->tokens->rank[n] = (uint32_t)owner[entry];
        if (n == i * topk) {
            desk->tokens->dst[i] =
                args->out + (uint64_t)(first + i * op->blocks) * common->row_bytes;
        }
    }
}

/** Leaves out the ranks that do not count; a sync must follow. Lane-parallel. */
IST_DEVICE_FN void ist_ep_strike_sums(ist_coop *coop, const ist_ep_op_view *op,
                                      const ist_ep_sum_desk *desk, uint32_t count)
{
    const uint8_t *results = ist_ep_results(coop, op->room);
    IST_EACH_LANE (coop, n, count * op->args->topk) {
        uint32_t rank = desk->tokens->rank[n];
        if (rank < op->ranks && (results[rank] != IST_WAIT_DONE || !desk->peers[rank].acked)) {
            desk->tokens->src[n] = NULL;
        } else {
            desk->tokens->rank[n] = UINT32_MAX; /* not lacking */
        }
    }
}

/** Contributions that tokens lack, for the caller. Lane-parallel. */
IST_DEVICE_FN void ist_ep_count_lacking(ist_coop *coop, const ist_ep_combine_args *args,
                                        const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                        uint32_t first, uint32_t count)
{
    uint32_t topk = op->args->topk;
    IST_EACH_LANE (coop, i, args->lost_counts != NULL ? count : 0u) {
        uint32_t lacking = 0;
        IST_ROLLED
        for (uint32_t k = 0; k < topk; ++k) {
            lacking += desk->tokens->rank[i * topk + k] < op->ranks;
        }
        ist_store_u32(coop, (uint32_t *)&args->lost_counts[first + i * op->blocks], lacking,
                      IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

/** How many of this block's tokens from `first` on are summed between two syncs. */
IST_DEVICE_FN uint32_t ist_ep_sum_count(const ist_ep_op_view *op, uint32_t first)
{
    uint32_t count = 0;
    IST_ROLLED
    while (count < IST_EP_SUM_ROWS && first + count * op->blocks < op->args->token_count) {
        ++count;
    }
    return count;
}

/** Phase 8. `found`: the first tokens are on the desk. Collective. */
IST_DEVICE_FN void ist_ep_sum_all(ist_coop *coop, const ist_ep_combine_args *args,
                                  const ist_ep_op_view *op, const ist_ep_sum_desk *desk, int found)
{
    uint32_t count = 0;
    IST_ROLLED
    for (uint32_t first = ist_ep_place_of(op); first < op->args->token_count;
         first += count * op->blocks) {
        count = ist_ep_sum_count(op, first);
        if (!found) {
            ist_coop_sync(coop); /* the desk is free */
            ist_ep_find_sums(coop, args, op, desk, first, count);
        }
        found = 0;
        ist_ep_strike_sums(coop, op, desk, count); /* by the lane that found them */
        ist_coop_sync(coop);
        ist_ep_sum_batch(coop, op->args, desk->tokens, count, 0);
        ist_ep_count_lacking(coop, args, op, desk, first, count);
    }
}

/** Phases 7 and 8. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_gather(ist_coop *coop, const ist_ep_combine_args *args,
                                            const ist_ep_op_view *op, const ist_ep_sum_desk *desk,
                                            uint32_t outcome)
{
    int found = 1; /* the first tokens are */
    ist_ep_decision decision = ist_ep_reports_decide(coop, op, outcome);
    if (op->block == 0) {
        ist_point(coop, "ep.reduced.decided");
    }
    while ((decision.outcome & IST_WIRE_ABORTED) == 0) {
        ist_ep_sum_all(coop, args, op, desk, found);
        if (ist_ep_confirm(coop, op, &decision)) {
            break;
        }
        found = 0;
        IST_RARELY(coop, decision = ist_ep_reports_adopt(coop, *op, 0));
    }
    return decision;
}

/* ---- the end -------------------------------------------------------------------------------------- */

/** Looks for notices, where the last block finds them after a sync. One that comes later is found by
 *  the next operation. Lane-parallel. */
IST_DEVICE_FN void ist_ep_glance_notices(ist_coop *coop, const ist_ep_op_view *op,
                                         const ist_ep_sum_desk *desk)
{
    ist_wire wire = ist_ep_wire_of(op);
    IST_EACH_LANE (coop, peer, op->ranks) {
        uint64_t notice = ist_load_u64(coop, ist_wire_word(coop, wire.service, wire.notices, peer),
                                       IST_RELAXED, IST_SCOPE_SYSTEM);
        desk->peers[peer].noticed = notice >> IST_WIRE_EPOCH_BITS >= op->generation;
    }
}

/** Somebody is missing, or this rank is out: why, and who must be told. @return what it adds to the
 *  outcome. Collective. */
IST_DEVICE_RARE_FN uint32_t ist_ep_reduced_missing(ist_coop *coop, ist_ep_op_view op)
{
    uint8_t *results = ist_ep_results(coop, op.room);
    ist_point(coop, "ep.reduced.missing");
    uint32_t outcome = ist_ep_settled(coop, &op);
    outcome = outcome == IST_WIRE_MORE ? (uint32_t)IST_WIRE_DONE : outcome;
    ist_ep_notify_silent(coop, op, results);
    return outcome | ist_ep_look_again(coop, op);
}

/** Phase 9. Collective. */
IST_DEVICE_FN void ist_ep_reduced_conclude(ist_coop *coop, const ist_ep_op_view *op,
                                           const ist_ep_sum_desk *desk, uint32_t outcome)
{
    const uint8_t *results = ist_ep_results(coop, op->room);
    uint64_t *whole = ist_ep_whole_of(coop, op->room);
    int missing = outcome != IST_WIRE_DONE;
    if ((outcome & (IST_WIRE_ABORTED | IST_EP_FOREIGN)) == 0) {
        uint64_t word = 0;
        IST_ROLLED
        for (uint32_t peer = 0; peer < op->ranks; ++peer) {
            int here = results[peer] == IST_WAIT_DONE && desk->peers[peer].acked;
            word = peer % 64u == 0 ? 0 : word;
            word |= (uint64_t)here << (peer % 64u);
            missing |= !here || desk->peers[peer].noticed;
            if (ist_coop_elect(coop)) {
                whole[peer / 64u] = word;
            }
        }
        if (missing) {
            IST_RARELY(coop, outcome |= ist_ep_reduced_missing(coop, *op));
        }
        ist_point(coop, "ep.reduced.ended");
    }
    ist_ep_write_record(coop, op, outcome);
}

/** Phases 3 to 8. Collective. */
IST_DEVICE_FN ist_ep_decision ist_ep_reduced_receive(ist_coop *coop,
                                                     const ist_ep_combine_args *args,
                                                     const ist_ep_op_view *op,
                                                     const ist_ep_sum_desk *desk)
{
    uint32_t own = desk->peers[op->rank + 1u].start - desk->peers[op->rank].start;
    uint32_t all = desk->peers[op->ranks].start;
    ist_ep_first first;
    first.other = ist_ep_first_owed(op, own);
    first.others = ist_ep_asked_count(op, first.other, all);
    first.own = ist_ep_asked_count(op, ist_ep_place_of(op), own);
    first.reserved = 0;
    ist_ep_find_sums(coop, args, op, desk, ist_ep_place_of(op),
                     ist_ep_sum_count(op, ist_ep_place_of(op)));
    uint32_t done = ist_ep_push_asked(coop, args, op, desk, &first) ? op->blocks : 0;
    ist_point(coop, "ep.reduced.pushed");
    ist_ep_pay_owed(coop, args, op, desk, ist_ep_place_of(op) + done * first.own, own);
    uint32_t outcome = ist_ep_await_homes(coop, op, desk);
    ist_point(coop, "ep.reduced.ready");
    if ((outcome & (IST_WIRE_EVICTED | IST_WIRE_ABORTED)) == 0) {
        ist_ep_pay_owed(coop, args, op, desk, first.other + done * first.others, all);
        ist_ep_report(coop, op, desk);
        ist_point(coop, "ep.reduced.reported");
    }
    ist_ep_decision decision = ist_ep_gather(coop, args, op, desk, outcome);
    ist_point(coop, "ep.reduced.summed");
    ist_ep_glance_notices(coop, op, desk);
    return decision;
}

/** The next reduced combine of this slot uses the other half of the inbox. Lane-parallel. */
IST_DEVICE_FN void ist_ep_take_turns(ist_coop *coop, const ist_ep_op_view *op)
{
    if (ist_coop_elect(coop)) {
        uint64_t turns = ist_load_u64(coop, &op->state->turns, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, &op->state->turns, turns ^ UINT64_C(1) << op->slot, IST_RELAXED,
                      IST_SCOPE_DEVICE);
    }
}

/** All phases. `text` is a constant. Collective. */
IST_DEVICE_FN void ist_ep_reduced_run(ist_coop *coop, const ist_ep_combine_args *args,
                                      ist_ep_text text)
{
    ist_ep_op_view op;
    ist_ep_decision decision = {0, 0, 0, 0, 0, 0};
    ist_ep_enter(coop, &args->op, text, &op);
    op.stages = 0;
    ist_ep_sum_desk desk = ist_ep_sum_desk_of(coop, &op);
    uint32_t outcome = op.valid ? IST_WIRE_DONE : IST_EP_FOREIGN;
    if (outcome == IST_WIRE_DONE) {
        ist_ep_sum_desk_fill(coop, &op, &desk);
        ist_coop_sync(coop);
    }
    if (outcome == IST_WIRE_DONE && (op.halves & IST_EP_SEND)) {
        ist_point(coop, "ep.reduced.begin");
        ist_ep_ask(coop, args, &op, &desk);
        ist_ep_request_all(coop, args, &op, &desk);
        ist_point(coop, "ep.reduced.sent");
    }
    ist_ep_announce(coop, &op);
    if (outcome == IST_WIRE_DONE && (op.halves & IST_EP_RECEIVE)) {
        decision = ist_ep_reduced_receive(coop, args, &op, &desk);
        outcome = decision.outcome;
    }
    if (ist_ep_is_last(coop, &op)) {
        if (op.halves & IST_EP_RECEIVE) {
            ist_ep_reduced_conclude(coop, &op, &desk, outcome);
            ist_ep_take_turns(coop, &op);
        }
        ist_ep_advance(coop, &op, outcome);
    }
}

IST_KERNEL(ep_combine_reduced, ist_ep_combine_args)
{
    ist_ep_reduced_run(coop, args, IST_EP_TEXT_ANY);
}

IST_KERNEL(ep_combine_reduced_by_expert, ist_ep_combine_args)
{
    ist_ep_reduced_run(coop, args, IST_EP_TEXT_BY_EXPERT);
}
