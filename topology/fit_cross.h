/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-validation of the fit: what is said about points that it has not seen.
 *
 * Points of one source with one number of ranks and nodes are left out together, and predicted
 * from the rest. A series whose family has no other world size cannot be judged so; there every
 * fourth power of two of the message sizes is left out at a time. Errors are taken per series (its
 * median), then over series.
 */
#ifndef FIT_CROSS_H
#define FIT_CROSS_H

#include "fit_model.h"

typedef enum fit_way {
    FIT_BY_WORLD = 0, /* another world size of the same family was there to fit from */
    FIT_BY_SIZE = 1,  /* other message sizes of the same family only */
    FIT_BY_KIN = 2    /* nothing of the same family: from other families, or vendors' figures */
} fit_way;

typedef struct fit_score {
    double time_us; /* predicted; 0: not scored */
    double error;   /* relative, without what printing has rounded away */
    fit_way way;
} fit_score;

typedef struct fit_series_score {
    uint32_t points;
    double median, worst;
    fit_way way;
} fit_series_score;

typedef struct fit_summary {
    uint32_t series, points;
    double median, p90; /* of the series' medians */
} fit_summary;

/* `scores`: [table->count], `series`: [table->series_count]; both caller's. */
ist_status fit_cross_validate(const fit_table *table, fit_score *scores, fit_series_score *series);

/* Fits to the points of `mask` 1 and scores those of `mask` 2. */
ist_status fit_score_split(const fit_table *table, const uint8_t *mask, fit_score *scores,
                           fit_series_score *series);

/* Fits to every other size of each series, scores the sizes between; then the other way round. */
ist_status fit_score_halves(const fit_table *table, fit_score *scores, fit_series_score *series);

/* Over the series that were scored one of the ways in `ways` (1 << fit_way). */
fit_summary fit_summarise(const fit_table *table, const fit_series_score *series, uint32_t ways);

#endif
