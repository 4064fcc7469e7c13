/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench ep`: makes the cases, runs the world once for all of them, sums up, prints. Rank 0
 * gathers, so the process that holds it prints; others speak only of their own failures.
 */
#include "cli.h"
#include "cli_bench.h"
#include "cli_world.h"

#include <stdlib.h>
#include <string.h>

#define CASES_MAX 4096u

static uint32_t next_tokens(const bench_options *options, uint32_t tokens)
{
    uint64_t next = options->tokens_step != 0    ? (uint64_t)tokens + options->tokens_step
                    : options->tokens_factor > 1 ? (uint64_t)tokens * options->tokens_factor
                                                 : (uint64_t)tokens + 1;
    return next > options->tokens_last ? 0 : (uint32_t)next;
}

static uint32_t count_cases(const bench_options *options)
{
    uint32_t count = 0;
    for (uint32_t t = options->tokens_first; t != 0 && count <= CASES_MAX;
         t = next_tokens(options, t)) {
        ++count;
    }
    return count * options->layout_count;
}

int bench_case_init(const bench_options *options, ist_ep_layout layout, uint32_t tokens,
                    bench_case *one)
{
    int status = bench_options_case(options, layout, tokens, &one->options);
    if (status != CLI_OK) {
        return status;
    }
    one->run.options = &one->options;
    if (pthread_mutex_init(&one->run.lock, NULL) != 0 ||
        !cli_steps_init(&one->run.steps, &one->options)) {
        return cli_failed("bench ep", "out of memory");
    }
    return CLI_OK;
}

void bench_case_fini(bench_case *one)
{
    if (one->run.options != NULL) {
        cli_steps_fini(&one->run.steps);
        pthread_mutex_destroy(&one->run.lock);
    }
    free(one->run.reports);
    free(one->run.gathered);
    free(one->run.masks);
    free(one->reports);
    cli_options_free(&one->options);
}

static int make_cases(const bench_options *options, bench_job *job)
{
    uint32_t at = 0;
    for (uint32_t cycle = 0; cycle < options->cycles; ++cycle) {
        for (uint32_t l = 0; l < options->layout_count; ++l) {
            for (uint32_t t = options->tokens_first; t != 0; t = next_tokens(options, t)) {
                job->cases[at].cycle = cycle;
                int status = bench_case_init(options, options->layouts[l], t, &job->cases[at]);
                if (status != CLI_OK) {
                    return status;
                }
                ++at;
            }
        }
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ answers */

int bench_say_failure(const char *command, const bench_case *cases, uint32_t count,
                      const ist_world_result *result)
{
    for (uint32_t i = 0; i < count; ++i) {
        const cli_run *run = &cases[i].run;
        for (uint32_t r = 0; r < run->rank_count; ++r) {
            if (run->reports[r].state == CLI_STATE_FAILED) {
                return cli_failed(command, "rank %u: %s: %s", r,
                                  ist_status_name(run->reports[r].status), run->reports[r].message);
            }
        }
    }
    return cli_first_process() ? cli_failed(command, "%s", cli_error_text(result->status))
                               : CLI_FAILED;
}

static int print(const bench_job *job, const bench_row *rows)
{
    const bench_options *options = job->options;
    int status = options->csv    ? bench_print_csv(job, rows)
                 : options->json ? bench_print_json(job, rows, NULL)
                                 : bench_print_table(job, rows);
    if (status == CLI_OK && options->output != NULL) {
        status = bench_print_json(job, rows, options->output);
    }
    for (uint32_t i = 0; status == CLI_OK && i < job->case_count; ++i) {
        if (rows[i].wrong_rows != 0) {
            status = cli_failed("bench ep", "%s", rows[i].wrong);
        }
    }
    return status;
}

static int conclude(const bench_job *job)
{
    bench_row *rows = calloc(job->case_count, sizeof *rows);
    int status = CLI_OK;
    if (rows == NULL) {
        return cli_failed("bench ep", "out of memory");
    }
    for (uint32_t i = 0; i < job->case_count && status == CLI_OK; ++i) {
        if (!bench_row_make(job, i, &rows[i])) {
            status = cli_failed("bench ep", "a rank's figures are missing");
        }
    }
    if (status == CLI_OK) {
        status = print(job, rows);
    }
    free(rows);
    return status;
}

static int run_job(bench_job *job)
{
    ist_world_result result;
    const cli_options *options = &job->cases[0].options;
    ist_status status = cli_world_run(options, bench_rank_main, job, &result);
    job->result = &result;
    if (job->cases[0].run.rank_count == 0 && status < 0) {
        return cli_world_refused("bench ep", options, status);
    }
    if (status != IST_OK) {
        return bench_say_failure("bench ep", job->cases, job->case_count * job->options->cycles,
                                 &result);
    }
    return job->cases[0].reports != NULL ? conclude(job) : CLI_OK;
}

static int run_bench(const bench_options *options)
{
    uint64_t count = count_cases(options);
    bench_job job = {.options = options, .case_count = (uint32_t)count};
    if (count * options->cycles > CASES_MAX) {
        return cli_usage("bench ep", "%llu measurements are more than %u",
                         (unsigned long long)(count * options->cycles), CASES_MAX);
    }
    job.cases = calloc(count * options->cycles, sizeof *job.cases);
    if (job.cases == NULL) {
        return cli_failed("bench ep", "out of memory");
    }
    int status = make_cases(options, &job);
    if (status == CLI_OK) {
        status = run_job(&job);
    }
    for (uint32_t i = 0; i < job.case_count * options->cycles; ++i) {
        bench_case_fini(&job.cases[i]);
    }
    free(job.cases);
    return status;
}

int bench_ep_command(int argc, char **argv)
{
    bench_options options;
    int status = bench_options_read(argc, argv, &options);
    if (status == CLI_OK) {
        status = options.help ? cli_put("bench ep", bench_ep_help) : run_bench(&options);
    }
    bench_options_free(&options);
    return status;
}
