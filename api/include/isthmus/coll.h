/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file coll.h
 * Native collectives: all-reduce and its kin, send and receive, by the backend's own library (NCCL on
 * GPUs; exact and in fixed order in the simulator).
 *
 * They know no mask and need every rank of the communicator. What holds for all of them:
 *
 *   - ist_coll_open() comes first, on all ranks. Calls are enqueued on a stream and do not block the
 *     host; all ranks issue the same calls in the same order, sends and receives pair by pair.
 *     Capturable. A call may be replayed as long as its communicator is open.
 *   - Counts are in elements. 0 is a call like any other, its buffers may be NULL. Buffers lie in one
 *     allocation of this rank and are aligned to their element.
 *   - Send and receive buffer are the same (in place, see each call) or do not overlap.
 *   - A communicator that checks peers (IST_CHECK_PEERS) compares each collective call across its
 *     ranks, which makes it BLOCK, bounded by the deadline: a difference, or a peer's refused
 *     arguments, is IST_ERR_MISMATCH on all. Without it the simulator finds the difference when the
 *     call runs (ist_coll_status()); GPUs find out by the deadline. Sends and receives are not
 *     compared that way.
 *   - A rank that does not come ends the call: in the simulator one deadline after it began, on GPUs,
 *     where only the host can tell, within seven deadlines after it was enqueued, whatever is in front
 *     of it on its stream. Its output is then undefined, ist_coll_status() says so and, in the
 *     simulator, who it was. Native collectives of the communicator are over from there on.
 *   - A communicator without fault tolerance fails with them (ist_comm_status()). A fault-tolerant one
 *     goes on without; a call while some rank is masked is refused with IST_ERR_RANK_LOST. The
 *     survivors split, and open collectives on the new communicator.
 *
 * @since 0.1
 */
#ifndef IST_COLL_H
#define IST_COLL_H

#include <isthmus/comm.h>
#include <isthmus/stream.h>
#include <isthmus/types.h>

IST_BEGIN_DECLS

/**
 * How elements are combined. In the simulator: rank 0, then 1, and so on; integers modulo their width,
 * 8- and 16-bit floats in binary32, rounded once at the end to nearest even.
 */
typedef enum ist_reduction {
    IST_REDUCE_SUM = 0,    /**< sum */
    IST_REDUCE_PROD = 1,   /**< product */
    IST_REDUCE_MAX = 2,    /**< largest */
    IST_REDUCE_MIN = 3,    /**< smallest */
    IST_REDUCE_AVG = 4,    /**< sum over number of ranks; integers: towards zero */
    IST_REDUCE_PREMUL = 16 /**< first of those that ist_reduction_open() gives */
} ist_reduction;

/** Most reductions of ist_reduction_open() that a communicator has at a time. */
#define IST_REDUCTIONS_MAX 32u

/** What native collectives of a communicator are. Filled up to the caller's `size`. */
typedef struct ist_coll_info {
    uint32_t size;               /**< in: sizeof(ist_coll_info), at least 8 */
    uint32_t opened;             /**< 1: ist_coll_open() succeeded */
    uint32_t library_version;    /**< NCCL: major * 10000 + minor * 100 + patch; 0: not known */
    uint32_t all_to_all_native;  /**< 1: the library's own; 0: made of sends and receives */
    const char *library;         /**< "nccl", "simulator"; as long as the world lives */
    const char *reason;          /**< NULL, or why there are none; as long as the world lives */
    const char *estimate_reason; /**< NULL, or why the library does not estimate times */
} ist_coll_info;

/**
 * Opens native collectives on a communicator. Collective over its members; BLOCKS, each step bounded
 * by the deadline, or 30 s where the library finds out about the machine. On all ranks or on none.
 * They close with the communicator. Again on one that has them: nothing happens.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_UNSUPPORTED with the reason (no NCCL, one that
 *         is too old, a backend without them); IST_ERR_TIMEOUT naming a rank that did not come;
 *         IST_ERR_MISMATCH naming a rank that failed; IST_ERR_REMOTE with the library's own words;
 *         IST_ERR_RANK_LOST naming a masked rank; IST_ERR_MEMORY; IST_ERR_ABORTED; what made the
 *         communicator unusable
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_coll_open(ist_comm *comm);

/**
 * What they are here, also before they are opened. Local.
 *
 * @param info  out: filled up to info->size
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE when info->size is below 8 or above 65536
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_coll_query(ist_comm *comm, ist_coll_info *info);

/**
 * Whether a native collective of the communicator has failed on this rank. Never blocks. Ask it after
 * ist_stream_sync(), which waits for calls however they end.
 *
 * @return IST_OK; IST_ERR_TIMEOUT, IST_ERR_MISMATCH, IST_ERR_ABORTED, IST_ERR_REMOTE, IST_ERR_MEMORY
 *         of the first that failed, whose record (operation, peer, sequence, values) becomes the last
 *         error; IST_ERR_USAGE before ist_coll_open(); IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_coll_status(ist_comm *comm);

/**
 * Makes a reduction that multiplies each rank's elements by a number of that rank, then sums.
 *
 * @param dtype      it is for elements of this type alone
 * @param scalar     host: one element; read by the call
 * @param reduction  out: from IST_REDUCE_PREMUL on; ist_reduction_close() frees it
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT (dtype); IST_ERR_RANGE when there are
 *         IST_REDUCTIONS_MAX
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_reduction_open(ist_comm *comm, ist_dtype dtype,
                                                   const void *scalar, ist_reduction *reduction);

/**
 * Frees a reduction, at once; calls that were made with it keep it.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT for one that is not open
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_reduction_close(ist_comm *comm, ist_reduction reduction);

/** @name Groups. Calls between begin and end are enqueued together at the outermost end, or none. */
/**@{*/

