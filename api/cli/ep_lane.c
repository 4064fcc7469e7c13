/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens groups and handles, runs operations, and compares outputs with the oracle byte by byte. See
 * ep_lane.h.
 */
#include "ep_lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xa5

/* Passes on anything but success; nothing is counted, the caller expects. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        ist_status try_status_ = (expression);                                                     \
        if (try_status_ != IST_OK) {                                                               \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

/* ---- the rig --------------------------------------------------------------------------------- */

ep_rig_setup ep_rig_setup_for(const ep_shape *shape)
{
    ep_rig_setup setup = {.expert_count = shape->expert_count,
                          .tokens_max = shape->tokens_max,
                          .topk_max = shape->topk,
                          .row_bytes_max = shape->hidden * ist_dtype_bytes(shape->dtype),
                          .order = shape->order};
    return setup;
}

ist_ep_group_desc ep_rig_group_desc(const ep_rig_setup *setup)
{
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = setup->expert_count,
                              .tokens_per_rank_max = setup->tokens_max,
                              .topk_max = setup->topk_max,
                              .context_count = setup->context_count,
                              .token_bytes_max = setup->row_bytes_max,
                              .block_count_max = setup->block_count_max,
                              .staged_count_max = setup->staged_count_max,
                              .zero_copy = setup->zero_copy,
                              .check = setup->check,
                              .alloc = setup->alloc,
                              .enable_mask = setup->fault_tolerant,
                              .combine_order = setup->order};
    return desc;
}

ist_status ep_rig_open(ist_world *world, const ep_rig_setup *setup, ep_rig *rig)
{
    ist_comm_desc comm = {.size = sizeof(comm),
                          .fault_tolerant = setup->fault_tolerant,
                          .deadline_ns = setup->deadline_ns,
                          .lsa_size_max = setup->lsa_size_max};
    ist_ep_group_desc group = ep_rig_group_desc(setup);
    memset(rig, 0, sizeof(*rig));
    rig->world = world;
    rig->rank = ist_world_rank(world);
    rig->rank_count = ist_world_rank_count(world);
    rig->word_count = IST_MASK_WORDS(rig->rank_count);
    TRY(ist_comm_open(world, &comm, &rig->comm));
    TRY(ist_stream_open(world, &rig->stream));
    return ist_ep_group_open(rig->comm, &group, &rig->group);
}

static void keep_first(ist_status *first, ist_status status)
{
    *first = *first == IST_OK ? status : *first;
}

ist_status ep_rig_close(ep_rig *rig)
{
    ist_status first = IST_OK;
    keep_first(&first, ist_stream_close(rig->stream));
    keep_first(&first, ist_ep_group_close(rig->group));
    keep_first(&first, ist_comm_close(rig->comm));
    rig->stream = NULL;
    rig->group = NULL;
    rig->comm = NULL;
    return first;
}

ist_status ep_rig_mask(ep_rig *rig, uint64_t words[EP_RIG_WORDS], uint64_t *generation)
{
    ist_mask mask = {.size = sizeof(mask), .words = words, .word_count = EP_RIG_WORDS};
    memset(words, 0, EP_RIG_WORDS * sizeof(*words));
    ist_status status = ist_comm_mask_query(rig->comm, &mask);
    *generation = mask.generation;
    return status;
}

/* ---- opening a lane -------------------------------------------------------------------------- */

static void measure(ep_lane *lane)
{
    const ep_oracle *oracle = &lane->made->oracle;
    bool by_expert = oracle->layout == IST_EP_EXPERT_MAJOR;
    lane->tokens_max = oracle->tokens_max;
    lane->topk = oracle->topk;
    lane->row_bytes = ep_oracle_row_bytes(oracle);
    lane->block_count =
        by_expert ? ep_oracle_local_count(oracle, lane->rig->rank) : oracle->rank_count;
    lane->block_rows =
        by_expert ? (uint64_t)oracle->rank_count * oracle->tokens_max : oracle->tokens_max;
}

static uint64_t received_bytes(const ep_lane *lane)
{
    return lane->block_count * lane->block_rows * lane->row_bytes;
}

