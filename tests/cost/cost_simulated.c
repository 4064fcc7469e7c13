/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a simulated world and an estimate are two answers from one set of constants: what the
 * simulator takes for a barrier, a put, an expert-parallel dispatch and combine is what the estimate
 * of the same cluster says, within TOLERANCE each and MEDIAN over all.
 * Method: worlds with links that share max-min, as the estimate has them, and blocks enough for all
 * peers; the slowest rank's time of one operation on an idle stream, by events. Clusters differ in
 * shape and in every constant; one takes its constants from a shipped profile. When kernels change
 * their steps, the counts in topology/cost_profile.c follow: make one step of a cluster slower at a
 * time, and divide.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <isthmus/backend.h>
#include <isthmus/device.h>
#include <isthmus/isthmus.h>
#include <isthmus/unstable/sim.h>
#include <isthmus/unstable/whatif.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 220u /* permille */
#define MEDIAN 60u
#define EXPERTS 64u
#define TOPK 8u
#define TOKENS_MAX 64u
#define RESULTS_MAX 512u
#define LINE_BYTES 1024u

static uint32_t results[RESULTS_MAX]; /* errors in permille */
static uint32_t result_count;

typedef struct scene {
    const char *cluster;
    uint32_t hidden, tokens;
    ist_ep_layout layout;
    uint32_t blocks;
    uint64_t slowest_ns[3]; /* barrier, dispatch, combine */
} scene;

typedef struct rig {
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    ist_ep_group *group;
    ist_ep_handle *handle;
    ist_event *begin, *end;
    ist_window *window;
    scene *at;
    uint8_t *memory;
    uint64_t combined, idx, weights, counters, received;
    uint32_t rank_count, local;
} rig;

static uint64_t page(uint64_t bytes)
{
    return (bytes + 4095u) & ~UINT64_C(4095);
}

static ist_tensor tensor(const rig *r, uint64_t offset, ist_dtype dtype, uint32_t dims, uint64_t d0,
                         uint64_t d1, uint64_t d2)
{
    bool window = dtype == IST_BF16;
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = dims,
                        .dims = {d0, d1, d2},
                        .window = window ? r->window : NULL,
                        .window_offset = window ? offset : 0,
                        .data = window ? NULL : r->memory + offset};
}

static ist_tensor received(const rig *r)
{
    bool em = r->at->layout == IST_EP_EXPERT_MAJOR;
    return em ? tensor(r, r->received, IST_BF16, 3, r->local, r->rank_count * TOKENS_MAX,
                       r->at->hidden)
              : tensor(r, r->received, IST_BF16, 3, r->rank_count, TOKENS_MAX, r->at->hidden);
}

static ist_status barrier(rig *r)
{
    return ist_comm_barrier(r->comm, r->stream);
}

static ist_status dispatch(rig *r)
{
    bool em = r->at->layout == IST_EP_EXPERT_MAJOR;
    uint64_t meta = r->counters + 4096;
    uint64_t slots = (uint64_t)r->rank_count * TOKENS_MAX;
    ist_tensor tokens = tensor(r, 0, IST_BF16, 2, r->at->tokens, r->at->hidden, 0);
    ist_tensor weights = tensor(r, r->weights, IST_F32, 2, r->at->tokens, TOPK, 0);
    ist_tensor rows = received(r);
    ist_tensor counters = tensor(r, r->counters, IST_I32, 1, r->local, 0, 0);
    ist_tensor out_weights = tensor(r, meta, IST_F32, 3, r->rank_count, TOKENS_MAX, TOPK);
    ist_tensor out_idx =
        tensor(r, meta + slots * TOPK * 4u, IST_I32, 3, r->rank_count, TOKENS_MAX, TOPK);
    ist_ep_dispatch_in in = {
        .size = sizeof(in), .tokens = &tokens, .topk_weights = em ? NULL : &weights};
    ist_ep_dispatch_out out = {.size = sizeof(out),
                               .tokens = &rows,
                               .topk_weights = em ? NULL : &out_weights,
                               .topk_idx = em ? NULL : &out_idx};
    ist_ep_layout_info info = {.size = sizeof(info), .expert_counters = em ? &counters : NULL};
    return ist_ep_dispatch(r->handle, &in, &out, &info, NULL, r->stream);
}

