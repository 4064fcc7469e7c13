/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native collectives of the CUDA backend: calls, and the thread that watches them. A call costs a few
 * loads and stores over NCCL's own; whether it ends is the watcher's business: now and then it puts a
 * mark behind the newest calls, and aborts what has not come to its mark in time.
 */
#include "cuda_coll.h"

#ifndef CUDA_HAVE_NCCL
#define CUDA_HAVE_NCCL 0
#endif

#if !CUDA_HAVE_NCCL

static ist_status no_nccl(void)
{
    return ist_raise(IST_ERR_UNSUPPORTED, NULL, "%s", cuda_coll_reason());
}

ist_status cuda_coll_info(void *self, ist_backend_coll_info *info)
{
    (void)self;
    *info = (ist_backend_coll_info){.library = "nccl", .reason = cuda_coll_reason()};
    return IST_OK;
}

ist_status cuda_coll_open(void *self, uint64_t number, uint64_t deadline_ns)
{
    (void)self, (void)number, (void)deadline_ns;
    return no_nccl();
}

ist_status cuda_coll_close(void *self, uint64_t number)
{
    (void)self, (void)number;
    return IST_OK;
}

ist_status cuda_coll_enqueue(void *self, const ist_backend_coll *ops, uint32_t count)
{
    (void)self, (void)ops, (void)count;
    return no_nccl();
}

ist_status cuda_coll_status(void *self, uint64_t number, ist_error *why)
{
    (void)self, (void)number, (void)why;
    return IST_OK;
}

ist_status cuda_coll_estimate(void *self, const ist_backend_coll *op, uint64_t *time_ps)
{
    (void)self, (void)op, (void)time_ps;
    return no_nccl();
}

void cuda_coll_abort(cuda_comm *comm)
{
    (void)comm;
}

void cuda_coll_drop(cuda_comm *comm)
{
    (void)comm;
}

void cuda_coll_forget_stream(cuda_rank *rank, const cuda_stream *stream)
{
    (void)rank, (void)stream;
}

ist_status cuda_coll_graph_launched(const cuda_graph *graph, cuda_stream *stream)
{
    (void)graph, (void)stream;
    return IST_OK;
}

#else

#include "cuda_coll_nccl.h"

#include <stdio.h>
#include <string.h>

/* The host gives up behind the device, and before a program's own wait for its stream does (eight). */
#define PATIENCE 6u
#define PERIOD_NS_MIN UINT64_C(1000000)
#define PERIOD_NS_MAX UINT64_C(250000000)
/* NCCL finds out about the machine and loads code when it is first used. */
#define SETUP_NS_MIN UINT64_C(30000000000)
/* How long a call that is under way may keep the watcher from freeing what it uses. */
#define LEAVE_NS UINT64_C(5000000000)
#define LEAVE_POLL_NS UINT64_C(50000)

struct cuda_coll {
    ncclComm_t nccl;
    cuda_comm *comm;
    uint64_t deadline_ns;
    /* Written by the program's thread. */
    atomic_uint_fast64_t issued;
    _Atomic(cuda_stream *) stream; /* of the newest call */
    atomic_uint kind;              /* of the newest call */
    atomic_int busy;               /* a call of NCCL is under way */
    /* Written by the watcher. */
    atomic_int failed; /* ist_status of the first failure; `why` is there before it */
    ist_error why;
    CUevent mark;
    bool marking;
    uint64_t marked; /* calls in front of the mark */
    uint64_t marked_ns;
    uint64_t seen, seen_busy_ns; /* a call that has been under way at all looks since */
    atomic_int abort_wanted;
    bool stop, watched;
    pthread_mutex_t lock; /* of stop, and what the condition is about */
    pthread_cond_t wake;
    pthread_t watcher;
};

/* ---- what it is ------------------------------------------------------------------------------ */

ist_status cuda_coll_info(void *self, ist_backend_coll_info *info)
{
    (void)self;
    *info = (ist_backend_coll_info){.library_version = (uint32_t)cuda_nccl_version(),
                                    .library = "nccl",
                                    .reason = cuda_coll_reason()};
    if (info->reason == NULL) {
        info->all_to_all_native = cuda_coll_nc.ncclAlltoAll != NULL;
        info->estimate_reason = cuda_coll_nc.ncclGroupSimulateEnd != NULL
                                    ? NULL
                                    : "this NCCL lacks the function ncclGroupSimulateEnd";
    }
    return IST_OK;
}

