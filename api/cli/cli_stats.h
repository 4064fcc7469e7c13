/* SPDX-License-Identifier: Apache-2.0 */
/* What a list of times comes to.
 */
#ifndef CLI_STATS_H
#define CLI_STATS_H

#include <stdint.h>

/* Plain numbers, all in the unit of the samples. */
typedef struct cli_stats {
    double mean;
    double min;
    double median; /* of an even count: the mean of the two in the middle */
    double p99;    /* the smallest sample that at least 99 % do not exceed */
} cli_stats;

/* Sorts the samples. Zeros for none. */
void cli_stats_make(uint64_t *samples, uint32_t count, cli_stats *stats);

#endif
