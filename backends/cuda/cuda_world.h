/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs worlds: one thread a GPU in this process, or this process's rank among others.
 */
#ifndef CUDA_WORLD_H
#define CUDA_WORLD_H

#include <isthmus/backend.h>

ist_status cuda_world_run(const ist_backend_world *setup, ist_world_result *result);

#endif
