/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's program of `isthmus bench soak`. One group, a handle for each layout, memory for the largest
 * step; each step uploads its routing and tables, runs, and reads how many words were wrong.
 */
#include "cli_gather.h"
#include "cli_soak.h"

#include <isthmus/backend.h>
#include <stdlib.h>
#include <string.h>

#define SOAK_MAGIC UINT64_C(0x6b616f7369747369)
#define BLOCKS_MAX 128u

_Static_assert(sizeof(soak_totals) % 16 == 0, "totals travel in units of 16 bytes");

/* Device memory; each an allocation of its own. */
typedef struct soak_memory {
    char *tokens;
    char *topk;
    char *weights;
    char *received;
    char *received_ids;
    char *received_weights;
    char *counters;
    char *worked;
    char *combined;
    char *rows; /* tables from here on */
    char *parts;
    char *expected_counters;
    char *expected_ids;
    char *expected_weights;
    char *tally;
} soak_memory;

typedef struct soak_rank {
    const soak_options *options;
    ist_world *world;
    ist_comm *comm;
    ist_stream *stream;
    ist_ep_group *group;
    ist_ep_handle *handles[2]; /* EXPERT_MAJOR, RANK_MAJOR */
    ist_window *window_in;
    ist_window *window_out;
    cli_gather gather;
    soak_memory memory;
    soak_step step;
    soak_tables tables;
    soak_totals totals;
    uint32_t rank;
    uint32_t rank_count;
    uint32_t local_count;
    uint32_t block_count;
} soak_rank;

/* ------------------------------------------------------------------------------------ open */

typedef struct soak_room {
    char **where;
    uint64_t bytes;
    bool windowed;
} soak_room;

static ist_status allocate(soak_rank *s)
{
    const cli_options *o = &s->options->world;
    soak_memory *m = &s->memory;
    uint64_t row = o->hidden * 2;
    uint64_t entries = (uint64_t)o->tokens * o->topk * 4;
    uint64_t all = s->rank_count * entries;
    uint64_t blocks = s->local_count > 1 ? s->local_count : 1;
    uint64_t out = blocks * s->rank_count * o->tokens * row;
    const soak_room rooms[] = {
        {&m->tokens, o->tokens * row, true},
        {&m->topk, entries, false},
        {&m->weights, entries, false},
        {&m->received, out, false},
        {&m->received_ids, all, false},
        {&m->received_weights, all, false},
        {&m->counters, s->tables.counter_max * 4, false},
        {&m->worked, out, true},
        {&m->combined, o->tokens * row, false},
        {&m->rows, s->tables.row_max * sizeof(soak_row), false},
        {&m->parts, (uint64_t)o->tokens * o->topk * sizeof(soak_part), false},
        {&m->expected_counters, s->tables.counter_max * 4, false},
        {&m->expected_ids, all, false},
        {&m->expected_weights, all, false},
        {&m->tally, 16, false},
    };
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; ++i) {
        void *memory;
        uint32_t flags = o->windows && rooms[i].windowed ? IST_MEM_SYMMETRIC : IST_MEM_PLAIN;
        IST_RETURN_IF_ERROR(ist_mem_alloc(s->world, rooms[i].bytes, flags, &memory));
        *rooms[i].where = memory;
    }
    if (o->windows) {
        IST_RETURN_IF_ERROR(ist_window_open(s->comm, m->tokens, o->tokens * row, &s->window_in));
        IST_RETURN_IF_ERROR(ist_window_open(s->comm, m->worked, out, &s->window_out));
    }
    return ist_fill(s->stream, m->tally, 0, 16);
}

static ist_status open_group(soak_rank *s)
{
    const cli_options *o = &s->options->world;
    ist_ep_group_desc desc = {.size = sizeof desc,
                              .expert_count = o->experts,
                              .tokens_per_rank_max = o->tokens,
                              .topk_max = o->topk,
                              .token_bytes_max = o->hidden * 2,
                              .block_count_max = o->blocks,
                              .zero_copy =
                                  o->windows ? IST_EP_ZERO_COPY_ON : IST_EP_ZERO_COPY_AUTO};
    IST_RETURN_IF_ERROR(ist_ep_group_open(s->comm, &desc, &s->group));
    IST_RETURN_IF_ERROR(
        ist_ep_handle_init(s->group, IST_EP_EXPERT_MAJOR, o->topk, NULL, 0, &s->handles[0]));
    return ist_ep_handle_init(s->group, IST_EP_RANK_MAJOR, o->topk, NULL, 0, &s->handles[1]);
}

