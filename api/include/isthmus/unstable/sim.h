/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file sim.h
 * The simulator's own settings: faults, event log, trace. Unstable: may change between releases.
 *
 * A fault plan is a list of faults, written through this interface or in JSON, or drawn from a
 * seed. The same plan, program, cluster and seed give the same run, event for event.
 *
 * @threads any, one at a time for each plan; a plan must stay as it is while a world uses it
 * @since 0.1
 */
#ifndef IST_UNSTABLE_SIM_H
#define IST_UNSTABLE_SIM_H

#include <isthmus/world.h>

IST_BEGIN_DECLS

struct ist_explore_desc;   /* unstable/explore.h */
struct ist_explore_report; /* unstable/explore.h */

/** What a fault does: X(name, value, name in JSON). */
#define IST_FAULT_LIST(X)                                                                          \
    X(IST_FAULT_KILL, 1, "kill")   /* the rank stops for ever */                                   \
    X(IST_FAULT_STALL, 2, "stall") /* the rank does nothing for duration_ns; 0: for ever */        \
    X(IST_FAULT_SLOW, 3, "slow")   /* its device time passes `ratio` slower */                     \
    X(IST_FAULT_DELAY, 4, "delay") /* a transfer arrives duration_ns later */                      \
    X(IST_FAULT_DROP, 5, "drop")   /* a transfer never arrives, nobody is told */                  \
    X(IST_FAULT_DUPLICATE, 6, "duplicate") /* a transfer arrives again duration_ns later */        \
    X(IST_FAULT_REORDER, 7, "reorder")     /* a transfer arrives after the next one of its pair */ \
    X(IST_FAULT_ERROR, 8, "error") /* a transfer fails; the sender gets an error completion */     \
    X(IST_FAULT_LINK_DOWN, 9, "link_down")  /* ports rank<->peer stop duration_ns; 0: for ever */  \
    X(IST_FAULT_LINK_SLOW, 10, "link_slow") /* ports rank<->peer at 1/ratio for duration_ns */     \
    X(IST_FAULT_ALLOC, 11, "alloc")         /* the rank's nth device allocation fails */           \
    X(IST_FAULT_REGISTER, 12, "register")   /* the rank's nth window registration fails */         \
    X(IST_FAULT_RESUME, 13, "resume")       /* ends a stall of the rank; only at a time */

/** Kind of a fault; the values are those of IST_FAULT_LIST. */
typedef enum ist_fault_kind {
#define X(name, value, json) name = value,
    IST_FAULT_LIST(X)
#undef X
} ist_fault_kind;

/**
 * When it happens. ALLOC and REGISTER have NTH only. Transfers have all: after a time, operation or
 * point the next `count` matching transfers are struck.
 */
typedef enum ist_fault_trigger {
    IST_FAULT_AT_TIME = 0,  /**< at at_ns of virtual time ("at_ns") */
    IST_FAULT_AT_OP = 1,    /**< before the rank's at_op-th operation, counted from 1 ("at_op") */
    IST_FAULT_AT_POINT = 2, /**< when the rank passes `point` the at_op-th time ("at_point") */
    IST_FAULT_NTH = 3       /**< the at_op-th matching transfer, allocation … ("nth") */
} ist_fault_trigger;

/** Which transfers DELAY, DROP, DUPLICATE, REORDER and ERROR match; or-ed. */
typedef enum ist_fault_class {
    IST_FAULT_PUTS = 1,    /**< transfers with data */
    IST_FAULT_SIGNALS = 2, /**< transfers that raise a signal, with data or without */
    IST_FAULT_STORES = 4   /**< load/store flags; only DELAY */
} ist_fault_class;

/** Any rank, or all peers. */
#define IST_FAULT_ANY (-1)

/**
 * One fault. Zero fields are "any" or "default" where that makes sense; fields that the kind or
 * trigger does not use must be zero (except peer). Times are at most 9e15 ns.
 */
typedef struct ist_fault {
    uint32_t size;             /**< sizeof(ist_fault) */
    ist_fault_kind kind;       /**< what happens */
    ist_fault_trigger trigger; /**< when */
    int32_t rank;              /**< who suffers; transfers: who sends; IST_FAULT_ANY: the first,
                                    not with AT_TIME except for transfers */
    int32_t peer;              /**< transfers and links: the other side; IST_FAULT_ANY: all */
    uint32_t classes;          /**< ist_fault_class; 0: puts and signals */
    uint64_t at_ns;            /**< AT_TIME: virtual time in ns */
    uint64_t at_op;            /**< other triggers: counted from 1; 0: 1 */
    uint64_t duration_ns;      /**< in ns, as the kind says; DELAY: at least 1 */
    uint64_t ratio;            /**< SLOW, LINK_SLOW: factor 1 … 1000000; 0: 10 */
    uint64_t count;            /**< transfers, allocations: how many in a row; 0: 1 */
    char point[48];            /**< AT_POINT: name given to ist_point(), printable ASCII */
} ist_fault;

