/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a communicator reach each other, chosen when it opens, by the rules of topology/:
 * the graph of this machine and what was asked for on one side, what the driver lets GPUs map and NCCL
 * answers on the other. All ranks bring what they have chosen; where two differ, none opens.
 */
#include "cuda_comm.h"

#include <isthmus/unstable/topology.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_BYTES 41u /* "GPU-", 32 digits, 4 dashes, NUL */

/* What a rank has chosen; all have to bring the same, but for the source. */
typedef struct verdict {
    int64_t status; /* ist_status: why there is none */
    uint32_t lsa_size;
    uint32_t gin_off;
    uint32_t peer_access;
    uint32_t lsa_size_max;
    char source[64]; /* of the topology, for people */
} verdict;

/* ---- the topology ---------------------------------------------------------------------------- */

static const char *source_wanted(void)
{
    const char *named = getenv("IST_TOPOLOGY");
    return named != NULL && named[0] != '\0' ? named : "live";
}

/* A topology that cannot be read must not keep a communicator from opening. */
static ist_topology *read_quietly(const cuda_rank *rank, const char *source)
{
    ist_error record = {.size = sizeof(record)};
    ist_topology *opened = NULL;
    ist_error *former = ist_error_bind(&record);
    ist_status status = ist_topology_open(source, NULL, &opened);
    (void)ist_error_bind(former);
    if (status != IST_OK) {
        ist_log(IST_LOG_WARN,
                "rank %u chooses without a topology, by what the driver maps: %.64s: %s",
                rank->index, source, ist_status_sentence(status));
        return NULL;
    }
    return opened;
}

const ist_topology *cuda_topology(const cuda_rank *rank)
{
    cuda_world *world = rank->world;
    const char *source = source_wanted();
    (void)pthread_mutex_lock(&world->lock);
    if (!world->topology_asked && strcmp(source, "off") != 0) {
        world->topology = read_quietly(rank, source);
    }
    world->topology_asked = true;
    const ist_topology *found = world->topology;
    (void)pthread_mutex_unlock(&world->lock);
    return found;
}

static void uuid_print(const uint8_t *uuid, char text[UUID_BYTES])
{
    size_t length = (size_t)snprintf(text, UUID_BYTES, "GPU");
    for (size_t i = 0; i < 16; ++i) {
        const char *dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, UUID_BYTES - length, "%s%02x", dash, uuid[i]);
    }
}

/* The first rank whose GPU the topology does not know; rank_count: it knows all. */
static uint32_t gpus_fill(const cuda_comm *comm, const ist_topology *topology,
                          char (*texts)[UUID_BYTES], const char **uuids)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        uuid_print(comm->places[i].uuid, texts[i]);
        uuids[i] = texts[i];
    }
    if (ist_topology_gpus(topology, uuids, comm->rank_count, comm->choice.gpus) != IST_OK) {
        return 0;
    }
    while (rank < comm->rank_count && comm->choice.gpus[rank] != UINT32_MAX) {
        ++rank;
    }
    return rank;
}

static void say_unknown(const cuda_comm *comm, const ist_topology *topology, const char *uuid,
                        uint32_t rank)
{
    ist_topology_info info = {.size = sizeof(info)};
    if (comm->rank == 0 && !comm->owner->compared &&
        ist_topology_query(topology, &info) == IST_OK) {
        ist_log(
            IST_LOG_WARN,
            "communicator not compared with the topology: %s has %u GPUs, rank %u is on %s; what "
            "the driver maps decides",
            info.source, info.gpu_count, rank, uuid);
    }
}

/* known: whether the topology knows the GPUs of all ranks. */
static ist_status gpus_find(const cuda_comm *comm, const ist_topology *topology, bool *known)
{
    char(*texts)[UUID_BYTES] = ist_alloc(comm->rank_count, sizeof(*texts));
    const char **uuids = ist_alloc(comm->rank_count, sizeof(*uuids));
    bool room = texts != NULL && uuids != NULL;
    uint32_t first = 0;
    if (room && topology != NULL) {
        first = gpus_fill(comm, topology, texts, uuids);
        if (first < comm->rank_count) {
            say_unknown(comm, topology, texts[first], first);
        }
    }
    ist_free(texts);
    ist_free(uuids);
    *known = first == comm->rank_count;
    return room ? IST_OK : cuda_fail_memory(comm->owner, "names of GPUs");
}

/* ---- ranks without a topology ---------------------------------------------------------------- */

