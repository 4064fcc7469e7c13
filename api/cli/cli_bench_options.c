/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `isthmus bench ep`: its own, and those of `isthmus ep`, which are kept as words and read
 * again for each case.
 */
#include "cli.h"
#include "cli_bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 65535u
#define RANKS_MAX 65536u

/* The case that is measured when nothing else is asked for: DeepSeek-V3 shapes. */
static const char *const presets[] = {"--tokens", "128",       "--hidden", "7168",       "--top-k",
                                      "8",        "--experts", "256",      "--deadline", "20s"};
#define PRESET_COUNT (sizeof presets / sizeof *presets)

/* X(ID, long name, letter or 0, takes a value). Letters are nccl-tests' where the meaning is. */
#define OPTION_LIST(X)                                                                             \
    X(FIRST_TOKENS, "begin", 'b', 1)                                                               \
    X(LAST_TOKENS, "end", 'e', 1)                                                                  \
    X(FACTOR, "factor", 'f', 1)                                                                    \
    X(STEP, "step", 'i', 1)                                                                        \
    X(ITERATIONS, "iterations", 'n', 1)                                                            \
    X(WARMUP, "warmup", 'w', 1)                                                                    \
    X(CHECK, "check", 'c', 1)                                                                      \
    X(RANKS, "ranks", 'g', 1)                                                                      \
    X(THREADS, "threads", 't', 1)                                                                  \
    X(DTYPE, "dtype", 'd', 1)                                                                      \
    X(AVERAGE, "average", 'a', 1)                                                                  \
    X(REPEAT, "repeat", 'N', 1)                                                                    \
    X(GRAPH_COUNT, "graph-launches", 'G', 1)                                                       \
    X(REGISTER, "register", 'R', 1)                                                                \
    X(TIMEOUT, "timeout", 'T', 1)                                                                  \
    X(OUTPUT, "output", 'J', 1)                                                                    \
    X(OP, "op", 0, 1)                                                                              \
    X(LAYOUT, "layout", 0, 1)                                                                      \
    X(GRAPH, "graph", 0, 0)                                                                        \
    X(CSV, "csv", 0, 0)                                                                            \
    X(JSON, "json", 0, 0)                                                                          \
    X(HELP, "help", 'h', 0)

/* Options that go to `isthmus ep` as they are. */
#define PASSED_LIST(X)                                                                             \
    X(TOKENS, "tokens", 1)                                                                         \
    X(NODES, "nodes", 1)                                                                           \
    X(CLUSTER, "cluster", 1)                                                                       \
    X(BACKEND, "backend", 1)                                                                       \
    X(HIDDEN, "hidden", 1)                                                                         \
    X(TOPK, "top-k", 1)                                                                            \
    X(EXPERTS, "experts", 1)                                                                       \
    X(ROUTING, "routing", 1)                                                                       \
    X(MASKED, "masked", 1)                                                                         \
    X(UNEVEN, "uneven", 0)                                                                         \
    X(SEED, "seed", 1)                                                                             \
    X(BLOCKS, "blocks", 1)                                                                         \
    X(LINKS, "links", 1)                                                                           \
    X(FAULT, "fault", 1)                                                                           \
    X(DEADLINE, "deadline", 1)                                                                     \
    X(STAGED, "staged", 0)                                                                         \
    X(WINDOWS, "windows", 0)

enum {
    OWN_FIRST = 256,
#define X(id, name, letter, takes) OWN_##id,
    OPTION_LIST(X)
#undef X
        PASSED_FIRST,
#define X(id, name, takes) PASSED_##id,
    PASSED_LIST(X)
#undef X
};

static const struct option long_options[] = {
#define X(id, name, letter, takes) {name, takes, NULL, OWN_##id},
    OPTION_LIST(X)
#undef X
#define X(id, name, takes) {name, takes, NULL, PASSED_##id},
        PASSED_LIST(X)
#undef X
            {NULL, 0, NULL, 0}};

static const struct {
    char letter;
    int id;
} letters[] = {
#define X(id, name, letter, takes) {letter, OWN_##id},
    OPTION_LIST(X)
#undef X
};

static const char *speaker = "bench ep";

static int of_letter(int found)
{
    for (size_t i = 0; i < sizeof letters / sizeof *letters; ++i) {
        if (letters[i].letter != 0 && letters[i].letter == found) {
            return letters[i].id;
        }
    }
    return found;
}

static const char *name_of(int id)
{
    const struct option *at = long_options;
    while (at->name != NULL && at->val != id) {
        ++at;
    }
    return at->name == NULL ? "?" : at->name;
}

/* ------------------------------------------------------------------------------------ values */

static int read_u32(int id, const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
    uint64_t wide;
    if (!cli_parse_number(text, low, high, &wide)) {
        return cli_usage(speaker, "--%s: '%s' is not a whole number from %u to %u", name_of(id),
                         text, low, high);
    }
    *value = (uint32_t)wide;
    return CLI_OK;
}

