/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_shared.h
 * What the host side and the device side of the CUDA backend agree on: launch geometry and the
 * private part of an ist_dev_comm. Plain C, so that both compilers read it.
 *
 * Installed as <isthmus/detail/cuda_shared.h>; only the backend includes it.
 */
#ifndef IST_CUDA_SHARED_H
#define IST_CUDA_SHARED_H

#include <stdint.h>

/* ---- launch ---------------------------------------------------------------------------------- */

/** Most threads of a block; every kernel is compiled for it. A launch may use fewer whole warps. */
#ifndef IST_CUDA_THREADS
#define IST_CUDA_THREADS 1024
#endif

/** Dynamic shared memory that ist_coop_scratch() gives out, from its start. */
#define IST_CUDA_SCRATCH_BYTES 65536u

/** Stages of the bulk copies, behind the scratch; a BF16 row of 7168 fits one. */
#define IST_CUDA_STAGES 4u
#define IST_CUDA_STAGE_BYTES 16384u

/**
 * Dynamic shared memory of a launch. Less is allowed down to IST_CUDA_SCRATCH_BYTES: rows are then
 * copied through registers.
 */
#define IST_CUDA_DYNAMIC_BYTES (IST_CUDA_SCRATCH_BYTES + IST_CUDA_STAGES * IST_CUDA_STAGE_BYTES)

/* ---- LSA barriers ---------------------------------------------------------------------------- */

/**
 * Barrier i lies in window 0 at barrier_offset + i * IST_CUDA_BARRIER_BYTES(lsa_size), zeroed when
 * the dev comm is opened: one word with the last tag that this rank completed, then one word for
 * each member of the team, written by that member. All members have the same offset.
 *
 * A tag is the mask's generation (low 24 bits) above a count of 40 bits that starts again at each
 * generation, so that a rank which missed barriers while it was masked counts with the others
 * after its re-admission.
 */
#define IST_CUDA_BARRIER_BYTES(lsa_size) ((((uint64_t)(lsa_size) + 1u) * 8u + 127u) & ~UINT64_C(127))
#define IST_CUDA_BARRIER_COUNT_BITS 40

/* ---- the private part of an ist_dev_comm ----------------------------------------------------- */

/** ist_dev_comm.backend, in device memory. ist_dev_window.backend is the ncclWindow_t. */
typedef struct ist_cuda_dev_comm {
    uint64_t barrier_offset; /**< bytes in window 0, a multiple of 128 */
    const void *nccl;        /**< ncclDevComm in device memory; NULL: no GIN */
    /**
     * Counters behind the user's: counter_count + block counts the completed puts that named no
     * counter, so that a flush is a bounded wait.
     */
    uint64_t *flush_issued;     /**< [context_count][flush_block_count] puts issued, zeroed */
    uint64_t *counter_issued;   /**< [context_count][counter_count] puts that named it, zeroed */
    uint32_t flush_block_count; /**< blocks that have such a counter */
    uint32_t reserved;
    uint64_t *peer_errors; /**< [rank_count], host-visible; not 0: the network failed for it */
} ist_cuda_dev_comm;

#endif
