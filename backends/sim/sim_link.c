/* SPDX-License-Identifier: Apache-2.0 */
/* The two link models. Work is counted in bytes * 10^12, so that a rate in bytes per second takes a
 * whole amount of it each picosecond: no byte is ever lost or made by rounding.
 */
#include "sim_link.h"

#include <isthmus/backend.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PS_PER_S UINT64_C(1000000000000)
#define LINKS_A_GPU 3u
#define LINKS_A_NIC 2u
#define NO_NIC UINT32_MAX

__extension__ typedef unsigned __int128 wide;

typedef enum transfer_state {
    TRANSFER_IDLE = 0,
    TRANSFER_PARKED, /* IN_ORDER, waits for a link to come up */
    TRANSFER_FIXED,  /* MAX_MIN, has its rate */
    TRANSFER_OPEN    /* MAX_MIN, while rates are being found */
} transfer_state;

typedef struct sim_link {
    uint64_t nominal;      /* bytes per second */
    uint64_t rate;         /* the same after faults; 0: down */
    uint64_t free_ps;      /* IN_ORDER: end of the last booking */
    uint64_t bytes;        /* carried so far */
    uint64_t busy_ps;      /* busy so far */
    uint64_t busy_from_ps; /* MAX_MIN: since when it has users */
    uint64_t left;         /* while rates are being found: bytes per second not yet given away */
    uint64_t round;        /* the round `left` and `open_count` belong to */
    uint32_t user_count;
    uint32_t open_count; /* users without a rate */
    sim_transfer *users; /* joined through link_next and link_prev */
} sim_link;

typedef struct sim_place {
    uint32_t domain;  /* equal for ranks of one NVLink domain */
    uint32_t nic_out; /* link; the way in is the next one */
} sim_place;

/* A link and what each of its open users would get, as it was when it entered the heap. */
typedef struct heap_entry {
    uint64_t share;
    uint32_t link;
} heap_entry;

typedef struct transfer_list {
    sim_transfer *first, *last;
} transfer_list;

struct sim_links {
    ist_link_model model;
    uint32_t rank_count;
    uint32_t link_count;
    uint32_t nics_per_node;
    uint64_t nvlink_latency_ps;
    uint64_t nic_latency_ps;
    sim_link *link;
    sim_place *place;
    transfer_list parked;                    /* in the order of begin */
    transfer_list flying;                    /* MAX_MIN, in the order of begin */
    uint64_t span_bytes, span_rate, span_ps; /* IN_ORDER: the last division */
    uint64_t sequence;
    heap_entry *heap;
    uint32_t heap_count;
    bool stale; /* rates have to be found again, from changed_ps on */
    uint64_t changed_ps;
    uint64_t next_ps;
    uint64_t round;
};

/* ------------------------------------------------------------------------------------ opening */

static uint32_t link_of_gpu(uint32_t rank, uint32_t which)
{
    return rank * LINKS_A_GPU + which;
}

static uint32_t nvlink_out(uint32_t rank)
{
    return link_of_gpu(rank, 0);
}

static uint32_t nvlink_in(uint32_t rank)
{
    return link_of_gpu(rank, 1);
}

static uint32_t hbm(uint32_t rank)
{
    return link_of_gpu(rank, 2);
}

static void rates_set(sim_links *links, const ist_cluster *cluster)
{
    uint32_t gpu_links = links->rank_count * LINKS_A_GPU;
    for (uint32_t i = 0; i < gpu_links; i++) {
        bool memory = i % LINKS_A_GPU == 2;
        links->link[i].nominal = memory ? cluster->hbm_bytes_per_s : cluster->nvlink_bytes_per_s;
        links->link[i].rate = links->link[i].nominal;
    }
    for (uint32_t i = gpu_links; i < links->link_count; i++) {
        links->link[i].nominal = cluster->nic_bytes_per_s;
        links->link[i].rate = cluster->nic_bytes_per_s;
    }
}

static void places_set(sim_links *links, const ist_cluster *cluster)
{
    uint64_t gpus = cluster->gpus_per_node;
    uint64_t domain = cluster->nvlink_domain > 1 ? cluster->nvlink_domain : 1;
    uint64_t nics = cluster->nics_per_node;
    uint64_t first = (uint64_t)links->rank_count * LINKS_A_GPU;
    for (uint32_t rank = 0; rank < links->rank_count; rank++) {
        uint64_t nic = rank / gpus * nics + rank % gpus * nics / gpus;
        links->place[rank].domain = (uint32_t)(rank / domain);
        links->place[rank].nic_out = nics > 0 ? (uint32_t)(first + nic * LINKS_A_NIC) : NO_NIC;
    }
}

