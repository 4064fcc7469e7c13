/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file types.h
 * Element types, tensors and the names of all opaque objects.
 */
#ifndef IST_TYPES_H
#define IST_TYPES_H

#include <isthmus/export.h>
#include <isthmus/status.h>
#include <stddef.h>
#include <stdint.h>

IST_BEGIN_DECLS

typedef struct ist_world ist_world;         /**< one rank's view of a running world */
typedef struct ist_stream ist_stream;       /**< an ordered queue of device work */
typedef struct ist_event ist_event;         /**< a point in a stream */
typedef struct ist_graph ist_graph;         /**< captured work that can be replayed */
typedef struct ist_comm ist_comm;           /**< a communicator */
typedef struct ist_window ist_window;       /**< memory that peers may reach */
typedef struct ist_ep_group ist_ep_group;   /**< expert-parallel group */
typedef struct ist_ep_handle ist_ep_handle; /**< routing of one batch in a group */

/** Element types. Values are permanent. */
typedef enum ist_dtype {
    IST_DTYPE_UNSET = 0, /**< always refused, so that a forgotten field is noticed */
    IST_U8 = 1,          /**< unsigned, 1 byte */
    IST_I32 = 2,         /**< two's complement, 4 bytes */
    IST_I64 = 3,         /**< two's complement, 8 bytes */
    IST_F16 = 4,         /**< IEEE 754 binary16 */
    IST_BF16 = 5,        /**< upper half of IEEE 754 binary32 */
    IST_F32 = 6,         /**< IEEE 754 binary32 */
    IST_I8 = 7,          /**< two's complement, 1 byte */
    IST_U32 = 8,         /**< unsigned, 4 bytes */
    IST_U64 = 9,         /**< unsigned, 8 bytes */
    IST_F64 = 10,        /**< IEEE 754 binary64 */
    IST_F8E4M3 = 11,     /**< OCP 8-bit float: 4 bits of exponent, no infinity, largest 448 */
    IST_F8E5M2 = 12      /**< OCP 8-bit float: 5 bits of exponent, as binary16 cut short */
} ist_dtype;

/**
 * Bytes of one element.
 *
 * @return 1, 2, 4 or 8; 0 for IST_DTYPE_UNSET or a value outside the list
 * @threads any
 * @since 0.1
 */
IST_API size_t ist_dtype_bytes(ist_dtype dtype);

/** Most dimensions of a tensor. */
#define IST_TENSOR_DIMS_MAX 5

/**
 * A dense row-major tensor in device memory. It is bound either by `data` or by a window and an
 * offset in bytes; a tensor with a zero dimension may have neither. It begins at a multiple of its
 * element size. The struct is read during the call only; the memory must stay valid until the
 * operation has run.
 */
typedef struct ist_tensor {
    uint32_t size;                      /**< sizeof(ist_tensor) */
    ist_dtype dtype;                    /**< element type */
    uint32_t dim_count;                 /**< 1 … IST_TENSOR_DIMS_MAX */
    uint32_t reserved;                  /**< zero */
    uint64_t dims[IST_TENSOR_DIMS_MAX]; /**< elements, slowest dimension first */
    void *data;                         /**< device address, or NULL when `window` is set */
    ist_window *window;                 /**< registered window, or NULL */
    uint64_t window_offset;             /**< bytes from the start of the window; 0 with `data` */
} ist_tensor;

IST_END_DECLS

#endif
