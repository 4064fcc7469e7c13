/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes: one conductor runs the engine, the processes of the ranks are its clients.
 */
#ifndef SIM_CONDUCTOR_H
#define SIM_CONDUCTOR_H

#include <isthmus/backend.h>

/* Runs this process's rank of a world that spans the processes of the job. */
ist_status sim_conductor_run(const ist_backend_world *setup, ist_world_result *result);

#endif
