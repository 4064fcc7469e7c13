/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault plans: reading them, and deciding about an operation. The decision depends on the rule and
 * the operation's name alone: no clock, no state, no common generator.
 */
#include "gin_fault.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 65536 };

typedef struct reader {
    const char *at;
    const char *begin;
    char *problem;
    size_t problem_bytes;
} reader;

__attribute__((format(printf, 2, 3))) static bool fail(reader *read, const char *format, ...)
{
    va_list arguments;
    int used = snprintf(read->problem, read->problem_bytes,
                        "fault plan, byte %zu: ", (size_t)(read->at - read->begin));
    if (used > 0 && (size_t)used < read->problem_bytes) {
        va_start(arguments, format);
        (void)vsnprintf(read->problem + used, read->problem_bytes - (size_t)used, format,
                        arguments);
        va_end(arguments);
    }
    return false;
}

/* Blanks and comments; line ends only with `lines`. */
static void skip(reader *read, bool lines)
{
    for (;;) {
        if (*read->at == '#') {
            read->at += strcspn(read->at, "\n");
        } else if (*read->at != '\0' && isspace((unsigned char)*read->at) &&
                   (lines || *read->at != '\n')) {
            ++read->at;
        } else if (lines && *read->at == ';') {
            ++read->at;
        } else {
            return;
        }
    }
}

static bool word(reader *read, char *text, size_t bytes)
{
    size_t length = 0;
    skip(read, false);
    while (isalnum((unsigned char)read->at[length]) || read->at[length] == '_' ||
           read->at[length] == '-') {
        ++length;
    }
    if (length == 0 || length >= bytes) {
        return fail(read, "a name is expected");
    }
    memcpy(text, read->at, length);
    text[length] = '\0';
    read->at += length;
    skip(read, false);
    return true;
}

static bool number(reader *read, uint64_t *value)
{
    char *end = NULL;
    skip(read, false);
    if (strncmp(read->at, "all", 3) == 0 || strncmp(read->at, "any", 3) == 0) {
        *value = UINT64_MAX;
        read->at += 3;
    } else {
        *value = isdigit((unsigned char)*read->at) ? strtoull(read->at, &end, 0) : 0;
        if (end == NULL || end == read->at) {
            return fail(read, "a number is expected, or any, or all");
        }
        read->at = end;
    }
    skip(read, false);
    return true;
}

static bool read_kind(reader *read, gin_rule *rule)
{
    static const char *const kinds[] = {"drop",          "drop-data", "drop-signal",
                                        "double-signal", "delay",     "error"};
    char text[32];
    if (!word(read, text, sizeof(text))) {
        return false;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
        if (strcmp(text, kinds[i]) == 0) {
            rule->kind = (gin_fault_kind)i;
            return true;
        }
    }
    return fail(read, "there is no fault named %s", text);
}

static uint64_t *field(gin_rule *rule, const char *key)
{
    const struct {
        const char *key;
        uint64_t *field;
    } fields[] = {{"rank", &rule->rank},      {"peer", &rule->peer},   {"context", &rule->context},
                  {"op", &rule->op},          {"count", &rule->count}, {"every", &rule->every},
                  {"one_in", &rule->one_in},  {"seed", &rule->seed},   {"rounds", &rule->rounds},
                  {"queries", &rule->queries}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        if (strcmp(key, fields[i].key) == 0) {
            return fields[i].field;
        }
    }
    return NULL;
}

static bool read_field(reader *read, gin_rule *rule)
{
    char key[32];
    if (!word(read, key, sizeof(key))) {
        return false;
    }
    uint64_t *value = field(rule, key);
    if (value == NULL) {
        return fail(read, "a rule has no %s", key);
    }
    if (*read->at != '=') {
        return fail(read, "= is expected behind %s", key);
    }
    ++read->at;
    return number(read, value);
}

