/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups that are simulated, through the public interface: what answers say, that they have no side
 * effects, what edits do, what is refused, and that a failed allocation leaves nothing behind.
 */
#include "ist_test.h"

#include <isthmus/unstable/whatif.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 8u

typedef struct answer {
    ist_estimate estimate;
    ist_estimate_op op[OPS];
} answer;

static ist_group *begin(const char *cluster)
{
    ist_group *group = NULL;
    const ist_group_desc desc = {.size = sizeof desc, .cluster = cluster};
    assert_int_equal(ist_group_begin(&desc, &group), IST_OK);
    return group;
}

static void add(ist_group *group, const char *text)
{
    ist_op_desc op;
    assert_int_equal(ist_op_parse(text, &op), IST_OK);
    assert_int_equal(ist_group_add(group, &op), IST_OK);
}

static void simulate(ist_group *group, const char *edit_text, answer *to)
{
    ist_edit edit;
    *to = (answer){.estimate = {.size = sizeof to->estimate, .ops = to->op, .op_capacity = OPS}};
    if (edit_text != NULL) {
        assert_int_equal(ist_edit_parse(edit_text, &edit), IST_OK);
    }
    assert_int_equal(ist_group_simulate(group, &edit, edit_text != NULL, 0, &to->estimate), IST_OK);
}

static void ask(const char *cluster, const char *op, const char *edit, answer *to)
{
    ist_group *group = begin(cluster);
    add(group, op);
    simulate(group, edit, to);
    ist_group_drop(group);
}

/* ---- what answers say ------------------------------------------------------------------------ */

#define DISPATCH "ep_dispatch,tokens=4096,row=14336,topk=8,experts=256,algorithm="

static void test_ll_and_ht_differ(void **state)
{
    (void)state;
    answer ll;
    answer ht;
    ask("8x8", DISPATCH "ll", NULL, &ll);
    ask("8x8", DISPATCH "ht", NULL, &ht);
    /* LL sends a row to every rank, HT once to every domain: fewer bytes on the NICs, more on
     * NVLink. */
    assert_true(ht.op[0].bytes[IST_LINK_NIC_OUT] < ll.op[0].bytes[IST_LINK_NIC_OUT]);
    assert_true(ht.op[0].bytes[IST_LINK_NVLINK_OUT] > ll.op[0].bytes[IST_LINK_NVLINK_OUT]);
    assert_true(ht.estimate.total_ps < ll.estimate.total_ps);
    assert_int_equal(ll.estimate.bottleneck, IST_LINK_NIC_OUT);
    assert_int_equal(ll.op[0].bottleneck, IST_LINK_NIC_OUT);
    assert_string_equal(ll.estimate.busiest, "nic out (64 alike)");
    assert_string_equal(ll.op[0].path, "load/store + network");
    assert_int_equal(ll.op[0].confidence, IST_CONFIDENCE_DEFAULT);
}

static void test_small_messages_differ_too(void **state)
{
    (void)state;
    answer ll;
    answer ht;
    ask("8x8", "ep_dispatch,tokens=8,row=14336,algorithm=ll", NULL, &ll);
    ask("8x8", "ep_dispatch,tokens=8,row=14336,algorithm=ht", NULL, &ht);
    assert_true(ll.estimate.total_ps != ht.estimate.total_ps);
    /* One hop against two. */
    assert_true(ll.op[0].transfer_ps + ll.op[0].fixed_ps !=
                ht.op[0].transfer_ps + ht.op[0].fixed_ps);
}

static void test_idle_links_are_named(void **state)
{
    (void)state;
    answer inside;
    ask("2x4,nics=2", "allreduce,bytes=64MiB,group=4", NULL, &inside);
    assert_int_equal(inside.estimate.link[IST_LINK_NIC_OUT].idle_count, 4);
    assert_int_equal(inside.estimate.link[IST_LINK_NVLINK_OUT].idle_count, 0);
    assert_non_null(strstr(inside.estimate.idle, "nic out (4 alike)"));
    answer pair;
    ask("2x4,nics=2", "p2p,bytes=1MiB,src=0,dst=7", NULL, &pair);
    assert_string_equal(pair.op[0].path, "network");
    assert_int_equal(pair.estimate.link[IST_LINK_NIC_OUT].idle_count, 3);
    assert_string_equal(pair.estimate.busiest, "nic out, node 0, nic 0");
}

