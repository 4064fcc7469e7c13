/* SPDX-License-Identifier: Apache-2.0 */
/* Machines of a cluster line: sockets, a PCIe switch for each NIC and the GPUs that use it, NVLink
 * domains; then leaf switches or rails, and spines as one switch that has the width of all of them.
 */
#include "topo_cluster_graph.h"
#include "topo_build.h"
#include "topo_error.h"

#include <inttypes.h>
#include <stdio.h>

#define OPERATION "topology.cluster"

typedef struct builder {
    const ist_cluster *cluster;
    const ist_cluster *presets;
    topo_graph *graph;
    uint64_t machines;
    topo_origin origin;
    uint32_t *gpus; /* [machines * gpus] nodes */
    uint32_t *nics; /* [machines * nics] nodes */
} builder;

static topo_origin origin_of(const builder *self, uint64_t value, uint64_t preset)
{
    return value == preset ? TOPO_DEFAULT : self->origin;
}

/* ------------------------------------------------------------------------------------ machines */

/* What the GPU's generation has, 16 lanes; never less than a NIC needs, because the line says what
 * the NIC gives. */
static ist_status pci_make(builder *self, uint32_t node)
{
    uint32_t sm = ist_cluster_model_sm(self->cluster->gpu_model);
    uint32_t generation = sm >= 100 ? 6 : sm >= 90 ? 5 : sm >= 80 ? 4 : 3;
    uint64_t rate = topo_pci_effective(generation, 16);
    uint64_t nominal = topo_pci_nominal(generation, 16);
    uint64_t nic = self->cluster->nics_per_node > 0 ? self->cluster->nic_bytes_per_s : 0;
    rate = rate < nic ? nic : rate;
    return topo_build_link(self->graph, TOPO_LINK_PCI, node,
                           topo_node_edit(self->graph, node)->parent, 16,
                           nominal >= rate ? nominal : 0, rate, TOPO_DEFAULT);
}

static ist_status switch_make(builder *self, uint32_t parent, uint32_t *node)
{
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_PCI_SWITCH, parent, "", node));
    return pci_make(self, *node);
}

static ist_status gpu_make(builder *self, uint32_t parent, uint64_t machine, uint64_t local)
{
    uint32_t node = 0;
    char sm[16];
    uint64_t model = self->cluster->gpu_model;
    const char *name = model != 0 ? ist_cluster_model_name(model) : "";
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_GPU, parent, name, &node));
    topo_node_edit(self->graph, node)->number = local;
    (void)snprintf(sm, sizeof(sm), "%" PRIu32, ist_cluster_model_sm(model));
    if (model != 0) {
        IST_RETURN_IF_ERROR(topo_attr_set(self->graph, node, "sm", sm));
    }
    self->gpus[machine * self->cluster->gpus_per_node + local] = node;
    return pci_make(self, node);
}

static ist_status nic_make(builder *self, uint32_t parent, uint64_t machine, uint64_t local)
{
    uint32_t node = 0;
    char name[32];
    (void)snprintf(name, sizeof(name), "nic%" PRIu64, local);
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_NIC, parent, name, &node));
    topo_node_edit(self->graph, node)->number = local;
    if (self->cluster->rails != 0) {
        topo_node_edit(self->graph, node)->domain = (uint32_t)local;
    }
    self->nics[machine * self->cluster->nics_per_node + local] = node;
    return pci_make(self, node);
}

/* GPU g hangs below the switch of NIC g * nics / gpus, that below its share of the sockets. */
static ist_status devices_make(builder *self, uint64_t machine, const uint32_t *sockets)
{
    const ist_cluster *cluster = self->cluster;
    uint64_t gpus = cluster->gpus_per_node;
    uint64_t nics = cluster->nics_per_node;
    uint64_t groups = nics > 0 ? nics : gpus;
    for (uint64_t i = 0; i < groups; i++) {
        uint32_t place = sockets[i * cluster->socket_count / groups];
        if (nics > 0) {
            IST_RETURN_IF_ERROR(switch_make(self, place, &place));
            IST_RETURN_IF_ERROR(nic_make(self, place, machine, i));
        }
        for (uint64_t gpu = i * gpus / groups; gpu < (i + 1) * gpus / groups; gpu++) {
            IST_RETURN_IF_ERROR(gpu_make(self, place, machine, gpu));
        }
    }
    return IST_OK;
}

