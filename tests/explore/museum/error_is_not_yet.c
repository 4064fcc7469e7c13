/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error-is-not-yet. Device code that waited for a completion took an error completion for one that had
 * not arrived, and asked again for ever. Public: NVIDIA/nccl issue 2383.
 *
 * Here: two ranks put rows into each other's memory and wait for a counter of local completions, a little at a time; one put,
 * drawn from the seed, ends with an error. Broken: only the counter is looked at. Fixed: the peer's
 * error, too, and the row is reported as lost. Oracle: every put has an answer, and who had an error
 * says so.
 */
#include "museum.h"

#define PAGE 0u
#define SLOT 1024u
#define ANSWERS 2048u
#define PUTS 3u
#define SENT 1u
#define LOST 2u

typedef struct error_args {
    const ist_dev_comm *dev;
    uint32_t sees_errors;
    uint32_t reserved;
} error_args;

static uint64_t wait_for_put(ist_coop *coop, const error_args *args, uint32_t peer, uint64_t least)
{
    while (ist_gin_counter_wait(coop, args->dev, 0, 0, least,
                                ist_clock_ns(coop) + MUSEUM_LOOK_NS) != IST_WAIT_DONE) {
        if (args->sees_errors && ist_gin_peer_error(coop, args->dev, peer)) {
            return LOST;
        }
    }
    return SENT;
}

IST_KERNEL(museum_error_put, error_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank;
    uint64_t *answers = ist_window_local(coop, dev, 0, ANSWERS);
    ist_gin_action nothing = {IST_GIN_NONE, 0, 0};
    uint64_t answer = SENT;
    for (uint32_t i = 0; i < PUTS; ++i) {
        if (answer == SENT) {
            ist_point(coop, "error.put");
            ist_gin_put(coop, dev, 0, peer, 0, SLOT + i * MUSEUM_ROW, 0, PAGE, MUSEUM_ROW, nothing,
                        0);
            ist_point(coop, "error.wait");
            answer = wait_for_put(coop, args, peer, i + 1u);
        }
        ist_store_u64(coop, &answers[i], answer, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

static uint32_t struck_rank(const museum_run *run)
{
    return museum_draw(run, 0, 2);
}

static uint32_t struck_put(const museum_run *run)
{
    return museum_draw(run, 1, PUTS);
}

static ist_status error_faults(const museum_run *run, ist_fault_plan *plan)
{
    ist_fault fault = {.size = sizeof(fault),
                       .kind = IST_FAULT_ERROR,
                       .trigger = IST_FAULT_NTH,
                       .rank = (int32_t)struck_rank(run),
                       .peer = IST_FAULT_ANY,
                       .classes = IST_FAULT_PUTS,
                       .at_op = struck_put(run) + 1u};
    return ist_fault_plan_add(plan, &fault);
}

static ist_status expect_answers(const museum_rig *rig)
{
    uint64_t answers[PUTS];
    IST_TEST_PASS_ON(ist_copy_to_host(rig->stream, answers, rig->mine + ANSWERS, sizeof(answers)));
    for (uint32_t i = 0; i < PUTS; ++i) {
        bool struck = rig->rank == struck_rank(rig->run) && i >= struck_put(rig->run);
        if (answers[i] != (struck ? LOST : SENT)) {
            museum_wrong(rig, "put %u ended with %llu", i, (unsigned long long)answers[i]);
        }
    }
    return IST_OK;
}

static ist_status error_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    error_args args = {.dev = rig.dev, .sees_errors = 1u - rig.run->broken};
    IST_TEST_PASS_ON(ist_launch(rig.stream, &ist_kernel_museum_error_put, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(expect_answers(&rig));
    return museum_close(&rig);
}

const museum_piece museum_error_is_not_yet = {
    .name = "error-is-not-yet",
    .address = "NVIDIA/nccl issue 2383",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(LIVELOCK), {"the limit of steps", "in museum_error_put"}}},
    .rank_main = error_main,
    .faults = error_faults,
    .step_count_max = 5000,
};
