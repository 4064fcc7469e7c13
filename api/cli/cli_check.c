/* SPDX-License-Identifier: Apache-2.0 */
/* Shared parts of the checks: suspects, findings, poison.
 */
#include "cli_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void cli_suspects_find(const cli_rank *rank, cli_suspects *suspects)
{
    memset(suspects, 0, sizeof *suspects);
    for (uint32_t r = 0; r < rank->rank_count && suspects->count < CLI_SUSPECTS_MAX; ++r) {
        if (ist_mask_test(rank->scratch.lost, r) && ist_mask_test(rank->scratch.start, r)) {
            suspects->ranks[suspects->count++] = r;
        }
    }
    suspects->sets = 1u << suspects->count;
}

void cli_suspects_exclude(cli_rank *rank, const cli_suspects *suspects, uint32_t set)
{
    uint64_t *excluded = rank->scratch.excluded;
    memcpy(excluded, rank->scratch.lost, rank->word_count * sizeof *excluded);
    for (uint32_t i = 0; i < suspects->count; ++i) {
        uint32_t r = suspects->ranks[i];
        if (((set >> i) & 1u) == 0) {
            excluded[r / 64] &= ~(UINT64_C(1) << (r % 64));
        }
    }
}

void cli_finding_wrong(cli_finding *finding, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (finding->wrong == 0) {
        vsnprintf(finding->text, sizeof finding->text, format, list);
    }
    va_end(list);
    ++finding->wrong;
}

bool cli_finding_compare(const cli_rank *rank, cli_finding *finding, const char *what,
                         const char *found, const char *expected, uint64_t block, uint64_t row)
{
    size_t at = 0;
    ++finding->rows;
    if (memcmp(found, expected, rank->row_bytes) == 0) {
        return true;
    }
    while (found[at] == expected[at]) {
        ++at;
    }
    cli_finding_wrong(finding, "%s %llu row %llu, byte %zu: 0x%02x instead of 0x%02x", what,
                      (unsigned long long)block, (unsigned long long)row, at,
                      (unsigned char)found[at], (unsigned char)expected[at]);
    return false;
}

bool cli_is_poison(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if ((unsigned char)bytes[i] != CLI_POISON) {
            return false;
        }
    }
    return true;
}

void cli_finding_settle(cli_rank *rank, const cli_check *check, const char *operation,
                        const cli_finding *finding)
{
    cli_report *report = rank->report;
    report->rows += finding->rows;
    report->output_hash = finding->hash;
    if (finding->wrong != 0 && report->wrong_rows == 0) {
        snprintf(report->wrong, sizeof report->wrong, "step %u, rank %u, %s: %.80s",
                 check->step->number, rank->rank, operation, finding->text);
    }
    report->wrong_rows += finding->wrong;
    if (check->record->status == IST_OK) {
        report->unmarked_wrong_rows += finding->wrong;
    }
}
