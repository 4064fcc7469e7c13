/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's own structures: world, ranks, fibers, streams, communicators. One thread runs a
 * world; nothing here is shared between threads.
 */
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#include "sim_fault.h"
#include "sim_fiber.h"
#include "sim_link.h"
#include "sim_log.h"
#include "sim_pool.h"

#include "topo_comm.h"

#include <isthmus/backend.h>
#include <isthmus/device.h>
#include <isthmus/unstable/sim.h>
#include <stdbool.h>

typedef struct sim_conductor sim_conductor;
typedef struct sim_world sim_world;
typedef struct sim_rank sim_rank;
typedef struct sim_stream sim_stream;
typedef struct sim_comm sim_comm;
typedef struct sim_devcomm sim_devcomm;
typedef struct sim_wait sim_wait;
typedef struct sim_put sim_put;
typedef struct sim_launch sim_launch;
typedef struct sim_explore sim_explore;

#define SIM_PS_PER_NS 1000ull
#define SIM_NEVER UINT64_MAX

/* ---- events ---------------------------------------------------------------------------------- */

typedef enum sim_event_type {
    SIM_EV_FIBER,       /* object: sim_fiber, token: its block_token; wakes it */
    SIM_EV_DEADLINE,    /* object: sim_fiber, token; wakes it as timed out */
    SIM_EV_STREAM,      /* object: sim_stream; its head operation may start */
    SIM_EV_STREAM_DONE, /* object: sim_stream; its running copy is done */
    SIM_EV_STORE,       /* object: sim_store; a remote word becomes visible */
    SIM_EV_PUT,         /* object: sim_put; arrives */
    SIM_EV_ROW,         /* object: sim_flow; a row of a block has arrived */
    SIM_EV_LINKS,       /* token: generation; the link model has a completion */
    SIM_EV_FAULT,       /* token: index of a timed fault */
    SIM_EV_RESUME,      /* object: sim_rank; a stall may be over */
    SIM_EV_LINK_UP,     /* object: sim_link_end; a link fault is over */
    SIM_EV_EXCHANGE,    /* object: sim_exchange; its deadline */
    SIM_EV_COLL,        /* object: sim_coll_run; a step of it has ended */
    SIM_EV_COLL_TIMER   /* object: sim_coll_member; the deadline of its calls may have come */
} sim_event_type;

typedef struct sim_event {
    uint64_t at_ps;
    uint64_t sequence; /* ties are served in the order of insertion */
    void *object;
    uint64_t token;
    sim_event_type type;
    uint32_t pad;
} sim_event;

/* ---- transfers ------------------------------------------------------------------------------- */

/* A transfer on its way and what happens at its end. */
typedef struct sim_flow {
    sim_transfer transfer; /* owner: this flow */
    void *object;          /* of the event at its end */
    uint64_t token;
    uint64_t latency_ps; /* from the last link to arrival */
    sim_event_type type;
    uint32_t pad;
} sim_flow;

/* ---- fibers ---------------------------------------------------------------------------------- */

typedef enum sim_actor_state {
    SIM_READY,
    SIM_RUNNING,
    SIM_BLOCKED,
    SIM_PARKED, /* runnable, but its rank is stalled */
    SIM_ENDED
} sim_actor_state;

/* A host program or a device block: something that runs, blocks and is woken. */
typedef struct sim_actor {
    sim_fiber fiber;
    sim_world *world;
    sim_rank *rank;
    struct sim_actor *next; /* in the ready queue or a parked list */
    struct sim_actor *prev_of_rank, *next_of_rank;
    uint64_t lag_ps;      /* own time ahead of the world's: time spent without a switch */
    uint64_t block_token; /* grows with every block; stale timers do not match */
    sim_actor_state state;
    bool is_host;
    bool timed_out;                /* why the last block ended */
    bool has_timer;                /* a deadline event of the current block lies in the heap */
    struct sim_actor *next_waiter; /* in a list of waiters of a stream, event or rendezvous */
    /* exploring: */
    uint64_t priority; /* PCT */
    uint32_t agent;    /* 0: none yet */
    uint32_t move_id;
} sim_actor;

