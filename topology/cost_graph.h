/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model's view of a topology graph, or of anything that becomes one.
 */
#ifndef COST_GRAPH_H
#define COST_GRAPH_H

#include "cost_profile.h"
#include "topo_cluster.h"
#include "topo_graph.h"

/* From a cluster's line; sets no operations in `links`. */
void cost_of_cluster(const ist_cluster *cluster, cost_machine *machine, cost_profile *links);

/* The constants of a profile in place of the cluster's own, as far as it has them. */
void cost_to_cluster(const cost_profile *profile, ist_cluster *cluster);

/* From a sealed graph. Its machines have to be alike in what the model knows: GPUs, NICs that GPUs
 * use, NVLink domains. Rates are those of the first GPU and NIC. IST_ERR_UNSUPPORTED names what
 * differs. */
ist_status cost_of_graph(const topo_graph *graph, cost_machine *machine, cost_profile *links);

/* `source`: a cluster's line, or what topo_load() takes: a file, "live". NULL: the default
 * cluster. */
ist_status cost_of_source(const char *source, cost_machine *machine, cost_profile *links);

#endif
