/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file whatif.h
 * Groups of operations, and how long they would take: on any described cluster, from one process,
 * without a GPU and without side effects. Unstable: may change between releases.
 *
 * A group collects operations; ist_group_end() with IST_GROUP_SIMULATE answers how long they take
 * together, over which path, which link is the bottleneck and which links idle. Operations of one
 * stream follow each other, streams overlap and share links. The same group can be asked again with
 * edits: a NIC less, half a link, twice the nodes.
 *
 * Times are picoseconds, rates bytes per second. Answers are integers and equal everywhere.
 *
 * @threads any, one at a time for each object
 * @since 0.1
 */
#ifndef IST_UNSTABLE_WHATIF_H
#define IST_UNSTABLE_WHATIF_H

#include <isthmus/comm.h>
#include <isthmus/types.h>

IST_BEGIN_DECLS

typedef struct ist_group ist_group;     /**< operations that are closed together */
typedef struct ist_profile ist_profile; /**< constants of a machine, each with its origin */
typedef struct ist_fit ist_fit;         /**< a fit of constants to timings, and its errors */

/** @name What can be asked about. */
/**@{*/

/** Operations: X(name, value, text). Values are permanent. */
#define IST_OP_LIST(X)                                                                             \
    X(IST_OP_ALL_REDUCE, 0, "allreduce")         /* bytes: one rank's buffer */                    \
    X(IST_OP_ALL_GATHER, 1, "allgather")         /* bytes: the whole output */                     \
    X(IST_OP_REDUCE_SCATTER, 2, "reducescatter") /* bytes: one rank's whole input */               \
    X(IST_OP_ALL_TO_ALL, 3, "alltoall")          /* bytes: one rank's whole input */               \
    X(IST_OP_BROADCAST, 4, "broadcast")          /* bytes: the buffer */                           \
    X(IST_OP_SEND_RECV, 5, "sendrecv")           /* every rank to the next one */                  \
    X(IST_OP_P2P, 6, "p2p")                      /* src to dst */                                  \
    X(IST_OP_PUT, 7, "put")       /* one-sided, src to dst, from a running kernel */               \
    X(IST_OP_SIGNAL, 8, "signal") /* the same without data */                                      \
    X(IST_OP_BARRIER, 9, "barrier")                                                                \
    X(IST_OP_EP_DISPATCH, 10, "ep_dispatch")                                                       \
    X(IST_OP_EP_COMBINE, 11, "ep_combine")                                                         \
    X(IST_OP_COPY, 12, "copy") /* inside each GPU */

/** Kind of an operation; the values are those of IST_OP_LIST. */
typedef enum ist_op_kind {
#define X(name, value, text) name = value,
    IST_OP_LIST(X)
#undef X
} ist_op_kind;

/** Algorithms: X(name, value, text). Values are permanent. */
#define IST_OP_ALGORITHM_LIST(X)                                                                   \
    X(IST_ALGORITHM_AUTO, 0, "auto")                                                               \
    X(IST_ALGORITHM_RING, 1, "ring")                                                               \
    X(IST_ALGORITHM_TREE, 2, "tree")                                                               \
    X(IST_ALGORITHM_DIRECT, 3, "direct")                                                           \
    X(IST_ALGORITHM_ONE_SHOT, 4, "oneshot")    /* symmetric: everybody reads everybody */          \
    X(IST_ALGORITHM_TWO_SHOT, 5, "twoshot")    /* symmetric: reduce a share, gather the shares */  \
    X(IST_ALGORITHM_MULTICAST, 6, "multicast") /* the NVLink switch reduces and copies */          \
    X(IST_ALGORITHM_LL, 7, "ll")               /* EP: each row straight to its ranks */            \
    X(IST_ALGORITHM_HT, 8, "ht")               /* EP: once to each domain, from there to ranks */

/** Algorithm of an operation; the values are those of IST_OP_ALGORITHM_LIST. */
typedef enum ist_op_algorithm {
#define X(name, value, text) name = value,
    IST_OP_ALGORITHM_LIST(X)
#undef X
} ist_op_algorithm;

/** How many ranks a token of an expert-parallel operation goes to. */
typedef enum ist_op_routing {
    IST_ROUTING_RANDOM = 0, /**< experts drawn alike; once to a rank that has several of them */
    IST_ROUTING_SPREAD = 1, /**< all experts of a token are on different ranks */
    IST_ROUTING_EVERY = 2   /**< every (token, expert) pair travels */
} ist_op_routing;

