/* SPDX-License-Identifier: Apache-2.0 */
/*
 * four-gibibytes. How much goes through the staging buffer was computed in 32 bits; a transfer of 2^32
 * bytes became one of none, and the receiver waited for ever. Public: NVIDIA/nccl-extensions issue 15.
 *
 * Here: a transfer of a size that is drawn from the seed goes through one staging slot, chunk by chunk;
 * of a chunk only the first row is moved. Broken: the sender counts in 32 bits. Fixed: in 64. Oracle:
 * the receiver gets all chunks.
 */
#include "museum.h"

#define PAGE 0u
#define SLOT 1024u
#define COPIES 2048u
#define GIBIBYTE (UINT64_C(1) << 30) /* a chunk */
#define GIBIBYTES_MAX 6u
#define STAGED 0u /* signals */
#define TAKEN 1u

typedef struct staged_args {
    const ist_dev_comm *dev;
    uint64_t bytes;  /* of the transfer */
    uint32_t narrow; /* 1: the sender counts in 32 bits */
    uint32_t reserved;
} staged_args;

IST_KERNEL(museum_staged_send, staged_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    uint64_t bytes = args->narrow ? (uint32_t)args->bytes : args->bytes;
    ist_gin_action staged = {IST_GIN_SIGNAL_INC, STAGED, 0};
    for (uint64_t chunk = 0; chunk * GIBIBYTE < bytes; ++chunk) {
        ist_point(coop, "staged.send");
        ist_row_fill(coop, ist_window_local(coop, dev, 0, PAGE), (uint8_t)(chunk + 1u), MUSEUM_ROW);
        ist_gin_put(coop, dev, 0, 1, 0, SLOT, 0, PAGE, MUSEUM_ROW, staged, IST_GIN_NO_COUNTER);
        (void)ist_gin_flush(coop, dev, 0, deadline_ns);
        (void)ist_gin_signal_wait(coop, dev, 0, TAKEN, chunk + 1u, deadline_ns);
    }
}

IST_KERNEL(museum_staged_receive, staged_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    ist_gin_action taken = {IST_GIN_SIGNAL_INC, TAKEN, 0};
    for (uint64_t chunk = 0; chunk * GIBIBYTE < args->bytes; ++chunk) {
        ist_point(coop, "staged.receive");
        (void)ist_gin_signal_wait(coop, dev, 0, STAGED, chunk + 1u, deadline_ns);
        ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + chunk * MUSEUM_ROW),
                     ist_window_local(coop, dev, 0, SLOT), MUSEUM_ROW);
        ist_gin_signal(coop, dev, 0, 0, taken);
    }
}

static ist_status staged_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    uint64_t chunks = museum_draw(rig.run, 0, GIBIBYTES_MAX) + 1u;
    staged_args args = {.dev = rig.dev, .bytes = chunks * GIBIBYTE, .narrow = rig.run->broken};
    IST_TEST_PASS_ON(ist_launch(rig.stream,
                                rig.rank == 0 ? &ist_kernel_museum_staged_send
                                              : &ist_kernel_museum_staged_receive,
                                1, &args, sizeof(args)));
    for (uint32_t i = 0; i < chunks && rig.rank == 1; ++i) {
        IST_TEST_PASS_ON(
            museum_expect_row(&rig, COPIES + i * MUSEUM_ROW, 1, (uint8_t)(i + 1u), "the chunk"));
    }
    return museum_close(&rig);
}

const museum_piece museum_four_gibibytes = {
    .name = "four-gibibytes",
    .address = "NVIDIA/nccl-extensions issue 15",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(DEADLOCK),
                 {"kernel museum_staged_receive, block 0, after staged.receive waits for a signal",
                  "rank 0, program waits for a collective call"}}},
    .rank_main = staged_main,
};
