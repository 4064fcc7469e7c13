/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON answer of `isthmus ep` and `isthmus replay`. Keys are added, never renamed.
 */
#include "cli.h"
#include "cli_report.h"

#include <isthmus/version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *lost_ranks(const cli_outcome *outcome)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array != NULL && i < outcome->lost_count; ++i) {
        if (json_array_append_new(array, json_integer(outcome->lost_ranks[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *answer(const char *command, const cli_options *options, const cli_outcome *o)
{
    char digest[17];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)o->digest);
    json_t *answer = json_pack(
        "{s:s, s:s, s:b, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:s}", "isthmus",
        ist_version_string(), "command", command, "ok", o->ok, "seed", number(options->seed),
        "digest", digest, "ranks", number(o->rank_count), "wrong_rows", number(o->wrong_rows),
        "unmarked_wrong_rows", number(o->unmarked_wrong_rows), "lost_ranks", lost_ranks(o),
        "mask_generation", number(o->generation), "virtual_ns", number(o->virtual_ns), "wall_s",
        o->wall_s, "rss_bytes", number(o->rss_bytes), "replay", o->replay);
    if (answer == NULL) {
        return NULL;
    }
    /* Beyond the fixed keys. */
    json_t *more = json_pack("{s:s, s:o, s:o, s:o}", "backend", o->backend, "iterations",
                             number(options->iterations), "checked_rows", number(o->rows), "events",
                             number(o->event_count));
    if (more == NULL || json_object_update(answer, more) != 0 ||
        (!o->ok && json_object_set_new(answer, "error", json_string(o->message)) != 0)) {
        json_decref(answer);
        answer = NULL;
    }
    json_decref(more);
    return answer;
}

int cli_outcome_print_json(const char *command, const cli_options *options,
                           const cli_outcome *outcome)
{
    json_t *object = answer(command, options, outcome);
    char *text =
        object == NULL ? NULL : json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    int status = CLI_OK;
    json_decref(object);
    if (text == NULL) {
        return cli_failed(command, "out of memory");
    }
    status = printf("%s\n", text) < 0 ? CLI_FAILED : cli_put(command, "");
    free(text);
    return status;
}
