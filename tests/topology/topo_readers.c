/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each reader finds what its file says: devices, places, links with their health, rates with
 * their origins; and every graph survives conversion.
 * Method: small files of this folder, each made to show one thing, and cluster lines.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "topo_check.h"
#include "topo_same.h"
#include "topo_show.h"

static topo_path_type between(const topo_graph *graph, uint32_t a, uint32_t b)
{
    return topo_path_type_of(graph, topo_gpu(graph, a), topo_gpu(graph, b));
}

static topo_path_type to_nic(const topo_graph *graph, uint32_t gpu, uint32_t nic)
{
    return topo_path_type_of(graph, topo_gpu(graph, gpu), topo_nic(graph, nic));
}

static bool says(const topo_graph *graph, const char *what)
{
    for (uint32_t i = 0; i < topo_missing_count(graph); i++) {
        if (strcmp(topo_missing_at(graph, i)->what, what) == 0) {
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------------ NCCL */

static void test_two_sockets(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("nccl_two_sockets.xml");
    assert_int_equal(topo_gpu_count(graph), 4);
    assert_int_equal(topo_kind_count(graph, TOPO_NUMA), 2);
    assert_int_equal(topo_kind_count(graph, TOPO_PCI_SWITCH), 4);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 3), &path);
    assert_int_equal(path.type, TOPO_PATH_NVL);
    assert_int_equal(path.link_count_nv, 18);
    assert_int_equal(path.bytes_per_s, 18 * UINT64_C(20600000000));
    assert_int_equal(path.rate_origin, TOPO_VENDOR);
    assert_int_equal(path.latency_ps, 730000);
    assert_int_equal(to_nic(graph, 0, 0), TOPO_PATH_PIX);
    assert_int_equal(to_nic(graph, 0, 1), TOPO_PATH_PHB);
    assert_int_equal(to_nic(graph, 0, 2), TOPO_PATH_SYS);
    assert_int_equal(topo_lsa_size(graph, NULL, 4, 0, TOPO_PATH_NVL), 4);
    assert_int_equal(topo_lsa_size(graph, NULL, 4, 2, TOPO_PATH_NVL), 2);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t nic = topo_gpu_nic(graph, topo_gpu(graph, i));
        assert_int_equal(topo_node_at(graph, nic)->index, i);
    }
    assert_true(says(graph, "network switches"));
    topo_graph_close(graph);
}

/* Bus ids repeat between machines; one NVLink domain spans them. */
static void test_two_machines(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("nccl_mnnvl.xml");
    assert_int_equal(topo_kind_count(graph, TOPO_MACHINE), 2);
    assert_int_equal(between(graph, 0, 3), TOPO_PATH_NVL);
    assert_int_equal(topo_lsa_size(graph, NULL, 4, 0, TOPO_PATH_NVL), 4);
    assert_int_equal(topo_domain_count(graph), 1);
    /* GPU to its processor: chip to chip. */
    topo_path_find(graph, topo_gpu(graph, 0), topo_kind_at(graph, TOPO_NUMA, 0), &path);
    assert_int_equal(path.type, TOPO_PATH_C2C);
    assert_int_equal(path.bytes_per_s, UINT64_C(223560000000));
    topo_graph_close(graph);
}

static void test_mesh(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("nccl_mesh.xml");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NVL);
    assert_int_equal(between(graph, 0, 3), TOPO_PATH_NVL);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 2), &path);
    assert_int_equal(path.type, TOPO_PATH_NVB);
    assert_int_equal(path.hop_count, 2);
    assert_int_equal(path.nodes[0], topo_gpu(graph, 0));
    assert_int_equal(path.nodes[2], topo_gpu(graph, 2));
    /* Load/store does not cross a GPU: the domains are the pairs. */
    assert_int_equal(topo_domain_count(graph), 2);
    assert_int_equal(topo_lsa_size(graph, NULL, 4, 0, TOPO_PATH_NVL), 2);
    topo_graph_close(graph);
}

static const topo_link *nvlink_between(const topo_graph *graph, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < topo_link_count(graph); i++) {
        const topo_link *link = topo_link_at(graph, i);
        if (link->kind == TOPO_LINK_NVLINK &&
            ((link->a == topo_gpu(graph, a) && link->b == topo_gpu(graph, b)) ||
             (link->b == topo_gpu(graph, a) && link->a == topo_gpu(graph, b)))) {
            return link;
        }
    }
    return NULL;
}

