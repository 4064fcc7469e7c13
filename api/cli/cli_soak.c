/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus bench soak`: options, the run, the answer.
 */
#include "cli_soak.h"

#include "cli.h"
#include "cli_bench.h"
#include "cli_world.h"

#include <inttypes.h>
#include <isthmus/version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COMMAND "bench soak"
#define ROW_BYTES_MAX 32768u

/* ------------------------------------------------------------------------------------ options */

/* Takes out what is the soak's own, and leaves the rest for bench_options_read(). */
static int read_own(int *argc, char **argv, soak_options *options)
{
    int kept = 1;
    uint64_t value = 0;
    for (int i = 1; i < *argc; ++i) {
        bool steps = strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "--iterations") == 0;
        bool gap = strcmp(argv[i], "--gap") == 0;
        if (!steps && !gap) {
            argv[kept++] = argv[i];
            continue;
        }
        const char *text = i + 1 < *argc ? argv[++i] : "";
        if (gap && !cli_parse_duration(text, &options->gap_ns)) {
            return cli_usage(COMMAND, "--gap: '%s' is not a time like 200us", text);
        }
        if (steps && !cli_parse_number(text, 1, 100000000, &value)) {
            return cli_usage(COMMAND,
                             "--iterations: '%s' is not a whole number from 1 to 100000000", text);
        }
        options->steps = steps ? (uint32_t)value : options->steps;
    }
    *argc = kept;
    return CLI_OK;
}

static int settle(const bench_options *bench, soak_options *options)
{
    const cli_options *o = &options->world;
    int status =
        bench_options_case(bench, IST_EP_EXPERT_MAJOR, bench->tokens_first, &options->world);
    if (status != CLI_OK) {
        return status;
    }
    if (o->hidden % 8 != 0 || o->hidden * 2 > ROW_BYTES_MAX) {
        return cli_usage(COMMAND, "--hidden: %" PRIu64 " is not a multiple of 8 up to %u",
                         o->hidden, ROW_BYTES_MAX / 2);
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ answers */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int print_json(const soak_job *job, double wall_s)
{
    const soak_totals *t = &job->totals;
    json_t *object = json_pack(
        "{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "isthmus",
        ist_version_string(), "command", COMMAND, "ok", t->wrong == 0 && t->incomplete == 0,
        "backend", job->backend, "ranks", (json_int_t)job->rank_count, "steps",
        (json_int_t)t->steps, "tokens", (json_int_t)t->tokens, "words", (json_int_t)t->words,
        "wrong_words", (json_int_t)t->wrong, "first_wrong_step", (json_int_t)t->first_wrong,
        "incomplete", (json_int_t)t->incomplete, "wall_s", wall_s);
    char *text =
        object == NULL ? NULL : json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(object);
    if (text == NULL) {
        return cli_failed(COMMAND, "out of memory");
    }
    int status = printf("%s\n", text) < 0 ? CLI_FAILED : cli_put(COMMAND, "");
    free(text);
    return status;
}

static int print_text(const soak_job *job, double wall_s)
{
    const cli_options *o = &job->options->world;
    const soak_totals *t = &job->totals;
    printf("isthmus %s  bench soak  backend %s, %u ranks, seed %" PRIu64 "\n", ist_version_string(),
           job->backend, job->rank_count, o->seed);
    printf("steps   %" PRIu64
           " of dispatch, experts, combine: up to %u tokens, hidden up to %" PRIu64
           ", top-%u of %u experts, operands in %s\n",
           t->steps, o->tokens, o->hidden, o->topk, o->experts,
           o->windows ? "windows" : "plain memory");
    printf("idle    %.3f s in gaps of up to %.3f ms, all ranks together\n", (double)t->gap_ns / 1e9,
           (double)job->options->gap_ns / 1e6);
    printf("result  %s: %" PRIu64 " tokens, %.3f GB compared, %" PRIu64 " words wrong, %" PRIu64
           " operations incomplete\n",
           t->wrong == 0 && t->incomplete == 0 ? "ok" : "FAILED", t->tokens,
           (double)t->words * 8 / 1e9, t->wrong, t->incomplete);
    printf("cost    %.2f s\n", wall_s);
    return cli_put(COMMAND, "");
}

static int conclude(const soak_job *job, double wall_s)
{
    const soak_totals *t = &job->totals;
    int status = job->options->json ? print_json(job, wall_s) : print_text(job, wall_s);
    if (status == CLI_OK && (t->wrong != 0 || t->incomplete != 0)) {
        return cli_failed(COMMAND, "%" PRIu64 " words wrong, first in step %" PRIu64, t->wrong,
                          t->first_wrong);
    }
    return status;
}

static int run_soak(const soak_options *options)
{
    ist_world_result result;
    soak_job job = {.options = options};
    double begin = now_s();
    ist_status status = cli_world_run(&options->world, soak_rank_main, &job, &result);
    if (job.failed) {
        return cli_failed(COMMAND, "rank %d: %s", job.failed_rank, job.message);
    }
    if (status < 0) {
        return cli_world_refused(COMMAND, &options->world, status);
    }
    return job.done ? conclude(&job, now_s() - begin) : CLI_OK;
}

int bench_soak_command(int argc, char **argv)
{
    bench_options bench = {0};
    soak_options options = {.steps = 10000, .gap_ns = 200000};
    int status = read_own(&argc, argv, &options);
    if (status == CLI_OK) {
        status = bench_options_read(argc, argv, &bench);
    }
    options.json = bench.json;
    if (status == CLI_OK) {
        status = bench.help ? cli_put(COMMAND, bench_soak_help) : settle(&bench, &options);
    }
    if (status == CLI_OK && !bench.help) {
        status = run_soak(&options);
    }
    cli_options_free(&options.world);
    bench_options_free(&bench);
    return status;
}
