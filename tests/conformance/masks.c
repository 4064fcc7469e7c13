/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that does not come is masked and named, survivors agree on one mask and generation,
 * a late rank learns that it is out and comes back. Method: ranks that stay away by sleeping, masks
 * that disagree by update; what survivors say is compared after the run.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <string.h>

#define RANKS 6u
/* Of the communicator; and for so long a rank stays away: longer than all waits together. */
#define DEADLINE_NS ist_test_time_ns(4000000)
#define AWAY_NS ist_test_time_ns(200000000)

static const char *const clusters[] = {NULL, "2x3", "3x2", "6x1"};

/* What a rank saw, for comparison by the test. */
typedef struct view {
    ist_status status;
    uint64_t generation;
    uint64_t word;
} view;

typedef struct scene {
    uint32_t away;    /* bits of ranks that stay away the first time */
    uint32_t quarrel; /* bits of ranks that others drop by update */
    view agreed[RANKS], cleaned[RANKS];
} scene;

static uint32_t ranks = RANKS; /* of the worlds here; RANKS on the simulator */

static ist_status open_masked(ist_world *world, ist_test_rank *test)
{
    const ist_test_setup setup = {.fault_tolerant = 1, .no_dev = 1, .deadline_ns = DEADLINE_NS};
    return ist_test_rank_open(world, &setup, test);
}

static uint64_t all_ranks(void)
{
    return (1u << ranks) - 1u;
}

/* Ranks that come together from different waits meet at a point of time. */
static ist_status sleep_until(ist_world *world, uint64_t at_ns)
{
    uint64_t now_ns = ist_world_clock_ns(world);
    EXPECT_OK(world, ist_world_sleep(world, at_ns > now_ns ? at_ns - now_ns : 0));
    return IST_OK;
}

static bool has(uint64_t word, uint32_t rank)
{
    return ((word >> rank) & 1u) != 0;
}

static ist_status look(ist_test_rank *test, view *seen)
{
    ist_mask mask = {.size = sizeof(mask), .words = &seen->word, .word_count = 1};
    EXPECT_OK(test->world, ist_comm_mask_query(test->comm, &mask));
    EXPECT_EQUAL(test->world, mask.rank_count, test->rank_count);
    seen->generation = mask.generation;
    return IST_OK;
}

static ist_status barrier(ist_test_rank *test)
{
    EXPECT_OK(test->world, ist_comm_barrier(test->comm, test->stream));
    EXPECT_OK(test->world, ist_stream_sync(test->stream, 0));
    return IST_OK;
}

/* The errors recorded are one for each rank of `lost`, each once. */
static ist_status expect_named(ist_test_rank *test, uint64_t lost, const char *operation)
{
    uint32_t count = 0, named = 0, index = 0;
    EXPECT_OK(test->world, ist_comm_error_get(test->comm, 0, &count, NULL));
    for (index = 0; index < count; ++index) {
        ist_error error = {.size = sizeof(error)};
        EXPECT_OK(test->world, ist_comm_error_get(test->comm, index, &count, &error));
        EXPECT_EQUAL(test->world, error.status, IST_ERR_TIMEOUT);
        EXPECT(test->world, error.peer >= 0 && has(lost, (uint32_t)error.peer));
        EXPECT(test->world, !has(named, (uint32_t)error.peer));
        EXPECT(test->world, strcmp(error.operation, operation) == 0);
        EXPECT(test->world, error.waited_ns >= 1000 && error.message[0] != '\0');
        named |= 1u << error.peer;
    }
    EXPECT_EQUAL(test->world, named, lost);
    EXPECT_OK(test->world, ist_comm_error_clear(test->comm));
    return IST_OK;
}

/* ---- barrier, agreement, re-admission -------------------------------------------------------- */

