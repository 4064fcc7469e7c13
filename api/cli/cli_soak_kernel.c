/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of `isthmus bench soak`: make this rank's tokens; compare what dispatch delivered and do the
 * experts' work; compare what combine returned. A row goes through scratch, 16 bytes at a time to
 * and from memory.
 */
#include "cli_soak_kernel.h"

#include <math.h>
#include <string.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
IST_DEVICE_FN uint64_t soak_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Sign and fraction bits of the elements in eight bytes. */
IST_DEVICE_FN uint64_t soak_free_bits(uint32_t wide)
{
    return wide ? UINT64_C(0x807fffff807fffff) : UINT64_C(0x807f807f807f807f);
}

/* Ordinary numbers of eight binades around 1. */
IST_DEVICE_FN uint64_t soak_token_word(uint64_t row_key, uint64_t index, uint32_t wide)
{
    uint64_t random = soak_mix(row_key + index);
    uint64_t binade = wide ? UINT64_C(0x0380000003800000) : UINT64_C(0x0380038003800380);
    uint64_t low = wide ? UINT64_C(0x3e0000003e000000) : UINT64_C(0x3e003e003e003e00);
    return (random & soak_free_bits(wide)) | ((random & binade) + low);
}

IST_DEVICE_FN uint64_t soak_row_key(uint64_t key, uint32_t source, uint32_t token)
{
    return soak_mix(key ^ ((uint64_t)source << 32 | token)) << 16;
}

/* What somebody who works on a row changes: signs and fractions. */
IST_DEVICE_FN uint64_t soak_change(uint64_t key, uint32_t changer, uint64_t index, uint32_t wide)
{
    return soak_mix((~key ^ soak_mix(changer)) + index) & soak_free_bits(wide);
}

IST_DEVICE_FN float soak_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

