/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel `cli_gather`, one block a rank. Phases: every rank writes its record into the root's inbox
 * and then its word or signal there (release: the word says that the record lies there); the root
 * waits for all of them, each for itself, and notes who has come.
 */
#include "cli_gather.h"

/* This rank's row goes to the root, then the word that covers it. */
IST_DEVICE_FN void gather_send(ist_coop *coop, const cli_gather_args *args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t row = args->inbox + dev->rank * args->bytes;
    if (!ist_dev_is_lsa(dev, args->root)) {
        ist_gin_action raise = {IST_GIN_SIGNAL_ADD, dev->rank, args->tag};
        uint32_t context = dev->rank % dev->context_count;
        ist_gin_put(coop, dev, context, args->root, args->window, row, args->window, 0, args->bytes,
                    raise, IST_GIN_NO_COUNTER);
        ist_gin_flush(coop, dev, context, ist_clock_ns(coop) + args->deadline_ns);
        return;
    }
    void *there = ist_window_peer(coop, dev, args->window, row, args->root);
    uint64_t *word = (uint64_t *)ist_window_peer(
        coop, dev, args->window, args->words + dev->rank * sizeof(uint64_t), args->root);
    if (there == NULL || word == NULL) {
        return; /* the root has left */
    }
    ist_row_copy(coop, there, ist_window_local(coop, dev, args->window, 0), args->bytes);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, word, args->tag, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

/* The root notes whose record has come. */
IST_DEVICE_FN void gather_receive(ist_coop *coop, const cli_gather_args *args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t *arrived = (uint32_t *)ist_window_local(coop, dev, args->window, args->arrived);
    uint8_t *results = (uint8_t *)ist_coop_scratch(coop, 0, dev->rank_count);
    const uint64_t *words =
        (const uint64_t *)ist_window_local(coop, dev, args->window, args->words);
    ist_peer_wait wait = {words, args->tag, ist_clock_ns(coop) + args->deadline_ns, 0, 0};
    ist_wait_peers(coop, dev, &wait, results);
    IST_EACH_LANE (coop, peer, dev->rank_count) {
        uint32_t done = results[peer] == IST_WAIT_DONE ? 1u : 0u;
        ist_store_u32(coop, &arrived[peer], done, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

IST_KERNEL(cli_gather, cli_gather_args)
{
    gather_send(coop, args);
    if (args->dev->rank == args->root) {
        gather_receive(coop, args);
    }
}
