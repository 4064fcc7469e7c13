/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of a rank: exportable device memory, or pinned host memory where only the host must
 * see it at once. Device memory that is host-visible too is read by a copy on the rank's own
 * stream, which no kernel holds up.
 */
#include "cuda_internal.h"

#include <string.h>

/* ---- the table of allocations, by address ---------------------------------------------------- */

/* What the calling thread has found since any allocation changed: a call checks the same buffers again
 * and again, and takes no lock for it. */
#define RECENT_COUNT 4u

static atomic_uint_fast64_t generation = 1;
static _Thread_local struct {
    const cuda_rank *rank;
    uint64_t generation;
    uint32_t next;
    cuda_allocation each[RECENT_COUNT];
} recent __attribute__((tls_model("initial-exec")));

static inline bool holds(const cuda_allocation *allocation, uintptr_t address, size_t bytes)
{
    size_t offset = (size_t)(address - allocation->base);
    return offset < allocation->bytes ? bytes <= allocation->bytes - offset
                                      : offset == allocation->bytes && bytes == 0;
}

static inline const cuda_allocation *find_recent(const cuda_rank *rank, uintptr_t address,
                                                 size_t bytes)
{
    if (recent.rank != rank || bytes == 0 ||
        recent.generation != atomic_load_explicit(&generation, memory_order_acquire)) {
        return NULL;
    }
    for (uint32_t i = 0; i < RECENT_COUNT; ++i) {
        if (holds(&recent.each[i], address, bytes)) {
            return &recent.each[i];
        }
    }
    return NULL;
}

static void note_recent(const cuda_rank *rank, uint64_t now, const cuda_allocation *found)
{
    if (recent.rank != rank || recent.generation != now) {
        memset(&recent, 0, sizeof(recent));
        recent.rank = rank;
        recent.generation = now;
    }
    recent.each[recent.next++ % RECENT_COUNT] = *found;
}

