/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of `isthmus ep`. --demo is the same as a fixed list of options before the others,
 * so that every option can change the demo too.
 */
#include "cli_options.h"

#include "cli.h"
#include "cli_faults.h"
#include "cli_hash.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RANKS_MAX 65536u
#define HIDDEN_MAX (UINT64_C(1) << 20)
#define EXPERTS_MAX 65535u
#define TOKENS_MAX 65535u

/* X(ID, name, takes an argument). Aliases have rows of their own. */
#define OPTION_LIST(X)                                                                             \
    X(RANKS, "ranks", 1)                                                                           \
    X(NODES, "nodes", 1)                                                                           \
    X(CLUSTER, "cluster", 1)                                                                       \
    X(TOKENS, "tokens", 1)                                                                         \
    X(HIDDEN, "hidden", 1)                                                                         \
    X(TOPK, "top-k", 1)                                                                            \
    X(EXPERTS, "experts", 1)                                                                       \
    X(LAYOUT, "layout", 1)                                                                         \
    X(DTYPE, "dtype", 1)                                                                           \
    X(ROUTING, "routing", 1)                                                                       \
    X(MASKED, "masked", 1)                                                                         \
    X(UNEVEN, "uneven", 0)                                                                         \
    X(SEED, "seed", 1)                                                                             \
    X(FAULTS, "faults", 1)                                                                         \
    X(FAULTS_RANDOM, "faults-random", 1)                                                           \
    X(FAULT, "fault", 1)                                                                           \
    X(ITERATIONS, "iterations", 1)                                                                 \
    X(READMIT, "readmit", 1)                                                                       \
    X(DEADLINE, "deadline", 1)                                                                     \
    X(STAGED, "staged", 0)                                                                         \
    X(GRAPH, "graph", 0)                                                                           \
    X(WINDOWS, "windows", 0)                                                                       \
    X(BLOCKS, "blocks", 1)                                                                         \
    X(LINKS, "links", 1)                                                                           \
    X(BACKEND, "backend", 1)                                                                       \
    X(JSON, "json", 0)                                                                             \
    X(TRACE, "trace", 1)                                                                           \
    X(LOG, "log", 1)                                                                               \
    X(RECORD, "record", 1)                                                                         \
    X(EXPECT, "expect", 1)                                                                         \
    X(DEMO, "demo", 0)                                                                             \
    X(HELP, "help", 0)

typedef enum option_id {
    OPTION_FIRST = 256,
#define X(id, name, takes) OPTION_##id,
    OPTION_LIST(X)
#undef X
} option_id;

static const struct option long_options[] = {
#define X(id, name, takes) {name, takes, NULL, OPTION_##id},
    OPTION_LIST(X)
#undef X
        {"topk", 1, NULL, OPTION_TOPK},
    {NULL, 0, NULL, 0}};

/* The command whose options are read, in messages. */
static const char *speaker = "ep";

/* ------------------------------------------------------------------------------------ values */

static int read_u64(const char *name, const char *text, uint64_t low, uint64_t high,
                    uint64_t *value)
{
    if (cli_parse_number(text, low, high, value)) {
        return CLI_OK;
    }
    return cli_usage(speaker, "--%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64, name,
                     text, low, high);
}

static int read_u32(const char *name, const char *text, uint32_t low, uint32_t high,
                    uint32_t *value)
{
    uint64_t wide;
    int status = read_u64(name, text, low, high, &wide);
    if (status == CLI_OK) {
        *value = (uint32_t)wide;
    }
    return status;
}

/* A word of a list, with its value. The first row of a value is its name. */
typedef struct word {
    const char *text;
    uint32_t value;
} word;

static const word layouts[] = {{"expert-major", IST_EP_EXPERT_MAJOR},
                               {"em", IST_EP_EXPERT_MAJOR},
                               {"expert_major", IST_EP_EXPERT_MAJOR},
                               {"rank-major", IST_EP_RANK_MAJOR},
                               {"rm", IST_EP_RANK_MAJOR},
                               {"rank_major", IST_EP_RANK_MAJOR},
                               {NULL, 0}};
static const word dtypes[] = {{"bf16", IST_BF16}, {"fp16", IST_F16}, {"f16", IST_F16},
                              {"fp32", IST_F32},  {"f32", IST_F32},  {NULL, 0}};
