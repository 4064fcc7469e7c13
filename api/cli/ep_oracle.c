/* SPDX-License-Identifier: Apache-2.0 */
/* Placement, delivery and combination of an expert-parallel exchange as plain loops. Orders are the
 * loops' own: rows by (source rank, token, k); sums by k, or by each rank's first k.
 */
#include "ep_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ placement */

uint32_t ep_oracle_local_count(const ep_oracle *oracle, uint32_t rank)
{
    uint32_t more = rank < oracle->expert_count % oracle->rank_count ? 1 : 0;
    return oracle->expert_count / oracle->rank_count + more;
}

uint32_t ep_oracle_expert_first(const ep_oracle *oracle, uint32_t rank)
{
    uint32_t first = 0;
    for (uint32_t r = 0; r < rank; ++r) {
        first += ep_oracle_local_count(oracle, r);
    }
    return first;
}

uint32_t ep_oracle_owner(const ep_oracle *oracle, uint32_t expert)
{
    uint32_t rank = 0;
    uint32_t end = ep_oracle_local_count(oracle, 0);
    while (expert >= end) {
        ++rank;
        end += ep_oracle_local_count(oracle, rank);
    }
    return rank;
}

size_t ep_oracle_row_bytes(const ep_oracle *oracle)
{
    return (size_t)oracle->hidden * (oracle->dtype == IST_F32 ? 4u : 2u);
}

static int32_t entry(const ep_oracle *oracle, uint32_t rank, uint32_t token, uint32_t k)
{
    return oracle->topk_idx[((size_t)rank * oracle->tokens_max + token) * oracle->topk + k];
}

static float weight(const ep_oracle *oracle, uint32_t rank, uint32_t token, uint32_t k)
{
    return oracle->topk_weights[((size_t)rank * oracle->tokens_max + token) * oracle->topk + k];
}

static bool is_lost(const uint64_t *lost_words, uint32_t rank)
{
    return lost_words != NULL && ((lost_words[rank / 64] >> (rank % 64)) & 1) != 0;
}

/* ------------------------------------------------------------------------------------ dispatch */

static void append(ep_oracle_received *received, uint32_t block, uint32_t source, uint32_t token,
                   uint32_t k)
{
    if (received->rows != NULL) {
        ep_oracle_row row = {source, token, k};
        received->rows[received->row_count] = row;
    }
    ++received->row_count;
    ++received->counts[block];
}

static void receive_expert(const ep_oracle *oracle, uint32_t rank, uint32_t local,
                           const uint64_t *lost_words, ep_oracle_received *received)
{
    int32_t expert = (int32_t)(ep_oracle_expert_first(oracle, rank) + local);
    for (uint32_t source = 0; source < oracle->rank_count; ++source) {
        if (is_lost(lost_words, source)) {
            continue;
        }
        for (uint32_t token = 0; token < oracle->token_counts[source]; ++token) {
            for (uint32_t k = 0; k < oracle->topk; ++k) {
                if (entry(oracle, source, token, k) == expert) {
                    append(received, local, source, token, k);
                }
            }
        }
    }
}

static void receive_source(const ep_oracle *oracle, uint32_t rank, uint32_t source,
                           const uint64_t *lost_words, ep_oracle_received *received)
{
    int64_t first = ep_oracle_expert_first(oracle, rank);
    int64_t end = first + ep_oracle_local_count(oracle, rank);
    if (is_lost(lost_words, source)) {
        return;
    }
    for (uint32_t token = 0; token < oracle->token_counts[source]; ++token) {
        for (uint32_t k = 0; k < oracle->topk; ++k) {
            int32_t expert = entry(oracle, source, token, k);
            if (expert >= first && expert < end) {
                append(received, source, source, token, k);
                break;
            }
        }
    }
}

static void receive_all(const ep_oracle *oracle, uint32_t rank, const uint64_t *lost_words,
                        ep_oracle_received *received)
{
    received->row_count = 0;
    for (uint32_t block = 0; block < received->block_count; ++block) {
        received->counts[block] = 0;
        received->first[block] = received->row_count;
        if (oracle->layout == IST_EP_EXPERT_MAJOR) {
            receive_expert(oracle, rank, block, lost_words, received);
        } else {
            receive_source(oracle, rank, block, lost_words, received);
        }
    }
}

