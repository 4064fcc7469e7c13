/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: real files load, pass the check, survive conversion, and show the devices and path types
 * that their index states.
 * Method: reads the data set where it lies beside this repository; without it, says so and passes.
 * Nothing of it is in the repository.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "topo_check.h"
#include "topo_same.h"

#include <ctype.h>

#define COLUMNS 15
#define LINE_BYTES 4096

enum { COLUMN_NAME, COLUMN_KIND, COLUMN_GPUS = 6, COLUMN_NICS = 7, COLUMN_NOTES = 8 };

static char folder[512];

/* Splits a line of comma-separated values in place; quotes are doubled inside quotes. */
static int split(char *line, char *columns[COLUMNS])
{
    int count = 0;
    for (char *at = line; count < COLUMNS; count++) {
        char *out = at;
        bool quoted = *at == '"';
        columns[count] = out;
        at += quoted;
        while (*at != '\0' && *at != '\n' && (quoted || *at != ',')) {
            if (quoted && *at == '"') {
                if (at[1] != '"') {
                    quoted = false;
                    at++;
                    continue;
                }
                at++;
            }
            *out++ = *at++;
        }
        bool more = *at == ',';
        *out = '\0';
        if (!more) {
            return count + 1;
        }
        at++;
    }
    return count;
}

/* Counts by type that a note lists, as "PIX x4, SYS x24". False: it lists none. XGMI counts as
 * NVL. */
static bool note_counts(const char *notes, const char *key, int counts[TOPO_PATH_TYPES])
{
    const char *at = strstr(notes, key);
    memset(counts, 0, TOPO_PATH_TYPES * sizeof(counts[0]));
    if (at == NULL) {
        return false;
    }
    at += strlen(key);
    at += strncmp(at, " over PCI", 9) == 0 ? 9 : 0;
    bool found = false;
    for (;;) {
        char type[16];
        int count = 0;
        int used = 0;
        if (sscanf(at, " %15[A-Za-z0-9] x%d%n", type, &count, &used) != 2) {
            return found;
        }
        const char *name = strcmp(type, "XGMI") == 0    ? "NVL"
                           : strcmp(type, "XGMI2") == 0 ? "NVB"
                           : strcmp(type, "none") == 0  ? "NONE"
                                                        : type;
        for (uint32_t i = 0; i < TOPO_PATH_TYPES; i++) {
            if (strcmp(topo_path_text((topo_path_type)i), name) == 0) {
                counts[i] = count;
                found = true;
            }
        }
        at += used;
        at += *at == ',';
    }
}

static void compare_counts(const char *file, const char *what, const int *stated, const int *found)
{
    for (uint32_t i = 0; i < TOPO_PATH_TYPES; i++) {
        if (stated[i] != found[i]) {
            fail_msg("%s: %s: %d of type %s, %d stated", file, what, found[i],
                     topo_path_text((topo_path_type)i), stated[i]);
        }
    }
}

static void check_types(const topo_graph *graph, const char *file, const char *notes)
{
    int stated[TOPO_PATH_TYPES];
    int pairs[TOPO_PATH_TYPES] = {0};
    int nearest[TOPO_PATH_TYPES] = {0};
    uint32_t gpus = topo_gpu_count(graph);
    for (uint32_t i = 0; i < gpus; i++) {
        topo_path_type type = TOPO_PATH_NONE;
        for (uint32_t j = i + 1; j < gpus; j++) {
            pairs[topo_path_type_of(graph, topo_gpu(graph, i), topo_gpu(graph, j))]++;
        }
        (void)topo_gpu_nics(graph, topo_gpu(graph, i), NULL, 0, &type);
        nearest[type]++;
    }
    /* Where the index counts PCIe alone and the file has NVLink too, NVLink is what counts. */
    bool pci_alone = strstr(notes, "has NVLinkBandwidth distances") != NULL;
    if (!pci_alone && note_counts(notes, "GPU-GPU", stated)) {
        compare_counts(file, "pairs of GPUs", stated, pairs);
    }
    if (note_counts(notes, "best GPU-NIC", stated)) {
        compare_counts(file, "GPU to nearest NIC", stated, nearest);
    }
}

static void check_file(char *columns[COLUMNS])
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, columns[COLUMN_KIND],
                   columns[COLUMN_NAME]);
    topo_graph *graph = loaded(path);
    assert_int_equal(topo_check(graph), IST_OK);
    if (isdigit((unsigned char)columns[COLUMN_GPUS][0]) &&
        strchr(columns[COLUMN_GPUS], ' ') == NULL) {
        if ((uint32_t)atoi(columns[COLUMN_GPUS]) != topo_gpu_count(graph) ||
            (uint32_t)atoi(columns[COLUMN_NICS]) != topo_nic_count(graph)) {
            fail_msg("%s: %u GPUs, %u NICs, stated %s and %s", path, topo_gpu_count(graph),
                     topo_nic_count(graph), columns[COLUMN_GPUS], columns[COLUMN_NICS]);
        }
    }
    check_types(graph, path, columns[COLUMN_NOTES]);
    assert_round_trips(graph, path);
    topo_graph_close(graph);
}

