/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front and its layers cost: ns of a call through the public function, against the same
 * call through a bare pointer of the table. Prints both, the difference and the ratio; the aim is a
 * difference of at most 5 ns. Nothing depends on the clock. Argument: calls in millions.
 *
 *   bench_front [millions]
 */
#include "fake_backend.h"

#include <isthmus/isthmus.h>
#include <isthmus/unstable/sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS 5

static uint64_t call_count = 20000000;

/* Slots that do nothing, so that what is measured is the way to them. */
static ist_status quiet_stream_query(void *self, uint64_t stream)
{
    (void)self;
    return stream != 0 ? IST_OK : IST_ERR_ARGUMENT;
}

static ist_status quiet_event_record(void *self, uint64_t event, uint64_t stream)
{
    (void)self;
    return event != stream ? IST_OK : IST_ERR_ARGUMENT;
}

static ist_status quiet_mem_query(void *self, const void *mem, size_t bytes, uint32_t *flags)
{
    (void)self, (void)mem, (void)bytes;
    *flags = 0;
    return IST_OK;
}

static ist_status quiet_fill(void *self, uint64_t stream, void *dst, uint8_t value, size_t bytes)
{
    (void)self, (void)stream, (void)dst, (void)value, (void)bytes;
    return IST_OK;
}

static ist_status quiet_launch(void *self, uint64_t stream, const ist_kernel *kernel,
                               uint32_t block_count, const void *args, size_t args_bytes)
{
    (void)self, (void)stream, (void)kernel, (void)block_count, (void)args, (void)args_bytes;
    return IST_OK;
}

/* `fill` asks for the memory before it fills; so does the bare loop. */
static inline ist_status bare_fill_pair(const ist_backend_ops *ops, void *memory)
{
    uint32_t flags = 0;
    ist_status status = ops->mem_query(NULL, memory, 64, &flags);
    return status == IST_OK ? ops->fill(NULL, 1, memory, 0, 64) : status;
}

static ist_backend_ops quiet_ops;
static ist_backend quiet_backend;

static ist_status quiet_probe(const char **reason)
{
    *reason = NULL;
    return IST_OK;
}

static ist_backend_rank_fn front_main;

/* Runs the front's rank program over the quiet table instead of the fake's. */
static ist_status swap_table(const ist_backend_ops *ops, void *self, uint32_t rank,
                             uint32_t rank_count, void *context)
{
    (void)ops;
    return front_main(&quiet_ops, self, rank, rank_count, context);
}

static ist_status quiet_world_run(const ist_backend_world *world, ist_world_result *result)
{
    ist_backend_world swapped = *world;
    front_main = world->rank_main;
    swapped.rank_main = swap_table;
    return fake_backend()->world_run(&swapped, result);
}

static double now_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* What one case needs; `self` and numbers as the table would get them. */
typedef struct subject {
    ist_stream *stream;
    ist_event *event;
    void *memory;
    const ist_kernel *kernel;
    const ist_backend_ops *volatile ops;
} subject;

#define BENCH_CASE(name, bare, front)                                                              \
    static double bare_##name(const subject *on)                                                   \
    {                                                                                              \
        ist_status sum = IST_OK;                                                                   \
        double began = now_ns();                                                                   \
        for (uint64_t i = 0; i < call_count; ++i) {                                                \
            const ist_backend_ops *ops = on->ops;                                                  \
            sum |= bare;                                                                           \
        }                                                                                          \
        return sum == IST_OK ? (now_ns() - began) / (double)call_count : -1;                       \
    }                                                                                              \
    static double front_##name(const subject *on)                                                  \
    {                                                                                              \
        ist_status sum = IST_OK;                                                                   \
        double began = now_ns();                                                                   \
        for (uint64_t i = 0; i < call_count; ++i) {                                                \
            sum |= front;                                                                          \
        }                                                                                          \
        return sum == IST_OK ? (now_ns() - began) / (double)call_count : -1;                       \
    }

BENCH_CASE(stream_query, ops->stream_query(NULL, 1), ist_stream_query(on->stream))
BENCH_CASE(event_record, ops->event_record(NULL, 2, 1), ist_event_record(on->event, on->stream))
BENCH_CASE(fill, bare_fill_pair(ops, on->memory), ist_fill(on->stream, on->memory, 0, 64))
BENCH_CASE(launch, ops->launch(NULL, 1, on->kernel, 1, NULL, 0),
           ist_launch(on->stream, on->kernel, 1, NULL, 0))

typedef struct bench_case {
    const char *name;
    double (*bare)(const subject *on);
    double (*front)(const subject *on);
} bench_case;

static const bench_case cases[] = {
    {"stream_query", bare_stream_query, front_stream_query},
    {"event_record", bare_event_record, front_event_record},
    {"fill (2 slots)", bare_fill, front_fill},
    {"launch", bare_launch, front_launch},
};

static double best_of(double (*measure)(const subject *on), const subject *on)
{
    double best = measure(on);
    for (int i = 1; i < REPEATS; ++i) {
        double again = measure(on);
        best = again < best ? again : best;
    }
    return best;
}

static ist_status measure_all(ist_world *world, void *label)
{
    static const ist_kernel kernel = {.name = "bench"};
    subject on = {.kernel = &kernel, .ops = &quiet_ops};
    IST_RETURN_IF_ERROR(ist_stream_open(world, &on.stream));
    IST_RETURN_IF_ERROR(ist_event_open(world, &on.event));
    IST_RETURN_IF_ERROR(ist_mem_alloc(world, 4096, 0, &on.memory));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        double bare = best_of(cases[i].bare, &on);
        double front = best_of(cases[i].front, &on);
        printf("%-10s %-16s bare %6.2f ns   front %6.2f ns   +%5.2f ns   x%5.2f\n",
               (const char *)label, cases[i].name, bare, front, front - bare, front / bare);
    }
    ist_mem_free(world, on.memory);
    ist_event_close(on.event);
    return ist_stream_close(on.stream);
}

static void set_up_quiet(void)
{
    quiet_backend = *fake_backend();
    quiet_ops = *quiet_backend.ops;
    quiet_ops.stream_query = quiet_stream_query;
    quiet_ops.event_record = quiet_event_record;
    quiet_ops.mem_query = quiet_mem_query;
    quiet_ops.fill = quiet_fill;
    quiet_ops.launch = quiet_launch;
    quiet_backend.name = "quiet";
    quiet_backend.ops = &quiet_ops;
    quiet_backend.probe = quiet_probe;
    quiet_backend.world_run = quiet_world_run;
}

int main(int count, char **arguments)
{
    char plain[] = "front";
    char layered[] = "+fault";
    if (count > 1) {
        call_count = strtoull(arguments[1], NULL, 10) * 1000000u;
    }
    set_up_quiet();
    ist_world_desc desc = {.size = sizeof(desc), .backend = "quiet", .rank_count = 1};
    ist_status status = ist_backend_register(&quiet_backend);
    if (status == IST_OK) {
        status = ist_world_run(&desc, measure_all, plain, NULL);
    }
    /* Armed for a call that never comes: the layer is there and every call passes through it. */
    if (status == IST_OK) {
        status = ist_call_fault_arm("graph_launch", 1, 0, IST_ERR_SYSTEM);
    }
    if (status == IST_OK) {
        status = ist_world_run(&desc, measure_all, layered, NULL);
    }
    if (status != IST_OK) {
        fprintf(stderr, "bench_front: %s\n", ist_status_name(status));
    }
    return status == IST_OK ? 0 : 1;
}
