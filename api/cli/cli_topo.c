/* SPDX-License-Identifier: Apache-2.0 */
/* The command `isthmus topo`: show, explain, check, convert and diff topologies.
 */
#include "cli.h"
#include "cli_text.h"
#include "cli_topo.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "topo"

static const char help[] =
    "usage: isthmus topo show    [SOURCE] [OPTION...]\n"
    "       isthmus topo explain [SOURCE] [A B] [OPTION...]\n"
    "       isthmus topo check   SOURCE... [OPTION...]\n"
    "       isthmus topo convert SOURCE --to FORM [-o FILE]\n"
    "       isthmus topo diff    SOURCE SOURCE\n"
    "\n"
    "Reads the topology of a machine or cluster and answers questions about it.\n"
    "\n"
    "SOURCE is `live` (this machine, the default), a file (NCCL topology or graph\n"
    "XML, hwloc XML, JSON, a profile, a text with one line), a cluster line as\n"
    "'8x(h200:8 nvswitch nic:8x400G) rails fat-tree:2:1', or a synthetic string\n"
    "of hwloc.\n"
    "\n"
    "  show      counts, teams, tree, matrix of paths, what could not be found out\n"
    "  explain   why two ranks (A B), an operation or all ranks talk as they do\n"
    "  check     reads each source and says what is wrong with it\n"
    "  convert   writes another form: nccl, json, text, matrix, svg, heat; or line,\n"
    "            which the simulator and what-if take for the same machines\n"
    "  diff      what a program would notice; exit status 1 when there is something\n"
    "\n"
    "options:\n"
    "  -t, --topo SOURCE      another way to give the source\n"
    "      --group NAME       file with several machines: part of the name of the one\n"
    "      --machines N       cluster line: write out the first N machines only\n"
    "      --matrix           show: the matrix alone\n"
    "      --json             show: as JSON\n"
    "      --svg FILE         show: also draw the machine\n"
    "      --heat FILE        show: also draw the matrix of paths\n"
    "      --load OP          with --svg: colour links by the load of an operation\n"
    "      --op OP            explain: barrier, all-reduce, all-gather, all-to-all,\n"
    "                         ep.dispatch, ep.combine, reshard, put ...\n"
    "      --peer-access TYPE explain, line: load/store over PCIe up to PIX ... SYS\n"
    "      --lsa-max N        explain, line: load/store teams of at most N ranks\n"
    "      --no-gin           explain, line: as if there were no GPU-started network\n"
    "      --backend NAME     check, explain: open a communicator there and compare;\n"
    "                         explain: what that communicator uses, and why\n"
    "                         (sim: a cluster made as convert --to line does)\n"
    "      --to FORM          convert: nccl, json, line, text, matrix, svg, heat\n"
    "  -o, --output FILE      convert: where to; standard output without it\n"
    "  -h, --help             this text\n"
    "\n"
    "examples:\n"
    "  isthmus topo show\n"
    "  isthmus topo explain 0 1\n"
    "  isthmus topo explain '2x8' 0 9\n"
    "  isthmus topo convert '4x(h200:8 nic:8x400G) rails' --to svg -o c.svg\n";

/* ------------------------------------------------------------------------------------ shared */

static void caret_put(const char *source, uint64_t position)
{
    if (strlen(source) < 200 && strpbrk(source, "\t\r\n") == NULL && position > 0 &&
        position <= strlen(source) + 1) {
        fprintf(stderr, "  %s\n  %*s^\n", source, (int)position - 1, "");
    }
}

int cli_topo_open(const char *source, const cli_topo_options *options, ist_topology **topology)
{
    ist_topology_desc desc = {
        .size = sizeof desc, .group = options->group, .machine_max = options->machine_max};
    ist_status status = ist_topology_open(source, &desc, topology);
    if (status == IST_OK) {
        return CLI_OK;
    }
    ist_error error = {.size = sizeof error};
    int result = cli_failed(COMMAND, "%s", cli_error_text(status));
    if (ist_error_last(&error) == IST_OK && strcmp(error.object, "cluster") == 0) {
        caret_put(source, error.observed);
    }
    return result;
}

int cli_topo_text(const ist_topology *topology, ist_topology_format format, const char *operation,
                  char **text)
{
    size_t needed = 0;
    ist_status status = ist_topology_print(topology, format, operation, NULL, 0, &needed);
    char *made = status == IST_OK ? malloc(needed) : NULL;
    if (made != NULL) {
        status = ist_topology_print(topology, format, operation, made, needed, NULL);
    }
    if (status != IST_OK || made == NULL) {
        free(made);
        return cli_failed(COMMAND, "%s",
                          status != IST_OK ? cli_error_text(status) : "out of memory");
    }
    *text = made;
    return CLI_OK;
}

