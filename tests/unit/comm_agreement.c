/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collective set-up calls succeed on all ranks or on none: what a peer failed at, or passed
 * differently, or that it did not come, is an error here, and nothing is left behind.
 * Method: the fake's exchange echoes this rank for all; a hook spoils one peer at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "front_fixture.h"
#include "ist_internal.h"

#include "mask/mask_args.h"

#define REFUSED(call, expected_status)                                                             \
    do {                                                                                           \
        assert_int_equal((call), (expected_status));                                               \
        assert_int_equal(front_error().status, (expected_status));                                 \
    } while (0)

/* What the hook does, and from which exchange on. */
static struct {
    uint32_t at; /* number of the exchange that is spoilt */
    uint32_t peer;
    bool lose;
    size_t word;    /* 8-byte word of the peer's row that is changed … */
    uint64_t value; /* … to this */
} spoil;

static void spoil_peer(uint32_t number, uint32_t rank, uint32_t rank_count, size_t bytes,
                       uint8_t *rows, uint64_t *lost_words)
{
    (void)rank, (void)rank_count;
    if (number != spoil.at) {
        return;
    }
    if (spoil.lose) {
        memset(rows + spoil.peer * bytes, 0, bytes);
        lost_words[spoil.peer / 64u] |= UINT64_C(1) << (spoil.peer % 64u);
        return;
    }
    memcpy(rows + spoil.peer * bytes + spoil.word * 8, &spoil.value, 8);
}

static void spoil_exchange(uint32_t at, uint32_t peer, size_t word, uint64_t value)
{
    spoil.at = fake.exchange_count + at;
    spoil.peer = peer;
    spoil.lose = false;
    spoil.word = word;
    spoil.value = value;
    fake.on_exchange = spoil_peer;
}

static void lose_in_exchange(uint32_t at, uint32_t peer)
{
    spoil_exchange(at, peer, 0, 0);
    spoil.lose = true;
}

/* Only rank 0 of a world of four runs the test; the others are the fake's echo. */
static ist_status (*program_of_rank_zero)(ist_world *world);

static ist_status only_rank_zero(ist_world *world, void *arg)
{
    (void)arg;
    return ist_world_rank(world) == 0 ? program_of_rank_zero(world) : IST_OK;
}

static void run_on_rank_zero(ist_status (*program)(ist_world *world))
{
    program_of_rank_zero = program;
    assert_int_equal(front_run(4, only_rank_zero, NULL), IST_OK);
    assert_int_equal(fake_live(), 0);
}

/* ---- open ------------------------------------------------------------------------------------ */

static ist_status open_arguments(ist_world *world)
{
    const ist_comm_desc good = {.size = sizeof(good)};
    ist_unique_id id;
    ist_comm_desc desc = good;
    ist_comm *comm = NULL;
    REFUSED(ist_comm_open(world, &good, NULL), IST_ERR_NULL);
    desc.size = 16;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_SIZE);
    desc = good;
    desc.reserved[1] = 1;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_RESERVED);
    desc = good;
    desc.fault_tolerant = 2;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT);
    desc = good;
    desc.deadline_ns = 10;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_RANGE);
    desc = good;
    desc.check = (ist_check)5;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT);
    desc = good;
    desc.rank_count = 3;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT);
    desc = good;
    desc.rank = 1;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT);
    memset(&id, 0, sizeof(id));
    desc = good;
    desc.id = &id;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT);
    assert_int_equal(ist_unique_id_create(world, &id), IST_OK);
    desc.rank = 4;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_RANGE);
    desc.rank = 0;
    desc.rank_count = 5;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_RANGE);
    assert_int_equal(fake.calls[FAKE_comm_open], 0);
    assert_null(comm);
    desc.rank_count = 2;
    desc.rank = 1;
    assert_int_equal(ist_comm_open(world, &desc, &comm), IST_OK);
    assert_memory_equal(fake.comm_desc.id, id.bytes, sizeof(id.bytes));
    assert_int_equal(fake.comm_desc.rank, 1);
    assert_int_equal(fake.comm_desc.rank_count, 2);
    id.bytes[50] ^= 1;
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_ARGUMENT);
    REFUSED(ist_unique_id_create(world, NULL), IST_ERR_NULL);
    return ist_comm_close(comm);
}

