/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a run as its leader sees them: a socket each, at most one job each. */
#ifndef CLI_EXPLORE_CREW_H
#define CLI_EXPLORE_CREW_H

#include "cli_explore.h"

#include <sys/types.h>

#define CLI_EXPLORE_WORKERS_MAX 1024u

typedef struct cli_explore_worker {
    int socket;   /* -1: none */
    pid_t pid;    /* of a child of this process; 0: from elsewhere */
    bool greeted; /* from elsewhere: its first line was right */
    bool busy;
    cli_explore_job job;
    double since_s; /* when it got the job, on the leader's clock */
    cli_text said;  /* what came of its line so far */
} cli_explore_worker;

typedef struct cli_explore_crew {
    const cli_explore *options;
    cli_explore_worker workers[CLI_EXPLORE_WORKERS_MAX];
    uint32_t count;                     /* places used in `workers` */
    uint32_t processes;                 /* of the launcher */
    bool seen[CLI_EXPLORE_WORKERS_MAX]; /* processes from which somebody came */
    int listening;                      /* -1: nobody comes from elsewhere */
    char note[4096];                    /* file that tells where; "" for none */
} cli_explore_crew;

/* Forks a worker. False: it cannot be. */
bool cli_explore_crew_fork(cli_explore_crew *crew);
/* Takes one in that knocks. */
void cli_explore_crew_admit(cli_explore_crew *crew);
/* Gives an idle worker a job; false: it is gone. */
bool cli_explore_crew_give(cli_explore_worker *worker, const cli_explore_job *job);
/* Reads what has come. 1: a whole line stands in said.bytes; 0: not yet; -1: the worker is gone. */
int cli_explore_crew_read(cli_explore_worker *worker);
/* Ends a child. */
void cli_explore_crew_kill(const cli_explore_worker *worker);
/* Closes its socket, and collects a child. */
void cli_explore_crew_drop(cli_explore_worker *worker);
/* All go home. */
void cli_explore_crew_end(cli_explore_crew *crew);

#endif
