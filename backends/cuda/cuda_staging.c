/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host buffers for copies. A buffer that is on its way is free again when the event behind
 * its copy is reached; nobody waits for that: when none is free, there is one more. The list has a
 * lock because an abort, which is a copy too, may come from another thread.
 */
#include "cuda_internal.h"

#define BLOCK_BYTES_MIN ((size_t)4096)
/* Pinned memory kept for later; beyond it free buffers go back to the system when nothing runs. */
#define KEPT_BYTES_MAX ((size_t)256 << 20)

static ist_status block_make(cuda_rank *rank, cuda_block *block)
{
    CUDA_TRY(rank, cuEventCreate, &block->used, CU_EVENT_DISABLE_TIMING);
    ist_status status = cuda_pinned_take(rank, block->bytes, &block->piece);
    if (status != IST_OK) {
        (void)cu.cuEventDestroy(block->used);
        return status;
    }
    block->host = cuda_pinned_host(block->piece);
    return IST_OK;
}

static void block_free(cuda_rank *rank, cuda_block *block)
{
    cuda_pinned_give(rank, block->piece);
    (void)cu.cuEventDestroy(block->used);
    ist_free(block);
}

static size_t size_class(size_t bytes)
{
    size_t rounded = BLOCK_BYTES_MIN;
    while (rounded < bytes) {
        rounded *= 2u;
    }
    return rounded;
}

/* Of exactly this size, so that a small copy does not hold a large buffer. */
static cuda_block *block_free_one(cuda_rank *rank, size_t bytes)
{
    for (cuda_block **link = &rank->blocks; *link != NULL; link = &(*link)->next) {
        cuda_block *block = *link;
        if (block->bytes == bytes && cu.cuEventQuery(block->used) == CUDA_SUCCESS) {
            *link = block->next;
            block->next = NULL;
            return block;
        }
    }
    return NULL;
}

/* Block lock held. */
static void trim(cuda_rank *rank)
{
    if (rank->pinned_bytes <= KEPT_BYTES_MAX || !cuda_streams_idle(rank)) {
        return;
    }
    cuda_block **link = &rank->blocks;
    while (*link != NULL) {
        cuda_block *block = *link;
        if (cu.cuEventQuery(block->used) == CUDA_SUCCESS) {
            *link = block->next;
            block_free(rank, block);
        } else {
            link = &block->next;
        }
    }
    cuda_pinned_trim(rank);
}

ist_status cuda_block_take(cuda_rank *rank, size_t bytes, cuda_block **result)
{
    size_t rounded = size_class(bytes);
    (void)pthread_mutex_lock(&rank->block_lock);
    cuda_block *block = block_free_one(rank, rounded);
    (void)pthread_mutex_unlock(&rank->block_lock);
    if (block != NULL) {
        *result = block;
        return IST_OK;
    }
    block = ist_alloc(1, sizeof(*block));
    if (block == NULL) {
        return cuda_fail_memory(rank, "a staging buffer");
    }
    block->bytes = rounded;
    ist_status status = block_make(rank, block);
    if (status != IST_OK) {
        ist_free(block);
        return status;
    }
    *result = block;
    return IST_OK;
}

void cuda_block_return(cuda_rank *rank, cuda_block *block)
{
    (void)pthread_mutex_lock(&rank->block_lock);
    block->next = rank->blocks;
    rank->blocks = block;
    trim(rank);
    (void)pthread_mutex_unlock(&rank->block_lock);
}

ist_status cuda_block_put(cuda_rank *rank, cuda_block *block, CUstream stream)
{
    CUresult result = cu.cuEventRecord(block->used, stream);
    cuda_block_return(rank, block);
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuEventRecord");
}

void cuda_staging_close(cuda_rank *rank)
{
    while (rank->blocks != NULL) {
        cuda_block *block = rank->blocks;
        rank->blocks = block->next;
        block_free(rank, block);
    }
}
