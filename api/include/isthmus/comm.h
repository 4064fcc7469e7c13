/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file comm.h
 * Communicators: open by unique id or for the whole world, split, close, abort; teams; barrier.
 */
#ifndef IST_COMM_H
#define IST_COMM_H

#include <isthmus/mask.h>
#include <isthmus/team.h>
#include <isthmus/types.h>
#include <isthmus/world.h>

IST_BEGIN_DECLS

/** Names a communicator to be; made by one rank, passed to the others by any means. */
typedef struct ist_unique_id {
    uint8_t bytes[128];
} ist_unique_id;

/**
 * How a communicator is opened. Zero means default. Every field but `rank` must be equal on all
 * ranks; with IST_CHECK_PEERS a difference is IST_ERR_MISMATCH on all of them.
 */
typedef struct ist_comm_desc {
    uint32_t size;           /**< sizeof(ist_comm_desc) */
    uint32_t rank_count;     /**< 0: the whole world */
    uint32_t rank;           /**< with `id`: this rank's number in the communicator */
    uint32_t fault_tolerant; /**< 1: owns a mask; a lost peer is masked instead of failing the op */
    uint64_t deadline_ns;    /**< of every wait, >= 1000; 0: the world's */
    const ist_unique_id *id; /**< NULL: the whole world, rank = world rank */
    ist_check check;         /**< IST_CHECK_AUTO: the world's */
    uint32_t lsa_size_max;   /**< 0: as discovered; else teams are cut to at most this many ranks */
    uint64_t reserved[2];    /**< zero */
} ist_comm_desc;

/** What a communicator can do here. Filled up to the caller's `size`. */
typedef struct ist_comm_info {
    uint32_t size;             /**< in: sizeof(ist_comm_info) */
    uint32_t rank;             /**< this rank's number */
    uint32_t rank_count;       /**< members */
    uint32_t lsa_rank;         /**< index in the load/store team */
    uint32_t lsa_size;         /**< members of the load/store team; divides rank_count */
    uint32_t gin_supported;    /**< 1: puts and signals reach ranks outside the team */
    uint32_t fault_tolerant;   /**< as opened */
    uint32_t sm_count;         /**< blocks that can be resident at once on this device */
    uint64_t deadline_ns;      /**< of every wait, resolved */
    const char *gin_reason;    /**< NULL, or why GIN is not there */
} ist_comm_info;

/** Makes a unique id. @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT @threads the rank's own @since 0.1 */
IST_API IST_MUST_USE ist_status ist_unique_id_create(ist_world *world, ist_unique_id *id);

/**
 * Opens a communicator. BLOCKS until all its ranks have called, bounded by the deadline.
 *
 * @param desc  NULL: whole world, all defaults
 * @param comm  out
 * @return IST_OK; IST_ERR_TIMEOUT naming a missing rank; IST_ERR_MISMATCH; argument errors
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_comm_open(ist_world *world, const ist_comm_desc *desc,
                                              ist_comm **comm);

/**
 * Splits: ranks with equal `color` form a new communicator, ordered by (key, old rank). BLOCKS.
 * Of a fault-tolerant communicator, lost ranks that all survivors have masked are left out.
 *
 * @param color  >= 0, or -1: take part in the call but get no communicator (NULL)
 * @return IST_OK; IST_ERR_TIMEOUT; IST_ERR_ARGUMENT
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_comm_split(ist_comm *comm, int32_t color, int32_t key,
                                               ist_comm **split);

/**
 * Closes: waits (bounded) for the communicator's own work, frees everything. Does not need peers
 * and never hangs because one is dead. Windows and groups must be closed before. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_USAGE while windows or groups are open (nothing is freed); IST_ERR_OBJECT
 * @since 0.1
 */
IST_API ist_status ist_comm_close(ist_comm *comm);

/**
 * Makes every wait of this communicator on this rank end with IST_ERR_ABORTED, and later calls
 * but close and the queries be refused with it. Local. May be called while another call blocks.
 *
 * @threads any
 * @since 0.1
 */
IST_API ist_status ist_comm_abort(ist_comm *comm);

/** Rank, size, teams and limits. @since 0.1 */
IST_API ist_status ist_comm_query(ist_comm *comm, ist_comm_info *info);

/** All ranks. @since 0.1 */
IST_API ist_status ist_comm_team_world(ist_comm *comm, ist_team *team);

/** The ranks that this rank reaches by load and store, itself included. @since 0.1 */
IST_API ist_status ist_comm_team_lsa(ist_comm *comm, ist_team *team);

/** One rank of each load/store team: those with this rank's index in theirs. @since 0.1 */
IST_API ist_status ist_comm_team_rail(ist_comm *comm, ist_team *team);

/**
 * Enqueues a barrier of the active ranks: work enqueued after it, on any of them, runs after the
 * work enqueued before it on all of them, and sees its memory. Capturable.
 *
 * @return IST_OK; IST_ERR_ABORTED; in a fault-tolerant communicator a rank that does not come is
 *         masked (ist_comm_error_get); otherwise the communicator fails with IST_ERR_TIMEOUT
 * @since 0.1
 */
IST_API ist_status ist_comm_barrier(ist_comm *comm, ist_stream *stream);

/**
 * First failure that made the communicator unusable, if any.
 * @return IST_OK while usable; else that status (details through ist_comm_error_get)
 * @since 0.1
 */
IST_API ist_status ist_comm_status(ist_comm *comm);

IST_END_DECLS

#endif