static void test_bytes_by_hand(void **state)
{
    (void)state;
    answer ring;
    ask("2x4", "allreduce,bytes=8000000,algorithm=ring", NULL, &ring);
    /* 2 (n - 1) / n of the buffer over each of n edges; a quarter of an edge's bytes by a NIC. */
    assert_true(ring.op[0].bytes[IST_LINK_NIC_OUT] == 8 * (14000000 / 4));
    assert_true(ring.op[0].bytes[IST_LINK_NVLINK_OUT] == 8 * (14000000 / 4 * 3));
    answer all;
    ask("2x4", "alltoall,bytes=8000000", NULL, &all);
    assert_true(all.op[0].bytes[IST_LINK_NVLINK_OUT] == 8 * 3 * 1000000);
    assert_true(all.op[0].bytes[IST_LINK_NIC_OUT] == 8 * 4 * 1000000);
    answer one;
    ask("1x8", "allreduce,bytes=1000,algorithm=oneshot", NULL, &one);
    assert_true(one.op[0].bytes[IST_LINK_NVLINK_OUT] == 8 * 7 * 1000);
    answer cast;
    ask("1x8", "allreduce,bytes=8000,algorithm=multicast", NULL, &cast);
    assert_true(cast.op[0].bytes[IST_LINK_NVLINK_OUT] == 8 * 9000);
}

static uint64_t total_ps(const char *cluster, ist_profile *profile, const char *op)
{
    answer to;
    ist_group *group = NULL;
    const ist_group_desc desc = {.size = sizeof desc, .cluster = cluster, .profile = profile};
    assert_int_equal(ist_group_begin(&desc, &group), IST_OK);
    add(group, op);
    simulate(group, NULL, &to);
    ist_group_drop(group);
    return to.estimate.total_ps;
}

/* Times of 1, 2, 3 … nodes, one after the other. A second node brings NICs, which carry one in
 * `domain` steps of a ring that NVLink alone carries on one node: so much it may be faster. */
static void expect_rising(const char *rest, uint32_t domain, ist_profile *profile, const char *op)
{
    uint64_t before = 0;
    for (uint32_t nodes = 1; nodes <= 4096; nodes += nodes < 40 ? 1 : nodes) {
        char cluster[96];
        (void)snprintf(cluster, sizeof cluster, "%ux%s", nodes, rest);
        const uint64_t now = total_ps(cluster, profile, op);
        /* A ten-thousandth: times are rounded link by link. */
        const uint64_t slack = nodes == 2 ? before / domain : now / 10000;
        if (now + slack < before) {
            fail_msg("%s on %s: %llu ps, on fewer nodes %llu ps", op, cluster,
                     (unsigned long long)now, (unsigned long long)before);
        }
        before = now > before || nodes == 2 ? now : before;
    }
}

/* The same bytes among more nodes are never faster: not where AUTO changes its mind, either. */
static void test_more_nodes_take_longer(void **state)
{
    (void)state;
    static const struct {
        const char *rest;
        uint32_t domain;
    } machines[] = {{"8", 8},
                    {"8,nics=4", 8},
                    {"4,nvlink=2", 2},
                    {"8,nics=2,nic_rate=100Gb/s", 8},
                    {"8,tree_down=2,leaf=4", 8}};
    ist_profile *h200 = NULL;
    assert_int_equal(ist_profile_open("h200", &h200), IST_OK);
    for (size_t i = 0; i < sizeof machines / sizeof *machines; ++i) {
        const char *rest = machines[i].rest;
        const uint32_t domain = machines[i].domain;
        for (uint64_t bytes = 8; bytes <= UINT64_C(1) << 33; bytes *= 4) {
            char op[64];
            (void)snprintf(op, sizeof op, "allreduce,bytes=%llu", (unsigned long long)bytes);
            expect_rising(rest, domain, NULL, op);
            expect_rising(rest, domain, h200, op);
        }
        expect_rising(rest, domain, NULL, "barrier");
        expect_rising(rest, domain, NULL, "allgather,bytes=1MiB");
        expect_rising(rest, domain, NULL, "alltoall,bytes=64MiB");
    }
    ist_profile_close(h200);
}

