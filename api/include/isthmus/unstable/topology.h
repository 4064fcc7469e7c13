/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file topology.h
 * Topologies: read one from this machine, a file or a line; ask it for paths, teams and choices;
 * have them explained, written out and drawn. Unstable: may change between releases.
 *
 * A topology is read once and does not change. GPUs are numbered as ranks are: rank i of a
 * communicator is GPU i unless the caller says otherwise.
 *
 * @threads any; a topology may be used by several threads at once
 * @since 0.1
 */
#ifndef IST_UNSTABLE_TOPOLOGY_H
#define IST_UNSTABLE_TOPOLOGY_H

#include <isthmus/comm.h>
#include <isthmus/types.h>

IST_BEGIN_DECLS

/** A machine or cluster as a graph. */
typedef struct ist_topology ist_topology;

/** How a topology is to be read. Zero means default. */
typedef struct ist_topology_desc {
    uint32_t size;        /**< sizeof(ist_topology_desc) */
    uint32_t reserved;    /**< zero */
    const char *group;    /**< files with several machines to choose from: part of the name of one;
                               NULL: the first */
    uint64_t machine_max; /**< cluster lines: machines to write out; 0: all */
} ist_topology_desc;

/** Counts of a topology. Filled up to the caller's `size`. */
typedef struct ist_topology_info {
    uint32_t size;          /**< in: sizeof(ist_topology_info), at least 8 */
    uint32_t machine_count; /**< operating systems */
    uint32_t gpu_count;     /**< GPUs; ranks 0 … gpu_count - 1 */
    uint32_t nic_count;     /**< network ports */
    uint32_t domain_count;  /**< NVLink domains; a GPU without NVLink is one by itself */
    uint32_t rail_count;    /**< rails; 0: none are known */
    uint32_t lsa_size; /**< members of a load/store team when all GPUs are ranks; 0 without GPU */
    uint32_t missing_count; /**< things that could not be found out */
    uint32_t node_count;    /**< nodes of the graph */
    uint32_t link_count;    /**< links of the graph */
    const char *source;     /**< where it comes from, for people; lives as long as the topology */
} ist_topology_info;

/** Kinds of path, best first: X(name, value, text). */
#define IST_PATH_LIST(X)                                                                           \
    X(IST_PATH_LOC, 0, "LOC")    /* the same device */                                             \
    X(IST_PATH_NVL, 1, "NVL")    /* NVLink or XGMI, direct or through its switch */                \
    X(IST_PATH_NVB, 2, "NVB")    /* NVLink or XGMI through one other GPU */                        \
    X(IST_PATH_C2C, 3, "C2C")    /* chip-to-chip link */                                           \
    X(IST_PATH_PIX, 4, "PIX")    /* one PCIe switch */                                             \
    X(IST_PATH_PXB, 5, "PXB")    /* several PCIe switches, no host bridge */                       \
    X(IST_PATH_PHB, 6, "PHB")    /* through a PCIe host bridge */                                  \
    X(IST_PATH_NODE, 7, "NODE")  /* between host bridges of one socket */                          \
    X(IST_PATH_SYS, 8, "SYS")    /* between sockets */                                             \
    X(IST_PATH_NET, 9, "NET")    /* through NICs and the network */                                \
    X(IST_PATH_NONE, 10, "NONE") /* no path known */

/** Kind of a path; the values are those of IST_PATH_LIST. */
typedef enum ist_path {
#define X(name, value, text) name = value,
    IST_PATH_LIST(X)
#undef X
} ist_path;

/** How two ranks exchange data, best first. */
typedef enum ist_way {
    IST_WAY_SELF = 0, /**< a rank and itself */
    IST_WAY_LSA = 1,  /**< loads and stores: one load/store team */
    IST_WAY_GIN = 2,  /**< GPU-initiated network */
    IST_WAY_HOST = 3, /**< copies that the hosts make */
    IST_WAY_NONE = 4  /**< not at all, as far as is known */
} ist_way;

