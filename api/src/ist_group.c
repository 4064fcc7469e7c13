/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: operations are checked and collected, then answered about by the cost model. Nothing is
 * enqueued, allocated on a device or told to a peer.
 */
#include "ist_group.h"

#include "cost_graph.h"
#include "ist_topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BEGIN "group.begin"
#define ADD "group.add"
#define SIMULATE "group.simulate"
#define TOPK_DEFAULT 8u
#define EXPERTS_DEFAULT 256u
#define AMOUNT_MAX UINT64_C(1000000000000000)

_Static_assert((int)IST_OP_COPY == (int)COST_COPY, "names of operations are the model's");
_Static_assert((int)IST_ALGORITHM_HT == (int)COST_HT, "names of algorithms are the model's");
_Static_assert((int)IST_LINK_FABRIC == (int)COST_FABRIC, "names of links are the model's");
_Static_assert(IST_LINK_KINDS == (int)COST_RESOURCE_COUNT, "kinds of links are the model's");
_Static_assert((int)IST_ROUTING_EVERY == (int)COST_ROUTING_EVERY, "routings are the model's");
_Static_assert((int)IST_CONFIDENCE_DEFAULT == (int)COST_DEFAULTED, "confidence is the model's");

/* ---- beginning ------------------------------------------------------------------------------- */

/* Ranks and teams as the communicator has them, the rest as described, else as its machines are. */
static ist_status meet_comm(ist_comm *comm, bool described, ist_group *group)
{
    ist_comm_info info = {.size = sizeof(info)};
    IST_RETURN_IF_ERROR(ist_comm_query(comm, &info));
    if (described) {
        const uint64_t ranks = cost_rank_count(&group->machine);
        if (ranks != info.rank_count) {
            return ist_fail_value(
                NULL, IST_ERR_ARGUMENT, "desc.cluster", BEGIN, info.rank_count, ranks,
                "desc.cluster has %" PRIu64 " GPUs, the communicator %" PRIu32 " ranks", ranks,
                info.rank_count);
        }
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_comm_links(comm, BEGIN, &group->machine, &group->links));
    group->machine.node_count = info.rank_count / info.lsa_size;
    group->machine.gpus_per_node = info.lsa_size;
    group->machine.domain = info.lsa_size;
    group->machine.nics_per_node = info.gin_supported != 0 ? info.lsa_size : 0;
    return IST_OK;
}

static ist_status fill_group(const ist_group_desc *desc, ist_group *group)
{
    IST_RETURN_IF_ERROR(cost_of_source(desc->cluster, &group->machine, &group->links));
    group->profile = desc->profile;
    return desc->comm != NULL ? meet_comm(desc->comm, desc->cluster != NULL, group) : IST_OK;
}

ist_status ist_group_begin(const ist_group_desc *desc, ist_group **group)
{
    ist_group_desc checked = {0};
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, group, "group", BEGIN));
    if (desc != NULL) {
        IST_RETURN_IF_ERROR(ist_desc_read(NULL, desc, sizeof(ist_group_desc), &checked,
                                          sizeof(checked), "desc", BEGIN));
    }
    IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &checked.reserved, sizeof(checked.reserved),
                                           "desc.reserved", BEGIN));
    ist_group *begun = ist_alloc(1, sizeof(*begun));
    if (begun == NULL) {
        return ist_fail(NULL, IST_ERR_MEMORY, "group", BEGIN, "no memory for a group");
    }
    const ist_status status = fill_group(&checked, begun);
    if (status != IST_OK) {
        ist_free(begun);
        return status;
    }
    *group = begun;
    return IST_OK;
}

void ist_group_drop(ist_group *group)
{
    ist_free(group);
}

/* ---- operations ------------------------------------------------------------------------------ */

static ist_status check_names(const ist_op_desc *op)
{
    if ((uint32_t)op->kind >= COST_KIND_COUNT) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "op.kind", ADD, COST_KIND_COUNT - 1,
                              (uint64_t)op->kind, "op.kind is %d, 0 to %d is required",
                              (int)op->kind, (int)COST_KIND_COUNT - 1);
    }
    if ((uint32_t)op->algorithm >= COST_ALGORITHM_COUNT) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "op.algorithm", ADD, COST_ALGORITHM_COUNT - 1,
                              (uint64_t)op->algorithm, "op.algorithm is %d, 0 to %d is required",
                              (int)op->algorithm, (int)COST_ALGORITHM_COUNT - 1);
    }
    if ((uint32_t)op->routing > IST_ROUTING_EVERY) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "op.routing", ADD, IST_ROUTING_EVERY,
                              (uint64_t)op->routing, "op.routing is %d, 0 to 2 is required",
                              (int)op->routing);
    }
    return IST_OK;
}