static void test_every_operation_answers(void **state)
{
    (void)state;
    static const char *const ops[] = {"allreduce,bytes=1MiB,algorithm=ring",
                                      "allreduce,bytes=1MiB,algorithm=tree",
                                      "allreduce,bytes=1MiB,algorithm=oneshot",
                                      "allreduce,bytes=1MiB,algorithm=twoshot",
                                      "allreduce,bytes=1MiB,algorithm=multicast",
                                      "allgather,bytes=1MiB",
                                      "allgather,bytes=1MiB,algorithm=direct",
                                      "reducescatter,bytes=1MiB,algorithm=tree",
                                      "alltoall,bytes=1MiB",
                                      "broadcast,bytes=1MiB",
                                      "sendrecv,bytes=1MiB",
                                      "p2p,bytes=1MiB,src=1,dst=9",
                                      "put,bytes=1MiB,src=1,dst=2",
                                      "signal,src=1,dst=15",
                                      "barrier",
                                      "copy,bytes=1MiB",
                                      DISPATCH "ll",
                                      "ep_combine,tokens=128,row=14336,algorithm=ht"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) {
        answer to;
        ask("2x8", ops[i], NULL, &to);
        assert_true(to.estimate.total_ps > 0);
        assert_true(to.op[0].end_ps == to.estimate.total_ps);
        assert_int_equal(to.op[0].critical, 1);
    }
}

static void test_streams_overlap_and_share(void **state)
{
    (void)state;
    answer alone;
    answer both;
    ask("4x8", "alltoall,bytes=1GiB", NULL, &alone);
    ist_group *group = begin("4x8");
    add(group, "alltoall,bytes=1GiB,stream=0");
    add(group, "alltoall,bytes=1GiB,stream=1");
    add(group, "barrier,stream=1");
    simulate(group, NULL, &both);
    ist_group_drop(group);
    /* Two that share a link take twice as long as one; together less than one after the other. */
    assert_true(both.op[0].end_ps > alone.estimate.total_ps * 19 / 10);
    assert_true(both.estimate.total_ps < both.estimate.serial_ps * 6 / 10);
    assert_true(both.op[2].start_ps == both.op[1].end_ps);
    assert_int_equal(both.op[0].critical, 0);
    assert_int_equal(both.op[1].critical, 1);
    assert_int_equal(both.op[2].critical, 1);
}

/* ---- edits ----------------------------------------------------------------------------------- */

static void test_edits(void **state)
{
    (void)state;
    static const char op[] = "alltoall,bytes=256MiB";
    answer base;
    answer changed;
    ask("4x8", op, NULL, &base);
    ask("4x8", op, "drop nic 2:5", &changed);
    /* Two GPUs share what one had. */
    assert_true(changed.estimate.total_ps > base.estimate.total_ps * 17 / 10);
    assert_int_equal(changed.estimate.link[IST_LINK_NIC_OUT].link_count, 31);
    assert_string_equal(changed.estimate.busiest, "nic out, node 2, nic 6");
    ask("4x8", op, "half nic all", &changed);
    assert_true(changed.estimate.total_ps > base.estimate.total_ps * 18 / 10);
    ask("4x8", op, "half nvlink 0:0", &changed);
    assert_true(changed.estimate.total_ps < base.estimate.total_ps * 11 / 10);
    ask("4x8", op, "half fabric", &changed);
    assert_int_equal(changed.estimate.bottleneck, IST_LINK_FABRIC);
    ask("4x8", op, "twice nodes", &changed);
    assert_int_equal(changed.estimate.rank_count, 64);
    ask("4x8", op, "domain 16", &changed);
    assert_true(changed.estimate.total_ps < base.estimate.total_ps);
    ask("32x8", DISPATCH "ll", NULL, &base);
    ask("32x8", DISPATCH "ll", "ep over 2 domains", &changed);
    assert_true(changed.estimate.total_ps < base.estimate.total_ps);
    assert_int_equal(changed.estimate.rank_count, 256);
}

