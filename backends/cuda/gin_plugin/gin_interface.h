/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's plug-in interfaces as far as this transport serves them: network v11 and GIN v11 (NCCL 2.28),
 * RMA v14 (NCCL 2.30). Field orders and values are what the library expects; the names are ours.
 */
#ifndef GIN_INTERFACE_H
#define GIN_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of ncclResult_t. */
typedef enum gin_result {
    GIN_OK = 0,
    GIN_CUDA_ERROR = 1,
    GIN_SYSTEM_ERROR = 2,
    GIN_INTERNAL_ERROR = 3,
    GIN_INVALID_ARGUMENT = 4,
    GIN_INVALID_USAGE = 5,
    GIN_REMOTE_ERROR = 6
} gin_result;

/* Kinds of memory, as bits. */
enum { GIN_MEMORY_HOST = 1, GIN_MEMORY_CUDA = 2 };

/* What happens to a signal; both add, the first always adds 1. */
enum { GIN_SIGNAL_INC = 1, GIN_SIGNAL_ADD = 2 };

/* Who drives a device: the host alone, or NCCL's own thread for requests from kernels. */
enum { GIN_DRIVEN_BY_HOST = 0, GIN_DRIVEN_BY_PROXY = 2 };

enum { GIN_HANDLE_BYTES = 128 };

enum { GIN_LOG_WARN = 2, GIN_LOG_INFO = 3 };
#define GIN_LOG_NET 0x10ul

typedef void (*gin_log_fn)(int level, unsigned long subsystems, const char *file, int line,
                           const char *format, ...);

typedef struct gin_devices_v11 {
    int count;
    int devices[4];
} gin_devices_v11;

typedef struct gin_devices_v12 {
    int count;
    int devices[8];
} gin_devices_v12;

/* One device. Both layouts begin alike. */
#define GIN_PROPERTIES_BEGIN                                                                       \
    char *name;                                                                                    \
    char *pci_path;                                                                                \
    uint64_t guid;                                                                                 \
    int memory_kinds;                                                                              \
    int registration_is_global;                                                                    \
    int force_flush;                                                                               \
    int speed; /* Mbit/s */                                                                        \
    int port;                                                                                      \
    float latency; /* us */                                                                        \
    int comms_max;                                                                                 \
    int receives_max;                                                                              \
    int driven_by;                                                                                 \
    int driven_by_version;

typedef struct gin_properties_v11 {
    GIN_PROPERTIES_BEGIN
    gin_devices_v11 virtual_devices;
    size_t p2p_bytes_max;
    size_t collective_bytes_max;
    int request_count_max;
} gin_properties_v11;

typedef struct gin_properties_v12 {
    GIN_PROPERTIES_BEGIN
    gin_devices_v12 virtual_devices;
    size_t p2p_bytes_max;
    size_t collective_bytes_max;
    int request_count_max;
    int16_t rail;
    int16_t plane;
} gin_properties_v12;

/* ---- network v11 ----------------------------------------------------------------------------- */

typedef struct gin_net_v11 {
    const char *name;
    gin_result (*init)(void **context, uint64_t comm_id, void *config, gin_log_fn log,
                       void *profiler);
    gin_result (*devices)(int *count);
    gin_result (*get_properties)(int device, gin_properties_v11 *properties);
    gin_result (*listen)(void *context, int device, void *handle, void **listening);
    gin_result (*connect)(void *context, int device, void *handle, void **sending, void **offload);
    gin_result (*accept)(void *listening, void **receiving, void **offload);
    gin_result (*reg_mr)(void *comm, void *data, size_t bytes, int kind, void **memory);
    gin_result (*reg_mr_dma_buf)(void *comm, void *data, size_t bytes, int kind, uint64_t offset,
                                 int fd, void **memory);
    gin_result (*dereg_mr)(void *comm, void *memory);
    gin_result (*isend)(void *sending, void *data, size_t bytes, int tag, void *memory,
                        void *profile, void **request);
    gin_result (*irecv)(void *receiving, int count, void **data, size_t *bytes, int *tags,
                        void **memory, void **profiles, void **request);
    gin_result (*iflush)(void *receiving, int count, void **data, int *bytes, void **memory,
                         void **request);
    gin_result (*test)(void *request, int *done, int *bytes);
    gin_result (*close_send)(void *sending);
    gin_result (*close_recv)(void *receiving);
    gin_result (*close_listen)(void *listening);
    gin_result (*get_device_mr)(void *comm, void *memory, void **device_memory);
    gin_result (*irecv_consumed)(void *receiving, int count, void *request);
    gin_result (*make_virtual)(int *device, gin_devices_v11 *devices);
    gin_result (*finalize)(void *context);
    gin_result (*set_attributes)(void *context, void *attributes);
} gin_net_v11;

