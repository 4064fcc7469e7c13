/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and sentences of statuses, and the error record of each rank: decided here, once, by
 * ist_raise(). A record lives in the slot that a backend bound for the rank, or in the thread's own.
 */
#include "ist_internal.h"

#include <stdio.h>
#include <string.h>

static _Thread_local ist_error own_record;
_Thread_local ist_error *ist_error_bound;

const char *ist_status_name(ist_status status)
{
    switch (status) {
#define X(name, value, sentence)                                                                   \
    case name: return #name;
        IST_STATUS_LIST(X)
#undef X
    }
    return "IST_ERR_?";
}

const char *ist_status_sentence(ist_status status)
{
    switch (status) {
#define X(name, value, sentence)                                                                   \
    case name: return sentence;
        IST_STATUS_LIST(X)
#undef X
    }
    return "a status that this library does not know";
}

static ist_error *record_of_this_rank(void)
{
    return ist_error_bound != NULL ? ist_error_bound : &own_record;
}

ist_error *ist_error_bind(ist_error *slot)
{
    ist_error *former = ist_error_bound;
    ist_error_bound = slot;
    return former;
}

void ist_error_save(ist_error *saved)
{
    *saved = *record_of_this_rank();
}

void ist_error_restore(const ist_error *saved)
{
    *record_of_this_rank() = *saved;
}

void ist_error_adopt(const ist_error *record)
{
    ist_error_restore(record);
}

/* A slot may be fresh zeroed memory; rank 0 must not appear in a record about nothing. */
static void record_clear(ist_error *record)
{
    memset(record, 0, sizeof(*record));
    record->size = (uint32_t)sizeof(*record);
    record->rank = IST_RANK_NONE;
    record->peer = IST_RANK_NONE;
}

ist_status ist_error_last(ist_error *error)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, error, "error", "error.last"));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, error, "error", "error.last"));
    ist_error full = *record_of_this_rank();
    if (full.status == IST_OK) {
        record_clear(&full);
    }
    ist_out_write(error, &full, sizeof(full));
    return IST_OK;
}

static void details_copy(ist_error *record, const ist_error *details)
{
    record_clear(record);
    if (details == NULL) {
        return;
    }
    /* A backend module may have been compiled with a shorter record. */
    size_t bytes = details->size == 0 ? sizeof(*record) : details->size;
    memcpy(record, details, bytes < sizeof(*record) ? bytes : sizeof(*record));
    record->size = (uint32_t)sizeof(*record);
    record->object[sizeof(record->object) - 1] = '\0';
    record->operation[sizeof(record->operation) - 1] = '\0';
}

static void record_log(const ist_error *record)
{
    char rank[24] = "";
    if (record->rank != IST_RANK_NONE) {
        snprintf(rank, sizeof(rank), "rank %d: ", (int)record->rank);
    }
    ist_log(IST_LOG_ERROR, "%s%s%s%s [%s]", rank, record->operation,
            record->operation[0] != '\0' ? ": " : "", record->message,
            ist_status_name(record->status));
}

ist_status ist_raise_list(ist_status status, const ist_error *details, const char *format,
                          va_list list)
{
    ist_error record;
    details_copy(&record, details);
    record.status = status;
    vsnprintf(record.message, sizeof(record.message), format, list);
    *record_of_this_rank() = record;
    record_log(&record);
    return status;
}

ist_status ist_raise(ist_status status, const ist_error *details, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    ist_raise_list(status, details, format, list);
    va_end(list);
    return status;
}

ist_error ist_details(const ist_world *world, const char *object, const char *operation)
{
    ist_error details;
    record_clear(&details);
    details.rank = world != NULL ? (int32_t)world->rank : IST_RANK_NONE;
    snprintf(details.object, sizeof(details.object), "%s", object);
    snprintf(details.operation, sizeof(details.operation), "%s", operation);
    return details;
}

ist_status ist_fail(const ist_world *world, ist_status status, const char *object,
                    const char *operation, const char *format, ...)
{
    ist_error details = ist_details(world, object, operation);
    va_list list;
    va_start(list, format);
    ist_raise_list(status, &details, format, list);
    va_end(list);
    return status;
}

ist_status ist_fail_value(const ist_world *world, ist_status status, const char *object,
                          const char *operation, uint64_t expected, uint64_t observed,
                          const char *format, ...)
{
    ist_error details = ist_details(world, object, operation);
    details.expected = expected;
    details.observed = observed;
    va_list list;
    va_start(list, format);
    ist_raise_list(status, &details, format, list);
    va_end(list);
    return status;
}

ist_status ist_fail_null(const ist_world *world, const char *argument, const char *operation)
{
    return ist_fail(world, IST_ERR_NULL, argument, operation, "%s is NULL", argument);
}

ist_status ist_fail_memory(const ist_world *world, const char *what, const char *operation)
{
    return ist_fail(world, IST_ERR_MEMORY, what, operation, "no host memory for %s", what);
}
