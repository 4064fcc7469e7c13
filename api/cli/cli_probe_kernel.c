/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's kernels but for puts: one text for both worlds. Each does what it measures `warmup` times
 * untimed and `rounds` times between two looks at the clock.
 */
#include "cli_probe_kernel.h"

/* One lane writes when the block began and ended. */
IST_DEVICE_FN void probe_note(ist_coop *coop, uint64_t *times, uint64_t begin, uint64_t end)
{
    uint64_t *own = times + 2u * ist_coop_block(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, own, begin, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, own + 1, end, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

IST_KERNEL(cli_probe_empty, probe_args)
{
    (void)coop;
    (void)args;
}

/* ---- flags ----------------------------------------------------------------------------------- */

/* One round: a release store into the peer's word, and a wait for its answer in this rank's. */
IST_DEVICE_FN int probe_round(ist_coop *coop, const probe_args *args, uint64_t *theirs,
                              const uint64_t *own, uint64_t value)
{
    int first = args->first != 0;
    ist_wait_result result = IST_WAIT_DONE;
    if (first && ist_coop_elect(coop)) {
        ist_store_u64(coop, theirs, value, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
    result = ist_coop_wait_word(coop, args->dev, own, value, ist_clock_ns(coop) + args->deadline_ns,
                                IST_SCOPE_SYSTEM);
    if (!first && ist_coop_elect(coop)) {
        ist_store_u64(coop, theirs, value, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
    return result == IST_WAIT_DONE;
}

IST_KERNEL(cli_probe_flags, probe_args)
{
    uint64_t *theirs =
        (uint64_t *)ist_window_peer(coop, args->dev, args->window, args->flag, args->peer);
    const uint64_t *own =
        (const uint64_t *)ist_window_local(coop, args->dev, args->window, args->flag);
    uint64_t begin = 0;
    for (uint32_t i = 0; i < args->warmup + args->rounds; ++i) {
        if (i == args->warmup) {
            begin = ist_clock_ns(coop);
        }
        if (!probe_round(coop, args, theirs, own, args->base + i + 1)) {
            probe_note(coop, args->times, 0, PROBE_MARK_FAILED);
            return;
        }
    }
    probe_note(coop, args->times, begin, ist_clock_ns(coop));
}

/* ---- copies ---------------------------------------------------------------------------------- */

IST_DEVICE_FN void *probe_place(ist_coop *coop, const probe_args *args, int at_peer,
                                uint64_t offset)
{
    return at_peer ? ist_window_peer(coop, args->dev, args->window, offset, args->peer)
                   : ist_window_local(coop, args->dev, args->window, offset);
}

/* Blocks share the bytes in equal parts of whole 16-byte words, and begin together on all ranks. */
IST_KERNEL(cli_probe_copy, probe_args)
{
    uint32_t block = ist_coop_block(coop);
    uint64_t words = args->bytes / 16u;
    uint64_t first = words * block / ist_coop_block_count(coop) * 16u;
    uint64_t last = words * (block + 1u) / ist_coop_block_count(coop) * 16u;
    uint64_t deadline_ns = ist_clock_ns(coop) + args->deadline_ns;
    if (ist_lsa_barrier_sync(coop, args->dev, block, deadline_ns, NULL) != IST_WAIT_DONE) {
        probe_note(coop, args->times, 0, PROBE_MARK_FAILED);
        return;
    }
    uint64_t begin = ist_clock_ns(coop);
    for (uint32_t i = 0; i < args->rounds && last > first; ++i) {
        /* Another place each round: what is measured is not a cache. */
        uint64_t at = i * args->bytes + first;
        ist_row_copy(coop, probe_place(coop, args, args->way == PROBE_WAY_STORE, args->to + at),
                     probe_place(coop, args, args->way == PROBE_WAY_LOAD, args->from + at),
                     last - first);
        /* Bytes count when they have arrived, not when they were sent. */
        ist_fence(coop, IST_RELEASE, IST_SCOPE_SYSTEM);
        ist_coop_sync(coop);
    }
    probe_note(coop, args->times, begin, ist_clock_ns(coop));
}

/* ---- barrier, words -------------------------------------------------------------------------- */

IST_KERNEL(cli_probe_barrier, probe_args)
{
    uint32_t block = ist_coop_block(coop);
    uint64_t begin = 0;
    for (uint32_t i = 0; i < args->warmup + args->rounds; ++i) {
        uint64_t now_ns = ist_clock_ns(coop);
        if (i == args->warmup) {
            begin = now_ns;
        }
        if (ist_lsa_barrier_sync(coop, args->dev, block, now_ns + args->deadline_ns, NULL) !=
            IST_WAIT_DONE) {
            probe_note(coop, args->times, 0, PROBE_MARK_FAILED);
            return;
        }
    }
    probe_note(coop, args->times, begin, ist_clock_ns(coop));
}

/* Three times: syncs, atomics, acquiring loads; one block, one lane where a lane is enough. */
IST_KERNEL(cli_probe_words, probe_args)
{
    uint64_t sum = 0;
    uint64_t begin = ist_clock_ns(coop);
    for (uint32_t i = 0; i < args->rounds; ++i) {
        ist_coop_sync(coop);
    }
    uint64_t synced = ist_clock_ns(coop);
    if (!ist_coop_elect(coop)) {
        return;
    }
    for (uint32_t i = 0; i < args->rounds; ++i) {
        sum += ist_fetch_add_u64(coop, args->word, 1, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    uint64_t added = ist_clock_ns(coop);
    for (uint32_t i = 0; i < args->rounds; ++i) {
        sum += ist_load_u64(coop, args->word, IST_ACQUIRE, IST_SCOPE_DEVICE);
    }
    uint64_t loaded = ist_clock_ns(coop);
    /* The sum is written so that nothing is left out. */
    ist_store_u64(coop, args->word, sum, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, args->times, synced - begin, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, args->times + 1, added - synced, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_store_u64(coop, args->times + 2, loaded - added, IST_RELAXED, IST_SCOPE_DEVICE);
}
