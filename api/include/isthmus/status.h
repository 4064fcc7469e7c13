/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file status.h
 * Every answer the library gives, and the record of the last error of a rank.
 *
 * One list holds value, name and sentence. Zero is success, positive is "not finished, or finished
 * without some ranks", negative is failure. Values are permanent; each group has room to grow.
 * The function that decides an error fills the record and logs once; callers only pass it on.
 *
 * What holds for all functions of the library that return an ist_status, unless they say otherwise:
 *
 *   - Arguments are checked before anything is enqueued, sent or allocated. IST_ERR_NULL: a required
 *     pointer is NULL. IST_ERR_OBJECT: an object is closed, of another kind, or belongs to another
 *     rank than the one that calls. IST_ERR_SIZE: the `size` field of a struct is smaller than its
 *     first release, or above 65536. IST_ERR_RESERVED: a reserved field, or a byte behind what this
 *     library knows of a struct, is not zero. These four are called *argument errors* below.
 *   - Out-parameters are written on IST_OK only.
 *   - IST_ERR_KILLED: the fault plan killed this rank; every later call has no effect and says so.
 *   - IST_ERR_MEMORY: no host or device memory for what the call needs. IST_ERR_DEVICE: a kernel of
 *     this rank did what it may not, or the device reported a fault; which call hears of it first is
 *     not defined.
 *   - A failure wrote the record that ist_error_last() reads.
 */
#ifndef IST_STATUS_H
#define IST_STATUS_H

#include <isthmus/export.h>
#include <stdint.h>

IST_BEGIN_DECLS

/** All statuses: X(name, value, sentence). Rows are appended to their group, never renumbered. */
#define IST_STATUS_LIST(X)                                                                         \
    X(IST_OK, 0, "success")                                                                        \
    X(IST_IN_PROGRESS, 1, "not finished yet")                                                      \
    X(IST_INCOMPLETE, 2, "finished without the contribution of some ranks; see the record")        \
    /* arguments and calls: nothing was enqueued */                                                \
    X(IST_ERR_ARGUMENT, -1, "an argument has a value that is not allowed")                         \
    X(IST_ERR_NULL, -2, "a required argument is NULL")                                             \
    X(IST_ERR_SIZE, -3, "a descriptor's size field, or a buffer, is too small")                    \
    X(IST_ERR_RESERVED, -4, "a reserved field is not zero")                                        \
    X(IST_ERR_RANGE, -5, "a number or an offset is out of range")                                  \
    X(IST_ERR_ALIGNMENT, -6, "an address, offset or size is not aligned as required")              \
    X(IST_ERR_USAGE, -7, "the call is not allowed in this state")                                  \
    X(IST_ERR_OBJECT, -8, "the object is closed, foreign or of another kind")                      \
    X(IST_ERR_MISMATCH, -9, "arguments differ between ranks that must agree")                      \
    X(IST_ERR_PARSE, -10, "a text or file cannot be parsed")                                       \
    /* peers */                                                                                    \
    X(IST_ERR_TIMEOUT, -20, "a wait reached its deadline")                                         \
    X(IST_ERR_RANK_LOST, -21, "a rank that is needed has left the mask")                           \
    X(IST_ERR_EVICTED, -22, "the peers have masked this rank")                                     \
    X(IST_ERR_ABORTED, -23, "the communicator was aborted")                                        \
    X(IST_ERR_REMOTE, -24, "the network completed an operation with an error")                     \
    X(IST_ERR_KILLED, -25, "this rank was killed by the fault plan")                               \
    X(IST_ERR_DEADLOCK, -26, "nothing left in the world can end this wait")                        \
    /* system */                                                                                   \
    X(IST_ERR_MEMORY, -40, "out of memory")                                                        \
    X(IST_ERR_BACKEND, -41, "the backend is unknown or cannot be used here")                       \
    X(IST_ERR_ABI, -42, "the backend or device code was built for another interface version")      \
    X(IST_ERR_UNSUPPORTED, -43, "the backend does not offer this operation")                       \
    X(IST_ERR_SYSTEM, -44, "an operating system call failed")                                      \
    X(IST_ERR_IO, -45, "a file cannot be read or written")                                         \
    X(IST_ERR_DEVICE, -46, "the device reported a fault")                                          \
    /* ours */                                                                                     \
    X(IST_ERR_INTERNAL, -60, "an invariant of the library does not hold")

