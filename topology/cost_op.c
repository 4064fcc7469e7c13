/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as phases: who sends how much to whom, over how many dependent steps.
 *
 * Notation: n ranks of a group, P of them in a domain (an island), N = n / P islands. A ring runs
 * in P channels that leave each island by another rank, so all NICs work: of what a rank passes
 * on, (P - 1) / P stays in the island. Steps inside and between islands add up along the ring.
 */
#include "cost_internal.h"

#define MILLION UINT64_C(1000000)
#define PS_PER_S UINT64_C(1000000000000)

const char *const cost_kind_names[COST_KIND_COUNT] = {
#define X(name, value, text) [name] = text,
    COST_KINDS(X)
#undef X
};
const char *const cost_algorithm_names[COST_ALGORITHM_COUNT] = {
#define X(name, value, text) [name] = text,
    COST_ALGORITHMS(X)
#undef X
};

typedef struct shape {
    uint64_t n, p, islands;
} shape;

static shape shape_of(const cost_machine *machine, const cost_op *op)
{
    shape at = {.n = op->group_size > 0 ? op->group_size : cost_rank_count(machine)};
    at.p = machine->domain < at.n ? machine->domain : at.n;
    at.islands = at.n / at.p;
    return at;
}

static uint64_t scale(uint64_t value, uint64_t num, uint64_t den)
{
    __extension__ const unsigned __int128 product = (unsigned __int128)value * num;
    return (uint64_t)((product + den - 1) / den);
}

static uint64_t log2_ceil(uint64_t value)
{
    uint64_t steps = 0;
    while (steps < 63 && (UINT64_C(1) << steps) < value) {
        ++steps;
    }
    return steps;
}

uint64_t cost_reach_millionths(uint64_t groups, uint64_t experts, uint64_t topk)
{
    uint64_t missed = MILLION * 1000; /* chance that none of the K is in one group */
    for (uint64_t i = 0; i < topk && i < experts; ++i) {
        const uint64_t all = groups * (experts - i);
        const uint64_t others =
            experts * (groups - 1) > i * groups ? experts * (groups - 1) - i * groups : 0;
        missed = scale(missed, others, all);
    }
    return groups * (MILLION * 1000 - missed) / 1000;
}

/* Of what a rank passes on, what stays in its island: all when there is no other. */
static uint64_t inner_bytes(const shape *at, uint64_t edge_bytes)
{
    return at->islands == 1 ? edge_bytes : scale(edge_bytes, at->p - 1, at->p);
}

/* `rounds` times around: all-reduce 2, the others 1. `edge_bytes`: over each edge of the ring. */
static cost_phase ring(const shape *at, uint64_t edge_bytes, uint64_t rounds)
{
    return (cost_phase){.name = "ring",
                        .pattern = COST_TO_NEXT,
                        .lsa_bytes = inner_bytes(at, edge_bytes),
                        .net_bytes = at->islands > 1 ? scale(edge_bytes, 1, at->p) : 0,
                        .lsa_steps = rounds * (at->n - at->islands),
                        .net_steps = rounds * (at->islands - 1)};
}

static cost_phase to_all(const char *name, const shape *at, uint64_t bytes)
{
    return (cost_phase){.name = name,
                        .pattern = COST_TO_ALL,
                        .lsa_bytes = at->p > 1 ? bytes : 0,
                        .net_bytes = at->islands > 1 ? bytes : 0,
                        .lsa_steps = 1,
                        .net_steps = at->islands > 1,
                        .messages = at->islands > 1 ? at->n - at->p : 0,
                        .peers = at->p - 1};
}

