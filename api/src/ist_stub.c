/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completes a backend's table: what it does not offer answers IST_ERR_UNSUPPORTED, what it must
 * offer is demanded. After that every slot is callable and no call site tests for NULL.
 */
#include "ist_layer.h"

#include <string.h>

/* Names the parameters of a stub as used. */
static inline void unused(const void *self, ...)
{
    (void)self;
}

#define X(op, params, args, need)                                                                  \
    static ist_status stub_##op params                                                             \
    {                                                                                              \
        unused args;                                                                               \
        return ist_fail(NULL, IST_ERR_UNSUPPORTED, #op, #op,                                       \
                        "the backend does not offer the operation " #op);                          \
    }
IST_BACKEND_OPS(X)
#undef X

static ist_status check_head(const ist_backend_ops *ops)
{
    if (ops->size < offsetof(ist_backend_ops, caps)) {
        return ist_fail_value(NULL, IST_ERR_ABI, "ops.size", "backend.register",
                              sizeof(ist_backend_ops), ops->size,
                              "ops.size is %u, not even its head", ops->size);
    }
    if (ops->abi != IST_BACKEND_ABI) {
        return ist_fail_value(NULL, IST_ERR_ABI, "ops.abi", "backend.register", IST_BACKEND_ABI,
                              ops->abi, "ops.abi is %u, this library speaks %u", ops->abi,
                              IST_BACKEND_ABI);
    }
    return IST_OK;
}

static ist_status refuse_missing(const char *operation)
{
    return ist_fail(NULL, IST_ERR_ABI, operation, "backend.register",
                    "the required operation %s is missing", operation);
}

ist_status ist_backend_ops_complete(const ist_backend_ops *ops, ist_backend_ops *completed)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, ops, "ops", "backend.register"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, completed, "completed", "backend.register"));
    IST_RETURN_IF_ERROR(check_head(ops));
    ist_backend_ops full = {0};
    memcpy(&full, ops, ops->size < sizeof(full) ? ops->size : sizeof(full));
    full.size = (uint32_t)sizeof(full);
#define X(op, params, args, need)                                                                  \
    if (full.op == NULL) {                                                                         \
        if ((need) == IST_REQUIRED) {                                                              \
            return refuse_missing(#op);                                                            \
        }                                                                                          \
        full.op = stub_##op;                                                                       \
    }
    IST_BACKEND_OPS(X)
#undef X
    *completed = full;
    return IST_OK;
}

bool ist_backend_has_windows(const ist_backend_ops *ops)
{
    return ops->window_open != stub_window_open;
}

bool ist_backend_has_devcomm(const ist_backend_ops *ops)
{
    return ops->devcomm_open != stub_devcomm_open;
}

bool ist_backend_has_ground(const ist_backend_ops *ops)
{
    return ops->comm_ground != stub_comm_ground;
}

bool ist_backend_has_coll(const ist_backend_ops *ops)
{
    return ops->coll_info != stub_coll_info && ops->coll_open != stub_coll_open &&
           ops->coll_enqueue != stub_coll_enqueue && ops->coll_status != stub_coll_status &&
           ops->coll_close != stub_coll_close;
}
