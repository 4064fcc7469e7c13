/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: coops, scratch, atomics and rows do what the device header says, for all types and odd
 * sizes. Method: kernels against plain loops on the host; f16 and bf16 rounding against a search of
 * the nearest value among all.
 */
#include "ist_test.h"
#include "test_kernels.h"

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OUT_BYTES (1u << 20)

static const ist_test_setup setup = {.out_bytes = OUT_BYTES, .no_dev = 1};

static ist_status upload(ist_test_rank *test, size_t at, const void *host, size_t bytes)
{
    EXPECT_OK(test->world, ist_copy_to_device(test->stream, test->out + at, host, bytes));
    return IST_OK;
}

static ist_status download(ist_test_rank *test, size_t at, void *host, size_t bytes)
{
    EXPECT_OK(test->world, ist_copy_to_host(test->stream, host, test->out + at, bytes));
    return IST_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static ist_status check_blocks(ist_test_rank *test, uint32_t blocks)
{
    uint64_t out[2 * 64 + 2] = {0};
    tk_blocks_args args = {.out = (uint64_t *)(void *)test->out,
                           .meet = (uint64_t *)(void *)(test->out + 8192),
                           .values = (uint64_t *)(void *)(test->out + 16384),
                           .rounds = 5};
    EXPECT_OK(test->world, ist_fill(test->stream, test->out, 0, 32768));
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_blocks, blocks, &args, sizeof(args)));
    IST_TEST_PASS_ON(download(test, 0, out, (2 * blocks + 2) * sizeof(*out)));
    for (uint32_t i = 0; i < blocks; ++i) {
        EXPECT_EQUAL(test->world, out[2 * i], i);
        EXPECT_EQUAL(test->world, out[2 * i + 1], blocks);
    }
    EXPECT_EQUAL(test->world, out[2 * blocks], 0);
    EXPECT_EQUAL(test->world, out[2 * blocks + 1], blocks);
    return IST_OK;
}

static ist_status blocks_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    uint32_t most = test.info.sm_count < 64 ? test.info.sm_count : 64;
    IST_TEST_PASS_ON(check_blocks(&test, 1));
    IST_TEST_PASS_ON(check_blocks(&test, most < 7 ? most : 7));
    IST_TEST_PASS_ON(check_blocks(&test, most));
    uint64_t sum = 0;
    tk_count_args count = {.word = (uint64_t *)(void *)test.out, .times = 9};
    EXPECT_OK(world, ist_fill(test.stream, test.out, 0, 8));
    IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_count, most, &count, sizeof(count)));
    IST_TEST_PASS_ON(download(&test, 0, &sum, sizeof(sum)));
    EXPECT_EQUAL(world, sum, 9u * most);
    EXPECT_REFUSED(world,
                   ist_launch(test.stream, &ist_kernel_tk_count, test.info.sm_count + 1, &count,
                              sizeof(count)),
                   IST_ERR_RANGE, "block_count");
    return ist_test_rank_close(&test, false);
}

static void blocks_know_themselves_and_meet(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(2), NULL, blocks_main, NULL), IST_OK);
}

static ist_status scratch_main(ist_world *world, void *arg)
{
    ist_test_rank test;
    uint64_t out[8] = {0};
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    tk_scratch_args scratch = {.out = (uint64_t *)(void *)test.out, .bytes_a_slot = 8192};
    IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_scratch, 3, &scratch, sizeof(scratch)));
    IST_TEST_PASS_ON(download(&test, 0, out, sizeof(out)));
    EXPECT_EQUAL(world, out[0], 0);
    EXPECT_EQUAL(world, out[1], 0);
    EXPECT_EQUAL(world, out[2], 0);
    tk_atomics_args atomics = {.words = (uint64_t *)(void *)(test.out + 4096),
                               .out = (uint64_t *)(void *)test.out};
    IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_atomics, 1, &atomics, sizeof(atomics)));
    IST_TEST_PASS_ON(download(&test, 0, out, sizeof(out)));
    EXPECT_EQUAL(world, out[0], 0);
    EXPECT_EQUAL(world, out[1], 5);
    EXPECT_EQUAL(world, out[2], 0xff00ff);
    EXPECT_EQUAL(world, out[3], 0);
    EXPECT_EQUAL(world, out[4], 0);
    EXPECT_EQUAL(world, out[5], 8);
    EXPECT_EQUAL(world, out[6], 0x12345678);
    EXPECT_EQUAL(world, out[7], 0);
    uint64_t words[3] = {0};
    IST_TEST_PASS_ON(download(&test, 4096, words, sizeof(words)));
    EXPECT_EQUAL(world, words[0], 4);
    EXPECT_EQUAL(world, words[1], 0xff00ff & 0x0f00f0);
    EXPECT_EQUAL(world, words[2], 8);
    return ist_test_rank_close(&test, false);
}

