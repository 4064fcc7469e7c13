/* SPDX-License-Identifier: Apache-2.0 */
/* Bit patterns of tokens, experts' work and weights. Rows are written eight bytes at a time: four
 * 16-bit or two 32-bit elements from each 64 random bits.
 */
#include "cli_data.h"

#include "cli_hash.h"

#include <string.h>

/* Where sign and fraction lie in eight bytes of elements, and the exponent of the lowest binade. */
typedef struct pattern {
    uint64_t keep;   /* sign and fraction bits */
    uint64_t low;    /* lowest exponent, in place */
    uint64_t binade; /* three low exponent bits, in place */
} pattern;

static pattern pattern_of(ist_dtype dtype)
{
    const uint64_t four = UINT64_C(0x0001000100010001);
    const uint64_t two = UINT64_C(0x0000000100000001);
    pattern bf16 = {0x807f * four, (124 << 7) * four, (7 << 7) * four};
    pattern f16 = {0x83ff * four, (12 << 10) * four, (7 << 10) * four};
    pattern f32 = {0x807fffff * two, (124u << 23) * two, (7u << 23) * two};
    return dtype == IST_F32 ? f32 : dtype == IST_F16 ? f16 : bf16;
}

static size_t row_bytes(const cli_data *data)
{
    return (size_t)data->hidden * (data->dtype == IST_F32 ? 4u : 2u);
}

/* The lowest exponents leave room for three bits: 124 + 7 has a carry, and the sum takes it. */
static uint64_t element_bits(const pattern *p, uint64_t random)
{
    return (random & p->keep) | ((random & p->binade) + p->low);
}

void cli_data_token(const void *context, uint32_t rank, uint32_t token, void *row)
{
    const cli_data *data = context;
    pattern p = pattern_of(data->dtype);
    uint64_t key = cli_fold(cli_fold(cli_fold(data->seed, data->step), rank), token);
    size_t bytes = row_bytes(data);
    size_t whole = bytes - bytes % sizeof(uint64_t);
    for (size_t at = 0; at < whole; at += sizeof(uint64_t)) {
        uint64_t word = element_bits(&p, cli_mix(key + at * CLI_GOLDEN));
        memcpy((char *)row + at, &word, sizeof word);
    }
    uint64_t last = element_bits(&p, cli_mix(key + whole * CLI_GOLDEN));
    memcpy((char *)row + whole, &last, bytes - whole);
}

/* Changes signs and fractions; exponents stay, so values stay ordinary. */
static void change_row(const cli_data *data, uint64_t key, void *row)
{
    pattern p = pattern_of(data->dtype);
    size_t bytes = row_bytes(data);
    size_t whole = bytes - bytes % sizeof(uint64_t);
    uint64_t word = 0;
    for (size_t at = 0; at < whole; at += sizeof word) {
        memcpy(&word, (char *)row + at, sizeof word);
        word ^= cli_mix(key + at * CLI_GOLDEN) & p.keep;
        memcpy((char *)row + at, &word, sizeof word);
    }
    memcpy(&word, (char *)row + whole, bytes - whole);
    word ^= cli_mix(key + whole * CLI_GOLDEN) & p.keep;
    memcpy((char *)row + whole, &word, bytes - whole);
}

void cli_data_expert(const void *context, uint32_t expert, void *row)
{
    const cli_data *data = context;
    change_row(data, cli_fold(~data->seed, expert), row);
}

void cli_data_rank(const void *context, uint32_t rank, const int32_t *ids, const float *weights,
                   void *row)
{
    const cli_data *data = context;
    uint64_t key = cli_fold(~data->seed, UINT64_C(1) << 32 | rank);
    for (uint32_t k = 0; k < data->topk; ++k) {
        uint32_t bits;
        memcpy(&bits, &weights[k], sizeof bits);
        key = cli_fold(key, (uint64_t)(uint32_t)ids[k] << 32 | bits);
    }
    change_row(data, key, row);
}

float cli_data_weight(const cli_data *data, uint32_t rank, uint32_t token, uint32_t k)
{
    uint64_t key = cli_fold(cli_fold(data->seed, ~data->step), rank);
    uint32_t random = (uint32_t)cli_fold(key, (uint64_t)token << 32 | k);
    uint32_t bits = ((122u + (random >> 30)) << 23) | (random & 0x7fffffu);
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}
