/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shrinking a failing case: delta debugging (Zeller and Hildebrandt, Simplifying and isolating
 * failure-inducing input, TSE 2002) over its numbers, its faults and the deviations of its schedule.
 * Each try is one run; a try counts when the same kind of failure stays. Smaller numbers change what
 * choices mean, so after each change of numbers or faults the schedule is searched anew, from a few
 * seeds, before it is given up.
 */
#include "sim_explore.h"

#include <string.h>

#define SIM_SHRINK_RUNS 20000u
#define SIM_SHRINK_SEEDS 48u
#define SIM_CHOICES_MAX (1u << 20)

typedef struct sim_shrink {
    ist_case *which;
    ist_case_fn run;
    void *context;
    uint64_t runs, run_max;
    ist_explore_report report;
    ist_choice *made; /* [SIM_CHOICES_MAX] what the last run chose */
} sim_shrink;

static bool sim_shrink_over(const sim_shrink *shrink)
{
    return shrink->runs >= shrink->run_max;
}

/* Whether a case fails as the first did. */
static bool sim_shrink_try(sim_shrink *shrink, const ist_case *candidate)
{
    if (sim_shrink_over(shrink)) {
        return false;
    }
    ++shrink->runs;
    memset(&shrink->report, 0, sizeof(shrink->report));
    shrink->report.size = sizeof(shrink->report);
    shrink->report.choices = shrink->made;
    shrink->report.choice_capacity = SIM_CHOICES_MAX;
    ist_status status = shrink->run(candidate, shrink->context, &shrink->report);
    return status != IST_OK && shrink->report.finding.kind == shrink->which->kind &&
           (shrink->which->kind != IST_FINDING_STATUS || status == shrink->which->status);
}

/* The case is now what has just failed, with the choices it made. */
static bool sim_shrink_keep(sim_shrink *shrink)
{
    uint32_t count = shrink->report.choice_count < SIM_CHOICES_MAX ? shrink->report.choice_count
                                                                   : SIM_CHOICES_MAX;
    ist_choice *choices = ist_alloc(count == 0 ? 1 : count, sizeof(*choices));
    if (choices == NULL) {
        return false;
    }
    memcpy(choices, shrink->made, count * sizeof(*choices));
    ist_free(shrink->which->choices);
    shrink->which->choices = choices;
    shrink->which->choice_count = count;
    shrink->which->scheduler = IST_SCHEDULER_REPLAY;
    shrink->which->digest = shrink->report.digest;
    shrink->which->device_op_count = shrink->report.device_op_count;
    return true;
}

