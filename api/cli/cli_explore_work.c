/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker does: runs the seeds of a job, one after the other, and tells the result as JSON. */
#include "cli.h"
#include "cli_explore.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Courses of the scenarios, each opened once. */
static explore_course courses[CLI_EXPLORE_SCENARIOS_MAX];
static bool opened[CLI_EXPLORE_SCENARIOS_MAX];

static explore_course *course_of(const cli_explore *options, uint64_t place)
{
    uint64_t index = place / CLI_EXPLORE_BLOCK % options->scenario_count;
    if (!opened[index]) {
        opened[index] = explore_course_open(options->scenarios[index], &options->setting,
                                            &courses[index]) == IST_OK;
    }
    return opened[index] ? &courses[index] : NULL;
}

typedef struct work_result {
    cli_explore_sum sum;
    uint64_t of_faults[EXPLORE_FAULT_COUNT];
    cli_text digests, shapes; /* 16 digits each */
    json_t *failures;
} work_result;

/* ------------------------------------------------------------------------------------ failures */

static json_t *failure_json(const char *scenario, uint64_t seed, const char *fault,
                            const ist_finding *finding)
{
    char signature[24];
    (void)snprintf(signature, sizeof signature, "%016" PRIx64, explore_signature(finding));
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:s, s:s}", "scenario", scenario, "seed",
                     (json_int_t)seed, "fault", fault, "finding", ist_finding_name(finding->kind),
                     "status", ist_status_name(finding->status), "text", finding->text, "signature",
                     signature);
}

static void note_failure(work_result *result, const explore_course *course, uint64_t seed,
                         const ist_explore_report *report)
{
    const char *fault = explore_fault_name(explore_fault_of(course, seed));
    json_t *failure = failure_json(course->scenario->name, seed, fault, &report->finding);
    ++result->sum.failures;
    if (failure != NULL) {
        (void)json_array_append_new(result->failures, failure);
    }
}

/* ------------------------------------------------------------------------------------ one seed */

static void add_report(work_result *result, const ist_explore_report *report)
{
    result->sum.schedules += 1u;
    result->sum.device_ops += report->device_op_count;
    result->sum.device_calls += report->device_call_count;
    result->sum.steps += report->steps;
    result->sum.choice_points += report->choice_points;
    result->sum.switches += report->switches;
    cli_text_append(&result->digests, "%016" PRIx64, report->digest);
    cli_text_append(&result->shapes, "%016" PRIx64, report->wait_shape);
}

/* False: it failed. */
static bool run_seed(const cli_explore *options, const explore_course *course, uint64_t seed,
                     work_result *result)
{
    ist_case *which = NULL;
    ist_explore_report report = {.size = sizeof report};
    cli_text line = {.bytes = NULL};
    cli_explore_line(options, course->scenario, &line);
    explore_view view = {.replay = line.failed ? NULL : line.bytes};
    ist_status status = ist_case_open(&which);
    status = status == IST_OK ? explore_case_draw(course, seed, which) : status;
    if (status == IST_OK) {
        status = explore_case_run(which, &view, &report);
    }
    ist_case_close(which);
    cli_text_free(&line);
    add_report(result, &report);
    ++result->of_faults[explore_fault_of(course, seed)];
    if (status == IST_OK) {
        return true;
    }
    if (report.finding.kind == IST_FINDING_NONE) { /* it could not even be run */
        report.finding.status = status;
        (void)snprintf(report.finding.text, sizeof report.finding.text, "not run: %s",
                       cli_error_text(status));
    }
    note_failure(result, course, seed, &report);
    return false;
}

/* ------------------------------------------------------------------------------------ a job */

static json_t *faults_json(const uint64_t *counts)
{
    json_t *object = json_object();
    for (uint32_t kind = 0; object != NULL && kind < EXPLORE_FAULT_COUNT; ++kind) {
        if (counts[kind] != 0) {
            (void)json_object_set_new(object, explore_fault_name((explore_fault)kind),
                                      json_integer((json_int_t)counts[kind]));
        }
    }
    return object;
}

