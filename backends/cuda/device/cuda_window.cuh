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
    if (window >= IST_CUDA_WINDOW_COUNT_MAX) {
        return NULL;
    }
    const ist_dev_window *entry =
        (const ist_dev_window *)((const char *)dev + IST_CUDA_WINDOWS_AT) + window;
    return offset < (uint64_t)__ldg((const unsigned long long *)&entry->bytes) ? entry : NULL;
}

IST_DEVICE_FN void *ist_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                                     uint64_t offset)
{
    (void)coop;
    const ist_dev_window *entry = ist_cuda_window_at(dev, window, offset);
    return entry == NULL ? NULL : (char *)ist_cuda_table_pointer(&entry->local) + offset;
}

/** A window's [2][lsa_size] addresses and bytes at the members of the team. */
IST_DEVICE_FN void *const *ist_cuda_window_members(const ist_dev_comm *dev, uint32_t window,
                                                   const ist_dev_window *entry)
{
    return window == 0 ? (void *const *)((const char *)dev + IST_CUDA_MEMBERS_AT)
                       : (void *const *)ist_cuda_table_pointer(&entry->lsa);
}

/** The range is that of the peer's copy: behind the addresses stand the members' bytes. */
IST_DEVICE_FN void *ist_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window,
                                    uint64_t offset, uint32_t peer)
{
    (void)coop;
    const ist_dev_window *entry = ist_cuda_window_at(dev, window, 0);
    if (entry == NULL || !ist_dev_is_lsa(dev, peer)) {
        return NULL;
    }
    void *const *bases = ist_cuda_window_members(dev, window, entry);
    uint32_t member = peer - (__ldg(&dev->rank) - __ldg(&dev->lsa_rank));
    const void *const *bytes = (const void *const *)bases + __ldg(&dev->lsa_size) + member;
    bool inside = offset < (uint64_t)__ldg((const unsigned long long *)bytes);
    return inside ? (char *)ist_cuda_table_pointer(&bases[member]) + offset : NULL;
}

#endif
