/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no call that makes or frees something waits for a kernel that runs meanwhile; peers could be
 * waiting for that kernel's rank, and would be for ever. Method: on every rank a kernel waits at a
 * gate; each kind of call is made; after each the gate must still be shut, not given up.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <stdio.h>

#define WAIT_NS ist_test_time_ns(400000000) /* of the kernel: far more than all calls take */
#define LARGE_BYTES ((size_t)24 << 20)

typedef struct site {
    ist_test_rank test;
    ist_stream *busy; /* where the kernel waits */
    uint64_t *gate;   /* host-visible: the word, and the kernel's result */
    ist_stream *stream;
    ist_event *event;
    void *symmetric, *plain, *visible;
    ist_comm *comm, *half;
    ist_window *window;
    const ist_dev_comm *dev;
    ist_graph *graph;
} site;

typedef ist_status (*step_fn)(site *at);

static ist_status append(site *at, ist_stream *stream)
{
    tk_append_args args = {.list = (uint64_t *)(void *)at->test.out, .value = 1};
    return ist_launch(stream, &ist_kernel_tk_append, 1, &args, sizeof(args));
}

static ist_status open_stream(site *at)
{
    return ist_stream_open(at->test.world, &at->stream);
}

static ist_status open_event(site *at)
{
    return ist_event_open(at->test.world, &at->event);
}

static ist_status wait_for_event(site *at)
{
    ist_status status = ist_event_record(at->event, at->stream);
    return status == IST_OK ? ist_event_sync(at->event, 0) : status;
}

static ist_status alloc_symmetric(site *at)
{
    return ist_mem_alloc(at->test.world, LARGE_BYTES, IST_MEM_SYMMETRIC, &at->symmetric);
}

static ist_status alloc_plain(site *at)
{
    return ist_mem_alloc(at->test.world, LARGE_BYTES, IST_MEM_PLAIN, &at->plain);
}

static ist_status alloc_visible(site *at)
{
    return ist_mem_alloc(at->test.world, 65536, IST_MEM_HOST_VISIBLE, &at->visible);
}

static ist_status copy_both_ways(site *at)
{
    static uint8_t bytes[100000];
    ist_status status = ist_copy_to_device(at->stream, at->plain, bytes, sizeof(bytes));
    uint8_t back[64];
    return status == IST_OK ? ist_copy_to_host(at->stream, back, at->plain, sizeof(back)) : status;
}

static ist_status fill_and_copy(site *at)
{
    ist_status status = ist_fill(at->stream, at->symmetric, 3, LARGE_BYTES);
    status =
        status == IST_OK ? ist_copy(at->stream, at->plain, at->symmetric, LARGE_BYTES) : status;
    return status == IST_OK ? ist_stream_sync(at->stream, 0) : status;
}

static ist_status run_kernel(site *at)
{
    ist_status status = append(at, at->stream);
    return status == IST_OK ? ist_stream_sync(at->stream, 0) : status;
}

static ist_status open_comm(site *at)
{
    static const ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    return ist_comm_open(at->test.world, &desc, &at->comm);
}

static ist_status open_window(site *at)
{
    return ist_window_open(at->comm, at->symmetric, LARGE_BYTES, &at->window);
}

static ist_status open_dev_comm(site *at)
{
    return ist_dev_comm_open(at->comm, 65536, 0, 0, 0, 1, &at->dev);
}

static ist_status meet(site *at)
{
    ist_status status = ist_comm_barrier(at->comm, at->stream);
    return status == IST_OK ? ist_stream_sync(at->stream, 0) : status;
}

static ist_status capture(site *at)
{
    ist_status status = ist_graph_begin(at->stream);
    status = status == IST_OK ? append(at, at->stream) : status;
    status = status == IST_OK ? ist_comm_barrier(at->comm, at->stream) : status;
    return status == IST_OK ? ist_graph_end(at->stream, &at->graph) : status;
}

static ist_status replay(site *at)
{
    ist_status status = ist_graph_launch(at->graph, at->stream);
    return status == IST_OK ? ist_stream_sync(at->stream, 0) : status;
}

static ist_status split(site *at)
{
    return ist_comm_split(at->comm, 0, 0, &at->half);
}

static ist_status query_mask(site *at)
{
    uint64_t word = 0;
    ist_mask mask = {.size = sizeof(mask), .words = &word, .word_count = 1};
    return ist_comm_mask_query(at->comm, &mask);
}

static ist_status close_graph(site *at)
{
    return ist_graph_close(at->graph);
}

