/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank reports about its run, and what the run as a whole came to. A report is plain
 * bytes, so that it can travel through device memory to the rank that prints.
 */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "cli_options.h"

#include <isthmus/world.h>

#define CLI_REPORT_MAGIC UINT64_C(0x7472706572747369)
#define CLI_STEPS_KEPT 12u

/* Where a rank is. */
typedef enum cli_state {
    CLI_STATE_NONE = 0, /* nothing known */
    CLI_STATE_RUNNING = 1,
    CLI_STATE_DONE = 2, /* took part to the end */
    CLI_STATE_KILLED = 3,
    CLI_STATE_EVICTED = 4, /* the peers went on without it */
    CLI_STATE_FAILED = 5
} cli_state;

/* One step on one rank. Statuses are those of the completion records. */
typedef struct cli_step_report {
    int32_t dispatch_status;
    int32_t combine_status;
    uint32_t lost_count;     /* ranks without contribution */
    uint32_t active_count;   /* in the mask after the step */
    uint32_t agree_status;   /* negated ist_status */
    uint32_t readmit_status; /* negated ist_status; UINT32_MAX: not asked for */
    uint32_t lost_now;       /* of the lost ones, those that were active when the step began */
    uint32_t reserved;
    uint64_t rows; /* checked */
    uint64_t wrong_rows;
    uint64_t dispatch_ns;
    uint64_t combine_ns;
    uint64_t agree_ns;
    uint64_t generation; /* after the step */
} cli_step_report;

/* Everything a rank reports. Multiple of 16 bytes, no padding. */
typedef struct cli_report {
    uint64_t magic;
    uint32_t rank;
    uint32_t state; /* cli_state */
    int32_t status; /* why it failed */
    uint32_t step_count;
    uint64_t generation;
    uint64_t mask_hash;
    uint64_t output_hash;
    uint64_t rows;
    uint64_t wrong_rows;
    uint64_t unmarked_wrong_rows;
    cli_step_report steps[CLI_STEPS_KEPT]; /* the first steps */
    char message[256];
    char wrong[120]; /* the first wrong row, in words */
} cli_report;

/* The run as a whole. */
typedef struct cli_outcome {
    bool ok;
    uint32_t rank_count;
    uint32_t lost_count;
    uint32_t *lost_ranks; /* ascending; owned */
    uint64_t generation;
    uint64_t rows;
    uint64_t wrong_rows;
    uint64_t unmarked_wrong_rows;
    uint64_t digest;
    uint64_t virtual_ns;
    uint64_t event_count;
    double wall_s;
    uint64_t rss_bytes;
    char backend[16];
    char message[400]; /* why it is not ok */
    char *replay;      /* the line; owned */
} cli_outcome;

/* First 64 bits of a hash over bytes; also used for masks and digests. */
uint64_t cli_hash_bytes(const void *bytes, size_t count, uint64_t seed);

/* Sums up the reports of the ranks in `mask_words` (NULL: no rank survived). */
void cli_outcome_sum(const cli_options *options, const ist_world_result *result,
                     const cli_report *reports, uint32_t rank_count, const uint64_t *mask_words,
                     cli_outcome *outcome);
void cli_outcome_free(cli_outcome *outcome);

/* Printing. They return an exit status. */
int cli_outcome_print_json(const char *command, const cli_options *options,
                           const cli_outcome *outcome);
int cli_outcome_print_text(const cli_options *options, const cli_outcome *outcome,
                           const cli_report *reports, const uint64_t *mask_words);

#endif
