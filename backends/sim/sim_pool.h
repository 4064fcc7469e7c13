/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of equal objects that live at most as long as a world: taking and giving back is a pointer
 * move, and the world's end frees all, also those that were still under way.
 */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_pool {
    size_t object_bytes;  /* multiple of 16 */
    uint32_t chunk_count; /* objects a chunk */
    void *free;           /* linked through the first word of each */
    void *chunks;
} sim_pool;

void sim_pool_init(sim_pool *pool, size_t object_bytes, uint32_t chunk_count);

/* Frees all objects; `drop` (may be NULL) is called on each one ever taken, free or not. */
void sim_pool_fini(sim_pool *pool, void (*drop)(void *object));

/* An object whose first `zero_bytes` are zero; NULL when memory is out. */
void *sim_pool_take(sim_pool *pool, size_t zero_bytes);

void sim_pool_give(sim_pool *pool, void *object);

/* memset(0) that the compiler does not know the size of: for some hundred bytes it would write one
   instruction that is slow to begin. */
void sim_clear(void *memory, size_t bytes);

#endif
