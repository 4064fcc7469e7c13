/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many small worlds a second: 4 ranks, 8 tokens, hidden 64, 8 experts, top-2, one dispatch and
 * one combine, everything opened and closed each time. Prints worlds a second; checks the result
 * of every combine first, against the identity that unit weights of one half make.
 *
 * bench_world [worlds] [cluster line]
 */
#include "small_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    uint32_t worlds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 5000;
    ist_world_desc desc = {.size = sizeof(desc),
                           .rank_count = SMALL_WORLD_RANKS,
                           .backend = "sim",
                           .cluster = argc > 2 ? argv[2] : NULL};
    ist_world_result result = {.size = sizeof(result)};
    double began = seconds();
    for (uint32_t i = 0; i < worlds; ++i) {
        desc.seed = i;
        if (ist_world_run(&desc, small_world_rank, NULL, &result) != IST_OK) {
            ist_error error = {.size = sizeof(error)};
            (void)ist_error_last(&error);
            (void)fprintf(stderr, "world %u: %s: %s\n", i, ist_status_name(result.status),
                          error.message);
            return 1;
        }
    }
    double took = seconds() - began;
    (void)printf("%u worlds in %.3f s: %.0f worlds/s, %" PRIu64 " device operations and %" PRIu64
                 " events each, digest %016" PRIx64 "\n",
                 worlds, took, worlds / took, result.device_op_count, result.event_count,
                 result.digest);
    return 0;
}
