/* SPDX-License-Identifier: Apache-2.0 */
/* The gathered state of one step: who sends what where, for all ranks at once. Ranks of a process
 * share it; it is built when the first one asks and freed when the last one is done.
 */
#ifndef CLI_STEP_H
#define CLI_STEP_H

#include "cli_data.h"
#include "cli_options.h"
#include "ep_oracle.h"

#include <pthread.h>

typedef struct cli_step {
    ep_oracle oracle; /* context: data */
    cli_data data;
    uint32_t number; /* from 1 */
    uint32_t user_count;
    struct cli_step *next;
} cli_step;

typedef struct cli_steps {
    const cli_options *options;
    pthread_mutex_t lock;
    cli_step *first;
} cli_steps;

bool cli_steps_init(cli_steps *steps, const cli_options *options);
void cli_steps_fini(cli_steps *steps);

/* NULL when out of memory. Ranks of a process must agree on rank_count. */
const cli_step *cli_steps_get(cli_steps *steps, uint32_t number, uint32_t rank_count);
void cli_steps_put(cli_steps *steps, const cli_step *step);

#endif
