/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a record of equal size of each rank to one of them, with a kernel of the command's own: load/store
 * peers write into the root's window, others put over the network.
 */
#ifndef CLI_GATHER_H
#define CLI_GATHER_H

#include <isthmus/comm.h>
#include <isthmus/device.h>
#include <isthmus/stream.h>
#include <isthmus/window.h>

/* Arguments of the kernel `cli_gather`. Offsets are into the window, equal on all ranks:
 * own [bytes], inbox [rank_count][bytes], words u64[rank_count], arrived u32[rank_count]. */
typedef struct cli_gather_args {
    const ist_dev_comm *dev;
    uint64_t bytes; /* of one record, a multiple of 16 */
    uint64_t inbox;
    uint64_t words;
    uint64_t arrived;     /* root only: 1 where a record has come */
    uint64_t tag;         /* never 0, not used before */
    uint64_t deadline_ns; /* from now */
    uint32_t root;
    uint32_t window;
} cli_gather_args;

#define CLI_GATHER_TAG UINT64_C(0x7472706572747369)

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_cli_gather;
#endif

typedef struct cli_gather {
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    char *memory; /* of the window, on this rank */
    ist_window *window;
    const ist_dev_comm *dev; /* for kernels only */
    cli_gather_args args;
    uint32_t rank;
    uint32_t rank_count;
} cli_gather;

/* Collective. `bytes` of a record, a multiple of 16. What was opened before a failure is closed by
   cli_gather_close(). */
ist_status cli_gather_open(ist_world *world, ist_comm *comm, ist_stream *stream, uint64_t bytes,
                           cli_gather *gather);
void cli_gather_close(cli_gather *gather);

/* Sends this rank's record to `root`. There, `gathered` [rank_count][bytes] gets the records that
   have come; the others stay as they are. At most once a gather. */
ist_status cli_gather_run(cli_gather *gather, uint32_t root, const void *own, void *gathered);

#endif
