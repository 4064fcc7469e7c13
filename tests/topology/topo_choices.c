/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the way between two ranks is the one that capability and topology allow, the reason says
 * why, and teams are what the rule makes of any order of ranks.
 * Method: clusters and fixtures with known answers; team sizes against a count that tries every
 * size.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "topo_choice.h"
#include "topo_explain.h"
#include "topo_same.h"
#include "topo_show.h"

static uint64_t seed = 1;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static topo_choice chosen(const topo_graph *graph, const topo_policy *policy, uint32_t a,
                          uint32_t b)
{
    topo_choice choice;
    topo_choose(graph, policy, a, b, &choice);
    assert_non_null(choice.reason);
    assert_non_null(choice.override);
    return choice;
}

static void test_ways(void **state)
{
    (void)state;
    topo_policy policy = {0};
    topo_graph *graph = loaded("2x8");
    assert_int_equal(chosen(graph, &policy, 3, 3).way, TOPO_WAY_SELF);
    assert_int_equal(chosen(graph, &policy, 0, 7).way, TOPO_WAY_LSA);
    assert_null(chosen(graph, &policy, 0, 7).missing);
    topo_choice far = chosen(graph, &policy, 0, 8);
    assert_int_equal(far.way, TOPO_WAY_GIN);
    assert_int_equal(far.gin, TOPO_GIN_GDAKI);
    assert_int_equal(far.path.type, TOPO_PATH_NET);
    assert_non_null(far.missing);
    policy.gin_off = true;
    assert_int_equal(chosen(graph, &policy, 0, 8).way, TOPO_WAY_HOST);
    policy.gin_off = false;
    policy.lsa_max = 1;
    assert_int_equal(chosen(graph, &policy, 0, 1).way, TOPO_WAY_GIN);
    topo_graph_close(graph);
    graph = loaded("2x8,nics=0");
    policy.lsa_max = 0;
    assert_int_equal(chosen(graph, &policy, 0, 8).way, TOPO_WAY_NONE);
    topo_graph_close(graph);
}

/* Peer access over PCIe makes a team where it is asked for, up to the kind of path that is
 * named. */
static void test_peer_access(void **state)
{
    (void)state;
    topo_policy policy = {.pcie_max = TOPO_PATH_PHB};
    topo_graph *graph = loaded("(l40s:8 nic:2x100G sockets:2)");
    assert_int_equal(topo_policy_lsa(graph, &policy), 4);
    assert_int_equal(chosen(graph, &policy, 0, 3).way, TOPO_WAY_LSA);
    assert_int_equal(chosen(graph, &policy, 0, 4).way, TOPO_WAY_GIN);
    policy.pcie_max = TOPO_PATH_SYS;
    assert_int_equal(topo_policy_lsa(graph, &policy), 8);
    policy.pcie_max = TOPO_PATH_LOC;
    assert_int_equal(topo_policy_lsa(graph, &policy), 1);
    topo_graph_close(graph);
}

/* What NICs can do decides whether there is GIN, and the reason names it. */
static void test_nics(void **state)
{
    (void)state;
    const char *reason = NULL;
    topo_graph *graph = fixture("nccl_nics.xml");
    assert_int_equal(topo_nic_gin(graph, topo_nic(graph, 0), &reason), TOPO_GIN_GDAKI);
    assert_null(reason);
    assert_int_equal(topo_nic_gin(graph, topo_nic(graph, 2), &reason), TOPO_GIN_NONE);
    assert_non_null(strstr(reason, "RDMA"));
    assert_int_equal(topo_gpu_gin(graph, topo_gpu(graph, 2), &reason), TOPO_GIN_NONE);
    assert_non_null(strstr(reason, "GPU Direct RDMA"));
    topo_policy policy = {0};
    topo_choice choice = chosen(graph, &policy, 0, 2);
    assert_int_equal(choice.way, TOPO_WAY_HOST);
    assert_non_null(strstr(choice.reason, "GPU Direct RDMA"));
    topo_graph_close(graph);
    graph = loaded("(h200:2 nic:0)");
    assert_int_equal(topo_gpu_gin(graph, topo_gpu(graph, 0), &reason), TOPO_GIN_NONE);
    assert_non_null(strstr(reason, "no NIC"));
    topo_graph_close(graph);
}

