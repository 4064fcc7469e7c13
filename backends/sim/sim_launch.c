/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches: one fiber a block, all resident at once.
 */
#include "sim_explore.h"

#include <string.h>

static void sim_block_main(void *argument)
{
    ist_coop *coop = argument;
    sim_launch *launch = coop->launch;
    launch->kernel->body(coop, launch->args);
    sim_coop_drain(coop);
    sim_actor_sync(&coop->actor);
    coop->actor.state = SIM_ENDED;
}

/* Blocks of one stream keep their agents from launch to launch. */
static bool sim_block_agents(sim_explore *explore, sim_stream *stream, uint32_t count)
{
    if (count <= stream->block_count) {
        return true;
    }
    uint32_t *agents = ist_alloc(count, sizeof(*agents));
    if (agents == NULL) {
        return false;
    }
    if (stream->block_count > 0) {
        memcpy(agents, stream->block_agents, stream->block_count * sizeof(*agents));
    }
    for (uint32_t i = stream->block_count; i < count; ++i) {
        agents[i] = sim_agent_block(explore, stream->rank, (int32_t)i);
    }
    ist_free(stream->block_agents);
    stream->block_agents = agents;
    stream->block_count = count;
    return true;
}

static void sim_block_agent(sim_launch *launch, ist_coop *coop)
{
    sim_explore *explore = launch->rank->world->explore;
    uint32_t number = launch->stream->block_agents[coop->block];
    sim_agent *agent = &explore->agents[number];
    coop->actor.agent = number;
    agent->kernel = launch->kernel->name;
    agent->phase = "";
    agent->label = 0;
    agent->poll.object = 0;
    agent->poll.times = 0;
    sim_agent_order(explore, sim_agent_stream(explore, launch->stream), number);
}

static ist_status sim_block_start(sim_launch *launch, uint32_t block, uint32_t block_count)
{
    sim_rank *rank = launch->rank;
    sim_world *world = rank->world;
    /* Scratch memory and the timers' token outlive the block: the pool hands them on. */
    ist_coop *coop = sim_pool_take(&world->coops, 0);
    if (coop == NULL) {
        return IST_ERR_MEMORY;
    }
    sim_actor *actor = &coop->actor;
    uint64_t token = actor->block_token + 1; /* stale timers of the last user must not match */
    sim_clear(actor, sizeof(*actor));
    ist_status status = sim_fiber_init(&actor->fiber, SIM_STACK_BLOCK, sim_block_main, coop);
    if (status != IST_OK) {
        actor->block_token = token;
        sim_pool_give(&world->coops, coop);
        return status;
    }
    actor->world = world;
    actor->rank = rank;
    actor->block_token = token;
    coop->launch = launch;
    coop->block = block;
    coop->block_count = block_count;
    coop->transfers = 0;
    coop->serial = ++world->coop_serial;
    coop->rows_until_ps = 0;
    coop->wait = NULL;
    if (world->explore != NULL) {
        sim_block_agent(launch, coop);
    }
    actor->next_of_rank = rank->blocks;
    if (rank->blocks != NULL) {
        rank->blocks->prev_of_rank = actor;
    }
    rank->blocks = actor;
    ++launch->blocks_left;
    sim_actor_make_ready(actor);
    return IST_OK;
}

static void sim_launch_end(sim_launch *launch)
{
    sim_stream *stream = launch->stream;
    sim_event_log(launch->rank->world, IST_SIM_KERNEL_END, launch->rank, -1,
                  sim_log_name(&launch->rank->world->log, launch->kernel->name), launch->sequence);
    stream->launch = NULL;
    sim_pool_give(&launch->rank->world->launches, launch);
    sim_stream_done(stream);
}

static void sim_block_unlink(ist_coop *coop)
{
    sim_actor *actor = &coop->actor;
    sim_rank *rank = actor->rank;
    if (coop->wait != NULL) {
        sim_wait_remove(rank, coop->wait);
        coop->wait = NULL;
    }
    if (actor->prev_of_rank != NULL) {
        actor->prev_of_rank->next_of_rank = actor->next_of_rank;
    } else {
        rank->blocks = actor->next_of_rank;
    }
    if (actor->next_of_rank != NULL) {
        actor->next_of_rank->prev_of_rank = actor->prev_of_rank;
    }
}

