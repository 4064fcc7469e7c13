/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who decides: the schedulers. Every choice of a world comes from here, and from one generator.
 *
 * PCT (Burckhardt, Kothari, Musuvathi, Nagarakatte, ASPLOS 2010): each agent has a random priority,
 * the highest that can go on does; at depth - 1 random points the leader falls behind all others. A
 * delivery is an agent of one step, as in PCT for messages (Ozkan et al., OOPSLA 2018). A failure of
 * depth d is met with probability at least 1 / (n * k^(d-1)) for n agents and k points.
 */
#include "sim_explore.h"

#include <string.h>

#define SIM_DEPTH_DEFAULT 3u
#define SIM_STEPS_DEFAULT 1000u
#define SIM_DEPTH_MAX 64u
/* Priorities of agents that have not fallen lie above this. */
#define SIM_PRIORITY_HIGH (UINT64_C(1) << 63)

static uint32_t sim_draw(sim_explore *explore, uint32_t count)
{
    return (uint32_t)(((sim_prng_next(&explore->prng) >> 32) * count) >> 32);
}

/* Ascending, duplicates allowed: two changes at one point let two leaders fall. */
static void sim_changes_draw(sim_explore *explore)
{
    uint32_t count = explore->desc.depth - 1u;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t at = (uint32_t)sim_prng_below(&explore->prng, explore->desc.steps);
        uint32_t place = i;
        while (place > 0 && explore->change_at[place - 1u] > at) {
            explore->change_at[place] = explore->change_at[place - 1u];
            --place;
        }
        explore->change_at[place] = at;
    }
}

/* A search asks its guide at each choice. */
static void sim_change_set(sim_explore *explore)
{
    bool left = explore->change_next + 1u < explore->desc.depth;
    explore->change_point = explore->guide != NULL ? 0
                            : left                 ? explore->change_at[explore->change_next]
                                                   : UINT64_MAX;
}

/* Who runs goes on in half of the cases: how often in a row, from one number's low bits. */
static void sim_ahead_set(sim_explore *explore, uint64_t bits)
{
    explore->ahead = (uint32_t)__builtin_ctzll(bits | UINT64_C(1) << 32);
}

ist_status sim_choose_begin(sim_explore *explore, uint64_t seed)
{
    ist_explore_desc *desc = &explore->desc;
    desc->depth = desc->depth == 0 ? SIM_DEPTH_DEFAULT : desc->depth;
    desc->steps = desc->steps == 0 ? SIM_STEPS_DEFAULT : desc->steps;
    if (desc->depth > SIM_DEPTH_MAX) {
        return ist_raise(IST_ERR_RANGE, NULL, "explore.depth is %u, at most %u is possible",
                         desc->depth, SIM_DEPTH_MAX);
    }
    sim_prng_seed(&explore->prng, seed);
    explore->points = 0;
    explore->pick_count = 0;
    explore->replay_next = 0;
    explore->change_next = 0;
    explore->change_point = 0;
    explore->ahead = 0;
    if (desc->scheduler == IST_SCHEDULER_PCT) {
        if (explore->change_at == NULL) {
            explore->change_at = ist_alloc(SIM_DEPTH_MAX, sizeof(*explore->change_at));
            if (explore->change_at == NULL) {
                return ist_raise(IST_ERR_MEMORY, NULL, "no memory for change points");
            }
        }
        sim_changes_draw(explore);
        sim_change_set(explore);
    } else if (desc->scheduler == IST_SCHEDULER_RANDOM && explore->guide == NULL) {
        sim_ahead_set(explore, sim_prng_next(&explore->prng));
    }
    return IST_OK;
}

uint64_t sim_choose_priority(sim_explore *explore)
{
    return explore->desc.scheduler == IST_SCHEDULER_PCT
               ? sim_prng_next(&explore->prng) | SIM_PRIORITY_HIGH
               : 0;
}

static __attribute__((noinline)) bool sim_picks_grow(sim_explore *explore)
{
    uint32_t room = explore->pick_room == 0 ? 4096u : explore->pick_room * 2u;
    ist_choice *picks = ist_alloc(room, sizeof(*picks));
    if (picks == NULL) {
        return false;
    }
    if (explore->pick_count > 0) {
        memcpy(picks, explore->picks, explore->pick_count * sizeof(*picks));
    }
    ist_free(explore->picks);
    explore->picks = picks;
    explore->pick_room = room;
    return true;
}

static inline void sim_pick_keep(sim_explore *explore, uint32_t at, uint32_t pick)
{
    if (explore->pick_count < explore->pick_room || sim_picks_grow(explore)) {
        explore->picks[explore->pick_count++] = (ist_choice){at, pick};
    }
}

