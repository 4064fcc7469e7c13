/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for what when nothing can happen any more: the wait-for graph, and whether only deadlines
 * are left to end it.
 */
#include "sim_explore.h"

#include <stdio.h>
#include <string.h>

static const char *const sim_wait_names[] = {
    [SIM_WAIT_PEERS] = "words or signals of peers",
    [SIM_WAIT_WORD] = "a word",
    [SIM_WAIT_SIGNAL] = "a signal",
    [SIM_WAIT_COUNTER] = "a counter",
    [SIM_WAIT_FLUSH] = "a flush",
    [SIM_WAIT_BARRIER] = "an LSA barrier",
    [SIM_WAIT_ROWS] = "rows",
};

void sim_graph_add(sim_graph_text *graph, const char *format, ...)
{
    if (graph->used + 1u >= sizeof(graph->text)) {
        return;
    }
    va_list list;
    va_start(list, format);
    int bytes =
        vsnprintf(graph->text + graph->used, sizeof(graph->text) - graph->used, format, list);
    va_end(list);
    graph->used += bytes > 0 ? (size_t)bytes : 0;
    graph->used = graph->used < sizeof(graph->text) ? graph->used : sizeof(graph->text) - 1u;
}

/* ---- one wait -------------------------------------------------------------------------------- */

/* Value that is there, for entry `index`. */
static uint64_t sim_wait_value(const sim_wait *wait, uint32_t index)
{
    const sim_devcomm *dev = wait->dev;
    const ist_dev_comm *pub = dev != NULL ? &dev->pub : NULL;
    switch (wait->kind) {
    case SIM_WAIT_WORD: return *wait->words;
    case SIM_WAIT_BARRIER: return wait->words[index];
    case SIM_WAIT_SIGNAL:
        return dev->signals[(size_t)wait->context * pub->signal_count + wait->signal_first];
    case SIM_WAIT_COUNTER:
        return dev->counters[(size_t)wait->context * pub->counter_count + wait->signal_first];
    case SIM_WAIT_PEERS:
        return ist_dev_is_lsa(pub, index)
                   ? wait->words[index]
                   : dev->signals[(size_t)(index % pub->context_count) * pub->signal_count +
                                  wait->signal_first + index];
    case SIM_WAIT_FLUSH:
    case SIM_WAIT_ROWS: return wait->pending;
    }
    return 0;
}

static uint32_t sim_wait_entries(const sim_wait *wait)
{
    return wait->kind == SIM_WAIT_PEERS     ? wait->dev->pub.rank_count
           : wait->kind == SIM_WAIT_BARRIER ? wait->dev->pub.lsa_size
                                            : 1u;
}

static int32_t sim_wait_whom(const sim_wait *wait, uint32_t index)
{
    const ist_dev_comm *pub = wait->dev != NULL ? &wait->dev->pub : NULL;
    if (wait->kind == SIM_WAIT_BARRIER) {
        return (int32_t)(pub->rank - pub->lsa_rank + index);
    }
    return wait->kind == SIM_WAIT_PEERS ? (int32_t)index : IST_RANK_NONE;
}

static bool sim_wait_open(const sim_wait *wait, uint32_t index)
{
    return wait->results == NULL || wait->results[index] == SIM_RESULT_PENDING;
}

void sim_wait_in_vain(sim_explore *explore, const sim_wait *wait)
{
    uint32_t open = 0;
    while (open + 1u < sim_wait_entries(wait) && !sim_wait_open(wait, open)) {
        ++open;
    }
    bool numbered = wait->kind == SIM_WAIT_SIGNAL || wait->kind == SIM_WAIT_COUNTER;
    uint64_t object =
        (uint64_t)wait->kind << 56 | (uint64_t)wait->context << 32 | wait->signal_first;
    object = wait->words != NULL ? (uint64_t)(uintptr_t)(wait->words + open) : object;
    sim_poll_note(explore, wait->coop->actor.agent,
                  &(sim_poll){.object = object,
                              .what = sim_wait_names[wait->kind],
                              .expected = wait->expected,
                              .seen = sim_wait_value(wait, open),
                              .index = wait->signal_first,
                              .context = wait->context,
                              .whom = sim_wait_whom(wait, open),
                              .numbered = numbered,
                              .expects = true});
}

