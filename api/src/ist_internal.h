/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the front share: the objects behind the public names, and the checks that
 * every entry point makes before it calls the table. Nothing here blocks or allocates unless it
 * says so. Helpers raise what they find; callers pass it on.
 */
#ifndef IST_INTERNAL_H
#define IST_INTERNAL_H

#include <isthmus/backend.h>
#include <isthmus/device.h>
#include <isthmus/mask.h>
#include <stdatomic.h>
#include <stdbool.h>

#define IST_DEADLINE_NS_MIN 1000u
#define IST_DEADLINE_NS_DEFAULT 100000000000u /* 100 s */
#define IST_RANK_COUNT_MAX (IST_DEV_MASK_WORDS * 64u)
#define IST_COLD __attribute__((cold, noinline))
#define IST_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* ---- objects --------------------------------------------------------------------------------- */

/* X(name, text): kinds of objects that a program can hold. */
#define IST_KIND_LIST(X)                                                                           \
    X(IST_KIND_WORLD, "world")                                                                     \
    X(IST_KIND_STREAM, "stream")                                                                   \
    X(IST_KIND_EVENT, "event")                                                                     \
    X(IST_KIND_GRAPH, "graph")                                                                     \
    X(IST_KIND_COMM, "communicator")                                                               \
    X(IST_KIND_WINDOW, "window")                                                                   \
    X(IST_KIND_EP_GROUP, "expert-parallel group")                                                  \
    X(IST_KIND_EP_HANDLE, "expert-parallel handle")

typedef enum ist_kind {
#define X(name, text) name,
    IST_KIND_LIST(X)
#undef X
        IST_KIND_COUNT
} ist_kind;

/* The first word of every object; "IST" or "ist" and the kind, so that a closed object, another
   kind and foreign memory can be told apart. */
#define IST_MAGIC_OPEN 0x49535400u
#define IST_MAGIC_CLOSED 0x69737400u
#define IST_MAGIC(kind) (IST_MAGIC_OPEN + (uint32_t)(kind))

/*
 * Head of every object. An open object is in its world's list, newest first: that is the order in
 * which a rank's leftovers are closed. A closed one stays readable in the world's quarantine, so
 * that a late call on it is an error and not an access to freed memory.
 */
typedef struct ist_object {
    uint32_t magic;
    uint32_t reserved;
    ist_world *world;
    uint64_t number; /* the backend's; windows: the index */
    struct ist_object *next, *previous;
    ist_status (*close)(void *object); /* the public close function */
    void (*discard)(void *object); /* frees what else the object owns on the host; NULL: nothing.
                                      For worlds whose backend is gone; set after opening */
} ist_object;

/* Closed objects kept readable in a world; beyond it the oldest are freed. */
#define IST_QUARANTINE_COUNT_MAX 1024u

struct ist_layer;
struct ist_mask_result; /* kernels/mask/mask_args.h */

struct ist_world {
    ist_object object;
    const ist_error *owner; /* the slot bound while this rank's program runs */
    void *self;             /* instance for `ops`: the topmost layer's or the backend's */
    uint32_t rank;
    uint32_t rank_count;
    uint64_t deadline_ns; /* resolved, never 0 */
    uint32_t sm_count;    /* 0 until caps are known */
    ist_check check;      /* resolved, never AUTO */
    bool caps_known;
    bool has_devcomm; /* the backend has device communicators at all */
    bool has_windows;
    bool has_coll;       /* native collectives */
    bool has_ground;     /* communicators tell what they chose by */
    ist_backend_ops ops; /* completed; every slot is callable */
    struct ist_layer *layers;
    const char *backend_name;
    ist_object *open;                       /* newest first */
    ist_object *closed_first, *closed_last; /* oldest first */
    uint32_t closed_count;
    uint32_t memory_count;    /* allocations of ist_mem_alloc() not yet freed */
    uint64_t comm_open_count; /* whole-world communicators opened so far */
    uint64_t capture;         /* number of the capture under way, 0: none */
    uint64_t capture_count;
    /* Ranges that collective calls have been checked with, good until something is freed: programs
       use the same buffers again and again. */
    struct {
        const void *mem;
        uint64_t bytes;
    } checked[4];
    uint32_t checked_next;
    bool peeks_by_loads;        /* see ist_backend_caps; false until caps are known */
    ist_backend_coll *coll_ops; /* of the group under way, [coll_room] */
    uint32_t coll_count, coll_room;
    uint32_t coll_depth;     /* of nested groups */
    ist_status coll_refused; /* the first refused call of the group */
    ist_error coll_why;      /* and its record */
    ist_backend_caps caps;
    struct ist_world *next; /* in the run */
};

