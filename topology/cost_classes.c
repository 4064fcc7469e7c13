/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of equal ranks and their links: from machine, edits and operations to a quotient.
 */
#include "cost_internal.h"

#include <inttypes.h>
#include <isthmus/backend.h>
#include <stdio.h>

#define CLASSES_MAX 1024u /* all to all among them is a million flows */

ist_error cost_details(const char *object, uint64_t observed)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = observed,
                         .operation = "whatif"};
    (void)snprintf(details.object, sizeof details.object, "%s", object);
    return details;
}

/* ------------------------------------------------------------------------------------ classes */

static ist_status add_special(cost_state *at, uint64_t block)
{
    for (uint32_t i = 0; i < at->special_count; ++i) {
        if (at->special[i] == block) {
            return IST_OK;
        }
    }
    if (at->special_count == COST_SPECIAL_MAX) {
        ist_error details = cost_details("edits", block);
        return ist_raise(IST_ERR_RANGE, &details, "more than %u places are singled out",
                         COST_SPECIAL_MAX);
    }
    at->special[at->special_count++] = block;
    return IST_OK;
}

static ist_status find_special(cost_state *at)
{
    for (uint32_t i = 0; i < at->edit_count; ++i) {
        const cost_edit *edit = &at->edits[i];
        if (!edit->everywhere && edit->resource != COST_FABRIC) {
            if (edit->node >= at->machine->node_count) {
                ist_error details = cost_details("edits", edit->node);
                return ist_raise(IST_ERR_RANGE, &details,
                                 "edit %u is about node %" PRIu64 ", there are %" PRIu64, i,
                                 edit->node, at->machine->node_count);
            }
            const ist_status status =
                add_special(at, edit->node * at->machine->gpus_per_node / at->block);
            if (status != IST_OK) {
                return status;
            }
        }
    }
    for (uint32_t i = 0; i < at->op_count; ++i) {
        const cost_op *op = &at->ops[i];
        if (op->kind != COST_P2P && op->kind != COST_PUT && op->kind != COST_SIGNAL) {
            continue;
        }
        if (op->src >= at->ranks || op->dst >= at->ranks || op->src == op->dst) {
            ist_error details = cost_details("ops.src", op->src);
            return ist_raise(IST_ERR_RANGE, &details,
                             "operation %u goes from rank %" PRIu64 " to %" PRIu64
                             ", two of %" PRIu64 " are required",
                             i, op->src, op->dst, at->ranks);
        }
        ist_status status = add_special(at, op->src / at->block);
        if (status == IST_OK) {
            status = add_special(at, op->dst / at->block);
        }
        if (status != IST_OK) {
            return status;
        }
    }
    return IST_OK;
}

static ist_status check_groups(cost_state *at)
{
    for (uint32_t i = 0; i < at->op_count; ++i) {
        const uint64_t size = at->ops[i].group_size;
        const uint64_t domain = at->machine->domain;
        if (size != 0 && (at->ranks % size != 0 || (size % domain != 0 && domain % size != 0) ||
                          (size % at->block != 0 && at->block % size != 0))) {
            ist_error details = cost_details("ops.group_size", size);
            return ist_raise(IST_ERR_RANGE, &details,
                             "groups of %" PRIu64 " ranks do not divide %" PRIu64
                             " ranks in domains of %" PRIu64,
                             size, at->ranks, domain);
        }
        /* Regular blocks whose group has a special one are no longer like the others. */
        if (size != 0 && size != at->ranks && at->special_count > 0 &&
            (size > at->block || size < domain)) {
            at->expand = true;
        }
    }
    return IST_OK;
}

uint64_t cost_op_rate(const cost_op *op, cost_resource resource)
{
    const uint64_t *value = op->knobs.value;
    return resource <= COST_LSA_IN  ? value[COST_lsa_bytes_per_s]
           : resource == COST_LOCAL ? value[COST_local_bytes_per_s]
                                    : value[COST_net_bytes_per_s];
}

uint64_t cost_link_rate(const cost_state *at, cost_resource resource)
{
    uint64_t best = 1;
    for (uint32_t i = 0; i < at->op_count; ++i) {
        const uint64_t rate = cost_op_rate(&at->ops[i], resource);
        best = rate > best ? rate : best;
    }
    return best;
}

