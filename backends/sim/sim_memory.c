/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: one stretch of address space a rank, backed when touched. Addresses differ
 * between machines, offsets do not, and only offsets decide anything.
 */
#include "sim_explore.h"

#include <string.h>
#include <sys/mman.h>

#define SIM_PAGE 4096ull
/* Above this a reset gives pages back instead of clearing them. */
#define SIM_CLEAR_MAX (256ull << 10)
/* Allocations that are looked through one by one. */
#define SIM_FEW 16u
#define SIM_STRIDE_LOG2_MAX 36
#define SIM_STRIDE_LOG2_MIN 26

/* A thread keeps its last arena, so that a world that follows another maps nothing. */
typedef struct sim_arena {
    uint8_t *base;
    uint64_t stride;
    uint64_t bytes;
} sim_arena;

static _Thread_local sim_arena sim_arena_kept;

static uint64_t sim_page_up(uint64_t bytes)
{
    return (bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
}

static bool sim_arena_map(sim_arena *arena, uint32_t rank_count)
{
    for (uint32_t log2 = SIM_STRIDE_LOG2_MAX; log2 >= SIM_STRIDE_LOG2_MIN; log2 -= 2) {
        uint64_t stride = 1ull << log2;
        uint64_t bytes = stride * rank_count;
        if (bytes / stride != rank_count) {
            continue;
        }
        void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map != MAP_FAILED) {
            /* Huge pages would back the gaps of sparse tensors. */
            (void)madvise(map, bytes, MADV_NOHUGEPAGE);
            *arena = (sim_arena){map, stride, bytes};
            return true;
        }
    }
    return false;
}

ist_status sim_arena_open(sim_world *world)
{
    sim_arena arena = sim_arena_kept;
    sim_arena_kept = (sim_arena){NULL, 0, 0};
    if (arena.base == NULL || arena.bytes / arena.stride < world->rank_count) {
        if (arena.base != NULL) {
            (void)munmap(arena.base, arena.bytes);
        }
        if (!sim_arena_map(&arena, world->rank_count)) {
            return ist_raise(IST_ERR_MEMORY, NULL,
                             "no address space for the device memory of %u ranks",
                             world->rank_count);
        }
    }
    world->arena_base = arena.base;
    world->rank_stride = arena.stride;
    world->rank_shift = (uint32_t)__builtin_ctzll(arena.stride); /* strides are powers of two */
    world->arena_bytes = arena.stride * world->rank_count;
    world->arena_mapped = arena.bytes;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_memory *memory = &world->ranks[i].memory;
        memory->base = arena.base + (uint64_t)i * arena.stride;
        memory->capacity = arena.stride;
        memory->limit = world->cluster.memory_bytes;
    }
    return IST_OK;
}

/* Untouched memory reads as zero, as it would in a fresh arena. */
static void sim_memory_reset(uint8_t *base, uint64_t offset, uint64_t bytes)
{
    if (bytes <= SIM_CLEAR_MAX || madvise(base + offset, bytes, MADV_DONTNEED) != 0) {
        memset(base + offset, 0, bytes);
    }
}

/* Whether somebody may have written to what was freed, and cleared then: a block that ran on. Device
   calls there are noticed while exploring; then only the rank's own blocks, which might write without
   them, are in doubt. */
static bool sim_memory_stray(const sim_world *world, const sim_rank *rank)
{
    const sim_memory *memory = &rank->memory;
    if (memory->freed_at == 0) {
        return false;
    }
    if (world->explore != NULL && sim_shadow_is_complete(world->explore)) {
        return memory->stray || memory->freed_own_at != rank->blocks_retired + 1u;
    }
    return memory->freed_at != world->blocks_retired + 1u;
}

/* What was freed is clean, unless the next world would find what was written there since. */
static void sim_memory_clean(const sim_world *world, const sim_rank *rank)
{
    const sim_memory *memory = &rank->memory;
    if (sim_memory_stray(world, rank)) {
        sim_memory_reset(memory->base, 0, memory->high);
        return;
    }
    for (uint32_t k = 0; k < memory->count; ++k) {
        sim_memory_reset(memory->base, memory->table[k].offset,
                         sim_page_up(memory->table[k].bytes));
    }
}

void sim_arena_close(sim_world *world)
{
    if (world->arena_base == NULL) {
        return;
    }
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_memory_clean(world, &world->ranks[i]);
        ist_free(world->ranks[i].memory.table);
    }
    if (sim_arena_kept.base != NULL) {
        (void)munmap(sim_arena_kept.base, sim_arena_kept.bytes);
    }
    sim_arena_kept = (sim_arena){world->arena_base, world->rank_stride, world->arena_mapped};
    world->arena_base = NULL;
}