static void test_all_files(void **state)
{
    (void)state;
    char line[LINE_BYTES];
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/INDEX.csv", folder);
    FILE *index = fopen(path, "r");
    if (index == NULL) {
        print_message("%s is not there: the data set was not read\n", path);
        skip();
    }
    int files = 0;
    assert_non_null(fgets(line, sizeof(line), index));
    while (fgets(line, sizeof(line), index) != NULL) {
        char *columns[COLUMNS];
        if (split(line, columns) < COLUMN_NOTES + 1) {
            fail_msg("%s: a row with too few columns", path);
        }
        check_file(columns);
        files++;
    }
    (void)fclose(index);
    print_message("%d files\n", files);
    assert_true(files > 0);
}

/* ------------------------------------------------------------------------------------ machines */

static topo_graph *file_or_skip(const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        print_message("%s is not there\n", path);
        skip();
    }
    (void)fclose(file);
    return loaded(path);
}

static uint32_t lsa_of(const char *name)
{
    topo_graph *graph = file_or_skip(name);
    uint32_t size = topo_lsa_size(graph, NULL, topo_gpu_count(graph), 0, TOPO_PATH_NVL);
    topo_graph_close(graph);
    return size;
}

/* Machines whose teams are known from what they are. */
static void test_teams(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        uint32_t lsa;
    } cases[] = {
        {"nccl/yccl-h800.xml", 8},
        {"nccl/oci-h100-topology.xml", 8},
        {"nccl/gb300-nvl72-1tray-healthy.xml", 4},
        {"nccl/gb300-nvl72-2tray-healthy.xml", 8},      /* one domain over two machines */
        {"nccl/gb300-nvl72-1tray-fault-count0.xml", 1}, /* GPU 1 has lost its links: runs 1, 1, 2 */
        {"nccl/2xa6000-nvbridge-numa-minus1.xml", 2},
        {"nccl/a100pcie-pair-nvlink-12.xml", 2},
        {"nccl/a100pcie-pair-merged-nic-nvlink-0.xml", 1},
        {"nccl/azure-ncv4-topo-2023-06.xml", 2},
        {"nccl/azure-ncv4-topo-2024-02.xml", 1},
        {"nccl/8x3090-cx6-56g.xml", 1},
        {"nccl/vr200-mlopart-snippet.xml", 2},
        {"rccl/topo_8p_940.xml", 8},
        {"rccl/topo_4p3l.xml", 4},
        {"rccl/topo_16p_gio-3s-1rp-split-flat.xml",
         4},                               /* two hives of 8, ranks 0-3 and 8-11 in one */
        {"hwloc/power8nvl-4xp100.xml", 2}, /* in pairs, a pair a socket */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t size = lsa_of(cases[i].file);
        if (size != cases[i].lsa) {
            fail_msg("%s: LSA %u, not %u", cases[i].file, size, cases[i].lsa);
        }
    }
}

/* Files of one machine in two formats, or as two exporters saw it, have the same paths. */
static void test_twins(void **state)
{
    (void)state;
    static const char *const twins[][2] = {
        {"nccl/azure-ndv4-topo-2023-09.xml", "nccl/azure-ndv4-topo-2023-10.xml"},
        {"hwloc/x9drg-nvidia-tahiti-normalio.xml", "hwloc/x9drg-nvidia-tahiti-wholeio.xml"},
        {"hwloc/coral-lassen-power9-4xv100.xml", "hwloc/coral-lassen-power9-4xv100-hwloc1.xml"},
        {"hwloc/qemu-q35-cxl.v2.xml", "hwloc/qemu-q35-cxl.v3.xml"}};
    for (size_t i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
        topo_graph *a = file_or_skip(twins[i][0]);
        topo_graph *b = file_or_skip(twins[i][1]);
        assert_same_paths(a, b, twins[i][1]);
        topo_graph_close(a);
        topo_graph_close(b);
    }
}

static bool says_missing(const topo_graph *graph, const char *what)
{
    for (uint32_t i = 0; i < topo_missing_count(graph); i++) {
        if (strcmp(topo_missing_at(graph, i)->what, what) == 0) {
            return true;
        }
    }
    return false;
}

static void test_gaps_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *what;
    } cases[] = {{"hwloc/x9drg-noio.xml", "GPUs and NICs"},
                 {"nccl/azure-ndv2-topo-2023-06.xml", "NVLink"},
                 {"nccl/azure-ncv4-topo-2024-02.xml", "NVLinks"},
                 {"nccl/oci-h100-topology.xml", "true rate of a PCIe link"},
                 {"nccl/azure-ndv4-topo-2025-01.xml", "the real PCIe tree"},
                 {"nccl/vr200-mlopart-snippet.xml", "the machine"},
                 {"nccl/flagcx-topo-demo.xml", "where GPUs and NICs sit"},
                 {"rccl/dtk26.04-hygon-mapping.xml", "which group this machine is"},
                 {"nccl-graph/8x3090-sys-graph.xml", "the machine"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_graph *graph = file_or_skip(cases[i].file);
        if (!says_missing(graph, cases[i].what)) {
            fail_msg("%s does not say that \"%s\" is not known", cases[i].file, cases[i].what);
        }
        topo_graph_close(graph);
    }
}

int main(void)
{
    const char *source = getenv("IST_SOURCE_DIR");
    (void)snprintf(folder, sizeof(folder), "%s/../shared/data/topologies",
                   source != NULL ? source : ".");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_files),
        cmocka_unit_test(test_teams),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_gaps_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
