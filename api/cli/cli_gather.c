/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the gathering: the window's layout, and the copies in and out.
 */
#include "cli_gather.h"

#include <isthmus/backend.h>
#include <stdlib.h>

/* How far ranks can be apart that have just agreed: some may have waited for others again and again. */
#define DEADLINES 10u

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

ist_status cli_gather_open(ist_world *world, ist_comm *comm, ist_stream *stream, uint64_t bytes,
                           cli_gather *gather)
{
    ist_comm_info info = {.size = sizeof info};
    cli_gather_args *args = &gather->args;
    IST_RETURN_IF_ERROR(ist_comm_query(comm, &info));
    gather->world = world;
    gather->comm = comm;
    gather->stream = stream;
    gather->rank = info.rank;
    gather->rank_count = info.rank_count;
    args->bytes = bytes;
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

/* Copies out what has come. */
static ist_status fetch(cli_gather *gather, const uint32_t *arrived, void *gathered)
{
    uint64_t bytes = gather->args.bytes;
    for (uint32_t rank = 0; rank < gather->rank_count; ++rank) {
        if (arrived[rank] != 0) {
            IST_RETURN_IF_ERROR(ist_copy_to_host(gather->stream, (char *)gathered + rank * bytes,
                                                 gather->memory + gather->args.inbox + rank * bytes,
                                                 bytes));
        }
    }
    return IST_OK;
}

ist_status cli_gather_run(cli_gather *gather, uint32_t root, const void *own, void *gathered)
{
    IST_RETURN_IF_ERROR(
        ist_copy_to_device(gather->stream, gather->memory, own, gather->args.bytes));
    gather->args.root = root;
    gather->args.tag = CLI_GATHER_TAG;
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
    if (status == IST_OK) {
        status = fetch(gather, arrived, gathered);
    }
    free(arrived);
    return status;
}
