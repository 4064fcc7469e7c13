/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a program passes, a public function refuses it with the argument's name, changes
 * nothing, and the right call afterwards works. Method: tables of calls; each is made with NULL, a
 * closed object, an object of another kind, and another rank's object in each place where an object
 * belongs, and with every field of every struct set wrongly; the ranks meet after each.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2u

/* One rank's objects: right ones, and closed ones. */
typedef struct stage {
    ist_test_rank test;
    ist_world *world;
    ist_event *event;
    ist_graph *graph;
    ist_stream *closed_stream;
    ist_event *closed_event;
    ist_graph *closed_graph;
    ist_comm *closed_comm;
    ist_window *closed_window;
    uint64_t host[8];
    tk_affine_args args;
} stage;

/* The stages of both ranks, for foreign objects; shared through the program's own memory. */
static stage *stages[RANKS];

/* ---- a call with an object in one place ------------------------------------------------------ */

typedef struct call {
    const char *object; /* as the record names it */
    bool null_allowed;
    ist_status (*run)(stage *s, void *object);
} call;

#define CALL(name_, expression)                                                                    \
    static ist_status name_(stage *s, void *object)                                                \
    {                                                                                              \
        (void)s;                                                                                   \
        return expression;                                                                         \
    }

/* Streams. */
CALL(stream_query, ist_stream_query(object))
CALL(stream_sync, ist_stream_sync(object, 0))
CALL(stream_close, ist_stream_close(object))
CALL(copy_in, ist_copy_to_device(object, s->test.out, s->host, 8))
CALL(copy_out, ist_copy_to_host(object, s->host, s->test.out, 8))
CALL(copy_local, ist_copy(object, s->test.out, s->test.out + 64, 8))
CALL(fill, ist_fill(object, s->test.out, 0, 8))
CALL(event_record_on, ist_event_record(s->event, object))
CALL(event_wait_on, ist_event_wait(s->event, object))
CALL(graph_begin, ist_graph_begin(object))
CALL(graph_end, ist_graph_end(object, &(ist_graph *){NULL}))
CALL(graph_launch_on, ist_graph_launch(s->graph, object))
CALL(launch_on, ist_launch(object, &ist_kernel_tk_affine, 1, &s->args, sizeof(s->args)))
CALL(barrier_on, ist_comm_barrier(s->test.comm, object))
CALL(mask_read_on, ist_comm_mask_read(s->test.comm, (int32_t *)(void *)s->test.out, object))
CALL(mask_update_on, ist_comm_mask_update(s->test.comm, (const uint64_t[]){3}, object))
CALL(agree_on, ist_comm_agree(s->test.comm, object))
CALL(clean_on, ist_comm_clean(s->test.comm, object))

static const call stream_calls[] = {
    {"stream", false, stream_query},  {"stream", false, stream_sync},
    {"stream", true, stream_close},   {"stream", false, copy_in},
    {"stream", false, copy_out},      {"stream", false, copy_local},
    {"stream", false, fill},          {"stream", false, event_record_on},
    {"stream", false, event_wait_on}, {"stream", false, graph_begin},
    {"stream", false, graph_end},     {"stream", false, graph_launch_on},
    {"stream", false, launch_on},     {"stream", false, barrier_on},
    {"stream", false, mask_read_on},  {"stream", false, mask_update_on},
    {"stream", false, agree_on},      {"stream", false, clean_on},
};

/* Events and graphs. */
CALL(event_close, ist_event_close(object))
CALL(event_record, ist_event_record(object, s->test.stream))
CALL(event_wait, ist_event_wait(object, s->test.stream))
CALL(event_sync, ist_event_sync(object, 0))
CALL(event_query, ist_event_query(object))
CALL(event_elapsed_start, ist_event_elapsed(object, s->event, s->host))
CALL(event_elapsed_end, ist_event_elapsed(s->event, object, s->host))
CALL(graph_launch, ist_graph_launch(object, s->test.stream))
CALL(graph_close, ist_graph_close(object))

static const call event_calls[] = {
    {"event", true, event_close},      {"event", false, event_record},
    {"event", false, event_wait},      {"event", false, event_sync},
    {"event", false, event_query},     {"start", false, event_elapsed_start},
    {"end", false, event_elapsed_end},
};
static const call graph_calls[] = {{"graph", false, graph_launch}, {"graph", true, graph_close}};

/* Windows. */
CALL(window_close, ist_window_close(object))
CALL(window_address, ist_window_address(object, 0, 0, &(void *){NULL}))
CALL(window_offset, ist_window_offset(object, s->test.memory, s->host))

static const call window_calls[] = {
    {"window", true, window_close},
    {"window", false, window_address},
    {"window", false, window_offset},
};

