/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events: queues of device work. The head of a stream starts when the host has reached
 * the call that enqueued it, what it waits for has happened, and the one before has ended.
 */
#include "sim_coll.h"
#include "sim_explore.h"

#include <string.h>

sim_stream_op *sim_op_new(sim_world *world, sim_op_kind kind)
{
    sim_stream_op *op = sim_pool_take(&world->ops, offsetof(sim_stream_op, args));
    if (op != NULL) {
        op->kind = kind;
    }
    return op;
}

void sim_op_free(sim_world *world, sim_stream_op *op)
{
    if (op->event != NULL) {
        sim_event_unref(op->event);
    }
    ist_free(op->payload);
    sim_pool_give(&world->ops, op);
}

sim_host_event *sim_event_new(void)
{
    sim_host_event *event = ist_alloc(1, sizeof(*event));
    if (event != NULL) {
        event->refs = 1;
    }
    return event;
}

void sim_event_unref(sim_host_event *event)
{
    if (--event->refs == 0) {
        ist_free(event);
    }
}

ist_status sim_stream_new(sim_rank *rank, sim_stream **stream)
{
    sim_stream *made = ist_alloc(1, sizeof(*made));
    if (made == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a stream of rank %u", rank->index);
    }
    made->rank = rank;
    made->ordinal = rank->stream_count++;
    made->next_of_rank = rank->streams;
    rank->streams = made;
    *stream = made;
    return IST_OK;
}

static void sim_stream_drop_ops(sim_stream *stream)
{
    while (stream->head != NULL) {
        sim_stream_op *op = stream->head;
        stream->head = op->next;
        sim_op_free(stream->rank->world, op);
    }
    stream->tail = NULL;
    stream->completed = stream->enqueued;
    stream->busy = false;
}

/* Streams stay in the rank's list, and events in the heap may name them, until the world ends. */
void sim_stream_free(sim_stream *stream)
{
    sim_stream_drop_ops(stream);
    ist_free(stream->block_agents);
    ist_free(stream);
}

void sim_rank_streams_drop(sim_rank *rank)
{
    for (sim_stream *stream = rank->streams; stream != NULL; stream = stream->next_of_rank) {
        sim_stream_drop_ops(stream);
        sim_waiters_wake(&stream->hosts);
    }
}

/* ---- exploring ------------------------------------------------------------------------------- */

/* An operation begins after all that its program did before it enqueued it. */
static void sim_stream_learn(sim_stream *stream, sim_stream_op *op)
{
    sim_explore *explore = stream->rank->world->explore;
    sim_agent_join(explore, sim_agent_stream(explore, stream), op->released);
    sim_touch_named(explore, SIM_NAME_STREAM, stream->rank, 0, stream->ordinal, 1, true);
}

/* Copies read and write as the stream's own agent. */
static void sim_stream_touch(sim_stream *stream, const sim_stream_op *op)
{
    sim_explore *explore = stream->rank->world->explore;
    uint32_t agent = sim_agent_stream(explore, stream);
    sim_touch_named(explore, SIM_NAME_STREAM, stream->rank, 0, stream->ordinal, 1, true);
    if (op->kind == SIM_OP_COPY) {
        sim_shadow_access(explore, agent, op->src, op->bytes, false, SIM_WEAK, "copy");
    }
    if (op->kind == SIM_OP_COPY || op->kind == SIM_OP_COPY_IN || op->kind == SIM_OP_FILL) {
        sim_shadow_access(explore, agent, op->dst, op->bytes, true, SIM_WEAK,
                          op->kind == SIM_OP_FILL ? "fill" : "copy");
    }
}

/* ---- running --------------------------------------------------------------------------------- */

void sim_stream_arm(sim_stream *stream)
{
    sim_world *world = stream->rank->world;
    sim_stream_op *op = stream->head;
    if (op == NULL || stream->busy || stream->armed || stream->rank->dead) {
        return;
    }
    if (world->explore != NULL) {
        stream->armed = true;
        sim_move_add(world->explore, SIM_MOVE_STREAM, stream);
        return;
    }
    uint64_t at_ps = op->not_before_ps;
    if (at_ps < world->now_ps) {
        at_ps = world->now_ps;
    }
    stream->armed = sim_heap_push(world, at_ps, SIM_EV_STREAM, stream, 0) == IST_OK;
}

void sim_stream_done(sim_stream *stream)
{
    sim_stream_op *op = stream->head;
    sim_world *world = stream->rank->world;
    if (op == NULL || stream->rank->dead) {
        return;
    }
    stream->busy = false;
    stream->head = op->next;
    if (stream->head == NULL) {
        stream->tail = NULL;
    }
    if (world->explore != NULL) {
        sim_stream_touch(stream, op);
    }
    if (op->kind == SIM_OP_COPY || op->kind == SIM_OP_COPY_IN) {
        memcpy(op->dst, op->kind == SIM_OP_COPY ? op->src : op->payload, op->bytes);
        sim_wait_word_written(stream->rank, op->dst, op->bytes);
    } else if (op->kind == SIM_OP_FILL) {
        memset(op->dst, op->value, op->bytes);
        sim_wait_word_written(stream->rank, op->dst, op->bytes);
    }
    sim_op_free(world, op);
    ++stream->completed;
    sim_waiters_wake(&stream->hosts);
    sim_stream_arm(stream);
}

