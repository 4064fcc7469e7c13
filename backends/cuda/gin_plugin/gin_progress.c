/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds. A round without work costs a look at each ring; the GPU's driver is called only when there is
 * something to copy.
 */
#include "gin_comm.h"

#include <time.h>

/* Rounds between two looks at whether the peers are there. */
#define WATCH_ROUNDS 4096u
#define DRAIN_NS UINT64_C(2000000000)

uint64_t gin_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* A peer that closes says so before it lets its inbox go. */
static void watch_peer(gin_comm *comm, uint32_t number)
{
    gin_peer *peer = &comm->peers[number];
    if (peer->gone || gin_segment_owned(peer->fd)) {
        return;
    }
    peer->gone = true;
    if (atomic_load_explicit(&peer->out.control->closed, memory_order_acquire) == 0) {
        GIN_SAY(comm->log, GIN_LOG_WARN, "GIN/Isthmus: the process of rank %u has ended", number);
        gin_comm_fail(comm, 0);
    }
}

static void look_for_failures(gin_comm *comm)
{
    int failure = comm->out.failure != 0 ? comm->out.failure : comm->in.failure;
    if (failure != 0 && comm->error_queries == 0) {
        GIN_SAY(comm->log, GIN_LOG_WARN, "GIN/Isthmus: a copy of rank %u failed: CUDA error %d",
                comm->rank, failure);
        gin_comm_fail(comm, 0);
    }
}

void gin_progress(gin_comm *comm)
{
    (void)pthread_mutex_lock(&comm->lock);
    if (++comm->rounds % WATCH_ROUNDS == 0) {
        for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
            watch_peer(comm, peer);
        }
    }
    if (!gin_send_idle(comm) || !gin_apply_idle(comm)) {
        bool entered = comm->has_device && gin_device_enter(&comm->device);
        gin_apply_progress(comm);
        gin_send_progress(comm);
        look_for_failures(comm);
        if (entered) {
            gin_device_exit();
        }
    }
    (void)pthread_mutex_unlock(&comm->lock);
}

/* Whether something still uses memory of the device; finishes what has begun, begins nothing. */
static bool busy(gin_comm *comm)
{
    gin_lane_poll(&comm->out);
    gin_lane_poll(&comm->in);
    return !gin_apply_finish(comm) || comm->out.reached < comm->out.marked;
}

void gin_drain(gin_comm *comm)
{
    if (!comm->has_device || !gin_device_enter(&comm->device)) {
        return;
    }
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t until_ns = gin_now_ns() + DRAIN_NS;
    while (busy(comm) && gin_now_ns() < until_ns) {
        (void)nanosleep(&pause, NULL);
    }
    gin_device_exit();
}
