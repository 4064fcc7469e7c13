/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus fit`: constants of the cost model from a table of timings, and how well they
 * predict what they have not seen.
 */
#include "cli.h"
#include "cli_text.h"

#include <getopt.h>
#include <inttypes.h>
#include <isthmus/unstable/whatif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "fit"
#define TABLE_BYTES_MAX ((size_t)64 << 20)

static const char help[] =
    "usage: isthmus fit POINTS [OPTION...]\n"
    "\n"
    "Fits the constants of the estimate to the timings in POINTS and writes a profile for\n"
    "`isthmus whatif`. POINTS is what `isthmus probe --json` or `isthmus bench ep --json` wrote, the\n"
    "CSV of `isthmus bench ep` or `isthmus bench coll`, or\n"
    "CSV whose first line names the columns: id (source/series/point), n_gpus, op, metric (time_us\n"
    "or bw_GBs) and value, and as far as known hardware, gpus_per_node, lsa_domain_size, n_nodes,\n"
    "bytes, tokens_per_rank, hidden, topk, experts, dtype_dispatch, dtype_combine, algo_or_mode,\n"
    "system, bw_convention, notes.\n"
    "\n"
    "  --cross-validate   leaves one world size out at a time and predicts it; prints the errors\n"
    "  --test FILE        fits POINTS, predicts the timings in FILE\n"
    "  --halves           fits every other size of each series, predicts the sizes between, and\n"
    "                     the other way round\n"
    "  --series           with these three: one line a series, as CSV\n"
    "  --points           with these three: one line a point, as CSV\n"
    "  --max-median PCT   with these three: exit 1 when the median error is above it\n"
    "  --max-p90 PCT      the same for the 90th percentile over series\n"
    "  --only PREFIX      points whose id begins so\n"
    "  --name NAME        name of the profile (default: fit)\n"
    "  -o, --output FILE  the profile or the CSV, into a file\n"
    "  -h, --help         this text\n"
    "\n"
    "exit status: 0 done, 1 failed or above a limit, 2 bad usage\n"
    "\n"
    "examples:\n"
    "  isthmus fit points.csv --cross-validate --max-median 10 --max-p90 25\n"
    "  isthmus fit points.csv --only trtllm -o trtllm.json\n"
    "  isthmus fit bench-half.json --test bench-other-half.json --max-median 10\n"
    "  isthmus fit coll.csv --halves --max-median 10\n";

enum {
    OPTION_CROSS = 256,
    OPTION_TEST,
    OPTION_HALVES,
    OPTION_SERIES,
    OPTION_POINTS,
    OPTION_MEDIAN,
    OPTION_P90,
    OPTION_ONLY,
    OPTION_NAME,
    OPTION_OUTPUT = 'o',
    OPTION_HELP = 'h'
};

static const struct option long_options[] = {{"cross-validate", 0, NULL, OPTION_CROSS},
                                             {"test", 1, NULL, OPTION_TEST},
                                             {"halves", 0, NULL, OPTION_HALVES},
                                             {"series", 0, NULL, OPTION_SERIES},
                                             {"points", 0, NULL, OPTION_POINTS},
                                             {"max-median", 1, NULL, OPTION_MEDIAN},
                                             {"max-p90", 1, NULL, OPTION_P90},
                                             {"only", 1, NULL, OPTION_ONLY},
                                             {"name", 1, NULL, OPTION_NAME},
                                             {"output", 1, NULL, OPTION_OUTPUT},
                                             {"help", 0, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

typedef struct fit_options {
    const char *points;
    const char *test;
    const char *only;
    const char *name;
    const char *output;
    uint64_t max_median, max_p90; /* per cent; 0: no limit */
    bool cross, halves, series, lines, help;
} fit_options;

static int read_option(int option, const char *value, fit_options *options)
{
    switch (option) {
    case OPTION_CROSS: options->cross = true; return CLI_OK;
    case OPTION_TEST: options->test = value; return CLI_OK;
    case OPTION_HALVES: options->halves = true; return CLI_OK;
    case OPTION_SERIES: options->series = true; return CLI_OK;
    case OPTION_POINTS: options->lines = true; return CLI_OK;
    case OPTION_MEDIAN:
    case OPTION_P90:
        if (!cli_parse_number(value, 1, 1000,
                              option == OPTION_MEDIAN ? &options->max_median : &options->max_p90)) {
            return cli_usage(COMMAND, "the limit is '%s', expected 1 to 1000 per cent", value);
        }
        return CLI_OK;
    case OPTION_ONLY: options->only = value; return CLI_OK;
    case OPTION_NAME: options->name = value; return CLI_OK;
    case OPTION_OUTPUT: options->output = value; return CLI_OK;
    case OPTION_HELP: options->help = true; return CLI_OK;
    default: return CLI_USAGE;
    }
}

static int read_options(int argc, char **argv, fit_options *options)
{
    optind = 1;
    int option;
    while ((option = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1) {
        const int code = read_option(option, optarg, options);
        if (code != CLI_OK) {
            return code == CLI_USAGE ? CLI_USAGE : code;
        }
    }
    if (options->help) {
        return CLI_OK;
    }
    if (optind + 1 != argc) {
        return cli_usage(COMMAND, "%s",
                         optind == argc ? "the table of timings is missing"
                                        : "one table of timings is expected");
    }
    options->points = argv[optind];
    const int modes = options->cross + options->halves + (options->test != NULL);
    if (modes > 1) {
        return cli_usage(COMMAND, "--cross-validate, --halves and --test exclude each other");
    }
    if ((options->series || options->lines) && modes == 0) {
        return cli_usage(COMMAND,
                         "--series and --points need --cross-validate, --halves or --test");
    }
    return CLI_OK;
}

static int load(const char *path, char **bytes, size_t *count)
{
    const char *reason = "";
    if (path == NULL || cli_read_file(path, TABLE_BYTES_MAX, bytes, count, &reason)) {
        return CLI_OK;
    }
    return cli_failed(COMMAND, "%s: %s", path, reason);
}

static int put_text(const fit_options *options, const ist_fit *fit, ist_fit_text what)
{
    size_t needed = 0;
    ist_status status = ist_fit_print(fit, what, NULL, 0, &needed);
    char *text = status == IST_OK ? malloc(needed) : NULL;
    if (text != NULL) {
        status = ist_fit_print(fit, what, text, needed, NULL);
    }
    int code = CLI_OK;
    if (text == NULL || status != IST_OK) {
        code = cli_failed(COMMAND, "%s", cli_error_text(status));
    } else if (options->output == NULL) {
        code = cli_put(COMMAND, text);
    } else {
        FILE *file = fopen(options->output, "w");
        const bool written = file != NULL && fputs(text, file) >= 0;
        if (file == NULL || fclose(file) != 0 || !written) {
            code = cli_failed(COMMAND, "cannot write %s", options->output);
        }
    }
    free(text);
    return code;
}

static void put_score(const char *name, const ist_fit_score *score)
{
    if (score->series > 0) {
        printf("%-44s %6" PRIu32 " %6" PRIu32 " %7.1f %% %7.1f %%\n", name, score->series,
               score->points, score->median / 1e4, score->p90 / 1e4);
    }
}

static int judge(const fit_options *options, const ist_fit *fit)
{
    ist_fit_info info = {.size = sizeof info};
    const ist_status status = ist_fit_query(fit, &info);
    if (status != IST_OK) {
        return cli_failed(COMMAND, "%s", cli_error_text(status));
    }
    printf("%" PRIu32 " points, %" PRIu32 " used, %" PRIu32 " series\n", info.point_count,
           info.used_count, info.series_count);
    printf("%-44s %6s %6s %9s %9s\n", "what was there to learn from", "series", "points", "median",
           "90 %");
    put_score("other world sizes of the family", &info.world);
    put_score("other message sizes of the family", &info.sizes);
    put_score("other families only", &info.kin);
    put_score("all", &info.all);
    const ist_fit_score *judged = options->cross && info.world.series > 0 ? &info.world : &info.all;
    if ((options->max_median > 0 && judged->median > options->max_median * 10000) ||
        (options->max_p90 > 0 && judged->p90 > options->max_p90 * 10000)) {
        return cli_failed(COMMAND, "the errors are above the limit");
    }
    return CLI_OK;
}

static int run(const fit_options *options, const char *points, size_t bytes, const char *test,
               size_t test_bytes)
{
    const ist_fit_desc desc = {.size = sizeof desc,
                               .mode = options->cross          ? IST_FIT_CROSS
                                       : options->halves       ? IST_FIT_HALVES
                                       : options->test != NULL ? IST_FIT_TEST
                                                               : IST_FIT_PROFILE,
                               .points = points,
                               .bytes = bytes,
                               .test = test,
                               .test_bytes = test_bytes,
                               .only = options->only,
                               .name = options->name};
    ist_fit *fit = NULL;
    const ist_status status = ist_fit_open(&desc, &fit);
    if (status != IST_OK) {
        return cli_failed(COMMAND, "%s", cli_error_text(status));
    }
    int code = CLI_OK;
    if (desc.mode == IST_FIT_PROFILE) {
        code = put_text(options, fit, IST_FIT_TEXT_PROFILE);
    } else if (options->series || options->lines) {
        code = put_text(options, fit, options->series ? IST_FIT_TEXT_SERIES : IST_FIT_TEXT_POINTS);
    }
    if (code == CLI_OK && desc.mode != IST_FIT_PROFILE &&
        (options->output != NULL || (!options->series && !options->lines))) {
        code = judge(options, fit);
    }
    ist_fit_close(fit);
    return code;
}

int cli_fit_command(int argc, char **argv)
{
    fit_options options = {0};
    char *points = NULL;
    char *test = NULL;
    size_t bytes = 0;
    size_t test_bytes = 0;
    int code = read_options(argc, argv, &options);
    if (code != CLI_OK) {
        return code;
    }
    if (options.help) {
        return cli_put(COMMAND, help);
    }
    code = load(options.points, &points, &bytes);
    if (code == CLI_OK) {
        code = load(options.test, &test, &test_bytes);
    }
    if (code == CLI_OK) {
        code = run(&options, points, bytes, test, test_bytes);
    }
    free(points);
    free(test);
    return code;
}
