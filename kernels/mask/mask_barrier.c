/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barrier of the active ranks.
 *
 * Phases:
 *   1 number  tag = generation and number of the barrier since the last clean
 *   2 raise   this rank's flag at every active peer: a release at system scope, or a strong signal,
 *             of everything earlier on the stream
 *   3 wait    for the flags of all active peers: an acquire; the silent are dropped
 *
 * Flags alternate between two channels. A peer can be at most one barrier ahead: it leaves barrier
 * n + 1 only after this rank has entered it, and this rank enters it after it has read the flags of
 * barrier n; so a flag is never overwritten unread. A peer that dropped this rank may run ahead,
 * but no longer writes here.
 */
#include "mask_wire.h"

IST_KERNEL(mask_barrier, ist_mask_barrier_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_mask_layout at = ist_mask_layout_of(dev->rank_count);
    ist_wire wire = ist_mask_wire(coop, dev);
    ist_mask_state *state = ist_mask_state_of(coop, dev, &at);
    uint8_t *active = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    uint64_t position = ist_wire_enter(coop, &wire);
    uint64_t epoch = 1u + ist_load_u64(coop, &state->barrier_epoch, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_wire_want want;
    want.channel = ist_mask_channel_of(dev, &at, IST_MASK_BARRIER + (uint32_t)(epoch & 1u));
    want.tag =
        ist_wire_generation(coop, dev) << IST_WIRE_EPOCH_BITS | (epoch & IST_WIRE_EPOCH_MASK);
    want.position = position;
    want.deadline_ns = args->deadline_ns;
    want.operation = IST_DEV_OP_BARRIER;
    want.reserved = 0;
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &state->barrier_epoch, epoch, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    if (ist_wire_noticed(coop, &wire, NULL)) {
        return;
    }
    ist_wire_active(coop, dev, active);
    ist_point(coop, "mask.barrier.begin");
    ist_wire_raise_all(coop, dev, want.channel, want.tag, active);
    ist_point(coop, "mask.barrier.raised");
    ist_wire_wait(coop, &wire, &want, ist_mask_results(coop, dev));
}
