/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: finished lines to a sink or to standard error, up to a level. IST_LOG names the level;
 * without it errors and warnings are written.
 */
#include "ist_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512u

static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static ist_log_level level_max = IST_LOG_WARN;
static ist_log_fn sink;
static void *sink_context;

static const char *const level_names[] = {"none", "error", "warn", "info", "trace"};

static void level_from_environment(void)
{
    const char *text = getenv("IST_LOG");
    for (uint32_t i = 0; text != NULL && i < sizeof(level_names) / sizeof(level_names[0]); ++i) {
        if (strcmp(text, level_names[i]) == 0) {
            level_max = (ist_log_level)i;
        }
    }
}

ist_log_level ist_log_level_max(void)
{
    pthread_once(&level_once, level_from_environment);
    return level_max;
}

void ist_log_sink_set(ist_log_fn new_sink, void *context, ist_log_level new_level_max)
{
    pthread_once(&level_once, level_from_environment);
    sink = new_sink;
    sink_context = context;
    level_max = new_level_max;
}

/* One write a line, so that lines of several processes do not mix. */
static void write_standard_error(ist_log_level level, const char *text)
{
    char line[LINE_BYTES + 32u];
    int length = snprintf(line, sizeof(line), "isthmus %s: %s\n", level_names[level], text);
    if (length > 0) {
        fwrite(line, 1, (size_t)length, stderr);
    }
}

void ist_log(ist_log_level level, const char *format, ...)
{
    if (level > ist_log_level_max() || level <= IST_LOG_NONE || level > IST_LOG_TRACE) {
        return;
    }
    char text[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (sink != NULL) {
        sink(level, text, sink_context);
        return;
    }
    write_standard_error(level, text);
}
