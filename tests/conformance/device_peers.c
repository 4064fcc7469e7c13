/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: device code reaches load/store peers, meets them in barriers, waits for all peers within a
 * bound, and gives up those that do not come. Method: kernels on worlds of one and several teams;
 * silent and late ranks.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <string.h>

#define WAIT_NS 100000000u
#define RANKS_MAX 8u

static const char *const clusters[] = {NULL, "2x2", "4x1", "1x4"};

static void run_everywhere(ist_rank_fn rank_main)
{
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); ++i) {
        if (ist_test_has_cluster(clusters[i])) {
            assert_int_equal(ist_test_run(ist_test_ranks(4), clusters[i], rank_main, NULL), IST_OK);
        }
    }
    assert_int_equal(ist_test_run(1, NULL, rank_main, NULL), IST_OK);
}

static uint64_t *out_of(const ist_test_rank *test)
{
    return (uint64_t *)(void *)test->out;
}

/* ---- stores and flags ------------------------------------------------------------------------ */

static ist_status store_round(ist_test_rank *test, uint64_t tag, uint32_t window)
{
    uint64_t out[3] = {0}, sum = 0;
    uint32_t first = test->rank - test->info.lsa_rank;
    tk_lsa_args args = {.dev = test->dev,
                        .out = out_of(test),
                        .tag = tag,
                        .wait_ns = WAIT_NS,
                        .window = window,
                        .words = 20};
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_lsa, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_test_results(test, out, sizeof(out)));
    for (uint32_t peer = first; peer < first + test->info.lsa_size; ++peer) {
        for (uint32_t i = 0; i < args.words; ++i) {
            sum += tag * 1000 + peer * 10 + i;
        }
    }
    EXPECT_EQUAL(test->world, out[0], 0);
    EXPECT_EQUAL(test->world, out[1], sum);
    EXPECT_EQUAL(test->world, out[2], test->rank_count - test->info.lsa_size);
    EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
    return IST_OK;
}

static ist_status stores_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.window_bytes = 8192, .resource_bytes = 8192};
    ist_test_rank test;
    uint64_t out[RANKS_MAX + 1] = {0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (uint64_t tag = 1; tag <= 10; ++tag) {
        IST_TEST_PASS_ON(store_round(&test, tag, test.window_index));
        IST_TEST_PASS_ON(store_round(&test, tag, 0)); /* the zeroed resource window */
    }
    tk_address_args args = {.dev = test.dev, .out = out_of(&test), .window = test.window_index};
    for (int i = 0; i < 2; ++i) {
        args.offset = i == 0 ? 8191 : 8192;
        IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_address, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
        for (uint32_t peer = 0; peer < test.rank_count; ++peer) {
            bool near = peer / test.info.lsa_size == test.rank / test.info.lsa_size;
            EXPECT_EQUAL(world, out[peer], near && i == 0);
        }
    }
    return ist_test_rank_close(&test, false);
}

static void stores_reach_the_team_and_flags_release_them(void **state)
{
    (void)state;
    run_everywhere(stores_main);
}

/* ---- the barrier of the team ----------------------------------------------------------------- */

