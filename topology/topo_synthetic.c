/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic strings are given to hwloc only after they have been read here and written anew: hwloc
 * builds whatever number it finds, in any notation, and ends the program on some lists of indexes.
 *
 *   string = item { " " item }
 *   item   = "[" name [ attributes ] "]" | name ":" count [ attributes ]
 *   attributes = "(" key "=" value { " " key "=" value } ")"; indexes are passed over
 */
#include "topo_synthetic.h"
#include "topo_error.h"
#include "topo_live.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPERATION "topology.synthetic"
#define SYNTHETIC_BYTES 1024u
#ifndef SYNTHETIC_MAX
#define SYNTHETIC_MAX 4096u /* objects of all levels together */
#endif

typedef struct rewriter {
    const char *text, *at;
    char clean[SYNTHETIC_BYTES]; /* never longer than the text */
    size_t length;
    uint64_t width, sum; /* objects of the level, of all levels */
    bool indexes, counted;
} rewriter;

static ist_status refuse(const rewriter *self, const char *expected)
{
    return topo_error_at(IST_ERR_PARSE, OPERATION, "synthetic", 0, "position %zu: expected %s",
                         (size_t)(self->at - self->text) + 1, expected);
}

static void keep(rewriter *self, size_t count)
{
    memcpy(self->clean + self->length, self->at, count);
    self->length += count;
    self->at += count;
}

static bool take(rewriter *self, char c)
{
    bool there = *self->at == c;
    if (there) {
        keep(self, 1);
    }
    return there;
}

static size_t word_length(const char *at)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return *at != '\0' && strchr(letters, *at) != NULL ? strspn(at, all) : 0;
}

/* A number with a unit, as 64GB. */
static size_t value_length(const char *at)
{
    size_t digits = strspn(at, "0123456789");
    return digits == 0 || digits > 15 ? 0 : digits + word_length(at + digits);
}

static ist_status attribute_read(rewriter *self)
{
    static const char *const keys[] = {"size=", "memory=", "memorysidecachesize="};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        size_t length = strlen(keys[i]);
        if (strncmp(self->at, keys[i], length) == 0) {
            size_t value = value_length(self->at + length);
            keep(self, length);
            if (value == 0) {
                return refuse(self, "a number, with a unit or without");
            }
            keep(self, value);
            return IST_OK;
        }
    }
    if (strncmp(self->at, "indexes=", 8) != 0) {
        return refuse(self, "size=, memory=, memorysidecachesize= or indexes=");
    }
    self->at += strcspn(self->at, " )");
    self->indexes = true;
    return IST_OK;
}

static ist_status attributes_read(rewriter *self)
{
    if (!take(self, '(')) {
        return IST_OK;
    }
    do {
        IST_RETURN_IF_ERROR(attribute_read(self));
    } while (take(self, ' '));
    return take(self, ')') ? IST_OK : refuse(self, "a blank or )");
}

static ist_status count_read(rewriter *self)
{
    size_t digits = strspn(self->at, "0123456789");
    if (digits == 0 || *self->at == '0') {
        return refuse(self, "a decimal count of at least 1");
    }
    uint64_t number = digits > 9 ? UINT64_MAX : strtoull(self->at, NULL, 10);
    if (number > SYNTHETIC_MAX / self->width) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, "synthetic", 0,
                             "asks for more than %u objects", SYNTHETIC_MAX);
    }
    self->width *= number;
    self->counted = true;
    keep(self, digits);
    return IST_OK;
}

static ist_status item_read(rewriter *self)
{
    bool memory = take(self, '[');
    size_t name = word_length(self->at);
    if (name == 0) {
        return refuse(self, "the type of an object");
    }
    keep(self, name);
    if (!memory) {
        if (!take(self, ':')) {
            return refuse(self, ": and a count");
        }
        IST_RETURN_IF_ERROR(count_read(self));
    }
    IST_RETURN_IF_ERROR(attributes_read(self));
    if (memory && !take(self, ']')) {
        return refuse(self, "]");
    }
    self->sum += self->width;
    return self->sum <= SYNTHETIC_MAX
               ? IST_OK
               : topo_error_at(IST_ERR_PARSE, OPERATION, "synthetic", 0,
                               "asks for more than %u objects of all levels", SYNTHETIC_MAX);
}

static ist_status rewrite(rewriter *self)
{
    if (strlen(self->text) >= SYNTHETIC_BYTES) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, "synthetic", 0, "more than %u characters",
                             SYNTHETIC_BYTES - 1);
    }
    do {
        IST_RETURN_IF_ERROR(item_read(self));
    } while (take(self, ' '));
    self->clean[self->length] = '\0';
    /* hwloc refuses memory alone, too, and loses what it had read. */
    return *self->at != '\0' ? refuse(self, "a blank")
           : self->counted   ? IST_OK
                             : refuse(self, "a level with a count, as pu:4");
}

ist_status topo_synthetic_read(const char *text, topo_graph *graph)
{
    const char *first = text + strspn(text, " \t\r\n");
    rewriter self = {.text = text, .at = first, .width = 1};
    IST_RETURN_IF_ERROR(rewrite(&self));
    if (self.indexes) {
        IST_RETURN_IF_ERROR(topo_missing_add(graph, "numbers of objects",
                                             "indexes of synthetic strings are not read; objects "
                                             "are numbered in order"));
    }
    return topo_hwloc_take(self.clean, graph);
}

bool topo_is_synthetic(const char *text)
{
    static const char *const types[] = {"pack", "socket", "numa", "group", "die", "core", "pu",
                                        "l1",   "l2",     "l3",   "l4",    "l5",  "mach", "["};
    text += strspn(text, " \t\r\n");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t length = strlen(types[i]);
        if (strncasecmp(text, types[i], length) == 0) {
            size_t word = strcspn(text, ":= ");
            return types[i][0] == '[' || text[word] == ':';
        }
    }
    return false;
}