static void test_faults(void **state)
{
    (void)state;
    topo_graph *graph = fixture("nccl_faults.xml");
    /* Count 0: there, down, and no path uses it. */
    assert_non_null(nvlink_between(graph, 0, 1));
    assert_int_equal(nvlink_between(graph, 0, 1)->health, TOPO_DOWN);
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_PIX);
    /* 12 on one side, 8 on the other: 8, degraded. */
    assert_int_equal(nvlink_between(graph, 1, 2)->count, 8);
    assert_int_equal(nvlink_between(graph, 1, 2)->health, TOPO_DEGRADED);
    assert_int_equal(between(graph, 1, 2), TOPO_PATH_NVL);
    /* The switch port that states x1 above x16. */
    uint32_t port = topo_node_at(graph, topo_kind_at(graph, TOPO_PCI_SWITCH, 0))->uplink;
    assert_int_equal(topo_link_at(graph, port)->health, TOPO_DEGRADED);
    assert_true(says(graph, "true rate of a PCIe link"));
    assert_true(says(graph, "NVLinks"));
    assert_true(says(graph, "rates of PCIe links"));
    /* The empty rate is assumed, and its origin says so. */
    uint32_t up = topo_node_at(graph, topo_gpu(graph, 0))->uplink;
    assert_int_equal(topo_link_at(graph, up)->rate_origin, TOPO_DEFAULT);
    topo_graph_close(graph);
}

static void test_nics(void **state)
{
    (void)state;
    topo_graph *graph = fixture("nccl_nics.xml");
    assert_int_equal(topo_nic_count(graph), 4);
    /* Two ports share one function and its link. */
    const topo_node *first = topo_node_at(graph, topo_nic(graph, 0));
    const topo_node *second = topo_node_at(graph, topo_nic(graph, 1));
    assert_int_equal(first->parent, second->parent);
    assert_int_equal(topo_node_at(graph, first->parent)->kind, TOPO_PCI_DEVICE);
    /* GPUs 0 and 1 are as near to both: they take turns. */
    uint32_t nic_a = topo_gpu_nic(graph, topo_gpu(graph, 0));
    uint32_t nic_b = topo_gpu_nic(graph, topo_gpu(graph, 1));
    assert_int_not_equal(nic_a, nic_b);
    assert_int_equal(to_nic(graph, 2, 3), TOPO_PATH_PHB);
    assert_int_equal(to_nic(graph, 2, 0), TOPO_PATH_SYS);
    topo_graph_close(graph);
}

static void test_groups(void **state)
{
    (void)state;
    char path[512];
    topo_graph *graph = fixture("nccl_groups.xml");
    assert_int_equal(topo_gpu_count(graph), 2);
    assert_int_equal(topo_nic_count(graph), 2);
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_PIX);
    assert_true(says(graph, "which group this machine is"));
    topo_graph_close(graph);
    topo_load_options options = {.group = "box_b"};
    (void)snprintf(path, sizeof(path), "%s/tests/topology/fixtures/nccl_groups.xml",
                   getenv("IST_SOURCE_DIR") != NULL ? getenv("IST_SOURCE_DIR") : ".");
    assert_int_equal(topo_load(path, &options, &graph), IST_OK);
    assert_int_equal(topo_gpu_count(graph), 3);
    assert_false(says(graph, "which group this machine is"));
    assert_true(says(graph, "what sits in the slots"));
    topo_graph_close(graph);
    options.group = "box_c";
    assert_int_equal(topo_load(path, &options, &graph), IST_ERR_PARSE);
}

static void test_other_dialects(void **state)
{
    (void)state;
    topo_graph *graph = fixture("nccl_xgmi.xml");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NVL);
    assert_int_equal(topo_lsa_size(graph, NULL, 2, 0, TOPO_PATH_NVL), 2);
    topo_graph_close(graph);
    graph = fixture("nccl_map.xml");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NONE);
    assert_true(says(graph, "where GPUs and NICs sit"));
    topo_graph_close(graph);
    graph = fixture("nccl_fragment.xml");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NVL);
    assert_true(says(graph, "the machine"));
    topo_graph_close(graph);
    graph = fixture("nccl_graphs.xml");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NVL);
    assert_int_equal(topo_node_at(graph, topo_gpu(graph, 1))->number, 1); /* written 0x1 */
    assert_int_equal(between(graph, 0, 3), TOPO_PATH_NVB);
    topo_graph_close(graph);
}

/* ------------------------------------------------------------------------------------ hwloc */

