/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_barrier.cuh
 * LSA barrier: every member writes a tag into its word of every other member, then waits for the
 * tags of the others in its own words. Layout and tags: cuda_shared.h.
 *
 * Tags only grow, so a wait for "at least" lets a fast member be one barrier ahead, and a barrier
 * that timed out is simply behind: the next one is a new tag.
 */
#ifndef IST_CUDA_BARRIER_CUH
#define IST_CUDA_BARRIER_CUH

/** Addresses of one barrier, looked up once: behind an acquire, tables are read from L2 again. */
struct ist_cuda_barrier {
    uint64_t *own;
    uint64_t *const *members; /* [lsa_size] of their barriers */
    uint64_t offset;          /* of this one, in words */
    ist_dev_mask *mask;
    uint32_t first; /* rank of member 0 */
    uint32_t rank;  /* this rank's index */
    uint32_t size;
};

IST_DEVICE_FN ist_cuda_barrier ist_cuda_barrier_open(const ist_dev_comm *dev, uint32_t index)
{
    const ist_cuda_dev_comm *own = ist_cuda_private(dev);
    ist_cuda_barrier barrier;
    barrier.rank = dev->lsa_rank;
    barrier.first = dev->rank - barrier.rank;
    barrier.size = dev->lsa_size;
    barrier.mask = ist_cuda_mask(dev);
    barrier.offset = index * IST_CUDA_BARRIER_BYTES(barrier.size) / 8u;
    barrier.own = (uint64_t *)ist_cuda_table_pointer(&own->barriers_own) + barrier.offset;
    barrier.members = (uint64_t *const *)ist_cuda_table_pointer(&own->barriers);
    return barrier;
}

/** The tag of the barrier that is to come: the last one's plus 1 in the generation now in force. */
IST_DEVICE_FN uint64_t ist_cuda_barrier_tag(ist_coop *coop, const ist_cuda_barrier *barrier)
{
    uint64_t completed = ist_load_u64(coop, barrier->own, IST_RELAXED, IST_SCOPE_DEVICE);
    if (barrier->mask == NULL) {
        return completed + 1u;
    }
    uint64_t generation =
        ist_load_u64(coop, &barrier->mask->generation, IST_RELAXED, IST_SCOPE_SYSTEM) & 0xffffffu;
    uint64_t base = generation << IST_CUDA_BARRIER_COUNT_BITS;
    return (completed >> IST_CUDA_BARRIER_COUNT_BITS == generation ? completed : base) + 1u;
}

/**
 * Every lane that serves a member derives the tag itself: the word it comes from changes only after
 * a wait. Address, mask and tag are loaded before any is needed, so that the loads overlap.
 * @return the tag, 0 in lanes without a member
 */
IST_DEVICE_FN uint64_t ist_cuda_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev,
                                               const ist_cuda_barrier *barrier)
{
    uint64_t tag = 0;
    ist_coop_sync(coop);
    for (uint32_t i = coop->thread; i < barrier->size; i += coop->thread_count) {
        uint64_t *theirs = (uint64_t *)ist_cuda_table_pointer(&barrier->members[i]);
        int active = ist_mask_active(coop, dev, barrier->first + i);
        tag = ist_cuda_barrier_tag(coop, barrier);
        if (i != barrier->rank && active) {
            ist_store_u64(coop, theirs + barrier->offset + 1u + barrier->rank, tag, IST_RELEASE,
                          IST_SCOPE_SYSTEM);
        }
    }
    return tag;
}

/** One lane: one member. After TIMEOUT the word has been read once more. */
IST_DEVICE_FN ist_wait_result ist_cuda_barrier_wait_member(ist_coop *coop, const ist_dev_comm *dev,
                                                           const uint64_t *word, uint64_t tag,
                                                           uint32_t peer, uint64_t deadline_ns)
{
    if (peer == dev->rank) {
        return IST_WAIT_DONE;
    }
    ist_cuda_watch watch = ist_cuda_watch_open(deadline_ns);
    ist_wait_result result = ist_mask_active(coop, dev, peer) ? IST_WAIT_DONE : IST_WAIT_MASKED;
    uint64_t seen = ist_load_u64(coop, word, IST_ACQUIRE, IST_SCOPE_SYSTEM);
    while (result == IST_WAIT_DONE && seen < tag) {
        result = ist_cuda_watch_check(coop, dev, &watch);
        if (watch.looked && result != IST_WAIT_ABORTED && !ist_mask_active(coop, dev, peer)) {
            result = IST_WAIT_MASKED;
        }
        seen = ist_load_u64(coop, word, IST_ACQUIRE, IST_SCOPE_SYSTEM);
    }
    return result == IST_WAIT_TIMEOUT && seen >= tag ? IST_WAIT_DONE : result;
}

IST_DEVICE_FN ist_wait_result ist_cuda_barrier_wait(ist_coop *coop, const ist_dev_comm *dev,
                                                    const ist_cuda_barrier *barrier, uint64_t tag,
                                                    uint64_t deadline_ns, uint8_t *results)
{
    ist_wait_result result = IST_WAIT_DONE;
    for (uint32_t i = coop->thread; i < barrier->size; i += coop->thread_count) {
        ist_wait_result one = ist_cuda_barrier_wait_member(coop, dev, barrier->own + 1u + i, tag,
                                                           barrier->first + i, deadline_ns);
        if (results != NULL) {
            results[i] = (uint8_t)one;
        }
        if (one != IST_WAIT_MASKED) {
            result = one > result ? one : result;
        }
    }
    result = ist_cuda_worst(coop, result);
    if (coop->thread == 0) {
        ist_store_u64(coop, barrier->own, tag, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    return result;
}

IST_DEVICE_FN void ist_lsa_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev, uint32_t index)
{
    if (index < dev->lsa_barrier_count) {
        ist_cuda_barrier barrier = ist_cuda_barrier_open(dev, index);
        ist_cuda_barrier_arrive(coop, dev, &barrier);
    }
}

/** The tag is derived again: the generation must not change between arrive and wait. */
IST_DEVICE_FN ist_wait_result ist_lsa_barrier_wait(ist_coop *coop, const ist_dev_comm *dev,
                                                   uint32_t index, uint64_t deadline_ns,
                                                   uint8_t *results)
{
    if (index >= dev->lsa_barrier_count) {
        return IST_WAIT_ERROR;
    }
    ist_cuda_barrier barrier = ist_cuda_barrier_open(dev, index);
    uint64_t tag = coop->thread < barrier.size ? ist_cuda_barrier_tag(coop, &barrier) : 0;
    return ist_cuda_barrier_wait(coop, dev, &barrier, tag, deadline_ns, results);
}

IST_DEVICE_FN ist_wait_result ist_lsa_barrier_sync(ist_coop *coop, const ist_dev_comm *dev,
                                                   uint32_t index, uint64_t deadline_ns,
                                                   uint8_t *results)
{
    if (index >= dev->lsa_barrier_count) {
        return IST_WAIT_ERROR;
    }
    ist_cuda_barrier barrier = ist_cuda_barrier_open(dev, index);
    uint64_t tag = ist_cuda_barrier_arrive(coop, dev, &barrier);
    return ist_cuda_barrier_wait(coop, dev, &barrier, tag, deadline_ns, results);
}

#endif
