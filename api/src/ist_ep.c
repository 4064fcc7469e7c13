/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expert-parallel groups: the descriptor checked and compared between ranks, the window and flags
 * opened on all ranks or on none.
 */
#include "ist_ep_internal.h"

#include <inttypes.h>
#include <string.h>

#define OPEN "ep.group_open"
#define DESC_BYTES_FIRST 104u
#define CONTEXTS_DEFAULT 4u
#define CONTEXTS_MAX 64u
#define TOPK_DEFAULT 8u
/* A block is worth starting for this many bytes of rows. */
#define BLOCK_BYTES 16384u

/* ---- descriptor ------------------------------------------------------------------------------ */

static ist_status refuse_range(const ist_comm *comm, const char *field, uint64_t least,
                               uint64_t most, uint64_t value, const char *operation)
{
    return ist_fail_value(
        comm->object.world, IST_ERR_RANGE, field, operation, value < least ? least : most, value,
        "%s is %" PRIu64 ", %" PRIu64 " to %" PRIu64 " is required", field, value, least, most);
}

static ist_status check_range(const ist_comm *comm, const char *field, uint64_t least,
                              uint64_t most, uint64_t value, const char *operation)
{
    return value >= least && value <= most
               ? IST_OK
               : refuse_range(comm, field, least, most, value, operation);
}

static ist_status check_choice(const ist_comm *comm, const char *field, uint64_t most,
                               uint64_t value, const char *operation)
{
    if (value <= most) {
        return IST_OK;
    }
    return ist_fail_value(comm->object.world, IST_ERR_ARGUMENT, field, operation, most, value,
                          "%s is %" PRIu64 ", at most %" PRIu64 " is known", field, value, most);
}

static ist_status check_alloc(const ist_comm *comm, const ist_ep_alloc *alloc,
                              const char *operation)
{
    if ((alloc->alloc == NULL) == (alloc->free == NULL)) {
        return IST_OK;
    }
    return ist_fail(comm->object.world, IST_ERR_ARGUMENT, "desc.alloc", operation,
                    "desc.alloc has %s and no %s, both or neither is required",
                    alloc->alloc != NULL ? "alloc" : "free",
                    alloc->alloc != NULL ? "free" : "alloc");
}

static ist_status check_choices(const ist_comm *comm, const ist_ep_group_desc *desc,
                                const char *operation)
{
    IST_RETURN_IF_ERROR(check_choice(comm, "desc.algorithm", IST_EP_LOW_LATENCY,
                                     (uint64_t)desc->algorithm, operation));
    IST_RETURN_IF_ERROR(check_choice(comm, "desc.zero_copy", IST_EP_ZERO_COPY_ON,
                                     (uint64_t)desc->zero_copy, operation));
    IST_RETURN_IF_ERROR(
        check_choice(comm, "desc.check", IST_EP_CHECK_ASYNC, (uint64_t)desc->check, operation));
    IST_RETURN_IF_ERROR(check_choice(comm, "desc.combine_order", IST_EP_COMBINE_REDUCED,
                                     (uint64_t)desc->combine_order, operation));
    IST_RETURN_IF_ERROR(check_choice(comm, "desc.enable_mask", 1, desc->enable_mask, operation));
    if (desc->enable_mask != 0 && comm->fault_tolerant == 0) {
        return ist_fail(comm->object.world, IST_ERR_ARGUMENT, "desc.enable_mask", operation,
                        "desc.enable_mask is 1, but comm was not opened as fault tolerant");
    }
    return check_alloc(comm, &desc->alloc, operation);
}

static ist_status check_numbers(const ist_comm *comm, const ist_ep_group_desc *desc,
                                uint32_t sm_count, const char *operation)
{
    const struct {
        const char *field;
        uint64_t least, most, value;
    } rules[] = {
        {"desc.expert_count", 1, IST_EP_EXPERTS_MAX, desc->expert_count},
        {"desc.tokens_per_rank_max", 1, IST_EP_TOKENS_MAX, desc->tokens_per_rank_max},
        {"desc.topk_max", 0, IST_EP_TOPK_MAX, desc->topk_max},
        {"desc.context_count", 0, CONTEXTS_MAX, desc->context_count},
        {"desc.token_bytes_max", 1, IST_EP_ROW_BYTES_MAX, desc->token_bytes_max},
        {"desc.block_count_max", 0, sm_count, desc->block_count_max},
        {"desc.staged_count_max", 0, IST_EP_SLOTS_MAX, desc->staged_count_max},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); ++i) {
        IST_RETURN_IF_ERROR(check_range(comm, rules[i].field, rules[i].least, rules[i].most,
                                        rules[i].value, operation));
    }
    return ist_check_deadline(comm->object.world, desc->deadline_ns, "desc.deadline_ns", operation);
}