void sim_actor_retire(sim_actor *actor)
{
    ist_coop *coop = (ist_coop *)actor;
    sim_launch *launch = coop->launch;
    sim_world *world = actor->world;
    sim_block_unlink(coop);
    ++world->blocks_retired;
    ++actor->rank->blocks_retired;
    if (world->explore != NULL && launch != NULL) {
        sim_explore *explore = world->explore;
        sim_agent_order(explore, actor->agent, sim_agent_stream(explore, launch->stream));
        sim_touch_named(explore, SIM_NAME_STREAM, launch->rank, 0, launch->stream->ordinal, 1,
                        true);
    }
    sim_fiber_fini(&actor->fiber, SIM_STACK_BLOCK);
    ++actor->block_token;
    coop->serial = 0;
    sim_pool_give(&world->coops, coop);
    if (launch != NULL && --launch->blocks_left == 0) {
        sim_launch_end(launch);
    }
}

/* Takes an actor that will never run out of the queue it is in. */
static void sim_ready_remove(sim_world *world, const sim_actor *actor)
{
    sim_actor **link = &world->ready;
    sim_actor *last = NULL;
    while (*link != NULL && *link != actor) {
        last = *link;
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = actor->next;
        if (world->ready_tail == actor) {
            world->ready_tail = last;
        }
    }
}

static void sim_parked_remove(sim_rank *rank, const sim_actor *actor)
{
    sim_actor **link = &rank->parked;
    sim_actor *last = NULL;
    while (*link != NULL && *link != actor) {
        last = *link;
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = actor->next;
        if (rank->parked_tail == actor) {
            rank->parked_tail = last;
        }
    }
}

/* Takes one block out of the world without running it to its end. */
static void sim_block_drop(ist_coop *coop)
{
    sim_actor *actor = &coop->actor;
    sim_launch *launch = coop->launch;
    if (actor->world->explore != NULL) {
        sim_move_remove(actor->world->explore, actor);
    } else if (actor->state == SIM_READY) {
        sim_ready_remove(actor->world, actor);
    }
    if (actor->state == SIM_PARKED) {
        sim_parked_remove(actor->rank, actor);
    }
    coop->launch = NULL;
    if (launch != NULL && --launch->blocks_left == 0) {
        launch->stream->launch = NULL;
        sim_pool_give(&launch->rank->world->launches, launch);
    }
    /* The running block still stands on its stack; the loop retires it when it has left. */
    if (actor != actor->world->current) {
        sim_actor_retire(actor);
    }
}

void sim_blocks_drop(sim_rank *rank)
{
    sim_actor *actor = rank->blocks;
    while (actor != NULL) {
        sim_actor *next = actor->next_of_rank;
        sim_block_drop((ist_coop *)actor);
        actor = next;
    }
}

/* Drops a launch that has not run yet; frees it. */
static void sim_launch_drop(sim_launch *launch)
{
    sim_actor *actor = launch->rank->blocks;
    ++launch->blocks_left; /* ours, so that the last block does not free it */
    while (actor != NULL) {
        sim_actor *next = actor->next_of_rank;
        if (((ist_coop *)actor)->launch == launch) {
            sim_block_drop((ist_coop *)actor);
        }
        actor = next;
    }
    launch->stream->launch = NULL;
    sim_pool_give(&launch->rank->world->launches, launch);
}

ist_status sim_launch_start(sim_stream *stream, sim_stream_op *op)
{
    sim_rank *rank = stream->rank;
    sim_launch *launch = sim_pool_take(&rank->world->launches, sizeof(*launch));
    if (launch == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to launch kernel %s on rank %u",
                         op->kernel->name, rank->index);
    }
    launch->stream = stream;
    launch->rank = rank;
    launch->kernel = op->kernel;
    launch->args = op->payload != NULL ? op->payload : op->args;
    launch->sequence = ++rank->launch_count;
    stream->launch = launch;
    if (rank->world->explore != NULL &&
        !sim_block_agents(rank->world->explore, stream, op->block_count)) {
        stream->launch = NULL;
        sim_pool_give(&rank->world->launches, launch);
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to explore kernel %s", op->kernel->name);
    }
    sim_event_log(rank->world, IST_SIM_KERNEL_BEGIN, rank, -1,
                  sim_log_name(&rank->world->log, op->kernel->name), launch->sequence);
    for (uint32_t i = 0; i < op->block_count; ++i) {
        ist_status status = sim_block_start(launch, i, op->block_count);
        if (status != IST_OK) {
            sim_launch_drop(launch);
            return ist_raise(status, NULL, "no memory for block %u of kernel %s on rank %u", i,
                             op->kernel->name, rank->index);
        }
    }
    return IST_OK;
}
