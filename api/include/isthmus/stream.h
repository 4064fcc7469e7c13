/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file stream.h
 * Device memory, streams, events, and graphs.
 *
 * All work is enqueued on a stream; work on one stream runs in order. The host blocks only in
 * calls documented to block, and every such wait is bounded by a deadline.
 */
#ifndef IST_STREAM_H
#define IST_STREAM_H

#include <isthmus/types.h>

IST_BEGIN_DECLS

/** Properties of device memory; may be combined. */
typedef enum ist_mem_flags {
    IST_MEM_PLAIN = 0,     /**< ordinary device memory */
    IST_MEM_SYMMETRIC = 1, /**< may be registered as a window */
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
 * @return IST_OK; IST_ERR_MEMORY; IST_ERR_ARGUMENT; IST_ERR_NULL
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_mem_alloc(ist_world *world, size_t bytes, uint32_t flags,
                                              void **mem);

/**
 * Frees device memory. Memory inside an open window is refused. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_ARGUMENT for an address that was not allocated; IST_ERR_USAGE
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_mem_free(ist_world *world, void *mem);

/**
 * Reads host-visible memory now, without ordering against any stream.
 *
 * @return IST_OK; IST_ERR_ARGUMENT when the range is not host-visible memory of this rank
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_mem_peek(ist_world *world, const void *mem, void *host, size_t bytes);

/** Opens a stream. @return IST_OK; IST_ERR_NULL; IST_ERR_MEMORY @threads the rank's own @since 0.1 */
IST_API IST_MUST_USE ist_status ist_stream_open(ist_world *world, ist_stream **stream);

/**
 * Waits (bounded as ist_stream_sync(stream, 0)) for the stream's work, then frees it. NULL is allowed.
 * @return IST_OK; IST_ERR_TIMEOUT (the stream is freed all the same) @since 0.1
 */
IST_API ist_status ist_stream_close(ist_stream *stream);

/**
 * Blocks until all work enqueued so far has run.
 *
 * @param deadline_ns  0: eight times the world's deadline, so that device waits end first
 * @return IST_OK; IST_ERR_TIMEOUT; IST_ERR_KILLED; IST_ERR_DEVICE; IST_ERR_DEADLOCK (simulator)
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_stream_sync(ist_stream *stream, uint64_t deadline_ns);

/** Asks without blocking. @return IST_OK when idle, IST_IN_PROGRESS, or a failure @since 0.1 */
IST_API ist_status ist_stream_query(ist_stream *stream);

/**
 * Enqueues a copy from host memory to device memory. The host bytes are captured by the call and
 * may be reused when it returns; inside a capture they become part of the graph.
 *
 * @return IST_OK; IST_ERR_ARGUMENT when [dst, dst+bytes) is not memory of this rank
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_copy_to_device(ist_stream *stream, void *dst, const void *host_src,
                                      size_t bytes);

/**
 * Copies device memory to host memory. BLOCKS until the stream has reached and done the copy,
 * bounded as ist_stream_sync(stream, 0). Not allowed during capture.
 *
 * @return IST_OK; IST_ERR_USAGE in capture; IST_ERR_TIMEOUT; IST_ERR_ARGUMENT
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_copy_to_host(ist_stream *stream, void *host_dst, const void *src,
                                    size_t bytes);

/** Enqueues a copy inside this rank's device memory; ranges must not overlap. @since 0.1 */
IST_API ist_status ist_copy(ist_stream *stream, void *dst, const void *src, size_t bytes);

/** Enqueues a fill of device memory with one byte value. @since 0.1 */
IST_API ist_status ist_fill(ist_stream *stream, void *dst, uint8_t value, size_t bytes);

/** Opens an event; it counts as not recorded. @since 0.1 */
IST_API IST_MUST_USE ist_status ist_event_open(ist_world *world, ist_event **event);

/** Frees an event; streams that wait for its last record still do. NULL is allowed. @since 0.1 */
IST_API ist_status ist_event_close(ist_event *event);

/** Enqueues the event's point; a later record replaces an earlier one. @since 0.1 */
IST_API ist_status ist_event_record(ist_event *event, ist_stream *stream);

/** Makes later work on the stream wait for the event's last record; no record: no wait. @since 0.1 */
IST_API ist_status ist_event_wait(ist_event *event, ist_stream *stream);

/** Blocks until the last record was reached. deadline_ns 0: as ist_stream_sync(). @since 0.1 */
IST_API ist_status ist_event_sync(ist_event *event, uint64_t deadline_ns);

/** Asks without blocking. @return IST_OK when reached or never recorded, IST_IN_PROGRESS @since 0.1 */
IST_API ist_status ist_event_query(ist_event *event);

/** Nanoseconds from one reached event to another. @return IST_ERR_USAGE unless both reached @since 0.1 */
IST_API ist_status ist_event_elapsed(ist_event *start, ist_event *end, uint64_t *elapsed_ns);

/**
 * Starts capturing: work enqueued on this stream goes into a graph and does not run. A stream that
 * waits for an event recorded in the capture joins it and must be joined back before the end.
 *
 * @return IST_OK; IST_ERR_USAGE when a capture is under way
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_graph_begin(ist_stream *stream);

/**
 * Ends a capture. On failure the capture is dropped, the stream is usable, and graph is untouched.
 *
 * @return IST_OK; IST_ERR_USAGE without a capture, or with a stream that was not joined back
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_graph_end(ist_stream *stream, ist_graph **graph);

/**
 * Enqueues all work of the graph. A graph may be launched any number of times, on any stream of the
 * rank; its launches run one after the other. Not allowed on a stream that is capturing.
 *
 * @return IST_OK; IST_ERR_USAGE on a capturing stream
 * @since 0.1
 */
IST_API ist_status ist_graph_launch(ist_graph *graph, ist_stream *stream);

/** Frees a graph; launches already enqueued still run. NULL is allowed. @since 0.1 */
IST_API ist_status ist_graph_close(ist_graph *graph);

IST_END_DECLS

#endif
