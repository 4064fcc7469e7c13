/* SPDX-License-Identifier: Apache-2.0 */
/* NVLink domains, load/store teams, which NIC a GPU uses, rails.
 */
#include "topo_graph_internal.h"
#include "topo_error.h"

#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.teams"

/* ------------------------------------------------------------------------------------ domains */

static bool joins(const topo_graph *graph, uint32_t link, topo_kind far_kind, uint32_t far)
{
    const topo_link *found = &graph->links[link];
    return found->health != TOPO_DOWN && graph->nodes[far].kind == far_kind &&
           (found->kind == TOPO_LINK_NVLINK || found->kind == TOPO_LINK_XGMI);
}

/* Whether a GPU has a direct link to every GPU of a domain so far. */
static bool knows_all(const topo_graph *graph, uint32_t gpu, uint32_t domain, uint32_t size)
{
    uint32_t known = 0;
    uint32_t degree = topo_degree(graph, gpu);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t link = topo_link_of(graph, gpu, i);
        uint32_t far = topo_other(graph, link, gpu);
        known += joins(graph, link, TOPO_GPU, far) && graph->nodes[far].domain == domain;
    }
    return known == size;
}

/* The domain of a switch the GPU is linked to, else one whose GPUs it is linked to one by one. */
static uint32_t domain_for(const topo_graph *graph, uint32_t gpu, const uint32_t *sizes)
{
    uint32_t degree = topo_degree(graph, gpu);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t link = topo_link_of(graph, gpu, i);
        uint32_t far = topo_other(graph, link, gpu);
        if (joins(graph, link, TOPO_NVSWITCH, far) && graph->nodes[far].domain != TOPO_NONE) {
            return graph->nodes[far].domain;
        }
    }
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t link = topo_link_of(graph, gpu, i);
        uint32_t far = topo_other(graph, link, gpu);
        if (joins(graph, link, TOPO_GPU, far) && graph->nodes[far].domain != TOPO_NONE &&
            knows_all(graph, gpu, graph->nodes[far].domain, sizes[graph->nodes[far].domain])) {
            return graph->nodes[far].domain;
        }
    }
    return TOPO_NONE;
}

static void switch_claim(topo_graph *graph, uint32_t node, uint32_t domain)
{
    if (graph->nodes[node].domain == TOPO_NONE) {
        graph->nodes[node].domain = domain;
    }
}

/* The switches of a GPU, and those linked to them, are its domain's. */
static void switches_claim(topo_graph *graph, uint32_t gpu, uint32_t domain)
{
    uint32_t degree = topo_degree(graph, gpu);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t link = topo_link_of(graph, gpu, i);
        uint32_t far = topo_other(graph, link, gpu);
        if (!joins(graph, link, TOPO_NVSWITCH, far)) {
            continue;
        }
        switch_claim(graph, far, domain);
        uint32_t others = graph->switch_links > 0 ? topo_degree(graph, far) : 0;
        for (uint32_t j = 0; j < others; j++) {
            uint32_t across = topo_link_of(graph, far, j);
            uint32_t beside = topo_other(graph, across, far);
            if (joins(graph, across, TOPO_NVSWITCH, beside)) {
                switch_claim(graph, beside, domain);
            }
        }
    }
}

/* In rank order a GPU joins the first domain in which it reaches every member, else begins one. */
ist_status topo_domains_find(topo_graph *graph)
{
    uint32_t gpus = topo_gpu_count(graph);
    uint32_t *sizes = ist_alloc(gpus > 0 ? gpus : 1, sizeof(*sizes));
    if (sizes == NULL) {
        return topo_error_memory(OPERATION, "NVLink domains");
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].kind == TOPO_GPU || graph->nodes[i].kind == TOPO_NVSWITCH) {
            graph->nodes[i].domain = TOPO_NONE;
        }
    }
    graph->domain_count = 0;
    for (uint32_t i = 0; i < gpus; i++) {
        uint32_t gpu = topo_gpu(graph, i);
        uint32_t domain = domain_for(graph, gpu, sizes);
        if (domain == TOPO_NONE) {
            domain = graph->domain_count++;
        }
        graph->nodes[gpu].domain = domain;
        sizes[domain]++;
        switches_claim(graph, gpu, domain);
    }
    ist_free(sizes);
    return IST_OK;
}

