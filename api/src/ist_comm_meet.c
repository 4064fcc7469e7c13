/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks meet: each tells how its preparation ended and what it was asked for, so that a collective
 * set-up call succeeds on all ranks or on none, and disagreement is an error instead of a hang.
 * Ranks that have left the mask of a fault-tolerant communicator are neither waited for nor missed.
 */
#include "ist_internal.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

/* A rank's row: three words, then the fields. */
enum { ROW_STATUS, ROW_CALL, ROW_CHECK, ROW_FIELDS };

typedef struct meeting {
    ist_comm *comm;
    const char *operation;
    const ist_field *fields;
    uint32_t field_count;
    size_t row_words;
    uint64_t *send;       /* one row */
    uint64_t *rows;       /* [rank_count] rows */
    uint64_t *lost_words; /* IST_MASK_WORDS(rank_count) */
    uint64_t *away_words; /* those that nobody expects */
} meeting;

ist_status ist_comm_exchange(ist_comm *comm, const void *send, size_t bytes, void *recv,
                             uint64_t *lost_words)
{
    ist_world *world = comm->object.world;
    return world->ops.comm_exchange(world->self, comm->object.number, send, bytes, recv,
                                    comm->deadline_ns, lost_words);
}

static const uint64_t *row_of(const meeting *at, uint32_t rank)
{
    return at->rows + (size_t)rank * at->row_words;
}

static bool came(const meeting *at, uint32_t rank)
{
    return !ist_mask_test(at->lost_words, rank);
}

/* Marks the ranks outside the mask, in `away_words` and for the exchange. The mask of the others
   may differ where nobody has agreed yet; then the exchange waits for whom it need not. */
static ist_status expect_active(meeting *at)
{
    ist_comm *comm = at->comm;
    ist_world *world = comm->object.world;
    uint32_t words = IST_MASK_WORDS(comm->rank_count);
    if (comm->fault_tolerant == 0 || comm->mask == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, comm->mask->words, at->away_words,
                                            words * sizeof(uint64_t)));
    for (uint32_t i = 0; i < words; ++i) {
        at->away_words[i] = ~at->away_words[i];
    }
    if (comm->rank_count % 64u != 0) {
        at->away_words[words - 1] &= (UINT64_C(1) << (comm->rank_count % 64u)) - 1u;
    }
    memcpy(at->lost_words, at->away_words, words * sizeof(uint64_t));
    return IST_OK;
}

static ist_status judge_lost(const meeting *at)
{
    for (uint32_t rank = 0; rank < at->comm->rank_count; ++rank) {
        if (!came(at, rank) && !ist_mask_test(at->away_words, rank)) {
            ist_error details = ist_details(at->comm->object.world, "comm", at->operation);
            details.peer = (int32_t)rank;
            details.waited_ns = at->comm->deadline_ns;
            return ist_raise(IST_ERR_TIMEOUT, &details,
                             "rank %u of %u did not come within %" PRIu64 " ns", rank,
                             at->comm->rank_count, at->comm->deadline_ns);
        }
    }
    return IST_OK;
}

static ist_status judge_status(const meeting *at)
{
    for (uint32_t rank = 0; rank < at->comm->rank_count; ++rank) {
        ist_status status = (ist_status)(int64_t)row_of(at, rank)[ROW_STATUS];
        if (came(at, rank) && status < 0) {
            ist_error details = ist_details(at->comm->object.world, "comm", at->operation);
            details.peer = (int32_t)rank;
            details.observed = (uint64_t)(int64_t)status;
            return ist_raise(IST_ERR_MISMATCH, &details, "the call failed on rank %u: %s (%s)",
                             rank, ist_status_sentence(status), ist_status_name(status));
        }
    }
    return IST_OK;
}

