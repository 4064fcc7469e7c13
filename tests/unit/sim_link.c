/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: both link models give the times, rates and byte counts that their definitions give.
 * Method: hand-computed cases, and random runs from a seed (first argument) against slow models: in
 * order by replaying bookings; max-min by raising all rates one byte a second at a time.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sim_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000000)
#define FLOWS_MAX 12
#define LINKS_MAX 64

__extension__ typedef unsigned __int128 wide;

static uint64_t seed = 1;

/* SplitMix64. */
static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static sim_links *opened(const char *line, uint32_t rank_count, ist_link_model model)
{
    ist_cluster cluster;
    sim_links *links = NULL;
    assert_int_equal(ist_cluster_parse(line, &cluster), IST_OK);
    assert_int_equal(sim_links_open(&cluster, rank_count, model, &links), IST_OK);
    return links;
}

static uint64_t routed(const sim_links *links, uint32_t src, uint32_t dst, sim_route_kind kind,
                       uint64_t bytes, sim_transfer *transfer)
{
    uint64_t latency_ps = 0;
    memset(transfer, 0, sizeof(*transfer));
    transfer->bytes = bytes;
    assert_int_equal(sim_links_route(links, src, dst, kind, transfer, &latency_ps), IST_OK);
    return latency_ps;
}

static const char *name_of(const sim_links *links, uint32_t link)
{
    static char text[48];
    sim_links_name(links, link, text, sizeof(text));
    return text;
}

/* ------------------------------------------------------------------------------------ routes */

static void test_routes(void **state)
{
    (void)state;
    sim_links *links = opened("2x4,nics=2", 8, IST_LINKS_IN_ORDER);
    sim_transfer t;
    assert_int_equal(sim_links_count(links), 8 * 3 + 4 * 2);
    assert_int_equal(routed(links, 0, 3, SIM_ROUTE_LSA, 1, &t), 730000);
    assert_int_equal(t.link_count, 2);
    assert_string_equal(name_of(links, t.link[0]), "nvlink out rank 0");
    assert_string_equal(name_of(links, t.link[1]), "nvlink in rank 3");
    assert_int_equal(routed(links, 1, 7, SIM_ROUTE_GIN, 1, &t), 2500000);
    assert_string_equal(name_of(links, t.link[0]), "nic out node 0 nic 0");
    assert_string_equal(name_of(links, t.link[1]), "nic in node 1 nic 1");
    assert_int_equal(routed(links, 5, 5, SIM_ROUTE_LSA, 1, &t), 0);
    assert_int_equal(t.link_count, 1);
    assert_string_equal(name_of(links, t.link[0]), "hbm rank 5");
    (void)routed(links, 5, 5, SIM_ROUTE_GIN, 1, &t);
    assert_string_equal(name_of(links, t.link[0]), "nic out node 1 nic 0");
    assert_string_equal(name_of(links, t.link[1]), "nic in node 1 nic 0");
    sim_links_close(links);
    links = opened("2x4,nics=2", 8, IST_LINKS_MAX_MIN);
    (void)routed(links, 0, 3, SIM_ROUTE_LSA, 1, &t);
    assert_int_equal(t.link_count, 4);
    assert_string_equal(name_of(links, t.link[2]), "hbm rank 0");
    assert_string_equal(name_of(links, t.link[3]), "hbm rank 3");
    (void)routed(links, 2, 2, SIM_ROUTE_GIN, 1, &t);
    assert_int_equal(t.link_count, 3);
    sim_links_close(links);
}

