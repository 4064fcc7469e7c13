/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many schedules a second: the small world of bench_world (4 ranks, 8 tokens, hidden 64, 8
 * experts, top-2, one dispatch and one combine, everything opened and closed each time), explored with
 * all detectors. Figures are of processor time; the result of every combine is checked.
 * The digest of all is over logs and choices: equal as long as all schedules are what they were.
 *
 * A device operation is a call of a kernel's body through the device header that touches memory which
 * others may touch, or that orders it: a load or store of a word, an atomic, a fence, a row (each place
 * that a copy writes, each sum), a put, a signal, a read of a counter, a wait, half of a barrier. Not:
 * a sync of the lanes, scratch, the clock, addresses of windows, a look at the mask. Ordered ones are
 * those of them that ist_world_result counts.
 *
 * bench_explore [schedules] [scheduler] [first seed] [detectors off, hex] [cluster line] [rounds]
 * bench_explore dense [schedules] …      the same with 64 rounds in each world: what device operations
 *                                        cost, opening and closing left aside
 * bench_explore detectors [schedules] …  what the detectors cost: with them over without, the median of
 *                                        nine pairs of such runs
 */
#include "small_world.h"

#include <isthmus/unstable/explore.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DENSE_ROUNDS 64u
#define PAIRS 9u
#define ALL_DETECTORS 0xfffffffeu

typedef struct bench {
    ist_world_desc world;
    ist_explore_desc explore;
    uint32_t count, rounds;
} bench;

typedef struct totals {
    double seconds;
    uint64_t calls, ordered, steps, points, switches;
} totals;

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

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return a < b ? -1 : a > b;
}

/* Of what all schedules did, in their order. */
static uint64_t digest_of_all(const uint64_t *values, uint32_t count)
{
    uint64_t all = count;
    for (uint32_t i = 0; i < count; ++i) {
        all = (all ^ values[i]) * UINT64_C(0x9e3779b97f4a7c15);
        all ^= all >> 29;
    }
    return all;
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

/* All schedules of a bench; `digests` may be NULL. */
static int run(const bench *which, totals *all, uint64_t *digests)
{
    ist_world_desc desc = which->world;
    ist_explore_report report = {.size = sizeof(report)};
    uint32_t rounds = which->rounds;
    memset(all, 0, sizeof(*all));
    double began = seconds();
    for (uint32_t i = 0; i < which->count; ++i) {
        desc.seed = which->world.seed + i;
        ist_status status =
            ist_explore_run(&desc, small_world_rank, &rounds, &which->explore, &report);
        if (status != IST_OK) {
            (void)fprintf(stderr, "seed %" PRIu64 ": %s\n%s", desc.seed, ist_status_name(status),
                          report.finding.text);
            return 1;
        }
        if (digests != NULL) {
            digests[i] = report.digest ^ report.choices_digest << 1;
        }
        all->calls += report.device_call_count;
        all->ordered += report.device_op_count;
        all->steps += report.steps;
        all->points += report.choice_points;
        all->switches += report.switches;
    }
    all->seconds = seconds() - began;
    return 0;
}

static int print_speed(const bench *which)
{
    totals all;
    uint64_t *digests = calloc(which->count, sizeof(*digests));
    if (digests == NULL || run(which, &all, digests) != 0) {
        free(digests);
        return 1;
    }
    const double count = which->count;
    const uint64_t all_digests = digest_of_all(digests, which->count);
    (void)printf(
        "%u schedules in %.3f s: %.0f schedules/s, %.2f M steps/s, %.2f M device operations/s\n"
        "each: %.0f steps, %.0f device operations (%.0f ordered), %.0f choices, %.0f switches; %u "
        "distinct digests, of all %016" PRIx64 "\n",
        which->count, all.seconds, count / all.seconds, (double)all.steps / all.seconds * 1e-6,
        (double)all.calls / all.seconds * 1e-6, (double)all.steps / count,
        (double)all.calls / count, (double)all.ordered / count, (double)all.points / count,
        (double)all.switches / count, distinct(digests, which->count), all_digests);
    free(digests);
    return 0;
}

/* By turns, so that what else the machine does meets both. */
static int print_detectors(bench *which)
{
    double ratios[PAIRS];
    totals on, off;
    for (uint32_t i = 0; i < PAIRS; ++i) {
        which->explore.detectors_off = 0;
        if (run(which, &on, NULL) != 0) {
            return 1;
        }
        which->explore.detectors_off = ALL_DETECTORS;
        if (run(which, &off, NULL) != 0) {
            return 1;
        }
        ratios[i] = on.seconds / off.seconds;
    }
    qsort(ratios, PAIRS, sizeof(*ratios), by_size);
    (void)printf("detectors: %.2f times the run without them (%.2f to %.2f, %u pairs of %u "
                 "schedules)\n",
                 ratios[PAIRS / 2u], ratios[0], ratios[PAIRS - 1u], PAIRS, which->count);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    bool dense = strcmp(mode, "dense") == 0, detectors = strcmp(mode, "detectors") == 0;
    char **rest = argv + (dense || detectors ? 2 : 1);
    int count = argc - (int)(rest - argv);
    bench which = {.world = {.size = sizeof(which.world), .rank_count = SMALL_WORLD_RANKS},
                   .explore = {.size = sizeof(which.explore), .scheduler = IST_SCHEDULER_RANDOM}};
    which.count = count > 0 ? (uint32_t)strtoul(rest[0], NULL, 10) : dense ? 200 : 5000;
    if (count > 1 && ist_scheduler_parse(rest[1], &which.explore) != IST_OK) {
        return 2;
    }
    which.world.seed = count > 2 ? strtoull(rest[2], NULL, 10) : 0;
    which.explore.detectors_off = count > 3 ? (uint32_t)strtoul(rest[3], NULL, 16) : 0;
    which.world.cluster = count > 4 && rest[4][0] != '\0' ? rest[4] : NULL;
    which.rounds = count > 5 ? (uint32_t)strtoul(rest[5], NULL, 10) : dense ? DENSE_ROUNDS : 1;
    return detectors ? print_detectors(&which) : print_speed(&which);
}
