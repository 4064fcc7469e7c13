/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the choice that a backend makes when a communicator opens is that of the topology, pair by
 * pair; where the two differ it is said, by a warning that names both, and nothing else happens.
 * Method: random cluster lines and ranks, the choice for all against the graph's for each pair; odd
 * machines from files (NVLink across nodes, peer access over PCIe, shared NICs, a hidden tree) as
 * simulated worlds; descriptions that are wrong on purpose.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "topo_comm.h"
#include "topo_same.h"

#include <isthmus/isthmus.h>
#include <isthmus/unstable/topology.h>
#include <stdlib.h>

#define LINE_BYTES 1024u
#define RANKS_MAX 64u

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* ------------------------------------------------------------------------------------ lines */

static void line_draw(uint64_t *state, char *line, uint32_t *gpus)
{
    uint32_t a_node = 1u << draw(state, 4);
    uint32_t nodes = 1 + (uint32_t)draw(state, 4);
    uint32_t domain = 1u << draw(state, 4);
    uint32_t nics = draw(state, 4) == 0 ? 0 : 1u << draw(state, 4);
    domain = domain > a_node ? a_node * (draw(state, 2) == 0 ? 1 : nodes) : domain;
    nics = nics > a_node ? a_node : nics;
    *gpus = a_node * nodes;
    (void)snprintf(line, LINE_BYTES, "%ux%u,nvlink=%u,nics=%u,sockets=%u%s", nodes, a_node, domain,
                   nics, 1 + (unsigned)draw(state, 2), draw(state, 2) == 0 ? ",rails=1" : "");
}

static topo_way way_of(const topo_formed *formed, uint32_t a, uint32_t b)
{
    if (a / formed->lsa_size == b / formed->lsa_size) {
        return a == b ? TOPO_WAY_SELF : TOPO_WAY_LSA;
    }
    return formed->gin != TOPO_GIN_NONE ? TOPO_WAY_GIN : TOPO_WAY_HOST;
}

static void pairs_agree(const char *line, const topo_graph *graph, const ist_cluster *cluster,
                        const topo_policy *policy)
{
    topo_formed formed =
        topo_cluster_choose(cluster, policy->ranks, policy->rank_count, policy->lsa_max);
    topo_formed predicted = topo_comm_predict(graph, policy);
    assert_int_equal(formed.lsa_size, predicted.lsa_size);
    for (uint32_t a = 0; a < policy->rank_count; a++) {
        for (uint32_t b = 0; b < policy->rank_count; b++) {
            topo_choice choice;
            topo_choose(graph, policy, a, b, &choice);
            topo_way way = way_of(&formed, a, b);
            way = choice.way == TOPO_WAY_NONE && way == TOPO_WAY_HOST ? TOPO_WAY_NONE : way;
            if (way != choice.way || (way == TOPO_WAY_GIN && choice.gin != formed.gin)) {
                fail_msg("%s: ranks %u and %u: %s, by the graph %s", line, a, b, topo_way_text(way),
                         topo_way_text(choice.way));
            }
        }
    }
}

static void test_lines(void **state)
{
    uint64_t at = 1;
    (void)state;
    for (uint32_t round = 0; round < 400; round++) {
        char line[LINE_BYTES];
        uint32_t ranks[RANKS_MAX];
        uint32_t gpus = 0;
        uint32_t count = 0;
        ist_cluster cluster;
        line_draw(&at, line, &gpus);
        uint64_t keep = 1 + draw(&at, 4);
        for (uint32_t i = 0; i < gpus; i++) {
            ranks[count] = i;
            count += keep > 1 || draw(&at, 3) > 0;
        }
        if (count == 0) {
            continue;
        }
        topo_graph *graph = loaded(line);
        assert_int_equal(ist_cluster_parse(line, &cluster), IST_OK);
        const topo_policy policy = {
            .ranks = ranks, .rank_count = count, .lsa_max = (uint32_t)draw(&at, 5)};
        pairs_agree(line, graph, &cluster, &policy);
        topo_graph_close(graph);
    }
}

