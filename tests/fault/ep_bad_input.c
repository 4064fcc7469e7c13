/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every bad argument of ep.h is refused with a record that names it, nothing is enqueued, and
 * the same call with good arguments works afterwards. Method: good arguments, one of them spoilt at a
 * time; a step compared with the oracle at the end. Ranks spoil the same argument, or only one rank
 * does and the others must not hang.
 */
#include "ep_rig.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define EXPERTS 6u
#define TOPK 2u
#define TOKENS 4u
#define HIDDEN 16u

static const ep_shape usual = {.seed = 1,
                               .rank_count = 2,
                               .expert_count = EXPERTS,
                               .topk = TOPK,
                               .tokens_max = TOKENS,
                               .hidden = HIDDEN,
                               .dtype = IST_BF16};

/* A refusal that is expected; object NULL ends a list. */
typedef struct refusal {
    ist_status status;
    const char *object;
} refusal;

static const refusal no_more = {IST_OK, NULL};

static ist_status expect_idle(ep_rig *rig)
{
    EXPECT_OK(rig->world, ist_stream_query(rig->stream));
    return IST_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static refusal spoil_group(ist_ep_group_desc *desc, uint32_t number)
{
    switch (number) {
    case 0: desc->size = 8; return (refusal){IST_ERR_SIZE, "desc"};
    case 1: desc->size = 1u << 20; return (refusal){IST_ERR_SIZE, "desc"};
    case 2:
        desc->algorithm = (ist_ep_algorithm)7;
        return (refusal){IST_ERR_ARGUMENT, "desc.algorithm"};
    case 3: desc->expert_count = 0; return (refusal){IST_ERR_RANGE, "desc.expert_count"};
    case 4: desc->expert_count = 65536; return (refusal){IST_ERR_RANGE, "desc.expert_count"};
    case 5:
        desc->tokens_per_rank_max = 0;
        return (refusal){IST_ERR_RANGE, "desc.tokens_per_rank_max"};
    case 6:
        desc->tokens_per_rank_max = 65536;
        return (refusal){IST_ERR_RANGE, "desc.tokens_per_rank_max"};
    case 7: desc->topk_max = IST_EP_TOPK_MAX + 1; return (refusal){IST_ERR_RANGE, "desc.topk_max"};
    case 8: desc->token_bytes_max = 0; return (refusal){IST_ERR_RANGE, "desc.token_bytes_max"};
    case 9:
        desc->token_bytes_max = UINT64_MAX;
        return (refusal){IST_ERR_RANGE, "desc.token_bytes_max"};
    case 10: desc->buffer_bytes = 1; return (refusal){IST_ERR_RANGE, "desc.buffer_bytes"};
    case 11:
        desc->block_count_max = 1u << 20;
        return (refusal){IST_ERR_RANGE, "desc.block_count_max"};
    case 12: desc->staged_count_max = 9; return (refusal){IST_ERR_RANGE, "desc.staged_count_max"};
    case 13:
        desc->zero_copy = (ist_ep_zero_copy)3;
        return (refusal){IST_ERR_ARGUMENT, "desc.zero_copy"};
    case 14: desc->check = (ist_ep_check)3; return (refusal){IST_ERR_ARGUMENT, "desc.check"};
    case 15: desc->deadline_ns = 999; return (refusal){IST_ERR_RANGE, "desc.deadline_ns"};
    case 16:
        desc->alloc.alloc = (ist_status(*)(void **, size_t, void *))(void (*)(void))spoil_group;
        return (refusal){IST_ERR_ARGUMENT, "desc.alloc"};
    case 17: desc->enable_mask = 2; return (refusal){IST_ERR_ARGUMENT, "desc.enable_mask"};
    case 18: desc->enable_mask = 1; return (refusal){IST_ERR_ARGUMENT, "desc.enable_mask"};
    case 19: desc->reserved[1] = 1; return (refusal){IST_ERR_RESERVED, "desc.reserved"};
    case 20: desc->context_count = 1000; return (refusal){IST_ERR_RANGE, "desc.context_count"};
    default: return no_more;
    }
}

static ist_status group_main(ist_world *world, void *arg)
{
    ep_rig rig;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    ist_ep_group *group = NULL;
    uint64_t bytes = 0;
    (void)arg;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    for (uint32_t i = 0;; ++i) {
        ist_ep_group_desc desc = ep_rig_group_desc(&setup);
        refusal expected = spoil_group(&desc, i);
        if (expected.object == NULL) {
            break;
        }
        EXPECT_REFUSED(world, ist_ep_group_bytes(rig.comm, &desc, &bytes), expected.status,
                       expected.object);
        EXPECT_REFUSED(world, ist_ep_group_open(rig.comm, &desc, &group), expected.status,
                       expected.object);
        EXPECT(world, group == NULL);
        /* One rank alone: it says why, the others that it differs. */
        desc = ep_rig_group_desc(&setup);
        expected = rig.rank == i % 2 ? spoil_group(&desc, i) : (refusal){IST_ERR_MISMATCH, ""};
        EXPECT_STATUS(world, ist_ep_group_open(rig.comm, &desc, &group), expected.status);
        EXPECT(world, group == NULL);
    }
    ist_ep_group_desc good = ep_rig_group_desc(&setup);
    EXPECT_REFUSED(world, ist_ep_group_bytes(rig.comm, NULL, &bytes), IST_ERR_NULL, "desc");
    EXPECT_REFUSED(world, ist_ep_group_bytes(rig.comm, &good, NULL), IST_ERR_NULL, "bytes");
    EXPECT_REFUSED(world, ist_ep_group_open(rig.comm, NULL, &group), IST_ERR_NULL, "desc");
    EXPECT_REFUSED(world, ist_ep_group_open(rig.comm, &good, NULL), IST_ERR_NULL, "group");
    EXPECT_STATUS(world, ist_ep_group_open(NULL, &good, &group), IST_ERR_NULL);
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void groups(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(2, NULL, group_main, NULL), IST_OK);
    assert_int_equal(ist_test_run(2, "2x1", group_main, NULL), IST_OK);
}

/* Fields that are good by themselves and differ between ranks. */
static ist_status mismatch_main(ist_world *world, void *arg)
{
    ep_rig rig;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    (void)arg;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    for (uint32_t i = 0; i < 6; ++i) {
        static const char *const objects[] = {"desc.expert_count",     "desc.tokens_per_rank_max",
                                              "desc.topk_max",         "desc.token_bytes_max",
                                              "desc.staged_count_max", "desc.deadline_ns"};
        ist_ep_group *group = NULL;
        ist_ep_group_desc desc = ep_rig_group_desc(&setup);
        uint32_t more = rig.rank;
        desc.expert_count += i == 0 ? more : 0;
        desc.tokens_per_rank_max += i == 1 ? more : 0;
        desc.topk_max += i == 2 ? more : 0;
        desc.token_bytes_max += i == 3 ? more : 0;
        desc.staged_count_max = i == 4 ? 1 + more : 1;
        desc.deadline_ns = i == 5 ? 5000 + more : 0;
        EXPECT_REFUSED(world, ist_ep_group_open(rig.comm, &desc, &group), IST_ERR_MISMATCH,
                       objects[i]);
    }
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void groups_that_differ(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(2, NULL, mismatch_main, NULL), IST_OK);
}

/* ---- handles --------------------------------------------------------------------------------- */

static ist_status refuse_inits(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    ist_ep_layout layout = lane->made->oracle.layout;
    ist_ep_handle *handle = NULL;
    uint64_t bytes = 0;
    void *memory = NULL;
    EXPECT_OK(world, ist_ep_handle_bytes(rig->group, layout, TOPK, &bytes));
    EXPECT_OK(world, ist_mem_alloc(world, bytes + 4096, IST_MEM_PLAIN, &memory));
    uint8_t *odd = (uint8_t *)memory + 64;
    EXPECT_REFUSED(world, ist_ep_handle_bytes(rig->group, IST_EP_LAYOUT_UNSET, TOPK, &bytes),
                   IST_ERR_ARGUMENT, "layout");
    EXPECT_REFUSED(world, ist_ep_handle_bytes(rig->group, layout, 0, &bytes), IST_ERR_RANGE,
                   "topk");
    EXPECT_REFUSED(world, ist_ep_handle_bytes(rig->group, layout, TOPK, NULL), IST_ERR_NULL,
                   "bytes");
    EXPECT_REFUSED(world, ist_ep_handle_init(rig->group, (ist_ep_layout)9, TOPK, NULL, 0, &handle),
                   IST_ERR_ARGUMENT, "layout");
    EXPECT_REFUSED(world, ist_ep_handle_init(rig->group, layout, TOPK + 1, NULL, 0, &handle),
                   IST_ERR_RANGE, "topk");
    EXPECT_REFUSED(world, ist_ep_handle_init(rig->group, layout, TOPK, memory, bytes - 1, &handle),
                   IST_ERR_SIZE, "mem_bytes");
    EXPECT_REFUSED(world, ist_ep_handle_init(rig->group, layout, TOPK, odd, bytes, &handle),
                   IST_ERR_ALIGNMENT, "mem");
    EXPECT_REFUSED(world, ist_ep_handle_init(rig->group, layout, TOPK, &bytes, bytes, &handle),
                   ((uintptr_t)&bytes % 4096u) != 0 ? IST_ERR_ALIGNMENT : IST_ERR_ARGUMENT, "mem");
    EXPECT_REFUSED(world, ist_ep_handle_init(rig->group, layout, TOPK, NULL, 0, NULL), IST_ERR_NULL,
                   "handle");
    EXPECT_STATUS(world, ist_ep_handle_init(NULL, layout, TOPK, NULL, 0, &handle), IST_ERR_NULL);
    EXPECT(world, handle == NULL);
    EXPECT_OK(world, ist_mem_free(world, memory));
    return IST_OK;
}

static refusal spoil_ids(ist_tensor *ids, uint32_t number)
{
    switch (number) {
    case 0: ids->size = 4; return (refusal){IST_ERR_SIZE, "topk_idx"};
    case 1: ids->dtype = IST_F32; return (refusal){IST_ERR_ARGUMENT, "topk_idx"};
    case 2: ids->dtype = (ist_dtype)99; return (refusal){IST_ERR_ARGUMENT, "topk_idx"};
    case 3: ids->dim_count = 3; return (refusal){IST_ERR_ARGUMENT, "topk_idx"};
    case 4: ids->dim_count = 1; return (refusal){IST_ERR_ARGUMENT, "topk_idx"};
    case 5: ids->dims[1] = TOPK + 1; return (refusal){IST_ERR_ARGUMENT, "topk_idx"};
    case 6: ids->dims[0] = TOKENS + 1; return (refusal){IST_ERR_RANGE, "topk_idx"};
    case 7: ids->data = NULL; return (refusal){IST_ERR_NULL, "topk_idx"};
    case 8: ids->data = ids; return (refusal){IST_ERR_ARGUMENT, "topk_idx"};
    case 9: ids->reserved = 1; return (refusal){IST_ERR_RESERVED, "topk_idx"};
    case 10: ids->data = (uint8_t *)ids->data + 1; return (refusal){IST_ERR_ALIGNMENT, "topk_idx"};
    default: return no_more;
    }
}

static ist_tensor ids_tensor(const ep_lane *lane)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = IST_I32,
                        .dim_count = 2,
                        .dims = {TOKENS, TOPK},
                        .data = lane->ids};
}

