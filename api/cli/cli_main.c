/* SPDX-License-Identifier: Apache-2.0 */
/* Entry of the command: finds the subcommand, answers --help and --version.
 */
#include "cli.h"

#include <isthmus/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: isthmus COMMAND [OPTION...]\n"
    "\n"
    "One program in two worlds: on NVIDIA GPUs, or in a simulated cluster on this machine.\n"
    "\n"
    "commands:\n"
    "  ep       run an expert-parallel dispatch and combine and check every byte\n"
    "  replay   run a recorded ep run again and compare the digest\n"
    "  info     show versions, usable backends, settings and this machine\n"
    "  topo     show, explain, check, convert and compare topologies\n"
    "  bench    time dispatch and combine, set-up, or run a soak, checked\n"
    "  probe    measure the links and write the machine's profile\n"
    "  whatif   estimate operations on a described cluster, without running them\n"
    "  fit      fit the estimate's constants to timings, and judge them\n"
    "  explore  run protocols under many schedules and faults, and shrink what fails\n"
    "\n"
    "options:\n"
    "  -h, --help     this text; `isthmus COMMAND --help` for a command\n"
    "  -V, --version  the version\n"
    "\n"
    "exit status: 0 success, 1 the run failed or something was wrong in it, 2 bad usage\n"
    "\n"
    "examples:\n"
    "  isthmus ep --demo\n"
    "  isthmus ep --backend sim --ranks 8 --tokens 64 --hidden 1024 --json\n"
    "  isthmus info\n";

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} command;

#define COMMAND_LIST(X)                                                                            \
    X("ep", cli_ep_command)                                                                        \
    X("replay", cli_replay_command)                                                                \
    X("info", cli_info_command)                                                                    \
    X("topo", cli_topo_command)                                                                    \
    X("bench", cli_bench_command)                                                                  \
    X("probe", cli_probe_command)                                                                  \
    X("whatif", cli_whatif_command)                                                                \
    X("fit", cli_fit_command)                                                                      \
    X("explore", cli_explore_command)

static const command commands[] = {
#define X(name, run) {name, run},
    COMMAND_LIST(X)
#undef X
};

static void drop_line(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

int main(int argc, char **argv)
{
    /* What the library would log, the command says in its own words; IST_LOG brings the log back. */
    if (getenv("IST_LOG") == NULL) {
        ist_log_sink_set(drop_line, NULL, IST_LOG_NONE);
    }
    const char *name = argc > 1 ? argv[1] : "";
    if (*name == '\0') {
        return cli_usage("", "a command is missing");
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return cli_put("", help);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("isthmus %s\n", ist_version_string());
        return cli_put("", "");
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; ++i) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return cli_usage("", "unknown command '%s'", name);
}