uint32_t topo_domain_count(const topo_graph *graph)
{
    return graph->domain_count;
}

bool topo_same_domain(const topo_graph *graph, uint32_t gpu_a, uint32_t gpu_b)
{
    return graph->nodes[gpu_a].domain == graph->nodes[gpu_b].domain;
}

/* ------------------------------------------------------------------------------------ LSA */

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The attribute lists the numbers of the GPUs that may be reached, as "1 2 3". */
topo_peer topo_peer_access(const topo_graph *graph, uint32_t gpu_a, uint32_t gpu_b)
{
    const char *list = topo_attr_get(graph, gpu_a, "p2p");
    uint64_t wanted = graph->nodes[gpu_b].number;
    if (list == NULL || graph->nodes[gpu_a].machine != graph->nodes[gpu_b].machine) {
        return TOPO_PEER_UNKNOWN;
    }
    while (*list != '\0') {
        char *end = NULL;
        if (strtoull(list, &end, 10) == wanted && end != list) {
            return TOPO_PEER_ALLOWED;
        }
        list = end == list ? list + 1 : end;
    }
    return TOPO_PEER_REFUSED;
}

static bool reaches(const topo_graph *graph, uint32_t a, uint32_t b, topo_path_type pcie_max)
{
    if (a != b && topo_peer_access(graph, a, b) == TOPO_PEER_REFUSED) {
        return false;
    }
    if (a == b || topo_same_domain(graph, a, b)) {
        return true;
    }
    return pcie_max > TOPO_PATH_NVL && graph->nodes[a].machine == graph->nodes[b].machine &&
           topo_path_type_of(graph, a, b) <= pcie_max;
}

/* Whether a rank reaches all of the run that began at `first`. Within a domain one answer is
 * enough; over PCIe a later member may be farther away than its neighbour. */
static bool continues(const topo_graph *graph, const uint32_t *ranks, uint32_t first, uint32_t rank,
                      topo_path_type pcie_max)
{
    uint32_t self = topo_gpu(graph, ranks != NULL ? ranks[rank] : rank);
    bool all = pcie_max > TOPO_PATH_NVL || topo_attr_get(graph, self, "p2p") != NULL;
    uint32_t last = all ? rank : first + 1;
    for (uint32_t i = first; i < last; i++) {
        if (!reaches(graph, topo_gpu(graph, ranks != NULL ? ranks[i] : i), self, pcie_max)) {
            return false;
        }
    }
    return true;
}

uint32_t topo_lsa_size(const topo_graph *graph, const uint32_t *ranks, uint32_t rank_count,
                       uint32_t limit, topo_path_type pcie_max)
{
    uint32_t size = limit;
    uint32_t first = 0;
    for (uint32_t i = 1; i < rank_count; i++) {
        if (!continues(graph, ranks, first, i, pcie_max)) {
            size = common_divisor(size, i - first);
            first = i;
        }
    }
    return common_divisor(size, rank_count - first);
}

/* ------------------------------------------------------------------------------------ NICs */

static bool nic_is_up(const topo_graph *graph, uint32_t nic)
{
    uint32_t degree = topo_degree(graph, nic);
    for (uint32_t i = 0; i < degree; i++) {
        if (graph->links[topo_link_of(graph, nic, i)].health == TOPO_DOWN) {
            return false;
        }
    }
    const char *state = topo_attr_get(graph, nic, "state");
    return state == NULL || strcmp(state, "down") != 0;
}

static bool is_below(const topo_graph *graph, uint32_t node, uint32_t above)
{
    while (node != TOPO_NONE && node > above) {
        node = graph->nodes[node].parent; /* parents have lower numbers */
    }
    return node == above;
}

