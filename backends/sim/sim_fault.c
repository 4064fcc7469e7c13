/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled fault plan: one allocation with the faults, their state, and index arrays sorted by
 * how the engine asks, so that a question with the answer "no" costs a comparison.
 */
#include "sim_fault.h"

#include "sim_plan.h"

#include <stdio.h>
#include <string.h>

#define PS_PER_NS UINT64_C(1000)

/* ------------------------------------------------------------------------------ checking */

static ist_status raise_outside(uint32_t index, const char *field, int32_t observed,
                                uint32_t rank_count)
{
    ist_error details = {.size = sizeof details,
                         .rank = observed,
                         .peer = IST_RANK_NONE,
                         .observed = (uint64_t)observed,
                         .expected = rank_count};
    (void)snprintf(details.object, sizeof details.object, "faults[%u].%s", index, field);
    (void)snprintf(details.operation, sizeof details.operation, "world.run");
    return ist_raise(IST_ERR_RANGE, &details, "faults[%u].%s is %d, the world has %u ranks", index,
                     field, (int)observed, rank_count);
}

static ist_status plan_fits(const ist_fault_plan *plan, uint32_t rank_count)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        const ist_fault *fault = &plan->faults[i];
        if (fault->rank != IST_FAULT_ANY && (uint32_t)fault->rank >= rank_count) {
            return raise_outside(i, "rank", fault->rank, rank_count);
        }
        if (fault->peer != IST_FAULT_ANY && (uint32_t)fault->peer >= rank_count) {
            return raise_outside(i, "peer", fault->peer, rank_count);
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------ sorting */

/* Sorts by this, then by number; unsigned, so that any rank (-1) comes last. */
typedef struct sort_key {
    uint32_t major;
    uint64_t minor;
} sort_key;

typedef sort_key (*sort_key_fn)(const ist_fault *fault);

static sort_key key_by_time(const ist_fault *fault)
{
    return (sort_key){0, fault->at_ns};
}

static sort_key key_by_rank_and_op(const ist_fault *fault)
{
    return (sort_key){(uint32_t)fault->rank, fault->at_op};
}

static sort_key key_by_rank(const ist_fault *fault)
{
    return (sort_key){(uint32_t)fault->rank, 0};
}

static bool index_before(const ist_fault *faults, sort_key_fn key_of, uint32_t a, uint32_t b)
{
    const sort_key x = key_of(&faults[a]);
    const sort_key y = key_of(&faults[b]);
    if (x.major != y.major) {
        return x.major < y.major;
    }
    return x.minor != y.minor ? x.minor < y.minor : a < b;
}

static void heap_sink(const ist_fault *faults, sort_key_fn key_of, uint32_t *heap, uint32_t count,
                      uint32_t root)
{
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && index_before(faults, key_of, heap[child], heap[child + 1])) {
            child++;
        }
        if (!index_before(faults, key_of, heap[root], heap[child])) {
            return;
        }
        const uint32_t moved = heap[root];
        heap[root] = heap[child];
        heap[child] = moved;
    }
}

/* Heap sort: in place, the order is total, and no library sort that allocates on its own. */
static void sort_indices(const ist_fault *faults, sort_key_fn key_of, uint32_t *indices,
                         uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;) {
        heap_sink(faults, key_of, indices, count, i);
    }
    for (uint32_t end = count; end-- > 1;) {
        const uint32_t largest = indices[0];
        indices[0] = indices[end];
        indices[end] = largest;
        heap_sink(faults, key_of, indices, end, 0);
    }
}

/* ------------------------------------------------------------------------------ compiling */

/* The list in which the engine finds a fault. A transfer fault can be in two: armed, then struck. */
static bool is_timed(const ist_fault *fault)
{
    return fault->trigger == IST_FAULT_AT_TIME && !sim_fault_is_transfer(fault->kind);
}

static bool is_op(const ist_fault *fault)
{
    return fault->trigger == IST_FAULT_AT_OP;
}

static bool is_point(const ist_fault *fault)
{
    return fault->trigger == IST_FAULT_AT_POINT;
}

static bool is_transfer(const ist_fault *fault)
{
    return sim_fault_is_transfer(fault->kind);
}

static bool is_alloc(const ist_fault *fault)
{
    return fault->kind == IST_FAULT_ALLOC || fault->kind == IST_FAULT_REGISTER;
}

