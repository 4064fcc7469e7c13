/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends that the registry knows without being told: the one place that names them. The
 * simulator is part of the library, CUDA a module opened at run time.
 */
#ifndef IST_BUILTIN_H
#define IST_BUILTIN_H

#include <isthmus/backend.h>

extern const ist_backend ist_backend_sim;

#define IST_MODULE_CUDA "libisthmus_cuda.so.0"
#define IST_MODULE_CUDA_SYMBOL "ist_backend_cuda"

#endif
