/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: one program, in one process or with a process for each rank, makes the same run; a process
 * that dies or leaves is a lost rank, and the others finish. Method: barriers, puts, stores, a graph
 * and an agreement; process.sh starts it under mpirun and compares the lines. Alone it runs all
 * ranks in this process.
 *
 *   test_process_ranks [--end HOW RANK STEP]   HOW: kill (SIGKILL), leave (exit without ending)
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS 4u
#define STEPS 8u
/* Of a kernel's wait, and of the communicator: longer, or ranks lose each other. Processes of a real
   machine begin a step milliseconds apart. */
#define WAIT_NS (ist_test_on_simulator() ? 100000ull : 200000000ull)
#define DEADLINE_NS (ist_test_on_simulator() ? 1000000ull : 500000000ull)

typedef struct plan {
    const char *how; /* NULL: nobody ends */
    uint32_t rank, step;
} plan;

/* The end of the process, in the middle of the program. */
static void end_here(const plan *at)
{
    if (strcmp(at->how, "kill") == 0) {
        (void)raise(SIGKILL);
    }
    _exit(0);
}

static ist_status put(ist_test_rank *test, uint64_t tag)
{
    tk_gin_args args = {.dev = test->dev,
                        .out = (uint64_t *)(void *)test->out,
                        .bytes = 512,
                        .count = 3,
                        .dst_offset = 16384,
                        .wait_ns = WAIT_NS,
                        .least = 3 * tag,
                        .what = TK_GIN_PUT | TK_GIN_WAIT,
                        .window = test->window_index,
                        .peer = (test->rank + 1) % test->rank_count,
                        .put_action = IST_GIN_SIGNAL_INC};
    EXPECT_OK(test->world, ist_launch(test->stream, &ist_kernel_tk_gin, 1, &args, sizeof(args)));
    return IST_OK;
}

static ist_status exchange(ist_test_rank *test, uint64_t tag)
{
    uint64_t out[4] = {0};
    tk_lsa_args store = {.dev = test->dev,
                         .out = (uint64_t *)(void *)test->out,
                         .tag = tag,
                         .wait_ns = WAIT_NS,
                         .window = test->window_index,
                         .words = 4};
    EXPECT_OK(test->world, ist_launch(test->stream, &ist_kernel_tk_lsa, 1, &store, sizeof(store)));
    if (test->info.gin_supported != 0) {
        IST_TEST_PASS_ON(put(test, tag));
    }
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, out, test->out, sizeof(out)));
    return IST_OK;
}

static ist_status read_mask(ist_test_rank *test, uint64_t *word, uint64_t *generation)
{
    ist_mask mask = {.size = sizeof(mask), .words = word, .word_count = 1};
    EXPECT_OK(test->world, ist_comm_mask_query(test->comm, &mask));
    *generation = mask.generation;
    return IST_OK;
}

static ist_status finish(ist_test_rank *test, const plan *at)
{
    uint64_t word = 0, generation = 0;
    EXPECT_OK(test->world, ist_comm_agree(test->comm, test->stream));
    IST_TEST_PASS_ON(read_mask(test, &word, &generation));
    uint64_t all = (1u << test->rank_count) - 1u;
    EXPECT_EQUAL(test->world, word, at->how != NULL ? all & ~(1ull << at->rank) : all);
    EXPECT_EQUAL(test->world, generation, 2);
    EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
    EXPECT_OK(test->world, ist_stream_sync(test->stream, 0));
    printf("finished rank=%" PRIu32 " mask=%" PRIx64 "\n", test->rank, word);
    return IST_OK;
}

/* Without a network peers are reached by load and store alone; the simulator always has one. */
static ist_status ask_for_network(ist_world *world, ist_test_setup *setup)
{
    ist_comm *comm = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT_OK(world, ist_comm_close(comm));
    EXPECT(world, info.gin_supported != 0 || !ist_test_on_simulator());
    setup->context_count = info.gin_supported != 0 ? 1 : 0;
    setup->signal_count = info.gin_supported != 0 ? 2 : 0;
    setup->counter_count = info.gin_supported != 0 ? 1 : 0;
    return IST_OK;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    ist_test_setup setup = {.window_bytes = 32768, .fault_tolerant = 1, .deadline_ns = DEADLINE_NS};
    const plan *at = arg;
    ist_test_rank test;
    ist_graph *graph = NULL;
    IST_TEST_PASS_ON(ask_for_network(world, &setup));
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    EXPECT_OK(world, ist_fill(test.stream, test.out + 1024, 3, 512));
    EXPECT_OK(world, ist_graph_end(test.stream, &graph));
    const uint64_t all = (1u << test.rank_count) - 1u;
    uint64_t word = all, generation = 0;
    for (uint32_t step = 0; step < STEPS && word == all; ++step) {
        if (at->how != NULL && at->rank == test.rank && at->step == step) {
            end_here(at);
        }
        IST_TEST_PASS_ON(exchange(&test, step + 1));
        EXPECT_OK(world, ist_graph_launch(graph, test.stream));
        EXPECT_OK(world, ist_stream_sync(test.stream, 0));
        IST_TEST_PASS_ON(read_mask(&test, &word, &generation));
    }
    IST_TEST_PASS_ON(finish(&test, at));
    EXPECT_OK(world, ist_graph_close(graph));
    return ist_test_rank_close(&test, at->how != NULL);
}

int main(int argc, char **argv)
{
    plan at = {0};
    if (argc == 5 && strcmp(argv[1], "--end") == 0) {
        at = (plan){argv[2], (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4])};
    }
    ist_test_init(argc, argv);
    ist_world_desc desc = ist_test_desc(ist_test_ranks(RANKS), "2x2");
    ist_world_result result = {.size = sizeof(result)};
    ist_status status = ist_test_run_desc(&desc, rank_main, &at, &result);
    printf("world status=%s lost=%" PRIu32 " digest=%016" PRIx64 " events=%" PRIu64
           " virtual_ns=%" PRIu64 "\n",
           ist_status_name(status), result.lost_count, result.digest, result.event_count,
           result.virtual_ns);
    return status == IST_OK ? 0 : 1;
}
