/* SPDX-License-Identifier: Apache-2.0 */
/* XML files as a tree of elements, read by expat within limits: no entity declarations, bounded
 * size, depth, elements and attributes. What strangers send can cost little and never more.
 */
#ifndef TOPO_XML_H
#define TOPO_XML_H

#include "topo_arena.h"

#include <isthmus/status.h>
#include <stddef.h>
#include <stdint.h>

#define TOPO_FILE_BYTES_MAX ((size_t)64 << 20)

typedef struct topo_element topo_element;

struct topo_element {
    const char *name;
    const char *text;         /* character data, in one piece; "" without */
    const char *const *attrs; /* key, value, key, value, …, NULL */
    topo_element *child;      /* first */
    topo_element *next;       /* next of the same parent */
    uint64_t line;
};

typedef struct topo_document {
    topo_arena arena;
    topo_element *root;
    const char *name; /* of the file, for messages; belongs to the caller */
    uint64_t element_count;
} topo_document;

/* Reads a whole document. `name` says in messages where it comes from and has to live as long as
 * the document. IST_ERR_PARSE naming line and reason; IST_ERR_MEMORY. Free it only after
 * success. */
ist_status topo_xml_parse(const char *bytes, size_t count, const char *name,
                          topo_document *document);
void topo_xml_free(topo_document *document);

/* Value of an attribute, or NULL. */
const char *topo_xml_attr(const topo_element *element, const char *key);

/* First child, or next sibling, of a name; NULL when there is none. */
topo_element *topo_xml_child(const topo_element *element, const char *name);
topo_element *topo_xml_next(const topo_element *element, const char *name);

#endif