static void test_no_route(void **state)
{
    (void)state;
    sim_links *links = opened("2x4,nics=0", 8, IST_LINKS_IN_ORDER);
    sim_transfer t = {.link_count = 77};
    uint64_t latency_ps = 99;
    uint32_t list[SIM_LINKS_A_ROUTE];
    ist_error error = {.size = sizeof(error)};
    assert_int_equal(sim_links_route(links, 3, 4, SIM_ROUTE_LSA, &t, &latency_ps),
                     IST_ERR_UNSUPPORTED);
    assert_int_equal(ist_error_last(&error), IST_OK);
    assert_non_null(strstr(error.message, "NVLink domain"));
    assert_int_equal(error.rank, 3);
    assert_int_equal(error.peer, 4);
    assert_int_equal(sim_links_route(links, 3, 4, SIM_ROUTE_GIN, &t, &latency_ps),
                     IST_ERR_UNSUPPORTED);
    assert_int_equal(sim_links_route(links, 3, 4, SIM_ROUTE_LOCAL, &t, &latency_ps),
                     IST_ERR_UNSUPPORTED);
    assert_int_equal(sim_links_route(links, 3, 8, SIM_ROUTE_GIN, &t, &latency_ps), IST_ERR_RANGE);
    assert_int_equal(t.link_count, 77);
    assert_int_equal(latency_ps, 99);
    assert_int_equal(sim_links_of_pair(links, 3, 4, SIM_ROUTE_GIN, list), 0);
    assert_int_equal(sim_links_of_pair(links, 3, 3, SIM_ROUTE_LSA, list), 0);
    assert_int_equal(sim_links_of_pair(links, 0, 3, SIM_ROUTE_LSA, list), 2);
    assert_string_equal(name_of(links, list[1]), "nvlink in rank 3");
    sim_links_close(links);
}

static void test_open(void **state)
{
    (void)state;
    ist_cluster cluster;
    sim_links *links = NULL;
    assert_int_equal(ist_cluster_parse("2x4", &cluster), IST_OK);
    assert_int_equal(sim_links_open(&cluster, 9, IST_LINKS_IN_ORDER, &links), IST_ERR_RANGE);
    assert_null(links);
    assert_int_equal(ist_cluster_parse("1000000x1000", &cluster), IST_OK);
    assert_int_equal(sim_links_open(&cluster, 1000000000, IST_LINKS_IN_ORDER, &links),
                     IST_ERR_RANGE);
    links = opened("2x4", 5, IST_LINKS_IN_ORDER);
    assert_int_equal(sim_links_count(links), 5 * 3 + 8 * 2);
    sim_links_close(links);
    sim_links_close(NULL);
}

static void test_open_fault_loop(void **state)
{
    (void)state;
    ist_cluster cluster;
    uint64_t hit_count = 1;
    assert_int_equal(ist_cluster_parse(NULL, &cluster), IST_OK);
    for (uint64_t nth = 1; hit_count > 0; nth++) {
        sim_links *links = NULL;
        assert_int_equal(ist_call_fault_arm("host_alloc", nth, 0, IST_ERR_MEMORY), IST_OK);
        ist_status status = sim_links_open(&cluster, 8, IST_LINKS_MAX_MIN, &links);
        (void)ist_call_fault_disarm(&hit_count);
        assert_int_equal(status, hit_count > 0 ? IST_ERR_MEMORY : IST_OK);
        assert_int_equal(links == NULL, hit_count > 0);
        sim_links_close(links);
        assert_true(nth <= 2);
    }
}

/* ------------------------------------------------------------------------------------ in order */

static void test_in_order(void **state)
{
    (void)state;
    sim_links *links = opened("1x4,nvlink_rate=3B/s", 4, IST_LINKS_IN_ORDER);
    sim_transfer a, b, c, d;
    (void)routed(links, 0, 1, SIM_ROUTE_LSA, 10, &a);
    (void)routed(links, 2, 1, SIM_ROUTE_LSA, 1, &b);
    (void)routed(links, 2, 3, SIM_ROUTE_LSA, 0, &c);
    (void)routed(links, 3, 0, SIM_ROUTE_LSA, 6, &d);
    assert_true(sim_links_begin(links, 5, &a));
    assert_int_equal(a.end_ps, 5 + 3333333333334);
    assert_true(sim_links_begin(links, 6, &b));
    assert_int_equal(b.end_ps, a.end_ps + 333333333334);
    assert_true(sim_links_begin(links, 6, &c));
    assert_int_equal(c.end_ps, b.end_ps);
    assert_true(sim_links_begin(links, 6, &d));
    assert_int_equal(d.end_ps, 6 + 2 * SECOND);
    sim_link_usage usage = sim_links_usage(links, 6, b.link[1]);
    assert_int_equal(usage.bytes, 11);
    assert_int_equal(usage.busy_ps, 3333333333334 + 333333333334);
    assert_int_equal(sim_links_next(links), SIM_TIME_NEVER);
    assert_null(sim_links_pop(links, SECOND));
    sim_links_close(links);
}