bool ep_oracle_receive(const ep_oracle *oracle, uint32_t rank, const uint64_t *lost_words,
                       ep_oracle_received *received)
{
    ep_oracle_received made = {0};
    made.block_count = oracle->layout == IST_EP_EXPERT_MAJOR ? ep_oracle_local_count(oracle, rank)
                                                             : oracle->rank_count;
    made.counts = calloc((size_t)made.block_count + 1, sizeof *made.counts);
    made.first = calloc((size_t)made.block_count + 1, sizeof *made.first);
    if (made.counts == NULL || made.first == NULL) {
        ep_oracle_received_free(&made);
        return false;
    }
    /* Once to count, once to write. */
    receive_all(oracle, rank, lost_words, &made);
    made.rows = calloc((size_t)made.row_count + 1, sizeof *made.rows);
    if (made.rows == NULL) {
        ep_oracle_received_free(&made);
        return false;
    }
    receive_all(oracle, rank, lost_words, &made);
    *received = made;
    return true;
}

void ep_oracle_received_free(ep_oracle_received *received)
{
    free(received->counts);
    free(received->first);
    free(received->rows);
    memset(received, 0, sizeof *received);
}

void ep_oracle_metadata(const ep_oracle *oracle, uint32_t rank, const ep_oracle_row *row,
                        int32_t *ids, float *weights)
{
    int32_t first = (int32_t)ep_oracle_expert_first(oracle, rank);
    int32_t end = first + (int32_t)ep_oracle_local_count(oracle, rank);
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        int32_t expert = entry(oracle, row->source, row->token, k);
        bool here = expert >= first && expert < end;
        int32_t shown = oracle->id_kind == IST_EP_ID_GLOBAL ? expert : expert - first;
        ids[k] = here ? shown : -1;
        weights[k] = weight(oracle, row->source, row->token, k);
    }
}

/* ------------------------------------------------------------------------------------ combine */

/* Whether an earlier entry of the token already stands for this entry's rank. */
static bool repeats(const ep_oracle *oracle, uint32_t rank, uint32_t token, uint32_t k)
{
    uint32_t owner = ep_oracle_owner(oracle, (uint32_t)entry(oracle, rank, token, k));
    for (uint32_t earlier = 0; earlier < k; ++earlier) {
        int32_t expert = entry(oracle, rank, token, earlier);
        if (expert >= 0 && ep_oracle_owner(oracle, (uint32_t)expert) == owner) {
            return true;
        }
    }
    return false;
}

/* Whether entry k of a token stands for a contribution of its own. */
static bool contributes(const ep_oracle *oracle, uint32_t rank, uint32_t token, uint32_t k)
{
    if (entry(oracle, rank, token, k) < 0) {
        return false;
    }
    return oracle->layout == IST_EP_EXPERT_MAJOR || !repeats(oracle, rank, token, k);
}

uint32_t ep_oracle_lost_count(const ep_oracle *oracle, uint32_t rank, uint32_t token,
                              const uint64_t *lost_words)
{
    uint32_t lost = 0;
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        if (contributes(oracle, rank, token, k)) {
            uint32_t expert = (uint32_t)entry(oracle, rank, token, k);
            lost += is_lost(lost_words, ep_oracle_owner(oracle, expert)) ? 1 : 0;
        }
    }
    return lost;
}

static float element(const void *row, uint64_t i, ist_dtype dtype)
{
    if (dtype == IST_F32) {
        return ((const float *)row)[i];
    }
    uint16_t bits = ((const uint16_t *)row)[i];
    return dtype == IST_F16 ? ep_oracle_widen_f16(bits) : ep_oracle_widen_bf16(bits);
}

/* Adds one contribution. */
static void add_row(const ep_oracle *oracle, const void *row, float factor, float *sums)
{
    bool fused = oracle->layout == IST_EP_EXPERT_MAJOR;
    for (uint64_t i = 0; i < oracle->hidden; ++i) {
        float value = element(row, i, oracle->dtype);
        sums[i] = fused ? fmaf(value, factor, sums[i]) : sums[i] + value;
    }
}

static void round_row(const ep_oracle *oracle, const float *sums, void *row)
{
    for (uint64_t i = 0; i < oracle->hidden; ++i) {
        if (oracle->dtype == IST_F32) {
            ((float *)row)[i] = sums[i];
        } else if (oracle->dtype == IST_F16) {
            ((uint16_t *)row)[i] = ep_oracle_round_f16(sums[i]);
        } else {
            ((uint16_t *)row)[i] = ep_oracle_round_bf16(sums[i]);
        }
    }
}