/** Kinds of GIN; the numbers are NCCL's. */
typedef enum ist_gin_kind {
    IST_GIN_KIND_NONE = 0,  /**< none */
    IST_GIN_KIND_PROXY = 2, /**< a host thread posts what the GPU asks for */
    IST_GIN_KIND_GDAKI = 3  /**< the GPU posts to the NIC itself */
} ist_gin_kind;

/** What the machine itself answers for the ranks of a communicator, where a topology only predicts. */
typedef struct ist_topology_able {
    uint32_t size;          /**< sizeof(ist_topology_able) */
    uint32_t gin_known;     /**< 1: `gin` and `gin_reason` are the machine's answer */
    ist_gin_kind gin;       /**< between load/store teams */
    uint32_t reserved;      /**< zero */
    const char *gin_reason; /**< why there is no GIN */
    const uint64_t *maps; /**< [rank_count][(rank_count + 63) / 64]: bit b of row a is set when rank
                                 a can map the memory of rank b; NULL: nobody was asked */
} ist_topology_able;

/** What a communicator asks for. Zero means default. */
typedef struct ist_topology_policy {
    uint32_t size;         /**< sizeof(ist_topology_policy) */
    uint32_t rank_count;   /**< ranks of the communicator; 0: one for each GPU */
    const uint32_t *ranks; /**< [rank_count] GPU of each rank, or NULL: rank i is GPU i */
    uint32_t lsa_size_max; /**< largest load/store team; 0: no limit */
    ist_path
        peer_access;   /**< above IST_PATH_NVL: GPUs of one machine whose path is at most this bad
                                load and store, too */
    uint32_t gin_off;  /**< 1: as if there were no GIN */
    uint32_t reserved; /**< zero */
    const ist_topology_able
        *able; /**< holds against what the topology says; NULL: the topology alone */
} ist_topology_policy;

/** A pair of ranks. Filled up to the caller's `size`. Rates are for one direction. */
typedef struct ist_topology_pair {
    uint32_t size;         /**< in: sizeof(ist_topology_pair), at least 8 */
    ist_path path;         /**< of the way that is chosen */
    ist_way way;           /**< how they exchange data */
    ist_gin_kind gin;      /**< with IST_WAY_GIN: which kind */
    uint32_t nvlink_count; /**< NVLinks side by side, for IST_PATH_NVL */
    uint32_t hop_count;    /**< links of the path */
    uint64_t bytes_per_s;  /**< of the narrowest link, in bytes per second; 0: not known */
    uint64_t latency_ps;   /**< sum over the links, in ps */
    const char *reason;    /**< why this way; static text, or the policy's gin_reason */
    const char *missing;   /**< what a better way would need; NULL: there is none; static text */
    const char *override;  /**< how to get another way; static text */
} ist_topology_pair;

/** What to explain: a pair, an operation, or, with neither, the communicator. */
typedef struct ist_explain_desc {
    uint32_t size;                     /**< sizeof(ist_explain_desc) */
    int32_t rank_a;                    /**< IST_RANK_NONE: no pair */
    int32_t rank_b;                    /**< IST_RANK_NONE: no pair */
    uint32_t reserved;                 /**< zero */
    const char *operation;             /**< "barrier", "all-reduce", "ep.dispatch" …, or NULL */
    const ist_topology_policy *policy; /**< NULL: all defaults */
} ist_explain_desc;

/** Forms in which a topology is written. */
typedef enum ist_topology_format {
    IST_TOPOLOGY_TEXT = 0,   /**< for people, 80 columns */
    IST_TOPOLOGY_MATRIX = 1, /**< paths between devices, 80 columns */
    IST_TOPOLOGY_JSON = 2,   /**< nothing lost; stable */
    IST_TOPOLOGY_NCCL = 3, /**< NCCL topology XML: path types kept, switches of the network lost */
    IST_TOPOLOGY_SVG = 4,  /**< picture of the machine or the first ones of a cluster */
    IST_TOPOLOGY_HEAT = 5  /**< picture of the matrix of paths, SVG */
} ist_topology_format;

