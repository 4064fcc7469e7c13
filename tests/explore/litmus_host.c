/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory model of programs: streams, events, graphs, host-visible words, collective calls. Method:
 * two ranks, a kernel that writes a row and one that reads it, and something in between that orders
 * them, or does not; over many random schedules a race is found exactly when it does not.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct touch_args {
    void *write;       /* row to fill, or NULL */
    const void *read;  /* row to read, or NULL */
    uint64_t *flag;    /* raised at the end, or NULL */
    uint32_t released; /* 1: with a release */
    uint32_t reserved;
} touch_args;

IST_KERNEL(host_touch, touch_args)
{
    uint64_t *copy = ist_coop_scratch(coop, 0, 64);
    if (args->read != NULL) {
        ist_row_copy(coop, copy, args->read, 64);
    }
    if (args->write != NULL) {
        ist_row_fill(coop, args->write, 3, 64);
    }
    ist_coop_sync(coop);
    if (args->flag != NULL) {
        ist_store_u64(coop, args->flag, 1, args->released ? IST_RELEASE : IST_RELAXED,
                      IST_SCOPE_SYSTEM);
    }
}

/* What a rank has open. */
typedef struct rig {
    ist_world *world;
    ist_comm *comm;
    ist_stream *one, *two;
    ist_event *event;
    const ist_dev_comm *dev;
    uint8_t *mine;     /* window 0: flag, then a row at 64 */
    uint8_t *peer;     /* the other rank's */
    uint64_t *visible; /* host-visible word */
    int ordered;       /* 1: with what orders the two */
    uint32_t rank;
} rig;

static ist_status launch(ist_stream *stream, void *write, const void *read, uint64_t *flag,
                         uint32_t released)
{
    touch_args args = {.write = write, .read = read, .flag = flag, .released = released};
    return ist_launch(stream, &ist_kernel_host_touch, 1, &args, sizeof(args));
}

static ist_status meet(const rig *r)
{
    const ist_dev_comm *dev = NULL;
    IST_TEST_PASS_ON(ist_dev_comm_open(r->comm, 0, 0, 0, 0, 0, &dev));
    return ist_dev_comm_close(r->comm, dev);
}

static ist_status follow(const rig *r)
{
    IST_TEST_PASS_ON(ist_event_record(r->event, r->one));
    return ist_event_wait(r->event, r->two);
}

/* ---- programs -------------------------------------------------------------------------------- */

static ist_status one_stream_or_two(rig *r)
{
    IST_TEST_PASS_ON(launch(r->one, r->mine + 64, NULL, NULL, 0));
    return launch(r->ordered ? r->one : r->two, NULL, r->mine + 64, NULL, 0);
}

static ist_status two_streams_and_an_event(rig *r)
{
    IST_TEST_PASS_ON(launch(r->one, r->mine + 64, NULL, NULL, 0));
    if (r->ordered) {
        IST_TEST_PASS_ON(follow(r));
    }
    return launch(r->two, NULL, r->mine + 64, NULL, 0);
}

static ist_status copy_before_a_kernel(rig *r)
{
    uint64_t row[8] = {1};
    IST_TEST_PASS_ON(ist_copy_to_device(r->one, r->mine + 64, row, sizeof(row)));
    if (r->ordered) {
        IST_TEST_PASS_ON(ist_stream_sync(r->one, 0));
    }
    return launch(r->two, NULL, r->mine + 64, NULL, 0);
}

static ist_status copy_to_the_host(rig *r)
{
    uint64_t row[8];
    IST_TEST_PASS_ON(launch(r->one, r->mine + 64, NULL, NULL, 0));
    return ist_copy_to_host(r->ordered ? r->one : r->two, row, r->mine + 64, sizeof(row));
}

