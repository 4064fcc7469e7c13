/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who looks at what again and again: for the report of a livelock. Waits that ended in vain and reads
 * of signals and counters are noted as they happen; loads of words are found in the newest accesses.
 */
#include "sim_explore.h"

#include <stdio.h>
#include <string.h>

/* Loads of one word, among the newest accesses, that make a loop. */
#define SIM_POLL_LOADS 16u
/* Words of one loop that are told apart. */
#define SIM_POLL_WORDS 8u

void sim_poll_note(sim_explore *explore, uint32_t number, const sim_poll *look)
{
    sim_poll *poll = &explore->agents[number].poll;
    if (poll->object != look->object || poll->expected != look->expected) {
        *poll = *look;
        poll->since_ps = explore->world->now_ps;
        poll->times = 0;
    }
    poll->seen = look->seen;
    ++poll->times;
}

typedef struct sim_loads {
    uint64_t address, bytes;
    uint32_t times, since_step;
    const char *call;
} sim_loads;

/* The word that the agent has loaded most often. */
static sim_loads sim_loads_of(const sim_explore *explore, uint32_t number)
{
    sim_loads words[SIM_POLL_WORDS];
    uint32_t count = 0, best = 0;
    uint64_t kept = explore->ring_count < SIM_ACCESS_RING ? explore->ring_count : SIM_ACCESS_RING;
    memset(words, 0, sizeof(words));
    for (uint64_t i = 1; i <= kept; ++i) { /* from the newest */
        const sim_access *access = &explore->ring[(explore->ring_count - i) % SIM_ACCESS_RING];
        if (sim_epoch_agent(access->epoch) != number || sim_access_writes(access)) {
            continue;
        }
        uint32_t at = 0;
        while (at < count && words[at].address != sim_access_address(access)) {
            ++at;
        }
        if (at == SIM_POLL_WORDS) {
            continue;
        }
        count = at == count ? count + 1u : count;
        words[at] = (sim_loads){sim_access_address(access), sim_access_bytes(access),
                                words[at].times + 1u, access->step, access->call};
        best = words[at].times > words[best].times ? at : best;
    }
    return words[best];
}

static uint64_t sim_loads_value(const sim_loads *loads)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)(uintptr_t)loads->address,
           loads->bytes < sizeof(value) ? loads->bytes : sizeof(value));
    return value;
}

static void sim_poll_who(const sim_explore *explore, uint32_t number, ist_finding *finding)
{
    const sim_agent *agent = &explore->agents[number];
    finding->first.rank = agent->rank != NULL ? (int32_t)agent->rank->index : IST_RANK_NONE;
    finding->first.block = agent->block;
    finding->first.owner = finding->first.rank;
    (void)snprintf(finding->first.kernel, sizeof(finding->first.kernel), "%s", agent->kernel);
    (void)snprintf(finding->first.phase, sizeof(finding->first.phase), "%s", agent->phase);
}

static void sim_poll_waits(sim_explore *explore, uint32_t number, sim_graph_text *graph,
                           ist_finding *finding)
{
    const sim_poll *poll = &explore->agents[number].poll;
    sim_graph_add(graph, " looks at %s", poll->what);
    if (poll->numbered) {
        sim_graph_add(graph, " number %u of context %u", poll->index, poll->context);
    }
    if (poll->whom >= 0) {
        sim_graph_add(graph, " of rank %d", poll->whom);
    }
    if (poll->expects) {
        sim_graph_add(graph, " (expects 0x%llx, sees 0x%llx)", (unsigned long long)poll->expected,
                      (unsigned long long)poll->seen);
    } else {
        sim_graph_add(graph, " (sees 0x%llx)", (unsigned long long)poll->seen);
    }
    sim_graph_add(graph, ", %u times since %llu ns\n", poll->times,
                  (unsigned long long)(poll->since_ps / SIM_PS_PER_NS));
    if (finding->first.rank == IST_RANK_NONE) {
        sim_poll_who(explore, number, finding);
        finding->expected = poll->expected;
        finding->seen = poll->seen;
        finding->since_ns = poll->since_ps / SIM_PS_PER_NS;
        finding->second.rank = poll->whom;
        (void)snprintf(finding->first.call, sizeof(finding->first.call), "%s", poll->what);
    }
}

static void sim_poll_loads(sim_explore *explore, uint32_t number, const sim_loads *loads,
                           sim_graph_text *graph, ist_finding *finding)
{
    const void *address = (const void *)(uintptr_t)loads->address;
    const sim_rank *owner = sim_memory_owner(explore->world, address);
    uint64_t offset = loads->address - (uint64_t)(uintptr_t)owner->memory.base;
    sim_graph_add(graph,
                  " reads %llu bytes at offset 0x%llx of rank %u's memory (sees 0x%llx), %u times "
                  "since step %u\n",
                  (unsigned long long)loads->bytes, (unsigned long long)offset, owner->index,
                  (unsigned long long)sim_loads_value(loads), loads->times, loads->since_step);
    if (finding->first.rank == IST_RANK_NONE) {
        sim_poll_who(explore, number, finding);
        finding->seen = sim_loads_value(loads);
        finding->first.owner = (int32_t)owner->index;
        finding->first.offset = offset;
        finding->first.bytes = loads->bytes;
        finding->first.step = loads->since_step;
        (void)snprintf(finding->first.call, sizeof(finding->first.call), "%s", loads->call);
    }
}

static void sim_poll_describe(sim_explore *explore, uint32_t number, sim_graph_text *graph,
                              ist_finding *finding)
{
    const sim_agent *agent = &explore->agents[number];
    sim_loads loads = sim_loads_of(explore, number);
    bool waits = agent->poll.times > 1u;
    if (!waits && loads.times < SIM_POLL_LOADS) {
        return;
    }
    sim_graph_add(graph, "  rank %u, %s", agent->rank->index,
                  agent->kind == SIM_AGENT_BLOCK ? "kernel " : "program");
    if (agent->kind == SIM_AGENT_BLOCK) {
        sim_graph_add(graph, "%s, block %d%s%s", agent->kernel, agent->block,
                      agent->phase[0] != '\0' ? ", after " : "", agent->phase);
    }
    if (waits) {
        sim_poll_waits(explore, number, graph, finding);
    } else {
        sim_poll_loads(explore, number, &loads, graph, finding);
    }
}

void sim_polls_describe(sim_explore *explore, sim_graph_text *graph, ist_finding *finding)
{
    const sim_world *world = explore->world;
    for (uint32_t i = 0; i < world->rank_count; ++i) {
        const sim_rank *rank = &world->ranks[i];
        for (const sim_actor *actor = rank->blocks; actor != NULL; actor = actor->next_of_rank) {
            sim_poll_describe(explore, actor->agent, graph, finding);
        }
        if (!rank->ended && !rank->dead && rank->host.agent != 0) {
            sim_poll_describe(explore, rank->host.agent, graph, finding);
        }
    }
}
