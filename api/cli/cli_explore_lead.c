/* SPDX-License-Identifier: Apache-2.0 */
/* Leads a run: hands out jobs, takes results over in order, does again what dead workers left, and ends
 * on the first failure, the last job, the time limit or an interrupt. Or follows: serves another
 * process that leads.
 */
#include "cli.h"
#include "cli_explore_crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Jobs that are out or done ahead of the one that is waited for. */
#define AHEAD_MAX 4096u
#define DEATHS_MAX 1000u
#define TICK_MS 200
#define LATE_S 30.0

static const char speaker[] = "explore";
static volatile sig_atomic_t interrupted;

typedef struct lead {
    const cli_explore *options;
    cli_explore_total *total;
    cli_explore_course *course;
    cli_explore_crew *crew;
    FILE *journal;
    uint64_t next_place;         /* of the next new job */
    cli_explore_job again[4096]; /* to be done again */
    uint32_t again_count;
    json_t *ahead[AHEAD_MAX]; /* results that came before their turn */
    uint32_t ahead_count;
    double began_s, told_s;
    bool failed; /* no memory, no journal, no workers */
} lead;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool time_is_up(const lead *l)
{
    return interrupted != 0 ||
           (l->options->time_ns != 0 && now_s() - l->began_s >= (double)l->options->time_ns * 1e-9);
}

static bool all_done(const lead *l)
{
    return l->total->stopped || cli_explore_block_count(l->options, l->total->next) == 0;
}

/* ------------------------------------------------------------------------------------ results */

static bool take_next(lead *l, uint32_t index)
{
    json_t *result = l->ahead[index];
    l->ahead[index] = l->ahead[--l->ahead_count];
    bool good = cli_explore_take(l->options, l->total, result);
    if (good && l->journal != NULL) {
        good = cli_explore_journal_add(l->journal, result);
    }
    json_decref(result);
    l->failed = l->failed || !good;
    return good;
}

/* All whose turn it is. */
static void take_in_order(lead *l)
{
    for (uint32_t i = 0; i < l->ahead_count && !l->total->stopped;) {
        uint64_t place = (uint64_t)json_integer_value(json_object_get(l->ahead[i], "place"));
        if (place != l->total->next) {
            ++i;
        } else if (take_next(l, i)) {
            i = 0;
        } else {
            return;
        }
    }
}

static void add_result(lead *l, json_t *result)
{
    if (result == NULL || l->ahead_count == AHEAD_MAX) {
        json_decref(result);
        l->failed = true;
        return;
    }
    l->ahead[l->ahead_count++] = result;
    take_in_order(l);
}

/* ------------------------------------------------------------------------------------ jobs */

static bool next_job(lead *l, cli_explore_job *job)
{
    if (l->again_count > 0) {
        *job = l->again[--l->again_count];
        return true;
    }
    uint32_t count = cli_explore_block_count(l->options, l->next_place);
    uint64_t ahead = (l->next_place - l->total->next) / CLI_EXPLORE_BLOCK;
    if (count == 0 || ahead + 64u > AHEAD_MAX / 2u) {
        return false;
    }
    uint32_t offset = (uint32_t)(l->next_place % CLI_EXPLORE_BLOCK);
    *job = (cli_explore_job){.place = l->next_place, .count = count - offset};
    l->next_place = cli_explore_behind(l->options, job->place, job->count);
    return true;
}

static void put_again(lead *l, cli_explore_job job)
{
    if (l->again_count < sizeof l->again / sizeof *l->again) {
        l->again[l->again_count++] = job;
    } else {
        l->failed = true;
    }
}

/* Twice the death of its worker: seed by seed. A seed twice: it is the seed. */
static void redo(lead *l, cli_explore_job job)
{
    ++job.tries;
    if (job.count > 1 && job.tries >= 2u) {
        for (uint32_t i = job.count; i-- > 0;) {
            put_again(l, (cli_explore_job){.place = job.place + i, .count = 1, .tries = 1});
        }
    } else if (job.count == 1 && job.tries >= 3u) {
        add_result(l, cli_explore_crash(l->options, job.place));
    } else {
        put_again(l, job);
    }
}

/* ------------------------------------------------------------------------------------ workers */

