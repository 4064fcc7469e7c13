/* SPDX-License-Identifier: Apache-2.0 */
/* Paths between two nodes. In one machine: NVLink or XGMI, direct, through a switch or through one
 * other GPU; else the tree, up to the nearest common ancestor and down. Between machines: nearest
 * NIC, network, nearest NIC. Types as NCCL and nvidia-smi name them.
 */
#include "topo_graph_internal.h"

#include <string.h>

static bool link_usable(const topo_link *link)
{
    return link->health != TOPO_DOWN;
}

static bool is_gpu_link(const topo_link *link)
{
    return link->kind == TOPO_LINK_NVLINK || link->kind == TOPO_LINK_XGMI;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ----------------------------------------------------------------------------------- collecting */

static void path_begin(topo_path *path, uint32_t from)
{
    path->type = TOPO_PATH_NONE;
    path->hop_count = 0;
    path->bytes_per_s = 0;
    path->latency_ps = 0;
    path->narrowest = TOPO_NONE;
    path->rate_origin = TOPO_DEFAULT;
    path->link_count_nv = 0;
    path->nodes[0] = from;
}

/* Appends a hop of a known rate; false when the path is too long to be one. */
static bool hop_add_rate(const topo_graph *graph, topo_path *path, uint32_t link, uint32_t to,
                         uint64_t rate)
{
    if (path->hop_count >= TOPO_HOPS_MAX) {
        return false;
    }
    const topo_link *taken = &graph->links[link];
    path->links[path->hop_count++] = link;
    path->nodes[path->hop_count] = to;
    path->latency_ps += taken->latency_ps;
    if (rate > 0 && (path->bytes_per_s == 0 || rate < path->bytes_per_s)) {
        path->bytes_per_s = rate;
        path->narrowest = link;
        path->rate_origin = taken->rate_origin;
    }
    return true;
}

static bool hop_add(const topo_graph *graph, topo_path *path, uint32_t link, uint32_t to)
{
    return hop_add_rate(graph, path, link, to, graph->links[link].bytes_per_s);
}

/* --------------------------------------------------------------------------------- NVLink, XGMI */

/* The direct link of two nodes over NVLink, XGMI or C2C; TOPO_NONE. */
static uint32_t direct_link(const topo_graph *graph, uint32_t a, uint32_t b)
{
    uint32_t degree = topo_degree(graph, a);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t link = topo_link_of(graph, a, i);
        const topo_link *found = &graph->links[link];
        if (topo_other(graph, link, a) == b && link_usable(found) &&
            (is_gpu_link(found) || found->kind == TOPO_LINK_C2C)) {
            return link;
        }
    }
    return TOPO_NONE;
}

/* The NVLink between two switches; TOPO_NONE. Looked for where fewer links are. */
static uint32_t switch_link(const topo_graph *graph, uint32_t a, uint32_t b)
{
    uint32_t from = topo_degree(graph, a) <= topo_degree(graph, b) ? a : b;
    return graph->switch_links > 0 ? direct_link(graph, from, from == a ? b : a) : TOPO_NONE;
}

/* What the switches that two GPUs share carry together. Switches may be linked to each other, as
 * those of two boards are. */
typedef struct switched {
    uint64_t bytes_per_s;
    uint32_t count;
    uint32_t up;     /* links of the first way; TOPO_NONE: there is none */
    uint32_t across; /* TOPO_NONE: one switch is enough */
    uint32_t down;
} switched;

/* The link from a switch, or from one beside it, to a GPU; `across` leads to the one beside. */
static uint32_t link_down(const topo_graph *graph, uint32_t through, uint32_t gpu, uint32_t *across)
{
    *across = TOPO_NONE;
    uint32_t direct = direct_link(graph, gpu, through);
    if (direct != TOPO_NONE) {
        return direct;
    }
    uint32_t degree = topo_degree(graph, gpu);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t down = topo_link_of(graph, gpu, i);
        uint32_t beside = topo_other(graph, down, gpu);
        if (graph->nodes[beside].kind != TOPO_NVSWITCH || !link_usable(&graph->links[down])) {
            continue;
        }
        *across = switch_link(graph, through, beside);
        if (*across != TOPO_NONE) {
            return down;
        }
    }
    return TOPO_NONE;
}

