/* SPDX-License-Identifier: Apache-2.0 */
/* What is told about operations and links once they have run.
 */
#include "cost_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PS_PER_S UINT64_C(1000000000000)

uint64_t cost_phase_latency(const cost_op *op, const cost_phase *phase)
{
    const uint64_t *value = op->knobs.value;
    return phase->lsa_steps * value[COST_lsa_step_ps] + phase->net_steps * value[COST_net_step_ps] +
           (phase->messages + phase->peers) * value[COST_message_ps] +
           phase->rows * value[COST_row_ps];
}

static uint64_t link_ps(const cost_state *at, uint32_t link, uint64_t bytes)
{
    return (uint64_t)((cost_wide)bytes * PS_PER_S / at->rates[link]);
}

static uint64_t buffers_of(const cost_state *at, const cost_op *op)
{
    const uint64_t size = cost_group_ranks(at, op);
    switch (op->kind) {
    case COST_ALL_GATHER:
    case COST_REDUCE_SCATTER: return op->bytes + op->bytes / size;
    case COST_EP_DISPATCH:
    case COST_EP_COMBINE: return op->tokens * op->row_bytes + op->tokens * op->row_bytes * op->topk;
    case COST_SIGNAL: return 8;
    case COST_BARRIER: return 0;
    case COST_ALL_REDUCE:
    case COST_ALL_TO_ALL:
    case COST_BROADCAST:
    case COST_SEND_RECV:
    case COST_P2P:
    case COST_PUT:
    case COST_COPY:
    case COST_KIND_COUNT: break;
    }
    return 2 * op->bytes;
}

static void describe_op(cost_state *at, uint32_t index)
{
    const cost_op *op = &at->ops[index];
    cost_op_result *result = &at->result->op[index];
    memset(at->load, 0, at->link_count * sizeof *at->load);
    cost_emitter to = {.at = at, .op = op, .op_index = index, .result = result};
    result->algorithm = cost_algorithm_choose(at->machine, op);
    result->fixed_ps = op->knobs.value[COST_overhead_ps];
    for (uint32_t i = 0; i < at->run[index].phase_count; ++i) {
        cost_emit_phase(&to, &at->run[index].phases[i]);
        result->fixed_ps += cost_phase_latency(op, &at->run[index].phases[i]);
    }
    result->bottleneck = COST_RESOURCE_COUNT;
    for (uint32_t i = 0; i < at->link_count; ++i) {
        const cost_resource kind = at->links[i].resource;
        const uint64_t busy = (uint64_t)((cost_wide)link_ps(at, i, at->load[i]) *
                                         cost_link_rate(at, kind) / cost_op_rate(op, kind));
        if (busy > result->busiest_ps[kind]) {
            result->busiest_ps[kind] = busy;
        }
        if (busy > result->transfer_ps) {
            result->transfer_ps = busy;
            result->bottleneck = kind;
        }
    }
    if (result->transfer_ps < result->fixed_ps) {
        result->bottleneck = COST_RESOURCE_COUNT;
    }
    result->buffer_bytes = buffers_of(at, op);
    const bool lsa = result->bytes[COST_LSA_OUT] + result->bytes[COST_LSA_IN] > 0;
    const bool net = result->bytes[COST_NIC_OUT] > 0;
    (void)snprintf(result->path, sizeof result->path, "%s%s%s", lsa ? "load/store" : "",
                   lsa && net ? " + " : "",
                   net                     ? "network"
                   : lsa                   ? ""
                   : op->kind == COST_COPY ? "local"
                                           : "flags");
}

static void name_link(const cost_state *at, uint32_t link, char *text, size_t bytes)
{
    const cost_link *info = &at->links[link];
    const char *name = cost_resource_names[info->resource];
    if (!info->special) {
        (void)snprintf(text, bytes, "%s (%" PRIu64 " alike)", name, info->count);
    } else {
        (void)snprintf(text, bytes, "%s, node %" PRIu64 ", %s %u", name, info->node,
                       info->resource >= COST_NIC_OUT ? "nic" : "gpu", info->index);
    }
}

/* Names of links that carry nothing, as far as they fit. */
static void append_idle(cost_state *at, uint32_t link)
{
    cost_result *result = at->result;
    char name[48];
    name_link(at, link, name, sizeof name);
    const size_t used = strlen(result->idle);
    if (used + strlen(name) + 3 < sizeof result->idle) {
        (void)snprintf(result->idle + used, sizeof result->idle - used, "%s%s",
                       used > 0 ? "; " : "", name);
    } else if (used > 0 && used + 5 < sizeof result->idle && result->idle[used - 1] != '.') {
        (void)snprintf(result->idle + used, sizeof result->idle - used, "; ...");
    }
}

static void describe_links(cost_state *at)
{
    cost_result *result = at->result;
    uint64_t best = 0;
    result->bottleneck = COST_RESOURCE_COUNT;
    for (uint32_t i = 0; i < at->link_count; ++i) {
        const cost_resource kind = at->links[i].resource;
        const flow_link_usage usage = flow_usage(at->engine, i);
        result->bytes[kind] += usage.bytes * at->links[i].count;
        if (usage.bytes == 0 && !at->links[i].gone) {
            result->idle_count[kind] += at->links[i].count;
            append_idle(at, i);
        }
        const uint64_t busy = link_ps(at, i, usage.bytes);
        const uint64_t permille =
            result->total_ps > 0 ? (uint64_t)((cost_wide)busy * COST_PERMILLE / result->total_ps)
                                 : 0;
        if (permille > result->busiest_permille[kind]) {
            result->busiest_permille[kind] = permille;
        }
        if (busy > best) {
            best = busy;
            result->bottleneck = kind;
            name_link(at, i, result->busiest, sizeof result->busiest);
        }
    }
}

void cost_describe(cost_state *at)
{
    for (uint32_t i = 0; i < at->op_count; ++i) {
        describe_op(at, i);
        at->result->serial_ps += at->result->op[i].end_ps - at->result->op[i].start_ps;
        if (at->result->op[i].end_ps > at->result->op[at->result->last_op].end_ps) {
            at->result->last_op = i;
        }
    }
    describe_links(at);
}
