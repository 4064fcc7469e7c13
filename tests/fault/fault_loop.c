/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: wherever a backend operation or an allocation fails, every rank gets an answer, nothing is
 * leaked, and the same program succeeds afterwards. Method: fail call 1, 2, 3 … of each operation,
 * once and for good, until none is hit, around a scenario that uses all of them; run it under the
 * address sanitizer for the leaks.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <isthmus/backend.h>
#include <isthmus/unstable/topology.h>
#include <isthmus/unstable/whatif.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define RANKS 2u
#define LOOP_MAX 3000u

/* Everything a rank may have opened; closed as far as it came. */
typedef struct scene {
    ist_world *world;
    ist_comm *comm, *split;
    ist_stream *stream, *side;
    ist_event *event;
    ist_graph *graph;
    ist_window *window;
    const ist_dev_comm *dev;
    void *memory, *out;
} scene;

#define STEP(call)                                                                                 \
    do {                                                                                           \
        ist_status step_ = (call);                                                                 \
        if (step_ < 0) {                                                                           \
            return step_;                                                                          \
        }                                                                                          \
    } while (0)

static ist_status open_all(scene *s)
{
    ist_world *world = s->world;
    ist_unique_id id;
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1, .deadline_ns = 2000000};
    STEP(ist_unique_id_create(world, &id));
    STEP(ist_comm_open(world, &desc, &s->comm));
    STEP(ist_stream_open(world, &s->stream));
    STEP(ist_stream_open(world, &s->side));
    STEP(ist_event_open(world, &s->event));
    STEP(ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &s->memory));
    STEP(ist_mem_alloc(world, 8192, IST_MEM_HOST_VISIBLE, &s->out));
    STEP(ist_window_open(s->comm, s->memory, 8192, &s->window));
    STEP(ist_dev_comm_open(s->comm, 4096, 0, 0, 0, 1, &s->dev));
    STEP(ist_comm_split(s->comm, (int32_t)ist_world_rank(world), 0, &s->split));
    return IST_OK;
}

static ist_status capture(scene *s)
{
    uint64_t *word = s->out;
    uint64_t host = 5;
    tk_affine_args args = {.to = word, .from = word, .factor = 2, .addend = 1};
    STEP(ist_graph_begin(s->stream));
    ist_status status = ist_copy_to_device(s->stream, word, &host, 8);
    status = status < 0 ? status : ist_event_record(s->event, s->stream);
    status = status < 0 ? status : ist_event_wait(s->event, s->side);
    status =
        status < 0 ? status : ist_launch(s->side, &ist_kernel_tk_affine, 1, &args, sizeof(args));
    status = status < 0 ? status : ist_event_record(s->event, s->side);
    status = status < 0 ? status : ist_event_wait(s->event, s->stream);
    ist_status ended = ist_graph_end(s->stream, &s->graph);
    return status < 0 ? status : ended;
}

/* In a group too, and with what the library thinks of it. */
static ist_status collectives(scene *s)
{
    const ist_op_desc op = {.size = sizeof(op), .kind = IST_OP_ALL_REDUCE, .bytes = 4096};
    uint64_t *words = s->out, time_ps = 0;
    const uint32_t peer = 1u - ist_world_rank(s->world);
    STEP(ist_coll_open(s->comm));
    STEP(ist_all_reduce(s->comm, s->stream, words, words + 16, 16, IST_U64, IST_REDUCE_MAX));
    STEP(ist_coll_group_begin(s->world));
    (void)ist_send(s->comm, s->stream, words + 16, 16, IST_U64, peer);
    (void)ist_recv(s->comm, s->side, words + 64, 16, IST_U64, peer);
    (void)ist_all_gather(s->comm, s->stream, words + 96, words + 128, 16, IST_U64);
    STEP(ist_coll_group_end(s->world));
    STEP(ist_op_reference(s->comm, &op, &time_ps));
    STEP(ist_stream_sync(s->side, 0));
    STEP(ist_stream_sync(s->stream, 0));
    return ist_coll_status(s->comm);
}

