/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing of a handle: from the ids of [N, K] entries to all that its operations need. One block.
 *
 * Phases:
 *   1 copy      the ids into the handle, so that the caller's tensor is free afterwards
 *   2 check     ids outside [-1, E) and repeated ids of a token become -1; the first is reported
 *   3 entries   ordinal of every entry among the entries of its expert, in (token, k) order
 *   4 rows      the first k of every (token, rank), and its ordinal among the rows for that rank
 *   5 offsets   rows by rank, entries by expert within a rank
 *   6 describe  one descriptor a row, ordered by (rank, token): what the receiver needs of it
 *   7 report    the head of the handle, then the answer for the host
 *
 * Handle memory belongs to this block alone until the kernel ends, so it is read and written
 * plainly; the coop syncs between phases. Later kernels of the stream see it as constant.
 */
#include "ep_wire.h"

/** Tables of a handle, as the routing writes them. */
typedef struct ist_ep_tables {
    int32_t *idx;
    int32_t *owner;
    int32_t *key;
    uint32_t *ordinal;
    uint32_t *row;
    uint32_t *send_count;
    uint32_t *send_offset;
    uint32_t *entries;
    uint32_t *within;
} ist_ep_tables;

/** Scratch: the first bad entry. */
typedef struct ist_ep_bad {
    uint32_t any;
    uint32_t entry;
    int32_t status;
    uint32_t reserved;
    int64_t id;
} ist_ep_bad;

IST_DEVICE_FN ist_ep_tables ist_ep_tables_of(const ist_ep_route_args *args)
{
    ist_ep_tables t;
    t.idx = (int32_t *)(args->handle + args->in.idx);
    t.owner = (int32_t *)(args->handle + args->in.owner);
    t.key = (int32_t *)(args->handle + args->in.key);
    t.ordinal = (uint32_t *)(args->handle + args->in.ordinal);
    t.row = (uint32_t *)(args->handle + args->in.row);
    t.send_count = (uint32_t *)(args->handle + args->in.send_count);
    t.send_offset = (uint32_t *)(args->handle + args->in.send_offset);
    t.entries = (uint32_t *)(args->handle + args->in.expert_entries);
    t.within = (uint32_t *)(args->handle + args->in.expert_within);
    return t;
}

/** Id of an entry as given. Lane. */
IST_DEVICE_FN int64_t ist_ep_given_id(const ist_ep_route_args *args, uint64_t entry)
{
    const uint8_t *ids = args->handle + args->in.ids;
    return args->topk_dtype == IST_I64 ? ((const int64_t *)(const void *)ids)[entry]
                                       : (int64_t)((const int32_t *)(const void *)ids)[entry];
}

/** What is wrong with an entry: IST_OK, IST_ERR_RANGE, IST_ERR_ARGUMENT. Lane. */
IST_DEVICE_FN int32_t ist_ep_judge_id(const ist_ep_route_args *args, uint32_t entry)
{
    int64_t id = ist_ep_given_id(args, entry);
    if (id < -1 || id >= (int64_t)args->geometry.expert_count) {
        return IST_ERR_RANGE;
    }
    for (uint32_t other = entry - entry % args->topk; id >= 0 && other < entry; ++other) {
        if (ist_ep_given_id(args, other) == id) {
            return IST_ERR_ARGUMENT;
        }
    }
    return IST_OK;
}

/** Phase 2. Collective. */
IST_DEVICE_FN void ist_ep_check_ids(ist_coop *coop, const ist_ep_route_args *args,
                                    const ist_ep_tables *t, ist_ep_bad *bad)
{
    uint32_t entries = args->token_count * args->topk;
    if (ist_coop_elect(coop)) {
        bad->any = 0;
        bad->entry = 0;
        bad->status = IST_OK;
        bad->id = 0;
    }
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, entries) {
        int32_t status = ist_ep_judge_id(args, i);
        t->idx[i] = status == IST_OK ? (int32_t)ist_ep_given_id(args, i) : -1;
        if (status != IST_OK) {
            bad->any = 1;
        }
    }
    ist_coop_sync(coop);
    if (bad->any && ist_coop_elect(coop)) {
        uint32_t entry = 0;
        while (ist_ep_judge_id(args, entry) == IST_OK) {
            ++entry;
        }
        bad->entry = entry;
        bad->status = ist_ep_judge_id(args, entry);
        bad->id = ist_ep_given_id(args, entry);
    }
    ist_coop_sync(coop);
}

IST_DEVICE_FN uint32_t ist_ep_rank_of(const ist_ep_route_args *args, int32_t expert)
{
    return ist_ep_expert_rank(args->geometry.expert_count, args->geometry.rank_count,
                              (uint32_t)expert);
}

/** Earliest entry of the same token for the same rank. Lane. */
IST_DEVICE_FN uint32_t ist_ep_first_entry(const ist_ep_route_args *args, const ist_ep_tables *t,
                                          uint32_t entry)
{
    uint32_t rank = ist_ep_rank_of(args, t->idx[entry]);
    uint32_t first = entry - entry % args->topk;
    while (first < entry && (t->idx[first] < 0 || ist_ep_rank_of(args, t->idx[first]) != rank)) {
        ++first;
    }
    return first;
}

