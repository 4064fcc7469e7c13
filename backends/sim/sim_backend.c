/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator as a backend: the table of operations, each a host program's call on its rank.
 *
 * A call that only touches the caller's own rank costs time but no switch: the time goes to the
 * host's lead, and what it enqueues starts no earlier. Blocking calls let the world catch up first.
 */
#include "sim_coll.h"
#include "sim_conductor.h"
#include "sim_explore.h"
#include "sim_world.h"

#include <string.h>

/* Streams, events, graphs, members cross the waist as numbers. */
static uint64_t sim_number(const void *object)
{
    return (uint64_t)(uintptr_t)object;
}

static void *sim_object(uint64_t number)
{
    return (void *)(uintptr_t)number;
}

/*
 * Every call begins here: it is an operation that faults may strike, and a dead rank's calls have
 * no effect. A killed program that never ends would hang the world, hence the limit.
 */
static ist_status sim_call(sim_rank *rank)
{
    if (!rank->dead) {
        sim_rank_op(rank);
    }
    if (rank->dead) {
        if (++rank->unwind_calls > rank->world->unwind_max) {
            sim_host_abandon(rank);
        }
        return IST_ERR_KILLED;
    }
    rank->host.lag_ps += rank->world->cluster.host_call_ps;
    return IST_OK;
}

#define SIM_CALL(rank)                                                                             \
    do {                                                                                           \
        ist_status sim_call_status_ = sim_call(rank);                                              \
        if (sim_call_status_ != IST_OK) {                                                          \
            return sim_call_status_;                                                               \
        }                                                                                          \
    } while (0)

static ist_status sim_caps(void *self, ist_backend_caps *caps)
{
    sim_rank *rank = self;
    const ist_cluster *cluster = &rank->world->cluster;
    ist_backend_caps filled = {.size = sizeof(filled),
                               .sm_count = (uint32_t)cluster->sm_count,
                               .device_name = "simulated GPU",
                               .gin_reason = cluster->nics_per_node == 0
                                                 ? "the cluster description has no NICs (nics=0)"
                                                 : NULL};
    uint32_t size = caps->size < sizeof(filled) ? caps->size : (uint32_t)sizeof(filled);
    filled.size = size;
    memcpy(caps, &filled, size);
    return IST_OK;
}

/* ---- exploring: what a program's calls touch and order ----------------------------------------- */

/* Host-visible words are read one by one, as acquire loads of the whole system. */
static void sim_host_reads(sim_rank *rank, const void *mem, size_t bytes)
{
    sim_explore *explore = rank->world->explore;
    if (explore == NULL || rank->dead) {
        return;
    }
    uint32_t agent = sim_agent_of(explore, &rank->host);
    sim_shadow_access(explore, agent, mem, bytes, false, SIM_STRONG_SYSTEM, "peek");
    sim_words_acquire(explore, agent, mem, bytes);
}

static void sim_host_writes(sim_rank *rank, void *mem, const void *host, size_t bytes)
{
    sim_explore *explore = rank->world->explore;
    if (explore == NULL || rank->world->current == NULL) {
        return;
    }
    uint32_t agent = sim_agent_of(explore, &rank->host);
    if (bytes == 8) {
        uint64_t value;
        memcpy(&value, host, sizeof(value));
        sim_word_store(explore, agent, mem, value, 8, IST_RELEASE, IST_SCOPE_SYSTEM, "poke");
        return;
    }
    sim_shadow_access(explore, agent, mem, bytes, true, SIM_STRONG_SYSTEM, "poke");
}

static void sim_host_after_stream(sim_stream *stream)
{
    sim_explore *explore = stream->rank->world->explore;
    if (explore != NULL) {
        sim_agent_order(explore, sim_agent_stream(explore, stream),
                        sim_agent_of(explore, &stream->rank->host));
    }
}

static void sim_host_after_event(sim_rank *rank, const sim_host_event *event)
{
    sim_explore *explore = rank->world->explore;
    if (explore != NULL) {
        sim_agent_join(explore, sim_agent_of(explore, &rank->host), event->released);
    }
}

