/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mask-in-graph. The mask of ranks that take part was an argument by value when a graph was captured;
 * a rank died later, the mask changed, and the replays went on with the old one. Public:
 * NVIDIA/TensorRT-LLM PR 16200.
 *
 * Here: three ranks replay a graph that exchanges rows; after two replays ranks 0 and 1 mask rank 2,
 * which is gone, and go on. Broken: the kernel has the mask of the capture. Fixed: it reads the mask
 * through memory. Oracle: nobody waits in vain, and the rows of those who are there are right.
 */
#include "museum.h"

#define FLAGS 0u    /* [bank][rank] */
#define NUMBER 512u /* operations so far */
#define BANKS 1024u /* [bank][rank] */
#define COPIES 4096u
#define RANKS 3u
#define ALL 7u
#define BEFORE 2u /* replays with all */
#define AFTER 2u  /* and without rank 2 */

typedef struct mask_args {
    const ist_dev_comm *dev;
    uint32_t captured; /* 1: `mask` counts */
    uint32_t mask;
} mask_args;

static uint8_t value_of(uint32_t rank, uint32_t number)
{
    return (uint8_t)(rank * 16u + number + 1u);
}

static bool takes_part(ist_coop *coop, const mask_args *args, uint32_t peer)
{
    return peer != args->dev->rank &&
           (args->captured ? (args->mask >> peer & 1u) != 0
                           : ist_mask_active(coop, args->dev, peer) != 0);
}

static void send_row(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer, uint32_t number)
{
    uint64_t place = number % 2u * RANKS + dev->rank;
    ist_row_fill(coop, ist_window_peer(coop, dev, 0, BANKS + place * MUSEUM_ROW, peer),
                 value_of(dev->rank, number), MUSEUM_ROW);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, FLAGS + place * 8u, peer), number + 1u,
                      IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

static void receive_row(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer, uint32_t number)
{
    uint64_t place = number % 2u * RANKS + peer;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    (void)ist_coop_wait_word(coop, dev, ist_window_local(coop, dev, 0, FLAGS + place * 8u),
                             number + 1u, deadline_ns, IST_SCOPE_SYSTEM);
    ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + peer * MUSEUM_ROW),
                 ist_window_local(coop, dev, 0, BANKS + place * MUSEUM_ROW), MUSEUM_ROW);
}

IST_KERNEL(museum_mask_exchange, mask_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t *word = ist_window_local(coop, dev, 0, NUMBER);
    uint32_t number = (uint32_t)ist_coop_fetch_add(coop, word, 1, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_point(coop, "mask.send");
    for (uint32_t peer = 0; peer < RANKS; ++peer) {
        if (takes_part(coop, args, peer)) {
            send_row(coop, dev, peer, number);
        }
    }
    ist_point(coop, "mask.receive");
    for (uint32_t peer = 0; peer < RANKS; ++peer) {
        if (takes_part(coop, args, peer)) {
            receive_row(coop, dev, peer, number);
        }
    }
}

static ist_status replay(const museum_rig *rig, ist_graph *graph, uint32_t number)
{
    IST_TEST_PASS_ON(ist_graph_launch(graph, rig->stream));
    for (uint32_t peer = 0; peer < (number < BEFORE ? RANKS : RANKS - 1u); ++peer) {
        if (peer != rig->rank) {
            IST_TEST_PASS_ON(museum_expect_row(rig, COPIES + peer * MUSEUM_ROW, 1,
                                               value_of(peer, number), "the replay's row"));
        }
    }
    return IST_OK;
}

static ist_status replays(const museum_rig *rig, ist_graph *graph)
{
    uint64_t survivors = ALL >> 1;
    for (uint32_t i = 0; i < BEFORE; ++i) {
        IST_TEST_PASS_ON(replay(rig, graph, i));
    }
    if (rig->rank == RANKS - 1u) {
        return IST_OK;
    }
    IST_TEST_PASS_ON(ist_comm_mask_update(rig->comm, &survivors, rig->stream));
    for (uint32_t i = 0; i < AFTER; ++i) {
        IST_TEST_PASS_ON(replay(rig, graph, BEFORE + i));
    }
    return IST_OK;
}

static ist_status mask_main(ist_world *world, void *run)
{
    museum_rig rig;
    ist_graph *graph = NULL;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    mask_args args = {.dev = rig.dev, .captured = rig.run->broken, .mask = ALL};
    IST_TEST_PASS_ON(ist_graph_begin(rig.stream));
    IST_TEST_PASS_ON(
        ist_launch(rig.stream, &ist_kernel_museum_mask_exchange, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_graph_end(rig.stream, &graph));
    IST_TEST_PASS_ON(replays(&rig, graph));
    IST_TEST_PASS_ON(ist_graph_close(graph));
    return museum_close(&rig);
}

const museum_piece museum_mask_in_graph = {
    .name = "mask-in-graph",
    .address = "NVIDIA/TensorRT-LLM PR 16200",
    .rank_count = RANKS,
    .answers = {{MUSEUM_KIND(DEADLOCK),
                 {"museum_mask_exchange", "after mask.receive waits for a word",
                  "rank 2, program waits for a collective call"}}},
    .rank_main = mask_main,
    .always = 1,
};