/* ---- failing --------------------------------------------------------------------------------- */

static bool calls_have_left(cuda_coll *coll, uint64_t wait_ns)
{
    uint64_t until_ns = cuda_after_ns(cuda_now_ns(), wait_ns);
    while (atomic_load(&coll->busy) != 0) {
        if (cuda_now_ns() >= until_ns) {
            return false;
        }
        cuda_pause_ns(LEAVE_POLL_NS);
    }
    return true;
}

/*
 * Ends NCCL's communicator. One that a call is inside of may not be freed: it is told to stop, and if
 * the call does not leave even then, its memory is lost.
 */
static void end_nccl(cuda_coll *coll)
{
    if (!calls_have_left(coll, LEAVE_NS / 50) && cuda_coll_nc.ncclCommRevoke != NULL) {
        (void)cuda_coll_nc.ncclCommRevoke(coll->nccl, 0);
    }
    if (calls_have_left(coll, LEAVE_NS)) {
        (void)cuda_coll_nc.ncclCommAbort(coll->nccl);
    } else {
        ist_log(IST_LOG_WARN, "rank %u: a call of NCCL does not end: its communicator is lost",
                coll->comm->owner->index);
    }
    coll->nccl = NULL;
}

static const char *name_of(unsigned kind)
{
    static const char *const names[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                        "reduce_scatter", "all_to_all", "send",   "recv"};
    return names[kind % (sizeof(names) / sizeof(names[0]))];
}

static void fail(cuda_coll *coll, ist_status status, uint64_t waited_ns, const char *text)
{
    ist_error details = {.rank = (int32_t)coll->comm->owner->index,
                         .peer = IST_RANK_NONE,
                         .object = "comm",
                         .sequence = atomic_load(&coll->issued),
                         .waited_ns = waited_ns};
    snprintf(details.operation, sizeof(details.operation), "%s", name_of(atomic_load(&coll->kind)));
    ist_error *outer = ist_error_bind(&coll->why);
    (void)ist_raise(status, &details, "%s, or one before it: %s", details.operation, text);
    (void)ist_error_bind(outer);
    atomic_store(&coll->failed, (int)status);
    end_nccl(coll);
}

static void fail_late(cuda_coll *coll, uint64_t since_ns)
{
    char text[160];
    const uint64_t waited_ns = cuda_now_ns() - since_ns;
    snprintf(text, sizeof(text),
             "not ended %llu ns after it was enqueued; NCCL does not say which rank is missing",
             (unsigned long long)waited_ns);
    fail(coll, IST_ERR_TIMEOUT, waited_ns, text);
}

/* ---- watching -------------------------------------------------------------------------------- */

/* A mark behind all calls so far, unless their stream is gone. While it captures there can be none: the
 * next look tries again. */
static void put_mark(cuda_coll *coll, uint64_t issued)
{
    cuda_rank *rank = coll->comm->owner;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    (void)pthread_mutex_lock(&rank->coll_lock);
    cuda_stream *stream = atomic_load(&coll->stream);
    if (stream == NULL) {
        coll->marked = issued;
    } else if (cu.cuStreamIsCapturing(stream->handle, &capture) == CUDA_SUCCESS &&
               capture == CU_STREAM_CAPTURE_STATUS_NONE &&
               cu.cuEventRecord(coll->mark, stream->handle) == CUDA_SUCCESS) {
        coll->marking = true;
        coll->marked_ns = cuda_now_ns();
        coll->marked = issued;
    }
    (void)pthread_mutex_unlock(&rank->coll_lock);
}

/* A call that has been under way at every look for so long. */
static bool call_hangs(cuda_coll *coll, uint64_t issued, uint64_t limit_ns)
{
    if (atomic_load(&coll->busy) == 0 || issued != coll->seen) {
        coll->seen = issued;
        coll->seen_busy_ns = cuda_now_ns();
        return false;
    }
    return cuda_now_ns() - coll->seen_busy_ns > limit_ns;
}