static const word link_models[] = {
    {"in-order", IST_LINKS_IN_ORDER}, {"max-min", IST_LINKS_MAX_MIN}, {NULL, 0}};

static int refuse_word(const char *name, const char *text, const word *words)
{
    cli_text expected = {0};
    for (const word *at = words; at->text != NULL; ++at) {
        if (at == words || at->value != at[-1].value) {
            cli_text_append(&expected, "%s%s", at == words ? "" : ", ", at->text);
        }
    }
    int status = cli_usage(speaker, "--%s: '%s' is not one of %s", name, text,
                           expected.failed ? "the words it takes" : expected.bytes);
    cli_text_free(&expected);
    return status;
}

static int read_word(const char *name, const char *text, const word *words, uint32_t *value)
{
    for (const word *at = words; at->text != NULL; ++at) {
        if (strcasecmp(at->text, text) == 0) {
            *value = at->value;
            return CLI_OK;
        }
    }
    return refuse_word(name, text, words);
}

static const char *word_of(const word *words, uint32_t value)
{
    while (words->text != NULL && words->value != value) {
        ++words;
    }
    return words->text == NULL ? "?" : words->text;
}

const char *cli_layout_name(ist_ep_layout layout)
{
    return word_of(layouts, (uint32_t)layout);
}

const char *cli_dtype_name(ist_dtype dtype)
{
    return word_of(dtypes, (uint32_t)dtype);
}

static int read_routing(cli_options *options, const char *text)
{
    const char *reason;
    cli_routing_free(&options->routing);
    if (!cli_routing_parse(text, &options->routing, &reason)) {
        return cli_usage(speaker, "--routing: %s", reason);
    }
    return CLI_OK;
}

/* A status of the fault-plan calls as an exit status. */
static int fault_status(const char *name, ist_status status)
{
    if (status == IST_OK) {
        return CLI_OK;
    }
    if (status == IST_ERR_MEMORY) {
        return cli_failed(speaker, "--%s: out of memory", name);
    }
    return cli_usage(speaker, "--%s: %s", name, cli_error_text(status));
}

static int read_faults(cli_options *options, const char *text)
{
    if (strcmp(text, "random") != 0) {
        return fault_status("faults", cli_faults_add(options->plan, text));
    }
    ++options->random_plans;
    return CLI_OK;
}

static int read_deadline(cli_options *options, const char *text)
{
    if (cli_parse_duration(text, &options->deadline_ns) && options->deadline_ns >= 1000) {
        return CLI_OK;
    }
    return cli_usage(speaker, "--deadline: '%s' is not a time from 1us, like 500us, 2ms or 1s",
                     text);
}

static int read_expect(cli_options *options, const char *text)
{
    char *end;
    options->expect = strtoull(text, &end, 16);
    options->expect_given = true;
    if (strlen(text) == 16 && *end == '\0') {
        return CLI_OK;
    }
    return cli_usage(speaker, "--expect: '%s' is not a digest of 16 hexadecimal digits", text);
}

/* ------------------------------------------------------------------------------------ options */

/* Who and how much. */
static int read_shape(cli_options *options, option_id id, const char *text)
{
    uint32_t value = 0;
    int status = CLI_OK;
    if (id == OPTION_RANKS) {
        options->ranks_given = true;
        return read_u32("ranks", text, 1, RANKS_MAX, &options->rank_count);
    }
    if (id == OPTION_NODES) {
        return read_u32("nodes", text, 1, RANKS_MAX, &options->node_count);
    }
    if (id == OPTION_TOKENS) {
        options->tokens_given = true;
        return read_u32("tokens", text, 1, TOKENS_MAX, &options->tokens);
    }
    if (id == OPTION_HIDDEN) {
        return read_u64("hidden", text, 1, HIDDEN_MAX, &options->hidden);
    }
    if (id == OPTION_TOPK) {
        options->topk_given = true;
        return read_u32("top-k", text, 1, IST_EP_TOPK_MAX, &options->topk);
    }
    if (id == OPTION_EXPERTS) {
        options->experts_given = true;
        return read_u32("experts", text, 1, EXPERTS_MAX, &options->experts);
    }
    if (id == OPTION_MASKED) {
        return read_u32("masked", text, 0, 1000, &options->routing.masked_permille);
    }
    if (id == OPTION_LAYOUT) {
        status = read_word("layout", text, layouts, &value);
        options->layout = (ist_ep_layout)value;
        return status;
    }
    status = read_word("dtype", text, dtypes, &value);
    options->dtype = (ist_dtype)value;
    return status;
}

