/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of records in shared memory: one producer, one consumer, each in its own process or thread.
 * A record is a head of 64 bytes and its payload in one piece; where a record does not fit before the
 * end, a filler takes the rest. Positions count bytes for ever, modulo the power-of-two size.
 */
#ifndef GIN_RING_H
#define GIN_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GIN_RING_LINE = 64, GIN_RING_CONTROL_BYTES = 4096 };

typedef enum gin_record_kind {
    GIN_RECORD_FILL = 0, /* nothing, up to the end of the ring */
    GIN_RECORD_PUT = 1,  /* payload, then the signal, if there is one */
    GIN_RECORD_GET = 2,  /* asks for bytes: `signal_region` is where they lie */
    GIN_RECORD_REPLY = 3 /* payload of a get; `token` tells of which */
} gin_record_kind;

typedef struct gin_record {
    uint32_t kind;
    uint32_t payload;       /* bytes behind this head */
    uint32_t target_region; /* number; 0: no data */
    uint32_t signal_region; /* number; 0: no signal */
    uint64_t target_offset;
    uint64_t signal_offset;
    uint64_t signal_value;
    uint64_t token; /* GET, REPLY: the request; 0: not the last piece */
    uint64_t hold;  /* rounds that the target leaves it alone */
    uint64_t bytes; /* FILL: to skip; GET: wanted */
} gin_record;

_Static_assert(sizeof(gin_record) == GIN_RING_LINE, "payloads begin on a line");

/* At the start of the shared memory, zeroed when made; data follows at GIN_RING_CONTROL_BYTES. */
typedef struct gin_ring_control {
    _Alignas(64) _Atomic uint64_t tail;   /* published by the producer */
    _Alignas(64) _Atomic uint64_t head;   /* consumed */
    _Alignas(64) _Atomic uint32_t closed; /* 1: the consumer has gone for good */
} gin_ring_control;

/* One side's view. */
typedef struct gin_ring {
    gin_ring_control *control;
    uint8_t *data;
    uint64_t bytes;
    uint64_t at; /* producer: reserved so far; consumer: looked at so far */
} gin_ring;

void gin_ring_open(gin_ring *ring, void *memory, uint64_t bytes);
/* Most bytes of one payload. */
uint64_t gin_ring_payload_max(const gin_ring *ring);

/*
 * Producer: room for a record with this payload, or NULL while the consumer is behind. The record
 * can be seen only after gin_ring_publish() of a position behind it.
 */
gin_record *gin_ring_reserve(gin_ring *ring, uint64_t payload);
void gin_ring_publish(gin_ring *ring, uint64_t position);

/* Consumer: the next record, or NULL. gin_ring_pass() goes on to the one behind it. */
const gin_record *gin_ring_peek(gin_ring *ring);
void gin_ring_pass(gin_ring *ring, const gin_record *record);
/* Consumer: gives everything that was passed back to the producer. */
void gin_ring_release(gin_ring *ring);

static inline uint8_t *gin_record_payload(gin_record *record)
{
    return (uint8_t *)(record + 1);
}

static inline const uint8_t *gin_record_data(const gin_record *record)
{
    return (const uint8_t *)(record + 1);
}

#endif
