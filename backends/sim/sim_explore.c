/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The explorer of a world: opened with it when schedules are explored. A thread keeps its last one,
 * so that worlds that follow each other allocate nothing here.
 */
#include "sim_explore.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SIM_STEPS_MAX_DEFAULT UINT64_C(4000000)

static _Thread_local sim_explore *sim_explore_kept;
static _Thread_local const sim_guide *sim_explore_next_guide;

void sim_explore_guide(const sim_guide *guide)
{
    sim_explore_next_guide = guide;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void sim_explore_free(sim_explore *explore)
{
    for (uint32_t i = 0; explore->agents != NULL && i < explore->agent_high; ++i) {
        ist_free(explore->agents[i].clock);
    }
    for (uint32_t i = 0; i < explore->chunk_count; ++i) {
        ist_free(explore->chunks[i]);
    }
    for (uint32_t i = 0; i < explore->shadow_room; ++i) {
        ist_free(explore->shadows[i].pages);
    }
    for (uint32_t i = 0; i < explore->page_high; ++i) {
        ist_free(explore->pages[i]);
    }
    ist_free(explore->agents);
    ist_free(explore->network);
    ist_free(explore->chunks);
    ist_free(explore->snapshots);
    ist_free(explore->shadows);
    ist_free(explore->pages);
    ist_free(explore->readers);
    ist_free(explore->ring);
    ist_free(explore->labels);
    ist_free(explore->words);
    ist_free(explore->keys);
    ist_free(explore->moves);
    ist_free(explore->picks);
    ist_free(explore->change_at);
    ist_free(explore->touches);
    ist_free(explore);
}

/* The thread is done with exploring, or the library is being checked for leaks. */
void sim_explore_trim(void)
{
    if (sim_explore_kept != NULL) {
        sim_explore_free(sim_explore_kept);
        sim_explore_kept = NULL;
    }
}

static ist_status sim_explore_room(sim_explore *explore)
{
    sim_world *world = explore->world;
    if (explore->shadow_room < world->rank_count) {
        sim_shadow *shadows = ist_alloc(world->rank_count, sizeof(*shadows));
        if (shadows == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory to explore %u ranks",
                             world->rank_count);
        }
        if (explore->shadow_room > 0) {
            memcpy(shadows, explore->shadows, explore->shadow_room * sizeof(*shadows));
        }
        ist_free(explore->shadows);
        explore->shadows = shadows;
        explore->shadow_room = world->rank_count;
    }
    if (explore->ring == NULL) {
        explore->ring = ist_alloc(SIM_ACCESS_RING, sizeof(*explore->ring));
    }
    return explore->ring != NULL ? IST_OK
                                 : ist_raise(IST_ERR_MEMORY, NULL, "no memory to explore a world");
}

void sim_explore_lend_touches(sim_touched **touches, uint32_t *count, uint32_t *room)
{
    sim_explore *explore = sim_explore_kept;
    *count = 0;
    if (explore == NULL) {
        return;
    }
    sim_touched *array = explore->touches;
    uint32_t array_room = explore->touch_room;
    *count = explore->touch_count;
    explore->touches = *touches;
    explore->touch_room = *room;
    *touches = array;
    *room = array_room;
}

/* ---- settings -------------------------------------------------------------------------------- */

static ist_status sim_explore_settings(const ist_backend_world *setup, ist_explore_desc *desc)
{
    const ist_explore_desc *given = setup->sim != NULL ? setup->sim->explore : NULL;
    memset(desc, 0, sizeof(*desc));
    if (given != NULL) {
        if (given->size < 8 || given->size > 4096) {
            return ist_raise(IST_ERR_SIZE, NULL, "explore.size is %u", given->size);
        }
        memcpy(desc, given, given->size < sizeof(*desc) ? given->size : sizeof(*desc));
        if ((uint32_t)desc->scheduler > IST_SCHEDULER_REPLAY) {
            return ist_raise(IST_ERR_ARGUMENT, NULL, "explore.scheduler is %d",
                             (int)desc->scheduler);
        }
        return IST_OK;
    }
    const char *text = getenv("IST_SIM_SCHEDULER");
    return text == NULL || text[0] == '\0' ? IST_OK : ist_scheduler_parse(text, desc);
}

static void sim_explore_reset(sim_explore *explore)
{
    explore->stopped = false;
    explore->cut = false;
    explore->closing = false;
    explore->gave_up = false;
    explore->windows_serial = 1; /* 0: of a page that was not looked up */
    explore->move_count = 0;
    explore->quiet_count = 0;
    explore->move_id = 0;
    explore->next.kind = SIM_MOVE_NONE;
    explore->challenger = 0;
    explore->touch_count = 0;
    explore->time_passed = false;
    explore->event = UINT32_MAX;
    explore->step = 0;
    explore->actor_id = 0;
    memset(&explore->report, 0, sizeof(explore->report));
}

