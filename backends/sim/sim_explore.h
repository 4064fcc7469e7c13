/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exploring: what the engine, the device calls and the detectors share when schedules are explored.
 * A world without it (the fair scheduler) has a NULL pointer and pays one comparison.
 *
 * Agents are what happens-before orders: host programs, streams, blocks, puts on their way. Each has
 * a vector clock; an epoch is one entry of one clock, packed with the class of an access.
 */
#ifndef SIM_EXPLORE_H
#define SIM_EXPLORE_H

#include "sim_internal.h"
#include "sim_prng.h"

#include <isthmus/unstable/explore.h>

/* ---- epochs ---------------------------------------------------------------------------------- */

/* class:2 | agent:12 | clock:18. Zero: nobody. */
typedef uint32_t sim_epoch;

#define SIM_AGENTS_MAX 4096u
#define SIM_CLOCK_BITS 18u
#define SIM_CLOCK_MAX ((1u << SIM_CLOCK_BITS) - 1u)
#define SIM_CLOCK_ROUND 8u

/* How strong an access is: rows are weak; words are strong up to a scope. */
typedef enum sim_class { SIM_WEAK = 0, SIM_STRONG_DEVICE = 1, SIM_STRONG_SYSTEM = 2 } sim_class;

static inline uint32_t sim_epoch_agent(sim_epoch epoch)
{
    return epoch >> SIM_CLOCK_BITS & (SIM_AGENTS_MAX - 1u);
}

static inline uint32_t sim_epoch_clock(sim_epoch epoch)
{
    return epoch & SIM_CLOCK_MAX;
}

static inline uint32_t sim_epoch_class(sim_epoch epoch)
{
    return epoch >> 30;
}

static inline sim_epoch sim_epoch_of(uint32_t agent, uint32_t clock, sim_class class)
{
    return (uint32_t) class << 30 | agent << SIM_CLOCK_BITS | clock;
}

/* Of an agent that nobody ever knows: the clock of agent 0 never comes so far. */
#define SIM_EPOCH_UNKNOWN SIM_CLOCK_MAX

/* ---- agents ---------------------------------------------------------------------------------- */

typedef enum sim_agent_kind {
    SIM_AGENT_INIT, /* number 0: what was there before all others */
    SIM_AGENT_HOST,
    SIM_AGENT_STREAM,
    SIM_AGENT_BLOCK,
    SIM_AGENT_NETWORK /* half of a put: reading its source, or writing its target */
} sim_agent_kind;

/* What an agent has looked at in vain, or without waiting. */
typedef struct sim_poll {
    uint64_t object; /* what tells it from others; 0: nothing yet */
    const char *what;
    uint64_t expected, seen;
    uint64_t since_ps;
    uint32_t times; /* in a row */
    uint32_t index, context;
    int32_t whom;
    bool numbered, expects;
} sim_poll;

typedef struct sim_agent {
    uint32_t *clock;       /* [clock_room] */
    uint32_t *acquired[2]; /* what relaxed loads have read, for an acquire fence; by scope */
    uint32_t released[2];  /* snapshot of the last release fence: DEVICE, SYSTEM; 0: none */
    bool acquired_any[2];
    /* BLOCK: rows count by a clock of their own, the agent behind this one. A sync of the block takes
       it over: until then a release does not cover them. */
    bool rows;           /* touched since the last sync */
    sim_epoch own[2];    /* its epoch now, without a class: of all but rows, of rows */
    uint32_t row_synced; /* what a release covers of its rows; its own clock knows them all */
    sim_agent_kind kind;
    uint32_t number;
    uint32_t row_number; /* agent that its rows count by */
    int32_t block;
    sim_rank *rank;
    const sim_rank *home;  /* whose memory it may touch outside of windows; NETWORK: nobody's */
    const sim_rank *other; /* NETWORK: the target's */
    const char *kernel;
    const char *phase;
    uint32_t label; /* of both; 0: they are new */
    sim_poll poll;
} sim_agent;

