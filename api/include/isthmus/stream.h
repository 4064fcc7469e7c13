/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file stream.h
 * Device memory, streams, events, and graphs.
 *
 * All work is enqueued on a stream; work on one stream runs in order. The host blocks only in
 * calls documented to block, and every such wait is bounded by a deadline.
 *
 * @threads the rank's own
 * @since 0.1
 */
#ifndef IST_STREAM_H
#define IST_STREAM_H

#include <isthmus/types.h>

IST_BEGIN_DECLS

/** Properties of device memory; may be combined. */
typedef enum ist_mem_flags {
    IST_MEM_PLAIN = 0,       /**< ordinary device memory */
    IST_MEM_SYMMETRIC = 1,   /**< may be registered as a window */
    IST_MEM_HOST_VISIBLE = 2 /**< ist_mem_peek() may read it without a stream */
} ist_mem_flags;

/** Windows must begin at a multiple of this and are rounded up to it, in bytes. */
#define IST_WINDOW_ALIGNMENT 4096u

/**
 * Allocates device memory of this rank, aligned to IST_WINDOW_ALIGNMENT; contents undefined.
 *
 * In the simulator pages are backed when touched, so large sparse tensors cost what is used.
 *
 * @param bytes  > 0
 * @param flags  ist_mem_flags, or-ed
 * @param mem    out: device address, only valid on this rank
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT (`bytes` 0, or an unknown flag);
 *         IST_ERR_MEMORY when the device has no room, or the fault plan says so
 */
IST_API IST_MUST_USE ist_status ist_mem_alloc(ist_world *world, size_t bytes, uint32_t flags,
                                              void **mem);

/**
 * Frees device memory. Does not wait for work that uses it. NULL is allowed.
 *
 * @param mem  an address that ist_mem_alloc() gave, on this rank
 * @return IST_OK; IST_ERR_NULL (world); IST_ERR_OBJECT; IST_ERR_ARGUMENT for an address that is not
 *         the start of an allocation; IST_ERR_USAGE while an open window lies in it. After these
 *         nothing is freed
 */
IST_API ist_status ist_mem_free(ist_world *world, void *mem);

/**
 * Reads host-visible memory now, without ordering against any stream.
 *
 * @param mem    device address in memory with IST_MEM_HOST_VISIBLE
 * @param host   out: [bytes]
 * @param bytes  0: nothing is read or checked but `world`
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT when the range is not host-visible
 *         memory in one allocation of this rank
 */
IST_API ist_status ist_mem_peek(ist_world *world, const void *mem, void *host, size_t bytes);

/**
 * Opens a stream.
 *
 * @param stream  out: close it with ist_stream_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_MEMORY
 */
IST_API IST_MUST_USE ist_status ist_stream_open(ist_world *world, ist_stream **stream);

/**
 * Waits for the stream's work, bounded as ist_stream_sync(stream, 0), then frees the stream. A
 * capture that began on it is dropped. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT; what ist_stream_sync() returns (the stream is freed all the same)
 */
IST_API ist_status ist_stream_close(ist_stream *stream);

/**
 * Blocks until all work enqueued so far has run.
 *
 * @param deadline_ns  longest wait, at least 1000; 0: eight times the world's deadline, so that
 *                     device waits end first
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE while the stream is capturing;
 *         IST_ERR_RANGE for 1 … 999; IST_ERR_TIMEOUT (the work goes on); IST_ERR_KILLED;
 *         IST_ERR_DEVICE; IST_ERR_MEMORY when the simulator had no host memory for a kernel
 */
IST_API ist_status ist_stream_sync(ist_stream *stream, uint64_t deadline_ns);

/**
 * Asks, without blocking, whether the stream's work has run.
 *
 * @return IST_OK when it has; IST_IN_PROGRESS; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE while the
 *         stream is capturing; IST_ERR_KILLED; IST_ERR_DEVICE
 */
IST_API ist_status ist_stream_query(ist_stream *stream);

/**
 * Enqueues a copy from host memory to device memory. The host bytes are captured by the call and
 * may be reused when it returns; inside a capture they become part of the graph.
 *
 * @param dst       device address
 * @param host_src  [bytes]
 * @param bytes     0: nothing is done or checked but `stream`
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT when [dst, dst + bytes) does not lie
 *         in one allocation of this rank; IST_ERR_MEMORY
 */
IST_API ist_status ist_copy_to_device(ist_stream *stream, void *dst, const void *host_src,
                                      size_t bytes);

/**
 * Copies device memory to host memory. BLOCKS until the stream has reached and done the copy,
 * bounded as ist_stream_sync(stream, 0).
 *
 * @param host_dst  out: [bytes]
 * @param src       device address
 * @param bytes     0: nothing is done or checked but `stream`; does not wait
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE while the stream is capturing;
 *         IST_ERR_ARGUMENT when [src, src + bytes) does not lie in one allocation of this rank;
 *         IST_ERR_TIMEOUT and the others of ist_stream_sync()
 */