/* Communicators. */
CALL(comm_split, ist_comm_split(object, 0, 0, &(ist_comm *){NULL}))
CALL(comm_close, ist_comm_close(object))
CALL(comm_query, ist_comm_query(object, &(ist_comm_info){.size = sizeof(ist_comm_info)}))
CALL(team_world, ist_comm_team_world(object, &(ist_team){0}))
CALL(team_lsa, ist_comm_team_lsa(object, &(ist_team){0}))
CALL(team_rail, ist_comm_team_rail(object, &(ist_team){0}))
CALL(comm_barrier, ist_comm_barrier(object, s->test.stream))
CALL(comm_status, ist_comm_status(object))
CALL(window_open, ist_window_open(object, s->test.memory, 4096, &(ist_window *){NULL}))
CALL(dev_comm_open, ist_dev_comm_open(object, 0, 0, 0, 0, 0, &(const ist_dev_comm *){NULL}))
CALL(dev_comm_close, ist_dev_comm_close(object, s->test.dev))
CALL(mask_query,
     ist_comm_mask_query(object,
                         &(ist_mask){.size = sizeof(ist_mask), .words = s->host, .word_count = 8}))
CALL(mask_read, ist_comm_mask_read(object, (int32_t *)(void *)s->test.out, s->test.stream))
CALL(mask_update, ist_comm_mask_update(object, (const uint64_t[]){3}, s->test.stream))
CALL(agree, ist_comm_agree(object, s->test.stream))
CALL(clean, ist_comm_clean(object, s->test.stream))
CALL(error_get, ist_comm_error_get(object, 0, &(uint32_t){0}, NULL))
CALL(error_clear, ist_comm_error_clear(object))

static const call comm_calls[] = {
    {"comm", false, comm_split},    {"comm", true, comm_close},      {"comm", false, comm_query},
    {"comm", false, team_world},    {"comm", false, team_lsa},       {"comm", false, team_rail},
    {"comm", false, comm_barrier},  {"comm", false, comm_status},    {"comm", false, window_open},
    {"comm", false, dev_comm_open}, {"comm", false, dev_comm_close}, {"comm", false, mask_query},
    {"comm", false, mask_read},     {"comm", false, mask_update},    {"comm", false, agree},
    {"comm", false, clean},         {"comm", false, error_get},      {"comm", false, error_clear},
};

/* Worlds. */
CALL(mem_alloc, ist_mem_alloc(object, 64, 0, &(void *){NULL}))
CALL(mem_free, ist_mem_free(object, s->test.out))
CALL(mem_peek, ist_mem_peek(object, s->test.out, s->host, 8))
CALL(stream_open, ist_stream_open(object, &(ist_stream *){NULL}))
CALL(event_open, ist_event_open(object, &(ist_event *){NULL}))
CALL(id_create, ist_unique_id_create(object, &(ist_unique_id){{0}}))
CALL(comm_open, ist_comm_open(object, NULL, &(ist_comm *){NULL}))
CALL(world_sleep, ist_world_sleep(object, 10))

static const call world_calls[] = {
    {"world", false, mem_alloc},   {"world", false, mem_free},    {"world", false, mem_peek},
    {"world", false, stream_open}, {"world", false, event_open},  {"world", false, id_create},
    {"world", false, comm_open},   {"world", false, world_sleep},
};

/* ---- setting and restoring the stage --------------------------------------------------------- */

static ist_status open_closed(stage *s)
{
    ist_world *world = s->world;
    EXPECT_OK(world, ist_stream_open(world, &s->closed_stream));
    EXPECT_OK(world, ist_event_open(world, &s->closed_event));
    EXPECT_OK(world, ist_comm_split(s->test.comm, 0, 0, &s->closed_comm));
    EXPECT_OK(world, ist_window_open(s->test.comm, s->test.memory, 4096, &s->closed_window));
    EXPECT_OK(world, ist_graph_begin(s->closed_stream));
    EXPECT_OK(world, ist_graph_end(s->closed_stream, &s->closed_graph));
    EXPECT_OK(world, ist_graph_close(s->closed_graph));
    EXPECT_OK(world, ist_window_close(s->closed_window));
    EXPECT_OK(world, ist_comm_close(s->closed_comm));
    EXPECT_OK(world, ist_event_close(s->closed_event));
    EXPECT_OK(world, ist_stream_close(s->closed_stream));
    return IST_OK;
}

static ist_status open_stage(ist_world *world, stage *s)
{
    static const ist_test_setup setup = {.window_bytes = 4096, .fault_tolerant = 1};
    s->world = world;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &s->test));
    s->args = (tk_affine_args){.to = (uint64_t *)(void *)s->test.out,
                               .from = (uint64_t *)(void *)s->test.out,
                               .factor = 1,
                               .addend = 1};
    EXPECT_OK(world, ist_event_open(world, &s->event));
    EXPECT_OK(world, ist_event_record(s->event, s->test.stream));
    EXPECT_OK(world, ist_graph_begin(s->test.stream));
    EXPECT_OK(world, launch_on(s, s->test.stream));
    EXPECT_OK(world, ist_graph_end(s->test.stream, &s->graph));
    stages[s->test.rank] = s;
    return open_closed(s);
}

