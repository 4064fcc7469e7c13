/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits: constants are found again in timings that the model itself made, held-out worlds are
 * predicted, tables that are wrong are refused, and the public table is predicted as well as the
 * project promises (read in place; the test says when it is not there).
 */
#include "cost_profile.h"

#include "ist_test.h"

#include <isthmus/unstable/whatif.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_BYTES ((size_t)16 << 20)
#define MEDIAN_MAX 100000u /* millionths */
#define P90_MAX 250000u

static const char header[] =
    "id,system,hardware,n_gpus,gpus_per_node,lsa_domain_size,n_nodes,op,algo_or_mode,"
    "dtype_dispatch,dtype_combine,tokens_per_rank,hidden,topk,experts,bytes,metric,value,"
    "bw_convention,notes\n";

static char *table;

static int make_table(void **state)
{
    (void)state;
    table = malloc(TABLE_BYTES);
    return table == NULL ? -1 : 0;
}

static int free_table(void **state)
{
    (void)state;
    free(table);
    return 0;
}

/* What the model says with these constants, as a table. */
static size_t write_model(const cost_knobs *knobs)
{
    size_t at = (size_t)snprintf(table, TABLE_BYTES, "%s", header);
    static cost_result result;
    for (uint32_t nodes = 1; nodes <= 8; nodes *= 2) {
        const cost_machine machine = {
            .node_count = nodes, .gpus_per_node = 8, .domain = 8, .nics_per_node = 8};
        for (uint64_t bytes = 1024; bytes <= UINT64_C(1) << 30; bytes *= 4) {
            const cost_op op = {.kind = COST_ALL_TO_ALL, .bytes = bytes, .knobs = *knobs};
            assert_int_equal(cost_estimate(&machine, NULL, 0, &op, 1, false, &result), IST_OK);
            at += (size_t)snprintf(table + at, TABLE_BYTES - at,
                                   "made/n%u/%" PRIu64 ",s,H100,%u,8,8,%u,alltoall,x,,,,,,,%" PRIu64
                                   ",time_us,%.4f,,\n",
                                   nodes, bytes, nodes * 8, nodes, bytes,
                                   (double)result.total_ps / 1e6);
        }
    }
    return at;
}

static void test_finds_constants_again(void **state)
{
    (void)state;
    cost_knobs knobs = cost_knobs_default();
    knobs.value[COST_overhead_ps] = 9000000;
    knobs.value[COST_lsa_bytes_per_s] = 310000000000;
    knobs.value[COST_net_bytes_per_s] = 39000000000;
    const size_t bytes = write_model(&knobs);
    ist_fit *fit = NULL;
    const ist_fit_desc desc = {
        .size = sizeof desc, .mode = IST_FIT_CROSS, .points = table, .bytes = bytes};
    assert_int_equal(ist_fit_open(&desc, &fit), IST_OK);
    ist_fit_info info = {.size = sizeof info};
    assert_int_equal(ist_fit_query(fit, &info), IST_OK);
    ist_fit_close(fit);
    assert_int_equal(info.used_count, 44);
    assert_int_equal(info.world.series, 4);
    assert_true(info.world.median < 30000);
    const ist_fit_desc profile_desc = {
        .size = sizeof profile_desc, .points = table, .bytes = bytes};
    assert_int_equal(ist_fit_open(&profile_desc, &fit), IST_OK);
    size_t needed = 0;
    assert_int_equal(ist_fit_print(fit, IST_FIT_TEXT_PROFILE, NULL, 0, &needed), IST_OK);
    char *text = malloc(needed);
    assert_non_null(text);
    assert_int_equal(ist_fit_print(fit, IST_FIT_TEXT_PROFILE, text, needed, NULL), IST_OK);
    ist_fit_close(fit);
    cost_profile profile;
    assert_int_equal(cost_profile_parse(text, needed - 1, &profile), IST_OK);
    assert_int_equal(profile.op_count, 1);
    const uint64_t *found = profile.op[0].knobs.value;
    assert_in_range(found[COST_net_bytes_per_s], 38000000000, 40000000000);
    assert_in_range(found[COST_lsa_bytes_per_s], 295000000000, 325000000000);
    assert_int_equal(profile.op[0].ranks_high, 64);
    assert_true(profile.op[0].residual_permille < 20);
    cost_profile_free(&profile);
    free(text);
}

static void expect_parse(const char *text, const char *part)
{
    ist_fit *fit = NULL;
    ist_error error = {.size = sizeof error};
    const ist_fit_desc desc = {.size = sizeof desc, .points = text, .bytes = strlen(text)};
    assert_int_equal(ist_fit_open(&desc, &fit), IST_ERR_PARSE);
    assert_int_equal(ist_error_last(&error), IST_OK);
    assert_non_null(strstr(error.message, part));
}

static void test_bad_tables(void **state)
{
    (void)state;
    char text[2048];
    expect_parse("", "line 1");
    expect_parse("id,op\n", "n_gpus");
    expect_parse("{\"curves\": {}}", "curves");
    expect_parse("{", "JSON");
    (void)snprintf(text, sizeof text, "%sa/b/c,,,8,8,8,1,allreduce,,,,,,,,1024,time_us,fast,,\n",
                   header);
    expect_parse(text, "line 2: value is \"fast\"");
    (void)snprintf(text, sizeof text, "%sa/b/c,,,8,8,8,1,allreduce,,,,,,,,1024,furlongs,3,,\n",
                   header);
    expect_parse(text, "line 2: metric is \"furlongs\"");
    (void)snprintf(text, sizeof text,
                   "%s\"a,\"\"b\"\"/c\",,,8,8,8,1,allreduce,,,,,,,,1024,time_us,-1,,\n", header);
    expect_parse(text, "value");
}

static size_t read_points(void)
{
    char path[1024];
    const char *source = getenv("IST_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/../shared/data/points.csv",
                   source == NULL ? "." : source);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    const size_t bytes = fread(table, 1, TABLE_BYTES, file);
    (void)fclose(file);
    return bytes;
}

static void test_public_table(void **state)
{
    (void)state;
    const size_t bytes = read_points();
    if (bytes == 0) {
        print_message("no ../shared/data/points.csv beside the repository: not checked\n");
        skip();
    }
    ist_fit *fit = NULL;
    const ist_fit_desc desc = {
        .size = sizeof desc, .mode = IST_FIT_CROSS, .points = table, .bytes = bytes};
    assert_int_equal(ist_fit_open(&desc, &fit), IST_OK);
    ist_fit_info info = {.size = sizeof info};
    assert_int_equal(ist_fit_query(fit, &info), IST_OK);
    ist_fit_close(fit);
    print_message("%u points, %u series; world sizes left out: %u series, median %.1f %%, 90th "
                  "percentile %.1f %%; all: %u series, %.1f %%, %.1f %%\n",
                  info.used_count, info.series_count, info.world.series, info.world.median / 1e4,
                  info.world.p90 / 1e4, info.all.series, info.all.median / 1e4, info.all.p90 / 1e4);
    assert_true(info.world.series >= 20);
    assert_true(info.world.median <= MEDIAN_MAX);
    assert_true(info.world.p90 <= P90_MAX);
    assert_true(info.all.median <= MEDIAN_MAX);
    assert_true(info.all.p90 <= P90_MAX);
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_constants_again),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_public_table),
    };
    return cmocka_run_group_tests(tests, make_table, free_table);
}