static switched switches_shared(const topo_graph *graph, uint32_t a, uint32_t b)
{
    switched sum = {0, 0, TOPO_NONE, TOPO_NONE, TOPO_NONE};
    uint32_t degree = topo_degree(graph, a);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t up = topo_link_of(graph, a, i);
        uint32_t through = topo_other(graph, up, a);
        uint32_t across = TOPO_NONE;
        if (graph->nodes[through].kind != TOPO_NVSWITCH || !link_usable(&graph->links[up])) {
            continue;
        }
        uint32_t down = link_down(graph, through, b, &across);
        if (down == TOPO_NONE) {
            continue;
        }
        const topo_link *first = &graph->links[up];
        const topo_link *second = &graph->links[down];
        sum.bytes_per_s += smaller(first->bytes_per_s, second->bytes_per_s);
        sum.count += first->count < second->count ? first->count : second->count;
        if (sum.up == TOPO_NONE) {
            sum.up = up;
            sum.across = across;
            sum.down = down;
        }
    }
    return sum;
}

/* Fills a path of type NVL between two GPUs, if there is one. */
static bool nvlink_path(const topo_graph *graph, uint32_t a, uint32_t b, topo_path *path)
{
    uint32_t direct = direct_link(graph, a, b);
    if (direct != TOPO_NONE) {
        path->type = TOPO_PATH_NVL;
        path->link_count_nv = graph->links[direct].count;
        return hop_add(graph, path, direct, b);
    }
    switched shared = switches_shared(graph, a, b);
    if (shared.up == TOPO_NONE) {
        return false;
    }
    path->type = TOPO_PATH_NVL;
    path->link_count_nv = shared.count;
    uint32_t through = topo_other(graph, shared.up, a);
    bool whole = hop_add_rate(graph, path, shared.up, through, shared.bytes_per_s);
    if (shared.across != TOPO_NONE) {
        whole = whole && hop_add_rate(graph, path, shared.across,
                                      topo_other(graph, shared.across, through), 0);
    }
    return whole && hop_add_rate(graph, path, shared.down, b, shared.bytes_per_s);
}

/* Through one other GPU: the one with the widest links, then the lowest node. */
static bool bridged_path(const topo_graph *graph, uint32_t a, uint32_t b, topo_path *path)
{
    uint64_t best_rate = 0;
    uint32_t best_up = TOPO_NONE;
    uint32_t best_down = TOPO_NONE;
    uint32_t degree = topo_degree(graph, a);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t up = topo_link_of(graph, a, i);
        uint32_t through = topo_other(graph, up, a);
        const topo_link *first = &graph->links[up];
        if (graph->nodes[through].kind != TOPO_GPU || !is_gpu_link(first) || !link_usable(first)) {
            continue;
        }
        uint32_t down = direct_link(graph, through, b);
        if (down == TOPO_NONE || graph->nodes[through].machine != graph->nodes[a].machine) {
            continue;
        }
        uint64_t rate = smaller(first->bytes_per_s, graph->links[down].bytes_per_s);
        bool better = best_up == TOPO_NONE || rate > best_rate ||
                      (rate == best_rate && through < topo_other(graph, best_up, a));
        if (better) {
            best_rate = rate;
            best_up = up;
            best_down = down;
        }
    }
    if (best_up == TOPO_NONE) {
        return false;
    }
    path->type = TOPO_PATH_NVB;
    path->link_count_nv = graph->links[best_up].count < graph->links[best_down].count
                              ? graph->links[best_up].count
                              : graph->links[best_down].count;
    return hop_add(graph, path, best_up, topo_other(graph, best_up, a)) &&
           hop_add(graph, path, best_down, b);
}

/* ------------------------------------------------------------------------------------ the tree */

