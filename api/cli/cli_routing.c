/* SPDX-License-Identifier: Apache-2.0 */
/* Draws top-k experts: evenly, by Zipf's law, or in groups as DeepSeek-V3 does; or takes them from a
 * table. A draw is a pure function of the token's key.
 */
#include "cli_routing.h"

#include "cli_hash.h"
#include "cli_text.h"

#include <isthmus/ep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char reason_text[160];

#define REFUSE(...) (snprintf(reason_text, sizeof reason_text, __VA_ARGS__), false)

/* ------------------------------------------------------------------------------------ drawing */

static bool chosen_before(const int32_t *ids, uint32_t count, int32_t id)
{
    for (uint32_t k = 0; k < count; ++k) {
        if (ids[k] == id) {
            return true;
        }
    }
    return false;
}

static void draw_uniform(const cli_routing *routing, uint64_t key, int32_t *ids)
{
    uint64_t draw = 0;
    for (uint32_t k = 0; k < routing->topk;) {
        int32_t id = (int32_t)cli_below(cli_fold(key, draw++), routing->expert_count);
        if (!chosen_before(ids, k, id)) {
            ids[k++] = id;
        }
    }
}

/* Without replacement: each draw is over the weights that are left. */
static void draw_zipf(const cli_routing *routing, uint64_t key, uint64_t *left, int32_t *ids)
{
    uint64_t total = 0;
    for (uint32_t e = 0; e < routing->expert_count; ++e) {
        left[e] = routing->zipf_weights[e];
        total += left[e];
    }
    for (uint32_t k = 0; k < routing->topk; ++k) {
        uint64_t at = cli_fold(key, k) % total;
        uint32_t e = 0;
        while (at >= left[e]) {
            at -= left[e++];
        }
        ids[k] = (int32_t)e;
        total -= left[e];
        left[e] = 0;
    }
}

/* Sum of the two best scores of a group. */
static uint64_t group_score(const uint64_t *scores, uint32_t count)
{
    uint64_t best = 0;
    uint64_t second = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (scores[i] > best) {
            second = best;
            best = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    return best + second;
}

/* Marks the best groups; of equal ones the lower number wins. */
static void choose_groups(const uint64_t *scores, uint32_t group_size, bool *chosen)
{
    for (uint32_t round = 0; round < CLI_DEEPSEEK_BEST; ++round) {
        uint32_t best = CLI_DEEPSEEK_GROUPS;
        uint64_t best_score = 0;
        for (uint32_t g = 0; g < CLI_DEEPSEEK_GROUPS; ++g) {
            uint64_t score = group_score(scores + (size_t)g * group_size, group_size);
            if (!chosen[g] && (best == CLI_DEEPSEEK_GROUPS || score > best_score)) {
                best = g;
                best_score = score;
            }
        }
        chosen[best] = true;
    }
}

/* DeepSeek-V3 technical report, 2024, section 2.1.2: node-limited routing. Scores are random. */
static void draw_deepseek(const cli_routing *routing, uint64_t key, uint64_t *scores, int32_t *ids)
{
    uint32_t group_size = routing->expert_count / CLI_DEEPSEEK_GROUPS;
    bool chosen[CLI_DEEPSEEK_GROUPS] = {false};
    for (uint32_t e = 0; e < routing->expert_count; ++e) {
        scores[e] = (cli_mix(key + e * CLI_GOLDEN) >> 32) + 1;
    }
    choose_groups(scores, group_size, chosen);
    for (uint32_t k = 0; k < routing->topk; ++k) {
        uint32_t best = routing->expert_count;
        for (uint32_t e = 0; e < routing->expert_count; ++e) {
            if (chosen[e / group_size] &&
                (best == routing->expert_count || scores[e] > scores[best])) {
                best = e;
            }
        }
        ids[k] = (int32_t)best;
        scores[best] = 0;
    }
}

void cli_routing_token(const cli_routing *routing, uint64_t key, uint64_t row, uint64_t *scratch,
                       int32_t *ids)
{
    switch (routing->kind) {
    case CLI_ROUTING_UNIFORM: draw_uniform(routing, key, ids); break;
    case CLI_ROUTING_ZIPF: draw_zipf(routing, key, scratch, ids); break;
    case CLI_ROUTING_DEEPSEEK: draw_deepseek(routing, key, scratch, ids); break;
    case CLI_ROUTING_TABLE:
        memcpy(ids, routing->table.ids + row * routing->topk, routing->topk * sizeof *ids);
        break;
    }
    for (uint32_t k = 0; k < routing->topk; ++k) {
        if (cli_below(cli_fold(~key, k), 1000) < routing->masked_permille) {
            ids[k] = -1;
        }
    }
}

/* ------------------------------------------------------------------------------------ settings */

/* "S" or "S.5" or "S.0" in halves. */
static bool parse_halves(const char *text, uint32_t *halves)
{
    char whole[8] = {0};
    const char *point = strchr(text, '.');
    size_t length = point == NULL ? strlen(text) : (size_t)(point - text);
    uint64_t number;
    if (length >= sizeof whole) {
        return false;
    }
    memcpy(whole, text, length);
    if (!cli_parse_number(whole, 0, CLI_ZIPF_HALVES_MAX / 2, &number)) {
        return false;
    }
    if (point != NULL && strcmp(point, ".5") != 0 && strcmp(point, ".0") != 0) {
        return false;
    }
    *halves = 2 * (uint32_t)number + (point != NULL && point[1] == '5');
    return *halves <= CLI_ZIPF_HALVES_MAX;
}

bool cli_routing_parse(const char *text, cli_routing *routing, const char **reason)
{
    *reason = reason_text;
    routing->text = text;
    if (strcmp(text, "uniform") == 0) {
        routing->kind = CLI_ROUTING_UNIFORM;
        return true;
    }
    if (strcmp(text, "deepseek") == 0) {
        routing->kind = CLI_ROUTING_DEEPSEEK;
        return true;
    }
    if (strncmp(text, "zipf:", 5) == 0) {
        routing->kind = CLI_ROUTING_ZIPF;
        return parse_halves(text + 5, &routing->zipf_halves) ||
               REFUSE("the exponent of '%s' is not 0, 0.5, 1, ... 4", text);
    }
    if (strchr(text, '.') == NULL && strchr(text, '/') == NULL) {
        return REFUSE("'%s' is not uniform, zipf:S, deepseek or a file (.csv, .npy)", text);
    }
    routing->kind = CLI_ROUTING_TABLE;
    return cli_table_read(text, &routing->table, reason);
}

static uint64_t square_root(uint64_t number)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit != 0; bit >>= 1) {
        if ((root + bit) * (root + bit) <= number) {
            root += bit;
        }
    }
    return root;
}

