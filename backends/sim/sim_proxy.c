/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server side of the waist: reads a request, calls the simulator's operation on the rank's own
 * fiber, answers. While a process computes, the whole world waits for its next request: that is
 * what makes a world of processes run exactly as a world of fibers.
 */
#include "sim_proxy.h"
#include "sim_wire.h"

#include <stdio.h>
#include <string.h>

typedef struct sim_request {
    sim_rank *rank;
    int socket;
    sim_message message; /* numbers in and out */
    uint8_t *in;         /* bytes that came with it */
    void *out;           /* bytes of the answer, ours */
    size_t out_bytes;
} sim_request;

static void *sim_unpack(uint64_t number)
{
    return (void *)(uintptr_t)number;
}

static ist_status sim_reserve(sim_request *request, size_t bytes)
{
    request->out = ist_alloc(1, bytes == 0 ? 1 : bytes);
    if (request->out == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for an answer of %zu bytes", bytes);
    }
    request->out_bytes = bytes;
    return IST_OK;
}

/* ---- operations that carry more than numbers --------------------------------------------------- */

static ist_status sim_serve_caps(sim_request *request)
{
    sim_wire_caps wire;
    memset(&wire, 0, sizeof(wire));
    wire.caps.size = sizeof(wire.caps);
    IST_RETURN_IF_ERROR(sim_ops.caps(request->rank, &wire.caps));
    (void)snprintf(wire.device_name, sizeof(wire.device_name), "%s", wire.caps.device_name);
    if (wire.caps.gin_reason != NULL) {
        (void)snprintf(wire.gin_reason, sizeof(wire.gin_reason), "%s", wire.caps.gin_reason);
    }
    IST_RETURN_IF_ERROR(sim_reserve(request, sizeof(wire)));
    memcpy(request->out, &wire, sizeof(wire));
    return IST_OK;
}

static ist_status sim_serve_peek(sim_request *request)
{
    const uint64_t *n = request->message.n;
    IST_RETURN_IF_ERROR(sim_reserve(request, n[1]));
    return sim_ops.mem_peek(request->rank, sim_unpack(n[0]), request->out, n[1]);
}

static ist_status sim_serve_copy_out(sim_request *request)
{
    const uint64_t *n = request->message.n;
    IST_RETURN_IF_ERROR(sim_reserve(request, n[2]));
    return sim_ops.copy_out(request->rank, n[0], request->out, sim_unpack(n[1]), n[2], n[3]);
}

static ist_status sim_serve_comm_open(sim_request *request)
{
    ist_backend_comm_desc desc;
    ist_backend_comm_info info;
    uint64_t comm = 0;
    memcpy(&desc, request->in, sizeof(desc));
    IST_RETURN_IF_ERROR(sim_ops.comm_open(request->rank, &desc, &comm, &info));
    request->message.n[0] = comm;
    request->message.n[1] = info.lsa_rank;
    request->message.n[2] = info.lsa_size;
    request->message.n[3] = info.gin_supported;
    IST_RETURN_IF_ERROR(sim_reserve(request, 96));
    (void)snprintf(request->out, 96, "%s", info.gin_reason != NULL ? info.gin_reason : "");
    return IST_OK;
}

/* Two steps: the process learns how many words of lost ranks there are, then sends them. */
static ist_status sim_serve_exchange(sim_request *request)
{
    const sim_member *member = sim_unpack(request->message.n[0]);
    uint64_t comm = request->message.n[0];
    size_t bytes = request->message.n[1];
    uint64_t deadline_ns = request->message.n[2];
    size_t words = (member->comm->rank_count + 63u) / 64u;
    sim_message answer = {.op = SIM_WIRE_comm_exchange, .n = {words}};
    IST_RETURN_IF_ERROR(sim_wire_send(request->socket, &answer, NULL));
    IST_RETURN_IF_ERROR(sim_wire_receive(request->socket, &answer));
    if (answer.bytes != words * sizeof(uint64_t)) {
        return ist_raise(IST_ERR_INTERNAL, NULL, "an exchange with %llu bytes of lost ranks",
                         (unsigned long long)answer.bytes);
    }
    IST_RETURN_IF_ERROR(
        sim_reserve(request, words * sizeof(uint64_t) + member->comm->rank_count * bytes));
    uint64_t *lost = request->out;
    IST_RETURN_IF_ERROR(sim_wire_receive_bytes(request->socket, lost, answer.bytes));
    return sim_ops.comm_exchange(request->rank, comm, request->in, bytes, lost + words, deadline_ns,
                                 lost);
}

