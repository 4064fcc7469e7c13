/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what dispatch delivered: counters, rows, metadata, and that nothing else was written. The
 * same pass lets the experts work: rows are read once, compared, changed and written to combine's
 * input.
 */
#include "cli_check.h"

#include <isthmus/backend.h>
#include <stdlib.h>
#include <string.h>

/* One attempt: what dispatch should have delivered if the excluded ranks left nothing. */
typedef struct attempt {
    cli_rank *rank;
    const cli_check *check;
    const ep_oracle_received *expected;
    cli_finding finding;
} attempt;

/* ------------------------------------------------------------------------------------ poison */

/* Rows of a block that are filled when not all are: the first behind the full block, and the last. */
static uint32_t guard_rows(const cli_rank *rank, uint32_t full_count, uint64_t guards[2])
{
    uint32_t count = 0;
    if (full_count < rank->block_rows) {
        guards[count++] = full_count;
    }
    if (full_count + UINT64_C(1) < rank->block_rows) {
        guards[count++] = rank->block_rows - 1;
    }
    return count;
}

static ist_status poison_received(cli_rank *rank, const ep_oracle_received *full)
{
    char *base = rank->memory.received;
    uint64_t bytes = rank->block_count * rank->block_rows * rank->row_bytes;
    if (rank->poison_all) {
        return bytes == 0 ? IST_OK : ist_fill(rank->stream, base, CLI_POISON, bytes);
    }
    for (uint32_t block = 0; block < rank->block_count; ++block) {
        uint64_t guards[2];
        uint32_t count = guard_rows(rank, full->counts[block], guards);
        for (uint32_t i = 0; i < count; ++i) {
            IST_RETURN_IF_ERROR(ist_fill(rank->stream, cli_block_row(rank, base, block, guards[i]),
                                         CLI_POISON, rank->row_bytes));
        }
    }
    return IST_OK;
}

ist_status cli_check_poison(cli_rank *rank, const ep_oracle_received *full)
{
    const cli_memory *m = &rank->memory;
    uint64_t entries = rank->block_count * rank->block_rows * rank->options->topk;
    uint64_t combined = ((uint64_t)rank->options->tokens + 1) * rank->row_bytes;
    IST_RETURN_IF_ERROR(poison_received(rank, full));
    if (!rank->expert_major) {
        IST_RETURN_IF_ERROR(
            ist_fill(rank->stream, m->received_ids, CLI_POISON, entries * sizeof(int32_t)));
        IST_RETURN_IF_ERROR(
            ist_fill(rank->stream, m->received_weights, CLI_POISON, entries * sizeof(float)));
    }
    if (rank->block_count != 0) {
        IST_RETURN_IF_ERROR(
            ist_fill(rank->stream, m->counters, CLI_POISON, rank->block_count * sizeof(int32_t)));
    }
    IST_RETURN_IF_ERROR(ist_fill(rank->stream, m->lost_counts, CLI_POISON,
                                 rank->options->tokens * sizeof(int32_t)));
    return ist_fill(rank->stream, m->combined, CLI_POISON, combined);
}

/* Rows [first, first + count) of a block must still be as they were filled. */
static ist_status check_untouched_rows(attempt *a, uint32_t block, uint64_t first, uint64_t count)
{
    cli_rank *rank = a->rank;
    while (count != 0) {
        uint64_t some = count < rank->chunk_rows ? count : rank->chunk_rows;
        const char *from = cli_block_row(rank, rank->memory.received, block, first);
        IST_RETURN_IF_ERROR(
            ist_copy_to_host(rank->stream, rank->scratch.chunk, from, some * rank->row_bytes));
        for (uint64_t i = 0; i < some; ++i) {
            ++a->finding.rows;
            if (!cli_is_poison(rank->scratch.chunk + i * rank->row_bytes, rank->row_bytes)) {
                cli_finding_wrong(&a->finding, "block %u row %llu was written, %u are valid", block,
                                  (unsigned long long)(first + i), a->expected->counts[block]);
            }
        }
        first += some;
        count -= some;
    }
    return IST_OK;
}