static ist_status refuse_updates(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    ist_ep_handle *opened = NULL;
    for (uint32_t i = 0;; ++i) {
        ist_tensor ids = ids_tensor(lane);
        refusal expected = spoil_ids(&ids, i);
        if (expected.object == NULL) {
            break;
        }
        EXPECT_REFUSED(world, ist_ep_handle_update(lane->handle, &ids, rig->stream),
                       expected.status, expected.object);
        IST_TEST_PASS_ON(expect_idle(rig));
    }
    ist_tensor good = ids_tensor(lane);
    EXPECT_REFUSED(world, ist_ep_handle_update(lane->handle, NULL, rig->stream), IST_ERR_NULL,
                   "topk_idx");
    EXPECT_STATUS(world, ist_ep_handle_update(lane->handle, &good, NULL), IST_ERR_NULL);
    EXPECT_STATUS(world, ist_ep_handle_update(NULL, &good, rig->stream), IST_ERR_NULL);
    EXPECT_REFUSED(world,
                   ist_ep_handle_open(rig->group, IST_EP_LAYOUT_UNSET, &good, rig->stream, &opened),
                   IST_ERR_ARGUMENT, "layout");
    good.dims[1] = IST_EP_TOPK_MAX + 1;
    good.dims[0] = 0;
    EXPECT_REFUSED(world,
                   ist_ep_handle_open(rig->group, IST_EP_RANK_MAJOR, &good, rig->stream, &opened),
                   IST_ERR_RANGE, "topk");
    EXPECT(world, opened == NULL);
    return IST_OK;
}

