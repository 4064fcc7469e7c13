/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles from fits.
 */
#include "fit_profile.h"

#include <isthmus/backend.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct family_order {
    uint32_t family;
    uint32_t points;
    uint32_t first; /* point */
} family_order;

static ist_status refuse_memory(uint32_t count)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = count,
                         .object = "profile",
                         .operation = "fit"};
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for a profile of %u families", count);
}

static int compare_order(const void *a, const void *b)
{
    const family_order *x = a;
    const family_order *y = b;
    if (x->points != y->points) {
        return x->points > y->points ? -1 : 1;
    }
    return (x->family > y->family) - (x->family < y->family);
}

static uint64_t rounded(double value)
{
    return value < 1 ? 1 : value > 1e15 ? (uint64_t)1e15 : (uint64_t)(value + 0.5);
}

/* Where the family was measured, and how far off the prediction is there, on average. */
static ist_status range_of(fit_model *model, const fit_table *table, uint32_t family,
                           cost_profile_op *op)
{
    double sum = 0;
    uint32_t count = 0;
    op->bytes_low = UINT64_MAX;
    op->ranks_low = UINT64_MAX;
    for (uint32_t i = 0; i < table->count; ++i) {
        const fit_point *point = &table->point[i];
        if (point->skipped != NULL || point->family != family) {
            continue;
        }
        const uint64_t bytes = cost_op_size(&point->op);
        const uint64_t ranks = cost_rank_count(&point->machine);
        op->bytes_low = bytes < op->bytes_low ? bytes : op->bytes_low;
        op->bytes_high = bytes > op->bytes_high ? bytes : op->bytes_high;
        op->ranks_low = ranks < op->ranks_low ? ranks : op->ranks_low;
        op->ranks_high = ranks > op->ranks_high ? ranks : op->ranks_high;
        fit_prediction prediction;
        const ist_status status = fit_model_predict(model, point, &prediction);
        if (status != IST_OK) {
            return status;
        }
        sum += fabs(prediction.time_us / point->time_us - 1);
        ++count;
    }
    op->residual_permille = (uint64_t)(sum / (count > 0 ? count : 1) * 1000 + 0.5);
    return IST_OK;
}

/* The curve over powers of two, for the world of `first`. */
static ist_status curve_of(fit_model *model, const fit_point *first, cost_profile_op *op)
{
    fit_point point = *first;
    const bool expert = first->op.kind == COST_EP_DISPATCH || first->op.kind == COST_EP_COMBINE;
    for (uint64_t bytes = op->bytes_low; bytes <= op->bytes_high; bytes *= 2) {
        if (expert) {
            point.op.tokens = bytes / first->op.row_bytes > 0 ? bytes / first->op.row_bytes : 1;
        } else {
            point.op.bytes = bytes;
        }
        point.size = log2((double)(bytes > 0 ? bytes : 1));
        fit_prediction prediction;
        const ist_status status = fit_model_predict(model, &point, &prediction);
        if (status != IST_OK) {
            return status;
        }
        op->curve[op->curve_count++] = (cost_curve_point){
            .bytes = bytes, .permille = rounded(prediction.time_us / prediction.model_us * 1000)};
        if (bytes == 0 || op->curve_count == COST_CURVE_MAX) {
            break;
        }
    }
    if (op->curve_count > 0 && op->curve[0].bytes == 0) {
        op->curve_count = 0; /* an operation without a size */
    }
    return IST_OK;
}

static ist_status make_op(fit_model *model, const fit_table *table, const family_order *order,
                          cost_profile_op *op)
{
    const fit_point *first = &table->point[order->first];
    fit_prediction prediction;
    ist_status status = fit_model_predict(model, first, &prediction);
    if (status == IST_OK) {
        status = range_of(model, table, order->family, op);
    }
    if (status == IST_OK) {
        status = curve_of(model, first, op);
    }
    fit_family_name(first, op->name, sizeof op->name);
    (void)snprintf(op->origin, sizeof op->origin, "fit of %u timings", order->points);
    op->kind = first->op.kind;
    op->algorithm = first->op.algorithm;
    op->blocks = first->op.blocks;
    op->knobs = prediction.knobs;
    return status;
}

static uint32_t order_families(const fit_table *table, family_order *order)
{
    for (uint32_t i = 0; i < table->count; ++i) {
        const fit_point *point = &table->point[i];
        if (point->skipped == NULL) {
            family_order *at = &order[point->family];
            at->first = at->points == 0 ? i : at->first;
            at->family = point->family;
            ++at->points;
        }
    }
    qsort(order, table->family_count, sizeof *order, compare_order);
    uint32_t count = 0;
    while (count < table->family_count && order[count].points > 0) {
        ++count;
    }
    return count;
}

static ist_status make_all(const fit_table *table, fit_model *model, family_order *order,
                           cost_profile *profile)
{
    const uint32_t count = order_families(table, order);
    profile->op = ist_alloc(count + 1u, sizeof *profile->op);
    if (profile->op == NULL) {
        return refuse_memory(count);
    }
    for (uint32_t i = 0; i < count && i < COST_PROFILE_OPS_MAX; ++i) {
        const ist_status status = make_op(model, table, &order[i], &profile->op[i]);
        if (status != IST_OK) {
            return status;
        }
        ++profile->op_count;
    }
    return IST_OK;
}

ist_status fit_profile_make(const fit_table *table, const char *name, cost_profile *profile)
{
    cost_profile made = {.op_count = 0};
    (void)snprintf(made.name, sizeof made.name, "%s", name);
    uint8_t *used = ist_alloc(table->count + 1u, 1);
    family_order *order = ist_alloc(table->family_count + 1u, sizeof *order);
    fit_model *model = NULL;
    ist_status status = used == NULL || order == NULL ? refuse_memory(table->family_count) : IST_OK;
    for (uint32_t i = 0; status == IST_OK && i < table->count; ++i) {
        used[i] = table->point[i].skipped == NULL;
    }
    if (status == IST_OK) {
        status = fit_model_open(table, used, &model);
    }
    if (status == IST_OK) {
        status = make_all(table, model, order, &made);
    }
    fit_model_close(model);
    ist_free(used);
    ist_free(order);
    if (status != IST_OK) {
        cost_profile_free(&made);
        return status;
    }
    *profile = made;
    return IST_OK;
}