/* ---- GIN v11 --------------------------------------------------------------------------------- */

typedef struct gin_v11 {
    const char *name;
    gin_result (*init)(void **context, uint64_t comm_id, gin_log_fn log);
    gin_result (*devices)(int *count);
    gin_result (*get_properties)(int device, gin_properties_v11 *properties);
    gin_result (*listen)(void *context, int device, void *handle, void **listening);
    gin_result (*connect)(void *context, void **handles, int rank_count, int rank, void *listening,
                          void **comm);
    gin_result (*create_context)(void *comm, int signal_count, int counter_count, void **context,
                                 void **offload);
    gin_result (*reg_mr_sym)(void *comm, void *data, size_t bytes, int kind, uint64_t flags,
                             void **memory, void **device_memory);
    gin_result (*reg_mr_sym_dma_buf)(void *comm, void *data, size_t bytes, int kind,
                                     uint64_t offset, int fd, uint64_t flags, void **memory,
                                     void **device_memory);
    gin_result (*dereg_mr_sym)(void *comm, void *memory);
    gin_result (*destroy_context)(void *context);
    gin_result (*close_comm)(void *comm);
    gin_result (*close_listen)(void *listening);
    gin_result (*iput)(void *comm, uint64_t src_offset, void *src, size_t bytes,
                       uint64_t dst_offset, void *dst, uint32_t peer, void **request);
    gin_result (*iput_signal)(void *comm, uint64_t src_offset, void *src, size_t bytes,
                              uint64_t dst_offset, void *dst, uint32_t peer, uint64_t signal_offset,
                              void *signal, uint64_t value, uint32_t operation, void **request);
    gin_result (*test)(void *comm, void *request, int *done);
    gin_result (*progress)(void *comm);
    gin_result (*query_last_error)(void *context, bool *failed);
    gin_result (*finalize)(void *context);
} gin_v11;

/* ---- RMA v14 --------------------------------------------------------------------------------- */

typedef struct gin_rma_config {
    int context_count;
    int traffic_class;
    int rank_stride;
} gin_rma_config;

typedef struct gin_rma_v14 {
    const char *name;
    gin_result (*init)(void **context, uint64_t comm_id, gin_log_fn log);
    gin_result (*devices)(int *count);
    gin_result (*get_properties)(int device, gin_properties_v12 *properties);
    gin_result (*listen)(void *context, int device, void *handle, void **listening);
    gin_result (*connect)(void *context, void **handles, int rank_count, int rank, void *listening,
                          void **comm);
    gin_result (*create_context)(void *comm, gin_rma_config *config, void **context);
    gin_result (*reg_mr_sym)(void *comm, void *data, size_t bytes, int kind, uint64_t flags,
                             void **memory);
    gin_result (*reg_mr_sym_dma_buf)(void *comm, void *data, size_t bytes, int kind,
                                     uint64_t offset, int fd, uint64_t flags, void **memory);
    gin_result (*dereg_mr_sym)(void *comm, void *memory);
    gin_result (*destroy_context)(void *context);
    gin_result (*close_comm)(void *comm);
    gin_result (*close_listen)(void *listening);
    gin_result (*iput)(void *context, int channel, uint64_t src_offset, void *src, size_t bytes,
                       uint64_t dst_offset, void *dst, uint32_t peer, void **request);
    gin_result (*iput_signal)(void *context, int channel, uint64_t src_offset, void *src,
                              size_t bytes, uint64_t dst_offset, void *dst, uint32_t peer,
                              uint64_t signal_offset, void *signal, uint64_t value,
                              uint32_t operation, bool strong, void **request);
    gin_result (*iget)(void *context, int channel, uint64_t remote_offset, void *remote,
                       size_t bytes, uint64_t local_offset, void *local, uint32_t peer,
                       void **request);
    gin_result (*iflush)(void *context, int channel, void *memory, uint32_t peer, void **request);
    gin_result (*test)(void *context, void *request, int *done);
    gin_result (*progress)(void *context);
    gin_result (*query_last_error)(void *context, bool *failed);
    gin_result (*finalize)(void *context);
} gin_rma_v14;

/* Layouts as the libraries have them. */
_Static_assert(sizeof(gin_properties_v11) == 112, "NCCL 2.28");
_Static_assert(offsetof(gin_properties_v11, p2p_bytes_max) == 88, "NCCL 2.28");
_Static_assert(sizeof(gin_properties_v12) == 128, "NCCL 2.30");
_Static_assert(offsetof(gin_properties_v12, plane) == 126, "NCCL 2.30");
_Static_assert(sizeof(gin_net_v11) == 176, "NCCL 2.28");
_Static_assert(sizeof(gin_v11) == 152, "NCCL 2.28");
_Static_assert(sizeof(gin_rma_v14) == 168, "NCCL 2.30");

#endif