static ist_status use_all(scene *s)
{
    uint64_t host = 3, words[2] = {0}, elapsed = 0;
    uint64_t *word = s->out;
    ist_mask mask = {.size = sizeof(mask), .words = words, .word_count = 1};
    uint32_t count = 0;
    ist_comm_info info = {.size = sizeof(info)};
    ist_topology_pair pair = {.size = sizeof(pair)};
    STEP(ist_comm_query(s->comm, &info));
    STEP(ist_comm_pair(s->comm, 0, 1, &pair));
    STEP(ist_fill(s->stream, s->out, 0, 8192));
    STEP(ist_copy_to_device(s->stream, word, &host, 8));
    STEP(ist_copy(s->stream, word + 8, word, 8));
    STEP(ist_event_record(s->event, s->stream));
    STEP(ist_event_wait(s->event, s->side));
    STEP(ist_event_sync(s->event, 0));
    STEP(ist_event_query(s->event));
    STEP(ist_stream_query(s->side));
    STEP(capture(s));
    STEP(ist_graph_launch(s->graph, s->stream));
    STEP(collectives(s));
    STEP(ist_comm_barrier(s->comm, s->stream));
    STEP(ist_copy_to_host(s->stream, &host, word, 8));
    STEP(ist_mem_peek(s->world, word, &host, 8));
    STEP(ist_comm_mask_read(s->comm, s->out, s->stream));
    STEP(ist_comm_mask_query(s->comm, &mask));
    STEP(ist_comm_mask_update(s->comm, words, s->stream));
    STEP(ist_comm_agree(s->comm, s->stream));
    STEP(ist_comm_clean(s->comm, s->stream));
    STEP(ist_comm_error_get(s->comm, 0, &count, NULL));
    STEP(ist_comm_error_clear(s->comm));
    STEP(ist_world_sleep(s->world, 1000));
    (void)ist_world_clock_ns(s->world);
    STEP(ist_event_record(s->event, s->stream));
    STEP(ist_event_sync(s->event, 0));
    STEP(ist_event_elapsed(s->event, s->event, &elapsed));
    return ist_stream_sync(s->stream, 0);
}

static void keep_first(ist_status *first, ist_status status)
{
    *first = *first < 0 ? *first : status;
}

/* A close that reports a failure has closed all the same. */
static ist_status close_all(scene *s)
{
    ist_status status = IST_OK;
    keep_first(&status, ist_graph_close(s->graph));
    keep_first(&status, ist_event_close(s->event));
    keep_first(&status, ist_stream_close(s->side));
    keep_first(&status, ist_stream_close(s->stream));
    keep_first(&status, ist_comm_close(s->split));
    if (s->comm != NULL) {
        keep_first(&status, ist_dev_comm_close(s->comm, s->dev));
    }
    keep_first(&status, ist_window_close(s->window));
    keep_first(&status, ist_mem_free(s->world, s->memory));
    keep_first(&status, ist_mem_free(s->world, s->out));
    keep_first(&status, ist_comm_close(s->comm));
    return status;
}

static ist_status scene_run(ist_world *world)
{
    scene s = {.world = world};
    ist_status status = open_all(&s);
    status = status < 0 ? status : use_all(&s);
    status = status < 0 ? status : ist_comm_abort(s.comm);
    ist_status closed = close_all(&s);
    return status < 0 ? status : closed;
}

static ist_status scene_main(ist_world *world, void *arg)
{
    (void)arg;
    ist_status status = scene_run(world);
    return status < 0 ? status : IST_OK;
}

/* Fails somewhere, is told to stop failing, and is done again in the same world. */
static ist_status retry_main(ist_world *world, void *arg)
{
    (void)arg;
    (void)scene_run(world);
    ist_call_fault_disarm(NULL);
    /* Both ranks come to the second try, whatever kept them in the first. */
    uint64_t now_ns = ist_world_clock_ns(world), at_ns = 1000000000;
    ist_status status = ist_world_sleep(world, at_ns > now_ns ? at_ns - now_ns : 0);
    status = status < 0 ? status : scene_run(world);
    return status < 0 ? status : IST_OK;
}

