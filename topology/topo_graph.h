/* SPDX-License-Identifier: Apache-2.0 */
/* The one graph: machines, packages, NUMA nodes, PCI, GPUs, NICs, switches, and the links between
 * them, each number with its origin. Every reader makes one, every question is asked of one.
 *
 * Nodes form a tree by `parent` (what contains or carries what); the link to the parent, where data
 * flows, is `uplink`. NVLink, C2C and network links cross the tree. A graph is made with
 * topo_graph_open() and the add functions, sealed once, and read-only from then on: queries need no
 * lock. All numbers are integers: bytes, bytes per second in one direction, picoseconds.
 *
 * GPUs are numbered 0, 1, … in rank order (topo_gpu()), NICs in the order of their file
 * (topo_nic()).
 */
#ifndef TOPO_GRAPH_H
#define TOPO_GRAPH_H

#include <isthmus/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPO_NONE UINT32_MAX
#define TOPO_BUS_NONE UINT64_MAX

/* Limits; a file that wants more is refused. */
#define TOPO_NODES_MAX 262144u
#define TOPO_LINKS_MAX 1048576u
#define TOPO_RATE_MAX UINT64_C(1000000000000000) /* 1 PB/s */
#define TOPO_TIME_MAX UINT64_C(1000000000000000) /* 1000 s */
#define TOPO_DEPTH_MAX 28u                       /* nodes from a root to a leaf */
#define TOPO_HOPS_MAX 128u                       /* four climbs and a network */

/* X(name, text). */
#define TOPO_KIND_LIST(X)                                                                          \
    X(TOPO_MACHINE, "machine")         /* one operating system; the root of its tree */            \
    X(TOPO_PACKAGE, "package")         /* a socket */                                              \
    X(TOPO_NUMA, "numa")               /* memory and the cores beside it */                        \
    X(TOPO_HOST_BRIDGE, "host bridge") /* root complex; parent of root ports */                    \
    X(TOPO_PCI_SWITCH, "pci switch")   /* one physical or virtual switch */                        \
    X(TOPO_PCI_DEVICE, "pci device") /* a function of unknown use, or one shared by several      \
                                          NICs or GPUs below it */ \
    X(TOPO_GPU, "gpu")                                                                             \
    X(TOPO_NIC, "nic")               /* a network port */                                          \
    X(TOPO_NVSWITCH, "nvswitch")     /* GPUs linked to the same one reach each other */            \
    X(TOPO_NET_SWITCH, "net switch") /* leaf or spine of the network */                            \
    X(TOPO_RAIL, "rail")             /* the leaf switch of one rail */

typedef enum topo_kind {
#define X(name, text) name,
    TOPO_KIND_LIST(X)
#undef X
        TOPO_KINDS
} topo_kind;

#define TOPO_LINK_LIST(X)                                                                          \
    X(TOPO_LINK_LOCAL, "local")   /* inside one package or device */                               \
    X(TOPO_LINK_NVLINK, "nvlink") /* GPU–GPU, GPU–NVSwitch, GPU–CPU; `count` links */        \
    X(TOPO_LINK_XGMI, "xgmi")     /* the same between AMD GPUs */                                  \
    X(TOPO_LINK_C2C, "c2c")       /* GPU–CPU, chip to chip */                                    \
    X(TOPO_LINK_PCI, "pci")       /* `count` lanes */                                              \
    X(TOPO_LINK_SMP, "smp")       /* between NUMA nodes or packages */                             \
    X(TOPO_LINK_NET, "net")       /* NIC–switch, switch–switch; `count` parallel cables */

typedef enum topo_link_kind {
#define X(name, text) name,
    TOPO_LINK_LIST(X)
#undef X
        TOPO_LINK_KINDS
} topo_link_kind;

/* Where a number comes from. A nominal rate that a file or the machine states is the vendor's. */
#define TOPO_ORIGIN_LIST(X)                                                                        \
    X(TOPO_DEFAULT, "default")   /* assumed; nothing was known */                                  \
    X(TOPO_VENDOR, "vendor")     /* nominal, or derived from the stated generation and width */    \
    X(TOPO_MEASURED, "measured") /* fitted from measurements */

typedef enum topo_origin {
#define X(name, text) name,
    TOPO_ORIGIN_LIST(X)
#undef X
        TOPO_ORIGINS
} topo_origin;

#define TOPO_HEALTH_LIST(X)                                                                        \
    X(TOPO_HEALTHY, "healthy")                                                                     \
    X(TOPO_DEGRADED, "degraded") /* fewer lanes or links than its ends can do */                   \
    X(TOPO_DOWN, "down")         /* there, but carries nothing: no path uses it */

typedef enum topo_health {
#define X(name, text) name,
    TOPO_HEALTH_LIST(X)
#undef X
        TOPO_HEALTHS
} topo_health;