/* A clock as it was at a release. */
typedef struct sim_snapshot {
    uint32_t *clock;
    uint32_t width;
    uint32_t agent,
        at; /* whose own entry `at` implies all others; agent 0: joined, implies nothing */
} sim_snapshot;

/* ---- moves ----------------------------------------------------------------------------------- */

/* What the scheduler may let happen next. */
typedef enum sim_move_kind {
    SIM_MOVE_ACTOR,       /* object: sim_actor */
    SIM_MOVE_PUT,         /* object: sim_put; its source is read, or it lands */
    SIM_MOVE_STREAM,      /* object: sim_stream; its head starts */
    SIM_MOVE_STREAM_DONE, /* object: sim_stream; its running copy is done */
    SIM_MOVE_NONE
} sim_move_kind;

typedef struct sim_move {
    void *object;
    uint64_t priority;
    sim_move_kind kind;
    uint32_t id;   /* equal in all schedules that agree so far */
    uint32_t made; /* guided: event that made it possible */
} sim_move;

/* ---- footprints, for the reduction ------------------------------------------------------------ */

typedef struct sim_touched {
    uint64_t begin, end; /* addresses, or names of other objects */
    bool write;
} sim_touched;

/* ---- accesses -------------------------------------------------------------------------------- */

/* What an agent ran when it made accesses. */
typedef struct sim_label {
    const char *kernel;
    const char *phase;
} sim_label;

/* The newest accesses, for reports. */
#define SIM_ACCESS_RING 8192u
#define SIM_LABELS_MAX 65535u

/* 32 bytes: a thousand are written a schedule. */
typedef struct sim_access {
    uint64_t place; /* address:48 | label:16 */
    uint64_t size;  /* bytes:63 | write:1 */
    const char *call;
    sim_epoch epoch;
    uint32_t step;
} sim_access;

static inline uint64_t sim_access_address(const sim_access *access)
{
    return access->place >> 16;
}

static inline uint64_t sim_access_bytes(const sim_access *access)
{
    return access->size >> 1;
}

static inline bool sim_access_writes(const sim_access *access)
{
    return (access->size & 1u) != 0;
}

static inline uint32_t sim_access_label(const sim_access *access)
{
    return (uint32_t)(access->place & SIM_LABELS_MAX);
}

typedef struct sim_cell {
    sim_epoch write;
    sim_epoch read; /* or SIM_READS | index of a list */
} sim_cell;

/* Class 3 marks lists of readers. */
#define SIM_READS (3u << 30)
#define SIM_READERS_MAX 14u

typedef struct sim_readers {
    uint32_t count;
    uint32_t next_victim;
    sim_epoch each[SIM_READERS_MAX];
} sim_readers;

/* Pages of allocations: each lies in one, or in none. */
#define SIM_SHADOW_PAGE_LOG2 12u
#define SIM_SHADOW_CELLS (1u << (SIM_SHADOW_PAGE_LOG2 - 2u))
#define SIM_SHADOW_GROUPS (SIM_SHADOW_CELLS / 64u)

/* Neighbours that were touched alike are one run: the cell at its start holds for all of them. */
typedef struct sim_shadow_page {
    sim_rank *owner;
    bool symmetric;   /* of the allocation that it is in */
    bool zeroed;      /* by the library, before all others */
    uint32_t checked; /* windows_serial when what follows was looked up */
    /* Addresses: what others may touch, the windows; what its owner may, the allocation. */
    struct {
        uint64_t begin, end;
        uint64_t near_end; /* of the part on this page */
    } range[2];
    /* bit: a run begins at the cell; that of cell 0 is set. The last group is behind the page. */
    uint64_t starts[SIM_SHADOW_GROUPS + 1u];
    uint64_t worded[SIM_SHADOW_GROUPS]; /* bit: a word begins at the cell */
    /* What lies behind is not cleared: cells hold at the starts of runs, words where a bit says so. */
    sim_cell cells[SIM_SHADOW_CELLS + 1u]; /* the last is behind the page */
    uint32_t words[SIM_SHADOW_CELLS];      /* index of a sim_word */
} sim_shadow_page;

