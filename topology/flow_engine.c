/* SPDX-License-Identifier: Apache-2.0 */
/* The event engine: rates by progressive filling, found again only for the flows and links that are
 * connected to a change; ends in an indexed heap. Work is counted in bytes * 10^12, of which a rate
 * in bytes per second takes a whole amount each picosecond.
 */
#include "flow_engine.h"

#include <isthmus/backend.h>
#include <stdbool.h>
#include <string.h>

#define PS_PER_S UINT64_C(1000000000000)
#define NONE UINT32_MAX
#define FLOWS_FIRST 16u

__extension__ typedef unsigned __int128 wide;

typedef enum flow_state {
    FLOW_FREE = 0,
    FLOW_MOVING, /* holds its links */
    FLOW_FLYING  /* bytes are out, latency runs; in the heap until popped */
} flow_state;

typedef struct flow_slot {
    wide left; /* bytes * 10^12 at settled_ps */
    uint64_t settled_ps;
    uint64_t rate;
    uint64_t end_ps;   /* heap key: end of the bytes, or the arrival */
    uint64_t sequence; /* second key */
    uint64_t round;    /* of rate finding: visited */
    uint64_t fixed;    /* of rate finding: has its rate */
    flow_desc desc;
    uint32_t heap_at; /* NONE: not in the heap */
    flow_state state;
    uint32_t next[FLOW_USES_MAX]; /* place (slot * FLOW_USES_MAX + use) in the link's list */
    uint32_t prev[FLOW_USES_MAX];
} flow_slot;

typedef struct flow_link {
    uint64_t rate;
    uint64_t left;  /* rate finding: not yet given away */
    uint64_t open;  /* rate finding: weight without a rate */
    uint64_t round; /* rate finding: visited */
    uint64_t bytes, busy_ps, busy_from_ps;
    uint32_t first; /* place of its first user */
    bool dirty;
} flow_link;

/* A link and what each open user would get; or, with link >= link_count, a flow's cap. */
typedef struct share_entry {
    uint64_t share;
    uint32_t what;
} share_entry;

struct flow_engine {
    flow_link *link;
    flow_slot *slot;
    uint32_t *heap;
    uint32_t *free_slots;
    uint32_t *found_links; /* of one component */
    uint32_t *found_flows;
    uint32_t *dirty;
    share_entry *shares;
    uint32_t link_count, slot_count, free_count, heap_count, dirty_count, share_count;
    uint64_t now_ps, sequence, round, events;
};

/* ------------------------------------------------------------------------------------ opening */

static ist_status refuse_memory(uint64_t count)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = count,
                         .object = "flows",
                         .operation = "flow"};
    return ist_raise(IST_ERR_MEMORY, &details, "no memory for %llu links or flows",
                     (unsigned long long)count);
}

void flow_close(flow_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    ist_free(engine->link);
    ist_free(engine->slot);
    ist_free(engine->heap);
    ist_free(engine->free_slots);
    ist_free(engine->found_links);
    ist_free(engine->found_flows);
    ist_free(engine->dirty);
    ist_free(engine->shares);
    ist_free(engine);
}

static bool grow_array(void **array, size_t size, uint32_t old_count, uint32_t new_count)
{
    void *grown = ist_alloc(new_count, size);
    if (grown == NULL) {
        return false;
    }
    if (old_count > 0) {
        memcpy(grown, *array, size * old_count);
    }
    ist_free(*array);
    *array = grown;
    return true;
}

/* A failure leaves arrays of different lengths behind, each at least as long as before. */
static ist_status grow(flow_engine *engine)
{
    const uint32_t old = engine->slot_count;
    const uint32_t wanted = old == 0 ? FLOWS_FIRST : old * 2;
    void *arrays[] = {engine->slot, engine->heap, engine->free_slots, engine->found_flows,
                      engine->shares};
    const size_t sizes[] = {sizeof(flow_slot), sizeof(uint32_t), sizeof(uint32_t), sizeof(uint32_t),
                            sizeof(share_entry)};
    bool grown = wanted > old && wanted < UINT32_MAX / FLOW_USES_MAX - 1;
    for (uint32_t i = 0; i < 5 && grown; ++i) {
        const uint32_t extra = i == 4 ? 2 * engine->link_count : 0;
        grown = grow_array(&arrays[i], sizes[i], old == 0 ? 0 : old + extra, wanted + extra);
    }
    engine->slot = arrays[0];
    engine->heap = arrays[1];
    engine->free_slots = arrays[2];
    engine->found_flows = arrays[3];
    engine->shares = arrays[4];
    if (!grown) {
        return refuse_memory(wanted);
    }
    for (uint32_t i = wanted; i > old; --i) {
        engine->free_slots[engine->free_count++] = i - 1;
    }
    engine->slot_count = wanted;
    return IST_OK;
}

