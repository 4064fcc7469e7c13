/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the transport for tests; see gin_rig.h.
 */
#include "gin_rig.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const gin_v11 *rig_gin;
const gin_rma_v14 *rig_rma;
const gin_net_v11 *rig_net;
bool rig_device;
unsigned rig_warnings;
char rig_warning[512];

static void count_warning(int level, unsigned long subsystems, const char *file, int line,
                          const char *format, ...)
{
    va_list arguments;
    (void)file;
    (void)line;
    if (level != GIN_LOG_WARN || subsystems != GIN_LOG_NET) {
        return;
    }
    ++rig_warnings;
    va_start(arguments, format);
    (void)vsnprintf(rig_warning, sizeof(rig_warning), format, arguments);
    va_end(arguments);
}

void rig_init(int argc, char **argv)
{
    const char *path = getenv("IST_GIN_PLUGIN");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "IST_GIN_PLUGIN: %s\n", path != NULL ? dlerror() : "not set");
        exit(1);
    }
    rig_gin = dlsym(library, "ncclGinPlugin_v11");
    rig_rma = dlsym(library, "ncclRmaPlugin_v14");
    rig_net = dlsym(library, "ncclNetPlugin_v11");
    rig_device = argc > 1 && strcmp(argv[1], "--device") == 0;
}

void rig_listen(rig_rank *rank, uint32_t number, uint32_t rank_count, uint64_t comm_id)
{
    *rank = (rig_rank){.rank = number, .rank_count = rank_count};
    assert_int_equal(rig_gin->init(&rank->context, comm_id, count_warning), GIN_OK);
    assert_int_equal(rig_gin->listen(rank->context, 0, rank->handle, &rank->listening), GIN_OK);
}

gin_result rig_connect(rig_rank *rank, void **handles)
{
    gin_result result = rig_gin->connect(rank->context, handles, (int)rank->rank_count,
                                         (int)rank->rank, rank->listening, &rank->comm);
    assert_int_equal(rig_gin->close_listen(rank->listening), GIN_OK);
    return result;
}

void rig_register(rig_rank *rank, size_t window_bytes)
{
    int kind = rig_device ? GIN_MEMORY_CUDA : GIN_MEMORY_HOST;
    gin_rma_config config = {.context_count = 2, .rank_stride = 1};
    void *same = NULL;
    rank->bytes = window_bytes;
    rank->memory = calloc(1, window_bytes);
    rank->signals = calloc(RIG_SIGNALS, sizeof(uint64_t));
    assert_non_null(rank->memory);
    assert_non_null(rank->signals);
    assert_int_equal(
        rig_gin->reg_mr_sym(rank->comm, rank->memory, window_bytes, kind, 0, &rank->window, &same),
        GIN_OK);
    assert_ptr_equal(same, rank->window);
    assert_int_equal(rig_gin->reg_mr_sym(rank->comm, rank->signals, RIG_SIGNALS * 8, kind, 1,
                                         &rank->signal_window, &same),
                     GIN_OK);
    assert_int_equal(rig_rma->create_context(rank->comm, &config, &rank->channels), GIN_OK);
}

void rig_close(rig_rank *rank)
{
    if (rank->comm != NULL) {
        assert_int_equal(rig_rma->destroy_context(rank->channels), GIN_OK);
        assert_int_equal(rig_gin->dereg_mr_sym(rank->comm, rank->window), GIN_OK);
        assert_int_equal(rig_gin->dereg_mr_sym(rank->comm, rank->signal_window), GIN_OK);
        assert_int_equal(rig_gin->close_comm(rank->comm), GIN_OK);
    }
    assert_int_equal(rig_gin->finalize(rank->context), GIN_OK);
    free(rank->memory);
    free(rank->signals);
}

void rig_open_all(rig_rank *ranks, uint32_t rank_count, size_t window_bytes)
{
    static uint64_t comm_id = 1000;
    void *handles[RIG_RANKS_MAX];
    ++comm_id;
    for (uint32_t i = 0; i < rank_count; ++i) {
        rig_listen(&ranks[i], i, rank_count, comm_id);
        handles[i] = ranks[i].handle;
    }
    for (uint32_t i = 0; i < rank_count; ++i) {
        assert_int_equal(rig_connect(&ranks[i], handles), GIN_OK);
    }
    for (uint32_t i = 0; i < rank_count; ++i) {
        rig_register(&ranks[i], window_bytes);
    }
}

void rig_close_all(rig_rank *ranks, uint32_t rank_count)
{
    for (uint32_t i = 0; i < rank_count; ++i) {
        rig_close(&ranks[i]);
    }
}

void rig_rounds(rig_rank *ranks, uint32_t rank_count, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; ++round) {
        for (uint32_t i = 0; i < rank_count; ++i) {
            assert_int_equal(rig_gin->progress(ranks[i].comm), GIN_OK);
        }
    }
}

void *rig_put(rig_rank *from, uint32_t to, uint64_t src, uint64_t dst, size_t bytes)
{
    void *request = NULL;
    assert_int_equal(
        rig_gin->iput(from->comm, src, from->window, bytes, dst, from->window, to, &request),
        GIN_OK);
    assert_non_null(request);
    return request;
}

void *rig_put_signal(rig_rank *from, uint32_t to, uint64_t src, uint64_t dst, size_t bytes,
                     uint32_t signal, uint64_t value)
{
    void *request = NULL;
    void *window = bytes > 0 ? from->window : NULL;
    assert_int_equal(rig_gin->iput_signal(from->comm, src, window, bytes, dst, window, to,
                                          signal * 8u, from->signal_window, value,
                                          value == 1 ? GIN_SIGNAL_INC : GIN_SIGNAL_ADD, &request),
                     GIN_OK);
    assert_non_null(request);
    return request;
}

bool rig_done(rig_rank *rank, void *request)
{
    int done = -1;
    assert_int_equal(rig_gin->test(rank->comm, request, &done), GIN_OK);
    assert_in_range(done, 0, 1);
    return done == 1;
}

void rig_wait(rig_rank *ranks, uint32_t rank_count, rig_rank *owner, void *request)
{
    for (uint32_t round = 0; round < 1000000; ++round) {
        if (rig_done(owner, request)) {
            return;
        }
        rig_rounds(ranks, rank_count, 1);
    }
    fail_msg("a request of rank %u does not complete", owner->rank);
}

bool rig_failed(const rig_rank *rank)
{
    bool failed = true;
    assert_int_equal(rig_gin->query_last_error(rank->comm, &failed), GIN_OK);
    return failed;
}

/* Another thread may be adding to it. */
uint64_t rig_signal(const rig_rank *rank, uint32_t signal)
{
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)&rank->signals[signal];
    return atomic_load_explicit(word, memory_order_acquire);
}