/* Keeps a word for the cases. */
static int pass(bench_options *options, const char *text)
{
    size_t room = (size_t)options->word_count + 2;
    char **moved = realloc(options->words, room * sizeof *moved);
    if (moved == NULL) {
        return cli_failed(speaker, "out of memory");
    }
    options->words = moved;
    options->words[options->word_count] = strdup(text);
    if (options->words[options->word_count] == NULL) {
        return cli_failed(speaker, "out of memory");
    }
    options->words[++options->word_count] = NULL;
    return CLI_OK;
}

static int pass_option(bench_options *options, const char *name, const char *value)
{
    char word[32];
    snprintf(word, sizeof word, "--%s", name);
    int status = pass(options, word);
    return status == CLI_OK && value != NULL ? pass(options, value) : status;
}

/* Runs `each` for the parts of a list with commas between. */
static int read_parts(bench_options *options, const char *text,
                      int (*each)(bench_options *options, const char *part))
{
    char part[32];
    int status = CLI_OK;
    while (status == CLI_OK) {
        size_t length = strcspn(text, ",");
        snprintf(part, sizeof part, "%.*s", (int)(length < 31 ? length : 31), text);
        status = each(options, part);
        if (text[length] == '\0') {
            break;
        }
        text += length + 1;
    }
    return status;
}

static int add_op(bench_options *options, const char *part)
{
    for (int op = 0; op < BENCH_OP_COUNT; ++op) {
        if (strcmp(bench_op_name((bench_op)op), part) == 0) {
            options->timed[op] = true;
            return CLI_OK;
        }
    }
    return cli_usage(speaker, "--op: '%s' is not one of route, dispatch, combine, pair", part);
}

static int add_layout(bench_options *options, const char *part)
{
    ist_ep_layout layout = part[0] == 'e'   ? IST_EP_EXPERT_MAJOR
                           : part[0] == 'r' ? IST_EP_RANK_MAJOR
                                            : IST_EP_LAYOUT_UNSET;
    bool known = layout != IST_EP_LAYOUT_UNSET &&
                 (strcmp(part + 1, "m") == 0 || strcmp(part, cli_layout_name(layout)) == 0);
    if (!known) {
        return cli_usage(speaker, "--layout: '%s' is not one of expert-major, rank-major", part);
    }
    if (options->layout_count < 2) {
        options->layouts[options->layout_count++] = layout;
    }
    return CLI_OK;
}

static int read_register(bench_options *options, const char *text)
{
    uint32_t value = 0;
    int status = read_u32(OWN_REGISTER, text, 0, 2, &value);
    return status == CLI_OK && value != 0 ? pass_option(options, "windows", NULL) : status;
}

static int read_timeout(bench_options *options, const char *text)
{
    char seconds[16];
    uint32_t value = 0;
    int status = read_u32(OWN_TIMEOUT, text, 1, 100000, &value);
    snprintf(seconds, sizeof seconds, "%us", value);
    return status == CLI_OK ? pass_option(options, "deadline", seconds) : status;
}

static int read_counts(bench_options *o, int id, const char *text)
{
    uint32_t threads = 1;
    int status = CLI_OK;
    switch (id) {
    case OWN_FIRST_TOKENS: return read_u32(id, text, 1, TOKENS_MAX, &o->tokens_first);
    case OWN_LAST_TOKENS: return read_u32(id, text, 1, TOKENS_MAX, &o->tokens_last);
    case OWN_FACTOR: return read_u32(id, text, 1, 1000, &o->tokens_factor);
    case OWN_STEP: return read_u32(id, text, 1, TOKENS_MAX, &o->tokens_step);
    case OWN_ITERATIONS: return read_u32(id, text, 1, BENCH_ITERATIONS_MAX, &o->iterations);
    case OWN_WARMUP: return read_u32(id, text, 0, BENCH_ITERATIONS_MAX, &o->warmup);
    case OWN_REPEAT: return read_u32(id, text, 1, BENCH_CYCLES_MAX, &o->cycles);
    case OWN_RANKS: return read_u32(id, text, 1, RANKS_MAX, &o->rank_count);
    case OWN_THREADS:
        status = read_u32(id, text, 1, 1024, &threads);
        o->rank_count = (o->rank_count == 0 ? 1 : o->rank_count) * threads;
        return status;
    case OWN_GRAPH_COUNT:
        o->graph = true;
        return read_u32(id, text, 1, BENCH_ITERATIONS_MAX, &o->iterations);
    default: break;
    }
    if (strcmp(text, "0") == 0) {
        return cli_usage(speaker, "--check: times are shown of what was checked, so at least 1");
    }
    return read_u32(OWN_CHECK, text, 1, 1000, &o->checks);
}

