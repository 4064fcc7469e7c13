/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many schedules a second: the small world of bench_world (4 ranks, 8 tokens, hidden 64, 8
 * experts, top-2, one dispatch and one combine, everything opened and closed each time), explored with
 * all detectors. Figures are of processor time; the result of every combine is checked.
 *
 * bench_explore [schedules] [scheduler] [first seed] [detectors off, hex] [cluster line] [rounds]
 */
#include <isthmus/isthmus.h>
#include <isthmus/unstable/explore.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS 4u
#define TOKENS 8u
#define HIDDEN 64u
#define EXPERTS 8u
#define TOPK 2u
#define LOCAL (EXPERTS / RANKS)

/* Dispatches and combines of each world. */
static uint32_t rounds = 1;

#define TRY(expression)                                                                            \
    do {                                                                                           \
        ist_status try_status = (expression);                                                      \
        if (try_status < 0) {                                                                      \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

static ist_tensor tensor(void *data, ist_dtype dtype, uint32_t dims, uint64_t d0, uint64_t d1,
                         uint64_t d2)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dims,
                        .dims = {d0, d1, d2},
                        .data = data};
}

/* Device memory of one rank, carved from one allocation. */
typedef struct buffers {
    uint8_t *base;
    void *tokens, *idx, *weights, *received, *counters, *combined;
} buffers;

static ist_status open_buffers(ist_world *world, buffers *b)
{
    const size_t row = HIDDEN * 2u;
    const size_t received = (size_t)LOCAL * RANKS * TOKENS * row;
    void *base = NULL;
    TRY(ist_mem_alloc(world, received + 16384, IST_MEM_SYMMETRIC, &base));
    b->base = base;
    b->tokens = b->base;
    b->combined = b->base + 4096;
    b->idx = b->base + 8192;
    b->weights = b->base + 9216;
    b->counters = b->base + 10240;
    b->received = b->base + 16384;
    return IST_OK;
}

static ist_status step(ist_ep_handle *handle, buffers *b, ist_stream *stream)
{
    ist_tensor tokens = tensor(b->tokens, IST_BF16, 2, TOKENS, HIDDEN, 0);
    ist_tensor received = tensor(b->received, IST_BF16, 3, LOCAL, RANKS * TOKENS, HIDDEN);
    ist_tensor counters = tensor(b->counters, IST_I32, 1, LOCAL, 0, 0);
    ist_tensor combined = tensor(b->combined, IST_BF16, 2, TOKENS, HIDDEN, 0);
    ist_tensor weights = tensor(b->weights, IST_F32, 2, TOKENS, TOPK, 0);
    ist_ep_dispatch_in in = {.size = sizeof(in), .tokens = &tokens};
    ist_ep_dispatch_out out = {.size = sizeof(out), .tokens = &received};
    ist_ep_layout_info info = {.size = sizeof(info), .expert_counters = &counters};
    ist_ep_combine_in back = {.size = sizeof(back), .tokens = &received};
    ist_ep_combine_out result = {
        .size = sizeof(result), .tokens = &combined, .topk_weights = &weights};
    TRY(ist_ep_dispatch(handle, &in, &out, &info, NULL, stream));
    TRY(ist_ep_combine(handle, &back, &result, NULL, stream));
    return ist_stream_sync(stream, 0);
}