static size_t entries_bytes(const ep_lane *lane)
{
    return (size_t)lane->block_count * (size_t)lane->block_rows * lane->topk * 4u;
}

static ist_status room(ep_lane *lane, uint64_t bytes, uint32_t flags, void **memory)
{
    return ist_mem_alloc(lane->rig->world, bytes == 0 ? 4096 : bytes, flags, memory);
}

/* An operand that may lie in a window. */
static ist_status operand(ep_lane *lane, uint32_t in_window, uint64_t bytes, uint8_t **memory,
                          uint8_t **rows, ist_window **window)
{
    void *made = NULL;
    uint64_t offset = in_window ? lane->setup.window_offset : 0;
    uint64_t whole = (bytes + offset + 4095u) / 4096u * 4096u;
    whole = whole == 0 ? 4096 : whole;
    TRY(room(lane, whole, in_window ? IST_MEM_SYMMETRIC : IST_MEM_PLAIN, &made));
    *memory = made;
    *rows = *memory + offset;
    return in_window ? ist_window_open(lane->rig->comm, made, whole, window) : IST_OK;
}

static ist_status allocate(ep_lane *lane)
{
    uint64_t tokens = lane->tokens_max;
    uint64_t entries = tokens * lane->topk;
    void *memory = NULL;
    TRY(operand(lane, lane->setup.windows & 1u, tokens * lane->row_bytes, &lane->in_memory,
                &lane->tokens, &lane->window_in));
    TRY(operand(lane, lane->setup.windows & 2u, received_bytes(lane), &lane->out_memory,
                &lane->worked, &lane->window_out));
    TRY(room(lane, 8u * entries, IST_MEM_PLAIN, &lane->ids));
    TRY(room(lane, 4u * entries, IST_MEM_PLAIN, &memory));
    lane->weights = memory;
    TRY(room(lane, received_bytes(lane), IST_MEM_PLAIN, &memory));
    lane->received = memory;
    TRY(room(lane, entries_bytes(lane), IST_MEM_PLAIN, &memory));
    lane->received_weights = memory;
    TRY(room(lane, entries_bytes(lane), IST_MEM_PLAIN, &memory));
    lane->received_ids = memory;
    TRY(room(lane, 4u * (lane->block_count + 1u), IST_MEM_PLAIN, &memory));
    lane->counters = memory;
    TRY(room(lane, (tokens + 1u) * lane->row_bytes, IST_MEM_PLAIN, &memory));
    lane->combined = memory;
    TRY(room(lane, 4u * (tokens + 1u), IST_MEM_PLAIN, &memory));
    lane->lost_counts = memory;
    return IST_OK;
}

static ist_status allocate_host(ep_lane *lane)
{
    size_t bytes = (size_t)received_bytes(lane);
    size_t combined = (lane->tokens_max + 1u) * lane->row_bytes;
    size_t ids = (size_t)lane->tokens_max * lane->topk * 8u;
    bytes = bytes < entries_bytes(lane) ? entries_bytes(lane) : bytes;
    bytes = bytes < combined ? combined : bytes;
    bytes = bytes < ids ? ids : bytes;
    bytes += 4u * (lane->block_count + lane->tokens_max + 2u);
    lane->host_bytes = bytes;
    lane->host = malloc(bytes);
    lane->expected = malloc(bytes);
    return lane->host != NULL && lane->expected != NULL ? IST_OK : IST_ERR_MEMORY;
}

static ist_status open_handle(ep_lane *lane)
{
    const ep_oracle *oracle = &lane->made->oracle;
    if (lane->setup.own_memory) {
        TRY(ist_ep_handle_bytes(lane->rig->group, oracle->layout, oracle->topk,
                                &lane->handle_bytes));
        TRY(ist_mem_alloc(lane->rig->world, lane->handle_bytes, IST_MEM_PLAIN,
                          &lane->handle_memory));
    }
    return ist_ep_handle_init(lane->rig->group, oracle->layout, oracle->topk, lane->handle_memory,
                              lane->handle_bytes, &lane->handle);
}

