/* SPDX-License-Identifier: Apache-2.0 */
/* What `isthmus ep` was asked to do: options read, checked, and written back as one line that does
 * the same again.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli_routing.h"
#include "cli_text.h"

#include <isthmus/ep.h>
#include <isthmus/unstable/sim.h>

#define CLI_STEPS_MAX 1000000u

typedef struct cli_options {
    uint32_t rank_count; /* 0: as the launcher or the cluster says */
    uint32_t node_count; /* 0: not given */
    char *cluster;       /* owned; NULL: the library's default */
    bool cluster_given;
    bool ranks_given;
    bool tokens_given;
    bool topk_given;
    bool experts_given;
    uint32_t tokens; /* M */
    uint64_t hidden;
    uint32_t topk;
    uint32_t experts;
    ist_ep_layout layout;
    ist_dtype dtype;
    cli_routing routing;
    uint64_t seed;
    ist_fault_plan *plan;  /* owned; never NULL once read */
    uint32_t random_plans; /* how many plans are still to be drawn, with random_seed */
    uint64_t random_seed;
    bool random_seed_given;
    uint32_t iterations;
    uint32_t blocks;      /* most device blocks of an operation; 0: all */
    uint32_t readmit;     /* step after which late ranks are re-admitted; 0: none */
    uint64_t deadline_ns; /* 0: the library's */
    bool staged;
    bool graph;
    bool windows;
    bool uneven;
    bool json;
    bool demo;
    bool help;
    ist_link_model links;
    const char *backend; /* NULL: the library chooses */
    const char *trace;
    const char *log;
    const char *record;
    bool expect_given;
    uint64_t expect; /* digest that the run has to have */
} cli_options;

/* Reads argv (argv[0] is the command's name in messages). Returns CLI_OK, or CLI_USAGE or CLI_FAILED
   after a message. Free the options in any case. */
int cli_options_read(int argc, char **argv, cli_options *options);
void cli_options_free(cli_options *options);

/* Appends the options that repeat the run with `rank_count` ranks on `backend`, but for the faults. */
void cli_options_append(const cli_options *options, uint32_t rank_count, const char *backend,
                        cli_text *text);
/* Appends "isthmus ep …", the faults included. */
void cli_options_append_line(const cli_options *options, uint32_t rank_count, const char *backend,
                             cli_text *text);

/* Ranks that a launcher has started as processes; 0: none. */
uint32_t cli_launched_count(void);

/* Tokens that a rank dispatches: all alike, or uneven ones drawn from the seed. */
uint32_t cli_options_tokens(const cli_options *options, uint32_t rank, uint32_t rank_count);

const char *cli_layout_name(ist_ep_layout layout);
const char *cli_dtype_name(ist_dtype dtype);

/* Text of `isthmus ep --help`, and the options that --demo stands for. */
extern const char cli_ep_help[];
extern const char *const cli_demo_arguments[];
extern const uint32_t cli_demo_argument_count;

#endif
