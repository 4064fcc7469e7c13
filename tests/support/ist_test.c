/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs worlds for tests, counts expectations that failed, and opens the usual objects of a rank.
 * See ist_test.h.
 */
#include "ist_test.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;
static const char *backend = "sim";
static atomic_uint failures;

/* ---- the program ----------------------------------------------------------------------------- */

static void log_drop(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

void ist_test_init(int argc, char **argv)
{
    const char *text = getenv("IST_TEST_SEED");
    for (int i = 1; i + 1 < argc; ++i) {
        text = strcmp(argv[i], "--seed") == 0 ? argv[i + 1] : text;
    }
    seed = text != NULL ? strtoull(text, NULL, 0) : seed;
    text = getenv("IST_TEST_BACKEND");
    backend = text != NULL && text[0] != '\0' ? text : backend;
    printf("# backend %s, repeat with --seed %" PRIu64 "\n", backend, seed);
    /* Ranks and their launcher write to the same pipe: nothing may wait in a buffer. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("IST_TEST_LOG") == NULL) {
        ist_log_sink_set(log_drop, NULL, IST_LOG_NONE);
    }
}

uint64_t ist_test_seed(void)
{
    return seed;
}

uint32_t ist_test_option(int argc, char **argv, const char *name, uint32_t otherwise)
{
    uint32_t value = otherwise;
    for (int i = 1; i + 1 < argc; ++i) {
        value = strcmp(argv[i], name) == 0 ? (uint32_t)strtoul(argv[i + 1], NULL, 0) : value;
    }
    return value;
}

const char *ist_test_backend(void)
{
    return backend;
}

bool ist_test_on_simulator(void)
{
    return strcmp(backend, "sim") == 0;
}

/* Splitmix64 (Steele, Lea, Flood, 2014). */
uint64_t ist_test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint32_t ist_test_random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(ist_test_random(state) % bound);
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static ist_status count_main(ist_world *world, void *arg)
{
    atomic_store((atomic_uint *)arg, ist_world_rank_count(world));
    return IST_OK;
}

/* Ranks of a world that takes as many as there are. */
static uint32_t ranks_there(uint32_t wanted)
{
    static uint32_t there;
    if (there == 0) {
        atomic_uint count = 0;
        ist_status status = ist_test_run(0, NULL, count_main, &count);
        there = status == IST_OK ? atomic_load(&count) : wanted;
        printf("# ranks: %u\n", there);
    }
    return there;
}

uint32_t ist_test_ranks(uint32_t wanted)
{
    const char *text = getenv("IST_TEST_RANKS");
    uint32_t most = wanted;
    if (text != NULL && text[0] != '\0') {
        most = (uint32_t)strtoul(text, NULL, 0);
    } else if (!ist_test_on_simulator() && wanted >= 2) {
        most = ranks_there(wanted);
    }
    most = most < 2 ? 2 : most;
    return most < wanted ? most : wanted;
}

uint32_t ist_test_fold(uint32_t pattern, uint32_t ranks)
{
    uint32_t all = (1u << ranks) - 1u;
    uint32_t folded = pattern & all;
    for (uint32_t rest = pattern >> ranks; rest != 0; rest >>= ranks) {
        folded |= rest & all;
    }
    return folded == all || folded == 0 ? 1u << (pattern & 1u ? 0 : ranks - 1u) : folded;
}

bool ist_test_has_cluster(const char *cluster)
{
    return ist_test_on_simulator() || cluster == NULL || strncmp(cluster, "1x", 2) == 0;
}

ist_fault ist_test_fault_at(ist_fault_kind kind, int32_t rank, const char *point, uint64_t pass)
{
    ist_fault fault = {.size = sizeof(fault),
                       .kind = kind,
                       .trigger = IST_FAULT_AT_POINT,
                       .rank = rank,
                       .peer = IST_FAULT_ANY,
                       .at_op = pass};
    (void)snprintf(fault.point, sizeof(fault.point), "%s", point);
    return fault;
}

uint64_t ist_test_time_ns(uint64_t simulated_ns)
{
    return ist_test_on_simulator() ? simulated_ns : simulated_ns * 5;
}

uint64_t ist_test_deadline_ns(void)
{
    return ist_test_time_ns(IST_TEST_DEADLINE_NS);
}

ist_world_desc ist_test_desc(uint32_t rank_count, const char *cluster)
{
    ist_world_desc desc = {.size = sizeof(desc),
                           .rank_count = rank_count,
                           .backend = backend,
                           .cluster = ist_test_on_simulator() ? cluster : NULL,
                           .seed = seed,
                           .deadline_ns = ist_test_deadline_ns()};
    return desc;
}

ist_status ist_test_run_desc(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                             ist_world_result *result)
{
    unsigned before = atomic_load(&failures);
    ist_world_result own = {.size = sizeof(own)};
    ist_world_result *filled = result != NULL ? result : &own;
    /* A world of one rank needs none of the other processes that a launcher may have started. */
    const char *launch = getenv("IST_LAUNCH");
    if (desc->rank_count == 1 && launch == NULL) {
        (void)setenv("IST_LAUNCH", "none", 1);
    }
    ist_status status = ist_world_run(desc, rank_main, arg, filled);
    if (launch == NULL) {
        (void)unsetenv("IST_LAUNCH");
    }
    if (atomic_load(&failures) != before) {
        return IST_ERR_INTERNAL;
    }
    if (status != IST_OK && result == NULL) {
        printf("# the world ended with %s on rank %d\n", ist_status_name(status),
               filled->failed_rank);
    }
    return status;
}

ist_status ist_test_run(uint32_t rank_count, const char *cluster, ist_rank_fn rank_main, void *arg)
{
    ist_world_desc desc = ist_test_desc(rank_count, cluster);
    return ist_test_run_desc(&desc, rank_main, arg, NULL);
}

unsigned ist_test_failures(void)
{
    return atomic_load(&failures);
}

/* ---- expectations ---------------------------------------------------------------------------- */

static void print_record(void)
{
    ist_error error = {.size = sizeof(error)};
    if (ist_error_last(&error) == IST_OK && error.status != IST_OK) {
        printf("#   last error: %s, %s of %s, rank %d, peer %d: %s\n",
               ist_status_name(error.status), error.object, error.operation, error.rank, error.peer,
               error.message);
    }
}

static ist_status fail(ist_world *world, const char *text, const char *file, int line)
{
    const char *name = strrchr(file, '/');
    atomic_fetch_add(&failures, 1);
    printf("# %s:%d: rank %u: %s\n", name != NULL ? name + 1 : file, line, ist_world_rank(world),
           text);
    return IST_ERR_INTERNAL;
}

ist_status ist_test_status(ist_world *world, ist_status status, ist_status expected,
                           const char *text, const char *file, int line)
{
    if (status == expected) {
        return IST_OK;
    }
    if (status == IST_ERR_KILLED) {
        return status;
    }
    char sentence[512];
    snprintf(sentence, sizeof(sentence), "%s is %s, expected %s", text, ist_status_name(status),
             ist_status_name(expected));
    ist_status failed = fail(world, sentence, file, line);
    print_record();
    return failed;
}

ist_status ist_test_true(ist_world *world, bool holds, const char *text, const char *file, int line)
{
    return holds ? IST_OK : fail(world, text, file, line);
}

ist_status ist_test_equal(ist_world *world, uint64_t observed, uint64_t expected, const char *text,
                          const char *file, int line)
{
    if (observed == expected) {
        return IST_OK;
    }
    char sentence[512];
    snprintf(sentence, sizeof(sentence), "%s: %" PRIu64 " (0x%" PRIx64 ") is not %" PRIu64, text,
             observed, observed, expected);
    return fail(world, sentence, file, line);
}

ist_status ist_test_named(ist_world *world, const char *object, const char *file, int line)
{
    ist_error error = {.size = sizeof(error)};
    ist_status status = ist_error_last(&error);
    if (status == IST_OK && strcmp(error.object, object) == 0 && error.message[0] != '\0') {
        return IST_OK;
    }
    char sentence[256];
    snprintf(sentence, sizeof(sentence), "the record names \"%s\", expected \"%s\"", error.object,
             object);
    ist_status failed = fail(world, sentence, file, line);
    print_record();
    return failed;
}

/* ---- the usual objects of a rank ------------------------------------------------------------- */

static ist_status open_memory(const ist_test_setup *setup, ist_test_rank *test)
{
    ist_world *world = test->world;
    void *memory = NULL;
    test->out_bytes = setup->out_bytes != 0 ? setup->out_bytes : 4096;
    EXPECT_OK(world, ist_mem_alloc(world, test->out_bytes, IST_MEM_HOST_VISIBLE, &memory));
    test->out = memory;
    EXPECT_OK(world, ist_fill(test->stream, test->out, 0, test->out_bytes));
    if (setup->window_bytes == 0) {
        return IST_OK;
    }
    EXPECT_OK(world, ist_mem_alloc(world, setup->window_bytes, IST_MEM_SYMMETRIC, &memory));
    test->memory = memory;
    EXPECT_OK(world, ist_fill(test->stream, test->memory, 0, setup->window_bytes));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_OK(world, ist_window_open(test->comm, test->memory, setup->window_bytes, &test->window));
    test->window_index = ist_window_index(test->window);
    return IST_OK;
}

ist_status ist_test_rank_open(ist_world *world, const ist_test_setup *setup, ist_test_rank *test)
{
    ist_comm_desc desc = {.size = sizeof(desc),
                          .fault_tolerant = setup->fault_tolerant,
                          .deadline_ns = setup->deadline_ns};
    memset(test, 0, sizeof(*test));
    test->world = world;
    test->rank = ist_world_rank(world);
    test->rank_count = ist_world_rank_count(world);
    test->info.size = sizeof(test->info);
    EXPECT_OK(world, ist_comm_open(world, &desc, &test->comm));
    EXPECT_OK(world, ist_comm_query(test->comm, &test->info));
    EXPECT_OK(world, ist_stream_open(world, &test->stream));
    IST_TEST_PASS_ON(open_memory(setup, test));
    if (setup->no_dev == 0) {
        EXPECT_OK(world, ist_dev_comm_open(test->comm, setup->resource_bytes, setup->context_count,
                                           setup->signal_count, setup->counter_count,
                                           setup->barrier_count, &test->dev));
    }
    EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    return IST_OK;
}

ist_status ist_test_rank_close(ist_test_rank *test, bool alone)
{
    ist_world *world = test->world;
    if (!alone) {
        EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
    }
    EXPECT_OK(world, ist_stream_close(test->stream));
    EXPECT_OK(world, ist_dev_comm_close(test->comm, test->dev));
    EXPECT_OK(world, ist_window_close(test->window));
    EXPECT_OK(world, ist_mem_free(world, test->memory));
    EXPECT_OK(world, ist_mem_free(world, test->out));
    EXPECT_OK(world, ist_comm_close(test->comm));
    return IST_OK;
}

ist_status ist_test_launch(ist_test_rank *test, const ist_kernel *kernel, uint32_t block_count,
                           const void *args, size_t args_bytes)
{
    ist_world *world = test->world;
    EXPECT_OK(world, ist_launch(test->stream, kernel, block_count, args, args_bytes));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    return IST_OK;
}

ist_status ist_test_results(ist_test_rank *test, void *host, size_t bytes)
{
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, host, test->out, bytes));
    return IST_OK;
}