/* Everything still works, on both ranks together. */
static ist_status check_stage(stage *s)
{
    ist_world *world = s->world;
    uint64_t before = 0, after = 0;
    EXPECT_OK(world, ist_comm_barrier(s->test.comm, s->test.stream));
    EXPECT_OK(world, ist_copy_to_host(s->test.stream, &before, s->test.out, 8));
    EXPECT_OK(world, launch_on(s, s->test.stream));
    EXPECT_OK(world, ist_graph_launch(s->graph, s->test.stream));
    EXPECT_OK(world, ist_event_record(s->event, s->test.stream));
    EXPECT_OK(world, ist_event_sync(s->event, 0));
    EXPECT_OK(world, ist_copy_to_host(s->test.stream, &after, s->test.out, 8));
    EXPECT_EQUAL(world, after, before + 2);
    EXPECT_OK(world, ist_comm_status(s->test.comm));
    EXPECT_EQUAL(world, ist_window_bytes(s->test.window), 4096);
    return IST_OK;
}

static ist_status close_stage(stage *s)
{
    EXPECT_OK(s->world, ist_event_close(s->event));
    EXPECT_OK(s->world, ist_graph_close(s->graph));
    return ist_test_rank_close(&s->test, false);
}

/* ---- wrong objects --------------------------------------------------------------------------- */

typedef struct wrong {
    void *object[8];
    uint32_t count;
} wrong;

static ist_status try_calls(stage *s, const call *calls, size_t count, const wrong *list)
{
    for (size_t i = 0; i < count; ++i) {
        if (calls[i].null_allowed) {
            EXPECT_OK(s->world, calls[i].run(s, NULL));
        } else {
            EXPECT_REFUSED(s->world, calls[i].run(s, NULL), IST_ERR_NULL, calls[i].object);
        }
        for (uint32_t k = 0; k < list->count; ++k) {
            EXPECT_REFUSED(s->world, calls[i].run(s, list->object[k]), IST_ERR_OBJECT,
                           calls[i].object);
        }
    }
    return check_stage(s);
}

#define TRY(s, calls, ...)                                                                         \
    do {                                                                                           \
        void *const objects_[] = {__VA_ARGS__};                                                    \
        wrong list_ = {.count = sizeof(objects_) / sizeof(objects_[0])};                           \
        memcpy(list_.object, objects_, sizeof(objects_));                                          \
        IST_TEST_PASS_ON(try_calls(s, calls, sizeof(calls) / sizeof((calls)[0]), &list_));         \
    } while (0)

static ist_status objects_main(ist_world *world, void *arg)
{
    stage own = {0}, *s = &own;
    (void)arg;
    IST_TEST_PASS_ON(open_stage(world, s));
    IST_TEST_PASS_ON(check_stage(s));
    const stage *other = stages[1 - s->test.rank];
    /* closed, of another kind, of another rank */
    TRY(s, stream_calls, s->closed_stream, s->event, s->test.comm, world, other->test.stream);
    TRY(s, event_calls, s->closed_event, s->test.stream, s->test.window, s->graph, other->event);
    TRY(s, graph_calls, s->closed_graph, s->event, s->test.comm, other->graph);
    TRY(s, window_calls, s->closed_window, s->graph, s->test.stream, other->test.window);
    TRY(s, comm_calls, s->closed_comm, s->test.window, world, s->closed_stream, other->test.comm);
    TRY(s, world_calls, s->test.stream, s->closed_comm, other->world);
    /* Those without a status have an answer for every object. */
    EXPECT_EQUAL(world, ist_window_bytes(NULL), 0);
    EXPECT_EQUAL(world, ist_window_bytes(s->closed_window), 0);
    EXPECT_EQUAL(world, ist_window_bytes((void *)s->event), 0);
    EXPECT_EQUAL(world, ist_window_index(NULL), 0);
    EXPECT_EQUAL(world, ist_window_index(s->closed_window), 0);
    EXPECT_EQUAL(world, ist_world_rank(NULL), 0);
    EXPECT_EQUAL(world, ist_world_rank_count((void *)s->event), 0);
    EXPECT_EQUAL(world, ist_world_clock_ns(NULL), 0);
    EXPECT(world, ist_world_backend_name(NULL) != NULL);
    EXPECT_REFUSED(world, ist_comm_abort(NULL), IST_ERR_NULL, "comm");
    EXPECT_REFUSED(world, ist_comm_abort(s->closed_comm), IST_ERR_OBJECT, "comm");
    EXPECT_REFUSED(world, ist_comm_abort((void *)s->event), IST_ERR_OBJECT, "comm");
    IST_TEST_PASS_ON(check_stage(s));
    return close_stage(s);
}

