/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file explore.h
 * Exploring the schedules of a program in the simulator: memory model, schedulers, detectors, replay
 * and shrinking. Unstable: may change between releases.
 *
 * One *schedule* is one run of a world. At every step of a kernel or program that others can observe
 * the scheduler chooses what happens next: which block or program goes on, which put or signal lands,
 * which queued work starts, and which of the values that the memory model allows a load returns.
 * Choices are numbered; 0 is always the quiet one (go on, oldest delivery, newest value). A schedule
 * is therefore a short list of deviations, and follows from (program, cluster, faults, scheduler,
 * seed) alone.
 *
 * Time is virtual and moves only when nothing else can happen: deadlines strike when all is quiet.
 * Links cost no time. Faults with times, delays and stalls work as in the fair scheduler.
 *
 * Methods: random priorities with depth bounds (Burckhardt et al., A randomized scheduler with
 * probabilistic guarantees of finding bugs, ASPLOS 2010); loads that choose among stores (Norris and
 * Demsky, CDSChecker, OOPSLA 2013; Kokologiannakis and Vafeiadis, GenMC, CAV 2021; scopes as in
 * GPUMC, 2025); partial-order reduction (Flanagan and Godefroid, POPL 2005; Godefroid, sleep sets,
 * 1996; Abdulla et al., source sets, POPL 2014); races by epochs (Flanagan and Freund, FastTrack, PLDI 2009); delta debugging (Zeller and
 * Hildebrandt, TSE 2002).
 *
 * @threads any; several worlds may be explored on several threads
 * @since 0.1
 */
#ifndef IST_UNSTABLE_EXPLORE_H
#define IST_UNSTABLE_EXPLORE_H

#include <isthmus/unstable/sim.h>

IST_BEGIN_DECLS

/** Who chooses. In text and in IST_SIM_SCHEDULER: fair, random, pct:3, replay. */
typedef enum ist_scheduler {
    IST_SCHEDULER_FAIR = 0,   /**< realistic times, no memory model, no detectors: the default */
    IST_SCHEDULER_RANDOM = 1, /**< by chance: who runs goes on in half of the cases */
    IST_SCHEDULER_PCT = 2, /**< random priorities, `depth` - 1 points where the leader falls back */
    IST_SCHEDULER_REPLAY = 3 /**< the given choices; 0 where none is given */
} ist_scheduler;

/** What detectors find: X(name, value, text). */
#define IST_FINDING_LIST(X)                                                                        \
    X(IST_FINDING_NONE, 0, "none")                                                                 \
    X(IST_FINDING_STATUS, 1, "status")       /* a program's own status: oracle, invariant */       \
    X(IST_FINDING_RACE, 2, "race")           /* unordered accesses, one a write */                 \
    X(IST_FINDING_REUSED, 3, "reused")       /* overwritten before its reader was done */          \
    X(IST_FINDING_UNWRITTEN, 4, "unwritten") /* symmetric memory read that nobody has written */   \
    X(IST_FINDING_OUTSIDE, 5, "outside")   /* outside a window, or after it was closed or freed */ \
    X(IST_FINDING_FOREIGN, 6, "foreign")   /* another rank's memory that is in no window */        \
    X(IST_FINDING_DEADLOCK, 7, "deadlock") /* a wait that only its deadline can end */             \
    X(IST_FINDING_LIVELOCK, 8, "livelock") /* the limit of operations was passed */                \
    X(IST_FINDING_DISAGREE, 9, "disagree") /* collective calls differ between ranks */             \
    X(IST_FINDING_LEAK, 10, "leak")        /* device memory left at the end of a program */

/** Kind of a finding; the values are those of IST_FINDING_LIST. */
typedef enum ist_finding_kind {
#define X(name, value, text) name = value,
    IST_FINDING_LIST(X)
#undef X
} ist_finding_kind;

/** Bit of a detector in ist_explore_desc.detectors_off. */
#define IST_DETECTOR(kind) (UINT32_C(1) << (kind))

/** One deviation of a schedule: at choice point `at`, counted from 0, alternative `pick`. */
typedef struct ist_choice {
    uint32_t at;   /**< choice point */
    uint32_t pick; /**< alternative, not 0 */
} ist_choice;

