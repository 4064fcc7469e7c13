/* SPDX-License-Identifier: Apache-2.0 */
/* Sums results up, in the order of their places. */
#include "cli_explore.h"

#include "cli_hash.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ sets */

static bool set_grow(cli_explore_set *set)
{
    cli_explore_set bigger = {.room = set->room == 0 ? 1024u : set->room * 2u};
    bigger.slots = calloc((size_t)bigger.room, sizeof *bigger.slots);
    if (bigger.slots == NULL) {
        return false;
    }
    for (uint64_t i = 0; i < set->room; ++i) {
        uint64_t value = set->slots[i];
        for (uint64_t at = cli_mix(value); value != 0; ++at) {
            if (bigger.slots[at & (bigger.room - 1u)] == 0) {
                bigger.slots[at & (bigger.room - 1u)] = value;
                break;
            }
        }
    }
    bigger.count = set->count;
    free(set->slots);
    *set = bigger;
    return true;
}

/* 0 stands for an empty slot, so a value of 0 counts as 1. */
static bool set_add(cli_explore_set *set, uint64_t value)
{
    value = value == 0 ? 1u : value;
    if (set->count * 2u >= set->room && !set_grow(set)) {
        return false;
    }
    uint64_t at = cli_mix(value) & (set->room - 1u);
    while (set->slots[at] != 0 && set->slots[at] != value) {
        at = (at + 1u) & (set->room - 1u);
    }
    set->count += set->slots[at] == 0;
    set->slots[at] = value;
    return true;
}

static bool set_add_text(cli_explore_set *set, const char *text)
{
    char digits[17] = "";
    for (; text != NULL && strlen(text) >= 16u; text += 16) {
        memcpy(digits, text, 16);
        if (!set_add(set, strtoull(digits, NULL, 16))) {
            return false;
        }
    }
    return text != NULL && *text == '\0';
}

/* ------------------------------------------------------------------------------------ totals */

bool cli_explore_total_init(cli_explore_total *total)
{
    memset(total, 0, sizeof *total);
    total->failures = json_array();
    return total->failures != NULL;
}

void cli_explore_total_free(cli_explore_total *total)
{
    free(total->digests.slots);
    free(total->shapes.slots);
    json_decref(total->failures);
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void add_sum(cli_explore_sum *sum, const json_t *result)
{
    sum->schedules += number_of(result, "done");
    sum->device_ops += number_of(result, "device_ops");
    sum->device_calls += number_of(result, "device_calls");
    sum->steps += number_of(result, "steps");
    sum->choice_points += number_of(result, "choice_points");
    sum->switches += number_of(result, "switches");
    sum->failures += number_of(result, "failed");
}

/* A failure of a kind that is known is counted; else it is kept. */
static bool add_failure(cli_explore_total *total, json_t *failure)
{
    size_t index;
    json_t *known;
    json_array_foreach(total->failures, index, known)
    {
        if (json_equal(json_object_get(known, "signature"),
                       json_object_get(failure, "signature")) &&
            json_equal(json_object_get(known, "scenario"), json_object_get(failure, "scenario"))) {
            json_int_t count = json_integer_value(json_object_get(known, "count"));
            return json_object_set_new(known, "count", json_integer(count + 1)) == 0;
        }
    }
    json_t *copy = json_deep_copy(failure);
    return copy != NULL && json_object_set_new(copy, "count", json_integer(1)) == 0 &&
           json_array_append_new(total->failures, copy) == 0;
}

static bool add_failures(cli_explore_total *total, const json_t *result)
{
    size_t index;
    json_t *failure;
    json_array_foreach(json_object_get(result, "failures"), index, failure)
    {
        if (!add_failure(total, failure)) {
            return false;
        }
    }
    return true;
}

static void add_faults(cli_explore_total *total, const json_t *result)
{
    for (uint32_t kind = 0; kind < EXPLORE_FAULT_COUNT; ++kind) {
        total->of_faults[kind] +=
            number_of(json_object_get(result, "faults"), explore_fault_name((explore_fault)kind));
    }
}

bool cli_explore_take(const cli_explore *options, cli_explore_total *total, const json_t *result)
{
    uint32_t count = (uint32_t)number_of(result, "count");
    if (!json_is_object(result) || number_of(result, "place") != total->next || count == 0 ||
        count > CLI_EXPLORE_BLOCK) {
        return false;
    }
    uint64_t index = total->next / CLI_EXPLORE_BLOCK % options->scenario_count;
    add_sum(&total->all, result);
    add_sum(&total->scenarios[index], result);
    add_faults(total, result);
    bool good = add_failures(total, result);
    good = set_add_text(&total->digests, json_string_value(json_object_get(result, "digests"))) &&
           good;
    good =
        set_add_text(&total->shapes, json_string_value(json_object_get(result, "shapes"))) && good;
    total->stopped =
        json_array_size(json_object_get(result, "failures")) > 0 && !options->keep_going;
    total->next = cli_explore_behind(options, total->next, count);
    return good;
}