/*
 * How long the host waits for a stream when the caller names no limit. A device wait may last
 * several deadlines when ranks die in a row: the host must not give up before the device does.
 */
#define IST_HOST_PATIENCE 8u
static inline uint64_t ist_host_deadline(const ist_world *world)
{
    return world->deadline_ns > UINT64_MAX / IST_HOST_PATIENCE
               ? UINT64_MAX
               : world->deadline_ns * IST_HOST_PATIENCE;
}

struct ist_stream {
    ist_object object;
    uint64_t capture; /* part of the capture with that number, if it is still under way */
    bool capture_origin;
};

struct ist_event {
    ist_object object;
    uint64_t capture; /* number of the capture in which it was recorded last, or 0 */
};

struct ist_graph {
    ist_object object;
};

/* One device communicator of a program, tracked to be closed with its communicator. */
typedef struct ist_user_devcomm {
    const ist_dev_comm *dev;
    struct ist_user_devcomm *next;
} ist_user_devcomm;

struct ist_comm {
    ist_object object;
    uint32_t rank; /* in the communicator, as all ranks and peers of its calls */
    uint32_t rank_count;
    uint32_t lsa_rank;
    uint32_t lsa_size;
    uint32_t lsa_size_max;
    uint32_t gin_supported;
    uint32_t fault_tolerant;
    ist_check check;      /* resolved */
    uint64_t deadline_ns; /* resolved */
    const char *gin_reason;
    atomic_int aborted;
    uint32_t window_count; /* open; close is refused while not 0 */
    uint32_t group_count;  /* open EP groups; close is refused while not 0 */
    /* Device addresses. The mask lies near the device, which reads it all the time; what the host
       reads all the time lies near the host. */
    ist_dev_mask *mask;
    uint64_t *participants;              /* IST_MASK_WORDS(rank_count) words, behind the mask */
    uint64_t *alarm;                     /* not 0: device code has recorded an error */
    struct ist_mask_result *mask_result; /* behind the alarm */
    const ist_dev_comm *service; /* for barrier, agree, clean; NULL where peers are out of reach */
    ist_user_devcomm *devcomms;
    uint64_t split_count;
    bool mask_touched;           /* by the program; what device code masks, the alarm tells */
    struct ist_coll_state *coll; /* native collectives, NULL: not opened */
    bool of_world;               /* opened for the whole world, by the world's count */
    uint64_t consensus_count;    /* agree and clean kernels launched by this rank */
    ist_unique_id id;
};

struct ist_window {
    ist_object object; /* number: index, equal on all ranks, never 0 */
    ist_comm *comm;
    uint8_t *memory; /* device address */
    uint64_t bytes;
};

/* Fills the head and puts the object into its world's list. Cannot fail. */
void ist_object_open(void *object, ist_kind kind, ist_world *world, uint64_t number,
                     ist_status (*close)(void *object));
/* Takes the object out of the list, poisons it, keeps it in quarantine. */
void ist_object_close(void *object);
/* Closes whatever is open, newest first; logs what, unless `quiet`. */
void ist_object_close_all(ist_world *world, bool quiet);
/* Frees all structs of a world without calling the backend. */
void ist_object_free_all(ist_world *world);
/* Decides why `object` is not one of `kind`. */
IST_COLD ist_status ist_object_refuse(const void *object, ist_kind kind, const char *argument,
                                      const char *operation);
const char *ist_kind_text(ist_kind kind);

/* The slot that takes the calling thread's errors: which rank is calling, where a backend runs
   several on a thread. Read by every call, so without a call into the loader. */
extern _Thread_local ist_error *ist_error_bound
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Open and of that kind, whoever calls. */
static inline bool ist_object_is(const void *object, ist_kind kind)
{
    return object != NULL && ((const ist_object *)object)->magic == IST_MAGIC(kind);
}

/* For the second object of a call, whose world is compared with the first one's. */
static inline ist_status ist_check_kind(const void *object, ist_kind kind, const char *argument,
                                        const char *operation)
{
    return IST_LIKELY(ist_object_is(object, kind))
               ? IST_OK
               : ist_object_refuse(object, kind, argument, operation);
}

