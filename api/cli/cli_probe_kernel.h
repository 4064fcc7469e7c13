/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the probe's kernels. Times are written as nanoseconds of the device's clock.
 */
#ifndef CLI_PROBE_KERNEL_H
#define CLI_PROBE_KERNEL_H

#include <isthmus/device.h>

/* Which way the bytes of `cli_probe_copy` go. */
typedef enum probe_way {
    PROBE_WAY_STORE = 0, /* from this rank to the peer */
    PROBE_WAY_LOAD = 1,  /* from the peer to this rank */
    PROBE_WAY_LOCAL = 2
} probe_way;

/* How a kernel of the probe ended. */
#define PROBE_MARK_FAILED UINT64_MAX

typedef struct probe_args {
    const ist_dev_comm *dev;
    uint64_t *times; /* [blocks][2]: begin and end */
    uint64_t *word;  /* of this rank, for words alone; zero */
    uint64_t from;   /* offsets into the window */
    uint64_t to;
    uint64_t flag;
    uint64_t bytes; /* by all blocks */
    uint64_t base;  /* flags and signals count from here */
    uint64_t deadline_ns;
    uint32_t window;
    uint32_t peer;
    uint32_t way;
    uint32_t rounds;
    uint32_t warmup; /* rounds that are not timed */
    uint32_t first;  /* ping-pong: 1 on the rank that serves */
} probe_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_cli_probe_empty;
extern const ist_kernel ist_kernel_cli_probe_flags;
extern const ist_kernel ist_kernel_cli_probe_copy;
extern const ist_kernel ist_kernel_cli_probe_barrier;
extern const ist_kernel ist_kernel_cli_probe_words;
extern const ist_kernel ist_kernel_cli_probe_put;
#endif

#endif
