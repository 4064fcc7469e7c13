/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collectives under every schedule: results are right, and what they order is what they say.
 * Method: rank 0 writes into rank 1's window by a kernel before a collective, rank 1 reads it by a
 * kernel behind it. Where data went from rank 0 to rank 1 that is no race; where none did it must be
 * found. And a buffer that another stream writes meanwhile is a race, unless an event says when.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RUNS_MAX 20000u

typedef enum call {
    ALL_REDUCE,
    ALL_GATHER,
    BROADCAST_0,
    BROADCAST_1,
    REDUCE_0,
    REDUCE_1,
    SEND_01,
    SEND_10,
    REDUCE_SCATTER
} call;

typedef enum meanwhile { NOTHING, FILLS_SEND, FILLS_SEND_LATER, PEER_WRITES } meanwhile;

typedef struct program {
    call call;
    meanwhile meanwhile;
    bool races;
    const char *name;
} program;

typedef struct row_args {
    const ist_dev_comm *dev;
    uint64_t write; /* 1: to rank 1; 0: reads its own */
} row_args;

IST_KERNEL(coll_row, row_args)
{
    const ist_dev_comm *dev = args->dev;
    void *row =
        args->write != 0 ? ist_window_peer(coop, dev, 0, 0, 1) : ist_window_local(coop, dev, 0, 0);
    if (args->write != 0) {
        ist_row_fill(coop, row, 5, 64);
    } else {
        ist_row_copy(coop, ist_coop_scratch(coop, 0, 64), row, 64);
    }
}

static ist_status pair(ist_world *world, ist_comm *comm, ist_stream *stream, uint32_t *words,
                       uint32_t from)
{
    return ist_world_rank(world) == from ? ist_send(comm, stream, words, 2, IST_U32, 1u - from)
                                         : ist_recv(comm, stream, words + 8, 2, IST_U32, from);
}

static ist_status collective(const program *which, ist_world *world, ist_comm *comm,
                             ist_stream *stream, uint32_t *words)
{
    const ist_reduction sum = IST_REDUCE_SUM;
    switch (which->call) {
    case ALL_REDUCE: return ist_all_reduce(comm, stream, words, words + 8, 2, IST_U32, sum);
    case ALL_GATHER: return ist_all_gather(comm, stream, words, words + 8, 2, IST_U32);
    case BROADCAST_0: return ist_broadcast(comm, stream, words, words + 8, 2, IST_U32, 0);
    case BROADCAST_1: return ist_broadcast(comm, stream, words, words + 8, 2, IST_U32, 1);
    case REDUCE_0: return ist_reduce(comm, stream, words, words + 8, 2, IST_U32, sum, 0);
    case REDUCE_1: return ist_reduce(comm, stream, words, words + 8, 2, IST_U32, sum, 1);
    case SEND_01: return pair(world, comm, stream, words, 0);
    case SEND_10: return pair(world, comm, stream, words, 1);
    case REDUCE_SCATTER: return ist_reduce_scatter(comm, stream, words, words + 8, 1, IST_U32, sum);
    }
    return IST_ERR_ARGUMENT;
}

/* The second stream writes the send buffer: behind an event of the collective, or whenever. */
static ist_status beside(const program *which, ist_event *event, ist_stream *stream,
                         ist_stream *other, uint32_t *words)
{
    if (which->meanwhile == FILLS_SEND_LATER) {
        IST_TEST_PASS_ON(ist_event_record(event, stream));
        IST_TEST_PASS_ON(ist_event_wait(event, other));
    }
    if (which->meanwhile == FILLS_SEND || which->meanwhile == FILLS_SEND_LATER) {
        IST_TEST_PASS_ON(ist_fill(other, words, 9, 8));
    }
    return IST_OK;
}

static ist_status check(const program *which, ist_stream *stream, const uint32_t *words)
{
    uint32_t got[2] = {0, 0};
    IST_TEST_PASS_ON(ist_copy_to_host(stream, got, words + 8, sizeof(got)));
    return which->call != ALL_REDUCE || got[0] == 3 || which->races ? IST_OK : IST_ERR_INTERNAL;
}

