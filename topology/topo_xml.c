/* SPDX-License-Identifier: Apache-2.0 */
/* Expat into a tree. Every limit is checked where the element, attribute or text arrives, so that a
 * hostile file is given up at that line.
 */
#include "topo_xml.h"
#include "topo_error.h"

#include <expat.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define OPERATION "topology.xml"
#define ELEMENTS_MAX 1000000u
#define ATTRS_MAX 64u
#define DEPTH_MAX 128u
#define TEXT_MAX ((size_t)1 << 20) /* of one element */

typedef struct reader {
    topo_document *document;
    XML_Parser expat;
    uint64_t line_first; /* lines that were skipped before the document */
    uint32_t depth;
    topo_element *open[DEPTH_MAX];
    topo_element *last[DEPTH_MAX]; /* last child of open[i], so that appending is quick */
    char *text;                    /* of the innermost element that is open */
    size_t text_length;
    size_t text_room;
    ist_status status;
} reader;

/* ------------------------------------------------------------------------------- expat's memory */

/* Expat wants realloc; the library's allocator has none, so the size stands before each piece. */
typedef union piece {
    size_t bytes;
    max_align_t align;
} piece;

static void *expat_take(size_t bytes)
{
    piece *made = bytes <= SIZE_MAX - sizeof(piece) ? ist_alloc(1, sizeof(piece) + bytes) : NULL;
    if (made == NULL) {
        return NULL;
    }
    made->bytes = bytes;
    return made + 1;
}

static void expat_free(void *memory)
{
    if (memory != NULL) {
        ist_free((piece *)memory - 1);
    }
}

static void *expat_resize(void *memory, size_t bytes)
{
    void *larger = expat_take(bytes);
    if (larger == NULL || memory == NULL) {
        return larger;
    }
    size_t before = ((piece *)memory - 1)->bytes;
    memcpy(larger, memory, before < bytes ? before : bytes);
    expat_free(memory);
    return larger;
}

static const XML_Memory_Handling_Suite expat_memory = {expat_take, expat_resize, expat_free};

/* ------------------------------------------------------------------------------------ handlers */

static uint64_t line_now(const reader *self)
{
    return self->line_first + (uint64_t)XML_GetCurrentLineNumber(self->expat);
}

static void give_up(reader *self, const char *reason)
{
    if (self->status == IST_OK) {
        self->status = topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, line_now(self),
                                     "%s", reason);
        (void)XML_StopParser(self->expat, XML_FALSE);
    }
}

static void give_up_memory(reader *self)
{
    if (self->status == IST_OK) {
        self->status = topo_error_memory(OPERATION, "the elements of a file");
        (void)XML_StopParser(self->expat, XML_FALSE);
    }
}

/* Hands the text collected to the innermost element. Only elements without children have text: what
 * stands between children is layout. */
static void text_settle(reader *self)
{
    topo_element *element = self->open[self->depth - 1];
    if (self->text_length > 0 && element->child == NULL) {
        element->text = topo_arena_copy(&self->document->arena, self->text, self->text_length);
        if (element->text == NULL) {
            give_up_memory(self);
        }
    }
    self->text_length = 0;
}

static const char *const *attrs_copy(reader *self, const XML_Char **attrs)
{
    size_t count = 0;
    while (attrs[count] != NULL) {
        count++;
    }
    if (count / 2 > ATTRS_MAX) {
        give_up(self, "an element with more than 64 attributes");
        return NULL;
    }
    const char **copies = topo_arena_take(&self->document->arena, (count + 1) * sizeof(*copies));
    for (size_t i = 0; copies != NULL && i < count; i++) {
        copies[i] = topo_arena_copy(&self->document->arena, attrs[i], strlen(attrs[i]));
        if (copies[i] == NULL) {
            copies = NULL;
        }
    }
    if (copies == NULL) {
        give_up_memory(self);
    }
    return copies;
}

static void element_place(reader *self, topo_element *element)
{
    if (self->depth == 0) {
        self->document->root = element;
    } else if (self->last[self->depth - 1] == NULL) {
        self->open[self->depth - 1]->child = element;
    } else {
        self->last[self->depth - 1]->next = element;
    }
    if (self->depth > 0) {
        self->last[self->depth - 1] = element;
    }
    self->open[self->depth] = element;
    self->last[self->depth] = NULL;
    self->depth++;
}

static void XMLCALL element_begin(void *context, const XML_Char *name, const XML_Char **attrs)
{
    reader *self = context;
    if (self->status != IST_OK) {
        return;
    }
    if (self->depth >= DEPTH_MAX) {
        give_up(self, "elements nested more than 128 deep");
        return;
    }
    if (++self->document->element_count > ELEMENTS_MAX) {
        give_up(self, "more than 1000000 elements");
        return;
    }
    self->text_length = 0;
    topo_element *element = topo_arena_take(&self->document->arena, sizeof(*element));
    if (element == NULL) {
        give_up_memory(self);
        return;
    }
    element->line = line_now(self);
    element->text = "";
    element->name = topo_arena_copy(&self->document->arena, name, strlen(name));
    element->attrs = element->name != NULL ? attrs_copy(self, attrs) : NULL;
    if (element->attrs == NULL) {
        give_up_memory(self);
        return;
    }
    element_place(self, element);
}

