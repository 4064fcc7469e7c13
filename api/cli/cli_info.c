/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus info`: versions, backends and why one cannot be used, settings in force, and
 * this machine.
 */
#include "cli.h"
#include "cli_host.h"

#include <getopt.h>
#include <isthmus/version.h>
#include <isthmus/world.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "info"

static const char help[] =
    "usage: isthmus info [OPTION...]\n"
    "\n"
    "Shows versions, which backends can be used here and why others cannot, what they can do here\n"
    "with a reason for every no, the settings that environment variables make, and this machine.\n"
    "\n"
    "options:\n"
    "  --json       one JSON object\n"
    "  -h, --help   this text\n"
    "\n"
    "examples:\n"
    "  isthmus info\n"
    "  IST_BACKEND=sim isthmus info --json\n";

/* X(variable, what it decides, what holds when it is not set) */
#define SETTING_LIST(X)                                                                            \
    X("IST_BACKEND", "backend when a program names none", "first usable but sim")                  \
    X("IST_LAUNCH", "ranks as processes: mpi, none", "as the launcher's variables say")            \
    X("IST_CHECK", "contract checks: calls, peers", "calls")                                       \
    X("IST_LOG", "log level: none, error, warn, info, trace", "library default")                   \
    X("IST_CALL_FAULTS", "calls that fail on purpose", "none")                                     \
    X("IST_CUDA_LSA", "most ranks of a load/store team on GPUs; 1: all over GIN", "no limit")      \
    X("IST_PEER_ACCESS",                                                                           \
      "worst path over which GPUs load and store: NVL, PIX, PXB, PHB, NODE, SYS",                  \
      "SYS, whatever the driver maps")                                                             \
    X("IST_TOPOLOGY", "topology that communicators choose by: a file, a line, live, off",          \
      "live on GPUs, the cluster in the simulator")                                                \
    X("IST_CUDA_NCCL", "file of NCCL, for one of several releases", "libnccl.so.2 as found")

typedef struct setting {
    const char *name;
    const char *meaning;
    const char *otherwise;
} setting;

static const setting settings[] = {
#define X(name, meaning, otherwise) {name, meaning, otherwise},
    SETTING_LIST(X)
#undef X
};
#define SETTING_COUNT (sizeof settings / sizeof *settings)

static const char *value_of(const setting *row, bool *set)
{
    const char *value = getenv(row->name);
    *set = value != NULL && *value != '\0';
    return *set ? value : row->otherwise;
}

static bool backend_at(uint32_t index, const char **name, const char **reason)
{
    return ist_backend_query(index, name, reason) == IST_OK;
}

static bool feature_at(uint32_t backend, uint32_t index, ist_feature *feature)
{
    *feature = (ist_feature){.size = sizeof(*feature)};
    return ist_backend_feature(backend, index, feature) == IST_OK;
}

/* ------------------------------------------------------------------------------------ text */

/* "cuda: what it can do here" */
static void print_features(void)
{
    const char *name;
    const char *reason;
    for (uint32_t i = 0; backend_at(i, &name, &reason); ++i) {
        ist_feature feature;
        for (uint32_t k = 0; feature_at(i, k, &feature); ++k) {
            if (k == 0) {
                printf("\nfeatures of %s\n", name);
            }
            printf("  %-20s %s%s\n", feature.name, feature.value != NULL ? feature.value : "no: ",
                   feature.value != NULL ? "" : feature.reason);
        }
    }
}

static int print_text(const char *host)
{
    const char *name;
    const char *reason;
    printf("isthmus %s (command built for %d.%d.%d)\n", ist_version_string(), IST_VERSION_MAJOR,
           IST_VERSION_MINOR, IST_VERSION_PATCH);
    printf("\nbackends\n");
    for (uint32_t i = 0; backend_at(i, &name, &reason); ++i) {
        printf("  %-16s %s%s\n", name,
               reason == NULL ? "usable" : "not usable: ", reason == NULL ? "" : reason);
    }
    print_features();
    printf("\nsettings\n");
    for (size_t i = 0; i < SETTING_COUNT; ++i) {
        bool set;
        const char *value = value_of(&settings[i], &set);
        printf("  %-16s %s%s  (%s)\n", settings[i].name, set ? "" : "not set: ", value,
               settings[i].meaning);
    }
    printf("\nmachine\n  %s\n", *host == '\0' ? "unknown" : host);
    return cli_put(COMMAND, "");
}

/* ------------------------------------------------------------------------------------ JSON */

/* {"name": {"value": …, "reason": …}}; NULL when out of memory */
static json_t *feature_list(uint32_t backend)
{
    ist_feature feature;
    json_t *object = json_object();
    for (uint32_t k = 0; object != NULL && feature_at(backend, k, &feature); ++k) {
        json_t *entry = json_pack("{s:s?, s:s?}", "value", feature.value, "reason", feature.reason);
        if (json_object_set_new(object, feature.name, entry) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static json_t *backend_list(void)
{
    const char *name;
    const char *reason;
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && backend_at(i, &name, &reason); ++i) {
        json_t *entry = json_pack("{s:s, s:b, s:s?, s:o}", "name", name, "usable", reason == NULL,
                                  "reason", reason, "features", feature_list(i));
        if (json_array_append_new(list, entry) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *setting_list(void)
{
    json_t *object = json_object();
    for (size_t i = 0; object != NULL && i < SETTING_COUNT; ++i) {
        bool set;
        const char *value = value_of(&settings[i], &set);
        json_t *entry = json_pack("{s:s, s:b}", "value", value, "set", set);
        if (json_object_set_new(object, settings[i].name, entry) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static int print_json(const char *host)
{
    json_t *answer =
        json_pack("{s:s, s:s, s:b, s:i, s:s, s:o, s:o, s:s}", "isthmus", ist_version_string(),
                  "command", COMMAND, "ok", 1, "seed", 0, "digest", "", "backends", backend_list(),
                  "settings", setting_list(), "machine", host);
    char *text = answer == NULL ? NULL : json_dumps(answer, JSON_INDENT(2));
    json_decref(answer);
    if (text == NULL) {
        return cli_failed(COMMAND, "out of memory");
    }
    int status = printf("%s\n", text) < 0 ? CLI_FAILED : cli_put(COMMAND, "");
    free(text);
    return status;
}

int cli_info_command(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", 0, NULL, 'j'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool json = false;
    int found;
    char host[128];
    optind = 0;
    while ((found = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
        if (found == 'h') {
            return cli_put(COMMAND, help);
        }
        if (found != 'j') {
            return cli_usage(COMMAND, "unknown option '%s'", argv[optind - 1]);
        }
        json = true;
    }
    if (optind < argc) {
        return cli_usage(COMMAND, "unexpected argument '%s'", argv[optind]);
    }
    cli_host_describe(host, sizeof host);
    return json ? print_json(host) : print_text(host);
}
