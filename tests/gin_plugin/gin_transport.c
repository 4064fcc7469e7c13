/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: bytes arrive where they should and nowhere else, signals only behind what they cover, requests
 * complete when their source is free. Method: ranks take turns in one thread; random operations
 * against a model that is carried out at once; every signal is looked at in every round.
 */
#include "gin_rig.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

/* Splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t draw(uint64_t bound)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % bound;
}

static void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        bytes[i] = (uint8_t)draw(256);
    }
}

/* ---- random operations ----------------------------------------------------------------------- */

enum { RANKS = 3, HALF = 1 << 20, OPS = 400 };

/* The lower half of a window is source, the upper one target, a third for each sender. */
static void one_random_op(rig_rank *ranks, uint8_t (*model)[2 * HALF],
                          uint64_t (*sums)[RIG_SIGNALS])
{
    uint32_t from = (uint32_t)draw(RANKS);
    uint32_t to = (uint32_t)draw(RANKS);
    size_t slot = HALF / RANKS;
    size_t bytes = draw(4) == 0 ? draw(slot) : draw(3000);
    uint64_t dst = HALF + from * slot + draw(slot - bytes);
    uint64_t src = draw(HALF - bytes);
    uint32_t signal = (uint32_t)draw(RIG_SIGNALS);
    uint64_t value = draw(3) == 0 ? draw(1u << 30) : 1;
    bool raises = draw(2) == 0;
    memmove(&model[to][dst], &model[from][src], bytes);
    sums[to][signal] += raises ? value : 0;
    void *request = raises ? rig_put_signal(&ranks[from], to, src, dst, bytes, signal, value)
                           : rig_put(&ranks[from], to, src, dst, bytes);
    if (draw(2) == 0) {
        rig_rounds(ranks, RANKS, (uint32_t)draw(4));
    }
    rig_wait(ranks, RANKS, &ranks[from], request);
}

static void random_operations_match_a_model(void **unused)
{
    rig_rank ranks[RANKS];
    uint8_t(*model)[2 * HALF] = calloc(RANKS, sizeof(*model));
    uint64_t sums[RANKS][RIG_SIGNALS] = {{0}};
    (void)unused;
    assert_non_null(model);
    rig_open_all(ranks, RANKS, 2 * (size_t)HALF);
    for (uint32_t i = 0; i < RANKS; ++i) {
        fill(ranks[i].memory, HALF);
        memcpy(model[i], ranks[i].memory, HALF);
    }
    for (uint32_t op = 0; op < OPS; ++op) {
        one_random_op(ranks, model, sums);
    }
    rig_rounds(ranks, RANKS, 2000);
    for (uint32_t i = 0; i < RANKS; ++i) {
        assert_memory_equal(ranks[i].memory, model[i], 2 * HALF);
        assert_memory_equal(ranks[i].signals, sums[i], sizeof(sums[i]));
        assert_false(rig_failed(&ranks[i]));
    }
    rig_close_all(ranks, RANKS);
    free(model);
}

/* NCCL puts values from host memory of its own into memory of the GPU. */
static void values_come_from_host_memory(void **unused)
{
    rig_rank ranks[2];
    uint64_t inlines[2][4] = {{11, 12, 13, 14}, {21, 22, 23, 24}};
    void *region[2], *same = NULL, *request = NULL;
    (void)unused;
    rig_open_all(ranks, 2, 4096);
    for (uint32_t i = 0; i < 2; ++i) {
        assert_int_equal(rig_gin->reg_mr_sym(ranks[i].comm, inlines[i], sizeof(inlines[i]),
                                             GIN_MEMORY_HOST, 0, &region[i], &same),
                         GIN_OK);
    }
    for (uint32_t k = 0; k < 4; ++k) {
        (void)rig_put(&ranks[0], 1, 0, 0, 100);
        assert_int_equal(rig_gin->iput_signal(ranks[0].comm, k * 8u, region[0], 8, 1000 + k * 8u,
                                              ranks[0].window, 1, 16, ranks[0].signal_window, 1,
                                              GIN_SIGNAL_INC, &request),
                         GIN_OK);
        rig_wait(ranks, 2, &ranks[0], request);
    }
    rig_rounds(ranks, 2, 50);
    assert_memory_equal(ranks[1].memory + 1000, inlines[0], sizeof(inlines[0]));
    assert_int_equal(rig_signal(&ranks[1], 2), 4);
    rig_close_all(ranks, 2);
}

