/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the CUDA backend, and what it tells of itself. The module's one exported symbol.
 */
#include "cuda_coll.h"
#include "cuda_comm.h"
#include "cuda_features.h"
#include "cuda_world.h"

#include <string.h>

static const char *window_reason(const cuda_rank *rank)
{
    if (!rank->vmm) {
        return "the GPU or its driver has no virtual memory management";
    }
    if (!rank->world->threads && !rank->fd_export) {
        return "the driver cannot give GPU memory to other processes (no POSIX descriptors)";
    }
    return NULL;
}

static ist_status cuda_caps(void *self, ist_backend_caps *caps)
{
    const cuda_rank *rank = self;
    ist_backend_caps filled = {.sm_count = rank->sm_count,
                               .device_name = rank->name,
                               .window_reason = window_reason(rank),
                               .gin_reason = cuda_nccl_reason(),
                               .peeks_by_loads = 1};
    uint32_t size = caps->size < sizeof(filled) ? caps->size : (uint32_t)sizeof(filled);
    filled.size = size;
    memcpy(caps, &filled, size);
    return IST_OK;
}

static ist_status cuda_clock_read(void *self, uint64_t *now_ns)
{
    const cuda_rank *rank = self;
    *now_ns = cuda_now_ns() - rank->began_ns;
    return IST_OK;
}

static ist_status cuda_sleep(void *self, uint64_t ns)
{
    struct timespec until = cuda_timespec(cuda_after_ns(cuda_now_ns(), ns));
    (void)self;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
    return IST_OK;
}

static const ist_backend_ops cuda_ops = {
    .size = sizeof(cuda_ops),
    .abi = IST_BACKEND_ABI,
    .caps = cuda_caps,
    .clock = cuda_clock_read,
    .sleep = cuda_sleep,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_query = cuda_mem_query,
    .mem_peek = cuda_mem_peek,
    .mem_poke = cuda_mem_poke,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .stream_sync = cuda_stream_sync,
    .stream_query = cuda_stream_query,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy_local = cuda_copy_local,
    .fill = cuda_fill,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_sync = cuda_event_sync,
    .event_query = cuda_event_query,
    .event_elapsed = cuda_event_elapsed,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_close = cuda_graph_close,
    .id_create = cuda_id_create,
    .comm_open = cuda_comm_open,
    .comm_close = cuda_comm_close,
    .comm_abort = cuda_comm_abort,
    .comm_exchange = cuda_comm_exchange,
    .window_open = cuda_window_open,
    .window_close = cuda_window_close,
    .devcomm_open = cuda_devcomm_open,
    .devcomm_close = cuda_devcomm_close,
    .launch = cuda_launch,
    .coll_info = cuda_coll_info,
    .coll_open = cuda_coll_open,
    .coll_close = cuda_coll_close,
    .coll_enqueue = cuda_coll_enqueue,
    .coll_status = cuda_coll_status,
    .coll_estimate = cuda_coll_estimate,
    .comm_ground = cuda_comm_ground,
};

extern const ist_backend ist_backend_cuda;

__attribute__((visibility("default"))) const ist_backend ist_backend_cuda = {
    .size = sizeof(ist_backend_cuda),
    .abi = IST_BACKEND_ABI,
    .name = "cuda",
    .probe = cuda_driver_open,
    .world_run = cuda_world_run,
    .ops = &cuda_ops,
    .feature = cuda_feature,
};
