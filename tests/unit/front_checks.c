/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: bad arguments are refused by the front, naming argument and value, before the table is
 * called; what a rank leaves open is closed for it.
 * Method: programs over the fake; its counters show what got through.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "front_fixture.h"
#include "ist_internal.h"

/* The call is refused with the status, about the argument, and nothing was enqueued. */
#define REFUSED(call, expected_status, argument)                                                   \
    do {                                                                                           \
        assert_int_equal((call), (expected_status));                                               \
        ist_error refused_ = front_error();                                                        \
        assert_int_equal(refused_.status, (expected_status));                                      \
        assert_string_equal(refused_.object, (argument));                                          \
    } while (0)

static uint64_t enqueued(void)
{
    return fake.calls[FAKE_copy_in] + fake.calls[FAKE_copy_out] + fake.calls[FAKE_copy_local] +
           fake.calls[FAKE_fill] + fake.calls[FAKE_launch] + fake.calls[FAKE_event_record];
}

static ist_status do_nothing(ist_world *world, void *arg)
{
    (void)world, (void)arg;
    return IST_OK;
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static void world_descriptions(void **state)
{
    (void)state;
    const ist_world_desc good = {.size = sizeof(good), .backend = "fake", .rank_count = 1};
    ist_world_desc desc = good;
    ist_world_result result = {.size = sizeof(result), .event_count = 5};
    desc.size = sizeof(desc) - 1;
    REFUSED(ist_world_run(&desc, do_nothing, NULL, &result), IST_ERR_SIZE, "desc");
    assert_int_equal(result.status, IST_ERR_SIZE);
    assert_int_equal(result.failed_rank, IST_RANK_NONE);
    assert_int_equal(result.event_count, 0);
    desc = good;
    desc.reserved = 1;
    REFUSED(ist_world_run(&desc, do_nothing, NULL, NULL), IST_ERR_RESERVED, "desc.reserved");
    desc = good;
    desc.deadline_ns = 999;
    REFUSED(ist_world_run(&desc, do_nothing, NULL, NULL), IST_ERR_RANGE, "desc.deadline_ns");
    desc = good;
    desc.check = (ist_check)9;
    REFUSED(ist_world_run(&desc, do_nothing, NULL, NULL), IST_ERR_ARGUMENT, "desc.check");
    desc = good;
    desc.rank_count = IST_RANK_COUNT_MAX + 1;
    REFUSED(ist_world_run(&desc, do_nothing, NULL, NULL), IST_ERR_RANGE, "desc.rank_count");
    REFUSED(ist_world_run(&good, NULL, NULL, NULL), IST_ERR_NULL, "rank_main");
    result.size = 4;
    REFUSED(ist_world_run(&good, do_nothing, NULL, &result), IST_ERR_SIZE, "result");
    setenv("IST_CHECK", "maybe", 1);
    REFUSED(ist_world_run(&good, do_nothing, NULL, NULL), IST_ERR_ARGUMENT, "IST_CHECK");
    unsetenv("IST_CHECK");
    assert_int_equal(ist_world_run(&good, do_nothing, NULL, NULL), IST_OK);
    assert_int_equal(fake.world.deadline_ns, IST_DEADLINE_NS_DEFAULT);
}

/* A program of tomorrow: what it does not use must be zero. */
static void a_larger_description(void **state)
{
    (void)state;
    struct {
        ist_world_desc desc;
        uint64_t tomorrow[2];
    } larger = {.desc = {.size = sizeof(larger), .backend = "fake", .rank_count = 1}};
    assert_int_equal(ist_world_run(&larger.desc, do_nothing, NULL, NULL), IST_OK);
    larger.tomorrow[1] = 1;
    REFUSED(ist_world_run(&larger.desc, do_nothing, NULL, NULL), IST_ERR_RESERVED, "desc");
}

static ist_status fail_on_rank_two(ist_world *world, void *arg)
{
    (void)arg;
    return ist_world_rank(world) == 2 ? IST_INCOMPLETE : IST_OK;
}

static void results_are_filled(void **state)
{
    (void)state;
    ist_world_desc desc = {.size = sizeof(desc), .backend = "fake", .rank_count = 4};
    ist_world_result result = {.size = 12};
    assert_int_equal(ist_world_run(&desc, fail_on_rank_two, NULL, &result), IST_INCOMPLETE);
    assert_int_equal(result.status, IST_INCOMPLETE);
    assert_int_equal(result.failed_rank, 2);
    assert_int_equal(result.event_count, 0);
}

static void a_missing_world_answers(void **state)
{
    (void)state;
    assert_int_equal(ist_world_rank(NULL), 0);
    assert_int_equal(ist_world_rank_count(NULL), 0);
    assert_int_equal(ist_world_clock_ns(NULL), 0);
    assert_string_equal(ist_world_backend_name(NULL), "");
    REFUSED(ist_world_sleep(NULL, 1), IST_ERR_NULL, "world");
}

/* ---- memory, streams, events ----------------------------------------------------------------- */

static ist_status memory_program(ist_world *world, void *arg)
{
    (void)arg;
    ist_stream *stream = NULL;
    void *plain = NULL;
    void *visible = NULL;
    uint8_t host[64] = {0};
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    REFUSED(ist_mem_alloc(world, 0, 0, &plain), IST_ERR_ARGUMENT, "bytes");
    REFUSED(ist_mem_alloc(world, 64, 4, &plain), IST_ERR_ARGUMENT, "flags");
    REFUSED(ist_mem_alloc(world, 64, 0, NULL), IST_ERR_NULL, "mem");
    assert_null(plain);
    assert_int_equal(ist_mem_alloc(world, 64, 0, &plain), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 64, IST_MEM_HOST_VISIBLE, &visible), IST_OK);
    uint8_t *at = plain;

    REFUSED(ist_mem_peek(world, plain, host, 8), IST_ERR_ARGUMENT, "mem");
    REFUSED(ist_mem_peek(world, visible, NULL, 8), IST_ERR_NULL, "host");
    REFUSED(ist_copy_to_device(stream, host, host, 8), IST_ERR_ARGUMENT, "dst");
    REFUSED(ist_copy_to_device(stream, at + 60, host, 8), IST_ERR_ARGUMENT, "dst");
    REFUSED(ist_copy_to_device(stream, NULL, host, 8), IST_ERR_NULL, "dst");
    REFUSED(ist_copy_to_device(stream, at, NULL, 8), IST_ERR_NULL, "host_src");
    REFUSED(ist_copy_to_host(stream, NULL, at, 8), IST_ERR_NULL, "host_dst");
    REFUSED(ist_copy_to_host(stream, host, host, 8), IST_ERR_ARGUMENT, "src");
    REFUSED(ist_copy(stream, at, at + 8, 16), IST_ERR_ARGUMENT, "dst");
    REFUSED(ist_copy(stream, at + 8, at, 16), IST_ERR_ARGUMENT, "dst");
    REFUSED(ist_fill(stream, at + 1, 0, 64), IST_ERR_ARGUMENT, "dst");
    REFUSED(ist_fill(stream, at, 0, SIZE_MAX), IST_ERR_ARGUMENT, "dst");
    REFUSED(ist_fill(NULL, at, 0, 1), IST_ERR_NULL, "stream");
    REFUSED(ist_stream_sync(stream, 999), IST_ERR_RANGE, "deadline_ns");
    assert_int_equal(enqueued(), 0);

    assert_int_equal(ist_copy_to_device(stream, at, host, 0), IST_OK);
    assert_int_equal(ist_copy(stream, at, at + 16, 16), IST_OK);
    assert_int_equal(ist_fill(stream, at, 7, 64), IST_OK);
    assert_int_equal(ist_copy_to_host(stream, host, at, 64), IST_OK);
    assert_int_equal(host[63], 7);
    assert_int_equal(ist_mem_free(world, at + 8), IST_ERR_ARGUMENT);
    assert_int_equal(ist_mem_free(world, NULL), IST_OK);
    assert_int_equal(ist_mem_free(world, plain), IST_OK);
    assert_int_equal(ist_mem_free(world, visible), IST_OK);
    return ist_stream_close(stream);
}

