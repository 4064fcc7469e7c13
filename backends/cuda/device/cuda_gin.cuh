/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_gin.cuh
 * GIN: the portable functions, over NCCL's device API when compiled with IST_CUDA_GIN.
 *
 * Compiled without it, or on a communicator without GIN, nothing is sent and nothing pretends to
 * be: reads give 0, every wait ends at once with IST_WAIT_ERROR, and every peer outside the
 * load/store team has an error.
 *
 * Flush. NCCL's own flush has no deadline. Every put therefore counts its local completion: in the
 * counter that the caller named, or else in one of the block. What was issued is counted beside
 * (ist_cuda_dev_comm), and a flush is a bounded wait for counters to reach it. A flush also waits
 * for puts of other blocks that named a counter: more than it must, never less.
 */
#ifndef IST_CUDA_GIN_CUH
#define IST_CUDA_GIN_CUH

#ifndef IST_CUDA_GIN
#define IST_CUDA_GIN 0
#endif

#if IST_CUDA_GIN
#include <isthmus/detail/cuda_gin_nccl.cuh>
#endif

#define IST_CUDA_COUNTER_MASK ((UINT64_C(1) << 56) - 1u)

/** Whether this communicator has GIN in this build. */
IST_DEVICE_FN int ist_cuda_gin_ready(const ist_dev_comm *dev)
{
#if IST_CUDA_GIN
    return dev->context_count != 0 && ist_cuda_private(dev)->nccl != NULL;
#else
    (void)dev;
    return 0;
#endif
}

/* ---- what was issued ------------------------------------------------------------------------- */

/** The counter of this block's puts that name none; IST_GIN_NO_COUNTER when it has none. */
IST_DEVICE_FN uint32_t ist_cuda_flush_counter(const ist_coop *coop, const ist_dev_comm *dev)
{
    return coop->block < ist_cuda_private(dev)->flush_block_count ? dev->counter_count + coop->block
                                                                  : IST_GIN_NO_COUNTER;
}

/** Where the puts that use a counter are counted. */
IST_DEVICE_FN uint64_t *ist_cuda_issued(const ist_dev_comm *dev, uint32_t context, uint32_t counter)
{
    const ist_cuda_dev_comm *own = ist_cuda_private(dev);
    if (counter < dev->counter_count) {
        return own->counter_issued + (uint64_t)context * dev->counter_count + counter;
    }
    return own->flush_issued + (uint64_t)context * own->flush_block_count +
           (counter - dev->counter_count);
}

/* ---- puts and signals ------------------------------------------------------------------------ */

IST_DEVICE_FN void ist_gin_put(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                               uint32_t peer, uint32_t dst_window, uint64_t dst_offset,
                               uint32_t src_window, uint64_t src_offset, uint64_t bytes,
                               ist_gin_action remote, uint32_t local_counter)
{
    ist_coop_sync(coop);
#if IST_CUDA_GIN
    if (coop->thread == 0 && ist_cuda_gin_ready(dev)) {
        uint32_t counter =
            local_counter == IST_GIN_NO_COUNTER ? ist_cuda_flush_counter(coop, dev) : local_counter;
        if (counter != IST_GIN_NO_COUNTER) {
            ist_fetch_add_u64(coop, ist_cuda_issued(dev, context, counter), 1, IST_RELAXED,
                              IST_SCOPE_DEVICE);
        }
        ist_cuda_put put = {context,    peer,  dst_window, src_window, dst_offset,
                            src_offset, bytes, remote,     counter};
        ist_cuda_nccl_put(dev, put);
    }
#else
    (void)dev, (void)context, (void)peer, (void)dst_window, (void)dst_offset, (void)src_window;
    (void)src_offset, (void)bytes, (void)remote, (void)local_counter;
#endif
}

#if IST_CUDA_GIN && !IST_CUDA_NCCL_VALUES

/** How long a block waits for its earlier values to be on their way. */
#define IST_CUDA_VALUE_WAIT_NS UINT64_C(1000000000)

IST_DEVICE_FN ist_wait_result ist_cuda_flush_one(ist_coop *coop, const ist_dev_comm *dev,
                                                 uint32_t context, uint32_t counter,
                                                 uint64_t deadline_ns);

/**
 * One lane: a value as eight bytes of window 0. The block's words there are used in turn; before it
 * begins again with the first, all that it has put is complete. A network that does not complete
 * anything is an error of the peer.
 */
