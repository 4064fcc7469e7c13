/* SPDX-License-Identifier: Apache-2.0 */
/* What an expert-parallel dispatch and combine must deliver, told by plain loops over the gathered
 * state of all ranks. Slow and obvious on purpose; shares no code with kernels or the front. The
 * command checks its runs with it, and tests use it through tests/support/ep_case.h.
 */
#ifndef EP_ORACLE_H
#define EP_ORACLE_H

#include <isthmus/ep.h>
#include <stdbool.h>

/* The whole exchange as one observer sees it. All arrays belong to the caller. */
typedef struct ep_oracle {
    uint32_t rank_count;   /* R */
    uint32_t expert_count; /* E */
    uint32_t topk;         /* K */
    uint32_t tokens_max;   /* M */
    uint64_t hidden;       /* H, elements */
    ist_dtype dtype;       /* BF16, F16 or F32 */
    ist_ep_layout layout;
    ist_ep_combine_order order; /* EXPERT_MAJOR */
    ist_ep_id_kind id_kind;
    const uint32_t *token_counts; /* [R], N of each rank */
    const int32_t *topk_idx;      /* [R][M][K] global ids, -1: none; rows from N on are not read */
    const float *topk_weights;    /* [R][M][K] */
    /* Writes the row that `rank` dispatches for `token`. */
    void (*token)(const void *context, uint32_t rank, uint32_t token, void *row);
    /* EXPERT_MAJOR: replaces a row by what the expert makes of it. */
    void (*expert)(const void *context, uint32_t expert, void *row);
    /* RANK_MAJOR: replaces a row by what `rank` makes of it, given the ids and weights that were
       delivered with it. */
    void (*rank)(const void *context, uint32_t rank, const int32_t *ids, const float *weights,
                 void *row);
    const void *context;
} ep_oracle;

/* Where a delivered row comes from. RANK_MAJOR: k is the token's first entry on this rank. */
typedef struct ep_oracle_row {
    uint32_t source;
    uint32_t token;
    uint32_t k;
} ep_oracle_row;

/* What dispatch delivers to one rank. A block is a local expert, or a source rank. */
typedef struct ep_oracle_received {
    uint32_t block_count;
    uint32_t *counts;    /* [block_count] rows of each block */
    uint64_t *first;     /* [block_count] number of the block's first row in `rows` */
    ep_oracle_row *rows; /* block by block, in slot order */
    uint64_t row_count;
} ep_oracle_received;

/* Experts lie in contiguous blocks; the first E % R ranks hold one more. */
uint32_t ep_oracle_local_count(const ep_oracle *oracle, uint32_t rank);
uint32_t ep_oracle_expert_first(const ep_oracle *oracle, uint32_t rank);
uint32_t ep_oracle_owner(const ep_oracle *oracle, uint32_t expert);

size_t ep_oracle_row_bytes(const ep_oracle *oracle);

/* Lists the rows for `rank`, without those of sources in `lost_words` (NULL: none is lost). False
 * when out of memory; else free with ep_oracle_received_free(). */
bool ep_oracle_receive(const ep_oracle *oracle, uint32_t rank, const uint64_t *lost_words,
                       ep_oracle_received *received);
void ep_oracle_received_free(ep_oracle_received *received);

/* RANK_MAJOR: ids (K) and weights (K) delivered to `rank` with a row. */
void ep_oracle_metadata(const ep_oracle *oracle, uint32_t rank, const ep_oracle_row *row,
                        int32_t *ids, float *weights);

/* Contributions that `token` of `rank` lacks when the ranks in `lost_words` give none. */
uint32_t ep_oracle_lost_count(const ep_oracle *oracle, uint32_t rank, uint32_t token,
                              const uint64_t *lost_words);

/* Writes the combined row of a token. `scratch` holds two rows, `sums` 2 H floats. */
void ep_oracle_combine(const ep_oracle *oracle, uint32_t rank, uint32_t token,
                       const uint64_t *lost_words, void *scratch, float *sums, void *row);

/* One rounding to nearest, ties to even; and back. */
uint16_t ep_oracle_round_bf16(float value);
uint16_t ep_oracle_round_f16(float value);
float ep_oracle_widen_bf16(uint16_t bits);
float ep_oracle_widen_f16(uint16_t bits);

#endif
