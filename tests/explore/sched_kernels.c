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
#include <time.h>

#include <cmocka.h>

/* From the command line: one scenario alone, and how many runs are enough; 0: as the table says. */
static uint32_t only = UINT32_MAX;
static uint32_t runs_max = 0;

typedef enum protocol {
    BARRIER,
    AGREE,
    CLEAN,
    MASK_CLEAN_BARRIER,
    EXPERTS,
    REDUCED /* EXPERTS, whose ranks sum their own rows */
} protocol;

typedef struct scenario {
    const char *name;
    protocol what;
    uint32_t ranks;
    const char *cluster; /* NULL: one node, all by load and store; "2x1": all by the network */
    uint32_t rounds;
    uint32_t blocks; /* of an expert-parallel operation; 0: 1 */
    ist_ep_layout layout;
    uint32_t staged;   /* 1: in two halves */
    uint32_t runs_max; /* 0: the search must be complete */
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

typedef struct exchange {
    const scenario *which;
    ist_ep_handle *handle;
    uint8_t *memory;
    ist_stream *stream;
} exchange;

static ist_status dispatch(const exchange *x)
{
    int by_rank = x->which->layout == IST_EP_RANK_MAJOR;
    uint32_t ranks = x->which->ranks;
    ist_tensor tokens = tensor(x->memory, IST_BF16, 2, 1, HIDDEN, 0);
    ist_tensor weights = tensor(x->memory + 512, IST_F32, 2, 1, 1, 0);
    ist_tensor counters = tensor(x->memory + 768, IST_I32, 1, by_rank ? ranks : 1, 0, 0);
    ist_tensor ids = tensor(x->memory + 1280, IST_I32, 3, ranks, 1, 1);
    ist_tensor taken = tensor(x->memory + 1536, IST_F32, 3, ranks, 1, 1);
    ist_tensor received = by_rank ? tensor(x->memory + 4096, IST_BF16, 3, ranks, 1, HIDDEN)
                                  : tensor(x->memory + 4096, IST_BF16, 3, 1, ranks, HIDDEN);
    ist_ep_dispatch_in in = {
        .size = sizeof(in), .tokens = &tokens, .topk_weights = by_rank ? &weights : NULL};
    ist_ep_dispatch_out out = {.size = sizeof(out),
                               .tokens = &received,
                               .topk_weights = by_rank ? &taken : NULL,
                               .topk_idx = by_rank ? &ids : NULL};
    ist_ep_layout_info info = {.size = sizeof(info), .expert_counters = by_rank ? NULL : &counters};
    ist_ep_op_desc how = {.size = sizeof(how), .send_only = x->which->staged};
    IST_TEST_PASS_ON(ist_ep_dispatch(x->handle, &in, &out, &info, &how, x->stream));
    return x->which->staged ? ist_ep_complete(x->handle, x->stream) : IST_OK;
}

static ist_status combine(const exchange *x)
{
    int by_rank = x->which->layout == IST_EP_RANK_MAJOR;
    uint32_t ranks = x->which->ranks;
    ist_tensor weights = tensor(x->memory + 512, IST_F32, 2, 1, 1, 0);
    ist_tensor combined = tensor(x->memory + 1024, IST_BF16, 2, 1, HIDDEN, 0);
    ist_tensor received = by_rank ? tensor(x->memory + 4096, IST_BF16, 3, ranks, 1, HIDDEN)
                                  : tensor(x->memory + 4096, IST_BF16, 3, 1, ranks, HIDDEN);
    ist_ep_combine_in back = {.size = sizeof(back), .tokens = &received};
    ist_ep_combine_out result = {
        .size = sizeof(result), .tokens = &combined, .topk_weights = by_rank ? NULL : &weights};
    ist_ep_op_desc how = {.size = sizeof(how), .send_only = x->which->staged};
    IST_TEST_PASS_ON(ist_ep_combine(x->handle, &back, &result, &how, x->stream));
    return x->which->staged ? ist_ep_complete(x->handle, x->stream) : IST_OK;
}

/* A round: the token of this rank, to the expert of the next rank and back. */
static ist_status one_round(const exchange *x, uint32_t rank, uint32_t round)
{
    uint16_t row[HIDDEN], back[HIDDEN];
    for (uint32_t i = 0; i < HIDDEN; ++i) {
        row[i] = (uint16_t)(0x3f80u + 32u * rank + 16u * round + i);
    }
    IST_TEST_PASS_ON(ist_copy_to_device(x->stream, x->memory, row, sizeof(row)));
    IST_TEST_PASS_ON(dispatch(x));
    IST_TEST_PASS_ON(combine(x));
    IST_TEST_PASS_ON(ist_stream_sync(x->stream, 0));
    IST_TEST_PASS_ON(ist_copy_to_host(x->stream, back, x->memory + 1024, sizeof(back)));
    return memcmp(row, back, sizeof(row)) == 0 ? IST_OK : IST_ERR_INTERNAL;
}

static ist_status all_rounds(exchange *x, ist_ep_group *group, uint32_t rank)
{
    int32_t expert = (int32_t)((rank + 1u) % x->which->ranks);
    float weight = 1.0f;
    IST_TEST_PASS_ON(ist_copy_to_device(x->stream, x->memory + 256, &expert, sizeof(expert)));
    IST_TEST_PASS_ON(ist_copy_to_device(x->stream, x->memory + 512, &weight, sizeof(weight)));
    ist_tensor topk = tensor(x->memory + 256, IST_I32, 2, 1, 1, 0);
    IST_TEST_PASS_ON(ist_ep_handle_open(group, x->which->layout, &topk, x->stream, &x->handle));
    for (uint32_t round = 0; round < x->which->rounds; ++round) {
        IST_TEST_PASS_ON(one_round(x, rank, round));
    }
    return ist_ep_handle_close(x->handle);
}

static ist_status expert_parallel(const scenario *which, ist_world *world, ist_comm *comm,
                                  ist_stream *stream)
{
    ist_ep_group *group = NULL;
    void *memory = NULL;
    ist_ep_group_desc desc = {.size = sizeof(desc),
                              .expert_count = which->ranks,
                              .tokens_per_rank_max = 1,
                              .topk_max = 1,
                              .context_count = 2,
                              .token_bytes_max = HIDDEN * 2u,
                              .block_count_max = which->blocks != 0 ? which->blocks : 1,
                              .combine_order = which->what == REDUCED ? IST_EP_COMBINE_REDUCED
                                                                      : IST_EP_COMBINE_STRICT};
    IST_TEST_PASS_ON(ist_ep_group_open(comm, &desc, &group));
    IST_TEST_PASS_ON(ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &memory));
    exchange x = {.which = which, .memory = memory, .stream = stream};
    IST_TEST_PASS_ON(all_rounds(&x, group, ist_world_rank(world)));
    IST_TEST_PASS_ON(ist_mem_free(world, memory));
    return ist_ep_group_close(group);
}

