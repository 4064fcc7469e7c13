/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the process of a rank and the conductor: one request, one answer, over a local
 * stream socket. Both sides are the same build on the same host, so the structs go as they are.
 */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

#include <isthmus/backend.h>
#include <stdbool.h>

#define SIM_WIRE_VERSION 1u
#define SIM_WIRE_NUMBERS 6u

/* Every operation of the waist, and what frames them. */
typedef enum sim_wire_op {
#define X(op, params, args, need) SIM_WIRE_##op,
    IST_BACKEND_OPS(X)
#undef X
        SIM_WIRE_HELLO, /* n: version, rank, process id, digest of the descriptor */
    SIM_WIRE_END        /* n: status; answered when the world has ended, with its result */
} sim_wire_op;

typedef struct sim_message {
    uint32_t op;
    int32_t status;               /* answers */
    uint64_t n[SIM_WIRE_NUMBERS]; /* scalars in and out */
    uint64_t bytes;               /* that follow */
    ist_error error;              /* answers with a negative status */
} sim_message;

/* A kernel travels by name: its address differs between processes. */
#define SIM_WIRE_KERNEL_NAME_MAX 64u

/* The answer to `caps`: texts by value. */
typedef struct sim_wire_caps {
    ist_backend_caps caps;
    char device_name[48];
    char gin_reason[96];
} sim_wire_caps;

/* Whole buffers or nothing: IST_ERR_SYSTEM when the other side is gone. */
ist_status sim_wire_send(int socket, const sim_message *message, const void *bytes);
ist_status sim_wire_receive(int socket, sim_message *message);
ist_status sim_wire_receive_bytes(int socket, void *bytes, size_t count);

/* Whether something can be read within so many real milliseconds. */
bool sim_wire_ready(int socket, int timeout_ms);

#endif