/* Unequal runs: 8 and 6 make teams of 2, so ranks that NVLink joins are in different teams. */
static void test_unequal_runs(void **state)
{
    (void)state;
    uint32_t ranks[14];
    for (uint32_t i = 0; i < 14; i++) {
        ranks[i] = i;
    }
    topo_policy policy = {.ranks = ranks, .rank_count = 14};
    topo_graph *graph = loaded("2x8");
    assert_int_equal(topo_policy_lsa(graph, &policy), 2);
    topo_choice choice = chosen(graph, &policy, 0, 2);
    assert_int_equal(choice.way, TOPO_WAY_GIN);
    assert_non_null(strstr(choice.missing, "greatest common divisor"));
    assert_int_equal(chosen(graph, &policy, 0, 1).way, TOPO_WAY_LSA);
    topo_graph_close(graph);
}

/* The rule, as a plain search: the largest size that divides every run and the limit. */
static uint32_t oracle_size(const uint32_t *domains, uint32_t count, uint32_t limit)
{
    for (uint32_t size = count; size > 1; size--) {
        bool fits = limit == 0 || limit % size == 0;
        uint32_t run = 1;
        for (uint32_t i = 1; i <= count && fits; i++) {
            if (i == count || domains[i] != domains[i - 1]) {
                fits = run % size == 0;
                run = 0;
            }
            run++;
        }
        if (fits) {
            return size;
        }
    }
    return 1;
}

static void test_team_sizes(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    topo_graph *graph = loaded("6x(h200:4 nvlink:2 nic:4x100G)");
    topo_graph *wide = loaded("3x(gb200:4 nvl:12 nic:4x400G)");
    for (int round = 0; round < 4000; round++) {
        const topo_graph *of = draw(&state, 2) == 0 ? graph : wide;
        uint32_t ranks[24];
        uint32_t domains[24];
        uint32_t count = 0;
        uint32_t gpus = topo_gpu_count(of);
        uint32_t step = (uint32_t)(1 + draw(&state, 3));
        for (uint32_t i = (uint32_t)draw(&state, gpus); i < gpus && count < 24; i += step) {
            ranks[count] = i;
            domains[count++] = topo_node_at(of, topo_gpu(of, i))->domain;
            i -= draw(&state, 5) == 0 && i >= step ? step : 0; /* a GPU with two ranks */
        }
        uint32_t limit = (uint32_t)draw(&state, 5);
        uint32_t found = topo_lsa_size(of, ranks, count, limit, TOPO_PATH_NVL);
        uint32_t wanted = oracle_size(domains, count, limit);
        if (found != wanted) {
            fail_msg("round %d: LSA %u, not %u", round, found, wanted);
        }
    }
    topo_graph_close(graph);
    topo_graph_close(wide);
}

/* Runs are found greedily, so the oracle goes by runs, too. */
static uint32_t oracle_runs(const uint64_t *maps, uint32_t count, uint32_t *lengths)
{
    uint32_t runs = 0;
    for (uint32_t first = 0; first < count;) {
        uint32_t end = first + 1;
        for (bool all = true; end < count && all;) {
            for (uint32_t i = first; i < end && all; i++) {
                all = (maps[i] >> end & 1) != 0 && (maps[end] >> i & 1) != 0;
            }
            end += all;
        }
        lengths[runs++] = end - first;
        first = end;
    }
    return runs;
}

static uint32_t oracle_maps(const uint64_t *maps, uint32_t count, uint32_t limit)
{
    uint32_t lengths[24];
    uint32_t runs = oracle_runs(maps, count, lengths);
    for (uint32_t size = count; size > 1; size--) {
        bool fits = limit == 0 || limit % size == 0;
        for (uint32_t i = 0; i < runs && fits; i++) {
            fits = lengths[i] % size == 0;
        }
        if (fits) {
            return size;
        }
    }
    return 1;
}

