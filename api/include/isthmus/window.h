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
 * Registers memory as a window. Collective over the communicator; BLOCKS, each of its two meetings
 * bounded by the communicator's deadline. Succeeds on all ranks with a window, or fails on all of
 * them: never success without a window.
 *
 * @param mem     start, from ist_mem_alloc(…, IST_MEM_SYMMETRIC, …); multiple of
 *                IST_WINDOW_ALIGNMENT
 * @param bytes   > 0, inside that allocation; may differ between ranks
 * @param window  out: close it with ist_window_close(), before the communicator
 * @return IST_OK; argument errors; IST_ERR_ALIGNMENT, IST_ERR_ARGUMENT (`bytes` 0, or not symmetric
 *         memory of this rank), IST_ERR_UNSUPPORTED with the reason: peers are told, and get
 *         IST_ERR_MISMATCH naming this rank; IST_ERR_TIMEOUT naming a rank that did not come;
 *         IST_ERR_MEMORY; IST_ERR_ABORTED; what made the communicator unusable
 * @threads the rank's own
 * @since 0.1
 */
IST_API IST_MUST_USE ist_status ist_window_open(ist_comm *comm, void *mem, size_t bytes,
                                                ist_window **window);

/**
 * Deregisters. Local; the caller ensures that peers are done (a barrier). Kernels and puts that
 * still use the window are out of range from here on. NULL is allowed.
 *
 * @return IST_OK; IST_ERR_OBJECT; what the backend reports (the window is closed all the same)
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_window_close(ist_window *window);

/**
 * Bytes registered on this rank.
 *
 * @return 0 for NULL or a closed window
 * @threads the rank's own
 * @since 0.1
 */
IST_API uint64_t ist_window_bytes(const ist_window *window);

/**
 * Number of the window in its communicator, equal on all ranks: how device code names it.
 *
 * @return from 1; 0 for NULL or a closed window
 * @threads the rank's own
 * @since 0.1
 */
IST_API uint32_t ist_window_index(const ist_window *window);

/**
 * This rank's address of a place in the window.
 *
 * @param offset   bytes from the start of the window
 * @param bytes    length that must fit behind the offset, may be 0
 * @param address  out: device address, valid on this rank only
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_RANGE naming offset, length and window size
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_window_address(const ist_window *window, uint64_t offset, uint64_t bytes,
                                      void **address);

/**
 * The place in the window of one of this rank's addresses.
 *
 * @param address  device address inside the window; NULL lies outside
 * @param offset   out: bytes from the start of the window
 * @return IST_OK; IST_ERR_NULL (window, offset); IST_ERR_OBJECT; IST_ERR_RANGE when the address lies
 *         outside
 * @threads the rank's own
 * @since 0.1
 */
IST_API ist_status ist_window_offset(const ist_window *window, const void *address,
                                     uint64_t *offset);

IST_END_DECLS

#endif
