/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of native collectives: batches get their turn on their streams, calls find those of the other
 * members, runs end, deadlines pass, members leave.
 */
#include "sim_coll.h"
#include "sim_explore.h"

#include <stdio.h>
#include <string.h>

#define SIM_PAIR UINT64_MAX

const char *sim_coll_text(ist_coll_kind kind)
{
    switch (kind) {
    case IST_COLL_ALL_REDUCE: return "all_reduce";
    case IST_COLL_BROADCAST: return "broadcast";
    case IST_COLL_REDUCE: return "reduce";
    case IST_COLL_ALL_GATHER: return "all_gather";
    case IST_COLL_REDUCE_SCATTER: return "reduce_scatter";
    case IST_COLL_ALL_TO_ALL: return "all_to_all";
    case IST_COLL_SEND: return "send";
    case IST_COLL_RECV: break;
    }
    return "recv";
}

static sim_coll_member *member_of(const sim_member *member)
{
    return member->comm->coll != NULL ? &member->comm->coll->members[member->index] : NULL;
}

static sim_member *member_of_call(const ist_backend_coll *call)
{
    return (sim_member *)(uintptr_t)call->comm;
}

/* ---- opening --------------------------------------------------------------------------------- */

void sim_coll_free(sim_coll *coll)
{
    if (coll == NULL) {
        return;
    }
    while (coll->runs != NULL) {
        sim_coll_run *run = coll->runs;
        coll->runs = run->next;
        ist_free(run->flows);
        ist_free(run);
    }
    for (uint32_t i = 0; coll->members != NULL && i < coll->comm->rank_count; ++i) {
        ist_free(coll->members[i].batch);
    }
    ist_free(coll->members);
    ist_free(coll->links);
    ist_free(coll->work);
    ist_free(coll);
}

static ist_status coll_new(sim_comm *comm)
{
    sim_coll *coll = ist_alloc(1, sizeof(*coll));
    if (coll == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for native collectives");
    }
    coll->comm = comm;
    coll->members = ist_alloc(comm->rank_count, sizeof(*coll->members));
    coll->work = ist_alloc(1, 2u * SIM_COLL_CHUNK * sizeof(uint64_t) +
                                  comm->rank_count * sizeof(sim_coll_term));
    ist_status status =
        coll->members != NULL && coll->work != NULL
            ? sim_coll_machine(coll)
            : ist_raise(IST_ERR_MEMORY, NULL, "no memory for native collectives of %u ranks",
                        comm->rank_count);
    if (status != IST_OK) {
        sim_coll_free(coll);
        return status;
    }
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        coll->members[i].member = &comm->members[i];
        coll->members[i].coll = coll;
    }
    comm->coll = coll;
    return IST_OK;
}

ist_status sim_coll_prepare(sim_comm *comm)
{
    return comm->coll != NULL ? IST_OK : coll_new(comm);
}

ist_status sim_coll_open(sim_member *member, uint64_t deadline_ns)
{
    sim_comm *comm = member->comm;
    if (comm->lsa_size < comm->rank_count && comm->world->cluster.nics_per_node == 0) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "the ranks are in several load/store teams and the cluster description "
                         "has no NICs (nics=0)");
    }
    IST_RETURN_IF_ERROR(sim_coll_prepare(comm));
    sim_coll_member *opened = member_of(member);
    opened->opened = true;
    opened->deadline_ns = deadline_ns;
    return IST_OK;
}

