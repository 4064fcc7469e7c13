/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and the copies on them.
 */
#include "ist_internal.h"

#include <inttypes.h>

static ist_status close_stream(void *object)
{
    return ist_stream_close(object);
}

ist_status ist_stream_open(ist_world *world, ist_stream **stream)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "stream.open"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, stream, "stream", "stream.open"));
    ist_stream *opened = ist_alloc(1, sizeof(*opened));
    if (opened == NULL) {
        return ist_fail_memory(world, "a stream", "stream.open");
    }
    uint64_t number = 0;
    ist_status status = world->ops.stream_open(world->self, &number);
    if (status < 0) {
        ist_free(opened);
        return status;
    }
    ist_object_open(opened, IST_KIND_STREAM, world, number, close_stream);
    *stream = opened;
    return IST_OK;
}

/* Closing must not leave a capture behind that nobody can end. */
static void drop_capture(ist_stream *stream)
{
    ist_world *world = stream->object.world;
    uint64_t graph = 0;
    if (!ist_stream_capturing(stream) || !stream->capture_origin) {
        return;
    }
    world->capture = 0;
    if (world->ops.graph_end(world->self, stream->object.number, &graph) == IST_OK) {
        world->ops.graph_close(world->self, graph);
    }
}

ist_status ist_stream_close(ist_stream *stream)
{
    if (stream == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "stream.close"));
    ist_world *world = stream->object.world;
    drop_capture(stream);
    ist_coll_group_forget(world, 0, stream->object.number);
    ist_status waited =
        world->ops.stream_sync(world->self, stream->object.number, ist_host_deadline(world));
    ist_status closed = world->ops.stream_close(world->self, stream->object.number);
    ist_object_close(stream);
    return waited < 0 ? waited : closed;
}

ist_status ist_check_not_capturing(const ist_stream *stream, const char *operation)
{
    if (IST_LIKELY(!ist_stream_capturing(stream))) {
        return IST_OK;
    }
    return ist_fail(stream->object.world, IST_ERR_USAGE, "stream", operation,
                    "stream is capturing, and %s would wait for work that does not run", operation);
}

ist_status ist_stream_sync(ist_stream *stream, uint64_t deadline_ns)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "stream.sync"));
    IST_RETURN_IF_ERROR(ist_check_not_capturing(stream, "stream.sync"));
    ist_world *world = stream->object.world;
    IST_RETURN_IF_ERROR(ist_check_deadline(world, deadline_ns, "deadline_ns", "stream.sync"));
    return world->ops.stream_sync(world->self, stream->object.number,
                                  deadline_ns != 0 ? deadline_ns : ist_host_deadline(world));
}

ist_status ist_stream_query(ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "stream.query"));
    IST_RETURN_IF_ERROR(ist_check_not_capturing(stream, "stream.query"));
    ist_world *world = stream->object.world;
    return world->ops.stream_query(world->self, stream->object.number);
}

ist_status ist_copy_to_device(ist_stream *stream, void *dst, const void *host_src, size_t bytes)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "copy_to_device"));
    if (bytes == 0) {
        return IST_OK;
    }
    ist_world *world = stream->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, host_src, "host_src", "copy_to_device"));
    IST_RETURN_IF_ERROR(ist_memory_check(world, dst, bytes, 0, "dst", "copy_to_device"));
    return world->ops.copy_in(world->self, stream->object.number, dst, host_src, bytes);
}

ist_status ist_copy_to_host(ist_stream *stream, void *host_dst, const void *src, size_t bytes)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "copy_to_host"));
    IST_RETURN_IF_ERROR(ist_check_not_capturing(stream, "copy_to_host"));
    if (bytes == 0) {
        return IST_OK;
    }
    ist_world *world = stream->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, host_dst, "host_dst", "copy_to_host"));
    IST_RETURN_IF_ERROR(ist_memory_check(world, src, bytes, 0, "src", "copy_to_host"));
    return world->ops.copy_out(world->self, stream->object.number, host_dst, src, bytes,
                               ist_host_deadline(world));
}

static bool ranges_overlap(uintptr_t a, uintptr_t b, size_t bytes)
{
    return a < b ? b - a < bytes : a - b < bytes;
}

ist_status ist_copy(ist_stream *stream, void *dst, const void *src, size_t bytes)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "copy"));
    if (bytes == 0) {
        return IST_OK;
    }
    ist_world *world = stream->object.world;
    IST_RETURN_IF_ERROR(ist_memory_check(world, dst, bytes, 0, "dst", "copy"));
    IST_RETURN_IF_ERROR(ist_memory_check(world, src, bytes, 0, "src", "copy"));
    if (ranges_overlap((uintptr_t)dst, (uintptr_t)src, bytes)) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "dst", "copy", 0, bytes,
                              "dst and src overlap within %zu bytes", bytes);
    }
    return world->ops.copy_local(world->self, stream->object.number, dst, src, bytes);
}

ist_status ist_fill(ist_stream *stream, void *dst, uint8_t value, size_t bytes)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "fill"));
    if (bytes == 0) {
        return IST_OK;
    }
    ist_world *world = stream->object.world;
    IST_RETURN_IF_ERROR(ist_memory_check(world, dst, bytes, 0, "dst", "fill"));
    return world->ops.fill(world->self, stream->object.number, dst, value, bytes);
}