/* What goes wrong on purpose, and how the run bears it. */
static int read_trouble(cli_options *options, option_id id, const char *text)
{
    if (id == OPTION_FAULTS) {
        return read_faults(options, text);
    }
    if (id == OPTION_FAULTS_RANDOM) {
        ++options->random_plans;
        options->random_seed_given = true;
        return read_u64("faults-random", text, 0, INT64_MAX, &options->random_seed);
    }
    if (id == OPTION_FAULT) {
        return fault_status("fault", cli_faults_add_short(options->plan, text));
    }
    if (id == OPTION_READMIT) {
        return read_u32("readmit", text, 1, CLI_STEPS_MAX, &options->readmit);
    }
    return read_deadline(options, text);
}

static int read_links(cli_options *options, const char *text)
{
    uint32_t value = 0;
    int status = read_word("links", text, link_models, &value);
    options->links = (ist_link_model)value;
    return status;
}

static int set_cluster(cli_options *options, const char *text)
{
    free(options->cluster);
    options->cluster = strdup(text);
    return options->cluster != NULL ? CLI_OK : cli_failed(speaker, "out of memory");
}

static int read_option(cli_options *options, option_id id, const char *text)
{
    switch (id) {
    case OPTION_RANKS:
    case OPTION_NODES:
    case OPTION_TOKENS:
    case OPTION_HIDDEN:
    case OPTION_TOPK:
    case OPTION_EXPERTS:
    case OPTION_MASKED:
    case OPTION_LAYOUT:
    case OPTION_DTYPE: return read_shape(options, id, text);
    case OPTION_FAULTS:
    case OPTION_FAULTS_RANDOM:
    case OPTION_FAULT:
    case OPTION_READMIT:
    case OPTION_DEADLINE: return read_trouble(options, id, text);
    case OPTION_CLUSTER: options->cluster_given = true; return set_cluster(options, text);
    case OPTION_ROUTING: return read_routing(options, text);
    case OPTION_UNEVEN: options->uneven = true; return CLI_OK;
    case OPTION_SEED: return read_u64("seed", text, 0, INT64_MAX, &options->seed);
    case OPTION_ITERATIONS:
        return read_u32("iterations", text, 1, CLI_STEPS_MAX, &options->iterations);
    case OPTION_STAGED: options->staged = true; return CLI_OK;
    case OPTION_GRAPH: options->graph = true; return CLI_OK;
    case OPTION_WINDOWS: options->windows = true; return CLI_OK;
    case OPTION_BLOCKS: return read_u32("blocks", text, 1, 65536, &options->blocks);
    case OPTION_LINKS: return read_links(options, text);
    case OPTION_BACKEND: options->backend = text; return CLI_OK;
    case OPTION_JSON: options->json = true; return CLI_OK;
    case OPTION_TRACE: options->trace = text; return CLI_OK;
    case OPTION_LOG: options->log = text; return CLI_OK;
    case OPTION_RECORD: options->record = text; return CLI_OK;
    case OPTION_EXPECT: return read_expect(options, text);
    case OPTION_DEMO: options->demo = true; return CLI_OK;
    case OPTION_HELP: options->help = true; return CLI_OK;
    case OPTION_FIRST: break;
    }
    return CLI_USAGE;
}

/* Why getopt_long() stopped. */
static int bad_option(int argc, char **argv, int found)
{
    const char *text = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    if (found == ':') {
        return cli_usage(speaker, "%s needs a value", text);
    }
    return cli_usage(speaker, "unknown option '%s'", text);
}

