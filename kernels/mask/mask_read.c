/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the mask, read through memory when the kernel runs, to one int32 a rank.
 *
 * Phases: 1 every lane reads bits and writes numbers; visible to later work of the stream.
 */
#include "mask_args.h"

IST_KERNEL(mask_read, ist_mask_read_args)
{
    IST_EACH_LANE (coop, peer, args->dev->rank_count) {
        uint32_t active = (uint32_t)ist_mask_active(coop, args->dev, peer);
        ist_store_u32(coop, (uint32_t *)&args->out[peer], active, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}