static ist_status event_of_the_wrong_moment(rig *r)
{
    if (!r->ordered) {
        IST_TEST_PASS_ON(follow(r)); /* recorded before what should be waited for */
    }
    IST_TEST_PASS_ON(launch(r->one, r->mine + 64, NULL, NULL, 0));
    if (r->ordered) {
        IST_TEST_PASS_ON(follow(r));
    }
    return launch(r->two, NULL, r->mine + 64, NULL, 0);
}

static ist_status graph_then_a_stream(rig *r)
{
    ist_graph *graph = NULL;
    IST_TEST_PASS_ON(ist_graph_begin(r->one));
    IST_TEST_PASS_ON(launch(r->one, r->mine + 64, NULL, NULL, 0));
    IST_TEST_PASS_ON(ist_graph_end(r->one, &graph));
    IST_TEST_PASS_ON(ist_graph_launch(graph, r->one));
    IST_TEST_PASS_ON(ist_graph_launch(graph, r->one)); /* in turn, without a race between the two */
    if (r->ordered) {
        IST_TEST_PASS_ON(follow(r));
    }
    IST_TEST_PASS_ON(launch(r->two, NULL, r->mine + 64, NULL, 0));
    IST_TEST_PASS_ON(ist_stream_sync(r->one, 0));
    return ist_graph_close(graph);
}

/* The host sees a word of a running kernel and starts another one. */
static ist_status host_visible_word(rig *r)
{
    uint64_t seen = 0;
    IST_TEST_PASS_ON(launch(r->one, r->mine + 64, NULL, r->visible, r->ordered ? 1u : 0u));
    for (uint32_t i = 0; i < 1000 && seen == 0; ++i) {
        IST_TEST_PASS_ON(ist_mem_peek(r->world, r->visible, &seen, sizeof(seen)));
        IST_TEST_PASS_ON(ist_world_sleep(r->world, 100));
    }
    return launch(r->two, NULL, r->mine + 64, NULL, 0);
}

/* A kernel's row in the peer's memory is covered by the release of a later kernel of the stream. */
static ist_status release_by_a_later_kernel(rig *r)
{
    if (r->rank == 0) {
        IST_TEST_PASS_ON(launch(r->one, r->peer + 64, NULL, NULL, 0));
        return launch(r->ordered ? r->one : r->two, NULL, NULL, (uint64_t *)(void *)r->peer, 1);
    }
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 1000 && seen == 0; ++i) {
        IST_TEST_PASS_ON(ist_mem_peek(r->world, r->mine, &seen, sizeof(seen)));
        IST_TEST_PASS_ON(ist_world_sleep(r->world, 100));
    }
    return seen == 0 ? IST_OK : launch(r->one, NULL, r->mine + 64, NULL, 0);
}

/* Programs meet; what their streams have not finished is not ordered by that. */
static ist_status meeting_of_programs(rig *r)
{
    if (r->rank == 0) {
        IST_TEST_PASS_ON(launch(r->one, r->peer + 64, NULL, NULL, 0));
        if (r->ordered) {
            IST_TEST_PASS_ON(ist_stream_sync(r->one, 0));
        }
    }
    IST_TEST_PASS_ON(meet(r));
    return r->rank == 0 ? IST_OK : launch(r->one, NULL, r->mine + 64, NULL, 0);
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct shape {
    const char *name;
    ist_status (*run)(rig *r);
    int ordered;
} shape;

static ist_status close_rig(rig *r)
{
    IST_TEST_PASS_ON(ist_stream_sync(r->one, 0));
    IST_TEST_PASS_ON(ist_stream_sync(r->two, 0));
    IST_TEST_PASS_ON(meet(r));
    IST_TEST_PASS_ON(ist_mem_free(r->world, r->visible));
    IST_TEST_PASS_ON(ist_dev_comm_close(r->comm, r->dev));
    IST_TEST_PASS_ON(ist_event_close(r->event));
    IST_TEST_PASS_ON(ist_stream_close(r->two));
    IST_TEST_PASS_ON(ist_stream_close(r->one));
    return ist_comm_close(r->comm);
}

static ist_status shape_main(ist_world *world, void *arg)
{
    const shape *which = arg;
    rig r = {.world = world, .ordered = which->ordered, .rank = ist_world_rank(world)};
    void *visible = NULL;
    uint64_t zero = 0;
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &r.comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &r.one));
    IST_TEST_PASS_ON(ist_stream_open(world, &r.two));
    IST_TEST_PASS_ON(ist_event_open(world, &r.event));
    IST_TEST_PASS_ON(ist_mem_alloc(world, 4096, IST_MEM_HOST_VISIBLE, &visible));
    IST_TEST_PASS_ON(ist_copy_to_device(r.one, visible, &zero, sizeof(zero)));
    IST_TEST_PASS_ON(ist_stream_sync(r.one, 0));
    IST_TEST_PASS_ON(ist_dev_comm_open(r.comm, 4096, 0, 0, 0, 0, &r.dev));
    r.visible = visible;
    r.mine = r.dev->windows[0].local;
    r.peer = r.dev->windows[0].lsa[1 - r.rank];
    IST_TEST_PASS_ON(which->run(&r));
    return close_rig(&r);
}