/* Ids that are out of range or repeat; the error names token, k and value. */
static ist_status refuse_routing(ep_rig *rig, ep_lane *lane)
{
    static const struct {
        int32_t id;
        uint32_t token, k;
        ist_status status;
    } bad[] = {{EXPERTS, 2, 1, IST_ERR_RANGE},
               {-2, 0, 0, IST_ERR_RANGE},
               {INT32_MAX, 3, 1, IST_ERR_RANGE},
               {INT32_MIN, 1, 0, IST_ERR_RANGE},
               {0, 1, 1, IST_ERR_ARGUMENT}}; /* token 1 has expert 0 at k 0 */
    ist_world *world = rig->world;
    ist_tensor ids = ids_tensor(lane);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
        int32_t host[TOKENS * TOPK] = {0, 1, 0, 1, 0, 1, 0, 1};
        char text[32];
        ist_error error = {.size = sizeof(error)};
        host[bad[i].token * TOPK + bad[i].k] = bad[i].id;
        EXPECT_OK(world, ist_copy_to_device(rig->stream, lane->ids, host, sizeof(host)));
        EXPECT_REFUSED(world, ist_ep_handle_update(lane->handle, &ids, rig->stream), bad[i].status,
                       "topk_idx");
        EXPECT_OK(world, ist_error_last(&error));
        EXPECT_EQUAL(world, error.observed, (uint64_t)(int64_t)bad[i].id);
        snprintf(text, sizeof(text), "token %u, k %u", bad[i].token, bad[i].k);
        EXPECT(world, strstr(error.message, text) != NULL);
        EXPECT_STATUS(world, ep_lane_dispatch(lane, rig->stream, 0),
                      IST_ERR_USAGE); /* no routing */
        IST_TEST_PASS_ON(expect_idle(rig));
    }
    return IST_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

