/* SPDX-License-Identifier: Apache-2.0 */
/* Text in 80 columns: counts, tree, matrix, gaps.
 */
#include "topo_show.h"
#include "topo_pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 79u
#define TREES_MAX 2u    /* machines drawn one by one */
#define LINES_MAX 200u  /* of one tree */
#define COLUMNS_MAX 14u /* of the matrix */

/* By kind, as people write them. */
static const struct {
    const char *one, *many;
} kind_names[TOPO_KINDS] = {[TOPO_MACHINE] = {"machine", "machines"},
                            [TOPO_PACKAGE] = {"package", "packages"},
                            [TOPO_NUMA] = {"NUMA node", "NUMA nodes"},
                            [TOPO_HOST_BRIDGE] = {"host bridge", "host bridges"},
                            [TOPO_PCI_SWITCH] = {"PCIe switch", "PCIe switches"},
                            [TOPO_PCI_DEVICE] = {"PCIe device", "PCIe devices"},
                            [TOPO_GPU] = {"GPU", "GPUs"},
                            [TOPO_NIC] = {"NIC", "NICs"},
                            [TOPO_NVSWITCH] = {"NVSwitch", "NVSwitches"},
                            [TOPO_NET_SWITCH] = {"network switch", "network switches"},
                            [TOPO_RAIL] = {"rail switch", "rail switches"}};

static void counts_put(const topo_graph *graph, topo_text *text)
{
    topo_text line = {0};
    bool first = true;
    for (uint32_t i = 0; i < TOPO_KINDS; i++) {
        uint32_t count = topo_kind_count(graph, (topo_kind)i);
        if (count > 0) {
            topo_text_add(&line, "%s%" PRIu32 " %s", first ? "" : ", ", count,
                          count == 1 ? kind_names[i].one : kind_names[i].many);
            first = false;
        }
    }
    topo_text_add(text, "source    ");
    topo_text_add_wrapped(text, WIDTH, 10, topo_source(graph));
    topo_text_add(text, "\nhas       ");
    topo_text_add_wrapped(text, WIDTH, 10, line.bytes != NULL ? line.bytes : "");
    topo_text_add(text, "\n");
    text->failed = text->failed || line.failed;
    topo_text_free(&line);
}

static void teams_put(const topo_graph *graph, topo_text *text)
{
    uint32_t gpus = topo_gpu_count(graph);
    if (gpus == 0) {
        return;
    }
    topo_policy policy = {0};
    uint32_t lsa = topo_policy_lsa(graph, &policy);
    topo_text_add(text,
                  "teams     LSA %" PRIu32 " (%" PRIu32 " teams), NVLink domains %" PRIu32
                  ", rails %" PRIu32 "\n",
                  lsa, gpus / lsa, topo_domain_count(graph), topo_rail_count(graph));
    const char *reason = NULL;
    topo_gin kind = topo_gpu_gin(graph, topo_gpu(graph, 0), &reason);
    topo_text_add(text, "GIN       ");
    topo_text line = {0};
    topo_text_add(&line, "%s%s", reason != NULL ? "not available: " : "",
                  reason != NULL ? reason : topo_gin_text(kind));
    topo_text_add_wrapped(text, WIDTH, 10, line.bytes != NULL ? line.bytes : "");
    topo_text_add(text, "\n");
    topo_text_free(&line);
}

/* ------------------------------------------------------------------------------------ tree */

