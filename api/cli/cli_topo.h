/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `isthmus topo` share: its options, and how texts of the library are fetched.
 */
#ifndef CLI_TOPO_H
#define CLI_TOPO_H

#include <isthmus/unstable/topology.h>
#include <stdbool.h>

#define CLI_TOPO_WORDS_MAX 64

typedef struct cli_topo_options {
    const char *words[CLI_TOPO_WORDS_MAX]; /* what is no option */
    int word_count;
    const char *source;    /* --topo */
    const char *group;     /* --group */
    const char *svg;       /* --svg: file */
    const char *heat;      /* --heat: file */
    const char *load;      /* --load: operation */
    const char *operation; /* --op */
    const char *to;        /* --to: form */
    const char *output;    /* --output: file; NULL: standard output */
    const char *backend;   /* --backend: compare with its answer */
    uint64_t machine_max;
    uint32_t lsa_max;
    ist_path peer_access;
    bool gin_off;
    bool matrix;
    bool json;
} cli_topo_options;

/* Opens a source; on failure says why, with a caret below a cluster line. */
int cli_topo_open(const char *source, const cli_topo_options *options, ist_topology **topology);

/* Fetches a form of a topology. The caller frees *text. */
int cli_topo_text(const ist_topology *topology, ist_topology_format format, const char *operation,
                  char **text);

/* Writes a text to a file, or to standard output for NULL or "-". */
int cli_topo_save(const char *path, const char *text);

/* Runs a communicator of all GPUs on a backend, explains what was asked of it (NULL: nothing), and
 * compares its teams with the prediction. */
int cli_topo_compare(const ist_topology *topology, const cli_topo_options *options,
                     const ist_explain_desc *asked);

ist_topology_policy cli_topo_policy(const cli_topo_options *options);

#endif
