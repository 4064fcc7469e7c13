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

/**
 * Texts of an operation: compiled from the same source with more or less that is known. The one for
 * any operation is right for all. The others are for what runs most, a whole operation of a small
 * team without staging, and shorter: what such an operation cannot meet is not in them.
 */
typedef enum ist_ep_text {
    IST_EP_TEXT_ANY = 0,
    IST_EP_TEXT_BY_EXPERT = 1, /**< few ranks of one team, EXPERT_MAJOR */
    IST_EP_TEXT_BY_RANK = 2    /**< few ranks of one team, RANK_MAJOR */
} ist_ep_text;

/** What "few" means. */
#define IST_EP_FEW_RANKS 32u
#define IST_EP_FEW_TOPK 16u

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

/** ep_dispatch and its shorter texts: geometry.block_count blocks */
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

/** ep_combine, its shorter texts and ep_combine_reduced: geometry.block_count blocks */
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
/** The shortest text that is right for an operation, which stages its rows or not. */
static inline ist_ep_text ist_ep_text_for(const ist_ep_op_args *args, int staged)
{
    int team = args->geometry.lsa_size == args->geometry.rank_count;
    uint32_t ranks = args->geometry.rank_count;
    int few = team && ranks <= IST_EP_FEW_RANKS && ranks <= args->geometry.block_count &&
              args->topk <= IST_EP_FEW_TOPK && args->at.work_bytes == 0 &&
              ranks * args->at.meta_bytes <= IST_EP_CHUNK_BYTES &&
              args->halves == (IST_EP_SEND | IST_EP_RECEIVE) && !staged &&
              args->row_bytes % 16u == 0;
    if (!few) {
        return IST_EP_TEXT_ANY;
    }
    return args->layout == IST_EP_EXPERT_MAJOR ? IST_EP_TEXT_BY_EXPERT : IST_EP_TEXT_BY_RANK;
}

extern const ist_kernel ist_kernel_ep_route;
extern const ist_kernel ist_kernel_ep_dispatch;
extern const ist_kernel ist_kernel_ep_dispatch_by_expert;
extern const ist_kernel ist_kernel_ep_dispatch_by_rank;
extern const ist_kernel ist_kernel_ep_combine;
extern const ist_kernel ist_kernel_ep_combine_by_expert;
extern const ist_kernel ist_kernel_ep_combine_by_rank;
extern const ist_kernel ist_kernel_ep_combine_reduced;
extern const ist_kernel ist_kernel_ep_combine_reduced_by_expert;
extern const ist_kernel ist_kernel_ep_clean_begin;
extern const ist_kernel ist_kernel_ep_clean;
#endif

#endif
