/* SPDX-License-Identifier: Apache-2.0 */
/*
 * second-queue. A sender gave the data to one queue of the network and the flag that announces it to
 * another; between queues nothing is ordered, so the flag overtook the data and the receiver read a
 * page that had not arrived. Public: tenstorrent/tt-metal issue 48479.
 *
 * Here: rank 0 puts two pages in turn and raises a signal behind each; rank 1 answers when it has
 * copied the page. Broken: the signal is on context 1, the data on context 0. Fixed: on one context,
 * where a strong signal covers all earlier puts. Oracle: the copies hold what was sent.
 */
#include "museum.h"

#define PAGE 0u /* of the sender */
#define SLOT 1024u
#define COPIES 2048u
#define PAGES 2u
#define ANNOUNCED 0u /* signals */
#define ANSWERED 1u

typedef struct queue_args {
    const ist_dev_comm *dev;
    uint32_t flag_context;
    uint32_t reserved;
} queue_args;

IST_KERNEL(museum_queue_send, queue_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    ist_gin_action nothing = {IST_GIN_NONE, 0, 0};
    ist_gin_action announce = {IST_GIN_SIGNAL_INC, ANNOUNCED, 0};
    for (uint32_t page = 0; page < PAGES; ++page) {
        ist_point(coop, "page.send");
        ist_row_fill(coop, ist_window_local(coop, dev, 0, PAGE), (uint8_t)(page + 1u), MUSEUM_ROW);
        ist_gin_put(coop, dev, 0, 1, 0, SLOT, 0, PAGE, MUSEUM_ROW, nothing, IST_GIN_NO_COUNTER);
        ist_gin_signal(coop, dev, args->flag_context, 1, announce);
        (void)ist_gin_flush(coop, dev, 0, deadline_ns);
        (void)ist_gin_signal_wait(coop, dev, 0, ANSWERED, page + 1u, deadline_ns);
    }
}

IST_KERNEL(museum_queue_receive, queue_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    ist_gin_action answer = {IST_GIN_SIGNAL_INC, ANSWERED, 0};
    for (uint32_t page = 0; page < PAGES; ++page) {
        ist_point(coop, "page.receive");
        (void)ist_gin_signal_wait(coop, dev, args->flag_context, ANNOUNCED, page + 1u, deadline_ns);
        ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + page * MUSEUM_ROW),
                     ist_window_local(coop, dev, 0, SLOT), MUSEUM_ROW);
        ist_gin_signal(coop, dev, 0, 0, answer);
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
    for (uint32_t page = 0; page < PAGES && rig.rank == 1; ++page) {
        IST_TEST_PASS_ON(museum_expect_row(&rig, COPIES + page * MUSEUM_ROW, 1,
                                           (uint8_t)(page + 1u), "the page"));
    }
    return museum_close(&rig);
}

const museum_piece museum_second_queue = {
    .name = "second-queue",
    .address = "tenstorrent/tt-metal issue 48479",
    .rank_count = 2,
    .answers = {{MUSEUM_RACES, {"museum_queue_receive", "network", "a strong one of its context"}}},
    .rank_main = queue_main,
};
