/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collectives of backends/cuda over an NCCL that moves no bytes: opening, calls, groups, graphs,
 * abort, the estimate that it lacks; then NCCL's call 1, 2, 3 … fails until there is none. Every world
 * must end with an answer and leave no communicator of NCCL open.
 */
#include "fake_try.h"
#include <dlfcn.h>
#include <isthmus/isthmus.h>
#include <isthmus/unstable/whatif.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*live)(void);
static int (*calls)(void);
static bool failing; /* no time to sleep */

static ist_status some_calls(ist_comm *comm, ist_stream *stream, uint32_t *words)
{
    const float factor = 2;
    ist_reduction scaled = IST_REDUCE_SUM;
    const ist_reduction sum = IST_REDUCE_SUM;
    TRY(ist_all_reduce(comm, stream, words, words, 4, IST_U32, sum));
    TRY(ist_broadcast(comm, stream, words, words, 4, IST_F16, 0));
    TRY(ist_reduce(comm, stream, words, words, 4, IST_F32, IST_REDUCE_AVG, 1));
    TRY(ist_all_gather(comm, stream, words, words + 64, 4, IST_F64));
    TRY(ist_reduce_scatter(comm, stream, words, words + 64, 4, IST_I8, IST_REDUCE_MAX));
    TRY(ist_all_to_all(comm, stream, words, words + 64, 4, IST_BF16));
    TRY(ist_reduction_open(comm, IST_F32, &factor, &scaled));
    TRY(ist_all_reduce(comm, stream, words, words, 4, IST_F32, scaled));
    return ist_reduction_close(comm, scaled);
}

static ist_status in_a_group(ist_world *world, ist_comm *comm, ist_stream *stream, uint32_t *words)
{
    const uint32_t peer = 1u - ist_world_rank(world);
    TRY(ist_coll_group_begin(world));
    ist_status sent = ist_send(comm, stream, words, 4, IST_U32, peer);
    ist_status received = ist_recv(comm, stream, words + 8, 4, IST_U32, peer);
    ist_status ended = ist_coll_group_end(world);
    return sent != IST_OK ? sent : received != IST_OK ? received : ended;
}

static ist_status in_a_graph(ist_comm *comm, ist_stream *stream, uint32_t *words)
{
    ist_graph *graph = NULL;
    TRY(ist_graph_begin(stream));
    ist_status status = ist_all_reduce(comm, stream, words, words, 4, IST_U32, IST_REDUCE_SUM);
    ist_status ended = ist_graph_end(stream, &graph);
    status = status != IST_OK ? status : ended;
    status = status != IST_OK ? status : ist_graph_launch(graph, stream);
    ist_status closed = ist_graph_close(graph);
    return status != IST_OK ? status : closed;
}

/* A stream that is closed while the watcher could still look at it. */
static ist_status closes_a_stream(ist_world *world, ist_comm *comm, uint32_t *words)
{
    ist_stream *stream = NULL;
    TRY(ist_stream_open(world, &stream));
    TRY(ist_all_reduce(comm, stream, words, words, 4, IST_U32, IST_REDUCE_SUM));
    TRY(ist_stream_close(stream));
    return failing ? IST_OK : ist_world_sleep(world, 600000000);
}

/* The watcher does it, soon. */
static ist_status aborted(ist_world *world, ist_comm *comm, ist_stream *stream, uint32_t *words)
{
    ist_status status = IST_OK;
    TRY(ist_comm_abort(comm));
    for (int i = 0; i < 2000 && status == IST_OK; ++i) {
        TRY(ist_world_sleep(world, 1000000));
        status = ist_coll_status(comm);
    }
    CHECK(status == IST_ERR_ABORTED);
    CHECK(ist_all_reduce(comm, stream, words, words, 4, IST_U32, IST_REDUCE_SUM) ==
          IST_ERR_ABORTED);
    return IST_OK;
}