static uint32_t count_matching(const ist_fault_plan *plan, bool (*in_list)(const ist_fault *))
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        count += in_list(&plan->faults[i]) ? 1u : 0u;
    }
    return count;
}

static void list_fill(const sim_faults *faults, bool (*in_list)(const ist_fault *),
                      uint32_t *indices)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < faults->fault_count; i++) {
        if (in_list(&faults->faults[i])) {
            indices[used++] = i;
        }
    }
}

static sim_faults plan_measure(const ist_fault_plan *plan, uint32_t rank_count)
{
    return (sim_faults){.fault_count = plan->count,
                        .rank_count = rank_count,
                        .timed_count = count_matching(plan, is_timed),
                        .op_count = count_matching(plan, is_op),
                        .transfer_count = count_matching(plan, is_transfer),
                        .point_count = count_matching(plan, is_point),
                        .alloc_count = count_matching(plan, is_alloc)};
}

static size_t faults_bytes(const sim_faults *faults)
{
    const size_t indices = (size_t)faults->timed_count + faults->op_count + faults->transfer_count +
                           faults->point_count + faults->alloc_count;
    return sizeof *faults + sizeof *faults->faults * faults->fault_count +
           sizeof *faults->ranks * faults->rank_count +
           sizeof *faults->passes * faults->point_count * faults->rank_count +
           sizeof *faults->states * faults->fault_count + sizeof *faults->timed * indices;
}

/* The arrays behind the struct, widest elements first. */
static void faults_lay_out(sim_faults *faults)
{
    const size_t pass_count = (size_t)faults->point_count * faults->rank_count;
    faults->faults = (ist_fault *)(void *)(faults + 1);
    faults->ranks = (sim_fault_rank *)(void *)(faults->faults + faults->fault_count);
    faults->passes = (uint64_t *)(void *)(faults->ranks + faults->rank_count);
    faults->states = (sim_fault_state *)(void *)(faults->passes + pass_count);
    faults->timed = (uint32_t *)(void *)(faults->states + faults->fault_count);
    faults->ops = faults->timed + faults->timed_count;
    faults->transfers = faults->ops + faults->op_count;
    faults->points = faults->transfers + faults->transfer_count;
    faults->allocs = faults->points + faults->point_count;
}

/* The lower of the heads of the rank's own list and of that of any rank. */
static void rank_threshold(const sim_faults *faults, sim_fault_rank *side)
{
    uint64_t next_op = UINT64_MAX;
    if (side->op_next < side->op_end) {
        next_op = faults->faults[faults->ops[side->op_next]].at_op;
    }
    if (side->any_op_next < faults->op_count) {
        const uint64_t any_op = faults->faults[faults->ops[side->any_op_next]].at_op;
        next_op = any_op < next_op ? any_op : next_op;
    }
    side->next_op = next_op;
}

/* Gives each rank its part of a list sorted by rank; returns where those of any rank begin. */
static uint32_t ops_share_out(sim_faults *faults)
{
    uint32_t i = 0;
    for (; i < faults->op_count && faults->faults[faults->ops[i]].rank != IST_FAULT_ANY; i++) {
        sim_fault_rank *side = &faults->ranks[faults->faults[faults->ops[i]].rank];
        side->op_next = side->op_end == 0 ? i : side->op_next;
        side->op_end = i + 1;
    }
    return i;
}

static uint32_t transfers_share_out(sim_faults *faults)
{
    uint32_t i = 0;
    for (; i < faults->transfer_count; i++) {
        const int32_t rank = faults->faults[faults->transfers[i]].rank;
        if (rank == IST_FAULT_ANY) {
            break;
        }
        sim_fault_rank *side = &faults->ranks[rank];
        side->transfer_next = side->transfer_end == 0 ? i : side->transfer_next;
        side->transfer_end = i + 1;
    }
    return i;
}

