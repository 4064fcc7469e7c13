/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus`: exit statuses, the subcommands, and how each of them speaks of bad usage.
 */
#ifndef CLI_H
#define CLI_H

#include <isthmus/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Exit statuses. */
#define CLI_OK 0
#define CLI_FAILED 1
#define CLI_USAGE 2

/* Subcommands; argv[0] is the subcommand's name. They return an exit status. */
int cli_ep_command(int argc, char **argv);
int cli_replay_command(int argc, char **argv);
int cli_info_command(int argc, char **argv);
int cli_topo_command(int argc, char **argv);
int cli_bench_command(int argc, char **argv);
int cli_probe_command(int argc, char **argv);
int cli_whatif_command(int argc, char **argv);
int cli_fit_command(int argc, char **argv);
int cli_explore_command(int argc, char **argv);

/* Prints "isthmus COMMAND: …" and where help is found, on standard error. Returns CLI_USAGE. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints "isthmus COMMAND: …" on standard error. Returns CLI_FAILED. */
int cli_failed(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sentence of the thread's last error, or of the status when there is none for it. The text lives
   until the next call on this thread. */
const char *cli_error_text(ist_status status);

/* Writes a text to standard output. Returns CLI_OK, or CLI_FAILED when it cannot be written. */
int cli_put(const char *command, const char *text);

#endif
