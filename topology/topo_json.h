/* SPDX-License-Identifier: Apache-2.0 */
/* The graph as JSON, with nothing lost; and the machine of a profile (profile.md).
 */
#ifndef TOPO_JSON_H
#define TOPO_JSON_H

#include "topo_graph.h"
#include "topo_text.h"

/* Writes a sealed graph: stable text, one node or link a line. */
void topo_json_write(const topo_graph *graph, topo_text *text);

/* Reads what topo_json_write() wrote, or a profile: one machine with the measured numbers. Not
 * sealed. IST_ERR_PARSE naming line and column, or the element and key. */
ist_status topo_json_read(const char *bytes, size_t count, const char *name, topo_graph *graph);

#endif