static ist_status open_rank(soak_rank *s)
{
    ist_comm_desc desc = {
        .size = sizeof desc, .fault_tolerant = 1, .deadline_ns = s->options->world.deadline_ns};
    ist_comm_info info = {.size = sizeof info};
    if (!soak_step_open(s->options, s->rank_count, &s->step) ||
        !soak_tables_open(&s->step, s->rank, &s->tables)) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a step of rank %u", s->rank);
    }
    s->local_count = ep_oracle_local_count(&s->step.oracle, s->rank);
    IST_RETURN_IF_ERROR(ist_stream_open(s->world, &s->stream));
    IST_RETURN_IF_ERROR(ist_comm_open(s->world, &desc, &s->comm));
    IST_RETURN_IF_ERROR(ist_comm_query(s->comm, &info));
    s->block_count = info.sm_count < BLOCKS_MAX ? info.sm_count : BLOCKS_MAX;
    if (s->options->world.blocks != 0 && s->options->world.blocks < s->block_count) {
        s->block_count = s->options->world.blocks;
    }
    IST_RETURN_IF_ERROR(allocate(s));
    IST_RETURN_IF_ERROR(open_group(s));
    return cli_gather_open(s->world, s->comm, s->stream, sizeof s->totals, &s->gather);
}

static void close_rank(soak_rank *s)
{
    const soak_memory *m = &s->memory;
    char *const rooms[] = {m->tokens,       m->topk,
                           m->weights,      m->received,
                           m->received_ids, m->received_weights,
                           m->counters,     m->worked,
                           m->combined,     m->rows,
                           m->parts,        m->expected_counters,
                           m->expected_ids, m->expected_weights,
                           m->tally};
    cli_gather_close(&s->gather);
    ist_ep_handle_close(s->handles[0]);
    ist_ep_handle_close(s->handles[1]);
    ist_ep_group_close(s->group);
    ist_window_close(s->window_in);
    ist_window_close(s->window_out);
    ist_comm_close(s->comm);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; ++i) {
        ist_mem_free(s->world, rooms[i]);
    }
    ist_stream_close(s->stream);
    soak_tables_close(&s->tables);
    soak_step_close(&s->step);
}

/* ------------------------------------------------------------------------------------ a step */

static bool expert_major(const soak_rank *s)
{
    return s->step.layout == IST_EP_EXPERT_MAJOR;
}

static ist_status put(const soak_rank *s, char *to, const void *from, size_t bytes)
{
    return ist_copy_to_device(s->stream, to, from, bytes);
}

static ist_status upload(const soak_rank *s)
{
    const soak_memory *m = &s->memory;
    const soak_tables *t = &s->tables;
    const ep_oracle *o = &s->step.oracle;
    size_t entries = (size_t)s->step.counts[s->rank] * o->topk;
    size_t first = (size_t)s->rank * o->tokens_max * o->topk;
    size_t all = (size_t)o->rank_count * o->tokens_max * o->topk;
    IST_RETURN_IF_ERROR(put(s, m->topk, s->step.ids + first, entries * 4));
    IST_RETURN_IF_ERROR(put(s, m->weights, s->step.weights + first, entries * 4));
    IST_RETURN_IF_ERROR(put(s, m->rows, t->rows, t->row_count * sizeof *t->rows));
    IST_RETURN_IF_ERROR(put(s, m->parts, t->parts, entries * sizeof *t->parts));
    IST_RETURN_IF_ERROR(put(s, m->expected_counters, t->counters, t->counter_max * 4));
    if (expert_major(s)) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(put(s, m->expected_ids, t->ids, all * 4));
    return put(s, m->expected_weights, t->weights, all * 4);
}

static soak_args arguments(const soak_rank *s)
{
    const soak_memory *m = &s->memory;
    const ep_oracle *o = &s->step.oracle;
    bool em = expert_major(s);
    uint32_t all = em ? 0 : o->rank_count * o->tokens_max * o->topk;
    return (soak_args){.key = s->step.key,
                       .row_bytes = ep_oracle_row_bytes(o),
                       .tally = (uint64_t *)(void *)m->tally,
                       .tokens = m->tokens,
                       .received = m->received,
                       .worked = m->worked,
                       .combined = m->combined,
                       .rows = (const soak_row *)(void *)m->rows,
                       .parts = (const soak_part *)(void *)m->parts,
                       .found = {(const uint32_t *)(void *)m->counters,
                                 (const uint32_t *)(void *)m->received_ids,
                                 (const uint32_t *)(void *)m->received_weights},
                       .expected = {(const uint32_t *)(void *)m->expected_counters,
                                    (const uint32_t *)(void *)m->expected_ids,
                                    (const uint32_t *)(void *)m->expected_weights},
                       .word_count = {em ? s->local_count : o->rank_count, all, all},
                       .row_count = s->tables.row_count,
                       .token_count = s->step.counts[s->rank],
                       .topk = o->topk,
                       .rank = s->rank,
                       .wide = s->step.dtype == IST_F32};
}

