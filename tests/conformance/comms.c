/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: communicators form of the ranks that they name, in the order that they ask for, or fail on
 * all of them; teams are what their algebra says. Method: random splits against a sort over a
 * table that all ranks share; missing, late and disagreeing ranks.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <string.h>

#define RANKS 8u

/* What ranks tell each other through the program's own memory. */
typedef struct shared {
    ist_unique_id id;
    int32_t color[RANKS], key[RANKS];
} shared;

static ist_status meet(ist_comm *comm, ist_stream *stream)
{
    IST_TEST_PASS_ON(ist_comm_barrier(comm, stream));
    return ist_stream_sync(stream, 0);
}

static ist_status expect_shape(ist_world *world, ist_comm *comm, uint32_t rank, uint32_t count)
{
    ist_comm_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT_EQUAL(world, info.rank, rank);
    EXPECT_EQUAL(world, info.rank_count, count);
    EXPECT(world, info.lsa_size >= 1 && count % info.lsa_size == 0);
    EXPECT_EQUAL(world, info.lsa_rank, rank % info.lsa_size);
    EXPECT(world, info.sm_count >= 1 && info.deadline_ns >= 1000);
    EXPECT(world, (info.gin_supported != 0) == (info.gin_reason == NULL));
    return IST_OK;
}

/* In one team, in some, in as many as ranks. */
static void run_everywhere(ist_rank_fn rank_main, void *arg)
{
    static const char *const clusters[] = {NULL, "2x4", "8x1"};
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); ++i) {
        if (ist_test_has_cluster(clusters[i])) {
            assert_int_equal(ist_test_run(ist_test_ranks(RANKS), clusters[i], rank_main, arg),
                             IST_OK);
        }
    }
}

/* ---- the whole world, by id ------------------------------------------------------------------ */

static ist_status open_main(ist_world *world, void *arg)
{
    shared *all = arg;
    uint32_t rank = ist_world_rank(world), count = ist_world_rank_count(world);
    ist_comm *first = NULL, *second = NULL, *reversed = NULL, *half = NULL;
    ist_stream *stream = NULL;
    EXPECT_OK(world, ist_stream_open(world, &stream));
    EXPECT_OK(world, ist_comm_open(world, NULL, &first));
    EXPECT_OK(world, ist_comm_open(world, NULL, &second));
    IST_TEST_PASS_ON(expect_shape(world, first, rank, count));
    IST_TEST_PASS_ON(expect_shape(world, second, rank, count));
    if (rank == 0) {
        EXPECT_OK(world, ist_unique_id_create(world, &all->id));
    }
    EXPECT_OK(world, meet(first, stream));
    ist_comm_desc desc = {.size = sizeof(desc),
                          .id = &all->id,
                          .rank_count = count,
                          .rank = count - 1 - rank,
                          .deadline_ns = ist_test_time_ns(50000000)};
    EXPECT_OK(world, ist_comm_open(world, &desc, &reversed));
    IST_TEST_PASS_ON(expect_shape(world, reversed, count - 1 - rank, count));
    EXPECT_OK(world, meet(reversed, stream));
    if (rank == 1) {
        EXPECT_OK(world, ist_unique_id_create(world, &all->id));
    }
    EXPECT_OK(world, meet(second, stream));
    if (rank % 2 == 1) { /* some ranks of the world only */
        desc.rank_count = count / 2;
        desc.rank = rank / 2;
        EXPECT_OK(world, ist_comm_open(world, &desc, &half));
        IST_TEST_PASS_ON(expect_shape(world, half, rank / 2, count / 2));
        EXPECT_OK(world, meet(half, stream));
    }
    EXPECT_OK(world, meet(first, stream));
    EXPECT_OK(world, ist_comm_close(first));
    EXPECT_OK(world, ist_comm_close(half));
    EXPECT_OK(world, ist_comm_close(reversed));
    EXPECT_REFUSED(world, ist_comm_close(first), IST_ERR_OBJECT, "comm");
    EXPECT_OK(world, ist_comm_close(NULL));
    EXPECT_OK(world, meet(second, stream));
    EXPECT_OK(world, ist_comm_close(second));
    EXPECT_OK(world, ist_stream_close(stream));
    return IST_OK;
}

static void communicators_open_for_the_world_and_by_id(void **state)
{
    static shared all;
    (void)state;
    run_everywhere(open_main, &all);
}

/* ---- who does not come ----------------------------------------------------------------------- */

