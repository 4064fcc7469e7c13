/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: children over a socket pair, others over TCP. All speak the same lines. */
#include "cli_explore_crew.h"

#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO_BYTES_MAX 128u

static cli_explore_worker *free_place(cli_explore_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; ++i) {
        if (crew->workers[i].socket < 0) {
            return &crew->workers[i];
        }
    }
    return crew->count < CLI_EXPLORE_WORKERS_MAX ? &crew->workers[crew->count++] : NULL;
}

/* Sockets of the others would keep them open behind the leader's back. */
static void close_inherited(const cli_explore_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; ++i) {
        if (crew->workers[i].socket >= 0) {
            (void)close(crew->workers[i].socket);
        }
    }
    if (crew->listening >= 0) {
        (void)close(crew->listening);
    }
}

bool cli_explore_crew_fork(cli_explore_crew *crew)
{
    int pair[2];
    cli_explore_worker *worker = free_place(crew);
    if (worker == NULL || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return false;
    }
    *worker = (cli_explore_worker){.socket = -1};
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close_inherited(crew);
        (void)close(pair[0]);
        _exit(cli_explore_serve(crew->options, pair[1]));
    }
    (void)close(pair[1]);
    if (pid < 0) {
        (void)close(pair[0]);
        return false;
    }
    *worker = (cli_explore_worker){.socket = pair[0], .pid = pid, .greeted = true};
    return true;
}

void cli_explore_crew_admit(cli_explore_crew *crew)
{
    int made = accept(crew->listening, NULL, NULL);
    cli_explore_worker *worker = made >= 0 ? free_place(crew) : NULL;
    if (worker != NULL) {
        *worker = (cli_explore_worker){.socket = made};
    } else if (made >= 0) {
        (void)close(made);
    }
}

bool cli_explore_crew_give(cli_explore_worker *worker, const cli_explore_job *job)
{
    char line[96];
    int bytes = snprintf(line, sizeof line, "job %" PRIu64 " %" PRIu32 " %" PRIu32 "\n", job->place,
                         job->count, job->tries);
    worker->busy = true;
    worker->job = *job;
    return send(worker->socket, line, (size_t)bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

int cli_explore_crew_read(cli_explore_worker *worker)
{
    char piece[16384];
    ssize_t bytes = read(worker->socket, piece, sizeof piece - 1u);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) {
        return 0;
    }
    /* Anybody can connect: what is no text, or a long greeting, is nobody of ours. */
    if (bytes <= 0 || memchr(piece, '\0', (size_t)bytes) != NULL ||
        (!worker->greeted && worker->said.length + (size_t)bytes > HELLO_BYTES_MAX)) {
        return -1;
    }
    piece[bytes] = '\0';
    cli_text_append(&worker->said, "%s", piece);
    if (worker->said.failed) {
        return -1;
    }
    return worker->said.bytes[worker->said.length - 1u] == '\n' ? 1 : 0;
}

void cli_explore_crew_kill(const cli_explore_worker *worker)
{
    if (worker->pid > 0) {
        (void)kill(worker->pid, SIGKILL);
    }
}

void cli_explore_crew_drop(cli_explore_worker *worker)
{
    if (worker->socket >= 0) {
        (void)close(worker->socket);
    }
    if (worker->pid > 0) {
        (void)waitpid(worker->pid, NULL, 0);
    }
    cli_text_free(&worker->said);
    *worker = (cli_explore_worker){.socket = -1};
}

void cli_explore_crew_end(cli_explore_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; ++i) {
        if (crew->workers[i].busy) {
            cli_explore_crew_kill(&crew->workers[i]); /* what it does counts no more */
        }
        cli_explore_crew_drop(&crew->workers[i]);
    }
    if (crew->listening >= 0) {
        (void)close(crew->listening);
    }
    if (crew->note[0] != '\0') {
        (void)unlink(crew->note);
    }
}