ist_status flow_open(const uint64_t *rates, uint32_t link_count, flow_engine **engine)
{
    flow_engine *opened = ist_alloc(1, sizeof *opened);
    if (opened == NULL) {
        return refuse_memory(link_count);
    }
    opened->link_count = link_count;
    opened->link = ist_alloc(link_count + 1u, sizeof *opened->link);
    opened->found_links = ist_alloc(link_count + 1u, sizeof(uint32_t));
    opened->dirty = ist_alloc(link_count + 1u, sizeof(uint32_t));
    if (opened->link == NULL || opened->found_links == NULL || opened->dirty == NULL) {
        flow_close(opened);
        return refuse_memory(link_count);
    }
    for (uint32_t i = 0; i < link_count; ++i) {
        opened->link[i].rate = rates[i];
        opened->link[i].first = NONE;
    }
    *engine = opened;
    return IST_OK;
}

void flow_reset(flow_engine *engine)
{
    for (uint32_t i = 0; i < engine->link_count; ++i) {
        engine->link[i] = (flow_link){.rate = engine->link[i].rate, .first = NONE};
    }
    engine->free_count = 0;
    for (uint32_t i = engine->slot_count; i > 0; --i) {
        engine->free_slots[engine->free_count++] = i - 1;
        engine->slot[i - 1].state = FLOW_FREE;
    }
    engine->heap_count = 0;
    engine->dirty_count = 0;
    engine->now_ps = 0;
    engine->sequence = 0;
    engine->round = 0;
    engine->events = 0;
    for (uint32_t i = 0; i < engine->slot_count; ++i) {
        engine->slot[i].round = 0;
        engine->slot[i].fixed = 0;
    }
}

/* -------------------------------------------------------------------------------- heap of ends */

static bool earlier(const flow_engine *engine, uint32_t a, uint32_t b)
{
    const flow_slot *x = &engine->slot[a];
    const flow_slot *y = &engine->slot[b];
    return x->end_ps != y->end_ps ? x->end_ps < y->end_ps : x->sequence < y->sequence;
}

static void heap_put(flow_engine *engine, uint32_t at, uint32_t flow)
{
    engine->heap[at] = flow;
    engine->slot[flow].heap_at = at;
}

static void heap_up(flow_engine *engine, uint32_t at, uint32_t flow)
{
    while (at > 0 && earlier(engine, flow, engine->heap[(at - 1) / 4])) {
        heap_put(engine, at, engine->heap[(at - 1) / 4]);
        at = (at - 1) / 4;
    }
    heap_put(engine, at, flow);
}

static void heap_down(flow_engine *engine, uint32_t at, uint32_t flow)
{
    for (;;) {
        uint32_t best = flow;
        uint32_t best_at = at;
        const uint32_t first = at * 4 + 1;
        for (uint32_t child = first; child < first + 4 && child < engine->heap_count; ++child) {
            if (earlier(engine, engine->heap[child], best)) {
                best = engine->heap[child];
                best_at = child;
            }
        }
        if (best_at == at) {
            heap_put(engine, at, flow);
            return;
        }
        heap_put(engine, at, best);
        at = best_at;
    }
}

static void heap_fix(flow_engine *engine, uint32_t flow)
{
    uint32_t at = engine->slot[flow].heap_at;
    if (at == NONE) {
        at = engine->heap_count++;
    }
    if (at > 0 && earlier(engine, flow, engine->heap[(at - 1) / 4])) {
        heap_up(engine, at, flow);
    } else {
        heap_down(engine, at, flow);
    }
}

