/* SPDX-License-Identifier: Apache-2.0 */
/* From a failing seed to what a person can work with: a shrunk case, a replay file, a page; and a replay
 * file run again.
 */
#include "cli.h"
#include "cli_explore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES_MAX (UINT64_C(64) << 20)
#define CHOICES_MAX (1u << 20)

static const char speaker[] = "explore";

/* ------------------------------------------------------------------------------------ files */

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    good = file != NULL && fclose(file) == 0 && good;
    if (!good) {
        (void)cli_failed(speaker, "%s cannot be written", path);
    }
    return good;
}

static bool write_case(const ist_case *which, const char *path)
{
    size_t needed = 0;
    (void)ist_case_print(which, NULL, 0, &needed);
    char *text = calloc(needed + 1u, 1);
    bool good = text != NULL && ist_case_print(which, text, needed, NULL) == IST_OK &&
                write_file(path, text);
    free(text);
    return good;
}

static ist_case *read_case(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *reason = "";
    ist_case *which = NULL;
    if (!cli_read_file(path, FILE_BYTES_MAX, &text, &bytes, &reason)) {
        (void)cli_failed(speaker, "%s: %s", path, reason);
        return NULL;
    }
    if (ist_case_parse(text, &which) != IST_OK) {
        (void)cli_failed(speaker, "%s: %s", path, cli_error_text(IST_ERR_PARSE));
    }
    free(text);
    return which;
}

/* ------------------------------------------------------------------------------------ once more */

/* Runs the case; its choices become its own, so that it can be replayed. */
static bool pin_down(ist_case *which, explore_view *view, ist_explore_report *report)
{
    ist_choice *choices = calloc(CHOICES_MAX, sizeof *choices);
    *report = (ist_explore_report){
        .size = sizeof *report, .choices = choices, .choice_capacity = CHOICES_MAX};
    if (choices == NULL) {
        return false;
    }
    (void)explore_case_run(which, view, report);
    which->kind = report->finding.kind;
    which->status = report->finding.status;
    which->digest = report->digest;
    which->device_op_count = report->device_op_count;
    free(choices);
    report->choices = NULL;
    return true;
}

static explore_course course_of(const cli_explore *options, const explore_scenario *scenario,
                                bool *good)
{
    explore_course course;
    *good = explore_course_open(scenario, &options->setting, &course) == IST_OK;
    return course;
}

/* The case of a failing seed, shrunk. */
static ist_case *failing_case(const cli_explore *options, const explore_scenario *scenario,
                              uint64_t seed)
{
    bool good = false;
    ist_case *which = NULL;
    ist_explore_report report;
    explore_view view = {.replay = NULL};
    explore_course course = course_of(options, scenario, &good);
    good = good && ist_case_open(&which) == IST_OK &&
           explore_case_draw(&course, seed, which) == IST_OK && pin_down(which, &view, &report) &&
           which->kind != IST_FINDING_NONE;
    if (!good) {
        ist_case_close(which);
        return NULL;
    }
    view.signature = explore_signature(&report.finding);
    if (options->shrink_max > 0) {
        (void)ist_case_shrink(which, explore_case_run, &view, options->shrink_max, NULL);
    }
    return which;
}

static bool add_shrunk(json_t *failure, const ist_case *which, const ist_finding *finding)
{
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < which->param_count; ++i) {
        ranks = strcmp(which->names[i], "ranks") == 0 ? which->params[i] : ranks;
    }
    uint32_t faults = which->faults == NULL ? 0 : ist_fault_plan_count(which->faults);
    json_t *more = json_pack("{s:s, s:I, s:I, s:I, s:I}", "shrunk_text", finding->text,
                             "shrunk_ranks", (json_int_t)ranks, "shrunk_faults", (json_int_t)faults,
                             "shrunk_choices", (json_int_t)which->choice_count, "shrunk_device_ops",
                             (json_int_t)which->device_op_count);
    bool good = more != NULL && json_object_update(failure, more) == 0;
    json_decref(more);
    return good;
}

/* ------------------------------------------------------------------------------------ the report */

/* Replay file and page of a case. */
static bool write_both(ist_case *which, json_t *failure, const char *stem)
{
    char path[4096], line[4200];
    ist_explore_report report = {.size = sizeof report};
    (void)snprintf(path, sizeof path, "%s.json", stem);
    (void)snprintf(line, sizeof line, "isthmus explore --replay %s", path);
    explore_view view = {.replay = line};
    bool good = pin_down(which, &view, &report) && write_case(which, path) &&
                add_shrunk(failure, which, &report.finding) &&
                json_object_set_new(failure, "replay_file", json_string(path)) == 0;
    (void)snprintf(path, sizeof path, "%s.html", stem);
    if (good && cli_explore_write_html(which, line, path) == CLI_OK) {
        good = json_object_set_new(failure, "report_file", json_string(path)) == 0;
    }
    return good;
}