ist_status ep_lane_open(ep_rig *rig, const ep_case *made, const ep_lane_setup *setup, ep_lane *lane)
{
    memset(lane, 0, sizeof(*lane));
    lane->rig = rig;
    lane->made = made;
    if (setup != NULL) {
        lane->setup = *setup;
    }
    lane->setup.id_type = lane->setup.id_type == IST_DTYPE_UNSET ? IST_I32 : lane->setup.id_type;
    measure(lane);
    TRY(allocate_host(lane));
    TRY(allocate(lane));
    return open_handle(lane);
}

ist_status ep_lane_close(ep_lane *lane)
{
    if (lane->rig == NULL) {
        return IST_OK;
    }
    ist_world *world = lane->rig->world;
    void *const memory[] = {lane->in_memory,    lane->out_memory,   lane->ids,
                            lane->weights,      lane->received,     lane->received_weights,
                            lane->received_ids, lane->counters,     lane->combined,
                            lane->lost_counts,  lane->handle_memory};
    ist_status first = ist_ep_handle_close(lane->handle);
    keep_first(&first, ist_window_close(lane->window_in));
    keep_first(&first, ist_window_close(lane->window_out));
    for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); ++i) {
        keep_first(&first, ist_mem_free(world, memory[i]));
    }
    free(lane->host);
    free(lane->expected);
    memset(lane, 0, sizeof(*lane));
    return first;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static uint32_t token_count(const ep_lane *lane)
{
    return lane->made->token_counts[lane->rig->rank];
}

static ist_tensor tensor(ist_dtype dtype, const void *data, uint32_t dim_count, uint64_t first,
                         uint64_t second, uint64_t third)
{
    ist_tensor made = {.size = sizeof(made),
                       .dtype = dtype,
                       .dim_count = dim_count,
                       .dims = {first, dim_count > 1 ? second : 0, dim_count > 2 ? third : 0}};
    /* Data is written through by the library only where the tensor is an output. */
    memcpy(&made.data, &data, sizeof(data));
    return made;
}

/* Binds by window and offset instead of by address. */
static void in_window(ist_tensor *made, ist_window *window, uint64_t offset)
{
    if (window != NULL) {
        made->data = NULL;
        made->window = window;
        made->window_offset = offset;
    }
}

static ist_tensor blocks_tensor(const ep_lane *lane, ist_dtype dtype, const void *data,
                                uint64_t inner)
{
    return tensor(dtype, data, 3, lane->block_count, lane->block_rows, inner);
}

/* ---- loading --------------------------------------------------------------------------------- */

static ist_status load_tokens(ep_lane *lane)
{
    const ep_oracle *oracle = &lane->made->oracle;
    uint32_t count = token_count(lane);
    for (uint32_t token = 0; token < count; ++token) {
        oracle->token(oracle->context, lane->rig->rank, token,
                      lane->host + token * lane->row_bytes);
    }
    return count == 0 ? IST_OK
                      : ist_copy_to_device(lane->rig->stream, lane->tokens, lane->host,
                                           count * lane->row_bytes);
}

static ist_status load_ids(ep_lane *lane)
{
    const int32_t *ids = ep_case_topk(lane->made, lane->rig->rank);
    size_t count = (size_t)token_count(lane) * lane->topk;
    if (count == 0) {
        return IST_OK;
    }
    TRY(ist_copy_to_device(lane->rig->stream, lane->weights,
                           ep_case_weights(lane->made, lane->rig->rank), count * 4u));
    if (lane->setup.id_type == IST_I32) {
        return ist_copy_to_device(lane->rig->stream, lane->ids, ids, count * 4u);
    }
    for (size_t i = 0; i < count; ++i) {
        int64_t id = ids[i];
        memcpy(lane->host + i * 8u, &id, 8);
    }
    return ist_copy_to_device(lane->rig->stream, lane->ids, lane->host, count * 8u);
}

static ist_status poison(ep_lane *lane, void *memory, uint64_t bytes)
{
    return bytes == 0 ? IST_OK : ist_fill(lane->rig->stream, memory, POISON, bytes);
}

