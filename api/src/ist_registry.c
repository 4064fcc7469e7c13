/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of backends, in order of preference, and the choice among them. CUDA's module is opened
 * only when it may be chosen or is asked about, so that naming the simulator loads nothing.
 */
#include "ist_registry.h"

#include "ist_builtin.h"
#include "ist_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKEND_COUNT_MAX 16u
#define REASON_BYTES 256u
/* Of ist_backend without what was appended later. */
#define BACKEND_BYTES_FIRST offsetof(ist_backend, feature)
#define FEATURE_BYTES_FIRST sizeof(ist_feature)
#define CUDA_NAME "cuda"

typedef struct entry {
    const char *name;
    const ist_backend *backend; /* NULL: a module not opened, or that cannot be */
    bool module;                /* to be opened when needed */
    bool tried;
    char reason[REASON_BYTES];
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry entries[BACKEND_COUNT_MAX];
static uint32_t entry_count;

static ist_status bad_backend(ist_status status, const char *object, const char *message)
{
    return ist_fail(NULL, status, object, "backend.register", "%s", message);
}

ist_status ist_backend_check(const ist_backend *backend)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, backend, "backend", "backend.register"));
    if (backend->abi != IST_BACKEND_ABI) {
        return ist_fail_value(NULL, IST_ERR_ABI, "backend.abi", "backend.register", IST_BACKEND_ABI,
                              backend->abi, "backend.abi is %u, this library speaks %u",
                              backend->abi, IST_BACKEND_ABI);
    }
    if (backend->size < BACKEND_BYTES_FIRST) {
        return ist_fail_value(NULL, IST_ERR_ABI, "backend.size", "backend.register",
                              BACKEND_BYTES_FIRST, backend->size,
                              "backend.size is %u, at least %zu is required", backend->size,
                              BACKEND_BYTES_FIRST);
    }
    if (backend->name == NULL || backend->name[0] == '\0') {
        return bad_backend(IST_ERR_ARGUMENT, "backend.name", "backend.name is empty");
    }
    if (backend->probe == NULL || backend->world_run == NULL) {
        return bad_backend(IST_ERR_ABI, "backend", "backend.probe or backend.world_run is missing");
    }
    ist_backend_ops completed;
    return ist_backend_ops_complete(backend->ops, &completed);
}

static entry *add(const char *name, const ist_backend *backend, bool module)
{
    entry *added = &entries[entry_count++];
    added->name = name;
    added->backend = backend;
    added->module = module;
    return added;
}

/* Called with the lock held; order is preference. */
static void add_builtins(void)
{
    if (entry_count != 0) {
        return;
    }
    add(CUDA_NAME, NULL, true);
    add(ist_backend_sim.name, &ist_backend_sim, false);
}

static entry *find(const char *name)
{
    for (uint32_t i = 0; i < entry_count; ++i) {
        if (strcmp(entries[i].name, name) == 0) {
            return &entries[i];
        }
    }
    return NULL;
}

static ist_status add_registered(const ist_backend *backend)
{
    add_builtins();
    if (find(backend->name) != NULL) {
        return ist_fail(NULL, IST_ERR_ARGUMENT, "backend.name", "backend.register",
                        "the name \"%s\" is taken", backend->name);
    }
    if (entry_count == BACKEND_COUNT_MAX) {
        return ist_fail_value(NULL, IST_ERR_MEMORY, "backend", "backend.register",
                              BACKEND_COUNT_MAX, entry_count, "%u backends are the most",
                              BACKEND_COUNT_MAX);
    }
    add(backend->name, backend, false);
    return IST_OK;
}

ist_status ist_backend_register(const ist_backend *backend)
{
    IST_RETURN_IF_ERROR(ist_backend_check(backend));
    pthread_mutex_lock(&lock);
    ist_status status = add_registered(backend);
    pthread_mutex_unlock(&lock);
    return status;
}

static void open_module(entry *module)
{
    module->tried = true;
    const ist_backend *backend =
        ist_module_open(IST_MODULE_CUDA, IST_MODULE_CUDA_SYMBOL, module->reason, REASON_BYTES);
    if (backend == NULL) {
        return;
    }
    ist_status status = ist_backend_check(backend);
    if (status != IST_OK) {
        snprintf(module->reason, REASON_BYTES, "the module does not fit this library: %s",
                 ist_status_sentence(status));
        return;
    }
    module->backend = backend;
}

