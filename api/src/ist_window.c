/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: registered on all ranks or on none, and the arithmetic of places in them.
 */
#include "ist_internal.h"

#include <inttypes.h>

#define OPERATION "window.open"

static ist_status close_window(void *object)
{
    return ist_window_close(object);
}

static ist_status check_offered(const ist_comm *comm)
{
    ist_world *world = comm->object.world;
    const ist_backend_caps *caps = NULL;
    IST_RETURN_IF_ERROR(ist_world_caps(world, &caps));
    if (world->has_windows && caps->window_reason == NULL) {
        return IST_OK;
    }
    return ist_fail(
        world, IST_ERR_UNSUPPORTED, "window", OPERATION, "there are no windows here: %s",
        caps->window_reason != NULL ? caps->window_reason : "the backend does not offer them");
}

static ist_status check_memory(ist_comm *comm, const void *mem, size_t bytes)
{
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, mem, "mem", OPERATION));
    if (bytes == 0) {
        return ist_fail(world, IST_ERR_ARGUMENT, "bytes", OPERATION,
                        "bytes is 0, more is required");
    }
    uint64_t beyond = (uintptr_t)mem % IST_WINDOW_ALIGNMENT;
    if (beyond != 0) {
        return ist_fail_value(world, IST_ERR_ALIGNMENT, "mem", OPERATION, IST_WINDOW_ALIGNMENT,
                              beyond, "mem lies %" PRIu64 " bytes behind a multiple of %u", beyond,
                              IST_WINDOW_ALIGNMENT);
    }
    return ist_memory_check(world, mem, bytes, IST_MEM_SYMMETRIC, "mem", OPERATION);
}

/* All that can go wrong on this rank alone; told to the peers, who then fail too. */
static ist_status prepare(ist_comm *comm, const void *mem, size_t bytes, ist_window **window,
                          ist_window **opening)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(comm->object.world, window, "window", OPERATION));
    IST_RETURN_IF_ERROR(check_offered(comm));
    IST_RETURN_IF_ERROR(check_memory(comm, mem, bytes));
    *opening = ist_alloc(1, sizeof(**opening));
    return *opening != NULL ? IST_OK : ist_fail_memory(comm->object.world, "a window", OPERATION);
}

/* Not a matter of trust between ranks, so compared whatever the communicator checks. */
static ist_status meet_over_index(ist_comm *comm, ist_status local, uint32_t index)
{
    if (local == IST_OK && index == 0) {
        local = ist_fail(comm->object.world, IST_ERR_INTERNAL, "window", OPERATION,
                         "the backend reports success without a window");
    }
    ist_field field = {"the number of the window", index};
    ist_check check = comm->check;
    comm->check = IST_CHECK_PEERS;
    ist_status status = ist_comm_meet(comm, local, &field, 1, OPERATION);
    comm->check = check;
    return status;
}

static ist_status register_on_all(ist_comm *comm, void *mem, size_t bytes, uint32_t *index)
{
    ist_world *world = comm->object.world;
    uint32_t opened = 0;
    ist_status local =
        world->ops.window_open(world->self, comm->object.number, mem, bytes, &opened);
    ist_status status = meet_over_index(comm, local, opened);
    if (status < 0) {
        if (local == IST_OK && opened != 0) {
            ist_error why;
            ist_error_save(&why);
            world->ops.window_close(world->self, comm->object.number, opened);
            ist_error_restore(&why);
        }
        return status;
    }
    *index = opened;
    return IST_OK;
}

ist_status ist_window_open(ist_comm *comm, void *mem, size_t bytes, ist_window **window)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", OPERATION));
    IST_RETURN_IF_ERROR(ist_check_comm_usable(comm, OPERATION));
    ist_window *opening = NULL;
    uint32_t index = 0;
    ist_status local = prepare(comm, mem, bytes, window, &opening);
    ist_status status = ist_comm_exchange_status(comm, local, OPERATION);
    if (status == IST_OK) {
        status = register_on_all(comm, mem, bytes, &index);
    }
    if (status < 0) {
        ist_free(opening);
        return status;
    }
    opening->comm = comm;
    opening->memory = mem;
    opening->bytes = bytes;
    ist_object_open(opening, IST_KIND_WINDOW, comm->object.world, index, close_window);
    ++comm->window_count;
    *window = opening;
    return IST_OK;
}

ist_status ist_window_close(ist_window *window)
{
    if (window == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_window(window, "window", "window.close"));
    ist_world *world = window->object.world;
    ist_status status = world->ops.window_close(world->self, window->comm->object.number,
                                                (uint32_t)window->object.number);
    --window->comm->window_count;
    ist_object_close(window);
    return status;
}

static bool window_is_open(const ist_window *window)
{
    return window != NULL && window->object.magic == IST_MAGIC(IST_KIND_WINDOW);
}

uint64_t ist_window_bytes(const ist_window *window)
{
    return window_is_open(window) ? window->bytes : 0;
}

uint32_t ist_window_index(const ist_window *window)
{
    return window_is_open(window) ? (uint32_t)window->object.number : 0;
}

ist_status ist_window_address(const ist_window *window, uint64_t offset, uint64_t bytes,
                              void **address)
{
    IST_RETURN_IF_ERROR(ist_check_window(window, "window", "window.address"));
    ist_world *world = window->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, address, "address", "window.address"));
    if (offset > window->bytes || bytes > window->bytes - offset) {
        return ist_fail_value(
            world, IST_ERR_RANGE, "offset", "window.address", window->bytes, offset,
            "offset %" PRIu64 " with %" PRIu64 " bytes leaves the window of %" PRIu64 " bytes",
            offset, bytes, window->bytes);
    }
    *address = window->memory + offset;
    return IST_OK;
}

ist_status ist_window_offset(const ist_window *window, const void *address, uint64_t *offset)
{
    IST_RETURN_IF_ERROR(ist_check_window(window, "window", "window.offset"));
    ist_world *world = window->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, offset, "offset", "window.offset"));
    uintptr_t begin = (uintptr_t)window->memory;
    uintptr_t at = (uintptr_t)address;
    if (at < begin || at - begin >= window->bytes) {
        return ist_fail_value(world, IST_ERR_RANGE, "address", "window.offset", window->bytes, 0,
                              "address lies outside window %" PRIu64 " of %" PRIu64 " bytes",
                              window->object.number, window->bytes);
    }
    *offset = at - begin;
    return IST_OK;
}
