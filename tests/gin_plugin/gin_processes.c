/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the same between processes, each with a thread that makes progress beside the one that posts,
 * as NCCL has; a process that is killed is an error for the others, never a hang. Method: children that
 * exchange handles through shared memory and tell by their exit status what they saw.
 */
#include "gin_rig.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, ROUNDS = 200, BYTES = 3000 };

/* Shared by the parent and its children. */
typedef struct board {
    char handles[RANKS][GIN_HANDLE_BYTES];
    atomic_uint listening, connected, done;
} board;

typedef struct child {
    rig_rank rank;
    board *shared;
    atomic_bool stop;
    pthread_t thread;
} child;

static void *progress_main(void *argument)
{
    child *own = argument;
    while (!atomic_load(&own->stop)) {
        (void)rig_gin->progress(own->rank.comm);
        sched_yield();
    }
    return NULL;
}

/* Outside cmocka's tests: a failed expectation ends the child. */
static void need(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "child %d: %s\n", (int)getpid(), what);
        _exit(3);
    }
}

static void child_open(child *own, uint32_t number, board *shared)
{
    void *handles[RANKS];
    *own = (child){.shared = shared};
    rig_listen(&own->rank, number, RANKS, 9);
    memcpy(shared->handles[number], own->rank.handle, GIN_HANDLE_BYTES);
    atomic_fetch_add(&shared->listening, 1);
    while (atomic_load(&shared->listening) < RANKS) {
        sched_yield();
    }
    for (uint32_t i = 0; i < RANKS; ++i) {
        handles[i] = shared->handles[i];
    }
    need(rig_connect(&own->rank, handles) == GIN_OK, "connect");
    rig_register(&own->rank, (size_t)(RANKS + 1) * BYTES);
    need(pthread_create(&own->thread, NULL, progress_main, own) == 0, "thread");
}

static void child_close(child *own)
{
    atomic_fetch_add(&own->shared->done, 1);
    while (atomic_load(&own->shared->done) < RANKS) {
        sched_yield();
    }
    atomic_store(&own->stop, true);
    (void)pthread_join(own->thread, NULL);
    rig_close(&own->rank);
}

static void await(child *own, void *request)
{
    while (!rig_done(&own->rank, request)) {
        sched_yield();
    }
}

/* Round r: bytes of value r to everybody, own included; then everybody's have come. */
static void one_round(child *own, uint32_t round)
{
    rig_rank *rank = &own->rank;
    void *requests[RANKS];
    memset(rank->memory, (int)(round % 251 + rank->rank), BYTES);
    for (uint32_t to = 0; to < RANKS; ++to) {
        requests[to] =
            rig_put_signal(rank, to, 0, (uint64_t)(rank->rank + 1) * BYTES, BYTES, rank->rank, 1);
    }
    for (uint32_t from = 0; from < RANKS; ++from) {
        await(own, requests[from]);
        while (rig_signal(rank, from) < round) {
            sched_yield();
        }
        const uint8_t *place = rank->memory + (size_t)(from + 1) * BYTES;
        need(place[0] == (uint8_t)(round % 251 + from), "the first byte of a put");
        need(place[BYTES - 1] == (uint8_t)(round % 251 + from), "the last byte of a put");
    }
    /* Nobody overwrites what another still reads. */
    for (uint32_t to = 0; to < RANKS; ++to) {
        await(own, rig_put_signal(rank, to, 0, 0, 0, 8, 1));
    }
    while (rig_signal(rank, 8) < (uint64_t)round * RANKS) {
        sched_yield();
    }
}

static void exchange_main(uint32_t number, board *shared)
{
    child own;
    child_open(&own, number, shared);
    for (uint32_t round = 1; round <= ROUNDS; ++round) {
        one_round(&own, round);
    }
    need(!rig_failed(&own.rank), "an error without a cause");
    child_close(&own);
}

/* Rank 2 is killed; the others find out although nothing waits for it. */
static void death_main(uint32_t number, board *shared)
{
    child own;
    child_open(&own, number, shared);
    atomic_fetch_add(&shared->connected, 1);
    while (atomic_load(&shared->connected) < RANKS) {
        sched_yield();
    }
    if (number == 2) {
        (void)raise(SIGKILL);
    }
    while (!rig_failed(&own.rank)) {
        await(&own, rig_put_signal(&own.rank, 2, 0, BYTES, BYTES, 1, 1));
        sched_yield();
    }
    await(&own, rig_put_signal(&own.rank, 1 - number, 0, BYTES, BYTES, 5, 1));
    while (rig_signal(&own.rank, 5) < 1) {
        sched_yield();
    }
    atomic_fetch_add(&shared->done, number == 0);
    child_close(&own);
}

typedef void (*child_main)(uint32_t number, board *shared);

static void run_children(child_main run, uint32_t killed)
{
    board *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[RANKS];
    assert_true(shared != MAP_FAILED);
    for (uint32_t i = 0; i < RANKS; ++i) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            run(i, shared);
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < RANKS; ++i) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                         i == killed ? SIGKILL : 0);
    }
    (void)munmap(shared, sizeof(*shared));
}

static void processes_exchange(void **unused)
{
    (void)unused;
    run_children(exchange_main, RANKS);
}

static void a_killed_process_is_an_error(void **unused)
{
    (void)unused;
    run_children(death_main, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_exchange),
        cmocka_unit_test(a_killed_process_is_an_error),
    };
    rig_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