IST_DEVICE_FN void ist_cuda_put_value_bytes(ist_coop *coop, const ist_dev_comm *dev,
                                            ist_cuda_put put, uint64_t value)
{
    const ist_cuda_dev_comm *own = ist_cuda_private(dev);
    uint32_t counter = ist_cuda_flush_counter(coop, dev);
    uint64_t at = (uint64_t)put.context * own->flush_block_count + coop->block;
    if (counter == IST_GIN_NO_COUNTER) {
        ist_store_u64(coop, &own->peer_errors[put.peer], 1, IST_RELAXED, IST_SCOPE_SYSTEM);
        return;
    }
    uint64_t used = own->values_used[at];
    if (used != 0 && used % IST_CUDA_VALUE_SLOTS == 0 &&
        ist_cuda_flush_one(coop, dev, put.context, counter,
                           ist_clock_ns(coop) + IST_CUDA_VALUE_WAIT_NS) != IST_WAIT_DONE) {
        ist_store_u64(coop, &own->peer_errors[put.peer], 1, IST_RELAXED, IST_SCOPE_SYSTEM);
        return;
    }
    uint64_t slot = at * IST_CUDA_VALUE_SLOTS + used % IST_CUDA_VALUE_SLOTS;
    own->values_used[at] = used + 1u;
    ist_store_u64(coop, &own->values[slot], value, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_fetch_add_u64(coop, ist_cuda_issued(dev, put.context, counter), 1, IST_RELAXED,
                      IST_SCOPE_DEVICE);
    put.src_window = 0;
    put.src_offset = own->values_offset + slot * sizeof(value);
    put.local_counter = counter;
    ist_cuda_nccl_put(dev, put);
}

#endif

IST_DEVICE_FN void ist_gin_put_value(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                     uint32_t peer, uint32_t dst_window, uint64_t dst_offset,
                                     uint64_t value, ist_gin_action remote)
{
    ist_coop_sync(coop);
#if IST_CUDA_GIN
    if (coop->thread == 0 && ist_cuda_gin_ready(dev)) {
        ist_cuda_put put = {context,       peer,   dst_window,        0, dst_offset, 0,
                            sizeof(value), remote, IST_GIN_NO_COUNTER};
#if IST_CUDA_NCCL_VALUES
        ist_cuda_nccl_put_value(dev, put, value);
#else
        ist_cuda_put_value_bytes(coop, dev, put, value);
#endif
    }
#else
    (void)dev, (void)context, (void)peer, (void)dst_window, (void)dst_offset, (void)value;
    (void)remote;
#endif
}

IST_DEVICE_FN void ist_gin_signal(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                  uint32_t peer, ist_gin_action remote)
{
    ist_coop_sync(coop);
#if IST_CUDA_GIN
    if (coop->thread == 0 && remote.kind != IST_GIN_NONE && ist_cuda_gin_ready(dev)) {
        ist_cuda_nccl_signal(dev, context, peer, remote);
    }
#else
    (void)dev, (void)context, (void)peer, (void)remote;
#endif
}

/* ---- words ----------------------------------------------------------------------------------- */

IST_DEVICE_FN uint64_t ist_gin_signal_read(ist_coop *coop, const ist_dev_comm *dev,
                                           uint32_t context, uint32_t signal, ist_order order)
{
    (void)coop;
#if IST_CUDA_GIN
    if (ist_cuda_gin_ready(dev)) {
        return ist_cuda_nccl_signal_read(dev, context, signal, IST_CUDA_ACQUIRES(order));
    }
#endif
    (void)dev, (void)context, (void)signal, (void)order;
    return 0;
}

IST_DEVICE_FN void ist_gin_signal_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                        uint32_t signal)
{
    (void)coop;
#if IST_CUDA_GIN
    if (ist_cuda_gin_ready(dev)) {
        ist_cuda_nccl_signal_reset(dev, context, signal);
    }
#else
    (void)dev, (void)context, (void)signal;
#endif
}

IST_DEVICE_FN uint64_t ist_gin_counter_read(ist_coop *coop, const ist_dev_comm *dev,
                                            uint32_t context, uint32_t counter)
{
    (void)coop;
#if IST_CUDA_GIN
    if (ist_cuda_gin_ready(dev)) {
        return ist_cuda_nccl_counter_read(dev, context, counter);
    }
#endif
    (void)dev, (void)context, (void)counter;
    return 0;
}

/** Also forgets what was issued on it. */
IST_DEVICE_FN void ist_gin_counter_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                         uint32_t counter)
{
#if IST_CUDA_GIN
    if (ist_cuda_gin_ready(dev)) {
        ist_store_u64(coop, ist_cuda_issued(dev, context, counter), 0, IST_RELAXED,
                      IST_SCOPE_DEVICE);
        ist_cuda_nccl_counter_reset(dev, context, counter);
    }
#else
    (void)coop, (void)dev, (void)context, (void)counter;
#endif
}

/* ---- errors ---------------------------------------------------------------------------------- */

/** The host side of the backend watches the network and writes the words read here. */
IST_DEVICE_FN int ist_gin_peer_error(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    if (ist_cuda_gin_ready(dev)) {
        const uint64_t *errors = ist_cuda_private(dev)->peer_errors;
        return ist_load_u64(coop, &errors[peer], IST_RELAXED, IST_SCOPE_SYSTEM) != 0;
    }
    return !ist_dev_is_lsa(dev, peer);
}

