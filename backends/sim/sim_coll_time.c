/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of native collectives: the phases that the cost model gives the operation on a machine of the
 * communicator's shape. Each phase's bytes travel over the world's links, where they share and where
 * faults strike; its dependent steps come on top.
 */
#include "sim_coll.h"

#include "cost_graph.h"

#include <stdio.h>

ist_status sim_coll_machine(sim_coll *coll)
{
    const sim_comm *comm = coll->comm;
    const ist_cluster *cluster = &comm->world->cluster;
    coll->links = ist_alloc(1, sizeof(*coll->links));
    if (coll->links == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the cost model of a communicator");
    }
    cost_of_cluster(cluster, &coll->machine, coll->links);
    coll->machine.node_count = comm->rank_count / comm->lsa_size;
    coll->machine.gpus_per_node = comm->lsa_size;
    coll->machine.domain = comm->lsa_size;
    coll->machine.nics_per_node = cluster->nics_per_node > 0 ? comm->lsa_size : 0;
    coll->machine.mesh_links = 0;
    return IST_OK;
}

/* ---- flows ----------------------------------------------------------------------------------- */

static void add_flow(sim_coll_run *run, uint32_t from, uint32_t to, sim_route_kind kind,
                     uint64_t bytes)
{
    const sim_comm *comm = run->coll->comm;
    sim_flow *flow = &run->flows[run->pending];
    const uint32_t src = comm->members[from].rank->index;
    const uint32_t dst = comm->members[to].rank->index;
    if (bytes == 0 || run->cut) {
        return;
    }
    if (sim_flow_route(comm->world, flow, src, dst, kind, bytes) != IST_OK) {
        run->cut = true;
        run->cut_link[0] = from;
        run->cut_link[1] = to;
        return;
    }
    flow->type = SIM_EV_COLL;
    flow->object = run;
    flow->token = 0;
    flow->latency_ps = 0; /* the phase's steps have it */
    ++run->pending;
}

static void add_next(sim_coll_run *run, const cost_phase *phase)
{
    const uint32_t n = run->coll->comm->rank_count;
    const uint32_t p = run->coll->comm->lsa_size;
    for (uint32_t r = 0; r < n; ++r) {
        if (p > 1) {
            add_flow(run, r, r - r % p + (r + 1u) % p, SIM_ROUTE_LSA, phase->lsa_bytes);
        }
        if (n > p) {
            add_flow(run, r, (r + p) % n, SIM_ROUTE_GIN, phase->net_bytes);
        }
    }
}

/* Round by round, so that links that serve in order have no two senders for one receiver. */
static void add_all(sim_coll_run *run, const cost_phase *phase)
{
    const uint32_t n = run->coll->comm->rank_count;
    const uint32_t p = run->coll->comm->lsa_size;
    for (uint32_t round = 1; round < n; ++round) {
        for (uint32_t r = 0; r < n; ++r) {
            const uint32_t to = (r + round) % n;
            const bool near = to / p == r / p;
            add_flow(run, r, to, near ? SIM_ROUTE_LSA : SIM_ROUTE_GIN,
                     near ? phase->lsa_bytes : phase->net_bytes);
        }
    }
}

