/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON answer of `isthmus bench ep`. Keys are added, never renamed. Times are in us.
 */
#include "cli.h"
#include "cli_bench.h"

#include <isthmus/version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *stats(const cli_stats *s)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean_us", s->mean / 1000, "min_us", s->min / 1000,
                     "median_us", s->median / 1000, "p99_us", s->p99 / 1000);
}

static json_t *operation(const bench_row *row, bench_op op)
{
    const bench_times *times = &row->times[op];
    return json_pack("{s:s, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "op", bench_op_name(op),
                     "host", stats(&times->host), "stream", stats(&times->stream), "run_us",
                     times->run / 1000, "run_least_us", row->run_least[op] / 1000, "run_largest_us",
                     row->run_largest[op] / 1000, "call_ns", times->call, "gb_per_s",
                     bench_rate(row, op, false), "link_gb_per_s", bench_rate(row, op, true));
}

/* No times of what was wrong. */
static json_t *operations(const bench_options *options, const bench_row *row)
{
    json_t *list = json_array();
    for (int op = 0; op < BENCH_OP_COUNT; ++op) {
        if (options->timed[op] && row->wrong_rows == 0 &&
            json_array_append_new(list, operation(row, (bench_op)op)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *one_case(const bench_options *options, const bench_row *row)
{
    const cli_options *o = &row->first->options;
    return json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, "
                     "s:o}",
                     "layout", cli_layout_name(o->layout), "tokens", (json_int_t)o->tokens,
                     "hidden", (json_int_t)o->hidden, "dtype", cli_dtype_name(o->dtype), "top_k",
                     (json_int_t)o->topk, "experts", (json_int_t)o->experts, "routing",
                     o->routing.text, "windows", o->windows, "staged", o->staged, "graph",
                     options->graph, "group_bytes", number(row->group_bytes), "handle_bytes",
                     number(row->handle_bytes), "blocks", number(row->block_count), "checked_rows",
                     number(row->rows), "wrong_rows", number(row->wrong_rows), "times",
                     operations(options, row));
}

static json_t *answer(const bench_job *job, const bench_row *rows)
{
    const bench_options *b = job->options;
    const cli_options *o = &rows[0].first->options;
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->case_count; ++i) {
        if (json_array_append_new(list, one_case(b, &rows[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:o}", "isthmus", ist_version_string(),
        "command", "bench ep", "backend", rows[0].first->run.backend, "clock",
        job->result->virtual_ns != 0 ? "virtual" : "real", "ranks", (json_int_t)rows[0].rank_count,
        "cluster", o->cluster == NULL ? "default" : o->cluster, "seed", (json_int_t)o->seed,
        "iterations", (json_int_t)b->iterations, "warmup", (json_int_t)b->warmup, "cycles",
        (json_int_t)b->cycles, "cases", list);
}

static int write_file(const char *command, const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fprintf(file, "%s\n", text) > 0;
    good = (file == NULL || fclose(file) == 0) && good;
    return good ? CLI_OK : cli_failed(command, "cannot write '%s'", path);
}

int bench_put_json(const char *command, json_t *object, const char *path)
{
    char *text =
        object == NULL ? NULL : json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    int status = CLI_OK;
    json_decref(object);
    if (text == NULL) {
        return cli_failed(command, "out of memory");
    }
    if (path != NULL) {
        status = write_file(command, path, text);
    } else {
        status = printf("%s\n", text) < 0 ? CLI_FAILED : cli_put(command, "");
    }
    free(text);
    return status;
}

int bench_print_json(const bench_job *job, const bench_row *rows, const char *path)
{
    return bench_put_json("bench ep", answer(job, rows), path);
}