static void sim_wait_describe(sim_graph_text *graph, const sim_wait *wait)
{
    const ist_coop *coop = wait->coop;
    const char *phase = coop->actor.world->explore->agents[coop->actor.agent].phase;
    sim_graph_add(graph, "  rank %u, kernel %s, block %u%s%s waits for %s since %llu ns:",
                  coop->actor.rank->index, coop->launch->kernel->name, coop->block,
                  phase[0] != '\0' ? ", after " : "", phase, sim_wait_names[wait->kind],
                  (unsigned long long)(wait->began_ps / SIM_PS_PER_NS));
    for (uint32_t i = 0; i < sim_wait_entries(wait); ++i) {
        if (!sim_wait_open(wait, i)) {
            continue;
        }
        int32_t whom = sim_wait_whom(wait, i);
        if (whom >= 0) {
            sim_graph_add(graph, " rank %d", whom);
        }
        if (wait->kind == SIM_WAIT_SIGNAL || wait->kind == SIM_WAIT_COUNTER) {
            sim_graph_add(graph, " number %u of context %u", wait->signal_first, wait->context);
        }
        sim_graph_add(graph, " (expects 0x%llx, sees 0x%llx)", (unsigned long long)wait->expected,
                      (unsigned long long)sim_wait_value(wait, i));
    }
    sim_graph_add(graph, "\n");
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool sim_host_in(const sim_actor *list, const sim_actor *host)
{
    while (list != NULL && list != host) {
        list = list->next_waiter;
    }
    return list != NULL;
}

static void sim_exchange_missing(sim_graph_text *graph, const sim_exchange *exchange)
{
    const sim_comm *comm = exchange->comm;
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        if (((exchange->arrived[i / 64u] | exchange->excused[i / 64u]) >> (i % 64u) & 1u) == 0) {
            sim_graph_add(graph, " rank %u", i);
        }
    }
}

static void sim_host_describe(sim_graph_text *graph, const sim_rank *rank)
{
    const sim_actor *host = &rank->host;
    sim_graph_add(graph, "  rank %u, program waits for", rank->index);
    for (const sim_comm *comm = rank->world->comms; comm != NULL; comm = comm->next) {
        if (comm->exchange != NULL && sim_host_in(comm->exchange->waiters, host)) {
            sim_graph_add(graph, " a collective call of:");
            sim_exchange_missing(graph, comm->exchange);
        } else if (sim_host_in(comm->waiters, host)) {
            sim_graph_add(graph, " a communicator that %u of %u have come to open", comm->joined,
                          comm->rank_count);
        }
    }
    for (const sim_stream *stream = rank->streams; stream != NULL; stream = stream->next_of_rank) {
        if (sim_host_in(stream->hosts, host)) {
            sim_graph_add(graph, " a stream, %llu of %llu done, in %s",
                          (unsigned long long)stream->completed,
                          (unsigned long long)stream->enqueued,
                          stream->launch != NULL ? stream->launch->kernel->name : "its queue");
        }
    }
    for (const sim_host_event *event = rank->events; event != NULL; event = event->next_of_rank) {
        if (sim_host_in(event->hosts, host)) {
            sim_graph_add(graph, " an event");
        }
    }
    sim_graph_add(graph, "\n");
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* `rooted`: whom it waits for and what is missing are known better. */
static void sim_wait_first(const sim_wait *wait, bool rooted, ist_finding *finding)
{
    uint32_t open = 0;
    while (open + 1u < sim_wait_entries(wait) && !sim_wait_open(wait, open)) {
        ++open;
    }
    const ist_coop *coop = wait->coop;
    finding->expected = wait->expected;
    finding->seen = sim_wait_value(wait, open);
    finding->since_ns = wait->began_ps / SIM_PS_PER_NS;
    finding->first.rank = (int32_t)coop->actor.rank->index;
    finding->first.block = (int32_t)coop->block;
    finding->first.owner = finding->first.rank;
    (void)snprintf(finding->first.kernel, sizeof(finding->first.kernel), "%s",
                   coop->launch->kernel->name);
    (void)snprintf(finding->first.call, sizeof(finding->first.call), "%s",
                   sim_wait_names[wait->kind]);
    (void)snprintf(finding->first.phase, sizeof(finding->first.phase), "%s",
                   coop->actor.world->explore->agents[coop->actor.agent].phase);
    if (!rooted) {
        finding->second.rank = sim_wait_whom(wait, open);
        (void)snprintf(finding->missing, sizeof(finding->missing), "a value of 0x%llx",
                       (unsigned long long)wait->expected);
    }
}

/* A program that has ended with an error comes first: that others wait for it follows from that. */
static void sim_root_describe(const sim_world *world, sim_graph_text *graph, ist_finding *finding)
{
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        const sim_rank *rank = &world->ranks[i];
        if (!rank->ended || rank->dead || rank->status >= IST_OK) {
            continue;
        }
        bool known = rank->error.status == rank->status;
        sim_graph_add(graph, "  before that: the program of rank %u ended with %s%s%s\n", i,
                      ist_status_name(rank->status), known ? ": " : "",
                      known ? rank->error.message : "");
        if (finding->second.rank == IST_RANK_NONE) {
            finding->second.rank = (int32_t)i;
            (void)snprintf(finding->missing, sizeof(finding->missing),
                           "the program of rank %u, which ended with %s", i,
                           ist_status_name(rank->status));
        }
    }
}