ist_status ep_lane_load(ep_lane *lane, const ep_case *made)
{
    lane->made = made;
    TRY(load_tokens(lane));
    TRY(load_ids(lane));
    TRY(poison(lane, lane->received, received_bytes(lane)));
    TRY(poison(lane, lane->received_weights, entries_bytes(lane)));
    TRY(poison(lane, lane->received_ids, entries_bytes(lane)));
    TRY(poison(lane, lane->counters, 4u * (lane->block_count + 1u)));
    TRY(poison(lane, lane->combined, (lane->tokens_max + 1u) * lane->row_bytes));
    return poison(lane, lane->lost_counts, 4u * (lane->tokens_max + 1u));
}

/* ---- operations ------------------------------------------------------------------------------ */

ist_status ep_lane_route(ep_lane *lane, ist_stream *stream)
{
    ist_tensor ids = tensor(lane->setup.id_type, lane->ids, 2, token_count(lane), lane->topk, 0);
    lane->routed = 1;
    return ist_ep_handle_update(lane->handle, &ids, stream);
}

static ist_ep_op_desc op_desc(const ep_lane *lane, uint32_t send_only)
{
    ist_ep_op_desc desc = {
        .size = sizeof(desc), .send_only = send_only, .deadline_ns = lane->setup.deadline_ns};
    return desc;
}

ist_status ep_lane_dispatch(ep_lane *lane, ist_stream *stream, uint32_t send_only)
{
    const ep_oracle *oracle = &lane->made->oracle;
    bool by_rank = oracle->layout == IST_EP_RANK_MAJOR;
    ist_ep_op_desc desc = op_desc(lane, send_only);
    ist_tensor tokens =
        tensor(oracle->dtype, lane->tokens, 2, token_count(lane), oracle->hidden, 0);
    ist_tensor weights = tensor(IST_F32, lane->weights, 2, token_count(lane), lane->topk, 0);
    ist_tensor rows = blocks_tensor(lane, oracle->dtype, lane->received, oracle->hidden);
    ist_tensor out_weights = blocks_tensor(lane, IST_F32, lane->received_weights, lane->topk);
    ist_tensor out_ids = blocks_tensor(lane, IST_I32, lane->received_ids, lane->topk);
    ist_tensor counters = tensor(IST_I32, lane->counters, 1, lane->block_count, 0, 0);
    in_window(&tokens, lane->window_in, lane->setup.window_offset);
    ist_ep_dispatch_in in = {
        .size = sizeof(in), .tokens = &tokens, .topk_weights = by_rank ? &weights : NULL};
    ist_ep_dispatch_out out = {.size = sizeof(out),
                               .tokens = &rows,
                               .topk_weights = by_rank ? &out_weights : NULL,
                               .topk_idx = by_rank ? &out_ids : NULL};
    ist_ep_layout_info info = {.size = sizeof(info), .id_kind = oracle->id_kind};
    if (by_rank) {
        info.rank_counters = lane->setup.no_rank_counters ? NULL : &counters;
    } else {
        info.expert_counters = &counters;
    }
    return ist_ep_dispatch(lane->handle, &in, &out, &info, &desc, stream);
}

ist_status ep_lane_combine(ep_lane *lane, ist_stream *stream, uint32_t send_only)
{
    const ep_oracle *oracle = &lane->made->oracle;
    bool by_expert = oracle->layout == IST_EP_EXPERT_MAJOR;
    ist_ep_op_desc desc = op_desc(lane, send_only);
    ist_tensor rows = blocks_tensor(lane, oracle->dtype, lane->worked, oracle->hidden);
    ist_tensor tokens =
        tensor(oracle->dtype, lane->combined, 2, lane->tokens_max, oracle->hidden, 0);
    ist_tensor weights = tensor(IST_F32, lane->weights, 2, token_count(lane), lane->topk, 0);
    ist_tensor lost = tensor(IST_I32, lane->lost_counts, 1, token_count(lane), 0, 0);
    in_window(&rows, lane->window_out, lane->setup.window_offset);
    ist_ep_combine_in in = {.size = sizeof(in), .tokens = &rows};
    ist_ep_combine_out out = {.size = sizeof(out),
                              .tokens = &tokens,
                              .topk_weights = by_expert ? &weights : NULL,
                              .lost_counts = lane->setup.no_lost_counts ? NULL : &lost};
    return ist_ep_combine(lane->handle, &in, &out, &desc, stream);
}