static ist_status expect_missing(ist_world *world, ist_comm_desc *desc, uint32_t missing)
{
    ist_comm *untouched = (ist_comm *)(void *)desc, *comm = untouched;
    ist_error error = {.size = sizeof(error)};
    uint64_t began = ist_world_clock_ns(world);
    EXPECT_STATUS(world, ist_comm_open(world, desc, &comm), IST_ERR_TIMEOUT);
    EXPECT(world, comm == untouched);
    EXPECT(world, ist_world_clock_ns(world) - began < desc->deadline_ns + 50000000);
    EXPECT_OK(world, ist_error_last(&error));
    EXPECT_EQUAL(world, error.peer, missing);
    EXPECT_EQUAL(world, error.rank, ist_world_rank(world));
    return IST_OK;
}

static ist_status missing_main(ist_world *world, void *arg)
{
    ist_comm_desc desc = {.size = sizeof(desc), .deadline_ns = 5000000};
    uint32_t missing = ist_world_rank_count(world) / 2;
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    (void)arg;
    if (ist_world_rank(world) == missing) {
        EXPECT_OK(world, ist_world_sleep(world, 200000000));
    } else {
        IST_TEST_PASS_ON(expect_missing(world, &desc, missing));
        EXPECT_OK(world, ist_world_sleep(world, 200000000));
    }
    /* All come now: the failure before is forgotten. */
    desc.deadline_ns = 150000000;
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm));
    EXPECT_OK(world, ist_stream_open(world, &stream));
    EXPECT_OK(world, meet(comm, stream));
    EXPECT_OK(world, ist_stream_close(stream));
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static void a_missing_rank_fails_the_others_in_time_and_a_retry_works(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, missing_main, NULL), IST_OK);
}

/* The late rank is told as well, in its own time. */
static ist_status late_main(ist_world *world, void *arg)
{
    ist_comm_desc desc = {.size = sizeof(desc), .deadline_ns = 5000000};
    ist_comm *comm = NULL;
    (void)arg;
    if (ist_world_rank(world) == 0) {
        EXPECT_OK(world, ist_world_sleep(world, 100000000));
    }
    EXPECT_STATUS(world, ist_comm_open(world, &desc, &comm), IST_ERR_TIMEOUT);
    EXPECT(world, comm == NULL);
    return IST_OK;
}

static void a_late_rank_fails_too(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(3), NULL, late_main, NULL), IST_OK);
}

static ist_status disagree_main(ist_world *world, void *arg)
{
    /* A rank may hear of the others' refusal a deadline later, and closes what it has opened first. */
    const uint64_t deadline_ns = ist_test_time_ns(200000000);
    ist_comm_desc desc = {
        .size = sizeof(desc), .check = IST_CHECK_PEERS, .deadline_ns = deadline_ns};
    uint32_t rank = ist_world_rank(world);
    ist_comm *comm = NULL;
    (void)arg;
    desc.fault_tolerant = rank == 1;
    EXPECT_STATUS(world, ist_comm_open(world, &desc, &comm), IST_ERR_MISMATCH);
    desc.fault_tolerant = 0;
    desc.deadline_ns += rank + 1 == ist_world_rank_count(world);
    EXPECT_STATUS(world, ist_comm_open(world, &desc, &comm), IST_ERR_MISMATCH);
    desc.deadline_ns = deadline_ns;
    desc.lsa_size_max = rank == 0 ? 1 : 2;
    IST_TEST_PASS_ON(ist_test_true(world, ist_comm_open(world, &desc, &comm) < 0,
                                   "different team limits cannot work", __FILE__, __LINE__));
    EXPECT(world, comm == NULL);
    EXPECT_OK(world, ist_world_sleep(world, ist_test_time_ns(500000000)));
    desc.lsa_size_max = 2;
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm));
    ist_comm_info info = {.size = sizeof(info)};
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT(world, info.lsa_size <= 2);
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(4), NULL, disagree_main, NULL), IST_OK);
}

