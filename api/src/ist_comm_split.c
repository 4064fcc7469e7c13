/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitting a communicator: everybody tells color and key, each color opens its own. Ranks that are
 * lost to a fault-tolerant parent, and that all survivors have masked, are left out.
 */
#include "ist_internal.h"

#include <inttypes.h>

#define OPERATION "comm.split"

typedef struct row {
    int64_t status;
    uint64_t call; /* distinguishes this exchange from others; never 0 */
    int32_t color;
    int32_t key;
    uint64_t split_count; /* of this rank; the largest is the new communicator's */
} row;

#define ROW_CALL UINT64_C(0x73706c6974)

typedef struct split_plan {
    ist_comm *parent;
    row *rows;
    uint64_t *lost_words;
    uint64_t *mask_words;
    int32_t color;
    int32_t key;
} split_plan;

static bool came(const split_plan *plan, uint32_t rank)
{
    return !ist_mask_test(plan->lost_words, rank);
}

static ist_status refuse_missing(const split_plan *plan, uint32_t rank)
{
    ist_error details = ist_details(plan->parent->object.world, "comm", OPERATION);
    details.peer = (int32_t)rank;
    details.waited_ns = plan->parent->deadline_ns;
    return ist_raise(IST_ERR_TIMEOUT, &details, "rank %u of %u did not come within %" PRIu64 " ns",
                     rank, plan->parent->rank_count, plan->parent->deadline_ns);
}

/* Lost ranks are no error when this rank's mask does not count on them. */
static ist_status judge_lost_here(split_plan *plan)
{
    ist_comm *parent = plan->parent;
    ist_world *world = parent->object.world;
    if (parent->fault_tolerant != 0) {
        IST_RETURN_IF_ERROR(
            world->ops.mem_peek(world->self, parent->mask->words, plan->mask_words,
                                IST_MASK_WORDS(parent->rank_count) * sizeof(uint64_t)));
    }
    for (uint32_t rank = 0; rank < parent->rank_count; ++rank) {
        bool masked = parent->fault_tolerant != 0 && !ist_mask_test(plan->mask_words, rank);
        if (!came(plan, rank) && !masked) {
            return refuse_missing(plan, rank);
        }
    }
    return IST_OK;
}

static ist_status judge_peers(const split_plan *plan)
{
    for (uint32_t rank = 0; rank < plan->parent->rank_count; ++rank) {
        const row *peer = &plan->rows[rank];
        if (!came(plan, rank) || (peer->status >= 0 && peer->call == ROW_CALL)) {
            continue;
        }
        ist_error details = ist_details(plan->parent->object.world, "comm", OPERATION);
        details.peer = (int32_t)rank;
        details.observed = (uint64_t)peer->status;
        return ist_raise(IST_ERR_MISMATCH, &details,
                         "the call failed on rank %u, or it made another", rank);
    }
    return IST_OK;
}

static bool any_lost(const split_plan *plan)
{
    for (uint32_t word = 0; word < IST_MASK_WORDS(plan->parent->rank_count); ++word) {
        if (plan->lost_words[word] != 0) {
            return true;
        }
    }
    return false;
}

/* A rank that failed tells the others, and keeps its own error. */
static ist_status exchange(split_plan *plan, row mine)
{
    ist_error own;
    ist_error_save(&own);
    ist_status status =
        ist_comm_exchange(plan->parent, &mine, sizeof(mine), plan->rows, plan->lost_words);
    if (mine.status < 0) {
        ist_error_restore(&own);
        return (ist_status)mine.status;
    }
    IST_RETURN_IF_ERROR(status);
    return judge_peers(plan);
}

