/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the public interface keeps its contract: arguments are refused before anything is read,
 * structs are filled up to the caller's size, texts can be asked for their length, and a
 * communicator is compared with what its cluster predicts.
 * Method: calls with one wrong argument each; sizes of yesterday; a simulated world.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <isthmus/unstable/topology.h>
#include <isthmus/world.h>
#include <stdlib.h>
#include <string.h>

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

static ist_topology *opened(const char *source)
{
    ist_topology *topology = NULL;
    assert_int_equal(ist_topology_open(source, NULL, &topology), IST_OK);
    return topology;
}

static void test_arguments(void **state)
{
    (void)state;
    ist_topology *topology = NULL;
    ist_topology_desc desc = {.size = 4};
    assert_int_equal(ist_topology_open(NULL, NULL, &topology), IST_ERR_NULL);
    assert_int_equal(ist_topology_open("2x8", NULL, NULL), IST_ERR_NULL);
    assert_int_equal(ist_topology_open("2x8", &desc, &topology), IST_ERR_SIZE);
    desc = (ist_topology_desc){.size = sizeof(desc), .reserved = 1};
    assert_int_equal(ist_topology_open("2x8", &desc, &topology), IST_ERR_RESERVED);
    assert_int_equal(ist_topology_open("./not/there", NULL, &topology), IST_ERR_IO);
    assert_int_equal(ist_topology_parse("<a/>", 4, NULL, NULL, &topology), IST_ERR_PARSE);
    assert_null(topology);
    ist_topology_close(NULL);
    topology = opened("2x4");
    ist_topology_info info = {.size = 4};
    assert_int_equal(ist_topology_query(topology, &info), IST_ERR_SIZE);
    assert_int_equal(ist_topology_query(topology, NULL), IST_ERR_NULL);
    assert_int_equal(ist_topology_query(NULL, &info), IST_ERR_NULL);
    ist_topology_pair pair = {.size = sizeof(pair)};
    assert_int_equal(ist_topology_choose(topology, NULL, 0, 8, &pair), IST_ERR_RANGE);
    ist_topology_policy policy = {.size = sizeof(policy), .rank_count = 9};
    assert_int_equal(ist_topology_choose(topology, &policy, 0, 1, &pair), IST_ERR_RANGE);
    uint32_t ranks[2] = {0, 8};
    policy = (ist_topology_policy){.size = sizeof(policy), .ranks = ranks, .rank_count = 2};
    assert_int_equal(ist_topology_choose(topology, &policy, 0, 1, &pair), IST_ERR_RANGE);
    policy = (ist_topology_policy){.size = sizeof(policy), .peer_access = (ist_path)77};
    assert_int_equal(ist_topology_choose(topology, &policy, 0, 1, &pair), IST_ERR_RANGE);
    char text[64];
    assert_int_equal(ist_topology_print(topology, (ist_topology_format)9, NULL, text, 64, NULL),
                     IST_ERR_ARGUMENT);
    assert_int_equal(ist_topology_print(topology, IST_TOPOLOGY_TEXT, "put", text, 64, NULL),
                     IST_ERR_ARGUMENT);
    assert_int_equal(ist_topology_print(topology, IST_TOPOLOGY_SVG, "nothing", text, 64, NULL),
                     IST_ERR_ARGUMENT);
    assert_int_equal(ist_topology_print(topology, IST_TOPOLOGY_TEXT, NULL, NULL, 64, NULL),
                     IST_ERR_NULL);
    assert_int_equal(ist_topology_print(topology, IST_TOPOLOGY_TEXT, NULL, text, 4, NULL),
                     IST_ERR_SIZE);
    ist_explain_desc explain = {.size = sizeof(explain), .rank_a = 0, .rank_b = IST_RANK_NONE};
    assert_int_equal(ist_topology_explain(topology, &explain, text, 64, NULL), IST_ERR_RANGE);
    explain = (ist_explain_desc){.size = sizeof(explain),
                                 .rank_a = IST_RANK_NONE,
                                 .rank_b = IST_RANK_NONE,
                                 .operation = "nothing"};
    assert_int_equal(ist_topology_explain(topology, &explain, text, 64, NULL), IST_ERR_ARGUMENT);
    const char *what = NULL;
    const char *why = NULL;
    assert_int_equal(ist_topology_missing(topology, 99, &what, &why), IST_ERR_RANGE);
    assert_string_equal(ist_path_name(IST_PATH_PHB), "PHB");
    assert_string_equal(ist_path_name((ist_path)55), "?");
    ist_topology_close(topology);
}

