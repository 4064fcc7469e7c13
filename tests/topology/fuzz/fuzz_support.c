/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers need from the rest of the library, so that a fuzz target is made of them alone:
 * memory without limits of its own, errors that are counted and forgotten.
 */
#include "ist_internal.h"

#include <stdlib.h>

void *ist_alloc(size_t count, size_t bytes)
{
    return calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1);
}

void ist_free(void *memory)
{
    free(memory);
}

ist_status ist_raise(ist_status status, const ist_error *details, const char *format, ...)
{
    (void)details;
    (void)format;
    return status;
}

ist_status ist_fail(const ist_world *world, ist_status status, const char *object,
                    const char *operation, const char *format, ...)
{
    (void)world;
    (void)object;
    (void)operation;
    (void)format;
    return status;
}

ist_status ist_fail_null(const ist_world *world, const char *argument, const char *operation)
{
    (void)world;
    (void)argument;
    (void)operation;
    return IST_ERR_NULL;
}

void ist_log(ist_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}