ist_status sim_coll_status(sim_member *member, ist_error *why)
{
    const sim_coll_member *asked = member_of(member);
    if (asked == NULL || asked->why.status == IST_OK) {
        return IST_OK;
    }
    *why = asked->why;
    return why->status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static sim_coll_run *run_new(sim_coll *coll, uint64_t number, uint32_t room,
                             const ist_backend_coll *shape)
{
    sim_coll_run *run = ist_alloc(1, sizeof(*run) + room * (sizeof(run->calls[0]) + 1u));
    if (run == NULL) {
        return NULL;
    }
    run->coll = coll;
    run->number = number;
    run->room = room;
    run->came = (uint8_t *)(run->calls + room);
    run->shape = *shape;
    run->next = coll->runs;
    coll->runs = run;
    return run;
}

static void run_free(sim_coll_run *run)
{
    sim_coll_run **link = &run->coll->runs;
    while (*link != run) {
        link = &(*link)->next;
    }
    *link = run->next;
    ist_free(run->flows);
    ist_free(run);
}

bool sim_coll_broken(const sim_coll_run *run)
{
    for (uint32_t i = 0; i < run->room; ++i) {
        if (run->calls[i] == NULL || run->calls[i]->batch->member->member->rank->dead) {
            return true;
        }
    }
    return false;
}

static void log_run(const sim_coll_run *run, uint32_t kind)
{
    sim_world *world = run->coll->comm->world;
    sim_event_log(world, kind, run->coll->comm->members[0].rank, -1,
                  sim_log_name(&world->log, sim_coll_text(run->shape.kind)),
                  run->shape.count * ist_dtype_bytes(run->shape.dtype));
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The batch whose turn it is may already stand at the head of its stream. */
static void next_turn(sim_coll_member *member)
{
    sim_rank *rank = member->member->rank;
    ++member->turn;
    for (sim_stream *stream = rank->streams; stream != NULL; stream = stream->next_of_rank) {
        sim_stream_op *op = stream->head;
        if (op != NULL && stream->busy && op->kind == SIM_OP_COLL && op->record == member->turn &&
            member_of_call(op->payload) == member->member) {
            sim_coll_start(stream, op);
            return;
        }
    }
}

static void stream_goes_on(sim_stream *stream)
{
    sim_explore *explore = stream->rank->world->explore;
    if (stream->rank->dead) {
        return;
    }
    if (explore != NULL) {
        sim_move_add(explore, SIM_MOVE_STREAM_DONE, stream);
        return;
    }
    sim_stream_done(stream);
}

static void batch_end(sim_coll_batch *batch)
{
    sim_coll_member *member = batch->member;
    sim_stream *stream = batch->stream;
    member->batch = NULL;
    ist_free(batch);
    stream_goes_on(stream);
    next_turn(member);
}

static void call_end(sim_coll_call *call)
{
    call->ended = true;
    call->run = NULL;
    if (--call->batch->left == 0) {
        batch_end(call->batch);
    }
}

void sim_coll_finish(sim_coll_run *run)
{
    if (run->coll->comm->world->explore != NULL) {
        sim_coll_observe(run);
    }
    sim_coll_move(run);
    log_run(run, IST_SIM_KERNEL_END);
    for (uint32_t i = 0; i < run->room; ++i) {
        sim_coll_call *call = run->calls[i];
        run->calls[i] = NULL;
        call_end(call);
    }
    run_free(run);
}

/* ---- failing --------------------------------------------------------------------------------- */

static void lonely_remove(sim_coll *coll, const sim_coll_call *call)
{
    sim_coll_call *before = NULL;
    sim_coll_call **link = &coll->lonely;
    while (*link != NULL && *link != call) {
        before = *link;
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = call->next;
        coll->lonely_tail = coll->lonely_tail == call ? before : coll->lonely_tail;
    }
}

static void leave_runs(sim_coll_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; ++i) {
        sim_coll_call *call = &batch->calls[i];
        sim_coll_run *run = call->run;
        lonely_remove(batch->member->coll, call);
        for (uint32_t k = 0; run != NULL && k < run->room; ++k) {
            run->calls[k] = run->calls[k] == call ? NULL : run->calls[k];
        }
    }
}

/* The first failure counts; it ends whatever the member has under way. */
static void member_fail(sim_coll_member *member, ist_status status, const ist_error *details,
                        const char *sentence)
{
    if (member->why.status != IST_OK) {
        return;
    }
    ist_error *outer = ist_error_bind(&member->why);
    (void)ist_raise(status, details, "%s", sentence);
    (void)ist_error_bind(outer);
    if (member->member->comm->world->explore != NULL) {
        member->member->comm->world->explore->gave_up = true;
    }
    sim_coll_batch *batch = member->batch;
    if (batch != NULL) {
        leave_runs(batch);
        batch_end(batch);
    }
}

static ist_error details_of(const sim_coll_member *member, const ist_backend_coll *call)
{
    ist_error details = {
        .rank = (int32_t)member->member->rank->index, .peer = IST_RANK_NONE, .object = "comm"};
    (void)snprintf(details.operation, sizeof(details.operation), "%s",
                   call != NULL ? sim_coll_text(call->kind) : "coll");
    details.sequence = member->batch != NULL ? member->batch->sequence : member->calls;
    return details;
}

void sim_coll_fail_run(sim_coll_run *run, ist_status status, const char *sentence)
{
    for (uint32_t i = 0; i < run->room; ++i) {
        if (run->calls[i] != NULL) {
            sim_coll_member *member = run->calls[i]->batch->member;
            ist_error details = details_of(member, &run->shape);
            member_fail(member, status, &details, sentence);
        }
    }
}

void sim_coll_abort(sim_member *member)
{
    sim_coll_member *ending = member_of(member);
    if (ending != NULL && ending->opened) {
        ist_error details = details_of(ending, NULL);
        member_fail(ending, IST_ERR_ABORTED, &details, "the communicator was aborted");
    }
}

void sim_coll_close(sim_member *member)
{
    sim_coll_member *ending = member_of(member);
    if (ending != NULL && ending->opened && ending->turn != ending->issued) {
        ist_error details = details_of(ending, NULL);
        member_fail(ending, IST_ERR_ABORTED, &details,
                    "the communicator was closed while collectives were under way");
    }
    if (ending != NULL) {
        ending->opened = false;
    }
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void no_memory(sim_coll_member *member, const ist_backend_coll *call)
{
    ist_error details = details_of(member, call);
    member_fail(member, IST_ERR_MEMORY, &details, "no memory for a collective");
}

/* Without its timer a batch could last for ever: it ends at once then. */
static void arm_timer(sim_coll_member *member)
{
    sim_world *world = member->member->comm->world;
    member->timer =
        sim_heap_push(world, member->batch->deadline_ps, SIM_EV_COLL_TIMER, member, 0) == IST_OK;
    if (!member->timer) {
        const ist_backend_coll first = member->batch->calls[0].call;
        no_memory(member, &first);
    }
}

/* Whom the first open call of a batch waits for; -1: all came, the bytes did not. */
static int32_t missing_peer(const sim_coll_batch *batch, const sim_coll_call **open)
{
    uint32_t i = 0;
    while (batch->calls[i].ended) {
        ++i;
    }
    const sim_coll_call *call = &batch->calls[i];
    const sim_coll_run *run = call->run;
    const sim_coll *coll = batch->member->coll;
    *open = call;
    if (call->call.kind >= IST_COLL_SEND) {
        return (int32_t)call->call.peer;
    }
    int32_t gone = IST_RANK_NONE;
    for (uint32_t r = 0; run != NULL && r < run->room; ++r) {
        if (run->came[r] == 0) {
            return (int32_t)r;
        }
        if (gone == IST_RANK_NONE &&
            (run->calls[r] == NULL || coll->members[r].member->rank->dead)) {
            gone = (int32_t)r;
        }
    }
    return gone;
}

/* The first peer that this rank's bytes do not reach. */
static int32_t cut_off_peer(const sim_member *member)
{
    sim_comm *comm = member->comm;
    const uint32_t first = member->index - member->index % comm->lsa_size;
    for (uint32_t r = 0; r < comm->rank_count; ++r) {
        const bool near = r - r % comm->lsa_size == first;
        if (r != member->index &&
            !sim_link_pair_up(comm->world, member->rank->index, comm->members[r].rank->index,
                              near ? SIM_ROUTE_LSA : SIM_ROUTE_GIN)) {
            return (int32_t)r;
        }
    }
    return IST_RANK_NONE;
}

static void time_out(sim_coll_member *member)
{
    const sim_coll_batch *batch = member->batch;
    const sim_coll_call *open = NULL;
    char sentence[200];
    int32_t peer = missing_peer(batch, &open);
    ist_error details = details_of(member, &open->call);
    const uint64_t waited_ns =
        (member->member->comm->world->now_ps - batch->began_ps) / SIM_PS_PER_NS;
    const bool came = peer == IST_RANK_NONE;
    peer = came ? cut_off_peer(member->member) : peer;
    details.peer = peer;
    details.waited_ns = waited_ns;
    details.expected = member->member->comm->rank_count;
    details.observed = open->run != NULL ? open->run->arrived : 1;
    if (peer == IST_RANK_NONE) {
        (void)snprintf(sentence, sizeof(sentence),
                       "%s: all ranks came, but its bytes did not arrive within %llu ns",
                       details.operation, (unsigned long long)waited_ns);
    } else {
        (void)snprintf(sentence, sizeof(sentence), "%s: rank %d %s within %llu ns",
                       details.operation, (int)peer, came ? "was not reached" : "did not come",
                       (unsigned long long)waited_ns);
    }
    member_fail(member, IST_ERR_TIMEOUT, &details, sentence);
}

bool sim_coll_timer_is_over(const sim_coll_member *member)
{
    return member->batch == NULL;
}

void sim_coll_timer(sim_coll_member *member)
{
    member->timer = false;
    if (member->batch == NULL || member->member->rank->dead) {
        return;
    }
    if (member->batch->deadline_ps > member->member->comm->world->now_ps) {
        arm_timer(member);
        return;
    }
    time_out(member);
}

/* ---- arriving -------------------------------------------------------------------------------- */

static sim_coll_run *run_find(const sim_coll *coll, uint64_t number)
{
    sim_coll_run *run = coll->runs;
    while (run != NULL && (run->number != number || run->number == SIM_PAIR)) {
        run = run->next;
    }
    return run;
}

static bool differ(const ist_backend_coll *a, const ist_backend_coll *b, const char **field,
                   uint64_t *expected, uint64_t *observed)
{
    const struct {
        const char *name;
        uint64_t a, b;
    } fields[] = {{"the kind of the collective", a->kind, b->kind},
                  {"count", a->count, b->count},
                  {"dtype", a->dtype, b->dtype},
                  {"reduction", a->reduction, b->reduction},
                  {"root", a->peer, b->peer}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        if (fields[i].a != fields[i].b) {
            *field = fields[i].name;
            *expected = fields[i].a;
            *observed = fields[i].b;
            return true;
        }
    }
    return false;
}

/* All who came fail, and so will those who come. */
static void run_mismatch(sim_coll_run *run, sim_coll_call *call, const char *field,
                         uint64_t expected, uint64_t observed)
{
    sim_coll_member *late = call->batch->member;
    char sentence[200];
    ist_error details = details_of(late, &run->shape);
    details.peer = (int32_t)run->first;
    details.expected = expected;
    details.observed = observed;
    (void)snprintf(details.object, sizeof(details.object), "%s", field);
    (void)snprintf(sentence, sizeof(sentence), "%s: %s is %llu on rank %u, %llu on rank %u",
                   details.operation, field, (unsigned long long)expected, run->first,
                   (unsigned long long)observed, late->member->index);
    run->mismatch = true;
    run->why = details;
    memcpy(run->why.message, sentence, sizeof(sentence));
    for (uint32_t i = 0; i < run->room; ++i) {
        if (run->calls[i] != NULL) {
            sim_coll_member *member = run->calls[i]->batch->member;
            ist_error own = details;
            own.rank = (int32_t)member->member->rank->index;
            own.peer = (int32_t)late->member->index;
            member_fail(member, IST_ERR_MISMATCH, &own, sentence);
        }
    }
    member_fail(late, IST_ERR_MISMATCH, &details, sentence);
}

static void run_begin(sim_coll_run *run)
{
    run->begun = true;
    log_run(run, IST_SIM_KERNEL_BEGIN);
    if (sim_coll_broken(run)) {
        return;
    }
    if (run->coll->comm->world->explore != NULL) {
        sim_coll_finish(run);
    } else {
        sim_coll_begin(run);
    }
}

static void arrive_all(sim_coll_member *member, sim_coll_call *call)
{
    sim_coll *coll = member->coll;
    const char *field = "";
    uint64_t expected = 0, observed = 0;
    const uint64_t number = member->begun++;
    sim_coll_run *run = run_find(coll, number);
    if (run == NULL) {
        run = run_new(coll, number, coll->comm->rank_count, &call->call);
        if (run == NULL) {
            no_memory(member, &call->call);
            return;
        }
        run->first = member->member->index;
    }
    if (run->mismatch) {
        ist_error details = run->why;
        details.rank = (int32_t)member->member->rank->index;
        member_fail(member, IST_ERR_MISMATCH, &details, run->why.message);
        return;
    }
    if (differ(&run->shape, &call->call, &field, &expected, &observed)) {
        run_mismatch(run, call, field, expected, observed);
        return;
    }
    call->run = run;
    run->calls[member->member->index] = call;
    run->came[member->member->index] = 1;
    if (++run->arrived == run->room) {
        run_begin(run);
    }
}

/* The other side of a send or a receive, if it has come: the oldest. */
static sim_coll_call *counterpart(const sim_coll *coll, const sim_coll_call *call)
{
    const uint32_t own = call->batch->member->member->index;
    sim_coll_call *other = coll->lonely;
    while (other != NULL && (other->call.kind == call->call.kind || other->call.peer != own ||
                             other->batch->member->member->index != call->call.peer)) {
        other = other->next;
    }
    return other;
}

static void arrive_pair(sim_coll_member *member, sim_coll_call *call)
{
    sim_coll *coll = member->coll;
    sim_coll_call *other = counterpart(coll, call);
    if (other == NULL) {
        call->next = NULL;
        if (coll->lonely == NULL) {
            coll->lonely = call;
        } else {
            coll->lonely_tail->next = call;
        }
        coll->lonely_tail = call;
        return;
    }
    lonely_remove(coll, other);
    sim_coll_run *run = run_new(coll, SIM_PAIR, 2, &call->call);
    if (run == NULL) { /* a member that fails frees its calls */
        const ist_backend_coll shape = call->call;
        sim_coll_member *there = other->batch->member;
        no_memory(member, &shape);
        no_memory(there, &shape);
        return;
    }
    const bool sends = call->call.kind == IST_COLL_SEND;
    run->first = other->batch->member->member->index;
    run->arrived = 2;
    run->calls[sends ? 0 : 1] = call;
    run->calls[sends ? 1 : 0] = other;
    call->run = other->run = run;
    if (other->call.count != call->call.count) {
        run_mismatch(run, call, "count", other->call.count, call->call.count);
    } else if (other->call.dtype != call->call.dtype) {
        run_mismatch(run, call, "dtype", other->call.dtype, call->call.dtype);
    } else {
        run_begin(run);
    }
}

/* ---- the stream's side ----------------------------------------------------------------------- */

ist_status sim_coll_push(sim_stream_op *op)
{
    sim_member *member = member_of_call(op->payload);
    sim_coll_member *pushing = member_of(member);
    if (!member->open || pushing == NULL) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "a collective of a communicator that has been closed cannot run");
    }
    op->record = pushing->issued++;
    return IST_OK;
}