static ist_tensor tensor(ist_dtype dtype, uint64_t d0, uint64_t d1, uint64_t d2, char *data)
{
    return (ist_tensor){.size = sizeof(ist_tensor),
                        .dtype = dtype,
                        .dim_count = d2 != 0   ? 3
                                     : d1 != 0 ? 2
                                               : 1,
                        .dims = {d0, d1, d2},
                        .data = data};
}

static void bind(ist_tensor *t, ist_window *window)
{
    if (window != NULL) {
        t->data = NULL;
        t->window = window;
    }
}

/* An output of dispatch: rows, or what lies beside them. */
static ist_tensor output(const soak_rank *s, ist_dtype dtype, uint64_t width, char *data)
{
    const ep_oracle *o = &s->step.oracle;
    return expert_major(s)
               ? tensor(dtype, s->local_count, (uint64_t)o->rank_count * o->tokens_max, width, data)
               : tensor(dtype, o->rank_count, o->tokens_max, width, data);
}

static ist_status finish(soak_rank *s, ist_ep_handle *handle)
{
    return s->step.staged ? ist_ep_complete(handle, s->stream) : IST_OK;
}

static ist_status dispatch(soak_rank *s, ist_ep_handle *handle)
{
    const soak_memory *m = &s->memory;
    const ep_oracle *o = &s->step.oracle;
    bool em = expert_major(s);
    uint64_t count = s->step.counts[s->rank];
    ist_tensor topk = tensor(IST_I32, count, o->topk, 0, m->topk);
    ist_tensor tokens = tensor(o->dtype, count, o->hidden, 0, m->tokens);
    ist_tensor weights = tensor(IST_F32, count, o->topk, 0, m->weights);
    ist_tensor rows = output(s, o->dtype, o->hidden, m->received);
    ist_tensor ids = output(s, IST_I32, o->topk, m->received_ids);
    ist_tensor out_weights = output(s, IST_F32, o->topk, m->received_weights);
    ist_tensor counters = tensor(IST_I32, em ? s->local_count : o->rank_count, 0, 0, m->counters);
    bind(&tokens, s->window_in);
    ist_ep_dispatch_in in = {sizeof in, 0, &tokens, em ? NULL : &weights};
    ist_ep_dispatch_out out = {sizeof out, 0, &rows, em ? NULL : &out_weights, em ? NULL : &ids};
    ist_ep_layout_info info = {sizeof info, IST_EP_ID_LOCAL, em ? &counters : NULL,
                               em ? NULL : &counters};
    ist_ep_op_desc desc = {.size = sizeof desc, .send_only = s->step.staged};
    IST_RETURN_IF_ERROR(ist_ep_handle_update(handle, &topk, s->stream));
    IST_RETURN_IF_ERROR(ist_ep_dispatch(handle, &in, &out, &info, &desc, s->stream));
    return finish(s, handle);
}

static ist_status combine(soak_rank *s, ist_ep_handle *handle)
{
    const soak_memory *m = &s->memory;
    const ep_oracle *o = &s->step.oracle;
    uint64_t count = s->step.counts[s->rank];
    ist_tensor worked = output(s, o->dtype, o->hidden, m->worked);
    ist_tensor combined = tensor(o->dtype, count, o->hidden, 0, m->combined);
    ist_tensor weights = tensor(IST_F32, count, o->topk, 0, m->weights);
    bind(&worked, s->window_out);
    ist_ep_combine_in in = {sizeof in, 0, &worked};
    ist_ep_combine_out out = {sizeof out, 0, &combined, expert_major(s) ? &weights : NULL, NULL};
    ist_ep_op_desc desc = {.size = sizeof desc, .send_only = s->step.staged};
    IST_RETURN_IF_ERROR(ist_ep_combine(handle, &in, &out, &desc, s->stream));
    return finish(s, handle);
}

static ist_status run_kernel(soak_rank *s, const ist_kernel *kernel)
{
    soak_args args = arguments(s);
    return ist_launch(s->stream, kernel, s->block_count, &args, sizeof args);
}