IST_API ist_status ist_copy_to_host(ist_stream *stream, void *host_dst, const void *src,
                                    size_t bytes);

/**
 * Enqueues a copy inside this rank's device memory.
 *
 * @param dst    device address
 * @param src    device address; the two ranges must not overlap
 * @param bytes  0: nothing is done or checked but `stream`
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT when a range does not lie in one
 *         allocation of this rank, or they overlap; IST_ERR_MEMORY
 */
IST_API ist_status ist_copy(ist_stream *stream, void *dst, const void *src, size_t bytes);

/**
 * Enqueues a fill of device memory with one byte value.
 *
 * @param dst    device address
 * @param bytes  0: nothing is done or checked but `stream`
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_ARGUMENT when the range does not lie in one
 *         allocation of this rank; IST_ERR_MEMORY
 */
IST_API ist_status ist_fill(ist_stream *stream, void *dst, uint8_t value, size_t bytes);

/**
 * Opens an event, which counts as not recorded.
 *
 * @param event  out: close it with ist_event_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_MEMORY
 */
IST_API IST_MUST_USE ist_status ist_event_open(ist_world *world, ist_event **event);

/**
 * Frees an event; streams that wait for its last record still do. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT
 */
IST_API ist_status ist_event_close(ist_event *event);

/**
 * Enqueues the event's point; a later record replaces an earlier one.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT (also when the two belong to different ranks);
 *         IST_ERR_MEMORY
 */
IST_API ist_status ist_event_record(ist_event *event, ist_stream *stream);

/**
 * Makes later work on the stream wait for the event's last record; without a record it does not
 * wait. An event that was recorded in the capture under way takes the stream into that capture.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT (also when the two belong to different ranks);
 *         IST_ERR_USAGE when a capturing stream would wait for a record outside the capture, which
 *         also makes ist_graph_end() fail; IST_ERR_MEMORY
 */
IST_API ist_status ist_event_wait(ist_event *event, ist_stream *stream);

/**
 * Blocks until the event's last record was reached; returns at once when there is none.
 *
 * @param deadline_ns  longest wait, at least 1000; 0: as ist_stream_sync()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE when it was recorded in the capture
 *         under way; IST_ERR_RANGE for 1 … 999; IST_ERR_TIMEOUT; IST_ERR_KILLED; IST_ERR_DEVICE
 */
IST_API ist_status ist_event_sync(ist_event *event, uint64_t deadline_ns);

/**
 * Asks, without blocking, whether the event's last record was reached.
 *
 * @return IST_OK when it was, or there is none; IST_IN_PROGRESS; IST_ERR_NULL; IST_ERR_OBJECT;
 *         IST_ERR_USAGE when it was recorded in the capture under way; IST_ERR_KILLED;
 *         IST_ERR_DEVICE
 */
IST_API ist_status ist_event_query(ist_event *event);

/**
 * Time between two reached events, on the device's clock.
 *
 * @param elapsed_ns  out: from the last record of `start` to that of `end`; 0 when `end` came first
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE unless both were recorded and reached
 */
IST_API ist_status ist_event_elapsed(ist_event *start, ist_event *end, uint64_t *elapsed_ns);

/**
 * Starts capturing: work enqueued on this stream goes into a graph and does not run. A stream that
 * waits for an event recorded in the capture joins it and must be joined back before the end.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE when a capture is under way on this
 *         rank, whatever its stream; IST_ERR_UNSUPPORTED; IST_ERR_MEMORY
 */
IST_API ist_status ist_graph_begin(ist_stream *stream);

/**
 * Ends a capture. On failure the capture is dropped, the stream is usable, and `graph` is untouched;
 * only a refused `stream` leaves a capture as it is.
 *
 * @param stream  the one that the capture began on
 * @param graph   out: close it with ist_graph_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_USAGE when no capture began on this stream,
 *         or a stream that joined was not joined back; IST_ERR_MEMORY; what the first captured call
 *         that failed returned
 */
IST_API IST_MUST_USE ist_status ist_graph_end(ist_stream *stream, ist_graph **graph);

/**
 * Enqueues all work of the graph. A graph may be launched any number of times, on any stream of the
 * rank; its launches run one after the other.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT (also when the two belong to different ranks);
 *         IST_ERR_USAGE while the stream is capturing; IST_ERR_MEMORY (a part may be enqueued)
 */
IST_API ist_status ist_graph_launch(ist_graph *graph, ist_stream *stream);

/**
 * Frees a graph; launches already enqueued still run. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT
 */
IST_API ist_status ist_graph_close(ist_graph *graph);

IST_END_DECLS

#endif
