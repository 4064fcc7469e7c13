/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a dispatch and a combine end to end, small enough to follow by hand. Method: values that
 * every type holds exactly, so that plain loops over all ranks' tokens say what must come out; both
 * layouts, three types, teams of all sizes, uneven token counts, entries that go nowhere.
 */
#include "ist_test.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4u
#define EXPERTS                                                                                    \
    6u            /* of four ranks the first two hold two each, the others one; of two three each */
#define TOKENS 5u /* at most, of a rank */
#define TOPK 3u
#define HIDDEN 10u
#define LOCAL_MAX 3u
#define SLOTS_MAX (RANKS * TOKENS)
#define SLOTS (ranks * TOKENS)

static uint32_t ranks = RANKS; /* less where there are fewer devices */

typedef struct trial {
    ist_ep_layout layout;
    ist_dtype dtype;
} trial;

/* ---- what is exchanged: closed forms, known to all ranks --------------------------------------- */

static uint32_t token_count(uint32_t rank)
{
    return rank + 1 == ranks ? 0 : TOKENS - rank; /* the last rank has none */
}

static int32_t expert_of(uint32_t rank, uint32_t token, uint32_t k)
{
    return (rank + token + k) % 7 == 0 ? -1 : (int32_t)((rank + 2 * token + k) % EXPERTS);
}

static float weight_of(uint32_t k)
{
    return 0.5f * (float)(k + 1);
}

static float value_of(uint32_t rank, uint32_t token, uint32_t h)
{
    return (float)((int)((rank * 7 + token * 3 + h) % 15) - 7);
}

/* What an expert makes of a value. */
static float work(uint32_t expert, float value)
{
    return value * (float)(expert % 3 + 1);
}

static uint32_t local_count(uint32_t rank)
{
    return EXPERTS / ranks + (rank < EXPERTS % ranks ? 1 : 0);
}

static uint32_t first_expert(uint32_t rank)
{
    uint32_t first = 0;
    for (uint32_t before = 0; before < rank; ++before) {
        first += local_count(before);
    }
    return first;
}

static uint32_t rank_of(uint32_t expert)
{
    uint32_t rank = 0;
    while (expert >= first_expert(rank) + local_count(rank)) {
        ++rank;
    }
    return rank;
}

static bool goes_to(uint32_t source, uint32_t token, uint32_t rank)
{
    for (uint32_t k = 0; k < TOPK; ++k) {
        int32_t expert = expert_of(source, token, k);
        if (expert >= 0 && rank_of((uint32_t)expert) == rank) {
            return true;
        }
    }
    return false;
}

/* ---- element types; all values here are small multiples of one half ---------------------------- */

static size_t element_bytes(ist_dtype dtype)
{
    return dtype == IST_F32 ? 4 : 2;
}

static void put(ist_dtype dtype, uint8_t *row, uint32_t h, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t half = (uint16_t)(bits >> 16); /* bf16 */
    if (dtype == IST_F16) {
        uint32_t exponent = (bits >> 23) & 0xffu;
        half = (uint16_t)((bits >> 16) & 0x8000u);
        half |= exponent == 0 ? 0 : (uint16_t)((exponent - 112) << 10 | ((bits >> 13) & 0x3ffu));
    }
    memcpy(row + h * element_bytes(dtype), dtype == IST_F32 ? (void *)&bits : (void *)&half,
           element_bytes(dtype));
}

static void put_row(ist_dtype dtype, uint8_t *row, uint32_t source, uint32_t token)
{
    for (uint32_t h = 0; h < HIDDEN; ++h) {
        put(dtype, row, h, value_of(source, token, h));
    }
}

/* ---- a rank ----------------------------------------------------------------------------------- */

typedef struct bench {
    const trial *of;
    ist_world *world;
    uint32_t rank;
    uint32_t tokens; /* of this rank */
    uint32_t local;
    size_t row; /* bytes */
    ist_comm *comm;
    ist_stream *stream;
    ist_ep_group *group;
    ist_ep_handle *handle;
    uint8_t *device; /* one allocation; the offsets below */
    uint8_t host[SLOTS_MAX * LOCAL_MAX * HIDDEN * 4];
} bench;

enum {
    AT_TOKENS = 0,
    AT_IDS = 4096,
    AT_WEIGHTS = 8192,
    AT_OUT = 12288,
    AT_COUNTS = 16384,
    AT_IN_WEIGHTS = 20480,
    AT_IN_IDS = 24576,
    AT_IN = 28672,
    DEVICE_BYTES = 65536
};