static ist_status sim_serve_devcomm_open(sim_request *request)
{
    ist_devcomm_desc desc;
    const ist_dev_comm *dev = NULL;
    memcpy(&desc, request->in, sizeof(desc));
    IST_RETURN_IF_ERROR(sim_ops.devcomm_open(request->rank, request->message.n[0], &desc, &dev));
    request->message.n[0] = (uint64_t)(uintptr_t)dev;
    return IST_OK;
}

static ist_status sim_serve_launch(sim_request *request)
{
    const uint64_t *n = request->message.n;
    char name[SIM_WIRE_KERNEL_NAME_MAX];
    memcpy(name, request->in, sizeof(name));
    name[sizeof(name) - 1] = '\0';
    const ist_kernel *kernel = ist_kernel_find(name);
    if (kernel == NULL) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "kernel %s is not linked into the program of rank 0", name);
    }
    return sim_ops.launch(request->rank, n[0], kernel, (uint32_t)n[1],
                          request->in + SIM_WIRE_KERNEL_NAME_MAX, n[2]);
}

static ist_status sim_serve_coll_enqueue(sim_request *request)
{
    const ist_backend_coll *calls = (const ist_backend_coll *)(const void *)request->in;
    return sim_ops.coll_enqueue(request->rank, calls, (uint32_t)request->message.n[0]);
}

/* The record of a failure is no failure of the request. */
static ist_status sim_serve_coll_status(sim_request *request)
{
    ist_error why = {.size = sizeof(why)};
    ist_status status = sim_ops.coll_status(request->rank, request->message.n[0], &why);
    if (status < 0 && why.status == IST_OK) {
        return status;
    }
    IST_RETURN_IF_ERROR(sim_reserve(request, sizeof(why)));
    memcpy(request->out, &why, sizeof(why));
    return IST_OK;
}

static ist_status sim_serve_coll_info(sim_request *request)
{
    ist_backend_coll_info info;
    IST_RETURN_IF_ERROR(sim_ops.coll_info(request->rank, &info));
    request->message.n[0] = info.library_version;
    request->message.n[1] = info.all_to_all_native;
    return IST_OK;
}

static ist_status sim_serve_comm_ground(sim_request *request)
{
    const sim_member *member = sim_unpack(request->message.n[0]);
    uint32_t rank_count = member->comm->rank_count;
    ist_backend_ground ground = {.rank_count = rank_count};
    IST_RETURN_IF_ERROR(sim_reserve(request, sizeof(ground) + rank_count * sizeof(uint32_t)));
    uint8_t *out = request->out;
    IST_RETURN_IF_ERROR(sim_ops.comm_ground(request->rank, request->message.n[0], &ground,
                                            (uint32_t *)(void *)(out + sizeof(ground)), NULL));
    memcpy(out, &ground, sizeof(ground));
    return IST_OK;
}

static ist_status sim_serve_mem_query(sim_request *request)
{
    uint32_t flags = 0;
    uint64_t *n = request->message.n;
    IST_RETURN_IF_ERROR(sim_ops.mem_query(request->rank, sim_unpack(n[0]), n[1], &flags));
    n[0] = flags;
    return IST_OK;
}

static ist_status sim_serve_mem_alloc(sim_request *request)
{
    void *mem = NULL;
    uint64_t *n = request->message.n;
    IST_RETURN_IF_ERROR(sim_ops.mem_alloc(request->rank, n[0], (uint32_t)n[1], &mem));
    n[0] = (uint64_t)(uintptr_t)mem;
    return IST_OK;
}

