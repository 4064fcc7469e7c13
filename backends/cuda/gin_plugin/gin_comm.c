/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of ranks and their memory. Connecting needs no answer of the peers: an inbox exists from the
 * moment its owner listens.
 */
#include "gin_comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 4096, RING_BYTES_MIN = 65536, RING_BYTES_MAX = 1 << 28 };
#define RING_BYTES_USUAL (UINT64_C(1) << 20)
#define STALL_MS_USUAL UINT64_C(5000)
#define NS_PER_MS UINT64_C(1000000)
#define WORDS_BYTES 4096u

_Static_assert(GIN_WORDS_MAX * sizeof(uint64_t) <= WORDS_BYTES, "words fit behind the rings");

/* Communicators of the process: NCCL asks for errors without saying of which. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static gin_comm *all;

/* ---- settings -------------------------------------------------------------------------------- */

static uint64_t setting(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t value = text != NULL ? strtoull(text, &end, 0) : 0;
    return end != NULL && end != text && *end == '\0' ? value : usual;
}

static uint32_t ring_bytes_wanted(gin_log_fn log)
{
    uint64_t bytes = setting("ISTHMUS_GIN_RING_BYTES", RING_BYTES_USUAL);
    if (bytes < RING_BYTES_MIN || bytes > RING_BYTES_MAX || (bytes & (bytes - 1u)) != 0) {
        GIN_SAY(
            log, GIN_LOG_WARN,
            "GIN/Isthmus: ISTHMUS_GIN_RING_BYTES must be a power of two from 65536 to 268435456");
        return (uint32_t)RING_BYTES_USUAL;
    }
    return (uint32_t)bytes;
}

/* ---- listening ------------------------------------------------------------------------------- */

gin_result gin_listen(uint64_t id, gin_log_fn log, void *handle, gin_listener **result)
{
    gin_address address;
    gin_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return GIN_SYSTEM_ERROR;
    }
    *listener = (gin_listener){
        .fd = gin_segment_create(ring_bytes_wanted(log), &address), .log = log, .id = id};
    if (listener->fd < 0) {
        GIN_SAY(log, GIN_LOG_WARN, "GIN/Isthmus: no shared memory: %s", strerror(errno));
        free(listener);
        return GIN_SYSTEM_ERROR;
    }
    memset(handle, 0, GIN_HANDLE_BYTES);
    memcpy(handle, &address, sizeof(address));
    *result = listener;
    return GIN_OK;
}

void gin_listener_close(gin_listener *listener)
{
    if (listener->fd >= 0) {
        (void)close(listener->fd);
    }
    free(listener);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static gin_result inbox_map(gin_comm *comm, const gin_address *address)
{
    uint64_t stride = gin_segment_stride(address->ring_bytes);
    comm->inbox_bytes = stride * comm->rank_count + WORDS_BYTES;
    comm->inbox = gin_segment_map(comm->fd, comm->inbox_bytes, 0, comm->inbox_bytes);
    if (comm->inbox == NULL) {
        GIN_SAY(comm->log, GIN_LOG_WARN, "GIN/Isthmus: %llu bytes of shared memory: %s",
                (unsigned long long)comm->inbox_bytes, strerror(errno));
        return GIN_SYSTEM_ERROR;
    }
    uint8_t *base = comm->inbox;
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        gin_ring_open(&comm->peers[i].in, base + stride * i, address->ring_bytes);
    }
    comm->words = (uint64_t *)(void *)(base + stride * comm->rank_count);
    return GIN_OK;
}

static gin_result peer_connect(gin_comm *comm, uint32_t number, const gin_address *address)
{
    gin_peer *peer = &comm->peers[number];
    uint64_t stride = gin_segment_stride(address->ring_bytes);
    peer->fd = gin_segment_open(address);
    if (peer->fd >= 0) {
        peer->out_memory = gin_segment_map(peer->fd, stride * comm->rank_count + WORDS_BYTES,
                                           stride * comm->rank, stride);
    }
    if (peer->out_memory == NULL) {
        GIN_SAY(comm->log, GIN_LOG_WARN,
                "GIN/Isthmus: rank %u cannot open the inbox of rank %u (process %lld): %s",
                comm->rank, number, (long long)address->process, strerror(errno));
        return GIN_SYSTEM_ERROR;
    }
    gin_ring_open(&peer->out, peer->out_memory, address->ring_bytes);
    return GIN_OK;
}

static gin_result connect_all(gin_comm *comm, void **handles)
{
    gin_address address;
    memcpy(&address, handles[comm->rank], sizeof(address));
    gin_result result = inbox_map(comm, &address);
    for (uint32_t i = 0; result == GIN_OK && i < comm->rank_count; ++i) {
        memcpy(&address, handles[i], sizeof(address));
        result = peer_connect(comm, i, &address);
    }
    return result;
}

