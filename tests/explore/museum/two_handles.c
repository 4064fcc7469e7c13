/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two-handles. Slots for counts and flags belonged to the group, which bank was next was counted by each
 * handle, and flags said how many rows, not of which operation: two live handles used one bank at a
 * time, and one consumed the other's flag. Public: NVIDIA/nccl issue 2303.
 *
 * Here: two ranks exchange a row with one handle and then with another. Broken: both begin with bank 0,
 * the flag is a count and is cleared when it is consumed. Fixed: the group numbers its operations;
 * the number chooses the bank and is the flag. Oracle: every handle gets its own rows.
 */
#include "museum.h"

#define FLAGS 0u
#define BANKS 1024u
#define COPIES 4096u
#define OPERATIONS 4u

typedef struct handle_args {
    const ist_dev_comm *dev;
    uint32_t bank;
    uint32_t flag;   /* value that announces the row */
    uint32_t clear;  /* 1: who has seen a flag sets it back */
    uint32_t number; /* of the operation, for its value and result */
} handle_args;

static uint8_t value_of(uint32_t rank, uint32_t number)
{
    return (uint8_t)(rank * 16u + number + 1u);
}

IST_KERNEL(museum_handle_exchange, handle_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    uint64_t bank = BANKS + args->bank * MUSEUM_ROW;
    uint64_t flag = FLAGS + args->bank * 8u;
    uint64_t *own = ist_window_local(coop, dev, 0, flag);
    ist_point(coop, "handle.send");
    ist_row_fill(coop, ist_window_peer(coop, dev, 0, bank, peer), value_of(dev->rank, args->number),
                 MUSEUM_ROW);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, flag, peer), args->flag, IST_RELEASE,
                      IST_SCOPE_SYSTEM);
    }
    ist_point(coop, "handle.receive");
    (void)ist_coop_wait_word(coop, dev, own, args->flag, deadline_ns, IST_SCOPE_SYSTEM);
    if (args->clear && ist_coop_elect(coop)) {
        ist_store_u64(coop, own, 0, IST_RELAXED, IST_SCOPE_SYSTEM);
    }
    ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + args->number * MUSEUM_ROW),
                 ist_window_local(coop, dev, 0, bank), MUSEUM_ROW);
}

/* Operations go to the two handles by turns; each handle counts its own. */
static ist_status handle_operation(const museum_rig *rig, uint32_t number)
{
    uint32_t broken = rig->run->broken;
    handle_args args = {.dev = rig->dev,
                        .bank = (broken ? number / 2u : number) % 2u,
                        .flag = broken ? 1u : number + 1u,
                        .clear = broken,
                        .number = number};
    return ist_launch(rig->stream, &ist_kernel_museum_handle_exchange, 1, &args, sizeof(args));
}

static ist_status handle_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    for (uint32_t i = 0; i < OPERATIONS; ++i) {
        IST_TEST_PASS_ON(handle_operation(&rig, i));
    }
    for (uint32_t i = 0; i < OPERATIONS; ++i) {
        IST_TEST_PASS_ON(museum_expect_row(&rig, COPIES + i * MUSEUM_ROW, 1,
                                           value_of(1u - rig.rank, i), "the handle's row"));
    }
    return museum_close(&rig);
}

const museum_piece museum_two_handles = {
    .name = "two-handles",
    .address = "NVIDIA/nccl issue 2303",
    .rank_count = 2,
    .answers = {{MUSEUM_RACES, {"museum_handle_exchange", "row_fill"}},
                {MUSEUM_KIND(DEADLOCK), {"museum_handle_exchange", "waits for a word"}},
                {MUSEUM_KIND(STATUS), {"the handle's row holds"}}},
    .rank_main = handle_main,
};
