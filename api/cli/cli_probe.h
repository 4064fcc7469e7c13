/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus probe`: what its parts share. A list of measurements, the same on every rank, each one
 * number in picoseconds; the slowest rank's counts. The profile that comes of it is described in
 * topology/profile.md.
 */
#ifndef CLI_PROBE_H
#define CLI_PROBE_H

#include "cli_options.h"
#include "cli_probe_kernel.h"

#include <isthmus/isthmus.h>

#define PROBE_BLOCKS_MAX 8u
#define PROBE_POINTS_MAX 1024u

/* X(ID, key in the profile): numbers. Those that a cluster description has come first. */
#define PROBE_VALUE_LIST(X)                                                                        \
    X(NVLINK_LATENCY, "nvlink_latency_ps")                                                         \
    X(NIC_LATENCY, "nic_latency_ps")                                                               \
    X(LAUNCH, "launch_ps")                                                                         \
    X(HOST_CALL, "host_call_ps")                                                                   \
    X(SYNC, "sync_ps")                                                                             \
    X(ATOMIC, "atomic_ps")                                                                         \
    X(LOAD, "load_ps")                                                                             \
    X(LAUNCH_HOST, "launch_host_ps")                                                               \
    X(LAUNCH_STREAM, "launch_stream_ps")                                                           \
    X(LAUNCH_GRAPH, "launch_graph_ps")

typedef enum probe_value {
#define X(id, key) PROBE_##id,
    PROBE_VALUE_LIST(X)
#undef X
        PROBE_VALUE_COUNT
} probe_value;

/* X(ID, key in the profile, bytes that count for a byte of the transfer; 0: no rate). */
#define PROBE_CURVE_LIST(X)                                                                        \
    X(LSA_STORE, "lsa_store", 1)                                                                   \
    X(LSA_LOAD, "lsa_load", 1)                                                                     \
    X(LOCAL_COPY, "local_copy", 2)                                                                 \
    X(LSA_BARRIER, "lsa_barrier", 0)                                                               \
    X(GIN_PUT, "gin_put", 1)

typedef enum probe_curve {
#define X(id, key, bytes) PROBE_##id,
    PROBE_CURVE_LIST(X)
#undef X
        PROBE_CURVE_COUNT
} probe_curve;

typedef struct probe_point {
    probe_curve curve;
    uint32_t blocks;
    uint64_t bytes;
    uint64_t time_ps;
} probe_point;

typedef struct probe_options {
    cli_options world;
    uint64_t bytes_first;
    uint64_t bytes_last;
    uint32_t bytes_factor;
    uint32_t block_counts[PROBE_BLOCKS_MAX];
    uint32_t block_count_count; /* 0: 1, 8, 32 and all */
    uint32_t rounds;
    bool puts; /* also where all ranks are in one team */
    bool json;
    bool help;
    const char *name;
    const char *output; /* file for the profile, or NULL */
} probe_options;

/* All that was found, as rank 0 has it. */
typedef struct probe_result {
    bool known[PROBE_VALUE_COUNT];
    uint64_t values[PROBE_VALUE_COUNT]; /* ps */
    probe_point points[PROBE_POINTS_MAX];
    uint32_t point_count;
    uint32_t rank_count;
    uint32_t lsa_size;
    uint32_t sm_count;
    bool done; /* at rank 0, when all has come */
    bool virtual_clock;
    char backend[16];
    char gin_reason[160]; /* why there are no puts, or empty */
    uint64_t wrong;       /* bytes that were not copied right, all ranks */
} probe_result;

/* What this process's ranks share. */
typedef struct probe_job {
    const probe_options *options;
    probe_result result; /* of rank 0 */
    bool failed;
    int32_t failed_rank;
    char message[400];
} probe_job;

/* The rank's program. `arg` is the probe_job. */
ist_status probe_rank_main(ist_world *world, void *arg);

/* A rate in bytes/s from the two largest sizes of a curve, at the number of blocks that gives most; 0:
   no points. */
uint64_t probe_rate(const probe_result *result, probe_curve curve);

const char *probe_value_key(probe_value value);
const char *probe_curve_key(probe_curve curve);
uint32_t probe_curve_weight(probe_curve curve);

/* Printing. They return an exit status. `command` repeats the probe. */
int probe_print_table(const probe_result *result, const char *command);
int probe_write_profile(const probe_options *options, const probe_result *result,
                        const char *command, const char *path);

#endif
