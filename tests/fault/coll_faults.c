/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: native collectives under faults give every survivor an answer in bounded virtual time, which
 * names whom it waited for, and a result that is called good is right. Method: a rank killed before
 * each of its operations, stalled, cut off; calls that differ between ranks; each run twice for one
 * digest.
 */
#include "ist_test.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define RANKS 4u
#define COUNT 1000u
#define DEADLINE_NS 1000000ull
#define BOUND_NS 1000000000ull

typedef struct report {
    ist_status opened[RANKS], ended[RANKS];
    int32_t peer[RANKS];
    uint64_t waited_ns[RANKS];
    char object[RANKS][32];
    uint32_t rounds[RANKS]; /* that ended well, and were right */
    uint32_t wrong[RANKS];
    uint64_t pause_ns; /* of rank 0, before its first round */
    uint32_t differ; /* what is different on rank 1: 0 nothing, 1 count, 2 dtype, 3 kind, 4 root */
} report;

static ist_status enqueue(ist_world *world, ist_comm *comm, ist_stream *stream, uint32_t *words,
                          uint32_t differ)
{
    const uint32_t rank = ist_world_rank(world);
    const bool odd = rank == 1;
    const uint32_t next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
    if (odd && differ == 3) {
        return ist_broadcast(comm, stream, words, words + COUNT, COUNT, IST_U32, 0);
    }
    ist_status status =
        ist_all_reduce(comm, stream, words, words + COUNT, odd && differ == 1 ? COUNT - 1 : COUNT,
                       odd && differ == 2 ? IST_I32 : IST_U32, IST_REDUCE_SUM);
    status = status < 0 ? status
                        : ist_broadcast(comm, stream, words + COUNT, words + 2 * COUNT, COUNT,
                                        IST_U32, odd && differ == 4 ? 1 : 0);
    if (status < 0) {
        return status;
    }
    status = ist_coll_group_begin(world);
    status = status < 0 ? status : ist_send(comm, stream, words, COUNT, IST_U32, next);
    status = status < 0 ? status : ist_recv(comm, stream, words + 3 * COUNT, COUNT, IST_U32, last);
    ist_status ended = ist_coll_group_end(world);
    return status < 0 ? status : ended;
}

static ist_status look(ist_world *world, ist_stream *stream, const uint32_t *words, report *seen)
{
    static _Thread_local uint32_t host[4 * COUNT];
    const uint32_t rank = ist_world_rank(world), last = (rank + RANKS - 1) % RANKS;
    ist_status status = ist_copy_to_host(stream, host, words, sizeof(host));
    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < COUNT; ++i) {
        const uint32_t sum = RANKS * (RANKS - 1) / 2 + RANKS * i;
        seen->wrong[rank] +=
            host[COUNT + i] != sum || host[2 * COUNT + i] != sum || host[3 * COUNT + i] != last + i;
    }
    ++seen->rounds[rank];
    return IST_OK;
}

static ist_status rounds(ist_world *world, ist_comm *comm, ist_stream *stream, uint32_t *words,
                         report *seen)
{
    uint32_t mine[COUNT];
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < COUNT; ++i) {
        mine[i] = ist_world_rank(world) + i;
    }
    for (uint32_t round = 0; status >= 0 && round < 3; ++round) {
        status = ist_copy_to_device(stream, words, mine, sizeof(mine));
        status = status < 0 ? status : enqueue(world, comm, stream, words, seen->differ);
        status = status < 0 ? status : ist_stream_sync(stream, 0);
        status = status < 0 ? status : ist_coll_status(comm);
        status = status < 0 ? status : look(world, stream, words, seen);
    }
    return status;
}

static void note(ist_world *world, report *seen, ist_status status)
{
    ist_error error = {.size = sizeof(error)};
    const uint32_t rank = ist_world_rank(world);
    seen->ended[rank] = status;
    if (status < 0 && ist_error_last(&error) == IST_OK) {
        seen->peer[rank] = error.peer;
        seen->waited_ns[rank] = error.waited_ns;
        memcpy(seen->object[rank], error.object, sizeof(error.object));
    }
}

static ist_status program(ist_world *world, void *arg)
{
    report *seen = arg;
    const uint32_t rank = ist_world_rank(world);
    const ist_comm_desc desc = {.size = sizeof(desc), .deadline_ns = DEADLINE_NS};
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    void *memory = NULL;
    seen->opened[rank] = seen->ended[rank] = IST_ERR_KILLED;
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    ist_status status = ist_mem_alloc(world, 4 * COUNT * sizeof(uint32_t), IST_MEM_PLAIN, &memory);
    status = status < 0 ? status : ist_comm_open(world, &desc, &comm);
    status = status < 0 ? status : ist_coll_open(comm);
    seen->opened[rank] = status;
    if (status == IST_OK && rank == 0) {
        status = ist_world_sleep(world, seen->pause_ns);
    }
    if (status == IST_OK) {
        status = rounds(world, comm, stream, memory, seen);
        note(world, seen, status);
    }
    EXPECT_OK(world, ist_stream_close(stream));
    EXPECT_OK(world, ist_comm_close(comm));
    EXPECT_OK(world, ist_mem_free(world, memory));
    return IST_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static ist_world_result run_once(const char *cluster, const ist_fault *fault, report *seen)
{
    ist_world_desc desc = ist_test_desc(RANKS, cluster);
    ist_world_result result = {.size = sizeof(result)};
    ist_fault_plan *plan = NULL;
    if (fault != NULL) {
        assert_int_equal(ist_fault_plan_open(&plan), IST_OK);
        assert_int_equal(ist_fault_plan_add(plan, fault), IST_OK);
    }
    desc.faults = plan;
    assert_int_equal(ist_test_run_desc(&desc, program, seen, &result), IST_OK);
    ist_fault_plan_close(plan);
    assert_true(result.virtual_ns < BOUND_NS);
    return result;
}

/* Twice, for one digest. */
static ist_world_result run(const char *cluster, const ist_fault *fault, report *seen)
{
    report first = *seen;
    ist_world_result once = run_once(cluster, fault, &first);
    ist_world_result again = run_once(cluster, fault, seen);
    assert_int_equal(once.digest, again.digest);
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        assert_int_equal(seen->wrong[rank], 0);
    }
    return again;
}