/* The NICs of the best type among those below a node. */
static uint32_t nics_below(const topo_graph *graph, uint32_t gpu, uint32_t above, uint32_t *nics,
                           uint32_t capacity, topo_path_type *type)
{
    uint32_t found = 0;
    uint32_t first = 0;
    uint32_t machine = graph->nodes[graph->nodes[gpu].machine].index;
    uint32_t count = topo_machine_nics(graph, machine, &first);
    *type = TOPO_PATH_NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t nic = graph->machine_nics[first + i];
        if (!is_below(graph, nic, above) || !nic_is_up(graph, nic)) {
            continue;
        }
        topo_path_type its = topo_path_near_type(graph, gpu, nic);
        if (its >= TOPO_PATH_NET || its > *type) {
            continue;
        }
        found = its < *type ? 0 : found;
        *type = its;
        if (found < capacity) {
            nics[found] = nic;
        }
        found++;
    }
    return found;
}

/* A NIC below a nearer common ancestor is never of a worse type, so the search goes up only until
 * something is found; links beside the tree make it begin at the machine. */
uint32_t topo_gpu_nics(const topo_graph *graph, uint32_t gpu, uint32_t *nics, uint32_t capacity,
                       topo_path_type *type)
{
    topo_path_type best = TOPO_PATH_NONE;
    uint32_t found = 0;
    uint32_t machine = graph->nodes[gpu].machine;
    uint32_t above = graph->peer_links > 0 ? machine : graph->nodes[gpu].parent;
    while (machine != TOPO_NONE && above != TOPO_NONE && found == 0) {
        found =
            graph->nics_in[above] > 0 ? nics_below(graph, gpu, above, nics, capacity, &best) : 0;
        above = graph->nodes[above].parent;
    }
    if (type != NULL) {
        *type = best;
    }
    return found;
}

uint32_t topo_gpu_nic(const topo_graph *graph, uint32_t gpu)
{
    return graph->gpu_nic[graph->nodes[gpu].index];
}

#define NEAREST_MAX 256u

/* GPUs whose nearest NICs begin with the same one take turns: `turns` counts for each first NIC. */
/* NICs in the tree below each node; children come after their parents. */
static ist_status nics_count(topo_graph *graph)
{
    graph->nics_in = ist_alloc(graph->node_count, sizeof(*graph->nics_in));
    if (graph->nics_in == NULL) {
        return topo_error_memory(OPERATION, "counts of NICs");
    }
    for (uint32_t i = graph->node_count; i-- > 0;) {
        graph->nics_in[i] += graph->nodes[i].kind == TOPO_NIC;
        if (graph->nodes[i].parent != TOPO_NONE) {
            graph->nics_in[graph->nodes[i].parent] += graph->nics_in[i];
        }
    }
    return IST_OK;
}

ist_status topo_affinity_find(topo_graph *graph)
{
    uint32_t gpus = topo_gpu_count(graph);
    uint32_t nics = topo_nic_count(graph);
    IST_RETURN_IF_ERROR(nics_count(graph));
    graph->gpu_nic = ist_alloc(gpus > 0 ? gpus : 1, sizeof(uint32_t));
    uint32_t *turns = ist_alloc(nics > 0 ? nics : 1, sizeof(uint32_t));
    if (graph->gpu_nic == NULL || turns == NULL) {
        ist_free(turns);
        return topo_error_memory(OPERATION, "NICs of GPUs");
    }
    for (uint32_t i = 0; i < gpus; i++) {
        uint32_t nearest[NEAREST_MAX];
        uint32_t count = topo_gpu_nics(graph, topo_gpu(graph, i), nearest, NEAREST_MAX, NULL);
        count = count < NEAREST_MAX ? count : NEAREST_MAX;
        graph->gpu_nic[i] = TOPO_NONE;
        if (count > 0) {
            uint32_t *turn = &turns[graph->nodes[nearest[0]].index];
            graph->gpu_nic[i] = nearest[(*turn)++ % count];
        }
    }
    ist_free(turns);
    graph->rail_count = topo_kind_count(graph, TOPO_RAIL);
    for (uint32_t i = 0; i < nics; i++) {
        uint32_t rail = graph->nodes[topo_nic(graph, i)].domain;
        if (rail != TOPO_NONE && rail >= graph->rail_count) {
            graph->rail_count = rail + 1;
        }
    }
    return IST_OK;
}

uint32_t topo_rail_count(const topo_graph *graph)
{
    return graph->rail_count;
}