static ist_status judge_word(const meeting *at, size_t word, const char *name)
{
    uint32_t first = 0;
    while (first + 1 < at->comm->rank_count && !came(at, first)) {
        ++first;
    }
    uint64_t expected = row_of(at, first)[word];
    for (uint32_t rank = first + 1; rank < at->comm->rank_count; ++rank) {
        uint64_t observed = row_of(at, rank)[word];
        if (came(at, rank) && observed != expected) {
            ist_error details = ist_details(at->comm->object.world, name, at->operation);
            details.peer = (int32_t)rank;
            details.expected = expected;
            details.observed = observed;
            return ist_raise(IST_ERR_MISMATCH, &details,
                             "%s differs: %" PRIu64 " on rank %u, %" PRIu64 " on rank %u", name,
                             expected, first, observed, rank);
        }
    }
    return IST_OK;
}

static bool any_checks_peers(const meeting *at)
{
    for (uint32_t rank = 0; rank < at->comm->rank_count; ++rank) {
        if (row_of(at, rank)[ROW_CHECK] == IST_CHECK_PEERS) {
            return true;
        }
    }
    return false;
}

static ist_status judge_fields(const meeting *at)
{
    if (!any_checks_peers(at)) {
        return IST_OK;
    }
    for (uint32_t i = 0; i < at->field_count; ++i) {
        IST_RETURN_IF_ERROR(judge_word(at, ROW_FIELDS + i, at->fields[i].name));
    }
    return IST_OK;
}

/* What went wrong here is told before what went wrong elsewhere. */
static ist_status meet_after_failure(meeting *at, ist_status local)
{
    ist_error mine;
    ist_error_save(&mine);
    (void)ist_comm_exchange(at->comm, at->send, at->row_words * sizeof(uint64_t), at->rows,
                            at->lost_words);
    ist_error_restore(&mine);
    return local;
}

static ist_status meet(meeting *at, ist_status local)
{
    at->send[ROW_STATUS] = (uint64_t)(int64_t)local;
    at->send[ROW_CALL] = XXH3_64bits(at->operation, strlen(at->operation));
    at->send[ROW_CHECK] = (uint64_t)at->comm->check;
    for (uint32_t i = 0; i < at->field_count; ++i) {
        at->send[ROW_FIELDS + i] = at->fields[i].value;
    }
    ist_status expected = expect_active(at);
    local = local < 0 ? local : expected;
    if (local < 0) {
        return meet_after_failure(at, local);
    }
    IST_RETURN_IF_ERROR(ist_comm_exchange(at->comm, at->send, at->row_words * sizeof(uint64_t),
                                          at->rows, at->lost_words));
    IST_RETURN_IF_ERROR(judge_lost(at));
    IST_RETURN_IF_ERROR(judge_status(at));
    IST_RETURN_IF_ERROR(judge_word(at, ROW_CALL, "the collective call"));
    return judge_fields(at);
}

ist_status ist_comm_meet(ist_comm *comm, ist_status local, const ist_field *fields, uint32_t count,
                         const char *operation)
{
    meeting at = {.comm = comm,
                  .operation = operation,
                  .fields = fields,
                  .field_count = count,
                  .row_words = ROW_FIELDS + (size_t)count};
    size_t row_count = (size_t)comm->rank_count + 1;
    uint32_t mask_words = IST_MASK_WORDS(comm->rank_count);
    uint64_t *words =
        ist_alloc(row_count * at.row_words + 2u * (size_t)mask_words, sizeof(uint64_t));
    if (words == NULL) {
        return local < 0 ? local : ist_fail_memory(comm->object.world, "an exchange", operation);
    }
    at.send = words;
    at.rows = words + at.row_words;
    at.lost_words = words + row_count * at.row_words;
    at.away_words = at.lost_words + mask_words;
    ist_status status = meet(&at, local);
    ist_free(words);
    return status;
}

ist_status ist_comm_exchange_status(ist_comm *comm, ist_status local, const char *operation)
{
    return ist_comm_meet(comm, local, NULL, 0, operation);
}

ist_status ist_comm_agree_on_bytes(ist_comm *comm, const char *what, const void *bytes,
                                   size_t count, const char *operation)
{
    ist_field field = {what, XXH3_64bits(bytes, count)};
    ist_check check = comm->check;
    comm->check = IST_CHECK_PEERS;
    ist_status status = ist_comm_meet(comm, IST_OK, &field, 1, operation);
    comm->check = check;
    return status;
}
