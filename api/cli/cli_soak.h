/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench soak`: what its parts share.
 */
#ifndef CLI_SOAK_H
#define CLI_SOAK_H

#include "cli_options.h"
#include "cli_soak_kernel.h"
#include "ep_oracle.h"

#include <isthmus/isthmus.h>

typedef struct soak_options {
    cli_options world; /* tokens, hidden, experts and top-k are the largest ones */
    uint32_t steps;
    uint64_t gap_ns; /* longest */
    bool json;
    bool help;
} soak_options;

/* A step as all ranks draw it. */
typedef struct soak_step {
    uint64_t key;
    ist_ep_layout layout;
    ist_dtype dtype;
    uint64_t hidden;
    bool staged;
    uint32_t *counts; /* [R] tokens of each rank */
    int32_t *ids;     /* [R][M][K] */
    float *weights;   /* [R][M][K] */
    ep_oracle oracle; /* of these */
} soak_step;

/* What one rank must find in a step, as it goes to the device. */
typedef struct soak_tables {
    soak_row *rows;
    uint32_t row_count;
    uint32_t row_max;
    soak_part *parts;     /* [N][K] */
    uint32_t *counters;   /* [L] or [R] */
    uint32_t *ids;        /* RANK_MAJOR: [R][M][K] */
    uint32_t *weights;    /* the same */
    uint32_t counter_max; /* the larger of L and R */
} soak_tables;

typedef struct soak_totals {
    uint64_t magic;
    uint64_t steps;
    uint64_t words;
    uint64_t wrong;
    uint64_t first_wrong; /* step, from 1; 0: none */
    uint64_t incomplete;  /* operations whose record was not complete */
    uint64_t gap_ns;
    uint64_t tokens;
} soak_totals;

typedef struct soak_job {
    const soak_options *options;
    soak_totals totals; /* of all ranks, at rank 0 */
    bool done;
    uint32_t rank_count;
    char backend[16];
    bool failed;
    int32_t failed_rank;
    char message[256];
} soak_job;

/* The rank's program. `arg` is the soak_job. */
ist_status soak_rank_main(ist_world *world, void *arg);

/* Drawing: pure functions of seed and number. False when out of memory. */
bool soak_step_open(const soak_options *options, uint32_t rank_count, soak_step *step);
void soak_step_close(soak_step *step);
void soak_step_draw(const soak_options *options, uint32_t number, soak_step *step);
/* How long a rank idles before a step, in ns. */
uint64_t soak_gap_ns(const soak_options *options, uint32_t number, uint32_t rank);

bool soak_tables_open(const soak_step *step, uint32_t rank, soak_tables *tables);
void soak_tables_close(soak_tables *tables);
/* Fills them for a rank. False when out of memory. */
bool soak_tables_fill(const soak_step *step, uint32_t rank, soak_tables *tables);

#endif
