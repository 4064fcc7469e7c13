/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_scan.cuh
 * Block-wide prefix sum and stable ranking by key, for any count.
 *
 * Scan: a warp sums by shuffles, then every warp adds the sums of the warps before it. Ranking: a
 * warp owns a contiguous stretch of items, so that "earlier" is "lower warp, or earlier step, or
 * lower lane"; lanes with the same key find each other by a warp match.
 */
#ifndef IST_CUDA_SCAN_CUH
#define IST_CUDA_SCAN_CUH

#define IST_CUDA_ALL_LANES 0xffffffffu

IST_DEVICE_FN uint32_t ist_cuda_lane(const ist_coop *coop)
{
    return coop->thread % 32u;
}

/** Inclusive prefix sum over a warp. */
IST_DEVICE_FN uint32_t ist_cuda_warp_scan(uint32_t value, uint32_t lane)
{
#pragma unroll
    for (uint32_t distance = 1; distance < 32u; distance *= 2u) {
        uint32_t other = __shfl_up_sync(IST_CUDA_ALL_LANES, value, distance);
        value += lane >= distance ? other : 0u;
    }
    return value;
}

/** Exclusive prefix sum over the block, one value a thread. One barrier. */
IST_DEVICE_FN uint32_t ist_cuda_block_scan(ist_coop *coop, uint32_t value, uint32_t *total)
{
    uint32_t lane = ist_cuda_lane(coop);
    uint32_t warp = coop->thread / 32u;
    uint32_t warp_count = coop->thread_count / 32u;
    uint32_t *sums = ist_cuda_block_of()->warp_sums[coop->turn];
    coop->turn ^= 1u;
    uint32_t inclusive = ist_cuda_warp_scan(value, lane);
    if (lane == 31u) {
        sums[warp] = inclusive;
    }
    __syncthreads();
    uint32_t sum = ist_cuda_warp_scan(lane < warp_count ? sums[lane] : 0u, lane);
    uint32_t before = __shfl_sync(IST_CUDA_ALL_LANES, sum, (warp + 31u) % 32u);
    *total = __shfl_sync(IST_CUDA_ALL_LANES, sum, 31);
    return inclusive - value + (warp == 0 ? 0u : before);
}

IST_DEVICE_FN uint32_t ist_coop_scan(ist_coop *coop, uint32_t *values, uint32_t count)
{
    uint32_t carry = 0;
    ist_coop_sync(coop);
    for (uint32_t first = 0; first < count; first += coop->thread_count) {
        uint32_t i = first + coop->thread;
        uint32_t total;
        uint32_t value = i < count ? values[i] : 0u;
        uint32_t before = ist_cuda_block_scan(coop, value, &total);
        if (i < count) {
            values[i] = carry + before;
        }
        carry += total;
    }
    ist_coop_sync(coop);
    return carry;
}

/* ---- ranking by key -------------------------------------------------------------------------- */

/** How one call is laid out: `warps` warps with `stretch` items and key_count counters each. */
struct ist_cuda_ranking {
    const int32_t *keys;
    uint32_t count;
    uint32_t key_count;
    uint32_t warps;
    uint32_t stretch;
    uint32_t *counters;
};

/**
 * Counters lie in the stages of the bulk copies (idle: the caller has synced), one row a warp. If
 * not even one row fits, `totals` itself counts, for one warp.
 */
IST_DEVICE_FN void ist_cuda_ranking_plan(const ist_coop *coop, ist_cuda_ranking *plan,
                                         uint32_t *totals)
{
    uint32_t room = ist_cuda_bulk_staged() ? IST_CUDA_STAGES * IST_CUDA_STAGE_BYTES / 4u : 0u;
    uint32_t rows = plan->key_count == 0 ? 1u : room / plan->key_count;
    uint32_t useful = (plan->count + 31u) / 32u;
    plan->counters = rows == 0 ? totals : (uint32_t *)(coop->scratch + IST_CUDA_SCRATCH_BYTES);
    plan->warps = min(max(min(rows, useful), 1u), coop->thread_count / 32u);
    plan->stretch = (useful + plan->warps - 1u) / plan->warps * 32u;
}

