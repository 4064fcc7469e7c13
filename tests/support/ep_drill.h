/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drill: the program that the fault tests run under many fault plans, and what must hold of its
 * run whatever the plan was. The program: open; a step; survivors agree; a step among them; close.
 * With `clean`: open; steps; all that live meet and clean; steps until one is perfect; close.
 */
#ifndef EP_DRILL_H
#define EP_DRILL_H

#include "ep_rig.h"

#define EP_DRILL_RANKS_MAX 8u
#define EP_DRILL_STEPS_MAX 48u
#define EP_DRILL_DEADLINE_NS 1000000u /* of waits */
/* A run that took longer has a wait that was not bounded by the deadlines. */
#define EP_DRILL_DEADLINES_MAX 200u

typedef struct ep_drill {
    ep_shape shape;
    const char *cluster;
    ep_lane_setup lane;
    uint32_t block_count_max;
    uint32_t steps;   /* before survivors agree, or all clean; 0: 1 */
    uint32_t clean;   /* 1: instead of the agreement */
    uint32_t no_mask; /* 1: not fault tolerant */
    uint64_t meet_ns; /* clean: the time at which all that live go there; 0: 80 deadlines */
    ist_link_model links;
    const char *log_path; /* write the event log here, or NULL */
    ep_case made[EP_DRILL_STEPS_MAX];
} ep_drill;

/* What one rank saw. */
typedef struct ep_drill_rank {
    ist_status setup; /* of open; IST_OK when all was open */
    uint32_t steps;   /* that were begun */
    ep_step step[EP_DRILL_STEPS_MAX];
    uint32_t agree_ran;
    ist_status agree; /* of the agreement or the last clean */
    uint64_t mask[EP_RIG_WORDS];
    uint64_t generation;
    uint64_t meet_ns, met_ns; /* when it began and ended */
    ist_status close;
    uint32_t ended; /* the program came to its end */
    uint64_t end_ns;
} ep_drill_rank;

typedef struct ep_drill_run {
    const ep_drill *drill;
    ist_status status;
    ist_world_result result;
    ep_drill_rank ranks[EP_DRILL_RANKS_MAX];
    char why[256]; /* what does not hold; empty: all holds */
} ep_drill_run;

/* Fills shape-dependent parts. False when out of memory. */
bool ep_drill_init(ep_drill *drill);
void ep_drill_fini(ep_drill *drill);
/* Runs the program once under the plan (NULL: no faults). */
void ep_drill_run_once(const ep_drill *drill, const ist_fault_plan *plan, ep_drill_run *run);

/* Rules; the first that is broken is told in run->why. `killed`: ranks that the plan may kill. */

/* Whatever happened: no wrong byte in an output presented as complete, records that are true to
   themselves, everybody ended in bounded time. */
bool ep_drill_is_safe(ep_drill_run *run, uint64_t killed);
/* Whether some rank that lives could not open all; and if so, whether all were told why, and closed. */
bool ep_drill_setup_failed(const ep_drill_run *run, uint64_t killed);
bool ep_drill_setup_is_clean(ep_drill_run *run, uint64_t killed);
/* And nobody but the killed was lost; survivors have one mask and go on exactly. */
bool ep_drill_is_survived(ep_drill_run *run, uint64_t killed);
/* And the last step was perfect on all ranks; or only the last was not, so that the fault struck
   when there was no step left. */
bool ep_drill_is_recovered(ep_drill_run *run);
/* Faults have ended some time: in the last step, or the one before it when the last was struck again,
   exactly the dead are missed, by everybody who lives. */
bool ep_drill_is_live(ep_drill_run *run, uint64_t killed);
/* Every step of everybody was perfect. */
bool ep_drill_is_perfect(ep_drill_run *run);

/* A plan with one fault; the caller closes it. NULL when out of memory. */
ist_fault_plan *ep_drill_plan(const ist_fault *fault);
/* Tells what broke, and the plan that repeats it. */
void ep_drill_tell(const ep_drill_run *run, const ist_fault_plan *plan);
/* Runs with one fault that may cost its rank alone; tells what broke. Whether it struck comes back in
   `hit`: if it did not, everything must be perfect. */
bool ep_drill_survives(const ep_drill *drill, const ist_fault *fault, bool *hit);

#endif
