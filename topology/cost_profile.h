/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: the constants of a machine and of its operations, each with its origin. profile.md has
 * the format; `operations` is this reader's part of it:
 *
 *   "operations": [ { "name": "trtllm/dispatch-bf16", "kind": "ep_dispatch", "algorithm": "ll",
 *                     "origin": "fit", "residual_permille": 31,
 *                     "bytes": [14336, 29360128], "ranks": [8, 16],
 *                     "constants": { "overhead_ps": 15000000, … },
 *                     "curve": [ { "bytes": 16384, "permille": 1012 }, … ] } ]
 *
 * An operation's constants hold between its least and its largest size and world; outside they are
 * extrapolated, and the answer says so.
 */
#ifndef COST_PROFILE_H
#define COST_PROFILE_H

#include "cost_model.h"

#define COST_NAME_BYTES 96u
#define COST_CURVE_MAX 64u
#define COST_GEOMETRY_MAX 32u
#define COST_PROFILE_OPS_MAX 4096u

typedef enum cost_confidence {
    COST_CALIBRATED = 0,   /* measured constants, inside what was measured */
    COST_EXTRAPOLATED = 1, /* measured constants, beyond it; or links that were measured alone */
    COST_DEFAULTED = 2     /* nobody has measured */
} cost_confidence;

extern const char *const cost_confidence_names[3];

typedef struct cost_curve_point {
    uint64_t bytes;
    uint64_t permille; /* of the time that the constants say */
} cost_curve_point;

typedef struct cost_profile_op {
    char name[COST_NAME_BYTES];
    char origin[COST_NAME_BYTES];
    cost_kind kind;
    cost_algorithm algorithm;
    uint64_t bytes_low, bytes_high, ranks_low, ranks_high;
    uint64_t residual_permille;
    uint64_t blocks; /* that moved the data; 0: not said */
    cost_knobs knobs;
    uint32_t curve_count;
    cost_curve_point curve[COST_CURVE_MAX];
} cost_profile_op;

/* X(field, key): links and steps measured alone; 0: not in the profile. The fields are those of
 * ist_cluster, from which a simulated world has its times: one set of constants for both. */
#define COST_LINK_VALUES(X)                                                                        \
    X(nvlink_latency_ps, "nvlink_latency_ps")                                                      \
    X(nvlink_bytes_per_s, "nvlink_bytes_per_s")                                                    \
    X(nic_latency_ps, "nic_latency_ps")                                                            \
    X(nic_bytes_per_s, "nic_bytes_per_s")                                                          \
    X(hbm_bytes_per_s, "hbm_bytes_per_s")                                                          \
    X(launch_ps, "launch_ps")                                                                      \
    X(host_call_ps, "host_call_ps")                                                                \
    X(sync_ps, "sync_ps")                                                                          \
    X(atomic_ps, "atomic_ps")                                                                      \
    X(load_ps, "load_ps")                                                                          \
    X(sm_count, "sm_count")

/* What so many blocks of a GPU get out of its NVLink together. */
typedef struct cost_geometry {
    uint64_t blocks, bytes_per_s;
} cost_geometry;

typedef struct cost_profile {
    char name[COST_NAME_BYTES];
    char origin[COST_NAME_BYTES]; /* of the links */
#define X(field, key) uint64_t field;
    COST_LINK_VALUES(X)
#undef X
    uint32_t geometry_count;
    cost_geometry geometry[COST_GEOMETRY_MAX]; /* ascending blocks; curve lsa_store, largest size */
    uint32_t op_count;
    cost_profile_op *op;
} cost_profile;

/* IST_ERR_PARSE names place and key; IST_ERR_MEMORY. Free with cost_profile_free(). */
ist_status cost_profile_parse(const char *text, size_t bytes, cost_profile *profile);
void cost_profile_free(cost_profile *profile);

/* The text of a profile, ending in a NUL; free with ist_free(). */
ist_status cost_profile_print(const cost_profile *profile, char **text);

/* Sets op->knobs, from the profile's operation of this kind and algorithm, else from its links,
 * else from `links` (the machine's description). profile may be NULL. */
cost_confidence cost_profile_apply(const cost_profile *profile, const cost_profile *links,
                                   const cost_machine *machine, cost_op *op);

/* The size that curves go by: bytes, or tokens times row bytes. */
uint64_t cost_op_size(const cost_op *op);

#endif
