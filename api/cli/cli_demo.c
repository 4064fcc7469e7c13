/* SPDX-License-Identifier: Apache-2.0 */
/* The demo as a list of options: the shapes of DeepSeek-V3 on two nodes of eight GPUs, one rank that
 * dies and one that is late.
 */
#include "cli_options.h"

/* The deadline covers the drift of the ranks while they check (below 1 ms); the stall is longer than
   one wait and shorter than two, so that the late rank comes in time to be re-admitted. */
const char *const cli_demo_arguments[] = {
    "--backend",    "sim",
    "--nodes",      "2",
    "--ranks",      "16",
    "--tokens",     "128",
    "--hidden",     "7168",
    "--top-k",      "8",
    "--experts",    "256",
    "--layout",     "em",
    "--dtype",      "bf16",
    "--routing",    "deepseek",
    "--seed",       "7",
    "--iterations", "5",
    "--deadline",   "2ms",
    "--readmit",    "4",
    "--fault",      "kill:rank=5:at_point=ep.dispatch.sent:nth=6",
    "--fault",      "stall:rank=11:at_point=ep.dispatch.sent:nth=13:duration_ns=4000000",
};
const uint32_t cli_demo_argument_count = sizeof cli_demo_arguments / sizeof *cli_demo_arguments;