/* ---- device memory --------------------------------------------------------------------------- */

typedef struct sim_allocation {
    uint64_t offset;                   /* from the rank's base; multiple of 4096 */
    uint64_t bytes;                    /* as asked */
    uint32_t flags;                    /* ist_mem_flags */
    uint32_t windows;                  /* open windows inside */
    bool resource;                     /* window 0 of a device communicator */
    uint64_t shared_begin, shared_end; /* what windows have covered so far; end 0: nothing */
} sim_allocation;

typedef struct sim_memory {
    uint8_t *base;
    uint64_t capacity; /* address space of the rank */
    uint64_t limit;    /* device memory of the cluster description */
    uint64_t used;
    uint64_t high;         /* end of the highest allocation ever */
    uint64_t freed_at;     /* the world's blocks_retired when memory was first freed, plus 1 */
    uint64_t freed_own_at; /* the rank's */
    bool stray;            /* exploring: a device call has touched what is not allocated */
    bool packed;           /* no gap lies before the last allocation */
    sim_allocation *table; /* sorted by offset */
    uint32_t count, room;
} sim_memory;

/* ---- streams, events, graphs ----------------------------------------------------------------- */

typedef enum sim_op_kind {
    SIM_OP_LAUNCH,
    SIM_OP_COPY,
    SIM_OP_COPY_IN,
    SIM_OP_FILL,
    SIM_OP_RECORD,
    SIM_OP_WAIT,
    SIM_OP_COLL
} sim_op_kind;

typedef struct sim_host_event {
    uint64_t record_count;     /* records enqueued */
    uint64_t done_count;       /* records reached */
    uint64_t done_ps;          /* when the last was reached */
    sim_stream *streams;       /* streams whose head waits for this event */
    sim_actor *hosts;          /* host programs that wait for it */
    struct sim_graph *capture; /* graph whose capture recorded it last, or NULL */
    uint32_t capture_lane;
    uint32_t capture_node;
    uint32_t refs;                       /* handle + operations that use it */
    struct sim_host_event *next_of_rank; /* open handles */
    uint32_t released;                   /* exploring: clock of the last record */
} sim_host_event;

#define SIM_ARGS_INLINE 448u

typedef struct sim_stream_op {
    struct sim_stream_op *next;
    sim_op_kind kind;
    uint8_t value;          /* FILL */
    uint32_t block_count;   /* LAUNCH */
    uint32_t args_bytes;    /* LAUNCH */
    uint64_t not_before_ps; /* the host's time when it enqueued */
    const ist_kernel *kernel;
    void *dst;
    const void *src;
    size_t bytes;
    sim_host_event *event;
    uint64_t record;   /* RECORD, WAIT: which record of the event; COLL: turn of the member */
    uint32_t released; /* exploring: the host's clock when it enqueued */
    void *payload;     /* COPY_IN bytes, large args, calls of a COLL, ours */
    _Alignas(16) uint8_t args[SIM_ARGS_INLINE];
} sim_stream_op;

struct sim_stream {
    sim_rank *rank;
    sim_stream_op *head, *tail;
    uint64_t enqueued, completed;
    bool busy;        /* the head is running */
    bool armed;       /* a start event for the head lies in the heap */
    sim_actor *hosts; /* waiting in stream_sync */
    sim_stream *next_on_event;
    struct sim_graph *capture;
    uint32_t capture_lane;
    bool closed;        /* freed when drained */
    bool internal;      /* belongs to a graph */
    sim_launch *launch; /* the running kernel */
    sim_flow flow;      /* the running copy */
    struct sim_stream *next_of_rank;
    uint32_t ordinal;     /* number among the streams of its rank */
    uint32_t agent;       /* exploring: 0: none yet */
    uint32_t block_count; /* agents of blocks, [block_count] */
    uint32_t *block_agents;
};

