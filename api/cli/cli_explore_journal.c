/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a run: a first line that says what the run was asked for, then one result a line, in
 * the order in which they count. It is only ever appended to, so what an interruption can tear is
 * its last line, and that is cut off.
 */
#include "cli.h"
#include "cli_explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char speaker[] = "explore";

static json_t *first_line(const cli_explore *options)
{
    cli_text text = {.bytes = NULL};
    cli_explore_identity(options, &text);
    json_t *line =
        text.failed ? NULL : json_pack("{s:i, s:s}", "isthmus_explore", 1, "run", text.bytes);
    cli_text_free(&text);
    return line;
}

bool cli_explore_journal_add(FILE *journal, const json_t *result)
{
    char *text = json_dumps(result, JSON_COMPACT);
    bool good = text != NULL && fprintf(journal, "%s\n", text) > 0 && fflush(journal) == 0;
    free(text);
    return good;
}

/* Reads whole lines; *end: behind the last that counts. False: it belongs to another run. */
static bool take_lines(const cli_explore *options, cli_explore_total *total, FILE *journal,
                       long *end)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    bool first = true, ours = true;
    json_t *wanted = first_line(options);
    *end = 0;
    while ((bytes = getline(&line, &room, journal)) > 0 && line[bytes - 1] == '\n') {
        json_t *object = json_loads(line, 0, NULL);
        bool good = first ? wanted != NULL && json_equal(object, wanted)
                          : cli_explore_take(options, total, object);
        json_decref(object);
        ours = !first || good;
        if (!good) {
            break;
        }
        first = false;
        *end = ftell(journal);
    }
    free(line);
    json_decref(wanted);
    return ours;
}

FILE *cli_explore_journal_open(const cli_explore *options, cli_explore_total *total, int *status)
{
    long end = 0;
    *status = CLI_OK;
    if (options->resume == NULL) {
        return NULL;
    }
    FILE *journal = fopen(options->resume, "a+");
    *status = CLI_FAILED;
    if (journal == NULL || fseek(journal, 0, SEEK_SET) != 0) {
        (void)cli_failed(speaker, "%s cannot be opened for reading and writing", options->resume);
    } else if (!take_lines(options, total, journal, &end)) {
        *status = cli_usage(speaker, "%s belongs to a run with other options", options->resume);
    } else if (ftruncate(fileno(journal), end) != 0 || fseek(journal, 0, SEEK_END) != 0) {
        (void)cli_failed(speaker, "%s cannot be written", options->resume);
    } else {
        json_t *line = end == 0 ? first_line(options) : NULL;
        *status = end != 0 || (line != NULL && cli_explore_journal_add(journal, line)) ? CLI_OK
                                                                                       : CLI_FAILED;
        json_decref(line);
        total->resumed = total->all.schedules;
    }
    if (*status != CLI_OK && journal != NULL) {
        (void)fclose(journal);
        journal = NULL;
    }
    return journal;
}
