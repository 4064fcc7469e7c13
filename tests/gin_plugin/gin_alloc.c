/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no allocation that fails brings the transport down, or leaks. Method: the transport is linked in
 * with its allocator wrapped; a whole life of two ranks is run with the first allocation failing, then
 * the second, and so on, until one runs through without being hit. Each run either works or says so.
 */
#include "gin_comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const gin_v11 ncclGinPlugin_v11;
extern const gin_rma_v14 ncclRmaPlugin_v14;

enum { RANKS = 2, BYTES = 4096 };

static uint64_t fails_at; /* 0: none */
static uint64_t calls;
static int64_t live;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *memory);

static bool fails(void)
{
    return ++calls == fails_at;
}

static void *counted(void *memory)
{
    live += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : counted(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (fails()) {
        return NULL;
    }
    live -= old != NULL;
    return counted(__real_realloc(old, bytes));
}

void __wrap_free(void *memory)
{
    live -= memory != NULL;
    __real_free(memory);
}

/* ---- a life ---------------------------------------------------------------------------------- */

typedef struct side {
    void *context, *listening, *comm, *window;
    char handle[GIN_HANDLE_BYTES];
    uint8_t memory[BYTES];
    uint64_t signal;
    void *signal_window;
} side;

static bool side_listen(side *one)
{
    const gin_v11 *gin = &ncclGinPlugin_v11;
    return gin->init(&one->context, 3, NULL) == GIN_OK &&
           gin->listen(one->context, 0, one->handle, &one->listening) == GIN_OK;
}

static bool side_connect(side *one, void **handles, int rank)
{
    const gin_v11 *gin = &ncclGinPlugin_v11;
    void *same = NULL;
    return gin->connect(one->context, handles, RANKS, rank, one->listening, &one->comm) == GIN_OK &&
           gin->reg_mr_sym(one->comm, one->memory, BYTES, GIN_MEMORY_HOST, 0, &one->window,
                           &same) == GIN_OK &&
           gin->reg_mr_sym(one->comm, &one->signal, 8, GIN_MEMORY_HOST, 0, &one->signal_window,
                           &same) == GIN_OK;
}

static void side_close(side *one)
{
    const gin_v11 *gin = &ncclGinPlugin_v11;
    if (one->listening != NULL) {
        (void)gin->close_listen(one->listening);
    }
    if (one->comm != NULL) {
        (void)gin->close_comm(one->comm);
    }
    if (one->context != NULL) {
        (void)gin->finalize(one->context);
    }
}

static bool finish(side *sides, side *owner, void *request)
{
    int done = 0;
    for (int round = 0; round < 1000 && done == 0; ++round) {
        (void)ncclGinPlugin_v11.progress(sides[0].comm);
        (void)ncclGinPlugin_v11.progress(sides[1].comm);
        (void)ncclGinPlugin_v11.test(owner->comm, request, &done);
    }
    return done == 1;
}

static bool put_and_get(side *sides)
{
    side *from = &sides[0];
    void *request = NULL;
    memset(from->memory, 5, 100);
    if (ncclGinPlugin_v11.iput_signal(from->comm, 0, from->window, 100, 1000, from->window, 1, 0,
                                      from->signal_window, 1, GIN_SIGNAL_INC, &request) != GIN_OK) {
        return false;
    }
    assert_true(finish(sides, from, request));
    for (int round = 0; round < 10; ++round) {
        (void)ncclGinPlugin_v11.progress(sides[1].comm);
    }
    assert_int_equal(sides[1].signal, 1);
    if (ncclRmaPlugin_v14.iget(from->comm, 0, 1000, from->window, 100, 2000, from->window, 1,
                               &request) != GIN_OK) {
        return false;
    }
    assert_true(finish(sides, from, request));
    assert_int_equal(from->memory[2099], 5);
    return true;
}

static bool live_once(void)
{
    side sides[RANKS];
    void *handles[RANKS];
    memset(sides, 0, sizeof(sides));
    bool works = true;
    for (int i = 0; i < RANKS; ++i) {
        handles[i] = sides[i].handle;
        works = works && side_listen(&sides[i]);
    }
    for (int i = 0; i < RANKS; ++i) {
        works = works && side_connect(&sides[i], handles, i);
    }
    works = works && put_and_get(sides);
    for (int i = 0; i < RANKS; ++i) {
        side_close(&sides[i]);
    }
    return works;
}

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    int64_t before = live;
    for (fails_at = 1; fails_at < 1000; ++fails_at) {
        calls = 0;
        bool works = live_once();
        assert_int_equal(live, before);
        if (calls < fails_at) {
            assert_true(works);
            assert_true(fails_at > 10);
            fails_at = 0;
            return;
        }
    }
    fail_msg("a life takes more than 1000 allocations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