/* ---- time and memory ------------------------------------------------------------------------- */

static ist_status sim_clock(void *self, uint64_t *now_ns)
{
    sim_rank *rank = self;
    *now_ns = sim_actor_now_ps(&rank->host) / SIM_PS_PER_NS;
    return rank->dead ? IST_ERR_KILLED : IST_OK;
}

static ist_status sim_sleep(void *self, uint64_t ns)
{
    sim_rank *rank = self;
    SIM_CALL(rank);
    rank->host.lag_ps = sim_add_sat(rank->host.lag_ps, sim_ps_from_ns(ns));
    sim_actor_sleep(&rank->host);
    return rank->dead ? IST_ERR_KILLED : IST_OK;
}

static ist_status sim_mem_alloc(void *self, size_t bytes, uint32_t flags, void **mem)
{
    SIM_CALL((sim_rank *)self);
    return sim_memory_alloc(self, bytes, flags, mem);
}

static ist_status sim_mem_free(void *self, void *mem)
{
    SIM_CALL((sim_rank *)self);
    return sim_memory_free(self, mem);
}

static ist_status sim_mem_query(void *self, const void *mem, size_t bytes, uint32_t *flags)
{
    sim_allocation *allocation = sim_memory_find(self, mem, bytes);
    if (allocation == NULL) {
        return IST_ERR_ARGUMENT; /* the front knows which argument it was */
    }
    *flags = allocation->flags;
    return IST_OK;
}

/* Host-visible memory is shared with device code that runs meanwhile: the time must be right. */
static ist_status sim_mem_peek(void *self, const void *mem, void *host, size_t bytes)
{
    sim_rank *rank = self;
    SIM_CALL(rank);
    sim_actor_sync(&rank->host);
    sim_host_reads(rank, mem, bytes);
    memcpy(host, mem, bytes);
    return rank->dead ? IST_ERR_KILLED : IST_OK;
}

