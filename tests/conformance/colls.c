/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: native collectives give exact results, alone, in groups and in graphs; refuse what is wrong
 * before anything is enqueued; and end, with a reason, when a rank does not come. Method: small whole
 * numbers, exact in every type and order, against plain loops over all ranks' data.
 */
#include "ist_test.h"

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4u
#define COUNT_MAX 5000u
#define GUARD 64u
#define POISON 0xeeu

typedef struct buffers {
    ist_test_rank test;
    uint8_t *send, *recv; /* device, room for RANKS shares of the widest type, and the guard */
    uint8_t *host;        /* as large */
    size_t bytes;
} buffers;

static const ist_test_setup setup = {.no_dev = 1};

/* ---- numbers --------------------------------------------------------------------------------- */

static const ist_dtype dtypes[] = {IST_U8,  IST_I8,  IST_I32,  IST_U32, IST_I64,    IST_U64,
                                   IST_F16, IST_F32, IST_BF16, IST_F64, IST_F8E4M3, IST_F8E5M2};

/* Exact in all types: 0, 1 or 2. */
static double value_of(uint32_t rank, uint64_t at)
{
    return (double)((rank * 7u + at * 3u + (at >> 4)) % 3u);
}

/* A number >= 0 that the type has exactly. */
static uint32_t small_bits(double value, uint32_t exponent_bits, uint32_t fraction_bits)
{
    int exponent = 0;
    const double half = frexp(value, &exponent);
    const uint32_t bias = (1u << (exponent_bits - 1u)) - 1u;
    if (value <= 0) {
        return 0;
    }
    const uint32_t fraction = (uint32_t)((2 * half - 1) * (1u << fraction_bits));
    return (uint32_t)(exponent - 1 + (int)bias) << fraction_bits | fraction;
}

static void put(uint8_t *at, uint64_t index, ist_dtype dtype, double value)
{
    const size_t unit = ist_dtype_bytes(dtype);
    const float narrow = (float)value;
    uint64_t bits = (uint64_t)value;
    switch (dtype) {
    case IST_F16: bits = small_bits(value, 5, 10); break;
    case IST_BF16: bits = small_bits(value, 8, 7); break;
    case IST_F8E4M3: bits = small_bits(value, 4, 3); break;
    case IST_F8E5M2: bits = small_bits(value, 5, 2); break;
    case IST_F32: memcpy(&bits, &narrow, sizeof(narrow)); break;
    case IST_F64: memcpy(&bits, &value, sizeof(value)); break;
    case IST_DTYPE_UNSET:
    case IST_U8:
    case IST_I8:
    case IST_I32:
    case IST_U32:
    case IST_I64:
    case IST_U64: break;
    }
    memcpy(at + index * unit, &bits, unit);
}

static bool is_float(ist_dtype dtype)
{
    return dtype == IST_F16 || dtype == IST_BF16 || dtype == IST_F32 || dtype == IST_F64 ||
           dtype == IST_F8E4M3 || dtype == IST_F8E5M2;
}

/* All ranks' elements `at`, combined. PREMUL: each rank's factor is 1 or 2. */
static double combined(uint32_t ranks, uint64_t at, ist_dtype dtype, ist_reduction reduction)
{
    double result = value_of(0, at);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        const double value = value_of(rank, at);
        switch (reduction) {
        case IST_REDUCE_SUM:
        case IST_REDUCE_AVG: result = rank == 0 ? value : result + value; break;
        case IST_REDUCE_PROD: result = rank == 0 ? value : result * value; break;
        case IST_REDUCE_MAX: result = fmax(result, value); break;
        case IST_REDUCE_MIN: result = fmin(result, value); break;
        case IST_REDUCE_PREMUL: result = (rank == 0 ? 0 : result) + value * (1 + rank % 2u); break;
        }
    }
    if (reduction == IST_REDUCE_AVG) {
        result = is_float(dtype) ? result / ranks : floor(result / ranks);
    }
    return result;
}

/* ---- one call -------------------------------------------------------------------------------- */

typedef enum kind {
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    KINDS
} kind;

typedef struct shape {
    kind kind;
    uint64_t count;
    ist_dtype dtype;
    ist_reduction reduction;
    uint32_t root;
    bool in_place;
} shape;

static uint64_t send_count(const shape *of, uint32_t ranks)
{
    return of->kind == REDUCE_SCATTER || of->kind == ALL_TO_ALL ? of->count * ranks : of->count;
}

static uint64_t recv_count(const shape *of, uint32_t ranks)
{
    return of->kind == ALL_GATHER || of->kind == ALL_TO_ALL ? of->count * ranks : of->count;
}