static ist_status check_amount(uint64_t value, uint64_t least, uint64_t most, const char *field)
{
    if (value >= least && value <= most) {
        return IST_OK;
    }
    return ist_fail_value(NULL, IST_ERR_RANGE, field, ADD, most, value,
                          "%s is %" PRIu64 ", %" PRIu64 " to %" PRIu64 " is required", field, value,
                          least, most);
}

static ist_status check_expert(const ist_op_desc *op)
{
    IST_RETURN_IF_ERROR(check_amount(op->tokens, 1, 1u << 24, "op.tokens"));
    IST_RETURN_IF_ERROR(check_amount(op->row_bytes, 1, 1u << 24, "op.row_bytes"));
    IST_RETURN_IF_ERROR(check_amount(op->experts, 1, 65535, "op.experts"));
    return check_amount(op->topk, 1, op->experts < 32 ? op->experts : 32, "op.topk");
}

static bool is_expert(ist_op_kind kind)
{
    return kind == IST_OP_EP_DISPATCH || kind == IST_OP_EP_COMBINE;
}

static ist_status check_op(const ist_group *group, const ist_op_desc *op)
{
    IST_RETURN_IF_ERROR(check_names(op));
    IST_RETURN_IF_ERROR(
        ist_check_reserved(NULL, op->reserved, sizeof(op->reserved), "op.reserved", ADD));
    IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &op->reserved_flags, sizeof(op->reserved_flags),
                                           "op.reserved_flags", ADD));
    IST_RETURN_IF_ERROR(check_amount(op->bytes, 0, AMOUNT_MAX, "op.bytes"));
    if (group->op_count == COST_OPS_MAX) {
        return ist_fail_value(NULL, IST_ERR_RANGE, "group", ADD, COST_OPS_MAX, COST_OPS_MAX + 1,
                              "a group has at most %u operations", COST_OPS_MAX);
    }
    return is_expert(op->kind) ? check_expert(op) : IST_OK;
}

ist_status ist_group_add(ist_group *group, const ist_op_desc *op)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, group, "group", ADD));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, op, "op", ADD));
    ist_op_desc checked;
    IST_RETURN_IF_ERROR(
        ist_desc_read(NULL, op, sizeof(ist_op_desc), &checked, sizeof(checked), "op", ADD));
    checked.topk = checked.topk > 0 ? checked.topk : TOPK_DEFAULT;
    checked.experts = checked.experts > 0 ? checked.experts : EXPERTS_DEFAULT;
    IST_RETURN_IF_ERROR(check_op(group, &checked));
    group->op[group->op_count++] = (cost_op){
        .kind = (cost_kind)checked.kind,
        .algorithm = (cost_algorithm)checked.algorithm,
        .stream = checked.stream,
        .group_size = checked.group_size,
        .bytes = checked.bytes,
        .src = checked.src,
        .dst = checked.dst,
        .tokens = checked.tokens,
        .row_bytes = checked.row_bytes,
        .topk = checked.topk,
        .experts = checked.experts,
        .routing = (cost_routing)checked.routing,
        .node_limit = checked.node_limit,
        .blocks = checked.block_count,
    };
    return IST_OK;
}

/* ---- edits ----------------------------------------------------------------------------------- */

/* The group as it is asked about: changed by the edits. */
typedef struct question {
    cost_machine machine;
    uint32_t edit_count;
    cost_edit edit[COST_EDITS_MAX];
    cost_op op[COST_OPS_MAX];
    cost_confidence confidence[COST_OPS_MAX];
    cost_result result;
} question;

static ist_status fail_edit(uint32_t index, const char *field, const char *reason)
{
    return ist_fail_value(NULL, IST_ERR_ARGUMENT, field, SIMULATE, 0, index,
                          "edits[%" PRIu32 "]: %s", index, reason);
}

static ist_status edit_nodes(question *asked, const ist_edit *edit, uint32_t index, uint32_t den)
{
    const uint64_t nodes = asked->machine.node_count * edit->num;
    if (edit->num == 0 || nodes % den != 0) {
        return fail_edit(index, "edits.num", "that is no whole number of nodes");
    }
    asked->machine.node_count = nodes / den;
    return IST_OK;
}

