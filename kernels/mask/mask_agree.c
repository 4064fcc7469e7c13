/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement of the survivors on one mask and the next generation.
 *
 * Phases:
 *   1 look    a rank that was told it is out does not take part: the others count on its silence
 *   2 flood   mask_flood.h, starting from this rank's mask
 *   3 enact   generation + 1, and the answer to the host
 *
 * Mask, generation and answer are in no order: the host reads them when the kernel has ended, and kernels
 * that run beside this one take each word by itself. So does ist_comm_mask_query() after an agreement that
 * the host has given up: it may see the new generation with words of the old mask.
 *
 * Tags carry the generation, which every successful agreement changes, so messages of different
 * agreements never match.
 */
#include "mask_flood.h"

IST_KERNEL(mask_agree, ist_mask_agree_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_mask_flood flood;
    flood.dev = dev;
    flood.at = ist_mask_layout_of(dev->rank_count);
    ist_wire wire = ist_mask_wire(coop, dev);
    flood.position = ist_wire_enter(coop, &wire);
    flood.deadline_ns = args->deadline_ns;
    flood.operation = IST_DEV_OP_AGREE;
    flood.rounds = 0;
    uint64_t generation = ist_wire_generation(coop, dev);
    flood.pair = (uint32_t)(generation & 1u);
    flood.reserved = 0;
    flood.instance = generation << IST_MASK_GENERATION_SHIFT;
    int32_t status = IST_ERR_EVICTED;
    ist_point(coop, "mask.agree.begin");
    if (!ist_wire_noticed(coop, &wire, NULL)) {
        status = ist_mask_agree_on(coop, &flood);
    }
    if (status == IST_OK && ist_coop_elect(coop)) {
        ist_store_u64(coop, &dev->mask->generation, generation + 1u, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    ist_mask_answer(coop, dev, args->result, args->sequence, status, flood.rounds);
}