/* A node's way up: nodes[0] is itself, links[i] leads from nodes[i] to nodes[i + 1]. */
typedef struct climb {
    uint32_t count; /* links */
    uint32_t nodes[TOPO_DEPTH_MAX + 2];
    uint32_t links[TOPO_DEPTH_MAX + 2];
    bool broken; /* a node on the way has no link to its parent, or it is down */
} climb;

/* Climbs from a node, at most up to `limit`. */
static void climb_tree(const topo_graph *graph, uint32_t from, climb *way)
{
    way->count = 0;
    way->broken = false;
    way->nodes[0] = from;
    uint32_t node = from;
    while (graph->nodes[node].parent != TOPO_NONE && way->count <= TOPO_DEPTH_MAX) {
        uint32_t link = graph->nodes[node].uplink;
        way->links[way->count++] = link;
        node = graph->nodes[node].parent;
        way->nodes[way->count] = node;
    }
}

/* Whether all links below the `count`-th node of a climb carry data. */
static bool climb_whole(const topo_graph *graph, const climb *way, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (way->links[i] == TOPO_NONE || !link_usable(&graph->links[way->links[i]])) {
            return false;
        }
    }
    return true;
}

/* A GPU with a chip-to-chip link to a node on its way up takes that instead of PCIe. */
static void climb_shorten(const topo_graph *graph, climb *way, uint32_t *count)
{
    if (graph->nodes[way->nodes[0]].kind != TOPO_GPU) {
        return;
    }
    for (uint32_t i = *count; i > 1; i--) {
        uint32_t link = direct_link(graph, way->nodes[0], way->nodes[i]);
        if (link != TOPO_NONE) {
            memmove(&way->nodes[1], &way->nodes[i], (*count - i + 1) * sizeof(uint32_t));
            memmove(&way->links[1], &way->links[i], (*count - i) * sizeof(uint32_t));
            way->links[0] = link;
            *count -= i - 1;
            return;
        }
    }
}

/* Number of links from each side to the nearest common ancestor: from the roots down as long as
 * both ways are one. False: the roots differ. */
static bool climbs_meet(const climb *a, const climb *b, uint32_t *up, uint32_t *down)
{
    uint32_t i = a->count;
    uint32_t j = b->count;
    if (a->nodes[i] != b->nodes[j]) {
        return false;
    }
    while (i > 0 && j > 0 && a->nodes[i - 1] == b->nodes[j - 1]) {
        i--;
        j--;
    }
    *up = i;
    *down = j;
    return true;
}

static uint32_t switches_between(const topo_graph *graph, const climb *way, uint32_t count)
{
    uint32_t switches = 0;
    for (uint32_t i = 1; i < count; i++) {
        switches += graph->nodes[way->nodes[i]].kind == TOPO_PCI_SWITCH;
    }
    return switches;
}

/* Whether a climb of `count` links passes below its end through a node of a kind. */
static bool climb_passes(const topo_graph *graph, const climb *way, uint32_t count, topo_kind kind)
{
    for (uint32_t i = 0; i < count; i++) {
        if (graph->nodes[way->nodes[i]].kind == kind) {
            return true;
        }
    }
    return false;
}

/* A machine with one NUMA node, or none that is known: nothing in it is across sockets. */
static bool machine_is_flat(const topo_graph *graph, uint32_t machine)
{
    return machine == TOPO_NONE || graph->machine_numas[graph->nodes[machine].index] < 2;
}