/** One side of a finding: who did what where. */
typedef struct ist_access {
    int32_t rank;    /**< rank in the world; -1: this side does not exist */
    int32_t block;   /**< block of the kernel; -1: host, stream or network */
    int32_t owner;   /**< whose memory; -1: none */
    uint32_t write;  /**< 1: it wrote */
    uint64_t offset; /**< of the range, in the owner's device memory */
    uint64_t bytes;  /**< of the range */
    uint64_t step;   /**< operation number in the schedule */
    char kernel[32]; /**< or "host", "stream", "network" */
    char call[24];   /**< device call, e.g. "row_copy" */
    char phase[48];  /**< ist_point() that the block passed last, or "" */
} ist_access;

/** One finding. */
typedef struct ist_finding {
    ist_finding_kind kind; /**< what it is */
    ist_status status;     /**< STATUS: the program's; else what ist_world_run() returns for it */
    ist_access first;      /**< the earlier access; DEADLOCK: the wait that began first */
    ist_access second;     /**< the later access, which was noticed */
    uint64_t expected;     /**< DEADLOCK: value that is waited for */
    uint64_t seen;         /**< DEADLOCK: value that is there */
    uint64_t since_ns;     /**< DEADLOCK: virtual time when the wait began */
    char missing[96];      /**< what would have ordered the two */
    char text[1536];       /**< for people: several lines; wait-for graph; how to replay */
} ist_finding;

/** Further ways; or-ed. */
typedef enum ist_explore_option {
    IST_EXPLORE_GO_ON = 1, /**< a finding does not end the world; the first one is kept */
    IST_EXPLORE_QUIET_HOSTS =
        2 /**< programs and queues take turns quietly: only kernels, the network
                                     and loads are explored */
} ist_explore_option;

/** What a watcher is told: an event of the log, or a point that is in no fault plan; and whose it is. */
typedef struct ist_watched {
    ist_sim_event event; /**< as in the log */
    uint64_t step;       /**< operation number in the schedule, as in ist_access */
    int32_t actor;       /**< rank whose block caused it; -1: a program, a queue or the network */
    int32_t block;       /**< of its kernel, or -1 */
    const char *name;   /**< KERNEL_BEGIN, KERNEL_END, POINT: whose name it is, or NULL when the log
                             keeps no names (ist_sim_desc.log_capacity); only during the call */
    const char *kernel; /**< of the block, or "" */
    const char *phase;  /**< ist_point() that the block passed last, or "" */
} ist_watched;

/** How to explore. Zero means default. */
typedef struct ist_explore_desc {
    uint32_t size;             /**< sizeof(ist_explore_desc) */
    ist_scheduler scheduler;   /**< who chooses; the seed is ist_world_desc.seed */
    uint32_t depth;            /**< PCT: d >= 1; 0: 3 */
    uint32_t steps;            /**< PCT: choice points that are expected, k; 0: 1000 */
    uint32_t detectors_off;    /**< IST_DETECTOR() bits; 0: all are on */
    uint32_t options;          /**< ist_explore_option */
    const ist_choice *choices; /**< REPLAY: [choice_count], `at` ascending */
    uint32_t choice_count;     /**< REPLAY */
    uint32_t reserved;         /**< zero */
    const char *replay; /**< what a report names to repeat it, e.g. a command line; the scheduler
                                   and seed are appended. NULL: those alone */
    /** Told of every event as it happens; changes nothing, calls nothing of the library. NULL: nobody */
    void (*watch)(void *context, const ist_watched *what);
    void *watch_context; /**< for `watch` */
} ist_explore_desc;

