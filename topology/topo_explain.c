/* SPDX-License-Identifier: Apache-2.0 */
/* Explanations. Everything that is said comes from topo_choose() and the graph.
 */
#include "topo_explain.h"
#include "topo_pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 79u
#define INDENT 12u
#define RANKS_MAX 1024u /* all pairs of more ranks are not counted one by one */

static void row(topo_text *text, const char *key, const char *value)
{
    topo_text_add(text, "  %-10s", key);
    topo_text_add_wrapped(text, WIDTH, INDENT, value);
    topo_text_add(text, "\n");
}

/* Wraps what was built up in a text of its own. */
static void row_take(topo_text *text, const char *key, topo_text *value)
{
    row(text, key, value->bytes != NULL ? value->bytes : "");
    text->failed = text->failed || value->failed;
    topo_text_free(value);
}

void topo_explain_gpu(const topo_graph *graph, uint32_t gpu, topo_text *text)
{
    const topo_node *node = topo_node_at(graph, gpu);
    topo_text_add(text, "GPU %" PRIu32, node->index);
    if (node->name[0] != '\0') {
        topo_text_add(text, ", %.40s", node->name);
    }
    if (node->bus != TOPO_BUS_NONE) {
        char bus[TOPO_BUS_TEXT];
        topo_bus_print(node->bus, bus);
        topo_text_add(text, " %s", bus);
    }
    if (node->machine != TOPO_NONE && topo_kind_count(graph, TOPO_MACHINE) > 1) {
        const topo_node *machine = topo_node_at(graph, node->machine);
        topo_text_add(text, " in %.40s", machine->name[0] != '\0' ? machine->name : "machine");
    }
}

static void node_name(const topo_graph *graph, uint32_t id, topo_text *text)
{
    const topo_node *node = topo_node_at(graph, id);
    char bus[TOPO_BUS_TEXT];
    topo_bus_print(node->bus, bus);
    if (node->kind == TOPO_GPU) {
        topo_text_add(text, "gpu %" PRIu32, node->index);
    } else if (node->kind == TOPO_NUMA && node->number != TOPO_BUS_NONE) {
        topo_text_add(text, "numa %" PRIu64, node->number);
    } else if (node->name[0] != '\0' && node->kind != TOPO_MACHINE &&
               node->kind != TOPO_HOST_BRIDGE) {
        topo_text_add(text, "%.32s", node->name);
    } else {
        topo_text_add(text, "%s", topo_kind_text(node->kind));
        if (node->bus != TOPO_BUS_NONE) {
            topo_text_add(text, " %s", bus);
        }
    }
}

static void hops(const topo_graph *graph, const topo_path *path, topo_text *text)
{
    node_name(graph, path->nodes[0], text);
    for (uint32_t i = 0; i < path->hop_count; i++) {
        const topo_link *link = topo_link_at(graph, path->links[i]);
        if (link->kind == TOPO_LINK_LOCAL) {
            topo_text_add(text, " - ");
        } else if (link->count > 1) {
            topo_text_add(text, " -%s-x%" PRIu32 "- ", topo_link_text(link->kind), link->count);
        } else {
            topo_text_add(text, " -%s- ", topo_link_text(link->kind));
        }
        node_name(graph, path->nodes[i + 1], text);
    }
}

static void path_say(const topo_path *path, topo_text *text)
{
    topo_text_add(text, "%s: %s", topo_path_text(path->type), topo_path_meaning(path->type));
    if (path->link_count_nv > 0) {
        topo_text_add(text, " (NV%" PRIu32 ")", path->link_count_nv);
    }
}

static void numbers_say(const topo_graph *graph, const topo_path *path, topo_text *text)
{
    if (path->bytes_per_s == 0) {
        topo_text_add(text, "rate not known");
    } else {
        topo_text_add_rate(text, path->bytes_per_s);
        const topo_link *link = topo_link_at(graph, path->narrowest);
        topo_text_add(text, " one way (%s; the narrowest link: %s, %s)",
                      topo_origin_text(path->rate_origin), topo_link_text(link->kind),
                      topo_health_text(link->health));
    }
    topo_text_add(text, ", ");
    topo_text_add_time(text, path->latency_ps);
}