static ist_status run_in(const program *which, ist_world *world, ist_comm *comm,
                         const ist_dev_comm *dev, uint32_t *words)
{
    ist_stream *stream = NULL, *other = NULL;
    ist_event *event = NULL;
    const uint32_t rank = ist_world_rank(world);
    const uint32_t mine[2] = {rank + 1, rank + 2};
    row_args args = {.dev = dev, .write = rank == 0};
    const bool rows = which->meanwhile == PEER_WRITES;
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_stream_open(world, &other));
    IST_TEST_PASS_ON(ist_event_open(world, &event));
    IST_TEST_PASS_ON(ist_copy_to_device(stream, words, mine, sizeof(mine)));
    IST_TEST_PASS_ON(ist_fill(stream, words + 8, 0, 16));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    if (rows && rank == 0) {
        IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_coll_row, 1, &args, sizeof(args)));
    }
    IST_TEST_PASS_ON(collective(which, world, comm, stream, words));
    IST_TEST_PASS_ON(beside(which, event, stream, other, words));
    if (rows && rank == 1) {
        IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_coll_row, 1, &args, sizeof(args)));
    }
    IST_TEST_PASS_ON(ist_stream_sync(other, 0));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_coll_status(comm));
    ist_status status = check(which, stream, words);
    IST_TEST_PASS_ON(ist_event_close(event));
    IST_TEST_PASS_ON(ist_stream_close(other));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    return status;
}

static ist_status program_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    const ist_dev_comm *dev = NULL;
    void *memory = NULL;
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &comm));
    IST_TEST_PASS_ON(ist_coll_open(comm));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 4096, 0, 0, 0, 0, &dev));
    IST_TEST_PASS_ON(ist_mem_alloc(world, 4096, IST_MEM_PLAIN, &memory));
    IST_TEST_PASS_ON(run_in(arg, world, comm, dev, memory));
    IST_TEST_PASS_ON(ist_mem_free(world, memory));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, dev));
    return ist_comm_close(comm);
}

static const program programs[] = {
    {ALL_REDUCE, NOTHING, false, "all-reduce"},
    {ALL_GATHER, NOTHING, false, "all-gather"},
    {ALL_REDUCE, FILLS_SEND, true, "all-reduce, another stream writes its input"},
    {ALL_REDUCE, FILLS_SEND_LATER, false, "all-reduce, another stream writes its input behind it"},
    {ALL_REDUCE, PEER_WRITES, false, "write, all-reduce, read"},
    {ALL_GATHER, PEER_WRITES, false, "write, all-gather, read"},
    {REDUCE_SCATTER, PEER_WRITES, false, "write, reduce-scatter, read"},
    {BROADCAST_0, PEER_WRITES, false, "write, broadcast from the writer, read"},
    {BROADCAST_1, PEER_WRITES, true, "write, broadcast from the reader, read"},
    {REDUCE_1, PEER_WRITES, false, "write, reduce to the reader, read"},
    {REDUCE_0, PEER_WRITES, true, "write, reduce to the writer, read"},
    {SEND_01, PEER_WRITES, false, "write, send to the reader, read"},
    {SEND_10, PEER_WRITES, true, "write, receive from the reader, read"},
};

static bool as_it_must(const program *which)
{
    program copy = *which;
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = 2};
    ist_explore_all_desc all = {.size = sizeof(all), .run_count_max = RUNS_MAX};
    ist_explore_all_result result = {.size = sizeof(result)};
    ist_status status = ist_explore_all(&desc, program_main, &copy, &all, &result);
    print_message("%-56s %5llu executions%s, %llu with a finding\n", which->name,
                  (unsigned long long)result.executions, result.complete ? "" : " (not all)",
                  (unsigned long long)result.finding_count);
    const bool good = which->races
                          ? status != IST_OK && (result.first.finding.kind == IST_FINDING_RACE ||
                                                 result.first.finding.kind == IST_FINDING_REUSED)
                          : status == IST_OK && result.complete != 0;
    if (!good) {
        print_error("%s: %s\n%s", which->name, ist_status_name(status), result.first.finding.text);
    }
    return good;
}

static void collectives_order_what_they_move(void **state)
{
    uint32_t failures = 0;
    (void)state;
    for (uint32_t i = 0; i < sizeof(programs) / sizeof(programs[0]); ++i) {
        failures += as_it_must(&programs[i]) ? 0u : 1u;
    }
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(collectives_order_what_they_move)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