/* The row that comes back for entry k: what its expert, or its rank, makes of the token. */
static void returned_row(const ep_oracle *oracle, uint32_t rank, uint32_t token, uint32_t k,
                         void *row)
{
    uint32_t expert = (uint32_t)entry(oracle, rank, token, k);
    oracle->token(oracle->context, rank, token, row);
    if (oracle->layout == IST_EP_EXPERT_MAJOR) {
        oracle->expert(oracle->context, expert, row);
        return;
    }
    int32_t ids[IST_EP_TOPK_MAX];
    float weights[IST_EP_TOPK_MAX];
    uint32_t owner = ep_oracle_owner(oracle, expert);
    ep_oracle_row from = {rank, token, k};
    ep_oracle_metadata(oracle, owner, &from, ids, weights);
    oracle->rank(oracle->context, owner, ids, weights, row);
}

/* REDUCED: what the rank of entry k sends for a token, into `sum`: the rows of its own entries in the
 * order of k, rounded once. */
static void rank_sum(const ep_oracle *oracle, uint32_t rank, uint32_t token, uint32_t first,
                     void *scratch, float *sums, void *sum)
{
    uint32_t owner = ep_oracle_owner(oracle, (uint32_t)entry(oracle, rank, token, first));
    for (uint64_t i = 0; i < oracle->hidden; ++i) {
        sums[i] = 0.0f;
    }
    for (uint32_t k = first; k < oracle->topk; ++k) {
        int32_t expert = entry(oracle, rank, token, k);
        if (expert >= 0 && ep_oracle_owner(oracle, (uint32_t)expert) == owner) {
            returned_row(oracle, rank, token, k, scratch);
            add_row(oracle, scratch, weight(oracle, rank, token, k), sums);
        }
    }
    round_row(oracle, sums, sum);
}

static void combine_reduced(const ep_oracle *oracle, uint32_t rank, uint32_t token,
                            const uint64_t *lost_words, uint8_t *scratch, float *sums, void *row)
{
    uint8_t *sum = scratch + ep_oracle_row_bytes(oracle);
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        int32_t expert = entry(oracle, rank, token, k);
        if (expert < 0 || repeats(oracle, rank, token, k) ||
            is_lost(lost_words, ep_oracle_owner(oracle, (uint32_t)expert))) {
            continue;
        }
        rank_sum(oracle, rank, token, k, scratch, sums + oracle->hidden, sum);
        for (uint64_t i = 0; i < oracle->hidden; ++i) {
            sums[i] = sums[i] + element(sum, i, oracle->dtype);
        }
    }
    round_row(oracle, sums, row);
}

void ep_oracle_combine(const ep_oracle *oracle, uint32_t rank, uint32_t token,
                       const uint64_t *lost_words, void *scratch, float *sums, void *row)
{
    for (uint64_t i = 0; i < oracle->hidden; ++i) {
        sums[i] = 0.0f;
    }
    if (oracle->layout == IST_EP_EXPERT_MAJOR && oracle->order == IST_EP_COMBINE_REDUCED) {
        combine_reduced(oracle, rank, token, lost_words, scratch, sums, row);
        return;
    }
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        if (!contributes(oracle, rank, token, k)) {
            continue;
        }
        if (is_lost(lost_words, ep_oracle_owner(oracle, (uint32_t)entry(oracle, rank, token, k)))) {
            continue;
        }
        returned_row(oracle, rank, token, k, scratch);
        add_row(oracle, scratch, weight(oracle, rank, token, k), sums);
    }
    round_row(oracle, sums, row);
}

/* ------------------------------------------------------------------------------------ numbers */

uint16_t ep_oracle_round_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) {
        return (uint16_t)((bits >> 16) | 0x40u);
    }
    uint32_t kept = bits >> 16;
    uint32_t dropped = bits & 0xffffu;
    if (dropped > 0x8000u || (dropped == 0x8000u && (kept & 1u) != 0)) {
        ++kept;
    }
    return (uint16_t)kept;
}

float ep_oracle_widen_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t ep_oracle_round_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000u : 0;
    double size = fabs((double)value);
    if (value != value) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (size >= 65520.0) {
        return (uint16_t)(sign | 0x7c00u);
    }
    int exponent = -14;
    if (size >= 0x1p-14) {
        exponent = ilogb(size);
    }
    /* Whole numbers of the last place; rint() rounds ties to even. A carry moves into the exponent
       by itself. */
    double units = rint(ldexp(size, 10 - exponent));
    uint32_t bits = (uint32_t)units + (uint32_t)((exponent + 14) << 10);
    return (uint16_t)(sign | bits);
}

float ep_oracle_widen_f16(uint16_t bits)
{
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    uint32_t wide;
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return (bits & 0x8000u) != 0 ? -value : value;
    }
    uint32_t wide_exponent = exponent == 0x1f ? 0xffu : exponent + 112u;
    wide = ((uint32_t)(bits & 0x8000u) << 16) | (wide_exponent << 23) | (fraction << 13);
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
