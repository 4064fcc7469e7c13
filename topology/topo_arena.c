/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of memory, handed out from front to back.
 */
#include "topo_arena.h"

#include <isthmus/backend.h>
#include <string.h>

#define CHUNK_FIRST 4096u /* small files are many; each chunk is twice the last, up to */
#define CHUNK_LAST ((size_t)1 << 20)
#define ALIGNMENT sizeof(uint64_t)

struct topo_chunk {
    topo_chunk *next;
    size_t used;
    size_t room;
    uint64_t bytes[];
};

void *topo_arena_take(topo_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (arena->chunks == NULL || arena->chunks->room - arena->chunks->used < whole) {
        size_t room = arena->chunks == NULL ? CHUNK_FIRST : 2 * arena->chunks->room;
        room = room > CHUNK_LAST ? CHUNK_LAST : room;
        room = whole > room ? whole : room;
        topo_chunk *chunk = ist_alloc(1, sizeof(*chunk) + room);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = arena->chunks;
        chunk->room = room;
        arena->chunks = chunk;
    }
    char *place = (char *)arena->chunks->bytes + arena->chunks->used;
    arena->chunks->used += whole;
    return place;
}

char *topo_arena_copy(topo_arena *arena, const char *text, size_t length)
{
    char *copy = topo_arena_take(arena, length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

void topo_arena_free(topo_arena *arena)
{
    while (arena->chunks != NULL) {
        topo_chunk *next = arena->chunks->next;
        ist_free(arena->chunks);
        arena->chunks = next;
    }
}