static sim_coll_batch *batch_new(sim_coll_member *member, sim_stream *stream,
                                 const sim_stream_op *op)
{
    const ist_backend_coll *calls = op->payload;
    const uint32_t count = (uint32_t)(op->bytes / sizeof(*calls));
    sim_world *world = stream->rank->world;
    sim_coll_batch *batch = ist_alloc(1, sizeof(*batch) + count * sizeof(batch->calls[0]));
    if (batch == NULL) {
        return NULL;
    }
    batch->member = member;
    batch->stream = stream;
    batch->count = count;
    batch->left = count + 1u;
    batch->sequence = member->calls + 1u;
    batch->began_ps = world->now_ps;
    batch->deadline_ps = sim_add_sat(world->now_ps, sim_ps_from_ns(member->deadline_ns));
    for (uint32_t i = 0; i < count; ++i) {
        batch->calls[i].batch = batch;
        batch->calls[i].call = calls[i];
    }
    member->calls += count;
    member->batch = batch;
    return batch;
}

/* Exploring: who comes when makes a difference to who comes last only. */
static void observe_start(sim_coll_batch *batch)
{
    sim_explore *explore = batch->stream->rank->world->explore;
    if (explore != NULL) {
        batch->released = sim_agent_release(explore, sim_agent_stream(explore, batch->stream));
        sim_touch_named(explore, SIM_NAME_COLL, batch->member->coll->comm->members[0].rank, 0, 0, 1,
                        true);
    }
}