static void way_say(const topo_choice *choice, topo_text *text)
{
    topo_text_add(text, "%s", topo_way_text(choice->way));
    if (choice->way == TOPO_WAY_LSA) {
        topo_text_add(text, ", teams of %" PRIu32, choice->lsa_size);
    } else if (choice->way == TOPO_WAY_GIN) {
        topo_text_add(text, ", %s", topo_gin_text(choice->gin));
    }
}

/* The link that most holds a path back, when a part of it is not healthy. */
static void health_say(const topo_graph *graph, const topo_path *path, topo_text *text)
{
    for (uint32_t i = 0; i < path->hop_count; i++) {
        const topo_link *link = topo_link_at(graph, path->links[i]);
        if (link->health != TOPO_HEALTHY) {
            topo_text line = {0};
            topo_text_add(&line, "the %s link ", topo_link_text(link->kind));
            node_name(graph, link->a, &line);
            topo_text_add(&line, " - ");
            node_name(graph, link->b, &line);
            topo_text_add(&line, " is %s", topo_health_text(link->health));
            row_take(text, "health", &line);
        }
    }
}

void topo_explain_pair(const topo_graph *graph, const topo_policy *policy, uint32_t rank_a,
                       uint32_t rank_b, topo_text *text)
{
    topo_choice choice;
    topo_text line = {0};
    uint32_t a = topo_policy_gpu(graph, policy, rank_a);
    uint32_t b = topo_policy_gpu(graph, policy, rank_b);
    topo_choose(graph, policy, rank_a, rank_b, &choice);
    topo_text_add(&line, "rank %" PRIu32 " (", rank_a);
    topo_explain_gpu(graph, a, &line);
    topo_text_add(&line, ") to rank %" PRIu32 " (", rank_b);
    topo_explain_gpu(graph, b, &line);
    topo_text_add(&line, ")");
    topo_text_add_wrapped(text, WIDTH, 2, line.bytes != NULL ? line.bytes : "");
    topo_text_add(text, "\n");
    topo_text_free(&line);
    path_say(&choice.path, &line);
    row_take(text, "path", &line);
    way_say(&choice, &line);
    row_take(text, "way", &line);
    numbers_say(graph, &choice.path, &line);
    row_take(text, "numbers", &line);
    hops(graph, &choice.path, &line);
    row_take(text, "hops", &line);
    health_say(graph, &choice.path, text);
    bool no_gin = choice.way == TOPO_WAY_HOST;
    topo_text_add(&line, "%s%s", no_gin ? "no GPU-initiated network: " : "", choice.reason);
    row_take(text, "because", &line);
    row(text, "better", choice.missing != NULL ? choice.missing : "nothing: no way is better");
    row(text, "override", choice.override);
}

/* --------------------------------------------------------------------------------- communicator */

typedef struct tally {
    uint64_t ways[TOPO_WAYS];
    uint64_t paths[TOPO_PATH_TYPES];
    uint64_t pairs;
    uint64_t slowest; /* bytes per second of the narrowest path */
    uint32_t from, to;
    topo_path narrowest;
} tally;

static void tally_pair(const topo_graph *graph, const topo_policy *policy, uint32_t a, uint32_t b,
                       tally *sum)
{
    topo_choice choice;
    topo_choose(graph, policy, a, b, &choice);
    sum->pairs++;
    sum->ways[choice.way]++;
    sum->paths[choice.path.type]++;
    uint64_t rate = choice.path.bytes_per_s;
    if (rate > 0 && (sum->slowest == 0 || rate < sum->slowest)) {
        sum->slowest = rate;
        sum->from = a;
        sum->to = b;
        sum->narrowest = choice.path;
    }
}