static void memory_ranges(void **state)
{
    (void)state;
    assert_int_equal(front_run(1, memory_program, NULL), IST_OK);
    assert_int_equal(fake_live(), 0);
    assert_false(test_log_has(&front_log, "left"));
}

static ist_status objects_program(ist_world *world, void *arg)
{
    (void)arg;
    ist_stream *stream = NULL;
    ist_stream *closed = NULL;
    ist_event *event = NULL;
    uint32_t no_object = 0x12345678;
    uint64_t elapsed = 0;
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_stream_open(world, &closed), IST_OK);
    assert_int_equal(ist_event_open(world, &event), IST_OK);
    assert_int_equal(ist_stream_close(closed), IST_OK);
    REFUSED(ist_stream_query(closed), IST_ERR_OBJECT, "stream");
    assert_non_null(strstr(front_error().message, "a closed stream"));
    REFUSED(ist_stream_close(closed), IST_ERR_OBJECT, "stream");
    REFUSED(ist_stream_query((ist_stream *)event), IST_ERR_OBJECT, "stream");
    assert_non_null(strstr(front_error().message, "event"));
    REFUSED(ist_stream_query((ist_stream *)(void *)&no_object), IST_ERR_OBJECT, "stream");
    REFUSED(ist_stream_open((ist_world *)stream, &closed), IST_ERR_OBJECT, "world");
    REFUSED(ist_event_record(event, NULL), IST_ERR_NULL, "stream");
    REFUSED(ist_event_wait(NULL, stream), IST_ERR_NULL, "event");
    REFUSED(ist_event_elapsed(event, event, NULL), IST_ERR_NULL, "elapsed_ns");
    REFUSED(ist_event_sync(event, 1), IST_ERR_RANGE, "deadline_ns");
    assert_int_equal(ist_event_elapsed(event, event, &elapsed), IST_OK);
    fake.stream_state = IST_IN_PROGRESS;
    assert_int_equal(ist_stream_query(stream), IST_IN_PROGRESS);
    assert_int_equal(ist_event_query(event), IST_IN_PROGRESS);
    fake.stream_state = IST_OK;
    assert_int_equal(ist_event_close(event), IST_OK);
    assert_int_equal(ist_event_close(NULL), IST_OK);
    assert_int_equal(ist_stream_close(stream), IST_OK);
    assert_int_equal(ist_stream_close(NULL), IST_OK);
    return IST_OK;
}