static bool first_of_host(const cuda_comm *comm, uint32_t rank, uint32_t *first)
{
    *first = 0;
    while (comm->places[*first].host != comm->places[rank].host) {
        ++*first;
    }
    return *first == rank;
}

/* Machines first, then a NUMA node and a GPU for each rank, with links of unknown rate. */
static size_t stand_in_print(const cuda_comm *comm, uint32_t *machines, char *text, size_t bytes)
{
    uint32_t count = 0;
    uint32_t first = 0;
    size_t at = (size_t)snprintf(
        text, bytes,
        "{\"format\": \"isthmus-topology\", \"version\": 1, \"source\": \"the driver alone\", "
        "\"missing\": [{\"what\": \"paths\", \"why\": \"the GPUs are in no topology that was "
        "read\"}], \"nodes\": [");
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        bool begins = first_of_host(comm, i, &first);
        machines[i] = begins ? count++ : machines[first];
        at += begins ? (size_t)snprintf(text + at, bytes - at, "%s{\"kind\": \"machine\"}",
                                        i > 0 ? ", " : "")
                     : 0;
    }
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        at += (size_t)snprintf(text + at, bytes - at,
                               ", {\"kind\": \"numa\", \"parent\": %u, \"number\": %u}"
                               ", {\"kind\": \"gpu\", \"parent\": %u, \"number\": %u}",
                               machines[i], i, count + 2u * i, i);
    }
    at += (size_t)snprintf(text + at, bytes - at, "], \"links\": [");
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        at += (size_t)snprintf(text + at, bytes - at,
                               "%s{\"kind\": \"smp\", \"a\": %u, \"b\": %u}"
                               ", {\"kind\": \"pci\", \"a\": %u, \"b\": %u}",
                               i > 0 ? ", " : "", count + 2u * i, machines[i], count + 2u * i + 1u,
                               count + 2u * i);
    }
    return at + (size_t)snprintf(text + at, bytes - at, "]}");
}

static ist_status stand_in_open(cuda_comm *comm)
{
    size_t bytes = 512u + (size_t)comm->rank_count * 320u;
    char *text = ist_alloc(1, bytes);
    uint32_t *machines = ist_alloc(comm->rank_count, sizeof(*machines));
    ist_status status = IST_ERR_MEMORY;
    if (text != NULL && machines != NULL) {
        size_t length = stand_in_print(comm, machines, text, bytes);
        status = ist_topology_parse(text, length, "the driver alone", NULL, &comm->choice.own);
    }
    ist_free(text);
    ist_free(machines);
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        comm->choice.gpus[i] = i;
    }
    return status == IST_ERR_MEMORY ? cuda_fail_memory(comm->owner, "a topology") : status;
}

static ist_status topology_take(cuda_comm *comm)
{
    const ist_topology *topology = cuda_topology(comm->owner);
    bool known = false;
    IST_RETURN_IF_ERROR(gpus_find(comm, topology, &known));
    if (!known) {
        IST_RETURN_IF_ERROR(stand_in_open(comm));
        topology = comm->choice.own;
    }
    comm->choice.topology = topology;
    return IST_OK;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* IST_PEER_ACCESS: the worst path over which GPUs load and store, NVL or PIX … SYS. Unset: SYS, so
 * whatever the driver maps; NVL: nothing over PCIe. */
static ist_status peer_access_read(const cuda_rank *rank, uint32_t *worst)
{
    const char *text = getenv("IST_PEER_ACCESS");
    *worst = IST_PATH_SYS;
    if (text == NULL || text[0] == '\0') {
        return IST_OK;
    }
    for (uint32_t path = IST_PATH_NVL; path <= IST_PATH_SYS; ++path) {
        if (strcmp(text, ist_path_name((ist_path)path)) == 0) {
            *worst = path;
            return IST_OK;
        }
    }
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "IST_PEER_ACCESS",
                         .operation = "comm.open"};
    return ist_raise(IST_ERR_ARGUMENT, &details,
                     "IST_PEER_ACCESS is '%.32s', one of NVL, C2C, PIX, PXB, PHB, NODE, SYS is "
                     "required",
                     text);
}

/* The smallest: teams are equal everywhere; that the limits differ is for the front to tell. */
static uint32_t limit_of_all(const cuda_comm *comm)
{
    uint32_t limit = 0;
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        uint32_t own = comm->places[i].lsa_size_max;
        limit = own != 0 && (limit == 0 || own < limit) ? own : limit;
    }
    return limit;
}

