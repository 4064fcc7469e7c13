/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting before any rank's program begins.
 */
#ifndef CUDA_BEGIN_H
#define CUDA_BEGIN_H

#include "cuda_clock.h"
#include "cuda_endpoint.h"

typedef struct cuda_beginner {
    cuda_endpoint *endpoint;
    uint32_t rank, rank_count;
    uint8_t uuid[16]; /* of its device */
    bool may_share;   /* the device may be another rank's, too */
} cuda_beginner;

typedef struct cuda_beginning {
    uint64_t at_ns;   /* host time, equal on all ranks */
    uint32_t sharers; /* ranks on this rank's device, itself included */
    bool bystander;   /* the failure is another rank's */
} cuda_beginning;

/*
 * Collective. `own`: whether this rank has its device. IST_OK on all ranks or on none; `own` where
 * that failed.
 */
ist_status cuda_begin(const cuda_beginner *one, ist_status own, cuda_beginning *beginning);

#endif
