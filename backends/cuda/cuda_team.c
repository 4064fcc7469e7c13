/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a rank runs, and whose memory it can map: what it brings to the choice of load/store teams.
 */
#include "cuda_comm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a; only for telling hosts apart. */
static uint64_t digest(const char *bytes, size_t count)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; ++i) {
        value = (value ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return value;
}

/* Of the running system; containers on one machine share it. */
static uint64_t host_number(void)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return digest(text, got > 0 ? (size_t)got : 0);
}

/*
 * IST_CUDA_LSA=N: at most N ranks in a load/store team; with 1 every peer is reached over the network.
 * For tests, and for comparing paths. 0: no limit
 */
static uint32_t lsa_limit(uint32_t wanted)
{
    const char *text = getenv("IST_CUDA_LSA");
    uint32_t limit = text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 0;
    return limit != 0 && (wanted == 0 || limit < wanted) ? limit : wanted;
}

void cuda_place_fill(const cuda_rank *rank, uint32_t lsa_size_max, cuda_place *place)
{
    const cuda_world *world = rank->world;
    *place = (cuda_place){.host = host_number(),
                          .process = (uint64_t)getpid(),
                          .world_rank = rank->index,
                          .lsa_size_max = lsa_limit(lsa_size_max),
                          .windows = rank->vmm && (world->threads || rank->fd_export) ? 1u : 0u};
    memcpy(place->uuid, rank->uuid, sizeof(place->uuid));
}

/* Whether a GPU that this process sees is the one, and can be reached from this rank's. */
static bool device_reaches(const cuda_rank *rank, int ordinal, const uint8_t *uuid)
{
    CUdevice device = 0;
    CUuuid seen;
    int reaches = 0;
    return cu.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
           cu.cuDeviceGetUuid(&seen, device) == CUDA_SUCCESS &&
           memcmp(seen.bytes, uuid, sizeof(seen.bytes)) == 0 &&
           cu.cuDeviceCanAccessPeer(&reaches, rank->device, device) == CUDA_SUCCESS && reaches != 0;
}

static bool reaches_place(const cuda_rank *rank, const cuda_place *own, const cuda_place *peer)
{
    if (own->host != peer->host || own->windows == 0 || peer->windows == 0) {
        return false;
    }
    if (memcmp(own->uuid, peer->uuid, sizeof(own->uuid)) == 0) {
        return true;
    }
    for (int ordinal = 0; ordinal < cuda_driver_device_count(); ++ordinal) {
        if (device_reaches(rank, ordinal, peer->uuid)) {
            return true;
        }
    }
    return false;
}

void cuda_team_reach(const cuda_comm *comm, uint64_t *reach)
{
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        if (peer == comm->rank ||
            reaches_place(comm->owner, &comm->places[comm->rank], &comm->places[peer])) {
            cuda_bit_set(reach, peer);
        }
    }
}
