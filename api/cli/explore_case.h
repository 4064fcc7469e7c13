/* SPDX-License-Identifier: Apache-2.0 */
/* From a scenario and a seed to a case, and from a case to a run that was judged. Everything follows
 * from the seed: fault, scheduler, shape, contents, schedule.
 */
#ifndef EXPLORE_CASE_H
#define EXPLORE_CASE_H

#include "explore_scenario.h"

/* What the command line decides for all seeds. */
typedef struct explore_setting {
    explore_numbers numbers; /* 0: the scenario's */
    uint32_t faults;         /* bits of explore_fault */
    bool turns;              /* random, pct:1, pct:2, pct:3 by turns */
    ist_scheduler scheduler; /* unless by turns */
    uint32_t depth;
    uint32_t choice_points; /* PCT's k; 0: as many as a quiet run has */
} explore_setting;

/* A scenario that was tried once without faults, so that faults strike where something happens. */
typedef struct explore_course {
    const explore_scenario *scenario;
    explore_setting setting; /* numbers resolved, faults that are of use */
    explore_ground ground;
    uint32_t choice_points; /* PCT's k */
} explore_course;

/* Whether a program can have these numbers. */
bool explore_numbers_fit(const explore_scenario *scenario, const explore_numbers *numbers);
/* IST_OK; IST_ERR_ARGUMENT for numbers that do not fit; what the trial ended with. */
ist_status explore_course_open(const explore_scenario *scenario, const explore_setting *setting,
                               explore_course *course);
/* Kind of fault of a seed. */
explore_fault explore_fault_of(const explore_course *course, uint64_t seed);
/* Fills an empty case. */
ist_status explore_case_draw(const explore_course *course, uint64_t seed, ist_case *which);

/* How a case is looked at while it runs. NULL: not at all. */
typedef struct explore_view {
    const char *replay; /* what reports name to repeat it */
    uint64_t signature; /* 0: any failure; else only one of the same words counts */
    void (*watch)(void *context, const ist_watched *what); /* as in ist_explore_desc */
    void *watch_context;
} explore_view;

/* Marks a case as one of a search: its programs take turns quietly, and it is not shrunk. */
void explore_case_of_search(ist_case *which);

/* An ist_case_fn; its context is an explore_view or NULL. */
ist_status explore_case_run(const ist_case *which, void *context, ist_explore_report *report);
/* The world of a case, for who searches it by himself: call explore_case_leave() afterwards. */
bool explore_case_enter(const ist_case *which, explore_run *run, ist_world_desc *desc,
                        char cluster[32]);
void explore_case_leave(explore_run *run);

/* What kind of failure it is, whatever the numbers in its words. */
uint64_t explore_signature(const ist_finding *finding);

#endif