/* Pages met last, by the number of the page of memory: each has one place where it may be. */
#define SIM_NEAR_LOG2 8u
typedef struct sim_near {
    uint64_t number; /* UINT64_MAX: none */
    sim_shadow_page *page;
} sim_near;

/* Pages of one rank, by offset. */
typedef struct sim_shadow {
    sim_shadow_page **pages; /* [room] NULL: none; they belong to the pool */
    uint32_t room;
    uint32_t high; /* pages that may be there */
    uint32_t
        fenced; /* snapshot of all that the rank's release fences of the system cover; 0: none */
} sim_shadow;

/* ---- words ----------------------------------------------------------------------------------- */

#define SIM_STORES_KEPT 8u
#define SIM_SEEN_KEPT 8u

typedef struct sim_store_seen {
    uint64_t value;
    sim_epoch epoch;
    uint32_t released[2]; /* snapshots that an acquire at DEVICE, SYSTEM scope joins; 0: none */
} sim_store_seen;

/* One word that was stored to as a word: its newest stores, in the order of coherence. Most are
   stored to once: that takes the first 64 bytes. */
typedef struct sim_word {
    uint32_t width; /* 4, 8; 0: not known yet */
    uint32_t first; /* order of the oldest store kept */
    uint32_t next;  /* order of the next store */
    uint16_t seen_count;
    uint16_t stale_reads; /* in a row */
    sim_store_seen stores[SIM_STORES_KEPT];
    struct {
        uint32_t agent, clock, order;
    } seen[SIM_SEEN_KEPT]; /* what agents have read last: they never go back */
    uint64_t newest_ps;    /* when the newest store was made */
} sim_word;

/* Where words are that lie in no device memory: signals, counters, barriers. */
typedef struct sim_word_key {
    uint64_t address;
    uint32_t generation; /* of the world it belongs to */
    uint32_t word;
} sim_word_key;

/* ---- guided search ---------------------------------------------------------------------------- */

/* How a driver (sim_search.c) steers a run; NULL callbacks for single runs. */
typedef struct sim_guide {
    void *context;
    /* Chooses a move. `self` is the running actor's id when it may go on, else UINT32_MAX; pick 0 is
       it, then moves[0] … Returns UINT32_MAX to cut the run short. */
    uint32_t (*pick_move)(void *context, sim_explore *explore, uint32_t self);
    /* Chooses among `count` values. */
    uint32_t (*pick_value)(void *context, uint32_t count);
} sim_guide;

/* ---- the whole ------------------------------------------------------------------------------- */

struct sim_explore {
    sim_world *world;
    ist_explore_desc desc;
    const sim_guide *guide;
    ist_explore_report report;
    sim_prng prng;
    union {
        struct {
            bool stopped;      /* a finding or a guide ends the world */
            bool closing;      /* the world is being taken down: no detectors any more */
            bool blind;        /* no detector that is on needs to know who touched what */
            bool keep_touches; /* for a search */
        };
        uint32_t special; /* 0: none of them */
    };
    bool cut;     /* by the guide */
    bool gave_up; /* some rank has masked another, is dead, or has aborted */

    sim_move *moves;
    uint32_t move_count, move_room;
    uint32_t quiet_count; /* the first so many are made before all others, without a choice */
    uint32_t move_id;
    sim_move next;         /* chosen by the actor that has just yielded; kind NONE: nothing */
    uint64_t challenger;   /* highest priority among the moves */
    uint32_t ahead;        /* RANDOM: so many more choices let who runs go on */
    uint32_t change_next;  /* PCT: points used */
    uint32_t *change_at;   /* [depth - 1], ascending */
    uint64_t change_point; /* PCT: the next one; 0: another scheduler */
    uint64_t points;       /* choices with more than one alternative, PCT's clock */
    uint32_t replay_next;
    ist_choice *picks; /* deviations made */
    uint32_t pick_count, pick_room;