static ist_status barrier_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.window_bytes = 4096, .barrier_count = 3};
    ist_test_rank test;
    uint64_t out[2] = {0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    tk_lsa_barrier_args args = {.dev = test.dev,
                                .out = out_of(&test),
                                .wait_ns = WAIT_NS,
                                .first_wait_ns = WAIT_NS,
                                .window = test.window_index,
                                .rounds = 20};
    for (args.barrier = 0; args.barrier < 3; ++args.barrier) {
        IST_TEST_PASS_ON(
            ist_test_launch(&test, &ist_kernel_tk_lsa_barrier, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
        EXPECT_EQUAL(world, out[0], 0);
        EXPECT_EQUAL(world, out[1], 0);
    }
    /* One rank comes late: the others time out once, and the barrier goes on. */
    bool late = test.info.lsa_rank == 0;
    args.barrier = 1;
    args.first_wait_ns = 1000000;
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    if (late) {
        EXPECT_OK(world, ist_world_sleep(world, 20000000));
    }
    IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_lsa_barrier, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
    EXPECT_EQUAL(world, out[0], 0);
    EXPECT_EQUAL(world, out[1], late ? 0 : 1);
    EXPECT_OK(world, ist_comm_status(test.comm));
    return ist_test_rank_close(&test, false);
}

static void the_team_barrier_orders_and_survives_a_timeout(void **state)
{
    (void)state;
    run_everywhere(barrier_main);
}

/* ---- waiting for all peers ------------------------------------------------------------------- */

static const ist_test_setup peers_setup = {.window_bytes = 4096,
                                           .context_count = 2,
                                           .signal_count = RANKS_MAX,
                                           .counter_count = 1,
                                           .fault_tolerant = 1};
static const ist_test_setup team_setup = {.window_bytes = 4096, .fault_tolerant = 1};

/* One team needs no network; elsewhere there is one, or the ranks cannot work together at all. */
static ist_status open_peers(ist_world *world, ist_test_rank *test)
{
    ist_comm *comm = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT_OK(world, ist_comm_close(comm));
    bool team = info.lsa_size == info.rank_count;
    EXPECT(world, team || info.gin_supported != 0);
    return ist_test_rank_open(world, team ? &team_setup : &peers_setup, test);
}

static ist_status wait_peers(ist_test_rank *test, uint64_t tag, bool silent, uint64_t wait_ns,
                             uint64_t *out)
{
    uint64_t step = tag == 7 && test->rank == 1 ? 2 : 1; /* it was silent at 6 */
    tk_peers_args args = {.dev = test->dev,
                          .out = out_of(test),
                          .tag = tag,
                          .wait_ns = wait_ns,
                          .window = test->window_index,
                          .silent = silent,
                          .skip_self = tag % 2 == 0 || silent,
                          .drop = 1,
                          .step = step};
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_peers, 1, &args, sizeof(args)));
    return ist_test_results(test, out, (3 + RANKS_MAX) * sizeof(*out));
}

static ist_status check_mask(ist_test_rank *test, uint32_t lost)
{
    uint64_t words[2] = {0}, out[RANKS_MAX + 1];
    uint32_t count = 99;
    ist_mask mask = {.size = sizeof(mask), .words = words, .word_count = 2};
    tk_mask_args args = {.dev = test->dev, .out = out_of(test)};
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_mask, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_test_results(test, out, sizeof(out)));
    EXPECT_OK(test->world, ist_comm_mask_query(test->comm, &mask));
    EXPECT_EQUAL(test->world, mask.rank_count, test->rank_count);
    for (uint32_t rank = 0; rank < test->rank_count; ++rank) {
        EXPECT_EQUAL(test->world, out[rank], rank != lost);
        EXPECT_EQUAL(test->world, ist_mask_test(words, rank), rank != lost);
    }
    EXPECT_EQUAL(test->world, out[test->rank_count], 0);
    EXPECT_OK(test->world, ist_comm_error_get(test->comm, 0, &count, NULL));
    EXPECT_EQUAL(test->world, count, lost < test->rank_count);
    return IST_OK;
}

static ist_status check_record(ist_test_rank *test, uint32_t lost, uint64_t tag)
{
    ist_error error = {.size = sizeof(error)};
    uint32_t count = 0;
    EXPECT_OK(test->world, ist_comm_error_get(test->comm, 0, &count, &error));
    EXPECT_EQUAL(test->world, count, 1);
    EXPECT_EQUAL(test->world, error.status, IST_ERR_TIMEOUT);
    EXPECT_EQUAL(test->world, error.rank, test->rank);
    EXPECT_EQUAL(test->world, error.peer, lost);
    EXPECT_EQUAL(test->world, error.sequence, 77);
    EXPECT_EQUAL(test->world, error.expected, tag);
    EXPECT_EQUAL(test->world, error.observed, 3);
    EXPECT(test->world, error.message[0] != '\0' && error.waited_ns >= 2000000);
    EXPECT_STATUS(test->world, ist_comm_error_get(test->comm, 1, &count, &error), IST_ERR_RANGE);
    EXPECT_OK(test->world, ist_comm_error_clear(test->comm));
    EXPECT_OK(test->world, ist_comm_error_get(test->comm, 0, &count, NULL));
    EXPECT_EQUAL(test->world, count, 0);
    return IST_OK;
}