static void arguments_of_open(void **state)
{
    (void)state;
    run_on_rank_zero(open_arguments);
}

static ist_status open_spoilt(ist_world *world)
{
    ist_comm_desc desc = {.size = sizeof(desc), .check = IST_CHECK_PEERS};
    ist_comm *comm = NULL;
    for (uint32_t exchange = 0; exchange < 2; ++exchange) {
        lose_in_exchange(exchange, 2);
        REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_TIMEOUT);
        assert_int_equal(front_error().peer, 2);
        spoil_exchange(exchange, 3, 0, (uint64_t)(int64_t)IST_ERR_MEMORY);
        REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_MISMATCH);
        assert_int_equal(front_error().peer, 3);
        assert_non_null(strstr(front_error().message, "IST_ERR_MEMORY"));
    }
    /* The third field is the deadline. */
    spoil_exchange(0, 1, 5, 1234567);
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_MISMATCH);
    assert_string_equal(front_error().object, "desc.deadline_ns");
    assert_int_equal(front_error().observed, 1234567);
    assert_non_null(strstr(front_error().message, "1234567 on rank 1"));
    /* Unasked, values are not compared, but being in another call is. */
    desc.check = IST_CHECK_CALLS;
    spoil_exchange(0, 1, 1, 99);
    REFUSED(ist_comm_open(world, &desc, &comm), IST_ERR_MISMATCH);
    assert_null(comm);
    assert_int_equal(fake_live(), 0);
    spoil_exchange(0, 1, 5, 1234567);
    assert_int_equal(ist_comm_open(world, &desc, &comm), IST_OK);
    return ist_comm_close(comm);
}

static void open_succeeds_on_all_or_none(void **state)
{
    (void)state;
    run_on_rank_zero(open_spoilt);
}

static ist_status open_ids(ist_world *world)
{
    ist_comm *comm = NULL;
    ist_backend_comm_desc first;
    fake.fail[FAKE_comm_open] = IST_ERR_TIMEOUT;
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_ERR_TIMEOUT);
    fake.fail[FAKE_comm_open] = IST_OK;
    /* When ranks were missing everybody meets under the same id again; once all have joined, which
       no rank can fail to notice, under another, whatever went wrong on some rank later. */
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    first = fake.comm_desc;
    assert_int_equal(ist_comm_close(comm), IST_OK);
    fake.fail[FAKE_comm_exchange] = IST_ERR_TIMEOUT;
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_ERR_TIMEOUT);
    fake.fail[FAKE_comm_exchange] = IST_OK;
    ist_backend_comm_desc second = fake.comm_desc;
    assert_memory_not_equal(second.id, first.id, sizeof(first.id));
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    assert_memory_not_equal(fake.comm_desc.id, first.id, sizeof(first.id));
    assert_memory_not_equal(fake.comm_desc.id, second.id, sizeof(first.id));
    return ist_comm_close(comm);
}

static void whole_worlds_meet_by_number(void **state)
{
    (void)state;
    run_on_rank_zero(open_ids);
}

