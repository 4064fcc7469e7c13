/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's own protocols under every schedule: barrier, agreement, clean, and the low-latency
 * dispatch and combine, on few ranks. Method: the exhaustive scheduler runs each to the end; nothing
 * is found in any execution, and the results are right in all of them.
 */
#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RUNS_MAX 100000u

typedef enum protocol {
    BARRIER,
    BARRIER_TWICE,
    AGREE,
    CLEAN,
    MASK_CLEAN_BARRIER,
    EP_ONCE
} protocol;

typedef struct scenario {
    protocol what;
    uint32_t ranks;
    const char *name;
} scenario;

/* ---- communicators --------------------------------------------------------------------------- */

static ist_status masked_and_back(ist_world *world, ist_comm *comm, ist_stream *stream)
{
    uint64_t only_me = 1;
    if (ist_world_rank(world) == 0) {
        IST_TEST_PASS_ON(ist_comm_mask_update(comm, &only_me, stream));
    }
    IST_TEST_PASS_ON(ist_comm_clean(comm, stream));
    IST_TEST_PASS_ON(ist_comm_barrier(comm, stream));
    return ist_stream_sync(stream, 0);
}

/* ---- expert parallelism: one token of each rank to the other and back ----------------------------- */

#define HIDDEN 8u

static ist_tensor tensor(void *data, ist_dtype dtype, uint32_t count, uint64_t a, uint64_t b,
                         uint64_t c)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = count,
                        .dims = {a, b, c},
                        .data = data};
}

static ist_status there_and_back(ist_ep_handle *handle, uint8_t *memory, uint32_t ranks,
                                 ist_stream *stream)
{
    ist_tensor tokens = tensor(memory, IST_BF16, 2, 1, HIDDEN, 0);
    ist_tensor weights = tensor(memory + 512, IST_F32, 2, 1, 1, 0);
    ist_tensor counters = tensor(memory + 768, IST_I32, 1, 1, 0, 0);
    ist_tensor combined = tensor(memory + 1024, IST_BF16, 2, 1, HIDDEN, 0);
    ist_tensor received = tensor(memory + 4096, IST_BF16, 3, 1, ranks, HIDDEN);
    ist_ep_dispatch_in in = {.size = sizeof(in), .tokens = &tokens};
    ist_ep_dispatch_out out = {.size = sizeof(out), .tokens = &received};
    ist_ep_layout_info info = {.size = sizeof(info), .expert_counters = &counters};
    ist_ep_combine_in back = {.size = sizeof(back), .tokens = &received};
    ist_ep_combine_out result = {
        .size = sizeof(result), .tokens = &combined, .topk_weights = &weights};
    IST_TEST_PASS_ON(ist_ep_dispatch(handle, &in, &out, &info, NULL, stream));
    IST_TEST_PASS_ON(ist_ep_combine(handle, &back, &result, NULL, stream));
    return ist_stream_sync(stream, 0);
}

static ist_status one_round(ist_ep_group *group, uint8_t *memory, uint32_t rank, uint32_t ranks,
                            ist_stream *stream)
{
    uint16_t row[HIDDEN], back[HIDDEN];
    int32_t expert = (int32_t)((rank + 1u) % ranks);
    float weight = 1.0f;
    for (uint32_t i = 0; i < HIDDEN; ++i) {
        row[i] = (uint16_t)(0x3f80u + 16u * rank + i);
    }
    IST_TEST_PASS_ON(ist_copy_to_device(stream, memory, row, sizeof(row)));
    IST_TEST_PASS_ON(ist_copy_to_device(stream, memory + 256, &expert, sizeof(expert)));
    IST_TEST_PASS_ON(ist_copy_to_device(stream, memory + 512, &weight, sizeof(weight)));
    ist_tensor topk = tensor(memory + 256, IST_I32, 2, 1, 1, 0);
    ist_ep_handle *handle = NULL;
    IST_TEST_PASS_ON(ist_ep_handle_open(group, IST_EP_EXPERT_MAJOR, &topk, stream, &handle));
    IST_TEST_PASS_ON(there_and_back(handle, memory, ranks, stream));
    IST_TEST_PASS_ON(ist_copy_to_host(stream, back, memory + 1024, sizeof(back)));
    IST_TEST_PASS_ON(ist_ep_handle_close(handle));
    return memcmp(row, back, sizeof(row)) == 0 ? IST_OK : IST_ERR_INTERNAL;
}

static ist_status expert_parallel(ist_world *world, ist_comm *comm, ist_stream *stream)
{
    ist_ep_group *group = NULL;
    void *memory = NULL;
    uint32_t ranks = ist_world_rank_count(world);
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = ranks,
                              .tokens_per_rank_max = 1,
                              .topk_max = 1,
                              .token_bytes_max = HIDDEN * 2u};
    IST_TEST_PASS_ON(ist_ep_group_open(comm, &desc, &group));
    IST_TEST_PASS_ON(ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &memory));
    IST_TEST_PASS_ON(one_round(group, memory, ist_world_rank(world), ranks, stream));
    IST_TEST_PASS_ON(ist_mem_free(world, memory));
    return ist_ep_group_close(group);
}

/* ---- searching ------------------------------------------------------------------------------- */

static ist_status run_protocol(const scenario *which, ist_world *world, ist_comm *comm,
                               ist_stream *stream)
{
    switch (which->what) {
    case BARRIER: return ist_comm_barrier(comm, stream);
    case BARRIER_TWICE:
        IST_TEST_PASS_ON(ist_comm_barrier(comm, stream));
        return ist_comm_barrier(comm, stream);
    case AGREE: return ist_comm_agree(comm, stream);
    case CLEAN: return ist_comm_clean(comm, stream);
    case MASK_CLEAN_BARRIER: return masked_and_back(world, comm, stream);
    case EP_ONCE: return expert_parallel(world, comm, stream);
    }
    return IST_ERR_INTERNAL;
}

static ist_status scenario_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    IST_TEST_PASS_ON(ist_comm_open(world, &desc, &comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(run_protocol(arg, world, comm, stream));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    return ist_comm_close(comm);
}

static const scenario scenarios[] = {
    {BARRIER, 2, "barrier, 2 ranks"},
    {BARRIER, 3, "barrier, 3 ranks"},
    {BARRIER_TWICE, 2, "two barriers, 2 ranks"},
    {AGREE, 2, "agreement, 2 ranks"},
    {AGREE, 3, "agreement, 3 ranks"},
    {CLEAN, 2, "clean, 2 ranks"},
    {MASK_CLEAN_BARRIER, 2, "mask, clean, barrier, 2 ranks"},
    {EP_ONCE, 2, "dispatch and combine, 2 ranks"},
};

static void every_schedule_is_clean(void **state)
{
    (void)state;
    uint32_t failures = 0;
    for (uint32_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); ++i) {
        scenario copy = scenarios[i];
        ist_world_desc desc = {.size = sizeof(desc), .rank_count = copy.ranks};
        ist_explore_all_desc all = {.size = sizeof(all), .run_count_max = RUNS_MAX};
        ist_explore_all_result result = {.size = sizeof(result)};
        ist_status status = ist_explore_all(&desc, scenario_main, &copy, &all, &result);
        print_message("%-32s %6llu executions, %6llu runs%s\n", copy.name,
                      (unsigned long long)result.executions, (unsigned long long)result.runs,
                      result.complete ? "" : ", not complete");
        if (status != IST_OK || !result.complete) {
            print_error("%s: %s\n%s", copy.name, ist_status_name(status),
                        result.first.finding.text);
            ++failures;
        }
    }
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_schedule_is_clean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
