/* SPDX-License-Identifier: Apache-2.0 */
/* Fault plans from the command line: files, JSON texts, the short form of one fault, random plans.
 */
#ifndef CLI_FAULTS_H
#define CLI_FAULTS_H

#include <isthmus/unstable/sim.h>
#include <stdbool.h>

/* Appends the fault of a short form: KIND:KEY=VALUE:…, keys as in a plan file; classes are joined
   by `+`. IST_ERR_PARSE and a sentence in the error record when it is wrong. */
ist_status cli_faults_add_short(ist_fault_plan *plan, const char *text);

/* Appends a plan file, or a JSON text, which begins with `{`. */
ist_status cli_faults_add(ist_fault_plan *plan, const char *text);

/* Appends faults drawn from `seed` for a world of so many ranks, of which a quorum survives. */
ist_status cli_faults_add_random(ist_fault_plan *plan, uint64_t seed, uint32_t rank_count,
                                 uint32_t iterations);

/* The plan as one line of JSON; the caller frees it. NULL when out of memory. */
char *cli_faults_text(const ist_fault_plan *plan);

#endif
