/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_wait.cuh
 * Waiting for peers: one lane a peer, results in the caller's scratch.
 */
#ifndef IST_CUDA_WAIT_CUH
#define IST_CUDA_WAIT_CUH

/** What a peer has reached; acquire at system scope. `lsa`: it is in the load/store team. */
IST_DEVICE_FN uint64_t ist_cuda_peer_value(ist_coop *coop, const ist_dev_comm *dev,
                                           const ist_peer_wait *wait, uint32_t peer, int lsa)
{
    if (lsa) {
        return ist_load_u64(coop, &wait->words[peer], IST_ACQUIRE, IST_SCOPE_SYSTEM);
    }
    if (!ist_cuda_gin_ready(dev)) {
        return 0;
    }
    return ist_gin_signal_read(coop, dev, peer % dev->context_count, wait->signal_first + peer,
                               IST_ACQUIRE);
}

/** What else can end the wait for this peer; read on the same beat as the abort word. */
IST_DEVICE_FN ist_wait_result ist_cuda_peer_state(ist_coop *coop, const ist_dev_comm *dev,
                                                  uint32_t peer, int lsa)
{
    if (!ist_mask_active(coop, dev, peer)) {
        return IST_WAIT_MASKED;
    }
    if (!lsa && ist_gin_peer_error(coop, dev, peer)) {
        return IST_WAIT_ERROR;
    }
    return IST_WAIT_DONE;
}

/**
 * One lane. The mask is read even if the value is there at once: a masked peer is never DONE. Both
 * loads are started before either is looked at. After TIMEOUT the value has been read once more.
 */
IST_DEVICE_FN ist_wait_result ist_cuda_wait_peer(ist_coop *coop, const ist_dev_comm *dev,
                                                 const ist_peer_wait *wait, uint32_t peer)
{
    if (wait->skip_self && peer == dev->rank) {
        return IST_WAIT_DONE;
    }
    ist_cuda_watch watch = ist_cuda_watch_open(wait->deadline_ns);
    int lsa = ist_dev_is_lsa(dev, peer); /* once: an acquire makes the next look a load from L2 */
    ist_wait_result result = ist_cuda_peer_state(coop, dev, peer, lsa);
    uint64_t value = ist_cuda_peer_value(coop, dev, wait, peer, lsa);
    while (result == IST_WAIT_DONE && value != wait->expected) {
        result = ist_cuda_watch_check(coop, dev, &watch);
        if (watch.looked && result != IST_WAIT_ABORTED) {
            ist_wait_result state = ist_cuda_peer_state(coop, dev, peer, lsa);
            result = state == IST_WAIT_DONE ? result : state;
        }
        value = ist_cuda_peer_value(coop, dev, wait, peer, lsa);
    }
    return result == IST_WAIT_TIMEOUT && value == wait->expected ? IST_WAIT_DONE : result;
}

/** The lanes wait in rounds of one peer each, so that one barrier counts and publishes a round. */
IST_DEVICE_FN uint32_t ist_wait_peers(ist_coop *coop, const ist_dev_comm *dev,
                                      const ist_peer_wait *wait, uint8_t *results)
{
    uint32_t lost = 0;
    uint32_t ranks = ist_dev_rank_count(dev);
    ist_cuda_bulk_drain(coop);
#pragma unroll 1
    for (uint32_t first = 0; first < ranks; first += coop->thread_count) {
        uint32_t peer = first + coop->thread;
        ist_wait_result result = IST_WAIT_DONE;
        if (peer < ranks) {
            result = ist_cuda_wait_peer(coop, dev, wait, peer);
            results[peer] = (uint8_t)result;
        }
        lost += ist_cuda_sync_count(coop, result != IST_WAIT_DONE && result != IST_WAIT_MASKED);
    }
    return lost;
}

#endif
