/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory. The driver takes a millisecond to make some, and frees none before every kernel
 * on the device has ended, which a peer may be waiting for this rank to get beyond. So it is made in
 * slabs, cut into powers of two, and what is given back is kept for the next who asks.
 */
#include "cuda_internal.h"

#define PIECE_BYTES_MIN ((size_t)4096)
/* Larger pieces are slabs of their own. */
#define CUT_BYTES_MAX ((size_t)256 << 10)
#define SLAB_BYTES ((size_t)2 << 20)

struct cuda_slab {
    struct cuda_slab *next;
    uint8_t *raw;  /* what the driver gave */
    uint8_t *host; /* aligned */
    size_t bytes;
    size_t cut; /* bytes that are pieces by now */
};

/* Its node lives as long as its slab, so that giving back cannot fail. */
struct cuda_pinned {
    struct cuda_pinned *next;
    struct cuda_slab *slab;
    void *host;
    size_t bytes;
    bool used;
};

void *cuda_pinned_host(const cuda_pinned *piece)
{
    return piece->host;
}

static size_t piece_class(size_t bytes)
{
    size_t rounded = PIECE_BYTES_MIN;
    while (rounded < bytes && rounded <= SIZE_MAX / 2u) {
        rounded *= 2u;
    }
    return rounded;
}

static ist_status slab_memory(const cuda_rank *rank, cuda_slab *slab)
{
    void *host = NULL;
    CUdeviceptr device = 0;
    /* The driver's alignment is not promised to be that of ist_mem_alloc(). */
    size_t room = slab->bytes + IST_WINDOW_ALIGNMENT;
    if (room < slab->bytes) {
        return ist_raise(IST_ERR_MEMORY, NULL, "rank %u asks for %zu bytes of host memory",
                         rank->index, slab->bytes);
    }
    CUDA_TRY(rank, cuMemHostAlloc, &host, room,
             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    CUresult result = cu.cuMemHostGetDevicePointer(&device, host, 0);
    if (result != CUDA_SUCCESS || device != (CUdeviceptr)(uintptr_t)host) {
        (void)cu.cuMemFreeHost(host);
        return result != CUDA_SUCCESS
                   ? cuda_fail(rank, result, "cuMemHostGetDevicePointer")
                   : ist_raise(IST_ERR_UNSUPPORTED, NULL,
                               "host memory of rank %u has another address on the device",
                               rank->index);
    }
    slab->raw = host;
    size_t off = (uintptr_t)host % IST_WINDOW_ALIGNMENT;
    slab->host = slab->raw + (off == 0 ? 0 : IST_WINDOW_ALIGNMENT - off);
    return IST_OK;
}

static ist_status slab_new(cuda_rank *rank, size_t bytes, cuda_slab **result)
{
    cuda_slab *slab = ist_alloc(1, sizeof(*slab));
    if (slab == NULL) {
        return cuda_fail_memory(rank, "pinned memory");
    }
    slab->bytes = bytes;
    ist_status status = slab_memory(rank, slab);
    if (status != IST_OK) {
        ist_free(slab);
        return status;
    }
    slab->next = rank->slabs;
    rank->slabs = slab;
    rank->pinned_bytes += bytes;
    *result = slab;
    return IST_OK;
}

static cuda_slab *slab_with_room(const cuda_rank *rank, size_t bytes)
{
    cuda_slab *slab = bytes <= CUT_BYTES_MAX ? rank->slabs : NULL;
    while (slab != NULL && slab->bytes - slab->cut < bytes) {
        slab = slab->next;
    }
    return slab;
}

static ist_status piece_new(cuda_rank *rank, size_t bytes, cuda_pinned **result)
{
    cuda_slab *slab = slab_with_room(rank, bytes);
    cuda_pinned *piece = ist_alloc(1, sizeof(*piece));
    if (piece == NULL) {
        return cuda_fail_memory(rank, "pinned memory");
    }
    if (slab == NULL) {
        ist_status status = slab_new(rank, bytes <= CUT_BYTES_MAX ? SLAB_BYTES : bytes, &slab);
        if (status != IST_OK) {
            ist_free(piece);
            return status;
        }
    }
    *piece = (cuda_pinned){
        .next = rank->pinned, .slab = slab, .host = slab->host + slab->cut, .bytes = bytes};
    slab->cut += bytes;
    rank->pinned = piece;
    *result = piece;
    return IST_OK;
}

ist_status cuda_pinned_take(cuda_rank *rank, size_t bytes, cuda_pinned **result)
{
    size_t rounded = piece_class(bytes);
    ist_status status = IST_OK;
    (void)pthread_mutex_lock(&rank->pinned_lock);
    cuda_pinned *piece = rank->pinned;
    while (piece != NULL && (piece->used || piece->bytes != rounded)) {
        piece = piece->next;
    }
    if (piece == NULL) {
        status = piece_new(rank, rounded, &piece);
    }
    if (status == IST_OK) {
        piece->used = true;
        *result = piece;
    }
    (void)pthread_mutex_unlock(&rank->pinned_lock);
    return status;
}

void cuda_pinned_give(cuda_rank *rank, cuda_pinned *piece)
{
    (void)pthread_mutex_lock(&rank->pinned_lock);
    piece->used = false;
    (void)pthread_mutex_unlock(&rank->pinned_lock);
}

static void slab_free(cuda_rank *rank, cuda_slab *slab)
{
    cuda_slab **link = &rank->slabs;
    while (*link != slab) {
        link = &(*link)->next;
    }
    *link = slab->next;
    rank->pinned_bytes -= slab->bytes;
    (void)cu.cuMemFreeHost(slab->raw);
    ist_free(slab);
}

void cuda_pinned_trim(cuda_rank *rank)
{
    (void)pthread_mutex_lock(&rank->pinned_lock);
    cuda_pinned **link = &rank->pinned;
    while (*link != NULL) {
        cuda_pinned *piece = *link;
        if (piece->used || piece->bytes <= CUT_BYTES_MAX) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        slab_free(rank, piece->slab);
        ist_free(piece);
    }
    (void)pthread_mutex_unlock(&rank->pinned_lock);
}

void cuda_pinned_close(cuda_rank *rank)
{
    while (rank->pinned != NULL) {
        cuda_pinned *piece = rank->pinned;
        rank->pinned = piece->next;
        ist_free(piece);
    }
    while (rank->slabs != NULL) {
        slab_free(rank, rank->slabs);
    }
}