static void sim_event_reached(sim_stream *stream, sim_stream_op *op)
{
    sim_host_event *event = op->event;
    if (stream->rank->world->explore != NULL) {
        sim_explore *explore = stream->rank->world->explore;
        event->released = sim_agent_release(explore, sim_agent_stream(explore, stream));
    }
    if (op->record > event->done_count) {
        event->done_count = op->record;
        event->done_ps = stream->rank->world->now_ps;
    }
    sim_stream *waiting = event->streams;
    event->streams = NULL;
    while (waiting != NULL) {
        sim_stream *next = waiting->next_on_event;
        waiting->next_on_event = NULL;
        waiting->busy = false;
        sim_stream_arm(waiting);
        waiting = next;
    }
    sim_waiters_wake(&event->hosts);
    sim_stream_done(stream);
}

static void sim_event_await(sim_stream *stream, sim_stream_op *op)
{
    if (op->event->done_count >= op->record) {
        if (stream->rank->world->explore != NULL) {
            sim_explore *explore = stream->rank->world->explore;
            sim_agent_join(explore, sim_agent_stream(explore, stream), op->event->released);
        }
        sim_stream_done(stream);
        return;
    }
    stream->busy = true;
    stream->next_on_event = op->event->streams;
    op->event->streams = stream;
}

/* Bytes on the memory of the rank: a copy reads and writes each byte, the others only write. */
static void sim_copy_start(sim_stream *stream, sim_stream_op *op)
{
    sim_world *world = stream->rank->world;
    uint32_t index = stream->rank->index;
    sim_flow *flow = &stream->flow;
    stream->busy = true;
    flow->type = SIM_EV_STREAM_DONE;
    flow->object = stream;
    flow->token = 0;
    if (world->explore != NULL) {
        sim_event_log(world, IST_SIM_COPY, stream->rank, -1, (uint32_t)op->kind, op->bytes);
        sim_move_add(world->explore, SIM_MOVE_STREAM_DONE, stream);
        return;
    }
    uint64_t bytes = op->kind == SIM_OP_COPY ? 2 * op->bytes : op->bytes;
    (void)sim_flow_route(world, flow, index, index, SIM_ROUTE_LOCAL, bytes);
    sim_event_log(world, IST_SIM_COPY, stream->rank, -1, (uint32_t)op->kind, op->bytes);
    sim_flow_begin_event(world, flow);
}

void sim_stream_start(sim_stream *stream)
{
    sim_rank *rank = stream->rank;
    sim_stream_op *op = stream->head;
    stream->armed = false;
    if (op == NULL || stream->busy || rank->dead || rank->world->now_ps < rank->stalled_until_ps) {
        return; /* a stalled rank's streams are armed again when it resumes */
    }
    if (rank->world->explore != NULL) {
        sim_stream_learn(stream, op);
    } else if (rank->world->now_ps < op->not_before_ps) {
        sim_stream_arm(stream);
        return;
    }
    switch (op->kind) {
    case SIM_OP_LAUNCH:
        stream->busy = true;
        if (sim_launch_start(stream, op) != IST_OK) {
            rank->device_fault = IST_ERR_MEMORY;
            sim_stream_done(stream);
        }
        break;
    case SIM_OP_COPY:
    case SIM_OP_COPY_IN:
    case SIM_OP_FILL: sim_copy_start(stream, op); break;
    case SIM_OP_COLL:
        stream->busy = true;
        sim_coll_start(stream, op);
        break;
    case SIM_OP_RECORD: sim_event_reached(stream, op); break;
    case SIM_OP_WAIT: sim_event_await(stream, op); break;
    }
}

ist_status sim_stream_push(sim_stream *stream, sim_stream_op *op)
{
    sim_world *world = stream->rank->world;
    if (stream->capture != NULL) {
        return sim_graph_capture(stream, op);
    }
    if (op->kind == SIM_OP_COLL) {
        ist_status status = sim_coll_push(op);
        if (status != IST_OK) {
            sim_op_free(world, op);
            return status;
        }
    }
    op->next = NULL;
    op->not_before_ps = sim_actor_now_ps(&stream->rank->host);
    if (world->explore != NULL) {
        uint32_t host = sim_agent_of(world->explore, &stream->rank->host);
        op->released = sim_agent_release(world->explore, host);
    }
    /* A copy is launched as a kernel is; behind work that is still queued, that is hidden. */
    if ((op->kind == SIM_OP_LAUNCH || op->kind == SIM_OP_COPY) && stream->head == NULL) {
        op->not_before_ps += world->cluster.launch_ps;
    }
    if (op->kind == SIM_OP_RECORD) {
        op->record = ++op->event->record_count;
    } else if (op->kind == SIM_OP_WAIT) {
        op->record = op->event->record_count;
    }
    if (stream->tail == NULL) {
        stream->head = op;
    } else {
        stream->tail->next = op;
    }
    stream->tail = op;
    ++stream->enqueued;
    sim_stream_arm(stream);
    return IST_OK;
}
