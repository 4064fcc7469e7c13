/* SPDX-License-Identifier: Apache-2.0 */
/* What the two checks share: which lost ranks count as absent, and what is noted of a wrong row.
 *
 * A record names the ranks that were lost, but not when. One that died after its data had arrived is
 * lost all the same, with its rows present. So the checks try which of the ranks lost in this step
 * left nothing behind, and one such set has to explain the whole output.
 */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include "cli_rank.h"

/* At most so many ranks lost in one step are told apart; further ones count as absent. */
#define CLI_SUSPECTS_MAX 6u

typedef struct cli_suspects {
    uint32_t count;
    uint32_t ranks[CLI_SUSPECTS_MAX];
    uint32_t sets; /* 2^count */
} cli_suspects;

/* What one attempt to explain an output found. */
typedef struct cli_finding {
    uint64_t rows;
    uint64_t wrong;
    uint64_t hash;
    char text[120]; /* of the first wrong row */
} cli_finding;

/* Ranks in scratch.lost that were active when the step began. */
void cli_suspects_find(const cli_rank *rank, cli_suspects *suspects);

/* Sets scratch.excluded: ranks lost before, and the suspects of set `set` (0 … sets-1). */
void cli_suspects_exclude(cli_rank *rank, const cli_suspects *suspects, uint32_t set);

/* Notes a wrong row; the first one is kept in words. */
void cli_finding_wrong(cli_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Compares a row; a difference is noted with `what`, block and row. */
bool cli_finding_compare(const cli_rank *rank, cli_finding *finding, const char *what,
                         const char *found, const char *expected, uint64_t block, uint64_t row);

/* Whether all bytes are the poison. */
bool cli_is_poison(const char *bytes, size_t count);

/* Adds the attempt that explains most to the report. */
void cli_finding_settle(cli_rank *rank, const cli_check *check, const char *operation,
                        const cli_finding *finding);

#endif
