/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing cases: all that a run depends on, as a struct and as a replay file (JSON, one stable text).
 */
#include "sim_explore.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SIM_CASE_VERSION 1

static const char *const sim_scheduler_names[] = {"fair", "random", "pct", "replay"};

/* ---- life ------------------------------------------------------------------------------------ */

ist_status ist_case_open(ist_case **opened)
{
    if (opened == NULL) {
        return ist_raise(IST_ERR_NULL, NULL, "opened is NULL");
    }
    ist_case *which = ist_alloc(1, sizeof(*which));
    if (which == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a case");
    }
    which->size = sizeof(*which);
    which->scheduler = IST_SCHEDULER_RANDOM;
    *opened = which;
    return IST_OK;
}

void ist_case_close(ist_case *which)
{
    if (which != NULL) {
        ist_free(which->choices);
        ist_fault_plan_close(which->faults);
        ist_free(which);
    }
}

/* What a caller asks for beside the case. */
static void sim_case_given(const ist_sim_desc *sim, ist_explore_desc *explore)
{
    bool given = sim != NULL &&
                 sim->size >= offsetof(ist_sim_desc, explore) + sizeof(sim->explore) &&
                 sim->explore != NULL;
    memset(explore, 0, sizeof(*explore));
    if (given) {
        uint32_t bytes = sim->explore->size;
        memcpy(explore, sim->explore, bytes < sizeof(*explore) ? bytes : sizeof(*explore));
    }
    explore->size = sizeof(*explore);
}

ist_status ist_case_world(const ist_case *which, const ist_world_desc *desc, ist_rank_fn rank_main,
                          void *arg, ist_explore_report *report)
{
    if (which == NULL) {
        return ist_raise(IST_ERR_NULL, NULL, "which is NULL");
    }
    ist_world_desc world;
    memset(&world, 0, sizeof(world));
    if (desc != NULL) {
        memcpy(&world, desc, desc->size < sizeof(world) ? desc->size : sizeof(world));
    }
    ist_explore_desc explore;
    sim_case_given(world.sim, &explore);
    explore.scheduler = which->scheduler;
    explore.depth = which->depth;
    explore.steps = which->steps;
    explore.choices = which->choices;
    explore.choice_count = which->choice_count;
    explore.detectors_off |= which->detectors_off;
    explore.options |= which->options;
    world.size = sizeof(world);
    world.seed = which->seed;
    world.faults = which->faults;
    return ist_explore_run(&world, rank_main, arg, &explore, report);
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *sim_case_params(const ist_case *which)
{
    json_t *params = json_object();
    for (uint32_t i = 0; i < which->param_count && i < IST_CASE_PARAMS_MAX; ++i) {
        (void)json_object_set_new(
            params, which->names[i],
            json_pack("[I,I]", (json_int_t)which->params[i], (json_int_t)which->least[i]));
    }
    return params;
}

static json_t *sim_case_choices(const ist_case *which)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < which->choice_count; ++i) {
        (void)json_array_append_new(choices, json_pack("[I,I]", (json_int_t)which->choices[i].at,
                                                       (json_int_t)which->choices[i].pick));
    }
    return choices;
}

static ist_status sim_case_faults(const ist_case *which, json_t **faults)
{
    size_t needed = 0;
    *faults = NULL;
    if (which->faults == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_fault_plan_print(which->faults, NULL, 0, &needed));
    char *text = ist_alloc(needed, 1);
    if (text == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a fault plan of %zu bytes", needed);
    }
    ist_status status = ist_fault_plan_print(which->faults, text, needed, NULL);
    *faults = status == IST_OK ? json_loads(text, 0, NULL) : NULL;
    ist_free(text);
    return status;
}

/* Numbers that JSON's 53 bits do not hold are written in hex. */
static json_t *sim_case_hex(uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
    return json_string(text);
}

