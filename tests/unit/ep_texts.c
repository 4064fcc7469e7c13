/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an operation gets a shorter text only if it keeps to all that the text leaves out. Method: the
 * arguments of one that does, then each limit passed by one, by itself: the text for any operation.
 */
#include "ep/ep_args.h"
#include "ist_test.h"

#include <cmocka.h>
#include <string.h>

static ist_ep_op_args usual(uint32_t layout)
{
    ist_ep_op_args args;
    memset(&args, 0, sizeof(args));
    args.geometry.rank_count = IST_EP_FEW_RANKS;
    args.geometry.lsa_size = IST_EP_FEW_RANKS;
    args.geometry.block_count = IST_EP_FEW_RANKS;
    args.at.meta_bytes = IST_EP_CHUNK_BYTES / IST_EP_FEW_RANKS;
    args.halves = IST_EP_SEND | IST_EP_RECEIVE;
    args.topk = IST_EP_FEW_TOPK;
    args.row_bytes = 14336;
    args.layout = layout;
    return args;
}

static void limits_are_part_of_it(void **state)
{
    (void)state;
    ist_ep_op_args by_expert = usual(IST_EP_EXPERT_MAJOR);
    ist_ep_op_args by_rank = usual(IST_EP_RANK_MAJOR);
    assert_int_equal(ist_ep_text_for(&by_expert, 0), IST_EP_TEXT_BY_EXPERT);
    assert_int_equal(ist_ep_text_for(&by_rank, 0), IST_EP_TEXT_BY_RANK);
}

static void what_passes_one_gets_any(void **state)
{
    (void)state;
    ist_ep_op_args passes[8];
    for (uint32_t i = 0; i < 8; ++i) {
        passes[i] = usual(i % 2u ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR);
    }
    passes[0].geometry.rank_count =
        IST_EP_FEW_RANKS + 1u; /* more ranks, of one team, with blocks */
    passes[0].geometry.lsa_size = IST_EP_FEW_RANKS + 1u;
    passes[0].geometry.block_count = IST_EP_FEW_RANKS + 1u;
    passes[0].at.meta_bytes = 128;
    passes[1].geometry.lsa_size = IST_EP_FEW_RANKS / 2u; /* a network */
    passes[2].geometry.block_count = IST_EP_FEW_RANKS - 1u;
    passes[3].at.meta_bytes += 16; /* metadata of all ranks does not fit */
    passes[4].at.work_bytes = 128;
    passes[5].halves = IST_EP_SEND;
    passes[6].topk = IST_EP_FEW_TOPK + 1u;
    passes[7].row_bytes += 8;
    for (uint32_t i = 0; i < 8; ++i) {
        assert_int_equal(ist_ep_text_for(&passes[i], 0), IST_EP_TEXT_ANY);
    }
    ist_ep_op_args staged = usual(IST_EP_EXPERT_MAJOR);
    assert_int_equal(ist_ep_text_for(&staged, 1), IST_EP_TEXT_ANY);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits_are_part_of_it),
                                       cmocka_unit_test(what_passes_one_gets_any)};
    ist_test_init(argc, argv);
    return cmocka_run_group_tests_name("ep texts", tests, NULL, NULL);
}
