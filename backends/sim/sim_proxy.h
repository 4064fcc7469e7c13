/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conductor's stand-in for the program of a rank that runs in another process.
 */
#ifndef SIM_PROXY_H
#define SIM_PROXY_H

#include "sim_internal.h"

typedef struct sim_proxy {
    int socket; /* -1: the process is gone */
    int64_t process_id;
    int timeout_ms; /* real time a process may compute between two calls */
} sim_proxy;

/* Serves the rank's requests until its program ends or its process dies. */
ist_status sim_proxy_serve(sim_rank *rank, sim_proxy *proxy);

#endif
