/* SPDX-License-Identifier: Apache-2.0 */
/* The fit: Levenberg-Marquardt in logarithms with a prior on every constant, then kriging of what
 * is left over (Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1).
 */
#include "fit_model.h"

#include <isthmus/backend.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KNOBS COST_KNOB_COUNT
#define ITERATIONS 12u
#define STEP 0.05
#define NOISE 0.03         /* relative, of a timing */
#define FAMILY_SPREAD 0.15 /* relative, of what the model does not know about a family */
#define KIN_SPREAD 0.12
#define SIZE_REACH 6.0 /* log2 of sizes over which what is left over stays alike */
#define RANKS_REACH 5.0
#define NODES_REACH 5.0
#define OTHER_GROUND 0.3  /* likeness of what stays in a node and what does not */
#define BRANCH_NARROW 0.3 /* how much nearer to what is known than a kin */
#define FAMILY_NARROW 0.5
#define SERIES_WORTH 1.0 /* independent timings in a series: its errors are alike */
#define ROBUST 3.0       /* residuals beyond this many times the noise count less */

/* How far a constant may be from where it starts: natural logarithms. */
static const double prior_spread[KNOBS] = {
    [COST_overhead_ps] = 1.2,     [COST_lsa_step_ps] = 0.8,
    [COST_net_step_ps] = 0.8,     [COST_message_ps] = 1.0,
    [COST_row_ps] = 0.8,          [COST_lsa_bytes_per_s] = 0.4,
    [COST_net_bytes_per_s] = 0.3, [COST_local_bytes_per_s] = 0.5,
};

typedef struct offsets {
    double value[KNOBS]; /* natural logarithm of constant over start */
} offsets;

typedef struct kin_fit {
    bool done;
    uint32_t count;
    uint32_t *point; /* numbers of the used points */
    double *weight;  /* kriging: inverse covariance times what is left over */
    offsets base;
} kin_fit;

/* Of a branch, or of a family. */
typedef struct part_fit {
    offsets at;
    uint32_t count;
    bool done;
} part_fit;

struct fit_model {
    const fit_table *table;
    const uint8_t *used;
    kin_fit *kin;
    part_fit *branch;
    part_fit *family;
};

static ist_status refuse_memory(uint32_t count)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = count,
                         .object = "model",
                         .operation = "fit"};
    return ist_raise(IST_ERR_MEMORY, &details, "no memory to fit %u points", count);
}

/* ------------------------------------------------------------------------------------ the model */

static cost_knobs knobs_at(const fit_point *point, const offsets *at)
{
    cost_knobs knobs = point->op.knobs;
    for (uint32_t i = 0; i < KNOBS; ++i) {
        const double value = (double)knobs.value[i] * exp(at->value[i]);
        knobs.value[i] = value < 1 ? 1 : value > 1e17 ? (uint64_t)1e17 : (uint64_t)(value + 0.5);
    }
    return knobs;
}

static ist_status model_us(const fit_point *point, const cost_knobs *knobs, double *time_us)
{
    cost_result result;
    cost_op op = point->op;
    op.knobs = *knobs;
    ist_status status = cost_estimate(&point->machine, NULL, 0, &op, 1, false, &result);
    if (status != IST_OK) {
        return status;
    }
    double best = (double)result.total_ps / 1e6;
    if (point->best_of_two) {
        op.algorithm = COST_TREE;
        status = cost_estimate(&point->machine, NULL, 0, &op, 1, false, &result);
        if (status != IST_OK) {
            return status;
        }
        best = (double)result.total_ps / 1e6 < best ? (double)result.total_ps / 1e6 : best;
    }
    *time_us = best;
    return IST_OK;
}

static ist_status left_over(const fit_point *point, const offsets *at, double *residual)
{
    const cost_knobs knobs = knobs_at(point, at);
    double time_us = 1;
    const ist_status status = model_us(point, &knobs, &time_us);
    *residual = log(point->time_us) - log(time_us);
    return status;
}

/* ------------------------------------------------------------------------------------ constants */