IST_DEVICE_FN uint32_t soak_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* To the nearest, ties to even; no infinities or NaNs here. */
IST_DEVICE_FN uint32_t soak_round_bf16(float value)
{
    uint32_t bits = soak_bits(value);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

IST_DEVICE_FN void soak_count(ist_coop *coop, uint64_t *tally, uint64_t compared, uint64_t wrong)
{
    if (wrong != 0) {
        ist_fetch_add_u64(coop, tally + 1, wrong, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    if (ist_coop_elect(coop)) {
        ist_fetch_add_u64(coop, tally, compared, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

/* ---- what is sent ---------------------------------------------------------------------------- */

IST_KERNEL(cli_soak_fill, soak_args)
{
    uint32_t words = (uint32_t)(args->row_bytes / 8u);
    uint64_t *row = (uint64_t *)ist_coop_scratch(coop, 0, words * 8u);
    for (uint32_t t = ist_coop_block(coop); t < args->token_count;
         t += ist_coop_block_count(coop)) {
        uint64_t row_key = soak_row_key(args->key, args->rank, t);
        IST_EACH_LANE (coop, i, words) {
            row[i] = soak_token_word(row_key, i, args->wide);
        }
        ist_coop_sync(coop);
        ist_row_copy(coop, args->tokens + t * args->row_bytes, row, args->row_bytes);
        ist_coop_sync(coop);
    }
}

/* ---- what came ------------------------------------------------------------------------------- */

/* Counters, ids and weights beside the rows. */
IST_DEVICE_FN void soak_compare_words(ist_coop *coop, const soak_args *args, uint32_t which)
{
    uint64_t wrong = 0;
    IST_EACH_LANE (coop, i, args->word_count[which]) {
        uint32_t found = ist_load_u32(coop, args->found[which] + i, IST_RELAXED, IST_SCOPE_DEVICE);
        uint32_t expected =
            ist_load_u32(coop, args->expected[which] + i, IST_RELAXED, IST_SCOPE_DEVICE);
        /* Places that nobody writes are marked. */
        wrong += found != expected && expected != SOAK_NOBODY - 1u;
    }
    soak_count(coop, args->tally, args->word_count[which], wrong);
}

IST_DEVICE_FN soak_row soak_load_row(ist_coop *coop, const soak_row *from)
{
    const uint64_t *words = (const uint64_t *)from;
    uint64_t low = ist_load_u64(coop, words, IST_RELAXED, IST_SCOPE_DEVICE);
    uint64_t high = ist_load_u64(coop, words + 1, IST_RELAXED, IST_SCOPE_DEVICE);
    soak_row row = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
    return row;
}

IST_KERNEL(cli_soak_received, soak_args)
{
    uint32_t words = (uint32_t)(args->row_bytes / 8u);
    uint64_t *row = (uint64_t *)ist_coop_scratch(coop, 0, words * 8u);
    for (uint32_t r = ist_coop_block(coop); r < args->row_count; r += ist_coop_block_count(coop)) {
        soak_row want = soak_load_row(coop, args->rows + r);
        uint64_t row_key = soak_row_key(args->key, want.source, want.token);
        uint64_t wrong = 0;
        ist_row_copy(coop, row, args->received + want.place * args->row_bytes, args->row_bytes);
        ist_coop_sync(coop);
        IST_EACH_LANE (coop, i, words) {
            wrong += row[i] != soak_token_word(row_key, i, args->wide);
            row[i] ^= soak_change(args->key, want.changer, i, args->wide);
        }
        soak_count(coop, args->tally, words, wrong);
        ist_coop_sync(coop);
        ist_row_copy(coop, args->worked + want.place * args->row_bytes, row, args->row_bytes);
        ist_coop_sync(coop);
    }
    if (ist_coop_block(coop) == 0) {
        for (uint32_t which = 0; which < 3; ++which) {
            soak_compare_words(coop, args, which);
        }
    }
}

/* ---- what came back -------------------------------------------------------------------------- */

/* Eight bytes of the sum over a token's parts, in their order, with one rounding at the end. */
IST_DEVICE_FN uint64_t soak_sum_word(const soak_args *args, const soak_part *parts,
                                     uint64_t row_key, uint32_t index)
{
    float sums[4] = {0, 0, 0, 0};
    uint64_t token = soak_token_word(row_key, index, args->wide);
    for (uint32_t k = 0; k < args->topk; ++k) {
        if (parts[k].changer == SOAK_NOBODY) {
            continue;
        }
        uint64_t word = token ^ soak_change(args->key, parts[k].changer, index, args->wide);
        if (args->wide) {
            sums[0] = fmaf(soak_float((uint32_t)word), parts[k].weight, sums[0]);
            sums[1] = fmaf(soak_float((uint32_t)(word >> 32)), parts[k].weight, sums[1]);
            continue;
        }
        for (uint32_t e = 0; e < 4; ++e) {
            uint32_t bits = (uint32_t)(word >> (16u * e)) << 16;
            sums[e] = fmaf(soak_float(bits), parts[k].weight, sums[e]);
        }
    }
    if (args->wide) {
        return (uint64_t)soak_bits(sums[1]) << 32 | soak_bits(sums[0]);
    }
    return (uint64_t)soak_round_bf16(sums[3]) << 48 | (uint64_t)soak_round_bf16(sums[2]) << 32 |
           (uint64_t)soak_round_bf16(sums[1]) << 16 | soak_round_bf16(sums[0]);
}

IST_KERNEL(cli_soak_combined, soak_args)
{
    uint32_t words = (uint32_t)(args->row_bytes / 8u);
    uint64_t *row = (uint64_t *)ist_coop_scratch(coop, 0, words * 8u);
    soak_part *parts = (soak_part *)ist_coop_scratch(coop, 1, args->topk * 8u);
    for (uint32_t t = ist_coop_block(coop); t < args->token_count;
         t += ist_coop_block_count(coop)) {
        uint64_t row_key = soak_row_key(args->key, args->rank, t);
        uint64_t wrong = 0;
        ist_row_copy(coop, row, args->combined + t * args->row_bytes, args->row_bytes);
        ist_row_copy(coop, parts, args->parts + t * args->topk, args->topk * 8u);
        ist_coop_sync(coop);
        IST_EACH_LANE (coop, i, words) {
            wrong += row[i] != soak_sum_word(args, parts, row_key, i);
        }
        soak_count(coop, args->tally, words, wrong);
        ist_coop_sync(coop);
    }
}
