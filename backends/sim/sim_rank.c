/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life and death of ranks: faults strike, ranks stall, resume and die.
 *
 * A killed rank's blocks vanish; its host program is not torn away, which would leak what it owns:
 * every call it makes from then on returns IST_ERR_KILLED without effect, so it unwinds.
 */
#include "sim_explore.h"

void sim_rank_kill(sim_rank *rank)
{
    sim_world *world = rank->world;
    if (rank->dead || rank->ended) {
        return;
    }
    rank->dead = true;
    if (world->explore != NULL) {
        world->explore->gave_up = true;
    }
    ++world->lost_count;
    sim_event_log(world, IST_SIM_FAULT, rank, -1, IST_FAULT_KILL, rank->op_number);
    sim_conductor_rank_killed(rank);
    sim_blocks_drop(rank);
    sim_rank_streams_drop(rank);
    rank->stalled_until_ps = 0;
    sim_rank_resume(rank);
    sim_actor_wake(&rank->host);
    /* A block that kills its own rank must not run on. */
    sim_actor *current = world->current;
    if (current != NULL && current->rank == rank && !current->is_host) {
        current->state = SIM_ENDED;
        sim_fiber_leave(&current->fiber);
    }
}

void sim_host_abandon(sim_rank *rank)
{
    ist_log(IST_LOG_WARN,
            "rank %u was killed and its program has made %u calls since: it is abandoned, what it "
            "owns leaks",
            rank->index, rank->unwind_calls);
    rank->ended = true;
    --rank->world->hosts_alive;
    rank->host.state = SIM_ENDED;
    sim_fiber_leave(&rank->host.fiber);
}

void sim_rank_stall(sim_rank *rank, uint64_t duration_ps)
{
    sim_world *world = rank->world;
    uint64_t until = duration_ps == 0 ? SIM_NEVER : sim_add_sat(world->now_ps, duration_ps);
    if (rank->dead || until <= rank->stalled_until_ps) {
        return;
    }
    rank->stalled_until_ps = until;
    sim_event_log(world, IST_SIM_FAULT, rank, -1, IST_FAULT_STALL, duration_ps);
    if (until != SIM_NEVER) {
        (void)sim_heap_push(world, until, SIM_EV_RESUME, rank, 0);
    }
    /* Whoever is in the ready queue already runs once more; the actor that stalls itself stops. */
    sim_actor *current = world->current;
    if (current != NULL && current->rank == rank) {
        sim_actor_make_ready(current);
        sim_fiber_yield(&current->fiber);
        current->state = SIM_RUNNING;
    }
}

void sim_rank_resume(sim_rank *rank)
{
    if (rank->world->now_ps < rank->stalled_until_ps) {
        return; /* a longer stall came in between */
    }
    sim_actor *actor = rank->parked;
    rank->parked = NULL;
    rank->parked_tail = NULL;
    while (actor != NULL) {
        sim_actor *next = actor->next;
        sim_actor_make_ready(actor);
        actor = next;
    }
    for (sim_stream *stream = rank->streams; stream != NULL; stream = stream->next_of_rank) {
        sim_stream_arm(stream);
    }
}

void sim_rank_fault(sim_rank *rank, const ist_fault *fault)
{
    switch (fault->kind) {
    case IST_FAULT_KILL: sim_rank_kill(rank); break;
    case IST_FAULT_STALL: sim_rank_stall(rank, sim_ps_from_ns(fault->duration_ns)); break;
    case IST_FAULT_RESUME:
        rank->stalled_until_ps = 0;
        sim_event_log(rank->world, IST_SIM_FAULT, rank, -1, IST_FAULT_RESUME, 0);
        sim_rank_resume(rank);
        break;
    case IST_FAULT_SLOW:
        rank->slow = fault->ratio == 0 ? 10 : fault->ratio;
        sim_event_log(rank->world, IST_SIM_FAULT, rank, -1, IST_FAULT_SLOW, rank->slow);
        break;
    case IST_FAULT_LINK_DOWN:
    case IST_FAULT_LINK_SLOW: sim_link_fault_begin(rank, fault); break;
    case IST_FAULT_DELAY:
    case IST_FAULT_DROP:
    case IST_FAULT_DUPLICATE:
    case IST_FAULT_REORDER:
    case IST_FAULT_ERROR:
    case IST_FAULT_ALLOC:
    case IST_FAULT_REGISTER: break; /* matched where they happen */
    }
}

void sim_rank_op_slow(sim_rank *rank)
{
    sim_faults *faults = rank->world->faults;
    const ist_fault *fault;
    while ((fault = sim_fault_on_op(faults, rank->index, rank->op_number)) != NULL) {
        rank->next_fault_op = sim_fault_next_op(faults, rank->index);
        sim_rank_fault(rank, fault);
    }
    rank->next_fault_op = sim_fault_next_op(faults, rank->index);
}

void sim_world_timed_fault(sim_world *world, uint64_t index)
{
    const ist_fault *fault = NULL;
    if (sim_faults_timed(world->faults, (uint32_t)index, &fault) && fault->rank >= 0) {
        sim_rank_fault(&world->ranks[fault->rank], fault);
    }
}