/* ---- order ----------------------------------------------------------------------------------- */

enum { STEPS = 300, PIECE = 4000 };

/* Put k goes to place k; signal k says that places 0 … k are there. */
static void check_covered(const rig_rank *rank, const uint8_t *source)
{
    uint64_t arrived = rig_signal(rank, 7);
    if (arrived > 0) {
        size_t at = (size_t)(arrived - 1) * PIECE;
        assert_memory_equal(rank->memory + STEPS * PIECE + at, source + at, PIECE);
    }
}

static void signals_come_behind_what_they_cover(void **unused)
{
    rig_rank ranks[2];
    void *requests[STEPS];
    (void)unused;
    rig_open_all(ranks, 2, 2 * (size_t)STEPS * PIECE);
    fill(ranks[0].memory, (size_t)STEPS * PIECE);
    for (uint32_t i = 0; i < STEPS; ++i) {
        uint64_t at = (uint64_t)i * PIECE;
        (void)rig_put(&ranks[0], 1, at, STEPS * PIECE + at, PIECE);
        requests[i] = rig_put_signal(&ranks[0], 1, 0, 0, 0, 7, 1);
    }
    while (rig_signal(&ranks[1], 7) < STEPS) {
        rig_rounds(ranks, 2, 1);
        check_covered(&ranks[1], ranks[0].memory);
    }
    for (uint32_t i = 0; i < STEPS; ++i) {
        rig_wait(ranks, 2, &ranks[0], requests[i]);
    }
    assert_memory_equal(ranks[1].memory + STEPS * PIECE, ranks[0].memory, STEPS * PIECE);
    rig_close_all(ranks, 2);
}

/* A source may be overwritten once its request is done, whatever the target has done until then. */
static void a_completed_source_is_free(void **unused)
{
    enum { PUTS = 64, BYTES = 8192 };
    rig_rank ranks[2];
    (void)unused;
    rig_open_all(ranks, 2, (size_t)(PUTS + 1) * BYTES);
    for (uint32_t i = 0; i < PUTS; ++i) {
        memset(ranks[0].memory, (int)i + 1, BYTES);
        void *request = rig_put(&ranks[0], 1, 0, (uint64_t)(i + 1) * BYTES, BYTES);
        rig_wait(ranks, 1, &ranks[0], request); /* rank 1 does nothing */
    }
    rig_rounds(ranks, 2, 2000);
    for (uint32_t i = 1; i <= PUTS; ++i) {
        assert_int_equal(ranks[1].memory[(size_t)i * BYTES], i);
        assert_int_equal(ranks[1].memory[(size_t)(i + 1) * BYTES - 1], i);
    }
    rig_close_all(ranks, 2);
}

/* Larger than the ring, in both directions at once. */
static void long_puts_cross(void **unused)
{
    enum { BYTES = 5 << 20 };
    rig_rank ranks[2];
    void *requests[2];
    (void)unused;
    rig_open_all(ranks, 2, 2 * (size_t)BYTES);
    for (uint32_t i = 0; i < 2; ++i) {
        fill(ranks[i].memory, BYTES);
        requests[i] = rig_put_signal(&ranks[i], 1 - i, 0, BYTES, BYTES, 1, 5);
    }
    for (uint32_t i = 0; i < 2; ++i) {
        rig_wait(ranks, 2, &ranks[i], requests[i]);
    }
    while (rig_signal(&ranks[0], 1) != 5 || rig_signal(&ranks[1], 1) != 5) {
        rig_rounds(ranks, 2, 1);
    }
    for (uint32_t i = 0; i < 2; ++i) {
        assert_memory_equal(ranks[i].memory + BYTES, ranks[1 - i].memory, BYTES);
    }
    rig_close_all(ranks, 2);
}