static ist_status check_untouched(attempt *a, uint32_t block)
{
    uint64_t guards[2];
    uint32_t valid = a->expected->counts[block];
    if (a->rank->poison_all) {
        return check_untouched_rows(a, block, valid, a->rank->block_rows - valid);
    }
    uint32_t count = guard_rows(a->rank, a->check->full->counts[block], guards);
    for (uint32_t i = 0; i < count; ++i) {
        IST_RETURN_IF_ERROR(check_untouched_rows(a, block, guards[i], 1));
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ rows */

/* A rank that was lost while its rows were copied may have left zeros. */
static bool zeros_of_lost(const cli_rank *rank, const char *row, uint32_t source)
{
    if (!ist_mask_test(rank->scratch.lost, source)) {
        return false;
    }
    for (size_t i = 0; i < rank->row_bytes; ++i) {
        if (row[i] != 0) {
            return false;
        }
    }
    return true;
}

static void check_row(attempt *a, uint32_t block, uint64_t slot, const char *row)
{
    cli_rank *rank = a->rank;
    const ep_oracle *oracle = &a->check->step->oracle;
    const ep_oracle_row *from = &a->expected->rows[a->expected->first[block] + slot];
    if (zeros_of_lost(rank, row, from->source)) {
        ++a->finding.rows;
        return;
    }
    oracle->token(oracle->context, from->source, from->token, rank->scratch.row);
    cli_finding_compare(rank, &a->finding, "block", row, rank->scratch.row, block, slot);
}

/* What the experts make of a row that was delivered, whether it is right or wrong. */
static void work_on(attempt *a, uint32_t block, uint64_t slot, char *row)
{
    cli_rank *rank = a->rank;
    const ep_oracle *oracle = &a->check->step->oracle;
    if (rank->expert_major) {
        uint32_t expert = ep_oracle_expert_first(oracle, rank->rank) + block;
        oracle->expert(oracle->context, expert, row);
        return;
    }
    size_t at = slot * oracle->topk;
    oracle->rank(oracle->context, rank->rank, rank->scratch.ids + at, rank->scratch.weights + at,
                 row);
}

static ist_status check_rows(attempt *a, uint32_t block)
{
    cli_rank *rank = a->rank;
    char *chunk = rank->scratch.chunk;
    uint32_t valid = a->expected->counts[block];
    for (uint64_t first = 0; first < valid; first += rank->chunk_rows) {
        uint64_t left = valid - first;
        uint64_t count = left < rank->chunk_rows ? left : rank->chunk_rows;
        size_t bytes = count * rank->row_bytes;
        IST_RETURN_IF_ERROR(ist_copy_to_host(
            rank->stream, chunk, cli_block_row(rank, rank->memory.received, block, first), bytes));
        a->finding.hash = cli_hash_bytes(chunk, bytes, a->finding.hash);
        for (uint64_t i = 0; i < count; ++i) {
            check_row(a, block, first + i, chunk + i * rank->row_bytes);
            work_on(a, block, first + i, chunk + i * rank->row_bytes);
        }
        IST_RETURN_IF_ERROR(ist_copy_to_device(
            rank->stream, cli_block_row(rank, rank->memory.worked, block, first), chunk, bytes));
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ metadata */

static void check_metadata_row(attempt *a, uint32_t block, uint32_t slot)
{
    cli_rank *rank = a->rank;
    const ep_oracle *oracle = &a->check->step->oracle;
    const int32_t *ids = rank->scratch.ids + (size_t)slot * oracle->topk;
    const float *weights = rank->scratch.weights + (size_t)slot * oracle->topk;
    int32_t expected_ids[IST_EP_TOPK_MAX];
    float expected_weights[IST_EP_TOPK_MAX];
    bool valid = slot < a->expected->counts[block];
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        expected_ids[k] = -1;
    }
    if (valid) {
        const ep_oracle_row *from = &a->expected->rows[a->expected->first[block] + slot];
        ep_oracle_metadata(oracle, rank->rank, from, expected_ids, expected_weights);
    }
    size_t bytes = oracle->topk * sizeof *ids;
    if (memcmp(ids, expected_ids, bytes) != 0) {
        cli_finding_wrong(&a->finding, "ids of source %u row %u", block, slot);
    } else if (valid ? memcmp(weights, expected_weights, bytes) != 0
                     : !cli_is_poison((const char *)weights, bytes)) {
        cli_finding_wrong(&a->finding, "weights of source %u row %u", block, slot);
    }
}

/* RANK_MAJOR: reads the block's ids and weights, which the experts' work needs too. */
static ist_status check_metadata(attempt *a, uint32_t block)
{
    cli_rank *rank = a->rank;
    uint32_t topk = rank->options->topk;
    size_t entries = (size_t)rank->block_rows * topk;
    size_t at = block * entries * sizeof(int32_t);
    IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, rank->scratch.ids,
                                         rank->memory.received_ids + at,
                                         entries * sizeof(int32_t)));
    IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, rank->scratch.weights,
                                         rank->memory.received_weights + at,
                                         entries * sizeof(float)));
    for (uint32_t slot = 0; slot < rank->block_rows; ++slot) {
        check_metadata_row(a, block, slot);
    }
    size_t valid = (size_t)a->expected->counts[block] * topk * sizeof(int32_t);
    a->finding.hash = cli_hash_bytes(rank->scratch.ids, valid, a->finding.hash);
    a->finding.hash = cli_hash_bytes(rank->scratch.weights, valid, a->finding.hash);
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ attempts */