static ist_status call(const buffers *b, const shape *of, const void *send, void *recv)
{
    ist_comm *comm = b->test.comm;
    ist_stream *stream = b->test.stream;
    switch (of->kind) {
    case ALL_REDUCE:
        return ist_all_reduce(comm, stream, send, recv, of->count, of->dtype, of->reduction);
    case BROADCAST: return ist_broadcast(comm, stream, send, recv, of->count, of->dtype, of->root);
    case REDUCE:
        return ist_reduce(comm, stream, send, recv, of->count, of->dtype, of->reduction, of->root);
    case ALL_GATHER: return ist_all_gather(comm, stream, send, recv, of->count, of->dtype);
    case REDUCE_SCATTER:
        return ist_reduce_scatter(comm, stream, send, recv, of->count, of->dtype, of->reduction);
    case ALL_TO_ALL: return ist_all_to_all(comm, stream, send, recv, of->count, of->dtype);
    case KINDS: break;
    }
    return IST_ERR_ARGUMENT;
}

/* What element `at` of the output of `rank` must be; NaN: it is not written. */
static double expected_of(const buffers *b, const shape *of, uint64_t at)
{
    const uint32_t ranks = b->test.rank_count, rank = b->test.rank;
    switch (of->kind) {
    case ALL_REDUCE: return combined(ranks, at, of->dtype, of->reduction);
    case BROADCAST: return value_of(of->root, at);
    case REDUCE: return rank == of->root ? combined(ranks, at, of->dtype, of->reduction) : NAN;
    case ALL_GATHER: return value_of((uint32_t)(at / of->count), at % of->count);
    case REDUCE_SCATTER: return combined(ranks, rank * of->count + at, of->dtype, of->reduction);
    case ALL_TO_ALL: return value_of((uint32_t)(at / of->count), rank * of->count + at % of->count);
    case KINDS: break;
    }
    return NAN;
}

/* Where send and receive buffer are in place; the smaller lies in the larger. */
static void place(const buffers *b, const shape *of, uint8_t **send, uint8_t **recv)
{
    const uint64_t before = b->test.rank * of->count * ist_dtype_bytes(of->dtype);
    *send = b->send;
    *recv = b->recv;
    if (of->in_place) {
        *recv = of->kind == REDUCE_SCATTER ? *send + before : *recv;
        *send =
            of->kind == ALL_GATHER ? *recv + before : (of->kind == REDUCE_SCATTER ? *send : *recv);
    }
}

static ist_status prepare(buffers *b, const shape *of, uint8_t *send)
{
    ist_world *world = b->test.world;
    const uint64_t count = send_count(of, b->test.rank_count);
    EXPECT_OK(world, ist_fill(b->test.stream, b->recv, POISON, b->bytes));
    for (uint64_t i = 0; i < count; ++i) {
        put(b->host, i, of->dtype, value_of(b->test.rank, i));
    }
    EXPECT_OK(world, ist_copy_to_device(b->test.stream, send, b->host,
                                        count * ist_dtype_bytes(of->dtype)));
    return IST_OK;
}

static ist_status verify(buffers *b, const shape *of, const uint8_t *recv)
{
    ist_world *world = b->test.world;
    const size_t unit = ist_dtype_bytes(of->dtype);
    const uint64_t count = recv_count(of, b->test.rank_count);
    const bool before = of->in_place && (of->kind == REDUCE || of->kind == REDUCE_SCATTER);
    EXPECT_OK(world, ist_copy_to_host(b->test.stream, b->host, recv, count * unit + GUARD));
    for (uint64_t i = 0; i < count; ++i) {
        const double expected = expected_of(b, of, i);
        uint8_t bytes[8];
        if (isnan(expected)) {
            memset(bytes, POISON, sizeof(bytes));
        } else {
            put(bytes, 0, of->dtype, expected);
        }
        if (isnan(expected) && before) {
            continue; /* it is the input */
        }
        if (memcmp(bytes, b->host + i * unit, unit) != 0) {
            printf(
                "# kind %d, count %u, dtype %d, reduction %d, root %u, in place %d: element %u\n",
                (int)of->kind, (unsigned)of->count, (int)of->dtype, (int)of->reduction, of->root,
                of->in_place, (unsigned)i);
        }
        EXPECT_EQUAL(world, memcmp(bytes, b->host + i * unit, unit), 0);
    }
    for (uint32_t i = 0; i < GUARD && !of->in_place; ++i) {
        EXPECT_EQUAL(world, b->host[count * unit + i], POISON);
    }
    return IST_OK;
}