    sim_agent *agents; /* [SIM_AGENTS_MAX] */
    uint32_t agent_count;
    uint32_t agent_high; /* ever used: their clocks are allocated */
    uint32_t clock_room; /* entries of a clock */
    bool agents_full;
    uint32_t *network; /* agents of puts that are free again */
    uint32_t network_free;

    sim_snapshot *snapshots; /* [0] unused */
    uint32_t snapshot_count, snapshot_room;
    uint32_t **chunks; /* memory of snapshots */
    uint32_t chunk_count, chunk_room, chunk_at, chunk_used;

    sim_near near[1u << SIM_NEAR_LOG2];
    sim_shadow *shadows; /* [rank_count] */
    uint32_t shadow_room;
    sim_shadow_page **pages;
    uint32_t page_count, page_room, page_high;
    uint32_t windows_serial; /* grows when some window opens or closes */
    sim_readers *readers;
    uint32_t reader_count, reader_room;
    sim_access *ring; /* [SIM_ACCESS_RING] */
    uint64_t ring_count;

    sim_label *labels; /* [0] unused */
    uint32_t label_count, label_room;

    sim_word *words;
    uint32_t word_room, word_count;
    sim_word_key *keys; /* open addressing */
    uint32_t key_room, key_count;
    uint32_t generation;

    sim_touched *touches; /* NULL: not kept */
    uint32_t touch_count, touch_room;
    bool time_passed; /* guided: since the last event; all before it is ordered before all after */
    uint32_t event;   /* guided: number of the running one */
    uint64_t step_max;
    uint32_t step;     /* steps so far; also the number of the running one */
    uint32_t actor_id; /* id of the running actor in the search */
};

/* sim_explore.c: a world's explorer, from the thread's spare one. */
ist_status sim_explore_open(sim_world *world);
void sim_explore_close(sim_world *world);
/* Frees what the thread keeps. */
void sim_explore_trim(void);
/* Writes the report; after the world has ended, before it is closed. */
void sim_explore_finish(sim_world *world, ist_status status);
/* The guide of the next world of this thread, or NULL. */
void sim_explore_guide(const sim_guide *guide);
/* Exchanges the touches of the thread's last world for another array. */
void sim_explore_lend_touches(sim_touched **touches, uint32_t *count, uint32_t *room);

/* sim_moves.c: the loop's and the actors' part of scheduling. */
void sim_move_add(sim_explore *explore, sim_move_kind kind, void *object);
void sim_move_remove(sim_explore *explore, const void *object);
/* The running actor is about to yield: the actor that is chosen to follow it, or NULL: the loop
   knows what comes next. */
sim_actor *sim_explore_next(sim_world *world);
/* Makes one move, or lets time pass; false: nothing can ever happen. */
bool sim_explore_advance(sim_world *world);
/* The programs have ended: a search wants to know what is still under way, too. */
void sim_explore_drain(sim_world *world);

/* sim_choose.c: who decides. */
ist_status sim_choose_begin(sim_explore *explore, uint64_t seed);
uint64_t sim_choose_priority(sim_explore *explore);
/* Alternative 0 … count-1 of a load. */
uint32_t sim_choose_value(sim_explore *explore, uint32_t count);
/* Index among [self], moves; self: the running actor may go on. UINT32_MAX: the run is cut short. */
uint32_t sim_choose_move(sim_explore *explore, sim_actor *self);
/* The same, where it is certain at once that the running actor goes on; else false, and no choice is
   made. There is an alternative. */
