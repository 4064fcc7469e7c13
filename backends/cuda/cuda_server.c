/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting of ranks that are processes: a small process of its own, so that any rank, rank 0
 * too, may be killed without taking it along. It never blocks on one client: reads and writes what
 * each is ready for. A closed socket is a rank that is gone.
 */
#include "cuda_clock.h"
#include "cuda_endpoint.h"
#include "cuda_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Refuses a head that no client of ours sends. */
#define PAYLOAD_BYTES_MAX (UINT64_C(1) << 32)

typedef struct server_client {
    int socket;   /* -1: none */
    bool known;   /* has said which rank it is */
    bool waiting; /* `call` is submitted and not answered */
    uint32_t rank;
    cuda_wire in;    /* head being received */
    size_t in_bytes; /* of head and payload */
    uint8_t *payload;
    int fds[CUDA_WIRE_FDS_MAX];
    uint32_t fd_count;
    cuda_call call;
    uint8_t *out; /* answer being sent */
    size_t out_bytes, out_sent;
    int out_fds[CUDA_WIRE_FDS_MAX];
    uint32_t out_fd_count;
    cuda_round *out_round; /* owns out_fds until they are sent */
} server_client;

typedef struct server {
    cuda_meet meet;
    server_client *clients;
    struct pollfd *polls; /* [client_max + 1], the listener first */
    uint32_t client_max;
    uint32_t rank_count;
    uint32_t hello_count;
    uint64_t digest;
    uint64_t idle_since_ns;
    int listener;
} server;

/* ---- a client's connection ------------------------------------------------------------------- */

static void drop_input(server_client *client)
{
    for (uint32_t i = 0; i < client->fd_count; ++i) {
        (void)close(client->fds[i]);
    }
    client->fd_count = 0;
    ist_free(client->payload);
    client->payload = NULL;
    client->in_bytes = 0;
}

static void drop_output(server *at, server_client *client)
{
    ist_free(client->out);
    client->out = NULL;
    client->out_bytes = client->out_sent = 0;
    client->out_fd_count = 0;
    if (client->out_round != NULL) {
        cuda_call holder = {.round = client->out_round};
        cuda_meet_release(&at->meet, &holder);
        client->out_round = NULL;
    }
}

static void drop_client(server *at, server_client *client)
{
    (void)close(client->socket);
    client->socket = -1;
    client->waiting = false;
    if (client->known) {
        cuda_meet_client_gone(&at->meet, client->rank);
    }
    drop_input(client);
    drop_output(at, client);
    client->known = false;
    at->idle_since_ns = cuda_now_ns();
}

