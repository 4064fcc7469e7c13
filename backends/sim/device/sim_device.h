/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulator's bodies of the device calls share: the step that every call takes, and the
 * time that it costs.
 *
 * A call is a step of the rank: faults may strike before it. Calls that others can observe let the
 * world catch up with the block's own time first (sim_device_step_ordered); calls on local memory
 * only add to the block's lead, up to a bound, so that loops that poll let others run.
 */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include "sim_explore.h"

/* No block runs further ahead of the world than this. */
#define SIM_LAG_MAX_PS (5ull * 1000 * 1000)
/* Lanes of a block work side by side: a lane's access costs this part of a latency. */
#define SIM_LANES_SHIFT 5

static inline sim_devcomm *sim_devcomm_of(const ist_dev_comm *dev)
{
    return dev->backend;
}

static inline void sim_device_spend(ist_coop *coop, uint64_t ps)
{
    coop->actor.lag_ps += ps * coop->actor.rank->slow;
}

/* Counts a call that touches memory which others may touch, or that orders it. */
static inline void sim_device_call(ist_coop *coop)
{
    ++coop->actor.world->device_call_count;
}

/* A step that no other actor can observe or be ordered by. */
static inline void sim_device_step_local(ist_coop *coop, uint64_t ps)
{
    sim_device_spend(coop, ps);
    if (coop->actor.lag_ps > SIM_LAG_MAX_PS && coop->actor.world->explore == NULL) {
        sim_actor_sync(&coop->actor);
    }
}

/* A relaxed word: others see it, but only who explores cares in which order. */
static inline void sim_device_step_word(ist_coop *coop, uint64_t ps)
{
    if (coop->actor.world->explore != NULL) {
        sim_device_call(coop);
        sim_device_spend(coop, ps);
        sim_explore_step(&coop->actor);
        return;
    }
    sim_device_step_local(coop, ps);
}

/* A row: what it touches, for the detectors. Returns the rank whose memory it is in, or NULL. */
static inline sim_rank *sim_device_row(ist_coop *coop, const void *address, uint64_t bytes,
                                       bool write, const char *call)
{
    sim_explore *explore = coop->actor.world->explore;
    if (explore != NULL) {
        const sim_shadow_page *page =
            sim_shadow_access(explore, coop->actor.agent, address, bytes, write, SIM_WEAK, call);
        if (page != NULL) {
            return page->owner;
        }
    }
    return sim_memory_owner(coop->actor.world, address);
}

/* A step whose place among the steps of others matters. */
static inline void sim_device_step_ordered(ist_coop *coop, uint64_t ps)
{
    ++coop->actor.world->device_op_count;
    sim_device_call(coop);
    sim_rank_op(coop->actor.rank);
    sim_device_spend(coop, ps);
    sim_actor_sync(&coop->actor);
}

/* Reports what a kernel may not do; the rank's streams fail with it, nothing is trapped. */
void sim_device_fault(ist_coop *coop, const ist_dev_comm *dev, const char *call, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));
/* The simulator itself lacks memory for the call: reported like a fault, but only once. */
void sim_device_no_memory(ist_coop *coop, const char *call, uint64_t bytes);

#endif
