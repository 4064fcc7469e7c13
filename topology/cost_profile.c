/* SPDX-License-Identifier: Apache-2.0 */
/* Which constants an operation gets, and how much they may be believed.
 */
#include "cost_profile.h"

#include <isthmus/backend.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

const char *const cost_confidence_names[3] = {"calibrated", "extrapolated", "default"};

void cost_profile_free(cost_profile *profile)
{
    ist_free(profile->op);
    profile->op = NULL;
    profile->op_count = 0;
}

uint64_t cost_op_size(const cost_op *op)
{
    const bool expert = op->kind == COST_EP_DISPATCH || op->kind == COST_EP_COMBINE;
    return expert ? op->tokens * op->row_bytes : op->bytes;
}

/* 16 * log2, by the four highest bits behind the first one. */
static uint64_t log2_sixteenths(uint64_t value)
{
    uint64_t bit = 0;
    while (value >> bit > 1) {
        ++bit;
    }
    const uint64_t rest = value - (UINT64_C(1) << bit);
    return 16 * bit + (bit >= 4 ? rest >> (bit - 4) : rest << (4 - bit));
}

static uint64_t curve_permille(const cost_profile_op *op, uint64_t bytes)
{
    if (op->curve_count == 0) {
        return COST_PERMILLE;
    }
    uint32_t high = 0;
    while (high < op->curve_count && op->curve[high].bytes < bytes) {
        ++high;
    }
    if (high == 0 || high == op->curve_count) {
        return op->curve[high == 0 ? 0 : high - 1].permille;
    }
    const cost_curve_point *a = &op->curve[high - 1];
    const cost_curve_point *b = &op->curve[high];
    const uint64_t from = log2_sixteenths(a->bytes);
    const uint64_t span = log2_sixteenths(b->bytes) - from;
    const uint64_t at = log2_sixteenths(bytes) - from;
    return span == 0 ? b->permille : (a->permille * (span - at) + b->permille * at) / span;
}

/* Every part of the time grows alike, so the whole does. */
static void stretch(cost_knobs *knobs, uint64_t permille)
{
    for (uint32_t i = 0; i < COST_KNOB_COUNT; ++i) {
        const bool rate =
            i == COST_lsa_bytes_per_s || i == COST_net_bytes_per_s || i == COST_local_bytes_per_s;
        const wide value = knobs->value[i];
        const wide scaled =
            rate ? value * COST_PERMILLE / permille : value * permille / COST_PERMILLE;
        knobs->value[i] = scaled == 0 && rate ? 1 : (uint64_t)scaled;
    }
}

/* What the library's own kernels do one after the other, however little they carry: their counts
 * times the steps of the machine are the fixed costs of an operation, in an estimate as in a
 * simulated world, which runs the kernels. Read off simulated worlds by making one step slower at
 * a time (tests/cost/cost_simulated.c holds the two against each other). */
typedef struct step_counts {
    uint64_t sync, atomic, load, hop; /* hop: one way to an NVLink peer */
} step_counts;

typedef struct kernel_steps {
    step_counts once;
    step_counts near; /* added for a dependent step inside a domain, besides its one hop */
    step_counts far;  /* and for one through the network, besides far_hops */
    uint64_t far_hops;
} kernel_steps;

static const kernel_steps barrier_steps = {
    .once = {.sync = 8, .atomic = 1, .load = 6}, .far = {.sync = 12}, .far_hops = 1};
static const kernel_steps put_steps = {
    .near = {.sync = 4}, .far = {.sync = 4, .load = 4}, .far_hops = 1};
static const kernel_steps dispatch_steps = {
    .once = {.sync = 14, .atomic = 2, .load = 10, .hop = 3}, .far = {.sync = 55}, .far_hops = 2};
static const kernel_steps combine_steps = {
    .once = {.sync = 11, .atomic = 2, .load = 8, .hop = 3}, .far = {.sync = 48}, .far_hops = 2};

static uint64_t time_of(const cost_profile *links, const step_counts *steps)
{
    return steps->sync * links->sync_ps + steps->atomic * links->atomic_ps +
           steps->load * links->load_ps + steps->hop * links->nvlink_latency_ps;
}

static const kernel_steps *steps_of(const cost_op *op)
{
    switch (op->kind) {
    case COST_BARRIER: return &barrier_steps;
    case COST_PUT:
    case COST_SIGNAL: return &put_steps;
    case COST_EP_DISPATCH: return &dispatch_steps;
    case COST_EP_COMBINE: return &combine_steps;
    case COST_ALL_REDUCE:
    case COST_ALL_GATHER:
    case COST_REDUCE_SCATTER:
    case COST_ALL_TO_ALL:
    case COST_BROADCAST:
    case COST_SEND_RECV:
    case COST_P2P:
    case COST_COPY:
    case COST_KIND_COUNT: break;
    }
    return NULL;
}

