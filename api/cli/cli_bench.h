/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench`: what its parts share. A measurement is a case (a shape, a layout) in a cycle (the
 * whole measurement again, everything opened anew), with times for each operation.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli_rank.h"
#include "cli_stats.h"

#include <jansson.h>

/* X(ID, name): what is timed. */
#define BENCH_OP_LIST(X)                                                                           \
    X(ROUTE, "route")                                                                              \
    X(DISPATCH, "dispatch")                                                                        \
    X(COMBINE, "combine")                                                                          \
    X(PAIR, "pair")

typedef enum bench_op {
#define X(id, name) BENCH_##id,
    BENCH_OP_LIST(X)
#undef X
        BENCH_OP_COUNT
} bench_op;

/* How the ranks' figures become one: nccl-tests' -a. */
typedef enum bench_average {
    BENCH_RANK0 = 0,
    BENCH_MEAN = 1,
    BENCH_MIN = 2,
    BENCH_MAX = 3
} bench_average;

#define BENCH_CYCLES_MAX 100u
#define BENCH_ITERATIONS_MAX 100000u

typedef struct bench_options {
    int word_count;      /* options that are those of `isthmus ep`, for each case */
    char **words;        /* owned; the words themselves are argv's */
    uint32_t rank_count; /* 0: not given */
    bool placed;         /* a cluster or nodes are given, which say how many ranks there are */
    uint32_t tokens_first;
    uint32_t tokens_last;
    uint32_t tokens_factor; /* above 1: the next number of tokens is so many times as large */
    uint32_t tokens_step;   /* with factor 1: so many more */
    uint32_t layout_count;
    ist_ep_layout layouts[2];
    bool timed[BENCH_OP_COUNT];
    uint32_t iterations;
    uint32_t warmup;
    uint32_t checks; /* steps that are checked before times are taken */
    uint32_t cycles;
    bench_average average;
    bool graph;
    bool csv;
    bool json;
    bool help;
    const char *output; /* file for the JSON answer, or NULL */
} bench_options;

/* Times of an operation, in ns. */
typedef struct bench_times {
    cli_stats host;   /* from the call until the stream has done it, one at a time */
    cli_stats stream; /* between two events around it, enqueued back to back */
    double run;       /* mean of a run of them back to back, no event between */
    double call;      /* host time of enqueueing it, in that run */
} bench_times;

/* What a rank found. Plain bytes, a multiple of 16. */
typedef struct bench_report {
    uint64_t magic;
    uint32_t rank;
    int32_t status; /* of the rank's measurement */
    uint64_t rows;  /* checked */
    uint64_t wrong_rows;
    uint64_t sent_rows;     /* dispatch: one for each (token, rank) */
    uint64_t sent_own_rows; /* of them, those that stay on this rank */
    uint64_t back_rows;     /* combine: rows that are summed up into this rank's tokens */
    uint64_t back_own_rows;
    uint64_t group_bytes; /* device memory that the library took: group, and handle */
    uint64_t handle_bytes;
    uint64_t block_count;
    uint64_t reserved;
    bench_times times[BENCH_OP_COUNT];
    char wrong[120];
    char padding[8];
} bench_report;

/* One case in one cycle. */
typedef struct bench_case {
    cli_options options;
    cli_run run;
    uint32_t cycle;
    bench_report *reports; /* [rank_count], at the root; NULL elsewhere */
} bench_case;

/* Everything one call of the command measures. */
typedef struct bench_job {
    const bench_options *options;
    bench_case *cases; /* [cycles][case_count] */
    uint32_t case_count;
    const ist_world_result *result;
} bench_job;

/* A case summed up over ranks and cycles. */
typedef struct bench_row {
    const bench_case *first; /* its first cycle */
    uint32_t rank_count;
    uint64_t rows;
    uint64_t wrong_rows;
    const char *wrong;
    double sent_bytes; /* mean of a rank */
    double sent_link_bytes;
    double back_bytes;
    double back_link_bytes;
    uint64_t group_bytes;
    uint64_t handle_bytes;
    uint64_t block_count;
    bench_times times[BENCH_OP_COUNT];  /* mean over the cycles */
    double run_least[BENCH_OP_COUNT];   /* of the cycles' runs */
    double run_largest[BENCH_OP_COUNT]; /* of the cycles' runs */
} bench_row;

/* Options. As cli_options_read(). */
int bench_options_read(int argc, char **argv, bench_options *options);
void bench_options_free(bench_options *options);
/* Reads the options of a case. As cli_options_read(). */
int bench_options_case(const bench_options *options, ist_ep_layout layout, uint32_t tokens,
                       cli_options *made);

int bench_case_init(const bench_options *options, ist_ep_layout layout, uint32_t tokens,
                    bench_case *one);
void bench_case_fini(bench_case *one);

/* Why a world failed, as far as this process knows. Returns an exit status. */
int bench_say_failure(const char *command, const bench_case *cases, uint32_t count,
                      const ist_world_result *result);

/* The rank's program: all cases. `arg` is the bench_job. */
ist_status bench_rank_main(ist_world *world, void *arg);

/* Times the operations of an open rank whose step is set up. */
ist_status bench_time(cli_rank *rank, const bench_options *options, bench_report *report);
/* Times one operation of a rank that has at least a communicator and a stream. */
ist_status bench_time_op(cli_rank *rank, const bench_options *options, cli_enqueue enqueue,
                         bool graph, bench_times *times);

/* Sums a case up over its cycles. False: some rank's report is missing. */
bool bench_row_make(const bench_job *job, uint32_t index, bench_row *row);

/* Makes the ranks' times one; `stride` bytes lie between them. */
void bench_times_merge(const bench_times *first, size_t stride, uint32_t rank_count,
                       bench_average average, bench_times *merged);

/* GB/s of an operation: bytes with and without those that stay on their rank. */
double bench_rate(const bench_row *row, bench_op op, bool link_only);
const char *bench_op_name(bench_op op);
/* Largest difference between cycles' runs, in per cent of their mean. */
double bench_spread(const bench_row *row, bench_op op);

/* Printing. They return an exit status. */
int bench_print_table(const bench_job *job, const bench_row *rows);
int bench_print_csv(const bench_job *job, const bench_row *rows);
int bench_print_json(const bench_job *job, const bench_row *rows, const char *path);
/* Prints an answer, or writes it to a file when `path` is not NULL. Takes the object; NULL: out of memory. */
int bench_put_json(const char *command, json_t *object, const char *path);

/* Further measurements; argv[0] is their name in messages. They return an exit status. */
int bench_ep_command(int argc, char **argv);
int bench_coll_command(int argc, char **argv);
int bench_setup_command(int argc, char **argv);
int bench_soak_command(int argc, char **argv);

extern const char bench_help[];
extern const char bench_ep_help[];
extern const char bench_coll_help[];
extern const char bench_setup_help[];
extern const char bench_soak_help[];

#endif