static ist_status shape_and_end(ist_world *world)
{
    ist_comm_info info = {.size = sizeof(info)};
    ist_stream *stream = NULL;
    ist_comm *comm = NULL;
    ist_team team;
    fake.lsa_size = 2;
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    assert_int_equal(ist_comm_query(comm, &info), IST_OK);
    assert_int_equal(info.rank_count, 4);
    assert_int_equal(info.lsa_size, 2);
    assert_int_equal(info.sm_count, 8);
    assert_int_equal(info.deadline_ns, IST_DEADLINE_NS_DEFAULT);
    assert_string_equal(info.gin_reason, "the fake has no network");
    REFUSED(ist_comm_query(comm, NULL), IST_ERR_NULL);
    info.size = 4;
    REFUSED(ist_comm_query(comm, &info), IST_ERR_SIZE);
    assert_int_equal(ist_comm_team_rail(comm, &team), IST_OK);
    assert_int_equal(team.rank_count, 2);
    assert_int_equal(team.stride, 2);
    assert_int_equal(ist_comm_team_lsa(comm, &team), IST_OK);
    assert_int_equal(team.rank_count, 2);
    assert_int_equal(ist_comm_team_world(comm, &team), IST_OK);
    assert_int_equal(team.rank_count, 4);
    REFUSED(ist_comm_team_world(comm, NULL), IST_ERR_NULL);
    /* Some peers are out of reach, so there are no kernels between all. */
    REFUSED(ist_comm_barrier(comm, stream), IST_ERR_UNSUPPORTED);
    assert_non_null(strstr(front_error().message, "the fake has no network"));
    assert_int_equal(ist_comm_status(comm), IST_OK);
    assert_int_equal(ist_comm_abort(comm), IST_OK);
    assert_int_equal(ist_comm_abort(comm), IST_OK);
    assert_int_equal(ist_comm_status(comm), IST_ERR_ABORTED);
    REFUSED(ist_comm_barrier(comm, stream), IST_ERR_ABORTED);
    ist_comm *split = NULL;
    REFUSED(ist_comm_split(comm, 0, 0, &split), IST_ERR_ABORTED);
    info.size = sizeof(info);
    assert_int_equal(ist_comm_query(comm, &info), IST_OK);
    assert_int_equal(ist_comm_close(comm), IST_OK);
    REFUSED(ist_comm_close(comm), IST_ERR_OBJECT);
    assert_int_equal(ist_comm_close(NULL), IST_OK);
    return ist_stream_close(stream);
}

static void shape_abort_close(void **state)
{
    (void)state;
    run_on_rank_zero(shape_and_end);
}

/* ---- split ----------------------------------------------------------------------------------- */

static void colors_and_keys(uint32_t number, uint32_t rank, uint32_t rank_count, size_t bytes,
                            uint8_t *rows, uint64_t *lost_words)
{
    /* Colors 1 0 1 1, keys 5 0 9 5: rank 0 comes first, then 3, then 2. */
    const int32_t colors[] = {1, 0, 1, 1};
    const int32_t keys[] = {5, 0, 9, 5};
    (void)rank, (void)lost_words;
    for (uint32_t i = 0; number == spoil.at && i < rank_count; ++i) {
        memcpy(rows + i * bytes + 16, &colors[i], 4);
        memcpy(rows + i * bytes + 20, &keys[i], 4);
    }
}

static ist_status split_program(ist_world *world)
{
    ist_comm *comm = NULL;
    ist_comm *split = NULL;
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    spoil.at = fake.exchange_count;
    fake.on_exchange = colors_and_keys;
    assert_int_equal(ist_comm_split(comm, 1, 5, &split), IST_OK);
    assert_int_equal(fake.comm_desc.rank_count, 3);
    assert_int_equal(fake.comm_desc.rank, 0);
    ist_backend_comm_desc first = fake.comm_desc;
    assert_int_equal(ist_comm_close(split), IST_OK);
    fake.on_exchange = NULL;
    assert_int_equal(ist_comm_split(comm, 1, 5, &split), IST_OK);
    assert_memory_not_equal(fake.comm_desc.id, first.id, sizeof(first.id));
    assert_int_equal(fake.comm_desc.rank_count, 4);
    assert_int_equal(ist_comm_close(split), IST_OK);
    assert_int_equal(ist_comm_split(comm, -1, 5, &split), IST_OK);
    assert_null(split);
    split = comm;
    REFUSED(ist_comm_split(comm, -2, 0, &split), IST_ERR_ARGUMENT);
    REFUSED(ist_comm_split(comm, 0, 0, NULL), IST_ERR_NULL);
    lose_in_exchange(0, 3);
    REFUSED(ist_comm_split(comm, 0, 0, &split), IST_ERR_TIMEOUT);
    assert_int_equal(front_error().peer, 3);
    spoil_exchange(0, 1, 0, (uint64_t)(int64_t)IST_ERR_ARGUMENT);
    REFUSED(ist_comm_split(comm, 0, 0, &split), IST_ERR_MISMATCH);
    assert_ptr_equal(split, comm);
    return ist_comm_close(comm);
}