static inline bool sim_choose_easy(sim_explore *explore, const sim_actor *self)
{
    if (explore->ahead > 0) {
        --explore->ahead;
    } else if (explore->points >= explore->change_point || self->priority < explore->challenger) {
        return false;
    }
    ++explore->points;
    return true;
}

/* An actor that has run so far ahead polls: it waits until all is quiet. */
#define SIM_POLL_HOST_PS (1000ull * 1000 * 1000)
#define SIM_POLL_BLOCK_PS (100ull * 1000 * 1000)

/* Who runs goes on, because nothing else can happen, or by a choice that needs no look at the moves. */
static inline bool sim_step_easy(sim_explore *explore, const sim_actor *actor)
{
    uint64_t lag_max_ps = actor->is_host ? SIM_POLL_HOST_PS : SIM_POLL_BLOCK_PS;
    if (explore->step > explore->step_max || actor->lag_ps > lag_max_ps || actor->rank->dead ||
        explore->stopped ||
        (actor->is_host && (explore->desc.options & IST_EXPLORE_QUIET_HOSTS) != 0)) {
        return false;
    }
    if (explore->move_count <= explore->quiet_count) {
        return explore->guide == NULL;
    }
    return sim_choose_easy(explore, actor);
}

/* Returns who follows the running actor, or NULL: it goes on. The jump is the caller's, as each return
   behind it would be mispredicted. */
sim_actor *sim_explore_step_slow(sim_actor *actor);
/* A step of the running actor that others can observe. */
static inline void sim_explore_step(sim_actor *actor)
{
    sim_explore *explore = actor->world->explore;
    ++explore->step;
    explore->actor_id = actor->move_id;
    if (!sim_step_easy(explore, actor)) {
        sim_actor *next = sim_explore_step_slow(actor);
        if (next != NULL) {
            sim_actor_hand_over(actor, next);
            explore->actor_id = actor->move_id;
        }
    }
}

/* Lets the world's time catch up with the actor's own; exploring: a step instead. */
static inline void sim_actor_sync(sim_actor *actor)
{
    if (actor->world->explore != NULL) {
        sim_explore_step(actor);
    } else {
        sim_actor_sleep(actor);
    }
}

/* The running actor gives the thread away; its state says what must happen before it runs again. */
static inline void sim_actor_switch(sim_actor *actor)
{
    sim_actor *next = actor->world->explore != NULL ? sim_explore_next(actor->world) : NULL;
    if (next == NULL) {
        sim_fiber_yield(&actor->fiber);
        actor->state = SIM_RUNNING;
    } else {
        sim_actor_hand_over(actor, next);
    }
}

/* Blocks the running actor until woken or `deadline_ps` (absolute; SIM_NEVER: none).
   Returns false when the deadline ended it. */
static inline bool sim_actor_block(sim_actor *actor, uint64_t deadline_ps)
{
    if (!sim_actor_block_begin(actor, deadline_ps)) {
        return false;
    }
    sim_actor_switch(actor);
    return !actor->timed_out;
}

/* sim_agent.c: clocks. */
ist_status sim_agents_begin(sim_explore *explore);
uint32_t sim_agent_new(sim_explore *explore, sim_agent_kind kind, sim_rank *rank, int32_t block);
/* Two agents of a block: its own, which is returned, and behind it the one that its rows count by. */
uint32_t sim_agent_block(sim_explore *explore, sim_rank *rank, int32_t block);
uint32_t sim_agent_network(sim_explore *explore, sim_rank *rank, sim_rank *other);
void sim_agent_network_done(sim_explore *explore, uint32_t agent);
uint32_t sim_agent_of(sim_explore *explore, sim_actor *actor);
uint32_t sim_agent_stream(sim_explore *explore, sim_stream *stream);
/* The agent's clock for others to join; its later accesses are not covered. */
uint32_t sim_agent_release(sim_explore *explore, uint32_t agent);
/* The same of what it knew, without a new epoch. */
void sim_agent_join(sim_explore *explore, uint32_t agent, uint32_t snapshot);
/* The next acquire fence will join it; `far`: released at the scope of the system. */
void sim_agent_note(sim_explore *explore, uint32_t agent, uint32_t snapshot, uint32_t far);
uint32_t sim_snapshot_join(sim_explore *explore, uint32_t one, uint32_t other);
/* `to` begins after all that `from` has done. */
void sim_agent_order(sim_explore *explore, uint32_t from, uint32_t to);
void sim_agent_fence(sim_explore *explore, uint32_t agent, ist_order order, ist_scope scope);
/* All lanes of the block have met. */
void sim_agent_sync(sim_explore *explore, uint32_t agent);
static inline bool sim_agent_knows(const sim_agent *agent, sim_epoch epoch)
{
    return sim_epoch_clock(epoch) <= agent->clock[sim_epoch_agent(epoch)];
}

