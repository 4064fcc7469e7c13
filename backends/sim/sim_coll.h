/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collectives of the simulator. The calls of one group of one member are a batch, one
 * operation of a stream. Calls of all members that belong together are a run: it begins when the last
 * has come, moves its bytes over the links by the phases of the cost model, then all its calls end.
 *
 * A member's batches run one after the other, in the order in which its program enqueued them.
 */
#ifndef SIM_COLL_H
#define SIM_COLL_H

#include "cost_profile.h"
#include "sim_internal.h"

/* Elements that are combined at a time. */
#define SIM_COLL_CHUNK 4096u

typedef struct sim_coll sim_coll;
typedef struct sim_coll_run sim_coll_run;
typedef struct sim_coll_batch sim_coll_batch;
typedef struct sim_coll_member sim_coll_member;

typedef struct sim_coll_call {
    struct sim_coll_call *next; /* sends and receives without their other side, in order */
    sim_coll_batch *batch;
    sim_coll_run *run; /* NULL: waits for its other side */
    ist_backend_coll call;
    bool ended;
} sim_coll_call;

struct sim_coll_batch {
    sim_coll_member *member;
    sim_stream *stream;
    uint64_t began_ps, deadline_ps;
    uint64_t sequence; /* of its first call */
    uint32_t count;
    uint32_t left;     /* calls that have not ended, plus 1 while they are being begun */
    uint32_t released; /* exploring: the stream's clock when it began */
    sim_coll_call calls[];
};

struct sim_coll_member {
    sim_member *member;
    sim_coll *coll;
    uint64_t deadline_ns;
    uint64_t issued; /* batches that got a turn */
    uint64_t turn;   /* of the batch that may run */
    uint64_t begun;  /* collective calls */
    uint64_t calls;  /* all calls */
    sim_coll_batch *batch;
    ist_error why; /* status IST_OK: nothing has failed */
    bool opened;
    bool timer; /* an event for `batch` lies in the heap */
};

/* A collective, or a send and its receive. */
struct sim_coll_run {
    sim_coll_run *next;
    sim_coll *coll;
    uint64_t number; /* among collectives; UINT64_MAX: a pair */
    uint32_t room;   /* calls that it takes */
    uint32_t arrived;
    uint32_t first; /* who came first */
    bool begun;
    bool mismatch; /* whoever comes later fails, too */
    ist_error why; /* of the mismatch */
    ist_backend_coll shape;
    uint32_t phase, phase_count;
    bool moving;          /* flows are under way, else a latency */
    bool cut;             /* no link leads from one member to another that has to be reached */
    uint32_t cut_link[2]; /* which */
    cost_phase phases[COST_PHASES_MAX];
    uint64_t latency_ps[COST_PHASES_MAX];
    uint32_t pending; /* events that come yet */
    sim_flow *flows;
    uint8_t *came;          /* [room] whether somebody was ever there */
    sim_coll_call *calls[]; /* [room], by rank; pair: send, receive. NULL: not come, or left */
};

struct sim_coll {
    sim_comm *comm;
    cost_machine machine;
    cost_profile *links;
    sim_coll_member *members; /* [rank_count] */
    sim_coll_run *runs;
    sim_coll_call *lonely, *lonely_tail;
    uint8_t *work; /* two chunks of the widest elements, then a sim_coll_term for each rank */
};

/* sim_coll.c */
ist_status sim_coll_open(sim_member *member, uint64_t deadline_ns);
/* Makes what the members share, if nobody has yet. */
ist_status sim_coll_prepare(sim_comm *comm);
ist_status sim_coll_enqueue(sim_rank *rank, const ist_backend_coll *calls, uint32_t count);
ist_status sim_coll_status(sim_member *member, ist_error *why);
/* Ends what runs for this member, which has aborted; or is closing, mostly with nothing under way. */
void sim_coll_abort(sim_member *member);
void sim_coll_close(sim_member *member);
/* Gives a batch its turn; IST_ERR_USAGE when its communicator is closed. */
ist_status sim_coll_push(sim_stream_op *op);
void sim_coll_start(sim_stream *stream, sim_stream_op *op);
void sim_coll_timer(sim_coll_member *member);
void sim_coll_free(sim_coll *coll);
bool sim_coll_timer_is_over(const sim_coll_member *member);
/* All of a run's calls have ended. */
void sim_coll_finish(sim_coll_run *run);
/* Some member of the run is dead or has left: it never ends. */
bool sim_coll_broken(const sim_coll_run *run);
void sim_coll_fail_run(sim_coll_run *run, ist_status status, const char *sentence);

/* sim_coll_time.c */
ist_status sim_coll_machine(sim_coll *coll);
/* What the cost model says of a call, alone in its communicator. */
ist_status sim_coll_estimate(const sim_coll *coll, const ist_backend_coll *call, uint64_t *time_ps);
void sim_coll_begin(sim_coll_run *run);
void sim_coll_step(sim_coll_run *run);

/* sim_coll_data.c */
void sim_coll_move(const sim_coll_run *run);
/* Exploring: reads, edges and writes of a run. */
void sim_coll_observe(const sim_coll_run *run);

/* sim_coll_reduce.c: the type in which elements are combined. */
typedef struct sim_coll_term {
    const void *from;
    uint64_t scale; /* PREMUL: one element */
} sim_coll_term;
/* dst[0 … count) = terms combined in their order; count <= SIM_COLL_CHUNK, work: two chunks of 8-byte
 * elements. dst may be one of the sources. */
void sim_coll_combine(void *dst, const sim_coll_term *terms, uint32_t term_count, uint32_t count,
                      ist_dtype dtype, ist_reduction reduction, uint8_t *work);

const char *sim_coll_text(ist_coll_kind kind);

#endif