static bool edit_meets(const cost_edit *edit, cost_resource resource, const cost_link *link)
{
    const bool same = edit->resource == resource ||
                      (edit->resource == COST_LSA_OUT && resource == COST_LSA_IN) ||
                      (edit->resource == COST_NIC_OUT && resource == COST_NIC_IN);
    return same && (edit->everywhere ||
                    (link->special && edit->node == link->node && edit->index == link->index));
}

static uint32_t add_link(cost_state *at, const cost_link *link)
{
    uint64_t rate = cost_link_rate(at, link->resource);
    for (uint32_t i = 0; i < at->edit_count; ++i) {
        if (edit_meets(&at->edits[i], link->resource, link)) {
            rate = (uint64_t)((cost_wide)rate * at->edits[i].num / at->edits[i].den);
        }
    }
    at->rates[at->link_count] = rate > 0 ? rate : 1;
    at->links[at->link_count] = *link;
    at->links[at->link_count].gone = rate == 0;
    at->result->link_count[link->resource] += rate == 0 ? 0 : link->count;
    return at->link_count++;
}

/* The NIC of a GPU; when its own was taken away, the next one of the node that is left. */
static uint64_t nic_of_gpu(const cost_state *at, uint64_t node, uint64_t gpu)
{
    const uint64_t nics = at->machine->nics_per_node;
    const uint64_t own = gpu * nics / at->machine->gpus_per_node;
    for (uint64_t step = 0; step < nics; ++step) {
        const uint64_t nic = (own + step) % nics;
        bool gone = false;
        for (uint32_t i = 0; i < at->edit_count; ++i) {
            const cost_edit *edit = &at->edits[i];
            gone = gone || (edit->resource == COST_NIC_OUT && edit->num == 0 && !edit->everywhere &&
                            edit->node == node && edit->index == nic);
        }
        if (!gone) {
            return nic;
        }
    }
    return own;
}

static void gpu_links(cost_state *at, cost_class *of, const cost_link *where)
{
    for (cost_resource resource = COST_LSA_OUT; resource <= COST_LOCAL; ++resource) {
        cost_link link = *where;
        link.resource = resource;
        of->link[resource] = add_link(at, &link);
    }
}

static void add_special_node(cost_state *at, uint64_t node)
{
    const uint64_t gpus = at->machine->gpus_per_node;
    const uint64_t nics = at->machine->nics_per_node;
    const uint32_t first_nic = at->link_count;
    for (uint64_t nic = 0; nic < nics; ++nic) {
        for (cost_resource resource = COST_NIC_OUT; resource <= COST_NIC_IN; ++resource) {
            (void)add_link(at, &(cost_link){.resource = resource,
                                            .count = 1,
                                            .node = node,
                                            .index = (uint32_t)nic,
                                            .special = true});
        }
    }
    for (uint64_t gpu = 0; gpu < gpus; ++gpu) {
        cost_class *added = &at->classes[at->class_count++];
        *added =
            (cost_class){.count = 1, .rank = node * gpus + gpu, .nic_sharers = 1, .special = true};
        gpu_links(at, added,
                  &(cost_link){.count = 1, .node = node, .index = (uint32_t)gpu, .special = true});
        const uint32_t nic = nics > 0 ? first_nic + 2 * (uint32_t)nic_of_gpu(at, node, gpu) : 0;
        added->link[COST_NIC_OUT] = nics > 0 ? nic : COST_NO_LINK;
        added->link[COST_NIC_IN] = nics > 0 ? nic + 1 : COST_NO_LINK;
    }
}