/* What-if needs no work of the GPUs: an estimate of what this communicator would do. */
static ist_status simulated(ist_comm *comm)
{
    ist_group *group = NULL;
    ist_estimate estimate = {.size = sizeof(estimate)};
    const ist_group_desc desc = {.size = sizeof(desc), .comm = comm};
    const ist_op_desc op = {.size = sizeof(op), .kind = IST_OP_ALL_REDUCE, .bytes = 4096};
    TRY(ist_group_begin(&desc, &group));
    TRY(ist_group_add(group, &op));
    TRY(ist_group_end(group, IST_GROUP_SIMULATE, &estimate));
    CHECK(estimate.rank_count == 2 && estimate.node_count == 1 && estimate.total_ps > 1000000);
    return IST_OK;
}

static ist_status use(ist_world *world, ist_comm *comm, ist_stream *stream, uint32_t *words)
{
    const ist_op_desc op = {.size = sizeof(op), .kind = IST_OP_ALL_REDUCE, .bytes = 4096};
    ist_coll_info info = {.size = sizeof(info)};
    uint64_t time_ps = 0;
    TRY(ist_coll_open(comm));
    TRY(ist_coll_query(comm, &info));
    CHECK(info.opened == 1 && info.library_version == 22809 && info.all_to_all_native == 0);
    CHECK(strcmp(info.library, "nccl") == 0 && info.reason == NULL);
    CHECK(info.estimate_reason != NULL);
    CHECK(ist_op_reference(comm, &op, &time_ps) == IST_ERR_UNSUPPORTED);
    TRY(simulated(comm));
    TRY(some_calls(comm, stream, words));
    TRY(in_a_group(world, comm, stream, words));
    TRY(in_a_graph(comm, stream, words));
    TRY(closes_a_stream(world, comm, words));
    TRY(ist_stream_sync(stream, 0));
    TRY(ist_coll_status(comm));
    return aborted(world, comm, stream, words);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    void *memory = NULL;
    (void)arg;
    ist_status status = ist_comm_open(world, NULL, &comm);
    status = status != IST_OK ? status : ist_stream_open(world, &stream);
    status = status != IST_OK ? status : ist_mem_alloc(world, 4096, IST_MEM_PLAIN, &memory);
    status = status != IST_OK ? status : use(world, comm, stream, memory);
    (void)ist_stream_close(stream);
    (void)ist_mem_free(world, memory);
    (void)ist_comm_close(comm);
    return status;
}

static bool find(void *library, const char *name, void *to)
{
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(to, &found, sizeof(found));
    return found != NULL;
}

/* One world; 0: it went as it must. */
static int run(int nth, int *reached)
{
    const ist_world_desc desc = {.size = sizeof(desc),
                                 .rank_count = 2,
                                 .backend = "cuda",
                                 .deadline_ns = nth != 0 ? 400000000 : 20000000000};
    char text[16];
    const int before = calls();
    failing = nth != 0;
    snprintf(text, sizeof(text), "%d", nth != 0 ? before + nth : 0);
    (void)setenv("FAKE_NCCL_FAIL", text, 1);
    ist_status status = ist_world_run(&desc, rank_main, NULL, NULL);
    *reached = nth != 0 && calls() - before >= nth;
    if (live() != 0) {
        fprintf(stderr, "call %d: %d communicators of NCCL are left open\n", nth, live());
        return 1;
    }
    if (status == IST_ERR_INTERNAL || (!*reached && status != IST_OK) ||
        (*reached && status == IST_OK)) {
        fprintf(stderr, "call %d: %s\n", nth, ist_status_name(status));
        return 1;
    }
    return 0;
}

int main(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int reached = 0;
    int nth = 1;
    (void)setenv("FAKE_NCCL_WORKS", "1", 1);
    if (!find(library, "fakeNcclLive", &live) || !find(library, "fakeNcclCalls", &calls)) {
        fprintf(stderr, "this is not the NCCL of the test\n");
        return 1;
    }
    if (run(0, &reached) != 0) {
        return 1;
    }
    do {
        if (run(nth, &reached) != 0) {
            return 1;
        }
    } while (reached && ++nth < 1000);
    printf("%d calls of NCCL failed, one by one\n", nth - 1);
    return nth > 20 && nth < 1000 ? 0 : 1;
}