static ist_status machine_make(builder *self, uint64_t machine)
{
    uint32_t node = 0;
    uint32_t sockets[64];
    char name[32];
    uint64_t rate = topo_smp_rate(NULL, NULL, 0, 0);
    (void)snprintf(name, sizeof(name), "node%" PRIu64, machine);
    IST_RETURN_IF_ERROR(topo_node_add(self->graph, TOPO_MACHINE, TOPO_NONE, name, &node));
    for (uint64_t i = 0; i < self->cluster->socket_count; i++) {
        uint32_t package = node;
        if (self->cluster->socket_count > 1) {
            IST_RETURN_IF_ERROR(
                topo_build_socket(self->graph, TOPO_PACKAGE, node, "", rate, &package));
            topo_node_edit(self->graph, package)->number = i;
        }
        IST_RETURN_IF_ERROR(
            topo_build_socket(self->graph, TOPO_NUMA, package, "", rate, &sockets[i]));
        topo_node_edit(self->graph, sockets[i])->number = i;
    }
    return devices_make(self, machine, sockets);
}

/* ------------------------------------------------------------------------------------ NVLink */

static ist_status nvlink_add(builder *self, uint32_t a, uint32_t b, uint64_t latency)
{
    const ist_cluster *cluster = self->cluster;
    uint64_t nominal = 0;
    uint64_t each = 0;
    topo_nvlink_rate(ist_cluster_model_sm(cluster->gpu_model), &nominal, &each);
    uint64_t count = (cluster->nvlink_bytes_per_s + each / 2) / each;
    count = count == 0 ? 1 : count > 1024 ? 1024 : count;
    uint64_t all = nominal * count;
    topo_link link = {.a = a,
                      .b = b,
                      .kind = TOPO_LINK_NVLINK,
                      .count = (uint32_t)count,
                      .bytes_per_s = cluster->nvlink_bytes_per_s,
                      .nominal_bytes_per_s = all > cluster->nvlink_bytes_per_s ? all : 0,
                      .latency_ps = latency,
                      .rate_origin = origin_of(self, cluster->nvlink_bytes_per_s,
                                               self->presets->nvlink_bytes_per_s),
                      .latency_origin = origin_of(self, cluster->nvlink_latency_ps,
                                                  self->presets->nvlink_latency_ps)};
    return topo_link_add(self->graph, &link, NULL);
}

/* Two GPUs are linked directly, more of them through a switch; half of the way each. */
static ist_status domain_make(builder *self, uint64_t first, uint64_t count)
{
    uint64_t latency = self->cluster->nvlink_latency_ps;
    if (count < 2) {
        return IST_OK;
    }
    if (count == 2) {
        return nvlink_add(self, self->gpus[first], self->gpus[first + 1], latency);
    }
    uint32_t machine = topo_build_machine(self->graph, self->gpus[first]);
    bool spans = topo_build_machine(self->graph, self->gpus[first + count - 1]) != machine;
    uint32_t node = 0;
    IST_RETURN_IF_ERROR(
        topo_node_add(self->graph, TOPO_NVSWITCH, spans ? TOPO_NONE : machine, "nvswitch", &node));
    for (uint64_t i = 0; i < count; i++) {
        IST_RETURN_IF_ERROR(nvlink_add(self, self->gpus[first + i], node, (latency + 1) / 2));
    }
    return IST_OK;
}