/* An abort may come from the program of another rank, while the owner's blocks. */
static ist_status sim_mem_poke(void *self, void *mem, const void *host, size_t bytes)
{
    sim_rank *rank = self;
    SIM_CALL(rank);
    if (rank->world->current == &rank->host) {
        sim_actor_sync(&rank->host);
    }
    if (rank->dead) {
        return IST_ERR_KILLED;
    }
    sim_host_writes(rank, mem, host, bytes);
    memcpy(mem, host, bytes);
    sim_wait_word_written(rank, mem, bytes);
    sim_wait_mask_changed(rank); /* it may have been a mask or an abort word */
    return IST_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

static ist_status sim_stream_open(void *self, uint64_t *number)
{
    sim_stream *stream = NULL;
    SIM_CALL((sim_rank *)self);
    IST_RETURN_IF_ERROR(sim_stream_new(self, &stream));
    *number = sim_number(stream);
    return IST_OK;
}

static ist_status sim_stream_close(void *self, uint64_t number)
{
    sim_stream *stream = sim_object(number);
    SIM_CALL((sim_rank *)self);
    if (stream->capture != NULL && stream->capture->origin == stream) {
        sim_graph_free(stream->capture);
    }
    stream->capture = NULL;
    stream->closed = true; /* freed with the world: queued work and events may still name it */
    return IST_OK;
}

/* A kernel that touched what it may not leaves the device in doubt; one that ran out of the
   simulator's own memory is reported once. */
static ist_status sim_stream_state(sim_rank *rank)
{
    if (rank->dead) {
        return IST_ERR_KILLED;
    }
    ist_status fault = rank->device_fault;
    if (fault == IST_ERR_MEMORY) {
        rank->device_fault = IST_OK;
    }
    return fault;
}

static ist_status sim_stream_await(sim_stream *stream, uint64_t target, uint64_t deadline_ns)
{
    sim_rank *rank = stream->rank;
    sim_actor *host = &rank->host;
    sim_actor_sync(host);
    uint64_t began_ps = rank->world->now_ps;
    uint64_t deadline_ps = sim_add_sat(began_ps, sim_ps_from_ns(deadline_ns));
    while (!rank->dead && stream->completed < target) {
        host->next_waiter = stream->hosts;
        stream->hosts = host;
        if (!sim_actor_block(host, deadline_ps) && stream->completed < target && !rank->dead) {
            sim_waiters_remove(&stream->hosts, host);
            ist_error details = {.rank = (int32_t)rank->index,
                                 .peer = IST_RANK_NONE,
                                 .expected = target,
                                 .observed = stream->completed,
                                 .waited_ns = deadline_ns,
                                 .object = "stream",
                                 .operation = "stream.sync"};
            return ist_raise(IST_ERR_TIMEOUT, &details,
                             "rank %u waited %llu ns for its stream: %llu of %llu operations have "
                             "run",
                             rank->index, (unsigned long long)deadline_ns,
                             (unsigned long long)stream->completed, (unsigned long long)target);
        }
    }
    sim_host_after_stream(stream);
    return sim_stream_state(rank);
}

static ist_status sim_stream_sync(void *self, uint64_t number, uint64_t deadline_ns)
{
    sim_stream *stream = sim_object(number);
    SIM_CALL((sim_rank *)self);
    return sim_stream_await(stream, stream->enqueued, deadline_ns);
}

static ist_status sim_stream_query(void *self, uint64_t number)
{
    sim_rank *rank = self;
    sim_stream *stream = sim_object(number);
    SIM_CALL(rank);
    sim_actor_sync(&rank->host);
    if (!rank->dead && stream->completed < stream->enqueued) {
        return IST_IN_PROGRESS;
    }
    sim_host_after_stream(stream);
    return sim_stream_state(rank);
}

static ist_status sim_push(sim_rank *rank, uint64_t number, sim_op_kind kind, sim_stream_op **op)
{
    SIM_CALL(rank);
    (void)number;
    *op = sim_op_new(rank->world, kind);
    return *op != NULL
               ? IST_OK
               : ist_raise(IST_ERR_MEMORY, NULL, "no memory to enqueue on rank %u", rank->index);
}

static ist_status sim_copy_in(void *self, uint64_t number, void *dst, const void *host,
                              size_t bytes)
{
    sim_rank *rank = self;
    sim_stream_op *op = NULL;
    IST_RETURN_IF_ERROR(sim_push(rank, number, SIM_OP_COPY_IN, &op));
    op->payload = ist_alloc(1, bytes == 0 ? 1 : bytes);
    if (op->payload == NULL) {
        sim_op_free(rank->world, op);
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to capture %zu bytes on rank %u", bytes,
                         rank->index);
    }
    memcpy(op->payload, host, bytes);
    op->dst = dst;
    op->bytes = bytes;
    return sim_stream_push(sim_object(number), op);
}

static ist_status sim_copy_out(void *self, uint64_t number, void *host, const void *src,
                               size_t bytes, uint64_t deadline_ns)
{
    sim_rank *rank = self;
    sim_stream *stream = sim_object(number);
    SIM_CALL(rank);
    IST_RETURN_IF_ERROR(sim_stream_await(stream, stream->enqueued, deadline_ns));
    if (rank->world->explore != NULL) {
        sim_explore *explore = rank->world->explore;
        sim_shadow_access(explore, sim_agent_of(explore, &rank->host), src, bytes, false, SIM_WEAK,
                          "copy_out");
    }
    memcpy(host, src, bytes);
    return IST_OK;
}

static ist_status sim_copy_local(void *self, uint64_t number, void *dst, const void *src,
                                 size_t bytes)
{
    sim_stream_op *op = NULL;
    IST_RETURN_IF_ERROR(sim_push(self, number, SIM_OP_COPY, &op));
    op->dst = dst;
    op->src = src;
    op->bytes = bytes;
    return sim_stream_push(sim_object(number), op);
}