static ist_status away_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    view seen = {0};
    uint64_t all = all_ranks(), rest = all & ~(uint64_t)at->away;
    IST_TEST_PASS_ON(open_masked(world, &test));
    bool away = has(at->away, test.rank);
    IST_TEST_PASS_ON(look(&test, &seen));
    EXPECT_EQUAL(world, seen.generation, 1);
    EXPECT_EQUAL(world, seen.word, all);
    if (!away) {
        uint64_t began = ist_world_clock_ns(world);
        IST_TEST_PASS_ON(barrier(&test));
        EXPECT(world, ist_world_clock_ns(world) - began < AWAY_NS / 3);
        IST_TEST_PASS_ON(look(&test, &seen));
        EXPECT_EQUAL(world, seen.word, rest);
        EXPECT_EQUAL(world, seen.generation, 1);
        IST_TEST_PASS_ON(expect_named(&test, at->away, "barrier"));
        IST_TEST_PASS_ON(barrier(&test)); /* the masked are not waited for */
        at->agreed[test.rank].status = ist_comm_agree(test.comm, test.stream);
        IST_TEST_PASS_ON(look(&test, &at->agreed[test.rank]));
        IST_TEST_PASS_ON(barrier(&test));
        IST_TEST_PASS_ON(expect_named(&test, 0, "barrier"));
    } else {
        IST_TEST_PASS_ON(sleep_until(world, AWAY_NS));
        at->agreed[test.rank].status = ist_comm_agree(test.comm, test.stream);
    }
    IST_TEST_PASS_ON(sleep_until(world, 2 * AWAY_NS));
    at->cleaned[test.rank].status = ist_comm_clean(test.comm, test.stream);
    IST_TEST_PASS_ON(look(&test, &at->cleaned[test.rank]));
    EXPECT_OK(world, ist_comm_error_clear(test.comm));
    for (int i = 0; i < 3; ++i) {
        IST_TEST_PASS_ON(barrier(&test));
    }
    EXPECT_OK(world, ist_comm_agree(test.comm, test.stream));
    IST_TEST_PASS_ON(look(&test, &seen));
    EXPECT_EQUAL(world, seen.word, all);
    EXPECT(world, seen.generation > at->cleaned[test.rank].generation);
    IST_TEST_PASS_ON(expect_named(&test, 0, "barrier"));
    return ist_test_rank_close(&test, false);
}

static void run_away(uint32_t away, const char *cluster)
{
    scene at = {.away = away};
    uint32_t all = (uint32_t)all_ranks(), first = 0;
    assert_int_equal(ist_test_run(ranks, cluster, away_main, &at), IST_OK);
    while (has(away, first)) {
        ++first;
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        if (has(away, rank)) {
            assert_int_equal(at.agreed[rank].status, IST_ERR_EVICTED);
        } else {
            assert_int_equal(at.agreed[rank].status, IST_OK);
            assert_int_equal(at.agreed[rank].word, all & ~away);
            assert_int_equal(at.agreed[rank].generation, at.agreed[first].generation);
            assert_true(at.agreed[rank].generation > 1);
        }
        assert_int_equal(at.cleaned[rank].status, IST_OK);
        assert_int_equal(at.cleaned[rank].word, all);
        assert_int_equal(at.cleaned[rank].generation, at.cleaned[0].generation);
        assert_true(at.cleaned[rank].generation > at.agreed[first].generation);
    }
}

static void missing_ranks_are_masked_and_come_back(void **state)
{
    static const uint32_t patterns[] = {0x04, 0x01, 0x20, 0x12, 0x39, 0x1f};
    (void)state;
    for (size_t c = 0; c < sizeof(clusters) / sizeof(clusters[0]); ++c) {
        for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); ++i) {
            if (ist_test_has_cluster(clusters[c])) {
                run_away(ist_test_fold(patterns[i], ranks), clusters[c]);
            }
        }
    }
}

/* ---- masks that disagree --------------------------------------------------------------------- */

/* Each rank outside the quarrel drops one rank of it. */
static uint32_t victim_of(uint32_t quarrel, uint32_t rank)
{
    while (!has(quarrel, rank)) {
        rank = (rank + 1) % ranks;
    }
    return rank;
}

static uint64_t dropped_by_any(uint32_t quarrel)
{
    uint64_t dropped = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        dropped |= has(quarrel, rank) ? 0 : 1ull << victim_of(quarrel, rank);
    }
    return dropped;
}

static ist_status quarrel_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    IST_TEST_PASS_ON(open_masked(world, &test));
    uint64_t word = all_ranks();
    if (!has(at->quarrel, test.rank)) {
        word &= ~(1ull << victim_of(at->quarrel, test.rank));
        EXPECT_OK(world, ist_comm_mask_update(test.comm, &word, test.stream));
    }
    at->agreed[test.rank].status = ist_comm_agree(test.comm, test.stream);
    IST_TEST_PASS_ON(look(&test, &at->agreed[test.rank]));
    /* Whoever is out comes back with the others. */
    IST_TEST_PASS_ON(sleep_until(world, AWAY_NS));
    at->cleaned[test.rank].status = ist_comm_clean(test.comm, test.stream);
    IST_TEST_PASS_ON(look(&test, &at->cleaned[test.rank]));
    IST_TEST_PASS_ON(barrier(&test));
    return ist_test_rank_close(&test, false);
}