static ist_status check_comm_fits(const ist_comm *comm, const ist_ep_group_desc *desc,
                                  const char *operation)
{
    if (comm->rank_count > IST_EP_RANKS_MAX) {
        return ist_fail_value(comm->object.world, IST_ERR_UNSUPPORTED, "comm", operation,
                              IST_EP_RANKS_MAX, comm->rank_count,
                              "comm has %u ranks, a group can have %u", comm->rank_count,
                              IST_EP_RANKS_MAX);
    }
    if (desc->combine_order == IST_EP_COMBINE_REDUCED && comm->lsa_size != comm->rank_count) {
        return ist_fail_value(comm->object.world, IST_ERR_UNSUPPORTED, "desc.combine_order",
                              operation, comm->rank_count, comm->lsa_size,
                              "desc.combine_order is REDUCED, which needs all %u ranks in one "
                              "load/store team; that of this rank has %u",
                              comm->rank_count, comm->lsa_size);
    }
    return ist_check_comm_service(comm, operation);
}

/* ---- resolving ------------------------------------------------------------------------------- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Equal for all operations of the group, so that all replays of graphs agree. */
static uint32_t choose_blocks(const ist_ep_geometry *geometry, uint32_t most)
{
    uint64_t rows = (uint64_t)geometry->tokens_max * geometry->topk_max;
    uint64_t blocks = (rows * geometry->row_bytes_max + BLOCK_BYTES - 1u) / BLOCK_BYTES;
    blocks = blocks < rows ? blocks : rows;
    return blocks < most ? (uint32_t)blocks : most;
}

static void fill_geometry(const ist_comm *comm, const ist_ep_group_desc *desc, uint32_t sm_count,
                          ist_ep_geometry *geometry)
{
    memset(geometry, 0, sizeof(*geometry));
    geometry->rank_count = comm->rank_count;
    geometry->lsa_size = comm->lsa_size;
    geometry->expert_count = desc->expert_count;
    geometry->expert_base = desc->expert_count / comm->rank_count;
    geometry->expert_extra = desc->expert_count % comm->rank_count;
    geometry->tokens_max = desc->tokens_per_rank_max;
    geometry->topk_max =
        desc->topk_max != 0 ? desc->topk_max : smaller(desc->expert_count, TOPK_DEFAULT);
    geometry->slot_count = desc->staged_count_max != 0 ? desc->staged_count_max : 1;
    geometry->staging = desc->zero_copy != IST_EP_ZERO_COPY_ON;
    geometry->reduced = desc->combine_order == IST_EP_COMBINE_REDUCED;
    geometry->row_bytes_max = desc->token_bytes_max;
    geometry->block_count =
        choose_blocks(geometry, desc->block_count_max != 0 ? desc->block_count_max : sm_count);
}

static ist_status check_buffer(const ist_comm *comm, const ist_ep_plan_host *plan,
                               const char *operation)
{
    uint64_t most = plan->desc.buffer_bytes;
    if (most == 0 || plan->at.bytes <= most) {
        return IST_OK;
    }
    return ist_fail_value(
        comm->object.world, IST_ERR_RANGE, "desc.buffer_bytes", operation, plan->at.bytes, most,
        "desc.buffer_bytes is %" PRIu64 ", %" PRIu64 " bytes are needed", most, plan->at.bytes);
}

static ist_status read_desc(ist_comm *comm, const ist_ep_group_desc *desc, const char *operation,
                            ist_ep_group_desc *checked)
{
    const ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, desc, "desc", operation));
    IST_RETURN_IF_ERROR(
        ist_desc_read(world, desc, DESC_BYTES_FIRST, checked, sizeof(*checked), "desc", operation));
    return ist_check_reserved(world, checked->reserved, sizeof(checked->reserved), "desc.reserved",
                              operation);
}