static void flush_output(server *at, server_client *client)
{
    while (client->out != NULL) {
        ssize_t sent = cuda_wire_push(client->socket, client->out + client->out_sent,
                                      client->out_bytes - client->out_sent, client->out_fds,
                                      client->out_fd_count);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                drop_client(at, client);
            }
            return;
        }
        client->out_fd_count = 0; /* they went with the first byte */
        client->out_sent += (size_t)sent;
        if (client->out_sent == client->out_bytes) {
            drop_output(at, client);
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void pack_fds(server_client *client, const cuda_round *round, uint64_t *with_fd)
{
    for (uint32_t i = 0; i < round->rank_count; ++i) {
        if (round->fds[i] >= 0 && client->out_fd_count < CUDA_WIRE_FDS_MAX) {
            client->out_fds[client->out_fd_count++] = round->fds[i];
            cuda_bit_set(with_fd, i);
        }
    }
}

static void pack_answer(server_client *client, const cuda_call *call)
{
    const cuda_round *round = call->round;
    size_t words = round != NULL ? CUDA_WORDS(round->rank_count) * sizeof(uint64_t) : 0;
    size_t data = round != NULL ? (size_t)round->rank_count * round->bytes : 0;
    cuda_wire head = {.op = CUDA_WIRE_ANSWER,
                      .status = call->status,
                      .peer = call->peer,
                      .comm = call->comm,
                      .expected = call->expected,
                      .observed = call->observed,
                      .payload_bytes = 2 * words + data};
    client->out = ist_alloc(1, sizeof(head) + head.payload_bytes);
    if (client->out == NULL) {
        return; /* the client's own limit of time tells it */
    }
    client->out_bytes = sizeof(head) + head.payload_bytes;
    client->out_round = call->round;
    if (round != NULL) {
        uint64_t *with_fd = (uint64_t *)(void *)(client->out + sizeof(head) + words);
        head.rank_count = round->rank_count;
        head.bytes = round->bytes;
        memcpy(client->out + sizeof(head), round->arrived, words);
        pack_fds(client, round, with_fd);
        memcpy(client->out + sizeof(head) + 2 * words, round->data, data);
    }
    head.fd_count = client->out_fd_count;
    memcpy(client->out, &head, sizeof(head));
}

/* Sent by the loop: an answer must not drop a client while the meeting is being changed. */
static void answered(cuda_meet *meet, cuda_call *call)
{
    server *at = meet->owner;
    server_client *client = NULL;
    for (uint32_t i = 0; i < at->client_max && client == NULL; ++i) {
        if (&at->clients[i].call == call) {
            client = &at->clients[i];
        }
    }
    if (client == NULL) {
        return;
    }
    client->waiting = false;
    pack_answer(client, call);
    if (client->out_round == NULL && call->round != NULL) {
        cuda_meet_release(meet, call);
    }
    call->round = NULL;
}

static void answer_hello(server_client *client, ist_status status)
{
    cuda_call call = {.status = status, .peer = UINT32_MAX};
    pack_answer(client, &call);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void hello(server *at, server_client *client)
{
    const cuda_wire *in = &client->in;
    if (in->client >= at->rank_count || in->expected != at->digest) {
        answer_hello(client, IST_ERR_MISMATCH);
        return;
    }
    client->known = true;
    client->rank = in->client;
    ++at->hello_count;
    answer_hello(client, IST_OK);
}

static void submit(server *at, server_client *client, cuda_call_kind kind)
{
    const cuda_wire *in = &client->in;
    size_t words = kind == CUDA_CALL_EXCHANGE ? CUDA_WORDS(in->rank_count) * sizeof(uint64_t) : 0;
    if (client->waiting || client->out != NULL || in->payload_bytes != in->bytes + words) {
        drop_client(at, client);
        return;
    }
    client->call = (cuda_call){.kind = kind,
                               .client = client->rank,
                               .member = in->member,
                               .rank_count = in->rank_count,
                               .fd = client->fd_count > 0 ? client->fds[0] : -1,
                               .comm = in->comm,
                               .deadline_ns = cuda_after_ns(cuda_now_ns(), in->wait_ns),
                               .lost = (const uint64_t *)(const void *)client->payload,
                               .send = client->payload + words,
                               .bytes = in->bytes};
    memcpy(client->call.id, in->id, sizeof(in->id));
    client->waiting = true;
    cuda_meet_submit(&at->meet, &client->call);
}

static void handle(server *at, server_client *client)
{
    const cuda_wire *in = &client->in;
    if (!client->known && in->op != CUDA_WIRE_HELLO) {
        drop_client(at, client);
        return;
    }
    switch (in->op) {
    case CUDA_WIRE_HELLO: hello(at, client); break;
    case CUDA_WIRE_JOIN: submit(at, client, CUDA_CALL_JOIN); break;
    case CUDA_WIRE_EXCHANGE: submit(at, client, CUDA_CALL_EXCHANGE); break;
    case CUDA_WIRE_ABORT: cuda_meet_abort(&at->meet, in->comm, in->member); break;
    case CUDA_WIRE_LEAVE: cuda_meet_leave(&at->meet, in->comm, in->member); break;
    default: drop_client(at, client); break;
    }
}

/* @return false when the client is gone */
static bool begin_payload(server *at, server_client *client)
{
    if (client->in.payload_bytes > PAYLOAD_BYTES_MAX) {
        drop_client(at, client);
        return false;
    }
    client->payload = ist_alloc(1, client->in.payload_bytes + 1);
    if (client->payload == NULL) {
        drop_client(at, client);
    }
    return client->payload != NULL;
}

static void read_client(server *at, server_client *client)
{
    while (client->socket >= 0) {
        bool head = client->in_bytes < sizeof(client->in);
        size_t total = sizeof(client->in) + (head ? 0 : client->in.payload_bytes);
        if (!head && client->in_bytes == total) {
            handle(at, client);
            drop_input(client);
            continue;
        }
        uint8_t *to = head ? (uint8_t *)&client->in + client->in_bytes
                           : client->payload + (client->in_bytes - sizeof(client->in));
        ssize_t got = cuda_wire_pull(client->socket, to, total - client->in_bytes, client->fds,
                                     &client->fd_count);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (got <= 0) {
            drop_client(at, client);
            return;
        }
        client->in_bytes += (size_t)got;
        if (head && client->in_bytes == sizeof(client->in) && !begin_payload(at, client)) {
            return;
        }
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool same_user(int socket_fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           peer.uid == getuid();
}

static void admit(server *at)
{
    int socket_fd = accept4(at->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket_fd < 0) {
        return;
    }
    for (uint32_t i = 0; same_user(socket_fd) && i < at->client_max; ++i) {
        if (at->clients[i].socket < 0) {
            memset(&at->clients[i], 0, sizeof(at->clients[i]));
            at->clients[i].socket = socket_fd;
            return;
        }
    }
    (void)close(socket_fd);
}

static uint32_t connected(const server *at)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < at->client_max; ++i) {
        count += at->clients[i].socket >= 0 ? 1u : 0u;
    }
    return count;
}

/* Over when all ranks have been here and left, or when nobody has come for long. */
static bool over(const server *at)
{
    if (connected(at) > 0) {
        return false;
    }
    return at->hello_count >= at->rank_count ||
           cuda_now_ns() > cuda_after_ns(at->idle_since_ns, CUDA_MEET_NS);
}

static int poll_ms(const server *at)
{
    uint64_t now_ns = cuda_now_ns();
    uint64_t next_ns = cuda_meet_next_ns(&at->meet);
    uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    uint64_t wait_ms = wait_ns / 1000000 + (wait_ns % 1000000 != 0 ? 1 : 0);
    return wait_ms > 1000 ? 1000 : (int)wait_ms;
}

static void fill_polls(server *at)
{
    at->polls[0] = (struct pollfd){.fd = at->listener, .events = POLLIN};
    for (uint32_t i = 0; i < at->client_max; ++i) {
        const server_client *client = &at->clients[i];
        short events = client->out != NULL ? POLLIN | POLLOUT : POLLIN;
        at->polls[i + 1] = (struct pollfd){.fd = client->socket, .events = events};
    }
}

static void serve(server *at)
{
    while (!over(at)) {
        fill_polls(at);
        if (poll(at->polls, at->client_max + 1u, poll_ms(at)) < 0 && errno != EINTR) {
            return;
        }
        for (uint32_t i = 0; i < at->client_max; ++i) {
            if (at->clients[i].socket >= 0 && at->polls[i + 1].revents != 0) {
                read_client(at, &at->clients[i]);
            }
        }
        if (at->polls[0].revents != 0) {
            admit(at);
        }
        cuda_meet_expire(&at->meet, cuda_now_ns());
        for (uint32_t i = 0; i < at->client_max; ++i) {
            if (at->clients[i].socket >= 0) {
                flush_output(at, &at->clients[i]);
            }
        }
    }
}

static void server_main(const ist_backend_process *process, int listener)
{
    /* Some more than ranks: a foreign process that connects must not keep a rank out. */
    server at = {.rank_count = process->rank_count,
                 .client_max = process->rank_count + 8u,
                 .listener = listener,
                 .digest = cuda_wire_digest(process),
                 .idle_since_ns = cuda_now_ns()};
    at.clients = ist_alloc(at.client_max, sizeof(*at.clients));
    at.polls = ist_alloc(at.client_max + 1u, sizeof(*at.polls));
    if (at.clients != NULL && at.polls != NULL &&
        cuda_meet_open(&at.meet, at.rank_count) == IST_OK) {
        at.meet.owner = &at;
        at.meet.answered = answered;
        for (uint32_t i = 0; i < at.client_max; ++i) {
            at.clients[i].socket = -1;
        }
        serve(&at);
        cuda_meet_close(&at.meet);
    }
    ist_free(at.clients);
    ist_free(at.polls);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Keeps nothing of the parent open: neither its GPU nor the launcher's pipes. */
static void leave_parent(int listener)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2 && null_fd >= 0; ++fd) {
        (void)dup2(null_fd, fd);
    }
    if (listener > 3) {
        (void)close_range(3, (unsigned)listener - 1u, 0);
    }
    (void)close_range((unsigned)listener + 1u, ~0u, 0);
}

static ist_status system_error(const char *what)
{
    return ist_raise(IST_ERR_SYSTEM, NULL, "%s: %s", what, strerror(errno));
}

static ist_status open_listener(const ist_backend_process *process, int *result)
{
    struct sockaddr_un address;
    socklen_t length = cuda_wire_address(process, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) {
        return system_error("socket");
    }
    if (bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, (int)process->rank_count + 8) != 0) {
        ist_status status = system_error("bind of the socket where ranks meet");
        (void)close(listener);
        return status;
    }
    *result = listener;
    return IST_OK;
}

/* The grandchild serves; init becomes its parent, so that nobody has to wait for it. */
ist_status cuda_server_start(const ist_backend_process *process)
{
    int listener = -1;
    IST_RETURN_IF_ERROR(open_listener(process, &listener));
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            leave_parent(listener);
            server_main(process, listener);
        }
        _exit(0);
    }
    ist_status status = child < 0 ? system_error("fork of the process where ranks meet") : IST_OK;
    (void)close(listener);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return status;
}
