/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is given piece by piece and freed at once.
 */
#ifndef TOPO_ARENA_H
#define TOPO_ARENA_H

#include <stddef.h>

typedef struct topo_chunk topo_chunk;

/* Zero-initialised: empty. */
typedef struct topo_arena {
    topo_chunk *chunks; /* newest first */
} topo_arena;

/* Zeroed memory aligned for pointers and 64-bit numbers, or NULL. */
void *topo_arena_take(topo_arena *arena, size_t bytes);

/* A copy of `length` characters, with a NUL behind; or NULL. */
char *topo_arena_copy(topo_arena *arena, const char *text, size_t length);

void topo_arena_free(topo_arena *arena);

#endif