static bool counters_match(const cli_rank *rank, const ep_oracle_received *expected)
{
    for (uint32_t block = 0; block < rank->block_count; ++block) {
        if (rank->scratch.numbers[block] != (int32_t)expected->counts[block]) {
            return false;
        }
    }
    return true;
}

/* Each row too many or too few counts as wrong, up to a full block. */
static void count_mismatch(attempt *a)
{
    const int32_t *found = a->rank->scratch.numbers;
    for (uint32_t block = 0; block < a->rank->block_count; ++block) {
        int64_t off = (int64_t)found[block] - (int64_t)a->expected->counts[block];
        uint64_t wrong = (uint64_t)(off < 0 ? -off : off);
        if (wrong > a->rank->block_rows) {
            wrong = a->rank->block_rows;
        }
        for (uint64_t i = 0; i < wrong; ++i) {
            cli_finding_wrong(&a->finding, "counter %u is %d instead of %u", block, found[block],
                              a->expected->counts[block]);
        }
    }
}

static ist_status try_rows(attempt *a)
{
    for (uint32_t block = 0; block < a->rank->block_count; ++block) {
        if (!a->rank->expert_major) {
            IST_RETURN_IF_ERROR(check_metadata(a, block));
        }
        IST_RETURN_IF_ERROR(check_rows(a, block));
        IST_RETURN_IF_ERROR(check_untouched(a, block));
    }
    return IST_OK;
}

/* Tries one set of suspects; keeps the finding when it is the best so far. Counters have to match,
   but for the last resort. */
static ist_status try_set(cli_rank *rank, const cli_check *check, const cli_suspects *suspects,
                          uint32_t set, bool last_resort, cli_finding *best, bool *explained)
{
    ep_oracle_received expected;
    attempt a = {.rank = rank, .check = check, .expected = &expected};
    ist_status status = IST_OK;
    cli_suspects_exclude(rank, suspects, set);
    if (!ep_oracle_receive(&check->step->oracle, rank->rank, rank->scratch.excluded, &expected)) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory to check step %u",
                         check->step->number);
    }
    bool match = counters_match(rank, &expected);
    if (match || last_resort) {
        a.finding.hash = cli_hash_bytes(rank->scratch.numbers, rank->block_count * sizeof(int32_t),
                                        rank->report->output_hash);
        if (!match) {
            count_mismatch(&a);
        }
        status = try_rows(&a);
        if (!*explained || a.finding.wrong < best->wrong) {
            *best = a.finding;
        }
        *explained = true;
    }
    ep_oracle_received_free(&expected);
    return status;
}

ist_status cli_check_dispatch(cli_rank *rank, const cli_check *check)
{
    cli_suspects suspects;
    cli_finding best = {0};
    bool explained = false;
    cli_suspects_find(rank, &suspects);
    if (rank->block_count != 0) {
        IST_RETURN_IF_ERROR(ist_copy_to_host(rank->stream, rank->scratch.numbers,
                                             rank->memory.counters,
                                             rank->block_count * sizeof(int32_t)));
    }
    for (uint32_t set = 0; set < suspects.sets && (!explained || best.wrong != 0); ++set) {
        IST_RETURN_IF_ERROR(try_set(rank, check, &suspects, set, false, &best, &explained));
    }
    if (!explained) {
        IST_RETURN_IF_ERROR(
            try_set(rank, check, &suspects, suspects.sets - 1, true, &best, &explained));
    }
    cli_finding_settle(rank, check, "dispatch", &best);
    return IST_OK;
}
