/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of `isthmus explore`. */
#include "cli.h"
#include "cli_explore.h"
#include "cli_hash.h"

#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char speaker[] = "explore";

#define NUMBERS(X)                                                                                 \
    X(RANKS, "ranks", ranks, 2, EXPLORE_RANKS_MAX)                                                 \
    X(TOKENS, "tokens", tokens, 1, 64)                                                             \
    X(HIDDEN, "hidden", hidden, 4, 8192)                                                           \
    X(EXPERTS, "experts", experts, 1, 64)                                                          \
    X(TOPK, "top-k", topk, 1, 8)                                                                   \
    X(ROUNDS, "rounds", steps, 1, 16)

enum {
    OPTION_FIRST = 256,
#define X(id, name, field, low, high) OPTION_##id,
    NUMBERS(X)
#undef X
        OPTION_FAULTS,
    OPTION_SCHEDULER,
    OPTION_POINTS,
    OPTION_CHOICES,
    OPTION_SEED,
    OPTION_SCHEDULES,
    OPTION_TIME,
    OPTION_PATIENCE,
    OPTION_JOBS,
    OPTION_STOP,
    OPTION_KEEP,
    OPTION_RESUME,
    OPTION_REPLAY,
    OPTION_MEET,
    OPTION_SHRINK,
    OPTION_OUT,
    OPTION_JSON,
    OPTION_PROGRESS,
    OPTION_LIST
};

static const struct option long_options[] = {
#define X(id, name, field, low, high) {name, required_argument, NULL, OPTION_##id},
    NUMBERS(X)
#undef X
        {"faults", required_argument, NULL, OPTION_FAULTS},
    {"scheduler", required_argument, NULL, OPTION_SCHEDULER},
    {"steps", required_argument, NULL, OPTION_POINTS},
    {"choices", required_argument, NULL, OPTION_CHOICES},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"schedules", required_argument, NULL, OPTION_SCHEDULES},
    {"time", required_argument, NULL, OPTION_TIME},
    {"patience", required_argument, NULL, OPTION_PATIENCE},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"stop-on-first", no_argument, NULL, OPTION_STOP},
    {"keep-going", no_argument, NULL, OPTION_KEEP},
    {"resume", required_argument, NULL, OPTION_RESUME},
    {"replay", required_argument, NULL, OPTION_REPLAY},
    {"meet", required_argument, NULL, OPTION_MEET},
    {"shrink", required_argument, NULL, OPTION_SHRINK},
    {"out", required_argument, NULL, OPTION_OUT},
    {"json", no_argument, NULL, OPTION_JSON},
    {"progress", no_argument, NULL, OPTION_PROGRESS},
    {"list", no_argument, NULL, OPTION_LIST},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* ------------------------------------------------------------------------------------ values */

static int read_faults(cli_explore *options, const char *text)
{
    options->setting.faults = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        uint32_t kind = 0;
        while (kind < EXPLORE_FAULT_COUNT &&
               (strlen(explore_fault_name((explore_fault)kind)) != length ||
                strncmp(explore_fault_name((explore_fault)kind), text, length) != 0)) {
            ++kind;
        }
        if (length == 3 && strncmp(text, "all", 3) == 0) {
            options->setting.faults |= (UINT32_C(1) << EXPLORE_FAULT_COUNT) - 1u;
        } else if (kind < EXPLORE_FAULT_COUNT) {
            options->setting.faults |= UINT32_C(1) << kind;
        } else {
            return cli_usage(speaker, "--faults: '%.*s' is no kind of fault", (int)length, text);
        }
        text += length + (text[length] == ',' ? 1u : 0);
    }
    return options->setting.faults != 0 ? CLI_OK : cli_usage(speaker, "--faults: no kind is given");
}

static int read_scheduler(cli_explore *options, const char *text)
{
    ist_explore_desc desc = {.size = sizeof desc};
    options->setting.turns = strcmp(text, "turns") == 0;
    options->exhaustive = strcmp(text, "exhaustive") == 0;
    options->of_a_file = strcmp(text, "replay") == 0;
    if (options->setting.turns || options->exhaustive || options->of_a_file) {
        return CLI_OK;
    }
    if (ist_scheduler_parse(text, &desc) != IST_OK || desc.scheduler == IST_SCHEDULER_FAIR) {
        return cli_usage(speaker,
                         "--scheduler: '%s' is none of random, pct:DEPTH, turns, exhaustive", text);
    }
    options->setting.scheduler = desc.scheduler;
    options->setting.depth = desc.depth;
    return CLI_OK;
}