static void test_hwloc2(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("hwloc2_nvlink.xml");
    assert_int_equal(topo_gpu_count(graph), 4); /* the board's own display is none */
    assert_string_equal(topo_node_at(graph, topo_gpu(graph, 0))->name, "NVIDIA A100");
    assert_string_equal(topo_node_at(graph, topo_nic(graph, 0))->name, "mlx5_0");
    /* Ports of one switch are one switch. */
    assert_int_equal(topo_kind_count(graph, TOPO_PCI_SWITCH), 1);
    assert_int_equal(to_nic(graph, 0, 0), TOPO_PATH_PIX);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 1), &path);
    assert_int_equal(path.type, TOPO_PATH_NVL);
    assert_int_equal(path.link_count_nv, 12);
    assert_int_equal(path.bytes_per_s, UINT64_C(240000000000));
    assert_int_equal(between(graph, 2, 3), TOPO_PATH_PHB);
    assert_int_equal(between(graph, 0, 2), TOPO_PATH_SYS);
    /* A port at rest: the higher end counts, the present one is kept. */
    const topo_link *rest = topo_link_at(graph, topo_node_at(graph, topo_gpu(graph, 1))->uplink);
    assert_int_equal(rest->nominal_bytes_per_s, UINT64_C(31507692000));
    assert_int_equal(rest->now_bytes_per_s, UINT64_C(7876923000));
    assert_true(says(graph, "true rate of a PCIe link"));
    topo_graph_close(graph);
}

/* GPUs of two boards reach each other over two switches; together they are one domain. */
static void test_two_boards(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("hwloc2_two_boards.xml");
    assert_int_equal(topo_kind_count(graph, TOPO_NVSWITCH), 4);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 1), &path);
    assert_int_equal(path.type, TOPO_PATH_NVL);
    assert_int_equal(path.hop_count, 2);
    assert_int_equal(path.link_count_nv, 6);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 3), &path);
    assert_int_equal(path.type, TOPO_PATH_NVL);
    assert_int_equal(path.hop_count, 3);
    assert_int_equal(path.link_count_nv, 6);
    assert_int_equal(path.bytes_per_s, 6 * UINT64_C(20000000000));
    assert_int_equal(topo_lsa_size(graph, NULL, 4, 0, TOPO_PATH_NVL), 4);
    topo_graph_close(graph);
}

static void test_peer_switches(void **state)
{
    (void)state;
    topo_graph *graph = fixture("nccl_peer_switches.xml");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_PXB);
    assert_int_equal(to_nic(graph, 0, 0), TOPO_PATH_PXB);
    assert_int_equal(to_nic(graph, 1, 0), TOPO_PATH_PIX);
    assert_int_equal(topo_node_at(graph, topo_gpu(graph, 0))->vendor, 0x10de);
    topo_graph_close(graph);
}

static void test_hwloc1(void **state)
{
    (void)state;
    topo_graph *graph = fixture("hwloc1_epyc.xml");
    assert_int_equal(topo_kind_count(graph, TOPO_PACKAGE), 2);
    assert_int_equal(topo_kind_count(graph, TOPO_NUMA), 4);
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NODE); /* one socket, two NUMA nodes */
    assert_int_equal(to_nic(graph, 0, 0), TOPO_PATH_SYS);
    assert_true(says(graph, "NVLink"));
    topo_graph_close(graph);
}

/* A file of the first version may hold several machines; names that are alike stay two. */
static void test_system(void **state)
{
    (void)state;
    static const char text[] =
        "<topology><object type=\"System\">"
        "<object type=\"Machine\"><object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" "
        "pci_type=\"0302 [10de:20b0]\"/></object>"
        "<object type=\"Machine\"><object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" "
        "pci_type=\"0302 [10de:20b0]\"/></object></object></topology>";
    topo_graph *graph = loaded_bytes(text, "system");
    assert_int_equal(topo_kind_count(graph, TOPO_MACHINE), 2);
    assert_int_equal(topo_gpu_count(graph), 2);
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NONE);
    assert_round_trips(graph, "system");
    topo_graph_close(graph);
}

static void test_hwloc3(void **state)
{
    (void)state;
    topo_graph *graph = fixture("hwloc3_cards.xml");
    assert_int_equal(topo_gpu_count(graph), 1); /* a co-processor */
    assert_int_equal(topo_nic_count(graph), 1);
    assert_string_equal(topo_node_at(graph, topo_nic(graph, 0))->name, "eth0");
    assert_int_equal(to_nic(graph, 0, 0), TOPO_PATH_PIX); /* functions of one root port */
    topo_graph_close(graph);
}