static void lose(lead *l, cli_explore_worker *worker)
{
    cli_explore_job job = worker->job;
    bool busy = worker->busy, child = worker->pid > 0;
    cli_explore_crew_drop(worker);
    if (busy) {
        ++l->course->deaths;
        redo(l, job);
    }
    if (child && (l->course->deaths > DEATHS_MAX || !cli_explore_crew_fork(l->crew))) {
        l->failed = true;
    }
}

static void hear_hello(lead *l, cli_explore_worker *worker)
{
    uint32_t process = 0;
    if (!cli_explore_is_hello(l->options, worker->said.bytes, &process)) {
        (void)cli_failed(speaker, "a process with other options wants to take part, and may not");
        cli_explore_crew_drop(worker);
        return;
    }
    worker->greeted = true;
    if (process < CLI_EXPLORE_WORKERS_MAX) {
        l->crew->seen[process] = true;
    }
    cli_text_free(&worker->said);
    worker->said = (cli_text){.bytes = NULL};
}

static void hear(lead *l, cli_explore_worker *worker)
{
    int came = cli_explore_crew_read(worker);
    if (came < 0) {
        lose(l, worker);
        return;
    }
    if (came == 0) {
        return;
    }
    if (!worker->greeted) {
        hear_hello(l, worker);
        return;
    }
    json_t *result = json_loads(worker->said.bytes, 0, NULL);
    cli_text_free(&worker->said);
    worker->said = (cli_text){.bytes = NULL};
    if (result == NULL || !worker->busy) {
        json_decref(result);
        lose(l, worker);
        return;
    }
    worker->busy = false;
    add_result(l, result);
}

static uint32_t hand_out(lead *l)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < l->crew->count; ++i) {
        cli_explore_worker *worker = &l->crew->workers[i];
        cli_explore_job job;
        if (worker->socket >= 0 && worker->greeted && !worker->busy && !time_is_up(l) &&
            next_job(l, &job)) {
            worker->since_s = now_s();
            if (!cli_explore_crew_give(worker, &job)) {
                lose(l, worker);
            }
        }
        busy += worker->socket >= 0 && worker->busy;
    }
    l->course->workers_max = busy > l->course->workers_max ? busy : l->course->workers_max;
    return busy;
}

/* Nobody answers for them any more: as if they had died. */
static void lose_the_hung(lead *l)
{
    double longest_s = (double)l->options->patience_ns * 1e-9;
    for (uint32_t i = 0; i < l->crew->count; ++i) {
        cli_explore_worker *worker = &l->crew->workers[i];
        if (worker->socket >= 0 && worker->busy && now_s() - worker->since_s > longest_s) {
            cli_explore_crew_kill(worker);
            lose(l, worker);
        }
    }
}

static void wait_for_some(lead *l)
{
    static struct pollfd set[CLI_EXPLORE_WORKERS_MAX + 1u];
    uint32_t count = l->crew->count;
    for (uint32_t i = 0; i < count; ++i) {
        set[i] = (struct pollfd){.fd = l->crew->workers[i].socket, .events = POLLIN};
    }
    set[count] = (struct pollfd){.fd = l->crew->listening, .events = POLLIN};
    if (poll(set, count + 1u, TICK_MS) <= 0) {
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        if (set[i].fd >= 0 && set[i].revents != 0 && l->crew->workers[i].socket == set[i].fd) {
            hear(l, &l->crew->workers[i]);
        }
    }
    if (set[count].fd >= 0 && set[count].revents != 0) {
        cli_explore_crew_admit(l->crew);
    }
}

/* ------------------------------------------------------------------------------------ the run */

