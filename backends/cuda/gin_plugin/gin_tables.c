/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL finds in this library: ncclNetPlugin_v11 and ncclGinPlugin_v11 (NCCL 2.28), and
 * ncclRmaPlugin_v14 (NCCL 2.30). The network is a stub: 2.28 takes GIN only from a library that has
 * one, and between GPUs of one host it is not used.
 */
#include "gin_comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
/* Of one transfer; NCCL cuts longer ones. */
#define TRANSFER_BYTES_MAX ((size_t)1 << 30)
/* NCCL allows 32 operations in flight for each. A power of two. */
#define RECEIVES_MAX 8
#define GUID UINT64_C(0x697374686d7573)

/* What init gives out. NCCL makes several for one communicator. */
typedef struct instance {
    uint64_t comm_id;
    gin_log_fn log;
} instance;

static char device_name[] = "isthmus-shm";

/* ---- what both interfaces share -------------------------------------------------------------- */

static gin_result plugin_init(void **context, uint64_t comm_id, gin_log_fn log)
{
    instance *made = malloc(sizeof(*made));
    if (made == NULL) {
        return GIN_SYSTEM_ERROR;
    }
    *made = (instance){.comm_id = comm_id, .log = log};
    *context = made;
    return GIN_OK;
}

static gin_result plugin_finalize(void *context)
{
    free(context);
    return GIN_OK;
}

static gin_result plugin_devices(int *count)
{
    *count = 1;
    return GIN_OK;
}

static gin_result plugin_listen(void *context, int device, void *handle, void **listening)
{
    const instance *from = context;
    gin_listener *listener = NULL;
    if (device != 0) {
        return GIN_INVALID_ARGUMENT;
    }
    gin_result result = gin_listen(from != NULL ? from->comm_id : 0,
                                   from != NULL ? from->log : NULL, handle, &listener);
    *listening = listener;
    return result;
}

static gin_result plugin_close_listen(void *listening)
{
    gin_listener_close(listening);
    return GIN_OK;
}

static gin_result plugin_connect(void *context, void **handles, int rank_count, int rank,
                                 void *listening, void **comm)
{
    gin_comm *connected = NULL;
    (void)context;
    gin_result result = gin_connect(listening, handles, rank_count, rank, &connected);
    *comm = connected;
    return result;
}

static gin_result plugin_close_comm(void *comm)
{
    gin_comm_close(comm);
    return GIN_OK;
}

static gin_result plugin_dereg(void *comm, void *memory)
{
    gin_region_close(comm, memory);
    return GIN_OK;
}

static gin_result plugin_query(void *context, bool *failed)
{
    *failed = gin_comms_failed(context);
    return GIN_OK;
}

static gin_result check_ranges(const gin_comm *comm, const gin_request *what, const void *target)
{
    if (what->peer >= comm->rank_count) {
        return GIN_INVALID_ARGUMENT;
    }
    if (what->bytes > 0 &&
        (target == NULL || what->source == NULL ||
         gin_region_range(what->source, what->source_offset, what->bytes) == NULL)) {
        return GIN_INVALID_ARGUMENT;
    }
    return GIN_OK;
}

static gin_result post(gin_comm *comm, const gin_request *what, const void *target, void **request)
{
    gin_request *posted = NULL;
    (void)pthread_mutex_lock(&comm->lock);
    gin_result result = check_ranges(comm, what, target);
    result = result == GIN_OK ? gin_post(comm, what, &posted) : result;
    (void)pthread_mutex_unlock(&comm->lock);
    if (result != GIN_OK) {
        GIN_SAY(comm->log, GIN_LOG_WARN,
                "GIN/Isthmus: rank %u refuses an operation of %llu bytes to rank %u", comm->rank,
                (unsigned long long)what->bytes, what->peer);
    }
    *request = posted;
    return result;
}

static uint32_t number_of(const void *region)
{
    return region != NULL ? ((const gin_region *)region)->number : 0;
}

static gin_request describe_put(uint64_t src_offset, const void *src, size_t bytes,
                                uint64_t dst_offset, const void *dst, uint32_t peer)
{
    return (gin_request){.source = bytes > 0 ? src : NULL,
                         .source_offset = src_offset,
                         .bytes = bytes,
                         .peer = peer,
                         .head = {.kind = GIN_RECORD_PUT,
                                  .target_region = bytes > 0 ? number_of(dst) : 0,
                                  .target_offset = dst_offset}};
}