/** A communicator of a running world beside what the topology predicts for it. */
typedef struct ist_topology_comparison {
    uint32_t size;               /**< in: sizeof(ist_topology_comparison), at least 8 */
    uint32_t difference_count;   /**< 0: the backend's answer is the predicted one */
    uint32_t lsa_size_predicted; /**< members of a load/store team */
    uint32_t lsa_size_found;     /**< as the backend has it */
    uint32_t gin_predicted;      /**< 1: RDMA NICs connect all teams */
    uint32_t gin_found;          /**< as the backend has it */
    const char *gin_reason;      /**< NULL, or the backend's reason; as long as the world lives */
    const char *gin_reason_predicted; /**< NULL, or the topology's reason; static text */
} ist_topology_comparison;

/** The choice for all ranks of a communicator. Filled up to the caller's `size`. */
typedef struct ist_topology_decision {
    uint32_t size;             /**< in: sizeof(ist_topology_decision), at least 8 */
    uint32_t lsa_size;         /**< members of a load/store team: blocks of consecutive ranks */
    ist_gin_kind gin;          /**< between teams */
    uint32_t difference_count; /**< from what the topology alone would have given */
    const char *gin_reason;    /**< NULL, or why there is no GIN; static text, or the policy's */
} ist_topology_decision;

/** What a backend formed when it opened a communicator; between teams all pairs use one way. */
typedef struct ist_topology_formed {
    uint32_t size;            /**< sizeof(ist_topology_formed) */
    uint32_t rank_count;      /**< members */
    uint32_t lsa_size;        /**< members of a load/store team, at least 1 */
    uint32_t lsa_size_max;    /**< limit that was asked for; 0: none */
    ist_gin_kind gin;         /**< between teams */
    ist_path peer_access;     /**< worst PCIe path over which it loads and stores; LOC: none */
    const char *gin_reason;   /**< NULL, or why there is no GIN */
    const uint32_t *gpus;     /**< [rank_count] GPU of each rank in the topology; NULL: i */
    const char *const *uuids; /**< [rank_count] of its GPU, as "GPU-…"; NULL: `gpus` holds */
    uint32_t part;            /**< 1: there are further members, on other machines */
    uint32_t reserved;        /**< zero */
} ist_topology_formed;

/**
 * For backends, when a communicator opens: holds what was formed against the topology of the machine,
 * and logs one line at level warn that names both where they differ. The topology is the one that
 * IST_TOPOLOGY names (as for ist_topology_open(); "off": none), else `usual`. Local.
 *
 * @param usual       source where IST_TOPOLOGY is not set; NULL: nothing is compared then
 * @param comparison  out: filled up to its size, zero when nothing was compared; NULL is allowed
 * @return IST_OK, also where the topology cannot be read or does not know the GPUs, which is logged
 *         at level warn; argument errors
 */
IST_API_UNSTABLE ist_status ist_topology_announce(const char *usual,
                                                  const ist_topology_formed *formed,
                                                  ist_topology_comparison *comparison);

/**
 * The cluster line that describes the same machines to the simulator, as far as a line can: nodes,
 * GPUs, load/store teams under the policy, NICs, rates.
 *
 * @param policy  NULL: all defaults; its ranks are not looked at
 * @param text    out: the line with its NUL; NULL with capacity 0 asks for `needed` only
 * @param needed  out: bytes of the text with its NUL; may be NULL unless `text` is
 * @return IST_OK; argument errors; IST_ERR_UNSUPPORTED for machines that differ; IST_ERR_SIZE
 */
IST_API_UNSTABLE ist_status ist_topology_cluster(const ist_topology *topology,
                                                 const ist_topology_policy *policy, char *text,
                                                 size_t capacity, size_t *needed);