/** A list of faults. */
typedef struct ist_fault_plan ist_fault_plan;

/** Limits for random plans, so that a quorum survives. */
typedef struct ist_fault_budget {
    uint32_t size;               /**< sizeof(ist_fault_budget) */
    uint32_t rank_count;         /**< ranks of the world */
    uint32_t kill_count_max;     /**< less than rank_count */
    uint32_t stall_count_max;    /**< stalls and slow ranks together, never ranks that die */
    uint32_t transfer_count_max; /**< delays, drops, duplicates, reorders, errors together */
    uint32_t link_count_max;     /**< links down or slow, always for a limited time */
    uint64_t horizon_ops;        /**< operations a rank is expected to make, triggers fall below;
                                      0: 1000 */
    uint64_t stall_ns_max;       /**< longest stall, delay or link fault, in ns; 0: 10000 */
    uint32_t legal_only;         /**< 1: no drop, duplicate, error: what a sound network may do */
    uint32_t reserved;           /**< zero */
} ist_fault_budget;

/** Link models. */
typedef enum ist_link_model {
    IST_LINKS_IN_ORDER = 0, /**< a link serves transfers one after another */
    IST_LINKS_MAX_MIN = 1   /**< transfers share links max-min fairly */
} ist_link_model;

/** Kinds of events in the log: X(name, value, text). What `detail` and `value` are stands behind. */
#define IST_SIM_EVENT_LIST(X)                                                                      \
    X(IST_SIM_HOST_CALL, 1, "host")        /* not written */                                       \
    X(IST_SIM_LAUNCH, 2, "launch")         /* not written */                                       \
    X(IST_SIM_KERNEL_BEGIN, 3, "kernel")   /* detail: kernel name hash, value: sequence */         \
    X(IST_SIM_KERNEL_END, 4, "kernel_end") /* as KERNEL_BEGIN */                                   \
    X(IST_SIM_COPY, 5, "copy")             /* value: bytes */                                      \
    X(IST_SIM_ROW, 6, "row")               /* to peer; detail: block, value: bytes */              \
    X(IST_SIM_STORE, 7, "store")           /* from peer; detail: its bytes, value: the word */     \
    X(IST_SIM_PUT, 8, "put")               /* issued; detail: context, value: bytes */             \
    X(IST_SIM_PUT_DONE, 9, "put_done")     /* from peer; detail: context, value: bytes */          \
    X(IST_SIM_SIGNAL, 10, "signal")     /* raised; detail: context << 16 | signal, value: new */   \
    X(IST_SIM_WAIT, 11, "wait")         /* detail: what for, value: expected */                    \
    X(IST_SIM_WAIT_END, 12, "wait_end") /* detail: ist_wait_result, value: waited ps */            \
    X(IST_SIM_MASK, 13, "mask")         /* peer dropped; value: tag of the operation */            \
    X(IST_SIM_FAULT, 14, "fault")       /* detail: ist_fault_kind */                               \
    X(IST_SIM_EXCHANGE, 15, "exchange") /* detail: bytes a rank, value: lost ranks */              \
    X(IST_SIM_RANK_END, 16, "rank_end") /* detail: status, negated */                              \
    X(IST_SIM_POINT, 17, "point")       /* detail: name hash, value: operations of the rank */

/** Kind of an event; the values are those of IST_SIM_EVENT_LIST. */
typedef enum ist_sim_event_kind {
#define X(name, value, text) name = value,
    IST_SIM_EVENT_LIST(X)
#undef X
} ist_sim_event_kind;

/** One record of the event log: 32 bytes, all defined. */
typedef struct ist_sim_event {
    uint64_t at_ps;  /**< virtual time in ps */
    uint32_t kind;   /**< ist_sim_event_kind */
    int32_t rank;    /**< whom it happened to, rank in the world; -1: nobody in particular */
    int32_t peer;    /**< the other side, in the world or the communicator; -1: none */
    uint32_t detail; /**< kind's own: kernel, context, signal … */
    uint64_t value;  /**< kind's own: bytes, tag, time … */
} ist_sim_event;

/** Further settings. Zero means default. */
typedef struct ist_sim_desc {
    uint32_t size;          /**< sizeof(ist_sim_desc) */
    ist_link_model links;   /**< how links are shared */
    uint64_t log_capacity;  /**< newest events kept in memory; 0: 65536 if a file is written, else
                                 none; all events are digested */
    const char *trace_path; /**< write a Perfetto/Chrome JSON trace here, or NULL */
    const char *log_path;   /**< write the kept events here (binary), or NULL */
    uint64_t op_count_max;  /**< stop the world with IST_ERR_DEADLOCK after so many device
                                 operations; 0: no limit */
    uint64_t process_deadline_ns; /**< ranks as processes: real time, in ns, that a process may
                                       compute between two calls; 0: 60 s */
    uint32_t on_kill_unwind_max;  /**< calls a killed rank's program may still make; 0: 10000 */
    uint32_t reserved;            /**< zero */
    const struct ist_explore_desc
        *explore;                      /**< explore schedules (explore.h); NULL: as the variable
                                                 IST_SIM_SCHEDULER says, else the fair scheduler */
    struct ist_explore_report *report; /**< out: what the schedule did, or NULL */
} ist_sim_desc;

