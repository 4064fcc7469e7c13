/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents and their vector clocks: happens-before as FastTrack keeps it (Flanagan and Freund, PLDI
 * 2009). Agents are host programs, streams, blocks and the halves of puts; a later launch on a
 * stream reuses the agents of its blocks, which is sound as it begins after the earlier one.
 */
#include "sim_explore.h"

#include <string.h>

#define SIM_CLOCK_ROOM_FIRST 64u
#define SIM_CHUNK_WORDS (1u << 16)
#define SIM_NETWORK_AGENTS 512u

static uint32_t sim_width(const sim_explore *explore)
{
    return (explore->agent_count + SIM_CLOCK_ROUND - 1u) & ~(SIM_CLOCK_ROUND - 1u);
}

/* Four clocks side by side. */
typedef int32_t sim_lanes __attribute__((vector_size(16)));

/* `into` = the later of both, entry by entry; clocks have fewer than 32 bits. */
static void sim_clock_join(uint32_t *restrict into, const uint32_t *restrict from, uint32_t width)
{
    for (uint32_t i = 0; i < width; i += 4u) {
        sim_lanes one, other;
        memcpy(&one, into + i, sizeof(one));
        memcpy(&other, from + i, sizeof(other));
        sim_lanes later = one < other;
        one = (other & later) | (one & ~later);
        memcpy(into + i, &one, sizeof(one));
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool sim_clocks_widen(sim_explore *explore, uint32_t room)
{
    for (uint32_t i = 0; i < explore->agent_high; ++i) {
        sim_agent *agent = &explore->agents[i];
        uint32_t *clock = ist_alloc((size_t)room * 3u, sizeof(*clock));
        if (clock == NULL) {
            return false;
        }
        if (agent->clock != NULL && i < explore->agent_count) {
            memcpy(clock, agent->clock, explore->clock_room * sizeof(*clock));
            for (uint32_t s = 0; s < 2; ++s) {
                memcpy(clock + (size_t)room * (s + 1u), agent->acquired[s],
                       explore->clock_room * sizeof(*clock));
            }
        }
        ist_free(agent->clock);
        agent->clock = clock;
        agent->acquired[0] = clock + room;
        agent->acquired[1] = clock + 2u * (size_t)room;
    }
    explore->clock_room = room;
    return true;
}

static bool sim_agent_memory(sim_explore *explore, uint32_t number)
{
    if (number >= explore->clock_room && !sim_clocks_widen(explore, explore->clock_room * 2u)) {
        return false;
    }
    if (number < explore->agent_high) {
        return true;
    }
    sim_agent *agent = &explore->agents[number];
    agent->clock = ist_alloc((size_t)explore->clock_room * 3u, sizeof(*agent->clock));
    if (agent->clock == NULL) {
        return false;
    }
    agent->acquired[0] = agent->clock + explore->clock_room;
    agent->acquired[1] = agent->clock + 2u * (size_t)explore->clock_room;
    explore->agent_high = number + 1u;
    return true;
}

static __attribute__((noinline)) bool sim_snapshot_chunk(sim_explore *explore)
{
    uint32_t next = explore->chunk_count == 0 ? 0 : explore->chunk_at + 1u;
    if (next == explore->chunk_room) {
        uint32_t room = explore->chunk_room == 0 ? 16u : explore->chunk_room * 2u;
        uint32_t **chunks = ist_alloc(room, sizeof(*chunks));
        if (chunks == NULL) {
            return false;
        }
        if (explore->chunk_count > 0) {
            memcpy(chunks, explore->chunks, explore->chunk_count * sizeof(*chunks));
        }
        ist_free(explore->chunks);
        explore->chunks = chunks;
        explore->chunk_room = room;
    }
    if (next == explore->chunk_count) {
        explore->chunks[next] = ist_alloc(SIM_CHUNK_WORDS, sizeof(uint32_t));
        if (explore->chunks[next] == NULL) {
            return false;
        }
        ++explore->chunk_count;
    }
    explore->chunk_at = next;
    explore->chunk_used = 0;
    return true;
}

static inline uint32_t *sim_snapshot_words(sim_explore *explore, uint32_t width)
{
    if ((explore->chunk_count == 0 || explore->chunk_used + width > SIM_CHUNK_WORDS) &&
        !sim_snapshot_chunk(explore)) {
        return NULL;
    }
    uint32_t *words = explore->chunks[explore->chunk_at] + explore->chunk_used;
    explore->chunk_used += width;
    return words;
}

static __attribute__((noinline)) bool sim_snapshots_grow(sim_explore *explore)
{
    uint32_t room = explore->snapshot_room == 0 ? 1024u : explore->snapshot_room * 2u;
    sim_snapshot *table = ist_alloc(room, sizeof(*table));
    if (table == NULL) {
        return false;
    }
    if (explore->snapshot_room > 0) {
        memcpy(table, explore->snapshots, explore->snapshot_count * sizeof(*table));
    }
    ist_free(explore->snapshots);
    explore->snapshots = table;
    explore->snapshot_room = room;
    return true;
}

static inline sim_snapshot *sim_snapshot_new(sim_explore *explore, uint32_t *number)
{
    if (explore->snapshot_count >= explore->snapshot_room && !sim_snapshots_grow(explore)) {
        return NULL;
    }
    sim_snapshot *made = &explore->snapshots[explore->snapshot_count];
    made->width = sim_width(explore);
    made->clock = sim_snapshot_words(explore, made->width);
    if (made->clock == NULL) {
        return NULL;
    }
    *number = explore->snapshot_count++;
    return made;
}

static void sim_races_off(sim_explore *explore)
{
    if (!explore->agents_full) {
        ist_log(IST_LOG_WARN,
                "a schedule is too large to be watched for races to its end: %u agents",
                explore->agent_count);
    }
    explore->agents_full = true;
    explore->desc.detectors_off |=
        IST_DETECTOR(IST_FINDING_RACE) | IST_DETECTOR(IST_FINDING_REUSED);
    sim_shadow_watch(explore);
}

/* ---- agents ---------------------------------------------------------------------------------- */

ist_status sim_agents_begin(sim_explore *explore)
{
    if (explore->agents == NULL || explore->network == NULL) {
        ist_free(explore->agents);
        ist_free(explore->network);
        explore->agents = ist_alloc(SIM_AGENTS_MAX, sizeof(*explore->agents));
        explore->network = ist_alloc(SIM_NETWORK_AGENTS, sizeof(*explore->network));
        explore->clock_room = SIM_CLOCK_ROOM_FIRST;
        explore->agent_high = 0;
        if (explore->agents == NULL || explore->network == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the clocks of %u agents",
                             SIM_AGENTS_MAX);
        }
    }
    explore->agent_count = 0;
    explore->agents_full = false;
    explore->network_free = 0;
    explore->snapshot_count = 1;
    explore->chunk_at = 0;
    explore->chunk_used = 0;
    (void)sim_agent_new(explore, SIM_AGENT_INIT, NULL, -1);
    return explore->agent_count == 1 ? IST_OK
                                     : ist_raise(IST_ERR_MEMORY, NULL, "no memory for clocks");
}

/* Its clock has moved. */
static inline void sim_agent_now(sim_agent *agent)
{
    agent->own[0] = sim_epoch_of(agent->number, agent->clock[agent->number], SIM_WEAK);
    agent->own[1] = sim_epoch_of(agent->row_number, agent->clock[agent->row_number], SIM_WEAK);
}

uint32_t sim_agent_new(sim_explore *explore, sim_agent_kind kind, sim_rank *rank, int32_t block)
{
    uint32_t number = explore->agent_count;
    if (number == SIM_AGENTS_MAX || !sim_agent_memory(explore, number)) {
        sim_races_off(explore);               /* more agents than can be told apart */
        return number < 2u ? 0 : number - 2u; /* the one behind it is there, too: a block's rows */
    }
    ++explore->agent_count;
    sim_agent *agent = &explore->agents[number];
    agent->kind = kind;
    agent->number = number;
    agent->row_number = number;
    agent->rank = rank;
    agent->home = kind == SIM_AGENT_NETWORK ? NULL : rank;
    agent->other = NULL;
    agent->block = block;
    agent->kernel = kind == SIM_AGENT_HOST     ? "host"
                    : kind == SIM_AGENT_STREAM ? "stream"
                                               : "network";
    agent->phase = "";
    agent->label = 0;
    agent->poll.object = 0;
    agent->poll.times = 0;
    agent->rows = false;
    agent->row_synced = 0;
    memset(agent->released, 0, sizeof(agent->released));
    memset(agent->acquired_any, 0, sizeof(agent->acquired_any));
    memset(agent->clock, 0, explore->clock_room * 3u * sizeof(*agent->clock));
    agent->clock[0] = 1; /* what was there before */
    agent->clock[number] = 1;
    sim_agent_now(agent);
    return number;
}

uint32_t sim_agent_block(sim_explore *explore, sim_rank *rank, int32_t block)
{
    uint32_t number = sim_agent_new(explore, SIM_AGENT_BLOCK, rank, block);
    uint32_t rows = sim_agent_new(explore, SIM_AGENT_BLOCK, rank, block);
    sim_agent *agent = &explore->agents[number];
    if (rows == number + 1u && agent->row_number == number) {
        agent->row_number = rows;
        agent->clock[rows] = 1;
        sim_agent_now(agent);
    }
    return number;
}

/* A free agent of the same pair of ranks, or 0. */
static uint32_t sim_network_free(sim_explore *explore, const sim_rank *rank, const sim_rank *other)
{
    for (uint32_t i = explore->network_free; i-- > 0;) {
        uint32_t number = explore->network[i];
        const sim_agent *agent = &explore->agents[number];
        if (agent->rank == rank && agent->other == other) {
            explore->network[i] = explore->network[--explore->network_free];
            return number;
        }
    }
    return 0;
}

uint32_t sim_agent_network(sim_explore *explore, sim_rank *rank, sim_rank *other)
{
    uint32_t number = sim_network_free(explore, rank, other);
    if (number == 0) {
        number = sim_agent_new(explore, SIM_AGENT_NETWORK, rank, -1);
        explore->agents[number].other = other;
        return number;
    }
    /* An old one again: its earlier accesses stay unordered with those who do not know it. */
    sim_agent *agent = &explore->agents[number];
    uint32_t now = agent->clock[number] + 1u;
    memset(agent->clock, 0, explore->clock_room * sizeof(*agent->clock));
    agent->clock[0] = 1;
    agent->clock[number] = now & SIM_CLOCK_MAX;
    sim_agent_now(agent);
    return number;
}

void sim_agent_network_done(sim_explore *explore, uint32_t number)
{
    if (number != 0 && explore->network_free < SIM_NETWORK_AGENTS) {
        explore->network[explore->network_free++] = number;
    }
}

uint32_t sim_agent_of(sim_explore *explore, sim_actor *actor)
{
    if (actor->agent == 0) {
        actor->agent = sim_agent_new(explore, SIM_AGENT_HOST, actor->rank, -1);
    }
    return actor->agent;
}

uint32_t sim_agent_stream(sim_explore *explore, sim_stream *stream)
{
    if (stream->agent == 0) {
        stream->agent = sim_agent_new(explore, SIM_AGENT_STREAM, stream->rank, -1);
    }
    return stream->agent;
}

/* ---- order ----------------------------------------------------------------------------------- */

static void sim_agent_tick(sim_explore *explore, sim_agent *agent)
{
    uint32_t *own = &agent->clock[agent->number];
    if (*own + 2u >= SIM_CLOCK_MAX) {
        sim_races_off(explore); /* too long a run to tell its epochs apart */
        return;
    }
    ++*own;
    ++agent->own[0];
    agent->own[1] += agent->row_number == agent->number;
}

/* Rows since the last sync are not covered, though the agent itself knows them. */
static inline uint32_t sim_rows_hide(sim_agent *agent)
{
    uint32_t *rows = &agent->clock[agent->row_number];
    uint32_t own = *rows;
    *rows = agent->row_number != agent->number ? agent->row_synced : own;
    return own;
}

uint32_t sim_agent_release(sim_explore *explore, uint32_t number)
{
    sim_agent *agent = &explore->agents[number];
    uint32_t made = 0;
    sim_snapshot *snapshot = sim_snapshot_new(explore, &made);
    if (snapshot == NULL) {
        return 0;
    }
    memcpy(snapshot->clock, agent->clock, snapshot->width * sizeof(*snapshot->clock));
    if (agent->row_number != number) {
        snapshot->clock[agent->row_number] = agent->row_synced;
    }
    snapshot->agent = number;
    snapshot->at = agent->clock[number];
    sim_agent_tick(explore, agent);
    return made;
}

void sim_agent_join(sim_explore *explore, uint32_t number, uint32_t from)
{
    sim_agent *agent = &explore->agents[number];
    const sim_snapshot *snapshot = &explore->snapshots[from];
    if (from == 0 || (snapshot->agent != 0 && agent->clock[snapshot->agent] >= snapshot->at)) {
        return;
    }
    sim_clock_join(agent->clock, snapshot->clock, snapshot->width);
}

void sim_agent_note(sim_explore *explore, uint32_t number, uint32_t from, uint32_t far)
{
    sim_agent *agent = &explore->agents[number];
    const sim_snapshot *snapshot = &explore->snapshots[from];
    sim_clock_join(agent->acquired[far], snapshot->clock, snapshot->width);
    agent->acquired_any[far] = true;
}

/* Whether one snapshot surely knows all of the other: it knows its release. */
static bool sim_snapshot_covers(const sim_explore *explore, uint32_t one, uint32_t other)
{
    const sim_snapshot *larger = &explore->snapshots[one];
    const sim_snapshot *smaller = &explore->snapshots[other];
    return smaller->agent != 0 && smaller->agent < larger->width &&
           larger->clock[smaller->agent] >= smaller->at;
}

uint32_t sim_snapshot_join(sim_explore *explore, uint32_t one, uint32_t other)
{
    if (one == 0 || other == 0 || one == other) {
        return one == 0 ? other : one;
    }
    if (sim_snapshot_covers(explore, one, other)) {
        return one;
    }
    if (sim_snapshot_covers(explore, other, one)) {
        return other;
    }
    uint32_t made = 0;
    sim_snapshot *snapshot = sim_snapshot_new(explore, &made);
    if (snapshot == NULL) {
        return one;
    }
    const sim_snapshot *first = &explore->snapshots[one];
    const sim_snapshot *second = &explore->snapshots[other];
    memset(snapshot->clock + first->width, 0,
           (snapshot->width - first->width) * sizeof(*snapshot->clock));
    memcpy(snapshot->clock, first->clock, first->width * sizeof(*snapshot->clock));
    sim_clock_join(snapshot->clock, second->clock, second->width);
    snapshot->agent = 0;
    snapshot->at = 0;
    return made;
}

void sim_agent_order(sim_explore *explore, uint32_t from, uint32_t to)
{
    if (from == to) {
        return;
    }
    sim_agent *source = &explore->agents[from];
    sim_agent *target = &explore->agents[to];
    sim_agent_sync(explore, from);
    uint32_t rows = sim_rows_hide(source);
    sim_clock_join(target->clock, source->clock, sim_width(explore));
    source->clock[source->row_number] = rows;
    sim_agent_tick(explore, source);
}

void sim_agent_sync(sim_explore *explore, uint32_t number)
{
    sim_agent *agent = &explore->agents[number];
    if (!agent->rows) {
        return;
    }
    agent->rows = false;
    if (agent->row_number == number) {
        return;
    }
    uint32_t *clock = &agent->clock[agent->row_number];
    agent->row_synced = *clock;
    if (*clock + 2u >= SIM_CLOCK_MAX) {
        sim_races_off(explore);
        return;
    }
    ++*clock;
    ++agent->own[1];
}

void sim_agent_fence(sim_explore *explore, uint32_t number, ist_order order, ist_scope scope)
{
    sim_agent *agent = &explore->agents[number];
    if (scope < IST_SCOPE_DEVICE) {
        return;
    }
    if (order == IST_ACQUIRE || order == IST_ACQ_REL) {
        /* What was stored with SYSTEM scope may be acquired at DEVICE scope by the same rank. */
        for (uint32_t s = 0; s < (scope == IST_SCOPE_SYSTEM ? 2u : 1u); ++s) {
            if (agent->acquired_any[s]) {
                sim_clock_join(agent->clock, agent->acquired[s], sim_width(explore));
                memset(agent->acquired[s], 0, explore->clock_room * sizeof(uint32_t));
                agent->acquired_any[s] = false;
            }
        }
    }
    if (order == IST_RELEASE || order == IST_ACQ_REL) {
        uint32_t snapshot = sim_agent_release(explore, number);
        agent->released[0] = snapshot;
        if (scope == IST_SCOPE_SYSTEM) {
            uint32_t *fenced = &explore->shadows[agent->rank->index].fenced;
            agent->released[1] = snapshot;
            *fenced = sim_snapshot_join(explore, *fenced, snapshot);
        }
    }
}