static ist_status sim_case_json(const ist_case *which, json_t **root)
{
    json_t *faults = NULL;
    IST_RETURN_IF_ERROR(sim_case_faults(which, &faults));
    *root =
        json_pack("{s:i, s:s, s:o, s:o, s:s, s:i, s:i, s:o, s:s, s:s, s:o, s:I}", "isthmus_case",
                  SIM_CASE_VERSION, "scenario", which->scenario, "params", sim_case_params(which),
                  "seed", sim_case_hex(which->seed), "scheduler",
                  sim_scheduler_names[(uint32_t)which->scheduler & 3u], "depth", (int)which->depth,
                  "steps", (int)which->steps, "choices", sim_case_choices(which), "finding",
                  ist_finding_name(which->kind), "status", ist_status_name(which->status), "digest",
                  sim_case_hex(which->digest), "device_ops", (json_int_t)which->device_op_count);
    if (*root != NULL && faults != NULL) {
        (void)json_object_set_new(*root, "faults", faults);
    }
    if (*root != NULL && which->detectors_off != 0) {
        (void)json_object_set_new(*root, "detectors_off", json_integer(which->detectors_off));
    }
    if (*root != NULL && which->options != 0) {
        (void)json_object_set_new(*root, "options", json_integer(which->options));
    }
    return *root != NULL ? IST_OK : ist_raise(IST_ERR_MEMORY, NULL, "no memory to write a case");
}

ist_status ist_case_print(const ist_case *which, char *text, size_t capacity, size_t *needed)
{
    json_t *root = NULL;
    if (which == NULL) {
        return ist_raise(IST_ERR_NULL, NULL, "which is NULL");
    }
    IST_RETURN_IF_ERROR(sim_case_json(which, &root));
    char *made = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(root);
    if (made == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory to write a case");
    }
    size_t bytes = strlen(made) + 1u;
    if (needed != NULL) {
        *needed = bytes;
    }
    bool fits = capacity >= bytes && text != NULL;
    if (fits) {
        memcpy(text, made, bytes);
    }
    json_free_t release = NULL;
    json_get_alloc_funcs(NULL, &release);
    release(made);
    return fits || capacity == 0
               ? IST_OK
               : ist_raise(IST_ERR_SIZE, NULL, "a case needs %zu bytes, not %zu", bytes, capacity);
}

/* ---- reading --------------------------------------------------------------------------------- */

static ist_status sim_case_wrong(const char *key)
{
    return ist_raise(IST_ERR_PARSE, NULL, "the replay file's \"%s\" is missing or wrong", key);
}

static bool sim_case_unhex(const json_t *root, const char *key, uint64_t *value)
{
    const char *text = json_string_value(json_object_get(root, key));
    unsigned long long read = 0;
    int used = 0;
    if (text == NULL || sscanf(text, "%16llx%n", &read, &used) != 1 || text[used] != '\0') {
        return false;
    }
    *value = read;
    return true;
}

static bool sim_case_pair(const json_t *pair, uint64_t *first, uint64_t *second)
{
    const json_t *one = json_array_get(pair, 0);
    const json_t *other = json_array_get(pair, 1);
    if (!json_is_integer(one) || !json_is_integer(other) || json_integer_value(one) < 0 ||
        json_integer_value(other) < 0) {
        return false;
    }
    *first = (uint64_t)json_integer_value(one);
    *second = (uint64_t)json_integer_value(other);
    return true;
}

static ist_status sim_case_read_params(json_t *root, ist_case *which)
{
    const char *name = NULL;
    json_t *pair = NULL;
    json_object_foreach(json_object_get(root, "params"), name, pair)
    {
        uint32_t at = which->param_count;
        if (at == IST_CASE_PARAMS_MAX || strlen(name) >= sizeof(which->names[0]) ||
            !sim_case_pair(pair, &which->params[at], &which->least[at])) {
            return sim_case_wrong("params");
        }
        (void)snprintf(which->names[at], sizeof(which->names[at]), "%s", name);
        ++which->param_count;
    }
    return IST_OK;
}

static ist_status sim_case_read_choices(const json_t *root, ist_case *which)
{
    const json_t *choices = json_object_get(root, "choices");
    size_t count = json_array_size(choices);
    if (!json_is_array(choices) || count > UINT32_MAX / 2u) {
        return sim_case_wrong("choices");
    }
    which->choices = ist_alloc(count == 0 ? 1 : count, sizeof(*which->choices));
    if (which->choices == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %zu choices", count);
    }
    for (size_t i = 0; i < count; ++i) {
        uint64_t at = 0;
        uint64_t pick = 0;
        if (!sim_case_pair(json_array_get(choices, i), &at, &pick) || at > UINT32_MAX ||
            pick > UINT32_MAX) {
            return sim_case_wrong("choices");
        }
        which->choices[i] = (ist_choice){(uint32_t)at, (uint32_t)pick};
    }
    which->choice_count = (uint32_t)count;
    return IST_OK;
}