static ist_status combine(rig *r)
{
    bool em = r->at->layout == IST_EP_EXPERT_MAJOR;
    ist_tensor rows = received(r);
    ist_tensor back = tensor(r, r->combined, IST_BF16, 2, r->at->tokens, r->at->hidden, 0);
    ist_tensor weights = tensor(r, r->weights, IST_F32, 2, r->at->tokens, TOPK, 0);
    ist_ep_combine_in in = {.size = sizeof(in), .tokens = &rows};
    ist_ep_combine_out out = {
        .size = sizeof(out), .tokens = &back, .topk_weights = em ? &weights : NULL};
    return ist_ep_combine(r->handle, &in, &out, NULL, r->stream);
}

/* Third of three on an idle stream; the first ones warm up. The clock also sees the host's two calls
 * after the first record. */
static ist_status measure(rig *r, uint32_t which, ist_status (*what)(rig *r))
{
    uint64_t elapsed_ns = 0;
    for (uint32_t i = 0; i < 3; i++) {
        IST_RETURN_IF_ERROR(ist_comm_barrier(r->comm, r->stream));
        IST_RETURN_IF_ERROR(ist_stream_sync(r->stream, 0));
        IST_RETURN_IF_ERROR(ist_event_record(r->begin, r->stream));
        IST_RETURN_IF_ERROR(what(r));
        IST_RETURN_IF_ERROR(ist_event_record(r->end, r->stream));
        IST_RETURN_IF_ERROR(ist_stream_sync(r->stream, 0));
        IST_RETURN_IF_ERROR(ist_event_elapsed(r->begin, r->end, &elapsed_ns));
    }
    if (elapsed_ns > r->at->slowest_ns[which]) {
        r->at->slowest_ns[which] = elapsed_ns;
    }
    return IST_OK;
}

static void routing_draw(uint32_t rank, uint32_t tokens, int32_t *idx)
{
    uint64_t state = UINT64_C(88172645463325252) + rank;
    for (uint32_t i = 0; i < tokens * TOPK; i++) {
        bool fresh = false;
        while (!fresh) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            idx[i] = (int32_t)(state % EXPERTS);
            fresh = true;
            for (uint32_t j = i - i % TOPK; j < i; j++) {
                fresh = fresh && idx[j] != idx[i];
            }
        }
    }
}

static ist_status routing_upload(rig *r)
{
    int32_t idx[TOKENS_MAX * TOPK];
    float weights[TOKENS_MAX * TOPK];
    uint32_t count = r->at->tokens * TOPK;
    routing_draw(ist_world_rank(r->world), r->at->tokens, idx);
    for (uint32_t i = 0; i < count; i++) {
        weights[i] = 1.0f / (float)TOPK;
    }
    IST_RETURN_IF_ERROR(
        ist_copy_to_device(r->stream, r->memory + r->idx, idx, count * sizeof(idx[0])));
    return ist_copy_to_device(r->stream, r->memory + r->weights, weights,
                              count * sizeof(weights[0]));
}

static ist_status memory_open(rig *r)
{
    uint64_t rows = page((uint64_t)TOKENS_MAX * r->at->hidden * 2u);
    uint64_t small = page((uint64_t)TOKENS_MAX * TOPK * r->rank_count * 8u) + 4096;
    uint64_t taken = (uint64_t)r->local * r->rank_count * TOKENS_MAX * r->at->hidden * 2u;
    void *memory = NULL;
    r->combined = rows;
    r->idx = 2 * rows;
    r->weights = r->idx + small;
    r->counters = r->weights + small;
    r->received = r->counters + 2 * small;
    uint64_t bytes = r->received + page(taken);
    IST_RETURN_IF_ERROR(ist_mem_alloc(r->world, bytes, IST_MEM_SYMMETRIC, &memory));
    r->memory = memory;
    return ist_window_open(r->comm, memory, bytes, &r->window);
}