typedef struct fit_job {
    const fit_table *table;
    const uint32_t *point;
    uint32_t count;
    offsets start;
    double narrow; /* the prior's spread times this */
} fit_job;

/* Many sizes of one series say little more about the constants than a few. */
static double worth_of(const fit_job *job, const fit_point *point)
{
    const double count = job->table->series_points[point->series];
    return count > SERIES_WORTH ? SERIES_WORTH / count : 1;
}

static double weight_of(double residual, double noise)
{
    const double far = residual / noise / ROBUST;
    return 1 / (noise * noise * (1 + far * far));
}

static ist_status cost_at(const fit_job *job, const offsets *at, double *cost)
{
    double sum = 0;
    for (uint32_t i = 0; i < job->count; ++i) {
        const fit_point *point = &job->table->point[job->point[i]];
        double residual = 0;
        const ist_status status = left_over(point, at, &residual);
        if (status != IST_OK) {
            return status;
        }
        const double noise = NOISE + point->tolerance;
        sum += worth_of(job, point) * ROBUST * ROBUST *
               log1p(residual * residual / (noise * noise * ROBUST * ROBUST));
    }
    for (uint32_t k = 0; k < KNOBS; ++k) {
        const double off = (at->value[k] - job->start.value[k]) / (prior_spread[k] * job->narrow);
        sum += off * off;
    }
    *cost = sum;
    return IST_OK;
}

/* Normal equations of one step. */
static ist_status linearise(const fit_job *job, const offsets *at, double matrix[KNOBS][KNOBS],
                            double *right)
{
    memset(matrix, 0, sizeof(double) * KNOBS * KNOBS);
    memset(right, 0, sizeof(double) * KNOBS);
    for (uint32_t i = 0; i < job->count; ++i) {
        const fit_point *point = &job->table->point[job->point[i]];
        double residual = 0;
        double slope[KNOBS];
        ist_status status = left_over(point, at, &residual);
        for (uint32_t k = 0; k < KNOBS && status == IST_OK; ++k) {
            offsets moved = *at;
            moved.value[k] += STEP;
            double other = 0;
            status = left_over(point, &moved, &other);
            slope[k] = (residual - other) / STEP;
        }
        if (status != IST_OK) {
            return status;
        }
        const double weight = worth_of(job, point) * weight_of(residual, NOISE + point->tolerance);
        for (uint32_t k = 0; k < KNOBS; ++k) {
            right[k] += weight * slope[k] * residual;
            for (uint32_t l = 0; l < KNOBS; ++l) {
                matrix[k][l] += weight * slope[k] * slope[l];
            }
        }
    }
    for (uint32_t k = 0; k < KNOBS; ++k) {
        const double spread = prior_spread[k] * job->narrow;
        matrix[k][k] += 1 / (spread * spread);
        right[k] -= (at->value[k] - job->start.value[k]) / (spread * spread);
    }
    return IST_OK;
}

/* Cholesky in place, lower half of an n by n matrix of rows; false: not positive. */
static bool factor(double *matrix, uint32_t n)
{
    for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t j = 0; j <= i; ++j) {
            double sum = matrix[(size_t)i * n + j];
            for (uint32_t k = 0; k < j; ++k) {
                sum -= matrix[(size_t)i * n + k] * matrix[(size_t)j * n + k];
            }
            if (i != j) {
                matrix[(size_t)i * n + j] = sum / matrix[(size_t)j * n + j];
            } else if (sum <= 0) {
                return false;
            } else {
                matrix[(size_t)i * n + i] = sqrt(sum);
            }
        }
    }
    return true;
}

static void solve(const double *matrix, uint32_t n, double *vector)
{
    for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t k = 0; k < i; ++k) {
            vector[i] -= matrix[(size_t)i * n + k] * vector[k];
        }
        vector[i] /= matrix[(size_t)i * n + i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t k = i + 1; k < n; ++k) {
            vector[i] -= matrix[(size_t)k * n + i] * vector[k];
        }
        vector[i] /= matrix[(size_t)i * n + i];
    }
}

