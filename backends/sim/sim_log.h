/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log of a world: digests every event, keeps the last ones when somebody wants to read
 * them, and writes and reads the binary log file. Embedded by value; sim_log_init() touches a few
 * words only, since tens of thousands of worlds start a second.
 *
 * Digest: the log is cut into chunks of SIM_LOG_CHUNK_EVENTS records; the digest is the XXH3-64 of
 * the last chunk, full or not, seeded with that of the one before it (the first: 0). It covers the
 * records' little-endian bytes, so it is the same on every machine.
 */
#ifndef SIM_LOG_H
#define SIM_LOG_H

#include <isthmus/unstable/sim.h>
#include <stdbool.h>

#define SIM_LOG_CHUNK_EVENTS 128u /* 4 KiB; part of the digest's definition */
#define SIM_LOG_CAPACITY_DEFAULT UINT64_C(65536)

/*
 * Who is who in a record. HOST_CALL: detail is the row of IST_BACKEND_OPS, from 0. KERNEL_BEGIN and
 * KERNEL_END of a launch share rank, detail and value. PUT: the sender is rank, the receiver peer;
 * PUT_DONE: the receiver is rank, the sender peer; detail and value are equal. WAIT and WAIT_END share
 * rank and peer, and WAIT_END's value is its time minus that of its WAIT. Events of the world as a
 * whole have rank -1.
 */

typedef struct sim_log_name_entry sim_log_name_entry;

typedef struct sim_log {
    uint64_t flushed;    /* events digested and, if kept, in the ring; a multiple of the chunk */
    uint32_t chunk_used; /* events in `chunk` */
    uint32_t name_count;
    uint64_t running;          /* digest of the flushed events */
    uint64_t floor;            /* no event before this one was ever in the ring */
    uint64_t capacity;         /* events in the ring, a power of two; 0: nothing is kept */
    ist_sim_event *ring;       /* event i at i & (capacity - 1) */
    sim_log_name_entry *names; /* newest first */
    ist_sim_event chunk[SIM_LOG_CHUNK_EVENTS]; /* the events after `flushed` */
} sim_log;

/*
 * Starts an empty log.
 * keep: events are kept, the last `capacity` at least (rounded up to a power of two, 0: default).
 * IST_OK; IST_ERR_RANGE; IST_ERR_MEMORY. fini may follow a failed init.
 */
ist_status sim_log_init(sim_log *log, uint64_t capacity, bool keep);
void sim_log_fini(sim_log *log);

/* Moves a full chunk to the digest and the ring; for sim_log_event() only. */
void sim_log_flush(sim_log *log);

/* Appends one event. */
static inline void sim_log_event(sim_log *log, uint64_t at_ps, uint32_t kind, int32_t rank,
                                 int32_t peer, uint32_t detail, uint64_t value)
{
    ist_sim_event *event = &log->chunk[log->chunk_used++];
    event->at_ps = at_ps;
    event->kind = kind;
    event->rank = rank;
    event->peer = peer;
    event->detail = detail;
    event->value = value;
    if (log->chunk_used == SIM_LOG_CHUNK_EVENTS) {
        sim_log_flush(log);
    }
}

/* Events appended so far. */
static inline uint64_t sim_log_count(const sim_log *log)
{
    return log->flushed + log->chunk_used;
}

/* Digest of all events so far, in order; the log can go on. An empty log's digest is 0. */
uint64_t sim_log_digest(const sim_log *log);

/* Number of the oldest event that is still kept; sim_log_count() when none is. */
uint64_t sim_log_first(const sim_log *log);

/* Event number index, sim_log_first() <= index < sim_log_count(). */
const ist_sim_event *sim_log_at(const sim_log *log, uint64_t index);

/*
 * Hash of a kernel's or point's name, for an event's detail; never 0. A log that keeps events also
 * remembers the name; when memory for that is short, the hash alone appears in the trace.
 */
uint32_t sim_log_name(sim_log *log, const char *name);

/* Name behind a hash, or NULL. */
const char *sim_log_name_of(const sim_log *log, uint32_t hash);

/*
 * Writes the kept events and the names to a file. Little-endian:
 *   0 "ISTLOG1\0" · 8 u32 version 1 · 12 u32 bytes of a record · 16 u32 names · 20 u32 zero ·
 *   24 u64 events kept · 32 u64 events in all · 40 u64 digest of all · 48 u64 digest of the kept ·
 *   56 records, oldest first (at_ps, kind, rank, peer, detail, value) ·
 *   then per name u32 hash, u32 bytes, bytes.
 * IST_OK; IST_ERR_IO with the system's reason.
 */
ist_status sim_log_write(const sim_log *log, const char *path);

/*
 * Reads such a file into a log that was not initialised; nothing may be appended to it.
 * IST_OK; IST_ERR_IO; IST_ERR_PARSE naming what is wrong; IST_ERR_MEMORY. On failure the log is
 * empty and needs no fini.
 */
ist_status sim_log_read(sim_log *log, const char *path);

#endif
