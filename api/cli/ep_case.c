/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a case. Routing is uniform without repetition; the generator is SplitMix64 in its plain form.
 */
#include "ep_case.h"

#include <stdlib.h>
#include <string.h>

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool drawn_before(const int32_t *ids, uint32_t count, int32_t id)
{
    for (uint32_t k = 0; k < count; ++k) {
        if (ids[k] == id) {
            return true;
        }
    }
    return false;
}

static void draw_token(const ep_shape *shape, uint64_t *state, int32_t *ids)
{
    for (uint32_t k = 0; k < shape->topk;) {
        int32_t id = (int32_t)(next_random(state) % shape->expert_count);
        if (!drawn_before(ids, k, id)) {
            ids[k++] = id;
        }
    }
    for (uint32_t k = 0; k < shape->topk; ++k) {
        if (next_random(state) % 1000 < shape->masked_permille) {
            ids[k] = -1;
        }
    }
}

static void draw_rank(ep_case *made, const ep_shape *shape, uint32_t rank, uint64_t *state)
{
    uint32_t count = shape->tokens_max;
    if (shape->uneven != 0) {
        bool last = rank == shape->rank_count - 1;
        count = last ? 0 : (uint32_t)(next_random(state) % (shape->tokens_max + 1));
    }
    made->token_counts[rank] = count;
    for (uint32_t token = 0; token < count; ++token) {
        size_t at = ((size_t)rank * shape->tokens_max + token) * shape->topk;
        draw_token(shape, state, made->topk_idx + at);
        for (uint32_t k = 0; k < shape->topk; ++k) {
            made->topk_weights[at + k] = cli_data_weight(&made->data, rank, token, k);
        }
    }
}

bool ep_case_init(ep_case *made, const ep_shape *shape)
{
    size_t entries = (size_t)shape->rank_count * shape->tokens_max * shape->topk;
    uint64_t state = shape->seed;
    memset(made, 0, sizeof *made);
    made->token_counts = calloc(shape->rank_count, sizeof *made->token_counts);
    made->topk_idx = calloc(entries + 1, sizeof *made->topk_idx);
    made->topk_weights = calloc(entries + 1, sizeof *made->topk_weights);
    if (made->token_counts == NULL || made->topk_idx == NULL || made->topk_weights == NULL) {
        ep_case_fini(made);
        return false;
    }
    made->data = (cli_data){shape->seed, 1, shape->hidden, shape->topk, shape->dtype};
    for (uint32_t rank = 0; rank < shape->rank_count; ++rank) {
        draw_rank(made, shape, rank, &state);
    }
    made->oracle = (ep_oracle){
        .rank_count = shape->rank_count,
        .expert_count = shape->expert_count,
        .topk = shape->topk,
        .tokens_max = shape->tokens_max,
        .hidden = shape->hidden,
        .dtype = shape->dtype,
        .layout = shape->layout,
        .order = shape->order,
        .id_kind = shape->id_kind,
        .token_counts = made->token_counts,
        .topk_idx = made->topk_idx,
        .topk_weights = made->topk_weights,
        .token = cli_data_token,
        .expert = cli_data_expert,
        .rank = cli_data_rank,
        .context = &made->data,
    };
    return true;
}

void ep_case_fini(ep_case *made)
{
    free(made->token_counts);
    free(made->topk_idx);
    free(made->topk_weights);
    memset(made, 0, sizeof *made);
}

const int32_t *ep_case_topk(const ep_case *made, uint32_t rank)
{
    return made->topk_idx + (size_t)rank * made->oracle.tokens_max * made->oracle.topk;
}

const float *ep_case_weights(const ep_case *made, uint32_t rank)
{
    return made->topk_weights + (size_t)rank * made->oracle.tokens_max * made->oracle.topk;
}
