/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device communicators: one piece of device memory with all that kernels read, and a zeroed
 * resource window whose end holds the LSA barriers.
 */
#include "cuda_comm.h"

#include <string.h>
#include <unistd.h>

#define LINE_BYTES 128u

static uint64_t round_line(uint64_t bytes)
{
    return (bytes + LINE_BYTES - 1u) & ~(uint64_t)(LINE_BYTES - 1u);
}

/* Offsets in the piece that device code reads. */
typedef struct layout {
    uint64_t private_at;
    uint64_t windows_at;
    uint64_t members_at; /* [3][lsa_size]: addresses and bytes of resource windows, barriers */
    uint64_t flush_at;
    uint64_t counters_at;
    uint64_t values_used_at;
    uint64_t nccl_at;
    uint64_t bytes;
    uint64_t barriers_at; /* in the resource window */
    uint64_t values_at;   /* in the resource window */
    uint64_t resource_bytes;
    uint32_t flush_block_count;
} layout;

/* Set-up of one device communicator. */
typedef struct opening {
    cuda_comm *comm;
    const ist_devcomm_desc *desc;
    cuda_devcomm *dev;
    layout at;
} opening;

static layout make_layout(const cuda_comm *comm, const ist_devcomm_desc *desc, size_t nccl_bytes)
{
    layout at = {.private_at = IST_CUDA_LINE(sizeof(ist_dev_comm)),
                 .windows_at = IST_CUDA_WINDOWS_AT,
                 .members_at = IST_CUDA_MEMBERS_AT};
    uint64_t contexts = desc->context_count;
    at.flush_block_count = contexts > 0 ? comm->owner->sm_count : 0;
    at.flush_at = round_line(at.members_at + 3u * (uint64_t)comm->lsa_size * sizeof(void *));
    at.counters_at = at.flush_at + round_line(contexts * at.flush_block_count * sizeof(uint64_t));
    at.values_used_at =
        at.counters_at + round_line(contexts * desc->counter_count * sizeof(uint64_t));
    at.nccl_at = at.values_used_at + round_line(contexts * at.flush_block_count * sizeof(uint64_t));
    at.bytes = at.nccl_at + round_line(nccl_bytes);
    at.barriers_at = round_line(desc->resource_bytes);
    at.values_at =
        at.barriers_at + desc->lsa_barrier_count * IST_CUDA_BARRIER_BYTES(comm->lsa_size);
    at.resource_bytes =
        at.values_at + contexts * at.flush_block_count * IST_CUDA_VALUE_SLOTS * sizeof(uint64_t);
    return at;
}

/* ---- resource window ------------------------------------------------------------------------- */

static ist_status resource_alloc(opening *open, cuda_offer *offer, int *fd)
{
    cuda_devcomm *dev = open->dev;
    cuda_rank *rank = open->comm->owner;
    uint64_t bytes = open->at.resource_bytes;
    if (bytes == 0) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(cuda_heap_alloc_alone(rank, bytes, &dev->resource_chunk, &dev->resource));
    IST_RETURN_IF_ERROR(cuda_zero_now(rank, dev->resource, bytes));
    return cuda_offer_fill(open->comm, dev->resource_chunk, dev->resource, bytes, offer, fd);
}

/* All have zeroed theirs before anyone's device code can reach it: the exchange is the barrier. */
static ist_status resource_open(opening *open)
{
    int fd = -1;
    cuda_call call;
    cuda_offer offer = {0};
    cuda_comm *comm = open->comm;
    ist_status local = resource_alloc(open, &offer, &fd);
    offer.status = local;
    ist_status status = cuda_comm_gather(comm, &offer, sizeof(offer), fd, &call);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (status != IST_OK) {
        return local != IST_OK ? local : status;
    }
    status = local != IST_OK
                 ? local
                 : cuda_mapping_open(comm, call.round, (void *)(uintptr_t)open->dev->resource,
                                     &open->dev->mapping);
    cuda_comm_release(comm, &call);
    return status;
}

/* ---- network --------------------------------------------------------------------------------- */

static ist_status network_open(opening *open, size_t *bytes)
{
    cuda_comm *comm = open->comm;
    cuda_devcomm *dev = open->dev;
    const ist_devcomm_desc *desc = open->desc;
    if (desc->context_count == 0) {
        return IST_OK;
    }
    if (comm->nccl == NULL) {
        uint32_t peer = (comm->rank - comm->lsa_rank + comm->lsa_size) % comm->rank_count;
        return ist_raise(IST_ERR_UNSUPPORTED, NULL, "ranks %u and %u have no GIN between them: %s",
                         comm->rank, peer, comm->gin_reason);
    }
    size_t errors_bytes = comm->rank_count * sizeof(*dev->peer_errors);
    IST_RETURN_IF_ERROR(cuda_pinned_take(comm->owner, errors_bytes, &dev->errors));
    dev->peer_errors = cuda_pinned_host(dev->errors);
    memset(dev->peer_errors, 0, errors_bytes);
    /* NCCL has few contexts and decides which of ours share one: numbers are distinct over all. */
    cuda_nccl_counts counts = {.contexts = desc->context_count,
                               .signals = desc->context_count * desc->signal_count,
                               .counters = desc->context_count *
                                           (desc->counter_count + open->at.flush_block_count)};
    IST_RETURN_IF_ERROR(cuda_nccl_devcomm_open(comm, &counts, dev->peer_errors, &dev->nccl));
    ++comm->owner->gin_count;
    (void)cuda_nccl_devcomm_bytes(dev->nccl, bytes);
    return IST_OK;
}

