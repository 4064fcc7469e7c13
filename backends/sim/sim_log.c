/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log in memory: digest, ring, names. The file is sim_log_file.c's.
 */
#include "sim_log.h"

#include "sim_log_format.h"

#include <isthmus/backend.h>
#include <string.h>
#include <xxhash.h>

#define CAPACITY_MAX (UINT64_C(1) << 40)
#define CHUNK_BYTES (SIM_LOG_CHUNK_EVENTS * sizeof(ist_sim_event))

_Static_assert(sizeof(ist_sim_event) == 32, "the digest covers records without padding");
_Static_assert((SIM_LOG_CHUNK_EVENTS & (SIM_LOG_CHUNK_EVENTS - 1)) == 0,
               "a chunk lies in the ring in one piece");

static uint64_t capacity_round(uint64_t capacity)
{
    uint64_t rounded = SIM_LOG_CHUNK_EVENTS;
    while (rounded < capacity) {
        rounded *= 2;
    }
    return rounded;
}

ist_status sim_log_init(sim_log *log, uint64_t capacity, bool keep)
{
    /* The chunk stays as it is: 4 KiB a world are worth sparing. */
    memset(log, 0, offsetof(sim_log, chunk));
    if (!keep) {
        return IST_OK;
    }
    if (capacity > CAPACITY_MAX) {
        ist_error details = {.size = sizeof details,
                             .rank = IST_RANK_NONE,
                             .peer = IST_RANK_NONE,
                             .observed = capacity,
                             .expected = CAPACITY_MAX,
                             .object = "sim.log_capacity",
                             .operation = "world.run"};
        return ist_raise(IST_ERR_RANGE, &details, "sim.log_capacity is %llu, expected at most %llu",
                         (unsigned long long)capacity, (unsigned long long)CAPACITY_MAX);
    }
    const uint64_t rounded = capacity_round(capacity == 0 ? SIM_LOG_CAPACITY_DEFAULT : capacity);
    log->ring = ist_alloc(rounded, sizeof *log->ring);
    if (log->ring == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for an event log of %llu events",
                         (unsigned long long)rounded);
    }
    log->capacity = rounded;
    return IST_OK;
}

void sim_log_fini(sim_log *log)
{
    while (log->names != NULL) {
        sim_log_name_entry *entry = log->names;
        log->names = entry->next;
        ist_free(entry);
    }
    ist_free(log->ring);
    memset(log, 0, offsetof(sim_log, chunk));
}

/* ------------------------------------------------------------------------------ digest */

static uint64_t digest_chunk(const ist_sim_event *events, uint32_t count, uint64_t before)
{
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        return XXH3_64bits_withSeed(events, count * sizeof *events, before);
    }
    unsigned char bytes[CHUNK_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        sim_log_encode(&events[i], bytes + i * sizeof *events);
    }
    return XXH3_64bits_withSeed(bytes, count * sizeof *events, before);
}

void sim_log_flush(sim_log *log)
{
    log->running = digest_chunk(log->chunk, SIM_LOG_CHUNK_EVENTS, log->running);
    if (log->capacity != 0) {
        memcpy(&log->ring[log->flushed & (log->capacity - 1)], log->chunk, CHUNK_BYTES);
    }
    log->flushed += SIM_LOG_CHUNK_EVENTS;
    log->chunk_used = 0;
}

uint64_t sim_log_digest(const sim_log *log)
{
    return log->chunk_used == 0 ? log->running
                                : digest_chunk(log->chunk, log->chunk_used, log->running);
}

/* Same cuts as a log that begins with event `first`. */
uint64_t sim_log_digest_from(const sim_log *log, uint64_t first)
{
    ist_sim_event events[SIM_LOG_CHUNK_EVENTS];
    const uint64_t end = sim_log_count(log);
    uint64_t digest = 0;
    while (first < end) {
        uint32_t count = 0;
        for (; count < SIM_LOG_CHUNK_EVENTS && first < end; count++, first++) {
            events[count] = *sim_log_at(log, first);
        }
        digest = digest_chunk(events, count, digest);
    }
    return digest;
}

/* ------------------------------------------------------------------------------ reading */

uint64_t sim_log_first(const sim_log *log)
{
    const uint64_t count = sim_log_count(log);
    if (log->capacity == 0) {
        return count;
    }
    const uint64_t oldest = count > log->capacity ? count - log->capacity : 0;
    return oldest > log->floor ? oldest : log->floor;
}

const ist_sim_event *sim_log_at(const sim_log *log, uint64_t index)
{
    return index >= log->flushed ? &log->chunk[index - log->flushed]
                                 : &log->ring[index & (log->capacity - 1)];
}

/* ------------------------------------------------------------------------------ names */

const char *sim_log_name_of(const sim_log *log, uint32_t hash)
{
    for (const sim_log_name_entry *entry = log->names; entry != NULL; entry = entry->next) {
        if (entry->hash == hash) {
            return entry->name;
        }
    }
    return NULL;
}

bool sim_log_name_remember(sim_log *log, uint32_t hash, const char *name, size_t bytes)
{
    sim_log_name_entry *entry = ist_alloc(1, sizeof *entry + bytes + 1);
    if (entry == NULL) {
        return false;
    }
    entry->hash = hash;
    entry->bytes = (uint32_t)bytes;
    memcpy(entry->name, name, bytes);
    entry->next = log->names;
    log->names = entry;
    log->name_count++;
    return true;
}

uint32_t sim_log_name(sim_log *log, const char *name)
{
    const size_t bytes = strnlen(name, SIM_LOG_NAME_BYTES_MAX);
    const uint32_t hash = XXH32(name, bytes, 0);
    const uint32_t detail = hash == 0 ? 1 : hash;
    if (log->capacity != 0 && sim_log_name_of(log, detail) == NULL) {
        (void)sim_log_name_remember(log, detail, name, bytes);
    }
    return detail;
}