/* sim_shadow.c: who touched which bytes. */
/* Both return the page of the first byte, or NULL, as sim_shadow_page_at(). */
sim_shadow_page *sim_shadow_read(sim_explore *explore, uint32_t agent, const void *address,
                                 uint64_t bytes, sim_class class, const char *call);
sim_shadow_page *sim_shadow_write(sim_explore *explore, uint32_t agent, const void *address,
                                  uint64_t bytes, sim_class class, const char *call);
static inline sim_shadow_page *sim_shadow_access(sim_explore *explore, uint32_t agent,
                                                 const void *address, uint64_t bytes, bool write,
                                                 sim_class class, const char *call)
{
    return write ? sim_shadow_write(explore, agent, address, bytes, class, call)
                 : sim_shadow_read(explore, agent, address, bytes, class, call);
}
/* A row is read and written elsewhere. Returns the rank whose memory that is, or NULL. */
sim_rank *sim_shadow_copy(sim_explore *explore, uint32_t agent, void *to, const void *from,
                          uint64_t bytes, const char *call);
void sim_shadow_freed(sim_rank *rank, uint64_t offset, uint64_t bytes);
/* The page of an address in device memory, or NULL: it lies elsewhere, or there is no memory. */
sim_shadow_page *sim_shadow_page_at(sim_explore *explore, const void *address);
void sim_shadow_begin(sim_explore *explore);
/* Detectors have been turned on or off. */
void sim_shadow_watch(sim_explore *explore);
/* Whether every device call so far was looked at. */
bool sim_shadow_is_complete(const sim_explore *explore);

/* sim_word.c: words with a memory order. */
uint64_t sim_word_load(sim_explore *explore, uint32_t agent, const void *word, uint32_t width,
                       ist_order order, ist_scope scope, const char *call);
/* Returns the rank whose memory it is in, or NULL. */
sim_rank *sim_word_store(sim_explore *explore, uint32_t agent, void *word, uint64_t value,
                         uint32_t width, ist_order order, ist_scope scope, const char *call);
/* A store whose release was made earlier, when it was sent. */
void sim_word_arrive(sim_explore *explore, uint32_t agent, void *word, uint64_t value,
                     uint32_t width, uint32_t released);
/* Read and write in one; returns the value before. `kind` as in sim_word_atomic. */
typedef enum sim_word_op { SIM_WORD_ADD, SIM_WORD_AND, SIM_WORD_SWAP } sim_word_op;
uint64_t sim_word_update(sim_explore *explore, uint32_t agent, uint64_t *word, sim_word_op op,
                         uint64_t operand, uint64_t expected, ist_order order, ist_scope scope);
/* An acquire of the word's newest value that a wait has seen. */
void sim_word_acquire(sim_explore *explore, uint32_t agent, const void *word, uint32_t width,
                      ist_scope scope, bool acquires, const char *call);
