/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where ranks meet: the state of communicators that form and of exchanges under way. It neither
 * blocks nor reads a clock; whoever owns it (a mutex in one process, a server between processes)
 * hands it calls, the time, and the news that a rank is gone.
 */
#ifndef CUDA_MEET_H
#define CUDA_MEET_H

#include <isthmus/backend.h>
#include <stdbool.h>

#define CUDA_NEVER_NS UINT64_MAX
#define CUDA_WORDS(count) (((count) + 63u) / 64u)
/* The communicator of all clients; it exists from the start. A rank comes to it when its program
   has ended, and takes part in no other from then on. */
#define CUDA_MEET_ALL 1u

typedef enum cuda_call_kind { CUDA_CALL_JOIN = 1, CUDA_CALL_EXCHANGE = 2 } cuda_call_kind;

/* What the ranks of one exchange brought; immutable once done. */
typedef struct cuda_round {
    struct cuda_party *party;
    struct cuda_call *waiters;
    uint8_t *data;     /* [rank_count][bytes], missing ranks zeroed */
    int *fds;          /* [rank_count], -1: none; owned */
    uint64_t *arrived; /* bit a rank */
    uint64_t *excused; /* bit a rank that some rank brought as lost */
    size_t bytes;      /* of each rank */
    uint32_t rank_count;
    uint32_t refs;
    uint64_t deadline_ns;
    bool done;
} cuda_round;

/* One rank's call. The caller keeps it where it is until it is answered. */
typedef struct cuda_call {
    cuda_call_kind kind;
    uint32_t client;      /* world rank */
    uint32_t member;      /* rank in the communicator */
    uint32_t rank_count;  /* join */
    int fd;               /* travels with the bytes, -1: none; stays the caller's */
    uint64_t comm;        /* exchange: in, join: out */
    uint64_t deadline_ns; /* a point in time */
    uint8_t id[128];      /* join */
    const void *send;
    size_t bytes;
    const uint64_t *lost; /* exchange: CUDA_WORDS(rank_count), not waited for */
    /* the answer */
    bool done;
    ist_status status;
    uint32_t peer;     /* that the status is about, UINT32_MAX: none */
    uint64_t expected; /* of an error */
    uint64_t observed;
    cuda_round *round; /* IST_OK: until cuda_meet_release() */
    struct cuda_call *next;
} cuda_call;

typedef enum cuda_client_state {
    CUDA_CLIENT_HERE = 0,
    CUDA_CLIENT_ENDED = 1, /* its program has ended */
    CUDA_CLIENT_GONE = 2
} cuda_client_state;

typedef struct cuda_meet {
    struct cuda_party *parties;
    uint8_t *gone; /* [client_count] cuda_client_state */
    uint32_t client_count;
    uint64_t next_number;
    void (*answered)(struct cuda_meet *meet, cuda_call *call); /* may be NULL */
    void *owner;
} cuda_meet;

ist_status cuda_meet_open(cuda_meet *meet, uint32_t client_count);
void cuda_meet_close(cuda_meet *meet);
/* Takes a call; it, and others, may be answered before this returns. */
void cuda_meet_submit(cuda_meet *meet, cuda_call *call);
/* Ends what waits longer than it may. */
void cuda_meet_expire(cuda_meet *meet, uint64_t now_ns);
/* When cuda_meet_expire() has something to do next. */
uint64_t cuda_meet_next_ns(const cuda_meet *meet);
/* Ends the member's waiting call and all later ones with IST_ERR_ABORTED; no peer waits for it. */
void cuda_meet_abort(cuda_meet *meet, uint64_t comm, uint32_t member);
/* The member closes its communicator and will not come again. */
void cuda_meet_leave(cuda_meet *meet, uint64_t comm, uint32_t member);
/* The client is gone for good. Its waiting calls are dropped without an answer. */
void cuda_meet_client_gone(cuda_meet *meet, uint32_t client);
void cuda_meet_release(cuda_meet *meet, cuda_call *call);

/* A round with room for all ranks; used by clients too, to hold an answer. */
cuda_round *cuda_round_new(uint32_t rank_count, size_t bytes);
/* Closes file descriptors that nobody took. */
void cuda_round_free(cuda_round *round);

static inline bool cuda_bit(const uint64_t *words, uint32_t bit)
{
    return (words[bit / 64u] >> (bit % 64u) & 1u) != 0;
}

static inline void cuda_bit_set(uint64_t *words, uint32_t bit)
{
    words[bit / 64u] |= UINT64_C(1) << (bit % 64u);
}

static inline void cuda_bit_clear(uint64_t *words, uint32_t bit)
{
    words[bit / 64u] &= ~(UINT64_C(1) << (bit % 64u));
}

#endif
