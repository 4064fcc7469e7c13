/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file kernel_layout.h
 * What layouts of device memory need on both sides: functions that host and device compile alike,
 * and rounding. The layouts themselves lie beside the kernels that own the memory.
 */
#ifndef IST_KERNEL_LAYOUT_H
#define IST_KERNEL_LAYOUT_H

#include <stdint.h>

#if defined(__CUDACC__)
#define IST_LAYOUT_FN static inline __host__ __device__
#else
#define IST_LAYOUT_FN static inline
#endif

/** Regions written by different ranks or blocks begin at multiples of this, in bytes. */
#define IST_LAYOUT_LINE 128u

/** Rounds up; `unit` is a power of two. */
IST_LAYOUT_FN uint64_t ist_layout_round(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1u) & ~(unit - 1u);
}

/** Takes `bytes` from the end of a growing layout and returns their offset. */
IST_LAYOUT_FN uint64_t ist_layout_take(uint64_t *end, uint64_t bytes)
{
    uint64_t offset = ist_layout_round(*end, IST_LAYOUT_LINE);
    *end = offset + bytes;
    return offset;
}

#endif
