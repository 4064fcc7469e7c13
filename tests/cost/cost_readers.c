/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of timings, profiles, operations and edits against texts that were damaged at random:
 * they answer or refuse, and what they make of it can be asked and printed.
 */
#include "ist_test.h"

#include <isthmus/unstable/whatif.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 4096u
#define ROUNDS_DEFAULT 400u

static const char timings[] =
    "id,hardware,n_gpus,gpus_per_node,lsa_domain_size,n_nodes,op,dtype_dispatch,tokens_per_rank,"
    "hidden,topk,experts,bytes,metric,value,bw_convention,notes\n"
    "a/x-n1/1,H100,8,8,8,1,allreduce,,,,,,1048576,time_us,30.5,,\n"
    "a/x-n2/1,H100,16,8,8,2,allreduce,,,,,,1048576,bw_GBs,20.25,busbw,\n"
    "a/e-ep8/1,GB200,8,4,8,2,ll_dispatch,bf16,128,7168,8,256,,time_us,31.7,,"
    "\"quoted, \"\"twice\"\"\"\n"
    "a/e-ep16/1,MI300X,16,8,8,2,ht_combine,fp8,4096,7168,8,256,,bw_GBs,43,logical RDMA,FLAG:x\n";

static const char profile[] =
    "{\"format\": \"isthmus-profile\", \"version\": 1, \"name\": \"p\","
    " \"machine\": {\"ranks\": 2, \"lsa_size\": 2},"
    " \"values\": {\"launch_ps\": {\"value\": 2500000, \"unit\": \"ps\", \"origin\": \"o\"}},"
    " \"curves\": {\"lsa_store\": {\"origin\": \"o\", \"points\": ["
    "{\"bytes\": 1048576, \"blocks\": 8, \"time_ps\": 3650000, \"rate\": 287280876712},"
    "{\"bytes\": 4194304, \"blocks\": 8, \"time_ps\": 12650000, \"rate\": 331565533596}]}},"
    " \"operations\": [{\"name\": \"n\", \"kind\": \"allreduce\", \"algorithm\": \"ring\","
    " \"origin\": \"o\", \"bytes\": [1, 1000000], \"ranks\": [2, 8], \"constants\": {"
    "\"overhead_ps\": 1, \"lsa_step_ps\": 2, \"net_step_ps\": 3, \"message_ps\": 4, \"row_ps\": 5,"
    " \"lsa_bytes_per_s\": 6000000000, \"net_bytes_per_s\": 7000000000,"
    " \"local_bytes_per_s\": 8000000000}, \"curve\": [{\"bytes\": 8, \"permille\": 900}]}]}";

static const char *const numbers[] = {
    "0", "-1",  "1e18",  "18446744073709551615", "nan", "99999999",
    "",  "7.5", "65536", "1000000000000000"};

/* Up to four damages: a byte, a cut, a doubled piece, another number. Returns the new length. */
static size_t damage(char *text, size_t length, uint64_t *random)
{
    for (uint32_t count = 1 + ist_test_random_below(random, 4); count > 0 && length > 1; --count) {
        const size_t at = ist_test_random_below(random, (uint32_t)length);
        size_t span = ist_test_random_below(random, 24);
        span = at + span < length ? span : 0;
        switch (ist_test_random_below(random, 4)) {
        case 0: text[at] = (char)ist_test_random_below(random, 256); break;
        case 1:
            memmove(text + at, text + at + span, length - at - span);
            length -= span;
            break;
        case 2:
            if (length + span < TEXT_BYTES) {
                memmove(text + at + span, text + at, length - at);
                length += span;
            }
            break;
        default: {
            const char *number = numbers[ist_test_random_below(random, 10)];
            const size_t digits = strlen(number);
            if (at + digits < length) {
                memcpy(text + at, number, digits);
            }
        }
        }
    }
    return length;
}