static gin_result plan_load(gin_comm *comm)
{
    char problem[256] = "";
    if (gin_plan_load(&comm->plan, problem, sizeof(problem))) {
        return GIN_OK;
    }
    GIN_SAY(comm->log, GIN_LOG_WARN, "GIN/Isthmus: %s", problem);
    return GIN_INVALID_ARGUMENT;
}

static gin_comm *comm_new(gin_listener *listener, uint32_t rank_count, uint32_t rank)
{
    gin_comm *comm = calloc(1, sizeof(*comm));
    gin_peer *peers = calloc(rank_count, sizeof(*peers));
    if (comm == NULL || peers == NULL) {
        free(comm);
        free(peers);
        return NULL;
    }
    (void)pthread_mutex_init(&comm->lock, NULL);
    comm->rank = rank;
    comm->rank_count = rank_count;
    comm->id = listener->id;
    comm->log = listener->log;
    comm->peers = peers;
    comm->fd = listener->fd;
    listener->fd = -1;
    comm->stall_ns = setting("ISTHMUS_GIN_STALL_MS", STALL_MS_USUAL) * NS_PER_MS;
    for (uint32_t i = 0; i < rank_count; ++i) {
        peers[i].fd = -1;
    }
    return comm;
}

/* Numbers those with the same id: the contexts of a communicator of NCCL. */
static void comm_enlist(gin_comm *comm)
{
    (void)pthread_mutex_lock(&all_lock);
    for (const gin_comm *other = all; other != NULL; other = other->next) {
        comm->number += other->id == comm->id && other->rank == comm->rank;
    }
    comm->next = all;
    all = comm;
    (void)pthread_mutex_unlock(&all_lock);
}

