/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a step: layout, sizes, routing, weights; and lists, with the oracle, what must come of it.
 */
#include "cli_hash.h"
#include "cli_soak.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 8u /* sizes are multiples of so many elements */

/* A choice below `below`, of its own name. */
static uint32_t choose(uint64_t key, uint64_t name, uint32_t below)
{
    return cli_below(cli_fold(key, name), below);
}

static uint32_t tokens_max(const soak_options *options)
{
    return options->world.tokens;
}

bool soak_step_open(const soak_options *options, uint32_t rank_count, soak_step *step)
{
    const cli_options *o = &options->world;
    size_t entries = (size_t)rank_count * o->tokens * o->topk;
    memset(step, 0, sizeof *step);
    step->counts = calloc(rank_count, sizeof *step->counts);
    step->ids = calloc(entries, sizeof *step->ids);
    step->weights = calloc(entries, sizeof *step->weights);
    step->oracle = (ep_oracle){.rank_count = rank_count,
                               .expert_count = o->experts,
                               .topk = o->topk,
                               .tokens_max = o->tokens,
                               .id_kind = IST_EP_ID_LOCAL,
                               .token_counts = step->counts,
                               .topk_idx = step->ids,
                               .topk_weights = step->weights};
    return step->counts != NULL && step->ids != NULL && step->weights != NULL;
}

void soak_step_close(soak_step *step)
{
    free(step->counts);
    free(step->ids);
    free(step->weights);
}

/* Full, few, or any number; also none. */
static uint32_t draw_count(uint64_t key, uint32_t most)
{
    uint32_t kind = choose(key, 1, 4);
    return kind == 0 ? most : choose(key, 2, (kind == 1 && most > 4 ? 4 : most) + 1);
}

static bool holds(const int32_t *ids, uint32_t count, int32_t id)
{
    for (uint32_t k = 0; k < count; ++k) {
        if (ids[k] == id) {
            return true;
        }
    }
    return false;
}

/* Distinct experts below `experts`; one entry in sixteen goes to nobody. */
static void draw_token(uint64_t key, uint32_t experts, uint32_t topk, int32_t *ids, float *weights)
{
    uint64_t turn = 0;
    for (uint32_t k = 0; k < topk; ++k) {
        do {
            ids[k] = (int32_t)choose(key, 16 + turn++, experts);
        } while (holds(ids, k, ids[k]));
        uint32_t bits = (122u << 23) | (uint32_t)(cli_fold(key, ~(uint64_t)k) >> 41);
        memcpy(&weights[k], &bits, sizeof bits);
    }
    for (uint32_t k = 0; k < topk; ++k) {
        if (choose(key, ~(uint64_t)(64 + k), 16) == 0) {
            ids[k] = -1;
        }
    }
}

static void draw_rank(const soak_options *options, uint32_t rank, uint32_t experts, soak_step *step)
{
    const cli_options *o = &options->world;
    uint64_t key = cli_fold(step->key, rank);
    step->counts[rank] = draw_count(key, tokens_max(options));
    for (uint32_t t = 0; t < step->counts[rank]; ++t) {
        size_t at = ((size_t)rank * o->tokens + t) * o->topk;
        draw_token(cli_fold(key, UINT64_C(1) << 32 | t), experts, o->topk, step->ids + at,
                   step->weights + at);
    }
}

void soak_step_draw(const soak_options *options, uint32_t number, soak_step *step)
{
    const cli_options *o = &options->world;
    uint32_t units = (uint32_t)(o->hidden / UNIT);
    step->key = cli_fold(cli_mix(o->seed), number);
    step->layout = choose(step->key, 1, 2) == 0 ? IST_EP_EXPERT_MAJOR : IST_EP_RANK_MAJOR;
    step->hidden = UNIT * (choose(step->key, 2, 2) == 0 ? units : 1 + choose(step->key, 3, units));
    step->staged = choose(step->key, 4, 4) == 0;
    /* F32 where its row is no larger than the largest one of BF16. */
    bool wide = 2 * step->hidden <= o->hidden && choose(step->key, 5, 2) == 0;
    step->dtype = wide ? IST_F32 : IST_BF16;
    /* One step in eight crowds on an eighth of the experts. */
    uint32_t experts = choose(step->key, 6, 8) == 0 ? o->experts / 8 : o->experts;
    experts = experts < o->topk ? o->experts : experts;
    for (uint32_t r = 0; r < step->oracle.rank_count; ++r) {
        draw_rank(options, r, experts, step);
    }
    step->oracle.layout = step->layout;
    step->oracle.dtype = step->dtype;
    step->oracle.hidden = step->hidden;
}

uint64_t soak_gap_ns(const soak_options *options, uint32_t number, uint32_t rank)
{
    uint64_t key = cli_fold(cli_fold(~options->world.seed, number), rank);
    uint64_t random = cli_fold(key, 2);
    return choose(key, 1, 8) == 0 && options->gap_ns != 0 ? random % options->gap_ns : 0;
}

