/* SPDX-License-Identifier: Apache-2.0 */
/* Builds fault plans. The short form becomes JSON first, so that the library's parser is the only
 * judge of kinds, keys and values.
 */
#include "cli_faults.h"

#include "cli_text.h"

#include <isthmus/backend.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES_MAX 512u
/* Random faults strike behind the set-up, which no rank survives to lose, and within the steps. */
#define SETUP_OPS 60u
#define SETUP_NS UINT64_C(600000)
#define STEP_OPS 250u
#define RANDOM_STALL_NS UINT64_C(5000000)

static json_t *short_value(const char *key, char *value)
{
    uint64_t number;
    if (cli_parse_number(value, 0, INT64_MAX, &number)) {
        return json_integer((json_int_t)number);
    }
    if (strcmp(value, "-1") == 0) {
        return json_integer(-1);
    }
    if (strcmp(key, "classes") != 0) {
        return json_string(value);
    }
    json_t *array = json_array();
    char *rest = NULL;
    for (char *name = strtok_r(value, "+", &rest); name != NULL;
         name = strtok_r(NULL, "+", &rest)) {
        if (json_array_append_new(array, json_string(name)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* {"faults":[{"kind":…, key:value, …}]} */
static json_t *short_plan(char *text)
{
    char *rest = NULL;
    char *part = strtok_r(text, ":", &rest);
    json_t *fault = json_object();
    bool good = part != NULL && json_object_set_new(fault, "kind", json_string(part)) == 0;
    while (good && (part = strtok_r(NULL, ":", &rest)) != NULL) {
        char *value = strchr(part, '=');
        if (value == NULL) {
            good = false;
            break;
        }
        *value++ = '\0';
        good = json_object_set_new(fault, part, short_value(part, value)) == 0;
    }
    if (!good) {
        json_decref(fault);
        return NULL;
    }
    return json_pack("{s:[o]}", "faults", fault);
}

ist_status cli_faults_add_short(ist_fault_plan *plan, const char *text)
{
    char copy[SHORT_BYTES_MAX];
    if (strlen(text) >= sizeof copy) {
        return ist_raise(IST_ERR_PARSE, NULL, "a fault of %zu bytes is too long", strlen(text));
    }
    strcpy(copy, text);
    json_t *json = short_plan(copy);
    char *line = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    ist_status status = line == NULL
                            ? ist_raise(IST_ERR_PARSE, NULL, "'%s' is not KIND:KEY=VALUE:...", text)
                            : ist_fault_plan_parse(plan, line);
    free(line);
    json_decref(json);
    return status;
}

ist_status cli_faults_add(ist_fault_plan *plan, const char *text)
{
    return *text == '{' ? ist_fault_plan_parse(plan, text) : ist_fault_plan_load(plan, text);
}

/* Appends a drawn fault, moved behind the set-up. */
static ist_status add_moved(ist_fault_plan *plan, const ist_fault_plan *drawn, uint32_t index)
{
    ist_fault fault = {.size = sizeof fault};
    IST_RETURN_IF_ERROR(ist_fault_plan_get(drawn, index, &fault));
    if (fault.trigger == IST_FAULT_AT_OP) {
        fault.at_op += SETUP_OPS;
    }
    if (fault.trigger == IST_FAULT_AT_TIME) {
        fault.at_ns += SETUP_NS;
    }
    return ist_fault_plan_add(plan, &fault);
}

ist_status cli_faults_add_random(ist_fault_plan *plan, uint64_t seed, uint32_t rank_count,
                                 uint32_t iterations)
{
    ist_fault_budget budget = {
        .size = sizeof budget,
        .rank_count = rank_count,
        .kill_count_max = (rank_count - 1) / 3,
        .stall_count_max = rank_count > 2 ? 1 : 0,
        .transfer_count_max = 4,
        .link_count_max = 1,
        .horizon_ops = (uint64_t)STEP_OPS * iterations,
        .stall_ns_max = RANDOM_STALL_NS,
    };
    ist_fault_plan *drawn;
    IST_RETURN_IF_ERROR(ist_fault_plan_open(&drawn));
    ist_status status = ist_fault_plan_random(drawn, seed, &budget);
    for (uint32_t i = 0; status == IST_OK && i < ist_fault_plan_count(drawn); ++i) {
        status = add_moved(plan, drawn, i);
    }
    ist_fault_plan_close(drawn);
    return status;
}

char *cli_faults_text(const ist_fault_plan *plan)
{
    size_t needed = 0;
    char *text = NULL;
    /* Too small a buffer tells how much is needed. */
    if (ist_fault_plan_print(plan, NULL, 0, &needed) != IST_OK && needed == 0) {
        return NULL;
    }
    text = calloc(needed, 1);
    if (text != NULL && ist_fault_plan_print(plan, text, needed, NULL) != IST_OK) {
        free(text);
        return NULL;
    }
    return text;
}
