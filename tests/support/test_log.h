/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the last log lines of a test instead of printing them: refused calls are what is tested.
 */
#ifndef TEST_LOG_H
#define TEST_LOG_H

#include <isthmus/status.h>
#include <stdio.h>
#include <string.h>

typedef struct test_log {
    unsigned count;
    char lines[64][256]; /* the newest overwrite the oldest */
} test_log;

static inline void test_log_line(ist_log_level level, const char *line, void *context)
{
    test_log *log = context;
    (void)level;
    snprintf(log->lines[log->count % 64u], sizeof(log->lines[0]), "%s", line);
    ++log->count;
}

/* Whether a kept line contains `text`. */
static inline int test_log_has(const test_log *log, const char *text)
{
    for (unsigned i = 0; i < 64u && i < log->count; ++i) {
        if (strstr(log->lines[i], text) != NULL) {
            return 1;
        }
    }
    return 0;
}

#endif
