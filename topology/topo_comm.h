/* SPDX-License-Identifier: Apache-2.0 */
/* What a backend formed for a communicator, held against what the topology says it could.
 */
#ifndef TOPO_COMM_H
#define TOPO_COMM_H

#include "topo_choice.h"
#include "topo_cluster.h"
#include "topo_text.h"

/* What every pair of a communicator uses: load and store inside a team, one way between teams. */
typedef struct topo_formed {
    uint32_t rank_count;
    uint32_t lsa_size;
    topo_gin gin;           /* between teams; NONE: the hosts copy, or nobody does */
    const char *gin_reason; /* NULL, or why there is no GIN; static text */
} topo_formed;

typedef struct topo_report {
    topo_formed predicted;
    uint32_t difference_count; /* of load/store teams and GIN */
    uint32_t peer;             /* first rank that rank 0 reaches another way; TOPO_NONE */
    topo_choice choice;        /* predicted for it */
} topo_report;

/* The choice for all ranks of a cluster that a line describes, without its graph: what topo_choose()
 * says of each pair of the graph. `world_ranks` as for ist_cluster_lsa_size(). */
topo_formed topo_cluster_choose(const ist_cluster *cluster, const uint32_t *world_ranks,
                                uint32_t rank_count, uint32_t lsa_max);

/* The choice for all ranks of a policy. */
topo_formed topo_comm_predict(const topo_graph *graph, const topo_policy *policy);

/* Compares; `found` may be of some of the policy's ranks only when they are on other machines:
 * `part` then says that teams have to divide the predicted ones, no more. */
void topo_comm_compare(const topo_graph *graph, const topo_policy *policy, const topo_formed *found,
                       bool part, topo_report *report);

/* One line that names both answers, for people. */
void topo_comm_say(const topo_graph *graph, const topo_formed *found, const topo_report *report,
                   topo_text *text);

#endif
