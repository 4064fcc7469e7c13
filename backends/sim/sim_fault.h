/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fault plan compiled for one run: answers "does a fault strike here?" on the engine's paths.
 * No plan, or an empty one, compiles to NULL, which every function takes and answers with "no".
 * A struck fault does not strike again; the returned faults live until close.
 *
 * A fault whose rank is IST_FAULT_ANY strikes the first rank that meets its trigger: on_op and
 * on_point return it with that rank filled in. A transfer fault keeps IST_FAULT_ANY.
 */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <isthmus/unstable/sim.h>
#include <stdbool.h>

/* One rank's side of the plan. */
typedef struct sim_fault_rank {
    uint64_t next_op;         /* lowest operation at which a fault may be due; UINT64_MAX: none */
    uint64_t allocs;          /* device allocations seen */
    uint64_t registers;       /* window registrations seen */
    uint32_t op_next, op_end; /* its own AT_OP faults still to come, in `ops` */
    uint32_t any_op_next;     /* those of any rank */
    uint32_t transfer_next, transfer_end; /* its own transfer faults that may strike */
    uint32_t reserved;
} sim_fault_rank;

/* What happened to one fault so far. */
typedef struct sim_fault_state {
    uint64_t matches; /* matching transfers since it is armed, allocations struck */
    int32_t rank;     /* who suffers; IST_FAULT_ANY: still open */
    bool armed;       /* transfers: the trigger is past */
    bool spent;       /* will not strike again */
} sim_fault_state;

/* All arrays lie behind the struct in one allocation; index arrays hold numbers into `faults`. */
typedef struct sim_faults {
    uint32_t fault_count;
    uint32_t rank_count;
    uint32_t timed_count;
    uint32_t op_count;
    uint32_t any_op_begin; /* AT_OP faults of any rank: [any_op_begin, op_count) */
    uint32_t transfer_count;
    uint32_t any_transfer_next; /* transfer faults of any sender: [., transfer_count) */
    uint32_t point_count;
    uint32_t alloc_count; /* ALLOC and REGISTER */
    uint32_t reserved;
    ist_fault *faults; /* canonical, see sim_plan.h */
    sim_fault_state *states;
    sim_fault_rank *ranks;
    uint64_t *passes;    /* point faults x ranks: how often the rank passed */
    uint32_t *timed;     /* by (at_ns, number) */
    uint32_t *ops;       /* by (rank, at_op, number), any rank last */
    uint32_t *transfers; /* by (rank, number), any sender last */
    uint32_t *points;    /* by number */
    uint32_t *allocs;    /* by number */
} sim_faults;

/*
 * Compiles a plan for a world. Costs nothing for a NULL or empty plan.
 * IST_OK; IST_ERR_RANGE naming fault, field and value when a rank is outside the world;
 * IST_ERR_OBJECT; IST_ERR_MEMORY.
 */
ist_status sim_faults_open(const ist_fault_plan *plan, uint32_t rank_count, sim_faults **faults);
void sim_faults_close(sim_faults *faults);

static inline bool sim_faults_any(const sim_faults *faults)
{
    return faults != NULL;
}

/*
 * The index-th fault (0, 1, …) that the engine schedules by itself: AT_TIME of KILL, STALL, RESUME,
 * SLOW, LINK_DOWN, LINK_SLOW, in order of time. False past the last.
 */
bool sim_faults_timed(const sim_faults *faults, uint32_t index, const ist_fault **fault);

/* Operation before which sim_fault_on_op() has to be asked; UINT64_MAX: never. May only rise. */
static inline uint64_t sim_fault_next_op(const sim_faults *faults, uint32_t rank)
{
    return faults == NULL ? UINT64_MAX : faults->ranks[rank].next_op;
}

/*
 * The next fault to apply to `rank` before its op_number-th operation (counted from 1). Ask until
 * NULL. Transfer faults with AT_OP are armed here and never returned.
 */
const ist_fault *sim_fault_on_op(sim_faults *faults, uint32_t rank, uint64_t op_number);

/* True when sim_fault_on_point() can have an effect. */
static inline bool sim_faults_have_points(const sim_faults *faults)
{
    return faults != NULL && faults->point_count != 0;
}

/*
 * The next fault to apply to `rank` as it passes a point. One pass is one walk: *cursor is 0 at
 * first; ask until NULL (unless the rank was killed). Transfer faults with AT_POINT are armed here
 * and never returned.
 */
const ist_fault *sim_fault_on_point(sim_faults *faults, uint32_t rank, const char *point,
                                    uint32_t *cursor);

/* True when sim_fault_on_transfer() can have an effect. */
static inline bool sim_faults_have_transfers(const sim_faults *faults)
{
    return faults != NULL && faults->transfer_count != 0;
}

/*
 * The fault that strikes a transfer that `src` issues to `dst` at now_ps: DELAY, DROP, DUPLICATE,
 * REORDER or ERROR, or NULL. Ask exactly once a transfer, in the order of issue. Every armed fault
 * counts every transfer that matches it; of those due at once the first of the plan strikes and the
 * others pass.
 */
const ist_fault *sim_fault_on_transfer(sim_faults *faults, ist_fault_class class_bit, uint32_t src,
                                       uint32_t dst, uint64_t now_ps);

/* Whether this device allocation, or window registration, of the rank fails. Ask once for each. */
bool sim_fault_on_alloc(sim_faults *faults, uint32_t rank);
bool sim_fault_on_register(sim_faults *faults, uint32_t rank);

#endif
