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

/** The words of one barrier in a member's copy of window 0. */
IST_DEVICE_FN uint64_t *ist_cuda_barrier_words(const ist_dev_comm *dev, uint32_t index,
                                               uint32_t member)
{
    const ist_dev_window *window = (const ist_dev_window *)ist_cuda_table_pointer(&dev->windows);
    void *const *bases = (void *const *)ist_cuda_table_pointer(&window->lsa);
    uint64_t offset = ist_cuda_private(dev)->barrier_offset +
                      index * IST_CUDA_BARRIER_BYTES(dev->lsa_size);
    return (uint64_t *)((char *)ist_cuda_table_pointer(&bases[member]) + offset);
}

/** The tag of the barrier that is to come: the last one's plus 1 in the generation now in force. */
IST_DEVICE_FN uint64_t ist_cuda_barrier_tag(ist_coop *coop, const ist_dev_comm *dev,
                                            uint32_t index)
{
    uint64_t completed = ist_load_u64(coop, ist_cuda_barrier_words(dev, index, dev->lsa_rank),
                                      IST_RELAXED, IST_SCOPE_DEVICE);
    ist_dev_mask *mask = ist_cuda_mask(dev);
    if (mask == NULL) {
        return completed + 1u;
    }
    uint64_t generation =
        ist_load_u64(coop, &mask->generation, IST_RELAXED, IST_SCOPE_SYSTEM) & 0xffffffu;
    uint64_t base = generation << IST_CUDA_BARRIER_COUNT_BITS;
    return (completed >> IST_CUDA_BARRIER_COUNT_BITS == generation ? completed : base) + 1u;
}

/** Every lane that serves a member derives the tag itself: the word it comes from changes only
 *  after a wait. The mask is read before the tag is needed, so that the loads overlap.
 *  @return the tag, 0 in lanes without a member */
IST_DEVICE_FN uint64_t ist_cuda_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev,
                                               uint32_t index)
{
    uint64_t tag = 0;
    uint32_t first = dev->rank - dev->lsa_rank;
    ist_coop_sync(coop);
    for (uint32_t i = coop->thread; i < dev->lsa_size; i += coop->thread_count) {
        int active = ist_mask_active(coop, dev, first + i);
        tag = ist_cuda_barrier_tag(coop, dev, index);
        if (i != dev->lsa_rank && active) {
            ist_store_u64(coop, ist_cuda_barrier_words(dev, index, i) + 1u + dev->lsa_rank, tag,
                          IST_RELEASE, IST_SCOPE_SYSTEM);
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
                                                    uint32_t index, uint64_t tag,
                                                    uint64_t deadline_ns, uint8_t *results)
{
    uint64_t *words = ist_cuda_barrier_words(dev, index, dev->lsa_rank);
    uint32_t first = dev->rank - dev->lsa_rank;
    ist_wait_result result = IST_WAIT_DONE;
    for (uint32_t i = coop->thread; i < dev->lsa_size; i += coop->thread_count) {
        ist_wait_result one = ist_cuda_barrier_wait_member(coop, dev, words + 1u + i, tag,
                                                           first + i, deadline_ns);
        if (results != NULL) {
            results[i] = (uint8_t)one;
        }
        if (one != IST_WAIT_MASKED) {
            result = one > result ? one : result;
        }
    }
    result = ist_cuda_worst(coop, result);
    if (coop->thread == 0) {
        ist_store_u64(coop, words, tag, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    return result;
}

IST_DEVICE_FN void ist_lsa_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev, uint32_t index)
{
    if (index < dev->lsa_barrier_count) {
        ist_cuda_barrier_arrive(coop, dev, index);
    }
}

/** The tag is derived again: the generation must not change between arrive and wait. A barrier that
 *  does not exist gives ERROR. */
IST_DEVICE_FN ist_wait_result ist_lsa_barrier_wait(ist_coop *coop, const ist_dev_comm *dev,
                                                   uint32_t index, uint64_t deadline_ns,
                                                   uint8_t *results)
{
    if (index >= dev->lsa_barrier_count) {
        return IST_WAIT_ERROR;
    }
    uint64_t tag = coop->thread < dev->lsa_size ? ist_cuda_barrier_tag(coop, dev, index) : 0;
    return ist_cuda_barrier_wait(coop, dev, index, tag, deadline_ns, results);
}

IST_DEVICE_FN ist_wait_result ist_lsa_barrier_sync(ist_coop *coop, const ist_dev_comm *dev,
                                                   uint32_t index, uint64_t deadline_ns,
                                                   uint8_t *results)
{
    if (index >= dev->lsa_barrier_count) {
        return IST_WAIT_ERROR;
    }
    uint64_t tag = ist_cuda_barrier_arrive(coop, dev, index);
    return ist_cuda_barrier_wait(coop, dev, index, tag, deadline_ns, results);
}

#endif