/* Two ranks in different collective calls: both are told, and the next call works. */
static ist_status different_calls_main(ist_world *world, void *arg)
{
    const ist_test_setup setup = {.no_dev = 1, .deadline_ns = ist_test_time_ns(5000000)};
    ist_test_rank test;
    ist_comm *split = NULL;
    ist_window *window = NULL;
    const ist_dev_comm *dev = NULL;
    void *mem = NULL;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    EXPECT_OK(world, ist_mem_alloc(world, 4096, IST_MEM_SYMMETRIC, &mem));
    for (uint32_t i = 0; i < 6; ++i) {
        uint32_t call = (i + (test.rank == i % 2 ? 1 : 0)) % 3;
        ist_status status = call == 0   ? ist_window_open(test.comm, mem, 4096, &window)
                            : call == 1 ? ist_dev_comm_open(test.comm, 64, 0, 0, 0, 0, &dev)
                                        : ist_comm_split(test.comm, 0, 0, &split);
        EXPECT(world, status == IST_ERR_MISMATCH || status == IST_ERR_TIMEOUT);
        EXPECT(world, window == NULL && dev == NULL && split == NULL);
        uint64_t now_ns = ist_world_clock_ns(world), at_ns = (i + 1) * ist_test_time_ns(150000000);
        EXPECT(world, now_ns < at_ns);
        EXPECT_OK(world, ist_world_sleep(world, at_ns - now_ns));
        EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
        EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    }
    EXPECT_OK(world, ist_window_open(test.comm, mem, 4096, &window));
    EXPECT_OK(world, ist_dev_comm_open(test.comm, 64, 0, 0, 0, 0, &dev));
    EXPECT_OK(world, ist_comm_split(test.comm, 0, 0, &split));
    EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
    EXPECT_OK(world, ist_stream_sync(test.stream, 0));
    EXPECT_OK(world, ist_comm_close(split));
    EXPECT_OK(world, ist_dev_comm_close(test.comm, dev));
    EXPECT_OK(world, ist_window_close(window));
    EXPECT_OK(world, ist_mem_free(world, mem));
    return ist_test_rank_close(&test, false);
}

static void ranks_in_different_calls_are_told(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, different_calls_main, NULL), IST_OK);
}

/* ---- split ----------------------------------------------------------------------------------- */

/* Place of `rank` among those of its color, ordered by key and rank. */
static void expect_place(const shared *all, uint32_t rank, uint32_t ranks, uint32_t *place,
                         uint32_t *count)
{
    *place = *count = 0;
    for (uint32_t other = 0; other < ranks; ++other) {
        if (all->color[other] != all->color[rank]) {
            continue;
        }
        ++*count;
        *place +=
            all->key[other] < all->key[rank] || (all->key[other] == all->key[rank] && other < rank);
    }
}

static ist_status split_once(ist_world *world, ist_comm *comm, ist_stream *stream, shared *all)
{
    uint32_t rank = ist_world_rank(world), count = 0, place = 0;
    ist_comm *split = (ist_comm *)(void *)all, *again = NULL;
    EXPECT_OK(world, ist_comm_split(comm, all->color[rank], all->key[rank], &split));
    if (all->color[rank] < 0) {
        EXPECT(world, split == NULL);
        return IST_OK;
    }
    expect_place(all, rank, ist_world_rank_count(world), &place, &count);
    IST_TEST_PASS_ON(expect_shape(world, split, place, count));
    EXPECT_OK(world, meet(split, stream));
    /* A split of a split, reversed. */
    EXPECT_OK(world, ist_comm_split(split, 0, -(int32_t)place, &again));
    IST_TEST_PASS_ON(expect_shape(world, again, count - 1 - place, count));
    EXPECT_OK(world, ist_comm_close(split));
    EXPECT_OK(world, meet(again, stream));
    EXPECT_OK(world, ist_comm_close(again));
    return IST_OK;
}

static ist_status split_main(ist_world *world, void *arg)
{
    shared *all = arg;
    uint32_t ranks = ist_world_rank_count(world);
    uint64_t random = ist_test_seed();
    ist_comm *comm = NULL, *none = NULL;
    ist_stream *stream = NULL;
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_OK(world, ist_stream_open(world, &stream));
    for (uint32_t round = 0; round < 12; ++round) {
        EXPECT_OK(world, meet(comm, stream));
        for (uint32_t i = 0; i < ranks; ++i) { /* all ranks write the same numbers */
            int32_t color = (int32_t)ist_test_random_below(&random, 1 + round % 5) - 1;
            int32_t key = (int32_t)ist_test_random_below(&random, 5) - 2;
            if (i == ist_world_rank(world)) {
                all->color[i] = round == 0 ? -1 : round == 1 ? INT32_MAX : color;
                all->key[i] = round % 4 == 3 ? (i % 2 != 0 ? INT32_MIN : INT32_MAX) : key;
            }
        }
        EXPECT_OK(world, meet(comm, stream));
        IST_TEST_PASS_ON(split_once(world, comm, stream, all));
    }
    /* One rank asks for what cannot be: all fail, and the next split works. */
    bool wrong = ist_world_rank(world) == ranks * 2 / 3;
    EXPECT_STATUS(world, ist_comm_split(comm, wrong ? -2 : 0, 0, &none),
                  wrong ? IST_ERR_ARGUMENT : IST_ERR_MISMATCH);
    EXPECT_STATUS(world, ist_comm_split(comm, 0, 0, wrong ? NULL : &none),
                  wrong ? IST_ERR_NULL : IST_ERR_MISMATCH);
    EXPECT(world, none == NULL);
    EXPECT_OK(world, ist_comm_split(comm, 0, 0, &none));
    EXPECT_OK(world, ist_comm_close(none));
    EXPECT_OK(world, ist_stream_close(stream));
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static void splits_follow_colors_and_keys(void **state)
{
    static shared all;
    (void)state;
    run_everywhere(split_main, &all);
}

/* ---- teams ----------------------------------------------------------------------------------- */

/* Members of a team by its definition. */
static bool is_member(ist_team team, uint32_t self, uint32_t rank, uint32_t *index)
{
    for (uint32_t i = 0; i < team.rank_count; ++i) {
        int64_t member = (int64_t)self + ((int64_t)i - team.rank) * team.stride;
        if (member == (int64_t)rank) {
            *index = i;
            return true;
        }
    }
    return false;
}

static void check_team(ist_team team, uint32_t self, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks + 3; ++rank) {
        uint32_t index = 0;
        if (is_member(team, self, rank, &index)) {
            assert_int_equal(ist_team_from_comm(team, self, rank), (int)index);
            assert_int_equal(ist_team_to_comm(team, self, index), rank);
        } else {
            assert_int_equal(ist_team_from_comm(team, self, rank), -1);
        }
    }
}

