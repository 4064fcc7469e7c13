/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the host side share: world, rank, and the objects behind the waist's numbers.
 *
 * A rank's calls come from one thread, but abort, poke and peek may come from any: what those touch
 * is guarded by `memory_lock` or atomic.
 */
#ifndef CUDA_INTERNAL_H
#define CUDA_INTERNAL_H

#include "cuda_clock.h"
#include "cuda_driver.h"
#include "cuda_endpoint.h"
#include "cuda_shared.h"

#include <isthmus/device.h>
#include <pthread.h>
#include <stdatomic.h>

/* Windows of a communicator, the resource window included. */
#define CUDA_WINDOW_COUNT_MAX IST_CUDA_WINDOW_COUNT_MAX
/* Most GPUs that the ranks of one process use. */
#define CUDA_DEVICE_COUNT_MAX 64u
/* Images of device code, and kernels a rank has launched. */
#define CUDA_IMAGE_COUNT_MAX 64u
#define CUDA_KERNEL_COUNT_MAX 1024u
#define CUDA_PAGE_BYTES ((size_t)IST_WINDOW_ALIGNMENT)
/* Of streams: above all others, see cuda_kernel.c; the driver takes the highest that it has. */
#define CUDA_STREAM_PRIORITY (-100)

typedef struct cuda_rank cuda_rank;
typedef struct cuda_pinned cuda_pinned; /* a piece of pinned host memory */
typedef struct cuda_slab cuda_slab;

/* ---- memory ---------------------------------------------------------------------------------- */

/* A piece of a chunk, in address order. */
typedef struct cuda_span {
    struct cuda_span *next;
    size_t offset;
    size_t bytes;
    bool used;
} cuda_span;

/* Device memory as the driver gives it: mapped here, exportable, cut into spans. */
typedef struct cuda_chunk {
    struct cuda_chunk *next; /* in the world */
    cuda_span *spans;
    CUdeviceptr base;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    uint64_t key;   /* distinct in the job: owner's rank and a count */
    uint32_t owner; /* rank in the world */
    uint32_t refs;  /* the owner, and peers in this process; under the world's lock */
    bool alone;     /* holds one allocation and is never used again */
} cuda_chunk;

/* One allocation of this rank. */
typedef struct cuda_allocation {
    uintptr_t base; /* host and device address are the same */
    size_t bytes;   /* as asked for */
    uint32_t flags;
    cuda_pinned *pinned; /* host memory that the device reaches, else NULL */
    cuda_chunk *chunk;   /* NULL for pinned memory */
} cuda_allocation;

/* A peer's chunk, mapped here; counted by the windows that lie in it. */
typedef struct cuda_import {
    struct cuda_import *next;
    uint64_t key;
    CUdeviceptr base;
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* of another process's memory */
    cuda_chunk *chunk;                   /* of another rank of this process, else NULL */
    uint32_t uses;
} cuda_import;

/* ---- world and rank -------------------------------------------------------------------------- */

/* The ranks of this process. */
typedef struct cuda_world {
    pthread_mutex_t lock; /* of the chunks, and of the topology */
    cuda_chunk *chunks;
    uint32_t rank_count; /* of the world */
    bool threads;        /* all ranks live here */
    uint32_t device_count;
    CUdevice devices[CUDA_DEVICE_COUNT_MAX]; /* that ranks of this process may use */
    uint64_t deadline_ns;
    struct ist_topology *topology; /* of this machine, NULL: none; under the lock */
    bool topology_asked;
} cuda_world;

/* A pinned host buffer on its way; free again when its event is reached. */
typedef struct cuda_block {
    struct cuda_block *next;
    cuda_pinned *piece;
    void *host; /* of the piece */
    size_t bytes;
    CUevent used;
} cuda_block;

typedef struct cuda_stream {
    struct cuda_stream *next;
    CUstream handle;
    struct cuda_graph *capture; /* that it takes part in, if still under way */
} cuda_stream;

