/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes: rank 0 forks the conductor, which runs the engine; every process, rank 0
 * included, connects to it and runs its program against the remote table. The conductor is a
 * process of its own so that the death of any rank, rank 0 too, is just the death of a rank.
 */
#include "sim_conductor.h"
#include "sim_proxy.h"
#include "sim_remote.h"
#include "sim_wire.h"
#include "sim_world.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* Real time within which all processes of the job must have met. */
#define SIM_MEET_MS 60000
#define SIM_RETRY_MS 10
#define SIM_PROCESS_MS_DEFAULT 60000

struct sim_conductor {
    sim_proxy *proxies; /* [rank_count] */
    uint32_t rank_count;
};

/* ---- meeting --------------------------------------------------------------------------------- */

/* An abstract socket name: no file to clean up, gone with the last process that holds it. */
static socklen_t sim_address(const ist_backend_process *process, struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                          "isthmus-%016llx-%u", (unsigned long long)process->job_key, process->run);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static ist_status sim_system_error(const char *what)
{
    return ist_raise(IST_ERR_SYSTEM, NULL, "%s: %s", what, strerror(errno));
}

static ist_status sim_listen(const ist_backend_process *process, int *result)
{
    struct sockaddr_un address;
    socklen_t length = sim_address(process, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) {
        return sim_system_error("socket");
    }
    if (bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, (int)process->rank_count) != 0) {
        ist_status status = sim_system_error("bind of the conductor's socket");
        (void)close(listener);
        return status;
    }
    *result = listener;
    return IST_OK;
}

static void sim_pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static ist_status sim_connect(const ist_backend_process *process, int *result)
{
    struct sockaddr_un address;
    socklen_t length = sim_address(process, &address);
    for (int waited_ms = 0; waited_ms < SIM_MEET_MS; waited_ms += SIM_RETRY_MS) {
        int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (socket_fd < 0) {
            return sim_system_error("socket");
        }
        if (connect(socket_fd, (struct sockaddr *)&address, length) == 0) {
            *result = socket_fd;
            return IST_OK;
        }
        (void)close(socket_fd);
        sim_pause_ms(SIM_RETRY_MS);
    }
    return ist_raise(IST_ERR_TIMEOUT, NULL,
                     "rank %u found no conductor in %d ms: rank 0 has not started, or runs on "
                     "another host (ranks of a simulated world share one host)",
                     process->rank, SIM_MEET_MS);
}

/* What all processes must have in common. */
static uint64_t sim_setup_digest(const ist_backend_world *setup)
{
    const char *cluster = setup->cluster != NULL ? setup->cluster : "";
    uint64_t numbers[4] = {setup->seed, setup->deadline_ns, setup->process->rank_count,
                           XXH3_64bits(cluster, strlen(cluster))};
    return XXH3_64bits(numbers, sizeof(numbers));
}

/* ---- conductor ------------------------------------------------------------------------------- */

static ist_status sim_admit(sim_conductor *conductor, int socket_fd, uint64_t digest)
{
    sim_message hello;
    if (!sim_wire_ready(socket_fd, SIM_MEET_MS) || sim_wire_receive(socket_fd, &hello) != IST_OK ||
        hello.op != SIM_WIRE_HELLO || hello.n[1] >= conductor->rank_count) {
        return ist_raise(IST_ERR_SYSTEM, NULL, "a process that is no rank of this job connected");
    }
    sim_proxy *proxy = &conductor->proxies[hello.n[1]];
    if (hello.n[0] != SIM_WIRE_VERSION || hello.n[3] != digest || proxy->socket >= 0) {
        return ist_raise(IST_ERR_MISMATCH, NULL,
                         "the process of rank %u has another descriptor (seed, deadline, ranks, "
                         "cluster) or library than rank 0",
                         (unsigned)hello.n[1]);
    }
    proxy->socket = socket_fd;
    proxy->process_id = (int64_t)hello.n[2];
    return IST_OK;
}

static ist_status sim_gather(sim_conductor *conductor, int listener, uint64_t digest)
{
    for (uint32_t i = 0; i < conductor->rank_count; ++i) {
        if (!sim_wire_ready(listener, SIM_MEET_MS)) {
            return ist_raise(IST_ERR_TIMEOUT, NULL, "%u of %u processes came in %d ms", i,
                             conductor->rank_count, SIM_MEET_MS);
        }
        int socket_fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (socket_fd < 0) {
            return sim_system_error("accept");
        }
        ist_status status = sim_admit(conductor, socket_fd, digest);
        if (status != IST_OK) {
            (void)close(socket_fd);
            return status;
        }
    }
    return IST_OK;
}

/* The last answer of each process: how the world, or the start of it, ended. */
static void sim_tell_all(sim_conductor *conductor, sim_wire_op op, ist_status status,
                         const ist_world_result *result)
{
    sim_message message = {.op = (uint32_t)op, .status = status};
    message.error.size = sizeof(message.error);
    if (status < 0) {
        (void)ist_error_last(&message.error);
    }
    message.bytes = result != NULL ? sizeof(*result) : 0;
    for (uint32_t i = 0; i < conductor->rank_count; ++i) {
        if (conductor->proxies[i].socket >= 0) {
            (void)sim_wire_send(conductor->proxies[i].socket, &message, result);
        }
    }
}

static ist_status sim_proxy_program(sim_rank *rank)
{
    return sim_proxy_serve(rank, &rank->world->conductor->proxies[rank->index]);
}

