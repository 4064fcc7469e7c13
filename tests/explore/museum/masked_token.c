/* SPDX-License-Identifier: Apache-2.0 */
/*
 * masked-token. When a peer was masked, the operation that was under way no longer waited for it, and
 * handed out what lay in the peer's slot, a row of an earlier operation, as one of this. Public:
 * vllm-project/vllm PR 43637.
 *
 * Here: two ranks exchange rows; while the third operation runs, a monitor on another stream of rank 0
 * gives rank 1 up. Broken: every row that was not timed out is good. Fixed: only one whose flag was
 * seen. Oracle: a row that is marked good is of its operation.
 */
#include "museum.h"

#define FLAGS 0u    /* [bank][rank] */
#define GOOD 512u   /* [operation] */
#define BANKS 1024u /* [bank] */
#define COPIES 2048u
#define OPERATIONS 3u

typedef struct token_args {
    const ist_dev_comm *dev;
    uint32_t number;
    uint32_t trusts_masked; /* 1: not timed out is good */
} token_args;

static uint8_t value_of(uint32_t rank, uint32_t number)
{
    return (uint8_t)(rank * 16u + number + 1u);
}

IST_KERNEL(museum_token_exchange, token_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank, bank = args->number % 2u;
    uint64_t flags = FLAGS + bank * 16u;
    uint64_t slot = BANKS + bank * MUSEUM_ROW;
    uint8_t *results = ist_coop_scratch(coop, 0, 16);
    ist_point(coop, "token.send");
    ist_row_fill(coop, ist_window_peer(coop, dev, 0, slot, peer), value_of(dev->rank, args->number),
                 MUSEUM_ROW);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, flags + dev->rank * 8u, peer),
                      args->number + 1u, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
    ist_point(coop, "token.receive");
    ist_peer_wait wait = {.words = ist_window_local(coop, dev, 0, flags),
                          .expected = args->number + 1u,
                          .deadline_ns = ist_clock_ns(coop) + MUSEUM_LONG_NS,
                          .skip_self = 1};
    (void)ist_wait_peers(coop, dev, &wait, results);
    if (args->trusts_masked ? results[peer] != IST_WAIT_TIMEOUT : results[peer] == IST_WAIT_DONE) {
        ist_row_copy(coop, ist_window_local(coop, dev, 0, COPIES + args->number * MUSEUM_ROW),
                     ist_window_local(coop, dev, 0, slot), MUSEUM_ROW);
        ist_store_u64(coop, ist_window_local(coop, dev, 0, GOOD + args->number * 8u), 1,
                      IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

IST_KERNEL(museum_token_monitor, token_args)
{
    ist_dev_error error = {
        .status = IST_ERR_TIMEOUT, .peer = 1, .operation = IST_DEV_OP_USER, .sequence = 1};
    if (ist_coop_elect(coop)) {
        (void)ist_mask_drop(coop, args->dev, &error);
    }
}

static ist_status exchange(const museum_rig *rig, uint32_t number)
{
    token_args args = {.dev = rig->dev, .number = number, .trusts_masked = rig->run->broken};
    return ist_launch(rig->stream, &ist_kernel_museum_token_exchange, 1, &args, sizeof(args));
}

static ist_status expect_good_rows(const museum_rig *rig)
{
    uint64_t good[OPERATIONS];
    IST_TEST_PASS_ON(ist_copy_to_host(rig->stream, good, rig->mine + GOOD, sizeof(good)));
    for (uint32_t i = 0; i < OPERATIONS; ++i) {
        if (good[i] != 0) {
            IST_TEST_PASS_ON(museum_expect_row(rig, COPIES + i * MUSEUM_ROW, 1,
                                               value_of(1u - rig->rank, i), "a good row"));
        }
    }
    return IST_OK;
}

static ist_status token_main(ist_world *world, void *run)
{
    museum_rig rig;
    ist_stream *monitor = NULL;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    IST_TEST_PASS_ON(ist_stream_open(world, &monitor));
    token_args args = {.dev = rig.dev};
    for (uint32_t i = 0; i + 1u < OPERATIONS; ++i) {
        IST_TEST_PASS_ON(exchange(&rig, i));
    }
    IST_TEST_PASS_ON(ist_stream_sync(rig.stream, 0));
    IST_TEST_PASS_ON(exchange(&rig, OPERATIONS - 1u));
    if (rig.rank == 0) {
        IST_TEST_PASS_ON(
            ist_launch(monitor, &ist_kernel_museum_token_monitor, 1, &args, sizeof(args)));
    }
    IST_TEST_PASS_ON(expect_good_rows(&rig));
    IST_TEST_PASS_ON(ist_stream_close(monitor));
    return museum_close(&rig);
}

const museum_piece museum_masked_token = {
    .name = "masked-token",
    .address = "vllm-project/vllm PR 43637",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(STATUS), {"rank 0: a good row holds 0x11 instead of 0x13"}}},
    .rank_main = token_main,
};
