/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_conductor.h"
#include "sim_internal.h"

void sim_conductor_rank_killed(sim_rank *rank) { (void)rank; }
ist_status sim_conductor_run(const ist_backend_world *setup, ist_world_result *result) { (void)setup; (void)result; return IST_ERR_UNSUPPORTED; }