/* NULL when the backend can be used here, else why not. Called with the lock held. */
static const char *unusable_reason(entry *candidate)
{
    if (candidate->module && !candidate->tried) {
        open_module(candidate);
    }
    if (candidate->backend == NULL) {
        return candidate->reason;
    }
    const char *reason = NULL;
    if (candidate->backend->probe(&reason) == IST_OK) {
        return NULL;
    }
    return reason != NULL ? reason : "its probe failed";
}

ist_status ist_backend_query(uint32_t index, const char **name, const char **reason)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, name, "name", "backend.query"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, reason, "reason", "backend.query"));
    pthread_mutex_lock(&lock);
    add_builtins();
    ist_status status = IST_ERR_RANGE;
    if (index < entry_count) {
        *name = entries[index].name;
        *reason = unusable_reason(&entries[index]);
        status = IST_OK;
    }
    pthread_mutex_unlock(&lock);
    /* The end of the list is how a caller learns the count: no record, no log line. */
    return status;
}

static ist_status check_feature(const ist_feature *feature, ist_feature *checked)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, feature, "feature", "backend.feature"));
    IST_RETURN_IF_ERROR(ist_desc_read(NULL, feature, FEATURE_BYTES_FIRST, checked, sizeof(*checked),
                                      "feature", "backend.feature"));
    return ist_check_reserved(NULL, &checked->reserved, sizeof(checked->reserved),
                              "feature.reserved", "backend.feature");
}

/* Whether there is such a feature; filled then. Called with the lock held. */
static bool find_feature(entry *of, uint32_t index, ist_feature *filled)
{
    (void)unusable_reason(of); /* opens the module */
    const ist_backend *backend = of->backend;
    return backend != NULL && backend->size >= sizeof(*backend) && backend->feature != NULL &&
           backend->feature(index, filled);
}

ist_status ist_backend_feature(uint32_t backend, uint32_t index, ist_feature *feature)
{
    ist_feature checked;
    IST_RETURN_IF_ERROR(check_feature(feature, &checked));
    ist_feature filled = {.size = feature->size};
    pthread_mutex_lock(&lock);
    add_builtins();
    bool there = backend < entry_count && find_feature(&entries[backend], index, &filled);
    pthread_mutex_unlock(&lock);
    if (!there) {
        return IST_ERR_RANGE;
    }
    filled.size = feature->size;
    memcpy(feature, &filled, feature->size < sizeof(filled) ? feature->size : sizeof(filled));
    return IST_OK;
}

/* "cuda, sim" */
static void known_names(char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < entry_count && at < bytes; ++i) {
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i != 0 ? ", " : "", entries[i].name);
    }
}

static ist_status find_named(const char *name, const char *object, const ist_backend **backend)
{
    char known[96];
    known_names(known, sizeof(known));
    entry *named = find(name);
    if (named == NULL) {
        return ist_fail(NULL, IST_ERR_BACKEND, object, "world.run",
                        "%s names the backend \"%s\", known are: %s", object, name, known);
    }
    const char *reason = unusable_reason(named);
    if (reason != NULL) {
        return ist_fail(NULL, IST_ERR_BACKEND, object, "world.run",
                        "the backend \"%s\" cannot be used: %s; known are: %s", name, reason,
                        known);
    }
    *backend = named->backend;
    return IST_OK;
}

static ist_status find_first_usable(const ist_backend **backend)
{
    char why[192] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < entry_count; ++i) {
        if (entries[i].backend != NULL && entries[i].backend->explicit_only != 0) {
            continue;
        }
        const char *reason = unusable_reason(&entries[i]);
        if (reason == NULL) {
            *backend = entries[i].backend;
            return IST_OK;
        }
        if (at < sizeof(why)) {
            at += (size_t)snprintf(why + at, sizeof(why) - at, "; %s: %s", entries[i].name, reason);
        }
    }
    return ist_fail(NULL, IST_ERR_BACKEND, "desc.backend", "world.run",
                    "no backend can be used here unless named (IST_BACKEND=sim)%s", why);
}

static ist_status find_locked(const char *name, const ist_backend **backend)
{
    add_builtins();
    const char *variable = getenv("IST_BACKEND");
    if (name != NULL) {
        return find_named(name, "desc.backend", backend);
    }
    if (variable != NULL && variable[0] != '\0') {
        return find_named(variable, "IST_BACKEND", backend);
    }
    return find_first_usable(backend);
}

ist_status ist_registry_find(const char *name, const ist_backend **backend)
{
    pthread_mutex_lock(&lock);
    ist_status status = find_locked(name, backend);
    pthread_mutex_unlock(&lock);
    return status;
}
