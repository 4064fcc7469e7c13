/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client side of the waist: packs the arguments of an operation, sends them, unpacks the answer.
 * Device addresses and objects are the conductor's; host memory is this process's.
 */
#include "sim_remote.h"
#include "sim_wire.h"

#include <isthmus/device.h>
#include <stdio.h>
#include <string.h>

/* Where the request's and the answer's bytes lie in this process. */
typedef struct sim_call_bytes {
    const void *in;
    size_t in_bytes;
    void *out;
    size_t out_bytes;
} sim_call_bytes;

static uint64_t sim_pack(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

static ist_status sim_remote_failed(const sim_remote *remote, const sim_message *answer)
{
    (void)remote;
    if (answer->status < 0 && answer->error.status < 0) {
        ist_error_adopt(&answer->error); /* the conductor has logged it */
    }
    return (ist_status)answer->status;
}

static ist_status sim_remote_call(void *self, sim_wire_op op, sim_message *message,
                                  const sim_call_bytes *bytes)
{
    sim_remote *remote = self;
    static const sim_call_bytes none = {NULL, 0, NULL, 0};
    bytes = bytes != NULL ? bytes : &none;
    message->op = (uint32_t)op;
    message->bytes = bytes->in_bytes;
    IST_RETURN_IF_ERROR(sim_wire_send(remote->socket, message, bytes->in));
    IST_RETURN_IF_ERROR(sim_wire_receive(remote->socket, message));
    if (message->bytes > bytes->out_bytes) {
        return ist_raise(IST_ERR_INTERNAL, NULL, "an answer of %llu bytes where %zu are expected",
                         (unsigned long long)message->bytes, bytes->out_bytes);
    }
    if (message->bytes > 0) {
        IST_RETURN_IF_ERROR(sim_wire_receive_bytes(remote->socket, bytes->out, message->bytes));
    }
    return sim_remote_failed(remote, message);
}

/* An operation whose arguments are numbers and that answers with a status only. */
#define SIM_REMOTE_NUMBERS(op, params, ...)                                                        \
    static ist_status remote_##op params                                                           \
    {                                                                                              \
        sim_message message = {.n = {__VA_ARGS__}};                                                \
        return sim_remote_call(self, SIM_WIRE_##op, &message, NULL);                               \
    }

/* An operation that answers with one number. */
#define SIM_REMOTE_ONE(op, params, type, result, ...)                                              \
    static ist_status remote_##op params                                                           \
    {                                                                                              \
        sim_message message = {.n = {__VA_ARGS__}};                                                \
        ist_status status = sim_remote_call(self, SIM_WIRE_##op, &message, NULL);                  \
        if (status >= 0) {                                                                         \
            *result = (type)message.n[0];                                                          \
        }                                                                                          \
        return status;                                                                             \
    }

static ist_status remote_caps(void *self, ist_backend_caps *caps)
{
    sim_remote *remote = self;
    sim_message message = {.n = {0}};
    sim_wire_caps wire;
    sim_call_bytes bytes = {NULL, 0, &wire, sizeof(wire)};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_caps, &message, &bytes));
    memcpy(remote->device_name, wire.device_name, sizeof(wire.device_name));
    memcpy(remote->caps_gin_reason, wire.gin_reason, sizeof(wire.gin_reason));
    wire.caps.device_name = remote->device_name;
    wire.caps.gin_reason = wire.gin_reason[0] != '\0' ? remote->caps_gin_reason : NULL;
    uint32_t size = caps->size < sizeof(wire.caps) ? caps->size : (uint32_t)sizeof(wire.caps);
    wire.caps.size = size;
    memcpy(caps, &wire.caps, size);
    return IST_OK;
}

SIM_REMOTE_ONE(clock, (void *self, uint64_t *now_ns), uint64_t, now_ns, 0)
SIM_REMOTE_NUMBERS(sleep, (void *self, uint64_t ns), ns)

static ist_status remote_mem_alloc(void *self, size_t bytes, uint32_t flags, void **mem)
{
    sim_message message = {.n = {bytes, flags}};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_mem_alloc, &message, NULL));
    *mem = (void *)(uintptr_t)message.n[0];
    return IST_OK;
}

SIM_REMOTE_NUMBERS(mem_free, (void *self, void *mem), sim_pack(mem))
SIM_REMOTE_ONE(mem_query, (void *self, const void *mem, size_t count, uint32_t *flags), uint32_t,
               flags, sim_pack(mem), count)

static ist_status remote_mem_peek(void *self, const void *mem, void *host, size_t count)
{
    sim_message message = {.n = {sim_pack(mem), count}};
    sim_call_bytes bytes = {NULL, 0, host, count};
    return sim_remote_call(self, SIM_WIRE_mem_peek, &message, &bytes);
}

static ist_status remote_mem_poke(void *self, void *mem, const void *host, size_t count)
{
    sim_message message = {.n = {sim_pack(mem), count}};
    sim_call_bytes bytes = {host, count, NULL, 0};
    return sim_remote_call(self, SIM_WIRE_mem_poke, &message, &bytes);
}

