/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `isthmus whatif` share: the question, and a table of answers.
 */
#ifndef CLI_WHATIF_H
#define CLI_WHATIF_H

#include "cli_text.h"

#include <isthmus/unstable/whatif.h>

#define CLI_WHATIF_OPS 64u
#define CLI_WHATIF_SCENES 32u
#define CLI_WHATIF_STEPS 256u

typedef enum cli_sweep {
    CLI_SWEEP_NONE = 0,
    CLI_SWEEP_BYTES,
    CLI_SWEEP_NODES,
    CLI_SWEEP_EP
} cli_sweep;

typedef struct cli_question {
    const char *cluster; /* NULL: the library's */
    const char *profile_name;
    ist_profile *profile; /* owned */
    ist_op_desc op[CLI_WHATIF_OPS];
    uint32_t op_count;
    const char
        *scene_text[CLI_WHATIF_SCENES]; /* edits, several with ';' between; 0 is "as described" */
    uint32_t scene_count;               /* at least 1 */
    cli_sweep sweep;
    uint64_t step[CLI_WHATIF_STEPS];
    uint32_t step_count; /* at least 1 */
    bool json;
    bool expand;
    bool help, profiles, line;
    const char *svg;
    const char *csv;
} cli_question;

typedef struct cli_answer {
    bool there; /* false: this scene cannot do it at this step */
    ist_estimate estimate;
    ist_estimate_op op[CLI_WHATIF_OPS];
} cli_answer;

/* Answers: [step][scene]. Returns CLI_OK or CLI_FAILED after a message. */
int cli_whatif_ask(const cli_question *question, uint32_t step, uint32_t scene, cli_answer *answer);

const char *cli_whatif_link(uint32_t kind);
const char *cli_whatif_sweep(cli_sweep sweep);

/* A time for people, at most 10 characters: "12.3 us". */
void cli_whatif_time(uint64_t ps, char text[24]);

void cli_whatif_print(const cli_question *question, const cli_answer *answers);
void cli_whatif_csv(const cli_question *question, const cli_answer *answers, cli_text *text);
void cli_whatif_svg(const cli_question *question, const cli_answer *answers, cli_text *text);

#endif