static ist_status edit_domain(question *asked, const ist_edit *edit, uint32_t index)
{
    const uint64_t gpus = asked->machine.gpus_per_node;
    const uint64_t domain = edit->num;
    if (domain == 0 || (gpus % domain != 0 && domain % gpus != 0) ||
        cost_rank_count(&asked->machine) % domain != 0) {
        return fail_edit(index, "edits.num", "an NVLink domain divides a node or is whole nodes");
    }
    asked->machine.domain = domain;
    return IST_OK;
}

static ist_status edit_expert(const ist_group *group, question *asked, const ist_edit *edit,
                              uint32_t index)
{
    const uint64_t size = asked->machine.domain * edit->num;
    if (size == 0 || cost_rank_count(&asked->machine) % size != 0) {
        return fail_edit(index, "edits.num", "the domains of a group do not divide the cluster");
    }
    for (uint32_t i = 0; i < group->op_count; ++i) {
        if (is_expert((ist_op_kind)asked->op[i].kind)) {
            asked->op[i].group_size = size;
        }
    }
    return IST_OK;
}

static ist_status edit_link(question *asked, const ist_edit *edit, uint32_t index, uint32_t den)
{
    if ((uint32_t)edit->link >= IST_LINK_KINDS) {
        return fail_edit(index, "edits.link", "there is no such kind of link");
    }
    const bool nic = edit->link == IST_LINK_NIC_OUT || edit->link == IST_LINK_NIC_IN;
    const uint64_t count = nic ? asked->machine.nics_per_node : asked->machine.gpus_per_node;
    if (edit->link != IST_LINK_FABRIC && edit->everywhere == 0 && edit->index >= count) {
        return fail_edit(index, "edits.index", "a node has fewer of them");
    }
    asked->edit[asked->edit_count++] = (cost_edit){.resource = (cost_resource)edit->link,
                                                   .everywhere = edit->everywhere != 0,
                                                   .node = edit->node,
                                                   .index = edit->index,
                                                   .num = edit->num,
                                                   .den = den};
    return IST_OK;
}