/* ------------------------------------------------------------------------------------ worlds */

static char warning[1024];
static uint32_t warning_count;

static void listen(ist_log_level level, const char *text, void *context)
{
    (void)context;
    if (level == IST_LOG_WARN && strstr(text, "topology") != NULL) {
        warning_count++;
        (void)snprintf(warning, sizeof(warning), "%s", text);
    }
}

typedef struct opening {
    const ist_topology *topology;
    ist_topology_policy policy;
    ist_topology_comparison found;
} opening;

static ist_status rank_main(ist_world *world, void *arg)
{
    opening *self = arg;
    ist_comm *comm = NULL;
    ist_comm_desc desc = {.size = sizeof(desc), .lsa_size_max = self->policy.lsa_size_max};
    ist_status status = ist_comm_open(world, &desc, &comm);
    if (status != IST_OK) {
        return status;
    }
    if (ist_world_rank(world) == 0 && self->topology != NULL) {
        status = ist_topology_compare(self->topology, &self->policy, comm, &self->found);
    }
    ist_status closed = ist_comm_close(comm);
    return status != IST_OK ? status : closed;
}

static void world_opens(const char *cluster, uint32_t ranks, opening *self)
{
    ist_world_desc desc = {
        .size = sizeof(desc), .rank_count = ranks, .backend = "sim", .cluster = cluster};
    warning_count = 0;
    self->found.size = sizeof(self->found);
    assert_int_equal(ist_world_run(&desc, rank_main, self, NULL), IST_OK);
}

static void fixture_path(const char *name, char path[LINE_BYTES])
{
    const char *root = getenv("IST_SOURCE_DIR");
    (void)snprintf(path, LINE_BYTES, "%s/tests/topology/fixtures/%s", root != NULL ? root : ".",
                   name);
}

typedef struct machine {
    const char *file;
    ist_path peers;
    uint32_t lsa_max, lsa, gin;
} machine;

/* Whether a simulated world of the machine forms what the file says, told by nobody. */
static void machine_agrees(const machine *from)
{
    char path[LINE_BYTES];
    char line[LINE_BYTES];
    ist_topology *topology = NULL;
    ist_topology_info info = {.size = sizeof(info)};
    fixture_path(from->file, path);
    assert_int_equal(ist_topology_open(path, NULL, &topology), IST_OK);
    assert_int_equal(ist_topology_query(topology, &info), IST_OK);
    opening self = {.topology = topology,
                    .policy = {.size = sizeof(self.policy),
                               .peer_access = from->peers,
                               .lsa_size_max = from->lsa_max}};
    assert_int_equal(ist_topology_cluster(topology, &self.policy, line, sizeof(line), NULL),
                     IST_OK);
    world_opens(line, info.gpu_count, &self);
    if (self.found.difference_count != 0 || self.found.lsa_size_found != from->lsa ||
        self.found.gin_found != from->gin || warning_count != 0) {
        fail_msg("%s: teams of %u, predicted %u, known %u; GIN %u, known %u; %s", from->file,
                 self.found.lsa_size_found, self.found.lsa_size_predicted, from->lsa,
                 self.found.gin_found, from->gin, warning);
    }
    ist_topology_close(topology);
}

