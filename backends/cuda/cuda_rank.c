/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's device: its primary context, so that the program's own CUDA code shares it, and what the
 * backend needs before the first call.
 */
#include "cuda_comm.h"
#include "cuda_internal.h"

#include <string.h>

static ist_status attribute(const cuda_rank *rank, CUdevice_attribute which, int *value)
{
    CUDA_TRY(rank, cuDeviceGetAttribute, value, which, rank->device);
    return IST_OK;
}

static ist_status read_flag(const cuda_rank *rank, CUdevice_attribute which, bool *flag)
{
    int value = 0;
    IST_RETURN_IF_ERROR(attribute(rank, which, &value));
    *flag = value != 0;
    return IST_OK;
}

static ist_status read_device(cuda_rank *rank)
{
    CUuuid uuid;
    int sm_count = 0;
    CUDA_TRY(rank, cuDeviceGetName, rank->name, (int)sizeof(rank->name), rank->device);
    CUDA_TRY(rank, cuDeviceGetUuid, &uuid, rank->device);
    memcpy(rank->uuid, uuid.bytes, sizeof(rank->uuid));
    IST_RETURN_IF_ERROR(attribute(rank, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sm_count));
    rank->sm_count = (uint32_t)sm_count;
    IST_RETURN_IF_ERROR(
        read_flag(rank, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &rank->vmm));
    IST_RETURN_IF_ERROR(read_flag(
        rank, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &rank->fd_export));
    return read_flag(rank, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                     &rank->rdma);
}

static ist_status read_granularity(cuda_rank *rank)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof(properties));
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = rank->device;
    properties.requestedHandleTypes =
        rank->fd_export ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    properties.allocFlags.gpuDirectRDMACapable = rank->rdma ? 1 : 0;
    if (rank->vmm) {
        CUDA_TRY(rank, cuMemGetAllocationGranularity, &rank->granularity, &properties,
                 CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    }
    return IST_OK;
}

/* In the rank's context. */
static ist_status prepare(cuda_rank *rank)
{
    IST_RETURN_IF_ERROR(read_granularity(rank));
    CUDA_TRY(rank, cuStreamCreateWithPriority, &rank->side, CU_STREAM_NON_BLOCKING, 0);
    return cuda_kernels_open(rank);
}

/* ---- contexts --------------------------------------------------------------------------------- */

/*
 * Making a context and loading the images into it takes a good part of a second, so the first rank
 * on a device keeps the context for the rest of the process; nothing of a world stays in it.
 */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static CUdevice kept[CUDA_DEVICE_COUNT_MAX];
static uint32_t kept_count;

/* kept_count: not kept. Lock held. */
static uint32_t kept_at(CUdevice device)
{
    uint32_t at = 0;
    while (at < kept_count && kept[at] != device) {
        ++at;
    }
    return at;
}

static ist_status keep_context(const cuda_rank *rank)
{
    CUcontext context = NULL;
    CUresult result = CUDA_SUCCESS;
    (void)pthread_mutex_lock(&kept_lock);
    if (kept_at(rank->device) == kept_count && kept_count < CUDA_DEVICE_COUNT_MAX) {
        result = cu.cuDevicePrimaryCtxRetain(&context, rank->device);
        if (result == CUDA_SUCCESS) {
            kept[kept_count++] = rank->device;
        }
    }
    (void)pthread_mutex_unlock(&kept_lock);
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuDevicePrimaryCtxRetain");
}

/* A context in which a kernel faulted is of no use to a later world. */
static void drop_broken_context(const cuda_rank *rank)
{
    CUresult result = rank->side != NULL ? cu.cuStreamQuery(rank->side) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
        return;
    }
    (void)pthread_mutex_lock(&kept_lock);
    uint32_t at = kept_at(rank->device);
    if (at < kept_count) {
        kept[at] = kept[--kept_count];
        (void)cu.cuDevicePrimaryCtxRelease(rank->device);
    }
    (void)pthread_mutex_unlock(&kept_lock);
}

/* ---- a rank ----------------------------------------------------------------------------------- */

ist_status cuda_rank_open(cuda_rank *rank, cuda_world *world, uint32_t index, CUdevice device,
                          cuda_endpoint *endpoint)
{
    rank->world = world;
    rank->index = index;
    rank->device = device;
    rank->endpoint = endpoint;
    IST_RETURN_IF_ERROR(read_device(rank));
    IST_RETURN_IF_ERROR(keep_context(rank));
    CUDA_TRY(rank, cuDevicePrimaryCtxRetain, &rank->context, device);
    (void)pthread_mutex_init(&rank->memory_lock, NULL);
    (void)pthread_mutex_init(&rank->side_lock, NULL);
    (void)pthread_mutex_init(&rank->block_lock, NULL);
    (void)pthread_mutex_init(&rank->pinned_lock, NULL);
    (void)pthread_mutex_init(&rank->coll_lock, NULL);
    bool entered = cuda_enter(rank);
    ist_status status = prepare(rank);
    cuda_exit(entered);
    if (status != IST_OK) {
        cuda_rank_close(rank);
    }
    return status;
}

void cuda_rank_close(cuda_rank *rank)
{
    bool entered = cuda_enter(rank);
    cuda_comms_close(rank);
    cuda_graphs_close(rank);
    cuda_streams_close(rank);
    cuda_events_close(rank);
    cuda_staging_close(rank);
    cuda_memory_close(rank);
    cuda_pinned_close(rank);
    cuda_imports_close(rank);
    cuda_heap_close(rank);
    cuda_kernels_close(rank);
    drop_broken_context(rank);
    if (rank->side != NULL) {
        (void)cu.cuStreamDestroy(rank->side);
    }
    cuda_exit(entered);
    (void)pthread_mutex_destroy(&rank->memory_lock);
    (void)pthread_mutex_destroy(&rank->side_lock);
    (void)pthread_mutex_destroy(&rank->block_lock);
    (void)pthread_mutex_destroy(&rank->pinned_lock);
    (void)pthread_mutex_destroy(&rank->coll_lock);
    (void)cu.cuDevicePrimaryCtxRelease(rank->device);
    rank->context = NULL;
}
