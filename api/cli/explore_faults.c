/* SPDX-License-Identifier: Apache-2.0 */
/* Draws fault plans of one kind, and says what a plan explains. A fault that ends within an eighth of a
 * deadline explains nothing: deadlines are of silence, and nobody is silent for one.
 */
#include "explore_faults.h"

#include "cli_hash.h"

#include <stdio.h>
#include <string.h>

#define SOFT_NS (EXPLORE_DEADLINE_NS / 8u)
#define HARD_NS (EXPLORE_DEADLINE_NS / 4u)
/* A load over a dead link cannot be given up, so it has to be up again before the world's deadline. */
#define OUTAGE_NS_MAX (3u * EXPLORE_DEADLINE_NS)
#define STRUCK_MAX 4u

#define X(name, text, network, sentence) {text, sentence, network},
static const struct {
    const char *name, *sentence;
    bool network;
} kinds[] = {EXPLORE_FAULT_LIST(X)};
#undef X

const char *explore_fault_name(explore_fault kind)
{
    return kinds[kind].name;
}

const char *explore_fault_sentence(explore_fault kind)
{
    return kinds[kind].sentence;
}

uint32_t explore_faults_useful(bool network)
{
    uint32_t useful = 0;
    for (uint32_t kind = 0; kind < EXPLORE_FAULT_COUNT; ++kind) {
        useful |= network || !kinds[kind].network ? UINT32_C(1) << kind : 0;
    }
    return useful;
}

/* ------------------------------------------------------------------------------------ drawing */

typedef struct dice {
    uint64_t key, thrown;
    const explore_ground *ground;
    ist_fault_plan *plan;
} dice;

static uint64_t between(dice *d, uint64_t low, uint64_t high)
{
    uint64_t random = cli_fold(d->key, ++d->thrown);
    return high <= low ? low : low + random % (high - low + 1u);
}

static int32_t some_rank(dice *d)
{
    return (int32_t)between(d, 0, d->ground->rank_count - 1u);
}

static void some_pair(dice *d, ist_fault *fault)
{
    uint32_t count = d->ground->rank_count;
    fault->rank = some_rank(d);
    fault->peer = (int32_t)(((uint32_t)fault->rank + between(d, 1, count - 1u)) % count);
}

/* Mostly in the protocol, one in eight while all is being opened; at a point where there are any. */
static void some_moment(dice *d, ist_fault *fault)
{
    const explore_ground *ground = d->ground;
    uint32_t points = 0;
    while (ground->points != NULL && ground->points[points] != NULL) {
        ++points;
    }
    fault->trigger = IST_FAULT_AT_OP;
    fault->at_op = between(d, ground->setup_ops, ground->horizon_ops);
    if (between(d, 0, 7) == 0) {
        fault->at_op = between(d, 1, ground->horizon_ops);
    } else if (points > 0 && between(d, 0, 1) == 0) {
        fault->trigger = IST_FAULT_AT_POINT;
        fault->at_op = between(d, 1, ground->pass_count);
        (void)snprintf(fault->point, sizeof fault->point, "%s",
                       ground->points[between(d, 0, points - 1u)]);
    }
}

static ist_status add(dice *d, ist_fault fault)
{
    fault.size = sizeof fault;
    return ist_fault_plan_add(d->plan, &fault);
}

static ist_status draw_stall(dice *d)
{
    ist_fault fault = {.kind = IST_FAULT_STALL, .rank = some_rank(d), .peer = IST_FAULT_ANY};
    some_moment(d, &fault);
    bool is_long = between(d, 0, 1) == 0;
    fault.duration_ns = is_long ? between(d, EXPLORE_DEADLINE_NS, 6u * EXPLORE_DEADLINE_NS)
                                : between(d, 1, SOFT_NS);
    return add(d, fault);
}

static ist_status draw_rank(dice *d, ist_fault_kind kind)
{
    ist_fault fault = {.kind = kind, .rank = some_rank(d), .peer = IST_FAULT_ANY};
    some_moment(d, &fault);
    fault.ratio = kind == IST_FAULT_SLOW ? between(d, 2, 16) : 0;
    return add(d, fault);
}

static ist_status draw_transfer(dice *d, ist_fault_kind kind)
{
    bool late = kind == IST_FAULT_DELAY;
    ist_fault fault = {.kind = kind, .trigger = IST_FAULT_NTH};
    some_pair(d, &fault);
    fault.classes = (uint32_t)between(d, 1, 3);
    if (late && (!d->ground->network || between(d, 0, 2) == 0)) {
        fault.classes = IST_FAULT_STORES;
    }
    fault.at_op = between(d, 1, 4u * d->ground->pass_count);
    fault.count = between(d, 1, STRUCK_MAX);
    if (late || kind == IST_FAULT_DUPLICATE) {
        fault.duration_ns = between(d, 1, SOFT_NS / STRUCK_MAX);
    }
    return add(d, fault);
}

static ist_status draw_link(dice *d, ist_fault_kind kind)
{
    ist_fault fault = {.kind = kind};
    some_pair(d, &fault);
    some_moment(d, &fault);
    bool is_long = kind == IST_FAULT_LINK_DOWN && between(d, 0, 1) == 0;
    fault.duration_ns =
        is_long ? between(d, EXPLORE_DEADLINE_NS, OUTAGE_NS_MAX) : between(d, 1, SOFT_NS);
    fault.ratio = kind == IST_FAULT_LINK_SLOW ? between(d, 2, 16) : 0;
    return add(d, fault);
}

