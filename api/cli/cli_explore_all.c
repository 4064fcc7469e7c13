/* SPDX-License-Identifier: Apache-2.0 */
/* `--scheduler exhaustive`: every schedule of kernels, network and memory, for small programs. */
#include "cli.h"
#include "cli_explore.h"
#include "explore_actor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHOICES_MAX 65536u

typedef struct search {
    explore_run run;
    uint64_t device_ops, wrong;
    char why[256];
} search;

/* After each execution: the invariants over all ranks. */
static int judge_each(void *context, ist_status status, const ist_explore_report *report)
{
    search *s = context;
    s->device_ops += report->device_op_count;
    if (status == IST_OK && report->finding_count == 0 &&
        explore_judge(&s->run, s->why, sizeof s->why)) {
        return 0;
    }
    ++s->wrong;
    return 1;
}

/* What was found, as a case: NULL when it cannot be written. */
static json_t *keep(const cli_explore *options, ist_case *which,
                    const ist_explore_all_result *result)
{
    which->scheduler = IST_SCHEDULER_REPLAY;
    which->choices = result->choices;
    which->choice_count = result->choice_count;
    explore_case_of_search(which);
    json_t *kept =
        result->choice_count <= result->choice_capacity ? cli_explore_keep(options, which) : NULL;
    which->choices = NULL; /* they are the caller's */
    which->choice_count = 0;
    return kept;
}

static void print_kept(const json_t *kept)
{
    const char *text = json_string_value(json_object_get(kept, "shrunk_text"));
    const char *replay = json_string_value(json_object_get(kept, "replay_file"));
    const char *report = json_string_value(json_object_get(kept, "report_file"));
    printf("%s", text == NULL ? "" : text);
    if (replay != NULL) {
        printf("isthmus explore --replay %s\n", replay);
    }
    if (report != NULL) {
        printf("report: %s\n", report);
    }
}

static void print_search(const cli_explore *options, const char *name,
                         const ist_explore_all_result *result, const search *s, const json_t *kept,
                         bool good)
{
    if (!options->json) {
        printf("%s: %" PRIu64 " executions in %" PRIu64 " runs, %" PRIu64
               " device operations, %s\n",
               name, result->executions, result->runs, s->device_ops,
               result->complete ? "all there are" : "not all there are");
        print_kept(kept);
        return;
    }
    json_t *object = json_pack(
        "{s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:O?}", "command", "explore", "scenario", name, "ok",
        (int)good, "complete", (int)result->complete, "executions", (json_int_t)result->executions,
        "runs", (json_int_t)result->runs, "device_ops", (json_int_t)s->device_ops, "failure", kept);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    printf("%s\n", text == NULL ? "{}" : text);
    free(text);
}

static int search_case(const cli_explore *options, const explore_scenario *scenario,
                       ist_case *which, ist_choice *choices)
{
    static search s;
    char cluster[32];
    ist_world_desc desc;
    memset(&s, 0, sizeof s);
    if (!explore_case_enter(which, &s.run, &desc, cluster)) {
        return cli_failed("explore", "%s cannot have these numbers", scenario->name);
    }
    ist_explore_all_desc all = {
        .size = sizeof all, .run_count_max = options->schedules, .each = judge_each, .context = &s};
    all.explore.size = sizeof all.explore;
    all.explore.detectors_off = scenario->detectors_off;
    ist_explore_all_result result = {
        .size = sizeof result, .choices = choices, .choice_capacity = CHOICES_MAX};
    (void)ist_explore_all(&desc, scenario->rank_main, &s.run, &all, &result);
    explore_case_leave(&s.run);
    bool good = s.wrong == 0 && result.finding_count == 0 && result.executions > 0;
    json_t *kept = good ? NULL : keep(options, which, &result);
    print_search(options, scenario->name, &result, &s, kept, good);
    json_decref(kept);
    return good ? CLI_OK : CLI_FAILED;
}

static int search_one(const cli_explore *options, const explore_scenario *scenario)
{
    explore_course course;
    ist_case *which = NULL;
    explore_setting setting = options->setting;
    ist_choice *choices = calloc(CHOICES_MAX, sizeof *choices);
    setting.faults = UINT32_C(1) << EXPLORE_NONE;
    int status = CLI_FAILED;
    if (choices != NULL && explore_course_open(scenario, &setting, &course) == IST_OK &&
        ist_case_open(&which) == IST_OK &&
        explore_case_draw(&course, options->seed, which) == IST_OK) {
        status = search_case(options, scenario, which, choices);
    } else {
        (void)cli_failed("explore", "%s cannot have these numbers", scenario->name);
    }
    ist_case_close(which);
    free(choices);
    return status;
}

int cli_explore_search(const cli_explore *options)
{
    int status = CLI_OK;
    for (uint32_t i = 0; i < options->scenario_count; ++i) {
        int one = search_one(options, options->scenarios[i]);
        status = status == CLI_OK ? one : status;
    }
    return cli_put("explore", "") == CLI_OK ? status : CLI_FAILED;
}
