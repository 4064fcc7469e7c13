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
    uint8_t bytes[128]; /**< private; the last 8 are a mark and a checksum */
} ist_unique_id;

/**
 * How a communicator is opened. Zero means default. Every field but `rank` must be equal on all
 * ranks; if any of them checks peers (IST_CHECK_PEERS), a difference is IST_ERR_MISMATCH on all. A
 * difference in rank_count always is.
 */
typedef struct ist_comm_desc {
    uint32_t size;           /**< sizeof(ist_comm_desc) */
    uint32_t rank_count;     /**< members; 0: as many as the world has ranks */
    uint32_t rank;           /**< with `id`: this rank's number in the communicator; without: 0 or
                                  this rank's number in the world */
    uint32_t fault_tolerant; /**< 1: owns a mask; a lost peer is masked instead of failing the op */
    uint64_t deadline_ns;    /**< of every wait, in ns, >= 1000; 0: the world's */
    const ist_unique_id *id; /**< NULL: the whole world, rank = world rank */
    ist_check check;         /**< IST_CHECK_AUTO: the world's */
    uint32_t lsa_size_max;   /**< 0: as discovered; else teams are cut to at most this many ranks */
    uint64_t reserved[2];    /**< zero */
} ist_comm_desc;

/** Shape and limits of a communicator. Filled up to the caller's `size`. */
typedef struct ist_comm_info {
    uint32_t size;           /**< in: sizeof(ist_comm_info), at least 8 */
    uint32_t rank;           /**< this rank's number in the communicator */
    uint32_t rank_count;     /**< members */
    uint32_t lsa_rank;       /**< index in the load/store team */
    uint32_t lsa_size;       /**< members of the load/store team; divides rank_count */
    uint32_t gin_supported;  /**< 1: puts and signals reach ranks outside the team */
    uint32_t fault_tolerant; /**< as opened */
    uint32_t sm_count;       /**< blocks that can be resident at once on this device */
    uint64_t deadline_ns;    /**< of every wait, in ns, resolved */
    const char *gin_reason;  /**< NULL, or why GIN is not there; as long as the world lives */
} ist_comm_info;

/**
 * Makes a unique id. One rank makes it, all members of the communicator to be use it, once.
 *
 * @param id  out: 128 bytes without pointers, to be copied as they are
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_unique_id_create(ist_world *world, ist_unique_id *id);

/**
 * Opens a communicator. Collective over its members; BLOCKS until all have called, each step bounded
 * by the deadline. Opens on all of them or on none.
 *
 * A rank whose arguments are refused does not take part, so the others time out naming it.
 *
 * @param desc  NULL: whole world, all defaults
 * @param comm  out: close it with ist_comm_close()
 * @return IST_OK; argument errors; IST_ERR_ARGUMENT (an id that ist_unique_id_create() did not make,
 *         a choice without meaning, a number that does not fit the world, two ranks with one number);
 *         IST_ERR_RANGE (deadline, rank, rank_count); IST_ERR_TIMEOUT naming a missing rank;
 *         IST_ERR_MISMATCH naming what differs, or the rank that failed; IST_ERR_MEMORY
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_comm_open(ist_world *world, const ist_comm_desc *desc,
                                              ist_comm **comm);

/**
 * Splits: ranks with equal `color` form a new communicator, ordered by (key, old rank), with the
 * settings of the old one. Collective; BLOCKS, each step bounded by the deadline. Of a
 * fault-tolerant communicator, lost ranks that all survivors have masked are left out; the new one
 * begins with all its members active.
 *
 * @param color  >= 0, or -1: take part in the call but get no communicator
 * @param key    order in the new communicator, smallest first
 * @param split  out: NULL with color -1, else close it with ist_comm_close()
 * @return IST_OK; IST_ERR_NULL and IST_ERR_ARGUMENT (color below -1), which peers get as
 *         IST_ERR_MISMATCH; IST_ERR_OBJECT; IST_ERR_TIMEOUT naming a rank that did not come and is
 *         not masked; IST_ERR_MISMATCH when a peer failed or made another call; IST_ERR_MEMORY;
 *         IST_ERR_ABORTED; what made the communicator unusable
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_comm_split(ist_comm *comm, int32_t color, int32_t key,
                                               ist_comm **split);

/**
 * Closes and frees everything, device communicators of the program included. Local: needs no call of
 * a peer, and never hangs because one is dead. Does not wait for streams: the program has synchronised
 * those that use the communicator. BLOCKS as ist_dev_comm_close() does. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT; IST_ERR_USAGE while windows or groups are open (nothing is freed);
 *         the first failure of the backend (all is freed all the same)
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_close(ist_comm *comm);

/**
 * Ends every wait of this communicator on this rank, of its kernels and of its host, with
 * IST_ERR_ABORTED; later calls but close and the queries are refused with it. Local: peers are not
 * told and time out. May be called again.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; what the backend reports (the communicator is
 *         aborted all the same)
 * @threads on GPUs any thread of the process, also while another call on the communicator blocks.
 *          In the simulator a world is one thread: the program of any of its ranks in this process
 *          may call it, also while the owner's blocks, but no other thread
 * @since 0.1
 */
IST_API ist_status ist_comm_abort(ist_comm *comm);

/**
 * Shape and limits of the communicator, as opened. Also of one that has failed or was aborted.
 *
 * @param info  out: filled up to info->size
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE when info->size is below 8 or above 65536
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_query(ist_comm *comm, ist_comm_info *info);

/**
 * The team of all ranks.
 *
 * @param team  out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_team_world(ist_comm *comm, ist_team *team);

/**
 * The ranks that this rank reaches by load and store, itself included: neighbours by number.
 *
 * @param team  out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_team_lsa(ist_comm *comm, ist_team *team);

/**
 * One rank of each load/store team: those with this rank's index in theirs.
 *
 * @param team  out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_team_rail(ist_comm *comm, ist_team *team);

/**
 * Enqueues a barrier of the active ranks: work enqueued after it, on any of them, runs after the
 * work enqueued before it on all of them, and sees its memory. Never blocks the host. Capturable.
 *
 * In a fault-tolerant communicator a rank that does not come within a deadline is masked
 * (ist_comm_error_get()), and the barrier ends. In others the communicator fails with
 * IST_ERR_TIMEOUT (ist_comm_status()). All ranks issue their barriers, agreements and cleans in the
 * same order.
 *
 * Method: every rank raises a flag at every other, tagged with the mask's generation and the
 * barrier's number, and waits for theirs; one round.
 *
 * @return IST_OK when it is enqueued; IST_ERR_NULL; IST_ERR_OBJECT (also for a stream of another
 *         rank); IST_ERR_UNSUPPORTED with the reason when device code does not reach all peers;
 *         IST_ERR_MEMORY; IST_ERR_ABORTED; what made the communicator unusable
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_barrier(ist_comm *comm, ist_stream *stream);

/**
 * What made the communicator unusable, if anything did. Reads memory, never blocks.
 *
 * @return IST_OK while usable; IST_ERR_ABORTED; without fault tolerance the status of the first lost
 *         peer (details through ist_comm_error_get(); this call writes no record for them);
 *         IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_comm_status(ist_comm *comm);

IST_END_DECLS

#endif