static void splits(void **state)
{
    (void)state;
    run_on_rank_zero(split_program);
}

/* Rank 3 is dead in both exchanges of a split. */
static void rank_three_is_dead(uint32_t number, uint32_t rank, uint32_t rank_count, size_t bytes,
                               uint8_t *rows, uint64_t *lost_words)
{
    (void)number, (void)rank;
    if (rank_count == 4) {
        memset(rows + 3 * bytes, 0, bytes);
        lost_words[0] |= 8u;
    }
}

static ist_status split_without_the_dead(ist_world *world)
{
    const ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    const uint64_t survivors = 7;
    ist_stream *stream = NULL;
    ist_comm *comm = NULL;
    ist_comm *split = NULL;
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_comm_open(world, &desc, &comm), IST_OK);
    fake.on_exchange = rank_three_is_dead;
    REFUSED(ist_comm_split(comm, 0, 0, &split), IST_ERR_TIMEOUT);
    assert_int_equal(ist_comm_mask_update(comm, &survivors, stream), IST_OK);
    assert_int_equal(ist_comm_split(comm, 0, 0, &split), IST_OK);
    assert_int_equal(fake.comm_desc.rank_count, 3);
    assert_int_equal(ist_comm_close(split), IST_OK);
    assert_int_equal(ist_comm_close(comm), IST_OK);
    return ist_stream_close(stream);
}

/* Whom the mask does not count on is not missed by any set-up call. */
static ist_status windows_program_without_the_dead(ist_world *world)
{
    const ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    const uint64_t survivors = 7;
    ist_stream *stream = NULL;
    ist_comm *comm = NULL;
    ist_window *window = NULL;
    void *memory = NULL;
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 4096, IST_MEM_SYMMETRIC, &memory), IST_OK);
    assert_int_equal(ist_comm_open(world, &desc, &comm), IST_OK);
    fake.on_exchange = rank_three_is_dead;
    REFUSED(ist_window_open(comm, memory, 4096, &window), IST_ERR_TIMEOUT);
    assert_int_equal(ist_comm_mask_update(comm, &survivors, stream), IST_OK);
    assert_int_equal(ist_window_open(comm, memory, 4096, &window), IST_OK);
    assert_int_equal(ist_window_close(window), IST_OK);
    assert_int_equal(ist_comm_close(comm), IST_OK);
    assert_int_equal(ist_mem_free(world, memory), IST_OK);
    return ist_stream_close(stream);
}

static void windows_without_the_dead(void **state)
{
    (void)state;
    run_on_rank_zero(windows_program_without_the_dead);
}

static void survivors_split_without_the_dead(void **state)
{
    (void)state;
    run_on_rank_zero(split_without_the_dead);
}

/* ---- windows and device communicators -------------------------------------------------------- */