static ist_status fit_constants(const fit_job *job, offsets *found)
{
    offsets at = job->start;
    double damping = 0.1;
    double cost = 0;
    ist_status status = cost_at(job, &at, &cost);
    for (uint32_t i = 0; i < ITERATIONS && status == IST_OK; ++i) {
        double matrix[KNOBS][KNOBS];
        double right[KNOBS];
        status = linearise(job, &at, matrix, right);
        for (uint32_t k = 0; k < KNOBS; ++k) {
            matrix[k][k] *= 1 + damping;
        }
        if (status != IST_OK || !factor(&matrix[0][0], KNOBS)) {
            break;
        }
        solve(&matrix[0][0], KNOBS, right);
        offsets moved = at;
        double largest = 0;
        for (uint32_t k = 0; k < KNOBS; ++k) {
            const double step = right[k] > 1 ? 1 : right[k] < -1 ? -1 : right[k];
            moved.value[k] += step;
            largest = fabs(step) > largest ? fabs(step) : largest;
        }
        double other = 0;
        status = cost_at(job, &moved, &other);
        if (status == IST_OK && other < cost) {
            const bool settled = largest < 0.01 || cost - other < 1e-3 * cost;
            at = moved;
            cost = other;
            damping *= 0.3;
            if (settled) {
                break;
            }
        } else {
            damping *= 5;
        }
    }
    *found = at;
    return status;
}

/* ------------------------------------------------------------------------------------ kriging */

static double alike(const fit_point *a, const fit_point *b)
{
    const double near =
        exp(-fabs(a->size - b->size) / SIZE_REACH - fabs(a->ranks - b->ranks) / RANKS_REACH -
            fabs(a->nodes - b->nodes) / NODES_REACH) *
        ((a->machine.node_count > 1) == (b->machine.node_count > 1) ? 1 : OTHER_GROUND);
    return near *
           (KIN_SPREAD * KIN_SPREAD + (a->family == b->family ? FAMILY_SPREAD * FAMILY_SPREAD : 0));
}

static ist_status krige(fit_model *model, kin_fit *kin)
{
    const uint32_t n = kin->count;
    double *matrix = ist_alloc((size_t)n * n + 1, sizeof *matrix);
    if (matrix == NULL) {
        return refuse_memory(n);
    }
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < n && status == IST_OK; ++i) {
        const fit_point *a = &model->table->point[kin->point[i]];
        for (uint32_t j = 0; j <= i; ++j) {
            matrix[(size_t)i * n + j] = alike(a, &model->table->point[kin->point[j]]);
        }
        const double noise = NOISE + a->tolerance;
        matrix[(size_t)i * n + i] += noise * noise;
        status = left_over(a, &model->family[a->family].at, &kin->weight[i]);
        /* One wild value must not bend its neighbours. */
        kin->weight[i] = kin->weight[i] > 0.7 ? 0.7 : kin->weight[i] < -0.7 ? -0.7 : kin->weight[i];
    }
    if (status == IST_OK && factor(matrix, n)) {
        solve(matrix, n, kin->weight);
    } else {
        memset(kin->weight, 0, n * sizeof *kin->weight);
    }
    ist_free(matrix);
    return status;
}

static bool belongs(const fit_point *point, bool family, uint32_t number)
{
    return (family ? point->family : point->branch) == number;
}

/* The points of a kin that are of one branch or family; starts from what is known of the kin. */
static ist_status fit_part(fit_model *model, const kin_fit *kin, bool family, uint32_t number,
                           const offsets *start, double narrow)
{
    part_fit *part = family ? &model->family[number] : &model->branch[number];
    if (part->done) {
        return IST_OK;
    }
    uint32_t *points = ist_alloc(kin->count + 1u, sizeof *points);
    if (points == NULL) {
        return refuse_memory(kin->count);
    }
    fit_job job = {.table = model->table, .point = points, .start = *start, .narrow = narrow};
    for (uint32_t i = 0; i < kin->count; ++i) {
        if (belongs(&model->table->point[kin->point[i]], family, number)) {
            points[job.count++] = kin->point[i];
        }
    }
    part->count = job.count;
    part->at = *start;
    part->done = true;
    const ist_status status = job.count < kin->count ? fit_constants(&job, &part->at) : IST_OK;
    ist_free(points);
    return status;
}

