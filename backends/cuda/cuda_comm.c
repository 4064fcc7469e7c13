/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators: members meet by id, learn where the others run, choose how they reach each other, and
 * exchange bytes.
 */
#include "cuda_comm.h"
#include "cuda_coll.h"

#include <string.h>

/* ---- calls to the meeting -------------------------------------------------------------------- */

static ist_status raise_join(const cuda_comm *comm, const cuda_call *call, uint64_t waited_ns)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = IST_RANK_NONE,
                         .object = "comm",
                         .operation = "comm.open",
                         .expected = call->expected,
                         .observed = call->observed,
                         .waited_ns = waited_ns};
    if (call->status == IST_ERR_TIMEOUT) {
        details.peer = (int32_t)call->peer;
        return ist_raise(IST_ERR_TIMEOUT, &details,
                         "%u of %u ranks came to open the communicator; rank %u did not",
                         (unsigned)call->observed, (unsigned)call->expected, call->peer);
    }
    if (call->peer == UINT32_MAX) {
        return ist_raise(call->status, &details, "another rank could not open the communicator: %s",
                         ist_status_sentence(call->status));
    }
    return call->status == IST_ERR_MISMATCH
               ? ist_raise(IST_ERR_MISMATCH, &details,
                           "rank %u opens the communicator with %u ranks, others with %u",
                           comm->rank, (unsigned)call->observed, (unsigned)call->expected)
               : ist_raise(call->status, &details, "two ranks open the communicator as rank %u",
                           comm->rank);
}

static ist_status raise_exchange(const cuda_comm *comm, const cuda_call *call)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = IST_RANK_NONE,
                         .object = "bytes",
                         .operation = "comm.exchange",
                         .expected = call->expected,
                         .observed = call->observed};
    if (call->status == IST_ERR_ABORTED) {
        return IST_ERR_ABORTED;
    }
    if (call->status == IST_ERR_MISMATCH) {
        return ist_raise(IST_ERR_MISMATCH, &details,
                         "rank %u is in another collective call than its peers: it brings %llu "
                         "bytes, they %llu",
                         comm->rank, (unsigned long long)call->observed,
                         (unsigned long long)call->expected);
    }
    return ist_raise(call->status, &details, "rank %u cannot meet its peers: %s", comm->rank,
                     ist_status_sentence(call->status));
}

/* One exchange; IST_OK leaves the round in the call. */
static ist_status exchange(cuda_comm *comm, const void *send, size_t bytes, int fd,
                           uint64_t deadline_ns, const uint64_t *lost, cuda_call *call)
{
    cuda_endpoint *endpoint = comm->owner->endpoint;
    *call = (cuda_call){.kind = CUDA_CALL_EXCHANGE,
                        .client = comm->owner->index,
                        .member = comm->rank,
                        .rank_count = comm->rank_count,
                        .fd = fd,
                        .comm = comm->number,
                        .deadline_ns = cuda_after_ns(cuda_now_ns(), deadline_ns),
                        .send = send,
                        .bytes = bytes,
                        .lost = lost};
    if (atomic_load(&comm->aborted) != 0) {
        return IST_ERR_ABORTED;
    }
    endpoint->call(endpoint, call);
    return call->status == IST_OK ? IST_OK : raise_exchange(comm, call);
}

void cuda_comm_release(cuda_comm *comm, cuda_call *call)
{
    comm->owner->endpoint->release(comm->owner->endpoint, call);
}

static ist_status check_all_came(cuda_comm *comm, cuda_call *call)
{
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        if (!cuda_bit(call->round->arrived, peer)) {
            ist_error details = {.rank = (int32_t)comm->rank,
                                 .peer = (int32_t)peer,
                                 .object = "comm",
                                 .waited_ns = comm->deadline_ns};
            cuda_comm_release(comm, call);
            return ist_raise(IST_ERR_TIMEOUT, &details, "rank %u of %u did not come within %llu ns",
                             peer, comm->rank_count, (unsigned long long)comm->deadline_ns);
        }
    }
    return IST_OK;
}

