/* SPDX-License-Identifier: Apache-2.0 */
/* Appends to a growing text: plain, escaped for XML and JSON, numbers with units, wrapped words.
 */
#include "topo_text.h"

#include <inttypes.h>
#include <isthmus/backend.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX ((size_t)1 << 30)
#define TEXT_FIRST 256

/* Makes room for `more` bytes and the NUL. */
static bool text_reserve(topo_text *text, size_t more)
{
    if (text->failed || more > TEXT_MAX - text->length - 1) {
        text->failed = true;
        return false;
    }
    size_t needed = text->length + more + 1;
    if (needed <= text->capacity) {
        return true;
    }
    size_t capacity = text->capacity == 0 ? TEXT_FIRST : text->capacity;
    while (capacity < needed) {
        capacity *= 2;
    }
    char *bytes = ist_alloc(capacity, 1);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    if (text->length > 0) {
        memcpy(bytes, text->bytes, text->length);
    }
    ist_free(text->bytes);
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

static void text_put(topo_text *text, const char *bytes, size_t count)
{
    if (text_reserve(text, count)) {
        memcpy(text->bytes + text->length, bytes, count);
        text->length += count;
        text->bytes[text->length] = '\0';
    }
}

void topo_text_add(topo_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    va_list again;
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    if (length < 0) {
        text->failed = true;
    } else if (text_reserve(text, (size_t)length)) {
        (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    va_end(list);
}

void topo_text_add_xml(topo_text *text, const char *value)
{
    for (; *value != '\0'; value++) {
        switch (*value) {
        case '&': text_put(text, "&amp;", 5); break;
        case '<': text_put(text, "&lt;", 4); break;
        case '>': text_put(text, "&gt;", 4); break;
        case '"': text_put(text, "&quot;", 6); break;
        default:
            if ((unsigned char)*value >= 0x20) {
                text_put(text, value, 1);
            } else {
                topo_text_add(text, "&#%d;", *value);
            }
        }
    }
}

/* Bytes of the UTF-8 sequence at `at`, 0 when there is no valid one. */
static size_t utf8_length(const char *at)
{
    unsigned char first = (unsigned char)at[0];
    size_t length = first < 0x80                      ? 1
                    : first >= 0xc2 && first < 0xe0   ? 2
                    : first >= 0xe0 && first < 0xf0   ? 3
                    : first >= 0xf0 && first <= 0xf4u ? 4
                                                      : 0;
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)at[i] & 0xc0u) != 0x80u) {
            return 0;
        }
    }
    unsigned char second = (unsigned char)(length > 1 ? at[1] : 0);
    bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    bool outside = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
    return overlong || outside ? 0 : length;
}

void topo_text_add_json(topo_text *text, const char *value)
{
    text_put(text, "\"", 1);
    for (size_t length; *value != '\0'; value += length) {
        length = utf8_length(value);
        if (length == 0) {
            text_put(text, "?", 1);
            length = 1;
        } else if (*value == '"' || *value == '\\') {
            topo_text_add(text, "\\%c", *value);
        } else if (length == 1 && (unsigned char)*value < 0x20) {
            topo_text_add(text, "\\u%04x", (unsigned)*value);
        } else {
            text_put(text, value, length);
        }
    }
    text_put(text, "\"", 1);
}

/* Appends value / unit with at most two decimals, cut rather than rounded up. */
static void add_decimal(topo_text *text, uint64_t value, uint64_t unit)
{
    uint64_t hundredths = value % unit * 100 / unit;
    topo_text_add(text, "%" PRIu64, value / unit);
    if (hundredths % 10 != 0) {
        topo_text_add(text, ".%02" PRIu64, hundredths);
    } else if (hundredths != 0) {
        topo_text_add(text, ".%" PRIu64, hundredths / 10);
    }
}

void topo_text_add_rate(topo_text *text, uint64_t bytes_per_s)
{
    static const struct {
        uint64_t unit;
        const char *name;
    } units[] = {{1000000000000, "TB/s"}, {1000000000, "GB/s"}, {1000000, "MB/s"}, {1, "B/s"}};
    size_t i = 0;
    while (units[i].unit > 1 && bytes_per_s < units[i].unit) {
        i++;
    }
    add_decimal(text, bytes_per_s, units[i].unit);
    topo_text_add(text, " %s", units[i].name);
}

void topo_text_add_time(topo_text *text, uint64_t ps)
{
    static const struct {
        uint64_t unit;
        const char *name;
    } units[] = {
        {1000000000000, "s"}, {1000000000, "ms"}, {1000000, "us"}, {1000, "ns"}, {1, "ps"}};
    size_t i = 0;
    while (units[i].unit > 1 && ps < units[i].unit) {
        i++;
    }
    add_decimal(text, ps, units[i].unit);
    topo_text_add(text, " %s", units[i].name);
}

static uint32_t column_of(const topo_text *text)
{
    uint32_t column = 0;
    while (column < text->length && text->bytes[text->length - 1 - column] != '\n') {
        column++;
    }
    return column;
}

void topo_text_add_wrapped(topo_text *text, uint32_t width, uint32_t indent, const char *value)
{
    uint32_t column = column_of(text);
    bool first = true; /* of its line */
    while (*value != '\0' && !text->failed) {
        uint32_t length = (uint32_t)strcspn(value, " ");
        if (!first && column + 1 + length > width) {
            topo_text_add(text, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            text_put(text, " ", 1);
            column++;
        }
        text_put(text, value, length);
        column += length;
        first = false;
        value += length;
        value += strspn(value, " ");
    }
}

void topo_text_free(topo_text *text)
{
    ist_free(text->bytes);
    *text = (topo_text){0};
}

ist_status topo_text_status(const topo_text *text, const char *operation)
{
    if (!text->failed) {
        return IST_OK;
    }
    ist_error details = {.size = sizeof(details), .rank = IST_RANK_NONE, .peer = IST_RANK_NONE};
    (void)snprintf(details.operation, sizeof(details.operation), "%s", operation);
    return ist_raise(IST_ERR_MEMORY, &details, "%s: no memory for a text of more than %zu bytes",
                     operation, text->length);
}