static void scratch_and_atomics(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, scratch_main, NULL), IST_OK);
}

/* ---- scan and rank by key -------------------------------------------------------------------- */

#define SCAN_MAX 2000u

static ist_status check_scan(ist_test_rank *test, uint32_t count, uint64_t *random)
{
    uint32_t in[SCAN_MAX + 1] = {0};
    uint32_t out[SCAN_MAX + 1] = {0};
    for (uint32_t i = 0; i < count; ++i) {
        in[i] = ist_test_random_below(random, 100000);
    }
    IST_TEST_PASS_ON(upload(test, 0, in, sizeof(in)));
    tk_scan_args args = {.in = (uint32_t *)(void *)test->out,
                         .out = (uint32_t *)(void *)(test->out + 65536),
                         .count = count};
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_scan, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(download(test, 65536, out, sizeof(out)));
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
        EXPECT_EQUAL(test->world, out[i], sum);
        sum += in[i];
    }
    EXPECT_EQUAL(test->world, out[count], sum);
    return IST_OK;
}

static ist_status check_ranking(ist_test_rank *test, uint32_t count, uint32_t key_count,
                                uint64_t *random)
{
    int32_t keys[SCAN_MAX] = {0};
    uint32_t ordinals[SCAN_MAX] = {0};
    uint32_t totals[64] = {0};
    for (uint32_t i = 0; i < count; ++i) {
        keys[i] = (int32_t)ist_test_random_below(random, key_count + 4) - 2;
    }
    IST_TEST_PASS_ON(upload(test, 0, keys, sizeof(keys)));
    EXPECT_OK(test->world, ist_fill(test->stream, test->out + 65536, 0xee, 65536));
    tk_rank_by_key_args args = {.keys = (int32_t *)(void *)test->out,
                                .ordinals = (uint32_t *)(void *)(test->out + 65536),
                                .totals = (uint32_t *)(void *)(test->out + 98304),
                                .count = count,
                                .key_count = key_count};
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_rank_by_key, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(download(test, 65536, ordinals, sizeof(ordinals)));
    IST_TEST_PASS_ON(download(test, 98304, totals, sizeof(totals)));
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t before = 0;
        for (uint32_t j = 0; j < i; ++j) {
            before += keys[j] == keys[i];
        }
        bool valid = keys[i] >= 0 && keys[i] < (int32_t)key_count;
        EXPECT_EQUAL(test->world, ordinals[i], valid ? before : UINT32_MAX);
    }
    for (uint32_t key = 0; key < key_count; ++key) {
        uint32_t have = 0;
        for (uint32_t i = 0; i < count; ++i) {
            have += keys[i] == (int32_t)key;
        }
        EXPECT_EQUAL(test->world, totals[key], have);
    }
    return IST_OK;
}

static ist_status scan_main(ist_world *world, void *arg)
{
    static const uint32_t counts[] = {0, 1, 2, 31, 32, 33, 127, 512, 1023, 1024, 1025, SCAN_MAX};
    uint64_t random = ist_test_seed();
    ist_test_rank test;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        IST_TEST_PASS_ON(check_scan(&test, counts[i], &random));
        IST_TEST_PASS_ON(check_ranking(&test, counts[i], 1, &random));
        IST_TEST_PASS_ON(check_ranking(&test, counts[i], 64, &random));
    }
    return ist_test_rank_close(&test, false);
}

static void scan_and_rank_by_key_match_loops(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, scan_main, NULL), IST_OK);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const uint64_t odd_sizes[] = {0,   1,   2,   3,    7,    8,    15,   16,   17,   31,
                                     32,  33,  63,  64,   65,   100,  127,  128,  255,  256,
                                     511, 513, 999, 1024, 2047, 4096, 4099, 7168, 14336};

static void fill_random(uint8_t *bytes, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; ++i) {
        bytes[i] = (uint8_t)ist_test_random(random);
    }
}

