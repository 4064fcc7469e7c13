/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: non-blocking ones, so that nothing orders them against the program's legacy stream, and
 * waits for them that always end.
 */
#include "cuda_coll.h"

static ist_status stream_open(cuda_rank *rank, cuda_stream **result)
{
    cuda_stream *stream = ist_alloc(1, sizeof(*stream));
    if (stream == NULL) {
        return cuda_fail_memory(rank, "a stream");
    }
    CUresult created = cu.cuStreamCreateWithPriority(&stream->handle, CU_STREAM_NON_BLOCKING,
                                                     CUDA_STREAM_PRIORITY);
    if (created != CUDA_SUCCESS) {
        ist_free(stream);
        return cuda_fail(rank, created, "cuStreamCreateWithPriority");
    }
    stream->next = rank->streams;
    rank->streams = stream;
    *result = stream;
    return IST_OK;
}

ist_status cuda_stream_open(void *self, uint64_t *number)
{
    cuda_rank *rank = self;
    cuda_stream *stream = NULL;
    bool entered = cuda_enter(rank);
    ist_status status = stream_open(rank, &stream);
    cuda_exit(entered);
    if (status == IST_OK) {
        *number = cuda_number(stream);
    }
    return status;
}

/* A capture that began here is dropped with its stream. */
static void drop_capture(cuda_rank *rank, const cuda_stream *stream)
{
    if (rank->capture != NULL && rank->capture->origin == stream) {
        uint64_t dropped = 0;
        if (cuda_graph_end(rank, cuda_number(stream), &dropped) == IST_OK) {
            (void)cuda_graph_close(rank, dropped);
        }
    }
}

/* The driver frees the stream when its work is done, and does not wait for it. */
ist_status cuda_stream_close(void *self, uint64_t number)
{
    cuda_rank *rank = self;
    cuda_stream *stream = cuda_object(number);
    bool entered = cuda_enter(rank);
    drop_capture(rank, stream);
    cuda_stream **link = &rank->streams;
    while (*link != NULL && *link != stream) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = stream->next;
    }
    cuda_coll_forget_stream(rank, stream);
    CUresult result = cu.cuStreamDestroy(stream->handle);
    cuda_exit(entered);
    ist_free(stream);
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuStreamDestroy");
}

ist_status cuda_stream_sync(void *self, uint64_t number, uint64_t deadline_ns)
{
    const cuda_rank *rank = self;
    const cuda_stream *stream = cuda_object(number);
    bool entered = cuda_enter(rank);
    ist_status status = cuda_stream_await(rank, stream->handle, deadline_ns, "stream.sync");
    cuda_exit(entered);
    return status;
}

ist_status cuda_stream_query(void *self, uint64_t number)
{
    const cuda_rank *rank = self;
    const cuda_stream *stream = cuda_object(number);
    bool entered = cuda_enter(rank);
    CUresult result = cu.cuStreamQuery(stream->handle);
    cuda_exit(entered);
    if (result == CUDA_ERROR_NOT_READY) {
        return IST_IN_PROGRESS;
    }
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuStreamQuery");
}

ist_status cuda_streams_await(const cuda_rank *rank, uint64_t wait_ns, const char *operation)
{
    uint64_t until_ns = cuda_after_ns(cuda_now_ns(), wait_ns);
    for (const cuda_stream *stream = rank->streams; stream != NULL; stream = stream->next) {
        uint64_t now_ns = cuda_now_ns();
        if (!cuda_stream_captures(rank, stream)) {
            IST_RETURN_IF_ERROR(cuda_stream_await(
                rank, stream->handle, until_ns > now_ns ? until_ns - now_ns : 0, operation));
        }
    }
    return IST_OK;
}

bool cuda_streams_idle(const cuda_rank *rank)
{
    const cuda_stream *stream = rank->streams;
    while (stream != NULL && !cuda_stream_captures(rank, stream) &&
           cu.cuStreamQuery(stream->handle) == CUDA_SUCCESS) {
        stream = stream->next;
    }
    return stream == NULL;
}

void cuda_streams_close(cuda_rank *rank)
{
    while (rank->streams != NULL) {
        cuda_stream *stream = rank->streams;
        rank->streams = stream->next;
        (void)cu.cuStreamDestroy(stream->handle);
        ist_free(stream);
    }
}