static bool begin_crew(lead *l)
{
    (void)cli_explore_process(&l->crew->processes);
    l->crew->listening = -1;
    if (l->crew->processes > 1 || l->options->meet != NULL) {
        l->crew->listening = cli_explore_listen(l->options, l->crew->note, sizeof l->crew->note);
        if (l->crew->listening < 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < l->options->jobs; ++i) {
        if (!cli_explore_crew_fork(l->crew)) {
            (void)cli_failed(speaker, "cannot start worker %u: %s", i, strerror(errno));
            return false;
        }
    }
    return true;
}

static void go_on(lead *l)
{
    while (!l->failed && !all_done(l)) {
        uint32_t busy = hand_out(l);
        if (busy == 0 && time_is_up(l)) {
            break;
        }
        wait_for_some(l);
        lose_the_hung(l);
        l->course->wall_s = now_s() - l->began_s;
        if (l->options->progress && l->course->wall_s - l->told_s > 0.5) {
            l->told_s = l->course->wall_s;
            cli_explore_progress(l->options, l->total, l->course);
        }
    }
    l->course->wall_s = now_s() - l->began_s;
    l->course->interrupted = interrupted != 0;
    if (l->options->progress) {
        cli_explore_progress(l->options, l->total, l->course);
        cli_explore_progress_end();
    }
}

/* Who comes when all is done must find somebody to say so. */
static void wait_for_the_late(lead *l)
{
    double until_s = now_s() + LATE_S;
    for (uint32_t process = 1; process < l->crew->processes && process < CLI_EXPLORE_WORKERS_MAX;) {
        if (l->crew->seen[process]) {
            ++process;
        } else if (now_s() > until_s || interrupted != 0) {
            return;
        } else {
            wait_for_some(l);
        }
    }
}

static int lead_with(lead *l)
{
    int status = CLI_OK;
    l->journal = cli_explore_journal_open(l->options, l->total, &status);
    if (status != CLI_OK) {
        return status;
    }
    l->next_place = l->total->next;
    l->began_s = now_s();
    if (begin_crew(l)) {
        go_on(l);
        wait_for_the_late(l);
    } else {
        status = CLI_FAILED;
    }
    cli_explore_crew_end(l->crew);
    while (l->ahead_count > 0) {
        json_decref(l->ahead[--l->ahead_count]);
    }
    if (l->journal != NULL && fclose(l->journal) != 0) {
        l->failed = true;
    }
    return status == CLI_OK && l->failed
               ? cli_failed(speaker,
                            "the run ended: no memory, no room for the journal, or too many "
                            "workers have died")
               : status;
}

int cli_explore_lead(const cli_explore *options, cli_explore_total *total,
                     cli_explore_course *course)
{
    lead *l = calloc(1, sizeof *l);
    cli_explore_crew *crew = calloc(1, sizeof *crew);
    int status = CLI_FAILED;
    if (l != NULL && crew != NULL) {
        struct sigaction action = {.sa_handler = on_interrupt};
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        crew->options = options;
        *l = (lead){.options = options, .total = total, .course = course, .crew = crew};
        status = lead_with(l);
    } else {
        (void)cli_failed(speaker, "out of memory");
    }
    free(l);
    free(crew);
    return status;
}

/* ------------------------------------------------------------------------------------ following */

static pid_t fork_follower(const cli_explore *options)
{
    pid_t pid = fork();
    if (pid == 0) {
        int socket = cli_explore_connect(options);
        _exit(socket < 0 ? CLI_FAILED : cli_explore_serve(options, socket));
    }
    return pid;
}

/* The run is over when one of the workers says so; others may not even have met process 0. */
int cli_explore_follow(const cli_explore *options)
{
    pid_t pids[256];
    uint32_t deaths = 0, failed = 0;
    int how = 0;
    bool over = false;
    (void)signal(SIGINT, SIG_IGN);
    for (uint32_t i = 0; i < options->jobs; ++i) {
        pids[i] = fork_follower(options);
        failed += pids[i] <= 0;
    }
    while (!over && failed < options->jobs) {
        pid_t pid = waitpid(-1, &how, 0);
        uint32_t i = 0;
        while (i < options->jobs && pids[i] != pid) {
            ++i;
        }
        if (pid <= 0 || i == options->jobs) {
            break;
        }
        over = WIFEXITED(how) && WEXITSTATUS(how) == CLI_OK;
        pids[i] = WIFSIGNALED(how) && ++deaths <= DEATHS_MAX ? fork_follower(options) : -1;
        failed += pids[i] <= 0;
    }
    for (uint32_t i = 0; i < options->jobs; ++i) {
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL);
            (void)waitpid(pids[i], NULL, 0);
        }
    }
    return over ? CLI_OK : cli_failed(speaker, "process 0 was not met");
}