static ist_status sim_case_read_faults(const json_t *root, ist_case *which)
{
    const json_t *faults = json_object_get(root, "faults");
    if (faults == NULL) {
        return IST_OK;
    }
    char *text = json_dumps(faults, JSON_COMPACT);
    if (text == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the faults of a case");
    }
    ist_status status = ist_fault_plan_open(&which->faults);
    status = status == IST_OK ? ist_fault_plan_parse(which->faults, text) : status;
    json_free_t release = NULL;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return status;
}

static uint32_t sim_name_index(const json_t *root, const char *key, const char *const *names,
                               uint32_t count)
{
    const char *text = json_string_value(json_object_get(root, key));
    uint32_t at = 0;
    while (text != NULL && at < count && strcmp(names[at], text) != 0) {
        ++at;
    }
    return text == NULL ? count : at;
}

#define X(name, value, text) text,
static const char *const sim_kind_names[] = {IST_FINDING_LIST(X)};
#undef X
#define X(name, value, sentence) {#name, value},
static const struct {
    const char *name;
    int value;
} sim_statuses[] = {IST_STATUS_LIST(X)};
#undef X

static ist_status sim_case_read_outcome(const json_t *root, ist_case *which)
{
    const uint32_t kinds = sizeof(sim_kind_names) / sizeof(*sim_kind_names);
    uint32_t kind = sim_name_index(root, "finding", sim_kind_names, kinds);
    if (kind == kinds) {
        return sim_case_wrong("finding");
    }
    which->kind = (ist_finding_kind)kind;
    const char *status = json_string_value(json_object_get(root, "status"));
    for (uint32_t i = 0; status != NULL && i < sizeof(sim_statuses) / sizeof(*sim_statuses); ++i) {
        if (strcmp(sim_statuses[i].name, status) == 0) {
            which->status = (ist_status)sim_statuses[i].value;
            status = NULL;
        }
    }
    which->device_op_count = (uint64_t)json_integer_value(json_object_get(root, "device_ops"));
    return sim_case_unhex(root, "digest", &which->digest) ? IST_OK : sim_case_wrong("digest");
}

static ist_status sim_case_read(json_t *root, ist_case *which)
{
    const char *scenario = json_string_value(json_object_get(root, "scenario"));
    if (json_integer_value(json_object_get(root, "isthmus_case")) != SIM_CASE_VERSION) {
        return sim_case_wrong("isthmus_case");
    }
    if (scenario == NULL || strlen(scenario) >= sizeof(which->scenario)) {
        return sim_case_wrong("scenario");
    }
    (void)snprintf(which->scenario, sizeof(which->scenario), "%s", scenario);
    uint32_t scheduler = sim_name_index(root, "scheduler", sim_scheduler_names, 4);
    if (scheduler == 4) {
        return sim_case_wrong("scheduler");
    }
    which->scheduler = (ist_scheduler)scheduler;
    which->depth = (uint32_t)json_integer_value(json_object_get(root, "depth"));
    which->steps = (uint32_t)json_integer_value(json_object_get(root, "steps"));
    which->detectors_off = (uint32_t)json_integer_value(json_object_get(root, "detectors_off"));
    which->options = (uint32_t)json_integer_value(json_object_get(root, "options"));
    if (!sim_case_unhex(root, "seed", &which->seed)) {
        return sim_case_wrong("seed");
    }
    IST_RETURN_IF_ERROR(sim_case_read_params(root, which));
    IST_RETURN_IF_ERROR(sim_case_read_choices(root, which));
    IST_RETURN_IF_ERROR(sim_case_read_faults(root, which));
    return sim_case_read_outcome(root, which);
}

ist_status ist_case_parse(const char *text, ist_case **opened)
{
    json_error_t error;
    ist_case *which = NULL;
    if (text == NULL || opened == NULL) {
        return ist_raise(IST_ERR_NULL, NULL, "%s is NULL", text == NULL ? "text" : "opened");
    }
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return ist_raise(IST_ERR_PARSE, NULL, "the replay file is no JSON: line %d, column %d: %s",
                         error.line, error.column, error.text);
    }
    ist_status status = ist_case_open(&which);
    status = status == IST_OK ? sim_case_read(root, which) : status;
    json_decref(root);
    if (status != IST_OK) {
        ist_case_close(which);
        return status;
    }
    *opened = which;
    return IST_OK;
}
