/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle is judged by other means: an exchange worked out by hand, and rounding against the
 * nearest of all representable numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ep_case.h"

#include <math.h>
#include <string.h>

/* Two ranks, three experts (rank 0: 0 and 1, rank 1: 2), two tokens each, top-2. */
static const uint32_t counts[2] = {2, 1};
static const int32_t ids[2 * 2 * 2] = {0, 2, 1, 0, 2, -1, 0, 0};
static const float weights[2 * 2 * 2] = {0.5f, 0.25f, 2.0f, 1.0f, 3.0f, 7.0f, 0, 0};

/* A token's row is its number, 1 + 10 * rank + token; an expert adds 100 * (expert + 1); a rank adds
   the sum of its ids. */
static void token_row(const void *context, uint32_t rank, uint32_t token, void *row)
{
    (void)context;
    *(float *)row = (float)(1 + 10 * rank + token);
}

static void expert_row(const void *context, uint32_t expert, void *row)
{
    (void)context;
    *(float *)row += (float)(100 * (expert + 1));
}

static void rank_row(const void *context, uint32_t rank, const int32_t *shown, const float *given,
                     void *row)
{
    (void)context;
    *(float *)row += (float)(1000 * (rank + 1) + 10 * (shown[0] + 2) + shown[1] + 2) + given[1];
}

static ep_oracle by_hand(ist_ep_layout layout)
{
    ep_oracle oracle = {.rank_count = 2,
                        .expert_count = 3,
                        .topk = 2,
                        .tokens_max = 2,
                        .hidden = 1,
                        .dtype = IST_F32,
                        .layout = layout,
                        .token_counts = counts,
                        .topk_idx = ids,
                        .topk_weights = weights,
                        .token = token_row,
                        .expert = expert_row,
                        .rank = rank_row};
    return oracle;
}

static void check_row(const ep_oracle_received *received, uint64_t at, uint32_t source,
                      uint32_t token, uint32_t k)
{
    assert_int_equal(received->rows[at].source, source);
    assert_int_equal(received->rows[at].token, token);
    assert_int_equal(received->rows[at].k, k);
}

static void test_expert_major(void **state)
{
    (void)state;
    ep_oracle oracle = by_hand(IST_EP_EXPERT_MAJOR);
    ep_oracle_received received;
    assert_int_equal(ep_oracle_owner(&oracle, 1), 0);
    assert_int_equal(ep_oracle_owner(&oracle, 2), 1);
    assert_true(ep_oracle_receive(&oracle, 0, NULL, &received));
    assert_int_equal(received.block_count, 2);
    assert_int_equal(received.counts[0], 2);
    assert_int_equal(received.counts[1], 1);
    check_row(&received, 0, 0, 0, 0);
    check_row(&received, 1, 0, 1, 1);
    check_row(&received, 2, 0, 1, 0);
    ep_oracle_received_free(&received);

    uint64_t lost = 1;
    assert_true(ep_oracle_receive(&oracle, 1, &lost, &received));
    assert_int_equal(received.row_count, 1);
    check_row(&received, 0, 1, 0, 0);
    ep_oracle_received_free(&received);
}

static void test_expert_major_combine(void **state)
{
    (void)state;
    ep_oracle oracle = by_hand(IST_EP_EXPERT_MAJOR);
    float scratch;
    float sum;
    float row;
    uint64_t lost = 2;
    ep_oracle_combine(&oracle, 0, 0, NULL, &scratch, &sum, &row);
    assert_true(row == 0.5f * 101 + 0.25f * 301);
    ep_oracle_combine(&oracle, 0, 0, &lost, &scratch, &sum, &row);
    assert_true(row == 0.5f * 101);
    assert_int_equal(ep_oracle_lost_count(&oracle, 0, 0, &lost), 1);
    ep_oracle_combine(&oracle, 1, 0, NULL, &scratch, &sum, &row);
    assert_true(row == 3.0f * (11 + 300));
}

static void test_rank_major(void **state)
{
    (void)state;
    ep_oracle oracle = by_hand(IST_EP_RANK_MAJOR);
    ep_oracle_received received;
    int32_t shown[2];
    float given[2];
    assert_true(ep_oracle_receive(&oracle, 0, NULL, &received));
    assert_int_equal(received.block_count, 2);
    assert_int_equal(received.counts[0], 2);
    assert_int_equal(received.counts[1], 0);
    ep_oracle_metadata(&oracle, 0, &received.rows[0], shown, given);
    assert_int_equal(shown[0], 0);
    assert_int_equal(shown[1], -1);
    assert_true(given[0] == 0.5f && given[1] == 0.25f);
    ep_oracle_received_free(&received);
    oracle.id_kind = IST_EP_ID_GLOBAL;
    ep_oracle_row first = {0, 0, 1};
    ep_oracle_metadata(&oracle, 1, &first, shown, given);
    assert_int_equal(shown[0], -1);
    assert_int_equal(shown[1], 2);
}

