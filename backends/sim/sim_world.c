/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated world from birth to end.
 */
#include "sim_explore.h"
#include "sim_trace.h"
#include "sim_world.h"

#include <string.h>

static void sim_host_main(void *argument)
{
    sim_rank *rank = argument;
    sim_world *world = rank->world;
    rank->status = world->host_main(rank);
    rank->ended = true;
    if (world->explore != NULL && !rank->dead) {
        sim_leak_check(rank);
    }
    if (!rank->dead) { /* how a dead rank's program unwinds is nobody's business */
        sim_actor_sync(&rank->host);
        sim_event_log(world, IST_SIM_RANK_END, rank, -1, (uint32_t) - (int32_t)rank->status, 0);
    }
    --world->hosts_alive;
    rank->host.state = SIM_ENDED;
}

/* The program in this process; a world of processes has another host_main. */
static ist_status sim_host_program(sim_rank *rank)
{
    const ist_backend_world *setup = rank->world->setup;
    return setup->rank_main(&sim_ops, rank, rank->index, rank->world->rank_count, setup->context);
}

static void sim_put_drop(void *object)
{
    sim_put *put = object;
    ist_free(put->copy);
}

static void sim_coop_drop(void *object)
{
    ist_coop *coop = object;
    for (uint32_t i = 0; i <= SIM_SCRATCH_BARRIER; ++i) {
        ist_free(coop->scratch[i]);
    }
}

static void sim_pools_init(sim_world *world)
{
    sim_pool_init(&world->ops, sizeof(sim_stream_op), 8);
    sim_pool_init(&world->coops, sizeof(ist_coop), 8);
    sim_pool_init(&world->launches, sizeof(sim_launch), 8);
    sim_pool_init(&world->puts, sizeof(sim_put), 16);
    sim_pool_init(&world->stores, sizeof(sim_store), 32);
    sim_pool_init(&world->flows, sizeof(sim_flow), 16);
    sim_pool_init(&world->link_ends, sizeof(sim_link_end), 4);
}

static void sim_pools_fini(sim_world *world)
{
    sim_pool_fini(&world->ops, NULL);
    sim_pool_fini(&world->coops, sim_coop_drop);
    sim_pool_fini(&world->launches, NULL);
    sim_pool_fini(&world->puts, sim_put_drop);
    sim_pool_fini(&world->stores, NULL);
    sim_pool_fini(&world->flows, NULL);
    sim_pool_fini(&world->link_ends, NULL);
}

static ist_status sim_world_cluster(sim_world *world)
{
    const ist_backend_world *setup = world->setup;
    if (setup->cluster == NULL) {
        world->rank_count = setup->rank_count == 0 ? 1 : setup->rank_count;
        return ist_cluster_for_ranks(world->rank_count, &world->cluster);
    }
    IST_RETURN_IF_ERROR(ist_cluster_parse(setup->cluster, &world->cluster));
    uint32_t available = ist_cluster_rank_count(&world->cluster);
    world->rank_count = setup->rank_count == 0 ? available : setup->rank_count;
    if (world->rank_count > available) {
        ist_error details = {.rank = -1,
                             .peer = -1,
                             .object = "desc.rank_count",
                             .operation = "world.run",
                             .expected = available,
                             .observed = world->rank_count};
        return ist_raise(IST_ERR_RANGE, &details,
                         "%u ranks do not fit the cluster \"%s\", which has %u GPUs",
                         world->rank_count, setup->cluster, available);
    }
    return IST_OK;
}

static ist_status sim_world_settings(sim_world *world)
{
    const ist_sim_desc *sim = world->setup->sim;
    bool keep =
        sim != NULL && (sim->trace_path != NULL || sim->log_path != NULL || sim->log_capacity > 0);
    uint64_t capacity = sim != NULL ? sim->log_capacity : 0;
    if (sim != NULL) {
        world->link_model = sim->links;
        world->op_count_max = sim->op_count_max;
    }
    world->unwind_max =
        sim != NULL && sim->on_kill_unwind_max > 0 ? sim->on_kill_unwind_max : 10000;
    return sim_log_init(&world->log, capacity, keep);
}

static ist_status sim_world_ranks(sim_world *world)
{
    world->ranks = ist_alloc(world->rank_count, sizeof(*world->ranks));
    if (world->ranks == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u ranks", world->rank_count);
    }
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_rank *rank = &world->ranks[i];
        rank->world = world;
        rank->index = i;
        rank->slow = 1;
        rank->error.size = sizeof(rank->error);
        rank->error.rank = IST_RANK_NONE;
        rank->error.peer = IST_RANK_NONE;
        rank->host.world = world;
        rank->host.rank = rank;
        rank->host.is_host = true;
        rank->memory.packed = true;
        rank->next_fault_op = sim_fault_next_op(world->faults, i);
    }
    return IST_OK;
}

static ist_status sim_world_hosts(sim_world *world)
{
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_rank *rank = &world->ranks[i];
        IST_RETURN_IF_ERROR(sim_fiber_init(&rank->host.fiber, SIM_STACK_HOST, sim_host_main, rank));
    }
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_actor_make_ready(&world->ranks[i].host);
        ++world->hosts_alive;
    }
    return IST_OK;
}