static int read_list(int argc, char **argv, cli_options *options)
{
    int found;
    optind = 0; /* start over: this process may have read options before */
    while ((found = getopt_long(argc, argv, "+:h", long_options, NULL)) != -1) {
        int status;
        if (found == 'h') {
            options->help = true;
            continue;
        }
        if (found < OPTION_FIRST) {
            return bad_option(argc, argv, found);
        }
        status = read_option(options, (option_id)found, optarg);
        if (status != CLI_OK) {
            return status;
        }
    }
    if (optind < argc) {
        return cli_usage(speaker, "unexpected argument '%s'", argv[optind]);
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ together */

uint32_t cli_launched_count(void)
{
    const char *wish = getenv("IST_LAUNCH");
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    uint64_t count = 0;
    if (size == NULL) {
        size = getenv("PMI_SIZE");
    }
    if (size == NULL || (wish != NULL && strcmp(wish, "none") == 0) ||
        !cli_parse_number(size, 2, RANKS_MAX, &count)) {
        return 0;
    }
    return (uint32_t)count;
}

static int settle_ranks(cli_options *options)
{
    char line[48];
    if (options->rank_count == 0) {
        options->rank_count = cli_launched_count();
    }
    if (options->rank_count == 0 && !options->cluster_given) {
        options->rank_count = options->node_count == 0 ? 8 : 8 * options->node_count;
    }
    if (options->node_count == 0) {
        return CLI_OK;
    }
    if (options->cluster_given) {
        return cli_usage(speaker, "--nodes and --cluster exclude each other");
    }
    if (options->rank_count % options->node_count != 0) {
        return cli_usage(speaker, "--nodes: %u ranks do not spread evenly over %u nodes",
                         options->rank_count, options->node_count);
    }
    snprintf(line, sizeof line, "%ux%u", options->node_count,
             options->rank_count / options->node_count);
    return set_cluster(options, line);
}

/* A table says how many tokens and how many experts each goes to. */
static int settle_table(cli_options *options)
{
    const cli_table *table = &options->routing.table;
    if (options->routing.kind != CLI_ROUTING_TABLE) {
        return CLI_OK;
    }
    uint64_t ranks = options->rank_count;
    if (!options->topk_given) {
        options->topk = table->column_count;
    }
    if (!options->tokens_given) {
        uint64_t rows = table->row_count;
        bool all = ranks != 0 && rows % ranks == 0;
        uint64_t tokens = all ? rows / ranks : rows;
        if (tokens > TOKENS_MAX) {
            return cli_usage(speaker, "--routing: %" PRIu64 " rows are more than a rank's tokens",
                             tokens);
        }
        options->tokens = (uint32_t)tokens;
    }
    if (table->row_count != options->tokens && table->row_count != options->tokens * ranks) {
        return cli_usage(speaker,
                         "--routing: %" PRIu64 " rows are neither the %u tokens of one rank nor "
                         "those of all ranks",
                         table->row_count, options->tokens);
    }
    return CLI_OK;
}

static int settle_routing(cli_options *options)
{
    const char *reason;
    int status = settle_table(options);
    if (status != CLI_OK) {
        return status;
    }
    if (options->topk > options->experts) {
        return cli_usage(speaker, "--top-k: %u is more than the %u experts", options->topk,
                         options->experts);
    }
    options->routing.expert_count = options->experts;
    options->routing.topk = options->topk;
    if (!cli_routing_prepare(&options->routing, &reason)) {
        return cli_usage(speaker, "--routing: %s", reason);
    }
    return CLI_OK;
}

static int settle_faults(cli_options *options)
{
    uint64_t seed = options->random_seed_given ? options->random_seed : options->seed;
    if (options->random_plans == 0) {
        return CLI_OK;
    }
    if (options->rank_count == 0) {
        return cli_usage(speaker, "--faults-random: needs --ranks");
    }
    return fault_status(
        "faults-random",
        cli_faults_add_random(options->plan, seed, options->rank_count, options->iterations));
}

static void set_defaults(cli_options *options)
{
    memset(options, 0, sizeof *options);
    options->tokens = 32;
    options->hidden = 1024;
    options->topk = 4;
    options->experts = 64;
    options->layout = IST_EP_EXPERT_MAJOR;
    options->dtype = IST_BF16;
    options->seed = 1;
    options->iterations = 1;
    options->routing.text = "uniform";
}

/* Puts the demo's options between the command's name and the others. */
static char **with_demo(int argc, char **argv, int *count)
{
    char **list = calloc((size_t)argc + cli_demo_argument_count + 1, sizeof *list);
    if (list == NULL) {
        return NULL;
    }
    int used = 0;
    list[used++] = argv[0];
    for (uint32_t i = 0; i < cli_demo_argument_count; ++i) {
        /* getopt_long() does not write to the words. */
        memcpy(&list[used++], &cli_demo_arguments[i], sizeof *list);
    }
    for (int i = 1; i < argc; ++i) {
        list[used++] = argv[i];
    }
    *count = used;
    return list;
}

static bool wants_demo(int argc, char **argv)
{
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--demo") == 0) {
            return true;
        }
    }
    return false;
}

