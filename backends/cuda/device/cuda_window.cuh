/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_window.cuh
 * Addresses in windows. The tables do not change while a kernel runs, so they are read through the
 * read-only path, which an acquire does not empty.
 */
#ifndef IST_CUDA_WINDOW_CUH
#define IST_CUDA_WINDOW_CUH

/** A pointer out of a constant table. */
IST_DEVICE_FN void *ist_cuda_table_pointer(const void *entry)
{
    return (void *)__ldg((const unsigned long long *)entry);
}

/** The private part of a dev comm. */
IST_DEVICE_FN const ist_cuda_dev_comm *ist_cuda_private(const ist_dev_comm *dev)
{
    return (const ist_cuda_dev_comm *)ist_cuda_table_pointer(&dev->backend);
}

/** The window's entry when `offset` lies inside it, else NULL. */
IST_DEVICE_FN const ist_dev_window *ist_cuda_window_at(const ist_dev_comm *dev, uint32_t window,
                                                       uint64_t offset)
{
    if (window >= __ldg(&dev->window_count)) {
        return NULL;
    }
    const ist_dev_window *entry =
        (const ist_dev_window *)ist_cuda_table_pointer(&dev->windows) + window;
    return offset < (uint64_t)__ldg((const unsigned long long *)&entry->bytes) ? entry : NULL;
}

IST_DEVICE_FN void *ist_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                                     uint64_t offset)
{
    (void)coop;
    const ist_dev_window *entry = ist_cuda_window_at(dev, window, offset);
    return entry == NULL ? NULL : (char *)ist_cuda_table_pointer(&entry->local) + offset;
}

/** The range is that of this rank's copy; peers may have opened more or less. */
IST_DEVICE_FN void *ist_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                                    uint64_t offset, uint32_t peer)
{
    (void)coop;
    const ist_dev_window *entry = ist_cuda_window_at(dev, window, offset);
    if (entry == NULL || !ist_dev_is_lsa(dev, peer)) {
        return NULL;
    }
    void *const *bases = (void *const *)ist_cuda_table_pointer(&entry->lsa);
    return (char *)ist_cuda_table_pointer(&bases[peer - (dev->rank - dev->lsa_rank)]) + offset;
}

#endif
