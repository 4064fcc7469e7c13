/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what constants, timings and questions are read from never makes a reader crash, hang or
 * hold on to memory; a profile that is read can be written and read again, to the same text.
 * Method: libFuzzer. FUZZ_READER says which reader.
 */
#include "cost_profile.h"
#include "fit_bench.h"
#include "fit_point.h"
#include "fit_probe.h"

#include <isthmus/backend.h>
#include <isthmus/unstable/whatif.h>
#include <stdlib.h>
#include <string.h>

#define READER_PROFILE 1
#define READER_POINTS 2
#define READER_BENCH 3
#define READER_PROBE 4
#define READER_ASK 5

#ifndef FUZZ_READER
#define FUZZ_READER READER_PROFILE
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
    if (!held) {
        abort();
    }
}

static void profile_again(const cost_profile *profile)
{
    char *text = NULL;
    char *other = NULL;
    cost_profile again;
    if (cost_profile_print(profile, &text) != IST_OK) {
        return; /* a text that is no UTF-8 cannot be written */
    }
    must(cost_profile_parse(text, strlen(text), &again) == IST_OK);
    must(cost_profile_print(&again, &other) == IST_OK);
    must(strcmp(text, other) == 0);
    cost_profile_free(&again);
    ist_free(text);
    ist_free(other);
}

static void read_profile(const char *text, size_t size)
{
    cost_profile profile;
    if (cost_profile_parse(text, size, &profile) == IST_OK) {
        profile_again(&profile);
        cost_profile_free(&profile);
    }
}

static void read_table(const char *text, size_t size)
{
    fit_table table;
    ist_status status = FUZZ_READER == READER_POINTS  ? fit_table_read(text, size, &table)
                        : FUZZ_READER == READER_BENCH ? fit_bench_read(text, size, &table)
                                                      : fit_probe_read(text, size, &table);
    if (status == IST_OK) {
        for (uint32_t i = 0; i < table.count; i++) {
            must(table.point[i].series < table.series_count);
        }
        fit_table_free(&table);
    }
}

static void read_question(const char *text, size_t size)
{
    char line[512];
    ist_op_desc op;
    ist_edit edit;
    size_t length = size < sizeof(line) - 1 ? size : sizeof(line) - 1;
    memcpy(line, text, length);
    line[length] = '\0';
    (void)ist_op_parse(line, &op);
    (void)ist_edit_parse(line, &edit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    switch (FUZZ_READER) {
    case READER_PROFILE: read_profile(text, size); break;
    case READER_ASK: read_question(text, size); break;
    default: read_table(text, size); break;
    }
    return 0;
}