static void test_in_order_saturates(void **state)
{
    (void)state;
    sim_links *links = opened("1x2,nvlink_rate=1B/s", 2, IST_LINKS_IN_ORDER);
    sim_transfer a;
    (void)routed(links, 0, 1, SIM_ROUTE_LSA, UINT64_MAX, &a);
    assert_true(sim_links_begin(links, 1, &a));
    assert_int_equal(a.end_ps, SIM_TIME_NEVER - 1);
    assert_true(sim_links_begin(links, 2, &a));
    assert_int_equal(a.end_ps, SIM_TIME_NEVER - 1);
    sim_links_close(links);
}

static void test_in_order_parking(void **state)
{
    (void)state;
    sim_links *links = opened("1x4,nvlink_rate=1B/s", 4, IST_LINKS_IN_ORDER);
    sim_transfer a, b, c, d;
    uint32_t list[SIM_LINKS_A_ROUTE];
    (void)routed(links, 0, 1, SIM_ROUTE_LSA, 10, &a);
    (void)routed(links, 2, 1, SIM_ROUTE_LSA, 10, &b);
    (void)routed(links, 0, 3, SIM_ROUTE_LSA, 10, &c);
    (void)routed(links, 2, 3, SIM_ROUTE_LSA, 10, &d);
    assert_int_equal(sim_links_of_pair(links, 0, 1, SIM_ROUTE_LSA, list), 2);
    sim_links_scale(links, 0, list[0], 0, 1);
    sim_links_scale(links, 0, list[1], 0, 1);
    assert_true(sim_links_begin(links, 1, &a));
    assert_int_equal(a.end_ps, SIM_TIME_NEVER);
    assert_true(sim_links_begin(links, 1, &b));
    assert_true(sim_links_begin(links, 1, &c));
    assert_true(sim_links_begin(links, 1, &d));
    assert_int_equal(d.end_ps, 1 + 10 * SECOND);
    assert_null(sim_links_unpark(links));
    sim_links_scale(links, 2, list[1], 1, 2);
    assert_ptr_equal(sim_links_unpark(links), &b);
    assert_null(sim_links_unpark(links));
    assert_true(sim_links_begin(links, 2, &b));
    assert_int_equal(b.end_ps, d.end_ps + 10 * SECOND); /* 1 B/s at half rate rounds up to 1 B/s */
    sim_links_scale(links, 3, list[0], 1, 1);
    sim_links_cancel(links, 3, &a);
    sim_links_cancel(links, 3, &a);
    assert_ptr_equal(sim_links_unpark(links), &c);
    assert_null(sim_links_unpark(links));
    sim_links_close(links);
}

typedef struct booking {
    uint64_t free_ps[LINKS_MAX];
    uint64_t rate[LINKS_MAX];
    uint64_t bytes[LINKS_MAX];
} booking;

static uint64_t span_slow(uint64_t bytes, uint64_t rate)
{
    return (uint64_t)(((wide)bytes * SECOND + rate - 1) / rate);
}

static uint64_t book_slow(booking *book, uint64_t now_ps, const sim_transfer *t)
{
    uint64_t start_ps = now_ps;
    uint64_t end_ps = 0;
    for (uint32_t i = 0; i < t->link_count; i++) {
        uint64_t free_ps = book->free_ps[t->link[i]];
        start_ps = free_ps > start_ps ? free_ps : start_ps;
    }
    for (uint32_t i = 0; i < t->link_count; i++) {
        uint64_t own_ps = start_ps + span_slow(t->bytes, book->rate[t->link[i]]);
        book->free_ps[t->link[i]] = own_ps;
        book->bytes[t->link[i]] += t->bytes;
        end_ps = own_ps > end_ps ? own_ps : end_ps;
    }
    return end_ps;
}

static void random_route(const sim_links *links, uint64_t *state, uint32_t ranks, uint64_t bytes,
                         sim_transfer *t)
{
    uint32_t src = (uint32_t)draw(state, ranks);
    uint32_t dst = (uint32_t)draw(state, ranks);
    switch (draw(state, 3)) {
    case 0: (void)routed(links, src, dst, SIM_ROUTE_LSA, bytes, t); break;
    case 1: (void)routed(links, src, dst, SIM_ROUTE_GIN, bytes, t); break;
    default: (void)routed(links, src, src, SIM_ROUTE_LOCAL, bytes, t); break;
    }
}