typedef struct call {
    ist_tensor tokens, weights, rows, out_weights, out_ids, counters, worked, combined, lost;
    ist_ep_dispatch_in in;
    ist_ep_dispatch_out out;
    ist_ep_layout_info info;
    ist_ep_combine_in combine_in;
    ist_ep_combine_out combine_out;
    ist_ep_op_desc desc;
} call;

static ist_tensor tensor(ist_dtype dtype, void *data, uint32_t dim_count, uint64_t first,
                         uint64_t second, uint64_t third)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dim_count,
                        .dims = {first, second, third},
                        .data = data};
}

static bool by_expert(const ep_lane *lane)
{
    return lane->made->oracle.layout == IST_EP_EXPERT_MAJOR;
}

static void fill_call(const ep_lane *lane, call *c)
{
    uint64_t blocks = lane->block_count;
    bool expert = by_expert(lane);
    memset(c, 0, sizeof(*c));
    c->tokens = tensor(IST_BF16, lane->tokens, 2, TOKENS, HIDDEN, 0);
    c->weights = tensor(IST_F32, lane->weights, 2, TOKENS, TOPK, 0);
    c->rows = tensor(IST_BF16, lane->received, 3, blocks, lane->block_rows, HIDDEN);
    c->out_weights = tensor(IST_F32, lane->received_weights, 3, blocks, lane->block_rows, TOPK);
    c->out_ids = tensor(IST_I32, lane->received_ids, 3, blocks, lane->block_rows, TOPK);
    c->counters = tensor(IST_I32, lane->counters, 1, blocks, 0, 0);
    c->worked = tensor(IST_BF16, lane->worked, 3, blocks, lane->block_rows, HIDDEN);
    c->combined = tensor(IST_BF16, lane->combined, 2, TOKENS, HIDDEN, 0);
    c->lost = tensor(IST_I32, lane->lost_counts, 1, TOKENS, 0, 0);
    c->in = (ist_ep_dispatch_in){.size = sizeof(c->in), .tokens = &c->tokens};
    c->out = (ist_ep_dispatch_out){.size = sizeof(c->out), .tokens = &c->rows};
    c->info = (ist_ep_layout_info){.size = sizeof(c->info)};
    c->combine_in = (ist_ep_combine_in){.size = sizeof(c->combine_in), .tokens = &c->worked};
    c->combine_out = (ist_ep_combine_out){
        .size = sizeof(c->combine_out), .tokens = &c->combined, .lost_counts = &c->lost};
    c->desc.size = sizeof(c->desc);
    c->info.expert_counters = expert ? &c->counters : NULL;
    c->info.rank_counters = expert ? NULL : &c->counters;
    c->in.topk_weights = expert ? NULL : &c->weights;
    c->out.topk_weights = expert ? NULL : &c->out_weights;
    c->out.topk_idx = expert ? NULL : &c->out_ids;
    c->combine_out.topk_weights = expert ? &c->weights : NULL;
}