/* ---- searching ------------------------------------------------------------------------------- */

static ist_status run_protocol(const scenario *which, ist_world *world, ist_comm *comm,
                               ist_stream *stream)
{
    if (which->what == EXPERTS || which->what == REDUCED) {
        return expert_parallel(which, world, comm, stream);
    }
    for (uint32_t round = 0; round < which->rounds; ++round) {
        switch (which->what) {
        case BARRIER: IST_TEST_PASS_ON(ist_comm_barrier(comm, stream)); break;
        case AGREE: IST_TEST_PASS_ON(ist_comm_agree(comm, stream)); break;
        case CLEAN: IST_TEST_PASS_ON(ist_comm_clean(comm, stream)); break;
        case MASK_CLEAN_BARRIER: IST_TEST_PASS_ON(masked_and_back(world, comm, stream)); break;
        case EXPERTS:
        case REDUCED: break;
        }
    }
    return IST_OK;
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

#define EM IST_EP_EXPERT_MAJOR
#define RM IST_EP_RANK_MAJOR

static const scenario scenarios[] = {
    {"barrier, 3 ranks", BARRIER, 3, NULL, 1, 0, EM, 0, 0},
    {"two barriers, 2 ranks", BARRIER, 2, NULL, 2, 0, EM, 0, 0},
    {"barrier, 2 ranks, network", BARRIER, 2, "2x1", 1, 0, EM, 0, 0},
    {"two barriers, 2 ranks, network", BARRIER, 2, "2x1", 2, 0, EM, 0, 0},
    {"agreement, 3 ranks", AGREE, 3, NULL, 1, 0, EM, 0, 0},
    {"two agreements, 2 ranks", AGREE, 2, NULL, 2, 0, EM, 0, 0},
    {"agreement, 2 ranks, network", AGREE, 2, "2x1", 1, 0, EM, 0, 0},
    {"clean, 2 ranks", CLEAN, 2, NULL, 1, 0, EM, 0, 0},
    {"clean, 2 ranks, network", CLEAN, 2, "2x1", 1, 0, EM, 0, 0},
    {"mask, clean, barrier, 2 ranks", MASK_CLEAN_BARRIER, 2, NULL, 1, 0, EM, 0, 0},
    {"the same, network", MASK_CLEAN_BARRIER, 2, "2x1", 1, 0, EM, 0, 5000},
    {"experts, 2 ranks x 1 round", EXPERTS, 2, NULL, 1, 1, EM, 0, 0},
    {"experts, by rank", EXPERTS, 2, NULL, 1, 1, RM, 0, 0},
    {"experts, 2 ranks x 2 rounds", EXPERTS, 2, NULL, 2, 1, EM, 0, 0},
    {"experts, in two halves", EXPERTS, 2, NULL, 1, 1, EM, 1, 0},
    {"experts, reduced", REDUCED, 2, NULL, 1, 1, EM, 0, 0},
    {"experts, reduced, in two halves", REDUCED, 2, NULL, 1, 1, EM, 1, 0},
    {"experts, reduced, 2 rounds", REDUCED, 2, NULL, 2, 1, EM, 0, 2000},
    {"experts, 2 blocks", EXPERTS, 2, NULL, 1, 2, EM, 0, 2000},
    {"experts, 2 ranks x 2 contexts, network", EXPERTS, 2, "2x1", 1, 1, EM, 0, 2000},
    {"experts, by rank, 2 blocks, network", EXPERTS, 2, "2x1", 1, 2, RM, 0, 2000},
};

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void search_one(const scenario *which, uint32_t *failures)
{
    scenario copy = *which;
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = copy.ranks, .cluster = copy.cluster};
    ist_explore_all_desc all = {.size = sizeof(all), .run_count_max = copy.runs_max};
    ist_explore_all_result result = {.size = sizeof(result)};
    double began = seconds();
    all.run_count_max = runs_max != 0 ? runs_max : copy.runs_max;
    ist_status status = ist_explore_all(&desc, scenario_main, &copy, &all, &result);
    print_message("%-40s %8llu executions, %8llu runs, %7.2f s%s\n", copy.name,
                  (unsigned long long)result.executions, (unsigned long long)result.runs,
                  seconds() - began, result.complete ? "" : ", not complete");
    if (status != IST_OK || (!result.complete && all.run_count_max == 0)) {
        print_error("%s: %s\n%s", copy.name, ist_status_name(status), result.first.finding.text);
        ++*failures;
    }
}

static void every_schedule_is_clean(void **state)
{
    (void)state;
    uint32_t failures = 0;
    for (uint32_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); ++i) {
        if (only == UINT32_MAX || only == i) {
            search_one(&scenarios[i], &failures);
        }
    }
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    only = ist_test_option(argc, argv, "--only", only);
    runs_max = ist_test_option(argc, argv, "--runs", runs_max);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_schedule_is_clean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
