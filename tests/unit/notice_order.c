/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that reads a row which its owner has changed after giving it up finds the notice, when it
 * looks behind the row. Method: both sides of kernel_wire.h as two small kernels, under many random
 * schedules; all outcomes appear but a new row without a notice.
 */
#include "ist_test.h"

#include "mask/mask_service.h"

#include <isthmus/unstable/explore.h>

#include <cmocka.h>

#define RUNS 400u
#define ROW_BYTES 64u

typedef struct outcome {
    uint32_t seen[2][2]; /* [row is new][told] */
} outcome;

typedef struct notice_args {
    const ist_dev_comm *dev;
    outcome *out; /* host memory: the simulator's kernels are C functions */
    uint64_t row; /* in window 0 */
} notice_args;

/* Gives rank 1 up, then writes over what that may still read. */
IST_KERNEL(notice_give_up, notice_args)
{
    ist_wire wire = ist_mask_wire(coop, args->dev);
    uint8_t *marks = ist_wire_marks_of(coop, wire.room);
    IST_EACH_LANE (coop, peer, wire.ranks) {
        marks[peer] = peer == 1u;
    }
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_wire_drop(coop, args->dev, IST_ERR_TIMEOUT, 1, IST_DEV_OP_USER, 1, 0, 0);
    }
    ist_wire_notify(coop, &wire, marks);
    ist_row_fill(coop, ist_window_local(coop, args->dev, 0, args->row), 5, ROW_BYTES);
}

IST_KERNEL(notice_look, notice_args)
{
    ist_wire wire = ist_mask_wire(coop, args->dev);
    uint8_t *copy = (uint8_t *)ist_coop_scratch(coop, IST_WIRE_SCRATCH_FIRST_FREE, ROW_BYTES);
    ist_row_copy(coop, copy, ist_window_peer(coop, args->dev, 0, args->row, 0), ROW_BYTES);
    int told = ist_wire_noticed(coop, &wire, NULL);
    ++args->out->seen[copy[0] != 0][told];
}

static ist_status notice_main(ist_world *world, void *arg)
{
    const ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    uint32_t rank = ist_world_rank(world);
    notice_args args = {.out = arg, .row = ist_mask_layout_of(2).bytes};
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    IST_TEST_PASS_ON(ist_comm_open(world, &desc, &comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, args.row + ROW_BYTES, 0, 0, 0, 0, &args.dev));
    IST_TEST_PASS_ON(ist_launch(stream,
                                rank == 0 ? &ist_kernel_notice_give_up : &ist_kernel_notice_look, 1,
                                &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, args.dev));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    return ist_comm_close(comm);
}

static void who_reads_what_is_new_is_told(void **state)
{
    outcome seen = {{{0}}};
    (void)state;
    for (uint32_t i = 0; i < RUNS; ++i) {
        const ist_explore_desc how = {.size = sizeof(how), .scheduler = IST_SCHEDULER_RANDOM};
        const ist_world_desc world = {
            .size = sizeof(world), .rank_count = 2, .seed = ist_test_seed() + i};
        ist_explore_report report = {.size = sizeof(report)};
        ist_status status = ist_explore_run(&world, notice_main, &seen, &how, &report);
        if (status != IST_OK) {
            print_error("seed %u: %s", i, report.finding.text);
        }
        assert_int_equal(status, IST_OK);
    }
    print_message("old %u, old and told %u, new and told %u\n", seen.seen[0][0], seen.seen[0][1],
                  seen.seen[1][1]);
    assert_true(seen.seen[0][0] != 0 && seen.seen[0][1] != 0 && seen.seen[1][1] != 0);
    assert_int_equal(seen.seen[1][0], 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_reads_what_is_new_is_told),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("notice order", tests, NULL, NULL);
}
