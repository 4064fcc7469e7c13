/* SPDX-License-Identifier: Apache-2.0 */
/* NVLink and XGMI of hwloc files: from bandwidth matrices, and where there is none from the peers that
 * GPUs name.
 */
#include "topo_hwloc_internal.h"
#include "topo_build.h"
#include "topo_error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "topology.hwloc"
#define MATRIX_MAX 512u /* objects of a distance matrix */

/* ------------------------------------------------------------------------------------ matrices */

static int named_compare(const void *left, const void *right)
{
    const topo_hwloc_named *a = left;
    const topo_hwloc_named *b = right;
    return a->gp_index < b->gp_index ? -1 : a->gp_index > b->gp_index;
}

static uint32_t named_find(const topo_hwloc_reader *self, uint64_t gp_index)
{
    topo_hwloc_named key = {gp_index, 0};
    const topo_hwloc_named *found =
        self->name_count == 0
            ? NULL
            : bsearch(&key, self->names, self->name_count, sizeof(key), named_compare);
    return found != NULL ? found->node : TOPO_NONE;
}

typedef struct matrix {
    uint32_t count;
    uint32_t nodes[MATRIX_MAX]; /* TOPO_NONE: an object that the graph does not have */
    uint64_t values[MATRIX_MAX * MATRIX_MAX];
} matrix;

/* Reads numbers from the texts of all children of a name, "OSDev:332" as 332. */
static ist_status numbers_read(const topo_hwloc_reader *self, const topo_element *element,
                               const char *child, uint64_t *numbers, uint32_t count)
{
    uint32_t read = 0;
    for (const topo_element *at = topo_xml_child(element, child); at != NULL;
         at = topo_xml_next(at, child)) {
        const char *text = at->text;
        text += strspn(text, " \t\r\n");
        for (; *text != '\0'; text += strspn(text, " \t\r\n")) {
            size_t kind = strcspn(text, "0123456789");
            char *end = NULL;
            uint64_t number = strtoull(text + kind, &end, 10);
            if (end == text + kind || read == count) {
                return topo_hwloc_refuse(self, at, "not as many numbers as the matrix has places");
            }
            numbers[read++] = number;
            text = end;
        }
    }
    return read == count ? IST_OK
                         : topo_hwloc_refuse(self, element, "fewer numbers than nbobjs asks for");
}

/* Rate of one NVLink of a pair: version 1 and 5 differ from those between. */
static void link_version(topo_hwloc_reader *self, uint32_t gpu, uint64_t megabytes, uint64_t *each,
                         uint64_t *effective)
{
    uint64_t nominal = 0;
    uint16_t device = topo_node_edit(self->graph, gpu)->device;
    bool first = megabytes % 20000 == 0 && (megabytes % 25000 != 0 || device < 0x1d00);
    bool fifth = device >= 0x2900 && megabytes % 50000 == 0;
    topo_nvlink_rate(first ? 60 : fifth ? 100 : device >= 0x2200 ? 90 : 80, &nominal, effective);
    *each = nominal;
}

static ist_status matrix_link(topo_hwloc_reader *self, uint32_t a, uint32_t b, uint64_t megabytes,
                              bool xgmi)
{
    uint64_t each = 0;
    uint64_t effective = 0;
    uint32_t gpu = topo_node_edit(self->graph, a)->kind == TOPO_GPU ? a : b;
    bool switches = topo_node_edit(self->graph, a)->kind == TOPO_NVSWITCH &&
                    topo_node_edit(self->graph, b)->kind == TOPO_NVSWITCH;
    if ((topo_node_edit(self->graph, gpu)->kind != TOPO_GPU && !switches) || a == b) {
        return IST_OK;
    }
    if (megabytes > TOPO_RATE_MAX / 1000000) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, 0,
                             "a distance of %" PRIu64 " MB/s", megabytes);
    }
    if (switches) {
        topo_nvlink_rate(80, &each, &effective);
    } else if (xgmi) {
        topo_xgmi_rate(0, &each, &effective);
    } else {
        link_version(self, gpu, megabytes, &each, &effective);
    }
    uint64_t count = megabytes * 1000000 / each;
    count = count == 0 ? 1 : count;
    if (count > 1024) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, self->document->name, 0,
                             "a distance of %" PRIu64 " MB/s between two GPUs", megabytes);
    }
    uint64_t nominal = megabytes * 1000000;
    uint64_t rate = effective * count < nominal ? effective * count : nominal;
    return topo_build_link(self->graph, xgmi ? TOPO_LINK_XGMI : TOPO_LINK_NVLINK, a, b,
                           (uint32_t)count, nominal, rate, TOPO_VENDOR);
}

/* The processor's end is its only NUMA node, if the package has one. */
static uint32_t processor_end(topo_hwloc_reader *self, uint32_t node)
{
    uint32_t found = node;
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->numa_count; i++) {
        if (topo_node_edit(self->graph, self->numas[i].node)->parent == node) {
            found = self->numas[i].node;
            count++;
        }
    }
    return count == 1 ? found : node;
}

