/* SPDX-License-Identifier: Apache-2.0 */
/* Explanations in words, for people, in 80 columns: a pair of ranks, a communicator, an operation.
 */
#ifndef TOPO_EXPLAIN_H
#define TOPO_EXPLAIN_H

#include "topo_choice.h"
#include "topo_text.h"

/* Path, way, numbers, reason, what is missing for better, how to get another. */
void topo_explain_pair(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                       uint32_t rank_b, topo_text *text);

/* Teams, ways and how many pairs take them, NICs, whether GIN is there and why not, what is
 * missing. */
void topo_explain_comm(const topo_graph *graph, const topo_policy *policy, topo_text *text);

/* Which pairs an operation uses and over which ways, and its narrowest link. False: `operation` is
 * unknown; the text then lists those that are known. */
bool topo_explain_operation(const topo_graph *graph, const topo_policy *policy,
                            const char *operation, topo_text *text);

/* Whether ranks a < b of `count` exchange data in an operation, with teams of `lsa`. */
bool topo_operation_uses(const char *operation, uint32_t a, uint32_t b, uint32_t count,
                         uint32_t lsa);

/* Appends "GPU 3, H200 0000:1b:00.0 in node0". */
void topo_explain_gpu(const topo_graph *graph, uint32_t gpu, topo_text *text);

#endif