void sim_words_begin(sim_explore *explore);
/* Acquires all words of a range that were stored to as words. */
void sim_words_acquire(sim_explore *explore, uint32_t agent, const void *mem, uint64_t bytes);
/* A row was copied: words that others store as words are each old or new, once races are not judged; old
   no longer than a store takes on its way. */
void sim_words_copied(sim_explore *explore, uint32_t agent, void *dst, const void *src,
                      uint64_t bytes);
/* What has no bytes of its own (signals, counters): `key` names it. */
void sim_key_release(sim_explore *explore, const void *key, uint32_t released);
void sim_key_acquire(sim_explore *explore, uint32_t agent, const void *key, bool acquires);

/* sim_finding.c: reports. */
void sim_finding_race(sim_explore *explore, uint32_t agent, const sim_access *access,
                      uint64_t address, sim_epoch other, bool other_writes);
void sim_finding_access(sim_explore *explore, ist_finding_kind kind, const sim_access *access,
                        const char *why);
void sim_finding_words(sim_explore *explore, ist_finding_kind kind, sim_rank *rank,
                       ist_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void sim_finding_wait(sim_explore *explore, ist_finding_kind kind, const ist_finding *wait,
                      const char *graph);
/* sim_waits.c: who waits for what, when all is quiet. */
#define SIM_GRAPH_BYTES 1100u
typedef struct sim_graph_text {
    char text[SIM_GRAPH_BYTES];
    size_t used;
} sim_graph_text;
void sim_graph_add(sim_graph_text *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A wait has ended in vain. */
void sim_wait_in_vain(sim_explore *explore, const sim_wait *wait);
/* sim_polls.c: who looks at what again and again. */
void sim_poll_note(sim_explore *explore, uint32_t agent, const sim_poll *look);
void sim_polls_describe(sim_explore *explore, sim_graph_text *graph, ist_finding *finding);
void sim_finding_deadlock(sim_explore *explore, ist_finding_kind kind);
bool sim_waits_stuck(sim_explore *explore);
void sim_waits_shape(sim_explore *explore);

static inline bool sim_detects(const sim_explore *explore, ist_finding_kind kind)
{
    return (explore->desc.detectors_off >> kind & 1u) == 0 && !explore->closing;
}

/* sim_collective.c: members of a communicator make the same collective calls in the same order. */
typedef enum sim_collective_kind {
    SIM_COLLECTIVE_EXCHANGE,
    SIM_COLLECTIVE_WINDOW,
    SIM_COLLECTIVE_DEVCOMM
} sim_collective_kind;
void sim_collective_check(sim_member *member, sim_collective_kind kind, uint64_t value);
/* The program of a rank has ended: what has it left? */
void sim_leak_check(sim_rank *rank);

/* sim_search.c */
void sim_touch_note(sim_explore *explore, uint64_t begin, uint64_t bytes, bool write);
/* Bytes of device memory: their addresses are equal in all runs of a thread. */
static inline void sim_touch(sim_explore *explore, const void *address, uint64_t bytes, bool write)
{
    if (explore->keep_touches) {
        sim_touch_note(explore, (uint64_t)(uintptr_t)address, bytes, write);
    }
}

/* Other things that steps share get names that are equal in all runs. */
typedef enum sim_name {
    SIM_NAME_SIGNAL = 8, /* above all addresses */
    SIM_NAME_COUNTER,
    SIM_NAME_FLUSH,
    SIM_NAME_BARRIER,
    SIM_NAME_STREAM,
    SIM_NAME_PAIR,
    SIM_NAME_COLL
} sim_name;

static inline void sim_touch_named(sim_explore *explore, sim_name name, const sim_rank *rank,
                                   uint32_t instance, uint64_t index, uint64_t count, bool write)
{
    if (explore->keep_touches) {
        uint64_t base = (uint64_t)name << 60 | (uint64_t)(rank->index & 0xffffu) << 44 |
                        (uint64_t)(instance & 0xfffu) << 32;
        sim_touch_note(explore, base + index, count, write);
    }
}

#endif
