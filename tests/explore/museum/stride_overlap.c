/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stride-overlap. A group keeps two banks and uses them in turn, so that an operation may be sent while
 * a peer still reads the one before. Where the second bank begins was computed from the size of the
 * handle in use, not from the group's: with handles of two sizes the banks overlap. Public: found by
 * reading a published low-latency library.
 *
 * Here: two ranks exchange rows, by turns with a large handle and a small one. Broken: the stride is
 * the handle's. Fixed: the group's. Oracle: everybody gets the rows of the operation.
 */
#include "museum.h"

#define FLAGS 0u
#define BANKS 1024u
#define COPIES 4096u
#define ROWS_MAX 4u
#define OPERATIONS 4u

typedef struct stride_args {
    const ist_dev_comm *dev;
    uint64_t bank; /* offset of the operation's bank */
    uint64_t flag; /* offset of its flag */
    uint64_t copy; /* offset of its result */
    uint32_t rows;
    uint32_t tag; /* from 1 */
} stride_args;

static uint8_t value_of(uint32_t rank, uint32_t tag)
{
    return (uint8_t)(rank * 16u + tag);
}

IST_KERNEL(museum_stride_exchange, stride_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    uint64_t bytes = args->rows * MUSEUM_ROW;
    ist_point(coop, "exchange.send");
    ist_row_fill(coop, ist_window_peer(coop, dev, 0, args->bank, peer),
                 value_of(dev->rank, args->tag), bytes);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, args->flag, peer), args->tag, IST_RELEASE,
                      IST_SCOPE_SYSTEM);
    }
    ist_point(coop, "exchange.receive");
    (void)ist_coop_wait_word(coop, dev, ist_window_local(coop, dev, 0, args->flag), args->tag,
                             deadline_ns, IST_SCOPE_SYSTEM);
    ist_row_copy(coop, ist_window_local(coop, dev, 0, args->copy),
                 ist_window_local(coop, dev, 0, args->bank), bytes);
}

static ist_status stride_operation(const museum_rig *rig, uint32_t number)
{
    uint32_t rows = number % 2u == 0 ? ROWS_MAX : ROWS_MAX / 2u;
    uint32_t stride = (rig->run->broken ? rows : ROWS_MAX) * MUSEUM_ROW;
    stride_args args = {.dev = rig->dev,
                        .bank = BANKS + number % 2u * stride,
                        .flag = FLAGS + number % 2u * 8u,
                        .copy = COPIES + number * ROWS_MAX * MUSEUM_ROW,
                        .rows = rows,
                        .tag = number + 1u};
    return ist_launch(rig->stream, &ist_kernel_museum_stride_exchange, 1, &args, sizeof(args));
}

static ist_status stride_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    for (uint32_t i = 0; i < OPERATIONS; ++i) {
        IST_TEST_PASS_ON(stride_operation(&rig, i));
    }
    for (uint32_t i = 0; i < OPERATIONS; ++i) {
        IST_TEST_PASS_ON(museum_expect_row(&rig, COPIES + i * ROWS_MAX * MUSEUM_ROW,
                                           i % 2u == 0 ? ROWS_MAX : ROWS_MAX / 2u,
                                           value_of(1u - rig.rank, i + 1u), "the result"));
    }
    return museum_close(&rig);
}

const museum_piece museum_stride_overlap = {
    .name = "stride-overlap",
    .address = "from reading a published library",
    .rank_count = 2,
    .answers = {{MUSEUM_RACES, {"museum_stride_exchange", "row_fill", "row_copy"}}},
    .rank_main = stride_main,
};
