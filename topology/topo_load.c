/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at what is given, chooses the reader, seals and checks what it made.
 */
#include "topo_load.h"
#include "topo_build.h"
#include "topo_check.h"
#include "topo_cluster_graph.h"
#include "topo_error.h"
#include "topo_hwloc.h"
#include "topo_json.h"
#include "topo_live.h"
#include "topo_nccl.h"
#include "topo_synthetic.h"
#include "topo_xml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OPERATION "topology.load"
#define LINE_MAX_BYTES 4096u

static ist_status network_default(topo_graph *graph)
{
    uint64_t *rates = ist_alloc(topo_node_count(graph), sizeof(*rates));
    if (rates == NULL) {
        return topo_error_memory(OPERATION, "rates of NICs");
    }
    ist_status status = topo_build_network(graph, rates);
    ist_free(rates);
    return status;
}

static ist_status hwloc_read(const topo_document *document, topo_graph *graph)
{
    IST_RETURN_IF_ERROR(topo_hwloc_read(document, graph));
    return network_default(graph);
}

static ist_status document_read(const topo_document *document, const topo_load_options *options,
                                topo_graph *graph, const char **format)
{
    const char *root = document->root->name;
    if (strcmp(root, "topology") == 0) {
        *format = "hwloc XML";
        return hwloc_read(document, graph);
    }
    if (strcmp(root, "graphs") == 0) {
        *format = "NCCL graph XML";
        return topo_nccl_graphs_read(document, graph);
    }
    if (strcmp(root, "system") == 0 || strcmp(root, "cpu") == 0 || strcmp(root, "pci") == 0) {
        *format = "NCCL topology XML";
        return topo_nccl_read(document, options != NULL ? options->group : NULL, graph);
    }
    char quoted[TOPO_QUOTE_BYTES];
    return topo_error_at(IST_ERR_PARSE, OPERATION, document->name, document->root->line,
                         "<%s> is no topology: <system>, <topology> or <graphs> is expected",
                         topo_quote(root, quoted));
}

static ist_status xml_read(const char *bytes, size_t count, const char *name,
                           const topo_load_options *options, topo_graph *graph, const char **format)
{
    topo_document document;
    IST_RETURN_IF_ERROR(topo_xml_parse(bytes, count, name, &document));
    ist_status status = document_read(&document, options, graph, format);
    topo_xml_free(&document);
    return status;
}

static ist_status text_read(const char *text, const topo_load_options *options, topo_graph *graph,
                            const char **format)
{
    ist_cluster cluster;
    if (topo_is_synthetic(text)) {
        *format = "hwloc synthetic";
        return topo_synthetic_read(text, graph);
    }
    *format = "cluster";
    IST_RETURN_IF_ERROR(ist_cluster_parse(text, &cluster));
    return topo_cluster_build(&cluster, options != NULL ? options->machine_max : 0, TOPO_VENDOR,
                              graph);
}

/* A line in a file may not have bytes that are no text; what they are is said before a parser sees
 * them. */
static ist_status line_read(const char *bytes, size_t count, const char *name,
                            const topo_load_options *options, topo_graph *graph,
                            const char **format)
{
    char line[LINE_MAX_BYTES];
    while (count > 0 && memchr(" \t\r\n", bytes[count - 1], 4) != NULL) {
        count--;
    }
    if (count >= sizeof(line) || memchr(bytes, '\0', count) != NULL) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, name, 0,
                             "neither XML nor JSON, and no line of at most %zu characters",
                             sizeof(line) - 1);
    }
    memcpy(line, bytes, count);
    line[count] = '\0';
    return text_read(line, options, graph, format);
}

static ist_status bytes_read(const char *bytes, size_t count, const char *name,
                             const topo_load_options *options, topo_graph *graph,
                             const char **format)
{
    size_t at = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < count && strchr(" \t\r\n", bytes[at]) != NULL && bytes[at] != '\0') {
        at++;
    }
    if (at == count) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, name, 0, "there is nothing in it");
    }
    if (bytes[at] == '<') {
        return xml_read(bytes, count, name, options, graph, format);
    }
    if (bytes[at] == '{') {
        *format = "JSON";
        return topo_json_read(bytes, count, name, graph);
    }
    return line_read(bytes, count, name, options, graph, format);
}