static void test_in_order_random(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    for (int run = 0; run < 200; run++) {
        sim_links *links = opened("1x4,nics=2", 4, IST_LINKS_IN_ORDER);
        booking book = {.rate = {0}};
        uint64_t now_ps = 0;
        for (uint32_t i = 0; i < sim_links_count(links); i++) {
            book.rate[i] = i >= 12 ? 50000000000 : i % 3 == 2 ? 4200000000000 : 366000000000;
        }
        for (int i = 0; i < 200; i++) {
            uint64_t bytes = draw(&state, UINT64_C(1) << draw(&state, 36));
            uint32_t link = (uint32_t)draw(&state, sim_links_count(links));
            sim_transfer t;
            if (draw(&state, 10) == 0) {
                uint64_t num = 1 + draw(&state, 4);
                uint64_t den = 1 + draw(&state, 5);
                uint64_t whole = link >= 12      ? 50000000000
                                 : link % 3 == 2 ? 4200000000000
                                                 : 366000000000;
                sim_links_scale(links, now_ps, link, num, den);
                book.rate[link] = whole * num / den;
            }
            random_route(links, &state, 4, bytes, &t);
            now_ps += draw(&state, 1000000);
            assert_true(sim_links_begin(links, now_ps, &t));
            assert_int_equal(t.end_ps, book_slow(&book, now_ps, &t));
        }
        for (uint32_t i = 0; i < sim_links_count(links); i++) {
            assert_int_equal(sim_links_usage(links, now_ps, i).bytes, book.bytes[i]);
        }
        sim_links_close(links);
    }
}

/* ------------------------------------------------------------------------------------ max-min */

static void test_max_min(void **state)
{
    (void)state;
    sim_links *links = opened("1x4,nvlink_rate=12B/s", 4, IST_LINKS_MAX_MIN);
    sim_transfer a, b, c;
    (void)routed(links, 0, 1, SIM_ROUTE_LSA, 60, &a);
    (void)routed(links, 2, 1, SIM_ROUTE_LSA, 12, &b);
    (void)routed(links, 2, 3, SIM_ROUTE_LSA, 60, &c);
    assert_false(sim_links_begin(links, 0, &a));
    assert_int_equal(sim_links_next(links), 5 * SECOND);
    assert_false(sim_links_begin(links, SECOND, &b));
    assert_false(sim_links_begin(links, SECOND, &c));
    /* a 12 in the first second; then all at 6 until b is through */
    assert_int_equal(sim_links_next(links), 3 * SECOND);
    assert_int_equal(sim_links_progress(links, 2 * SECOND, &a), 18);
    assert_null(sim_links_pop(links, 3 * SECOND - 1));
    assert_ptr_equal(sim_links_pop(links, 3 * SECOND), &b);
    assert_null(sim_links_pop(links, 3 * SECOND));
    /* a has 36 to go at 12, c 48 at 12 */
    assert_int_equal(sim_links_next(links), 6 * SECOND);
    assert_ptr_equal(sim_links_pop(links, 6 * SECOND), &a);
    assert_int_equal(sim_links_next(links), 7 * SECOND);
    sim_links_cancel(links, 6 * SECOND + SECOND / 2, &c);
    assert_int_equal(sim_links_next(links), SIM_TIME_NEVER);
    assert_int_equal(sim_links_usage(links, 7 * SECOND, c.link[0]).bytes, 12 + 54);
    assert_int_equal(sim_links_usage(links, 7 * SECOND, c.link[0]).busy_ps, 55 * SECOND / 10);
    sim_links_close(links);
}

static void test_max_min_down(void **state)
{
    (void)state;
    sim_links *links = opened("1x2,nvlink_rate=10B/s", 2, IST_LINKS_MAX_MIN);
    sim_transfer a, b;
    (void)routed(links, 0, 1, SIM_ROUTE_LSA, 100, &a);
    (void)routed(links, 1, 0, SIM_ROUTE_LSA, 0, &b);
    assert_false(sim_links_begin(links, 0, &a));
    sim_links_scale(links, SECOND, a.link[0], 0, 1);
    assert_int_equal(sim_links_next(links), SIM_TIME_NEVER);
    sim_links_scale(links, 5 * SECOND, a.link[0], 1, 2);
    assert_int_equal(sim_links_next(links), 23 * SECOND);
    assert_false(sim_links_begin(links, 6 * SECOND, &b));
    assert_int_equal(sim_links_next(links), 6 * SECOND);
    assert_ptr_equal(sim_links_pop(links, 6 * SECOND), &b);
    /* one that is due does not lose its end to a link that goes down at that moment */
    assert_int_equal(sim_links_next(links), 23 * SECOND);
    sim_links_scale(links, 23 * SECOND, a.link[0], 0, 1);
    assert_int_equal(sim_links_next(links), 23 * SECOND);
    assert_ptr_equal(sim_links_pop(links, 23 * SECOND), &a);
    assert_null(sim_links_unpark(links));
    sim_links_close(links);
}