static void closed_and_wrong_objects(void **state)
{
    (void)state;
    assert_int_equal(front_run(1, objects_program, NULL), IST_OK);
    assert_int_equal(fake_live(), 0);
}

/* Objects of rank 0, kept for rank 1, which runs after it. */
static ist_status foreign_program(ist_world *world, void *arg)
{
    ist_stream **stolen = arg;
    ist_event *event = NULL;
    if (ist_world_rank(world) == 0) {
        return ist_stream_open(world, stolen);
    }
    assert_int_equal(ist_event_open(world, &event), IST_OK);
    /* Rank 0 has ended, so its stream is closed, and still not freed memory. */
    REFUSED(ist_event_record(event, *stolen), IST_ERR_OBJECT, "stream");
    (*stolen)->object.magic = IST_MAGIC(IST_KIND_STREAM);
    REFUSED(ist_event_record(event, *stolen), IST_ERR_OBJECT, "stream");
    assert_non_null(strstr(front_error().message, "belongs to rank 0"));
    return ist_event_close(event);
}

static void objects_of_another_rank(void **state)
{
    (void)state;
    ist_stream *stolen = NULL;
    assert_int_equal(front_run(2, foreign_program, &stolen), IST_OK);
}

static ist_status many_events(ist_world *world, void *arg)
{
    (void)arg;
    ist_event *event = NULL;
    for (uint32_t i = 0; i < 3 * IST_QUARANTINE_COUNT_MAX; ++i) {
        assert_int_equal(ist_event_open(world, &event), IST_OK);
        assert_int_equal(ist_event_close(event), IST_OK);
    }
    assert_int_equal(world->closed_count, IST_QUARANTINE_COUNT_MAX);
    return IST_OK;
}

static void quarantine_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(front_run(1, many_events, NULL), IST_OK);
    assert_int_equal(fake_live(), 0);
}

/* ---- graphs, kernels ------------------------------------------------------------------------- */