static ist_status peers_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    uint64_t out[3 + RANKS_MAX];
    const uint32_t silent = 1;
    (void)arg;
    IST_TEST_PASS_ON(open_peers(world, &test));
    for (uint64_t tag = 1; tag <= 5; ++tag) {
        IST_TEST_PASS_ON(wait_peers(&test, tag, false, WAIT_NS, out));
        EXPECT_EQUAL(world, out[0], 0);
        for (uint32_t peer = 0; peer < test.rank_count; ++peer) {
            EXPECT_EQUAL(world, out[2 + peer], IST_WAIT_DONE + 1);
        }
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    }
    IST_TEST_PASS_ON(check_mask(&test, UINT32_MAX));
    /* The silent rank is given up by all others, and by nobody twice. */
    bool here = test.rank == silent;
    IST_TEST_PASS_ON(wait_peers(&test, 6, here, here ? WAIT_NS : 2000000, out));
    if (!here && test.rank_count > 1) {
        EXPECT_EQUAL(world, out[0], 1);
        EXPECT(world, out[1] >= 2000000 && out[1] < 500000000);
        EXPECT_EQUAL(world, out[2 + silent], IST_WAIT_TIMEOUT + 1);
        EXPECT_EQUAL(world, out[2 + test.rank_count], 1);
        IST_TEST_PASS_ON(check_mask(&test, silent));
        IST_TEST_PASS_ON(check_record(&test, silent, 6));
    } else {
        EXPECT_EQUAL(world, out[0], 0);
    }
    /* Masked: not waited for. */
    IST_TEST_PASS_ON(wait_peers(&test, 7, false, WAIT_NS, out));
    EXPECT_EQUAL(world, out[0], 0);
    for (uint32_t peer = 0; peer < test.rank_count; ++peer) {
        bool masked = peer == silent && !here;
        EXPECT_EQUAL(world, out[2 + peer], (masked ? IST_WAIT_MASKED : IST_WAIT_DONE) + 1);
    }
    /* Everybody may close alone, whoever is masked by whom. */
    return ist_test_rank_close(&test, true);
}

static void silent_peers_are_given_up_in_time(void **state)
{
    (void)state;
    run_everywhere(peers_main);
}

/* ---- waits that nobody ends ------------------------------------------------------------------ */

static ist_status timeouts_main(ist_world *world, void *arg)
{
    static const ist_test_setup plain = {.window_bytes = 4096};
    static const ist_test_setup network = {
        .window_bytes = 4096, .context_count = 1, .signal_count = 2, .counter_count = 2};
    bool gin = arg != NULL;
    ist_test_rank test;
    uint64_t out[8] = {0};
    IST_TEST_PASS_ON(ist_test_rank_open(world, gin ? &network : &plain, &test));
    tk_timeouts_args args = {.dev = test.dev,
                             .out = out_of(&test),
                             .word = out_of(&test) + 64,
                             .wait_ns = 300000,
                             .network = gin};
    for (int i = 0; i < 3; ++i) {
        IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_timeouts, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(&test, out, sizeof(out)));
        EXPECT_EQUAL(world, out[0], IST_WAIT_TIMEOUT + 1);
        EXPECT_EQUAL(world, out[1], gin ? IST_WAIT_TIMEOUT + 1 : 0);
        EXPECT_EQUAL(world, out[2], gin ? IST_WAIT_TIMEOUT + 1 : 0);
        EXPECT_EQUAL(world, out[3], gin ? IST_WAIT_DONE + 1 : 0);
    }
    EXPECT_OK(world, ist_comm_status(test.comm));
    IST_TEST_PASS_ON(store_round(&test, 3, test.window_index));
    return ist_test_rank_close(&test, false);
}

static void waits_end_and_leave_things_usable(void **state)
{
    int network = 1;
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, timeouts_main, NULL), IST_OK);
    if (ist_test_on_simulator()) {
        assert_int_equal(ist_test_run(2, "2x1", timeouts_main, &network), IST_OK);
    }
}

