/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device communicators: opened on all ranks or on none, those of programs tracked so that they go
 * with their communicator.
 */
#include "ist_internal.h"

#include <inttypes.h>

#define RESOURCE_BYTES_MAX (UINT64_C(1) << 46)
#define SIGNAL_COUNT_MAX (UINT32_C(1) << 24)
#define LSA_BARRIER_COUNT_MAX 4096u
#define CONTEXT_COUNT_MAX 64u

ist_status ist_devcomm_close(ist_comm *comm, const ist_dev_comm *dev)
{
    ist_world *world = comm->object.world;
    return world->ops.devcomm_close(world->self, comm->object.number, dev);
}

ist_status ist_devcomm_open_agreed(ist_comm *comm, const ist_devcomm_desc *desc,
                                   const char *operation, const ist_dev_comm **dev)
{
    ist_world *world = comm->object.world;
    ist_devcomm_desc full = *desc;
    full.mask = comm->mask;
    const ist_dev_comm *opened = NULL;
    ist_status local = world->ops.devcomm_open(world->self, comm->object.number, &full, &opened);
    if (local == IST_OK && opened == NULL) {
        local = ist_fail(world, IST_ERR_INTERNAL, "dev", operation,
                         "the backend reports success without a device communicator");
    }
    ist_status status = ist_comm_exchange_status(comm, local, operation);
    if (status < 0) {
        if (local == IST_OK) {
            ist_error why;
            ist_error_save(&why);
            ist_devcomm_close(comm, opened);
            ist_error_restore(&why);
        }
        return status;
    }
    *dev = opened;
    return IST_OK;
}

static ist_status refuse_unsupported(const ist_comm *comm, const char *operation,
                                     const char *reason)
{
    return ist_fail(comm->object.world, IST_ERR_UNSUPPORTED, "comm", operation, "%s",
                    reason != NULL ? reason : "the backend has no device communicators");
}

static ist_status check_offered(const ist_comm *comm, const ist_devcomm_desc *desc,
                                const char *operation)
{
    if (!comm->object.world->has_devcomm) {
        return refuse_unsupported(comm, operation, NULL);
    }
    if (desc->context_count != 0 && comm->gin_supported == 0) {
        return refuse_unsupported(comm, operation,
                                  comm->gin_reason != NULL ? comm->gin_reason : "there is no GIN");
    }
    return IST_OK;
}

ist_status ist_devcomm_open_all(ist_comm *comm, ist_status local, const ist_devcomm_desc *desc,
                                const char *operation, const ist_dev_comm **dev)
{
    const ist_field fields[] = {
        {"resource_bytes", desc->resource_bytes},       {"context_count", desc->context_count},
        {"signal_count", desc->signal_count},           {"counter_count", desc->counter_count},
        {"lsa_barrier_count", desc->lsa_barrier_count},
    };
    if (local == IST_OK) {
        local = check_offered(comm, desc, operation);
    }
    IST_RETURN_IF_ERROR(
        ist_comm_meet(comm, local, fields, sizeof(fields) / sizeof(fields[0]), operation));
    return ist_devcomm_open_agreed(comm, desc, operation, dev);
}

static ist_status check_count(const ist_comm *comm, const char *argument, uint64_t value,
                              uint64_t most)
{
    if (value <= most) {
        return IST_OK;
    }
    return ist_fail_value(comm->object.world, IST_ERR_RANGE, argument, "dev_comm.open", most, value,
                          "%s is %" PRIu64 ", at most %" PRIu64 " is possible", argument, value,
                          most);
}

static ist_status check_counts(const ist_comm *comm, const ist_devcomm_desc *desc)
{
    IST_RETURN_IF_ERROR(
        check_count(comm, "resource_bytes", desc->resource_bytes, RESOURCE_BYTES_MAX));
    IST_RETURN_IF_ERROR(check_count(comm, "context_count", desc->context_count, CONTEXT_COUNT_MAX));
    uint64_t most = desc->context_count != 0 ? SIGNAL_COUNT_MAX : 0;
    IST_RETURN_IF_ERROR(check_count(comm, "signal_count", desc->signal_count, most));
    IST_RETURN_IF_ERROR(check_count(comm, "counter_count", desc->counter_count, most));
    return check_count(comm, "lsa_barrier_count", desc->lsa_barrier_count, LSA_BARRIER_COUNT_MAX);
}

/* Nothing may fail after the ranks have agreed, so the node is there before they meet. */
static ist_status prepare(const ist_comm *comm, const ist_devcomm_desc *desc,
                          const ist_dev_comm **dev, ist_user_devcomm **node)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(comm->object.world, dev, "dev", "dev_comm.open"));
    IST_RETURN_IF_ERROR(check_counts(comm, desc));
    *node = ist_alloc(1, sizeof(**node));
    return *node != NULL
               ? IST_OK
               : ist_fail_memory(comm->object.world, "a device communicator", "dev_comm.open");
}

ist_status ist_dev_comm_open(ist_comm *comm, uint64_t resource_bytes, uint32_t context_count,
                             uint32_t signal_count, uint32_t counter_count,
                             uint32_t lsa_barrier_count, const ist_dev_comm **dev)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", "dev_comm.open"));
    IST_RETURN_IF_ERROR(ist_check_comm_usable(comm, "dev_comm.open"));
    ist_devcomm_desc desc = {.resource_bytes = resource_bytes,
                             .context_count = context_count,
                             .signal_count = signal_count,
                             .counter_count = counter_count,
                             .lsa_barrier_count = lsa_barrier_count};
    ist_user_devcomm *node = NULL;
    ist_status local = prepare(comm, &desc, dev, &node);
    const ist_dev_comm *opened = NULL;
    ist_status status = ist_devcomm_open_all(comm, local, &desc, "dev_comm.open", &opened);
    if (status < 0) {
        ist_free(node);
        return status;
    }
    node->dev = opened;
    node->next = comm->devcomms;
    comm->devcomms = node;
    *dev = opened;
    return IST_OK;
}

ist_status ist_dev_comm_close(ist_comm *comm, const ist_dev_comm *dev)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "dev_comm.close"));
    if (dev == NULL) {
        return IST_OK;
    }
    for (ist_user_devcomm **link = &comm->devcomms; *link != NULL; link = &(*link)->next) {
        ist_user_devcomm *node = *link;
        if (node->dev == dev) {
            *link = node->next;
            ist_free(node);
            return ist_devcomm_close(comm, dev);
        }
    }
    return ist_fail(comm->object.world, IST_ERR_OBJECT, "dev", "dev_comm.close",
                    "dev is no open device communicator of comm");
}