static refusal spoil_dispatch(call *c, uint32_t number)
{
    switch (number) {
    case 0: c->in.size = 4; return (refusal){IST_ERR_SIZE, "in"};
    case 1: c->out.size = 4; return (refusal){IST_ERR_SIZE, "out"};
    case 2: c->info.size = 4; return (refusal){IST_ERR_SIZE, "info"};
    case 3: c->desc.size = 4; return (refusal){IST_ERR_SIZE, "desc"};
    case 4: c->in.reserved = 1; return (refusal){IST_ERR_RESERVED, "in.reserved"};
    case 5: c->out.reserved = 1; return (refusal){IST_ERR_RESERVED, "out.reserved"};
    case 6: c->desc.reserved[3] = 1; return (refusal){IST_ERR_RESERVED, "desc.reserved"};
    case 7: c->desc.send_only = 2; return (refusal){IST_ERR_ARGUMENT, "desc.send_only"};
    case 8: c->desc.deadline_ns = 10; return (refusal){IST_ERR_RANGE, "desc.deadline_ns"};
    case 9: c->in.tokens = NULL; return (refusal){IST_ERR_NULL, "in.tokens"};
    case 10: c->tokens.dims[0] = TOKENS - 1; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 11: c->tokens.dim_count = 3; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 12: c->tokens.dtype = IST_U8; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 13: c->tokens.dtype = IST_I32; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 14: c->tokens.data = NULL; return (refusal){IST_ERR_NULL, "in.tokens"};
    case 15: c->tokens.dims[1] = 2 * HIDDEN; return (refusal){IST_ERR_RANGE, "in.tokens"};
    case 16: c->tokens.dims[1] = 0; return (refusal){IST_ERR_RANGE, "in.tokens"};
    case 17: c->out.tokens = NULL; return (refusal){IST_ERR_NULL, "out.tokens"};
    case 18: c->rows.dtype = IST_F16; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 19: c->rows.dims[0] -= 1; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 20: c->rows.dims[1] -= 1; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 21: c->rows.dims[2] -= 1; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 22: c->rows.dim_count = 2; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 23: c->rows.data = c; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 24:
        c->info.id_kind = (ist_ep_id_kind)5;
        return (refusal){IST_ERR_ARGUMENT, "info.id_kind"};
    case 25:
        c->tokens.window_offset = 64;
        return (refusal){IST_ERR_ARGUMENT, "in.tokens"}; /* an offset without a window */
    case 26:
        c->tokens.data = (uint8_t *)c->rows.data + 1;
        return (refusal){IST_ERR_ALIGNMENT, "in.tokens"};
    default: return no_more;
    }
}

static refusal spoil_by_expert(call *c, uint32_t number)
{
    switch (number) {
    case 0: c->info.expert_counters = NULL; return (refusal){IST_ERR_NULL, "info.expert_counters"};
    case 1: c->in.topk_weights = &c->weights; return (refusal){IST_ERR_ARGUMENT, "in.topk_weights"};
    case 2:
        c->out.topk_weights = &c->out_weights;
        return (refusal){IST_ERR_ARGUMENT, "out.topk_weights"};
    case 3: c->out.topk_idx = &c->out_ids; return (refusal){IST_ERR_ARGUMENT, "out.topk_idx"};
    case 4:
        c->info.rank_counters = &c->counters;
        return (refusal){IST_ERR_ARGUMENT, "info.rank_counters"};
    case 5: c->counters.dtype = IST_F32; return (refusal){IST_ERR_ARGUMENT, "info.expert_counters"};
    case 6: c->counters.dims[0] += 1; return (refusal){IST_ERR_ARGUMENT, "info.expert_counters"};
    default: return no_more;
    }
}

static refusal spoil_by_rank(call *c, uint32_t number)
{
    switch (number) {
    case 0: c->in.topk_weights = NULL; return (refusal){IST_ERR_NULL, "in.topk_weights"};
    case 1: c->out.topk_weights = NULL; return (refusal){IST_ERR_NULL, "out.topk_weights"};
    case 2: c->out.topk_idx = NULL; return (refusal){IST_ERR_NULL, "out.topk_idx"};
    case 3:
        c->info.expert_counters = &c->counters;
        return (refusal){IST_ERR_ARGUMENT, "info.expert_counters"};
    case 4: c->weights.dtype = IST_BF16; return (refusal){IST_ERR_ARGUMENT, "in.topk_weights"};
    case 5: c->weights.dims[1] = 1; return (refusal){IST_ERR_ARGUMENT, "in.topk_weights"};
    case 6: c->out_ids.dtype = IST_I64; return (refusal){IST_ERR_ARGUMENT, "out.topk_idx"};
    case 7: c->out_weights.dims[2] = 1; return (refusal){IST_ERR_ARGUMENT, "out.topk_weights"};
    case 8: c->counters.dims[0] = 1; return (refusal){IST_ERR_ARGUMENT, "info.rank_counters"};
    default: return no_more;
    }
}

