/* SPDX-License-Identifier: Apache-2.0 */
/* What `isthmus explore` says: the progress line, the answer as text and as JSON, the list. Keys of the
 * JSON are added, never renamed.
 */
#include "cli.h"
#include "cli_explore.h"

#include <inttypes.h>
#include <isthmus/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double rate(const cli_explore_total *total, const cli_explore_course *course)
{
    double done = (double)(total->all.schedules - total->resumed);
    return course->wall_s > 0 ? done / course->wall_s : 0;
}

void cli_explore_progress(const cli_explore *options, const cli_explore_total *total,
                          const cli_explore_course *course)
{
    fprintf(stderr,
            "\r%s: %" PRIu64 " schedules, %.0f/s, %.2f M device operations, %" PRIu64
            " digests, %" PRIu64 " wait shapes, %" PRIu64 " failures ",
            options->pattern, total->all.schedules, rate(total, course),
            (double)total->all.device_ops * 1e-6, total->digests.count, total->shapes.count,
            total->all.failures);
}

void cli_explore_progress_end(void)
{
    fputc('\n', stderr);
}

/* ------------------------------------------------------------------------------------ text */

static const char *word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static void print_failure(const json_t *failure)
{
    json_int_t count = json_integer_value(json_object_get(failure, "count"));
    printf("\n%s, seed %" JSON_INTEGER_FORMAT ", fault %s: %s, %s", word(failure, "scenario"),
           json_integer_value(json_object_get(failure, "seed")), word(failure, "fault"),
           word(failure, "finding"), word(failure, "status"));
    if (count > 1) {
        printf(" (%" JSON_INTEGER_FORMAT " seeds fail like this)", count);
    }
    printf("\n%s", word(failure, "text"));
    if (*word(failure, "shrunk_text") != '\0') {
        printf("shrunk to %" JSON_INTEGER_FORMAT " ranks, %" JSON_INTEGER_FORMAT
               " faults, %" JSON_INTEGER_FORMAT " choices, %" JSON_INTEGER_FORMAT
               " device operations:\n%s",
               json_integer_value(json_object_get(failure, "shrunk_ranks")),
               json_integer_value(json_object_get(failure, "shrunk_faults")),
               json_integer_value(json_object_get(failure, "shrunk_choices")),
               json_integer_value(json_object_get(failure, "shrunk_device_ops")),
               word(failure, "shrunk_text"));
    }
    if (*word(failure, "replay_file") != '\0') {
        printf("isthmus explore --replay %s\n", word(failure, "replay_file"));
    }
    if (*word(failure, "report_file") != '\0') {
        printf("report: %s\n", word(failure, "report_file"));
    }
}

static void print_scenarios(const cli_explore *options, const cli_explore_total *total)
{
    printf("%-24s %12s %16s %9s\n", "scenario", "schedules", "device ops", "failures");
    for (uint32_t i = 0; i < options->scenario_count; ++i) {
        const cli_explore_sum *sum = &total->scenarios[i];
        printf("%-24s %12" PRIu64 " %16" PRIu64 " %9" PRIu64 "\n", options->scenarios[i]->name,
               sum->schedules, sum->device_ops, sum->failures);
    }
}

static int print_text(const cli_explore *options, const cli_explore_total *total,
                      const cli_explore_course *course)
{
    size_t index;
    json_t *failure;
    if (options->scenario_count > 1) {
        print_scenarios(options, total);
    }
    printf("%" PRIu64 " schedules, %" PRIu64 " device operations (%" PRIu64
           " with rows and words without order), %" PRIu64 " steps\n%" PRIu64
           " distinct digests, %" PRIu64 " distinct wait-for shapes\n",
           total->all.schedules, total->all.device_ops, total->all.device_calls, total->all.steps,
           total->digests.count, total->shapes.count);
    printf("%.1f s, %.0f schedules/s, %u workers", course->wall_s, rate(total, course),
           course->workers_max);
    if (total->resumed > 0) {
        printf(", %" PRIu64 " schedules from %s", total->resumed, options->resume);
    }
    if (course->deaths > 0) {
        printf(", %" PRIu64 " workers died and their seeds were done again", course->deaths);
    }
    printf("%s\n%" PRIu64 " failures\n", course->interrupted ? ", interrupted" : "",
           total->all.failures);
    json_array_foreach(total->failures, index, failure)
    {
        print_failure(failure);
    }
    return cli_put("explore", "");
}

/* ------------------------------------------------------------------------------------ JSON */

