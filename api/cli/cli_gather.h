/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the reports of all ranks to one of them, with a kernel of the command's own: load/store
 * peers write into the root's window, others put over the network.
 */
#ifndef CLI_GATHER_H
#define CLI_GATHER_H

#include "cli_report.h"

#include <isthmus/comm.h>
#include <isthmus/device.h>
#include <isthmus/stream.h>
#include <isthmus/window.h>

/* Arguments of the kernel `cli_gather`. Offsets are into the window, equal on all ranks:
 * own [bytes], inbox [rank_count][bytes], words u64[rank_count], arrived u32[rank_count]. */
typedef struct cli_gather_args {
    const ist_dev_comm *dev;
    uint64_t bytes; /* of one report, a multiple of 16 */
    uint64_t inbox;
    uint64_t words;
    uint64_t arrived;     /* root only: 1 where a report has come */
    uint64_t tag;         /* never 0, not used before */
    uint64_t deadline_ns; /* from now */
    uint32_t root;
    uint32_t window;
} cli_gather_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_cli_gather;
#endif

typedef struct cli_gather {
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    char *memory; /* of the window, on this rank */
    ist_window *window;
    const ist_dev_comm *dev; /* for kernels only */
    cli_gather_args args;
    uint32_t rank;
    uint32_t rank_count;
} cli_gather;

/* Collective. What was opened before a failure is closed by cli_gather_close(). */
ist_status cli_gather_open(ist_world *world, ist_comm *comm, ist_stream *stream,
                           cli_gather *gather);
void cli_gather_close(cli_gather *gather);

/* Sends this rank's report to `root`. On the root, fills gathered[r] for every rank whose report has
   come and leaves the others. At most once a communicator. */
ist_status cli_gather_run(cli_gather *gather, uint32_t root, const cli_report *report,
                          cli_report *gathered);

#endif
