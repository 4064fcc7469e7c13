/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus replay`, and the file that `isthmus ep --record` writes for it: a JSON object
 * with the run's arguments, its faults and its digest.
 */
#include "cli.h"
#include "cli_ep.h"
#include "cli_faults.h"

#include <errno.h>
#include <getopt.h>
#include <isthmus/version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "replay"

static const char help[] =
    "usage: isthmus replay [OPTION...] FILE|LINE\n"
    "\n"
    "Runs a run of `isthmus ep` again and compares the digest. FILE was written by\n"
    "`isthmus ep --record FILE`; LINE is the line that `isthmus ep` prints, in one argument.\n"
    "\n"
    "options:\n"
    "  --json         one JSON object\n"
    "  --trace FILE   timeline for Perfetto\n"
    "  --log FILE     event log, binary\n"
    "  -h, --help     this text\n"
    "\n"
    "exit status: 0 the same digest and all right, 1 another digest or a failed run, 2 bad usage\n"
    "\n"
    "examples:\n"
    "  isthmus ep --backend sim --seed 7 --faults random --record run.json\n"
    "  isthmus replay run.json\n"
    "  isthmus replay 'isthmus ep --backend sim --ranks 8 --expect 0123456789abcdef'\n";

/* ------------------------------------------------------------------------------------ writing */

static json_t *argument_list(const char *line)
{
    int count;
    char **words;
    if (!cli_split(line, &count, &words)) {
        return NULL;
    }
    json_t *list = json_array();
    for (int i = 0; list != NULL && i < count; ++i) {
        if (json_array_append_new(list, json_string(words[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    free(words);
    return list;
}

static json_t *fault_list(const ist_fault_plan *plan)
{
    char *text = cli_faults_text(plan);
    json_t *object = text == NULL ? NULL : json_loads(text, 0, NULL);
    json_t *list = json_incref(json_object_get(object, "faults"));
    json_decref(object);
    free(text);
    return list;
}

int cli_record_write(const char *path, const cli_options *options, uint32_t rank_count,
                     const char *backend, uint64_t digest)
{
    char hex[17];
    cli_text line = {0};
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)digest);
    cli_options_append(options, rank_count, backend, &line);
    json_t *record = line.failed
                         ? NULL
                         : json_pack("{s:s, s:s, s:o, s:o, s:s}", "isthmus", ist_version_string(),
                                     "command", "ep", "arguments", argument_list(line.bytes),
                                     "faults", fault_list(options->plan), "digest", hex);
    cli_text_free(&line);
    if (record == NULL) {
        return cli_failed("ep", "--record: out of memory");
    }
    int written = json_dump_file(record, path, JSON_INDENT(2));
    json_decref(record);
    return written == 0
               ? CLI_OK
               : cli_failed("ep", "--record: cannot write '%s': %s", path, strerror(errno));
}

/* ------------------------------------------------------------------------------------ reading */

/* Arguments for cli_options_read(), collected from a record or a line and from the own options. */
typedef struct words {
    char **list;
    int count;
    int capacity;
} words;

static bool add_word(words *list, const char *word)
{
    if (list->count + 1 >= list->capacity) {
        int capacity = 2 * list->capacity + 32;
        char **grown = realloc(list->list, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        list->list = grown;
        list->capacity = capacity;
    }
    list->list[list->count] = strdup(word);
    if (list->list[list->count] == NULL) {
        return false;
    }
    list->list[++list->count] = NULL;
    return true;
}

static void free_words(words *list)
{
    for (int i = 0; i < list->count; ++i) {
        free(list->list[i]);
    }
    free(list->list);
}

static bool add_pair(words *list, const char *name, const char *value)
{
    return add_word(list, name) && add_word(list, value);
}

static int add_record(words *list, const json_t *record)
{
    json_t *arguments = json_object_get(record, "arguments");
    json_t *faults = json_object_get(record, "faults");
    const char *digest = json_string_value(json_object_get(record, "digest"));
    bool good = true;
    if (!json_is_array(arguments) || !json_is_array(faults) || digest == NULL) {
        return cli_usage(COMMAND, "a record has \"arguments\", \"faults\" and \"digest\"");
    }
    for (size_t i = 0; good && i < json_array_size(arguments); ++i) {
        const char *word = json_string_value(json_array_get(arguments, i));
        if (word == NULL) {
            return cli_usage(COMMAND, "arguments[%zu] is not a text", i);
        }
        good = add_word(list, word);
    }
    if (json_array_size(faults) != 0) {
        json_t *plan = json_pack("{s:O}", "faults", faults);
        char *text = plan == NULL ? NULL : json_dumps(plan, JSON_COMPACT);
        good = good && text != NULL && add_pair(list, "--faults", text);
        json_decref(plan);
        free(text);
    }
    good = good && add_pair(list, "--expect", digest);
    return good ? CLI_OK : cli_failed(COMMAND, "out of memory");
}

static int add_file(words *list, const char *path)
{
    json_error_t error;
    json_t *record = json_load_file(path, 0, &error);
    if (record == NULL) {
        return cli_usage(COMMAND, "%s:%d: %s", path, error.line, error.text);
    }
    int status = add_record(list, record);
    json_decref(record);
    return status;
}

/* A line may begin with the command's name, with or without a path, and with "ep". */
static int add_line(words *list, const char *line)
{
    int count;
    char **split;
    int status = CLI_OK;
    if (!cli_split(line, &count, &split)) {
        return cli_usage(COMMAND, "the line has an open quote");
    }
    int first = 0;
    if (count > 0 && split[0][0] != '-') {
        const char *slash = strrchr(split[0], '/');
        const char *name = slash == NULL ? split[0] : slash + 1;
        first = strcmp(name, "isthmus") == 0;
    }
    if (first < count && strcmp(split[first], "ep") == 0) {
        ++first;
    }
    for (int i = first; i < count && status == CLI_OK; ++i) {
        status = add_word(list, split[i]) ? CLI_OK : cli_failed(COMMAND, "out of memory");
    }
    free(split);
    return status;
}

static int add_source(words *list, const char *source)
{
    if (access(source, F_OK) == 0) {
        return add_file(list, source);
    }
    if (strchr(source, ' ') == NULL) {
        return cli_usage(COMMAND, "'%s' is neither a file nor a line that `isthmus ep` printed",
                         source);
    }
    return add_line(list, source);
}

/* ------------------------------------------------------------------------------------ the command */

static const struct option long_options[] = {{"json", 0, NULL, 'j'},
                                             {"trace", 1, NULL, 't'},
                                             {"log", 1, NULL, 'l'},
                                             {"help", 0, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

/* Reads the own options into `own`, as options of ep. */
static int read_own(int argc, char **argv, words *own, bool *wants_help)
{
    int found;
    bool good = true;
    optind = 0;
    while (good && (found = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        switch (found) {
        case 'j': good = add_word(own, "--json"); break;
        case 't': good = add_pair(own, "--trace", optarg); break;
        case 'l': good = add_pair(own, "--log", optarg); break;
        case 'h': *wants_help = true; break;
        case ':': return cli_usage(COMMAND, "%s needs a value", argv[optind - 1]);
        default: return cli_usage(COMMAND, "unknown option '%s'", argv[optind - 1]);
        }
    }
    return good ? CLI_OK : cli_failed(COMMAND, "out of memory");
}

static int run(words *list, const words *own)
{
    cli_options options;
    for (int i = 0; i < own->count; ++i) {
        if (!add_word(list, own->list[i])) {
            return cli_failed(COMMAND, "out of memory");
        }
    }
    int status = cli_options_read(list->count, list->list, &options);
    if (status == CLI_OK) {
        status = options.help ? cli_put(COMMAND, cli_ep_help) : cli_ep_run(COMMAND, &options);
    }
    cli_options_free(&options);
    return status;
}

int cli_replay_command(int argc, char **argv)
{
    words list = {0};
    words own = {0};
    bool wants_help = false;
    int status = read_own(argc, argv, &own, &wants_help);
    if (status == CLI_OK && wants_help) {
        status = cli_put(COMMAND, help);
    } else if (status == CLI_OK && argc - optind != 1) {
        status = cli_usage(COMMAND, "one FILE or LINE is needed, not %d", argc - optind);
    } else if (status == CLI_OK) {
        const char *source = argv[optind];
        status = add_word(&list, COMMAND) ? add_source(&list, source)
                                          : cli_failed(COMMAND, "out of memory");
        status = status == CLI_OK ? run(&list, &own) : status;
    }
    free_words(&list);
    free_words(&own);
    return status;
}
