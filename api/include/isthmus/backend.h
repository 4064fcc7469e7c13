/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file backend.h
 * The waist: what a backend offers, as one append-only list of operations. The list makes the
 * table, the "unsupported" stubs and the layers (check, trace, call fault). Programs do not need
 * this header; backends and layers do.
 *
 * Every operation begins with `self`, one rank's instance, and returns an ist_status. Arguments
 * have been checked by the front: a backend may trust them. Objects of a backend are numbers
 * (uint64_t, never 0) so that they can cross a process boundary. Device addresses are plain
 * pointers, valid on their rank.
 */
#ifndef IST_BACKEND_H
#define IST_BACKEND_H

#include <isthmus/coll.h>
#include <isthmus/comm.h>
#include <isthmus/stream.h>
#include <isthmus/types.h>
#include <isthmus/window.h>
#include <isthmus/world.h>
#include <stdarg.h>
#include <stdbool.h>

IST_BEGIN_DECLS

/** Version of the table and of the structs here; a backend of another one is refused. */
#define IST_BACKEND_ABI 1u

struct ist_dev_comm; /* device.h */
struct ist_kernel;   /* device.h */

/** What this rank's device and backend can do. Reasons are NULL for "yes". */
typedef struct ist_backend_caps {
    uint32_t size;             /**< in: sizeof(ist_backend_caps); filled up to it */
    uint32_t sm_count;         /**< blocks resident at once */
    const char *device_name;   /**< for people */
    const char *window_reason; /**< why there are no windows */
    const char *gin_reason;    /**< why there is no GIN */
    const char *graph_reason;  /**< why there are no graphs */
    uint32_t peeks_by_loads;   /**< 1: memory that is IST_MEM_HOST_VISIBLE and nothing else may be
                                    read by plain loads of the host, instead of mem_peek */
    uint32_t reserved;         /**< zero */
} ist_backend_caps;

/** Arguments of comm_open, checked and resolved. */
typedef struct ist_backend_comm_desc {
    uint8_t id[128];       /**< equal on all members; members with equal ids meet */
    uint32_t rank;         /**< this rank's number, below rank_count */
    uint32_t rank_count;   /**< members */
    uint32_t lsa_size_max; /**< most ranks of a load/store team; 0: no limit */
    uint32_t reserved;     /**< zero */
    uint64_t deadline_ns;  /**< of the meeting, never 0 */
} ist_backend_comm_desc;

/** Filled by comm_open. Load/store teams are contiguous blocks of lsa_size ranks. */
typedef struct ist_backend_comm_info {
    uint32_t lsa_rank;      /**< this rank's index in its team: rank % lsa_size */
    uint32_t lsa_size;      /**< members of a team; divides rank_count, equal on all ranks */
    uint32_t gin_supported; /**< 1: puts and signals reach ranks outside the team */
    uint32_t reserved;      /**< zero */
    const char *gin_reason; /**< NULL, or why GIN is not there; static text */
} ist_backend_comm_info;

/** What device code of one feature needs from a communicator. */
typedef struct ist_devcomm_desc {
    uint64_t resource_bytes;    /**< symmetric zeroed memory; window 0 of the dev comm; 0: none */
    uint32_t context_count;     /**< GIN contexts, 0: none */
    uint32_t signal_count;      /**< signals of each context */
    uint32_t counter_count;     /**< counters of each context */
    uint32_t lsa_barrier_count; /**< LSA barriers */
    void *mask;                 /**< ist_dev_mask of the communicator in host-visible memory */
} ist_devcomm_desc;

struct ist_topology; /* unstable/topology.h */

/** What the ways between a communicator's ranks rest on; for whoever explains them. */
typedef struct ist_backend_ground {
    const struct ist_topology
        *topology;         /**< lives as long as the communicator; NULL: open `source` */
    uint32_t lsa_size_max; /**< in force: the least of all ranks; 0: no limit */
    uint32_t peer_access;  /**< worst PCIe path for load/store, as of IST_PATH_LIST; 0: none */
    uint32_t gin_off;      /**< 1: GIN is switched off */
    uint32_t gin_known;    /**< 1: `gin` is the machine's answer, and comm_open told why not */
    uint32_t gin;          /**< kind between teams; NCCL's numbers */
    uint32_t maps_known;   /**< 1: the machine has been asked what maps what */
    uint32_t rank_count;   /**< in: members of the communicator */
    uint32_t reserved;     /**< zero */
    char source[1024];     /**< as for ist_topology_open() */
} ist_backend_ground;

