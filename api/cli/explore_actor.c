/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a scenario's programs, and what of their failures the fault plan explains. */
#include "explore_actor.h"

#include "cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void explore_begin(ist_world *world, void *run, explore_actor *actor)
{
    *actor = (explore_actor){.run = run,
                             .world = world,
                             .rank = ist_world_rank(world),
                             .rank_count = ist_world_rank_count(world)};
    actor->seen = &actor->run->seen[actor->rank];
    memset(actor->seen, 0, sizeof *actor->seen);
}

ist_status explore_end(explore_actor *actor, ist_status status)
{
    actor->seen->ended = status != IST_ERR_KILLED;
    actor->seen->end_ns = ist_world_clock_ns(actor->world);
    if (status == IST_ERR_KILLED) {
        return status;
    }
    return actor->seen->why[0] == '\0' ? IST_OK : IST_ERR_INTERNAL;
}

void explore_wrong(explore_actor *actor, const char *format, ...)
{
    char *why = actor->seen->why;
    size_t room = sizeof actor->seen->why;
    if (why[0] != '\0') {
        return;
    }
    int used = snprintf(why, room, "rank %u: ", actor->rank);
    va_list list;
    va_start(list, format);
    (void)vsnprintf(why + used, room - (size_t)used, format, list);
    va_end(list);
}

ist_status explore_call(explore_actor *actor, ist_status status, const char *what)
{
    if (status == IST_ERR_EVICTED) {
        explore_evicted(actor, what);
    } else if (status != IST_OK && status != IST_ERR_KILLED) {
        explore_wrong(actor, "%s ended with %s: %s", what, ist_status_name(status),
                      cli_error_text(status));
    }
    return status;
}

/* Opens on all ranks or on none; who is told what depends on where the fault struck. */
static bool may_fail_to_open(const explore_blame *blame, ist_status status)
{
    bool told = status == IST_ERR_TIMEOUT || status == IST_ERR_RANK_LOST ||
                status == IST_ERR_MISMATCH || status == IST_ERR_KILLED ||
                (status == IST_ERR_MEMORY && blame->allocations);
    return blame->setup && told;
}

ist_status explore_opened(explore_actor *actor, ist_status status)
{
    actor->seen->open = status;
    if (status != IST_OK && status != IST_ERR_KILLED &&
        !may_fail_to_open(&actor->run->blame, status)) {
        explore_wrong(actor, "opening ended with %s: %s", ist_status_name(status),
                      cli_error_text(status));
    }
    return status;
}

/* ------------------------------------------------------------------------------------ who is there */

uint64_t explore_blamed(const explore_run *run)
{
    uint64_t set = run->blame.blamed;
    for (uint32_t rank = 0; rank < run->numbers.ranks; ++rank) {
        set |= run->seen[rank].open != IST_OK ? UINT64_C(1) << rank : 0;
    }
    return set;
}

bool explore_may_be_out(const explore_actor *actor)
{
    const explore_blame *blame = &actor->run->blame;
    return explore_has(explore_blamed(actor->run), actor->rank) ||
           (blame->blamed & ~blame->killed) != 0;
}

void explore_missed(explore_actor *actor, uint64_t lost, const char *what)
{
    explore_seen *seen = actor->seen;
    lost &= ~seen->excused;
    seen->lost |= lost;
    if ((lost & ~explore_blamed(actor->run)) != 0 && seen->lost_by[0] == '\0') {
        (void)snprintf(seen->lost_by, sizeof seen->lost_by, "%s", what);
    }
}

void explore_evicted(explore_actor *actor, const char *what)
{
    if (!actor->seen->evicted) {
        (void)snprintf(actor->seen->out_by, sizeof actor->seen->out_by, "%s", what);
    }
    actor->seen->evicted = true;
}

void explore_forget_missed(explore_actor *actor)
{
    actor->seen->lost = 0;
    actor->seen->evicted = false;
    actor->seen->lost_by[0] = '\0';
    actor->seen->out_by[0] = '\0';
}

ist_status explore_look(explore_actor *actor, uint64_t *mask, uint64_t *generation)
{
    ist_mask view = {.size = sizeof view, .words = mask, .word_count = 1};
    EXPLORE_TRY(explore_call(actor, ist_comm_mask_query(actor->comm, &view), "mask_query"));
    *generation = view.generation;
    explore_missed(actor, explore_all(actor) & ~*mask, "the mask");
    return IST_OK;
}

/* Its peer counts as missed; its status has to be one that such a plan leads to. */
static bool may_be_told(explore_actor *actor, const ist_error *error)
{
    const explore_blame *blame = &actor->run->blame;
    if (error->peer >= 0 && (uint32_t)error->peer < actor->rank_count &&
        error->status != IST_ERR_EVICTED) {
        explore_missed(actor, UINT64_C(1) << error->peer, "an error");
    }
    return error->status == IST_ERR_TIMEOUT || error->status == IST_ERR_EVICTED ||
           error->status == IST_ERR_RANK_LOST ||
           (error->status == IST_ERR_REMOTE && (blame->transfers || blame->killed != 0));
}

ist_status explore_errors(explore_actor *actor)
{
    uint32_t count = 0;
    EXPLORE_TRY(explore_call(actor, ist_comm_error_get(actor->comm, 0, &count, NULL), "error_get"));
    for (uint32_t i = 0; i < count && i < 16u; ++i) {
        ist_error error = {.size = sizeof error};
        EXPLORE_TRY(
            explore_call(actor, ist_comm_error_get(actor->comm, i, &count, &error), "error_get"));
        if (!may_be_told(actor, &error)) {
            explore_wrong(actor, "an error that the plan does not explain, %s of rank %d: %.100s",
                          ist_status_name(error.status), error.peer, error.message);
        }
    }
    return IST_OK;
}

ist_status explore_met(explore_actor *actor, ist_status status, const char *what)
{
    explore_seen *seen = actor->seen;
    ++seen->meeting;
    seen->met = false;
    if (status != IST_OK && status != IST_INCOMPLETE) {
        return explore_call(actor, status, what);
    }
    bool late = explore_has(explore_blamed(actor->run), actor->rank) && strcmp(what, "clean") == 0;
    seen->excused = late ? explore_all(actor) : 0; /* it may find nobody there */
    EXPLORE_TRY(explore_look(actor, &seen->mask, &seen->generation));
    seen->excused &= ~seen->mask;
    if (!explore_has(seen->mask, actor->rank)) {
        explore_wrong(actor, "%s ended well, and this rank is not in its mask", what);
    }
    if ((status == IST_INCOMPLETE) != (seen->mask != explore_all(actor)) &&
        strcmp(what, "agree") != 0) {
        explore_wrong(actor, "%s ended with %s, its mask is 0x%" PRIx64, what,
                      ist_status_name(status), seen->mask);
    }
    seen->met = true;
    return IST_OK;
}

ist_status explore_sleep_until(explore_actor *actor, uint64_t at_ns)
{
    uint64_t now_ns = ist_world_clock_ns(actor->world);
    return now_ns >= at_ns
               ? IST_OK
               : explore_call(actor, ist_world_sleep(actor->world, at_ns - now_ns), "sleep");
}