static ist_status domains_make(builder *self)
{
    uint64_t all = self->machines * self->cluster->gpus_per_node;
    uint64_t size = self->cluster->nvlink_domain;
    for (uint64_t first = 0; size > 1 && first < all; first += size) {
        IST_RETURN_IF_ERROR(domain_make(self, first, all - first < size ? all - first : size));
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ network */

static ist_status net_link(builder *self, uint32_t a, uint32_t b, uint64_t count, uint64_t rate,
                           uint64_t latency)
{
    const ist_cluster *presets = self->presets;
    topo_link link = {
        .a = a,
        .b = b,
        .kind = TOPO_LINK_NET,
        .count = (uint32_t)(count < 65536 ? count : 65536),
        .bytes_per_s = rate < TOPO_RATE_MAX ? rate : TOPO_RATE_MAX,
        .latency_ps = latency,
        .rate_origin = origin_of(self, self->cluster->nic_bytes_per_s, presets->nic_bytes_per_s),
        .latency_origin = origin_of(self, self->cluster->nic_latency_ps, presets->nic_latency_ps)};
    return topo_link_add(self->graph, &link, NULL);
}

/* Which leaf a NIC is on: rails first, then blocks of machines. */
static uint64_t leaf_of(const builder *self, uint64_t machine, uint64_t nic, uint64_t blocks)
{
    uint64_t nodes = self->cluster->leaf_nodes;
    uint64_t block = blocks <= 1 ? 0 : machine / (nodes > 0 ? nodes : 1);
    return self->cluster->rails != 0 ? nic * blocks + block : block;
}

static uint64_t blocks_of(const builder *self)
{
    uint64_t nodes = self->cluster->leaf_nodes;
    bool one = self->cluster->tree_down == 0 || (nodes == 0 && self->cluster->rails != 0);
    return one ? 1 : (self->machines + (nodes > 0 ? nodes : 1) - 1) / (nodes > 0 ? nodes : 1);
}

/* What a leaf carries up: the NICs below it, times up, by down. */
static uint64_t uplink_rate(const builder *self, uint64_t nics)
{
    const ist_cluster *cluster = self->cluster;
    uint64_t width = nics * cluster->tree_up / cluster->tree_down;
    uint64_t rest = nics * cluster->tree_up % cluster->tree_down;
    uint64_t limit = TOPO_RATE_MAX / cluster->nic_bytes_per_s;
    return width > limit ? TOPO_RATE_MAX
                         : width * cluster->nic_bytes_per_s +
                               rest * (cluster->nic_bytes_per_s / cluster->tree_down);
}

static ist_status leaves_make(builder *self, uint32_t spine, uint32_t *leaves, uint64_t blocks)
{
    uint64_t rails = self->cluster->rails != 0 ? self->cluster->nics_per_node : 1;
    uint64_t nodes = self->cluster->leaf_nodes > 0 ? self->cluster->leaf_nodes : 1;
    nodes = blocks == 1 || nodes > self->machines ? self->machines : nodes;
    uint64_t below = nodes * (self->cluster->rails != 0 ? 1 : self->cluster->nics_per_node);
    for (uint64_t i = 0; i < rails * blocks; i++) {
        char name[32];
        bool rail = self->cluster->rails != 0;
        (void)snprintf(name, sizeof(name), "%s%" PRIu64, rail ? "rail" : "leaf",
                       rail ? i / blocks : i);
        IST_RETURN_IF_ERROR(topo_node_add(self->graph, rail ? TOPO_RAIL : TOPO_NET_SWITCH, spine,
                                          name, &leaves[i]));
        if (rail) {
            topo_node_edit(self->graph, leaves[i])->domain = (uint32_t)(i / blocks);
        }
        if (spine != TOPO_NONE) {
            IST_RETURN_IF_ERROR(net_link(self, leaves[i], spine,
                                         below * self->cluster->tree_up / self->cluster->tree_down,
                                         uplink_rate(self, below), 300000));
        }
    }
    return IST_OK;
}

static ist_status nics_join(builder *self, const uint32_t *leaves, uint64_t blocks)
{
    const ist_cluster *cluster = self->cluster;
    for (uint64_t machine = 0; machine < self->machines; machine++) {
        for (uint64_t nic = 0; nic < cluster->nics_per_node; nic++) {
            uint32_t node = self->nics[machine * cluster->nics_per_node + nic];
            IST_RETURN_IF_ERROR(net_link(self, node, leaves[leaf_of(self, machine, nic, blocks)], 1,
                                         cluster->nic_bytes_per_s,
                                         (cluster->nic_latency_ps + 1) / 2));
        }
    }
    return IST_OK;
}

static ist_status network_make(builder *self)
{
    uint64_t blocks = blocks_of(self);
    uint64_t rails = self->cluster->rails != 0 ? self->cluster->nics_per_node : 1;
    uint32_t spine = TOPO_NONE;
    if (self->cluster->nics_per_node == 0) {
        return IST_OK;
    }
    if (self->cluster->tree_down > 0) {
        IST_RETURN_IF_ERROR(
            topo_node_add(self->graph, TOPO_NET_SWITCH, TOPO_NONE, "spine", &spine));
    }
    uint32_t *leaves = ist_alloc(rails * blocks, sizeof(*leaves));
    if (leaves == NULL) {
        return topo_error_memory(OPERATION, "leaf switches");
    }
    ist_status status = leaves_make(self, spine, leaves, blocks);
    if (status == IST_OK) {
        status = nics_join(self, leaves, blocks);
    }
    ist_free(leaves);
    return status;
}

/* ------------------------------------------------------------------------------------ the whole */

static ist_status missing_say(builder *self)
{
    if (self->cluster->nvlink_domain <= 1) {
        IST_RETURN_IF_ERROR(
            topo_missing_add(self->graph, "NVLink", "the line says that GPUs have none"));
    }
    if (self->cluster->nics_per_node > 0) {
        IST_RETURN_IF_ERROR(topo_missing_add(
            self->graph, "what the NICs are",
            "a cluster line does not say; RDMA NICs that reach GPU memory are assumed"));
    }
    return topo_missing_add(self->graph, "rates of PCIe links",
                            "a cluster line does not state them; 16 lanes of the GPU's generation, "
                            "and what a NIC needs, are assumed");
}

static ist_status all_make(builder *self)
{
    for (uint64_t i = 0; i < self->machines; i++) {
        IST_RETURN_IF_ERROR(machine_make(self, i));
    }
    IST_RETURN_IF_ERROR(domains_make(self));
    IST_RETURN_IF_ERROR(network_make(self));
    return missing_say(self);
}

/* Refused before anything is built: nodes of a machine, times machines. */
static ist_status size_check(const builder *self)
{
    const ist_cluster *cluster = self->cluster;
    uint64_t each =
        2 + 2 * cluster->socket_count + 2 * cluster->gpus_per_node + 2 * cluster->nics_per_node;
    if (each > TOPO_NODES_MAX || self->machines > TOPO_NODES_MAX / each) {
        return topo_error_at(IST_ERR_RANGE, OPERATION, "cluster", 0,
                             "%" PRIu64 " machines of up to %" PRIu64 " nodes each are more than a "
                             "graph may have, %u",
                             self->machines, each, TOPO_NODES_MAX);
    }
    return IST_OK;
}

ist_status topo_cluster_build(const ist_cluster *cluster, uint64_t machine_max, topo_origin origin,
                              topo_graph *graph)
{
    ist_cluster presets;
    IST_RETURN_IF_ERROR(ist_cluster_parse(NULL, &presets));
    builder self = {.cluster = cluster,
                    .presets = &presets,
                    .graph = graph,
                    .machines = cluster->node_count,
                    .origin = origin};
    if (machine_max > 0 && machine_max < self.machines) {
        self.machines = machine_max;
    }
    IST_RETURN_IF_ERROR(size_check(&self));
    self.gpus = ist_alloc(self.machines * cluster->gpus_per_node, sizeof(*self.gpus));
    self.nics = ist_alloc(self.machines * cluster->nics_per_node + 1, sizeof(*self.nics));
    ist_status status = self.gpus == NULL || self.nics == NULL
                            ? topo_error_memory(OPERATION, "machines")
                            : all_make(&self);
    ist_free(self.gpus);
    ist_free(self.nics);
    return status;
}