typedef struct sim_graph_node {
    sim_stream_op op; /* event: index into `events` in `record` for RECORD and WAIT */
    uint32_t lane;
} sim_graph_node;

typedef struct sim_graph {
    sim_rank *rank;
    sim_graph_node **nodes;
    uint32_t count, room;
    uint32_t lane_count;
    uint32_t lane_room;
    sim_stream **lanes;      /* internal streams; [0] is NULL */
    sim_host_event **events; /* graph-owned events */
    uint32_t event_count, event_room;
    struct sim_graph *next_of_rank;
    sim_stream *origin;      /* while capturing */
    ist_status broken;       /* first error inside the capture */
    sim_host_event *done;    /* the end of the last launch; launches run in turn */
    sim_stream *launched_on; /* by the last launch, or NULL */
} sim_graph;

/* ---- kernels --------------------------------------------------------------------------------- */

#define SIM_SCRATCH_SLOTS 8u
/* Behind the slots of kernels: results of a barrier that the caller does not want to see. */
#define SIM_SCRATCH_BARRIER SIM_SCRATCH_SLOTS

/* One running block. The public name of this struct is ist_coop. */
struct ist_coop {
    sim_actor actor; /* first member: a coop is an actor */
    sim_launch *launch;
    uint32_t block;
    uint32_t block_count;
    uint32_t transfers; /* rows on the way whose end is not known yet */
    uint32_t pad;
    uint64_t serial;        /* distinct for every block that ever ran in the world */
    uint64_t rows_until_ps; /* when the rows on the way have arrived (in order) */
    sim_wait *wait;         /* what it waits for, or NULL */
    void *scratch[SIM_SCRATCH_SLOTS + 1];
    uint32_t scratch_bytes[SIM_SCRATCH_SLOTS + 1];
};

struct sim_launch {
    sim_stream *stream;
    sim_rank *rank;
    const ist_kernel *kernel;
    const void *args;
    uint64_t sequence;
    uint32_t blocks_left;
};

/* ---- waits ----------------------------------------------------------------------------------- */

typedef enum sim_wait_kind {
    SIM_WAIT_PEERS,   /* words and signals of all peers, equality */
    SIM_WAIT_WORD,    /* one word, at least */
    SIM_WAIT_SIGNAL,  /* one signal, at least, rolling */
    SIM_WAIT_COUNTER, /* one counter, at least, rolling */
    SIM_WAIT_FLUSH,   /* puts of this block on one context */
    SIM_WAIT_BARRIER, /* LSA barrier words, at least, rolling */
    SIM_WAIT_ROWS     /* rows on the way (max-min) */
} sim_wait_kind;

struct sim_wait {
    sim_wait *next; /* in the rank's list */
    ist_coop *coop;
    sim_devcomm *dev; /* NULL for WORD without a dev comm and ROWS */
    sim_wait_kind kind;
    uint32_t pending;      /* items not yet satisfied */
    const uint64_t *words; /* PEERS: [rank_count]; WORD: one; BARRIER: [lsa_size] */
    uint64_t expected;
    uint32_t signal_first;
    uint32_t context;
    uint8_t *results; /* PEERS, BARRIER: one a peer; 0xff: pending */
    uint64_t began_ps;
    bool aborted, failed;
};

#define SIM_RESULT_PENDING 0xffu

/* ---- communicators --------------------------------------------------------------------------- */

typedef struct sim_exchange {
    struct sim_exchange *next;
    sim_comm *comm;
    size_t bytes;
    uint8_t *data;     /* rank_count * bytes */
    uint64_t *arrived; /* mask words */
    uint64_t *excused; /* ranks that nobody waits for */
    uint32_t arrived_count;
    uint32_t readers; /* members that still have to copy the result */
    bool done;
    bool timer;
    uint32_t released; /* exploring: clocks of those who came */
    sim_actor *waiters;
} sim_exchange;