/* Also: the caller is the rank that the object belongs to. */
static inline ist_status ist_check_object(const void *object, ist_kind kind, const char *argument,
                                          const char *operation)
{
    if (IST_LIKELY(ist_object_is(object, kind) &&
                   ((const ist_object *)object)->world->owner == ist_error_bound)) {
        return IST_OK;
    }
    return ist_object_refuse(object, kind, argument, operation);
}

static inline ist_status ist_check_world(const ist_world *world, const char *argument,
                                         const char *operation)
{
    return ist_check_object(world, IST_KIND_WORLD, argument, operation);
}

static inline ist_status ist_check_stream(const ist_stream *stream, const char *argument,
                                          const char *operation)
{
    return ist_check_object(stream, IST_KIND_STREAM, argument, operation);
}

/* Open, but possibly aborted: for close and the queries. */
static inline ist_status ist_check_comm_open(const ist_comm *comm, const char *argument,
                                             const char *operation)
{
    return ist_check_object(comm, IST_KIND_COMM, argument, operation);
}

IST_COLD ist_status ist_comm_refuse_aborted(const ist_comm *comm, const char *operation);

/* Open and not aborted. */
static inline ist_status ist_check_comm(const ist_comm *comm, const char *argument,
                                        const char *operation)
{
    IST_RETURN_IF_ERROR(ist_check_object(comm, IST_KIND_COMM, argument, operation));
    if (IST_LIKELY(atomic_load_explicit(&comm->aborted, memory_order_relaxed) == 0)) {
        return IST_OK;
    }
    return ist_comm_refuse_aborted(comm, operation);
}

static inline ist_status ist_check_window(const ist_window *window, const char *argument,
                                          const char *operation)
{
    return ist_check_object(window, IST_KIND_WINDOW, argument, operation);
}

IST_COLD ist_status ist_object_refuse_foreign(const ist_world *world, const void *object,
                                              const char *argument, const char *operation);

/* Whether a checked object belongs to `world`: objects of two ranks never mix in a call. */
static inline ist_status ist_check_same_world(const ist_world *world, const void *object,
                                              const char *argument, const char *operation)
{
    if (IST_LIKELY(((const ist_object *)object)->world == world)) {
        return IST_OK;
    }
    return ist_object_refuse_foreign(world, object, argument, operation);
}

/* Open stream of the same rank as `comm`. */
static inline ist_status ist_check_comm_stream(const ist_comm *comm, const ist_stream *stream,
                                               const char *operation)
{
    IST_RETURN_IF_ERROR(ist_check_kind(stream, IST_KIND_STREAM, "stream", operation));
    return ist_check_same_world(comm->object.world, stream, "stream", operation);
}

/* Whether work enqueued on the stream now goes into a graph. */
static inline bool ist_stream_capturing(const ist_stream *stream)
{
    return stream->capture != 0 && stream->capture == stream->object.world->capture;
}

/* IST_ERR_USAGE while the stream is capturing: for calls that wait for it. */
ist_status ist_check_not_capturing(const ist_stream *stream, const char *operation);

/* ---- errors ---------------------------------------------------------------------------------- */

/* A record with rank, object and operation set and the peer "none", for ist_raise(). */
ist_error ist_details(const ist_world *world, const char *object, const char *operation);
ist_status ist_raise_list(ist_status status, const ist_error *details, const char *format,
                          va_list list) __attribute__((format(printf, 3, 0)));