static ist_status graph_program(ist_world *world, void *arg)
{
    (void)arg;
    ist_stream *stream = NULL;
    ist_stream *joined = NULL;
    ist_event *event = NULL;
    ist_graph *graph = NULL;
    void *memory = NULL;
    uint8_t host[8];
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_stream_open(world, &joined), IST_OK);
    assert_int_equal(ist_event_open(world, &event), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 64, 0, &memory), IST_OK);
    REFUSED(ist_graph_end(stream, &graph), IST_ERR_USAGE, "stream");
    assert_int_equal(ist_graph_begin(stream), IST_OK);
    REFUSED(ist_graph_begin(joined), IST_ERR_USAGE, "stream");
    REFUSED(ist_stream_sync(stream, 0), IST_ERR_USAGE, "stream");
    REFUSED(ist_copy_to_host(stream, host, memory, 8), IST_ERR_USAGE, "stream");
    assert_int_equal(ist_stream_sync(joined, 0), IST_OK);
    assert_int_equal(ist_event_record(event, stream), IST_OK);
    REFUSED(ist_event_sync(event, 0), IST_ERR_USAGE, "event");
    assert_int_equal(ist_event_wait(event, joined), IST_OK);
    REFUSED(ist_stream_query(joined), IST_ERR_USAGE, "stream");
    REFUSED(ist_graph_end(joined, &graph), IST_ERR_USAGE, "stream");
    assert_int_equal(ist_graph_end(stream, &graph), IST_OK);
    assert_int_equal(ist_event_sync(event, 0), IST_OK);
    assert_int_equal(ist_stream_sync(joined, 0), IST_OK);
    REFUSED(ist_graph_launch(graph, NULL), IST_ERR_NULL, "stream");
    assert_int_equal(ist_graph_launch(graph, joined), IST_OK);
    assert_int_equal(ist_graph_close(graph), IST_OK);
    REFUSED(ist_graph_launch(graph, stream), IST_ERR_OBJECT, "graph");

    /* A failed end drops the capture, and the stream is usable. */
    ist_graph *none = NULL;
    assert_int_equal(ist_graph_begin(stream), IST_OK);
    REFUSED(ist_graph_end(stream, NULL), IST_ERR_NULL, "graph");
    assert_int_equal(ist_stream_sync(stream, 0), IST_OK);
    assert_int_equal(ist_graph_begin(stream), IST_OK);
    fake.fail[FAKE_graph_end] = IST_ERR_USAGE;
    assert_int_equal(ist_graph_end(stream, &none), IST_ERR_USAGE);
    fake.fail[FAKE_graph_end] = IST_OK;
    assert_null(none);
    /* Closing a capturing stream drops its capture. */
    assert_int_equal(ist_graph_begin(stream), IST_OK);
    assert_int_equal(ist_stream_close(stream), IST_OK);
    assert_int_equal(ist_graph_begin(joined), IST_OK);
    return ist_mem_free(world, memory);
}

static void captures(void **state)
{
    (void)state;
    assert_int_equal(front_run(1, graph_program, NULL), IST_OK);
    assert_int_equal(fake_live(), 0);
    assert_true(test_log_has(&front_log, "rank 0 left open: 1 stream, 1 event; closed for it"));
}

static ist_status launch_program(ist_world *world, void *arg)
{
    (void)arg;
    const ist_kernel kernel = {.name = "four_bytes", .args_bytes = 4};
    uint32_t args = 1;
    ist_stream *stream = NULL;
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    REFUSED(ist_launch(stream, NULL, 1, &args, 4), IST_ERR_NULL, "kernel");
    REFUSED(ist_launch(stream, &kernel, 1, &args, 8), IST_ERR_SIZE, "args_bytes");
    REFUSED(ist_launch(stream, &kernel, 1, NULL, 4), IST_ERR_NULL, "args");
    REFUSED(ist_launch(stream, &kernel, 0, &args, 4), IST_ERR_RANGE, "block_count");
    REFUSED(ist_launch(stream, &kernel, 9, &args, 4), IST_ERR_RANGE, "block_count");
    assert_int_equal(enqueued(), 0);
    assert_int_equal(ist_launch(stream, &kernel, 8, &args, 4), IST_OK);
    assert_int_equal(fake.calls[FAKE_launch], 1);
    assert_int_equal(fake.calls[FAKE_caps], 1);
    return ist_stream_close(stream);
}

