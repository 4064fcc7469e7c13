/* SPDX-License-Identifier: Apache-2.0 */
/* The one-line description of a cluster: how many nodes and GPUs, who shares NVLink, how fast the
 * links are, what each kind of step costs. One list makes the struct, the parser and the printer.
 * All numbers are integers: counts, bytes, bytes per second, picoseconds.
 *
 *   2x8                                       two nodes of eight GPUs, everything else default
 *   nodes=2,gpus=8,nvlink=8,nvlink_rate=366GB/s,nic_rate=400Gb/s,nic_latency=2.5us,sms=4
 *   8x(h200:8 nvswitch nic:8x400G) rails fat-tree:2:1
 */
#ifndef TOPO_CLUSTER_H
#define TOPO_CLUSTER_H

#include <isthmus/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IST_CLUSTER_NODE_GPUS 8u
#define IST_CLUSTER_RANKS_MAX 0x7fffffffu
#define IST_CLUSTER_COUNT_MAX UINT64_C(0x7fffffff)
#define IST_CLUSTER_RATE_MAX UINT64_C(1000000000000000) /* 1 PB/s */
#define IST_CLUSTER_TIME_MAX UINT64_C(1000000000000000) /* 1000 s */
#define IST_CLUSTER_BYTES_MAX UINT64_C(1000000000000000000)

/* GPUs by name: X(name, CUDA architecture, NVLink rate of a GPU, memory rate, memory). 0 B/s: no
 * NVLink. Rates of NVLink are what is left for data; the others are the vendor's. */
#define IST_CLUSTER_MODELS(X)                                                                      \
    X("any", 90, 366000000000, 4200000000000, 141000000000)                                        \
    X("v100", 70, 120000000000, 900000000000, 32000000000)                                         \
    X("a100", 80, 240000000000, 2000000000000, 80000000000)                                        \
    X("h100", 90, 366000000000, 3350000000000, 80000000000)                                        \
    X("h800", 90, 164800000000, 3350000000000, 80000000000)                                        \
    X("h20", 90, 366000000000, 4000000000000, 96000000000)                                         \
    X("h200", 90, 366000000000, 4200000000000, 141000000000)                                       \
    X("b200", 100, 721800000000, 8000000000000, 180000000000)                                      \
    X("gb200", 100, 721800000000, 8000000000000, 186000000000)                                     \
    X("b300", 103, 721800000000, 8000000000000, 288000000000)                                      \
    X("gb300", 103, 721800000000, 8000000000000, 288000000000)                                     \
    X("l4", 89, 0, 300000000000, 24000000000)                                                      \
    X("l20", 89, 0, 864000000000, 48000000000)                                                     \
    X("l40s", 89, 0, 864000000000, 48000000000)                                                    \
    X("t4", 75, 0, 320000000000, 16000000000)                                                      \
    X("rtxpro6000", 120, 0, 1790000000000, 96000000000)

/* X(field, key, unit, default, min, max). Rows are printed in this order; those of unit MODEL
 * and OPTION only when they differ from their default, which stands for "not there". nvlink and
 * nics default to the GPUs of a node. The GPUs of an NVLink domain reach each other by load and
 * store; they are consecutive ranks, and a domain divides a node or spans whole nodes. */
