/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: capture of a stream's work, and replay. A rank has one capture under way at a time.
 */
#include "ist_internal.h"

static ist_status close_graph(void *object)
{
    return ist_graph_close(object);
}

static ist_status check_graph(const ist_graph *graph, const char *operation)
{
    return ist_check_object(graph, IST_KIND_GRAPH, "graph", operation);
}

ist_status ist_graph_begin(ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "graph.begin"));
    ist_world *world = stream->object.world;
    if (world->capture != 0) {
        return ist_fail(world, IST_ERR_USAGE, "stream", "graph.begin",
                        "a capture is under way on this rank");
    }
    IST_RETURN_IF_ERROR(world->ops.graph_begin(world->self, stream->object.number));
    world->capture = ++world->capture_count;
    stream->capture = world->capture;
    stream->capture_origin = true;
    return IST_OK;
}

static ist_status check_origin(const ist_stream *stream)
{
    if (ist_stream_capturing(stream) && stream->capture_origin) {
        return IST_OK;
    }
    return ist_fail(stream->object.world, IST_ERR_USAGE, "stream", "graph.end", "%s",
                    ist_stream_capturing(stream)
                        ? "stream has joined a capture that began on another stream"
                        : "no capture is under way on stream");
}

ist_status ist_graph_end(ist_stream *stream, ist_graph **graph)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "graph.end"));
    IST_RETURN_IF_ERROR(check_origin(stream));
    ist_world *world = stream->object.world;
    ist_graph *ended = ist_alloc(1, sizeof(*ended));
    uint64_t number = 0;
    /* Whatever happens now, the capture is over and the stream usable. */
    world->capture = 0;
    stream->capture_origin = false;
    ist_status status = world->ops.graph_end(world->self, stream->object.number, &number);
    if (status == IST_OK && (ended == NULL || graph == NULL)) {
        world->ops.graph_close(world->self, number);
        status = graph == NULL ? ist_fail_null(world, "graph", "graph.end")
                               : ist_fail_memory(world, "a graph", "graph.end");
    }
    if (status < 0) {
        ist_free(ended);
        return status;
    }
    ist_object_open(ended, IST_KIND_GRAPH, world, number, close_graph);
    *graph = ended;
    return IST_OK;
}

ist_status ist_graph_launch(ist_graph *graph, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(check_graph(graph, "graph.launch"));
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "graph.launch"));
    ist_world *world = graph->object.world;
    IST_RETURN_IF_ERROR(ist_check_same_world(world, stream, "stream", "graph.launch"));
    if (ist_stream_capturing(stream)) {
        return ist_fail(world, IST_ERR_USAGE, "stream", "graph.launch",
                        "stream is capturing, and a graph cannot become part of another");
    }
    return world->ops.graph_launch(world->self, graph->object.number, stream->object.number);
}

ist_status ist_graph_close(ist_graph *graph)
{
    if (graph == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(check_graph(graph, "graph.close"));
    ist_world *world = graph->object.world;
    ist_status status = world->ops.graph_close(world->self, graph->object.number);
    ist_object_close(graph);
    return status;
}
