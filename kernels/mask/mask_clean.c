/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Re-admission: the participants that the host exchange found get one mask with a new generation.
 *
 * mask_clean_begin, before the exchange: zeroes accounts and signals of the channels that mask_clean
 * uses, on this rank.
 *
 * mask_clean, after it:
 *   1 admit   mask = participants, the new generation, no eviction, no network errors
 *   2 drain   raise the drain flag at all participants and wait for theirs. On the network the
 *             signal is strong and travels on the context of all of the peer's traffic, so
 *             everything that the peer had sent before has arrived
 *   3 reset   numbers, accounts and signals of barriers
 *   4 agree   flooding among the participants that are left; nobody passes its first round before
 *             all have reset, so no new flag can meet an old account
 *
 * Signals of phases 2 and 4 were zeroed before the exchange, which all participants have left before
 * any of them begins phase 2. Words of the team are not: all tags carry the generation, which is new.
 */
#include "mask_flood.h"

/* Together below the bits that a beat leaves for the count. */
#define IST_MASK_LAUNCH_BITS 22u
#define IST_MASK_LAUNCH_GENERATION_BITS 12u

IST_KERNEL(mask_clean_begin, ist_mask_clean_begin_args)
{
    ist_mask_layout at = ist_mask_layout_of(args->dev->rank_count);
    ist_mask_reset(coop, args->dev, &at, IST_MASK_FLOOD, IST_MASK_CHANNELS - IST_MASK_FLOOD);
}

/** Where the count of kernels begins in a generation: no beat of this one equals one that was left from before
 *  the clean, which then would pass for silence. All ranks count on from the same number. */
IST_DEVICE_FN uint64_t ist_mask_launches_from(uint64_t generation)
{
    return (generation & ((UINT64_C(1) << IST_MASK_LAUNCH_GENERATION_BITS) - 1u))
           << IST_MASK_LAUNCH_BITS;
}

/** Phase 1; phase 2 begins with a sync. The words are in no order, as those of an agreement. Collective. */
IST_DEVICE_FN void ist_mask_admit(ist_coop *coop, const ist_mask_clean_args *args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t words = ist_mask_word_count(dev);
    IST_EACH_LANE (coop, i, words) {
        uint64_t word = ist_load_u64(coop, &args->participants[i], IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &dev->mask->words[i], word, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        if (!ist_dev_is_lsa(dev, peer)) {
            ist_gin_peer_clear(coop, dev, peer);
        }
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &dev->mask->evicted, 0, IST_RELAXED, IST_SCOPE_SYSTEM);
        ist_store_u64(coop, &dev->mask->generation, args->generation, IST_RELAXED,
                      IST_SCOPE_SYSTEM);
    }
}

/** Phase 2. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_mask_drain(ist_coop *coop, const ist_mask_flood *flood)
{
    const ist_dev_comm *dev = flood->dev;
    ist_wire wire = ist_mask_wire(coop, dev);
    uint8_t *active = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    ist_wire_want want;
    want.channel = ist_mask_channel_of(dev, &flood->at, IST_MASK_DRAIN);
    want.tag = flood->instance;
    want.position = flood->position;
    want.deadline_ns = flood->deadline_ns;
    want.operation = flood->operation;
    want.reserved = 0;
    ist_wire_active(coop, dev, active);
    ist_wire_raise_all(coop, dev, want.channel, want.tag, active);
    return ist_wire_wait(coop, &wire, &want, ist_mask_results(coop, dev));
}

/** Phases 2 to 4. Collective. */
IST_DEVICE_FN int32_t ist_mask_readmit(ist_coop *coop, ist_mask_flood *flood)
{
    const ist_dev_comm *dev = flood->dev;
    ist_mask_state *state = ist_mask_state_of(coop, dev, &flood->at);
    uint32_t outcome = ist_mask_drain(coop, flood);
    ist_point(coop, "mask.clean.drained");
    if (outcome & IST_WIRE_ABORTED) {
        return IST_ERR_ABORTED;
    }
    if (outcome & IST_WIRE_EVICTED) {
        return IST_ERR_EVICTED;
    }
    ist_mask_reset(coop, dev, &flood->at, IST_MASK_BARRIER, 2);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &state->barrier_epoch, 0, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_point(coop, "mask.clean.reset");
    flood->position += 1u;
    return ist_mask_agree_on(coop, flood);
}

/** Whether every rank of the communicator is active. Collective. */
IST_DEVICE_FN int ist_mask_is_full(ist_coop *coop, const ist_dev_comm *dev)
{
    uint8_t *active = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    uint32_t count = 0;
    ist_wire_active(coop, dev, active);
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        count += active[peer];
    }
    return count == dev->rank_count;
}

IST_KERNEL(mask_clean, ist_mask_clean_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_mask_flood flood;
    flood.dev = dev;
    flood.at = ist_mask_layout_of(dev->rank_count);
    ist_mask_state *state = ist_mask_state_of(coop, dev, &flood.at);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &state->launches, ist_mask_launches_from(args->generation), IST_RELAXED,
                      IST_SCOPE_DEVICE);
    }
    ist_wire wire = ist_mask_wire(coop, dev);
    flood.position = ist_wire_enter(coop, &wire);
    flood.deadline_ns = args->deadline_ns;
    flood.operation = IST_DEV_OP_CLEAN;
    flood.pair = 2;
    flood.rounds = 0;
    flood.reserved = 0;
    flood.instance = IST_MASK_CLEAN_INSTANCE | args->generation << IST_MASK_GENERATION_SHIFT;
    ist_point(coop, "mask.clean.begin");
    ist_mask_admit(coop, args);
    int32_t status = ist_mask_readmit(coop, &flood);
    if (status == IST_OK && !ist_mask_is_full(coop, dev)) {
        status = IST_INCOMPLETE;
    }
    ist_mask_answer(coop, dev, args->result, args->sequence, status, flood.rounds);
}
