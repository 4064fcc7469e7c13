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

/** For a protocol with its own dev comm. */
IST_DEVICE_FN ist_wire ist_mask_wire_of(const ist_dev_comm *dev, const ist_dev_comm *service)
{
    ist_mask_layout at = ist_mask_layout_of(service->rank_count);
    ist_wire wire;
    wire.dev = dev;
    wire.service = service;
    wire.notices = at.notices;
    wire.beats = at.beats;
    wire.seen = at.seen;
    wire.launches = at.state + offsetof(ist_mask_state, launches);
    return wire;
}

/** For the service itself. */
IST_DEVICE_FN ist_wire ist_mask_wire(const ist_dev_comm *service)
{
    return ist_mask_wire_of(service, service);
}

#endif
