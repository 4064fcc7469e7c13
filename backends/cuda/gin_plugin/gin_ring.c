/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records between two ranks; see gin_ring.h. The producer publishes with a release that the consumer
 * acquires, and the other way round for the room.
 */
#include "gin_ring.h"

#include <string.h>

static uint64_t round_line(uint64_t bytes)
{
    return (bytes + GIN_RING_LINE - 1u) & ~(uint64_t)(GIN_RING_LINE - 1);
}

void gin_ring_open(gin_ring *ring, void *memory, uint64_t bytes)
{
    *ring = (gin_ring){
        .control = memory, .data = (uint8_t *)memory + GIN_RING_CONTROL_BYTES, .bytes = bytes};
}

uint64_t gin_ring_payload_max(const gin_ring *ring)
{
    return ring->bytes / 4u;
}

static gin_record *record_at(const gin_ring *ring, uint64_t position)
{
    return (gin_record *)(void *)(ring->data + position % ring->bytes);
}

gin_record *gin_ring_reserve(gin_ring *ring, uint64_t payload)
{
    uint64_t need = GIN_RING_LINE + round_line(payload);
    uint64_t to_end = ring->bytes - ring->at % ring->bytes;
    uint64_t skip = need > to_end ? to_end : 0;
    uint64_t head = atomic_load_explicit(&ring->control->head, memory_order_acquire);
    if (ring->at + skip + need - head > ring->bytes) {
        return NULL;
    }
    if (skip != 0) {
        *record_at(ring, ring->at) = (gin_record){.kind = GIN_RECORD_FILL, .bytes = skip};
        ring->at += skip;
    }
    gin_record *record = record_at(ring, ring->at);
    memset(record, 0, sizeof(*record));
    record->payload = (uint32_t)payload;
    ring->at += need;
    return record;
}

void gin_ring_publish(gin_ring *ring, uint64_t position)
{
    atomic_store_explicit(&ring->control->tail, position, memory_order_release);
}

const gin_record *gin_ring_peek(gin_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->control->tail, memory_order_acquire);
    while (ring->at != tail) {
        const gin_record *record = record_at(ring, ring->at);
        if (record->kind != GIN_RECORD_FILL) {
            return record;
        }
        ring->at += record->bytes;
    }
    return NULL;
}

void gin_ring_pass(gin_ring *ring, const gin_record *record)
{
    ring->at += GIN_RING_LINE + round_line(record->payload);
}

void gin_ring_release(gin_ring *ring)
{
    atomic_store_explicit(&ring->control->head, ring->at, memory_order_release);
}
