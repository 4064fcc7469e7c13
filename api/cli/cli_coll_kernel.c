/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels `cli_coll_write` and `cli_coll_read`, one block a rank. The first writes a value into this
 * rank's word of every load/store peer, without any order of its own: the barrier that follows has to
 * give it. The second counts how many of the others' words have another value.
 */
#include "cli_coll_kernel.h"

IST_KERNEL(cli_coll_write, coll_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t first = dev->rank - dev->lsa_rank;
    IST_EACH_LANE (coop, i, dev->lsa_size) {
        uint64_t *word =
            (uint64_t *)ist_window_peer(coop, dev, 0, dev->rank * sizeof(uint64_t), first + i);
        if (word != NULL && i != dev->lsa_rank) {
            ist_store_u64(coop, word, args->value, IST_RELAXED, IST_SCOPE_SYSTEM);
        }
    }
}

IST_KERNEL(cli_coll_read, coll_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t first = dev->rank - dev->lsa_rank;
    const uint64_t *words = (const uint64_t *)ist_window_local(coop, dev, 0, 0);
    uint64_t wrong = 0;
    if (!ist_coop_elect(coop)) {
        return;
    }
    for (uint32_t i = 0; i < dev->lsa_size; ++i) {
        uint64_t found = ist_load_u64(coop, words + first + i, IST_RELAXED, IST_SCOPE_SYSTEM);
        wrong += i != dev->lsa_rank && found != args->value;
    }
    ist_store_u64(coop, args->wrong, wrong, IST_RELAXED, IST_SCOPE_DEVICE);
}
