/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of a table of timings.
 */
#include "fit_csv.h"

#include <isthmus/backend.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const column_names[FIT_COLUMN_COUNT] = {
#define X(name) #name,
    FIT_COLUMNS(X)
#undef X
};

ist_status fit_line_refuse(const fit_reader *from, const char *what, const char *seen)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = from->line,
                         .object = "points",
                         .operation = "fit.points"};
    return ist_raise(IST_ERR_PARSE, &details, "line %u: %s is \"%.60s\"", from->line, what, seen);
}

/* One cell, quoted or not; what does not fit is left out. Returns whether another one follows. */
static bool read_cell(fit_reader *from, char *cell)
{
    size_t length = 0;
    bool quoted = from->at < from->end && *from->at == '"';
    from->at += quoted;
    while (from->at < from->end) {
        const char c = *from->at;
        if (quoted && c == '"') {
            if (from->at + 1 < from->end && from->at[1] == '"') {
                ++from->at;
            } else {
                quoted = false;
                ++from->at;
                continue;
            }
        } else if (!quoted && (c == ',' || c == '\n' || c == '\r')) {
            break;
        }
        if (length + 1 < FIT_CELL_BYTES) {
            cell[length++] = *from->at;
        }
        ++from->at;
    }
    cell[length] = '\0';
    if (from->at < from->end && *from->at == ',') {
        ++from->at;
        return true;
    }
    return false;
}

/* False at the end of the text. */
bool fit_line_read(fit_reader *from)
{
    while (from->at < from->end && (*from->at == '\n' || *from->at == '\r')) {
        from->line += *from->at++ == '\n';
    }
    if (from->at >= from->end) {
        return false;
    }
    from->cell_count = 0;
    bool more = true;
    while (more) {
        const uint32_t at =
            from->cell_count < FIT_CELLS_MAX - 1 ? from->cell_count++ : FIT_CELLS_MAX - 1;
        more = read_cell(from, from->cell[at]);
    }
    return true;
}

const char *fit_cell(const fit_reader *from, fit_column which)
{
    const int place = from->place[which];
    return place < 0 || (uint32_t)place >= from->cell_count ? "" : from->cell[place];
}

double fit_number(const fit_reader *from, fit_column which)
{
    const char *text = fit_cell(from, which);
    char *end = NULL;
    const double value = strtod(text, &end);
    return end == text || *end != '\0' || !isfinite(value) || value < 0 || value > 1e18 ? -1
                                                                                        : value;
}

ist_status fit_header_read(fit_reader *from)
{
    if (!fit_line_read(from)) {
        return fit_line_refuse(from, "the table", "");
    }
    for (uint32_t i = 0; i < FIT_COLUMN_COUNT; ++i) {
        from->place[i] = -1;
        for (uint32_t j = 0; j < from->cell_count; ++j) {
            if (strcmp(from->cell[j], column_names[i]) == 0) {
                from->place[i] = (int)j;
            }
        }
    }
    static const fit_column table[] = {FIT_COLUMN_id, FIT_COLUMN_n_gpus, FIT_COLUMN_op,
                                       FIT_COLUMN_metric, FIT_COLUMN_value};
    static const fit_column bench[] = {FIT_COLUMN_ranks, FIT_COLUMN_run_us};
    const bool is_bench = fit_header_is_bench(from);
    const fit_column *required = is_bench ? bench : table;
    const size_t count = is_bench ? sizeof bench / sizeof *bench : sizeof table / sizeof *table;
    for (size_t i = 0; i < count; ++i) {
        if (from->place[required[i]] < 0) {
            return fit_line_refuse(from, "a column that is missing", column_names[required[i]]);
        }
    }
    return IST_OK;
}

bool fit_header_is_bench(const fit_reader *from)
{
    const bool named = from->place[FIT_COLUMN_call] >= 0 || from->place[FIT_COLUMN_layout] >= 0;
    return named && from->place[FIT_COLUMN_id] < 0;
}
