/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the gathering: the window's layout, and the copies in and out.
 */
#include "cli_gather.h"

#include <isthmus/backend.h>
#include <stdlib.h>

_Static_assert(sizeof(cli_report) % 16 == 0, "reports are copied in units of 16 bytes");

ist_status cli_gather_open(ist_comm *comm, ist_stream *stream, cli_gather *gather)
{
    ist_comm_info info = {.size = sizeof info};
    IST_RETURN_IF_ERROR(ist_comm_query(comm, &info));
    cli_gather made = {.comm = comm, .stream = stream, .rank_count = info.rank_count};
    uint64_t bytes = sizeof(cli_report);
    made.args.bytes = bytes;
    made.args.inbox = bytes;
    made.args.words = made.args.inbox + info.rank_count * bytes;
    made.args.arrived = made.args.words + info.rank_count * sizeof(uint64_t);
    made.args.deadline_ns = info.deadline_ns;
    uint64_t total = made.args.arrived + info.rank_count * sizeof(uint32_t);
    uint32_t contexts = info.lsa_size < info.rank_count ? 1 : 0;
    IST_RETURN_IF_ERROR(
        ist_dev_comm_open(comm, total, contexts, contexts * info.rank_count, 0, 0, &made.dev));
    made.args.dev = made.dev;
    *gather = made;
    return IST_OK;
}

void cli_gather_close(cli_gather *gather)
{
    if (gather->dev != NULL) {
        ist_dev_comm_close(gather->comm, gather->dev);
        gather->dev = NULL;
    }
}

/* Copies one report out, if it is one. */
static ist_status fetch_report(cli_gather *gather, uint32_t rank, cli_report *report)
{
    const char *window = gather->dev->windows[0].local;
    cli_report made;
    IST_RETURN_IF_ERROR(ist_copy_to_host(gather->stream, &made,
                                         window + gather->args.inbox + rank * gather->args.bytes,
                                         sizeof made));
    if (made.magic == CLI_REPORT_MAGIC && made.rank == rank) {
        *report = made;
    }
    return IST_OK;
}

ist_status cli_gather_run(cli_gather *gather, uint32_t root, const cli_report *report,
                          cli_report *gathered)
{
    char *window = gather->dev->windows[0].local;
    IST_RETURN_IF_ERROR(ist_copy_to_device(gather->stream, window, report, sizeof *report));
    gather->args.root = root;
    gather->args.tag = CLI_REPORT_MAGIC;
    IST_RETURN_IF_ERROR(
        ist_launch(gather->stream, &ist_kernel_cli_gather, 1, &gather->args, sizeof gather->args));
    IST_RETURN_IF_ERROR(ist_stream_sync(gather->stream, 0));
    if (gather->dev->rank != root) {
        return IST_OK;
    }
    uint32_t *arrived = calloc(gather->rank_count, sizeof *arrived);
    if (arrived == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u marks", gather->rank_count);
    }
    ist_status status = ist_copy_to_host(gather->stream, arrived, window + gather->args.arrived,
                                         gather->rank_count * sizeof *arrived);
    for (uint32_t rank = 0; status == IST_OK && rank < gather->rank_count; ++rank) {
        if (arrived[rank] != 0) {
            status = fetch_report(gather, rank, &gathered[rank]);
        }
    }
    free(arrived);
    return status;
}
