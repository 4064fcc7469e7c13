/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep_layout.h
 * Where everything of an expert-parallel group lies: its window, its handles' memory, its reports.
 * One text for host and device; nothing else computes an offset.
 */
#ifndef IST_EP_LAYOUT_H
#define IST_EP_LAYOUT_H

#include "../kernel_layout.h"

#define IST_EP_RANKS_MAX 2048u    /* scratch of the kernels is dimensioned for it */
#define IST_EP_TOKENS_MAX 65535u  /* ordinals travel in 16 bits */
#define IST_EP_EXPERTS_MAX 65535u /* so do local experts */
#define IST_EP_SLOTS_MAX 8u
#define IST_EP_ROW_BYTES_MAX (UINT64_C(1) << 24)

#define IST_EP_CHUNK_BYTES 8192u   /* metadata that a block holds at a time */
#define IST_EP_LOCAL_SCRATCH 2032u /* most local experts whose metadata fits scratch */

/* ---- geometry -------------------------------------------------------------------------------- */

/** What all sizes follow from; equal on all ranks but for `block_count`. */
typedef struct ist_ep_geometry {
    uint32_t rank_count;   /**< R */
    uint32_t lsa_size;     /**< ranks of a load/store team; teams are aligned blocks */
    uint32_t expert_count; /**< E */
    uint32_t tokens_max;   /**< M */
    uint32_t topk_max;
    uint32_t slot_count;  /**< operations in flight */
    uint32_t staging;     /**< 1: plain operands are staged; 0: pulled operands are windows */
    uint32_t block_count; /**< of every dispatch and combine of this rank */
    uint64_t row_bytes_max;
    uint32_t expert_base;  /**< E / R: a division takes a GPU as long as a load */
    uint32_t expert_extra; /**< E % R */
    uint32_t reduced;      /**< 1: EXPERT_MAJOR rows are summed by expert rank before they travel */
    uint32_t reserved;
} ist_ep_geometry;

/** First expert of a rank: the first E % R ranks hold one more than the others. */
IST_LAYOUT_FN uint32_t ist_ep_expert_first(uint32_t experts, uint32_t ranks, uint32_t rank)
{
    uint32_t extra = experts % ranks;
    return rank * (experts / ranks) + (rank < extra ? rank : extra);
}

/** Experts of a rank. */
IST_LAYOUT_FN uint32_t ist_ep_expert_local_count(uint32_t experts, uint32_t ranks, uint32_t rank)
{
    return experts / ranks + (rank < experts % ranks ? 1u : 0u);
}

/** Rank that holds an expert. */
IST_LAYOUT_FN uint32_t ist_ep_expert_rank(uint32_t experts, uint32_t ranks, uint32_t expert)
{
    uint32_t base = experts / ranks;
    uint32_t extra = experts % ranks;
    uint32_t in_longer = extra * (base + 1u);
    return expert < in_longer ? expert / (base + 1u) : extra + (expert - in_longer) / base;
}

/** ist_ep_expert_first() without a division. */
IST_LAYOUT_FN uint32_t ist_ep_first_of(const ist_ep_geometry *geometry, uint32_t rank)
{
    uint32_t extra = geometry->expert_extra;
    return rank * geometry->expert_base + (rank < extra ? rank : extra);
}

/** ist_ep_expert_local_count() without a division. */
IST_LAYOUT_FN uint32_t ist_ep_count_of(const ist_ep_geometry *geometry, uint32_t rank)
{
    return geometry->expert_base + (rank < geometry->expert_extra ? 1u : 0u);
}

/** Most experts of any rank. */
IST_LAYOUT_FN uint32_t ist_ep_local_max(const ist_ep_geometry *geometry)
{
    return geometry->expert_count / geometry->rank_count +
           (geometry->expert_count % geometry->rank_count != 0 ? 1u : 0u);
}