static ist_status run_shape(buffers *b, const shape *of)
{
    uint8_t *send = NULL, *recv = NULL;
    place(b, of, &send, &recv);
    IST_TEST_PASS_ON(prepare(b, of, send));
    EXPECT_OK(b->test.world, call(b, of, send, recv));
    return verify(b, of, recv);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ist_status open_buffers(ist_world *world, const ist_test_setup *with, buffers *b)
{
    void *memory = NULL;
    memset(b, 0, sizeof(*b));
    IST_TEST_PASS_ON(ist_test_rank_open(world, with, &b->test));
    b->bytes = (size_t)b->test.rank_count * COUNT_MAX * 8u + GUARD;
    EXPECT_OK(world, ist_mem_alloc(world, b->bytes, IST_MEM_PLAIN, &memory));
    b->send = memory;
    EXPECT_OK(world, ist_mem_alloc(world, b->bytes, IST_MEM_PLAIN, &memory));
    b->recv = memory;
    b->host = calloc(1, b->bytes);
    EXPECT(world, b->host != NULL);
    EXPECT_OK(world, ist_coll_open(b->test.comm));
    return IST_OK;
}

static ist_status close_buffers(buffers *b, bool alone)
{
    ist_world *world = b->test.world;
    free(b->host);
    EXPECT_OK(world, ist_mem_free(world, b->send));
    EXPECT_OK(world, ist_mem_free(world, b->recv));
    return ist_test_rank_close(&b->test, alone);
}

/* ---- results --------------------------------------------------------------------------------- */

static ist_status types_main(ist_world *world, void *arg)
{
    buffers b;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    for (uint32_t t = 0; t < sizeof(dtypes) / sizeof(dtypes[0]); ++t) {
        for (uint32_t op = IST_REDUCE_SUM; op <= IST_REDUCE_AVG; ++op) {
            for (uint32_t k = 0; k < KINDS; ++k) {
                if (op > IST_REDUCE_SUM && k != ALL_REDUCE && k != REDUCE && k != REDUCE_SCATTER) {
                    continue;
                }
                const shape of = {.kind = (kind)k,
                                  .count = 37,
                                  .dtype = dtypes[t],
                                  .reduction = (ist_reduction)op,
                                  .root = (t + k) % b.test.rank_count};
                IST_TEST_PASS_ON(run_shape(&b, &of));
            }
        }
    }
    EXPECT_OK(world, ist_coll_status(b.test.comm));
    return close_buffers(&b, false);
}

static ist_status sizes_main(ist_world *world, void *arg)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 16, 1000, COUNT_MAX};
    buffers b;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]); ++c) {
        for (uint32_t k = 0; k < KINDS; ++k) {
            for (uint32_t in_place = 0; in_place < (k == ALL_TO_ALL ? 1u : 2u); ++in_place) {
                for (uint32_t root = 0; root < b.test.rank_count; ++root) {
                    const shape of = {.kind = (kind)k,
                                      .count = counts[c],
                                      .dtype = (c + k) % 2u != 0 ? IST_F32 : IST_BF16,
                                      .root = root,
                                      .in_place = in_place != 0};
                    IST_TEST_PASS_ON(run_shape(&b, &of));
                }
            }
        }
    }
    return close_buffers(&b, false);
}

static ist_status premul_main(ist_world *world, void *arg)
{
    buffers b;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    for (uint32_t t = 0; t < sizeof(dtypes) / sizeof(dtypes[0]); ++t) {
        uint8_t factor[8];
        shape of = {.kind = ALL_REDUCE, .count = 300, .dtype = dtypes[t]};
        put(factor, 0, dtypes[t], 1 + b.test.rank % 2u);
        if (b.test.rank_count > 2 && dtypes[t] == IST_F8E5M2) {
            continue; /* sums above 8 are not exact */
        }
        EXPECT_OK(world, ist_reduction_open(b.test.comm, dtypes[t], factor, &of.reduction));
        const ist_reduction opened = of.reduction;
        EXPECT(world, opened >= IST_REDUCE_PREMUL);
        uint8_t *send = NULL, *recv = NULL;
        place(&b, &of, &send, &recv);
        IST_TEST_PASS_ON(prepare(&b, &of, send));
        EXPECT_OK(world, call(&b, &of, send, recv));
        EXPECT_OK(world, ist_reduction_close(b.test.comm, opened)); /* calls keep it */
        of.reduction = IST_REDUCE_PREMUL;
        IST_TEST_PASS_ON(verify(&b, &of, recv));
        EXPECT_REFUSED(world, ist_reduction_close(b.test.comm, opened), IST_ERR_ARGUMENT,
                       "reduction");
        of.reduction = opened;
        EXPECT_REFUSED(world, call(&b, &of, send, recv), IST_ERR_ARGUMENT, "reduction");
    }
    return close_buffers(&b, false);
}