/* The resource window is a target of puts too. */
static ist_status network_register(opening *open)
{
    cuda_devcomm *dev = open->dev;
    if (dev->nccl == NULL || dev->resource_chunk == NULL) {
        return IST_OK;
    }
    return cuda_nccl_window_open(open->comm, dev->mapping.local, open->at.resource_bytes,
                                 &dev->mapping.nccl);
}

/* ---- the image ------------------------------------------------------------------------------- */

static void *device_at(const cuda_devcomm *dev, uint64_t offset)
{
    return (void *)(uintptr_t)(dev->base + offset);
}

static void image_public(const opening *open, ist_dev_comm *image)
{
    const cuda_comm *comm = open->comm;
    const ist_devcomm_desc *desc = open->desc;
    *image = (ist_dev_comm){.rank = comm->rank,
                            .rank_count = comm->rank_count,
                            .lsa_rank = comm->lsa_rank,
                            .lsa_size = comm->lsa_size,
                            .context_count = desc->context_count,
                            .signal_count = desc->signal_count,
                            .counter_count = desc->counter_count,
                            .lsa_barrier_count = desc->lsa_barrier_count,
                            .window_count = CUDA_WINDOW_COUNT_MAX,
                            .windows = device_at(open->dev, open->at.windows_at),
                            .mask = desc->mask,
                            .backend = device_at(open->dev, open->at.private_at)};
}

static void image_private(const opening *open, ist_cuda_dev_comm *image)
{
    const cuda_devcomm *dev = open->dev;
    const layout *at = &open->at;
    bool barriers = open->desc->lsa_barrier_count > 0;
    uint64_t barriers_table = at->members_at + 2u * open->comm->lsa_size * sizeof(void *);
    *image = (ist_cuda_dev_comm){
        .barriers_own = barriers ? (uint64_t *)(uintptr_t)(dev->resource + at->barriers_at) : NULL,
        .barriers = barriers ? device_at(dev, barriers_table) : NULL,
        .nccl = dev->nccl != NULL ? device_at(dev, at->nccl_at) : NULL,
        .flush_issued = device_at(dev, at->flush_at),
        .counter_issued = device_at(dev, at->counters_at),
        .flush_block_count = at->flush_block_count,
        .values = (uint64_t *)(uintptr_t)(dev->resource + at->values_at),
        .values_offset = at->values_at,
        .values_used = device_at(dev, at->values_used_at),
        .peer_errors = dev->peer_errors};
}

static void image_windows(const opening *open, ist_dev_window *windows)
{
    const cuda_devcomm *dev = open->dev;
    windows[0] = (ist_dev_window){.bytes = open->desc->resource_bytes,
                                  .local = dev->mapping.local,
                                  .lsa = device_at(dev, open->at.members_at),
                                  .backend = dev->mapping.nccl};
    for (uint32_t i = 1; i < CUDA_WINDOW_COUNT_MAX; ++i) {
        windows[i] = cuda_window_entry(open->comm, i);
    }
}

static void image_members(const opening *open, void **members)
{
    uint32_t lsa_size = open->comm->lsa_size;
    for (uint32_t member = 0; member < lsa_size; ++member) {
        uint8_t *base = open->dev->mapping.members[member];
        members[member] = base;
        members[lsa_size + member] =
            base != NULL ? (void *)(uintptr_t)open->desc->resource_bytes : NULL;
        members[2u * lsa_size + member] = base != NULL ? base + open->at.barriers_at : NULL;
    }
}