SIM_REMOTE_ONE(stream_open, (void *self, uint64_t *stream), uint64_t, stream, 0)
SIM_REMOTE_NUMBERS(stream_close, (void *self, uint64_t stream), stream)
SIM_REMOTE_NUMBERS(stream_sync, (void *self, uint64_t stream, uint64_t deadline_ns), stream,
                   deadline_ns)
SIM_REMOTE_NUMBERS(stream_query, (void *self, uint64_t stream), stream)

static ist_status remote_copy_in(void *self, uint64_t stream, void *dst, const void *host,
                                 size_t count)
{
    sim_message message = {.n = {stream, sim_pack(dst), count}};
    sim_call_bytes bytes = {host, count, NULL, 0};
    return sim_remote_call(self, SIM_WIRE_copy_in, &message, &bytes);
}

static ist_status remote_copy_out(void *self, uint64_t stream, void *host, const void *src,
                                  size_t count, uint64_t deadline_ns)
{
    sim_message message = {.n = {stream, sim_pack(src), count, deadline_ns}};
    sim_call_bytes bytes = {NULL, 0, host, count};
    return sim_remote_call(self, SIM_WIRE_copy_out, &message, &bytes);
}

SIM_REMOTE_NUMBERS(copy_local,
                   (void *self, uint64_t stream, void *dst, const void *src, size_t count), stream,
                   sim_pack(dst), sim_pack(src), count)
SIM_REMOTE_NUMBERS(fill, (void *self, uint64_t stream, void *dst, uint8_t value, size_t count),
                   stream, sim_pack(dst), value, count)
SIM_REMOTE_ONE(event_open, (void *self, uint64_t *event), uint64_t, event, 0)
SIM_REMOTE_NUMBERS(event_close, (void *self, uint64_t event), event)
SIM_REMOTE_NUMBERS(event_record, (void *self, uint64_t event, uint64_t stream), event, stream)
SIM_REMOTE_NUMBERS(event_wait, (void *self, uint64_t event, uint64_t stream), event, stream)
SIM_REMOTE_NUMBERS(event_sync, (void *self, uint64_t event, uint64_t deadline_ns), event,
                   deadline_ns)
SIM_REMOTE_NUMBERS(event_query, (void *self, uint64_t event), event)
SIM_REMOTE_ONE(event_elapsed, (void *self, uint64_t start, uint64_t end, uint64_t *elapsed_ns),
               uint64_t, elapsed_ns, start, end)
SIM_REMOTE_NUMBERS(graph_begin, (void *self, uint64_t stream), stream)
SIM_REMOTE_ONE(graph_end, (void *self, uint64_t stream, uint64_t *graph), uint64_t, graph, stream)
SIM_REMOTE_NUMBERS(graph_launch, (void *self, uint64_t graph, uint64_t stream), graph, stream)
SIM_REMOTE_NUMBERS(graph_close, (void *self, uint64_t graph), graph)

static ist_status remote_id_create(void *self, uint8_t *id)
{
    sim_message message = {.n = {0}};
    sim_call_bytes bytes = {NULL, 0, id, sizeof(((ist_backend_comm_desc *)0)->id)};
    return sim_remote_call(self, SIM_WIRE_id_create, &message, &bytes);
}

static ist_status remote_comm_open(void *self, const ist_backend_comm_desc *desc, uint64_t *comm,
                                   ist_backend_comm_info *info)
{
    sim_remote *remote = self;
    sim_message message = {.n = {0}};
    sim_call_bytes bytes = {desc, sizeof(*desc), remote->gin_reason, sizeof(remote->gin_reason)};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_comm_open, &message, &bytes));
    *comm = message.n[0];
    *info = (ist_backend_comm_info){.lsa_rank = (uint32_t)message.n[1],
                                    .lsa_size = (uint32_t)message.n[2],
                                    .gin_supported = (uint32_t)message.n[3],
                                    .gin_reason = message.n[3] != 0 ? NULL : remote->gin_reason};
    return IST_OK;
}

SIM_REMOTE_NUMBERS(comm_close, (void *self, uint64_t comm), comm)
SIM_REMOTE_NUMBERS(comm_abort, (void *self, uint64_t comm), comm)

/* Both directions carry the words of lost ranks in front of the data. */
static ist_status remote_comm_exchange(void *self, uint64_t comm, const void *send, size_t count,
                                       void *recv, uint64_t deadline_ns, uint64_t *lost_words)
{
    sim_remote *remote = self;
    sim_message message = {.n = {comm, count, deadline_ns}};
    message.op = SIM_WIRE_comm_exchange;
    IST_RETURN_IF_ERROR(
        sim_remote_call(self, SIM_WIRE_comm_exchange, &message,
                        &(sim_call_bytes){send, count, NULL, 0})); /* announces the send */
    size_t words = message.n[0];
    message = (sim_message){.op = SIM_WIRE_comm_exchange, .bytes = words * sizeof(uint64_t)};
    IST_RETURN_IF_ERROR(sim_wire_send(remote->socket, &message, lost_words));
    IST_RETURN_IF_ERROR(sim_wire_receive(remote->socket, &message));
    if (message.status < 0) {
        return sim_remote_failed(remote, &message);
    }
    IST_RETURN_IF_ERROR(
        sim_wire_receive_bytes(remote->socket, lost_words, words * sizeof(uint64_t)));
    return sim_wire_receive_bytes(remote->socket, recv, message.bytes - words * sizeof(uint64_t));
}

