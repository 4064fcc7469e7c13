/* SPDX-License-Identifier: Apache-2.0 */
/* Draws counts, routing and weights of all ranks for a step, and keeps them while a rank needs them.
 * The lock is never held over a call of the library, so fibers of one thread cannot block on it.
 */
#include "cli_step.h"

#include "cli_hash.h"

#include <stdlib.h>
#include <string.h>

static void free_step(cli_step *step)
{
    free((void *)(uintptr_t)step->oracle.token_counts);
    free((void *)(uintptr_t)step->oracle.topk_idx);
    free((void *)(uintptr_t)step->oracle.topk_weights);
    free(step);
}

/* The table's row of a token: its own where the table has rows for all ranks. */
static uint64_t table_row(const cli_options *options, uint32_t rank, uint32_t token)
{
    bool one_rank = options->routing.table.row_count == options->tokens;
    return one_rank ? token : (uint64_t)rank * options->tokens + token;
}

static void draw(const cli_options *options, const cli_data *data, uint32_t rank_count,
                 uint32_t *counts, int32_t *ids, float *weights, uint64_t *scratch)
{
    uint32_t topk = options->topk;
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
        uint64_t rank_key = cli_fold(cli_fold(cli_mix(data->seed), data->step), rank);
        counts[rank] = cli_options_tokens(options, rank, rank_count);
        for (uint32_t token = 0; token < counts[rank]; ++token) {
            size_t at = ((size_t)rank * options->tokens + token) * topk;
            cli_routing_token(&options->routing, cli_fold(rank_key, token),
                              table_row(options, rank, token), scratch, ids + at);
            for (uint32_t k = 0; k < topk; ++k) {
                weights[at + k] = cli_data_weight(data, rank, token, k);
            }
        }
    }
}

static cli_step *make_step(const cli_options *options, uint32_t number, uint32_t rank_count)
{
    size_t entries = (size_t)rank_count * options->tokens * options->topk;
    cli_step *step = calloc(1, sizeof *step);
    uint32_t *counts = calloc(rank_count, sizeof *counts);
    int32_t *ids = calloc(entries, sizeof *ids);
    float *weights = calloc(entries, sizeof *weights);
    uint64_t *scratch = calloc(options->experts, sizeof *scratch);
    if (step == NULL || counts == NULL || ids == NULL || weights == NULL || scratch == NULL) {
        free(step);
        free(counts);
        free(ids);
        free(weights);
        free(scratch);
        return NULL;
    }
    step->number = number;
    step->data = (cli_data){options->seed, number, options->hidden, options->topk, options->dtype};
    draw(options, &step->data, rank_count, counts, ids, weights, scratch);
    free(scratch);
    step->oracle = (ep_oracle){
        .rank_count = rank_count,
        .expert_count = options->experts,
        .topk = options->topk,
        .tokens_max = options->tokens,
        .hidden = options->hidden,
        .dtype = options->dtype,
        .layout = options->layout,
        .id_kind = IST_EP_ID_LOCAL,
        .token_counts = counts,
        .topk_idx = ids,
        .topk_weights = weights,
        .token = cli_data_token,
        .expert = cli_data_expert,
        .rank = cli_data_rank,
        .context = &step->data,
    };
    return step;
}

bool cli_steps_init(cli_steps *steps, const cli_options *options)
{
    memset(steps, 0, sizeof *steps);
    steps->options = options;
    return pthread_mutex_init(&steps->lock, NULL) == 0;
}

void cli_steps_fini(cli_steps *steps)
{
    while (steps->first != NULL) {
        cli_step *step = steps->first;
        steps->first = step->next;
        free_step(step);
    }
    pthread_mutex_destroy(&steps->lock);
}

const cli_step *cli_steps_get(cli_steps *steps, uint32_t number, uint32_t rank_count)
{
    pthread_mutex_lock(&steps->lock);
    cli_step *step = steps->first;
    while (step != NULL && step->number != number) {
        step = step->next;
    }
    if (step == NULL) {
        step = make_step(steps->options, number, rank_count);
        if (step != NULL) {
            step->next = steps->first;
            steps->first = step;
        }
    }
    if (step != NULL) {
        ++step->user_count;
    }
    pthread_mutex_unlock(&steps->lock);
    return step;
}

void cli_steps_put(cli_steps *steps, const cli_step *step)
{
    pthread_mutex_lock(&steps->lock);
    cli_step **link = &steps->first;
    while (*link != step) {
        link = &(*link)->next;
    }
    cli_step *found = *link;
    if (--found->user_count == 0) {
        *link = found->next;
        free_step(found);
    }
    pthread_mutex_unlock(&steps->lock);
}
