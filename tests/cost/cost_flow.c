/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event engine against a slow oracle that finds all rates anew at each event, against the link
 * model of the simulator, and with weights against the flows they stand for.
 */
#include "flow_engine.h"
#include "sim_link.h"

#include "ist_test.h"

#include <cmocka.h>
#include <string.h>

#define FLOWS 40u
#define LINKS 9u
#define SLACK_PS 20000u /* rounding of shares to whole bytes per second, and the engine's grain */

typedef struct slow_flow {
    double left, rate, end;
    uint32_t link[3];
    uint32_t links;
    double cap;
    bool done, fixed;
} slow_flow;

/* Progressive filling by repeated search for the smallest share. */
static void slow_rates(slow_flow *flows, const uint64_t *rates)
{
    double left[LINKS];
    for (uint32_t i = 0; i < LINKS; ++i) {
        left[i] = (double)rates[i];
    }
    for (uint32_t i = 0; i < FLOWS; ++i) {
        flows[i].fixed = flows[i].done;
    }
    for (;;) {
        uint32_t open[LINKS] = {0};
        double best = 1e30;
        bool any = false;
        for (uint32_t i = 0; i < FLOWS; ++i) {
            for (uint32_t l = 0; l < flows[i].links && !flows[i].fixed; ++l) {
                ++open[flows[i].link[l]];
            }
        }
        for (uint32_t i = 0; i < FLOWS; ++i) {
            if (flows[i].fixed) {
                continue;
            }
            any = true;
            double share = flows[i].cap > 0 ? flows[i].cap : 1e30;
            for (uint32_t l = 0; l < flows[i].links; ++l) {
                const double of_link = left[flows[i].link[l]] / open[flows[i].link[l]];
                share = of_link < share ? of_link : share;
            }
            flows[i].rate = share;
            best = share < best ? share : best;
        }
        if (!any) {
            return;
        }
        for (uint32_t i = 0; i < FLOWS; ++i) {
            if (!flows[i].fixed && flows[i].rate <= best * (1 + 1e-12)) {
                flows[i].fixed = true;
                for (uint32_t l = 0; l < flows[i].links; ++l) {
                    left[flows[i].link[l]] -= flows[i].rate;
                }
            }
        }
    }
}

static void slow_run(slow_flow *flows, const uint64_t *rates)
{
    double now = 0;
    for (uint32_t done = 0; done < FLOWS; ++done) {
        slow_rates(flows, rates);
        uint32_t first = 0;
        double least = 1e30;
        for (uint32_t i = 0; i < FLOWS; ++i) {
            if (!flows[i].done && flows[i].left / flows[i].rate < least) {
                least = flows[i].left / flows[i].rate;
                first = i;
            }
        }
        now += least;
        for (uint32_t i = 0; i < FLOWS; ++i) {
            flows[i].left -= flows[i].done ? 0 : flows[i].rate * least;
        }
        flows[first].done = true;
        flows[first].end = now;
    }
}

static void draw_flow(slow_flow *slow, flow_desc *desc, uint32_t index, uint64_t *random)
{
    *slow = (slow_flow){.left = 1 + ist_test_random_below(random, 1000000)};
    slow->links = 1 + ist_test_random_below(random, 3);
    slow->cap =
        ist_test_random_below(random, 4) == 0 ? 1e9 + ist_test_random_below(random, 1000000000) : 0;
    const uint32_t start = ist_test_random_below(random, LINKS);
    *desc = (flow_desc){.bytes = (uint64_t)slow->left,
                        .cap = (uint64_t)slow->cap,
                        .cookie = index,
                        .use_count = slow->links};
    for (uint32_t l = 0; l < slow->links; ++l) {
        slow->link[l] = (start + l * 2) % LINKS;
        desc->use[l] = (flow_use){.link = slow->link[l], .weight = 1};
    }
}

static void test_against_oracle(void **state)
{
    (void)state;
    uint64_t random = ist_test_seed();
    for (uint32_t round = 0; round < 200; ++round) {
        uint64_t rates[LINKS];
        slow_flow slow[FLOWS];
        for (uint32_t i = 0; i < LINKS; ++i) {
            rates[i] = 1000000000u + (uint64_t)ist_test_random_below(&random, 1000000000) * 50;
        }
        flow_engine *engine = NULL;
        assert_int_equal(flow_open(rates, LINKS, &engine), IST_OK);
        for (uint32_t i = 0; i < FLOWS; ++i) {
            flow_desc desc;
            draw_flow(&slow[i], &desc, i, &random);
            assert_int_equal(flow_begin(engine, &desc), IST_OK);
        }
        slow_run(slow, rates);
        uint64_t cookie = 0;
        uint32_t count = 0;
        while (flow_pop(engine, &cookie)) {
            const double off = (double)flow_now(engine) - slow[cookie].end * 1e12;
            assert_true(off < SLACK_PS && off > -(double)SLACK_PS);
            ++count;
        }
        assert_int_equal(count, FLOWS);
        assert_int_equal(flow_event_count(engine), 2 * FLOWS);
        flow_close(engine);
    }
}

