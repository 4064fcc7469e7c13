/* SPDX-License-Identifier: Apache-2.0 */
/* A graph for people: text in 80 columns, pictures as SVG, differences between two.
 */
#ifndef TOPO_SHOW_H
#define TOPO_SHOW_H

#include "topo_choice.h"
#include "topo_text.h"

/* Counts, teams, the tree of the first machines, the matrix of paths, what is missing. */
void topo_show_text(const topo_graph *graph, topo_text *text);

/* The matrix of paths alone: GPUs, then NICs; as many columns as fit into 80. */
void topo_show_matrix(const topo_graph *graph, topo_text *text);

/* Boxes and links of the first machines and the network. `loads` is in thousandths of the busiest,
 * by link, and colours the links; NULL: they are coloured by kind. */
void topo_show_svg(const topo_graph *graph, const uint32_t *loads, const char *title,
                   topo_text *text);

/* The matrix of path types between GPUs as coloured squares, with a legend; at most 256 GPUs. */
void topo_show_heat(const topo_graph *graph, topo_text *text);

/* Loads for topo_show_svg(): every pair that an operation uses sends as much as every other, over
 * the path of its way. loads[topo_link_count()]. */
ist_status topo_operation_loads(const topo_graph *graph, const topo_policy *policy,
                                const char *operation, uint32_t *loads);

/* What differs: one line each, "- " from the first, "+ " in the second. Returns how many. Compares
 * counts, teams, path types of every pair and rates, not how the file writes them. */
uint32_t topo_diff(const topo_graph *first, const topo_graph *second, topo_text *text);

#endif
