/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus ep`: runs the world, finds who prints, sums up, prints.
 *
 * With one process a rank only the rank that gathered the reports prints: the lowest one that
 * survived. Where no rank got that far it is the launcher's first process.
 */
#include "cli_ep.h"

#include "cli.h"
#include "cli_rank.h"
#include "cli_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024u : 0;
}

/* ------------------------------------------------------------------------------------ who prints */

static const uint64_t *mask_of(const cli_run *run, uint32_t rank)
{
    return run->masks + (size_t)rank * IST_MASK_WORDS(run->rank_count);
}

static uint32_t popcount(const uint64_t *words, uint32_t rank_count)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IST_MASK_WORDS(rank_count); ++i) {
        count += (uint32_t)__builtin_popcountll(words[i]);
    }
    return count;
}

/* The lowest rank of this process in the largest surviving group; rank_count: none got to the end. */
static uint32_t reference_rank(const cli_run *run)
{
    uint32_t best = run->rank_count;
    for (uint32_t r = 0; r < run->rank_count; ++r) {
        if (run->reports[r].state == CLI_STATE_DONE &&
            (best == run->rank_count || popcount(mask_of(run, r), run->rank_count) >
                                            popcount(mask_of(run, best), run->rank_count))) {
            best = r;
        }
    }
    return best;
}

/* A rank that the plan killed is no failure of its process. */
static bool failed_here(const cli_run *run, const ist_world_result *result)
{
    for (uint32_t r = 0; r < run->rank_count; ++r) {
        if (run->reports[r].state == CLI_STATE_FAILED) {
            return true;
        }
    }
    return result->status != IST_OK && result->status != IST_ERR_KILLED;
}

static bool prints(const cli_run *run, uint32_t reference, const ist_world_result *result)
{
    if (run->local_count == run->rank_count) {
        return run->rank_count != 0 || cli_first_process();
    }
    if (reference < run->rank_count) {
        const uint64_t *mask = mask_of(run, reference);
        uint32_t root = 0;
        while (!ist_mask_test(mask, root)) {
            ++root;
        }
        return root == reference;
    }
    return cli_first_process() && failed_here(run, result);
}

/* ------------------------------------------------------------------------------------ the run */

static bool run_init(cli_run *run, const cli_options *options)
{
    memset(run, 0, sizeof *run);
    run->options = options;
    if (pthread_mutex_init(&run->lock, NULL) != 0) {
        return false;
    }
    if (!cli_steps_init(&run->steps, options)) {
        pthread_mutex_destroy(&run->lock);
        return false;
    }
    cli_progress_begin(&run->progress);
    return true;
}

static void run_fini(cli_run *run)
{
    cli_steps_fini(&run->steps);
    pthread_mutex_destroy(&run->lock);
    free(run->reports);
    free(run->gathered);
    free(run->masks);
}

static void check_expected(const cli_options *options, cli_outcome *outcome)
{
    if (!options->expect_given || options->expect == outcome->digest) {
        return;
    }
    if (outcome->ok) {
        snprintf(outcome->message, sizeof outcome->message,
                 "the digest is %016llx, expected is %016llx", (unsigned long long)outcome->digest,
                 (unsigned long long)options->expect);
    }
    outcome->ok = false;
}

/* Reports of failed ranks stand only where they were made. */
static const char *failure_text(const cli_run *run, const ist_world_result *result)
{
    if (result->failed_rank >= 0 && (uint32_t)result->failed_rank < run->rank_count) {
        const cli_report *report = &run->reports[result->failed_rank];
        if (report->message[0] != '\0') {
            return report->message;
        }
    }
    return cli_error_text(result->status);
}

static int print(const char *command, const cli_run *run, const cli_outcome *outcome,
                 const uint64_t *mask)
{
    const cli_options *options = run->options;
    int status = options->json ? cli_outcome_print_json(command, options, outcome)
                               : cli_outcome_print_text(options, outcome, run->gathered, mask);
    if (status == CLI_OK && options->record != NULL) {
        status = cli_record_write(options->record, options, run->rank_count, run->backend,
                                  outcome->digest);
    }
    if (status == CLI_OK && !outcome->ok) {
        return cli_failed(command, "%s", outcome->message);
    }
    return status;
}

static int conclude(const char *command, const cli_run *run, const ist_world_result *result,
                    double wall_s)
{
    const cli_options *options = run->options;
    uint32_t reference = reference_rank(run);
    if (!prints(run, reference, result)) {
        return failed_here(run, result) ? CLI_FAILED : CLI_OK;
    }
    cli_outcome outcome = {.wall_s = wall_s, .rss_bytes = peak_rss_bytes()};
    const uint64_t *mask = reference < run->rank_count ? mask_of(run, reference) : NULL;
    snprintf(outcome.backend, sizeof outcome.backend, "%s", run->backend);
    if (result->status != IST_OK) {
        int who = result->failed_rank;
        snprintf(outcome.message, sizeof outcome.message, "rank %d: %s: %s", who,
                 ist_status_name(result->status), failure_text(run, result));
    }
    /* Where nobody got to the end, this process's own reports are all there is. */
    const cli_report *reports = mask != NULL ? run->gathered : run->reports;
    cli_outcome_sum(options, result, reports, run->rank_count, mask, &outcome);
    check_expected(options, &outcome);
    int status = outcome.replay == NULL ? cli_failed(command, "out of memory")
                                        : print(command, run, &outcome, mask);
    cli_outcome_free(&outcome);
    return status;
}

int cli_ep_run(const char *command, const cli_options *options)
{
    cli_run run;
    ist_world_result result;
    double begin = now_s();
    if (!run_init(&run, options)) {
        return cli_failed(command, "out of memory");
    }
    ist_status status = cli_world_run(options, cli_rank_main, &run, &result);
    cli_progress_end(&run.progress);
    int exit_status = run.rank_count == 0 && status < 0
                          ? cli_world_refused(command, options, status)
                          : conclude(command, &run, &result, now_s() - begin);
    run_fini(&run);
    return exit_status;
}

int cli_ep_command(int argc, char **argv)
{
    cli_options options;
    int status = cli_options_read(argc, argv, &options);
    if (status == CLI_OK) {
        status = options.help ? cli_put("ep", cli_ep_help) : cli_ep_run("ep", &options);
    }
    cli_options_free(&options);
    return status;
}
