/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus bench`: finds the measurement.
 */
#include "cli_bench.h"

#include "cli.h"

#include <string.h>

static const struct {
    const char *name;
    const char *said; /* in messages */
    int (*run)(int argc, char **argv);
} measurements[] = {
    {"ep", "bench ep", bench_ep_command},
    {"coll", "bench coll", bench_coll_command},
    {"setup", "bench setup", bench_setup_command},
    {"soak", "bench soak", bench_soak_command},
};

int cli_bench_command(int argc, char **argv)
{
    char said[16];
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return cli_put("bench", bench_help);
    }
    if (*name == '\0') {
        return cli_usage("bench", "what to measure is missing");
    }
    for (size_t i = 0; i < sizeof measurements / sizeof *measurements; ++i) {
        if (strcmp(name, measurements[i].name) == 0) {
            strcpy(said, measurements[i].said);
            argv[1] = said;
            return measurements[i].run(argc - 1, argv + 1);
        }
    }
    return cli_usage("bench", "unknown measurement '%s'", name);
}