/** Counts the keys of each warp's stretch. */
IST_DEVICE_FN void ist_cuda_ranking_count(const ist_coop *coop, const ist_cuda_ranking *plan)
{
    uint32_t warp = coop->thread / 32u;
    uint32_t first = warp * plan->stretch;
    uint32_t *counters = plan->counters + (uint64_t)warp * plan->key_count;
    for (uint32_t step = ist_cuda_lane(coop); step < plan->stretch; step += 32u) {
        uint32_t i = first + step;
        uint32_t key = i < plan->count ? (uint32_t)plan->keys[i] : UINT32_MAX;
        if (key < plan->key_count) {
            atomicAdd(&counters[key], 1u);
        }
    }
}

/** Turns counts into each warp's first ordinal of a key; the sums are the totals. */
IST_DEVICE_FN void ist_cuda_ranking_sum(const ist_coop *coop, const ist_cuda_ranking *plan,
                                        uint32_t *totals)
{
    for (uint32_t key = coop->thread; key < plan->key_count; key += coop->thread_count) {
        uint32_t sum = 0;
        for (uint32_t warp = 0; warp < plan->warps; ++warp) {
            uint32_t *counter = &plan->counters[(uint64_t)warp * plan->key_count + key];
            uint32_t count = *counter;
            *counter = sum;
            sum += count;
        }
        totals[key] = sum;
    }
}

/** Gives every item of a warp's stretch its ordinal, 32 at a time, and moves the counters on. */
IST_DEVICE_FN void ist_cuda_ranking_assign(const ist_coop *coop, const ist_cuda_ranking *plan,
                                           uint32_t *ordinals)
{
    uint32_t lane = ist_cuda_lane(coop);
    uint32_t warp = coop->thread / 32u;
    uint32_t *counters = plan->counters + (uint64_t)warp * plan->key_count;
    for (uint32_t step = 0; step < plan->stretch; step += 32u) {
        uint32_t i = warp * plan->stretch + step + lane;
        uint32_t key = i < plan->count ? (uint32_t)plan->keys[i] : UINT32_MAX;
        int valid = key < plan->key_count;
        uint32_t same = __match_any_sync(IST_CUDA_ALL_LANES, valid ? key : UINT32_MAX);
        uint32_t earlier = __popc(same & ((1u << lane) - 1u));
        uint32_t base = valid ? counters[key] : 0u;
        __syncwarp();
        if (valid && earlier == 0) {
            counters[key] = base + __popc(same);
        }
        __syncwarp();
        if (i < plan->count) {
            ordinals[i] = valid ? base + earlier : UINT32_MAX;
        }
    }
}

IST_DEVICE_FN void ist_coop_rank_by_key(ist_coop *coop, const int32_t *keys, uint32_t count,
                                        uint32_t *ordinals, uint32_t *totals, uint32_t key_count)
{
    ist_cuda_ranking plan;
    plan.keys = keys;
    plan.count = count;
    plan.key_count = key_count;
    ist_coop_sync(coop);
    ist_cuda_ranking_plan(coop, &plan, totals);
    int in_totals = plan.counters == totals;
    for (uint32_t i = coop->thread; i < plan.warps * key_count; i += coop->thread_count) {
        plan.counters[i] = 0;
    }
    __syncthreads();
    if (!in_totals) {
        if (coop->thread / 32u < plan.warps) {
            ist_cuda_ranking_count(coop, &plan);
        }
        __syncthreads();
        ist_cuda_ranking_sum(coop, &plan, totals);
        __syncthreads();
    }
    if (coop->thread / 32u < plan.warps) {
        ist_cuda_ranking_assign(coop, &plan, ordinals);
    }
    ist_coop_sync(coop);
}

#endif
