/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of backends/cuda over a driver without GPU: memory, streams, graphs, communicators,
 * windows in peers' memory, device communicators; as threads, and as processes under mpirun.
 *
 * A plain program, not cmocka: under mpirun each rank runs it. Exit status 0: all was right.
 * "die": the last rank ends without a word, and the others must notice within the deadline.
 * "starve": host allocation 1, 2, 3 … fails until there is none; then all works.
 */
#include "fake_try.h"
#include "fake_cuda.h"

#include <dlfcn.h>
#include <isthmus/device.h>
#include <isthmus/isthmus.h>
#include <isthmus/unstable/sim.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int die;
static int starve;

static ist_status check_memory(ist_world *world)
{
    void *plain = NULL;
    void *visible = NULL;
    uint64_t word = 0;
    ist_stream *stream = NULL;
    TRY(ist_mem_alloc(world, 10000, IST_MEM_PLAIN, &plain));
    TRY(ist_mem_alloc(world, 64, IST_MEM_HOST_VISIBLE, &visible));
    CHECK((uintptr_t)plain % 4096 == 0 && (uintptr_t)visible % 4096 == 0);
    TRY(ist_stream_open(world, &stream));
    TRY(ist_fill(stream, visible, 7, 64));
    TRY(ist_stream_sync(stream, 0));
    TRY(ist_mem_peek(world, visible, &word, sizeof(word)));
    CHECK(word == 0x0707070707070707u);
    CHECK(ist_mem_peek(world, plain, &word, sizeof(word)) == IST_ERR_ARGUMENT);
    TRY(ist_stream_close(stream));
    TRY(ist_mem_free(world, plain));
    return ist_mem_free(world, visible);
}

static ist_status check_graph(ist_world *world)
{
    void *memory = NULL;
    ist_stream *stream = NULL;
    ist_graph *graph = NULL;
    uint64_t word = 42;
    TRY(ist_mem_alloc(world, 4096, IST_MEM_PLAIN, &memory));
    TRY(ist_stream_open(world, &stream));
    TRY(ist_graph_begin(stream));
    TRY(ist_copy_to_device(stream, memory, &word, sizeof(word)));
    TRY(ist_graph_end(stream, &graph));
    word = 0; /* captured bytes belong to the graph */
    for (int i = 0; i < 3; ++i) {
        TRY(ist_fill(stream, memory, 0, sizeof(word)));
        TRY(ist_graph_launch(graph, stream));
        TRY(ist_copy_to_host(stream, &word, memory, sizeof(word)));
        CHECK(word == 42);
    }
    TRY(ist_graph_close(graph));
    TRY(ist_stream_close(stream));
    return ist_mem_free(world, memory);
}

/* Reads a peer's window through the addresses that device code would use. */
static ist_status check_peers(ist_world *world, ist_comm *comm, ist_stream *stream,
                              ist_window *window, const ist_dev_comm *dev)
{
    ist_comm_info info = {.size = sizeof(info)};
    uint64_t *own = NULL;
    uint64_t mine = 1000u + ist_world_rank(world);
    TRY(ist_comm_query(comm, &info));
    TRY(ist_window_address(window, 0, 8, (void **)&own));
    TRY(ist_copy_to_device(stream, own, &mine, sizeof(mine)));
    TRY(ist_stream_sync(stream, 0));
    TRY(ist_comm_barrier(comm, stream));
    const ist_dev_window *entry = &dev->windows[ist_window_index(window)];
    CHECK(dev->rank == info.rank && dev->lsa_size == info.lsa_size && entry->local == own);
    /* Kernels do not run here, so the barrier above does not wait: a collective call does. */
    ist_window *fence = NULL;
    TRY(ist_window_open(comm, own, 4096, &fence));
    for (uint32_t i = 0; i < info.lsa_size; ++i) {
        const uint64_t *theirs = entry->lsa[i];
        CHECK(theirs[0] == 1000u + info.rank - info.lsa_rank + i);
    }
    TRY(ist_window_close(fence));
    ist_window *last = NULL;
    TRY(ist_window_open(comm, own, 4096, &last));
    return ist_window_close(last);
}