/* Ends of one moment come in the order of begin. */
static void test_max_min_order(void **state)
{
    (void)state;
    sim_links *links = opened("1x4,nvlink_rate=10B/s", 4, IST_LINKS_MAX_MIN);
    sim_transfer t[4];
    for (uint32_t i = 0; i < 4; i++) {
        (void)routed(links, 3 - i, (4 - i) % 4, SIM_ROUTE_LSA, 20, &t[i]);
        assert_false(sim_links_begin(links, 7, &t[i]));
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(sim_links_next(links), 7 + 2 * SECOND);
        assert_ptr_equal(sim_links_pop(links, 7 + 2 * SECOND), &t[i]);
    }
    sim_links_close(links);
}

/* The slow model: every flow's work is brought up to date at every event. */
typedef struct flow_slow {
    bool active;
    wide left; /* bytes * 10^12 */
    uint64_t rate;
    uint64_t end_ps;
    uint64_t order;
    sim_transfer transfer;
} flow_slow;

typedef struct world_slow {
    flow_slow flow[FLOWS_MAX];
    uint64_t capacity[LINKS_MAX];
    uint64_t now_ps;
    uint64_t order;
} world_slow;

static bool uses(const flow_slow *flow, uint32_t link)
{
    for (uint32_t i = 0; i < flow->transfer.link_count; i++) {
        if (flow->transfer.link[i] == link) {
            return true;
        }
    }
    return false;
}

/* What a link would carry if its open flows had one byte a second more. */
static uint64_t wanted_slow(const world_slow *world, const bool *open, uint32_t link)
{
    uint64_t wanted = 0;
    for (uint32_t f = 0; f < FLOWS_MAX; f++) {
        if (world->flow[f].active && uses(&world->flow[f], link)) {
            wanted += world->flow[f].rate + open[f];
        }
    }
    return wanted;
}

/* Raises all open rates by one together. Before each step the links are asked in turn; one that
 * cannot bear it closes its flows. */
static void rates_slow(world_slow *world, uint32_t link_count)
{
    bool open[FLOWS_MAX];
    for (uint32_t f = 0; f < FLOWS_MAX; f++) {
        open[f] = world->flow[f].active;
        world->flow[f].rate = 0;
    }
    for (bool any = true; any;) {
        for (uint32_t link = 0; link < link_count; link++) {
            bool full = wanted_slow(world, open, link) > world->capacity[link];
            for (uint32_t f = 0; f < FLOWS_MAX && full; f++) {
                open[f] = open[f] && !uses(&world->flow[f], link);
            }
        }
        any = false;
        for (uint32_t f = 0; f < FLOWS_MAX; f++) {
            world->flow[f].rate += open[f];
            any = any || open[f];
        }
    }
}

/* Who has nothing left to go keeps its end, whatever its links do at that moment. */
static void ends_slow(world_slow *world, uint32_t link_count)
{
    rates_slow(world, link_count);
    for (uint32_t f = 0; f < FLOWS_MAX; f++) {
        flow_slow *flow = &world->flow[f];
        if (flow->active && flow->end_ps <= world->now_ps) {
            continue;
        }
        flow->end_ps = SIM_TIME_NEVER;
        if (flow->active && flow->rate > 0) {
            flow->end_ps = world->now_ps + (uint64_t)((flow->left + flow->rate - 1) / flow->rate);
        }
    }
}

static void advance_slow(world_slow *world, uint64_t now_ps)
{
    for (uint32_t f = 0; f < FLOWS_MAX; f++) {
        flow_slow *flow = &world->flow[f];
        wide done = (wide)flow->rate * (now_ps - world->now_ps);
        flow->left = flow->left > done ? flow->left - done : 0;
    }
    world->now_ps = now_ps;
}