static void tally_say(const topo_graph *graph, const tally *sum, topo_text *text)
{
    topo_text line = {0};
    for (uint32_t i = 0; i < TOPO_WAYS; i++) {
        if (sum->ways[i] > 0) {
            topo_text_add(&line, "%s%" PRIu64 " by %s", line.length > 0 ? "; " : "", sum->ways[i],
                          topo_way_text((topo_way)i));
        }
    }
    row_take(text, "pairs", &line);
    for (uint32_t i = 0; i < TOPO_PATH_TYPES; i++) {
        if (sum->paths[i] > 0) {
            topo_text_add(&line, "%s%s %" PRIu64, line.length > 0 ? ", " : "",
                          topo_path_text((topo_path_type)i), sum->paths[i]);
        }
    }
    row_take(text, "paths", &line);
    if (sum->slowest > 0) {
        topo_text_add(&line, "rank %" PRIu32 " to %" PRIu32 ": ", sum->from, sum->to);
        numbers_say(graph, &sum->narrowest, &line);
        row_take(text, "narrowest", &line);
    }
}

static void missing_say(const topo_graph *graph, topo_text *text)
{
    for (uint32_t i = 0; i < topo_missing_count(graph); i++) {
        const topo_missing *missing = topo_missing_at(graph, i);
        topo_text line = {0};
        topo_text_add(&line, "%s: %s", missing->what, missing->why);
        row_take(text, i == 0 ? "not known" : "", &line);
    }
}

/* What the machine has answered, when it was asked. */
static bool gin_known_say(const topo_policy *policy, topo_text *text)
{
    const topo_able *able = policy->able;
    if (able == NULL || !able->gin_known) {
        return false;
    }
    topo_text line = {0};
    bool there = able->gin != TOPO_GIN_NONE;
    topo_text_add(&line, "%s%s", there ? "" : "not available: ",
                  there ? topo_gin_text(able->gin) : able->gin_reason);
    row_take(text, "GIN", &line);
    return true;
}

static void gin_say(const topo_graph *graph, const topo_policy *policy, topo_text *text)
{
    uint32_t count = topo_policy_ranks(graph, policy);
    topo_gin kind = TOPO_GIN_GDAKI;
    if (gin_known_say(policy, text)) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *reason = NULL;
        topo_gin its = topo_gpu_gin(graph, topo_policy_gpu(graph, policy, i), &reason);
        if (reason != NULL) {
            topo_text line = {0};
            topo_text_add(&line, "not available: rank %" PRIu32 ": %s", i, reason);
            row_take(text, "GIN", &line);
            return;
        }
        kind = its < kind ? its : kind;
    }
    row(text, "GIN", topo_gin_text(kind));
}

void topo_explain_comm(const topo_graph *graph, const topo_policy *policy, topo_text *text)
{
    uint32_t count = topo_policy_ranks(graph, policy);
    topo_text line = {0};
    topo_text_add(text, "communicator of %" PRIu32 " ranks\n", count);
    if (count == 0) {
        row(text, "ranks", "the topology has no GPU");
        missing_say(graph, text);
        return;
    }
    topo_policy known = *policy;
    known.lsa_size = topo_policy_lsa(graph, policy);
    uint32_t lsa = known.lsa_size;
    topo_text_add(&line,
                  "%" PRIu32 " load/store teams of %" PRIu32 ", %" PRIu32 " rail teams of %" PRIu32
                  "; %" PRIu32 " NVLink domains",
                  count / lsa, lsa, lsa, count / lsa, topo_domain_count(graph));
    row_take(text, "teams", &line);
    tally sum = {0};
    for (uint32_t a = 0; a < count && count <= RANKS_MAX; a++) {
        for (uint32_t b = a + 1; b < count; b++) {
            tally_pair(graph, &known, a, b, &sum);
        }
    }
    if (count <= RANKS_MAX) {
        tally_say(graph, &sum, text);
    } else {
        row(text, "pairs", "not counted one by one above 1024 ranks");
    }
    gin_say(graph, policy, text);
    missing_say(graph, text);
}