/* As retry_main; the allocation fails only once the world is there. */
static ist_status retry_alloc_main(ist_world *world, void *arg)
{
    const uint64_t *nth = arg;
    EXPECT_OK(world, ist_world_sleep(world, 1000)); /* both ranks have begun */
    if (ist_world_rank(world) == 0) {
        EXPECT_OK(world, ist_call_fault_arm("host_alloc", *nth, 0, IST_ERR_MEMORY));
    }
    return retry_main(world, NULL);
}

static ist_world_desc loop_desc(const char *cluster)
{
    ist_world_desc desc = ist_test_desc(RANKS, cluster);
    desc.deadline_ns = 10000000;
    return desc;
}

/* Returns whether the fault was hit. */
static bool fail_nth(const char *op, uint64_t nth, int persistent, ist_rank_fn rank_main,
                     const char *cluster)
{
    ist_world_desc desc = loop_desc(cluster);
    ist_world_result result = {.size = sizeof(result)};
    ist_error error = {.size = sizeof(error)};
    uint64_t hits = 0;
    assert_int_equal(ist_call_fault_arm(op, nth, persistent, IST_ERR_MEMORY), IST_OK);
    ist_status status = ist_test_run_desc(&desc, rank_main, NULL, &result);
    ist_call_fault_disarm(&hits);
    if (rank_main == retry_main && status != IST_OK) {
        ist_error_last(&error);
        fail_msg("the retry after call %llu of %s failed: %s: %s", (unsigned long long)nth, op,
                 ist_status_name(status), error.message);
    }
    if (rank_main == scene_main && hits == 0 && status != IST_OK) {
        fail_msg("no fault, and yet %s (%s, call %llu)", ist_status_name(status), op,
                 (unsigned long long)nth);
    }
    /* Bounded in virtual time: a few waits of the world's deadline. */
    assert_true(result.virtual_ns < 20000000000ull);
    return hits != 0;
}

static void loop_over(const char *op, int persistent, ist_rank_fn rank_main, const char *cluster)
{
    uint64_t nth = 1;
    while (nth < LOOP_MAX && fail_nth(op, nth, persistent, rank_main, cluster)) {
        ++nth;
    }
    assert_true(nth < LOOP_MAX);
    if (nth == 1) {
        fail_msg("the scene does not use %s", op);
    }
    ist_world_desc desc = loop_desc(cluster);
    assert_int_equal(ist_test_run_desc(&desc, scene_main, NULL, NULL), IST_OK);
}

static const char *const operations[] = {
#define X(op, params, args, need) #op,
    IST_BACKEND_OPS(X)
#undef X
};

static void over_all_operations(int persistent, ist_rank_fn rank_main, const char *cluster)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); ++i) {
        loop_over(operations[i], persistent, rank_main, cluster);
    }
}

static void the_scene_is_sound(void **state)
{
    ist_world_desc desc = loop_desc(NULL);
    (void)state;
    assert_int_equal(ist_test_run_desc(&desc, scene_main, NULL, NULL), IST_OK);
    desc = loop_desc("2x1");
    assert_int_equal(ist_test_run_desc(&desc, scene_main, NULL, NULL), IST_OK);
}

static void every_operation_fails_once(void **state)
{
    (void)state;
    over_all_operations(0, scene_main, NULL);
    over_all_operations(0, scene_main, "2x1");
}

static void every_operation_fails_for_good(void **state)
{
    (void)state;
    over_all_operations(1, scene_main, NULL);
}

static void a_retry_in_the_same_world_succeeds(void **state)
{
    (void)state;
    over_all_operations(0, retry_main, NULL);
    over_all_operations(1, retry_main, NULL);
    uint64_t nth = 1, hits = 1;
    for (; nth < LOOP_MAX && hits != 0; ++nth) {
        ist_world_desc desc = loop_desc(NULL);
        assert_int_equal(ist_test_run_desc(&desc, retry_alloc_main, &nth, NULL), IST_OK);
        ist_call_fault_disarm(&hits);
    }
    assert_true(nth > 20 && nth < LOOP_MAX);
}