static void the_agreed_mask_is_what_all_survivors_hold(void **state)
{
    static const uint32_t quarrels[] = {0x20, 0x01, 0x08, 0x22};
    (void)state;
    for (size_t i = 0; i < 4 * sizeof(quarrels) / sizeof(quarrels[0]); ++i) {
        scene at = {.quarrel = ist_test_fold(quarrels[i / 4], ranks)};
        uint64_t generation = 0, word = 0;
        if (!ist_test_has_cluster(clusters[i % 4])) {
            continue;
        }
        assert_int_equal(ist_test_run(ranks, clusters[i % 4], quarrel_main, &at), IST_OK);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            if (at.agreed[rank].status == IST_OK) {
                generation = generation == 0 ? at.agreed[rank].generation : generation;
                word = word == 0 ? at.agreed[rank].word : word;
                assert_int_equal(at.agreed[rank].generation, generation);
                assert_int_equal(at.agreed[rank].word, word);
                assert_true(has(word, rank));
            } else {
                assert_int_equal(at.agreed[rank].status, IST_ERR_EVICTED);
            }
            assert_int_equal(at.cleaned[rank].status, IST_OK);
            assert_int_equal(at.cleaned[rank].generation, at.cleaned[0].generation);
        }
        assert_int_not_equal(word, 0);
        assert_int_equal(word & dropped_by_any(at.quarrel), 0);
    }
}

/* ---- one agreement after another --------------------------------------------------------------- */

/* Rank 0 comes late to the fourth, and without the last rank. Nothing is reset between them. */
static ist_status again_main(ist_world *world, void *arg)
{
    scene *at = arg;
    ist_test_rank test;
    IST_TEST_PASS_ON(open_masked(world, &test));
    uint64_t word = all_ranks() >> 1u;
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_OK(world, ist_comm_agree(test.comm, test.stream));
    }
    if (test.rank == 0) {
        EXPECT_OK(world, ist_world_sleep(world, DEADLINE_NS / 4u));
        EXPECT_OK(world, ist_comm_mask_update(test.comm, &word, test.stream));
    }
    at->agreed[test.rank].status = ist_comm_agree(test.comm, test.stream);
    IST_TEST_PASS_ON(look(&test, &at->agreed[test.rank]));
    uint64_t began = ist_world_clock_ns(world);
    IST_TEST_PASS_ON(barrier(&test));
    if (test.rank == ranks - 1u && ist_test_on_simulator()) { /* who is out does not take part */
        EXPECT(world, ist_world_clock_ns(world) - began < DEADLINE_NS / 16u);
    }
    IST_TEST_PASS_ON(sleep_until(world, AWAY_NS));
    at->cleaned[test.rank].status = ist_comm_clean(test.comm, test.stream);
    return ist_test_rank_close(&test, false);
}

static void an_agreement_takes_nothing_from_those_before(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(clusters) / sizeof(clusters[0]); ++c) {
        scene at = {0};
        if (!ist_test_has_cluster(clusters[c])) {
            continue;
        }
        assert_int_equal(ist_test_run(ranks, clusters[c], again_main, &at), IST_OK);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            bool last = rank == ranks - 1u;
            assert_int_equal(at.agreed[rank].status, last ? IST_ERR_EVICTED : IST_OK);
            assert_int_equal(at.cleaned[rank].status, IST_OK);
            assert_true(last || at.agreed[rank].word == all_ranks() >> 1u);
        }
    }
}

/* ---- agreements and cleans one after the other ----------------------------------------------- */

static ist_status often_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    view seen = {0};
    uint64_t generation = 1;
    (void)arg;
    IST_TEST_PASS_ON(open_masked(world, &test));
    for (uint32_t i = 0; i < 12; ++i) {
        if (i % 3 == 2) {
            EXPECT_OK(world, ist_comm_clean(test.comm, test.stream));
        } else {
            EXPECT_OK(world, ist_comm_agree(test.comm, test.stream));
        }
        IST_TEST_PASS_ON(look(&test, &seen));
        EXPECT(world, seen.generation > generation);
        EXPECT_EQUAL(world, seen.word, all_ranks());
        generation = seen.generation;
        for (uint32_t k = 0; k < i % 4; ++k) {
            EXPECT_OK(world, ist_comm_barrier(test.comm, test.stream));
        }
    }
    IST_TEST_PASS_ON(expect_named(&test, 0, ""));
    return ist_test_rank_close(&test, false);
}