/**
 * Reads a topology, seals and checks it.
 *
 * Layers are tried in order, and what none of them knows is listed as missing: an explicit source;
 * for "live" hwloc, then NVML where it is installed, then the system's files.
 *
 * @param source    "live": this machine; the path of a file (NCCL topology or graph XML, hwloc XML
 *                  of any version, JSON, or a text with a line); a cluster line, as
 *                  "8x(h200:8 nvswitch nic:8x400G) rails"; a synthetic string of hwloc
 * @param desc      NULL: all defaults
 * @param topology  out: close it with ist_topology_close()
 * @return IST_OK; argument errors; IST_ERR_PARSE naming line (or, of a cluster line, position) and
 *         reason; IST_ERR_IO; IST_ERR_RANGE for more than a graph may have (262,144 nodes);
 *         IST_ERR_SYSTEM when hwloc fails; IST_ERR_MEMORY
 */
IST_API_UNSTABLE IST_MUST_USE ist_status ist_topology_open(const char *source,
                                                           const ist_topology_desc *desc,
                                                           ist_topology **topology);

/**
 * The same from bytes in memory.
 *
 * @param bytes  [count] what a file would hold
 * @param name   stands for the file in messages; NULL: "memory"
 * @return as ist_topology_open()
 */
IST_API_UNSTABLE IST_MUST_USE ist_status ist_topology_parse(const void *bytes, size_t count,
                                                            const char *name,
                                                            const ist_topology_desc *desc,
                                                            ist_topology **topology);

/** Frees a topology. NULL is allowed. */
IST_API_UNSTABLE void ist_topology_close(ist_topology *topology);

/**
 * Checks the invariants again: tree, ends of links, rates, unique bus ids, domains that hold.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE naming the node or link
 */
IST_API_UNSTABLE ist_status ist_topology_check(const ist_topology *topology);

/**
 * Counts.
 *
 * @param info  out: filled up to info->size
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE
 */
IST_API_UNSTABLE ist_status ist_topology_query(const ist_topology *topology,
                                               ist_topology_info *info);

/**
 * Something that could not be found out.
 *
 * @param index  0 … missing_count - 1
 * @param what   out: what is not known; lives as long as the topology
 * @param why    out: and why
 * @return IST_OK; IST_ERR_NULL; IST_ERR_RANGE past the last
 */
IST_API_UNSTABLE ist_status ist_topology_missing(const ist_topology *topology, uint32_t index,
                                                 const char **what, const char **why);

/**
 * Path and choice for two ranks: same load/store team, else GIN, else the hosts.
 *
 * @param policy  NULL: all defaults
 * @param pair    out: filled up to pair->size
 * @return IST_OK; argument errors; IST_ERR_RANGE for a rank or GPU that is not there
 */
IST_API_UNSTABLE ist_status ist_topology_choose(const ist_topology *topology,
                                                const ist_topology_policy *policy, uint32_t rank_a,
                                                uint32_t rank_b, ist_topology_pair *pair);

/**
 * Explains in words, in 80 columns: path, way, numbers with their origins, reason, what is missing
 * for better, how to get another way.
 *
 * @param desc      NULL: the communicator of all GPUs
 * @param text      out: [capacity], ending in a NUL; NULL with capacity 0 asks for `needed` alone
 * @param capacity  bytes of `text`
 * @param needed    out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK; argument errors; IST_ERR_RANGE for a rank that is not there; IST_ERR_ARGUMENT for
 *         an unknown operation, naming those that are known; IST_ERR_SIZE; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_topology_explain(const ist_topology *topology,
                                                 const ist_explain_desc *desc, char *text,
                                                 size_t capacity, size_t *needed);

/**
 * Writes a topology.
 *
 * @param format     which form
 * @param operation  IST_TOPOLOGY_SVG: links are coloured by the load that this operation makes when
 *                   every pair sends alike; NULL: by kind. Else NULL
 * @param text       out: [capacity], ending in a NUL; NULL with capacity 0 asks for `needed` alone
 * @param capacity   bytes of `text`
 * @param needed     out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK; IST_ERR_NULL; IST_ERR_ARGUMENT; IST_ERR_SIZE; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_topology_print(const ist_topology *topology,
                                               ist_topology_format format, const char *operation,
                                               char *text, size_t capacity, size_t *needed);

/**
 * Says what differs between two topologies: counts, teams, path type and rate of every pair. How
 * their files write them makes no difference.
 *
 * @param difference_count  out: differences, all of them; may be NULL
 * @param text              out: [capacity], lines "- first" and "+ second"; NULL with capacity 0
 *                          asks for `needed` alone
 * @param capacity          bytes of `text`
 * @param needed            out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK, also when they differ; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_topology_diff(const ist_topology *first, const ist_topology *second,
                                              uint32_t *difference_count, char *text,
                                              size_t capacity, size_t *needed);

/**
 * Compares a communicator with what the topology predicts for its ranks. On GPUs the load/store
 * team is the reference library's answer, and a difference is a finding about one of the two.
 *
 * @param policy      how the communicator was opened; NULL: all defaults. Its rank_count is that of
 *                    the communicator, or 0
 * @param comparison  out: filled up to comparison->size
 * @return IST_OK, also when they differ; argument errors; IST_ERR_RANGE when the communicator has
 *         more ranks than the topology has GPUs
 * @threads the rank's own
 */
