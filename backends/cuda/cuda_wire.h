/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the process of a rank and the server: a fixed head, then bytes; file descriptors
 * travel with the head. Both ends are the same build on the same host.
 */
#ifndef CUDA_WIRE_H
#define CUDA_WIRE_H

#include <isthmus/backend.h>
#include <sys/socket.h>
#include <sys/un.h>

#define CUDA_WIRE_VERSION 1u
/* Most descriptors in one message; the kernel's limit is 253. */
#define CUDA_WIRE_FDS_MAX 240u
/* Time within which the processes of a job must find the server. */
#define CUDA_MEET_NS UINT64_C(60000000000)

typedef enum cuda_wire_op {
    CUDA_WIRE_HELLO = 1,
    CUDA_WIRE_JOIN,
    CUDA_WIRE_EXCHANGE,
    CUDA_WIRE_ABORT,
    CUDA_WIRE_LEAVE,
    CUDA_WIRE_ANSWER
} cuda_wire_op;

/*
 * Bytes behind the head. JOIN: `bytes`. EXCHANGE: the words of lost ranks, then `bytes`.
 * ANSWER: words of arrived ranks, words of ranks with a descriptor, rank_count * bytes.
 */
typedef struct cuda_wire {
    uint32_t op;
    int32_t status;
    uint32_t client;
    uint32_t member;
    uint32_t rank_count;
    uint32_t reserved;
    uint32_t peer;
    uint32_t fd_count;
    uint64_t comm;
    uint64_t bytes;
    uint64_t payload_bytes;
    uint64_t wait_ns; /* from the receipt on */
    uint64_t expected;
    uint64_t observed;
    uint8_t id[128];
} cuda_wire;

/* The server's abstract socket: no file to clean up, gone with the last process that holds it. */
socklen_t cuda_wire_address(const ist_backend_process *process, struct sockaddr_un *address);
/* What all processes of the job must have in common. */
uint64_t cuda_wire_digest(const ist_backend_process *process);

/* Sends what it can without blocking. @return bytes sent, -1 with errno (EAGAIN: none) */
ssize_t cuda_wire_push(int socket_fd, const void *bytes, size_t count, const int *fds,
                       uint32_t fd_count);
/* Receives what is there. fds has room for CUDA_WIRE_FDS_MAX; *fd_count grows.
   @return bytes, 0 at the end, -1 with errno */
ssize_t cuda_wire_pull(int socket_fd, void *bytes, size_t count, int *fds, uint32_t *fd_count);

#endif