/* Collectives of a vendor's library: an entry and an exit barrier, and half a microsecond; a copy inside
 * a GPU has nobody to wait for. */
static void set_native(const cost_profile *links, const cost_op *op, cost_knobs *knobs)
{
    const uint64_t barriers = op->kind == COST_COPY ? 0 : 2 * links->nvlink_latency_ps + 500000;
    knobs->value[COST_overhead_ps] = links->launch_ps + barriers;
    knobs->value[COST_lsa_step_ps] = links->nvlink_latency_ps + 370000;
    knobs->value[COST_net_step_ps] = links->nic_latency_ps + 1000000;
}

static void set_kernel(const cost_profile *links, const cost_machine *machine,
                       const kernel_steps *steps, const cost_op *op, cost_knobs *knobs)
{
    const bool runs = op->kind == COST_PUT || op->kind == COST_SIGNAL; /* inside another kernel */
    const uint64_t blocks = op->blocks > 0 ? op->blocks : links->sm_count > 0 ? links->sm_count : 1;
    step_counts once = steps->once;
    /* Hops to near peers: all that follow each other, one beside those of the network, none. */
    const uint64_t ranks = op->group_size > 0 ? op->group_size : cost_rank_count(machine);
    once.hop = ranks <= machine->domain ? once.hop : machine->domain > 1 && once.hop > 0;
    knobs->value[COST_overhead_ps] = (runs ? 0 : links->launch_ps) + time_of(links, &once);
    knobs->value[COST_lsa_step_ps] = links->nvlink_latency_ps + time_of(links, &steps->near);
    knobs->value[COST_net_step_ps] =
        steps->far_hops * links->nic_latency_ps + time_of(links, &steps->far);
    knobs->value[COST_message_ps] = links->load_ps;
    knobs->value[COST_row_ps] = links->load_ps / blocks;
}

/* Expected largest of 2^i normal deviates, in permille (order statistics; David and Nagaraja, 2003). */
static const uint32_t largest_of[] = {0,    564,  1029, 1424, 1766, 2070, 2343, 2594, 2825, 3040,
                                      3241, 3432, 3612, 3784, 3948, 4105, 4256, 4402, 4542, 4678};

static uint64_t root_of(uint64_t value)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit >>= 1) {
        root |= (root | bit) * (root | bit) <= value ? bit : 0;
    }
    return root;
}

/* Routing that is drawn gives the busiest rank more rows than the mean: by how much, in permille of
 * the mean, for a number of rows that is distributed as a sum of many draws. */
static uint64_t skew_permille(const cost_machine *machine, const cost_op *op)
{
    const uint64_t ranks = op->group_size > 0 ? op->group_size : cost_rank_count(machine);
    const uint64_t most = sizeof largest_of / sizeof *largest_of - 1;
    const uint64_t place = log2_sixteenths(ranks) / 16;
    const uint64_t reached = op->routing == COST_ROUTING_RANDOM
                                 ? cost_reach_millionths(ranks, op->experts, op->topk)
                                 : UINT64_C(1000000) * op->topk;
    const uint64_t rows = op->tokens * reached / 1000000;
    const uint64_t once = op->routing == COST_ROUTING_EVERY ? 1000000 : reached;
    const uint64_t missed = ranks * 1000000 > once ? ranks * 1000000 - once : 0;
    /* 1000 / sqrt(rows), less what a rank cannot get twice. */
    const uint64_t spread = root_of(missed / ranks / (rows > 0 ? rows : 1));
    return largest_of[place < most ? place : most] * spread / 1000;
}

static uint64_t slower(uint64_t rate, uint64_t skew)
{
    const wide scaled = (wide)rate * COST_PERMILLE / (COST_PERMILLE + skew);
    return scaled > 0 ? (uint64_t)scaled : 1;
}

static cost_knobs from_links(const cost_profile *links, const cost_machine *machine,
                             const cost_op *op)
{
    cost_knobs knobs = cost_knobs_default();
    const kernel_steps *steps = steps_of(op);
    uint64_t skew = 0;
    if (steps != NULL) {
        set_kernel(links, machine, steps, op, &knobs);
    } else {
        set_native(links, op, &knobs);
    }
    if (op->kind == COST_EP_DISPATCH || op->kind == COST_EP_COMBINE) {
        skew = skew_permille(machine, op);
    }
    knobs.value[COST_lsa_bytes_per_s] = slower(links->nvlink_bytes_per_s, skew);
    knobs.value[COST_net_bytes_per_s] = slower(links->nic_bytes_per_s, skew);
    knobs.value[COST_local_bytes_per_s] = links->hbm_bytes_per_s;
    return knobs;
}