/** Ranks outside a load/store team. */
IST_LAYOUT_FN uint32_t ist_ep_gin_count(const ist_ep_geometry *geometry)
{
    return geometry->rank_count - geometry->lsa_size;
}

/** Number of `peer` among the ranks outside the team of `rank`; peer must be outside. */
IST_LAYOUT_FN uint32_t ist_ep_gin_index(const ist_ep_geometry *geometry, uint32_t rank,
                                        uint32_t peer)
{
    uint32_t first = rank - rank % geometry->lsa_size;
    return peer < first ? peer : peer - geometry->lsa_size;
}

/** Words of a set of ranks. */
IST_LAYOUT_FN uint32_t ist_ep_word_count(uint32_t ranks)
{
    return (ranks + 63u) / 64u;
}

/** Most rows that all ranks together can send to one. */
IST_LAYOUT_FN uint64_t ist_ep_received_max(const ist_ep_geometry *geometry)
{
    uint32_t local = ist_ep_local_max(geometry);
    uint32_t entries = geometry->topk_max < local ? geometry->topk_max : local;
    return (uint64_t)geometry->rank_count * geometry->tokens_max * entries;
}

/* ---- records in memory ------------------------------------------------------------------------ */

/** Head of an operation's metadata from one rank to another. u32 follow, [Lmax]: counts (dispatch),
 *  slot bases of the home's entries (EXPERT_MAJOR combine). */
typedef struct ist_ep_head {
    uint64_t tag;     /**< of the operation */
    uint64_t shape;   /**< operation, layout, K, type and row bytes: must be equal on both sides */
    uint64_t offset;  /**< of the rows, in the window */
    uint32_t window;  /**< where the rows lie at the sender */
    uint32_t rows;    /**< rows for this receiver (dispatch) */
    uint32_t tokens;  /**< rows that lie at `offset` (dispatch) */
    uint32_t entries; /**< sum of the counts (EXPERT_MAJOR dispatch) */
    uint32_t reserved[2];
    uint64_t start; /**< rows that the expert rank got from lower ranks than the home (combine) */
    uint64_t reserved2;
} ist_ep_head;

/** In front of what travels by itself: descriptors, weights, rows. */
typedef struct ist_ep_stamp {
    uint64_t tag;
    uint64_t key; /**< rows: token (dispatch) or token << 32 | k (combine); else 0 */
} ist_ep_stamp;

/** A descriptor: u32 token, then for each k local expert << 16 | ordinal, or IST_EP_ELSEWHERE. */
#define IST_EP_ELSEWHERE UINT32_MAX

/** Group state that is constant while a kernel runs, and changed by its last block. */
typedef struct ist_ep_state_head {
    uint64_t epoch;       /**< operations since the last clean */
    uint64_t busy;        /**< bit s: slot s is in flight */
    uint64_t staged_base; /**< the words below when the kernel began */
    uint64_t left_base;
} ist_ep_state_head;

/** Group state; the words that blocks wait for only grow while a kernel runs. */
typedef struct ist_ep_state {
    ist_ep_state_head head;
    uint64_t staged;   /**< blocks that have staged their rows */
    uint64_t decided;  /**< a decision; 0: this launch has none, and between launches */
    uint64_t left;     /**< blocks that have left a kernel */
    uint64_t outcome;  /**< of a decision that lies apart */
    uint64_t position; /**< of the first wait of the receive half that runs */
    uint64_t settled;  /**< a settlement, see ep_reduce.c */
    uint64_t turns;    /**< bit s: which half of the sums the next reduced combine of slot s uses */
} ist_ep_state;

/** A settlement: tag << 8 | ist_wire_outcome. */
#define IST_EP_SETTLED_BITS 8u

/** A decision: together, and who takes part, a bit a rank; or apart, and 1 once the verdict is there. */
#define IST_EP_DECIDED_RANKS_MAX 32u
#define IST_EP_DECIDED_TOGETHER (UINT64_C(1) << 32)
#define IST_EP_DECIDED_CLAIMED (UINT64_C(1) << 33)
#define IST_EP_DECIDED_APART (IST_EP_DECIDED_CLAIMED | 1u)

