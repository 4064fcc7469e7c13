/* SPDX-License-Identifier: Apache-2.0 */
/* Times as an aligned table and as CSV. A case that was wrong has no times.
 */
#include "cli.h"
#include "cli_bench.h"

#include <inttypes.h>
#include <isthmus/version.h>
#include <stdio.h>
#include <string.h>

static double us(double ns)
{
    return ns / 1000;
}

static double mega(double bytes)
{
    return bytes / 1e6;
}

static const char *clock_name(const bench_job *job)
{
    return job->result->virtual_ns != 0 ? "virtual" : "real";
}

static const char *average_name(bench_average average)
{
    static const char *const names[] = {"of rank 0", "mean of the ranks", "least of the ranks",
                                        "largest of the ranks"};
    return names[average];
}

/* ------------------------------------------------------------------------------------ table */

static void print_head(const bench_job *job, const bench_row *row)
{
    const bench_options *b = job->options;
    const cli_options *o = &row->first->options;
    printf("isthmus %s  bench ep  backend %s, %u ranks, cluster %s, seed %" PRIu64 "\n",
           ist_version_string(), row->first->run.backend, row->rank_count,
           o->cluster == NULL ? "default" : o->cluster, o->seed);
    printf("hidden %" PRIu64 ", %s, top-%u of %u experts, routing %s, operands in %s%s%s\n",
           o->hidden, cli_dtype_name(o->dtype), o->topk, o->experts, o->routing.text,
           o->windows ? "windows" : "plain memory", o->staged ? ", staged" : "",
           b->graph ? ", replayed graphs" : "");
    printf("%u iterations after %u, %u cycle%s; times in us, %s, %s clock%s\n\n", b->iterations,
           b->warmup, b->cycles, b->cycles == 1 ? "" : "s", average_name(b->average),
           clock_name(job),
           job->result->virtual_ns != 0 ? ": what the simulated links say, not this machine" : "");
    printf(
        "                       |   host, one at a time           |   stream, back to back          |"
        "     run                 |  GB/s          | library\n");
    printf(
        "layout tokens op       |    mean     min  median     p99 |    mean     min  median     p99 |"
        "    mean spread%% call ns |    all    link |      MB\n");
}

static void print_stats(const cli_stats *stats)
{
    printf("| %7.2f %7.2f %7.2f %7.2f ", us(stats->mean), us(stats->min), us(stats->median),
           us(stats->p99));
}

static void print_op(const bench_row *row, bench_op op)
{
    const bench_times *times = &row->times[op];
    const cli_options *o = &row->first->options;
    printf("%-6s %6u %-8s ", o->layout == IST_EP_EXPERT_MAJOR ? "em" : "rm", o->tokens,
           bench_op_name(op));
    print_stats(&times->host);
    print_stats(&times->stream);
    printf("| %7.2f %7.1f %7.0f ", us(times->run), bench_spread(row, op), times->call);
    printf("| %6.1f  %6.1f ", bench_rate(row, op, false), bench_rate(row, op, true));
    printf("| %7.2f\n", mega((double)(row->group_bytes + row->handle_bytes)));
}

static void print_row(const bench_options *options, const bench_row *row)
{
    const cli_options *o = &row->first->options;
    if (row->wrong_rows != 0) {
        printf("%-6s %6u WRONG: %" PRIu64 " of %" PRIu64 " rows; no times. %s\n",
               o->layout == IST_EP_EXPERT_MAJOR ? "em" : "rm", o->tokens, row->wrong_rows,
               row->rows, row->wrong);
        return;
    }
    for (int op = 0; op < BENCH_OP_COUNT; ++op) {
        if (options->timed[op]) {
            print_op(row, (bench_op)op);
        }
    }
}

int bench_print_table(const bench_job *job, const bench_row *rows)
{
    uint64_t checked = 0;
    print_head(job, &rows[0]);
    for (uint32_t i = 0; i < job->case_count; ++i) {
        print_row(job->options, &rows[i]);
        checked += rows[i].rows;
    }
    printf(
        "\n%" PRIu64 " rows checked, before and after the timing, against an independent oracle.\n"
        "GB/s: bytes of rows a rank sends (dispatch: one row a token and rank that needs it) and\n"
        "gets back (combine: em one a token and expert, rm one a token and rank) over the mean\n"
        "of a run; link: without rows that stay on their rank. MB: device memory of group and "
        "handle.\n",
        checked);
    return cli_put("bench ep", "");
}

/* ------------------------------------------------------------------------------------ CSV */

static void csv_stats(const cli_stats *stats)
{
    printf(",%.3f,%.3f,%.3f,%.3f", us(stats->mean), us(stats->min), us(stats->median),
           us(stats->p99));
}

static void csv_op(const bench_job *job, const bench_row *row, bench_op op)
{
    const bench_times *times = &row->times[op];
    const cli_options *o = &row->first->options;
    printf("%s,%s,%u,%s,%u,%" PRIu64 ",%s,%u,%u,%s,%d,%d,%d", row->first->run.backend,
           clock_name(job), row->rank_count, cli_layout_name(o->layout), o->tokens, o->hidden,
           cli_dtype_name(o->dtype), o->topk, o->experts, bench_op_name(op), o->windows, o->staged,
           job->options->graph);
    csv_stats(&times->host);
    csv_stats(&times->stream);
    printf(",%.3f,%.3f,%.3f,%.1f,%.3f,%.3f,%" PRIu64 ",%" PRIu64 "\n", us(times->run),
           us(row->run_least[op]), us(row->run_largest[op]), times->call,
           bench_rate(row, op, false), bench_rate(row, op, true), row->group_bytes,
           row->handle_bytes);
}

int bench_print_csv(const bench_job *job, const bench_row *rows)
{
    printf("backend,clock,ranks,layout,tokens,hidden,dtype,top_k,experts,op,windows,staged,graph,"
           "host_mean_us,host_min_us,host_median_us,host_p99_us,"
           "stream_mean_us,stream_min_us,stream_median_us,stream_p99_us,"
           "run_us,run_least_us,run_largest_us,call_ns,gb_per_s,link_gb_per_s,group_bytes,"
           "handle_bytes\n");
    for (uint32_t i = 0; i < job->case_count; ++i) {
        for (int op = 0; op < BENCH_OP_COUNT; ++op) {
            if (job->options->timed[op] && rows[i].wrong_rows == 0) {
                csv_op(job, &rows[i], (bench_op)op);
            }
        }
    }
    return cli_put("bench ep", "");
}