#define IST_CLUSTER_FIELDS(X)                                                                      \
    X(node_count, "nodes", COUNT, 1, 1, IST_CLUSTER_COUNT_MAX)                                     \
    X(gpus_per_node, "gpus", COUNT, IST_CLUSTER_NODE_GPUS, 1, IST_CLUSTER_COUNT_MAX)               \
    /* 0 and 1: every GPU is alone */                                                              \
    X(nvlink_domain, "nvlink", COUNT, IST_CLUSTER_NODE_GPUS, 0, IST_CLUSTER_COUNT_MAX)             \
    /* a GPU, each direction */                                                                    \
    X(nvlink_bytes_per_s, "nvlink_rate", RATE, 366000000000, 1, IST_CLUSTER_RATE_MAX)              \
    X(nvlink_latency_ps, "nvlink_latency", TIME, 730000, 0, IST_CLUSTER_TIME_MAX)                  \
    /* divides the GPUs of a node; 0: no network */                                                \
    X(nics_per_node, "nics", COUNT, IST_CLUSTER_NODE_GPUS, 0, IST_CLUSTER_COUNT_MAX)               \
    /* a NIC, each direction */                                                                    \
    X(nic_bytes_per_s, "nic_rate", RATE, 50000000000, 1, IST_CLUSTER_RATE_MAX)                     \
    X(nic_latency_ps, "nic_latency", TIME, 2500000, 0, IST_CLUSTER_TIME_MAX)                       \
    /* reads and writes together */                                                                \
    X(hbm_bytes_per_s, "hbm_rate", RATE, 4200000000000, 1, IST_CLUSTER_RATE_MAX)                   \
    /* of a GPU */                                                                                 \
    X(memory_bytes, "memory", BYTES, 141000000000, 1, IST_CLUSTER_BYTES_MAX)                       \
    /* blocks resident at once on a GPU */                                                         \
    X(sm_count, "sms", COUNT, 4, 1, 65536)                                                         \
    X(launch_ps, "launch", TIME, 2500000, 0, IST_CLUSTER_TIME_MAX)                                 \
    X(host_call_ps, "host_call", TIME, 200000, 0, IST_CLUSTER_TIME_MAX)                            \
    /* one synchronisation of a cooperative group */                                               \
    X(sync_ps, "sync", TIME, 30000, 0, IST_CLUSTER_TIME_MAX)                                       \
    X(atomic_ps, "atomic", TIME, 500000, 0, IST_CLUSTER_TIME_MAX)                                  \
    /* one load or store of local memory */                                                        \
    X(load_ps, "load", TIME, 5000, 0, IST_CLUSTER_TIME_MAX)                                        \
    /* one all-gather between hosts */                                                             \
    X(exchange_ps, "exchange", TIME, 50000000, 0, IST_CLUSTER_TIME_MAX)                            \
    /* place in IST_CLUSTER_MODELS; sets what the line does not */                                 \
    X(gpu_model, "gpu", MODEL, 0, 0, 255)                                                          \
    /* GPUs and NICs of a node are shared out evenly */                                            \
    X(socket_count, "sockets", OPTION, 1, 1, 64)                                                   \
    /* 1: NIC i of every node on leaf switches of its own, else all NICs of a node on one */       \
    X(rails, "rails", OPTION, 0, 0, 1)                                                             \
    /* leaf switches below spines: bandwidth down to bandwidth up. 0: no spines */                 \
    X(tree_down, "tree_down", OPTION, 0, 0, 1024)                                                  \
    X(tree_up, "tree_up", OPTION, 1, 1, 1024)                                                      \
    /* nodes of a leaf switch; 0: all with rails, else one */                                      \
    X(leaf_nodes, "leaf", OPTION, 0, 0, IST_CLUSTER_COUNT_MAX)

typedef struct ist_cluster {
#define X(field, key, unit, preset, low, high) uint64_t field;
    IST_CLUSTER_FIELDS(X)
#undef X
} ist_cluster;

/* Name of a GPU model; "any" for a number that has none. */
const char *ist_cluster_model_name(uint64_t model);

/* CUDA architecture of a GPU model, as 90. */
uint32_t ist_cluster_model_sm(uint64_t model);

/* Reads a line: first `2x8` (nodes x GPUs) or `2x(…)` if wanted, then words and key=value, with a
 * comma or blanks between; README.md has the grammar. Rates B/s … TB/s and b/s … Tb/s, times ps …
 * s, sizes B … TB and KiB … TiB, counts without a unit; decimals are exact or refused. NULL: one
 * node of eight. Writes `cluster` only on success. IST_ERR_PARSE names position, key, value and
 * what is expected. */
ist_status ist_cluster_parse(const char *text, ist_cluster *cluster);

/* The cluster a world gets that describes none: one node up to eight ranks, else nodes of eight. */
ist_status ist_cluster_for_ranks(uint32_t rank_count, ist_cluster *cluster);

/* Writes the canonical line, ending in a NUL; it parses to an equal struct. `needed` (bytes with
 * the NUL, may be NULL) is always set. NULL text asks for `needed` only. IST_ERR_SIZE: nothing
 * written. */
ist_status ist_cluster_print(const ist_cluster *cluster, char *text, size_t capacity,
                             size_t *needed);

/* Ranks are GPUs, node by node. */
uint32_t ist_cluster_rank_count(const ist_cluster *cluster);

uint32_t ist_cluster_node(const ist_cluster *cluster, uint32_t rank);

/* Whether two ranks reach each other's memory by load and store; a rank reaches its own. */
bool ist_cluster_same_domain(const ist_cluster *cluster, uint32_t a, uint32_t b);

/* Ranks in each LSA team of a communicator: the greatest common divisor of the lengths of all
 * maximal runs of consecutive communicator ranks in one domain, and of `limit` (0: no limit).
 * `world_ranks` lists the members' ranks in the world; NULL: 0, 1, 2, … `rank_count` is at least
 * 1. */
uint32_t ist_cluster_lsa_size(const ist_cluster *cluster, const uint32_t *world_ranks,
                              uint32_t rank_count, uint32_t limit);

#endif
