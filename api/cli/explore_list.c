/* SPDX-License-Identifier: Apache-2.0 */
/* The list of scenarios: those that are shipped, and those that a program has added. */
#include "explore_scenario.h"

#include <string.h>

#define ADDED_MAX 8u

static const explore_scenario *added[ADDED_MAX];
static uint32_t added_count;

void explore_scenario_add(const explore_scenario *scenario)
{
    if (added_count < ADDED_MAX) {
        added[added_count++] = scenario;
    }
}

const explore_scenario *explore_scenario_at(uint32_t index)
{
    if (index < EXPLORE_MASK_SCENARIOS) {
        return &explore_mask_scenarios[index];
    }
    index -= EXPLORE_MASK_SCENARIOS;
    if (index < EXPLORE_EP_SCENARIOS) {
        return &explore_ep_scenarios[index];
    }
    index -= EXPLORE_EP_SCENARIOS;
    return index < added_count ? added[index] : NULL;
}

const explore_scenario *explore_scenario_find(const char *name)
{
    for (uint32_t i = 0; explore_scenario_at(i) != NULL; ++i) {
        if (strcmp(explore_scenario_at(i)->name, name) == 0) {
            return explore_scenario_at(i);
        }
    }
    return NULL;
}
