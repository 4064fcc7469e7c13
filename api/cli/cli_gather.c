/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the gathering: the window's layout, and the copies in and out.
 */
#include "cli_gather.h"

#include <isthmus/backend.h>
#include <stdlib.h>

/* How far ranks can be apart that have just agreed: some may have waited for others again and again. */
#define DEADLINES 10u

_Static_assert(sizeof(cli_report) % 16 == 0, "reports are copied in units of 16 bytes");

/* The window is zero before any peer can reach it, so that no word is taken for a tag. */
static ist_status open_window(cli_gather *gather, uint64_t bytes)
{
    void *memory;
    IST_RETURN_IF_ERROR(ist_mem_alloc(gather->world, bytes, IST_MEM_SYMMETRIC, &memory));
    gather->memory = memory;
    IST_RETURN_IF_ERROR(ist_fill(gather->stream, memory, 0, bytes));
    IST_RETURN_IF_ERROR(ist_stream_sync(gather->stream, 0));
    IST_RETURN_IF_ERROR(ist_window_open(gather->comm, memory, bytes, &gather->window));
    gather->args.window = ist_window_index(gather->window);
    return IST_OK;
}

ist_status cli_gather_open(ist_world *world, ist_comm *comm, ist_stream *stream, cli_gather *gather)
{
    ist_comm_info info = {.size = sizeof info};
    cli_gather_args *args = &gather->args;
    IST_RETURN_IF_ERROR(ist_comm_query(comm, &info));
    gather->world = world;
    gather->comm = comm;
    gather->stream = stream;
    gather->rank = info.rank;
    gather->rank_count = info.rank_count;
    args->bytes = sizeof(cli_report);
    args->inbox = args->bytes;
    args->words = args->inbox + info.rank_count * args->bytes;
    args->arrived = args->words + info.rank_count * sizeof(uint64_t);
    args->deadline_ns = DEADLINES * info.deadline_ns;
    IST_RETURN_IF_ERROR(open_window(gather, args->arrived + info.rank_count * sizeof(uint32_t)));
    uint32_t contexts = info.lsa_size < info.rank_count ? 1 : 0;
    IST_RETURN_IF_ERROR(
        ist_dev_comm_open(comm, 0, contexts, contexts * info.rank_count, 0, 0, &gather->dev));
    args->dev = gather->dev;
    return IST_OK;
}

void cli_gather_close(cli_gather *gather)
{
    if (gather->dev != NULL) {
        ist_dev_comm_close(gather->comm, gather->dev);
    }
    ist_window_close(gather->window);
    if (gather->memory != NULL) {
        ist_mem_free(gather->world, gather->memory);
    }
}

/* Copies one report out, if it is one. */
static ist_status fetch_report(cli_gather *gather, uint32_t rank, cli_report *report)
{
    const char *from = gather->memory + gather->args.inbox + rank * gather->args.bytes;
    cli_report made;
    IST_RETURN_IF_ERROR(ist_copy_to_host(gather->stream, &made, from, sizeof made));
    if (made.magic == CLI_REPORT_MAGIC && made.rank == rank) {
        *report = made;
    }
    return IST_OK;
}

ist_status cli_gather_run(cli_gather *gather, uint32_t root, const cli_report *report,
                          cli_report *gathered)
{
    IST_RETURN_IF_ERROR(ist_copy_to_device(gather->stream, gather->memory, report, sizeof *report));
    gather->args.root = root;
    gather->args.tag = CLI_REPORT_MAGIC;
    IST_RETURN_IF_ERROR(
        ist_launch(gather->stream, &ist_kernel_cli_gather, 1, &gather->args, sizeof gather->args));
    IST_RETURN_IF_ERROR(ist_stream_sync(gather->stream, 0));
    if (gather->rank != root) {
        return IST_OK;
    }
    uint32_t *arrived = calloc(gather->rank_count, sizeof *arrived);
    if (arrived == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u marks", gather->rank_count);
    }
    ist_status status =
        ist_copy_to_host(gather->stream, arrived, gather->memory + gather->args.arrived,
                         gather->rank_count * sizeof *arrived);
    for (uint32_t rank = 0; status == IST_OK && rank < gather->rank_count; ++rank) {
        if (arrived[rank] != 0) {
            status = fetch_report(gather, rank, &gathered[rank]);
        }
    }
    free(arrived);
    return status;
}
