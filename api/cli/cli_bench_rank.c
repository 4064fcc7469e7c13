/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's program of `isthmus bench ep`: opens each case anew, checks it, times it, checks it again
 * the way it was timed, what the timed operations left included, and sends what it found to rank 0.
 */
#include "cli_bench.h"
#include "cli_check.h"

#include <isthmus/backend.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_MAGIC UINT64_C(0x68636e6562747369)
#define ROOT 0u

_Static_assert(sizeof(bench_report) % 16 == 0, "reports travel in units of 16 bytes");

/* ------------------------------------------------------------------------------------ counting */

/* Rows that `rank` sends: one to each rank that has an expert of the token. */
static void count_token(const ep_oracle *oracle, uint32_t rank, const int32_t *ids,
                        bench_report *report)
{
    uint32_t owners[IST_EP_TOPK_MAX];
    uint32_t owner_count = 0;
    uint32_t entries = 0;
    uint32_t own_entries = 0;
    bool own = false;
    for (uint32_t k = 0; k < oracle->topk; ++k) {
        if (ids[k] < 0) {
            continue;
        }
        uint32_t owner = ep_oracle_owner(oracle, (uint32_t)ids[k]);
        uint32_t seen = 0;
        while (seen < owner_count && owners[seen] != owner) {
            ++seen;
        }
        if (seen == owner_count) {
            owners[owner_count++] = owner;
        }
        own = own || owner == rank;
        ++entries;
        own_entries += owner == rank;
    }
    bool expert_major = oracle->layout == IST_EP_EXPERT_MAJOR;
    report->sent_rows += owner_count;
    report->sent_own_rows += own;
    report->back_rows += expert_major ? entries : owner_count;
    report->back_own_rows += expert_major ? own_entries : own;
}

static ist_status count_rows(cli_rank *rank, bench_report *report)
{
    const cli_step *step = cli_steps_get(&rank->run->steps, 1, rank->rank_count);
    if (step == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for the routing");
    }
    const ep_oracle *oracle = &step->oracle;
    for (uint32_t token = 0; token < rank->token_count; ++token) {
        size_t at = ((size_t)rank->rank * oracle->tokens_max + token) * oracle->topk;
        count_token(oracle, rank->rank, oracle->topk_idx + at, report);
    }
    cli_steps_put(&rank->run->steps, step);
    return IST_OK;
}

static ist_status count_memory(cli_rank *rank, bench_report *report)
{
    ist_ep_group_info info = {.size = sizeof info};
    IST_RETURN_IF_ERROR(ist_ep_group_query(rank->group, &info));
    report->group_bytes = info.device_bytes;
    report->block_count = info.block_count;
    return ist_ep_handle_bytes(rank->group, rank->options->layout, rank->options->topk,
                               &report->handle_bytes);
}

/* ------------------------------------------------------------------------------------ checking */

/* A step whose operations are graphs or not, as they are timed; the routing is a call of its own. */
static ist_status route_and_dispatch(cli_rank *rank)
{
    IST_RETURN_IF_ERROR(cli_rank_route(rank));
    if (rank->dispatch_graph != NULL) {
        return ist_graph_launch(rank->dispatch_graph, rank->stream);
    }
    return cli_rank_dispatch(rank);
}

static ist_status combine(cli_rank *rank)
{
    return rank->combine_graph != NULL ? ist_graph_launch(rank->combine_graph, rank->stream)
                                       : cli_rank_combine(rank);
}

static ist_status capture(cli_rank *rank, cli_enqueue enqueue, ist_graph **graph)
{
    IST_RETURN_IF_ERROR(ist_graph_begin(rank->stream));
    ist_status status = enqueue(rank);
    ist_status ended = ist_graph_end(rank->stream, graph);
    return status != IST_OK ? status : ended;
}

