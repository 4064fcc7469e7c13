/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the layer costs: host time of ist_all_reduce() of 8 bytes against ncclAllReduce() called
 * directly through the same library, on the same GPUs, in turns. Prints both, the difference, and
 * their spread over the rounds. The results of both are checked first.
 *
 *   IST_LAUNCH=none IST_BACKEND=cuda bench_layer [rounds] [calls]
 *
 * NCCL is opened by name, as the library does: the process has it once. No header of it is needed.
 */
#include "ist_test.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 1000u

typedef struct unique_id {
    char bytes[128];
} unique_id;

/* NCCL's host interface, as facts: results 0 for success, ncclUint64 5, ncclSum 0. */
static struct {
    int (*get_unique_id)(unique_id *id);
    int (*comm_init_rank)(void **comm, int rank_count, unique_id id, int rank);
    int (*all_reduce)(const void *send, void *recv, size_t count, int dtype, int op, void *comm,
                      void *stream);
    int (*comm_abort)(void *comm);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_synchronize)(void *stream);
    int (*stream_destroy)(void *stream);
    int (*context_get)(void **context);
} nc;

static uint32_t round_count = 101, call_count = 200;

static bool find(void *library, const char *name, void *to)
{
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(to, &found, sizeof(found));
    return found != NULL;
}

static bool open_libraries(void)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return find(nccl, "ncclGetUniqueId", &nc.get_unique_id) &&
           find(nccl, "ncclCommInitRank", &nc.comm_init_rank) &&
           find(nccl, "ncclAllReduce", &nc.all_reduce) &&
           find(nccl, "ncclCommAbort", &nc.comm_abort) &&
           find(cuda, "cuStreamCreate", &nc.stream_create) &&
           find(cuda, "cuStreamSynchronize", &nc.stream_synchronize) &&
           find(cuda, "cuCtxGetCurrent", &nc.context_get) &&
           find(cuda, "cuStreamDestroy_v2", &nc.stream_destroy);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

typedef struct bench {
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    uint64_t *words; /* device: two of each way */
    void *direct, *direct_stream;
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX], difference[ROUNDS_MAX];
} bench;

static ist_status call_ours(const bench *b)
{
    return ist_all_reduce(b->comm, b->stream, b->words, b->words + 1, 1, IST_U64, IST_REDUCE_SUM);
}

static ist_status call_theirs(const bench *b)
{
    return nc.all_reduce(b->words + 2, b->words + 3, 1, 5, 0, b->direct, b->direct_stream) == 0
               ? IST_OK
               : IST_ERR_REMOTE;
}

static ist_status open_direct(bench *b)
{
    unique_id id = {{0}};
    EXPECT(b->world, ist_world_rank(b->world) != 0 || nc.get_unique_id(&id) == 0);
    EXPECT_OK(b->world, ist_copy_to_device(b->stream, b->words + 8, &id, sizeof(id)));
    EXPECT_OK(b->world,
              ist_broadcast(b->comm, b->stream, b->words + 8, b->words + 8, sizeof(id), IST_U8, 0));
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, &id, b->words + 8, sizeof(id)));
    EXPECT(b->world, nc.stream_create(&b->direct_stream, 1) == 0);
    EXPECT(b->world, nc.comm_init_rank(&b->direct, (int)ist_world_rank_count(b->world), id,
                                       (int)ist_world_rank(b->world)) == 0);
    return IST_OK;
}

static ist_status check(bench *b)
{
    const uint64_t n = ist_world_rank_count(b->world);
    const uint64_t own[4] = {ist_world_rank(b->world) + 1, 0, ist_world_rank(b->world) + 1, 0};
    uint64_t words[4] = {0};
    EXPECT_OK(b->world, ist_copy_to_device(b->stream, b->words, own, sizeof(own)));
    EXPECT_OK(b->world, ist_stream_sync(b->stream, 0));
    EXPECT_OK(b->world, call_ours(b));
    EXPECT_OK(b->world, call_theirs(b));
    EXPECT(b->world, nc.stream_synchronize(b->direct_stream) == 0);
    EXPECT_OK(b->world, ist_copy_to_host(b->stream, words, b->words, sizeof(words)));
    EXPECT_EQUAL(b->world, words[1], n * (n + 1) / 2);
    EXPECT_EQUAL(b->world, words[3], n * (n + 1) / 2);
    return IST_OK;
}

