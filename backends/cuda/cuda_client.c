/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that is a process, at the meeting: one call at a time over its socket. The server keeps
 * the deadlines; the client gives it some time more. A thread that aborts asks the server to
 * answer.
 */
#include "cuda_clock.h"
#include "cuda_endpoint.h"
#include "cuda_wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* Beyond a call's deadline, for a busy machine. */
#define GRACE_NS UINT64_C(10000000000)
#define RETRY_NS UINT64_C(10000000)

typedef struct client {
    cuda_endpoint endpoint; /* first */
    uint32_t rank;
    int socket;
    pthread_mutex_t lock; /* of sending */
    int fds[CUDA_WIRE_FDS_MAX];
    uint32_t fd_count;
} client;

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd one = {.fd = fd, .events = events};
    uint64_t now_ns = cuda_now_ns();
    while (now_ns < deadline_ns) {
        struct timespec left = cuda_timespec(deadline_ns - now_ns);
        int ready = ppoll(&one, 1, &left, NULL);
        if (ready > 0) {
            return true;
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
        now_ns = cuda_now_ns();
    }
    return false;
}

static bool send_all(client *self, const void *bytes, size_t count, const int *fds,
                     uint32_t fd_count, uint64_t deadline_ns)
{
    size_t done = 0;
    while (done < count) {
        ssize_t sent = cuda_wire_push(self->socket, (const uint8_t *)bytes + done, count - done,
                                      fds, done == 0 ? fd_count : 0);
        if (sent > 0) {
            done += (size_t)sent;
        } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
            return false;
        } else if (!wait_for(self->socket, POLLOUT, deadline_ns)) {
            return false;
        }
    }
    return true;
}

static bool receive_all(client *self, void *bytes, size_t count, uint64_t deadline_ns)
{
    size_t done = 0;
    while (done < count) {
        ssize_t got = cuda_wire_pull(self->socket, (uint8_t *)bytes + done, count - done, self->fds,
                                     &self->fd_count);
        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            return false;
        } else if (!wait_for(self->socket, POLLIN, deadline_ns)) {
            return false;
        }
    }
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void fail_call(cuda_call *call, ist_status status)
{
    call->status = status;
    call->peer = UINT32_MAX;
    call->round = NULL;
    call->done = true;
}

static bool send_call(client *self, const cuda_call *call, uint64_t deadline_ns)
{
    bool exchange = call->kind == CUDA_CALL_EXCHANGE;
    size_t words = exchange ? CUDA_WORDS(call->rank_count) * sizeof(uint64_t) : 0;
    uint64_t now_ns = cuda_now_ns();
    cuda_wire head = {.op = exchange ? CUDA_WIRE_EXCHANGE : CUDA_WIRE_JOIN,
                      .client = self->rank,
                      .member = call->member,
                      .rank_count = call->rank_count,
                      .fd_count = call->fd >= 0 ? 1 : 0,
                      .comm = call->comm,
                      .bytes = call->bytes,
                      .payload_bytes = call->bytes + words,
                      .wait_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0};
    memcpy(head.id, call->id, sizeof(head.id));
    return send_all(self, &head, sizeof(head), &call->fd, head.fd_count, deadline_ns) &&
           send_all(self, call->lost, words, NULL, 0, deadline_ns) &&
           send_all(self, call->send, call->bytes, NULL, 0, deadline_ns);
}

static void hand_out_fds(client *self, cuda_round *round, const uint64_t *with_fd)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < round->rank_count; ++i) {
        if (cuda_bit(with_fd, i) && used < self->fd_count) {
            round->fds[i] = self->fds[used++];
        }
    }
    for (; used < self->fd_count; ++used) {
        (void)close(self->fds[used]);
    }
    self->fd_count = 0;
}

static bool receive_round(client *self, const cuda_wire *head, uint64_t deadline_ns,
                          cuda_round **result)
{
    size_t words = CUDA_WORDS(head->rank_count) * sizeof(uint64_t);
    cuda_round *round = cuda_round_new(head->rank_count, head->bytes);
    if (round == NULL) {
        return false;
    }
    /* The words of ranks with a descriptor use the room of the excused, unseen by clients. */
    if (!receive_all(self, round->arrived, 2 * words, deadline_ns) ||
        !receive_all(self, round->data, head->payload_bytes - 2 * words, deadline_ns)) {
        cuda_round_free(round);
        return false;
    }
    round->refs = 1;
    round->done = true;
    hand_out_fds(self, round, round->excused);
    *result = round;
    return true;
}

static bool receive_answer(client *self, cuda_call *call, uint64_t deadline_ns)
{
    cuda_wire head;
    if (!receive_all(self, &head, sizeof(head), deadline_ns) || head.op != CUDA_WIRE_ANSWER) {
        return false;
    }
    call->status = (ist_status)head.status;
    call->peer = head.peer;
    call->expected = head.expected;
    call->observed = head.observed;
    call->round = NULL;
    if (head.payload_bytes > 0 && !receive_round(self, &head, deadline_ns, &call->round)) {
        return false;
    }
    if (call->kind == CUDA_CALL_JOIN) {
        call->comm = head.comm;
    }
    call->done = true;
    return true;
}