/* ----------------------------------------------------------------------------------- operations */

/* Which pairs an operation uses. */
typedef enum pattern { PATTERN_ALL, PATTERN_RING, PATTERN_TEAM_RAIL } pattern;

/* X(name, pattern, in words) */
#define OPERATION_LIST(X)                                                                          \
    X("barrier", PATTERN_TEAM_RAIL, "flags inside each team, then between equal places of teams")  \
    X("all-reduce", PATTERN_RING, "ring over neighbours by rank; small ones over all pairs")       \
    X("all-gather", PATTERN_RING, "ring over neighbours by rank")                                  \
    X("reduce-scatter", PATTERN_RING, "ring over neighbours by rank")                              \
    X("broadcast", PATTERN_RING, "ring over neighbours by rank")                                   \
    X("all-to-all", PATTERN_ALL, "every rank to every rank")                                       \
    X("ep.dispatch", PATTERN_ALL, "every rank to every rank that has an expert")                   \
    X("ep.combine", PATTERN_ALL, "every rank that has an expert to every rank")                    \
    X("reshard", PATTERN_ALL, "any rank to any rank, as the two meshes overlap")                   \
    X("put", PATTERN_ALL, "one rank to one rank")

typedef struct operation_row {
    const char *name;
    pattern pairs;
    const char *words;
} operation_row;

static const operation_row operations[] = {
#define X(name, pairs, words) {name, pairs, words},
    OPERATION_LIST(X)
#undef X
};
#define OPERATION_COUNT (sizeof(operations) / sizeof(operations[0]))

static bool uses(pattern pairs, uint32_t a, uint32_t b, uint32_t count, uint32_t lsa)
{
    switch (pairs) {
    case PATTERN_ALL: return true;
    case PATTERN_RING: return b == a + 1 || (a == 0 && b == count - 1);
    case PATTERN_TEAM_RAIL: return a / lsa == b / lsa || a % lsa == b % lsa;
    }
    return false;
}

bool topo_operation_uses(const char *operation, uint32_t a, uint32_t b, uint32_t count,
                         uint32_t lsa)
{
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        if (strcmp(operations[i].name, operation) == 0) {
            return uses(operations[i].pairs, a, b, count, lsa);
        }
    }
    return false;
}

bool topo_explain_operation(const topo_graph *graph, const topo_policy *policy,
                            const char *operation, topo_text *text)
{
    const operation_row *found = NULL;
    for (size_t i = 0; i < OPERATION_COUNT && found == NULL; i++) {
        found = strcmp(operations[i].name, operation) == 0 ? &operations[i] : NULL;
    }
    if (found == NULL) {
        for (size_t i = 0; i < OPERATION_COUNT; i++) {
            topo_text_add(text, "%s%s", i > 0 ? ", " : "", operations[i].name);
        }
        return false;
    }
    uint32_t count = topo_policy_ranks(graph, policy);
    topo_text_add(text, "%s on %" PRIu32 " ranks\n", operation, count);
    row(text, "pattern", found->words);
    uint32_t shown = count < RANKS_MAX ? count : RANKS_MAX;
    topo_policy known = *policy;
    known.lsa_size = topo_policy_lsa(graph, policy);
    uint32_t lsa = known.lsa_size;
    tally sum = {0};
    for (uint32_t a = 0; a < shown; a++) {
        for (uint32_t b = a + 1; b < shown; b++) {
            if (uses(found->pairs, a, b, shown, lsa)) {
                tally_pair(graph, &known, a, b, &sum);
            }
        }
    }
    tally_say(graph, &sum, text);
    if (sum.ways[TOPO_WAY_GIN] == 0 && sum.ways[TOPO_WAY_LSA] < sum.pairs) {
        gin_say(graph, policy, text);
    }
    return true;
}