static ist_status sim_fill(void *self, uint64_t number, void *dst, uint8_t value, size_t bytes)
{
    sim_stream_op *op = NULL;
    IST_RETURN_IF_ERROR(sim_push(self, number, SIM_OP_FILL, &op));
    op->dst = dst;
    op->value = value;
    op->bytes = bytes;
    return sim_stream_push(sim_object(number), op);
}

/* ---- events ---------------------------------------------------------------------------------- */

static ist_status sim_event_open(void *self, uint64_t *number)
{
    sim_rank *rank = self;
    SIM_CALL(rank);
    sim_host_event *event = sim_event_new();
    if (event == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for an event of rank %u", rank->index);
    }
    event->next_of_rank = rank->events;
    rank->events = event;
    *number = sim_number(event);
    return IST_OK;
}

static ist_status sim_event_close(void *self, uint64_t number)
{
    sim_rank *rank = self;
    sim_host_event *event = sim_object(number);
    SIM_CALL(rank);
    sim_host_event **link = &rank->events;
    while (*link != NULL && *link != event) {
        link = &(*link)->next_of_rank;
    }
    if (*link != NULL) {
        *link = event->next_of_rank;
        sim_event_unref(event);
    }
    return IST_OK;
}

static ist_status sim_event_record(void *self, uint64_t number, uint64_t stream_number)
{
    sim_stream_op *op = NULL;
    sim_stream *stream = sim_object(stream_number);
    IST_RETURN_IF_ERROR(sim_push(self, stream_number, SIM_OP_RECORD, &op));
    op->event = sim_object(number);
    ++op->event->refs;
    if (stream->capture == NULL) {
        op->event->capture = NULL;
    }
    return sim_stream_push(stream, op);
}

static ist_status sim_event_wait(void *self, uint64_t number, uint64_t stream_number)
{
    sim_rank *rank = self;
    sim_host_event *event = sim_object(number);
    sim_stream *stream = sim_object(stream_number);
    sim_stream_op *op = NULL;
    IST_RETURN_IF_ERROR(sim_push(rank, stream_number, SIM_OP_WAIT, &op));
    op->event = event;
    ++event->refs;
    if (event->capture != NULL && event->capture->origin != NULL && stream->capture == NULL) {
        ist_status status = sim_graph_join(stream, event);
        if (status != IST_OK) {
            sim_op_free(rank->world, op);
            return status;
        }
    }
    return sim_stream_push(stream, op);
}

static ist_status sim_event_sync(void *self, uint64_t number, uint64_t deadline_ns)
{
    sim_rank *rank = self;
    sim_actor *host = &rank->host;
    sim_host_event *event = sim_object(number);
    SIM_CALL(rank);
    sim_actor_sync(host);
    uint64_t target = event->record_count;
    uint64_t deadline_ps = sim_add_sat(rank->world->now_ps, sim_ps_from_ns(deadline_ns));
    while (!rank->dead && event->done_count < target) {
        host->next_waiter = event->hosts;
        event->hosts = host;
        if (!sim_actor_block(host, deadline_ps) && event->done_count < target && !rank->dead) {
            sim_waiters_remove(&event->hosts, host);
            return ist_raise(IST_ERR_TIMEOUT, NULL, "rank %u waited %llu ns for an event",
                             rank->index, (unsigned long long)deadline_ns);
        }
    }
    sim_host_after_event(rank, event);
    return sim_stream_state(rank);
}

static ist_status sim_event_query(void *self, uint64_t number)
{
    sim_rank *rank = self;
    sim_host_event *event = sim_object(number);
    SIM_CALL(rank);
    sim_actor_sync(&rank->host);
    if (!rank->dead && event->done_count < event->record_count) {
        return IST_IN_PROGRESS;
    }
    sim_host_after_event(rank, event);
    return sim_stream_state(rank);
}