static void wrong_objects_are_refused_everywhere(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(RANKS, NULL, objects_main, NULL), IST_OK);
}

/* ---- NULL and wrong values in other places --------------------------------------------------- */

static ist_status null_outputs(stage *s)
{
    ist_world *world = s->world;
    ist_comm *comm = s->test.comm;
    ist_stream *stream = s->test.stream;
    uint32_t count = 0;
    EXPECT_REFUSED(world, ist_error_last(NULL), IST_ERR_NULL, "error");
    EXPECT_REFUSED(world, ist_mem_alloc(world, 64, 0, NULL), IST_ERR_NULL, "mem");
    EXPECT_REFUSED(world, ist_mem_peek(world, s->test.out, NULL, 8), IST_ERR_NULL, "host");
    EXPECT_REFUSED(world, ist_mem_peek(world, NULL, s->host, 8), IST_ERR_NULL, "mem");
    EXPECT_REFUSED(world, ist_stream_open(world, NULL), IST_ERR_NULL, "stream");
    EXPECT_REFUSED(world, ist_event_open(world, NULL), IST_ERR_NULL, "event");
    EXPECT_REFUSED(world, ist_unique_id_create(world, NULL), IST_ERR_NULL, "id");
    EXPECT_REFUSED(world, ist_comm_open(world, NULL, NULL), IST_ERR_NULL, "comm");
    EXPECT_REFUSED(world, ist_comm_query(comm, NULL), IST_ERR_NULL, "info");
    EXPECT_REFUSED(world, ist_comm_team_lsa(comm, NULL), IST_ERR_NULL, "team");
    EXPECT_REFUSED(world, ist_comm_team_rail(comm, NULL), IST_ERR_NULL, "team");
    EXPECT_REFUSED(world, ist_comm_mask_query(comm, NULL), IST_ERR_NULL, "mask");
    EXPECT_REFUSED(world, ist_comm_mask_read(comm, NULL, stream), IST_ERR_NULL, "out");
    EXPECT_REFUSED(world, ist_comm_mask_update(comm, NULL, stream), IST_ERR_NULL, "words");
    EXPECT_REFUSED(world, ist_comm_error_get(comm, 0, NULL, NULL), IST_ERR_NULL, "count");
    EXPECT_REFUSED(world, ist_copy_to_device(stream, NULL, s->host, 8), IST_ERR_NULL, "dst");
    EXPECT_REFUSED(world, ist_copy_to_device(stream, s->test.out, NULL, 8), IST_ERR_NULL,
                   "host_src");
    EXPECT_REFUSED(world, ist_copy_to_host(stream, NULL, s->test.out, 8), IST_ERR_NULL, "host_dst");
    EXPECT_REFUSED(world, ist_copy_to_host(stream, s->host, NULL, 8), IST_ERR_NULL, "src");
    EXPECT_REFUSED(world, ist_copy(stream, NULL, s->test.out, 8), IST_ERR_NULL, "dst");
    EXPECT_REFUSED(world, ist_copy(stream, s->test.out, NULL, 8), IST_ERR_NULL, "src");
    EXPECT_REFUSED(world, ist_fill(stream, NULL, 0, 8), IST_ERR_NULL, "dst");
    EXPECT_REFUSED(world, ist_event_elapsed(s->event, s->event, NULL), IST_ERR_NULL, "elapsed_ns");
    EXPECT_REFUSED(world, ist_window_address(s->test.window, 0, 1, NULL), IST_ERR_NULL, "address");
    EXPECT_REFUSED(world, ist_window_offset(s->test.window, s->test.memory, NULL), IST_ERR_NULL,
                   "offset");
    EXPECT_REFUSED(world, ist_launch(stream, NULL, 1, &s->args, sizeof(s->args)), IST_ERR_NULL,
                   "kernel");
    EXPECT_REFUSED(world, ist_launch(stream, &ist_kernel_tk_affine, 1, NULL, sizeof(s->args)),
                   IST_ERR_NULL, "args");
    EXPECT_OK(world, ist_comm_error_get(comm, 0, &count, NULL));
    EXPECT_EQUAL(world, count, 0);
    EXPECT(world, ist_kernel_find(NULL) == NULL && ist_kernel_find("no such kernel") == NULL);
    return IST_OK;
}