/** What one schedule did. The library fills it up to `size`; pointers are the caller's. */
typedef struct ist_explore_report {
    uint32_t size;              /**< in: sizeof(ist_explore_report) */
    uint32_t finding_count;     /**< findings */
    uint64_t digest;            /**< of all events: distinct digests are a measure of coverage */
    uint64_t choices_digest;    /**< of all choices */
    uint64_t wait_shape;        /**< of who waited for whom, in any order: another measure */
    uint64_t choice_points;     /**< choices with more than one alternative */
    uint64_t switches;          /**< of them, how often another actor went on */
    uint64_t steps;             /**< operations: device calls, deliveries, program calls */
    uint64_t device_op_count;   /**< device calls with a place among those of others: those that
                                     ist_world_result counts */
    uint64_t pct_bound_inverse; /**< PCT: a failure of that depth is found with probability at least
                                     1 / this: n * k^(d-1) of the run, saturating */
    uint32_t agents;            /**< n: programs, blocks, deliveries that were scheduled */
    uint32_t choice_count;      /**< deviations made, also when they do not fit */
    ist_choice *choices;        /**< in: NULL, or [choice_capacity] for the schedule */
    uint32_t choice_capacity;   /**< in */
    uint32_t cut;               /**< a search ended the run early: it was covered elsewhere */
    ist_finding finding;        /**< the first; kind NONE: none */
    uint64_t device_call_count; /**< all device calls that touch memory which others may touch, or
                                     order it: words, atomics, fences, rows (each target of a copy,
                                     each sum), puts, signals, counters, waits, halves of barriers */
} ist_explore_report;

/**
 * Name of a kind, e.g. "race".
 * @return static text; "?" outside the list
 */
IST_API_UNSTABLE const char *ist_finding_name(ist_finding_kind kind);

/**
 * Reads a scheduler's name: "fair", "random", "pct:3" (or "pct"), "replay".
 *
 * @param explore  out: scheduler and depth are set
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE
 */
IST_API_UNSTABLE ist_status ist_scheduler_parse(const char *text, ist_explore_desc *explore);

/**
 * Runs one schedule of a program in the simulator. ist_world_run() with the settings of `explore`.
 *
 * @param desc     as for ist_world_run(); the backend is the simulator; NULL: defaults
 * @param explore  NULL: random, all detectors
 * @param report   out, may be NULL; zero but for size and choices when nothing was explored
 * @return as ist_world_run(); a finding ends the world with IST_ERR_DEADLOCK (DEADLOCK, LIVELOCK),
 *         the program's status (STATUS), IST_ERR_MISMATCH (DISAGREE) or IST_ERR_DEVICE
 */
IST_API_UNSTABLE ist_status ist_explore_run(const ist_world_desc *desc, ist_rank_fn rank_main,
                                            void *arg, const ist_explore_desc *explore,
                                            ist_explore_report *report);

/** How to search all schedules. Zero means default. */
typedef struct ist_explore_all_desc {
    uint32_t size;            /**< sizeof(ist_explore_all_desc) */
    uint32_t brute_force;     /**< 1: without reduction, to check it */
    uint64_t run_count_max;   /**< give up after so many runs; 0: 10 million */
    ist_explore_desc explore; /**< detectors, options; the scheduler is ignored */
    /** Called after each complete execution; not 0 ends the search. NULL: goes on to the end, or to
     *  the first finding. */
    int (*each)(void *context, ist_status status, const ist_explore_report *report);
    void *context; /**< for `each` */
} ist_explore_all_desc;

/** What a search over all schedules did. */
typedef struct ist_explore_all_result {
    uint32_t size;       /**< in: sizeof(ist_explore_all_result) */
    uint32_t complete;   /**< 1: every schedule was covered */
    uint64_t executions; /**< distinct ones: no two differ only in the order of independent steps */
    uint64_t runs;       /**< runs, those cut short because they were covered included */
    uint64_t finding_count; /**< executions with a finding */
    ist_explore_report
        first;             /**< the first with a finding, or the last; its choices are not kept */
    uint32_t choice_count; /**< deviations of it, also when they do not fit */
    uint32_t choice_capacity; /**< in */
    ist_choice *choices;      /**< in: NULL, or [choice_capacity] */
} ist_explore_all_result;

/**
 * Searches all schedules of a small program: every order of dependent steps, every value of every
 * load. Programs and queues take turns quietly (IST_EXPLORE_QUIET_HOSTS), so blocks, network and
 * memory are covered completely, host programs in one order.
 *
 * @return IST_OK when no execution has a finding; the status of the first that has; argument errors;
 *         IST_ERR_USAGE when something but its schedule decides what the program does; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_explore_all(const ist_world_desc *desc, ist_rank_fn rank_main,
                                            void *arg, const ist_explore_all_desc *all,
                                            ist_explore_all_result *result);

/** Numbers of a scenario that a shrinker may lower: ranks, tokens, operations … */
#define IST_CASE_PARAMS_MAX 16u