static gin_result put(gin_comm *comm, gin_request what, const void *dst, void **request)
{
    return post(comm, &what, dst, request);
}

static gin_result put_signal(gin_comm *comm, gin_request what, const void *dst,
                             uint64_t signal_offset, const void *signal, uint64_t value,
                             uint32_t operation, void **request)
{
    if (signal == NULL || (operation != GIN_SIGNAL_INC && operation != GIN_SIGNAL_ADD)) {
        return GIN_INVALID_ARGUMENT;
    }
    what.head.signal_region = number_of(signal);
    what.head.signal_offset = signal_offset;
    what.head.signal_value = operation == GIN_SIGNAL_INC ? 1 : value;
    return post(comm, &what, dst, request);
}

static gin_result test(gin_comm *comm, void *request, int *done)
{
    (void)pthread_mutex_lock(&comm->lock);
    *done = request == NULL || gin_request_test(comm, request) ? 1 : 0;
    (void)pthread_mutex_unlock(&comm->lock);
    return GIN_OK;
}

/* What the device is, in the struct of any release. */
#define PROPERTIES                                                                                 \
    {                                                                                              \
        .name = device_name, .guid = GUID, .memory_kinds = GIN_MEMORY_CUDA, .speed = 200000,       \
        .port = 1, .comms_max = 1 << 20, .receives_max = RECEIVES_MAX,                             \
        .driven_by = GIN_DRIVEN_BY_PROXY, .virtual_devices = {.count = 1},                         \
        .p2p_bytes_max = TRANSFER_BYTES_MAX, .collective_bytes_max = TRANSFER_BYTES_MAX,           \
        .request_count_max = 1                                                                     \
    }

/* ---- GIN v11 --------------------------------------------------------------------------------- */

static gin_result v11_properties(int device, gin_properties_v11 *properties)
{
    if (device != 0) {
        return GIN_INVALID_ARGUMENT;
    }
    *properties = (gin_properties_v11)PROPERTIES;
    return GIN_OK;
}

/* NCCL's own thread makes contexts for transports that it drives. */
static gin_result v11_create_context(void *comm, int signal_count, int counter_count,
                                     void **context, void **offload)
{
    (void)comm;
    (void)signal_count;
    (void)counter_count;
    (void)context;
    (void)offload;
    return GIN_INVALID_USAGE;
}

static gin_result v11_destroy_context(void *context)
{
    (void)context;
    return GIN_OK;
}

static gin_result v11_reg(void *comm, void *data, size_t bytes, int kind, uint64_t flags,
                          void **memory, void **device_memory)
{
    gin_region *region = NULL;
    (void)flags;
    gin_result result = gin_region_open(comm, data, bytes, kind, &region);
    *memory = region;
    *device_memory = region;
    return result;
}

static gin_result v11_reg_dma_buf(void *comm, void *data, size_t bytes, int kind, uint64_t offset,
                                  int fd, uint64_t flags, void **memory, void **device_memory)
{
    (void)offset;
    (void)fd;
    return v11_reg(comm, data, bytes, kind, flags, memory, device_memory);
}

static gin_result v11_iput(void *comm, uint64_t src_offset, void *src, size_t bytes,
                           uint64_t dst_offset, void *dst, uint32_t peer, void **request)
{
    return put(comm, describe_put(src_offset, src, bytes, dst_offset, dst, peer), dst, request);
}

static gin_result v11_iput_signal(void *comm, uint64_t src_offset, void *src, size_t bytes,
                                  uint64_t dst_offset, void *dst, uint32_t peer,
                                  uint64_t signal_offset, void *signal, uint64_t value,
                                  uint32_t operation, void **request)
{
    return put_signal(comm, describe_put(src_offset, src, bytes, dst_offset, dst, peer), dst,
                      signal_offset, signal, value, operation, request);
}

static gin_result v11_test(void *comm, void *request, int *done)
{
    return test(comm, request, done);
}

static gin_result v11_progress(void *comm)
{
    gin_progress(comm);
    return GIN_OK;
}

/* NCCL looks symbols up by these names. */
extern const gin_v11 ncclGinPlugin_v11;
extern const gin_net_v11 ncclNetPlugin_v11;
extern const gin_rma_v14 ncclRmaPlugin_v14;