static ist_status wrong_values(stage *s)
{
    ist_world *world = s->world;
    ist_stream *stream = s->test.stream;
    const ist_kernel *kernel = &ist_kernel_tk_affine;
    ist_error error = {.size = 7};
    uint32_t count = 0;
    EXPECT_REFUSED(world, ist_launch(stream, kernel, 0, &s->args, sizeof(s->args)), IST_ERR_RANGE,
                   "block_count");
    EXPECT_REFUSED(world, ist_launch(stream, kernel, UINT32_MAX, &s->args, sizeof(s->args)),
                   IST_ERR_RANGE, "block_count");
    EXPECT_REFUSED(world, ist_launch(stream, kernel, 1, &s->args, sizeof(s->args) - 1),
                   IST_ERR_SIZE, "args_bytes");
    EXPECT_REFUSED(world, ist_stream_sync(stream, 1), IST_ERR_RANGE, "deadline_ns");
    EXPECT_REFUSED(world, ist_event_sync(s->event, 999), IST_ERR_RANGE, "deadline_ns");
    EXPECT_REFUSED(world, ist_error_last(&error), IST_ERR_SIZE, "error");
    EXPECT_REFUSED(world, ist_comm_error_get(s->test.comm, 0, &count, &error), IST_ERR_SIZE,
                   "error");
    error.size = sizeof(error);
    EXPECT_REFUSED(world, ist_comm_error_get(s->test.comm, 0, &count, &error), IST_ERR_RANGE,
                   "index");
    EXPECT_REFUSED(world, ist_comm_query(s->test.comm, &(ist_comm_info){.size = 0}), IST_ERR_SIZE,
                   "info");
    EXPECT_REFUSED(world, ist_comm_query(s->test.comm, &(ist_comm_info){.size = UINT32_MAX}),
                   IST_ERR_SIZE, "info");
    EXPECT_REFUSED(world, ist_dev_comm_close(s->test.comm, (const ist_dev_comm *)(void *)s),
                   IST_ERR_OBJECT, "dev");
    /* A word of the mask in the caller's hands is not device memory. */
    EXPECT_REFUSED(world, ist_comm_mask_read(s->test.comm, (int32_t *)(void *)s->host, stream),
                   IST_ERR_ARGUMENT, "out");
    EXPECT_REFUSED(world,
                   ist_comm_mask_read(s->test.comm, (int32_t *)(void *)(s->test.out + 2), stream),
                   IST_ERR_ALIGNMENT, "out");
    return IST_OK;
}

static ist_status values_main(ist_world *world, void *arg)
{
    stage own = {0};
    (void)arg;
    IST_TEST_PASS_ON(open_stage(world, &own));
    IST_TEST_PASS_ON(null_outputs(&own));
    IST_TEST_PASS_ON(check_stage(&own));
    IST_TEST_PASS_ON(wrong_values(&own));
    IST_TEST_PASS_ON(check_stage(&own));
    return close_stage(&own);
}

static void null_and_wrong_values_are_named(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(RANKS, NULL, values_main, NULL), IST_OK);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

typedef struct comm_case {
    ist_comm_desc desc;
    ist_status status;
    const char *object;
} comm_case;

static ist_status comm_desc_main(ist_world *world, void *arg)
{
    ist_unique_id garbage, zero;
    memset(&garbage, 0xa5, sizeof(garbage));
    memset(&zero, 0, sizeof(zero));
    const uint32_t size = sizeof(ist_comm_desc);
    const comm_case cases[] = {
        {{.size = 0}, IST_ERR_SIZE, "desc"},
        {{.size = 8}, IST_ERR_SIZE, "desc"},
        {{.size = size - 1}, IST_ERR_SIZE, "desc"},
        {{.size = UINT32_MAX}, IST_ERR_SIZE, "desc"},
        {{.size = size, .reserved = {1, 0}}, IST_ERR_RESERVED, "desc.reserved"},
        {{.size = size, .reserved = {0, 1}}, IST_ERR_RESERVED, "desc.reserved"},
        {{.size = size, .deadline_ns = 999}, IST_ERR_RANGE, "desc.deadline_ns"},
        {{.size = size, .fault_tolerant = 2}, IST_ERR_ARGUMENT, "desc.fault_tolerant"},
        {{.size = size, .check = (ist_check)3}, IST_ERR_ARGUMENT, "desc.check"},
        {{.size = size, .check = (ist_check)-1}, IST_ERR_ARGUMENT, "desc.check"},
        {{.size = size, .rank_count = 3}, IST_ERR_ARGUMENT, "desc.rank_count"},
        {{.size = size, .rank = 7}, IST_ERR_ARGUMENT, "desc.rank"},
        {{.size = size, .id = &garbage}, IST_ERR_ARGUMENT, "desc.id"},
        {{.size = size, .id = &zero}, IST_ERR_ARGUMENT, "desc.id"},
    };
    ist_comm *untouched = (ist_comm *)(void *)&garbage, *comm = untouched;
    ist_unique_id id;
    (void)arg;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        EXPECT_REFUSED(world, ist_comm_open(world, &cases[i].desc, &comm), cases[i].status,
                       cases[i].object);
        EXPECT(world, comm == untouched);
    }
    EXPECT_OK(world, ist_unique_id_create(world, &id));
    ist_comm_desc desc = {.size = size, .id = &id, .rank = 1, .rank_count = 1};
    EXPECT_REFUSED(world, ist_comm_open(world, &desc, &comm), IST_ERR_RANGE, "desc.rank");
    desc.rank_count = RANKS + 1;
    EXPECT_REFUSED(world, ist_comm_open(world, &desc, &comm), IST_ERR_RANGE, "desc.rank_count");
    id.bytes[5] ^= 1;
    desc.rank_count = 1;
    desc.rank = 0;
    EXPECT_REFUSED(world, ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT, "desc.id");
    id.bytes[5] ^= 1;
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm)); /* alone */
    EXPECT_OK(world, ist_comm_close(comm));
    /* A newer program: unknown bytes are accepted while they are zero. */
    struct {
        ist_comm_desc known;
        uint64_t unknown[2];
    } newer = {.known = {.size = sizeof(newer)}};
    EXPECT_OK(world, ist_comm_open(world, &newer.known, &comm));
    EXPECT_OK(world, ist_comm_close(comm));
    newer.unknown[1] = 1;
    EXPECT_REFUSED(world, ist_comm_open(world, &newer.known, &comm), IST_ERR_RESERVED, "desc");
    return IST_OK;
}