/* Type of the way a → common ancestor → b. */
static topo_path_type tree_type(const topo_graph *graph, const climb *a, uint32_t up,
                                const climb *b, uint32_t down)
{
    const topo_node *top = &graph->nodes[a->nodes[up]];
    bool switched_only = top->kind == TOPO_PCI_SWITCH || top->kind == TOPO_PCI_DEVICE ||
                         top->kind == TOPO_GPU || top->kind == TOPO_NIC;
    if (switched_only) {
        uint32_t switches = switches_between(graph, a, up) + switches_between(graph, b, down) +
                            (top->kind == TOPO_PCI_SWITCH);
        return switches <= 1 ? TOPO_PATH_PIX : TOPO_PATH_PXB;
    }
    if (top->kind == TOPO_HOST_BRIDGE) {
        return TOPO_PATH_PHB;
    }
    bool bridges = climb_passes(graph, a, up, TOPO_HOST_BRIDGE) &&
                   climb_passes(graph, b, down, TOPO_HOST_BRIDGE);
    if (top->kind == TOPO_NUMA) {
        return bridges ? TOPO_PATH_NODE : TOPO_PATH_PHB;
    }
    if (top->kind == TOPO_PACKAGE) {
        return TOPO_PATH_NODE; /* between NUMA nodes, but inside the socket */
    }
    bool across =
        climb_passes(graph, a, up, TOPO_NUMA) || climb_passes(graph, b, down, TOPO_NUMA) ||
        climb_passes(graph, a, up, TOPO_PACKAGE) || climb_passes(graph, b, down, TOPO_PACKAGE);
    if (across || !machine_is_flat(graph, top->machine)) {
        return TOPO_PATH_SYS;
    }
    return bridges ? TOPO_PATH_NODE : TOPO_PATH_PHB;
}

/* A PCI link between switches on the two ways, beside the tree. `i` and `j` are their places. */
static uint32_t peer_link(const topo_graph *graph, const climb *a, const climb *b, uint32_t *i,
                          uint32_t *j)
{
    for (*i = 1; *i <= a->count; (*i)++) {
        uint32_t node = a->nodes[*i];
        uint32_t degree = graph->nodes[node].kind == TOPO_PCI_SWITCH ? topo_degree(graph, node) : 0;
        for (uint32_t at = 0; at < degree; at++) {
            uint32_t link = topo_link_of(graph, node, at);
            uint32_t far = topo_other(graph, link, node);
            bool peer = graph->links[link].kind == TOPO_LINK_PCI &&
                        link_usable(&graph->links[link]) && graph->nodes[node].uplink != link &&
                        graph->nodes[far].uplink != link;
            for (*j = 1; peer && *j <= b->count; (*j)++) {
                if (b->nodes[*j] == far) {
                    return link;
                }
            }
        }
    }
    return TOPO_NONE;
}

/* Up to a switch, over a link beside the tree, and down. */
static bool peer_path(const topo_graph *graph, const climb *a, const climb *b, topo_path *path)
{
    uint32_t i = 0;
    uint32_t j = 0;
    uint32_t link = graph->peer_links > 0 ? peer_link(graph, a, b, &i, &j) : TOPO_NONE;
    if (link == TOPO_NONE || !climb_whole(graph, a, i) || !climb_whole(graph, b, j)) {
        return false;
    }
    bool whole = true;
    for (uint32_t at = 0; at < i; at++) {
        whole = whole && hop_add(graph, path, a->links[at], a->nodes[at + 1]);
    }
    whole = whole && hop_add(graph, path, link, b->nodes[j]);
    for (uint32_t at = j; at > 0; at--) {
        whole = whole && hop_add(graph, path, b->links[at - 1], b->nodes[at - 1]);
    }
    path->type = TOPO_PATH_PXB;
    return whole;
}

static bool tree_path(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    climb a;
    climb b;
    uint32_t up = 0;
    uint32_t down = 0;
    climb_tree(graph, from, &a);
    climb_tree(graph, to, &b);
    if (!climbs_meet(&a, &b, &up, &down)) {
        return false;
    }
    topo_path_type type = tree_type(graph, &a, up, &b, down);
    if (type > TOPO_PATH_PXB && peer_path(graph, &a, &b, path)) {
        return true;
    }
    climb_shorten(graph, &a, &up);
    climb_shorten(graph, &b, &down);
    if (!climb_whole(graph, &a, up) || !climb_whole(graph, &b, down)) {
        return false;
    }
    for (uint32_t i = 0; i < up; i++) {
        if (!hop_add(graph, path, a.links[i], a.nodes[i + 1])) {
            return false;
        }
    }
    for (uint32_t i = down; i > 0; i--) {
        if (!hop_add(graph, path, b.links[i - 1], b.nodes[i - 1])) {
            return false;
        }
    }
    path->type = type;
    return true;
}