static ist_status window_program(ist_world *world)
{
    ist_comm *comm = NULL;
    ist_window *window = NULL;
    void *symmetric = NULL;
    void *plain = NULL;
    void *address = NULL;
    uint64_t offset = 0;
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 8192, IST_MEM_SYMMETRIC, &symmetric), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 8192, 0, &plain), IST_OK);
    uint8_t *at = symmetric;
    REFUSED(ist_window_open(NULL, symmetric, 8192, &window), IST_ERR_NULL);
    REFUSED(ist_window_open(comm, NULL, 8192, &window), IST_ERR_NULL);
    REFUSED(ist_window_open(comm, symmetric, 8192, NULL), IST_ERR_NULL);
    REFUSED(ist_window_open(comm, at + 64, 64, &window), IST_ERR_ALIGNMENT);
    REFUSED(ist_window_open(comm, symmetric, 0, &window), IST_ERR_ARGUMENT);
    REFUSED(ist_window_open(comm, symmetric, 8193, &window), IST_ERR_ARGUMENT);
    REFUSED(ist_window_open(comm, plain, 4096, &window), IST_ERR_ARGUMENT);
    fake.window_reason = "it rains";
    world->caps_known = false;
    REFUSED(ist_window_open(comm, symmetric, 4096, &window), IST_ERR_UNSUPPORTED);
    assert_non_null(strstr(front_error().message, "it rains"));
    fake.window_reason = NULL;
    world->caps_known = false;
    assert_int_equal(fake.calls[FAKE_window_open], 0);
    /* Both exchanges, lost and failed; then indices that differ, and none at all. */
    for (uint32_t exchange = 0; exchange < 2; ++exchange) {
        lose_in_exchange(exchange, 1);
        REFUSED(ist_window_open(comm, symmetric, 4096, &window), IST_ERR_TIMEOUT);
        spoil_exchange(exchange, 2, 0, (uint64_t)(int64_t)IST_ERR_ALIGNMENT);
        REFUSED(ist_window_open(comm, symmetric, 4096, &window), IST_ERR_MISMATCH);
    }
    spoil_exchange(1, 2, 3, 77);
    REFUSED(ist_window_open(comm, symmetric, 4096, &window), IST_ERR_MISMATCH);
    fake.on_exchange = NULL;
    fake.window_null = true;
    REFUSED(ist_window_open(comm, symmetric, 4096, &window), IST_ERR_INTERNAL);
    fake.window_null = false;
    assert_int_equal(fake.window_live, 0);
    assert_null(window);

    assert_int_equal(ist_window_open(comm, symmetric, 5000, &window), IST_OK);
    assert_int_equal(ist_window_bytes(window), 5000);
    assert_int_not_equal(ist_window_index(window), 0);
    assert_int_equal(ist_window_address(window, 4096, 904, &address), IST_OK);
    assert_ptr_equal(address, at + 4096);
    assert_int_equal(ist_window_address(window, 5000, 0, &address), IST_OK);
    REFUSED(ist_window_address(window, 4096, 905, &address), IST_ERR_RANGE);
    REFUSED(ist_window_address(window, UINT64_MAX, 2, &address), IST_ERR_RANGE);
    REFUSED(ist_window_address(window, 2, UINT64_MAX, &address), IST_ERR_RANGE);
    assert_int_equal(ist_window_offset(window, at + 4999, &offset), IST_OK);
    assert_int_equal(offset, 4999);
    REFUSED(ist_window_offset(window, at + 5000, &offset), IST_ERR_RANGE);
    REFUSED(ist_window_offset(window, NULL, &offset), IST_ERR_RANGE);
    REFUSED(ist_mem_free(world, symmetric), IST_ERR_USAGE);
    assert_int_equal(ist_mem_free(world, plain), IST_OK);
    REFUSED(ist_comm_close(comm), IST_ERR_USAGE);
    assert_int_equal(ist_window_close(window), IST_OK);
    assert_int_equal(ist_window_bytes(window), 0);
    assert_int_equal(ist_window_index(window), 0);
    REFUSED(ist_window_close(window), IST_ERR_OBJECT);
    assert_int_equal(ist_window_close(NULL), IST_OK);
    assert_int_equal(ist_mem_free(world, symmetric), IST_OK);
    return ist_comm_close(comm);
}

static void windows(void **state)
{
    (void)state;
    run_on_rank_zero(window_program);
}

