/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many schedules a second: the small world of bench_world (4 ranks, 8 tokens, hidden 64, 8
 * experts, top-2, one dispatch and one combine, everything opened and closed each time), explored with
 * all detectors. Figures are of processor time; the result of every combine is checked.
 *
 * bench_explore [schedules] [scheduler] [first seed] [detectors off, hex] [cluster line] [rounds]
 */
#include "small_world.h"

#include <isthmus/unstable/explore.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int by_value(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static uint32_t distinct(uint64_t *values, uint32_t count)
{
    uint32_t found = count > 0;
    qsort(values, count, sizeof(*values), by_value);
    for (uint32_t i = 1; i < count; ++i) {
        found += values[i] != values[i - 1];
    }
    return found;
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 5000;
    ist_explore_desc explore = {.size = sizeof(explore), .scheduler = IST_SCHEDULER_RANDOM};
    if (argc > 2 && ist_scheduler_parse(argv[2], &explore) != IST_OK) {
        return 2;
    }
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    explore.detectors_off = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 16) : 0;
    ist_world_desc desc = {.size = sizeof(desc),
                           .rank_count = SMALL_WORLD_RANKS,
                           .cluster = argc > 5 && argv[5][0] != '\0' ? argv[5] : NULL};
    uint32_t rounds = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 1;
    uint64_t *digests = calloc(count, sizeof(*digests));
    uint64_t ops = 0, steps = 0, points = 0, switches = 0;
    ist_explore_report report = {.size = sizeof(report)};
    double began = seconds();
    for (uint32_t i = 0; digests != NULL && i < count; ++i) {
        desc.seed = first + i;
        ist_status status = ist_explore_run(&desc, small_world_rank, &rounds, &explore, &report);
        if (status != IST_OK) {
            (void)fprintf(stderr, "seed %" PRIu64 ": %s\n%s", desc.seed, ist_status_name(status),
                          report.finding.text);
            free(digests);
            return 1;
        }
        digests[i] = report.digest;
        ops += report.device_op_count;
        steps += report.steps;
        points += report.choice_points;
        switches += report.switches;
    }
    double took = seconds() - began;
    (void)printf(
        "%u schedules in %.3f s: %.0f schedules/s, %.2f M steps/s, %.2f M device operations/s\n"
        "each: %.0f steps, %.0f device operations, %.0f choices, %.0f switches; %u distinct "
        "digests\n",
        count, took, count / took, (double)steps / took * 1e-6, (double)ops / took * 1e-6,
        (double)steps / count, (double)ops / count, (double)points / count,
        (double)switches / count, distinct(digests, count));
    free(digests);
    return 0;
}