EXPORTED const gin_v11 ncclGinPlugin_v11 = {.name = "Isthmus",
                                            .init = plugin_init,
                                            .devices = plugin_devices,
                                            .get_properties = v11_properties,
                                            .listen = plugin_listen,
                                            .connect = plugin_connect,
                                            .create_context = v11_create_context,
                                            .reg_mr_sym = v11_reg,
                                            .reg_mr_sym_dma_buf = v11_reg_dma_buf,
                                            .dereg_mr_sym = plugin_dereg,
                                            .destroy_context = v11_destroy_context,
                                            .close_comm = plugin_close_comm,
                                            .close_listen = plugin_close_listen,
                                            .iput = v11_iput,
                                            .iput_signal = v11_iput_signal,
                                            .test = v11_test,
                                            .progress = v11_progress,
                                            .query_last_error = plugin_query,
                                            .finalize = plugin_finalize};

/* ---- RMA v14 --------------------------------------------------------------------------------- */

static gin_result v14_properties(int device, gin_properties_v12 *properties)
{
    if (device != 0) {
        return GIN_INVALID_ARGUMENT;
    }
    *properties = (gin_properties_v12)PROPERTIES;
    return GIN_OK;
}

/*
 * A context is the communicator again: operations carry a channel, their order is that of all channels
 * together. NCCL gives some functions the one and some the other.
 */
static gin_result v14_create_context(void *comm, gin_rma_config *config, void **context)
{
    (void)config;
    *context = comm;
    return GIN_OK;
}

static gin_result v14_destroy_context(void *context)
{
    (void)context;
    return GIN_OK;
}

static gin_result v14_reg(void *comm, void *data, size_t bytes, int kind, uint64_t flags,
                          void **memory)
{
    void *same = NULL;
    return v11_reg(comm, data, bytes, kind, flags, memory, &same);
}

static gin_result v14_reg_dma_buf(void *comm, void *data, size_t bytes, int kind, uint64_t offset,
                                  int fd, uint64_t flags, void **memory)
{
    (void)offset;
    (void)fd;
    return v14_reg(comm, data, bytes, kind, flags, memory);
}

static gin_result v14_iput(void *context, int channel, uint64_t src_offset, void *src, size_t bytes,
                           uint64_t dst_offset, void *dst, uint32_t peer, void **request)
{
    (void)channel;
    return v11_iput(context, src_offset, src, bytes, dst_offset, dst, peer, request);
}

static gin_result v14_iput_signal(void *context, int channel, uint64_t src_offset, void *src,
                                  size_t bytes, uint64_t dst_offset, void *dst, uint32_t peer,
                                  uint64_t signal_offset, void *signal, uint64_t value,
                                  uint32_t operation, bool strong, void **request)
{
    (void)channel;
    (void)strong; /* all are */
    return v11_iput_signal(context, src_offset, src, bytes, dst_offset, dst, peer, signal_offset,
                           signal, value, operation, request);
}

static gin_result v14_iget(void *context, int channel, uint64_t remote_offset, void *remote,
                           size_t bytes, uint64_t local_offset, void *local, uint32_t peer,
                           void **request)
{
    gin_request what = {.peer = peer,
                        .head = {.kind = GIN_RECORD_GET,
                                 .target_region = number_of(local),
                                 .target_offset = local_offset,
                                 .signal_region = number_of(remote),
                                 .signal_offset = remote_offset,
                                 .bytes = bytes}};
    (void)channel;
    if (remote == NULL || local == NULL || gin_region_range(local, local_offset, bytes) == NULL) {
        return GIN_INVALID_ARGUMENT;
    }
    return post(context, &what, local, request);
}

/* Gets are complete only when their bytes have arrived, so there is nothing left to flush. */
static gin_result v14_iflush(void *context, int channel, void *memory, uint32_t peer,
                             void **request)
{
    (void)context;
    (void)channel;
    (void)memory;
    (void)peer;
    *request = NULL;
    return GIN_OK;
}

static gin_result v14_test(void *context, void *request, int *done)
{
    return test(context, request, done);
}

static gin_result v14_progress(void *context)
{
    gin_progress(context);
    return GIN_OK;
}

