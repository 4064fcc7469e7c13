/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: captured work. A graph is the list of calls in the order of capture, each on a lane; a
 * launch issues them again, lane 0 on the launching stream, the others on streams of the graph.
 */
#include "sim_internal.h"

#include <string.h>

static ist_status sim_graph_grow(void **array, uint32_t count, uint32_t *room, size_t item)
{
    if (count < *room) {
        return IST_OK;
    }
    uint32_t larger = *room == 0 ? 8 : *room * 2;
    void *grown = ist_alloc(larger, item);
    if (grown == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a graph with %u entries", larger);
    }
    if (count > 0) {
        memcpy(grown, *array, (size_t)count * item);
    }
    ist_free(*array);
    *array = grown;
    *room = larger;
    return IST_OK;
}

static ist_status sim_graph_add_lane(sim_graph *graph, uint32_t *lane)
{
    IST_RETURN_IF_ERROR(sim_graph_grow((void **)&graph->lanes, graph->lane_count, &graph->lane_room,
                                       sizeof(*graph->lanes)));
    *lane = graph->lane_count++;
    graph->lanes[*lane] = NULL;
    return IST_OK;
}

/* The graph's own event for the capture's last record of `event`. */
static ist_status sim_graph_add_event(sim_graph *graph, uint32_t *index)
{
    IST_RETURN_IF_ERROR(sim_graph_grow((void **)&graph->events, graph->event_count,
                                       &graph->event_room, sizeof(*graph->events)));
    sim_host_event *event = sim_event_new();
    if (event == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for an event of a graph");
    }
    *index = graph->event_count++;
    graph->events[*index] = event;
    return IST_OK;
}

static ist_status sim_graph_record(sim_graph *graph, sim_stream *stream, sim_stream_op *op)
{
    uint32_t index = 0;
    IST_RETURN_IF_ERROR(sim_graph_add_event(graph, &index));
    op->event->capture = graph;
    op->event->capture_lane = stream->capture_lane;
    op->event->capture_node = index;
    op->record = index;
    return IST_OK;
}

static ist_status sim_graph_wait(const sim_graph *graph, sim_stream_op *op)
{
    if (op->event->capture != graph) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "a captured stream waits for an event that was recorded outside the "
                         "capture");
    }
    op->record = op->event->capture_node;
    return IST_OK;
}

ist_status sim_graph_capture(sim_stream *stream, sim_stream_op *op)
{
    sim_graph *graph = stream->capture;
    sim_world *world = stream->rank->world;
    ist_status status =
        sim_graph_grow((void **)&graph->nodes, graph->count, &graph->room, sizeof(*graph->nodes));
    if (status == IST_OK && op->kind == SIM_OP_RECORD) {
        status = sim_graph_record(graph, stream, op);
    } else if (status == IST_OK && op->kind == SIM_OP_WAIT) {
        status = sim_graph_wait(graph, op);
    }
    sim_graph_node *node = status == IST_OK ? ist_alloc(1, sizeof(*node)) : NULL;
    if (node == NULL) {
        graph->broken = status == IST_OK ? IST_ERR_MEMORY : status;
        sim_op_free(world, op);
        return graph->broken;
    }
    if (op->event != NULL) {
        sim_event_unref(op->event);
        op->event = NULL;
    }
    node->op = *op;
    node->lane = stream->capture_lane;
    op->payload = NULL; /* the node has it now */
    graph->nodes[graph->count++] = node;
    sim_op_free(world, op);
    return IST_OK;
}

ist_status sim_graph_join(sim_stream *stream, sim_host_event *event)
{
    uint32_t lane = 0;
    IST_RETURN_IF_ERROR(sim_graph_add_lane(event->capture, &lane));
    stream->capture = event->capture;
    stream->capture_lane = lane;
    return IST_OK;
}

ist_status sim_graph_begin(sim_stream *stream)
{
    if (stream->capture != NULL) {
        return ist_raise(IST_ERR_USAGE, NULL, "the stream is already capturing");
    }
    sim_graph *graph = ist_alloc(1, sizeof(*graph));
    uint32_t lane = 0;
    if (graph == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a graph");
    }
    graph->rank = stream->rank;
    graph->done = sim_event_new();
    ist_status status = graph->done != NULL
                            ? sim_graph_add_lane(graph, &lane)
                            : ist_raise(IST_ERR_MEMORY, NULL, "no memory for an event of a graph");
    graph->origin = stream;
    if (status != IST_OK) {
        sim_graph_free(graph);
        return status;
    }
    graph->next_of_rank = stream->rank->graphs;
    stream->rank->graphs = graph;
    stream->capture = graph;
    stream->capture_lane = 0;
    return IST_OK;
}

/* Every stream of the capture goes back to running its work; its events forget it. */
static void sim_graph_release(sim_graph *graph)
{
    for (sim_stream *s = graph->rank->streams; s != NULL; s = s->next_of_rank) {
        if (s->capture == graph) {
            s->capture = NULL;
        }
    }
    for (sim_host_event *e = graph->rank->events; e != NULL; e = e->next_of_rank) {
        if (e->capture == graph) {
            e->capture = NULL;
        }
    }
    graph->origin = NULL;
}

