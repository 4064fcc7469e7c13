/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_scan.cuh
 * Block-wide prefix sum and stable ranking by key, for any count.
 *
 * Scan: a warp sums by shuffles, then every warp adds the sums of the warps before it. Ranking: a
 * warp owns a contiguous stretch of items, so that "earlier" is "lower warp, or earlier step, or
 * lower lane"; lanes with the same key find each other by a warp match if keys are few, or else by
 * setting their bits in a word of the key: a match takes time for each different key.
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

/** Keys that a lane has loaded before it uses the first. */
#define IST_CUDA_RANK_DEPTH 4u

/** Up to this many keys, lanes find each other by a match. */
#define IST_CUDA_MATCH_KEYS_MAX 16u

/** How one call is laid out: `warps` warps with `stretch` items and a row of words each. */
struct ist_cuda_ranking {
    const int32_t *keys;
    uint32_t count;
    uint32_t key_count;
    uint32_t warps;
    uint32_t stretch; /* a multiple of 32 * IST_CUDA_RANK_DEPTH */
    uint32_t row;     /* words: key_count counters, then, without match, key_count marks */
};

/** A warp's row, in the memory behind the scratch. */
IST_DEVICE_FN uint32_t *ist_cuda_counters(const ist_coop *coop, const ist_cuda_ranking *plan,
                                          uint32_t warp)
{
    return (uint32_t *)(coop->scratch + IST_CUDA_SCRATCH_BYTES) + warp * plan->row;
}

/** @return 0 when not even one row fits */
IST_DEVICE_FN int ist_cuda_ranking_plan(const ist_coop *coop, ist_cuda_ranking *plan)
{
    const uint32_t step = 32u * IST_CUDA_RANK_DEPTH;
    uint32_t room = ist_cuda_bulk_staged() ? IST_CUDA_STAGES * IST_CUDA_STAGE_BYTES / 4u : 0u;
    plan->row = plan->key_count > IST_CUDA_MATCH_KEYS_MAX ? 2u * plan->key_count : plan->key_count;
    uint32_t rows = plan->row == 0 ? 1u : room / plan->row;
    uint32_t useful = (plan->count + step - 1u) / step;
    plan->warps = min(max(min(rows, useful), 1u), coop->thread_count / 32u);
    plan->stretch = (useful + plan->warps - 1u) / plan->warps * step;
    return rows != 0;
}

/** The keys of a lane at `first` and 32, 64 … items further; UINT32_MAX for what does not count. */
IST_DEVICE_FN void ist_cuda_ranking_load(const ist_cuda_ranking *plan, uint32_t first,
                                         uint32_t *keys)
{
#pragma unroll
    for (uint32_t i = 0; i < IST_CUDA_RANK_DEPTH; ++i) {
        uint32_t at = first + 32u * i;
        keys[i] = at < plan->count ? (uint32_t)plan->keys[at] : UINT32_MAX;
    }
#pragma unroll
    for (uint32_t i = 0; i < IST_CUDA_RANK_DEPTH; ++i) {
        keys[i] = keys[i] < plan->key_count ? keys[i] : UINT32_MAX;
    }
}

/** Counts the keys of this warp's stretch. */
IST_DEVICE_FN void ist_cuda_ranking_count(const ist_coop *coop, const ist_cuda_ranking *plan)
{
    uint32_t *counters = ist_cuda_counters(coop, plan, coop->thread / 32u);
    uint32_t begin = coop->thread / 32u * plan->stretch + ist_cuda_lane(coop);
    for (uint32_t at = 0; at < plan->stretch; at += 32u * IST_CUDA_RANK_DEPTH) {
        uint32_t keys[IST_CUDA_RANK_DEPTH];
        ist_cuda_ranking_load(plan, begin + at, keys);
#pragma unroll
        for (uint32_t i = 0; i < IST_CUDA_RANK_DEPTH; ++i) {
            if (keys[i] != UINT32_MAX) {
                atomicAdd(&counters[keys[i]], 1u);
            }
        }
    }
}

/** Turns counts into each warp's first ordinal of a key; the sums are the totals. */
IST_DEVICE_FN void ist_cuda_ranking_sum(const ist_coop *coop, const ist_cuda_ranking *plan,
                                        uint32_t *totals)
{
    uint32_t *counters = ist_cuda_counters(coop, plan, 0);
    for (uint32_t key = coop->thread; key < plan->key_count; key += coop->thread_count) {
        uint32_t sum = 0;
#pragma unroll 8
        for (uint32_t warp = 0; warp < plan->warps; ++warp) {
            uint32_t count = counters[warp * plan->row + key];
            counters[warp * plan->row + key] = sum;
            sum += count;
        }
        totals[key] = sum;
    }
}