static ist_status rig_open(rig *r)
{
    ist_comm_desc comm = {.size = sizeof(comm), .fault_tolerant = 1};
    IST_RETURN_IF_ERROR(ist_comm_open(r->world, &comm, &r->comm));
    IST_RETURN_IF_ERROR(ist_stream_open(r->world, &r->stream));
    IST_RETURN_IF_ERROR(ist_event_open(r->world, &r->begin));
    IST_RETURN_IF_ERROR(ist_event_open(r->world, &r->end));
    IST_RETURN_IF_ERROR(memory_open(r));
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = EXPERTS,
                              .tokens_per_rank_max = TOKENS_MAX,
                              .topk_max = TOPK,
                              .token_bytes_max = r->at->hidden * 2u,
                              .zero_copy = IST_EP_ZERO_COPY_ON};
    return ist_ep_group_open(r->comm, &desc, &r->group);
}

static ist_status rig_close(rig *r)
{
    IST_RETURN_IF_ERROR(ist_ep_handle_close(r->handle));
    IST_RETURN_IF_ERROR(ist_ep_group_close(r->group));
    IST_RETURN_IF_ERROR(ist_window_close(r->window));
    IST_RETURN_IF_ERROR(ist_mem_free(r->world, r->memory));
    IST_RETURN_IF_ERROR(ist_event_close(r->begin));
    IST_RETURN_IF_ERROR(ist_event_close(r->end));
    IST_RETURN_IF_ERROR(ist_stream_close(r->stream));
    return ist_comm_close(r->comm);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    rig r = {.world = world, .at = arg, .rank_count = ist_world_rank_count(world)};
    r.local = EXPERTS / r.rank_count;
    IST_RETURN_IF_ERROR(rig_open(&r));
    IST_RETURN_IF_ERROR(routing_upload(&r));
    ist_tensor idx = tensor(&r, r.idx, IST_I32, 2, r.at->tokens, TOPK, 0);
    IST_RETURN_IF_ERROR(ist_ep_handle_open(r.group, r.at->layout, &idx, r.stream, &r.handle));
    IST_RETURN_IF_ERROR(measure(&r, 0, barrier));
    IST_RETURN_IF_ERROR(measure(&r, 1, dispatch));
    IST_RETURN_IF_ERROR(measure(&r, 2, combine));
    ist_ep_group_info info = {.size = sizeof(info)};
    IST_RETURN_IF_ERROR(ist_ep_group_query(r.group, &info));
    r.at->blocks = info.block_count;
    return rig_close(&r);
}

static uint64_t estimate_ps(const char *cluster, const ist_op_desc *op)
{
    ist_group *group = NULL;
    ist_estimate estimate = {.size = sizeof(estimate)};
    ist_group_desc desc = {.size = sizeof(desc), .cluster = cluster};
    assert_int_equal(ist_group_begin(&desc, &group), IST_OK);
    assert_int_equal(ist_group_add(group, op), IST_OK);
    assert_int_equal(ist_group_end(group, IST_GROUP_SIMULATE, &estimate), IST_OK);
    return estimate.total_ps;
}

static void compare(const char *cluster, const char *what, uint64_t simulated_ps,
                    uint64_t estimated_ps)
{
    uint64_t off =
        simulated_ps > estimated_ps ? simulated_ps - estimated_ps : estimated_ps - simulated_ps;
    uint64_t permille = off * 1000 / simulated_ps;
    print_message("%-28.28s %-28s %8.2f us, estimate %8.2f us, %3u permille\n", cluster, what,
                  (double)simulated_ps / 1e6, (double)estimated_ps / 1e6, (unsigned)permille);
    if (permille > TOLERANCE) {
        fail_msg("%s on %s: %u permille off", what, cluster, (unsigned)permille);
    }
    assert_true(result_count < RESULTS_MAX);
    results[result_count++] = (uint32_t)permille;
}