typedef struct sim_member {
    sim_rank *rank;
    sim_comm *comm;
    uint32_t index;       /* rank in the communicator */
    uint32_t window_last; /* number of the last that it opened; 0: none yet */
    uint32_t devcomm_last;
    uint32_t collectives[3]; /* exploring: calls made, by kind */
    bool open;
    bool aborted;
    uint64_t deadline_ns;    /* of waits, as opened */
    ist_dev_window *windows; /* [window_room], entry 0 unused here */
    uint32_t window_room;
    sim_devcomm *devcomms;
} sim_member;

/* Addresses of one window on all members; shared by them, filled as they register. */
typedef struct sim_window_bases {
    void **base;     /* [rank_count] */
    uint64_t *bytes; /* [rank_count] */
    uint32_t closed; /* resources: members that have closed the instance */
    uint32_t pad;
} sim_window_bases;

/* Numbers of things that members open together, one after the other; never reused. A member that
   fails, or never comes, must not be one behind for ever. */
typedef struct sim_numbers {
    uint32_t last;         /* being opened, or opened last; 0: none yet */
    uint32_t opened_count; /* members that have */
    bool abandoned;        /* one closed it again before all had opened it */
} sim_numbers;

struct sim_comm {
    sim_comm *next;
    sim_world *world;
    uint8_t id[128];
    uint32_t rank_count;
    uint32_t lsa_size;
    uint32_t joined;
    topo_formed choice; /* load/store teams, and the way between them */
    bool formed;
    bool failed;         /* some member gave up before all had come */
    ist_status failure;  /* and why */
    sim_member *members; /* [rank_count]; rank NULL until it joins */
    sim_actor *waiters;
    sim_exchange *exchange;       /* the open one, or NULL */
    sim_exchange *exchanges_done; /* with readers left */
    sim_numbers window_numbers, devcomm_numbers;
    sim_window_bases *windows; /* [window_room] */
    uint32_t window_room;
    sim_window_bases *resources; /* [resource_room]: window 0 of each dev comm instance */
    uint32_t resource_room;
    uint32_t lsa_size_max;
    uint32_t released;             /* exploring: clocks of those who joined */
    struct sim_coll *coll;         /* native collectives, NULL: opened by nobody yet */
    struct sim_collective *agreed; /* exploring: [agreed_room] collective calls, by number */
    uint32_t agreed_count, agreed_room;
};

/* Puts between one pair on one context, in order of issue. */
typedef struct sim_pair {
    sim_put *head, *tail;
    sim_put *held;     /* a reordered put that waits for the next one */
    bool errored;      /* later puts fail too, until cleared */
    uint32_t released; /* exploring: clocks of the puts that have landed in turn */
} sim_pair;

struct sim_devcomm {
    ist_dev_comm pub; /* first member: what kernels see */
    sim_member *member;
    sim_devcomm *next;
    uint32_t instance;
    bool closed;             /* what it still has on its way is thrown away */
    sim_actor *drainer;      /* its program, while it closes and puts are on their way */
    ist_dev_window *windows; /* what pub.windows points to */
    void *resource;          /* device memory of window 0 */
    uint64_t *signals;       /* [contexts * signals] */
    uint64_t *counters;      /* [contexts * counters] */
    uint8_t *peer_errors;    /* [rank_count] */
    sim_pair *pairs;         /* [contexts * rank_count], as sender */
    uint64_t *barrier_inbox; /* [barriers * lsa_size] */
    uint64_t *barrier_epoch; /* [barriers] */
};