/* Source and target at odd addresses; the bytes around the target must stay. */
static ist_status check_row(ist_test_rank *test, uint64_t bytes, uint32_t shift, bool fill,
                            uint64_t *random)
{
    enum { ROOM = 16384, TARGET = 65536 };
    static uint8_t source[ROOM], before[ROOM], after[ROOM];
    fill_random(source, ROOM, random);
    fill_random(before, ROOM, random);
    IST_TEST_PASS_ON(upload(test, 0, source, ROOM));
    IST_TEST_PASS_ON(upload(test, TARGET, before, ROOM));
    uint32_t to = 64 + (shift * 5) % 16;
    tk_row_args args = {.dst = test->out + TARGET + to,
                        .src = test->out + shift,
                        .bytes = bytes,
                        .fill = fill,
                        .value = 0xa5};
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_row, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(download(test, TARGET, after, ROOM));
    for (uint32_t i = 0; i < bytes; ++i) {
        before[to + i] = fill ? 0xa5 : source[shift + i];
    }
    EXPECT(test->world, memcmp(before, after, ROOM) == 0);
    return IST_OK;
}

static ist_status check_row_many(ist_test_rank *test, uint32_t count, uint64_t bytes,
                                 uint64_t *random)
{
    enum { STEP = 16384 };
    static uint8_t source[STEP], target[STEP];
    tk_row_many_args args = {.src = test->out + (count % 3), .bytes = bytes, .count = count};
    fill_random(source, STEP, random);
    IST_TEST_PASS_ON(upload(test, 0, source, STEP));
    EXPECT_OK(test->world, ist_fill(test->stream, test->out + STEP, 0, OUT_BYTES - STEP));
    for (uint32_t i = 0; i < count; ++i) {
        args.dst[i] = test->out + (i + 1) * STEP + i % 5;
    }
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_row_many, 1, &args, sizeof(args)));
    for (uint32_t i = 0; i < count; ++i) {
        IST_TEST_PASS_ON(download(test, (i + 1) * STEP, target, STEP));
        EXPECT(test->world, memcmp(target + i % 5, source + count % 3, bytes) == 0);
        EXPECT_EQUAL(test->world, target[i % 5 + bytes], 0);
    }
    return IST_OK;
}

static ist_status rows_main(ist_world *world, void *arg)
{
    uint64_t random = ist_test_seed() + 1;
    ist_test_rank test;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (size_t i = 0; i < sizeof(odd_sizes) / sizeof(odd_sizes[0]); ++i) {
        for (uint32_t shift = 0; shift < 16; shift += 3) {
            IST_TEST_PASS_ON(check_row(&test, odd_sizes[i], shift, false, &random));
        }
        IST_TEST_PASS_ON(check_row(&test, odd_sizes[i], 1, true, &random));
        IST_TEST_PASS_ON(
            check_row_many(&test, (uint32_t)i % IST_ROW_TARGETS_MAX + 1, odd_sizes[i], &random));
    }
    IST_TEST_PASS_ON(check_row_many(&test, 0, 64, &random));
    IST_TEST_PASS_ON(check_row_many(&test, IST_ROW_TARGETS_MAX, 4099, &random));
    return ist_test_rank_close(&test, false);
}

static void rows_are_copied_and_filled_exactly(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, rows_main, NULL), IST_OK);
}

/* ---- row reduction --------------------------------------------------------------------------- */

/* A small float format: value of its bits, for positive finite bits in increasing order. */
typedef struct format {
    ist_dtype dtype;
    int fraction_bits, exponent_bits;
} format;

static const format formats[] = {{IST_F16, 10, 5}, {IST_BF16, 7, 8}};

static double format_value(const format *of, uint32_t bits)
{
    uint32_t fraction = bits & ((1u << of->fraction_bits) - 1u);
    int exponent = (int)((bits >> of->fraction_bits) & ((1u << of->exponent_bits) - 1u));
    int bias = (1 << (of->exponent_bits - 1)) - 1;
    int sign = (bits >> (of->fraction_bits + of->exponent_bits)) & 1u;
    double value;
    if (exponent == (1 << of->exponent_bits) - 1) {
        value = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        value = ldexp((double)fraction, 1 - bias - of->fraction_bits);
    } else {
        value = ldexp((double)(fraction | 1u << of->fraction_bits),
                      exponent - bias - of->fraction_bits);
    }
    return sign ? -value : value;
}

