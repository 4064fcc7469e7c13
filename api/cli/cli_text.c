/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, times, shell words, growing texts and whole files.
 */
#include "cli_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads digits; false without any, or on overflow. *end is the first character behind them. */
static bool read_digits(const char *text, uint64_t *value, const char **end)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; ++at) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    *value = number;
    *end = at;
    return at != text;
}

bool cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    uint64_t number;
    const char *end;
    if (!read_digits(text, &number, &end) || *end != '\0' || number < low || number > high) {
        return false;
    }
    *value = number;
    return true;
}

bool cli_parse_duration(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    uint64_t number;
    const char *end;
    if (!read_digits(text, &number, &end)) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; ++i) {
        if (strcmp(end, units[i].name) == 0 && number <= UINT64_MAX / units[i].ns) {
            *ns = number * units[i].ns;
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------------ texts */

static bool text_reserve(cli_text *text, size_t more)
{
    if (text->failed) {
        return false;
    }
    if (text->length + more + 1 <= text->capacity) {
        return true;
    }
    size_t capacity = 2 * text->capacity + more + 64;
    char *bytes = realloc(text->bytes, capacity);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void cli_text_append(cli_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int needed = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (needed < 0 || !text_reserve(text, (size_t)needed)) {
        text->failed = true;
        return;
    }
    va_start(list, format);
    vsnprintf(text->bytes + text->length, (size_t)needed + 1, format, list);
    va_end(list);
    text->length += (size_t)needed;
}

void cli_text_append_quoted(cli_text *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=,+@%";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        cli_text_append(text, "%s", word);
        return;
    }
    cli_text_append(text, "'");
    for (; *word != '\0'; ++word) {
        if (*word == '\'') {
            cli_text_append(text, "'\\''");
        } else {
            cli_text_append(text, "%c", *word);
        }
    }
    cli_text_append(text, "'");
}

void cli_text_free(cli_text *text)
{
    free(text->bytes);
    memset(text, 0, sizeof *text);
}

/* ------------------------------------------------------------------------------------ words */

/* Copies the next word to *out and moves both on. 1: a word; 0: none left; -1: an open quote. */
static int next_word(const char **in, char **out)
{
    const char *at = *in + strspn(*in, " \t\r\n");
    char quote = '\0';
    if (*at == '\0') {
        return 0;
    }
    for (; *at != '\0'; ++at) {
        if (quote == '\0' && strchr(" \t\r\n", *at) != NULL) {
            break;
        }
        if (*at == quote) {
            quote = '\0';
        } else if (quote == '\0' && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (*at == '\\' && quote != '\'' && at[1] != '\0') {
            *(*out)++ = *++at;
        } else {
            *(*out)++ = *at;
        }
    }
    *(*out)++ = '\0';
    *in = at;
    return quote == '\0' ? 1 : -1;
}

bool cli_split(const char *line, int *count, char ***words)
{
    size_t length = strlen(line);
    /* A word takes two characters at least, but for the last one. */
    size_t slots = length / 2 + 2;
    char **made = calloc(1, slots * sizeof *made + length + 2);
    if (made == NULL) {
        return false;
    }
    char *out = (char *)(made + slots);
    int found = 0;
    int more;
    do {
        made[found] = out;
        more = next_word(&line, &out);
        found += more == 1;
    } while (more == 1);
    if (more < 0) {
        free(made);
        return false;
    }
    made[found] = NULL;
    *count = found;
    *words = made;
    return true;
}

/* ------------------------------------------------------------------------------------ files */

static bool read_stream(FILE *file, size_t bytes_max, char **bytes, size_t *count)
{
    char *data = NULL;
    size_t used = 0;
    size_t capacity = 0;
    size_t got;
    do {
        if (used + 1 >= capacity) {
            capacity = 2 * capacity + 65536;
            char *grown = capacity / 2 > bytes_max + 131072 ? NULL : realloc(data, capacity);
            if (grown == NULL) {
                free(data);
                errno = EFBIG;
                return false;
            }
            data = grown;
        }
        got = fread(data + used, 1, capacity - used - 1, file);
        used += got;
    } while (got != 0);
    if (ferror(file) != 0 || used > bytes_max) {
        free(data);
        errno = used > bytes_max ? EFBIG : EIO;
        return false;
    }
    data[used] = '\0';
    *bytes = data;
    *count = used;
    return true;
}

bool cli_read_file(const char *path, size_t bytes_max, char **bytes, size_t *count,
                   const char **reason)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        *reason = strerror(errno);
        return false;
    }
    bool good = read_stream(file, bytes_max, bytes, count);
    if (!good) {
        *reason = strerror(errno);
    }
    fclose(file);
    return good;
}
