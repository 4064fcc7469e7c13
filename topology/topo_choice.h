/* SPDX-License-Identifier: Apache-2.0 */
/* Which way two ranks take: load/store, GPU-initiated network, or copies by the hosts; and why not
 * a better one.
 */
#ifndef TOPO_CHOICE_H
#define TOPO_CHOICE_H

#include "topo_graph.h"

/* X(name, text), best first. */
#define TOPO_WAY_LIST(X)                                                                           \
    X(TOPO_WAY_SELF, "itself")                                                                     \
    X(TOPO_WAY_LSA, "load/store (LSA)")                                                            \
    X(TOPO_WAY_GIN, "GPU-initiated network (GIN)")                                                 \
    X(TOPO_WAY_HOST, "copies by the hosts")                                                        \
    X(TOPO_WAY_NONE, "none")

typedef enum topo_way {
#define X(name, text) name,
    TOPO_WAY_LIST(X)
#undef X
        TOPO_WAYS
} topo_way;

/* Kinds of GIN; the numbers are NCCL's. */
typedef enum topo_gin { TOPO_GIN_NONE = 0, TOPO_GIN_PROXY = 2, TOPO_GIN_GDAKI = 3 } topo_gin;

/* What the machine itself answers for the ranks of a communicator; a graph can only predict it. */
typedef struct topo_able {
    const uint64_t *maps; /* [ranks][TOPO_ABLE_WORDS(ranks)]: bit b of row a is set when rank a can
                               map the memory of rank b; NULL: nobody was asked */
    topo_gin gin;         /* between teams, when it is known */
    const char *gin_reason; /* why there is none; lives as long as whoever asks */
    bool gin_known;
} topo_able;

#define TOPO_ABLE_WORDS(ranks) (((size_t)(ranks) + 63u) / 64u)

/* What is asked for, beyond what is there. Zero-initialised: the defaults. */
typedef struct topo_policy {
    const uint32_t *ranks;   /* GPU of each rank of the communicator; NULL: GPU i is rank i */
    uint32_t rank_count;     /* 0: one for each GPU */
    uint32_t lsa_max;        /* largest load/store team; 0: no limit */
    topo_path_type pcie_max; /* above NVL: PCIe paths up to this one are load/store, too */
    uint32_t lsa_size;       /* as topo_policy_lsa() gave it, to be asked once; 0: worked out */
    const topo_able *able;   /* holds against what the graph says; NULL: the graph alone */
    bool gin_off;
} topo_policy;

typedef struct topo_choice {
    topo_way way;
    topo_gin gin;
    uint32_t lsa_size;
    topo_path path;       /* that this way takes */
    const char *reason;   /* why this way; static text, or as long as the policy's `able` */
    const char *missing;  /* what a better way would need; NULL: there is no better way */
    const char *override; /* how to get another way; static text */
} topo_choice;

/* Decides for two ranks of the communicator. */
void topo_choose(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                 uint32_t rank_b, topo_choice *choice);

/* What a NIC can do: a kind of GIN, or NONE and why. */
topo_gin topo_nic_gin(const topo_graph *graph, uint32_t nic, const char **reason);

/* What a GPU and its NIC can do. */
topo_gin topo_gpu_gin(const topo_graph *graph, uint32_t gpu, const char **reason);

uint32_t topo_policy_ranks(const topo_graph *graph, const topo_policy *policy);
uint32_t topo_policy_lsa(const topo_graph *graph, const topo_policy *policy);
uint32_t topo_policy_gpu(const topo_graph *graph, const topo_policy *policy, uint32_t rank);

const char *topo_way_text(topo_way way);
const char *topo_gin_text(topo_gin gin);

#endif
