/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a table of timings, cell by cell: commas, quotes as RFC 4180 has them, columns by name.
 */
#ifndef FIT_CSV_H
#define FIT_CSV_H

#include <isthmus/status.h>
#include <stdbool.h>
#include <stdint.h>

#define FIT_CELLS_MAX 64u
#define FIT_CELL_BYTES 512u

/* X(column) */
#define FIT_COLUMNS(X)                                                                             \
    X(id)                                                                                          \
    X(system)                                                                                      \
    X(hardware)                                                                                    \
    X(n_gpus)                                                                                      \
    X(gpus_per_node)                                                                               \
    X(lsa_domain_size)                                                                             \
    X(n_nodes)                                                                                     \
    X(op)                                                                                          \
    X(algo_or_mode)                                                                                \
    X(dtype_dispatch)                                                                              \
    X(dtype_combine)                                                                               \
    X(tokens_per_rank)                                                                             \
    X(hidden)                                                                                      \
    X(topk)                                                                                        \
    X(experts)                                                                                     \
    X(bytes)                                                                                       \
    X(metric)                                                                                      \
    X(value)                                                                                       \
    X(bw_convention)                                                                               \
    X(notes)                                                                                       \
    X(call)                                                                                        \
    X(ranks)                                                                                       \
    X(library)                                                                                     \
    X(type)                                                                                        \
    X(redop)                                                                                       \
    X(in_place)                                                                                    \
    X(graph)                                                                                       \
    X(run_us)                                                                                      \
    X(layout)                                                                                      \
    X(tokens)                                                                                      \
    X(dtype)                                                                                       \
    X(top_k)                                                                                       \
    X(windows)                                                                                     \
    X(staged)                                                                                      \
    X(wrong)

typedef enum fit_column {
#define X(name) FIT_COLUMN_##name,
    FIT_COLUMNS(X)
#undef X
        FIT_COLUMN_COUNT
} fit_column;

typedef struct fit_reader {
    const char *at, *end;
    uint32_t line;
    int place[FIT_COLUMN_COUNT]; /* cell of a column; -1: not there */
    uint32_t cell_count;
    char cell[FIT_CELLS_MAX][FIT_CELL_BYTES];
} fit_reader;

/* IST_ERR_PARSE naming the line. */
ist_status fit_line_refuse(const fit_reader *from, const char *what, const char *seen);

/* Finds the columns. Those that have to be there are id, n_gpus, op, metric and value; or, of what
 * `isthmus bench --csv` prints, ranks, run_us, and call or op. */
ist_status fit_header_read(fit_reader *from);

/* Whether the table is one of `isthmus bench`. */
bool fit_header_is_bench(const fit_reader *from);

/* The next line that is not empty. False at the end of the text. */
bool fit_line_read(fit_reader *from);

/* A cell of the line; empty when the table has no such column. */
const char *fit_cell(const fit_reader *from, fit_column which);

/* The same as a number, 0 to 10^18; -1 when it is none. */
double fit_number(const fit_reader *from, fit_column which);

#endif
