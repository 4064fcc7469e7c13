/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a failed driver call means, and bounded waiting for the device.
 */
#include "cuda_internal.h"

static const char *name_of(CUresult result)
{
    const char *name = NULL;
    return cu.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name : "CUDA error";
}

static const char *text_of(CUresult result)
{
    const char *text = NULL;
    return cu.cuGetErrorString(result, &text) == CUDA_SUCCESS && text != NULL ? text : "no text";
}

/* Only the classes that a caller can act on differently; the rest is the device's fault. */
static ist_status status_of(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return IST_ERR_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return IST_ERR_BACKEND;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: return IST_ERR_UNSUPPORTED;
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: return IST_ERR_USAGE;
    case CUDA_ERROR_OPERATING_SYSTEM: return IST_ERR_SYSTEM;
    default: return IST_ERR_DEVICE;
    }
}

ist_status cuda_fail(const cuda_rank *rank, CUresult result, const char *call)
{
    ist_error details = {.rank = rank != NULL ? (int32_t)rank->index : IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .object = "device",
                         .observed = (uint64_t)result};
    return ist_raise(status_of(result), &details, "%s failed: %s (%s)", call, text_of(result),
                     name_of(result));
}

ist_status cuda_fail_memory(const cuda_rank *rank, const char *what)
{
    ist_error details = {.rank = (int32_t)rank->index, .peer = IST_RANK_NONE, .object = "memory"};
    return ist_raise(IST_ERR_MEMORY, &details, "no host memory for %s on rank %u", what,
                     rank->index);
}

#define SPIN_NS UINT64_C(200000)
/* The kernel's timers add up to 50 us of their own. */
#define PAUSE_NS UINT64_C(5000)
#define PAUSE_NS_MAX UINT64_C(20000)

CUresult cuda_poll(cuda_query_fn query, void *handle, uint64_t deadline_ns)
{
    CUresult result = query(handle);
    uint64_t began_ns = result == CUDA_ERROR_NOT_READY ? cuda_now_ns() : 0;
    uint64_t pause_ns = PAUSE_NS;
    while (result == CUDA_ERROR_NOT_READY) {
        uint64_t now_ns = cuda_now_ns();
        if (now_ns >= deadline_ns) {
            return query(handle);
        }
        if (now_ns - began_ns > SPIN_NS) {
            uint64_t left_ns = deadline_ns - now_ns;
            cuda_pause_ns(pause_ns < left_ns ? pause_ns : left_ns);
            pause_ns = pause_ns * 2 < PAUSE_NS_MAX ? pause_ns * 2 : PAUSE_NS_MAX;
        }
        result = query(handle);
    }
    return result;
}

static CUresult query_stream(void *handle)
{
    return cu.cuStreamQuery((CUstream)handle);
}

ist_status cuda_stream_await(const cuda_rank *rank, CUstream stream, uint64_t wait_ns,
                             const char *operation)
{
    uint64_t began_ns = cuda_now_ns();
    CUresult result = cuda_poll(query_stream, stream, cuda_after_ns(began_ns, wait_ns));
    if (result == CUDA_SUCCESS) {
        return IST_OK;
    }
    if (result != CUDA_ERROR_NOT_READY) {
        return cuda_fail(rank, result, operation);
    }
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "stream",
                         .waited_ns = cuda_now_ns() - began_ns};
    return ist_raise(IST_ERR_TIMEOUT, &details,
                     "rank %u waited %llu ns for its stream (%s): its work has not finished",
                     rank->index, (unsigned long long)details.waited_ns, operation);
}