int cli_topo_save(const char *path, const char *text)
{
    if (path == NULL || strcmp(path, "-") == 0) {
        return cli_put(COMMAND, text);
    }
    FILE *file = fopen(path, "w");
    bool written = file != NULL && fputs(text, file) >= 0;
    bool closed = file == NULL || fclose(file) == 0;
    return written && closed ? CLI_OK : cli_failed(COMMAND, "cannot write %s", path);
}

ist_topology_policy cli_topo_policy(const cli_topo_options *options)
{
    return (ist_topology_policy){.size = sizeof(ist_topology_policy),
                                 .lsa_size_max = options->lsa_max,
                                 .peer_access = options->peer_access,
                                 .gin_off = options->gin_off};
}

/* ------------------------------------------------------------------------------------ verbs */

static const char *source_of(const cli_topo_options *options, int word)
{
    if (options->source != NULL) {
        return options->source;
    }
    return word < options->word_count ? options->words[word] : "live";
}

static int form_save(const ist_topology *topology, ist_topology_format format,
                     const char *operation, const char *path)
{
    char *text = NULL;
    int status = cli_topo_text(topology, format, operation, &text);
    if (status == CLI_OK) {
        status = cli_topo_save(path, text);
    }
    free(text);
    return status;
}

static int show_opened(const ist_topology *topology, const cli_topo_options *options)
{
    ist_topology_format format = options->json     ? IST_TOPOLOGY_JSON
                                 : options->matrix ? IST_TOPOLOGY_MATRIX
                                                   : IST_TOPOLOGY_TEXT;
    int status = form_save(topology, format, NULL, NULL);
    if (status == CLI_OK && options->svg != NULL) {
        status = form_save(topology, IST_TOPOLOGY_SVG, options->load, options->svg);
    }
    if (status == CLI_OK && options->heat != NULL) {
        status = form_save(topology, IST_TOPOLOGY_HEAT, NULL, options->heat);
    }
    return status;
}

static int show(const cli_topo_options *options)
{
    ist_topology *topology = NULL;
    if (options->word_count > 1) {
        return cli_usage(COMMAND, "show takes one source");
    }
    int status = cli_topo_open(source_of(options, 0), options, &topology);
    if (status == CLI_OK) {
        status = show_opened(topology, options);
    }
    ist_topology_close(topology);
    return status;
}

static int explain_opened(const ist_topology *topology, const cli_topo_options *options, int32_t a,
                          int32_t b)
{
    ist_topology_policy policy = cli_topo_policy(options);
    ist_explain_desc desc = {.size = sizeof desc,
                             .rank_a = a,
                             .rank_b = b,
                             .operation = options->operation,
                             .policy = &policy};
    size_t needed = 0;
    ist_status status = ist_topology_explain(topology, &desc, NULL, 0, &needed);
    char *text = status == IST_OK ? malloc(needed) : NULL;
    if (text != NULL) {
        status = ist_topology_explain(topology, &desc, text, needed, NULL);
    }
    int result = status == IST_OK && text != NULL ? cli_put(COMMAND, text)
                 : status != IST_OK ? cli_failed(COMMAND, "%s", cli_error_text(status))
                                    : cli_failed(COMMAND, "out of memory");
    free(text);
    return result;
}

/* The last two words are a pair of ranks if they are numbers. */
static bool pair_read(const cli_topo_options *options, int32_t *a, int32_t *b)
{
    uint64_t first = 0;
    uint64_t second = 0;
    int count = options->word_count;
    if (count < 2 || !cli_parse_number(options->words[count - 2], 0, INT32_MAX, &first) ||
        !cli_parse_number(options->words[count - 1], 0, INT32_MAX, &second)) {
        return false;
    }
    *a = (int32_t)first;
    *b = (int32_t)second;
    return true;
}

static int explain(const cli_topo_options *options)
{
    ist_topology *topology = NULL;
    int32_t a = IST_RANK_NONE;
    int32_t b = IST_RANK_NONE;
    int words = options->word_count - (pair_read(options, &a, &b) ? 2 : 0);
    if (words > 1 || (words == 1 && options->source != NULL)) {
        return cli_usage(COMMAND, "explain takes a source and two rank numbers");
    }
    const char *source = words == 1 ? options->words[0] : options->source;
    const ist_explain_desc asked = {
        .size = sizeof asked, .rank_a = a, .rank_b = b, .operation = options->operation};
    int status = cli_topo_open(source != NULL ? source : "live", options, &topology);
    if (status == CLI_OK) {
        status = options->backend != NULL ? cli_topo_compare(topology, options, &asked)
                                          : explain_opened(topology, options, a, b);
    }
    ist_topology_close(topology);
    return status;
}

