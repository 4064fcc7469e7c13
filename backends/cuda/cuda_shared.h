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

/**
 * Most threads of a block that a kernel is compiled for; a file may define a smaller number before
 * it includes anything. The host launches a kernel with as many as its function attributes allow
 * (maxThreadsPerBlock), or with fewer whole warps.
 */
#ifndef IST_CUDA_THREADS
#define IST_CUDA_THREADS 512
#endif

/** Dynamic shared memory that ist_coop_scratch() gives out, from its start. */
#define IST_CUDA_SCRATCH_BYTES 65536u

/** Memory of the primitives behind the scratch: stages of the bulk copies (a BF16 row of 7168 fits
 *  one) and counters of ist_coop_rank_by_key(). */
#define IST_CUDA_STAGES 4u
#define IST_CUDA_STAGE_BYTES 16384u

/**
 * Dynamic shared memory of a launch. IST_CUDA_SCRATCH_BYTES alone is allowed: rows are then copied
 * through registers, and ranking by key is slow.
 */
#define IST_CUDA_DYNAMIC_BYTES (IST_CUDA_SCRATCH_BYTES + IST_CUDA_STAGES * IST_CUDA_STAGE_BYTES)

/* ---- LSA barriers ---------------------------------------------------------------------------- */

/**
 * The barriers of a member lie in its copy of window 0, zeroed when the dev comm is opened; barrier
 * i begins i * IST_CUDA_BARRIER_BYTES(lsa_size) further: one word with the last tag that this rank
 * completed, then one word for each member of the team, written by that member.
 *
 * A tag is the mask's generation (low 24 bits) above a count of 40 bits that starts again at each
 * generation, so that a rank which missed barriers while it was masked counts with the others
 * after its re-admission.
 */
#define IST_CUDA_BARRIER_BYTES(lsa_size)                                                           \
    ((((uint64_t)(lsa_size) + 1u) * 8u + 127u) & ~UINT64_C(127))
#define IST_CUDA_BARRIER_COUNT_BITS 40

/* ---- what lies behind an ist_dev_comm ---------------------------------------------------------- */

/**
 * Device code finds these by arithmetic, not by loading a pointer: the first loads of a kernel are a
 * chain that everything else waits for. Bytes from the ist_dev_comm to its table of windows, and to
 * the addresses of window 0 at the members of the team.
 */
#define IST_CUDA_LINE(bytes) (((uint64_t)(bytes) + 127u) & ~UINT64_C(127))
#define IST_CUDA_WINDOWS_AT                                                                        \
    (IST_CUDA_LINE(sizeof(ist_dev_comm)) + IST_CUDA_LINE(sizeof(ist_cuda_dev_comm)))
#define IST_CUDA_WINDOW_COUNT_MAX 1024u
#define IST_CUDA_MEMBERS_AT                                                                        \
    (IST_CUDA_WINDOWS_AT + IST_CUDA_WINDOW_COUNT_MAX * sizeof(ist_dev_window))

/** Values of one block and context that can be under way. */
#define IST_CUDA_VALUE_SLOTS 16u

/* ---- the private part of an ist_dev_comm ----------------------------------------------------- */

/** ist_dev_comm.backend, in device memory. ist_dev_window.backend is the ncclWindow_t. */
typedef struct ist_cuda_dev_comm {
    uint64_t *barriers_own;    /**< this rank's barriers, at a multiple of 128 */
    uint64_t *const *barriers; /**< [lsa_size] the members' barriers; NULL: none */
    const void *nccl;          /**< ncclDevComm in device memory; NULL: no GIN */
    /**
     * Counters behind the user's: counter_count + block counts the completed puts that named no
     * counter, so that a flush is a bounded wait.
     */
    uint64_t *flush_issued;     /**< [context_count][flush_block_count] puts issued, zeroed */
    uint64_t *counter_issued;   /**< [context_count][counter_count] puts that named it, zeroed */
    uint32_t flush_block_count; /**< blocks that have such a counter */
    uint32_t reserved;
    /**
     * Where values wait to be put as bytes, for releases of NCCL that cannot put values: in window 0
     * from `values_offset` on, IST_CUDA_VALUE_SLOTS words for each block that counts its flushes.
     */
    uint64_t *values;       /**< [context_count][flush_block_count][IST_CUDA_VALUE_SLOTS] */
    uint64_t values_offset; /**< of `values` in window 0, bytes */
    uint64_t *values_used;  /**< [context_count][flush_block_count] so far, zeroed */
    uint64_t *peer_errors;  /**< [rank_count], host-visible; not 0: the network failed for it */
} ist_cuda_dev_comm;

#endif
