/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes and file descriptors over a local stream socket.
 */
#include "cuda_wire.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

socklen_t cuda_wire_address(const ist_backend_process *process, struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    int length =
        snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "isthmus-cuda-%016llx-%u",
                 (unsigned long long)process->job_key, process->run);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

uint64_t cuda_wire_digest(const ist_backend_process *process)
{
    return (uint64_t)CUDA_WIRE_VERSION << 48 ^ (uint64_t)sizeof(cuda_wire) << 32 ^
           process->rank_count;
}

union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(CUDA_WIRE_FDS_MAX * sizeof(int))];
};

ssize_t cuda_wire_push(int socket_fd, const void *bytes, size_t count, const int *fds,
                       uint32_t fd_count)
{
    union control control;
    char *writable = NULL;
    memcpy(&writable, &bytes, sizeof(writable)); /* sendmsg does not write */
    struct iovec part = {.iov_base = writable, .iov_len = count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

static void take_fds(struct msghdr *message, int *fds, uint32_t *fd_count)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            if (*fd_count < CUDA_WIRE_FDS_MAX) {
                fds[(*fd_count)++] = fd;
            } else {
                (void)close(fd);
            }
        }
    }
}

ssize_t cuda_wire_pull(int socket_fd, void *bytes, size_t count, int *fds, uint32_t *fd_count)
{
    union control control;
    struct iovec part = {.iov_base = bytes, .iov_len = count};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t got = 0;
    do {
        got = recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        take_fds(&message, fds, fd_count);
    }
    return got;
}