typedef struct cuda_event {
    struct cuda_event *next;
    CUevent mark;               /* records outside captures */
    CUevent join;               /* records inside captures: dependences between captured streams */
    bool recorded;              /* mark has been recorded */
    struct cuda_graph *capture; /* of the last record, if still under way */
} cuda_event;

/* Communicators whose native collectives may be in one graph. */
#define CUDA_GRAPH_COLLS_MAX 16u

typedef struct cuda_graph {
    struct cuda_graph *next;
    cuda_stream *origin; /* while capturing, else NULL */
    CUgraphExec exec;
    cuda_block *blocks; /* bytes captured by copies; their events mark the last launch */
    ist_status broken;  /* of the first captured call that failed, else IST_OK */
    struct cuda_coll *colls[CUDA_GRAPH_COLLS_MAX]; /* whose collectives it has */
    uint32_t coll_count;
    bool coll_closed; /* one of them is closed */
} cuda_graph;

/* A kernel as this rank launches it. */
typedef struct cuda_function {
    const ist_kernel *kernel;
    CUfunction handle;
    uint32_t threads;
    uint32_t blocks_max; /* resident at once */
} cuda_function;

struct cuda_rank {
    cuda_world *world;
    uint32_t index;
    CUdevice device;
    CUcontext context;
    cuda_endpoint *endpoint;
    uint64_t began_ns; /* host time at which all programs began */
    char name[128];
    uint32_t sm_count;
    bool vmm;           /* virtual memory management, without which there are no windows */
    bool fd_export;     /* memory can be given to other processes */
    bool rdma;          /* the device's memory can be given to NICs */
    bool compared;      /* a communicator has been held against the topology */
    size_t granularity; /* of chunks */
    uint8_t uuid[16];
    CUstream side; /* the backend's own copies */
    pthread_mutex_t memory_lock;
    pthread_mutex_t block_lock;
    pthread_mutex_t pinned_lock;
    pthread_mutex_t coll_lock;    /* of streams that watchers of collectives put marks on */
    pthread_mutex_t side_lock;    /* of copies at once: an abort may come from another thread */
    cuda_allocation *allocations; /* by address */
    uint32_t allocation_count, allocation_room;
    uint64_t chunk_count;
    cuda_import *imports;
    cuda_slab *slabs;
    cuda_pinned *pinned; /* pieces of slabs, used and free */
    size_t pinned_bytes;
    cuda_block *blocks; /* staging: free, or used up to their event */
    cuda_stream *streams;
    cuda_event *events;
    cuda_graph *graphs;
    cuda_graph *capture; /* under way */
    struct cuda_comm *comms;
    cuda_function *functions[2]; /* [CUDA_KERNEL_COUNT_MAX] by hash: without GIN, with */
    uint32_t gin_count;          /* device communicators with GIN */
    uint64_t id_count;
};

/* ---- errors and the current device ----------------------------------------------------------- */

/* Decides what a failed driver call means; says which call, and the driver's name and text. */
ist_status cuda_fail(const cuda_rank *rank, CUresult result, const char *call);
ist_status cuda_fail_memory(const cuda_rank *rank, const char *what);