static void try_fit(const char *text, size_t length, ist_fit_mode mode)
{
    ist_fit *fit = NULL;
    const ist_fit_desc desc = {.size = sizeof desc, .mode = mode, .points = text, .bytes = length};
    const ist_status status = ist_fit_open(&desc, &fit);
    if (status != IST_OK) {
        assert_true(status == IST_ERR_PARSE || status == IST_ERR_UNSUPPORTED ||
                    status == IST_ERR_RANGE);
        return;
    }
    size_t needed = 0;
    const ist_fit_text what = mode == IST_FIT_PROFILE ? IST_FIT_TEXT_PROFILE : IST_FIT_TEXT_POINTS;
    assert_int_equal(ist_fit_print(fit, what, NULL, 0, &needed), IST_OK);
    char *printed = malloc(needed);
    assert_non_null(printed);
    assert_int_equal(ist_fit_print(fit, what, printed, needed, NULL), IST_OK);
    ist_fit_close(fit);
    if (mode == IST_FIT_PROFILE) {
        ist_profile *made = NULL;
        assert_int_equal(ist_profile_parse(printed, needed - 1, &made), IST_OK);
        ist_profile_close(made);
    }
    free(printed);
}

static void try_profile(const char *text, size_t length)
{
    ist_profile *read = NULL;
    if (ist_profile_parse(text, length, &read) != IST_OK) {
        return;
    }
    ist_group *group = NULL;
    ist_op_desc op;
    ist_estimate estimate = {.size = sizeof estimate};
    const ist_group_desc desc = {.size = sizeof desc, .cluster = "2x4", .profile = read};
    assert_int_equal(ist_group_begin(&desc, &group), IST_OK);
    assert_int_equal(ist_op_parse("allreduce,bytes=1MiB,algorithm=ring", &op), IST_OK);
    assert_int_equal(ist_group_add(group, &op), IST_OK);
    assert_int_equal(ist_op_parse("sendrecv,bytes=1MiB,blocks=3", &op), IST_OK);
    assert_int_equal(ist_group_add(group, &op), IST_OK);
    assert_int_equal(ist_group_end(group, IST_GROUP_SIMULATE, &estimate), IST_OK);
    ist_profile_close(read);
}

static uint32_t rounds;

static void test_damaged_texts(void **state)
{
    (void)state;
    uint64_t random = ist_test_seed();
    static char text[TEXT_BYTES];
    for (uint32_t i = 0; i < rounds; ++i) {
        const bool table = ist_test_random_below(&random, 2) == 0;
        const size_t length = table ? sizeof timings - 1 : sizeof profile - 1;
        memcpy(text, table ? timings : profile, length);
        const size_t left = damage(text, length, &random);
        try_fit(text, left,
                ist_test_random_below(&random, 2) == 0 ? IST_FIT_PROFILE : IST_FIT_CROSS);
        try_profile(text, left);
    }
}

static void test_random_words(void **state)
{
    (void)state;
    static const char letters[] = "allreduc,bytes=12KiBdropnichalf:/ 0xep";
    uint64_t random = ist_test_seed() + 1;
    char text[64];
    for (uint32_t i = 0; i < 50 * rounds; ++i) {
        const uint32_t length = ist_test_random_below(&random, sizeof text);
        for (uint32_t j = 0; j < length; ++j) {
            text[j] = letters[ist_test_random_below(&random, sizeof letters - 1)];
        }
        text[length] = '\0';
        ist_op_desc op;
        ist_edit edit;
        const ist_status of_op = ist_op_parse(text, &op);
        const ist_status of_edit = ist_edit_parse(text, &edit);
        assert_true(of_op == IST_OK || of_op == IST_ERR_PARSE);
        assert_true(of_edit == IST_OK || of_edit == IST_ERR_PARSE);
    }
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    rounds = ist_test_option(argc, argv, "--rounds", ROUNDS_DEFAULT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_texts),
        cmocka_unit_test(test_random_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
