/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expert parallelism, the host's side: groups, handles, and the checks that the files of this
 * feature share. Everything that can be refused is refused before anything is enqueued.
 */
#ifndef IST_EP_INTERNAL_H
#define IST_EP_INTERNAL_H

#include "ist_internal.h"

#include "../../kernels/ep/ep_args.h"

#include <isthmus/ep.h>

struct ist_ep_group {
    ist_object object;
    ist_comm *comm;
    ist_ep_geometry geometry;
    ist_ep_layout_map at;
    const ist_dev_comm *dev;
    ist_ep_handle *handles; /* open ones */
    ist_ep_alloc alloc;     /* both hooks or none */
    uint64_t deadline_ns;   /* resolved */
    ist_ep_zero_copy zero_copy;
    ist_ep_check check;
    uint32_t context_count; /* resolved, 0 without network peers */
    uint32_t pending_count; /* staged operations */
};

/* The operation whose second half is still to come, with the arguments of its first. */
typedef struct ist_ep_pending {
    bool set;
    ist_ep_op op;
    union {
        ist_ep_dispatch_args dispatch;
        ist_ep_combine_args combine;
    } args;
} ist_ep_pending;

struct ist_ep_handle {
    ist_object object;
    ist_ep_group *group;
    ist_ep_handle *next; /* of the group */
    ist_ep_layout layout;
    uint32_t topk;
    uint32_t token_count;
    bool routed;
    bool dispatched; /* since the last update */
    bool mem_owned;
    uint8_t *mem;    /* device memory, laid out by `in` */
    uint8_t *report; /* host-visible device memory, ist_ep_report_bytes() */
    ist_ep_handle_map in;
    uint64_t update_count;
    uint64_t issue_count;
    uint64_t issued[2]; /* last issue number of an operation that was not captured */
    ist_ep_pending pending;
};

/* What a group would be on this communicator. */
typedef struct ist_ep_plan_host {
    ist_ep_group_desc desc; /* checked */
    ist_ep_geometry geometry;
    ist_ep_layout_map at;
    uint64_t deadline_ns;
    uint32_t context_count;
} ist_ep_plan_host;

static inline ist_status ist_check_ep_group(const ist_ep_group *group, const char *operation)
{
    return ist_check_object(group, IST_KIND_EP_GROUP, "group", operation);
}

static inline ist_status ist_check_ep_handle(const ist_ep_handle *handle, const char *operation)
{
    return ist_check_object(handle, IST_KIND_EP_HANDLE, "handle", operation);
}

/* Experts of a rank of the group. */
static inline uint32_t ist_ep_local_of(const ist_ep_group *group, uint32_t rank)
{
    return ist_ep_expert_local_count(group->geometry.expert_count, group->geometry.rank_count,
                                     rank);
}

/* Checks and resolves a descriptor; nothing is opened. */
ist_status ist_ep_resolve(ist_comm *comm, const ist_ep_group_desc *desc, const char *operation,
                          ist_ep_plan_host *plan);

/* Tells of a tensor with another number of dimensions, size or type than required. A dimension of
   UINT64_MAX is not compared. */
typedef struct ist_ep_shape_rule {
    uint32_t dim_count;
    uint64_t dims[3];
    ist_dtype dtype; /* IST_DTYPE_UNSET: BF16, F16 or F32 */
} ist_ep_shape_rule;

#define IST_EP_ANY UINT64_MAX

/* ist_tensor_check(), then the rule. */
ist_status ist_ep_check_tensor(ist_comm *comm, const ist_tensor *tensor,
                               const ist_ep_shape_rule *rule, const char *argument,
                               const char *operation, ist_tensor_place *place);
/* IST_ERR_ARGUMENT unless the pointer is NULL. */
ist_status ist_ep_check_absent(const ist_comm *comm, const void *tensor, const char *argument,
                               const char *layout, const char *operation);

#endif
