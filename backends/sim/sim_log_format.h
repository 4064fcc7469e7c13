/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the log's own files share: names as they are kept, records as they lie in a file.
 */
#ifndef SIM_LOG_FORMAT_H
#define SIM_LOG_FORMAT_H

#include "sim_log.h"

#define SIM_LOG_NAME_BYTES_MAX 255u

struct sim_log_name_entry {
    sim_log_name_entry *next;
    uint32_t hash;
    uint32_t bytes; /* without the NUL */
    char name[];
};

/* False when memory is short. */
bool sim_log_name_remember(sim_log *log, uint32_t hash, const char *name, size_t bytes);

/* Digest of the events from number `first` on, as if the log began with it. */
uint64_t sim_log_digest_from(const sim_log *log, uint64_t first);

static inline void sim_put_u32(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
}

static inline void sim_put_u64(unsigned char *bytes, uint64_t value)
{
    sim_put_u32(bytes, (uint32_t)value);
    sim_put_u32(bytes + 4, (uint32_t)(value >> 32));
}

static inline uint32_t sim_get_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static inline uint64_t sim_get_u64(const unsigned char *bytes)
{
    return sim_get_u32(bytes) | (uint64_t)sim_get_u32(bytes + 4) << 32;
}

/* One record, little-endian, 32 bytes. */
static inline void sim_log_encode(const ist_sim_event *event, unsigned char *bytes)
{
    sim_put_u64(bytes, event->at_ps);
    sim_put_u32(bytes + 8, event->kind);
    sim_put_u32(bytes + 12, (uint32_t)event->rank);
    sim_put_u32(bytes + 16, (uint32_t)event->peer);
    sim_put_u32(bytes + 20, event->detail);
    sim_put_u64(bytes + 24, event->value);
}

static inline void sim_log_decode(const unsigned char *bytes, ist_sim_event *event)
{
    event->at_ps = sim_get_u64(bytes);
    event->kind = sim_get_u32(bytes + 8);
    event->rank = (int32_t)sim_get_u32(bytes + 12);
    event->peer = (int32_t)sim_get_u32(bytes + 16);
    event->detail = sim_get_u32(bytes + 20);
    event->value = sim_get_u64(bytes + 24);
}

#endif
