/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The explorer without memory: each allocation of a schedule fails once, in a thread that has no
 * explorer yet. Method: the loop ends when no allocation is left to fail; every run ends with an
 * answer, and a schedule after it is what it was before.
 */
#include "ist_test.h"
#include "sim_explore.h"

#include <cmocka.h>

typedef struct pass_args {
    const ist_dev_comm *dev;
} pass_args;

IST_KERNEL(explore_pass, pass_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = (dev->rank + 1u) % dev->rank_count;
    uint64_t deadline_ns = ist_clock_ns(coop) + 1000000u;
    const ist_gin_action raise = {IST_GIN_SIGNAL_INC, 0, 0};
    ist_row_fill(coop, ist_window_local(coop, dev, 0, 64), 1, 64);
    ist_gin_put(coop, dev, 0, peer, 0, 128, 0, 64, 64, raise, IST_GIN_NO_COUNTER);
    ist_store_u64(coop, ist_window_peer(coop, dev, 0, 0, peer), 1, IST_RELEASE, IST_SCOPE_SYSTEM);
    (void)ist_gin_signal_wait(coop, dev, 0, 0, 1, deadline_ns);
    (void)ist_coop_wait_word(coop, dev, ist_window_local(coop, dev, 0, 0), 1, deadline_ns,
                             IST_SCOPE_SYSTEM);
    (void)ist_lsa_barrier_sync(coop, dev, 0, deadline_ns, NULL);
}

static ist_status pass_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    const ist_dev_comm *dev = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 4096, 1, 1, 1, 1, &dev));
    pass_args args = {dev};
    IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_explore_pass, 2, &args, sizeof(args)));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, dev));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    return ist_comm_close(comm);
}

/* Two blocks of a rank put and raise at once: races are wanted here, the world goes on. */
static ist_status run(ist_scheduler scheduler, ist_explore_report *report)
{
    ist_explore_desc explore = {
        .size = sizeof(explore), .scheduler = scheduler, .options = IST_EXPLORE_GO_ON};
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = 2, .seed = 3};
    *report = (ist_explore_report){.size = sizeof(*report)};
    return ist_explore_run(&desc, pass_main, NULL, &explore, report);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    const ist_scheduler schedulers[] = {IST_SCHEDULER_RANDOM, IST_SCHEDULER_PCT};
    for (uint32_t s = 0; s < 2; ++s) {
        ist_explore_report first, report;
        sim_explore_trim();
        assert_int_equal(run(schedulers[s], &first), IST_OK);
        assert_true(first.finding_count > 0);
        uint64_t hits = 1;
        for (uint64_t nth = 1; hits > 0; ++nth) {
            sim_explore_trim();
            assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
            (void)run(schedulers[s], &report);
            (void)ist_call_fault_disarm(&hits);
            if (hits > 0 && nth % 16u == 0) {
                assert_int_equal(run(schedulers[s], &report), IST_OK);
                assert_int_equal(report.choices_digest, first.choices_digest);
            }
        }
    }
    sim_explore_trim();
}

static int count_runs(void *context, ist_status status, const ist_explore_report *report)
{
    (void)status;
    (void)report;
    return ++*(uint32_t *)context >= 40u;
}

static void a_search_fails_cleanly(void **state)
{
    (void)state;
    uint64_t hits = 1;
    for (uint64_t nth = 1; hits > 0 && nth < 4000; nth += 7) {
        uint32_t runs = 0;
        ist_world_desc desc = {.size = sizeof(desc), .rank_count = 2};
        ist_explore_all_desc all = {
            .size = sizeof(all),
            .run_count_max = 40,
            .explore = {.size = sizeof(all.explore), .options = IST_EXPLORE_GO_ON},
            .each = count_runs,
            .context = &runs};
        sim_explore_trim();
        assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
        (void)ist_explore_all(&desc, pass_main, NULL, &all, NULL);
        (void)ist_call_fault_disarm(&hits);
    }
    sim_explore_trim();
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(a_search_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