/* Index of the first allocation at or after an offset. */
static uint32_t sim_memory_lower(const sim_memory *memory, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = memory->count;
    if (high <= SIM_FEW) { /* counting is cheaper than branches that nobody can predict */
        for (uint32_t i = 0; i < high; ++i) {
            low += memory->table[i].offset < offset;
        }
        return low;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memory->table[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static ist_status sim_memory_room(sim_memory *memory)
{
    if (memory->count < memory->room) {
        return IST_OK;
    }
    uint32_t room = memory->room == 0 ? 32 : memory->room * 2;
    sim_allocation *table = ist_alloc(room, sizeof(*table));
    if (table == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a table of %u allocations", room);
    }
    if (memory->count > 0) {
        memcpy(table, memory->table, memory->count * sizeof(*table));
    }
    ist_free(memory->table);
    memory->table = table;
    memory->room = room;
    return IST_OK;
}

/* First gap that holds `bytes`, lowest offset first. Offset 0 is left out: NULL stays special. */
static bool sim_memory_gap(const sim_memory *memory, uint64_t bytes, uint64_t *offset,
                           uint32_t *index)
{
    if (memory->count > 0) {
        const sim_allocation *last = &memory->table[memory->count - 1];
        uint64_t end = sim_page_up(last->offset + last->bytes);
        /* Most programs only grow: look behind the last first, when nothing was freed before it. */
        if (memory->packed) {
            *offset = end;
            *index = memory->count;
            return end <= memory->capacity && bytes <= memory->capacity - end;
        }
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i <= memory->count; ++i) {
        uint64_t end = i < memory->count ? memory->table[i].offset : memory->capacity;
        if (end >= at && end - at >= bytes) {
            *offset = at;
            *index = i;
            return true;
        }
        if (i < memory->count) {
            at = sim_page_up(memory->table[i].offset + memory->table[i].bytes);
        }
    }
    return false;
}

static ist_status sim_memory_refuse(const sim_rank *rank, size_t bytes, bool planned)
{
    const sim_memory *memory = &rank->memory;
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "bytes",
                         .operation = "mem.alloc",
                         .observed = bytes,
                         .expected = memory->limit - memory->used};
    if (planned) {
        sim_event_log(rank->world, IST_SIM_FAULT, rank, -1, IST_FAULT_ALLOC, bytes);
        return ist_raise(IST_ERR_MEMORY, &details,
                         "the fault plan fails this allocation of %zu bytes on rank %u", bytes,
                         rank->index);
    }
    return ist_raise(IST_ERR_MEMORY, &details,
                     "rank %u asks for %zu bytes of device memory, %llu of %llu are free",
                     rank->index, bytes, (unsigned long long)(memory->limit - memory->used),
                     (unsigned long long)memory->limit);
}

ist_status sim_memory_alloc(sim_rank *rank, size_t bytes, uint32_t flags, void **mem)
{
    sim_memory *memory = &rank->memory;
    uint64_t rounded = sim_page_up(bytes);
    uint64_t offset = 0;
    uint32_t index = 0;
    bool planned = sim_fault_on_alloc(rank->world->faults, rank->index);
    if (planned || rounded < bytes || rounded > memory->limit - memory->used ||
        !sim_memory_gap(memory, rounded, &offset, &index)) {
        return sim_memory_refuse(rank, bytes, planned);
    }
    IST_RETURN_IF_ERROR(sim_memory_room(memory));
    memmove(&memory->table[index + 1], &memory->table[index],
            (memory->count - index) * sizeof(*memory->table));
    memory->table[index] = (sim_allocation){.offset = offset, .bytes = bytes, .flags = flags};
    if (memory->count++ == 0) {
        memory->packed = offset == 0;
    }
    memory->used += rounded;
    memory->high = offset + rounded > memory->high ? offset + rounded : memory->high;
    *mem = memory->base + offset;
    return IST_OK;
}

/* `allocation`: the one that starts there, or NULL. */
static ist_status sim_free_refuse(const sim_rank *rank, const sim_allocation *allocation)
{
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "mem",
                         .operation = "mem.free"};
    if (allocation == NULL) {
        return ist_raise(IST_ERR_ARGUMENT, &details,
                         "rank %u frees an address that is not the start of an allocation",
                         rank->index);
    }
    details.observed = allocation->windows;
    return ist_raise(IST_ERR_USAGE, &details, "rank %u frees memory with %u open windows in it",
                     rank->index, allocation->windows);
}

ist_status sim_memory_free(sim_rank *rank, void *mem)
{
    sim_memory *memory = &rank->memory;
    uint64_t offset = (uint64_t)((uint8_t *)mem - memory->base);
    uint32_t index = sim_memory_lower(memory, offset);
    if (index == memory->count || memory->table[index].offset != offset) {
        return sim_free_refuse(rank, NULL);
    }
    sim_allocation *allocation = &memory->table[index];
    if (allocation->windows > 0) {
        return sim_free_refuse(rank, allocation);
    }
    uint64_t rounded = sim_page_up(allocation->bytes);
    /* The next owner must not find what the last one left: contents would depend on history. */
    sim_memory_reset(memory->base, offset, rounded);
    if (rank->world->explore != NULL) {
        sim_shadow_freed(rank, offset, rounded);
    }
    if (memory->freed_at == 0) {
        memory->freed_at = rank->world->blocks_retired + 1u;
        memory->freed_own_at = rank->blocks_retired + 1u;
    }
    memory->used -= rounded;
    if (index + 1 < memory->count) {
        memory->packed = false;
    }
    memmove(allocation, allocation + 1, (memory->count - index - 1) * sizeof(*allocation));
    --memory->count;
    if (memory->count == 0) {
        memory->packed = true;
    }
    return IST_OK;
}

sim_allocation *sim_memory_find(sim_rank *rank, const void *mem, size_t bytes)
{
    sim_memory *memory = &rank->memory;
    const uint8_t *address = mem;
    if (address < memory->base || address >= memory->base + memory->capacity) {
        return NULL;
    }
    uint64_t offset = (uint64_t)(address - memory->base);
    uint32_t index = sim_memory_lower(memory, offset + 1);
    if (index == 0) {
        return NULL;
    }
    sim_allocation *allocation = &memory->table[index - 1];
    uint64_t inside = offset - allocation->offset;
    if (inside > allocation->bytes || bytes > allocation->bytes - inside) {
        return NULL;
    }
    return allocation;
}
