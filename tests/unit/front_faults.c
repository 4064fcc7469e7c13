/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whichever call below the front fails, the program gets that status with a record, nothing
 * is left open, and a second attempt succeeds.
 * Method: the fault loop: one program that uses everything; fail call 1, 2, 3 … until none is hit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "front_fixture.h"

#include "mask/mask_args.h"

#define NTH_MAX 2000u

/* The consensus kernels answer at once. */
static void run_kernel(const ist_kernel *kernel, const void *args)
{
    if (kernel == &ist_kernel_mask_agree) {
        const ist_mask_agree_args *agree = args;
        agree->result->sequence = agree->sequence;
    } else if (kernel == &ist_kernel_mask_clean) {
        const ist_mask_clean_args *clean = args;
        clean->result->sequence = clean->sequence;
    }
}

static ist_status use_streams(ist_world *world, ist_stream *stream, void *memory)
{
    ist_event *event = NULL;
    ist_graph *graph = NULL;
    uint8_t host[16] = {1};
    IST_RETURN_IF_ERROR(ist_event_open(world, &event));
    IST_RETURN_IF_ERROR(ist_graph_begin(stream));
    IST_RETURN_IF_ERROR(ist_copy_to_device(stream, memory, host, sizeof(host)));
    IST_RETURN_IF_ERROR(ist_graph_end(stream, &graph));
    IST_RETURN_IF_ERROR(ist_graph_launch(graph, stream));
    IST_RETURN_IF_ERROR(ist_event_record(event, stream));
    IST_RETURN_IF_ERROR(ist_event_wait(event, stream));
    IST_RETURN_IF_ERROR(ist_copy_to_host(stream, host, memory, sizeof(host)));
    IST_RETURN_IF_ERROR(ist_graph_close(graph));
    return ist_event_close(event);
}

static ist_status use_comm(ist_comm *comm, ist_stream *stream, void *memory)
{
    const uint64_t words = 3;
    uint64_t seen = 0;
    ist_mask mask = {.size = sizeof(mask), .words = &seen, .word_count = 1};
    ist_window *window = NULL;
    const ist_dev_comm *dev = NULL;
    ist_comm *split = NULL;
    IST_RETURN_IF_ERROR(ist_window_open(comm, memory, 4096, &window));
    IST_RETURN_IF_ERROR(ist_dev_comm_open(comm, 64, 0, 0, 0, 1, &dev));
    IST_RETURN_IF_ERROR(ist_comm_barrier(comm, stream));
    IST_RETURN_IF_ERROR(ist_comm_mask_update(comm, &words, stream));
    IST_RETURN_IF_ERROR(ist_comm_mask_query(comm, &mask));
    IST_RETURN_IF_ERROR(ist_comm_agree(comm, stream));
    IST_RETURN_IF_ERROR(ist_comm_clean(comm, stream));
    IST_RETURN_IF_ERROR(ist_comm_split(comm, 0, 0, &split));
    IST_RETURN_IF_ERROR(ist_comm_close(split));
    return ist_window_close(window);
}

/* Returns at the first failure and leaves the rest to the world's end, as a careless program. */
static ist_status use_everything(ist_world *world, void *arg)
{
    const ist_comm_desc desc = {
        .size = sizeof(desc), .fault_tolerant = 1, .check = IST_CHECK_PEERS};
    ist_stream *stream = NULL;
    ist_comm *comm = NULL;
    void *memory = NULL;
    (void)arg;
    IST_RETURN_IF_ERROR(ist_stream_open(world, &stream));
    IST_RETURN_IF_ERROR(ist_mem_alloc(world, 4096, IST_MEM_SYMMETRIC, &memory));
    IST_RETURN_IF_ERROR(use_streams(world, stream, memory));
    IST_RETURN_IF_ERROR(ist_comm_open(world, &desc, &comm));
    IST_RETURN_IF_ERROR(use_comm(comm, stream, memory));
    IST_RETURN_IF_ERROR(ist_comm_close(comm));
    IST_RETURN_IF_ERROR(ist_mem_free(world, memory));
    return ist_stream_close(stream);
}

static void check_nothing_open(void)
{
    assert_int_equal(fake.stream_live, 0);
    assert_int_equal(fake.event_live, 0);
    assert_int_equal(fake.graph_live, 0);
    assert_int_equal(fake.comm_live, 0);
    assert_int_equal(fake.window_live, 0);
    assert_int_equal(fake.devcomm_live, 0);
}

static bool run_with_fault(const char *op, uint64_t nth, int persistent, ist_status injected)
{
    uint64_t hits = 0;
    fake_reset();
    fake.on_launch = run_kernel;
    assert_int_equal(ist_call_fault_arm(op, nth, persistent, injected), IST_OK);
    ist_status status = front_run(2, use_everything, NULL);
    ist_call_fault_disarm(&hits);
    if (hits == 0) {
        assert_int_equal(status, IST_OK);
        assert_int_equal(fake_live(), 0);
        return false;
    }
    /* A fault in closing what was left over is logged, not returned. */
    assert_true(status == injected || status == IST_ERR_MEMORY || status == IST_OK);
    check_nothing_open();
    assert_int_equal(front_run(2, use_everything, NULL), IST_OK);
    return true;
}

static void loop(const char *op, int persistent, ist_status injected)
{
    uint64_t nth = 1;
    while (run_with_fault(op, nth, persistent, injected)) {
        ++nth;
        assert_true(nth < NTH_MAX);
    }
    assert_true(nth > 1);
}

static void any_call_once(void **state)
{
    (void)state;
    loop(NULL, 0, IST_ERR_SYSTEM);
}

static void any_call_for_good(void **state)
{
    (void)state;
    loop(NULL, 1, IST_ERR_SYSTEM);
}

static void host_memory(void **state)
{
    (void)state;
    loop("host_alloc", 0, IST_ERR_MEMORY);
    loop("host_alloc", 1, IST_ERR_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(any_call_once, front_set_up),
        cmocka_unit_test_setup(any_call_for_good, front_set_up),
        cmocka_unit_test_setup(host_memory, front_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