static void every_type_and_reduction_is_exact(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, types_main, NULL), IST_OK);
}

static void every_size_and_place_is_exact(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, sizes_main, NULL), IST_OK);
    if (ist_test_has_cluster("2x2")) {
        assert_int_equal(ist_test_run(ist_test_ranks(RANKS), "2x2", sizes_main, NULL), IST_OK);
    }
}

static void a_factor_of_each_rank(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, premul_main, NULL), IST_OK);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Every rank sends to the next, and to itself, in one group; twice to one peer in order. */
static ist_status ring_main(ist_world *world, void *arg)
{
    buffers b;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    const ist_test_rank *test = &b.test;
    const uint32_t next = (test->rank + 1) % test->rank_count;
    const uint32_t last = (test->rank + test->rank_count - 1) % test->rank_count;
    uint32_t words[4] = {test->rank * 10 + 1, test->rank * 10 + 2, test->rank * 10 + 3, 0};
    uint32_t *send = (uint32_t *)(void *)b.send, *recv = (uint32_t *)(void *)b.recv;
    EXPECT_OK(world, ist_copy_to_device(test->stream, send, words, sizeof(words)));
    EXPECT_OK(world, ist_coll_group_begin(world));
    EXPECT_OK(world, ist_send(test->comm, test->stream, send, 1, IST_U32, next));
    EXPECT_OK(world, ist_coll_group_begin(world)); /* an inner end does nothing */
    EXPECT_OK(world, ist_recv(test->comm, test->stream, recv, 1, IST_U32, last));
    EXPECT_OK(world, ist_coll_group_end(world));
    EXPECT_OK(world, ist_send(test->comm, test->stream, send + 1, 1, IST_U32, next));
    EXPECT_OK(world, ist_recv(test->comm, test->stream, recv + 1, 1, IST_U32, last));
    EXPECT_OK(world, ist_send(test->comm, test->stream, send + 2, 1, IST_U32, test->rank));
    EXPECT_OK(world, ist_recv(test->comm, test->stream, recv + 2, 1, IST_U32, test->rank));
    EXPECT_OK(world, ist_coll_group_end(world));
    EXPECT_OK(world, ist_copy_to_host(test->stream, words, recv, sizeof(words)));
    EXPECT_EQUAL(world, words[0], last * 10 + 1);
    EXPECT_EQUAL(world, words[1], last * 10 + 2);
    EXPECT_EQUAL(world, words[2], test->rank * 10 + 3);
    /* Sends and receives by themselves, one way around. */
    if (test->rank == 0) {
        EXPECT_OK(world, ist_send(test->comm, test->stream, send, 4, IST_U32, 1));
    } else if (test->rank == 1) {
        EXPECT_OK(world, ist_recv(test->comm, test->stream, recv, 4, IST_U32, 0));
        EXPECT_OK(world, ist_copy_to_host(test->stream, words, recv, sizeof(words)));
        EXPECT_EQUAL(world, words[1], 2);
    }
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_OK(world, ist_coll_status(test->comm));
    return close_buffers(&b, false);
}

