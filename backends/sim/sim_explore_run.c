/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public side of exploring one schedule: names of schedulers, and running a world with them.
 */
#include "sim_explore.h"

#include <stdlib.h>
#include <string.h>

static ist_status sim_scheduler_refuse(const char *text)
{
    return ist_raise(IST_ERR_PARSE, NULL,
                     "\"%.32s\" is no scheduler: fair, random, pct:DEPTH or replay is required",
                     text);
}

ist_status ist_scheduler_parse(const char *text, ist_explore_desc *explore)
{
    if (text == NULL || explore == NULL) {
        return ist_raise(IST_ERR_NULL, NULL, "%s is NULL", text == NULL ? "text" : "explore");
    }
    if (strcmp(text, "fair") == 0) {
        explore->scheduler = IST_SCHEDULER_FAIR;
    } else if (strcmp(text, "random") == 0) {
        explore->scheduler = IST_SCHEDULER_RANDOM;
    } else if (strcmp(text, "replay") == 0) {
        explore->scheduler = IST_SCHEDULER_REPLAY;
    } else if (strncmp(text, "pct", 3) == 0 && (text[3] == '\0' || text[3] == ':')) {
        char *end = NULL;
        unsigned long depth = text[3] == ':' ? strtoul(text + 4, &end, 10) : 0;
        if (text[3] == ':' && (end == text + 4 || *end != '\0' || depth == 0 || depth > 64)) {
            return sim_scheduler_refuse(text);
        }
        explore->scheduler = IST_SCHEDULER_PCT;
        explore->depth = (uint32_t)depth;
    } else {
        return sim_scheduler_refuse(text);
    }
    return IST_OK;
}

ist_status ist_explore_run(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                           const ist_explore_desc *explore, ist_explore_report *report)
{
    static const ist_explore_desc quiet = {.size = sizeof(quiet),
                                           .scheduler = IST_SCHEDULER_RANDOM};
    ist_world_desc world;
    ist_sim_desc sim;
    memset(&world, 0, sizeof(world));
    memset(&sim, 0, sizeof(sim));
    if (desc != NULL) {
        memcpy(&world, desc, desc->size < sizeof(world) ? desc->size : sizeof(world));
    }
    if (world.sim != NULL) {
        memcpy(&sim, world.sim, world.sim->size < sizeof(sim) ? world.sim->size : sizeof(sim));
    }
    if (report != NULL) { /* also when the world cannot start, or is fair */
        const ist_explore_report empty = {.size = report->size,
                                          .choices = report->choices,
                                          .choice_capacity = report->choice_capacity};
        memcpy(report, &empty, report->size < sizeof(empty) ? report->size : sizeof(empty));
    }
    world.size = sizeof(world);
    world.backend = "sim";
    world.sim = &sim;
    sim.size = sizeof(sim);
    sim.explore = explore != NULL ? explore : &quiet;
    sim.report = report;
    return ist_world_run(&world, rank_main, arg, NULL);
}