static void test_rank_major_combine(void **state)
{
    (void)state;
    ep_oracle oracle = by_hand(IST_EP_RANK_MAJOR);
    float scratch;
    float sum;
    float row;
    uint64_t lost = 1;
    ep_oracle_combine(&oracle, 0, 0, NULL, &scratch, &sum, &row);
    assert_true(row == (1 + 1021 + 0.25f) + (1 + 2012 + 0.25f));
    /* Token 1 has two experts on one rank: one contribution. */
    ep_oracle_combine(&oracle, 0, 1, NULL, &scratch, &sum, &row);
    assert_true(row == 2 + 1032 + 1.0f);
    assert_int_equal(ep_oracle_lost_count(&oracle, 0, 1, &lost), 1);
}

/* Every finite f16 comes back, and halves between neighbours go to the even one. */
static void test_round_f16(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
        float low = ep_oracle_widen_f16((uint16_t)bits);
        float high = ep_oracle_widen_f16((uint16_t)(bits + 1));
        float middle = low + (high - low) / 2;
        uint32_t even = (bits & 1) == 0 ? bits : bits + 1;
        assert_int_equal(ep_oracle_round_f16(low), bits);
        assert_int_equal(ep_oracle_round_f16(middle), even);
        assert_int_equal(ep_oracle_round_f16(nextafterf(middle, 0.0f)), bits);
        assert_int_equal(ep_oracle_round_f16(nextafterf(middle, INFINITY)), bits + 1);
        assert_int_equal(ep_oracle_round_f16(-middle), even | 0x8000u);
    }
    assert_int_equal(ep_oracle_round_f16(65519.996f), 0x7bff);
    assert_int_equal(ep_oracle_round_f16(65520.0f), 0x7c00);
    assert_int_equal(ep_oracle_round_f16(-INFINITY), 0xfc00);
}

static void test_round_bf16(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
        float low = ep_oracle_widen_bf16((uint16_t)bits);
        float high = ep_oracle_widen_bf16((uint16_t)(bits + 1));
        float middle = low + (high - low) / 2;
        uint32_t even = (bits & 1) == 0 ? bits : bits + 1;
        assert_int_equal(ep_oracle_round_bf16(low), bits);
        assert_int_equal(ep_oracle_round_bf16(middle), even);
        assert_int_equal(ep_oracle_round_bf16(nextafterf(middle, 0.0f)), bits);
        assert_int_equal(ep_oracle_round_bf16(nextafterf(middle, INFINITY)), bits + 1);
    }
    assert_int_equal(ep_oracle_round_bf16(-0.0f), 0x8000);
    assert_int_equal(ep_oracle_round_bf16(3.4e38f), 0x7f80);
    assert_true((ep_oracle_round_bf16(NAN) & 0x7fff) > 0x7f80);
}

/* Rows of the command's data differ between tokens and between experts, and stay ordinary numbers. */
static void test_data(void **state)
{
    (void)state;
    const ist_dtype dtypes[] = {IST_BF16, IST_F16, IST_F32};
    for (size_t d = 0; d < 3; ++d) {
        cli_data data = {.seed = 5, .step = 1, .hidden = 37, .topk = 2, .dtype = dtypes[d]};
        size_t bytes = 37 * (dtypes[d] == IST_F32 ? 4 : 2);
        char a[37 * 4];
        char b[37 * 4];
        cli_data_token(&data, 1, 2, a);
        cli_data_token(&data, 2, 1, b);
        assert_memory_not_equal(a, b, bytes);
        memcpy(b, a, bytes);
        cli_data_expert(&data, 3, a);
        cli_data_expert(&data, 4, b);
        assert_memory_not_equal(a, b, bytes);
        for (size_t i = 0; i < 37; ++i) {
            uint16_t half;
            float value;
            memcpy(&half, a + 2 * i, sizeof half);
            memcpy(&value, a + (dtypes[d] == IST_F32 ? 4 * i : 0), sizeof value);
            value = dtypes[d] == IST_F32   ? value
                    : dtypes[d] == IST_F16 ? ep_oracle_widen_f16(half)
                                           : ep_oracle_widen_bf16(half);
            assert_true(fabsf(value) >= 0.125f && fabsf(value) < 32.0f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expert_major), cmocka_unit_test(test_expert_major_combine),
        cmocka_unit_test(test_rank_major),   cmocka_unit_test(test_rank_major_combine),
        cmocka_unit_test(test_round_f16),    cmocka_unit_test(test_round_bf16),
        cmocka_unit_test(test_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
