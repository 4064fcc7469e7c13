/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up the reports of the survivors: losses, wrong rows, whether all hold the same mask, and the
 * digest of the run, which covers the event log and every byte that was delivered.
 */
#include "cli_report.h"

#include <isthmus/mask.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t cli_hash_bytes(const void *bytes, size_t count, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, count, seed);
}

static bool survived(const cli_report *report)
{
    return report->magic == CLI_REPORT_MAGIC && report->state == CLI_STATE_DONE;
}

/* Keeps the first reason. */
static void fail(cli_outcome *outcome, const char *text)
{
    outcome->ok = false;
    if (outcome->message[0] == '\0') {
        snprintf(outcome->message, sizeof outcome->message, "%s", text);
    }
}

static void add_report(cli_outcome *outcome, const cli_report *report, const cli_report *first)
{
    char text[96];
    uint64_t pair[2] = {report->rank, report->output_hash};
    outcome->rows += report->rows;
    outcome->wrong_rows += report->wrong_rows;
    outcome->unmarked_wrong_rows += report->unmarked_wrong_rows;
    outcome->digest = cli_hash_bytes(pair, sizeof pair, outcome->digest);
    if (report->generation != first->generation || report->mask_hash != first->mask_hash) {
        snprintf(text, sizeof text, "ranks %u and %u hold different masks", first->rank,
                 report->rank);
        fail(outcome, text);
    }
    if (report->wrong_rows != 0) {
        fail(outcome, report->wrong[0] != '\0' ? report->wrong : "rows are wrong");
    }
}

/* Survivors in order; whoever is in the mask without a report was lost after the last agreement. */
static void add_survivors(const cli_report *reports, uint32_t rank_count,
                          const uint64_t *mask_words, cli_outcome *outcome, uint32_t *silent_count)
{
    const cli_report *first = NULL;
    for (uint32_t r = 0; r < rank_count; ++r) {
        bool active = ist_mask_test(mask_words, r) != 0;
        if (active && survived(&reports[r])) {
            first = first == NULL ? &reports[r] : first;
            add_report(outcome, &reports[r], first);
            continue;
        }
        *silent_count += active ? 1 : 0;
        outcome->lost_ranks[outcome->lost_count++] = r;
    }
    if (first != NULL) {
        outcome->generation = first->generation;
    }
}

/* The run failed on all ranks; only what is known of each is told. */
static void add_failed(const cli_report *reports, uint32_t rank_count, cli_outcome *outcome)
{
    for (uint32_t r = 0; r < rank_count; ++r) {
        if (reports[r].state == CLI_STATE_KILLED || reports[r].state == CLI_STATE_EVICTED) {
            outcome->lost_ranks[outcome->lost_count++] = r;
        }
        outcome->rows += reports[r].rows;
        outcome->wrong_rows += reports[r].wrong_rows;
        outcome->unmarked_wrong_rows += reports[r].unmarked_wrong_rows;
    }
    fail(outcome, "no rank reached the end");
}

void cli_outcome_sum(const cli_options *options, const ist_world_result *result,
                     const cli_report *reports, uint32_t rank_count, const uint64_t *mask_words,
                     cli_outcome *outcome)
{
    cli_text line = {0};
    uint32_t silent_count = 0;
    outcome->ok = result->status == IST_OK;
    outcome->rank_count = rank_count;
    outcome->virtual_ns = result->virtual_ns;
    outcome->event_count = result->event_count;
    outcome->digest = result->digest;
    outcome->lost_ranks = calloc((size_t)rank_count + 1, sizeof *outcome->lost_ranks);
    if (outcome->lost_ranks == NULL) {
        return;
    }
    if (mask_words != NULL) {
        add_survivors(reports, rank_count, mask_words, outcome, &silent_count);
    } else {
        add_failed(reports, rank_count, outcome);
    }
    /* Faults may strike the reports themselves. */
    if (silent_count > result->lost_count && ist_fault_plan_count(options->plan) == 0) {
        fail(outcome, "a rank that lives has not reported");
    }
    if (outcome->lost_count == rank_count) {
        fail(outcome, "no rank survived");
    }
    cli_options_append_line(options, rank_count, outcome->backend, &line);
    if (line.failed) {
        cli_text_free(&line);
        return;
    }
    cli_text_append(&line, " --expect %016llx", (unsigned long long)outcome->digest);
    outcome->replay = line.failed ? NULL : line.bytes;
    if (line.failed) {
        cli_text_free(&line);
    }
}

void cli_outcome_free(cli_outcome *outcome)
{
    free(outcome->lost_ranks);
    free(outcome->replay);
    outcome->lost_ranks = NULL;
    outcome->replay = NULL;
}