static void communicator_descriptors_are_checked(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(RANKS, NULL, comm_desc_main, NULL), IST_OK);
}

static ist_status dev_comm_main(ist_world *world, void *arg)
{
    static const ist_test_setup setup = {.no_dev = 1};
    ist_test_rank test;
    const ist_dev_comm *dev = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, UINT64_MAX, 0, 0, 0, 0, &dev), IST_ERR_RANGE,
                   "resource_bytes");
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, 0, 65, 0, 0, 0, &dev), IST_ERR_RANGE,
                   "context_count");
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, 0, 0, 1, 0, 0, &dev), IST_ERR_RANGE,
                   "signal_count");
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, 0, 1, UINT32_MAX, 0, 0, &dev), IST_ERR_RANGE,
                   "signal_count");
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, 0, 0, 0, 1, 0, &dev), IST_ERR_RANGE,
                   "counter_count");
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, 0, 0, 0, 0, UINT32_MAX, &dev), IST_ERR_RANGE,
                   "lsa_barrier_count");
    EXPECT_REFUSED(world, ist_dev_comm_open(test.comm, 0, 0, 0, 0, 0, NULL), IST_ERR_NULL, "dev");
    EXPECT_STATUS(world, ist_dev_comm_open(test.comm, 1ull << 45, 0, 0, 0, 0, &dev),
                  IST_ERR_MEMORY);
    EXPECT(world, dev == NULL);
    EXPECT_OK(world, ist_dev_comm_open(test.comm, 100, 0, 0, 0, 0, &dev));
    EXPECT_OK(world, ist_dev_comm_close(test.comm, dev));
    EXPECT_REFUSED(world, ist_dev_comm_close(test.comm, dev), IST_ERR_OBJECT, "dev");
    EXPECT_OK(world, ist_dev_comm_close(test.comm, NULL));
    return ist_test_rank_close(&test, false);
}

static void device_communicators_are_checked(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(RANKS, NULL, dev_comm_main, NULL), IST_OK);
}

static ist_status nothing_main(ist_world *world, void *arg)
{
    (void)world;
    ++*(int *)arg;
    return IST_OK;
}

typedef struct world_case {
    ist_world_desc desc;
    ist_status status;
} world_case;

