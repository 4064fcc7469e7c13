/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's loop: runs what is ready, else advances the clock to the next event. Everything
 * that happens in a world is decided here, by (time, sequence) alone.
 */
#include "sim_coll.h"
#include "sim_explore.h"

/* ---- running --------------------------------------------------------------------------------- */

void sim_actor_make_ready(sim_actor *actor)
{
    sim_world *world = actor->world;
    sim_rank *rank = actor->rank;
    if (world->now_ps < rank->stalled_until_ps && !rank->dead) {
        actor->state = SIM_PARKED;
        actor->next = NULL;
        if (rank->parked == NULL) {
            rank->parked = actor;
        } else {
            rank->parked_tail->next = actor;
        }
        rank->parked_tail = actor;
        return;
    }
    actor->state = SIM_READY;
    actor->next = NULL;
    if (world->explore != NULL) {
        sim_move_add(world->explore, SIM_MOVE_ACTOR, actor);
        return;
    }
    if (world->ready == NULL) {
        world->ready = actor;
    } else {
        world->ready_tail->next = actor;
    }
    world->ready_tail = actor;
}

static void sim_actor_end_block(sim_actor *actor)
{
    ++actor->block_token;
    if (actor->has_timer) {
        actor->has_timer = false;
        ++actor->world->heap_stale;
    }
}

void sim_actor_wake(sim_actor *actor)
{
    if (actor->state != SIM_BLOCKED) {
        return;
    }
    sim_actor_end_block(actor);
    sim_actor_make_ready(actor);
}

void sim_waiters_wake(sim_actor **list)
{
    sim_actor *actor = *list;
    *list = NULL;
    while (actor != NULL) {
        sim_actor *next = actor->next_waiter;
        actor->next_waiter = NULL;
        sim_actor_wake(actor);
        actor = next;
    }
}

void sim_waiters_remove(sim_actor **list, sim_actor *actor)
{
    while (*list != NULL && *list != actor) {
        list = &(*list)->next_waiter;
    }
    if (*list != NULL) {
        *list = actor->next_waiter;
        actor->next_waiter = NULL;
    }
}

void sim_actor_sleep(sim_actor *actor)
{
    if (actor->lag_ps == 0) {
        return;
    }
    uint64_t at_ps = sim_actor_now_ps(actor);
    actor->lag_ps = 0;
    if (sim_heap_push(actor->world, at_ps, SIM_EV_FIBER, actor, actor->block_token) != IST_OK) {
        return; /* out of memory: time is lost, order is kept */
    }
    actor->state = SIM_BLOCKED;
    sim_actor_switch(actor);
}

bool sim_actor_block_begin(sim_actor *actor, uint64_t deadline_ps)
{
    actor->timed_out = false;
    actor->state = SIM_BLOCKED;
    if (deadline_ps != SIM_NEVER) {
        if (sim_heap_push(actor->world, deadline_ps, SIM_EV_DEADLINE, actor, actor->block_token) !=
            IST_OK) {
            actor->state = SIM_RUNNING;
            actor->timed_out = true;
            return false;
        }
        actor->has_timer = true;
    }
    return true;
}

void sim_actor_run(sim_world *world, sim_actor *actor)
{
    world->current = actor;
    actor->state = SIM_RUNNING;
    ist_error *outer = ist_error_bind(&actor->rank->error);
    sim_fiber_enter(&actor->fiber);
    (void)ist_error_bind(outer);
    actor = world->current; /* the last of those who handed over to each other */
    world->current = NULL;
    if (actor->state == SIM_ENDED && !actor->is_host) {
        sim_actor_retire(actor);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static void sim_deadline_reached(sim_event *event)
{
    sim_actor *actor = event->object;
    if (actor->block_token != event->token || actor->state != SIM_BLOCKED) {
        if (actor->world->heap_stale > 0) {
            --actor->world->heap_stale;
        }
        return;
    }
    actor->has_timer = false;
    actor->timed_out = true;
    sim_actor_wake(actor);
}

static void sim_lag_over(sim_event *event)
{
    sim_actor *actor = event->object;
    if (actor->block_token == event->token) {
        sim_actor_wake(actor);
    }
}

void sim_event_handle(sim_world *world, sim_event *event)
{
    switch (event->type) {
    case SIM_EV_FIBER: sim_lag_over(event); break;
    case SIM_EV_DEADLINE: sim_deadline_reached(event); break;
    case SIM_EV_STREAM: sim_stream_start(event->object); break;
    case SIM_EV_STREAM_DONE: sim_stream_done(event->object); break;
    case SIM_EV_STORE: sim_store_visible(event->object); break;
    case SIM_EV_PUT: sim_put_arrive(event->object); break;
    case SIM_EV_ROW: sim_row_done(event->object); break;
    case SIM_EV_LINKS: sim_transfers_poll(world, event->token); break;
    case SIM_EV_FAULT: sim_world_timed_fault(world, event->token); break;
    case SIM_EV_RESUME: sim_rank_resume(event->object); break;
    case SIM_EV_LINK_UP: sim_link_fault_end(world, event->object); break;
    case SIM_EV_EXCHANGE: sim_exchange_deadline(event->object); break;
    case SIM_EV_COLL: sim_coll_step(event->object); break;
    case SIM_EV_COLL_TIMER: sim_coll_timer(event->object); break;
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Nothing is ready and nothing is due: whoever still waits can never be woken. */
static bool sim_world_break_deadlock(sim_world *world)
{
    bool broke = false;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_rank *rank = &world->ranks[i];
        if (!rank->ended && !rank->dead) {
            if (rank->stalled_until_ps == SIM_NEVER) {
                ist_log(IST_LOG_INFO, "rank %u stays stalled to the end: counted as lost", i);
            } else {
                world->deadlocked = true;
                (void)ist_raise(IST_ERR_DEADLOCK, &(ist_error){.rank = (int32_t)i, .peer = -1},
                                "rank %u waits and nothing in the world can wake it", i);
            }
            sim_rank_kill(rank);
            broke = true;
        }
    }
    return broke;
}

static bool sim_world_over_limit(sim_world *world)
{
    if (world->op_count_max == 0 || world->device_op_count <= world->op_count_max) {
        return false;
    }
    world->deadlocked = true;
    world->op_count_max = 0;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_rank_kill(&world->ranks[i]);
    }
    return true;
}

ist_status sim_world_loop(sim_world *world)
{
    while (world->hosts_alive > 0) {
        if (world->explore != NULL) {
            if (!sim_explore_advance(world) && !sim_world_break_deadlock(world)) {
                break;
            }
            continue;
        }
        (void)sim_world_over_limit(world);
        sim_actor *actor = world->ready;
        if (actor != NULL) {
            world->ready = actor->next;
            sim_actor_run(world, actor);
            continue;
        }
        if (world->links_changed) {
            sim_transfers_arm(world);
        }
        sim_event event;
        if (sim_heap_pop(world, &event)) {
            if (event.at_ps > world->now_ps) {
                world->now_ps = event.at_ps;
            }
            sim_event_handle(world, &event);
            continue;
        }
        if (!sim_world_break_deadlock(world)) {
            break;
        }
    }
    if (world->explore != NULL) {
        sim_explore_drain(world);
    }
    if (world->hosts_alive > 0) {
        return ist_raise(IST_ERR_INTERNAL, NULL, "%u host programs can never end",
                         world->hosts_alive);
    }
    return world->deadlocked ? IST_ERR_DEADLOCK : IST_OK;
}