static void comm_delist(gin_comm *comm)
{
    (void)pthread_mutex_lock(&all_lock);
    for (gin_comm **link = &all; *link != NULL; link = &(*link)->next) {
        if (*link == comm) {
            *link = comm->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&all_lock);
}

gin_result gin_connect(gin_listener *listener, void **handles, int rank_count, int rank,
                       gin_comm **result)
{
    if (rank_count <= 0 || rank_count > RANKS_MAX || rank < 0 || rank >= rank_count ||
        listener->fd < 0) {
        return GIN_INVALID_ARGUMENT;
    }
    gin_comm *comm = comm_new(listener, (uint32_t)rank_count, (uint32_t)rank);
    if (comm == NULL) {
        return GIN_SYSTEM_ERROR;
    }
    gin_result connected = plan_load(comm);
    connected = connected == GIN_OK ? connect_all(comm, handles) : connected;
    comm_enlist(comm);
    if (connected != GIN_OK) {
        gin_comm_close(comm);
        return connected;
    }
    GIN_SAY(
        comm->log, GIN_LOG_INFO,
        "GIN/Isthmus: rank %u of %u connected through shared memory, context %u, %u fault rules",
        comm->rank, comm->rank_count, comm->number, comm->plan.count);
    *result = comm;
    return GIN_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

void gin_comm_fail(gin_comm *comm, uint64_t queries)
{
    ++comm->errors;
    if (queries == 0) {
        comm->error_queries = UINT64_MAX;
    } else if (comm->error_queries != UINT64_MAX) {
        comm->error_queries += queries;
    }
}

static bool report(gin_comm *comm)
{
    (void)pthread_mutex_lock(&comm->lock);
    bool failed = comm->error_queries > 0;
    if (failed && comm->error_queries != UINT64_MAX) {
        --comm->error_queries;
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return failed;
}

bool gin_comms_failed(const void *which)
{
    bool failed = false;
    bool known = false;
    (void)pthread_mutex_lock(&all_lock);
    for (const gin_comm *comm = all; comm != NULL; comm = comm->next) {
        known = known || comm == which;
    }
    for (gin_comm *comm = all; comm != NULL && !failed; comm = comm->next) {
        failed = (!known || comm == which) && report(comm);
    }
    (void)pthread_mutex_unlock(&all_lock);
    return failed;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Where rings cannot be pinned, copies take a way round, and nothing else changes. */
static void pin_rings(gin_comm *comm)
{
    comm->inbox_pinned = gin_device_pin(comm->inbox, comm->inbox_bytes);
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        gin_peer *peer = &comm->peers[i];
        peer->out_pinned =
            gin_device_pin(peer->out_memory, GIN_RING_CONTROL_BYTES + (size_t)peer->out.bytes);
    }
}

static void unpin_rings(gin_comm *comm)
{
    if (comm->inbox_pinned) {
        gin_device_unpin(comm->inbox);
    }
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        if (comm->peers[i].out_pinned) {
            gin_device_unpin(comm->peers[i].out_memory);
        }
    }
}

static const char *lanes_open(gin_comm *comm)
{
    if (!gin_device_enter(&comm->device)) {
        return "the GPU's context cannot be entered";
    }
    const char *problem = gin_lane_open(&comm->out);
    if (problem == NULL) {
        problem = gin_lane_open(&comm->in);
    }
    if (problem == NULL) {
        pin_rings(comm);
    } else {
        gin_lane_close(&comm->out);
    }
    gin_device_exit();
    return problem;
}

/* With the first memory of a GPU. */
static gin_result device_open(gin_comm *comm, const void *memory)
{
    const char *problem = gin_device_open(memory, &comm->device);
    if (problem == NULL) {
        problem = lanes_open(comm);
        if (problem != NULL) {
            gin_device_close(&comm->device);
        }
    }
    if (problem != NULL) {
        GIN_SAY(comm->log, GIN_LOG_WARN, "GIN/Isthmus: rank %u: %s", comm->rank, problem);
        return GIN_CUDA_ERROR;
    }
    comm->has_device = true;
    return GIN_OK;
}

static void device_close(gin_comm *comm)
{
    if (comm->has_device && gin_device_enter(&comm->device)) {
        gin_lane_close(&comm->out);
        gin_lane_close(&comm->in);
        unpin_rings(comm);
        gin_device_exit();
    }
    if (comm->has_device) {
        gin_device_close(&comm->device);
    }
    comm->has_device = false;
}

static bool regions_grow(gin_comm *comm)
{
    if (comm->region_count < comm->region_room) {
        return true;
    }
    uint32_t room = comm->region_room != 0 ? 2 * comm->region_room : 16;
    gin_region **regions = realloc(comm->regions, room * sizeof(gin_region *));
    if (regions == NULL) {
        return false;
    }
    comm->regions = regions;
    comm->region_room = room;
    return true;
}

static gin_result region_open(gin_comm *comm, gin_region *region)
{
    if (!regions_grow(comm)) {
        return GIN_SYSTEM_ERROR;
    }
    if (region->device && !comm->has_device) {
        gin_result result = device_open(comm, region->base);
        if (result != GIN_OK) {
            return result;
        }
    }
    comm->regions[comm->region_count++] = region;
    region->number = comm->region_count;
    return GIN_OK;
}

gin_result gin_region_open(gin_comm *comm, void *base, size_t bytes, int kind, gin_region **result)
{
    if (kind != GIN_MEMORY_HOST && kind != GIN_MEMORY_CUDA) {
        return GIN_INVALID_ARGUMENT;
    }
    gin_region *region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return GIN_SYSTEM_ERROR;
    }
    *region =
        (gin_region){.base = base, .bytes = bytes, .device = kind == GIN_MEMORY_CUDA, .open = true};
    (void)pthread_mutex_lock(&comm->lock);
    gin_result opened = region_open(comm, region);
    (void)pthread_mutex_unlock(&comm->lock);
    if (opened != GIN_OK) {
        free(region);
        return opened;
    }
    *result = region;
    return GIN_OK;
}

/* The entry stays, so that late records find that it is closed. */
void gin_region_close(gin_comm *comm, gin_region *region)
{
    (void)pthread_mutex_lock(&comm->lock);
    gin_drain(comm);
    region->open = false;
    (void)pthread_mutex_unlock(&comm->lock);
}

uint8_t *gin_region_range(const gin_region *region, uint64_t offset, uint64_t bytes)
{
    bool inside = region->open && offset <= region->bytes && bytes <= region->bytes - offset;
    return inside ? region->base + offset : NULL;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void requests_free(gin_comm *comm)
{
    while (comm->made != NULL) {
        gin_request *request = comm->made;
        comm->made = request->next_made;
        free(request);
    }
}

static void peer_close(gin_peer *peer)
{
    if (peer->out_memory != NULL) {
        gin_segment_unmap(peer->out_memory, GIN_RING_CONTROL_BYTES + peer->out.bytes);
    }
    if (peer->fd >= 0) {
        (void)close(peer->fd);
    }
}

static void rings_leave(gin_comm *comm)
{
    for (uint32_t i = 0; comm->inbox != NULL && i < comm->rank_count; ++i) {
        atomic_store_explicit(&comm->peers[i].in.control->closed, 1, memory_order_release);
    }
}

void gin_comm_close(gin_comm *comm)
{
    comm_delist(comm);
    (void)pthread_mutex_lock(&comm->lock);
    rings_leave(comm);
    gin_drain(comm);
    device_close(comm);
    (void)pthread_mutex_unlock(&comm->lock);
    GIN_SAY(comm->log, GIN_LOG_INFO,
            "GIN/Isthmus: rank %u, context %u: %llu operations sent, %llu records applied, %llu "
            "struck by the plan, %llu errors",
            comm->rank, comm->number, (unsigned long long)comm->sent_count,
            (unsigned long long)comm->applied_count, (unsigned long long)comm->struck_count,
            (unsigned long long)comm->errors);
    requests_free(comm);
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        peer_close(&comm->peers[i]);
    }
    for (uint32_t i = 0; i < comm->region_count; ++i) {
        free(comm->regions[i]);
    }
    if (comm->inbox != NULL) {
        gin_segment_unmap(comm->inbox, comm->inbox_bytes);
    }
    (void)close(comm->fd);
    (void)pthread_mutex_destroy(&comm->lock);
    free(comm->regions);
    free(comm->peers);
    free(comm);
}
