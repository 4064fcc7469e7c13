/* SPDX-License-Identifier: Apache-2.0 */
/* Small texts: numbers and times as people write them, words quoted for a shell and split again,
 * and a text that grows.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decimal number without sign, all of `text`, in [low, high]. */
bool cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value);

/* A whole number with ns, us, ms or s behind it; without a unit: ns. */
bool cli_parse_duration(const char *text, uint64_t *ns);

/* A text that grows. After a failed allocation `failed` stays set and appending does nothing. */
typedef struct cli_text {
    char *bytes; /* ends in NUL once something was appended */
    size_t length;
    size_t capacity;
    bool failed;
} cli_text;

void cli_text_append(cli_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a word so that a POSIX shell reads it back unchanged. */
void cli_text_append_quoted(cli_text *text, const char *word);
void cli_text_free(cli_text *text);

/* Splits a line as a POSIX shell does, as far as quotes and backslashes go. The words lie in one
   allocation: free(*words) frees all. False: out of memory or an open quote. */
bool cli_split(const char *line, int *count, char ***words);

/* Reads a whole file, at most `bytes_max`. The caller frees *bytes, which ends in a NUL. On failure
   *reason tells why. */
bool cli_read_file(const char *path, size_t bytes_max, char **bytes, size_t *count,
                   const char **reason);

#endif