/* ---- registration ---------------------------------------------------------------------------- */

/* A rank may send to memory before its owner has registered it. */
static void early_operations_wait_for_the_registration(void **unused)
{
    rig_rank ranks[2];
    void *handles[2];
    void *signal = NULL;
    (void)unused;
    for (uint32_t i = 0; i < 2; ++i) {
        rig_listen(&ranks[i], i, 2, 77);
        handles[i] = ranks[i].handle;
    }
    assert_int_equal(rig_connect(&ranks[0], handles), GIN_OK);
    rig_register(&ranks[0], 4096);
    memset(ranks[0].memory, 9, 100);
    void *request = rig_put(&ranks[0], 1, 0, 1000, 100);
    signal = rig_put_signal(&ranks[0], 1, 0, 0, 0, 3, 1);
    rig_wait(ranks, 1, &ranks[0], request);
    rig_wait(ranks, 1, &ranks[0], signal);
    assert_int_equal(rig_connect(&ranks[1], handles), GIN_OK);
    rig_rounds(ranks, 2, 50);
    rig_register(&ranks[1], 4096);
    rig_rounds(ranks, 2, 50);
    assert_int_equal(rig_signal(&ranks[1], 3), 1);
    assert_int_equal(ranks[1].memory[1099], 9);
    assert_false(rig_failed(&ranks[1]));
    rig_close_all(ranks, 2);
}

/* What cannot be is refused at once, or reported by the rank that finds it. */
static void wrong_operations_are_refused(void **unused)
{
    rig_rank ranks[2];
    void *request = NULL;
    (void)unused;
    rig_open_all(ranks, 2, 4096);
    void *comm = ranks[0].comm;
    void *window = ranks[0].window;
    assert_int_equal(rig_gin->iput(comm, 0, window, 8, 0, window, 2, &request),
                     GIN_INVALID_ARGUMENT);
    assert_int_equal(rig_gin->iput(comm, 4090, window, 8, 0, window, 1, &request),
                     GIN_INVALID_ARGUMENT);
    assert_int_equal(rig_gin->iput(comm, 0, NULL, 8, 0, window, 1, &request), GIN_INVALID_ARGUMENT);
    assert_int_equal(
        rig_gin->iput_signal(comm, 0, NULL, 0, 0, NULL, 1, 0, NULL, 1, GIN_SIGNAL_INC, &request),
        GIN_INVALID_ARGUMENT);
    assert_int_equal(rig_gin->iput_signal(comm, 0, NULL, 0, 0, NULL, 1, 0, ranks[0].signal_window,
                                          1, 3, &request),
                     GIN_INVALID_ARGUMENT);
    assert_false(rig_failed(&ranks[0]));
    assert_false(rig_failed(&ranks[1]));
    rig_warnings = 0;
    request = rig_put(&ranks[0], 1, 0, 4090, 8);
    rig_wait(ranks, 2, &ranks[0], request);
    rig_rounds(ranks, 2, 10);
    assert_true(rig_failed(&ranks[1]));
    assert_int_equal(rig_warnings, 1);
    rig_close_all(ranks, 2);
}

/* NCCL tells neither tables nor contexts apart when it asks for errors: any pointer is answered. */
static void errors_are_found_by_any_pointer(void **unused)
{
    rig_rank ranks[2];
    bool failed = true;
    (void)unused;
    rig_open_all(ranks, 2, 4096);
    assert_int_equal(rig_gin->query_last_error(&ranks, &failed), GIN_OK);
    assert_false(failed);
    (void)rig_put(&ranks[0], 1, 0, 4090, 8);
    rig_rounds(ranks, 2, 10);
    assert_int_equal(rig_gin->query_last_error(&ranks, &failed), GIN_OK);
    assert_true(failed);
    assert_false(rig_failed(&ranks[0]));
    rig_close_all(ranks, 2);
}