void sim_coll_start(sim_stream *stream, sim_stream_op *op)
{
    sim_coll_member *member = member_of(member_of_call(op->payload));
    if (op->record != member->turn) {
        return; /* busy until its turn comes */
    }
    sim_coll_batch *batch = NULL;
    if (member->why.status == IST_OK) {
        batch = batch_new(member, stream, op);
        if (batch == NULL) {
            no_memory(member, op->payload);
        }
    }
    if (batch == NULL) {
        stream_goes_on(stream);
        next_turn(member);
        return;
    }
    observe_start(batch);
    if (!member->timer) {
        arm_timer(member);
    }
    for (uint32_t i = 0; member->batch == batch && i < batch->count; ++i) {
        if (batch->calls[i].call.kind >= IST_COLL_SEND) {
            arrive_pair(member, &batch->calls[i]);
        } else {
            arrive_all(member, &batch->calls[i]);
        }
    }
    if (member->batch == batch && --batch->left == 0) {
        batch_end(batch);
    }
}

/* ---- the host's side ------------------------------------------------------------------------- */

static sim_stream *stream_of(const ist_backend_coll *call)
{
    return (sim_stream *)(uintptr_t)call->stream;
}

static ist_status push_mark(sim_stream *stream, sim_op_kind kind, sim_host_event *event)
{
    sim_stream_op *op = sim_op_new(stream->rank->world, kind);
    if (op == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to enqueue on rank %u",
                         stream->rank->index);
    }
    op->event = event;
    ++event->refs;
    if (kind == SIM_OP_RECORD && stream->capture == NULL) {
        event->capture = NULL;
    }
    return sim_stream_push(stream, op);
}