static void launches(void **state)
{
    (void)state;
    assert_int_equal(front_run(1, launch_program, NULL), IST_OK);
    static const ist_kernel first = {.name = "twice", .source = "first.c"};
    static const ist_kernel second = {.name = "twice", .source = "second.c"};
    ist_kernel_register(&first);
    ist_kernel_register(&first);
    ist_kernel_register(&second);
    assert_ptr_equal(ist_kernel_find("twice"), &first);
    assert_null(ist_kernel_find("nowhere"));
    assert_null(ist_kernel_find(NULL));
    assert_true(test_log_has(&front_log, "second.c"));
}

/* ---- tensors --------------------------------------------------------------------------------- */

static ist_status tensor_program(ist_world *world, void *arg)
{
    (void)arg;
    ist_comm *comm = NULL;
    ist_comm *other = NULL;
    ist_window *window = NULL;
    ist_tensor_place place = {0};
    void *memory = NULL;
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    assert_int_equal(ist_comm_open(world, NULL, &other), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &memory), IST_OK);
    assert_int_equal(ist_window_open(comm, memory, 8192, &window), IST_OK);
    const ist_tensor good = {
        .size = sizeof(good), .dtype = IST_BF16, .dim_count = 2, .dims = {4, 8}, .data = memory};
    ist_tensor tensor = good;
    assert_int_equal(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_OK);
    assert_int_equal(place.bytes, 64);
    assert_int_equal(place.elements, 32);
    assert_ptr_equal(place.address, memory);
    assert_int_equal(place.window_index, 0);

    REFUSED(ist_tensor_check(comm, NULL, "in", "test", &place), IST_ERR_NULL, "in");
    tensor.size = 8;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_SIZE, "in");
    tensor = good;
    tensor.dtype = IST_DTYPE_UNSET;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_ARGUMENT, "in");
    tensor = good;
    tensor.dim_count = 6;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_RANGE, "in");
    tensor = good;
    tensor.dims[0] = UINT64_MAX / 2;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_RANGE, "in");
    tensor = good;
    tensor.data = (uint8_t *)memory + 1;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_ALIGNMENT, "in");
    tensor = good;
    tensor.data = NULL;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_NULL, "in");
    tensor.dims[1] = 0;
    assert_int_equal(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_OK);
    assert_int_equal(place.bytes, 0);
    tensor = good;
    tensor.window = window;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_ARGUMENT, "in");
    tensor.data = NULL;
    tensor.window_offset = 4096;
    assert_int_equal(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_OK);
    assert_ptr_equal(place.address, (uint8_t *)memory + 4096);
    assert_int_equal(place.window_index, ist_window_index(window));
    REFUSED(ist_tensor_check(other, &tensor, "in", "test", &place), IST_ERR_OBJECT, "in");
    tensor.window_offset = 8192 - 32;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_RANGE, "in");
    tensor.window_offset = UINT64_MAX - 4;
    REFUSED(ist_tensor_check(comm, &tensor, "in", "test", &place), IST_ERR_RANGE, "in");
    return IST_OK;
}

static void tensors(void **state)
{
    (void)state;
    assert_int_equal(front_run(1, tensor_program, NULL), IST_OK);
    assert_true(test_log_has(&front_log, "left open: 2 communicators, 1 window"));
    assert_true(test_log_has(&front_log, "left 1 allocations of device memory"));
    assert_int_equal(fake.comm_live + fake.window_live + fake.devcomm_live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(world_descriptions, front_set_up),
        cmocka_unit_test_setup(a_larger_description, front_set_up),
        cmocka_unit_test_setup(results_are_filled, front_set_up),
        cmocka_unit_test_setup(a_missing_world_answers, front_set_up),
        cmocka_unit_test_setup(memory_ranges, front_set_up),
        cmocka_unit_test_setup(closed_and_wrong_objects, front_set_up),
        cmocka_unit_test_setup(objects_of_another_rank, front_set_up),
        cmocka_unit_test_setup(quarantine_is_bounded, front_set_up),
        cmocka_unit_test_setup(captures, front_set_up),
        cmocka_unit_test_setup(launches, front_set_up),
        cmocka_unit_test_setup(tensors, front_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
