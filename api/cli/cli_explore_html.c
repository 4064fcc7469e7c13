/* SPDX-License-Identifier: Apache-2.0 */
/* A failing run as one self-contained page: the events that a watcher is told, as JSON, inside the text
 * of explore_report.html, which draws them.
 */
#include "cli.h"
#include "cli_explore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A page of more is no longer looked at. */
#define EVENTS_MAX 60000u
#define NAMES_MAX 256u

static const char speaker[] = "explore";

/* The page, made from explore_report.html when the command is built. */
extern const unsigned char cli_explore_page[];
extern const size_t cli_explore_page_bytes;

typedef struct page_event {
    ist_watched what;
    int name, kernel, phase; /* numbers of names, -1: none */
} page_event;

typedef struct page {
    page_event *events;
    uint32_t count, dropped;
    char names[NAMES_MAX][64];
    uint32_t name_count;
} page;

/* ------------------------------------------------------------------------------------ watching */

static int name_number(page *p, const char *name)
{
    if (name == NULL || *name == '\0') {
        return -1;
    }
    for (uint32_t i = 0; i < p->name_count; ++i) {
        if (strncmp(p->names[i], name, sizeof p->names[i] - 1u) == 0) {
            return (int)i;
        }
    }
    if (p->name_count == NAMES_MAX) {
        return -1;
    }
    (void)snprintf(p->names[p->name_count], sizeof p->names[0], "%s", name);
    return (int)p->name_count++;
}

static void watch(void *context, const ist_watched *what)
{
    page *p = context;
    if (p->count == EVENTS_MAX) {
        ++p->dropped;
        return;
    }
    p->events[p->count++] = (page_event){.what = *what,
                                         .name = name_number(p, what->name),
                                         .kernel = name_number(p, what->kernel),
                                         .phase = name_number(p, what->phase)};
}

/* ------------------------------------------------------------------------------------ JSON */

static json_t *access_json(const ist_access *access)
{
    return json_pack("{s:i, s:i, s:i, s:b, s:I, s:I, s:I, s:s, s:s, s:s}", "rank", access->rank,
                     "block", access->block, "owner", access->owner, "write", (int)access->write,
                     "offset", (json_int_t)access->offset, "bytes", (json_int_t)access->bytes,
                     "step", (json_int_t)access->step, "kernel", access->kernel, "call",
                     access->call, "phase", access->phase);
}

static json_t *finding_json(const ist_finding *finding)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "kind", ist_finding_name(finding->kind),
                     "status", ist_status_name(finding->status), "missing", finding->missing,
                     "text", finding->text, "first", access_json(&finding->first), "second",
                     access_json(&finding->second));
}

static json_t *names_json(const page *p)
{
    json_t *names = json_array();
    for (uint32_t i = 0; names != NULL && i < p->name_count; ++i) {
        (void)json_array_append_new(names, json_string(p->names[i]));
    }
    return names;
}

static json_t *faults_json(void)
{
    json_t *faults = json_object();
#define X(name, value, json)                                                                       \
    if (faults != NULL) {                                                                          \
        (void)json_object_set_new(faults, #value, json_string(json));                              \
    }
    IST_FAULT_LIST(X)
#undef X
    return faults;
}

static json_t *params_json(const ist_case *which, uint64_t *ranks)
{
    cli_text text = {.bytes = NULL};
    for (uint32_t i = 0; i < which->param_count; ++i) {
        cli_text_append(&text, "%s%s %" PRIu64, i == 0 ? "" : ", ", which->names[i],
                        which->params[i]);
        *ranks = strcmp(which->names[i], "ranks") == 0 ? which->params[i] : *ranks;
    }
    json_t *params = json_string(text.bytes == NULL ? "" : text.bytes);
    cli_text_free(&text);
    return params;
}

static json_t *plan_json(const ist_fault_plan *plan)
{
    char text[2048] = "";
    if (plan != NULL && ist_fault_plan_count(plan) > 0 &&
        ist_fault_plan_print(plan, text, sizeof text, NULL) != IST_OK) {
        (void)snprintf(text, sizeof text, "%u faults", ist_fault_plan_count(plan));
    }
    return json_string(text);
}

static json_t *head_json(const ist_case *which, const page *p, const ist_finding *finding,
                         const char *line)
{
    uint64_t ranks = 1;
    char seed[24];
    const explore_scenario *scenario = explore_scenario_find(which->scenario);
    json_t *params = params_json(which, &ranks);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, which->seed);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:I, s:i, s:o, s:o, s:o}", "scenario",
                     which->scenario, "about", scenario == NULL ? "" : scenario->about, "seed",
                     seed, "params", params, "plan", plan_json(which->faults), "line", line,
                     "ranks", (json_int_t)ranks, "dropped", (int)p->dropped, "names", names_json(p),
                     "faults", faults_json(), "finding", finding_json(finding));
}