struct sim_put {
    sim_put *next; /* in the pair */
    sim_devcomm *src, *dst;
    uint64_t block_serial; /* who issued it */
    uint32_t context;
    const void *from;
    void *to;
    uint64_t bytes;
    uint64_t value; /* inline word */
    ist_gin_action action;
    uint32_t counter;
    uint32_t peer;
    bool arrived, lost, error, duplicate;
    bool retried;      /* the target is gone; the error is on its way */
    bool counted;      /* still blocks its sender's flush */
    uint64_t extra_ps; /* of a delay or reordering, after the wire */
    uint64_t again_ps; /* a duplicate follows so much later; 0: none */
    void *copy;        /* bytes of a duplicate, or read early, ours */
    sim_flow flow;
    uint32_t agents[2]; /* exploring: who reads the source, who writes the target */
    uint32_t released;  /* exploring: clock when it had landed */
    bool read;          /* exploring: the source has been read */
    struct sim_put *next_held;
};

typedef struct sim_store {
    struct sim_store *next; /* while held */
    sim_rank *target;
    uint64_t *word;
    uint64_t value;
    int32_t from;
    uint32_t width;          /* 4 or 8 */
    sim_devcomm *barrier_of; /* NULL, or the word is an inbox of this one's barrier */
    uint32_t barrier, member;
    uint32_t agent, released; /* exploring */
} sim_store;

/* ---- ranks and world ------------------------------------------------------------------------- */

struct sim_rank {
    sim_world *world;
    uint32_t index;
    bool dead;  /* killed: blocks are gone, calls return IST_ERR_KILLED */
    bool ended; /* its program has returned */
    bool stalled_for_ever;
    ist_status status;       /* what the program returned */
    ist_status device_fault; /* DEVICE stays, MEMORY goes when it has been reported */
    uint64_t stalled_until_ps;
    uint64_t slow;          /* factor of device time, >= 1 */
    uint64_t op_number;     /* operations begun */
    uint64_t next_fault_op; /* threshold from the fault plan */
    uint64_t launch_count;
    uint64_t blocks_retired;
    uint32_t unwind_calls; /* calls made after death */
    uint64_t id_count;     /* unique ids made */
    sim_actor host;
    sim_actor *blocks; /* live device blocks */
    sim_actor *parked; /* runnable actors, in order, while stalled */
    sim_actor *parked_tail;
    sim_stream *streams;
    uint32_t stream_count; /* ever opened */
    sim_graph *graphs;
    sim_host_event *events;
    sim_wait *waits; /* device waits on this rank's memory and signals */
    sim_memory memory;
    ist_error error; /* the rank's error record */
};

struct sim_world {
    const ist_backend_world *setup;
    ist_status (*host_main)(sim_rank *rank); /* the program of a rank */
    ist_cluster cluster;
    uint32_t rank_count;
    ist_link_model link_model;
    uint64_t now_ps;
    uint64_t sequence; /* of events */
    sim_event *heap;
    uint32_t heap_count, heap_room;
    uint32_t heap_stale; /* deadline events whose wait is over */
    sim_actor *ready, *ready_tail;
    sim_actor *current;
    sim_rank *ranks;
    uint32_t hosts_alive;
    uint32_t lost_count;
    uint64_t device_op_count;
    uint64_t device_call_count; /* exploring: also rows, and words without order */
    uint64_t op_count_max;
    sim_links *links;
    uint64_t links_generation;
    bool links_changed;                 /* the next end must be asked for again */
    struct sim_link_state *link_states; /* [links], NULL until the first link fault */
    struct sim_store *held_stores;      /* words in front of a dead link, in order */
    struct sim_store *held_stores_tail;
    struct sim_put *held_puts; /* exploring: puts in front of a dead link */
    sim_faults *faults;
    sim_log log;
    sim_comm *comms;
    sim_pool ops, coops, launches, puts, stores, flows, link_ends;
    uint64_t coop_serial;
    uint64_t blocks_retired;
    uint64_t local_ps_per_kib; /* time of one block to read or write 1024 bytes of its memory */
    uint8_t *arena_base;
    uint64_t arena_bytes;  /* of its ranks */
    uint64_t arena_mapped; /* address space that there is */
    uint64_t rank_stride;
    uint32_t rank_shift; /* log2 of the stride */
    bool deadlocked;
    bool fault_struck; /* some fault of the plan has had its effect */
    bool watched;      /* exploring: somebody wants to be told of events */
    uint32_t unwind_max;
    sim_conductor *conductor; /* ranks are processes, or NULL */
    sim_explore *explore;     /* NULL: the fair scheduler */
};

