/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault plans as objects: open, close, add, count, get, and the check that every fault passes,
 * wherever it comes from. JSON lives in sim_plan_json.c, random plans in sim_plan_random.c.
 */
#include "sim_plan.h"

#include <stdio.h>
#include <string.h>

#define WHEN_TIME (1u << IST_FAULT_AT_TIME)
#define WHEN_NTH (1u << IST_FAULT_NTH)
#define WHEN_REACHED (WHEN_TIME | (1u << IST_FAULT_AT_OP) | (1u << IST_FAULT_AT_POINT))
#define TRANSFER (SIM_FIELD_PEER | SIM_FIELD_CLASSES | SIM_FIELD_COUNT | SIM_FIELD_ANY_RANK)
#define SPAN SIM_FIELD_DURATION

/* A stalled rank makes no operation and passes no point, so only the clock can resume it. */
static const sim_fault_traits kind_traits[] = {
    [IST_FAULT_KILL] = {0, WHEN_REACHED},
    [IST_FAULT_STALL] = {SPAN, WHEN_REACHED},
    [IST_FAULT_SLOW] = {SIM_FIELD_RATIO, WHEN_REACHED},
    [IST_FAULT_DELAY] = {TRANSFER | SPAN | SIM_FIELD_DURATION_NEEDED | SIM_FIELD_STORES,
                         WHEN_REACHED | WHEN_NTH},
    [IST_FAULT_DROP] = {TRANSFER, WHEN_REACHED | WHEN_NTH},
    [IST_FAULT_DUPLICATE] = {TRANSFER | SPAN, WHEN_REACHED | WHEN_NTH},
    [IST_FAULT_REORDER] = {TRANSFER, WHEN_REACHED | WHEN_NTH},
    [IST_FAULT_ERROR] = {TRANSFER, WHEN_REACHED | WHEN_NTH},
    [IST_FAULT_LINK_DOWN] = {SIM_FIELD_PEER | SPAN, WHEN_REACHED},
    [IST_FAULT_LINK_SLOW] = {SIM_FIELD_PEER | SPAN | SIM_FIELD_RATIO, WHEN_REACHED},
    [IST_FAULT_ALLOC] = {SIM_FIELD_COUNT, WHEN_NTH},
    [IST_FAULT_REGISTER] = {SIM_FIELD_COUNT, WHEN_NTH},
    [IST_FAULT_RESUME] = {0, WHEN_TIME},
};

static const char *const kind_names[] = {
#define X(name, value, json) [value] = json,
    IST_FAULT_LIST(X)
#undef X
};

enum { KIND_SLOTS = sizeof kind_names / sizeof kind_names[0] };
_Static_assert(sizeof kind_traits / sizeof kind_traits[0] == KIND_SLOTS, "a kind has no traits");

const sim_fault_traits *sim_fault_traits_of(ist_fault_kind kind)
{
    return sim_fault_kind_name(kind) == NULL ? NULL : &kind_traits[kind];
}

const char *sim_fault_kind_name(ist_fault_kind kind)
{
    return (uint64_t)kind < KIND_SLOTS ? kind_names[kind] : NULL;
}

