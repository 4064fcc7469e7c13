/* SPDX-License-Identifier: Apache-2.0 */
/* What `isthmus bench` measured, as timings: the mean of the run, one family for each operation,
 * layout, element type and way of calling. From `bench ep --json`, and from the CSV of `bench ep`
 * and `bench coll`.
 */
#ifndef FIT_BENCH_H
#define FIT_BENCH_H

#include "fit_csv.h"
#include "fit_point.h"

/* Whether a JSON text is of a bench and not a profile. */
bool fit_is_bench(const char *text, size_t bytes);

/* IST_ERR_PARSE; IST_ERR_MEMORY. Free with fit_table_free(). */
ist_status fit_bench_read(const char *text, size_t bytes, fit_table *table);

/* One line of a CSV. The machine: one NVLink domain, which is what a bench without a cluster has.
 * IST_ERR_PARSE names the line. */
ist_status fit_bench_line(const fit_reader *from, fit_point *point);

#endif