/* n flows of weight one over n pairs of links, and one flow of weight n over two shared ones. */
static void test_weights(void **state)
{
    (void)state;
    const uint64_t rates[2] = {1000000000, 3000000000};
    flow_engine *engine = NULL;
    uint64_t cookie = 0;
    assert_int_equal(flow_open(rates, 2, &engine), IST_OK);
    for (uint32_t i = 0; i < 10; ++i) {
        const flow_desc one = {.bytes = 1000, .cookie = i, .use_count = 2, .use = {{0, 1}, {1, 1}}};
        assert_int_equal(flow_begin(engine, &one), IST_OK);
    }
    while (flow_pop(engine, &cookie)) {
        assert_true(cookie < 10);
    }
    const uint64_t single = flow_now(engine);
    assert_true(flow_usage(engine, 0).bytes == 10000);
    flow_reset(engine);
    const flow_desc all = {.bytes = 1000, .use_count = 2, .use = {{0, 10}, {1, 10}}};
    assert_int_equal(flow_begin(engine, &all), IST_OK);
    assert_true(flow_pop(engine, &cookie));
    assert_true(flow_now(engine) == single);
    assert_true(flow_usage(engine, 1).bytes == 10000);
    assert_false(flow_pop(engine, &cookie));
    flow_close(engine);
}

static void test_latency_and_timers(void **state)
{
    (void)state;
    const uint64_t rate = 1000000000;
    flow_engine *engine = NULL;
    uint64_t cookie = 0;
    assert_int_equal(flow_open(&rate, 1, &engine), IST_OK);
    const flow_desc timer = {.latency_ps = 5000, .cookie = 7};
    const flow_desc data = {
        .bytes = 1024, .latency_ps = 1000, .cookie = 8, .use_count = 1, .use = {{0, 1}}};
    assert_int_equal(flow_begin(engine, &data), IST_OK);
    assert_int_equal(flow_begin(engine, &timer), IST_OK);
    assert_true(flow_pop(engine, &cookie));
    assert_int_equal(cookie, 7);
    assert_int_equal(flow_now(engine), 5000);
    assert_true(flow_pop(engine, &cookie));
    assert_int_equal(cookie, 8);
    assert_int_equal(flow_now(engine), 1024000 + 1000);
    assert_int_equal(flow_usage(engine, 0).busy_ps, 1024000);
    flow_close(engine);
}

/* The same transfers on the simulator's links and here: virtual time and what-if are one model. */
static void test_against_simulator(void **state)
{
    (void)state;
    uint64_t random = ist_test_seed() + 9;
    ist_cluster cluster;
    assert_int_equal(ist_cluster_parse("2x4,nics=2", &cluster), IST_OK);
    for (uint32_t round = 0; round < 100; ++round) {
        sim_links *links = NULL;
        assert_int_equal(sim_links_open(&cluster, 8, IST_LINKS_MAX_MIN, &links), IST_OK);
        uint64_t rates[64];
        const uint32_t count = sim_links_count(links);
        for (uint32_t i = 0; i < count; ++i) {
            rates[i] = i < 24 ? (i % 3 == 2 ? cluster.hbm_bytes_per_s : cluster.nvlink_bytes_per_s)
                              : cluster.nic_bytes_per_s;
        }
        flow_engine *engine = NULL;
        assert_int_equal(flow_open(rates, count, &engine), IST_OK);
        static sim_transfer transfers[FLOWS];
        uint64_t ends[FLOWS];
        memset(transfers, 0, sizeof transfers);
        for (uint32_t i = 0; i < FLOWS; ++i) {
            const uint32_t src = ist_test_random_below(&random, 8);
            const uint32_t dst = (src + 1 + ist_test_random_below(&random, 7)) % 8;
            uint64_t latency = 0;
            transfers[i].bytes = 1000 + ist_test_random_below(&random, 1000000);
            assert_int_equal(sim_links_route(links, src, dst,
                                             src / 4 == dst / 4 ? SIM_ROUTE_LSA : SIM_ROUTE_GIN,
                                             &transfers[i], &latency),
                             IST_OK);
            flow_desc desc = {
                .bytes = transfers[i].bytes, .cookie = i, .use_count = transfers[i].link_count};
            for (uint32_t l = 0; l < desc.use_count; ++l) {
                desc.use[l] = (flow_use){.link = transfers[i].link[l], .weight = 1};
            }
            assert_false(sim_links_begin(links, 0, &transfers[i]));
            assert_int_equal(flow_begin(engine, &desc), IST_OK);
        }
        for (uint64_t at = sim_links_next(links); at != SIM_TIME_NEVER;
             at = sim_links_next(links)) {
            for (sim_transfer *done = sim_links_pop(links, at); done != NULL;
                 done = sim_links_pop(links, at)) {
                ends[done - transfers] = done->end_ps;
            }
        }
        uint64_t cookie = 0;
        while (flow_pop(engine, &cookie)) {
            const uint64_t now = flow_now(engine);
            const uint64_t off = now > ends[cookie] ? now - ends[cookie] : ends[cookie] - now;
            assert_true(off < SLACK_PS * 3);
        }
        flow_close(engine);
        sim_links_close(links);
    }
}

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_oracle),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_latency_and_timers),
        cmocka_unit_test(test_against_simulator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