static int read_number(const char *name, const char *text, uint64_t low, uint64_t high,
                       uint64_t *value)
{
    if (!cli_parse_number(text, low, high, value)) {
        return cli_usage(speaker, "--%s: '%s' is no number from %" PRIu64 " to %" PRIu64, name,
                         text, low, high);
    }
    return CLI_OK;
}

/* One of the scenario's numbers. */
static int read_shape(cli_explore *options, int id, const char *text)
{
    uint64_t value = 0;
    int status = CLI_OK;
    switch (id) {
#define X(id_, name, field, low, high)                                                             \
    case OPTION_##id_:                                                                             \
        status = read_number(name, text, low, high, &value);                                       \
        options->setting.numbers.field = (uint32_t)value;                                          \
        break;
        NUMBERS(X)
#undef X
    default: status = CLI_FAILED;
    }
    return status;
}

static int read_time(const char *name, const char *text, uint64_t *ns)
{
    uint64_t minutes = 0;
    size_t length = strlen(text);
    char digits[24];
    if (length > 1 && length < sizeof digits && text[length - 1] == 'm') {
        memcpy(digits, text, length - 1);
        digits[length - 1] = '\0';
        if (cli_parse_number(digits, 1, 1000000, &minutes)) {
            *ns = minutes * UINT64_C(60000000000);
            return CLI_OK;
        }
    }
    if (!cli_parse_duration(text, ns) || *ns == 0) {
        return cli_usage(speaker, "--%s: '%s' is no duration such as 90s or 10m", name, text);
    }
    return CLI_OK;
}

static int read_option(cli_explore *options, int id, const char *text)
{
    uint64_t value = 0;
    int status = CLI_OK;
    switch (id) {
    case OPTION_FAULTS: return read_faults(options, text);
    case OPTION_SCHEDULER: return read_scheduler(options, text);
    case OPTION_POINTS:
        status = read_number("steps", text, 1, 10000000, &value);
        options->setting.choice_points = (uint32_t)value;
        return status;
    case OPTION_CHOICES: options->of_a_file = true; break;
    case OPTION_SEED: return read_number("seed", text, 0, UINT64_MAX / 2u, &options->seed);
    case OPTION_SCHEDULES:
        return read_number("schedules", text, 1, UINT64_C(1) << 40, &options->schedules);
    case OPTION_TIME: return read_time("time", text, &options->time_ns);
    case OPTION_PATIENCE: return read_time("patience", text, &options->patience_ns);
    case OPTION_JOBS:
        status = read_number("jobs", text, 1, 256, &value);
        options->jobs = (uint32_t)value;
        return status;
    case OPTION_SHRINK: return read_number("shrink", text, 0, 1000000, &options->shrink_max);
    case OPTION_STOP: options->keep_going = false; break;
    case OPTION_KEEP: options->keep_going = true; break;
    case OPTION_RESUME: options->resume = text; break;
    case OPTION_REPLAY: options->replay = text; break;
    case OPTION_MEET: options->meet = text; break;
    case OPTION_OUT: options->out = text; break;
    case OPTION_JSON: options->json = true; break;
    case OPTION_PROGRESS: options->progress = true; break;
    case OPTION_LIST: options->list = true; break;
    case 'h': options->help = true; break;
    default: return read_shape(options, id, text);
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ together */

static int choose_scenarios(cli_explore *options)
{
    const char *pattern = strcmp(options->pattern, "all") == 0 ? "*" : options->pattern;
    for (uint32_t i = 0; explore_scenario_at(i) != NULL; ++i) {
        if (fnmatch(pattern, explore_scenario_at(i)->name, 0) == 0 &&
            options->scenario_count < CLI_EXPLORE_SCENARIOS_MAX) {
            options->scenarios[options->scenario_count++] = explore_scenario_at(i);
        }
    }
    return options->scenario_count > 0
               ? CLI_OK
               : cli_usage(speaker, "no scenario is called '%s': see --list", options->pattern);
}

static int settle(int argc, char **argv, cli_explore *options)
{
    if (options->help || options->list || options->replay != NULL) {
        return optind < argc ? cli_usage(speaker, "unexpected argument '%s'", argv[optind])
                             : CLI_OK;
    }
    if (options->of_a_file) {
        return cli_usage(speaker, "--scheduler replay and --choices go with --replay FILE");
    }
    if (optind >= argc) {
        return cli_usage(speaker, "a scenario is missing");
    }
    options->pattern = argv[optind];
    if (optind + 1 < argc) {
        return cli_usage(speaker, "unexpected argument '%s'", argv[optind + 1]);
    }
    if (options->schedules == 0) {
        options->schedules = options->time_ns != 0 ? UINT64_C(1) << 40 : 1000;
    }
    return choose_scenarios(options);
}

static int bad_option(int argc, char **argv, int found)
{
    const char *text = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    return found == ':' ? cli_usage(speaker, "%s needs a value", text)
                        : cli_usage(speaker, "unknown option '%s'", text);
}

int cli_explore_read(int argc, char **argv, cli_explore *options)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int found;
    *options = (cli_explore){.out = ".",
                             .jobs = cores > 0 && cores <= 256 ? (uint32_t)cores : 1u,
                             .patience_ns = UINT64_C(120000000000),
                             .shrink_max = 4000,
                             .reports_max = 8,
                             .progress = isatty(2) == 1};
    options->setting.turns = true;
    options->setting.faults = (UINT32_C(1) << EXPLORE_FAULT_COUNT) - 1u;
    optind = 0;
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        if (found == '?' || found == ':') {
            return bad_option(argc, argv, found);
        }
        int status = read_option(options, found, optarg);
        if (status != CLI_OK) {
            return status;
        }
    }
    return settle(argc, argv, options);
}

