/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quotient of a cluster against all of its ranks: 64 configurations up to 512 ranks, with edits
 * and overlapping streams, computed both ways by the same event engine.
 */
#include "cost_profile.h"

#include "ist_test.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define CASES 64u

typedef struct shape_case {
    uint64_t nodes, gpus, domain, nics;
} shape_case;

static const shape_case shapes[] = {{1, 8, 8, 8},   {2, 8, 8, 8},  {4, 8, 8, 4},   {8, 8, 8, 8},
                                    {16, 8, 8, 8},  {64, 8, 8, 8}, {8, 4, 32, 4},  {16, 4, 16, 2},
                                    {32, 4, 64, 4}, {4, 8, 4, 8},  {8, 8, 2, 4},   {16, 8, 1, 8},
                                    {9, 8, 8, 2},   {5, 4, 4, 1},  {36, 4, 72, 4}, {128, 4, 64, 4}};
#define SHAPES (sizeof shapes / sizeof *shapes)

static cost_machine machine_of(const shape_case *shape)
{
    return (cost_machine){.node_count = shape->nodes,
                          .gpus_per_node = shape->gpus,
                          .domain = shape->domain,
                          .nics_per_node = shape->nics,
                          .fabric_permille = COST_PERMILLE,
                          .memory_bytes = 141000000000};
}

static cost_op draw_op(const cost_machine *machine, uint64_t *random)
{
    static const cost_kind kinds[] = {COST_ALL_REDUCE, COST_ALL_GATHER,    COST_ALL_TO_ALL,
                                      COST_SEND_RECV,  COST_EP_DISPATCH,   COST_EP_COMBINE,
                                      COST_BARRIER,    COST_REDUCE_SCATTER};
    cost_op op = {.kind = kinds[ist_test_random_below(random, 8)],
                  .stream = ist_test_random_below(random, 2),
                  .bytes = UINT64_C(1) << (10 + ist_test_random_below(random, 20)),
                  .tokens = 1u << ist_test_random_below(random, 12),
                  .row_bytes = 14336,
                  .topk = 8,
                  .experts = 256,
                  .knobs = cost_knobs_default()};
    if (op.kind == COST_EP_DISPATCH || op.kind == COST_EP_COMBINE) {
        op.algorithm = ist_test_random_below(random, 2) == 0 ? COST_LL : COST_HT;
    }
    if (op.kind == COST_ALL_REDUCE) {
        static const cost_algorithm all[] = {COST_RING, COST_TREE, COST_ONE_SHOT, COST_TWO_SHOT,
                                             COST_MULTICAST};
        op.algorithm = all[ist_test_random_below(random, 5)];
    }
    if (ist_test_random_below(random, 4) == 0) {
        op.group_size =
            machine->domain > machine->gpus_per_node ? machine->domain : machine->gpus_per_node;
    }
    return op;
}

/* Every fourth case takes a NIC away, every fourth halves an NVLink, every fourth the fabric. */
static uint32_t draw_edit(const cost_machine *machine, uint32_t index, uint64_t *random,
                          cost_edit *edit)
{
    *edit = (cost_edit){
        .node = ist_test_random_below(random, (uint32_t)machine->node_count), .num = 1, .den = 2};
    switch (index % 4) {
    case 1:
        edit->resource = COST_NIC_OUT;
        edit->index = ist_test_random_below(random, (uint32_t)machine->nics_per_node);
        edit->num = machine->nics_per_node > 1 ? 0 : 1;
        return 1;
    case 2:
        edit->resource = COST_LSA_OUT;
        edit->index = ist_test_random_below(random, (uint32_t)machine->gpus_per_node);
        return 1;
    case 3:
        edit->resource = COST_FABRIC;
        edit->everywhere = true;
        return 1;
    default: return 0;
    }
}

static void check_case(uint32_t index, uint64_t *random)
{
    const cost_machine machine = machine_of(&shapes[index % SHAPES]);
    cost_edit edit;
    const uint32_t edits = draw_edit(&machine, index / SHAPES, random, &edit);
    cost_op ops[3];
    const uint32_t count = 1 + ist_test_random_below(random, 3);
    for (uint32_t i = 0; i < count; ++i) {
        ops[i] = draw_op(&machine, random);
    }
    static cost_result few;
    static cost_result all;
    assert_int_equal(cost_estimate(&machine, &edit, edits, ops, count, false, &few), IST_OK);
    assert_int_equal(cost_estimate(&machine, &edit, edits, ops, count, true, &all), IST_OK);
    const uint64_t off =
        few.total_ps > all.total_ps ? few.total_ps - all.total_ps : all.total_ps - few.total_ps;
    if (off * 100 > all.total_ps) {
        fail_msg("case %u: %llu ps with %u classes, %llu ps with %u", index,
                 (unsigned long long)few.total_ps, few.class_count,
                 (unsigned long long)all.total_ps, all.class_count);
    }
    for (uint32_t kind = 0; kind < COST_RESOURCE_COUNT; ++kind) {
        assert_true(few.bytes[kind] == all.bytes[kind]);
        assert_true(few.link_count[kind] == all.link_count[kind]);
        assert_true(few.idle_count[kind] == all.idle_count[kind]);
    }
    if (edits == 0) {
        assert_int_equal(few.class_count, 1);
    }
}

static void test_quotient_and_whole(void **state)
{
    (void)state;
    uint64_t random = ist_test_seed();
    for (uint32_t i = 0; i < CASES; ++i) {
        check_case(i, &random);
    }
}

/* No link may be asked for more than it can carry in the time that was found. */
static void test_time_covers_bytes(void **state)
{
    (void)state;
    uint64_t random = ist_test_seed() + 1;
    static cost_result result;
    for (uint32_t i = 0; i < CASES; ++i) {
        const cost_machine machine = machine_of(&shapes[i % SHAPES]);
        const cost_op op = draw_op(&machine, &random);
        assert_int_equal(cost_estimate(&machine, NULL, 0, &op, 1, false, &result), IST_OK);
        for (uint32_t kind = 0; kind < COST_RESOURCE_COUNT; ++kind) {
            assert_true(result.busiest_permille[kind] <= COST_PERMILLE);
        }
        assert_true(result.total_ps >= result.op[0].transfer_ps);
    }
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quotient_and_whole),
        cmocka_unit_test(test_time_covers_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
