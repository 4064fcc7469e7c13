/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call-fault layer and the counter behind it: the nth call of a chosen operation fails.
 * Process-wide, because the fault loop runs whole worlds; counted with atomics, because a world's
 * ranks may be threads.
 */
#include "ist_layer.h"

#include <isthmus/unstable/sim.h>
#include <stdlib.h>
#include <string.h>

atomic_int ist_call_fault_armed = IST_CALL_NONE;

static struct {
    atomic_ullong seen;
    atomic_ullong hits;
    uint64_t nth; /* this and the next are written while disarmed */
    bool persistent;
    ist_status status;
} fault;

const char *ist_call_name(ist_call call)
{
    static const char *const names[IST_CALL_COUNT] = {
#define X(op, params, args, need) #op,
        IST_BACKEND_OPS(X)
#undef X
            "host_alloc",
    };
    return (uint32_t)call < IST_CALL_COUNT ? names[call] : "?";
}

ist_status ist_call_fault_count(void)
{
    uint64_t number = atomic_fetch_add(&fault.seen, 1) + 1;
    if (number == fault.nth || (fault.persistent && number > fault.nth)) {
        atomic_fetch_add(&fault.hits, 1);
        return fault.status;
    }
    return IST_OK;
}

bool ist_call_fault_wanted(void)
{
    const char *text = getenv("IST_CALL_FAULTS");
    bool set = text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;
    return set || atomic_load(&ist_call_fault_armed) != IST_CALL_NONE;
}

static ist_status call_find(const char *op, int *call)
{
    if (op == NULL) {
        *call = IST_CALL_ANY;
        return IST_OK;
    }
    for (int i = 0; i < IST_CALL_COUNT; ++i) {
        if (strcmp(op, ist_call_name((ist_call)i)) == 0) {
            *call = i;
            return IST_OK;
        }
    }
    return ist_fail(NULL, IST_ERR_ARGUMENT, "op", "call_fault.arm",
                    "op \"%s\" is no backend operation and not host_alloc", op);
}

ist_status ist_call_fault_arm(const char *op, uint64_t nth, int persistent, ist_status status)
{
    int call = IST_CALL_ANY;
    IST_RETURN_IF_ERROR(call_find(op, &call));
    if (nth != 0 && status >= 0) {
        return ist_fail(NULL, IST_ERR_ARGUMENT, "status", "call_fault.arm",
                        "status is %d, a failure (below 0) is required", (int)status);
    }
    atomic_store(&ist_call_fault_armed, IST_CALL_NONE);
    atomic_store(&fault.seen, 0);
    atomic_store(&fault.hits, 0);
    fault.nth = nth;
    fault.persistent = persistent != 0;
    fault.status = status;
    if (nth != 0) {
        atomic_store_explicit(&ist_call_fault_armed, call, memory_order_release);
    }
    return IST_OK;
}

uint64_t ist_call_fault_disarm(uint64_t *hit_count)
{
    atomic_store(&ist_call_fault_armed, IST_CALL_NONE);
    if (hit_count != NULL) {
        *hit_count = atomic_load(&fault.hits);
    }
    return atomic_load(&fault.seen);
}

static IST_COLD ist_status raise_fault(const ist_layer *layer, ist_call call, ist_status status)
{
    ist_error details = {.size = sizeof(details),
                         .rank = (int32_t)layer->rank,
                         .peer = IST_RANK_NONE,
                         .sequence = fault.nth,
                         .object = "call fault"};
    strncpy(details.operation, ist_call_name(call), sizeof(details.operation) - 1);
    return ist_raise(status, &details, "call %s fails as armed (%s)", ist_call_name(call),
                     ist_status_name(status));
}

/* What frees is done all the same: a close that reports a failure has closed. */
static bool call_releases(ist_call call)
{
    const char *name = ist_call_name(call);
    size_t length = strlen(name);
    return (length > 6 && strcmp(name + length - 6, "_close") == 0) || call == IST_CALL_mem_free;
}

/* The watched call apart, so that all others are a test and a jump. */
#define X(op, params, args, need)                                                                  \
    static IST_COLD ist_status count_##op params                                                   \
    {                                                                                              \
        const ist_layer *layer = self;                                                             \
        ist_status status = ist_call_fault_count();                                                \
        self = layer->below_self;                                                                  \
        if (status == IST_OK) {                                                                    \
            return layer->below.op args;                                                           \
        }                                                                                          \
        if (call_releases(IST_CALL_##op)) {                                                        \
            (void)layer->below.op args;                                                            \
        }                                                                                          \
        return raise_fault(layer, IST_CALL_##op, status);                                          \
    }                                                                                              \
    static ist_status fault_##op params                                                            \
    {                                                                                              \
        const ist_layer *layer = self;                                                             \
        if (ist_call_fault_watched(IST_CALL_##op)) {                                               \
            return count_##op args;                                                                \
        }                                                                                          \
        self = layer->below_self;                                                                  \
        return layer->below.op args;                                                               \
    }
IST_BACKEND_OPS(X)
#undef X

const ist_backend_ops *ist_layer_fault_ops(void)
{
    static const ist_backend_ops ops = {.size = sizeof(ist_backend_ops),
                                        .abi = IST_BACKEND_ABI,
#define X(op, params, args, need) .op = fault_##op,
                                        IST_BACKEND_OPS(X)
#undef X
    };
    return &ops;
}