/** One operation. Zero means default. Data is not looked at when simulating and may be NULL. */
typedef struct ist_op_desc {
    uint32_t size;              /**< sizeof(ist_op_desc) */
    ist_op_kind kind;           /**< what */
    ist_op_algorithm algorithm; /**< how; AUTO chooses */
    uint32_t stream;            /**< operations of one stream follow each other */
    uint64_t group_size;     /**< consecutive ranks that do it together, all groups alike; 0: all */
    uint64_t bytes;          /**< see IST_OP_LIST; not for EP */
    uint64_t src;            /**< P2P, PUT, SIGNAL: rank */
    uint64_t dst;            /**< P2P, PUT, SIGNAL: rank */
    uint64_t tokens;         /**< EP: of each rank */
    uint64_t row_bytes;      /**< EP: of a token as it travels, scales included */
    uint32_t topk;           /**< EP: experts of a token; 0: 8 */
    uint32_t experts;        /**< EP: 0: 256 */
    ist_op_routing routing;  /**< EP */
    uint32_t node_limit;     /**< EP: most domains a token's experts are drawn from; 0: all */
    uint32_t block_count;    /**< device blocks that move the data; 0: all there are */
    uint32_t reserved_flags; /**< zero */
    const void *send;        /**< device memory, or NULL */
    void *recv;              /**< device memory, or NULL */
    uint64_t reserved[4];    /**< zero */
} ist_op_desc;

/** Links: X(name, value, text). */
#define IST_LINK_LIST(X)                                                                           \
    X(IST_LINK_NVLINK_OUT, 0, "nvlink_out") /* of a GPU */                                         \
    X(IST_LINK_NVLINK_IN, 1, "nvlink_in")   /* of a GPU */                                         \
    X(IST_LINK_MEMORY, 2, "memory")         /* of a GPU */                                         \
    X(IST_LINK_NIC_OUT, 3, "nic_out")       /* of a NIC */                                         \
    X(IST_LINK_NIC_IN, 4, "nic_in")         /* of a NIC */                                         \
    X(IST_LINK_FABRIC, 5, "fabric")         /* everything between the NICs */

/** Kind of a link; the values are those of IST_LINK_LIST. */
typedef enum ist_link_kind {
#define X(name, value, text) name = value,
    IST_LINK_LIST(X)
#undef X
} ist_link_kind;

/** Kinds of links; as a bottleneck: none, fixed costs are longer than any transfer. */
#define IST_LINK_KINDS 6

/** What an edit changes. */
typedef enum ist_edit_kind {
    IST_EDIT_LINK = 0,      /**< rate of a link times num / den; num 0 takes the link away */
    IST_EDIT_NODES = 1,     /**< number of nodes times num / den */
    IST_EDIT_DOMAIN = 2,    /**< NVLink domains of `num` GPUs */
    IST_EDIT_EP_DOMAINS = 3 /**< expert-parallel groups span `num` NVLink domains */
} ist_edit_kind;

/** A change of the cluster, as data. Links: an OUT stands for both directions. */
typedef struct ist_edit {
    uint32_t size;       /**< sizeof(ist_edit) */
    ist_edit_kind kind;  /**< what changes */
    ist_link_kind link;  /**< LINK */
    uint32_t everywhere; /**< LINK: 1: all of this kind */
    uint64_t node;       /**< LINK: where, unless everywhere */
    uint32_t index;      /**< LINK: of the GPU or NIC on its node */
    uint32_t num;        /**< numerator, or the number itself */
    uint32_t den;        /**< denominator; 0: 1 */
    uint32_t reserved;   /**< zero */
} ist_edit;

/**
 * Reads an edit: "drop nic 0:3", "half nic all", "3/4 nvlink 2:0", "twice nodes", "half fabric",
 * "domain 16", "ep over 2 domains". Places are NODE:INDEX.
 *
 * @param edit  out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE naming the word
 */
IST_API_UNSTABLE ist_status ist_edit_parse(const char *text, ist_edit *edit);

/**
 * Reads an operation: its name, then key=value with commas between, for example
 * "allreduce,bytes=1GiB,algorithm=ring,stream=1,group=64" or
 * "ep_dispatch,tokens=128,row=14336,topk=8,experts=256,algorithm=ll". Sizes B to TB and KiB to TiB.
 *
 * @param op  out
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE naming the key
 */