static uint32_t all_reduce(const shape *at, cost_algorithm algorithm, uint64_t bytes,
                           cost_phase *phases, const char **reason)
{
    const uint64_t share = scale(bytes, 1, at->n);
    switch (algorithm) {
    case COST_RING: phases[0] = ring(at, scale(bytes, 2 * (at->n - 1), at->n), 2); return 1;
    case COST_TREE:
        phases[0] = (cost_phase){
            .name = "tree",
            .pattern = COST_TO_NEXT,
            .lsa_bytes = inner_bytes(at, 2 * bytes),
            .net_bytes = scale(scale(bytes, 2 * (at->islands - 1), at->islands), 1, at->p),
            .lsa_steps = 2 * (at->p - 1),
            .net_steps = 2 * log2_ceil(at->islands)};
        return 1;
    case COST_ONE_SHOT: phases[0] = to_all("one shot", at, bytes); return 1;
    case COST_TWO_SHOT:
        phases[0] = to_all("reduce", at, share);
        phases[1] = to_all("gather", at, share);
        return 2;
    case COST_MULTICAST:
        /* The switch reads all copies and writes all copies: each GPU gives its buffer and gets
         * it. */
        phases[0] = (cost_phase){.name = "multicast",
                                 .pattern = COST_TO_SWITCH,
                                 .lsa_bytes = bytes + scale(bytes, 1, at->p),
                                 .net_bytes = bytes + scale(bytes, 1, at->p),
                                 .lsa_steps = 2};
        if (at->islands == 1) {
            return 1;
        }
        phases[1] = (cost_phase){
            .name = "rail ring",
            .pattern = COST_TO_NEXT,
            .net_bytes = scale(scale(bytes, 1, at->p), 2 * (at->islands - 1), at->islands),
            .net_steps = 2 * (at->islands - 1)};
        return 2;
    case COST_AUTO:
    case COST_DIRECT:
    case COST_LL:
    case COST_HT:
    case COST_ALGORITHM_COUNT: break;
    }
    *reason = "all-reduce has ring, tree, oneshot, twoshot and multicast";
    return 0;
}

/* All-gather and reduce-scatter move the same bytes, in opposite directions. */
static uint32_t gather(const shape *at, cost_algorithm algorithm, uint64_t bytes,
                       cost_phase *phases, const char **reason)
{
    const uint64_t share = scale(bytes, 1, at->n);
    switch (algorithm) {
    case COST_RING: phases[0] = ring(at, scale(bytes, at->n - 1, at->n), 1); return 1;
    case COST_DIRECT: phases[0] = to_all("direct", at, share); return 1;
    case COST_TREE: /* doubling: as many bytes as the ring, few steps */
        phases[0] = ring(at, scale(bytes, at->n - 1, at->n), 1);
        phases[0].name = "doubling";
        phases[0].lsa_steps = log2_ceil(at->p);
        phases[0].net_steps = log2_ceil(at->islands);
        return 1;
    case COST_MULTICAST:
        if (at->islands == 1) {
            phases[0] = (cost_phase){.name = "multicast",
                                     .pattern = COST_TO_SWITCH,
                                     .lsa_bytes = share,
                                     .net_bytes = bytes - share,
                                     .lsa_steps = 1};
            return 1;
        }
        *reason = "multicast ends at the NVLink domain";
        return 0;
    case COST_AUTO:
    case COST_ONE_SHOT:
    case COST_TWO_SHOT:
    case COST_LL:
    case COST_HT:
    case COST_ALGORITHM_COUNT: break;
    }
    *reason = "all-gather and reduce-scatter have ring, tree, direct and multicast";
    return 0;
}

static uint64_t rows_reached(const cost_op *op, uint64_t groups)
{
    switch (op->routing) {
    case COST_ROUTING_SPREAD: return (op->topk < groups ? op->topk : groups) * MILLION;
    case COST_ROUTING_EVERY: return op->topk * MILLION;
    case COST_ROUTING_RANDOM: break;
    }
    return cost_reach_millionths(groups, op->experts, op->topk);
}

/* Groups among which a token's experts are drawn, when it is limited to some islands. */
static uint64_t limited(const shape *at, const cost_op *op, uint64_t groups)
{
    const bool all = op->node_limit == 0 || op->node_limit >= at->islands;
    return all ? groups : groups * op->node_limit / at->islands;
}

/* Each row straight to each rank that needs it; a message a row. */
static uint32_t ep_low_latency(const shape *at, const cost_op *op, cost_phase *phases)
{
    const uint64_t rows = scale(rows_reached(op, limited(at, op, at->n)), op->tokens, MILLION);
    const uint64_t sent = scale(rows, at->n - at->p, at->n);
    phases[0] = to_all("direct", at, scale(rows * op->row_bytes, 1, at->n));
    phases[0].messages = at->islands > 1 ? sent : 0;
    phases[0].local_bytes = 2 * rows * op->row_bytes;
    phases[0].rows = rows;
    return 1;
}

