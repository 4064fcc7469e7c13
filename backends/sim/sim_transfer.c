/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers between the engine and the link model: begins them, makes the event at their end, and
 * starts again what a dead link held up.
 */
#include "sim_internal.h"

#include <string.h>

sim_flow *sim_flow_new(sim_world *world)
{
    return sim_pool_take(&world->flows, sizeof(sim_flow));
}

void sim_flow_free(sim_world *world, sim_flow *flow)
{
    sim_pool_give(&world->flows, flow);
}

ist_status sim_flow_route(sim_world *world, sim_flow *flow, uint32_t src, uint32_t dst,
                          sim_route_kind kind, uint64_t bytes)
{
    memset(&flow->transfer, 0, sizeof(flow->transfer));
    flow->transfer.bytes = bytes;
    flow->transfer.owner = flow;
    return sim_links_route(world->links, src, dst, kind, &flow->transfer, &flow->latency_ps);
}

/*
 * One event is enough for all transfers: it carries a generation, and only the newest counts. The
 * loop arms once an instant, however many transfers began in it.
 */
void sim_transfers_arm(sim_world *world)
{
    world->links_changed = false;
    uint64_t next = sim_links_next(world->links);
    ++world->links_generation;
    if (next != SIM_TIME_NEVER) {
        (void)sim_heap_push(world, next, SIM_EV_LINKS, NULL, world->links_generation);
    }
}

static void sim_flow_arrives(sim_world *world, sim_flow *flow, uint64_t end_ps)
{
    (void)sim_heap_push(world, sim_add_sat(end_ps, flow->latency_ps), flow->type,
                        flow->type == SIM_EV_ROW ? flow : flow->object, flow->token);
}

static void sim_transfers_collect(sim_world *world)
{
    sim_transfer *transfer;
    while ((transfer = sim_links_pop(world->links, world->now_ps)) != NULL) {
        sim_flow_arrives(world, transfer->owner, transfer->end_ps);
    }
}

void sim_transfers_poll(sim_world *world, uint64_t generation)
{
    if (generation != world->links_generation) {
        return;
    }
    sim_transfers_collect(world);
    world->links_changed = true;
}

bool sim_flow_begin(sim_world *world, sim_flow *flow)
{
    if (world->link_model == IST_LINKS_MAX_MIN) {
        sim_transfers_collect(world);
        (void)sim_links_begin(world->links, world->now_ps, &flow->transfer);
        world->links_changed = true;
        return false;
    }
    (void)sim_links_begin(world->links, world->now_ps, &flow->transfer);
    return flow->transfer.end_ps != SIM_TIME_NEVER;
}

void sim_flow_begin_event(sim_world *world, sim_flow *flow)
{
    if (sim_flow_begin(world, flow)) {
        sim_flow_arrives(world, flow, flow->transfer.end_ps);
    }
}

void sim_transfers_restart(sim_world *world)
{
    if (world->link_model == IST_LINKS_MAX_MIN) {
        sim_transfers_collect(world);
        world->links_changed = true;
    }
    sim_transfer *transfer;
    while ((transfer = sim_links_unpark(world->links)) != NULL) {
        sim_flow_begin_event(world, transfer->owner);
    }
}