static void world_descriptors_are_checked(void **state)
{
    const uint32_t size = sizeof(ist_world_desc);
    ist_fault_plan *plan = NULL;
    (void)state;
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    ist_fault fault = {.size = sizeof(fault),
                       .kind = IST_FAULT_KILL,
                       .trigger = IST_FAULT_AT_OP,
                       .rank = 77,
                       .at_op = 1};
    assert_int_equal(ist_fault_plan_add(plan, &fault), IST_OK);
    const ist_sim_desc small = {.size = 4}, reserved = {.size = sizeof(reserved), .reserved = 1};
    const ist_sim_desc links = {.size = sizeof(links), .links = (ist_link_model)9};
    const ist_sim_desc log = {.size = sizeof(log), .log_path = "/no such folder/log"};
    const world_case cases[] = {
        {{.size = 0, .backend = "sim"}, IST_ERR_SIZE},
        {{.size = size - 1, .backend = "sim"}, IST_ERR_SIZE},
        {{.size = UINT32_MAX, .backend = "sim"}, IST_ERR_SIZE},
        {{.size = size, .backend = "sim", .reserved = 1}, IST_ERR_RESERVED},
        {{.size = size, .backend = "sim", .deadline_ns = 999}, IST_ERR_RANGE},
        {{.size = size, .backend = "sim", .check = (ist_check)9}, IST_ERR_ARGUMENT},
        {{.size = size, .backend = "sim", .rank_count = UINT32_MAX}, IST_ERR_RANGE},
        {{.size = size, .backend = "no such backend"}, IST_ERR_BACKEND},
        {{.size = size, .backend = ""}, IST_ERR_BACKEND},
        {{.size = size, .backend = "sim", .cluster = "nonsense"}, IST_ERR_PARSE},
        {{.size = size, .backend = "sim", .cluster = "2x2x2"}, IST_ERR_PARSE},
        {{.size = size, .backend = "sim", .cluster = "1x1", .rank_count = 4}, IST_ERR_RANGE},
        {{.size = size, .backend = "sim", .rank_count = 2, .faults = plan}, IST_ERR_RANGE},
        {{.size = size, .backend = "sim", .sim = &small}, IST_ERR_SIZE},
        {{.size = size, .backend = "sim", .sim = &reserved}, IST_ERR_RESERVED},
        {{.size = size, .backend = "sim", .sim = &links}, IST_ERR_ARGUMENT},
        {{.size = size, .backend = "sim", .rank_count = 1, .sim = &log}, IST_ERR_IO},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        ist_world_result result = {.size = sizeof(result), .status = IST_IN_PROGRESS};
        ist_error error = {.size = sizeof(error)};
        int runs = 0;
        ist_status status = ist_world_run(&cases[i].desc, nothing_main, &runs, &result);
        if (status != cases[i].status) {
            ist_error_last(&error);
            fail_msg("case %zu is %s, expected %s: %s", i, ist_status_name(status),
                     ist_status_name(cases[i].status), error.message);
        }
        assert_int_equal(result.status, status);
        assert_int_equal(ist_error_last(&error), IST_OK);
        assert_int_equal(error.status, status);
        assert_int_not_equal(error.message[0], '\0');
    }
    ist_fault_plan_close(plan);
    int runs = 0;
    ist_world_desc good = {.size = size, .backend = "sim", .rank_count = 3};
    ist_world_result short_result = {.size = 8};
    assert_int_equal(ist_world_run(&good, NULL, &runs, NULL), IST_ERR_NULL);
    ist_world_result tiny = {.size = 7};
    assert_int_equal(ist_world_run(&good, nothing_main, &runs, &tiny), IST_ERR_SIZE);
    assert_int_equal(runs, 0);
    assert_int_equal(ist_world_run(&good, nothing_main, &runs, &short_result), IST_OK);
    assert_int_equal(short_result.status, IST_OK);
    assert_int_equal(short_result.size, 8);
    assert_int_equal(runs, 3);
}

/* ---- order of calls -------------------------------------------------------------------------- */

/* A rank that leaves everything open, in the middle of a capture: the world cleans up. */
static ist_status careless_main(ist_world *world, void *arg)
{
    stage own = {0};
    ist_comm *comm = NULL;
    (void)arg;
    IST_TEST_PASS_ON(open_stage(world, &own));
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_REFUSED(world, ist_comm_close(own.test.comm), IST_ERR_USAGE, "comm");
    EXPECT_OK(world, ist_graph_begin(own.test.stream));
    EXPECT_OK(world, launch_on(&own, own.test.stream));
    return IST_OK;
}

static void what_is_left_open_is_closed(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(RANKS, NULL, careless_main, NULL), IST_OK);
}

/* Closing in every order that is allowed; peers at different places. */
static ist_status order_main(ist_world *world, void *arg)
{
    stage own = {0}, *s = &own;
    (void)arg;
    IST_TEST_PASS_ON(open_stage(world, s));
    IST_TEST_PASS_ON(check_stage(s));
    EXPECT_OK(world, ist_comm_barrier(s->test.comm, s->test.stream));
    EXPECT_OK(world, ist_stream_sync(s->test.stream, 0));
    if (s->test.rank == 0) {
        EXPECT_OK(world, ist_window_close(s->test.window));
        EXPECT_OK(world, ist_comm_close(s->test.comm)); /* its device communicator goes with it */
        EXPECT_OK(world, ist_graph_close(s->graph));
        EXPECT_OK(world, ist_stream_close(s->test.stream));
        EXPECT_OK(world, ist_event_close(s->event));
    } else {
        EXPECT_OK(world, ist_event_close(s->event));
        EXPECT_OK(world, ist_stream_close(s->test.stream));
        EXPECT_OK(world, ist_graph_close(s->graph));
        EXPECT_OK(world, ist_dev_comm_close(s->test.comm, s->test.dev));
        EXPECT_OK(world, ist_window_close(s->test.window));
        EXPECT_OK(world, ist_comm_close(s->test.comm));
    }
    EXPECT_OK(world, ist_mem_free(world, s->test.memory));
    EXPECT_OK(world, ist_mem_free(world, s->test.out));
    return IST_OK;
}

