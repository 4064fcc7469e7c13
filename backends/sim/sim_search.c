/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching all schedules: stateless, by running the program again and again. Reduction by dynamic
 * backtracking (Flanagan and Godefroid, POPL 2005) and sleep sets (Godefroid, 1996): an order of two
 * steps is tried only when they touch the same bytes and one writes, and no execution is run to its
 * end twice. Loads that may return several values branch too.
 *
 * An event is what happens between two choices of a move. The stack holds the choices of the current
 * run; races of a finished run add alternatives to it, and the deepest one left is taken next.
 */
#include "sim_explore.h"

#include <string.h>

void sim_touch_note(sim_explore *explore, uint64_t begin, uint64_t bytes, bool write)
{
    if (explore->touch_count == explore->touch_room) {
        uint32_t room = explore->touch_room == 0 ? 4096u : explore->touch_room * 2u;
        sim_touched *touches = ist_alloc(room, sizeof(*touches));
        if (touches == NULL) {
            explore->cut = true;
            explore->stopped = true;
            return;
        }
        if (explore->touch_count > 0) {
            memcpy(touches, explore->touches, explore->touch_count * sizeof(*touches));
        }
        ist_free(explore->touches);
        explore->touches = touches;
        explore->touch_room = room;
    }
    explore->touches[explore->touch_count++] = (sim_touched){begin, begin + bytes, write};
}

/* ---- the stack ------------------------------------------------------------------------------- */

typedef struct sim_footprint {
    sim_touched *touches;
    uint32_t count;
} sim_footprint;

/* An alternative of a choice of moves. */
typedef struct sim_option {
    uint32_t id;
    bool wanted;             /* to be tried */
    bool done;               /* has been, with all that follows */
    bool asleep;             /* covered elsewhere, until something dependent happens */
    sim_footprint footprint; /* of its event; done or asleep */
} sim_option;

typedef struct sim_node {
    bool value;     /* a load's choice */
    uint32_t pick;  /* alternative of this run */
    uint32_t count; /* alternatives */
    uint32_t event; /* of a move */
    sim_option *options;
} sim_node;

typedef struct sim_happened {
    uint32_t id;
    uint32_t node;
    uint32_t touch_begin;
    uint32_t made; /* event that made it possible, or UINT32_MAX */
    bool barrier;  /* time passed before it */
} sim_happened;

typedef struct sim_search {
    const ist_explore_all_desc *all;
    ist_explore_all_result *result;
    sim_node *stack;
    uint32_t depth, at, room; /* nodes; of them replayed so far in this run */
    sim_happened *events;
    uint32_t event_count, event_room;
    uint64_t *before; /* [event_count][words]: what happens before each */
    size_t before_room;
    sim_explore *explore; /* of the run */
    sim_touched *touches; /* of the finished run */
    uint32_t touch_count, touch_room;
    bool broken;   /* out of memory */
    bool diverged; /* a run did not repeat the one before it */
} sim_search;

/* A larger array, or NULL; the old one is freed. */
static void *sim_search_grow(sim_search *search, void *old, uint32_t count, uint32_t *room,
                             size_t bytes)
{
    if (count < *room) {
        return old;
    }
    uint32_t larger = *room == 0 ? 256u : *room * 2u;
    void *made = ist_alloc(larger, bytes);
    if (made == NULL) {
        search->broken = true;
        return NULL;
    }
    if (count > 0) {
        memcpy(made, old, count * bytes);
    }
    ist_free(old);
    *room = larger;
    return made;
}

static void sim_node_free(sim_node *node)
{
    for (uint32_t i = 0; node->options != NULL && i < node->count; ++i) {
        ist_free(node->options[i].footprint.touches);
    }
    ist_free(node->options);
    node->options = NULL;
}

static sim_node *sim_node_push(sim_search *search)
{
    void *stack = sim_search_grow(search, search->stack, search->depth, &search->room,
                                  sizeof(*search->stack));
    if (stack == NULL) {
        return NULL;
    }
    search->stack = stack;
    sim_node *node = &search->stack[search->depth++];
    memset(node, 0, sizeof(*node));
    ++search->at;
    return node;
}