static ist_status sim_event_elapsed(void *self, uint64_t start, uint64_t end, uint64_t *elapsed_ns)
{
    sim_rank *rank = self;
    const sim_host_event *first = sim_object(start);
    const sim_host_event *last = sim_object(end);
    SIM_CALL(rank);
    if (first->done_count == 0 || last->done_count == 0 ||
        first->done_count < first->record_count || last->done_count < last->record_count) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "rank %u asks for the time between two events that "
                         "have not both been reached",
                         rank->index);
    }
    *elapsed_ns =
        last->done_ps >= first->done_ps ? (last->done_ps - first->done_ps) / SIM_PS_PER_NS : 0;
    return IST_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static ist_status sim_op_graph_begin(void *self, uint64_t stream)
{
    SIM_CALL((sim_rank *)self);
    return sim_graph_begin(sim_object(stream));
}

static ist_status sim_op_graph_end(void *self, uint64_t stream, uint64_t *number)
{
    sim_graph *graph = NULL;
    SIM_CALL((sim_rank *)self);
    IST_RETURN_IF_ERROR(sim_graph_end(sim_object(stream), &graph));
    *number = sim_number(graph);
    return IST_OK;
}

static ist_status sim_op_graph_launch(void *self, uint64_t graph, uint64_t stream)
{
    SIM_CALL((sim_rank *)self);
    return sim_graph_launch(sim_object(graph), sim_object(stream));
}

static ist_status sim_op_graph_close(void *self, uint64_t graph)
{
    SIM_CALL((sim_rank *)self);
    sim_graph_free(sim_object(graph));
    return IST_OK;
}

/* ---- communicators --------------------------------------------------------------------------- */

static ist_status sim_id_create(void *self, uint8_t *id)
{
    sim_rank *rank = self;
    SIM_CALL(rank);
    /* Distinct in the world, equal in every run of it. */
    uint64_t words[3] = {0x53494d494431ull, rank->index, ++rank->id_count};
    memset(id, 0, 128);
    memcpy(id, words, sizeof(words));
    return IST_OK;
}

static ist_status sim_comm_open(void *self, const ist_backend_comm_desc *desc, uint64_t *number,
                                ist_backend_comm_info *info)
{
    sim_rank *rank = self;
    sim_member *member = NULL;
    SIM_CALL(rank);
    sim_actor_sync(&rank->host);
    if (rank->dead) {
        return IST_ERR_KILLED;
    }
    IST_RETURN_IF_ERROR(sim_comm_join(rank, desc, &member));
    const topo_formed *choice = &member->comm->choice;
    *info = (ist_backend_comm_info){.lsa_rank = desc->rank % choice->lsa_size,
                                    .lsa_size = choice->lsa_size,
                                    .gin_supported = choice->gin != TOPO_GIN_NONE ? 1u : 0u,
                                    .gin_reason = choice->gin_reason};
    *number = sim_number(member);
    return IST_OK;
}

static ist_status sim_comm_close(void *self, uint64_t number)
{
    SIM_CALL((sim_rank *)self);
    sim_coll_close(sim_object(number));
    ((sim_member *)sim_object(number))->open = false;
    return IST_OK;
}

static ist_status sim_comm_abort(void *self, uint64_t number)
{
    sim_member *member = sim_object(number);
    SIM_CALL((sim_rank *)self);
    member->aborted = true;
    if (member->rank->world->explore != NULL) {
        member->rank->world->explore->gave_up = true;
    }
    sim_member_wake(member);
    sim_coll_abort(member);
    sim_wait_mask_changed(member->rank);
    return IST_OK;
}

static ist_status sim_op_exchange(void *self, uint64_t number, const void *send, size_t bytes,
                                  void *recv, uint64_t deadline_ns, uint64_t *lost_words)
{
    SIM_CALL((sim_rank *)self);
    return sim_comm_exchange(sim_object(number), send, bytes, recv, deadline_ns, lost_words);
}

static ist_status sim_window_open(void *self, uint64_t number, void *mem, size_t bytes,
                                  uint32_t *index)
{
    SIM_CALL((sim_rank *)self);
    return sim_window_register(sim_object(number), mem, bytes, index);
}