static json_t *result_json(const cli_explore_job *job, uint32_t done, work_result *result)
{
    const cli_explore_sum *sum = &result->sum;
    json_t *json = NULL;
    if (!result->digests.failed && !result->shapes.failed) {
        json = json_pack("{s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:O}",
                         "place", (json_int_t)job->place, "count", (int)job->count, "done",
                         (int)done, "device_ops", (json_int_t)sum->device_ops, "device_calls",
                         (json_int_t)sum->device_calls, "steps", (json_int_t)sum->steps,
                         "choice_points", (json_int_t)sum->choice_points, "switches",
                         (json_int_t)sum->switches, "failed", (json_int_t)sum->failures, "faults",
                         faults_json(result->of_faults), "digests", result->digests.bytes, "shapes",
                         result->shapes.bytes, "failures", result->failures);
    }
    json_decref(result->failures);
    cli_text_free(&result->digests);
    cli_text_free(&result->shapes);
    return json;
}

json_t *cli_explore_work(const cli_explore *options, const cli_explore_job *job)
{
    work_result result = {.failures = json_array()};
    explore_course *course = course_of(options, job->place);
    uint64_t seed = cli_explore_seed_of(options, job->place);
    uint32_t done = 0;
    bool good = true;
    if (course == NULL) {
        ist_finding finding = {.status = IST_ERR_ARGUMENT,
                               .text = "not run: the scenario cannot have these numbers"};
        json_t *failure = failure_json(cli_explore_scenario_of(options, job->place)->name, seed,
                                       "none", &finding);
        (void)json_array_append_new(result.failures, failure);
        cli_text_append(&result.digests, "%s", "");
        cli_text_append(&result.shapes, "%s", "");
        return result_json(job, 0, &result);
    }
    while (done < job->count && (good || options->keep_going)) {
        good = run_seed(options, course, seed + done++, &result);
    }
    return result_json(job, done, &result);
}

json_t *cli_explore_crash(const cli_explore *options, uint64_t place)
{
    uint64_t seed = cli_explore_seed_of(options, place);
    const char *name = cli_explore_scenario_of(options, place)->name;
    ist_finding finding = {.status = IST_ERR_SYSTEM,
                           .text = "crash: two workers have died of this seed, or hung in it"};
    json_t *failure = failure_json(name, seed, "unknown", &finding);
    if (failure == NULL) {
        return NULL;
    }
    (void)json_object_set_new(failure, "finding", json_string("crash"));
    return json_pack("{s:I, s:i, s:i, s:i, s:{}, s:s, s:s, s:[o]}", "place", (json_int_t)place,
                     "count", 1, "done", 1, "failed", 1, "faults", "digests", "", "shapes", "",
                     "failures", failure);
}

/* ------------------------------------------------------------------------------------ serving */

static bool write_line(int socket, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t put = send(socket, text, left, MSG_NOSIGNAL); /* the leader may have gone */
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        text += put;
        left -= (size_t)put;
    }
    return true;
}

/* False: no memory. Whether the leader still hears it shows when the next job is read. */
static bool answer(const cli_explore *options, int socket, const cli_explore_job *job)
{
    json_t *result = cli_explore_work(options, job);
    char *text = result == NULL ? NULL : json_dumps(result, JSON_COMPACT);
    bool good = text != NULL;
    if (good && write_line(socket, text)) {
        (void)write_line(socket, "\n");
    }
    free(text);
    json_decref(result);
    return good;
}

/* A worker on another host that hangs is out of the leader's reach: it ends by itself. */
static unsigned longest_s(const cli_explore *options)
{
    const uint64_t patience_s = options->patience_ns / UINT64_C(1000000000) + 10u;
    return patience_s < UINT32_MAX ? (unsigned)patience_s : UINT32_MAX;
}

int cli_explore_serve(const cli_explore *options, int socket)
{
    char line[128];
    bool good = true;
    FILE *jobs = fdopen(socket, "r");
    (void)signal(SIGINT, SIG_IGN); /* the leader ends the run */
    (void)signal(SIGTERM, SIG_DFL);
    if (jobs == NULL) {
        return CLI_FAILED;
    }
    while (good && fgets(line, sizeof line, jobs) != NULL) {
        cli_explore_job job = {0};
        if (sscanf(line, "job %" SCNu64 " %" SCNu32 " %" SCNu32, &job.place, &job.count,
                   &job.tries) != 3) {
            break;
        }
        (void)alarm(longest_s(options));
        good = answer(options, socket, &job);
        (void)alarm(0);
    }
    (void)fclose(jobs);
    return good ? CLI_OK : CLI_FAILED;
}