/* Another build may know other scenarios: then places mean something else. */
static uint64_t key_of_scenarios(const cli_explore *options)
{
    uint64_t key = options->scenario_count;
    for (uint32_t i = 0; i < options->scenario_count; ++i) {
        for (const char *c = options->scenarios[i]->name; *c != '\0'; ++c) {
            key = cli_fold(key, (uint64_t)(unsigned char)*c);
        }
        key = cli_fold(key, i);
    }
    return key;
}

void cli_explore_identity(const cli_explore *options, cli_text *text)
{
    const explore_setting *setting = &options->setting;
    const explore_numbers *numbers = &setting->numbers;
    cli_text_append(text, "%s seed %" PRIu64 " schedules %" PRIu64 " faults %x who %d %d %u",
                    options->pattern, options->seed, options->schedules, setting->faults,
                    (int)setting->turns, (int)setting->scheduler, setting->depth);
    cli_text_append(text, " steps %u of %016" PRIx64, setting->choice_points,
                    key_of_scenarios(options));
    cli_text_append(text, " numbers %u %u %u %u %u %u stop %d", numbers->ranks, numbers->tokens,
                    numbers->hidden, numbers->experts, numbers->topk, numbers->steps,
                    (int)!options->keep_going);
}

static void line_faults(uint32_t faults, cli_text *line)
{
    const char *between = " --faults ";
    for (uint32_t kind = 0; kind < EXPLORE_FAULT_COUNT; ++kind) {
        if ((faults >> kind & 1u) != 0) {
            cli_text_append(line, "%s%s", between, explore_fault_name((explore_fault)kind));
            between = ",";
        }
    }
}

void cli_explore_line(const cli_explore *options, const explore_scenario *scenario, cli_text *line)
{
    const explore_setting *setting = &options->setting;
    cli_text_append(line, "isthmus explore %s --schedules 1", scenario->name);
    if (setting->faults != (UINT32_C(1) << EXPLORE_FAULT_COUNT) - 1u) {
        line_faults(setting->faults, line);
    }
#define X(id, name, field, low, high)                                                              \
    if (setting->numbers.field != 0) {                                                             \
        cli_text_append(line, " --" name " %u", setting->numbers.field);                           \
    }
    NUMBERS(X)
#undef X
}

/* ------------------------------------------------------------------------------------ places */

uint32_t cli_explore_block_count(const cli_explore *options, uint64_t place)
{
    uint64_t first =
        place / CLI_EXPLORE_BLOCK / options->scenario_count * (uint64_t)CLI_EXPLORE_BLOCK;
    if (first >= options->schedules) {
        return 0;
    }
    uint64_t left = options->schedules - first;
    return left < CLI_EXPLORE_BLOCK ? (uint32_t)left : CLI_EXPLORE_BLOCK;
}

const explore_scenario *cli_explore_scenario_of(const cli_explore *options, uint64_t place)
{
    return options->scenarios[place / CLI_EXPLORE_BLOCK % options->scenario_count];
}

uint64_t cli_explore_seed_of(const cli_explore *options, uint64_t place)
{
    uint64_t block = place / CLI_EXPLORE_BLOCK / options->scenario_count;
    return options->seed + block * CLI_EXPLORE_BLOCK + place % CLI_EXPLORE_BLOCK;
}

uint64_t cli_explore_behind(const cli_explore *options, uint64_t place, uint32_t count)
{
    uint64_t offset = place % CLI_EXPLORE_BLOCK + count;
    return offset < cli_explore_block_count(options, place)
               ? place + count
               : (place / CLI_EXPLORE_BLOCK + 1u) * CLI_EXPLORE_BLOCK;
}