static void XMLCALL element_end(void *context, const XML_Char *name)
{
    reader *self = context;
    (void)name;
    if (self->status == IST_OK && self->depth > 0) {
        text_settle(self);
        self->depth--;
    }
}

static void text_grow(reader *self, size_t more)
{
    size_t room = self->text_room == 0 ? 4096 : self->text_room;
    while (room < self->text_length + more) {
        room *= 2;
    }
    char *larger = ist_alloc(room, 1);
    if (larger == NULL) {
        give_up_memory(self);
        return;
    }
    if (self->text_length > 0) {
        memcpy(larger, self->text, self->text_length);
    }
    ist_free(self->text);
    self->text = larger;
    self->text_room = room;
}

static void XMLCALL text_part(void *context, const XML_Char *part, int length)
{
    reader *self = context;
    bool blank = true;
    for (int i = 0; i < length && blank; i++) {
        blank = strchr(" \t\r\n", part[i]) != NULL && part[i] != '\0';
    }
    if (self->status != IST_OK || (blank && self->text_length == 0)) {
        return;
    }
    if (self->text_length + (size_t)length > TEXT_MAX) {
        give_up(self, "more than 1 MiB of text in one element");
        return;
    }
    if (self->text_length + (size_t)length > self->text_room) {
        text_grow(self, (size_t)length);
    }
    if (self->status == IST_OK) {
        memcpy(self->text + self->text_length, part, (size_t)length);
        self->text_length += (size_t)length;
    }
}

static void XMLCALL entity_declared(void *context, const XML_Char *name, int is_parameter,
                                    const XML_Char *value, int value_length, const XML_Char *base,
                                    const XML_Char *system_id, const XML_Char *public_id,
                                    const XML_Char *notation)
{
    reader *self = context;
    (void)name;
    (void)is_parameter;
    (void)value;
    (void)value_length;
    (void)base;
    (void)system_id;
    (void)public_id;
    (void)notation;
    give_up(self, "entity declarations are not read");
}

/* ------------------------------------------------------------------------------------ reading */

static void parse(reader *self, const char *bytes, size_t count)
{
    XML_SetUserData(self->expat, self);
    XML_SetElementHandler(self->expat, element_begin, element_end);
    XML_SetCharacterDataHandler(self->expat, text_part);
    XML_SetEntityDeclHandler(self->expat, entity_declared);
    enum XML_Status parsed = XML_Parse(self->expat, bytes, (int)count, 1);
    if (self->status != IST_OK || parsed == XML_STATUS_OK) {
        return;
    }
    enum XML_Error code = XML_GetErrorCode(self->expat);
    if (code == XML_ERROR_NO_MEMORY) {
        self->status = topo_error_memory(OPERATION, "the XML parser");
        return;
    }
    self->status = topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, line_now(self),
                                 "not XML: %s", XML_ErrorString(code));
}

/* Files kept by hand begin with blank lines, which XML does not allow before its declaration. */
static size_t blank_skip(const char *bytes, size_t count, uint64_t *lines)
{
    size_t at = 0;
    if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) {
        at = 3;
    }
    for (; at < count && strchr(" \t\r\n", bytes[at]) != NULL && bytes[at] != '\0'; at++) {
        *lines += bytes[at] == '\n';
    }
    return at;
}

ist_status topo_xml_parse(const char *bytes, size_t count, const char *name,
                          topo_document *document)
{
    topo_document made = {.name = name};
    reader self = {.document = &made};
    if (count > TOPO_FILE_BYTES_MAX) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, name, 0, "more than 64 MiB");
    }
    size_t skipped = blank_skip(bytes, count, &self.line_first);
    self.expat = XML_ParserCreate_MM(NULL, &expat_memory, NULL);
    if (self.expat == NULL) {
        return topo_error_memory(OPERATION, "the XML parser");
    }
    parse(&self, bytes + skipped, count - skipped);
    XML_ParserFree(self.expat);
    ist_free(self.text);
    if (self.status != IST_OK) {
        topo_arena_free(&made.arena);
        return self.status;
    }
    *document = made;
    return IST_OK;
}

void topo_xml_free(topo_document *document)
{
    topo_arena_free(&document->arena);
    document->root = NULL;
}

const char *topo_xml_attr(const topo_element *element, const char *key)
{
    for (const char *const *at = element->attrs; *at != NULL; at += 2) {
        if (strcmp(at[0], key) == 0) {
            return at[1];
        }
    }
    return NULL;
}

static topo_element *named(topo_element *element, const char *name)
{
    while (element != NULL && strcmp(element->name, name) != 0) {
        element = element->next;
    }
    return element;
}

topo_element *topo_xml_child(const topo_element *element, const char *name)
{
    return named(element->child, name);
}

topo_element *topo_xml_next(const topo_element *element, const char *name)
{
    return named(element->next, name);
}