static ist_status fill_and_run(ist_world *world, ist_ep_group *group, ist_stream *stream,
                               buffers *b)
{
    uint16_t rows[TOKENS * HIDDEN], back[TOKENS * HIDDEN];
    int32_t idx[TOKENS * TOPK];
    float weights[TOKENS * TOPK];
    uint32_t rank = ist_world_rank(world);
    for (uint32_t i = 0; i < TOKENS * HIDDEN; ++i) {
        rows[i] = (uint16_t)(0x3f80u + (i * 7u + rank) % 256u);
    }
    for (uint32_t i = 0; i < TOKENS; ++i) {
        idx[2 * i] = (int32_t)((i + rank) % EXPERTS);
        idx[2 * i + 1] = (int32_t)((i + rank + 3) % EXPERTS);
        weights[2 * i] = weights[2 * i + 1] = 0.5f;
    }
    TRY(ist_copy_to_device(stream, b->tokens, rows, sizeof(rows)));
    TRY(ist_copy_to_device(stream, b->idx, idx, sizeof(idx)));
    TRY(ist_copy_to_device(stream, b->weights, weights, sizeof(weights)));
    ist_tensor topk = tensor(b->idx, IST_I32, 2, TOKENS, TOPK, 0);
    ist_ep_handle *handle = NULL;
    TRY(ist_ep_handle_open(group, IST_EP_EXPERT_MAJOR, &topk, stream, &handle));
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < rounds && status == IST_OK; ++i) {
        status = step(handle, b, stream);
    }
    if (status == IST_OK) {
        status = ist_copy_to_host(stream, back, b->combined, sizeof(back));
    }
    if (status == IST_OK && memcmp(rows, back, sizeof(rows)) != 0) {
        status = IST_ERR_INTERNAL;
    }
    ist_status closed = ist_ep_handle_close(handle);
    return status == IST_OK ? closed : status;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    ist_ep_group *group = NULL;
    buffers b = {0};
    (void)arg;
    TRY(ist_comm_open(world, &(ist_comm_desc){.size = sizeof(ist_comm_desc), .fault_tolerant = 1},
                      &comm));
    TRY(ist_stream_open(world, &stream));
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = EXPERTS,
                              .tokens_per_rank_max = TOKENS,
                              .topk_max = TOPK,
                              .token_bytes_max = HIDDEN * 2u};
    TRY(ist_ep_group_open(comm, &desc, &group));
    TRY(open_buffers(world, &b));
    TRY(fill_and_run(world, group, stream, &b));
    TRY(ist_mem_free(world, b.base));
    TRY(ist_ep_group_close(group));
    TRY(ist_stream_close(stream));
    return ist_comm_close(comm);
}

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int by_value(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static uint32_t distinct(uint64_t *values, uint32_t count)
{
    uint32_t found = count > 0;
    qsort(values, count, sizeof(*values), by_value);
    for (uint32_t i = 1; i < count; ++i) {
        found += values[i] != values[i - 1];
    }
    return found;
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 5000;
    ist_explore_desc explore = {.size = sizeof(explore), .scheduler = IST_SCHEDULER_RANDOM};
    if (argc > 2 && ist_scheduler_parse(argv[2], &explore) != IST_OK) {
        return 2;
    }
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    explore.detectors_off = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 16) : 0;
    ist_world_desc desc = {.size = sizeof(desc),
                           .rank_count = RANKS,
                           .cluster = argc > 5 && argv[5][0] != '\0' ? argv[5] : NULL};
    rounds = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 1;
    uint64_t *digests = calloc(count, sizeof(*digests));
    uint64_t ops = 0, steps = 0, points = 0, switches = 0;
    ist_explore_report report = {.size = sizeof(report)};
    double began = seconds();
    for (uint32_t i = 0; digests != NULL && i < count; ++i) {
        desc.seed = first + i;
        ist_status status = ist_explore_run(&desc, rank_main, NULL, &explore, &report);
        if (status != IST_OK) {
            (void)fprintf(stderr, "seed %" PRIu64 ": %s\n%s", desc.seed, ist_status_name(status),
                          report.finding.text);
            free(digests);
            return 1;
        }
        digests[i] = report.digest;
        ops += report.device_op_count;
        steps += report.steps;
        points += report.choice_points;
        switches += report.switches;
    }
    double took = seconds() - began;
    (void)printf(
        "%u schedules in %.3f s: %.0f schedules/s, %.2f M steps/s, %.2f M device operations/s\n"
        "each: %.0f steps, %.0f device operations, %.0f choices, %.0f switches; %u distinct "
        "digests\n",
        count, took, count / took, (double)steps / took * 1e-6, (double)ops / took * 1e-6,
        (double)steps / count, (double)ops / count, (double)points / count,
        (double)switches / count, distinct(digests, count));
    free(digests);
    return 0;
}
