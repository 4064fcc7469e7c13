/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs through stream capture. The mode is relaxed: the backend allocates pinned buffers and
 * makes its own copies meanwhile. A graph owns the bytes that copies captured.
 */
#include "cuda_coll.h"

/* Pinned buffers wait in the staging list until the last launch is over. */
static void blocks_release(cuda_rank *rank, cuda_graph *graph)
{
    while (graph->blocks != NULL) {
        cuda_block *block = graph->blocks;
        graph->blocks = block->next;
        cuda_block_return(rank, block);
    }
}

/* An executable graph in flight is freed by the driver when it has run. */
static void graph_free(cuda_rank *rank, cuda_graph *graph)
{
    blocks_release(rank, graph);
    if (graph->exec != NULL) {
        (void)cu.cuGraphExecDestroy(graph->exec);
    }
    ist_free(graph);
}

static ist_status begin_entered(cuda_rank *rank, cuda_stream *stream)
{
    cuda_graph *graph = ist_alloc(1, sizeof(*graph));
    if (graph == NULL) {
        return cuda_fail_memory(rank, "a graph");
    }
    CUresult result = cu.cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS) {
        graph_free(rank, graph);
        return cuda_fail(rank, result, "cuStreamBeginCapture");
    }
    graph->origin = stream;
    stream->capture = graph;
    rank->capture = graph;
    return IST_OK;
}

ist_status cuda_graph_begin(void *self, uint64_t stream)
{
    cuda_rank *rank = self;
    bool entered = cuda_enter(rank);
    ist_status status = begin_entered(rank, cuda_object(stream));
    cuda_exit(entered);
    return status;
}

static void forget_capture(cuda_rank *rank, const cuda_graph *graph)
{
    for (cuda_stream *stream = rank->streams; stream != NULL; stream = stream->next) {
        if (stream->capture == graph) {
            stream->capture = NULL;
        }
    }
    for (cuda_event *event = rank->events; event != NULL; event = event->next) {
        if (event->capture == graph) {
            event->capture = NULL;
        }
    }
    rank->capture = NULL;
}

static ist_status raise_broken(const cuda_rank *rank, const cuda_graph *graph)
{
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "graph",
                         .operation = "graph.end"};
    return ist_raise(graph->broken, &details,
                     "a call that was to be captured failed on rank %u, so there is no graph: %s",
                     rank->index, ist_status_sentence(graph->broken));
}

static ist_status end_entered(cuda_rank *rank, const cuda_stream *stream, cuda_graph *graph)
{
    CUgraph captured = NULL;
    CUresult result = cu.cuStreamEndCapture(stream->handle, &captured);
    if (graph->broken != IST_OK) {
        if (result == CUDA_SUCCESS && captured != NULL) {
            (void)cu.cuGraphDestroy(captured);
        }
        return raise_broken(rank, graph);
    }
    if (result != CUDA_SUCCESS) {
        return cuda_fail(rank, result, "cuStreamEndCapture");
    }
    result = cu.cuGraphInstantiate(&graph->exec, captured, 0);
    (void)cu.cuGraphDestroy(captured);
    if (result != CUDA_SUCCESS) {
        graph->exec = NULL;
        return cuda_fail(rank, result, "cuGraphInstantiate");
    }
    return IST_OK;
}

ist_status cuda_graph_end(void *self, uint64_t number, uint64_t *graph_number)
{
    cuda_rank *rank = self;
    cuda_graph *graph = rank->capture;
    bool entered = cuda_enter(rank);
    ist_status status = end_entered(rank, cuda_object(number), graph);
    forget_capture(rank, graph);
    graph->origin = NULL;
    if (status == IST_OK) {
        graph->next = rank->graphs;
        rank->graphs = graph;
        *graph_number = cuda_number(graph);
    } else {
        graph_free(rank, graph);
    }
    cuda_exit(entered);
    return status;
}

static ist_status launch_entered(const cuda_rank *rank, cuda_graph *graph, cuda_stream *stream)
{
    IST_RETURN_IF_ERROR(cuda_coll_graph_launched(graph, stream));
    CUDA_TRY(rank, cuGraphLaunch, graph->exec, stream->handle);
    for (const cuda_block *block = graph->blocks; block != NULL; block = block->next) {
        CUDA_TRY(rank, cuEventRecord, block->used, stream->handle);
    }
    return IST_OK;
}

ist_status cuda_graph_launch(void *self, uint64_t number, uint64_t stream)
{
    const cuda_rank *rank = self;
    bool entered = cuda_enter(rank);
    ist_status status = launch_entered(rank, cuda_object(number), cuda_object(stream));
    cuda_exit(entered);
    return status;
}

ist_status cuda_graph_close(void *self, uint64_t number)
{
    cuda_rank *rank = self;
    cuda_graph *graph = cuda_object(number);
    cuda_graph **link = &rank->graphs;
    while (*link != NULL && *link != graph) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = graph->next;
        bool entered = cuda_enter(rank);
        graph_free(rank, graph);
        cuda_exit(entered);
    }
    return IST_OK;
}

void cuda_graphs_close(cuda_rank *rank)
{
    while (rank->graphs != NULL) {
        (void)cuda_graph_close(rank, cuda_number(rank->graphs));
    }
}