/* Nearest, ties to even; NaN: UINT32_MAX. Infinity stands one step behind the largest. */
static uint32_t format_nearest(const format *of, double value)
{
    if (isnan(value)) {
        return UINT32_MAX;
    }
    uint32_t sign = signbit(value) ? 1u << (of->fraction_bits + of->exponent_bits) : 0;
    uint32_t infinity = ((1u << of->exponent_bits) - 1u) << of->fraction_bits;
    double size = fabs(value);
    uint32_t low = 0, high = infinity;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if (format_value(of, middle) <= size) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = format_value(of, low);
    double step = below - format_value(of, low > 0 ? low - 1 : 0);
    double above = high == infinity ? below + step : format_value(of, high);
    if (isinf(size)) {
        return sign | infinity;
    }
    if (size - below < above - size || (size - below == above - size && low % 2 == 0)) {
        return sign | low;
    }
    return sign | high;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define ELEMENTS_MAX 700u

typedef struct reduction {
    uint32_t bits[TK_SOURCES_MAX][ELEMENTS_MAX]; /* of the elements, in their format */
    float weight[TK_SOURCES_MAX];
    uint32_t count, elements;
    bool weighted, batch;
    const format *of; /* NULL: f32 */
} reduction;

static const uint32_t special_f32[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000,
                                       0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                                       0x3f800000, 0x3f7fffff, 0x34000000, 0x38800000, 0x477fe000,
                                       0x477ff000, 0x33000000, 0x33000001, 0x3f808000, 0x3f818000};

static uint32_t random_bits(const format *of, uint64_t *random, bool special)
{
    uint32_t bits = (uint32_t)ist_test_random(random);
    if (of != NULL) {
        /* All bits are values of the format; most exponents stay near 1 so that sums matter. */
        uint32_t mask = (1u << of->exponent_bits) - 1u;
        uint32_t middle = (mask / 2 + bits % 5 - 2) << of->fraction_bits;
        uint32_t fraction = (bits >> 8) & ((1u << of->fraction_bits) - 1u);
        return special ? bits & 0xffffu : middle | fraction | ((bits >> 31) << 15);
    }
    if (special) {
        return special_f32[bits % (sizeof(special_f32) / sizeof(special_f32[0]))];
    }
    return f32_bits(((float)(int32_t)bits) / 1e9f);
}

static void reduction_random(reduction *made, uint64_t *random, bool special)
{
    for (uint32_t s = 0; s < made->count; ++s) {
        made->weight[s] =
            special && s == 1 ? -0.0f : (float)ist_test_random_below(random, 4000) / 1999.0f;
        for (uint32_t i = 0; i < made->elements; ++i) {
            made->bits[s][i] = random_bits(made->of, random, special);
        }
    }
}

static float element_f32(const reduction *made, uint32_t s, uint32_t i)
{
    return made->of != NULL ? (float)format_value(made->of, made->bits[s][i])
                            : f32_of(made->bits[s][i]);
}

static float expected_f32(const reduction *made, uint32_t i)
{
    float sum = 0.0f;
    for (uint32_t s = 0; s < made->count; ++s) {
        float value = element_f32(made, s, i);
        sum = made->weighted ? fmaf(value, made->weight[s], sum) : value + sum;
    }
    return sum;
}

static bool same_element(const reduction *made, uint32_t i, uint32_t observed)
{
    float sum = expected_f32(made, i);
    if (isnan(sum)) {
        return made->of != NULL ? isnan(format_value(made->of, observed))
                                : isnan(f32_of(observed)) != 0;
    }
    return observed == (made->of != NULL ? format_nearest(made->of, (double)sum) : f32_bits(sum));
}

static void pack(const reduction *made, uint32_t s, uint8_t *bytes)
{
    for (uint32_t i = 0; i < made->elements; ++i) {
        if (made->of == NULL) {
            memcpy(bytes + 4 * i, &made->bits[s][i], 4);
        } else {
            uint16_t half = (uint16_t)made->bits[s][i];
            memcpy(bytes + 2 * i, &half, 2);
        }
    }
}

static uint32_t unpack(const reduction *made, const uint8_t *bytes, uint32_t i)
{
    uint32_t bits = 0;
    uint16_t half = 0;
    if (made->of == NULL) {
        memcpy(&bits, bytes + 4 * i, 4);
        return bits;
    }
    memcpy(&half, bytes + 2 * i, 2);
    return half;
}

static ist_status check_reduction(ist_test_rank *test, const reduction *made, uint32_t shift)
{
    enum { STEP = 8192, DST = 524288 };
    static uint8_t row[STEP];
    uint32_t width = made->of != NULL ? 2 : 4;
    tk_row_reduce_args args = {.dst = test->out + DST + shift * width,
                               .elements = made->elements,
                               .count = made->count,
                               .weighted = made->weighted,
                               .batch = made->batch,
                               .dtype = made->of != NULL ? (uint32_t)made->of->dtype
                                                         : (uint32_t)IST_F32};
    for (uint32_t s = 0; s < made->count; ++s) {
        size_t at = s * STEP + (s % 3) * shift * width;
        args.src[s] = test->out + at;
        args.weight[s] = made->weight[s];
        pack(made, s, row);
        IST_TEST_PASS_ON(upload(test, at, row, (size_t)made->elements * width));
    }
    EXPECT_OK(test->world, ist_fill(test->stream, test->out + DST, 0xcc, STEP));
    IST_TEST_PASS_ON(ist_test_launch(test, &ist_kernel_tk_row_reduce, 1, &args, sizeof(args)));
    IST_TEST_PASS_ON(download(test, DST + shift * width, row, STEP - 64));
    for (uint32_t i = 0; i < made->elements; ++i) {
        if (!same_element(made, i, unpack(made, row, i))) {
            EXPECT_EQUAL(test->world, unpack(made, row, i), f32_bits(expected_f32(made, i)));
        }
    }
    EXPECT_EQUAL(test->world, row[(size_t)made->elements * width], 0xcc);
    return IST_OK;
}

static ist_status reduce_main(ist_world *world, void *arg)
{
    static const uint32_t sizes[] = {0, 1, 3, 7, 8, 9, 64, 65, 255, 513, ELEMENTS_MAX};
    uint64_t random = ist_test_seed() + 2;
    reduction *made = calloc(1, sizeof(*made));
    ist_test_rank test;
    ist_status status = IST_OK;
    (void)arg;
    EXPECT(world, made != NULL);
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    for (uint32_t i = 0; i < 3 * sizeof(sizes) / sizeof(sizes[0]) * 4 && status == IST_OK; ++i) {
        made->of = i % 3 == 2 ? NULL : &formats[i % 3];
        made->elements = sizes[(i / 3) % (sizeof(sizes) / sizeof(sizes[0]))];
        made->count = i == 5 ? 0 : 1 + ist_test_random_below(&random, TK_SOURCES_MAX);
        made->weighted = ist_test_random_below(&random, 2) != 0;
        made->batch = i / 2 % 2;
        reduction_random(made, &random, i % 4 == 3);
        status = check_reduction(&test, made, i % 5);
    }
    free(made);
    IST_TEST_PASS_ON(status);
    return ist_test_rank_close(&test, false);
}

static void rows_are_reduced_in_order_and_rounded_once(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, reduce_main, NULL), IST_OK);
}