/* sim_heap.c */
ist_status sim_heap_push(sim_world *world, uint64_t at_ps, sim_event_type type, void *object,
                         uint64_t token);
bool sim_heap_pop(sim_world *world, sim_event *event);
/* Drops events at the front that can have no effect any more, so that they move no clock. */
void sim_heap_skip_stale(sim_world *world);

/* sim_engine.c: running and blocking */
ist_status sim_world_loop(sim_world *world);
void sim_actor_make_ready(sim_actor *actor);
/* Runs an actor, and those it hands over to, until one yields; retires a block that has ended. */
void sim_actor_run(sim_world *world, sim_actor *actor);
void sim_event_handle(sim_world *world, sim_event *event);
/* The first half of sim_actor_block(); false: no memory for the timer. */
bool sim_actor_block_begin(sim_actor *actor, uint64_t deadline_ps);
void sim_actor_wake(sim_actor *actor);
/* Lists of actors that wait for one thing, linked by next_waiter. */
void sim_waiters_wake(sim_actor **list);
void sim_waiters_remove(sim_actor **list, sim_actor *actor);
/* Lets the world's time catch up with the actor's own, exploring or not. */
void sim_actor_sleep(sim_actor *actor);
/* Ends a block's fiber for good; does not return when it is the running one. */
void sim_actor_retire(sim_actor *actor);

/* sim_rank.c: life and death */
void sim_rank_kill(sim_rank *rank);
/* Gives up on a dead rank's program that never ends; leaves its fiber for good. */
void sim_host_abandon(sim_rank *rank);
/* sim_conductor.c: tells the process of a killed rank, when ranks are processes. */
void sim_conductor_rank_killed(sim_rank *rank);
void sim_rank_stall(sim_rank *rank, uint64_t duration_ps);
void sim_rank_resume(sim_rank *rank);
void sim_rank_fault(sim_rank *rank, const ist_fault *fault);
/* Counts one operation of the rank and lets due faults strike. */
void sim_rank_op_slow(sim_rank *rank);
void sim_world_timed_fault(sim_world *world, uint64_t index);

/* sim_link_fault.c */
typedef struct sim_link_end {
    ist_fault fault; /* to undo */
} sim_link_end;
void sim_link_fault_begin(sim_rank *rank, const ist_fault *fault);
void sim_link_fault_end(sim_world *world, sim_link_end *end);
/* Whether words can travel from one rank's GPU to another's now. */
bool sim_link_pair_up(sim_world *world, uint32_t from, uint32_t to, sim_route_kind kind);

/* sim_transfer.c */
sim_flow *sim_flow_new(sim_world *world);
void sim_flow_free(sim_world *world, sim_flow *flow);
/* Starts a routed flow. True: its end is known (flow->transfer.end_ps) and no event was made;
   false: an event of its type comes when it has arrived. */
bool sim_flow_begin(sim_world *world, sim_flow *flow);
/* As begin, but makes the event in both cases. */
void sim_flow_begin_event(sim_world *world, sim_flow *flow);
void sim_transfers_arm(sim_world *world);
void sim_transfers_poll(sim_world *world, uint64_t generation);
void sim_transfers_restart(sim_world *world);
/* Charges a local copy of `bytes` read and written to a route of one rank. */
ist_status sim_flow_route(sim_world *world, sim_flow *flow, uint32_t src, uint32_t dst,
                          sim_route_kind kind, uint64_t bytes);

static inline void sim_rank_op(sim_rank *rank)
{
    if (++rank->op_number >= rank->next_fault_op) {
        sim_rank_op_slow(rank);
    }
}

