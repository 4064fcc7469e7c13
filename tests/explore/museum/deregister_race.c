/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deregister-race. One host thread of each rank deregistered a window, another ran an all-gather; both
 * are collective and both held the process's lock while they waited for peers, in an order that
 * differed between ranks: each waited for the other. Public: NVIDIA/nccl issue 2184.
 *
 * Here: the two threads are two streams of each of two ranks, the lock is a ticket lock in device
 * memory. Broken: the lock is held until the peers have come. Fixed: it protects the table, and is
 * given back before the wait. Oracle: the all-gather has the peer's row.
 */
#include "museum.h"

#define TICKET 0u
#define SERVING 64u
#define FLAGS 128u /* [operation] */
#define TABLE 512u
#define SLOT 1024u
#define COPY 2048u
#define DEREGISTER 0u
#define GATHER 1u

typedef struct thread_args {
    const ist_dev_comm *dev;
    uint32_t operation;
    uint32_t holds; /* 1: the lock, while it waits for peers */
} thread_args;

static uint64_t *word_at(ist_coop *coop, const ist_dev_comm *dev, uint64_t offset)
{
    return ist_window_local(coop, dev, 0, offset);
}

static uint64_t lock(ist_coop *coop, const ist_dev_comm *dev)
{
    uint64_t ticket =
        ist_coop_fetch_add(coop, word_at(coop, dev, TICKET), 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
    (void)ist_coop_wait_word(coop, dev, word_at(coop, dev, SERVING), ticket,
                             ist_clock_ns(coop) + MUSEUM_LONG_NS, IST_SCOPE_DEVICE);
    ist_point(coop, "lock.taken");
    return ticket;
}

static void unlock(ist_coop *coop, const ist_dev_comm *dev, uint64_t ticket)
{
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, word_at(coop, dev, SERVING), ticket + 1u, IST_RELEASE,
                      IST_SCOPE_DEVICE);
    }
}

static void meet_peer(ist_coop *coop, const thread_args *args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t flag = FLAGS + args->operation * 8u;
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, flag, 1u - dev->rank), 1, IST_RELEASE,
                      IST_SCOPE_SYSTEM);
    }
    (void)ist_coop_wait_word(coop, dev, word_at(coop, dev, flag), 1,
                             ist_clock_ns(coop) + MUSEUM_LONG_NS, IST_SCOPE_SYSTEM);
}

IST_KERNEL(museum_thread, thread_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t ticket = lock(coop, dev);
    ist_row_fill(coop, ist_window_local(coop, dev, 0, TABLE), (uint8_t)args->operation, MUSEUM_ROW);
    if (!args->holds) {
        unlock(coop, dev, ticket);
    }
    if (args->operation == GATHER) {
        ist_row_fill(coop, ist_window_peer(coop, dev, 0, SLOT, 1u - dev->rank),
                     (uint8_t)(dev->rank + 1u), MUSEUM_ROW);
    }
    meet_peer(coop, args);
    if (args->holds) {
        unlock(coop, dev, ticket);
    }
    if (args->operation == GATHER) {
        ist_row_copy(coop, ist_window_local(coop, dev, 0, COPY),
                     ist_window_local(coop, dev, 0, SLOT), MUSEUM_ROW);
    }
}

static ist_status thread_main(ist_world *world, void *run)
{
    museum_rig rig;
    ist_stream *other = NULL;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    IST_TEST_PASS_ON(ist_stream_open(world, &other));
    thread_args args = {.dev = rig.dev, .operation = DEREGISTER, .holds = rig.run->broken};
    IST_TEST_PASS_ON(ist_launch(other, &ist_kernel_museum_thread, 1, &args, sizeof(args)));
    args.operation = GATHER;
    IST_TEST_PASS_ON(ist_launch(rig.stream, &ist_kernel_museum_thread, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(
        museum_expect_row(&rig, COPY, 1, (uint8_t)(2u - rig.rank), "the gathered row"));
    IST_TEST_PASS_ON(ist_stream_close(other));
    return museum_close(&rig);
}

const museum_piece museum_deregister_race = {
    .name = "deregister-race",
    .address = "NVIDIA/nccl issue 2184",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(DEADLOCK),
                 {"rank 0, kernel museum_thread, block 0, after lock.taken waits for a word",
                  "rank 1, kernel museum_thread, block 0, after lock.taken waits for a word"}}},
    .rank_main = thread_main,
};