/* The same world asked as one and as it is when every rank is computed. */
static void test_expand(void **state)
{
    (void)state;
    ist_group *group = begin("8x8,nics=4");
    add(group, DISPATCH "ht");
    ist_estimate few = {.size = sizeof few};
    ist_estimate all = {.size = sizeof all};
    assert_int_equal(ist_group_simulate(group, NULL, 0, 0, &few), IST_OK);
    assert_int_equal(ist_group_simulate(group, NULL, 0, 1, &all), IST_OK);
    assert_int_equal(few.class_count, 1);
    assert_int_equal(all.class_count, 64);
    assert_true(few.total_ps * 99 / 100 <= all.total_ps &&
                all.total_ps <= few.total_ps * 101 / 100);
    ist_group_drop(group);
}

static void test_large_worlds(void **state)
{
    (void)state;
    answer to;
    ask("12500x8", "allreduce,bytes=1GiB", NULL, &to);
    assert_int_equal(to.estimate.rank_count, 100000);
    assert_int_equal(to.estimate.class_count, 1);
    ask("125000x8", "allreduce,bytes=1GiB", "drop nic 99999:3", &to);
    assert_int_equal(to.estimate.rank_count, 1000000);
    assert_true(to.estimate.class_count < 20);
    ask("256x8", "ep_dispatch,tokens=128,row=14336,experts=2048,algorithm=ll", NULL, &to);
    assert_int_equal(to.estimate.rank_count, 2048);
}

/* ---- side effects, communicators, text ------------------------------------------------------- */

static ist_status inside_world(ist_world *world, void *arg)
{
    (void)arg;
    ist_test_rank rank;
    const ist_test_setup setup = {.no_dev = 1};
    EXPECT_OK(world, ist_test_rank_open(world, &setup, &rank));
    ist_group *group = NULL;
    const ist_group_desc desc = {.size = sizeof desc, .comm = rank.comm};
    const ist_op_desc op = {.size = sizeof op, .kind = IST_OP_ALL_REDUCE, .bytes = 1 << 20};
    ist_estimate estimate = {.size = sizeof estimate};
    const uint64_t before = ist_world_clock_ns(world);
    EXPECT_OK(world, ist_group_begin(&desc, &group));
    EXPECT_OK(world, ist_group_add(group, &op));
    EXPECT_OK(world, ist_group_end(group, IST_GROUP_SIMULATE, &estimate));
    EXPECT_EQUAL(world, ist_world_clock_ns(world), before);
    EXPECT_EQUAL(world, estimate.rank_count, rank.info.rank_count);
    EXPECT_EQUAL(world, estimate.node_count, rank.info.rank_count / rank.info.lsa_size);
    const ist_group_desc other = {.size = sizeof other, .comm = rank.comm, .cluster = "4x8"};
    EXPECT_REFUSED(world, ist_group_begin(&other, &group), IST_ERR_ARGUMENT, "desc.cluster");
    return ist_test_rank_close(&rank, false);
}

static void test_no_side_effects(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(8, "2x4", inside_world, NULL), IST_OK);
}

/* A communicator's machines are those of its world, not the usual ones. */
static ist_status ask_comm(ist_world *world, void *arg)
{
    ist_comm *comm = NULL;
    ist_group *group = NULL;
    ist_estimate estimate = {.size = sizeof estimate};
    ist_op_desc op = {.size = sizeof op};
    EXPECT_OK(world, ist_comm_open(world, NULL, &comm));
    const ist_group_desc desc = {.size = sizeof desc, .comm = comm};
    EXPECT_OK(world, ist_op_parse("alltoall,bytes=64MiB", &op));
    EXPECT_OK(world, ist_group_begin(&desc, &group));
    EXPECT_OK(world, ist_group_add(group, &op));
    EXPECT_OK(world, ist_group_end(group, IST_GROUP_SIMULATE, &estimate));
    *(uint64_t *)arg = estimate.total_ps;
    return ist_comm_close(comm);
}

