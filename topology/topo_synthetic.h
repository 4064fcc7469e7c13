/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc's synthetic strings, as "pack:2 [numa(memory=64GB)] core:8 pu:2".
 */
#ifndef TOPO_SYNTHETIC_H
#define TOPO_SYNTHETIC_H

#include "topo_graph.h"

/* Reads a synthetic string. Not sealed. IST_ERR_PARSE names the position. */
ist_status topo_synthetic_read(const char *text, topo_graph *graph);

/* Whether a text looks like a synthetic string rather than a cluster line. */
bool topo_is_synthetic(const char *text);

#endif
