/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel `explore_slots`, one block a rank: fills this rank's slot at every member of its load/store
 * team. Nothing here orders the rows: the barrier behind the kernel has to.
 */
#include "explore_kernel.h"

IST_KERNEL(explore_slots, explore_slots_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t place = args->offset + (uint64_t)dev->rank * EXPLORE_SLOT_BYTES;
    for (uint32_t member = 0; member < dev->lsa_size; ++member) {
        uint32_t peer = dev->rank - dev->lsa_rank + member;
        void *slot = ist_window_peer(coop, dev, 0, place, peer);
        if (slot != NULL) {
            ist_row_fill(coop, slot, (uint8_t)args->value, EXPLORE_SLOT_BYTES);
        }
    }
}