ist_status sim_explore_open(sim_world *world)
{
    ist_explore_desc desc;
    IST_RETURN_IF_ERROR(sim_explore_settings(world->setup, &desc));
    const sim_guide *guide = sim_explore_next_guide;
    sim_explore_next_guide = NULL;
    if (desc.scheduler == IST_SCHEDULER_FAIR && guide == NULL) {
        return IST_OK;
    }
    if (world->setup->process != NULL && world->setup->process->rank_count > 1) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "schedules are explored in one process: IST_LAUNCH=none");
    }
    sim_explore *explore = sim_explore_kept;
    sim_explore_kept = NULL;
    if (explore == NULL) {
        explore = ist_alloc(1, sizeof(*explore));
        if (explore == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory to explore");
        }
    }
    explore->world = world;
    explore->desc = desc;
    explore->guide = guide;
    explore->keep_touches = guide != NULL;
    explore->step_max =
        world->op_count_max > 0 ? world->op_count_max : (uint64_t)SIM_STEPS_MAX_DEFAULT;
    world->explore = explore;
    world->watched = desc.watch != NULL;
    IST_RETURN_IF_ERROR(sim_explore_room(explore));
    sim_explore_reset(explore);
    sim_shadow_begin(explore);
    sim_words_begin(explore);
    IST_RETURN_IF_ERROR(sim_choose_begin(explore, world->setup->seed));
    return sim_agents_begin(explore);
}

void sim_explore_close(sim_world *world)
{
    sim_explore *explore = world->explore;
    if (explore == NULL) {
        return;
    }
    world->explore = NULL;
    explore->world = NULL;
    if (sim_explore_kept != NULL) {
        sim_explore_free(sim_explore_kept);
    }
    sim_explore_kept = explore;
}

/* ---- report ---------------------------------------------------------------------------------- */

static uint64_t sim_pct_bound(const sim_explore *explore)
{
    uint64_t bound = explore->move_id > 0 ? explore->move_id : 1;
    for (uint32_t i = 1; i < explore->desc.depth; ++i) {
        if (__builtin_mul_overflow(bound, explore->desc.steps, &bound)) {
            return UINT64_MAX;
        }
    }
    return bound;
}

/* Nobody has asked for the report: the log gets its lines. */
static void sim_report_log(const ist_explore_report *report)
{
    const char *line = report->finding.text;
    while (report->finding_count > 0 && *line != '\0') {
        size_t bytes = strcspn(line, "\n");
        ist_log(IST_LOG_ERROR, "%.*s", (int)bytes, line);
        line += bytes + (line[bytes] == '\n' ? 1u : 0u);
    }
}

void sim_explore_finish(sim_world *world, ist_status status)
{
    sim_explore *explore = world->explore;
    ist_explore_report *filled = &explore->report;
    bool judged =
        (explore->desc.detectors_off >> IST_FINDING_STATUS & 1u) == 0; /* at the very end */
    if (filled->finding_count == 0 && status != IST_OK && !explore->cut && judged) {
        sim_finding_words(explore, IST_FINDING_STATUS, NULL, status, "a program ended with %s",
                          ist_status_name(status));
    }
    filled->digest = sim_log_digest(&world->log);
    filled->choices_digest =
        XXH3_64bits(explore->picks, explore->pick_count * sizeof(*explore->picks));
    filled->choice_points = explore->points;
    filled->steps = explore->step;
    filled->device_op_count = world->device_op_count;
    filled->device_call_count = world->device_call_count;
    filled->agents = explore->move_id;
    filled->pct_bound_inverse =
        explore->desc.scheduler == IST_SCHEDULER_PCT ? sim_pct_bound(explore) : 0;
    filled->choice_count = explore->pick_count;
    filled->cut = explore->cut ? 1u : 0u;
    ist_explore_report *report = world->setup->sim != NULL ? world->setup->sim->report : NULL;
    if (report == NULL) {
        sim_report_log(filled);
        return;
    }
    filled->choices = report->choices;
    filled->choice_capacity = report->choice_capacity;
    filled->size = report->size;
    if (report->choices != NULL && filled->choice_count > 0) {
        uint32_t count = filled->choice_count < filled->choice_capacity ? filled->choice_count
                                                                        : filled->choice_capacity;
        memcpy(report->choices, explore->picks, count * sizeof(*report->choices));
    }
    memcpy(report, filled, report->size < sizeof(*filled) ? report->size : sizeof(*filled));
}