static ist_status refuse_count(const ist_cluster *cluster, uint32_t rank_count)
{
    ist_error details = {.size = sizeof(details),
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .expected = ist_cluster_rank_count(cluster),
                         .observed = rank_count,
                         .object = "rank_count",
                         .operation = "sim.links_open"};
    return ist_raise(IST_ERR_RANGE, &details,
                     "rank_count is %" PRIu32 ", the cluster has %" PRIu32
                     " GPUs, and links are numbered in 32 bits",
                     rank_count, ist_cluster_rank_count(cluster));
}

static ist_status refuse_memory(size_t bytes)
{
    ist_error details = {.size = sizeof(details),
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = bytes,
                         .object = "links",
                         .operation = "sim.links_open"};
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for links (%zu bytes)", bytes);
}

ist_status sim_links_open(const ist_cluster *cluster, uint32_t rank_count, ist_link_model model,
                          sim_links **links)
{
    uint64_t gpus = cluster->gpus_per_node;
    uint64_t nic_count = (rank_count + gpus - 1) / gpus * cluster->nics_per_node;
    uint64_t link_count = (uint64_t)rank_count * LINKS_A_GPU + nic_count * LINKS_A_NIC;
    if (rank_count > ist_cluster_rank_count(cluster) || link_count > UINT32_MAX) {
        return refuse_count(cluster, rank_count);
    }
    size_t links_bytes = link_count * sizeof(sim_link);
    size_t heap_bytes = model == IST_LINKS_MAX_MIN ? link_count * sizeof(heap_entry) : 0;
    size_t bytes = sizeof(sim_links) + links_bytes + heap_bytes + rank_count * sizeof(sim_place);
    char *memory = ist_alloc(1, bytes);
    if (memory == NULL) {
        return refuse_memory(bytes);
    }
    sim_links *opened = (void *)memory;
    opened->model = model;
    opened->rank_count = rank_count;
    opened->link_count = (uint32_t)link_count;
    opened->nics_per_node = (uint32_t)cluster->nics_per_node;
    opened->nvlink_latency_ps = cluster->nvlink_latency_ps;
    opened->nic_latency_ps = cluster->nic_latency_ps;
    opened->next_ps = SIM_TIME_NEVER;
    opened->link = (void *)(memory + sizeof(sim_links));
    opened->heap = (void *)(memory + sizeof(sim_links) + links_bytes);
    opened->place = (void *)(memory + sizeof(sim_links) + links_bytes + heap_bytes);
    rates_set(opened, cluster);
    places_set(opened, cluster);
    *links = opened;
    return IST_OK;
}

void sim_links_close(sim_links *links)
{
    ist_free(links);
}

/* ------------------------------------------------------------------------------------ routes */

typedef struct sim_route {
    uint64_t latency_ps;
    uint32_t count;
    uint32_t link[SIM_LINKS_A_ROUTE];
} sim_route;

static void route_local(uint32_t rank, sim_route *route)
{
    route->latency_ps = 0;
    route->count = 1;
    route->link[0] = hbm(rank);
}

/* Two links without memory. Answers NULL, or why there is no such route. */
static const char *route_find(const sim_links *links, uint32_t src, uint32_t dst,
                              sim_route_kind kind, sim_route *route)
{
    route->count = 2;
    switch (kind) {
    case SIM_ROUTE_LSA:
        if (src == dst) {
            route_local(src, route);
            return NULL;
        }
        route->latency_ps = links->nvlink_latency_ps;
        route->link[0] = nvlink_out(src);
        route->link[1] = nvlink_in(dst);
        return links->place[src].domain == links->place[dst].domain ? NULL
                                                                    : "they share no NVLink domain";
    case SIM_ROUTE_GIN:
        route->latency_ps = links->nic_latency_ps;
        route->link[0] = links->place[src].nic_out;
        route->link[1] = links->place[dst].nic_out + 1;
        return links->nics_per_node > 0 ? NULL : "the cluster has no NICs";
    case SIM_ROUTE_LOCAL:
        route_local(src, route);
        return src == dst ? NULL : "a local route has one rank only";
    }
    return "this kind of route does not exist";
}

