/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel with which `isthmus bench coll` checks a barrier.
 */
#ifndef CLI_COLL_KERNEL_H
#define CLI_COLL_KERNEL_H

#include <isthmus/device.h>

typedef struct coll_args {
    const ist_dev_comm *dev; /* window 0: u64 [rank_count] */
    uint64_t value;
    uint64_t *wrong; /* out: one word of this rank */
} coll_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_cli_coll_write;
extern const ist_kernel ist_kernel_cli_coll_read;
#endif

#endif