EXPORTED const gin_rma_v14 ncclRmaPlugin_v14 = {.name = "Isthmus",
                                                .init = plugin_init,
                                                .devices = plugin_devices,
                                                .get_properties = v14_properties,
                                                .listen = plugin_listen,
                                                .connect = plugin_connect,
                                                .create_context = v14_create_context,
                                                .reg_mr_sym = v14_reg,
                                                .reg_mr_sym_dma_buf = v14_reg_dma_buf,
                                                .dereg_mr_sym = plugin_dereg,
                                                .destroy_context = v14_destroy_context,
                                                .close_comm = plugin_close_comm,
                                                .close_listen = plugin_close_listen,
                                                .iput = v14_iput,
                                                .iput_signal = v14_iput_signal,
                                                .iget = v14_iget,
                                                .iflush = v14_iflush,
                                                .test = v14_test,
                                                .progress = v14_progress,
                                                .query_last_error = plugin_query,
                                                .finalize = plugin_finalize};

/* ---- the network that there is not ----------------------------------------------------------- */

static gin_result net_init(void **context, uint64_t comm_id, void *config, gin_log_fn log,
                           void *profiler)
{
    (void)config;
    (void)profiler;
    return plugin_init(context, comm_id, log);
}

/* Host memory only: NCCL then has no reason to try it with a GPU. */
static gin_result net_properties(int device, gin_properties_v11 *properties)
{
    gin_result result = v11_properties(device, properties);
    properties->memory_kinds = GIN_MEMORY_HOST;
    properties->driven_by = GIN_DRIVEN_BY_HOST;
    properties->receives_max = 1;
    return result;
}

static gin_result net_listen(void *context, int device, void *handle, void **listening)
{
    const instance *from = context;
    (void)device;
    (void)handle;
    (void)listening;
    GIN_SAY(from->log, GIN_LOG_WARN,
            "GIN/Isthmus: NCCL wants to send between these ranks itself; this library only serves "
            "kernels (GIN), on one host whose GPUs reach each other");
    return GIN_INVALID_USAGE;
}

static gin_result net_connect(void *context, int device, void *handle, void **sending,
                              void **offload)
{
    (void)sending;
    (void)offload;
    return net_listen(context, device, handle, NULL);
}

static gin_result net_none(void *object)
{
    (void)object;
    return GIN_INVALID_USAGE;
}

static gin_result net_accept(void *listening, void **receiving, void **offload)
{
    (void)receiving;
    (void)offload;
    return net_none(listening);
}

static gin_result net_reg(void *comm, void *data, size_t bytes, int kind, void **memory)
{
    (void)data;
    (void)bytes;
    (void)kind;
    (void)memory;
    return net_none(comm);
}

static gin_result net_dereg(void *comm, void *memory)
{
    (void)memory;
    return net_none(comm);
}

static gin_result net_isend(void *sending, void *data, size_t bytes, int tag, void *memory,
                            void *profile, void **request)
{
    (void)data;
    (void)bytes;
    (void)tag;
    (void)memory;
    (void)profile;
    (void)request;
    return net_none(sending);
}

static gin_result net_irecv(void *receiving, int count, void **data, size_t *bytes, int *tags,
                            void **memory, void **profiles, void **request)
{
    (void)count;
    (void)data;
    (void)bytes;
    (void)tags;
    (void)memory;
    (void)profiles;
    (void)request;
    return net_none(receiving);
}

static gin_result net_iflush(void *receiving, int count, void **data, int *bytes, void **memory,
                             void **request)
{
    (void)count;
    (void)data;
    (void)bytes;
    (void)memory;
    (void)request;
    return net_none(receiving);
}

static gin_result net_test(void *request, int *done, int *bytes)
{
    (void)done;
    (void)bytes;
    return net_none(request);
}

static gin_result net_set_attributes(void *context, void *attributes)
{
    (void)context;
    (void)attributes;
    return GIN_OK;
}

EXPORTED const gin_net_v11 ncclNetPlugin_v11 = {.name = "Isthmus",
                                                .init = net_init,
                                                .devices = plugin_devices,
                                                .get_properties = net_properties,
                                                .listen = net_listen,
                                                .connect = net_connect,
                                                .accept = net_accept,
                                                .reg_mr = net_reg,
                                                .dereg_mr = net_dereg,
                                                .isend = net_isend,
                                                .irecv = net_irecv,
                                                .iflush = net_iflush,
                                                .test = net_test,
                                                .close_send = net_none,
                                                .close_recv = net_none,
                                                .close_listen = net_none,
                                                .finalize = plugin_finalize,
                                                .set_attributes = net_set_attributes};
