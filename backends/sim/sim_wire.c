/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving messages through a socket, in full, whatever the kernel splits or interrupts.
 */
#include "sim_wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static ist_status sim_wire_gone(const char *what)
{
    return ist_raise(IST_ERR_SYSTEM, NULL, "%s: the other process is gone (%s)", what,
                     errno == 0 ? "end of stream" : strerror(errno));
}

static ist_status sim_wire_write(int socket, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count > 0) {
        ssize_t sent = send(socket, at, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return sim_wire_gone("send");
        }
        at += sent;
        count -= (size_t)sent;
    }
    return IST_OK;
}

ist_status sim_wire_receive_bytes(int socket, void *bytes, size_t count)
{
    uint8_t *at = bytes;
    while (count > 0) {
        ssize_t got = recv(socket, at, count, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return sim_wire_gone("receive");
        }
        at += got;
        count -= (size_t)got;
    }
    return IST_OK;
}

ist_status sim_wire_send(int socket, const sim_message *message, const void *bytes)
{
    IST_RETURN_IF_ERROR(sim_wire_write(socket, message, sizeof(*message)));
    return message->bytes > 0 ? sim_wire_write(socket, bytes, message->bytes) : IST_OK;
}

ist_status sim_wire_receive(int socket, sim_message *message)
{
    return sim_wire_receive_bytes(socket, message, sizeof(*message));
}

bool sim_wire_ready(int socket, int timeout_ms)
{
    struct pollfd wanted = {.fd = socket, .events = POLLIN};
    int ready;
    do {
        ready = poll(&wanted, 1, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}
