/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of worlds share: running a world with one function a rank, expectations that a rank
 * can make without leaving its fiber or thread, and the usual objects of a rank. Public headers
 * only, so that the tests run on every backend.
 *
 * cmocka's assertions jump, which a rank's program must not do. Inside a rank EXPECT… returns from
 * the rank function instead and counts; the test then asserts with IST_TEST_RUN…().
 */
#ifndef IST_TEST_H
#define IST_TEST_H

#include <isthmus/device.h>
#include <isthmus/isthmus.h>
#include <isthmus/unstable/sim.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deadline of waits in test worlds; long in device time, and never waited for in a good run. */
#define IST_TEST_DEADLINE_NS 1000000000ull

/* ---- the program ----------------------------------------------------------------------------- */

/* Reads `--seed N` or IST_TEST_SEED, and IST_TEST_BACKEND; prints the seed; keeps the log quiet
   unless IST_TEST_LOG is set. Call first in main. */
void ist_test_init(int argc, char **argv);
uint64_t ist_test_seed(void);
/* The number behind the last `name` of the command line, or `otherwise`. */
uint32_t ist_test_option(int argc, char **argv, const char *name, uint32_t otherwise);
const char *ist_test_backend(void);
/* Whether the simulator's own settings (faults, virtual time) may be used. */
bool ist_test_on_simulator(void);

/* A fault of `rank` at the pass of that number at a point (`ist_point`); peer: any. */
ist_fault ist_test_fault_at(ist_fault_kind kind, int32_t rank, const char *point, uint64_t pass);

/* The next number of a generator that belongs to the caller; any start is good. */
uint64_t ist_test_random(uint64_t *state);
/* 0 … bound-1 */
uint32_t ist_test_random_below(uint64_t *state, uint32_t bound);

/* ---- worlds ---------------------------------------------------------------------------------- */

/*
 * How many ranks a test gets that wants `wanted` and whose point is not the number: all of them on
 * the simulator, elsewhere as many as there are devices; no more than IST_TEST_RANKS, if that is set;
 * never less than two of two. Ask before the world is run: it runs an empty one to find out.
 */
uint32_t ist_test_ranks(uint32_t wanted);
/* The ranks of a bit pattern that was made for `wanted` ranks, among `ranks`: not none, not all. */
uint32_t ist_test_fold(uint32_t pattern, uint32_t ranks);
/* Whether a run on this cluster differs from one on another: elsewhere than on the simulator the
   machine decides where ranks are, and only NULL and clusters of one node are run. */
bool ist_test_has_cluster(const char *cluster);
/* A time of the simulator, where hosts are exact, as one that holds for real hosts, which are late by
   milliseconds. */
uint64_t ist_test_time_ns(uint64_t simulated_ns);
/** Deadline of worlds of tests. On GPUs, where opening a communicator may take a second, it is longer. */
uint64_t ist_test_deadline_ns(void);

/* A description with backend, seed and deadline set. cluster NULL: one node that fits. */
ist_world_desc ist_test_desc(uint32_t rank_count, const char *cluster);
/* Runs and reports; returns what ist_world_run() does, or IST_ERR_INTERNAL when an expectation
   failed on some rank. `result` may be NULL. */
ist_status ist_test_run_desc(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                             ist_world_result *result);
ist_status ist_test_run(uint32_t rank_count, const char *cluster, ist_rank_fn rank_main, void *arg);
/* Expectations that failed since the program began. */
unsigned ist_test_failures(void);

/* ---- expectations of a rank ------------------------------------------------------------------ */

/* All return IST_OK when it holds. A killed rank's calls fail by design: its IST_ERR_KILLED is
   passed on and not counted. */
ist_status ist_test_status(ist_world *world, ist_status status, ist_status expected,
                           const char *text, const char *file, int line);
ist_status ist_test_true(ist_world *world, bool holds, const char *text, const char *file,
                         int line);
ist_status ist_test_equal(ist_world *world, uint64_t observed, uint64_t expected, const char *text,
                          const char *file, int line);
/* The last error record names `object`. */
ist_status ist_test_named(ist_world *world, const char *object, const char *file, int line);

#define IST_TEST_PASS_ON(expression)                                                               \
    do {                                                                                           \
        ist_status ist_test_status_ = (expression);                                                \
        if (ist_test_status_ != IST_OK) {                                                          \
            return ist_test_status_;                                                               \
        }                                                                                          \
    } while (0)

#define EXPECT_OK(world, call)                                                                     \
    IST_TEST_PASS_ON(ist_test_status((world), (call), IST_OK, #call, __FILE__, __LINE__))
#define EXPECT_STATUS(world, call, expected)                                                       \
    IST_TEST_PASS_ON(ist_test_status((world), (call), (expected), #call, __FILE__, __LINE__))
#define EXPECT(world, condition)                                                                   \
    IST_TEST_PASS_ON(ist_test_true((world), (condition), #condition, __FILE__, __LINE__))
#define EXPECT_EQUAL(world, observed, expected)                                                    \
    IST_TEST_PASS_ON(ist_test_equal((world), (uint64_t)(observed), (uint64_t)(expected),           \
                                    #observed " == " #expected, __FILE__, __LINE__))
/* A refused call: the status, and the argument that the record names. */
#define EXPECT_REFUSED(world, call, expected, object)                                              \
    do {                                                                                           \
        EXPECT_STATUS(world, call, expected);                                                      \
        IST_TEST_PASS_ON(ist_test_named((world), (object), __FILE__, __LINE__));                   \
    } while (0)

/* ---- the usual objects of a rank ------------------------------------------------------------- */

typedef struct ist_test_setup {
    size_t window_bytes; /* 0: no window */
    size_t out_bytes;    /* 0: 4096; zeroed */
    uint64_t resource_bytes;
    uint32_t context_count, signal_count, counter_count, barrier_count;
    uint32_t fault_tolerant;
    uint32_t no_dev;      /* 1: no device communicator */
    uint64_t deadline_ns; /* of the communicator, 0: the world's */
} ist_test_setup;

typedef struct ist_test_rank {
    ist_world *world;
    uint32_t rank, rank_count;
    ist_comm *comm;
    ist_comm_info info;
    ist_stream *stream;
    uint8_t *memory; /* of the window, zeroed */
    ist_window *window;
    uint32_t window_index;
    const ist_dev_comm *dev;
    uint8_t *out; /* plain memory for results, zeroed */
    size_t out_bytes;
} ist_test_rank;

/* Opens all for the whole world; ends with a barrier, so that peers may be written to. */
ist_status ist_test_rank_open(ist_world *world, const ist_test_setup *setup, ist_test_rank *test);
/* Closes all that is open; a barrier first, unless `alone`. */
ist_status ist_test_rank_close(ist_test_rank *test, bool alone);
/* Launches, and waits for the stream. */
ist_status ist_test_launch(ist_test_rank *test, const ist_kernel *kernel, uint32_t block_count,
                           const void *args, size_t args_bytes);
/* Copies results of `out` to the host. */
ist_status ist_test_results(ist_test_rank *test, void *host, size_t bytes);

#endif
