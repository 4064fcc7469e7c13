/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random fault plans within a budget. Ranks that die and ranks that stall are different ones, so
 * what the budget leaves over stays healthy; stalls, slow ranks and broken links end in bounded
 * time. One pattern is drawn on purpose, since it has found many faults in distributed systems:
 * clog a random subset of links at once and release them in another order.
 */
#include "sim_plan.h"
#include "sim_prng.h"

#include <stdio.h>
#include <string.h>

#define HORIZON_OPS_DEFAULT UINT64_C(1000)
#define HORIZON_OPS_MAX (SIM_FAULT_NS_MAX / 2 / OP_NS)
#define STALL_NS_DEFAULT UINT64_C(10000)
#define STALL_NS_MAX (SIM_FAULT_NS_MAX / 2)
/* Roughly what one operation takes, to place triggers by time where the program still runs. */
#define OP_NS UINT64_C(100)
#define CLOG_LINKS_MAX 64u
#define RATIO_MAX 16u
#define COUNT_MAX 8u

typedef struct plan_draw {
    ist_fault_plan *plan;
    ist_fault_budget budget; /* defaults resolved */
    sim_prng prng;
    uint64_t *taken; /* bit a rank: it dies or stalls */
    uint32_t taken_count;
} plan_draw;

static uint64_t draw_between(plan_draw *draw, uint64_t low, uint64_t high)
{
    return sim_prng_between(&draw->prng, low, high);
}

static ist_status draw_add(plan_draw *draw, ist_fault fault)
{
    sim_fault_flaw flaw;
    fault.size = sizeof fault;
    if (!sim_fault_check(&fault, &flaw)) {
        return ist_raise(IST_ERR_INTERNAL, NULL, "a drawn %s fault has a bad %s: allowed: %s",
                         sim_fault_kind_name(fault.kind), flaw.field, flaw.rule);
    }
    return sim_plan_append(draw->plan, &fault);
}

static uint64_t draw_time(plan_draw *draw)
{
    return draw_between(draw, 0, draw->budget.horizon_ops * OP_NS);
}

/* Mostly by operation: that hits the same place of the program whatever its timing. */
static void draw_trigger(plan_draw *draw, ist_fault *fault)
{
    if (sim_prng_chance(&draw->prng, 1, 4)) {
        fault->trigger = IST_FAULT_AT_TIME;
        fault->at_ns = draw_time(draw);
    } else {
        fault->trigger = IST_FAULT_AT_OP;
        fault->at_op = draw_between(draw, 1, draw->budget.horizon_ops);
    }
}

/* A rank that is not taken yet; at least one is left. */
static int32_t draw_free_rank(plan_draw *draw)
{
    const uint32_t rank_count = draw->budget.rank_count;
    uint32_t rank = (uint32_t)sim_prng_below(&draw->prng, rank_count);
    while ((draw->taken[rank / 64] >> (rank % 64) & 1u) != 0) {
        rank = rank + 1 == rank_count ? 0 : rank + 1;
    }
    draw->taken[rank / 64] |= UINT64_C(1) << (rank % 64);
    draw->taken_count++;
    return (int32_t)rank;
}

static ist_status draw_kills(plan_draw *draw)
{
    const uint64_t kills = draw_between(draw, 0, draw->budget.kill_count_max);
    for (uint64_t i = 0; i < kills; i++) {
        ist_fault fault = {.kind = IST_FAULT_KILL, .rank = draw_free_rank(draw)};
        draw_trigger(draw, &fault);
        IST_RETURN_IF_ERROR(draw_add(draw, fault));
    }
    return IST_OK;
}

/* A stall without an end, and the resume that ends it. */
static ist_status draw_stall_and_resume(plan_draw *draw, int32_t rank)
{
    ist_fault fault = {.kind = IST_FAULT_STALL, .rank = rank, .at_ns = draw_time(draw)};
    IST_RETURN_IF_ERROR(draw_add(draw, fault));
    fault.kind = IST_FAULT_RESUME;
    fault.at_ns += draw_between(draw, 1, draw->budget.stall_ns_max);
    return draw_add(draw, fault);
}