static void agreements_and_cleans_follow_each_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); ++i) {
        if (ist_test_has_cluster(clusters[i])) {
            assert_int_equal(ist_test_run(ranks, clusters[i], often_main, NULL), IST_OK);
        }
    }
}

static ist_status incomplete_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    view seen = {0};
    const uint32_t gone = ranks / 2;
    (void)arg;
    IST_TEST_PASS_ON(open_masked(world, &test));
    if (test.rank == gone) {
        EXPECT_OK(world, ist_world_sleep(world, AWAY_NS));
        return ist_test_rank_close(&test, true);
    }
    EXPECT_STATUS(world, ist_comm_clean(test.comm, test.stream), IST_INCOMPLETE);
    IST_TEST_PASS_ON(look(&test, &seen));
    EXPECT_EQUAL(world, seen.word, all_ranks() & ~(1ull << gone));
    IST_TEST_PASS_ON(barrier(&test));
    return ist_test_rank_close(&test, true);
}

static void a_clean_without_some_ranks_is_incomplete(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); ++i) {
        if (ist_test_has_cluster(clusters[i])) {
            assert_int_equal(ist_test_run(ranks, clusters[i], incomplete_main, NULL), IST_OK);
        }
    }
}

/* ---- reading and updating -------------------------------------------------------------------- */

static ist_status expect_read(ist_test_rank *test, uint64_t word)
{
    int32_t active[RANKS + 1];
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, active, test->out, sizeof(active)));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQUAL(test->world, active[rank], has(word, rank));
    }
    EXPECT_EQUAL(test->world, active[ranks], 0);
    return IST_OK;
}

static ist_status read_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    ist_graph *graph = NULL;
    const uint64_t all = all_ranks();
    (void)arg;
    IST_TEST_PASS_ON(open_masked(world, &test));
    int32_t *out = (int32_t *)(void *)test.out;
    EXPECT_OK(world, ist_comm_mask_read(test.comm, out, test.stream));
    IST_TEST_PASS_ON(expect_read(&test, all));
    EXPECT_OK(world, ist_graph_begin(test.stream));
    EXPECT_OK(world, ist_comm_mask_read(test.comm, out, test.stream));
    EXPECT_OK(world, ist_graph_end(test.stream, &graph));
    for (uint32_t i = 0; i < ranks; ++i) { /* replays read the mask of their time */
        uint64_t word = (all & ~(1ull << i)) | 1ull << test.rank;
        EXPECT_OK(world, ist_comm_mask_update(test.comm, &word, test.stream));
        EXPECT_OK(world, ist_graph_launch(graph, test.stream));
        uint64_t expected = word;
        word = 0; /* captured by the call */
        IST_TEST_PASS_ON(expect_read(&test, expected));
        view seen = {0};
        IST_TEST_PASS_ON(look(&test, &seen));
        EXPECT_EQUAL(world, seen.word, expected);
        EXPECT_EQUAL(world, seen.generation, 1);
    }
    EXPECT_OK(world, ist_graph_close(graph));
    uint64_t word = all & ~(1ull << test.rank);
    EXPECT_REFUSED(world, ist_comm_mask_update(test.comm, &word, test.stream), IST_ERR_ARGUMENT,
                   "words");
    word = all | 1ull << ranks;
    EXPECT_REFUSED(world, ist_comm_mask_update(test.comm, &word, test.stream), IST_ERR_ARGUMENT,
                   "words");
    EXPECT_REFUSED(world, ist_comm_mask_update(test.comm, NULL, test.stream), IST_ERR_NULL,
                   "words");
    EXPECT_REFUSED(world, ist_comm_mask_read(test.comm, NULL, test.stream), IST_ERR_NULL, "out");
    EXPECT_REFUSED(world, ist_comm_mask_read(test.comm, (int32_t *)&word, test.stream),
                   IST_ERR_ARGUMENT, "out");
    EXPECT_OK(world, ist_comm_mask_update(test.comm, &all, test.stream));
    return ist_test_rank_close(&test, false);
}

static void the_mask_is_read_through_memory(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ranks, NULL, read_main, NULL), IST_OK);
    if (ist_test_has_cluster("2x3")) {
        assert_int_equal(ist_test_run(ranks, "2x3", read_main, NULL), IST_OK);
    }
}