/** Native collectives. Values are permanent. */
typedef enum ist_coll_kind {
    IST_COLL_ALL_REDUCE = 0,     /**< send, recv: count */
    IST_COLL_BROADCAST = 1,      /**< send, recv: count; peer is the root */
    IST_COLL_REDUCE = 2,         /**< send, recv: count; peer is the root */
    IST_COLL_ALL_GATHER = 3,     /**< send: count, recv: rank_count * count */
    IST_COLL_REDUCE_SCATTER = 4, /**< send: rank_count * count, recv: count */
    IST_COLL_ALL_TO_ALL = 5,     /**< send, recv: rank_count * count */
    IST_COLL_SEND = 6,           /**< send: count, to peer */
    IST_COLL_RECV = 7            /**< recv: count, from peer */
} ist_coll_kind;

/** A native collective call of one rank. */
typedef struct ist_backend_coll {
    uint64_t comm;           /**< of comm_open, coll_open has succeeded */
    uint64_t stream;         /**< of stream_open */
    ist_coll_kind kind;      /**< what */
    ist_dtype dtype;         /**< of all elements */
    ist_reduction reduction; /**< SUM … AVG, or PREMUL with `scale` */
    uint32_t peer;           /**< root or peer, else 0 */
    const void *send;        /**< device, or NULL */
    void *recv;              /**< device, or NULL */
    uint64_t count;          /**< elements, see ist_coll_kind */
    uint64_t scale;          /**< PREMUL: one element, in the first bytes */
} ist_backend_coll;

/** What coll_info tells; texts live as long as the world. */
typedef struct ist_backend_coll_info {
    uint32_t library_version;    /**< as in ist_coll_info */
    uint32_t all_to_all_native;  /**< as in ist_coll_info */
    const char *library;         /**< never NULL */
    const char *reason;          /**< why there are none; NULL: there are */
    const char *estimate_reason; /**< why coll_estimate is not there; NULL: it is */
} ist_backend_coll_info;

/* The tool would lay the list out beyond the last column. */
/* clang-format off */
/**
 * The operations: X(name, parameters, arguments, need). Rows are appended, never moved: their order
 * is the ABI.
 */
