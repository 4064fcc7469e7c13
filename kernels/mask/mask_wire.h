/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mask_wire.h
 * Device helpers of the mask kernels: their channels, state and flood. One block a launch.
 */
#ifndef IST_MASK_WIRE_H
#define IST_MASK_WIRE_H

#include "../kernel_wire.h"
#include "mask_args.h"
#include "mask_service.h"

/** Scratch slots of these kernels. */
#define IST_MASK_SCRATCH_RESULTS IST_WIRE_SCRATCH_FIRST_FREE
#define IST_MASK_SCRATCH_VIEW (IST_WIRE_SCRATCH_FIRST_FREE + 1u)
#define IST_MASK_SCRATCH_MESSAGE (IST_WIRE_SCRATCH_FIRST_FREE + 2u)

IST_DEVICE_FN ist_wire_channel ist_mask_channel_of(const ist_dev_comm *dev,
                                                   const ist_mask_layout *at, uint32_t channel)
{
    ist_wire_channel of;
    of.words = at->words + 8u * (uint64_t)channel * dev->rank_count;
    of.sent = at->sent + 8u * (uint64_t)channel * dev->rank_count;
    of.signal_first = channel * dev->rank_count;
    of.reserved = 0;
    return of;
}

/** The state; only this rank's mask kernels touch it, one after another. Lane. */
IST_DEVICE_FN ist_mask_state *ist_mask_state_of(ist_coop *coop, const ist_dev_comm *dev,
                                                const ist_mask_layout *at)
{
    return (ist_mask_state *)ist_window_local(coop, dev, 0, at->state);
}

/** Results of waits, one byte a rank. Collective. */
IST_DEVICE_FN uint8_t *ist_mask_results(ist_coop *coop, const ist_dev_comm *dev)
{
    return (uint8_t *)ist_coop_scratch(coop, IST_MASK_SCRATCH_RESULTS, dev->rank_count);
}

/** Writes the answer for the host, which reads it when the kernel has ended. Collective. */
IST_DEVICE_FN void ist_mask_answer(ist_coop *coop, const ist_dev_comm *dev, ist_mask_result *result,
                                   uint64_t sequence, int32_t status, uint32_t rounds)
{
    if (ist_coop_elect(coop)) {
        uint64_t generation = ist_wire_generation(coop, dev);
        ist_store_u32(coop, (uint32_t *)&result->status, (uint32_t)status, IST_RELAXED,
                      IST_SCOPE_SYSTEM);
        ist_store_u32(coop, &result->rounds, rounds, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &result->generation, generation, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &result->sequence, sequence, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
}

/** Zeroes accounts and signals of channels [first, first + count). A sync must follow. Collective. */
IST_DEVICE_FN void ist_mask_reset(ist_coop *coop, const ist_dev_comm *dev,
                                  const ist_mask_layout *at, uint32_t first, uint32_t count)
{
    uint64_t bytes = 8u * (uint64_t)count * dev->rank_count;
    ist_wire_channel from = ist_mask_channel_of(dev, at, first);
    ist_row_fill(coop, ist_wire_word(coop, dev, from.sent, 0), 0, bytes);
    ist_wire_reset_signals(coop, dev, from.signal_first, count);
}

#endif
