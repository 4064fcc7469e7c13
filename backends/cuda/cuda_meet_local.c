/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting of ranks that are threads of one process. Each waiting thread also keeps the time:
 * whoever wakes first at a deadline ends what has waited too long, for all.
 */
#include "cuda_clock.h"
#include "cuda_endpoint.h"

#include <pthread.h>

struct cuda_local {
    cuda_endpoint endpoint; /* first: the ranks hold this address */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    cuda_meet meet;
};

static void wake(cuda_meet *meet, cuda_call *call)
{
    (void)call;
    (void)pthread_cond_broadcast(&((cuda_local *)meet->owner)->changed);
}

static void wait_once(cuda_local *local)
{
    uint64_t next_ns = cuda_meet_next_ns(&local->meet);
    if (next_ns == CUDA_NEVER_NS) {
        (void)pthread_cond_wait(&local->changed, &local->lock);
        return;
    }
    struct timespec at = cuda_timespec(next_ns);
    (void)pthread_cond_timedwait(&local->changed, &local->lock, &at);
    cuda_meet_expire(&local->meet, cuda_now_ns());
}

static void local_call(cuda_endpoint *endpoint, cuda_call *call)
{
    cuda_local *local = (cuda_local *)endpoint;
    (void)pthread_mutex_lock(&local->lock);
    cuda_meet_submit(&local->meet, call);
    while (!call->done) {
        wait_once(local);
    }
    (void)pthread_mutex_unlock(&local->lock);
}

static void local_release(cuda_endpoint *endpoint, cuda_call *call)
{
    cuda_local *local = (cuda_local *)endpoint;
    (void)pthread_mutex_lock(&local->lock);
    cuda_meet_release(&local->meet, call);
    (void)pthread_mutex_unlock(&local->lock);
}

static void local_abort(cuda_endpoint *endpoint, uint64_t comm, uint32_t member)
{
    cuda_local *local = (cuda_local *)endpoint;
    (void)pthread_mutex_lock(&local->lock);
    cuda_meet_abort(&local->meet, comm, member);
    (void)pthread_mutex_unlock(&local->lock);
}

static void local_leave(cuda_endpoint *endpoint, uint64_t comm, uint32_t member)
{
    cuda_local *local = (cuda_local *)endpoint;
    (void)pthread_mutex_lock(&local->lock);
    cuda_meet_leave(&local->meet, comm, member);
    (void)pthread_mutex_unlock(&local->lock);
}

/* The meeting belongs to the world, not to one of its ranks. */
static void local_close(cuda_endpoint *endpoint)
{
    (void)endpoint;
}

static int open_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (failed != 0) {
        return failed;
    }
    failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (failed == 0) {
        failed = pthread_cond_init(condition, &attributes);
    }
    (void)pthread_condattr_destroy(&attributes);
    return failed;
}

ist_status cuda_local_open(uint32_t rank_count, cuda_local **result)
{
    cuda_local *local = ist_alloc(1, sizeof(*local));
    if (local == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for the meeting of %u ranks",
                         rank_count);
    }
    ist_status status = cuda_meet_open(&local->meet, rank_count);
    if (status == IST_OK && open_condition(&local->changed) != 0) {
        cuda_meet_close(&local->meet);
        status = ist_raise(IST_ERR_SYSTEM, NULL, "pthread_cond_init failed");
    }
    if (status != IST_OK) {
        ist_free(local);
        return status;
    }
    (void)pthread_mutex_init(&local->lock, NULL);
    local->meet.owner = local;
    local->meet.answered = wake;
    local->endpoint = (cuda_endpoint){.call = local_call,
                                      .release = local_release,
                                      .abort = local_abort,
                                      .leave = local_leave,
                                      .close = local_close};
    *result = local;
    return IST_OK;
}

cuda_endpoint *cuda_local_endpoint(cuda_local *local)
{
    return &local->endpoint;
}

void cuda_local_rank_gone(cuda_local *local, uint32_t rank)
{
    (void)pthread_mutex_lock(&local->lock);
    cuda_meet_client_gone(&local->meet, rank);
    (void)pthread_mutex_unlock(&local->lock);
}

void cuda_local_close(cuda_local *local)
{
    cuda_meet_close(&local->meet);
    (void)pthread_cond_destroy(&local->changed);
    (void)pthread_mutex_destroy(&local->lock);
    ist_free(local);
}