static void test_links_of_a_communicator(void **state)
{
    (void)state;
    static const char *const clusters[] = {"1x8", "1x8,nvlink_rate=50GB/s", "2x4,nic_rate=100Gb/s",
                                           "8x1,launch=9us", "2x4,tree_down=4,leaf=1"};
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; ++i) {
        uint64_t found = 0;
        assert_int_equal(ist_test_run(8, clusters[i], ask_comm, &found), IST_OK);
        assert_int_equal(found, total_ps(clusters[i], NULL, "alltoall,bytes=64MiB"));
    }
}

static char *print(const ist_estimate *estimate)
{
    size_t needed = 0;
    assert_int_equal(ist_estimate_print(estimate, NULL, 0, &needed), IST_OK);
    char *text = malloc(needed);
    assert_non_null(text);
    assert_int_equal(ist_estimate_print(estimate, text, needed - 1, NULL), IST_ERR_SIZE);
    assert_int_equal(ist_estimate_print(estimate, text, needed, NULL), IST_OK);
    return text;
}

static void test_json_is_stable(void **state)
{
    (void)state;
    answer to;
    answer again;
    ask("4x8", DISPATCH "ll", "drop nic 1:2", &to);
    ask("4x8", DISPATCH "ll", "drop nic 1:2", &again);
    char *one = print(&to.estimate);
    char *two = print(&again.estimate);
    assert_string_equal(one, two);
    json_t *root = json_loads(one, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "format")), "isthmus-estimate");
    assert_int_equal(json_integer_value(json_object_get(root, "version")), 1);
    assert_true((uint64_t)json_integer_value(json_object_get(root, "total_ps")) ==
                to.estimate.total_ps);
    static const char *const keys[] = {"links",      "operations",   "critical_path",
                                       "bottleneck", "busiest",      "idle",
                                       "confidence", "memory_bytes", "serial_ps"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i) {
        assert_non_null(json_object_get(root, keys[i]));
    }
    json_decref(root);
    free(one);
    free(two);
}

/* ---- profiles -------------------------------------------------------------------------------- */

static const char profile_text[] =
    "{\"format\": \"isthmus-profile\", \"version\": 1, \"name\": \"t\","
    " \"values\": {\"nvlink_bytes_per_s\": {\"value\": 100000000000, \"unit\": \"bytes/s\","
    " \"origin\": \"probe\"}},"
    " \"curves\": {\"lsa_store\": {\"origin\": \"probe\", \"points\": ["
    " {\"bytes\": 1048576, \"blocks\": 1, \"time_ps\": 1, \"rate\": 10000000000},"
    " {\"bytes\": 1048576, \"blocks\": 16, \"time_ps\": 1, \"rate\": 100000000000}]}},"
    " \"operations\": [{\"name\": \"x\", \"kind\": \"alltoall\", \"algorithm\": \"direct\","
    " \"origin\": \"fit\", \"bytes\": [1000, 1000000], \"ranks\": [8, 8], \"constants\": {"
    "\"overhead_ps\": 1000000, \"lsa_step_ps\": 0, \"net_step_ps\": 0, \"message_ps\": 0,"
    " \"row_ps\": 0, \"lsa_bytes_per_s\": 1000000000, \"net_bytes_per_s\": 1000000000,"
    " \"local_bytes_per_s\": 1000000000000},"
    " \"curve\": [{\"bytes\": 1000, \"permille\": 1000},"
    " {\"bytes\": 1000000, \"permille\": 2000}]}]}";

