/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that grow: reading descriptors that an older or newer program compiled, and filling
 * structs up to the size that the caller knows.
 */
#include "ist_internal.h"

#include <inttypes.h>
#include <string.h>

/* A size beyond this is an uninitialised field, not a future release. */
#define STRUCT_BYTES_MAX 65536u
#define STRUCT_BYTES_MIN 8u

static bool all_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static ist_status check_size(const ist_world *world, uint32_t size, size_t least,
                             const char *argument, const char *operation)
{
    if (size >= least && size <= STRUCT_BYTES_MAX) {
        return IST_OK;
    }
    ist_error details = ist_details(world, argument, operation);
    details.expected = least;
    details.observed = size;
    return ist_raise(IST_ERR_SIZE, &details, "%s.size is %" PRIu32 ", %zu to %u is required",
                     argument, size, least, STRUCT_BYTES_MAX);
}

ist_status ist_desc_read(const ist_world *world, const void *desc, size_t size_first, void *copy,
                         size_t copy_bytes, const char *argument, const char *operation)
{
    uint32_t size = *(const uint32_t *)desc;
    IST_RETURN_IF_ERROR(check_size(world, size, size_first, argument, operation));
    const uint8_t *bytes = desc;
    if (size > copy_bytes && !all_zero(bytes + copy_bytes, size - copy_bytes)) {
        return ist_fail_value(world, IST_ERR_RESERVED, argument, operation, copy_bytes, size,
                              "%s has %" PRIu32 " bytes and sets some behind the %zu that this "
                              "library knows",
                              argument, size, copy_bytes);
    }
    memset(copy, 0, copy_bytes);
    memcpy(copy, desc, size < copy_bytes ? size : copy_bytes);
    return IST_OK;
}

ist_status ist_check_reserved(const ist_world *world, const void *field, size_t bytes,
                              const char *argument, const char *operation)
{
    if (all_zero(field, bytes)) {
        return IST_OK;
    }
    return ist_fail(world, IST_ERR_RESERVED, argument, operation, "%s is not zero", argument);
}

ist_status ist_check_deadline(const ist_world *world, uint64_t deadline_ns, const char *argument,
                              const char *operation)
{
    if (deadline_ns == 0 || deadline_ns >= IST_DEADLINE_NS_MIN) {
        return IST_OK;
    }
    return ist_fail_value(world, IST_ERR_RANGE, argument, operation, IST_DEADLINE_NS_MIN,
                          deadline_ns, "%s is %" PRIu64 " ns, 0 or at least %u is required",
                          argument, deadline_ns, IST_DEADLINE_NS_MIN);
}

ist_status ist_out_check(const ist_world *world, const void *out, const char *argument,
                         const char *operation)
{
    return check_size(world, *(const uint32_t *)out, STRUCT_BYTES_MIN, argument, operation);
}

void ist_out_write(void *out, const void *full, size_t full_bytes)
{
    uint32_t size = *(const uint32_t *)out;
    size_t known = size < full_bytes ? size : full_bytes;
    uint8_t *to = out;
    const uint8_t *from = full;
    memcpy(to + sizeof(size), from + sizeof(size), known - sizeof(size));
    if (size > full_bytes) {
        memset(to + full_bytes, 0, size - full_bytes);
    }
}