IST_API_UNSTABLE ist_status ist_op_parse(const char *text, ist_op_desc *op);
/**@}*/

/** @name Profiles. */
/**@{*/

/**
 * Reads a profile from text: what links and operations of a machine cost. topology/profile.md has
 * the format.
 *
 * @param profile  out: close it with ist_profile_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_profile_parse(const char *text, size_t bytes,
                                              ist_profile **profile);

/**
 * Opens a profile that is shipped with the library, by name.
 *
 * @param name     as "h200"; ist_profile_name() lists them
 * @param profile  out: close it with ist_profile_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_ARGUMENT naming those there are; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_profile_open(const char *name, ist_profile **profile);

/**
 * Names of the shipped profiles, in alphabetical order.
 *
 * @return static text; NULL past the last one
 */
IST_API_UNSTABLE const char *ist_profile_name(uint32_t index);

/**
 * The cluster in one line, with the constants of a profile in place of its own: what gives a
 * simulated world (ist_world_desc.cluster) the times that the same profile gives an estimate.
 *
 * @param profile   whose measured links and steps are taken
 * @param cluster   one line, or NULL for one node of eight
 * @param text      out: the line with its NUL; NULL with capacity 0 asks for `needed` only
 * @param needed    out: bytes of the text with its NUL; may be NULL unless `text` is
 * @return IST_OK; IST_ERR_NULL; IST_ERR_PARSE (cluster); IST_ERR_RANGE for a value no cluster may
 *         have; IST_ERR_SIZE
 */
IST_API_UNSTABLE ist_status ist_profile_cluster(const ist_profile *profile, const char *cluster,
                                                char *text, size_t capacity, size_t *needed);

/** Closes a profile. NULL is allowed. */
IST_API_UNSTABLE void ist_profile_close(ist_profile *profile);
/**@}*/

/** @name Groups. */
/**@{*/

/** How a group is begun. */
typedef struct ist_group_desc {
    uint32_t size;        /**< sizeof(ist_group_desc) */
    uint32_t reserved;    /**< zero */
    const char *cluster;  /**< the cluster in one line, "live" for this machine, or the path of a
                               topology file (.xml, .json); NULL: that of `comm`, or one node
                               of eight */
    ist_comm *comm;       /**< whose ranks and load/store teams hold; NULL: the cluster's alone */
    ist_profile *profile; /**< must stay open; NULL: defaults */
} ist_group_desc;

/** What closing a group does. */
typedef enum ist_group_mode {
    IST_GROUP_SIMULATE = 1 /**< answers what it would take; nothing runs */
} ist_group_mode;

/** How much an answer may be believed. */
typedef enum ist_confidence {
    IST_CONFIDENCE_CALIBRATED = 0,   /**< measured constants, within what was measured */
    IST_CONFIDENCE_EXTRAPOLATED = 1, /**< measured constants, beyond; or links measured alone */
    IST_CONFIDENCE_DEFAULT = 2       /**< nobody has measured */
} ist_confidence;

/** Answer about one operation. */
typedef struct ist_estimate_op {
    ist_op_kind kind;               /**< as asked */
    ist_op_algorithm algorithm;     /**< AUTO resolved */
    uint32_t stream;                /**< as asked */
    uint32_t bottleneck;            /**< ist_link_kind; IST_LINK_KINDS: fixed costs */
    ist_confidence confidence;      /**< of its constants */
    uint32_t critical;              /**< 1: on the path that decides the total */
    uint64_t start_ps;              /**< after the beginning of the group */
    uint64_t end_ps;                /**< its last byte has arrived */
    uint64_t fixed_ps;              /**< launch, steps and messages */
    uint64_t transfer_ps;           /**< its busiest link, if it were alone */
    uint64_t buffer_bytes;          /**< of a rank, in and out */
    uint64_t bytes[IST_LINK_KINDS]; /**< through all links of a kind */
    char path[48];                  /**< "load/store + network" */
} ist_estimate_op;

/** Answer about the links of one kind. */
typedef struct ist_estimate_link {
    uint64_t bytes;            /**< through all of them */
    uint64_t link_count;       /**< how many there are */
    uint64_t idle_count;       /**< how many carry nothing */
    uint64_t busiest_permille; /**< of the time of the group, that the busiest one needs at least */
} ist_estimate_link;