/* sim_memory.c */
ist_status sim_arena_open(sim_world *world);
void sim_arena_close(sim_world *world);
ist_status sim_memory_alloc(sim_rank *rank, size_t bytes, uint32_t flags, void **mem);
ist_status sim_memory_free(sim_rank *rank, void *mem);
sim_allocation *sim_memory_find(sim_rank *rank, const void *mem, size_t bytes);
/* Rank whose memory an address lies in, or NULL. */
static inline sim_rank *sim_memory_owner(sim_world *world, const void *address)
{
    uint64_t at = (uint64_t)(uintptr_t)address - (uint64_t)(uintptr_t)world->arena_base;
    if (at >= world->arena_bytes) { /* also below the base: the difference wraps */
        return NULL;
    }
    return &world->ranks[at >> world->rank_shift];
}

/* sim_stream.c */
ist_status sim_stream_push(sim_stream *stream, sim_stream_op *op);
/* Makes the head start as soon as it may; called whenever that may have changed. */
void sim_stream_arm(sim_stream *stream);
void sim_stream_start(sim_stream *stream);
void sim_stream_done(sim_stream *stream);
sim_stream_op *sim_op_new(sim_world *world, sim_op_kind kind);
void sim_op_free(sim_world *world, sim_stream_op *op);
ist_status sim_stream_new(sim_rank *rank, sim_stream **stream);
void sim_stream_free(sim_stream *stream);
void sim_rank_streams_drop(sim_rank *rank);
sim_host_event *sim_event_new(void);
void sim_event_unref(sim_host_event *event);

/* sim_graph.c */
ist_status sim_graph_begin(sim_stream *stream);
ist_status sim_graph_end(sim_stream *stream, sim_graph **graph);
ist_status sim_graph_launch(sim_graph *graph, sim_stream *stream);
ist_status sim_graph_capture(sim_stream *stream, sim_stream_op *op);
ist_status sim_graph_join(sim_stream *stream, sim_host_event *event);
void sim_graph_free(sim_graph *graph);

/* sim_launch.c */
ist_status sim_launch_start(sim_stream *stream, sim_stream_op *op);
void sim_blocks_drop(sim_rank *rank);

/* sim_wait.c */
bool sim_wait_block(sim_wait *wait, uint64_t deadline_ns);
void sim_wait_word_written(sim_rank *rank, const void *address, uint64_t bytes);
void sim_wait_signal_raised(sim_devcomm *dev, uint32_t context, uint32_t signal);
void sim_wait_counter_raised(sim_devcomm *dev, uint32_t context, uint32_t counter);
void sim_wait_put_done(sim_devcomm *dev, const sim_put *put);
void sim_wait_mask_changed(sim_rank *rank);
void sim_wait_peer_error(sim_devcomm *dev, uint32_t peer);
void sim_wait_barrier_written(sim_devcomm *dev, uint32_t barrier, uint32_t member);
void sim_wait_remove(sim_rank *rank, sim_wait *wait);

/* device/sim_dev_coop.c: waits for rows on the way whose end is not known yet. */
void sim_coop_await_rows(ist_coop *coop);
/* ist_coop_scratch() for a slot that exists. */
void *sim_coop_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes);

/* sim_gin.c */
void sim_put_issue(sim_put *put);
void sim_held_puts_release(sim_world *world);
sim_put *sim_put_new(sim_world *world);
void sim_put_arrive(sim_put *put);
/* Exploring: names what flushes of a context acquire. */
const void *sim_flush_key(const sim_devcomm *dev, uint32_t context);
uint64_t sim_flush_context(const sim_devcomm *dev, const void *key);

/* sim_comm.c */
ist_status sim_comm_join(sim_rank *rank, const ist_backend_comm_desc *desc, sim_member **member);
ist_status sim_comm_exchange(sim_member *member, const void *send, size_t bytes, void *recv,
                             uint64_t deadline_ns, uint64_t *lost_words);
