/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits as the program sees them: run one, tell its errors, print it.
 */
#include "ist_group.h"

#include "fit_bench.h"
#include "fit_cross.h"
#include "fit_probe.h"
#include "fit_profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPEN "fit.open"
#define PRINT "fit.print"
#define LINE_BYTES 256u

struct ist_fit {
    ist_fit_mode mode;
    fit_table table;
    uint8_t *mask; /* 1: to fit, 2: to predict */
    fit_score *scores;
    fit_series_score *series;
    cost_profile profile;
};

void ist_fit_close(ist_fit *fit)
{
    if (fit != NULL) {
        fit_table_free(&fit->table);
        cost_profile_free(&fit->profile);
        ist_free(fit->mask);
        ist_free(fit->scores);
        ist_free(fit->series);
        ist_free(fit);
    }
}

static void leave_out_others(fit_table *table, const char *only)
{
    for (uint32_t i = 0; only != NULL && i < table->count; ++i) {
        if (strncmp(table->point[i].id, only, strlen(only)) != 0) {
            table->point[i].skipped = "not asked for";
        }
    }
}

/* A table, or what one of the commands wrote. */
static ist_status read_table(const char *text, size_t bytes, fit_table *table)
{
    if (!fit_is_profile(text, bytes)) {
        return fit_table_read(text, bytes, table);
    }
    return fit_is_bench(text, bytes) ? fit_bench_read(text, bytes, table)
                                     : fit_probe_read(text, bytes, table);
}

static ist_status read_tables(const ist_fit_desc *desc, ist_fit *fit)
{
    IST_RETURN_IF_ERROR(read_table(desc->points, desc->bytes, &fit->table));
    const uint32_t first = fit->table.count;
    if (desc->mode == IST_FIT_TEST) {
        fit_table test;
        IST_RETURN_IF_ERROR(read_table(desc->test, desc->test_bytes, &test));
        IST_RETURN_IF_ERROR(fit_table_append(&fit->table, &test));
    }
    leave_out_others(&fit->table, desc->only);
    fit->mask = ist_alloc(fit->table.count + 1u, 1);
    fit->scores = ist_alloc(fit->table.count + 1u, sizeof(*fit->scores));
    fit->series = ist_alloc(fit->table.series_count + 1u, sizeof(*fit->series));
    if (fit->mask == NULL || fit->scores == NULL || fit->series == NULL) {
        return ist_fail_memory(NULL, "a fit", OPEN);
    }
    for (uint32_t i = 0; i < fit->table.count; ++i) {
        fit->mask[i] = i < first ? 1 : 2;
    }
    return IST_OK;
}

/* A probe's own figures of links stay beside what is fitted. */
static ist_status make_profile(const ist_fit_desc *desc, ist_fit *fit)
{
    IST_RETURN_IF_ERROR(
        fit_profile_make(&fit->table, desc->name == NULL ? "fit" : desc->name, &fit->profile));
    if (!fit_is_profile(desc->points, desc->bytes) || fit_is_bench(desc->points, desc->bytes)) {
        return IST_OK;
    }
    cost_profile links;
    IST_RETURN_IF_ERROR(cost_profile_parse(desc->points, desc->bytes, &links));
    cost_profile_free(&links);
    links.op = fit->profile.op;
    links.op_count = fit->profile.op_count;
    if (desc->name != NULL) {
        memcpy(links.name, fit->profile.name, sizeof(links.name));
    }
    fit->profile = links;
    return IST_OK;
}

static ist_status run(const ist_fit_desc *desc, ist_fit *fit)
{
    IST_RETURN_IF_ERROR(read_tables(desc, fit));
    switch (desc->mode) {
    case IST_FIT_PROFILE: return make_profile(desc, fit);
    case IST_FIT_CROSS: return fit_cross_validate(&fit->table, fit->scores, fit->series);
    case IST_FIT_TEST: return fit_score_split(&fit->table, fit->mask, fit->scores, fit->series);
    case IST_FIT_HALVES: return fit_score_halves(&fit->table, fit->scores, fit->series);
    }
    return ist_fail_value(NULL, IST_ERR_ARGUMENT, "desc.mode", OPEN, IST_FIT_HALVES,
                          (uint64_t)desc->mode, "desc.mode is %d, 0 to 3 is required",
                          (int)desc->mode);
}

