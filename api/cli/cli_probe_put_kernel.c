/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's ping-pong by puts with a signal: one block, one put in flight.
 */
#include "cli_probe_kernel.h"

IST_DEVICE_FN void probe_put(ist_coop *coop, const probe_args *args)
{
    ist_gin_action raise = {IST_GIN_WEAK_SIGNAL_INC, 0, 0};
    ist_gin_put(coop, args->dev, 0, args->peer, args->window, args->to, args->window, args->from,
                args->bytes, raise, IST_GIN_NO_COUNTER);
}

/* args->base: what the signal has counted before. */
IST_KERNEL(cli_probe_put, probe_args)
{
    uint64_t begin = 0;
    uint64_t end = 0;
    ist_wait_result result = IST_WAIT_DONE;
    for (uint32_t i = 0; i < args->warmup + args->rounds && result == IST_WAIT_DONE; ++i) {
        uint64_t now_ns = ist_clock_ns(coop);
        begin = i == args->warmup ? now_ns : begin;
        if (args->first != 0) {
            probe_put(coop, args);
        }
        result = ist_gin_signal_wait(coop, args->dev, 0, 0, args->base + i + 1,
                                     now_ns + args->deadline_ns);
        if (args->first == 0 && result == IST_WAIT_DONE) {
            probe_put(coop, args);
        }
    }
    end = result == IST_WAIT_DONE ? ist_clock_ns(coop) : PROBE_MARK_FAILED;
    if (result == IST_WAIT_DONE) {
        ist_gin_flush(coop, args->dev, 0, end + args->deadline_ns);
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, args->times, begin, IST_RELAXED, IST_SCOPE_DEVICE);
        ist_store_u64(coop, args->times + 1, end, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}
