/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. A record inside a capture is a place in the graph and leaves the event's last real record
 * alone, so an event has two of the driver's: one for each kind.
 */
#include "cuda_internal.h"

#include <math.h>

static ist_status event_open(cuda_rank *rank, cuda_event **result)
{
    cuda_event *event = ist_alloc(1, sizeof(*event));
    if (event == NULL) {
        return cuda_fail_memory(rank, "an event");
    }
    CUresult created = cu.cuEventCreate(&event->mark, CU_EVENT_DEFAULT);
    if (created == CUDA_SUCCESS) {
        created = cu.cuEventCreate(&event->join, CU_EVENT_DISABLE_TIMING);
        if (created != CUDA_SUCCESS) {
            (void)cu.cuEventDestroy(event->mark);
        }
    }
    if (created != CUDA_SUCCESS) {
        ist_free(event);
        return cuda_fail(rank, created, "cuEventCreate");
    }
    event->next = rank->events;
    rank->events = event;
    *result = event;
    return IST_OK;
}

ist_status cuda_event_open(void *self, uint64_t *number)
{
    cuda_rank *rank = self;
    cuda_event *event = NULL;
    bool entered = cuda_enter(rank);
    ist_status status = event_open(rank, &event);
    cuda_exit(entered);
    if (status == IST_OK) {
        *number = cuda_number(event);
    }
    return status;
}

static void event_free(cuda_event *event)
{
    (void)cu.cuEventDestroy(event->mark);
    (void)cu.cuEventDestroy(event->join);
    ist_free(event);
}

ist_status cuda_event_close(void *self, uint64_t number)
{
    cuda_rank *rank = self;
    cuda_event *event = cuda_object(number);
    cuda_event **link = &rank->events;
    while (*link != NULL && *link != event) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = event->next;
        bool entered = cuda_enter(rank);
        event_free(event);
        cuda_exit(entered);
    }
    return IST_OK;
}

ist_status cuda_event_record(void *self, uint64_t number, uint64_t stream_number)
{
    const cuda_rank *rank = self;
    cuda_event *event = cuda_object(number);
    const cuda_stream *stream = cuda_object(stream_number);
    bool captures = cuda_stream_captures(rank, stream);
    bool entered = cuda_enter(rank);
    CUresult result = cu.cuEventRecord(captures ? event->join : event->mark, stream->handle);
    cuda_exit(entered);
    if (result != CUDA_SUCCESS) {
        return cuda_captured(rank, stream, cuda_fail(rank, result, "cuEventRecord"));
    }
    event->capture = captures ? rank->capture : NULL;
    event->recorded = event->recorded || !captures;
    return IST_OK;
}

static ist_status wait_in_capture(const cuda_rank *rank, const cuda_event *event,
                                  cuda_stream *stream)
{
    CUDA_TRY(rank, cuStreamWaitEvent, stream->handle, event->join, CU_EVENT_WAIT_DEFAULT);
    stream->capture = rank->capture;
    return IST_OK;
}

static ist_status wait_entered(const cuda_rank *rank, const cuda_event *event, cuda_stream *stream)
{
    if (rank->capture != NULL && event->capture == rank->capture) {
        return wait_in_capture(rank, event, stream);
    }
    if (cuda_stream_captures(rank, stream)) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "a captured stream of rank %u waits for an event that was recorded "
                         "outside the capture",
                         rank->index);
    }
    CUDA_TRY(rank, cuStreamWaitEvent, stream->handle, event->mark, CU_EVENT_WAIT_DEFAULT);
    return IST_OK;
}

ist_status cuda_event_wait(void *self, uint64_t number, uint64_t stream_number)
{
    const cuda_rank *rank = self;
    cuda_stream *stream = cuda_object(stream_number);
    bool entered = cuda_enter(rank);
    ist_status status = wait_entered(rank, cuda_object(number), stream);
    cuda_exit(entered);
    return cuda_captured(rank, stream, status);
}

static CUresult query_event(void *handle)
{
    return cu.cuEventQuery((CUevent)handle);
}

ist_status cuda_event_sync(void *self, uint64_t number, uint64_t deadline_ns)
{
    const cuda_rank *rank = self;
    const cuda_event *event = cuda_object(number);
    bool entered = cuda_enter(rank);
    CUresult result =
        cuda_poll(query_event, event->mark, cuda_after_ns(cuda_now_ns(), deadline_ns));
    cuda_exit(entered);
    if (result == CUDA_SUCCESS) {
        return IST_OK;
    }
    if (result != CUDA_ERROR_NOT_READY) {
        return cuda_fail(rank, result, "cuEventQuery");
    }
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "event",
                         .operation = "event.sync",
                         .waited_ns = deadline_ns};
    return ist_raise(IST_ERR_TIMEOUT, &details, "rank %u waited %llu ns for an event", rank->index,
                     (unsigned long long)deadline_ns);
}

ist_status cuda_event_query(void *self, uint64_t number)
{
    const cuda_rank *rank = self;
    const cuda_event *event = cuda_object(number);
    bool entered = cuda_enter(rank);
    CUresult result = cu.cuEventQuery(event->mark);
    cuda_exit(entered);
    if (result == CUDA_ERROR_NOT_READY) {
        return IST_IN_PROGRESS;
    }
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuEventQuery");
}

static bool reached(const cuda_event *event)
{
    return event->recorded && cu.cuEventQuery(event->mark) == CUDA_SUCCESS;
}

static ist_status elapsed_entered(const cuda_rank *rank, const cuda_event *start,
                                  const cuda_event *end, uint64_t *elapsed_ns)
{
    if (!reached(start) || !reached(end)) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "rank %u asks for the time between two events that have not both been "
                         "reached",
                         rank->index);
    }
    float ms = 0.0f;
    CUDA_TRY(rank, cuEventElapsedTime, &ms, start->mark, end->mark);
    *elapsed_ns = ms > 0.0f ? (uint64_t)llround((double)ms * 1e6) : 0;
    return IST_OK;
}

ist_status cuda_event_elapsed(void *self, uint64_t start, uint64_t end, uint64_t *elapsed_ns)
{
    const cuda_rank *rank = self;
    bool entered = cuda_enter(rank);
    ist_status status = elapsed_entered(rank, cuda_object(start), cuda_object(end), elapsed_ns);
    cuda_exit(entered);
    return status;
}

void cuda_events_close(cuda_rank *rank)
{
    while (rank->events != NULL) {
        cuda_event *event = rank->events;
        rank->events = event->next;
        event_free(event);
    }
}
