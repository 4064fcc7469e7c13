/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace layer: one log line for each call of a backend operation, after it returned.
 */
#include "ist_layer.h"

static ist_status traced(const ist_layer *layer, const char *operation, ist_status status)
{
    ist_log(IST_LOG_TRACE, "rank %u: %s %s", layer->rank, operation, ist_status_name(status));
    return status;
}

#define X(op, params, args, need)                                                                  \
    static ist_status trace_##op params                                                            \
    {                                                                                              \
        const ist_layer *layer = self;                                                             \
        self = layer->below_self;                                                                  \
        return traced(layer, #op, layer->below.op args);                                           \
    }
IST_BACKEND_OPS(X)
#undef X

const ist_backend_ops *ist_layer_trace_ops(void)
{
    static const ist_backend_ops ops = {.size = sizeof(ist_backend_ops),
                                        .abi = IST_BACKEND_ABI,
#define X(op, params, args, need) .op = trace_##op,
                                        IST_BACKEND_OPS(X)
#undef X
    };
    return &ops;
}