/** Phase 4. Collective. */
IST_DEVICE_FN void ist_ep_number_rows(ist_coop *coop, const ist_ep_route_args *args,
                                      const ist_ep_tables *t)
{
    uint32_t entries = args->token_count * args->topk;
    IST_EACH_LANE (coop, i, entries) {
        int first = t->idx[i] >= 0 && ist_ep_first_entry(args, t, i) == i;
        int32_t owner = t->idx[i] >= 0 ? (int32_t)ist_ep_rank_of(args, t->idx[i]) : -1;
        t->owner[i] = owner;
        t->key[i] = first ? owner : -1;
    }
    ist_coop_sync(coop);
    ist_coop_rank_by_key(coop, t->key, entries, t->row, t->send_count, args->geometry.rank_count);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, i, entries) {
        if (t->idx[i] >= 0 && t->key[i] < 0) {
            t->row[i] = t->row[ist_ep_first_entry(args, t, i)];
        }
    }
    ist_coop_sync(coop);
}

/** Phase 5. Collective. */
IST_DEVICE_FN void ist_ep_sum_up(ist_coop *coop, const ist_ep_route_args *args,
                                 const ist_ep_tables *t)
{
    uint32_t ranks = args->geometry.rank_count;
    uint32_t *sums = (uint32_t *)ist_coop_scratch(coop, 1, 4u * ranks);
    IST_EACH_LANE (coop, rank, ranks) {
        sums[rank] = t->send_count[rank];
        uint32_t experts = args->geometry.expert_count;
        uint32_t first = ist_ep_expert_first(experts, ranks, rank);
        uint32_t end = first + ist_ep_expert_local_count(experts, ranks, rank);
        uint32_t sum = 0;
        for (uint32_t expert = first; expert < end; ++expert) {
            t->within[expert] = sum;
            sum += t->entries[expert];
        }
    }
    ist_coop_sync(coop);
    uint32_t total = ist_coop_scan(coop, sums, ranks);
    ist_coop_sync(coop);
    IST_EACH_LANE (coop, rank, ranks) {
        t->send_offset[rank] = sums[rank];
    }
    if (ist_coop_elect(coop)) {
        t->send_offset[ranks] = total;
    }
    ist_coop_sync(coop);
}

/** Writes the descriptor of the row that begins at an entry. Lane. */
IST_DEVICE_FN void ist_ep_describe(const ist_ep_route_args *args, const ist_ep_tables *t,
                                   uint32_t entry)
{
    uint32_t rank = (uint32_t)t->key[entry];
    uint32_t token = entry / args->topk;
    uint32_t start = token * args->topk;
    uint64_t row = (uint64_t)t->send_offset[rank] + t->row[entry];
    uint32_t first =
        ist_ep_expert_first(args->geometry.expert_count, args->geometry.rank_count, rank);
    uint32_t *desc =
        (uint32_t *)(void *)(args->handle + args->in.descs + row * args->in.desc_bytes);
    desc[0] = token;
    for (uint32_t k = 0; k + 1u < args->in.desc_bytes / 4u; ++k) {
        int32_t expert = k < args->topk ? t->idx[start + k] : -1;
        int there = expert >= 0 && ist_ep_rank_of(args, expert) == rank;
        desc[1u + k] =
            there ? ((uint32_t)expert - first) << 16 | t->ordinal[start + k] : IST_EP_ELSEWHERE;
    }
}

/** Phase 7. Collective. */
IST_DEVICE_FN void ist_ep_report_route(ist_coop *coop, const ist_ep_route_args *args,
                                       const ist_ep_bad *bad)
{
    ist_ep_handle_head *head = (ist_ep_handle_head *)(void *)args->handle;
    ist_ep_route_report *report = args->report;
    if (ist_coop_elect(coop)) {
        head->magic = IST_EP_HANDLE_MAGIC;
        head->version = IST_EP_HANDLE_VERSION;
        head->layout = args->layout;
        head->rank_count = args->geometry.rank_count;
        head->expert_count = args->geometry.expert_count;
        head->tokens_max = args->geometry.tokens_max;
        head->topk = args->topk;
        head->rank = args->dev->rank;
        head->token_count = args->token_count;
        head->topk_dtype = args->topk_dtype;
        head->route_status = bad->status;
        head->updates = args->update;
        head->checksum = ist_ep_handle_checksum(head);
        head->dispatch_tag = 0;
        head->pending_tag = 0;
        head->pending_generation = 0;
        head->pending_slot = 0;
        ist_store_u32(coop, (uint32_t *)&report->status, (uint32_t)bad->status, IST_RELAXED,
                      IST_SCOPE_SYSTEM);
        ist_store_u32(coop, &report->token, bad->entry / args->topk, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u32(coop, &report->k, bad->entry % args->topk, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, (uint64_t *)&report->id, (uint64_t)bad->id, IST_RELAXED,
                      IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &report->update, args->update, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
}

IST_KERNEL(ep_route, ist_ep_route_args)
{
    ist_ep_tables t = ist_ep_tables_of(args);
    ist_ep_bad *bad = (ist_ep_bad *)ist_coop_scratch(coop, 0, sizeof(ist_ep_bad));
    uint32_t entries = args->token_count * args->topk;
    uint64_t id_bytes = args->topk_dtype == IST_I64 ? 8u : 4u;
    if (entries != 0) {
        ist_row_copy(coop, args->handle + args->in.ids, args->topk_idx, entries * id_bytes);
    }
    ist_coop_sync(coop);
    ist_ep_check_ids(coop, args, &t, bad);
    ist_coop_rank_by_key(coop, t.idx, entries, t.ordinal, t.entries, args->geometry.expert_count);
    ist_coop_sync(coop);
    ist_ep_number_rows(coop, args, &t);
    ist_ep_sum_up(coop, args, &t);
    IST_EACH_LANE (coop, i, entries) {
        if (t.key[i] >= 0) {
            ist_ep_describe(args, &t, i);
        }
    }
    ist_coop_sync(coop);
    ist_ep_report_route(coop, args, bad);
}
