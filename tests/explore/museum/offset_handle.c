/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offset-handle. Two windows were carved out of one allocation; a put paired an offset in the second
 * with the handle of the whole. By load and store, where addresses were used, all was well; over the
 * network the data went to the beginning of the allocation. Public: NVIDIA/nccl issue 2198.
 *
 * Here: two nodes of two ranks, everybody sends a row to everybody's second window. Broken: puts name
 * the window of the whole allocation. Fixed: that of the second. Oracle: all rows are there.
 */
#include "museum.h"

#define FLAGS 0u
#define INPUT 512u
#define COPIES 1024u
#define RANKS 4u
#define WHOLE 8192u /* bytes of the allocation; its second half is the second window */
#define HALF 4096u

typedef struct carved_args {
    const ist_dev_comm *dev;
    uint32_t second;     /* number of the second window */
    uint32_t put_window; /* the one that puts name */
} carved_args;

static void send_by_store(ist_coop *coop, const carved_args *args, uint32_t peer)
{
    const ist_dev_comm *dev = args->dev;
    ist_row_copy(coop, ist_window_peer(coop, dev, args->second, dev->rank * MUSEUM_ROW, peer),
                 ist_window_local(coop, dev, 0, INPUT), MUSEUM_ROW);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, FLAGS + dev->rank * 8u, peer), 1,
                      IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

static void send_by_put(ist_coop *coop, const carved_args *args, uint32_t peer)
{
    const ist_dev_comm *dev = args->dev;
    ist_gin_action raise = {IST_GIN_SIGNAL_INC, dev->rank, 0};
    ist_gin_put(coop, dev, dev->rank % dev->context_count, peer, args->put_window,
                dev->rank * MUSEUM_ROW, 0, INPUT, MUSEUM_ROW, raise, IST_GIN_NO_COUNTER);
}

IST_KERNEL(museum_carved_exchange, carved_args)
{
    const ist_dev_comm *dev = args->dev;
    uint8_t *results = ist_coop_scratch(coop, 0, 16);
    ist_point(coop, "carved.send");
    for (uint32_t peer = 0; peer < RANKS; ++peer) {
        if (peer != dev->rank && ist_dev_is_lsa(dev, peer)) {
            send_by_store(coop, args, peer);
        } else if (peer != dev->rank) {
            send_by_put(coop, args, peer);
        }
    }
    ist_point(coop, "carved.receive");
    ist_peer_wait wait = {.words = ist_window_local(coop, dev, 0, FLAGS),
                          .expected = 1,
                          .deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS,
                          .skip_self = 1};
    (void)ist_wait_peers(coop, dev, &wait, results);
    for (uint32_t peer = 0; peer < RANKS; ++peer) {
        if (peer != dev->rank) {
            ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + peer * MUSEUM_ROW),
                         ist_window_local(coop, dev, args->second, peer * MUSEUM_ROW), MUSEUM_ROW);
        }
    }
}

static ist_status exchange(const museum_rig *rig, const ist_window *whole, const ist_window *second)
{
    carved_args args = {.dev = rig->dev, .second = ist_window_index(second)};
    args.put_window = rig->run->broken ? ist_window_index(whole) : args.second;
    IST_TEST_PASS_ON(
        ist_fill(rig->stream, rig->mine + INPUT, (uint8_t)(rig->rank + 1u), MUSEUM_ROW));
    IST_TEST_PASS_ON(
        ist_launch(rig->stream, &ist_kernel_museum_carved_exchange, 1, &args, sizeof(args)));
    for (uint32_t peer = 0; peer < RANKS; ++peer) {
        if (peer != rig->rank) {
            IST_TEST_PASS_ON(museum_expect_row(rig, COPIES + peer * MUSEUM_ROW, 1,
                                               (uint8_t)(peer + 1u), "the second window"));
        }
    }
    return museum_meet(rig);
}

static ist_status carved_main(ist_world *world, void *run)
{
    museum_rig rig;
    void *memory = NULL;
    ist_window *whole = NULL, *second = NULL;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    IST_TEST_PASS_ON(ist_mem_alloc(world, WHOLE, IST_MEM_SYMMETRIC, &memory));
    IST_TEST_PASS_ON(ist_window_open(rig.comm, memory, WHOLE, &whole));
    IST_TEST_PASS_ON(ist_window_open(rig.comm, (uint8_t *)memory + HALF, HALF, &second));
    IST_TEST_PASS_ON(exchange(&rig, whole, second));
    IST_TEST_PASS_ON(ist_window_close(second));
    IST_TEST_PASS_ON(ist_window_close(whole));
    IST_TEST_PASS_ON(ist_mem_free(world, memory));
    return museum_close(&rig);
}

const museum_piece museum_offset_handle = {
    .name = "offset-handle",
    .address = "NVIDIA/nccl issue 2198",
    .cluster = "2x2",
    .rank_count = RANKS,
    .answers = {{MUSEUM_KIND(UNWRITTEN), {"nobody has written it", "museum_carved_exchange"}}},
    .rank_main = carved_main,
};