ist_status ist_ep_resolve(ist_comm *comm, const ist_ep_group_desc *desc, const char *operation,
                          ist_ep_plan_host *plan)
{
    const ist_backend_caps *caps = NULL;
    IST_RETURN_IF_ERROR(read_desc(comm, desc, operation, &plan->desc));
    IST_RETURN_IF_ERROR(ist_world_caps(comm->object.world, &caps));
    IST_RETURN_IF_ERROR(check_choices(comm, &plan->desc, operation));
    IST_RETURN_IF_ERROR(check_numbers(comm, &plan->desc, caps->sm_count, operation));
    IST_RETURN_IF_ERROR(check_comm_fits(comm, &plan->desc, operation));
    fill_geometry(comm, &plan->desc, caps->sm_count, &plan->geometry);
    plan->at = ist_ep_layout_of(&plan->geometry);
    plan->deadline_ns = plan->desc.deadline_ns != 0 ? plan->desc.deadline_ns : comm->deadline_ns;
    plan->context_count = 0;
    if (comm->lsa_size != comm->rank_count) {
        plan->context_count =
            plan->desc.context_count != 0 ? plan->desc.context_count : CONTEXTS_DEFAULT;
    }
    return check_buffer(comm, plan, operation);
}

/* ---- open ------------------------------------------------------------------------------------ */

static ist_status close_group(void *object)
{
    return ist_ep_group_close(object);
}

static ist_status prepare(ist_comm *comm, const ist_ep_group_desc *desc, ist_ep_group **group,
                          ist_ep_plan_host *plan, ist_ep_group **opening)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(comm->object.world, group, "group", OPEN));
    IST_RETURN_IF_ERROR(ist_ep_resolve(comm, desc, OPEN, plan));
    *opening = ist_alloc(1, sizeof(**opening));
    return *opening != NULL ? IST_OK : ist_fail_memory(comm->object.world, "a group", OPEN);
}

/* Field by field, whatever the communicator checks: groups that differ cannot work. */
static ist_status meet_over_desc(ist_comm *comm, ist_status local, const ist_ep_group_desc *desc)
{
    const ist_field fields[] = {
        {"desc.algorithm", (uint64_t)desc->algorithm},
        {"desc.expert_count", desc->expert_count},
        {"desc.tokens_per_rank_max", desc->tokens_per_rank_max},
        {"desc.topk_max", desc->topk_max},
        {"desc.context_count", desc->context_count},
        {"desc.token_bytes_max", desc->token_bytes_max},
        {"desc.buffer_bytes", desc->buffer_bytes},
        {"desc.block_count_max", desc->block_count_max},
        {"desc.staged_count_max", desc->staged_count_max},
        {"desc.zero_copy", (uint64_t)desc->zero_copy},
        {"desc.check", (uint64_t)desc->check},
        {"desc.deadline_ns", desc->deadline_ns},
        {"desc.enable_mask", desc->enable_mask},
        {"desc.combine_order", (uint64_t)desc->combine_order},
    };
    ist_check check = comm->check;
    comm->check = IST_CHECK_PEERS;
    ist_status status =
        ist_comm_meet(comm, local, fields, sizeof(fields) / sizeof(fields[0]), OPEN);
    comm->check = check;
    return status;
}

static ist_status open_window(ist_comm *comm, const ist_ep_plan_host *plan,
                              const ist_dev_comm **dev)
{
    ist_devcomm_desc desc = {0};
    desc.resource_bytes = plan->at.bytes;
    desc.context_count = plan->context_count;
    desc.signal_count =
        plan->context_count != 0 ? ist_ep_channel_count(&plan->geometry) * comm->rank_count : 0;
    return ist_devcomm_open_all(comm, IST_OK, &desc, OPEN, dev);
}

static void fill_group(ist_comm *comm, const ist_ep_plan_host *plan, ist_ep_group *opening)
{
    opening->comm = comm;
    opening->geometry = plan->geometry;
    opening->at = plan->at;
    opening->alloc = plan->desc.alloc;
    opening->deadline_ns = plan->deadline_ns;
    opening->zero_copy = plan->desc.zero_copy;
    opening->check = plan->desc.check;
    opening->context_count = plan->context_count;
}