/* Two communicators and two streams in one group; a refused call takes the whole group back. */
static ist_status group_main(ist_world *world, void *arg)
{
    buffers b;
    ist_comm *other = NULL;
    ist_stream *beside = NULL;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    const ist_test_rank *test = &b.test;
    const uint32_t mine[2] = {test->rank + 1, 100 * (test->rank + 1)};
    uint32_t words[3] = {0};
    uint32_t *send = (uint32_t *)(void *)b.send, *recv = (uint32_t *)(void *)b.recv;
    EXPECT_OK(world, ist_comm_split(test->comm, 0, -(int32_t)test->rank, &other));
    EXPECT_OK(world, ist_coll_open(other));
    EXPECT_OK(world, ist_coll_open(other)); /* again: nothing happens */
    EXPECT_OK(world, ist_stream_open(world, &beside));
    EXPECT_OK(world, ist_fill(test->stream, recv, POISON, 64));
    EXPECT_OK(world, ist_copy_to_device(test->stream, send, mine, sizeof(mine)));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));

    EXPECT_OK(world, ist_coll_group_begin(world));
    EXPECT_OK(world,
              ist_all_reduce(test->comm, test->stream, send, recv, 1, IST_U32, IST_REDUCE_SUM));
    EXPECT_REFUSED(world,
                   ist_all_reduce(test->comm, test->stream, send, NULL, 1, IST_U32, IST_REDUCE_SUM),
                   IST_ERR_NULL, "recv");
    EXPECT_REFUSED(
        world,
        ist_all_reduce(test->comm, test->stream, send, recv, 1, (ist_dtype)99, IST_REDUCE_SUM),
        IST_ERR_ARGUMENT, "dtype");
    EXPECT_REFUSED(world, ist_coll_group_end(world), IST_ERR_NULL, "recv"); /* the first one */
    EXPECT_OK(world, ist_copy_to_host(test->stream, words, recv, sizeof(words)));
    EXPECT_EQUAL(world, words[0], 0xeeeeeeee);

    EXPECT_OK(world, ist_coll_group_begin(world));
    EXPECT_OK(world,
              ist_all_reduce(test->comm, test->stream, send, recv, 1, IST_U32, IST_REDUCE_SUM));
    EXPECT_OK(world,
              ist_all_reduce(test->comm, beside, send + 1, recv + 1, 1, IST_U32, IST_REDUCE_MAX));
    EXPECT_OK(world, ist_broadcast(other, beside, send, recv + 2, 1, IST_U32, 0));
    EXPECT_OK(world, ist_coll_group_end(world));
    EXPECT_OK(world, ist_stream_sync(beside, 0));
    EXPECT_OK(world, ist_copy_to_host(test->stream, words, recv, sizeof(words)));
    const uint32_t n = test->rank_count;
    EXPECT_EQUAL(world, words[0], n * (n + 1) / 2);
    EXPECT_EQUAL(world, words[1], 100 * n);
    EXPECT_EQUAL(world, words[2], n); /* ranks of the other one count backwards */
    EXPECT_REFUSED(world, ist_coll_group_end(world), IST_ERR_USAGE, "world");

    EXPECT_OK(world, ist_coll_group_begin(world));
    EXPECT_OK(world, ist_all_reduce(test->comm, beside, send, recv, 1, IST_U32, IST_REDUCE_SUM));
    EXPECT_REFUSED(world,
                   ist_all_reduce(NULL, test->stream, send, recv, 1, IST_U32, IST_REDUCE_SUM),
                   IST_ERR_NULL, "comm");
    EXPECT_REFUSED(world, ist_coll_group_end(world), IST_ERR_NULL, "comm");
    EXPECT_OK(world, ist_coll_group_begin(world));
    EXPECT_OK(world, ist_all_reduce(test->comm, beside, send, recv, 1, IST_U32, IST_REDUCE_SUM));
    EXPECT_OK(world, ist_stream_close(beside));
    EXPECT_REFUSED(world, ist_coll_group_end(world), IST_ERR_OBJECT, "stream");
    EXPECT_OK(world, ist_comm_close(other));
    return close_buffers(&b, false);
}

static void sends_and_receives_meet_in_groups(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, ring_main, NULL), IST_OK);
}

static void a_group_is_all_or_nothing(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, group_main, NULL), IST_OK);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static ist_status graph_main(ist_world *world, void *arg)
{
    buffers b;
    ist_graph *graph = NULL;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    const ist_test_rank *test = &b.test;
    uint64_t *send = (uint64_t *)(void *)b.send, *recv = (uint64_t *)(void *)b.recv;
    const uint64_t n = test->rank_count;
    uint64_t sum = 0;
    EXPECT_OK(world, ist_graph_begin(test->stream));
    EXPECT_OK(world,
              ist_all_reduce(test->comm, test->stream, send, recv, 2, IST_U64, IST_REDUCE_SUM));
    EXPECT_OK(world, ist_all_gather(test->comm, test->stream, recv, send + 8, 1, IST_U64));
    EXPECT_OK(world, ist_graph_end(test->stream, &graph));
    for (uint64_t i = 0; i < 5; ++i) { /* reads what is there at its time */
        const uint64_t mine[2] = {test->rank * i, i};
        EXPECT_OK(world, ist_copy_to_device(test->stream, send, mine, sizeof(mine)));
        EXPECT_OK(world, ist_graph_launch(graph, test->stream));
        EXPECT_OK(world, ist_copy_to_host(test->stream, &sum, send + 8 + n - 1, sizeof(sum)));
        EXPECT_EQUAL(world, sum, i * n * (n - 1) / 2);
        EXPECT_OK(world, ist_all_reduce(test->comm, test->stream, send + 1, recv, 1, IST_U64,
                                        IST_REDUCE_SUM)); /* between replays */
        EXPECT_OK(world, ist_copy_to_host(test->stream, &sum, recv, sizeof(sum)));
        EXPECT_EQUAL(world, sum, i * n);
    }
    EXPECT_OK(world, ist_coll_status(test->comm));
    EXPECT_OK(world, ist_graph_close(graph));
    return close_buffers(&b, false);
}

