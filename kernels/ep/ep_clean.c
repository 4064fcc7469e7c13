/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Realignment of a group after its ranks have been re-admitted. One block.
 *
 * ep_clean_begin, before the communicator's clean: zeroes accounts and signals of the drain and close
 * channels here.
 *
 * ep_clean, after it (the mask and its generation are the new ones):
 *   1 drain   raise the drain flag at all active ranks, wait for theirs. The signal is strong and
 *             on the context of all that the peer sends, so everything sent before has arrived
 *   2 reset   numbers, slots, signals and accounts of operations, and words whose tags are
 *             operation numbers alone
 *   3 close   raise the close flag, wait: nobody sends for the first operation of the new
 *             generation before all have reset; look for notices
 *
 * The communicator's clean lies between the two kernels on all ranks, so a flag of phase 1 cannot
 * meet ep_clean_begin. A rank that does not come is dropped, as in any operation.
 */
#include "ep_wire.h"

/** Zeroes the accounts and signals of some channels; a sync must follow before any of them is used. Words
 *  stay: tags carry the generation, which a clean changes, so that none of before equals one. Collective. */
IST_DEVICE_FN void ist_ep_reset_channels(ist_coop *coop, const ist_ep_clean_args *args,
                                         uint32_t first, uint32_t count)
{
    uint64_t bytes = 8u * (uint64_t)count * args->geometry.rank_count;
    ist_wire_channel channel = ist_ep_channel(&args->geometry, &args->at, first);
    ist_row_fill(coop, ist_wire_word(coop, args->dev, channel.sent, 0), 0, bytes);
    ist_wire_reset_signals(coop, args->dev, channel.signal_first, count);
}

IST_KERNEL(ep_clean_begin, ist_ep_clean_args)
{
    ist_ep_reset_channels(coop, args, ist_ep_channel_count(&args->geometry) - 2u, 2);
}

/** Raises a flag at all active ranks and waits for theirs: begins with a sync, and raises behind
 *  another. @return ist_wire_outcome. Collective. */
IST_DEVICE_FN uint32_t ist_ep_clean_meet(ist_coop *coop, const ist_ep_clean_args *args,
                                         uint32_t channel, uint64_t position)
{
    const ist_dev_comm *dev = args->dev;
    ist_wire wire = ist_mask_wire_find(coop, dev, args->service);
    uint8_t *marks = ist_wire_marks_of(coop, ist_dev_rank_count(dev));
    ist_wire_want want;
    want.channel = ist_ep_channel(&args->geometry, &args->at, channel);
    /* A channel a meeting. Generations have 24 bits in tags and in notices: 16 million cleans. */
    want.tag = ist_wire_generation(coop, dev) << IST_WIRE_EPOCH_BITS;
    want.position = position;
    want.deadline_ns = args->deadline_ns;
    want.operation = IST_DEV_OP_EP_CLEAN;
    want.reserved = 0;
    ist_wire_active(coop, dev, marks);
    ist_wire_raise_all(coop, dev, want.channel, want.tag, marks);
    return ist_wire_wait(coop, &wire, &want, ist_ep_results(coop, ist_dev_rank_count(dev)));
}

/** Phase 2; the meeting that follows begins with a sync. Collective. */
IST_DEVICE_FN void ist_ep_restart(ist_coop *coop, const ist_ep_clean_args *args)
{
    const ist_dev_comm *dev = args->dev;
    ist_ep_state *state = (ist_ep_state *)ist_window_local(coop, dev, 0, args->at.state);
    ist_ep_reset_channels(coop, args, 0, ist_ep_channel_count(&args->geometry) - 2u);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, &state->head.epoch, 0, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, &state->head.busy, 0, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, &state->turns, 0, IST_RELAXED, IST_SCOPE_DEVICE);
    }
    IST_ROLLED
    for (uint32_t slot = 0; args->geometry.reduced && slot < args->geometry.slot_count; ++slot) {
        uint64_t asked = args->at.slots + slot * args->at.slot_bytes + args->at.asked;
        uint64_t *words = (uint64_t *)ist_window_local(coop, dev, 0, asked);
        IST_EACH_LANE (coop, i, args->geometry.rank_count * args->at.asked_bytes / 8u) {
            ist_store_u64(coop, words + i, 0, IST_RELAXED, IST_SCOPE_SYSTEM);
        }
    }
}

/** Errors that the network reported before are no reason to give a peer up again. Lane-parallel. */
IST_DEVICE_FN void ist_ep_forgive(ist_coop *coop, const ist_dev_comm *dev)
{
    IST_EACH_LANE (coop, peer, ist_dev_rank_count(dev)) {
        if (!ist_dev_is_lsa(dev, peer)) {
            ist_gin_peer_clear(coop, dev, peer);
        }
    }
}

IST_KERNEL(ep_clean, ist_ep_clean_args)
{
    uint32_t last = ist_ep_channel_count(&args->geometry);
    ist_wire wire = ist_mask_wire_find(coop, args->dev, args->service);
    uint64_t position = ist_wire_enter(coop, &wire);
    ist_point(coop, "ep.clean.begin");
    ist_ep_forgive(coop, args->dev);
    uint32_t outcome = ist_ep_clean_meet(coop, args, last - 2u, position);
    ist_point(coop, "ep.clean.drained");
    if ((outcome & (IST_WIRE_ABORTED | IST_WIRE_EVICTED)) == 0) {
        ist_ep_restart(coop, args);
        ist_ep_clean_meet(coop, args, last - 1u, position + 1u);
        /* Who was stopped finds all flags at once, and that the senders have given up on it. */
        ist_wire_noticed(coop, &wire, NULL);
        ist_point(coop, "ep.clean.closed");
    }
}