/* ---- the window ------------------------------------------------------------------------------- */

/** Flags of an operation; ACK says "I have read yours". */
typedef enum ist_ep_flag { IST_EP_READY = 0, IST_EP_ACK = 1, IST_EP_FLAGS = 2 } ist_ep_flag;

/** Offsets in bytes. Those after `slots` are relative to a slot. */
typedef struct ist_ep_layout_map {
    uint64_t state;   /**< ist_ep_state */
    uint64_t words;   /**< u64 [channels][R] */
    uint64_t sent;    /**< u64 [channels][R] */
    uint64_t verdict; /**< u64 [W]: sources whose rows count, of a decision that lies apart */
    uint64_t broken;  /**< u64 [W]: sources found broken while copying; zero between operations */
    uint64_t work;    /**< [blocks] work_bytes; block-private */
    uint64_t work_bytes;
    uint64_t slots;
    uint64_t slot_bytes;
    uint64_t meta; /**< [R] meta_bytes: ist_ep_head and counts, by source */
    uint64_t meta_bytes;
    uint64_t descs; /**< [R] descs_bytes: stamp and descriptors, by source */
    uint64_t descs_bytes;
    uint64_t weights; /**< [R] weights_bytes: stamp and f32 [M][K], by source */
    uint64_t weights_bytes;
    uint64_t stage;         /**< dispatch rows [M] that the team pulls */
    uint64_t stage_packed;  /**< combine rows that the team pulls, by home */
    uint64_t partial;       /**< [2][R][M] rows: sums of the expert ranks, by turn, rank and row */
    uint64_t partial_bytes; /**< of a rank */
    uint64_t asked;       /**< [R] u64 [M][K][2]: what homes ask for, by home, row and k, tagged */
    uint64_t asked_bytes; /**< of a home */
    uint64_t out_meta;    /**< [G]: the same records, to be put */
    uint64_t out_descs;
    uint64_t out_weights;
    uint64_t message_bytes;    /**< distance of stamped rows */
    uint64_t stage_put;        /**< dispatch messages [M] */
    uint64_t stage_put_packed; /**< combine messages, by home */
    uint64_t inbox;            /**< dispatch messages [G][M] */
    uint64_t inbox_packed;     /**< combine messages [M][K] */
    uint64_t bytes;            /**< of the window */
} ist_ep_layout_map;

/** Channels of flags: those of the slots, then drain and close of the clean. */
IST_LAYOUT_FN uint32_t ist_ep_channel_count(const ist_ep_geometry *geometry)
{
    return IST_EP_FLAGS * geometry->slot_count + 2u;
}

/** Bytes of a descriptor of K entries. */
IST_LAYOUT_FN uint64_t ist_ep_desc_bytes(uint32_t topk)
{
    return ist_layout_round(4u + 4u * (uint64_t)topk, 16);
}

/** The part of a slot that exists for every group. */
IST_LAYOUT_FN uint64_t ist_ep_layout_slot(const ist_ep_geometry *geometry, ist_ep_layout_map *at)
{
    uint64_t ranks = geometry->rank_count;
    uint64_t tokens = geometry->tokens_max;
    uint64_t end = 0;
    at->meta = ist_layout_take(&end, ranks * at->meta_bytes);
    at->descs = ist_layout_take(&end, ranks * at->descs_bytes);
    at->weights = ist_layout_take(&end, ranks * at->weights_bytes);
    uint64_t staged = geometry->staging && geometry->lsa_size > 1 ? 1u : 0u;
    at->stage = ist_layout_take(&end, staged * tokens * geometry->row_bytes_max);
    at->stage_packed =
        ist_layout_take(&end, staged * ist_ep_received_max(geometry) * geometry->row_bytes_max);
    at->partial = ist_layout_take(&end, 2u * geometry->reduced * ranks * at->partial_bytes);
    at->asked = ist_layout_take(&end, geometry->reduced * ranks * at->asked_bytes);
    return end;
}