static void collectives_are_replayed(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, graph_main, NULL), IST_OK);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static ist_status refuse_all(const buffers *b)
{
    const ist_test_rank *test = &b->test;
    ist_world *world = test->world;
    ist_comm *comm = test->comm;
    ist_stream *stream = test->stream;
    uint8_t *send = b->send, *recv = b->recv;
    const ist_reduction sum = IST_REDUCE_SUM;
    EXPECT_REFUSED(world, ist_all_reduce(NULL, stream, send, recv, 1, IST_F32, sum), IST_ERR_NULL,
                   "comm");
    EXPECT_REFUSED(world, ist_all_reduce(comm, NULL, send, recv, 1, IST_F32, sum), IST_ERR_NULL,
                   "stream");
    EXPECT_REFUSED(world, ist_all_reduce(comm, (ist_stream *)comm, send, recv, 1, IST_F32, sum),
                   IST_ERR_OBJECT, "stream");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, NULL, recv, 1, IST_F32, sum), IST_ERR_NULL,
                   "send");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, recv, b->bytes, IST_F32, sum),
                   IST_ERR_ARGUMENT, "send");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, recv, UINT64_MAX, IST_F32, sum),
                   IST_ERR_RANGE, "count");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, recv, 1, IST_DTYPE_UNSET, sum),
                   IST_ERR_ARGUMENT, "dtype");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, recv, 1, (ist_dtype)99, sum),
                   IST_ERR_ARGUMENT, "dtype");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, recv, 1, IST_F32, (ist_reduction)7),
                   IST_ERR_ARGUMENT, "reduction");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, recv, 1, IST_F32, IST_REDUCE_PREMUL),
                   IST_ERR_ARGUMENT, "reduction");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send + 2, recv, 1, IST_F32, sum),
                   IST_ERR_ALIGNMENT, "send");
    EXPECT_REFUSED(world, ist_all_reduce(comm, stream, send, send + 4, 2, IST_F32, sum),
                   IST_ERR_ARGUMENT, "recv");
    EXPECT_REFUSED(world, ist_all_to_all(comm, stream, send, send, 2, IST_F32), IST_ERR_ARGUMENT,
                   "recv");
    EXPECT_REFUSED(world, ist_broadcast(comm, stream, send, recv, 1, IST_F32, test->rank_count),
                   IST_ERR_RANGE, "root");
    EXPECT_REFUSED(world, ist_send(comm, stream, send, 1, IST_F32, test->rank_count), IST_ERR_RANGE,
                   "peer");
    EXPECT_REFUSED(world, ist_recv(comm, stream, recv, 1, IST_F32, test->rank), IST_ERR_USAGE,
                   "peer");
    return IST_OK;
}

static ist_status refusals_main(ist_world *world, void *arg)
{
    buffers b;
    ist_comm *bare = NULL;
    ist_coll_info info = {.size = sizeof(info)};
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    IST_TEST_PASS_ON(refuse_all(&b));
    EXPECT_OK(world, ist_comm_open(world, NULL, &bare));
    EXPECT_REFUSED(world,
                   ist_all_reduce(bare, b.test.stream, b.send, b.recv, 1, IST_F32, IST_REDUCE_SUM),
                   IST_ERR_USAGE, "comm");
    EXPECT_REFUSED(world, ist_coll_status(bare), IST_ERR_USAGE, "comm");
    EXPECT_OK(world, ist_coll_query(bare, &info));
    EXPECT_EQUAL(world, info.opened, 0);
    EXPECT(world, info.library != NULL && info.reason == NULL);
    EXPECT_OK(world, ist_coll_query(b.test.comm, &info));
    EXPECT_EQUAL(world, info.opened, 1);
    EXPECT_OK(world, ist_comm_close(bare));
    /* Nothing of this was enqueued: the next call is the first. */
    const shape of = {.kind = ALL_REDUCE, .count = 9, .dtype = IST_F32};
    IST_TEST_PASS_ON(run_shape(&b, &of));
    return close_buffers(&b, false);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, refusals_main, NULL), IST_OK);
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

