/* SPDX-License-Identifier: Apache-2.0 */
/* The one-line description of a cluster: how many nodes and GPUs, who shares NVLink, how fast the
 * links are, what each kind of step costs. One list makes the struct, the parser and the printer.
 * All numbers are integers: counts, bytes, bytes per second, picoseconds.
 *
 *   2x8                                       two nodes of eight GPUs, everything else default
 *   nodes=2,gpus=8,nvlink=8,nvlink_rate=366GB/s,nic_rate=400Gb/s,nic_latency=2.5us,sms=4
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

/* X(field, key, unit, default, min, max). Rows are printed in this order. nvlink and nics default to
 * the GPUs of a node. The GPUs of an NVLink domain reach each other by load and store; they are
 * consecutive ranks, and a domain divides a node or spans whole nodes. */
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
    X(exchange_ps, "exchange", TIME, 50000000, 0, IST_CLUSTER_TIME_MAX)

typedef struct ist_cluster {
#define X(field, key, unit, preset, low, high) uint64_t field;
    IST_CLUSTER_FIELDS(X)
#undef X
} ist_cluster;

/* Reads a line: first `2x8` (nodes x GPUs) if wanted, then key=value, with a comma or blanks between.
 * Rates B/s … TB/s and b/s … Tb/s, times ps … s, sizes B … TB and KiB … TiB, counts without a unit;
 * decimals are exact or refused. NULL: one node of eight. Writes `cluster` only on success.
 * IST_ERR_PARSE names position, key, value and what is expected. */
ist_status ist_cluster_parse(const char *text, ist_cluster *cluster);

/* The cluster a world gets that describes none: one node up to eight ranks, else nodes of eight. */
ist_status ist_cluster_for_ranks(uint32_t rank_count, ist_cluster *cluster);

/* Writes the canonical line, ending in a NUL; it parses to an equal struct. `needed` (bytes with the
 * NUL, may be NULL) is always set. NULL text asks for `needed` only. IST_ERR_SIZE: nothing written. */
ist_status ist_cluster_print(const ist_cluster *cluster, char *text, size_t capacity,
                             size_t *needed);

/* Ranks are GPUs, node by node. */
uint32_t ist_cluster_rank_count(const ist_cluster *cluster);

uint32_t ist_cluster_node(const ist_cluster *cluster, uint32_t rank);

/* Whether two ranks reach each other's memory by load and store; a rank reaches its own. */
bool ist_cluster_same_domain(const ist_cluster *cluster, uint32_t a, uint32_t b);

/* Ranks in each LSA team of a communicator: the greatest common divisor of the lengths of all maximal
 * runs of consecutive communicator ranks in one domain, and of `limit` (0: no limit).
 * `world_ranks` lists the members' ranks in the world; NULL: 0, 1, 2, … `rank_count` is at least 1. */
uint32_t ist_cluster_lsa_size(const ist_cluster *cluster, const uint32_t *world_ranks,
                              uint32_t rank_count, uint32_t limit);

#endif