static void look(cuda_coll *coll)
{
    const uint64_t limit_ns =
        coll->deadline_ns > UINT64_MAX / PATIENCE ? UINT64_MAX : coll->deadline_ns * PATIENCE;
    const uint64_t issued = atomic_load(&coll->issued);
    ncclResult_t state = ncclSuccess;
    if (atomic_load(&coll->abort_wanted) != 0) {
        fail(coll, IST_ERR_ABORTED, 0, "the communicator was aborted");
        return;
    }
    if (call_hangs(coll, issued, limit_ns)) {
        fail_late(coll, coll->seen_busy_ns);
        return;
    }
    if (coll->marking && cu.cuEventQuery(coll->mark) != CUDA_ERROR_NOT_READY) {
        coll->marking = false;
    }
    if (coll->marking && cuda_now_ns() - coll->marked_ns > limit_ns) {
        fail_late(coll, coll->marked_ns);
        return;
    }
    if (!coll->marking && issued != coll->marked) {
        put_mark(coll, issued);
    }
    if (atomic_load(&coll->busy) == 0 &&
        cuda_coll_nc.ncclCommGetAsyncError(coll->nccl, &state) == ncclSuccess &&
        state != ncclSuccess && state != ncclInProgress) {
        fail(coll, IST_ERR_REMOTE, 0, cuda_coll_nc.ncclGetErrorString(state));
    }
}

static uint64_t period_of(const cuda_coll *coll)
{
    const uint64_t quarter = coll->deadline_ns / 4u;
    return quarter < PERIOD_NS_MIN   ? PERIOD_NS_MIN
           : quarter > PERIOD_NS_MAX ? PERIOD_NS_MAX
                                     : quarter;
}

static void *watch_main(void *argument)
{
    cuda_coll *coll = argument;
    bool entered = cuda_enter(coll->comm->owner);
    (void)pthread_mutex_lock(&coll->lock);
    while (!coll->stop) {
        struct timespec until = cuda_timespec(cuda_after_ns(cuda_now_ns(), period_of(coll)));
        if (coll->nccl != NULL && atomic_load(&coll->abort_wanted) == 0) {
            (void)pthread_cond_timedwait(&coll->wake, &coll->lock, &until);
        } else if (coll->nccl == NULL) {
            (void)pthread_cond_wait(&coll->wake, &coll->lock);
        }
        if (!coll->stop && coll->nccl != NULL) {
            (void)pthread_mutex_unlock(&coll->lock);
            look(coll);
            (void)pthread_mutex_lock(&coll->lock);
        }
    }
    (void)pthread_mutex_unlock(&coll->lock);
    cuda_exit(entered);
    return NULL;
}

static void wake(cuda_coll *coll, bool stop)
{
    (void)pthread_mutex_lock(&coll->lock);
    coll->stop = coll->stop || stop;
    (void)pthread_cond_signal(&coll->wake);
    (void)pthread_mutex_unlock(&coll->lock);
}

void cuda_coll_abort(cuda_comm *comm)
{
    if (comm->coll != NULL) {
        atomic_store(&comm->coll->abort_wanted, 1);
        wake(comm->coll, false);
    }
}

