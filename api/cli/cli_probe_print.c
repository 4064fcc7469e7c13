/* SPDX-License-Identifier: Apache-2.0 */
/* What the probe found, as a table and as a profile (topology/profile.md).
 */
#include "cli.h"
#include "cli_probe.h"

#include <inttypes.h>
#include <isthmus/version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define PS_PER_S 1000000000000.0

static const char *const value_keys[PROBE_VALUE_COUNT] = {
#define X(id, key) key,
    PROBE_VALUE_LIST(X)
#undef X
};

/* Rates of the profile, each the best of a curve. */
static const struct {
    const char *key;
    probe_curve curve;
} rates[] = {{"nvlink_bytes_per_s", PROBE_LSA_STORE},
             {"lsa_load_bytes_per_s", PROBE_LSA_LOAD},
             {"hbm_bytes_per_s", PROBE_LOCAL_COPY},
             {"nic_bytes_per_s", PROBE_GIN_PUT}};

static const struct {
    const char *key;
    uint32_t weight;
} curves[PROBE_CURVE_COUNT] = {
#define X(id, key, bytes) {key, bytes},
    PROBE_CURVE_LIST(X)
#undef X
};

const char *probe_value_key(probe_value value)
{
    return value_keys[value];
}

const char *probe_curve_key(probe_curve curve)
{
    return curves[curve].key;
}

uint32_t probe_curve_weight(probe_curve curve)
{
    return curves[curve].weight;
}

static uint64_t rate_of(probe_curve curve, double bytes, double time_ps)
{
    return time_ps > 0 ? (uint64_t)(curves[curve].weight * bytes * PS_PER_S / time_ps + 0.5) : 0;
}

/* The slope takes out what does not grow with size: latency, and how blocks begin and end. Points of
   one number of blocks follow each other in order of size. */
uint64_t probe_rate(const probe_result *result, probe_curve curve)
{
    uint64_t best = 0;
    const probe_point *before = NULL;
    for (uint32_t i = 0; i < result->point_count; ++i) {
        const probe_point *point = &result->points[i];
        if (point->curve != curve) {
            continue;
        }
        const probe_point *next = i + 1 < result->point_count ? point + 1 : NULL;
        bool largest = next == NULL || next->curve != curve || next->blocks != point->blocks;
        bool sloped =
            before != NULL && before->blocks == point->blocks && before->time_ps < point->time_ps;
        if (largest) {
            double bytes = (double)(point->bytes - (sloped ? before->bytes : 0));
            double time_ps = (double)(point->time_ps - (sloped ? before->time_ps : 0));
            uint64_t rate = rate_of(curve, bytes, time_ps);
            best = rate > best ? rate : best;
        }
        before = point;
    }
    return best;
}

/* ------------------------------------------------------------------------------------ table */

static void print_values(const probe_result *result)
{
    for (int value = 0; value < PROBE_VALUE_COUNT; ++value) {
        if (result->known[value]) {
            printf("%-24s %12.3f us\n", value_keys[value], (double)result->values[value] / 1e6);
        }
    }
    for (size_t i = 0; i < sizeof rates / sizeof *rates; ++i) {
        uint64_t rate = probe_rate(result, rates[i].curve);
        if (rate != 0) {
            printf("%-24s %12.1f GB/s\n", rates[i].key, (double)rate / 1e9);
        }
    }
}

int probe_print_table(const probe_result *result, const char *command)
{
    printf("isthmus %s  probe  backend %s, %u ranks, load/store teams of %u, %u blocks, %s clock\n",
           ist_version_string(), result->backend, result->rank_count, result->lsa_size,
           result->sm_count, result->virtual_clock ? "virtual" : "real");
    printf("the slowest rank; all ranks send at once: a rate is that of one direction\n\n");
    print_values(result);
    if (result->gin_reason[0] != '\0') {
        printf("no puts: %s\n", result->gin_reason);
    }
    printf("\n%-12s %12s %7s %12s %10s\n", "curve", "bytes", "blocks", "time us", "GB/s");
    for (uint32_t i = 0; i < result->point_count; ++i) {
        const probe_point *point = &result->points[i];
        printf("%-12s %12" PRIu64 " %7u %12.3f", curves[point->curve].key, point->bytes,
               point->blocks, (double)point->time_ps / 1e6);
        if (curves[point->curve].weight != 0) {
            printf(" %10.1f",
                   (double)rate_of(point->curve, (double)point->bytes, (double)point->time_ps) /
                       1e9);
        }
        printf("\n");
    }
    printf("\nagain   %s\n", command);
    return cli_put("probe", "");
}