ist_status ist_fit_open(const ist_fit_desc *desc, ist_fit **fit)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, desc, "desc", OPEN));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, fit, "fit", OPEN));
    ist_fit_desc checked;
    IST_RETURN_IF_ERROR(
        ist_desc_read(NULL, desc, sizeof(ist_fit_desc), &checked, sizeof(checked), "desc", OPEN));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, checked.points, "desc.points", OPEN));
    if (checked.mode == IST_FIT_TEST) {
        IST_RETURN_IF_ERROR(ist_check_pointer(NULL, checked.test, "desc.test", OPEN));
    }
    ist_fit *opened = ist_alloc(1, sizeof(*opened));
    if (opened == NULL) {
        return ist_fail_memory(NULL, "a fit", OPEN);
    }
    opened->mode = checked.mode;
    const ist_status status = run(&checked, opened);
    if (status != IST_OK) {
        ist_fit_close(opened);
        return status;
    }
    *fit = opened;
    return IST_OK;
}

static ist_fit_score score_of(const ist_fit *fit, uint32_t ways)
{
    const fit_summary summary = fit_summarise(&fit->table, fit->series, ways);
    return (ist_fit_score){.series = summary.series,
                           .points = summary.points,
                           .median = (uint32_t)(summary.median * 1e6 + 0.5),
                           .p90 = (uint32_t)(summary.p90 * 1e6 + 0.5)};
}

ist_status ist_fit_query(const ist_fit *fit, ist_fit_info *info)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, fit, "fit", "fit.query"));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, info, "info", "fit.query"));
    IST_RETURN_IF_ERROR(ist_out_check(NULL, info, "info", "fit.query"));
    ist_fit_info full = {.size = sizeof(full),
                         .point_count = fit->table.count,
                         .series_count = fit->table.series_count,
                         .all = score_of(fit, 7),
                         .world = score_of(fit, 1u << FIT_BY_WORLD),
                         .sizes = score_of(fit, 1u << FIT_BY_SIZE),
                         .kin = score_of(fit, 1u << FIT_BY_KIN)};
    for (uint32_t i = 0; i < fit->table.count; ++i) {
        full.used_count += fit->table.point[i].skipped == NULL;
    }
    ist_out_write(info, &full, sizeof(full));
    return IST_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *const way_names[] = {"world", "size", "kin"};

static void series_line(const ist_fit *fit, uint32_t series, char *line)
{
    const fit_series_score *score = &fit->series[series];
    char name[FIT_ID_BYTES];
    fit_series_name(&fit->table.point[fit->table.series_first[series]], name, sizeof(name));
    (void)snprintf(line, LINE_BYTES, "%s,%s,%" PRIu32 ",%.4f,%.4f\n", name, way_names[score->way],
                   score->points, score->median, score->worst);
}

static void point_line(const ist_fit *fit, uint32_t index, char *line)
{
    const fit_point *point = &fit->table.point[index];
    const fit_score *score = &fit->scores[index];
    if (score->time_us > 0) {
        (void)snprintf(line, LINE_BYTES, "%s,%s,%.3f,%.3f,%.4f\n", point->id, way_names[score->way],
                       point->time_us, score->time_us, score->error);
    } else {
        (void)snprintf(line, LINE_BYTES, "%s,\"not scored: %s\",,,\n", point->id,
                       point->skipped == NULL ? "used to fit" : point->skipped);
    }
}

static ist_status make_lines(const ist_fit *fit, bool series, char **text)
{
    const uint32_t count = series ? fit->table.series_count : fit->table.count;
    char *made = ist_alloc((size_t)(count + 1) * LINE_BYTES, 1);
    if (made == NULL) {
        return ist_fail_memory(NULL, "the text of a fit", PRINT);
    }
    size_t at = (size_t)snprintf(made, LINE_BYTES, "%s",
                                 series ? "series,left_out,points,median_error,worst_error\n"
                                        : "id,left_out,measured_us,predicted_us,error\n");
    for (uint32_t i = 0; i < count; ++i) {
        if (series && fit->series[i].points == 0) {
            continue;
        }
        if (series) {
            series_line(fit, i, made + at);
        } else {
            point_line(fit, i, made + at);
        }
        at += strlen(made + at);
    }
    *text = made;
    return IST_OK;
}

ist_status ist_fit_print(const ist_fit *fit, ist_fit_text what, char *text, size_t capacity,
                         size_t *needed)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, fit, "fit", PRINT));
    const bool profile = what == IST_FIT_TEXT_PROFILE;
    if (profile != (fit->mode == IST_FIT_PROFILE) || (uint32_t)what > IST_FIT_TEXT_POINTS) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "what", PRINT, IST_FIT_TEXT_POINTS,
                              (uint64_t)what, "a fit of mode %d has no such text (%d)",
                              (int)fit->mode, (int)what);
    }
    char *made = NULL;
    IST_RETURN_IF_ERROR(profile ? cost_profile_print(&fit->profile, &made)
                                : make_lines(fit, what == IST_FIT_TEXT_SERIES, &made));
    const ist_status status = ist_text_out(made, PRINT, text, capacity, needed);
    ist_free(made);
    return status;
}