int cli_options_read(int argc, char **argv, cli_options *options)
{
    set_defaults(options);
    speaker = argv[0];
    if (ist_fault_plan_open(&options->plan) != IST_OK) {
        return cli_failed(speaker, "out of memory");
    }
    int count = argc;
    char **list = wants_demo(argc, argv) ? with_demo(argc, argv, &count) : argv;
    if (list == NULL) {
        return cli_failed(speaker, "out of memory");
    }
    int status = read_list(count, list, options);
    if (list != argv) {
        free(list);
    }
    if (status != CLI_OK || options->help) {
        return status;
    }
    status = settle_ranks(options);
    if (status == CLI_OK) {
        status = settle_routing(options);
    }
    return status == CLI_OK ? settle_faults(options) : status;
}

void cli_options_free(cli_options *options)
{
    free(options->cluster);
    cli_routing_free(&options->routing);
    ist_fault_plan_close(options->plan);
    options->cluster = NULL;
    options->plan = NULL;
}

uint32_t cli_options_tokens(const cli_options *options, uint32_t rank, uint32_t rank_count)
{
    if (!options->uneven || rank == 0) {
        return options->tokens;
    }
    if (rank == rank_count - 1) {
        return 0;
    }
    return cli_below(cli_fold(~options->seed, rank), options->tokens + 1);
}

/* ------------------------------------------------------------------------------------ back again */

static void line_word(cli_text *text, const char *name, const char *value)
{
    if (value != NULL) {
        cli_text_append(text, " --%s ", name);
        cli_text_append_quoted(text, value);
    }
}

static void line_flag(cli_text *text, const char *name, bool value)
{
    if (value) {
        cli_text_append(text, " --%s", name);
    }
}

static void line_number(cli_text *text, const char *name, uint64_t value)
{
    if (value != 0) {
        cli_text_append(text, " --%s %" PRIu64, name, value);
    }
}

static void line_faults(cli_text *text, const ist_fault_plan *plan)
{
    if (ist_fault_plan_count(plan) == 0) {
        return;
    }
    char *json = cli_faults_text(plan);
    if (json == NULL) {
        text->failed = true;
        return;
    }
    line_word(text, "faults", json);
    free(json);
}

void cli_options_append(const cli_options *options, uint32_t rank_count, const char *backend,
                        cli_text *text)
{
    line_word(text, "backend", backend);
    line_number(text, "ranks", rank_count);
    line_word(text, "cluster", options->cluster);
    line_number(text, "tokens", options->tokens);
    line_number(text, "hidden", options->hidden);
    line_number(text, "top-k", options->topk);
    line_number(text, "experts", options->experts);
    line_word(text, "layout", cli_layout_name(options->layout));
    line_word(text, "dtype", cli_dtype_name(options->dtype));
    line_word(text, "routing", options->routing.text);
    line_number(text, "masked", options->routing.masked_permille);
    line_flag(text, "uneven", options->uneven);
    cli_text_append(text, " --seed %" PRIu64, options->seed);
    line_number(text, "iterations", options->iterations);
    line_number(text, "readmit", options->readmit);
    if (options->deadline_ns != 0) {
        cli_text_append(text, " --deadline %" PRIu64 "ns", options->deadline_ns);
    }
    line_flag(text, "staged", options->staged);
    line_flag(text, "graph", options->graph);
    line_flag(text, "windows", options->windows);
    line_number(text, "blocks", options->blocks);
    line_word(text, "links", options->links == IST_LINKS_MAX_MIN ? "max-min" : NULL);
}

void cli_options_append_line(const cli_options *options, uint32_t rank_count, const char *backend,
                             cli_text *text)
{
    cli_text_append(text, "isthmus ep");
    cli_options_append(options, rank_count, backend, text);
    line_faults(text, options->plan);
}
