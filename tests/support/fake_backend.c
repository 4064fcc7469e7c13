/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake backend's table: memory is host memory, objects are numbers, every call is counted.
 */
#include "fake_backend.h"

#include <stdlib.h>
#include <string.h>

fake_state fake;

#define ALLOCATION_COUNT_MAX 256u

typedef struct allocation {
    uint8_t *memory;
    size_t bytes;
    uint32_t flags;
} allocation;

/* One rank's instance. */
typedef struct fake_rank {
    uint32_t rank;
    uint32_t rank_count;
    uint64_t next_number;
    uint64_t now_ns;
    allocation allocations[ALLOCATION_COUNT_MAX];
} fake_rank;

#define FAKE_CALL(op)                                                                              \
    do {                                                                                           \
        ++fake.calls[FAKE_##op];                                                                   \
        if (fake.fail[FAKE_##op] != IST_OK) {                                                      \
            return fake.fail[FAKE_##op];                                                           \
        }                                                                                          \
    } while (0)

static ist_status open_number(void *self, uint64_t *number, int64_t *live)
{
    fake_rank *rank = self;
    *number = ++rank->next_number;
    ++*live;
    return IST_OK;
}

static ist_status fake_caps(void *self, ist_backend_caps *caps)
{
    (void)self;
    FAKE_CALL(caps);
    caps->sm_count = 8;
    caps->device_name = "fake";
    caps->window_reason = fake.window_reason;
    return IST_OK;
}

static ist_status fake_clock(void *self, uint64_t *now_ns)
{
    FAKE_CALL(clock);
    *now_ns = ((fake_rank *)self)->now_ns;
    return IST_OK;
}

static ist_status fake_sleep(void *self, uint64_t ns)
{
    FAKE_CALL(sleep);
    ((fake_rank *)self)->now_ns += ns;
    return IST_OK;
}

static allocation *find_free(fake_rank *rank)
{
    for (uint32_t i = 0; i < ALLOCATION_COUNT_MAX; ++i) {
        if (rank->allocations[i].memory == NULL) {
            return &rank->allocations[i];
        }
    }
    return NULL;
}

static ist_status fake_mem_alloc(void *self, size_t bytes, uint32_t flags, void **mem)
{
    FAKE_CALL(mem_alloc);
    allocation *at = find_free(self);
    size_t rounded = (bytes + IST_WINDOW_ALIGNMENT - 1) / IST_WINDOW_ALIGNMENT;
    void *memory = aligned_alloc(IST_WINDOW_ALIGNMENT, rounded * IST_WINDOW_ALIGNMENT);
    if (at == NULL || memory == NULL) {
        free(memory);
        return IST_ERR_MEMORY;
    }
    *at = (allocation){memory, bytes, flags};
    ++fake.memory_live;
    *mem = memory;
    return IST_OK;
}

static allocation *find_memory(fake_rank *rank, const void *mem, size_t bytes)
{
    for (uint32_t i = 0; i < ALLOCATION_COUNT_MAX; ++i) {
        allocation *at = &rank->allocations[i];
        uintptr_t begin = (uintptr_t)at->memory;
        uintptr_t address = (uintptr_t)mem;
        if (begin != 0 && address >= begin && address - begin <= at->bytes &&
            bytes <= at->bytes - (address - begin)) {
            return at;
        }
    }
    return NULL;
}

static ist_status fake_mem_free(void *self, void *mem)
{
    FAKE_CALL(mem_free);
    allocation *at = find_memory(self, mem, 1);
    if (at == NULL || at->memory != mem) {
        return IST_ERR_ARGUMENT;
    }
    free(at->memory);
    at->memory = NULL;
    --fake.memory_live;
    return IST_OK;
}

static ist_status fake_mem_query(void *self, const void *mem, size_t bytes, uint32_t *flags)
{
    FAKE_CALL(mem_query);
    const allocation *at = find_memory(self, mem, bytes);
    if (at == NULL) {
        return IST_ERR_ARGUMENT;
    }
    *flags = at->flags;
    return IST_OK;
}

static ist_status fake_mem_peek(void *self, const void *mem, void *host, size_t bytes)
{
    (void)self;
    FAKE_CALL(mem_peek);
    memcpy(host, mem, bytes);
    return IST_OK;
}

static ist_status fake_mem_poke(void *self, void *mem, const void *host, size_t bytes)
{
    (void)self;
    FAKE_CALL(mem_poke);
    memcpy(mem, host, bytes);
    return IST_OK;
}

static ist_status fake_stream_open(void *self, uint64_t *stream)
{
    FAKE_CALL(stream_open);
    return open_number(self, stream, &fake.stream_live);
}

static ist_status fake_stream_close(void *self, uint64_t stream)
{
    (void)self, (void)stream;
    FAKE_CALL(stream_close);
    --fake.stream_live;
    return IST_OK;
}

static ist_status fake_stream_sync(void *self, uint64_t stream, uint64_t deadline_ns)
{
    (void)self, (void)stream, (void)deadline_ns;
    FAKE_CALL(stream_sync);
    return IST_OK;
}

static ist_status fake_stream_query(void *self, uint64_t stream)
{
    (void)self, (void)stream;
    FAKE_CALL(stream_query);
    return fake.stream_state;
}

static ist_status fake_copy_in(void *self, uint64_t stream, void *dst, const void *host,
                               size_t bytes)
{
    (void)self, (void)stream;
    FAKE_CALL(copy_in);
    memcpy(dst, host, bytes);
    return IST_OK;
}

static ist_status fake_copy_out(void *self, uint64_t stream, void *host, const void *src,
                                size_t bytes, uint64_t deadline_ns)
{
    (void)self, (void)stream, (void)deadline_ns;
    FAKE_CALL(copy_out);
    memcpy(host, src, bytes);
    return IST_OK;
}

static ist_status fake_copy_local(void *self, uint64_t stream, void *dst, const void *src,
                                  size_t bytes)
{
    (void)self, (void)stream;
    FAKE_CALL(copy_local);
    memcpy(dst, src, bytes);
    return IST_OK;
}

static ist_status fake_fill(void *self, uint64_t stream, void *dst, uint8_t value, size_t bytes)
{
    (void)self, (void)stream;
    FAKE_CALL(fill);
    memset(dst, value, bytes);
    return IST_OK;
}

static ist_status fake_event_open(void *self, uint64_t *event)
{
    FAKE_CALL(event_open);
    return open_number(self, event, &fake.event_live);
}

static ist_status fake_event_close(void *self, uint64_t event)
{
    (void)self, (void)event;
    FAKE_CALL(event_close);
    --fake.event_live;
    return IST_OK;
}

static ist_status fake_event_record(void *self, uint64_t event, uint64_t stream)
{
    (void)self, (void)event, (void)stream;
    FAKE_CALL(event_record);
    return IST_OK;
}

static ist_status fake_event_wait(void *self, uint64_t event, uint64_t stream)
{
    (void)self, (void)event, (void)stream;
    FAKE_CALL(event_wait);
    return IST_OK;
}

static ist_status fake_event_sync(void *self, uint64_t event, uint64_t deadline_ns)
{
    (void)self, (void)event, (void)deadline_ns;
    FAKE_CALL(event_sync);
    return IST_OK;
}

static ist_status fake_event_query(void *self, uint64_t event)
{
    (void)self, (void)event;
    FAKE_CALL(event_query);
    return fake.stream_state;
}

static ist_status fake_event_elapsed(void *self, uint64_t start, uint64_t end, uint64_t *elapsed_ns)
{
    (void)self;
    FAKE_CALL(event_elapsed);
    *elapsed_ns = end - start;
    return IST_OK;
}

static ist_status fake_graph_begin(void *self, uint64_t stream)
{
    (void)self, (void)stream;
    FAKE_CALL(graph_begin);
    return IST_OK;
}

static ist_status fake_graph_end(void *self, uint64_t stream, uint64_t *graph)
{
    (void)stream;
    FAKE_CALL(graph_end);
    return open_number(self, graph, &fake.graph_live);
}

static ist_status fake_graph_launch(void *self, uint64_t graph, uint64_t stream)
{
    (void)self, (void)graph, (void)stream;
    FAKE_CALL(graph_launch);
    return IST_OK;
}

static ist_status fake_graph_close(void *self, uint64_t graph)
{
    (void)self, (void)graph;
    FAKE_CALL(graph_close);
    --fake.graph_live;
    return IST_OK;
}

static ist_status fake_id_create(void *self, uint8_t *id)
{
    FAKE_CALL(id_create);
    memset(id, 0xa5, sizeof(((ist_unique_id *)0)->bytes));
    id[0] = (uint8_t)++((fake_rank *)self)->next_number;
    return IST_OK;
}

/* A communicator's number says all that the fake knows of it: count, place, members. */
#define COMM_FIELD_BITS 20u
#define COMM_FIELD_MASK ((UINT64_C(1) << COMM_FIELD_BITS) - 1u)

static uint32_t comm_rank(uint64_t comm)
{
    return (uint32_t)(comm >> COMM_FIELD_BITS & COMM_FIELD_MASK);
}

static uint32_t comm_rank_count(uint64_t comm)
{
    return (uint32_t)(comm & COMM_FIELD_MASK);
}

static ist_status fake_comm_open(void *self, const ist_backend_comm_desc *desc, uint64_t *comm,
                                 ist_backend_comm_info *info)
{
    fake_rank *rank = self;
    FAKE_CALL(comm_open);
    uint32_t lsa_size = fake.lsa_size != 0 ? fake.lsa_size : desc->rank_count;
    fake.comm_desc = *desc;
    info->lsa_size = lsa_size;
    info->lsa_rank = desc->rank % lsa_size;
    info->gin_supported = fake.gin_supported ? 1 : 0;
    info->gin_reason = fake.gin_supported ? NULL : "the fake has no network";
    *comm =
        (++rank->next_number << COMM_FIELD_BITS | desc->rank) << COMM_FIELD_BITS | desc->rank_count;
    ++fake.comm_live;
    return IST_OK;
}

static ist_status fake_comm_close(void *self, uint64_t comm)
{
    (void)self, (void)comm;
    FAKE_CALL(comm_close);
    --fake.comm_live;
    return IST_OK;
}

static ist_status fake_comm_abort(void *self, uint64_t comm)
{
    (void)self, (void)comm;
    FAKE_CALL(comm_abort);
    return IST_OK;
}

static ist_status fake_comm_exchange(void *self, uint64_t comm, const void *send, size_t bytes,
                                     void *recv, uint64_t deadline_ns, uint64_t *lost_words)
{
    uint8_t *rows = recv;
    (void)self, (void)deadline_ns;
    FAKE_CALL(comm_exchange);
    for (uint32_t i = 0; i < comm_rank_count(comm); ++i) {
        if (ist_mask_test(lost_words, i)) {
            memset(rows + i * bytes, 0, bytes);
        } else {
            memcpy(rows + i * bytes, send, bytes);
        }
    }
    if (fake.on_exchange != NULL) {
        fake.on_exchange(fake.exchange_count, comm_rank(comm), comm_rank_count(comm), bytes, rows,
                         lost_words);
    }
    ++fake.exchange_count;
    return IST_OK;
}

static ist_status fake_window_open(void *self, uint64_t comm, void *mem, size_t bytes,
                                   uint32_t *index)
{
    fake_rank *rank = self;
    (void)comm, (void)mem, (void)bytes;
    FAKE_CALL(window_open);
    if (fake.window_null) {
        *index = 0;
        return IST_OK;
    }
    *index = fake.window_index != 0 ? fake.window_index : (uint32_t)++rank->next_number;
    ++fake.window_live;
    return IST_OK;
}

static ist_status fake_window_close(void *self, uint64_t comm, uint32_t index)
{
    (void)self, (void)comm, (void)index;
    FAKE_CALL(window_close);
    --fake.window_live;
    return IST_OK;
}

static ist_status fake_devcomm_open(void *self, uint64_t comm, const ist_devcomm_desc *desc,
                                    const ist_dev_comm **dev)
{
    (void)self;
    FAKE_CALL(devcomm_open);
    ist_dev_comm *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        return IST_ERR_MEMORY;
    }
    opened->rank = comm_rank(comm);
    opened->rank_count = comm_rank_count(comm);
    opened->mask = desc->mask;
    ++fake.devcomm_live;
    *dev = opened;
    return IST_OK;
}

static ist_status fake_devcomm_close(void *self, uint64_t comm, const ist_dev_comm *dev)
{
    (void)self, (void)comm;
    FAKE_CALL(devcomm_close);
    free((void *)(uintptr_t)dev);
    --fake.devcomm_live;
    return IST_OK;
}

static ist_status fake_launch(void *self, uint64_t stream, const ist_kernel *kernel,
                              uint32_t block_count, const void *args, size_t args_bytes)
{
    (void)self, (void)stream, (void)block_count, (void)args_bytes;
    FAKE_CALL(launch);
    if (fake.on_launch != NULL) {
        fake.on_launch(kernel, args);
    }
    return IST_OK;
}

static ist_status fake_coll_info(void *self, ist_backend_coll_info *info)
{
    (void)self;
    FAKE_CALL(coll_info);
    *info = (ist_backend_coll_info){.library = "fake", .reason = fake.coll_reason};
    return IST_OK;
}

static ist_status fake_coll_open(void *self, uint64_t comm, uint64_t deadline_ns)
{
    (void)self, (void)comm, (void)deadline_ns;
    FAKE_CALL(coll_open);
    return IST_OK;
}

static ist_status fake_coll_close(void *self, uint64_t comm)
{
    (void)self, (void)comm;
    FAKE_CALL(coll_close);
    return IST_OK;
}

static ist_status fake_coll_enqueue(void *self, const ist_backend_coll *ops, uint32_t count)
{
    (void)self;
    FAKE_CALL(coll_enqueue);
    fake.coll_last = ops[count - 1];
    fake.coll_count = count;
    return IST_OK;
}

static ist_status fake_coll_status(void *self, uint64_t comm, ist_error *why)
{
    (void)self, (void)comm, (void)why;
    FAKE_CALL(coll_status);
    return IST_OK;
}

static ist_status fake_coll_estimate(void *self, const ist_backend_coll *op, uint64_t *time_ps)
{
    (void)self, (void)op;
    FAKE_CALL(coll_estimate);
    *time_ps = 1;
    return IST_OK;
}

static ist_status fake_comm_ground(void *self, uint64_t comm, ist_backend_ground *ground,
                                   uint32_t *gpus, uint64_t *maps)
{
    (void)self, (void)comm, (void)gpus, (void)maps;
    FAKE_CALL(comm_ground);
    *ground = (ist_backend_ground){.rank_count = ground->rank_count, .source = "1x8"};
    return IST_OK;
}

static const ist_backend_ops fake_ops = {.size = sizeof(ist_backend_ops),
                                         .abi = IST_BACKEND_ABI,
#define X(op, params, args, need) .op = fake_##op,
                                         IST_BACKEND_OPS(X)
#undef X
};

static ist_status fake_probe(const char **reason)
{
    *reason = fake.probe_reason;
    return fake.probe_reason == NULL ? IST_OK : IST_ERR_BACKEND;
}

static ist_status run_one(const ist_backend_world *world, uint32_t number, uint32_t rank_count)
{
    static ist_error slot;
    fake_rank *rank = calloc(1, sizeof(*rank));
    if (rank == NULL) {
        return IST_ERR_MEMORY;
    }
    rank->rank = number;
    rank->rank_count = rank_count;
    memset(&slot, 0, sizeof(slot));
    ist_error *former = ist_error_bind(&slot);
    ist_status status = world->rank_main(&fake_ops, rank, number, rank_count, world->context);
    ist_error_bind(former);
    /* A real backend frees its world's memory, too. */
    for (uint32_t i = 0; i < ALLOCATION_COUNT_MAX; ++i) {
        free(rank->allocations[i].memory);
    }
    free(rank);
    return status;
}

static ist_status fake_world_run(const ist_backend_world *world, ist_world_result *result)
{
    uint32_t usual = fake.rank_count != 0 ? fake.rank_count : 1;
    uint32_t rank_count = world->rank_count != 0 ? world->rank_count : usual;
    ist_status first = IST_OK;
    fake.world = *world;
    fake.had_process = world->process != NULL;
    if (world->process != NULL) {
        fake.process = *world->process;
    }
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
        ist_status status = run_one(world, rank, rank_count);
        if (status != IST_OK && first == IST_OK) {
            first = status;
            result->failed_rank = (int32_t)rank;
        }
    }
    result->event_count = rank_count;
    return first;
}

const ist_backend *fake_backend(void)
{
    static const ist_backend backend = {
        .size = sizeof(ist_backend),
        .abi = IST_BACKEND_ABI,
        .name = "fake",
        .probe = fake_probe,
        .world_run = fake_world_run,
        .ops = &fake_ops,
    };
    static bool registered;
    if (!registered && ist_backend_register(&backend) == IST_OK) {
        registered = true;
    }
    return &backend;
}

void fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
}

int64_t fake_live(void)
{
    return fake.memory_live + fake.stream_live + fake.event_live + fake.graph_live +
           fake.comm_live + fake.window_live + fake.devcomm_live;
}
