/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mask_service.h
 * What every protocol of a communicator shares with its service: notices, beats, and the count of
 * kernels that waited. They lie in window 0 of the mask dev comm.
 */
#ifndef IST_MASK_SERVICE_H
#define IST_MASK_SERVICE_H

#include "../kernel_wire.h"
#include "mask_args.h"

/** For a protocol with its own dev comm, of the same ranks. */
IST_DEVICE_FN ist_wire ist_mask_wire_of(const ist_dev_comm *dev, const ist_dev_comm *service,
                                        uint8_t *own, uint8_t *common, uint32_t ranks,
                                        uint32_t rank)
{
    ist_mask_layout at = ist_mask_layout_of(ranks);
    ist_wire wire;
    wire.dev = dev;
    wire.service = service;
    wire.notices = at.notices;
    wire.beats = at.beats;
    wire.seen = at.seen;
    wire.launches = at.state + offsetof(ist_mask_state, launches);
    wire.own = own;
    wire.common = common;
    wire.ranks = ranks;
    wire.rank = rank;
    wire.room = ranks;
    wire.reserved = 0;
    return wire;
}

/** As ist_mask_wire_of(), for one that has not looked anything up. Lane. */
IST_DEVICE_FN ist_wire ist_mask_wire_find(ist_coop *coop, const ist_dev_comm *dev,
                                          const ist_dev_comm *service)
{
    return ist_mask_wire_of(dev, service, (uint8_t *)ist_window_local(coop, dev, 0, 0),
                            (uint8_t *)ist_window_local(coop, service, 0, 0),
                            ist_dev_rank_count(dev), ist_dev_rank(dev));
}

/** For the service itself. Lane. */
IST_DEVICE_FN ist_wire ist_mask_wire(ist_coop *coop, const ist_dev_comm *service)
{
    return ist_mask_wire_find(coop, service, service);
}

#endif
