/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a token goes to: drawn from the seed, or read from a table. Integers only, so that
 * every machine and compiler draws the same.
 */
#ifndef CLI_ROUTING_H
#define CLI_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_ZIPF_HALVES_MAX 8u
#define CLI_DEEPSEEK_GROUPS 8u
#define CLI_DEEPSEEK_BEST 4u

typedef enum cli_routing_kind {
    CLI_ROUTING_UNIFORM = 0,
    CLI_ROUTING_ZIPF = 1,
    CLI_ROUTING_DEEPSEEK = 2,
    CLI_ROUTING_TABLE = 3
} cli_routing_kind;

typedef struct cli_table {
    uint64_t row_count;
    uint32_t column_count;
    int32_t *ids; /* [row_count][column_count] */
} cli_table;

typedef struct cli_routing {
    cli_routing_kind kind;
    uint32_t expert_count;
    uint32_t topk;
    uint32_t zipf_halves;     /* exponent in halves */
    uint32_t masked_permille; /* how many entries of a thousand become -1 */
    uint64_t *zipf_weights;   /* [expert_count], for ZIPF */
    cli_table table;          /* for TABLE */
    const char *text;         /* as given */
} cli_routing;

/* Reads "uniform", "zipf:1.5", "deepseek" or a file name; fills kind, exponent and table. On failure
   *reason tells what is wrong, and lives until the next call. */
bool cli_routing_parse(const char *text, cli_routing *routing, const char **reason);

/* Checks against expert_count and topk, which the caller has set, and makes the weights. */
bool cli_routing_prepare(cli_routing *routing, const char **reason);
void cli_routing_free(cli_routing *routing);

/* Draws the ids of one token. `key` is the token's own; `row` its row in the table. `scratch` holds
   expert_count numbers. */
void cli_routing_token(const cli_routing *routing, uint64_t key, uint64_t row, uint64_t *scratch,
                       int32_t *ids);

/* Reads a table: CSV with one token a line, or .npy with int32 or int64 in C order. */
bool cli_table_read(const char *path, cli_table *table, const char **reason);

#endif