IST_DEVICE_FN void ist_gin_peer_clear(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    if (ist_cuda_gin_ready(dev)) {
        uint64_t *errors = ist_cuda_private(dev)->peer_errors;
        ist_store_u64(coop, &errors[peer], 0, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */

/** One lane: until the counter has counted `least`, over 56 rolling bits. */
IST_DEVICE_FN ist_wait_result ist_cuda_poll_counter(ist_coop *coop, const ist_dev_comm *dev,
                                                    uint32_t context, uint32_t counter,
                                                    uint64_t least, uint64_t deadline_ns)
{
    if (!ist_cuda_gin_ready(dev)) {
        return IST_WAIT_ERROR;
    }
    ist_cuda_watch watch = ist_cuda_watch_open(deadline_ns);
    ist_wait_result result = IST_WAIT_DONE;
    while (((ist_gin_counter_read(coop, dev, context, counter) - least) & IST_CUDA_COUNTER_MASK) >
           IST_CUDA_COUNTER_MASK / 2u) {
        if (result != IST_WAIT_DONE) {
            return result;
        }
        result = ist_cuda_watch_check(coop, dev, &watch);
    }
    return IST_WAIT_DONE;
}

/** One lane: until the signal is at least `least`, over 64 rolling bits. */
IST_DEVICE_FN ist_wait_result ist_cuda_poll_signal(ist_coop *coop, const ist_dev_comm *dev,
                                                   uint32_t context, uint32_t signal,
                                                   uint64_t least, uint64_t deadline_ns)
{
    if (!ist_cuda_gin_ready(dev)) {
        return IST_WAIT_ERROR;
    }
    ist_cuda_watch watch = ist_cuda_watch_open(deadline_ns);
    ist_wait_result result = IST_WAIT_DONE;
    while ((int64_t)(ist_gin_signal_read(coop, dev, context, signal, IST_ACQUIRE) - least) < 0) {
        if (result != IST_WAIT_DONE) {
            return result;
        }
        result = ist_cuda_watch_check(coop, dev, &watch);
    }
    return IST_WAIT_DONE;
}

IST_DEVICE_FN ist_wait_result ist_gin_signal_wait(ist_coop *coop, const ist_dev_comm *dev,
                                                  uint32_t context, uint32_t signal, uint64_t least,
                                                  uint64_t deadline_ns)
{
    ist_wait_result result = IST_WAIT_DONE;
    if (coop->thread == 0) {
        result = ist_cuda_poll_signal(coop, dev, context, signal, least, deadline_ns);
    }
    return (ist_wait_result)ist_cuda_broadcast(coop, (uint64_t)result);
}

IST_DEVICE_FN ist_wait_result ist_gin_counter_wait(ist_coop *coop, const ist_dev_comm *dev,
                                                   uint32_t context, uint32_t counter,
                                                   uint64_t least, uint64_t deadline_ns)
{
    ist_wait_result result = IST_WAIT_DONE;
    if (coop->thread == 0) {
        result = ist_cuda_poll_counter(coop, dev, context, counter, least, deadline_ns);
    }
    return (ist_wait_result)ist_cuda_broadcast(coop, (uint64_t)result);
}

/** One lane: until all puts counted so far in a counter are complete. */
IST_DEVICE_FN ist_wait_result ist_cuda_flush_one(ist_coop *coop, const ist_dev_comm *dev,
                                                 uint32_t context, uint32_t counter,
                                                 uint64_t deadline_ns)
{
    uint64_t issued =
        ist_load_u64(coop, ist_cuda_issued(dev, context, counter), IST_RELAXED, IST_SCOPE_DEVICE);
    return ist_cuda_poll_counter(coop, dev, context, counter, issued, deadline_ns);
}

/** Lanes over counters: the block's own is the last. */
IST_DEVICE_FN ist_wait_result ist_gin_flush(ist_coop *coop, const ist_dev_comm *dev,
                                            uint32_t context, uint64_t deadline_ns)
{
    ist_wait_result result = IST_WAIT_DONE;
    ist_coop_sync(coop);
    if (!ist_cuda_gin_ready(dev)) {
        return IST_WAIT_ERROR;
    }
    uint32_t own = ist_cuda_flush_counter(coop, dev);
    for (uint32_t i = coop->thread; i <= dev->counter_count; i += coop->thread_count) {
        uint32_t counter = i < dev->counter_count ? i : own;
        ist_wait_result one = counter == IST_GIN_NO_COUNTER
                                  ? IST_WAIT_ERROR
                                  : ist_cuda_flush_one(coop, dev, context, counter, deadline_ns);
        result = one > result ? one : result;
    }
    return ist_cuda_worst(coop, result);
}

#endif
