/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fault-plan files share: the plan itself, and the table of which fields and triggers
 * each kind of fault has. A stored fault is checked and canonical: defaults are resolved, fields
 * its kind does not have are zero (ranks IST_FAULT_ANY).
 */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include <isthmus/backend.h>
#include <isthmus/unstable/sim.h>
#include <stdbool.h>

/* Times stay below this, so that a start and a duration in picoseconds add up without overflow. */
#define SIM_FAULT_NS_MAX UINT64_C(9000000000000000)
/* Times are multiplied by a ratio; the engine must not overflow. */
#define SIM_FAULT_RATIO_MAX UINT64_C(1000000)
/* JSON integers are signed. */
#define SIM_FAULT_NUMBER_MAX ((uint64_t)INT64_MAX)
#define SIM_FAULT_RATIO_DEFAULT UINT64_C(10)

#define SIM_PLAN_MAGIC UINT32_C(0x4e4c5046) /* "FPLN" */

struct ist_fault_plan {
    uint32_t magic;
    uint32_t count;
    uint32_t capacity;
    ist_fault *faults;
};

/* What a kind of fault has; or-ed. */
enum {
    SIM_FIELD_PEER = 1u << 0,
    SIM_FIELD_CLASSES = 1u << 1,
    SIM_FIELD_DURATION = 1u << 2,
    SIM_FIELD_DURATION_NEEDED = 1u << 3, /* zero is refused */
    SIM_FIELD_RATIO = 1u << 4,
    SIM_FIELD_COUNT = 1u << 5,
    SIM_FIELD_STORES = 1u << 6,  /* may strike load/store flags */
    SIM_FIELD_ANY_RANK = 1u << 7 /* the rank may be left open also with AT_TIME */
};

typedef struct sim_fault_traits {
    uint32_t fields;   /* SIM_FIELD_ bits */
    uint32_t triggers; /* 1 << ist_fault_trigger */
} sim_fault_traits;

/* NULL for a kind outside the list. */
const sim_fault_traits *sim_fault_traits_of(ist_fault_kind kind);

/* Name in JSON, NULL for a kind outside the list; and the way back, false for an unknown name. */
const char *sim_fault_kind_name(ist_fault_kind kind);
bool sim_fault_kind_named(const char *name, ist_fault_kind *kind);

/* True for DELAY, DROP, DUPLICATE, REORDER, ERROR. */
static inline bool sim_fault_is_transfer(ist_fault_kind kind)
{
    return kind >= IST_FAULT_DELAY && kind <= IST_FAULT_ERROR;
}

/* What is wrong with a fault; found by sim_fault_check(), raised by who knows the index. */
typedef struct sim_fault_flaw {
    const char *field; /* as in ist_fault */
    bool negative;     /* observed is -1 or less, printed signed */
    uint64_t observed; /* two's complement if negative */
    const char *rule;  /* what is allowed, in words */
} sim_fault_flaw;

/* Checks a fault and makes it canonical. False: `flaw` says why, `fault` is as it was. */
bool sim_fault_check(ist_fault *fault, sim_fault_flaw *flaw);

/* Appends a checked, canonical fault. IST_OK; IST_ERR_MEMORY with the plan unchanged. */
ist_status sim_plan_append(ist_fault_plan *plan, const ist_fault *fault);

/* IST_OK, IST_ERR_NULL or IST_ERR_OBJECT for the plan argument of `operation`. */
ist_status sim_plan_usable(const ist_fault_plan *plan, const char *operation);

/* Raises IST_ERR_NULL for an argument. */
ist_status sim_plan_null(const char *operation, const char *argument);

#endif