static bool read_rule(reader *read, gin_rule *rule)
{
    *rule = (gin_rule){.rank = UINT64_MAX,
                       .peer = UINT64_MAX,
                       .context = UINT64_MAX,
                       .op = UINT64_MAX,
                       .count = 0,
                       .every = 1,
                       .one_in = 1,
                       .seed = 1};
    if (!read_kind(read, rule)) {
        return false;
    }
    bool more = *read->at == ':';
    while (more) {
        ++read->at;
        if (!read_field(read, rule)) {
            return false;
        }
        more = *read->at == ',';
    }
    if (*read->at != '\0' && *read->at != ';' && *read->at != '\n') {
        return fail(read, "a rule ends with ; or the line");
    }
    if (rule->every == 0 || rule->one_in == 0) {
        return fail(read, "every and one_in are at least 1");
    }
    /* One operation where one is named, else all. */
    if (rule->count == 0) {
        rule->count = rule->op == UINT64_MAX ? UINT64_MAX : 1;
    }
    rule->op = rule->op == UINT64_MAX ? 0 : rule->op;
    return true;
}

bool gin_plan_read(const char *text, gin_plan *plan, char *problem, size_t problem_bytes)
{
    reader read = {.at = text != NULL ? text : "", .problem = problem};
    read.begin = read.at;
    read.problem_bytes = problem_bytes;
    plan->count = 0;
    for (skip(&read, true); *read.at != '\0'; skip(&read, true)) {
        if (plan->count == GIN_RULES_MAX) {
            return fail(&read, "%d rules are the most", GIN_RULES_MAX);
        }
        if (!read_rule(&read, &plan->rules[plan->count])) {
            return false;
        }
        ++plan->count;
    }
    return true;
}

static bool read_file(const char *path, gin_plan *plan, char *problem, size_t problem_bytes)
{
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(TEXT_BYTES_MAX + 1u) : NULL;
    size_t got = text != NULL ? fread(text, 1, TEXT_BYTES_MAX, file) : 0;
    bool read = text != NULL && ferror(file) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (read) {
        text[got] = '\0';
        read = gin_plan_read(text, plan, problem, problem_bytes);
    } else {
        (void)snprintf(problem, problem_bytes, "fault plan: %s cannot be read", path);
    }
    free(text);
    return read;
}

bool gin_plan_load(gin_plan *plan, char *problem, size_t problem_bytes)
{
    const char *text = getenv("ISTHMUS_GIN_FAULTS");
    return text != NULL && text[0] == '@' ? read_file(text + 1, plan, problem, problem_bytes)
                                          : gin_plan_read(text, plan, problem, problem_bytes);
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* Splitmix64 (Steele, Lea, Flood, 2014), one step. */
static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t draw(uint64_t seed, const gin_op_name *op)
{
    return mix(mix(mix(mix(mix(seed) ^ op->rank) ^ op->peer) ^ op->context) ^ op->number);
}

static bool names(uint64_t rule, uint64_t value)
{
    return rule == UINT64_MAX || rule == value;
}

static bool strikes(const gin_rule *rule, const gin_op_name *op)
{
    if (!names(rule->rank, op->rank) || !names(rule->peer, op->peer) ||
        !names(rule->context, op->context) || op->number < rule->op) {
        return false;
    }
    uint64_t behind = op->number - rule->op;
    return behind / rule->every < rule->count && behind % rule->every == 0 &&
           (rule->one_in == 1 || draw(rule->seed, op) % rule->one_in == 0);
}

gin_verdict gin_plan_decide(const gin_plan *plan, const gin_op_name *op)
{
    gin_verdict verdict = {0};
    for (uint32_t i = 0; i < plan->count; ++i) {
        const gin_rule *rule = &plan->rules[i];
        if (!strikes(rule, op)) {
            continue;
        }
        gin_fault_kind kind = rule->kind;
        bool all = kind == GIN_FAULT_DROP || kind == GIN_FAULT_ERROR;
        verdict.drop_data |= all || kind == GIN_FAULT_DROP_DATA;
        verdict.drop_signal |= all || kind == GIN_FAULT_DROP_SIGNAL;
        verdict.double_signal |= kind == GIN_FAULT_DOUBLE;
        verdict.rounds += kind == GIN_FAULT_DELAY ? rule->rounds : 0;
        if (kind == GIN_FAULT_ERROR) {
            verdict.error = true;
            verdict.queries = rule->queries;
        }
    }
    return verdict;
}
