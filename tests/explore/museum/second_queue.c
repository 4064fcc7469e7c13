/* SPDX-License-Identifier: Apache-2.0 */
/*
 * second-queue. A sender gave the data to one queue of the network and the flag that announces it to
 * another; between queues nothing is ordered, so the flag overtook the data and the receiver read a
 * page that had not arrived. Public: tenstorrent/tt-metal issue 48479.
 *
 * Here: rank 0 puts two pages, each with a signal behind it; rank 1 copies a page when it sees the signal.
 * Broken: the signal is on context 1, the data on context 0. Fixed: on one context, where a strong
 * signal covers all earlier puts. Oracle: the copies hold what was sent.
 */
#include "museum.h"

#define PAGES 512u /* of the sender */
#define SLOTS 1024u
#define COPIES 2048u
#define PAGE_COUNT 2u

typedef struct queue_args {
    const ist_dev_comm *dev;
    uint32_t flag_context;
    uint32_t reserved;
} queue_args;

IST_KERNEL(museum_queue_send, queue_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_gin_action nothing = {IST_GIN_NONE, 0, 0};
    ist_gin_action announce = {IST_GIN_SIGNAL_INC, 0, 0};
    for (uint32_t page = 0; page < PAGE_COUNT; ++page) {
        uint64_t place = page * MUSEUM_ROW;
        ist_point(coop, "page.send");
        ist_row_fill(coop, ist_window_local(coop, dev, 0, PAGES + place), (uint8_t)(page + 1u),
                     MUSEUM_ROW);
        ist_gin_put(coop, dev, 0, 1, 0, SLOTS + place, 0, PAGES + place, MUSEUM_ROW, nothing,
                    IST_GIN_NO_COUNTER);
        ist_gin_signal(coop, dev, args->flag_context, 1, announce);
    }
}

IST_KERNEL(museum_queue_receive, queue_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    for (uint32_t page = 0; page < PAGE_COUNT; ++page) {
        uint64_t place = page * MUSEUM_ROW;
        ist_point(coop, "page.receive");
        (void)ist_gin_signal_wait(coop, dev, args->flag_context, 0, page + 1u, deadline_ns);
        ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + place),
                     ist_window_local(coop, dev, 0, SLOTS + place), MUSEUM_ROW);
    }
}

static ist_status queue_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    queue_args args = {.dev = rig.dev, .flag_context = rig.run->broken};
    IST_TEST_PASS_ON(
        ist_launch(rig.stream,
                   rig.rank == 0 ? &ist_kernel_museum_queue_send : &ist_kernel_museum_queue_receive,
                   1, &args, sizeof(args)));
    for (uint32_t page = 0; page < PAGE_COUNT && rig.rank == 1; ++page) {
        IST_TEST_PASS_ON(museum_expect_row(&rig, COPIES + page * MUSEUM_ROW, 1,
                                           (uint8_t)(page + 1u), "the page"));
    }
    return museum_close(&rig);
}

const museum_piece museum_second_queue = {
    .name = "second-queue",
    .address = "tenstorrent/tt-metal issue 48479",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(RACE), {"museum_queue_receive", "a strong one of its context"}},
                {MUSEUM_KIND(REUSED), {"museum_queue_receive", "network, gin_put"}},
                {MUSEUM_KIND(STATUS), {"rank 1: the page holds 0x00 instead of"}}},
    .rank_main = queue_main,
};