/* Once to each island through the rail, from there to the ranks: both run at the same time. */
static uint32_t ep_high_throughput(const shape *at, const cost_op *op, cost_phase *phases)
{
    const uint64_t near = limited(at, op, at->islands);
    const uint64_t reached = op->routing == COST_ROUTING_EVERY
                                 ? cost_reach_millionths(near, op->experts, op->topk)
                                 : rows_reached(op, near);
    const uint64_t islands = scale(op->tokens * op->row_bytes, reached, MILLION);
    const uint64_t count = scale(op->tokens, rows_reached(op, limited(at, op, at->n)), MILLION);
    const uint64_t rows = count * op->row_bytes;
    phases[0] = (cost_phase){.name = "rail and domain",
                             .pattern = COST_TO_RAIL,
                             .lsa_bytes = at->p > 1 ? scale(rows, 1, at->p) : 0,
                             .net_bytes = at->islands > 1 ? scale(islands, 1, at->islands) : 0,
                             .local_bytes = 2 * rows,
                             .rows = count,
                             .lsa_steps = at->islands > 1 ? 2 : 1,
                             .net_steps = at->islands > 1,
                             .messages = at->islands > 1 ? at->islands - 1 : 0,
                             .peers = at->p - 1};
    return 1;
}

static uint32_t to_peer(const cost_machine *machine, const cost_op *op, uint64_t bytes,
                        cost_phase *phases)
{
    const bool lsa = op->src / machine->domain == op->dst / machine->domain;
    phases[0] = (cost_phase){.name = "direct",
                             .pattern = COST_TO_PEER,
                             .lsa_bytes = lsa ? bytes : 0,
                             .net_bytes = lsa ? 0 : bytes,
                             .lsa_steps = lsa,
                             .net_steps = !lsa,
                             .messages = !lsa};
    return 1;
}

static uint32_t phases_of(const cost_machine *machine, const cost_op *op, const shape *at,
                          cost_phase *phases, const char **reason)
{
    const cost_algorithm algorithm = cost_algorithm_choose(machine, op);
    switch (op->kind) {
    case COST_ALL_REDUCE: return all_reduce(at, algorithm, op->bytes, phases, reason);
    case COST_ALL_GATHER:
    case COST_REDUCE_SCATTER: return gather(at, algorithm, op->bytes, phases, reason);
    case COST_ALL_TO_ALL: phases[0] = to_all("direct", at, scale(op->bytes, 1, at->n)); return 1;
    case COST_BROADCAST: phases[0] = ring(at, op->bytes, 1); return 1;
    case COST_SEND_RECV:
        phases[0] = (cost_phase){.name = "shift",
                                 .pattern = COST_TO_NEXT,
                                 .lsa_bytes = at->p > 1 ? op->bytes : 0,
                                 .net_bytes = at->islands > 1 ? op->bytes : 0,
                                 .lsa_steps = at->islands == 1,
                                 .net_steps = at->islands > 1};
        return 1;
    case COST_P2P:
    case COST_PUT: return to_peer(machine, op, op->bytes, phases);
    case COST_SIGNAL: return to_peer(machine, op, 8, phases);
    case COST_BARRIER:
        phases[0] = (cost_phase){.name = "flags",
                                 .pattern = COST_TO_ALL,
                                 .lsa_steps = at->p > 1,
                                 .net_steps = at->islands > 1,
                                 .messages = at->islands - 1,
                                 .peers = at->p - 1};
        return 1;
    case COST_EP_DISPATCH:
    case COST_EP_COMBINE:
        if (algorithm == COST_LL) {
            return ep_low_latency(at, op, phases);
        }
        if (algorithm == COST_HT) {
            return ep_high_throughput(at, op, phases);
        }
        *reason = "expert parallelism has ll and ht";
        return 0;
    case COST_COPY:
        phases[0] = (cost_phase){.name = "copy", .local_bytes = 2 * op->bytes};
        return 1;
    case COST_KIND_COUNT: break;
    }
    *reason = "there is no such operation";
    return 0;
}

/* ------------------------------------------------------------------------------------ choosing */

