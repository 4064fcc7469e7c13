/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of scenarios: drawn from seeds, run, judged. */
#include "explore_case.h"

#include "cli_hash.h"
#include "explore_actor.h"

#include <isthmus/backend.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX UINT64_C(400000)
#define PCT_STEPS_LEAST 50u

/* ------------------------------------------------------------------------------------ numbers */

#define X(name, least) +1
enum { NUMBER_COUNT = 0 EXPLORE_NUMBER_LIST(X) };
#undef X

#define X(name, least) {#name, least, offsetof(explore_numbers, name)},
static const struct {
    const char *name;
    uint32_t least;
    size_t offset;
} numbers_known[] = {EXPLORE_NUMBER_LIST(X)};
#undef X

static uint32_t *number_at(explore_numbers *numbers, uint32_t index)
{
    return (uint32_t *)(void *)((char *)numbers + numbers_known[index].offset);
}

/* A scenario that has none of a number gets none. */
static explore_numbers resolve(const explore_scenario *scenario, const explore_numbers *wished)
{
    explore_numbers numbers = *wished, own = scenario->numbers;
    for (uint32_t i = 0; i < NUMBER_COUNT; ++i) {
        uint32_t *number = number_at(&numbers, i);
        uint32_t usual = *number_at(&own, i);
        *number = *number == 0 || usual == 0 ? usual : *number;
    }
    return numbers;
}

bool explore_numbers_fit(const explore_scenario *scenario, const explore_numbers *numbers)
{
    bool of_ep = scenario->numbers.tokens != 0;
    bool ranks = numbers->ranks >= 2u && numbers->ranks <= EXPLORE_RANKS_MAX &&
                 (scenario->net != EXPLORE_HYBRID || numbers->ranks % 2u == 0);
    bool ep = !of_ep ||
              (numbers->tokens >= 1u && numbers->tokens <= 64u && numbers->hidden >= 4u &&
               numbers->hidden <= 8192u && numbers->hidden % 4u == 0 && numbers->topk >= 1u &&
               numbers->topk <= 8u && numbers->experts >= numbers->topk && numbers->experts <= 64u);
    return ranks && ep && numbers->steps <= 16u;
}

static explore_numbers numbers_of(const ist_case *which)
{
    explore_numbers numbers = {0};
    for (uint32_t i = 0; i < which->param_count; ++i) {
        for (uint32_t k = 0; k < NUMBER_COUNT; ++k) {
            if (strcmp(which->names[i], numbers_known[k].name) == 0) {
                *number_at(&numbers, k) = (uint32_t)which->params[i];
            }
        }
    }
    return numbers;
}

static void put_numbers(ist_case *which, explore_numbers numbers)
{
    which->param_count = 0;
    for (uint32_t i = 0; i < NUMBER_COUNT; ++i) {
        uint32_t value = *number_at(&numbers, i);
        if (value != 0) {
            uint32_t at = which->param_count++;
            (void)snprintf(which->names[at], sizeof which->names[at], "%s", numbers_known[i].name);
            which->params[at] = value;
            which->least[at] = numbers_known[i].least;
        }
    }
}

static const char quiet_name[] = "quiet";

void explore_case_of_search(ist_case *which)
{
    uint32_t at = which->param_count;
    if (at < IST_CASE_PARAMS_MAX) {
        (void)snprintf(which->names[at], sizeof which->names[at], "%s", quiet_name);
        which->params[at] = 1;
        which->least[at] = 1;
        ++which->param_count;
    }
}

