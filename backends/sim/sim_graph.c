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
    uint32_t room = graph->lane_room;
    IST_RETURN_IF_ERROR(sim_graph_grow((void **)&graph->lanes, graph->lane_count, &room,
                                       sizeof(*graph->lanes)));
    room = graph->lane_room;
    IST_RETURN_IF_ERROR(sim_graph_grow((void **)&graph->lane_open, graph->lane_count, &room,
                                       sizeof(*graph->lane_open)));
    graph->lane_room = room;
    *lane = graph->lane_count++;
    graph->lanes[*lane] = NULL;
    graph->lane_open[*lane] = false;
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
    graph->lane_open[stream->capture_lane] = false; /* somebody may wait for all of the lane */
    return IST_OK;
}

static ist_status sim_graph_wait(sim_graph *graph, sim_stream *stream, sim_stream_op *op)
{
    if (op->event->capture != graph) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "a captured stream waits for an event that was recorded outside the "
                         "capture");
    }
    op->record = op->event->capture_node;
    graph->lane_open[stream->capture_lane] = true;
    return IST_OK;
}

ist_status sim_graph_capture(sim_stream *stream, sim_stream_op *op)
{
    sim_graph *graph = stream->capture;
    sim_world *world = stream->rank->world;
    ist_status status = sim_graph_grow((void **)&graph->nodes, graph->count, &graph->room,
                                       sizeof(*graph->nodes));
    if (status == IST_OK && op->kind == SIM_OP_RECORD) {
        status = sim_graph_record(graph, stream, op);
    } else if (status == IST_OK && op->kind == SIM_OP_WAIT) {
        status = sim_graph_wait(graph, stream, op);
    } else if (status == IST_OK) {
        graph->lane_open[stream->capture_lane] = true;
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
    graph->origin = stream;
    ist_status status = sim_graph_add_lane(graph, &lane);
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

/* Every stream of the capture goes back to running its work. */
static uint32_t sim_graph_release_streams(sim_graph *graph)
{
    uint32_t open = 0;
    for (uint32_t i = 1; i < graph->lane_count; ++i) {
        open += graph->lane_open[i] ? 1 : 0;
    }
    for (sim_stream *s = graph->rank->streams; s != NULL; s = s->next_of_rank) {
        if (s->capture == graph) {
            s->capture = NULL;
        }
    }
    graph->origin = NULL;
    return open;
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
    uint32_t open = sim_graph_release_streams(graph);
    ist_status status = graph->broken;
    if (status == IST_OK && open > 0) {
        status = ist_raise(IST_ERR_USAGE, NULL,
                           "%u streams joined the capture and were not joined back", open);
    }
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

ist_status sim_graph_launch(sim_graph *graph, sim_stream *stream)
{
    for (uint32_t i = 0; i < graph->count; ++i) {
        sim_graph_node *node = graph->nodes[i];
        sim_stream *lane = node->lane == 0 ? stream : graph->lanes[node->lane];
        IST_RETURN_IF_ERROR(sim_graph_issue(graph, node, lane));
    }
    return IST_OK;
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
        (void)sim_graph_release_streams(graph);
    }
    for (uint32_t i = 0; i < graph->count; ++i) {
        ist_free(graph->nodes[i]->op.payload);
        ist_free(graph->nodes[i]);
    }
    for (uint32_t i = 0; i < graph->event_count; ++i) {
        sim_event_unref(graph->events[i]);
    }
    ist_free(graph->nodes);
    ist_free(graph->events);
    ist_free(graph->lanes);
    ist_free(graph->lane_open);
    ist_free(graph);
}