static ist_status query_main(ist_world *world, void *arg)
{
    static const ist_test_setup plain = {.no_dev = 1};
    ist_test_rank test;
    uint64_t words[3] = {7, 7, 7};
    ist_mask mask = {.size = sizeof(mask), .words = words, .word_count = 3};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &plain, &test));
    EXPECT_REFUSED(world, ist_comm_mask_query(test.comm, &mask), IST_ERR_USAGE, "comm");
    EXPECT_REFUSED(world, ist_comm_agree(test.comm, test.stream), IST_ERR_USAGE, "comm");
    EXPECT_REFUSED(world, ist_comm_clean(test.comm, test.stream), IST_ERR_USAGE, "comm");
    EXPECT_REFUSED(world, ist_comm_mask_update(test.comm, words, test.stream), IST_ERR_USAGE,
                   "comm");
    EXPECT_REFUSED(world, ist_comm_mask_read(test.comm, (int32_t *)(void *)test.out, test.stream),
                   IST_ERR_USAGE, "comm");
    EXPECT_EQUAL(world, words[0], 7);
    IST_TEST_PASS_ON(ist_test_rank_close(&test, false));
    IST_TEST_PASS_ON(open_masked(world, &test));
    mask.word_count = 0;
    EXPECT_REFUSED(world, ist_comm_mask_query(test.comm, &mask), IST_ERR_SIZE, "mask.word_count");
    mask.word_count = 3;
    mask.reserved = 1;
    EXPECT_REFUSED(world, ist_comm_mask_query(test.comm, &mask), IST_ERR_RESERVED, "mask.reserved");
    mask.reserved = 0;
    mask.size = 4;
    EXPECT_REFUSED(world, ist_comm_mask_query(test.comm, &mask), IST_ERR_SIZE, "mask");
    mask.size = sizeof(mask);
    EXPECT_OK(world, ist_comm_mask_query(test.comm, &mask));
    EXPECT_EQUAL(world, words[0], all_ranks());
    EXPECT_EQUAL(world, words[1], 0);
    EXPECT_EQUAL(world, words[2], 0);
    return ist_test_rank_close(&test, false);
}

static void queries_check_their_struct(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ranks, NULL, query_main, NULL), IST_OK);
}

/* ---- more than a word of ranks --------------------------------------------------------------- */

static ist_status large_main(ist_world *world, void *arg)
{
    enum { MANY = 130 };
    ist_test_rank test;
    uint64_t words[3] = {0};
    ist_mask mask = {.size = sizeof(mask), .words = words, .word_count = 3};
    (void)arg;
    IST_TEST_PASS_ON(open_masked(world, &test));
    if (test.rank == 64 || test.rank == 129) {
        EXPECT_OK(world, ist_world_sleep(world, AWAY_NS));
        return ist_test_rank_close(&test, true);
    }
    IST_TEST_PASS_ON(barrier(&test));
    EXPECT_OK(world, ist_comm_agree(test.comm, test.stream));
    EXPECT_OK(world, ist_comm_mask_query(test.comm, &mask));
    for (uint32_t rank = 0; rank < MANY; ++rank) {
        EXPECT_EQUAL(world, ist_mask_test(words, rank), rank != 64 && rank != 129);
    }
    EXPECT_EQUAL(world, words[2] >> 2, 0);
    return ist_test_rank_close(&test, true);
}

static void masks_of_several_words(void **state)
{
    (void)state;
    if (ist_test_on_simulator()) { /* no machine has so many devices */
        assert_int_equal(ist_test_run(130, "1x130", large_main, NULL), IST_OK);
        assert_int_equal(ist_test_run(130, "65x2", large_main, NULL), IST_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_ranks_are_masked_and_come_back),
        cmocka_unit_test(the_agreed_mask_is_what_all_survivors_hold),
        cmocka_unit_test(an_agreement_takes_nothing_from_those_before),
        cmocka_unit_test(agreements_and_cleans_follow_each_other),
        cmocka_unit_test(a_clean_without_some_ranks_is_incomplete),
        cmocka_unit_test(the_mask_is_read_through_memory),
        cmocka_unit_test(queries_check_their_struct),
        cmocka_unit_test(masks_of_several_words),
    };
    ist_test_init(argc, argv);
    ranks = ist_test_ranks(RANKS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
