/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench coll`: barrier and agreement of a communicator; native collectives when options of
 * theirs are given.
 */
#include "cli.h"
#include "cli_bench.h"
#include "cli_coll_kernel.h"
#include "cli_native.h"
#include "cli_world.h"

#include <inttypes.h>
#include <isthmus/backend.h>
#include <isthmus/version.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "bench coll"

/* X(ID, name, captured in a graph). */
#define COLL_LIST(X)                                                                               \
    X(BARRIER, "barrier", 0)                                                                       \
    X(BARRIER_GRAPH, "barrier, graph", 1)                                                          \
    X(AGREE, "agree", 0)

typedef enum coll_op {
#define X(id, name, graph) COLL_##id,
    COLL_LIST(X)
#undef X
        COLL_COUNT
} coll_op;

/* What a rank found. Plain bytes, a multiple of 16. */
typedef struct coll_report {
    uint64_t wrong;
    uint64_t lsa_size;
    bench_times times[COLL_COUNT];
} coll_report;

_Static_assert(sizeof(coll_report) % 16 == 0, "reports travel in units of 16 bytes");

typedef struct coll_job {
    const bench_options *bench;
    bench_case one; /* for its options and its run */
    coll_report *reports;
    bool virtual_clock;
} coll_job;

/* ------------------------------------------------------------------------------------ the rank */

static ist_status barrier(cli_rank *rank)
{
    return ist_comm_barrier(rank->comm, rank->stream);
}

static ist_status agree(cli_rank *rank)
{
    ist_status status = ist_comm_agree(rank->comm, rank->stream);
    return status < 0 ? status : IST_OK;
}

static const struct {
    const char *name;
    cli_enqueue enqueue;
    bool graph;
} ops[COLL_COUNT] = {
    [COLL_BARRIER] = {"barrier", barrier, false},
    [COLL_BARRIER_GRAPH] = {"barrier, graph", barrier, true},
    [COLL_AGREE] = {"agree", agree, false},
};

/* Writes, a barrier, reads, and another so that nobody writes what is still read. */
static ist_status check(cli_rank *rank, const coll_args *args, coll_report *report)
{
    uint64_t wrong = 0;
    IST_RETURN_IF_ERROR(
        ist_launch(rank->stream, &ist_kernel_cli_coll_write, 1, args, sizeof *args));
    IST_RETURN_IF_ERROR(barrier(rank));
    IST_RETURN_IF_ERROR(ist_launch(rank->stream, &ist_kernel_cli_coll_read, 1, args, sizeof *args));
    IST_RETURN_IF_ERROR(barrier(rank));
    IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, &wrong, args->wrong, sizeof wrong));
    report->wrong += wrong;
    return IST_OK;
}

static ist_status check_times(cli_rank *rank, uint32_t count, void *word, coll_report *report)
{
    const ist_dev_comm *dev = NULL;
    IST_RETURN_IF_ERROR(
        ist_dev_comm_open(rank->comm, rank->rank_count * sizeof(uint64_t), 0, 0, 0, 0, &dev));
    ist_status status = IST_OK;
    for (uint32_t i = 0; status == IST_OK && i < count; ++i) {
        coll_args args = {dev, i + 1, word};
        status = check(rank, &args, report);
    }
    ist_dev_comm_close(rank->comm, dev);
    return status;
}

static ist_status check_all(cli_rank *rank, const bench_options *options, coll_report *report)
{
    ist_comm_info info = {.size = sizeof info};
    void *word = NULL;
    IST_RETURN_IF_ERROR(ist_comm_query(rank->comm, &info));
    report->lsa_size = info.lsa_size;
    IST_RETURN_IF_ERROR(ist_mem_alloc(rank->world, sizeof(uint64_t), IST_MEM_PLAIN, &word));
    ist_status status = check_times(rank, options->checks, word, report);
    ist_mem_free(rank->world, word);
    return status;
}

static ist_status run_rank(cli_rank *rank, coll_job *job)
{
    coll_report report = {0};
    IST_RETURN_IF_ERROR(cli_rank_open_comm(rank));
    IST_RETURN_IF_ERROR(
        cli_gather_open(rank->world, rank->comm, rank->stream, sizeof report, &rank->gather));
    IST_RETURN_IF_ERROR(check_all(rank, job->bench, &report));
    for (int op = 0; op < COLL_COUNT; ++op) {
        IST_RETURN_IF_ERROR(
            bench_time_op(rank, job->bench, ops[op].enqueue, ops[op].graph, &report.times[op]));
    }
    if (rank->rank == 0) {
        job->reports = calloc(rank->rank_count, sizeof *job->reports);
        if (job->reports == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u reports", rank->rank_count);
        }
    }
    IST_RETURN_IF_ERROR(cli_gather_run(&rank->gather, 0, &report, job->reports));
    IST_RETURN_IF_ERROR(barrier(rank));
    return ist_stream_sync(rank->stream, 0);
}

static ist_status rank_main(ist_world *world, void *arg)
{
    coll_job *job = arg;
    cli_rank *rank = calloc(1, sizeof *rank);
    if (rank == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a rank");
    }
    ist_status status = cli_rank_sign_in(&job->one.run, world, rank);
    if (status == IST_OK) {
        status = run_rank(rank, job);
        if (status < 0) {
            cli_rank_note_failure(rank->report, status);
        }
        cli_rank_close(rank);
    }
    free(rank);
    return status;
}

/* ------------------------------------------------------------------------------------ answers */

static void print_stats(const cli_stats *stats)
{
    printf("| %7.2f %7.2f %7.2f %7.2f ", stats->mean / 1000, stats->min / 1000,
           stats->median / 1000, stats->p99 / 1000);
}

static int print_text(const coll_job *job, const bench_times *times)
{
    printf("isthmus %s  bench coll  backend %s, %u ranks in load/store teams of %" PRIu64 "\n"
           "%u iterations after %u; times in us, %s clock\n\n",
           ist_version_string(), job->one.run.backend, job->one.run.rank_count,
           job->reports[0].lsa_size, job->bench->iterations, job->bench->warmup,
           job->virtual_clock ? "virtual" : "real");
    printf("               |   host, one at a time           |   stream, back to back          |"
           "     run\n"
           "op             |    mean     min  median     p99 |    mean     min  median     p99 |"
           "    mean call ns\n");
    for (int op = 0; op < COLL_COUNT; ++op) {
        printf("%-14s ", ops[op].name);
        print_stats(&times[op].host);
        print_stats(&times[op].stream);
        printf("| %7.2f %7.0f\n", times[op].run / 1000, times[op].call);
    }
    return cli_put(COMMAND, "");
}

static json_t *stats_json(const cli_stats *s)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean_us", s->mean / 1000, "min_us", s->min / 1000,
                     "median_us", s->median / 1000, "p99_us", s->p99 / 1000);
}

static int print_json(const coll_job *job, const bench_times *times)
{
    json_t *list = json_array();
    for (int op = 0; op < COLL_COUNT; ++op) {
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:f, s:f}", "op", ops[op].name,
                                              "host", stats_json(&times[op].host), "stream",
                                              stats_json(&times[op].stream), "run_us",
                                              times[op].run / 1000, "call_ns", times[op].call));
    }
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:I, s:o}", "isthmus", ist_version_string(),
                               "command", COMMAND, "backend", job->one.run.backend, "clock",
                               job->virtual_clock ? "virtual" : "real", "ranks",
                               (json_int_t)job->one.run.rank_count, "times", list);
    return bench_put_json(COMMAND, object, NULL);
}

static int conclude(const coll_job *job)
{
    bench_times times[COLL_COUNT];
    uint32_t count = job->one.run.rank_count;
    for (uint32_t r = 0; r < count; ++r) {
        if (job->reports[r].wrong != 0) {
            return cli_failed(COMMAND, "rank %u: %" PRIu64 " words were not there after a barrier",
                              r, job->reports[r].wrong);
        }
    }
    for (int op = 0; op < COLL_COUNT; ++op) {
        bench_times_merge(&job->reports[0].times[op], sizeof *job->reports, count,
                          job->bench->average, &times[op]);
    }
    return job->bench->json ? print_json(job, times) : print_text(job, times);
}

static int run_coll(const bench_options *options)
{
    ist_world_result result;
    coll_job job = {.bench = options};
    int exit_status =
        bench_case_init(options, options->layouts[0], options->tokens_first, &job.one);
    if (exit_status == CLI_OK) {
        ist_status status = cli_world_run(&job.one.options, rank_main, &job, &result);
        job.virtual_clock = result.virtual_ns != 0;
        exit_status = job.one.run.rank_count == 0 && status < 0
                          ? cli_world_refused(COMMAND, &job.one.options, status)
                      : status != IST_OK    ? bench_say_failure(COMMAND, &job.one, 1, &result)
                      : job.reports != NULL ? conclude(&job)
                                            : CLI_OK;
    }
    bench_case_fini(&job.one);
    free(job.reports);
    return exit_status;
}

int bench_coll_command(int argc, char **argv)
{
    bench_options options;
    native_options native;
    int status = native_options_take(&argc, argv, &native);
    if (status != CLI_OK) {
        return status;
    }
    status = bench_options_read(argc, argv, &options);
    if (status == CLI_OK) {
        status = options.help    ? cli_put(COMMAND, bench_coll_help)
                 : native.wanted ? native_command(&options, &native)
                                 : run_coll(&options);
    }
    bench_options_free(&options);
    return status;
}
