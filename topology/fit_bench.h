/* SPDX-License-Identifier: Apache-2.0 */
/* What `isthmus bench ep --json` measured, as a table of timings: the mean of the run, one family
 * for each operation, layout, element type and way of calling.
 */
#ifndef FIT_BENCH_H
#define FIT_BENCH_H

#include "fit_point.h"

/* Whether a JSON text is of a bench and not a profile. */
bool fit_is_bench(const char *text, size_t bytes);

/* IST_ERR_PARSE; IST_ERR_MEMORY. Free with fit_table_free(). */
ist_status fit_bench_read(const char *text, size_t bytes, fit_table *table);

#endif
