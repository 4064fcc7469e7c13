/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the world that a command's options describe, and says why one could not start.
 */
#ifndef CLI_WORLD_H
#define CLI_WORLD_H

#include "cli_options.h"

#include <isthmus/world.h>

/* Whether this process is the one that speaks for all where nothing was gathered: the launcher's
   first, or the only one. */
bool cli_first_process(void);

/* Runs the ranks of the options' world. Fills the result. */
ist_status cli_world_run(const cli_options *options, ist_rank_fn rank_main, void *arg,
                         ist_world_result *result);

/* No rank ran: the world's description was refused, or no backend is usable. Returns an exit status. */
int cli_world_refused(const char *command, const cli_options *options, ist_status status);

#endif
