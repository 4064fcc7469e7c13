/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows, for what the writers make. After a failed allocation or past the limit
 * `failed` stays set and appending does nothing.
 */
#ifndef TOPO_TEXT_H
#define TOPO_TEXT_H

#include <isthmus/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct topo_text {
    char *bytes; /* NULL until something is appended, then ends in NUL */
    size_t length;
    size_t capacity;
    bool failed;
} topo_text;

void topo_text_add(topo_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends with &, <, >, " and control characters as XML wants them. */
void topo_text_add_xml(topo_text *text, const char *value);

/* Appends a string of JSON, quotes included. Bytes that are no UTF-8 become '?'. */
void topo_text_add_json(topo_text *text, const char *value);

/* Appends a rate or time as people read it: "450 GB/s", "2.5 us". */
void topo_text_add_rate(topo_text *text, uint64_t bytes_per_s);
void topo_text_add_time(topo_text *text, uint64_t ps);

/* Appends words of `value` wrapped at `width` columns, each line after the first indented by
 * `indent`. The current line is taken to begin after the last newline. */
void topo_text_add_wrapped(topo_text *text, uint32_t width, uint32_t indent, const char *value);

void topo_text_free(topo_text *text);

/* IST_OK, or IST_ERR_MEMORY recorded for `operation`. */
ist_status topo_text_status(const topo_text *text, const char *operation);

#endif