static int check_one(const char *source, const cli_topo_options *options)
{
    ist_topology *topology = NULL;
    ist_topology_info info = {.size = sizeof info};
    int result = cli_topo_open(source, options, &topology);
    if (result != CLI_OK) {
        return result;
    }
    ist_status status = ist_topology_check(topology);
    status = status == IST_OK ? ist_topology_query(topology, &info) : status;
    if (status != IST_OK) {
        result = cli_failed(COMMAND, "%s: %s", source, cli_error_text(status));
    } else {
        printf("ok  %s: %u GPUs, %u NICs, LSA %u, %u not known\n", source, info.gpu_count,
               info.nic_count, info.lsa_size, info.missing_count);
    }
    if (result == CLI_OK && options->backend != NULL) {
        result = cli_topo_compare(topology, options, NULL);
    }
    ist_topology_close(topology);
    return result;
}

static int check(const cli_topo_options *options)
{
    int worst = options->word_count == 0 ? check_one(source_of(options, 0), options) : CLI_OK;
    for (int i = 0; i < options->word_count; ++i) {
        int status = check_one(options->words[i], options);
        worst = status != CLI_OK ? status : worst;
    }
    return worst;
}

/* The line that makes the simulator build the same machines. */
static int line_save(const cli_topo_options *options)
{
    ist_topology *topology = NULL;
    char line[1024];
    const ist_topology_policy policy = cli_topo_policy(options);
    int status = cli_topo_open(source_of(options, 0), options, &topology);
    if (status == CLI_OK) {
        const ist_status made =
            ist_topology_cluster(topology, &policy, line, sizeof line - 1, NULL);
        (void)strcat(made == IST_OK ? line : strcpy(line, ""), "\n");
        status = made == IST_OK ? cli_topo_save(options->output, line)
                                : cli_failed(COMMAND, "%s", cli_error_text(made));
    }
    ist_topology_close(topology);
    return status;
}

static int convert(const cli_topo_options *options)
{
    static const struct {
        const char *name;
        ist_topology_format format;
    } forms[] = {{"text", IST_TOPOLOGY_TEXT}, {"matrix", IST_TOPOLOGY_MATRIX},
                 {"json", IST_TOPOLOGY_JSON}, {"nccl", IST_TOPOLOGY_NCCL},
                 {"svg", IST_TOPOLOGY_SVG},   {"heat", IST_TOPOLOGY_HEAT}};
    if (options->to != NULL && strcmp(options->to, "line") == 0) {
        return line_save(options);
    }
    for (size_t i = 0; options->to != NULL && i < sizeof forms / sizeof *forms; ++i) {
        ist_topology *topology = NULL;
        if (strcmp(forms[i].name, options->to) != 0) {
            continue;
        }
        int status = cli_topo_open(source_of(options, 0), options, &topology);
        if (status == CLI_OK) {
            status = form_save(topology, forms[i].format, options->load, options->output);
        }
        ist_topology_close(topology);
        return status;
    }
    return cli_usage(COMMAND, "--to has to be nccl, json, line, text, matrix, svg or heat");
}

static int diff_opened(const ist_topology *first, const ist_topology *second)
{
    uint32_t count = 0;
    size_t needed = 0;
    ist_status status = ist_topology_diff(first, second, NULL, NULL, 0, &needed);
    char *text = status == IST_OK ? malloc(needed) : NULL;
    if (text != NULL) {
        status = ist_topology_diff(first, second, &count, text, needed, NULL);
    }
    int result = text == NULL || status != IST_OK
                     ? cli_failed(COMMAND, "%s", cli_error_text(status))
                     : cli_put(COMMAND, text);
    free(text);
    return result != CLI_OK ? result : count > 0 ? CLI_FAILED : CLI_OK;
}

static int diff(const cli_topo_options *options)
{
    ist_topology *first = NULL;
    ist_topology *second = NULL;
    if (options->word_count != 2) {
        return cli_usage(COMMAND, "diff takes two sources");
    }
    int status = cli_topo_open(options->words[0], options, &first);
    if (status == CLI_OK) {
        status = cli_topo_open(options->words[1], options, &second);
    }
    if (status == CLI_OK) {
        status = diff_opened(first, second);
    }
    ist_topology_close(first);
    ist_topology_close(second);
    return status;
}

/* ------------------------------------------------------------------------------------ options */

enum {
    OPTION_GROUP = 256,
    OPTION_MACHINES,
    OPTION_MATRIX,
    OPTION_JSON,
    OPTION_SVG,
    OPTION_HEAT,
    OPTION_LOAD,
    OPTION_OP,
    OPTION_PEER,
    OPTION_LSA,
    OPTION_NO_GIN,
    OPTION_BACKEND,
    OPTION_TO
};