static void test_synthetic(void **state)
{
    (void)state;
    topo_graph *graph = loaded("pack:2 numa:2 core:4 pu:2");
    assert_int_equal(topo_kind_count(graph, TOPO_PACKAGE), 2);
    assert_int_equal(topo_kind_count(graph, TOPO_NUMA), 4);
    assert_int_equal(topo_gpu_count(graph), 0);
    assert_round_trips(graph, "synthetic");
    topo_graph_close(graph);
}

/* This machine, whatever it is. */
static void test_live(void **state)
{
    (void)state;
    topo_graph *graph = loaded("live");
    assert_int_equal(topo_kind_count(graph, TOPO_MACHINE), 1);
    assert_int_equal(topo_check(graph), IST_OK);
    assert_round_trips(graph, "live");
    topo_graph_close(graph);
}

/* ---------------------------------------------------------------------------------- JSON, lines */

static void test_json(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("rails.json");
    assert_string_equal(topo_source(graph), "by hand");
    assert_int_equal(topo_rail_count(graph), 2);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 1), &path);
    assert_int_equal(path.type, TOPO_PATH_NET);
    assert_int_equal(path.bytes_per_s, UINT64_C(48000000000));
    topo_path_find(graph, topo_gpu(graph, 0), topo_nic(graph, 0), &path);
    assert_int_equal(path.rate_origin, TOPO_VENDOR);
    assert_true(says(graph, "sockets"));
    topo_graph_close(graph);
}

/* GPUs without a place in the tree still have their NVLink, and nothing else. */
static void test_hidden_tree(void **state)
{
    (void)state;
    topo_graph *graph = fixture("hidden_tree.json");
    assert_int_equal(between(graph, 0, 1), TOPO_PATH_NVL);
    assert_int_equal(between(graph, 0, 2), TOPO_PATH_NONE);
    topo_graph_close(graph);
}

static void test_profile(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = fixture("profile.json");
    assert_int_equal(topo_gpu_count(graph), 2);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 1), &path);
    assert_int_equal(path.type, TOPO_PATH_NVL);
    assert_int_equal(path.bytes_per_s, UINT64_C(360000000000));
    assert_int_equal(path.latency_ps, 735000);
    assert_int_equal(path.rate_origin, TOPO_MEASURED);
    topo_graph_close(graph);
}

static void test_cluster_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        uint32_t gpus, nics, lsa, rails, switches;
    } cases[] = {
        {"2x8", 16, 16, 8, 0, 1},
        {"2x8,nvlink=4,nics=2", 16, 4, 4, 0, 1},
        {"8x(h200:8 nvswitch nic:8x400G) rails fat-tree:2:1", 64, 64, 8, 8, 1},
        {"18x(gb200:4 nvl:72 nic:4x400G)", 72, 72, 72, 0, 1},
        {"4x(l40s:8 nic:2x100G sockets:2)", 32, 8, 1, 0, 1},
        {"(h100:4 nic:0)", 4, 0, 4, 0, 0},
        {"6x(h200:8) fat-tree leaf:2", 48, 48, 8, 0, 4},
        {"4x(h200:8 nvlink:2)", 32, 32, 2, 0, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_graph *graph = loaded(cases[i].line);
        uint32_t lsa = topo_lsa_size(graph, NULL, topo_gpu_count(graph), 0, TOPO_PATH_NVL);
        if (topo_gpu_count(graph) != cases[i].gpus || topo_nic_count(graph) != cases[i].nics ||
            lsa != cases[i].lsa || topo_rail_count(graph) != cases[i].rails ||
            topo_kind_count(graph, TOPO_NET_SWITCH) != cases[i].switches) {
            fail_msg("%s: %u GPUs, %u NICs, LSA %u, %u rails, %u switches", cases[i].line,
                     topo_gpu_count(graph), topo_nic_count(graph), lsa, topo_rail_count(graph),
                     topo_kind_count(graph, TOPO_NET_SWITCH));
        }
        assert_round_trips(graph, cases[i].line);
        topo_graph_close(graph);
    }
}