/* ---- dependence ------------------------------------------------------------------------------ */

static bool sim_overlap(const sim_touched *one, uint32_t one_count, const sim_touched *other,
                        uint32_t other_count)
{
    for (uint32_t i = 0; i < one_count; ++i) {
        for (uint32_t k = 0; k < other_count; ++k) {
            if ((one[i].write || other[k].write) && one[i].begin < other[k].end &&
                other[k].begin < one[i].end) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t sim_event_touches(const sim_search *search, uint32_t event,
                                  const sim_touched **touches)
{
    uint32_t begin = search->events[event].touch_begin;
    uint32_t end = event + 1u < search->event_count ? search->events[event + 1u].touch_begin
                                                    : search->touch_count;
    *touches = search->touches + begin;
    return end - begin;
}

static bool sim_events_depend(const sim_search *search, uint32_t one, uint32_t other)
{
    const sim_touched *first = NULL;
    const sim_touched *second = NULL;
    uint32_t first_count = sim_event_touches(search, one, &first);
    uint32_t second_count = sim_event_touches(search, other, &second);
    return sim_overlap(first, first_count, second, second_count);
}

static bool sim_footprint_copy(sim_search *search, sim_footprint *to, const sim_touched *from,
                               uint32_t count)
{
    ist_free(to->touches);
    to->count = 0;
    to->touches = ist_alloc(count == 0 ? 1 : count, sizeof(*from));
    if (to->touches == NULL) {
        search->broken = true;
        return false;
    }
    if (count > 0) {
        memcpy(to->touches, from, count * sizeof(*from));
    }
    to->count = count;
    return true;
}

/* ---- steering a run -------------------------------------------------------------------------- */

static void sim_event_begin(sim_search *search, uint32_t node, uint32_t id, uint32_t made)
{
    void *events = sim_search_grow(search, search->events, search->event_count, &search->event_room,
                                   sizeof(*search->events));
    if (events == NULL) {
        return;
    }
    search->events = events;
    sim_explore *explore = search->explore;
    explore->event = search->event_count;
    search->stack[node].event = search->event_count;
    search->events[search->event_count++] = (sim_happened){.id = id,
                                                           .node = node,
                                                           .touch_begin = explore->touch_count,
                                                           .made = made,
                                                           .barrier = explore->time_passed};
    explore->time_passed = false;
}

/* Who sleeps at a new node: who slept, or was done, at the last, less who depends on its event. */
static void sim_sleep_inherit(sim_search *search, sim_node *node, uint32_t parent)
{
    const sim_node *last = &search->stack[parent];
    const sim_explore *explore = search->explore;
    uint32_t begin = search->events[last->event].touch_begin;
    for (uint32_t i = 0; i < last->count; ++i) {
        const sim_option *old = &last->options[i];
        if (i == last->pick || (!old->asleep && !old->done) || explore->time_passed ||
            sim_overlap(old->footprint.touches, old->footprint.count, explore->touches + begin,
                        explore->touch_count - begin)) {
            continue;
        }
        for (uint32_t k = 0; k < node->count; ++k) {
            sim_option *option = &node->options[k];
            if (option->id == old->id &&
                sim_footprint_copy(search, &option->footprint, old->footprint.touches,
                                   old->footprint.count)) {
                option->asleep = true;
            }
        }
    }
}

static bool sim_node_begin(sim_search *search, uint32_t self)
{
    uint32_t parent = search->depth;
    while (parent > 0 && search->stack[parent - 1u].value) {
        --parent;
    }
    sim_node *node = sim_node_push(search);
    const sim_explore *explore = search->explore;
    uint32_t shift = self != UINT32_MAX ? 1u : 0u;
    uint32_t count = explore->move_count - explore->quiet_count + shift;
    if (node == NULL) {
        return false;
    }
    node->options = ist_alloc(count, sizeof(*node->options));
    if (node->options == NULL) {
        search->broken = true;
        return false;
    }
    node->count = count;
    for (uint32_t i = 0; i < count; ++i) {
        node->options[i].id =
            i < shift ? self : explore->moves[explore->quiet_count + i - shift].id;
        node->options[i].wanted = search->all->brute_force != 0;
    }
    if (parent > 0 && search->all->brute_force == 0) {
        sim_sleep_inherit(search, node, parent - 1u);
    }
    uint32_t pick = 0;
    while (pick < count && node->options[pick].asleep) {
        ++pick;
    }
    if (pick == count) { /* all that could follow is covered elsewhere */
        node->pick = 0;
        return false;
    }
    node->pick = pick;
    node->options[pick].wanted = true;
    return true;
}

static uint32_t sim_search_move(void *context, sim_explore *explore, uint32_t self)
{
    sim_search *search = context;
    search->explore = explore;
    if (search->broken || search->diverged) {
        return UINT32_MAX;
    }
    uint32_t index = search->at;
    uint32_t shift = self != UINT32_MAX ? 1u : 0u;
    if (index < search->depth) {
        ++search->at;
        search->diverged =
            search->stack[index].value ||
            search->stack[index].count != explore->move_count - explore->quiet_count + shift;
        if (search->diverged) {
            return UINT32_MAX;
        }
    } else if (!sim_node_begin(search, self)) {
        explore->cut = true;
        return UINT32_MAX;
    }
    const sim_node *node = &search->stack[index];
    uint32_t made = node->pick < shift
                        ? UINT32_MAX
                        : explore->moves[explore->quiet_count + node->pick - shift].made;
    sim_event_begin(search, index, node->options[node->pick].id, made);
    return node->pick;
}

static uint32_t sim_search_value(void *context, uint32_t count)
{
    sim_search *search = context;
    if (search->at < search->depth) {
        const sim_node *known = &search->stack[search->at++];
        search->diverged = search->diverged || !known->value || known->count != count;
        return search->diverged ? 0 : known->pick;
    }
    sim_node *node = sim_node_push(search);
    if (node == NULL) {
        return 0;
    }
    node->value = true;
    node->count = count;
    return 0;
}

/* ---- races of a finished run ----------------------------------------------------------------- */

static uint64_t *sim_before(sim_search *search, uint32_t event)
{
    return search->before + (size_t)event * ((search->event_count + 63u) / 64u);
}

static bool sim_is_before(sim_search *search, uint32_t one, uint32_t event)
{
    return (sim_before(search, event)[one / 64u] >> (one % 64u) & 1u) != 0;
}

static void sim_order_events(sim_search *search, uint32_t one, uint32_t event)
{
    uint64_t *to = sim_before(search, event);
    const uint64_t *from = sim_before(search, one);
    for (uint32_t i = 0; i <= one / 64u; ++i) {
        to[i] |= from[i];
    }
    to[one / 64u] |= 1ull << (one % 64u);
}

static sim_option *sim_option_of(sim_node *node, uint32_t id)
{
    for (uint32_t i = 0; i < node->count; ++i) {
        if (node->options[i].id == id) {
            return &node->options[i];
        }
    }
    return NULL;
}

/* Whether an event could be the first of those after `earlier` that lead to `later`, without
   `earlier`: nothing among them must come before it. */
static bool sim_is_initial(sim_search *search, uint32_t earlier, uint32_t event)
{
    for (uint32_t k = earlier + 1u; k < event; ++k) {
        if (!sim_is_before(search, earlier, k) && sim_is_before(search, k, event)) {
            return false;
        }
    }
    return true;
}

/*
 * The later of two that raced should come first. What leads to it and does not depend on the earlier
 * one can begin with any of its initials: unless one of them is tried or asleep here already, one is
 * wanted (source sets: Abdulla, Aronis, Jonsson, Sagonas, POPL 2014).
 */
static void sim_race_reverse(sim_search *search, uint32_t earlier, uint32_t later)
{
    sim_node *node = &search->stack[search->events[earlier].node];
    sim_option *wanted = NULL;
    for (uint32_t k = earlier + 1u; k <= later; ++k) {
        bool follows = k != later && sim_is_before(search, earlier, k);
        if (follows || !sim_is_initial(search, earlier, k)) {
            continue;
        }
        sim_option *option = sim_option_of(node, search->events[k].id);
        if (option != NULL && (option->wanted || option->asleep)) {
            return;
        }
        wanted = wanted == NULL ? option : wanted;
    }
    for (uint32_t i = 0; wanted == NULL && i < node->count; ++i) {
        node->options[i].wanted = true; /* nothing leads there by itself: try all */
    }
    if (wanted != NULL) {
        wanted->wanted = true;
    }
}

static bool sim_before_room(sim_search *search)
{
    size_t words = (size_t)search->event_count * ((search->event_count + 63u) / 64u);
    if (words > search->before_room) {
        ist_free(search->before);
        search->before = ist_alloc(words * 2u, sizeof(*search->before));
        search->before_room = search->before != NULL ? words * 2u : 0;
        search->broken = search->before == NULL;
    } else {
        memset(search->before, 0, words * sizeof(*search->before));
    }
    return !search->broken;
}

static void sim_races_find(sim_search *search)
{
    if (search->event_count == 0 || !sim_before_room(search)) {
        return;
    }
    for (uint32_t j = 1; j < search->event_count; ++j) {
        const sim_happened *event = &search->events[j];
        for (uint32_t k = j; k-- > 0;) {
            if (event->barrier) {
                sim_order_events(search, k, j);
                continue;
            }
            if (sim_is_before(search, k, j)) {
                continue;
            }
            if (search->events[k].id == event->id || event->made == k) {
                sim_order_events(search, k, j);
            } else if (sim_events_depend(search, k, j)) {
                sim_race_reverse(search, k, j);
                sim_order_events(search, k, j);
            }
        }
    }
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Adds what an event touched in this run: other values of its loads may touch other bytes. */
static void sim_footprint_add(sim_search *search, const sim_node *node, uint32_t index)
{
    sim_option *option = &node->options[node->pick];
    if (option->asleep || node->event >= search->event_count ||
        search->events[node->event].node != index) {
        return;
    }
    const sim_touched *touches = NULL;
    uint32_t count = sim_event_touches(search, node->event, &touches);
    sim_footprint old = option->footprint;
    sim_footprint made = {NULL, 0};
    made.touches = ist_alloc((size_t)old.count + count + 1u, sizeof(*made.touches));
    if (made.touches == NULL) {
        search->broken = true;
        return;
    }
    if (old.count > 0) {
        memcpy(made.touches, old.touches, old.count * sizeof(*made.touches));
    }
    if (count > 0) {
        memcpy(made.touches + old.count, touches, count * sizeof(*made.touches));
    }
    made.count = old.count + count;
    ist_free(old.touches);
    option->footprint = made;
}

static void sim_footprint_of_value(sim_search *search, uint32_t index)
{
    while (index > 0 && search->stack[index].value) {
        --index;
    }
    if (!search->stack[index].value) {
        sim_footprint_add(search, &search->stack[index], index);
    }
}

static bool sim_option_next(sim_node *node)
{
    for (uint32_t i = 0; i < node->count; ++i) {
        const sim_option *option = &node->options[i];
        if (option->wanted && !option->done && !option->asleep) {
            node->pick = i;
            return true;
        }
    }
    return false;
}

/* Marks what the run has finished and finds the deepest alternative left; false: none. */
static bool sim_search_next(sim_search *search)
{
    while (search->depth > 0) {
        uint32_t index = search->depth - 1u;
        sim_node *node = &search->stack[index];
        if (node->value && node->pick + 1u < node->count) {
            sim_footprint_of_value(search, index);
            ++node->pick;
            return true;
        }
        if (!node->value) {
            sim_footprint_add(search, node, index);
            node->options[node->pick].done = true;
            if (sim_option_next(node)) {
                return true;
            }
        }
        sim_node_free(node);
        --search->depth;
    }
    return false;
}

static void sim_search_keep(sim_search *search, const ist_explore_report *report,
                            const ist_choice *choices)
{
    ist_explore_all_result *result = search->result;
    result->first = *report;
    result->first.choices = NULL;
    result->first.choice_capacity = 0;
    result->choice_count = report->choice_count;
    uint32_t count = report->choice_count < result->choice_capacity ? report->choice_count
                                                                    : result->choice_capacity;
    if (result->choices != NULL && choices != NULL) {
        memcpy(result->choices, choices, count * sizeof(*choices));
    }
}

typedef struct sim_search_run {
    const ist_world_desc *desc;
    ist_rank_fn rank_main;
    void *arg;
    ist_choice *choices; /* [SIM_SEARCH_CHOICES] */
} sim_search_run;

#define SIM_SEARCH_CHOICES 65536u

/* What the run touched outlives its world. */
static void sim_search_take_touches(sim_search *search)
{
    sim_explore_lend_touches(&search->touches, &search->touch_count, &search->touch_room);
}

/* One run; true: the search goes on. */
static bool sim_search_once(sim_search *search, const sim_search_run *run, ist_status *status)
{
    ist_explore_desc explore = search->all->explore;
    ist_explore_report report = {
        .size = sizeof(report), .choices = run->choices, .choice_capacity = SIM_SEARCH_CHOICES};
    const sim_guide guide = {search, sim_search_move, sim_search_value};
    explore.size = sizeof(explore);
    explore.scheduler = IST_SCHEDULER_REPLAY;
    explore.options |= IST_EXPLORE_QUIET_HOSTS;
    explore.choice_count = 0;
    search->at = 0;
    search->event_count = 0;
    sim_explore_guide(&guide);
    ist_status ended = ist_explore_run(run->desc, run->rank_main, run->arg, &explore, &report);
    sim_explore_guide(NULL);
    ++search->result->runs;
    sim_search_take_touches(search);
    if (search->diverged) {
        *status =
            ist_raise(IST_ERR_USAGE, NULL,
                      "the program does not repeat itself: something but its schedule decides");
        return false;
    }
    if (!search->broken) {
        sim_races_find(search);
    }
    if (search->broken) {
        *status = ist_raise(IST_ERR_MEMORY, NULL, "no memory to search schedules");
        return false;
    }
    if (report.cut != 0) {
        return true;
    }
    ++search->result->executions;
    bool found = report.finding.kind != IST_FINDING_NONE;
    if (found && search->result->finding_count++ == 0) {
        *status = ended;
        sim_search_keep(search, &report, run->choices);
    } else if (search->result->finding_count == 0) {
        sim_search_keep(search, &report, run->choices);
    }
    if (search->all->each != NULL) {
        return search->all->each(search->all->context, ended, &report) == 0;
    }
    return !found;
}

static void sim_search_free(sim_search *search)
{
    for (uint32_t i = 0; i < search->depth; ++i) {
        sim_node_free(&search->stack[i]);
    }
    ist_free(search->stack);
    ist_free(search->events);
    ist_free(search->before);
    ist_free(search->touches);
}

ist_status ist_explore_all(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                           const ist_explore_all_desc *all, ist_explore_all_result *result)
{
    ist_explore_all_desc given = {.size = sizeof(given)};
    ist_explore_all_result filled = {.size = sizeof(filled)};
    if (all != NULL) {
        memcpy(&given, all, all->size < sizeof(given) ? all->size : sizeof(given));
    }
    if (result != NULL) {
        filled.choices = result->choices;
        filled.choice_capacity = result->choice_capacity;
    }
    sim_search search = {.all = &given, .result = &filled};
    sim_search_run run = {desc, rank_main, arg, NULL};
    run.choices = ist_alloc(SIM_SEARCH_CHOICES, sizeof(*run.choices));
    if (run.choices == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to search schedules");
    }
    uint64_t limit = given.run_count_max == 0 ? UINT64_C(10000000) : given.run_count_max;
    ist_status status = IST_OK;
    bool more = true;
    bool left = true;
    while (more && left && filled.runs < limit) {
        more = sim_search_once(&search, &run, &status);
        left = !more || sim_search_next(&search);
    }
    filled.complete = more && !left ? 1u : 0u;
    sim_search_free(&search);
    ist_free(run.choices);
    if (result != NULL) {
        memcpy(result, &filled, result->size < sizeof(filled) ? result->size : sizeof(filled));
    }
    return status;
}
