/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what combine returned: rows bit for bit, how many contributions each token lacks, and that
 * rows behind the last token stay as they were.
 */
#include "cli_check.h"

#include <isthmus/backend.h>
#include <stdio.h>
#include <string.h>

/* Whether the lost counts are those that the excluded ranks cause. */
static bool lost_counts_match(const cli_rank *rank, const cli_check *check, uint32_t *token)
{
    for (uint32_t t = 0; t < rank->token_count; ++t) {
        uint32_t lost =
            ep_oracle_lost_count(&check->step->oracle, rank->rank, t, rank->scratch.excluded);
        if (rank->scratch.numbers[t] != (int32_t)lost) {
            *token = t;
            return false;
        }
    }
    return true;
}

static ist_status try_rows(cli_rank *rank, const cli_check *check, cli_finding *finding)
{
    const cli_scratch *s = &rank->scratch;
    for (uint32_t first = 0; first < rank->token_count; first += rank->chunk_rows) {
        uint32_t left = rank->token_count - first;
        uint32_t count = left < rank->chunk_rows ? left : rank->chunk_rows;
        IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, s->chunk,
                                             rank->memory.combined + first * rank->row_bytes,
                                             count * rank->row_bytes));
        finding->hash = cli_hash_bytes(s->chunk, count * rank->row_bytes, finding->hash);
        for (uint32_t i = 0; i < count; ++i) {
            ep_oracle_combine(&check->step->oracle, rank->rank, first + i, s->excluded, s->other,
                              s->sums, s->row);
            cli_finding_compare(rank, finding, "of rank", s->chunk + i * rank->row_bytes, s->row,
                                rank->rank, first + i);
        }
    }
    return IST_OK;
}

/* The first row behind the tokens, and the last row there is. */
static ist_status check_untouched(cli_rank *rank, cli_finding *finding)
{
    const uint32_t rows[] = {rank->token_count, rank->options->tokens};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, rank->scratch.other,
                                             rank->memory.combined + rows[i] * rank->row_bytes,
                                             rank->row_bytes));
        ++finding->rows;
        if (!cli_is_poison(rank->scratch.other, rank->row_bytes)) {
            cli_finding_wrong(finding, "row %u was written, the rank has %u tokens", rows[i],
                              rank->token_count);
        }
    }
    return IST_OK;
}

/* Tries one set of suspects; keeps the finding when it is the best so far. */
static ist_status try_set(cli_rank *rank, const cli_check *check, const cli_suspects *suspects,
                          uint32_t set, bool last_resort, cli_finding *best, bool *explained)
{
    cli_finding finding = {0};
    uint32_t token = 0;
    cli_suspects_exclude(rank, suspects, set);
    bool match = lost_counts_match(rank, check, &token);
    if (!match && !last_resort) {
        return IST_OK;
    }
    finding.hash = cli_hash_bytes(rank->scratch.numbers, rank->token_count * sizeof(int32_t),
                                  rank->report->output_hash);
    if (!match) {
        cli_finding_wrong(&finding, "lost count of token %u is %d", token,
                          rank->scratch.numbers[token]);
    }
    IST_RETURN_IF_ERROR(try_rows(rank, check, &finding));
    IST_RETURN_IF_ERROR(check_untouched(rank, &finding));
    if (!*explained || finding.wrong < best->wrong) {
        *best = finding;
    }
    *explained = true;
    return IST_OK;
}

ist_status cli_check_combine(cli_rank *rank, const cli_check *check)
{
    cli_suspects suspects;
    cli_finding best = {0};
    bool explained = false;
    cli_suspects_find(rank, &suspects);
    if (rank->token_count != 0) {
        IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, rank->scratch.numbers,
                                             rank->memory.lost_counts,
                                             rank->token_count * sizeof(int32_t)));
    }
    for (uint32_t set = 0; set < suspects.sets && (!explained || best.wrong != 0); ++set) {
        IST_RETURN_IF_ERROR(try_set(rank, check, &suspects, set, false, &best, &explained));
    }
    if (!explained) {
        IST_RETURN_IF_ERROR(
            try_set(rank, check, &suspects, suspects.sets - 1, true, &best, &explained));
    }
    cli_finding_settle(rank, check, "combine", &best);
    return IST_OK;
}