static void heap_take_first(flow_engine *engine)
{
    engine->slot[engine->heap[0]].heap_at = NONE;
    const uint32_t last = engine->heap[--engine->heap_count];
    if (engine->heap_count > 0) {
        heap_down(engine, 0, last);
    }
}

/* ------------------------------------------------------------------------------------ links */

static void mark_dirty(flow_engine *engine, uint32_t link)
{
    if (!engine->link[link].dirty) {
        engine->link[link].dirty = true;
        engine->dirty[engine->dirty_count++] = link;
    }
}

static void join_links(flow_engine *engine, uint32_t flow)
{
    flow_slot *slot = &engine->slot[flow];
    for (uint32_t i = 0; i < slot->desc.use_count; ++i) {
        flow_link *link = &engine->link[slot->desc.use[i].link];
        const uint32_t place = flow * FLOW_USES_MAX + i;
        if (link->first == NONE) {
            link->busy_from_ps = engine->now_ps;
        } else {
            engine->slot[link->first / FLOW_USES_MAX].prev[link->first % FLOW_USES_MAX] = place;
        }
        slot->next[i] = link->first;
        slot->prev[i] = NONE;
        link->first = place;
        mark_dirty(engine, slot->desc.use[i].link);
    }
}

static void leave_links(flow_engine *engine, uint32_t flow)
{
    flow_slot *slot = &engine->slot[flow];
    for (uint32_t i = 0; i < slot->desc.use_count; ++i) {
        flow_link *link = &engine->link[slot->desc.use[i].link];
        const uint32_t next = slot->next[i];
        const uint32_t prev = slot->prev[i];
        if (next != NONE) {
            engine->slot[next / FLOW_USES_MAX].prev[next % FLOW_USES_MAX] = prev;
        }
        if (prev != NONE) {
            engine->slot[prev / FLOW_USES_MAX].next[prev % FLOW_USES_MAX] = next;
        } else {
            link->first = next;
        }
        link->bytes += slot->desc.bytes * slot->desc.use[i].weight;
        if (link->first == NONE) {
            link->busy_ps += engine->now_ps - link->busy_from_ps;
        }
        mark_dirty(engine, slot->desc.use[i].link);
    }
}

/* ------------------------------------------------------------------------------------ rates */

static void set_rate(flow_engine *engine, uint32_t flow, uint64_t rate)
{
    flow_slot *slot = &engine->slot[flow];
    slot->fixed = engine->round;
    if (slot->rate == rate && slot->heap_at != NONE) {
        return;
    }
    const wide moved = (wide)(engine->now_ps - slot->settled_ps) * slot->rate;
    slot->left = moved < slot->left ? slot->left - moved : 0;
    slot->settled_ps = engine->now_ps;
    slot->rate = rate > 0 ? rate : 1;
    wide span;
    if (slot->left <= UINT64_MAX) { /* the short division is many times faster */
        span = ((uint64_t)slot->left + slot->rate - 1) / slot->rate;
    } else {
        span = (slot->left + slot->rate - 1) / slot->rate;
    }
    const wide end = (engine->now_ps + span + FLOW_GRAIN_PS - 1) / FLOW_GRAIN_PS * FLOW_GRAIN_PS;
    slot->end_ps = end < FLOW_NEVER ? (uint64_t)end : FLOW_NEVER;
    heap_fix(engine, flow);
}

/* A flow with all its links to itself. */
static bool rate_alone(flow_engine *engine, uint32_t flow)
{
    const flow_slot *slot = &engine->slot[flow];
    uint64_t rate = slot->desc.cap > 0 ? slot->desc.cap : UINT64_MAX;
    for (uint32_t i = 0; i < slot->desc.use_count; ++i) {
        const flow_link *link = &engine->link[slot->desc.use[i].link];
        if (slot->next[i] != NONE || slot->prev[i] != NONE) {
            return false;
        }
        const uint64_t share = link->rate / slot->desc.use[i].weight;
        rate = share < rate ? share : rate;
    }
    set_rate(engine, flow, rate);
    return true;
}