/** The part of a slot for peers on the network. */
IST_LAYOUT_FN uint64_t ist_ep_layout_gin(const ist_ep_geometry *geometry, ist_ep_layout_map *at,
                                         uint64_t end)
{
    uint64_t peers = ist_ep_gin_count(geometry);
    uint64_t tokens = peers != 0 ? geometry->tokens_max : 0;
    uint64_t received = peers != 0 ? ist_ep_received_max(geometry) : 0;
    at->out_meta = ist_layout_take(&end, peers * at->meta_bytes);
    at->out_descs = ist_layout_take(&end, peers * at->descs_bytes);
    at->out_weights = ist_layout_take(&end, peers * at->weights_bytes);
    at->stage_put = ist_layout_take(&end, tokens * at->message_bytes);
    at->stage_put_packed = ist_layout_take(&end, received * at->message_bytes);
    at->inbox = ist_layout_take(&end, peers * tokens * at->message_bytes);
    at->inbox_packed = ist_layout_take(&end, tokens * geometry->topk_max * at->message_bytes);
    return end;
}

/** Layout of a group's window. */
IST_LAYOUT_FN ist_ep_layout_map ist_ep_layout_of(const ist_ep_geometry *geometry)
{
    ist_ep_layout_map at;
    uint64_t ranks = geometry->rank_count;
    uint64_t local = ist_ep_local_max(geometry);
    uint64_t channels = ist_ep_channel_count(geometry);
    uint64_t end = 0;
    at.meta_bytes = ist_layout_round(sizeof(ist_ep_head) + 4u * local, 16);
    at.descs_bytes =
        sizeof(ist_ep_stamp) + geometry->tokens_max * ist_ep_desc_bytes(geometry->topk_max);
    at.weights_bytes = ist_layout_round(
        sizeof(ist_ep_stamp) + 4u * (uint64_t)geometry->tokens_max * geometry->topk_max, 16);
    at.message_bytes = ist_layout_round(sizeof(ist_ep_stamp) + geometry->row_bytes_max, 16);
    at.asked_bytes = 16u * (uint64_t)geometry->tokens_max * geometry->topk_max;
    at.partial_bytes = ist_layout_round(geometry->tokens_max * geometry->row_bytes_max, 16);
    at.work_bytes = local > IST_EP_LOCAL_SCRATCH
                        ? ist_layout_round(at.meta_bytes + 4u * local, IST_LAYOUT_LINE)
                        : 0;
    at.state = ist_layout_take(&end, sizeof(ist_ep_state));
    at.words = ist_layout_take(&end, 8u * channels * ranks);
    at.sent = ist_layout_take(&end, 8u * channels * ranks);
    at.verdict = ist_layout_take(&end, 8u * (uint64_t)ist_ep_word_count(geometry->rank_count));
    at.broken = ist_layout_take(&end, 8u * (uint64_t)ist_ep_word_count(geometry->rank_count));
    at.slot_bytes = ist_ep_layout_gin(geometry, &at, ist_ep_layout_slot(geometry, &at));
    at.slot_bytes = ist_layout_round(at.slot_bytes, IST_LAYOUT_LINE);
    at.slots = ist_layout_take(&end, at.slot_bytes * geometry->slot_count);
    at.work = ist_layout_take(&end, at.work_bytes * geometry->block_count);
    at.bytes = ist_layout_round(end, IST_LAYOUT_LINE);
    return at;
}

/* ---- handle memory ---------------------------------------------------------------------------- */

#define IST_EP_HANDLE_MAGIC UINT64_C(0x31706568746d7369) /* "ismthep1" */
#define IST_EP_HANDLE_VERSION 1u