static ist_status devcomm_program(ist_world *world)
{
    ist_comm *comm = NULL;
    const ist_dev_comm *dev = NULL;
    const ist_dev_comm *left_open = NULL;
    assert_int_equal(ist_comm_open(world, NULL, &comm), IST_OK);
    REFUSED(ist_dev_comm_open(comm, 64, 1, 1, 0, 0, &dev), IST_ERR_UNSUPPORTED);
    REFUSED(ist_dev_comm_open(comm, 64, 0, 1, 0, 0, &dev), IST_ERR_RANGE);
    REFUSED(ist_dev_comm_open(comm, UINT64_MAX, 0, 0, 0, 0, &dev), IST_ERR_RANGE);
    REFUSED(ist_dev_comm_open(comm, 64, 0, 0, 0, 1, NULL), IST_ERR_NULL);
    for (uint32_t exchange = 0; exchange < 2; ++exchange) {
        lose_in_exchange(exchange, 1);
        REFUSED(ist_dev_comm_open(comm, 64, 0, 0, 0, 1, &dev), IST_ERR_TIMEOUT);
    }
    fake.on_exchange = NULL;
    assert_null(dev);
    assert_int_equal(fake.devcomm_live, 1); /* the communicator's own */
    assert_int_equal(ist_dev_comm_open(comm, 64, 0, 0, 0, 1, &dev), IST_OK);
    assert_ptr_equal(dev->mask, comm->mask);
    assert_int_equal(ist_dev_comm_open(comm, 64, 0, 0, 0, 1, &left_open), IST_OK);
    assert_int_equal(ist_dev_comm_close(comm, dev), IST_OK);
    REFUSED(ist_dev_comm_close(comm, dev), IST_ERR_OBJECT);
    assert_int_equal(ist_dev_comm_close(comm, NULL), IST_OK);
    return ist_comm_close(comm);
}

static void device_communicators(void **state)
{
    (void)state;
    run_on_rank_zero(devcomm_program);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static ist_comm *masked_comm(ist_world *world)
{
    const ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    ist_comm *comm = NULL;
    assert_int_equal(ist_comm_open(world, &desc, &comm), IST_OK);
    return comm;
}

static ist_status mask_program(ist_world *world)
{
    ist_stream *stream = NULL;
    ist_comm *plain = NULL;
    uint64_t words[2] = {0, 9};
    ist_mask mask = {.size = sizeof(mask), .words = words, .word_count = 2};
    void *out = NULL;
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_comm_open(world, NULL, &plain), IST_OK);
    assert_int_equal(ist_mem_alloc(world, 16, 0, &out), IST_OK);
    ist_comm *comm = masked_comm(world);
    assert_int_equal(ist_comm_mask_query(comm, &mask), IST_OK);
    assert_int_equal(mask.rank_count, 4);
    assert_int_equal(mask.generation, 1);
    assert_int_equal(words[0], 15);
    assert_int_equal(words[1], 0);
    REFUSED(ist_comm_mask_query(plain, &mask), IST_ERR_USAGE);
    mask.word_count = 0;
    REFUSED(ist_comm_mask_query(comm, &mask), IST_ERR_SIZE);
    mask.word_count = 2;
    mask.words = NULL;
    REFUSED(ist_comm_mask_query(comm, &mask), IST_ERR_NULL);
    mask.words = words;
    mask.reserved = 1;
    REFUSED(ist_comm_mask_query(comm, &mask), IST_ERR_RESERVED);
    mask.reserved = 0;

    const uint64_t without_self = 14;
    const uint64_t beyond = 31;
    const uint64_t fewer = 11;
    REFUSED(ist_comm_mask_update(comm, &without_self, stream), IST_ERR_ARGUMENT);
    REFUSED(ist_comm_mask_update(comm, &beyond, stream), IST_ERR_ARGUMENT);
    REFUSED(ist_comm_mask_update(comm, NULL, stream), IST_ERR_NULL);
    REFUSED(ist_comm_mask_update(plain, &fewer, stream), IST_ERR_USAGE);
    assert_int_equal(ist_comm_mask_update(comm, &fewer, stream), IST_OK);
    assert_int_equal(ist_comm_mask_query(comm, &mask), IST_OK);
    assert_int_equal(words[0], 11);

    REFUSED(ist_comm_mask_read(comm, NULL, stream), IST_ERR_NULL);
    REFUSED(ist_comm_mask_read(comm, (int32_t *)(void *)words, stream), IST_ERR_ARGUMENT);
    assert_int_equal(fake.calls[FAKE_launch], 0);
    assert_int_equal(ist_comm_mask_read(comm, out, stream), IST_OK);
    assert_int_equal(ist_comm_barrier(comm, stream), IST_OK);
    assert_int_equal(fake.calls[FAKE_launch], 2);
    assert_int_equal(ist_mem_free(world, out), IST_OK);
    assert_int_equal(ist_comm_close(comm), IST_OK);
    assert_int_equal(ist_comm_close(plain), IST_OK);
    return ist_stream_close(stream);
}