static void compare_scene(const scene *at, uint64_t host_call_ps)
{
    bool em = at->layout == IST_EP_EXPERT_MAJOR;
    ist_op_desc ops[3] = {{.size = sizeof(ops[0]), .kind = IST_OP_BARRIER},
                          {.size = sizeof(ops[0]), .kind = IST_OP_EP_DISPATCH},
                          {.size = sizeof(ops[0]), .kind = IST_OP_EP_COMBINE}};
    static const char *const names[] = {"barrier", "dispatch", "combine"};
    for (uint32_t i = 0; i < 3; i++) {
        char what[64];
        if (i > 0) {
            ops[i].algorithm = IST_ALGORITHM_LL;
            ops[i].tokens = at->tokens;
            ops[i].row_bytes = at->hidden * 2u;
            ops[i].topk = TOPK;
            ops[i].experts = EXPERTS;
            ops[i].block_count = at->blocks;
            ops[i].routing = i == 2 && em ? IST_ROUTING_EVERY : IST_ROUTING_RANDOM;
        }
        (void)snprintf(what, sizeof(what), "%s %s %u x %u", names[i], em ? "em" : "rm", at->tokens,
                       at->hidden);
        compare(at->cluster, what, at->slowest_ns[i] * 1000 - 2 * host_call_ps,
                estimate_ps(at->cluster, &ops[i]));
    }
}

static void run_scene(const char *cluster, uint32_t ranks, uint32_t tokens, uint32_t hidden,
                      ist_ep_layout layout, uint64_t host_call_ps)
{
    scene at = {.cluster = cluster, .hidden = hidden, .tokens = tokens, .layout = layout};
    ist_sim_desc sim = {.size = sizeof(sim), .links = IST_LINKS_MAX_MIN};
    ist_world_desc desc = {.size = sizeof(desc),
                           .rank_count = ranks,
                           .backend = "sim",
                           .cluster = cluster,
                           .sim = &sim};
    assert_int_equal(ist_world_run(&desc, rank_main, &at, NULL), IST_OK);
    compare_scene(&at, host_call_ps);
}

static void run_cluster(const char *cluster, uint32_t ranks, uint64_t host_call_ps)
{
    static const uint32_t tokens[] = {1, 16, 64};
    for (uint32_t i = 0; i < 3; i++) {
        run_scene(cluster, ranks, tokens[i], 2048, IST_EP_EXPERT_MAJOR, host_call_ps);
        if (i != 1) {
            run_scene(cluster, ranks, tokens[i], 4096, IST_EP_RANK_MAJOR, host_call_ps);
        }
    }
}

static void test_load_store(void **state)
{
    (void)state;
    run_cluster("1x2,sms=32", 2, 200000);
    run_cluster("1x4,sms=16,nvlink_rate=200GB/s", 4, 200000);
    run_cluster("1x8,sms=32,launch=5us,sync=60ns,atomic=300ns", 8, 200000);
}

static void test_network(void **state)
{
    (void)state;
    run_cluster("2x4,sms=32", 8, 200000);
    run_cluster("4x2,sms=16,nic_rate=200Gb/s,nic_latency=4us", 8, 200000);
    run_cluster("4x1,sms=32,host_call=1us", 4, 1000000);
}

/* The constants of a measured machine, in both. */
static void test_profile(void **state)
{
    ist_profile *profile = NULL;
    char line[LINE_BYTES];
    (void)state;
    assert_int_equal(ist_profile_open("h200", &profile), IST_OK);
    assert_int_equal(ist_profile_cluster(profile, "1x4", line, sizeof(line), NULL), IST_OK);
    ist_profile_close(profile);
    assert_non_null(strstr(line, "host_call=1285575ps"));
    run_cluster(line, 4, 1285575);
}

/* ------------------------------------------------------------------------------------ put */

#define PUT_ROUNDS 8u
#define PUT_BYTES_MAX (1u << 20)

