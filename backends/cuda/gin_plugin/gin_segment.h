/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between the ranks of one host: each rank has an inbox, a memory file with one ring for
 * each rank that sends to it. The file has no name; peers open it through the owner's descriptor, so
 * nothing is left behind however a process ends.
 */
#ifndef GIN_SEGMENT_H
#define GIN_SEGMENT_H

#include "gin_interface.h"
#include "gin_ring.h"

/* What a listener tells its peers. Fits in a handle. */
typedef struct gin_address {
    uint64_t magic;
    uint64_t host; /* equal in processes that can open each other's descriptors */
    uint64_t nonce;
    int64_t process;
    int32_t fd;
    uint32_t ring_bytes; /* data bytes of each ring in the inbox */
} gin_address;

_Static_assert(sizeof(gin_address) <= GIN_HANDLE_BYTES, "a handle is 128 bytes");

/* Bytes from one ring to the next for rings with so many bytes of data. */
uint64_t gin_segment_stride(uint64_t ring_bytes);

/* Makes an empty inbox. @return its descriptor, -1: errno says why */
int gin_segment_create(uint32_t ring_bytes, gin_address *address);
/* Opens a peer's inbox. @return a descriptor of this process's own, -1: errno says why */
int gin_segment_open(const gin_address *address);
/* Maps [offset, offset + bytes) of a file that is at least `total` long afterwards; NULL: errno */
void *gin_segment_map(int fd, uint64_t total, uint64_t offset, uint64_t bytes);
void gin_segment_unmap(void *memory, uint64_t bytes);

/* Whether the owner of an opened inbox is there: its process runs and has not closed it. */
bool gin_segment_owned(int fd);

#endif