static void faults_compile(sim_faults *faults)
{
    list_fill(faults, is_timed, faults->timed);
    list_fill(faults, is_op, faults->ops);
    list_fill(faults, is_transfer, faults->transfers);
    list_fill(faults, is_point, faults->points);
    list_fill(faults, is_alloc, faults->allocs);
    sort_indices(faults->faults, key_by_time, faults->timed, faults->timed_count);
    sort_indices(faults->faults, key_by_rank_and_op, faults->ops, faults->op_count);
    sort_indices(faults->faults, key_by_rank, faults->transfers, faults->transfer_count);
    faults->any_op_begin = ops_share_out(faults);
    faults->any_transfer_next = transfers_share_out(faults);
    for (uint32_t i = 0; i < faults->fault_count; i++) {
        const ist_fault *fault = &faults->faults[i];
        faults->states[i].rank = fault->rank;
        faults->states[i].armed = is_transfer(fault) && fault->trigger == IST_FAULT_NTH;
    }
    for (uint32_t rank = 0; rank < faults->rank_count; rank++) {
        faults->ranks[rank].any_op_next = faults->any_op_begin;
        rank_threshold(faults, &faults->ranks[rank]);
    }
}

ist_status sim_faults_open(const ist_fault_plan *plan, uint32_t rank_count, sim_faults **faults)
{
    if (plan != NULL) {
        IST_RETURN_IF_ERROR(sim_plan_usable(plan, "world.run"));
    }
    if (plan == NULL || plan->count == 0) {
        *faults = NULL;
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(plan_fits(plan, rank_count));
    const sim_faults measured = plan_measure(plan, rank_count);
    const size_t bytes = faults_bytes(&measured);
    sim_faults *opened = ist_alloc(1, bytes);
    if (opened == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u faults on %u ranks (%zu bytes)",
                         plan->count, rank_count, bytes);
    }
    *opened = measured;
    faults_lay_out(opened);
    memcpy(opened->faults, plan->faults, sizeof *plan->faults * plan->count);
    faults_compile(opened);
    *faults = opened;
    return IST_OK;
}

void sim_faults_close(sim_faults *faults)
{
    ist_free(faults);
}

/* ------------------------------------------------------------------------------ striking */

bool sim_faults_timed(const sim_faults *faults, uint32_t index, const ist_fault **fault)
{
    if (faults == NULL || index >= faults->timed_count) {
        return false;
    }
    *fault = &faults->faults[faults->timed[index]];
    return true;
}

/* The trigger is met on `rank`: the fault to apply, NULL when it is armed or struck elsewhere. */
static const ist_fault *trigger_met(sim_faults *faults, uint32_t number, uint32_t rank)
{
    ist_fault *fault = &faults->faults[number];
    sim_fault_state *state = &faults->states[number];
    if (state->spent || state->armed) {
        return NULL;
    }
    state->rank = (int32_t)rank;
    if (is_transfer(fault)) {
        state->armed = true;
        return NULL;
    }
    state->spent = true;
    fault->rank = (int32_t)rank;
    return fault;
}

/* Takes the head of the rank's own list or of that of any rank, by (at_op, number). */
static uint32_t op_take(const sim_faults *faults, sim_fault_rank *side)
{
    const bool own = side->op_next < side->op_end;
    const bool any = side->any_op_next < faults->op_count;
    if (own && any) {
        const uint32_t a = faults->ops[side->op_next];
        const uint32_t b = faults->ops[side->any_op_next];
        const uint64_t a_op = faults->faults[a].at_op;
        const uint64_t b_op = faults->faults[b].at_op;
        const bool own_first = a_op != b_op ? a_op < b_op : a < b;
        return faults->ops[own_first ? side->op_next++ : side->any_op_next++];
    }
    return faults->ops[own ? side->op_next++ : side->any_op_next++];
}

const ist_fault *sim_fault_on_op(sim_faults *faults, uint32_t rank, uint64_t op_number)
{
    if (faults == NULL) {
        return NULL;
    }
    sim_fault_rank *side = &faults->ranks[rank];
    while (side->next_op <= op_number) {
        const ist_fault *fault = trigger_met(faults, op_take(faults, side), rank);
        rank_threshold(faults, side);
        if (fault != NULL) {
            return fault;
        }
    }
    return NULL;
}

static bool point_reached(sim_faults *faults, uint32_t index, uint32_t rank, const char *point)
{
    const ist_fault *fault = &faults->faults[faults->points[index]];
    const bool suffers = fault->rank == IST_FAULT_ANY || (uint32_t)fault->rank == rank;
    if (!suffers || strcmp(fault->point, point) != 0) {
        return false;
    }
    uint64_t *passes = &faults->passes[(size_t)index * faults->rank_count + rank];
    return ++*passes == fault->at_op;
}