static uint64_t time_of(uint64_t bytes, uint64_t rate)
{
    return scale(bytes, PS_PER_S, rate > 0 ? rate : 1);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of the busiest link of a rank, when every rank does alike. */
static uint64_t transfer_ps(const cost_machine *machine, const shape *at, const uint64_t *knob,
                            const cost_phase *phase)
{
    const bool all = phase->pattern == COST_TO_ALL;
    const uint64_t near = phase->lsa_bytes * (all ? at->p - 1 : 1);
    const uint64_t far = phase->net_bytes * (all ? at->n - at->p : 1);
    const uint64_t mesh = machine->mesh_links > 0 ? phase->lsa_bytes * machine->mesh_links : 0;
    const uint64_t sharers =
        machine->nics_per_node > 0 ? machine->gpus_per_node / machine->nics_per_node : 1;
    const uint64_t permille = machine->fabric_permille > 0 ? machine->fabric_permille : 1;
    const uint64_t nic =
        scale(far * sharers, COST_PERMILLE, permille < COST_PERMILLE ? permille : COST_PERMILLE);
    const uint64_t links = larger(time_of(larger(near, mesh), knob[COST_lsa_bytes_per_s]),
                                  time_of(nic, knob[COST_net_bytes_per_s]));
    const uint64_t memory = 2 * (near + far) + phase->local_bytes;
    return larger(links, time_of(memory, knob[COST_local_bytes_per_s]));
}

uint64_t cost_alone_ps(const cost_machine *machine, const cost_op *op, cost_algorithm algorithm)
{
    cost_phase phases[COST_PHASES_MAX];
    const char *reason = NULL;
    const uint64_t *knob = op->knobs.value;
    const shape at = shape_of(machine, op);
    const uint32_t count = all_reduce(&at, algorithm, op->bytes, phases, &reason);
    uint64_t sum = count > 0 ? knob[COST_overhead_ps] : UINT64_MAX;
    for (uint32_t i = 0; i < count; ++i) {
        sum += cost_phase_latency(op, &phases[i]) + transfer_ps(machine, &at, knob, &phases[i]);
    }
    return sum;
}

uint32_t cost_candidates(const cost_machine *machine, const cost_op *op,
                         cost_algorithm algorithms[COST_CANDIDATES_MAX])
{
    if (op->kind != COST_ALL_REDUCE || op->algorithm != COST_AUTO) {
        algorithms[0] = cost_algorithm_choose(machine, op);
        return 1;
    }
    const shape at = shape_of(machine, op);
    algorithms[0] = at.islands == 1 ? COST_ONE_SHOT : COST_TREE;
    algorithms[1] = at.islands == 1 ? COST_TWO_SHOT : COST_RING;
    return 2;
}

/* The fastest by the constants at hand, so that no size or world is slower for a rule of thumb. */
static cost_algorithm fastest(const cost_machine *machine, const cost_op *op)
{
    cost_algorithm all[COST_CANDIDATES_MAX];
    const uint32_t count = cost_candidates(machine, op, all);
    cost_algorithm best = all[0];
    for (uint32_t i = 1; i < count; ++i) {
        const bool faster = cost_alone_ps(machine, op, all[i]) < cost_alone_ps(machine, op, best);
        best = faster ? all[i] : best;
    }
    return best;
}

cost_algorithm cost_algorithm_choose(const cost_machine *machine, const cost_op *op)
{
    if (op->algorithm != COST_AUTO) {
        return op->algorithm;
    }
    const shape at = shape_of(machine, op);
    switch (op->kind) {
    case COST_ALL_REDUCE: return fastest(machine, op);
    case COST_ALL_GATHER:
    case COST_REDUCE_SCATTER: return at.islands == 1 ? COST_DIRECT : COST_RING;
    case COST_BROADCAST: return COST_RING;
    case COST_EP_DISPATCH:
    case COST_EP_COMBINE: return op->tokens <= 512 ? COST_LL : COST_HT;
    case COST_ALL_TO_ALL:
    case COST_SEND_RECV:
    case COST_P2P:
    case COST_PUT:
    case COST_SIGNAL:
    case COST_BARRIER:
    case COST_COPY:
    case COST_KIND_COUNT: break;
    }
    return COST_DIRECT;
}

uint32_t cost_op_phases(const cost_machine *machine, const cost_op *op,
                        cost_phase phases[COST_PHASES_MAX], const char **reason)
{
    const shape at = shape_of(machine, op);
    if (at.islands > 1 && machine->nics_per_node == 0 && op->kind != COST_COPY) {
        *reason = "its ranks are in several NVLink domains and the machine has no NICs";
        return 0;
    }
    return phases_of(machine, op, &at, phases, reason);
}