SIM_REMOTE_ONE(window_open, (void *self, uint64_t comm, void *mem, size_t count, uint32_t *index),
               uint32_t, index, comm, sim_pack(mem), count)
SIM_REMOTE_NUMBERS(window_close, (void *self, uint64_t comm, uint32_t index), comm, index)

static ist_status remote_devcomm_open(void *self, uint64_t comm, const ist_devcomm_desc *desc,
                                      const ist_dev_comm **dev)
{
    sim_message message = {.n = {comm}};
    sim_call_bytes bytes = {desc, sizeof(*desc), NULL, 0};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_devcomm_open, &message, &bytes));
    *dev = (const ist_dev_comm *)(uintptr_t)message.n[0];
    return IST_OK;
}

SIM_REMOTE_NUMBERS(devcomm_close, (void *self, uint64_t comm, const ist_dev_comm *dev), comm,
                   sim_pack(dev))

/* The conductor finds the kernel by name: its address differs between processes. */
static ist_status remote_launch(void *self, uint64_t stream, const ist_kernel *kernel,
                                uint32_t block_count, const void *args, size_t args_bytes)
{
    size_t total = SIM_WIRE_KERNEL_NAME_MAX + args_bytes;
    uint8_t *packed = ist_alloc(1, total);
    if (packed == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %zu bytes of arguments", args_bytes);
    }
    (void)snprintf((char *)packed, SIM_WIRE_KERNEL_NAME_MAX, "%s", kernel->name);
    memcpy(packed + SIM_WIRE_KERNEL_NAME_MAX, args, args_bytes);
    sim_message message = {.n = {stream, block_count, args_bytes}};
    sim_call_bytes bytes = {packed, total, NULL, 0};
    ist_status status = sim_remote_call(self, SIM_WIRE_launch, &message, &bytes);
    ist_free(packed);
    return status;
}

/* Texts are this process's own: those of the conductor are elsewhere. */
static ist_status remote_coll_info(void *self, ist_backend_coll_info *info)
{
    sim_message message = {.n = {0}};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_coll_info, &message, NULL));
    *info = (ist_backend_coll_info){.library_version = (uint32_t)message.n[0],
                                    .all_to_all_native = (uint32_t)message.n[1],
                                    .library = "simulator"};
    return IST_OK;
}

SIM_REMOTE_NUMBERS(coll_open, (void *self, uint64_t comm, uint64_t deadline_ns), comm, deadline_ns)
SIM_REMOTE_NUMBERS(coll_close, (void *self, uint64_t comm), comm)

static ist_status remote_coll_enqueue(void *self, const ist_backend_coll *calls, uint32_t count)
{
    sim_message message = {.n = {count}};
    sim_call_bytes bytes = {calls, count * sizeof(*calls), NULL, 0};
    return sim_remote_call(self, SIM_WIRE_coll_enqueue, &message, &bytes);
}

static ist_status remote_coll_status(void *self, uint64_t comm, ist_error *why)
{
    ist_error record;
    sim_message message = {.n = {comm}};
    sim_call_bytes bytes = {NULL, 0, &record, sizeof(record)};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_coll_status, &message, &bytes));
    *why = record;
    return record.status;
}

static ist_status remote_coll_estimate(void *self, const ist_backend_coll *call, uint64_t *time_ps)
{
    sim_message message = {.n = {0}};
    sim_call_bytes bytes = {call, sizeof(*call), NULL, 0};
    IST_RETURN_IF_ERROR(sim_remote_call(self, SIM_WIRE_coll_estimate, &message, &bytes));
    *time_ps = message.n[0];
    return IST_OK;
}

/* The answer: the struct, then the GPUs. */
static ist_status remote_comm_ground(void *self, uint64_t comm, ist_backend_ground *ground,
                                     uint32_t *gpus, uint64_t *maps)
{
    size_t gpus_bytes = ground->rank_count * sizeof(*gpus);
    uint8_t *answer = ist_alloc(1, sizeof(*ground) + gpus_bytes);
    (void)maps;
    if (answer == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the GPUs of %u ranks",
                         ground->rank_count);
    }
    sim_message message = {.n = {comm}};
    sim_call_bytes bytes = {NULL, 0, answer, sizeof(*ground) + gpus_bytes};
    ist_status status = sim_remote_call(self, SIM_WIRE_comm_ground, &message, &bytes);
    if (status >= 0) {
        memcpy(ground, answer, sizeof(*ground));
        memcpy(gpus, answer + sizeof(*ground), gpus_bytes);
    }
    ist_free(answer);
    return status;
}

const ist_backend_ops sim_remote_ops = {.size = sizeof(sim_remote_ops),
                                        .abi = IST_BACKEND_ABI,
#define X(op, params, args, need) .op = remote_##op,
                                        IST_BACKEND_OPS(X)
#undef X
};