/* What ran without somebody is right as far as it goes, but its time is not what is asked for. */
static ist_status refuse_lost(cli_rank *rank)
{
    IST_RETURN_IF_ERROR(cli_rank_read_mask(rank));
    for (uint32_t r = 0; r < rank->rank_count; ++r) {
        if (!ist_mask_test(rank->scratch.mask, r)) {
            return ist_raise(IST_ERR_RANK_LOST, NULL, "rank %u was lost: no times", r);
        }
    }
    return IST_OK;
}

static ist_status check_step(cli_rank *rank)
{
    bool evicted = false;
    IST_RETURN_IF_ERROR(cli_rank_step(rank, 1, &evicted));
    if (evicted) {
        return ist_raise(IST_ERR_EVICTED, NULL, "the peers went on without rank %u", rank->rank);
    }
    return refuse_lost(rank);
}

/* The first check gives the routing that graphs are captured with. */
static ist_status check_before(cli_rank *rank, const bench_options *options)
{
    rank->dispatch = route_and_dispatch;
    rank->combine = combine;
    for (uint32_t i = 0; i < options->checks; ++i) {
        IST_RETURN_IF_ERROR(check_step(rank));
    }
    if (!options->graph) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(capture(rank, cli_rank_dispatch, &rank->dispatch_graph));
    IST_RETURN_IF_ERROR(capture(rank, cli_rank_combine, &rank->combine_graph));
    return check_step(rank);
}

/* ------------------------------------------------------------------------------------ a case */

static ist_status measure(cli_rank *rank, const bench_options *options, bench_report *report)
{
    IST_RETURN_IF_ERROR(count_rows(rank, report));
    IST_RETURN_IF_ERROR(count_memory(rank, report));
    IST_RETURN_IF_ERROR(check_before(rank, options));
    IST_RETURN_IF_ERROR(bench_time(rank, options, report));
    IST_RETURN_IF_ERROR(refuse_lost(rank));
    IST_RETURN_IF_ERROR(cli_rank_check_again(rank, 1));
    return check_step(rank);
}

static ist_status settle(cli_rank *rank, bench_case *one, bench_report *report)
{
    report->magic = BENCH_MAGIC;
    report->rank = rank->rank;
    report->rows = rank->report->rows;
    report->wrong_rows = rank->report->wrong_rows;
    memcpy(report->wrong, rank->report->wrong, sizeof report->wrong);
    if (rank->rank == ROOT) {
        one->reports = calloc(rank->rank_count, sizeof *one->reports);
        if (one->reports == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u reports", rank->rank_count);
        }
    }
    return cli_gather_run(&rank->gather, ROOT, report, one->reports);
}

static ist_status run_case(cli_rank *rank, const bench_options *options, bench_case *one)
{
    bench_report report = {0};
    IST_RETURN_IF_ERROR(cli_rank_open(rank));
    IST_RETURN_IF_ERROR(
        cli_gather_open(rank->world, rank->comm, rank->stream, sizeof report, &rank->gather));
    IST_RETURN_IF_ERROR(measure(rank, options, &report));
    IST_RETURN_IF_ERROR(settle(rank, one, &report));
    /* Nobody closes what another still uses. */
    IST_RETURN_IF_ERROR(ist_comm_barrier(rank->comm, rank->stream));
    return ist_stream_sync(rank->stream, 0);
}

ist_status bench_rank_main(ist_world *world, void *arg)
{
    bench_job *job = arg;
    uint32_t count = job->case_count * job->options->cycles;
    ist_status status = IST_OK;
    for (uint32_t i = 0; status == IST_OK && i < count; ++i) {
        cli_rank *rank = calloc(1, sizeof *rank);
        if (rank == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a rank");
        }
        status = cli_rank_sign_in(&job->cases[i].run, world, rank);
        if (status == IST_OK) {
            status = run_case(rank, job->options, &job->cases[i]);
            if (status < 0) {
                cli_rank_note_failure(rank->report, status);
            }
            cli_rank_close(rank);
        }
        free(rank);
    }
    return status;
}