static void test_machines(void **state)
{
    static const machine machines[] = {
        {"nccl_mnnvl.xml", IST_PATH_LOC, 0, 4, 0}, /* two nodes, one cluster and clique */
        {"nccl_mnnvl.xml", IST_PATH_LOC, 2, 2, 0}, /* the same with smaller teams */
        {"nccl_peer_switches.xml", IST_PATH_LOC, 0, 1, 1},
        {"nccl_peer_switches.xml", IST_PATH_SYS, 0, 2, 1}, /* peer access over PCIe */
        {"nccl_two_sockets.xml", IST_PATH_LOC, 0, 4, 1},
        {"hidden_tree.json", IST_PATH_LOC, 0, 1, 0}, /* a VM; three GPUs of which two are joined */
        {"hwloc1_epyc.xml", IST_PATH_LOC, 0, 1, 1},  /* two GPUs share a NIC */
        {"nccl_nics.xml", IST_PATH_LOC, 0, 1, 0},    /* a GPU without GPU Direct RDMA */
        {"rails.json", IST_PATH_LOC, 0, 1, 1},
        {"nccl_xgmi.xml", IST_PATH_LOC, 0, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        machine_agrees(&machines[i]);
    }
}

static void told(const char *topology, const char *cluster, uint32_t ranks, const char *said)
{
    opening self = {.policy = {.size = sizeof(self.policy)}};
    assert_int_equal(setenv("IST_TOPOLOGY", topology, 1), 0);
    warning[0] = '\0';
    world_opens(cluster, ranks, &self);
    assert_int_equal(unsetenv("IST_TOPOLOGY"), 0);
    if (said == NULL ? warning_count != 0 : strstr(warning, said) == NULL) {
        fail_msg("%s beside %s: \"%s\" does not say \"%s\"", topology, cluster, warning,
                 said != NULL ? said : "nothing");
    }
}

/* IST_TOPOLOGY names another description than the one that the world was made of. */
static void test_told(void **state)
{
    char path[LINE_BYTES];
    (void)state;
    told("2x4", "2x4", 8, NULL);
    told("off", "2x4,nvlink=2", 8, NULL);
    told("", "2x4,nvlink=2", 8, NULL);
    told("2x4", "2x4,nvlink=2", 8,
         "teams of 2, GIN yes; by cluster 2x4: teams of 4, GIN yes; ranks 0 and 2 use "
         "GPU-initiated network (GIN), predicted load/store (LSA)");
    told("2x4,nics=0", "2x4", 8, "GIN no (the machine has no NIC that is up); ranks 0 and 4");
    told("2x4,nics=0", "1x8", 8, "ranks 0 and 4 use load/store (LSA), predicted none");
    told("1x2", "1x4", 4, "has 2 GPUs, rank 2 is on another one");
    told("/not/there.xml", "1x4", 4, "not compared with the topology: /not/there.xml");
    told("1x4 nonsense", "1x4", 4, "not compared");
    fixture_path("nccl_mnnvl.xml", path);
    told(path, "2x2,nvlink=4,nics=0", 4, NULL);
    told(path, "2x2,nics=1", 4, "teams of 2, GIN yes; by NCCL topology XML");
}

static void test_arguments(void **state)
{
    const ist_topology_formed good = {.size = sizeof(good), .rank_count = 4, .lsa_size = 2};
    ist_topology_formed bad = good;
    ist_topology_comparison comparison = {.size = sizeof(comparison)};
    (void)state;
    assert_int_equal(ist_topology_announce("2x2", &good, &comparison), IST_OK);
    assert_int_equal(comparison.difference_count, 1);
    assert_int_equal(comparison.lsa_size_predicted, 2);
    assert_int_equal(ist_topology_announce(NULL, &good, &comparison), IST_OK);
    assert_int_equal(comparison.lsa_size_predicted, 0);
    assert_int_equal(ist_topology_announce("2x2", NULL, NULL), IST_ERR_NULL);
    bad.lsa_size = 3;
    assert_int_equal(ist_topology_announce("2x2", &bad, NULL), IST_ERR_ARGUMENT);
    bad.lsa_size = 0;
    assert_int_equal(ist_topology_announce("2x2", &bad, NULL), IST_ERR_ARGUMENT);
    bad = good;
    bad.peer_access = (ist_path)99;
    assert_int_equal(ist_topology_announce("2x2", &bad, NULL), IST_ERR_ARGUMENT);
    bad.size = 1;
    assert_int_equal(ist_topology_announce("2x2", &bad, NULL), IST_ERR_SIZE);
}

int main(void)
{
    (void)unsetenv("IST_TOPOLOGY");
    ist_log_sink_set(listen, NULL, IST_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
