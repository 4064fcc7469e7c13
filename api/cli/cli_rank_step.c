/* SPDX-License-Identifier: Apache-2.0 */
/* One step: upload, dispatch, experts, combine, agreement; every output is checked as soon as its
 * operation has ended. A rank whose peers have masked it stops where it learns of it: its outputs are
 * not to be trusted, and its experts' work must not reach anyone.
 */
#include "cli_rank.h"

#include <isthmus/backend.h>
#include <string.h>

static ist_status upload_rows(cli_rank *rank, const cli_step *step)
{
    const cli_scratch *s = &rank->scratch;
    for (uint32_t first = 0; first < rank->token_count; first += rank->chunk_rows) {
        uint32_t left = rank->token_count - first;
        uint32_t count = left < rank->chunk_rows ? left : rank->chunk_rows;
        for (uint32_t i = 0; i < count; ++i) {
            cli_data_token(&step->data, rank->rank, first + i, s->chunk + i * rank->row_bytes);
        }
        IST_RETURN_IF_ERROR(ist_copy_to_device(rank->stream,
                                               rank->memory.tokens + first * rank->row_bytes,
                                               s->chunk, count * rank->row_bytes));
    }
    return IST_OK;
}

static ist_status upload(cli_rank *rank, const cli_step *step)
{
    size_t entries = (size_t)rank->token_count * rank->options->topk;
    size_t first = (size_t)rank->rank * rank->options->tokens * rank->options->topk;
    if (entries == 0) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(upload_rows(rank, step));
    IST_RETURN_IF_ERROR(ist_copy_to_device(
        rank->stream, rank->memory.topk, step->oracle.topk_idx + first, entries * sizeof(int32_t)));
    return ist_copy_to_device(rank->stream, rank->memory.weights, step->oracle.topk_weights + first,
                              entries * sizeof(float));
}

ist_status cli_rank_upload(cli_rank *rank, uint32_t number)
{
    const cli_step *step = cli_steps_get(&rank->run->steps, number, rank->rank_count);
    if (step == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for step %u", number);
    }
    ist_status status = upload(rank, step);
    cli_steps_put(&rank->run->steps, step);
    return status;
}

static void show(cli_rank *rank, const cli_step *step, const char *what)
{
    cli_progress_show(&rank->run->progress, what, rank->rank, step->number,
                      rank->options->iterations, ist_world_clock_ns(rank->world));
}

/* Waits for the operation and reads its record. *evicted: nothing of it is to be used. */
static ist_status finish(cli_rank *rank, ist_ep_op op, ist_completion *record, bool *evicted)
{
    IST_RETURN_IF_ERROR(ist_stream_sync(rank->stream, 0));
    memset(rank->scratch.lost, 0, rank->word_count * sizeof(uint64_t));
    *record = (ist_completion){
        .size = sizeof *record, .lost_words = rank->scratch.lost, .word_count = rank->word_count};
    IST_RETURN_IF_ERROR(ist_ep_record(rank->handle, op, record));
    *evicted = record->status == IST_ERR_EVICTED;
    if (record->status < 0 && !*evicted) {
        return ist_raise(record->status, NULL, "rank %u: %s ended with %s", rank->rank,
                         op == IST_EP_OP_DISPATCH ? "dispatch" : "combine",
                         ist_status_name(record->status));
    }
    return IST_OK;
}

/* Ranks that the record names and that were still counted on when the step began. */
static uint32_t lost_now(const cli_rank *rank)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < rank->rank_count; ++r) {
        count += ist_mask_test(rank->scratch.lost, r) && ist_mask_test(rank->scratch.start, r);
    }
    return count;
}

static ist_status run_dispatch(cli_rank *rank, const cli_check *check, cli_step_report *note,
                               bool *evicted)
{
    ist_completion record;
    uint64_t begin = ist_world_clock_ns(rank->world);
    IST_RETURN_IF_ERROR(rank->dispatch(rank));
    IST_RETURN_IF_ERROR(finish(rank, IST_EP_OP_DISPATCH, &record, evicted));
    cli_check ended = {check->step, check->full, &record};
    note->dispatch_ns = ist_world_clock_ns(rank->world) - begin;
    note->dispatch_status = record.status;
    note->lost_now = lost_now(rank);
    note->lost_count = record.lost_count;
    show(rank, check->step, "dispatched");
    return *evicted ? IST_OK : cli_check_dispatch(rank, &ended);
}

