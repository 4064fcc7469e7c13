/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. The driver's own copies from pageable memory may wait for the stream without
 * bound, so bytes pass through pinned buffers; in a capture the buffers belong to the graph.
 */
#include "cuda_internal.h"

#include <string.h>

/* Larger copies go in pieces, so that pinned memory stays bounded. */
#define PIECE_BYTES ((size_t)16 << 20)
/* The rank's own copies wait behind other copies at most, never behind kernels. */
#define OWN_COPY_NS UINT64_C(10000000000)

static CUdeviceptr device_address(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static size_t piece(size_t left)
{
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* The buffer ends in the graph that is being captured, or comes back when the copy is done. */
static ist_status settle_block(cuda_rank *rank, const cuda_stream *stream, cuda_block *block)
{
    if (!cuda_stream_captures(rank, stream)) {
        return cuda_block_put(rank, block, stream->handle);
    }
    block->next = rank->capture->blocks;
    rank->capture->blocks = block;
    return IST_OK;
}

static ist_status copy_in_piece(cuda_rank *rank, const cuda_stream *stream, CUdeviceptr dst,
                                const uint8_t *host, size_t bytes)
{
    cuda_block *block = NULL;
    IST_RETURN_IF_ERROR(cuda_block_take(rank, bytes, &block));
    memcpy(block->host, host, bytes);
    CUresult result = cu.cuMemcpyAsync(dst, device_address(block->host), bytes, stream->handle);
    if (result != CUDA_SUCCESS) {
        cuda_block_return(rank, block);
        return cuda_fail(rank, result, "cuMemcpyAsync");
    }
    return settle_block(rank, stream, block);
}

ist_status cuda_copy_in(void *self, uint64_t number, void *dst, const void *host, size_t bytes)
{
    cuda_rank *rank = self;
    const cuda_stream *stream = cuda_object(number);
    ist_status status = IST_OK;
    bool entered = cuda_enter(rank);
    for (size_t done = 0; status == IST_OK && done < bytes;) {
        size_t now = piece(bytes - done);
        status = copy_in_piece(rank, stream, device_address(dst) + done,
                               (const uint8_t *)host + done, now);
        done += now;
    }
    cuda_exit(entered);
    return cuda_captured(rank, stream, status);
}

/* ---- out ------------------------------------------------------------------------------------- */

/* A buffer whose copy did not finish in time stays behind its event. */
static ist_status copy_out_piece(cuda_rank *rank, CUstream stream, void *host, CUdeviceptr src,
                                 size_t bytes, uint64_t wait_ns, const char *operation)
{
    cuda_block *block = NULL;
    IST_RETURN_IF_ERROR(cuda_block_take(rank, bytes, &block));
    CUresult result = cu.cuMemcpyAsync(device_address(block->host), src, bytes, stream);
    if (result != CUDA_SUCCESS) {
        cuda_block_return(rank, block);
        return cuda_fail(rank, result, "cuMemcpyAsync");
    }
    ist_status status = cuda_stream_await(rank, stream, wait_ns, operation);
    if (status == IST_OK) {
        memcpy(host, block->host, bytes);
    }
    ist_status put = cuda_block_put(rank, block, stream);
    return status != IST_OK ? status : put;
}

ist_status cuda_copy_out(void *self, uint64_t number, void *host, const void *src, size_t bytes,
                         uint64_t deadline_ns)
{
    cuda_rank *rank = self;
    const cuda_stream *stream = cuda_object(number);
    uint64_t until_ns = cuda_after_ns(cuda_now_ns(), deadline_ns);
    ist_status status = IST_OK;
    bool entered = cuda_enter(rank);
    for (size_t done = 0; status == IST_OK && done < bytes;) {
        size_t now = piece(bytes - done);
        uint64_t now_ns = cuda_now_ns();
        status =
            copy_out_piece(rank, stream->handle, (uint8_t *)host + done, device_address(src) + done,
                           now, until_ns > now_ns ? until_ns - now_ns : 0, "copy.to_host");
        done += now;
    }
    cuda_exit(entered);
    return status;
}

/* ---- on the device --------------------------------------------------------------------------- */

ist_status cuda_copy_local(void *self, uint64_t number, void *dst, const void *src, size_t bytes)
{
    const cuda_rank *rank = self;
    const cuda_stream *stream = cuda_object(number);
    if (bytes == 0) {
        return IST_OK;
    }
    bool entered = cuda_enter(rank);
    CUresult result =
        cu.cuMemcpyAsync(device_address(dst), device_address(src), bytes, stream->handle);
    cuda_exit(entered);
    return result == CUDA_SUCCESS
               ? IST_OK
               : cuda_captured(rank, stream, cuda_fail(rank, result, "cuMemcpyAsync"));
}

ist_status cuda_fill(void *self, uint64_t number, void *dst, uint8_t value, size_t bytes)
{
    const cuda_rank *rank = self;
    const cuda_stream *stream = cuda_object(number);
    if (bytes == 0) {
        return IST_OK;
    }
    bool entered = cuda_enter(rank);
    CUresult result = cu.cuMemsetD8Async(device_address(dst), value, bytes, stream->handle);
    cuda_exit(entered);
    return result == CUDA_SUCCESS
               ? IST_OK
               : cuda_captured(rank, stream, cuda_fail(rank, result, "cuMemsetD8Async"));
}

/* ---- the rank's own -------------------------------------------------------------------------- */

static ist_status copy_now_to_device(cuda_rank *rank, CUdeviceptr device, const void *host,
                                     size_t bytes)
{
    cuda_stream side = {.handle = rank->side};
    IST_RETURN_IF_ERROR(copy_in_piece(rank, &side, device, host, bytes));
    return cuda_stream_await(rank, rank->side, OWN_COPY_NS, "copy");
}

static ist_status copy_pieces(cuda_rank *rank, CUdeviceptr device, void *host, size_t bytes,
                              bool to_device)
{
    for (size_t done = 0; done < bytes;) {
        size_t now = piece(bytes - done);
        uint8_t *at = (uint8_t *)host + done;
        IST_RETURN_IF_ERROR(to_device ? copy_now_to_device(rank, device + done, at, now)
                                      : copy_out_piece(rank, rank->side, at, device + done, now,
                                                       OWN_COPY_NS, "mem.peek"));
        done += now;
    }
    return IST_OK;
}

ist_status cuda_copy_now(cuda_rank *rank, CUdeviceptr device, void *host, size_t bytes,
                         bool to_device)
{
    (void)pthread_mutex_lock(&rank->side_lock);
    ist_status status = copy_pieces(rank, device, host, bytes, to_device);
    (void)pthread_mutex_unlock(&rank->side_lock);
    return status;
}

ist_status cuda_zero_now(cuda_rank *rank, CUdeviceptr device, size_t bytes)
{
    CUDA_TRY(rank, cuMemsetD8Async, device, 0, bytes, rank->side);
    return cuda_stream_await(rank, rank->side, OWN_COPY_NS, "fill");
}