void sim_finding_deadlock(sim_explore *explore, ist_finding_kind kind)
{
    sim_world *world = explore->world;
    sim_graph_text graph = {.used = 0, .text = {0}};
    ist_finding finding;
    memset(&finding, 0, sizeof(finding));
    finding.first.rank = finding.second.rank = IST_RANK_NONE;
    finding.first.owner = finding.second.owner = IST_RANK_NONE;
    finding.first.block = finding.second.block = -1;
    sim_root_describe(world, &graph, &finding);
    bool rooted = finding.second.rank != IST_RANK_NONE;
    const sim_wait *oldest = NULL;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        sim_rank *rank = &world->ranks[i];
        for (const sim_wait *wait = rank->waits; wait != NULL; wait = wait->next) {
            sim_wait_describe(&graph, wait);
            if (oldest == NULL || wait->began_ps < oldest->began_ps) {
                oldest = wait;
            }
        }
        if (!rank->ended && !rank->dead && rank->host.state == SIM_BLOCKED) {
            sim_host_describe(&graph, rank);
        }
    }
    if (kind == IST_FINDING_LIVELOCK) {
        sim_polls_describe(explore, &graph, &finding);
    }
    if (oldest != NULL && finding.first.rank == IST_RANK_NONE) {
        sim_wait_first(oldest, rooted, &finding);
    }
    sim_finding_wait(explore, kind, &finding, graph.text);
}

/* Nothing is under way, nobody sleeps, and no fault explains it. */
bool sim_waits_stuck(sim_explore *explore)
{
    const sim_world *world = explore->world;
    if (world->fault_struck || world->lost_count > 0) {
        return false;
    }
    for (uint32_t i = 0; i < world->heap_count; ++i) {
        const sim_event *event = &world->heap[i];
        if (event->type != SIM_EV_DEADLINE && event->type != SIM_EV_EXCHANGE &&
            event->type != SIM_EV_COLL_TIMER) {
            return false;
        }
    }
    return true;
}

static uint64_t sim_mix(uint64_t value)
{
    return sim_prng_mix(&value);
}

/* Sums are in no order: the shape says who waits for whom, not when. */
void sim_waits_shape(sim_explore *explore)
{
    const sim_world *world = explore->world;
    uint64_t shape = 0;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        for (const sim_wait *wait = world->ranks[i].waits; wait != NULL; wait = wait->next) {
            for (uint32_t k = 0; k < sim_wait_entries(wait); ++k) {
                if (sim_wait_open(wait, k)) {
                    shape += sim_mix((uint64_t)i << 40 | (uint64_t)wait->kind << 32 |
                                     (uint32_t)sim_wait_whom(wait, k));
                }
            }
        }
    }
    if (shape != 0) {
        explore->report.wait_shape += sim_mix(shape);
    }
}