IST_API_UNSTABLE ist_status ist_topology_compare(const ist_topology *topology,
                                                 const ist_topology_policy *policy, ist_comm *comm,
                                                 ist_topology_comparison *comparison);

/**
 * GPUs of a topology by what the driver calls them. Quiet: one that is not there is no error.
 *
 * @param uuids  [count] as "GPU-…"
 * @param gpus   out: [count] their numbers; UINT32_MAX for those that are not there
 * @return IST_OK; IST_ERR_NULL
 */
IST_API_UNSTABLE ist_status ist_topology_gpus(const ist_topology *topology,
                                              const char *const *uuids, uint32_t count,
                                              uint32_t *gpus);

/**
 * For backends, when a communicator opens: the choice for all its ranks, by the rules of
 * ist_topology_choose(). Local; what ranks decide is equal where their topologies, policies and
 * answers of the machine are.
 *
 * @param policy    with ranks; its `able` holds against the topology
 * @param warn      1: one line at level warn names both answers where the machine's is not the
 *                  topology's
 * @param decision  out: filled up to decision->size
 * @return IST_OK; argument errors; IST_ERR_RANGE for a GPU that is not there
 */
IST_API_UNSTABLE ist_status ist_topology_decide(const ist_topology *topology,
                                                const ist_topology_policy *policy, uint32_t warn,
                                                ist_topology_decision *decision);

/**
 * Path and choice for two ranks of an open communicator: what the backend uses, and why. Local.
 *
 * @param pair  out: filled up to pair->size; its texts live as long as the communicator
 * @return IST_OK; argument errors; IST_ERR_RANGE for a rank that is not there; IST_ERR_UNSUPPORTED
 *         from a backend that does not choose
 * @threads the rank's own
 */
IST_API_UNSTABLE ist_status ist_comm_pair(ist_comm *comm, uint32_t rank_a, uint32_t rank_b,
                                          ist_topology_pair *pair);

/**
 * Explains an open communicator, two of its ranks, or an operation on it, as ist_topology_explain()
 * does: with what the machine has answered and what is in force. Local.
 *
 * @param desc      NULL: the communicator as a whole. Its policy has to be NULL
 * @param text      out: [capacity], ending in a NUL; NULL with capacity 0 asks for `needed` alone
 * @param capacity  bytes of `text`
 * @param needed    out: bytes needed with the NUL; may be NULL unless `text` is
 * @return as ist_topology_explain(); IST_ERR_UNSUPPORTED from a backend that does not choose
 * @threads the rank's own
 */
IST_API_UNSTABLE ist_status ist_comm_explain(ist_comm *comm, const ist_explain_desc *desc,
                                             char *text, size_t capacity, size_t *needed);

/**
 * Short name of a kind of path, e.g. "PHB".
 *
 * @return static text; "?" for a value outside the list
 */
IST_API_UNSTABLE const char *ist_path_name(ist_path path);

IST_END_DECLS

#endif
