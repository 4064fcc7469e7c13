/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a backend by name, or the first that can be used.
 */
#ifndef IST_REGISTRY_H
#define IST_REGISTRY_H

#include <isthmus/backend.h>

/*
 * Resolves a choice. `name` NULL: IST_BACKEND, else the first usable one that need not be named.
 * A named backend is that one or an error with the reason and the names that are known.
 */
ist_status ist_registry_find(const char *name, const ist_backend **backend);

/* Opens a module beside the library, or by the loader's own search. NULL and the reason otherwise.
   The module stays open. */
const ist_backend *ist_module_open(const char *file, const char *symbol, char *reason,
                                   size_t reason_bytes);

/* Checks what a backend says of itself, without adding it. */
ist_status ist_backend_check(const ist_backend *backend);

#endif