/* ist_raise() for errors without numbers in the record. `world` may be NULL. */
IST_COLD ist_status ist_fail(const ist_world *world, ist_status status, const char *object,
                             const char *operation, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same with the value that was expected and the one that was seen. */
IST_COLD ist_status ist_fail_value(const ist_world *world, ist_status status, const char *object,
                                   const char *operation, uint64_t expected, uint64_t observed,
                                   const char *format, ...) __attribute__((format(printf, 7, 8)));
IST_COLD ist_status ist_fail_null(const ist_world *world, const char *argument,
                                  const char *operation);
IST_COLD ist_status ist_fail_memory(const ist_world *world, const char *what,
                                    const char *operation);
ist_log_level ist_log_level_max(void);
/* Keeps a record over calls that clean up and may raise too: the first error is the one to tell. */
void ist_error_save(ist_error *saved);
void ist_error_restore(const ist_error *saved);

static inline ist_status ist_check_pointer(const ist_world *world, const void *pointer,
                                           const char *argument, const char *operation)
{
    return IST_LIKELY(pointer != NULL) ? IST_OK : ist_fail_null(world, argument, operation);
}

/* ---- descriptors and structs that are filled -------------------------------------------------- */

/*
 * Copies a caller's descriptor into `copy`, whose rest is zeroed. `size_first` is the struct's size
 * in its first release. Refuses a smaller size, and unknown bytes behind `copy_bytes` that are not
 * zero (a newer program asks for what this library does not know).
 */
ist_status ist_desc_read(const ist_world *world, const void *desc, size_t size_first, void *copy,
                         size_t copy_bytes, const char *argument, const char *operation);
/* IST_ERR_RESERVED unless `bytes` bytes are zero. */
ist_status ist_check_reserved(const ist_world *world, const void *field, size_t bytes,
                              const char *argument, const char *operation);
/* 0 or at least 1000 ns. */
ist_status ist_check_deadline(const ist_world *world, uint64_t deadline_ns, const char *argument,
                              const char *operation);
/* Checks the size field of a struct to be filled: at least 8, not absurd. */
ist_status ist_out_check(const ist_world *world, const void *out, const char *argument,
                         const char *operation);
/* Fills a struct up to its size field, which it keeps; bytes that are not known become zero. */
void ist_out_write(void *out, const void *full, size_t full_bytes);

/* ---- memory and tensors ----------------------------------------------------------------------- */

/* Decides what is wrong with a range, given what mem_query said of it. */
IST_COLD ist_status ist_memory_refuse(const ist_world *world, const void *mem, uint64_t bytes,
                                      ist_status queried, uint32_t flags, uint32_t flags_needed,
                                      const char *argument, const char *operation);

/* Whether [mem, mem+bytes) is this rank's device memory and has all flags of `flags_needed`. */
static inline ist_status ist_memory_check(ist_world *world, const void *mem, uint64_t bytes,
                                          uint32_t flags_needed, const char *argument,
                                          const char *operation)
{
    uint32_t flags = 0;
    ist_status queried = IST_ERR_ARGUMENT;
    if (IST_LIKELY(mem != NULL && bytes <= UINTPTR_MAX - (uintptr_t)mem)) {
        queried = world->ops.mem_query(world->self, mem, (size_t)bytes, &flags);
        if (IST_LIKELY(queried == IST_OK && (flags & flags_needed) == flags_needed)) {
            return IST_OK;
        }
    }
    return ist_memory_refuse(world, mem, bytes, queried, flags, flags_needed, argument, operation);
}

/* Where a tensor lies. window_index 0: plain memory (index 0 is never a program's window). */
typedef struct ist_tensor_place {
    void *address;      /* local; NULL for an empty tensor */
    ist_window *window; /* NULL: plain memory */
    uint64_t offset;    /* bytes in the window */
    uint64_t elements;
    uint64_t bytes;
    uint32_t window_index;
} ist_tensor_place;

/*
 * Checks all that can be said of a tensor without knowing what it is for: size, reserved, type,
 * dimensions (overflow), one binding, window of this communicator, range, ownership, alignment to
 * its element. Dimensions and type must be compared by the caller.
 */
ist_status ist_tensor_check(ist_comm *comm, const ist_tensor *tensor, const char *argument,
                            const char *operation, ist_tensor_place *place);
const char *ist_dtype_text(ist_dtype dtype);

/* What the device can do; asked for once. */
ist_status ist_world_caps(ist_world *world, const ist_backend_caps **caps);

/* ---- agreement between ranks ------------------------------------------------------------------ */

/* A value that all ranks must pass alike; `name` is told in the error. */
typedef struct ist_field {
    const char *name;
    uint64_t value;
} ist_field;

#define IST_FIELD_COUNT_MAX 32u

/*
 * All ranks meet and tell each other how their preparation ended. BLOCKS, bounded by the deadline.
 *
 * Returns `local` when it is a failure; IST_ERR_TIMEOUT naming the first rank that did not come;
 * IST_ERR_MISMATCH when another rank failed (naming it and its status) or, if the communicator
 * checks peers, when a field differs (naming field, ranks and values). So IST_OK on one rank means
 * that no rank returned a failure, except where one timed out itself.
 */
ist_status ist_comm_meet(ist_comm *comm, ist_status local, const ist_field *fields, uint32_t count,
                         const char *operation);
/* ist_comm_meet() without fields. */
ist_status ist_comm_exchange_status(ist_comm *comm, ist_status local, const char *operation);
/* All ranks compare `bytes` by digest, whatever the communicator checks. */
ist_status ist_comm_agree_on_bytes(ist_comm *comm, const char *what, const void *bytes,
                                   size_t count, const char *operation);
/* Raw all-gather; recv has rank_count rows. lost_words, IST_MASK_WORDS(rank_count) words: in, ranks
   that are not waited for; out, ranks that did not come. */
ist_status ist_comm_exchange(ist_comm *comm, const void *send, size_t bytes, void *recv,
                             uint64_t *lost_words);
/* The failure that made the communicator unusable, raised; reads the mask memory. */
ist_status ist_check_comm_usable(ist_comm *comm, const char *operation);
/* IST_ERR_UNSUPPORTED unless the communicator has kernels of its own. */
ist_status ist_check_comm_service(const ist_comm *comm, const char *operation);

/* ---- communicators ---------------------------------------------------------------------------- */

/*
 * Opens a communicator whose fields from `rank` to `check`, `deadline_ns` and `id` are set, on all
 * its ranks or on none. Owns `opening` (an ist_alloc) from here on. BLOCKS.
 */
ist_status ist_comm_open_resolved(ist_world *world, ist_comm *opening, const char *operation,
                                  ist_comm **comm);
/* Ids: the last 8 of the 128 bytes are a mark and a checksum, so that garbage is recognised. */
void ist_unique_id_seal(ist_unique_id *id);
bool ist_unique_id_valid(const ist_unique_id *id);
void ist_unique_id_of_world(uint64_t number, ist_unique_id *id);
void ist_unique_id_of_split(const ist_unique_id *parent, uint64_t number, int32_t color,
                            ist_unique_id *id);

/* ---- masks ------------------------------------------------------------------------------------ */

/* The communicator's clean, for groups that add to it: `payload` (4 words, in and out) becomes the
   maximum over the ranks that took part. BLOCKS. As ist_comm_clean(). */
ist_status ist_comm_clean_with(ist_comm *comm, ist_stream *stream, uint64_t payload[4],
                               const char *operation);
/* Turns a device record into words and fills `error` (whole struct). */
void ist_dev_error_describe(const ist_comm *comm, const ist_dev_error *from, ist_error *error);
const char *ist_dev_operation_text(uint32_t operation);

/* ---- native collectives ----------------------------------------------------------------------- */

/* A reduction of ist_reduction_open(). */
typedef struct ist_coll_scale {
    ist_dtype dtype; /* IST_DTYPE_UNSET: free */
    uint64_t bits;
} ist_coll_scale;

typedef struct ist_coll_state {
    uint32_t scale_count; /* of those ever used at a time */
    ist_coll_scale scales[IST_REDUCTIONS_MAX];
} ist_coll_state;

/* Name of a call, as records have it: "all_reduce". */
const char *ist_coll_text(ist_coll_kind kind);
/* IST_ERR_RANK_LOST naming the first rank outside the mask. */
ist_status ist_coll_check_mask(ist_comm *comm, const char *operation);
/* Compares a call across ranks; BLOCKS. `local` is how this rank's checks ended. */
ist_status ist_coll_meet(ist_comm *comm, ist_status local, const ist_backend_coll *op);
/* Adds a call to the group under way. */
ist_status ist_coll_group_add(ist_world *world, const ist_backend_coll *op);
/* Takes calls of a communicator or stream (0: any) that closes out of the group under way, which
   fails then. */
void ist_coll_group_forget(ist_world *world, uint64_t comm, uint64_t stream);
/* A call has been refused, and its record is the last error: the group under way refuses, too. */
void ist_coll_group_refuse(ist_world *world, ist_status status);
void ist_coll_group_free(ist_world *world);

/* ---- device communicators --------------------------------------------------------------------- */

/*
 * Opens a device communicator on all ranks or on none. `local` is how the caller's preparation
 * ended; a failure on any rank fails all. BLOCKS. The mask of the communicator is added to `desc`.
 */
ist_status ist_devcomm_open_all(ist_comm *comm, ist_status local, const ist_devcomm_desc *desc,
                                const char *operation, const ist_dev_comm **dev);
/* The same for callers whose ranks have just met over what they ask for. */
ist_status ist_devcomm_open_agreed(ist_comm *comm, const ist_devcomm_desc *desc,
                                   const char *operation, const ist_dev_comm **dev);
ist_status ist_devcomm_close(ist_comm *comm, const ist_dev_comm *dev);

#endif
