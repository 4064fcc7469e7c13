/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a backend that is a module of its own, so that the library needs none of the libraries
 * that the module needs.
 */
#include "ist_registry.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The folder of the file that holds this function: the library, or the program it is part of. */
static int beside_library(const char *file, char *path, size_t path_bytes)
{
    static const char anchor;
    Dl_info info;
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL) {
        return 0;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) {
        return 0;
    }
    int folder_bytes = (int)(slash - info.dli_fname);
    int length = snprintf(path, path_bytes, "%.*s/%s", folder_bytes, info.dli_fname, file);
    return length > 0 && (size_t)length < path_bytes;
}

static void *open_file(const char *file)
{
    char path[PATH_MAX];
    void *module = NULL;
    if (beside_library(file, path, sizeof(path))) {
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return module != NULL ? module : dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

const ist_backend *ist_module_open(const char *file, const char *symbol, char *reason,
                                   size_t reason_bytes)
{
    void *module = open_file(file);
    if (module == NULL) {
        const char *why = dlerror();
        snprintf(reason, reason_bytes, "the module cannot be opened: %s", why != NULL ? why : file);
        return NULL;
    }
    const ist_backend *backend = dlsym(module, symbol);
    if (backend == NULL) {
        snprintf(reason, reason_bytes, "the module %s has no symbol %s", file, symbol);
        dlclose(module);
    }
    return backend;
}
