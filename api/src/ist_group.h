/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of groups and what-if share.
 */
#ifndef IST_GROUP_H
#define IST_GROUP_H

#include "ist_internal.h"

#include "cost_profile.h"

#include <isthmus/unstable/whatif.h>

struct ist_profile {
    cost_profile profile;
};

struct ist_group {
    cost_machine machine;
    cost_profile links; /* of the description; no operations */
    const ist_profile *profile;
    uint32_t op_count;
    cost_op op[COST_OPS_MAX];
};

/* The text of an answer, with the machine-readable names. Frees nothing. */
ist_status ist_text_out(const char *made, const char *operation, char *text, size_t capacity,
                        size_t *needed);

#endif