typedef struct put_args {
    const ist_dev_comm *dev;
    uint64_t *took_ns;
    uint64_t bytes, base;
    uint32_t window, peer, first, reserved;
} put_args;

/* Ping-pong: a put is under way half of a round. */
IST_KERNEL(cost_put, put_args)
{
    ist_gin_action raise = {IST_GIN_WEAK_SIGNAL_INC, 0, 0};
    uint64_t begin = ist_clock_ns(coop);
    for (uint32_t i = 0; i < PUT_ROUNDS; i++) {
        if (args->first != 0) {
            ist_gin_put(coop, args->dev, 0, args->peer, args->window, PUT_BYTES_MAX, args->window,
                        0, args->bytes, raise, IST_GIN_NO_COUNTER);
        }
        (void)ist_gin_signal_wait(coop, args->dev, 0, 0, args->base + i + 1,
                                  begin + UINT64_C(1000000000));
        if (args->first == 0) {
            ist_gin_put(coop, args->dev, 0, args->peer, args->window, PUT_BYTES_MAX, args->window,
                        0, args->bytes, raise, IST_GIN_NO_COUNTER);
        }
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, args->took_ns, ist_clock_ns(coop) - begin, IST_RELAXED,
                      IST_SCOPE_DEVICE);
    }
}

static const uint32_t put_bytes[] = {8, 4096, 65536, PUT_BYTES_MAX};
static uint64_t put_ns[4];

static ist_status put_rank(ist_world *world, void *arg)
{
    rig r = {.world = world, .rank_count = ist_world_rank_count(world)};
    const ist_dev_comm *dev = NULL;
    void *memory = NULL;
    uint64_t *took = NULL;
    ist_comm_desc desc = {.size = sizeof(desc)};
    (void)arg;
    IST_RETURN_IF_ERROR(ist_comm_open(world, &desc, &r.comm));
    IST_RETURN_IF_ERROR(ist_stream_open(world, &r.stream));
    IST_RETURN_IF_ERROR(ist_mem_alloc(world, 2 * PUT_BYTES_MAX, IST_MEM_SYMMETRIC, &memory));
    IST_RETURN_IF_ERROR(ist_mem_alloc(world, 8, 0, (void **)&took));
    IST_RETURN_IF_ERROR(ist_window_open(r.comm, memory, 2 * PUT_BYTES_MAX, &r.window));
    IST_RETURN_IF_ERROR(ist_dev_comm_open(r.comm, 0, 1, 1, 0, 0, &dev));
    for (uint32_t i = 0; i < 4; i++) {
        put_args args = {.dev = dev,
                         .took_ns = took,
                         .bytes = put_bytes[i],
                         .base = (uint64_t)i * PUT_ROUNDS,
                         .window = ist_window_index(r.window),
                         .peer = 1 - ist_world_rank(world),
                         .first = ist_world_rank(world) == 0};
        IST_RETURN_IF_ERROR(ist_comm_barrier(r.comm, r.stream));
        IST_RETURN_IF_ERROR(ist_launch(r.stream, &ist_kernel_cost_put, 1, &args, sizeof(args)));
        IST_RETURN_IF_ERROR(ist_copy_to_host(r.stream, &put_ns[i], took, 8));
        put_ns[i] /= 2 * PUT_ROUNDS;
    }
    /* The last put is rank 1's; rank 0 has seen it land. */
    IST_RETURN_IF_ERROR(ist_comm_barrier(r.comm, r.stream));
    IST_RETURN_IF_ERROR(ist_stream_sync(r.stream, 0));
    IST_RETURN_IF_ERROR(ist_dev_comm_close(r.comm, dev));
    IST_RETURN_IF_ERROR(ist_window_close(r.window));
    IST_RETURN_IF_ERROR(ist_mem_free(world, memory));
    IST_RETURN_IF_ERROR(ist_mem_free(world, took));
    IST_RETURN_IF_ERROR(ist_stream_close(r.stream));
    return ist_comm_close(r.comm);
}