static void masks(void **state)
{
    (void)state;
    run_on_rank_zero(mask_program);
}

static ist_status error_program(ist_world *world)
{
    ist_comm *comm = masked_comm(world);
    ist_stream *stream = NULL;
    uint32_t count = 9;
    ist_error error = {.size = sizeof(error)};
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    assert_int_equal(ist_comm_error_get(comm, 0, &count, NULL), IST_OK);
    assert_int_equal(count, 0);
    REFUSED(ist_comm_error_get(comm, 0, &count, &error), IST_ERR_RANGE);
    REFUSED(ist_comm_error_get(comm, 0, NULL, &error), IST_ERR_NULL);
    /* The fake's device memory is host memory: be the kernel. */
    comm->mask->errors[0] = (ist_dev_error){.status = IST_ERR_TIMEOUT,
                                            .peer = 2,
                                            .operation = IST_DEV_OP_EP_DISPATCH,
                                            .sequence = 7,
                                            .expected = 7,
                                            .observed = 6,
                                            .waited_ns = 5000};
    comm->mask->error_count = 40;
    *comm->mask->alarm = 1;
    assert_int_equal(ist_comm_error_get(comm, 0, &count, &error), IST_OK);
    assert_int_equal(count, 40);
    assert_int_equal(error.status, IST_ERR_TIMEOUT);
    assert_int_equal(error.peer, 2);
    assert_int_equal(error.waited_ns, 5000);
    assert_string_equal(error.operation, "ep.dispatch");
    assert_non_null(strstr(error.message, "rank 2 did not come within 5000 ns"));
    REFUSED(ist_comm_error_get(comm, 16, &count, &error), IST_ERR_RANGE);
    comm->mask->failed_status = IST_ERR_TIMEOUT;
    assert_int_equal(ist_comm_status(comm), IST_ERR_TIMEOUT);
    REFUSED(ist_comm_barrier(comm, stream), IST_ERR_TIMEOUT);
    assert_int_equal(front_error().peer, 2);
    comm->mask->failed_status = 0;
    assert_int_equal(ist_comm_error_clear(comm), IST_OK);
    assert_int_equal(ist_comm_error_get(comm, 0, &count, NULL), IST_OK);
    assert_int_equal(count, 0);
    assert_int_equal(ist_comm_close(comm), IST_OK);
    return ist_stream_close(stream);
}

static void recorded_errors(void **state)
{
    (void)state;
    run_on_rank_zero(error_program);
}

/* The consensus kernels, as far as the host can see. */
static struct {
    ist_status status;
    bool silent;
    uint64_t participants;
    uint64_t generation;
    char order[128];
} consensus;

static void write_result(ist_mask_result *result, uint64_t sequence, uint64_t generation)
{
    if (!consensus.silent) {
        *result = (ist_mask_result){.sequence = sequence,
                                    .status = consensus.status,
                                    .rounds = 2,
                                    .generation = generation};
    }
}

static void run_consensus(const ist_kernel *kernel, const void *args)
{
    size_t used = strlen(consensus.order);
    snprintf(consensus.order + used, sizeof(consensus.order) - used, "%s ", kernel->name);
    if (kernel == &ist_kernel_mask_agree) {
        const ist_mask_agree_args *agree = args;
        write_result(agree->result, agree->sequence, 2);
    } else if (kernel == &ist_kernel_mask_clean) {
        const ist_mask_clean_args *clean = args;
        consensus.participants = *clean->participants;
        consensus.generation = clean->generation;
        write_result(clean->result, clean->sequence, clean->generation);
    }
}