static flow_slow *first_slow(world_slow *world)
{
    flow_slow *first = NULL;
    for (uint32_t f = 0; f < FLOWS_MAX; f++) {
        flow_slow *flow = &world->flow[f];
        if (flow->active && flow->end_ps != SIM_TIME_NEVER &&
            (first == NULL || flow->end_ps < first->end_ps ||
             (flow->end_ps == first->end_ps && flow->order < first->order))) {
            first = flow;
        }
    }
    return first;
}

/* Feasible; and each moving flow has a full link on which nobody is faster. */
static void check_max_min(const sim_links *links, const world_slow *world)
{
    for (uint32_t f = 0; f < FLOWS_MAX; f++) {
        const flow_slow *flow = &world->flow[f];
        bool bottleneck = !flow->active;
        for (uint32_t link = 0; link < sim_links_count(links); link++) {
            uint64_t sum = 0;
            uint64_t users = 0;
            uint64_t fastest = 0;
            for (uint32_t g = 0; g < FLOWS_MAX; g++) {
                const flow_slow *other = &world->flow[g];
                if (other->active && uses(other, link)) {
                    uint64_t rate = other->transfer.rate;
                    assert_int_equal(rate, other->rate);
                    sum += rate;
                    users++;
                    fastest = rate > fastest ? rate : fastest;
                }
            }
            assert_true(sum <= world->capacity[link]);
            /* Full: less than one byte a second is left for each user. */
            bottleneck = bottleneck || (uses(flow, link) && sum + users > world->capacity[link] &&
                                        flow->transfer.rate == fastest);
        }
        assert_true(bottleneck);
    }
}

static void begin_both(sim_links *links, world_slow *world, uint64_t *state, flow_slow *flow)
{
    uint64_t bytes = draw(state, 8) == 0 ? 0 : draw(state, 100);
    random_route(links, state, 4, bytes, &flow->transfer);
    flow->transfer.owner = flow;
    flow->active = true;
    flow->end_ps = SIM_TIME_NEVER;
    flow->left = (wide)bytes * SECOND;
    flow->order = world->order++;
    assert_false(sim_links_begin(links, world->now_ps, &flow->transfer));
}

static void end_slow(flow_slow *flow, uint64_t moved, uint64_t *carried)
{
    flow->active = false;
    for (uint32_t i = 0; i < flow->transfer.link_count; i++) {
        carried[flow->transfer.link[i]] += moved;
    }
}

/* One change at the present moment: begin, cancel or scale. */
static void change_both(sim_links *links, world_slow *world, uint64_t *state, uint64_t *carried)
{
    flow_slow *flow = &world->flow[draw(state, FLOWS_MAX)];
    uint32_t link = (uint32_t)draw(state, sim_links_count(links));
    if (draw(state, 4) == 0) {
        uint64_t percent = draw(state, 4) == 0 ? 0 : 20 + draw(state, 200);
        sim_links_scale(links, world->now_ps, link, percent, 100);
        ends_slow(world, sim_links_count(links));
        world->capacity[link] = percent;
    } else if (!flow->active) {
        begin_both(links, world, state, flow);
    } else if (draw(state, 4) == 0) {
        uint64_t moved = flow->transfer.bytes - (uint64_t)((flow->left + SECOND - 1) / SECOND);
        sim_links_cancel(links, world->now_ps, &flow->transfer);
        assert_int_equal(sim_links_progress(links, world->now_ps, &flow->transfer), moved);
        end_slow(flow, moved, carried);
    }
}

static uint64_t pop_both(sim_links *links, world_slow *world, uint64_t *carried)
{
    uint64_t count = 0;
    for (flow_slow *due; (due = first_slow(world)) != NULL && due->end_ps <= world->now_ps;
         count++) {
        assert_int_equal(sim_links_next(links), due->end_ps);
        assert_ptr_equal(sim_links_pop(links, world->now_ps), &due->transfer);
        assert_int_equal(due->transfer.end_ps, due->end_ps);
        assert_int_equal(sim_links_progress(links, world->now_ps, &due->transfer),
                         due->transfer.bytes);
        end_slow(due, due->transfer.bytes, carried);
    }
    assert_null(sim_links_pop(links, world->now_ps));
    return count;
}