static ist_status finish(topo_graph *graph, const char *format, const char *name)
{
    char source[256];
    if (topo_source(graph)[0] == '\0') {
        (void)snprintf(source, sizeof(source), "%s%s%.200s", format, *name != '\0' ? " " : "",
                       name);
        IST_RETURN_IF_ERROR(topo_source_set(graph, source));
    }
    IST_RETURN_IF_ERROR(topo_graph_seal(graph));
    return topo_check(graph);
}

ist_status topo_load_bytes(const char *bytes, size_t count, const char *name,
                           const topo_load_options *options, topo_graph **graph)
{
    topo_graph *made = NULL;
    const char *format = "";
    IST_RETURN_IF_ERROR(topo_graph_open(&made));
    ist_status status = bytes_read(bytes, count, name, options, made, &format);
    if (status == IST_OK) {
        status = finish(made, format, name);
    }
    if (status != IST_OK) {
        topo_graph_close(made);
        return status;
    }
    *graph = made;
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ sources */

static ist_status file_read(const char *path, size_t size, char **bytes)
{
    FILE *file = fopen(path, "rb");
    char *made = file != NULL ? ist_alloc(size + 1, 1) : NULL;
    ist_status status = IST_OK;
    if (file == NULL) {
        return topo_error_at(IST_ERR_IO, OPERATION, path, 0, "%s", strerror(errno));
    }
    if (made == NULL) {
        status = topo_error_memory(OPERATION, "a file");
    } else if (fread(made, 1, size, file) != size || ferror(file) != 0) {
        status = topo_error_at(IST_ERR_IO, OPERATION, path, 0, "cannot be read");
    }
    (void)fclose(file);
    if (status != IST_OK) {
        ist_free(made);
        return status;
    }
    *bytes = made;
    return IST_OK;
}

static ist_status file_load(const char *path, uint64_t size, const topo_load_options *options,
                            topo_graph **graph)
{
    char *bytes = NULL;
    if (size > TOPO_FILE_BYTES_MAX) {
        return topo_error_at(IST_ERR_PARSE, OPERATION, path, 0, "more than 64 MiB");
    }
    IST_RETURN_IF_ERROR(file_read(path, (size_t)size, &bytes));
    ist_status status = topo_load_bytes(bytes, (size_t)size, path, options, graph);
    ist_free(bytes);
    return status;
}

static ist_status live_load(topo_graph **graph)
{
    topo_graph *made = NULL;
    IST_RETURN_IF_ERROR(topo_graph_open(&made));
    ist_status status = topo_live_read(made);
    if (status == IST_OK) {
        status = finish(made, "this machine", "");
    }
    if (status != IST_OK) {
        topo_graph_close(made);
        return status;
    }
    *graph = made;
    return IST_OK;
}

/* What has a slash or ends as files of topologies do is meant as a path. */
static bool is_path(const char *source)
{
    static const char *const ends[] = {".xml", ".json", ".topo", ".txt"};
    size_t length = strlen(source);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t own = strlen(ends[i]);
        if (length > own && strcmp(source + length - own, ends[i]) == 0) {
            return true;
        }
    }
    return source[0] == '/' || strncmp(source, "./", 2) == 0 || strncmp(source, "../", 3) == 0;
}

ist_status topo_load(const char *source, const topo_load_options *options, topo_graph **graph)
{
    struct stat info;
    if (strcmp(source, "live") == 0) {
        return live_load(graph);
    }
    if (stat(source, &info) == 0 && S_ISREG(info.st_mode)) {
        return file_load(source, (uint64_t)info.st_size, options, graph);
    }
    if (is_path(source)) {
        return topo_error_at(IST_ERR_IO, OPERATION, source, 0, "%s",
                             stat(source, &info) == 0 ? "not a file" : strerror(errno));
    }
    /* A cluster line says itself where it is wrong, by position. */
    return topo_load_bytes(source, strlen(source), source, options, graph);
}