/** A failing case: all that its run depends on. */
typedef struct ist_case {
    uint32_t size;                        /**< sizeof(ist_case) */
    uint32_t param_count;                 /**< numbers in use */
    char scenario[64];                    /**< name of the program */
    char names[IST_CASE_PARAMS_MAX][16];  /**< of the numbers */
    uint64_t params[IST_CASE_PARAMS_MAX]; /**< values */
    uint64_t least[IST_CASE_PARAMS_MAX];  /**< smallest values that make sense */
    uint64_t seed;                        /**< of the world */
    ist_scheduler scheduler;              /**< RANDOM, PCT or REPLAY */
    uint32_t depth;                       /**< PCT */
    uint32_t steps;                       /**< PCT */
    uint32_t choice_count;                /**< REPLAY */
    ist_choice *choices;                  /**< REPLAY: [choice_count]; of ist_case_open() */
    ist_fault_plan *faults;               /**< NULL: none; of ist_case_open() */
    ist_finding_kind kind;                /**< what it shows */
    ist_status status;                    /**< and with which status */
    uint64_t digest;                      /**< of the run */
    uint64_t device_op_count;             /**< of the run */
    uint32_t detectors_off;               /**< of the run, as in ist_explore_desc */
    uint32_t options;                     /**< of the run, as in ist_explore_desc */
} ist_case;

/**
 * Runs a case once: builds the world from its numbers, faults and schedule (ist_case_world() helps).
 *
 * @return the status of the world; IST_OK also for numbers that fit no program
 */
typedef ist_status (*ist_case_fn)(const ist_case *which, void *context, ist_explore_report *report);

/** Opens an empty case; close it with ist_case_close(). @return IST_OK; IST_ERR_NULL; IST_ERR_MEMORY */
IST_API_UNSTABLE IST_MUST_USE ist_status ist_case_open(ist_case **opened);

/** Frees a case with its choices and faults. NULL is allowed. */
IST_API_UNSTABLE void ist_case_close(ist_case *which);

/**
 * Runs a program as a case says: seed, faults, scheduler, choices, detectors, options.
 *
 * @param desc  rank count, cluster, deadline, and of sim->explore: detectors_off and options, or-ed to
 *              the case's, replay, watch; the rest is taken from the case
 * @return as ist_explore_run()
 */
IST_API_UNSTABLE ist_status ist_case_world(const ist_case *which, const ist_world_desc *desc,
                                           ist_rank_fn rank_main, void *arg,
                                           ist_explore_report *report);

/**
 * Writes a case as JSON: the replay file. Stable text, ending in a NUL.
 *
 * @param text      out: [capacity]; NULL with capacity 0 asks for `needed` alone
 * @param needed    out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE
 */
IST_API_UNSTABLE ist_status ist_case_print(const ist_case *which, char *text, size_t capacity,
                                           size_t *needed);

/**
 * Reads what ist_case_print() wrote.
 *
 * @param opened  out: close it with ist_case_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE naming the place; IST_ERR_MEMORY
 */
IST_API_UNSTABLE IST_MUST_USE ist_status ist_case_parse(const char *text, ist_case **opened);

/** What shrinking did. */
typedef struct ist_shrink_result {
    uint32_t size;           /**< in: sizeof(ist_shrink_result) */
    uint32_t choices_before; /**< deviations before */
    uint32_t choices_after;  /**< and after */
    uint32_t faults_before;  /**< faults before */
    uint32_t faults_after;   /**< and after */
    uint32_t reserved;       /**< zero */
    uint64_t ops_before;     /**< device operations before */
    uint64_t ops_after;      /**< and after */
    uint64_t runs;           /**< runs it took */
} ist_shrink_result;

/**
 * Makes a failing case smaller while the same failure stays (kind, and the status of STATUS): first
 * its numbers, then faults, then the schedule, which becomes a list of choices; until nothing goes.
 *
 * @param which    in: a case that fails; out: the smallest found, scheduler REPLAY
 * @param run      runs a case
 * @param run_max  at most so many runs; 0: 20000
 * @param result   out, may be NULL
 * @return IST_OK; IST_ERR_NULL; IST_ERR_ARGUMENT when the case does not fail; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_case_shrink(ist_case *which, ist_case_fn run, void *context,
                                            uint64_t run_max, ist_shrink_result *result);

IST_END_DECLS

#endif