/* Reads what the kernels counted; this waits for the step. */
static ist_status tally(soak_rank *s, ist_ep_handle *handle, uint32_t number)
{
    uint64_t counts[2];
    ist_completion record = {.size = sizeof record};
    IST_RETURN_IF_ERROR(ist_copy_to_host(s->stream, counts, s->memory.tally, sizeof counts));
    if (counts[1] != s->totals.wrong && s->totals.first_wrong == 0) {
        s->totals.first_wrong = number;
    }
    s->totals.words = counts[0];
    s->totals.wrong = counts[1];
    for (int op = IST_EP_OP_DISPATCH; op <= IST_EP_OP_COMBINE; ++op) {
        IST_RETURN_IF_ERROR(ist_ep_record(handle, (ist_ep_op)op, &record));
        s->totals.incomplete += record.status != IST_OK;
    }
    return IST_OK;
}

static ist_status run_step(soak_rank *s, uint32_t number)
{
    soak_step_draw(s->options, number, &s->step);
    if (!soak_tables_fill(&s->step, s->rank, &s->tables)) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for step %u", number);
    }
    ist_ep_handle *handle = s->handles[expert_major(s) ? 0 : 1];
    uint64_t gap_ns = soak_gap_ns(s->options, number, s->rank);
    if (gap_ns != 0) {
        IST_RETURN_IF_ERROR(ist_world_sleep(s->world, gap_ns));
    }
    IST_RETURN_IF_ERROR(upload(s));
    IST_RETURN_IF_ERROR(run_kernel(s, &ist_kernel_cli_soak_fill));
    IST_RETURN_IF_ERROR(dispatch(s, handle));
    IST_RETURN_IF_ERROR(run_kernel(s, &ist_kernel_cli_soak_received));
    IST_RETURN_IF_ERROR(combine(s, handle));
    IST_RETURN_IF_ERROR(run_kernel(s, &ist_kernel_cli_soak_combined));
    s->totals.steps = number;
    s->totals.gap_ns += gap_ns;
    s->totals.tokens += s->step.counts[s->rank];
    return tally(s, handle, number);
}

/* ------------------------------------------------------------------------------------ together */

static void add(soak_totals *sum, const soak_totals *one)
{
    bool earlier =
        one->first_wrong != 0 && (sum->first_wrong == 0 || one->first_wrong < sum->first_wrong);
    sum->magic = one->magic;
    sum->steps = one->steps > sum->steps ? one->steps : sum->steps;
    sum->words += one->words;
    sum->wrong += one->wrong;
    sum->first_wrong = earlier ? one->first_wrong : sum->first_wrong;
    sum->incomplete += one->incomplete;
    sum->gap_ns += one->gap_ns;
    sum->tokens += one->tokens;
}

static ist_status gather(soak_rank *s, soak_job *job)
{
    soak_totals *all = calloc(s->rank_count, sizeof *all);
    if (all == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u totals", s->rank_count);
    }
    s->totals.magic = SOAK_MAGIC;
    ist_status status = cli_gather_run(&s->gather, 0, &s->totals, all);
    job->done = status == IST_OK && s->rank == 0;
    for (uint32_t r = 0; job->done && r < s->rank_count; ++r) {
        job->done = all[r].magic == SOAK_MAGIC;
        add(&job->totals, &all[r]);
    }
    job->rank_count = s->rank_count;
    strncpy(job->backend, ist_world_backend_name(s->world), sizeof job->backend - 1);
    free(all);
    IST_RETURN_IF_ERROR(status);
    IST_RETURN_IF_ERROR(ist_comm_barrier(s->comm, s->stream));
    return ist_stream_sync(s->stream, 0);
}

static ist_status run(soak_rank *s, soak_job *job)
{
    IST_RETURN_IF_ERROR(open_rank(s));
    for (uint32_t number = 1; number <= s->options->steps; ++number) {
        IST_RETURN_IF_ERROR(run_step(s, number));
    }
    return gather(s, job);
}

ist_status soak_rank_main(ist_world *world, void *arg)
{
    soak_job *job = arg;
    soak_rank s = {.options = job->options,
                   .world = world,
                   .rank = ist_world_rank(world),
                   .rank_count = ist_world_rank_count(world)};
    ist_status status = run(&s, job);
    if (status < 0 && !job->failed) {
        ist_error error = {.size = sizeof error};
        job->failed = true;
        job->failed_rank = (int32_t)s.rank;
        (void)ist_error_last(&error);
        _Static_assert(sizeof error.message <= sizeof job->message, "room for a message");
        memcpy(job->message, error.message, sizeof error.message);
    }
    close_rank(&s);
    return status;
}
