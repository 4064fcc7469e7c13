/* SPDX-License-Identifier: Apache-2.0 */
/* What `isthmus probe` measured, as a table of timings: its curves become points of transfers,
 * copies and barriers, one family for each curve and number of blocks.
 */
#ifndef FIT_PROBE_H
#define FIT_PROBE_H

#include "fit_point.h"

/* Whether a text looks like a profile and not like a table. */
bool fit_is_profile(const char *text, size_t bytes);

/* IST_ERR_PARSE; IST_ERR_MEMORY. Free with fit_table_free(). */
ist_status fit_probe_read(const char *text, size_t bytes, fit_table *table);

#endif