/* What is enqueued on `after` from here on comes after what is on `before` now. */
static ist_status order_streams(sim_stream *before, sim_stream *behind)
{
    sim_host_event *event = sim_event_new();
    if (event == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for an event of rank %u",
                         before->rank->index);
    }
    ist_status status = push_mark(before, SIM_OP_RECORD, event);
    if (status == IST_OK) {
        status = push_mark(behind, SIM_OP_WAIT, event);
    }
    sim_event_unref(event);
    return status;
}

/* Orders all streams of a communicator's calls before, or behind, the first one's. */
static ist_status order_others(const ist_backend_coll *calls, uint32_t count, uint64_t comm,
                               sim_stream *first, bool before)
{
    for (uint32_t i = 0; i < count; ++i) {
        sim_stream *other = stream_of(&calls[i]);
        bool seen = calls[i].comm != comm || other == first;
        for (uint32_t k = 0; !seen && k < i; ++k) {
            seen = calls[k].comm == comm && calls[k].stream == calls[i].stream;
        }
        if (!seen) {
            IST_RETURN_IF_ERROR(before ? order_streams(other, first) : order_streams(first, other));
        }
    }
    return IST_OK;
}

static ist_status push_batch(sim_rank *rank, const ist_backend_coll *calls, uint32_t count,
                             uint32_t from, bool *pushed)
{
    const uint64_t comm = calls[from].comm;
    sim_stream *stream = stream_of(&calls[from]);
    uint32_t own = 0;
    for (uint32_t i = from; i < count; ++i) {
        own += calls[i].comm == comm;
    }
    sim_stream_op *op = sim_op_new(rank->world, SIM_OP_COLL);
    ist_backend_coll *copy = ist_alloc(own, sizeof(*copy));
    if (op == NULL || copy == NULL) {
        ist_free(copy);
        if (op != NULL) {
            sim_op_free(rank->world, op);
        }
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u collective calls of rank %u", own,
                         rank->index);
    }
    op->payload = copy;
    op->bytes = own * sizeof(*copy);
    for (uint32_t i = from; i < count; ++i) {
        if (calls[i].comm == comm) {
            *copy++ = calls[i];
        }
    }
    ist_status status = order_others(calls, count, comm, stream, true);
    if (status != IST_OK) {
        sim_op_free(rank->world, op);
        return status;
    }
    IST_RETURN_IF_ERROR(sim_stream_push(stream, op));
    *pushed = true;
    return order_others(calls, count, comm, stream, false);
}