static ist_tensor tensor(bench *b, uint32_t at, ist_dtype dtype, uint32_t dims, uint64_t d0,
                         uint64_t d1, uint64_t d2)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dims,
                        .dims = {d0, d1, d2},
                        .data = b->device + at};
}

static bool by_expert(const bench *b)
{
    return b->of->layout == IST_EP_EXPERT_MAJOR;
}

static size_t received_bytes(const bench *b)
{
    return (by_expert(b) ? b->local * SLOTS : SLOTS) * b->row;
}

static ist_tensor received(bench *b)
{
    return by_expert(b) ? tensor(b, AT_IN, b->of->dtype, 3, b->local, SLOTS, HIDDEN)
                        : tensor(b, AT_IN, b->of->dtype, 3, ranks, TOKENS, HIDDEN);
}

static ist_status load(bench *b)
{
    int32_t ids[TOKENS * TOPK];
    float weights[TOKENS * TOPK];
    for (uint32_t token = 0; token < b->tokens; ++token) {
        put_row(b->of->dtype, b->host + token * b->row, b->rank, token);
        for (uint32_t k = 0; k < TOPK; ++k) {
            ids[token * TOPK + k] = expert_of(b->rank, token, k);
            weights[token * TOPK + k] = weight_of(k);
        }
    }
    EXPECT_OK(b->world, ist_fill(b->stream, b->device, 0x77, DEVICE_BYTES));
    if (b->tokens != 0) {
        EXPECT_OK(b->world, ist_copy_to_device(b->stream, b->device + AT_TOKENS, b->host,
                                               b->tokens * b->row));
        EXPECT_OK(b->world, ist_copy_to_device(b->stream, b->device + AT_IDS, ids,
                                               b->tokens * TOPK * sizeof(ids[0])));
        EXPECT_OK(b->world, ist_copy_to_device(b->stream, b->device + AT_WEIGHTS, weights,
                                               b->tokens * TOPK * sizeof(weights[0])));
    }
    return IST_OK;
}

static ist_status dispatch(bench *b)
{
    ist_tensor tokens = tensor(b, AT_TOKENS, b->of->dtype, 2, b->tokens, HIDDEN, 0);
    ist_tensor weights = tensor(b, AT_WEIGHTS, IST_F32, 2, b->tokens, TOPK, 0);
    ist_tensor rows = received(b);
    ist_tensor in_weights = tensor(b, AT_IN_WEIGHTS, IST_F32, 3, ranks, TOKENS, TOPK);
    ist_tensor in_ids = tensor(b, AT_IN_IDS, IST_I32, 3, ranks, TOKENS, TOPK);
    ist_tensor counts = tensor(b, AT_COUNTS, IST_I32, 1, by_expert(b) ? b->local : ranks, 0, 0);
    bool em = by_expert(b);
    ist_ep_dispatch_in in = {
        .size = sizeof(in), .tokens = &tokens, .topk_weights = em ? NULL : &weights};
    ist_ep_dispatch_out out = {.size = sizeof(out),
                               .tokens = &rows,
                               .topk_weights = em ? NULL : &in_weights,
                               .topk_idx = em ? NULL : &in_ids};
    ist_ep_layout_info info = {.size = sizeof(info),
                               .expert_counters = em ? &counts : NULL,
                               .rank_counters = em ? NULL : &counts};
    EXPECT_OK(b->world, ist_ep_dispatch(b->handle, &in, &out, &info, NULL, b->stream));
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, b->host, rows.data, received_bytes(b)));
    return IST_OK;
}

/* Compares one received row, and turns it into what the experts answer. */
static ist_status check_row(bench *b, uint8_t *row, uint32_t source, uint32_t token,
                            uint32_t expert)
{
    uint8_t expected[HIDDEN * 4];
    put_row(b->of->dtype, expected, source, token);
    EXPECT(b->world, memcmp(row, expected, b->row) == 0);
    for (uint32_t h = 0; h < HIDDEN; ++h) {
        float value = value_of(source, token, h);
        float sum = 0;
        for (uint32_t k = 0; k < TOPK; ++k) {
            int32_t id = expert_of(source, token, k);
            if (id >= 0 && rank_of((uint32_t)id) == b->rank) {
                sum += work((uint32_t)id, value) * weight_of(k);
            }
        }
        put(b->of->dtype, row, h, by_expert(b) ? work(expert, value) : sum);
    }
    return IST_OK;
}

