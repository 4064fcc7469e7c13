/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_clock.cuh
 * The clock, and what ends a wait other than its value: deadline, abort.
 */
#ifndef IST_CUDA_CLOCK_CUH
#define IST_CUDA_CLOCK_CUH

/**
 * %globaltimer: nanoseconds of one counter for the whole GPU, from an origin of its own, so only
 * differences and deadlines made on the same GPU mean something. It advances in steps (32 ns on
 * the H200, 1 µs on older parts and under some drivers): shorter times are not measured by it.
 */
IST_DEVICE_FN uint64_t ist_clock_ns(ist_coop *coop)
{
    (void)coop;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/** Between two looks at words in host-visible memory, which may lie behind PCIe. */
#define IST_CUDA_LOOK_PERIOD_NS 10000u

/** Polls between two readings of the clock. */
#define IST_CUDA_POLLS 4u

/** One lane's wait in progress. */
struct ist_cuda_watch {
    uint64_t deadline_ns;
    uint64_t look_ns; /* when to look at the abort word next; 0: not begun */
    uint32_t polls;
    uint32_t looked; /* the last check did look: time to look at the mask too */
};

IST_DEVICE_FN ist_cuda_watch ist_cuda_watch_open(uint64_t deadline_ns)
{
    ist_cuda_watch watch;
    watch.deadline_ns = deadline_ns;
    watch.look_ns = 0;
    watch.polls = 0;
    watch.looked = 0;
    return watch;
}

/**
 * Called after a poll that found nothing. DONE means: go on. The abort word is gated behind the
 * clock: read every IST_CUDA_LOOK_PERIOD_NS and before a time-out is reported. The caller polls
 * once more after TIMEOUT, so that a value which is there never counts as late.
 */
IST_DEVICE_FN ist_wait_result ist_cuda_watch_check(ist_coop *coop, const ist_dev_comm *dev,
                                                   ist_cuda_watch *watch)
{
    watch->looked = 0;
    watch->polls += 1u;
    if (watch->polls % IST_CUDA_POLLS != 0) {
        return IST_WAIT_DONE;
    }
    uint64_t now = ist_clock_ns(coop);
    if (watch->look_ns == 0) {
        watch->look_ns = now + IST_CUDA_LOOK_PERIOD_NS;
    }
    int late = now >= watch->deadline_ns;
    if (late || now >= watch->look_ns) {
        watch->look_ns = now + IST_CUDA_LOOK_PERIOD_NS;
        watch->looked = 1;
        if (ist_aborted(coop, dev)) {
            return IST_WAIT_ABORTED;
        }
    }
    return late ? IST_WAIT_TIMEOUT : IST_WAIT_DONE;
}

/** Syncs the coop and combines the lanes' results: ABORTED before ERROR before TIMEOUT. */
IST_DEVICE_FN ist_wait_result ist_cuda_worst(ist_coop *coop, ist_wait_result result)
{
    if (ist_cuda_sync_count(coop, result != IST_WAIT_DONE && result != IST_WAIT_MASKED) == 0) {
        return IST_WAIT_DONE;
    }
    if (__syncthreads_or(result == IST_WAIT_ABORTED)) {
        return IST_WAIT_ABORTED;
    }
    return __syncthreads_or(result == IST_WAIT_ERROR) ? IST_WAIT_ERROR : IST_WAIT_TIMEOUT;
}

/** One lane: until the word is at least `least`. */
IST_DEVICE_FN ist_wait_result ist_cuda_poll_word(ist_coop *coop, const ist_dev_comm *dev,
                                                 const uint64_t *word, uint64_t least,
                                                 uint64_t deadline_ns, ist_scope scope)
{
    ist_cuda_watch watch = ist_cuda_watch_open(deadline_ns);
    ist_wait_result result = IST_WAIT_DONE;
    while (ist_load_u64(coop, word, IST_ACQUIRE, scope) < least) {
        if (result != IST_WAIT_DONE) {
            return result;
        }
        result = ist_cuda_watch_check(coop, dev, &watch);
    }
    return IST_WAIT_DONE;
}

/** Thread 0 polls; the others wait at the barrier and cost no bandwidth. */
IST_DEVICE_FN ist_wait_result ist_coop_wait_word(ist_coop *coop, const ist_dev_comm *dev,
                                                 const uint64_t *word, uint64_t least,
                                                 uint64_t deadline_ns, ist_scope scope)
{
    ist_wait_result result = IST_WAIT_DONE;
    if (coop->thread == 0) {
        ist_cuda_bulk_drain(coop);
        result = ist_cuda_poll_word(coop, dev, word, least, deadline_ns, scope);
    }
    return (ist_wait_result)ist_cuda_broadcast(coop, (uint64_t)result);
}

/** One lane: until the upper half of the word is `tag`. */
IST_DEVICE_FN ist_wait_result ist_cuda_poll_tagged(ist_coop *coop, const ist_dev_comm *dev,
                                                   const uint64_t *word, uint32_t *data,
                                                   uint32_t tag, uint64_t deadline_ns,
                                                   ist_scope scope)
{
    ist_cuda_watch watch = ist_cuda_watch_open(deadline_ns);
    ist_wait_result result = IST_WAIT_DONE;
    uint64_t value = ist_load_u64(coop, word, IST_ACQUIRE, scope);
    while ((uint32_t)(value >> 32) != tag) {
        if (result != IST_WAIT_DONE) {
            return result;
        }
        result = ist_cuda_watch_check(coop, dev, &watch);
        value = ist_load_u64(coop, word, IST_ACQUIRE, scope);
    }
    *data = (uint32_t)value;
    return IST_WAIT_DONE;
}

IST_DEVICE_FN ist_wait_result ist_coop_wait_tagged(ist_coop *coop, const ist_dev_comm *dev,
                                                   const uint64_t *const *words, uint32_t *data,
                                                   uint32_t count, uint32_t tag,
                                                   uint64_t deadline_ns, ist_scope scope)
{
    ist_wait_result result = IST_WAIT_DONE;
    ist_cuda_bulk_drain(coop);
    IST_EACH_LANE (coop, i, count) {
        if (words[i] != NULL && result == IST_WAIT_DONE) {
            result = ist_cuda_poll_tagged(coop, dev, words[i], &data[i], tag, deadline_ns, scope);
        }
    }
    return ist_cuda_worst(coop, result);
}

#endif
