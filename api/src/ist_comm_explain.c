/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why the ranks of an open communicator reach each other as they do: the backend tells what it chose
 * by, and the rules that choose explain it.
 */
#include "ist_topology.h"

#include <string.h>

/* What a backend chose by, as a policy over a topology. */
typedef struct grounds {
    ist_backend_ground from;
    ist_topology *opened; /* here, to be closed */
    const ist_topology *topology;
    uint32_t *gpus;
    uint64_t *maps;
    ist_topology_able able;
    ist_topology_policy policy;
} grounds;

static void grounds_close(grounds *made)
{
    ist_topology_close(made->opened);
    ist_free(made->gpus);
    ist_free(made->maps);
    ist_free(made);
}

static ist_status grounds_ask(const ist_comm *comm, grounds *made)
{
    const ist_world *world = comm->object.world;
    made->from.rank_count = comm->rank_count;
    return world->ops.comm_ground(world->self, comm->object.number, &made->from, made->gpus,
                                  made->maps);
}

/* What was asked, as a policy over a topology. */
static ist_status grounds_fill(const ist_comm *comm, grounds *made)
{
    const ist_backend_ground *from = &made->from;
    if (from->topology == NULL) {
        IST_RETURN_IF_ERROR(ist_topology_open(from->source, NULL, &made->opened));
    }
    made->topology = from->topology != NULL ? from->topology : made->opened;
    made->able = (ist_topology_able){.size = sizeof(made->able),
                                     .gin_known = from->gin_known,
                                     .gin = (ist_gin_kind)from->gin,
                                     .gin_reason = comm->gin_reason,
                                     .maps = from->maps_known != 0 ? made->maps : NULL};
    made->policy = (ist_topology_policy){.size = sizeof(made->policy),
                                         .rank_count = comm->rank_count,
                                         .ranks = made->gpus,
                                         .lsa_size_max = from->lsa_size_max,
                                         .peer_access = (ist_path)from->peer_access,
                                         .gin_off = from->gin_off,
                                         .able = &made->able};
    return IST_OK;
}

static ist_status grounds_open(ist_comm *comm, const char *operation, grounds **result)
{
    size_t words = ((size_t)comm->rank_count + 63u) / 64u;
    grounds *made = ist_alloc(1, sizeof(*made));
    if (made == NULL) {
        return ist_fail_memory(comm->object.world, "what the choice rests on", operation);
    }
    made->gpus = ist_alloc(comm->rank_count, sizeof(*made->gpus));
    made->maps = ist_alloc(comm->rank_count * words, sizeof(*made->maps));
    ist_status status = made->gpus != NULL && made->maps != NULL
                            ? grounds_ask(comm, made)
                            : ist_fail_memory(comm->object.world, "ranks' GPUs", operation);
    if (status < 0) {
        grounds_close(made);
        return status;
    }
    *result = made;
    return IST_OK;
}

ist_status ist_comm_pair(ist_comm *comm, uint32_t rank_a, uint32_t rank_b, ist_topology_pair *pair)
{
    static const char operation[] = "comm.pair";
    grounds *made = NULL;
    IST_RETURN_IF_ERROR(ist_check_object(comm, IST_KIND_COMM, "comm", operation));
    IST_RETURN_IF_ERROR(grounds_open(comm, operation, &made));
    ist_status status = grounds_fill(comm, made);
    if (status >= 0) {
        status = ist_topology_choose(made->topology, &made->policy, rank_a, rank_b, pair);
    }
    grounds_close(made);
    return status;
}

ist_status ist_comm_explain(ist_comm *comm, const ist_explain_desc *desc, char *text,
                            size_t capacity, size_t *needed)
{
    static const char operation[] = "comm.explain";
    grounds *made = NULL;
    ist_explain_desc asked = {.rank_a = IST_RANK_NONE, .rank_b = IST_RANK_NONE};
    IST_RETURN_IF_ERROR(ist_check_object(comm, IST_KIND_COMM, "comm", operation));
    if (desc != NULL) {
        IST_RETURN_IF_ERROR(ist_desc_read(comm->object.world, desc, sizeof(*desc), &asked,
                                          sizeof(asked), "desc", operation));
    }
    if (asked.policy != NULL) {
        return ist_fail(comm->object.world, IST_ERR_ARGUMENT, "desc.policy", operation,
                        "desc.policy has to be NULL: the communicator has its own");
    }
    IST_RETURN_IF_ERROR(grounds_open(comm, operation, &made));
    asked.size = sizeof(asked);
    asked.policy = &made->policy;
    ist_status status = grounds_fill(comm, made);
    if (status >= 0) {
        status = ist_topology_explain(made->topology, &asked, text, capacity, needed);
    }
    grounds_close(made);
    return status;
}

ist_status ist_comm_links(ist_comm *comm, const char *operation, cost_machine *machine,
                          cost_profile *links)
{
    grounds *made = NULL;
    if (!comm->object.world->has_ground) {
        return cost_of_source(NULL, machine, links);
    }
    IST_RETURN_IF_ERROR(grounds_open(comm, operation, &made));
    ist_status status = made->from.topology != NULL
                            ? cost_of_graph(made->from.topology->graph, machine, links)
                            : cost_of_source(made->from.source, machine, links);
    grounds_close(made);
    return status;
}