static ist_status sim_world_timed_faults(sim_world *world)
{
    const ist_fault *fault = NULL;
    for (uint32_t i = 0; sim_faults_timed(world->faults, i, &fault); ++i) {
        IST_RETURN_IF_ERROR(
            sim_heap_push(world, sim_ps_from_ns(fault->at_ns), SIM_EV_FAULT, NULL, i));
    }
    return IST_OK;
}

ist_status sim_world_open(const ist_backend_world *setup, sim_world **result)
{
    sim_world *world = ist_alloc(1, sizeof(*world));
    if (world == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a world");
    }
    world->setup = setup;
    world->host_main = sim_host_program;
    sim_pools_init(world);
    ist_status status = sim_world_settings(world);
    status = status == IST_OK ? sim_world_cluster(world) : status;
    status = status == IST_OK ? sim_faults_open(setup->faults, world->rank_count, &world->faults)
                              : status;
    status = status == IST_OK ? sim_world_ranks(world) : status;
    status = status == IST_OK ? sim_explore_open(world) : status;
    status = status == IST_OK ? sim_arena_open(world) : status;
    status = status == IST_OK ? sim_links_open(&world->cluster, world->rank_count,
                                               world->link_model, &world->links)
                              : status;
    if (status != IST_OK) {
        sim_world_close(world);
        return status;
    }
    uint64_t share = world->cluster.hbm_bytes_per_s / world->cluster.sm_count;
    world->local_ps_per_kib = 1024ull * 1000000000000ull / (share == 0 ? 1 : share);
    *result = world;
    return IST_OK;
}

static void sim_rank_fini(sim_rank *rank)
{
    sim_blocks_drop(rank);
    sim_rank_streams_drop(rank);
    while (rank->graphs != NULL) {
        sim_graph_free(rank->graphs);
    }
    while (rank->events != NULL) {
        sim_host_event *event = rank->events;
        rank->events = event->next_of_rank;
        event->refs = 1;
        sim_event_unref(event);
    }
    while (rank->streams != NULL) {
        sim_stream *stream = rank->streams;
        rank->streams = stream->next_of_rank;
        sim_stream_free(stream);
    }
    sim_fiber_fini(&rank->host.fiber, SIM_STACK_HOST);
}

/* Exchanges whose readers have left live on until their timer fires, or the world ends. */
static void sim_heap_fini(sim_world *world)
{
    for (uint32_t i = 0; i < world->heap_count; ++i) {
        if (world->heap[i].type == SIM_EV_EXCHANGE) {
            sim_exchange_timer_dropped(world->heap[i].object);
        }
    }
    ist_free(world->heap);
}

void sim_world_close(sim_world *world)
{
    for (uint32_t i = 0; world->ranks != NULL && i < world->rank_count; ++i) {
        sim_rank_fini(&world->ranks[i]);
    }
    sim_heap_fini(world);
    sim_comms_free(world);
    sim_arena_close(world);
    sim_explore_close(world);
    sim_links_close(world->links);
    ist_free(world->link_states);
    sim_faults_close(world->faults);
    sim_log_fini(&world->log);
    sim_pools_fini(world);
    ist_free(world->ranks);
    ist_free(world);
}

static ist_status sim_world_write_files(sim_world *world)
{
    const ist_sim_desc *sim = world->setup->sim;
    ist_status status = IST_OK;
    if (sim != NULL && sim->log_path != NULL) {
        status = sim_log_write(&world->log, sim->log_path);
    }
    if (sim != NULL && sim->trace_path != NULL) {
        ist_status traced = sim_trace_write(&world->log, world->rank_count, sim->trace_path);
        status = status == IST_OK ? traced : status;
    }
    return status;
}

void sim_world_result(sim_world *world, ist_status status, ist_world_result *result)
{
    result->status = status;
    result->failed_rank = IST_RANK_NONE;
    for (uint32_t i = 0; i < world->rank_count && result->failed_rank == IST_RANK_NONE; ++i) {
        sim_rank *rank = &world->ranks[i];
        if (!rank->dead && rank->status != IST_OK) {
            result->failed_rank = (int32_t)i;
            result->status = status == IST_OK ? rank->status : status;
        }
    }
    if (world->explore != NULL) {
        sim_explore_finish(world, result->status);
        const ist_explore_report *report = &world->explore->report;
        if (report->finding_count > 0 && (world->explore->desc.options & IST_EXPLORE_GO_ON) == 0) {
            result->status = report->finding.status;
            result->failed_rank = report->finding.second.rank;
        }
    }
    result->lost_count = world->lost_count;
    result->digest = sim_log_digest(&world->log);
    result->event_count = sim_log_count(&world->log);
    result->device_op_count = world->device_op_count;
    result->virtual_ns = world->now_ps / SIM_PS_PER_NS;
}

ist_status sim_world_run(sim_world *world)
{
    sim_fiber_outer outer = sim_fiber_scheduler_save();
    ist_status status = sim_world_timed_faults(world);
    status = status == IST_OK ? sim_world_hosts(world) : status;
    status = status == IST_OK ? sim_world_loop(world) : status;
    sim_fiber_scheduler_restore(&outer);
    ist_status written = sim_world_write_files(world);
    return status == IST_OK ? written : status;
}
