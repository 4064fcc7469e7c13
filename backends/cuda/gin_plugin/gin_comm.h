/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connected group of ranks of one host. Sources append operations to the inbox of their target; the
 * owner of the memory applies them, in order, from its own progress calls. So nobody needs an address
 * in another process, and every signal covers all earlier operations of its sender.
 *
 * One thread makes progress; others may register memory at the same time: `lock`.
 */
#ifndef GIN_COMM_H
#define GIN_COMM_H

#include "gin_cuda.h"
#include "gin_fault.h"
#include "gin_interface.h"
#include "gin_segment.h"

#include <pthread.h>

/* Words that signals of one batch change, and pieces on their way to other ranks. */
enum { GIN_WORDS_MAX = 64, GIN_FLIGHTS_MAX = 64 };

/* Registered memory. Registration is collective, so its number is the same on all ranks. */
typedef struct gin_region {
    uint8_t *base;
    size_t bytes;
    uint32_t number; /* from 1 */
    bool device;
    bool open;
} gin_region;

/* An operation between its hand-over and its test. */
typedef struct gin_request {
    struct gin_request *next;
    struct gin_request *next_made;
    const gin_region *source; /* NULL: no data */
    uint64_t source_offset;
    uint64_t bytes;
    uint64_t sent;   /* bytes that have a record */
    gin_record head; /* of the last piece: targets, signal, token, hold */
    uint32_t peer;
    bool done;
    bool internal; /* nobody will test it */
} gin_request;

/* A piece whose bytes are being copied into its record. */
typedef struct gin_flight {
    uint64_t mark; /* of the lane */
    uint64_t position;
    uint32_t peer;
    gin_request *last; /* complete with this piece; NULL: pieces follow */
} gin_flight;

typedef struct gin_peer {
    gin_ring out; /* to the peer */
    gin_ring in;  /* from the peer */
    void *out_memory;
    gin_request *first, *last; /* not yet sent */
    uint64_t op_count;
    uint64_t held;    /* rounds that the next record has been left alone */
    uint64_t full_ns; /* since when there has been no room, 0: there is */
    uint64_t full_at; /* head of the ring then */
    int fd;           /* of the peer's inbox, -1: none */
    bool gone;        /* its process has ended, or it has closed */
    bool out_pinned;
} gin_peer;

/* A signal of the batch under way. */
typedef struct gin_word {
    uint8_t *address;
    uint64_t sum;
    bool device;
} gin_word;

typedef enum gin_phase {
    GIN_PHASE_IDLE = 0,
    GIN_PHASE_READING, /* words come from the device */
    GIN_PHASE_WRITING  /* data and words go there */
} gin_phase;

/* Applying what has come. */
typedef struct gin_batch {
    gin_phase phase;
    uint64_t mark;
    uint32_t word_count;
    gin_word words[GIN_WORDS_MAX];
    uint32_t token_count;
    uint64_t tokens[GIN_WORDS_MAX]; /* gets that are complete with this batch */
    bool copied;                    /* something is on its way to the device */
} gin_batch;

typedef struct gin_comm {
    pthread_mutex_t lock;
    struct gin_comm *next; /* in the process */
    uint32_t rank, rank_count;
    uint64_t id;     /* of NCCL's communicator */
    uint32_t number; /* among those of this rank with the same id: its context */
    gin_log_fn log;
    gin_region **regions; /* [region_count] by number - 1 */
    uint32_t region_count, region_room;
    gin_peer *peers;
    int fd; /* of the inbox */
    void *inbox;
    uint64_t inbox_bytes;
    uint64_t *words; /* [GIN_WORDS_MAX] in the inbox: what the device's words were, then will be */
    bool inbox_pinned;
    bool has_device;
    gin_device device;
    gin_lane out; /* from the device into rings */
    gin_lane in;  /* from rings to the device */
    gin_flight flights[GIN_FLIGHTS_MAX];
    uint64_t flight_begin, flight_end;
    gin_batch batch;
    gin_request *spare;
    gin_request *made; /* all there are */
    gin_plan plan;
    uint64_t stall_ns;
    uint64_t rounds;
    uint64_t errors;        /* that happened */
    uint64_t error_queries; /* that will still report one; UINT64_MAX: all */
    uint64_t sent_count, applied_count, struck_count;
} gin_comm;

/* A rank that listens. */
typedef struct gin_listener {
    int fd;
    gin_log_fn log;
    uint64_t id;
} gin_listener;

#define GIN_SAY(log_, level_, ...)                                                                 \
    do {                                                                                           \
        if ((log_) != NULL) {                                                                      \
            (log_)((level_), GIN_LOG_NET, __FILE__, __LINE__, __VA_ARGS__);                        \
        }                                                                                          \
    } while (0)

/* ---- gin_comm.c ------------------------------------------------------------------------------ */

gin_result gin_listen(uint64_t id, gin_log_fn log, void *handle, gin_listener **listener);
void gin_listener_close(gin_listener *listener);
/* handles: of all ranks, in their order. Takes the listener's inbox over. */
gin_result gin_connect(gin_listener *listener, void **handles, int rank_count, int rank,
                       gin_comm **comm);
void gin_comm_close(gin_comm *comm);
/* Whether any communicator has an error to report, or `which`, if it is one. Counts as a query. */
bool gin_comms_failed(const void *which);

gin_result gin_region_open(gin_comm *comm, void *base, size_t bytes, int kind, gin_region **region);
void gin_region_close(gin_comm *comm, gin_region *region);
/* The range of a region that an operation names; NULL: there is none. */
uint8_t *gin_region_range(const gin_region *region, uint64_t offset, uint64_t bytes);

/* Notes that the network failed; `queries` times, 0: for ever. */
void gin_comm_fail(gin_comm *comm, uint64_t queries);
uint64_t gin_now_ns(void);

/* ---- gin_send.c ------------------------------------------------------------------------------ */

/* Hands an operation over. The request belongs to the caller until it has been tested as done. */
gin_result gin_post(gin_comm *comm, const gin_request *what, gin_request **request);
/* @return whether it is complete; then it is no more */
bool gin_request_test(gin_comm *comm, gin_request *request);
/* One round for all peers; locked, entered when there is a device. */
void gin_send_progress(gin_comm *comm);
bool gin_send_idle(const gin_comm *comm);
void gin_request_free(gin_comm *comm, gin_request *request);

/* ---- gin_apply.c ----------------------------------------------------------------------------- */

void gin_apply_progress(gin_comm *comm);
/* Goes on with the batch under way, begins none. @return whether there is none left */
bool gin_apply_finish(gin_comm *comm);
bool gin_apply_idle(gin_comm *comm);

/* ---- gin_progress.c -------------------------------------------------------------------------- */

/* One round of everything. */
void gin_progress(gin_comm *comm);
/* Waits, bounded, until no copy uses memory that is to go away; locked. */
void gin_drain(gin_comm *comm);

#endif