static void check_difference(ist_team parent, ist_team inner, uint32_t self, uint32_t ranks)
{
    uint32_t index = 0, unused = 0;
    for (uint32_t i = 0; i < parent.rank_count; ++i) {
        uint32_t rank = ist_team_to_comm(parent, self, i);
        assert_true(rank < ranks);
        if (!is_member(inner, self, rank, &unused)) {
            assert_int_equal(ist_team_difference(parent, inner, index), i);
            ++index;
        }
    }
    assert_int_equal(index, parent.rank_count - inner.rank_count);
}

static void teams_are_arithmetic_progressions(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 24; ++ranks) {
        for (uint32_t self = 0; self < ranks; ++self) {
            ist_team whole = {ranks, self, 1};
            check_team(whole, self, ranks);
            for (uint32_t count = 1; count <= ranks; ++count) {
                if (ranks % count != 0) {
                    continue;
                }
                ist_team inner = ist_team_inner(whole, count);
                ist_team outer = ist_team_outer(whole, count);
                check_team(inner, self, ranks);
                check_team(outer, self, ranks);
                check_difference(whole, inner, self, ranks);
                assert_int_equal(inner.rank_count * outer.rank_count, ranks);
                ist_team again = ist_team_inner(outer, outer.rank_count);
                check_team(again, self, ranks);
                check_difference(outer, ist_team_inner(outer, 1), self, ranks);
            }
        }
    }
}

static ist_status teams_main(ist_world *world, void *arg)
{
    ist_comm_info info = {.size = sizeof(info)};
    ist_comm *comm = NULL;
    ist_team whole, lsa, rail;
    (void)arg;
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    EXPECT_OK(world, ist_comm_query(comm, &info));
    EXPECT_OK(world, ist_comm_team_world(comm, &whole));
    EXPECT_OK(world, ist_comm_team_lsa(comm, &lsa));
    EXPECT_OK(world, ist_comm_team_rail(comm, &rail));
    EXPECT_REFUSED(world, ist_comm_team_world(comm, NULL), IST_ERR_NULL, "team");
    for (uint32_t rank = 0; rank < info.rank_count; ++rank) {
        bool same_team = rank / info.lsa_size == info.rank / info.lsa_size;
        bool same_place = rank % info.lsa_size == info.lsa_rank;
        EXPECT_EQUAL(world, ist_team_from_comm(whole, info.rank, rank), rank);
        EXPECT_EQUAL(world, ist_team_from_comm(lsa, info.rank, rank) >= 0, same_team);
        EXPECT_EQUAL(world, ist_team_from_comm(rail, info.rank, rank) >= 0, same_place);
    }
    EXPECT_EQUAL(world, lsa.rank, info.lsa_rank);
    EXPECT_EQUAL(world, rail.rank, info.rank / info.lsa_size);
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static void communicators_tell_their_teams(void **state)
{
    (void)state;
    run_everywhere(teams_main, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_open_for_the_world_and_by_id),
        cmocka_unit_test(a_missing_rank_fails_the_others_in_time_and_a_retry_works),
        cmocka_unit_test(a_late_rank_fails_too),
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(ranks_in_different_calls_are_told),
        cmocka_unit_test(splits_follow_colors_and_keys),
        cmocka_unit_test(teams_are_arithmetic_progressions),
        cmocka_unit_test(communicators_tell_their_teams),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
