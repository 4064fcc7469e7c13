/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ep_args.h
 * Arguments of the expert-parallel kernels. Layouts are computed once by the host and passed.
 */
#ifndef IST_EP_ARGS_H
#define IST_EP_ARGS_H

#include <isthmus/device.h>
#include <isthmus/ep.h>

#include "ep_layout.h"

/** Halves of an operation that a launch runs; or-ed. */
typedef enum ist_ep_half { IST_EP_SEND = 1, IST_EP_RECEIVE = 2 } ist_ep_half;

/** ep_route: one block */
typedef struct ist_ep_route_args {
    const ist_dev_comm *dev;
    ist_ep_geometry geometry;
    ist_ep_handle_map in;
    uint8_t *handle;
    ist_ep_route_report *report;
    uint64_t update;      /**< number of this update */
    const void *topk_idx; /**< [N][K] */
    uint32_t topk_dtype;  /**< IST_I32 or IST_I64 */
    uint32_t token_count; /**< N */
    uint32_t topk;        /**< K */
    uint32_t layout;      /**< ist_ep_layout */
} ist_ep_route_args;

/** What dispatch and combine have in common. */
typedef struct ist_ep_op_args {
    const ist_dev_comm *dev;
    const ist_dev_comm *service; /**< the communicator's mask dev comm */
    ist_ep_geometry geometry;
    ist_ep_layout_map at;
    ist_ep_handle_map in;
    uint8_t *handle;
    ist_ep_record_head *record; /**< host-visible */
    uint64_t issue;       /**< number of the call on the handle, 0: captured; for the record */
    uint64_t deadline_ns; /**< of a wait, a length */
    uint64_t row_bytes;
    const uint8_t *rows;   /**< local address of the input rows, NULL if there are none */
    uint64_t rows_offset;  /**< of the input in its window */
    uint32_t rows_window;  /**< 0: plain memory, staged for the team */
    uint32_t halves;       /**< ist_ep_half */
    uint32_t operation;    /**< ist_ep_op */
    uint32_t layout;       /**< ist_ep_layout */
    uint32_t topk;         /**< K */
    uint32_t dtype;        /**< ist_dtype */
    uint32_t token_count;  /**< N of the handle */
    uint32_t topk_inverse; /**< 2^32 / K, rounded up; 0 for K = 1 */
} ist_ep_op_args;

/** ep_dispatch: geometry.block_count blocks */
typedef struct ist_ep_dispatch_args {
    ist_ep_op_args op;
    const float *weights; /**< [N][K] or NULL */
    uint8_t *out;         /**< [L][R*M] or [R][M] rows */
    float *out_weights;   /**< [R][M][K] or NULL */
    int32_t *out_idx;     /**< [R][M][K] or NULL */
    int32_t *counters;    /**< EXPERT_MAJOR [L]; RANK_MAJOR [R] or NULL */
    uint32_t id_kind;     /**< ist_ep_id_kind, resolved */
    uint32_t reserved;
} ist_ep_dispatch_args;

/** ep_combine and ep_combine_reduced: geometry.block_count blocks */
typedef struct ist_ep_combine_args {
    ist_ep_op_args op;
    const float *weights; /**< EXPERT_MAJOR [N][K], else NULL */
    uint8_t *out;         /**< [N] rows */
    int32_t *lost_counts; /**< [N] or NULL */
} ist_ep_combine_args;

/** ep_clean_begin and ep_clean: one block. The communicator's clean lies between them. */
typedef struct ist_ep_clean_args {
    const ist_dev_comm *dev;
    const ist_dev_comm *service;
    ist_ep_geometry geometry;
    ist_ep_layout_map at;
    uint64_t deadline_ns;
} ist_ep_clean_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_ep_route;
extern const ist_kernel ist_kernel_ep_dispatch;
extern const ist_kernel ist_kernel_ep_combine;
extern const ist_kernel ist_kernel_ep_combine_reduced;
extern const ist_kernel ist_kernel_ep_clean_begin;
extern const ist_kernel ist_kernel_ep_clean;
#endif

#endif