/* Kinds of path between two devices, best first: X(name, short text, meaning). */
#define TOPO_PATH_LIST(X)                                                                          \
    X(TOPO_PATH_LOC, "LOC", "the same device")                                                     \
    X(TOPO_PATH_NVL, "NVL", "NVLink or XGMI, direct or through its switch")                        \
    X(TOPO_PATH_NVB, "NVB", "NVLink or XGMI through one other GPU")                                \
    X(TOPO_PATH_C2C, "C2C", "chip-to-chip link")                                                   \
    X(TOPO_PATH_PIX, "PIX", "one PCIe switch")                                                     \
    X(TOPO_PATH_PXB, "PXB", "several PCIe switches, no host bridge")                               \
    X(TOPO_PATH_PHB, "PHB", "through a PCIe host bridge")                                          \
    X(TOPO_PATH_NODE, "NODE", "between host bridges of one socket")                                \
    X(TOPO_PATH_SYS, "SYS", "between sockets")                                                     \
    X(TOPO_PATH_NET, "NET", "through NICs and the network")                                        \
    X(TOPO_PATH_NONE, "NONE", "no path known")

typedef enum topo_path_type {
#define X(name, text, meaning) name,
    TOPO_PATH_LIST(X)
#undef X
        TOPO_PATH_TYPES
} topo_path_type;

typedef struct topo_attr {
    const char *key;
    const char *value;
    uint32_t next; /* next attribute of the node, TOPO_NONE at the end */
} topo_attr;

typedef struct topo_node {
    topo_kind kind;
    uint32_t parent;  /* TOPO_NONE: a root */
    uint32_t uplink;  /* link to the parent; TOPO_NONE when there is none */
    uint32_t machine; /* node of the machine it is in; TOPO_NONE: in none (fabric) */
    uint32_t index;   /* its number among nodes of its kind; GPUs: rank order. Set by the seal */
    uint32_t
        domain;     /* GPUs: number of the NVLink domain (LSA). NICs, rails: rail. Else TOPO_NONE */
    uint32_t attrs; /* first attribute; what a file says beyond these fields */
    uint32_t class_id; /* PCI class, 24 bits; 0: not known */
    uint16_t vendor;   /* PCI ids; 0: not known */
    uint16_t device;
    uint64_t bus;     /* domain << 24 | bus << 16 | device << 8 | function, or TOPO_BUS_NONE */
    uint64_t number;  /* as the file numbers it: GPU dev, NUMA os index; TOPO_BUS_NONE: not */
    const char *name; /* never NULL, may be empty */
} topo_node;

typedef struct topo_link {
    uint32_t a, b;
    topo_link_kind kind;
    topo_health health;
    uint32_t count;               /* parallel links or lanes, 0: not known */
    topo_origin rate_origin;      /* of bytes_per_s */
    topo_origin latency_origin;   /* of latency_ps */
    uint64_t bytes_per_s;         /* what one stream can get, one direction; 0: not known */
    uint64_t nominal_bytes_per_s; /* as sold, one direction; 0: not known */
    uint64_t now_bytes_per_s;     /* nominal rate of the present link state when that is lower (an
                                     idle link trains down); 0: not known or the same */
    uint64_t latency_ps;
} topo_link;

/* What a reader could not find out: "network switches", "NVLink". One line each, never guessed. */
typedef struct topo_missing {
    const char *what; /* what is not known */
    const char *why;  /* and why: "the file has no <nvlink> elements" */
} topo_missing;

typedef struct topo_graph topo_graph;

/* ------------------------------------------------------------------------------------ making */

ist_status topo_graph_open(topo_graph **graph);
void topo_graph_close(topo_graph *graph);

/* A node with all fields empty. `id` is its place, ascending from 0; IST_ERR_RANGE at the limit. */
ist_status topo_node_add(topo_graph *graph, topo_kind kind, uint32_t parent, const char *name,
                         uint32_t *id);

/* A link, copied. Becomes the uplink of `a` when `b` is its parent and it has none yet. */
ist_status topo_link_add(topo_graph *graph, const topo_link *link, uint32_t *id);

/* Keeps a text beside a node; a later one of the same key replaces it. */
ist_status topo_attr_set(topo_graph *graph, uint32_t node, const char *key, const char *value);

/* Keeps a copy of a text as long as the graph lives. */
ist_status topo_text_keep(topo_graph *graph, const char *text, const char **kept);

ist_status topo_missing_add(topo_graph *graph, const char *what, const char *why);

/* A later layer has found out what an earlier one could not. */
void topo_missing_drop(topo_graph *graph, const char *what);

/* Where the graph comes from, for people: "NCCL topology XML dgx.xml". */
ist_status topo_source_set(topo_graph *graph, const char *source);

/* Only before the seal. NULL past the end. */
topo_node *topo_node_edit(topo_graph *graph, uint32_t node);
topo_link *topo_link_edit(topo_graph *graph, uint32_t link);

/* Numbers the nodes, builds neighbour lists, finds NVLink domains and rails, checks (topo_check()).
 * On failure the graph can only be closed. */
ist_status topo_graph_seal(topo_graph *graph);