/** Answer about a group. Filled up to the caller's `size`. */
typedef struct ist_estimate {
    uint32_t size;               /**< in: sizeof(ist_estimate), at least 8 */
    uint32_t version;            /**< 1 */
    uint64_t total_ps;           /**< with overlap */
    uint64_t serial_ps;          /**< sum over operations, each as it ran here */
    uint64_t rank_count;         /**< ranks of the cluster */
    uint64_t node_count;         /**< nodes of the cluster */
    uint64_t memory_bytes;       /**< buffers of one rank */
    uint64_t memory_limit_bytes; /**< memory of one GPU */
    uint64_t event_count;        /**< events it took to compute */
    uint32_t class_count;        /**< classes of equal ranks */
    uint32_t bottleneck;         /**< ist_link_kind of the busiest link; IST_LINK_KINDS: no
                                                 link carries anything */
    ist_confidence confidence;   /**< of the least certain operation */
    uint32_t op_count;           /**< operations of the group */
    ist_estimate_link link[IST_LINK_KINDS]; /**< by kind */
    char busiest[48];                       /**< name of the busiest link */
    char idle[128];       /**< names of links that carry nothing, those that fit */
    ist_estimate_op *ops; /**< in: caller's array, or NULL */
    uint32_t op_capacity; /**< in: of `ops`; the first ones are written */
    uint32_t reserved;    /**< zero */
} ist_estimate;

/**
 * Begins a group. Local.
 *
 * @param group  out: close it with ist_group_end() or ist_group_drop()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_RESERVED; IST_ERR_PARSE (cluster);
 *         IST_ERR_OBJECT (comm); IST_ERR_ARGUMENT when the cluster and the communicator differ;
 *         IST_ERR_MEMORY
 */
IST_API_UNSTABLE IST_MUST_USE ist_status ist_group_begin(const ist_group_desc *desc,
                                                         ist_group **group);

/**
 * Adds an operation; at most 64.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_RESERVED; IST_ERR_ARGUMENT or IST_ERR_RANGE
 *         naming the field
 */
IST_API_UNSTABLE ist_status ist_group_add(ist_group *group, const ist_op_desc *op);

/**
 * Answers about the group with edits, and keeps it open.
 *
 * Method: phases of flows that share links max-min fairly (progressive filling; Bertsekas and
 * Gallager, Data Networks, 6.5), on the quotient of the cluster by its symmetry.
 *
 * @param edits       [edit_count], or NULL with 0; at most 32
 * @param expand      1: every rank is computed, to check the quotient; at most 1024 ranks
 * @param estimate    out: filled up to estimate->size
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_ARGUMENT; IST_ERR_RANGE; IST_ERR_UNSUPPORTED
 *         naming the operation that has no path or algorithm there; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_group_simulate(ist_group *group, const ist_edit *edits,
                                               uint32_t edit_count, uint32_t expand,
                                               ist_estimate *estimate);

/**
 * Closes the group.
 *
 * @param mode      IST_GROUP_SIMULATE
 * @param estimate  out: as ist_group_simulate() without edits
 * @return IST_OK and the group is gone; what ist_group_simulate() returns (the group is gone, too);
 *         IST_ERR_ARGUMENT for another mode (the group is kept)
 */
IST_API_UNSTABLE ist_status ist_group_end(ist_group *group, ist_group_mode mode,
                                          ist_estimate *estimate);

/**
 * Asks the backend's own library (NCCL's group simulation) how long one operation of a communicator
 * would take, to stand beside the answer of ist_group_simulate(). Collective; BLOCKS, each step
 * bounded: a communicator of the library's own is opened for the question, because one that has
 * answered keeps traces of it. Nothing runs.
 *
 * @param op       all-reduce, all-gather, reduce-scatter or broadcast; kind and bytes are read
 * @param time_ps  out
 * @return IST_OK; argument errors; IST_ERR_UNSUPPORTED with the reason (no library, one that lacks
 *         the function, an operation that it does not estimate); IST_ERR_TIMEOUT, IST_ERR_MISMATCH
 *         naming a rank; IST_ERR_REMOTE with the library's words; IST_ERR_MEMORY; IST_ERR_ABORTED
 * @threads the rank's own
 */
IST_API_UNSTABLE ist_status ist_op_reference(ist_comm *comm, const ist_op_desc *op,
                                             uint64_t *time_ps);