/* Blocks share a link evenly until it is full. */
static uint64_t rate_of_blocks(const cost_profile *profile, uint64_t blocks, uint64_t rate)
{
    if (profile == NULL || profile->geometry_count == 0 || blocks == 0) {
        return rate;
    }
    const cost_geometry *at = profile->geometry;
    if (blocks <= at[0].blocks) {
        return at[0].bytes_per_s * blocks / at[0].blocks;
    }
    for (uint32_t i = 1; i < profile->geometry_count; ++i) {
        if (blocks <= at[i].blocks) {
            const uint64_t span = at[i].blocks - at[i - 1].blocks;
            const uint64_t into = blocks - at[i - 1].blocks;
            return (at[i - 1].bytes_per_s * (span - into) + at[i].bytes_per_s * into) / span;
        }
    }
    return at[profile->geometry_count - 1].bytes_per_s;
}

static bool closer(const cost_profile_op *a, const cost_profile_op *b, uint64_t blocks)
{
    if (blocks == 0) {
        return a->blocks > b->blocks;
    }
    const uint64_t off_a = a->blocks > blocks ? a->blocks - blocks : blocks - a->blocks;
    const uint64_t off_b = b->blocks > blocks ? b->blocks - blocks : blocks - b->blocks;
    return off_a < off_b;
}

/* The operation's entry; of several the one measured with that many blocks, else the first.
 * `algorithm` COST_AUTO: of any. */
static const cost_profile_op *find(const cost_profile *profile, const cost_op *op,
                                   cost_algorithm algorithm)
{
    const cost_profile_op *found = NULL;
    for (uint32_t i = 0; profile != NULL && i < profile->op_count; ++i) {
        const cost_profile_op *entry = &profile->op[i];
        if (entry->kind == op->kind && (algorithm == COST_AUTO || entry->algorithm == algorithm) &&
            (found == NULL || closer(entry, found, op->blocks))) {
            found = entry;
        }
    }
    return found;
}

/* An entry's constants for an operation of this size. */
static cost_knobs knobs_of(const cost_profile_op *entry, const cost_op *op)
{
    cost_knobs knobs = entry->knobs;
    stretch(&knobs, curve_permille(entry, cost_op_size(op)));
    return knobs;
}

/* Of what AUTO may stand for, the fastest by its own measured constants. */
static const cost_profile_op *find_fastest(const cost_profile *profile, const cost_machine *machine,
                                           const cost_op *op)
{
    cost_algorithm all[COST_CANDIDATES_MAX];
    const uint32_t count = cost_candidates(machine, op, all);
    const cost_profile_op *found = NULL;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < count; ++i) {
        const cost_profile_op *entry = find(profile, op, all[i]);
        cost_op asked = *op;
        if (entry == NULL) {
            continue;
        }
        asked.knobs = knobs_of(entry, op);
        const uint64_t time = count > 1 ? cost_alone_ps(machine, &asked, all[i]) : 0;
        found = found == NULL || time < least ? entry : found;
        least = time < least ? time : least;
    }
    return found;
}

/* Where the choice is left to us, what was measured goes before what a rule would choose; but the two
 * ways of expert parallelism are for different sizes. */
static const cost_profile_op *find_any(const cost_profile *profile, const cost_machine *machine,
                                       cost_op *op)
{
    const cost_profile_op *found = find_fastest(profile, machine, op);
    const bool open =
        op->algorithm == COST_AUTO && op->kind != COST_EP_DISPATCH && op->kind != COST_EP_COMBINE;
    if (found == NULL && open) {
        found = find(profile, op, COST_AUTO);
    }
    op->algorithm = found != NULL && open ? found->algorithm : op->algorithm;
    return found;
}

static cost_profile merge(const cost_profile *profile, const cost_profile *links, bool *measured)
{
    cost_profile merged = *links;
    *measured = false;
    if (profile != NULL) {
#define X(field, key)                                                                              \
    *measured = *measured || profile->field > 0;                                                   \
    merged.field = profile->field > 0 ? profile->field : merged.field;
        COST_LINK_VALUES(X)
#undef X
    }
    return merged;
}

cost_confidence cost_profile_apply(const cost_profile *profile, const cost_profile *links,
                                   const cost_machine *machine, cost_op *op)
{
    bool measured = false;
    const cost_profile_op *found = find_any(profile, machine, op);
    if (found != NULL) {
        const uint64_t size = cost_op_size(op);
        const uint64_t ranks = op->group_size > 0 ? op->group_size : cost_rank_count(machine);
        op->knobs = knobs_of(found, op);
        const bool inside = size >= found->bytes_low && size <= found->bytes_high &&
                            ranks >= found->ranks_low && ranks <= found->ranks_high;
        return inside ? COST_CALIBRATED : COST_EXTRAPOLATED;
    }
    cost_profile merged = merge(profile, links, &measured);
    merged.nvlink_bytes_per_s = rate_of_blocks(profile, op->blocks, merged.nvlink_bytes_per_s);
    op->knobs = from_links(&merged, machine, op);
    return measured ? COST_EXTRAPOLATED : COST_DEFAULTED;
}
