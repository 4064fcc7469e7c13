/* SPDX-License-Identifier: Apache-2.0 */
/* Routing tables from files: CSV (a token a line, `#` begins a comment) and NumPy's .npy, versions 1
 * and 2, int32 or int64, little-endian, C order, two dimensions.
 */
#include "cli_routing.h"
#include "cli_text.h"

#include <isthmus/ep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 30)

static _Thread_local char reason_text[200];

#define REFUSE(...) (snprintf(reason_text, sizeof reason_text, __VA_ARGS__), false)

/* ------------------------------------------------------------------------------------ CSV */

/* Reads the numbers of one line, at most `count_max`; 0 for an empty line, -1 for a bad one. */
static int read_line(char *line, int32_t *ids, int count_max)
{
    int count = 0;
    line[strcspn(line, "#\r")] = '\0';
    for (;;) {
        line += strspn(line, " \t,;");
        if (*line == '\0') {
            return count;
        }
        char *end;
        long number = strtol(line, &end, 10);
        if (end == line || strchr(" \t,;", *end) == NULL || number < -1 || number > 65535 ||
            count == count_max) {
            return -1;
        }
        ids[count++] = (int32_t)number;
        line = end;
    }
}

static bool add_row(cli_table *table, size_t *capacity, const int32_t *ids)
{
    size_t used = (size_t)table->row_count * table->column_count;
    if (used + table->column_count > *capacity) {
        size_t grown = 2 * *capacity + 4096;
        int32_t *moved = realloc(table->ids, grown * sizeof *moved);
        if (moved == NULL) {
            return REFUSE("out of memory");
        }
        table->ids = moved;
        *capacity = grown;
    }
    memcpy(table->ids + used, ids, table->column_count * sizeof *ids);
    ++table->row_count;
    return true;
}

static bool read_csv(char *text, cli_table *table)
{
    int32_t ids[IST_EP_TOPK_MAX];
    size_t capacity = 0;
    unsigned line_number = 0;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        ++line_number;
        int count = read_line(line, ids, (int)IST_EP_TOPK_MAX);
        if (count < 0) {
            return REFUSE("line %u: expected up to %u numbers from -1 to 65535", line_number,
                          IST_EP_TOPK_MAX);
        }
        if (count == 0) {
            continue;
        }
        if (table->row_count == 0) {
            table->column_count = (uint32_t)count;
        }
        if (table->column_count != (uint32_t)count) {
            return REFUSE("line %u: %d numbers, but the lines before have %u", line_number, count,
                          table->column_count);
        }
        if (!add_row(table, &capacity, ids)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------------ .npy */

static const unsigned char npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* The header's text, without the bytes before it; *data is where the array begins. */
static bool npy_header(const unsigned char *bytes, size_t count, char *text, size_t capacity,
                       size_t *data)
{
    if (count < 12 || bytes[6] < 1 || bytes[6] > 2) {
        return REFUSE("not a .npy file of version 1 or 2");
    }
    size_t start = bytes[6] == 1 ? 10 : 12;
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] == 2) {
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    }
    if (length >= capacity || start + length > count) {
        return REFUSE("the .npy header is %zu bytes long", length);
    }
    memcpy(text, bytes + start, length);
    text[length] = '\0';
    *data = start + length;
    return true;
}

static bool npy_shape(const char *text, uint64_t *rows, uint64_t *columns)
{
    const char *shape = strstr(text, "'shape':");
    int used = 0;
    unsigned long long a;
    unsigned long long b;
    if (shape == NULL || sscanf(shape, "'shape': (%llu, %llu)%n", &a, &b, &used) != 2 ||
        used == 0) {
        return REFUSE(".npy: the shape has to be (rows, columns)");
    }
    *rows = a;
    *columns = b;
    return true;
}

static bool read_npy(const unsigned char *bytes, size_t count, cli_table *table)
{
    char text[1024];
    size_t data;
    uint64_t rows;
    uint64_t columns;
    if (!npy_header(bytes, count, text, sizeof text, &data) || !npy_shape(text, &rows, &columns)) {
        return false;
    }
    bool wide = strstr(text, "'<i8'") != NULL;
    size_t width = wide ? 8 : 4;
    if ((!wide && strstr(text, "'<i4'") == NULL) ||
        strstr(text, "'fortran_order': False") == NULL) {
        return REFUSE(".npy: expected '<i4' or '<i8' in C order, found %.100s", text);
    }
    if (columns == 0 || columns > IST_EP_TOPK_MAX || rows > (count - data) / width / columns) {
        return REFUSE(".npy: %llu rows of %llu columns (at most %u) do not fit %zu bytes",
                      (unsigned long long)rows, (unsigned long long)columns, IST_EP_TOPK_MAX,
                      count - data);
    }
    table->ids = calloc((size_t)(rows * columns) + 1, sizeof *table->ids);
    if (table->ids == NULL) {
        return REFUSE("out of memory");
    }
    for (uint64_t i = 0; i < rows * columns; ++i) {
        uint64_t value = 0;
        for (size_t b = 0; b < width; ++b) {
            value |= (uint64_t)bytes[data + i * width + b] << (8 * b);
        }
        int64_t number = wide ? (int64_t)value : (int32_t)(uint32_t)value;
        if (number < -1 || number > 65535) {
            return REFUSE(".npy: row %llu holds %lld, not from -1 to 65535",
                          (unsigned long long)(i / columns), (long long)number);
        }
        table->ids[i] = (int32_t)number;
    }
    table->row_count = rows;
    table->column_count = (uint32_t)columns;
    return true;
}

bool cli_table_read(const char *path, cli_table *table, const char **reason)
{
    char *bytes;
    size_t count;
    const char *why;
    cli_table made = {0};
    *reason = reason_text;
    if (!cli_read_file(path, FILE_BYTES_MAX, &bytes, &count, &why)) {
        return REFUSE("cannot read '%s': %s", path, why);
    }
    bool npy = count >= sizeof npy_magic && memcmp(bytes, npy_magic, sizeof npy_magic) == 0;
    bool good = npy ? read_npy((const unsigned char *)bytes, count, &made) : read_csv(bytes, &made);
    free(bytes);
    if (good && made.row_count == 0) {
        good = REFUSE("'%s' holds no row", path);
    }
    if (!good) {
        free(made.ids);
        return false;
    }
    *table = made;
    return true;
}