/* All flows and links connected to `link`; counts of both. */
static void find_component(flow_engine *engine, uint32_t link, uint32_t *links, uint32_t *flows)
{
    uint32_t link_count = 0;
    uint32_t flow_count = 0;
    engine->link[link].round = engine->round;
    engine->found_links[link_count++] = link;
    for (uint32_t done = 0; done < link_count; ++done) {
        flow_link *from = &engine->link[engine->found_links[done]];
        from->left = from->rate;
        from->open = 0;
        for (uint32_t place = from->first; place != NONE;) {
            flow_slot *slot = &engine->slot[place / FLOW_USES_MAX];
            from->open += slot->desc.use[place % FLOW_USES_MAX].weight;
            if (slot->round != engine->round) {
                slot->round = engine->round;
                engine->found_flows[flow_count++] = place / FLOW_USES_MAX;
                for (uint32_t i = 0; i < slot->desc.use_count; ++i) {
                    flow_link *to = &engine->link[slot->desc.use[i].link];
                    if (to->round != engine->round) {
                        to->round = engine->round;
                        engine->found_links[link_count++] = slot->desc.use[i].link;
                    }
                }
            }
            place = slot->next[place % FLOW_USES_MAX];
        }
    }
    *links = link_count;
    *flows = flow_count;
}

static bool less(const share_entry *a, const share_entry *b)
{
    return a->share != b->share ? a->share < b->share : a->what < b->what;
}

static void share_down(flow_engine *engine, uint32_t at)
{
    share_entry *shares = engine->shares;
    const share_entry moving = shares[at];
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= engine->share_count) {
            break;
        }
        if (child + 1 < engine->share_count && less(&shares[child + 1], &shares[child])) {
            ++child;
        }
        if (!less(&shares[child], &moving)) {
            break;
        }
        shares[at] = shares[child];
        at = child;
    }
    shares[at] = moving;
}

static uint64_t share_of(const flow_engine *engine, uint32_t what)
{
    if (what >= engine->link_count) {
        return engine->slot[what - engine->link_count].desc.cap;
    }
    const flow_link *link = &engine->link[what];
    return link->open > 0 ? link->left / link->open : UINT64_MAX;
}

static void give(flow_engine *engine, uint32_t flow, uint64_t rate)
{
    const flow_slot *slot = &engine->slot[flow];
    for (uint32_t i = 0; i < slot->desc.use_count; ++i) {
        flow_link *link = &engine->link[slot->desc.use[i].link];
        link->left -= rate * slot->desc.use[i].weight;
        link->open -= slot->desc.use[i].weight;
    }
    set_rate(engine, flow, rate);
}

static void give_all(flow_engine *engine, uint32_t what, uint64_t share)
{
    if (what >= engine->link_count) {
        if (engine->slot[what - engine->link_count].fixed != engine->round) {
            give(engine, what - engine->link_count, share);
        }
        return;
    }
    uint32_t place = engine->link[what].first;
    while (place != NONE) {
        const uint32_t flow = place / FLOW_USES_MAX;
        const uint32_t next = engine->slot[flow].next[place % FLOW_USES_MAX];
        if (engine->slot[flow].fixed != engine->round) {
            give(engine, flow, share);
        }
        place = next;
    }
}

/* Progressive filling: the tightest link decides its users, then the next. Shares of links only
 * grow while others are decided, so an entry that is too low is looked at again. */
static void fill(flow_engine *engine, uint32_t links, uint32_t flows)
{
    engine->share_count = 0;
    for (uint32_t i = 0; i < links; ++i) {
        const uint32_t link = engine->found_links[i];
        engine->shares[engine->share_count++] = (share_entry){share_of(engine, link), link};
    }
    for (uint32_t i = 0; i < flows; ++i) {
        const uint32_t flow = engine->found_flows[i];
        if (engine->slot[flow].desc.cap > 0) {
            engine->shares[engine->share_count++] =
                (share_entry){engine->slot[flow].desc.cap, engine->link_count + flow};
        }
    }
    for (uint32_t i = engine->share_count / 2 + 1; i > 0; --i) {
        if (i - 1 < engine->share_count) {
            share_down(engine, i - 1);
        }
    }
    while (engine->share_count > 0) {
        const share_entry top = engine->shares[0];
        const uint64_t share = share_of(engine, top.what);
        if (share != top.share) {
            engine->shares[0].share = share;
            share_down(engine, 0);
            continue;
        }
        if (share < UINT64_MAX) {
            give_all(engine, top.what, share);
        }
        engine->shares[0] = engine->shares[--engine->share_count];
        if (engine->share_count > 0) {
            share_down(engine, 0);
        }
    }
}

