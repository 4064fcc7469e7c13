/* SPDX-License-Identifier: Apache-2.0 */
/* Who sends to whom, class by class, and the flows of a phase.
 */
#include "cost_internal.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ peers */

uint64_t cost_group_ranks(const cost_state *at, const cost_op *op)
{
    return op->group_size > 0 ? op->group_size : at->ranks;
}

/* How many ranks of class `b` a rank of class `a` reaches by load and store. */
uint64_t cost_lsa_peers(const cost_state *at, const cost_op *op, const cost_class *a,
                        const cost_class *b)
{
    const uint64_t size = cost_group_ranks(at, op);
    const uint64_t domain = at->machine->domain < size ? at->machine->domain : size;
    if (a->special != b->special) {
        return 0;
    }
    if (a->special) {
        return a != b && a->rank / domain == b->rank / domain;
    }
    if (at->special_count == 0) {
        return domain - 1;
    }
    return a->place != b->place;
}

/* How many ranks of class `b` in its group, itself not counted. */
uint64_t cost_all_peers(const cost_state *at, const cost_op *op, const cost_class *a,
                        const cost_class *b)
{
    const uint64_t size = cost_group_ranks(at, op);
    if (a->special && b->special) {
        return a != b && a->rank / size == b->rank / size;
    }
    if (size <= at->block) { /* regular blocks have groups of their own */
        return a->special != b->special
                   ? 0
                   : size / (at->special_count > 0 ? at->machine->domain : 1) - (a == b);
    }
    const uint64_t split = at->special_count > 0 ? at->machine->domain : 1;
    const uint64_t of_b = b->special ? 1 : (at->special_count > 0 ? at->regular : size) / split;
    return of_b - (a == b);
}

/* Network peers at the same place of other domains. */
uint64_t cost_rail_peers(const cost_state *at, const cost_op *op, const cost_class *a,
                         const cost_class *b)
{
    const uint64_t domain = at->machine->domain;
    const uint64_t size = cost_group_ranks(at, op);
    if (at->special_count == 0 && !a->special) {
        return size <= domain ? 0 : size / domain - 1;
    }
    const uint64_t place_a = a->special ? a->rank % domain : a->place;
    const uint64_t place_b = b->special ? b->rank % domain : b->place;
    return place_a == place_b ? cost_all_peers(at, op, a, b) : 0;
}

/* ------------------------------------------------------------------------------------ flows */

static void add_use(flow_desc *desc, uint32_t link, uint64_t weight)
{
    for (uint32_t i = 0; i < desc->use_count; ++i) {
        if (desc->use[i].link == link) {
            desc->use[i].weight += weight;
            return;
        }
    }
    desc->use[desc->use_count++] = (flow_use){.link = link, .weight = weight};
}

/* Counts or begins `desc`, of which there are `total`. */
static void emit(cost_emitter *to, flow_desc *desc, cost_resource kind, uint64_t total)
{
    cost_state *at = to->at;
    if (to->status != IST_OK || desc->bytes == 0) {
        return;
    }
    if (to->result != NULL) {
        to->result->bytes[kind] += desc->bytes * total;
        if (kind == COST_NIC_OUT && at->fabric != COST_NO_LINK) {
            to->result->bytes[COST_FABRIC] += desc->bytes * total;
        }
        for (uint32_t i = 0; i < desc->use_count; ++i) {
            at->load[desc->use[i].link] += desc->bytes * desc->use[i].weight;
        }
        return;
    }
    desc->latency_ps = to->latency_ps;
    desc->cookie = to->op_index;
    to->status = flow_begin(at->engine, desc);
    at->run[to->op_index].waiting += to->status == IST_OK;
}

static void emit_lsa(cost_emitter *to, const cost_class *a, const cost_class *b, uint64_t peers,
                     uint64_t bytes)
{
    if (peers == 0) {
        return;
    }
    flow_desc desc = {.bytes = bytes, .cap = to->lsa_cap};
    const uint64_t in = a->count * peers / b->count;
    add_use(&desc, a->link[COST_LSA_OUT], peers);
    add_use(&desc, b->link[COST_LSA_IN], in);
    add_use(&desc, a->link[COST_LOCAL], peers);
    add_use(&desc, b->link[COST_LOCAL], in);
    emit(to, &desc, COST_LSA_OUT, a->count * peers);
}

static void emit_net(cost_emitter *to, const cost_class *a, const cost_class *b, uint64_t peers,
                     uint64_t bytes)
{
    if (peers == 0) {
        return;
    }
    flow_desc desc = {.bytes = bytes, .cap = to->net_cap};
    const uint64_t in = a->count * peers / b->count;
    add_use(&desc, a->link[COST_NIC_OUT], peers * a->nic_sharers);
    add_use(&desc, b->link[COST_NIC_IN], in * b->nic_sharers);
    if (to->at->fabric != COST_NO_LINK) {
        add_use(&desc, to->at->fabric, a->count * peers);
    }
    add_use(&desc, a->link[COST_LOCAL], peers);
    add_use(&desc, b->link[COST_LOCAL], in);
    emit(to, &desc, COST_NIC_OUT, a->count * peers);
}

static uint64_t at_least_one(uint64_t value)
{
    return value > 0 ? value : 1;
}

/* Flows of one GPU that run at once; an operation that cannot fill its link shares out what it
 * can. */
