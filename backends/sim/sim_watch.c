/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells whoever watches a schedule what happens, and which block caused it. Deliveries happen on the
 * stack of some actor that has nothing to do with them: they have no block.
 */
#include "sim_explore.h"

static bool sim_watch_is_a_block(uint32_t kind)
{
    return kind == IST_SIM_ROW || kind == IST_SIM_STORE || kind == IST_SIM_PUT ||
           kind == IST_SIM_WAIT || kind == IST_SIM_WAIT_END || kind == IST_SIM_MASK ||
           kind == IST_SIM_POINT;
}

void sim_watch_event(sim_world *world, const ist_sim_event *event, const char *name)
{
    const sim_explore *explore = world->explore;
    const sim_actor *actor = world->current;
    ist_watched what = {.event = *event,
                        .step = explore->step,
                        .actor = -1,
                        .block = -1,
                        .name = name,
                        .kernel = "",
                        .phase = ""};
    if (explore->closing || (event->kind == IST_SIM_POINT && name == NULL)) {
        return; /* the world is taken down; the point was told before a fault struck there */
    }
    if (event->kind == IST_SIM_KERNEL_BEGIN || event->kind == IST_SIM_KERNEL_END) {
        what.name = sim_log_name_of(&world->log, event->detail);
    }
    if (actor != NULL && !actor->is_host && sim_watch_is_a_block(event->kind)) {
        const sim_agent *agent = &explore->agents[actor->agent];
        what.actor = (int32_t)actor->rank->index;
        what.block = agent->block;
        what.kernel = agent->kernel;
        what.phase = agent->phase;
    }
    explore->desc.watch(explore->desc.watch_context, &what);
}
