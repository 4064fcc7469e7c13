/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus explore`: what it was asked to do, and what its parts hand to each other.
 *
 * Work is numbered: seeds of one scenario come in blocks, block after block, the scenarios by turns. A
 * place is block * CLI_EXPLORE_BLOCK + offset. A job is a piece of one block. Jobs are done in any
 * order, by any worker; their results are taken over in the order of places, so that nothing depends
 * on how many workers there are. A result is one JSON object on one line, the same on a socket and in
 * the journal that a later run resumes from.
 */
#ifndef CLI_EXPLORE_H
#define CLI_EXPLORE_H

#include "cli_text.h"
#include "explore_case.h"

#include <jansson.h>

#define CLI_EXPLORE_BLOCK 32u
#define CLI_EXPLORE_SCENARIOS_MAX 64u

typedef struct cli_explore {
    const char *pattern; /* of scenarios */
    uint32_t scenario_count;
    const explore_scenario *scenarios[CLI_EXPLORE_SCENARIOS_MAX];
    explore_setting setting;
    bool exhaustive;
    bool of_a_file;     /* --scheduler replay, --choices: a report's line says so, the file knows */
    uint64_t seed;      /* the first */
    uint64_t schedules; /* of each scenario; UINT64_MAX: as many as the time allows */
    uint64_t time_ns;   /* 0: no limit */
    uint64_t patience_ns; /* a worker that takes longer for a block hangs */
    uint64_t shrink_max;
    uint32_t jobs;
    uint32_t reports_max;
    bool keep_going, json, list, help, progress;
    const char *out;    /* folder for replay files and reports */
    const char *resume; /* journal, or NULL */
    const char *replay; /* file, or NULL */
    const char *meet;   /* HOST:PORT of process 0, or NULL */
} cli_explore;

/* Reads argv. CLI_OK, or CLI_USAGE or CLI_FAILED after a message. */
int cli_explore_read(int argc, char **argv, cli_explore *options);
extern const char *const cli_explore_help[]; /* lines; NULL at the end */
/* What decides results, as text: equal in processes that work together, and in a journal. */
void cli_explore_identity(const cli_explore *options, cli_text *text);

/* Appends the line that repeats seeds of a scenario, but for scheduler and seed. */
void cli_explore_line(const cli_explore *options, const explore_scenario *scenario, cli_text *line);

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct cli_explore_job {
    uint64_t place;
    uint32_t count; /* seeds */
    uint32_t tries; /* workers that have died of it */
} cli_explore_job;

/* Seeds in the block of a place; 0: behind the last. */
uint32_t cli_explore_block_count(const cli_explore *options, uint64_t place);
const explore_scenario *cli_explore_scenario_of(const cli_explore *options, uint64_t place);
uint64_t cli_explore_seed_of(const cli_explore *options, uint64_t place);
/* The place behind `count` seeds. */
uint64_t cli_explore_behind(const cli_explore *options, uint64_t place, uint32_t count);

/* ---- work (cli_explore_work.c) --------------------------------------------------------------- */

/* Runs a job; NULL: out of memory. Ends early behind a failure unless told to keep going. */
json_t *cli_explore_work(const cli_explore *options, const cli_explore_job *job);
/* The result of a seed that two workers have died of, or have hung in. */
json_t *cli_explore_crash(const cli_explore *options, uint64_t place);
/* Serves jobs that come as lines on a socket until it ends; exit status of the worker. */
int cli_explore_serve(const cli_explore *options, int socket);

/* ---- sums (cli_explore_sum.c) ---------------------------------------------------------------- */

/* A set of 64-bit values. */
typedef struct cli_explore_set {
    uint64_t *slots;
    uint64_t room, count;
} cli_explore_set;

typedef struct cli_explore_sum {
    uint64_t schedules, device_ops, device_calls, steps, choice_points, switches, failures;
} cli_explore_sum;

typedef struct cli_explore_total {
    cli_explore_sum all;
    cli_explore_sum scenarios[CLI_EXPLORE_SCENARIOS_MAX];
    uint64_t of_faults[EXPLORE_FAULT_COUNT];
    cli_explore_set digests, shapes;
    json_t *failures; /* array: one for each kind of failure, with a count */
    uint64_t next;    /* place behind all that was taken over */
    uint64_t resumed; /* schedules that came from the journal */
    bool stopped;     /* a failure ends the run */
} cli_explore_total;

bool cli_explore_total_init(cli_explore_total *total);
void cli_explore_total_free(cli_explore_total *total);
/* Takes a result over; it must begin at total->next. False: it does not, or is no result. */
bool cli_explore_take(const cli_explore *options, cli_explore_total *total, const json_t *result);

/* ---- journal (cli_explore_journal.c) --------------------------------------------------------- */

/* Opens options->resume: takes over what it holds, or begins it. A torn last line is cut off. NULL
   after a message; *status is CLI_OK or why not. Without options->resume NULL and CLI_OK. */
FILE *cli_explore_journal_open(const cli_explore *options, cli_explore_total *total, int *status);
bool cli_explore_journal_add(FILE *journal, const json_t *result);

/* ---- leading (cli_explore_lead.c, cli_explore_crew.c, cli_explore_meet.c) -------------------- */

/* What is known of the run besides its results. */
typedef struct cli_explore_course {
    double wall_s;
    uint64_t deaths; /* workers that died; their seeds were done again */
    uint32_t workers_max;
    bool interrupted;
} cli_explore_course;

/* Runs all jobs with a crew of workers, here and under a launcher elsewhere. */
int cli_explore_lead(const cli_explore *options, cli_explore_total *total,
                     cli_explore_course *course);
/* A process that is not number 0: its workers serve number 0. */
int cli_explore_follow(const cli_explore *options);

/* Number of this process in the job, 0 without a launcher; *count: processes. */
uint32_t cli_explore_process(uint32_t *count);
/* Listens; writes the address for the others unless they were told it. -1 after a message. */
int cli_explore_listen(const cli_explore *options, char *note, size_t note_bytes);
/* Connects to process 0, as long as it takes it to come; -1: it does not. */
int cli_explore_connect(const cli_explore *options);
/* Whether this is the first line of a worker of the same run, and from which process. */
bool cli_explore_is_hello(const cli_explore *options, const char *line, uint32_t *process);

/* ---- failures (cli_explore_fail.c, cli_explore_html.c) --------------------------------------- */

/* Shrinks, writes replay file and report, adds their names to the failure. */
void cli_explore_report(const cli_explore *options, json_t *failure);
/* Writes replay file and report of a case that a search has found; tells their names. */
json_t *cli_explore_keep(const cli_explore *options, ist_case *which);
/* Runs a replay file again. */
int cli_explore_replay(const cli_explore *options);
/* Runs the case once more and writes what happened as one self-contained page. */
int cli_explore_write_html(const ist_case *which, const char *line, const char *path);

/* ---- search (cli_explore_all.c) --------------------------------------------------------------- */

int cli_explore_search(const cli_explore *options);

/* ---- output (cli_explore_print.c) ------------------------------------------------------------ */

void cli_explore_progress(const cli_explore *options, const cli_explore_total *total,
                          const cli_explore_course *course);
void cli_explore_progress_end(void);
int cli_explore_print(const cli_explore *options, const cli_explore_total *total,
                      const cli_explore_course *course);
int cli_explore_list(const cli_explore *options);

#endif