static ist_status consensus_program(ist_world *world)
{
    ist_comm *comm = masked_comm(world);
    ist_comm *plain = NULL;
    ist_stream *stream = NULL;
    uint64_t payload[4] = {5, 0, 9, 1};
    assert_int_equal(ist_comm_open(world, NULL, &plain), IST_OK);
    assert_int_equal(ist_stream_open(world, &stream), IST_OK);
    fake.on_launch = run_consensus;
    memset(&consensus, 0, sizeof(consensus));
    REFUSED(ist_comm_agree(plain, stream), IST_ERR_USAGE);
    REFUSED(ist_comm_clean(plain, stream), IST_ERR_USAGE);
    assert_int_equal(ist_comm_agree(comm, stream), IST_OK);
    consensus.status = IST_ERR_EVICTED;
    REFUSED(ist_comm_agree(comm, stream), IST_ERR_EVICTED);
    consensus.silent = true;
    REFUSED(ist_comm_agree(comm, stream), IST_ERR_DEVICE);
    assert_int_equal(ist_graph_begin(stream), IST_OK);
    REFUSED(ist_comm_agree(comm, stream), IST_ERR_USAGE);
    ist_graph *graph = NULL;
    assert_int_equal(ist_graph_end(stream, &graph), IST_OK);
    assert_int_equal(ist_graph_close(graph), IST_OK);

    memset(&consensus, 0, sizeof(consensus));
    comm->mask->generation = 6;
    /* Rank 1 brings a later generation (word 2) and a larger payload; rank 3 does not come. */
    spoil_exchange(0, 1, 2, 8);
    assert_int_equal(ist_comm_clean_with(comm, stream, payload, "comm.clean"), IST_OK);
    assert_string_equal(consensus.order, "mask_clean_begin mask_clean ");
    assert_int_equal(consensus.generation, 9);
    assert_int_equal(consensus.participants, 15);
    spoil_exchange(0, 1, 4, 100);
    assert_int_equal(ist_comm_clean_with(comm, stream, payload, "comm.clean"), IST_OK);
    assert_int_equal(payload[0], 5);
    assert_int_equal(payload[1], 100);
    assert_int_equal(payload[2], 9);
    lose_in_exchange(0, 3);
    consensus.status = IST_INCOMPLETE;
    assert_int_equal(ist_comm_clean(comm, stream), IST_INCOMPLETE);
    assert_int_equal(consensus.participants, 7);
    /* A rank that says that it failed, or that is in another call, does not take part. */
    spoil_exchange(0, 2, 1, (uint64_t)(int64_t)IST_ERR_TIMEOUT);
    assert_int_equal(ist_comm_clean(comm, stream), IST_INCOMPLETE);
    assert_int_equal(consensus.participants, 11);
    spoil_exchange(0, 1, 0, 4711);
    assert_int_equal(ist_comm_clean(comm, stream), IST_INCOMPLETE);
    assert_int_equal(consensus.participants, 13);
    lose_in_exchange(0, 0);
    REFUSED(ist_comm_clean(comm, stream), IST_ERR_EVICTED);
    assert_int_equal(ist_comm_close(plain), IST_OK);
    assert_int_equal(ist_comm_close(comm), IST_OK);
    return ist_stream_close(stream);
}

static void agree_and_clean(void **state)
{
    (void)state;
    run_on_rank_zero(consensus_program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(arguments_of_open, front_set_up),
        cmocka_unit_test_setup(open_succeeds_on_all_or_none, front_set_up),
        cmocka_unit_test_setup(whole_worlds_meet_by_number, front_set_up),
        cmocka_unit_test_setup(shape_abort_close, front_set_up),
        cmocka_unit_test_setup(splits, front_set_up),
        cmocka_unit_test_setup(survivors_split_without_the_dead, front_set_up),
        cmocka_unit_test_setup(windows, front_set_up),
        cmocka_unit_test_setup(windows_without_the_dead, front_set_up),
        cmocka_unit_test_setup(device_communicators, front_set_up),
        cmocka_unit_test_setup(masks, front_set_up),
        cmocka_unit_test_setup(recorded_errors, front_set_up),
        cmocka_unit_test_setup(agree_and_clean, front_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