static ist_status draw_stalls(plan_draw *draw)
{
    const uint64_t stalls = draw_between(draw, 0, draw->budget.stall_count_max);
    for (uint64_t i = 0; i < stalls && draw->taken_count < draw->budget.rank_count; i++) {
        ist_fault fault = {.rank = draw_free_rank(draw)};
        switch (sim_prng_below(&draw->prng, 4)) {
        case 0: IST_RETURN_IF_ERROR(draw_stall_and_resume(draw, fault.rank)); continue;
        case 1:
            fault.kind = IST_FAULT_SLOW;
            fault.ratio = draw_between(draw, 2, RATIO_MAX);
            break;
        default:
            fault.kind = IST_FAULT_STALL;
            fault.duration_ns = draw_between(draw, 1, draw->budget.stall_ns_max);
            break;
        }
        draw_trigger(draw, &fault);
        IST_RETURN_IF_ERROR(draw_add(draw, fault));
    }
    return IST_OK;
}

/* Two different ranks; the second may be "all". */
static void draw_pair(plan_draw *draw, ist_fault *fault)
{
    const uint32_t rank_count = draw->budget.rank_count;
    const uint32_t rank = (uint32_t)sim_prng_below(&draw->prng, rank_count);
    const uint32_t step = 1 + (uint32_t)sim_prng_below(&draw->prng, rank_count - 1);
    fault->rank = (int32_t)rank;
    fault->peer = (int32_t)(((uint64_t)rank + step) % rank_count);
    if (sim_prng_chance(&draw->prng, 1, 8)) {
        fault->peer = IST_FAULT_ANY;
    }
}

static ist_status draw_transfer(plan_draw *draw)
{
    static const ist_fault_kind kinds[] = {IST_FAULT_DELAY, IST_FAULT_REORDER, IST_FAULT_DROP,
                                           IST_FAULT_DUPLICATE, IST_FAULT_ERROR};
    const uint64_t kind_count = draw->budget.legal_only != 0 ? 2 : 5;
    ist_fault fault = {.kind = kinds[sim_prng_below(&draw->prng, kind_count)],
                       .trigger = IST_FAULT_NTH};
    const bool delay = fault.kind == IST_FAULT_DELAY;
    draw_pair(draw, &fault);
    fault.classes = (uint32_t)draw_between(draw, 1, delay ? 7 : 3);
    fault.at_op = draw_between(draw, 1, draw->budget.horizon_ops);
    fault.count = draw_between(draw, 1, COUNT_MAX);
    if (delay || fault.kind == IST_FAULT_DUPLICATE) {
        fault.duration_ns = draw_between(draw, 1, draw->budget.stall_ns_max);
    }
    return draw_add(draw, fault);
}

static void draw_order(plan_draw *draw, uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t j = (uint32_t)sim_prng_below(&draw->prng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

/* `sample` says kind, classes and count; all pairs are struck at once, each ends at another time. */
static ist_status draw_clog(plan_draw *draw, ist_fault sample, uint32_t limit)
{
    uint32_t order[CLOG_LINKS_MAX];
    const uint64_t stall_ns_max = draw->budget.stall_ns_max;
    uint64_t most = limit < CLOG_LINKS_MAX ? limit : CLOG_LINKS_MAX;
    most = most < stall_ns_max ? most : stall_ns_max;
    const uint32_t pairs = (uint32_t)draw_between(draw, 1, most);
    const uint64_t step_ns = stall_ns_max / pairs;
    draw_order(draw, order, pairs);
    sample.trigger = IST_FAULT_AT_TIME;
    sample.at_ns = draw_time(draw);
    for (uint32_t i = 0; i < pairs; i++) {
        draw_pair(draw, &sample);
        sample.duration_ns = (order[i] + UINT64_C(1)) * step_ns;
        IST_RETURN_IF_ERROR(draw_add(draw, sample));
    }
    return IST_OK;
}

static ist_status draw_transfers(plan_draw *draw)
{
    const uint32_t limit = draw->budget.transfer_count_max;
    if (limit == 0 || draw->budget.rank_count < 2) {
        return IST_OK;
    }
    if (sim_prng_chance(&draw->prng, 1, 3)) {
        const ist_fault sample = {.kind = IST_FAULT_DELAY,
                                  .count = draw_between(draw, 1, COUNT_MAX)};
        return draw_clog(draw, sample, limit);
    }
    const uint64_t transfers = draw_between(draw, 0, limit);
    for (uint64_t i = 0; i < transfers; i++) {
        IST_RETURN_IF_ERROR(draw_transfer(draw));
    }
    return IST_OK;
}

static ist_status draw_link(plan_draw *draw)
{
    const bool slow = sim_prng_chance(&draw->prng, 1, 2);
    ist_fault fault = {.kind = slow ? IST_FAULT_LINK_SLOW : IST_FAULT_LINK_DOWN};
    draw_pair(draw, &fault);
    fault.duration_ns = draw_between(draw, 1, draw->budget.stall_ns_max);
    if (slow) {
        fault.ratio = draw_between(draw, 2, RATIO_MAX);
    }
    draw_trigger(draw, &fault);
    return draw_add(draw, fault);
}

static ist_status draw_links(plan_draw *draw)
{
    const uint32_t limit = draw->budget.link_count_max;
    if (limit == 0 || draw->budget.rank_count < 2) {
        return IST_OK;
    }
    if (sim_prng_chance(&draw->prng, 1, 2)) {
        const ist_fault sample = {.kind = IST_FAULT_LINK_DOWN};
        return draw_clog(draw, sample, limit);
    }
    const uint64_t links = draw_between(draw, 0, limit);
    for (uint64_t i = 0; i < links; i++) {
        IST_RETURN_IF_ERROR(draw_link(draw));
    }
    return IST_OK;
}

static ist_status draw_all(plan_draw *draw)
{
    IST_RETURN_IF_ERROR(draw_kills(draw));
    IST_RETURN_IF_ERROR(draw_stalls(draw));
    IST_RETURN_IF_ERROR(draw_transfers(draw));
    return draw_links(draw);
}

/* ------------------------------------------------------------------------------ the budget */

static ist_status raise_budget(ist_status status, const char *field, uint64_t observed,
                               uint64_t expected, const char *rule)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = observed,
                         .expected = expected};
    (void)snprintf(details.operation, sizeof details.operation, "fault_plan.random");
    (void)snprintf(details.object, sizeof details.object, "budget.%s", field);
    return ist_raise(status, &details, "budget.%s is %llu, expected %s %llu", field,
                     (unsigned long long)observed, rule, (unsigned long long)expected);
}

