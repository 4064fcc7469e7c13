/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory in chunks of the driver's granularity (2 MiB), cut into pages of 4096 bytes, so
 * that small allocations share one. Chunks can be given to other processes; a peer's use keeps the
 * memory alive after its owner has let go.
 */
#include "cuda_internal.h"

#include <string.h>

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1u) / unit * unit;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static CUmemAllocationProp chunk_properties(const cuda_rank *rank)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof(properties));
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = rank->device;
    properties.requestedHandleTypes =
        rank->fd_export ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    properties.allocFlags.gpuDirectRDMACapable = rank->rdma ? 1 : 0;
    return properties;
}

/* This rank's device, and the others of this process that reach it. */
static size_t chunk_readers(const cuda_rank *rank, CUmemAccessDesc *readers)
{
    const cuda_world *world = rank->world;
    size_t count = 0;
    for (uint32_t i = 0; i < world->device_count; ++i) {
        CUdevice device = world->devices[i];
        int reaches = device == rank->device;
        if (!reaches && cu.cuDeviceCanAccessPeer(&reaches, device, rank->device) != CUDA_SUCCESS) {
            reaches = 0;
        }
        if (reaches) {
            readers[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            readers[count].location.id = device;
            readers[count].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            ++count;
        }
    }
    return count;
}

static ist_status chunk_map(const cuda_rank *rank, cuda_chunk *chunk)
{
    CUmemAccessDesc readers[CUDA_DEVICE_COUNT_MAX];
    memset(readers, 0, sizeof(readers));
    size_t reader_count = chunk_readers(rank, readers);
    CUDA_TRY(rank, cuMemAddressReserve, &chunk->base, chunk->bytes, 0, 0, 0);
    CUresult result = cu.cuMemMap(chunk->base, chunk->bytes, 0, chunk->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cu.cuMemSetAccess(chunk->base, chunk->bytes, readers, reader_count);
        if (result == CUDA_SUCCESS) {
            return IST_OK;
        }
        (void)cu.cuMemUnmap(chunk->base, chunk->bytes);
    }
    (void)cu.cuMemAddressFree(chunk->base, chunk->bytes);
    return cuda_fail(rank, result, "mapping device memory");
}

static ist_status fail_device_memory(const cuda_rank *rank, CUresult result, size_t bytes)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        return cuda_fail(rank, result, "cuMemCreate");
    }
    ist_error details = {
        .rank = (int32_t)rank->index, .peer = IST_RANK_NONE, .object = "memory", .expected = bytes};
    return ist_raise(IST_ERR_MEMORY, &details, "the device of rank %u has no %zu bytes left",
                     rank->index, bytes);
}

static ist_status chunk_make(cuda_rank *rank, cuda_chunk *chunk)
{
    CUmemAllocationProp properties = chunk_properties(rank);
    CUresult result = cu.cuMemCreate(&chunk->handle, chunk->bytes, &properties, 0);
    if (result != CUDA_SUCCESS) {
        return fail_device_memory(rank, result, chunk->bytes);
    }
    ist_status status = chunk_map(rank, chunk);
    if (status != IST_OK) {
        (void)cu.cuMemRelease(chunk->handle);
    }
    return status;
}

static void spans_free(cuda_chunk *chunk)
{
    while (chunk->spans != NULL) {
        cuda_span *span = chunk->spans;
        chunk->spans = span->next;
        ist_free(span);
    }
}

static ist_status chunk_new(cuda_rank *rank, size_t bytes, cuda_chunk **result)
{
    cuda_chunk *chunk = ist_alloc(1, sizeof(*chunk));
    cuda_span *whole = ist_alloc(1, sizeof(*whole));
    if (chunk == NULL || whole == NULL) {
        ist_free(chunk);
        ist_free(whole);
        return cuda_fail_memory(rank, "device memory");
    }
    chunk->bytes = round_up(bytes, rank->granularity);
    whole->bytes = chunk->bytes;
    chunk->spans = whole;
    chunk->refs = 1;
    chunk->owner = rank->index;
    chunk->key = (uint64_t)(rank->index + 1u) << 32 | ++rank->chunk_count;
    ist_status status = chunk_make(rank, chunk);
    if (status != IST_OK) {
        spans_free(chunk);
        ist_free(chunk);
        return status;
    }
    (void)pthread_mutex_lock(&rank->world->lock);
    chunk->next = rank->world->chunks;
    rank->world->chunks = chunk;
    (void)pthread_mutex_unlock(&rank->world->lock);
    *result = chunk;
    return IST_OK;
}

cuda_chunk *cuda_chunk_share(cuda_world *world, uint64_t key)
{
    (void)pthread_mutex_lock(&world->lock);
    cuda_chunk *chunk = world->chunks;
    while (chunk != NULL && chunk->key != key) {
        chunk = chunk->next;
    }
    if (chunk != NULL) {
        ++chunk->refs;
    }
    (void)pthread_mutex_unlock(&world->lock);
    return chunk;
}