ist_status ist_ep_group_open(ist_comm *comm, const ist_ep_group_desc *desc, ist_ep_group **group)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", OPEN));
    IST_RETURN_IF_ERROR(ist_check_comm_usable(comm, OPEN));
    ist_ep_group *opening = NULL;
    ist_ep_plan_host plan;
    memset(&plan, 0, sizeof(plan));
    ist_status local = prepare(comm, desc, group, &plan, &opening);
    ist_status status = meet_over_desc(comm, local, &plan.desc);
    const ist_dev_comm *dev = NULL;
    if (status == IST_OK) {
        status = open_window(comm, &plan, &dev);
    }
    if (status < 0) {
        ist_free(opening);
        return status;
    }
    fill_group(comm, &plan, opening);
    opening->dev = dev;
    ist_object_open(opening, IST_KIND_EP_GROUP, comm->object.world, 0, close_group);
    ++comm->group_count;
    *group = opening;
    return IST_OK;
}

/* ---- close and queries ------------------------------------------------------------------------ */

ist_status ist_ep_group_close(ist_ep_group *group)
{
    if (group == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, "ep.group_close"));
    if (group->handles != NULL) {
        return ist_fail(group->object.world, IST_ERR_USAGE, "group", "ep.group_close",
                        "handles of the group are still open");
    }
    ist_status status = ist_devcomm_close(group->comm, group->dev);
    --group->comm->group_count;
    ist_object_close(group);
    return status;
}

ist_status ist_ep_group_query(ist_ep_group *group, ist_ep_group_info *info)
{
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, "ep.group_query"));
    const ist_world *world = group->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, info, "info", "ep.group_query"));
    IST_RETURN_IF_ERROR(ist_out_check(world, info, "info", "ep.group_query"));
    uint32_t rank = group->comm->rank;
    ist_ep_group_info full = {0};
    full.expert_count = group->geometry.expert_count;
    full.expert_first = ist_ep_expert_first(full.expert_count, group->geometry.rank_count, rank);
    full.expert_local_count = ist_ep_local_of(group, rank);
    full.tokens_per_rank_max = group->geometry.tokens_max;
    full.topk_max = group->geometry.topk_max;
    full.block_count = group->geometry.block_count;
    full.staged_count_max = group->geometry.slot_count;
    full.deadline_ns = group->deadline_ns;
    full.device_bytes = group->at.bytes;
    full.rank_count = group->geometry.rank_count;
    full.context_count = group->context_count;
    full.combine_order = group->geometry.reduced ? IST_EP_COMBINE_REDUCED : IST_EP_COMBINE_STRICT;
    ist_out_write(info, &full, sizeof(full));
    return IST_OK;
}

ist_status ist_ep_group_bytes(ist_comm *comm, const ist_ep_group_desc *desc, uint64_t *bytes)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", "ep.group_bytes"));
    IST_RETURN_IF_ERROR(ist_check_pointer(comm->object.world, bytes, "bytes", "ep.group_bytes"));
    ist_ep_plan_host plan;
    memset(&plan, 0, sizeof(plan));
    IST_RETURN_IF_ERROR(ist_ep_resolve(comm, desc, "ep.group_bytes", &plan));
    *bytes = plan.at.bytes;
    return IST_OK;
}

ist_status ist_ep_expert_owner(ist_ep_group *group, uint32_t expert, uint32_t *rank,
                               uint32_t *local)
{
    IST_RETURN_IF_ERROR(ist_check_ep_group(group, "ep.expert_owner"));
    const ist_world *world = group->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, rank, "rank", "ep.expert_owner"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, local, "local", "ep.expert_owner"));
    uint32_t experts = group->geometry.expert_count;
    if (expert >= experts) {
        return ist_fail_value(world, IST_ERR_RANGE, "expert", "ep.expert_owner", experts, expert,
                              "expert is %u, below %u is required", expert, experts);
    }
    uint32_t owner = ist_ep_expert_rank(experts, group->geometry.rank_count, expert);
    *rank = owner;
    *local = expert - ist_ep_expert_first(experts, group->geometry.rank_count, owner);
    return IST_OK;
}