static uint32_t sim_replay_pick(sim_explore *explore, uint32_t at, uint32_t count)
{
    const ist_explore_desc *desc = &explore->desc;
    while (explore->replay_next < desc->choice_count &&
           desc->choices[explore->replay_next].at < at) {
        ++explore->replay_next;
    }
    if (explore->replay_next == desc->choice_count ||
        desc->choices[explore->replay_next].at != at) {
        return 0;
    }
    uint32_t pick = desc->choices[explore->replay_next].pick;
    return pick < count ? pick : 0; /* a shrunk schedule may not fit in every place */
}

static inline uint32_t sim_pick_done(sim_explore *explore, uint32_t at, uint32_t pick)
{
    if (pick != 0) {
        sim_pick_keep(explore, at, pick);
    }
    return pick;
}

uint32_t sim_choose_value(sim_explore *explore, uint32_t count)
{
    if (count < 2) {
        return 0;
    }
    uint32_t at = (uint32_t)explore->points++;
    uint32_t pick = 0;
    if (explore->guide != NULL) {
        return sim_pick_done(explore, at,
                             explore->guide->pick_value(explore->guide->context, count));
    }
    switch (explore->desc.scheduler) {
    case IST_SCHEDULER_FAIR: break;
    case IST_SCHEDULER_RANDOM:
    case IST_SCHEDULER_PCT: pick = sim_draw(explore, count); break;
    case IST_SCHEDULER_REPLAY: pick = sim_replay_pick(explore, at, count); break;
    }
    return sim_pick_done(explore, at, pick);
}

/* ---- moves ----------------------------------------------------------------------------------- */

static uint32_t sim_leader(const sim_explore *explore, const sim_actor *self)
{
    uint32_t best = 0;
    const sim_move *moves = explore->moves + explore->quiet_count;
    uint64_t priority = self != NULL ? self->priority : moves[0].priority;
    uint32_t shift = self != NULL ? 1u : 0u;
    for (uint32_t i = 1u - shift; i < explore->move_count - explore->quiet_count; ++i) {
        if (moves[i].priority > priority) {
            priority = moves[i].priority;
            best = i + shift;
        }
    }
    return best;
}

static void sim_leader_falls(sim_explore *explore, sim_actor *self, uint32_t leader)
{
    uint64_t low = explore->desc.depth - explore->change_next;
    uint32_t shift = self != NULL ? 1u : 0u;
    if (leader < shift) {
        self->priority = low;
        return;
    }
    sim_move *move = &explore->moves[explore->quiet_count + leader - shift];
    move->priority = low;
    if (move->kind == SIM_MOVE_ACTOR) {
        ((sim_actor *)move->object)->priority = low;
    }
}

static uint32_t sim_pct_pick(sim_explore *explore, sim_actor *self, uint32_t at)
{
    if (explore->change_point > at && self != NULL && self->priority >= explore->challenger) {
        return 0;
    }
    uint32_t leader = sim_leader(explore, self);
    while (explore->change_point <= at) {
        sim_leader_falls(explore, self, leader);
        ++explore->change_next;
        sim_change_set(explore);
        leader = sim_leader(explore, self);
    }
    return leader;
}

/* Who runs goes on as often as was drawn; then all alternatives are equally likely. */
static inline uint32_t sim_random_pick(sim_explore *explore, const sim_actor *self, uint32_t count)
{
    if (self != NULL && explore->ahead > 0) {
        --explore->ahead;
        return 0;
    }
    uint64_t bits = sim_prng_next(&explore->prng);
    if (self != NULL) {
        sim_ahead_set(explore, bits);
    }
    return (uint32_t)(((bits >> 32) * count) >> 32);
}

uint32_t sim_choose_move(sim_explore *explore, sim_actor *self)
{
    uint32_t count = explore->move_count - explore->quiet_count + (self != NULL ? 1u : 0u);
    if (explore->desc.scheduler == IST_SCHEDULER_RANDOM && explore->guide == NULL && count > 1) {
        uint32_t at = (uint32_t)explore->points++;
        return sim_pick_done(explore, at, sim_random_pick(explore, self, count));
    }
    if (explore->guide != NULL) {
        uint32_t at = count > 1 ? (uint32_t)explore->points++ : 0;
        uint32_t pick = explore->guide->pick_move(explore->guide->context, explore,
                                                  self != NULL ? self->move_id : UINT32_MAX);
        return pick == UINT32_MAX ? pick : sim_pick_done(explore, at, pick);
    }
    if (count < 2) {
        return 0;
    }
    uint32_t at = (uint32_t)explore->points++;
    uint32_t pick = 0;
    switch (explore->desc.scheduler) {
    case IST_SCHEDULER_FAIR:
    case IST_SCHEDULER_RANDOM: break;
    case IST_SCHEDULER_PCT: pick = sim_pct_pick(explore, self, at); break;
    case IST_SCHEDULER_REPLAY: pick = sim_replay_pick(explore, at, count); break;
    }
    return sim_pick_done(explore, at, pick);
}
