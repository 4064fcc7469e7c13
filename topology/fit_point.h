/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of timings, one a line: who measured what on which machine, as the cost model sees it.
 * The columns are named by the first line: id, system, hardware, n_gpus, gpus_per_node,
 * lsa_domain_size, n_nodes, op, algo_or_mode, dtype_dispatch, dtype_combine, tokens_per_rank,
 * hidden, topk, experts, bytes, metric (time_us or bw_GBs), value, bw_convention, notes. Others
 * are not looked at.
 */
#ifndef FIT_POINT_H
#define FIT_POINT_H

#include "cost_model.h"

#define FIT_ID_BYTES 128u
#define FIT_POINTS_MAX 20000u

typedef struct fit_point {
    char id[FIT_ID_BYTES];
    const char *skipped; /* NULL, or why it cannot be used; static text */
    uint32_t series;     /* numbers: equal for equal id without its last part */
    uint32_t family;     /* equal for series that differ in the size of the world only */
    uint32_t kin;        /* equal for families of one source and kind of operation */
    uint32_t branch;     /* of a kin: equal for equal hardware */
    uint64_t series_digest, family_digest; /* of their names */
    const char *hardware;                  /* static text; equal pointers for equal hardware */
    cost_machine machine;
    cost_op op;
    bool best_of_two; /* the library chooses between ring and tree */
    double time_us;
    double tolerance; /* of the value as it was printed, relative */
    double size;      /* log2 of the bytes a rank handles */
    double ranks;     /* log2 */
    double nodes;     /* log2 */
} fit_point;

typedef struct fit_table {
    fit_point *point;
    uint32_t count;
    uint32_t series_count, family_count, kin_count, branch_count;
    uint32_t *series_first;  /* point that names it */
    uint32_t *series_points; /* how many it has */
} fit_table;

/* IST_ERR_PARSE names line and column; IST_ERR_MEMORY. Frees with fit_table_free(). */
ist_status fit_table_read(const char *text, size_t bytes, fit_table *table);
void fit_table_free(fit_table *table);

/* Puts the points of `added` behind those of `table`; `added` is gone. On failure the table is as it
 * was. */
ist_status fit_table_append(fit_table *table, fit_table *added);

/* Numbers series, families and kin by the points' ids; for tables that are made otherwise. */
void fit_table_number(fit_table *table);

/* Series of a point as text: the id without its last part. */
void fit_series_name(const fit_point *point, char *text, size_t bytes);
void fit_family_name(const fit_point *point, char *text, size_t bytes);

#endif