static ist_status apply_edit(const ist_group *group, question *asked, const ist_edit *edit,
                             uint32_t index)
{
    ist_edit checked;
    IST_RETURN_IF_ERROR(
        ist_desc_read(NULL, edit, sizeof(ist_edit), &checked, sizeof(checked), "edits", SIMULATE));
    const uint32_t den = checked.den > 0 ? checked.den : 1;
    switch (checked.kind) {
    case IST_EDIT_LINK: return edit_link(asked, &checked, index, den);
    case IST_EDIT_NODES: return edit_nodes(asked, &checked, index, den);
    case IST_EDIT_DOMAIN: return edit_domain(asked, &checked, index);
    case IST_EDIT_EP_DOMAINS: return edit_expert(group, asked, &checked, index);
    }
    return fail_edit(index, "edits.kind", "there is no such kind of edit");
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The operation that ends last, and those before it on its stream, which it had to wait for. */
static void mark_critical(const question *asked, uint32_t count, ist_estimate_op *ops,
                          uint32_t capacity)
{
    const uint32_t last = asked->result.last_op;
    for (uint32_t i = 0; i < count && i < capacity; ++i) {
        ops[i].critical = i <= last && asked->op[i].stream == asked->op[last].stream;
    }
}

static void fill_op(const question *asked, uint32_t index, ist_estimate_op *to)
{
    const cost_op_result *from = &asked->result.op[index];
    *to = (ist_estimate_op){.kind = (ist_op_kind)asked->op[index].kind,
                            .algorithm = (ist_op_algorithm)from->algorithm,
                            .stream = asked->op[index].stream,
                            .bottleneck = from->bottleneck,
                            .confidence = (ist_confidence)asked->confidence[index],
                            .start_ps = from->start_ps,
                            .end_ps = from->end_ps,
                            .fixed_ps = from->fixed_ps,
                            .transfer_ps = from->transfer_ps,
                            .buffer_bytes = from->buffer_bytes};
    memcpy(to->bytes, from->bytes, sizeof(to->bytes));
    memcpy(to->path, from->path, sizeof(to->path));
}

static ist_status fill_estimate(const ist_group *group, const question *asked,
                                ist_estimate *estimate)
{
    const cost_result *from = &asked->result;
    ist_estimate filled = {.size = sizeof(filled),
                           .version = 1,
                           .total_ps = from->total_ps,
                           .serial_ps = from->serial_ps,
                           .rank_count = cost_rank_count(&asked->machine),
                           .node_count = asked->machine.node_count,
                           .memory_limit_bytes = group->machine.memory_bytes,
                           .event_count = from->event_count,
                           .class_count = from->class_count,
                           .bottleneck = from->bottleneck,
                           .op_count = group->op_count};
    for (uint32_t i = 0; i < IST_LINK_KINDS; ++i) {
        filled.link[i] = (ist_estimate_link){.bytes = from->bytes[i],
                                             .link_count = from->link_count[i],
                                             .idle_count = from->idle_count[i],
                                             .busiest_permille = from->busiest_permille[i]};
    }
    memcpy(filled.busiest, from->busiest, sizeof(filled.busiest));
    memcpy(filled.idle, from->idle, sizeof(filled.idle));
    for (uint32_t i = 0; i < group->op_count; ++i) {
        filled.memory_bytes += from->op[i].buffer_bytes;
        if ((uint32_t)asked->confidence[i] > (uint32_t)filled.confidence) {
            filled.confidence = (ist_confidence)asked->confidence[i];
        }
    }
    if (estimate->size >= sizeof(ist_estimate) && estimate->ops != NULL) {
        filled.ops = estimate->ops;
        filled.op_capacity = estimate->op_capacity;
        for (uint32_t i = 0; i < group->op_count && i < filled.op_capacity; ++i) {
            fill_op(asked, i, &filled.ops[i]);
        }
        mark_critical(asked, group->op_count, filled.ops, filled.op_capacity);
    }
    ist_out_write(estimate, &filled, sizeof(filled));
    return IST_OK;
}

static ist_status ask(const ist_group *group, const ist_edit *edits, uint32_t edit_count,
                      uint32_t expand, question *asked)
{
    asked->machine = group->machine;
    memcpy(asked->op, group->op, sizeof(asked->op));
    for (uint32_t i = 0; i < edit_count; ++i) {
        IST_RETURN_IF_ERROR(apply_edit(group, asked, &edits[i], i));
    }
    const uint64_t ranks = cost_rank_count(&asked->machine);
    if (ranks > IST_CLUSTER_RANKS_MAX) {
        return ist_fail_value(NULL, IST_ERR_RANGE, "edits", SIMULATE, IST_CLUSTER_RANKS_MAX, ranks,
                              "the cluster would have %" PRIu64 " ranks", ranks);
    }
    const cost_profile *profile = group->profile != NULL ? &group->profile->profile : NULL;
    for (uint32_t i = 0; i < group->op_count; ++i) {
        asked->confidence[i] =
            cost_profile_apply(profile, &group->links, &asked->machine, &asked->op[i]);
    }
    return cost_estimate(&asked->machine, asked->edit, asked->edit_count, asked->op,
                         group->op_count, expand != 0, &asked->result);
}

ist_status ist_group_simulate(ist_group *group, const ist_edit *edits, uint32_t edit_count,
                              uint32_t expand, ist_estimate *estimate)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, group, "group", SIMULATE));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, estimate, "estimate", SIMULATE));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, estimate, "estimate", SIMULATE));
    if (edit_count > 0) {
        IST_RETURN_IF_ERROR(ist_check_pointer(NULL, edits, "edits", SIMULATE));
    }
    if (edit_count > COST_EDITS_MAX) {
        return ist_fail_value(NULL, IST_ERR_RANGE, "edit_count", SIMULATE, COST_EDITS_MAX,
                              edit_count, "edit_count is %" PRIu32 ", at most %u are possible",
                              edit_count, COST_EDITS_MAX);
    }
    question *asked = ist_alloc(1, sizeof(*asked));
    if (asked == NULL) {
        return ist_fail(NULL, IST_ERR_MEMORY, "estimate", SIMULATE, "no memory for an estimate");
    }
    ist_status status = ask(group, edits, edit_count, expand, asked);
    if (status == IST_OK) {
        status = fill_estimate(group, asked, estimate);
    }
    ist_free(asked);
    return status;
}

ist_status ist_group_end(ist_group *group, ist_group_mode mode, ist_estimate *estimate)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, group, "group", "group.end"));
    if (mode != IST_GROUP_SIMULATE) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "mode", "group.end", IST_GROUP_SIMULATE,
                              (uint64_t)mode, "mode is %d, IST_GROUP_SIMULATE is required",
                              (int)mode);
    }
    const ist_status status = ist_group_simulate(group, NULL, 0, 0, estimate);
    ist_group_drop(group);
    return status;
}
