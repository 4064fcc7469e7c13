/* SPDX-License-Identifier: Apache-2.0 */
/* A random expert-parallel exchange: shape, routing, weights and data from one seed, and
 * the oracle that says what must come out. Tests reach the oracle through this header.
 */
#ifndef EP_CASE_H
#define EP_CASE_H

#include "cli_data.h"
#include "ep_oracle.h"

typedef struct ep_shape {
    uint64_t seed;
    uint32_t rank_count;
    uint32_t expert_count;
    uint32_t topk;
    uint32_t tokens_max;
    uint64_t hidden;
    ist_dtype dtype;
    ist_ep_layout layout;
    ist_ep_combine_order order; /* EXPERT_MAJOR; of the group, too */
    ist_ep_id_kind id_kind;
    uint32_t masked_permille; /* entries of a thousand that are -1 */
    uint32_t uneven;          /* 1: 0 … tokens_max tokens a rank, the last rank none */
} ep_shape;

typedef struct ep_case {
    ep_oracle oracle; /* context: data */
    cli_data data;
    uint32_t *token_counts;
    int32_t *topk_idx;   /* [R][M][K] */
    float *topk_weights; /* [R][M][K] */
} ep_case;

/* False when out of memory. The case must not move afterwards: the oracle points into it. */
bool ep_case_init(ep_case *made, const ep_shape *shape);
void ep_case_fini(ep_case *made);

/* Where a rank's ids and weights begin: its N rows of K. */
const int32_t *ep_case_topk(const ep_case *made, uint32_t rank);
const float *ep_case_weights(const ep_case *made, uint32_t rank);

#endif