static refusal spoil_combine(call *c, uint32_t number)
{
    switch (number) {
    case 0: c->combine_in.size = 4; return (refusal){IST_ERR_SIZE, "in"};
    case 1: c->combine_out.size = 4; return (refusal){IST_ERR_SIZE, "out"};
    case 2: c->combine_in.reserved = 1; return (refusal){IST_ERR_RESERVED, "in.reserved"};
    case 3: c->combine_out.reserved = 1; return (refusal){IST_ERR_RESERVED, "out.reserved"};
    case 4: c->combine_in.tokens = NULL; return (refusal){IST_ERR_NULL, "in.tokens"};
    case 5: c->worked.dims[0] += 1; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 6: c->worked.dims[1] -= 1; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 7: c->worked.dtype = IST_I32; return (refusal){IST_ERR_ARGUMENT, "in.tokens"};
    case 8: c->combine_out.tokens = NULL; return (refusal){IST_ERR_NULL, "out.tokens"};
    case 9: c->combined.dims[0] = TOKENS - 1; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 10: c->combined.dims[1] = HIDDEN - 1; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 11: c->combined.dtype = IST_F16; return (refusal){IST_ERR_ARGUMENT, "out.tokens"};
    case 12: c->lost.dtype = IST_I64; return (refusal){IST_ERR_ARGUMENT, "out.lost_counts"};
    case 13: c->lost.dims[0] = TOKENS - 1; return (refusal){IST_ERR_ARGUMENT, "out.lost_counts"};
    case 14: c->desc.send_only = 9; return (refusal){IST_ERR_ARGUMENT, "desc.send_only"};
    case 15: c->desc.deadline_ns = 999; return (refusal){IST_ERR_RANGE, "desc.deadline_ns"};
    default: return no_more;
    }
}

static refusal spoil_weights(call *c, bool expert, uint32_t number)
{
    if (number == 0) {
        c->combine_out.topk_weights = expert ? NULL : &c->weights;
        return (refusal){expert ? IST_ERR_NULL : IST_ERR_ARGUMENT, "out.topk_weights"};
    }
    if (number == 1 && expert) {
        c->weights.dims[0] = TOKENS + 1;
        return (refusal){IST_ERR_ARGUMENT, "out.topk_weights"};
    }
    return no_more;
}

/* The nth way to spoil a dispatch in this layout. */
static refusal spoil_any_dispatch(const ep_lane *lane, call *c, uint32_t number)
{
    uint32_t common = 0;
    call other;
    for (; common <= number; ++common) {
        fill_call(lane, &other);
        if (spoil_dispatch(&other, common).object == NULL) {
            break;
        }
    }
    if (number < common) {
        return spoil_dispatch(c, number);
    }
    return by_expert(lane) ? spoil_by_expert(c, number - common)
                           : spoil_by_rank(c, number - common);
}

static refusal spoil_any_combine(const ep_lane *lane, call *c, uint32_t number)
{
    refusal expected = spoil_combine(c, number);
    return expected.object != NULL ? expected : spoil_weights(c, by_expert(lane), number - 16u);
}

static ist_status refuse_dispatches(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    call c;
    for (uint32_t i = 0;; ++i) {
        fill_call(lane, &c);
        refusal expected = spoil_any_dispatch(lane, &c, i);
        if (expected.object == NULL) {
            break;
        }
        EXPECT_REFUSED(world,
                       ist_ep_dispatch(lane->handle, &c.in, &c.out, &c.info, &c.desc, rig->stream),
                       expected.status, expected.object);
        IST_TEST_PASS_ON(expect_idle(rig));
    }
    fill_call(lane, &c);
    EXPECT_STATUS(world, ist_ep_dispatch(NULL, &c.in, &c.out, &c.info, &c.desc, rig->stream),
                  IST_ERR_NULL);
    EXPECT_REFUSED(world, ist_ep_dispatch(lane->handle, NULL, &c.out, &c.info, NULL, rig->stream),
                   IST_ERR_NULL, "in");
    EXPECT_REFUSED(world, ist_ep_dispatch(lane->handle, &c.in, NULL, &c.info, NULL, rig->stream),
                   IST_ERR_NULL, "out");
    EXPECT_STATUS(world, ist_ep_dispatch(lane->handle, &c.in, &c.out, &c.info, NULL, NULL),
                  IST_ERR_NULL);
    if (by_expert(lane)) {
        EXPECT_REFUSED(world, ist_ep_dispatch(lane->handle, &c.in, &c.out, NULL, NULL, rig->stream),
                       IST_ERR_NULL, "info.expert_counters");
    }
    return expect_idle(rig);
}

