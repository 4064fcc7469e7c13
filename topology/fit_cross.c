/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-validation: folds, errors, medians. */
#include "fit_cross.h"

#include <isthmus/backend.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static ist_status no_memory(const char *what, uint32_t count)
{
    ist_error details = {
        .size = sizeof details, .rank = IST_RANK_NONE, .peer = IST_RANK_NONE, .operation = "fit"};
    (void)snprintf(details.object, sizeof details.object, "%s", what);
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for %u %s", count, what);
}

static bool same_source(const fit_point *a, const fit_point *b)
{
    const size_t length = strcspn(a->id, "/");
    return strncmp(a->id, b->id, length + 1) == 0;
}

static bool same_world(const fit_point *a, const fit_point *b)
{
    return cost_rank_count(&a->machine) == cost_rank_count(&b->machine) &&
           a->machine.node_count == b->machine.node_count;
}

/* Every fourth power of two. */
static uint32_t size_fold(const fit_point *point)
{
    return (uint32_t)(point->size + 0.5) % 4;
}

/* What is left when a fold is taken out of the family of `point`. */
static fit_way way_of(const fit_table *table, const fit_point *point)
{
    bool world = false;
    bool size = false;
    for (uint32_t i = 0; i < table->count; ++i) {
        const fit_point *other = &table->point[i];
        if (other->skipped == NULL && other->family == point->family) {
            world = world || !same_world(other, point);
            size = size || size_fold(other) != size_fold(point);
        }
    }
    return world ? FIT_BY_WORLD : size ? FIT_BY_SIZE : FIT_BY_KIN;
}

static ist_status score_point(fit_model *model, const fit_point *point, fit_score *score)
{
    fit_prediction prediction;
    const ist_status status = fit_model_predict(model, point, &prediction);
    if (status != IST_OK) {
        return status;
    }
    const double error = fabs(prediction.time_us / point->time_us - 1) - point->tolerance;
    score->time_us = prediction.time_us;
    score->error = error > 0 ? error : 0;
    return IST_OK;
}

static bool in_fold(const fit_point *first, const fit_point *other, fit_way way)
{
    if (!same_source(first, other)) {
        return false;
    }
    switch (way) {
    case FIT_BY_WORLD: return same_world(first, other);
    case FIT_BY_SIZE: return size_fold(first) == size_fold(other) && other->kin == first->kin;
    case FIT_BY_KIN: break;
    }
    return other->family == first->family;
}

/* Leaves out the fold of `first`, scores those of it that are judged this way. */
static ist_status score_fold(const fit_table *table, uint32_t first, uint8_t *used,
                             fit_score *scores)
{
    const fit_point *at = &table->point[first];
    const fit_way way = scores[first].way;
    for (uint32_t i = 0; i < table->count; ++i) {
        used[i] = table->point[i].skipped == NULL && !in_fold(at, &table->point[i], way);
    }
    fit_model *model = NULL;
    ist_status status = fit_model_open(table, used, &model);
    for (uint32_t i = first; i < table->count && status == IST_OK; ++i) {
        const fit_point *point = &table->point[i];
        if (point->skipped == NULL && scores[i].way == way && scores[i].time_us <= 0 &&
            in_fold(at, point, way)) {
            status = score_point(model, point, &scores[i]);
        }
    }
    fit_model_close(model);
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, uint32_t count, double part)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof *values, compare);
    const double at = part * (count - 1);
    const uint32_t low = (uint32_t)at;
    const uint32_t high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - low) * (values[high] - values[low]);
}

static ist_status score_series(const fit_table *table, const fit_score *scores,
                               fit_series_score *series)
{
    double *errors = ist_alloc(table->count + 1u, sizeof *errors);
    if (errors == NULL) {
        return no_memory("scores", table->count);
    }
    for (uint32_t s = 0; s < table->series_count; ++s) {
        series[s] = (fit_series_score){0};
        for (uint32_t i = 0; i < table->count; ++i) {
            if (table->point[i].series == s && scores[i].time_us > 0) {
                errors[series[s].points++] = scores[i].error;
                series[s].way = scores[i].way > series[s].way ? scores[i].way : series[s].way;
            }
        }
        series[s].median = quantile(errors, series[s].points, 0.5);
        series[s].worst = series[s].points > 0 ? errors[series[s].points - 1] : 0;
    }
    ist_free(errors);
    return IST_OK;
}

ist_status fit_cross_validate(const fit_table *table, fit_score *scores, fit_series_score *series)
{
    uint8_t *used = ist_alloc(table->count + 1u, 1);
    ist_status status = IST_OK;
    if (used == NULL) {
        return no_memory("folds", table->count);
    }
    for (uint32_t i = 0; i < table->count; ++i) {
        scores[i] = (fit_score){.way = way_of(table, &table->point[i])};
    }
    for (uint32_t i = 0; i < table->count && status == IST_OK; ++i) {
        if (table->point[i].skipped == NULL && scores[i].time_us <= 0) {
            status = score_fold(table, i, used, scores);
        }
    }
    ist_free(used);
    return status == IST_OK ? score_series(table, scores, series) : status;
}