/* Best path inside a machine or an NVLink domain; false when there is none. */
static bool near_path(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    bool gpus = graph->nodes[from].kind == TOPO_GPU && graph->nodes[to].kind == TOPO_GPU;
    if (gpus && (nvlink_path(graph, from, to, path) || bridged_path(graph, from, to, path))) {
        return true;
    }
    uint32_t direct = gpus ? TOPO_NONE : direct_link(graph, from, to);
    if (direct != TOPO_NONE) {
        path->type = is_gpu_link(&graph->links[direct]) ? TOPO_PATH_NVL : TOPO_PATH_C2C;
        path->link_count_nv = graph->links[direct].count;
        return hop_add(graph, path, direct, to);
    }
    if (graph->nodes[from].machine == TOPO_NONE ||
        graph->nodes[from].machine != graph->nodes[to].machine) {
        return false;
    }
    return tree_path(graph, from, to, path);
}

/* ------------------------------------------------------------------------------------ network */

static bool is_network(const topo_graph *graph, uint32_t node)
{
    topo_kind kind = graph->nodes[node].kind;
    return kind == TOPO_NET_SWITCH || kind == TOPO_RAIL;
}

static bool is_network_link(const topo_graph *graph, uint32_t link)
{
    return graph->links[link].kind == TOPO_LINK_NET && link_usable(&graph->links[link]);
}

/* The i-th usable network link of a NIC, counted from 0; TOPO_NONE past the last. */
static uint32_t network_link(const topo_graph *graph, uint32_t node, uint32_t i)
{
    uint32_t degree = topo_degree(graph, node);
    for (uint32_t at = 0; at < degree; at++) {
        uint32_t link = topo_link_of(graph, node, at);
        if (is_network_link(graph, link) && is_network(graph, topo_other(graph, link, node)) &&
            i-- == 0) {
            return link;
        }
    }
    return TOPO_NONE;
}

/* A usable network link between two nodes, looked for where fewer links are. */
static uint32_t link_between(const topo_graph *graph, uint32_t a, uint32_t b)
{
    uint32_t from = topo_degree(graph, a) < topo_degree(graph, b) ? a : b;
    uint32_t to = from == a ? b : a;
    uint32_t degree = topo_degree(graph, from);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t link = topo_link_of(graph, from, i);
        if (topo_other(graph, link, from) == to && is_network_link(graph, link)) {
            return link;
        }
    }
    return TOPO_NONE;
}

/* From switch to switch: the same one, up and down the tree of switches, or over a switch that both
 * are linked to. */
static bool switch_path(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    if (from == to) {
        return true;
    }
    topo_path tried = *path;
    if (tree_path(graph, from, to, &tried)) {
        *path = tried;
        return true;
    }
    uint32_t degree = topo_degree(graph, from);
    for (uint32_t i = 0; i < degree; i++) {
        uint32_t up = topo_link_of(graph, from, i);
        uint32_t through = topo_other(graph, up, from);
        if (!is_network(graph, through) || !is_network_link(graph, up)) {
            continue;
        }
        if (through == to) {
            return hop_add(graph, path, up, to);
        }
        uint32_t down = link_between(graph, through, to);
        if (down != TOPO_NONE) {
            return hop_add(graph, path, up, through) && hop_add(graph, path, down, to);
        }
    }
    return false;
}