/* Host time of a call, mean over a row of them that the device has room for. */
static ist_status time_row(const bench *b, ist_status (*call)(const bench *b), double *ns)
{
    uint64_t began = now_ns();
    for (uint32_t i = 0; i < call_count; ++i) {
        IST_TEST_PASS_ON(call(b));
    }
    *ns = (double)(now_ns() - began) / call_count;
    EXPECT_OK(b->world, ist_stream_sync(b->stream, 0));
    EXPECT(b->world, nc.stream_synchronize(b->direct_stream) == 0);
    return IST_OK;
}

/* What any layer pays that leaves the caller's device as it was: it has to ask. */
static double time_context(void)
{
    void *context = NULL;
    uint64_t began = now_ns();
    for (uint32_t i = 0; i < 100000; ++i) {
        (void)nc.context_get(&context);
    }
    return (double)(now_ns() - began) / 100000;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print(const char *name, double *samples)
{
    qsort(samples, round_count, sizeof(*samples), by_value);
    printf("%-24s %9.1f %9.1f %9.1f %9.1f %9.1f\n", name, samples[0], samples[round_count / 4],
           samples[round_count / 2], samples[round_count * 3 / 4], samples[round_count - 1]);
}

static ist_status measure(bench *b)
{
    for (uint32_t i = 0; i < 5 + round_count; ++i) {
        const uint32_t at = i < 5 ? 0 : i - 5;
        const bool first = i % 2 == 0; /* who goes first takes turns */
        IST_TEST_PASS_ON(
            time_row(b, first ? call_ours : call_theirs, first ? &b->ours[at] : &b->theirs[at]));
        IST_TEST_PASS_ON(
            time_row(b, first ? call_theirs : call_ours, first ? &b->theirs[at] : &b->ours[at]));
        b->difference[at] = b->ours[at] - b->theirs[at];
    }
    if (ist_world_rank(b->world) == 0) {
        printf("host time of an all-reduce of 8 bytes, ns a call, %u rounds of %u calls\n",
               round_count, call_count);
        printf("%-24s %9s %9s %9s %9s %9s\n", "", "min", "quarter", "median", "quarter", "max");
        print("ist_all_reduce", b->ours);
        print("ncclAllReduce", b->theirs);
        print("difference in a round", b->difference);
        printf("of it, cuCtxGetCurrent   %9.1f\n", time_context());
    }
    return IST_OK;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    void *memory = NULL;
    bench *b = calloc(1, sizeof(*b));
    (void)arg;
    EXPECT(world, b != NULL);
    b->world = world;
    EXPECT_OK(world, ist_comm_open(world, NULL, &b->comm));
    EXPECT_OK(world, ist_stream_open(world, &b->stream));
    EXPECT_OK(world, ist_coll_open(b->comm));
    EXPECT_OK(world, ist_mem_alloc(world, 4096, IST_MEM_PLAIN, &memory));
    b->words = memory;
    ist_status status = open_direct(b);
    status = status == IST_OK ? check(b) : status;
    status = status == IST_OK ? measure(b) : status;
    if (b->direct != NULL) {
        (void)nc.comm_abort(b->direct);
        (void)nc.stream_destroy(b->direct_stream);
    }
    (void)ist_coll_status(b->comm);
    (void)ist_stream_close(b->stream);
    (void)ist_comm_close(b->comm);
    (void)ist_mem_free(world, memory);
    free(b);
    return status;
}

int main(int argc, char **argv)
{
    const char *backend = getenv("IST_BACKEND");
    ist_world_desc desc = {.size = sizeof(desc), .backend = backend != NULL ? backend : "cuda"};
    if (!open_libraries()) {
        printf("there is no libnccl.so.2 and libcuda.so.1 to compare with\n");
        return 77;
    }
    round_count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : round_count;
    call_count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : call_count;
    round_count = round_count < 1 || round_count > ROUNDS_MAX ? ROUNDS_MAX : round_count;
    return ist_world_run(&desc, rank_main, NULL, NULL) == IST_OK && ist_test_failures() == 0 ? 0
                                                                                             : 1;
}
