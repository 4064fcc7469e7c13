/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers between the front and a backend: a table over a table. Each is generated from
 * IST_BACKEND_OPS, takes its own head as `self` and passes the call to what lies below. Order from
 * the front: trace, call faults, backend. A layer that is not asked for is not there.
 */
#ifndef IST_LAYER_H
#define IST_LAYER_H

#include "ist_internal.h"

typedef struct ist_layer {
    ist_backend_ops below;
    void *below_self;
    uint32_t rank;
    struct ist_layer *next; /* the layer below, to be freed with this one */
} ist_layer;

/* Numbers of the calls that can be made to fail: the rows of the table, then the allocator. */
typedef enum ist_call {
#define X(op, params, args, need) IST_CALL_##op,
    IST_BACKEND_OPS(X)
#undef X
        IST_CALL_HOST_ALLOC,
    IST_CALL_COUNT
} ist_call;

const char *ist_call_name(ist_call call);

/* The call that is to fail: an ist_call, IST_CALL_ANY, or IST_CALL_NONE while disarmed. */
#define IST_CALL_NONE (-2)
#define IST_CALL_ANY (-1)
extern atomic_int ist_call_fault_armed;
IST_COLD ist_status ist_call_fault_count(void);

/* Whether the call has to be counted. One load. */
static inline bool ist_call_fault_watched(ist_call call)
{
    int armed = atomic_load_explicit(&ist_call_fault_armed, memory_order_acquire);
    return !IST_LIKELY(armed != (int)call && armed != IST_CALL_ANY);
}

/* Counts a call if it is watched; a failure when it is the one that has to fail. */
static inline ist_status ist_call_fault_due(ist_call call)
{
    return ist_call_fault_watched(call) ? ist_call_fault_count() : IST_OK;
}

/* Whether worlds that start now need the layer. */
bool ist_call_fault_wanted(void);

/* The layers' tables, complete. */
const ist_backend_ops *ist_layer_fault_ops(void);
const ist_backend_ops *ist_layer_trace_ops(void);

/* Puts the layers that are wanted on top of the world's table. */
ist_status ist_layers_push(ist_world *world);
void ist_layers_free(ist_world *world);

/* Whether a slot of a completed table is the stub for "not offered". */
bool ist_backend_has_windows(const ist_backend_ops *ops);
bool ist_backend_has_devcomm(const ist_backend_ops *ops);
bool ist_backend_has_coll(const ist_backend_ops *ops);
bool ist_backend_has_ground(const ist_backend_ops *ops);

#endif
