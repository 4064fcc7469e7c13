/* SPDX-License-Identifier: Apache-2.0 */
/* From the reports of all ranks in all cycles to one row a case, and what a row says.
 */
#include "cli_bench.h"

#include <string.h>

static const char *const op_names[BENCH_OP_COUNT] = {
#define X(id, name) name,
    BENCH_OP_LIST(X)
#undef X
};

const char *bench_op_name(bench_op op)
{
    return op_names[op];
}

/* The figures of a bench_times, one after another. */
#define TIMES_COUNT (sizeof(bench_times) / sizeof(double))
_Static_assert(sizeof(bench_times) % sizeof(double) == 0, "a bench_times holds doubles alone");

static double figure(const bench_times *times, size_t index)
{
    double value;
    memcpy(&value, (const char *)times + index * sizeof value, sizeof value);
    return value;
}

/* Makes one figure of all ranks one. */
static double over_ranks(const bench_times *first, size_t stride, uint32_t rank_count,
                         bench_average average, size_t index)
{
    double sum = 0;
    double least = figure(first, index);
    double most = least;
    for (uint32_t r = 0; r < rank_count; ++r) {
        const void *times = (const char *)first + r * stride;
        double value = figure(times, index);
        sum += value;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    switch (average) {
    case BENCH_RANK0: return figure(first, index);
    case BENCH_MIN: return least;
    case BENCH_MAX: return most;
    case BENCH_MEAN: break;
    }
    return sum / rank_count;
}

void bench_times_merge(const bench_times *first, size_t stride, uint32_t rank_count,
                       bench_average average, bench_times *merged)
{
    double values[TIMES_COUNT];
    for (size_t i = 0; i < TIMES_COUNT; ++i) {
        values[i] = over_ranks(first, stride, rank_count, average, i);
    }
    memcpy(merged, values, sizeof *merged);
}

static void add_cycle(bench_row *row, const bench_case *one, const bench_options *options)
{
    for (int op = 0; op < BENCH_OP_COUNT; ++op) {
        double now[TIMES_COUNT];
        double sum[TIMES_COUNT];
        bench_times times;
        bench_times_merge(&one->reports[0].times[op], sizeof *one->reports, row->rank_count,
                          options->average, &times);
        memcpy(now, &times, sizeof now);
        memcpy(sum, &row->times[op], sizeof sum);
        for (size_t i = 0; i < TIMES_COUNT; ++i) {
            sum[i] += now[i] / options->cycles;
        }
        memcpy(&row->times[op], sum, sizeof sum);
        bool least = one == row->first || times.run < row->run_least[op];
        row->run_least[op] = least ? times.run : row->run_least[op];
        row->run_largest[op] = times.run > row->run_largest[op] ? times.run : row->run_largest[op];
    }
    for (uint32_t r = 0; r < row->rank_count; ++r) {
        row->rows += one->reports[r].rows;
        if (one->reports[r].wrong_rows != 0 && row->wrong_rows == 0) {
            row->wrong = one->reports[r].wrong;
        }
        row->wrong_rows += one->reports[r].wrong_rows;
    }
}

static void add_sizes(bench_row *row)
{
    const cli_options *options = &row->first->options;
    double row_bytes = (double)options->hidden * (double)ist_dtype_bytes(options->dtype);
    for (uint32_t r = 0; r < row->rank_count; ++r) {
        const bench_report *report = &row->first->reports[r];
        double share = row_bytes / row->rank_count;
        row->sent_bytes += share * (double)report->sent_rows;
        row->sent_link_bytes += share * (double)(report->sent_rows - report->sent_own_rows);
        row->back_bytes += share * (double)report->back_rows;
        row->back_link_bytes += share * (double)(report->back_rows - report->back_own_rows);
    }
    row->group_bytes = row->first->reports[0].group_bytes;
    row->handle_bytes = row->first->reports[0].handle_bytes;
    row->block_count = row->first->reports[0].block_count;
}

bool bench_row_make(const bench_job *job, uint32_t index, bench_row *row)
{
    memset(row, 0, sizeof *row);
    row->first = &job->cases[index];
    row->rank_count = row->first->run.rank_count;
    for (uint32_t cycle = 0; cycle < job->options->cycles; ++cycle) {
        const bench_case *one = &job->cases[cycle * job->case_count + index];
        for (uint32_t r = 0; one->reports != NULL && r < row->rank_count; ++r) {
            if (one->reports[r].magic == 0 || one->reports[r].rank != r) {
                return false;
            }
        }
        if (one->reports == NULL) {
            return false;
        }
        add_cycle(row, one, job->options);
    }
    add_sizes(row);
    return true;
}

double bench_rate(const bench_row *row, bench_op op, bool link_only)
{
    double sent = link_only ? row->sent_link_bytes : row->sent_bytes;
    double back = link_only ? row->back_link_bytes : row->back_bytes;
    double bytes = (op == BENCH_DISPATCH || op == BENCH_PAIR ? sent : 0) +
                   (op == BENCH_COMBINE || op == BENCH_PAIR ? back : 0);
    return row->times[op].run > 0 ? bytes / row->times[op].run : 0;
}

double bench_spread(const bench_row *row, bench_op op)
{
    double mean = row->times[op].run;
    return mean > 0 ? 100 * (row->run_largest[op] - row->run_least[op]) / mean : 0;
}
