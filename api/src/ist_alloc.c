/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory: the only allocator of the library, zeroed, and able to fail on demand.
 */
#include "ist_layer.h"

#include <stdlib.h>

void *ist_alloc(size_t count, size_t bytes)
{
    if (ist_call_fault_due(IST_CALL_HOST_ALLOC) != IST_OK) {
        return NULL;
    }
    return calloc(count, bytes);
}

void ist_free(void *memory)
{
    free(memory);
}
