/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: points in streams that other streams and the host wait for.
 */
#include "ist_internal.h"

static ist_status check_event(const ist_event *event, const char *argument, const char *operation)
{
    return ist_check_object(event, IST_KIND_EVENT, argument, operation);
}

static ist_status check_pair(const ist_event *event, const ist_stream *stream,
                             const char *operation)
{
    IST_RETURN_IF_ERROR(check_event(event, "event", operation));
    IST_RETURN_IF_ERROR(ist_check_kind(stream, IST_KIND_STREAM, "stream", operation));
    return ist_check_same_world(event->object.world, stream, "stream", operation);
}

static ist_status close_event(void *object)
{
    return ist_event_close(object);
}

ist_status ist_event_open(ist_world *world, ist_event **event)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "event.open"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, event, "event", "event.open"));
    ist_event *opened = ist_alloc(1, sizeof(*opened));
    if (opened == NULL) {
        return ist_fail_memory(world, "an event", "event.open");
    }
    uint64_t number = 0;
    ist_status status = world->ops.event_open(world->self, &number);
    if (status < 0) {
        ist_free(opened);
        return status;
    }
    ist_object_open(opened, IST_KIND_EVENT, world, number, close_event);
    *event = opened;
    return IST_OK;
}

ist_status ist_event_close(ist_event *event)
{
    if (event == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(check_event(event, "event", "event.close"));
    ist_world *world = event->object.world;
    ist_status status = world->ops.event_close(world->self, event->object.number);
    ist_object_close(event);
    return status;
}

ist_status ist_event_record(ist_event *event, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(check_pair(event, stream, "event.record"));
    ist_world *world = event->object.world;
    if (world->capture != 0) {
        event->capture = ist_stream_capturing(stream) ? stream->capture : 0;
    }
    return world->ops.event_record(world->self, event->object.number, stream->object.number);
}

/* Whether the last record of the event is a place in the capture under way. */
static bool recorded_in_capture(const ist_event *event)
{
    return event->capture != 0 && event->capture == event->object.world->capture;
}

ist_status ist_event_wait(ist_event *event, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(check_pair(event, stream, "event.wait"));
    ist_world *world = event->object.world;
    IST_RETURN_IF_ERROR(
        world->ops.event_wait(world->self, event->object.number, stream->object.number));
    if (recorded_in_capture(event)) {
        stream->capture = event->capture;
    }
    return IST_OK;
}

static ist_status check_outside_capture(const ist_event *event, const char *argument,
                                        const char *operation)
{
    IST_RETURN_IF_ERROR(check_event(event, argument, operation));
    if (IST_LIKELY(!recorded_in_capture(event))) {
        return IST_OK;
    }
    return ist_fail(event->object.world, IST_ERR_USAGE, argument, operation,
                    "%s was recorded in the capture under way, and that work does not run",
                    argument);
}

ist_status ist_event_sync(ist_event *event, uint64_t deadline_ns)
{
    IST_RETURN_IF_ERROR(check_outside_capture(event, "event", "event.sync"));
    ist_world *world = event->object.world;
    IST_RETURN_IF_ERROR(ist_check_deadline(world, deadline_ns, "deadline_ns", "event.sync"));
    return world->ops.event_sync(world->self, event->object.number,
                                 deadline_ns != 0 ? deadline_ns : ist_host_deadline(world));
}

ist_status ist_event_query(ist_event *event)
{
    IST_RETURN_IF_ERROR(check_outside_capture(event, "event", "event.query"));
    ist_world *world = event->object.world;
    return world->ops.event_query(world->self, event->object.number);
}

ist_status ist_event_elapsed(ist_event *start, ist_event *end, uint64_t *elapsed_ns)
{
    IST_RETURN_IF_ERROR(check_outside_capture(start, "start", "event.elapsed"));
    IST_RETURN_IF_ERROR(check_outside_capture(end, "end", "event.elapsed"));
    ist_world *world = start->object.world;
    IST_RETURN_IF_ERROR(ist_check_same_world(world, end, "end", "event.elapsed"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, elapsed_ns, "elapsed_ns", "event.elapsed"));
    uint64_t elapsed = 0;
    IST_RETURN_IF_ERROR(
        world->ops.event_elapsed(world->self, start->object.number, end->object.number, &elapsed));
    *elapsed_ns = elapsed;
    return IST_OK;
}
