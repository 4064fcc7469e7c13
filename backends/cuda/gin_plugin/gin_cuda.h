/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few functions of the CUDA driver that moving bytes takes, opened at run time; without a driver
 * only host memory can be registered. Declared here, so that building needs no toolkit.
 */
#ifndef GIN_CUDA_H
#define GIN_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- a device in use ------------------------------------------------------------------------- */

typedef struct gin_device {
    void *context;
    int ordinal;
    bool retained; /* the primary context was retained for this */
} gin_device;

/*
 * The device of a piece of memory: the primary context of the device that the driver names, or else
 * the current context. @return NULL, or why there is none
 */
const char *gin_device_open(const void *memory, gin_device *device);
void gin_device_close(gin_device *device);
/* Makes it current for the calling thread, also while that thread's program captures a graph. */
bool gin_device_enter(const gin_device *device);
void gin_device_exit(void);

/* Pins host memory, so that copies need no help of a processor. False: copies are slower. */
bool gin_device_pin(void *memory, size_t bytes);
void gin_device_unpin(void *memory);

/* ---- copies in order ------------------------------------------------------------------------- */

enum { GIN_LANE_MARKS = 64 };

/* Copies that complete in the order in which they were begun; entered device only. */
typedef struct gin_lane {
    void *stream;
    void *events[GIN_LANE_MARKS];
    uint64_t marked;  /* marks set */
    uint64_t reached; /* marks that have been reached */
    int failure;      /* CUresult of the first call that failed, 0: none */
} gin_lane;

const char *gin_lane_open(gin_lane *lane);
void gin_lane_close(gin_lane *lane);
void gin_lane_from_device(gin_lane *lane, void *host, const void *device, size_t bytes);
void gin_lane_to_device(gin_lane *lane, void *device, const void *host, size_t bytes);
/* Whether a mark is free. */
bool gin_lane_may_mark(const gin_lane *lane);
/* Sets a mark behind all copies begun so far. @return its number, from 1 */
uint64_t gin_lane_mark(gin_lane *lane);
/* Looks how far the copies have come. */
void gin_lane_poll(gin_lane *lane);

#endif