#define IST_BACKEND_OPS(X)                                                                         \
    X(caps, (void *self, ist_backend_caps *caps), (self, caps), IST_REQUIRED)                      \
    /* host time */                                                                                \
    X(clock, (void *self, uint64_t *now_ns), (self, now_ns), IST_REQUIRED)                         \
    X(sleep, (void *self, uint64_t ns), (self, ns), IST_REQUIRED)                                  \
    /* memory; query: IST_OK and flags if the range lies in one allocation of this rank, else      \
       IST_ERR_ARGUMENT without a record */                                                        \
    X(mem_alloc, (void *self, size_t bytes, uint32_t flags, void **mem),                           \
      (self, bytes, flags, mem), IST_REQUIRED)                                                     \
    X(mem_free, (void *self, void *mem), (self, mem), IST_REQUIRED)                                \
    X(mem_query, (void *self, const void *mem, size_t bytes, uint32_t *flags),                     \
      (self, mem, bytes, flags), IST_REQUIRED)                                                     \
    /* host-visible memory, at once, in no stream's order */                                       \
    X(mem_peek, (void *self, const void *mem, void *host, size_t bytes),                           \
      (self, mem, host, bytes), IST_REQUIRED)                                                      \
    X(mem_poke, (void *self, void *mem, const void *host, size_t bytes),                           \
      (self, mem, host, bytes), IST_REQUIRED)                                                      \
    /* streams; copy_in captures the bytes, copy_out blocks until they are there */                \
    X(stream_open, (void *self, uint64_t *stream), (self, stream), IST_REQUIRED)                   \
    X(stream_close, (void *self, uint64_t stream), (self, stream), IST_REQUIRED)                   \
    X(stream_sync, (void *self, uint64_t stream, uint64_t deadline_ns),                            \
      (self, stream, deadline_ns), IST_REQUIRED)                                                   \
    X(stream_query, (void *self, uint64_t stream), (self, stream), IST_REQUIRED)                   \
    X(copy_in, (void *self, uint64_t stream, void *dst, const void *host, size_t bytes),           \
      (self, stream, dst, host, bytes), IST_REQUIRED)                                              \
    X(copy_out, (void *self, uint64_t stream, void *host, const void *src, size_t bytes,           \
                 uint64_t deadline_ns),                                                            \
      (self, stream, host, src, bytes, deadline_ns), IST_REQUIRED)                                 \
    X(copy_local, (void *self, uint64_t stream, void *dst, const void *src, size_t bytes),         \
      (self, stream, dst, src, bytes), IST_REQUIRED)                                               \
    X(fill, (void *self, uint64_t stream, void *dst, uint8_t value, size_t bytes),                 \
      (self, stream, dst, value, bytes), IST_REQUIRED)                                             \
    X(event_open, (void *self, uint64_t *event), (self, event), IST_REQUIRED)                      \
    X(event_close, (void *self, uint64_t event), (self, event), IST_REQUIRED)                      \
    X(event_record, (void *self, uint64_t event, uint64_t stream), (self, event, stream),          \
      IST_REQUIRED)                                                                                \
    X(event_wait, (void *self, uint64_t event, uint64_t stream), (self, event, stream),            \
      IST_REQUIRED)                                                                                \
    X(event_sync, (void *self, uint64_t event, uint64_t deadline_ns), (self, event, deadline_ns),  \
      IST_REQUIRED)                                                                                \
    X(event_query, (void *self, uint64_t event), (self, event), IST_REQUIRED)                      \
    X(event_elapsed, (void *self, uint64_t start, uint64_t end, uint64_t *elapsed_ns),             \
      (self, start, end, elapsed_ns), IST_REQUIRED)                                                \
    /* graphs */                                                                                   \
    X(graph_begin, (void *self, uint64_t stream), (self, stream), IST_OPTIONAL)                    \
    X(graph_end, (void *self, uint64_t stream, uint64_t *graph), (self, stream, graph),            \
      IST_OPTIONAL)                                                                                \
    X(graph_launch, (void *self, uint64_t graph, uint64_t stream), (self, graph, stream),          \
      IST_OPTIONAL)                                                                                \
    X(graph_close, (void *self, uint64_t graph), (self, graph), IST_OPTIONAL)                      \
    /* communicators; exchange: host all-gather of `bytes` a rank. lost_words in: ranks that are   \
       not waited for; out: missing ranks, whose rows are zeroed. Every rank that returns IST_OK   \
       has the same result. id_create: 128 bytes, of which the front replaces the last 8 */        \
    X(id_create, (void *self, uint8_t *id), (self, id), IST_REQUIRED)                              \
    X(comm_open, (void *self, const ist_backend_comm_desc *desc, uint64_t *comm,                   \
                  ist_backend_comm_info *info),                                                    \
      (self, desc, comm, info), IST_REQUIRED)                                                      \
    X(comm_close, (void *self, uint64_t comm), (self, comm), IST_REQUIRED)                         \
    X(comm_abort, (void *self, uint64_t comm), (self, comm), IST_REQUIRED)                         \
    X(comm_exchange, (void *self, uint64_t comm, const void *send, size_t bytes, void *recv,       \
                      uint64_t deadline_ns, uint64_t *lost_words),                                 \
      (self, comm, send, bytes, recv, deadline_ns, lost_words), IST_REQUIRED)                      \
    /* windows: index is equal on all ranks; the front has agreed that all ranks will call */      \
    X(window_open, (void *self, uint64_t comm, void *mem, size_t bytes, uint32_t *index),          \
      (self, comm, mem, bytes, index), IST_OPTIONAL)                                               \
    X(window_close, (void *self, uint64_t comm, uint32_t index), (self, comm, index),              \
      IST_OPTIONAL)                                                                                \
    X(devcomm_open, (void *self, uint64_t comm, const ist_devcomm_desc *desc,                      \
                     const struct ist_dev_comm **dev),                                             \
      (self, comm, desc, dev), IST_OPTIONAL)                                                       \
    X(devcomm_close, (void *self, uint64_t comm, const struct ist_dev_comm *dev),                  \
      (self, comm, dev), IST_OPTIONAL)                                                             \
    /* kernels: block_count blocks, all resident at once; args are copied */                       \
    X(launch, (void *self, uint64_t stream, const struct ist_kernel *kernel, uint32_t block_count, \
               const void *args, size_t args_bytes),                                               \
      (self, stream, kernel, block_count, args, args_bytes), IST_REQUIRED)                         \
    /* native collectives: coll_open after all ranks have met, IST_OK on some ranks and not on     \
       others is settled by the front; comm_close closes, too. coll_enqueue: a group, all or       \
       nothing. coll_status: IST_OK, or the status of the first that failed, and its record.       \
       coll_estimate: collective and blocking; the library's own idea of how long it takes */      \
    X(coll_info, (void *self, ist_backend_coll_info *info), (self, info), IST_OPTIONAL)            \
    X(coll_open, (void *self, uint64_t comm, uint64_t deadline_ns), (self, comm, deadline_ns),     \
      IST_OPTIONAL)                                                                                \
    X(coll_close, (void *self, uint64_t comm), (self, comm), IST_OPTIONAL)                         \
    X(coll_enqueue, (void *self, const ist_backend_coll *ops, uint32_t count),                     \
      (self, ops, count), IST_OPTIONAL)                                                            \
    X(coll_status, (void *self, uint64_t comm, ist_error *why), (self, comm, why), IST_OPTIONAL)   \
    X(coll_estimate, (void *self, const ist_backend_coll *op, uint64_t *time_ps),                  \
      (self, op, time_ps), IST_OPTIONAL)                                                           \
    /* explaining: what comm_open chose by. gpus: [rank_count] GPU of each in the topology;        \
       maps: [rank_count][(rank_count + 63) / 64], bit b of row a: a maps b; zeroed before */      \
    X(comm_ground, (void *self, uint64_t comm, ist_backend_ground *ground, uint32_t *gpus,         \
                    uint64_t *maps),                                                               \
      (self, comm, ground, gpus, maps), IST_OPTIONAL)
