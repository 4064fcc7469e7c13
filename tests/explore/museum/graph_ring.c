/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph-ring. A ring of three slots, used in turn; slot and flag value were numbers of the host when the
 * graphs were captured. When a graph is replayed a round later its slot still holds the flag of the
 * round before, and the old data is accepted. Public: found by reading a published library.
 *
 * Here: three graphs, one a slot, are replayed for two rounds; each exchanges a row that the program
 * has filled before the replay. Broken: slot and flag as captured. Fixed: the operation's number is
 * counted in device memory, by the kernel. Oracle: everybody gets the row of this replay.
 */
#include "museum.h"

#define FLAGS 0u
#define NUMBER 512u /* operations so far, in device memory */
#define INPUT 1024u
#define SLOTS 2048u
#define COPY 4096u
#define SLOT_COUNT 3u
#define REPLAYS 6u

typedef struct ring_args {
    const ist_dev_comm *dev;
    uint32_t captured; /* 1: slot and flag are those of the capture */
    uint32_t slot;
} ring_args;

/* Number of this operation, from 0. */
static uint32_t ring_number(ist_coop *coop, const ring_args *args)
{
    if (args->captured) {
        return args->slot;
    }
    uint64_t *word = ist_window_local(coop, args->dev, 0, NUMBER);
    return (uint32_t)ist_coop_fetch_add(coop, word, 1, IST_RELAXED, IST_SCOPE_DEVICE);
}

IST_KERNEL(museum_ring_exchange, ring_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank;
    uint64_t deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS;
    uint32_t number = ring_number(coop, args);
    uint64_t slot = SLOTS + number % SLOT_COUNT * MUSEUM_ROW;
    uint64_t flag = FLAGS + number % SLOT_COUNT * 8u;
    ist_point(coop, "ring.send");
    ist_row_copy(coop, ist_window_peer(coop, dev, 0, slot, peer),
                 ist_window_local(coop, dev, 0, INPUT), MUSEUM_ROW);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, flag, peer), number + 1u, IST_RELEASE,
                      IST_SCOPE_SYSTEM);
    }
    ist_point(coop, "ring.receive");
    (void)ist_coop_wait_word(coop, dev, ist_window_local(coop, dev, 0, flag), number + 1u,
                             deadline_ns, IST_SCOPE_SYSTEM);
    ist_row_copy(coop, ist_window_local(coop, dev, 0, COPY), ist_window_local(coop, dev, 0, slot),
                 MUSEUM_ROW);
}

static ist_status ring_capture(const museum_rig *rig, ist_graph *graphs[SLOT_COUNT])
{
    for (uint32_t i = 0; i < SLOT_COUNT; ++i) {
        ring_args args = {.dev = rig->dev, .captured = rig->run->broken, .slot = i};
        IST_TEST_PASS_ON(ist_graph_begin(rig->stream));
        IST_TEST_PASS_ON(
            ist_launch(rig->stream, &ist_kernel_museum_ring_exchange, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_graph_end(rig->stream, &graphs[i]));
    }
    return IST_OK;
}

static ist_status ring_replay(const museum_rig *rig, ist_graph *graph, uint32_t number)
{
    uint8_t mine = (uint8_t)(rig->rank * 16u + number + 1u);
    uint8_t theirs = (uint8_t)((1u - rig->rank) * 16u + number + 1u);
    IST_TEST_PASS_ON(ist_fill(rig->stream, rig->mine + INPUT, mine, MUSEUM_ROW));
    IST_TEST_PASS_ON(ist_graph_launch(graph, rig->stream));
    return museum_expect_row(rig, COPY, 1, theirs, "the replay's row");
}

static ist_status ring_main(ist_world *world, void *run)
{
    museum_rig rig;
    ist_graph *graphs[SLOT_COUNT];
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    IST_TEST_PASS_ON(ring_capture(&rig, graphs));
    for (uint32_t i = 0; i < REPLAYS; ++i) {
        IST_TEST_PASS_ON(ring_replay(&rig, graphs[i % SLOT_COUNT], i));
    }
    for (uint32_t i = 0; i < SLOT_COUNT; ++i) {
        IST_TEST_PASS_ON(ist_graph_close(graphs[i]));
    }
    return museum_close(&rig);
}

const museum_piece museum_graph_ring = {
    .name = "graph-ring",
    .address = "from reading a published library",
    .rank_count = 2,
    .answers = {{MUSEUM_RACES, {"museum_ring_exchange", "row_copy"}},
                {MUSEUM_KIND(STATUS), {"the replay's row holds"}}},
    .rank_main = ring_main,
};