/* 2^40 / n^(halves/2), rounded down in steps; at least 1, so that every expert can be drawn. */
static uint64_t zipf_weight(uint64_t n, uint32_t halves)
{
    uint64_t weight = UINT64_C(1) << 40;
    for (uint32_t i = 0; i < halves / 2; ++i) {
        weight /= n;
    }
    if (halves % 2 != 0) {
        weight = (weight << 20) / square_root(n << 40);
    }
    return weight == 0 ? 1 : weight;
}

static bool prepare_zipf(cli_routing *routing)
{
    routing->zipf_weights = calloc(routing->expert_count, sizeof *routing->zipf_weights);
    if (routing->zipf_weights == NULL) {
        return REFUSE("out of memory");
    }
    for (uint32_t e = 0; e < routing->expert_count; ++e) {
        routing->zipf_weights[e] = zipf_weight(e + 1, routing->zipf_halves);
    }
    return true;
}

static bool check_table(const cli_routing *routing)
{
    const cli_table *table = &routing->table;
    if (table->column_count != routing->topk) {
        return REFUSE("the table has %u columns, but --top-k is %u", table->column_count,
                      routing->topk);
    }
    for (uint64_t row = 0; row < table->row_count; ++row) {
        const int32_t *ids = table->ids + row * routing->topk;
        for (uint32_t k = 0; k < routing->topk; ++k) {
            if (ids[k] < -1 || ids[k] >= (int32_t)routing->expert_count) {
                return REFUSE("row %llu, column %u: %d is not from -1 to %u",
                              (unsigned long long)row, k, ids[k], routing->expert_count - 1);
            }
            if (ids[k] != -1 && chosen_before(ids, k, ids[k])) {
                return REFUSE("row %llu, column %u: expert %d is there twice",
                              (unsigned long long)row, k, ids[k]);
            }
        }
    }
    return true;
}

bool cli_routing_prepare(cli_routing *routing, const char **reason)
{
    *reason = reason_text;
    if (routing->kind == CLI_ROUTING_TABLE) {
        return check_table(routing);
    }
    if (routing->kind == CLI_ROUTING_ZIPF) {
        return prepare_zipf(routing);
    }
    if (routing->kind == CLI_ROUTING_DEEPSEEK) {
        uint32_t group_size = routing->expert_count / CLI_DEEPSEEK_GROUPS;
        if (routing->expert_count % CLI_DEEPSEEK_GROUPS != 0 ||
            routing->topk > CLI_DEEPSEEK_BEST * group_size) {
            return REFUSE("deepseek needs experts in %u equal groups, and no more than %u groups' "
                          "experts a token; not top-%u of %u",
                          CLI_DEEPSEEK_GROUPS, CLI_DEEPSEEK_BEST, routing->topk,
                          routing->expert_count);
        }
    }
    return true;
}

void cli_routing_free(cli_routing *routing)
{
    free(routing->zipf_weights);
    free(routing->table.ids);
    routing->zipf_weights = NULL;
    routing->table.ids = NULL;
}