static ist_status sim_window_close(void *self, uint64_t number, uint32_t index)
{
    SIM_CALL((sim_rank *)self);
    return sim_window_unregister(sim_object(number), index);
}

static ist_status sim_op_devcomm_open(void *self, uint64_t number, const ist_devcomm_desc *desc,
                                      const ist_dev_comm **dev)
{
    sim_devcomm *opened = NULL;
    SIM_CALL((sim_rank *)self);
    IST_RETURN_IF_ERROR(sim_devcomm_open(sim_object(number), desc, &opened));
    *dev = &opened->pub;
    return IST_OK;
}

static ist_status sim_op_devcomm_close(void *self, uint64_t number, const ist_dev_comm *dev)
{
    SIM_CALL((sim_rank *)self);
    return sim_devcomm_close(sim_object(number), dev->backend);
}

static ist_status sim_op_launch(void *self, uint64_t number, const ist_kernel *kernel,
                                uint32_t block_count, const void *args, size_t args_bytes)
{
    sim_rank *rank = self;
    sim_stream_op *op = NULL;
    IST_RETURN_IF_ERROR(sim_push(rank, number, SIM_OP_LAUNCH, &op));
    op->kernel = kernel;
    op->block_count = block_count;
    op->args_bytes = (uint32_t)args_bytes;
    void *copy = op->args;
    if (args_bytes > SIM_ARGS_INLINE) {
        copy = op->payload = ist_alloc(1, args_bytes);
        if (copy == NULL) {
            sim_op_free(rank->world, op);
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %zu bytes of arguments",
                             args_bytes);
        }
    }
    memcpy(copy, args, args_bytes);
    return sim_stream_push(sim_object(number), op);
}

/* ---- native collectives ---------------------------------------------------------------------- */

static ist_status sim_op_coll_info(void *self, ist_backend_coll_info *info)
{
    SIM_CALL((sim_rank *)self);
    *info = (ist_backend_coll_info){.all_to_all_native = 1, .library = "simulator"};
    return IST_OK;
}

static ist_status sim_op_coll_open(void *self, uint64_t number, uint64_t deadline_ns)
{
    SIM_CALL((sim_rank *)self);
    return sim_coll_open(sim_object(number), deadline_ns);
}

static ist_status sim_op_coll_close(void *self, uint64_t number)
{
    SIM_CALL((sim_rank *)self);
    sim_coll_close(sim_object(number));
    return IST_OK;
}

static ist_status sim_op_coll_enqueue(void *self, const ist_backend_coll *calls, uint32_t count)
{
    SIM_CALL((sim_rank *)self);
    return sim_coll_enqueue(self, calls, count);
}

static ist_status sim_op_coll_estimate(void *self, const ist_backend_coll *call, uint64_t *time_ps)
{
    sim_comm *comm = ((sim_member *)sim_object(call->comm))->comm;
    SIM_CALL((sim_rank *)self);
    IST_RETURN_IF_ERROR(sim_coll_prepare(comm));
    return sim_coll_estimate(comm->coll, call, time_ps);
}

static ist_status sim_op_coll_status(void *self, uint64_t number, ist_error *why)
{
    sim_rank *rank = self;
    SIM_CALL(rank);
    sim_actor_sync(&rank->host);
    return rank->dead ? IST_ERR_KILLED : sim_coll_status(sim_object(number), why);
}

/* ---- explaining ------------------------------------------------------------------------------ */

/* The cluster's line, from which topo_cluster_choose() says what its graph says. */
static ist_status sim_op_comm_ground(void *self, uint64_t number, ist_backend_ground *ground,
                                     uint32_t *gpus, uint64_t *maps)
{
    const sim_comm *comm = ((const sim_member *)sim_object(number))->comm;
    (void)maps;
    if (((const sim_rank *)self)->dead) {
        SIM_CALL((sim_rank *)self);
    } /* else asking takes no time */
    *ground = (ist_backend_ground){.lsa_size_max = comm->lsa_size_max,
                                   .gin_known = 1,
                                   .gin = (uint32_t)comm->choice.gin,
                                   .rank_count = comm->rank_count};
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        gpus[i] = comm->members[i].rank->index;
    }
    return ist_cluster_print(&comm->world->cluster, ground->source, sizeof(ground->source), NULL);
}