static ist_status wishes_read(cuda_comm *comm)
{
    const char *enable = getenv("NCCL_GIN_ENABLE");
    comm->choice.lsa_size_max = limit_of_all(comm);
    comm->choice.gin_off = enable != NULL && strcmp(enable, "0") == 0 ? 1u : 0u;
    return peer_access_read(comm->owner, &comm->choice.peer_access);
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* `warn`: of rank 0 of a world, once, where the machine is not as the topology says. */
static ist_status decide(const cuda_comm *comm, bool gin_known, bool warn,
                         ist_topology_decision *decision)
{
    const cuda_choice *choice = &comm->choice;
    const ist_topology_able able = {.size = sizeof(able),
                                    .gin_known = gin_known ? 1u : 0u,
                                    .gin = (ist_gin_kind)comm->gin_kind,
                                    .gin_reason = comm->gin_reason,
                                    .maps = choice->maps};
    const ist_topology_policy policy = {.size = sizeof(policy),
                                        .rank_count = comm->rank_count,
                                        .ranks = choice->gpus,
                                        .lsa_size_max = choice->lsa_size_max,
                                        .peer_access = (ist_path)choice->peer_access,
                                        .gin_off = choice->gin_off,
                                        .able = &able};
    decision->size = sizeof(*decision);
    return ist_topology_decide(choice->topology, &policy, warn ? 1u : 0u, decision);
}

static ist_status raise_other(const cuda_comm *comm, uint32_t peer, const verdict *a,
                              const verdict *b)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = (int32_t)peer,
                         .object = "comm",
                         .operation = "comm.open",
                         .expected = a->lsa_size,
                         .observed = b->lsa_size};
    return ist_raise(
        IST_ERR_MISMATCH, &details,
        "ranks 0 and %u choose different ways: load/store teams of %u (at most %u, PCIe up to %s, "
        "GIN %s, by %.40s) and of %u (at most %u, PCIe up to %s, GIN %s, by %.40s)",
        peer, a->lsa_size, a->lsa_size_max, ist_path_name((ist_path)a->peer_access),
        a->gin_off != 0 ? "off" : "on", a->source, b->lsa_size, b->lsa_size_max,
        ist_path_name((ist_path)b->peer_access), b->gin_off != 0 ? "off" : "on", b->source);
}

static ist_status raise_peer(const cuda_comm *comm, uint32_t peer, ist_status why)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = (int32_t)peer,
                         .object = "comm",
                         .operation = "comm.open"};
    return ist_raise(IST_ERR_MISMATCH, &details, "rank %u cannot choose how it reaches others: %s",
                     peer, ist_status_sentence(why));
}

static ist_status verdicts_compare(const cuda_comm *comm, const verdict *all)
{
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        if (all[peer].status != IST_OK) {
            return raise_peer(comm, peer, (ist_status)all[peer].status);
        }
        if (all[peer].lsa_size != all[0].lsa_size || all[peer].gin_off != all[0].gin_off) {
            return raise_other(comm, peer, &all[0], &all[peer]);
        }
    }
    return IST_OK;
}

/* Everyone sees all verdicts, so everyone comes to the same end. */
static ist_status agree(cuda_comm *comm, const verdict *own)
{
    cuda_call call;
    IST_RETURN_IF_ERROR(cuda_comm_gather(comm, own, sizeof(*own), -1, &call));
    ist_status status =
        own->status != IST_OK
            ? (ist_status)own->status
            : verdicts_compare(comm, (const verdict *)(const void *)call.round->data);
    cuda_comm_release(comm, &call);
    return status;
}

static ist_status teams_choose(cuda_comm *comm, verdict *own)
{
    ist_topology_info info = {.size = sizeof(info)};
    ist_topology_decision decision;
    IST_RETURN_IF_ERROR(wishes_read(comm));
    IST_RETURN_IF_ERROR(topology_take(comm));
    IST_RETURN_IF_ERROR(decide(comm, false, false, &decision));
    IST_RETURN_IF_ERROR(ist_topology_query(comm->choice.topology, &info));
    *own = (verdict){.lsa_size = decision.lsa_size,
                     .gin_off = comm->choice.gin_off,
                     .peer_access = comm->choice.peer_access,
                     .lsa_size_max = comm->choice.lsa_size_max};
    (void)snprintf(own->source, sizeof(own->source), "%.63s", info.source);
    return IST_OK;
}

/* What is kept is allocated when the others have this rank's answer: a failure then travels with the
   verdict, and nobody waits for it. */
