/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between two graphs as a program would feel them: devices, teams, paths, rates.
 */
#include "topo_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GPUS_MAX 512u  /* of more, the first are compared pair by pair */
#define LINES_MAX 200u /* said one by one; all are counted */

typedef struct differ {
    const topo_graph *first;
    const topo_graph *second;
    topo_text *text;
    uint32_t count;
} differ;

/* Counts a difference; true when it is to be said. */
static bool found(differ *self)
{
    return self->count++ < LINES_MAX;
}

static void number_compare(differ *self, const char *what, uint64_t first, uint64_t second)
{
    if (first != second && found(self)) {
        topo_text_add(self->text, "- %s %" PRIu64 "\n+ %s %" PRIu64 "\n", what, first, what,
                      second);
    }
}

static uint32_t lsa_of(const topo_graph *graph)
{
    topo_policy policy = {0};
    return topo_gpu_count(graph) > 0 ? topo_policy_lsa(graph, &policy) : 0;
}

static void path_put(const topo_graph *graph, const topo_path *path, topo_text *text)
{
    topo_text_add(text, "%s ", topo_path_text(path->type));
    if (path->bytes_per_s > 0) {
        topo_text_add_rate(text, path->bytes_per_s);
    } else {
        topo_text_add(text, "rate not known");
    }
    (void)graph;
}

/* `a` and `b` are places among GPUs; `nic` compares with a NIC instead. */
static void pair_compare(differ *self, uint32_t a, uint32_t b, bool nic)
{
    topo_path first;
    topo_path second;
    topo_path_find(self->first, topo_gpu(self->first, a),
                   nic ? topo_nic(self->first, b) : topo_gpu(self->first, b), &first);
    topo_path_find(self->second, topo_gpu(self->second, a),
                   nic ? topo_nic(self->second, b) : topo_gpu(self->second, b), &second);
    if ((first.type != second.type || first.bytes_per_s != second.bytes_per_s) && found(self)) {
        const char *with = nic ? "NIC" : "GPU";
        topo_text_add(self->text, "- GPU %" PRIu32 " to %s %" PRIu32 ": ", a, with, b);
        path_put(self->first, &first, self->text);
        topo_text_add(self->text, "\n+ GPU %" PRIu32 " to %s %" PRIu32 ": ", a, with, b);
        path_put(self->second, &second, self->text);
        topo_text_add(self->text, "\n");
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void paths_compare(differ *self)
{
    uint32_t gpus = least(topo_gpu_count(self->first), topo_gpu_count(self->second));
    uint32_t nics = least(topo_nic_count(self->first), topo_nic_count(self->second));
    gpus = least(gpus, GPUS_MAX);
    nics = least(nics, GPUS_MAX);
    for (uint32_t a = 0; a < gpus; a++) {
        for (uint32_t b = a + 1; b < gpus; b++) {
            pair_compare(self, a, b, false);
        }
        for (uint32_t b = 0; b < nics; b++) {
            pair_compare(self, a, b, true);
        }
    }
}

static void rate_compare(differ *self, uint32_t nic)
{
    uint64_t rates[2] = {0, 0};
    const topo_graph *graphs[2] = {self->first, self->second};
    for (uint32_t side = 0; side < 2; side++) {
        uint32_t node = topo_nic(graphs[side], nic);
        for (uint32_t i = 0; i < topo_degree(graphs[side], node); i++) {
            const topo_link *link = topo_link_at(graphs[side], topo_link_of(graphs[side], node, i));
            rates[side] = link->kind == TOPO_LINK_NET ? link->bytes_per_s : rates[side];
        }
    }
    if (rates[0] != rates[1] && found(self)) {
        topo_text_add(self->text, "- NIC %" PRIu32 " port ", nic);
        topo_text_add_rate(self->text, rates[0]);
        topo_text_add(self->text, "\n+ NIC %" PRIu32 " port ", nic);
        topo_text_add_rate(self->text, rates[1]);
        topo_text_add(self->text, "\n");
    }
}

uint32_t topo_diff(const topo_graph *first, const topo_graph *second, topo_text *text)
{
    differ self = {.first = first, .second = second, .text = text};
    static const topo_kind kinds[] = {TOPO_MACHINE, TOPO_NUMA, TOPO_GPU, TOPO_NIC};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char what[32];
        (void)snprintf(what, sizeof(what), "%s count", topo_kind_text(kinds[i]));
        number_compare(&self, what, topo_kind_count(first, kinds[i]),
                       topo_kind_count(second, kinds[i]));
    }
    number_compare(&self, "LSA size", lsa_of(first), lsa_of(second));
    number_compare(&self, "NVLink domains", topo_domain_count(first), topo_domain_count(second));
    paths_compare(&self);
    uint32_t nics = least(least(topo_nic_count(first), topo_nic_count(second)), GPUS_MAX);
    for (uint32_t i = 0; i < nics; i++) {
        rate_compare(&self, i);
    }
    if (self.count > LINES_MAX) {
        topo_text_add(text, "and %" PRIu32 " more\n", self.count - LINES_MAX);
    }
    return self.count;
}