static ist_status sim_serve_window_open(sim_request *request)
{
    uint32_t index = 0;
    uint64_t *n = request->message.n;
    IST_RETURN_IF_ERROR(sim_ops.window_open(request->rank, n[0], sim_unpack(n[1]), n[2], &index));
    n[0] = index;
    return IST_OK;
}

static ist_status sim_serve_id(sim_request *request)
{
    IST_RETURN_IF_ERROR(sim_reserve(request, sizeof(((ist_backend_comm_desc *)0)->id)));
    return sim_ops.id_create(request->rank, request->out);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static ist_status sim_serve(sim_request *request)
{
    sim_rank *rank = request->rank;
    uint64_t *n = request->message.n;
    uint8_t *in = request->in;
    switch ((sim_wire_op)request->message.op) {
    case SIM_WIRE_caps: return sim_serve_caps(request);
    case SIM_WIRE_clock: return sim_ops.clock(rank, &n[0]);
    case SIM_WIRE_sleep: return sim_ops.sleep(rank, n[0]);
    case SIM_WIRE_mem_alloc: return sim_serve_mem_alloc(request);
    case SIM_WIRE_mem_free: return sim_ops.mem_free(rank, sim_unpack(n[0]));
    case SIM_WIRE_mem_query: return sim_serve_mem_query(request);
    case SIM_WIRE_mem_peek: return sim_serve_peek(request);
    case SIM_WIRE_mem_poke: return sim_ops.mem_poke(rank, sim_unpack(n[0]), in, n[1]);
    case SIM_WIRE_stream_open: return sim_ops.stream_open(rank, &n[0]);
    case SIM_WIRE_stream_close: return sim_ops.stream_close(rank, n[0]);
    case SIM_WIRE_stream_sync: return sim_ops.stream_sync(rank, n[0], n[1]);
    case SIM_WIRE_stream_query: return sim_ops.stream_query(rank, n[0]);
    case SIM_WIRE_copy_in: return sim_ops.copy_in(rank, n[0], sim_unpack(n[1]), in, n[2]);
    case SIM_WIRE_copy_out: return sim_serve_copy_out(request);
    case SIM_WIRE_copy_local:
        return sim_ops.copy_local(rank, n[0], sim_unpack(n[1]), sim_unpack(n[2]), n[3]);
    case SIM_WIRE_fill: return sim_ops.fill(rank, n[0], sim_unpack(n[1]), (uint8_t)n[2], n[3]);
    case SIM_WIRE_event_open: return sim_ops.event_open(rank, &n[0]);
    case SIM_WIRE_event_close: return sim_ops.event_close(rank, n[0]);
    case SIM_WIRE_event_record: return sim_ops.event_record(rank, n[0], n[1]);
    case SIM_WIRE_event_wait: return sim_ops.event_wait(rank, n[0], n[1]);
    case SIM_WIRE_event_sync: return sim_ops.event_sync(rank, n[0], n[1]);
    case SIM_WIRE_event_query: return sim_ops.event_query(rank, n[0]);
    case SIM_WIRE_event_elapsed: return sim_ops.event_elapsed(rank, n[0], n[1], &n[0]);
    case SIM_WIRE_graph_begin: return sim_ops.graph_begin(rank, n[0]);
    case SIM_WIRE_graph_end: return sim_ops.graph_end(rank, n[0], &n[0]);
    case SIM_WIRE_graph_launch: return sim_ops.graph_launch(rank, n[0], n[1]);
    case SIM_WIRE_graph_close: return sim_ops.graph_close(rank, n[0]);
    case SIM_WIRE_id_create: return sim_serve_id(request);
    case SIM_WIRE_comm_open: return sim_serve_comm_open(request);
    case SIM_WIRE_comm_close: return sim_ops.comm_close(rank, n[0]);
    case SIM_WIRE_comm_abort: return sim_ops.comm_abort(rank, n[0]);
    case SIM_WIRE_comm_exchange: return sim_serve_exchange(request);
    case SIM_WIRE_window_open: return sim_serve_window_open(request);
    case SIM_WIRE_window_close: return sim_ops.window_close(rank, n[0], (uint32_t)n[1]);
    case SIM_WIRE_devcomm_open: return sim_serve_devcomm_open(request);
    case SIM_WIRE_devcomm_close: return sim_ops.devcomm_close(rank, n[0], sim_unpack(n[1]));
    case SIM_WIRE_launch: return sim_serve_launch(request);
    case SIM_WIRE_coll_info: return sim_serve_coll_info(request);
    case SIM_WIRE_coll_open: return sim_ops.coll_open(rank, n[0], n[1]);
    case SIM_WIRE_coll_close: return sim_ops.coll_close(rank, n[0]);
    case SIM_WIRE_coll_enqueue: return sim_serve_coll_enqueue(request);
    case SIM_WIRE_coll_status: return sim_serve_coll_status(request);
    case SIM_WIRE_coll_estimate:
        return sim_ops.coll_estimate(rank, (const ist_backend_coll *)(const void *)in, &n[0]);
    case SIM_WIRE_comm_ground: return sim_serve_comm_ground(request);
    case SIM_WIRE_HELLO:
    case SIM_WIRE_END: break;
    }
    return ist_raise(IST_ERR_INTERNAL, NULL, "unknown request %u", request->message.op);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static ist_status sim_request_receive(sim_request *request, const sim_proxy *proxy)
{
    if (!sim_wire_ready(proxy->socket, proxy->timeout_ms)) {
        return ist_raise(IST_ERR_TIMEOUT, NULL, "the process of rank %u made no call for %d ms",
                         request->rank->index, proxy->timeout_ms);
    }
    IST_RETURN_IF_ERROR(sim_wire_receive(proxy->socket, &request->message));
    if (request->message.bytes == 0) {
        return IST_OK;
    }
    request->in = ist_alloc(1, request->message.bytes);
    if (request->in == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a request of %llu bytes",
                         (unsigned long long)request->message.bytes);
    }
    return sim_wire_receive_bytes(proxy->socket, request->in, request->message.bytes);
}

static ist_status sim_request_answer(sim_request *request, ist_status status)
{
    sim_message *message = &request->message;
    message->status = status;
    message->bytes = status >= 0 ? request->out_bytes : 0;
    memset(&message->error, 0, sizeof(message->error));
    if (status < 0 && request->rank->error.status == status) {
        message->error = request->rank->error;
    }
    return sim_wire_send(request->socket, message, request->out);
}

static void sim_request_fini(sim_request *request)
{
    ist_free(request->in);
    ist_free(request->out);
}

/* The process is gone, in whatever way: its rank is dead from here on. */
static ist_status sim_proxy_lost(sim_rank *rank, sim_proxy *proxy)
{
    if (!rank->dead) {
        ist_log(IST_LOG_WARN, "the process of rank %u is gone: the rank is dead", rank->index);
        sim_rank_kill(rank);
    }
    (void)proxy;
    return IST_ERR_KILLED;
}

ist_status sim_proxy_serve(sim_rank *rank, sim_proxy *proxy)
{
    while (!rank->dead) {
        sim_request request = {.rank = rank, .socket = proxy->socket};
        ist_status status = sim_request_receive(&request, proxy);
        bool ended = status == IST_OK && request.message.op == SIM_WIRE_END;
        ist_status program = ended ? (ist_status)(int64_t)request.message.n[0] : IST_OK;
        if (status == IST_OK && !ended) {
            ist_status result = sim_serve(&request);
            status = rank->dead ? IST_ERR_KILLED : sim_request_answer(&request, result);
        }
        sim_request_fini(&request);
        if (ended) {
            return program;
        }
        if (status != IST_OK) {
            return sim_proxy_lost(rank, proxy);
        }
    }
    return IST_ERR_KILLED;
}
