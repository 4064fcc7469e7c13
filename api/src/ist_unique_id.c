/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of communicators: made by the backend for programs, derived here for the whole world and
 * for splits, equal on all members without any message.
 */
#include "ist_internal.h"

#include <string.h>
#include <xxhash.h>

#define BODY_BYTES 120u
#define MARK 0x49535455u /* "ISTU" */

_Static_assert(sizeof(ist_unique_id) == BODY_BYTES + 2 * sizeof(uint32_t), "mark and checksum fit");

static uint32_t checksum(const ist_unique_id *id)
{
    return XXH32(id->bytes, BODY_BYTES, MARK);
}

void ist_unique_id_seal(ist_unique_id *id)
{
    uint32_t seal[2] = {MARK, checksum(id)};
    memcpy(id->bytes + BODY_BYTES, seal, sizeof(seal));
}

bool ist_unique_id_valid(const ist_unique_id *id)
{
    uint32_t seal[2];
    memcpy(seal, id->bytes + BODY_BYTES, sizeof(seal));
    return seal[0] == MARK && seal[1] == checksum(id);
}

/* What derived ids are made of; all bytes defined. */
typedef struct derived {
    char kind[8];
    uint64_t number;
    uint64_t parent[2];
    int64_t color;
} derived;

static void seal_derived(const derived *from, ist_unique_id *id)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->bytes, from, sizeof(*from));
    ist_unique_id_seal(id);
}

void ist_unique_id_of_world(uint64_t number, ist_unique_id *id)
{
    derived from = {.kind = "world", .number = number};
    seal_derived(&from, id);
}

void ist_unique_id_of_split(const ist_unique_id *parent, uint64_t number, int32_t color,
                            ist_unique_id *id)
{
    XXH128_hash_t digest = XXH3_128bits(parent->bytes, sizeof(parent->bytes));
    derived from = {
        .kind = "split", .number = number, .parent = {digest.low64, digest.high64}, .color = color};
    seal_derived(&from, id);
}

ist_status ist_unique_id_create(ist_world *world, ist_unique_id *id)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "unique_id.create"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, id, "id", "unique_id.create"));
    ist_unique_id created = {{0}};
    IST_RETURN_IF_ERROR(world->ops.id_create(world->self, created.bytes));
    ist_unique_id_seal(&created);
    *id = created;
    return IST_OK;
}
