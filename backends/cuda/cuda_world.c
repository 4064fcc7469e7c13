/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds. Ranks as threads meet through a mutex; ranks as processes meet at a server that rank 0
 * starts. The caller's current device stays what it was.
 */
#include "cuda_world.h"
#include "cuda_begin.h"
#include "cuda_internal.h"

#include <isthmus/unstable/topology.h>
#include <stdlib.h>
#include <string.h>

extern const ist_backend ist_backend_cuda;

/* One rank's program and how it ended. */
typedef struct member {
    const ist_backend_world *setup;
    cuda_world *world;
    cuda_local *local; /* NULL: a process */
    cuda_endpoint *endpoint;
    CUdevice device;
    uint32_t index;
    ist_status status;
    bool bystander; /* the status is another rank's failure */
    pthread_t thread;
    bool started;
} member;

static void result_copy(const ist_world_result *filled, ist_world_result *result)
{
    uint32_t size = result->size < sizeof(*filled) ? result->size : (uint32_t)sizeof(*filled);
    memcpy(result, filled, size);
    result->size = size;
}

/*
 * IST_CUDA_SHARE=1: ranks may share GPUs. For tests with more ranks than GPUs: kernels that wait
 * for each other then need room on one device, which nothing guarantees.
 */
static bool may_share(void)
{
    const char *text = getenv("IST_CUDA_SHARE");
    return text != NULL && strcmp(text, "1") == 0;
}

static ist_status member_main(const member *one, cuda_rank *rank)
{
    bool entered = cuda_enter(rank);
    ist_status status = one->setup->rank_main(ist_backend_cuda.ops, rank, one->index,
                                              one->world->rank_count, one->setup->context);
    cuda_exit(entered);
    return status;
}

/* Kernels of ranks that share a device wait for each other, so all must find room on it at once. */
static void share_device(cuda_rank *rank, uint32_t sharers)
{
    rank->sm_count = rank->sm_count > sharers ? rank->sm_count / sharers : 1;
}

/* `own`: whether this rank has its device. The others learn it, whatever it is. */
static ist_status member_begin(member *one, cuda_rank *rank, ist_status own)
{
    cuda_beginner beginner = {.endpoint = one->endpoint,
                              .rank = one->index,
                              .rank_count = one->world->rank_count,
                              .may_share = may_share()};
    cuda_beginning beginning = {0};
    if (rank != NULL) {
        memcpy(beginner.uuid, rank->uuid, sizeof(beginner.uuid));
    }
    ist_status status = cuda_begin(&beginner, own, &beginning);
    one->bystander = beginning.bystander;
    if (rank != NULL && status == IST_OK) {
        rank->began_ns = beginning.at_ns;
        share_device(rank, beginning.sharers);
    }
    return status;
}

/* In a thread whose current device is its own business. */
static ist_status member_run(member *one)
{
    cuda_rank *rank = ist_alloc(1, sizeof(*rank));
    if (rank == NULL) {
        ist_status none = ist_raise(IST_ERR_MEMORY, NULL, "no host memory for rank %u", one->index);
        return member_begin(one, NULL, none);
    }
    ist_status status = cuda_rank_open(rank, one->world, one->index, one->device, one->endpoint);
    bool opened = status == IST_OK;
    if (opened) {
        (void)cuda_topology(rank);
    }
    status = member_begin(one, rank, status);
    if (status == IST_OK) {
        status = member_main(one, rank);
    }
    if (opened) {
        cuda_rank_close(rank);
    }
    ist_free(rank);
    return status;
}

static ist_status world_init(cuda_world *world, const ist_backend_world *setup, uint32_t rank_count,
                             bool threads)
{
    *world = (cuda_world){
        .rank_count = rank_count, .threads = threads, .deadline_ns = setup->deadline_ns};
    return pthread_mutex_init(&world->lock, NULL) == 0
               ? IST_OK
               : ist_raise(IST_ERR_SYSTEM, NULL, "pthread_mutex_init failed");
}

static void world_fini(cuda_world *world)
{
    ist_topology_close(world->topology);
    (void)pthread_mutex_destroy(&world->lock);
}

/* Ranks that share a device add it once. */
static ist_status world_add_device(cuda_world *world, int ordinal, CUdevice *device)
{
    CUDA_TRY(NULL, cuDeviceGet, device, ordinal);
    uint32_t at = 0;
    while (at < world->device_count && world->devices[at] != *device) {
        ++at;
    }
    if (at == world->device_count) {
        world->devices[world->device_count++] = *device;
    }
    return IST_OK;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *thread_main(void *argument)
{
    member *one = argument;
    one->status = member_run(one);
    cuda_local_rank_gone(one->local, one->index);
    return NULL;
}

/* A rank that cannot start is one that is gone; the others find that out by themselves. */
static void members_run(member *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        int failed = pthread_create(&members[i].thread, NULL, thread_main, &members[i]);
        members[i].started = failed == 0;
        if (failed != 0) {
            members[i].status =
                ist_raise(IST_ERR_SYSTEM, NULL, "no thread for rank %u: %s", i, strerror(failed));
            cuda_local_rank_gone(members[i].local, i);
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        if (members[i].started) {
            (void)pthread_join(members[i].thread, NULL);
        }
    }
}

/* The first that failed by itself. */
static void members_result(const member *members, uint32_t count, ist_world_result *result)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (members[i].status == IST_ERR_KILLED) {
            ++result->lost_count;
        } else if (members[i].status < 0 && !members[i].bystander && result->status >= 0) {
            result->status = members[i].status;
            result->failed_rank = (int32_t)i;
        }
    }
}

