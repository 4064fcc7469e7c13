/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench setup`: what opening costs, step by step, first use included.
 */
#include "cli.h"
#include "cli_bench.h"
#include "cli_world.h"

#include <isthmus/backend.h>
#include <isthmus/version.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* X(ID, name, counts as group and handle with their first use). */
#define STEP_LIST(X)                                                                               \
    X(WORLD, "world", 0)            /* from the world's start to the rank's program */             \
    X(COMM, "communicator", 0)      /* and a stream */                                             \
    X(MEMORY, "memory", 0)          /* the program's own operands, allocated */                    \
    X(WINDOWS, "windows", 0)        /* and registered, with --windows */                           \
    X(GROUP, "group", 1)            /* ist_ep_group_open() */                                      \
    X(HANDLE, "handle", 1)          /* ist_ep_handle_init() and the first routing */               \
    X(DISPATCH, "dispatch 1st", 1)  /* until the host has seen it done */                          \
    X(COMBINE, "combine 1st", 1)    /* the same */                                                 \
    X(DISPATCH2, "dispatch 2nd", 0) /* for comparison */                                           \
    X(COMBINE2, "combine 2nd", 0)

typedef enum setup_step {
#define X(id, name, counts) STEP_##id,
    STEP_LIST(X)
#undef X
        STEP_COUNT
} setup_step;

static const struct {
    const char *name;
    bool counts;
} steps[STEP_COUNT] = {
#define X(id, name, counts) {name, counts},
    STEP_LIST(X)
#undef X
};

/* What a rank found in a cycle. Plain bytes, a multiple of 16. */
typedef struct setup_report {
    uint64_t ns[STEP_COUNT];
    uint64_t rows;
    uint64_t wrong_rows;
} setup_report;

_Static_assert(sizeof(setup_report) % 16 == 0, "reports travel in units of 16 bytes");

typedef struct setup_job {
    const bench_options *bench;
    bench_case *cases;     /* [cycles] */
    setup_report *reports; /* [cycles], the slowest rank's times; at the root */
    bool gathered;
} setup_job;

/* ------------------------------------------------------------------------------------ the rank */

typedef struct setup_clock {
    ist_world *world;
    setup_report *report;
    uint64_t last_ns;
} setup_clock;

static void lap(setup_clock *clock, setup_step step)
{
    uint64_t now = ist_world_clock_ns(clock->world);
    clock->report->ns[step] = now - clock->last_ns;
    clock->last_ns = ist_world_clock_ns(clock->world);
}

/* Ranks begin a step together: what is timed is the step, not how late a peer comes to it. */
static ist_status meet(cli_rank *rank, setup_clock *clock)
{
    IST_RETURN_IF_ERROR(ist_comm_barrier(rank->comm, rank->stream));
    IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
    clock->last_ns = ist_world_clock_ns(clock->world);
    return IST_OK;
}

static ist_status open_all(cli_rank *rank, setup_clock *clock)
{
    IST_RETURN_IF_ERROR(cli_rank_open_comm(rank));
    lap(clock, STEP_COMM);
    IST_RETURN_IF_ERROR(cli_rank_open_memory(rank));
    lap(clock, STEP_MEMORY);
    IST_RETURN_IF_ERROR(meet(rank, clock));
    IST_RETURN_IF_ERROR(cli_rank_open_windows(rank));
    lap(clock, STEP_WINDOWS);
    IST_RETURN_IF_ERROR(meet(rank, clock));
    IST_RETURN_IF_ERROR(cli_rank_open_group(rank));
    lap(clock, STEP_GROUP);
    IST_RETURN_IF_ERROR(cli_rank_upload(rank, 1));
    IST_RETURN_IF_ERROR(meet(rank, clock));
    IST_RETURN_IF_ERROR(cli_rank_open_handle(rank));
    IST_RETURN_IF_ERROR(cli_rank_route(rank));
    lap(clock, STEP_HANDLE);
    return IST_OK;
}

static ist_status use(cli_rank *rank, setup_clock *clock, setup_step dispatch, setup_step combine)
{
    IST_RETURN_IF_ERROR(meet(rank, clock));
    IST_RETURN_IF_ERROR(cli_rank_dispatch(rank));
    IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
    lap(clock, dispatch);
    IST_RETURN_IF_ERROR(meet(rank, clock));
    IST_RETURN_IF_ERROR(cli_rank_combine(rank));
    IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
    lap(clock, combine);
    return IST_OK;
}

/* The slowest rank's time of each step. */
static void reduce(const setup_report *all, uint32_t rank_count, setup_report *most)
{
    memset(most, 0, sizeof *most);
    for (uint32_t r = 0; r < rank_count; ++r) {
        for (int step = 0; step < STEP_COUNT; ++step) {
            most->ns[step] = all[r].ns[step] > most->ns[step] ? all[r].ns[step] : most->ns[step];
        }
        most->rows += all[r].rows;
        most->wrong_rows += all[r].wrong_rows;
    }
}

static ist_status gather(cli_rank *rank, setup_job *job, uint32_t cycle, setup_report *report)
{
    setup_report *all = calloc(rank->rank_count, sizeof *all);
    if (all == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u reports", rank->rank_count);
    }
    report->rows = rank->report->rows;
    report->wrong_rows = rank->report->wrong_rows;
    ist_status status =
        cli_gather_open(rank->world, rank->comm, rank->stream, sizeof *report, &rank->gather);
    if (status == IST_OK) {
        status = cli_gather_run(&rank->gather, 0, report, all);
    }
    if (status == IST_OK && rank->rank == 0) {
        reduce(all, rank->rank_count, &job->reports[cycle]);
        job->gathered = true;
    }
    free(all);
    return status;
}

static ist_status run_cycle(cli_rank *rank, setup_job *job, uint32_t cycle, setup_report *report,
                            uint64_t begin_ns)
{
    setup_clock clock = {rank->world, report, begin_ns};
    bool evicted = false;
    if (cycle == 0) {
        clock.last_ns = 0;
        lap(&clock, STEP_WORLD);
    }
    IST_RETURN_IF_ERROR(open_all(rank, &clock));
    IST_RETURN_IF_ERROR(use(rank, &clock, STEP_DISPATCH, STEP_COMBINE));
    IST_RETURN_IF_ERROR(use(rank, &clock, STEP_DISPATCH2, STEP_COMBINE2));
    IST_RETURN_IF_ERROR(cli_rank_read_mask(rank));
    IST_RETURN_IF_ERROR(cli_rank_step(rank, 1, &evicted));
    IST_RETURN_IF_ERROR(gather(rank, job, cycle, report));
    return meet(rank, &clock);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    setup_job *job = arg;
    ist_status status = IST_OK;
    for (uint32_t cycle = 0; status == IST_OK && cycle < job->bench->cycles; ++cycle) {
        setup_report report = {0};
        cli_rank *rank = calloc(1, sizeof *rank);
        if (rank == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a rank");
        }
        status = cli_rank_sign_in(&job->cases[cycle].run, world, rank);
        if (status == IST_OK) {
            status = run_cycle(rank, job, cycle, &report, ist_world_clock_ns(world));
            if (status < 0) {
                cli_rank_note_failure(rank->report, status);
            }
            cli_rank_close(rank);
        }
        free(rank);
    }
    return status;
}

/* ------------------------------------------------------------------------------------ answers */

/* Group, handle and their first use. */
static double total_ms(const setup_report *report)
{
    uint64_t sum = 0;
    for (int step = 0; step < STEP_COUNT; ++step) {
        sum += steps[step].counts ? report->ns[step] : 0;
    }
    return (double)sum / 1e6;
}

static int print_text(const setup_job *job)
{
    const cli_options *o = &job->cases[0].options;
    printf("isthmus %s  bench setup  backend %s, %u ranks, %s, %u tokens a rank, operands in %s\n"
           "times in ms of the slowest rank; cycle 1 is cold\n\n%-14s",
           ist_version_string(), job->cases[0].run.backend, job->cases[0].run.rank_count,
           cli_layout_name(o->layout), o->tokens, o->windows ? "windows" : "plain memory", "step");
    for (uint32_t cycle = 0; cycle < job->bench->cycles; ++cycle) {
        printf(" %9u", cycle + 1);
    }
    for (int step = 0; step < STEP_COUNT; ++step) {
        printf("\n%-14s", steps[step].name);
        for (uint32_t cycle = 0; cycle < job->bench->cycles; ++cycle) {
            printf(" %9.3f", (double)job->reports[cycle].ns[step] / 1e6);
        }
    }
    printf("\n%-14s", "group+handle");
    for (uint32_t cycle = 0; cycle < job->bench->cycles; ++cycle) {
        printf(" %9.3f", total_ms(&job->reports[cycle]));
    }
    printf(
        "\n\ngroup+handle: group, handle, and the first dispatch and combine. %llu rows checked\n",
        (unsigned long long)job->reports[0].rows);
    return cli_put("bench setup", "");
}

static json_t *cycle_json(const setup_report *report)
{
    json_t *object = json_object();
    for (int step = 0; step < STEP_COUNT; ++step) {
        if (json_object_set_new(object, steps[step].name,
                                json_real((double)report->ns[step] / 1e6)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    if (json_object_set_new(object, "group+handle", json_real(total_ms(report))) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static int print_json(const setup_job *job)
{
    json_t *list = json_array();
    for (uint32_t cycle = 0; cycle < job->bench->cycles; ++cycle) {
        json_array_append_new(list, cycle_json(&job->reports[cycle]));
    }
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:o}", "isthmus", ist_version_string(), "command",
                  "bench setup", "backend", job->cases[0].run.backend, "ranks",
                  (json_int_t)job->cases[0].run.rank_count, "unit", "ms", "checked_rows",
                  (json_int_t)job->reports[0].rows, "cycles", list);
    return bench_put_json("bench setup", object, NULL);
}

static int conclude(const setup_job *job)
{
    for (uint32_t cycle = 0; cycle < job->bench->cycles; ++cycle) {
        if (job->reports[cycle].wrong_rows != 0) {
            return cli_failed("bench setup", "%llu wrong rows in cycle %u: no times",
                              (unsigned long long)job->reports[cycle].wrong_rows, cycle + 1);
        }
    }
    return job->bench->json ? print_json(job) : print_text(job);
}

static int run_job(setup_job *job)
{
    ist_world_result result;
    const cli_options *options = &job->cases[0].options;
    ist_status status = cli_world_run(options, rank_main, job, &result);
    if (job->cases[0].run.rank_count == 0 && status < 0) {
        return cli_world_refused("bench setup", options, status);
    }
    if (status != IST_OK) {
        return bench_say_failure("bench setup", job->cases, job->bench->cycles, &result);
    }
    return job->gathered ? conclude(job) : CLI_OK;
}

static int run_setup(const bench_options *options)
{
    setup_job job = {.bench = options};
    int status = CLI_OK;
    job.cases = calloc(options->cycles, sizeof *job.cases);
    job.reports = calloc(options->cycles, sizeof *job.reports);
    if (job.cases == NULL || job.reports == NULL) {
        status = cli_failed("bench setup", "out of memory");
    }
    for (uint32_t i = 0; status == CLI_OK && i < options->cycles; ++i) {
        status =
            bench_case_init(options, options->layouts[0], options->tokens_first, &job.cases[i]);
    }
    if (status == CLI_OK) {
        status = run_job(&job);
    }
    for (uint32_t i = 0; job.cases != NULL && i < options->cycles; ++i) {
        bench_case_fini(&job.cases[i]);
    }
    free(job.cases);
    free(job.reports);
    return status;
}

int bench_setup_command(int argc, char **argv)
{
    bench_options options;
    int status = bench_options_read(argc, argv, &options);
    options.cycles = options.cycles == 1 ? 3 : options.cycles;
    if (status == CLI_OK) {
        status = options.help ? cli_put("bench setup", bench_setup_help) : run_setup(&options);
    }
    bench_options_free(&options);
    return status;
}