static ist_status gather(split_plan *plan, ist_status local)
{
    row mine = {.status = local,
                .call = ROW_CALL,
                .color = plan->color,
                .key = plan->key,
                .split_count = plan->parent->split_count};
    IST_RETURN_IF_ERROR(exchange(plan, mine));
    if (!any_lost(plan)) {
        return IST_OK;
    }
    if (plan->parent->fault_tolerant == 0) {
        return judge_lost_here(plan);
    }
    /* Verdicts are exchanged too: masks may differ, and all must come to the same end. */
    mine.status = judge_lost_here(plan);
    IST_RETURN_IF_ERROR(exchange(plan, mine));
    /* Another one may have gone in between; masks are looked at once more. */
    return judge_lost_here(plan);
}

/* Whether `a` comes before `b` in the new communicator. */
static bool before(const split_plan *plan, uint32_t a, uint32_t b)
{
    const row *x = &plan->rows[a];
    const row *y = &plan->rows[b];
    return x->key != y->key ? x->key < y->key : a < b;
}

/* A rank whose exchange failed, after it had told its peers that all is well, has not counted. */
static void count_split(const split_plan *plan)
{
    ist_comm *parent = plan->parent;
    for (uint32_t rank = 0; rank < parent->rank_count; ++rank) {
        uint64_t count = plan->rows[rank].split_count;
        if (came(plan, rank) && count > parent->split_count) {
            parent->split_count = count;
        }
    }
    ++parent->split_count;
}

static void resolve(const split_plan *plan, ist_comm *opening)
{
    const ist_comm *parent = plan->parent;
    for (uint32_t rank = 0; rank < parent->rank_count; ++rank) {
        if (came(plan, rank) && plan->rows[rank].color == plan->color) {
            ++opening->rank_count;
            opening->rank += before(plan, rank, parent->rank) ? 1u : 0u;
        }
    }
    ist_unique_id_of_split(&parent->id, parent->split_count, plan->color, &opening->id);
    opening->fault_tolerant = parent->fault_tolerant;
    opening->lsa_size_max = parent->lsa_size_max;
    opening->deadline_ns = parent->deadline_ns;
    opening->check = parent->check;
}

static ist_status split_planned(split_plan *plan, ist_status local, ist_comm **split)
{
    ist_world *world = plan->parent->object.world;
    ist_comm *opening = ist_alloc(1, sizeof(*opening));
    if (opening == NULL && local == IST_OK) {
        local = ist_fail_memory(world, "a communicator", OPERATION);
    }
    ist_status status = gather(plan, local);
    if (status < 0) {
        ist_free(opening);
        return status;
    }
    count_split(plan);
    resolve(plan, opening);
    if (plan->color < 0) {
        ist_free(opening);
        *split = NULL;
        return IST_OK;
    }
    return ist_comm_open_resolved(world, opening, OPERATION, split);
}

/* What a wrong call tells its peers instead of staying away from them. */
static ist_status check_arguments(const ist_comm *comm, int32_t color, ist_comm **split)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(comm->object.world, split, "split", OPERATION));
    if (color >= -1) {
        return IST_OK;
    }
    return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, "color", OPERATION, 0,
                          (uint64_t)(int64_t)color, "color is %d, -1 or more is required", color);
}

ist_status ist_comm_split(ist_comm *comm, int32_t color, int32_t key, ist_comm **split)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", OPERATION));
    IST_RETURN_IF_ERROR(ist_check_comm_usable(comm, OPERATION));
    split_plan plan = {.parent = comm, .color = color, .key = key};
    uint32_t words = IST_MASK_WORDS(comm->rank_count);
    plan.rows = ist_alloc(comm->rank_count, sizeof(row));
    plan.lost_words = ist_alloc(2 * (size_t)words, sizeof(uint64_t));
    ist_status status = IST_OK;
    if (plan.rows == NULL || plan.lost_words == NULL) {
        status = ist_fail_memory(comm->object.world, "an exchange", OPERATION);
    } else {
        plan.mask_words = plan.lost_words + words;
        status = split_planned(&plan, check_arguments(comm, color, split), split);
    }
    ist_free(plan.rows);
    ist_free(plan.lost_words);
    return status;
}