static const struct option options_known[] = {{"topo", 1, NULL, 't'},
                                              {"group", 1, NULL, OPTION_GROUP},
                                              {"machines", 1, NULL, OPTION_MACHINES},
                                              {"matrix", 0, NULL, OPTION_MATRIX},
                                              {"json", 0, NULL, OPTION_JSON},
                                              {"svg", 1, NULL, OPTION_SVG},
                                              {"heat", 1, NULL, OPTION_HEAT},
                                              {"load", 1, NULL, OPTION_LOAD},
                                              {"op", 1, NULL, OPTION_OP},
                                              {"peer-access", 1, NULL, OPTION_PEER},
                                              {"lsa-max", 1, NULL, OPTION_LSA},
                                              {"no-gin", 0, NULL, OPTION_NO_GIN},
                                              {"backend", 1, NULL, OPTION_BACKEND},
                                              {"to", 1, NULL, OPTION_TO},
                                              {"output", 1, NULL, 'o'},
                                              {"help", 0, NULL, 'h'},
                                              {NULL, 0, NULL, 0}};

static bool path_read(const char *name, ist_path *path)
{
    for (uint32_t i = IST_PATH_PIX; i <= IST_PATH_SYS; ++i) {
        if (strcmp(ist_path_name((ist_path)i), name) == 0) {
            *path = (ist_path)i;
            return true;
        }
    }
    return false;
}

/* Options with a text, and flags. False: not one of them. */
static bool text_take(int found, cli_topo_options *options)
{
    switch (found) {
    case 't': options->source = optarg; return true;
    case 'o': options->output = optarg; return true;
    case OPTION_GROUP: options->group = optarg; return true;
    case OPTION_SVG: options->svg = optarg; return true;
    case OPTION_HEAT: options->heat = optarg; return true;
    case OPTION_LOAD: options->load = optarg; return true;
    case OPTION_OP: options->operation = optarg; return true;
    case OPTION_BACKEND: options->backend = optarg; return true;
    case OPTION_TO: options->to = optarg; return true;
    case OPTION_MATRIX: options->matrix = true; return true;
    case OPTION_JSON: options->json = true; return true;
    case OPTION_NO_GIN: options->gin_off = true; return true;
    default: return false;
    }
}

static int option_take(int found, char **argv, cli_topo_options *options)
{
    uint64_t number = 0;
    if (text_take(found, options)) {
        return CLI_OK;
    }
    if (found == OPTION_PEER && path_read(optarg, &options->peer_access)) {
        return CLI_OK;
    }
    if (found == OPTION_MACHINES && cli_parse_number(optarg, 1, INT32_MAX, &number)) {
        options->machine_max = number;
        return CLI_OK;
    }
    if (found == OPTION_LSA && cli_parse_number(optarg, 1, INT32_MAX, &number)) {
        options->lsa_max = (uint32_t)number;
        return CLI_OK;
    }
    if (found == OPTION_PEER || found == OPTION_MACHINES || found == OPTION_LSA) {
        return cli_usage(COMMAND, "'%s' is no value for this option", optarg);
    }
    return cli_usage(COMMAND, "%s '%s'", found == ':' ? "a value is missing for" : "unknown option",
                     argv[optind - 1]);
}

static const struct {
    const char *name;
    int (*run)(const cli_topo_options *options);
} verbs[] = {
    {"show", show}, {"explain", explain}, {"check", check}, {"convert", convert}, {"diff", diff}};

int cli_topo_command(int argc, char **argv)
{
    cli_topo_options options = {0};
    int found;
    optind = 0;
    while ((found = getopt_long(argc, argv, ":t:o:h", options_known, NULL)) != -1) {
        if (found == 'h') {
            return cli_put(COMMAND, help);
        }
        int status = option_take(found, argv, &options);
        if (status != CLI_OK) {
            return status;
        }
    }
    if (optind >= argc) {
        return cli_usage(COMMAND, "show, explain, check, convert or diff is missing");
    }
    const char *verb = argv[optind++];
    if (argc - optind > CLI_TOPO_WORDS_MAX) {
        return cli_usage(COMMAND, "more than %d words", CLI_TOPO_WORDS_MAX);
    }
    while (optind < argc) {
        options.words[options.word_count++] = argv[optind++];
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; ++i) {
        if (strcmp(verbs[i].name, verb) == 0) {
            return verbs[i].run(&options);
        }
    }
    return cli_usage(COMMAND, "'%s' is none of show, explain, check, convert, diff", verb);
}