/* NVLinks of a GPU together, and the rate of a NIC's port. */
static void links_put(const topo_graph *graph, uint32_t id, topo_text *text)
{
    uint32_t count = 0;
    uint64_t rate = 0;
    const topo_link *net = NULL;
    const char *kind = "NVLink";
    for (uint32_t i = 0; i < topo_degree(graph, id); i++) {
        const topo_link *link = topo_link_at(graph, topo_link_of(graph, id, i));
        if (link->kind == TOPO_LINK_NVLINK || link->kind == TOPO_LINK_XGMI) {
            count += link->count;
            rate += link->health == TOPO_DOWN ? 0 : link->bytes_per_s;
            kind = link->kind == TOPO_LINK_XGMI ? "XGMI" : kind;
        } else if (link->kind == TOPO_LINK_NET) {
            net = link;
        } else if (link->kind == TOPO_LINK_C2C) {
            topo_text_add(text, "  C2C ");
            topo_text_add_rate(text, link->bytes_per_s);
        }
    }
    if (rate > 0) {
        topo_text_add(text, "  %s x%" PRIu32 " ", kind, count);
        topo_text_add_rate(text, rate);
    }
    if (net != NULL) {
        topo_text_add(text, "  port ");
        topo_text_add_rate(text, net->bytes_per_s);
        topo_text_add(text, net->rate_origin == TOPO_DEFAULT ? " (assumed)" : "");
    }
}

static void node_put(const topo_graph *graph, uint32_t id, uint32_t depth, topo_text *text)
{
    const topo_node *node = topo_node_at(graph, id);
    topo_text line = {0};
    topo_text_add(&line, "%*s%s", (int)(2 * depth), "", topo_kind_text(node->kind));
    if (node->kind == TOPO_GPU || node->kind == TOPO_NIC) {
        topo_text_add(&line, " %" PRIu32, node->index);
    } else if (node->number != TOPO_BUS_NONE && node->kind != TOPO_HOST_BRIDGE) {
        topo_text_add(&line, " %" PRIu64, node->number);
    }
    if (node->name[0] != '\0') {
        topo_text_add(&line, " %.24s", node->name);
    }
    if (node->bus != TOPO_BUS_NONE) {
        char bus[TOPO_BUS_TEXT];
        topo_bus_print(node->bus, bus);
        topo_text_add(&line, " %s", bus);
    }
    if (node->uplink != TOPO_NONE && topo_link_at(graph, node->uplink)->kind == TOPO_LINK_PCI) {
        const topo_link *link = topo_link_at(graph, node->uplink);
        topo_text_add(&line, "  PCIe ");
        topo_text_add_rate(&line, link->bytes_per_s);
        topo_text_add(&line, "%s", link->rate_origin == TOPO_DEFAULT ? " (assumed)" : "");
    }
    links_put(graph, id, &line);
    topo_text_add_wrapped(text, WIDTH, 2 * depth + 4, "");
    topo_text_add(text, "%.*s\n", (int)WIDTH, line.bytes != NULL ? line.bytes : "");
    text->failed = text->failed || line.failed;
    topo_text_free(&line);
}

/* Nodes of a machine in the order of the tree, without a list of children: each level looks through
 * the nodes behind its parent. A machine has few. */
static void subtree_put(const topo_graph *graph, uint32_t top, uint32_t depth, uint32_t *lines,
                        topo_text *text)
{
    if (*lines >= LINES_MAX) {
        return;
    }
    node_put(graph, top, depth, text);
    (*lines)++;
    for (uint32_t i = top + 1; i < topo_node_count(graph) && *lines < LINES_MAX; i++) {
        if (topo_node_at(graph, i)->parent == top) {
            subtree_put(graph, i, depth + 1, lines, text);
        }
    }
}

static void trees_put(const topo_graph *graph, topo_text *text)
{
    uint32_t machines = topo_kind_count(graph, TOPO_MACHINE);
    for (uint32_t i = 0; i < machines && i < TREES_MAX; i++) {
        uint32_t lines = 0;
        topo_text_add(text, "\n");
        subtree_put(graph, topo_kind_at(graph, TOPO_MACHINE, i), 0, &lines, text);
        if (lines >= LINES_MAX) {
            topo_text_add(text, "  and more; the JSON form has all of it\n");
        }
    }
    if (machines > TREES_MAX) {
        topo_text_add(text, "\nand %" PRIu32 " more machines\n", machines - TREES_MAX);
    }
}

/* ------------------------------------------------------------------------------------ matrix */