static ist_status run_combine(cli_rank *rank, const cli_check *check, cli_step_report *note,
                              bool *evicted)
{
    ist_completion record;
    uint64_t begin = ist_world_clock_ns(rank->world);
    IST_RETURN_IF_ERROR(rank->combine(rank));
    IST_RETURN_IF_ERROR(finish(rank, IST_EP_OP_COMBINE, &record, evicted));
    cli_check ended = {check->step, check->full, &record};
    note->combine_ns = ist_world_clock_ns(rank->world) - begin;
    note->combine_status = record.status;
    note->lost_now = lost_now(rank);
    note->lost_count = record.lost_count;
    show(rank, check->step, "combined");
    return *evicted ? IST_OK : cli_check_combine(rank, &ended);
}

/* Survivors agree on who is left, whether or not this rank has lost anyone: others may have. */
static ist_status agree(cli_rank *rank, cli_step_report *note, bool *evicted)
{
    uint64_t begin = ist_world_clock_ns(rank->world);
    ist_status status = ist_comm_agree(rank->comm, rank->stream);
    note->agree_ns = ist_world_clock_ns(rank->world) - begin;
    note->agree_status = (uint32_t)(status < 0 ? -status : status);
    *evicted = status == IST_ERR_EVICTED;
    if (status < 0) {
        return *evicted ? IST_OK : status;
    }
    return cli_rank_read_mask(rank);
}

static ist_status run_parts(cli_rank *rank, const cli_check *check, cli_step_report *note,
                            bool *evicted)
{
    IST_RETURN_IF_ERROR(cli_check_poison(rank, check->full));
    IST_RETURN_IF_ERROR(upload(rank, check->step));
    IST_RETURN_IF_ERROR(run_dispatch(rank, check, note, evicted));
    if (!*evicted) {
        IST_RETURN_IF_ERROR(run_combine(rank, check, note, evicted));
    }
    return *evicted ? IST_OK : agree(rank, note, evicted);
}

ist_status cli_rank_step(cli_rank *rank, uint32_t number, bool *evicted)
{
    cli_step_report unkept = {0};
    cli_step_report *note = number <= CLI_STEPS_KEPT ? &rank->report->steps[number - 1] : &unkept;
    uint64_t rows = rank->report->rows;
    uint64_t wrong = rank->report->wrong_rows;
    const cli_step *step = cli_steps_get(&rank->run->steps, number, rank->rank_count);
    ep_oracle_received full = {0};
    if (step == NULL || !ep_oracle_receive(&step->oracle, rank->rank, NULL, &full)) {
        if (step != NULL) {
            cli_steps_put(&rank->run->steps, step);
        }
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for step %u", number);
    }
    cli_check check = {.step = step, .full = &full};
    memcpy(rank->scratch.start, rank->scratch.mask, rank->word_count * sizeof(uint64_t));
    ist_status status = run_parts(rank, &check, note, evicted);
    note->rows = rank->report->rows - rows;
    note->wrong_rows = rank->report->wrong_rows - wrong;
    ep_oracle_received_free(&full);
    cli_steps_put(&rank->run->steps, step);
    return status;
}

/* Reads the operation's record, which has to be complete. */
static ist_status look_back(cli_rank *rank, ist_ep_op op, ist_completion *record)
{
    bool evicted = false;
    IST_RETURN_IF_ERROR(finish(rank, op, record, &evicted));
    if (record->status != IST_OK) {
        return ist_raise(IST_ERR_RANK_LOST, NULL,
                         "rank %u: a step that was run again ended with %s", rank->rank,
                         ist_status_name(record->status));
    }
    return IST_OK;
}

static ist_status check_again(cli_rank *rank, const cli_step *step, const ep_oracle_received *full)
{
    ist_completion record;
    cli_check check = {step, full, &record};
    /* The combine first: checking a dispatch lets the experts work anew. */
    IST_RETURN_IF_ERROR(look_back(rank, IST_EP_OP_COMBINE, &record));
    IST_RETURN_IF_ERROR(cli_check_combine(rank, &check));
    IST_RETURN_IF_ERROR(look_back(rank, IST_EP_OP_DISPATCH, &record));
    return cli_check_dispatch(rank, &check);
}

ist_status cli_rank_check_again(cli_rank *rank, uint32_t number)
{
    const cli_step *step = cli_steps_get(&rank->run->steps, number, rank->rank_count);
    ep_oracle_received full = {0};
    ist_status status = IST_OK;
    if (step == NULL || !ep_oracle_receive(&step->oracle, rank->rank, NULL, &full)) {
        status = ist_raise(IST_ERR_MEMORY, NULL, "no host memory for step %u", number);
    }
    if (status == IST_OK) {
        status = check_again(rank, step, &full);
        ep_oracle_received_free(&full);
    }
    if (step != NULL) {
        cli_steps_put(&rank->run->steps, step);
    }
    return status;
}
