/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants: parents before children, each kind where it can be, links between ends that can have
 * them, rates and latencies in bounds, no bus id and no link twice, domains that hold.
 */
#ifndef TOPO_CHECK_H
#define TOPO_CHECK_H

#include "topo_graph.h"

/* Checks a sealed graph. IST_ERR_PARSE naming the node or link and what is wrong with it. */
ist_status topo_check(const topo_graph *graph);

#endif
