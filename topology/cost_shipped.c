/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles by name. The bytes are made from profiles/ by cost_shipped.cmake.
 */
#include "cost_shipped.h"

#include <string.h>

typedef struct shipped_profile {
    const char *name;
    const unsigned char *text;
    size_t bytes;
} shipped_profile;

#include <cost_shipped_profiles.inc>

#define SHIPPED_COUNT (sizeof(shipped) / sizeof(shipped[0]))

const char *cost_shipped_name(uint32_t index)
{
    return index < SHIPPED_COUNT ? shipped[index].name : NULL;
}

const char *cost_shipped_text(const char *name, size_t *bytes)
{
    for (size_t i = 0; i < SHIPPED_COUNT; ++i) {
        if (strcmp(shipped[i].name, name) == 0) {
            *bytes = shipped[i].bytes;
            return (const char *)shipped[i].text;
        }
    }
    return NULL;
}