static void test_profiles(void **state)
{
    (void)state;
    ist_profile *profile = NULL;
    assert_int_equal(ist_profile_parse(profile_text, sizeof profile_text - 1, &profile), IST_OK);
    ist_group *group = NULL;
    const ist_group_desc desc = {.size = sizeof desc, .cluster = "1x8", .profile = profile};
    assert_int_equal(ist_group_begin(&desc, &group), IST_OK);
    add(group, "alltoall,bytes=1000000");
    add(group, "alltoall,bytes=8000000");
    add(group, "sendrecv,bytes=1GB,blocks=1");
    add(group, "sendrecv,bytes=1GB,blocks=16");
    answer to;
    simulate(group, NULL, &to);
    ist_group_drop(group);
    ist_profile_close(profile);
    /* 7/8 of a megabyte at 1 GB/s and a microsecond, all of it twice as long. */
    const uint64_t took = to.op[0].end_ps - to.op[0].start_ps;
    assert_in_range(took, 2 * 876000000ull, 2 * 876000000ull + 10000);
    assert_int_equal(to.op[0].confidence, IST_CONFIDENCE_CALIBRATED);
    assert_int_equal(to.op[1].confidence, IST_CONFIDENCE_EXTRAPOLATED);
    assert_int_equal(to.op[2].confidence, IST_CONFIDENCE_EXTRAPOLATED);
    /* One block is a tenth of what all sixteen get. */
    const uint64_t one = to.op[2].end_ps - to.op[2].start_ps;
    const uint64_t all = to.op[3].end_ps - to.op[3].start_ps;
    assert_true(one > all * 9 && one < all * 11);
}

static const char curveless[] = "{\"format\": \"isthmus-profile\", \"version\": 1,"
                                " \"curves\": {\"lsa_store\": {\"points\": [1]}}}";