/* Compared before anything runs, so the next call is good again. */
static ist_status compared_main(ist_world *world, void *arg)
{
    buffers b;
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    const ist_test_rank *test = &b.test;
    const bool odd = test->rank == 1;
    const shape wrong[] = {
        {.kind = odd ? BROADCAST : ALL_REDUCE, .count = 4, .dtype = IST_F32},
        {.kind = ALL_REDUCE, .count = odd ? 5 : 4, .dtype = IST_F32},
        {.kind = ALL_REDUCE, .count = 4, .dtype = odd ? IST_I32 : IST_F32},
        {.kind = ALL_REDUCE,
         .count = 4,
         .dtype = IST_F32,
         .reduction = odd ? IST_REDUCE_MAX : IST_REDUCE_SUM},
        {.kind = BROADCAST, .count = 4, .dtype = IST_F32, .root = odd ? 1 : 0},
    };
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        EXPECT_STATUS(world, call(&b, &wrong[i], b.send, b.recv), IST_ERR_MISMATCH);
    }
    if (odd) {
        EXPECT_STATUS(world, call(&b, &wrong[2], NULL, b.recv), IST_ERR_NULL);
    } else {
        EXPECT_STATUS(world, call(&b, &wrong[2], b.send, b.recv), IST_ERR_MISMATCH);
    }
    const shape good = {.kind = ALL_REDUCE, .count = 9, .dtype = IST_F32};
    IST_TEST_PASS_ON(run_shape(&b, &good));
    EXPECT_OK(world, ist_coll_status(test->comm));
    return close_buffers(&b, false);
}

static void disagreement_is_an_error_on_every_rank(void **state)
{
    ist_world_desc desc = ist_test_desc(ist_test_ranks(RANKS), NULL);
    ist_world_result result = {.size = sizeof(result)};
    (void)state;
    desc.check = IST_CHECK_PEERS;
    assert_int_equal(ist_test_run_desc(&desc, compared_main, NULL, &result), IST_OK);
}

/* ---- ranks that do not come ------------------------------------------------------------------ */

#define DEADLINE_NS ist_test_time_ns(20000000)
#define ENDS_NS (DEADLINE_NS * 12)

static ist_status expect_timeout(const buffers *b, uint64_t began)
{
    const ist_test_rank *test = &b->test;
    ist_world *world = test->world;
    ist_error error = {.size = sizeof(error)};
    EXPECT_OK(world, ist_stream_sync(test->stream, ENDS_NS));
    EXPECT_STATUS(world, ist_coll_status(test->comm), IST_ERR_TIMEOUT);
    EXPECT(world, ist_world_clock_ns(world) - began < ENDS_NS);
    EXPECT_OK(world, ist_error_last(&error));
    EXPECT_EQUAL(world, strcmp(error.operation, "all_reduce"), 0);
    EXPECT_EQUAL(world, error.rank, ist_world_rank(world));
    EXPECT(world, error.waited_ns >= DEADLINE_NS);
    if (ist_test_on_simulator()) {
        EXPECT_EQUAL(world, error.peer, 1);
    }
    EXPECT_STATUS(
        world,
        ist_all_reduce(test->comm, test->stream, b->send, b->recv, 4, IST_F32, IST_REDUCE_SUM),
        IST_ERR_TIMEOUT);
    return IST_OK;
}

static ist_status absent_main(ist_world *world, void *arg)
{
    const uint32_t *tolerant = arg;
    buffers b;
    ist_comm *meeting = NULL;
    ist_test_setup with = {.no_dev = 1, .fault_tolerant = *tolerant, .deadline_ns = DEADLINE_NS};
    IST_TEST_PASS_ON(open_buffers(world, &with, &b));
    const ist_test_rank *test = &b.test;
    EXPECT_OK(world, ist_comm_open(world, NULL, &meeting));
    EXPECT_OK(world, ist_comm_barrier(meeting, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    if (test->rank != 1) {
        uint64_t began = ist_world_clock_ns(world);
        EXPECT_OK(world, ist_all_reduce(test->comm, test->stream, b.send, b.recv, 4, IST_F32,
                                        IST_REDUCE_SUM));
        IST_TEST_PASS_ON(expect_timeout(&b, began));
        EXPECT_STATUS(world, ist_comm_status(test->comm), *tolerant ? IST_OK : IST_ERR_TIMEOUT);
    } else {
        EXPECT_OK(world, ist_world_sleep(world, ENDS_NS));
    }
    EXPECT_OK(world, ist_comm_barrier(meeting, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    if (*tolerant) { /* the rest of the communicator goes on, and so do new collectives */
        ist_comm *split = NULL;
        EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
        EXPECT_OK(world, ist_stream_sync(test->stream, 0));
        EXPECT_OK(world, ist_comm_split(test->comm, 0, 0, &split));
        EXPECT_OK(world, ist_coll_open(split));
        EXPECT_OK(world, ist_all_gather(split, test->stream, b.send, b.recv, 4, IST_F32));
        EXPECT_OK(world, ist_stream_sync(test->stream, 0));
        EXPECT_OK(world, ist_coll_status(split));
        EXPECT_OK(world, ist_comm_close(split));
    }
    EXPECT_OK(world, ist_comm_close(meeting));
    return close_buffers(&b, true);
}

static void a_rank_that_stays_away_ends_the_call(void **state)
{
    uint32_t tolerant = 0;
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, absent_main, &tolerant), IST_OK);
}

static void a_fault_tolerant_communicator_goes_on(void **state)
{
    uint32_t tolerant = 1;
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, absent_main, &tolerant), IST_OK);
}

