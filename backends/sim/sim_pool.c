/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object pools; see sim_pool.h.
 */
#include "sim_pool.h"

#include <isthmus/backend.h>
#include <string.h>

typedef struct sim_pool_chunk {
    struct sim_pool_chunk *next;
    uint64_t pad; /* objects start 16-byte aligned */
} sim_pool_chunk;

void sim_pool_init(sim_pool *pool, size_t object_bytes, uint32_t chunk_count)
{
    pool->object_bytes = (object_bytes + 15u) & ~(size_t)15u;
    pool->chunk_count = chunk_count;
    pool->free = NULL;
    pool->chunks = NULL;
}

static void *sim_pool_object(const sim_pool *pool, sim_pool_chunk *chunk, uint32_t index)
{
    return (uint8_t *)(chunk + 1) + (size_t)index * pool->object_bytes;
}

void sim_pool_fini(sim_pool *pool, void (*drop)(void *object))
{
    sim_pool_chunk *chunk = pool->chunks;
    while (chunk != NULL) {
        sim_pool_chunk *next = chunk->next;
        for (uint32_t i = 0; drop != NULL && i < pool->chunk_count; ++i) {
            drop(sim_pool_object(pool, chunk, i));
        }
        ist_free(chunk);
        chunk = next;
    }
    pool->chunks = NULL;
    pool->free = NULL;
}

void sim_pool_give(sim_pool *pool, void *object)
{
    memcpy(object, &pool->free, sizeof(pool->free));
    pool->free = object;
}

static int sim_pool_grow(sim_pool *pool)
{
    size_t bytes = sizeof(sim_pool_chunk) + (size_t)pool->chunk_count * pool->object_bytes;
    sim_pool_chunk *chunk = ist_alloc(1, bytes);
    if (chunk == NULL) {
        return 0;
    }
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    for (uint32_t i = pool->chunk_count; i-- > 0;) {
        sim_pool_give(pool, sim_pool_object(pool, chunk, i));
    }
    return 1;
}

void sim_clear(void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
}

void *sim_pool_take(sim_pool *pool, size_t zero_bytes)
{
    if (pool->free == NULL && !sim_pool_grow(pool)) {
        return NULL;
    }
    void *object = pool->free;
    memcpy(&pool->free, object, sizeof(pool->free));
    memset(object, 0, zero_bytes);
    return object;
}