/* Regular ranks: one class, or one for each place of the domain. */
static void add_regular(cost_state *at)
{
    const cost_machine *machine = at->machine;
    const uint64_t split = at->special_count > 0 ? machine->domain : 1;
    const uint64_t nics = machine->nics_per_node;
    const uint64_t sharers = nics > 0 ? machine->gpus_per_node / nics : 0;
    const uint64_t together = split == 1 ? sharers : sharers < split ? 1 : sharers / split;
    uint32_t nic = COST_NO_LINK;
    for (uint64_t place = 0; place < split; ++place) {
        cost_class *added = &at->classes[at->class_count++];
        *added =
            (cost_class){.count = at->regular / split, .place = place, .nic_sharers = together};
        gpu_links(at, added, &(cost_link){.count = added->count});
        if (nics > 0 && (split == 1 || place % (sharers < split ? sharers : split) == 0)) {
            const uint64_t shared =
                split == 1 ? sharers : together * (sharers < split ? sharers : split);
            const uint64_t of_class =
                split == 1 ? at->regular / sharers
                           : added->count * (sharers < split ? sharers : split) / shared;
            nic = add_link(at, &(cost_link){.resource = COST_NIC_OUT, .count = of_class});
            (void)add_link(at, &(cost_link){.resource = COST_NIC_IN, .count = of_class});
        }
        added->link[COST_NIC_OUT] = nic;
        added->link[COST_NIC_IN] = nic == COST_NO_LINK ? COST_NO_LINK : nic + 1;
    }
}

static void add_fabric(cost_state *at)
{
    const cost_machine *machine = at->machine;
    uint64_t permille = machine->fabric_permille > 0 ? machine->fabric_permille : COST_PERMILLE;
    bool edited = false;
    for (uint32_t i = 0; i < at->edit_count; ++i) {
        if (at->edits[i].resource == COST_FABRIC) {
            permille = permille * at->edits[i].num / at->edits[i].den;
            edited = true;
        }
    }
    at->fabric = COST_NO_LINK;
    if (machine->nics_per_node == 0 || (permille == COST_PERMILLE && !edited)) {
        return;
    }
    const cost_wide rate = (cost_wide)machine->node_count * machine->nics_per_node *
                           cost_link_rate(at, COST_NIC_OUT) * permille / COST_PERMILLE;
    at->links[at->link_count] = (cost_link){.resource = COST_FABRIC, .count = 1};
    at->rates[at->link_count] = rate == 0 ? 1 : rate > UINT64_MAX ? UINT64_MAX : (uint64_t)rate;
    at->result->link_count[COST_FABRIC] = 1;
    at->fabric = at->link_count++;
}

ist_status cost_refuse_memory(uint64_t count)
{
    ist_error details = cost_details("classes", count);
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for %" PRIu64 " classes of ranks", count);
}

ist_status cost_classes_make(cost_state *at)
{
    const cost_machine *machine = at->machine;
    ist_status status = find_special(at);
    if (status == IST_OK) {
        status = check_groups(at);
    }
    if (status != IST_OK) {
        return status;
    }
    const uint64_t singles = at->expand ? at->ranks : at->special_count * at->block;
    const uint64_t classes = singles + machine->domain + 1;
    if (classes > CLASSES_MAX + machine->domain + 1) {
        ist_error details = cost_details("ranks", singles);
        return ist_raise(IST_ERR_RANGE, &details,
                         "%" PRIu64
                         " ranks would have to be computed one by one, at most %u can be",
                         singles, CLASSES_MAX);
    }
    /* Five of a class, two of a NIC: NICs of special nodes, and of one regular node; the fabric. */
    const uint64_t links =
        classes * 5 + 1 + 2 * machine->nics_per_node * (singles / machine->gpus_per_node + 1);
    at->classes = ist_alloc(classes, sizeof *at->classes);
    at->links = ist_alloc(links, sizeof *at->links);
    at->rates = ist_alloc(links, sizeof *at->rates);
    at->load = ist_alloc(links, sizeof *at->load);
    if (at->classes == NULL || at->links == NULL || at->rates == NULL || at->load == NULL) {
        return cost_refuse_memory(classes);
    }
    at->regular = at->expand ? 0 : at->ranks - at->special_count * at->block;
    if (at->regular > 0) {
        add_regular(at);
    }
    at->first_special = at->class_count;
    const uint64_t nodes_a_block = at->block / machine->gpus_per_node;
    if (at->expand) {
        for (uint64_t node = 0; node < machine->node_count; ++node) {
            add_special_node(at, node);
        }
    } else {
        for (uint32_t i = 0; i < at->special_count; ++i) {
            for (uint64_t j = 0; j < nodes_a_block; ++j) {
                add_special_node(at, at->special[i] * nodes_a_block + j);
            }
        }
    }
    add_fabric(at);
    at->result->class_count = at->class_count;
    return flow_open(at->rates, at->link_count, &at->engine);
}