static ist_status check_alive(const ist_backend_coll *call)
{
    const sim_coll_member *member = member_of(member_of_call(call));
    if (member == NULL || member->why.status == IST_OK) {
        return IST_OK;
    }
    ist_error_adopt(&member->why);
    return member->why.status;
}

/* Some of a group is enqueued, and the rest never will: its communicators end, so nobody takes a part
 * of it for the whole. A capture is broken already. */
static void end_group(const ist_backend_coll *calls, uint32_t count, ist_status status)
{
    for (uint32_t i = 0; i < count; ++i) {
        sim_coll_member *member = member_of(member_of_call(&calls[i]));
        if (member != NULL && stream_of(&calls[i])->capture == NULL) {
            ist_error details = details_of(member, &calls[i]);
            member_fail(member, status, &details, "only a part of a group could be enqueued");
        }
    }
}

ist_status sim_coll_enqueue(sim_rank *rank, const ist_backend_coll *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        IST_RETURN_IF_ERROR(check_alive(&calls[i]));
    }
    ist_status status = IST_OK;
    bool pushed = false;
    for (uint32_t i = 0; i < count && status == IST_OK; ++i) {
        bool seen = false;
        for (uint32_t k = 0; !seen && k < i; ++k) {
            seen = calls[k].comm == calls[i].comm;
        }
        if (!seen) {
            status = push_batch(rank, calls, count, i, &pushed);
        }
    }
    if (status != IST_OK && pushed) {
        end_group(calls, count, status);
    }
    return status;
}