static void set_caps(cost_emitter *to, const cost_phase *phase)
{
    const cost_machine *machine = to->at->machine;
    const uint64_t size = cost_group_ranks(to->at, to->op);
    const uint64_t domain = machine->domain < size ? machine->domain : size;
    const uint64_t sharers =
        machine->nics_per_node > 0 ? machine->gpus_per_node / machine->nics_per_node : 1;
    uint64_t lsa = 1;
    uint64_t net = 1;
    if (phase->pattern == COST_TO_ALL || phase->pattern == COST_TO_RAIL) {
        lsa = domain - 1;
        net = phase->pattern == COST_TO_ALL ? size - domain : size / domain - 1;
    }
    to->lsa_cap = cost_op_rate(to->op, COST_LSA_OUT);
    to->net_cap = cost_op_rate(to->op, COST_NIC_OUT);
    if (machine->mesh_links > 0) {
        to->lsa_cap = at_least_one(to->lsa_cap / machine->mesh_links);
    } else if (to->lsa_cap < cost_link_rate(to->at, COST_LSA_OUT)) {
        to->lsa_cap = at_least_one(to->lsa_cap / at_least_one(lsa));
    }
    if (to->net_cap < cost_link_rate(to->at, COST_NIC_OUT) && phase->pattern != COST_TO_PEER) {
        to->net_cap = at_least_one(to->net_cap / at_least_one(net * sharers));
    }
}

static void emit_pairs(cost_emitter *to, const cost_phase *phase)
{
    cost_state *at = to->at;
    for (uint32_t i = 0; i < at->class_count && to->status == IST_OK; ++i) {
        const cost_class *a = &at->classes[i];
        for (uint32_t j = 0; j < at->class_count; ++j) {
            const cost_class *b = &at->classes[j];
            const uint64_t lsa = cost_lsa_peers(at, to->op, a, b);
            if (phase->lsa_bytes > 0) {
                emit_lsa(to, a, b, lsa, phase->lsa_bytes);
            }
            if (phase->net_bytes > 0) {
                const uint64_t net = phase->pattern == COST_TO_RAIL
                                         ? cost_rail_peers(at, to->op, a, b)
                                         : cost_all_peers(at, to->op, a, b) - lsa;
                emit_net(to, a, b, net, phase->net_bytes);
            }
        }
    }
}

/* The rank that follows in a ring of `size`, `stride` ranks on. */
static const cost_class *next_class(const cost_state *at, const cost_class *of, uint64_t size,
                                    uint64_t stride)
{
    if (!of->special || at->regular > 0) {
        return of; /* its neighbour's links are like its own */
    }
    const uint64_t start = of->rank / size * size;
    return &at->classes[start + (of->rank - start + stride) % size];
}

static void emit_ring(cost_emitter *to, const cost_phase *phase)
{
    const cost_state *at = to->at;
    const uint64_t size = cost_group_ranks(at, to->op);
    const uint64_t domain = at->machine->domain < size ? at->machine->domain : size;
    for (uint32_t i = 0; i < at->class_count; ++i) {
        const cost_class *a = &at->classes[i];
        if (phase->lsa_bytes > 0) {
            emit_lsa(to, a, next_class(at, a, domain, 1), 1, phase->lsa_bytes);
        }
        if (phase->net_bytes > 0) {
            emit_net(to, a, next_class(at, a, size, domain), 1, phase->net_bytes);
        }
    }
}

static void emit_switch(cost_emitter *to, const cost_phase *phase)
{
    for (uint32_t i = 0; i < to->at->class_count; ++i) {
        const cost_class *a = &to->at->classes[i];
        const uint64_t cap = to->op->knobs.value[COST_lsa_bytes_per_s];
        flow_desc out = {.bytes = phase->lsa_bytes, .cap = cap};
        add_use(&out, a->link[COST_LSA_OUT], 1);
        add_use(&out, a->link[COST_LOCAL], 1);
        emit(to, &out, COST_LSA_OUT, a->count);
        flow_desc in = {.bytes = phase->net_bytes, .cap = cap};
        add_use(&in, a->link[COST_LSA_IN], 1);
        add_use(&in, a->link[COST_LOCAL], 1);
        emit(to, &in, COST_LSA_IN, a->count);
    }
}

static const cost_class *class_of_rank(const cost_state *at, uint64_t rank)
{
    for (uint32_t i = at->first_special; i < at->class_count; ++i) {
        if (at->classes[i].rank == rank) {
            return &at->classes[i];
        }
    }
    return &at->classes[0];
}

static void emit_local(cost_emitter *to, const cost_phase *phase)
{
    for (uint32_t i = 0; i < to->at->class_count; ++i) {
        const cost_class *a = &to->at->classes[i];
        flow_desc desc = {.bytes = phase->local_bytes,
                          .cap = to->op->knobs.value[COST_local_bytes_per_s]};
        add_use(&desc, a->link[COST_LOCAL], 1);
        emit(to, &desc, COST_LOCAL, a->count);
    }
}

void cost_emit_phase(cost_emitter *to, const cost_phase *phase)
{
    set_caps(to, phase);
    switch (phase->pattern) {
    case COST_TO_ALL:
    case COST_TO_RAIL: emit_pairs(to, phase); break;
    case COST_TO_NEXT: emit_ring(to, phase); break;
    case COST_TO_SWITCH: emit_switch(to, phase); break;
    case COST_TO_PEER: {
        const cost_class *a = class_of_rank(to->at, to->op->src);
        const cost_class *b = class_of_rank(to->at, to->op->dst);
        emit_lsa(to, a, b, phase->lsa_bytes > 0, phase->lsa_bytes);
        emit_net(to, a, b, phase->net_bytes > 0, phase->net_bytes);
        break;
    }
    }
    emit_local(to, phase);
}