/**
 * Opens an empty plan.
 *
 * @param plan  out: close it with ist_fault_plan_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_MEMORY
 */
IST_API_UNSTABLE IST_MUST_USE ist_status ist_fault_plan_open(ist_fault_plan **plan);

/** Frees a plan. NULL is allowed. */
IST_API_UNSTABLE void ist_fault_plan_close(ist_fault_plan *plan);

/**
 * Appends a fault.
 *
 * @return IST_OK; argument errors; IST_ERR_ARGUMENT naming field, value and what is allowed;
 *         IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_fault_plan_add(ist_fault_plan *plan, const ist_fault *fault);

/**
 * How many faults are in the plan.
 * @return 0 for NULL or a closed plan
 */
IST_API_UNSTABLE uint32_t ist_fault_plan_count(const ist_fault_plan *plan);

/**
 * Reads a fault, defaults resolved.
 *
 * @param index  0 … ist_fault_plan_count() - 1
 * @param fault  out: filled up to fault->size, at least 8
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_RANGE; IST_ERR_SIZE
 */
IST_API_UNSTABLE ist_status ist_fault_plan_get(const ist_fault_plan *plan, uint32_t index,
                                               ist_fault *fault);

/**
 * Appends the faults of a JSON text: {"faults":[{"kind":"kill","rank":3,"at_op":120}, …]}. The keys
 * of a fault are kind, rank, peer, classes (an array of "puts", "signals", "stores"), one of at_ns,
 * at_op, at_point (with nth: the nth pass) and nth, then duration_ns, ratio, count.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_PARSE naming line and column, or fault, key
 *         and value; IST_ERR_MEMORY. The plan is unchanged on failure
 */
IST_API_UNSTABLE ist_status ist_fault_plan_parse(ist_fault_plan *plan, const char *json);

/**
 * As ist_fault_plan_parse(), from a file of at most 64 MiB.
 *
 * @return as ist_fault_plan_parse(); IST_ERR_IO when the file cannot be read
 */
IST_API_UNSTABLE ist_status ist_fault_plan_load(ist_fault_plan *plan, const char *path);

/**
 * Writes the plan as JSON, stable text, one line, ending in a NUL. ist_fault_plan_parse() reads it.
 *
 * @param text      out: [capacity]; NULL with capacity 0 asks for `needed` alone
 * @param capacity  bytes of `text`
 * @param needed    out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE when capacity is too small (no text is
 *         written)
 */
IST_API_UNSTABLE ist_status ist_fault_plan_print(const ist_fault_plan *plan, char *text,
                                                 size_t capacity, size_t *needed);

/**
 * Appends faults drawn from `seed` within a budget. Same seed and budget, same faults.
 *
 * Method: independent draws within the budget, and one pattern on purpose: clog a random subset of
 * links at once, release them in another order.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_OBJECT; IST_ERR_SIZE; IST_ERR_RESERVED; IST_ERR_ARGUMENT naming
 *         the field; IST_ERR_MEMORY. The plan is unchanged on failure
 */
IST_API_UNSTABLE ist_status ist_fault_plan_random(ist_fault_plan *plan, uint64_t seed,
                                                  const ist_fault_budget *budget);

/**
 * Call faults, on any backend: the nth call of a backend operation fails with `status`, or all
 * from the nth on. Process-wide; for the fault loop. Calls that close or free are done before they
 * fail. Backend operations are watched in worlds that start while a fault is armed, or in all when
 * IST_CALL_FAULTS=1 is set. Counts begin at zero.
 *
 * @param op          name of a row of IST_BACKEND_OPS, "host_alloc" for ist_alloc(), NULL: any of them
 * @param nth         counted from 1; 0 disarms
 * @param persistent  not 0: all calls from the nth on
 * @param status      a failure, below 0; host_alloc fails with it only in name: it returns NULL
 * @return IST_OK; IST_ERR_ARGUMENT for an unknown name or a status that is no failure
 * @threads any, while no world runs
 */
IST_API_UNSTABLE ist_status ist_call_fault_arm(const char *op, uint64_t nth, int persistent,
                                               ist_status status);

/**
 * Disarms, and tells what happened since arming.
 *
 * @param hit_count  out, may be NULL: calls that failed on purpose
 * @return calls of the armed operation that were seen
 * @threads any, while no world runs
 */
IST_API_UNSTABLE uint64_t ist_call_fault_disarm(uint64_t *hit_count);

IST_END_DECLS

#endif