/* Memory is read at one end and written at the other; links of a route are distinct. */
static void route_add_memory(uint32_t src, uint32_t dst, sim_route *route)
{
    if (route->link[0] == hbm(src)) {
        return;
    }
    route->link[route->count++] = hbm(src);
    if (src != dst) {
        route->link[route->count++] = hbm(dst);
    }
}

static ist_status refuse_route(ist_status status, uint32_t src, uint32_t dst, const char *reason)
{
    ist_error details = {.size = sizeof(details),
                         .rank = (int32_t)src,
                         .peer = (int32_t)dst,
                         .object = "route",
                         .operation = "sim.links_route"};
    return ist_raise(status, &details, "no way from rank %" PRIu32 " to rank %" PRIu32 ": %s", src,
                     dst, reason);
}

ist_status sim_links_route(const sim_links *links, uint32_t src_rank, uint32_t dst_rank,
                           sim_route_kind kind, sim_transfer *transfer, uint64_t *latency_ps)
{
    sim_route found = {.count = 0};
    if (src_rank >= links->rank_count || dst_rank >= links->rank_count) {
        return refuse_route(IST_ERR_RANGE, src_rank, dst_rank, "not both are in the world");
    }
    const char *reason = route_find(links, src_rank, dst_rank, kind, &found);
    if (reason != NULL) {
        return refuse_route(IST_ERR_UNSUPPORTED, src_rank, dst_rank, reason);
    }
    if (links->model == IST_LINKS_MAX_MIN) {
        route_add_memory(src_rank, dst_rank, &found);
    }
    memcpy(transfer->link, found.link, sizeof(found.link));
    transfer->link_count = found.count;
    *latency_ps = found.latency_ps;
    return IST_OK;
}

uint32_t sim_links_of_pair(const sim_links *links, uint32_t src_rank, uint32_t dst_rank,
                           sim_route_kind kind, uint32_t link[SIM_LINKS_A_ROUTE])
{
    sim_route found;
    if (src_rank >= links->rank_count || dst_rank >= links->rank_count ||
        route_find(links, src_rank, dst_rank, kind, &found) != NULL ||
        found.link[0] == hbm(src_rank)) {
        return 0;
    }
    memcpy(link, found.link, found.count * sizeof(link[0]));
    return found.count;
}

/* ------------------------------------------------------------------------------------ lists */

static void list_append(transfer_list *list, sim_transfer *transfer)
{
    transfer->next = NULL;
    transfer->prev = list->last;
    if (list->last != NULL) {
        list->last->next = transfer;
    } else {
        list->first = transfer;
    }
    list->last = transfer;
}

static void list_remove(transfer_list *list, sim_transfer *transfer)
{
    if (transfer->prev != NULL) {
        transfer->prev->next = transfer->next;
    } else {
        list->first = transfer->next;
    }
    if (transfer->next != NULL) {
        transfer->next->prev = transfer->prev;
    } else {
        list->last = transfer->prev;
    }
    transfer->next = NULL;
    transfer->prev = NULL;
}

/* Which place of its route a link has; the caller knows that it has one. */
static uint32_t route_place(const sim_transfer *transfer, uint32_t link)
{
    uint32_t i = 0;
    while (transfer->link[i] != link) {
        i++;
    }
    return i;
}

static void user_add(sim_links *links, uint64_t now_ps, sim_transfer *transfer, uint32_t i)
{
    sim_link *link = &links->link[transfer->link[i]];
    sim_transfer *after = link->users;
    transfer->link_prev[i] = NULL;
    transfer->link_next[i] = after;
    if (after != NULL) {
        after->link_prev[route_place(after, transfer->link[i])] = transfer;
    }
    link->users = transfer;
    if (link->user_count++ == 0) {
        link->busy_from_ps = now_ps;
    }
}

static void user_remove(sim_links *links, uint64_t now_ps, sim_transfer *transfer, uint32_t i)
{
    sim_link *link = &links->link[transfer->link[i]];
    sim_transfer *before = transfer->link_prev[i];
    sim_transfer *after = transfer->link_next[i];
    if (before != NULL) {
        before->link_next[route_place(before, transfer->link[i])] = after;
    } else {
        link->users = after;
    }
    if (after != NULL) {
        after->link_prev[route_place(after, transfer->link[i])] = before;
    }
    if (--link->user_count == 0) {
        link->busy_ps += now_ps - link->busy_from_ps;
    }
}

/* ------------------------------------------------------------------------------------ time */

