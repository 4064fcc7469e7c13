/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_mask.cuh
 * The rank mask: reading it through memory, giving a peer up, the abort word.
 *
 * All accesses are at system scope: the host reads and writes the same words.
 */
#ifndef IST_CUDA_MASK_CUH
#define IST_CUDA_MASK_CUH

IST_DEVICE_FN ist_dev_mask *ist_cuda_mask(const ist_dev_comm *dev)
{
    return (ist_dev_mask *)ist_cuda_table_pointer(&dev->mask);
}

IST_DEVICE_FN int ist_mask_active(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    ist_dev_mask *mask = ist_cuda_mask(dev);
    if (mask == NULL) {
        return 1;
    }
    uint64_t word = ist_load_u64(coop, &mask->words[peer / 64u], IST_RELAXED, IST_SCOPE_SYSTEM);
    return (int)(word >> (peer % 64u) & 1u);
}

IST_DEVICE_FN int ist_aborted(ist_coop *coop, const ist_dev_comm *dev)
{
    ist_dev_mask *mask = dev != NULL ? ist_cuda_mask(dev) : NULL; /* waits may have no dev comm */
    return mask != NULL &&
           ist_load_u64(coop, &mask->abort_word, IST_RELAXED, IST_SCOPE_SYSTEM) != 0;
}

/** Writes an entry; relaxed, the count that follows releases it. */
IST_DEVICE_FN void ist_cuda_error_write(ist_coop *coop, ist_dev_error *entry,
                                        const ist_dev_error *error)
{
    ist_store_u32(coop, (uint32_t *)&entry->status, (uint32_t)error->status, IST_RELAXED,
                  IST_SCOPE_SYSTEM);
    ist_store_u32(coop, &entry->peer, error->peer, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u32(coop, &entry->operation, error->operation, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &entry->sequence, error->sequence, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &entry->expected, error->expected, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &entry->observed, error->observed, IST_RELAXED, IST_SCOPE_SYSTEM);
    ist_store_u64(coop, &entry->waited_ns, error->waited_ns, IST_RELAXED, IST_SCOPE_SYSTEM);
}

/** The turn to write entry `count`: its `reserved` word, 0 at rest, is the lock. */
IST_DEVICE_FN int ist_cuda_error_append(ist_coop *coop, ist_dev_mask *mask, uint64_t count,
                                        const ist_dev_error *error)
{
    ist_dev_error *entry = &mask->errors[count];
    if (!ist_cuda_try_lock(&entry->reserved)) {
        return 0;
    }
    int mine = ist_load_u64(coop, &mask->error_count, IST_RELAXED, IST_SCOPE_SYSTEM) == count;
    if (mine) {
        ist_cuda_error_write(coop, entry, error);
        ist_store_u64(coop, &mask->error_count, count + 1u, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
    ist_store_u32(coop, &entry->reserved, 0, IST_RELEASE, IST_SCOPE_SYSTEM);
    return mine;
}

/**
 * Keeps the first IST_DEV_ERRORS_MAX errors and counts all. The count is raised with release after
 * the entry is written: whoever reads a count with acquire finds that many entries complete. Lanes
 * that drop peers at the same time take turns.
 */
IST_DEVICE_FN void ist_cuda_error_record(ist_coop *coop, ist_dev_mask *mask,
                                         const ist_dev_error *error)
{
    for (;;) {
        uint64_t count = ist_load_u64(coop, &mask->error_count, IST_RELAXED, IST_SCOPE_SYSTEM);
        if (count >= IST_DEV_ERRORS_MAX) {
            ist_fetch_add_u64(coop, &mask->error_count, 1, IST_RELEASE, IST_SCOPE_SYSTEM);
            return;
        }
        if (ist_cuda_error_append(coop, mask, count, error)) {
            return;
        }
    }
}

/** Without a mask there is nothing to clear: 0. Without fault tolerance, the call that makes the
 *  communicator unusable counts as the one that cleared the bit. */
IST_DEVICE_FN int ist_mask_drop(ist_coop *coop, const ist_dev_comm *dev, const ist_dev_error *error)
{
    ist_dev_mask *mask = ist_cuda_mask(dev);
    if (mask == NULL || !ist_mask_active(coop, dev, error->peer)) {
        return 0;
    }
    int first;
    if (mask->fault_tolerant) {
        uint64_t bit = (uint64_t)1 << (error->peer % 64u);
        uint64_t before = ist_fetch_and_u64(coop, &mask->words[error->peer / 64u], ~bit,
                                            IST_ACQ_REL, IST_SCOPE_SYSTEM);
        first = (before & bit) != 0;
    } else {
        uint64_t before =
            ist_compare_swap_u64(coop, (uint64_t *)&mask->failed_status, 0,
                                 (uint64_t)(int64_t)error->status, IST_ACQ_REL, IST_SCOPE_SYSTEM);
        first = before == 0;
    }
    if (first) {
        ist_cuda_error_record(coop, mask, error);
        if (mask->alarm != NULL) {
            ist_store_u64(coop, mask->alarm, 1, IST_RELEASE, IST_SCOPE_SYSTEM);
        }
    }
    return first;
}

#endif