static ist_status maps_gather(cuda_comm *comm)
{
    cuda_call call;
    size_t words = CUDA_WORDS(comm->rank_count);
    uint64_t *reach = ist_alloc(words, sizeof(*reach));
    if (reach == NULL) {
        return cuda_fail_memory(comm->owner, "a set of peers");
    }
    cuda_team_reach(comm, reach);
    ist_status status = cuda_comm_gather(comm, reach, words * sizeof(*reach), -1, &call);
    ist_free(reach);
    IST_RETURN_IF_ERROR(status);
    comm->choice.gpus = ist_alloc(comm->rank_count, sizeof(*comm->choice.gpus));
    comm->choice.maps = ist_alloc(comm->rank_count * words, sizeof(*comm->choice.maps));
    if (comm->choice.maps != NULL) {
        memcpy(comm->choice.maps, call.round->data, comm->rank_count * words * sizeof(*reach));
    }
    cuda_comm_release(comm, &call);
    return IST_OK;
}

ist_status cuda_choice_open(cuda_comm *comm)
{
    verdict own = {.status = IST_OK};
    IST_RETURN_IF_ERROR(maps_gather(comm));
    bool kept = comm->choice.gpus != NULL && comm->choice.maps != NULL;
    own.status = kept ? teams_choose(comm, &own) : cuda_fail_memory(comm->owner, "sets of peers");
    IST_RETURN_IF_ERROR(agree(comm, &own));
    comm->lsa_size = own.lsa_size;
    comm->lsa_rank = comm->rank % comm->lsa_size;
    return IST_OK;
}

void cuda_choice_close(cuda_comm *comm)
{
    ist_topology_close(comm->choice.own);
    ist_free(comm->choice.gpus);
    ist_free(comm->choice.maps);
}

/* ---- telling --------------------------------------------------------------------------------- */

static const char *kind_text(uint32_t kind)
{
    return kind == IST_GIN_KIND_GDAKI   ? "GDAKI"
           : kind == IST_GIN_KIND_PROXY ? "proxy"
                                        : "of NCCL's next kind";
}

static void tell(const cuda_comm *comm)
{
    uint32_t teams = comm->rank_count / comm->lsa_size;
    if (teams == 1) {
        ist_log(IST_LOG_INFO, "communicator of %u ranks: one load/store team", comm->rank_count);
    } else if (comm->nccl != NULL) {
        ist_log(IST_LOG_INFO, "communicator of %u ranks: %u load/store teams of %u, GIN (%s)",
                comm->rank_count, teams, comm->lsa_size, kind_text(comm->gin_kind));
    } else {
        ist_log(
            IST_LOG_WARN,
            "communicator of %u ranks: %u load/store teams of %u, and kernels have no way between "
            "them: %s",
            comm->rank_count, teams, comm->lsa_size, comm->gin_reason);
    }
    /* Teams that were asked to be smaller differ from NCCL's, as they should. */
    if (comm->nccl_lsa_size != 0 && comm->nccl_lsa_size != comm->lsa_size &&
        comm->choice.lsa_size_max == 0) {
        ist_log(IST_LOG_WARN, "load/store teams have %u ranks, NCCL's %u", comm->lsa_size,
                comm->nccl_lsa_size);
    }
}

void cuda_choice_tell(const cuda_comm *comm, bool first)
{
    ist_error record = {.size = sizeof(record)};
    ist_topology_decision decision;
    if (comm->rank != 0) {
        return;
    }
    tell(comm);
    if (!first || comm->choice.own != NULL) {
        return; /* against a stand-in there is nothing to compare */
    }
    ist_error *former = ist_error_bind(&record);
    ist_status status = decide(comm, true, true, &decision);
    (void)ist_error_bind(former);
    if (status != IST_OK) {
        ist_log(IST_LOG_WARN, "communicator not compared with the topology: %s",
                ist_status_sentence(status));
    }
}

ist_status cuda_comm_ground(void *self, uint64_t number, ist_backend_ground *ground, uint32_t *gpus,
                            uint64_t *maps)
{
    const cuda_comm *comm = cuda_object(number);
    const cuda_choice *choice = &comm->choice;
    (void)self;
    *ground = (ist_backend_ground){.topology = choice->topology,
                                   .lsa_size_max = choice->lsa_size_max,
                                   .peer_access = choice->peer_access,
                                   .gin_off = choice->gin_off,
                                   .gin_known = 1,
                                   .gin = comm->gin_kind,
                                   .maps_known = 1,
                                   .rank_count = comm->rank_count};
    memcpy(gpus, choice->gpus, comm->rank_count * sizeof(*gpus));
    memcpy(maps, choice->maps, comm->rank_count * CUDA_WORDS(comm->rank_count) * sizeof(*maps));
    return IST_OK;
}