void sim_conductor_rank_killed(sim_rank *rank)
{
    sim_conductor *conductor = rank->world->conductor;
    if (conductor == NULL) {
        return;
    }
    sim_proxy *proxy = &conductor->proxies[rank->index];
    if (proxy->socket >= 0) {
        (void)kill((pid_t)proxy->process_id, SIGKILL);
        (void)close(proxy->socket);
        proxy->socket = -1;
    }
}

static void sim_conduct_world(sim_conductor *conductor, const ist_backend_world *setup)
{
    sim_world *world = NULL;
    ist_backend_world whole = *setup;
    whole.rank_count = conductor->rank_count;
    ist_status status = sim_world_open(&whole, &world);
    sim_tell_all(conductor, SIM_WIRE_HELLO, status, NULL);
    if (status != IST_OK) {
        return;
    }
    world->conductor = conductor;
    world->host_main = sim_proxy_program;
    ist_world_result result = {.size = sizeof(result)};
    status = sim_world_run(world);
    sim_world_result(world, status, &result);
    sim_tell_all(conductor, SIM_WIRE_END, IST_OK, &result);
    world->conductor = NULL;
    sim_world_close(world);
}

static void sim_conductor_main(const ist_backend_world *setup, int listener)
{
    sim_conductor conductor = {.rank_count = setup->process->rank_count};
    conductor.proxies = ist_alloc(conductor.rank_count, sizeof(*conductor.proxies));
    if (conductor.proxies == NULL) {
        return;
    }
    uint64_t process_ns = setup->sim != NULL ? setup->sim->process_deadline_ns : 0;
    int timeout_ms = process_ns == 0 ? SIM_PROCESS_MS_DEFAULT : (int)(process_ns / 1000000 + 1);
    for (uint32_t i = 0; i < conductor.rank_count; ++i) {
        conductor.proxies[i] = (sim_proxy){.socket = -1, .timeout_ms = timeout_ms};
    }
    ist_status status = sim_gather(&conductor, listener, sim_setup_digest(setup));
    if (status != IST_OK) {
        sim_tell_all(&conductor, SIM_WIRE_HELLO, status, NULL);
    } else {
        sim_conduct_world(&conductor, setup);
    }
    for (uint32_t i = 0; i < conductor.rank_count; ++i) {
        if (conductor.proxies[i].socket >= 0) {
            (void)close(conductor.proxies[i].socket);
        }
    }
    ist_free(conductor.proxies);
}

/* In rank 0: the child becomes the conductor and never returns into the program. */
static ist_status sim_conductor_start(const ist_backend_world *setup, pid_t *child)
{
    int listener = -1;
    IST_RETURN_IF_ERROR(sim_listen(setup->process, &listener));
    pid_t pid = fork();
    if (pid == 0) {
        sim_conductor_main(setup, listener);
        (void)close(listener);
        _exit(0);
    }
    (void)close(listener);
    if (pid < 0) {
        return sim_system_error("fork of the conductor");
    }
    *child = pid;
    return IST_OK;
}

/* ---- the process of a rank ------------------------------------------------------------------- */

static ist_status sim_answer(int socket_fd, sim_wire_op op, ist_world_result *result)
{
    sim_message message;
    IST_RETURN_IF_ERROR(sim_wire_receive(socket_fd, &message));
    if (message.op != (uint32_t)op) {
        return ist_raise(IST_ERR_INTERNAL, NULL, "answer %u where %d is expected", message.op,
                         (int)op);
    }
    if (message.status < 0) {
        return ist_raise((ist_status)message.status, &message.error, "%s", message.error.message);
    }
    return result != NULL ? sim_wire_receive_bytes(socket_fd, result, sizeof(*result)) : IST_OK;
}

static ist_status sim_rank_process(const ist_backend_world *setup, int socket_fd,
                                   ist_world_result *result)
{
    const ist_backend_process *process = setup->process;
    sim_remote remote = {.socket = socket_fd, .rank = process->rank};
    sim_message message = {
        .op = SIM_WIRE_HELLO,
        .n = {SIM_WIRE_VERSION, process->rank, (uint64_t)getpid(), sim_setup_digest(setup)}};
    IST_RETURN_IF_ERROR(sim_wire_send(socket_fd, &message, NULL));
    IST_RETURN_IF_ERROR(sim_answer(socket_fd, SIM_WIRE_HELLO, NULL));
    ist_status program = setup->rank_main(&sim_remote_ops, &remote, process->rank,
                                          process->rank_count, setup->context);
    message = (sim_message){.op = SIM_WIRE_END, .n = {(uint64_t)(int64_t)program}};
    IST_RETURN_IF_ERROR(sim_wire_send(socket_fd, &message, NULL));
    IST_RETURN_IF_ERROR(sim_answer(socket_fd, SIM_WIRE_END, result));
    return result->status;
}

ist_status sim_conductor_run(const ist_backend_world *setup, ist_world_result *result)
{
    pid_t child = -1;
    int socket_fd = -1;
    ist_status status = IST_OK;
    if (setup->process->rank == 0) {
        status = sim_conductor_start(setup, &child);
    }
    status = status == IST_OK ? sim_connect(setup->process, &socket_fd) : status;
    if (status == IST_OK) {
        status = sim_rank_process(setup, socket_fd, result);
        (void)close(socket_fd);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    result->status = status;
    return status;
}