/* clang-format on */

/** Whether a backend must offer an operation. */
typedef enum ist_need {
    IST_OPTIONAL = 0, /**< a null slot answers IST_ERR_UNSUPPORTED */
    IST_REQUIRED = 1  /**< a null slot refuses the backend */
} ist_need;

/** The table: a function for each row of IST_BACKEND_OPS, in that order. */
typedef struct ist_backend_ops {
    uint32_t size; /**< sizeof(ist_backend_ops) as the backend was compiled */
    uint32_t abi;  /**< IST_BACKEND_ABI as the backend was compiled */
/** @cond the rows have their own list */
#define X(op, params, args, need) ist_status(*op) params;
    IST_BACKEND_OPS(X)
#undef X
    /** @endcond */
} ist_backend_ops;

/**
 * Runs one rank's program over a table and an instance; given to the backend by the front. The
 * backend calls it once a rank, with the rank's error slot bound (ist_error_bind()), on the thread
 * or fiber that makes the rank's calls.
 */
typedef ist_status (*ist_backend_rank_fn)(const ist_backend_ops *ops, void *self, uint32_t rank,
                                          uint32_t rank_count, void *context);

/** This process's place when ranks are processes. */
typedef struct ist_backend_process {
    uint32_t rank;       /**< this process */
    uint32_t rank_count; /**< processes = ranks of the world */
    uint64_t job_key;    /**< equal in all processes of the job, distinct between jobs */
    uint32_t run;        /**< how many worlds ran before in this job */
} ist_backend_process;

/** What a backend needs to run a world. */
typedef struct ist_backend_world {
    uint32_t size;                       /**< sizeof(ist_backend_world) */
    uint32_t rank_count;                 /**< 0: as many as the backend finds */
    const char *cluster;                 /**< as in ist_world_desc */
    uint64_t seed;                       /**< as in ist_world_desc */
    uint64_t deadline_ns;                /**< default of waits, resolved */
    const struct ist_fault_plan *faults; /**< as in ist_world_desc */
    const struct ist_sim_desc *sim;      /**< full size, or NULL */
    const ist_backend_process *process;  /**< NULL: all ranks live in this process */
    ist_backend_rank_fn rank_main;       /**< to be called once a rank */
    void *context;                       /**< to be passed to rank_main */
} ist_backend_world;