static ist_status fit_kin(fit_model *model, uint32_t number)
{
    kin_fit *kin = &model->kin[number];
    const fit_table *table = model->table;
    for (uint32_t i = 0; i < table->count; ++i) {
        kin->count += model->used[i] && table->point[i].kin == number;
    }
    kin->point = ist_alloc(kin->count + 1u, sizeof *kin->point);
    kin->weight = ist_alloc(kin->count + 1u, sizeof *kin->weight);
    if (kin->point == NULL || kin->weight == NULL) {
        return refuse_memory(kin->count);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->count; ++i) {
        if (model->used[i] && table->point[i].kin == number) {
            kin->point[count++] = i;
        }
    }
    const fit_job job = {.table = table, .point = kin->point, .count = kin->count, .narrow = 1};
    ist_status status = kin->count > 0 ? fit_constants(&job, &kin->base) : IST_OK;
    for (uint32_t i = 0; i < kin->count && status == IST_OK; ++i) {
        const fit_point *point = &table->point[kin->point[i]];
        status = fit_part(model, kin, false, point->branch, &kin->base, BRANCH_NARROW);
        if (status == IST_OK) {
            status = fit_part(model, kin, true, point->family, &model->branch[point->branch].at,
                              FAMILY_NARROW);
        }
    }
    kin->done = true;
    return status == IST_OK ? krige(model, kin) : status;
}

/* ------------------------------------------------------------------------------------ interface */

ist_status fit_model_open(const fit_table *table, const uint8_t *used, fit_model **model)
{
    fit_model *opened = ist_alloc(1, sizeof *opened);
    if (opened == NULL) {
        return refuse_memory(table->count);
    }
    opened->table = table;
    opened->used = used;
    opened->kin = ist_alloc(table->kin_count + 1u, sizeof *opened->kin);
    opened->branch = ist_alloc(table->branch_count + 1u, sizeof *opened->branch);
    opened->family = ist_alloc(table->family_count + 1u, sizeof *opened->family);
    if (opened->kin == NULL || opened->branch == NULL || opened->family == NULL) {
        fit_model_close(opened);
        return refuse_memory(table->count);
    }
    *model = opened;
    return IST_OK;
}

void fit_model_close(fit_model *model)
{
    if (model == NULL) {
        return;
    }
    for (uint32_t i = 0; model->kin != NULL && i < model->table->kin_count; ++i) {
        ist_free(model->kin[i].point);
        ist_free(model->kin[i].weight);
    }
    ist_free(model->kin);
    ist_free(model->branch);
    ist_free(model->family);
    ist_free(model);
}

ist_status fit_model_predict(fit_model *model, const fit_point *point, fit_prediction *prediction)
{
    kin_fit *kin = &model->kin[point->kin];
    if (!kin->done) {
        const ist_status status = fit_kin(model, point->kin);
        if (status != IST_OK) {
            return status;
        }
    }
    const part_fit *family = &model->family[point->family];
    const part_fit *branch = &model->branch[point->branch];
    const offsets *at = family->count > 0   ? &family->at
                        : branch->count > 0 ? &branch->at
                                            : &kin->base;
    fit_prediction made = {
        .knobs = knobs_at(point, at), .family_points = family->count, .kin_points = kin->count};
    const ist_status status = model_us(point, &made.knobs, &made.model_us);
    double curve = 0;
    for (uint32_t i = 0; i < kin->count; ++i) {
        curve += kin->weight[i] * alike(point, &model->table->point[kin->point[i]]);
    }
    made.time_us = made.model_us * exp(curve);
    *prediction = made;
    return status;
}
