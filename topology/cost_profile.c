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

/* Constants from what links can do and a few habits of kernels: an entry and an exit barrier, half
 * a microsecond for the first row, rows that are scattered at 5/8 of the rate of one large copy. */
static cost_knobs from_links(const cost_profile *links, const cost_op *op)
{
    cost_knobs knobs = cost_knobs_default();
    const bool rows = op->kind == COST_EP_DISPATCH || op->kind == COST_EP_COMBINE;
    knobs.value[COST_overhead_ps] = links->launch_ps + 2 * links->nvlink_latency_ps + 500000;
    knobs.value[COST_lsa_step_ps] = links->nvlink_latency_ps + 370000;
    knobs.value[COST_net_step_ps] = links->nic_latency_ps + 1000000;
    knobs.value[COST_lsa_bytes_per_s] =
        rows ? links->nvlink_bytes_per_s / 8 * 5 : links->nvlink_bytes_per_s;
    knobs.value[COST_net_bytes_per_s] = links->nic_bytes_per_s;
    knobs.value[COST_local_bytes_per_s] = links->hbm_bytes_per_s;
    if (op->kind == COST_PUT || op->kind == COST_SIGNAL) {
        knobs.value[COST_overhead_ps] = 0; /* issued by a kernel that runs */
    }
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

/* The operation's entry; of several the one measured with that many blocks, else the first. */
static const cost_profile_op *find(const cost_profile *profile, const cost_machine *machine,
                                   const cost_op *op)
{
    const cost_algorithm algorithm = cost_algorithm_choose(machine, op);
    const cost_profile_op *found = NULL;
    for (uint32_t i = 0; profile != NULL && i < profile->op_count; ++i) {
        const cost_profile_op *entry = &profile->op[i];
        if (entry->kind == op->kind && entry->algorithm == algorithm &&
            (found == NULL || closer(entry, found, op->blocks))) {
            found = entry;
        }
    }
    return found;
}

cost_confidence cost_profile_apply(const cost_profile *profile, const cost_profile *links,
                                   const cost_machine *machine, cost_op *op)
{
    const cost_profile_op *found = find(profile, machine, op);
    if (found != NULL) {
        const uint64_t size = cost_op_size(op);
        const uint64_t ranks = op->group_size > 0 ? op->group_size : cost_rank_count(machine);
        op->knobs = found->knobs;
        stretch(&op->knobs, curve_permille(found, size));
        const bool inside = size >= found->bytes_low && size <= found->bytes_high &&
                            ranks >= found->ranks_low && ranks <= found->ranks_high;
        return inside ? COST_CALIBRATED : COST_EXTRAPOLATED;
    }
    cost_profile merged = *links;
    bool measured = false;
    if (profile != NULL) {
#define X(field, key)                                                                              \
    measured = measured || profile->field > 0;                                                     \
    merged.field = profile->field > 0 ? profile->field : merged.field;
        COST_LINK_VALUES(X)
#undef X
    }
    merged.nvlink_bytes_per_s = rate_of_blocks(profile, op->blocks, merged.nvlink_bytes_per_s);
    op->knobs = from_links(&merged, op);
    return measured ? COST_EXTRAPOLATED : COST_DEFAULTED;
}
