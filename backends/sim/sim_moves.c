/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exploring, the loop's part: what may happen next stands in a list in the order in which it became
 * possible. The running actor asks before each step that others can observe; deliveries happen on
 * its stack, another actor costs a switch. Time passes when the list is empty.
 */
#include "sim_explore.h"

#include <string.h>

/* ---- the list -------------------------------------------------------------------------------- */

/* Moves that a take shifts without counting them: a loop's end would be mispredicted each time. */
#define SIM_MOVES_SHIFTED 8u

static __attribute__((noinline)) bool sim_moves_grow(sim_explore *explore)
{
    uint32_t room = explore->move_room == 0 ? 64u : explore->move_room * 2u;
    sim_move *moves = ist_alloc(room + SIM_MOVES_SHIFTED, sizeof(*moves));
    if (moves == NULL) {
        return false;
    }
    if (explore->move_count > 0) {
        memcpy(moves, explore->moves, explore->move_count * sizeof(*moves));
    }
    ist_free(explore->moves);
    explore->moves = moves;
    explore->move_room = room;
    return true;
}

/* Programs and queues, when they take turns quietly. */
static bool sim_move_is_quiet(const sim_explore *explore, sim_move_kind kind, const void *object)
{
    if ((explore->desc.options & IST_EXPLORE_QUIET_HOSTS) == 0) {
        return false;
    }
    return kind == SIM_MOVE_ACTOR ? ((const sim_actor *)object)->is_host : kind != SIM_MOVE_PUT;
}

static uint32_t sim_move_number(sim_explore *explore, sim_move_kind kind, void *object)
{
    if (kind == SIM_MOVE_ACTOR) {
        sim_actor *actor = object;
        if (actor->move_id == 0) {
            actor->move_id = ++explore->move_id;
            actor->priority = sim_choose_priority(explore);
        }
        return actor->move_id;
    }
    return ++explore->move_id;
}

void sim_move_add(sim_explore *explore, sim_move_kind kind, void *object)
{
    if (explore->move_count == explore->move_room && !sim_moves_grow(explore)) {
        (void)ist_raise(IST_ERR_MEMORY, NULL, "no memory to explore: the world ends");
        explore->stopped = true;
        return;
    }
    sim_move move = {.object = object, .kind = kind, .made = explore->event};
    move.id = sim_move_number(explore, kind, object);
    move.priority =
        kind == SIM_MOVE_ACTOR ? ((sim_actor *)object)->priority : sim_choose_priority(explore);
    if (move.priority > explore->challenger) {
        explore->challenger = move.priority;
    }
    if (sim_move_is_quiet(explore, kind, object)) { /* before all others */
        uint32_t at = explore->quiet_count++;
        memmove(&explore->moves[at + 1u], &explore->moves[at],
                (explore->move_count - at) * sizeof(move));
        explore->moves[at] = move;
        ++explore->move_count;
        return;
    }
    explore->moves[explore->move_count++] = move;
}

static inline sim_move sim_move_take(sim_explore *explore, uint32_t index)
{
    sim_move move = explore->moves[index];
    sim_move *place = &explore->moves[index];
    uint32_t behind = --explore->move_count - index;
    if (behind <= SIM_MOVES_SHIFTED) { /* in their order; those beyond the last are nobody's */
        memmove(place, place + 1, SIM_MOVES_SHIFTED * sizeof(*place));
    } else {
        memmove(place, place + 1, behind * sizeof(*place));
    }
    if (index < explore->quiet_count) {
        --explore->quiet_count;
    }
    if (move.priority != 0 && move.priority >= explore->challenger) {
        explore->challenger = 0;
        for (uint32_t i = 0; i < explore->move_count; ++i) {
            uint64_t priority = explore->moves[i].priority;
            explore->challenger = priority > explore->challenger ? priority : explore->challenger;
        }
    }
    return move;
}

void sim_move_remove(sim_explore *explore, const void *object)
{
    for (uint32_t i = explore->move_count; i-- > 0;) {
        if (explore->moves[i].object == object) {
            (void)sim_move_take(explore, i);
        }
    }
    if (explore->next.kind != SIM_MOVE_NONE && explore->next.object == object) {
        explore->next.kind = SIM_MOVE_NONE;
    }
}

/* ---- making a move --------------------------------------------------------------------------- */

static void sim_move_make(sim_world *world, const sim_move *move)
{
    sim_explore *explore = world->explore;
    uint32_t before = explore->actor_id;
    ++explore->step;
    explore->actor_id = move->id;
    switch (move->kind) {
    case SIM_MOVE_ACTOR: sim_actor_run(world, move->object); break;
    case SIM_MOVE_PUT: sim_put_arrive(move->object); break;
    case SIM_MOVE_STREAM: sim_stream_start(move->object); break;
    case SIM_MOVE_STREAM_DONE: sim_stream_done(move->object); break;
    case SIM_MOVE_NONE: break;
    }
    explore->actor_id = before;
}

static void sim_step_leave(sim_actor *actor)
{
    actor->state = SIM_BLOCKED;
    sim_fiber_yield(&actor->fiber);
    actor->state = SIM_RUNNING;
}

/* An actor is on: that counts as a move. */
static void sim_move_begin(sim_explore *explore, const sim_move *move)
{
    ++explore->step;
    explore->actor_id = move->id;
}

