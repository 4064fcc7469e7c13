/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus whatif`: options, the answers, where they go.
 */
#include "cli_whatif.h"

#include "cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "whatif"
#define PROFILE_BYTES_MAX ((size_t)64 << 20)
#define EDITS_MAX 32u

static const char help[] =
    "usage: isthmus whatif --op OP [--op OP...] [OPTION...]\n"
    "\n"
    "How long operations would take on a described cluster, over which path, and which link is\n"
    "the bottleneck. Nothing runs, no GPU is needed, all ranks are described from here.\n"
    "\n"
    "  --op OP          NAME,key=value,...: allreduce, allgather, reducescatter, alltoall,\n"
    "                   broadcast, sendrecv, p2p, put, signal, barrier, ep_dispatch, ep_combine,\n"
    "                   copy; keys bytes, group, src, dst, tokens, row, topk, experts, limit,\n"
    "                   blocks, stream, algorithm (ring, tree, direct, oneshot, twoshot,\n"
    "                   multicast, ll, ht),\n"
    "                   routing (random, spread, every). Streams overlap\n"
    "  --cluster LINE   as for `isthmus ep`, for example 8x8,nic_rate=400Gb/s (default 1x8)\n"
    "  --profile P      measured constants: a name of --profiles, or a file of `isthmus probe`\n"
    "                   or `isthmus fit` (with a slash, or ending in .json)\n"
    "  --profiles       names of the profiles that are built in\n"
    "  --line           the cluster with the profile's constants, in one line: what makes a\n"
    "                   simulated world as fast as the profile says\n"
    "  --edit EDITS     asks again with changes and compares: drop nic 0:3; half nvlink 1:0;\n"
    "                   3/4 nic all; half fabric; twice nodes; domain 16; ep over 2 domains.\n"
    "                   Several in one with ';' between. May be given several times\n"
    "  --sweep SWEEP    bytes=FROM:TO, nodes=FROM:TO or ep=FROM:TO, doubling; prints CSV\n"
    "  --svg FILE       the sweep as curves\n"
    "  --csv FILE       the sweep as CSV, into a file\n"
    "  --json           the answer as one JSON object; with --edit one with all scenes\n"
    "  --expand         computes every rank, to check the collapse of equal ones; to 1024 ranks\n"
    "  -h, --help       this text\n"
    "\n"
    "exit status: 0 answered, 1 cannot be done there, 2 bad usage\n"
    "\n"
    "examples:\n"
    "  isthmus whatif --cluster 8x8 --op allreduce,bytes=1GiB --edit 'drop nic 0:3'\n"
    "  isthmus whatif --cluster 32x8 --op ep_dispatch,tokens=128,row=14336,algorithm=ll \\\n"
    "      --op ep_combine,tokens=128,row=14336,algorithm=ll --sweep ep=8:256 --svg ep.svg\n";

enum {
    OPTION_OP = 256,
    OPTION_CLUSTER,
    OPTION_PROFILE,
    OPTION_EDIT,
    OPTION_SWEEP,
    OPTION_SVG,
    OPTION_CSV,
    OPTION_JSON,
    OPTION_EXPAND,
    OPTION_PROFILES,
    OPTION_LINE,
    OPTION_HELP = 'h'
};

static const struct option long_options[] = {{"op", 1, NULL, OPTION_OP},
                                             {"cluster", 1, NULL, OPTION_CLUSTER},
                                             {"profile", 1, NULL, OPTION_PROFILE},
                                             {"edit", 1, NULL, OPTION_EDIT},
                                             {"sweep", 1, NULL, OPTION_SWEEP},
                                             {"svg", 1, NULL, OPTION_SVG},
                                             {"csv", 1, NULL, OPTION_CSV},
                                             {"json", 0, NULL, OPTION_JSON},
                                             {"expand", 0, NULL, OPTION_EXPAND},
                                             {"profiles", 0, NULL, OPTION_PROFILES},
                                             {"line", 0, NULL, OPTION_LINE},
                                             {"help", 0, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

static const char *const sweep_names[] = {"", "bytes", "nodes", "ep"};

const char *cli_whatif_sweep(cli_sweep sweep)
{
    return sweep_names[sweep];
}

/* ------------------------------------------------------------------------------------ asking */

static bool is_expert(const ist_op_desc *op)
{
    return op->kind == IST_OP_EP_DISPATCH || op->kind == IST_OP_EP_COMBINE;
}

/* Edits of a scene, then those of the step of the sweep. */
static int scene_edits(const cli_question *question, uint32_t scene, ist_edit *edits,
                       uint32_t *count)
{
    char text[256];
    (void)snprintf(text, sizeof text, "%s", question->scene_text[scene]);
    char *rest = NULL;
    for (char *part = strtok_r(text, ";", &rest); part != NULL; part = strtok_r(NULL, ";", &rest)) {
        if (*count == EDITS_MAX - 1) {
            return cli_usage(COMMAND, "more than %u edits at once", EDITS_MAX - 1);
        }
        const ist_status status = ist_edit_parse(part, &edits[*count]);
        if (status != IST_OK) {
            return cli_usage(COMMAND, "--edit '%s': %s", part, cli_error_text(status));
        }
        ++*count;
    }
    return CLI_OK;
}

static void set_step(const cli_question *question, uint64_t step, ist_op_desc *op)
{
    if (question->sweep == CLI_SWEEP_BYTES) {
        if (is_expert(op)) {
            op->tokens = step;
        } else {
            op->bytes = step;
        }
    } else if (question->sweep == CLI_SWEEP_EP && is_expert(op)) {
        op->group_size = step;
    }
}

static ist_status add_ops(const cli_question *question, uint64_t step, ist_group *group)
{
    for (uint32_t i = 0; i < question->op_count; ++i) {
        ist_op_desc op = question->op[i];
        set_step(question, step, &op);
        const ist_status status = ist_group_add(group, &op);
        if (status != IST_OK) {
            return status;
        }
    }
    return IST_OK;
}

/* The cluster as described, asked of the library. */
static ist_status base_size(const cli_question *question, ist_estimate *base)
{
    ist_group *group = NULL;
    const ist_group_desc desc = {.size = sizeof desc, .cluster = question->cluster};
    ist_status status = ist_group_begin(&desc, &group);
    if (status == IST_OK) {
        status = ist_group_simulate(group, NULL, 0, 0, base);
    }
    ist_group_drop(group);
    return status;
}

/* The edit, before all others, that brings the cluster to the step's size. */
static ist_status size_edit(const cli_question *question, uint64_t step, ist_edit *edits,
                            uint32_t *count)
{
    if (question->sweep != CLI_SWEEP_NODES && question->sweep != CLI_SWEEP_EP) {
        return IST_OK;
    }
    ist_estimate base = {.size = sizeof base};
    const ist_status status = base_size(question, &base);
    if (status != IST_OK) {
        return status;
    }
    const bool nodes = question->sweep == CLI_SWEEP_NODES;
    if (!nodes && step <= base.rank_count) {
        return IST_OK;
    }
    memmove(edits + 1, edits, *count * sizeof *edits);
    edits[0] = (ist_edit){.size = sizeof *edits,
                          .kind = IST_EDIT_NODES,
                          .num = (uint32_t)step,
                          .den = (uint32_t)(nodes ? base.node_count : base.rank_count)};
    ++*count;
    return IST_OK;
}

int cli_whatif_ask(const cli_question *question, uint32_t step, uint32_t scene, cli_answer *answer)
{
    ist_edit edits[EDITS_MAX];
    uint32_t count = 0;
    ist_group *group = NULL;
    const uint64_t value = question->step[step];
    const int code = scene_edits(question, scene, edits, &count);
    if (code != CLI_OK) {
        return code;
    }
    const ist_group_desc desc = {
        .size = sizeof desc, .cluster = question->cluster, .profile = question->profile};
    answer->estimate = (ist_estimate){
        .size = sizeof answer->estimate, .ops = answer->op, .op_capacity = CLI_WHATIF_OPS};
    ist_status status = ist_group_begin(&desc, &group);
    if (status == IST_OK) {
        status = size_edit(question, value, edits, &count);
    }
    if (status == IST_OK) {
        status = add_ops(question, value, group);
    }
    if (status == IST_OK) {
        status = ist_group_simulate(group, edits, count, question->expand, &answer->estimate);
    }
    ist_group_drop(group);
    answer->there = status == IST_OK;
    if (status != IST_OK && (question->step_count == 1 || status == IST_ERR_MEMORY)) {
        return cli_failed(COMMAND, "%s", cli_error_text(status));
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ options */

static int read_sweep(const char *text, cli_question *question)
{
    const char *equals = strchr(text, '=');
    const char *colon = equals == NULL ? NULL : strchr(equals, ':');
    for (cli_sweep kind = CLI_SWEEP_BYTES; colon != NULL && kind <= CLI_SWEEP_EP; ++kind) {
        const size_t length = strlen(sweep_names[kind]);
        if ((size_t)(equals - text) == length && memcmp(text, sweep_names[kind], length) == 0) {
            question->sweep = kind;
        }
    }
    ist_op_desc low;
    ist_op_desc high;
    char from[80];
    char to[80];
    (void)snprintf(from, sizeof from, "copy,bytes=%.*s",
                   colon == NULL ? 0 : (int)(colon - equals - 1), colon == NULL ? "" : equals + 1);
    (void)snprintf(to, sizeof to, "copy,bytes=%.40s", colon == NULL ? "" : colon + 1);
    if (question->sweep == CLI_SWEEP_NONE || ist_op_parse(from, &low) != IST_OK ||
        ist_op_parse(to, &high) != IST_OK || low.bytes == 0 || low.bytes > high.bytes) {
        return cli_usage(
            COMMAND, "--sweep is '%s', expected bytes=FROM:TO, nodes=FROM:TO or ep=FROM:TO", text);
    }
    question->step_count = 0;
    for (uint64_t value = low.bytes; value <= high.bytes && question->step_count < CLI_WHATIF_STEPS;
         value *= 2) {
        question->step[question->step_count++] = value;
        if (value > UINT64_MAX / 2) {
            break;
        }
    }
    return CLI_OK;
}

static int read_op(const char *text, cli_question *question)
{
    if (question->op_count == CLI_WHATIF_OPS) {
        return cli_usage(COMMAND, "more than %u operations", CLI_WHATIF_OPS);
    }
    const ist_status status = ist_op_parse(text, &question->op[question->op_count]);
    if (status != IST_OK) {
        return cli_usage(COMMAND, "--op '%s': %s", text, cli_error_text(status));
    }
    ++question->op_count;
    return CLI_OK;
}

static int read_option(int option, const char *value, cli_question *question)
{
    switch (option) {
    case OPTION_OP: return read_op(value, question);
    case OPTION_CLUSTER: question->cluster = value; return CLI_OK;
    case OPTION_PROFILE: question->profile_name = value; return CLI_OK;
    case OPTION_EDIT:
        if (question->scene_count == CLI_WHATIF_SCENES) {
            return cli_usage(COMMAND, "more than %u scenes", CLI_WHATIF_SCENES - 1);
        }
        question->scene_text[question->scene_count++] = value;
        return CLI_OK;
    case OPTION_SWEEP: return read_sweep(value, question);
    case OPTION_SVG: question->svg = value; return CLI_OK;
    case OPTION_CSV: question->csv = value; return CLI_OK;
    case OPTION_JSON: question->json = true; return CLI_OK;
    case OPTION_EXPAND: question->expand = true; return CLI_OK;
    case OPTION_PROFILES: question->profiles = true; return CLI_OK;
    case OPTION_LINE: question->line = true; return CLI_OK;
    case OPTION_HELP: question->help = true; return CLI_OK;
    default: return CLI_USAGE;
    }
}

static int read_options(int argc, char **argv, cli_question *question)
{
    optind = 1;
    int option;
    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        const int code = read_option(option, optarg, question);
        if (code != CLI_OK) {
            return code;
        }
    }
    if (optind < argc) {
        return cli_usage(COMMAND, "'%s' is no option", argv[optind]);
    }
    const bool asks = !question->help && !question->profiles && !question->line;
    if (asks && question->op_count == 0) {
        return cli_usage(COMMAND, "an operation is missing (--op)");
    }
    if ((question->svg != NULL || question->csv != NULL) && question->sweep == CLI_SWEEP_NONE) {
        return cli_usage(COMMAND, "--svg and --csv need --sweep");
    }
    return CLI_OK;
}

/* A path has a slash or ends as files of profiles do; everything else is a name. */
static bool is_path(const char *text)
{
    const size_t length = strlen(text);
    return strchr(text, '/') != NULL || (length > 5 && strcmp(text + length - 5, ".json") == 0);
}

static int load_profile(cli_question *question)
{
    const char *asked = question->profile_name;
    char *bytes = NULL;
    size_t count = 0;
    const char *reason = "";
    if (asked == NULL) {
        return CLI_OK;
    }
    if (!is_path(asked)) {
        const ist_status opened = ist_profile_open(asked, &question->profile);
        return opened == IST_OK ? CLI_OK
                                : cli_usage(COMMAND, "--profile: %s", cli_error_text(opened));
    }
    if (!cli_read_file(asked, PROFILE_BYTES_MAX, &bytes, &count, &reason)) {
        return cli_failed(COMMAND, "%s: %s", asked, reason);
    }
    const ist_status status = ist_profile_parse(bytes, count, &question->profile);
    free(bytes);
    return status == IST_OK ? CLI_OK : cli_failed(COMMAND, "%s: %s", asked, cli_error_text(status));
}

static int list_profiles(void)
{
    const char *name = NULL;
    for (uint32_t i = 0; (name = ist_profile_name(i)) != NULL; ++i) {
        (void)printf("%s\n", name);
    }
    return cli_put(COMMAND, "");
}

/* The line that gives a simulated world the profile's constants. */
static int put_line(const cli_question *question)
{
    char line[1024];
    if (question->profile == NULL) {
        return cli_usage(COMMAND, "--line needs --profile");
    }
    const ist_status status =
        ist_profile_cluster(question->profile, question->cluster, line, sizeof line - 1, NULL);
    if (status != IST_OK) {
        return cli_failed(COMMAND, "%s", cli_error_text(status));
    }
    (void)strcat(line, "\n");
    return cli_put(COMMAND, line);
}

/* ------------------------------------------------------------------------------------ output */

static int write_file(const char *path, const cli_text *text)
{
    if (text->failed) {
        return cli_failed(COMMAND, "no memory for %s", path);
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return cli_failed(COMMAND, "cannot write %s", path);
    }
    const bool written = fwrite(text->bytes, 1, text->length, file) == text->length;
    return fclose(file) == 0 && written ? CLI_OK : cli_failed(COMMAND, "cannot write %s", path);
}

static bool append_json(const cli_answer *answer, cli_text *text)
{
    size_t needed = 0;
    ist_status status = ist_estimate_print(&answer->estimate, NULL, 0, &needed);
    char *json = status == IST_OK ? malloc(needed) : NULL;
    if (json != NULL) {
        status = ist_estimate_print(&answer->estimate, json, needed, NULL);
        cli_text_append(text, "%s", json);
    }
    free(json);
    return json != NULL && status == IST_OK && !text->failed;
}

/* One answer, or all scenes. Edits have been read, so nothing in their texts has to be escaped. */
static int put_json(const cli_question *question, const cli_answer *answers)
{
    cli_text text = {0};
    const bool scenes = question->scene_count > 1;
    bool good = true;
    cli_text_append(&text, "%s", scenes ? "{\"scenes\":[" : "");
    for (uint32_t i = 0; i < question->scene_count && good; ++i) {
        if (scenes) {
            cli_text_append(&text, "%s{\"edit\":\"%s\",\"estimate\":", i > 0 ? "," : "",
                            question->scene_text[i]);
        }
        good = append_json(&answers[i], &text);
        cli_text_append(&text, "%s", scenes ? "}" : "");
    }
    cli_text_append(&text, "%s", scenes ? "]}\n" : "\n");
    const int code = good && !text.failed ? cli_put(COMMAND, text.bytes)
                                          : cli_failed(COMMAND, "no memory for the answer");
    cli_text_free(&text);
    return code;
}

static int put_sweep(const cli_question *question, const cli_answer *answers)
{
    cli_text csv = {0};
    cli_text svg = {0};
    cli_whatif_csv(question, answers, &csv);
    int code = question->csv != NULL ? write_file(question->csv, &csv)
               : csv.failed          ? cli_failed(COMMAND, "no memory for the table")
                                     : cli_put(COMMAND, csv.bytes);
    if (code == CLI_OK && question->svg != NULL) {
        cli_whatif_svg(question, answers, &svg);
        code = write_file(question->svg, &svg);
    }
    cli_text_free(&csv);
    cli_text_free(&svg);
    return code;
}

static int answer_all(const cli_question *question, cli_answer *answers)
{
    for (uint32_t step = 0; step < question->step_count; ++step) {
        for (uint32_t scene = 0; scene < question->scene_count; ++scene) {
            const int code = cli_whatif_ask(question, step, scene,
                                            &answers[step * question->scene_count + scene]);
            if (code != CLI_OK) {
                return code;
            }
        }
    }
    if (question->sweep != CLI_SWEEP_NONE) {
        return put_sweep(question, answers);
    }
    if (question->json) {
        return put_json(question, answers);
    }
    cli_whatif_print(question, answers);
    return cli_put(COMMAND, "");
}

int cli_whatif_command(int argc, char **argv)
{
    cli_question question = {.scene_count = 1, .scene_text = {""}, .step_count = 1};
    int code = read_options(argc, argv, &question);
    if (code != CLI_OK) {
        return code;
    }
    if (question.help) {
        return cli_put(COMMAND, help);
    }
    if (question.profiles) {
        return list_profiles();
    }
    code = load_profile(&question);
    if (code == CLI_OK && question.line) {
        code = put_line(&question);
        ist_profile_close(question.profile);
        return code;
    }
    cli_answer *answers =
        calloc((size_t)question.step_count * question.scene_count, sizeof *answers);
    if (code == CLI_OK) {
        code = answers == NULL ? cli_failed(COMMAND, "no memory for the answers")
                               : answer_all(&question, answers);
    }
    free(answers);
    ist_profile_close(question.profile);
    return code;
}