ist_status cuda_comm_gather(cuda_comm *comm, const void *send, size_t bytes, int fd,
                            cuda_call *call)
{
    uint64_t *none = ist_alloc(CUDA_WORDS(comm->rank_count), sizeof(*none));
    if (none == NULL) {
        return cuda_fail_memory(comm->owner, "an exchange");
    }
    ist_status status = exchange(comm, send, bytes, fd, comm->deadline_ns, none, call);
    ist_free(none);
    return status == IST_OK ? check_all_came(comm, call) : status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void comm_free(cuda_comm *comm)
{
    cuda_choice_close(comm);
    ist_free(comm->places);
    ist_free(comm);
}

static ist_status comm_join(cuda_comm *comm, const ist_backend_comm_desc *desc)
{
    cuda_place place;
    cuda_endpoint *endpoint = comm->owner->endpoint;
    uint64_t began_ns = cuda_now_ns();
    cuda_place_fill(comm->owner, desc->lsa_size_max, &place);
    cuda_call call = {.kind = CUDA_CALL_JOIN,
                      .client = comm->owner->index,
                      .member = desc->rank,
                      .rank_count = desc->rank_count,
                      .fd = -1,
                      .deadline_ns = cuda_after_ns(began_ns, desc->deadline_ns),
                      .send = &place,
                      .bytes = sizeof(place)};
    memcpy(call.id, desc->id, sizeof(call.id));
    endpoint->call(endpoint, &call);
    if (call.status != IST_OK) {
        return raise_join(comm, &call, cuda_now_ns() - began_ns);
    }
    comm->number = call.comm;
    memcpy(comm->places, call.round->data, comm->rank_count * sizeof(*comm->places));
    endpoint->release(endpoint, &call);
    return IST_OK;
}

/* NCCL is opened only where load and store do not reach. */
static ist_status open_network(cuda_comm *comm)
{
    static const char alone[] =
        "all ranks are in one load/store team, the network is not opened for it";
    static const char off[] = "GIN is switched off (NCCL_GIN_ENABLE=0)";
    bool several = comm->lsa_size < comm->rank_count;
    if (several && comm->choice.gin_off == 0) {
        return cuda_nccl_open(comm);
    }
    memcpy(comm->gin_reason, several ? off : alone, several ? sizeof(off) : sizeof(alone));
    return IST_OK;
}

static ist_status comm_new(cuda_rank *rank, const ist_backend_comm_desc *desc, cuda_comm **result)
{
    cuda_comm *comm = ist_alloc(1, sizeof(*comm));
    if (comm == NULL) {
        return cuda_fail_memory(rank, "a communicator");
    }
    comm->places = ist_alloc(desc->rank_count, sizeof(*comm->places));
    if (comm->places == NULL) {
        comm_free(comm);
        return cuda_fail_memory(rank, "a communicator");
    }
    comm->owner = rank;
    comm->rank = desc->rank;
    comm->rank_count = desc->rank_count;
    comm->deadline_ns = desc->deadline_ns;
    atomic_init(&comm->aborted, 0);
    *result = comm;
    return IST_OK;
}

static ist_status comm_open(cuda_rank *rank, const ist_backend_comm_desc *desc, cuda_comm **result)
{
    cuda_comm *comm = NULL;
    IST_RETURN_IF_ERROR(comm_new(rank, desc, &comm));
    ist_status status = comm_join(comm, desc);
    if (status != IST_OK) {
        comm_free(comm);
        return status;
    }
    status = cuda_choice_open(comm);
    if (status == IST_OK) {
        status = open_network(comm);
    }
    if (status == IST_OK) {
        cuda_choice_tell(comm, rank->index == 0 && !rank->compared);
        rank->compared = true;
    }
    comm->next = rank->comms;
    rank->comms = comm;
    if (status != IST_OK) {
        (void)cuda_comm_close(rank, cuda_number(comm));
        return status;
    }
    *result = comm;
    return IST_OK;
}

ist_status cuda_comm_open(void *self, const ist_backend_comm_desc *desc, uint64_t *number,
                          ist_backend_comm_info *info)
{
    cuda_rank *rank = self;
    cuda_comm *comm = NULL;
    bool entered = cuda_enter(rank);
    ist_status status = comm_open(rank, desc, &comm);
    cuda_exit(entered);
    IST_RETURN_IF_ERROR(status);
    *info = (ist_backend_comm_info){.lsa_rank = comm->lsa_rank,
                                    .lsa_size = comm->lsa_size,
                                    .gin_supported = comm->nccl != NULL ? 1u : 0u,
                                    .gin_reason = comm->nccl != NULL ? NULL : comm->gin_reason};
    *number = cuda_number(comm);
    return IST_OK;
}

ist_status cuda_id_create(void *self, uint8_t *id)
{
    cuda_rank *rank = self;
    /* Distinct in the job: ids of other jobs never meet these. */
    uint64_t words[3] = {UINT64_C(0x43554441494431), rank->index, ++rank->id_count};
    memset(id, 0, 128);
    memcpy(id, words, sizeof(words));
    return IST_OK;
}

/* ---- use and end ----------------------------------------------------------------------------- */

ist_status cuda_comm_exchange(void *self, uint64_t number, const void *send, size_t bytes,
                              void *recv, uint64_t deadline_ns, uint64_t *lost_words)
{
    cuda_call call;
    cuda_comm *comm = cuda_object(number);
    (void)self;
    IST_RETURN_IF_ERROR(exchange(comm, send, bytes, -1, deadline_ns, lost_words, &call));
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        if (cuda_bit(call.round->arrived, i)) {
            cuda_bit_clear(lost_words, i);
        } else {
            cuda_bit_set(lost_words, i);
        }
    }
    if (bytes > 0) {
        memcpy(recv, call.round->data, (size_t)comm->rank_count * bytes);
    }
    cuda_comm_release(comm, &call);
    return IST_OK;
}

ist_status cuda_comm_abort(void *self, uint64_t number)
{
    cuda_comm *comm = cuda_object(number);
    cuda_endpoint *endpoint = comm->owner->endpoint;
    (void)self;
    atomic_store(&comm->aborted, 1);
    endpoint->abort(endpoint, comm->number, comm->rank);
    cuda_coll_abort(comm);
    return IST_OK;
}

static void comm_take_down(cuda_comm *comm)
{
    cuda_coll_drop(comm);
    cuda_devcomms_close(comm);
    cuda_windows_close(comm);
    cuda_nccl_close(comm);
    if (comm->table_chunk != NULL) {
        cuda_heap_free(comm->owner, comm->table_chunk, comm->table);
    }
    comm->owner->endpoint->leave(comm->owner->endpoint, comm->number, comm->rank);
    comm_free(comm);
}

ist_status cuda_comm_close(void *self, uint64_t number)
{
    cuda_rank *rank = self;
    cuda_comm *comm = cuda_object(number);
    cuda_comm **link = &rank->comms;
    while (*link != NULL && *link != comm) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = comm->next;
        bool entered = cuda_enter(rank);
        comm_take_down(comm);
        cuda_exit(entered);
    }
    return IST_OK;
}

void cuda_comms_close(cuda_rank *rank)
{
    while (rank->comms != NULL) {
        (void)cuda_comm_close(rank, cuda_number(rank->comms));
    }
}