static ist_status image_write(opening *open)
{
    const layout *at = &open->at;
    uint8_t *image = ist_alloc(1, at->bytes);
    if (image == NULL) {
        return cuda_fail_memory(open->comm->owner, "a device communicator");
    }
    size_t nccl_bytes = 0;
    const void *nccl =
        open->dev->nccl != NULL ? cuda_nccl_devcomm_bytes(open->dev->nccl, &nccl_bytes) : NULL;
    image_public(open, (ist_dev_comm *)(void *)image);
    image_private(open, (ist_cuda_dev_comm *)(void *)(image + at->private_at));
    image_windows(open, (ist_dev_window *)(void *)(image + at->windows_at));
    image_members(open, (void **)(void *)(image + at->members_at));
    if (nccl != NULL) {
        memcpy(image + at->nccl_at, nccl, nccl_bytes);
    }
    ist_status status = cuda_copy_now(open->comm->owner, open->dev->base, image, at->bytes, true);
    ist_free(image);
    return status;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void devcomm_free(cuda_comm *comm, cuda_devcomm *dev)
{
    cuda_rank *rank = comm->owner;
    cuda_mapping_close(comm, &dev->mapping);
    if (dev->nccl != NULL) {
        cuda_nccl_devcomm_close(comm, dev->nccl);
        --rank->gin_count;
    }
    if (dev->errors != NULL) {
        cuda_pinned_give(rank, dev->errors);
    }
    if (dev->resource_chunk != NULL) {
        cuda_heap_free(rank, dev->resource_chunk, dev->resource);
    }
    if (dev->chunk != NULL) {
        cuda_heap_free(rank, dev->chunk, dev->base);
    }
    ist_free(dev);
}

/*
 * Kernels in flight read these tables: when they do not end in time, what they use stays until the
 * rank ends. A fault would spoil the device for everybody.
 */
static ist_status devcomm_retire(cuda_comm *comm, cuda_devcomm *dev)
{
    ist_status status = cuda_streams_await(comm->owner, comm->deadline_ns, "dev_comm.close");
    if (status != IST_ERR_TIMEOUT) {
        devcomm_free(comm, dev);
    }
    return status;
}

static ist_status devcomm_fill(opening *open)
{
    cuda_comm *comm = open->comm;
    cuda_devcomm *dev = open->dev;
    size_t nccl_bytes = 0;
    open->at = make_layout(comm, open->desc, 0);
    IST_RETURN_IF_ERROR(resource_open(open));
    IST_RETURN_IF_ERROR(network_open(open, &nccl_bytes));
    open->at = make_layout(comm, open->desc, nccl_bytes);
    IST_RETURN_IF_ERROR(network_register(open));
    IST_RETURN_IF_ERROR(cuda_window_table(comm));
    IST_RETURN_IF_ERROR(cuda_heap_alloc(comm->owner, open->at.bytes, &dev->chunk, &dev->base));
    dev->windows_at = open->at.windows_at;
    return image_write(open);
}

static ist_status devcomm_open(cuda_comm *comm, const ist_devcomm_desc *desc, cuda_devcomm **result)
{
    opening open = {.comm = comm, .desc = desc, .dev = ist_alloc(1, sizeof(*open.dev))};
    if (open.dev == NULL) {
        return cuda_fail_memory(comm->owner, "a device communicator");
    }
    ist_status status = devcomm_fill(&open);
    if (status != IST_OK) {
        devcomm_free(comm, open.dev);
        return status;
    }
    open.dev->next = comm->devcomms;
    comm->devcomms = open.dev;
    *result = open.dev;
    return IST_OK;
}

ist_status cuda_devcomm_open(void *self, uint64_t number, const ist_devcomm_desc *desc,
                             const ist_dev_comm **dev)
{
    cuda_devcomm *opened = NULL;
    bool entered = cuda_enter(self);
    ist_status status = devcomm_open(cuda_object(number), desc, &opened);
    cuda_exit(entered);
    if (status == IST_OK) {
        *dev = (const ist_dev_comm *)(uintptr_t)opened->base;
    }
    return status;
}

ist_status cuda_devcomm_close(void *self, uint64_t number, const ist_dev_comm *dev)
{
    cuda_comm *comm = cuda_object(number);
    for (cuda_devcomm **link = &comm->devcomms; *link != NULL; link = &(*link)->next) {
        cuda_devcomm *one = *link;
        if (one->base == (CUdeviceptr)(uintptr_t)dev) {
            *link = one->next;
            bool entered = cuda_enter(self);
            ist_status status = devcomm_retire(comm, one);
            cuda_exit(entered);
            return status;
        }
    }
    return ist_raise(IST_ERR_OBJECT, NULL, "the device communicator is closed already");
}

ist_status cuda_devcomms_publish(cuda_comm *comm, uint32_t index)
{
    for (const cuda_devcomm *dev = comm->devcomms; dev != NULL; dev = dev->next) {
        ist_dev_window entry = cuda_window_entry(comm, index);
        IST_RETURN_IF_ERROR(cuda_copy_now(comm->owner,
                                          dev->base + dev->windows_at + index * sizeof(entry),
                                          &entry, sizeof(entry), true));
    }
    return IST_OK;
}

void cuda_devcomms_close(cuda_comm *comm)
{
    while (comm->devcomms != NULL) {
        cuda_devcomm *dev = comm->devcomms;
        comm->devcomms = dev->next;
        (void)devcomm_retire(comm, dev);
    }
}