/* First allocation behind `address`; the one before it may hold it. Lock held. */
static uint32_t table_upper(const cuda_rank *rank, uintptr_t address)
{
    uint32_t low = 0;
    uint32_t high = rank->allocation_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2u;
        if (rank->allocations[middle].base <= address) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

static ist_status table_room(cuda_rank *rank)
{
    if (rank->allocation_count < rank->allocation_room) {
        return IST_OK;
    }
    uint32_t room = rank->allocation_room == 0 ? 64 : rank->allocation_room * 2u;
    cuda_allocation *grown = ist_alloc(room, sizeof(*grown));
    if (grown == NULL) {
        return cuda_fail_memory(rank, "the table of allocations");
    }
    if (rank->allocation_count > 0) {
        memcpy(grown, rank->allocations, rank->allocation_count * sizeof(*grown));
    }
    ist_free(rank->allocations);
    rank->allocations = grown;
    rank->allocation_room = room;
    return IST_OK;
}

static ist_status table_add(cuda_rank *rank, const cuda_allocation *allocation)
{
    (void)pthread_mutex_lock(&rank->memory_lock);
    ist_status status = table_room(rank);
    if (status == IST_OK) {
        uint32_t at = table_upper(rank, allocation->base);
        memmove(rank->allocations + at + 1, rank->allocations + at,
                (rank->allocation_count - at) * sizeof(*allocation));
        rank->allocations[at] = *allocation;
        ++rank->allocation_count;
        (void)atomic_fetch_add(&generation, 1);
    }
    (void)pthread_mutex_unlock(&rank->memory_lock);
    return status;
}

static bool table_remove(cuda_rank *rank, uintptr_t base, cuda_allocation *removed)
{
    (void)pthread_mutex_lock(&rank->memory_lock);
    uint32_t at = table_upper(rank, base);
    bool found = at > 0 && rank->allocations[at - 1].base == base;
    if (found) {
        *removed = rank->allocations[at - 1];
        memmove(rank->allocations + at - 1, rank->allocations + at,
                (rank->allocation_count - at) * sizeof(*removed));
        --rank->allocation_count;
        (void)atomic_fetch_add(&generation, 1);
    }
    (void)pthread_mutex_unlock(&rank->memory_lock);
    return found;
}

bool cuda_memory_find(cuda_rank *rank, const void *mem, size_t bytes, cuda_allocation *found)
{
    uintptr_t address = (uintptr_t)mem;
    const cuda_allocation *known = find_recent(rank, address, bytes);
    if (known != NULL) {
        *found = *known;
        return true;
    }
    (void)pthread_mutex_lock(&rank->memory_lock);
    const uint64_t now = atomic_load(&generation);
    uint32_t at = table_upper(rank, address);
    bool inside = false;
    if (at > 0) {
        *found = rank->allocations[at - 1];
        inside = holds(found, address, bytes);
    }
    (void)pthread_mutex_unlock(&rank->memory_lock);
    if (inside) {
        note_recent(rank, now, found);
    }
    return inside;
}

/* ---- allocating ------------------------------------------------------------------------------ */

static ist_status pinned_alloc(cuda_rank *rank, size_t bytes, cuda_allocation *allocation)
{
    IST_RETURN_IF_ERROR(cuda_pinned_take(rank, bytes, &allocation->pinned));
    allocation->base = (uintptr_t)cuda_pinned_host(allocation->pinned);
    return IST_OK;
}

static ist_status device_alloc(cuda_rank *rank, size_t bytes, cuda_allocation *allocation)
{
    CUdeviceptr base = 0;
    IST_RETURN_IF_ERROR(cuda_heap_alloc(rank, bytes, &allocation->chunk, &base));
    allocation->base = (uintptr_t)base;
    return IST_OK;
}

static void release(cuda_rank *rank, const cuda_allocation *allocation)
{
    if (allocation->pinned != NULL) {
        cuda_pinned_give(rank, allocation->pinned);
    } else {
        cuda_heap_free(rank, allocation->chunk, (CUdeviceptr)allocation->base);
    }
}

static ist_status alloc_entered(cuda_rank *rank, size_t bytes, uint32_t flags, void **mem)
{
    cuda_allocation allocation = {.bytes = bytes, .flags = flags};
    bool pinned = flags == IST_MEM_HOST_VISIBLE;
    IST_RETURN_IF_ERROR(pinned ? pinned_alloc(rank, bytes, &allocation)
                               : device_alloc(rank, bytes, &allocation));
    ist_status status = table_add(rank, &allocation);
    if (status != IST_OK) {
        release(rank, &allocation);
        return status;
    }
    *mem = (void *)allocation.base;
    return IST_OK;
}

ist_status cuda_mem_alloc(void *self, size_t bytes, uint32_t flags, void **mem)
{
    cuda_rank *rank = self;
    bool entered = cuda_enter(rank);
    ist_status status = alloc_entered(rank, bytes, flags, mem);
    cuda_exit(entered);
    return status;
}

ist_status cuda_mem_free(void *self, void *mem)
{
    cuda_rank *rank = self;
    cuda_allocation allocation;
    if (!table_remove(rank, (uintptr_t)mem, &allocation)) {
        ist_error details = {.rank = (int32_t)rank->index,
                             .peer = IST_RANK_NONE,
                             .object = "mem",
                             .operation = "mem.free"};
        return ist_raise(IST_ERR_ARGUMENT, &details,
                         "rank %u frees an address that is not the start of an allocation",
                         rank->index);
    }
    bool entered = cuda_enter(rank);
    release(rank, &allocation);
    cuda_exit(entered);
    return IST_OK;
}

ist_status cuda_mem_query(void *self, const void *mem, size_t bytes, uint32_t *flags)
{
    cuda_allocation found;
    const cuda_allocation *known = find_recent(self, (uintptr_t)mem, bytes);
    if (known != NULL) {
        *flags = known->flags;
        return IST_OK;
    }
    if (!cuda_memory_find(self, mem, bytes, &found)) {
        return IST_ERR_ARGUMENT; /* the front knows which argument it was */
    }
    *flags = found.flags;
    return IST_OK;
}

/* ---- host access ----------------------------------------------------------------------------- */

/* Device code reads and writes the same words meanwhile: whole words, none twice. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        uint64_t word = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        __atomic_store_n(&to[i], word, __ATOMIC_RELAXED);
    }
}

/* memcpy with whole words where both ends allow it. */
static void copy_shared(void *to, const void *from, size_t bytes)
{
    if (((uintptr_t)to | (uintptr_t)from) % sizeof(uint64_t) != 0) {
        memcpy(to, from, bytes);
        return;
    }
    size_t words = bytes / sizeof(uint64_t);
    copy_words(to, from, words);
    memcpy((uint8_t *)to + words * sizeof(uint64_t),
           (const uint8_t *)from + words * sizeof(uint64_t), bytes % sizeof(uint64_t));
}

static ist_status copy_through_stream(cuda_rank *rank, const void *mem, void *host, size_t bytes,
                                      bool to_device)
{
    bool entered = cuda_enter(rank);
    ist_status status = cuda_copy_now(rank, (CUdeviceptr)(uintptr_t)mem, host, bytes, to_device);
    cuda_exit(entered);
    return status;
}

/* A word near the host, such as a communicator's alarm, is read before every call that it could stop. */
ist_status cuda_mem_peek(void *self, const void *mem, void *host, size_t bytes)
{
    cuda_allocation found;
    const cuda_allocation *known = find_recent(self, (uintptr_t)mem, bytes);
    if (known != NULL && known->pinned != NULL && bytes == sizeof(uint64_t) &&
        ((uintptr_t)mem | (uintptr_t)host) % sizeof(uint64_t) == 0) {
        *(uint64_t *)host = __atomic_load_n((const uint64_t *)mem, __ATOMIC_ACQUIRE);
        return IST_OK;
    }
    if (cuda_memory_find(self, mem, bytes, &found) && found.pinned == NULL) {
        return copy_through_stream(self, mem, host, bytes, false);
    }
    copy_shared(host, mem, bytes);
    atomic_thread_fence(memory_order_acquire);
    return IST_OK;
}

ist_status cuda_mem_poke(void *self, void *mem, const void *host, size_t bytes)
{
    cuda_allocation found;
    if (cuda_memory_find(self, mem, bytes, &found) && found.pinned == NULL) {
        void *bytes_from = NULL;
        memcpy(&bytes_from, &host, sizeof(bytes_from)); /* only read */
        return copy_through_stream(self, mem, bytes_from, bytes, true);
    }
    atomic_thread_fence(memory_order_release);
    copy_shared(mem, host, bytes);
    return IST_OK;
}

/* The memory itself goes with its chunks and slabs. */
void cuda_memory_close(cuda_rank *rank)
{
    ist_free(rank->allocations);
    rank->allocations = NULL;
    rank->allocation_count = 0;
    (void)atomic_fetch_add(&generation, 1);
}