static ist_fault fault_of(ist_fault_kind kind, int32_t rank)
{
    return (ist_fault){
        .size = sizeof(ist_fault), .kind = kind, .rank = rank, .peer = IST_FAULT_ANY};
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void check_survivors(const report *seen, uint32_t dead)
{
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        if (rank == dead || seen->opened[rank] < 0) {
            continue;
        }
        const ist_status ended = seen->ended[rank];
        if (ended != IST_OK && ended != IST_ERR_TIMEOUT) {
            fail_msg("rank %u: %s", rank, ist_status_name(ended));
        }
        /* Whom it missed: the dead one, or one that has given up because of it. */
        if (ended == IST_ERR_TIMEOUT) {
            assert_true(seen->peer[rank] >= 0 && seen->peer[rank] != (int32_t)rank);
            assert_in_range(seen->waited_ns[rank], DEADLINE_NS, 2 * DEADLINE_NS);
        }
    }
}

static void kill_everywhere(const char *cluster, uint32_t dead)
{
    uint64_t op = 1;
    uint32_t struck = 1, in_calls = 0;
    for (; struck != 0 && op < 2000; ++op) {
        ist_fault fault = fault_of(IST_FAULT_KILL, (int32_t)dead);
        report seen = {0};
        fault.trigger = IST_FAULT_AT_OP;
        fault.at_op = op;
        struck = run(cluster, &fault, &seen).lost_count;
        check_survivors(&seen, struck != 0 ? dead : RANKS);
        in_calls += seen.ended[(dead + 1) % RANKS] == IST_ERR_TIMEOUT;
    }
    assert_true(op > 20 && op < 2000);
    assert_true(in_calls > 0);
}

static void a_death_at_every_operation(void **state)
{
    (void)state;
    kill_everywhere(NULL, 1);
    kill_everywhere("2x2", 2);
}

/* In the middle of a transfer: the bytes are on their way when it dies. */
static void a_death_while_bytes_travel(void **state)
{
    uint32_t timeouts = 0;
    (void)state;
    uint32_t struck = 1;
    for (uint64_t at_ns = 1000; struck != 0; at_ns += 1500) {
        ist_fault fault = fault_of(IST_FAULT_KILL, 3);
        report seen = {0};
        fault.trigger = IST_FAULT_AT_TIME;
        fault.at_ns = at_ns;
        struck = run("2x2", &fault, &seen).lost_count;
        check_survivors(&seen, struck != 0 ? 3 : RANKS);
        timeouts += seen.ended[0] == IST_ERR_TIMEOUT;
    }
    assert_true(timeouts > 0);
}

static void a_stalled_rank_is_named(void **state)
{
    (void)state;
    report seen = {.pause_ns = 10 * DEADLINE_NS};
    (void)run(NULL, NULL, &seen);
    for (uint32_t rank = 1; rank < RANKS; ++rank) {
        assert_int_equal(seen.ended[rank], IST_ERR_TIMEOUT);
        assert_int_equal(seen.peer[rank], 0);
        assert_int_equal(seen.waited_ns[rank], DEADLINE_NS);
    }
    assert_int_equal(seen.ended[0], IST_ERR_TIMEOUT); /* nobody is left for it */
    report late = {.pause_ns = DEADLINE_NS / 2};
    (void)run(NULL, NULL, &late);
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        assert_int_equal(late.ended[rank], IST_OK);
        assert_int_equal(late.rounds[rank], 3);
    }
}

static void a_dead_link_is_waited_for_and_named(void **state)
{
    (void)state;
    for (uint32_t whole = 0; whole < 2; ++whole) {
        ist_fault fault = fault_of(IST_FAULT_LINK_DOWN, 0);
        report seen = {.pause_ns = 200000};
        fault.peer = 1;
        fault.trigger = IST_FAULT_AT_TIME;
        fault.at_ns = 150000;
        fault.duration_ns = whole ? 0 : DEADLINE_NS / 2;
        (void)run(NULL, &fault, &seen);
        for (uint32_t rank = 0; rank < RANKS; ++rank) {
            assert_int_equal(seen.ended[rank], whole ? IST_ERR_TIMEOUT : IST_OK);
        }
        if (whole) { /* who cannot send says to whom */
            assert_int_equal(seen.peer[0], 1);
        }
    }
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

static void a_difference_is_told_on_every_rank(void **state)
{
    static const char *const objects[] = {"", "count", "dtype", "the kind of the collective",
                                          "root"};
    (void)state;
    for (uint32_t differ = 1; differ <= 4; ++differ) {
        report seen = {.differ = differ};
        (void)run(NULL, NULL, &seen);
        for (uint32_t rank = 0; rank < RANKS; ++rank) {
            assert_int_equal(seen.ended[rank], IST_ERR_MISMATCH);
            assert_string_equal(seen.object[rank], objects[differ]);
            assert_int_equal(seen.rounds[rank], 0);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_at_every_operation),
        cmocka_unit_test(a_death_while_bytes_travel),
        cmocka_unit_test(a_stalled_rank_is_named),
        cmocka_unit_test(a_dead_link_is_waited_for_and_named),
        cmocka_unit_test(a_difference_is_told_on_every_rank),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