/* The last moment but "never". */
static uint64_t later(uint64_t now_ps, uint64_t span_ps)
{
    return span_ps < SIM_TIME_NEVER - now_ps ? now_ps + span_ps : SIM_TIME_NEVER - 1;
}

/* Picoseconds for `work` at `rate`, rounded up. The short division is several times faster and serves
 * all transfers below 18 MB. */
static uint64_t work_ps(wide work, uint64_t rate)
{
    if (work <= UINT64_MAX) {
        uint64_t small = (uint64_t)work;
        return small / rate + (small % rate != 0);
    }
    wide span = work / rate + (work % rate != 0);
    return span < SIM_TIME_NEVER ? (uint64_t)span : SIM_TIME_NEVER - 1;
}

static wide work_of(uint64_t bytes)
{
    return (wide)bytes * PS_PER_S;
}

/* ------------------------------------------------------------------------------------ in order */

static void park(sim_links *links, sim_transfer *transfer)
{
    transfer->state = TRANSFER_PARKED;
    transfer->end_ps = SIM_TIME_NEVER;
    list_append(&links->parked, transfer);
}

/* Rows of one operation have one size, so the last division often serves again. */
static uint64_t span_of(sim_links *links, uint64_t bytes, uint64_t rate)
{
    if (links->span_bytes != bytes || links->span_rate != rate) {
        links->span_bytes = bytes;
        links->span_rate = rate;
        links->span_ps = work_ps(work_of(bytes), rate);
    }
    return links->span_ps;
}

/* All links begin together, when the last of them is free, and each is held for its own time only. */
static void begin_in_order(sim_links *links, uint64_t now_ps, sim_transfer *transfer)
{
    uint64_t start_ps = now_ps;
    uint64_t slowest = UINT64_MAX;
    for (uint32_t i = 0; i < transfer->link_count; i++) {
        const sim_link *link = &links->link[transfer->link[i]];
        start_ps = link->free_ps > start_ps ? link->free_ps : start_ps;
        slowest = link->rate < slowest ? link->rate : slowest;
    }
    if (slowest == 0) {
        park(links, transfer);
        return;
    }
    uint64_t longest_ps = span_of(links, transfer->bytes, slowest);
    for (uint32_t i = 0; i < transfer->link_count; i++) {
        sim_link *link = &links->link[transfer->link[i]];
        uint64_t span_ps =
            link->rate == slowest ? longest_ps : work_ps(work_of(transfer->bytes), link->rate);
        link->free_ps = later(start_ps, span_ps);
        link->bytes += transfer->bytes;
        link->busy_ps += span_ps;
    }
    transfer->end_ps = later(start_ps, longest_ps);
}

static bool links_are_up(const sim_links *links, const sim_transfer *transfer)
{
    bool up = true;
    for (uint32_t i = 0; i < transfer->link_count; i++) {
        up = up && links->link[transfer->link[i]].rate > 0;
    }
    return up;
}

sim_transfer *sim_links_unpark(sim_links *links)
{
    sim_transfer *transfer = links->parked.first;
    while (transfer != NULL && !links_are_up(links, transfer)) {
        transfer = transfer->next;
    }
    if (transfer != NULL) {
        list_remove(&links->parked, transfer);
        transfer->state = TRANSFER_IDLE;
    }
    return transfer;
}

/* ------------------------------------------------------------------------------------ max-min */

static wide work_left(const sim_transfer *transfer)
{
    return (wide)transfer->left_high << 64 | transfer->left_low;
}

static wide work_left_at(const sim_transfer *transfer, uint64_t now_ps)
{
    wide left = work_left(transfer);
    wide done = (wide)transfer->rate * (now_ps - transfer->settled_ps);
    return left > done ? left - done : 0;
}

static void settle(sim_transfer *transfer, uint64_t now_ps)
{
    wide left = work_left_at(transfer, now_ps);
    transfer->left_high = (uint64_t)(left >> 64);
    transfer->left_low = (uint64_t)left;
    transfer->settled_ps = now_ps;
}

static void rate_set(sim_transfer *transfer, uint64_t now_ps, uint64_t rate)
{
    if (rate == transfer->rate) {
        return;
    }
    settle(transfer, now_ps);
    transfer->rate = rate;
    /* One that is due keeps its end until it is popped, even if a link goes down at that moment. */
    if (transfer->end_ps > now_ps) {
        transfer->end_ps =
            rate > 0 ? later(now_ps, work_ps(work_left(transfer), rate)) : SIM_TIME_NEVER;
    }
}

