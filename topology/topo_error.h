/* SPDX-License-Identifier: Apache-2.0 */
/* How everything in this folder says what is wrong: the sentence of an error, with the line of the
 * file or the position in the line.
 */
#ifndef TOPO_ERROR_H
#define TOPO_ERROR_H

#include <isthmus/backend.h>

/* Records IST_ERR_MEMORY for `what`. */
ist_status topo_error_memory(const char *operation, const char *what);

/* Records an error of a file: "NAME:LINE: sentence". `line` 0: the file as a whole. */
ist_status topo_error_at(ist_status status, const char *operation, const char *name, uint64_t line,
                         const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Copies text of a stranger for a message: cut to fit and without control characters. */
#define TOPO_QUOTE_BYTES 48
const char *topo_quote(const char *text, char quoted[TOPO_QUOTE_BYTES]);

#endif
