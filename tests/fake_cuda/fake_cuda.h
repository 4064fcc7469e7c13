/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver without GPU offers beside the driver's functions: how kernels were launched.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

typedef struct fake_cuda_tally {
    unsigned plain;       /* launches without an attribute */
    unsigned dependent;   /* programmatically, on what lies before them in the stream */
    unsigned cooperative; /* all blocks at once */
    unsigned late;        /* of all: on streams that do not have the highest priority */
    unsigned waits; /* of all: that lack local memory, for which the driver stops the device */
} fake_cuda_tally;

/* Of this thread so far; a graph's count when it is launched. */
fake_cuda_tally fake_cuda_launches(void);

#endif
