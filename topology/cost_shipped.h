/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles of profiles/, built into the library.
 */
#ifndef COST_SHIPPED_H
#define COST_SHIPPED_H

#include <stddef.h>
#include <stdint.h>

/* Name of a shipped profile, in alphabetical order; NULL past the last. */
const char *cost_shipped_name(uint32_t index);

/* Text of the profile of that name, not ended by a NUL; NULL: there is none. */
const char *cost_shipped_text(const char *name, size_t *bytes);

#endif