/** The lanes whose key is this lane's. `marks` NULL: by match. Else marks are 0 before and after. */
IST_DEVICE_FN uint32_t ist_cuda_ranking_same(uint32_t *marks, uint32_t key, uint32_t lane)
{
    if (marks == NULL) {
        return __match_any_sync(IST_CUDA_ALL_LANES, key);
    }
    if (key != UINT32_MAX) {
        atomicOr(&marks[key], 1u << lane);
    }
    __syncwarp();
    return key != UINT32_MAX ? marks[key] : 0u;
}

/** Ordinals of 32 items, a lane each; moves the counters on. */
IST_DEVICE_FN uint32_t ist_cuda_ranking_step(uint32_t *counters, uint32_t *marks, uint32_t key,
                                             uint32_t lane)
{
    int valid = key != UINT32_MAX;
    uint32_t same = ist_cuda_ranking_same(marks, key, lane);
    uint32_t earlier = __popc(same & ((1u << lane) - 1u));
    uint32_t base = valid ? counters[key] : 0u;
    __syncwarp();
    if (valid && earlier == 0) {
        counters[key] = base + __popc(same);
        if (marks != NULL) {
            marks[key] = 0;
        }
    }
    __syncwarp();
    return valid ? base + earlier : UINT32_MAX;
}

/** Gives every item of this warp's stretch its ordinal. */
IST_DEVICE_FN void ist_cuda_ranking_assign(const ist_coop *coop, const ist_cuda_ranking *plan,
                                           uint32_t *counters, uint32_t *marks, uint32_t *ordinals)
{
    uint32_t lane = ist_cuda_lane(coop);
    uint32_t begin = coop->thread / 32u * plan->stretch + lane;
    for (uint32_t at = 0; at < plan->stretch; at += 32u * IST_CUDA_RANK_DEPTH) {
        uint32_t keys[IST_CUDA_RANK_DEPTH];
        ist_cuda_ranking_load(plan, begin + at, keys);
#pragma unroll
        for (uint32_t i = 0; i < IST_CUDA_RANK_DEPTH; ++i) {
            uint32_t ordinal = ist_cuda_ranking_step(counters, marks, keys[i], lane);
            if (begin + at + 32u * i < plan->count) {
                ordinals[begin + at + 32u * i] = ordinal;
            }
        }
    }
}

/** All warps: count, sum over warps, assign. */
IST_DEVICE_FN void ist_cuda_ranking_run(const ist_coop *coop, const ist_cuda_ranking *plan,
                                        uint32_t *ordinals, uint32_t *totals)
{
    uint32_t warp = coop->thread / 32u;
    uint32_t *words = ist_cuda_counters(coop, plan, 0);
    for (uint32_t i = coop->thread; i < plan->warps * plan->row; i += coop->thread_count) {
        words[i] = 0;
    }
    __syncthreads();
    if (warp < plan->warps) {
        ist_cuda_ranking_count(coop, plan);
    }
    __syncthreads();
    ist_cuda_ranking_sum(coop, plan, totals);
    __syncthreads();
    uint32_t *counters = ist_cuda_counters(coop, plan, warp);
    if (warp < plan->warps && plan->row == plan->key_count) {
        ist_cuda_ranking_assign(coop, plan, counters, NULL, ordinals);
    } else if (warp < plan->warps) {
        ist_cuda_ranking_assign(coop, plan, counters, counters + plan->key_count, ordinals);
    }
}

/** Too many keys for shared memory: `totals` itself counts, for one warp. */
IST_DEVICE_FN void ist_cuda_ranking_run_slow(const ist_coop *coop, const ist_cuda_ranking *plan,
                                             uint32_t *ordinals, uint32_t *totals)
{
    for (uint32_t i = coop->thread; i < plan->key_count; i += coop->thread_count) {
        totals[i] = 0;
    }
    __syncthreads();
    if (coop->thread < 32u) {
        ist_cuda_ranking_assign(coop, plan, totals, NULL, ordinals);
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
    if (ist_cuda_ranking_plan(coop, &plan)) {
        ist_cuda_ranking_run(coop, &plan, ordinals, totals);
    } else {
        ist_cuda_ranking_run_slow(coop, &plan, ordinals, totals);
    }
    ist_coop_sync(coop);
}

#endif