static void test_answers(void **state)
{
    (void)state;
    ist_topology *topology = opened("2x4");
    ist_topology_info info = {.size = sizeof(info)};
    assert_int_equal(ist_topology_check(topology), IST_OK);
    assert_int_equal(ist_topology_query(topology, &info), IST_OK);
    assert_int_equal(info.machine_count, 2);
    assert_int_equal(info.gpu_count, 8);
    assert_int_equal(info.lsa_size, 4);
    /* A program that knows fewer fields gets those. */
    struct {
        uint32_t size, machine_count, gpu_count, behind;
    } old = {12, 0, 0, 77};
    assert_int_equal(ist_topology_query(topology, (ist_topology_info *)(void *)&old), IST_OK);
    assert_int_equal(old.gpu_count, 8);
    assert_int_equal(old.behind, 77);
    ist_topology_pair pair = {.size = sizeof(pair)};
    assert_int_equal(ist_topology_choose(topology, NULL, 0, 3, &pair), IST_OK);
    assert_int_equal(pair.way, IST_WAY_LSA);
    assert_int_equal(pair.path, IST_PATH_NVL);
    assert_null(pair.missing);
    /* Ranks on GPUs of both machines by turns: no two neighbours in a domain. */
    uint32_t ranks[4] = {0, 4, 1, 5};
    ist_topology_policy policy = {.size = sizeof(policy), .ranks = ranks, .rank_count = 4};
    assert_int_equal(ist_topology_choose(topology, &policy, 0, 2, &pair), IST_OK);
    assert_int_equal(pair.way, IST_WAY_GIN);
    assert_non_null(pair.missing);
    for (int format = IST_TOPOLOGY_TEXT; format <= IST_TOPOLOGY_HEAT; format++) {
        size_t needed = 0;
        assert_int_equal(
            ist_topology_print(topology, (ist_topology_format)format, NULL, NULL, 0, &needed),
            IST_OK);
        char *text = malloc(needed);
        assert_non_null(text);
        assert_int_equal(
            ist_topology_print(topology, (ist_topology_format)format, NULL, text, needed, NULL),
            IST_OK);
        assert_int_equal(strlen(text) + 1, needed);
        free(text);
    }
    uint32_t differences = 99;
    size_t needed = 0;
    assert_int_equal(ist_topology_diff(topology, topology, &differences, NULL, 0, &needed), IST_OK);
    assert_int_equal(differences, 0);
    assert_int_equal(needed, 1);
    ist_topology_close(topology);
}

/* ------------------------------------------------------------------------------------ comparing */

typedef struct comparing {
    const char *cluster;
    uint32_t lsa_max;
    ist_topology_comparison found;
} comparing;

static ist_status rank_main(ist_world *world, void *arg)
{
    comparing *self = arg;
    ist_comm *comm = NULL;
    ist_topology *topology = NULL;
    ist_comm_desc desc = {.size = sizeof(desc), .lsa_size_max = self->lsa_max};
    ist_topology_policy policy = {.size = sizeof(policy), .lsa_size_max = self->lsa_max};
    ist_status status = ist_comm_open(world, &desc, &comm);
    if (status == IST_OK && ist_world_rank(world) == 0) {
        status = ist_topology_open(self->cluster, NULL, &topology);
        if (status == IST_OK) {
            status = ist_topology_compare(topology, &policy, comm, &self->found);
        }
        ist_topology_close(topology);
    }
    ist_status closed = ist_comm_close(comm);
    return status != IST_OK ? status : closed;
}

static void test_compare(void **state)
{
    (void)state;
    static const struct {
        const char *world, *topology;
        uint32_t lsa_max, differences;
    } cases[] = {{"2x4", "2x4", 0, 0},
                 {"2x4,nvlink=2", "2x4,nvlink=2", 0, 0},
                 {"2x4", "2x4", 2, 0},
                 {"2x4,nics=0", "2x4,nics=0", 0, 0},
                 {"1x8", "(h200:8 nvswitch nic:8x400G)", 0, 0},
                 {"2x4", "2x(h200:4 nvlink:2 nic:4x400G)", 0, 1},
                 {"2x4", "2x(h200:4 nvlink:2 nic:0)", 0, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        comparing self = {.cluster = cases[i].topology, .lsa_max = cases[i].lsa_max};
        self.found.size = sizeof(self.found);
        ist_world_desc desc = {
            .size = sizeof(desc), .rank_count = 8, .backend = "sim", .cluster = cases[i].world};
        assert_int_equal(ist_world_run(&desc, rank_main, &self, NULL), IST_OK);
        if (self.found.difference_count != cases[i].differences) {
            fail_msg("%s and %s: %u differences: LSA %u, predicted %u; GIN %u, predicted %u",
                     cases[i].world, cases[i].topology, self.found.difference_count,
                     self.found.lsa_size_found, self.found.lsa_size_predicted, self.found.gin_found,
                     self.found.gin_predicted);
        }
    }
}

int main(void)
{
    ist_log_sink_set(quiet, NULL, IST_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
