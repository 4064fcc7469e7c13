/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this process is one rank of a job that a launcher started, and which.
 */
#ifndef IST_BOOTSTRAP_H
#define IST_BOOTSTRAP_H

#include <isthmus/backend.h>
#include <stdbool.h>

/*
 * Reads the launcher's variables. IST_LAUNCH: unset, look; "mpi", insist; "none", do not look.
 * *found is false when all ranks live in this process. Counts the run when it is found.
 */
ist_status ist_bootstrap_find(ist_backend_process *process, bool *found);

#endif