/** Start of handle memory: what it is, and what the operations left. */
typedef struct ist_ep_handle_head {
    uint64_t magic;
    uint32_t version;
    uint32_t layout; /**< ist_ep_layout */
    uint32_t rank_count, expert_count, tokens_max, topk;
    uint32_t rank;
    uint32_t token_count; /**< N */
    uint32_t topk_dtype;
    int32_t route_status;  /**< IST_OK, or of the first bad id */
    uint64_t updates;      /**< how often it was routed */
    uint64_t checksum;     /**< over the geometry above */
    uint64_t dispatch_tag; /**< of the last dispatch, 0: none since the update */
    uint64_t pending_tag;  /**< of the staged operation, 0: none */
    uint64_t pending_generation;
    uint64_t pending_slot;
} ist_ep_handle_head;

/** Offsets in bytes from the start of handle memory. */
typedef struct ist_ep_handle_map {
    uint64_t ids;            /**< i64 or i32 [M][K], as given */
    uint64_t idx;            /**< i32 [M][K], bad ones -1 */
    uint64_t owner;          /**< i32 [M][K], rank of the entry's expert, bad ones -1 */
    uint64_t key;            /**< i32 [M][K], the owner at its first k in the token, else -1 */
    uint64_t ordinal;        /**< u32 [M][K], of the entry among this rank's of the same expert */
    uint64_t row;            /**< u32 [M][K], of the token among this rank's of the same rank */
    uint64_t expert_entries; /**< u32 [E], entries for each expert */
    uint64_t expert_within;  /**< u32 [E], entries for lower experts of the same rank */
    uint64_t send_count;     /**< u32 [R], rows for each rank */
    uint64_t send_offset;    /**< u32 [R + 1] */
    uint64_t descs;          /**< descriptors by (rank, token) */
    uint64_t desc_bytes;
    uint64_t weights;        /**< f32 [rows][K], as the descriptors (RANK_MAJOR) */
    uint64_t acked;          /**< u64 [W]: ranks that answered the last dispatch */
    uint64_t received;       /**< u32 [R + 1]: rows received from lower ranks */
    uint64_t received_from;  /**< u64 [W]: ranks whose rows were received whole */
    uint64_t received_meta;  /**< [R + 1] meta_bytes: slot bases by source, then totals */
    uint64_t received_descs; /**< [G][M] descriptors of network peers */
    uint64_t owed_meta; /**< [R] meta_bytes, by expert rank: a combine decided apart keeps them */
    uint64_t bytes;
} ist_ep_handle_map;

/** Layout of a handle's memory for K entries a token. */
IST_LAYOUT_FN ist_ep_handle_map ist_ep_handle_map_of(const ist_ep_geometry *geometry,
                                                     const ist_ep_layout_map *at, uint32_t topk)
{
    ist_ep_handle_map in;
    uint64_t entries = (uint64_t)geometry->tokens_max * topk;
    uint64_t ranks = geometry->rank_count;
    uint64_t fan = topk < geometry->rank_count ? topk : geometry->rank_count;
    uint64_t rows = geometry->tokens_max * fan;
    uint64_t words = ist_ep_word_count(geometry->rank_count);
    uint64_t end = sizeof(ist_ep_handle_head);
    in.desc_bytes = ist_ep_desc_bytes(topk);
    in.ids = ist_layout_take(&end, 8u * entries);
    in.idx = ist_layout_take(&end, 4u * entries);
    in.owner = ist_layout_take(&end, 4u * entries);
    in.key = ist_layout_take(&end, 4u * entries);
    in.ordinal = ist_layout_take(&end, 4u * entries);
    in.row = ist_layout_take(&end, 4u * entries);
    in.expert_entries = ist_layout_take(&end, 4u * (uint64_t)geometry->expert_count);
    in.expert_within = ist_layout_take(&end, 4u * (uint64_t)geometry->expert_count);
    in.send_count = ist_layout_take(&end, 4u * ranks);
    in.send_offset = ist_layout_take(&end, 4u * (ranks + 1u));
    in.descs = ist_layout_take(&end, rows * in.desc_bytes);
    in.weights = ist_layout_take(&end, 4u * rows * topk);
    in.acked = ist_layout_take(&end, 8u * words);
    in.received = ist_layout_take(&end, 4u * (ranks + 1u));
    in.received_from = ist_layout_take(&end, 8u * words);
    in.received_meta = ist_layout_take(&end, (ranks + 1u) * at->meta_bytes);
    in.received_descs = ist_layout_take(&end, (uint64_t)ist_ep_gin_count(geometry) *
                                                  geometry->tokens_max * in.desc_bytes);
    in.owed_meta = ist_layout_take(&end, ranks * at->meta_bytes);
    in.bytes = ist_layout_round(end, 4096);
    return in;
}