void sim_member_wake(sim_member *member);
ist_status sim_window_register(sim_member *member, void *mem, size_t bytes, uint32_t *index);
ist_status sim_window_unregister(sim_member *member, uint32_t index);
ist_status sim_devcomm_open(sim_member *member, const ist_devcomm_desc *desc, sim_devcomm **dev);
ist_status sim_devcomm_close(sim_member *member, sim_devcomm *dev);
/* Bytes of a member's copy of a window, 0 when it is not open there. */
uint64_t sim_window_bytes(const sim_devcomm *dev, uint32_t window, uint32_t peer);
sim_devcomm *sim_devcomm_peer(const sim_devcomm *dev, uint32_t peer);
void sim_exchange_deadline(sim_exchange *exchange);
bool sim_exchange_is_over(const sim_exchange *exchange);
/* The world ends and the timer will not fire. */
void sim_exchange_timer_dropped(sim_exchange *exchange);
void sim_comms_free(sim_world *world);

/* device/sim_dev_memory.c: remote words */
void sim_store_visible(sim_store *store);
/* Sends what waited for links that are up again. */
void sim_held_stores_release(sim_world *world);
/* Copies *store and makes it visible one latency from now, or when the links allow it. */
void sim_store_send(ist_coop *coop, sim_store *store);
/* device/sim_dev_reduce.c: the sum of ist_row_reduce(); false for a type that is not a float. */
bool sim_reduce_rows(void *dst, const void *const *src, const float *weight, uint32_t count,
                     uint64_t elements, ist_dtype dtype);
/* device/sim_dev_row.c */
void sim_row_done(sim_flow *flow);

/* sim_backend.c */
extern const ist_backend_ops sim_ops;

/* Time of an actor: the world's plus its own lead. */
static inline uint64_t sim_actor_now_ps(const sim_actor *actor)
{
    return actor->world->now_ps + actor->lag_ps;
}

/* From the running actor straight to another that is ready. */
static inline void sim_actor_hand_over(sim_actor *actor, sim_actor *next)
{
    next->world->current = next;
    next->state = SIM_RUNNING;
    (void)ist_error_bind(&next->rank->error);
    sim_fiber_switch(&actor->fiber, &next->fiber);
    actor->state = SIM_RUNNING;
}

/* Waits for the rows that a block has on the way. */
static inline void sim_coop_drain(ist_coop *coop)
{
    uint64_t now_ps = sim_actor_now_ps(&coop->actor);
    if (coop->rows_until_ps > now_ps) {
        coop->actor.lag_ps += coop->rows_until_ps - now_ps;
    }
    if (coop->transfers != 0) {
        sim_coop_await_rows(coop);
    }
}

static inline uint64_t sim_ps_from_ns(uint64_t ns)
{
    return ns > SIM_NEVER / SIM_PS_PER_NS ? SIM_NEVER : ns * SIM_PS_PER_NS;
}

static inline uint64_t sim_add_sat(uint64_t a, uint64_t b)
{
    return a > SIM_NEVER - b ? SIM_NEVER : a + b;
}

/* sim_watch.c: tells the watcher. `name`: of a point; NULL: as the log knows it. */
void sim_watch_event(sim_world *world, const ist_sim_event *event, const char *name);

static inline void sim_event_log(sim_world *world, uint32_t kind, const sim_rank *rank,
                                 int32_t peer, uint32_t detail, uint64_t value)
{
    world->fault_struck = world->fault_struck || kind == IST_SIM_FAULT;
    int32_t whose = rank != NULL ? (int32_t)rank->index : -1;
    sim_log_event(&world->log, world->now_ps, kind, whose, peer, detail, value);
    if (world->watched) {
        sim_watch_event(world, &(ist_sim_event){world->now_ps, kind, whose, peer, detail, value},
                        NULL);
    }
}

#endif