static ist_status matrix_apply(topo_hwloc_reader *self, const matrix *made, bool xgmi)
{
    for (uint32_t i = 0; i < made->count; i++) {
        for (uint32_t j = i + 1; j < made->count; j++) {
            uint64_t there = made->values[i * made->count + j];
            uint64_t back = made->values[j * made->count + i];
            uint64_t least = there < back ? there : back;
            if (least == 0 || made->nodes[i] == TOPO_NONE || made->nodes[j] == TOPO_NONE) {
                continue;
            }
            IST_RETURN_IF_ERROR(matrix_link(self, made->nodes[i], made->nodes[j], least, xgmi));
        }
    }
    return IST_OK;
}

static ist_status matrix_read(topo_hwloc_reader *self, const topo_element *element, matrix *made,
                              bool xgmi)
{
    uint64_t count = 0;
    uint64_t indexes[MATRIX_MAX];
    IST_RETURN_IF_ERROR(topo_hwloc_number(self, element, "nbobjs", &count));
    if (count < 1 || count > MATRIX_MAX) {
        return topo_hwloc_refuse(self, element, "nbobjs has to be from 1 to 512");
    }
    made->count = (uint32_t)count;
    IST_RETURN_IF_ERROR(numbers_read(self, element, "indexes", indexes, made->count));
    IST_RETURN_IF_ERROR(
        numbers_read(self, element, "u64values", made->values, made->count * made->count));
    for (uint32_t i = 0; i < made->count; i++) {
        uint32_t node = named_find(self, indexes[i]);
        bool package = node != TOPO_NONE && topo_node_edit(self->graph, node)->kind == TOPO_PACKAGE;
        made->nodes[i] = package ? processor_end(self, node) : node;
        for (uint32_t j = 0; j < i; j++) {
            if (made->nodes[j] == made->nodes[i] && node != TOPO_NONE) {
                return topo_hwloc_refuse(self, element, "the matrix has an object twice");
            }
        }
    }
    return matrix_apply(self, made, xgmi);
}

static ist_status matrix_take(topo_hwloc_reader *self, const topo_element *element, bool xgmi)
{
    matrix *made = ist_alloc(1, sizeof(*made));
    if (made == NULL) {
        return topo_error_memory(OPERATION, "a distance matrix");
    }
    ist_status status = matrix_read(self, element, made, xgmi);
    ist_free(made);
    return status;
}

/* The first matrix of each kind; later ones are transformations of it. */
static ist_status matrices_read(topo_hwloc_reader *self)
{
    bool seen[2] = {false, false};
    if (self->name_count > 0) {
        qsort(self->names, self->name_count, sizeof(*self->names), named_compare);
    }
    for (const topo_element *at = self->document->root->child; at != NULL; at = at->next) {
        const char *name = topo_xml_attr(at, "name");
        const char *indexing = topo_xml_attr(at, "indexing");
        bool matrix_element = strncmp(at->name, "distances2", 10) == 0 && name != NULL &&
                              (indexing == NULL || strcmp(indexing, "gp") == 0);
        bool nvlink = matrix_element && strncmp(name, "NVLinkBandwidth", 15) == 0;
        bool xgmi = matrix_element && strncmp(name, "XGMIBandwidth", 13) == 0;
        if ((nvlink || xgmi) && !seen[xgmi]) {
            seen[xgmi] = true;
            IST_RETURN_IF_ERROR(matrix_take(self, at, xgmi));
        }
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ XGMI */

static bool lists_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == list || at[-1] == ' ' || at[-1] == ',';
        bool ends = at[length] == '\0' || at[length] == ' ' || at[length] == ',';
        if (begins && ends) {
            return true;
        }
    }
    return false;
}

/* Files without the matrix may name the peers of each GPU. */
static ist_status peers_link(topo_hwloc_reader *self, const uint32_t *gpus, uint32_t count)
{
    uint64_t nominal = 0;
    uint64_t effective = 0;
    topo_xgmi_rate(0, &nominal, &effective);
    for (uint32_t i = 0; i < count; i++) {
        const char *peers = topo_attr_get(self->graph, gpus[i], "xgmi_peers");
        for (uint32_t j = 0; j < count && peers != NULL; j++) {
            const char *name = topo_attr_get(self->graph, gpus[j], "rsmi");
            const char *back = topo_attr_get(self->graph, gpus[j], "xgmi_peers");
            bool both = j > i || back == NULL;
            if (j != i && name != NULL && both && lists_word(peers, name)) {
                IST_RETURN_IF_ERROR(topo_build_link(self->graph, TOPO_LINK_XGMI, gpus[i], gpus[j],
                                                    1, nominal, effective, TOPO_DEFAULT));
            }
        }
    }
    return IST_OK;
}

ist_status topo_hwloc_links_read(topo_hwloc_reader *self)
{
    uint32_t before = topo_link_count(self->graph);
    uint32_t gpus[MATRIX_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < topo_node_count(self->graph) && count < MATRIX_MAX; i++) {
        if (topo_node_at(self->graph, i)->kind == TOPO_GPU) {
            gpus[count++] = i;
        }
    }
    IST_RETURN_IF_ERROR(matrices_read(self));
    if (topo_link_count(self->graph) == before) {
        IST_RETURN_IF_ERROR(peers_link(self, gpus, count));
    }
    if (count > 1 && topo_link_count(self->graph) == before) {
        return topo_missing_add(
            self->graph, "NVLink",
            "the file has no NVLink or XGMI matrix; hwloc leaves it out when it "
            "cannot see the switches or is too old for the GPUs");
    }
    return IST_OK;
}
