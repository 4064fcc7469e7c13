/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source's side: operations wait in a queue for each peer, are cut into pieces that fit, and are
 * published once their bytes have arrived in the ring. A peer that takes nothing for too long, or is
 * gone, is a network error: what was meant for it completes without arriving.
 */
#include "gin_comm.h"

#include <stdlib.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

static gin_request *request_new(gin_comm *comm)
{
    gin_request *request = comm->spare;
    if (request != NULL) {
        comm->spare = request->next;
        return request;
    }
    request = calloc(1, sizeof(*request));
    if (request != NULL) {
        request->next_made = comm->made;
        comm->made = request;
    }
    return request;
}

void gin_request_free(gin_comm *comm, gin_request *request)
{
    request->next = comm->spare;
    comm->spare = request;
}

/* A get is done when its reply has come; see gin_apply.c. */
static void request_sent(gin_comm *comm, gin_request *request)
{
    ++comm->sent_count;
    if (request->internal) {
        gin_request_free(comm, request);
    } else if (request->head.kind != GIN_RECORD_GET) {
        request->done = true;
    }
}

static void request_discard(gin_comm *comm, gin_request *request)
{
    gin_comm_fail(comm, 0);
    if (request->internal) {
        gin_request_free(comm, request);
    } else {
        request->done = true;
    }
}

static void strike(gin_comm *comm, gin_request *request, const gin_verdict *verdict)
{
    if (verdict->drop_data) {
        request->source = NULL;
        request->bytes = 0;
        request->head.target_region = 0;
    }
    if (verdict->drop_signal) {
        request->head.signal_region = 0;
    }
    if (verdict->double_signal) {
        request->head.signal_value *= 2;
    }
    request->head.hold = verdict->rounds;
    if (verdict->error) {
        gin_comm_fail(comm, verdict->queries);
    }
    bool nothing_left = verdict->drop_data && verdict->drop_signal;
    request->done = nothing_left;
    comm->struck_count +=
        verdict->drop_data || verdict->drop_signal || verdict->double_signal || verdict->rounds > 0;
}

gin_result gin_post(gin_comm *comm, const gin_request *what, gin_request **result)
{
    gin_request *request = request_new(comm);
    if (request == NULL) {
        return GIN_SYSTEM_ERROR;
    }
    gin_request *next_made = request->next_made;
    *request = *what;
    request->next_made = next_made;
    gin_peer *peer = &comm->peers[request->peer];
    if (!request->internal) {
        gin_op_name name = {comm->rank, request->peer, comm->number, peer->op_count++};
        gin_verdict verdict = gin_plan_decide(&comm->plan, &name);
        strike(comm, request, &verdict);
    }
    if (request->head.kind == GIN_RECORD_GET) {
        request->head.token = (uint64_t)(uintptr_t)request;
    }
    if (!request->done) {
        *(peer->first == NULL ? &peer->first : &peer->last->next) = request;
        peer->last = request;
    }
    *result = request;
    return GIN_OK;
}

