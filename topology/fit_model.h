/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the constants of the cost model to timings, and predicts with what was fitted.
 *
 * Three layers, from physics to habit. The constants of a kin (one source, one kind of operation)
 * are found from vendors' figures as a prior; those of a family from those of its kin. What is
 * left over, as a function of message size and world size, is a smooth curve (kriging), which goes
 * back to the model where there is no data.
 *
 * Doubles here, rounded when they become constants; the order of all sums is fixed.
 */
#ifndef FIT_MODEL_H
#define FIT_MODEL_H

#include "fit_point.h"

typedef struct fit_model fit_model;

/* `used[i]` not 0: point i may be looked at. IST_ERR_MEMORY. */
ist_status fit_model_open(const fit_table *table, const uint8_t *used, fit_model **model);
void fit_model_close(fit_model *model);

typedef struct fit_prediction {
    double time_us;
    double model_us; /* without the curve */
    cost_knobs knobs;
    uint32_t family_points; /* that were used */
    uint32_t kin_points;
} fit_prediction;

/* `point` needs family and kin of the same table. */
ist_status fit_model_predict(fit_model *model, const fit_point *point, fit_prediction *prediction);

#endif
