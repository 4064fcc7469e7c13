/* SPDX-License-Identifier: Apache-2.0 */
/* From a fit to a profile: for each family its constants, where they hold, and the curve of what
 * the constants leave over.
 */
#ifndef FIT_PROFILE_H
#define FIT_PROFILE_H

#include "cost_profile.h"
#include "fit_model.h"

/* Families with the most points come first: of several with one kind of operation and algorithm the
 * first is what a profile answers with. Free with cost_profile_free(). */
ist_status fit_profile_make(const fit_table *table, const char *name, cost_profile *profile);

#endif
