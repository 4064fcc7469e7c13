/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory of a rank: allocation, and the check that an address range is the rank's own.
 */
#include "ist_internal.h"

#include <inttypes.h>
#include <string.h>

#define FLAGS_KNOWN ((uint32_t)IST_MEM_SYMMETRIC | (uint32_t)IST_MEM_HOST_VISIBLE)

ist_status ist_mem_alloc(ist_world *world, size_t bytes, uint32_t flags, void **mem)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "mem.alloc"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, mem, "mem", "mem.alloc"));
    if (bytes == 0) {
        return ist_fail(world, IST_ERR_ARGUMENT, "bytes", "mem.alloc",
                        "bytes is 0, more is required");
    }
    if ((flags & ~FLAGS_KNOWN) != 0) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "flags", "mem.alloc", FLAGS_KNOWN, flags,
                              "flags is 0x%" PRIx32 ", known are 0x%" PRIx32, flags, FLAGS_KNOWN);
    }
    void *allocated = NULL;
    IST_RETURN_IF_ERROR(world->ops.mem_alloc(world->self, bytes, flags, &allocated));
    ++world->memory_count;
    *mem = allocated;
    return IST_OK;
}

/* Whether the window's memory lies in the allocation that begins at `mem`. */
static bool window_inside(ist_world *world, const ist_window *window, const uint8_t *mem)
{
    uint32_t flags = 0;
    if (window->memory < mem) {
        return false;
    }
    size_t bytes = (size_t)(window->memory - mem) + window->bytes;
    return world->ops.mem_query(world->self, mem, bytes, &flags) == IST_OK;
}

ist_status ist_mem_free(ist_world *world, void *mem)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "mem.free"));
    if (mem == NULL) {
        return IST_OK;
    }
    for (const ist_object *object = world->open; object != NULL; object = object->next) {
        if (object->magic == IST_MAGIC(IST_KIND_WINDOW) &&
            window_inside(world, (const ist_window *)object, mem)) {
            return ist_fail_value(world, IST_ERR_USAGE, "mem", "mem.free", 0, object->number,
                                  "mem lies in the open window %" PRIu64, object->number);
        }
    }
    memset(world->checked, 0, sizeof(world->checked));
    ist_status status = world->ops.mem_free(world->self, mem);
    /* Not the caller's mistake: it is gone, whatever else went wrong. */
    if (status != IST_ERR_ARGUMENT && world->memory_count != 0) {
        --world->memory_count;
    }
    return status;
}

ist_status ist_memory_refuse(const ist_world *world, const void *mem, uint64_t bytes,
                             ist_status queried, uint32_t flags, uint32_t flags_needed,
                             const char *argument, const char *operation)
{
    if (mem == NULL) {
        return ist_fail_null(world, argument, operation);
    }
    if (queried == IST_ERR_ARGUMENT) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, argument, operation, 0, bytes,
                              "%s with %" PRIu64 " bytes does not lie in one allocation of rank %u",
                              argument, bytes, world->rank);
    }
    if (queried != IST_OK) {
        return queried;
    }
    return ist_fail_value(world, IST_ERR_ARGUMENT, argument, operation, flags_needed, flags,
                          "%s was allocated with flags 0x%" PRIx32 ", 0x%" PRIx32 " is required",
                          argument, flags, flags_needed);
}

ist_status ist_mem_peek(ist_world *world, const void *mem, void *host, size_t bytes)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "mem.peek"));
    if (bytes == 0) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_pointer(world, host, "host", "mem.peek"));
    IST_RETURN_IF_ERROR(
        ist_memory_check(world, mem, bytes, IST_MEM_HOST_VISIBLE, "mem", "mem.peek"));
    return world->ops.mem_peek(world->self, mem, host, bytes);
}
