/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types, and what can be checked of a tensor without knowing what it is for.
 */
#include "ist_internal.h"

#include <inttypes.h>
#include <stdio.h>

#define TENSOR_BYTES_FIRST 80u

size_t ist_dtype_bytes(ist_dtype dtype)
{
    switch (dtype) {
    case IST_DTYPE_UNSET: return 0;
    case IST_U8:
    case IST_I8:
    case IST_F8E4M3:
    case IST_F8E5M2: return 1;
    case IST_F16:
    case IST_BF16: return 2;
    case IST_I32:
    case IST_U32:
    case IST_F32: return 4;
    case IST_I64:
    case IST_U64:
    case IST_F64: return 8;
    }
    return 0;
}

const char *ist_dtype_text(ist_dtype dtype)
{
    switch (dtype) {
    case IST_DTYPE_UNSET: return "unset";
    case IST_U8: return "u8";
    case IST_I32: return "i32";
    case IST_I64: return "i64";
    case IST_F16: return "f16";
    case IST_BF16: return "bf16";
    case IST_F32: return "f32";
    case IST_I8: return "i8";
    case IST_U32: return "u32";
    case IST_U64: return "u64";
    case IST_F64: return "f64";
    case IST_F8E4M3: return "f8e4m3";
    case IST_F8E5M2: return "f8e5m2";
    }
    return "unknown";
}

/* A tensor under check: what the caller called it, and in which call. */
typedef struct subject {
    ist_comm *comm;
    const char *argument;
    const char *operation;
} subject;

static ist_status check_type(const subject *of, const ist_tensor *tensor)
{
    const ist_world *world = of->comm->object.world;
    if (ist_dtype_bytes(tensor->dtype) == 0) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, of->argument, of->operation, IST_F8E5M2,
                              (uint64_t)tensor->dtype, "%s.dtype is %d, no element type",
                              of->argument, (int)tensor->dtype);
    }
    if (tensor->dim_count < 1 || tensor->dim_count > IST_TENSOR_DIMS_MAX) {
        return ist_fail_value(world, IST_ERR_RANGE, of->argument, of->operation,
                              IST_TENSOR_DIMS_MAX, tensor->dim_count,
                              "%s.dim_count is %" PRIu32 ", 1 to %d is required", of->argument,
                              tensor->dim_count, IST_TENSOR_DIMS_MAX);
    }
    return IST_OK;
}

static ist_status measure(const subject *of, const ist_tensor *tensor, ist_tensor_place *place)
{
    uint64_t bytes = ist_dtype_bytes(tensor->dtype);
    bool empty = false;
    bool overflow = false;
    for (uint32_t i = 0; i < tensor->dim_count; ++i) {
        empty = empty || tensor->dims[i] == 0;
        overflow = overflow || __builtin_mul_overflow(bytes, tensor->dims[i], &bytes);
    }
    if (overflow && !empty) {
        return ist_fail(of->comm->object.world, IST_ERR_RANGE, of->argument, of->operation,
                        "the dimensions of %s make more than 2^64 bytes", of->argument);
    }
    place->bytes = empty ? 0 : bytes;
    place->elements = place->bytes / ist_dtype_bytes(tensor->dtype);
    return IST_OK;
}

static ist_status check_aligned(const subject *of, const ist_tensor *tensor,
                                const ist_tensor_place *place)
{
    uint64_t unit = ist_dtype_bytes(tensor->dtype);
    uint64_t beyond = (uintptr_t)place->address % unit;
    if (beyond == 0) {
        return IST_OK;
    }
    return ist_fail_value(of->comm->object.world, IST_ERR_ALIGNMENT, of->argument, of->operation,
                          unit, beyond, "%s begins %" PRIu64 " bytes behind a multiple of %" PRIu64,
                          of->argument, beyond, unit);
}

static ist_status place_in_window(const subject *of, const ist_tensor *tensor,
                                  ist_tensor_place *place)
{
    const ist_world *world = of->comm->object.world;
    ist_window *window = tensor->window;
    IST_RETURN_IF_ERROR(ist_check_window(window, of->argument, of->operation));
    if (window->comm != of->comm) {
        return ist_fail_value(world, IST_ERR_OBJECT, of->argument, of->operation, 0,
                              window->object.number,
                              "%s.window is window %" PRIu64 " of another communicator",
                              of->argument, window->object.number);
    }
    uint64_t offset = tensor->window_offset;
    if (offset > window->bytes || place->bytes > window->bytes - offset) {
        return ist_fail_value(world, IST_ERR_RANGE, of->argument, of->operation, window->bytes,
                              offset,
                              "%s at offset %" PRIu64 " with %" PRIu64
                              " bytes leaves the window of %" PRIu64 " bytes",
                              of->argument, offset, place->bytes, window->bytes);
    }
    place->window = window;
    place->window_index = (uint32_t)window->object.number;
    place->offset = offset;
    place->address = window->memory + offset;
    return check_aligned(of, tensor, place);
}

static ist_status place_in_memory(const subject *of, const ist_tensor *tensor,
                                  ist_tensor_place *place)
{
    ist_world *world = of->comm->object.world;
    place->address = tensor->data;
    if (tensor->window_offset != 0) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, of->argument, of->operation, 0,
                              tensor->window_offset, "%s has a window_offset and no window",
                              of->argument);
    }
    if (place->bytes == 0) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(
        ist_memory_check(world, tensor->data, place->bytes, 0, of->argument, of->operation));
    return check_aligned(of, tensor, place);
}

ist_status ist_tensor_check(ist_comm *comm, const ist_tensor *tensor, const char *argument,
                            const char *operation, ist_tensor_place *place)
{
    const ist_world *world = comm->object.world;
    const subject of = {comm, argument, operation};
    ist_tensor checked;
    ist_tensor_place found = {0};
    IST_RETURN_IF_ERROR(ist_check_pointer(world, tensor, argument, operation));
    IST_RETURN_IF_ERROR(ist_desc_read(world, tensor, TENSOR_BYTES_FIRST, &checked, sizeof(checked),
                                      argument, operation));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, &checked.reserved, sizeof(checked.reserved),
                                           argument, operation));
    IST_RETURN_IF_ERROR(check_type(&of, &checked));
    IST_RETURN_IF_ERROR(measure(&of, &checked, &found));
    if (checked.data != NULL && checked.window != NULL) {
        return ist_fail(world, IST_ERR_ARGUMENT, argument, operation,
                        "%s has data and a window, one is required", argument);
    }
    IST_RETURN_IF_ERROR(checked.window != NULL ? place_in_window(&of, &checked, &found)
                                               : place_in_memory(&of, &checked, &found));
    *place = found;
    return IST_OK;
}