/* What the machine maps holds against the graph; one direction is none. */
static void test_able_teams(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    topo_graph *graph = loaded("(h200:24 nvswitch)");
    for (int round = 0; round < 2000; round++) {
        uint64_t maps[24] = {0};
        uint32_t count = (uint32_t)(1 + draw(&state, 24));
        uint32_t block = (uint32_t)(1 + draw(&state, 8));
        for (uint32_t a = 0; a < count; a++) {
            for (uint32_t b = 0; b < count; b++) {
                bool there = a / block == b / block || draw(&state, 12) == 0;
                maps[a] |= there && draw(&state, 200) != 0 ? UINT64_C(1) << b : 0;
            }
        }
        const topo_able able = {.maps = maps};
        const topo_policy policy = {
            .rank_count = count, .lsa_max = (uint32_t)draw(&state, 5), .able = &able};
        uint32_t found = topo_policy_lsa(graph, &policy);
        uint32_t wanted = oracle_maps(maps, count, policy.lsa_max);
        if (found != wanted) {
            fail_msg("round %d: LSA %u, not %u", round, found, wanted);
        }
    }
    topo_graph_close(graph);
}

/* The driver's word, NCCL's word, and what is asked for, each with its reason. */
static void test_able_pcie(void **state)
{
    (void)state;
    const uint64_t maps[2] = {3, 3};
    topo_able able = {.maps = maps, .gin_known = true, .gin_reason = "no such network"};
    topo_policy policy = {.able = &able, .pcie_max = TOPO_PATH_SYS};
    topo_graph *graph = loaded("(l40s:2 nic:0)");
    assert_int_equal(chosen(graph, &policy, 0, 1).way, TOPO_WAY_LSA);
    assert_non_null(strstr(chosen(graph, &policy, 0, 1).reason, "maps memory over PCIe"));
    policy.pcie_max = TOPO_PATH_NVL;
    topo_choice choice = chosen(graph, &policy, 0, 1);
    assert_int_equal(choice.way, TOPO_WAY_HOST);
    assert_string_equal(choice.reason, "no such network");
    assert_non_null(strstr(choice.missing, "not asked for"));
    able.gin = TOPO_GIN_PROXY; /* a NIC that the graph does not know */
    choice = chosen(graph, &policy, 0, 1);
    assert_int_equal(choice.way, TOPO_WAY_GIN);
    assert_int_equal(choice.gin, TOPO_GIN_PROXY);
    policy.gin_off = true;
    assert_int_equal(chosen(graph, &policy, 0, 1).way, TOPO_WAY_HOST);
    topo_graph_close(graph);
}

static void test_able_nvlink(void **state)
{
    (void)state;
    uint64_t maps[2] = {3, 3};
    topo_able able = {
        .maps = maps, .gin_known = true, .gin = TOPO_GIN_PROXY, .gin_reason = "no such network"};
    const topo_policy policy = {.able = &able, .pcie_max = TOPO_PATH_SYS};
    topo_graph *graph = loaded("(h200:2 nic:2x400G)");
    assert_int_equal(chosen(graph, &policy, 0, 1).way, TOPO_WAY_LSA);
    maps[1] = 2; /* one way only */
    topo_choice choice = chosen(graph, &policy, 1, 0);
    assert_int_equal(choice.way, TOPO_WAY_GIN);
    assert_non_null(strstr(choice.missing, "the driver does not allow"));
    able.gin = TOPO_GIN_NONE; /* though the graph has RDMA NICs */
    choice = chosen(graph, &policy, 1, 0);
    assert_int_equal(choice.way, TOPO_WAY_HOST);
    assert_string_equal(choice.reason, "no such network");
    topo_graph_close(graph);
}

