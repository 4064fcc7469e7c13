/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The waist as the process of a rank sees it: every operation is a request to the conductor.
 */
#ifndef SIM_REMOTE_H
#define SIM_REMOTE_H

#include <isthmus/backend.h>

/* `self` of the remote table. */
typedef struct sim_remote {
    int socket;
    uint32_t rank;
    char gin_reason[96]; /* texts that callers keep pointers to */
    char device_name[48];
    char caps_gin_reason[96];
} sim_remote;

extern const ist_backend_ops sim_remote_ops;

#endif