static ist_status draw_opening(dice *d, ist_fault_kind kind)
{
    uint64_t most = kind == IST_FAULT_ALLOC ? 12 : 4;
    ist_fault fault = {.kind = kind,
                       .trigger = IST_FAULT_NTH,
                       .rank = some_rank(d),
                       .peer = IST_FAULT_ANY,
                       .at_op = between(d, 1, most)};
    return add(d, fault);
}

static ist_status draw_mixed(dice *d)
{
    bool legal = between(d, 0, 3) == 0;
    ist_fault_budget budget = {.size = sizeof budget,
                               .rank_count = d->ground->rank_count,
                               .kill_count_max = d->ground->rank_count > 2 ? 1 : 0,
                               .stall_count_max = 1,
                               .transfer_count_max = d->ground->network ? 4 : 1,
                               .link_count_max = 1,
                               .horizon_ops = d->ground->horizon_ops,
                               .stall_ns_max = OUTAGE_NS_MAX,
                               .legal_only = legal ? 1 : 0};
    return ist_fault_plan_random(d->plan, between(d, 0, UINT64_MAX - 1u), &budget);
}

ist_status explore_faults_draw(ist_fault_plan *plan, explore_fault kind, uint64_t seed,
                               const explore_ground *ground)
{
    dice d = {.key = cli_fold(seed, 0x6661756c74u), .ground = ground, .plan = plan};
    if (ground->rank_count < 2) {
        return IST_OK;
    }
    switch (kind) {
    case EXPLORE_NONE:
    case EXPLORE_FAULT_COUNT: break;
    case EXPLORE_KILL: return draw_rank(&d, IST_FAULT_KILL);
    case EXPLORE_STALL: return draw_stall(&d);
    case EXPLORE_SLOW: return draw_rank(&d, IST_FAULT_SLOW);
    case EXPLORE_DELAY: return draw_transfer(&d, IST_FAULT_DELAY);
    case EXPLORE_DROP: return draw_transfer(&d, IST_FAULT_DROP);
    case EXPLORE_DUPLICATE: return draw_transfer(&d, IST_FAULT_DUPLICATE);
    case EXPLORE_REORDER: return draw_transfer(&d, IST_FAULT_REORDER);
    case EXPLORE_ERROR: return draw_transfer(&d, IST_FAULT_ERROR);
    case EXPLORE_LINK_DOWN: return draw_link(&d, IST_FAULT_LINK_DOWN);
    case EXPLORE_LINK_SLOW: return draw_link(&d, IST_FAULT_LINK_SLOW);
    case EXPLORE_ALLOC: return draw_opening(&d, IST_FAULT_ALLOC);
    case EXPLORE_REGISTER: return draw_opening(&d, IST_FAULT_REGISTER);
    case EXPLORE_MIXED: return draw_mixed(&d);
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ blame */

static uint64_t bit_of(int32_t rank, uint64_t all)
{
    return rank < 0 ? all : (UINT64_C(1) << rank) & all;
}

static void blame_transfer(explore_blame *blame, const ist_fault *fault, uint64_t all)
{
    uint64_t ends = bit_of(fault->rank, all) | bit_of(fault->peer, all);
    bool late = fault->kind == IST_FAULT_DELAY;
    if (fault->kind == IST_FAULT_REORDER || (late && fault->duration_ns * fault->count < HARD_NS)) {
        return;
    }
    blame->blamed |= ends;
    blame->cut |= ends;
    blame->setup = true;
    blame->transfers = true;
}

/* A link is a port: peers behind it feel it too, and a rank behind it may take all others for dead. */
static void blame_link(explore_blame *blame, const ist_fault *fault, uint64_t all)
{
    if (fault->kind == IST_FAULT_LINK_DOWN &&
        (fault->duration_ns == 0 || fault->duration_ns >= HARD_NS)) {
        blame->blamed = all;
        blame->cut = all;
        blame->setup = true;
        blame->transfers = true;
    }
}

static void blame_rank(explore_blame *blame, const ist_fault *fault, uint64_t all)
{
    uint64_t rank = bit_of(fault->rank, all);
    bool passes =
        fault->kind == IST_FAULT_STALL && fault->duration_ns != 0 && fault->duration_ns < HARD_NS;
    if (passes) {
        return;
    }
    blame->blamed |= rank;
    blame->setup = true;
    blame->killed |= fault->kind == IST_FAULT_KILL ? rank : 0;
    blame->allocations |= fault->kind == IST_FAULT_ALLOC || fault->kind == IST_FAULT_REGISTER;
}

explore_blame explore_blame_of(const ist_fault_plan *plan, uint32_t rank_count)
{
    explore_blame blame = {0};
    uint64_t all = rank_count >= 64 ? UINT64_MAX : (UINT64_C(1) << rank_count) - 1u;
    for (uint32_t i = 0; plan != NULL && i < ist_fault_plan_count(plan); ++i) {
        ist_fault fault = {.size = sizeof fault};
        if (ist_fault_plan_get(plan, i, &fault) != IST_OK) {
            continue;
        }
        switch (fault.kind) {
        case IST_FAULT_KILL:
        case IST_FAULT_STALL:
        case IST_FAULT_ALLOC:
        case IST_FAULT_REGISTER: blame_rank(&blame, &fault, all); break;
        case IST_FAULT_DELAY:
        case IST_FAULT_DROP:
        case IST_FAULT_DUPLICATE:
        case IST_FAULT_REORDER:
        case IST_FAULT_ERROR: blame_transfer(&blame, &fault, all); break;
        case IST_FAULT_LINK_DOWN:
        case IST_FAULT_LINK_SLOW: blame_link(&blame, &fault, all); break;
        case IST_FAULT_SLOW:
        case IST_FAULT_RESUME: break;
        }
    }
    return blame;
}
