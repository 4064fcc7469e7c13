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
    IST_CHECK_AUTO = 0,  /**< the variable IST_CHECK (calls, peers); without it IST_CHECK_CALLS */
    IST_CHECK_CALLS = 1, /**< arguments of each call, on the calling rank */
    IST_CHECK_PEERS = 2 /**< also: arguments of collective set-up calls are compared across ranks */
} ist_check;

/** How a world is to be run. Zero means default; reserved fields must be zero. */
typedef struct ist_world_desc {
    uint32_t size;        /**< sizeof(ist_world_desc) */
    uint32_t rank_count;  /**< ranks, at most 65536; 0: as many as the cluster or the launcher has,
                               one in a simulator without either */
    const char *backend;  /**< "sim", "cuda" or NULL: IST_BACKEND, else the first usable but sim */
    const char *cluster;  /**< simulator: one-line cluster description, NULL: one node that fits */
    uint64_t seed;        /**< simulator: decides every choice that time and order leave open */
    uint64_t deadline_ns; /**< default deadline of waits, in ns, >= 1000; 0: 100 s */
    ist_check check;      /**< contract checks */
    uint32_t reserved;    /**< zero */
    const struct ist_fault_plan *faults; /**< simulator: faults to inject, or NULL */
    const struct ist_sim_desc *sim;      /**< simulator: further settings, or NULL */
} ist_world_desc;

/** How a world ended. Filled up to the caller's `size`. */
typedef struct ist_world_result {
    uint32_t size;        /**< in: sizeof(ist_world_result) */
    ist_status status;    /**< what ist_world_run() returned */
    int32_t failed_rank;  /**< lowest rank that failed, killed ones left out; or IST_RANK_NONE */
    uint32_t lost_count;  /**< ranks that were killed or whose process ended */
    uint64_t digest;      /**< simulator: digest of all events; else 0 */
    uint64_t event_count; /**< simulator: events that were digested; else 0 */
    uint64_t device_op_count; /**< simulator: device calls that others can observe; else 0 */
    uint64_t virtual_ns;      /**< simulator: virtual time at which the world ended; else 0 */
} ist_world_result;

/**
 * The program of one rank. A status other than IST_OK ends that rank as failed.
 *
 * @param world  valid until the program returns
 * @param arg    as given to ist_world_run(); the same on all ranks of a process
 */
typedef ist_status (*ist_rank_fn)(ist_world *world, void *arg);

/**
 * Runs `rank_main` once a rank. BLOCKS until all ranks have ended.
 *
 * Under mpirun each process calls it with the same descriptor and runs its own rank. The variable
 * IST_LAUNCH=none runs all ranks in each process, IST_LAUNCH=mpi makes a missing launcher an error.
 * Objects that a rank leaves open are closed for it, and reported in the log.
 *
 * @param desc    NULL: all defaults
 * @param arg     passed to `rank_main`
 * @param result  out, may be NULL; also written when the call fails, unless its size is refused
 * @return IST_OK; the status of the lowest rank that failed, killed ones left out. When the world
 *         could not start: argument errors; IST_ERR_ARGUMENT (desc, IST_CHECK or IST_LAUNCH);
 *         IST_ERR_RANGE (a deadline of 1 … 999 ns; more ranks than 65536 or than the cluster has
 *         GPUs); IST_ERR_BACKEND unknown or not usable here, and why; IST_ERR_PARSE (cluster or
 *         the launcher's variables); IST_ERR_SYSTEM; IST_ERR_MEMORY. In the simulator also
 *         IST_ERR_DEADLOCK when nothing could end a wait any more, or the limit of device operations
 *         was passed (ranks still running were ended as killed), and IST_ERR_IO when the log or the
 *         trace cannot be written
 * @threads any; several worlds may run on several threads, none inside another's program
 * @since 0.1
 */
IST_API ist_status ist_world_run(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                                 ist_world_result *result);

/**
 * This rank's number in the world.
 *
 * @return 0 … ist_world_rank_count() - 1; 0 for NULL or a world that has ended
 * @threads any
 * @since 0.1
 */
IST_API uint32_t ist_world_rank(const ist_world *world);

/**
 * Ranks in the world, dead ones included.
 *
 * @return at least 1; 0 for NULL or a world that has ended
 * @threads any
 * @since 0.1
 */
IST_API uint32_t ist_world_rank_count(const ist_world *world);

/**
 * Name of the backend in use, for messages. Programs must not branch on it.
 *
 * @return static text, e.g. "sim"; "" for NULL or a world that has ended
 * @threads any
 * @since 0.1
 */
IST_API const char *ist_world_backend_name(const ist_world *world);

/**
 * Nanoseconds since the world began: virtual time in the simulator, monotonic time on GPUs.
 *
 * @return 0 for NULL, a world that has ended, or a killed rank
 * @threads the rank's own
 * @since 0.1
 */
IST_API uint64_t ist_world_clock_ns(ist_world *world);

/**
 * Lets the rank's host program pass time without doing anything. BLOCKS. In the simulator the time
 * is virtual, and the other ranks go on.
 *
 * @param ns  nanoseconds
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_KILLED, also when the rank dies meanwhile
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_world_sleep(ist_world *world, uint64_t ns);

/**
 * Backends compiled in, found or registered, in order of preference. May open a backend's module.
 *
 * @param index   0, 1, … until IST_ERR_RANGE
 * @param name    out: static text
 * @param reason  out: NULL when the backend can be used here, else why not; valid until the process
 *                ends
 * @return IST_OK; IST_ERR_NULL; IST_ERR_RANGE past the last, which writes no error record
 * @threads any
 * @since 0.1
 */
IST_API ist_status ist_backend_query(uint32_t index, const char **name, const char **reason);

/** One thing that a backend can do on this machine, or cannot. Texts stay until the process ends. */
typedef struct ist_feature {
    uint32_t size;      /**< in: sizeof(ist_feature); filled up to it */
    uint32_t reserved;  /**< zero */
    const char *name;   /**< out: "windows", "nccl", … */
    const char *value;  /**< out: "yes", a number, a version; NULL: it is not there */
    const char *reason; /**< out: why it is not there; NULL when it is */
} ist_feature;

/**
 * What a backend can do here, feature by feature, with a reason for every "no". Opens no context on
 * a device, but may open libraries (CUDA's driver, NCCL).
 *
 * @param backend  index as in ist_backend_query()
 * @param index    0, 1, … until IST_ERR_RANGE; a backend may have none
 * @param feature  in and out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_RESERVED; IST_ERR_RANGE past the last feature
 *         or the last backend, which writes no error record
 * @threads any
 * @since 0.1
 */
IST_API ist_status ist_backend_feature(uint32_t backend, uint32_t index, ist_feature *feature);

IST_END_DECLS

#endif
