/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: each rank offers a range of its memory, all map the ranges of their team, and device
 * code finds the addresses in tables. Numbers are the lowest that is free on all ranks.
 */
#include "cuda_comm.h"

#include <string.h>
#include <unistd.h>

static void used_numbers(const cuda_comm *comm, uint64_t *used)
{
    used[0] |= 1u; /* the resource window of device communicators */
    for (uint32_t i = 1; i < CUDA_WINDOW_COUNT_MAX; ++i) {
        if (comm->windows[i] != NULL) {
            cuda_bit_set(used, i);
        }
    }
}

/* Ranks close windows on their own, so a number may be taken on some only. */
static uint32_t free_number(const cuda_comm *comm, const cuda_round *round)
{
    const cuda_offer *offers = (const cuda_offer *)(const void *)round->data;
    for (uint32_t number = 1; number < CUDA_WINDOW_COUNT_MAX; ++number) {
        bool taken = false;
        for (uint32_t peer = 0; !taken && peer < comm->rank_count; ++peer) {
            taken = cuda_bit(offers[peer].used, number);
        }
        if (!taken) {
            return number;
        }
    }
    return 0;
}

/* Members' addresses, then their bytes. */
static size_t row_bytes(const cuda_comm *comm)
{
    return 2u * (size_t)comm->lsa_size * sizeof(void *);
}

ist_status cuda_window_table(cuda_comm *comm)
{
    if (comm->table_chunk != NULL) {
        return IST_OK;
    }
    return cuda_heap_alloc(comm->owner, CUDA_WINDOW_COUNT_MAX * row_bytes(comm), &comm->table_chunk,
                           &comm->table);
}

static CUdeviceptr table_row(const cuda_comm *comm, uint32_t index)
{
    return comm->table + (CUdeviceptr)index * row_bytes(comm);
}

ist_dev_window cuda_window_entry(const cuda_comm *comm, uint32_t index)
{
    const cuda_mapping *mapping = comm->windows[index];
    if (mapping == NULL) {
        return (ist_dev_window){0};
    }
    return (ist_dev_window){.bytes = mapping->bytes,
                            .local = mapping->local,
                            .lsa = (void *const *)(uintptr_t)table_row(comm, index),
                            .backend = mapping->nccl};
}

/* The addresses first, then the entries that point to them. */
static ist_status publish(cuda_comm *comm, uint32_t index)
{
    IST_RETURN_IF_ERROR(cuda_copy_now(comm->owner, table_row(comm, index),
                                      comm->windows[index]->members, row_bytes(comm), true));
    return cuda_devcomms_publish(comm, index);
}

static ist_status find_range(const cuda_comm *comm, const void *mem, size_t bytes,
                             cuda_allocation *found)
{
    if (cuda_memory_find(comm->owner, mem, bytes, found) && !found->pinned) {
        return IST_OK;
    }
    return ist_raise(IST_ERR_ARGUMENT, NULL,
                     "rank %u registers memory that is not symmetric memory of its own",
                     comm->rank);
}

/* What can go wrong on this rank alone; the peers hear of it in the offer. */
static ist_status prepare(cuda_comm *comm, void *mem, size_t bytes, cuda_offer *offer, int *fd,
                          cuda_mapping **mapping)
{
    cuda_allocation found;
    *fd = -1;
    IST_RETURN_IF_ERROR(find_range(comm, mem, bytes, &found));
    IST_RETURN_IF_ERROR(cuda_window_table(comm));
    *mapping = ist_alloc(1, sizeof(**mapping));
    if (*mapping == NULL) {
        return cuda_fail_memory(comm->owner, "a window");
    }
    return cuda_offer_fill(comm, found.chunk, (CUdeviceptr)(uintptr_t)mem, bytes, offer, fd);
}

static ist_status open_on_round(cuda_comm *comm, cuda_round *round, void *mem, size_t bytes,
                                cuda_mapping *mapping, uint32_t *index)
{
    uint32_t number = free_number(comm, round);
    if (number == 0) {
        return ist_raise(IST_ERR_RANGE, NULL, "%u windows of a communicator are the most",
                         CUDA_WINDOW_COUNT_MAX - 1u);
    }
    IST_RETURN_IF_ERROR(cuda_mapping_open(comm, round, mem, mapping));
    ist_status status = IST_OK;
    if (comm->nccl != NULL) {
        status = cuda_nccl_window_open(comm, mem, bytes, &mapping->nccl);
    }
    if (status == IST_OK) {
        comm->windows[number] = mapping;
        status = publish(comm, number);
    }
    if (status != IST_OK) {
        comm->windows[number] = NULL;
        cuda_mapping_close(comm, mapping);
        return status;
    }
    *index = number;
    return IST_OK;
}

static ist_status window_open(cuda_comm *comm, void *mem, size_t bytes, uint32_t *index)
{
    int fd = -1;
    cuda_call call;
    cuda_offer offer = {0};
    cuda_mapping *mapping = NULL;
    ist_status local = prepare(comm, mem, bytes, &offer, &fd, &mapping);
    offer.status = local;
    used_numbers(comm, offer.used);
    ist_status status = cuda_comm_gather(comm, &offer, sizeof(offer), fd, &call);
    if (fd >= 0) {
        (void)close(fd);
    }
    bool met = status == IST_OK;
    status = local != IST_OK ? local : status;
    if (status == IST_OK) {
        status = open_on_round(comm, call.round, mem, bytes, mapping, index);
    }
    if (met) {
        cuda_comm_release(comm, &call);
    }
    if (status != IST_OK) {
        ist_free(mapping);
    }
    return status;
}

ist_status cuda_window_open(void *self, uint64_t number, void *mem, size_t bytes, uint32_t *index)
{
    bool entered = cuda_enter(self);
    ist_status status = window_open(cuda_object(number), mem, bytes, index);
    cuda_exit(entered);
    return status;
}

/* Kernels in flight may still use the addresses: those that do not end in time keep them. */
static ist_status window_close(cuda_comm *comm, uint32_t index)
{
    cuda_mapping *mapping = comm->windows[index];
    comm->windows[index] = NULL;
    ist_status waited = cuda_streams_await(comm->owner, comm->deadline_ns, "window.close");
    ist_status status = cuda_devcomms_publish(comm, index);
    if (waited != IST_ERR_TIMEOUT) {
        cuda_mapping_close(comm, mapping);
        ist_free(mapping);
    }
    return waited != IST_OK ? waited : status;
}

ist_status cuda_window_close(void *self, uint64_t number, uint32_t index)
{
    cuda_comm *comm = cuda_object(number);
    if (index == 0 || index >= CUDA_WINDOW_COUNT_MAX || comm->windows[index] == NULL) {
        return ist_raise(IST_ERR_OBJECT, NULL, "window %u of rank %u is not open", index,
                         comm->rank);
    }
    bool entered = cuda_enter(self);
    ist_status status = window_close(comm, index);
    cuda_exit(entered);
    return status;
}

void cuda_windows_close(cuda_comm *comm)
{
    for (uint32_t i = 1; i < CUDA_WINDOW_COUNT_MAX; ++i) {
        if (comm->windows[i] != NULL) {
            (void)window_close(comm, i);
        }
    }
}