/** What a call returns; the values are those of IST_STATUS_LIST. */
typedef enum ist_status {
#define X(name, value, sentence) name = value,
    IST_STATUS_LIST(X)
#undef X
} ist_status;

/** Marks "no rank" and "no peer" in records. */
#define IST_RANK_NONE (-1)

/**
 * What went wrong, in numbers and words. Filled up to the caller's `size`.
 * Fields that do not apply are zero, ranks IST_RANK_NONE, texts empty.
 */
typedef struct ist_error {
    uint32_t size;      /**< in: sizeof(ist_error) as the caller compiled it, at least 8 */
    ist_status status;  /**< the status that was returned; IST_OK: no failure so far */
    int32_t rank;       /**< rank, in the world, that decided the error */
    int32_t peer;       /**< rank, in the communicator, that it was about */
    uint64_t sequence;  /**< operation number (tag) on its communicator or group */
    uint64_t expected;  /**< value or limit that was expected */
    uint64_t observed;  /**< value that was seen */
    uint64_t waited_ns; /**< how long was waited */
    char object[32];    /**< argument, field or object, e.g. "desc.expert_count" */
    char operation[32]; /**< public function or kernel phase, e.g. "ep.dispatch" */
    char message[256];  /**< one sentence with the values in it */
} ist_error;

/**
 * Name of a status, e.g. "IST_ERR_TIMEOUT".
 *
 * @return static text; "IST_ERR_?" for a value outside the list
 * @threads any
 * @since 0.1
 */
IST_API const char *ist_status_name(ist_status status);

/**
 * One sentence for a status, in English, without a full stop.
 *
 * @return static text; "a status that this library does not know" for a value outside the list
 * @threads any
 * @since 0.1
 */
IST_API const char *ist_status_sentence(ist_status status);

/**
 * Copies the last error decided on this rank (or this thread, outside a world).
 *
 * A successful call does not clear it. Two reads with no failure between give the same record.
 * After ist_world_run() the calling thread has the record of the rank that failed first.
 *
 * @param error  out: filled up to error->size, with status IST_OK when nothing has failed yet
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE when size is below 8 or above 65536 (these two become
 *         the last error)
 * @threads any; each rank has its own record
 * @since 0.1
 */
IST_API ist_status ist_error_last(ist_error *error);

/**
 * Log levels; a level includes those above it here. The variable IST_LOG (none, error, warn, info,
 * trace) sets the one in force, without it IST_LOG_WARN is.
 */
typedef enum ist_log_level {
    IST_LOG_NONE = 0,  /**< nothing */
    IST_LOG_ERROR = 1, /**< each failure, once, where it is decided */
    IST_LOG_WARN = 2,  /**< what a program did that costs it later: objects left open, lost puts */
    IST_LOG_INFO = 3,  /**< choices that the library made */
    IST_LOG_TRACE = 4  /**< every backend operation, with its answer */
} ist_log_level;

/**
 * Receives one finished line of at most 511 bytes, without newline. Called on the thread that logs;
 * `line` is valid during the call only. Must not call the library.
 */
typedef void (*ist_log_fn)(ist_log_level level, const char *line, void *context);

/**
 * Sends log lines to `sink` instead of standard error. NULL restores standard error. Replaces the
 * level that IST_LOG set.
 *
 * @param context    passed to `sink`
 * @param level_max  lines above this level are not made
 * @threads any, while no world runs
 * @since 0.1
 */
IST_API void ist_log_sink_set(ist_log_fn sink, void *context, ist_log_level level_max);

IST_END_DECLS

#endif