/* ---- failure without a mask, and abort ------------------------------------------------------- */

static ist_status failed_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.window_bytes = 4096};
    ist_test_rank test;
    uint64_t out[3 + RANKS_MAX] = {0};
    ist_error error = {.size = sizeof(error)};
    uint32_t count = 0;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    if (test.info.lsa_size != test.rank_count) {
        return ist_test_rank_close(&test, false);
    }
    bool silent = test.rank == 1;
    IST_TEST_PASS_ON(wait_peers(&test, 1, silent, silent ? WAIT_NS : 2000000, out));
    if (silent) {
        EXPECT_OK(world, ist_comm_status(test.comm));
        return ist_test_rank_close(&test, true);
    }
    EXPECT_EQUAL(world, out[2 + 1], IST_WAIT_TIMEOUT + 1);
    EXPECT_STATUS(world, ist_comm_status(test.comm), IST_ERR_TIMEOUT);
    EXPECT_STATUS(world, ist_comm_barrier(test.comm, test.stream), IST_ERR_TIMEOUT);
    EXPECT_OK(world, ist_error_last(&error));
    EXPECT_EQUAL(world, error.peer, 1);
    EXPECT_OK(world, ist_comm_error_get(test.comm, 0, &count, &error));
    EXPECT_EQUAL(world, count, 1);
    EXPECT_EQUAL(world, error.peer, 1);
    return ist_test_rank_close(&test, true);
}

static void without_a_mask_a_lost_peer_fails_the_communicator(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), "1x4", failed_main, NULL), IST_OK);
}

static ist_status abort_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.window_bytes = 4096};
    ist_test_rank test;
    ist_window *window = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    uint64_t result = 0;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    /* The barrier lacks a peer on rank 1, the gate lacks an opener: both end by the abort. */
    if (test.rank != 1) {
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    }
    tk_gate_args gate = {.dev = test.dev,
                         .word = out_of(&test) + 64,
                         .least = 1,
                         .wait_ns = IST_TEST_DEADLINE_NS * 10,
                         .result = out_of(&test)};
    EXPECT_OK(world, ist_launch(test.stream, &ist_kernel_tk_gate, 1, &gate, sizeof(gate)));
    EXPECT_STATUS(world, ist_stream_sync(test.stream, 1000000), IST_ERR_TIMEOUT);
    EXPECT_OK(world, ist_comm_abort(test.comm));
    EXPECT_OK(world, ist_comm_abort(test.comm));
    uint64_t began = ist_world_clock_ns(world);
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    EXPECT(world, ist_world_clock_ns(world) - began < 50000000);
    EXPECT_OK(world, ist_mem_peek(world, test.out, &result, sizeof(result)));
    EXPECT_EQUAL(world, result, IST_WAIT_ABORTED + 1);
    EXPECT_STATUS(world, ist_comm_status(test.comm), IST_ERR_ABORTED);
    EXPECT_REFUSED(world, ist_comm_barrier(test.comm, test.stream), IST_ERR_ABORTED, "comm");
    EXPECT_REFUSED(world, ist_window_open(test.comm, test.memory, 4096, &window), IST_ERR_ABORTED,
                   "comm");
    EXPECT_OK(world, ist_comm_query(test.comm, &info));
    /* The stream is none of the communicator's. */
    EXPECT_OK(world, ist_fill(test.stream, test.out, 1, 8));
    return ist_test_rank_close(&test, true);
}

static void abort_ends_every_wait(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, abort_main, NULL), IST_OK);
    if (ist_test_on_simulator()) {
        assert_int_equal(ist_test_run(4, "2x2", abort_main, NULL), IST_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_reach_the_team_and_flags_release_them),
        cmocka_unit_test(the_team_barrier_orders_and_survives_a_timeout),
        cmocka_unit_test(silent_peers_are_given_up_in_time),
        cmocka_unit_test(waits_end_and_leave_things_usable),
        cmocka_unit_test(without_a_mask_a_lost_peer_fails_the_communicator),
        cmocka_unit_test(abort_ends_every_wait),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