static void client_call(cuda_endpoint *endpoint, cuda_call *call)
{
    client *self = (client *)endpoint;
    uint64_t deadline_ns = cuda_after_ns(call->deadline_ns, GRACE_NS);
    (void)pthread_mutex_lock(&self->lock);
    bool sent = self->socket >= 0 && send_call(self, call, deadline_ns);
    (void)pthread_mutex_unlock(&self->lock);
    if (!sent || !receive_answer(self, call, deadline_ns)) {
        /* What comes later on this socket could not be told apart. */
        fail_call(call, IST_ERR_SYSTEM);
        (void)pthread_mutex_lock(&self->lock);
        if (self->socket >= 0) {
            (void)close(self->socket);
            self->socket = -1;
        }
        (void)pthread_mutex_unlock(&self->lock);
    }
}

static void client_release(cuda_endpoint *endpoint, cuda_call *call)
{
    (void)endpoint;
    cuda_round_free(call->round);
    call->round = NULL;
}

static void client_tell(client *self, cuda_wire_op op, uint64_t comm, uint32_t member)
{
    cuda_wire head = {.op = (uint32_t)op, .client = self->rank, .member = member, .comm = comm};
    if (self->socket >= 0) {
        (void)send_all(self, &head, sizeof(head), NULL, 0, cuda_after_ns(cuda_now_ns(), GRACE_NS));
    }
}

/* The server answers the call that waits; when none does, it ignores this. */
static void client_abort(cuda_endpoint *endpoint, uint64_t comm, uint32_t member)
{
    client *self = (client *)endpoint;
    (void)pthread_mutex_lock(&self->lock);
    client_tell(self, CUDA_WIRE_ABORT, comm, member);
    (void)pthread_mutex_unlock(&self->lock);
}

static void client_leave(cuda_endpoint *endpoint, uint64_t comm, uint32_t member)
{
    client *self = (client *)endpoint;
    (void)pthread_mutex_lock(&self->lock);
    client_tell(self, CUDA_WIRE_LEAVE, comm, member);
    (void)pthread_mutex_unlock(&self->lock);
}

static void client_close(cuda_endpoint *endpoint)
{
    client *self = (client *)endpoint;
    if (self->socket >= 0) {
        (void)close(self->socket);
    }
    (void)pthread_mutex_destroy(&self->lock);
    ist_free(self);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ist_status connect_to_server(const ist_backend_process *process, int *result)
{
    struct sockaddr_un address;
    socklen_t length = cuda_wire_address(process, &address);
    uint64_t deadline_ns = cuda_after_ns(cuda_now_ns(), CUDA_MEET_NS);
    while (cuda_now_ns() < deadline_ns) {
        int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (socket_fd < 0) {
            return ist_raise(IST_ERR_SYSTEM, NULL, "socket: %s", strerror(errno));
        }
        if (connect(socket_fd, (struct sockaddr *)&address, length) == 0) {
            *result = socket_fd;
            return IST_OK;
        }
        (void)close(socket_fd);
        cuda_pause_ns(RETRY_NS);
    }
    return ist_raise(IST_ERR_TIMEOUT, NULL,
                     "rank %u found no place to meet in %u s: rank 0 has not started, or runs on "
                     "another host (the ranks of a world share one host)",
                     process->rank, (unsigned)(CUDA_MEET_NS / UINT64_C(1000000000)));
}

static ist_status say_hello(client *self, const ist_backend_process *process)
{
    uint64_t deadline_ns = cuda_after_ns(cuda_now_ns(), CUDA_MEET_NS);
    cuda_wire head = {
        .op = CUDA_WIRE_HELLO, .client = process->rank, .expected = cuda_wire_digest(process)};
    cuda_call call = {.fd = -1};
    if (!send_all(self, &head, sizeof(head), NULL, 0, deadline_ns) ||
        !receive_answer(self, &call, deadline_ns)) {
        return ist_raise(IST_ERR_SYSTEM, NULL,
                         "rank %u got no answer from the process where ranks meet", process->rank);
    }
    return call.status == IST_OK
               ? IST_OK
               : ist_raise(call.status, NULL,
                           "the process of rank %u has another library or number of ranks than "
                           "rank 0",
                           process->rank);
}

ist_status cuda_client_open(const ist_backend_process *process, cuda_endpoint **endpoint)
{
    client *self = ist_alloc(1, sizeof(*self));
    if (self == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for rank %u", process->rank);
    }
    self->rank = process->rank;
    ist_status status = connect_to_server(process, &self->socket);
    if (status != IST_OK) {
        ist_free(self);
        return status;
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    self->endpoint = (cuda_endpoint){.call = client_call,
                                     .release = client_release,
                                     .abort = client_abort,
                                     .leave = client_leave,
                                     .close = client_close};
    status = say_hello(self, process);
    if (status != IST_OK) {
        client_close(&self->endpoint);
        return status;
    }
    *endpoint = &self->endpoint;
    return IST_OK;
}
