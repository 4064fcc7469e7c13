/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real time to wait out a virtual 100 s and more: a barrier with a rank that never comes. Prints the
 * real time of the wait, measured inside the world by the rank that waits.
 */
#include <isthmus/isthmus.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    double *took = arg;
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1, .deadline_ns = 100000000000u};
    ist_status status = ist_comm_open(world, &desc, &comm);
    if (status == IST_OK) {
        status = ist_stream_open(world, &stream);
    }
    if (status == IST_OK && ist_world_rank(world) == 0) {
        double began = seconds();
        uint64_t virtual_ns = ist_world_clock_ns(world);
        status = ist_comm_barrier(comm, stream);
        if (status == IST_OK) {
            status = ist_stream_sync(stream, 0);
        }
        *took = seconds() - began;
        (void)printf("waited %.6f s of virtual time in ",
                     (double)(ist_world_clock_ns(world) - virtual_ns) * 1e-9);
    }
    (void)ist_stream_close(stream);
    ist_status closed = ist_comm_close(comm);
    return status == IST_OK ? closed : status;
}

int main(void)
{
    double took = 0;
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = 2, .backend = "sim"};
    ist_status status = ist_world_run(&desc, rank_main, &took, NULL);
    (void)printf("%.1f us of real time (%s)\n", took * 1e6, ist_status_name(status));
    return status == IST_OK ? 0 : 1;
}