/* From NIC to NIC, over the first pair of switches that are connected. */
static bool fabric_path(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    uint32_t up = 0;
    for (uint32_t i = 0; (up = network_link(graph, from, i)) != TOPO_NONE; i++) {
        uint32_t down = 0;
        for (uint32_t j = 0; (down = network_link(graph, to, j)) != TOPO_NONE; j++) {
            topo_path tried = *path;
            uint32_t last = topo_other(graph, down, to);
            if (hop_add(graph, &tried, up, topo_other(graph, up, from)) &&
                switch_path(graph, topo_other(graph, up, from), last, &tried) &&
                hop_add(graph, &tried, down, to)) {
                *path = tried;
                return true;
            }
        }
    }
    return false;
}

static uint32_t nic_for(const topo_graph *graph, uint32_t node)
{
    if (graph->nodes[node].kind == TOPO_NIC) {
        return node;
    }
    return graph->nodes[node].kind == TOPO_GPU ? topo_gpu_nic(graph, node) : TOPO_NONE;
}

static bool over_nics(const topo_graph *graph, uint32_t from, uint32_t nic_a, uint32_t nic_b,
                      uint32_t to, topo_path *path)
{
    topo_path_type type = path->type;
    bool whole = (from == nic_a || near_path(graph, from, nic_a, path)) &&
                 fabric_path(graph, nic_a, nic_b, path) &&
                 (nic_b == to || near_path(graph, nic_b, to, path));
    path->type = whole ? TOPO_PATH_NET : type;
    return whole;
}

/* Between machines: each side's own NIC, or, where rails do not meet, the far NIC on this
 * side's. */
static bool network_path(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    uint32_t nic_a = nic_for(graph, from);
    uint32_t nic_b = nic_for(graph, to);
    if (nic_a == TOPO_NONE || nic_b == TOPO_NONE) {
        return false;
    }
    topo_path tried = *path;
    if (over_nics(graph, from, nic_a, nic_b, to, &tried)) {
        *path = tried;
        return true;
    }
    if (graph->nodes[to].kind != TOPO_GPU || graph->nodes[to].machine == TOPO_NONE) {
        return false;
    }
    uint32_t first = 0;
    uint32_t count = topo_machine_nics(graph, graph->nodes[graph->nodes[to].machine].index, &first);
    for (uint32_t i = 0; i < count; i++) {
        tried = *path;
        if (over_nics(graph, from, nic_a, graph->machine_nics[first + i], to, &tried)) {
            *path = tried;
            return true;
        }
    }
    return false;
}

topo_path_type topo_path_near_type(const topo_graph *graph, uint32_t from, uint32_t to)
{
    topo_path path;
    uint32_t low = from < to ? from : to;
    path_begin(&path, low);
    return near_path(graph, low, from < to ? to : from, &path) ? path.type : TOPO_PATH_NONE;
}

bool topo_path_network(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    topo_path found;
    path_begin(&found, from);
    if (!network_path(graph, from, to, &found)) {
        return false;
    }
    *path = found;
    return true;
}

void topo_path_find(const topo_graph *graph, uint32_t from, uint32_t to, topo_path *path)
{
    path_begin(path, from);
    if (from == to) {
        path->type = TOPO_PATH_LOC;
        return;
    }
    /* Searched from the lower node, so that the answer is the same both ways; then turned. */
    uint32_t low = from < to ? from : to;
    uint32_t high = from < to ? to : from;
    path_begin(path, low);
    if (!near_path(graph, low, high, path)) {
        path_begin(path, low);
        if (!network_path(graph, low, high, path)) {
            path_begin(path, from);
            return;
        }
    }
    for (uint32_t i = 0; low != from && i < path->hop_count / 2; i++) {
        uint32_t link = path->links[i];
        path->links[i] = path->links[path->hop_count - 1 - i];
        path->links[path->hop_count - 1 - i] = link;
    }
    for (uint32_t i = 0; low != from && i < (path->hop_count + 1) / 2; i++) {
        uint32_t node = path->nodes[i];
        path->nodes[i] = path->nodes[path->hop_count - i];
        path->nodes[path->hop_count - i] = node;
    }
}

topo_path_type topo_path_type_of(const topo_graph *graph, uint32_t from, uint32_t to)
{
    topo_path path;
    topo_path_find(graph, from, to, &path);
    return path.type;
}
