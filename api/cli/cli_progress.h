/* SPDX-License-Identifier: Apache-2.0 */
/* One line on a terminal that tells how far a long run is. Silent when standard error is none.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_progress {
    bool enabled;
    bool shown;
    uint64_t start_ms;
    uint64_t last_ms;
} cli_progress;

void cli_progress_begin(cli_progress *progress);

/* Any rank calls it now and then; it writes at most ten times a second, from the second second on.
   Not for several threads at once. */
void cli_progress_show(cli_progress *progress, const char *what, uint32_t rank, uint32_t step,
                       uint32_t step_count, uint64_t virtual_ns);

/* Wipes the line. */
void cli_progress_end(cli_progress *progress);

#endif