/* ------------------------------------------------------------------------------------ reading */

uint32_t topo_node_count(const topo_graph *graph);
uint32_t topo_link_count(const topo_graph *graph);
const topo_node *topo_node_at(const topo_graph *graph, uint32_t node); /* node < count */
const topo_link *topo_link_at(const topo_graph *graph, uint32_t link); /* link < count */
uint32_t topo_missing_count(const topo_graph *graph);
const topo_missing *topo_missing_at(const topo_graph *graph, uint32_t index);
const char *topo_source(const topo_graph *graph);

/* NULL when the node has no such attribute. */
const char *topo_attr_get(const topo_graph *graph, uint32_t node, const char *key);
const topo_attr *topo_attr_at(const topo_graph *graph, uint32_t attr);

/* Nodes of a kind, and the i-th of them (its `index` is i); TOPO_NONE past the end. */
uint32_t topo_kind_count(const topo_graph *graph, topo_kind kind);
uint32_t topo_kind_at(const topo_graph *graph, topo_kind kind, uint32_t index);
uint32_t topo_gpu_count(const topo_graph *graph);
uint32_t topo_gpu(const topo_graph *graph, uint32_t rank); /* node of the rank's GPU */
uint32_t topo_nic_count(const topo_graph *graph);
uint32_t topo_nic(const topo_graph *graph, uint32_t index);

/* Links that end at a node: i below topo_degree(). topo_other() gives the far end of one. */
uint32_t topo_degree(const topo_graph *graph, uint32_t node);
uint32_t topo_link_of(const topo_graph *graph, uint32_t node, uint32_t i);
uint32_t topo_other(const topo_graph *graph, uint32_t link, uint32_t node);

const char *topo_kind_text(topo_kind kind);
const char *topo_link_text(topo_link_kind kind);
const char *topo_origin_text(topo_origin origin);
const char *topo_health_text(topo_health health);
const char *topo_path_text(topo_path_type type);
const char *topo_path_meaning(topo_path_type type);

/* ------------------------------------------------------------------------------------ paths */

/* A path from one node to another. links[i] leads from nodes[i] to nodes[i + 1]. */
typedef struct topo_path {
    topo_path_type type;
    uint32_t hop_count;
    uint64_t bytes_per_s;    /* of the narrowest link with a known rate; 0: none is known */
    uint64_t latency_ps;     /* sum */
    uint32_t narrowest;      /* link with that rate; TOPO_NONE */
    topo_origin rate_origin; /* of that rate */
    uint32_t link_count_nv;  /* NVLinks side by side, for NVL: the 18 of "NV18" */
    uint32_t links[TOPO_HOPS_MAX];
    uint32_t nodes[TOPO_HOPS_MAX + 1];
} topo_path;

/* Best path between two nodes (GPUs, NICs, NUMA nodes). Ranks better types first, then rate, then
 * hops, then lower node numbers; the same both ways. A path that does not exist has type NONE. */
void topo_path_find(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path);

/* The path over NICs and the network also where a shorter one exists. False: there is none. */
bool topo_path_network(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path);

/* Type alone. */
topo_path_type topo_path_type_of(const topo_graph *graph, uint32_t from, uint32_t to);

/* ------------------------------------------------------------------------------------ teams */

/* GPUs of one NVLink domain reach each other over NVLink pair by pair. */
uint32_t topo_domain_count(const topo_graph *graph);
bool topo_same_domain(const topo_graph *graph, uint32_t gpu_a, uint32_t gpu_b);

/* Ranks in each LSA team when rank i of the communicator uses GPU ranks[i] (NULL: GPU i): the
 * greatest common divisor of the runs of consecutive ranks that reach each other, and of `limit`
 * (0: none). A pair reaches each other in one NVLink domain; with `pcie_max` above NVL also in one
 * machine over a path at most that bad (peer access over PCIe). */
uint32_t topo_lsa_size(const topo_graph *graph, const uint32_t *ranks, uint32_t rank_count,
                       uint32_t limit, topo_path_type pcie_max);

/* What the driver said of peer access between two GPUs of one machine. Only a live machine
 * knows. */
typedef enum topo_peer { TOPO_PEER_UNKNOWN, TOPO_PEER_ALLOWED, TOPO_PEER_REFUSED } topo_peer;
topo_peer topo_peer_access(const topo_graph *graph, uint32_t gpu_a, uint32_t gpu_b);

/* NICs that are nearest to a GPU (all of the best type in its machine), and the one it should use:
 * among the nearest, GPUs that share them take turns in GPU order. TOPO_NONE: the machine has
 * none. */
uint32_t topo_gpu_nic(const topo_graph *graph, uint32_t gpu);
uint32_t topo_gpu_nics(const topo_graph *graph, uint32_t gpu, uint32_t *nics, uint32_t capacity,
                       topo_path_type *type);

/* Rails: NICs of the same number reach each other through one leaf switch. */
uint32_t topo_rail_count(const topo_graph *graph);

#endif