/* ---- RMA v14 --------------------------------------------------------------------------------- */

static void wait_v14(rig_rank *ranks, rig_rank *owner, void *request)
{
    int done = 0;
    while (done == 0) {
        assert_int_equal(rig_rma->progress(ranks[0].channels), GIN_OK);
        assert_int_equal(rig_rma->progress(ranks[1].channels), GIN_OK);
        assert_int_equal(rig_rma->test(owner->channels, request, &done), GIN_OK);
    }
}

static void gets_bring_bytes_back(void **unused)
{
    static const size_t sizes[] = {0, 1, 100, 4096, 3 << 20};
    enum { BYTES = 3 << 20 };
    rig_rank ranks[2];
    void *request = NULL;
    (void)unused;
    rig_open_all(ranks, 2, 2 * (size_t)BYTES);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        fill(ranks[1].memory, BYTES);
        memset(ranks[0].memory, 0, 2 * (size_t)BYTES);
        assert_int_equal(rig_rma->iget(ranks[0].channels, 1, 0, ranks[0].window, sizes[i], BYTES,
                                       ranks[0].window, 1, &request),
                         GIN_OK);
        wait_v14(ranks, &ranks[0], request);
        assert_memory_equal(ranks[0].memory + BYTES, ranks[1].memory, sizes[i]);
        assert_int_equal(rig_rma->iflush(ranks[0].channels, 1, ranks[0].window, 1, &request),
                         GIN_OK);
        assert_null(request);
    }
    assert_int_equal(rig_rma->iput_signal(ranks[0].channels, 0, 0, ranks[0].window, 64, BYTES,
                                          ranks[0].window, 1, 8, ranks[0].signal_window, 4,
                                          GIN_SIGNAL_ADD, true, &request),
                     GIN_OK);
    wait_v14(ranks, &ranks[0], request);
    rig_rounds(ranks, 2, 20);
    assert_int_equal(rig_signal(&ranks[1], 1), 4);
    assert_memory_equal(ranks[1].memory + BYTES, ranks[0].memory, 64);
    rig_close_all(ranks, 2);
}

static void properties_say_what_nccl_needs(void **unused)
{
    gin_properties_v11 gin, net;
    gin_properties_v12 rma;
    int count = 0;
    (void)unused;
    assert_int_equal(rig_gin->devices(&count), GIN_OK);
    assert_int_equal(count, 1);
    assert_int_equal(rig_gin->get_properties(0, &gin), GIN_OK);
    assert_int_equal(rig_net->get_properties(0, &net), GIN_OK);
    assert_int_equal(rig_rma->get_properties(0, &rma), GIN_OK);
    assert_int_equal(gin.driven_by, GIN_DRIVEN_BY_PROXY);
    assert_int_equal(rma.driven_by, GIN_DRIVEN_BY_PROXY);
    assert_int_equal(net.driven_by, GIN_DRIVEN_BY_HOST);
    assert_int_equal(gin.memory_kinds, GIN_MEMORY_CUDA);
    assert_null(gin.pci_path);
    assert_int_equal(gin.receives_max & (gin.receives_max - 1), 0);
    assert_int_equal(rig_gin->get_properties(1, &gin), GIN_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_match_a_model),
        cmocka_unit_test(values_come_from_host_memory),
        cmocka_unit_test(signals_come_behind_what_they_cover),
        cmocka_unit_test(a_completed_source_is_free),
        cmocka_unit_test(long_puts_cross),
        cmocka_unit_test(early_operations_wait_for_the_registration),
        cmocka_unit_test(wrong_operations_are_refused),
        cmocka_unit_test(errors_are_found_by_any_pointer),
        cmocka_unit_test(gets_bring_bytes_back),
        cmocka_unit_test(properties_say_what_nccl_needs),
    };
    rig_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