/* ---- one communicator, again and again ------------------------------------------------------- */

/* What a rank opens must be the same thing as what its peers open, whoever failed before. */
static ist_status check_peers_meet(ist_test_rank *test, uint64_t tag)
{
    uint64_t out[3] = {0};
    tk_lsa_args args = {.dev = test->dev,
                        .out = (uint64_t *)(void *)test->out,
                        .tag = tag,
                        .wait_ns = 5000000,
                        .window = ist_window_index(test->window),
                        .words = 4};
    for (int i = 0; i < 2; ++i) {
        IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_lsa, 1, &args, sizeof(args)));
        IST_TEST_PASS_ON(ist_test_results(test, out, sizeof(out)));
        EXPECT_EQUAL(test->world, out[0], 0);
        EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
        args.window = 0; /* and the device communicator's own */
    }
    return IST_OK;
}

static ist_status open_failing(ist_test_rank *test, const char *op, uint64_t nth)
{
    ist_world *world = test->world;
    EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_OK(world, ist_world_sleep(world, 100000));
    if (test->rank == 0) {
        EXPECT_OK(world, ist_call_fault_arm(op, nth, 0, IST_ERR_MEMORY));
    }
    EXPECT_OK(world, ist_world_sleep(world, 100000));
    ist_status status = strcmp(op, "window_open") == 0
                            ? ist_window_open(test->comm, test->memory, 4096, &test->window)
                            : ist_dev_comm_open(test->comm, 4096, 0, 0, 0, 0, &test->dev);
    EXPECT(world, status == IST_ERR_MEMORY || status == IST_ERR_MISMATCH);
    return IST_OK;
}

static ist_status again_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.no_dev = 1};
    ist_test_rank test;
    void *memory = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_mem_alloc(world, 4096, IST_MEM_SYMMETRIC, &memory));
    test.memory = memory;
    EXPECT_OK(world, ist_fill(test.stream, memory, 0, 4096));
    for (uint64_t i = 0; i < 8; ++i) {
        IST_TEST_PASS_ON(open_failing(&test, "window_open", 1 + i % RANKS));
        IST_TEST_PASS_ON(open_failing(&test, "devcomm_open", 1 + i / 2 % RANKS));
        EXPECT_OK(world, ist_window_open(test.comm, test.memory, 4096, &test.window));
        EXPECT_OK(world, ist_dev_comm_open(test.comm, 4096, 0, 0, 0, 0, &test.dev));
        IST_TEST_PASS_ON(check_peers_meet(&test, i + 1));
        EXPECT_OK(world, ist_stream_sync(test.stream, 0));
        EXPECT_OK(world, ist_window_close(test.window));
        EXPECT_OK(world, ist_dev_comm_close(test.comm, test.dev));
        test.window = NULL;
        test.dev = NULL;
    }
    return ist_test_rank_close(&test, false);
}

static void failures_leave_the_communicator_whole(void **state)
{
    ist_world_desc desc = loop_desc(NULL);
    (void)state;
    /* Armed, though out of reach, so that the world's calls are watched. */
    assert_int_equal(ist_call_fault_arm("caps", 1000000, 0, IST_ERR_MEMORY), IST_OK);
    assert_int_equal(ist_test_run_desc(&desc, again_main, NULL, NULL), IST_OK);
    ist_call_fault_disarm(NULL);
}

static void every_allocation_fails(void **state)
{
    (void)state;
    loop_over("host_alloc", 0, scene_main, NULL);
    loop_over("host_alloc", 1, scene_main, NULL);
    loop_over("host_alloc", 0, scene_main, "2x1");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scene_is_sound),
        cmocka_unit_test(every_operation_fails_once),
        cmocka_unit_test(every_operation_fails_for_good),
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(a_retry_in_the_same_world_succeeds),
        cmocka_unit_test(failures_leave_the_communicator_whole),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
