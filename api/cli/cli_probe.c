/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus probe`: options, the run, the answer.
 */
#include "cli_probe.h"

#include "cli.h"
#include "cli_world.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "probe"
#define WORDS_MAX 64
#define BYTES_LEAST 16u
#define BYTES_MOST (UINT64_C(1) << 36)

static const char help[] =
    "usage: isthmus probe [OPTION...]\n"
    "\n"
    "Measures what the links of this machine give a kernel, through the public device interface\n"
    "with kernels of its own: flags, loads and stores by size and blocks, barriers, puts, local\n"
    "copies, launches. Writes the machine's profile for the cost model (topology/profile.md). In the\n"
    "simulator it finds what the simulated links say.\n"
    "\n"
    "what is measured:\n"
    "  -b, --begin N          least bytes of a transfer, like 16K or 1M (default 16K)\n"
    "  -e, --end N            most bytes (default 64M); a rank takes twice that and a little more\n"
    "  -f, --factor N         from one size to the next (default 4)\n"
    "  --blocks LIST          numbers of blocks (default 1,8,32 and all that fit)\n"
    "  --puts                 puts also between ranks that share memory, on a communicator without\n"
    "                         load/store teams\n"
    "  -n, --rounds N         rounds of flags, barriers and puts (default 400)\n"
    "\n"
    "where:\n"
    "  --backend NAME         sim or cuda (default: IST_BACKEND, else the first usable but sim)\n"
    "  -g, --ranks N          ranks (default: the launcher's, the cluster's, or 2)\n"
    "  --cluster LINE, --nodes N, --links M\n"
    "                         as for `isthmus ep`\n"
    "\n"
    "what comes out:\n"
    "  --json                 the profile instead of the table\n"
    "  -J, --output FILE      the profile into a file, beside the table\n"
    "  --name NAME            name of the profile (default: probe)\n"
    "  -h, --help             this text\n"
    "\n"
    "exit status: 0 all right, 1 the run failed or a byte was copied wrong, 2 bad usage\n"
    "\n"
    "examples:\n"
    "  mpirun -n 2 isthmus probe --backend cuda -e 256M -J h200.json --name h200\n"
    "  isthmus probe --backend sim --cluster 2x4,nvlink_rate=200GB/s -e 4M\n";

enum {
    OPTION_BEGIN = 'b',
    OPTION_END = 'e',
    OPTION_FACTOR = 'f',
    OPTION_ROUNDS = 'n',
    OPTION_RANKS = 'g',
    OPTION_OUTPUT = 'J',
    OPTION_HELP = 'h',
    OPTION_BLOCKS = 256,
    OPTION_JSON,
    OPTION_PUTS,
    OPTION_NAME,
    OPTION_PASSED, /* from here on: as for `isthmus ep` */
    OPTION_BACKEND = OPTION_PASSED,
    OPTION_CLUSTER,
    OPTION_NODES,
    OPTION_LINKS
};

static const struct option long_options[] = {
    {"begin", 1, NULL, OPTION_BEGIN},     {"end", 1, NULL, OPTION_END},
    {"factor", 1, NULL, OPTION_FACTOR},   {"rounds", 1, NULL, OPTION_ROUNDS},
    {"ranks", 1, NULL, OPTION_RANKS},     {"output", 1, NULL, OPTION_OUTPUT},
    {"help", 0, NULL, OPTION_HELP},       {"blocks", 1, NULL, OPTION_BLOCKS},
    {"json", 0, NULL, OPTION_JSON},       {"puts", 0, NULL, OPTION_PUTS},
    {"name", 1, NULL, OPTION_NAME},       {"backend", 1, NULL, OPTION_BACKEND},
    {"cluster", 1, NULL, OPTION_CLUSTER}, {"nodes", 1, NULL, OPTION_NODES},
    {"links", 1, NULL, OPTION_LINKS},     {NULL, 0, NULL, 0}};

/* ------------------------------------------------------------------------------------ values */

/* A number with K, M or G (1024) behind it, a multiple of 16. */
static int read_bytes(const char *name, const char *text, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char digits[24];
    size_t length = strspn(text, "0123456789");
    const char *unit = text[length] == '\0' ? NULL : strchr(units, text[length]);
    uint64_t value = 0;
    bool good = length > 0 && length < sizeof digits &&
                (text[length] == '\0' || (unit != NULL && text[length + 1] == '\0'));
    if (good) {
        memcpy(digits, text, length);
        digits[length] = '\0';
        good = cli_parse_number(digits, 1, BYTES_MOST, &value);
    }
    value <<= unit == NULL ? 0 : 10 * (unit - units + 1);
    if (!good || value < BYTES_LEAST || value > BYTES_MOST || value % 16 != 0) {
        return cli_usage(COMMAND, "--%s: '%s' is not a multiple of 16 bytes up to 64G, like 16K",
                         name, text);
    }
    *bytes = value;
    return CLI_OK;
}

static int read_number(const char *name, const char *text, uint32_t low, uint32_t *number)
{
    uint64_t value = 0;
    if (!cli_parse_number(text, low, 1000000, &value)) {
        return cli_usage(COMMAND, "--%s: '%s' is not a whole number from %u to 1000000", name, text,
                         low);
    }
    *number = (uint32_t)value;
    return CLI_OK;
}

/* Numbers with commas between, ascending. */
static int read_blocks(const char *text, probe_options *options)
{
    uint32_t last = 0;
    options->block_count_count = 0;
    for (const char *at = text; at != NULL;
         at = strchr(at, ',') == NULL ? NULL : strchr(at, ',') + 1) {
        char *end;
        unsigned long value = strtoul(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || value <= last || value > 4096 ||
            options->block_count_count == PROBE_BLOCKS_MAX) {
            return cli_usage(COMMAND,
                             "--blocks: '%s' is not up to %u ascending numbers like 1,8,32", text,
                             PROBE_BLOCKS_MAX);
        }
        last = (uint32_t)value;
        options->block_counts[options->block_count_count++] = last;
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ options */

/* Options of the world, read as `isthmus ep` reads them. */
typedef struct word_list {
    char *words[WORDS_MAX];
    int count;
    bool placed; /* they say how many ranks there are */
} word_list;

static char word_probe[] = COMMAND;
static char word_ranks[] = "--ranks";
static char word_two[] = "2";
static char word_backend[] = "--backend";
static char word_cluster[] = "--cluster";
static char word_nodes[] = "--nodes";
static char word_links[] = "--links";

static int pass(word_list *list, char *name, char *value)
{
    if (list->count + 4 > WORDS_MAX) {
        return cli_usage(COMMAND, "too many options");
    }
    list->words[list->count++] = name;
    list->words[list->count++] = value;
    return CLI_OK;
}

static int read_option(probe_options *options, word_list *list, int id, char *text)
{
    switch (id) {
    case OPTION_BEGIN: return read_bytes("begin", text, &options->bytes_first);
    case OPTION_END: return read_bytes("end", text, &options->bytes_last);
    case OPTION_FACTOR: return read_number("factor", text, 2, &options->bytes_factor);
    case OPTION_ROUNDS: return read_number("rounds", text, 1, &options->rounds);
    case OPTION_BLOCKS: return read_blocks(text, options);
    case OPTION_OUTPUT: options->output = text; return CLI_OK;
    case OPTION_NAME: options->name = text; return CLI_OK;
    case OPTION_JSON: options->json = true; return CLI_OK;
    case OPTION_PUTS: options->puts = true; return CLI_OK;
    case OPTION_HELP: options->help = true; return CLI_OK;
    case OPTION_RANKS: list->placed = true; return pass(list, word_ranks, text);
    case OPTION_CLUSTER: list->placed = true; return pass(list, word_cluster, text);
    case OPTION_NODES: list->placed = true; return pass(list, word_nodes, text);
    case OPTION_LINKS: return pass(list, word_links, text);
    default: break;
    }
    return pass(list, word_backend, text);
}

static int read_list(int argc, char **argv, probe_options *options, word_list *list)
{
    int found;
    optind = 0; /* start over: this process may have read options before */
    while ((found = getopt_long(argc, argv, "+:b:e:f:n:g:J:h", long_options, NULL)) != -1) {
        const char *text = optind > 0 && optind <= argc ? argv[optind - 1] : "";
        if (found == ':' || found == '?') {
            return found == ':' ? cli_usage(COMMAND, "%s needs a value", text)
                                : cli_usage(COMMAND, "unknown option '%s'", text);
        }
        int status = read_option(options, list, found, optarg);
        if (status != CLI_OK) {
            return status;
        }
    }
    return optind < argc ? cli_usage(COMMAND, "unexpected argument '%s'", argv[optind]) : CLI_OK;
}

static int read_options(int argc, char **argv, probe_options *options)
{
    word_list list = {.words = {word_probe}, .count = 1};
    *options = (probe_options){.bytes_first = 16u << 10,
                               .bytes_last = 64u << 20,
                               .bytes_factor = 4,
                               .rounds = 400,
                               .name = "probe"};
    int status = read_list(argc, argv, options, &list);
    if (status != CLI_OK || options->help) {
        return status;
    }
    if (options->bytes_last < options->bytes_first) {
        return cli_usage(COMMAND, "--end: %" PRIu64 " bytes are less than --begin %" PRIu64,
                         options->bytes_last, options->bytes_first);
    }
    if (!list.placed && cli_launched_count() == 0) {
        status = pass(&list, word_ranks, word_two);
    }
    return status == CLI_OK ? cli_options_read(list.count, list.words, &options->world) : status;
}

/* ------------------------------------------------------------------------------------ the run */

/* What repeats the probe. */
static void command_line(const probe_options *o, const probe_result *result, cli_text *text)
{
    cli_text_append(text, "isthmus probe --backend %s --ranks %u", result->backend,
                    result->rank_count);
    if (o->world.cluster != NULL) {
        cli_text_append(text, " --cluster ");
        cli_text_append_quoted(text, o->world.cluster);
    }
    cli_text_append(text, " -b %" PRIu64 " -e %" PRIu64 " -f %u -n %u", o->bytes_first,
                    o->bytes_last, o->bytes_factor, o->rounds);
    cli_text_append(text, "%s", o->puts ? " --puts" : "");
    for (uint32_t i = 0; i < o->block_count_count; ++i) {
        cli_text_append(text, "%s%u", i == 0 ? " --blocks " : ",", o->block_counts[i]);
    }
}

static int answer(const probe_options *options, const probe_result *result)
{
    cli_text line = {0};
    command_line(options, result, &line);
    int status = line.failed ? cli_failed(COMMAND, "out of memory") : CLI_OK;
    if (status == CLI_OK && result->wrong != 0) {
        status =
            cli_failed(COMMAND, "%" PRIu64 " bytes were copied wrong: no figures", result->wrong);
    }
    if (status == CLI_OK) {
        status = options->json ? probe_write_profile(options, result, line.bytes, NULL)
                               : probe_print_table(result, line.bytes);
    }
    if (status == CLI_OK && options->output != NULL) {
        status = probe_write_profile(options, result, line.bytes, options->output);
    }
    cli_text_free(&line);
    return status;
}

static int run_probe(const probe_options *options)
{
    ist_world_result ended;
    probe_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return cli_failed(COMMAND, "out of memory");
    }
    job->options = options;
    ist_status status = cli_world_run(&options->world, probe_rank_main, job, &ended);
    int exit_status = CLI_OK;
    if (job->failed) {
        exit_status = cli_failed(COMMAND, "rank %d: %s", job->failed_rank, job->message);
    } else if (status < 0) {
        exit_status = cli_world_refused(COMMAND, &options->world, status);
    } else if (job->result.done) {
        job->result.virtual_clock = ended.virtual_ns != 0;
        exit_status = answer(options, &job->result);
    }
    free(job);
    return exit_status;
}

int cli_probe_command(int argc, char **argv)
{
    probe_options options;
    int status = read_options(argc, argv, &options);
    if (status == CLI_OK) {
        status = options.help ? cli_put(COMMAND, help) : run_probe(&options);
    }
    cli_options_free(&options.world);
    return status;
}