static void find_rates(flow_engine *engine)
{
    ++engine->round;
    for (uint32_t i = 0; i < engine->dirty_count; ++i) {
        flow_link *link = &engine->link[engine->dirty[i]];
        link->dirty = false;
        if (link->first == NONE || link->round == engine->round) {
            continue;
        }
        const uint32_t flow = link->first / FLOW_USES_MAX;
        if (engine->slot[flow].fixed == engine->round || rate_alone(engine, flow)) {
            continue;
        }
        uint32_t links = 0;
        uint32_t flows = 0;
        find_component(engine, engine->dirty[i], &links, &flows);
        fill(engine, links, flows);
    }
    engine->dirty_count = 0;
}

/* ------------------------------------------------------------------------------------ events */

static void fly(flow_engine *engine, uint32_t flow, uint64_t from_ps)
{
    flow_slot *slot = &engine->slot[flow];
    slot->state = FLOW_FLYING;
    slot->end_ps = from_ps + slot->desc.latency_ps;
    heap_fix(engine, flow);
}

ist_status flow_begin(flow_engine *engine, const flow_desc *desc)
{
    if (engine->free_count == 0) {
        const ist_status status = grow(engine);
        if (status != IST_OK) {
            return status;
        }
    }
    const uint32_t flow = engine->free_slots[--engine->free_count];
    flow_slot *slot = &engine->slot[flow];
    slot->desc = *desc;
    slot->left = (wide)desc->bytes * PS_PER_S;
    slot->settled_ps = engine->now_ps;
    slot->rate = 0;
    slot->sequence = engine->sequence++;
    slot->heap_at = NONE;
    ++engine->events;
    if (desc->bytes == 0 || (desc->use_count == 0 && desc->cap == 0)) {
        slot->desc.use_count = 0;
        fly(engine, flow, engine->now_ps);
        return IST_OK;
    }
    slot->state = FLOW_MOVING;
    join_links(engine, flow);
    if (desc->use_count == 0) {
        set_rate(engine, flow, desc->cap);
    }
    return IST_OK;
}

bool flow_pop(flow_engine *engine, uint64_t *cookie)
{
    for (;;) {
        /* Rates are found when time would pass, so that all changes of one moment count as one. */
        if (engine->dirty_count > 0 &&
            (engine->heap_count == 0 || engine->slot[engine->heap[0]].end_ps > engine->now_ps)) {
            find_rates(engine);
        }
        if (engine->heap_count == 0) {
            return false;
        }
        const uint32_t flow = engine->heap[0];
        flow_slot *slot = &engine->slot[flow];
        engine->now_ps = slot->end_ps > engine->now_ps ? slot->end_ps : engine->now_ps;
        heap_take_first(engine);
        if (slot->state == FLOW_MOVING) {
            leave_links(engine, flow);
            if (slot->desc.latency_ps > 0) {
                fly(engine, flow, slot->end_ps);
                continue;
            }
        }
        slot->state = FLOW_FREE;
        ++engine->events;
        *cookie = slot->desc.cookie;
        engine->free_slots[engine->free_count++] = flow;
        return true;
    }
}

uint64_t flow_now(const flow_engine *engine)
{
    return engine->now_ps;
}

flow_link_usage flow_usage(const flow_engine *engine, uint32_t link)
{
    const flow_link *at = &engine->link[link];
    uint64_t busy = at->busy_ps;
    if (at->first != NONE) {
        busy += engine->now_ps - at->busy_from_ps;
    }
    return (flow_link_usage){.bytes = at->bytes, .busy_ps = busy};
}

uint64_t flow_event_count(const flow_engine *engine)
{
    return engine->events;
}