static ist_status budget_check(const ist_fault_budget *budget)
{
    if (budget->size < sizeof *budget) {
        return raise_budget(IST_ERR_SIZE, "size", budget->size, sizeof *budget, "at least");
    }
    if (budget->reserved != 0) {
        return raise_budget(IST_ERR_RESERVED, "reserved", budget->reserved, 0, "");
    }
    if (budget->rank_count == 0 || budget->rank_count > INT32_MAX) {
        return raise_budget(IST_ERR_ARGUMENT, "rank_count", budget->rank_count, INT32_MAX, "1 to");
    }
    if (budget->kill_count_max >= budget->rank_count) {
        return raise_budget(IST_ERR_ARGUMENT, "kill_count_max", budget->kill_count_max,
                            budget->rank_count, "less than rank_count, which is");
    }
    if (budget->legal_only > 1) {
        return raise_budget(IST_ERR_ARGUMENT, "legal_only", budget->legal_only, 1, "0 or");
    }
    if (budget->horizon_ops > HORIZON_OPS_MAX) {
        return raise_budget(IST_ERR_ARGUMENT, "horizon_ops", budget->horizon_ops, HORIZON_OPS_MAX,
                            "at most");
    }
    if (budget->stall_ns_max > STALL_NS_MAX) {
        return raise_budget(IST_ERR_ARGUMENT, "stall_ns_max", budget->stall_ns_max, STALL_NS_MAX,
                            "at most");
    }
    return IST_OK;
}

ist_status ist_fault_plan_random(ist_fault_plan *plan, uint64_t seed,
                                 const ist_fault_budget *budget)
{
    IST_RETURN_IF_ERROR(sim_plan_usable(plan, "fault_plan.random"));
    if (budget == NULL) {
        return sim_plan_null("fault_plan.random", "budget");
    }
    IST_RETURN_IF_ERROR(budget_check(budget));
    plan_draw draw = {.plan = plan, .budget = *budget};
    if (draw.budget.horizon_ops == 0) {
        draw.budget.horizon_ops = HORIZON_OPS_DEFAULT;
    }
    if (draw.budget.stall_ns_max == 0) {
        draw.budget.stall_ns_max = STALL_NS_DEFAULT;
    }
    draw.taken = ist_alloc(((size_t)budget->rank_count + 63) / 64, sizeof *draw.taken);
    if (draw.taken == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to draw a fault plan for %u ranks",
                         budget->rank_count);
    }
    const uint32_t count = plan->count;
    sim_prng_seed(&draw.prng, seed);
    const ist_status status = draw_all(&draw);
    if (status != IST_OK) {
        plan->count = count;
    }
    ist_free(draw.taken);
    return status;
}
