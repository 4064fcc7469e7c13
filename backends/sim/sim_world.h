/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, running and closing a simulated world; shared by the backend and the conductor.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "sim_internal.h"

ist_status sim_world_open(const ist_backend_world *setup, sim_world **world);
/* Runs all host programs to their end, then writes log and trace. */
ist_status sim_world_run(sim_world *world);
void sim_world_result(sim_world *world, ist_status status, ist_world_result *result);
void sim_world_close(sim_world *world);

#endif