/** Closes a group without an answer. NULL is allowed. */
IST_API_UNSTABLE void ist_group_drop(ist_group *group);

/**
 * Writes an answer as JSON, stable text, ending in a NUL.
 *
 * @param text      out: [capacity]; NULL with capacity 0 asks for `needed` alone
 * @param capacity  bytes of `text`
 * @param needed    out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_estimate_print(const ist_estimate *estimate, char *text,
                                               size_t capacity, size_t *needed);
/**@}*/

/** @name Fits. */
/**@{*/

/** What a fit does. */
typedef enum ist_fit_mode {
    IST_FIT_PROFILE = 0, /**< fits all points */
    IST_FIT_CROSS = 1,   /**< leaves one world size out at a time and predicts it */
    IST_FIT_TEST = 2,    /**< fits the points and predicts those of `test` */
    IST_FIT_HALVES = 3 /**< fits every other size of a series and predicts the others; both ways */
} ist_fit_mode;

/** Timings to fit: CSV whose first line names the columns, a profile of `isthmus probe`, what
 * `isthmus bench ep --json` wrote, or the CSV of `isthmus bench ep` and `isthmus bench coll`. */
typedef struct ist_fit_desc {
    uint32_t size;      /**< sizeof(ist_fit_desc) */
    ist_fit_mode mode;  /**< what to do */
    const char *points; /**< text */
    size_t bytes;       /**< of `points` */
    const char *test;   /**< TEST: text */
    size_t test_bytes;  /**< of `test` */
    const char *only;   /**< points whose id begins so; NULL: all */
    const char *name;   /**< of the profile; NULL: "fit" */
} ist_fit_desc;

/** Errors over series: per series the median over its points, then over series. In millionths. */
typedef struct ist_fit_score {
    uint32_t series; /**< series that were scored */
    uint32_t points; /**< points of them */
    uint32_t median; /**< relative error, millionths */
    uint32_t p90;    /**< 90th percentile over series */
} ist_fit_score;

/** What a fit found. Filled up to the caller's `size`. */
typedef struct ist_fit_info {
    uint32_t size;         /**< in: sizeof(ist_fit_info), at least 8 */
    uint32_t point_count;  /**< of the table */
    uint32_t used_count;   /**< not flagged, and the model has such an operation */
    uint32_t series_count; /**< of the table */
    ist_fit_score all;     /**< every series that was scored */
    ist_fit_score world;   /**< another world size of the family was there to learn from */
    ist_fit_score sizes;   /**< other message sizes only */
    ist_fit_score kin;     /**< nothing of the family */
} ist_fit_info;

/** What of a fit is printed. */
typedef enum ist_fit_text {
    IST_FIT_TEXT_PROFILE = 0, /**< JSON; PROFILE only */
    IST_FIT_TEXT_SERIES = 1,  /**< CSV, one line a series: way, points, median, worst */
    IST_FIT_TEXT_POINTS = 2   /**< CSV, one line a point: measured, predicted, error */
} ist_fit_text;

/**
 * Fits the cost model to timings.
 *
 * Method: Levenberg-Marquardt with priors from vendors' figures, then kriging of what is left over
 * (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.1).
 *
 * @param fit  out: close it with ist_fit_close()
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE; IST_ERR_ARGUMENT; IST_ERR_PARSE naming line and
 *         column; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_fit_open(const ist_fit_desc *desc, ist_fit **fit);

/** Closes a fit. NULL is allowed. */
IST_API_UNSTABLE void ist_fit_close(ist_fit *fit);

/**
 * Tells the errors of a fit.
 *
 * @return IST_OK; IST_ERR_NULL; IST_ERR_SIZE
 */
IST_API_UNSTABLE ist_status ist_fit_query(const ist_fit *fit, ist_fit_info *info);

/**
 * Writes a part of the fit, ending in a NUL.
 *
 * @param text      out: [capacity]; NULL with capacity 0 asks for `needed` alone
 * @param needed    out: bytes needed with the NUL, also on IST_ERR_SIZE; may be NULL
 * @return IST_OK; IST_ERR_NULL; IST_ERR_ARGUMENT; IST_ERR_SIZE; IST_ERR_MEMORY
 */
IST_API_UNSTABLE ist_status ist_fit_print(const ist_fit *fit, ist_fit_text what, char *text,
                                          size_t capacity, size_t *needed);
/**@}*/

IST_END_DECLS

#endif