static ist_status check_comm(ist_world *world, uint32_t lsa_size_max)
{
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1, .lsa_size_max = lsa_size_max};
    ist_comm *comm = NULL;
    ist_comm *half = NULL;
    ist_stream *stream = NULL;
    ist_window *windows[20] = {NULL};
    void *memory = NULL;
    const ist_dev_comm *dev = NULL;
    TRY(ist_stream_open(world, &stream));
    TRY(ist_comm_open(world, &desc, &comm));
    TRY(ist_mem_alloc(world, 3 << 20, IST_MEM_SYMMETRIC, &memory));
    for (int i = 0; i < 20; ++i) {
        TRY(ist_window_open(comm, memory, 65536, &windows[i]));
    }
    TRY(ist_dev_comm_open(comm, 5000, 0, 0, 0, 2, &dev));
    CHECK(dev->windows[0].bytes == 5000 && dev->lsa_barrier_count == 2);
    TRY(check_peers(world, comm, stream, windows[3], dev));
    TRY(ist_dev_comm_close(comm, dev));
    for (int i = 0; i < 20; ++i) {
        TRY(ist_window_close(windows[i]));
    }
    TRY(ist_comm_split(comm, 0, -(int32_t)ist_world_rank(world), &half));
    TRY(ist_comm_close(half));
    TRY(ist_mem_free(world, memory));
    TRY(ist_comm_close(comm));
    return ist_stream_close(stream);
}

/* ---- how kernels are launched ------------------------------------------------------------------ */

static fake_cuda_tally (*tally_of)(void);

static int find_tally(void)
{
    void *fake = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = fake != NULL ? dlsym(fake, "fake_cuda_launches") : NULL;
    memcpy(&tally_of, &found, sizeof(tally_of));
    return tally_of != NULL && dlclose(fake) == 0;
}

static int refuses_dependent(void)
{
    return getenv("FAKE_CUDA_NO_DEPENDENT") != NULL;
}

/* Cooperative launches could block the places that others of this process wait for, and launches on
 * common streams could be kept from them; a launch that makes the driver wait for the device could
 * wait for a peer. So there are none. */
static int launched(fake_cuda_tally *before, unsigned count)
{
    fake_cuda_tally now = tally_of();
    int right = now.plain - before->plain == (refuses_dependent() ? count : 0) &&
                now.dependent - before->dependent == (refuses_dependent() ? 0 : count) &&
                now.cooperative == before->cooperative && now.late == before->late &&
                now.waits == 0;
    *before = now;
    return right;
}

static ist_status run_blocks(ist_stream *stream, uint32_t block_count)
{
    static const ist_kernel kernel = {.name = "of_this_test", .args_bytes = 8};
    uint64_t args = 0;
    return ist_launch(stream, &kernel, block_count, &args, sizeof(args));
}

/* What the capability record says after launches. */
static ist_status check_dependent(void)
{
    const char *name = NULL;
    const char *reason = NULL;
    uint32_t found = 0;
    for (uint32_t at = 0; ist_backend_query(at, &name, &reason) == IST_OK; ++at) {
        ist_feature feature = {.size = sizeof(feature)};
        for (uint32_t i = 0; ist_backend_feature(at, i, &feature) == IST_OK; ++i) {
            if (strcmp(feature.name, "dependent launch") == 0) {
                CHECK((feature.value == NULL) == refuses_dependent());
                CHECK((feature.reason != NULL) == refuses_dependent());
                ++found;
            }
        }
    }
    CHECK(found == 1);
    return IST_OK;
}

static ist_status check_launches(ist_world *world)
{
    ist_stream *stream = NULL;
    ist_graph *graph = NULL;
    CHECK(find_tally());
    fake_cuda_tally before = tally_of();
    TRY(ist_stream_open(world, &stream));
    TRY(run_blocks(stream, 132));
    TRY(run_blocks(stream, 1));
    CHECK(launched(&before, 2));
    CHECK(run_blocks(stream, 133) == IST_ERR_RANGE); /* they could not all be resident */
    TRY(ist_graph_begin(stream));
    TRY(run_blocks(stream, 132));
    TRY(run_blocks(stream, 7));
    TRY(ist_graph_end(stream, &graph));
    CHECK(launched(&before, 0));
    TRY(ist_graph_launch(graph, stream));
    TRY(ist_graph_launch(graph, stream));
    CHECK(launched(&before, 4));
    TRY(check_dependent());
    TRY(ist_graph_close(graph));
    return ist_stream_close(stream);
}