static ist_status refuse_combines(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    call c;
    for (uint32_t i = 0;; ++i) {
        fill_call(lane, &c);
        refusal expected = spoil_any_combine(lane, &c, i);
        if (expected.object == NULL) {
            break;
        }
        EXPECT_REFUSED(
            world,
            ist_ep_combine(lane->handle, &c.combine_in, &c.combine_out, &c.desc, rig->stream),
            expected.status, expected.object);
        IST_TEST_PASS_ON(expect_idle(rig));
    }
    fill_call(lane, &c);
    EXPECT_STATUS(world, ist_ep_combine(NULL, &c.combine_in, &c.combine_out, NULL, rig->stream),
                  IST_ERR_NULL);
    EXPECT_REFUSED(world, ist_ep_combine(lane->handle, NULL, &c.combine_out, NULL, rig->stream),
                   IST_ERR_NULL, "in");
    EXPECT_REFUSED(world, ist_ep_combine(lane->handle, &c.combine_in, NULL, NULL, rig->stream),
                   IST_ERR_NULL, "out");
    return expect_idle(rig);
}

/* ---- queries and order ----------------------------------------------------------------------- */

static ist_status refuse_queries(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    uint32_t rank = 0, local = 0;
    ist_completion record = {.size = sizeof(record)};
    ist_ep_group_info info = {.size = 4};
    uint64_t word = 0;
    EXPECT_REFUSED(world, ist_ep_expert_owner(rig->group, EXPERTS, &rank, &local), IST_ERR_RANGE,
                   "expert");
    EXPECT_REFUSED(world, ist_ep_expert_owner(rig->group, 0, NULL, &local), IST_ERR_NULL, "rank");
    EXPECT_REFUSED(world, ist_ep_expert_owner(rig->group, 0, &rank, NULL), IST_ERR_NULL, "local");
    EXPECT_REFUSED(world, ist_ep_group_query(rig->group, NULL), IST_ERR_NULL, "info");
    EXPECT_REFUSED(world, ist_ep_group_query(rig->group, &info), IST_ERR_SIZE, "info");
    EXPECT_REFUSED(world, ist_ep_record(lane->handle, (ist_ep_op)2, &record), IST_ERR_ARGUMENT,
                   "op");
    EXPECT_REFUSED(world, ist_ep_record(lane->handle, IST_EP_OP_DISPATCH, NULL), IST_ERR_NULL,
                   "record");
    record.lost_words = &word;
    record.word_count = 0;
    EXPECT_REFUSED(world, ist_ep_record(lane->handle, IST_EP_OP_DISPATCH, &record), IST_ERR_SIZE,
                   "record.word_count");
    record.size = 2;
    EXPECT_REFUSED(world, ist_ep_record(lane->handle, IST_EP_OP_DISPATCH, &record), IST_ERR_SIZE,
                   "record");
    EXPECT_STATUS(world, ist_ep_record(NULL, IST_EP_OP_DISPATCH, &record), IST_ERR_NULL);
    EXPECT_STATUS(world, ist_ep_complete(NULL, rig->stream), IST_ERR_NULL);
    EXPECT_STATUS(world, ist_ep_complete(lane->handle, NULL), IST_ERR_NULL);
    EXPECT_REFUSED(world, ist_ep_clean(rig->group, rig->stream), IST_ERR_USAGE, "group");
    EXPECT_STATUS(world, ist_ep_clean(NULL, rig->stream), IST_ERR_NULL);
    EXPECT_OK(world, ist_ep_group_close(NULL));
    EXPECT_OK(world, ist_ep_handle_close(NULL));
    return expect_idle(rig);
}

/* Nothing was ever issued; then calls in the wrong order. */
static ist_status refuse_order(ep_rig *rig, ep_lane *lane)
{
    ist_world *world = rig->world;
    EXPECT_OK(world, ep_lane_read_record(lane, IST_EP_OP_DISPATCH));
    EXPECT_EQUAL(world, lane->record[IST_EP_OP_DISPATCH].status, IST_IN_PROGRESS);
    EXPECT_EQUAL(world, lane->record[IST_EP_OP_DISPATCH].sequence, 0);
    EXPECT_STATUS(world, ep_lane_dispatch(lane, rig->stream, 0), IST_ERR_USAGE);
    EXPECT_STATUS(world, ep_lane_combine(lane, rig->stream, 0), IST_ERR_USAGE);
    EXPECT_OK(world, ist_ep_complete(lane->handle, rig->stream));
    EXPECT_STATUS(world, ist_ep_group_close(rig->group), IST_ERR_USAGE);
    return expect_idle(rig);
}

