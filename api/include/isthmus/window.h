/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file window.h
 * Windows: device memory that the ranks of a communicator may reach. A place in a window is
 * (window, offset), equal on all ranks; raw addresses are valid on their own rank only.
 */
#ifndef IST_WINDOW_H
#define IST_WINDOW_H

#include <isthmus/types.h>

IST_BEGIN_DECLS

/**
 * Registers memory as a window. Collective; BLOCKS, bounded by the deadline. Succeeds on all ranks
 * with a window, or fails on all of them: never success without a window.
 *
 * @param mem     start, from ist_mem_alloc(…, IST_MEM_SYMMETRIC, …); multiple of 4096
 * @param bytes   > 0, inside that allocation; may differ between ranks
 * @param window  out
 * @return IST_OK; IST_ERR_ALIGNMENT; IST_ERR_ARGUMENT (not symmetric memory); IST_ERR_UNSUPPORTED
 *         with the reason; IST_ERR_TIMEOUT; IST_ERR_MISMATCH when a peer's call failed
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_window_open(ist_comm *comm, void *mem, size_t bytes,
                                                ist_window **window);

/**
 * Deregisters. Local; the caller ensures that peers are done (a barrier). NULL is allowed.
 * @return IST_OK; IST_ERR_OBJECT
 * @since 0.1
 */
IST_API ist_status ist_window_close(ist_window *window);

/** Bytes registered on this rank; 0 for a closed window. @since 0.1 */
IST_API uint64_t ist_window_bytes(const ist_window *window);

/** Number of the window in its communicator, equal on all ranks; what device code uses. @since 0.1 */
IST_API uint32_t ist_window_index(const ist_window *window);

/**
 * Local address of an offset.
 * @param bytes  length that must fit behind the offset, may be 0
 * @return IST_OK; IST_ERR_RANGE naming offset, length and window size
 * @since 0.1
 */
IST_API ist_status ist_window_address(const ist_window *window, uint64_t offset, uint64_t bytes,
                                      void **address);

/**
 * Offset of a local address inside the window.
 * @return IST_OK; IST_ERR_RANGE when it lies outside
 * @since 0.1
 */
IST_API ist_status ist_window_offset(const ist_window *window, const void *address,
                                     uint64_t *offset);

IST_END_DECLS

#endif