static void *abort_soon(void *comm)
{
    (void)usleep(50000);
    (void)ist_comm_abort(comm);
    return NULL;
}

/* Rank 0 waits for peers that do not come, and another thread ends its wait; they learn of it. */
static ist_status check_abort(ist_world *world)
{
    ist_comm *comm = NULL;
    ist_comm *split = NULL;
    pthread_t thread;
    uint64_t began_ns = ist_world_clock_ns(world);
    TRY(ist_comm_open(world, NULL, &comm));
    if (ist_world_rank(world) == 0) {
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
        CHECK(ist_comm_split(comm, 0, 0, &split) == IST_ERR_ABORTED);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(ist_comm_split(comm, 0, 0, &split) == IST_ERR_ABORTED);
    } else {
        TRY(ist_world_sleep(world, 200000000));
        CHECK(ist_comm_split(comm, 0, 0, &split) == IST_ERR_TIMEOUT);
    }
    CHECK(ist_world_clock_ns(world) - began_ns < 5000000000u);
    return ist_comm_close(comm);
}

static ist_status check_death(ist_world *world)
{
    ist_comm *comm = NULL;
    ist_comm *next = NULL;
    uint64_t began_ns = ist_world_clock_ns(world);
    TRY(ist_comm_open(world, NULL, &comm));
    if (ist_world_rank(world) + 1 == ist_world_rank_count(world)) {
        (void)raise(SIGKILL);
    }
    CHECK(ist_comm_split(comm, 0, 0, &next) == IST_ERR_TIMEOUT);
    CHECK(ist_comm_open(world, NULL, &next) == IST_ERR_TIMEOUT);
    CHECK(ist_world_clock_ns(world) - began_ns < 5000000000u);
    return ist_comm_close(comm);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    (void)arg;
    if (die) {
        return check_death(world);
    }
    TRY(check_memory(world));
    TRY(check_graph(world));
    TRY(check_launches(world));
    TRY(check_comm(world, 0));
    /* It sleeps; the fault loops have no time for that. */
    return starve || getenv("FAKE_CUDA_FAIL") != NULL ? IST_OK : check_abort(world);
}

/* @return 0: every world ended, and the last of them well */
static int run_starving(const ist_world_desc *desc)
{
    uint64_t hits = 1;
    uint64_t nth = 0;
    while (hits != 0 && nth < 10000) {
        ist_world_result result = {.size = sizeof(result)};
        ist_status status = ist_call_fault_arm("host_alloc", ++nth, 0, IST_ERR_MEMORY);
        if (status != IST_OK) {
            fprintf(stderr, "arming: %s\n", ist_status_name(status));
            return 1;
        }
        status = ist_world_run(desc, rank_main, NULL, &result);
        (void)ist_call_fault_disarm(&hits);
        if (hits == 0 && status != IST_OK) {
            fprintf(stderr, "%s without a failed allocation\n", ist_status_name(status));
            return 1;
        }
    }
    fprintf(stderr, "%llu allocations failed, one by one\n", (unsigned long long)nth - 1);
    return nth > 50 && nth < 10000 ? 0 : 1;
}

int main(int argc, char **argv)
{
    ist_world_desc desc = {.size = sizeof(desc), .backend = "cuda", .deadline_ns = 20000000000u};
    ist_world_result result = {.size = sizeof(result)};
    die = argc > 1 && strcmp(argv[1], "die") == 0;
    starve = argc > 1 && strcmp(argv[1], "starve") == 0;
    if (starve) {
        desc.deadline_ns = 400000000; /* whoever waits for the one that failed */
        return run_starving(&desc);
    }
    ist_status status = ist_world_run(&desc, rank_main, NULL, &result);
    if (status == IST_OK && !die) {
        status = ist_world_run(&desc, rank_main, NULL, &result); /* a second world of the job */
    }
    if (status == IST_OK && result.lost_count != (die ? 1u : 0u)) {
        fprintf(stderr, "%u ranks lost\n", result.lost_count);
        return 1;
    }
    if (status != IST_OK) {
        fprintf(stderr, "%s (rank %d)\n", ist_status_name(status), (int)result.failed_rank);
    }
    return status == IST_OK ? 0 : 1;
}
