/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the estimate is: the event engine with flows that share links, and answers about large
 * clusters. Prints; asserts nothing about the clock.
 *
 * usage: bench_whatif [EVENTS]
 */
#include "cost_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LINKS 1024u
#define PS 1e12

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Each flow crosses two links that up to `sharers` others cross, too; each end begins a new one. */
static double engine_rate(uint32_t sharers, uint64_t events)
{
    static uint64_t rates[LINKS];
    flow_engine *engine = NULL;
    uint64_t state = 88172645463325252u;
    uint64_t cookie = 0;
    for (uint32_t i = 0; i < LINKS; ++i) {
        rates[i] = 50000000000;
    }
    if (flow_open(rates, LINKS, &engine) != IST_OK) {
        return 0;
    }
    const double start = seconds();
    for (uint32_t i = 0; i < LINKS / 2 * sharers; ++i) {
        const uint32_t pair = i / sharers;
        const flow_desc desc = {.bytes = 4096 + draw(&state) % 65536,
                                .latency_ps = 730000,
                                .cookie = pair,
                                .use_count = 2,
                                .use = {{2 * pair, 1}, {2 * pair + 1, 1}}};
        (void)flow_begin(engine, &desc);
    }
    while (flow_event_count(engine) < events && flow_pop(engine, &cookie)) {
        const uint32_t pair = (uint32_t)cookie;
        const flow_desc desc = {.bytes = 4096 + draw(&state) % 65536,
                                .latency_ps = 730000,
                                .cookie = pair,
                                .use_count = 2,
                                .use = {{2 * pair, 1}, {2 * pair + 1, 1}}};
        (void)flow_begin(engine, &desc);
    }
    const double took = seconds() - start;
    const double rate = (double)flow_event_count(engine) / took;
    flow_close(engine);
    return rate;
}

static cost_machine machine_of(uint64_t ranks)
{
    return (cost_machine){.node_count = ranks / 8,
                          .gpus_per_node = 8,
                          .domain = 8,
                          .nics_per_node = 8,
                          .fabric_permille = COST_PERMILLE};
}

static void time_ops(const char *name, uint64_t ranks, const cost_op *ops, uint32_t count,
                     bool edited)
{
    static cost_result result;
    const cost_machine machine = machine_of(ranks);
    const cost_edit edit = {.resource = COST_NIC_OUT, .node = ranks / 16, .num = 0, .den = 1};
    const uint32_t rounds = 20;
    const double start = seconds();
    for (uint32_t i = 0; i < rounds; ++i) {
        if (cost_estimate(&machine, &edit, edited, ops, count, false, &result) != IST_OK) {
            printf("%s: failed\n", name);
            return;
        }
    }
    printf("%-44s %9.3f ms to answer; answer %.1f us\n", name, (seconds() - start) * 1e3 / rounds,
           (double)result.total_ps / 1e6);
}

int main(int argc, char **argv)
{
    const uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000000;
    for (uint32_t sharers = 1; sharers <= 8; sharers *= 2) {
        printf("event engine, %u flows share a link: %.2f M events/s\n", sharers,
               engine_rate(sharers, events) / 1e6);
    }
    cost_op ops[2] = {{.kind = COST_EP_DISPATCH, .algorithm = COST_LL},
                      {.kind = COST_EP_COMBINE, .algorithm = COST_LL}};
    for (uint32_t i = 0; i < 2; ++i) {
        ops[i].tokens = 128;
        ops[i].row_bytes = 14336;
        ops[i].topk = 8;
        ops[i].experts = 2048;
        ops[i].knobs = cost_knobs_default();
    }
    time_ops("EP2048 dispatch + combine, LL", 2048, ops, 2, false);
    time_ops("the same, one NIC taken away", 2048, ops, 2, true);
    ops[0].algorithm = ops[1].algorithm = COST_HT;
    time_ops("EP2048 dispatch + combine, HT", 2048, ops, 2, false);
    const cost_op reduce = {
        .kind = COST_ALL_REDUCE, .bytes = UINT64_C(1) << 30, .knobs = cost_knobs_default()};
    time_ops("all-reduce of 1 GiB, 100,000 ranks", 100000, &reduce, 1, false);
    time_ops("all-reduce of 1 GiB, 1,000,000 ranks", 1000000, &reduce, 1, false);
    time_ops("the same, one NIC taken away", 1000000, &reduce, 1, true);
    return 0;
}