static uint32_t options_of(const ist_case *which)
{
    for (uint32_t i = 0; i < which->param_count; ++i) {
        if (strcmp(which->names[i], quiet_name) == 0) {
            return IST_EXPLORE_QUIET_HOSTS;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ running */

static void cluster_line(const explore_scenario *scenario, uint32_t ranks, char line[32])
{
    uint32_t nodes = scenario->net == EXPLORE_LSA ? 1u : scenario->net == EXPLORE_GIN ? ranks : 2u;
    (void)snprintf(line, 32, "%ux%u", nodes, ranks / nodes);
}

bool explore_case_enter(const ist_case *which, explore_run *run, ist_world_desc *desc,
                        char cluster[32])
{
    const explore_scenario *scenario = explore_scenario_find(which->scenario);
    memset(run, 0, sizeof *run);
    if (scenario == NULL) {
        return false;
    }
    run->scenario = scenario;
    run->numbers = numbers_of(which);
    run->seed = which->seed;
    if (!explore_numbers_fit(scenario, &run->numbers)) {
        return false;
    }
    run->blame = explore_blame_of(which->faults, run->numbers.ranks);
    run->healthy = run->blame.blamed == 0;
    if (scenario->prepare != NULL && !scenario->prepare(run)) {
        explore_case_leave(run);
        return false;
    }
    cluster_line(scenario, run->numbers.ranks, cluster);
    *desc = (ist_world_desc){.size = sizeof *desc,
                             .rank_count = run->numbers.ranks,
                             .backend = "sim",
                             .cluster = cluster,
                             .seed = which->seed,
                             .deadline_ns = 4u * EXPLORE_DEADLINE_NS,
                             .faults = which->faults};
    return true;
}

void explore_case_leave(explore_run *run)
{
    if (run->scenario != NULL && run->scenario->discard != NULL) {
        run->scenario->discard(run);
    }
    run->scenario = NULL;
}

/* The oracle's words stand before what the detectors say. */
static ist_status judge(explore_run *run, ist_status status, ist_explore_report *report)
{
    char why[256] = "";
    char told[sizeof report->finding.text];
    ist_finding *finding = &report->finding;
    bool of_program = finding->kind == IST_FINDING_NONE || finding->kind == IST_FINDING_STATUS;
    if (!of_program || explore_judge(run, why, sizeof why)) {
        return status;
    }
    memcpy(told, finding->text, sizeof told);
    if (finding->kind == IST_FINDING_NONE) {
        report->finding_count += 1u;
        *finding = (ist_finding){.first = {.rank = IST_RANK_NONE, .block = -1, .owner = -1},
                                 .second = {.rank = IST_RANK_NONE, .block = -1, .owner = -1}};
    }
    finding->kind = IST_FINDING_STATUS;
    finding->status = IST_ERR_INTERNAL;
    (void)snprintf(finding->text, sizeof finding->text, "oracle: %s\n%.1200s", why, told);
    return IST_ERR_INTERNAL;
}

static void forget_finding(ist_explore_report *report)
{
    report->finding_count = 0;
    report->finding.kind = IST_FINDING_NONE;
    report->finding.status = IST_OK;
    report->finding.text[0] = '\0';
}

ist_status explore_case_run(const ist_case *which, void *context, ist_explore_report *report)
{
    const explore_view *view = context;
    explore_run run;
    ist_world_desc desc;
    char cluster[32];
    if (!explore_case_enter(which, &run, &desc, cluster)) {
        return IST_OK;
    }
    ist_sim_desc sim = {.size = sizeof sim, .op_count_max = STEPS_MAX};
    ist_explore_desc explore = {.size = sizeof explore,
                                .scheduler = which->scheduler,
                                .depth = which->depth,
                                .steps = which->steps,
                                .choices = which->choices,
                                .choice_count = which->choice_count,
                                .detectors_off = run.scenario->detectors_off,
                                .options = options_of(which),
                                .replay = view != NULL ? view->replay : NULL,
                                .watch = view != NULL ? view->watch : NULL,
                                .watch_context = view != NULL ? view->watch_context : NULL};
    sim.log_capacity = explore.watch != NULL ? 1u : 0; /* who keeps events knows names */
    desc.sim = &sim;
    ist_status status = ist_explore_run(&desc, run.scenario->rank_main, &run, &explore, report);
    status = judge(&run, status, report);
    explore_case_leave(&run);
    if (view != NULL && view->signature != 0 &&
        view->signature != explore_signature(&report->finding)) {
        forget_finding(report);
        return IST_OK;
    }
    return status;
}

/* Numbers, and letters of hexadecimal ones, are left out. */
uint64_t explore_signature(const ist_finding *finding)
{
    uint64_t key = cli_fold((uint64_t)finding->kind, (uint64_t)(uint32_t)finding->status);
    const char *c = finding->text;
    if (finding->kind != IST_FINDING_STATUS) {
        return cli_fold(key, 1);
    }
    while (*c != '\0' && *c != '\n') {
        if (*c >= '0' && *c <= '9') {
            c += strspn(c, "0123456789abcdefx");
        } else {
            key = cli_fold(key, (uint64_t)(unsigned char)*c++);
        }
    }
    return key;
}

/* ------------------------------------------------------------------------------------ drawing */

static ist_status try_quietly(const explore_scenario *scenario, explore_numbers numbers,
                              ist_explore_report *report)
{
    ist_case which = {.size = sizeof which, .scheduler = IST_SCHEDULER_REPLAY};
    (void)snprintf(which.scenario, sizeof which.scenario, "%s", scenario->name);
    put_numbers(&which, numbers);
    *report = (ist_explore_report){.size = sizeof *report};
    return explore_case_run(&which, NULL, report);
}

ist_status explore_course_open(const explore_scenario *scenario, const explore_setting *setting,
                               explore_course *course)
{
    bool network = scenario->net != EXPLORE_LSA;
    explore_numbers numbers = resolve(scenario, &setting->numbers);
    ist_explore_report whole, bare;
    if (!explore_numbers_fit(scenario, &numbers)) {
        return ist_raise(IST_ERR_ARGUMENT, NULL, "%s cannot have these numbers", scenario->name);
    }
    *course = (explore_course){.scenario = scenario, .setting = *setting};
    course->setting.numbers = numbers;
    uint32_t useful = setting->faults & explore_faults_useful(network);
    course->setting.faults = useful != 0 ? useful : UINT32_C(1) << EXPLORE_NONE;
    (void)try_quietly(scenario, numbers, &whole);
    explore_numbers none = numbers;
    none.steps = 0;
    (void)try_quietly(scenario, none, &bare);
    uint64_t setup = bare.steps / numbers.ranks / 2u, all = whole.steps / numbers.ranks;
    course->ground = (explore_ground){.rank_count = numbers.ranks,
                                      .pass_count = numbers.steps + 1u,
                                      .network = network,
                                      .setup_ops = setup + 1u,
                                      .horizon_ops = all > setup ? all : setup + 2u,
                                      .points = scenario->points};
    course->choice_points =
        whole.choice_points > PCT_STEPS_LEAST ? (uint32_t)whole.choice_points : PCT_STEPS_LEAST;
    return IST_OK;
}

explore_fault explore_fault_of(const explore_course *course, uint64_t seed)
{
    uint32_t faults = course->setting.faults;
    uint32_t left = (uint32_t)(seed / 4u % (uint32_t)__builtin_popcount(faults));
    uint32_t kind = 0;
    while ((faults >> kind & 1u) == 0 || left-- > 0) {
        ++kind;
    }
    return (explore_fault)kind;
}

static void draw_scheduler(const explore_course *course, uint64_t seed, ist_case *which)
{
    const explore_setting *setting = &course->setting;
    which->scheduler = setting->scheduler;
    which->depth = setting->depth;
    if (setting->turns) {
        which->scheduler = seed % 4u == 0 ? IST_SCHEDULER_RANDOM : IST_SCHEDULER_PCT;
        which->depth = (uint32_t)(seed % 4u);
    }
    uint32_t points = setting->choice_points != 0 ? setting->choice_points : course->choice_points;
    which->steps = which->scheduler == IST_SCHEDULER_PCT ? points : 0;
}

ist_status explore_case_draw(const explore_course *course, uint64_t seed, ist_case *which)
{
    explore_fault fault = explore_fault_of(course, seed);
    (void)snprintf(which->scenario, sizeof which->scenario, "%s", course->scenario->name);
    put_numbers(which, course->setting.numbers);
    which->seed = seed;
    draw_scheduler(course, seed, which);
    if (fault == EXPLORE_NONE) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_fault_plan_open(&which->faults));
    return explore_faults_draw(which->faults, fault, seed, &course->ground);
}