static ist_status masked_main(ist_world *world, void *arg)
{
    static const ist_test_setup with = {.no_dev = 1, .fault_tolerant = 1};
    buffers b;
    ist_error error = {.size = sizeof(error)};
    (void)arg;
    IST_TEST_PASS_ON(open_buffers(world, &with, &b));
    const ist_test_rank *test = &b.test;
    const uint64_t all = (UINT64_C(1) << test->rank_count) - 1u;
    const uint32_t out = (test->rank + 1) % test->rank_count;
    const uint64_t word = all & ~(UINT64_C(1) << out);
    EXPECT_OK(world, ist_comm_mask_update(test->comm, &word, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_STATUS(
        world, ist_all_reduce(test->comm, test->stream, b.send, b.recv, 4, IST_F32, IST_REDUCE_SUM),
        IST_ERR_RANK_LOST);
    EXPECT_OK(world, ist_error_last(&error));
    EXPECT_EQUAL(world, error.peer, out);
    EXPECT_OK(world, ist_comm_mask_update(test->comm, &all, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_OK(world, ist_comm_barrier(test->comm, test->stream));
    const shape of = {.kind = ALL_REDUCE, .count = 9, .dtype = IST_F32};
    IST_TEST_PASS_ON(run_shape(&b, &of));
    return close_buffers(&b, false);
}

static void a_masked_rank_is_a_refusal(void **state)
{
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, masked_main, NULL), IST_OK);
}

/* Rank 0 waits in a collective that nobody comes to, and is freed from outside. */
static ist_status abort_main(ist_world *world, void *arg)
{
    ist_comm **owned = arg;
    buffers b;
    ist_comm *meeting = NULL;
    IST_TEST_PASS_ON(open_buffers(world, &setup, &b));
    const ist_test_rank *test = &b.test;
    EXPECT_OK(world, ist_comm_open(world, NULL, &meeting));
    if (test->rank == 0) {
        *owned = test->comm;
    }
    EXPECT_OK(world, ist_comm_barrier(meeting, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    if (test->rank == 0) {
        uint64_t began = ist_world_clock_ns(world);
        EXPECT_OK(world, ist_all_reduce(test->comm, test->stream, b.send, b.recv, 4, IST_F32,
                                        IST_REDUCE_SUM));
        EXPECT_OK(world, ist_stream_sync(test->stream, 0));
        EXPECT(world, ist_world_clock_ns(world) - began < ist_test_deadline_ns());
        EXPECT_STATUS(world, ist_coll_status(test->comm), IST_ERR_ABORTED);
        EXPECT_STATUS(world, ist_comm_status(test->comm), IST_ERR_ABORTED);
        EXPECT_STATUS(
            world,
            ist_all_reduce(test->comm, test->stream, b.send, b.recv, 4, IST_F32, IST_REDUCE_SUM),
            IST_ERR_ABORTED);
    } else if (test->rank == 1) {
        EXPECT_OK(world, ist_world_sleep(world, ist_test_time_ns(2000000)));
        EXPECT_OK(world, ist_comm_abort(*owned));
    }
    EXPECT_OK(world, ist_comm_barrier(meeting, test->stream));
    EXPECT_OK(world, ist_stream_sync(test->stream, 0));
    EXPECT_OK(world, ist_comm_close(meeting));
    return close_buffers(&b, true);
}

static void abort_ends_a_call(void **state)
{
    ist_comm *owned = NULL;
    (void)state;
    assert_int_equal(ist_test_run(ist_test_ranks(RANKS), NULL, abort_main, &owned), IST_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_reduction_is_exact),
        cmocka_unit_test(every_size_and_place_is_exact),
        cmocka_unit_test(a_factor_of_each_rank),
        cmocka_unit_test(sends_and_receives_meet_in_groups),
        cmocka_unit_test(a_group_is_all_or_nothing),
        cmocka_unit_test(collectives_are_replayed),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(disagreement_is_an_error_on_every_rank),
        cmocka_unit_test(a_rank_that_stays_away_ends_the_call),
        cmocka_unit_test(a_fault_tolerant_communicator_goes_on),
        cmocka_unit_test(a_masked_rank_is_a_refusal),
        cmocka_unit_test(abort_ends_a_call),
    };
    ist_test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
