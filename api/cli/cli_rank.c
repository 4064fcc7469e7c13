/* SPDX-License-Identifier: Apache-2.0 */
/* The rank program: open, steps, re-admission, report. A rank that is killed or evicted leaves
 * early, and that is no failure of the run.
 */
#include "cli_rank.h"

#include <isthmus/backend.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(cli_report) % 16 == 0, "reports travel in units of 16 bytes");

/* ------------------------------------------------------------------------------------ the run */

static ist_status make_room(cli_run *run, uint32_t rank_count)
{
    run->reports = calloc(rank_count, sizeof *run->reports);
    run->gathered = calloc(rank_count, sizeof *run->gathered);
    run->masks = calloc((size_t)rank_count * IST_MASK_WORDS(rank_count), sizeof *run->masks);
    if (run->reports == NULL || run->gathered == NULL || run->masks == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the reports of %u ranks", rank_count);
    }
    run->rank_count = rank_count;
    return IST_OK;
}

ist_status cli_rank_sign_in(cli_run *run, ist_world *world, cli_rank *rank)
{
    ist_status status = IST_OK;
    rank->run = run;
    rank->world = world;
    rank->options = run->options;
    rank->rank = ist_world_rank(world);
    rank->rank_count = ist_world_rank_count(world);
    pthread_mutex_lock(&run->lock);
    if (run->rank_count == 0) {
        const char *name = ist_world_backend_name(world);
        strncpy(run->backend, name, sizeof run->backend - 1);
        status = make_room(run, rank->rank_count);
    }
    ++run->local_count;
    pthread_mutex_unlock(&run->lock);
    if (status == IST_OK) {
        rank->report = &run->reports[rank->rank];
        rank->report->magic = CLI_REPORT_MAGIC;
        rank->report->rank = rank->rank;
        rank->report->state = CLI_STATE_RUNNING;
    }
    return status;
}

/* ------------------------------------------------------------------------------------ masks */

ist_status cli_rank_read_mask(cli_rank *rank)
{
    ist_mask mask = {
        .size = sizeof mask, .words = rank->scratch.mask, .word_count = rank->word_count};
    IST_RETURN_IF_ERROR(ist_comm_mask_query(rank->comm, &mask));
    rank->generation = mask.generation;
    return IST_OK;
}

static uint32_t active_count(const cli_rank *rank)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < rank->rank_count; ++r) {
        count += (uint32_t)ist_mask_test(rank->scratch.mask, r);
    }
    return count;
}

static uint32_t lowest_active(const cli_rank *rank)
{
    uint32_t r = 0;
    while (r + 1 < rank->rank_count && !ist_mask_test(rank->scratch.mask, r)) {
        ++r;
    }
    return r;
}

/* ------------------------------------------------------------------------------------ steps */

static cli_step_report *step_report(cli_rank *rank, uint32_t number)
{
    return number <= CLI_STEPS_KEPT ? &rank->report->steps[number - 1] : NULL;
}

/* All ranks that are to go on, the late ones included, meet here. */
static ist_status readmit(cli_rank *rank, uint32_t number, bool *evicted)
{
    cli_step_report *note = step_report(rank, number);
    ist_status status = ist_ep_clean(rank->group, rank->stream);
    if (note != NULL) {
        note->readmit_status = (uint32_t)(status < 0 ? -status : status);
    }
    if (status < 0 && status != IST_ERR_EVICTED && status != IST_ERR_TIMEOUT) {
        return status;
    }
    *evicted = status < 0;
    return *evicted ? IST_OK : cli_rank_read_mask(rank);
}

static void note_mask(cli_rank *rank, uint32_t number)
{
    cli_step_report *note = step_report(rank, number);
    if (note != NULL) {
        note->active_count = active_count(rank);
        note->generation = rank->generation;
    }
}

/* A rank that was evicted waits for the step after which it may come back. */
static ist_status run_steps(cli_rank *rank, bool *evicted)
{
    const cli_options *options = rank->options;
    *evicted = false;
    for (uint32_t number = 1; number <= options->iterations; ++number) {
        if (number <= CLI_STEPS_KEPT) {
            rank->report->steps[number - 1].readmit_status = UINT32_MAX;
        }
        if (!*evicted) {
            IST_RETURN_IF_ERROR(cli_rank_step(rank, number, evicted));
            rank->report->step_count = number;
        }
        if (!*evicted) {
            note_mask(rank, number);
        }
        if (*evicted && (options->readmit == 0 || number > options->readmit)) {
            return IST_OK;
        }
        if (number == options->readmit && (*evicted || active_count(rank) != rank->rank_count)) {
            IST_RETURN_IF_ERROR(readmit(rank, number, evicted));
            if (*evicted) {
                return IST_OK;
            }
            note_mask(rank, number);
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ the program */

/* What came but is no report counts as not come. */
static void forget_strangers(cli_run *run)
{
    for (uint32_t r = 0; r < run->rank_count; ++r) {
        if (run->gathered[r].magic != CLI_REPORT_MAGIC || run->gathered[r].rank != r) {
            memset(&run->gathered[r], 0, sizeof run->gathered[r]);
        }
    }
}

static ist_status finish(cli_rank *rank, bool evicted)
{
    if (evicted) {
        rank->report->state = CLI_STATE_EVICTED;
        return IST_OK;
    }
    size_t bytes = rank->word_count * sizeof(uint64_t);
    memcpy(rank->run->masks + (size_t)rank->rank * rank->word_count, rank->scratch.mask, bytes);
    rank->report->state = CLI_STATE_DONE;
    rank->report->generation = rank->generation;
    rank->report->mask_hash = cli_hash_bytes(rank->scratch.mask, bytes, 0);
    IST_RETURN_IF_ERROR(
        cli_gather_run(&rank->gather, lowest_active(rank), rank->report, rank->run->gathered));
    forget_strangers(rank->run);
    return IST_OK;
}

static ist_status run_rank(cli_rank *rank)
{
    bool evicted;
    IST_RETURN_IF_ERROR(cli_rank_open(rank));
    IST_RETURN_IF_ERROR(
        cli_gather_open(rank->world, rank->comm, rank->stream, sizeof(cli_report), &rank->gather));
    IST_RETURN_IF_ERROR(cli_rank_read_mask(rank));
    IST_RETURN_IF_ERROR(run_steps(rank, &evicted));
    return finish(rank, evicted);
}

void cli_rank_note_failure(cli_report *report, ist_status status)
{
    ist_error error = {.size = sizeof error};
    report->state = status == IST_ERR_KILLED ? CLI_STATE_KILLED : CLI_STATE_FAILED;
    report->status = status;
    if (ist_error_last(&error) == IST_OK && error.status == status) {
        memcpy(report->message, error.message, sizeof report->message);
    }
}

ist_status cli_rank_main(ist_world *world, void *arg)
{
    cli_rank *rank = calloc(1, sizeof *rank);
    if (rank == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a rank");
    }
    ist_status status = cli_rank_sign_in(arg, world, rank);
    if (status == IST_OK) {
        status = run_rank(rank);
        if (status < 0) {
            cli_rank_note_failure(rank->report, status);
        }
        cli_rank_close(rank);
    }
    free(rank);
    return status;
}