static void objects_may_be_closed_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(RANKS, NULL, order_main, NULL), IST_OK);
}

/* ---- fault plans ----------------------------------------------------------------------------- */

static void fault_plans_are_checked(void **state)
{
    ist_fault_plan *plan = NULL;
    ist_fault_budget budget = {.size = sizeof(budget), .rank_count = 4, .kill_count_max = 1};
    size_t needed = 0;
    (void)state;
    assert_int_equal(ist_fault_plan_open(NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
    assert_int_equal(ist_fault_plan_add(NULL, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_add(plan, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_add(plan, &(ist_fault){.size = 0}), IST_ERR_SIZE);
    ist_fault fault = {.size = sizeof(fault)};
    assert_int_equal(ist_fault_plan_add(plan, &fault), IST_ERR_ARGUMENT); /* unset kind */
    fault.kind = (ist_fault_kind)99;
    assert_int_equal(ist_fault_plan_add(plan, &fault), IST_ERR_ARGUMENT);
    fault.kind = IST_FAULT_KILL;
    fault.trigger = (ist_fault_trigger)7;
    assert_int_equal(ist_fault_plan_add(plan, &fault), IST_ERR_ARGUMENT);
    assert_int_equal(ist_fault_plan_parse(NULL, "{}"), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_parse(plan, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_parse(plan, "{"), IST_ERR_PARSE);
    assert_int_equal(ist_fault_plan_parse(plan, "{\"faults\":[{\"kind\":\"x\"}]}"), IST_ERR_PARSE);
    assert_int_equal(ist_fault_plan_load(plan, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_load(plan, "no such file"), IST_ERR_IO);
    assert_int_equal(ist_fault_plan_get(plan, 0, &fault), IST_ERR_RANGE);
    assert_int_equal(ist_fault_plan_get(NULL, 0, &fault), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_get(plan, 0, NULL), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_print(NULL, NULL, 0, &needed), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_print(plan, NULL, 0, &needed), IST_OK);
    assert_true(needed > 0);
    assert_int_equal(ist_fault_plan_random(NULL, 1, &budget), IST_ERR_NULL);
    assert_int_equal(ist_fault_plan_random(plan, 1, NULL), IST_ERR_NULL);
    budget.reserved = 1;
    assert_int_equal(ist_fault_plan_random(plan, 1, &budget), IST_ERR_RESERVED);
    budget.reserved = 0;
    budget.kill_count_max = 4;
    assert_true(ist_fault_plan_random(plan, 1, &budget) < 0);
    assert_int_equal(ist_fault_plan_count(plan), 0);
    assert_int_equal(ist_fault_plan_count(NULL), 0);
    ist_fault_plan_close(NULL);
    ist_fault_plan_close(plan);
    assert_int_equal(ist_call_fault_arm("no such call", 1, 0, IST_ERR_MEMORY), IST_ERR_ARGUMENT);
    assert_int_equal(ist_call_fault_arm("caps", 1, 0, IST_OK), IST_ERR_ARGUMENT);
}

static void names_have_an_answer_for_everything(void **state)
{
    const char *name = NULL, *reason = NULL;
    (void)state;
    assert_string_equal(ist_status_name((ist_status)12345), "IST_ERR_?");
    assert_non_null(ist_status_sentence((ist_status)12345));
    assert_int_equal(ist_dtype_bytes(IST_DTYPE_UNSET), 0);
    assert_int_equal(ist_dtype_bytes((ist_dtype)99), 0);
    assert_int_equal(ist_backend_query(0, NULL, &reason), IST_ERR_NULL);
    assert_int_equal(ist_backend_query(0, &name, NULL), IST_ERR_NULL);
    assert_int_equal(ist_backend_query(1000, &name, &reason), IST_ERR_RANGE);
    assert_int_equal(ist_backend_query(0, &name, &reason), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_objects_are_refused_everywhere),
        cmocka_unit_test(null_and_wrong_values_are_named),
        cmocka_unit_test(communicator_descriptors_are_checked),
        cmocka_unit_test(device_communicators_are_checked),
        cmocka_unit_test(world_descriptors_are_checked),
        cmocka_unit_test(what_is_left_open_is_closed),
        cmocka_unit_test(objects_may_be_closed_in_any_order),
        cmocka_unit_test(fault_plans_are_checked),
        cmocka_unit_test(names_have_an_answer_for_everything),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