static void add_pair(sim_coll_run *run, const cost_phase *phase)
{
    const uint32_t from = run->calls[0]->batch->member->member->index;
    const uint32_t to = run->calls[1]->batch->member->member->index;
    const bool near = phase->net_bytes == 0;
    add_flow(run, from, to, near ? SIM_ROUTE_LSA : SIM_ROUTE_GIN,
             near ? phase->lsa_bytes : phase->net_bytes);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static cost_kind kind_of(ist_coll_kind kind)
{
    switch (kind) {
    case IST_COLL_ALL_REDUCE: return COST_ALL_REDUCE;
    case IST_COLL_ALL_GATHER: return COST_ALL_GATHER;
    case IST_COLL_REDUCE_SCATTER: return COST_REDUCE_SCATTER;
    case IST_COLL_ALL_TO_ALL: return COST_ALL_TO_ALL;
    case IST_COLL_BROADCAST:
    case IST_COLL_REDUCE: break; /* the same way back */
    case IST_COLL_SEND:
    case IST_COLL_RECV: return COST_P2P;
    }
    return COST_BROADCAST;
}

static uint64_t slowest(const sim_coll_run *run)
{
    uint64_t slow = 1;
    for (uint32_t i = 0; i < run->room; ++i) {
        const uint64_t own = run->calls[i]->batch->member->member->rank->slow;
        slow = own > slow ? own : slow;
    }
    return slow;
}

static cost_op op_of(const sim_coll *coll, const ist_backend_coll *call)
{
    const uint64_t share = call->count * ist_dtype_bytes(call->dtype);
    const bool all = call->kind == IST_COLL_ALL_GATHER || call->kind == IST_COLL_REDUCE_SCATTER ||
                     call->kind == IST_COLL_ALL_TO_ALL;
    return (cost_op){.kind = kind_of(call->kind),
                     .bytes = all ? share * coll->comm->rank_count : share};
}

ist_status sim_coll_estimate(const sim_coll *coll, const ist_backend_coll *call, uint64_t *time_ps)
{
    cost_op op = op_of(coll, call);
    cost_result *result = ist_alloc(1, sizeof(*result));
    if (result == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for an estimate");
    }
    (void)cost_profile_apply(NULL, coll->links, &coll->machine, &op);
    ist_status status = cost_estimate(&coll->machine, NULL, 0, &op, 1, false, result);
    if (status == IST_OK) {
        *time_ps = result->total_ps;
    }
    ist_free(result);
    return status;
}

static cost_op describe(const sim_coll_run *run)
{
    cost_op op = op_of(run->coll, &run->shape);
    if (run->number == UINT64_MAX) {
        op.src = run->calls[0]->batch->member->member->index;
        op.dst = run->calls[1]->batch->member->member->index;
    }
    (void)cost_profile_apply(NULL, run->coll->links, &run->coll->machine, &op);
    return op;
}

static void after(sim_coll_run *run, uint64_t ps)
{
    sim_world *world = run->coll->comm->world;
    run->pending = 1;
    if (sim_heap_push(world, sim_add_sat(world->now_ps, ps), SIM_EV_COLL, run, 0) != IST_OK) {
        run->pending = 0;
        sim_coll_fail_run(run, IST_ERR_MEMORY, "no memory for an event of a collective");
    }
}

void sim_coll_begin(sim_coll_run *run)
{
    const char *reason = "";
    const cost_op op = describe(run);
    const uint64_t *knob = op.knobs.value;
    const uint64_t slow = slowest(run);
    run->phase_count = run->coll->comm->rank_count > 1
                           ? cost_op_phases(&run->coll->machine, &op, run->phases, &reason)
                           : 0;
    if (run->phase_count == 0 && reason[0] != '\0') {
        sim_coll_fail_run(run, IST_ERR_UNSUPPORTED, reason);
        return;
    }
    for (uint32_t i = 0; i < run->phase_count; ++i) {
        const cost_phase *phase = &run->phases[i];
        run->latency_ps[i] = slow * (phase->lsa_steps * knob[COST_lsa_step_ps] +
                                     phase->net_steps * knob[COST_net_step_ps] +
                                     (phase->messages + phase->peers) * knob[COST_message_ps]);
    }
    const uint64_t n = run->coll->comm->rank_count;
    run->flows = ist_alloc(run->room == n ? n * (n + 1u) : 2u, sizeof(*run->flows));
    if (run->flows == NULL) {
        sim_coll_fail_run(run, IST_ERR_MEMORY, "no memory for the transfers of a collective");
        return;
    }
    after(run, slow * knob[COST_overhead_ps]);
}

static void begin_phase(sim_coll_run *run)
{
    const cost_phase *phase = &run->phases[run->phase];
    run->moving = true;
    run->pending = 0;
    if (run->number == UINT64_MAX) {
        add_pair(run, phase);
    } else if (phase->pattern == COST_TO_NEXT) {
        add_next(run, phase);
    } else {
        add_all(run, phase);
    }
    if (run->cut) {
        char sentence[120];
        run->moving = false;
        run->pending = 0;
        (void)snprintf(sentence, sizeof(sentence),
                       "%s: no link leads from rank %u to rank %u in this cluster",
                       sim_coll_text(run->shape.kind), run->cut_link[0], run->cut_link[1]);
        sim_coll_fail_run(run, IST_ERR_UNSUPPORTED, sentence);
        return;
    }
    const uint32_t count = run->pending;
    for (uint32_t i = 0; i < count; ++i) {
        sim_flow_begin_event(run->coll->comm->world, &run->flows[i]);
    }
    if (count == 0) {
        run->moving = false;
        after(run, run->latency_ps[run->phase++]);
    }
}

void sim_coll_step(sim_coll_run *run)
{
    if (--run->pending > 0 || sim_coll_broken(run)) {
        return;
    }
    if (run->moving) {
        run->moving = false;
        after(run, run->latency_ps[run->phase++]);
    } else if (run->phase < run->phase_count) {
        begin_phase(run);
    } else {
        sim_coll_finish(run);
    }
}
