/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers' memory in this rank's address space. A chunk is mapped once however many windows lie in
 * it, and unmapped with the last of them. Between processes its handle travels as a file
 * descriptor; between threads of one process the owner's mapping serves all.
 */
#include "cuda_comm.h"

#include <string.h>
#include <unistd.h>

/* ---- offering -------------------------------------------------------------------------------- */

static bool any_member_elsewhere(const cuda_comm *comm)
{
    return !comm->owner->world->threads && comm->lsa_size > 1;
}

ist_status cuda_offer_fill(const cuda_comm *comm, const cuda_chunk *chunk, CUdeviceptr base,
                           uint64_t bytes, cuda_offer *offer, int *fd)
{
    const cuda_rank *rank = comm->owner;
    offer->key = chunk->key;
    offer->chunk_bytes = chunk->bytes;
    offer->offset = base - chunk->base;
    offer->bytes = bytes;
    *fd = -1;
    if (any_member_elsewhere(comm)) {
        CUDA_TRY(rank, cuMemExportToShareableHandle, fd, chunk->handle,
                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    return IST_OK;
}

/* ---- importing ------------------------------------------------------------------------------- */

static cuda_import *import_find(const cuda_rank *rank, uint64_t key)
{
    cuda_import *import = rank->imports;
    while (import != NULL && import->key != key) {
        import = import->next;
    }
    return import;
}

static ist_status import_map(const cuda_rank *rank, cuda_import *import)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = rank->device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUDA_TRY(rank, cuMemAddressReserve, &import->base, import->bytes, 0, 0, 0);
    CUresult result = cu.cuMemMap(import->base, import->bytes, 0, import->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cu.cuMemSetAccess(import->base, import->bytes, &access, 1);
        if (result == CUDA_SUCCESS) {
            return IST_OK;
        }
        (void)cu.cuMemUnmap(import->base, import->bytes);
    }
    (void)cu.cuMemAddressFree(import->base, import->bytes);
    return cuda_fail(rank, result, "mapping a peer's memory");
}

static ist_status import_from_fd(const cuda_rank *rank, cuda_import *import, int fd, uint32_t peer)
{
    if (fd < 0) {
        return ist_raise(IST_ERR_SYSTEM, NULL,
                         "rank %u got no descriptor for the memory of rank %u", rank->index, peer);
    }
    CUDA_TRY(rank, cuMemImportFromShareableHandle, &import->handle, (void *)(intptr_t)fd,
             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ist_status status = import_map(rank, import);
    if (status != IST_OK) {
        (void)cu.cuMemRelease(import->handle);
    }
    return status;
}

static ist_status import_from_thread(const cuda_rank *rank, cuda_import *import, uint32_t peer)
{
    import->chunk = cuda_chunk_share(rank->world, import->key);
    if (import->chunk == NULL) {
        return ist_raise(IST_ERR_RANK_LOST, NULL,
                         "the memory that rank %u opened as a window is gone", peer);
    }
    import->base = import->chunk->base;
    return IST_OK;
}

static void import_free(cuda_rank *rank, cuda_import *import)
{
    if (import->chunk != NULL) {
        cuda_chunk_unref(rank->world, import->chunk);
    } else {
        (void)cu.cuMemUnmap(import->base, import->bytes);
        (void)cu.cuMemAddressFree(import->base, import->bytes);
        (void)cu.cuMemRelease(import->handle);
    }
    ist_free(import);
}

static ist_status import_take(cuda_rank *rank, const cuda_offer *offer, int fd, uint32_t peer,
                              cuda_import **result)
{
    cuda_import *import = import_find(rank, offer->key);
    if (import == NULL) {
        import = ist_alloc(1, sizeof(*import));
        if (import == NULL) {
            return cuda_fail_memory(rank, "a peer's memory");
        }
        import->key = offer->key;
        import->bytes = offer->chunk_bytes;
        ist_status status = rank->world->threads ? import_from_thread(rank, import, peer)
                                                 : import_from_fd(rank, import, fd, peer);
        if (status != IST_OK) {
            ist_free(import);
            return status;
        }
        import->next = rank->imports;
        rank->imports = import;
    }
    ++import->uses;
    *result = import;
    return IST_OK;
}

static void import_drop(cuda_rank *rank, cuda_import *import)
{
    if (--import->uses > 0) {
        return;
    }
    cuda_import **link = &rank->imports;
    while (*link != import) {
        link = &(*link)->next;
    }
    *link = import->next;
    import_free(rank, import);
}

void cuda_imports_close(cuda_rank *rank)
{
    while (rank->imports != NULL) {
        cuda_import *import = rank->imports;
        rank->imports = import->next;
        import_free(rank, import);
    }
}

/* ---- mappings -------------------------------------------------------------------------------- */

static ist_status map_member(cuda_comm *comm, cuda_round *round, uint32_t member,
                             cuda_mapping *mapping)
{
    uint32_t peer = comm->rank - comm->lsa_rank + member;
    const cuda_offer *offer = (const cuda_offer *)(const void *)round->data + peer;
    if (offer->status != IST_OK) {
        ist_error details = {
            .rank = (int32_t)comm->rank, .peer = (int32_t)peer, .object = "window"};
        return ist_raise(IST_ERR_MISMATCH, &details, "the call failed on rank %u: %s", peer,
                         ist_status_sentence((ist_status)offer->status));
    }
    mapping->members[comm->lsa_size + member] = (void *)(uintptr_t)offer->bytes;
    if (member == comm->lsa_rank) {
        mapping->members[member] = mapping->local;
        return IST_OK;
    }
    if (offer->bytes == 0) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(import_take(comm->owner, offer, round->fds[peer],
                                    comm->places[peer].world_rank, &mapping->imports[member]));
    mapping->members[member] = (void *)(uintptr_t)(mapping->imports[member]->base + offer->offset);
    return IST_OK;
}

ist_status cuda_mapping_open(cuda_comm *comm, cuda_round *round, void *local, cuda_mapping *mapping)
{
    const cuda_offer *own = (const cuda_offer *)(const void *)round->data + comm->rank;
    memset(mapping, 0, sizeof(*mapping));
    mapping->local = local;
    mapping->bytes = own->bytes;
    mapping->members = ist_alloc(2u * (size_t)comm->lsa_size, sizeof(*mapping->members));
    mapping->imports = ist_alloc(comm->lsa_size, sizeof(*mapping->imports));
    ist_status status = mapping->members != NULL && mapping->imports != NULL
                            ? IST_OK
                            : cuda_fail_memory(comm->owner, "the addresses of peers");
    for (uint32_t member = 0; status == IST_OK && member < comm->lsa_size; ++member) {
        status = map_member(comm, round, member, mapping);
    }
    if (status != IST_OK) {
        cuda_mapping_close(comm, mapping);
    }
    return status;
}

void cuda_mapping_close(cuda_comm *comm, cuda_mapping *mapping)
{
    if (mapping->nccl != NULL) {
        cuda_nccl_window_close(comm, mapping->nccl);
    }
    for (uint32_t member = 0; mapping->imports != NULL && member < comm->lsa_size; ++member) {
        if (mapping->imports[member] != NULL) {
            import_drop(comm->owner, mapping->imports[member]);
        }
    }
    ist_free(mapping->members);
    ist_free(mapping->imports);
    memset(mapping, 0, sizeof(*mapping));
}