/**
 * Begins a group, which may nest. Sends and receives that wait for each other belong into one.
 * Calls of one communicator in a group run together, whatever their streams; each stream goes on when
 * all of them have ended.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_coll_group_begin(ist_world *world);

/**
 * Ends a group. At the outermost end everything is enqueued, unless a call in the group was refused:
 * then nothing is, and that call's status and record are returned. Where enqueueing itself fails half
 * way, native collectives of the group's communicators are over.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE when none was begun; what the first
 *         refused call returned; what the calls return
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_coll_group_end(ist_world *world);
/**@}*/

/** @name Calls. Enqueued on `stream`; all return as ist_all_reduce() does. */
/**@{*/

/**
 * Combines `count` elements of every rank into every rank's `recv`. In place: send == recv.
 *
 * Method: NCCL's choice; the simulator counts time by the steps of the cost model's algorithm.
 *
 * @param send   device, [count]
 * @param recv   device, [count]
 * @return IST_OK when it is enqueued or added to the group; argument errors; IST_ERR_ARGUMENT (dtype,
 *         reduction, a range that is not this rank's memory, buffers that overlap); IST_ERR_ALIGNMENT;
 *         IST_ERR_RANGE (root or peer, too many bytes); IST_ERR_USAGE before ist_coll_open();
 *         IST_ERR_RANK_LOST naming a masked rank; IST_ERR_MISMATCH and IST_ERR_TIMEOUT when peers are
 *         checked; IST_ERR_UNSUPPORTED (the library has no such call or type); IST_ERR_REMOTE with the
 *         library's words; what ended the collectives of the communicator before; IST_ERR_MEMORY;
 *         IST_ERR_ABORTED
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_all_reduce(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                                  uint64_t count, ist_dtype dtype, ist_reduction reduction);

/**
 * Copies the root's `send` to every rank's `recv`. In place: send == recv on the root.
 *
 * @param send   device, [count]; the root's alone is read
 * @param recv   device, [count]
 * @param root   rank in the communicator
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_broadcast(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                                 uint64_t count, ist_dtype dtype, uint32_t root);

/**
 * Combines `count` elements of every rank into the root's `recv`. In place: send == recv.
 *
 * @param send   device, [count]
 * @param recv   device, [count]; the root's alone is written
 * @param root   rank in the communicator
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_reduce(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                              uint64_t count, ist_dtype dtype, ist_reduction reduction,
                              uint32_t root);

/**
 * Every rank gets all ranks' `send`, in the order of ranks. In place: send == recv + rank * count.
 *
 * @param send   device, [count]
 * @param recv   device, [rank_count * count]
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_all_gather(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                                  uint64_t count, ist_dtype dtype);

/**
 * Combines all ranks' `send`; each gets its share of the result. In place: recv == send + rank * count.
 *
 * @param send   device, [rank_count * count]
 * @param recv   device, [count]
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_reduce_scatter(ist_comm *comm, ist_stream *stream, const void *send,
                                      void *recv, uint64_t count, ist_dtype dtype,
                                      ist_reduction reduction);

/**
 * The i-th share of rank j's `send` becomes the j-th share of rank i's `recv`. Not in place.
 *
 * @param send   device, [rank_count * count]
 * @param recv   device, [rank_count * count]
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_all_to_all(ist_comm *comm, ist_stream *stream, const void *send, void *recv,
                                  uint64_t count, ist_dtype dtype);

/**
 * Sends to a peer; ends when it has received. To itself only inside a group.
 *
 * @param send   device, [count]
 * @param peer   rank in the communicator
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_send(ist_comm *comm, ist_stream *stream, const void *send, uint64_t count,
                            ist_dtype dtype, uint32_t peer);

/**
 * Receives what a peer sends, in the order in which it does.
 *
 * @param recv   device, [count]
 * @param peer   rank in the communicator
 * @return as ist_all_reduce()
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_recv(ist_comm *comm, ist_stream *stream, void *recv, uint64_t count,
                            ist_dtype dtype, uint32_t peer);
/**@}*/

IST_END_DECLS

#endif