const ist_fault *sim_fault_on_point(sim_faults *faults, uint32_t rank, const char *point,
                                    uint32_t *cursor)
{
    while (faults != NULL && *cursor < faults->point_count) {
        const uint32_t index = (*cursor)++;
        if (point_reached(faults, index, rank, point)) {
            const ist_fault *fault = trigger_met(faults, faults->points[index], rank);
            if (fault != NULL) {
                return fault;
            }
        }
    }
    return NULL;
}

typedef struct transfer {
    ist_fault_class class_bit;
    uint32_t src;
    uint32_t dst;
    uint64_t now_ps;
} transfer;

static bool transfer_matches(const ist_fault *fault, const sim_fault_state *state,
                             const transfer *issued)
{
    const bool armed = fault->trigger == IST_FAULT_AT_TIME
                           ? issued->now_ps >= fault->at_ns * PS_PER_NS
                           : state->armed;
    return armed && (fault->classes & (uint32_t)issued->class_bit) != 0 &&
           (state->rank == IST_FAULT_ANY || (uint32_t)state->rank == issued->src) &&
           (fault->peer == IST_FAULT_ANY || (uint32_t)fault->peer == issued->dst);
}

/* Counts a match; true when the fault strikes it. */
static bool transfer_counted(const ist_fault *fault, sim_fault_state *state)
{
    const uint64_t first = fault->trigger == IST_FAULT_NTH ? fault->at_op : 1;
    state->matches++;
    state->spent = state->matches >= first + fault->count - 1;
    return state->matches >= first;
}

/* Number of the first fault of a list that strikes, UINT32_MAX if none; drops spent ones in front. */
static uint32_t transfer_walk(sim_faults *faults, uint32_t *begin, uint32_t end,
                              const transfer *issued)
{
    uint32_t struck = UINT32_MAX;
    for (uint32_t i = *begin; i < end; i++) {
        const uint32_t number = faults->transfers[i];
        const ist_fault *fault = &faults->faults[number];
        sim_fault_state *state = &faults->states[number];
        if (state->spent) {
            *begin += i == *begin ? 1u : 0u;
        } else if (transfer_matches(fault, state, issued) && transfer_counted(fault, state) &&
                   struck == UINT32_MAX) {
            struck = number;
        }
    }
    return struck;
}

const ist_fault *sim_fault_on_transfer(sim_faults *faults, ist_fault_class class_bit, uint32_t src,
                                       uint32_t dst, uint64_t now_ps)
{
    if (!sim_faults_have_transfers(faults)) {
        return NULL;
    }
    const transfer issued = {class_bit, src, dst, now_ps};
    sim_fault_rank *side = &faults->ranks[src];
    const uint32_t own = transfer_walk(faults, &side->transfer_next, side->transfer_end, &issued);
    const uint32_t any =
        transfer_walk(faults, &faults->any_transfer_next, faults->transfer_count, &issued);
    const uint32_t struck = own < any ? own : any;
    return struck == UINT32_MAX ? NULL : &faults->faults[struck];
}

/* `nth`: the rank's allocation or registration now made, counted from 1. */
static bool alloc_fails(sim_faults *faults, ist_fault_kind kind, uint32_t rank, uint64_t nth)
{
    bool fails = false;
    for (uint32_t i = 0; i < faults->alloc_count; i++) {
        const ist_fault *fault = &faults->faults[faults->allocs[i]];
        sim_fault_state *state = &faults->states[faults->allocs[i]];
        if (fault->kind == kind && nth >= fault->at_op && nth - fault->at_op < fault->count &&
            (state->rank == IST_FAULT_ANY || (uint32_t)state->rank == rank)) {
            state->rank = (int32_t)rank;
            fails = true;
        }
    }
    return fails;
}

bool sim_fault_on_alloc(sim_faults *faults, uint32_t rank)
{
    return faults != NULL &&
           alloc_fails(faults, IST_FAULT_ALLOC, rank, ++faults->ranks[rank].allocs);
}

bool sim_fault_on_register(sim_faults *faults, uint32_t rank)
{
    return faults != NULL &&
           alloc_fails(faults, IST_FAULT_REGISTER, rank, ++faults->ranks[rank].registers);
}
