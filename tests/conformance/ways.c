/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an open communicator tells of every pair which way it takes, and the way is the one in use:
 * load and store inside a team, else GIN where there is GIN, with reasons. Method: all pairs of whole
 * and split communicators beside what ist_comm_query() says.
 */
#include "ist_test.h"

#include <cmocka.h>
#include <isthmus/unstable/topology.h>
#include <string.h>

#define RANKS 8u
#define TEXT_BYTES 4096u

static ist_way way_wanted(const ist_comm_info *info, uint32_t a, uint32_t b)
{
    if (a == b) {
        return IST_WAY_SELF;
    }
    if (a / info->lsa_size == b / info->lsa_size) {
        return IST_WAY_LSA;
    }
    return info->gin_supported != 0 ? IST_WAY_GIN : IST_WAY_HOST;
}

static ist_status expect_pair(ist_world *world, ist_comm *comm, const ist_comm_info *info,
                              uint32_t a, uint32_t b)
{
    ist_topology_pair pair = {.size = sizeof(pair)};
    EXPECT_OK(world, ist_comm_pair(comm, a, b, &pair));
    ist_way wanted = way_wanted(info, a, b);
    /* Where no path is known, the hosts have none either. */
    bool none = wanted == IST_WAY_HOST && pair.way == IST_WAY_NONE;
    EXPECT(world, pair.way == wanted || none);
    EXPECT(world, pair.reason != NULL && pair.reason[0] != '\0' && pair.override != NULL);
    EXPECT(world, (pair.missing == NULL) == (wanted == IST_WAY_SELF || wanted == IST_WAY_LSA));
    EXPECT(world, (pair.gin != IST_GIN_KIND_NONE) == (wanted == IST_WAY_GIN));
    return IST_OK;
}

static ist_status expect_refusals(ist_world *world, ist_comm *comm)
{
    char text[TEXT_BYTES];
    const ist_topology_policy policy = {.size = sizeof(policy)};
    ist_explain_desc desc = {.size = sizeof(desc), .operation = "ep.dance"};
    desc.rank_a = desc.rank_b = IST_RANK_NONE;
    EXPECT_STATUS(world, ist_comm_explain(comm, &desc, text, sizeof(text), NULL), IST_ERR_ARGUMENT);
    EXPECT_STATUS(world, ist_comm_explain(comm, NULL, text, 4, NULL), IST_ERR_SIZE);
    desc = (ist_explain_desc){.size = sizeof(desc), .rank_b = 1000};
    EXPECT_STATUS(world, ist_comm_explain(comm, &desc, text, sizeof(text), NULL), IST_ERR_RANGE);
    desc = (ist_explain_desc){.size = sizeof(desc), .policy = &policy};
    EXPECT_STATUS(world, ist_comm_explain(comm, &desc, text, sizeof(text), NULL), IST_ERR_ARGUMENT);
    return IST_OK;
}

static ist_status expect_texts(ist_world *world, ist_comm *comm)
{
    char text[TEXT_BYTES];
    size_t needed = 0;
    ist_explain_desc desc = {.size = sizeof(desc)};
    EXPECT_OK(world, ist_comm_explain(comm, NULL, text, sizeof(text), &needed));
    EXPECT(world, needed == strlen(text) + 1 && strstr(text, "load/store teams of") != NULL);
    EXPECT_OK(world, ist_comm_explain(comm, &desc, text, sizeof(text), NULL));
    EXPECT(world, strstr(text, "rank 0") != NULL && strstr(text, "override") != NULL);
    desc.rank_a = desc.rank_b = IST_RANK_NONE;
    desc.operation = "ep.dispatch";
    EXPECT_OK(world, ist_comm_explain(comm, &desc, text, sizeof(text), NULL));
    EXPECT(world, strstr(text, "ep.dispatch on") != NULL);
    return expect_refusals(world, comm);
}

static ist_status expect_comm(ist_world *world, ist_comm *comm)
{
    ist_comm_info info = {.size = sizeof(info)};
    ist_topology_pair pair = {.size = sizeof(pair)};
    EXPECT_OK(world, ist_comm_query(comm, &info));
    for (uint32_t a = 0; a < info.rank_count; ++a) {
        for (uint32_t b = 0; b < info.rank_count; ++b) {
            IST_TEST_PASS_ON(expect_pair(world, comm, &info, a, b));
        }
    }
    EXPECT_STATUS(world, ist_comm_pair(comm, 0, info.rank_count, &pair), IST_ERR_RANGE);
    return expect_texts(world, comm);
}

static ist_status ways_main(ist_world *world, void *arg)
{
    const ist_comm_desc desc = {.size = sizeof(desc), .lsa_size_max = *(const uint32_t *)arg};
    int32_t rank = (int32_t)ist_world_rank(world);
    ist_comm *comm = NULL, *half = NULL;
    EXPECT_OK(world, ist_comm_open(world, &desc, &comm));
    IST_TEST_PASS_ON(expect_comm(world, comm));
    EXPECT_OK(world, ist_comm_split(comm, rank % 2, -rank, &half));
    IST_TEST_PASS_ON(expect_comm(world, half));
    EXPECT_OK(world, ist_comm_close(half));
    EXPECT_OK(world, ist_comm_close(comm));
    return IST_OK;
}

static void every_pair_takes_the_way_that_is_told(void **state)
{
    (void)state;
    static const char *const clusters[] = {NULL, "2x4", "8x1", "1x8,nvlink=2", "2x4,nics=0"};
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); ++i) {
        for (uint32_t limit = 0; limit < 3 && ist_test_has_cluster(clusters[i]); ++limit) {
            assert_int_equal(ist_test_run(ist_test_ranks(RANKS), clusters[i], ways_main, &limit),
                             IST_OK);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_takes_the_way_that_is_told),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