#define CUDA_TRY(rank, function, ...)                                                              \
    do {                                                                                           \
        CUresult cuda_result_ = cu.function(__VA_ARGS__);                                          \
        if (cuda_result_ != CUDA_SUCCESS) {                                                        \
            return cuda_fail(rank, cuda_result_, #function);                                       \
        }                                                                                          \
    } while (0)

/* Makes the rank's context current when it is not. @return whether cuda_exit() must restore */
static inline bool cuda_enter(const cuda_rank *rank)
{
    CUcontext current = NULL;
    return (cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != rank->context) &&
           cu.cuCtxPushCurrent(rank->context) == CUDA_SUCCESS;
}

static inline void cuda_exit(bool entered)
{
    CUcontext popped = NULL;
    if (entered) {
        (void)cu.cuCtxPopCurrent(&popped);
    }
}

/* Numbers of the waist are addresses. */
static inline uint64_t cuda_number(const void *object)
{
    return (uint64_t)(uintptr_t)object;
}

static inline void *cuda_object(uint64_t number)
{
    return (void *)(uintptr_t)number;
}

/* ---- waiting --------------------------------------------------------------------------------- */

typedef CUresult (*cuda_query_fn)(void *handle);

/*
 * Polls until the query says something other than "not ready", or the deadline passes: closely at
 * first, then with pauses. @return the last answer; CUDA_ERROR_NOT_READY after the deadline
 */
CUresult cuda_poll(cuda_query_fn query, void *handle, uint64_t deadline_ns);
/* Waits for all work of a stream; a time-out is an error that names the operation. */
ist_status cuda_stream_await(const cuda_rank *rank, CUstream stream, uint64_t wait_ns,
                             const char *operation);

/* ---- files ----------------------------------------------------------------------------------- */

/* cuda_rank.c */
ist_status cuda_rank_open(cuda_rank *rank, cuda_world *world, uint32_t index, CUdevice device,
                          cuda_endpoint *endpoint);
/* Frees what the program left; bounded. */
void cuda_rank_close(cuda_rank *rank);

/* cuda_heap.c: spans of exportable device memory */
ist_status cuda_heap_alloc(cuda_rank *rank, size_t bytes, cuda_chunk **chunk, CUdeviceptr *base);
/* A chunk of its own, for memory that late peers may write to after it was freed here. */
ist_status cuda_heap_alloc_alone(cuda_rank *rank, size_t bytes, cuda_chunk **chunk,
                                 CUdeviceptr *base);
void cuda_heap_free(cuda_rank *rank, cuda_chunk *chunk, CUdeviceptr base);
/* Finds a chunk of another rank of this process and counts its use; NULL when it is gone. */
cuda_chunk *cuda_chunk_share(cuda_world *world, uint64_t key);
void cuda_chunk_unref(cuda_world *world, cuda_chunk *chunk);
/* Chunks that the rank still owns. */
void cuda_heap_close(cuda_rank *rank);

/* cuda_memory.c */
ist_status cuda_mem_alloc(void *self, size_t bytes, uint32_t flags, void **mem);
ist_status cuda_mem_free(void *self, void *mem);
ist_status cuda_mem_query(void *self, const void *mem, size_t bytes, uint32_t *flags);
ist_status cuda_mem_peek(void *self, const void *mem, void *host, size_t bytes);
ist_status cuda_mem_poke(void *self, void *mem, const void *host, size_t bytes);
/* The allocation that holds the range, copied; false when there is none. */
bool cuda_memory_find(cuda_rank *rank, const void *mem, size_t bytes, cuda_allocation *found);
void cuda_memory_close(cuda_rank *rank);

/* cuda_pinned.c */
/* At least `bytes`, aligned as ist_mem_alloc() promises; the device has it at the same address. */
ist_status cuda_pinned_take(cuda_rank *rank, size_t bytes, cuda_pinned **piece);
void *cuda_pinned_host(const cuda_pinned *piece);
/* Never waits; the memory stays with the rank. */
void cuda_pinned_give(cuda_rank *rank, cuda_pinned *piece);
/* Gives large free pieces to the system. Waits for every kernel on the device. */
void cuda_pinned_trim(cuda_rank *rank);
void cuda_pinned_close(cuda_rank *rank);

/* cuda_staging.c */
/* A pinned buffer of at least `bytes`; goes back with cuda_block_put() or is kept. */
ist_status cuda_block_take(cuda_rank *rank, size_t bytes, cuda_block **block);
/* Free again once the stream has come to this point. */
ist_status cuda_block_put(cuda_rank *rank, cuda_block *block, CUstream stream);
/* Gives a buffer back that no device work uses. */
void cuda_block_return(cuda_rank *rank, cuda_block *block);
void cuda_staging_close(cuda_rank *rank);

/* cuda_stream.c */
ist_status cuda_stream_open(void *self, uint64_t *number);
ist_status cuda_stream_close(void *self, uint64_t number);
ist_status cuda_stream_sync(void *self, uint64_t number, uint64_t deadline_ns);
ist_status cuda_stream_query(void *self, uint64_t number);
void cuda_streams_close(cuda_rank *rank);
/* Waits, bounded, until no stream of the rank runs anything that could use what is to be freed. */
ist_status cuda_streams_await(const cuda_rank *rank, uint64_t wait_ns, const char *operation);
/* Whether no stream of the rank has work. */
bool cuda_streams_idle(const cuda_rank *rank);
/* Whether work enqueued now goes into a graph. */
static inline bool cuda_stream_captures(const cuda_rank *rank, const cuda_stream *stream)
{
    return rank->capture != NULL && stream->capture == rank->capture;
}

/* cuda_copy.c */
ist_status cuda_copy_in(void *self, uint64_t stream, void *dst, const void *host, size_t bytes);
ist_status cuda_copy_out(void *self, uint64_t stream, void *host, const void *src, size_t bytes,
                         uint64_t deadline_ns);
ist_status cuda_copy_local(void *self, uint64_t stream, void *dst, const void *src, size_t bytes);
ist_status cuda_fill(void *self, uint64_t stream, void *dst, uint8_t value, size_t bytes);
/* Copies between host and device memory on the rank's own stream and waits. */
ist_status cuda_copy_now(cuda_rank *rank, CUdeviceptr device, void *host, size_t bytes,
                         bool to_device);
ist_status cuda_zero_now(cuda_rank *rank, CUdeviceptr device, size_t bytes);

/* cuda_event.c */
ist_status cuda_event_open(void *self, uint64_t *number);
ist_status cuda_event_close(void *self, uint64_t number);
ist_status cuda_event_record(void *self, uint64_t number, uint64_t stream);
ist_status cuda_event_wait(void *self, uint64_t number, uint64_t stream);
ist_status cuda_event_sync(void *self, uint64_t number, uint64_t deadline_ns);
ist_status cuda_event_query(void *self, uint64_t number);
ist_status cuda_event_elapsed(void *self, uint64_t start, uint64_t end, uint64_t *elapsed_ns);
void cuda_events_close(cuda_rank *rank);

/* cuda_graph.c */
ist_status cuda_graph_begin(void *self, uint64_t stream);
ist_status cuda_graph_end(void *self, uint64_t stream, uint64_t *number);
ist_status cuda_graph_launch(void *self, uint64_t number, uint64_t stream);
ist_status cuda_graph_close(void *self, uint64_t number);
void cuda_graphs_close(cuda_rank *rank);

/* Passes `status` on; one that failed in a capture breaks it, which its end tells. */
static inline ist_status cuda_captured(const cuda_rank *rank, const cuda_stream *stream,
                                       ist_status status)
{
    if (status < 0 && cuda_stream_captures(rank, stream) && rank->capture->broken == IST_OK) {
        rank->capture->broken = status;
    }
    return status;
}

/* cuda_choice.c */
/* Of this machine, NULL: none. Read when it is first asked for, which takes milliseconds: before ranks
 * wait for each other. */
const struct ist_topology *cuda_topology(const cuda_rank *rank);

/* cuda_kernel.c */
/* Loads all images into the rank's context, so that no launch ever loads code. */
ist_status cuda_kernels_open(cuda_rank *rank);
void cuda_kernels_close(cuda_rank *rank);
ist_status cuda_launch(void *self, uint64_t stream, const ist_kernel *kernel, uint32_t block_count,
                       const void *args, size_t args_bytes);
/* Why launches do not depend programmatically on what lies before them, NULL: they do. */
const char *cuda_dependent_reason(void);

#endif
