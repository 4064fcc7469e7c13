/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a world of `isthmus ep` and prints what came of it; also for `isthmus replay`.
 */
#ifndef CLI_EP_H
#define CLI_EP_H

#include "cli_options.h"

/* Returns an exit status. `command` names it in messages and in the JSON answer. */
int cli_ep_run(const char *command, const cli_options *options);

/* Writes the run down. */
int cli_record_write(const char *path, const cli_options *options, uint32_t rank_count,
                     const char *backend, uint64_t digest);

#endif