/* ------------------------------------------------------------------------------------ tables */

bool soak_tables_open(const soak_step *step, uint32_t rank, soak_tables *tables)
{
    const ep_oracle *o = &step->oracle;
    uint32_t local = ep_oracle_local_count(o, rank);
    size_t places = (size_t)o->rank_count * o->tokens_max * o->topk;
    memset(tables, 0, sizeof *tables);
    tables->row_max = (uint32_t)places;
    tables->counter_max = local > o->rank_count ? local : o->rank_count;
    tables->rows = calloc(places, sizeof *tables->rows);
    tables->parts = calloc((size_t)o->tokens_max * o->topk, sizeof *tables->parts);
    tables->counters = calloc(tables->counter_max, sizeof *tables->counters);
    tables->ids = calloc(places, sizeof *tables->ids);
    tables->weights = calloc(places, sizeof *tables->weights);
    return tables->rows != NULL && tables->parts != NULL && tables->counters != NULL &&
           tables->ids != NULL && tables->weights != NULL;
}

void soak_tables_close(soak_tables *tables)
{
    free(tables->rows);
    free(tables->parts);
    free(tables->counters);
    free(tables->ids);
    free(tables->weights);
}

/* RANK_MAJOR: ids and weights that come with a row. */
static void fill_metadata(const ep_oracle *oracle, uint32_t rank, const ep_oracle_row *row,
                          uint32_t place, soak_tables *tables)
{
    int32_t ids[IST_EP_TOPK_MAX];
    float weights[IST_EP_TOPK_MAX];
    ep_oracle_metadata(oracle, rank, row, ids, weights);
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        memcpy(&tables->ids[(size_t)place * oracle->topk + k], &ids[k], sizeof ids[k]);
        memcpy(&tables->weights[(size_t)place * oracle->topk + k], &weights[k], sizeof weights[k]);
    }
}

static void fill_rows(const soak_step *step, uint32_t rank, const ep_oracle_received *received,
                      soak_tables *tables)
{
    const ep_oracle *o = &step->oracle;
    bool expert_major = step->layout == IST_EP_EXPERT_MAJOR;
    uint32_t block_rows = expert_major ? o->rank_count * o->tokens_max : o->tokens_max;
    tables->row_count = 0;
    for (uint32_t b = 0; b < received->block_count; ++b) {
        tables->counters[b] = (uint32_t)received->counts[b];
        for (uint32_t i = 0; i < (uint32_t)received->counts[b]; ++i) {
            const ep_oracle_row *row = &received->rows[received->first[b] + i];
            uint32_t place = b * block_rows + i;
            uint32_t changer =
                expert_major ? ep_oracle_expert_first(o, rank) + b : SOAK_RANK + rank;
            tables->rows[tables->row_count++] = (soak_row){place, row->source, row->token, changer};
            if (!expert_major) {
                fill_metadata(o, rank, row, place, tables);
            }
        }
    }
}

/* EXPERT_MAJOR: each entry with its weight; RANK_MAJOR: each rank once, in order of its first entry. */
static void fill_parts(const soak_step *step, uint32_t rank, soak_tables *tables)
{
    const ep_oracle *o = &step->oracle;
    for (uint32_t t = 0; t < step->counts[rank]; ++t) {
        size_t at = ((size_t)rank * o->tokens_max + t) * o->topk;
        soak_part *parts = tables->parts + (size_t)t * o->topk;
        for (uint32_t k = 0; k < o->topk; ++k) {
            int32_t id = step->ids[at + k];
            uint32_t changer = id < 0 ? SOAK_NOBODY : (uint32_t)id;
            float weight = step->weights[at + k];
            if (id >= 0 && step->layout == IST_EP_RANK_MAJOR) {
                changer = SOAK_RANK + ep_oracle_owner(o, (uint32_t)id);
                weight = 1;
                for (uint32_t j = 0; j < k; ++j) {
                    changer = parts[j].changer == changer ? SOAK_NOBODY : changer;
                }
            }
            parts[k] = (soak_part){changer, weight};
        }
    }
}

bool soak_tables_fill(const soak_step *step, uint32_t rank, soak_tables *tables)
{
    ep_oracle_received received = {0};
    size_t places = (size_t)step->oracle.rank_count * step->oracle.tokens_max * step->oracle.topk;
    if (!ep_oracle_receive(&step->oracle, rank, NULL, &received)) {
        return false;
    }
    for (size_t i = 0; i < places && step->layout == IST_EP_RANK_MAJOR; ++i) {
        tables->ids[i] = SOAK_NOBODY - 1u;
        tables->weights[i] = SOAK_NOBODY - 1u;
    }
    fill_rows(step, rank, &received, tables);
    fill_parts(step, rank, tables);
    ep_oracle_received_free(&received);
    return true;
}
