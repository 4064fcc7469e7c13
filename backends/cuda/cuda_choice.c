/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds what a world's first communicator has formed (teams by what the driver lets GPUs map, GIN by
 * what NCCL answers) against the topology of this machine, once a world: it costs some milliseconds.
 */
#include "cuda_comm.h"

#include <isthmus/unstable/topology.h>
#include <stdio.h>

#define UUID_BYTES 41u /* "GPU-", 32 digits, 4 dashes, NUL */

static void uuid_print(const uint8_t *uuid, char text[UUID_BYTES])
{
    size_t length = (size_t)snprintf(text, UUID_BYTES, "GPU");
    for (size_t i = 0; i < 16; ++i) {
        const char *dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, UUID_BYTES - length, "%s%02x", dash, uuid[i]);
    }
}

/* Ranks from the first on that are on the first one's host: others' GPUs are not seen from here. */
static uint32_t ranks_here(const cuda_comm *comm)
{
    uint32_t count = 1;
    while (count < comm->rank_count && comm->places[count].host == comm->places[0].host) {
        ++count;
    }
    return count;
}

static ist_status announce(const cuda_comm *comm, uint32_t count, char (*texts)[UUID_BYTES],
                           const char **uuids)
{
    for (uint32_t i = 0; i < count; ++i) {
        uuid_print(comm->places[i].uuid, texts[i]);
        uuids[i] = texts[i];
    }
    const ist_topology_formed formed = {
        .size = sizeof(formed),
        .rank_count = count,
        .lsa_size = count % comm->lsa_size == 0 ? comm->lsa_size : 1,
        .lsa_size_max = comm->places[0].lsa_size_max,
        /* Which kind NCCL has taken, it does not tell. */
        .gin = comm->nccl != NULL ? IST_GIN_KIND_PROXY : IST_GIN_KIND_NONE,
        .peer_access = IST_PATH_SYS,
        .gin_reason = comm->nccl != NULL ? NULL : comm->gin_reason,
        .uuids = uuids,
        .part = count < comm->rank_count};
    return ist_topology_announce("live", &formed, NULL);
}

ist_status cuda_comm_announce(const cuda_comm *comm)
{
    const uint32_t count = ranks_here(comm);
    char(*texts)[UUID_BYTES] = ist_alloc(count, sizeof(*texts));
    const char **uuids = ist_alloc(count, sizeof(*uuids));
    const ist_status status = texts == NULL || uuids == NULL
                                  ? cuda_fail_memory(comm->owner, "names of GPUs")
                                  : announce(comm, count, texts, uuids);
    ist_free(texts);
    ist_free(uuids);
    return status;
}
