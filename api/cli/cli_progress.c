/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line. Real time decides only when it is written, never what the run does.
 */
#include "cli_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUIET_MS 1000u
#define PERIOD_MS 100u

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void cli_progress_begin(cli_progress *progress)
{
    memset(progress, 0, sizeof *progress);
    progress->enabled = isatty(STDERR_FILENO) == 1;
    progress->start_ms = now_ms();
}

void cli_progress_show(cli_progress *progress, const char *what, uint32_t rank, uint32_t step,
                       uint32_t step_count, uint64_t virtual_ns)
{
    if (!progress->enabled) {
        return;
    }
    uint64_t now = now_ms();
    if (now - progress->start_ms < QUIET_MS || now - progress->last_ms < PERIOD_MS) {
        return;
    }
    progress->last_ms = now;
    progress->shown = true;
    fprintf(stderr, "\rstep %u/%u, rank %u %s, %" PRIu64 ".%03" PRIu64 " ms, %" PRIu64 " s\033[K",
            step, step_count, rank, what, virtual_ns / 1000000, virtual_ns / 1000 % 1000,
            (now - progress->start_ms) / 1000);
    fflush(stderr);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress->shown = false;
    }
}