static void test_bad_profiles(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{\"format\": \"other\", \"version\": 1}",
        "{\"format\": \"isthmus-profile\", \"version\": 2}",
        "{\"format\": \"isthmus-profile\", \"version\": 1, \"operations\": [{}]}",
        "{\"format\": \"isthmus-profile\", \"version\": 1, \"values\": {\"launch_ps\": 5}}",
        curveless};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        ist_profile *profile = NULL;
        assert_int_equal(ist_profile_parse(bad[i], strlen(bad[i]), &profile), IST_ERR_PARSE);
        assert_null(profile);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(ist_status observed, ist_status expected, const char *object)
{
    ist_error error = {.size = sizeof error};
    assert_int_equal(observed, expected);
    assert_int_equal(ist_error_last(&error), IST_OK);
    assert_string_equal(error.object, object);
}

static void test_refusals(void **state)
{
    (void)state;
    ist_group *group = begin("2x8,nics=0");
    ist_op_desc op = {.size = sizeof op, .kind = IST_OP_ALL_REDUCE, .bytes = 1024};
    ist_estimate estimate = {.size = sizeof estimate};
    ist_edit edit = {.size = sizeof edit};
    refused(ist_group_begin(NULL, NULL), IST_ERR_NULL, "group");
    refused(ist_group_add(NULL, &op), IST_ERR_NULL, "group");
    refused(ist_group_add(group, NULL), IST_ERR_NULL, "op");
    op.kind = (ist_op_kind)99;
    refused(ist_group_add(group, &op), IST_ERR_ARGUMENT, "op.kind");
    op.kind = IST_OP_EP_DISPATCH;
    refused(ist_group_add(group, &op), IST_ERR_RANGE, "op.tokens");
    op.tokens = 1;
    op.row_bytes = 1;
    op.topk = 33;
    refused(ist_group_add(group, &op), IST_ERR_RANGE, "op.topk");
    op = (ist_op_desc){.size = sizeof op, .kind = IST_OP_ALL_REDUCE, .reserved = {1}};
    refused(ist_group_add(group, &op), IST_ERR_RESERVED, "op.reserved");
    refused(ist_group_simulate(group, NULL, 1, 0, &estimate), IST_ERR_NULL, "edits");
    refused(ist_group_end(group, (ist_group_mode)7, &estimate), IST_ERR_ARGUMENT, "mode");
    estimate.size = 4;
    refused(ist_group_simulate(group, NULL, 0, 0, &estimate), IST_ERR_SIZE, "estimate");
    estimate.size = sizeof estimate;
    edit =
        (ist_edit){.size = sizeof edit, .kind = IST_EDIT_LINK, .link = IST_LINK_NIC_OUT, .den = 1};
    refused(ist_group_simulate(group, &edit, 1, 0, &estimate), IST_ERR_ARGUMENT, "edits.index");
    op = (ist_op_desc){.size = sizeof op, .kind = IST_OP_ALL_REDUCE, .bytes = 1024};
    assert_int_equal(ist_group_add(group, &op), IST_OK);
    refused(ist_group_end(group, IST_GROUP_SIMULATE, &estimate), IST_ERR_UNSUPPORTED, "ops");
    assert_int_equal(estimate.total_ps, 0);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const bad_ops[] = {"",
                                          "reduce",
                                          "allreduce,bytes",
                                          "allreduce,bytes=",
                                          "allreduce,bytes=12QB",
                                          "allreduce,bytes=99999999999999999999",
                                          "allreduce,topk=4294967296",
                                          "allreduce,color=red",
                                          "ep_dispatch,algorithm=fast",
                                          "ep_dispatch,routing=x"};
    static const char *const bad_edits[] = {
        "",           "drop",          "drop nic",    "drop nic 3",
        "drop nic x", "drop nic 1:",   "1/0 nic all", "half cable all",
        "ep over",    "twice nodes 3", "domain two"};
    ist_op_desc op;
    ist_edit edit;
    for (size_t i = 0; i < sizeof bad_ops / sizeof *bad_ops; ++i) {
        assert_int_equal(ist_op_parse(bad_ops[i], &op), IST_ERR_PARSE);
    }
    for (size_t i = 0; i < sizeof bad_edits / sizeof *bad_edits; ++i) {
        assert_int_equal(ist_edit_parse(bad_edits[i], &edit), IST_ERR_PARSE);
    }
    assert_int_equal(ist_op_parse("ep_combine, tokens=3, row=2KiB, topk=2, stream=1", &op), IST_OK);
    assert_int_equal(op.row_bytes, 2048);
    assert_int_equal(op.stream, 1);
    assert_int_equal(ist_edit_parse("3/4 nvlink 2:7", &edit), IST_OK);
    assert_int_equal(edit.num * 10 + edit.den, 34);
    assert_int_equal(edit.node * 10 + edit.index, 27);
}

/* Fails every host allocation of a question in turn. */
static void test_failing_allocations(void **state)
{
    (void)state;
    const ist_op_desc op = {.size = sizeof op, .kind = IST_OP_ALL_TO_ALL, .bytes = 1 << 20};
    bool done = false;
    for (uint64_t nth = 1; !done; ++nth) {
        ist_group *group = NULL;
        ist_profile *profile = NULL;
        ist_estimate estimate = {.size = sizeof estimate};
        assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
        ist_status status = ist_profile_parse(profile_text, sizeof profile_text - 1, &profile);
        const ist_group_desc desc = {.size = sizeof desc, .cluster = "2x8", .profile = profile};
        if (status == IST_OK) {
            status = ist_group_begin(&desc, &group);
        }
        if (status == IST_OK) {
            status = ist_group_add(group, &op);
        }
        if (status == IST_OK) {
            status = ist_group_simulate(group, NULL, 0, 0, &estimate);
        }
        uint64_t hits = 0;
        (void)ist_call_fault_disarm(&hits);
        assert_int_equal(status, hits > 0 ? IST_ERR_MEMORY : IST_OK);
        done = hits == 0;
        ist_group_drop(group);
        ist_profile_close(profile);
        assert_true(nth < 1000);
    }
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ll_and_ht_differ),
        cmocka_unit_test(test_small_messages_differ_too),
        cmocka_unit_test(test_idle_links_are_named),
        cmocka_unit_test(test_bytes_by_hand),
        cmocka_unit_test(test_more_nodes_take_longer),
        cmocka_unit_test(test_every_operation_answers),
        cmocka_unit_test(test_streams_overlap_and_share),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_large_worlds),
        cmocka_unit_test(test_no_side_effects),
        cmocka_unit_test(test_links_of_a_communicator),
        cmocka_unit_test(test_json_is_stable),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_bad_profiles),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
