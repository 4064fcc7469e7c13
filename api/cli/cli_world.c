/* SPDX-License-Identifier: Apache-2.0 */
/* From options to a running world.
 */
#include "cli_world.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS_LONG UINT64_C(10000000000)

bool cli_first_process(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL) {
        rank = getenv("PMI_RANK");
    }
    return rank == NULL || strcmp(rank, "0") == 0;
}

ist_status cli_world_run(const cli_options *options, ist_rank_fn rank_main, void *arg,
                         ist_world_result *result)
{
    ist_sim_desc sim = {.size = sizeof sim,
                        .links = options->links,
                        .trace_path = options->trace,
                        .log_path = options->log};
    ist_world_desc desc = {
        .size = sizeof desc,
        .rank_count = options->rank_count,
        .backend = options->backend,
        .cluster = options->cluster,
        .seed = options->seed,
        /* A host waits for an operation longer than the operation waits for a
                              peer; the default does but for long deadlines. */
        .deadline_ns = options->deadline_ns > DEADLINE_NS_LONG ? 10 * options->deadline_ns : 0,
        .faults = ist_fault_plan_count(options->plan) == 0 ? NULL : options->plan,
        .sim = &sim};
    *result = (ist_world_result){.size = sizeof *result, .failed_rank = IST_RANK_NONE};
    return ist_world_run(&desc, rank_main, arg, result);
}

static bool backend_known(const char *wanted)
{
    const char *name;
    const char *reason;
    for (uint32_t i = 0; ist_backend_query(i, &name, &reason) == IST_OK; ++i) {
        if (strcmp(name, wanted) == 0) {
            return true;
        }
    }
    return false;
}

int cli_world_refused(const char *command, const cli_options *options, ist_status status)
{
    const char *text = cli_error_text(status);
    bool usage =
        status == IST_ERR_PARSE || status == IST_ERR_RANGE || status == IST_ERR_ARGUMENT ||
        (status == IST_ERR_BACKEND && options->backend != NULL && !backend_known(options->backend));
    if (!cli_first_process()) {
        return usage ? CLI_USAGE : CLI_FAILED;
    }
    return usage ? cli_usage(command, "%s", text) : cli_failed(command, "%s", text);
}