json_t *cli_explore_keep(const cli_explore *options, ist_case *which)
{
    char stem[2048];
    json_t *failure = json_object();
    (void)snprintf(stem, sizeof stem, "%s/%s-search", options->out, which->scenario);
    if (failure != NULL && !write_both(which, failure, stem)) {
        json_decref(failure);
        failure = NULL;
    }
    return failure;
}

/* In a child: what kills a worker must not kill the run. Its words come back through a file. */
static int make_files(const cli_explore *options, json_t *failure, const char *stem)
{
    char note[4096];
    const explore_scenario *scenario =
        explore_scenario_find(json_string_value(json_object_get(failure, "scenario")));
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(failure, "seed"));
    ist_case *which = scenario == NULL ? NULL : failing_case(options, scenario, seed);
    bool good = which != NULL && write_both(which, failure, stem);
    ist_case_close(which);
    (void)snprintf(note, sizeof note, "%s.tmp", stem);
    return good && json_dump_file(failure, note, JSON_COMPACT) == 0 ? CLI_OK : CLI_FAILED;
}

static bool made_in_child(const cli_explore *options, json_t *failure, const char *stem)
{
    char note[4096];
    int how = 0;
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(make_files(options, failure, stem));
    }
    if (pid < 0 || waitpid(pid, &how, 0) != pid || !WIFEXITED(how) || WEXITSTATUS(how) != CLI_OK) {
        return false;
    }
    (void)snprintf(note, sizeof note, "%s.tmp", stem);
    json_t *more = json_load_file(note, 0, NULL);
    (void)unlink(note);
    bool good = more != NULL && json_object_update(failure, more) == 0;
    json_decref(more);
    return good;
}

void cli_explore_report(const cli_explore *options, json_t *failure)
{
    char stem[2048];
    cli_explore as_it_is = *options;
    const char *scenario = json_string_value(json_object_get(failure, "scenario"));
    const char *finding = json_string_value(json_object_get(failure, "finding"));
    json_int_t seed = json_integer_value(json_object_get(failure, "seed"));
    (void)snprintf(stem, sizeof stem, "%s/%s-%" JSON_INTEGER_FORMAT, options->out, scenario, seed);
    as_it_is.shrink_max = 0;
    if (finding == NULL || strcmp(finding, "crash") == 0) {
        return;
    }
    /* Smaller cases may crash. */
    if (!made_in_child(options, failure, stem) && !made_in_child(&as_it_is, failure, stem)) {
        (void)cli_failed(speaker, "seed %" JSON_INTEGER_FORMAT " of %s: no report could be made",
                         seed, scenario);
    }
}

/* ------------------------------------------------------------------------------------ replay */

static int print_replay(const cli_explore *options, const ist_case *recorded, bool same,
                        const ist_explore_report *report, const char *page)
{
    char digest[24];
    (void)snprintf(digest, sizeof digest, "%016" PRIx64, report->digest);
    if (!options->json) {
        printf("%s, %s, digest %s: %s\n%s", recorded->scenario,
               ist_finding_name(report->finding.kind), digest,
               same ? "as recorded" : "not as recorded", report->finding.text);
        if (page != NULL) {
            printf("report: %s\n", page);
        }
        return cli_put(speaker, "");
    }
    json_t *object = json_pack("{s:s, s:s, s:b, s:s, s:s, s:s, s:s}", "command", "explore",
                               "scenario", recorded->scenario, "ok", same, "finding",
                               ist_finding_name(report->finding.kind), "digest", digest, "text",
                               report->finding.text, "report_file", page == NULL ? "" : page);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    printf("%s\n", text == NULL ? "{}" : text);
    free(text);
    return cli_put(speaker, "");
}

/* DIR/name.html for a file name.json. */
static void page_of(const cli_explore *options, char *path, size_t bytes)
{
    const char *name = strrchr(options->replay, '/');
    name = name == NULL ? options->replay : name + 1;
    size_t length = strlen(name);
    length -= length > 5 && strcmp(name + length - 5, ".json") == 0 ? 5u : 0;
    (void)snprintf(path, bytes, "%s/%.*s.html", options->out, (int)length, name);
}

int cli_explore_replay(const cli_explore *options)
{
    char line[4200], page[4096];
    ist_explore_report report = {.size = sizeof report};
    ist_case *which = read_case(options->replay);
    if (which == NULL) {
        return CLI_FAILED;
    }
    if (explore_scenario_find(which->scenario) == NULL) {
        (void)cli_failed(speaker, "%s: no scenario is called '%s'", options->replay,
                         which->scenario);
        ist_case_close(which);
        return CLI_FAILED;
    }
    (void)snprintf(line, sizeof line, "isthmus explore --replay %s", options->replay);
    explore_view view = {.replay = line};
    (void)explore_case_run(which, &view, &report);
    bool same = report.digest == which->digest && report.finding.kind == which->kind &&
                report.finding.status == which->status;
    page_of(options, page, sizeof page);
    bool paged = cli_explore_write_html(which, line, page) == CLI_OK;
    int status = print_replay(options, which, same, &report, paged ? page : NULL);
    ist_case_close(which);
    return status == CLI_OK && same ? CLI_OK : CLI_FAILED;
}