/* A rail carries NIC i of every machine; across rails the spine, at its tapered rate. */
static void test_rails(void **state)
{
    (void)state;
    topo_path path;
    topo_graph *graph = loaded("4x(h200:8 nvlink:0 nic:8x400G) rails fat-tree:4:1");
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 8), &path);
    assert_int_equal(path.type, TOPO_PATH_NET);
    uint32_t rails = 0;
    for (uint32_t i = 0; i <= path.hop_count; i++) {
        rails += topo_node_at(graph, path.nodes[i])->kind == TOPO_RAIL;
        assert_int_not_equal(topo_node_at(graph, path.nodes[i])->kind, TOPO_NET_SWITCH);
    }
    assert_int_equal(rails, 1);
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 9), &path);
    rails = 0;
    for (uint32_t i = 0; i <= path.hop_count; i++) {
        rails += topo_node_at(graph, path.nodes[i])->kind == TOPO_RAIL;
    }
    assert_int_equal(rails, 2);
    topo_graph_close(graph);
    /* Rails that nothing joins: the far NIC on the own rail, then through the far machine. */
    graph = loaded("2x(h200:8 nvswitch nic:8x400G) rails");
    topo_path_find(graph, topo_gpu(graph, 0), topo_gpu(graph, 9), &path);
    assert_int_equal(path.type, TOPO_PATH_NET);
    topo_graph_close(graph);
}

static const char *const fixtures[] = {"nccl_two_sockets.xml",
                                       "nccl_mnnvl.xml",
                                       "nccl_mesh.xml",
                                       "nccl_faults.xml",
                                       "nccl_nics.xml",
                                       "nccl_groups.xml",
                                       "nccl_map.xml",
                                       "nccl_fragment.xml",
                                       "nccl_xgmi.xml",
                                       "nccl_graphs.xml",
                                       "hwloc1_epyc.xml",
                                       "hwloc2_nvlink.xml",
                                       "hwloc3_cards.xml",
                                       "hwloc2_two_boards.xml",
                                       "nccl_peer_switches.xml",
                                       "hidden_tree.json",
                                       "rails.json",
                                       "profile.json",
                                       "cluster.txt"};

static void test_round_trips(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fixtures) / sizeof(fixtures[0]); i++) {
        topo_graph *graph = fixture(fixtures[i]);
        assert_round_trips(graph, fixtures[i]);
        assert_int_equal(topo_check(graph), IST_OK);
        topo_graph_close(graph);
    }
}

/* Paths are the same both ways, hop for hop. */
static void test_both_ways(void **state)
{
    (void)state;
    topo_path there;
    topo_path back;
    for (size_t i = 0; i < sizeof(fixtures) / sizeof(fixtures[0]); i++) {
        topo_graph *graph = fixture(fixtures[i]);
        uint32_t gpus = topo_gpu_count(graph);
        for (uint32_t a = 0; a < gpus; a++) {
            for (uint32_t b = 0; b < gpus; b++) {
                topo_path_find(graph, topo_gpu(graph, a), topo_gpu(graph, b), &there);
                topo_path_find(graph, topo_gpu(graph, b), topo_gpu(graph, a), &back);
                assert_int_equal(there.type, back.type);
                assert_int_equal(there.hop_count, back.hop_count);
                for (uint32_t h = 0; h < there.hop_count; h++) {
                    assert_int_equal(there.links[h], back.links[there.hop_count - 1 - h]);
                    uint32_t far = topo_other(graph, there.links[h], there.nodes[h]);
                    assert_int_equal(far, there.nodes[h + 1]);
                }
            }
        }
        topo_graph_close(graph);
    }
}

static void test_diff(void **state)
{
    (void)state;
    topo_text text = {0};
    topo_graph *a = fixture("nccl_two_sockets.xml");
    topo_graph *b = fixture("nccl_two_sockets.xml");
    assert_int_equal(topo_diff(a, b, &text), 0);
    assert_null(text.bytes);
    topo_graph_close(b);
    b = fixture("nccl_mesh.xml");
    assert_true(topo_diff(a, b, &text) > 0);
    assert_non_null(strstr(text.bytes, "- LSA size 4\n+ LSA size 2\n"));
    assert_non_null(strstr(text.bytes, "- nic count 4\n+ nic count 0\n"));
    topo_graph_close(a);
    topo_graph_close(b);
    topo_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sockets),    cmocka_unit_test(test_two_machines),
        cmocka_unit_test(test_mesh),           cmocka_unit_test(test_faults),
        cmocka_unit_test(test_nics),           cmocka_unit_test(test_groups),
        cmocka_unit_test(test_other_dialects), cmocka_unit_test(test_hwloc2),
        cmocka_unit_test(test_hwloc1),         cmocka_unit_test(test_two_boards),
        cmocka_unit_test(test_peer_switches),  cmocka_unit_test(test_hwloc3),
        cmocka_unit_test(test_system),         cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_live),           cmocka_unit_test(test_json),
        cmocka_unit_test(test_profile),        cmocka_unit_test(test_hidden_tree),
        cmocka_unit_test(test_cluster_lines),  cmocka_unit_test(test_rails),
        cmocka_unit_test(test_round_trips),    cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_diff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