/* ---- reports, in host-visible memory ----------------------------------------------------------- */

/** How the last routing ended. */
typedef struct ist_ep_route_report {
    uint64_t update; /**< number of the update, written last */
    int32_t status;  /**< IST_OK, IST_ERR_RANGE (id), IST_ERR_ARGUMENT (twice in a token) */
    uint32_t token;
    uint32_t k;
    uint32_t reserved;
    int64_t id;
} ist_ep_route_report;

/** How the last dispatch or combine ended; u64 lost[W] follow. */
typedef struct ist_ep_record_head {
    uint64_t started;  /**< tag of the last operation that began */
    uint64_t done;     /**< tag of the last that ended, written last */
    uint64_t issue;    /**< number of the last ended call that was not captured in a graph */
    uint64_t sequence; /**< tag */
    uint64_t generation;
    int32_t status;
    uint32_t complete;
    uint32_t lost_count;
    uint32_t reserved;
    uint64_t check; /**< ist_ep_record_check(): the words are of one operation */
} ist_ep_record_head;

/**
 * What `check` must be. The words are stored in any order: a release at system scope to the host's
 * memory takes a GPU as long as a hop to a peer. Whoever reads them goes by this instead. `lost`:
 * ist_ep_record_mix() of all words of lost ranks.
 */
IST_LAYOUT_FN uint64_t ist_ep_record_check(const ist_ep_record_head *record, uint64_t lost)
{
    uint64_t sum = record->done * UINT64_C(0x9e3779b97f4a7c15) + record->sequence;
    sum = (sum ^ sum >> 29) * UINT64_C(0xc2b2ae3d27d4eb4f) + record->generation;
    sum = (sum ^ sum >> 32) * UINT64_C(0x165667b19e3779f9) +
          ((uint64_t)(uint32_t)record->status << 32 | record->complete);
    sum = (sum ^ sum >> 29) * UINT64_C(0xd6e8feb86659fd93) + record->lost_count + lost;
    return sum ^ sum >> 32;
}

/** Part of word w of the lost ranks in the check; the parts are added. */
IST_LAYOUT_FN uint64_t ist_ep_record_mix(uint64_t word, uint32_t w)
{
    return word == 0 ? 0 : (word ^ (uint64_t)(w + 1u) << 32) * UINT64_C(0xa0761d6478bd642f);
}

/** Bytes of one record. */
IST_LAYOUT_FN uint64_t ist_ep_record_bytes(uint32_t ranks)
{
    return ist_layout_round(sizeof(ist_ep_record_head) + 8u * (uint64_t)ist_ep_word_count(ranks),
                            16);
}

/** Offset of the record of an operation (ist_ep_op) in a handle's report. */
IST_LAYOUT_FN uint64_t ist_ep_record_offset(uint32_t ranks, uint32_t operation)
{
    return ist_layout_round(sizeof(ist_ep_route_report), 16) +
           operation * ist_ep_record_bytes(ranks);
}

/** Bytes of a handle's report. */
IST_LAYOUT_FN uint64_t ist_ep_report_bytes(uint32_t ranks)
{
    return ist_ep_record_offset(ranks, 2);
}

#endif