const ist_backend_ops sim_ops = {
    .size = sizeof(sim_ops),
    .abi = IST_BACKEND_ABI,
    .caps = sim_caps,
    .clock = sim_clock,
    .sleep = sim_sleep,
    .mem_alloc = sim_mem_alloc,
    .mem_free = sim_mem_free,
    .mem_query = sim_mem_query,
    .mem_peek = sim_mem_peek,
    .mem_poke = sim_mem_poke,
    .stream_open = sim_stream_open,
    .stream_close = sim_stream_close,
    .stream_sync = sim_stream_sync,
    .stream_query = sim_stream_query,
    .copy_in = sim_copy_in,
    .copy_out = sim_copy_out,
    .copy_local = sim_copy_local,
    .fill = sim_fill,
    .event_open = sim_event_open,
    .event_close = sim_event_close,
    .event_record = sim_event_record,
    .event_wait = sim_event_wait,
    .event_sync = sim_event_sync,
    .event_query = sim_event_query,
    .event_elapsed = sim_event_elapsed,
    .graph_begin = sim_op_graph_begin,
    .graph_end = sim_op_graph_end,
    .graph_launch = sim_op_graph_launch,
    .graph_close = sim_op_graph_close,
    .id_create = sim_id_create,
    .comm_open = sim_comm_open,
    .comm_close = sim_comm_close,
    .comm_abort = sim_comm_abort,
    .comm_exchange = sim_op_exchange,
    .window_open = sim_window_open,
    .window_close = sim_window_close,
    .devcomm_open = sim_op_devcomm_open,
    .devcomm_close = sim_op_devcomm_close,
    .launch = sim_op_launch,
    .coll_info = sim_op_coll_info,
    .coll_open = sim_op_coll_open,
    .coll_close = sim_op_coll_close,
    .coll_enqueue = sim_op_coll_enqueue,
    .coll_status = sim_op_coll_status,
    .coll_estimate = sim_op_coll_estimate,
    .comm_ground = sim_op_comm_ground,
};

static ist_status sim_probe(const char **reason)
{
    *reason = NULL;
    return IST_OK;
}

static void sim_result_copy(const ist_world_result *filled, ist_world_result *result)
{
    uint32_t size = result->size < sizeof(*filled) ? result->size : (uint32_t)sizeof(*filled);
    memcpy(result, filled, size);
    result->size = size;
}

static ist_status sim_backend_run(const ist_backend_world *setup, ist_world_result *result)
{
    ist_world_result filled = {.size = sizeof(filled), .failed_rank = IST_RANK_NONE};
    if (setup->process != NULL && setup->process->rank_count > 1) {
        ist_status status = sim_conductor_run(setup, &filled);
        sim_result_copy(&filled, result);
        return status;
    }
    sim_world *world = NULL;
    ist_status status = sim_world_open(setup, &world);
    if (status != IST_OK) {
        filled.status = status;
        sim_result_copy(&filled, result);
        return status;
    }
    status = sim_world_run(world);
    sim_world_result(world, status, &filled);
    if (filled.failed_rank >= 0) { /* the caller asks for the reason after the ranks are gone */
        ist_error_adopt(&world->ranks[filled.failed_rank].error);
    }
    sim_world_close(world);
    sim_result_copy(&filled, result);
    return filled.status;
}

const ist_backend ist_backend_sim = {
    .size = sizeof(ist_backend_sim),
    .abi = IST_BACKEND_ABI,
    .name = "sim",
    .explicit_only = 1,
    .probe = sim_probe,
    .world_run = sim_backend_run,
    .ops = &sim_ops,
};
