/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host time of the backend: CLOCK_MONOTONIC in nanoseconds, and arithmetic that cannot overflow.
 */
#ifndef CUDA_CLOCK_H
#define CUDA_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t cuda_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The point in time `ns` after `from_ns`; as late as can be said when it lies beyond. */
static inline uint64_t cuda_after_ns(uint64_t from_ns, uint64_t ns)
{
    return ns > UINT64_MAX - from_ns ? UINT64_MAX : from_ns + ns;
}

static inline struct timespec cuda_timespec(uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                          .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    return at;
}

static inline void cuda_pause_ns(uint64_t ns)
{
    struct timespec pause = cuda_timespec(ns);
    (void)nanosleep(&pause, NULL);
}

#endif