static json_t *sum_json(const cli_explore_sum *sum)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schedules", (json_int_t)sum->schedules,
                     "device_ops", (json_int_t)sum->device_ops, "device_calls",
                     (json_int_t)sum->device_calls, "steps", (json_int_t)sum->steps,
                     "choice_points", (json_int_t)sum->choice_points, "switches",
                     (json_int_t)sum->switches, "failed", (json_int_t)sum->failures);
}

static json_t *scenarios_json(const cli_explore *options, const cli_explore_total *total)
{
    json_t *object = json_object();
    for (uint32_t i = 0; object != NULL && i < options->scenario_count; ++i) {
        (void)json_object_set_new(object, options->scenarios[i]->name,
                                  sum_json(&total->scenarios[i]));
    }
    return object;
}

static json_t *faults_json(const cli_explore_total *total)
{
    json_t *object = json_object();
    for (uint32_t kind = 0; object != NULL && kind < EXPLORE_FAULT_COUNT; ++kind) {
        if (total->of_faults[kind] != 0) {
            (void)json_object_set_new(object, explore_fault_name((explore_fault)kind),
                                      json_integer((json_int_t)total->of_faults[kind]));
        }
    }
    return object;
}

static json_t *answer(const cli_explore *options, const cli_explore_total *total,
                      const cli_explore_course *course)
{
    bool ok = total->all.failures == 0 && !course->interrupted;
    json_t *json = json_pack(
        "{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:o, s:o, s:O}", "isthmus", ist_version_string(),
        "command", "explore", "ok", ok, "scenario", options->pattern, "seed",
        (json_int_t)options->seed, "distinct_digests", (json_int_t)total->digests.count,
        "distinct_wait_shapes", (json_int_t)total->shapes.count, "scenarios",
        scenarios_json(options, total), "faults", faults_json(total), "failures", total->failures);
    json_t *sums = sum_json(&total->all);
    json_t *run =
        json_pack("{s:f, s:f, s:i, s:I, s:I, s:b}", "wall_s", course->wall_s, "schedules_per_s",
                  rate(total, course), "workers", (int)course->workers_max, "worker_deaths",
                  (json_int_t)course->deaths, "resumed_schedules", (json_int_t)total->resumed,
                  "interrupted", course->interrupted);
    if (json == NULL || sums == NULL || run == NULL || json_object_update(json, sums) != 0 ||
        json_object_set(json, "run", run) != 0) {
        json_decref(json);
        json = NULL;
    }
    json_decref(sums);
    json_decref(run);
    return json;
}

static int print_json(const cli_explore *options, const cli_explore_total *total,
                      const cli_explore_course *course)
{
    json_t *object = answer(options, total, course);
    char *text =
        object == NULL ? NULL : json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(object);
    if (text == NULL) {
        return cli_failed("explore", "out of memory");
    }
    int status = printf("%s\n", text) < 0 ? CLI_FAILED : cli_put("explore", "");
    free(text);
    return status;
}

int cli_explore_print(const cli_explore *options, const cli_explore_total *total,
                      const cli_explore_course *course)
{
    return options->json ? print_json(options, total, course) : print_text(options, total, course);
}

/* ------------------------------------------------------------------------------------ the list */

static int list_json(void)
{
    json_t *scenarios = json_object(), *faults = json_object();
    for (uint32_t i = 0; explore_scenario_at(i) != NULL; ++i) {
        const explore_scenario *one = explore_scenario_at(i);
        (void)json_object_set_new(scenarios, one->name, json_string(one->about));
    }
    for (uint32_t kind = 0; kind < EXPLORE_FAULT_COUNT; ++kind) {
        (void)json_object_set_new(faults, explore_fault_name((explore_fault)kind),
                                  json_string(explore_fault_sentence((explore_fault)kind)));
    }
    json_t *object = json_pack("{s:o, s:o}", "scenarios", scenarios, "faults", faults);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (text == NULL) {
        return cli_failed("explore", "out of memory");
    }
    printf("%s\n", text);
    free(text);
    return cli_put("explore", "");
}

int cli_explore_list(const cli_explore *options)
{
    if (options->json) {
        return list_json();
    }
    for (uint32_t i = 0; explore_scenario_at(i) != NULL; ++i) {
        printf("%-24s %s\n", explore_scenario_at(i)->name, explore_scenario_at(i)->about);
    }
    printf("\nfaults:\n");
    for (uint32_t kind = 0; kind < EXPLORE_FAULT_COUNT; ++kind) {
        printf("%-24s %s\n", explore_fault_name((explore_fault)kind),
               explore_fault_sentence((explore_fault)kind));
    }
    return cli_put("explore", "");
}