static uint64_t run_both(uint64_t *state)
{
    sim_links *links = opened("1x4,nics=2,nvlink_rate=100B/s,nic_rate=100B/s,hbm_rate=100B/s", 4,
                              IST_LINKS_MAX_MIN);
    static world_slow world;
    uint64_t carried[LINKS_MAX] = {0};
    uint64_t popped = 0;
    memset(&world, 0, sizeof(world));
    for (uint32_t i = 0; i < LINKS_MAX; i++) {
        world.capacity[i] = 100;
    }
    for (int step = 0; step < 150; step++) {
        for (uint64_t changes = draw(state, 4); changes > 0; changes--) {
            change_both(links, &world, state, carried);
        }
        ends_slow(&world, sim_links_count(links));
        flow_slow *first = first_slow(&world);
        uint64_t next_ps = first != NULL ? first->end_ps : SIM_TIME_NEVER;
        assert_int_equal(sim_links_next(links), next_ps);
        check_max_min(links, &world);
        uint64_t pause_ps = draw(state, 3) == 0 ? 0 : draw(state, 2 * SECOND);
        bool wait = draw(state, 2) == 0 && next_ps != SIM_TIME_NEVER;
        uint64_t then_ps =
            wait || world.now_ps + pause_ps > next_ps ? next_ps : world.now_ps + pause_ps;
        advance_slow(&world, then_ps);
        popped += pop_both(links, &world, carried);
    }
    for (uint32_t i = 0; i < sim_links_count(links); i++) {
        assert_int_equal(sim_links_usage(links, world.now_ps, i).bytes, carried[i]);
    }
    sim_links_close(links);
    return popped;
}

static void test_max_min_random(void **unused)
{
    (void)unused;
    uint64_t state = seed + 1;
    uint64_t popped = 0;
    for (int run = 0; run < 120; run++) {
        popped += run_both(&state);
    }
    assert_true(popped > 2000);
}

/* Without cancels each link carries what its transfers carry, at rates that do not divide evenly. */
static void test_max_min_conserves(void **unused)
{
    (void)unused;
    uint64_t state = seed + 2;
    for (int run = 0; run < 50; run++) {
        sim_links *links = opened("2x4,nics=2", 8, IST_LINKS_MAX_MIN);
        static sim_transfer t[100];
        uint64_t carried[LINKS_MAX] = {0};
        uint64_t now_ps = 0;
        uint32_t ended = 0;
        for (uint32_t i = 0; i < 100; i++) {
            uint64_t bytes = draw(&state, UINT64_C(1) << draw(&state, 30));
            uint32_t src = (uint32_t)draw(&state, 8);
            (void)routed(links, src, (uint32_t)draw(&state, 8), SIM_ROUTE_GIN, bytes, &t[i]);
            assert_false(sim_links_begin(links, now_ps, &t[i]));
            for (uint32_t k = 0; k < t[i].link_count; k++) {
                carried[t[i].link[k]] += bytes;
            }
        }
        for (; ended < 100; ended++) {
            now_ps = sim_links_next(links);
            assert_true(now_ps != SIM_TIME_NEVER);
            sim_transfer *due = sim_links_pop(links, now_ps);
            assert_non_null(due);
            assert_int_equal(sim_links_progress(links, now_ps, due), due->bytes);
        }
        assert_int_equal(sim_links_next(links), SIM_TIME_NEVER);
        for (uint32_t i = 0; i < sim_links_count(links); i++) {
            sim_link_usage usage = sim_links_usage(links, now_ps, i);
            assert_int_equal(usage.bytes, carried[i]);
            assert_true(usage.busy_ps <= now_ps);
        }
        sim_links_close(links);
    }
}

static void quiet(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    printf("seed=%" PRIu64 "\n", seed);
    ist_log_sink_set(quiet, NULL, IST_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_no_route),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_fault_loop),
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_in_order_saturates),
        cmocka_unit_test(test_in_order_parking),
        cmocka_unit_test(test_in_order_random),
        cmocka_unit_test(test_max_min),
        cmocka_unit_test(test_max_min_down),
        cmocka_unit_test(test_max_min_order),
        cmocka_unit_test(test_max_min_random),
        cmocka_unit_test(test_max_min_conserves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