bool gin_request_test(gin_comm *comm, gin_request *request)
{
    if (!request->done) {
        return false;
    }
    gin_request_free(comm, request);
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static gin_request *unlink_first(gin_peer *peer)
{
    gin_request *request = peer->first;
    peer->first = request->next;
    request->next = NULL;
    return request;
}

static void fill_record(gin_record *record, const gin_request *request, uint64_t piece, bool last)
{
    const gin_record *head = &request->head;
    record->kind = head->kind;
    record->target_region = head->target_region;
    record->target_offset = head->target_offset + request->sent;
    record->hold = request->sent == 0 ? head->hold : 0;
    record->bytes = head->kind == GIN_RECORD_GET ? head->bytes : piece;
    if (last) {
        record->signal_region = head->signal_region;
        record->signal_offset = head->signal_offset;
        record->signal_value = head->signal_value;
        record->token = head->token;
    }
}

/* @return whether a copy of the device is under way */
static bool copy_piece(gin_comm *comm, gin_record *record, const gin_request *request,
                       uint64_t piece)
{
    if (piece == 0) {
        return false;
    }
    const uint8_t *from = request->source->base + request->source_offset + request->sent;
    if (request->source->device) {
        gin_lane_from_device(&comm->out, gin_record_payload(record), from, piece);
        return true;
    }
    memcpy(gin_record_payload(record), from, piece);
    return false;
}

static void fly(gin_comm *comm, gin_peer *peer, uint32_t number, bool copies, gin_request *last)
{
    if (!copies && comm->flight_begin == comm->flight_end) {
        gin_ring_publish(&peer->out, peer->out.at);
        if (last != NULL) {
            request_sent(comm, last);
        }
        return;
    }
    uint64_t mark = copies ? gin_lane_mark(&comm->out) : comm->out.marked;
    comm->flights[comm->flight_end++ % GIN_FLIGHTS_MAX] =
        (gin_flight){.mark = mark, .position = peer->out.at, .peer = number, .last = last};
}

/* Whether the peer takes what is sent; counts the time for which it has not. */
static bool takes(gin_comm *comm, gin_peer *peer)
{
    uint64_t head = atomic_load_explicit(&peer->out.control->head, memory_order_relaxed);
    if (peer->gone || atomic_load_explicit(&peer->out.control->closed, memory_order_acquire) != 0) {
        peer->gone = true;
        return false;
    }
    if (peer->full_ns == 0 || head != peer->full_at) {
        peer->full_ns = gin_now_ns();
        peer->full_at = head;
        return true;
    }
    return gin_now_ns() - peer->full_ns < comm->stall_ns;
}

static bool may_copy(const gin_comm *comm)
{
    return comm->flight_end - comm->flight_begin < GIN_FLIGHTS_MAX &&
           (!comm->has_device || gin_lane_may_mark(&comm->out));
}

static bool source_is_gone(const gin_request *request)
{
    return request->source != NULL && !request->source->open;
}

/* @return whether something went on its way */
static bool send_piece(gin_comm *comm, uint32_t number)
{
    gin_peer *peer = &comm->peers[number];
    gin_request *request = peer->first;
    if (request == NULL || !may_copy(comm)) {
        return false;
    }
    if (peer->gone || source_is_gone(request)) {
        request_discard(comm, unlink_first(peer));
        return true;
    }
    uint64_t left = request->bytes - request->sent;
    uint64_t most = gin_ring_payload_max(&peer->out);
    uint64_t piece = left < most ? left : most;
    gin_record *record = gin_ring_reserve(&peer->out, piece);
    if (record == NULL) {
        if (!takes(comm, peer)) {
            GIN_SAY(comm->log, GIN_LOG_WARN, "GIN/Isthmus: rank %u takes nothing from rank %u",
                    number, comm->rank);
            request_discard(comm, unlink_first(peer));
        }
        return false;
    }
    bool last = piece == left;
    peer->full_ns = 0;
    fill_record(record, request, piece, last);
    bool copies = copy_piece(comm, record, request, piece);
    request->sent += piece;
    fly(comm, peer, number, copies, last ? unlink_first(peer) : NULL);
    return true;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void land(gin_comm *comm)
{
    if (comm->has_device) {
        gin_lane_poll(&comm->out);
    }
    while (comm->flight_begin != comm->flight_end) {
        const gin_flight *flight = &comm->flights[comm->flight_begin % GIN_FLIGHTS_MAX];
        if (flight->mark > comm->out.reached) {
            return;
        }
        gin_ring_publish(&comm->peers[flight->peer].out, flight->position);
        if (flight->last != NULL) {
            request_sent(comm, flight->last);
        }
        ++comm->flight_begin;
    }
}

/* A piece of each peer in turn, so that a long put to one does not hold up the others. */
void gin_send_progress(gin_comm *comm)
{
    bool more = true;
    land(comm);
    while (more) {
        more = false;
        for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
            more = send_piece(comm, peer) || more;
        }
    }
}

bool gin_send_idle(const gin_comm *comm)
{
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        if (comm->peers[peer].first != NULL) {
            return false;
        }
    }
    return comm->flight_begin == comm->flight_end;
}