static const shape shapes[] = {
    {"kernels of one stream", one_stream_or_two, 1},
    {"kernels of two streams", one_stream_or_two, 0},
    {"two streams and an event", two_streams_and_an_event, 1},
    {"two streams without an event", two_streams_and_an_event, 0},
    {"copy, stream sync, kernel", copy_before_a_kernel, 1},
    {"copy, kernel of another stream", copy_before_a_kernel, 0},
    {"copy to the host, same stream", copy_to_the_host, 1},
    {"copy to the host, another stream", copy_to_the_host, 0},
    {"event recorded after the kernel", event_of_the_wrong_moment, 1},
    {"event recorded before the kernel", event_of_the_wrong_moment, 0},
    {"graph, event, kernel", graph_then_a_stream, 1},
    {"graph, kernel of another stream", graph_then_a_stream, 0},
    {"host-visible word, released", host_visible_word, 1},
    {"host-visible word, relaxed", host_visible_word, 0},
    {"row and flag by kernels of one stream", release_by_a_later_kernel, 1},
    {"row and flag by kernels of two streams", release_by_a_later_kernel, 0},
    {"stream sync before programs meet", meeting_of_programs, 1},
    {"programs meet, streams go on", meeting_of_programs, 0},
};

static uint32_t races_of(const shape *which, ist_finding *other)
{
    ist_explore_desc explore = {.size = sizeof(explore), .scheduler = IST_SCHEDULER_RANDOM};
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = 2};
    uint32_t races = 0;
    for (uint32_t i = 0; i < 200; ++i) {
        shape copy = *which;
        ist_explore_report report = {.size = sizeof(report)};
        desc.seed = ist_test_seed() + i;
        (void)ist_explore_run(&desc, shape_main, &copy, &explore, &report);
        ist_finding_kind kind = report.finding.kind;
        if (kind == IST_FINDING_RACE || kind == IST_FINDING_REUSED) {
            ++races;
        }
        if (kind != IST_FINDING_NONE && (which->ordered || kind == IST_FINDING_STATUS)) {
            *other = report.finding;
        }
    }
    return races;
}

static void orders_of_programs(void **state)
{
    (void)state;
    uint32_t failures = 0;
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
        ist_finding other = {.kind = IST_FINDING_NONE};
        uint32_t races = races_of(&shapes[i], &other);
        print_message("%-44s races in %u of 200 schedules\n", shapes[i].name, races);
        if (other.kind != IST_FINDING_NONE) {
            print_error("%s: %s", shapes[i].name, other.text);
            ++failures;
        }
        failures += shapes[i].ordered ? races != 0 : races == 0;
    }
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders_of_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