bool sim_fault_kind_named(const char *name, ist_fault_kind *kind)
{
    for (uint32_t i = 0; i < KIND_SLOTS; i++) {
        if (kind_names[i] != NULL && strcmp(kind_names[i], name) == 0) {
            *kind = (ist_fault_kind)i;
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------ the check */

static bool flaw_found(sim_fault_flaw *flaw, const char *field, uint64_t observed, const char *rule)
{
    *flaw = (sim_fault_flaw){field, false, observed, rule};
    return false;
}

static bool rank_ok(const char *field, int32_t rank, sim_fault_flaw *flaw)
{
    if (rank >= IST_FAULT_ANY) {
        return true;
    }
    *flaw = (sim_fault_flaw){field, true, (uint64_t)(int64_t)rank, "a rank, or -1 for any"};
    return false;
}

/* A field that the kind or trigger lacks is zero, one that it has is within its limit. */
static bool number_ok(const char *field, uint64_t value, bool present, uint64_t limit,
                      const char *rule, sim_fault_flaw *flaw)
{
    if (!present && value != 0) {
        return flaw_found(flaw, field, value, "0, this kind or trigger does not use it");
    }
    return value <= limit || flaw_found(flaw, field, value, rule);
}

static bool trigger_ok(const ist_fault *fault, const sim_fault_traits *traits, sim_fault_flaw *flaw)
{
    const uint32_t trigger = (uint32_t)fault->trigger;
    if (trigger > IST_FAULT_NTH || (traits->triggers & (1u << trigger)) == 0) {
        return flaw_found(flaw, "trigger", trigger, "a trigger of this kind of fault");
    }
    const bool timed = trigger == IST_FAULT_AT_TIME;
    if (timed && fault->rank == IST_FAULT_ANY && (traits->fields & SIM_FIELD_ANY_RANK) == 0) {
        *flaw = (sim_fault_flaw){"rank", true, (uint64_t)(int64_t)IST_FAULT_ANY,
                                 "a rank, as the trigger is a time"};
        return false;
    }
    return number_ok("at_ns", fault->at_ns, timed, SIM_FAULT_NS_MAX, "at most 9e15", flaw) &&
           number_ok("at_op", fault->at_op, !timed, SIM_FAULT_NUMBER_MAX, "below 2^63", flaw);
}

/* Plain printable ASCII, so that every name can stand in JSON as it is. */
static bool point_ok(const ist_fault *fault, sim_fault_flaw *flaw)
{
    const bool used = fault->trigger == IST_FAULT_AT_POINT;
    const size_t bytes = strnlen(fault->point, sizeof fault->point);
    if (bytes == sizeof fault->point) {
        return flaw_found(flaw, "point", bytes, "at most 47 bytes and a NUL");
    }
    if ((bytes != 0) != used) {
        return flaw_found(flaw, "point", bytes, used ? "a name" : "empty, the trigger is no point");
    }
    for (size_t i = 0; i < bytes; i++) {
        if (fault->point[i] < 0x20 || fault->point[i] > 0x7e) {
            return flaw_found(flaw, "point", (unsigned char)fault->point[i],
                              "printable ASCII characters");
        }
    }
    return true;
}

static bool classes_ok(const ist_fault *fault, uint32_t fields, sim_fault_flaw *flaw)
{
    uint64_t allowed = 0;
    if ((fields & SIM_FIELD_CLASSES) != 0) {
        allowed = IST_FAULT_PUTS | IST_FAULT_SIGNALS;
    }
    if ((fields & SIM_FIELD_STORES) != 0) {
        allowed |= IST_FAULT_STORES;
    }
    return (fault->classes & ~allowed) == 0 ||
           flaw_found(flaw, "classes", fault->classes,
                      "puts 1, signals 2 for transfer faults, stores 4 for delays only");
}

static bool sides_ok(const ist_fault *fault, uint32_t fields, sim_fault_flaw *flaw)
{
    if (!rank_ok("rank", fault->rank, flaw)) {
        return false;
    }
    if ((fields & SIM_FIELD_PEER) == 0) {
        return true;
    }
    if (!rank_ok("peer", fault->peer, flaw)) {
        return false;
    }
    const bool link = !sim_fault_is_transfer(fault->kind);
    return !link || fault->peer != fault->rank || fault->peer == IST_FAULT_ANY ||
           flaw_found(flaw, "peer", (uint64_t)fault->peer, "another rank than `rank`");
}

static bool amounts_ok(const ist_fault *fault, uint32_t fields, sim_fault_flaw *flaw)
{
    if ((fields & SIM_FIELD_DURATION_NEEDED) != 0 && fault->duration_ns == 0) {
        return flaw_found(flaw, "duration_ns", 0, "at least 1 for this kind");
    }
    return number_ok("duration_ns", fault->duration_ns, (fields & SPAN) != 0, SIM_FAULT_NS_MAX,
                     "at most 9e15", flaw) &&
           number_ok("ratio", fault->ratio, (fields & SIM_FIELD_RATIO) != 0, SIM_FAULT_RATIO_MAX,
                     "1 to 1000000", flaw) &&
           number_ok("count", fault->count, (fields & SIM_FIELD_COUNT) != 0, SIM_FAULT_NUMBER_MAX,
                     "below 2^63", flaw);
}

static void fault_make_canonical(ist_fault *fault, uint32_t fields)
{
    const size_t point_bytes = strlen(fault->point);
    fault->size = sizeof *fault;
    memset(fault->point + point_bytes, 0, sizeof fault->point - point_bytes);
    if ((fields & SIM_FIELD_PEER) == 0) {
        fault->peer = IST_FAULT_ANY;
    }
    if ((fields & SIM_FIELD_CLASSES) != 0 && fault->classes == 0) {
        fault->classes = IST_FAULT_PUTS | IST_FAULT_SIGNALS;
    }
    if (fault->trigger != IST_FAULT_AT_TIME && fault->at_op == 0) {
        fault->at_op = 1;
    }
    if ((fields & SIM_FIELD_RATIO) != 0 && fault->ratio == 0) {
        fault->ratio = SIM_FAULT_RATIO_DEFAULT;
    }
    if ((fields & SIM_FIELD_COUNT) != 0 && fault->count == 0) {
        fault->count = 1;
    }
}

bool sim_fault_check(ist_fault *fault, sim_fault_flaw *flaw)
{
    const sim_fault_traits *traits = sim_fault_traits_of(fault->kind);
    if (traits == NULL) {
        return flaw_found(flaw, "kind", (uint64_t)fault->kind, "a value of ist_fault_kind");
    }
    const uint32_t fields = traits->fields;
    if (!sides_ok(fault, fields, flaw) || !trigger_ok(fault, traits, flaw) ||
        !point_ok(fault, flaw) || !classes_ok(fault, fields, flaw) ||
        !amounts_ok(fault, fields, flaw)) {
        return false;
    }
    fault_make_canonical(fault, fields);
    return true;
}

/* ------------------------------------------------------------------------------ the object */

static ist_error details_for(const char *operation, const char *object)
{
    ist_error details = {.size = sizeof details, .rank = IST_RANK_NONE, .peer = IST_RANK_NONE};
    (void)snprintf(details.operation, sizeof details.operation, "%s", operation);
    (void)snprintf(details.object, sizeof details.object, "%s", object);
    return details;
}

ist_status sim_plan_null(const char *operation, const char *argument)
{
    const ist_error details = details_for(operation, argument);
    return ist_raise(IST_ERR_NULL, &details, "%s: %s is NULL", operation, argument);
}

ist_status sim_plan_usable(const ist_fault_plan *plan, const char *operation)
{
    if (plan == NULL) {
        return sim_plan_null(operation, "plan");
    }
    if (plan->magic != SIM_PLAN_MAGIC) {
        ist_error details = details_for(operation, "plan");
        details.observed = plan->magic;
        details.expected = SIM_PLAN_MAGIC;
        return ist_raise(IST_ERR_OBJECT, &details, "%s: plan is closed or no fault plan",
                         operation);
    }
    return IST_OK;
}

ist_status ist_fault_plan_open(ist_fault_plan **plan)
{
    if (plan == NULL) {
        return sim_plan_null("fault_plan.open", "plan");
    }
    ist_fault_plan *opened = ist_alloc(1, sizeof *opened);
    if (opened == NULL) {
        const ist_error details = details_for("fault_plan.open", "plan");
        return ist_raise(IST_ERR_MEMORY, &details, "no memory for a fault plan (%zu bytes)",
                         sizeof *opened);
    }
    opened->magic = SIM_PLAN_MAGIC;
    *plan = opened;
    return IST_OK;
}

void ist_fault_plan_close(ist_fault_plan *plan)
{
    if (plan == NULL || plan->magic != SIM_PLAN_MAGIC) {
        return;
    }
    plan->magic = 0;
    ist_free(plan->faults);
    ist_free(plan);
}

static ist_status plan_grow(ist_fault_plan *plan)
{
    const uint32_t capacity = plan->capacity == 0 ? 8 : plan->capacity * 2;
    ist_fault *faults =
        plan->capacity > UINT32_MAX / 2 ? NULL : ist_alloc(capacity, sizeof *faults);
    if (faults == NULL) {
        ist_error details = details_for("fault_plan.add", "plan");
        details.observed = plan->count;
        return ist_raise(IST_ERR_MEMORY, &details, "no memory for fault %u of the plan",
                         plan->count);
    }
    if (plan->count != 0) {
        memcpy(faults, plan->faults, plan->count * sizeof *faults);
    }
    ist_free(plan->faults);
    plan->faults = faults;
    plan->capacity = capacity;
    return IST_OK;
}

ist_status sim_plan_append(ist_fault_plan *plan, const ist_fault *fault)
{
    if (plan->count == plan->capacity) {
        IST_RETURN_IF_ERROR(plan_grow(plan));
    }
    plan->faults[plan->count++] = *fault;
    return IST_OK;
}

/* A struct of a newer header is taken as long as it asks for nothing new. */
static ist_status fault_size_check(const ist_fault *fault)
{
    ist_error details = details_for("fault_plan.add", "fault.size");
    details.observed = fault->size;
    details.expected = sizeof *fault;
    if (fault->size < sizeof *fault) {
        return ist_raise(IST_ERR_SIZE, &details, "fault.size is %u, expected %zu", fault->size,
                         sizeof *fault);
    }
    const unsigned char *bytes = (const unsigned char *)fault;
    for (uint32_t i = sizeof *fault; i < fault->size; i++) {
        if (bytes[i] != 0) {
            return ist_raise(IST_ERR_RESERVED, &details,
                             "fault has a value at byte %u, beyond the %zu bytes known here", i,
                             sizeof *fault);
        }
    }
    return IST_OK;
}

static ist_status raise_flaw(const sim_fault_flaw *flaw)
{
    char field[32];
    (void)snprintf(field, sizeof field, "fault.%s", flaw->field);
    ist_error details = details_for("fault_plan.add", field);
    details.observed = flaw->observed;
    if (flaw->negative) {
        return ist_raise(IST_ERR_ARGUMENT, &details, "%s is %lld, allowed: %s", field,
                         (long long)flaw->observed, flaw->rule);
    }
    return ist_raise(IST_ERR_ARGUMENT, &details, "%s is %llu, allowed: %s", field,
                     (unsigned long long)flaw->observed, flaw->rule);
}

ist_status ist_fault_plan_add(ist_fault_plan *plan, const ist_fault *fault)
{
    IST_RETURN_IF_ERROR(sim_plan_usable(plan, "fault_plan.add"));
    if (fault == NULL) {
        return sim_plan_null("fault_plan.add", "fault");
    }
    IST_RETURN_IF_ERROR(fault_size_check(fault));
    ist_fault checked = *fault;
    sim_fault_flaw flaw;
    if (!sim_fault_check(&checked, &flaw)) {
        return raise_flaw(&flaw);
    }
    return sim_plan_append(plan, &checked);
}

uint32_t ist_fault_plan_count(const ist_fault_plan *plan)
{
    return plan == NULL || plan->magic != SIM_PLAN_MAGIC ? 0 : plan->count;
}

ist_status ist_fault_plan_get(const ist_fault_plan *plan, uint32_t index, ist_fault *fault)
{
    IST_RETURN_IF_ERROR(sim_plan_usable(plan, "fault_plan.get"));
    if (fault == NULL) {
        return sim_plan_null("fault_plan.get", "fault");
    }
    ist_error details = details_for("fault_plan.get", "index");
    if (index >= plan->count) {
        details.observed = index;
        details.expected = plan->count;
        return ist_raise(IST_ERR_RANGE, &details, "index is %u, the plan has %u faults", index,
                         plan->count);
    }
    const uint32_t size = fault->size;
    if (size < 8) {
        details = details_for("fault_plan.get", "fault.size");
        details.observed = size;
        details.expected = sizeof *fault;
        return ist_raise(IST_ERR_SIZE, &details, "fault.size is %u, expected %zu", size,
                         sizeof *fault);
    }
    memcpy(fault, &plan->faults[index], size < sizeof *fault ? size : sizeof *fault);
    fault->size = size;
    return IST_OK;
}
