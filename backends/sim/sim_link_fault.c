/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link faults: which links are down or slow, how overlapping faults add up, and the words that
 * wait in front of a dead link.
 *
 * A link is a port: a fault between two ranks is felt by whoever else uses the same ports.
 */
#include "sim_internal.h"

/* Faults in force on one link. Down beats slow; of several slow ones the slowest counts. */
typedef struct sim_link_state {
    uint32_t down;
    uint32_t slow;
    uint64_t ratio; /* of the slowest, until none is slow */
} sim_link_state;

typedef enum sim_link_change { SIM_LINK_BEGIN, SIM_LINK_END } sim_link_change;

static void sim_link_apply(sim_world *world, uint32_t link)
{
    const sim_link_state *state = &world->link_states[link];
    if (state->down > 0) {
        sim_links_scale(world->links, world->now_ps, link, 0, 1);
    } else {
        sim_links_scale(world->links, world->now_ps, link, 1, state->slow > 0 ? state->ratio : 1);
    }
}

static void sim_link_change_one(sim_world *world, uint32_t link, const ist_fault *fault,
                                sim_link_change change)
{
    sim_link_state *state = &world->link_states[link];
    uint32_t *count = fault->kind == IST_FAULT_LINK_DOWN ? &state->down : &state->slow;
    if (change == SIM_LINK_BEGIN) {
        ++*count;
        if (fault->kind == IST_FAULT_LINK_SLOW && fault->ratio > state->ratio) {
            state->ratio = fault->ratio;
        }
    } else if (*count > 0) {
        --*count;
    }
    if (state->slow == 0) {
        state->ratio = 1;
    }
    sim_link_apply(world, link);
}

/* A port that serves many peers is one link: it must be counted once a fault. */
static bool sim_link_seen(uint64_t *seen, uint32_t link)
{
    bool was = (seen[link / 64u] >> (link % 64u) & 1u) != 0;
    seen[link / 64u] |= 1ull << (link % 64u);
    return was;
}

static void sim_link_change_all(sim_world *world, const ist_fault *fault, sim_link_change change,
                                uint64_t *seen)
{
    static const sim_route_kind kinds[] = {SIM_ROUTE_LSA, SIM_ROUTE_GIN};
    uint32_t links[SIM_LINKS_A_ROUTE];
    uint32_t rank = (uint32_t)fault->rank;
    for (uint32_t peer = 0; peer < world->rank_count; ++peer) {
        if (peer == rank || (fault->peer != IST_FAULT_ANY && peer != (uint32_t)fault->peer)) {
            continue;
        }
        for (uint32_t k = 0; k < 2; ++k) {
            uint32_t count = sim_links_of_pair(world->links, rank, peer, kinds[k], links);
            for (uint32_t i = 0; i < count; ++i) {
                if (!sim_link_seen(seen, links[i])) {
                    sim_link_change_one(world, links[i], fault, change);
                }
            }
        }
    }
}

static ist_status sim_link_change_ports(sim_world *world, const ist_fault *fault,
                                        sim_link_change change)
{
    uint32_t count = sim_links_count(world->links);
    if (world->link_states == NULL) {
        world->link_states = ist_alloc(count, sizeof(*world->link_states));
    }
    uint64_t *seen = ist_alloc((count + 63u) / 64u, sizeof(*seen));
    if (world->link_states == NULL || seen == NULL) {
        ist_free(seen);
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the state of %u links", count);
    }
    sim_link_change_all(world, fault, change, seen);
    ist_free(seen);
    sim_transfers_restart(world);
    sim_held_stores_release(world);
    if (world->held_puts != NULL) {
        sim_held_puts_release(world);
    }
    return IST_OK;
}

void sim_link_fault_begin(sim_rank *rank, const ist_fault *fault)
{
    sim_world *world = rank->world;
    sim_event_log(world, IST_SIM_FAULT, rank, fault->peer, (uint32_t)fault->kind,
                  fault->duration_ns);
    if (sim_link_change_ports(world, fault, SIM_LINK_BEGIN) != IST_OK || fault->duration_ns == 0) {
        return;
    }
    sim_link_end *end = sim_pool_take(&world->link_ends, sizeof(*end));
    if (end != NULL) {
        end->fault = *fault;
        uint64_t until = sim_add_sat(world->now_ps, sim_ps_from_ns(fault->duration_ns));
        (void)sim_heap_push(world, until, SIM_EV_LINK_UP, end, 0);
    }
}

void sim_link_fault_end(sim_world *world, sim_link_end *end)
{
    (void)sim_link_change_ports(world, &end->fault, SIM_LINK_END);
    sim_pool_give(&world->link_ends, end);
}

bool sim_link_pair_up(sim_world *world, uint32_t from, uint32_t to, sim_route_kind kind)
{
    uint32_t links[SIM_LINKS_A_ROUTE];
    if (world->link_states == NULL) {
        return true;
    }
    uint32_t count = sim_links_of_pair(world->links, from, to, kind, links);
    for (uint32_t i = 0; i < count; ++i) {
        if (world->link_states[links[i]].down > 0) {
            return false;
        }
    }
    return true;
}