/* GPUs that share their nearest NICs share them evenly. */
static void test_affinity(void **state)
{
    (void)state;
    static const char *const lines[] = {"(h200:8 nic:8x400G)", "(h200:8 nic:4x400G)",
                                        "(h200:8 nic:1x400G)", "2x(a100:8 nic:2x200G sockets:2)"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        uint32_t users[64] = {0};
        topo_graph *graph = loaded(lines[i]);
        uint32_t gpus = topo_gpu_count(graph);
        uint32_t nics = topo_nic_count(graph);
        for (uint32_t gpu = 0; gpu < gpus; gpu++) {
            topo_path_type type = TOPO_PATH_NONE;
            uint32_t nearest[8];
            uint32_t count = topo_gpu_nics(graph, topo_gpu(graph, gpu), nearest, 8, &type);
            assert_int_equal(count, 1);
            assert_int_equal(type, TOPO_PATH_PIX);
            assert_int_equal(nearest[0], topo_gpu_nic(graph, topo_gpu(graph, gpu)));
            users[topo_node_at(graph, nearest[0])->index]++;
        }
        for (uint32_t nic = 0; nic < nics; nic++) {
            assert_int_equal(users[nic], gpus / nics);
        }
        topo_graph_close(graph);
    }
}

static void assert_columns(const char *text)
{
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > 80) {
            fail_msg("%zu columns: %.*s", length, (int)length, line);
        }
        line += length + (line[length] == '\n');
    }
}

static void test_words(void **state)
{
    (void)state;
    static const char *const sources[] = {"2x8",
                                          "8x(h200:8 nvswitch nic:8x400G) rails fat-tree:2:1",
                                          "(l40s:4 nic:2x100G)", "(h200:2 nic:0)"};
    static const char *const keys[] = {"path",    "way",    "numbers", "hops",
                                       "because", "better", "override"};
    topo_policy policy = {0};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        topo_text text = {0};
        topo_graph *graph = loaded(sources[i]);
        topo_explain_pair(graph, &policy, 0, topo_gpu_count(graph) - 1, &text);
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "\n  %s", keys[k]);
            assert_non_null(strstr(text.bytes, key));
        }
        topo_explain_comm(graph, &policy, &text);
        assert_true(topo_explain_operation(graph, &policy, "ep.dispatch", &text));
        assert_true(topo_explain_operation(graph, &policy, "barrier", &text));
        topo_show_text(graph, &text);
        assert_false(text.failed);
        assert_columns(text.bytes);
        topo_text_free(&text);
        assert_false(topo_explain_operation(graph, &policy, "nothing", &text));
        assert_non_null(strstr(text.bytes, "all-reduce"));
        topo_text_free(&text);
        topo_graph_close(graph);
    }
}

/* Ring all-reduce of two machines: NVLink carries less of the time than the two NICs that cross. */
static void test_loads(void **state)
{
    (void)state;
    topo_policy policy = {0};
    topo_graph *graph = loaded("2x4");
    uint32_t *loads = calloc(topo_link_count(graph), sizeof(*loads));
    assert_non_null(loads);
    assert_int_equal(topo_operation_loads(graph, &policy, "all-reduce", loads), IST_OK);
    uint32_t most = 0;
    uint32_t idle = 0;
    for (uint32_t i = 0; i < topo_link_count(graph); i++) {
        most = loads[i] > most ? loads[i] : most;
        idle += loads[i] == 0;
    }
    assert_int_equal(most, 1000);
    assert_true(idle > 0);
    free(loads);
    topo_graph_close(graph);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    printf("seed=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),        cmocka_unit_test(test_peer_access),
        cmocka_unit_test(test_nics),        cmocka_unit_test(test_unequal_runs),
        cmocka_unit_test(test_team_sizes),  cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_able_teams),  cmocka_unit_test(test_able_pcie),
        cmocka_unit_test(test_able_nvlink), cmocka_unit_test(test_words),
        cmocka_unit_test(test_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