void cuda_chunk_unref(cuda_world *world, cuda_chunk *chunk)
{
    (void)pthread_mutex_lock(&world->lock);
    bool last = --chunk->refs == 0;
    if (last) {
        cuda_chunk **link = &world->chunks;
        while (*link != chunk) {
            link = &(*link)->next;
        }
        *link = chunk->next;
    }
    (void)pthread_mutex_unlock(&world->lock);
    if (last) {
        (void)cu.cuMemUnmap(chunk->base, chunk->bytes);
        (void)cu.cuMemAddressFree(chunk->base, chunk->bytes);
        (void)cu.cuMemRelease(chunk->handle);
        spans_free(chunk);
        ist_free(chunk);
    }
}

/* ---- spans ----------------------------------------------------------------------------------- */

static cuda_span *span_fitting(const cuda_chunk *chunk, size_t bytes)
{
    cuda_span *span = chunk->spans;
    while (span != NULL && (span->used || span->bytes < bytes)) {
        span = span->next;
    }
    return span;
}

static ist_status span_take(const cuda_rank *rank, cuda_span *span, size_t bytes)
{
    if (span->bytes > bytes) {
        cuda_span *rest = ist_alloc(1, sizeof(*rest));
        if (rest == NULL) {
            return cuda_fail_memory(rank, "device memory");
        }
        *rest = (cuda_span){
            .next = span->next, .offset = span->offset + bytes, .bytes = span->bytes - bytes};
        span->next = rest;
        span->bytes = bytes;
    }
    span->used = true;
    return IST_OK;
}

static void span_merge_next(cuda_span *span)
{
    cuda_span *next = span->next;
    if (next != NULL && !next->used) {
        span->bytes += next->bytes;
        span->next = next->next;
        ist_free(next);
    }
}

/* Chunks of this rank are cut by its own thread alone; the list is shared. */
static cuda_chunk *own_chunk_fitting(cuda_rank *rank, size_t bytes, cuda_span **span)
{
    cuda_chunk *found = NULL;
    (void)pthread_mutex_lock(&rank->world->lock);
    for (cuda_chunk *chunk = rank->world->chunks; chunk != NULL && found == NULL;
         chunk = chunk->next) {
        bool usable = chunk->owner == rank->index && !chunk->alone;
        *span = usable ? span_fitting(chunk, bytes) : NULL;
        found = *span != NULL ? chunk : NULL;
    }
    (void)pthread_mutex_unlock(&rank->world->lock);
    return found;
}

static ist_status check_size(const cuda_rank *rank, size_t bytes)
{
    if (!rank->vmm) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "the device of rank %u has no virtual memory management", rank->index);
    }
    return bytes <= SIZE_MAX - rank->granularity
               ? IST_OK
               : fail_device_memory(rank, CUDA_ERROR_OUT_OF_MEMORY, bytes);
}

ist_status cuda_heap_alloc(cuda_rank *rank, size_t bytes, cuda_chunk **result, CUdeviceptr *base)
{
    IST_RETURN_IF_ERROR(check_size(rank, bytes));
    cuda_span *span = NULL;
    size_t rounded = round_up(bytes, CUDA_PAGE_BYTES);
    cuda_chunk *chunk = own_chunk_fitting(rank, rounded, &span);
    if (chunk == NULL) {
        IST_RETURN_IF_ERROR(chunk_new(rank, rounded, &chunk));
        span = chunk->spans;
    }
    ist_status status = span_take(rank, span, rounded);
    if (status != IST_OK) {
        cuda_heap_free(rank, chunk, chunk->base + span->offset);
        return status;
    }
    *result = chunk;
    *base = chunk->base + span->offset;
    return IST_OK;
}

ist_status cuda_heap_alloc_alone(cuda_rank *rank, size_t bytes, cuda_chunk **result,
                                 CUdeviceptr *base)
{
    IST_RETURN_IF_ERROR(check_size(rank, bytes));
    cuda_chunk *chunk = NULL;
    IST_RETURN_IF_ERROR(chunk_new(rank, bytes, &chunk));
    chunk->alone = true;
    chunk->spans->used = true;
    *result = chunk;
    *base = chunk->base;
    return IST_OK;
}

static bool all_free(const cuda_chunk *chunk)
{
    return !chunk->spans->used && chunk->spans->next == NULL;
}

void cuda_heap_free(cuda_rank *rank, cuda_chunk *chunk, CUdeviceptr base)
{
    size_t offset = (size_t)(base - chunk->base);
    cuda_span *before = NULL;
    cuda_span *span = chunk->spans;
    while (span != NULL && span->offset != offset) {
        before = span;
        span = span->next;
    }
    if (span == NULL) {
        return;
    }
    span->used = false;
    span_merge_next(span);
    if (before != NULL && !before->used) {
        span_merge_next(before);
    }
    if (all_free(chunk)) {
        chunk->owner = UINT32_MAX; /* peers may still use it; nothing is cut from it again */
        cuda_chunk_unref(rank->world, chunk);
    }
}

void cuda_heap_close(cuda_rank *rank)
{
    cuda_world *world = rank->world;
    for (;;) {
        (void)pthread_mutex_lock(&world->lock);
        cuda_chunk *chunk = world->chunks;
        while (chunk != NULL && chunk->owner != rank->index) {
            chunk = chunk->next;
        }
        if (chunk != NULL) {
            chunk->owner = UINT32_MAX;
        }
        (void)pthread_mutex_unlock(&world->lock);
        if (chunk == NULL) {
            return;
        }
        cuda_chunk_unref(world, chunk);
    }
}