static ist_status check_by_expert(bench *b)
{
    int32_t counts[LOCAL_MAX];
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, counts, b->device + AT_COUNTS,
                                         b->local * sizeof(counts[0])));
    for (uint32_t local = 0; local < b->local; ++local) {
        uint32_t expert = first_expert(b->rank) + local;
        uint32_t slot = 0;
        for (uint32_t source = 0; source < ranks; ++source) {
            for (uint32_t i = 0; i < token_count(source) * TOPK; ++i) {
                if (expert_of(source, i / TOPK, i % TOPK) == (int32_t)expert) {
                    uint8_t *row = b->host + (local * SLOTS + slot++) * b->row;
                    IST_TEST_PASS_ON(check_row(b, row, source, i / TOPK, expert));
                }
            }
        }
        EXPECT_EQUAL(b->world, counts[local], slot);
        for (size_t i = 0; i < (SLOTS - slot) * b->row; ++i) {
            EXPECT_EQUAL(b->world, b->host[(local * SLOTS + slot) * b->row + i], 0x77);
        }
    }
    return IST_OK;
}

static ist_status check_entries(bench *b, const int32_t *ids, const float *weights, uint32_t source,
                                uint32_t token)
{
    for (uint32_t k = 0; k < TOPK; ++k) {
        int32_t id = expert_of(source, token, k);
        bool here = id >= 0 && rank_of((uint32_t)id) == b->rank;
        EXPECT(b->world, ids[k] == (here ? id - (int32_t)first_expert(b->rank) : -1));
        EXPECT(b->world, weights[k] == weight_of(k));
    }
    return IST_OK;
}

static ist_status check_by_rank(bench *b)
{
    int32_t counts[RANKS], ids[SLOTS_MAX * TOPK];
    float weights[SLOTS_MAX * TOPK];
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, counts, b->device + AT_COUNTS,
                                         ranks * sizeof(counts[0])));
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, ids, b->device + AT_IN_IDS,
                                         SLOTS * TOPK * sizeof(ids[0])));
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, weights, b->device + AT_IN_WEIGHTS,
                                         SLOTS * TOPK * sizeof(weights[0])));
    for (uint32_t source = 0; source < ranks; ++source) {
        uint32_t slot = source * TOKENS;
        for (uint32_t token = 0; token < token_count(source); ++token) {
            if (goes_to(source, token, b->rank)) {
                IST_TEST_PASS_ON(
                    check_entries(b, ids + slot * TOPK, weights + slot * TOPK, source, token));
                IST_TEST_PASS_ON(check_row(b, b->host + slot++ * b->row, source, token, 0));
            }
        }
        EXPECT_EQUAL(b->world, counts[source], slot - source * TOKENS);
        for (uint32_t i = slot * TOPK; i < (source + 1) * TOKENS * TOPK; ++i) {
            EXPECT(b->world, ids[i] == -1);
        }
    }
    return IST_OK;
}

static ist_status combine(bench *b)
{
    ist_tensor rows = received(b);
    ist_tensor weights = tensor(b, AT_WEIGHTS, IST_F32, 2, b->tokens, TOPK, 0);
    ist_tensor tokens = tensor(b, AT_OUT, b->of->dtype, 2, TOKENS, HIDDEN, 0);
    ist_ep_combine_in in = {.size = sizeof(in), .tokens = &rows};
    ist_ep_combine_out out = {
        .size = sizeof(out), .tokens = &tokens, .topk_weights = by_expert(b) ? &weights : NULL};
    EXPECT_OK(b->world, ist_copy_to_device(b->stream, rows.data, b->host, received_bytes(b)));
    EXPECT_OK(b->world, ist_ep_combine(b->handle, &in, &out, NULL, b->stream));
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, b->host, tokens.data, TOKENS * b->row));
    return IST_OK;
}