/* "</" would end the script that holds the text. */
static void put_safely(FILE *file, const char *text)
{
    for (; *text != '\0'; ++text) {
        fputs(*text == '<' ? "\\u003c" : (char[2]){*text, '\0'}, file);
    }
}

static void put_events(FILE *file, const page *p)
{
    fputs("\"events\":[", file);
    for (uint32_t i = 0; i < p->count; ++i) {
        const page_event *one = &p->events[i];
        const ist_sim_event *event = &one->what.event;
        fprintf(file, "%s[%" PRIu64 ",%" PRIu64 ",%u,%d,%d,%u,\"0x%" PRIx64 "\",%d,%d,%d,%d,%d]",
                i == 0 ? "" : ",\n", one->what.step, event->at_ps / 1000u, event->kind, event->rank,
                event->peer, event->detail, event->value, one->what.actor, one->what.block,
                one->name, one->kernel, one->phase);
    }
    fputs("]}", file);
}

/* ------------------------------------------------------------------------------------ the page */

static const unsigned char *find_place(size_t *before)
{
    static const char mark[] = "@DATA@";
    for (*before = 0; *before + sizeof mark <= cli_explore_page_bytes; ++*before) {
        if (memcmp(cli_explore_page + *before, mark, sizeof mark - 1u) == 0) {
            return cli_explore_page + *before + sizeof mark - 1u;
        }
    }
    return NULL;
}

static bool put_page(FILE *file, const char *head, const page *p)
{
    size_t before = 0;
    const unsigned char *rest = find_place(&before);
    if (rest == NULL) {
        return false;
    }
    size_t left = cli_explore_page_bytes - (size_t)(rest - cli_explore_page);
    bool good = fwrite(cli_explore_page, 1, before, file) == before;
    char *open = strdup(head); /* the object goes on with the events */
    if (open == NULL) {
        return false;
    }
    open[strlen(open) - 1u] = ',';
    put_safely(file, open);
    free(open);
    put_events(file, p);
    return good && fwrite(rest, 1, left, file) == left && ferror(file) == 0;
}

static int write_page(const char *path, const char *head, const page *p)
{
    FILE *file = head == NULL ? NULL : fopen(path, "w");
    bool good = file != NULL && put_page(file, head, p);
    good = file != NULL && fclose(file) == 0 && good;
    return good ? CLI_OK : cli_failed(speaker, "%s cannot be written", path);
}

int cli_explore_write_html(const ist_case *which, const char *line, const char *path)
{
    page *p = calloc(1, sizeof *p);
    ist_explore_report report = {.size = sizeof report};
    if (p != NULL) {
        p->events = calloc(EVENTS_MAX, sizeof *p->events);
    }
    if (p == NULL || p->events == NULL) {
        free(p);
        return cli_failed(speaker, "out of memory");
    }
    explore_view view = {.replay = line, .watch = watch, .watch_context = p};
    (void)explore_case_run(which, &view, &report);
    json_t *object = head_json(which, p, &report.finding, line);
    char *head = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    int status = write_page(path, head, p);
    free(head);
    json_decref(object);
    free(p->events);
    free(p);
    return status;
}