static bool heap_before(const heap_entry *a, const heap_entry *b)
{
    return a->share != b->share ? a->share < b->share : a->link < b->link;
}

static void heap_push(sim_links *links, heap_entry entry)
{
    uint32_t at = links->heap_count++;
    while (at > 0 && heap_before(&entry, &links->heap[(at - 1) / 2])) {
        links->heap[at] = links->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    links->heap[at] = entry;
}

static heap_entry heap_pop(sim_links *links)
{
    heap_entry *heap = links->heap;
    heap_entry first = heap[0];
    heap_entry last = heap[--links->heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < links->heap_count; child = 2 * at + 1) {
        child += child + 1 < links->heap_count && heap_before(&heap[child + 1], &heap[child]);
        if (!heap_before(&heap[child], &last)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

/* An even part of what is left, rounded down; at least 1 byte a second on a link that is up, so that
 * no transfer starves by rounding. */
static uint64_t share_of(const sim_link *link)
{
    uint64_t share = link->left / link->open_count;
    return share == 0 && link->rate > 0 ? 1 : share;
}

static void fill_open(sim_links *links)
{
    links->round++;
    links->heap_count = 0;
    for (sim_transfer *t = links->flying.first; t != NULL; t = t->next) {
        t->state = TRANSFER_OPEN;
        for (uint32_t i = 0; i < t->link_count; i++) {
            sim_link *link = &links->link[t->link[i]];
            if (link->round != links->round) {
                link->round = links->round;
                link->left = link->rate;
                link->open_count = link->user_count;
                heap_push(links, (heap_entry){share_of(link), t->link[i]});
            }
        }
    }
}

static void fill_fix(sim_links *links, sim_transfer *transfer, uint64_t rate)
{
    transfer->state = TRANSFER_FIXED;
    for (uint32_t i = 0; i < transfer->link_count; i++) {
        sim_link *link = &links->link[transfer->link[i]];
        link->left -= rate < link->left ? rate : link->left;
        link->open_count--;
    }
    rate_set(transfer, links->changed_ps, rate);
}

/* Progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): the link with the
 * smallest share fixes its users' rates, and so on. Shares only grow meanwhile, so an entry of the
 * heap that has become too small is put back with its new share. */
static void fill(sim_links *links)
{
    fill_open(links);
    while (links->heap_count > 0) {
        heap_entry entry = heap_pop(links);
        const sim_link *link = &links->link[entry.link];
        if (link->open_count == 0) {
            continue;
        }
        uint64_t share = share_of(link);
        if (share != entry.share) {
            heap_push(links, (heap_entry){share, entry.link});
            continue;
        }
        for (sim_transfer *t = link->users; t != NULL;
             t = t->link_next[route_place(t, entry.link)]) {
            if (t->state == TRANSFER_OPEN) {
                fill_fix(links, t, share);
            }
        }
    }
}

static void refresh(sim_links *links)
{
    if (!links->stale) {
        return;
    }
    fill(links);
    links->stale = false;
    links->next_ps = SIM_TIME_NEVER;
    for (const sim_transfer *t = links->flying.first; t != NULL; t = t->next) {
        links->next_ps = t->end_ps < links->next_ps ? t->end_ps : links->next_ps;
    }
}

/* Rates are found once for all changes of one moment. */
static void change(sim_links *links, uint64_t now_ps)
{
    if (links->changed_ps != now_ps) {
        refresh(links);
    }
    links->stale = true;
    links->changed_ps = now_ps;
}

static void begin_max_min(sim_links *links, uint64_t now_ps, sim_transfer *transfer)
{
    wide work = work_of(transfer->bytes);
    change(links, now_ps);
    transfer->state = TRANSFER_FIXED;
    transfer->sequence = links->sequence++;
    transfer->settled_ps = now_ps;
    transfer->left_high = (uint64_t)(work >> 64);
    transfer->left_low = (uint64_t)work;
    transfer->rate = 0;
    transfer->end_ps = SIM_TIME_NEVER;
    list_append(&links->flying, transfer);
    for (uint32_t i = 0; i < transfer->link_count; i++) {
        user_add(links, now_ps, transfer, i);
    }
}

static uint64_t bytes_moved(const sim_transfer *transfer, uint64_t now_ps)
{
    wide left = work_left_at(transfer, now_ps);
    return transfer->bytes - (uint64_t)(left / PS_PER_S + (left % PS_PER_S != 0));
}

static void land(sim_links *links, uint64_t now_ps, sim_transfer *transfer)
{
    change(links, now_ps);
    settle(transfer, now_ps);
    transfer->rate = 0;
    transfer->state = TRANSFER_IDLE;
    list_remove(&links->flying, transfer);
    for (uint32_t i = 0; i < transfer->link_count; i++) {
        links->link[transfer->link[i]].bytes += bytes_moved(transfer, now_ps);
        user_remove(links, now_ps, transfer, i);
    }
}

static sim_transfer *due_find(const sim_links *links, uint64_t now_ps)
{
    sim_transfer *best = NULL;
    for (sim_transfer *t = links->flying.first; t != NULL; t = t->next) {
        if (t->end_ps <= now_ps && (best == NULL || t->end_ps < best->end_ps)) {
            best = t; /* the list is in the order of begin, so ties fall to the earlier one */
        }
    }
    return best;
}

uint64_t sim_links_next(sim_links *links)
{
    refresh(links);
    return links->next_ps;
}

/* Several ends of one moment are taken out with the rates they had: finding new ones between them
 * would change nothing for those that are due. */
sim_transfer *sim_links_pop(sim_links *links, uint64_t now_ps)
{
    if (links->changed_ps != now_ps) {
        refresh(links);
    }
    sim_transfer *due = due_find(links, now_ps);
    if (due == NULL && links->stale) {
        refresh(links);
        due = due_find(links, now_ps);
    }
    if (due != NULL) {
        land(links, now_ps, due);
    }
    return due;
}

uint64_t sim_links_progress(sim_links *links, uint64_t now_ps, const sim_transfer *transfer)
{
    refresh(links);
    return bytes_moved(transfer, now_ps);
}

/* ------------------------------------------------------------------------------------ both */

bool sim_links_begin(sim_links *links, uint64_t now_ps, sim_transfer *transfer)
{
    if (links->model == IST_LINKS_IN_ORDER) {
        begin_in_order(links, now_ps, transfer);
        return true;
    }
    begin_max_min(links, now_ps, transfer);
    return false;
}

void sim_links_cancel(sim_links *links, uint64_t now_ps, sim_transfer *transfer)
{
    if (transfer->state == TRANSFER_PARKED) {
        list_remove(&links->parked, transfer);
        transfer->state = TRANSFER_IDLE;
    } else if (transfer->state == TRANSFER_FIXED) {
        land(links, now_ps, transfer);
    }
}

void sim_links_scale(sim_links *links, uint64_t now_ps, uint32_t link, uint64_t num, uint64_t den)
{
    sim_link *scaled = &links->link[link];
    wide rate = (wide)scaled->nominal * num / den;
    if (links->model == IST_LINKS_MAX_MIN) {
        /* What began before, even at this moment, meets the old rate; so asking changes nothing. */
        change(links, now_ps);
        refresh(links);
        links->stale = true;
    }
    if (rate == 0 && num > 0) {
        rate = 1;
    }
    scaled->rate = rate < UINT64_MAX ? (uint64_t)rate : UINT64_MAX;
}

uint32_t sim_links_count(const sim_links *links)
{
    return links->link_count;
}

sim_link_usage sim_links_usage(const sim_links *links, uint64_t now_ps, uint32_t link)
{
    const sim_link *used = &links->link[link];
    sim_link_usage usage = {used->bytes, used->busy_ps};
    if (used->user_count > 0) {
        usage.busy_ps += now_ps - used->busy_from_ps;
    }
    return usage;
}

void sim_links_name(const sim_links *links, uint32_t link, char *text, size_t capacity)
{
    static const char *const names[LINKS_A_GPU] = {"nvlink out", "nvlink in", "hbm"};
    uint32_t gpu_links = links->rank_count * LINKS_A_GPU;
    if (link < gpu_links) {
        (void)snprintf(text, capacity, "%s rank %" PRIu32, names[link % LINKS_A_GPU],
                       link / LINKS_A_GPU);
        return;
    }
    uint32_t nic = (link - gpu_links) / LINKS_A_NIC;
    bool out = (link - gpu_links) % LINKS_A_NIC == 0;
    (void)snprintf(text, capacity, "nic %s node %" PRIu32 " nic %" PRIu32, out ? "out" : "in",
                   nic / links->nics_per_node, nic % links->nics_per_node);
}
