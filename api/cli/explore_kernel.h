/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel with which scenarios of barriers leave rows at their team, to see them after the barrier. */
#ifndef EXPLORE_KERNEL_H
#define EXPLORE_KERNEL_H

#include <isthmus/device.h>

#define EXPLORE_SLOT_BYTES 64u

typedef struct explore_slots_args {
    const ist_dev_comm *dev;
    uint64_t offset; /* in window 0: one slot a rank begins there */
    uint32_t value;  /* of each byte */
} explore_slots_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_explore_slots;
#endif

#endif