static void test_put(void **state)
{
    static const char *const clusters[] = {"2x1", "2x1,nic_rate=100Gb/s,nic_latency=5us,sync=90ns"};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        ist_sim_desc sim = {.size = sizeof(sim), .links = IST_LINKS_MAX_MIN};
        ist_world_desc desc = {.size = sizeof(desc),
                               .rank_count = 2,
                               .backend = "sim",
                               .cluster = clusters[i],
                               .sim = &sim};
        assert_int_equal(ist_world_run(&desc, put_rank, NULL, NULL), IST_OK);
        for (uint32_t j = 0; j < 4; j++) {
            char what[32];
            ist_op_desc op = {.size = sizeof(op), .kind = IST_OP_PUT, .dst = 1};
            op.bytes = put_bytes[j];
            (void)snprintf(what, sizeof(what), "put %u", put_bytes[j]);
            compare(clusters[i], what, put_ns[j] * 1000, estimate_ps(clusters[i], &op));
        }
    }
}

/* ---- copies inside a GPU ----------------------------------------------------------------------- */

#define COPY_BYTES_MAX (UINT64_C(1) << 26)

static const uint64_t copy_bytes[] = {1024, 65536, 1048576, COPY_BYTES_MAX};
static uint64_t copy_ns[4];

/* One at a time: what waits behind another copy hides its launch. */
static ist_status copy_rank(ist_world *world, void *arg)
{
    ist_stream *stream = NULL;
    uint8_t *memory = NULL;
    (void)arg;
    IST_RETURN_IF_ERROR(ist_stream_open(world, &stream));
    IST_RETURN_IF_ERROR(ist_mem_alloc(world, 2 * COPY_BYTES_MAX, 0, (void **)&memory));
    IST_RETURN_IF_ERROR(ist_fill(stream, memory, 1, 2 * COPY_BYTES_MAX));
    IST_RETURN_IF_ERROR(ist_stream_sync(stream, 0));
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t begin_ns = ist_world_clock_ns(world);
        IST_RETURN_IF_ERROR(ist_copy(stream, memory, memory + COPY_BYTES_MAX, copy_bytes[i]));
        IST_RETURN_IF_ERROR(ist_stream_sync(stream, 0));
        copy_ns[i] = ist_world_clock_ns(world) - begin_ns;
    }
    IST_RETURN_IF_ERROR(ist_mem_free(world, memory));
    return ist_stream_close(stream);
}

/* Without the calls of the host, which an estimate does not have. */
static void test_copy(void **state)
{
    static const char *const clusters[] = {"1x1,host_call=0ns",
                                           "1x1,host_call=0ns,launch=4.2us,hbm_rate=3TB/s"};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        ist_world_desc desc = {
            .size = sizeof(desc), .rank_count = 1, .backend = "sim", .cluster = clusters[i]};
        assert_int_equal(ist_world_run(&desc, copy_rank, NULL, NULL), IST_OK);
        for (uint32_t j = 0; j < 4; j++) {
            char what[32];
            const ist_op_desc op = {
                .size = sizeof(op), .kind = IST_OP_COPY, .bytes = copy_bytes[j]};
            (void)snprintf(what, sizeof(what), "copy %u", (unsigned)copy_bytes[j]);
            compare(clusters[i], what, copy_ns[j] * 1000, estimate_ps(clusters[i], &op));
        }
    }
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void test_median(void **state)
{
    (void)state;
    qsort(results, result_count, sizeof(results[0]), by_size);
    assert_true(result_count > 0);
    print_message("%u comparisons: median %u permille, 90th percentile %u, largest %u\n",
                  result_count, results[result_count / 2], results[result_count * 9 / 10],
                  results[result_count - 1]);
    assert_true(results[result_count / 2] <= MEDIAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_store), cmocka_unit_test(test_network),
        cmocka_unit_test(test_profile),    cmocka_unit_test(test_put),
        cmocka_unit_test(test_copy),       cmocka_unit_test(test_median),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