/*
 * A lane is joined behind the place where the origin, or a lane that is joined there, waits for a
 * record of it. Looked at from the end, so one pass finds the joins of joins.
 */
static bool sim_graph_lane_left(const sim_graph *graph, bool *lane_joined, bool *event_joined)
{
    lane_joined[0] = true;
    for (uint32_t i = graph->count; i-- > 0;) {
        const sim_graph_node *node = graph->nodes[i];
        if (node->op.kind == SIM_OP_RECORD) {
            lane_joined[node->lane] = lane_joined[node->lane] || event_joined[node->op.record];
        } else if (!lane_joined[node->lane]) {
            return true;
        } else if (node->op.kind == SIM_OP_WAIT) {
            event_joined[node->op.record] = true;
        }
    }
    return false;
}

static ist_status sim_graph_check_joined(const sim_graph *graph)
{
    if (graph->lane_count == 1) {
        return IST_OK;
    }
    bool *marks = ist_alloc((size_t)graph->lane_count + graph->event_count, sizeof(*marks));
    if (marks == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to check a graph of %u lanes",
                         graph->lane_count);
    }
    bool left = sim_graph_lane_left(graph, marks, marks + graph->lane_count);
    ist_free(marks);
    ist_error details = {.rank = (int32_t)graph->rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "stream",
                         .operation = "graph.end"};
    return left ? ist_raise(IST_ERR_USAGE, &details,
                            "a stream joined the capture and was not joined back")
                : IST_OK;
}

static ist_status sim_graph_make_lanes(sim_graph *graph)
{
    for (uint32_t i = 1; i < graph->lane_count; ++i) {
        IST_RETURN_IF_ERROR(sim_stream_new(graph->rank, &graph->lanes[i]));
        graph->lanes[i]->internal = true;
    }
    return IST_OK;
}

ist_status sim_graph_end(sim_stream *stream, sim_graph **result)
{
    sim_graph *graph = stream->capture;
    if (graph == NULL || graph->origin != stream) {
        return ist_raise(IST_ERR_USAGE, NULL, "no capture was begun on this stream");
    }
    sim_graph_release(graph);
    ist_status status = graph->broken != IST_OK ? graph->broken : sim_graph_check_joined(graph);
    if (status == IST_OK) {
        status = sim_graph_make_lanes(graph);
    }
    if (status != IST_OK) {
        sim_graph_free(graph);
        return status;
    }
    *result = graph;
    return IST_OK;
}

static ist_status sim_graph_issue(sim_graph *graph, const sim_graph_node *node, sim_stream *stream)
{
    sim_world *world = graph->rank->world;
    sim_stream_op *op = sim_op_new(world, node->op.kind);
    if (op == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to launch a graph");
    }
    *op = node->op;
    op->payload = NULL;
    if (node->op.payload != NULL) {
        size_t bytes = op->kind == SIM_OP_LAUNCH ? op->args_bytes : op->bytes;
        op->payload = ist_alloc(1, bytes);
        if (op->payload == NULL) {
            sim_op_free(world, op);
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %zu bytes of a graph", bytes);
        }
        memcpy(op->payload, node->op.payload, bytes);
    }
    if (op->kind == SIM_OP_RECORD || op->kind == SIM_OP_WAIT) {
        op->event = graph->events[node->op.record];
        ++op->event->refs;
    }
    return sim_stream_push(stream, op);
}

static ist_status sim_graph_issue_done(sim_graph *graph, sim_op_kind kind, sim_stream *stream)
{
    sim_stream_op *op = sim_op_new(graph->rank->world, kind);
    if (op == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to launch a graph");
    }
    op->event = graph->done;
    ++op->event->refs;
    return sim_stream_push(stream, op);
}

/* The lanes and events of a graph are there once, so its launches run one after the other. */
ist_status sim_graph_launch(sim_graph *graph, sim_stream *stream)
{
    if (graph->launched_on != NULL && graph->launched_on != stream) {
        IST_RETURN_IF_ERROR(sim_graph_issue_done(graph, SIM_OP_WAIT, stream));
    }
    for (uint32_t i = 0; i < graph->count; ++i) {
        sim_graph_node *node = graph->nodes[i];
        sim_stream *lane = node->lane == 0 ? stream : graph->lanes[node->lane];
        IST_RETURN_IF_ERROR(sim_graph_issue(graph, node, lane));
    }
    graph->launched_on = stream;
    return sim_graph_issue_done(graph, SIM_OP_RECORD, stream);
}

void sim_graph_free(sim_graph *graph)
{
    sim_graph **link = &graph->rank->graphs;
    while (*link != NULL && *link != graph) {
        link = &(*link)->next_of_rank;
    }
    if (*link != NULL) {
        *link = graph->next_of_rank;
    }
    if (graph->origin != NULL) {
        sim_graph_release(graph);
    }
    for (uint32_t i = 0; i < graph->count; ++i) {
        ist_free(graph->nodes[i]->op.payload);
        ist_free(graph->nodes[i]);
    }
    for (uint32_t i = 0; i < graph->event_count; ++i) {
        sim_event_unref(graph->events[i]);
    }
    if (graph->done != NULL) {
        sim_event_unref(graph->done);
    }
    ist_free(graph->nodes);
    ist_free(graph->events);
    ist_free(graph->lanes);
    ist_free(graph);
}