/** A backend, as it is registered; stays where it is until the process ends. */
typedef struct ist_backend {
    uint32_t size;          /**< sizeof(ist_backend) as the backend was compiled */
    uint32_t abi;           /**< IST_BACKEND_ABI as the backend was compiled */
    const char *name;       /**< unique, not empty: what IST_BACKEND and descriptors name */
    uint32_t explicit_only; /**< 1: never chosen unless named (the simulator) */
    uint32_t reserved;      /**< zero */
    /** IST_OK, or IST_ERR_BACKEND and why it cannot be used here. */
    ist_status (*probe)(const char **reason);
    /** Runs a world to its end; fills result up to result->size. */
    ist_status (*world_run)(const ist_backend_world *world, ist_world_result *result);
    const ist_backend_ops *ops; /**< checked at registration: required slots, size, abi */
    /** One feature, whole struct; false past the last. NULL, or beyond `size`: there are none. */
    bool (*feature)(uint32_t index, ist_feature *feature);
} ist_backend;

/**
 * Adds a backend, behind those known so far in the order of preference.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_ABI for a wrong size or abi, a missing probe or world_run,
 *         and naming a required operation whose slot is null; IST_ERR_ARGUMENT for an empty name or
 *         one that is taken; IST_ERR_MEMORY for a seventeenth backend
 * @threads any, before worlds run
 * @since 0.1
 */
IST_API ist_status ist_backend_register(const ist_backend *backend);

/**
 * Completes a table: null optional slots, and those behind ops->size, get stubs that return
 * IST_ERR_UNSUPPORTED.
 *
 * @param completed  out: the table with every slot callable
 * @return IST_OK; IST_ERR_NULL; IST_ERR_ABI for a wrong size or abi, and naming the operation when a
 *         required slot is null
 * @threads any
 * @since 0.1
 */
IST_API ist_status ist_backend_ops_complete(const ist_backend_ops *ops, ist_backend_ops *completed);

/**
 * Decides an error: fills this rank's record, and logs one line at level error.
 *
 * @param details  object, operation, rank, peer and values; status and message are set here. Its
 *                 size is 0 or sizeof(ist_error) as the caller was compiled. NULL: no details
 * @param format   printf format of the sentence
 * @return `status`
 * @threads any
 * @since 0.1
 */
IST_API ist_status ist_raise(ist_status status, const ist_error *details, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Makes `slot` the place where this thread's errors go, until the next call; for backends that run
 * several ranks on one thread. It also tells the front which rank is calling.
 *
 * @param slot  zeroed or with a record; NULL: the thread's own
 * @return the former slot, NULL for the thread's own
 * @threads any; affects the calling thread
 * @since 0.1
 */
IST_API ist_error *ist_error_bind(ist_error *slot);

/**
 * Makes a record that was decided elsewhere (another rank of this thread, another process) the last
 * error here. Logs nothing: who decided it has.
 *
 * @param record  whole struct of this library
 * @threads any
 * @since 0.1
 */
IST_API void ist_error_adopt(const ist_error *record);

/**
 * Logs one line, cut to 511 bytes, if `level` is in force.
 *
 * @param format  printf format, without newline
 * @threads any
 * @since 0.1
 */
IST_API void ist_log(ist_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/**
 * Host memory from the library's allocator, the only one it uses: count * bytes, zeroed. Fails on
 * demand in the fault loop.
 *
 * @return memory for ist_free(), or NULL; no record is written, the caller names what it was for
 * @threads any
 * @since 0.1
 */
IST_API void *ist_alloc(size_t count, size_t bytes);

/**
 * Frees memory of ist_alloc(). NULL is allowed.
 *
 * @threads any
 * @since 0.1
 */
IST_API void ist_free(void *memory);

/** Returns from the calling function with the status of an expression that failed. */
#define IST_RETURN_IF_ERROR(expression)                                                            \
    do {                                                                                           \
        ist_status ist_status_ = (expression);                                                     \
        if (ist_status_ < 0) {                                                                     \
            return ist_status_;                                                                    \
        }                                                                                          \
    } while (0)

IST_END_DECLS

#endif