/* ------------------------------------------------------------------------------------ profile */

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static void set_value(json_t *values, const char *key, uint64_t value, const char *unit)
{
    json_object_set_new(
        values, key,
        json_pack("{s:o, s:s, s:s}", "value", number(value), "unit", unit, "origin", "probe"));
}

static json_t *values_json(const probe_result *result)
{
    json_t *values = json_object();
    for (int value = 0; value < PROBE_VALUE_COUNT; ++value) {
        if (result->known[value]) {
            set_value(values, value_keys[value], result->values[value], "ps");
        }
    }
    for (size_t i = 0; i < sizeof rates / sizeof *rates; ++i) {
        uint64_t rate = probe_rate(result, rates[i].curve);
        if (rate != 0) {
            set_value(values, rates[i].key, rate, "bytes/s");
        }
    }
    set_value(values, "sm_count", result->sm_count, "count");
    return values;
}

static json_t *points_json(const probe_result *result, probe_curve curve)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < result->point_count; ++i) {
        const probe_point *point = &result->points[i];
        if (point->curve != curve) {
            continue;
        }
        json_t *object = json_pack("{s:o, s:I, s:o}", "bytes", number(point->bytes), "blocks",
                                   (json_int_t)point->blocks, "time_ps", number(point->time_ps));
        if (curves[curve].weight != 0) {
            json_object_set_new(
                object, "rate",
                number(rate_of(curve, (double)point->bytes, (double)point->time_ps)));
            json_object_set_new(object, "unit", json_string("bytes/s"));
        }
        json_array_append_new(points, object);
    }
    return points;
}

static json_t *curves_json(const probe_result *result)
{
    json_t *all = json_object();
    for (int curve = 0; curve < PROBE_CURVE_COUNT; ++curve) {
        json_t *points = points_json(result, (probe_curve)curve);
        if (json_array_size(points) == 0) {
            json_decref(points);
            continue;
        }
        json_object_set_new(all, curves[curve].key,
                            json_pack("{s:s, s:o}", "origin", "probe", "points", points));
    }
    return all;
}

static json_t *profile(const probe_options *options, const probe_result *result,
                       const char *command)
{
    char what[40];
    snprintf(what, sizeof what, "isthmus probe %s", ist_version_string());
    return json_pack(
        "{s:s, s:i, s:s, s:{s:s, s:I, s:I, s:I, s:s}, s:{s:{s:s, s:s, s:s}}, s:o, s:o}", "format",
        "isthmus-profile", "version", 1, "name", options->name, "machine", "backend",
        result->backend, "ranks", (json_int_t)result->rank_count, "lsa_size",
        (json_int_t)result->lsa_size, "sm_count", (json_int_t)result->sm_count, "clock",
        result->virtual_clock ? "virtual" : "real", "origins", "probe", "kind", "measured", "what",
        what, "command", command, "values", values_json(result), "curves", curves_json(result));
}

int probe_write_profile(const probe_options *options, const probe_result *result,
                        const char *command, const char *path)
{
    json_t *object = profile(options, result, command);
    if (object == NULL) {
        return cli_failed("probe", "out of memory");
    }
    int status = CLI_OK;
    if (path != NULL && json_dump_file(object, path, JSON_INDENT(1)) != 0) {
        status = cli_failed("probe", "cannot write '%s'", path);
    }
    if (path == NULL) {
        bool good = json_dumpf(object, stdout, JSON_INDENT(1)) == 0 && putchar('\n') == '\n';
        status = good ? cli_put("probe", "") : cli_failed("probe", "cannot write the profile");
    }
    json_decref(object);
    return status;
}
