/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load/store teams: contiguous blocks of ranks on one host whose GPUs all map each other's memory.
 * Every rank brings what it can map; all compute the same answer from all rows.
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

/* common_divisor(0, x) is x. */
static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The smallest: teams are equal everywhere; that the limits differ is for the front to tell. */
static uint32_t limit_of_all(const cuda_comm *comm)
{
    uint32_t limit = 0;
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        uint32_t own = comm->places[i].lsa_size_max;
        limit = own != 0 && (limit == 0 || own < limit) ? own : limit;
    }
    return limit;
}

/* Of the limit and the lengths of all runs of consecutive ranks on one host. */
static uint32_t divisor_of_runs(const cuda_comm *comm, uint32_t limit)
{
    uint32_t size = limit;
    uint32_t run = 0;
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        if (run > 0 && comm->places[i].host != comm->places[i - 1].host) {
            size = common_divisor(size, run);
            run = 0;
        }
        ++run;
    }
    return common_divisor(size, run);
}

static bool block_mutual(const uint64_t *rows, size_t words, uint32_t first, uint32_t size)
{
    for (uint32_t from = first; from < first + size; ++from) {
        for (uint32_t to = first; to < first + size; ++to) {
            if (!cuda_bit(rows + from * words, to)) {
                return false;
            }
        }
    }
    return true;
}

static bool all_mutual(const cuda_comm *comm, const uint64_t *rows, uint32_t size)
{
    size_t words = CUDA_WORDS(comm->rank_count);
    for (uint32_t first = 0; first < comm->rank_count; first += size) {
        if (!block_mutual(rows, words, first, size)) {
            return false;
        }
    }
    return true;
}

uint32_t cuda_team_size(const cuda_comm *comm, const uint64_t *rows)
{
    uint32_t most = divisor_of_runs(comm, limit_of_all(comm));
    for (uint32_t size = most; size > 1; --size) {
        if (most % size == 0 && all_mutual(comm, rows, size)) {
            return size;
        }
    }
    return 1;
}