static ist_status tagged_main(ist_world *world, void *arg)
{
    static const uint32_t counts[] = {1, 2, 31, 300};
    ist_test_rank test;
    (void)arg;
    IST_TEST_PASS_ON(ist_test_rank_open(world, &setup, &test));
    uint32_t blocks = test.info.sm_count < 7 ? test.info.sm_count : 7;
    for (uint32_t i = 0; i < 2 * sizeof(counts) / sizeof(counts[0]); ++i) {
        uint64_t out[3] = {0};
        tk_tagged_args args = {.words = (uint64_t *)(void *)(test.out + 4096),
                               .out = (uint64_t *)(void *)test.out,
                               .count = counts[i / 2],
                               .rounds = 4};
        EXPECT_OK(world, ist_fill(test.stream, test.out, 0, 65536));
        IST_TEST_PASS_ON(ist_test_launch(&test, &ist_kernel_tk_tagged, i % 2 == 0 ? 1 : blocks,
                                         &args, sizeof(args)));
        IST_TEST_PASS_ON(download(&test, 0, out, sizeof(out)));
        EXPECT_EQUAL(world, out[0], 0);
        EXPECT_EQUAL(world, out[1], 0);
    }
    return ist_test_rank_close(&test, false);
}

static void tagged_words_carry_their_data(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(1, NULL, tagged_main, NULL), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_know_themselves_and_meet),
        cmocka_unit_test(scratch_and_atomics),
        cmocka_unit_test(scan_and_rank_by_key_match_loops),
        cmocka_unit_test(rows_are_copied_and_filled_exactly),
        cmocka_unit_test(rows_are_reduced_in_order_and_rounded_once),
        cmocka_unit_test(tagged_words_carry_their_data),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
