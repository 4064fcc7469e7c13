/* SPDX-License-Identifier: Apache-2.0 */
/* `--scheduler exhaustive`: every schedule of kernels, network and memory, for small programs. */
#include "cli.h"
#include "cli_explore.h"
#include "explore_actor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static void print_search(const cli_explore *options, const char *name,
                         const ist_explore_all_result *result, const search *s, bool good)
{
    if (options->json) {
        printf("{\"command\": \"explore\", \"scenario\": \"%s\", \"ok\": %s, \"complete\": %s, "
               "\"executions\": %" PRIu64 ", \"runs\": %" PRIu64 ", \"device_ops\": %" PRIu64 "}\n",
               name, good ? "true" : "false", result->complete ? "true" : "false",
               result->executions, result->runs, s->device_ops);
        return;
    }
    printf("%s: %" PRIu64 " executions in %" PRIu64 " runs, %" PRIu64 " device operations, %s\n",
           name, result->executions, result->runs, s->device_ops,
           result->complete ? "all there are" : "not all there are");
    if (!good) {
        printf("%s%s%s", s->why, *s->why != '\0' ? "\n" : "", result->first.finding.text);
    }
}

static int search_one(const cli_explore *options, const explore_scenario *scenario)
{
    static search s;
    char cluster[32];
    explore_course course;
    ist_world_desc desc;
    ist_case *which = NULL;
    explore_setting setting = options->setting;
    setting.faults = UINT32_C(1) << EXPLORE_NONE;
    memset(&s, 0, sizeof s);
    if (explore_course_open(scenario, &setting, &course) != IST_OK ||
        ist_case_open(&which) != IST_OK ||
        explore_case_draw(&course, options->seed, which) != IST_OK ||
        !explore_case_enter(which, &s.run, &desc, cluster)) {
        ist_case_close(which);
        return cli_failed("explore", "%s cannot have these numbers", scenario->name);
    }
    ist_explore_all_desc all = {
        .size = sizeof all, .run_count_max = options->schedules, .each = judge_each, .context = &s};
    all.explore.size = sizeof all.explore;
    all.explore.detectors_off = scenario->detectors_off;
    ist_explore_all_result result = {.size = sizeof result};
    (void)ist_explore_all(&desc, scenario->rank_main, &s.run, &all, &result);
    bool good = s.wrong == 0 && result.finding_count == 0 && result.executions > 0;
    print_search(options, scenario->name, &result, &s, good);
    explore_case_leave(&s.run);
    ist_case_close(which);
    return good ? CLI_OK : CLI_FAILED;
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