ist_status cuda_coll_status(void *self, uint64_t number, ist_error *why)
{
    const cuda_comm *comm = cuda_object(number);
    (void)self;
    if (comm->coll == NULL) {
        return IST_OK;
    }
    ist_status failed = (ist_status)atomic_load_explicit(&comm->coll->failed, memory_order_acquire);
    if (failed != IST_OK) {
        *why = comm->coll->why;
    }
    return failed;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void coll_free(cuda_coll *coll)
{
    if (coll->watched) {
        wake(coll, true);
        (void)pthread_join(coll->watcher, NULL);
    }
    if (coll->nccl != NULL) {
        (void)cuda_coll_nc.ncclCommAbort(coll->nccl);
    }
    if (coll->mark != NULL) {
        (void)cu.cuEventDestroy(coll->mark);
    }
    (void)pthread_cond_destroy(&coll->wake);
    (void)pthread_mutex_destroy(&coll->lock);
    ist_free(coll);
}

static void coll_init(cuda_coll *coll, cuda_comm *comm, uint64_t deadline_ns)
{
    pthread_condattr_t attributes;
    coll->comm = comm;
    coll->deadline_ns = deadline_ns;
    atomic_init(&coll->issued, 0);
    atomic_init(&coll->stream, NULL);
    atomic_init(&coll->kind, 0);
    atomic_init(&coll->busy, 0);
    atomic_init(&coll->failed, IST_OK);
    atomic_init(&coll->abort_wanted, 0);
    (void)pthread_mutex_init(&coll->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&coll->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

static ist_status coll_new(cuda_comm *comm, uint64_t deadline_ns, cuda_coll **result)
{
    cuda_rank *rank = comm->owner;
    cuda_coll *coll = ist_alloc(1, sizeof(*coll));
    if (coll == NULL) {
        return cuda_fail_memory(rank, "native collectives");
    }
    coll_init(coll, comm, deadline_ns);
    CUresult made = cu.cuEventCreate(&coll->mark, CU_EVENT_DISABLE_TIMING);
    if (made != CUDA_SUCCESS) {
        coll->mark = NULL;
        coll_free(coll);
        return cuda_fail(rank, made, "cuEventCreate");
    }
    *result = coll;
    return IST_OK;
}

static uint64_t setup_ns(uint64_t deadline_ns)
{
    return deadline_ns > SETUP_NS_MIN ? deadline_ns : SETUP_NS_MIN;
}

/* The library connects ranks when they first need it, and blocks the host for that: now, while all
 * are here. */
static ist_status first_call(cuda_coll *coll, CUstream stream, CUdeviceptr word)
{
    cuda_comm *comm = coll->comm;
    void *buffer = (void *)(uintptr_t)word;
    const ist_backend_coll op = {
        .kind = IST_COLL_ALL_REDUCE, .dtype = IST_U32, .send = buffer, .recv = buffer, .count = 1};
    ncclResult_t result = cuda_coll_issue(coll->nccl, comm->rank_count, stream, &op);
    if (result != ncclSuccess) {
        return cuda_coll_raise(comm, result, "ncclAllReduce");
    }
    return cuda_stream_await(comm->owner, stream, setup_ns(coll->deadline_ns), "coll.open");
}

static ist_status warm_up(cuda_coll *coll)
{
    cuda_rank *rank = coll->comm->owner;
    cuda_chunk *chunk = NULL;
    CUdeviceptr word = 0;
    CUstream stream = NULL;
    IST_RETURN_IF_ERROR(cuda_heap_alloc(rank, sizeof(uint32_t), &chunk, &word));
    CUresult made = cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    ist_status status = made == CUDA_SUCCESS ? first_call(coll, stream, word)
                                             : cuda_fail(rank, made, "cuStreamCreate");
    if (status != IST_OK) { /* its kernel may still be there, and write */
        (void)cuda_coll_nc.ncclCommAbort(coll->nccl);
        coll->nccl = NULL;
    }
    if (made == CUDA_SUCCESS) {
        (void)cu.cuStreamDestroy(stream);
    }
    cuda_heap_free(rank, chunk, word);
    return status;
}

static ist_status open_entered(cuda_comm *comm, uint64_t deadline_ns)
{
    cuda_coll *coll = NULL;
    cuda_coll_link link;
    IST_RETURN_IF_ERROR(cuda_coll_connect(comm, setup_ns(deadline_ns), &link));
    ist_status status = coll_new(comm, deadline_ns, &coll);
    if (status != IST_OK) {
        (void)cuda_coll_nc.ncclCommAbort(link.comm);
        return status;
    }
    coll->nccl = link.comm;
    status = warm_up(coll);
    if (status == IST_OK) {
        int failed = pthread_create(&coll->watcher, NULL, watch_main, coll);
        coll->watched = failed == 0;
        if (failed != 0) {
            status = ist_raise(IST_ERR_SYSTEM, NULL, "no thread to watch collectives: %s",
                               strerror(failed));
        }
    }
    if (status != IST_OK) {
        coll_free(coll);
        return status;
    }
    comm->coll = coll;
    return IST_OK;
}

ist_status cuda_coll_open(void *self, uint64_t number, uint64_t deadline_ns)
{
    cuda_comm *comm = cuda_object(number);
    bool entered = cuda_enter(self);
    ist_status status = open_entered(comm, deadline_ns);
    cuda_exit(entered);
    return status;
}

/* Graphs that have its calls can no longer be launched. */
static void leave_graphs(const cuda_coll *coll)
{
    for (cuda_graph *graph = coll->comm->owner->graphs; graph != NULL; graph = graph->next) {
        for (uint32_t i = 0; i < graph->coll_count; ++i) {
            graph->coll_closed = graph->coll_closed || graph->colls[i] == coll;
        }
    }
}

void cuda_coll_drop(cuda_comm *comm)
{
    cuda_coll *coll = comm->coll;
    if (coll != NULL) {
        leave_graphs(coll);
        comm->coll = NULL;
        coll_free(coll);
    }
}

ist_status cuda_coll_close(void *self, uint64_t number)
{
    bool entered = cuda_enter(self);
    cuda_coll_drop(cuda_object(number));
    cuda_exit(entered);
    return IST_OK;
}

void cuda_coll_forget_stream(cuda_rank *rank, const cuda_stream *stream)
{
    (void)pthread_mutex_lock(&rank->coll_lock);
    for (cuda_comm *comm = rank->comms; comm != NULL; comm = comm->next) {
        if (comm->coll != NULL && atomic_load(&comm->coll->stream) == stream) {
            atomic_store(&comm->coll->stream, NULL);
        }
    }
    (void)pthread_mutex_unlock(&rank->coll_lock);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static ist_status refuse(const cuda_coll *coll)
{
    ist_error_adopt(&coll->why);
    return coll->why.status;
}

/* The watcher frees what NCCL has when no call is inside: a call says so before it looks. */
static inline bool enter_call(cuda_coll *coll)
{
    atomic_store(&coll->busy, 1);
    if (__builtin_expect(atomic_load(&coll->failed) == IST_OK, 1)) {
        return true;
    }
    atomic_store(&coll->busy, 0);
    return false;
}

static inline void leave_call(cuda_coll *coll, const ist_backend_coll *op)
{
    atomic_store_explicit(&coll->busy, 0, memory_order_release);
    atomic_store_explicit(&coll->stream, cuda_object(op->stream), memory_order_relaxed);
    atomic_store_explicit(&coll->kind, (unsigned)op->kind, memory_order_relaxed);
    atomic_store_explicit(&coll->issued,
                          atomic_load_explicit(&coll->issued, memory_order_relaxed) + 1u,
                          memory_order_release);
}

static ist_status note_captured(cuda_graph *graph, cuda_coll *coll)
{
    for (uint32_t i = 0; i < graph->coll_count; ++i) {
        if (graph->colls[i] == coll) {
            return IST_OK;
        }
    }
    if (graph->coll_count == CUDA_GRAPH_COLLS_MAX) {
        return ist_raise(IST_ERR_RANGE, NULL,
                         "a graph holds collectives of at most %u communicators",
                         (unsigned)CUDA_GRAPH_COLLS_MAX);
    }
    graph->colls[graph->coll_count++] = coll;
    return IST_OK;
}

static ist_status enqueue_one(cuda_rank *rank, const ist_backend_coll *op)
{
    const cuda_comm *comm = cuda_object(op->comm);
    const cuda_stream *stream = cuda_object(op->stream);
    cuda_coll *coll = comm->coll;
    if (!enter_call(coll)) {
        return refuse(coll);
    }
    ncclResult_t result = cuda_coll_issue(coll->nccl, comm->rank_count, stream->handle, op);
    leave_call(coll, op);
    ist_status status =
        result == ncclSuccess ? IST_OK : cuda_coll_raise(comm, result, name_of((unsigned)op->kind));
    if (cuda_stream_captures(rank, stream)) {
        status = status == IST_OK ? note_captured(rank->capture, coll) : status;
        status = cuda_captured(rank, stream, status);
    }
    return status;
}

/* All calls of a group, between NCCL's own brackets. */
static ist_status enqueue_group(cuda_rank *rank, const ist_backend_coll *ops, uint32_t count)
{
    ist_status status = IST_OK;
    uint32_t entered = 0;
    while (entered < count && enter_call(((cuda_comm *)cuda_object(ops[entered].comm))->coll)) {
        ++entered;
    }
    if (entered < count) {
        status = refuse(((cuda_comm *)cuda_object(ops[entered].comm))->coll);
    } else {
        ncclResult_t result = cuda_coll_nc.ncclGroupStart();
        for (uint32_t i = 0; i < count && result == ncclSuccess; ++i) {
            const cuda_comm *comm = cuda_object(ops[i].comm);
            const cuda_stream *stream = cuda_object(ops[i].stream);
            result = cuda_coll_issue(comm->coll->nccl, comm->rank_count, stream->handle, &ops[i]);
        }
        ncclResult_t ended = cuda_coll_nc.ncclGroupEnd();
        result = result != ncclSuccess ? result : ended;
        status = result == ncclSuccess
                     ? IST_OK
                     : cuda_coll_raise(cuda_object(ops[0].comm), result, "a group of collectives");
    }
    for (uint32_t i = 0; i < entered; ++i) {
        cuda_coll *coll = ((cuda_comm *)cuda_object(ops[i].comm))->coll;
        const cuda_stream *stream = cuda_object(ops[i].stream);
        leave_call(coll, &ops[i]);
        if (cuda_stream_captures(rank, stream)) {
            status = status == IST_OK ? note_captured(rank->capture, coll) : status;
            status = cuda_captured(rank, stream, status);
        }
    }
    return status;
}

ist_status cuda_coll_enqueue(void *self, const ist_backend_coll *ops, uint32_t count)
{
    bool entered = cuda_enter(self);
    ist_status status = count == 1 ? enqueue_one(self, ops) : enqueue_group(self, ops, count);
    cuda_exit(entered);
    return status;
}

ist_status cuda_coll_graph_launched(const cuda_graph *graph, cuda_stream *stream)
{
    if (graph->coll_closed) {
        return ist_raise(IST_ERR_USAGE, NULL,
                         "the graph has collectives of a communicator that has been closed");
    }
    for (uint32_t i = 0; i < graph->coll_count; ++i) {
        cuda_coll *coll = graph->colls[i];
        if (atomic_load(&coll->failed) != IST_OK) {
            return refuse(coll);
        }
        atomic_store(&coll->stream, stream);
        atomic_fetch_add(&coll->issued, 1);
    }
    return IST_OK;
}

/* ---- the library's own estimate -------------------------------------------------------------- */

static ist_status simulate(cuda_comm *comm, ncclComm_t nccl, const ist_backend_coll *op,
                           uint64_t *time_ps)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclResult_t result = cuda_coll_nc.ncclGroupStart();
    if (result == ncclSuccess) {
        result = cuda_coll_issue(nccl, comm->rank_count, NULL, op);
        ncclResult_t ended = cuda_coll_nc.ncclGroupSimulateEnd(&info);
        result = result != ncclSuccess ? result : ended;
    }
    if (result != ncclSuccess) {
        return cuda_coll_raise(comm, result, "ncclGroupSimulateEnd");
    }
    if (!(info.estimatedTime >= 0.0f)) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "NCCL estimates no such call (sends, receives and what is made of them)");
    }
    *time_ps = (uint64_t)((double)info.estimatedTime * 1e6);
    return IST_OK;
}

/* On a communicator of its own: what is left in it of an estimate must not meet a real call. */
static ist_status estimate_entered(cuda_comm *comm, const ist_backend_coll *op, uint64_t *time_ps)
{
    cuda_coll_link link;
    if (cuda_coll_nc.ncclGroupSimulateEnd == NULL) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "this NCCL lacks the function ncclGroupSimulateEnd");
    }
    cuda_rank *rank = comm->owner;
    ist_backend_coll named = *op;
    cuda_chunk *chunk = NULL;
    CUdeviceptr somewhere = 0;
    IST_RETURN_IF_ERROR(cuda_coll_connect(comm, setup_ns(comm->deadline_ns), &link));
    ist_status status = cuda_heap_alloc(rank, IST_WINDOW_ALIGNMENT, &chunk, &somewhere);
    if (status == IST_OK) { /* an address that is looked up, not read */
        named.recv = (void *)(uintptr_t)somewhere;
        named.send = named.recv;
        status = simulate(comm, link.comm, &named, time_ps);
        cuda_heap_free(rank, chunk, somewhere);
    }
    (void)cuda_coll_nc.ncclCommAbort(link.comm);
    return status;
}

ist_status cuda_coll_estimate(void *self, const ist_backend_coll *op, uint64_t *time_ps)
{
    bool entered = cuda_enter(self);
    ist_status status = cuda_coll_reason() != NULL
                            ? ist_raise(IST_ERR_UNSUPPORTED, NULL, "%s", cuda_coll_reason())
                            : estimate_entered(cuda_object(op->comm), op, time_ps);
    cuda_exit(entered);
    return status;
}

#endif