/* The candidate with its own schedule, then with others. */
static bool sim_shrink_search(sim_shrink *shrink, ist_case *candidate)
{
    if (sim_shrink_try(shrink, candidate)) {
        return true;
    }
    for (uint32_t i = 0; i < SIM_SHRINK_SEEDS && !sim_shrink_over(shrink); ++i) {
        candidate->scheduler = i % 2u == 0 ? IST_SCHEDULER_RANDOM : IST_SCHEDULER_PCT;
        candidate->depth = 1u + i % 5u;
        candidate->steps = 400;
        uint64_t seed = shrink->which->seed;
        candidate->seed = seed + i;
        if (sim_shrink_try(shrink, candidate)) {
            return true;
        }
    }
    return false;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool sim_shrink_param(sim_shrink *shrink, uint32_t index, uint64_t value)
{
    ist_case candidate = *shrink->which;
    candidate.params[index] = value;
    if (!sim_shrink_search(shrink, &candidate)) {
        return false;
    }
    shrink->which->params[index] = value;
    shrink->which->seed = candidate.seed;
    return sim_shrink_keep(shrink);
}

/* Halves the way down to the least, then steps by one. */
static bool sim_shrink_params(sim_shrink *shrink)
{
    bool any = false;
    ist_case *which = shrink->which;
    for (uint32_t i = 0; i < which->param_count; ++i) {
        uint64_t floor = which->least[i];
        bool more = true;
        while (more && which->params[i] > floor && !sim_shrink_over(shrink)) {
            uint64_t now = which->params[i];
            uint64_t half = floor + (now - floor) / 2u;
            more = sim_shrink_param(shrink, i, floor) || sim_shrink_param(shrink, i, half) ||
                   (now - 1u > half && sim_shrink_param(shrink, i, now - 1u));
            any = any || more;
        }
    }
    return any;
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* The plan without the faults [begin, end). */
static ist_fault_plan *sim_plan_without(const ist_fault_plan *plan, uint32_t begin, uint32_t end)
{
    ist_fault_plan *made = NULL;
    if (ist_fault_plan_open(&made) != IST_OK) {
        return NULL;
    }
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < ist_fault_plan_count(plan) && status == IST_OK; ++i) {
        ist_fault fault = {.size = sizeof(fault)};
        if (i < begin || i >= end) {
            status = ist_fault_plan_get(plan, i, &fault);
            status = status == IST_OK ? ist_fault_plan_add(made, &fault) : status;
        }
    }
    if (status != IST_OK) {
        ist_fault_plan_close(made);
        return NULL;
    }
    return made;
}

static bool sim_shrink_faults_cut(sim_shrink *shrink, uint32_t begin, uint32_t end)
{
    ist_case candidate = *shrink->which;
    candidate.faults = sim_plan_without(shrink->which->faults, begin, end);
    if (candidate.faults == NULL) {
        return false;
    }
    if (!sim_shrink_search(shrink, &candidate) || !sim_shrink_keep(shrink)) {
        ist_fault_plan_close(candidate.faults);
        return false;
    }
    shrink->which->seed = candidate.seed;
    ist_fault_plan_close(shrink->which->faults);
    shrink->which->faults = candidate.faults;
    return true;
}

static bool sim_shrink_faults(sim_shrink *shrink)
{
    bool any = false;
    uint32_t piece = ist_fault_plan_count(shrink->which->faults);
    while (piece > 0 && !sim_shrink_over(shrink)) {
        bool cut = false;
        for (uint32_t at = 0; at < ist_fault_plan_count(shrink->which->faults);) {
            if (sim_shrink_faults_cut(shrink, at, at + piece)) {
                cut = true;
            } else {
                at += piece;
            }
        }
        any = any || cut;
        piece = cut && piece > ist_fault_plan_count(shrink->which->faults)
                    ? ist_fault_plan_count(shrink->which->faults)
                    : piece / 2u;
    }
    return any;
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static bool sim_shrink_choices_cut(sim_shrink *shrink, uint32_t begin, uint32_t end)
{
    ist_case *which = shrink->which;
    ist_case candidate = *which;
    uint32_t kept = which->choice_count - (end - begin);
    candidate.choices = ist_alloc(kept == 0 ? 1 : kept, sizeof(*candidate.choices));
    if (candidate.choices == NULL) {
        return false;
    }
    memcpy(candidate.choices, which->choices, begin * sizeof(*which->choices));
    memcpy(candidate.choices + begin, which->choices + end,
           (which->choice_count - end) * sizeof(*which->choices));
    candidate.choice_count = kept;
    /* What it chose counts, not what was asked for: it must really be less. */
    bool better = sim_shrink_try(shrink, &candidate) &&
                  shrink->report.choice_count < which->choice_count && sim_shrink_keep(shrink);
    ist_free(candidate.choices);
    return better;
}

static bool sim_shrink_choices(sim_shrink *shrink)
{
    bool any = false;
    for (uint32_t piece = shrink->which->choice_count; piece > 0 && !sim_shrink_over(shrink);) {
        bool cut = false;
        for (uint32_t at = 0; at < shrink->which->choice_count;) {
            uint32_t end =
                at + piece < shrink->which->choice_count ? at + piece : shrink->which->choice_count;
            if (sim_shrink_choices_cut(shrink, at, end)) {
                cut = true;
            } else {
                at = end;
            }
        }
        any = any || cut;
        piece = cut && piece > 1u ? piece : piece / 2u;
        piece = piece < shrink->which->choice_count ? piece : shrink->which->choice_count / 2u;
    }
    return any;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void sim_shrink_all(sim_shrink *shrink)
{
    bool more = true;
    while (more && !sim_shrink_over(shrink)) {
        more = sim_shrink_params(shrink);
        more = (shrink->which->faults != NULL && sim_shrink_faults(shrink)) || more;
        more = sim_shrink_choices(shrink) || more;
    }
}

static uint32_t sim_case_fault_count(const ist_case *which)
{
    return which->faults != NULL ? ist_fault_plan_count(which->faults) : 0;
}

ist_status ist_case_shrink(ist_case *which, ist_case_fn run, void *context, uint64_t run_max,
                           ist_shrink_result *result)
{
    if (which == NULL || run == NULL) {
        return ist_raise(IST_ERR_NULL, NULL, "%s is NULL", which == NULL ? "which" : "run");
    }
    sim_shrink *shrink = ist_alloc(1, sizeof(*shrink));
    ist_choice *made = ist_alloc(SIM_CHOICES_MAX, sizeof(*made));
    if (shrink == NULL || made == NULL) {
        ist_free(shrink);
        ist_free(made);
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to shrink");
    }
    shrink->which = which;
    shrink->run = run;
    shrink->context = context;
    shrink->run_max = run_max == 0 ? SIM_SHRINK_RUNS : run_max;
    shrink->made = made;
    ist_shrink_result done = {.size = sizeof(done), .faults_before = sim_case_fault_count(which)};
    ist_status status = IST_OK;
    if (!sim_shrink_try(shrink, which) || !sim_shrink_keep(shrink)) {
        status = ist_raise(IST_ERR_ARGUMENT, NULL, "the case does not fail with a %s",
                           ist_finding_name(which->kind));
    } else {
        done.choices_before = which->choice_count;
        done.ops_before = which->device_op_count;
        sim_shrink_all(shrink);
        done.choices_after = which->choice_count;
        done.ops_after = which->device_op_count;
        done.faults_after = sim_case_fault_count(which);
        done.runs = shrink->runs;
        if (result != NULL) {
            memcpy(result, &done, result->size < sizeof(done) ? result->size : sizeof(done));
        }
    }
    ist_free(made);
    ist_free(shrink);
    return status;
}