/* What of a point's family was there to fit: sizes of the same world, other worlds, nothing. */
static fit_way way_to_test(const fit_table *table, const uint8_t *used, const fit_point *point)
{
    fit_way way = FIT_BY_KIN;
    for (uint32_t i = 0; i < table->count; ++i) {
        if (used[i] && table->point[i].family == point->family) {
            if (same_world(&table->point[i], point)) {
                return FIT_BY_SIZE;
            }
            way = FIT_BY_WORLD;
        }
    }
    return way;
}

ist_status fit_score_split(const fit_table *table, const uint8_t *mask, fit_score *scores,
                           fit_series_score *series)
{
    uint8_t *used = ist_alloc(table->count + 1u, 1);
    if (used == NULL) {
        return no_memory("folds", table->count);
    }
    for (uint32_t i = 0; i < table->count; ++i) {
        used[i] = mask[i] == 1 && table->point[i].skipped == NULL;
        scores[i] = (fit_score){.way = FIT_BY_KIN};
    }
    for (uint32_t i = 0; i < table->count; ++i) {
        scores[i].way = way_to_test(table, used, &table->point[i]);
    }
    fit_model *model = NULL;
    ist_status status = fit_model_open(table, used, &model);
    for (uint32_t i = 0; i < table->count && status == IST_OK; ++i) {
        if (mask[i] == 2 && table->point[i].skipped == NULL) {
            status = score_point(model, &table->point[i], &scores[i]);
        }
    }
    fit_model_close(model);
    ist_free(used);
    return status == IST_OK ? score_series(table, scores, series) : status;
}

typedef struct placed {
    double size;
    uint32_t series, index;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a;
    const placed *y = b;
    if (x->series != y->series) {
        return x->series < y->series ? -1 : 1;
    }
    if (x->size < y->size || x->size > y->size) {
        return x->size < y->size ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* Every other size of each series, in the order of sizes, not lines. */
static ist_status halves_find(const fit_table *table, uint8_t *halves)
{
    placed *order = ist_alloc(table->count + 1u, sizeof *order);
    uint32_t count = 0;
    if (order == NULL) {
        return no_memory("halves", table->count);
    }
    for (uint32_t i = 0; i < table->count; ++i) {
        if (table->point[i].skipped == NULL) {
            order[count++] = (placed){table->point[i].size, table->point[i].series, i};
        }
    }
    qsort(order, count, sizeof *order, by_place);
    for (uint32_t i = 1; i < count; ++i) {
        const bool same = order[i].series == order[i - 1].series;
        const bool other = same && order[i].size > order[i - 1].size;
        halves[order[i].index] = same ? halves[order[i - 1].index] ^ other : 0;
    }
    ist_free(order);
    return IST_OK;
}

static ist_status score_half(const fit_table *table, const uint8_t *halves, uint8_t tested,
                             uint8_t *mask, fit_score *part, fit_series_score *series,
                             fit_score *scores)
{
    for (uint32_t i = 0; i < table->count; ++i) {
        mask[i] = halves[i] == tested ? 2 : 1;
    }
    IST_RETURN_IF_ERROR(fit_score_split(table, mask, part, series));
    for (uint32_t i = 0; i < table->count; ++i) {
        scores[i] = halves[i] == tested ? part[i] : scores[i];
    }
    return IST_OK;
}

ist_status fit_score_halves(const fit_table *table, fit_score *scores, fit_series_score *series)
{
    uint8_t *halves = ist_alloc(2 * ((size_t)table->count + 1), 1);
    fit_score *part = ist_alloc(table->count + 1u, sizeof *part);
    ist_status status = halves == NULL || part == NULL ? no_memory("halves", table->count) : IST_OK;
    if (status == IST_OK) {
        status = halves_find(table, halves);
    }
    for (uint8_t tested = 0; tested < 2 && status == IST_OK; ++tested) {
        status = score_half(table, halves, tested, halves + table->count + 1, part, series, scores);
    }
    ist_free(halves);
    ist_free(part);
    return status == IST_OK ? score_series(table, scores, series) : status;
}

fit_summary fit_summarise(const fit_table *table, const fit_series_score *series, uint32_t ways)
{
    fit_summary summary = {0};
    double *medians = ist_alloc(table->series_count + 1u, sizeof *medians);
    if (medians == NULL) {
        return summary;
    }
    for (uint32_t s = 0; s < table->series_count; ++s) {
        if (series[s].points > 0 && (ways >> series[s].way & 1) != 0) {
            medians[summary.series++] = series[s].median;
            summary.points += series[s].points;
        }
    }
    summary.median = quantile(medians, summary.series, 0.5);
    summary.p90 = quantile(medians, summary.series, 0.9);
    ist_free(medians);
    return summary;
}
