/* SPDX-License-Identifier: Apache-2.0 */
/* The estimate: the operations, run on the event engine, stream by stream.
 */
#include "cost_internal.h"

#include <isthmus/backend.h>
#include <string.h>

const char *const cost_resource_names[COST_RESOURCE_COUNT] = {"nvlink out", "nvlink in", "memory",
                                                              "nic out",    "nic in",    "fabric"};
const char *const cost_knob_names[COST_KNOB_COUNT] = {
#define X(field, preset, meaning) #field,
    COST_KNOBS(X)
#undef X
};
const char *const cost_knob_meanings[COST_KNOB_COUNT] = {
#define X(field, preset, meaning) meaning,
    COST_KNOBS(X)
#undef X
};

cost_knobs cost_knobs_default(void)
{
    return (cost_knobs){.value = {
#define X(field, preset, meaning) preset,
                            COST_KNOBS(X)
#undef X
                        }};
}

uint64_t cost_rank_count(const cost_machine *machine)
{
    return machine->node_count * machine->gpus_per_node;
}

/* ------------------------------------------------------------------------------------ running */

/* Stage 0 is the overhead, then the phases. */
static ist_status stage_begin(cost_state *at, uint32_t index)
{
    const cost_op *op = &at->ops[index];
    cost_emitter to = {.at = at, .op = op, .op_index = index};
    if (at->run[index].phase == 0) {
        at->result->op[index].start_ps = flow_now(at->engine);
        at->run[index].waiting = 1;
        return flow_begin(at->engine, &(flow_desc){.latency_ps = op->knobs.value[COST_overhead_ps],
                                                   .cookie = index});
    }
    const cost_phase *phase = &at->run[index].phases[at->run[index].phase - 1];
    to.latency_ps = cost_phase_latency(op, phase);
    cost_emit_phase(&to, phase);
    if (to.status == IST_OK && at->run[index].waiting == 0) {
        at->run[index].waiting = 1;
        to.status =
            flow_begin(at->engine, &(flow_desc){.latency_ps = to.latency_ps, .cookie = index});
    }
    return to.status;
}

/* The next operation of the same stream. */
static ist_status op_done(cost_state *at, uint32_t index)
{
    at->result->op[index].end_ps = flow_now(at->engine);
    for (uint32_t next = index + 1; next < at->op_count; ++next) {
        if (at->ops[next].stream == at->ops[index].stream) {
            return stage_begin(at, next);
        }
    }
    return IST_OK;
}

static ist_status run(cost_state *at)
{
    for (uint32_t i = 0; i < at->op_count; ++i) {
        bool first = true;
        for (uint32_t j = 0; j < i; ++j) {
            first = first && at->ops[j].stream != at->ops[i].stream;
        }
        const ist_status status = first ? stage_begin(at, i) : IST_OK;
        if (status != IST_OK) {
            return status;
        }
    }
    uint64_t cookie = 0;
    while (flow_pop(at->engine, &cookie)) {
        const uint32_t index = (uint32_t)cookie;
        if (--at->run[index].waiting > 0) {
            continue;
        }
        const bool more = at->run[index].phase++ < at->run[index].phase_count;
        const ist_status status = more ? stage_begin(at, index) : op_done(at, index);
        if (status != IST_OK) {
            return status;
        }
    }
    at->result->total_ps = flow_now(at->engine);
    at->result->event_count = flow_event_count(at->engine);
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ answers */

static ist_status plan_ops(cost_state *at)
{
    for (uint32_t i = 0; i < at->op_count; ++i) {
        const char *reason = "";
        at->run[i].phase_count =
            cost_op_phases(at->machine, &at->ops[i], at->run[i].phases, &reason);
        if (at->run[i].phase_count == 0) {
            ist_error details = cost_details("ops", i);
            return ist_raise(IST_ERR_UNSUPPORTED, &details, "operation %u (%s, %s): %s", i,
                             cost_kind_names[at->ops[i].kind],
                             cost_algorithm_names[at->ops[i].algorithm], reason);
        }
    }
    return IST_OK;
}

static ist_status estimate_all(cost_state *at)
{
    ist_status status = cost_classes_make(at);
    if (status == IST_OK) {
        status = plan_ops(at);
    }
    if (status == IST_OK) {
        status = run(at);
    }
    if (status != IST_OK) {
        return status;
    }
    cost_describe(at);
    return IST_OK;
}

ist_status cost_estimate(const cost_machine *machine, const cost_edit *edits, uint32_t edit_count,
                         const cost_op *ops, uint32_t op_count, bool expand, cost_result *result)
{
    cost_state *at = ist_alloc(1, sizeof *at);
    if (at == NULL) {
        return cost_refuse_memory(1);
    }
    memset(result, 0, offsetof(cost_result, op) + op_count * sizeof result->op[0]);
    result->op_count = op_count;
    at->machine = machine;
    at->edits = edits;
    at->edit_count = edit_count;
    at->ops = ops;
    at->op_count = op_count;
    at->result = result;
    at->expand = expand;
    at->ranks = cost_rank_count(machine);
    at->block = machine->domain > machine->gpus_per_node ? machine->domain : machine->gpus_per_node;
    at->run = ist_alloc(op_count + 1u, sizeof *at->run);
    const ist_status status = at->run == NULL ? cost_refuse_memory(op_count) : estimate_all(at);
    flow_close(at->engine);
    ist_free(at->classes);
    ist_free(at->links);
    ist_free(at->rates);
    ist_free(at->load);
    ist_free(at->run);
    ist_free(at);
    return status;
}