static void cell_put(const topo_graph *graph, uint32_t a, uint32_t b, topo_text *text)
{
    topo_path path;
    char cell[16];
    topo_path_find(graph, a, b, &path);
    if (a == b) {
        (void)snprintf(cell, sizeof(cell), "X");
    } else if (path.type == TOPO_PATH_NVL && path.link_count_nv > 0) {
        (void)snprintf(cell, sizeof(cell), "NV%" PRIu32, path.link_count_nv);
    } else {
        (void)snprintf(cell, sizeof(cell), "%s", topo_path_text(path.type));
    }
    topo_text_add(text, "%5s", cell);
}

static uint32_t device_at(const topo_graph *graph, uint32_t gpus, uint32_t i)
{
    return i < gpus ? topo_gpu(graph, i) : topo_nic(graph, i - gpus);
}

static void label_put(const topo_graph *graph, uint32_t id, const char *format, topo_text *text)
{
    const topo_node *node = topo_node_at(graph, id);
    char label[16];
    (void)snprintf(label, sizeof(label), "%s%" PRIu32, node->kind == TOPO_GPU ? "G" : "N",
                   node->index);
    topo_text_add(text, "%s", "");
    topo_text_add(text, strcmp(format, "row") == 0 ? "%-6s" : "%5s", label);
}

static void summary_put(const topo_graph *graph, topo_text *text)
{
    uint64_t types[TOPO_PATH_TYPES] = {0};
    uint32_t gpus = topo_gpu_count(graph);
    uint32_t shown = gpus < 1024 ? gpus : 1024;
    for (uint32_t a = 0; a < shown; a++) {
        for (uint32_t b = a + 1; b < shown; b++) {
            types[topo_path_type_of(graph, topo_gpu(graph, a), topo_gpu(graph, b))]++;
        }
    }
    topo_text_add(text, "pairs of GPUs");
    for (uint32_t i = 0; i < TOPO_PATH_TYPES; i++) {
        if (types[i] > 0) {
            topo_text_add(text, "  %s %" PRIu64, topo_path_text((topo_path_type)i), types[i]);
        }
    }
    topo_text_add(text, shown < gpus ? "  (of the first 1024)\n" : "\n");
}

void topo_show_matrix(const topo_graph *graph, topo_text *text)
{
    uint32_t gpus = topo_gpu_count(graph);
    uint32_t all = gpus + topo_nic_count(graph);
    uint32_t columns = all < COLUMNS_MAX ? all : COLUMNS_MAX;
    if (gpus == 0) {
        return;
    }
    topo_text_add(text, "%-6s", "");
    for (uint32_t i = 0; i < columns; i++) {
        label_put(graph, device_at(graph, gpus, i), "column", text);
    }
    topo_text_add(text, "\n");
    for (uint32_t i = 0; i < columns; i++) {
        label_put(graph, device_at(graph, gpus, i), "row", text);
        for (uint32_t j = 0; j < columns; j++) {
            cell_put(graph, device_at(graph, gpus, i), device_at(graph, gpus, j), text);
        }
        topo_text_add(text, "\n");
    }
    if (all > columns) {
        topo_text_add(text, "(%" PRIu32 " of %" PRIu32 " devices)\n", columns, all);
    }
    summary_put(graph, text);
}

/* ------------------------------------------------------------------------------------ the whole */

static void missing_put(const topo_graph *graph, topo_text *text)
{
    for (uint32_t i = 0; i < topo_missing_count(graph); i++) {
        const topo_missing *missing = topo_missing_at(graph, i);
        topo_text line = {0};
        topo_text_add(&line, "%s: %s", missing->what, missing->why);
        topo_text_add(text, "%-10s", i == 0 ? "\nnot known" : "");
        topo_text_add(text, "%s", i == 0 ? " " : "");
        topo_text_add_wrapped(text, WIDTH, 10, line.bytes != NULL ? line.bytes : "");
        topo_text_add(text, "\n");
        topo_text_free(&line);
    }
}

void topo_show_text(const topo_graph *graph, topo_text *text)
{
    counts_put(graph, text);
    teams_put(graph, text);
    trees_put(graph, text);
    if (topo_gpu_count(graph) > 0) {
        topo_text_add(text, "\n");
        topo_show_matrix(graph, text);
    }
    missing_put(graph, text);
}
