/* SPDX-License-Identifier: Apache-2.0 */
/* Mean, least, median and 99th percentile.
 */
#include "cli_stats.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

void cli_stats_make(uint64_t *samples, uint32_t count, cli_stats *stats)
{
    double sum = 0;
    memset(stats, 0, sizeof *stats);
    if (count == 0) {
        return;
    }
    qsort(samples, count, sizeof *samples, by_value);
    for (uint32_t i = 0; i < count; ++i) {
        sum += (double)samples[i];
    }
    uint32_t middle = count / 2;
    stats->mean = sum / count;
    stats->min = (double)samples[0];
    stats->median = count % 2 == 1 ? (double)samples[middle]
                                   : ((double)samples[middle - 1] + (double)samples[middle]) / 2;
    /* Rank ceil(99 count / 100), counted from 1. */
    stats->p99 = (double)samples[((uint64_t)count * 99 + 99) / 100 - 1];
}