/* Another actor takes the running one's place. */
static sim_actor *sim_step_switch(sim_explore *explore, sim_actor *actor, const sim_move *move)
{
    ++explore->report.switches;
    actor->state = SIM_READY;
    sim_move_add(explore, SIM_MOVE_ACTOR, actor);
    explore->moves[explore->move_count - 1u].made = UINT32_MAX; /* nobody had to wake it */
    sim_move_begin(explore, move);
    return move->object;
}

sim_actor *sim_explore_step_slow(sim_actor *actor)
{
    sim_explore *explore = actor->world->explore;
    if (explore->step > explore->step_max && !explore->stopped && !explore->closing) {
        sim_finding_deadlock(explore, IST_FINDING_LIVELOCK);
        explore->stopped = true;
    }
    if (actor->lag_ps > (actor->is_host ? SIM_POLL_HOST_PS : SIM_POLL_BLOCK_PS)) {
        sim_actor_sleep(actor);
    }
    bool quiet = actor->is_host && (explore->desc.options & IST_EXPLORE_QUIET_HOSTS) != 0;
    while (explore->move_count > explore->quiet_count || explore->stopped ||
           explore->guide != NULL) {
        if (actor->rank->dead || (quiet && !explore->stopped)) {
            return NULL;
        }
        uint32_t pick = explore->stopped ? UINT32_MAX : sim_choose_move(explore, actor);
        if (pick == UINT32_MAX) {
            explore->stopped = true;
            sim_step_leave(actor);
            return NULL;
        }
        if (pick == 0) {
            return NULL;
        }
        sim_move move = sim_move_take(explore, explore->quiet_count + pick - 1u);
        if (move.kind == SIM_MOVE_ACTOR) {
            return sim_step_switch(explore, actor, &move);
        }
        sim_move_make(actor->world, &move);
        explore->actor_id = actor->move_id;
    }
    return NULL;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* A finding ends the world: programs unwind as those of killed ranks do. */
static void sim_explore_end_world(sim_world *world)
{
    world->explore->closing = true;
    world->explore->stopped = false;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_rank_kill(&world->ranks[i]);
    }
}

static bool sim_explore_time(sim_world *world)
{
    sim_explore *explore = world->explore;
    if (world->links_changed) { /* transfers in front of a link that was dead */
        sim_transfers_arm(world);
    }
    sim_heap_skip_stale(world);
    if (!explore->closing) {
        sim_waits_shape(explore);
        if (sim_waits_stuck(explore) && sim_detects(explore, IST_FINDING_DEADLOCK)) {
            sim_finding_deadlock(explore, IST_FINDING_DEADLOCK);
            if (explore->stopped) {
                return true;
            }
        }
    }
    sim_event event;
    if (!sim_heap_pop(world, &event)) {
        return false;
    }
    if (event.at_ps > world->now_ps) {
        world->now_ps = event.at_ps;
    }
    ++explore->step;
    explore->time_passed = true;
    sim_event_handle(world, &event);
    return true;
}

void sim_explore_drain(sim_world *world)
{
    sim_explore *explore = world->explore;
    if (explore->guide == NULL || explore->closing || explore->stopped) {
        return;
    }
    explore->closing = true;
    for (uint32_t i = explore->move_count; i-- > 0;) {
        if (explore->moves[i].kind != SIM_MOVE_PUT) {
            (void)sim_move_take(explore, i);
        }
    }
    while (explore->move_count > 0 && !explore->stopped) {
        uint32_t pick = sim_choose_move(explore, NULL);
        if (pick == UINT32_MAX) {
            return;
        }
        sim_move move = sim_move_take(explore, pick);
        sim_move_make(world, &move);
    }
}

/* One of the moves, when nobody runs; there are some. False: the run is cut short. */
static bool sim_move_choose(sim_explore *explore, sim_move *move)
{
    uint32_t pick = 0;
    if (explore->quiet_count == 0 && !explore->closing) {
        pick = sim_choose_move(explore, NULL);
        if (pick == UINT32_MAX) {
            explore->stopped = true;
            return false;
        }
    }
    *move = sim_move_take(explore, pick);
    return true;
}

sim_actor *sim_explore_next(sim_world *world)
{
    sim_explore *explore = world->explore;
    if (explore->stopped || explore->move_count == 0 || explore->next.kind != SIM_MOVE_NONE ||
        !sim_move_choose(explore, &explore->next) || explore->next.kind != SIM_MOVE_ACTOR) {
        return NULL;
    }
    sim_actor *next = explore->next.object;
    sim_move_begin(explore, &explore->next);
    explore->next.kind = SIM_MOVE_NONE;
    return next;
}

bool sim_explore_advance(sim_world *world)
{
    sim_explore *explore = world->explore;
    if (explore->stopped && !explore->closing) {
        sim_explore_end_world(world);
    }
    sim_move move = explore->next;
    explore->next.kind = SIM_MOVE_NONE;
    if (move.kind == SIM_MOVE_NONE) {
        if (explore->move_count == 0) {
            return sim_explore_time(world);
        }
        if (!sim_move_choose(explore, &move)) {
            return true;
        }
    }
    sim_move_make(world, &move);
    return true;
}