static ist_status free_plain(site *at)
{
    return ist_mem_free(at->test.world, at->plain);
}

static ist_status free_visible(site *at)
{
    return ist_mem_free(at->test.world, at->visible);
}

static ist_status close_event(site *at)
{
    return ist_event_close(at->event);
}

static ist_status close_stream(site *at)
{
    return ist_stream_close(at->stream);
}

/* Closing a window or a communicator waits, bounded, for kernels that could use it: not here. */
static const struct {
    const char *name;
    step_fn run;
} steps[] = {
    {"stream_open", open_stream},
    {"event_open", open_event},
    {"event_sync", wait_for_event},
    {"mem_alloc symmetric", alloc_symmetric},
    {"mem_alloc plain", alloc_plain},
    {"mem_alloc visible", alloc_visible},
    {"copies", copy_both_ways},
    {"fill and copy", fill_and_copy},
    {"launch", run_kernel},
    {"comm_open", open_comm},
    {"window_open", open_window},
    {"dev_comm_open", open_dev_comm},
    {"barrier", meet},
    {"capture", capture},
    {"graph_launch", replay},
    {"comm_split", split},
    {"mask_query", query_mask},
    {"graph_close", close_graph},
    {"mem_free plain", free_plain},
    {"mem_free visible", free_visible},
    {"event_close", close_event},
    {"stream_close", close_stream},
};

static ist_status shut_gate(site *at)
{
    ist_world *world = at->test.world;
    void *gate = NULL;
    EXPECT_OK(world, ist_mem_alloc(world, 4096, IST_MEM_HOST_VISIBLE, &gate));
    at->gate = gate;
    EXPECT_OK(world, ist_fill(at->test.stream, gate, 0, 4096));
    EXPECT_OK(world, ist_stream_sync(at->test.stream, 0));
    EXPECT_OK(world, ist_stream_open(world, &at->busy));
    tk_gate_args args = {.word = at->gate, .least = 1, .wait_ns = WAIT_NS, .result = at->gate + 1};
    EXPECT_OK(world, ist_launch(at->busy, &ist_kernel_tk_gate, 1, &args, sizeof(args)));
    return IST_OK;
}

static ist_status open_gate(site *at)
{
    ist_world *world = at->test.world;
    const uint64_t open = 1;
    uint64_t result = 0;
    EXPECT_OK(world, ist_copy_to_device(at->test.stream, at->gate, &open, sizeof(open)));
    EXPECT_OK(world, ist_stream_sync(at->busy, 0));
    EXPECT_OK(world, ist_mem_peek(world, at->gate + 1, &result, sizeof(result)));
    EXPECT_EQUAL(world, result, IST_WAIT_DONE + 1);
    return IST_OK;
}

static ist_status take_step(site *at, size_t i)
{
    ist_world *world = at->test.world;
    uint64_t result = 0, began_ns = ist_world_clock_ns(world);
    EXPECT_OK(world, steps[i].run(at));
    uint64_t took_ns = ist_world_clock_ns(world) - began_ns;
    EXPECT_OK(world, ist_mem_peek(world, at->gate + 1, &result, sizeof(result)));
    if (result != 0 || took_ns > WAIT_NS / 8) {
        printf("# rank %u: %s took %llu us beside a waiting kernel\n", at->test.rank, steps[i].name,
               (unsigned long long)(took_ns / 1000));
    }
    EXPECT_EQUAL(world, result, 0);
    return IST_OK;
}

static ist_status beside_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.no_dev = 1};
    site at = {0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &at.test));
    IST_TEST_PASS_ON(shut_gate(&at));
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        IST_TEST_PASS_ON(take_step(&at, i));
    }
    IST_TEST_PASS_ON(open_gate(&at));
    EXPECT_OK(world, ist_window_close(at.window));
    EXPECT_OK(world, ist_mem_free(world, at.symmetric));
    EXPECT_OK(world, ist_dev_comm_close(at.comm, at.dev));
    EXPECT_OK(world, ist_comm_close(at.half));
    EXPECT_OK(world, ist_comm_close(at.comm));
    EXPECT_OK(world, ist_stream_close(at.busy));
    EXPECT_OK(world, ist_mem_free(world, at.gate));
    return ist_test_rank_close(&at.test, false);
}

static void nothing_waits_for_a_kernel_beside_it(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, beside_main, NULL), IST_OK);
    assert_int_equal(ist_test_run(1, NULL, beside_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_waits_for_a_kernel_beside_it),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