static ist_status members_open(member *members, cuda_world *world, cuda_local *local,
                               const ist_backend_world *setup)
{
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        members[i] = (member){.setup = setup,
                              .world = world,
                              .local = local,
                              .endpoint = cuda_local_endpoint(local),
                              .index = i};
        int ordinal = (int)(i % (uint32_t)cuda_driver_device_count());
        IST_RETURN_IF_ERROR(world_add_device(world, ordinal, &members[i].device));
    }
    return IST_OK;
}

static ist_status run_threads(const ist_backend_world *setup, uint32_t rank_count,
                              ist_world_result *result)
{
    cuda_world world;
    cuda_local *local = NULL;
    IST_RETURN_IF_ERROR(world_init(&world, setup, rank_count, true));
    ist_status status = cuda_local_open(rank_count, &local);
    member *members = status == IST_OK ? ist_alloc(rank_count, sizeof(*members)) : NULL;
    if (status == IST_OK && members == NULL) {
        status = ist_raise(IST_ERR_MEMORY, NULL, "no host memory for %u ranks", rank_count);
    }
    if (status == IST_OK) {
        status = members_open(members, &world, local, setup);
    }
    if (status == IST_OK) {
        members_run(members, rank_count);
        members_result(members, rank_count, result);
        status = result->status;
    }
    ist_free(members);
    if (local != NULL) {
        cuda_local_close(local);
    }
    world_fini(&world);
    return status;
}

static ist_status count_ranks(const ist_backend_world *setup, uint32_t *rank_count)
{
    uint32_t device_count = (uint32_t)cuda_driver_device_count();
    if (device_count > CUDA_DEVICE_COUNT_MAX) {
        device_count = CUDA_DEVICE_COUNT_MAX;
    }
    if (setup->rank_count > device_count && !may_share()) {
        ist_error details = {.rank = IST_RANK_NONE,
                             .peer = IST_RANK_NONE,
                             .object = "desc.rank_count",
                             .operation = "world.run",
                             .expected = device_count,
                             .observed = setup->rank_count};
        return ist_raise(IST_ERR_RANGE, &details,
                         "desc.rank_count is %u, but this process sees %u GPUs; on CUDA each rank "
                         "of one process needs its own (IST_CUDA_SHARE=1 lets tests share)",
                         setup->rank_count, device_count);
    }
    *rank_count = setup->rank_count != 0 ? setup->rank_count : device_count;
    return IST_OK;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* How all ranks ended; those that are gone, or do not end in time, are lost. */
static void tell_and_hear(const member *one, uint32_t rank_count, uint64_t wait_ns,
                          ist_world_result *result)
{
    int64_t own = one->bystander ? IST_OK : one->status;
    uint64_t *none = ist_alloc(CUDA_WORDS(rank_count), sizeof(*none));
    if (none == NULL) {
        return;
    }
    cuda_call call = {.kind = CUDA_CALL_EXCHANGE,
                      .client = one->index,
                      .member = one->index,
                      .rank_count = rank_count,
                      .fd = -1,
                      .comm = CUDA_MEET_ALL,
                      .deadline_ns = cuda_after_ns(cuda_now_ns(), wait_ns),
                      .send = &own,
                      .bytes = sizeof(own),
                      .lost = none};
    one->endpoint->call(one->endpoint, &call);
    for (uint32_t i = 0; call.status == IST_OK && i < rank_count; ++i) {
        ist_status status = (ist_status)((const int64_t *)(const void *)call.round->data)[i];
        if (!cuda_bit(call.round->arrived, i) || status == IST_ERR_KILLED) {
            ++result->lost_count;
        } else if (status < 0 && result->failed_rank == IST_RANK_NONE) {
            result->status = status;
            result->failed_rank = (int32_t)i;
        }
    }
    one->endpoint->release(one->endpoint, &call);
    ist_free(none);
}

static ist_status run_process(const ist_backend_world *setup, ist_world_result *result)
{
    const ist_backend_process *process = setup->process;
    cuda_world world;
    member one = {.setup = setup, .world = &world, .index = process->rank};
    if (process->rank == 0) {
        IST_RETURN_IF_ERROR(cuda_server_start(process));
    }
    IST_RETURN_IF_ERROR(cuda_client_open(process, &one.endpoint));
    one.status = world_init(&world, setup, process->rank_count, false);
    if (one.status == IST_OK) {
        int ordinal = (int)(process->rank % (uint32_t)cuda_driver_device_count());
        one.status = world_add_device(&world, ordinal, &one.device);
        one.status = one.status == IST_OK ? member_run(&one) : one.status;
        world_fini(&world);
    }
    tell_and_hear(&one, process->rank_count, setup->deadline_ns, result);
    one.endpoint->close(one.endpoint);
    if (one.status < 0 && result->status >= 0) {
        result->status = one.status;
        result->failed_rank = (int32_t)process->rank;
    }
    return result->status;
}

ist_status cuda_world_run(const ist_backend_world *setup, ist_world_result *result)
{
    const char *reason = NULL;
    ist_world_result filled = {.size = sizeof(filled), .failed_rank = IST_RANK_NONE};
    uint32_t rank_count = 0;
    ist_status status = cuda_driver_open(&reason);
    if (status != IST_OK) {
        status = ist_raise(status, NULL, "CUDA cannot be used: %s", reason);
    } else if (setup->process != NULL && setup->process->rank_count > 1) {
        status = run_process(setup, &filled);
    } else {
        status = count_ranks(setup, &rank_count);
        status = status == IST_OK ? run_threads(setup, rank_count, &filled) : status;
    }
    filled.status = status;
    result_copy(&filled, result);
    return status;
}