static ist_status calls_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, made, NULL, &lane));
    IST_TEST_PASS_ON(refuse_order(&rig, &lane));
    IST_TEST_PASS_ON(refuse_inits(&rig, &lane));
    IST_TEST_PASS_ON(refuse_routing(&rig, &lane));
    EXPECT_OK(world, ep_lane_load(&lane, made));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    IST_TEST_PASS_ON(refuse_updates(&rig, &lane));
    IST_TEST_PASS_ON(refuse_queries(&rig, &lane));
    EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
    EXPECT_STATUS(world, ep_lane_combine(&lane, rig.stream, 0), IST_ERR_USAGE);
    IST_TEST_PASS_ON(refuse_dispatches(&rig, &lane));
    EXPECT_OK(world, ep_lane_dispatch(&lane, rig.stream, 0));
    EXPECT_DISPATCHED(&lane);
    EXPECT_OK(world, ep_lane_work(&lane));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    IST_TEST_PASS_ON(refuse_combines(&rig, &lane));
    EXPECT_OK(world, ep_lane_combine(&lane, rig.stream, 0));
    EXPECT_COMBINED(&lane);
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    ist_ep_handle *closed = lane.handle;
    EXPECT_OK(world, ist_ep_handle_close(lane.handle));
    lane.handle = NULL;
    EXPECT_STATUS(world, ist_ep_complete(closed, rig.stream), IST_ERR_OBJECT);
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void calls(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * 2; ++i) {
        ep_case made;
        ep_shape shape = usual;
        shape.layout = i % 2 == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
        assert_true(ep_case_init(&made, &shape));
        assert_int_equal(ist_test_run(2, i / 2 == 0 ? NULL : "2x1", calls_main, &made), IST_OK);
        ep_case_fini(&made);
    }
}

/* ---- zero copy, and checks that do not wait --------------------------------------------------- */

static ist_status plain_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    ep_lane lane;
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    setup.zero_copy = IST_EP_ZERO_COPY_ON;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, made, NULL, &lane));
    EXPECT_OK(world, ep_lane_load(&lane, made));
    EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
    EXPECT_REFUSED(world, ep_lane_dispatch(&lane, rig.stream, 0), IST_ERR_ARGUMENT, "in.tokens");
    IST_TEST_PASS_ON(expect_idle(&rig));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

/* ASYNC: the call succeeds, bad entries count as -1, and the records say so. */
static ist_status async_main(ist_world *world, void *arg)
{
    const ep_case *made = arg;
    ep_rig rig;
    ep_lane lane;
    const int32_t ids[TOKENS * TOPK] = {EXPERTS + 7, 1, -1, 2, 3, 4, 5, 0};
    ep_rig_setup setup = ep_rig_setup_for(&usual);
    setup.check = IST_EP_CHECK_ASYNC;
    EXPECT_OK(world, ep_rig_open(world, &setup, &rig));
    EXPECT_OK(world, ep_lane_open(&rig, made, NULL, &lane));
    EXPECT_OK(world, ep_lane_load(&lane, made));
    EXPECT_OK(world, ist_copy_to_device(rig.stream, lane.ids, ids, sizeof(ids)));
    EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
    EXPECT_OK(world, ep_lane_dispatch(&lane, rig.stream, 0));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    EXPECT_OK(world, ep_lane_read_record(&lane, IST_EP_OP_DISPATCH));
    EXPECT_EQUAL(world, lane.record[IST_EP_OP_DISPATCH].status, (uint64_t)IST_ERR_RANGE);
    EXPECT_EQUAL(world, lane.record[IST_EP_OP_DISPATCH].lost_count, 0);
    /* Good ids, and all is well again. */
    EXPECT_OK(world, ep_lane_load(&lane, made));
    EXPECT_OK(world, ep_lane_route(&lane, rig.stream));
    EXPECT_OK(world, ep_lane_dispatch(&lane, rig.stream, 0));
    EXPECT_DISPATCHED(&lane);
    EXPECT_OK(world, ist_comm_barrier(rig.comm, rig.stream));
    EXPECT_OK(world, ist_stream_sync(rig.stream, 0));
    EXPECT_OK(world, ep_lane_close(&lane));
    EXPECT_OK(world, ep_rig_close(&rig));
    return IST_OK;
}

static void groups_that_ask_for_more(void **state)
{
    ep_case made;
    ep_shape shape = usual;
    (void)state;
    shape.layout = IST_EP_EXPERT_MAJOR;
    assert_true(ep_case_init(&made, &shape));
    assert_int_equal(ist_test_run(2, NULL, plain_main, &made), IST_OK);
    assert_int_equal(ist_test_run(2, NULL, async_main, &made), IST_OK);
    assert_int_equal(ist_test_run(2, "2x1", async_main, &made), IST_OK);
    ep_case_fini(&made);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),
        cmocka_unit_test(groups_that_differ),
        cmocka_unit_test(calls),
        cmocka_unit_test(groups_that_ask_for_more),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep bad input", tests, NULL, NULL);
}