ist_status ep_lane_read_record(ep_lane *lane, ist_ep_op op)
{
    ist_completion *record = &lane->record[op];
    memset(lane->lost[op], 0, sizeof(lane->lost[op]));
    memset(record, 0, sizeof(*record));
    record->size = sizeof(*record);
    record->lost_words = lane->lost[op];
    record->word_count = EP_RIG_WORDS;
    ist_status status = ist_ep_record(lane->handle, op, record);
    record->lost_words = NULL;
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Which rank's which output is compared; the first difference is told. */
static void compare(const ep_lane *lane, const char *what, const uint8_t *seen,
                    const uint8_t *wanted, size_t bytes, size_t row_bytes, ep_lane_finding *finding)
{
    for (size_t i = 0; i < bytes; ++i) {
        if (seen[i] == wanted[i]) {
            continue;
        }
        if (finding->wrong++ == 0) {
            snprintf(finding->first, sizeof(finding->first),
                     "rank %u: %s, row %zu byte %zu is 0x%02x, not 0x%02x", lane->rig->rank, what,
                     i / row_bytes, i % row_bytes, seen[i], wanted[i]);
        }
    }
}

static ist_status compare_device(ep_lane *lane, const char *what, const void *memory, size_t bytes,
                                 size_t row_bytes, ep_lane_finding *finding)
{
    if (bytes == 0) {
        return IST_OK;
    }
    TRY(ist_copy_to_host(lane->rig->stream, lane->host, memory, bytes));
    compare(lane, what, lane->host, lane->expected, bytes, row_bytes, finding);
    return IST_OK;
}

static uint64_t row_of(const ep_lane *lane, uint32_t block, uint32_t slot)
{
    return block * lane->block_rows + slot;
}

/* A source that broke while its rows were copied keeps its slots, and may have left zeros. */
static void allow_zeros(const ep_lane *lane, uint64_t row, size_t row_bytes, uint32_t source)
{
    const uint8_t *seen = lane->host + row * row_bytes;
    if (!ist_mask_test(lane->lost[IST_EP_OP_DISPATCH], source)) {
        return;
    }
    for (size_t i = 0; i < row_bytes; ++i) {
        if (seen[i] != 0) {
            return;
        }
    }
    memset(lane->expected + row * row_bytes, 0, row_bytes);
}

static ist_status check_rows(ep_lane *lane, const ep_oracle_received *wanted,
                             ep_lane_finding *finding)
{
    const ep_oracle *oracle = &lane->made->oracle;
    size_t bytes = (size_t)received_bytes(lane);
    if (bytes == 0) {
        return IST_OK;
    }
    TRY(ist_copy_to_host(lane->rig->stream, lane->host, lane->received, bytes));
    memset(lane->expected, POISON, bytes);
    for (uint32_t block = 0; block < wanted->block_count; ++block) {
        for (uint32_t slot = 0; slot < wanted->counts[block]; ++slot) {
            const ep_oracle_row *row = &wanted->rows[wanted->first[block] + slot];
            uint64_t at = row_of(lane, block, slot);
            oracle->token(oracle->context, row->source, row->token,
                          lane->expected + at * lane->row_bytes);
            allow_zeros(lane, at, lane->row_bytes, row->source);
        }
    }
    compare(lane, "received", lane->host, lane->expected, bytes, lane->row_bytes, finding);
    return IST_OK;
}

static ist_status check_counters(ep_lane *lane, const ep_oracle_received *wanted,
                                 ep_lane_finding *finding)
{
    bool by_rank = lane->made->oracle.layout == IST_EP_RANK_MAJOR;
    size_t bytes = 4u * (wanted->block_count + 1u);
    memset(lane->expected, POISON, bytes);
    if (!by_rank || !lane->setup.no_rank_counters) {
        memcpy(lane->expected, wanted->counts, 4u * wanted->block_count);
    }
    return compare_device(lane, "counters", lane->counters, bytes, 4, finding);
}

/* RANK_MAJOR: ids are -1 where nothing was written, weights keep what was there. */
static ist_status check_entries(ep_lane *lane, const ep_oracle_received *wanted, bool of_ids,
                                ep_lane_finding *finding)
{
    size_t row_bytes = 4u * (size_t)lane->topk;
    size_t bytes = entries_bytes(lane);
    const void *memory =
        of_ids ? (const void *)lane->received_ids : (const void *)lane->received_weights;
    int32_t ids[IST_EP_TOPK_MAX];
    float weights[IST_EP_TOPK_MAX];
    TRY(ist_copy_to_host(lane->rig->stream, lane->host, memory, bytes));
    memset(lane->expected, of_ids ? 0xff : POISON, bytes);
    for (uint32_t block = 0; block < wanted->block_count; ++block) {
        for (uint32_t slot = 0; slot < wanted->counts[block]; ++slot) {
            const ep_oracle_row *row = &wanted->rows[wanted->first[block] + slot];
            uint64_t at = row_of(lane, block, slot);
            ep_oracle_metadata(&lane->made->oracle, lane->rig->rank, row, ids, weights);
            memcpy(lane->expected + at * row_bytes,
                   of_ids ? (const void *)ids : (const void *)weights, row_bytes);
            if (!of_ids) {
                allow_zeros(lane, at, row_bytes, row->source);
            }
        }
    }
    compare(lane, of_ids ? "received ids" : "received weights", lane->host, lane->expected, bytes,
            row_bytes, finding);
    return IST_OK;
}

static ist_status check_received(ep_lane *lane, const uint64_t *lost, ep_lane_finding *finding)
{
    ep_oracle_received wanted;
    if (!ep_oracle_receive(&lane->made->oracle, lane->rig->rank, lost, &wanted)) {
        return IST_ERR_MEMORY;
    }
    ist_status status = check_rows(lane, &wanted, finding);
    if (status == IST_OK) {
        status = check_counters(lane, &wanted, finding);
    }
    if (status == IST_OK && lane->made->oracle.layout == IST_EP_RANK_MAJOR) {
        status = check_entries(lane, &wanted, true, finding);
    }
    if (status == IST_OK && lane->made->oracle.layout == IST_EP_RANK_MAJOR) {
        status = check_entries(lane, &wanted, false, finding);
    }
    ep_oracle_received_free(&wanted);
    return status;
}

/* The next set below `set` that lies inside `of`; ends at 0. One word is enough for such tests. */
static uint64_t next_subset(uint64_t set, uint64_t of)
{
    return (set - 1u) & of;
}

ist_status ep_lane_check_dispatch(ep_lane *lane, ep_lane_finding *finding)
{
    const uint64_t *lost = lane->lost[IST_EP_OP_DISPATCH];
    ep_lane_finding first = {0};
    uint64_t without[EP_RIG_WORDS];
    memcpy(without, lost, sizeof(without));
    TRY(check_received(lane, without, &first));
    /* Lost ranks that broke late hold slots: some subset of the lost explains what is seen. */
    for (uint64_t set = lost[0]; first.wrong != 0 && set != 0;) {
        ep_lane_finding other = {0};
        set = next_subset(set, lost[0]);
        without[0] = set;
        TRY(check_received(lane, without, &other));
        first = other.wrong == 0 ? other : first;
    }
    *finding = first;
    return IST_OK;
}

/* ---- experts --------------------------------------------------------------------------------- */

static void work_row(const ep_lane *lane, uint32_t block, const int32_t *ids, const float *weights,
                     uint8_t *row)
{
    const ep_oracle *oracle = &lane->made->oracle;
    if (oracle->layout == IST_EP_EXPERT_MAJOR) {
        oracle->expert(oracle->context, ep_oracle_expert_first(oracle, lane->rig->rank) + block,
                       row);
    } else {
        oracle->rank(oracle->context, lane->rig->rank, ids, weights, row);
    }
}

static ist_status work_expected(ep_lane *lane, const ep_oracle_received *wanted)
{
    int32_t ids[IST_EP_TOPK_MAX];
    float weights[IST_EP_TOPK_MAX];
    for (uint32_t block = 0; block < wanted->block_count; ++block) {
        for (uint32_t slot = 0; slot < wanted->counts[block]; ++slot) {
            const ep_oracle_row *row = &wanted->rows[wanted->first[block] + slot];
            ep_oracle_metadata(&lane->made->oracle, lane->rig->rank, row, ids, weights);
            work_row(lane, block, ids, weights,
                     lane->host + row_of(lane, block, slot) * lane->row_bytes);
        }
    }
    return ist_copy_to_device(lane->rig->stream, lane->worked, lane->host,
                              (size_t)received_bytes(lane));
}

ist_status ep_lane_work(ep_lane *lane)
{
    ep_oracle_received wanted;
    size_t bytes = (size_t)received_bytes(lane);
    if (bytes == 0) {
        return IST_OK;
    }
    TRY(ist_copy_to_host(lane->rig->stream, lane->host, lane->received, bytes));
    if (!ep_oracle_receive(&lane->made->oracle, lane->rig->rank, lane->lost[IST_EP_OP_DISPATCH],
                           &wanted)) {
        return IST_ERR_MEMORY;
    }
    ist_status status = work_expected(lane, &wanted);
    ep_oracle_received_free(&wanted);
    return status;
}

/* ---- combined -------------------------------------------------------------------------------- */

/* The row of one token under some subset of the lost ranks, the one that fits what is seen. */
static void expect_token(ep_lane *lane, uint32_t token, const uint8_t *seen, uint8_t *scratch,
                         float *sums, uint64_t *chosen)
{
    const ep_oracle *oracle = &lane->made->oracle;
    const uint64_t *lost = lane->lost[IST_EP_OP_COMBINE];
    uint8_t *row = lane->expected + token * lane->row_bytes;
    memcpy(chosen, lost, EP_RIG_WORDS * sizeof(*chosen));
    ep_oracle_combine(oracle, lane->rig->rank, token, chosen, scratch, sums, row);
    for (uint64_t set = lost[0]; memcmp(row, seen, lane->row_bytes) != 0 && set != 0;) {
        set = next_subset(set, lost[0]);
        chosen[0] = set;
        ep_oracle_combine(oracle, lane->rig->rank, token, chosen, scratch, sums, row);
    }
}

static ist_status check_combined(ep_lane *lane, uint8_t *scratch, float *sums, int32_t *counts,
                                 ep_lane_finding *finding)
{
    uint32_t count = token_count(lane);
    size_t bytes = (lane->tokens_max + 1u) * lane->row_bytes;
    uint64_t chosen[EP_RIG_WORDS];
    TRY(ist_copy_to_host(lane->rig->stream, lane->host, lane->combined, bytes));
    memset(lane->expected, POISON, bytes);
    memset(counts, POISON, 4u * (lane->tokens_max + 1u));
    for (uint32_t token = 0; token < count; ++token) {
        expect_token(lane, token, lane->host + token * lane->row_bytes, scratch, sums, chosen);
        if (!lane->setup.no_lost_counts) {
            counts[token] =
                (int32_t)ep_oracle_lost_count(&lane->made->oracle, lane->rig->rank, token, chosen);
        }
    }
    compare(lane, "combined", lane->host, lane->expected, bytes, lane->row_bytes, finding);
    bytes = 4u * (lane->tokens_max + 1u);
    memcpy(lane->expected, counts, bytes);
    return compare_device(lane, "lost counts", lane->lost_counts, bytes, 4, finding);
}

ist_status ep_lane_check_combine(ep_lane *lane, ep_lane_finding *finding)
{
    uint8_t *scratch = malloc(2u * lane->row_bytes);
    float *sums = malloc(2u * (size_t)lane->made->oracle.hidden * sizeof(*sums));
    int32_t *counts = malloc(4u * (lane->tokens_max + 1u));
    ist_status status = IST_ERR_MEMORY;
    memset(finding, 0, sizeof(*finding));
    if (scratch != NULL && sums != NULL && counts != NULL) {
        status = check_combined(lane, scratch, sums, counts, finding);
    }
    free(scratch);
    free(sums);
    free(counts);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

#define STEP(name, expression)                                                                     \
    do {                                                                                           \
        step->call = (name);                                                                       \
        step->status = (expression);                                                               \
        if (step->status != IST_OK) {                                                              \
            return step->status;                                                                   \
        }                                                                                          \
    } while (0)

/* Waits for the operation and looks at its record and outputs. */
ist_status ep_lane_end(ep_lane *lane, ist_ep_op op, ep_step *step)
{
    STEP("stream_sync", ist_stream_sync(lane->rig->stream, 0));
    STEP("record", ep_lane_read_record(lane, op));
    step->ran[op] = 1;
    step->ended_ns[op] = ist_world_clock_ns(lane->rig->world);
    step->record[op] = lane->record[op];
    memcpy(step->lost[op], lane->lost[op], sizeof(step->lost[op]));
    step->evicted |= lane->record[op].status == IST_ERR_EVICTED;
    if (lane->record[op].status < 0) {
        return IST_OK;
    }
    if (op == IST_EP_OP_DISPATCH) {
        STEP("check", ep_lane_check_dispatch(lane, &step->finding[op]));
    } else {
        STEP("check", ep_lane_check_combine(lane, &step->finding[op]));
    }
    return IST_OK;
}

/* What is said of the combine of a step that has none: what is said of its dispatch. */
static void no_combine(ep_step *step)
{
    step->ran[IST_EP_OP_COMBINE] = step->ran[IST_EP_OP_DISPATCH];
    step->record[IST_EP_OP_COMBINE] = step->record[IST_EP_OP_DISPATCH];
    step->ended_ns[IST_EP_OP_COMBINE] = step->ended_ns[IST_EP_OP_DISPATCH];
    memcpy(step->lost[IST_EP_OP_COMBINE], step->lost[IST_EP_OP_DISPATCH],
           sizeof(step->lost[IST_EP_OP_COMBINE]));
}

ist_status ep_lane_step(ep_lane *lane, const ep_case *made, ep_step *step)
{
    memset(step, 0, sizeof(*step));
    STEP("load", ep_lane_load(lane, made));
    if (!lane->setup.keep_route || !lane->routed) {
        STEP("update", ep_lane_route(lane, lane->rig->stream));
    }
    STEP("dispatch", ep_lane_dispatch(lane, lane->rig->stream, lane->setup.staged & 1u));
    STEP("complete", ist_ep_complete(lane->handle, lane->rig->stream));
    TRY(ep_lane_end(lane, IST_EP_OP_DISPATCH, step));
    if (lane->setup.dispatch_only) {
        no_combine(step);
        return IST_OK;
    }
    if (step->record[IST_EP_OP_DISPATCH].status < 0 && !lane->setup.stubborn) {
        return IST_OK;
    }
    STEP("work", ep_lane_work(lane));
    STEP("combine", ep_lane_combine(lane, lane->rig->stream, lane->setup.staged >> 1));
    STEP("complete", ist_ep_complete(lane->handle, lane->rig->stream));
    return ep_lane_end(lane, IST_EP_OP_COMBINE, step);
}

bool ep_step_is_perfect(const ep_step *step)
{
    bool perfect = step->status == IST_OK && !step->evicted;
    for (uint32_t op = 0; op < 2; ++op) {
        perfect = perfect && step->ran[op] && step->record[op].status == IST_OK &&
                  step->record[op].complete == 1 && step->record[op].lost_count == 0 &&
                  step->finding[op].wrong == 0;
    }
    return perfect;
}

bool ep_case_init_step(ep_case *made, const ep_shape *shape, uint64_t step)
{
    if (!ep_case_init(made, shape)) {
        return false;
    }
    made->data.step = step;
    for (uint32_t rank = 0; rank < shape->rank_count; ++rank) {
        for (uint32_t i = 0; i < made->token_counts[rank] * shape->topk; ++i) {
            uint64_t at = (uint64_t)rank * shape->tokens_max * shape->topk + i;
            made->topk_weights[at] =
                cli_data_weight(&made->data, rank, i / shape->topk, i % shape->topk);
        }
    }
    return true;
}
