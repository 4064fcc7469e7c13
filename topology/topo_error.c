/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of errors that belong to a place in a file.
 */
#include "topo_error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_BYTES 256

static void details_begin(ist_error *details, const char *object, const char *operation)
{
    *details = (ist_error){.size = sizeof(*details), .rank = IST_RANK_NONE, .peer = IST_RANK_NONE};
    (void)snprintf(details->object, sizeof(details->object), "%s", object);
    (void)snprintf(details->operation, sizeof(details->operation), "%s", operation);
}

ist_status topo_error_memory(const char *operation, const char *what)
{
    ist_error details;
    details_begin(&details, "memory", operation);
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for %s", what);
}

ist_status topo_error_at(ist_status status, const char *operation, const char *name, uint64_t line,
                         const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    ist_error details;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, list);
    va_end(list);
    details_begin(&details, "topology", operation);
    details.observed = line;
    /* The end of a path says more than its beginning, and the sentence needs the room. */
    size_t length = strlen(name);
    const char *shown = length > 60 ? name + length - 60 : name;
    if (line == 0) {
        return ist_raise(status, &details, "%s: %s", shown, sentence);
    }
    return ist_raise(status, &details, "%s:%" PRIu64 ": %s", shown, line, sentence);
}

const char *topo_quote(const char *text, char quoted[TOPO_QUOTE_BYTES])
{
    size_t i = 0;
    for (; i < TOPO_QUOTE_BYTES - 1 && text[i] != '\0'; i++) {
        quoted[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    if (i == TOPO_QUOTE_BYTES - 1) {
        memcpy(quoted + i - 3, "...", 3);
    }
    quoted[i] = '\0';
    return quoted;
}