static ist_status check_combined(bench *b)
{
    uint8_t expected[HIDDEN * 4];
    for (uint32_t token = 0; token < b->tokens; ++token) {
        for (uint32_t h = 0; h < HIDDEN; ++h) {
            float sum = 0;
            for (uint32_t k = 0; k < TOPK; ++k) {
                int32_t id = expert_of(b->rank, token, k);
                sum += id < 0 ? 0 : work((uint32_t)id, value_of(b->rank, token, h)) * weight_of(k);
            }
            put(b->of->dtype, expected, h, sum);
        }
        EXPECT(b->world, memcmp(b->host + token * b->row, expected, b->row) == 0);
    }
    for (size_t i = b->tokens * b->row; i < TOKENS * b->row; ++i) {
        EXPECT_EQUAL(b->world, b->host[i], 0x77);
    }
    return IST_OK;
}

static ist_status check_records(bench *b)
{
    for (int op = IST_EP_OP_DISPATCH; op <= IST_EP_OP_COMBINE; ++op) {
        uint64_t lost = 1;
        ist_completion record = {.size = sizeof(record), .lost_words = &lost, .word_count = 1};
        EXPECT_OK(b->world, ist_ep_record(b->handle, (ist_ep_op)op, &record));
        EXPECT_EQUAL(b->world, record.status, IST_OK);
        EXPECT_EQUAL(b->world, record.complete, 1);
        EXPECT_EQUAL(b->world, lost, 0);
    }
    return IST_OK;
}

static ist_status open_all(bench *b)
{
    void *device = NULL;
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = EXPERTS,
                              .tokens_per_rank_max = TOKENS,
                              .topk_max = TOPK,
                              .token_bytes_max = b->row};
    EXPECT_OK(b->world, ist_comm_open(b->world, NULL, &b->comm));
    EXPECT_OK(b->world, ist_stream_open(b->world, &b->stream));
    EXPECT_OK(b->world, ist_ep_group_open(b->comm, &desc, &b->group));
    EXPECT_OK(b->world, ist_mem_alloc(b->world, DEVICE_BYTES, IST_MEM_PLAIN, &device));
    b->device = device;
    return IST_OK;
}

static ist_status close_all(bench *b)
{
    EXPECT_OK(b->world, ist_ep_handle_close(b->handle));
    EXPECT_OK(b->world, ist_ep_group_close(b->group));
    EXPECT_OK(b->world, ist_mem_free(b->world, b->device));
    EXPECT_OK(b->world, ist_stream_close(b->stream));
    EXPECT_OK(b->world, ist_comm_close(b->comm));
    return IST_OK;
}

static ist_status run_bench(bench *b)
{
    IST_TEST_PASS_ON(open_all(b));
    IST_TEST_PASS_ON(load(b));
    ist_tensor ids = tensor(b, AT_IDS, IST_I32, 2, b->tokens, TOPK, 0);
    EXPECT_OK(b->world, ist_ep_handle_open(b->group, b->of->layout, &ids, b->stream, &b->handle));
    IST_TEST_PASS_ON(dispatch(b));
    IST_TEST_PASS_ON(by_expert(b) ? check_by_expert(b) : check_by_rank(b));
    IST_TEST_PASS_ON(combine(b));
    IST_TEST_PASS_ON(check_combined(b));
    IST_TEST_PASS_ON(check_records(b));
    return close_all(b);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    bench *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return IST_ERR_MEMORY;
    }
    b->of = arg;
    b->world = world;
    b->rank = ist_world_rank(world);
    b->tokens = token_count(b->rank);
    b->local = local_count(b->rank);
    b->row = HIDDEN * element_bytes(b->of->dtype);
    ist_status status = run_bench(b);
    free(b);
    return status;
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void run_all_types(ist_ep_layout layout)
{
    static const char *const clusters[] = {"1x4", "2x2", "4x1"};
    static const ist_dtype dtypes[] = {IST_BF16, IST_F16, IST_F32};
    for (size_t i = 0; i < 9; ++i) {
        trial of = {layout, dtypes[i % 3]};
        if (ist_test_has_cluster(clusters[i / 3])) {
            assert_int_equal(ist_test_run(ranks, clusters[i / 3], rank_main, &of), IST_OK);
        }
    }
}

static void expert_major_goes_there_and_back(void **state)
{
    (void)state;
    run_all_types(IST_EP_EXPERT_MAJOR);
}

static void rank_major_goes_there_and_back(void **state)
{
    (void)state;
    run_all_types(IST_EP_RANK_MAJOR);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expert_major_goes_there_and_back),
        cmocka_unit_test(rank_major_goes_there_and_back),
    };
    ist_test_init(argc, argv);
    ranks = ist_test_ranks(RANKS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