static int read_own(bench_options *options, int id, const char *text)
{
    uint32_t value = 0;
    int status = CLI_OK;
    switch (id) {
    case OWN_DTYPE: return pass_option(options, "dtype", text);
    case OWN_AVERAGE:
        status = read_u32(id, text, 0, 3, &value);
        options->average = (bench_average)value;
        return status;
    case OWN_REGISTER: return read_register(options, text);
    case OWN_TIMEOUT: return read_timeout(options, text);
    case OWN_OUTPUT: options->output = text; return CLI_OK;
    case OWN_OP: return read_parts(options, text, add_op);
    case OWN_LAYOUT: return read_parts(options, text, add_layout);
    case OWN_GRAPH: options->graph = true; return CLI_OK;
    case OWN_CSV: options->csv = true; return CLI_OK;
    case OWN_JSON: options->json = true; return CLI_OK;
    case OWN_HELP: options->help = true; return CLI_OK;
    default: return read_counts(options, id, text);
    }
}

/* ------------------------------------------------------------------------------------ together */

static int read_list(int argc, char **argv, bench_options *options)
{
    int found;
    optind = 0; /* start over: this process may have read options before */
    while ((found = getopt_long(argc, argv, "+:b:e:f:i:n:w:c:g:t:d:a:N:G:R:T:J:h", long_options,
                                NULL)) != -1) {
        const char *text = optind > 0 && optind <= argc ? argv[optind - 1] : "";
        int status = CLI_OK;
        found = of_letter(found);
        if (found < OWN_FIRST) {
            return found == ':' ? cli_usage(speaker, "%s needs a value", text)
                                : cli_usage(speaker, "unknown option '%s'", text);
        }
        status = found > PASSED_FIRST ? pass_option(options, name_of(found), optarg)
                                      : read_own(options, found, optarg);
        if (status != CLI_OK) {
            return status;
        }
        options->placed = options->placed || found == PASSED_CLUSTER || found == PASSED_NODES;
        if (found == PASSED_TOKENS) {
            status = read_u32(PASSED_TOKENS, optarg, 1, TOKENS_MAX, &options->tokens_first);
        }
        if (status != CLI_OK) {
            return status;
        }
    }
    return optind < argc ? cli_usage(speaker, "unexpected argument '%s'", argv[optind]) : CLI_OK;
}

static int settle(bench_options *options)
{
    bool any = false;
    for (int op = 0; op < BENCH_OP_COUNT; ++op) {
        any = any || options->timed[op];
    }
    for (int op = BENCH_DISPATCH; !any && op < BENCH_OP_COUNT; ++op) {
        options->timed[op] = true;
    }
    if (options->layout_count == 0) {
        options->layouts[options->layout_count++] = IST_EP_EXPERT_MAJOR;
    }
    if (options->tokens_first == 0) {
        options->tokens_first = options->tokens_last == 0 ? 128 : options->tokens_last;
    }
    if (options->tokens_last == 0) {
        options->tokens_last = options->tokens_first;
    }
    if (options->tokens_last < options->tokens_first) {
        return cli_usage(speaker, "--end: %u is less than --begin %u", options->tokens_last,
                         options->tokens_first);
    }
    if (options->csv && options->json) {
        return cli_usage(speaker, "--csv and --json exclude each other");
    }
    return CLI_OK;
}

int bench_options_read(int argc, char **argv, bench_options *options)
{
    memset(options, 0, sizeof *options);
    options->tokens_factor = 2;
    options->iterations = 20;
    options->warmup = 5;
    options->checks = 1;
    options->cycles = 1;
    options->average = BENCH_MEAN;
    speaker = argv[0];
    int status = pass(options, speaker);
    for (size_t i = 0; status == CLI_OK && i < PRESET_COUNT; ++i) {
        status = pass(options, presets[i]);
    }
    if (status == CLI_OK) {
        status = read_list(argc, argv, options);
    }
    return status == CLI_OK && !options->help ? settle(options) : status;
}

void bench_options_free(bench_options *options)
{
    for (int i = 0; i < options->word_count; ++i) {
        free(options->words[i]);
    }
    free(options->words);
    options->words = NULL;
    options->word_count = 0;
}

/* 0: as the launcher or the cluster says. */
static uint32_t rank_count(const bench_options *options)
{
    bool elsewhere = options->placed || cli_launched_count() != 0;
    return options->rank_count != 0 || elsewhere ? options->rank_count : 2;
}

int bench_options_case(const bench_options *options, ist_ep_layout layout, uint32_t tokens,
                       cli_options *made)
{
    char count[16];
    char ranks[16];
    char name[16];
    char *extra[] = {"--tokens", count, "--layout", name, "--ranks", ranks};
    size_t extra_count = rank_count(options) != 0 ? 6 : 4;
    char **list = calloc((size_t)options->word_count + 8, sizeof *list);
    int used = 0;
    if (list == NULL) {
        return cli_failed(speaker, "out of memory");
    }
    snprintf(count, sizeof count, "%u", tokens);
    snprintf(ranks, sizeof ranks, "%u", rank_count(options));
    snprintf(name, sizeof name, "%s", cli_layout_name(layout));
    for (int i = 0; i < options->word_count; ++i) {
        list[used++] = options->words[i];
    }
    for (size_t i = 0; i < extra_count; ++i) {
        list[used++] = extra[i];
    }
    int status = cli_options_read(used, list, made);
    free(list);
    return status;
}
