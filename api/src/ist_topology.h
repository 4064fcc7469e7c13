/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of topologies share.
 */
#ifndef IST_TOPOLOGY_H
#define IST_TOPOLOGY_H

#include "ist_internal.h"

#include "cost_graph.h"
#include "topo_comm.h"

#include <isthmus/unstable/topology.h>

struct ist_topology {
    topo_graph *graph;
};

/* Checks a policy. `able` is where the machine's answers are kept for as long as `taken` is used. */
ist_status ist_topology_policy_take(const topo_graph *graph, const ist_topology_policy *policy,
                                    const char *operation, topo_policy *taken, topo_able *able);

ist_topology_comparison ist_topology_tell(const topo_formed *found, const topo_report *report);

/* One line at level warn. */
void ist_topology_warn(const topo_graph *graph, const topo_formed *found,
                       const topo_report *report);

/* What the machines are like that an open communicator runs on; the usual ones from a backend that does
 * not say. */
ist_status ist_comm_links(ist_comm *comm, const char *operation, cost_machine *machine,
                          cost_profile *links);

#endif
