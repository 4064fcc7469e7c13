/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file world.h
 * A world is a set of ranks that run one program on one backend. ist_world_run() starts it: as
 * fibers of one thread in the simulator, as one thread a GPU on CUDA, or, under mpirun, as the
 * process's own rank of a world that spans all processes.
 *
 * The backend is chosen by name, by the descriptor or by IST_BACKEND. An explicit choice never
 * falls through to another backend, and the simulator is never picked unless asked for.
 */
#ifndef IST_WORLD_H
#define IST_WORLD_H

#include <isthmus/types.h>

IST_BEGIN_DECLS

struct ist_fault_plan; /* unstable/sim.h */
struct ist_sim_desc;   /* unstable/sim.h */

/** What the library checks beyond each call's own arguments. */
typedef enum ist_check {
    IST_CHECK_AUTO = 0, /**< IST_CHECK if set, else IST_CHECK_CALLS */
    IST_CHECK_CALLS = 1, /**< arguments of each call, on the calling rank */
    IST_CHECK_PEERS = 2  /**< also: arguments of collective set-up calls are compared across ranks */
} ist_check;

/** How a world is to be run. Zero means default; reserved fields must be zero. */
typedef struct ist_world_desc {
    uint32_t size;        /**< sizeof(ist_world_desc) */
    uint32_t rank_count;  /**< ranks; 0: as many as the cluster or the launcher has */
    const char *backend;  /**< "sim", "cuda" or NULL: IST_BACKEND, else the first usable but sim */
    const char *cluster;  /**< simulator: one-line cluster description, NULL: one node that fits */
    uint64_t seed;        /**< simulator: decides every choice that time and order leave open */
    uint64_t deadline_ns; /**< default deadline of waits, >= 1000; 0: 100 s */
    ist_check check;      /**< contract checks */
    uint32_t reserved;    /**< zero */
    const struct ist_fault_plan *faults; /**< simulator: faults to inject, or NULL */
    const struct ist_sim_desc *sim;      /**< simulator: further settings, or NULL */
} ist_world_desc;

/** How a world ended. Filled up to the caller's `size`. */
typedef struct ist_world_result {
    uint32_t size;           /**< in: sizeof(ist_world_result) */
    ist_status status;       /**< first failure by rank number, killed ranks left out */
    int32_t failed_rank;     /**< that rank, or IST_RANK_NONE */
    uint32_t lost_count;     /**< ranks that were killed or whose process ended */
    uint64_t digest;         /**< simulator: digest of the event log */
    uint64_t event_count;    /**< simulator: events in the log */
    uint64_t device_op_count;/**< simulator: device calls executed */
    uint64_t virtual_ns;     /**< simulator: time at which the last rank ended */
} ist_world_result;

/** The program of one rank. A status other than IST_OK ends that rank as failed. */
typedef ist_status (*ist_rank_fn)(ist_world *world, void *arg);

/**
 * Runs `rank_main` once a rank and returns when all ranks have ended.
 *
 * Under mpirun each process calls it with the same descriptor and runs its own rank; IST_LAUNCH=none
 * runs all ranks in each process, IST_LAUNCH=mpi makes a missing launcher an error. Objects that
 * a rank leaves open are closed for it, and reported in the log.
 *
 * @param desc    NULL: all defaults
 * @param result  out, may be NULL
 * @return IST_OK; the status of the first failed rank; IST_ERR_BACKEND, IST_ERR_PARSE (cluster or
 *         plan), IST_ERR_MEMORY when the world could not start. Written to result on every path.
 * @threads any; several worlds may run on several threads
 * @since 0.1
 */
IST_API ist_status ist_world_run(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                                 ist_world_result *result);

/** This rank's number, 0 … ist_world_rank_count() - 1. @threads any @since 0.1 */
IST_API uint32_t ist_world_rank(const ist_world *world);

/** Ranks in the world. @threads any @since 0.1 */
IST_API uint32_t ist_world_rank_count(const ist_world *world);

/** Name of the backend in use, for messages. Programs must not branch on it. @since 0.1 */
IST_API const char *ist_world_backend_name(const ist_world *world);

/**
 * Nanoseconds since the world began: virtual time in the simulator, monotonic time on GPUs.
 *
 * @return 0 for a NULL or closed world
 * @threads the rank's own
 * @since 0.1
 */
IST_API uint64_t ist_world_clock_ns(ist_world *world);

/**
 * Lets the rank's host program pass `ns` of time without doing anything (virtual in the simulator).
 *
 * @return IST_OK; IST_ERR_KILLED
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_world_sleep(ist_world *world, uint64_t ns);

/**
 * Backends compiled in or found, in order of preference.
 *
 * @param index   0, 1, … until IST_ERR_RANGE
 * @param name    out
 * @param reason  out: NULL when the backend can be used here, else why not
 * @return IST_OK; IST_ERR_RANGE past the last; IST_ERR_NULL
 * @threads any
 * @since 0.1
 */
IST_API ist_status ist_backend_query(uint32_t index, const char **name, const char **reason);

IST_END_DECLS

#endif
